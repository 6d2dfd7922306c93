
/*
 * The scan: durable claims whose gateway is gone.
 */


#ifndef _ZKL_SCAN_H_INCLUDED_
#define _ZKL_SCAN_H_INCLUDED_


#include "core/mark.h"


/* A worker's scan, freed after the worker's session.  NULL: no memory. */
zkl_scan_t *zkl_scan_new(zkl_worker_t *worker);
void zkl_scan_free(zkl_scan_t *scan);

/* Looks which gates there are, at once or after what is under way. */
void zkl_scan_look(zkl_scan_t *scan);

/* The watch on the children of path fired; path may be that of the gates. */
void zkl_scan_listed(zkl_scan_t *scan, ngx_str_t *path);


#endif /* _ZKL_SCAN_H_INCLUDED_ */
