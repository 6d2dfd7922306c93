
/*
 * Streams: answers that go on, event after event.
 *
 * A claim's stream tells what becomes of the claim, and holds the claim: when
 * the request ends, in any way, the claim ends.  A lock's stream tells each
 * state of a lock, and looks at the lock only when all events were sent: a slow
 * client misses states, but never the last state.  The answer begins with the
 * first event, so a refusal before that is a problem as in any other call.
 *
 * An event is a buffer, flushed.  The text is allocated outside of the pool of
 * the request and freed when sent, because a stream may go on for days; the
 * buffer and the chain link are used again.  Unsent text is freed with the pool
 * and not sooner, because an HTTP/2 connection may have to send the rest of a
 * frame long after the request was terminated.
 *
 * A sign of life now and then keeps proxies from closing the connection, and
 * finds out that the client is gone.  A client that does not read is cut off
 * after send_timeout without progress, or when too much text waits.  A client
 * that vanished without a word holds a lock for send_timeout at most after the
 * next sign of life, because the kernel gives up then.
 *
 * Everything here runs on the event loop.  The stream is in the request's pool;
 * the request's cleanup leaves the context's claim and call, each NULL when
 * there is none, and unfollows the lock.  Functions that send return NGX_DONE
 * if the stream goes on, or else a value for ngx_http_finalize_request().
 */


#include "http/stream.h"
#include "http/result.h"


/* the least time between two states of a lock, in ms */
#define NGX_HTTP_ZK_LOCK_STREAM_REST    50

/* how soon the stream looks again after a look that failed, in ms */
#define NGX_HTTP_ZK_LOCK_STREAM_AGAIN   1000

/* the time between two signs of life, in ms */
#define NGX_HTTP_ZK_LOCK_STREAM_ALIVE   15000

/* bytes of unsent events above which the next event cuts the client off */
#define NGX_HTTP_ZK_LOCK_STREAM_MAX     65536


static ngx_http_zk_lock_stream_t *ngx_http_zk_lock_stream_create(
    ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx);
static void ngx_http_zk_lock_stream_stop(void *data);
static void ngx_http_zk_lock_stream_claim_handler(void *data,
    zkl_claim_t *claim, zkl_outcome_e outcome);
static void ngx_http_zk_lock_stream_holder_handler(zkl_call_t *call,
    zkl_answer_e answer);
static void ngx_http_zk_lock_stream_event_handler(void *data,
    zkl_claim_t *claim, zkl_event_e event, const char *reason);
static ngx_int_t ngx_http_zk_lock_stream_grant(
    ngx_http_zk_lock_stream_t *stream, zkl_claim_t *claim);
static ngx_int_t ngx_http_zk_lock_stream_taken(
    ngx_http_zk_lock_stream_t *stream, zkl_info_t *info);
static ngx_int_t ngx_http_zk_lock_stream_lost(
    ngx_http_zk_lock_stream_t *stream, const char *reason);
static void ngx_http_zk_lock_stream_follow_handler(zkl_follow_t *follow);
static void ngx_http_zk_lock_stream_rest_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_stream_look(ngx_http_zk_lock_stream_t *stream);
static void ngx_http_zk_lock_stream_list_handler(zkl_call_t *call,
    zkl_answer_e answer);
static zkl_json_t *ngx_http_zk_lock_stream_open(
    ngx_http_zk_lock_stream_t *stream, const char *event);
static ngx_int_t ngx_http_zk_lock_stream_send(
    ngx_http_zk_lock_stream_t *stream, zkl_json_t *json, ngx_uint_t last);
static ngx_int_t ngx_http_zk_lock_stream_begin(
    ngx_http_zk_lock_stream_t *stream);
static void ngx_http_zk_lock_stream_patience(ngx_connection_t *c,
    ngx_msec_t timeout);
