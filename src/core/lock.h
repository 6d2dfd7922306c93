
/*
 * A lock, as one worker sees it: the view, and the reads that keep it true.
 *
 * A lock object exists while the worker has claims on it or operations for it
 * under way, and afterwards as long as a watch on its znode keeps its view.
 */


#ifndef _ZKL_LOCK_H_INCLUDED_
#define _ZKL_LOCK_H_INCLUDED_


#include "core/worker.h"
#include "base/view.h"


struct zkl_lock_s {
    ngx_str_node_t                     sn;      /* the path */
    ngx_queue_t                        queue;   /* active or idle */
    zkl_worker_t                      *worker;

    zkl_view_t                         view;
    ngx_queue_t                        claims;  /* this worker's; those that
                                                   are held come before those
                                                   that wait */
    ngx_uint_t                         nclaims;
    ngx_uint_t                         nkeen;   /* of them */
    ngx_uint_t                         nrenumbered; /* of them: their record is
                                                   not that in their name */
    ngx_uint_t                         pins;    /* operations and calls */

    ngx_uint_t                         watching;    /* watches under way */
    zkl_op_t                          *list;    /* under way; else NULL */
    zkl_claim_t                       *converting;  /* becomes durable; or
                                                       NULL */
    zkl_op_t                          *guard;   /* under way; else NULL */
    zkl_op_t                          *verify;  /* under way; else NULL */
    uint64_t                           mark;    /* of list */

    int64_t                            born;    /* a zxid when the znode was
                                                   there already; 0: unknown */
    int64_t                            guarded; /* of a claim that was there
                                                   when guard was sent */
    int64_t                            handled; /* the last change of the znode
                                                   that a list was behind */
    ngx_event_t                        soon;    /* a timer: a sibling may
                                                   publish a claim until then,
                                                   and rings this: */
    zkl_subscription_t                 gap;
    int64_t                            missing; /* the last seq that was
                                                   waited for like this */

    size_t                             making;  /* length of the parent that
                                                   is being made; 0: none */

    unsigned                           known:1; /* the znode exists */
    unsigned                           advancing:1;
    unsigned                           again:1;
    unsigned                           settle:1;    /* a claim waits for the
                                                       view to be sure */
    unsigned                           settling:1;
    unsigned                           vanished:1;  /* a claim did */
    unsigned                           touched:1;   /* another gateway did,
                                                       whose release counts
                                                       before any grant, and
                                                       any refusal */
    unsigned                           stale:1;     /* list was sent before
                                                       the guard */
    unsigned                           doubtful:1;  /* the next to be granted
                                                       is looked at first */
    unsigned                           partial:1;   /* claims of ours are not
                                                       in the view */
    unsigned                           mixed:1;     /* the last list had claims
                                                       of no sibling */

    unsigned                           node:1;      /* it is one znode; then: */
    unsigned                           waits:1;     /* for the znode's end */
    unsigned                           blind:1;     /* without a watch */
    unsigned                           ahead:1;     /* the bell is of one that
                                                       has the lock, or is
                                                       next */

    zkl_subscription_t                 bell;        /* of who is before */
    ngx_event_t                        later;       /* those whose wait is over
                                                       are to be told */
};


/* a claim of somebody else in the view */

typedef struct {
    zkl_entry_t                        entry;   /* must be first */
    zkl_lock_t                        *lock;
    zkl_op_t                          *watch;   /* under way; else NULL */
    zkl_subscription_t                 bell;    /* of a sibling */
    zkl_id_t                           id;      /* of a sibling */
    ngx_str_t                          name;    /* of a foreign one */
} zkl_other_t;


/* The lock at path, made if it is not there; NULL if there is no memory. */
zkl_lock_t *zkl_lock_get(zkl_worker_t *worker, ngx_str_t *path);

/* The lock at path, or NULL. */
zkl_lock_t *zkl_lock_find(zkl_worker_t *worker, ngx_str_t *path);

/* A claim joins or leaves; the lock may be freed when the last one left. */
void zkl_lock_join(zkl_lock_t *lock, zkl_claim_t *claim);
void zkl_lock_leave(zkl_lock_t *lock, zkl_claim_t *claim);

