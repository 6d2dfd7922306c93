
/*
 * A claim: one request for a lock, from its acquire to its end.  No HTTP.
 */


#ifndef _NGX_HTTP_ZK_LOCK_CLAIM_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_CLAIM_H_INCLUDED_


#include "ngx_http_zk_lock_lock.h"


/* the place of a claim in the line of those who wait */
#define ngx_http_zk_lock_place(ahead, holders)                                \
    ((ahead) > (holders) ? (ngx_uint_t) ((ahead) - (holders)) : 0)

/* the lease of a claim that has none */
#define NGX_HTTP_ZK_LOCK_NO_LEASE     ((ngx_msec_t) ZK_LOCK_DURATION_MAX)


/*
 * Beside each state: whether the znode exists, and whether a delete is owed.
 */

typedef enum {
    NGX_HTTP_ZK_LOCK_START = 0,     /* no; waits for its lock's znode, for the
                                       connection or, if the lock is one znode,
                                       for its turn to make it */
    NGX_HTTP_ZK_LOCK_CREATE,        /* maybe; the create is under way */
    NGX_HTTP_ZK_LOCK_RECOVER,       /* maybe; the answer was lost */
    NGX_HTTP_ZK_LOCK_WAIT,          /* yes; in the view, others are ahead */
    NGX_HTTP_ZK_LOCK_HELD,          /* yes; granted, under a lease */
    NGX_HTTP_ZK_LOCK_LAPSE,         /* maybe; the lease is over, or nobody has
                                       asked for it, and it is deleted unless
                                       another gateway has renewed it */
    NGX_HTTP_ZK_LOCK_TAKE,          /* maybe; durable, and another session may
                                       count its lease: that is to be ours */
    NGX_HTTP_ZK_LOCK_DELETE,        /* maybe; the delete is under way */
    NGX_HTTP_ZK_LOCK_OWED,          /* maybe; a delete is owed, when it can be
                                       sent */
    NGX_HTTP_ZK_LOCK_DONE           /* no */
} ngx_http_zk_lock_claim_state_e;


/* how an acquire ended, for who waits; all but GRANTED hold nothing */

typedef enum {
    NGX_HTTP_ZK_LOCK_GRANTED = 0,
    NGX_HTTP_ZK_LOCK_QUEUED,        /* of an async one: it waits by itself */
    NGX_HTTP_ZK_LOCK_TWIN,          /* its key has a claim: claim->twin */
    NGX_HTTP_ZK_LOCK_TAKEN,         /* the wait is over */
    NGX_HTTP_ZK_LOCK_CONFLICT,      /* the lock is used in another way */
    NGX_HTTP_ZK_LOCK_LAYOUT,        /* its znode is of the other layout */
    NGX_HTTP_ZK_LOCK_FULL,          /* the queue is too long */
    NGX_HTTP_ZK_LOCK_UNREACHABLE,   /* ZooKeeper does not answer */
    NGX_HTTP_ZK_LOCK_NO_ROOM,       /* the zone or the session is full */
    NGX_HTTP_ZK_LOCK_WORN_OUT,      /* the lock's counter sticks */
    NGX_HTTP_ZK_LOCK_DENIED,        /* by ZooKeeper's ACL */
    NGX_HTTP_ZK_LOCK_CANCELLED,     /* by somebody with its token */
    NGX_HTTP_ZK_LOCK_SHUT,          /* the worker leaves */
    NGX_HTTP_ZK_LOCK_FAILED         /* no memory, or refused; was logged */
} ngx_http_zk_lock_outcome_e;


/*
 * Tells who waits, once.  With any outcome but GRANTED and QUEUED the claim
 * must not be used any more; with these it is there until it is released or
 * ends by itself, so keep the token, not the pointer; unless there is an event
 * handler, which tells when the claim is gone.
 */
typedef void (*ngx_http_zk_lock_claim_pt)(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_outcome_e outcome);

/* what happens to a claim whose end somebody wants to hear of */

