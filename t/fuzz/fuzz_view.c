
/*
 * Lists of children, as ZooKeeper sends a list, and the view that follows.
 *
 * The truth is a plain array of names: of gateways, of Curator, of kazoo, and
 * of unknown clients.  Local claims join the array, foreign children come and
 * go, and a watch fires, or no event is sent.  The view gets a list when the
 * view needs a list, and now and then.  At each grant, and at each ZKL_NOTHING,
 * the truth says which claims have the turn.
 *
 * Some children are misnumbered: the name has a number of the future.
 *
 * - After a list, the view knows exactly the claims in the list, in order.
 * - A claim is granted exactly at the claim's turn: no claim ahead in the truth
 *   blocks the claim.  No two holders exclude each other.  A misnumbered claim
 *   is ahead of all claims that are made later, until the parent's counter has
 *   passed the number and the view has forgotten the claim.
 * - When all events have arrived, no claim waits that has the turn.
 */


#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "base/view.h"


#define CHILDREN    40
#define NAME        120


typedef struct {
    zkl_entry_t  entry;            /* of a local claim; first */
    char         name[NAME];
    size_t       len;
    int          claim;        /* the name is a claim's */
    int          ours;
    int          held;
    int          stray;        /* a list has shown a number of the future */
    int          counted;      /* a list has shown a number of the past */
    int64_t      at;           /* the parent's counter when the child came */
    uint64_t     who;          /* a hash of the name */
    zkl_child_t  child;
} child_t;


/* the view's entry of a foreign claim */

typedef struct {
    zkl_entry_t  entry;            /* must be first */
    uint64_t     who;
} other_t;


typedef struct {
    zkl_view_t  view;
    child_t    *children[CHILDREN];
    size_t      n;
    int64_t     next;         /* the parent's counter */
    size_t      entries;
} world_t;


static void act(world_t *w, fuzz_input_t *in);
static void join(world_t *w, zkl_mode_t mode);
static void arrive(world_t *w, fuzz_input_t *in);
static size_t some_name(world_t *w, char *name, fuzz_input_t *in);
static void downgrade(world_t *w, int later);
static void leave(world_t *w, size_t i);
static void lose(world_t *w, zkl_entry_t *entry);
static void resolve(world_t *w);
static void list(world_t *w);
static zkl_entry_t *make(void *data, zkl_observed_t *observed);
static void gone(void *data, zkl_entry_t *entry);
static void granted(world_t *w, zkl_entry_t *entry);
static int turn(world_t *w, zkl_entry_t *entry, int known);
static int ahead(child_t *c, zkl_entry_t *entry, int known);
static int conflict(world_t *w, zkl_entry_t *entry);
static int mixes(zkl_mode_t one, zkl_mode_t two);
static int blocks(zkl_mode_t ahead, zkl_mode_t behind);
static child_t *first_ahead(world_t *w, zkl_entry_t *entry, int stray);
static void check_rings(world_t *w);
static void check_list(world_t *w);
static void drop(world_t *w, size_t i);
static zkl_mode_t some_mode(fuzz_input_t *in);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t         i;
    unsigned       steps;
    world_t        w;
    fuzz_input_t   in;

    in.data = data;
    in.left = size;

    memset(&w, 0, sizeof(world_t));
    zkl_view_init(&w.view);

    for (steps = 0; in.left != 0 && steps < 200; steps++) {
        act(&w, &in);
        check_rings(&w);
    }

    resolve(&w);

    zkl_view_forget(&w.view, gone, &w);

    rule(w.entries == 0, "%zu entries were not given back", w.entries);
    rule(w.view.nalive == w.view.nlocal, "somebody is left");

    zkl_view_free(&w.view);

    for (i = 0; i < w.n; i++) {
        free(w.children[i]);
    }

    return 0;
}


