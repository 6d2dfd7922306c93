
/*
 * The view.  view.h has the rules; this file implements the rules with two
 * rings (all known claims, and the local waiters), complete_through, and
 * zkl_view_blocks().
 *
 * The view owns no memory: the caller owns the entries, and an entry leaves the
 * rings before the caller is told that the entry is gone.
 */


#include <string.h>
#include <stdlib.h>

#include "base/view.h"


static int64_t zkl_view_place(zkl_entry_t *entry);
static zkl_entry_t *zkl_view_upto(zkl_view_t *view, int64_t seq,
    zkl_entry_t *from);
static void zkl_view_link(zkl_view_t *view, zkl_entry_t *entry,
    zkl_entry_t *from);
static void zkl_view_unlink(zkl_view_t *view, zkl_entry_t *entry);
static void zkl_view_pass(zkl_view_t *view);
static zkl_entry_t *zkl_view_blocker(zkl_view_t *view, zkl_entry_t *waiter,
    zkl_entry_t **watch);
static int zkl_view_compare(const void *one, const void *two);
static int zkl_view_match(zkl_entry_t *entry, zkl_observed_t *observed);
static int zkl_view_note_misnumbered(zkl_view_t *view);
static int zkl_view_add(zkl_view_t *view, zkl_observed_t *s, int64_t given,
    zkl_entry_t *from, zkl_view_make_pt make, void *data);


void
zkl_view_init(zkl_view_t *view)
{
    memset(view, 0, sizeof(zkl_view_t));

    view->alive.prev = &view->alive;
    view->alive.next = &view->alive;

    view->waiting.waiting_prev = &view->waiting;
    view->waiting.waiting_next = &view->waiting;

    view->complete_through = -1;
}


void
zkl_view_free(zkl_view_t *view)
{
    free(view->misnumbered);

    view->misnumbered = NULL;
    view->nmisnumbered = 0;
}


int
zkl_view_create(zkl_view_t *view, zkl_entry_t *entry, zkl_view_gone_pt gone,
    void *data)
{
    int  backwards;

    backwards = 0;

    if (!view->watched && view->nlocal == 0) {
        zkl_view_forget(view, gone, data);
    }

    if (entry->seq <= view->complete_through
        || (view->nalive != 0
            && entry->seq <= zkl_view_place(view->alive.prev)))
    {
        view->watched = 0;
        view->complete_through = -1;
        backwards = (view->nalive != 0);
    }

    if (!backwards && entry->seq == view->complete_through + 1) {
        view->complete_through = entry->seq;
    }

    entry->origin = ZKL_LOCAL;
    entry->waiting = 1;
    entry->misnumbered = 0;

    zkl_view_link(view, entry, NULL);

    return backwards;
}


void
zkl_view_learn(zkl_view_t *view, zkl_entry_t *entry)
{
    view->complete_through++;

    if (entry != NULL) {
        entry->misnumbered = 0;
        zkl_view_link(view, entry, NULL);
    }

    zkl_view_pass(view);
}


void
zkl_view_remove(zkl_view_t *view, zkl_entry_t *entry)
{
    if (!entry->linked) {
        return;
    }

    zkl_view_unlink(view, entry);

    /* a claim that is gone may have left another claim in the same place */

    if (entry->origin == ZKL_FOREIGN
        && zkl_view_place(entry) <= view->complete_through
        && (entry->mode == ZKL_WRITE || !view->watched || !entry->watched))
    {
        view->complete_through = zkl_view_place(entry) - 1;
    }
}


void
zkl_view_grant(zkl_entry_t *entry)
{
    if (!entry->waiting) {
        return;
    }

    entry->waiting_prev->waiting_next = entry->waiting_next;
    entry->waiting_next->waiting_prev = entry->waiting_prev;
    entry->waiting = 0;
}


zkl_verdict_e
zkl_view_next(zkl_view_t *view, zkl_entry_t **waiter, zkl_entry_t **blocker)
{
    zkl_entry_t    *ahead, *watch;
    zkl_verdict_e   verdict;

    *waiter = view->waiting.waiting_next;
    *blocker = NULL;

    if (*waiter == &view->waiting) {
        *waiter = NULL;
        return ZKL_NOTHING;
    }

    verdict = zkl_view_conflict(view, *waiter);

    if (verdict != ZKL_NOTHING) {
        *blocker = (verdict == ZKL_WATCH) ? view->alive.next : NULL;
        return verdict;
    }

    ahead = zkl_view_blocker(view, *waiter, &watch);

    if (ahead != NULL) {
        *blocker = watch ? watch : ahead;
        return watch ? ZKL_WATCH : ZKL_NOTHING;
    }

    if (zkl_view_place(*waiter) > view->complete_through) {
        return ZKL_COMPLETE;
    }

    return ZKL_GRANT;
}