typedef enum {
    NGX_HTTP_ZK_LOCK_EVENT_WAITS = 0,   /* it is in the line; before it is
                                           held, and again when it moves */
    NGX_HTTP_ZK_LOCK_EVENT_REVOKE,      /* the holder is asked to let go */
    NGX_HTTP_ZK_LOCK_EVENT_ENDING,      /* it will be lost, unless it is
                                           renewed or ZooKeeper answers */
    NGX_HTTP_ZK_LOCK_EVENT_SURE,        /* ZooKeeper does */
    NGX_HTTP_ZK_LOCK_EVENT_LOST         /* the last one: it is not held */
} ngx_http_zk_lock_event_e;

/*
 * Tells of a claim that is bound: WAITS before its handler was called, the
 * others after it was told GRANTED.  reason is of ENDING ("lease",
 * "zookeeper") and LOST ("lease", "released", "deleted", "session",
 * "shutdown"); else NULL.  After LOST the claim must not be used.
 */
typedef void (*ngx_http_zk_lock_event_pt)(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_event_e event,
    const char *reason);

/*
 * Tells a call that ends a claim: OK if it is gone, NO_NODE if it was before;
 * any other if ZooKeeper refuses to delete it, which is tried again.
 */
typedef void (*ngx_http_zk_lock_gone_pt)(void *data, ngx_http_zk_lock_rc_e rc);


/* who waits for a claim to be gone */

typedef struct {
    ngx_queue_t                        queue;
    ngx_http_zk_lock_gone_pt           handler;     /* NULL: left */
    void                              *data;
} ngx_http_zk_lock_mourner_t;


struct ngx_http_zk_lock_claim_s {
    zk_lock_entry_t                    entry;       /* must be first */
    ngx_queue_t                        queue;       /* lock->claims */
    ngx_queue_t                        unsettled;   /* worker->unsettled */
    ngx_queue_t                        mourners;
    ngx_http_zk_lock_lock_t           *lock;

    ngx_http_zk_lock_claim_state_e     state;
    ngx_http_zk_lock_outcome_e         outcome;     /* of DELETE and OWED */

    ngx_http_zk_lock_op_t             *op;          /* under way, or NULL */
    ngx_http_zk_lock_claim_pt          handler;     /* NULL: nobody waits */
    ngx_http_zk_lock_event_pt          event;       /* of a bound one, or NULL:
                                                       nobody listens */
    void                              *data;

    ngx_http_zk_lock_share_t          *share;       /* it is about to be shared;
                                                       else NULL */

    ngx_event_t                        timer;       /* wait, then lease */
    ngx_msec_t                         started;
    ngx_msec_t                         deadline;    /* of the wait, if it is
                                                       limited */
    ngx_msec_t                         patience;    /* until when an answer of
                                                       ZooKeeper is waited for
                                                       at most */
    ngx_msec_t                         grace;       /* how long it stays while
                                                       nobody waits for it; 0:
                                                       not at all */
    ngx_msec_t                         granted;     /* when; of HELD */
    ngx_msec_t                         lease;       /* as it was seen last */
    ngx_msec_t                         ttl;
    ngx_http_zk_lock_said_t            said;        /* by its znode's data */

    zk_lock_id_t                       id;          /* its record */
    uint32_t                           named;       /* the record in its
                                                       znode's name */
    u_char                             gate[NGX_HTTP_ZK_LOCK_GATE_LEN];
                                                    /* of the session that
                                                       counts its lease, once
                                                       it is durable */
    int64_t                            czxid;       /* 0: not known yet */
    ngx_uint_t                         index;
    ngx_uint_t                         max_queue;

    uint16_t                           index_at;    /* in label */
    uint16_t                           label_len;
    uint16_t                           tries;

    unsigned                           settled:1;   /* not in unsettled */
    unsigned                           pressing:1;  /* in npressing */
    unsigned                           refused:1;   /* ZooKeeper does not let
                                                       it be deleted */
    unsigned                           expired:1;   /* the wait is over */
    unsigned                           counting:1;  /* the queue may be full */
    unsigned                           requeued:1;  /* lost its place */
    unsigned                           watched:1;   /* its znode is */
    unsigned                           doubtful:1;  /* a delete may have
                                                       happened */
    unsigned                           lapsed:1;    /* it was over, or gone,
                                                       before its release */
    unsigned                           vanished:1;  /* somebody else deleted
                                                       its znode */

