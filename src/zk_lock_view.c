
/*
 * The view.  zk_lock_view.h has the rules; this file implements the rules with
 * two rings, one number, and one predicate.
 *
 * The view owns no memory: the caller owns the entries, and an entry leaves the
 * rings before the caller is told that the entry is gone.  Any thread may call
 * these functions, but only one thread at a time for one view.
 */


#include <string.h>

#include "zk_lock_view.h"


static zk_lock_entry_t *zk_lock_view_upto(zk_lock_view_t *view, int64_t seq);
static void zk_lock_view_wait(zk_lock_view_t *view, zk_lock_entry_t *entry);
static void zk_lock_view_unlink(zk_lock_view_t *view, zk_lock_entry_t *entry);
static zk_lock_entry_t *zk_lock_view_blocker(zk_lock_view_t *view,
    zk_lock_entry_t *waiter, zk_lock_entry_t **watch);


void
zk_lock_view_init(zk_lock_view_t *view)
{
    memset(view, 0, sizeof(zk_lock_view_t));

    view->alive.prev = &view->alive;
    view->alive.next = &view->alive;

    view->waiting.waiting_prev = &view->waiting;
    view->waiting.waiting_next = &view->waiting;

    view->complete_through = -1;
}


void
zk_lock_view_create(zk_lock_view_t *view, zk_lock_entry_t *entry,
    zk_lock_view_gone_pt gone, void *data)
{
    int  pinned;

    pinned = view->watched || view->nlocal != 0;

    if (!pinned
        || entry->seq <= view->complete_through
        || (view->nalive != 0 && entry->seq <= view->alive.prev->seq))
    {
        zk_lock_view_forget(view, gone, data);
        view->watched = 0;
    }

    if (entry->seq == 0 || (view->complete_through != -1
                            && entry->seq == view->complete_through + 1))
    {
        view->complete_through = entry->seq;
    }

    entry->origin = ZK_LOCK_LOCAL;
    entry->waiting = 1;

    zk_lock_view_link(view, entry);
}


void
zk_lock_view_learn(zk_lock_view_t *view, zk_lock_entry_t *entry)
{
    view->complete_through++;

    if (entry != NULL) {
        zk_lock_view_link(view, entry);
    }

    zk_lock_view_pass(view);
}


void
zk_lock_view_remove(zk_lock_view_t *view, zk_lock_entry_t *entry)
{
    if (!entry->linked) {
        return;
    }

    zk_lock_view_unlink(view, entry);

    if (entry->kind == ZK_LOCK_WRITE || entry->renamed
        || !view->watched || !entry->watched)
    {
        zk_lock_view_doubt(view, entry);
    }
}


void
zk_lock_view_grant(zk_lock_view_t *view, zk_lock_entry_t *entry)
{
    (void) view;

    if (!entry->waiting) {
        return;
    }

    entry->waiting_prev->waiting_next = entry->waiting_next;
    entry->waiting_next->waiting_prev = entry->waiting_prev;
    entry->waiting = 0;
}


zk_lock_verdict_e
zk_lock_view_next(zk_lock_view_t *view, zk_lock_entry_t **waiter,
    zk_lock_entry_t **blocker)
{
    zk_lock_entry_t  *ahead, *watch, *first;

    *waiter = view->waiting.waiting_next;
    *blocker = NULL;

    if (*waiter == &view->waiting) {
        *waiter = NULL;
        return ZK_LOCK_NOTHING;
    }

    if (zk_lock_view_conflict(view, *waiter)) {

        first = view->alive.next;

        if (first->seq > view->complete_through + 1) {
            return ZK_LOCK_COMPLETE;
        }

        /* the first claim may be gone for long: no watch would have told */

        if (first->origin != ZK_LOCK_LOCAL && !first->watched) {
            *blocker = first;
            return ZK_LOCK_WATCH;
        }

        return ZK_LOCK_CONFLICT;
    }

    ahead = zk_lock_view_blocker(view, *waiter, &watch);

    if (ahead != NULL) {
        *blocker = watch ? watch : ahead;
        return watch ? ZK_LOCK_WATCH : ZK_LOCK_NOTHING;
    }

    if ((*waiter)->seq > view->complete_through) {
        return ZK_LOCK_COMPLETE;
    }

    return ZK_LOCK_GRANT;
}


void
zk_lock_view_forget(zk_lock_view_t *view, zk_lock_view_gone_pt gone,
    void *data)
{
    unsigned          waiting;
    zk_lock_entry_t  *entry;

    while (view->nalive != 0) {
        entry = view->alive.next;
        waiting = entry->waiting;

        zk_lock_view_unlink(view, entry);

        entry->waiting = waiting;

        gone(data, entry);
    }

    view->complete_through = -1;
}


