
/*
 * Calls about an existing lock or claim.  All runs on the event loop.
 *
 * PUT, DELETE and POST start a single call, whose handler answers.  GET starts
 * a stream or a watch, which repeats the call when the lock has changed, until
 * the result suffices or the wait is over.
 */


#include "http/calls.h"
#include "http/admin.h"
#include "http/answer.h"
#include "http/args.h"
#include "http/result.h"
#include "http/stream.h"
#include "http/watch.h"


static ngx_int_t ngx_http_zk_lock_call_claim_handler(
    ngx_http_zk_lock_watch_t *watch, zkl_call_t *call, zkl_answer_e answer,
    ngx_http_zk_lock_again_e *again);
static ngx_int_t ngx_http_zk_lock_call_lock_handler(
    ngx_http_zk_lock_watch_t *watch, zkl_call_t *call, zkl_answer_e answer,
    ngx_http_zk_lock_again_e *again);
static ngx_int_t ngx_http_zk_lock_call_free_handler(
    ngx_http_zk_lock_watch_t *watch, zkl_call_t *call, zkl_answer_e answer,
    ngx_http_zk_lock_again_e *again);
static void ngx_http_zk_lock_call_handler(zkl_call_t *call,
    zkl_answer_e answer);


/* GET of a claim if the request has a token, else of the lock. */

ngx_int_t
ngx_http_zk_lock_call_get(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t                  rc;
    ngx_msec_t                 wait;
    ngx_uint_t                 n, until;
    zkl_args_t                 args;
    ngx_http_zk_lock_watch_t  *watch;

    rc = ngx_http_zk_lock_args(r, &args, ctx->has_token
                               ? ZKL_ARG_WAIT
                               : ZKL_ARG_WAIT|ZKL_ARG_UNTIL);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    until = (args.given & ZKL_ARG_UNTIL);

    if (until && ngx_strcmp(args.until, "free") != 0) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "\"until\" takes \"free\"");
    }

    wait = ngx_http_zk_lock_args_wait(ctx, &args, until ? ctx->conf->wait : 0);

    if (!ctx->has_token && !until
        && ngx_http_zk_lock_accepts(r) != NGX_HTTP_ZK_LOCK_PLAIN)
    {
        ctx->preferred = 0;

        return ngx_http_zk_lock_stream_lock(r, ctx);
    }

    watch = ngx_pcalloc(r->pool, sizeof(ngx_http_zk_lock_watch_t));
    if (watch == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ctx->has_token) {
        watch->type = ZKL_INSPECT;
        watch->handler = ngx_http_zk_lock_call_claim_handler;

    } else if (until) {
        watch->type = ZKL_FIRST;
        watch->handler = ngx_http_zk_lock_call_free_handler;

    } else {
        watch->type = ZKL_LIST;
        watch->handler = ngx_http_zk_lock_call_lock_handler;
        watch->data = ngx_http_zk_lock_header(r, "if-none-match", &n);

        if (watch->data == NULL) {
            /* without the header any state is an answer */
            wait = 0;
            ctx->preferred = 0;
        }
    }

    return ngx_http_zk_lock_watch(r, ctx, watch, wait);
}


static ngx_int_t
ngx_http_zk_lock_call_claim_handler(ngx_http_zk_lock_watch_t *watch,
    zkl_call_t *call, zkl_answer_e answer, ngx_http_zk_lock_again_e *again)
{
    zkl_info_t  *info;

    if (answer == ZKL_CALL_OK && !watch->over) {
        info = &call->infos[0];

        if (!info->held) {
            *again = info->pending ? NGX_HTTP_ZK_LOCK_SOON
                                   : NGX_HTTP_ZK_LOCK_LATER;
            return NGX_OK;
        }
    }

    return ngx_http_zk_lock_result_answered(watch->request, watch->ctx, call,
                                            answer);
}


