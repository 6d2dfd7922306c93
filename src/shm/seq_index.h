
/*
 * The sequence index: which claim of this gateway has which seq in a lock.
 */


#ifndef _ZKL_SEQ_INDEX_H_INCLUDED_
#define _ZKL_SEQ_INDEX_H_INCLUDED_


#include "shm/record.h"


/*
 * find() looks for the claim of path with that seq: NGX_OK and a copy if the
 * claim may exist, NGX_DONE and a copy if the claim has ended (compare czxid:
 * the path may have been made anew meanwhile), or NGX_DECLINED if the index has
 * no such claim.  await() returns NGX_OK if the index has the claim by now,
 * NGX_DECLINED if no other worker lives that could put the claim there, or
 * NGX_AGAIN: then the worker that puts the claim there rings *record, for which
 * other rings may come, too.
 */
void zkl_seq_index_put(zkl_zone_t *zone, ngx_str_t *path, int64_t seq,
    uint32_t record);
ngx_int_t zkl_seq_index_find(zkl_zone_t *zone, ngx_str_t *path, int64_t seq,
    zkl_record_t *copy);
ngx_int_t zkl_seq_index_await(zkl_zone_t *zone, ngx_str_t *path, int64_t seq,
    uint32_t *record);

/*
 * Forgets all claims.  A connection that broke may lead to a ZooKeeper that has
 * lost data, and gives numbers that claims of before had.
 */
void zkl_seq_index_clear(zkl_zone_t *zone);


#endif /* _ZKL_SEQ_INDEX_H_INCLUDED_ */
