
/*
 * Records: what the workers of one gateway know of each other's claims.
 *
 * A record has one writer, the keeper of its slot; what others may change is
 * an atomic word.  A record is known by the random part of its claim's id:
 * when that is another one, the claim that was there has ended.  Which cells
 * of a chunk are in use is in the keeper's own memory; at which of them a
 * record starts is in the zone, for who comes after him.
 */


#ifndef _NGX_HTTP_ZK_LOCK_RECORD_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_RECORD_H_INCLUDED_


#include "ngx_http_zk_lock_zone.h"


#define NGX_HTTP_ZK_LOCK_NO_RECORD    ((uint32_t) -1)

/*
 * Bytes of a key in the random part of an id; what is left of it makes ids of
 * one key differ, also those of gateways that do not know of each other.
 */
#define NGX_HTTP_ZK_LOCK_KEY          8


typedef enum {
    NGX_HTTP_ZK_LOCK_RECORD_FREE = 0,
    NGX_HTTP_ZK_LOCK_RECORD_NEW,        /* its znode may not exist yet */
    NGX_HTTP_ZK_LOCK_RECORD_WAITING,
    NGX_HTTP_ZK_LOCK_RECORD_HELD,
    NGX_HTTP_ZK_LOCK_RECORD_ENDED,      /* its delete cannot be called back */
    NGX_HTTP_ZK_LOCK_RECORD_OPEN        /* durable, and its session is over:
                                           only ZooKeeper tells of it */
} ngx_http_zk_lock_record_state_e;


/* the version of data that were not read so far: no znode has it */
#define NGX_HTTP_ZK_LOCK_UNREAD  NGX_MAX_INT32_VALUE


/* who was told that a claim is held */

typedef enum {
    NGX_HTTP_ZK_LOCK_TOLD_ITS_OWN = 0,  /* who made it, or is being told; his
                                           worker may find him gone */
    NGX_HTTP_ZK_LOCK_TOLD_NOBODY,       /* its lease is the grace */
    NGX_HTTP_ZK_LOCK_TOLD_OTHERS        /* whatever became of its own */
} ngx_http_zk_lock_told_e;


/* how a claim ended, as far as its gateway knows */

typedef enum {
    NGX_HTTP_ZK_LOCK_ENDING_UNKNOWN = 0,
    NGX_HTTP_ZK_LOCK_ENDING_RELEASED,   /* with its token, or a wait was */
    NGX_HTTP_ZK_LOCK_ENDING_EXPIRED,    /* its lease, its wait, or its grace */
    NGX_HTTP_ZK_LOCK_ENDING_BROKEN,     /* by an operator */
    NGX_HTTP_ZK_LOCK_ENDING_LOST,       /* with its session */
    NGX_HTTP_ZK_LOCK_ENDING_FORSAKEN = NGX_HTTP_ZK_LOCK_FORSAKEN
} ngx_http_zk_lock_ending_e;


/* what a claim's data said when they were read last */

typedef struct {
    ngx_msec_t                       ttl;       /* 0: none, or none was read */
    uint32_t                         renewals;
} ngx_http_zk_lock_said_t;


/* a copy of a record */

typedef struct {
    ngx_http_zk_lock_record_state_e  state;
    zk_lock_id_t                     id;
    uint32_t                         named;     /* in its znode's name */
    zk_lock_kind_t                   kind;
    zk_lock_kind_t                   was;       /* kind, but for who is about
                                                   to share his lock */
    int64_t                          seq;       /* -1: not published */
    int64_t                          czxid;
    int32_t                          version;   /* of the znode's data */
    uint32_t                         renewals;  /* in the znode's data */
    ngx_uint_t                       holds;
    ngx_uint_t                       told;      /* who was, of HELD */
    ngx_atomic_uint_t                gen;
    ngx_uint_t                       index;
    ngx_msec_t                       lease;     /* the deadline, 0: none; of
                                                   WAITING: until when somebody
                                                   has to ask for it */
    ngx_msec_t                       ttl;
    time_t                           since;     /* granted; 0: not yet */
    ngx_msec_t                       alive;     /* until when its session
                                                   surely lives */
    unsigned                         bound:1;   /* it goes with its worker */
    unsigned                         forsaken:1;    /* of a free one: its claim
                                                       may live */
} ngx_http_zk_lock_record_t;


