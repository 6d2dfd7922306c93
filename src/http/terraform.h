
/*
 * The dialect of Terraform and OpenTofu: their HTTP backend's locking.
 */


#ifndef _NGX_HTTP_ZK_LOCK_TERRAFORM_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_TERRAFORM_H_INCLUDED_


#include "http/api.h"


/*
 * Serves LOCK and UNLOCK, and POST and DELETE with a body that has an "ID".
 * NGX_DECLINED: it is another call.
 */
ngx_int_t ngx_http_zk_lock_terraform(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);


#endif /* _NGX_HTTP_ZK_LOCK_TERRAFORM_H_INCLUDED_ */
