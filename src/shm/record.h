
/*
 * Records: what the workers of a gateway know of each other's claims.
 *
 * A record has one writer, the keeper of the record's slot.  The random part of
 * a claim's id identifies the claim's record: if the cell has another random
 * part, the claim has no record any more.  The keeper knows in private memory
 * which cells of a chunk are in use; the zone says at which cells records
 * start, so that a successor finds the records.
 */


#ifndef _ZKL_RECORD_H_INCLUDED_
#define _ZKL_RECORD_H_INCLUDED_


#include "shm/zone.h"


#define ZKL_NO_RECORD                 ((uint32_t) -1)

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
    ZKL_ENDING_FORSAKEN = ZKL_FORSAKEN
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
    uint32_t                         term;      /* takeovers of the gate, when
                                                   the lease was counted here */
    zkl_mode_t                       mode;
    zkl_mode_t                       was;       /* the mode before, while the
                                                   claim is about to share the
                                                   lock; else mode */
    int64_t                          seq;       /* -1: not published */
    int64_t                          czxid;
    int32_t                          version;   /* of the znode's data */
    uint32_t                         renewals;  /* in the znode's data */
    ngx_uint_t                       holds;
    ngx_atomic_uint_t                gen;
    ngx_uint_t                       index;
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
    unsigned                         forsaken:1;    /* of FREE: the claim that
                                                       was here may live */
} zkl_record_t;


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
void zkl_record_publish(zkl_zone_t *zone, uint32_t record, int64_t seq,
    int64_t czxid, ngx_uint_t index);
void zkl_record_grant(zkl_zone_t *zone, uint32_t record, ngx_msec_t ttl,
    ngx_msec_t lease, ngx_uint_t delivery);
void zkl_record_end(zkl_zone_t *zone, uint32_t record);
void zkl_record_free(zkl_zone_t *zone, uint32_t record);

/*
 * Makes an open record for child, a durable claim that this worker is about to
 * count.  Returns NGX_OK, or NGX_BUSY if the zone is full.
 */
ngx_int_t zkl_record_adopt(zkl_zone_t *zone, ngx_str_t *path,
    zkl_child_t *child, int64_t czxid, ngx_uint_t index, uint32_t *record);

/*
 * Moves a record of an adopted slot to zone's slot.  The record stays in the
 * cell, becomes open, and keeps the deadline and all other fields but the
 * version of the data.  was is the mode in the znode's name.
 */
void zkl_record_move(zkl_zone_t *zone, uint32_t record, zkl_mode_t was);

/*
 * Gives the chunks of an adopted slot to another slot of this worker, with the
 * records that have moved there.  The other records, which have ended, are
 * freed, because the session is over.
 */
void zkl_record_hand_over(zkl_zone_t *from, zkl_zone_t *to);

/*
 * open() marks an own record as open.  regain() marks the record as held again,
 * for the former lease or, with anew, for the claim data's ttl from now on; the
 * gate of the lease was taken over `term` times.
 */
void zkl_record_open(zkl_zone_t *zone, uint32_t record);
void zkl_record_regain(zkl_zone_t *zone, uint32_t record,
    zkl_claim_data_t *cdata, ngx_uint_t anew, uint32_t term);

/*
 * The znode of an own record may be durable from now on.  The claim data that
 * make the znode durable get the ttl that record_ttl() returns afterwards.
 */
void zkl_record_durable(zkl_zone_t *zone, uint32_t record);

/*
 * Returns the ttl of an own record; *was, if was is not NULL, is the mode in
 * the znode's name.
 */
ngx_msec_t zkl_record_ttl(zkl_zone_t *zone, uint32_t record, zkl_mode_t *was);

/*
 * Tells of an id that has no record any more.  NGX_DECLINED: the claim has
 * ended; NGX_OK: the claim may live; NGX_AGAIN: not known, as the record's cell
 * tells of another claim by now.
 */
ngx_int_t zkl_record_forsaken(zkl_zone_t *zone, const zkl_id_t *id,
    ngx_str_t *path);

/*
 * Counts an own record under key, a hash that is not 0, until the record is
 * freed.  NGX_BUSY: max claims count under the key already.
 */
ngx_int_t zkl_record_quota(zkl_zone_t *zone, uint32_t record, uint64_t key,
    ngx_uint_t max);

/*
 * A copy of an own record and its path, which points into the zone; returns how
 * the claim ends, as far as is known.
 */
zkl_ending_e zkl_record_own(zkl_zone_t *zone, uint32_t record,
    zkl_record_t *copy, ngx_str_t *path);

/* Notes how an own record's claim ends, or is about to end. */
void zkl_record_ending(zkl_zone_t *zone, uint32_t record, zkl_ending_e ending);
/* Notes that the claim was gone before any client released the claim. */
void zkl_record_lose(zkl_zone_t *zone, uint32_t record);
/* Notes that the gateway releases the claim, unless another end was noted. */
void zkl_record_let_go(zkl_zone_t *zone, uint32_t record);

/* bind(): an own record's claim ends with the worker; unbind() undoes that. */
void zkl_record_bind(zkl_zone_t *zone, uint32_t record);
void zkl_record_unbind(zkl_zone_t *zone, uint32_t record);

/*
 * mode() changes the mode of an own record's claim.  The znode's name may still
 * be that of the mode before, until named() is called.
 */
void zkl_record_mode(zkl_zone_t *zone, uint32_t record, zkl_mode_t mode);
void zkl_record_named(zkl_zone_t *zone, uint32_t record, zkl_mode_t mode);

/* Another znode has the data: no delete may use a version before a read. */
void zkl_record_unread(zkl_zone_t *zone, uint32_t record);

