
/*
 * Acquires: POST of a lock.
 *
 * A request makes a claim and waits with the claim.  This file reads what the
 * request asks for, and leaves the request to stream.c if a connection holds
 * the claim, or to repeat.c if the request has a key.
 *
 * Everything here runs on the event loop; ctx->claim is NULL after the outcome.
 */


#include "http/acquire.h"
#include "http/answer.h"
#include "http/args.h"
#include "http/log.h"
#include "http/repeat.h"
#include "http/result.h"
#include "http/stream.h"


static const char *ngx_http_zk_lock_acquire_mode(zkl_args_t *args,
    zkl_mode_t *mode);
static void ngx_http_zk_lock_acquire_handler(void *data, zkl_claim_t *claim,
    zkl_outcome_e outcome);


ngx_int_t
ngx_http_zk_lock_acquire(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t          rc;
    ngx_str_t          key;
    ngx_uint_t         stream, node, async;
    const char        *why;
    zkl_args_t         args;
    zkl_outcome_e      outcome;
    zkl_claim_data_t   cdata;
    zkl_acquire_t      acquire;
    uint8_t            hash[ZKL_KEY];

    rc = ngx_http_zk_lock_args(r, &args, ZKL_ARG_WAIT|ZKL_ARG_TTL
                                         |ZKL_ARG_MODE|ZKL_ARG_PERMITS
                                         |ZKL_ARG_OWNER|ZKL_ARG_DATA
                                         |ZKL_ARG_HOLD|ZKL_ARG_DURABLE);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    ngx_memzero(&cdata, sizeof(zkl_claim_data_t));

    rc = ngx_http_zk_lock_acquire_fill(r, ctx, &args, &acquire, &cdata);
    if (rc != NGX_OK) {
        return ngx_http_zk_lock_problem(r, rc, args.error);
    }

    node = ngx_http_zk_lock_request_node(r);
    stream = (args.given & ZKL_ARG_HOLD)
             && ngx_strcmp(args.hold, "connection") == 0;
    async = !stream && !node && ngx_http_zk_lock_prefers(r, "respond-async");
    why = NULL;

    if (ngx_http_zk_lock_repeat_key(r, &key) != NGX_OK) {
        why = "an Idempotency-Key is one header of 1 to 255 visible "
              "characters";

    } else if (key.data != NULL && node) {
        why = "zk_lock_layout node takes no Idempotency-Key";

    } else if ((args.given & ZKL_ARG_DURABLE) && stream) {
        why = "\"durable\" is for leases: not for what is held by a "
              "connection";

    } else if (key.data != NULL && stream) {
        why = "what is held by a connection takes no Idempotency-Key";

    } else if ((args.given & ZKL_ARG_DURABLE) && async) {
        why = "\"durable\" does not go with \"Prefer: respond-async\"";
    }

    if (why != NULL) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST, why);
    }

    if (stream) {

        if (!acquire.terms.leased) {
            cdata.ttl = 0;
        }

        return ngx_http_zk_lock_stream_claim(r, ctx, &acquire);
    }

    if (async) {
        acquire.terms.async = 1;
        acquire.terms.durable = 0;
        acquire.terms.grace = ctx->conf->grace;
        acquire.terms.forever = !(args.given & ZKL_ARG_WAIT);
        cdata.async = 1;
    }

    if (key.data != NULL) {
        ngx_http_zk_lock_repeat_hash(&ctx->path, "key", &key, hash);

        acquire.key = hash;
        cdata.params = ngx_http_zk_lock_repeat_params(&args, &acquire);

        return ngx_http_zk_lock_repeat(r, ctx, &acquire);
    }

    rc = ngx_http_zk_lock_request_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    ctx->claim = zkl_claim_acquire(ctx->worker, &acquire, &outcome);

    if (ctx->claim == NULL) {
        return ngx_http_zk_lock_result_refused(r, ctx, outcome);
    }

    return NGX_DONE;
}