/* path is in the zone: copy it */
typedef void (*ngx_http_zk_lock_inherit_pt)(void *data,
    ngx_http_zk_lock_record_t *record, ngx_str_t *path);


/*
 * The slot's own records.  take() makes a new id, whose random part begins
 * with key if that is given (NGX_HTTP_ZK_LOCK_KEY bytes), and returns NGX_OK,
 * NGX_BUSY if the zone is full, or NGX_ERROR.  grant(), end() and free() ring
 * those who watch.
 */
ngx_int_t ngx_http_zk_lock_record_take(ngx_http_zk_lock_zone_t *zone,
    ngx_str_t *path, zk_lock_kind_t kind, const uint8_t *key,
    zk_lock_id_t *id);
void ngx_http_zk_lock_record_publish(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, int64_t seq, int64_t czxid, ngx_uint_t index);
void ngx_http_zk_lock_record_grant(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_msec_t ttl, ngx_msec_t lease, ngx_uint_t told);
void ngx_http_zk_lock_record_end(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);
void ngx_http_zk_lock_record_free(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);

/*
 * A record of its own for the durable claim that has that id in its name, and
 * whose lease another session counts, or counted: open, in the cell of the id
 * if that is free.  Returns NGX_OK, or NGX_BUSY if the zone is full.
 */
ngx_int_t ngx_http_zk_lock_record_adopt(ngx_http_zk_lock_zone_t *zone,
    ngx_str_t *path, zk_lock_child_t *child, int64_t czxid, ngx_uint_t index,
    uint32_t *record);

/*
 * A record of a slot that was adopted becomes one of zone's slot, in its place:
 * open, with its deadline and all that it has.  was is the kind in the znode's
 * name.
 */
void ngx_http_zk_lock_record_move(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, zk_lock_kind_t was);

/*
 * The chunks of a slot that was adopted are another slot's of this worker from
 * now on, with the records that have moved there.  The others are freed: their
 * session is over.
 */
void ngx_http_zk_lock_record_hand_over(ngx_http_zk_lock_zone_t *from,
    ngx_http_zk_lock_zone_t *to);

/*
 * An own record is open from now on, or held again: with the deadline that it
 * had or, anew, for the time that the label says, from now on.
 */
void ngx_http_zk_lock_record_open(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);
void ngx_http_zk_lock_record_regain(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, zk_lock_label_t *label, ngx_uint_t anew);

/* The ttl of an own record, and the kind in its znode's name, or NULL. */
ngx_msec_t ngx_http_zk_lock_record_ttl(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, zk_lock_kind_t *was);

/*
 * There is no record with that id any more.  NGX_DECLINED: its claim has ended;
 * NGX_OK: it may live; NGX_AGAIN: that is not known, as the record's cell tells
 * of another claim by now.
 */
ngx_int_t ngx_http_zk_lock_record_forsaken(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path);

/*
 * An own record, that is about to be ended and freed, was lost: its claim was
 * gone before anybody released it.  lost() tells of any record's claim that had
 * that gen: NGX_OK if it was, NGX_DECLINED if not, NGX_AGAIN if that is not
 * known any more, since a claim there was lost after that gen.
 */
void ngx_http_zk_lock_record_lose(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);
ngx_int_t ngx_http_zk_lock_record_lost(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_atomic_uint_t gen);

/* An own record's claim ends, or is about to: how. */
void ngx_http_zk_lock_record_ending(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_http_zk_lock_ending_e ending);

/*
 * An own record goes with its worker from now on, or no more.  With a leader,
 * another own record, that one's word counts: so several can be freed at once.
 */
