
/* An acquire that may be repeated: it has a key. */


#ifndef _NGX_HTTP_ZK_LOCK_REPEAT_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_REPEAT_H_INCLUDED_


#include "http/request.h"
#include "base/args.h"


/*
 * Acquires with the key in acquire.  A repeat must have the same params in
 * acquire->cdata.  acquire->handler, with the request's context, is told the
 * outcome, unless the claim has a duplicate.
 */
ngx_int_t ngx_http_zk_lock_repeat(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_acquire_t *acquire);

/* NGX_OK and the request's key (data is NULL: no key); NGX_ERROR: a bad key */
ngx_int_t ngx_http_zk_lock_repeat_key(ngx_http_request_t *r, ngx_str_t *key);

/*
 * Hashes a key for the lock at path into ZKL_KEY bytes, with which the claim's
 * id begins.  mode: "key", or "terraform" for an ID of Terraform's.
 */
void ngx_http_zk_lock_repeat_hash(ngx_str_t *path, const char *mode,
    ngx_str_t *key, uint8_t *hash);

/* Hashes the mode, ttl, owner and data, which a repeat must have in common. */
uint32_t ngx_http_zk_lock_repeat_params(zkl_args_t *args,
    zkl_acquire_t *acquire);


#endif /* _NGX_HTTP_ZK_LOCK_REPEAT_H_INCLUDED_ */
