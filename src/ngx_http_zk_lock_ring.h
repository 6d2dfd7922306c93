
/*
 * Doorbells: each worker has a doorbell, in its home slot, with a bit for each
 * cell.
 */


#ifndef _NGX_HTTP_ZK_LOCK_RING_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_RING_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_zk_lock_map.h"


typedef void (*ngx_http_zk_lock_ring_pt)(void *data, uint32_t record);


/* Rings the keeper of slot, for a record. */
void ngx_http_zk_lock_ring_keeper(ngx_http_zk_lock_map_t *map, ngx_uint_t slot,
    uint32_t record);

/* Wakes the worker whose home slot is home, and sets no bit. */
void ngx_http_zk_lock_ring_wake(ngx_http_zk_lock_map_t *map, ngx_uint_t home);

/* Calls handler for each record that the doorbell of home was rung for. */
void ngx_http_zk_lock_ring_answer(ngx_http_zk_lock_map_t *map, ngx_uint_t home,
    ngx_http_zk_lock_ring_pt handler, void *data);

/* Makes the keeper of slot a watcher of a record. */
void ngx_http_zk_lock_ring_watch(ngx_http_zk_lock_map_t *map, ngx_uint_t slot,
    uint32_t record);

/* Rings the watchers of a record; clear: and removes all watchers. */
void ngx_http_zk_lock_ring_watchers(ngx_http_zk_lock_map_t *map,
    uint32_t record, ngx_uint_t clear);

/* Removes all watchers of a record, and rings no worker. */
void ngx_http_zk_lock_ring_forget(ngx_http_zk_lock_map_t *map,
    uint32_t record);


#endif /* _NGX_HTTP_ZK_LOCK_RING_H_INCLUDED_ */
