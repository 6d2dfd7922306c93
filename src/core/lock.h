
/*
 * A lock: a worker's view of the lock's queue, and the reads that keep the view
 * true.
 *
 * A lock object exists while the worker has claims on the lock or operations
 * for the lock under way, and afterwards as long as a watch on the lock's znode
 * keeps the view true.
 *
 * The states of a lock with a queue.  A grant needs a row without "no" in each
 * part.  A state that lets no grant pass has an answer, an event or the sweep
 * that leads on.  A connection that breaks leads to the first row of each part.
 *
 *   state                          grant   what leads on
 *
 *   The parent watch:
 *   none: no parent, !view.watched yes     a create or a list sends the watch;
 *                                          else both forget the view
 *   parent: under way              no (1)  the answer: set; or none, and a list
 *                                          (a failed read: with the next step)
 *   view.watched: set              yes     the event: none, and bumped, or, if
 *                                          the znode was deleted, a list
 *   The list:
 *   none                           yes
 *   partial: due                   yes (2) the sweep, a create
 *   list: under way                yes (2) the answer: none, or partial
 *
 *   The view, as far as the first waiting claim:
 *   a claim ahead is unknown       no      the sequence index, soon, or a list
 *   soon: a sibling may tell       no      the ring, or the timer
 *   a claim ahead blocks           no      own: its end; other: the watch, or,
 *                                          without one, the sweep
 *   clear                          yes
 *
 *   The claims in the view:
 *   sure                           yes
 *   doubtful: the waiter may be    no      verify is sent: the answer says
 *   gone                                   sure, or has a list sent, which says
 *                                          which claims are left
 *   bumped: any claim may have     no      the list that bumped has sent; if it
 *   changed                                failed, each step and the sweep
 *
 *   (1) but for seq 0, which is first in any parent
 *   (2) a view that was forgotten lacks claims ahead, so a claim is unknown
 *
 * posted, resolve, known and mixed are no states: what is to be done in this
 * turn, which clients are to be told, and what the next create or the next
 * unknown claim had best do.
 */


#ifndef _ZKL_LOCK_H_INCLUDED_
#define _ZKL_LOCK_H_INCLUDED_


#include "core/worker.h"
#include "base/view.h"


struct zkl_lock_s {
    ngx_str_node_t                     sn;      /* the path */
    ngx_queue_t                        queue;   /* active or idle */
    ngx_queue_t                        turn;    /* worker->posted, if posted */
    zkl_worker_t                      *worker;

    zkl_view_t                         view;
    ngx_queue_t                        claims;  /* this worker's, held claims
                                                   first; of one znode: in the
                                                   order of arrival */
    ngx_uint_t                         nclaims;
    ngx_uint_t                         nkeen;   /* keyed or bound claims, which
                                                   the sweep visits while they
                                                   wait */
    ngx_uint_t                         nops;    /* operations under way, and
                                                   soon */

    ngx_uint_t                         watching;    /* watches under way */
    zkl_op_t                          *list;    /* under way; else NULL */
    zkl_claim_t                       *converting;  /* becomes durable; or
                                                       NULL */
    zkl_op_t                          *parent;  /* the parent watch, under way;
                                                   else NULL */
    zkl_op_t                          *verify;  /* under way; else NULL */
    uint64_t                           tick;    /* of list */

    int64_t                            born;    /* the znode existed at this
                                                   zxid; 0: unknown */
    int64_t                            witness; /* czxid of a claim that existed
                                                   when parent was sent */
    int64_t                            handled; /* changes of the znode up to
                                                   this mzxid were handled */
    ngx_msec_t                         read;    /* when the held claims were
                                                   read for a change */
    ngx_event_t                        reread;  /* has these claims read for
                                                   the changes since then */
    ngx_event_t                        soon;    /* the worker waits until then
                                                   for a sibling to publish a
                                                   claim, and lists after */
    zkl_subscription_t                 gap;     /* to that claim */
    int64_t                            missing; /* the seq of the last claim
                                                   that was waited for so */

    size_t                             making;  /* length of the path that is
                                                   being made; 0: none */

    unsigned                           known:1; /* the znode exists */
    unsigned                           posted:1;    /* to be advanced in this
                                                       turn */
    unsigned                           resolve:1;   /* a claim waits for the
                                                       view to be sure */
    unsigned                           bumped:1;    /* another gateway wrote: a
                                                       list comes before a grant
                                                       or a refusal */
    unsigned                           doubtful:1;  /* the next grant reads the
                                                       claim first */
    unsigned                           partial:1;   /* a list is due, perhaps
                                                       to tell which own claims
                                                       are left */
    unsigned                           mixed:1;     /* the last list had foreign
                                                       claims */

    unsigned                           node:1;      /* the lock is one znode */
    unsigned                           waits:1;     /* node: another claim has
                                                       the znode */
    unsigned                           blind:1;     /* waits, without a watch:
                                                       until the next sweep */
};


/* a claim of another worker or gateway, in the view */

typedef struct {
    zkl_entry_t                        entry;   /* must be first */
    zkl_lock_t                        *lock;
    zkl_op_t                          *watch;   /* under way; else NULL */
    zkl_subscription_t                 sub;     /* to a sibling's record */
    zkl_id_t                           id;      /* of a sibling's claim */
    ngx_str_t                          name;    /* of a foreign claim */
} zkl_other_t;


