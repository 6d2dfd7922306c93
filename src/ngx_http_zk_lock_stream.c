
/*
 * Streams: answers that go on, one event after the other.
 *
 * There are two of them.  A claim's stream tells what becomes of the claim, and
 * holds it: when the request ends, in whatever way, the claim ends with it.  A
 * lock's stream tells each state of a lock.  The answer begins with the first
 * event, so what is refused before that is a problem as in any other call.
 * Here is what is told, and when; ngx_http_zk_lock_events.c sends it.
 *
 * A lock's stream looks at the lock only when all was sent: a slow client
 * misses states, but never the last one.
 *
 * Everything here runs on the event loop.  A stream is a part of its request,
 * and what it waits for is let go by the request's cleanup: the context's claim
 * or ask, which are NULL when there is none, and the lock that is followed.
 * Functions that send return NGX_DONE if the stream goes on, or else what is to
 * be given to ngx_http_finalize_request().
 */


#include "ngx_http_zk_lock_stream.h"


/* milliseconds from one state of a lock to the next */
#define NGX_HTTP_ZK_LOCK_STREAM_REST    50

/* how soon a lock is looked at again that could not be seen */
#define NGX_HTTP_ZK_LOCK_STREAM_AGAIN   1000


/* what is told of a refusal when the stream has begun, and logged */

typedef struct {
    ngx_http_zk_lock_outcome_e         outcome;
    const char                        *reason;
    ngx_str_t                          word;
} ngx_http_zk_lock_stream_end_t;


static ngx_http_zk_lock_stream_t *ngx_http_zk_lock_stream_create(
    ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx);

static void ngx_http_zk_lock_stream_claim_handler(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_outcome_e outcome);
static ngx_int_t ngx_http_zk_lock_stream_granted(
    ngx_http_zk_lock_stream_t *stream, ngx_http_zk_lock_claim_t *claim);
static ngx_int_t ngx_http_zk_lock_stream_refused(
    ngx_http_zk_lock_stream_t *stream, ngx_http_zk_lock_outcome_e outcome);
static void ngx_http_zk_lock_stream_holder_handler(
    ngx_http_zk_lock_ask_t *ask, ngx_http_zk_lock_answer_e answer);
static void ngx_http_zk_lock_stream_event_handler(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_event_e event,
    const char *reason);

static ngx_int_t ngx_http_zk_lock_stream_queued(
    ngx_http_zk_lock_stream_t *stream, ngx_http_zk_lock_claim_t *claim);
static ngx_int_t ngx_http_zk_lock_stream_grant(
    ngx_http_zk_lock_stream_t *stream, ngx_http_zk_lock_claim_t *claim);
static ngx_int_t ngx_http_zk_lock_stream_ending(
    ngx_http_zk_lock_stream_t *stream, ngx_http_zk_lock_claim_t *claim,
    const char *reason);
static ngx_int_t ngx_http_zk_lock_stream_revoke(
    ngx_http_zk_lock_stream_t *stream);
static ngx_int_t ngx_http_zk_lock_stream_taken(
    ngx_http_zk_lock_stream_t *stream, ngx_http_zk_lock_info_t *info);
static ngx_int_t ngx_http_zk_lock_stream_lost(
    ngx_http_zk_lock_stream_t *stream, const char *reason);

static void ngx_http_zk_lock_stream_follow_handler(
    ngx_http_zk_lock_follow_t *follow);
static void ngx_http_zk_lock_stream_rest_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_stream_list_handler(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer);
static ngx_int_t ngx_http_zk_lock_stream_listed(
    ngx_http_zk_lock_stream_t *stream, ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer);


