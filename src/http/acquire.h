
/* POST of a lock: makes a claim, and waits with the claim. */


#ifndef _NGX_HTTP_ZK_LOCK_ACQUIRE_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_ACQUIRE_H_INCLUDED_


#include "http/request.h"
#include "base/args.h"


/*
 * Fills acquire from the arguments and the location.  cdata is the caller's
 * and zeroed.  Returns NGX_OK, or a status, with the error in args.
 */
ngx_int_t ngx_http_zk_lock_acquire_fill(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_args_t *args, zkl_acquire_t *acquire,
    zkl_claim_data_t *cdata);

/* POST of a lock, without a token. */
ngx_int_t ngx_http_zk_lock_acquire(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);


#endif /* _NGX_HTTP_ZK_LOCK_ACQUIRE_H_INCLUDED_ */
