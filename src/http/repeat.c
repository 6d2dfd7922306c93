
/*
 * Repeats: acquires with an Idempotency-Key.
 *
 * An earlier request, at any worker of any gateway, may have made a claim with
 * the same key: then this request waits with that claim, and is told of the
 * grant.  The claim's id begins with a hash of the key, and the claim data have
 * a hash of the request's parameters.
 *
 * Everything here runs on the event loop.  ctx->claim is NULL while the request
 * watches the claim of an earlier request.
 */


#include <ngx_sha1.h>

#include "http/repeat.h"
#include "http/answer.h"
#include "http/args.h"
#include "http/result.h"
#include "http/watch.h"


#define NGX_HTTP_ZK_LOCK_KEY_MAX      255

/* a request with a key, which may have to begin again */

typedef struct {
    ngx_http_zk_lock_watch_t           watch;
    zkl_acquire_t                      acquire;
    zkl_claim_data_t                   cdata;
    uint8_t                            key[ZKL_KEY];
    ngx_msec_t                         started;
    zkl_claim_pt                       handler; /* of the claim's outcome */
} ngx_http_zk_lock_keyed_t;


static ngx_int_t ngx_http_zk_lock_repeat_begin(
    ngx_http_zk_lock_keyed_t *keyed);
static void ngx_http_zk_lock_repeat_handler(void *data, zkl_claim_t *claim,
    zkl_outcome_e outcome);
static ngx_msec_t ngx_http_zk_lock_repeat_left(
    ngx_http_zk_lock_keyed_t *keyed);
static ngx_int_t ngx_http_zk_lock_repeat_join_handler(
    ngx_http_zk_lock_watch_t *watch, zkl_call_t *call, zkl_answer_e answer,
    ngx_http_zk_lock_again_e *again);