static const ngx_http_zk_lock_stream_end_t  ngx_http_zk_lock_stream_ends[] = {

    { NGX_HTTP_ZK_LOCK_CONFLICT, "conflict", ngx_string("conflict") },
    { NGX_HTTP_ZK_LOCK_FULL, "full", ngx_string("full") },
    { NGX_HTTP_ZK_LOCK_UNREACHABLE, "unreachable", ngx_string("unreachable") },
    { NGX_HTTP_ZK_LOCK_NO_ROOM, "no_room", ngx_string("no_room") },
    { NGX_HTTP_ZK_LOCK_WORN_OUT, "refused", ngx_string("refused") },
    { NGX_HTTP_ZK_LOCK_DENIED, "refused", ngx_string("refused") },
    { NGX_HTTP_ZK_LOCK_CANCELLED, "cancelled", ngx_string("cancelled") },
    { NGX_HTTP_ZK_LOCK_SHUT, "shutdown", ngx_string("shut") },

    /* must be the last */

    { NGX_HTTP_ZK_LOCK_FAILED, "failed", ngx_string("failed") }
};


ngx_int_t
ngx_http_zk_lock_stream_claim(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_acquire_t *acquire)
{
    ngx_int_t                   rc;
    ngx_http_zk_lock_stream_t  *stream;
    ngx_http_zk_lock_outcome_e  outcome;

    rc = ngx_http_zk_lock_api_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    stream = ngx_http_zk_lock_stream_create(r, ctx);
    if (stream == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    acquire->bound = 1;
    acquire->handler = ngx_http_zk_lock_stream_claim_handler;
    acquire->event = ngx_http_zk_lock_stream_event_handler;
    acquire->data = stream;

    ctx->claim = ngx_http_zk_lock_claim_acquire(ctx->worker, acquire,
                                                &outcome);

    if (ctx->claim == NULL) {
        return ngx_http_zk_lock_api_refused(r, ctx, outcome);
    }

    return NGX_DONE;
}


ngx_int_t
ngx_http_zk_lock_stream_lock(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_http_zk_lock_stream_t  *stream;

    rc = ngx_http_zk_lock_api_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    stream = ngx_http_zk_lock_stream_create(r, ctx);
    if (stream == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (r->method == NGX_HTTP_HEAD) {
        rc = ngx_http_zk_lock_stream_begin(stream);
        ngx_http_zk_lock_stream_stop(stream);

        return rc;
    }

    stream->follow.handler = ngx_http_zk_lock_stream_follow_handler;
    stream->follow.node = (ngx_http_zk_lock_api_node(r) != 0);

    if (ngx_http_zk_lock_follow(ctx->worker, &ctx->path, &stream->follow)
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_zk_lock_api_ask(r, ctx, NGX_HTTP_ZK_LOCK_LIST, 0,
                                  ngx_http_zk_lock_stream_list_handler);

    if (rc != NGX_DONE) {
        ngx_http_zk_lock_stream_stop(stream);
    }

    return rc;
}


static ngx_http_zk_lock_stream_t *
ngx_http_zk_lock_stream_create(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_pool_cleanup_t         *cln;
    ngx_http_zk_lock_stream_t  *stream;

    stream = ngx_pcalloc(r->pool, sizeof(ngx_http_zk_lock_stream_t));
    if (stream == NULL) {
        return NULL;
    }

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NULL;
    }

    cln->handler = ngx_http_zk_lock_stream_cleanup;
    cln->data = stream;

    stream->request = r;
    stream->ctx = ctx;
    stream->format = ngx_http_zk_lock_accepts(r);

    /* not cancelable: a worker that leaves serves its streams to the end */

    ngx_http_zk_lock_worker_timer(ctx->worker, &stream->timer,
                                  ngx_http_zk_lock_stream_alive_handler);

    ngx_http_zk_lock_worker_timer(ctx->worker, &stream->rest,
                                  ngx_http_zk_lock_stream_rest_handler);
    stream->rest.cancelable = 1;

    ctx->other = stream;
    ctx->leave = ngx_http_zk_lock_stream_stop;

    return stream;
}


void
ngx_http_zk_lock_stream_stop(void *data)
{
    ngx_http_zk_lock_stream_t *stream = data;

    ngx_http_zk_lock_unfollow(&stream->follow);

    if (stream->timer.timer_set) {
        ngx_del_timer(&stream->timer);
    }

    if (stream->rest.timer_set) {
        ngx_del_timer(&stream->rest);
    }
}


static void
ngx_http_zk_lock_stream_claim_handler(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_outcome_e outcome)
{
    ngx_http_zk_lock_stream_t *stream = data;

    ngx_int_t                rc;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    r = stream->request;
    ctx = stream->ctx;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock stream: \"%V\" outcome %d", &ctx->path, outcome);

    ctx->waited = ngx_current_msec - claim->started;

    if (outcome == NGX_HTTP_ZK_LOCK_GRANTED) {
        rc = ngx_http_zk_lock_stream_granted(stream, claim);

    } else {
        ctx->claim = NULL;
        rc = ngx_http_zk_lock_stream_refused(stream, outcome);
    }

    ngx_http_zk_lock_api_end(r, rc);
}


/* The claim stays the request's, and ends with it. */

static ngx_int_t
ngx_http_zk_lock_stream_granted(ngx_http_zk_lock_stream_t *stream,
    ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = stream->ctx;

    if (ngx_http_zk_lock_api_gone(stream->request)) {
        return NGX_HTTP_CLIENT_CLOSED_REQUEST;
    }

    ngx_str_set(&ctx->outcome, "granted");

    ngx_http_zk_lock_api_note(ctx, claim);

    stream->held = 1;

    return ngx_http_zk_lock_stream_grant(stream, claim);
}


static ngx_int_t
ngx_http_zk_lock_stream_refused(ngx_http_zk_lock_stream_t *stream,
    ngx_http_zk_lock_outcome_e outcome)
{
    ngx_int_t                             rc;
    ngx_http_zk_lock_ctx_t               *ctx;
    const ngx_http_zk_lock_stream_end_t  *end;

    ctx = stream->ctx;

    if (!stream->begun) {
        ngx_http_zk_lock_stream_stop(stream);

        return ngx_http_zk_lock_api_refused(stream->request, ctx, outcome);
    }

    if (outcome == NGX_HTTP_ZK_LOCK_TAKEN) {
        ngx_str_set(&ctx->outcome, "taken");

        rc = ngx_http_zk_lock_api_ask(stream->request, ctx,
                                      NGX_HTTP_ZK_LOCK_HOLDER, 0,
                                      ngx_http_zk_lock_stream_holder_handler);

        return (rc == NGX_DONE) ? rc
                                : ngx_http_zk_lock_stream_taken(stream, NULL);
    }

    for (end = ngx_http_zk_lock_stream_ends;
         end->outcome != outcome && end->outcome != NGX_HTTP_ZK_LOCK_FAILED;
         end++)
    {
        /* void */
    }

    ctx->outcome = end->word;

    return ngx_http_zk_lock_stream_lost(stream, end->reason);
}


/* The holder is a courtesy: the event does not depend on it. */

static void
ngx_http_zk_lock_stream_holder_handler(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer)
{
    ngx_int_t                rc;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ask->data;
    r = ngx_http_zk_lock_api_told(ask, answer);

    rc = ngx_http_zk_lock_stream_taken(ctx->other,
                                       answer == NGX_HTTP_ZK_LOCK_ASK_OK
                                       ? &ask->infos[0] : NULL);

    ngx_http_zk_lock_api_end(r, rc);
}


static void
ngx_http_zk_lock_stream_event_handler(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_event_e event,
    const char *reason)
{
    ngx_http_zk_lock_stream_t *stream = data;

    ngx_int_t                rc;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    r = stream->request;
    ctx = stream->ctx;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock stream: \"%V\" event %d", &ctx->path, event);

    if (!stream->held && event != NGX_HTTP_ZK_LOCK_EVENT_WAITS) {

        /* who was not told of a grant is told of a refusal */

        return;
    }

    switch (event) {

    case NGX_HTTP_ZK_LOCK_EVENT_WAITS:
        rc = ngx_http_zk_lock_stream_queued(stream, claim);
        break;

    case NGX_HTTP_ZK_LOCK_EVENT_REVOKE:
        rc = ngx_http_zk_lock_stream_revoke(stream);
        break;

    case NGX_HTTP_ZK_LOCK_EVENT_ENDING:
        rc = ngx_http_zk_lock_stream_ending(stream, claim, reason);
        break;

    case NGX_HTTP_ZK_LOCK_EVENT_SURE:
        rc = ngx_http_zk_lock_stream_grant(stream, claim);
        break;

    default: /* NGX_HTTP_ZK_LOCK_EVENT_LOST */
        ctx->claim = NULL;

        if (ngx_strcmp(reason, "released") == 0) {
            ngx_str_set(&ctx->outcome, "released");

        } else {
            ngx_str_set(&ctx->outcome, "lost");
        }

        rc = ngx_http_zk_lock_stream_lost(stream, reason);
        break;
    }

    ngx_http_zk_lock_api_end(r, rc);
}


