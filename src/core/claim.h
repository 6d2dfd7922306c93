
/*
 * A claim: a request for a lock, from the acquire to the end.  No HTTP.
 */


#ifndef _ZKL_CLAIM_H_INCLUDED_
#define _ZKL_CLAIM_H_INCLUDED_


#include "core/lock.h"


/* the place of a claim among the claims that wait */
#define zkl_place(ahead, holders)                                              \
    ((ahead) > (holders) ? (ngx_uint_t) ((ahead) - (holders)) : 0)

/* bytes of the id of the request that made a claim; nginx's has 32 */
#define ZKL_REQUEST_MAX               32

/* the lease of a claim that does not expire */
#define ZKL_NO_LEASE                  ((ngx_msec_t) ZKL_DURATION_MAX)


/*
 * The states of a claim.  Each tells whether the claim's znode exists, and
 * whether a delete is owed.
 *
 *            reply OK     reply       reply     its     ended:          session
 *            (or found)   no node     unknown   turn    release, once   lost
 *                                               comes   wait or  more
 *                                                       lease
 *   -------  -----------  ----------  --------  ------  -------  -----  -------
 *   START    -            -           -         -       DONE     CREATE START
 *   CREATE   WAIT         START       RECOVER   -       (later)  -      START
 *   RECOVER  WAIT         START       -         -       (later)  list   START
 *   WAIT     -            START       -         HELD    DELETE   -      START
 *                                                       or EXP.
 *   HELD     -            DONE        -         -       DELETE   -      DONE
 *                                                       or EXP.
 *   EXPIRING DONE         DONE        -         -       (later)  delete DONE
 *   TAKE     HELD, TAKE   DONE        -         -       DELETE   read   TAKE
 *            or DONE
 *   DELETE   DONE         DONE        -         -       -        delete DONE
 *
 * "(later)": a create that is under way cannot be called back, so the claim is
 * deleted when the znode is known to exist.  "once more": what
 * zkl_claim_proceed() sends, unless that is under way.  After a lost connection
 * a list of the lock's children tells, too, whether the claim's znode exists.
 *
 * A durable claim outlives the session: from HELD on the claim goes to TAKE,
 * until this session counts the lease, or deletes the claim.  TAKE leads to
 * DONE if another session counts the lease.  A lease of a worker or a gateway
 * that is gone begins in TAKE.
 */

typedef enum {
    ZKL_START = 0,                  /* no; the claim waits for the lock's znode,
                                       for the connection or, in the one-node
                                       layout, for a turn to make the znode */
    ZKL_CREATE,                     /* maybe; the create is under way */
    ZKL_RECOVER,                    /* maybe; the answer to the create was
                                       lost */
    ZKL_WAIT,                       /* yes; in the view, not granted yet */
    ZKL_HELD,                       /* yes; granted, under a lease, unless bound
                                       without a lease */
    ZKL_EXPIRING,                   /* maybe; the lease or the grace is over, or
                                       the claim is withdrawn: the claim is
                                       deleted, unless another gateway has
                                       renewed the claim */
    ZKL_TAKE,                       /* maybe; durable, and this session does
                                       not own the gate of the lease yet, or
                                       has not read the claim since; or a dead
                                       worker's, and not durable yet */
    ZKL_DELETE,                     /* maybe; a delete is owed: under way, or
                                       to be sent again */
    ZKL_DONE                        /* no */
} zkl_claim_state_e;


/* what the waiter is told; the waiter holds the lock after GRANTED only */

