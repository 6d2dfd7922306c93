
/*
 * Several locks at once.
 *
 * Each of them is a lock like any other, with a claim of its own.  They are
 * acquired one after the other in the order of their names, so that no two who
 * want some of the same locks can wait for each other.  Until the last one is
 * granted the claims are bound: without a lease, and gone with the worker.
 * Then all their leases begin at once.
 *
 * Everything here runs on the event loop.  What is acquired or asked for is in
 * the request's pool and in its context, which lets go of it.  A part has a
 * claim while its lock is waited for or held by this request alone, an ask
 * while that is under way; else both are NULL.  A claim that is lost may be
 * told of while others of this worker are looked through, and to give up one
 * that waits may free it and its lock: so that is done in the next turn, by
 * `lost`.
 */


#include "ngx_http_zk_lock_several.h"

#include <sys/random.h>


/* why one of the locks was refused, if it is not for any of them */

typedef struct {
    ngx_http_zk_lock_outcome_e         outcome;
    ngx_uint_t                         status;
    ngx_str_t                          word;    /* for logs */
    const char                        *detail;
} ngx_http_zk_lock_several_reason_t;


static ngx_int_t ngx_http_zk_lock_several_acquire(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
static const char *ngx_http_zk_lock_several_check(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zk_lock_args_t *args);
static ngx_int_t ngx_http_zk_lock_several_split(
    ngx_http_zk_lock_several_t *several);
static void ngx_http_zk_lock_several_leave(void *data);
static void ngx_http_zk_lock_several_release(
    ngx_http_zk_lock_several_t *several);
static ngx_int_t ngx_http_zk_lock_several_begin(
    ngx_http_zk_lock_several_t *several);
static ngx_int_t ngx_http_zk_lock_several_draw(
    ngx_http_zk_lock_several_t *several);
static ngx_int_t ngx_http_zk_lock_several_next(
    ngx_http_zk_lock_several_t *several);
static void ngx_http_zk_lock_several_claim_handler(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_outcome_e outcome);
static void ngx_http_zk_lock_several_event_handler(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_event_e event,
    const char *reason);
static void ngx_http_zk_lock_several_lost_handler(ngx_event_t *ev);
static ngx_int_t ngx_http_zk_lock_several_again(
    ngx_http_zk_lock_several_t *several);
static ngx_msec_t ngx_http_zk_lock_several_left(
    ngx_http_zk_lock_several_t *several, ngx_msec_t time);
static void ngx_http_zk_lock_several_abandon(
    ngx_http_zk_lock_several_t *several);
static ngx_int_t ngx_http_zk_lock_several_granted(
    ngx_http_zk_lock_several_t *several);
static ngx_int_t ngx_http_zk_lock_several_refused(
    ngx_http_zk_lock_several_t *several);
static void ngx_http_zk_lock_several_holder_handler(
    ngx_http_zk_lock_ask_t *ask, ngx_http_zk_lock_answer_e answer);
static ngx_int_t ngx_http_zk_lock_several_problem(
    ngx_http_zk_lock_several_t *several, ngx_uint_t status,
    const char *detail, ngx_http_zk_lock_info_t *holder);


static ngx_str_t  ngx_http_zk_lock_several_key =
    ngx_string("idempotency-key");


static const ngx_http_zk_lock_several_reason_t
    ngx_http_zk_lock_several_reasons[] =
{
    { NGX_HTTP_ZK_LOCK_CONFLICT, NGX_HTTP_CONFLICT, ngx_string("conflict"),
      "one of the locks is used in another mode, or with another number of "
      "permits, by those who hold it or wait for it" },

    { NGX_HTTP_ZK_LOCK_FULL, NGX_HTTP_TOO_MANY_REQUESTS, ngx_string("full"),
      "the queue of one of the locks is full" },

    { NGX_HTTP_ZK_LOCK_WORN_OUT, NGX_HTTP_CONFLICT, ngx_string("refused"),
      "ZooKeeper has no numbers left for claims of one of the locks: its "
      "znode has to be removed once it is empty" },

    { NGX_HTTP_ZK_LOCK_DENIED, NGX_HTTP_INTERNAL_SERVER_ERROR,
      ngx_string("refused"),
      "ZooKeeper does not let this gateway queue for one of the locks" },

    { NGX_HTTP_ZK_LOCK_CANCELLED, NGX_HTTP_ZK_LOCK_STATUS_GONE,
      ngx_string("cancelled"),
      "the claim of one of the locks was cancelled" },

    { NGX_HTTP_ZK_LOCK_FAILED, 0, ngx_null_string, NULL }
};


ngx_int_t
ngx_http_zk_lock_several(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    switch (r->method) {

    case NGX_HTTP_POST:
        return ngx_http_zk_lock_several_acquire(r, ctx);

    case NGX_HTTP_DELETE:
        return ngx_http_zk_lock_parts(r, ctx, NGX_HTTP_ZK_LOCK_RELEASE);

    case NGX_HTTP_PUT:
        return ngx_http_zk_lock_parts(r, ctx, NGX_HTTP_ZK_LOCK_RENEW);

    default: /* NGX_HTTP_GET, NGX_HTTP_HEAD */
        return ngx_http_zk_lock_parts(r, ctx, NGX_HTTP_ZK_LOCK_INSPECT);
    }
}


static ngx_int_t
ngx_http_zk_lock_several_acquire(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t                    rc;
    ngx_uint_t                   status;
    const char                  *why;
    zk_lock_args_t               args;
    ngx_http_zk_lock_several_t  *several;

    if (ngx_http_zk_lock_args(r, &args, ZK_LOCK_ARG_WAIT|ZK_LOCK_ARG_TTL
                                  |ZK_LOCK_ARG_MODE|ZK_LOCK_ARG_PERMITS
                                  |ZK_LOCK_ARG_OWNER|ZK_LOCK_ARG_DATA
                                  |ZK_LOCK_ARG_HOLD|ZK_LOCK_ARG_NAMES,
                              &status)
        != NGX_OK)
    {
        return ngx_http_zk_lock_problem(r, status, args.error);
    }

    why = ngx_http_zk_lock_several_check(r, ctx, &args);

    if (why != NULL) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST, why);
    }

    rc = ngx_http_zk_lock_several_make(r, ctx, (u_char *) args.names,
                                       args.names_len, &several);
    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc != NGX_OK) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "the root and a name together are "
                                        "too long");
    }

    if (ngx_http_zk_lock_acquire_fill(r, ctx, &args, &several->acquire,
                                      &several->label)
        != NGX_OK)
    {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST, args.error);
    }

    return ngx_http_zk_lock_several_begin(several);
}


