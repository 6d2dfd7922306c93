
/*
 * Guards: a request is served while locks are held (zk_lock), or if the client
 * shows that a lock is held (zk_lock_require).
 */


#ifndef _NGX_HTTP_ZK_LOCK_GUARD_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_GUARD_H_INCLUDED_


#include "http/request.h"


/* a zk_lock directive */

typedef struct {
    ngx_http_complex_value_t          *name;
    ngx_http_complex_value_t          *owner;   /* NULL: none */
    zkl_mode_t                         mode;
    ngx_msec_t                         wait;    /* NGX_CONF_UNSET_MSEC:
                                                   zk_lock_wait */
} ngx_http_zk_lock_guard_rule_t;


/* The handler of the precontent phase, of all locations. */
ngx_int_t ngx_http_zk_lock_guard_handler(ngx_http_request_t *r);

/*
 * What is told of the guards of a request, or of its subrequest, for logs; or
 * NULL.  An internal redirect does not change that.
 */
ngx_http_zk_lock_told_t *ngx_http_zk_lock_guard_notes(ngx_http_request_t *r);


#endif /* _NGX_HTTP_ZK_LOCK_GUARD_H_INCLUDED_ */