static void
act(world_t *w, fuzz_input_t *in)
{
    size_t  i;

    switch (fuzz_below(in, 10)) {

    case 0:
    case 1:
        join(w, some_mode(in));
        resolve(w);
        break;

    case 2:
    case 3:
        arrive(w, in);
        break;

    case 4:
        if (w->n != 0) {
            i = fuzz_below(in, (unsigned) w->n);
            leave(w, i);
            resolve(w);
        }
        break;

    case 5:

        /* a list that is not needed, but only of a pinned parent, because a
           parent that is not pinned may have been made anew */

        if (w->view.nlocal != 0) {
            list(w);
            check_list(w);
            resolve(w);
        }
        break;

    case 6:

        /* an empty parent is reaped, and made anew */

        if (w->n == 0) {
            w->next = 0;

            if (w->view.watched) {
                w->view.watched = 0;
                zkl_view_forget(&w->view, gone, w);
            }
        }
        break;

    case 7:

        /* the parent is watched from now on, if a local claim is there */

        if (w->view.nlocal != 0) {
            w->view.watched = 1;
        }
        break;

    case 8:
        downgrade(w, fuzz_byte(in) & 1);
        resolve(w);
        break;

    default:

        /* a broken connection: the view forgets all; local claims are found */

        w->view.watched = 0;
        zkl_view_forget(&w->view, gone, w);
        list(w);
        check_list(w);
        resolve(w);
        break;
    }
}


/* a local claim */

static void
join(world_t *w, zkl_mode_t mode)
{
    child_t  *c;
    zkl_id_t  id;

    if (w->n == CHILDREN) {
        return;
    }

    c = calloc(1, sizeof(child_t));
    rule(c != NULL, "no memory");

    memset(&id, 7, sizeof(id));
    id.record = (uint32_t) w->next;

    c->len = zkl_name_claim_write(c->name, &id, mode, w->next);
    c->claim = 1;
    c->ours = 1;
    c->who = fuzz_hash(c->name, c->len);
    rule(zkl_name_child_read(&c->child, c->name, c->len) == 0, "no claim");

    c->entry.seq = w->next++;
    c->entry.mode = mode;

    w->children[w->n++] = c;

    if (zkl_view_create(&w->view, &c->entry, gone, w)) {
        list(w);
    }
}


/* a foreign child, of any name */

static void
arrive(world_t *w, fuzz_input_t *in)
{
    size_t        i;
    child_t      *c;
    zkl_entry_t  *e;

    if (w->n == CHILDREN) {
        return;
    }

    c = calloc(1, sizeof(child_t));
    rule(c != NULL, "no memory");

    c->len = some_name(w, c->name, in);
    c->claim = (zkl_name_child_read(&c->child, c->name, c->len) == 0);
    c->who = fuzz_hash(c->name, c->len);

    for (i = 0; i < w->n; i++) {
        if (w->children[i]->len == c->len
            && memcmp(w->children[i]->name, c->name, c->len) == 0)
        {
            free(c);
            return;
        }
    }

    /* no claim is inserted between others */

    if (c->claim && c->child.seq < w->next) {
        free(c);
        return;
    }

    c->at = w->next++;

    /* the view may not know yet that a child of the same name has gone */

    for (e = w->view.alive.next; e != &w->view.alive; e = e->next) {
        if (e->origin == ZKL_FOREIGN && ((other_t *) e)->who == c->who) {
            c->stray = e->misnumbered;
            c->counted = !e->misnumbered;
        }
    }

    w->children[w->n++] = c;
}


static size_t
some_name(world_t *w, char *name, fuzz_input_t *in)
{
    int             n;
    int64_t         seq;
    unsigned        layout;
    const uint8_t  *data;

    static const char  *const layouts[] = {
        "_c_00112233-4455-6677-8899-aabbccddeeff-lock-",
        "lock-",
        "0123456789abcdef0123456789abcdef__lock__",
        "0123456789abcdef0123456789abcdef__rlock__",
        "_c_00112233-4455-6677-8899-aabbccddeeff-__READ__",
        "_c_00112233-4455-6677-8899-aabbccddeeff-__WRIT__",
        "_c_00112233-4455-6677-8899-aabbccddeeff-member-",
        "_c_00112233-4455-6677-8899-aabbccddeeff-permit2-",
        "_c_00112233-4455-6677-8899-aabbccddeeff-permit3-",
        "_c_FFEEDDCC-4455-6677-8899-AABBCCDDEEFF-permit2-",
        "-permit2-",
        "x-lease-",
    };

    layout = fuzz_below(in, 14);

    if (layout >= 12) {
        n = (int) fuzz_bytes(in, &data, 100);
        memcpy(name, data, (size_t) n);

        return (size_t) n;
    }

    seq = w->next + (fuzz_below(in, 8) == 0 ? 1 + fuzz_below(in, 20) : 0);
    n = snprintf(name, NAME, "%s%010lld", layouts[layout], (long long) seq);

    return (size_t) n;
}


