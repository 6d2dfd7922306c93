
/*
 * The view: what one worker knows of one lock's queue, and what follows from
 * it.
 *
 * Plain C, no I/O, no allocation, no nginx, no ZooKeeper; it runs on the event
 * loop only.  The caller owns all entries; the view links them.  An entry may
 * be freed as soon as it is out of the view, which the caller learns from
 * zkl_view_remove() (it asked for it) or from the function that it gives
 * to zkl_view_create(), _merge(), _keep() and _forget().
 *
 * The rules, and what of ZooKeeper they rest on:
 *
 * - A new child's seq is the number of children that were ever created in its
 *   parent.  So a create that returns seq = complete_through + 1 proves that
 *   nobody joined in between: the view is still complete, and no list is
 *   needed.  seq 0 proves that the claim is first, whoever made the parent.
 *
 * - The proof dies with the parent, which may be reaped when it is empty and
 *   made anew with seq 0.  It holds while the parent is pinned: by a claim of
 *   ours that is alive in it, or by a watch on it (`watched`).
 *
 * - Nothing is ever inserted ahead of a claim, with two exceptions.  The
 *   holder of a lock may go on to share it, and then a reader with its own seq
 *   takes its place (Curator 5.5 and later, for writers; a gateway, for
 *   exclusive claims too).  A gateway's lease becomes durable, and then a claim
 *   with its name takes its place.  A gateway says both by a change of the
 *   parent's data.  So when a foreign writer vanishes, the view is not complete
 *   any more from its seq on; nor when another foreign claim does, unless the
 *   parent is watched, and it was a watch that told.
 *
 * - A claim ahead may vanish without ever having held.  So a claim is granted
 *   only when every claim ahead of it is known (seq <= complete_through) and
 *   none that blocks it is alive.
 *
 * - Only the first waiting local claim asks for anything: a watch on the
 *   nearest claim ahead that blocks it.  What is ahead of that one, and what
 *   is unknown ahead of it, can wait until it is gone.
 *
 * - A semaphore's claim is blocked while as many are ahead of it as there are
 *   permits, whoever they are.  So as many of the nearest are watched: while
 *   none of them leaves, it is blocked, and when one does, it may not be.
 *
 * - A lock is used in one way at a time: as a mutex or a read-write lock, as a
 *   semaphore with one number of permits, or for members.  The first claim
 *   that is alive says which; who comes behind it with another is refused.
 *   Until then, or if it knows of no other uses, it may be granted yet; so it
 *   blocks all that come behind it and are of another use than it.
 */


#ifndef _ZKL_VIEW_H_INCLUDED_
#define _ZKL_VIEW_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "base/name.h"


typedef enum {
    ZKL_LOCAL = 0,              /* this worker's */
    ZKL_SIBLING,                /* of another worker of this gateway */
    ZKL_FOREIGN                 /* anybody else's */
} zkl_origin_e;


typedef struct zkl_entry_s  zkl_entry_t;

struct zkl_entry_s {
    zkl_entry_t        *prev;       /* by seq; a ring with the view's head */
    zkl_entry_t        *next;
    zkl_entry_t        *waiting_prev;   /* local ones that wait, by seq */
    zkl_entry_t        *waiting_next;

    int64_t             seq;
    uint64_t            who;        /* of one that is not local: tells it from
                                       another one with the same seq */
    uint64_t            tick;       /* when it became known */
    zkl_kind_t          kind;
    zkl_origin_e        origin;

    unsigned            linked:1;   /* in the view */
    unsigned            waiting:1;  /* local, not granted yet; kept by forget */
    unsigned            watched:1;  /* not local: the caller's, who is told
                                       when it is gone */
    unsigned            renamed:1;  /* foreign: it may have got its kind so
                                       lately that ZooKeeper still shows the
                                       caller the one that it had before */
    unsigned            listed:1;   /* scratch of a merge */
};


typedef struct {
    zkl_entry_t         alive;      /* ring's head: claims that may exist */
    zkl_entry_t         waiting;    /* ring's head */

    int64_t             complete_through;   /* -1: nothing is known */
    uint64_t            tick;
    size_t              nalive;
    size_t              nlocal;

    unsigned            watched:1;  /* a watch on the parent is set */
} zkl_view_t;


/* of claims in the order of their numbers */

typedef struct {
    size_t              n;
    zkl_kind_t          first;
    unsigned            mixes:1;    /* all can take part with the first */
    unsigned            readers:1;  /* all are */
} zkl_tally_t;


/* what the first waiting local claim needs */

typedef enum {
    ZKL_NOTHING = 0,            /* nobody waits, or what is ahead is local or
                                   watched */
    ZKL_GRANT,                  /* waiter has the lock: zkl_view_grant() */
    ZKL_WATCH,                  /* watch blocker, which is not local, and set
                                   blocker->watched */
    ZKL_COMPLETE,               /* claims ahead may be unknown: list them */
    ZKL_VIEW_CONFLICT           /* the lock is used in another way: remove
                                   waiter, when the watch on the first claim
                                   is known to be set */
} zkl_verdict_e;


/*
 * Called for each entry that leaves the view without the caller having asked
 * for it; the entry is out of the view already.
 */
typedef void (*zkl_view_gone_pt)(void *data, zkl_entry_t *entry);


/* one child of the parent, for zkl_view_merge() */