ngx_int_t
ngx_http_zk_lock_acquire_fill(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_args_t *args, zkl_acquire_t *acquire,
    zkl_claim_data_t *cdata)
{
    ngx_int_t                     status;
    ngx_str_t                     owner;
    const char                   *why;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ctx->conf;

    ngx_memzero(acquire, sizeof(zkl_acquire_t));

    why = ngx_http_zk_lock_acquire_mode(args, &acquire->mode);

    if (why == NULL && (args->given & ZKL_ARG_HOLD)
        && ngx_strcmp(args->hold, "lease") != 0
        && ngx_strcmp(args->hold, "connection") != 0)
    {
        why = "\"hold\" takes \"lease\" or \"connection\"";
    }

    if (why == NULL && ngx_http_zk_lock_request_node(r)) {

        if (acquire->mode != ZKL_MUTEX) {
            why = "zk_lock_layout node takes \"mode\" \"exclusive\" only";
        }

        acquire->mode = ZKL_NODE;
    }

    status = NGX_HTTP_BAD_REQUEST;

    ngx_str_null(&owner);

    /* with zk_lock_owner the client has no say */

    if (why == NULL && zlcf->owner != NULL && (args->given & ZKL_ARG_OWNER)) {
        why = "this gateway says itself which owner a claim has: leave "
              "\"owner\" out";
    }

    if (why == NULL
        && (ngx_http_zk_lock_request_terms(r, ctx->worker, &acquire->terms)
            != NGX_OK
            || (zlcf->owner != NULL
                && ngx_http_complex_value(r, zlcf->owner, &owner) != NGX_OK)))
    {
        status = NGX_HTTP_INTERNAL_SERVER_ERROR;
        why = "memory is short";
    }

    if (why != NULL) {
        (void) ngx_cpystrn((u_char *) args->error, (u_char *) why,
                           sizeof(args->error));
        return status;
    }

    if (zlcf->owner != NULL) {
        args->owner_len = zkl_text_show(args->owner, ZKL_OWNER_MAX,
                                        (char *) owner.data, owner.len);
        args->owner[args->owner_len] = '\0';
    }

    acquire->path = ctx->path;
    acquire->request = ngx_http_zk_lock_log_request(r);
    acquire->wait = ngx_http_zk_lock_args_wait(ctx, args, zlcf->wait);
    acquire->timeout = zlcf->timeout;
    acquire->terms.once = (acquire->wait == 0);

    if (acquire->mode == ZKL_MEMBER) {

        /* a member waits for no member, only until other claims are refused */

        acquire->wait = ngx_max(acquire->wait, ZKL_PATIENCE);
    }

    acquire->terms.leased = (args->given & ZKL_ARG_TTL) ? 1 : 0;
    acquire->ttl = acquire->terms.leased
                   ? ngx_http_zk_lock_args_ttl(ctx, args)
                   : ngx_min(zlcf->ttl, zlcf->max_ttl);
    acquire->terms.durable = (args->given & ZKL_ARG_DURABLE) || zlcf->durable;
    acquire->cdata = cdata;
    acquire->handler = ngx_http_zk_lock_acquire_handler;
    acquire->data = ctx;

    cdata->has_id = (acquire->mode == ZKL_NODE);
    cdata->ttl = acquire->ttl;
    cdata->owner_len = args->owner_len;
    cdata->data_len = args->data_len;
    ngx_memcpy(cdata->owner, args->owner, args->owner_len);
    ngx_memcpy(cdata->data, args->data, args->data_len);

    ngx_http_zk_lock_request_cdata(r, cdata, &ctx->told.name, &ctx->path);

    ctx->told.waits = 1;
    ctx->has_data = (args->owner_len != 0 || args->data_len != 0);

    return NGX_OK;
}


/* Returns NULL, or the error. */

static const char *
ngx_http_zk_lock_acquire_mode(zkl_args_t *args, zkl_mode_t *mode)
{
    ngx_uint_t  i, permits;

    static struct {
        const char  *word;
        zkl_mode_t   mode;
    } modes[] = {
        { "exclusive", ZKL_MUTEX },
        { "shared",    ZKL_READ },
        { "read",      ZKL_READ },
        { "write",     ZKL_WRITE },
        { "semaphore", ZKL_SEMAPHORE },
        { "member",    ZKL_MEMBER }
    };

    *mode = ZKL_MUTEX;

    if (args->given & ZKL_ARG_MODE) {

        for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
            if (ngx_strcmp(args->mode, modes[i].word) == 0) {
                break;
            }
        }

        if (i == sizeof(modes) / sizeof(modes[0])) {
            return "\"mode\" takes \"exclusive\", \"shared\" (or \"read\"), "
                   "\"write\", \"semaphore\" or \"member\"";
        }

        *mode = modes[i].mode;
    }

    permits = (args->given & ZKL_ARG_PERMITS) != 0;

    if (*mode != ZKL_SEMAPHORE) {
        return permits ? "\"permits\" goes with \"mode\" \"semaphore\" only"
                       : NULL;
    }

    if (!permits) {
        return "\"mode\" \"semaphore\" takes \"permits\", the number of claims "
               "that may hold the lock at the same time";
    }

    *mode = zkl_semaphore(args->permits);

    return NULL;
}


/* data is the request's context */

static void
ngx_http_zk_lock_acquire_handler(void *data, zkl_claim_t *claim,
    zkl_outcome_e outcome)
{
    ngx_http_zk_lock_ctx_t *ctx = data;

    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = ctx->request;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock: \"%V\" outcome %d", &ctx->path, outcome);

    ctx->claim = NULL;
    ctx->told.waited = ngx_current_msec - claim->started;

    switch (outcome) {

    case ZKL_GRANTED:

        if (ngx_http_zk_lock_request_gone(r)) {
            ngx_str_set(&ctx->told.outcome, "gone");
            zkl_claim_abandon(claim);

            rc = NGX_HTTP_CLIENT_CLOSED_REQUEST;
            break;
        }

        ngx_str_set(&ctx->told.outcome, "granted");
        ngx_http_zk_lock_request_note(ctx, claim);
        ctx->granted = 1;

        rc = ngx_http_zk_lock_answer_granted(r, ctx, claim);
        break;

    case ZKL_QUEUED:
        ngx_str_set(&ctx->told.outcome, "queued");
        ngx_http_zk_lock_request_note(ctx, claim);

        rc = ngx_http_zk_lock_answer_queued(r, ctx, claim);
        break;

    default:
        rc = ngx_http_zk_lock_result_refused(r, ctx, outcome);
        break;
    }

    ngx_http_zk_lock_request_end(r, rc);
}