/*
 * A foreign exclusive holder shares the lock: a reader with the same seq takes
 * the place.  Curator's writer drops the old claim later, or at once; a gateway
 * renames the claim in a single step, and touches the parent.
 */

static void
downgrade(world_t *w, int later)
{
    child_t  *c, *holder;
    size_t    i;

    holder = first_ahead(w, NULL, 0);

    if (holder == NULL || w->n == CHILDREN || holder->ours
        || (holder->child.mode != ZKL_WRITE
            && holder->child.mode != ZKL_MUTEX))
    {
        return;
    }

    for (i = 0; i < w->n; i++) {
        if (w->children[i] != holder && w->children[i]->claim
            && w->children[i]->child.seq == holder->child.seq)
        {
            return;
        }
    }

    c = calloc(1, sizeof(child_t));
    rule(c != NULL, "no memory");

    c->len = (size_t) snprintf(c->name, NAME, "shared-__READ__%010lld",
                               (long long) holder->child.seq);
    c->who = fuzz_hash(c->name, c->len);
    c->claim = 1;
    rule(zkl_name_child_read(&c->child, c->name, c->len) == 0, "no claim");

    c->at = holder->at;
    c->counted = holder->counted;

    w->children[w->n++] = c;
    w->next++;

    if (holder->child.mode == ZKL_MUTEX) {
        w->view.watched = 0;
        later = 0;
    }

    for (i = 0; w->children[i] != holder; i++) {
        /* void */
    }

    if (!later) {
        leave(w, i);
    }
}


/*
 * A child goes: a local claim is released, the watch on a watched claim fires,
 * and any other child goes without an event.
 */

static void
leave(world_t *w, size_t i)
{
    child_t      *c;
    zkl_entry_t  *entry;

    c = w->children[i];

    if (c->ours) {
        if (c->entry.linked) {
            zkl_view_remove(&w->view, &c->entry);
        }

        drop(w, i);
        return;
    }

    entry = c->claim ? zkl_view_watched(&w->view, c->child.seq, c->child.mode,
                                        c->who)
                     : NULL;

    drop(w, i);

    if (entry != NULL) {
        lose(w, entry);
    }
}


static void
lose(world_t *w, zkl_entry_t *entry)
{
    zkl_view_remove(&w->view, entry);
    gone(w, entry);
}


/* takes the next step of the view, until no step is left */

static void
resolve(world_t *w)
{
    size_t         i, rounds;
    zkl_entry_t   *waiter, *blocker;
    zkl_verdict_e  verdict;

    for (rounds = 0; ; rounds++) {
        rule(rounds < 20 * CHILDREN, "it asks without end");

        check_rings(w);

        verdict = zkl_view_next(&w->view, &waiter, &blocker);

        switch (verdict) {

        case ZKL_NOTHING:
            if (waiter != NULL) {
                rule(!turn(w, waiter, 1), "claim %lld waits for nobody",
                     (long long) waiter->seq);
                rule(blocker != NULL, "for whom?");
            }
            return;

        case ZKL_GRANT:
            granted(w, waiter);
            break;

        case ZKL_WATCH:
            rule(blocker != NULL && blocker->origin != ZKL_LOCAL
                 && !blocker->watched && blocker->linked
                 && (blocker->misnumbered || blocker->seq <= waiter->seq),
                 "a watch on whom?");

            /* the watch is set, or the claim is gone */

            for (i = 0; i < w->n; i++) {
                if (w->children[i]->who == ((other_t *) blocker)->who) {
                    break;
                }
            }

            if (i == w->n) {
                lose(w, blocker);

            } else {
                blocker->watched = 1;
            }
            break;

        case ZKL_COMPLETE:
            list(w);
            check_list(w);
            break;

        default: /* ZKL_VIEW_CONFLICT */
            rule(conflict(w, waiter), "claim %lld is refused",
                 (long long) waiter->seq);

            for (i = 0; &w->children[i]->entry != waiter; i++) {
                /* void */
            }

            leave(w, i);
            break;
        }
    }
}