typedef enum {
    ZKL_GRANTED = 0,
    ZKL_QUEUED,                     /* async: the claim waits on */
    ZKL_DUPLICATE,                  /* the key has a claim: claim->duplicate */
    ZKL_TIMED_OUT,                  /* the wait is over, and other claims have
                                       the lock */
    ZKL_CONFLICT,                   /* the lock is used in another way */
    ZKL_LAYOUT,                     /* the znode is of the other layout */
    ZKL_FULL,                       /* the queue is too long */
    ZKL_QUOTA,                      /* max_claims are there already */
    ZKL_UNREACHABLE,                /* ZooKeeper did not answer in time */
    ZKL_NO_ROOM,                    /* the zone or the session is full */
    ZKL_SEQ_EXHAUSTED,              /* ZooKeeper has no new seq for claims of
                                       this lock */
    ZKL_DENIED,                     /* ZooKeeper refuses, by an ACL, or to make
                                       the claim durable */
    ZKL_CANCELLED,                  /* the claim was released or deleted before
                                       the grant was told */
    ZKL_SHUTTING_DOWN,              /* the worker leaves */
    ZKL_DRAINED,                    /* an operator has drained the gateway */
    ZKL_FAILED                      /* no memory, or refused; was logged */
} zkl_outcome_e;


/*
 * Tells the waiter the outcome, once.  After any outcome but GRANTED and QUEUED
 * the claim must not be used any more.  After GRANTED and QUEUED the claim
 * exists until a release, or the end of the lease or grace: keep the token, not
 * the pointer, unless an event handler tells when the claim is gone.
 */
typedef void (*zkl_claim_pt)(void *data, zkl_claim_t *claim,
    zkl_outcome_e outcome);

/* what an event handler is told of a claim */

typedef enum {
    ZKL_EVENT_WAITS = 0,                /* the claim is in the queue; told
                                           before the grant, and again when the
                                           place changes */
    ZKL_EVENT_REVOKE,                   /* the holder is asked to let go */
    ZKL_EVENT_ENDING,                   /* the claim will be lost, unless a
                                           client renews or ZooKeeper answers */
    ZKL_EVENT_SURE,                     /* ZooKeeper answers again */
    ZKL_EVENT_LOST                      /* the last: the lock is not held */
} zkl_event_e;

/*
 * Tells of a bound claim: WAITS before the claim's handler was called, the
 * other events after GRANTED was told.  reason is of ENDING ("lease",
 * "zookeeper") and LOST ("lease", "released", "deleted", "session",
 * "shutdown"); else NULL.  After LOST the claim must not be used.
 */
typedef void (*zkl_event_pt)(void *data, zkl_claim_t *claim, zkl_event_e event,
    const char *reason);

/*
 * What the worker has noted for the client, and told if there is a handler for
 * it.  WAITS goes when the claim queues again, LEASE with a renewal, ZOOKEEPER
 * when SURE comes.
 */

#define ZKL_TOLD_WAITS                0x01          /* the claim waits */
#define ZKL_TOLD_LEASE                0x02          /* the lease is about to
                                                       end, unless renewed */
#define ZKL_TOLD_ZOOKEEPER            0x04          /* ZooKeeper does not
                                                       answer */
#define ZKL_TOLD_SURE                 0x08          /* ZooKeeper has answered
                                                       again */
#define ZKL_TOLD_REVOKE               0x10          /* the holder is asked to
                                                       release */
#define ZKL_TOLD_REQUEUED             0x20          /* the claim has lost its
                                                       place in the queue once:
                                                       told with the grant */


/*
 * Whether the wait limits the claim.  A waiter that was not answered until
 * `patience` is told UNREACHABLE in any case.
 */

typedef enum {
    ZKL_TIME_ENDLESS = 0,               /* no: the claim stays until the grant,
                                           or until the grace is over */
    ZKL_TIME_LIMITED,                   /* until the deadline */
    ZKL_TIME_OVER,                      /* the deadline is over: the claim ends
                                           as soon as the worker is sure that
                                           the claim is not next */
    ZKL_TIME_ABANDONED                  /* as OVER, and the client has left; a
                                           call of another client before that
                                           end sets ENDLESS */
} zkl_time_e;


/* whether the znode outlives this session; the znode of a claim in TAKE does */

typedef enum {
    ZKL_EPHEMERAL = 0,
    ZKL_UNFIT,                          /* no, and the znode cannot be made
                                           durable */
    ZKL_DURABLE
} zkl_lasting_e;


