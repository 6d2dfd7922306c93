
/*
 * Pages: GET of the location's own path tells which locks there are.
 */


#ifndef _NGX_HTTP_ZK_LOCK_LIST_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_LIST_H_INCLUDED_


#include "http/request.h"


ngx_int_t ngx_http_zk_lock_list(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);


#endif /* _NGX_HTTP_ZK_LOCK_LIST_H_INCLUDED_ */
