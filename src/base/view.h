
/*
 * The view: the claims of a lock's queue that a worker knows, and the next
 * step for the first waiter.
 *
 * Plain C, no I/O, no allocation, no nginx, no ZooKeeper; the event loop calls
 * the functions.  The caller owns all entries, and the view links the entries.
 * The caller may free an entry that is out of the view: after the caller's own
 * zkl_view_remove(), or in a call of gone from zkl_view_create(), _merge(),
 * _keep() and _forget().  A local entry leaves the view by zkl_view_remove(),
 * or because a list lacks the claim; no other conclusion takes the entry out.
 *
 * The rules, with the facts of ZooKeeper behind the rules:
 *
 * - The seq of a new child is the number of children that were ever created in
 *   the parent.  So a create that returns seq = complete_through + 1 proves
 *   that no claim was created in between: the view is still complete, without
 *   a list.  Seq 0 proves that the claim is first, in any parent.
 *
 * - Only ZooKeeper's own numbers prove something: the seq of a create's answer,
 *   and the number of children ever created (`given`), which the stat of a list
 *   tells (ZooKeeper: DataTree.getChildren() copies both under one lock).  A
 *   client that makes a child by name, or copies a tree, chooses the number in
 *   the name.  A listed child whose number the parent has not given is
 *   misnumbered: other clients may believe that the child holds the lock, so
 *   the child comes before all claims, and blocks these until it is gone.  The
 *   parent may give the number to a claim later, and then a list no longer
 *   tells which child is misnumbered.  So the view notes the numbers of
 *   misnumbered children at each list: the entry of a child may change.
 *
 * - The proof ends with the parent, because an empty parent may be reaped and
 *   made anew with seq 0.  The proof holds while a live local claim in the
 *   parent, or a watch on the parent (`watched`), pins the parent.
 *
 * - No claim is inserted ahead of another, with two exceptions.  A holder may
 *   share the lock, and then a reader with the same seq replaces the holder's
 *   claim (Curator 5.5 and later, for writers; a gateway, for exclusive claims
 *   too).  A gateway may make a lease durable, and then a claim with the same
 *   name replaces the old claim.  A gateway announces both by a change of the
 *   parent's data.  So the view is complete only up to a foreign claim that
 *   vanished, unless the claim is no writer, the parent is watched, and a watch
 *   on the claim told of the end.
 *
 * - A claim ahead may vanish without having held the lock.  So a claim is
 *   granted only when every claim ahead is known (seq <= complete_through) and
 *   no live claim ahead blocks the claim.
 *
 * - In every mode a claim behind a claim that waits has to wait, too.  So only
 *   the first waiting local claim is looked at, and needs a watch, on the
 *   nearest blocker ahead.  Claims ahead of the blocker, known or unknown,
 *   matter only when the blocker is gone.
 *
 * - A semaphore's claim is blocked while at least as many claims are ahead as
 *   there are permits.  So that number of the nearest claims is watched: the
 *   claim stays blocked until any of these claims leaves.
 *
 * - A lock has a single use at a time: a mutex or a read-write lock, a
 *   semaphore with a given number of permits, or members.  The first live claim
 *   decides; a later claim of another use is refused, at once or, if only the
 *   permits differ, when the wait is over.  Until the refusal, or if the client
 *   of that claim knows only a single use, the claim may still be granted.  So
 *   the claim blocks every later claim of another use.
 */


#ifndef _ZKL_VIEW_H_INCLUDED_
#define _ZKL_VIEW_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "base/name.h"


typedef enum {
    ZKL_LOCAL = 0,              /* this worker's */
    ZKL_SIBLING,                /* of another worker of this gateway */
    ZKL_FOREIGN                 /* of another gateway or client */
} zkl_origin_e;


typedef struct zkl_entry_s  zkl_entry_t;

struct zkl_entry_s {
    zkl_entry_t        *prev;       /* by seq; a ring with the view's head */
    zkl_entry_t        *next;
    zkl_entry_t        *waiting_prev;   /* local waiters, by seq */
    zkl_entry_t        *waiting_next;

