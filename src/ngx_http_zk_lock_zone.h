
/*
 * The zone: what the workers of one gateway know of each other.
 *
 * Shared memory, laid out once, with no tree, list, lock or allocation in it
 * after that, because a worker can die at any instruction:
 *
 *   slots    a worker's place: its pid, until when its session surely lives,
 *            its wake-up, and its doorbell, one bit a cell
 *   chunks   which slot owns which 64 cells; taken and given back by the slot
 *   cells    a claim's record takes one, or a few in a row if its lock's path
 *            is long; which cells of a chunk are in use is in the owner's own
 *            memory
 *   board    (lock, seq) -> cell, a hint: the record tells the truth
 *
 * A record has one writer, its slot's worker; what others may change is an
 * atomic word.  A record is known by the random part of its claim's id: when
 * that is another one, the claim that was there has ended.  A record of a
 * worker that died is left as it is until its session is surely over.
 */


#ifndef _NGX_HTTP_ZK_LOCK_ZONE_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_ZONE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "zk_lock_name.h"


#define NGX_HTTP_ZK_LOCK_NO_RECORD    ((uint32_t) -1)


typedef struct ngx_http_zk_lock_zone_s  ngx_http_zk_lock_zone_t;


typedef enum {
    NGX_HTTP_ZK_LOCK_RECORD_FREE = 0,
    NGX_HTTP_ZK_LOCK_RECORD_NEW,        /* its znode may not exist yet */
    NGX_HTTP_ZK_LOCK_RECORD_WAITING,
    NGX_HTTP_ZK_LOCK_RECORD_HELD,
    NGX_HTTP_ZK_LOCK_RECORD_ENDED       /* its delete cannot be called back */
} ngx_http_zk_lock_record_state_e;


/* a copy of a record */

typedef struct {
    ngx_http_zk_lock_record_state_e  state;
    zk_lock_id_t                     id;
    zk_lock_kind_e                   kind;
    int64_t                          seq;
    int64_t                          czxid;
    ngx_uint_t                       index;
    ngx_msec_t                       lease;     /* the deadline, 0: none */
    ngx_msec_t                       ttl;
    time_t                           since;     /* granted; 0: not yet */
    ngx_msec_t                       alive;     /* until when its session
                                                   surely lives */
} ngx_http_zk_lock_record_t;


typedef void (*ngx_http_zk_lock_ring_pt)(void *data, uint32_t record);


/* The zone's init function, for ngx_shm_zone_t. */
ngx_int_t ngx_http_zk_lock_zone_init(ngx_shm_zone_t *shm_zone, void *data);

/*
 * Takes a slot for this worker.  timeout is the session's; a slot of a dead
 * worker is taken over when that worker's session is surely over.  Returns
 * NULL if there is no slot or no memory; that was logged.
 */
ngx_http_zk_lock_zone_t *ngx_http_zk_lock_zone_join(ngx_shm_zone_t *shm_zone,
    ngx_msec_t timeout, ngx_log_t *log);

/*
 * Gives the slot back.  clean: the session was closed, so its claims are gone,
 * and those who wait for them are told; else the slot is left as of a dead
 * worker.
 */
void ngx_http_zk_lock_zone_leave(ngx_http_zk_lock_zone_t *zone,
    ngx_uint_t clean);

/* The descriptor that wakes this worker (an eventfd), never closed by it. */
int ngx_http_zk_lock_zone_fd(ngx_http_zk_lock_zone_t *zone);

/* Where this worker notes until when its session surely lives. */
ngx_atomic_t *ngx_http_zk_lock_zone_alive(ngx_http_zk_lock_zone_t *zone);

/* The number of cells. */
ngx_uint_t ngx_http_zk_lock_zone_cells(ngx_http_zk_lock_zone_t *zone);


/*
 * This worker's own records.  take() makes a new id, and returns NGX_OK,
 * NGX_BUSY if the zone is full, or NGX_ERROR.  end() and free() ring those who
 * watch.
 */
ngx_int_t ngx_http_zk_lock_record_take(ngx_http_zk_lock_zone_t *zone,
    ngx_str_t *path, zk_lock_kind_e kind, zk_lock_id_t *id);
void ngx_http_zk_lock_record_publish(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, int64_t seq, int64_t czxid, ngx_uint_t index);
void ngx_http_zk_lock_record_grant(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_msec_t ttl, ngx_msec_t lease);
void ngx_http_zk_lock_record_end(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);
void ngx_http_zk_lock_record_free(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);

/*
 * Whether the lease of an own held record is over at now.  If so it is closed
 * for renewal, and NGX_OK is returned; else NGX_AGAIN, with its deadline.
 */
ngx_int_t ngx_http_zk_lock_record_lease_over(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_msec_t now, ngx_msec_t *lease);

/* Whether anybody asked for the release of an own record. */
ngx_uint_t ngx_http_zk_lock_record_asked(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);


/*
 * Any record.  All return NGX_DECLINED if there is no claim with that id on
 * that path (any more), and NGX_ABORT if its worker is dead: then nothing
 * follows from what the record says.
 *
 * read:   a copy
 * watch:  the same, and rings this worker's doorbell when the claim ends, and
 *         again when it is gone
 * renew:  sets the lease, and rings its worker's doorbell; declined unless the
 *         claim is held and its lease is not over
 * ask:    asks its worker to release it
 */
ngx_int_t ngx_http_zk_lock_record_read(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path,
    ngx_http_zk_lock_record_t *copy);
ngx_int_t ngx_http_zk_lock_record_watch(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path,
    ngx_http_zk_lock_record_t *copy);
ngx_int_t ngx_http_zk_lock_record_renew(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_msec_t ttl,
    ngx_msec_t lease);
ngx_int_t ngx_http_zk_lock_record_ask(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path);


/*
 * The board.  find() tells of the claim of path with that seq: NGX_OK and a
 * copy if it may exist, NGX_DONE and a copy if there was such a claim and it
 * ended (compare czxid: the path may have been made anew meanwhile), or
 * NGX_DECLINED if nothing is known.
 */
void ngx_http_zk_lock_board_put(ngx_http_zk_lock_zone_t *zone,
    ngx_str_t *path, int64_t seq, uint32_t record);
ngx_int_t ngx_http_zk_lock_board_find(ngx_http_zk_lock_zone_t *zone,
    ngx_str_t *path, int64_t seq, ngx_http_zk_lock_record_t *copy);


/* Calls handler for each record that this worker's doorbell was rung for. */
void ngx_http_zk_lock_zone_answer(ngx_http_zk_lock_zone_t *zone,
    ngx_http_zk_lock_ring_pt handler, void *data);


#endif /* _NGX_HTTP_ZK_LOCK_ZONE_H_INCLUDED_ */