/* Finds or makes the lock at path.  NULL: no memory. */
zkl_lock_t *zkl_lock_get(zkl_worker_t *worker, ngx_str_t *path);

/* Finds the lock at path, or returns NULL. */
zkl_lock_t *zkl_lock_find(zkl_worker_t *worker, ngx_str_t *path);

/* A claim joins, or leaves and is freed when the turn ends. */
void zkl_lock_join(zkl_lock_t *lock, zkl_claim_t *claim);
void zkl_lock_leave(zkl_lock_t *lock, zkl_claim_t *claim);

/*
 * Sets the layout of the lock; node: the lock is one znode.  NGX_DECLINED: the
 * lock has claims of the other layout.
 */
ngx_int_t zkl_lock_layout(zkl_lock_t *lock, ngx_uint_t node);

/*
 * The lock has changed: at the end of this turn of the event loop the worker
 * grants what can be granted, reads what the next grant depends on, and frees
 * the lock if no claim, no operation and no parent watch needs the lock.  So a
 * lock and a claim stay in memory as long as the caller's function runs.
 */
void zkl_lock_post(zkl_lock_t *lock);

/* Advances the posted locks, and frees what has ended; called once a turn. */
void zkl_lock_turn_handler(ngx_event_t *ev);

/* Frees the claims that have left: the turn, or the process, ends. */
void zkl_lock_reap(zkl_worker_t *worker);

/* An operation of the lock, which lock->nops counts, has ended. */
void zkl_lock_op_end(zkl_lock_t *lock);

/* A claim was created: the claim joins the view, under the parent watch. */
void zkl_lock_created(zkl_lock_t *lock, zkl_entry_t *entry, int64_t czxid);

/*
 * Whether this worker's claims in the view alone make the queue so long that an
 * operation may be delayed without delaying a grant: the create of a claim of
 * that mode or, if entry is not NULL, the delete of entry.  The claim behind
 * entry has to be this gateway's then, because a foreign claim may watch entry.
 */
ngx_uint_t zkl_lock_queue_long(zkl_lock_t *lock, zkl_mode_t mode,
    zkl_entry_t *entry);

/*
 * Removes siblings' claims that have ended, and that no subscription tells of,
 * from the view, so that a client is told the true position.
 */
void zkl_lock_prune(zkl_lock_t *lock);

/* A claim is gone, or the delete of a claim was decided. */
void zkl_lock_removed(zkl_lock_t *lock, zkl_entry_t *entry);

/* Makes the lock's znode and the missing parents, and tells the claims. */
void zkl_lock_make(zkl_lock_t *lock);

/* Lists the lock's claims, unless a list is under way. */
void zkl_lock_list(zkl_lock_t *lock);

/* Whether an answer under way, or this turn's run, may change the view. */
ngx_uint_t zkl_lock_reads_pending(zkl_lock_t *lock);

/* Whether a claim surely came to a lock that is used in another way. */
ngx_uint_t zkl_lock_conflicts(zkl_lock_t *lock, zkl_entry_t *entry);

/*
 * Finds out soon whether a new claim is in conflict; lock->resolve says that
 * the claim is to be told.
 */
void zkl_lock_look_first(zkl_lock_t *lock, zkl_entry_t *entry);

/* The connection broke: forgets the view. */
void zkl_lock_forget(zkl_lock_t *lock);

/* The session is over, perhaps because zookeeper has lost data. */
void zkl_lock_session_over(zkl_lock_t *lock);

/* A watch fired, on the lock's znode or on a claim's znode. */
void zkl_lock_changed(zkl_lock_t *lock, ngx_uint_t deleted);
void zkl_lock_claim_changed(zkl_lock_t *lock, ngx_str_t *name,
    ngx_uint_t deleted);

/*
 * The name of a claim's znode: a part of the entry, or written to buf
 * (ZKL_CLAIM_MAX).
 */
void zkl_lock_name(zkl_entry_t *entry, ngx_str_t *name, u_char *buf);

/* Frees the lock and its claims. */
void zkl_lock_discard(zkl_lock_t *lock);

/* Called once a second, for changes that no event has told. */
void zkl_lock_sweep(zkl_lock_t *lock);


/* For the other files of core. */


/*
 * Reads the lock's znode or a child, unless such a read is under way; handler
 * calls zkl_lock_op_end().  NGX_ERROR: no memory.
 */
ngx_int_t zkl_lock_read(zkl_lock_t *lock, zkl_op_t **under_way, zkl_op_e type,
    ngx_str_t *name, ngx_uint_t watch, zkl_op_pt handler);

/*
 * The next of this worker's claims of the lock; of NULL: the first.  NULL:
 * there is none.
 */
zkl_claim_t *zkl_lock_next(zkl_lock_t *lock, zkl_claim_t *claim);

/* Calls tell for each claim; tell may end that claim. */
void zkl_lock_tell(zkl_lock_t *lock, void (*tell)(zkl_claim_t *claim));

/*
 * Sets the parent watch, unless the watch is set or under way.  The read is
 * sent behind the create of a claim that still exists, the witness, whose czxid
 * is given: so a znode that is older than the claim is the znode that the claim
 * was made in.  0: finds a witness among the worker's claims.
 */
void zkl_lock_watch_parent(zkl_lock_t *lock, int64_t witness);


#endif /* _ZKL_LOCK_H_INCLUDED_ */