void ngx_http_zk_lock_record_bind(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, uint32_t leader);
void ngx_http_zk_lock_record_unbind(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);

/*
 * An own record's claim is of another kind from now on; its znode's name may
 * still be that of the kind before, until named() is called.
 */
void ngx_http_zk_lock_record_kind(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, zk_lock_kind_t kind);
void ngx_http_zk_lock_record_named(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, zk_lock_kind_t kind);

/* An own record has that deadline, whatever it had. */
void ngx_http_zk_lock_record_keep(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_msec_t ttl, ngx_msec_t lease);

/*
 * The client of an own record was not told that it is held: it has that
 * deadline, unless others were told, or its lease is not `from` any more.
 */
void ngx_http_zk_lock_record_cut(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_msec_t from, ngx_msec_t lease);

/*
 * Whether the lease of an own held record is over at now.  If so it is closed
 * for renewal, and NGX_OK is returned; else NGX_AGAIN, with its deadline.
 */
ngx_int_t ngx_http_zk_lock_record_lease_over(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_msec_t now, ngx_msec_t *lease);

/* The deadline of an own record.  NGX_DECLINED: it is over. */
ngx_int_t ngx_http_zk_lock_record_lease(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_msec_t *lease);

/*
 * The data of an own claim were seen with that version and that number of
 * renewals.  NGX_DECLINED: these are known.  NGX_OK: somebody has renewed the
 * claim in ZooKeeper, and the lease counts from now; ttl 0: as it was.  Only a
 * lease that is over, or the one that was seen last, is made shorter.
 */
ngx_int_t ngx_http_zk_lock_record_renewed(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, int32_t version, uint32_t renewals, ngx_msec_t ttl,
    ngx_msec_t seen);

/* Whether so many renewals in its data have been seen. */
ngx_uint_t ngx_http_zk_lock_record_knows(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, uint32_t renewals);

/* The version up to which an own record's lease is right, or UNREAD. */
int32_t ngx_http_zk_lock_record_version(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);

/*
 * The data of an own claim say this now.  Whether they may make its lease
 * shorter: that may who has named another time, but not who has only looked at
 * the claim.  He counts up the renewals, too, and does not know for how long it
 * was renewed here, perhaps by somebody who has read the data meanwhile.
 */
ngx_uint_t ngx_http_zk_lock_record_said(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_http_zk_lock_said_t *said, zk_lock_label_t *label);

/* Puts into a label that is written anew what an own record knows. */
void ngx_http_zk_lock_record_label(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, zk_lock_label_t *label);

/*
 * The data of an own claim say that its grant was seen.  NGX_OK: nobody had
 * been told, and its lease counts from now; NGX_DECLINED: somebody had.
 */
ngx_int_t ngx_http_zk_lock_record_seen(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_msec_t ttl);

/* How often an own record is held at this moment. */
ngx_uint_t ngx_http_zk_lock_record_holds(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);

/*
 * What another gateway wants of an own record is counted, unless it was
 * already; *holds is how often it is held now.
 */
ngx_int_t ngx_http_zk_lock_record_wish(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, zk_lock_label_t *label,
    ngx_uint_t *holds);

/* Whether anybody asked for the release of an own record. */
ngx_uint_t ngx_http_zk_lock_record_asked(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);

/*
 * Calls handler for each record of a slot that was adopted.  It may free the
 * record.  Before it, nothing else may be done with the slot's records.
 */
void ngx_http_zk_lock_record_inherit(ngx_http_zk_lock_zone_t *zone,
    ngx_http_zk_lock_inherit_pt handler, void *data);