/* Sets the ttl and the deadline of an own record unconditionally. */
void zkl_record_keep(zkl_zone_t *zone, uint32_t record, ngx_msec_t ttl,
    ngx_msec_t lease);

/*
 * Sets the deadline of an own held record whose client was not told of the
 * grant, unless another client was told.
 */
void zkl_record_cut(zkl_zone_t *zone, uint32_t record, ngx_msec_t lease);

/*
 * Whether the lease of an own held record is over at now.  NGX_OK: over, and
 * cannot be renewed any more; NGX_AGAIN: not over, *lease is the deadline.
 */
ngx_int_t zkl_record_lease_over(zkl_zone_t *zone, uint32_t record,
    ngx_msec_t now, ngx_msec_t *lease);

/* Closes the lease of an own record for renewal, whatever the deadline. */
void zkl_record_close(zkl_zone_t *zone, uint32_t record);

/* The deadline of an own record.  NGX_DECLINED: the lease is over. */
ngx_int_t zkl_record_lease(zkl_zone_t *zone, uint32_t record,
    ngx_msec_t *lease);

/*
 * Notes that the data of an own claim were read with that version and number of
 * renewals.  NGX_DECLINED: these renewals are known.  NGX_OK: the claim was
 * renewed in ZooKeeper, and the lease counts from now; ttl 0: the ttl stays.
 * grace is not 0 if clients have only called for the claim, and were told of no
 * grant: then the deadline is that far off at least, and the ttl stays.  A
 * running lease becomes shorter only if the deadline is `seen`, which was read
 * last.
 */
ngx_int_t zkl_record_renewed(zkl_zone_t *zone, uint32_t record,
    int32_t version, uint32_t renewals, ngx_msec_t ttl, ngx_msec_t grace,
    ngx_msec_t seen);

/* Whether an own record has seen that many renewals in the data. */
ngx_uint_t zkl_record_knows(zkl_zone_t *zone, uint32_t record,
    uint32_t renewals);

/* The version up to which an own record's lease is right, or UNREAD. */
int32_t zkl_record_version(zkl_zone_t *zone, uint32_t record);

/*
 * Notes in said what the data of an own claim say now.  Returns whether the
 * data may make the lease shorter: a gateway may that has written another ttl,
 * but not a gateway that has only looked at the claim.  Such a gateway counts
 * up the renewals, too, and does not know for how long the claim was renewed
 * here, perhaps by a worker that has read the data meanwhile.
 */
ngx_uint_t zkl_record_said(zkl_zone_t *zone, uint32_t record, zkl_said_t *said,
    zkl_claim_data_t *cdata);

/*
 * Puts the number of holds into claim data, without the remote request if the
 * number counts the request: another session would count the request again.
 */
void zkl_record_counted(zkl_zone_t *zone, uint32_t record,
    zkl_claim_data_t *cdata);

/* Puts the fields of an own held record into claim data, to be written. */
void zkl_record_cdata(zkl_zone_t *zone, uint32_t record,
    zkl_claim_data_t *cdata);

/*
 * Notes that a client is told of an own claim's grant: the lease is not cut any
 * more.  NGX_OK: no client had been told before, and the lease counts from now;
 * NGX_DECLINED: a client had been told, or the claim is not held.
 */
ngx_int_t zkl_record_seen(zkl_zone_t *zone, uint32_t record, ngx_msec_t ttl);

/* How many holds an own record has at this moment. */
ngx_uint_t zkl_record_holds(zkl_zone_t *zone, uint32_t record);

/*
 * count() sets the number of holds of an own record; anew: as if no remote
 * request had been counted.  remote() counts the remote request of a gateway,
 * unless the request was counted before; NGX_DECLINED: the claim is not held,
 * or the number is the largest.
 */
void zkl_record_count(zkl_zone_t *zone, uint32_t record, ngx_uint_t holds,
    ngx_uint_t anew);
ngx_int_t zkl_record_remote(zkl_zone_t *zone, uint32_t record,
    zkl_claim_data_t *cdata);

/*
 * Calls handler for each record of an adopted slot; handler may free the
 * record.  The caller does nothing with the slot's records before this call,
 * and may call again: records that have moved to this worker are left out.
 */
void zkl_record_inherit(zkl_zone_t *zone, zkl_inherit_pt handler, void *data);


/*
 * Any record.  Both return NGX_DECLINED if the zone has no claim with that id
 * on that path (any more), and NGX_ABORT if the keeper died or was stopped in a
 * write of the record, so that the content proves nothing.  NGX_AGAIN: no
 * process keeps the claim's session at this moment.  Then the copy is good, but
 * no watch is set.
 *
 * read:    makes a copy
 * watch:   makes a copy, and rings this worker's doorbell when the claim ends
 *          or changes
 */
ngx_int_t zkl_record_read(zkl_zone_t *zone, const zkl_id_t *id,
    ngx_str_t *path, zkl_record_t *copy);
ngx_int_t zkl_record_watch(zkl_zone_t *zone, const zkl_id_t *id,
    ngx_str_t *path, zkl_record_t *copy);

/*
 * How the claim of a token ended.  The claim's cell tells until another claim
 * takes the cell.
 */
zkl_ending_e zkl_record_ended(zkl_zone_t *zone, const zkl_token_t *token,
    ngx_str_t *path);


/* For the index: a whole copy of a record, if the record is of path. */
ngx_int_t zkl_record_copy(zkl_zone_t *zone, uint32_t record, ngx_str_t *path,
    zkl_record_t *copy);


#endif /* _ZKL_RECORD_H_INCLUDED_ */