static void ngx_http_zk_lock_stream_alive_handler(ngx_event_t *ev);
static ngx_chain_t *ngx_http_zk_lock_stream_chain(
    ngx_http_zk_lock_stream_t *stream, size_t size);
static ngx_int_t ngx_http_zk_lock_stream_output(
    ngx_http_zk_lock_stream_t *stream, ngx_chain_t *out);
static void ngx_http_zk_lock_stream_cleanup(void *data);
static ngx_uint_t ngx_http_zk_lock_stream_clogged(
    ngx_http_zk_lock_stream_t *stream);
static void ngx_http_zk_lock_stream_writer(ngx_http_request_t *r);


ngx_int_t
ngx_http_zk_lock_stream_claim(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_acquire_t *acquire)
{
    ngx_int_t                   rc;
    ngx_http_zk_lock_stream_t  *stream;
    zkl_outcome_e               outcome;

    rc = ngx_http_zk_lock_request_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    stream = ngx_http_zk_lock_stream_create(r, ctx);
    if (stream == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    acquire->terms.bound = 1;
    acquire->handler = ngx_http_zk_lock_stream_claim_handler;
    acquire->event = ngx_http_zk_lock_stream_event_handler;
    acquire->data = stream;

    ctx->claim = zkl_claim_acquire(ctx->worker, acquire, &outcome);

    if (ctx->claim == NULL) {
        return ngx_http_zk_lock_result_refused(r, ctx, outcome);
    }

    return NGX_DONE;
}


ngx_int_t
ngx_http_zk_lock_stream_lock(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_http_zk_lock_stream_t  *stream;

    rc = ngx_http_zk_lock_request_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    stream = ngx_http_zk_lock_stream_create(r, ctx);
    if (stream == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->told.type = NGX_HTTP_ZK_LOCK_WATCH;

    if (r->method == NGX_HTTP_HEAD) {
        rc = ngx_http_zk_lock_stream_begin(stream);
        ngx_http_zk_lock_stream_stop(stream);

        return rc;
    }

    stream->follow.handler = ngx_http_zk_lock_stream_follow_handler;
    stream->follow.node = (ngx_http_zk_lock_request_node(r) != 0);

    if (zkl_follow(ctx->worker, &ctx->path, &stream->follow) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_zk_lock_request_call(r, ctx, ZKL_LIST, 0,
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

    /* not cancelable: a worker that leaves serves the streams to the end */

    zkl_worker_timer(ctx->worker, &stream->timer,
                     ngx_http_zk_lock_stream_alive_handler);

    zkl_worker_timer(ctx->worker, &stream->rest,
                     ngx_http_zk_lock_stream_rest_handler);
    stream->rest.cancelable = 1;

    ctx->other = stream;
    ctx->leave = ngx_http_zk_lock_stream_stop;

    return stream;
}


/* No event is made any more; unsent events may still be sent. */

static void
ngx_http_zk_lock_stream_stop(void *data)
{
    ngx_http_zk_lock_stream_t *stream = data;

    zkl_unfollow(&stream->follow);

    if (stream->timer.timer_set) {
        ngx_del_timer(&stream->timer);
    }

    if (stream->rest.timer_set) {
        ngx_del_timer(&stream->rest);
    }
}


/* The request keeps a granted claim, which ends with the request. */

static void
ngx_http_zk_lock_stream_claim_handler(void *data, zkl_claim_t *claim,
    zkl_outcome_e outcome)
{
    ngx_http_zk_lock_stream_t *stream = data;

    ngx_int_t                         rc;
    ngx_http_request_t               *r;
    ngx_http_zk_lock_ctx_t           *ctx;
    const ngx_http_zk_lock_result_t  *row;

    r = stream->request;
    ctx = stream->ctx;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock stream: \"%V\" outcome %d", &ctx->path, outcome);

    ctx->told.waited = ngx_current_msec - claim->started;

    if (outcome == ZKL_GRANTED && ngx_http_zk_lock_request_gone(r)) {
        rc = NGX_HTTP_CLIENT_CLOSED_REQUEST;

    } else if (outcome == ZKL_GRANTED) {
        ngx_str_set(&ctx->told.outcome, "granted");

        ngx_http_zk_lock_request_note(ctx, claim);

        stream->held = 1;

        rc = ngx_http_zk_lock_stream_grant(stream, claim);

    } else if (!stream->begun) {
        ctx->claim = NULL;

        ngx_http_zk_lock_stream_stop(stream);

        rc = ngx_http_zk_lock_result_refused(r, ctx, outcome);

    } else if (outcome == ZKL_TIMED_OUT) {
        ctx->claim = NULL;

        ngx_str_set(&ctx->told.outcome, "taken");

        rc = ngx_http_zk_lock_request_call(r, ctx, ZKL_HOLDER, 0,
                                        ngx_http_zk_lock_stream_holder_handler);

        if (rc != NGX_DONE) {
            rc = ngx_http_zk_lock_stream_taken(stream, NULL);
        }

    } else {
        ctx->claim = NULL;

        row = ngx_http_zk_lock_result(outcome);
        ctx->told.outcome = row->word;

        rc = ngx_http_zk_lock_stream_lost(stream, row->reason);
    }

    ngx_http_zk_lock_request_end(r, rc);
}


/* The holder is a courtesy: the event is sent without a holder, too. */

static void
ngx_http_zk_lock_stream_holder_handler(zkl_call_t *call, zkl_answer_e answer)
{
    ngx_int_t                rc;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = call->data;
    r = ngx_http_zk_lock_request_told(call, answer);

    rc = ngx_http_zk_lock_stream_taken(ctx->other, answer == ZKL_CALL_OK
                                       ? &call->infos[0] : NULL);

    ngx_http_zk_lock_request_end(r, rc);
}


static void
ngx_http_zk_lock_stream_event_handler(void *data, zkl_claim_t *claim,
    zkl_event_e event, const char *reason)
{
    ngx_http_zk_lock_stream_t *stream = data;

    ngx_int_t                rc;
    ngx_msec_t               end;
    zkl_json_t              *json;
    ngx_msec_int_t           left;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    r = stream->request;
    ctx = stream->ctx;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock stream: \"%V\" event %d", &ctx->path, event);

    if (!stream->held && event != ZKL_EVENT_WAITS) {

        /* before the grant is told, the claim's handler tells the refusal */

        return;
    }

    switch (event) {

    case ZKL_EVENT_WAITS:
        json = ngx_http_zk_lock_stream_open(stream, "queued");

        ngx_http_zk_lock_write_name(json, ctx);
        ngx_http_zk_lock_write_mode(json, claim->entry.mode);
        zkl_json_integer(json, "position", (int64_t) claim->position);

        rc = ngx_http_zk_lock_stream_send(stream, json, 0);
        break;

    case ZKL_EVENT_REVOKE:
        json = ngx_http_zk_lock_stream_open(stream, "revoke");

        ngx_http_zk_lock_write_name(json, ctx);

        rc = ngx_http_zk_lock_stream_send(stream, json, 0);
        break;

    case ZKL_EVENT_ENDING:
        end = (ngx_strcmp(reason, "lease") == 0)
              ? claim->lease : ctx->worker->zone->own->alive;

        left = (ngx_msec_int_t) (end - zkl_now());

        json = ngx_http_zk_lock_stream_open(stream, "ending");

        ngx_http_zk_lock_write_name(json, ctx);
        zkl_json_integer(json, "expires_in_ms", ngx_max(left, 0));
        ngx_http_zk_lock_write_text(json, "reason", reason);

        rc = ngx_http_zk_lock_stream_send(stream, json, 0);
        break;

    case ZKL_EVENT_SURE:
        rc = ngx_http_zk_lock_stream_grant(stream, claim);
        break;

    default: /* ZKL_EVENT_LOST */
        ctx->claim = NULL;

        if (ngx_strcmp(reason, "released") == 0) {
            ngx_str_set(&ctx->told.outcome, "released");

        } else {
            ngx_str_set(&ctx->told.outcome, "lost");
        }

        rc = ngx_http_zk_lock_stream_lost(stream, reason);
        break;
    }

    ngx_http_zk_lock_request_end(r, rc);
}


static ngx_int_t
ngx_http_zk_lock_stream_grant(ngx_http_zk_lock_stream_t *stream,
    zkl_claim_t *claim)
{
    zkl_json_t  *json;

    json = ngx_http_zk_lock_stream_open(stream, "granted");

    ngx_http_zk_lock_write_grant(json, stream->ctx, claim);

    return ngx_http_zk_lock_stream_send(stream, json, 0);
}


static ngx_int_t
ngx_http_zk_lock_stream_taken(ngx_http_zk_lock_stream_t *stream,
    zkl_info_t *info)
{
    zkl_json_t  *json;

    json = ngx_http_zk_lock_stream_open(stream, "taken");

    ngx_http_zk_lock_write_name(json, stream->ctx);

    ngx_http_zk_lock_write_holder(json, "holder", info);
    ngx_http_zk_lock_write_note(json, stream->ctx, NGX_HTTP_ZK_LOCK_NOTE_WAIT);

    return ngx_http_zk_lock_stream_send(stream, json, 1);
}


static ngx_int_t
ngx_http_zk_lock_stream_lost(ngx_http_zk_lock_stream_t *stream,
    const char *reason)
{
    zkl_json_t  *json;

    json = ngx_http_zk_lock_stream_open(stream, "lost");

    ngx_http_zk_lock_write_name(json, stream->ctx);
    ngx_http_zk_lock_write_text(json, "reason", reason);

    return ngx_http_zk_lock_stream_send(stream, json, 1);
}


static void
ngx_http_zk_lock_stream_follow_handler(zkl_follow_t *follow)
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


/* Looks at the lock, if the lock has changed and the client is ready. */

static void
ngx_http_zk_lock_stream_look(ngx_http_zk_lock_stream_t *stream)
{
    ngx_int_t                rc;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = stream->ctx;

    if (!stream->changed || ctx->call != NULL || stream->rest.timer_set
        || ngx_http_zk_lock_stream_clogged(stream))
    {
        return;
    }

    stream->changed = 0;

    rc = ngx_http_zk_lock_request_call(stream->request, ctx, ZKL_LIST, 0,
                                       ngx_http_zk_lock_stream_list_handler);

    if (rc != NGX_DONE) {
        stream->changed = 1;
        ngx_add_timer(&stream->rest, NGX_HTTP_ZK_LOCK_STREAM_AGAIN);
    }
}


static void
ngx_http_zk_lock_stream_list_handler(zkl_call_t *call, zkl_answer_e answer)
{
    uint64_t                    etag;
    ngx_int_t                   rc;
    zkl_json_t                 *json;
    ngx_http_request_t         *r;
    ngx_http_zk_lock_ctx_t     *ctx;
    ngx_http_zk_lock_stream_t  *stream;

    ctx = call->data;
    stream = ctx->other;
    r = ngx_http_zk_lock_request_told(call, answer);

    etag = (answer == ZKL_CALL_OK) ? call->etag : 0;

    if (answer == ZKL_CALL_OK || answer == ZKL_CALL_FREE) {
        rc = NGX_DONE;

        if (!stream->told || etag != stream->etag) {
            ngx_str_set(&ctx->told.outcome, "watched");

            json = ngx_http_zk_lock_stream_open(stream, "change");

            ngx_http_zk_lock_write_lock(json, ctx, call);

            rc = ngx_http_zk_lock_stream_send(stream, json, 0);

            if (rc == NGX_DONE) {
                stream->told = 1;
                stream->etag = etag;

                ngx_add_timer(&stream->rest, NGX_HTTP_ZK_LOCK_STREAM_REST);
            }
        }

    } else if (!stream->begun) {
        ngx_http_zk_lock_stream_stop(stream);

        rc = ngx_http_zk_lock_result_answered(r, ctx, call, answer);

    } else {
        stream->changed = 1;
        ngx_add_timer(&stream->rest, NGX_HTTP_ZK_LOCK_STREAM_AGAIN);

        rc = NGX_DONE;
    }

    if (rc == NGX_DONE) {
        ngx_http_zk_lock_stream_look(stream);
    }

    ngx_http_zk_lock_request_end(r, rc);
}


/* How events are written, and sent to the client. */


/* Opens the object of an event; the caller writes the members. */

static zkl_json_t *
ngx_http_zk_lock_stream_open(ngx_http_zk_lock_stream_t *stream,
    const char *event)
{
    zkl_json_t  *json;

    stream->event = event;

    json = zkl_json_open();

    if (stream->format != NGX_HTTP_ZK_LOCK_EVENTS) {
        ngx_http_zk_lock_write_text(json, "event", event);
    }

    return json;
}


/* Sends json as an event, closes json in any case; last: the stream ends. */

static ngx_int_t
ngx_http_zk_lock_stream_send(ngx_http_zk_lock_stream_t *stream,
    zkl_json_t *json, ngx_uint_t last)
{
    size_t               len, pending;
    ngx_int_t            rc;
    ngx_buf_t           *b;
    const char          *text;
    ngx_chain_t         *out, *cl;
    ngx_http_request_t  *r;

    r = stream->request;
    pending = 0;

    for (cl = stream->busy; cl; cl = cl->next) {
        pending += cl->buf->last - cl->buf->pos;
    }

    if (pending > NGX_HTTP_ZK_LOCK_STREAM_MAX) {
        zkl_json_close(json);

        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "client does not read its events");

        return NGX_ERROR;
    }

    text = zkl_json_text(json, &len);

    out = (text != NULL)
          ? ngx_http_zk_lock_stream_chain(stream,
                                          sizeof("event: \ndata: \n\n")
                                          + ngx_strlen(stream->event) + len)
          : NULL;

    if (out == NULL) {
        zkl_json_close(json);

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "an event could not be written");

        return NGX_ERROR;
    }

    b = out->buf;

    if (stream->format == NGX_HTTP_ZK_LOCK_EVENTS) {
        b->last = ngx_sprintf(b->last, "event: %s\ndata: ", stream->event);
    }

    b->last = ngx_cpymem(b->last, text, len);
    *b->last++ = '\n';

    if (stream->format == NGX_HTTP_ZK_LOCK_EVENTS) {
        *b->last++ = '\n';
    }

    zkl_json_close(json);

    b->last_buf = last;
    b->last_in_chain = last;

    if (last) {
        ngx_http_zk_lock_stream_stop(stream);
    }

    if (!stream->begun) {
        rc = ngx_http_zk_lock_stream_begin(stream);

        if (rc == NGX_ERROR || rc > NGX_OK) {
            return NGX_ERROR;
        }
    }

    rc = ngx_http_zk_lock_stream_output(stream, out);

    return (last || rc == NGX_ERROR) ? rc : NGX_DONE;
}


