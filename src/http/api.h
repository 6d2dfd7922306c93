
/* The content handlers, and the variables. */


#ifndef _NGX_HTTP_ZK_LOCK_API_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_API_H_INCLUDED_


#include "http/request.h"


/* The content handler of a location with zk_lock_api. */
ngx_int_t ngx_http_zk_lock_api_handler(ngx_http_request_t *r);

/* The content handler of a location with zk_lock_metrics. */
ngx_int_t ngx_http_zk_lock_metrics_handler(ngx_http_request_t *r);

/* Adds the variables; a preconfiguration hook. */
ngx_int_t ngx_http_zk_lock_add_variables(ngx_conf_t *cf);


#endif /* _NGX_HTTP_ZK_LOCK_API_H_INCLUDED_ */