/* What one lock may be asked for, and several not; NULL: nothing is wrong. */

static const char *
ngx_http_zk_lock_several_check(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zk_lock_args_t *args)
{
    ngx_uint_t  n;

    if (ctx->text.data != NULL) {
        return "several locks are acquired without a Lock-Token";
    }

    if (ngx_http_zk_lock_header(r, &ngx_http_zk_lock_several_key, &n)
        != NULL)
    {
        return "an Idempotency-Key is for one lock";
    }

    if (!(args->given & ZK_LOCK_ARG_NAMES)) {
        return "there is no lock's name in the path (\".\" and \"..\" are "
               "none), and no \"names\" of several locks in the body";
    }

    if ((args->given & ZK_LOCK_ARG_HOLD)
        && ngx_strcmp(args->hold, "connection") == 0)
    {
        return "\"hold\" \"connection\" is for one lock";
    }

    return NULL;
}


ngx_int_t
ngx_http_zk_lock_several_make(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, u_char *names, size_t len,
    ngx_http_zk_lock_several_t **several)
{
    u_char                      *p;
    size_t                       i;
    ngx_http_zk_lock_several_t  *s;

    s = ngx_pcalloc(r->pool, sizeof(ngx_http_zk_lock_several_t));
    if (s == NULL) {
        return NGX_ERROR;
    }

    s->request = r;
    s->ctx = ctx;
    s->nparts = 1;

    for (i = 0; i < len; i++) {
        s->nparts += (names[i] == '/');
    }

    if (s->nparts > ZK_LOCK_NAMES_MAX
        || len - (s->nparts - 1) > ZK_LOCK_NAMES_BYTES)
    {
        return NGX_DECLINED;
    }

    s->whole.len = ctx->root.len + 1 + len;
    s->whole.data = ngx_pnalloc(r->pool, s->whole.len);
    s->parts = ngx_pcalloc(r->pool,
                           s->nparts * sizeof(ngx_http_zk_lock_part_t));

    if (s->whole.data == NULL || s->parts == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(s->whole.data, ctx->root.data, ctx->root.len);
    *p++ = '/';
    ngx_memcpy(p, names, len);

    s->names.data = p;
    s->names.len = len;

    *several = s;

    return ngx_http_zk_lock_several_split(s);
}


static ngx_int_t
ngx_http_zk_lock_several_split(ngx_http_zk_lock_several_t *several)
{
    u_char                   *p, *last, *end;
    ngx_str_t                *root, *prior;
    ngx_uint_t                i;
    ngx_http_zk_lock_part_t  *part;

    root = &several->ctx->root;
    prior = NULL;

    p = several->names.data;
    last = p + several->names.len;

    for (i = 0; i < several->nparts; i++) {
        part = &several->parts[i];

        end = ngx_strlchr(p, last, '/');

        part->name.data = p;
        part->name.len = (end ? end : last) - p;
        part->path.len = root->len + 1 + part->name.len;

        if (zk_lock_name_check((char *) p, part->name.len) != NULL
            || part->path.len > ZK_LOCK_PATH_MAX
            || (prior != NULL
                && ngx_memn2cmp(prior->data, p, prior->len, part->name.len)
                   >= 0))
        {
            return NGX_DECLINED;
        }

        part->path.data = ngx_pnalloc(several->request->pool, part->path.len);
        if (part->path.data == NULL) {
            return NGX_ERROR;
        }

        /* with the slash that is in front of the first name */

        ngx_memcpy(part->path.data, several->whole.data, root->len + 1);
        ngx_memcpy(part->path.data + root->len + 1, p, part->name.len);

        prior = &part->name;
        p += part->name.len + 1;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_several_hold(ngx_http_zk_lock_several_t *several)
{
    ngx_int_t                rc;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = several->ctx;

    rc = ngx_http_zk_lock_api_hold(several->request, ctx);

    if (rc == NGX_OK) {
        ctx->other = several;
        ctx->leave = ngx_http_zk_lock_several_leave;
    }

    return rc;
}


/* The request ends; what was granted stays if its answer was written. */

static void
ngx_http_zk_lock_several_leave(void *data)
{
    ngx_http_zk_lock_several_t *several = data;

    ngx_uint_t                i;
    ngx_http_zk_lock_part_t  *part;

    ngx_http_zk_lock_several_abandon(several);

    for (i = 0; i < several->nparts; i++) {
        part = &several->parts[i];

        if (part->ask != NULL) {
            ngx_http_zk_lock_ask_leave(part->ask);
            part->ask = NULL;
        }
    }

    if (several->granted && !ngx_http_zk_lock_api_written(several->ctx)) {
        ngx_log_error(NGX_LOG_INFO, several->request->connection->log, 0,
                      "client left before its grant was written, "
                      "its locks are released");

        ngx_str_set(&several->ctx->outcome, "gone");
        ngx_http_zk_lock_several_release(several);
    }
}


static void
ngx_http_zk_lock_several_release(ngx_http_zk_lock_several_t *several)
{
    ngx_uint_t                 i;
    ngx_http_zk_lock_part_t   *part;
    ngx_http_zk_lock_claim_t  *claim;

    several->granted = 0;

    for (i = 0; i < several->nparts; i++) {
        part = &several->parts[i];

        claim = ngx_http_zk_lock_claim_find(several->ctx->worker, &part->id,
                                            &part->path);
        if (claim != NULL) {
            ngx_http_zk_lock_claim_release(claim, NULL);
        }
    }
}


static ngx_int_t
ngx_http_zk_lock_several_begin(ngx_http_zk_lock_several_t *several)
{
    ngx_int_t                    rc;
    ngx_connection_t            *c;
    ngx_http_zk_lock_acquire_t  *acquire;

    c = several->request->connection;

    if (ngx_http_zk_lock_several_draw(several) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_zk_lock_several_hold(several);
    if (rc != NGX_OK) {
        return rc;
    }

    several->started = ngx_current_msec;
    several->lost.handler = ngx_http_zk_lock_several_lost_handler;
    several->lost.data = several;
    several->lost.log = c->log;

    acquire = &several->acquire;

    several->wait = acquire->wait;
    several->timeout = acquire->timeout;

    acquire->key = several->key;
    acquire->bound = 1;
    acquire->leased = 0;
    acquire->handler = ngx_http_zk_lock_several_claim_handler;
    acquire->event = ngx_http_zk_lock_several_event_handler;
    acquire->data = several;

    return ngx_http_zk_lock_several_next(several);
}


/* The key by which all of the claims are found. */

static ngx_int_t
ngx_http_zk_lock_several_draw(ngx_http_zk_lock_several_t *several)
{
    if (getrandom(several->key, NGX_HTTP_ZK_LOCK_KEY, 0)
        != NGX_HTTP_ZK_LOCK_KEY)
    {
        ngx_log_error(NGX_LOG_ALERT, several->request->connection->log,
                      ngx_errno, "getrandom() failed");
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* Those before it are granted; it has what is left of the time. */

static ngx_int_t
ngx_http_zk_lock_several_next(ngx_http_zk_lock_several_t *several)
{
    ngx_msec_t                   left;
    ngx_http_zk_lock_part_t     *part;
    ngx_http_zk_lock_acquire_t  *acquire;

    part = &several->parts[several->at];
    acquire = &several->acquire;

    left = ngx_http_zk_lock_several_left(several, several->timeout);

    acquire->path = part->path;
    acquire->wait = ngx_http_zk_lock_several_left(several, several->wait);
    acquire->timeout = ngx_max(left, NGX_HTTP_ZK_LOCK_PATIENCE);
    acquire->leader = several->parts[0].claim;

    part->claim = ngx_http_zk_lock_claim_acquire(several->ctx->worker,
                                                 acquire, &several->outcome);

    if (part->claim == NULL) {
        several->part = part;
        return ngx_http_zk_lock_several_refused(several);
    }

    return NGX_DONE;
}


static void
ngx_http_zk_lock_several_claim_handler(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_outcome_e outcome)
{
    ngx_http_zk_lock_several_t *several = data;

    ngx_int_t                 rc;
    ngx_http_request_t       *r;
    ngx_http_zk_lock_part_t  *part;

    r = several->request;
    part = &several->parts[several->at];

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock: \"%V\" \"%V\" outcome %d", &r->uri, &part->name,
                   outcome);

    if (outcome != NGX_HTTP_ZK_LOCK_GRANTED) {
        part->claim = NULL;
        several->part = part;
        several->outcome = outcome;

        rc = ngx_http_zk_lock_several_refused(several);

    } else if (several->lost.posted) {

        /* too late: another one is lost */

        rc = NGX_DONE;

    } else if (++several->at < several->nparts) {
        rc = ngx_http_zk_lock_several_next(several);

    } else {
        rc = ngx_http_zk_lock_several_granted(several);
    }

    ngx_http_zk_lock_api_end(r, rc);
}


/* Of one that was granted while others are waited for. */

static void
ngx_http_zk_lock_several_event_handler(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_event_e event,
    const char *reason)
{
    ngx_http_zk_lock_several_t *several = data;

    ngx_uint_t  i;

    if (event != NGX_HTTP_ZK_LOCK_EVENT_LOST) {
        return;
    }

    for (i = 0; several->parts[i].claim != claim; i++) {
        /* void */
    }

    several->parts[i].claim = NULL;
    several->part = &several->parts[i];

    if (ngx_strcmp(reason, "session") == 0) {
        several->outcome = NGX_HTTP_ZK_LOCK_UNREACHABLE;

    } else if (ngx_strcmp(reason, "shutdown") == 0) {
        several->outcome = NGX_HTTP_ZK_LOCK_SHUT;

    } else {
        several->outcome = NGX_HTTP_ZK_LOCK_CANCELLED;
    }

    ngx_post_event(&several->lost, &ngx_posted_events);
}


static void
ngx_http_zk_lock_several_lost_handler(ngx_event_t *ev)
{
    ngx_int_t                    rc;
    ngx_http_request_t          *r;
    ngx_http_zk_lock_several_t  *several;

    several = ev->data;
    r = several->request;

    ngx_http_set_log_request(r->connection->log, r);

    rc = (several->outcome == NGX_HTTP_ZK_LOCK_UNREACHABLE)
         ? ngx_http_zk_lock_several_again(several)
         : ngx_http_zk_lock_several_refused(several);

    ngx_http_zk_lock_api_end(r, rc);
}


/*
 * The session of what was granted may be over.  Nothing was told so far: all of
 * them are acquired again, in what is left of the time.  Claims of before may
 * be there for a while yet, so the key is another one.
 */

static ngx_int_t
ngx_http_zk_lock_several_again(ngx_http_zk_lock_several_t *several)
{
    ngx_msec_t  time;

    time = several->acquire.once ? several->timeout : several->wait;

    if (ngx_http_zk_lock_several_left(several, time) == 0) {
        return ngx_http_zk_lock_several_refused(several);
    }

    ngx_http_zk_lock_several_abandon(several);
    ngx_str_null(&several->ctx->outcome);

    if (ngx_http_zk_lock_several_draw(several) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    several->at = 0;

    return ngx_http_zk_lock_several_next(several);
}


/* What is left of a time for the whole. */

static ngx_msec_t
ngx_http_zk_lock_several_left(ngx_http_zk_lock_several_t *several,
    ngx_msec_t time)
{
    ngx_msec_t  past;

    past = ngx_current_msec - several->started;

    return (past < time) ? time - past : 0;
}


static void
ngx_http_zk_lock_several_abandon(ngx_http_zk_lock_several_t *several)
{
    ngx_uint_t                 i;
    ngx_http_zk_lock_claim_t  *claim;

    if (several->lost.posted) {
        ngx_delete_posted_event(&several->lost);
    }

    for (i = 0; i < several->nparts; i++) {
        claim = several->parts[i].claim;

        if (claim == NULL) {
            continue;
        }

        several->parts[i].claim = NULL;

        if (several->ctx->outcome.len == 0) {
            ngx_str_set(&several->ctx->outcome, "gone");
        }

        ngx_http_zk_lock_claim_abandon(claim);
    }
}


static ngx_int_t
ngx_http_zk_lock_several_granted(ngx_http_zk_lock_several_t *several)
{
    ngx_uint_t                 i;
    ngx_http_zk_lock_ctx_t    *ctx;
    ngx_http_zk_lock_part_t   *part;
    ngx_http_zk_lock_claim_t  *claims[ZK_LOCK_NAMES_MAX];

    ctx = several->ctx;
    ctx->waited = ngx_current_msec - several->started;

    if (ngx_http_zk_lock_api_gone(several->request)) {
        ngx_http_zk_lock_several_abandon(several);
        return NGX_HTTP_CLIENT_CLOSED_REQUEST;
    }

    for (i = 0; i < several->nparts; i++) {
        part = &several->parts[i];
        claims[i] = part->claim;

        part->id = part->claim->id;
        part->kind = part->claim->entry.kind;
        part->fencing = ngx_http_zk_lock_fencing_token(part->claim->czxid,
                                                       part->claim->index);
        part->ttl = part->claim->ttl;
        part->expires = part->claim->ttl;
        part->timed = 1;
    }

    ctx->token.id = claims[0]->id;
    ctx->token.seq = claims[0]->entry.seq;
    ctx->token.kind = claims[0]->entry.kind;

    ngx_http_zk_lock_claim_begin(claims, several->nparts);

    for (i = 0; i < several->nparts; i++) {
        several->parts[i].claim = NULL;
    }

    several->granted = 1;
    ngx_str_set(&ctx->outcome, "granted");

    return ngx_http_zk_lock_parts_answer(several, NGX_HTTP_CREATED);
}


/* Nothing is acquired; several->part is why. */

static ngx_int_t
ngx_http_zk_lock_several_refused(ngx_http_zk_lock_several_t *several)
{
    ngx_http_zk_lock_ctx_t                   *ctx;
    const ngx_http_zk_lock_several_reason_t  *why;

    ctx = several->ctx;
    ctx->waited = ngx_current_msec - several->started;

    /* what is given up now is not so because the client has left */

    ngx_str_set(&ctx->outcome, "refused");

    ngx_http_zk_lock_several_abandon(several);

    if (several->outcome == NGX_HTTP_ZK_LOCK_TAKEN) {
        ngx_str_set(&ctx->outcome, "taken");

        return ngx_http_zk_lock_parts_ask(several, several->part,
                                    NGX_HTTP_ZK_LOCK_HOLDER, 0,
                                    ngx_http_zk_lock_several_holder_handler);
    }

    for (why = ngx_http_zk_lock_several_reasons; why->status != 0; why++) {

        if (why->outcome == several->outcome) {
            ctx->outcome = why->word;

            return ngx_http_zk_lock_several_problem(several, why->status,
                                                    why->detail, NULL);
        }
    }

    return ngx_http_zk_lock_api_refused(several->request, ctx,
                                        several->outcome);
}


static void
ngx_http_zk_lock_several_holder_handler(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer)
{
    ngx_int_t                    rc;
    ngx_http_request_t          *r;
    ngx_http_zk_lock_several_t  *several;

    several = ask->data;
    several->part->ask = NULL;

    r = several->request;

    ngx_http_set_log_request(r->connection->log, r);

    /* the holder is a courtesy: the answer does not depend on it */

    rc = ngx_http_zk_lock_several_problem(several,
                                    NGX_HTTP_ZK_LOCK_STATUS_LOCKED,
                                    "one of the locks is held, and the wait "
                                    "is over: a longer \"wait\" holds the "
                                    "request until all are free, which is "
                                    "better than to ask again",
                                    answer == NGX_HTTP_ZK_LOCK_ASK_OK
                                    ? &ask->infos[0] : NULL);

    ngx_http_zk_lock_api_end(r, rc);
}


/* holder may be NULL */

static ngx_int_t
ngx_http_zk_lock_several_problem(ngx_http_zk_lock_several_t *several,
    ngx_uint_t status, const char *detail, ngx_http_zk_lock_info_t *holder)
{
    ngx_str_t       *name;
    zk_lock_json_t  *json;

    name = &several->part->name;

    json = zk_lock_json_open();

    ngx_http_zk_lock_open_problem(json, status, detail);
    zk_lock_json_string(json, "name", (char *) name->data, name->len);

    if (holder != NULL) {
        zk_lock_json_object(json, "holder");
        ngx_http_zk_lock_write_info(json, holder);
        zk_lock_json_end_object(json);
    }

    if (status == NGX_HTTP_ZK_LOCK_STATUS_LOCKED) {
        ngx_http_zk_lock_write_note(json, several->ctx,
                                    NGX_HTTP_ZK_LOCK_NOTE_WAIT);
    }

    return ngx_http_zk_lock_send_problem(several->request, status, json);
}
