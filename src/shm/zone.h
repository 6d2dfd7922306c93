
/*
 * The zone: what the workers of a gateway know of each other.
 *
 * Shared memory, laid out once, without a tree, a list, a lock or an allocation
 * after that, because a worker can die at any instruction:
 *
 *   slots    a session's place: the keeper, the session's id and password, and
 *            until when the session surely lives; and the keeper's doorbell,
 *            a bit for each cell
 *   chunks   which slot owns which 64 cells
 *   cells    a claim's record takes a cell, or a few in a row if the path of
 *            the lock is long (see shm/record.h)
 *   index    (lock, seq) -> cell, a hint: the record tells the truth
 *   moved    id -> cell of a claim that was taken over, a hint, too
 *   places   what a worker asks a sibling to do (see shm/errand.h)
 *
 * A slot outlives its keeper.  Each worker has a home, the slot of the worker's
 * own session.  When a worker dies or leaves, the worker's slots are orphans,
 * and a living worker adopts the orphans: that worker makes the claims durable
 * that are held through the orphans' sessions, and closes the sessions.
 *
 * Only slots of dead processes are adopted, by pid and start time, because two
 * living processes would take a session from each other without end.
 */


#ifndef _ZKL_ZONE_H_INCLUDED_
#define _ZKL_ZONE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "shm/doorbell.h"


/*
 * Tells that the claim of a record was held, for `held` milliseconds, and is
 * not any more.  The record is still there, in cell.
 */
typedef void (*zkl_ended_pt)(void *data, uint32_t record, zkl_cell_t *cell,
    ngx_msec_t held);


/* a slot, as the slot's keeper has the slot */

typedef struct {
    zkl_layout_t               *map;
    ngx_uint_t                  slot;
    zkl_slot_t                 *own;        /* map->slots[slot] */
    ngx_uint_t                  home;       /* the keeper's own slot */
    ngx_uint_t                  reloads;    /* at the keeper's start; if
                                               map->reloads is another number, a
                                               reload has replaced the keeper */
    ngx_log_t                  *log;

    ngx_uint_t                  chunk;      /* of the last taken cell; nchunks:
                                               none is to be taken */
    ngx_uint_t                  next;       /* the first cell to try in chunk */
    ngx_uint_t                  place;      /* the first place to try for an
                                               errand */

    ngx_msec_t                  full;       /* the last log of a full zone */

    zkl_ended_pt                ended;      /* NULL: not told */
    void                       *data;       /* of ended */
} zkl_zone_t;


typedef struct {
    ngx_uint_t                  states[6];  /* claims, by record state */
    ngx_uint_t                  slots;      /* in use */
    ngx_uint_t                  own;        /* sessions of living workers */
    ngx_uint_t                  adopted;    /* sessions of adopted slots */
    ngx_uint_t                  orphans;    /* sessions without a keeper */
    ngx_uint_t                  cells;      /* in use */
    ngx_msec_t                  alive;      /* for how long the sessions of all
                                               living workers surely live; 0: a
                                               worker has no such session */
} zkl_counts_t;


/*
 * The zone's init function, for ngx_shm_zone_t, whose data is the cycle at
 * first and the layout afterwards.
 */
ngx_int_t zkl_zone_init(ngx_shm_zone_t *shm_zone, void *data);

/*
 * Notes that a configuration with the zone is in use, and that its workers
 * start.  old is the zone of the former configuration.  Both may be NULL.
 */
void zkl_zone_reloaded(ngx_shm_zone_t *shm_zone, ngx_shm_zone_t *old);

/*
 * Takes a free slot as the home of this worker.  Returns NULL if there is none
 * (yet), or no memory.
 */
zkl_zone_t *zkl_zone_join(ngx_shm_zone_t *shm_zone, ngx_log_t *log);

/*
 * Adopts an orphan.  Returns NULL if there is none, or no memory.  Orphans that
 * never had a session are given back on the way.
 */
zkl_zone_t *zkl_zone_adopt(zkl_zone_t *home);

/* Notes that this worker leaves, and is no successor any more. */
void zkl_zone_leaving(zkl_zone_t *zone);

/*
 * Whether another worker stays, or will stay: the workers of a reload may not
 * be there yet, or find no free slot.
 */
ngx_uint_t zkl_zone_outlives(zkl_zone_t *zone);

/* Wakes the other workers, because this worker is no successor now. */
void zkl_zone_wake(zkl_zone_t *zone);

/*
 * Leaves a slot to another worker, and wakes all other workers.  If no worker
 * adopts the slot, an open session ends with the timeout.  Frees zone.
 */
void zkl_zone_abandon(zkl_zone_t *zone);

/*
 * Gives back a slot whose session is over: frees the slot's records, and rings
 * the watchers of the records.  Frees zone.
 */
void zkl_zone_free(zkl_zone_t *zone);


/* Notes the id and password of the slot's session; NULL: there is none. */
void zkl_zone_set_key(zkl_zone_t *zone, const zkl_key_t *key);

/*
 * Notes the zxid of a create.  floor is map->present from before the create was
 * sent: a zxid that is not larger shows that ZooKeeper has lost
 * transactions.  Returns whether this call is the first of all workers' to show
 * so.
 */
ngx_uint_t zkl_zone_made(zkl_zone_t *zone, int64_t floor, int64_t zxid);

/*
 * Whether ZooKeeper's zxids are smaller than before, because ZooKeeper has lost
 * transactions.
 */
ngx_uint_t zkl_zone_behind(zkl_zone_t *zone);

/*
 * Whether this worker finds a place for one more claim, unless other workers
 * take the place meanwhile.
 */
ngx_uint_t zkl_zone_room(zkl_zone_t *home);

/* What is in the zone, all workers together. */
void zkl_zone_count(zkl_zone_t *zone, zkl_counts_t *counts);


#endif /* _ZKL_ZONE_H_INCLUDED_ */
