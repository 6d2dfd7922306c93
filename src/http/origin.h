
/* Pages of other origins: which of a browser's requests change nothing. */


#ifndef _NGX_HTTP_ZK_LOCK_ORIGIN_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_ORIGIN_H_INCLUDED_


#include "http/request.h"


/*
 * Refuses a request that changes something, if a page of an origin sent the
 * request that is neither the request's own host nor zk_lock_allow_origin.
 * Refuses also a body without a type, which a page may send without asking
 * first.  The body has been read or discarded.  Returns NGX_DECLINED unless an
 * answer was sent.
 */
ngx_int_t ngx_http_zk_lock_origin_check(ngx_http_request_t *r);


#endif /* _NGX_HTTP_ZK_LOCK_ORIGIN_H_INCLUDED_ */
