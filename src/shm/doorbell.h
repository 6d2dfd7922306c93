
/*
 * Doorbells: each worker has a doorbell, in its home slot, with a bit for each
 * cell, and behind the cells a bit for each errand: what rings is the number of
 * a record, or map->ncells and the number of an errand.  A place of the
 * sequence index rings as the record of the same number: a worker that is rung
 * looks again, so a ring too many does no harm.
 */


#ifndef _ZKL_DOORBELL_H_INCLUDED_
#define _ZKL_DOORBELL_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "shm/layout.h"


typedef void (*zkl_doorbell_pt)(void *data, uint32_t record);


/* Rings the keeper of slot, for a record or an errand. */
void zkl_doorbell_keeper(zkl_layout_t *map, ngx_uint_t slot, uint32_t record);

/* Wakes the worker that has that home slot, and sets no bit. */
void zkl_doorbell_wake(zkl_layout_t *map, ngx_uint_t home);

/* Calls handler for each record and errand that the doorbell was rung for. */
void zkl_doorbell_answer(zkl_layout_t *map, ngx_uint_t home,
    zkl_doorbell_pt handler, void *data);

/* Makes the keeper of slot a watcher of a record. */
void zkl_doorbell_watch(zkl_layout_t *map, ngx_uint_t slot, uint32_t record);

/* Rings the watchers of a record; clear: and removes all watchers. */
void zkl_doorbell_watchers(zkl_layout_t *map, uint32_t record,
    ngx_uint_t clear);


#endif /* _ZKL_DOORBELL_H_INCLUDED_ */
