
/* The content handlers, the variables, and what is counted. */


#ifndef _NGX_HTTP_ZK_LOCK_API_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_API_H_INCLUDED_


#include "http/request.h"


/* The content handler of a location with zk_lock_api. */
ngx_int_t ngx_http_zk_lock_api_handler(ngx_http_request_t *r);

/* The content handlers of locations with zk_lock_metrics, zk_lock_health. */
ngx_int_t ngx_http_zk_lock_metrics_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_zk_lock_health_handler(ngx_http_request_t *r);

/* Adds the variables; a preconfiguration hook. */
ngx_int_t ngx_http_zk_lock_add_variables(ngx_conf_t *cf);

/* What the request, or the request's guards, were told.  NULL: nothing. */
ngx_http_zk_lock_told_t *ngx_http_zk_lock_variable_told(ngx_http_request_t *r);

/* The handler of the log phase: counts the request. */
ngx_int_t ngx_http_zk_lock_metrics_count(ngx_http_request_t *r);


#endif /* _NGX_HTTP_ZK_LOCK_API_H_INCLUDED_ */