static ngx_int_t
ngx_http_zk_lock_stream_queued(ngx_http_zk_lock_stream_t *stream,
    ngx_http_zk_lock_claim_t *claim)
{
    zk_lock_json_t  *json;

    json = ngx_http_zk_lock_stream_open(stream, "queued");

    ngx_http_zk_lock_write_name(json, stream->ctx);
    ngx_http_zk_lock_write_mode(json, claim->entry.kind);
    zk_lock_json_integer(json, "position", (int64_t) claim->position);

    return ngx_http_zk_lock_stream_send(stream, "queued", json, 0);
}


static ngx_int_t
ngx_http_zk_lock_stream_grant(ngx_http_zk_lock_stream_t *stream,
    ngx_http_zk_lock_claim_t *claim)
{
    zk_lock_json_t  *json;

    json = ngx_http_zk_lock_stream_open(stream, "granted");

    ngx_http_zk_lock_write_grant(json, stream->ctx, claim);

    return ngx_http_zk_lock_stream_send(stream, "granted", json, 0);
}


static ngx_int_t
ngx_http_zk_lock_stream_ending(ngx_http_zk_lock_stream_t *stream,
    ngx_http_zk_lock_claim_t *claim, const char *reason)
{
    ngx_msec_t       end;
    ngx_msec_int_t   left;
    zk_lock_json_t  *json;

    if (ngx_strcmp(reason, "lease") == 0) {
        end = claim->lease;

    } else {
        end = *ngx_http_zk_lock_zone_alive(stream->ctx->worker->zone);
    }

    left = (ngx_msec_int_t) (end - ngx_http_zk_lock_now());

    json = ngx_http_zk_lock_stream_open(stream, "ending");

    ngx_http_zk_lock_write_name(json, stream->ctx);
    zk_lock_json_integer(json, "expires_in_ms", ngx_max(left, 0));
    ngx_http_zk_lock_write_text(json, "reason", reason);

    return ngx_http_zk_lock_stream_send(stream, "ending", json, 0);
}