/* Begins the answer; returns what ngx_http_send_header() does. */

static ngx_int_t
ngx_http_zk_lock_stream_begin(ngx_http_zk_lock_stream_t *stream)
{
    ngx_connection_t          *c;
    ngx_http_request_t        *r;
    ngx_http_core_loc_conf_t  *clcf;

    r = stream->request;
    c = r->connection;
    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    stream->begun = 1;

    r->headers_out.status = NGX_HTTP_OK;

    if (stream->format == NGX_HTTP_ZK_LOCK_EVENTS) {
        ngx_str_set(&r->headers_out.content_type, "text/event-stream");

    } else {
        ngx_str_set(&r->headers_out.content_type, "application/x-ndjson");
    }

    r->headers_out.content_type_len = r->headers_out.content_type.len;

    if (ngx_http_zk_lock_add_header(r, "X-Accel-Buffering", (u_char *) "no", 2)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* a small event must not wait until the client acknowledges another */

    if (clcf->tcp_nodelay && ngx_tcp_nodelay(c) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_zk_lock_stream_patience(c, clcf->send_timeout);

    r->write_event_handler = ngx_http_zk_lock_stream_writer;

    ngx_add_timer(&stream->timer, NGX_HTTP_ZK_LOCK_STREAM_ALIVE);

    return ngx_http_send_header(r);
}


/*
 * The kernel resends data that a vanished client does not acknowledge for a
 * quarter of an hour, and sends no probes of so_keepalive meanwhile.  So the
 * kernel is told to give up after timeout, or sooner when the probes would.
 */

static void
ngx_http_zk_lock_stream_patience(ngx_connection_t *c, ngx_msec_t timeout)
{
#ifdef TCP_USER_TIMEOUT

    int           on, idle, interval, count;
    socklen_t     len;
    ngx_msec_t    probes;
    unsigned int  value;

    if (c->sockaddr->sa_family == AF_UNIX || c->fd == (ngx_socket_t) -1) {
        return;
    }

#if (NGX_HTTP_V3)

    /* QUIC clients share a socket, and QUIC has a timeout of its own */

    if (c->quic) {
        return;
    }

#endif

    len = sizeof(int);

    if (getsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &on, &len) == 0 && on
        && getsockopt(c->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &len) == 0
        && getsockopt(c->fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, &len) == 0
        && getsockopt(c->fd, IPPROTO_TCP, TCP_KEEPCNT, &count, &len) == 0)
    {
        probes = ((ngx_msec_t) idle + (ngx_msec_t) interval * count) * 1000;
        timeout = ngx_min(timeout, probes);
    }

    value = (unsigned int) ngx_min(timeout, NGX_MAX_INT32_VALUE);

    if (setsockopt(c->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value,
                   sizeof(unsigned int))
        == -1)
    {
        ngx_log_error(NGX_LOG_INFO, c->log, ngx_socket_errno,
                      "setsockopt(TCP_USER_TIMEOUT) failed");
    }

#endif
}


/* The handler of stream->timer: a sign of life. */

static void
ngx_http_zk_lock_stream_alive_handler(ngx_event_t *ev)
{
    ngx_str_t                   text;
    ngx_chain_t                *out;
    ngx_http_request_t         *r;
    ngx_http_zk_lock_stream_t  *stream;

    stream = ngx_queue_data(ev, ngx_http_zk_lock_stream_t, timer);
    r = stream->request;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock stream: \"%V\" alive", &stream->ctx->path);

    ngx_add_timer(&stream->timer, NGX_HTTP_ZK_LOCK_STREAM_ALIVE);

    if (ngx_http_zk_lock_stream_clogged(stream)) {
        return;
    }

    if (stream->format == NGX_HTTP_ZK_LOCK_EVENTS) {
        ngx_str_set(&text, ": alive\n\n");

    } else {
        ngx_str_set(&text, "{\"event\":\"alive\"}\n");
    }

    out = ngx_http_zk_lock_stream_chain(stream, text.len);
    if (out == NULL) {
        return;
    }

    out->buf->last = ngx_cpymem(out->buf->last, text.data, text.len);

    if (ngx_http_zk_lock_stream_output(stream, out) == NGX_ERROR) {
        ngx_http_zk_lock_request_end(r, NGX_ERROR);
    }
}


