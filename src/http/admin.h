
/*
 * Operators' calls: break the claims of a lock's holders, or ask the holders to
 * let go.
 */


#ifndef _NGX_HTTP_ZK_LOCK_ADMIN_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_ADMIN_H_INCLUDED_


#include "http/request.h"


/*
 * BREAK, for DELETE with "force": breaks the claims that If-Match names.
 * REVOKE, for PUT with "revoke": asks all holders, or the holder that If-Match
 * names.
 */
ngx_int_t ngx_http_zk_lock_admin(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_e type);


#endif /* _NGX_HTTP_ZK_LOCK_ADMIN_H_INCLUDED_ */
