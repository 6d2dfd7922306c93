
/* Quotas: how many claims of this gateway count under the same key. */


#ifndef _ZKL_QUOTA_H_INCLUDED_
#define _ZKL_QUOTA_H_INCLUDED_


#include "shm/layout.h"


/*
 * Counts the claim of a cell under key, a hash that is not 0, until the record
 * is freed.  NGX_BUSY: max claims count under the key already.
 */
ngx_int_t zkl_quota_take(zkl_layout_t *map, zkl_cell_t *cell, uint64_t key,
    ngx_uint_t max);

/* The cell's claim, if it counts, does not count any more. */
void zkl_quota_give_back(zkl_layout_t *map, zkl_cell_t *cell);


#endif /* _ZKL_QUOTA_H_INCLUDED_ */