static ngx_int_t
ngx_http_zk_lock_stream_revoke(ngx_http_zk_lock_stream_t *stream)
{
    zk_lock_json_t  *json;

    json = ngx_http_zk_lock_stream_open(stream, "revoke");

    ngx_http_zk_lock_write_name(json, stream->ctx);

    return ngx_http_zk_lock_stream_send(stream, "revoke", json, 0);
}


static ngx_int_t
ngx_http_zk_lock_stream_taken(ngx_http_zk_lock_stream_t *stream,
    ngx_http_zk_lock_info_t *info)
{
    zk_lock_json_t  *json;

    json = ngx_http_zk_lock_stream_open(stream, "taken");

    ngx_http_zk_lock_write_name(json, stream->ctx);

    if (info != NULL) {
        zk_lock_json_object(json, "holder");
        ngx_http_zk_lock_write_info(json, info);
        zk_lock_json_end_object(json);
    }

    ngx_http_zk_lock_write_note(json, stream->ctx, NGX_HTTP_ZK_LOCK_NOTE_WAIT);

    return ngx_http_zk_lock_stream_send(stream, "taken", json, 1);
}


static ngx_int_t
ngx_http_zk_lock_stream_lost(ngx_http_zk_lock_stream_t *stream,
    const char *reason)
{
    zk_lock_json_t  *json;

    json = ngx_http_zk_lock_stream_open(stream, "lost");

    ngx_http_zk_lock_write_name(json, stream->ctx);
    ngx_http_zk_lock_write_text(json, "reason", reason);

    return ngx_http_zk_lock_stream_send(stream, "lost", json, 1);
}