    unsigned                           limited:1;   /* its wait is */
    unsigned                           once:1;      /* it tries once, and waits
                                                       for ZooKeeper only */
    unsigned                           keen:1;      /* the sweep looks at it
                                                       while it waits */
    unsigned                           keyed:1;     /* it may have a twin */
    unsigned                           single:1;    /* it has none */
    unsigned                           async:1;     /* QUEUED is an answer */
    unsigned                           alone:1;     /* nobody waits, but may
                                                       come and ask */
    unsigned                           seen:1;      /* before it was granted
                                                       here, another gateway
                                                       told that it is held */
    unsigned                           bound:1;     /* goes with its worker */
    unsigned                           leased:1;    /* a bound one is, too */
    unsigned                           told:1;      /* that it waits */
    unsigned                           warned:1;    /* that it will be lost */
    unsigned                           unsure:1;    /* that ZooKeeper does not
                                                       answer */
    unsigned                           reminded:1;  /* of its grant */
    unsigned                           revoked:1;   /* the holder was asked */
    unsigned                           changed:1;   /* its znode may be */
    unsigned                           ending:1;    /* when it is shared */
    unsigned                           offered:1;   /* its record says that it
                                                       waits, in START */
    unsigned                           contends:1;  /* and that it contends */
    unsigned                           looked:1;    /* its znode is known to be
                                                       its own */
    unsigned                           durable:1;
    unsigned                           urgent:1;    /* who waits is told when it
                                                       is durable */
    unsigned                           fleeting:1;  /* in nfleeting */
    unsigned                           unshared:1;  /* its znode is perhaps not
                                                       that of a reader */
    unsigned                           unfit:1; /* to become durable */
    unsigned                           elsewhere:1; /* another session counts
                                                       its lease */
    unsigned                           anew:1;      /* its lease counts from
                                                       when it is taken */

    zk_lock_child_t                    twin;        /* of the outcome TWIN */
    ngx_uint_t                         place;       /* how many ahead wait, as
                                                       they were counted last;
                                                       0: it is next */
    ngx_uint_t                         position;    /* as it was told last */
    ngx_uint_t                         holds;       /* as it was counted last */

    u_char                             label[1];
};


typedef struct {
    ngx_str_t                          path;        /* of the lock */
    zk_lock_kind_t                     kind;
    ngx_msec_t                         wait;        /* for the lock, and for
                                                       ZooKeeper as long */
    ngx_msec_t                         timeout;     /* for ZooKeeper, if it
                                                       does not wait; and for
                                                       an answer that is late
                                                       at the end of the wait */
    ngx_msec_t                         ttl;
    ngx_uint_t                         max_queue;
    const zk_lock_label_t             *label;

    /*
     * once:    it does not wait for the lock, though wait may not be 0
     * key:     what the random part of the claim's id begins with
     *          (NGX_HTTP_ZK_LOCK_KEY bytes), of which the lock has only one
     *          claim; NULL: none
     * grace:   how long the claim stays while nobody waits or asks for it,
     *          waiting, or granted and not told; for those with a key, and
     *          async ones; 0: it ends when who waits leaves
     * async:   who waits is told QUEUED as soon as it is known that there is
     *          to be waited
     * forever: the wait has no end
     * bound:   the claim ends with its worker and, unless leased, has no lease
     * durable: who waits is told of the grant when it outlives this gateway
     * leader:  another bound claim, which when it is begun frees this one, too
     * event:   tells of a bound claim; data is the handler's
     */
    const uint8_t                     *key;
    ngx_msec_t                         grace;
    unsigned                           once:1;
    unsigned                           async:1;
    unsigned                           forever:1;
    unsigned                           bound:1;
    unsigned                           leased:1;
    unsigned                           durable:1;
    ngx_http_zk_lock_claim_t          *leader;

    ngx_http_zk_lock_claim_pt          handler;
    ngx_http_zk_lock_event_pt          event;
    void                              *data;
} ngx_http_zk_lock_acquire_t;


