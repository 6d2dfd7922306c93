
/*
 * Records: what the workers of a gateway know of each other's claims.
 *
 * A record has one writer, the keeper of the record's slot.  The random part of
 * a claim's id identifies the claim's record: if the cell has another random
 * part, the claim has no record any more.  The zone says at which cells records
 * start, so that a successor finds the records.
 *
 * The keeper may read its own cells everywhere, but writes to the cells only
 * with the functions here, which know the order of the stores.
 */


#ifndef _ZKL_RECORD_H_INCLUDED_
#define _ZKL_RECORD_H_INCLUDED_


#include "shm/zone.h"


/*
 * Bytes of a key in the random part of an id; the remaining bytes make the ids
 * of a key differ, also between gateways that do not know of each other.
 */
#define ZKL_KEY                       8


typedef enum {
    ZKL_RECORD_FREE = 0,
    ZKL_RECORD_NEW,                     /* the znode may not exist yet */
    ZKL_RECORD_WAITING,
    ZKL_RECORD_HELD,
    ZKL_RECORD_ENDED,                   /* the delete cannot be called back */
    ZKL_RECORD_OPEN                     /* the claim is durable, the session
                                           over: only ZooKeeper knows the
                                           claim's state */
} zkl_record_state_e;


/* the version of data that no worker has read: no znode has this version */
#define ZKL_UNREAD               NGX_MAX_INT32_VALUE


/* to which client the grant was delivered */

typedef enum {
    ZKL_DELIVERED = 0,                  /* to the client that made the claim,
                                           or is about to be; the worker may
                                           find that this client has left */
    ZKL_UNDELIVERED,                    /* to none: the lease is the grace */
    ZKL_DELIVERED_ELSEWHERE             /* to a client that asked or renewed,
                                           even if the first client has left */
} zkl_delivery_e;


/* how a claim ended, as far as the gateway knows */

typedef enum {
    ZKL_ENDING_UNKNOWN = 0,
    ZKL_ENDING_RELEASED,                /* with the token, held or waiting */
    ZKL_ENDING_EXPIRED,                 /* the lease, the wait, or the grace */
    ZKL_ENDING_BROKEN,                  /* by an operator */
    ZKL_ENDING_LOST,                    /* with the session */
    ZKL_ENDING_FORSAKEN                 /* the claim may live: only ZooKeeper
                                           knows */
} zkl_ending_e;


/* what a claim's data said at the last read */

typedef struct {
    ngx_msec_t                       ttl;       /* 0: none, or not read yet */
    uint32_t                         renewals;
    uint32_t                         holds;
} zkl_said_t;


/* a copy of a record */

typedef struct {
    zkl_record_state_e               state;
    zkl_id_t                         id;
    uint32_t                         named;     /* the record number in the
                                                   znode's name */
    zkl_mode_t                       mode;
    zkl_mode_t                       was;       /* the mode before, while the
                                                   claim is about to share the
                                                   lock; else mode */
    int64_t                          seq;       /* -1: not published */
    int64_t                          czxid;
    uint32_t                         renewals;  /* in the znode's data */
    ngx_uint_t                       holds;
    ngx_uint_t                       index;
    ngx_uint_t                       slot;
    ngx_msec_t                       lease;     /* the deadline; 0: none, or
                                                   over; of WAITING: a client
                                                   has to call for the claim
                                                   until then */
    ngx_msec_t                       ttl;
    int64_t                          since;     /* the grant, or the takeover,
                                                   in milliseconds of the wall
                                                   clock; 0: none yet */
    ngx_msec_t                       alive;     /* the session surely lives
                                                   until then; in the past:
                                                   proves nothing */
    unsigned                         bound:1;   /* the claim ends with the
                                                   worker */
    unsigned                         durable:1; /* the znode may be durable: the
                                                   claim data get a longer ttl
                                                   before the client is told */
    zkl_ending_e                     ending;    /* FORSAKEN: the claim that is,
                                                   or was, here may live */
} zkl_record_t;


/* what the zone tells of a claim */