/*
 * Any record.  All return NGX_DECLINED if there is no claim with that id on
 * that path (any more); NGX_AGAIN, with a copy, if nobody keeps its session at
 * this moment; and NGX_ABORT if its worker died or was stopped while it wrote:
 * then nothing follows from what the record says.
 *
 * read:   a copy
 * watch:  the same, and rings this worker's doorbell when the claim ends, and
 *         again when it is gone
 * renew:  sets the lease, to until, or if that is 0 to ttl from now on, and
 *         rings its worker's doorbell; declined unless the claim is held, or
 *         waits for somebody to ask for it, and its lease is not over; nor,
 *         unless from is 0, if its lease is another one than that: somebody
 *         has granted or renewed it.  version and renewals are those of the
 *         znode's data, if what they say is older than this renewal, or 0.
 *         Who renews it has seen it
 * told:   a copy, for somebody who is told that it is held: from now on its
 *         lease is not cut.  If nobody was told before, it counts from now,
 *         but is not made shorter.  Declined unless it is held, and its
 *         lease is not over
 * hold:   it is held once more, or, with less, once less; *holds is how often
 *         it is held then; 0: it is to be released
 * ask:    asks its worker to release it; broken: for an operator
 */
ngx_int_t ngx_http_zk_lock_record_read(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path,
    ngx_http_zk_lock_record_t *copy);
ngx_int_t ngx_http_zk_lock_record_watch(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path,
    ngx_http_zk_lock_record_t *copy);
ngx_int_t ngx_http_zk_lock_record_renew(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_msec_t from, ngx_msec_t ttl,
    ngx_msec_t until, int32_t version, uint32_t renewals);
ngx_int_t ngx_http_zk_lock_record_told(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_http_zk_lock_record_t *copy);
ngx_int_t ngx_http_zk_lock_record_hold(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_uint_t less,
    ngx_uint_t *holds);
ngx_int_t ngx_http_zk_lock_record_ask(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_uint_t broken);

/*
 * How the claim of a token ended that is gone.  That is known for as long as
 * its cell is not taken for another claim.
 */
ngx_http_zk_lock_ending_e ngx_http_zk_lock_record_ended(
    ngx_http_zk_lock_zone_t *zone, const zk_lock_token_t *token,
    ngx_str_t *path);


/*
 * The board.  find() tells of the claim of path with that seq: NGX_OK and a
 * copy if it may exist, NGX_DONE and a copy if there was such a claim and it
 * ended (compare czxid: the path may have been made anew meanwhile), or
 * NGX_DECLINED if nothing is known.  await() says NGX_OK if something is known
 * by now, NGX_DECLINED if there is no other worker that could put it there, or
 * NGX_AGAIN: then who puts it there rings record, as may others.
 */
void ngx_http_zk_lock_board_put(ngx_http_zk_lock_zone_t *zone,
    ngx_str_t *path, int64_t seq, uint32_t record);
ngx_int_t ngx_http_zk_lock_board_find(ngx_http_zk_lock_zone_t *zone,
    ngx_str_t *path, int64_t seq, ngx_http_zk_lock_record_t *copy);
ngx_int_t ngx_http_zk_lock_board_await(ngx_http_zk_lock_zone_t *zone,
    ngx_str_t *path, int64_t seq, uint32_t *record);

/*
 * The same board, for a lock that is one znode: each worker puts up the record
 * of its claim that is next.  turn() puts up an own one that waits, and tells
 * whether it is its turn: NGX_OK, or NGX_BUSY and a copy of the one that is to
 * end, or to be granted, before: who holds the lock, else who contends for it
 * already, else who has waited for longest.  Since when it waits is in czxid
 * while a record waits, and whether it contends in index; one without a time is
 * nobody's any more.
 */
ngx_int_t ngx_http_zk_lock_board_turn(ngx_http_zk_lock_zone_t *zone,
    ngx_str_t *path, uint32_t record, ngx_http_zk_lock_record_t *copy);


/* For the board: a copy of a record, whole, if it is of path. */
ngx_int_t ngx_http_zk_lock_record_copy(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_str_t *path, ngx_http_zk_lock_record_t *copy);


#endif /* _NGX_HTTP_ZK_LOCK_RECORD_H_INCLUDED_ */