/*
 * Acquires.  The handler is called later, never from inside.  Returns NULL
 * with *outcome if it is refused at once; then the handler is not called.
 */
ngx_http_zk_lock_claim_t *ngx_http_zk_lock_claim_acquire(
    ngx_http_zk_lock_worker_t *worker, ngx_http_zk_lock_acquire_t *acquire,
    ngx_http_zk_lock_outcome_e *outcome);

/*
 * Who waited has left, or who listened: the claim is removed, and nobody is
 * told; or it stays for its grace, if it has one.
 */
void ngx_http_zk_lock_claim_abandon(ngx_http_zk_lock_claim_t *claim);

/*
 * Ends a claim that waits or is held; mourner, if not NULL, is told when it
 * is gone, or cannot be removed, or never if its handler was set to NULL.
 */
void ngx_http_zk_lock_claim_release(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_mourner_t *mourner);

/* Its grant was not told after all: released, or kept for its grace. */
void ngx_http_zk_lock_claim_unseen(ngx_http_zk_lock_claim_t *claim);

/*
 * Bound claims that are held begin their leases, all at once, and go with
 * their worker no more; the first is the leader of the others.  Nobody is told
 * of them any more.
 */
void ngx_http_zk_lock_claim_begin(ngx_http_zk_lock_claim_t **claims,
    ngx_uint_t n);

/* A held claim that has the lock alone shares it from now on. */
void ngx_http_zk_lock_claim_share(ngx_http_zk_lock_claim_t *claim);

/* This worker's claim with that id on that path, or NULL. */
ngx_http_zk_lock_claim_t *ngx_http_zk_lock_claim_find(
    ngx_http_zk_lock_worker_t *worker, const zk_lock_id_t *id,
    ngx_str_t *path);

/* The id in its znode's name. */
zk_lock_id_t ngx_http_zk_lock_claim_id(ngx_http_zk_lock_claim_t *claim);

/* czxid * 256 + index: grows with every grant of a lock. */
int64_t ngx_http_zk_lock_fencing_token(int64_t czxid, ngx_uint_t index);


/*
 * Takes the durable claim child of the lock at path over, whose data a GET has
 * read: they name a session that is over.  Returns NGX_OK, also if the claim is
 * this worker's already; NGX_BUSY if the zone is full; NGX_ERROR if there is no
 * memory, or the lock is used here in the other layout.
 */
ngx_int_t ngx_http_zk_lock_claim_inherit(ngx_http_zk_lock_worker_t *worker,
    ngx_str_t *path, zk_lock_child_t *child, ngx_http_zk_lock_op_t *get);

/*
 * The same of a claim whose record is in a slot that was adopted: its lease
 * goes on with the deadline that it has there, and the record moves to this
 * worker.  record->was is the kind in its znode's name, if get has read that;
 * get may be NULL.  ending: its znode is deleted, if it is durable, whatever
 * session counts its lease.  NGX_BUSY: a claim of this worker is that znode.
 */
ngx_int_t ngx_http_zk_lock_claim_move(ngx_http_zk_lock_worker_t *worker,
    ngx_str_t *path, ngx_http_zk_lock_record_t *record,
    ngx_http_zk_lock_op_t *get, ngx_uint_t ending);

/* Whether a claim is still to be taken over that names that gate. */
ngx_uint_t ngx_http_zk_lock_claim_untaken(ngx_http_zk_lock_worker_t *worker,
    const u_char *gate);


/* Of a lock: all that are not in its line so far are refused. */
void ngx_http_zk_lock_lock_refuse(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_outcome_e outcome);


/* for the lock */

ngx_http_zk_lock_claim_t *ngx_http_zk_lock_claim_of(zk_lock_entry_t *entry);
/* A list shows it: says what the view is to make of that. */
void ngx_http_zk_lock_claim_sighted(ngx_http_zk_lock_claim_t *claim,
    zk_lock_sighting_t *sighting);