ngx_int_t
ngx_http_zk_lock_repeat_key(ngx_http_request_t *r, ngx_str_t *key)
{
    size_t       i;
    ngx_str_t   *header;
    ngx_uint_t   n;

    ngx_str_null(key);

    header = ngx_http_zk_lock_header(r, "idempotency-key", &n);

    if (header == NULL) {
        return NGX_OK;
    }

    *key = *header;

    /* a string of RFC 8941: the quotes are not a part of the key */

    if (key->len > 1 && key->data[0] == '"' && key->data[key->len - 1] == '"')
    {
        key->data++;
        key->len -= 2;
    }

    if (n != 1 || key->len == 0 || key->len > NGX_HTTP_ZK_LOCK_KEY_MAX) {
        return NGX_ERROR;
    }

    for (i = 0; i < key->len; i++) {
        if (key->data[i] < 0x21 || key->data[i] > 0x7e) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


void
ngx_http_zk_lock_repeat_hash(ngx_str_t *path, const char *mode,
    ngx_str_t *key, uint8_t *hash)
{
    u_char      digest[20];
    ngx_sha1_t  sha1;

    ngx_sha1_init(&sha1);
    ngx_sha1_update(&sha1, mode, ngx_strlen(mode) + 1);
    ngx_sha1_update(&sha1, path->data, path->len);
    ngx_sha1_update(&sha1, "", 1);
    ngx_sha1_update(&sha1, key->data, key->len);
    ngx_sha1_final(digest, &sha1);

    ngx_memcpy(hash, digest, ZKL_KEY);
}


/*
 * Hashes the client's parameters as text, because gateways of any word size,
 * byte order and configuration must get the same hash for the same request.
 */

uint32_t
ngx_http_zk_lock_repeat_params(zkl_args_t *args, zkl_acquire_t *acquire)
{
    u_char    *p;
    int64_t    ttl;
    uint32_t   crc;
    u_char     said[NGX_INT32_LEN + NGX_INT64_LEN + sizeof("  ")];

    ttl = (args->given & ZKL_ARG_TTL) ? args->ttl : -1;

    p = ngx_sprintf(said, "%uD %L ", acquire->mode, ttl);

    ngx_crc32_init(crc);
    ngx_crc32_update(&crc, said, p - said);
    ngx_crc32_update(&crc, (u_char *) args->owner, args->owner_len + 1);
    ngx_crc32_update(&crc, (u_char *) args->data, args->data_len);
    ngx_crc32_final(crc);

    return crc;
}


ngx_int_t
ngx_http_zk_lock_repeat(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx,
    zkl_acquire_t *acquire)
{
    ngx_int_t                  rc;
    ngx_http_zk_lock_keyed_t  *keyed;

    rc = ngx_http_zk_lock_request_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    keyed = ngx_pcalloc(r->pool, sizeof(ngx_http_zk_lock_keyed_t));
    if (keyed == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    keyed->cdata = *acquire->cdata;
    keyed->cdata.has_params = 1;
    keyed->cdata.async = 1;
    ngx_memcpy(keyed->key, acquire->key, ZKL_KEY);

    keyed->acquire = *acquire;
    keyed->acquire.cdata = &keyed->cdata;
    keyed->acquire.key = keyed->key;
    keyed->acquire.terms.grace = ctx->conf->grace;
    keyed->handler = acquire->handler;
    keyed->acquire.handler = ngx_http_zk_lock_repeat_handler;
    keyed->acquire.data = keyed;

    keyed->watch.request = r;
    keyed->watch.ctx = ctx;
    keyed->watch.data = keyed;

    return ngx_http_zk_lock_repeat_begin(keyed);
}


/* Makes a claim; may be called any number of times. */

static ngx_int_t
ngx_http_zk_lock_repeat_begin(ngx_http_zk_lock_keyed_t *keyed)
{
    zkl_outcome_e            outcome;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = keyed->watch.ctx;

    keyed->started = ngx_current_msec;

    ctx->claim = zkl_claim_acquire(ctx->worker, &keyed->acquire, &outcome);

    if (ctx->claim == NULL) {
        return ngx_http_zk_lock_result_refused(ctx->request, ctx, outcome);
    }

    return NGX_DONE;
}


static void
ngx_http_zk_lock_repeat_handler(void *data, zkl_claim_t *claim,
    zkl_outcome_e outcome)
{
    ngx_http_zk_lock_keyed_t *keyed = data;

    ngx_int_t                rc;
    ngx_msec_t               left;
    zkl_child_t              duplicate;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = keyed->watch.ctx;

    if (outcome != ZKL_DUPLICATE) {
        keyed->handler(ctx, claim, outcome);
        return;
    }

    ctx->claim = NULL;

    duplicate = claim->duplicate;

    ctx->token.id = duplicate.id;
    ctx->token.seq = duplicate.seq;
    ctx->token.mode = duplicate.mode;
    ctx->has_token = 1;

    zkl_name_token_write((char *) ctx->secret, &ctx->token,
                         (char *) ctx->path.data, ctx->path.len);

    ngx_memzero(&keyed->watch, sizeof(ngx_http_zk_lock_watch_t));

    keyed->watch.type = ZKL_INSPECT;
    keyed->watch.handler = ngx_http_zk_lock_repeat_join_handler;
    keyed->watch.data = keyed;

    left = keyed->acquire.terms.async ? 0 : ngx_http_zk_lock_repeat_left(keyed);

    rc = ngx_http_zk_lock_watch(ctx->request, ctx, &keyed->watch, left);

    if (rc != NGX_DONE) {
        ngx_http_zk_lock_request_end(ctx->request, rc);
    }
}


/* What is left of the wait. */

static ngx_msec_t
ngx_http_zk_lock_repeat_left(ngx_http_zk_lock_keyed_t *keyed)
{
    ngx_msec_t  past;

    past = ngx_current_msec - keyed->started;

    return (past < keyed->acquire.wait) ? keyed->acquire.wait - past : 0;
}


static ngx_int_t
ngx_http_zk_lock_repeat_join_handler(ngx_http_zk_lock_watch_t *watch,
    zkl_call_t *call, zkl_answer_e answer, ngx_http_zk_lock_again_e *again)
{
    ngx_http_zk_lock_keyed_t *keyed = watch->data;

    zkl_info_t              *info;
    zkl_claim_data_t         cdata;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    r = watch->request;
    ctx = watch->ctx;

    ctx->told.waited = ngx_current_msec - keyed->started;

    if (answer == ZKL_CALL_GONE) {

        /* the claim that was joined has ended: the request begins anew */

        ctx->has_token = 0;
        keyed->acquire.wait = ngx_http_zk_lock_repeat_left(keyed);

        return ngx_http_zk_lock_repeat_begin(keyed);
    }

    if (answer != ZKL_CALL_OK) {
        return ngx_http_zk_lock_result_answered(r, ctx, call, answer);
    }

    info = &call->infos[0];

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    if (cdata.has_params && cdata.params != keyed->cdata.params) {
        ngx_str_set(&ctx->told.outcome, "refused");

        return ngx_http_zk_lock_problem(r,
                                        NGX_HTTP_ZK_LOCK_STATUS_UNPROCESSABLE,
                                        "this Idempotency-Key was used for "
                                        "this lock with other parameters");
    }

    if (info->held && (!keyed->acquire.terms.durable || cdata.gate_len != 0)) {
        return ngx_http_zk_lock_answer_claim(r, ctx, call, NGX_HTTP_OK);
    }

    if (keyed->acquire.terms.async) {
        return ngx_http_zk_lock_answer_claim(r, ctx, call, NGX_HTTP_ACCEPTED);
    }

    /*
     * A request that tries once is told what becomes of a claim that is being
     * granted, or made durable.
     */

    if (info->pending || info->held) {

        if (ctx->told.waited < ngx_max(keyed->acquire.wait + ZKL_PATIENCE,
                                       keyed->acquire.timeout))
        {
            *again = NGX_HTTP_ZK_LOCK_SOON;
            return NGX_OK;
        }

        return ngx_http_zk_lock_result_refused(r, ctx, ZKL_UNREACHABLE);
    }

    if (!watch->over) {
        *again = NGX_HTTP_ZK_LOCK_LATER;
        return NGX_OK;
    }

    return ngx_http_zk_lock_result_refused(r, ctx, ZKL_TIMED_OUT);
}