void
zkl_view_forget(zkl_view_t *view, zkl_view_gone_pt gone, void *data)
{
    zkl_entry_t  *entry, *next;

    for (entry = view->alive.next; entry != &view->alive; entry = next) {
        next = entry->next;

        if (entry->origin != ZKL_LOCAL) {
            zkl_view_unlink(view, entry);
            gone(data, entry);
        }
    }

    view->complete_through = -1;
}


void
zkl_view_keep(zkl_view_t *view, size_t n, zkl_view_gone_pt gone, void *data)
{
    zkl_entry_t  *entry;

    while (view->nalive > n) {
        entry = view->alive.prev;

        if (zkl_view_place(entry) <= view->complete_through) {
            view->complete_through = zkl_view_place(entry) - 1;
        }

        zkl_view_unlink(view, entry);

        gone(data, entry);
    }
}


size_t
zkl_view_position(zkl_view_t *view, zkl_entry_t *entry)
{
    size_t  n;

    n = 0;

    for (entry = entry->prev; entry != &view->alive; entry = entry->prev) {
        n++;
    }

    return n;
}


size_t
zkl_view_holders(zkl_view_t *view)
{
    size_t          n;
    zkl_entry_t    *entry;
    zkl_holders_t   holders;

    n = 0;
    memset(&holders, 0, sizeof(zkl_holders_t));

    for (entry = view->alive.next;
         entry != &view->alive && zkl_view_count(&holders, entry->mode);
         entry = entry->next)
    {
        n++;
    }

    return n;
}


zkl_entry_t *
zkl_view_first(zkl_view_t *view)
{
    return (view->nalive != 0) ? view->alive.next : NULL;
}


zkl_entry_t *
zkl_view_after(zkl_view_t *view, zkl_entry_t *entry)
{
    return (entry->next != &view->alive) ? entry->next : NULL;
}


int
zkl_view_knows(zkl_view_t *view, int64_t seq)
{
    zkl_entry_t  *entry;

    entry = zkl_view_upto(view, seq, NULL);

    return entry != &view->alive && !entry->misnumbered && entry->seq == seq;
}


int
zkl_view_blocks(zkl_mode_t ahead, zkl_mode_t behind)
{
    if (behind == ZKL_MEMBER) {
        return ahead != ZKL_MEMBER;
    }

    return ahead != ZKL_READ || behind != ZKL_READ;
}


int
zkl_view_mixes(zkl_mode_t one, zkl_mode_t two)
{
    return one == two || (one <= ZKL_WRITE && two <= ZKL_WRITE);
}


size_t
zkl_view_capacity(zkl_mode_t mode)
{
    if (mode == ZKL_MEMBER) {
        return SIZE_MAX;
    }

    return (zkl_mode_base(mode) == ZKL_SEMAPHORE) ? zkl_mode_permits(mode) : 1;
}


int
zkl_view_count(zkl_holders_t *holders, zkl_mode_t mode)
{
    if (holders->n == 0) {
        holders->first = mode;
        holders->mixes = 1;
        holders->readers = 1;
    }

    holders->mixes &= (zkl_view_mixes(holders->first, mode) != 0);
    holders->readers &= (mode == ZKL_READ);

    return (holders->n++ < zkl_view_capacity(mode) || holders->readers)
           && holders->mixes;
}


zkl_verdict_e
zkl_view_conflict(zkl_view_t *view, zkl_entry_t *entry)
{
    zkl_entry_t  *first;

    first = view->alive.next;

    if (!entry->linked || first == entry
        || zkl_view_mixes(first->mode, entry->mode))
    {
        return ZKL_NOTHING;
    }

    if (!first->misnumbered && first->seq > view->complete_through) {
        return ZKL_COMPLETE;
    }

    /* the first claim may be gone: without a watch, no event tells */

    if (first->origin != ZKL_LOCAL && !first->watched) {
        return ZKL_WATCH;
    }

    return ZKL_VIEW_CONFLICT;
}


zkl_entry_t *
zkl_view_watched(zkl_view_t *view, int64_t seq, zkl_mode_t mode, uint64_t who)
{
    zkl_entry_t  *entry;

    /* watched claims are ahead of the first local waiter, and mostly near */

    entry = view->waiting.waiting_next;
    entry = (entry != &view->waiting) ? entry->prev : view->alive.prev;

    for ( /* void */ ; entry != &view->alive; entry = entry->prev) {

        if (entry->seq == seq && entry->mode == mode && entry->who == who
            && entry->watched)
        {
            return entry;
        }
    }

    return NULL;
}


/* Misnumbered claims come before all, so these count as if of seq 0. */

static int64_t
zkl_view_place(zkl_entry_t *entry)
{
    return entry->misnumbered ? 0 : entry->seq;
}


