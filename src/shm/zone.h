
/*
 * The zone: what the workers of one gateway know of each other.
 *
 * Shared memory, laid out once, with no tree, list, lock or allocation in it
 * after that, because a worker can die at any instruction:
 *
 *   slots    a session's place: the keeper, the session's id and password, and
 *            until when the session surely lives; and the keeper's doorbell,
 *            one bit a cell
 *   chunks   which slot owns which 64 cells; taken and given back by the slot
 *   cells    a claim's record takes one, or a few in a row if its lock's path
 *            is long (see ngx_http_zk_lock_record.h)
 *   board    (lock, seq) -> cell, a hint: the record tells the truth
 *
 * A slot outlives its keeper.  Each worker has a home, the slot of its own
 * session.  When a worker dies or leaves, its slots are orphans, and a living
 * worker adopts them: that worker makes durable what is held through their
 * sessions, and closes the sessions.
 *
 * Only the dead are adopted, by pid and start: two living processes would take
 * a session from each other without end.
 */


#ifndef _ZKL_ZONE_H_INCLUDED_
#define _ZKL_ZONE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "shm/doorbell.h"


#define ZKL_NO_CHUNK                  ((ngx_uint_t) -1)


/* one slot, as its keeper has it */

typedef struct {
    zkl_layout_t               *map;
    ngx_uint_t                  slot;
    ngx_uint_t                  home;       /* the keeper's own slot */
    ngx_uint_t                  reloads;    /* when the keeper was started */
    ngx_log_t                  *log;

    uint64_t                   *used;       /* cells of own chunks; of all
                                               slots of this worker */
    ngx_uint_t                  chunk;      /* where the last one was taken */
    ngx_uint_t                  next;       /* cell in it, to be tried first */

    u_char                      random[256];
    size_t                      nrandom;    /* bytes of it that are left */

    ngx_msec_t                  full;       /* when that was logged last */
} zkl_zone_t;


typedef struct {
    ngx_uint_t                  states[6];  /* claims, by the record's */
    ngx_uint_t                  slots;      /* in use */
    ngx_uint_t                  own;        /* sessions of living workers */
    ngx_uint_t                  adopted;    /* sessions beside these */
    ngx_uint_t                  orphans;    /* sessions without a keeper */
    ngx_uint_t                  cells;      /* in use */
} zkl_counts_t;


/*
 * The zone's init function, for ngx_shm_zone_t, whose data is the cycle at
 * first and the map afterwards.
 */
ngx_int_t zkl_zone_init(ngx_shm_zone_t *shm_zone, void *data);

/*
 * The configuration of a zone was taken into use: workers are started with it.
 * old is the zone of the one before, or NULL.
 */
void zkl_zone_reloaded(ngx_shm_zone_t *shm_zone, ngx_shm_zone_t *old);

/*
 * Takes a free slot as the home of this worker.  Returns NULL if there is none
 * (yet), or no memory.
 */
zkl_zone_t *zkl_zone_join(ngx_shm_zone_t *shm_zone, ngx_log_t *log);

/*
 * Adopts an orphan.  Returns NULL if there is none, or no memory.  Orphans
 * that never had a session are given back on the way.
 */
zkl_zone_t *zkl_zone_adopt(zkl_zone_t *home);

/* Whether a worker has left orphans; a hint, for the time between sweeps. */
ngx_uint_t zkl_zone_orphans(zkl_zone_t *zone);

/* This worker leaves, and is no heir any more. */
void zkl_zone_leaving(zkl_zone_t *zone);

/* Whether this worker was replaced by a reload. */
ngx_uint_t zkl_zone_replaced(zkl_zone_t *zone);

/*
 * Whether there is another worker that stays, or will be: the workers of a
 * reload may not be there yet, or find no free slot.
 */
ngx_uint_t zkl_zone_outlives(zkl_zone_t *zone);

/* Wakes the other workers that leave: they have lost an heir in this one. */
void zkl_zone_wake(zkl_zone_t *zone);

/*
 * Leaves a slot to another worker, and wakes one that stays, or else all that
 * leave.  If none adopts it, its session, if it is open, ends with its timeout.
 * Frees zone.
 */
void zkl_zone_abandon(zkl_zone_t *zone);

/*
 * Gives a slot back, whose session is over: its records are freed, and those
 * who wait for them are told.  Frees zone.
 */
void zkl_zone_leave(zkl_zone_t *zone);


/* Notes the id and password of the slot's session; NULL: there is none. */
void zkl_zone_set_key(zkl_zone_t *zone, const zkl_key_t *key);

/* Gets them.  NGX_DECLINED: the slot never had a session. */
ngx_int_t zkl_zone_key(zkl_zone_t *zone, zkl_key_t *key);

/* The descriptor that wakes this worker (an eventfd), never closed by it. */
int zkl_zone_fd(zkl_zone_t *home);

/* Where it is noted until when the slot's session surely lives. */
ngx_atomic_t *zkl_zone_alive(zkl_zone_t *zone);

/* The number of cells. */
ngx_uint_t zkl_zone_cells(zkl_zone_t *zone);

/* What is in the zone, all workers together. */
void zkl_zone_count(zkl_zone_t *zone, zkl_counts_t *counts);


#endif /* _ZKL_ZONE_H_INCLUDED_ */