/* lists all children that are claims, not in order, as ZooKeeper does */

static void
list(world_t *w)
{
    size_t          i, n;
    child_t        *c;
    zkl_observed_t  children[CHILDREN];

    memset(children, 0, sizeof(children));

    for (i = w->n, n = 0; i-- != 0; /* void */ ) {
        c = w->children[i];

        if (!c->claim) {
            continue;
        }

        children[n].seq = c->child.seq;
        children[n].mode = c->child.mode;
        children[n].who = c->who;
        children[n].entry = c->ours ? &c->entry : NULL;
        children[n].data = c;

        if (c->ours && !c->entry.linked) {
            c->entry.waiting = !c->held;
        }

        n++;
    }

    rule(zkl_view_merge(&w->view, w->view.tick, w->next, children,
                        n, make, gone, w) == 0, "no memory");
}


static zkl_entry_t *
make(void *data, zkl_observed_t *observed)
{
    world_t *w = data;

    child_t  *c;
    other_t  *other;

    other = calloc(1, sizeof(other_t));
    rule(other != NULL, "no memory");

    c = observed->data;

    rule(!c->ours, "one of ours is made");
    rule(observed->misnumbered || c->child.seq < w->next, "which number?");

    c->stray = observed->misnumbered;
    c->counted = !observed->misnumbered;

    other->entry.origin = ZKL_FOREIGN;
    other->who = observed->who;
    w->entries++;

    return &other->entry;
}


static void
gone(void *data, zkl_entry_t *entry)
{
    world_t *w = data;

    rule(!entry->linked, "it is still there");

    if (entry->origin == ZKL_FOREIGN) {
        w->entries--;
        free(entry);
    }
}


static void
granted(world_t *w, zkl_entry_t *entry)
{
    size_t    i;
    child_t  *c, *other;

    c = (child_t *) entry;

    rule(!c->held && c->ours, "granted twice");
    rule(turn(w, entry, 0), "claim %lld is not its turn",
         (long long) entry->seq);

    for (i = 0; i < w->n; i++) {
        other = w->children[i];

        rule(!other->held || mixes(other->entry.mode, entry->mode),
             "%lld and %lld hold in two ways", (long long) other->entry.seq,
             (long long) entry->seq);
        rule(!other->held || entry->mode > ZKL_WRITE
             || (entry->mode == ZKL_READ
                 && other->entry.mode == ZKL_READ),
             "%lld and %lld hold", (long long) other->entry.seq,
             (long long) entry->seq);
    }

    c->held = 1;
    zkl_view_grant(entry);

    rule(zkl_view_holders(&w->view) != 0, "nobody holds");
}


/*
 * whether no claim ahead in the truth blocks the claim; known: misnumbered
 * claims that came later block, too, if a list has shown these
 */

static int
turn(world_t *w, zkl_entry_t *entry, int known)
{
    size_t    i;
    unsigned  n, capacity;
    child_t  *c;

    n = 0;
    capacity = ((entry->mode & 0xff) == ZKL_SEMAPHORE) ? entry->mode >> 8 : 1;

    for (i = 0; i < w->n; i++) {
        c = w->children[i];

        if (!ahead(c, entry, known) || !blocks(c->child.mode, entry->mode)) {
            continue;
        }

        if (!mixes(c->child.mode, entry->mode)) {
            return 0;
        }

        n++;
    }

    return n < capacity;
}


static int
ahead(child_t *c, zkl_entry_t *entry, int known)
{
    if (!c->claim) {
        return 0;
    }

    if (c->child.seq < entry->seq
        || (c->child.seq == entry->seq && known && !c->ours))
    {
        return 1;
    }

    return !c->ours
           && ((c->child.seq > c->at && !c->counted && c->at < entry->seq)
               || (known && c->stray));
}


/* whether the first claim is ahead, and has another use */

static int
conflict(world_t *w, zkl_entry_t *entry)
{
    size_t    i;
    child_t  *c, *first, *stray;

    first = first_ahead(w, entry, 0);
    stray = first_ahead(w, entry, 1);

    for (i = 0; i < w->n; i++) {
        c = w->children[i];

        /*
         * The last list need not have shown the misnumbered children; and with
         * these there are equal numbers, which have no order.
         */

        if (c->claim && !mixes(c->child.mode, entry->mode)
            && ((stray != NULL && c->child.seq == stray->child.seq)
                || (first != NULL && c->child.seq == first->child.seq)))
        {
            return 1;
        }
    }

    return 0;
}