typedef enum {
    ZKL_FOUND = 0,                      /* the copy is good */
    ZKL_FOUND_ORPHAN,                   /* the copy is good, but no process
                                           keeps the claim's session now */
    ZKL_FOUND_END,                      /* no record: the claim has ended */
    ZKL_FOUND_NOTHING                   /* no record, or its worker died, or
                                           was stopped, in a write: only
                                           ZooKeeper tells of the claim */
} zkl_found_e;


/* path points into the zone: the handler has to copy path */
typedef void (*zkl_inherit_pt)(void *data, zkl_record_t *record,
    ngx_str_t *path);


/*
 * The slot's own records.  take() makes a new id, whose random part begins with
 * key if key is given (ZKL_KEY bytes), and returns NGX_OK, NGX_BUSY if the zone
 * is full, or NGX_ERROR.  end() rings the watchers; free() does, too, if a
 * watcher may wait for that, and grant() if the lock is a znode.
 */
ngx_int_t zkl_record_take(zkl_zone_t *zone, ngx_str_t *path, zkl_mode_t mode,
    const uint8_t *key, zkl_id_t *id);
void zkl_record_publish(zkl_cell_t *cell, int64_t seq, int64_t czxid,
    ngx_uint_t index);
void zkl_record_grant(zkl_cell_t *cell, ngx_msec_t ttl, ngx_msec_t lease,
    ngx_uint_t delivery);
void zkl_record_end(zkl_zone_t *zone, uint32_t record);
void zkl_record_free(zkl_zone_t *zone, uint32_t record);

/*
 * Makes an open record for child, a durable claim that this worker is about to
 * count.  Returns NGX_OK, or NGX_BUSY if the zone is full.
 */
ngx_int_t zkl_record_adopt(zkl_zone_t *zone, ngx_str_t *path,
    zkl_child_t *child, int64_t czxid, ngx_uint_t index, uint32_t *record);

/*
 * Gives the chunks of a slot whose session is over, or never was, to another
 * slot of this worker, with the records that have moved there.  The other
 * records, which have ended, are freed.  With to NULL all records are freed,
 * and the chunks are free; a durable claim does not end with the session, so
 * only ZooKeeper tells of the claims.
 */
void zkl_record_hand_over(zkl_zone_t *from, zkl_zone_t *to);

/*
 * open() marks a record as open, and moves a record of an adopted slot to
 * zone's slot.  The record stays in the cell, and keeps the deadline and all
 * other fields but the version of the data.  regain() marks the record as held
 * again, for the former lease or, with anew, for the claim data's ttl from now
 * on; the gate of the lease was taken over `term` times.
 */
void zkl_record_open(zkl_zone_t *zone, uint32_t record);
void zkl_record_regain(zkl_cell_t *cell, zkl_claim_data_t *cdata,
    ngx_uint_t anew, uint32_t term);

/*
 * Notes that the znode of an own record may be durable from now on, by claim
 * data that get the longest ttl that a holder was told, and the number of
 * holds, without the remote request if the number counts the request: another
 * session would count the request again; the gate of the lease was taken over
 * `term` times.
 */
void zkl_record_durable(zkl_cell_t *cell, zkl_claim_data_t *cdata,
    uint32_t term);

/* Notes that it is not known how often the gate was taken over. */
void zkl_record_uncounted(zkl_cell_t *cell);

/* Notes that the znode has not become durable. */
void zkl_record_ephemeral(zkl_cell_t *cell);

/* Notes how an own record's claim ends, or is about to end. */
void zkl_record_ending(zkl_cell_t *cell, zkl_ending_e ending);
/* Notes that the claim was gone before any client released the claim. */
void zkl_record_lose(zkl_cell_t *cell);
/* Notes that the gateway releases the claim, unless another end was noted. */
void zkl_record_let_go(zkl_cell_t *cell);

/* Notes whether an own record's claim ends with the worker. */
void zkl_record_bind(zkl_cell_t *cell, ngx_uint_t bound);

/*
 * downgrade() makes an own record's claim a reader.  The znode's name may still
 * be that of the mode before, until named() is called.
 */
void zkl_record_downgrade(zkl_zone_t *zone, uint32_t record);
void zkl_record_named(zkl_cell_t *cell);

