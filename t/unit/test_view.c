
/*
 * The view's rules, a script for each: proofs that no claim is ahead, the end
 * of a proof, the claim that the first waiter watches, conclusions from a list.
 *
 * A script is a row of steps with ';' behind each.  A step is a verb and words.
 * With "each A|B;" in front, the script runs with A and with B in place of '?'.
 *
 *   create CLAIM...   local claims are created, with the seq of the answers
 *   anew CLAIM        the same, and the seq shows a new parent
 *   learn CLAIM...    siblings' claims become known without a list
 *   lost              the next claim is gone, and this becomes known
 *   list CLAIM...     a list of all children; its origins: "g" is gone already,
 *                     "l" or "L" is a local claim (in the view, or found: "L"
 *                     waits); "/N" is what the parent has given, else as many
 *                     as the list shows
 *   sent, late ...    the time when a list is sent, and the list that comes
 *   memory N, fail    new entries that can be made; a list that needs more
 *   drop CLAIM...     a claim is gone: if not local, a watch has told
 *   miss CLAIM        a claim is gone, and no watch has told
 *   becomes CLAIM     a claim has another mode now
 *   set, clear CLAIM  the claim is watched, or not
 *   pin, unpin        a watch on the parent is set, or lost
 *   forget, keep N    zkl_view_forget(), zkl_view_keep()
 *
 * What zkl_view_next() returns:
 *
 *   grant W           the waiter W has the lock (and then it holds the lock)
 *   needs W B         claim B has to be watched
 *   watch W B         the same, and B is watched then
 *   unknown W         a list is needed
 *   conflict W        the lock has another use
 *   wait W, idle      nothing to do: W waits, or no claim waits
 *
 * What else is compared:
 *
 *   is CLAIM...       all claims of the view, in order
 *   gone CLAIM...     the claims that the view gave back; none is left out
 *   thru N            complete_through
 *   pinned N          whether the view believes in the watch on the parent
 *   told N CLAIM...   the watched claims with seq N, the last first
 *   held CLAIM...     the claims that hold the lock
 *
 * A CLAIM is an origin (l, s, f for local, sibling, foreign; L waits), a seq, a
 * mode (none or x: mutex, r: read, w: write, m: member, p3: 3 permits), then !
 * if watched, * if misnumbered, ' if of another client.  After each step,
 * check_view() compares whatever follows from the claims that are known.
 */


#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/view.h"


#define ENTRIES  32
#define WORDS    12

#define every(entry, view)                                                    \
    for (entry = (view)->alive.next; entry != &(view)->alive;                 \
         entry = entry->next)

#define count(array)  (sizeof(array) / sizeof((array)[0]))