static ngx_int_t
ngx_http_zk_lock_call_lock_handler(ngx_http_zk_lock_watch_t *watch,
    zkl_call_t *call, zkl_answer_e answer, ngx_http_zk_lock_again_e *again)
{
    ngx_str_t            tag, *header;
    ngx_uint_t           any, changed;
    ngx_http_request_t  *r;
    u_char               buf[sizeof("W/\"0123456789abcdef\"")];

    r = watch->request;
    header = watch->data;

    if (answer != ZKL_CALL_OK && answer != ZKL_CALL_FREE) {
        return ngx_http_zk_lock_result_answered(r, watch->ctx, call, answer);
    }

    tag.data = buf;

    if (answer == ZKL_CALL_FREE) {
        tag.len = ngx_sprintf(buf, "W/\"free\"") - buf;

    } else {
        tag.len = ngx_sprintf(buf, "W/\"%016xL\"", (int64_t) call->etag) - buf;
    }

    /*
     * "*" matches any claims, so the answer is 304 without a wait; in a list of
     * tags, such as: W/"one", "two", the text between the quotes is compared,
     * which occurs nowhere else
     */

    any = (header != NULL && header->len == 1 && header->data[0] == '*'
           && answer == ZKL_CALL_OK);

    changed = !any && (header == NULL
                       || ngx_strlcasestrn(header->data,
                                           header->data + header->len,
                                           tag.data + 2, tag.len - 3)
                          == NULL);

    if (!changed && !any && !watch->over) {
        *again = NGX_HTTP_ZK_LOCK_LATER;
        return NGX_OK;
    }

    tag.data = ngx_pstrdup(r->pool, &tag);

    if (tag.data == NULL
        || ngx_http_zk_lock_add_header(r, "ETag", tag.data, tag.len) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (changed) {
        return ngx_http_zk_lock_result_answered(r, watch->ctx, call, answer);
    }

    ngx_str_set(&watch->ctx->told.outcome, "unchanged");

    r->headers_out.status = NGX_HTTP_NOT_MODIFIED;
    r->header_only = 1;

    return ngx_http_send_header(r);
}


static ngx_int_t
ngx_http_zk_lock_call_free_handler(ngx_http_zk_lock_watch_t *watch,
    zkl_call_t *call, zkl_answer_e answer, ngx_http_zk_lock_again_e *again)
{
    if (answer == ZKL_CALL_FREE) {
        ngx_str_set(&watch->ctx->told.outcome, "free");
        return ngx_http_zk_lock_answer_done(watch->request);
    }

    if (answer != ZKL_CALL_OK) {
        return ngx_http_zk_lock_result_answered(watch->request, watch->ctx,
                                                call, answer);
    }

    if (!watch->over) {
        *again = NGX_HTTP_ZK_LOCK_LATER;
        return NGX_OK;
    }

    ngx_str_set(&watch->ctx->told.outcome, "taken");

    return ngx_http_zk_lock_answer_taken(watch->request,
                                         call->nknown ? &call->infos[0] : NULL);
}


ngx_int_t
ngx_http_zk_lock_call_put(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t    rc;
    const char  *why;
    zkl_args_t   args;

    rc = ngx_http_zk_lock_args(r, &args, ZKL_ARG_TTL|ZKL_ARG_MODE
                                         |ZKL_ARG_REVOKE);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (args.given == ZKL_ARG_REVOKE && !ctx->has_token) {
        return ngx_http_zk_lock_admin(r, ctx, ZKL_REVOKE);
    }

    why = NULL;

    if (args.given & ZKL_ARG_REVOKE) {
        why = "\"revoke\" is for a lock, and takes nothing beside it";

    } else if ((args.given & ZKL_ARG_MODE)
               && ngx_strcmp(args.mode, "shared") != 0
               && ngx_strcmp(args.mode, "read") != 0)
    {
        why = "a claim that is held can be changed to \"mode\" \"shared\" "
              "only";

    } else if ((args.given & ZKL_ARG_MODE) && (args.given & ZKL_ARG_TTL)) {
        why = "\"mode\" and \"ttl\" are changed one after the other";

    } else if (!ctx->has_token) {
        why = "a renewal takes the token of the grant, in a Lock-Token header "
              "or behind the name";
    }

    if (why != NULL) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST, why);
    }

    return ngx_http_zk_lock_request_call(r, ctx, (args.given & ZKL_ARG_MODE)
                                         ? ZKL_DOWNGRADE
                                         : ZKL_RENEW,
                                         ngx_http_zk_lock_args_ttl(ctx, &args),
                                         ngx_http_zk_lock_call_handler);
}


ngx_int_t
ngx_http_zk_lock_call_delete(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t   rc;
    zkl_args_t  args;

    rc = ngx_http_zk_lock_args(r, &args, ZKL_ARG_FORCE);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    if ((args.given & ZKL_ARG_FORCE) && ctx->has_token) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "\"force\" goes without a token");
    }

    if (args.given & ZKL_ARG_FORCE) {
        return ngx_http_zk_lock_admin(r, ctx, ZKL_BREAK);
    }

    if (!ctx->has_token) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "a release takes the token of the "
                                        "grant, in a Lock-Token header or "
                                        "behind the name");
    }

    return ngx_http_zk_lock_request_call(r, ctx, ZKL_RELEASE, 0,
                                         ngx_http_zk_lock_call_handler);
}


/* POST with a token: a held claim is held once more. */

ngx_int_t
ngx_http_zk_lock_call_hold(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t   rc;
    zkl_args_t  args;

    rc = ngx_http_zk_lock_args(r, &args, ZKL_ARG_TTL);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    return ngx_http_zk_lock_request_call(r, ctx, ZKL_HOLD,
                                         ngx_http_zk_lock_args_ttl(ctx, &args),
                                         ngx_http_zk_lock_call_handler);
}


static void
ngx_http_zk_lock_call_handler(zkl_call_t *call, zkl_answer_e answer)
{
    ngx_int_t                rc;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = call->data;
    r = ngx_http_zk_lock_request_told(call, answer);

    rc = ngx_http_zk_lock_result_answered(r, ctx, call, answer);

    ngx_http_zk_lock_request_end(r, rc);
}