    int64_t             seq;
    uint64_t            who;        /* not local: tells two claims with the
                                       same seq apart */
    uint64_t            tick;       /* when the claim became known */
    zkl_mode_t          mode;
    zkl_origin_e        origin;

    unsigned            linked:1;   /* in the view */
    unsigned            waiting:1;  /* local, not granted yet */
    unsigned            watched:1;  /* not local: the caller watches the
                                       claim, and sets the bit */
    unsigned            misnumbered:1;  /* the parent has not given the seq:
                                           first in the view */
};


typedef struct {
    int64_t             seq;
    uint64_t            who;
} zkl_misnumbered_t;


typedef struct {
    zkl_entry_t         alive;      /* ring's head: claims that may exist */
    zkl_entry_t         waiting;    /* ring's head */

    int64_t             complete_through;   /* -1: up to no seq */
    uint64_t            tick;               /* of the youngest claim */
    size_t              nalive;
    size_t              nlocal;

    zkl_misnumbered_t  *misnumbered;        /* in the last list; or NULL */
    size_t              nmisnumbered;

    unsigned            watched:1;  /* a watch on the parent is set */
} zkl_view_t;


/* a count of claims in the order of seq */

typedef struct {
    size_t              n;
    zkl_mode_t          first;
    unsigned            mixes:1;    /* all can take part with the first */
    unsigned            readers:1;  /* all are readers */
} zkl_holders_t;


/* what the first waiting local claim needs */

typedef enum {
    ZKL_NOTHING = 0,            /* no local claim waits, or the blockers are
                                   local or watched */
    ZKL_GRANT,                  /* waiter has the lock: zkl_view_grant() */
    ZKL_WATCH,                  /* watch blocker, which is not local, and set
                                   blocker->watched */
    ZKL_COMPLETE,               /* claims ahead may be unknown: list them */
    ZKL_VIEW_CONFLICT           /* the lock has another use: the waiter waits
                                   until the first claim is gone, or remove the
                                   waiter when the watch on the first claim is
                                   known to be set */
} zkl_verdict_e;


/*
 * Called for each entry that left the view without zkl_view_remove(); for a
 * local entry only by zkl_view_merge().
 */
typedef void (*zkl_view_gone_pt)(void *data, zkl_entry_t *entry);


/* one child of the parent, for zkl_view_merge() */

typedef struct {
    int64_t             seq;
    zkl_mode_t          mode;
    uint64_t            who;        /* a hash of the name, for example */
    zkl_entry_t        *entry;      /* of a local claim, or NULL */
    void               *data;       /* the caller's, as are origin and id */
    zkl_origin_e        origin;
    zkl_id_t            id;
    unsigned            gone:1;     /* the delete is decided: the claim does
                                       not count; entry is NULL */
    unsigned            misnumbered:1;  /* set for make */
} zkl_observed_t;

/*
 * Makes the entry of a child that is new and not local.  Returns NULL if
 * there is no memory: the merge fails then, and the view stays incomplete.
 */
typedef zkl_entry_t *(*zkl_view_make_pt)(void *data, zkl_observed_t *observed);


void zkl_view_init(zkl_view_t *view);

/* Frees what the view has besides entries; the caller has removed these. */
void zkl_view_free(zkl_view_t *view);

/*
 * A local claim was created with entry->seq and entry->mode, and waits from
 * now on; the function sets the origin.  Draws the contiguity proof.  Returns
 * 1 if the seq runs backwards, which shows a new parent: the caller has to list
 * which claims are left, and no claim is granted before.  Else returns 0.
 */
int zkl_view_create(zkl_view_t *view, zkl_entry_t *entry,
    zkl_view_gone_pt gone, void *data);

/*
 * The claim with seq complete_through + 1, which zkl_view_knows() does not
 * know, became known without a list.  The entry, a sibling's, is linked; NULL
 * says that the claim is gone already.
 */
void zkl_view_learn(zkl_view_t *view, zkl_entry_t *entry);