/* Another znode has the data: no delete may use a version before a read. */
void zkl_record_unread(zkl_cell_t *cell);

/* Sets the ttl and the deadline of an own record unconditionally. */
void zkl_record_keep(zkl_cell_t *cell, ngx_msec_t ttl, ngx_msec_t lease);

/*
 * Sets the deadline of an own held record whose client was not told of the
 * grant, unless another client was told.
 */
void zkl_record_cut(zkl_cell_t *cell, ngx_msec_t lease);

/* Closes the lease of an own record for renewal, whatever the deadline. */
void zkl_record_close(zkl_cell_t *cell);

/*
 * Notes that the data of an own claim were read with that version and number of
 * renewals.  NGX_DECLINED: these renewals are known.  NGX_OK: the claim was
 * renewed in ZooKeeper, and the lease counts from now; ttl 0: the ttl stays.
 * grace is not 0 if clients have only called for the claim, and were told of no
 * grant: then the deadline is that far off at least, and the ttl stays.  A
 * running lease becomes shorter only if the deadline is `seen`, which was read
 * last.
 */
ngx_int_t zkl_record_renewed(zkl_cell_t *cell, int32_t version,
    uint32_t renewals, ngx_msec_t ttl, ngx_msec_t grace, ngx_msec_t seen);

/*
 * Notes in said what the data of an own claim say now.  Returns whether the
 * data may make the lease shorter: a gateway may that has written another ttl,
 * but not a gateway that has only looked at the claim.  Such a gateway counts
 * up the renewals, too, and does not know for how long the claim was renewed
 * here, perhaps by a worker that has read the data meanwhile.
 */
ngx_uint_t zkl_record_said(zkl_cell_t *cell, zkl_said_t *said,
    zkl_claim_data_t *cdata);

/* Puts the fields of an own held record into claim data, to be written. */
void zkl_record_cdata(zkl_cell_t *cell, zkl_claim_data_t *cdata);

/*
 * Notes that a client is told of an own claim's grant: the lease is not cut any
 * more.  NGX_OK: no client had been told before, and the lease counts from now;
 * NGX_DECLINED: a client had been told, or the claim is not held.
 */
ngx_int_t zkl_record_seen(zkl_cell_t *cell, ngx_msec_t ttl);

/*
 * count() sets the number of holds of an own record; anew: as if no remote
 * request had been counted.  remote() counts the remote request of a gateway,
 * unless the request was counted before; NGX_DECLINED: the claim is not held,
 * or the number is the largest.
 */
void zkl_record_count(zkl_cell_t *cell, ngx_uint_t holds, ngx_uint_t anew);
ngx_int_t zkl_record_remote(zkl_cell_t *cell, zkl_claim_data_t *cdata);

/*
 * Calls handler for each record of an adopted slot; handler may free the
 * record.  The caller does nothing with the slot's records before this call,
 * and may call again.  A record that has moved to another slot is told as open:
 * the caller knows whether it has moved the record itself.
 */
void zkl_record_inherit(zkl_zone_t *zone, zkl_inherit_pt handler, void *data);


/*
 * The record of the claim with that id, on that path.
 *
 * read:    makes a copy
 * watch:   makes a copy, and rings this worker's doorbell when the claim ends
 *          or changes; only if FOUND
 */
zkl_found_e zkl_record_read(zkl_zone_t *zone, const zkl_id_t *id,
    ngx_str_t *path, zkl_record_t *copy);
zkl_found_e zkl_record_watch(zkl_zone_t *zone, const zkl_id_t *id,
    ngx_str_t *path, zkl_record_t *copy);

/*
 * How the claim of a token ended.  The claim's cell tells until another claim
 * takes the cell.
 */
zkl_ending_e zkl_record_ended(zkl_zone_t *zone, const zkl_token_t *token,
    ngx_str_t *path);


/*
 * For the index: a copy of a record that is not torn.  NGX_DECLINED: there is
 * none, or the record is not of that path.
 */
ngx_int_t zkl_record_copy(zkl_zone_t *zone, uint32_t record, ngx_str_t *path,
    zkl_record_t *copy);


#endif /* _ZKL_RECORD_H_INCLUDED_ */