/* The view says that it is its turn; NGX_AGAIN: not yet, advance later. */
ngx_int_t ngx_http_zk_lock_claim_grant(ngx_http_zk_lock_claim_t *claim);
/*
 * The view says that the lock is used in another way.  NGX_OK: it is withdrawn;
 * NGX_AGAIN: that does not count for it, or not yet.
 */
ngx_int_t ngx_http_zk_lock_claim_conflict(ngx_http_zk_lock_claim_t *claim);
/* The lock's znode is there: creates can be sent. */
void ngx_http_zk_lock_claim_start(ngx_http_zk_lock_claim_t *claim);
/* It cannot be had: outcome. */
void ngx_http_zk_lock_claim_refuse(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome);
/* A list was merged: what it means for this claim.  May free it. */
void ngx_http_zk_lock_claim_listed(ngx_http_zk_lock_claim_t *claim);
/* What is seen to once a second. */
void ngx_http_zk_lock_claim_sweep(ngx_http_zk_lock_claim_t *claim);

/* One that is held is made durable: after a while, on request, at an end. */
ngx_uint_t ngx_http_zk_lock_claim_lasts(ngx_http_zk_lock_claim_t *claim);
/* Its watch fired: another gateway has renewed it, or somebody deleted it. */
void ngx_http_zk_lock_claim_changed(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t deleted);
/* Another gateway has something to say of the lock's claims. */
void ngx_http_zk_lock_claim_touched(ngx_http_zk_lock_claim_t *claim);

/*
 * The claims of its lock may not be listed: it will never be known when it is
 * its turn, and who waits for it is told so, unless he was told already that
 * it waits, or, at another gateway, that it is held.
 */
void ngx_http_zk_lock_claim_unlisted(ngx_http_zk_lock_claim_t *claim);
/*
 * If its wait is over, the queue too long, or the lock used in another way, and
 * all is known, it ends.
 */
void ngx_http_zk_lock_claim_settle(ngx_http_zk_lock_claim_t *claim);


/* for the worker */

void ngx_http_zk_lock_claim_suspended(ngx_http_zk_lock_claim_t *claim);
void ngx_http_zk_lock_claim_sure(ngx_http_zk_lock_claim_t *claim);
void ngx_http_zk_lock_claim_connected(ngx_http_zk_lock_claim_t *claim);
void ngx_http_zk_lock_claim_lost(ngx_http_zk_lock_claim_t *claim);
/* Its lock's root is marked: claims can be durable. */
void ngx_http_zk_lock_claim_marked(ngx_http_zk_lock_claim_t *claim);
/* Somebody changed the claim's record. */
void ngx_http_zk_lock_claim_rung(ngx_http_zk_lock_claim_t *claim);
/* The worker leaves: returns 1 if somebody waited, who is refused. */
ngx_uint_t ngx_http_zk_lock_claim_shut(ngx_http_zk_lock_claim_t *claim);
/* The worker leaves for good: refused, unless it is held. */
void ngx_http_zk_lock_claim_over(ngx_http_zk_lock_claim_t *claim);
/* The process leaves: frees it. */
void ngx_http_zk_lock_claim_discard(ngx_http_zk_lock_claim_t *claim);


/*
 * Among the files of a claim: claim has its states and who is told, grant its
 * way to the grant, recover what was lost on that, lease how long it lasts,
 * durable how it outlives its session, reread what others wrote, end its end.
 */

/*
 * Makes a held claim durable, unless that is under way, or cannot be done now:
 * then the sweep tries again.
 */
void ngx_http_zk_lock_claim_durable(ngx_http_zk_lock_claim_t *claim);
/* Whether it is held, under a lease, and its znode is ephemeral. */
ngx_uint_t ngx_http_zk_lock_claim_ephemeral(ngx_http_zk_lock_claim_t *claim);
/*
 * Its session is over.  NGX_OK: it is durable, or may be, and lives on;
 * NGX_DECLINED: it was lost.
 */
ngx_int_t ngx_http_zk_lock_claim_outlives(ngx_http_zk_lock_claim_t *claim);
/* In TAKE: reads the claim, and writes that this session counts its lease. */
void ngx_http_zk_lock_claim_take(ngx_http_zk_lock_claim_t *claim);
/* Whether its data, as they were read, say that another session counts. */
ngx_uint_t ngx_http_zk_lock_claim_taken(ngx_http_zk_lock_claim_t *claim,
    zk_lock_label_t *label);