void
zk_lock_view_keep(zk_lock_view_t *view, size_t n, zk_lock_view_gone_pt gone,
    void *data)
{
    zk_lock_entry_t  *entry;

    while (view->nalive > n) {
        entry = view->alive.prev;

        if (entry->seq <= view->complete_through) {
            view->complete_through = entry->seq - 1;
        }

        zk_lock_view_unlink(view, entry);

        gone(data, entry);
    }
}


size_t
zk_lock_view_position(zk_lock_view_t *view, zk_lock_entry_t *entry)
{
    size_t  n;

    n = 0;

    for (entry = entry->prev; entry != &view->alive; entry = entry->prev) {
        n++;
    }

    return n;
}


size_t
zk_lock_view_holders(zk_lock_view_t *view)
{
    size_t            n, seats;
    zk_lock_kind_t    kind;
    zk_lock_entry_t  *entry;

    kind = view->alive.next->kind;

    if (view->nalive == 0 || kind == ZK_LOCK_MEMBER) {
        return view->nalive;
    }

    if (zk_lock_kind_base(kind) == ZK_LOCK_SEMAPHORE) {
        seats = zk_lock_kind_permits(kind);

        return (view->nalive < seats) ? view->nalive : seats;
    }

    if (kind != ZK_LOCK_READ) {
        return 1;
    }

    n = 0;

    for (entry = view->alive.next;
         entry != &view->alive && entry->kind == ZK_LOCK_READ;
         entry = entry->next)
    {
        n++;
    }

    return n;
}


zk_lock_entry_t *
zk_lock_view_first(zk_lock_view_t *view)
{
    return (view->nalive != 0) ? view->alive.next : NULL;
}


zk_lock_entry_t *
zk_lock_view_after(zk_lock_view_t *view, zk_lock_entry_t *entry)
{
    return (entry->next != &view->alive) ? entry->next : NULL;
}


zk_lock_entry_t *
zk_lock_view_last(zk_lock_view_t *view, size_t n)
{
    zk_lock_entry_t  *entry;

    if (n == 0 || n > view->nalive) {
        return NULL;
    }

    for (entry = view->alive.prev; n > 1; n--) {
        entry = entry->prev;
    }

    return entry;
}


int
zk_lock_view_knows(zk_lock_view_t *view, int64_t seq)
{
    zk_lock_entry_t  *entry;

    entry = zk_lock_view_upto(view, seq);

    return entry != &view->alive && entry->seq == seq;
}


int
zk_lock_view_blocks(zk_lock_kind_t ahead, zk_lock_kind_t behind)
{
    if (behind == ZK_LOCK_MEMBER) {
        return ahead != ZK_LOCK_MEMBER;
    }

    return ahead != ZK_LOCK_READ || behind != ZK_LOCK_READ;
}


int
zk_lock_view_mixes(zk_lock_kind_t one, zk_lock_kind_t two)
{
    return one == two || (one <= ZK_LOCK_WRITE && two <= ZK_LOCK_WRITE);
}


size_t
zk_lock_view_seats(zk_lock_kind_t kind)
{
    if (kind == ZK_LOCK_MEMBER) {
        return SIZE_MAX;
    }

    return (zk_lock_kind_base(kind) == ZK_LOCK_SEMAPHORE)
           ? zk_lock_kind_permits(kind) : 1;
}


int
zk_lock_view_tally(zk_lock_tally_t *tally, zk_lock_kind_t kind)
{
    if (tally->n == 0) {
        tally->first = kind;
        tally->mixes = 1;
        tally->readers = 1;
    }

    tally->mixes &= (zk_lock_view_mixes(tally->first, kind) != 0);
    tally->readers &= (kind == ZK_LOCK_READ);

    return (tally->n++ < zk_lock_view_seats(kind) || tally->readers)
           && tally->mixes;
}


int
zk_lock_view_conflict(zk_lock_view_t *view, zk_lock_entry_t *entry)
{
    zk_lock_entry_t  *first;

    first = view->alive.next;

    return entry->linked && first->seq < entry->seq
           && !zk_lock_view_mixes(first->kind, entry->kind);
}


zk_lock_entry_t *
zk_lock_view_watched(zk_lock_view_t *view, int64_t seq,
    zk_lock_entry_t *prior)
{
    zk_lock_entry_t  *entry;

    /* watched claims are ahead of, and near, the first own claim that waits */

    if (prior != NULL) {
        entry = prior->prev;

    } else {
        entry = view->waiting.waiting_next;
        entry = (entry != &view->waiting) ? entry->prev : view->alive.prev;
    }

    for ( /* void */ ; entry != &view->alive; entry = entry->prev) {

        if (entry->seq < seq) {
            break;
        }

        if (entry->seq == seq && entry->watched) {
            return entry;
        }
    }

    return NULL;
}