/* Appends an empty buffer to the unsent buffers. */

static ngx_chain_t *
ngx_http_zk_lock_stream_chain(ngx_http_zk_lock_stream_t *stream, size_t size)
{
    u_char       *p;
    ngx_buf_t    *b;
    ngx_chain_t  *cl, **last;

    p = ngx_alloc(size, stream->request->connection->log);
    if (p == NULL) {
        return NULL;
    }

    cl = ngx_chain_get_free_buf(stream->request->pool, &stream->free);
    if (cl == NULL) {
        ngx_free(p);
        return NULL;
    }

    b = cl->buf;

    ngx_memzero(b, sizeof(ngx_buf_t));

    b->start = p;
    b->pos = p;
    b->last = p;
    b->end = p + size;
    b->temporary = 1;
    b->flush = 1;
    b->tag = (ngx_buf_tag_t) &ngx_http_zk_lock_module;

    for (last = &stream->busy; *last; last = &(*last)->next) {
        /* void */
    }

    *last = cl;
    cl->next = NULL;

    return cl;
}


/*
 * Returns what ngx_http_output_filter() does; out may be NULL.  Frees the text
 * that was sent.
 */

static ngx_int_t
ngx_http_zk_lock_stream_output(ngx_http_zk_lock_stream_t *stream,
    ngx_chain_t *out)
{
    ngx_int_t                  rc;
    ngx_chain_t               *cl;
    ngx_event_t               *wev;
    ngx_http_request_t        *r;
    ngx_http_core_loc_conf_t  *clcf;

    r = stream->request;
    wev = r->connection->write;
    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    rc = ngx_http_output_filter(r, out);

    while (stream->busy != NULL && ngx_buf_size(stream->busy->buf) == 0) {
        cl = stream->busy;
        stream->busy = cl->next;

        ngx_free(cl->buf->start);

        cl->next = stream->free;
        stream->free = cl;
    }

    if (rc == NGX_ERROR
        || ngx_handle_write_event(wev, clcf->send_lowat) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (wev->delayed) {
        return rc;
    }

    /* a timer that is set goes on: no byte was written since then */

    if (wev->ready) {

        if (wev->timer_set) {
            ngx_del_timer(wev);
        }

    } else if (!wev->timer_set) {
        ngx_add_timer(wev, clcf->send_timeout);
    }

    return rc;
}


/* Frees unsent text, with the request's pool. */

static void
ngx_http_zk_lock_stream_cleanup(void *data)
{
    ngx_http_zk_lock_stream_t *stream = data;

    ngx_chain_t  *cl;

    for (cl = stream->busy; cl; cl = cl->next) {
        ngx_free(cl->buf->start);
    }
}


/* Whether the client has to read earlier events first. */

static ngx_uint_t
ngx_http_zk_lock_stream_clogged(ngx_http_zk_lock_stream_t *stream)
{
    ngx_event_t  *wev;

    wev = stream->request->connection->write;

    return stream->begun
           && (stream->busy != NULL || !wev->ready || wev->delayed);
}


static void
ngx_http_zk_lock_stream_writer(ngx_http_request_t *r)
{
    ngx_event_t                *wev;
    ngx_connection_t           *c;
    ngx_http_zk_lock_ctx_t     *ctx;
    ngx_http_zk_lock_stream_t  *stream;

    c = r->connection;
    wev = c->write;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);
    stream = ctx->other;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "zk lock stream: \"%V\" writer", &ctx->path);

    if (wev->timedout) {
        ngx_log_error(NGX_LOG_INFO, c->log, NGX_ETIMEDOUT,
                      "client does not read its events");
        c->timedout = 1;

        ngx_http_finalize_request(r, NGX_HTTP_REQUEST_TIME_OUT);
        return;
    }

    if (c->error || ngx_http_zk_lock_request_stopped(c)) {
        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    if (!wev->delayed && wev->timer_set) {
        ngx_del_timer(wev);
    }

    if (ngx_http_zk_lock_stream_output(stream, NULL) == NGX_ERROR) {
        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    ngx_http_zk_lock_stream_look(stream);
}
