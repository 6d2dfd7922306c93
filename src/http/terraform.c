
/*
 * Terraform and OpenTofu: what the HTTP backend sends to lock a state.
 *
 * The client makes an ID and knows no token.  So the ID is the claim's key, as
 * an Idempotency-Key is, by which any worker of any gateway finds the claim.
 * But the ID is no secret, so a request that joins a claim is told no token.
 * The claim data are the object that the client sent.  A client that finds the
 * state locked gets the object's members, because the client looks for these.
 * The client takes only 200 for success, and 409 or 423 for a lock that is
 * taken (Terraform's internal/backend/remote-state/http/client.go).
 *
 * The client renews no lease.  So the lease is zk_lock_max_ttl, unless the
 * query of the backend's address has a ttl.
 *
 * Everything here runs on the event loop.
 */


#include "http/terraform.h"
#include "http/acquire.h"
#include "http/admin.h"
#include "http/answer.h"
#include "http/args.h"
#include "http/repeat.h"
#include "http/result.h"
#include "base/terraform.h"


static ngx_int_t ngx_http_zk_lock_terraform_lock(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_terraform_t *t);
static void ngx_http_zk_lock_terraform_unlock_handler(zkl_call_t *call,
    zkl_answer_e answer);
static void ngx_http_zk_lock_terraform_holder_handler(zkl_call_t *call,
    zkl_answer_e answer);


ngx_int_t
ngx_http_zk_lock_terraform(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    int              rc;
    ngx_str_t        text, id;
    ngx_uint_t       sure;
    zkl_terraform_t  t;

    sure = (r->method & (NGX_HTTP_LOCK|NGX_HTTP_UNLOCK)) != 0;

    if (!sure && ngx_http_zk_lock_body_size(r) == 0) {
        return NGX_DECLINED;
    }

    if (ngx_http_zk_lock_body_text(r, &text) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (r->method == NGX_HTTP_UNLOCK && text.len == 0) {

        /* "terraform force-unlock" has no body, and so names no holder */

        if (!ctx->conf->admin) {
            return ngx_http_zk_lock_problem(r, NGX_HTTP_FORBIDDEN,
                                            "an UNLOCK without a body breaks "
                                            "any lock, which zk_lock_admin "
                                            "does not allow here");
        }

        ctx->plain = 1;

        return ngx_http_zk_lock_admin(r, ctx, ZKL_BREAK);
    }

    rc = zkl_terraform_read(&t, (char *) text.data, text.len);

    if (t.too_large) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                        "what is known of a lock has at most "
                                        "1024 bytes, written compactly");
    }

    if (rc != 0 && !sure) {
        return NGX_DECLINED;
    }

    if (rc != 0) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        (rc == -1)
                                        ? t.error
                                        : "the body is a JSON object with an "
                                          "\"ID\"");
    }

    if (r->method == NGX_HTTP_PUT) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "Terraform takes a lock by LOCK or "
                                        "POST, and PUT renews a lease: write "
                                        "lock_method = \"LOCK\" and "
                                        "unlock_method = \"UNLOCK\"");
    }

    ctx->plain = 1;

    if (r->method & (NGX_HTTP_LOCK|NGX_HTTP_POST)) {
        return ngx_http_zk_lock_terraform_lock(r, ctx, &t);
    }

    id.data = (u_char *) t.id;
    id.len = t.id_len;

    ngx_http_zk_lock_repeat_hash(&ctx->path, "terraform", &id,
                                 ctx->token.id.random);

    ctx->token.seq = -1;
    ctx->has_token = 1;

    return ngx_http_zk_lock_request_call(r, ctx, ZKL_BREAK, 0,
                                     ngx_http_zk_lock_terraform_unlock_handler);
}


/* The client adds the ID to the query, which may also have a wait and a ttl. */

static ngx_int_t
ngx_http_zk_lock_terraform_lock(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_terraform_t *t)
{
    ngx_int_t         rc;
    ngx_str_t         id;
    zkl_args_t        args;
    zkl_claim_data_t  cdata;
    zkl_acquire_t     acquire;
    uint8_t           hash[ZKL_KEY];

    ngx_memzero(&args, sizeof(zkl_args_t));
    ngx_memzero(&cdata, sizeof(zkl_claim_data_t));

    if (zkl_args_query_read(&args, (char *) r->args.data, r->args.len,
                            ZKL_ARG_WAIT|ZKL_ARG_TTL|ZKL_ARG_ID)
        != 0)
    {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST, args.error);
    }

    if (!(args.given & ZKL_ARG_TTL)) {
        args.given |= ZKL_ARG_TTL;
        args.ttl = (int64_t) ctx->conf->max_ttl;

    } else if (args.ttl == 0) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "\"ttl\" takes a duration above "
                                        "zero");
    }

    args.owner_len = t->who_len;
    args.data_len = t->data_len;
    ngx_memcpy(args.owner, t->who, t->who_len);
    ngx_memcpy(args.data, t->data, t->data_len);

    rc = ngx_http_zk_lock_acquire_fill(r, ctx, &args, &acquire, &cdata);
    if (rc != NGX_OK) {
        return ngx_http_zk_lock_problem(r, rc, args.error);
    }

    id.data = (u_char *) t->id;
    id.len = t->id_len;

    ngx_http_zk_lock_repeat_hash(&ctx->path, "terraform", &id, hash);

    acquire.key = hash;

    return ngx_http_zk_lock_repeat(r, ctx, &acquire);
}


static void
ngx_http_zk_lock_terraform_unlock_handler(zkl_call_t *call,
    zkl_answer_e answer)
{
    ngx_int_t                rc;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = call->data;
    r = ngx_http_zk_lock_request_told(call, answer);

    switch (answer) {

    case ZKL_CALL_OK:
        ngx_str_set(&ctx->told.outcome, "released");

        rc = ngx_http_zk_lock_answer_done(r);
        break;

    case ZKL_CALL_GONE:

        /* a repeat whose first answer was lost, or the lock of another ID */

        ctx->has_token = 0;

        rc = ngx_http_zk_lock_request_call(r, ctx, ZKL_LIST, 0,
                                     ngx_http_zk_lock_terraform_holder_handler);
        break;

    default:
        rc = ngx_http_zk_lock_result_answered(r, ctx, call, answer);
        break;
    }

    ngx_http_zk_lock_request_end(r, rc);
}


static void
ngx_http_zk_lock_terraform_holder_handler(zkl_call_t *call,
    zkl_answer_e answer)
{
    ngx_int_t                rc;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = call->data;
    r = ngx_http_zk_lock_request_told(call, answer);

    switch (answer) {

    case ZKL_CALL_FREE:
        ngx_str_set(&ctx->told.outcome, "released");

        rc = ngx_http_zk_lock_answer_done(r);
        break;

    case ZKL_CALL_OK:
        ngx_str_set(&ctx->told.outcome, "conflict");

        rc = ngx_http_zk_lock_answer_holder(r, NGX_HTTP_CONFLICT,
                                            "the lock has another \"ID\"",
                                            &call->infos[0], 1);
        break;

    default:
        rc = ngx_http_zk_lock_result_answered(r, ctx, call, answer);
        break;
    }

    ngx_http_zk_lock_request_end(r, rc);
}
