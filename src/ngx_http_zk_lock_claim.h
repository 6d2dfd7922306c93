
/*
 * A claim: one request for a lock, from its acquire to its end.  No HTTP.
 */


#ifndef _NGX_HTTP_ZK_LOCK_CLAIM_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_CLAIM_H_INCLUDED_


#include "ngx_http_zk_lock_lock.h"


/*
 * Beside each state: whether the znode exists, and whether a delete is owed.
 */

typedef enum {
    NGX_HTTP_ZK_LOCK_START = 0,     /* no; waits for its lock's znode or for
                                       the connection */
    NGX_HTTP_ZK_LOCK_CREATE,        /* maybe; the create is under way */
    NGX_HTTP_ZK_LOCK_RECOVER,       /* maybe; the answer was lost */
    NGX_HTTP_ZK_LOCK_WAIT,          /* yes; in the view, others are ahead */
    NGX_HTTP_ZK_LOCK_HELD,          /* yes; granted, under a lease */
    NGX_HTTP_ZK_LOCK_LAPSE,         /* maybe; the lease is over, and it is
                                       deleted unless another gateway has
                                       renewed it */
    NGX_HTTP_ZK_LOCK_DELETE,        /* maybe; the delete is under way */
    NGX_HTTP_ZK_LOCK_OWED,          /* maybe; a delete is owed, when it can be
                                       sent */
    NGX_HTTP_ZK_LOCK_DONE           /* no */
} ngx_http_zk_lock_claim_state_e;


/* how an acquire ended, for who waits; all but GRANTED hold nothing */

typedef enum {
    NGX_HTTP_ZK_LOCK_GRANTED = 0,
    NGX_HTTP_ZK_LOCK_TAKEN,         /* the wait is over */
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
 * Tells who waits, once.  With any outcome but GRANTED the claim must not be
 * used any more; with GRANTED it is there until it is released or ends by
 * itself, so keep the token, not the pointer.
 */
typedef void (*ngx_http_zk_lock_claim_pt)(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_outcome_e outcome);

/* tells a call that ends a claim that it is gone; lapsed: it was before */
typedef void (*ngx_http_zk_lock_gone_pt)(void *data, ngx_uint_t lapsed);


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
    void                              *data;

    ngx_event_t                        timer;       /* wait, then lease */
    ngx_msec_t                         started;
    ngx_msec_t                         deadline;    /* of the wait */
    ngx_msec_t                         granted;     /* when; of HELD */
    ngx_msec_t                         lease;       /* as it was seen last */
    ngx_msec_t                         ttl;

    zk_lock_id_t                       id;
    int64_t                            czxid;       /* 0: not known yet */
    ngx_uint_t                         index;
    ngx_uint_t                         max_queue;

    uint16_t                           index_at;    /* in label */
    uint16_t                           label_len;
    uint16_t                           tries;

    unsigned                           settled:1;   /* not in unsettled */
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

    u_char                             label[1];
};


typedef struct {
    ngx_str_t                          path;        /* of the lock */
    zk_lock_kind_e                     kind;
    ngx_msec_t                         wait;
    ngx_msec_t                         ttl;
    ngx_uint_t                         max_queue;
    const zk_lock_label_t             *label;

    ngx_http_zk_lock_claim_pt          handler;
    void                              *data;
} ngx_http_zk_lock_acquire_t;


/*
 * Acquires.  The handler is called later, never from inside.  Returns NULL
 * with *outcome if it is refused at once; then the handler is not called.
 */
ngx_http_zk_lock_claim_t *ngx_http_zk_lock_claim_acquire(
    ngx_http_zk_lock_worker_t *worker, ngx_http_zk_lock_acquire_t *acquire,
    ngx_http_zk_lock_outcome_e *outcome);

/* Who waited has left: the claim is removed, and nobody is told. */
void ngx_http_zk_lock_claim_abandon(ngx_http_zk_lock_claim_t *claim);

/*
 * Ends a claim that waits or is held; mourner, if not NULL, is told when it
 * is gone, or never if its handler was set to NULL.
 */
void ngx_http_zk_lock_claim_release(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_mourner_t *mourner);

/* This worker's claim with that id on that path, or NULL. */
ngx_http_zk_lock_claim_t *ngx_http_zk_lock_claim_find(
    ngx_http_zk_lock_worker_t *worker, const zk_lock_id_t *id,
    ngx_str_t *path);

/* czxid * 256 + index: grows with every grant of a lock. */
int64_t ngx_http_zk_lock_fencing_token(int64_t czxid, ngx_uint_t index);


/* for the lock */

ngx_http_zk_lock_claim_t *ngx_http_zk_lock_claim_of(zk_lock_entry_t *entry);
/* The view says that it is its turn; NGX_AGAIN: not yet, advance later. */
ngx_int_t ngx_http_zk_lock_claim_grant(ngx_http_zk_lock_claim_t *claim);
/* The lock's znode is there: creates can be sent. */
void ngx_http_zk_lock_claim_start(ngx_http_zk_lock_claim_t *claim);
/* It cannot be had: outcome. */
void ngx_http_zk_lock_claim_refuse(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome);
/* A list was merged: what it means for this claim.  May free it. */
void ngx_http_zk_lock_claim_listed(ngx_http_zk_lock_claim_t *claim);
/* A holder of some time is watched. */
void ngx_http_zk_lock_claim_sweep(ngx_http_zk_lock_claim_t *claim);
/* Its watch fired: another gateway has renewed it, or somebody deleted it. */
void ngx_http_zk_lock_claim_changed(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t deleted);
/* If its wait is over or the queue too long, and all is known, it ends. */
void ngx_http_zk_lock_claim_settle(ngx_http_zk_lock_claim_t *claim);


/* for the worker */

void ngx_http_zk_lock_claim_connected(ngx_http_zk_lock_claim_t *claim);
void ngx_http_zk_lock_claim_unreachable(ngx_http_zk_lock_claim_t *claim);
void ngx_http_zk_lock_claim_lost(ngx_http_zk_lock_claim_t *claim);
/* Somebody changed the claim's record. */
void ngx_http_zk_lock_claim_rung(ngx_http_zk_lock_claim_t *claim);
/* The worker leaves: returns 1 if somebody waited, who is refused. */
ngx_uint_t ngx_http_zk_lock_claim_shut(ngx_http_zk_lock_claim_t *claim);
/* The process leaves: frees it. */
void ngx_http_zk_lock_claim_discard(ngx_http_zk_lock_claim_t *claim);


#endif /* _NGX_HTTP_ZK_LOCK_CLAIM_H_INCLUDED_ */
