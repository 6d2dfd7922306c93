
/*
 * The scan: durable claims whose gateway is gone.
 */


#ifndef _ZKL_SCAN_H_INCLUDED_
#define _ZKL_SCAN_H_INCLUDED_


#include "core/mark.h"


/* A worker's scan; NULL: no memory.  It is freed after the worker's session. */
zkl_scan_t *zkl_scan_new(zkl_worker_t *worker);
void zkl_scan_free(zkl_scan_t *scan);

/* Looks which gates there are, unless that is under way. */
void zkl_scan_look(zkl_scan_t *scan);

/* The watch on a list fired; it may be that of the gates. */
void zkl_scan_listed(zkl_scan_t *scan, ngx_str_t *path);


#endif /* _ZKL_SCAN_H_INCLUDED_ */