/* A claim waits now, or is held: all that are held come before those. */
void zkl_lock_order(zkl_lock_t *lock, zkl_claim_t *claim);

/*
 * Says whether a lock that is pinned is one znode.  NGX_DECLINED: it has claims
 * of the other layout.
 */
ngx_int_t zkl_lock_layout(zkl_lock_t *lock, ngx_uint_t node);

/* Keeps a lock from being freed; unpin may free it. */
void zkl_lock_pin(zkl_lock_t *lock);
void zkl_lock_unpin(zkl_lock_t *lock);

/* A claim was created: it is in the view now, and the lock is guarded. */
void zkl_lock_created(zkl_lock_t *lock, zkl_entry_t *entry, int64_t czxid);

/*
 * Whether so many claims are in line that nobody's turn waits for ZooKeeper to
 * make one more of that kind, or to remove entry, which it watches for nobody,
 * as far as is known: the next in line is this gateway's.  entry is NULL if one
 * is to be made.
 */
ngx_uint_t zkl_lock_crowded(zkl_lock_t *lock, zkl_kind_t kind,
    zkl_entry_t *entry);

/*
 * Siblings that nobody has watched, and that have ended meanwhile, leave the
 * view: for who is told his position.
 */
void zkl_lock_prune(zkl_lock_t *lock);

/* A claim is gone, or its delete was decided. */
void zkl_lock_removed(zkl_lock_t *lock, zkl_entry_t *entry);

/* Grants what can be granted, and asks for what is to be known for more. */
void zkl_lock_advance(zkl_lock_t *lock);

/* Makes the lock's znode and its parents; its claims are told. */
void zkl_lock_make(zkl_lock_t *lock);

/* Lists the lock's claims, unless that is under way. */
void zkl_lock_list(zkl_lock_t *lock);

/* Whether what is known of the claims ahead is about to change. */
ngx_uint_t zkl_lock_unsure(zkl_lock_t *lock);

/* Whether a claim surely came to a lock that is used in another way. */
ngx_uint_t zkl_lock_conflicts(zkl_lock_t *lock, zkl_entry_t *entry);

/*
 * Sees to it that this is known soon of a claim that has come: lock->settle
 * tells.
 */
void zkl_lock_look_first(zkl_lock_t *lock, zkl_entry_t *entry);

/* The connection broke: nothing is known any more. */
void zkl_lock_forget(zkl_lock_t *lock);

/* A watch fired, on the lock's znode or on a claim of it. */
void zkl_lock_changed(zkl_lock_t *lock, ngx_uint_t deleted);
void zkl_lock_claim_changed(zkl_lock_t *lock, ngx_str_t *name,
    ngx_uint_t deleted);

/* Those who wait are refused; returns how many. */
ngx_uint_t zkl_lock_shut(zkl_lock_t *lock);

/*
 * Whether a claim of it is held, or may be: its lease may have been renewed, or
 * another gateway may have told that it is held.  Without durable: whether such
 * a claim needs its session.
 */
ngx_uint_t zkl_lock_holds(zkl_lock_t *lock, ngx_uint_t durable);

/*
 * The znode's name of a claim in the view: a part of the entry, or written to
 * buf (ZKL_CLAIM_MAX).
 */
void zkl_lock_name(zkl_entry_t *entry, ngx_str_t *name, u_char *buf);

/* The process leaves: frees the lock and its claims. */
void zkl_lock_discard(zkl_lock_t *lock);

/* The slow net below the doorbell. */
void zkl_lock_sweep(zkl_lock_t *lock);


/*
 * Among the files of the lock (lock, advance, guard, others, complete, make).
 */


/* Calls tell for each claim; it may free the claim that it is called for. */
void zkl_lock_tell(zkl_lock_t *lock, void (*tell)(zkl_claim_t *claim));

void zkl_lock_guard_again(zkl_lock_t *lock);


#endif /* _ZKL_LOCK_H_INCLUDED_ */