/*
 * What the client asked for; the terms of a claim do not change.
 *
 * once:    the claim does not wait for the lock, though the wait may not be 0
 * async:   the client is told QUEUED as soon as the worker knows that the
 *          claim has to wait
 * forever: the wait has no end
 * bound:   the claim ends with the worker, at least until zkl_claim_begin();
 *          the record says whether that is still so
 * leased:  the client gave a ttl: a bound claim has a lease, too
 * durable: the client is told of the grant when the claim is durable
 * keyed:   further requests may have the same key; set by zkl_claim_acquire()
 */

typedef struct {
    ngx_msec_t                         grace;       /* how long a claim that
                                                       waits, or whose grant was
                                                       not told, stays while no
                                                       client waits or calls;
                                                       0: no time */
    ngx_uint_t                         max_queue;
    ngx_uint_t                         max_claims;
    uint64_t                           quota;       /* the key that the claim
                                                       counts under, among at
                                                       most max_claims; 0:
                                                       none */
    unsigned                           once:1;
    unsigned                           async:1;
    unsigned                           forever:1;
    unsigned                           bound:1;
    unsigned                           leased:1;
    unsigned                           durable:1;
    unsigned                           keyed:1;
} zkl_terms_t;


struct zkl_claim_s {
    zkl_entry_t                        entry;       /* must be first */
    ngx_queue_t                        queue;       /* lock->claims */
    ngx_queue_t                        transient;   /* worker->transient */
    ngx_queue_t                        listeners;
    ngx_queue_t                        written;     /* listeners that wait until
                                                       the claim data have what
                                                       the record has */
    ngx_queue_t                        asked;       /* listeners for which the
                                                       operation under way
                                                       counts */
    zkl_lock_t                        *lock;
    zkl_terms_t                        terms;

    zkl_claim_state_e                  state;
    zkl_outcome_e                      outcome;     /* told to a waiter that is
                                                       there still when the
                                                       claim is done */
    zkl_time_e                         time;
    zkl_lasting_e                      lasting;
    ngx_uint_t                         told;        /* ZKL_TOLD_... */

    zkl_op_t                          *op;          /* under way, or NULL */
    zkl_claim_pt                       handler;     /* NULL: no client waits */
    zkl_event_pt                       event;       /* of a bound claim; NULL:
                                                       no client listens */
    void                              *data;

    zkl_replace_t                     *replace;     /* while another znode takes
                                                       the claim's place; else
                                                       NULL */

    ngx_event_t                        timer;       /* wait, then lease */
    ngx_msec_t                         started;
    ngx_msec_t                         deadline;    /* of a limited wait */
    ngx_msec_t                         patience;    /* until when the claim
                                                       waits for ZooKeeper's
                                                       answer, at most */
    ngx_msec_t                         granted;     /* when; of HELD */
    ngx_msec_t                         lease;       /* when the lease, or the
                                                       grace of a claim in WAIT,
                                                       ends; as read last */
    ngx_msec_t                         ttl;
    zkl_said_t                         said;        /* by the znode's data */
    uint32_t                           writing;     /* the holds in the data
                                                       that are being written */

    zkl_id_t                           id;          /* with the record */
    zkl_cell_t                        *cell;        /* of the record */
    uint32_t                           named;       /* the record in the
                                                       znode's name */
    ngx_str_node_t                     sn;          /* worker->renumbered, if
                                                       named is another record
                                                       than the claim has */
    zkl_gate_t                        *gate;        /* below which the lease is,
                                                       or is about to be,
                                                       entered; or NULL */
    ngx_queue_t                        custody;     /* gate's claims */
    zkl_adoption_t                    *adoption;    /* whose slot has the
                                                       record, or NULL */
    int64_t                            czxid;       /* 0: not known yet */
    int64_t                            copied;      /* in RECOVER: znodes with
                                                       the claim's id up to this
                                                       seq are other clients' */
    ngx_uint_t                         index;

    u_char                             request[ZKL_REQUEST_MAX];
    uint16_t                           request_len;
    uint16_t                           index_at;    /* in cdata */
    uint16_t                           cdata_len;
    uint16_t                           tries;

