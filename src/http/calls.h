
/* Calls about an existing lock or claim: GET, PUT, DELETE, POST with token. */


#ifndef _NGX_HTTP_ZK_LOCK_CALLS_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_CALLS_H_INCLUDED_


#include "http/request.h"


ngx_int_t ngx_http_zk_lock_call_get(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
ngx_int_t ngx_http_zk_lock_call_put(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
ngx_int_t ngx_http_zk_lock_call_delete(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
ngx_int_t ngx_http_zk_lock_call_hold(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);


#endif /* _NGX_HTTP_ZK_LOCK_CALLS_H_INCLUDED_ */
