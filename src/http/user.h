
/* The user of a request, if nginx has checked who that is. */


#ifndef _NGX_HTTP_ZK_LOCK_USER_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_USER_H_INCLUDED_


#include "http/request.h"


/*
 * The realm of a location in which auth_basic checks the password of each
 * request, or NULL.  loc_conf: what all modules have for the location.
 */
ngx_http_complex_value_t *ngx_http_zk_lock_user_realm(ngx_module_t **modules,
    void **loc_conf);

/*
 * The name of the user, which is empty unless auth_basic has checked the
 * password of this request.  NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_zk_lock_user(ngx_http_request_t *r, ngx_str_t *name);


#endif /* _NGX_HTTP_ZK_LOCK_USER_H_INCLUDED_ */