/* the first claim ahead, or the first of the misnumbered claims */

static child_t *
first_ahead(world_t *w, zkl_entry_t *entry, int stray)
{
    size_t    i;
    child_t  *c, *first;

    first = NULL;

    for (i = 0; i < w->n; i++) {
        c = w->children[i];

        if (c->claim && c->stray == stray
            && (entry == NULL || ahead(c, entry, 1))
            && (first == NULL || c->child.seq < first->child.seq))
        {
            first = c;
        }
    }

    return first;
}


/* mutexes, readers and writers have the same use; else the mode is the use */

static int
mixes(zkl_mode_t one, zkl_mode_t two)
{
    return (one <= 2) ? two <= 2 : one == two;
}


static int
blocks(zkl_mode_t ahead, zkl_mode_t behind)
{
    if (!mixes(ahead, behind)) {
        return 1;
    }

    return !(ahead == ZKL_MEMBER || (ahead == ZKL_READ && behind == ZKL_READ));
}


static void
check_rings(world_t *w)
{
    size_t        n, local, waiting;
    zkl_entry_t  *e;

    n = 0;
    local = 0;
    waiting = 0;

    for (e = w->view.alive.next; e != &w->view.alive; e = e->next) {
        rule(e->linked && e->prev->next == e && e->next->prev == e, "ring");
        rule(e->prev == &w->view.alive
             || e->prev->misnumbered > e->misnumbered
             || (e->prev->misnumbered == e->misnumbered
                 && e->prev->seq <= e->seq), "order");

        n++;
        local += (e->origin == ZKL_LOCAL);
        waiting += e->waiting;

    }

    rule(n == 0 || zkl_view_position(&w->view, w->view.alive.prev)
                   == n - 1, "position");

    rule(n == w->view.nalive && local == w->view.nlocal, "%zu alive", n);

    for (e = w->view.waiting.waiting_next;
         e != &w->view.waiting;
         e = e->waiting_next)
    {
        rule(e->waiting && e->linked && e->origin == ZKL_LOCAL
             && e->waiting_prev->waiting_next == e, "ring of those who wait");
        rule(e->waiting_prev == &w->view.waiting
             || e->waiting_prev->seq <= e->seq, "their order");
        waiting--;
    }

    rule(waiting == 0, "%zu wait in no line", waiting);
}


/* right after a list, the view equals the list */

static void
check_list(world_t *w)
{
    size_t        i, n;
    child_t      *c;
    zkl_entry_t  *e;

    for (i = 0, n = 0; i < w->n; i++) {
        c = w->children[i];

        if (!c->claim) {
            continue;
        }

        n++;

        for (e = w->view.alive.next; e != &w->view.alive; e = e->next) {
            if (e == &c->entry
                || (!c->ours && e->origin == ZKL_FOREIGN
                    && ((other_t *) e)->who == c->who))
            {
                break;
            }
        }

        rule(e != &w->view.alive && e->seq == c->child.seq
             && e->mode == c->child.mode, "claim %lld is not known",
             (long long) c->child.seq);
        rule(e->misnumbered || e->seq <= w->view.complete_through,
             "it is not complete");
    }

    for (e = w->view.alive.next; e != &w->view.alive; e = e->next) {
        for (i = 0; i < w->n; i++) {
            c = w->children[i];

            if (c->claim && e->seq == c->child.seq && e->mode == c->child.mode)
            {
                n--;
                break;
            }
        }

        rule(i < w->n, "%lld is known, but not there", (long long) e->seq);
    }

    rule(n == 0, "%zu claims are not known", n);
}


static void
drop(world_t *w, size_t i)
{
    free(w->children[i]);

    for (w->n--; i < w->n; i++) {
        w->children[i] = w->children[i + 1];
    }
}


static zkl_mode_t
some_mode(fuzz_input_t *in)
{
    unsigned  mode;

    mode = fuzz_below(in, 7);

    return (mode < 4) ? mode
           : (mode < 6) ? zkl_semaphore(mode - 2) : ZKL_MUTEX;
}
