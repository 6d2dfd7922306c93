
/*
 * A lock, as one worker sees it: the view, and the reads that keep it true.
 *
 * A lock object exists while the worker has claims on it or operations for it
 * under way, and afterwards as long as a watch on its znode keeps its view.
 */


#ifndef _NGX_HTTP_ZK_LOCK_LOCK_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_LOCK_H_INCLUDED_


#include "ngx_http_zk_lock_worker.h"
#include "zk_lock_view.h"


struct ngx_http_zk_lock_lock_s {
    ngx_str_node_t                     sn;      /* the path */
    ngx_queue_t                        queue;   /* active or idle */
    ngx_http_zk_lock_worker_t         *worker;

    zk_lock_view_t                     view;
    ngx_queue_t                        claims;  /* this worker's; those that
                                                   are held come before those
                                                   that wait */
    ngx_uint_t                         nclaims;
    ngx_uint_t                         nkeen;   /* of them */
    ngx_uint_t                         nrenumbered; /* of them: their record is
                                                   not that in their name */
    ngx_uint_t                         pins;    /* operations and calls */

    ngx_uint_t                         watching;    /* watches under way */
    ngx_http_zk_lock_op_t             *list;    /* under way; else NULL */
    ngx_http_zk_lock_claim_t          *converting;  /* becomes durable; or
                                                       NULL */
    ngx_http_zk_lock_op_t             *guard;   /* under way; else NULL */
    ngx_http_zk_lock_op_t             *verify;  /* under way; else NULL */
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
    ngx_http_zk_lock_bell_t            gap;
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

    ngx_http_zk_lock_bell_t            bell;        /* of who is before */
    ngx_event_t                        later;       /* those whose wait is over
                                                       are to be told */
};


/* a claim of somebody else in the view */

typedef struct {
    zk_lock_entry_t                    entry;   /* must be first */
    ngx_http_zk_lock_lock_t           *lock;
    ngx_http_zk_lock_op_t             *watch;   /* under way; else NULL */
    ngx_http_zk_lock_bell_t            bell;    /* of a sibling */
    zk_lock_id_t                       id;      /* of a sibling */
    ngx_str_t                          name;    /* of a foreign one */
} ngx_http_zk_lock_other_t;


/* The lock at path, made if it is not there; NULL if there is no memory. */
ngx_http_zk_lock_lock_t *ngx_http_zk_lock_lock_get(
    ngx_http_zk_lock_worker_t *worker, ngx_str_t *path);

/* The lock at path, or NULL. */
ngx_http_zk_lock_lock_t *ngx_http_zk_lock_lock_find(
    ngx_http_zk_lock_worker_t *worker, ngx_str_t *path);

/* A claim joins or leaves; the lock may be freed when the last one left. */
void ngx_http_zk_lock_lock_join(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_claim_t *claim);
void ngx_http_zk_lock_lock_leave(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_claim_t *claim);

/* A claim waits now, or is held: all that are held come before those. */
void ngx_http_zk_lock_lock_order(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_claim_t *claim);

/*
 * Says whether a lock that is pinned is one znode.  NGX_DECLINED: it has claims
 * of the other layout.
 */
ngx_int_t ngx_http_zk_lock_lock_layout(ngx_http_zk_lock_lock_t *lock,
    ngx_uint_t node);

/* Keeps a lock from being freed; unpin may free it. */
void ngx_http_zk_lock_lock_pin(ngx_http_zk_lock_lock_t *lock);
void ngx_http_zk_lock_lock_unpin(ngx_http_zk_lock_lock_t *lock);

/* A claim was created: it is in the view now, and the lock is guarded. */
void ngx_http_zk_lock_lock_created(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *entry, int64_t czxid);

/*
 * Whether so many claims are in line that nobody's turn waits for ZooKeeper to
 * make one more of that kind, or to remove entry, which it watches for nobody,
 * as far as is known: the next in line is this gateway's.  entry is NULL if one
 * is to be made.
 */
ngx_uint_t ngx_http_zk_lock_lock_crowded(ngx_http_zk_lock_lock_t *lock,
    zk_lock_kind_t kind, zk_lock_entry_t *entry);

/*
 * Siblings that nobody has watched, and that have ended meanwhile, leave the
 * view: for who is told his position.
 */
void ngx_http_zk_lock_lock_prune(ngx_http_zk_lock_lock_t *lock);

/* A claim is gone, or its delete was decided. */
void ngx_http_zk_lock_lock_removed(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *entry);

/* Grants what can be granted, and asks for what is to be known for more. */
void ngx_http_zk_lock_lock_advance(ngx_http_zk_lock_lock_t *lock);

/* Makes the lock's znode and its parents; its claims are told. */
void ngx_http_zk_lock_lock_make(ngx_http_zk_lock_lock_t *lock);

/* Lists the lock's claims, unless that is under way. */
void ngx_http_zk_lock_lock_list(ngx_http_zk_lock_lock_t *lock);

/* Whether what is known of the claims ahead is about to change. */
ngx_uint_t ngx_http_zk_lock_lock_unsure(ngx_http_zk_lock_lock_t *lock);

/* Whether a claim surely came to a lock that is used in another way. */
ngx_uint_t ngx_http_zk_lock_lock_conflicts(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *entry);

/*
 * Sees to it that this is known soon of a claim that has come: lock->settle
 * tells.
 */
void ngx_http_zk_lock_lock_look_first(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *entry);

/* The connection broke: nothing is known any more. */
void ngx_http_zk_lock_lock_forget(ngx_http_zk_lock_lock_t *lock);