/*
 * The entry's claim is gone, or the delete was decided and cannot be revoked.
 * The entry is the caller's again.  entry->watched says that a watch told of
 * the end; clear the bit if the claim was gone before the watch was set.
 */
void zkl_view_remove(zkl_view_t *view, zkl_entry_t *entry);

/* The waiter of a ZKL_GRANT holds the lock now. */
void zkl_view_grant(zkl_entry_t *entry);

/*
 * Returns the next step for the first waiting local claim.  Call after every
 * change, and again after the step, until the answer is ZKL_NOTHING or the step
 * has to wait.  waiter is NULL if no local claim waits; blocker is the claim to
 * watch, else the nearest claim ahead that blocks waiter, or NULL.
 */
zkl_verdict_e zkl_view_next(zkl_view_t *view, zkl_entry_t **waiter,
    zkl_entry_t **blocker);

/*
 * Merges a list of all children that are claims.  tick is that of the view when
 * the list was sent, on the same session and behind the replies of all local
 * entries in the view; given is the number of children that were ever created,
 * from the stat of the list.  The call sorts children, the caller's array.
 * gone is called for each entry that the list proves gone, make for each new
 * claim that is not local.  Local entries of children that are not linked
 * (found after a lost connection) are linked, and wait if entry->waiting is
 * set.  Returns 0, or -1 if there is no memory, also for make.
 */
int zkl_view_merge(zkl_view_t *view, uint64_t tick, int64_t given,
    zkl_observed_t *children, size_t n, zkl_view_make_pt make,
    zkl_view_gone_pt gone, void *data);

/* Whether the child was misnumbered in the list before. */
int zkl_view_misnumbered(zkl_view_t *view, zkl_observed_t *s);

/* Forgets all entries but the local ones, and calls gone for each. */
void zkl_view_forget(zkl_view_t *view, zkl_view_gone_pt gone, void *data);

/* Keeps the first n claims, and calls gone for each entry behind. */
void zkl_view_keep(zkl_view_t *view, size_t n, zkl_view_gone_pt gone,
    void *data);

/* The number of known claims ahead of entry.  O(n). */
size_t zkl_view_position(zkl_view_t *view, zkl_entry_t *entry);

/* The number of known claims that hold the lock.  O(holders). */
size_t zkl_view_holders(zkl_view_t *view);

/* The first claim that may exist, and the claim behind an entry; or NULL. */
zkl_entry_t *zkl_view_first(zkl_view_t *view);
zkl_entry_t *zkl_view_after(zkl_view_t *view, zkl_entry_t *entry);

/* Whether the claim that the parent gave that seq is in the view. */
int zkl_view_knows(zkl_view_t *view, int64_t seq);

/*
 * Whether a claim of mode ahead blocks a later claim of mode behind.  Claims
 * of a semaphore block only when as many as the permits are ahead.
 */
int zkl_view_blocks(zkl_mode_t ahead, zkl_mode_t behind);

/* Whether two claims can take part in one lock at the same time. */
int zkl_view_mixes(zkl_mode_t one, zkl_mode_t two);

/* The most claims of a mode that can hold a lock; readers share a seat. */
size_t zkl_view_capacity(zkl_mode_t mode);

/*
 * Counts the next claim of a lock, in the order of seq, and returns 1 if the
 * claim holds the lock.  The caller zeroes holders before the first claim.
 */
int zkl_view_count(zkl_holders_t *holders, zkl_mode_t mode);

/*
 * Whether the first claim is ahead of entry and has another use; if so, what
 * has to be known before the conflict is: ZKL_COMPLETE, ZKL_WATCH for the first
 * claim, or nothing: ZKL_VIEW_CONFLICT.  Else ZKL_NOTHING.
 */
zkl_verdict_e zkl_view_conflict(zkl_view_t *view, zkl_entry_t *entry);

/* Finds a watched claim, or returns NULL. */
zkl_entry_t *zkl_view_watched(zkl_view_t *view, int64_t seq, zkl_mode_t mode,
    uint64_t who);


#endif /* _ZKL_VIEW_H_INCLUDED_ */
