
/*
 * Streams: answers that go on, one event after the other.
 */


#ifndef _NGX_HTTP_ZK_LOCK_STREAM_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_STREAM_H_INCLUDED_


#include "ngx_http_zk_lock_api.h"


/*
 * Acquires what is held by the request's connection.  acquire is filled but
 * for what is the stream's: whom to tell, and that the claim is bound.  What is
 * refused before the stream has begun is answered as ever.
 */
ngx_int_t ngx_http_zk_lock_stream_claim(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_acquire_t *acquire);

/* GET of a lock: its state, and each one that comes after it. */
ngx_int_t ngx_http_zk_lock_stream_lock(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);


#endif /* _NGX_HTTP_ZK_LOCK_STREAM_H_INCLUDED_ */