    /*
     * Flags.  In brackets: the states in which a flag has a meaning.
     *
     * single:   no older claim has the claim's key: without this flag the
     *           claim is not granted
     * detached: [until the grant] a client may call for the claim later, with
     *           the key or the token, so the claim does not end before the
     *           grace is over; a client may wait all the same
     * watched:  [HELD, EXPIRING, TAKE, DELETE] the znode has a watch
     * changed:  [HELD, EXPIRING] a read of the data is due, and not sent yet
     * ending:   [HELD] the claim is deleted when `replace` is done, and until
     *           then neither renewed nor held once more; [TAKE]
     *           the znode is deleted as soon as a read finds the znode,
     *           whichever session counts the lease
     * refused:  ZooKeeper has refused to delete the znode: a worker that
     *           leaves does not wait for the claim; [TAKE] or to make the claim
     *           durable
     * doubtful: [DELETE; TAKE after a release] a delete without an
     *           answer may have happened: a znode that is missing does not
     *           count as lost
     * lost:     the lease or the grace is over, or the znode or the session
     *           gone, before a release: listeners are told NO_NODE; until a
     *           renewal or a takeover
     */
    unsigned                           single:1;
    unsigned                           detached:1;
    unsigned                           watched:1;
    unsigned                           changed:1;
    unsigned                           ending:1;
    unsigned                           refused:1;
    unsigned                           doubtful:1;
    unsigned                           lost:1;

    zkl_child_t                        duplicate;   /* of that outcome */
    ngx_uint_t                         place;       /* how many claims wait
                                                       ahead, as counted last;
                                                       0: the claim is next */
    ngx_uint_t                         position;    /* as told last */

    u_char                             cdata[1];
};


typedef struct {
    ngx_str_t                          path;        /* of the lock */
    zkl_mode_t                         mode;
    ngx_msec_t                         wait;        /* for the lock, and for
                                                       ZooKeeper as long */
    ngx_msec_t                         timeout;     /* for ZooKeeper, if the
                                                       claim does not wait; and
                                                       for a late answer at the
                                                       end of the wait */
    ngx_msec_t                         ttl;
    zkl_terms_t                        terms;
    const zkl_claim_data_t            *cdata;
    ngx_str_t                          request;     /* for the journal, cut to
                                                       ZKL_REQUEST_MAX bytes */
    const uint8_t                     *key;         /* ZKL_KEY bytes, with which
                                                       the random part of the id
                                                       begins; a lock keeps one
                                                       claim for each key; NULL:
                                                       no key */
    ngx_uint_t                         begun;       /* of a request that holds
                                                       other locks: is made also
                                                       if the gateway is drained
                                                       meanwhile */
    zkl_claim_pt                       handler;
    zkl_event_pt                       event;       /* tells of a bound claim */
    void                              *data;        /* of both handlers */
} zkl_acquire_t;


/*
 * Makes a claim.  The handler is called later, never from inside.  Returns NULL
 * with *outcome if the acquire is refused at once: then the handler is not
 * called.
 */
zkl_claim_t *zkl_claim_acquire(zkl_worker_t *worker, zkl_acquire_t *acquire,
    zkl_outcome_e *outcome);

/*
 * The client that waited or listened has left: the claim is removed, or stays
 * for the grace, and no handler is called.
 */
void zkl_claim_abandon(zkl_claim_t *claim);

/*
 * Ends a claim that waits or is held; of one in TAKE, which a call is about to
 * delete, a znode that is missing does not count as lost from now on.
 * listener, if not NULL, is told when the claim is gone or cannot be removed; a
 * caller that does not wait any longer takes listener->queue out.
 */
void zkl_claim_release(zkl_claim_t *claim, zkl_listener_t *listener);

/*
 * The client was not told of the grant after all: the claim is released, or
 * kept for the grace.
 */
void zkl_claim_undelivered(zkl_claim_t *claim);

/*
 * Starts the leases of bound claims that are held, all with the same deadline;
 * from then on the claims outlive the worker, and their handlers are not called
 * any more.
 */