static void
ngx_http_zk_lock_stream_follow_handler(ngx_http_zk_lock_follow_t *follow)
{
    ngx_http_zk_lock_stream_t  *stream;

    stream = ngx_queue_data(follow, ngx_http_zk_lock_stream_t, follow);

    stream->changed = 1;

    ngx_http_zk_lock_stream_look(stream);
}


static void
ngx_http_zk_lock_stream_rest_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_stream_t  *stream;

    stream = ngx_queue_data(ev, ngx_http_zk_lock_stream_t, rest);

    ngx_http_zk_lock_stream_look(stream);
}


void
ngx_http_zk_lock_stream_look(ngx_http_zk_lock_stream_t *stream)
{
    ngx_int_t                rc;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = stream->ctx;

    if (!stream->changed || ctx->ask != NULL || stream->rest.timer_set
        || ngx_http_zk_lock_stream_clogged(stream))
    {
        return;
    }

    stream->changed = 0;

    rc = ngx_http_zk_lock_api_ask(stream->request, ctx, NGX_HTTP_ZK_LOCK_LIST,
                                  0, ngx_http_zk_lock_stream_list_handler);

    if (rc != NGX_DONE) {
        stream->changed = 1;
        ngx_add_timer(&stream->rest, NGX_HTTP_ZK_LOCK_STREAM_AGAIN);
    }
}


static void
ngx_http_zk_lock_stream_list_handler(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer)
{
    ngx_int_t                rc;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ask->data;
    r = ngx_http_zk_lock_api_told(ask, answer);

    rc = ngx_http_zk_lock_stream_listed(ctx->other, ask, answer);

    if (rc == NGX_DONE) {
        ngx_http_zk_lock_stream_look(ctx->other);
    }

    ngx_http_zk_lock_api_end(r, rc);
}


static ngx_int_t
ngx_http_zk_lock_stream_listed(ngx_http_zk_lock_stream_t *stream,
    ngx_http_zk_lock_ask_t *ask, ngx_http_zk_lock_answer_e answer)
{
    uint64_t                 mark;
    ngx_int_t                rc;
    zk_lock_json_t          *json;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = stream->ctx;

    if (answer != NGX_HTTP_ZK_LOCK_ASK_OK
        && answer != NGX_HTTP_ZK_LOCK_ASK_FREE)
    {
        if (!stream->begun) {
            ngx_http_zk_lock_stream_stop(stream);

            return ngx_http_zk_lock_api_answered(stream->request, ctx, ask,
                                                 answer);
        }

        stream->changed = 1;
        ngx_add_timer(&stream->rest, NGX_HTTP_ZK_LOCK_STREAM_AGAIN);

        return NGX_DONE;
    }

    mark = (answer == NGX_HTTP_ZK_LOCK_ASK_OK) ? ask->mark : 0;

    if (stream->told && mark == stream->mark) {
        return NGX_DONE;
    }

    ngx_str_set(&ctx->outcome, "watched");

    json = ngx_http_zk_lock_stream_open(stream, "change");

    ngx_http_zk_lock_write_lock(json, ctx, ask);

    rc = ngx_http_zk_lock_stream_send(stream, "change", json, 0);

    if (rc == NGX_DONE) {
        stream->told = 1;
        stream->mark = mark;

        ngx_add_timer(&stream->rest, NGX_HTTP_ZK_LOCK_STREAM_REST);
    }

    return rc;
}