/* A watch fired, on the lock's znode or on a claim of it. */
void ngx_http_zk_lock_lock_changed(ngx_http_zk_lock_lock_t *lock,
    ngx_uint_t deleted);
void ngx_http_zk_lock_lock_claim_changed(ngx_http_zk_lock_lock_t *lock,
    ngx_str_t *name, ngx_uint_t deleted);

/* Those who wait are refused; returns how many. */
ngx_uint_t ngx_http_zk_lock_lock_shut(ngx_http_zk_lock_lock_t *lock);

/*
 * Whether a claim of it is held, or may be: its lease may have been renewed, or
 * another gateway may have told that it is held.  Without durable: whether such
 * a claim needs its session.
 */
ngx_uint_t ngx_http_zk_lock_lock_holds(ngx_http_zk_lock_lock_t *lock,
    ngx_uint_t durable);

/*
 * The znode's name of a claim in the view: a part of the entry, or written to
 * buf (ZK_LOCK_CLAIM_MAX).
 */
void ngx_http_zk_lock_lock_name(zk_lock_entry_t *entry, ngx_str_t *name,
    u_char *buf);

/* The process leaves: frees the lock and its claims. */
void ngx_http_zk_lock_lock_discard(ngx_http_zk_lock_lock_t *lock);

/* The slow net below the doorbell. */
void ngx_http_zk_lock_lock_sweep(ngx_http_zk_lock_lock_t *lock);


/*
 * Among the files of the lock (lock, advance, guard, others, complete, make).
 */

/* The view does not know a claim any more: one of others is freed. */
void ngx_http_zk_lock_lock_forgotten(void *data, zk_lock_entry_t *entry);

/* Claims that were waiting for the view to be sure are told. */
void ngx_http_zk_lock_lock_settle(ngx_http_zk_lock_lock_t *lock);

/* Calls tell for each claim; it may free the claim that it is called for. */
void ngx_http_zk_lock_lock_tell(ngx_http_zk_lock_lock_t *lock,
    void (*tell)(ngx_http_zk_lock_claim_t *claim));

/*
 * Sets the watch on the lock's znode, if it is not set or under way: behind the
 * create of a claim with that czxid, which is to be there; or of whichever is.
 */
void ngx_http_zk_lock_lock_guard(ngx_http_zk_lock_lock_t *lock, int64_t czxid);
void ngx_http_zk_lock_lock_guard_again(ngx_http_zk_lock_lock_t *lock);

/* Forgets the view, unless that watch is set or under way. */
void ngx_http_zk_lock_lock_doubt(ngx_http_zk_lock_lock_t *lock);

/*
 * A read of the lock's znode, or of a child of it, that pins the lock: handler
 * unpins it.  Returns NULL if there is no memory.
 */
ngx_http_zk_lock_op_t *ngx_http_zk_lock_lock_op(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_op_e type, ngx_str_t *name,
    ngx_http_zk_lock_op_pt handler);

/*
 * A new claim of somebody else, not yet in the view; a foreign one has a name,
 * which is copied, and a sibling's an id.  Returns NULL if there is no memory.
 */
ngx_http_zk_lock_other_t *ngx_http_zk_lock_lock_other(
    ngx_http_zk_lock_lock_t *lock, zk_lock_origin_e origin, zk_lock_id_t *id,
    ngx_str_t *name);

/* Ends what is asked about a claim that has left the view, and frees it. */
void ngx_http_zk_lock_lock_free_other(ngx_http_zk_lock_other_t *other);

/*
 * See to it that somebody tells when a claim in the way is gone: ZooKeeper, or
 * the zone.  Return NGX_OK if something changed, and NGX_AGAIN if there is no
 * memory: then the sweep tries again.  The claim may be gone at once, and
 * freed.
 */
ngx_int_t ngx_http_zk_lock_lock_watch_znode(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_other_t *other);
ngx_int_t ngx_http_zk_lock_lock_watch_sibling(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_other_t *other);

/* Nobody needs to tell any more: a late answer or event is ignored. */
void ngx_http_zk_lock_lock_unwatch(ngx_http_zk_lock_other_t *other);

/* ZooKeeper says that a claim that was watched is gone; it is freed. */
void ngx_http_zk_lock_lock_vanished(ngx_http_zk_lock_other_t *other);

/* Looks whether a claim that is to be granted is there. */
void ngx_http_zk_lock_lock_verify(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *entry);

/* What siblings are, their records tell sooner than their znodes' names. */
void ngx_http_zk_lock_lock_siblings(ngx_http_zk_lock_lock_t *lock);

/*
 * Whether the view of a lock without claims of this worker can be kept: the
 * first few, if they are siblings, of which the zone tells what became of them.
 * Those behind are forgotten then.
 */
ngx_uint_t ngx_http_zk_lock_lock_rest(ngx_http_zk_lock_lock_t *lock);

/*
 * Makes the view complete up to waiter, from the board or by a list.  Returns
 * NGX_OK if something changed, NGX_AGAIN if there is to be waited.
 */
ngx_int_t ngx_http_zk_lock_lock_complete(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *waiter);

/* Of a lock that is made. */
void ngx_http_zk_lock_lock_await_init(ngx_http_zk_lock_lock_t *lock);

/* The view found out that a claim is gone; one of others is freed. */
void ngx_http_zk_lock_lock_gone(void *data, zk_lock_entry_t *entry);


#endif /* _NGX_HTTP_ZK_LOCK_LOCK_H_INCLUDED_ */