void zkl_claim_begin(zkl_claim_t **claims, ngx_uint_t n);

/* Turns a held claim that has the lock alone into a reader's claim. */
void zkl_claim_downgrade(zkl_claim_t *claim);

/*
 * For calls.  keep() moves the deadline of a claim that waits at least that far
 * off; seen() notes that a client is told of the grant; renew() does, too, and
 * begins the lease of a held claim anew, with ttl 0 for the ttl of before;
 * version and renewals, unless 0, are of data that a client's call has read.
 * NGX_DECLINED: the grace, or the lease, is over.
 */
ngx_int_t zkl_claim_keep(zkl_claim_t *claim, ngx_msec_t grace);
ngx_int_t zkl_claim_seen(zkl_claim_t *claim);
ngx_int_t zkl_claim_renew(zkl_claim_t *claim, ngx_msec_t ttl, int32_t version,
    uint32_t renewals);

/*
 * hold() counts a hold of a held claim more or less; NGX_DECLINED: none is
 * there, or too many are.  told() returns NGX_AGAIN if the data of a claim that
 * is, or becomes, durable have a shorter ttl than a client is told.  Then, and
 * after NGX_OK of hold(), the claim data are written, and listener is told: OK;
 * NO_NODE: the claim has ended; UNKNOWN: another session may count the lease;
 * CHANGED: the data are no gateway's; else ZooKeeper refuses, and what the data
 * do not have does not count.
 */
ngx_int_t zkl_claim_hold(zkl_claim_t *claim, ngx_uint_t less,
    zkl_listener_t *listener);
ngx_int_t zkl_claim_told(zkl_claim_t *claim, zkl_listener_t *listener);

/* How many holds a claim has. */
ngx_uint_t zkl_claim_holds(zkl_claim_t *claim);

/* This worker's claim with that id on that path (NULL: any path), or NULL. */
zkl_claim_t *zkl_claim_find(zkl_worker_t *worker, const zkl_id_t *id,
    ngx_str_t *path);

/* The id in the name of the claim's znode. */
zkl_id_t zkl_claim_id(zkl_claim_t *claim);

/* The name of the claim's znode in that mode; buf has ZKL_CLAIM_MAX bytes. */
ngx_str_t zkl_claim_name(zkl_claim_t *claim, zkl_mode_t mode, u_char *buf);

/* czxid * 256 + index: grows with every grant of a lock. */
int64_t zkl_fencing_token(int64_t czxid, ngx_uint_t index);


/*
 * The claim child of the lock at path is a lease of the gate, with that claim
 * data, as op has read since the session owns the gate: this worker counts the
 * lease from now on.  NGX_AGAIN: the worker's claim is of another gate so far;
 * NGX_BUSY: the zone is full; NGX_DECLINED: this worker uses the lock in the
 * other layout; NGX_ERROR: no memory.
 */
ngx_int_t zkl_claim_inherit(zkl_worker_t *worker, ngx_str_t *path,
    zkl_child_t *child, ngx_str_t *cdata, zkl_gate_t *gate, zkl_op_t *op);

/*
 * Makes a claim of a record in an adopted slot.  The claim becomes durable, and
 * keeps the deadline; ending: the claim is deleted.  zkl_adopt_settled() is
 * called when the claim does not depend on the adopted session any more, never
 * from inside.  NGX_BUSY: a claim of this worker has that znode; else as of
 * zkl_claim_inherit().
 */
ngx_int_t zkl_claim_adopt(zkl_worker_t *worker, ngx_str_t *path,
    zkl_record_t *record, ngx_uint_t ending, zkl_adoption_t *adoption);

/*
 * Frees the claim; the record, the znode and the entry stay, for the next
 * worker that adopts the slot.
 */
void zkl_claim_forget(zkl_claim_t *claim);


/* Refuses all claims of the lock that are not in the queue so far. */
void zkl_lock_refuse(zkl_lock_t *lock, zkl_outcome_e outcome);


/* for the lock */