typedef struct {
    int64_t             seq;
    zkl_kind_t          kind;
    uint64_t            who;        /* a hash of the znode's name, say */
    zkl_entry_t        *entry;      /* the caller's, local ones; else NULL */
    void               *data;       /* the caller's */
    unsigned            gone:1;     /* its delete is decided: counts only for
                                       completeness; entry is NULL */
} zkl_sighting_t;

/*
 * Makes the entry of a sighting that is new and not local.  Returns NULL if
 * there is no memory: the merge fails then, and the view stays incomplete.
 */
typedef zkl_entry_t *(*zkl_view_make_pt)(void *data, zkl_sighting_t *sighting);


void zkl_view_init(zkl_view_t *view);

/*
 * A local claim was created with entry->seq (kind set, origin is set here).
 * It waits from now on.  Draws the contiguity proof; a seq that runs backwards
 * shows a new parent, and all else is forgotten (gone is called for it), the
 * watch too.
 */
void zkl_view_create(zkl_view_t *view, zkl_entry_t *entry,
    zkl_view_gone_pt gone, void *data);

/*
 * The claim with seq complete_through + 1, which zkl_view_knows() does not
 * know, became known without a list.  entry (a sibling's) is linked; NULL says
 * that that claim is gone already.
 */
void zkl_view_learn(zkl_view_t *view, zkl_entry_t *entry);

/*
 * The entry's claim is gone, or its delete was decided and cannot be called
 * back.  The entry is the caller's again.  entry->watched says that a watch
 * told; clear it if the claim was gone when it was to be watched.
 */
void zkl_view_remove(zkl_view_t *view, zkl_entry_t *entry);

/* The waiter of a ZKL_GRANT holds the lock now. */
void zkl_view_grant(zkl_view_t *view, zkl_entry_t *entry);

/*
 * What the first waiting local claim needs.  Call it after every change, and
 * again when what it says was done, until it says ZKL_NOTHING or there is
 * something to wait for.  waiter is set unless nobody waits; blocker is the
 * claim to watch, else the nearest claim ahead that blocks it, or NULL.
 */
zkl_verdict_e zkl_view_next(zkl_view_t *view, zkl_entry_t **waiter,
    zkl_entry_t **blocker);

/*
 * When a list is sent: returns the mark to give to zkl_view_merge() with
 * the answer.  The list must have been sent behind the replies of all local
 * entries that are in the view then, on the same session.
 */
uint64_t zkl_view_mark(zkl_view_t *view);

/*
 * Merges a list of all children that are claims.  A list that shows somebody
 * else where the view has a claim is of a parent that was made anew: then
 * nothing that was known before counts any more.  sightings is the caller's
 * array, sorted here.  gone is called for each entry that the list proves
 * gone, make for each new claim that is not local.  Local entries of
 * sightings that are not linked (found again after a lost connection) are
 * linked, and wait if entry->waiting says so.  Returns 0, or -1 if make
 * returned NULL.
 */
int zkl_view_merge(zkl_view_t *view, uint64_t mark, zkl_sighting_t *sightings,
    size_t n, zkl_view_make_pt make, zkl_view_gone_pt gone, void *data);

/* Forgets everything; gone is called for each entry, local ones too. */
void zkl_view_forget(zkl_view_t *view, zkl_view_gone_pt gone, void *data);

/*
 * Keeps the first n claims, and forgets all about those behind; gone is called
 * for each of these.
 */
void zkl_view_keep(zkl_view_t *view, size_t n, zkl_view_gone_pt gone,
    void *data);

/* The number of claims ahead of entry that are known.  O(n). */
size_t zkl_view_position(zkl_view_t *view, zkl_entry_t *entry);

/*
 * How many of the claims hold the lock, as far as they are known: those of a
 * lock that is not used in two ways.  O(n) for readers, else O(1).
 */
size_t zkl_view_holders(zkl_view_t *view);

/* The first claim that may exist, or NULL; and the one behind it. */
zkl_entry_t *zkl_view_first(zkl_view_t *view);
zkl_entry_t *zkl_view_after(zkl_view_t *view, zkl_entry_t *entry);

/* The n-th claim from the end, or NULL.  O(n). */
zkl_entry_t *zkl_view_last(zkl_view_t *view, size_t n);

/* Whether a claim with that seq is in the view. */
int zkl_view_knows(zkl_view_t *view, int64_t seq);

/*
 * Whether a claim of kind ahead blocks a claim of kind behind it; of a
 * semaphore's: if there are as many of them as permits.
 */
int zkl_view_blocks(zkl_kind_t ahead, zkl_kind_t behind);

/* Whether two claims can take part in one lock at the same time. */
int zkl_view_mixes(zkl_kind_t one, zkl_kind_t two);

/* How many of a kind can hold a lock, if they do not share it as readers. */
size_t zkl_view_seats(zkl_kind_t kind);

/*
 * Who of a lock's claims hold it: counts the next one, in the order of their
 * numbers, and returns 1 if it does.  tally is zeroed before the first.
 */
int zkl_view_tally(zkl_tally_t *tally, zkl_kind_t kind);

/* Whether entry came to a lock that is used in another way. */
int zkl_view_conflict(zkl_view_t *view, zkl_entry_t *entry);

/*
 * Finds a claim that is watched, by its seq; the next one with the same seq,
 * if prior is not NULL.  Returns NULL if there is none.
 */
zkl_entry_t *zkl_view_watched(zkl_view_t *view, int64_t seq,
    zkl_entry_t *prior);


/* for the merge */


#endif /* _ZKL_VIEW_H_INCLUDED_ */