/* Returns the last known claim up to seq, or the ring's head. */

static zk_lock_entry_t *
zk_lock_view_upto(zk_lock_view_t *view, int64_t seq)
{
    zk_lock_entry_t  *entry, *first;

    /* nearly always at the end, or just ahead of the first waiting claim */

    entry = view->alive.prev;
    first = view->waiting.waiting_next;

    if (first != &view->waiting && first->seq > seq) {
        entry = first->prev;
    }

    while (entry != &view->alive && entry->seq > seq) {
        entry = entry->prev;
    }

    return entry;
}


void
zk_lock_view_link(zk_lock_view_t *view, zk_lock_entry_t *entry)
{
    zk_lock_entry_t  *before;

    before = zk_lock_view_upto(view, entry->seq);

    entry->prev = before;
    entry->next = before->next;
    before->next->prev = entry;
    before->next = entry;

    entry->tick = ++view->tick;
    entry->linked = 1;
    entry->watched = 0;
    entry->renamed = 0;
    entry->listed = 0;

    view->nalive++;

    if (entry->origin == ZK_LOCK_LOCAL) {
        view->nlocal++;

        if (entry->waiting) {
            zk_lock_view_wait(view, entry);
        }

    } else {
        entry->waiting = 0;
    }
}


static void
zk_lock_view_wait(zk_lock_view_t *view, zk_lock_entry_t *entry)
{
    zk_lock_entry_t  *before;

    before = view->waiting.waiting_prev;

    while (before != &view->waiting && before->seq > entry->seq) {
        before = before->waiting_prev;
    }

    entry->waiting_prev = before;
    entry->waiting_next = before->waiting_next;
    before->waiting_next->waiting_prev = entry;
    before->waiting_next = entry;
}


static void
zk_lock_view_unlink(zk_lock_view_t *view, zk_lock_entry_t *entry)
{
    zk_lock_view_grant(view, entry);

    entry->prev->next = entry->next;
    entry->next->prev = entry->prev;
    entry->linked = 0;

    view->nalive--;

    if (entry->origin == ZK_LOCK_LOCAL) {
        view->nlocal--;
    }
}


void
zk_lock_view_pass(zk_lock_view_t *view)
{
    zk_lock_entry_t  *entry;

    for (entry = zk_lock_view_upto(view, view->complete_through)->next;
         entry != &view->alive;
         entry = entry->next)
    {
        if (entry->seq > view->complete_through + 1) {
            break;
        }

        if (entry->seq == view->complete_through + 1
            && entry->origin != ZK_LOCK_FOREIGN)
        {
            view->complete_through++;
        }
    }
}


void
zk_lock_view_doubt(zk_lock_view_t *view, zk_lock_entry_t *entry)
{
    if (entry->origin == ZK_LOCK_FOREIGN
        && entry->seq <= view->complete_through)
    {
        view->complete_through = entry->seq - 1;
    }
}


/*
 * Returns the nearest claim ahead that blocks waiter, or NULL.  *watch is the
 * nearest claim that still needs a watch for that, or NULL if none does.
 */

static zk_lock_entry_t *
zk_lock_view_blocker(zk_lock_view_t *view, zk_lock_entry_t *waiter,
    zk_lock_entry_t **watch)
{
    unsigned          n, seats;
    zk_lock_entry_t  *ahead, *nearest, *first;

    seats = 1;

    if (zk_lock_kind_base(waiter->kind) == ZK_LOCK_SEMAPHORE) {
        seats = zk_lock_kind_permits(waiter->kind);
    }

    n = 0;
    nearest = NULL;
    *watch = NULL;

    /* one step for a mutex or a writer; the remaining kinds may pass claims */

    for (ahead = waiter->prev; ahead != &view->alive; ahead = ahead->prev) {

        if (!zk_lock_view_blocks(ahead->kind, waiter->kind)) {
            continue;
        }

        if (nearest == NULL) {
            nearest = ahead;
        }

        if (ahead->origin != ZK_LOCK_LOCAL && !ahead->watched
            && *watch == NULL)
        {
            *watch = ahead;
        }

        if (!zk_lock_view_mixes(ahead->kind, waiter->kind)) {

            /*
             * A claim whose kind does not mix with the waiter's may be granted
             * yet, so this claim alone blocks.  When the claims ahead of this
             * claim are gone, this claim is first, which is a conflict.
             */

            first = view->alive.next;

            if (*watch == NULL && first->origin != ZK_LOCK_LOCAL
                && !first->watched)
            {
                *watch = first;
            }

            return nearest;
        }

        if (++n == seats) {
            return nearest;
        }
    }

    return NULL;
}