/* Another session counts its lease: this one does not, until that is over. */
void ngx_http_zk_lock_claim_yield(ngx_http_zk_lock_claim_t *claim);

/* Whether anybody waits for it, or may come and ask. */
ngx_uint_t ngx_http_zk_lock_claim_wanted(ngx_http_zk_lock_claim_t *claim);
/* Whether others may ask for it, here or at another gateway. */
ngx_uint_t ngx_http_zk_lock_claim_known(ngx_http_zk_lock_claim_t *claim);
/* It is in the line: what is to be known of it is asked for, or it ends. */
void ngx_http_zk_lock_claim_queued(ngx_http_zk_lock_claim_t *claim);
/* claim->timer: the wait is over, or a lease, or a grace. */
void ngx_http_zk_lock_claim_timer_handler(ngx_event_t *ev);
/* The lock's znode is not there, or not any more. */
void ngx_http_zk_lock_claim_missing(ngx_http_zk_lock_claim_t *claim);
/* The answer to its create was lost: a list tells whether it happened. */
void ngx_http_zk_lock_claim_recover(ngx_http_zk_lock_claim_t *claim);
/* ZooKeeper has not answered in the time of the request, which ends. */
void ngx_http_zk_lock_claim_unreachable(ngx_http_zk_lock_claim_t *claim);
/* Deletes its znode; gather: that is surely there, and may go with others. */
void ngx_http_zk_lock_claim_delete(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t gather);
/* Another gateway may have written to the claim. */
void ngx_http_zk_lock_claim_reread(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t watch);
void ngx_http_zk_lock_claim_state(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_claim_state_e state);
void ngx_http_zk_lock_claim_create(ngx_http_zk_lock_claim_t *claim);
/* An operation on its znode; the claim's only one.  NULL: no memory. */
ngx_http_zk_lock_op_t *ngx_http_zk_lock_claim_op(
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_op_e type,
    ngx_str_t *value, ngx_http_zk_lock_op_pt handler);
void ngx_http_zk_lock_claim_end(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome);
/*
 * Ends a claim that waits; but one whose token or key others may have, only if
 * no other gateway has told that it is held: by the version of its data.
 */
void ngx_http_zk_lock_claim_withdraw(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome);
/*
 * Who waits for a claim that is held, and could not be told of it so far, is
 * told that; it ends, or stays for its grace if others may ask for it.
 */
void ngx_http_zk_lock_claim_disown(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome);
/* Who waits for such a claim is told that; the claim stays for its grace. */
void ngx_http_zk_lock_claim_leave(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome);
void ngx_http_zk_lock_claim_done(ngx_http_zk_lock_claim_t *claim);
void ngx_http_zk_lock_claim_tell(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_event_e event, const char *reason);
/* The lease, or the grace, is over, unless somebody has renewed it. */
void ngx_http_zk_lock_claim_lease(ngx_http_zk_lock_claim_t *claim);
void ngx_http_zk_lock_claim_lapse(ngx_http_zk_lock_claim_t *claim);
/* Looks whether a claim with a key has a twin, unless that is known. */
void ngx_http_zk_lock_claim_single(ngx_http_zk_lock_claim_t *claim);

/*
 * ZooKeeper does not let its znode be deleted, for as long as nobody changes an
 * ACL, say: who waits is told, and a worker that leaves does not wait for it.
 */
void ngx_http_zk_lock_claim_denied(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_rc_e rc);
/* Nobody waits for it any more: its grace begins. */
void ngx_http_zk_lock_claim_alone(ngx_http_zk_lock_claim_t *claim);
/* Who made a claim with a key has no time left; others may wait with it. */
void ngx_http_zk_lock_claim_part(ngx_http_zk_lock_claim_t *claim);
/* Tells who waits. */
void ngx_http_zk_lock_claim_answer(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome);


#endif /* _NGX_HTTP_ZK_LOCK_CLAIM_H_INCLUDED_ */
