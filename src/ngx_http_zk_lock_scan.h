
/*
 * The scan: durable claims whose gateway is gone.
 */


#ifndef _NGX_HTTP_ZK_LOCK_SCAN_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_SCAN_H_INCLUDED_


#include "ngx_http_zk_lock_durable.h"


/* A worker's scan; NULL: no memory.  It is freed after the worker's session. */
ngx_http_zk_lock_scan_t *ngx_http_zk_lock_scan_new(
    ngx_http_zk_lock_worker_t *worker);
void ngx_http_zk_lock_scan_free(ngx_http_zk_lock_scan_t *scan);

/* Looks which gates there are, unless that is under way. */
void ngx_http_zk_lock_scan_look(ngx_http_zk_lock_scan_t *scan);

/* The watch on a list fired; it may be that of the gates. */
void ngx_http_zk_lock_scan_listed(ngx_http_zk_lock_scan_t *scan,
    ngx_str_t *path);


#endif /* _NGX_HTTP_ZK_LOCK_SCAN_H_INCLUDED_ */