/*
 * Returns the last known claim up to seq, or the ring's head.  from is a claim
 * to begin with that is not misnumbered, or NULL.
 */

static zkl_entry_t *
zkl_view_upto(zkl_view_t *view, int64_t seq, zkl_entry_t *from)
{
    zkl_entry_t  *entry, *first;

    if (from != NULL && from->seq <= seq) {

        while (from->next != &view->alive && from->next->seq <= seq) {
            from = from->next;
        }

        return from;
    }

    /* mostly the last claim, or the claim ahead of the first waiter */

    entry = view->alive.prev;
    first = view->waiting.waiting_next;

    if (first != &view->waiting && first->seq > seq && !first->misnumbered) {
        entry = first->prev;
    }

    while (entry != &view->alive && !entry->misnumbered && entry->seq > seq) {
        entry = entry->prev;
    }

    return entry;
}


/* Links an entry by seq; a local entry with waiting set waits. */

static void
zkl_view_link(zkl_view_t *view, zkl_entry_t *entry, zkl_entry_t *from)
{
    zkl_entry_t  *before;

    if (entry->misnumbered) {
        before = &view->alive;

        while (before->next != &view->alive && before->next->misnumbered
               && before->next->seq <= entry->seq)
        {
            before = before->next;
        }

    } else {
        before = zkl_view_upto(view, entry->seq, from);
    }

    entry->prev = before;
    entry->next = before->next;
    before->next->prev = entry;
    before->next = entry;

    entry->tick = ++view->tick;
    entry->linked = 1;
    entry->watched = 0;

    view->nalive++;

    if (entry->origin != ZKL_LOCAL) {
        entry->waiting = 0;
        return;
    }

    view->nlocal++;

    if (!entry->waiting) {
        return;
    }

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
zkl_view_unlink(zkl_view_t *view, zkl_entry_t *entry)
{
    zkl_view_grant(entry);

    entry->prev->next = entry->next;
    entry->next->prev = entry->prev;
    entry->linked = 0;

    view->nalive--;

    if (entry->origin == ZKL_LOCAL) {
        view->nlocal--;
    }
}


/*
 * Moves complete_through over claims that are known already.  A foreign claim
 * stops the move, because the claim may be a reader of a writer that is gone,
 * and the writer may have left another reader.
 */

static void
zkl_view_pass(zkl_view_t *view)
{
    zkl_entry_t  *entry;

    for (entry = zkl_view_upto(view, view->complete_through, NULL)->next;
         entry != &view->alive && entry->seq <= view->complete_through + 1;
         entry = entry->next)
    {
        if (entry->seq == view->complete_through + 1
            && entry->origin != ZKL_FOREIGN)
        {
            view->complete_through++;
        }
    }
}


/*
 * Returns the nearest claim ahead that blocks waiter, or NULL.  *watch is the
 * nearest claim that still needs a watch for that, or NULL if none does.
 */

static zkl_entry_t *
zkl_view_blocker(zkl_view_t *view, zkl_entry_t *waiter, zkl_entry_t **watch)
{
    size_t        n, capacity;
    zkl_entry_t  *ahead, *nearest, *first;

    capacity = zkl_view_capacity(waiter->mode);
    n = 0;
    nearest = NULL;
    *watch = NULL;

    /* one step for a mutex or a writer; the remaining modes may pass claims */

    for (ahead = waiter->prev; ahead != &view->alive; ahead = ahead->prev) {

        if (!zkl_view_blocks(ahead->mode, waiter->mode)) {
            continue;
        }

        if (nearest == NULL) {
            nearest = ahead;
        }

        if (ahead->origin != ZKL_LOCAL && !ahead->watched && *watch == NULL) {
            *watch = ahead;
        }

        if (!zkl_view_mixes(ahead->mode, waiter->mode)) {

            /*
             * A claim whose mode does not mix with the waiter's may be granted
             * yet, so this claim alone blocks.  When the claims ahead of this
             * claim are gone, this claim is first, which is a conflict.
             */

            first = view->alive.next;

            if (*watch == NULL && first->origin != ZKL_LOCAL
                && !first->watched)
            {
                *watch = first;
            }

            return nearest;
        }

        if (++n == capacity) {
            return nearest;
        }
    }

    return NULL;
}


/*
 * The merge of a list of children into the view.
 *
 * An entry that the list does not show is gone if the list is younger than the
 * entry: the parent had given the seq when the list was made, or the entry was
 * known on this session when the list was sent, so that the tick of the entry
 * is not above that of the list.  The second reason does not hold for a
 * sibling, because a sibling may be known from another session.
 */


int
zkl_view_merge(zkl_view_t *view, uint64_t tick, int64_t given,
    zkl_observed_t *children, size_t n, zkl_view_make_pt make,
    zkl_view_gone_pt gone, void *data)
{
    int           listed;
    size_t        i, first;
    zkl_entry_t  *entry, *next, *from;

    if (n > 1) {
        qsort(children, n, sizeof(zkl_observed_t), zkl_view_compare);
    }

    first = 0;

    for (entry = view->alive.next; entry != &view->alive; entry = next) {
        next = entry->next;
        listed = 0;

        if (first != 0 && children[first - 1].seq >= entry->seq) {
            /* the misnumbered claims have ended: the order begins again */
            first = 0;
        }

        while (first < n && children[first].seq < entry->seq) {
            first++;
        }

        /* a downgraded writer and its reader share a seq */

        for (i = first; i < n && children[i].seq == entry->seq; i++) {

            if (zkl_view_match(entry, &children[i])) {
                children[i].entry = entry;
                listed = 1;
            }
        }

        /* a sibling may be known from another session than the list's */

        if (!listed
            && (entry->seq < given
                || ((entry->origin != ZKL_SIBLING || entry->misnumbered)
                    && entry->tick <= tick)))
        {
            zkl_view_unlink(view, entry);
            gone(data, entry);
        }
    }

    view->complete_through = -1;
    from = NULL;

    for (i = 0; i < n; i++) {

        if (zkl_view_add(view, &children[i], given, from, make, data) != 0) {
            return -1;
        }

        entry = children[i].entry;

        if (entry != NULL && entry->linked && !entry->misnumbered) {
            from = entry;
        }
    }

    if (zkl_view_note_misnumbered(view) != 0) {
        return -1;
    }

    view->complete_through = given - 1;

    zkl_view_pass(view);

    return 0;
}


static int
zkl_view_compare(const void *one, const void *two)
{
    const zkl_observed_t  *a, *b;

    a = one;
    b = two;

    if (a->seq != b->seq) {
        return (a->seq < b->seq) ? -1 : 1;
    }

    return (int) b->mode - (int) a->mode;
}


/* Whether a listed child is the claim of an entry with the same seq. */

static int
zkl_view_match(zkl_entry_t *entry, zkl_observed_t *observed)
{
    if (entry->origin == ZKL_LOCAL || observed->entry != NULL) {
        return observed->entry == entry;
    }

    return !observed->gone && observed->who == entry->who
           && observed->mode == entry->mode;
}


/*
 * Links the entry of a listed child, unless it is linked.  from is the claim of
 * a child before, or NULL.
 */

static int
zkl_view_add(zkl_view_t *view, zkl_observed_t *s, int64_t given,
    zkl_entry_t *from, zkl_view_make_pt make, void *data)
{
    zkl_entry_t  *entry;

    if (s->gone || (s->entry != NULL && s->entry->linked)) {
        return 0;
    }

    s->misnumbered = (s->seq >= given || zkl_view_misnumbered(view, s));

    if (s->entry != NULL) {
        entry = s->entry;
        entry->origin = ZKL_LOCAL;

    } else {

        /* the parent may have given that seq to a local claim */

        for (entry = zkl_view_upto(view, s->seq, from);
             entry != &view->alive && !entry->misnumbered
             && entry->seq == s->seq;
             entry = entry->prev)
        {
            s->misnumbered |= (entry->origin == ZKL_LOCAL);
        }

        entry = make(data, s);
        if (entry == NULL) {
            return -1;
        }

        s->entry = entry;
    }

    entry->seq = s->seq;
    entry->mode = s->mode;
    entry->who = s->who;
    entry->misnumbered = s->misnumbered;

    zkl_view_link(view, entry, from);

    return 0;
}


int
zkl_view_misnumbered(zkl_view_t *view, zkl_observed_t *s)
{
    size_t  i;

    for (i = 0; i < view->nmisnumbered; i++) {

        if (view->misnumbered[i].seq == s->seq
            && view->misnumbered[i].who == s->who)
        {
            return 1;
        }
    }

    return 0;
}


/* Notes the misnumbered claims, which are the first, for the next list. */

static int
zkl_view_note_misnumbered(zkl_view_t *view)
{
    size_t              n;
    zkl_entry_t        *entry;
    zkl_misnumbered_t  *all;

    n = 0;

    for (entry = view->alive.next;
         entry != &view->alive && entry->misnumbered;
         entry = entry->next)
    {
        n++;
    }

    if (n > view->nmisnumbered) {
        all = realloc(view->misnumbered, n * sizeof(zkl_misnumbered_t));
        if (all == NULL) {
            return -1;
        }

        view->misnumbered = all;
    }

    view->nmisnumbered = n;

    for (n = 0, entry = view->alive.next; n < view->nmisnumbered; n++) {
        view->misnumbered[n].seq = entry->seq;
        view->misnumbered[n].who = entry->who;
        entry = entry->next;
    }

    return 0;
}