zkl_claim_t *zkl_claim_of(zkl_entry_t *entry);
/* A list shows the claim: tells the view what the claim's state is. */
void zkl_claim_observed(zkl_claim_t *claim, zkl_observed_t *observed);
/* The view says that the claim is next; NGX_AGAIN: not yet. */
ngx_int_t zkl_claim_grant(zkl_claim_t *claim);
/*
 * The view says that the lock is used in another way.  NGX_OK: the claim is
 * withdrawn; NGX_AGAIN: the claim stays, because the conflict does not matter
 * for the claim, or not yet.
 */
ngx_int_t zkl_claim_conflict(zkl_claim_t *claim);
/* The lock's znode exists: the claim can be created. */
void zkl_claim_start(zkl_claim_t *claim);
/* The lock cannot be had: tells the outcome, and ends the claim. */
void zkl_claim_refuse(zkl_claim_t *claim, zkl_outcome_e outcome);
/* A list was merged into the view: updates, or ends, the claim. */
void zkl_claim_listed(zkl_claim_t *claim);
/*
 * Does what no event has done, and sends what the state asks for, unless that
 * is under way: once a second, and when ZooKeeper answers again.
 */
void zkl_claim_proceed(zkl_claim_t *claim);

/* The znode's watch fired: the data were written, or the znode deleted. */
void zkl_claim_changed(zkl_claim_t *claim, ngx_uint_t deleted);
/* Reads the data of a held claim: another gateway may have written to them. */
void zkl_claim_bumped(zkl_claim_t *claim);

/*
 * The ACL does not let the lock's claims be listed, so the worker cannot know
 * when the claim is next: withdraws the claim with DENIED, unless the client
 * was told that the claim waits.
 */
void zkl_claim_unlisted(zkl_claim_t *claim);
/*
 * As soon as the worker is sure of the queue: ends the claim if the wait is
 * over, the queue too long, or the lock used in another way; else tells an
 * async or a listening client that the claim waits.
 */
void zkl_claim_resolve(zkl_claim_t *claim);
/* Whether the wait of the claim is over. */
ngx_uint_t zkl_claim_expired(zkl_claim_t *claim);


/* for the worker */

/* ZooKeeper does not answer: warns the client of a bound claim that is held. */
void zkl_claim_suspended(zkl_claim_t *claim);
/* ZooKeeper answers again: tells a client that was warned. */
void zkl_claim_sure(zkl_claim_t *claim);
/* The session is over: the claim queues again, goes to TAKE, or ends. */
void zkl_claim_session_over(zkl_claim_t *claim);

/* for the custody */

/* Leases can become durable; or this session counts the leases of the gate. */
void zkl_claim_gated(zkl_claim_t *claim);
/* This session does not count the leases of the gate any more. */
void zkl_claim_ungated(zkl_claim_t *claim);
/* The claim data, as this gateway knows them without a read. */
void zkl_claim_cdata(zkl_claim_t *claim, zkl_claim_data_t *cdata);
/* Another session counts the lease: the claim is another gateway's. */
void zkl_claim_forsake(zkl_claim_t *claim);


/* for the worker */

/* The worker leaves: tells the client; 0: no client waits or listens. */
ngx_uint_t zkl_claim_shut(zkl_claim_t *claim);
/* The worker leaves for good: ends the claim, unless the claim is held. */
void zkl_claim_over(zkl_claim_t *claim);
/* The process leaves: frees the claim. */
void zkl_claim_discard(zkl_claim_t *claim);


/* for the worker and the one-node layout */

/* Makes a held claim durable; the sweep retries if that is not possible now. */
void zkl_claim_durable(zkl_claim_t *claim);

void zkl_claim_state(zkl_claim_t *claim, zkl_claim_state_e state);
void zkl_claim_create(zkl_claim_t *claim);
void zkl_claim_done(zkl_claim_t *claim);
void zkl_claim_tell(zkl_claim_t *claim, zkl_event_e event, const char *reason);


#endif /* _ZKL_CLAIM_H_INCLUDED_ */