#define check(world, condition)                                               \
    if (!(condition)) {                                                       \
        failed(world, #condition);                                            \
    }


typedef struct {
    const char  *name;
    const char  *script;
} row_t;


typedef struct {
    zkl_view_t    view;
    zkl_entry_t   entries[ENTRIES];
    size_t        nentries;
    size_t        nout;         /* of these, not in the view */

    zkl_entry_t  *gone[ENTRIES];
    size_t        ngone;

    size_t        can_make;
    int           stray[ENTRIES];   /* made as misnumbered */
    uint64_t      sent;

    const row_t  *row;
    char          step[256];
} world_t;


typedef struct {
    zkl_entry_t  entry;     /* seq, mode, who, and the bits */
    char         origin;    /* or '\0' */
    int          any_mode;
} claim_t;


typedef struct {
    size_t   n;
    claim_t  claims[WORDS];
    int64_t  given;     /* of "/N", else -1 */
} words_t;


static const zkl_mode_t  modes[] = {
    ZKL_MUTEX, ZKL_READ, ZKL_WRITE, ZKL_MEMBER, zkl_semaphore(1),
    zkl_semaphore(2), zkl_semaphore(ZKL_PERMITS_MAX)
};


/* texts of claims */

static void
print_claim(char *text, zkl_entry_t *entry)
{
    char  mode[16];

    if (zkl_mode_base(entry->mode) == ZKL_SEMAPHORE) {
        sprintf(mode, "p%u", (unsigned) zkl_mode_permits(entry->mode));

    } else {
        sprintf(mode, "%.*s", entry->mode != ZKL_MUTEX, "xrwm" + entry->mode);
    }

    sprintf(text, " %c%d%s%s%s%s", "lsfLSF"[entry->origin + 3 * entry->waiting],
            (int) entry->seq, mode, entry->watched ? "!" : "",
            entry->misnumbered ? "*" : "", entry->who == 9 ? "'" : "");
}


static claim_t
read_claim(const char *word)
{
    char     *end;
    claim_t   claim;

    memset(&claim, 0, sizeof(claim_t));

    claim.any_mode = 1;
    claim.origin = strchr("lLsfg", *word) ? *word++ : '\0';
    claim.entry.seq = strtol(word, &end, 10);
    assert_true(end != word);

    if (*end != '\0' && strchr("xrwmp", *end)) {
        claim.any_mode = 0;
        claim.entry.mode = strchr("xrwmp", *end) - "xrwmp";

        if (*end++ == 'p') {
            claim.entry.mode = zkl_semaphore(strtol(end, &end, 10));
        }
    }

    for ( /* void */ ; *end != '\0'; end++) {
        assert_non_null(strchr("!*'", *end));

        claim.entry.watched |= (*end == '!');
        claim.entry.misnumbered |= (*end == '*');
        claim.entry.who = (*end == '\'') ? 9 : claim.entry.who;
    }

    claim.entry.origin = (claim.origin == 's') ? ZKL_SIBLING
                         : (claim.origin == 'f') ? ZKL_FOREIGN : ZKL_LOCAL;
    claim.entry.waiting = (claim.origin == 'L');

    return claim;
}


static void
failed(world_t *world, const char *what)
{
    char          text[ENTRIES * 32];
    zkl_entry_t  *entry;

    text[0] = '\0';

    every(entry, &world->view) {
        print_claim(text + strlen(text), entry);
    }

    fail_msg("%s: at \"%s\": not %s; the view:%s", world->row->name,
             world->step, what, text);
}


/* Returns the last claim with that seq, of that mode if claim has a mode. */

static zkl_entry_t *
search(world_t *world, claim_t *claim)
{
    zkl_entry_t  *entry;

    for (entry = world->view.alive.prev;
         entry != &world->view.alive;
         entry = entry->prev)
    {
        if (entry->seq == claim->entry.seq
            && (claim->any_mode || entry->mode == claim->entry.mode)
            && (!claim->origin
                || (entry->origin == ZKL_LOCAL)
                   == (strchr("lL", claim->origin) != NULL)))
        {
            return entry;
        }
    }

    return NULL;
}


static zkl_entry_t *
find(world_t *world, claim_t *claim)
{
    zkl_entry_t  *entry;

    entry = search(world, claim);
    check(world, entry != NULL);

    return entry;
}


/* the functions that the view calls */

static void
gone(void *data, zkl_entry_t *entry)
{
    world_t  *world = data;

    check(world, !entry->linked);
    check(world, world->ngone < ENTRIES);

    world->nout++;
    world->gone[world->ngone++] = entry;
}


static zkl_entry_t *
new_entry(world_t *world, claim_t *claim)
{
    zkl_entry_t  *entry;

    check(world, world->nentries < ENTRIES);

    entry = &world->entries[world->nentries++];

    /* the view must not read a member that nobody has set */

    memset(entry, 0xee, sizeof(zkl_entry_t));
    entry->linked = 0;
    entry->waiting = 0;

    if (claim != NULL) {
        entry->seq = claim->entry.seq;
        entry->mode = claim->entry.mode;
        entry->who = claim->entry.who;
    }

    return entry;
}


static zkl_entry_t *
make(void *data, zkl_observed_t *observed)
{
    world_t      *world = data;
    zkl_entry_t  *entry;

    check(world, observed->entry == NULL && !observed->gone);

    if (world->can_make == 0) {
        return NULL;
    }

    world->can_make--;

    entry = new_entry(world, NULL);
    world->stray[entry - world->entries] = observed->misnumbered;
    entry->origin = (observed->data != NULL) ? ZKL_SIBLING : ZKL_FOREIGN;
    entry->waiting = 1;

    return entry;
}


/* what the functions of view.h have to say of the claims that are known */

static void
check_view(world_t *world)
{
    size_t        i, n = 0, nlocal = 0, nwaiting = 0;
    int64_t       seq;
    zkl_view_t   *view = &world->view;
    zkl_entry_t  *entry, *last;

    int  known[ENTRIES] = { 0 };

    check(world, zkl_view_first(view)
                 == (view->nalive != 0 ? view->alive.next : NULL));

    every(entry, &world->view) {
        check(world, entry->linked);
        check(world, entry->next->prev == entry);
        check(world, zkl_view_position(view, entry) == n);
        check(world, zkl_view_after(view, entry)
                     == (n + 1 < view->nalive ? entry->next : NULL));

        nlocal += (entry->origin == ZKL_LOCAL);
        nwaiting += entry->waiting;
        n++;

        if (entry->seq < ENTRIES && !entry->misnumbered) {
            known[entry->seq] = 1;
        }
    }

    check(world, view->nalive == n);
    check(world, view->nlocal == nlocal);
    check(world, world->nentries - world->nout == n);

    for (seq = 0; seq < ENTRIES; seq++) {
        check(world, zkl_view_knows(view, seq) == known[seq]);
    }

    for (i = 0; i < world->nentries; i++) {
        entry = &world->entries[i];

        check(world, entry->linked || !zkl_view_conflict(view, entry));
        check(world, entry->origin == ZKL_LOCAL
                     || entry->misnumbered == world->stray[i]);
    }

    last = &view->waiting;

    for (entry = view->waiting.waiting_next;
         entry != &view->waiting;
         entry = entry->waiting_next)
    {
        check(world, entry->linked && entry->waiting);
        check(world, entry->origin == ZKL_LOCAL);
        check(world, entry->waiting_prev == last);
        check(world, last == &view->waiting || last->seq <= entry->seq);

        last = entry;
        nwaiting--;
    }

    check(world, nwaiting == 0);
}


static void
next(world_t *world, zkl_verdict_e verdict, claim_t *waiter, claim_t *blocker)
{
    zkl_entry_t    *first, *ahead, *nearest;
    zkl_verdict_e   got;

    got = zkl_view_next(&world->view, &first, &ahead);

    check(world, got == verdict);
    check(world, (waiter != NULL) == (first != NULL));
    check(world, waiter == NULL || first == find(world, waiter));

    if (verdict == ZKL_NOTHING && waiter != NULL) {
        nearest = first->prev;

        while (nearest != &world->view.alive
               && !zkl_view_blocks(nearest->mode, first->mode))
        {
            nearest = nearest->prev;
        }

        check(world, ahead == nearest);
        check(world, ahead->origin == ZKL_LOCAL || ahead->watched);
        return;
    }

    check(world, ahead == (blocker ? find(world, blocker) : NULL));

    if (first != NULL && verdict != ZKL_WATCH && verdict != ZKL_COMPLETE) {
        check(world, (zkl_view_conflict(&world->view, first) != ZKL_NOTHING)
                     == (verdict == ZKL_VIEW_CONFLICT));
    }
}


/* the verbs */

static void
list(world_t *world, words_t *words, uint64_t tick, int result)
{
    size_t           i;
    int64_t          given;
    claim_t         *claim;
    zkl_entry_t     *entry;
    zkl_observed_t   children[WORDS], *child;

    memset(children, 0, sizeof(children));
    given = 0;

    for (i = 0; i < words->n; i++) {
        claim = &words->claims[i];
        child = &children[i];

        child->seq = claim->entry.seq;
        child->mode = claim->entry.mode;
        child->who = claim->entry.who;
        child->gone = (claim->origin == 'g');
        child->data = (claim->origin == 's') ? world : NULL;

        if (claim->origin == 'l' || claim->origin == 'L') {
            entry = search(world, claim);

            if (entry == NULL) {
                entry = new_entry(world, NULL);
                entry->waiting = claim->entry.waiting;

            } else {
                child->mode = entry->mode;
            }

            child->entry = entry;
        }

        if (child->seq >= given) {
            given = child->seq + 1;
        }
    }

    if (words->given != -1) {
        given = words->given;
    }

    check(world, zkl_view_merge(&world->view, tick, given, children, words->n,
                                make, gone, world) == result);
}


/* Finds the claims that a comparison is about.  Returns the number. */

static size_t
gather(world_t *world, const char *verb, int64_t seq, zkl_entry_t **found)
{
    int            all;
    size_t         n;
    zkl_view_t    *view = &world->view;
    zkl_entry_t   *entry;
    zkl_holders_t  holders;

    memset(&holders, 0, sizeof(zkl_holders_t));
    all = (strcmp(verb, "is") == 0);
    n = 0;
    entry = NULL;

    if (strcmp(verb, "told") == 0) {
        for (entry = view->alive.prev;
             entry != &view->alive;
             entry = entry->prev)
        {
            if (zkl_view_watched(view, seq, entry->mode, entry->who) == entry) {
                found[n++] = entry;
            }
        }

        return n;
    }

    every(entry, &world->view) {
        if (all || zkl_view_count(&holders, entry->mode)) {
            found[n++] = entry;
        }
    }

    if (!all) {
        check(world, zkl_view_holders(view) == n);
    }

    return n;
}


static void
compare(world_t *world, zkl_entry_t **found, size_t n, claim_t *claims,
    size_t nclaims, int whole)
{
    char          got[32], wanted[32];
    size_t        i;
    zkl_entry_t  *entry;

    check(world, n == nclaims);

    for (i = 0; i < n; i++) {
        entry = &claims[i].entry;

        if (whole) {
            print_claim(got, found[i]);
            print_claim(wanted, entry);

            check(world, strcmp(got, wanted) == 0);
        }

        check(world, found[i]->seq == entry->seq);
        check(world, claims[i].any_mode || found[i]->mode == entry->mode);
        check(world, (found[i]->who == 9) == (entry->who == 9));
    }
}


static void
run_verb(world_t *world, const char *verb, words_t *words)
{
    size_t        i;
    int64_t       n;
    claim_t      *claim = words->claims;
    zkl_view_t   *view = &world->view;
    zkl_entry_t  *entry, *found[ENTRIES];

    static const struct {
        const char     *verb;
        zkl_verdict_e   verdict;
    } verdicts[] = {
        { "grant", ZKL_GRANT }, { "needs", ZKL_WATCH }, { "watch", ZKL_WATCH },
        { "unknown", ZKL_COMPLETE }, { "conflict", ZKL_VIEW_CONFLICT },
        { "wait", ZKL_NOTHING }, { "idle", ZKL_NOTHING }, { NULL, 0 }
    };

#define verb(name)  (strcmp(verb, name) == 0)
#define each()      for (i = 0; i < words->n; i++)

    n = claim->entry.seq;

    if (verb("create") || verb("anew")) {
        each() {
            check(world, zkl_view_create(view, new_entry(world, &claim[i]),
                                         gone, world) == verb("anew"));
        }
    } else if (verb("learn")) {
        each() {
            check(world, claim[i].entry.seq == view->complete_through + 1);

            entry = new_entry(world, &claim[i]);
            entry->origin = ZKL_SIBLING;
            entry->waiting = 1;
            zkl_view_learn(view, entry);
        }
    } else if (verb("lost")) {
        zkl_view_learn(view, NULL);
    } else if (verb("list") || verb("fail")) {
        list(world, words, view->tick, verb("list") ? 0 : -1);
    } else if (verb("late")) {
        list(world, words, world->sent, 0);
    } else if (verb("sent")) {
        world->sent = view->tick;
    } else if (verb("memory")) {
        world->can_make = n;
    } else if (verb("drop") || verb("miss")) {
        each() {
            entry = find(world, &claim[i]);
            entry->watched = verb("drop") && entry->origin != ZKL_LOCAL;
            zkl_view_remove(view, entry);
            zkl_view_remove(view, entry);       /* changes nothing */
            world->nout++;
        }
    } else if (verb("becomes")) {
        claim->any_mode = 1;
        find(world, claim)->mode = claim->entry.mode;
    } else if (verb("set") || verb("clear")) {
        find(world, claim)->watched = verb("set");
    } else if (verb("pin") || verb("unpin")) {
        view->watched = verb("pin");
    } else if (verb("forget")) {
        zkl_view_forget(view, gone, world);
    } else if (verb("keep")) {
        zkl_view_keep(view, n, gone, world);
    } else if (verb("is") || verb("held")) {
        i = gather(world, verb, -1, found);
        compare(world, found, i, claim, words->n, verb("is"));
    } else if (verb("told")) {
        i = gather(world, verb, n, found);
        compare(world, found, i, &claim[1], words->n - 1, 0);
    } else if (verb("thru")) {
        check(world, view->complete_through == n);
    } else if (verb("pinned")) {
        check(world, view->watched == n);
    } else {
        for (i = 0; verdicts[i].verb != NULL && !verb(verdicts[i].verb); i++);

        check(world, verdicts[i].verb != NULL);
        next(world, verdicts[i].verdict, words->n > 0 ? claim : NULL,
             words->n > 1 ? &claim[1] : NULL);

        if (verb("watch")) {
            find(world, &claim[1])->watched = 1;
        } else if (verb("grant")) {
            zkl_view_grant(find(world, claim));
            zkl_view_grant(find(world, claim));     /* changes nothing */
        }
    }
}


static void
run_step(world_t *world)
{
    char     text[sizeof(world->step)], *verb, *word, *rest;
    words_t  words;

    memset(&words, 0, sizeof(words_t));
    words.given = -1;

    strcpy(text, world->step);
    verb = strtok_r(text, " ", &rest);

    while ((word = strtok_r(NULL, " ", &rest)) != NULL) {
        if (*word == '/') {
            words.given = atoi(word + 1);

        } else {
            assert_true(words.n < WORDS);
            words.claims[words.n++] = read_claim(word);
        }
    }

    if (strcmp(verb, "gone") == 0) {
        compare(world, world->gone, world->ngone, words.claims, words.n, 0);
        world->ngone = 0;
        return;
    }

    check(world, world->ngone == 0);

    run_verb(world, verb, &words);
    check_view(world);
}


/* Runs a script with a text in the place of each '?'. */

static void
run(const row_t *row, const char *script, const char *value, int len)
{
    int          n = 0;
    world_t      world;
    const char  *p;

    memset(&world, 0, sizeof(world_t));

    world.row = row;
    world.can_make = ENTRIES;
    zkl_view_init(&world.view);

    for (p = script; *p != '\0'; p++) {

        if (*p == ';') {
            world.step[n] = '\0';
            run_step(&world);
            n = 0;

        } else if (*p == '?') {
            n += sprintf(world.step + n, "%.*s", len, value);

        } else if (n != 0 || *p != ' ') {
            world.step[n++] = *p;
        }
    }

    assert_int_equal(n, 0);
    check(&world, world.ngone == 0);

    zkl_view_free(&world.view);
}


static void
test_row(void **state)
{
    int           len;
    const char   *value, *script;
    const row_t  *row = *state;

    script = row->script;

    if (strncmp(script, "each ", 5) != 0) {
        run(row, script, "", 0);
        return;
    }

    for (value = script + 5; value[-1] != ';'; value += len + 1) {
        len = (int) strcspn(value, "|;");
        run(row, strchr(script, ';') + 1, value, len);
    }
}


static const row_t  rows[] = {

    /* proofs by the seq of a create */

    { "no claim is known, no claim waits",
      "is; thru -1; pinned 0; idle; forget; is;" },
    { "seq 0 is first, even if no claim is known",
      "create 0; thru 0; is L0; grant 0; is l0; idle;" },
    { "without a proof the claims ahead are unknown, for later claims, too",
      "create 3; thru -1; unknown 3; create 4; thru -1; unknown 3; drop 3;"
      "unknown 4;" },
    { "the holder leaves: the next local claim is granted without a request",
      "create 0 1 2; thru 2; grant 0; wait 1; drop 0; grant 1; wait 2; drop 1;"
      "grant 2; drop 2; idle; is;" },
    { "a gap needs a list only when the known blockers are gone",
      "create 0; grant 0; create 3; thru 0; wait 3; drop 0; unknown 3;"
      "list f2 l3; thru 3; needs 3 2; pin; drop 2; grant 3;" },

    /* the end of a proof */

    { "a live local claim pins the parent",
      "create 0 1; grant 0; drop 0; create 2; thru 2; is L1 L2;" },
    { "with neither, the parent may be new: no proof, others are forgotten",
      "create 2; list f0 s1 l2; is f0 s1 L2; drop 2; is f0 s1; create 3;"
      "gone 0 1; is L3; unknown 3;" },
    { "a watch on the parent pins it, too, until a local claim does",
      "create 0; pin; drop 0; thru 0; create 1; thru 1; unpin; create 2;"
      "thru 2; is L1 L2;" },
    { "a seq that runs backwards shows a new parent, and a list the claims",
      "create 5; list f4 l5; pin; is f4 L5; anew 2; is L2 f4 L5; thru -1;"
      "pinned 0; unknown 2; list l2; gone 4 5; is L2; anew 0; is L0 L2;"
      "thru -1; unknown 0; list l0; gone 2; grant 0;" },
    { "the same seq again shows a new parent",
      "create 0; drop 0; pin; thru 0; create 0; thru 0; pinned 0; is L0;"
      "drop 0; forget; create 7; anew 7r; is L7 L7r; list l7r; gone 7x;"
      "is L7r;" },

    /* the watch of the first waiter */

    { "the watch is on the nearest claim ahead, and moves with it",
      "create 3; list f0 f1 f2 l3; pin; needs 3 2; drop 2; needs 3 1; drop 0;"
      "needs 3 1; drop 1; grant 3;" },
    { "a waiter behind a local waiter needs no watch, until it is first",
      "create 1; list f0 l1; create 2; pin; needs 1 0; drop 1; needs 2 0;"
      "drop 0; grant 2;" },
    { "an event finds the watched claims, also with the same seq",
      "create 6w; list f3r f4w f4r f5r l6; create 7w; told 4; told 5;"
      "watch 6 5; told 5 5; set 4w; told 4 4w; clear 4w; set 4r; told 4 4r;"
      "set 4w; told 4 4r 4w; told 2; told 3; told 6; told 8; drop 6 7;"
      "told 4 4r 4w;" },

    /* claims that become known without a list */

    { "a sibling's claim is learned; a gap behind does not matter yet",
      "create 2; unknown 2; learn 0; thru 0; needs 2 0; drop 0; unknown 2;"
      "learn 1; is s1 L2; thru 2; drop 1; grant 2;" },
    { "a worker without a waiter keeps only the head of the queue",
      "create 0; learn 1; lost; learn 3 4; is L0 s1 s3 s4; keep 2; gone 4 3;"
      "thru 2; is L0 s1; keep 2; is L0 s1; learn 3; create 4; thru 4;" },
    { "the last known claim alone is dropped",
      "create 0; learn 1 2; thru 2; keep 2; gone 2; thru 1; is L0 s1;" },
    { "the view is not complete up to a dropped or missed claim behind a gap",
      "list f0 f1 f3 f4; pin; miss 0; thru -1; miss 4; thru -1; keep 1;"
      "gone 3; thru -1; is f1;" },
    { "a learned claim completes the view up to the next gap",
      "create 1 2 3 5; lost; thru 3; is L1 L2 L3 L5; grant 1; drop 1; grant 2;"
      "drop 2; grant 3; drop 3; unknown 5; learn 4; thru 5; needs 5 4;" },
    { "the gap in front of a known sibling closes past the sibling",
      "create 6r; list f3w s5r l6; drop 3; thru 2; lost; thru 3; lost; thru 6;"
      "is s5r L6r; grant 6;" },
    { "but a foreign claim may have a duplicate that is not known",
      "create 6w; list f4w f5w f5r l6; drop 5w; drop 4; is f5r L6w; thru 3;"
      "lost; thru 4; needs 6 5; drop 5; unknown 6;" },

    /* lists */

    { "a list has new claims in any order; the same list changes nothing",
      "create 4; list s3 l4 f0 f5r; thru 5; is f0 s3 L4 f5r;"
      "list s3 l4 f0 f5r; is f0 s3 L4 f5r;" },
    { "a claim that the list does not show is gone",
      "create 3; list f0 s1 f2 l3; list f0 l3; gone 1 2; is f0 L3; needs 3 0;"
      "list l3; gone 0; grant 3;" },
    { "a claim that became known after the list was sent is kept",
      "create 2; sent; create 3; late f1 l2; is f1 L2 L3; thru 3;" },
    { "unless the list shows a claim that was created even later",
      "create 2; sent; create 3; late f4; gone 2 3; is f4;" },
    { "an empty list: all claims known before are gone; 0 may be a reader",
      "create 1; list f0 l1; sent; create 2; late; gone 0 1; is L2; thru -1;"
      "unknown 2;" },
    { "a sibling may be newer than the list; only a later claim proves its end",
      "create 0; grant 0; create 2; learn 1; is l0 s1 L2; drop 2; list l0;"
      "is l0 s1; list l0 f3; gone 1; is l0 f3;" },
    { "a claim whose delete is decided counts as seen, and is not made",
      "create 2; list g0 g1 l2 g3; thru 3; is L2; grant 2; create 4;"
      "thru 4;" },
    { "a sibling that ended, but is still linked, goes with the next list",
      "create 1; learn 0; needs 1 0; list g0 l1; gone 0; grant 1;" },
    { "a foreign claim is added, however old the number",
      "create 1; learn 0; drop 0; grant 1; list g0 l1; is l1; list f0 l1;"
      "is f0 l1;" },
    { "without memory the view stays as incomplete as before",
      "create 2; memory 1; fail f0 f1 l2; thru -1; needs 2 0; drop 0;"
      "unknown 2; memory 9; list f1 l2; is f1 L2; needs 2 1;" },
    { "without memory a view that was complete is not any more",
      "create 0 1; thru 1; memory 0; fail f2 l0 l1; is L0 L1; thru -1;" },
    { "a lost connection: claims hold or wait as before, a list finds the rest",
      "create 0 2; learn 1; grant 0; pin; forget; gone 1; is l0 L2; wait 2;"
      "thru -1; list l2 s1 l0; is l0 s1 L2; thru 2; needs 2 1; drop 1; wait 2;"
      "drop 0; grant 2;" },
    { "the reply of a create was lost: the list tells the seq; a pin, too",
      "list f6 L7w; is f6 L7w; needs 7 6; create 8; thru 8;" },
    { "a claim created meanwhile is in the view before one that is found",
      "create 0; forget; create 3; list l0 f1 L2 l3; is L0 f1 L2 L3; grant 0;"
      "needs 2 1;" },
    { "another claim in the place of a claim: the parent was made anew",
      "create 0 1; grant 0; wait 1; list f0'; gone 0 1; is f0'; create 1;"
      "gone 0'; unknown 1; list f0' l1; needs 1 0;" },

    /* names with numbers that the parent has not given */

    { "a misnumbered child proves nothing, and comes first until it is gone",
      "create 1; list f100 l1 /2; thru 1; is f100* L1; watch 1 100;"
      "told 100 100; create 2 3; thru 3; is f100!* L1 L2 L3; wait 1;"
      "list f100 l1 l2 l3 f101; is f100!* L1 L2 L3 f101; wait 1; thru 101;"
      "pin; drop 100; grant 1;" },
    { "without a watch another claim may be in the misnumbered child's place",
      "create 1; list f200 l1 /150; is f200* L1; pin; miss 200; unknown 1;" },
    { "misnumbered children come by number, and prove no new parent",
      "list f20m /2; is f20m*; list f20m f2 /2; is f2* f20m*; list f20m /2;"
      "gone 2; pin; create 2; thru 2; is f20m* L2; needs 2 20;" },
    { "a number that a local claim has was not given to another child",
      "create 3; list f3 l3 f2; is f3* f2 L3; list f3 l3 f2; is f3* f2 L3;"
      "needs 3 2;" },
    { "claims of this gateway can be misnumbered, too; all come by number",
      "create 2; list f60r l50 l2 s40 /3; is s40* l50* f60r* L2; needs 2 60;"
      "forget; gone 40 60; is l50* L2; wait 2; list l2 /3; gone 50;"
      "grant 2;" },
    { "a child is misnumbered for good, whatever its entry is",
      "each f5|l5; create 2; list f5 l2 /3; is f5* L2; forget; gone 5;"
      "list ? l2 /8; is ?* L2; list ? l2 /8; is ?* L2; thru 7; list l2 /8;"
      "gone 5; list f5 l2 /8; is L2 f5; grant 2;" },
    { "a misnumbered child becomes a claim of this gateway",
      "create 2; list f5 l2 /3; list l5 l2 /8; gone 5; is l5* L2; drop 5;"
      "grant 2;" },
    { "a misnumbered child that is shared is misnumbered",
      "create 2w; list f5 l2 /3; forget; gone 5; list f5r l2 /8; is f5r* L2w;"
      "needs 2 5;" },
    { "a number is misnumbered for one child only",
      "create 2; list f5 l2 /3; forget; gone 5; list f5 f5' l2 /8;"
      "is f5* L2 f5'; list f5' l2 /8; gone 5; grant 2;" },

    /* readers, and claims that replace a claim with the same seq */

    { "readers pass readers, and wait for a writer that is not granted yet",
      "create 0r 1r 2w 3r 4r; grant 0; grant 1; wait 2; drop 0; wait 2;"
      "drop 2; grant 3; grant 4; idle;" },
    { "a reader watches the writer, a writer the nearest claim",
      "create 3r; list f0w f1r s2r l3; is f0w f1r s2r L3r; needs 3 0;"
      "create 4w; drop 0; unknown 3; list f1r s2r l3 l4; grant 3; wait 4;"
      "drop 3; needs 4 2;" },
    { "a reader may be in the place of a foreign writer that vanished",
      "create 5w; list f4w l5; pin; drop 4; thru 3; unknown 5; list f4r l5;"
      "is f4r L5w; thru 5; needs 5 4; drop 4; grant 5;" },
    { "a sibling's writer leaves no reader; a mutex would change the parent",
      "create 2w; list f0 s1w l2; is f0 s1w L2w; drop 1; thru 2; pin; drop 0;"
      "thru 2; grant 2;" },
    { "a list may not show a renamed reader under the new name yet",
      "create 5w; list f4r l5; pin; miss 4; thru 3; unknown 5; list f4 l5;"
      "needs 5 4;" },
    { "a sibling's claim was shared while the list was under way",
      "create 5w; list s4w l5; becomes 4r; list s4w l5; gone 4r; is s4w L5w;"
      "needs 5 4;" },
    { "a list shows readers in the place of mutexes, despite the watches",
      "create 5r; list f3 f4 l5; pin; watch 5 4; list f3r f4r' l5; gone 3 4;"
      "is f3r f4r' L5r; thru 5; grant 5;" },
    { "in place of a claim that became durable is one of the same name",
      "each x|r|w|p1|m; create 5w; list f4? l5; drop 4; thru 3; unknown 5;"
      "list f4? l5; is f4? L5w; watch 5 4;" },
    { "a claim that was gone before its watch was set may have become durable",
      "each x|r|p1|m; create 5w; list f4? l5; pin; miss 4; thru 3; unknown 5;"
      "list f4? l5; is f4? L5w; needs 5 4;" },
    { "but if the watch on the claim told, the parent's would have told first",
      "each x|r|p1|m; create 5w; list f4? l5; pin; drop 4; thru 5; grant 5;" },
    { "a claim that became durable keeps the seat",
      "create 5p2; list f3p2 f4p2 l5; watch 5 4; watch 5 3; wait 5; drop 3;"
      "thru 2; unknown 5; list f3p2 f4p2 l5; is f3p2 f4p2! L5p2; thru 5;"
      "watch 5 3; wait 5; list f4p2 l5; gone 3; grant 5;" },
    { "a live writer and the reader of the writer have the same seq",
      "create 5w; list f4r f4w l5; is f4w f4r L5w; list f4r f4w l5;"
      "is f4w f4r L5w; miss 4w; needs 5 4; thru 3; miss 4r; unknown 5;" },
    { "the reader of a writer that is gone may be another reader by now",
      "create 5w; list f4w f4r l5; drop 4w; is f4r L5w; list f4r' l5; gone 4r;"
      "is f4r' L5w; needs 5 4; list f4r' l5; is f4r' L5w; pin; drop 4;"
      "grant 5;" },
    { "the list is the first to tell that the writer is gone",
      "create 5w; list f4r f4w f3r l5; list f3r f4r' l5; gone 4w 4r;"
      "is f3r f4r' L5w; thru 5; needs 5 4;" },

    /* semaphores and members */

    { "all permits are in use; any holder that leaves makes room",
      "create 0p3 1p3 2p3 3p3 4p3 5p3; grant 0; grant 1; grant 2; wait 3;"
      "drop 1; grant 3; wait 4; drop 3; grant 4; wait 5; drop 0; grant 5;"
      "idle;" },
    { "a single permit", "create 0p1 1p1; grant 0; wait 1; drop 0; grant 1;" },
    { "the watches are as many as the permits, the nearest claims first",
      "create 5p3; list f0p3 f1p3 f2p3 s3p3 f4p3 l5; pin; watch 5 4;"
      "watch 5 3; watch 5 2; wait 5; drop 0; wait 5; drop 3; watch 5 1;"
      "wait 5; thru 5; drop 2; grant 5; idle;" },
    { "the end of any watched claim wakes the waiter",
      "each 0|1|2; create 3p3; list f0p3 f1p3 f2p3 l3; pin; watch 3 2;"
      "watch 3 1; watch 3 0; wait 3; drop ?; grant 3;" },
    { "local claims ahead count, too, but need no watch",
      "create 0p2; grant 0; create 2p2; learn 1p2; is l0p2 s1p2 L2p2;"
      "watch 2 1; wait 2; drop 0; grant 2; create 3p2; wait 3; drop 2;"
      "grant 3;" },
    { "the unknown claims may take the remaining permits",
      "create 0p2; grant 0; create 3p2; unknown 3; list l0 f2p2 l3; watch 3 2;"
      "wait 3;" },
    { "a member is granted at once if all claims ahead are known",
      "create 2m; unknown 2; list f0m s1m l2; create 3m; is f0m s1m L2m L3m;"
      "grant 2; grant 3; idle;" },

    /* a claim of another use */

    { "a claim of another use, and the lock is free when the first is gone",
      "each x 1m|m 1x|r 1p1|p1 1p2|p2 1w; create 0?; grant 0; conflict 1;"
      "drop 0; grant 1;" },
    { "of the claims ahead, only the first live claim decides the use",
      "create 3w; list f0r f1m f2p2 l3; pin; watch 3 2; drop 2; watch 3 1;"
      "drop 0; conflict 3; create 4m; drop 3; grant 4;" },
    { "a refused claim does not decide the use, and blocks no claim",
      "create 0; grant 0; create 1m 2; conflict 1; drop 1; wait 2; drop 0;"
      "grant 2;" },
    { "no claim passes a sibling's of another use, which may be granted yet",
      "each m|p5; create 0?; grant 0; create 2?; learn 1; is l0? s1 L2?;"
      "watch 2 1; wait 2; drop 0; conflict 2; drop 1; grant 2;" },
    { "the first claim may be long gone; then there is a conflict",
      "create 2m; list f0m f1w l2; pin; watch 2 1; watch 2 0; wait 2; drop 0;"
      "conflict 2;" },
    { "a first claim without a watch may be gone, and does not decide",
      "create 2p2; list f0 s1 l2; pin; watch 2 0; conflict 2; drop 0;"
      "watch 2 1; conflict 2; drop 1; grant 2;" },
    { "a claim that may not be first does not decide, either",
      "create 6; list f4w f5m l6; watch 6 5; drop 4; unknown 6;"
      "list f4r f5m l6; needs 6 4;" },
    { "the last claim up to which the view is complete decides",
      "list f4m; pin; create 6; thru 4; needs 6 4;" },
    { "a local claim of an unknown place does not decide, either",
      "create 0; grant 0; forget; create 2m; unknown 2;" },

    /* which claims hold the lock; a claim of another use waits, or will be
       refused, even if permits are left */

    { "exclusive claims, and readers of a mutex", "create 0 1r; held 0;" },
    { "readers up to a writer", "create 0r 1r 2w 3r; held 0 1;" },
    { "a writer and a reader", "create 0w 1r; held 0;" },
    { "members", "create 0m 1m 2m; held 0 1 2;" },
    { "members up to another use", "create 0m 1 2m; held 0;" },
    { "as many as the permits", "create 0p2 1p2 2p2; held 0 1;" },
    { "claims with other permits", "create 0p1 1p5; held 0;" },
    { "readers up to a semaphore", "create 0r 1p5 2r; held 0;" },
    { "no claim", "held;" },
};


/* which modes block, and mix with, which: each behind each */

static void
test_modes(void **state)
{
    int         mixes;
    size_t      i, k;
    zkl_mode_t  a, b;

    (void) state;

    for (i = 0; i < count(modes); i++) {
        for (k = 0; k < count(modes); k++) {
            a = modes[i];
            b = modes[k];
            mixes = (i == k || (i < 3 && k < 3));

            assert_int_equal(zkl_view_mixes(a, b), mixes);
            assert_int_equal(zkl_view_blocks(a, b),
                             a != b || (a != ZKL_READ && a != ZKL_MEMBER));
        }
    }
}


int
main(void)
{
    size_t             i;
    struct CMUnitTest  tests[count(rows) + 1];

    memset(tests, 0, sizeof(tests));

    for (i = 0; i < count(rows); i++) {
        tests[i].name = rows[i].name;
        tests[i].test_func = test_row;
        tests[i].initial_state = (void *) &rows[i];
    }

    tests[i] = (struct CMUnitTest) cmocka_unit_test(test_modes);

    return cmocka_run_group_tests(tests, NULL, NULL);
}
