
/* The dialect of Terraform and OpenTofu: the locking of the HTTP backend. */


#ifndef _NGX_HTTP_ZK_LOCK_TERRAFORM_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_TERRAFORM_H_INCLUDED_


#include "http/request.h"


/*
 * Serves LOCK and UNLOCK, and POST and DELETE with a body that has an "ID".
 * Returns NGX_DECLINED for any other request.
 */
ngx_int_t ngx_http_zk_lock_terraform(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);


#endif /* _NGX_HTTP_ZK_LOCK_TERRAFORM_H_INCLUDED_ */
