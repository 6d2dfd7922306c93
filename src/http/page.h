
/* The page over an API location: zk_lock_page. */


#ifndef _NGX_HTTP_ZK_LOCK_PAGE_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_PAGE_H_INCLUDED_


#include "http/request.h"


/* The content handler of a location with zk_lock_page. */
ngx_int_t ngx_http_zk_lock_page_handler(ngx_http_request_t *r);

/*
 * Makes the text of the page over the API at that path.  health: the path of
 * the gateway's health, or "".  admin: the page offers operators' calls.
 */
ngx_int_t ngx_http_zk_lock_page_make(ngx_pool_t *pool, ngx_str_t *page,
    ngx_str_t *api, ngx_str_t *health, ngx_uint_t admin);


#endif /* _NGX_HTTP_ZK_LOCK_PAGE_H_INCLUDED_ */
