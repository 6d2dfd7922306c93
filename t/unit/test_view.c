
/*
 * The view's rules, a test for each: proofs that no claim is ahead, the end of
 * a proof, the claim that the first waiter watches, conclusions from a list.
 *
 * A test names claims by seq.  create(), sibling() and so on make an entry and
 * give the entry to the view.  expect() compares all claims in the view with a
 * text like "0l 1s 3f", in which an upper case letter says that a claim waits;
 * expect_gone() compares the claims that the view gave back.
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


#define ENTRIES     32
#define ALL_TICKS   ((uint64_t) -1)

#define expect(world, text)                                                   \
    expect_at(world, text, __FILE__, __LINE__)

#define expect_gone(world, text)                                              \
    expect_gone_at(world, text, __FILE__, __LINE__)

#define expect_nothing(world)                                                 \
    expect_nothing_for(world, -1)

#define expect_nothing_for(world, waiter)                                     \
    expect_next(world, ZKL_NOTHING, waiter, -1)


typedef struct {
    zkl_view_t   view;
    zkl_entry_t  entries[ENTRIES];
    size_t       nentries;

    zkl_observed_t  list[ENTRIES];
    size_t          nlist;
    int64_t         given;      /* by the parent; 0: all that are listed */

    zkl_entry_t  *gone[ENTRIES];
    size_t        ngone;

    size_t               made;
    size_t               can_make;
} world_t;


static int
set_up(void **state)
{
    world_t  *world;

    world = calloc(1, sizeof(world_t));
    if (world == NULL) {
        return -1;
    }

    zkl_view_init(&world->view);
    world->can_make = ENTRIES;

    *state = world;

    return 0;
}


static int
tear_down(void **state)
{
    free(*state);

    return 0;
}


/* the functions that the view calls */

static void
gone(void *data, zkl_entry_t *entry)
{
    world_t  *world = data;

    assert_false(entry->linked);
    assert_true(world->ngone < ENTRIES);

    world->gone[world->ngone++] = entry;
}


static zkl_entry_t *
new_entry(world_t *world)
{
    zkl_entry_t  *entry;

    assert_true(world->nentries < ENTRIES);

    entry = &world->entries[world->nentries++];

    /* the view must not read a member that the view has not set */

    memset(entry, 0xee, sizeof(zkl_entry_t));
    entry->linked = 0;
    entry->waiting = 0;

    return entry;
}


static zkl_entry_t *
make(void *data, zkl_observed_t *observed)
{
    world_t      *world = data;
    zkl_entry_t  *entry;

    assert_null(observed->entry);
    assert_false(observed->gone);

    if (world->made == world->can_make) {
        return NULL;
    }

    world->made++;

    entry = new_entry(world);
    entry->origin = (observed->data == world) ? ZKL_SIBLING : ZKL_FOREIGN;

    return entry;
}


/* the steps of the caller of the view */

static zkl_entry_t *
create_mode(world_t *world, int64_t seq, zkl_mode_t mode)
{
    zkl_entry_t  *entry;

    entry = new_entry(world);
    entry->seq = seq;
    entry->mode = mode;

    (void) zkl_view_create(&world->view, entry, gone, world);

    return entry;
}


static int
add_local(world_t *world, int64_t seq)
{
    zkl_entry_t  *entry;

    entry = new_entry(world);
    entry->seq = seq;
    entry->mode = ZKL_MUTEX;

    return zkl_view_create(&world->view, entry, gone, world);
}


static zkl_entry_t *
create(world_t *world, int64_t seq)
{
    return create_mode(world, seq, ZKL_MUTEX);
}


static zkl_entry_t *
sibling_mode(world_t *world, int64_t seq, zkl_mode_t mode)
{
    zkl_entry_t  *entry;

    assert_int_equal(seq, world->view.complete_through + 1);

    entry = new_entry(world);
    entry->seq = seq;
    entry->mode = mode;
    entry->origin = ZKL_SIBLING;

    zkl_view_learn(&world->view, entry);

    return entry;
}


static zkl_entry_t *
sibling(world_t *world, int64_t seq)
{
    return sibling_mode(world, seq, ZKL_MUTEX);
}


static zkl_observed_t *
see(world_t *world, int64_t seq, zkl_mode_t mode)
{
    zkl_observed_t  *observed;

    assert_true(world->nlist < ENTRIES);

    observed = &world->list[world->nlist++];

    memset(observed, 0, sizeof(zkl_observed_t));
    observed->seq = seq;
    observed->mode = mode;

    return observed;
}


static void
see_foreign(world_t *world, int64_t seq)
{
    see(world, seq, ZKL_MUTEX);
}


static void
see_sibling(world_t *world, int64_t seq)
{
    see(world, seq, ZKL_MUTEX)->data = world;
}


static void
see_own(world_t *world, zkl_entry_t *entry)
{
    see(world, entry->seq, entry->mode)->entry = entry;
}


static void
see_gone(world_t *world, int64_t seq)
{
    see(world, seq, ZKL_MUTEX)->gone = 1;
}


/* The parent has given at least all numbers in the list, unless world says. */

static int
try_merge(world_t *world, uint64_t mark)
{
    int      rc;
    size_t   i;
    int64_t  given;

    given = world->given;

    for (i = 0; i < world->nlist && world->given == 0; i++) {
        if (world->list[i].seq >= given) {
            given = world->list[i].seq + 1;
        }
    }

    rc = zkl_view_merge(&world->view, mark, given, world->list, world->nlist,
                        make, gone, world);
    world->nlist = 0;
    world->given = 0;

    return rc;
}


static void
merge(world_t *world)
{
    assert_int_equal(try_merge(world, world->view.tick), 0);
}


static zkl_entry_t *
find(world_t *world, int64_t seq)
{
    zkl_entry_t  *entry;

    for (entry = world->view.alive.next;
         entry != &world->view.alive;
         entry = entry->next)
    {
        if (entry->seq == seq) {
            return entry;
        }
    }

    return NULL;
}


static void
drop(world_t *world, int64_t seq)
{
    zkl_entry_t  *entry;

    entry = find(world, seq);
    assert_non_null(entry);

    /* a watch has told of the end of a claim that is not local */

    entry->watched = (entry->origin != ZKL_LOCAL);

    zkl_view_remove(&world->view, entry);
    assert_false(entry->linked);
}


/* the comparisons of the tests */

static void
expect_text(const char *text, const char *expected, const char *file,
    int line)
{
    if (strcmp(text, expected) != 0) {
        fail_msg("%s:%d: \"%s\", expected \"%s\"", file, line, text, expected);
    }
}


static void
check_rings(world_t *world)
{
    size_t        n, nlocal;
    zkl_entry_t  *entry;

    n = 0;
    nlocal = 0;

    for (entry = world->view.alive.next;
         entry != &world->view.alive;
         entry = entry->next)
    {
        assert_true(entry->linked);
        assert_ptr_equal(entry->next->prev, entry);

        nlocal += (entry->origin == ZKL_LOCAL);
        n++;
    }

    assert_int_equal(n, world->view.nalive);
    assert_int_equal(nlocal, world->view.nlocal);

    for (entry = world->view.waiting.waiting_next;
         entry != &world->view.waiting;
         entry = entry->waiting_next)
    {
        assert_true(entry->linked);
        assert_true(entry->waiting);
        assert_int_equal(entry->origin, ZKL_LOCAL);
        assert_ptr_equal(entry->waiting_next->waiting_prev, entry);
    }
}


static void
expect_at(world_t *world, const char *expected, const char *file, int line)
{
    char          text[ENTRIES * 8];
    size_t        len;
    zkl_entry_t  *entry;

    static const char  letters[] = "lsfLSF";

    check_rings(world);

    len = 0;
    text[0] = '\0';

    for (entry = world->view.alive.next;
         entry != &world->view.alive;
         entry = entry->next)
    {
        len += sprintf(text + len, "%s%d%c", (len != 0) ? " " : "",
                       (int) entry->seq,
                       letters[entry->origin + (entry->waiting ? 3 : 0)]);
    }

    expect_text(text, expected, file, line);
}


static void
expect_gone_at(world_t *world, const char *expected, const char *file,
    int line)
{
    char    text[ENTRIES * 8];
    size_t  i, len;

    len = 0;
    text[0] = '\0';

    for (i = 0; i < world->ngone; i++) {
        len += sprintf(text + len, "%s%d", (len != 0) ? " " : "",
                       (int) world->gone[i]->seq);
    }

    world->ngone = 0;

    expect_text(text, expected, file, line);
}


static void
expect_next(world_t *world, zkl_verdict_e verdict, int64_t waiter,
    int64_t blocker)
{
    zkl_entry_t   *first, *ahead;
    zkl_verdict_e  got;

    got = zkl_view_next(&world->view, &first, &ahead);

    assert_int_equal(got, verdict);
    assert_int_equal((first != NULL) ? first->seq : -1, waiter);

    if (verdict == ZKL_NOTHING && ahead != NULL) {
        assert_true(ahead->origin == ZKL_LOCAL || ahead->watched);
        return;
    }

    assert_int_equal((ahead != NULL) ? ahead->seq : -1, blocker);
}


static void
grant(world_t *world, int64_t seq)
{
    expect_next(world, ZKL_GRANT, seq, -1);
    zkl_view_grant(find(world, seq));
}


/* the view requests a watch on blocker, and the caller sets the watch */

static void
watch(world_t *world, int64_t waiter, int64_t blocker)
{
    zkl_entry_t  *first, *ahead;

    expect_next(world, ZKL_WATCH, waiter, blocker);

    (void) zkl_view_next(&world->view, &first, &ahead);
    ahead->watched = 1;
}


/* no claim is known, no claim waits */

static void
test_empty(void **state)
{
    world_t  *world = *state;

    assert_int_equal(world->view.complete_through, -1);
    assert_int_equal(world->view.watched, 0);
    assert_null(zkl_view_first(&world->view));

    expect_nothing(world);
    expect(world, "");

    zkl_view_forget(&world->view, gone, world);

    expect_gone(world, "");
}


/* seq 0 is first, even if no claim is known */

static void
test_seq_0(void **state)
{
    world_t  *world = *state;

    create(world, 0);

    assert_int_equal(world->view.complete_through, 0);
    expect(world, "0L");

    grant(world, 0);

    expect(world, "0l");
    expect_nothing(world);
}


/* without a proof the claims ahead are unknown */

static void
test_unknown(void **state)
{
    world_t  *world = *state;

    create(world, 3);

    assert_int_equal(world->view.complete_through, -1);
    expect_next(world, ZKL_COMPLETE, 3, -1);

    /* the claims ahead stay unknown for later claims, too */

    create(world, 4);

    assert_int_equal(world->view.complete_through, -1);
    expect_next(world, ZKL_COMPLETE, 3, -1);

    drop(world, 3);
    expect_next(world, ZKL_COMPLETE, 4, -1);
}


/* seq = complete_through + 1: no claim was created in between */

static void
test_contiguous(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    create(world, 1);
    create(world, 2);

    assert_int_equal(world->view.complete_through, 2);
    expect(world, "0L 1L 2L");

    grant(world, 0);
    expect_next(world, ZKL_NOTHING, 1, -1);
}


/* the holder leaves: the next local claim is granted without a request */

static void
test_handoff(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    create(world, 1);
    create(world, 2);
    grant(world, 0);

    drop(world, 0);
    grant(world, 1);
    expect_next(world, ZKL_NOTHING, 2, -1);

    drop(world, 1);
    grant(world, 2);

    drop(world, 2);
    expect_nothing(world);
    expect(world, "");
}


/* when a waiter leaves without a grant, no claim passes the holder */

static void
test_waiter_leaves(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    create(world, 1);
    create(world, 2);
    grant(world, 0);

    drop(world, 1);
    expect_next(world, ZKL_NOTHING, 2, -1);

    drop(world, 0);
    grant(world, 2);
}


/* a live local claim pins the parent */

static void
test_pin_by_claim(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    create(world, 1);
    grant(world, 0);

    drop(world, 0);
    assert_int_equal(world->view.nlocal, 1);

    create(world, 2);
    assert_int_equal(world->view.complete_through, 2);
    expect(world, "1L 2L");
}


/* a watch on the parent pins the parent, too */

static void
test_pin_by_watch(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    world->view.watched = 1;

    drop(world, 0);
    assert_int_equal(world->view.nlocal, 0);
    assert_int_equal(world->view.complete_through, 0);

    create(world, 1);
    assert_int_equal(world->view.complete_through, 1);
    expect_gone(world, "");

    grant(world, 1);
}


/* with neither, the parent may be new: no proof, the view forgets all claims */

static void
test_pin_lost(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    drop(world, 0);

    create(world, 1);

    assert_int_equal(world->view.complete_through, -1);
    expect_next(world, ZKL_COMPLETE, 1, -1);
}


static void
test_pin_lost_forgets_others(void **state)
{
    world_t  *world = *state;

    create(world, 2);
    see_foreign(world, 0);
    see_sibling(world, 1);
    see_own(world, find(world, 2));
    merge(world);
    expect(world, "0f 1s 2L");

    drop(world, 2);
    expect(world, "0f 1s");

    create(world, 3);

    expect_gone(world, "0 1");
    expect(world, "3L");
    expect_next(world, ZKL_COMPLETE, 3, -1);
}


/* the watch was lost while a local claim pinned the parent: the view stays */

static void
test_pin_changes_hands(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    world->view.watched = 1;
    drop(world, 0);

    create(world, 1);
    world->view.watched = 0;

    create(world, 2);
    assert_int_equal(world->view.complete_through, 2);
    expect(world, "1L 2L");
}


/* seq 0 makes the view start anew, pinned or not */

static void
test_seq_0_again(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    drop(world, 0);
    create(world, 0);

    assert_int_equal(world->view.complete_through, 0);
    grant(world, 0);
    expect_gone(world, "");
}


/* a seq that runs backwards shows a new parent, despite claim and watch */

static void
test_backwards(void **state)
{
    world_t  *world = *state;

    create(world, 5);
    see_foreign(world, 4);
    see_own(world, find(world, 5));
    merge(world);
    world->view.watched = 1;
    expect(world, "4f 5L");

    assert_int_equal(add_local(world, 2), 1);

    /* only the list tells that the claims of before are gone */

    expect_gone(world, "");
    expect(world, "2L 4f 5L");
    assert_int_equal(world->view.complete_through, -1);
    assert_int_equal(world->view.watched, 0);
    expect_next(world, ZKL_COMPLETE, 2, -1);

    see_own(world, find(world, 2));
    merge(world);
    expect_gone(world, "4 5");
    expect(world, "2L");

    assert_int_equal(add_local(world, 0), 1);

    expect(world, "0L 2L");
    expect_next(world, ZKL_COMPLETE, 0, -1);

    see_own(world, find(world, 0));
    merge(world);
    expect_gone(world, "2");
    grant(world, 0);
}


/* the same seq again shows a new parent, too */

static void
test_same_seq(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    drop(world, 0);
    world->view.watched = 1;
    assert_int_equal(world->view.complete_through, 0);

    create(world, 0);
    assert_int_equal(world->view.complete_through, 0);
    assert_int_equal(world->view.watched, 0);
    expect(world, "0L");

    /* also if the view is not complete, and only an entry has the seq */

    drop(world, 0);
    zkl_view_forget(&world->view, gone, world);

    create(world, 7);
    assert_int_equal(add_local(world, 7), 1);
    expect(world, "7L 7L");

    see_own(world, world->view.alive.prev);
    merge(world);
    expect_gone(world, "7");
    expect(world, "7L");
}


/* a gap needs a list only when the known blockers are gone */

static void
test_gap(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    grant(world, 0);
    create(world, 3);

    assert_int_equal(world->view.complete_through, 0);
    expect_next(world, ZKL_NOTHING, 3, -1);

    drop(world, 0);
    expect_next(world, ZKL_COMPLETE, 3, -1);

    /* the list shows 2, but not 1 */

    see_foreign(world, 2);
    see_own(world, find(world, 3));
    merge(world);

    assert_int_equal(world->view.complete_through, 3);
    expect_next(world, ZKL_WATCH, 3, 2);

    world->view.watched = 1;
    drop(world, 2);
    grant(world, 3);
}


static void
test_gap_behind_foreign(void **state)
{
    world_t  *world = *state;

    create(world, 1);
    see_foreign(world, 0);
    see_own(world, find(world, 1));
    merge(world);
    drop(world, 1);
    world->view.watched = 1;

    /* 1 was known, 2 was not */

    create(world, 3);

    assert_int_equal(world->view.complete_through, 1);
    expect_next(world, ZKL_WATCH, 3, 0);

    drop(world, 0);
    expect_next(world, ZKL_COMPLETE, 3, -1);
}


/* the watch is on the nearest claim ahead, and moves with it */

static void
test_watch_nearest(void **state)
{
    world_t  *world = *state;

    create(world, 3);
    see_foreign(world, 0);
    see_foreign(world, 1);
    see_foreign(world, 2);
    see_own(world, find(world, 3));
    merge(world);

    world->view.watched = 1;
    expect_next(world, ZKL_WATCH, 3, 2);

    /* 2 vanishes without a grant */

    drop(world, 2);
    expect_next(world, ZKL_WATCH, 3, 1);

    drop(world, 0);
    expect_next(world, ZKL_WATCH, 3, 1);

    drop(world, 1);
    grant(world, 3);
}


/* a waiter behind a local waiter needs no watch */

static void
test_watch_first_only(void **state)
{
    world_t  *world = *state;

    create(world, 1);
    see_foreign(world, 0);
    see_own(world, find(world, 1));
    merge(world);
    create(world, 2);

    world->view.watched = 1;
    expect_next(world, ZKL_WATCH, 1, 0);

    /* the first waiter leaves: the second waiter needs the watch */

    drop(world, 1);
    expect_next(world, ZKL_WATCH, 2, 0);

    drop(world, 0);
    grant(world, 2);
}


/* siblings that become known without a list */

static void
test_learn(void **state)
{
    world_t  *world = *state;

    create(world, 2);
    expect_next(world, ZKL_COMPLETE, 2, -1);

    sibling(world, 0);
    assert_int_equal(world->view.complete_through, 0);
    expect_next(world, ZKL_WATCH, 2, 0);

    /* the unknown claim 1 does not matter until 0 is gone */

    drop(world, 0);
    expect_next(world, ZKL_COMPLETE, 2, -1);

    sibling(world, 1);
    expect(world, "1s 2L");
    assert_int_equal(world->view.complete_through, 2);

    drop(world, 1);
    grant(world, 2);
}


/* a claim that is gone counts for completeness only */

static void
test_learn_gone(void **state)
{
    world_t  *world = *state;

    create(world, 2);

    zkl_view_learn(&world->view, NULL);
    assert_int_equal(world->view.complete_through, 0);
    expect_next(world, ZKL_COMPLETE, 2, -1);

    zkl_view_learn(&world->view, NULL);
    assert_int_equal(world->view.complete_through, 2);

    expect(world, "2L");
    grant(world, 2);
}


/* a worker without a waiter keeps only the head of the queue */

static void
test_keep(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    sibling(world, 1);
    zkl_view_learn(&world->view, NULL);
    sibling(world, 3);
    sibling(world, 4);

    assert_ptr_equal(zkl_view_last(&world->view, 1), find(world, 4));
    assert_ptr_equal(zkl_view_last(&world->view, 4), find(world, 0));
    assert_null(zkl_view_last(&world->view, 5));

    zkl_view_keep(&world->view, 2, gone, world);

    assert_int_equal(world->view.complete_through, 2);
    assert_true(zkl_view_knows(&world->view, 1));
    assert_false(zkl_view_knows(&world->view, 2));
    assert_false(zkl_view_knows(&world->view, 3));
    expect(world, "0L 1s");

    zkl_view_keep(&world->view, 2, gone, world);
    expect(world, "0L 1s");

    /* the next claims make the view complete again */

    sibling(world, 3);
    create(world, 4);
    assert_int_equal(world->view.complete_through, 4);
}


/* the last known claim alone is dropped: the view is complete up to it */

static void
test_keep_all_but_one(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    sibling(world, 1);
    sibling(world, 2);
    assert_int_equal(world->view.complete_through, 2);

    zkl_view_keep(&world->view, 2, gone, world);
    assert_int_equal(world->view.complete_through, 1);
    assert_false(zkl_view_knows(&world->view, 2));
}


/* a learned claim completes the view up to the next gap */

static void
test_learn_closes(void **state)
{
    world_t  *world = *state;

    create(world, 1);
    create(world, 2);
    create(world, 3);
    create(world, 5);

    zkl_view_learn(&world->view, NULL);

    assert_int_equal(world->view.complete_through, 3);
    expect(world, "1L 2L 3L 5L");

    grant(world, 1);
    drop(world, 1);
    grant(world, 2);
    drop(world, 2);
    grant(world, 3);
    drop(world, 3);
    expect_next(world, ZKL_COMPLETE, 5, -1);

    sibling(world, 4);
    assert_int_equal(world->view.complete_through, 5);
    expect_next(world, ZKL_WATCH, 5, 4);
}


static void
test_merge_new(void **state)
{
    world_t      *world = *state;
    zkl_entry_t  *entry;

    entry = create(world, 4);

    /* in any order */

    see_sibling(world, 3);
    see_own(world, entry);
    see_foreign(world, 0);
    see(world, 5, ZKL_READ);
    merge(world);

    assert_int_equal(world->view.complete_through, 5);
    assert_int_equal(world->made, 3);
    expect(world, "0f 3s 4L 5f");
    expect_gone(world, "");

    assert_ptr_equal(find(world, 4), entry);
    assert_int_equal(find(world, 5)->mode, ZKL_READ);
    assert_int_equal(find(world, 3)->mode, ZKL_MUTEX);
    assert_ptr_equal(zkl_view_first(&world->view), find(world, 0));
}


/* the same list again changes nothing */

static void
test_merge_again(void **state)
{
    unsigned   i;
    world_t   *world = *state;

    create(world, 2);

    for (i = 0; i < 3; i++) {
        see_foreign(world, 0);
        see_sibling(world, 1);
        see_own(world, find(world, 2));
        merge(world);

        expect(world, "0f 1s 2L");
        expect_gone(world, "");
        assert_int_equal(world->made, 2);
    }
}


/* a claim that the list does not show is gone, also if a later claim lives */

static void
test_merge_gone(void **state)
{
    world_t  *world = *state;

    create(world, 3);
    see_foreign(world, 0);
    see_sibling(world, 1);
    see_foreign(world, 2);
    see_own(world, find(world, 3));
    merge(world);

    see_foreign(world, 0);
    see_own(world, find(world, 3));
    merge(world);

    expect_gone(world, "1 2");
    expect(world, "0f 3L");
    expect_next(world, ZKL_WATCH, 3, 0);

    see_own(world, find(world, 3));
    merge(world);

    expect_gone(world, "0");
    grant(world, 3);
}


/* a local claim that another client deleted */

static void
test_merge_gone_local(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    create(world, 1);
    grant(world, 0);

    see_own(world, find(world, 1));
    merge(world);

    expect_gone(world, "0");
    expect(world, "1L");

    merge(world);

    expect_gone(world, "1");
    expect(world, "");
    expect_nothing(world);
}


/* a claim that became known after the list was sent is kept */

static void
test_merge_younger(void **state)
{
    uint64_t   mark;
    world_t   *world = *state;

    create(world, 2);
    mark = world->view.tick;
    create(world, 3);

    see_foreign(world, 1);
    see_own(world, find(world, 2));
    assert_int_equal(try_merge(world, mark), 0);

    expect_gone(world, "");
    expect(world, "1f 2L 3L");
    assert_int_equal(world->view.complete_through, 3);

    /* unless the list shows a claim that was created even later */

    mark = world->view.tick;
    create(world, 4);

    see_foreign(world, 5);
    assert_int_equal(try_merge(world, mark), 0);

    expect_gone(world, "1 2 3 4");
    expect(world, "5f");
}


/* an empty list proves that all claims known before are gone */

static void
test_merge_empty(void **state)
{
    uint64_t   mark;
    world_t   *world = *state;

    create(world, 1);
    see_foreign(world, 0);
    see_own(world, find(world, 1));
    merge(world);

    mark = world->view.tick;
    create(world, 2);

    assert_int_equal(try_merge(world, mark), 0);

    expect_gone(world, "0 1");
    expect(world, "2L");

    /* but 0 may have left a reader since */

    assert_int_equal(world->view.complete_through, -1);
    expect_next(world, ZKL_COMPLETE, 2, -1);
}


/* a sibling may be newer than the list; only a later claim proves the end */

static void
test_merge_lagging(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    grant(world, 0);
    create(world, 2);
    sibling(world, 1);
    expect(world, "0l 1s 2L");
    drop(world, 2);

    see_own(world, find(world, 0));
    assert_int_equal(try_merge(world, ALL_TICKS), 0);

    expect_gone(world, "");
    expect(world, "0l 1s");

    see_own(world, find(world, 0));
    see_foreign(world, 3);
    merge(world);

    expect_gone(world, "1");
    expect(world, "0l 3f");
}


/* gone = 1: the delete is decided, but the claim counts as seen */

static void
test_merge_decided(void **state)
{
    world_t  *world = *state;

    create(world, 2);

    see_gone(world, 0);
    see_gone(world, 1);
    see_own(world, find(world, 2));
    see_gone(world, 3);
    merge(world);

    assert_int_equal(world->made, 0);
    assert_int_equal(world->view.complete_through, 3);
    expect(world, "2L");
    grant(world, 2);

    create(world, 4);
    assert_int_equal(world->view.complete_through, 4);
}


/* a sibling that ended, but is still linked, goes with the next observed */

static void
test_merge_decided_linked(void **state)
{
    world_t  *world = *state;

    create(world, 1);
    sibling(world, 0);
    expect_next(world, ZKL_WATCH, 1, 0);

    see_gone(world, 0);
    see_own(world, find(world, 1));
    merge(world);

    expect_gone(world, "0");
    grant(world, 1);
}


/*
 * A list that shows a claim whose delete is decided does not add the claim, but
 * a foreign claim is added, however old the number.
 */

static void
test_merge_known_as_gone(void **state)
{
    world_t  *world = *state;

    create(world, 1);
    sibling(world, 0);
    drop(world, 0);
    grant(world, 1);

    see_gone(world, 0);
    see_own(world, find(world, 1));
    merge(world);

    assert_int_equal(world->made, 0);
    expect(world, "1l");

    see_foreign(world, 0);
    see_own(world, find(world, 1));
    merge(world);

    expect(world, "0f 1l");
}


/*
 * A child that a client has made by name proves nothing, and comes before all
 * claims until it is gone.
 */

static void
test_misnumbered(void **state)
{
    world_t  *world = *state;

    create(world, 1);

    see_foreign(world, 100);
    see_own(world, find(world, 1));
    world->given = 2;
    merge(world);

    assert_int_equal(world->view.complete_through, 1);
    expect(world, "100f 1L");
    assert_true(world->list[1].misnumbered);
    expect_next(world, ZKL_WATCH, 1, 100);
    watch(world, 1, 100);
    assert_ptr_equal(zkl_view_watched(&world->view, 100, NULL),
                     find(world, 100));

    /* the next numbers are small, and need no list */

    assert_int_equal(add_local(world, 2), 0);
    assert_int_equal(add_local(world, 3), 0);
    assert_int_equal(world->view.complete_through, 3);
    expect(world, "100f 1L 2L 3L");
    expect_nothing_for(world, 1);

    /* the child is not forgotten when the parent gives the number */

    see_foreign(world, 100);
    see_own(world, find(world, 1));
    see_own(world, find(world, 2));
    see_own(world, find(world, 3));
    see_foreign(world, 101);
    merge(world);

    expect(world, "100f 1L 2L 3L 101f");
    expect_nothing_for(world, 1);
    assert_int_equal(world->view.complete_through, 101);
    assert_false(zkl_view_knows(&world->view, 100));

    world->view.watched = 1;
    drop(world, 100);
    expect_next(world, ZKL_GRANT, 1, -1);

    see_foreign(world, 200);
    see_own(world, find(world, 1));
    see_own(world, find(world, 2));
    world->given = 150;
    merge(world);

    expect_gone(world, "3 101");
    expect(world, "200f 1L 2L");

    /* without a watch another claim may have taken the place */

    zkl_view_remove(&world->view, find(world, 200));
    expect_next(world, ZKL_COMPLETE, 1, -1);
}


/* a number that a local claim has was not given to another child */

static void
test_misnumbered_alike(void **state)
{
    world_t  *world = *state;

    create(world, 3);
    see_foreign(world, 3);
    see_own(world, find(world, 3));
    see_foreign(world, 2);
    merge(world);

    expect(world, "3f 2f 3L");
    expect_next(world, ZKL_WATCH, 3, 2);
}


/* claims of this gateway can be misnumbered, too: taken over from a copy */

static void
test_misnumbered_own(void **state)
{
    world_t      *world = *state;
    zkl_entry_t  *entry;

    create(world, 2);

    entry = new_entry(world);
    entry->seq = 50;
    entry->mode = ZKL_MUTEX;

    see(world, 60, ZKL_READ);
    see_own(world, entry);
    see_own(world, find(world, 2));
    see_sibling(world, 40);
    world->given = 3;
    merge(world);

    expect(world, "40s 50l 60f 2L");
    expect_next(world, ZKL_WATCH, 2, 60);

    /* a broken connection: the own claims stay, the list tells the rest */

    zkl_view_forget(&world->view, gone, world);
    expect_gone(world, "40 60");
    expect(world, "50l 2L");
    expect_nothing_for(world, 2);

    see_own(world, find(world, 2));
    world->given = 3;
    merge(world);

    expect_gone(world, "50");
    grant(world, 2);
}


/* without memory the view stays as incomplete as before */

static void
test_merge_no_memory(void **state)
{
    world_t  *world = *state;

    create(world, 2);
    world->can_make = 1;

    see_foreign(world, 0);
    see_foreign(world, 1);
    see_own(world, find(world, 2));
    assert_int_equal(try_merge(world, world->view.tick), -1);

    assert_int_equal(world->view.complete_through, -1);
    expect_next(world, ZKL_WATCH, 2, 0);

    drop(world, 0);
    expect_next(world, ZKL_COMPLETE, 2, -1);

    world->can_make = 2;

    see_foreign(world, 1);
    see_own(world, find(world, 2));
    merge(world);

    expect(world, "1f 2L");
    expect_next(world, ZKL_WATCH, 2, 1);
}


/* a lost connection: the view forgets all claims; a list finds the claims */

static void
test_forget(void **state)
{
    world_t      *world = *state;
    zkl_entry_t  *held, *waiting;

    held = create(world, 0);
    waiting = create(world, 2);
    sibling(world, 1);
    grant(world, 0);
    world->view.watched = 1;

    zkl_view_forget(&world->view, gone, world);

    expect_gone(world, "1");
    expect(world, "0l 2L");
    expect_nothing_for(world, 2);
    assert_int_equal(world->view.complete_through, -1);

    /* each claim holds or waits as before */

    assert_int_equal(held->waiting, 0);
    assert_int_equal(waiting->waiting, 1);

    see_own(world, waiting);
    see_sibling(world, 1);
    see_own(world, held);
    merge(world);

    expect(world, "0l 1s 2L");
    expect_gone(world, "");
    assert_int_equal(world->view.complete_through, 2);
    expect_next(world, ZKL_WATCH, 2, 1);

    drop(world, 1);
    expect_next(world, ZKL_NOTHING, 2, -1);

    drop(world, 0);
    grant(world, 2);
}


/* if the reply of a create was lost, the list tells the seq of the claim */

static void
test_merge_finds(void **state)
{
    world_t      *world = *state;
    zkl_entry_t  *entry;

    entry = new_entry(world);
    entry->waiting = 1;

    see_foreign(world, 6);
    see(world, 7, ZKL_WRITE)->entry = entry;
    merge(world);

    assert_int_equal(entry->seq, 7);
    assert_int_equal(entry->mode, ZKL_WRITE);
    assert_int_equal(entry->origin, ZKL_LOCAL);
    expect(world, "6f 7L");
    expect_next(world, ZKL_WATCH, 7, 6);

    /* and the claim pins the parent */

    create(world, 8);
    assert_int_equal(world->view.complete_through, 8);
}


/* a claim created meanwhile is in the view before a claim that is found */

static void
test_merge_finds_ahead(void **state)
{
    world_t      *world = *state;
    zkl_entry_t  *entry;

    entry = create(world, 0);
    zkl_view_forget(&world->view, gone, world);
    create(world, 2);

    see_own(world, entry);
    see_foreign(world, 1);
    see_own(world, find(world, 2));
    merge(world);

    expect(world, "0L 1f 2L");
    grant(world, 0);
    expect_next(world, ZKL_WATCH, 2, 1);
}


/* readers pass readers, and wait for writers only */

static void
test_readers(void **state)
{
    world_t  *world = *state;

    create_mode(world, 0, ZKL_READ);
    create_mode(world, 1, ZKL_READ);
    create_mode(world, 2, ZKL_WRITE);
    create_mode(world, 3, ZKL_READ);
    create_mode(world, 4, ZKL_READ);

    grant(world, 0);
    grant(world, 1);
    expect_next(world, ZKL_NOTHING, 2, -1);

    /* a reader waits for a writer ahead, also if the writer is never granted */

    drop(world, 0);
    expect_next(world, ZKL_NOTHING, 2, -1);

    drop(world, 2);
    grant(world, 3);
    grant(world, 4);
    expect_nothing(world);
}


static void
test_readers_foreign(void **state)
{
    world_t  *world = *state;

    create_mode(world, 3, ZKL_READ);
    see(world, 0, ZKL_WRITE);
    see(world, 1, ZKL_READ);
    see(world, 2, ZKL_READ)->data = world;
    see_own(world, find(world, 3));
    merge(world);

    expect(world, "0f 1f 2s 3L");
    expect_next(world, ZKL_WATCH, 3, 0);

    create_mode(world, 4, ZKL_WRITE);

    drop(world, 0);
    expect_next(world, ZKL_COMPLETE, 3, -1);

    see(world, 1, ZKL_READ);
    see(world, 2, ZKL_READ)->data = world;
    see_own(world, find(world, 3));
    see_own(world, find(world, 4));
    merge(world);

    grant(world, 3);
    expect_next(world, ZKL_NOTHING, 4, -1);

    /* any claim blocks a writer, so the nearest claim is the blocker */

    drop(world, 3);
    expect_next(world, ZKL_WATCH, 4, 2);
}


static void
test_blocks(void **state)
{
    (void) state;

    assert_false(zkl_view_blocks(ZKL_READ, ZKL_READ));

    assert_true(zkl_view_blocks(ZKL_READ, ZKL_WRITE));
    assert_true(zkl_view_blocks(ZKL_READ, ZKL_MUTEX));
    assert_true(zkl_view_blocks(ZKL_WRITE, ZKL_READ));
    assert_true(zkl_view_blocks(ZKL_WRITE, ZKL_WRITE));
    assert_true(zkl_view_blocks(ZKL_MUTEX, ZKL_READ));
    assert_true(zkl_view_blocks(ZKL_MUTEX, ZKL_MUTEX));

    assert_false(zkl_view_blocks(ZKL_MEMBER, ZKL_MEMBER));
    assert_true(zkl_view_blocks(ZKL_READ, ZKL_MEMBER));
    assert_true(zkl_view_blocks(ZKL_MEMBER, ZKL_READ));
    assert_true(zkl_view_blocks(zkl_semaphore(2), zkl_semaphore(2)));
}


/* a reader may be in the place of a foreign writer that vanished */

static void
test_downgrade(void **state)
{
    world_t  *world = *state;

    create_mode(world, 5, ZKL_WRITE);
    see(world, 4, ZKL_WRITE);
    see_own(world, find(world, 5));
    merge(world);

    drop(world, 4);

    assert_int_equal(world->view.complete_through, 3);
    expect_next(world, ZKL_COMPLETE, 5, -1);

    see(world, 4, ZKL_READ);
    see_own(world, find(world, 5));
    merge(world);

    expect(world, "4f 5L");
    assert_int_equal(world->view.complete_through, 5);
    expect_next(world, ZKL_WATCH, 5, 4);

    /* a change of the parent would have told if a reader left a claim */

    world->view.watched = 1;
    drop(world, 4);
    grant(world, 5);
}


/* the list may not show a renamed reader under the new name yet */

static void
test_renamed(void **state)
{
    world_t  *world = *state;

    create_mode(world, 5, ZKL_WRITE);
    see(world, 4, ZKL_READ);
    see_own(world, find(world, 5));
    merge(world);

    world->view.watched = 1;

    /* the watch finds no znode under the new name */

    zkl_view_remove(&world->view, find(world, 4));

    assert_int_equal(world->view.complete_through, 3);
    expect_next(world, ZKL_COMPLETE, 5, -1);

    /* the server that answers still has the old name */

    see(world, 4, ZKL_MUTEX);
    see_own(world, find(world, 5));
    merge(world);

    expect_next(world, ZKL_WATCH, 5, 4);
}


/* a sibling's claim was shared while the list with the claim was under way */

static void
test_shared_since(void **state)
{
    world_t  *world = *state;

    create_mode(world, 5, ZKL_WRITE);
    see(world, 4, ZKL_WRITE)->data = world;
    see_own(world, find(world, 5));
    merge(world);

    find(world, 4)->mode = ZKL_READ;

    see(world, 4, ZKL_WRITE)->data = world;
    see_own(world, find(world, 5));
    merge(world);

    /* the caller learns of the mode again with the watch */

    expect_gone(world, "4");
    expect(world, "4s 5L");
    expect_next(world, ZKL_WATCH, 5, 4);
}


/* the same if a list shows the reader */

static void
test_downgrade_listed(void **state)
{
    world_t  *world = *state;

    create_mode(world, 5, ZKL_WRITE);
    see(world, 3, ZKL_WRITE);
    see(world, 4, ZKL_WRITE);
    see_own(world, find(world, 5));
    merge(world);

    see(world, 3, ZKL_READ);
    see_own(world, find(world, 5));
    merge(world);

    expect_gone(world, "3 4");
    expect(world, "3f 5L");
    assert_int_equal(find(world, 3)->mode, ZKL_READ);
    assert_int_equal(world->view.complete_through, 5);
    expect_next(world, ZKL_WATCH, 5, 3);
}


/* a sibling's writer leaves no reader; a mutex would change the parent */

static void
test_no_downgrade(void **state)
{
    world_t  *world = *state;

    create_mode(world, 2, ZKL_WRITE);
    see(world, 0, ZKL_MUTEX);
    see(world, 1, ZKL_WRITE)->data = world;
    see_own(world, find(world, 2));
    merge(world);
    expect(world, "0f 1s 2L");

    drop(world, 1);
    assert_int_equal(world->view.complete_through, 2);

    world->view.watched = 1;
    drop(world, 0);
    assert_int_equal(world->view.complete_through, 2);

    grant(world, 2);
}


/* a gateway's exclusive claim may leave a reader: no watch on the parent */

static void
test_downgrade_mutex(void **state)
{
    world_t  *world = *state;

    create(world, 5);
    see_foreign(world, 4);
    see_own(world, find(world, 5));
    merge(world);
    world->view.watched = 1;

    /* the parent watch fires before the watch on the claim */

    world->view.watched = 0;
    drop(world, 4);

    assert_int_equal(world->view.complete_through, 3);
    expect_next(world, ZKL_COMPLETE, 5, -1);

    see(world, 4, ZKL_READ)->who = 9;
    see_own(world, find(world, 5));
    merge(world);

    expect_gone(world, "");
    expect(world, "4f 5L");
    assert_int_equal(world->view.complete_through, 5);
    expect_next(world, ZKL_WATCH, 5, 4);

    world->view.watched = 1;
    drop(world, 4);
    grant(world, 5);
}


/* in place of a claim that became durable is a claim with the same name */

static void
test_durable(void **state)
{
    size_t          i;
    world_t        *world;
    zkl_mode_t  modes[] = {
        ZKL_MUTEX, ZKL_READ, ZKL_WRITE, zkl_semaphore(1)
    };

    for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        tear_down(state);
        assert_int_equal(set_up(state), 0);
        world = *state;

        create_mode(world, 5, (modes[i] == ZKL_READ) ? ZKL_WRITE : modes[i]);
        see(world, 4, modes[i]);
        see_own(world, find(world, 5));
        merge(world);

        drop(world, 4);

        assert_int_equal(world->view.complete_through, 3);
        expect_next(world, ZKL_COMPLETE, 5, -1);

        see(world, 4, modes[i]);
        see_own(world, find(world, 5));
        merge(world);

        expect(world, "4f 5L");
        expect_next(world, ZKL_WATCH, 5, 4);
    }
}


/* a claim that became durable keeps the seat, and no seat is free */

static void
test_durable_permit(void **state)
{
    world_t    *world = *state;
    zkl_mode_t  mode;

    mode = zkl_semaphore(2);

    create_mode(world, 5, mode);
    see(world, 3, mode);
    see(world, 4, mode);
    see_own(world, find(world, 5));
    merge(world);

    watch(world, 5, 4);
    watch(world, 5, 3);
    expect_nothing_for(world, 5);

    /* the nearer claim is unchanged, and known */

    drop(world, 3);

    assert_int_equal(world->view.complete_through, 2);
    expect_next(world, ZKL_COMPLETE, 5, -1);

    see(world, 3, mode);
    see(world, 4, mode);
    see_own(world, find(world, 5));
    merge(world);

    expect_gone(world, "");
    expect(world, "3f 4f 5L");
    assert_int_equal(find(world, 4)->watched, 1);
    assert_int_equal(world->view.complete_through, 5);

    watch(world, 5, 3);
    expect_nothing_for(world, 5);

    /* a list without the claim proves that a seat is free */

    see(world, 4, mode);
    see_own(world, find(world, 5));
    merge(world);

    expect_gone(world, "3");
    grant(world, 5);
}


/* a durable member, too: a claim of another use is refused, not granted */

static void
test_durable_member(void **state)
{
    world_t  *world = *state;

    create(world, 5);
    see(world, 4, ZKL_MEMBER);
    see_own(world, find(world, 5));
    merge(world);

    drop(world, 4);

    assert_int_equal(world->view.complete_through, 3);
    expect_next(world, ZKL_COMPLETE, 5, -1);

    see(world, 4, ZKL_MEMBER);
    see_own(world, find(world, 5));
    merge(world);

    expect(world, "4f 5L");
    watch(world, 5, 4);
    expect_next(world, ZKL_VIEW_CONFLICT, 5, -1);
}


/* the same if a list shows the reader, despite the watches */

static void
test_downgrade_mutex_listed(void **state)
{
    world_t  *world = *state;

    create_mode(world, 5, ZKL_READ);
    see_foreign(world, 3);
    see_foreign(world, 4);
    see_own(world, find(world, 5));
    merge(world);
    world->view.watched = 1;
    watch(world, 5, 4);

    see(world, 3, ZKL_READ)->who = 9;
    see_own(world, find(world, 5));
    merge(world);

    expect_gone(world, "3 4");
    expect(world, "3f 5L");
    assert_int_equal(find(world, 3)->mode, ZKL_READ);
    assert_int_equal(find(world, 3)->watched, 0);
    assert_int_equal(world->view.complete_through, 5);

    /* readers share the lock */

    grant(world, 5);
}


/*
 * If a claim is gone before the watch on the claim is set, the time of the end
 * is unknown: the parent may have changed before the parent was watched.
 */

static void
test_downgrade_mutex_missing(void **state)
{
    world_t  *world = *state;

    create(world, 5);
    see_foreign(world, 4);
    see_own(world, find(world, 5));
    merge(world);
    world->view.watched = 1;

    zkl_view_remove(&world->view, find(world, 4));

    assert_int_equal(world->view.complete_through, 3);
    expect_next(world, ZKL_COMPLETE, 5, -1);
}


/*
 * The same for each mode, because the claim may have become durable.  But if a
 * watch on the claim told, the parent watch would have told first.
 */

static void
test_durable_missing(void **state)
{
    size_t          i, told;
    world_t        *world;
    zkl_mode_t  modes[] = {
        ZKL_MUTEX, ZKL_READ, zkl_semaphore(1), ZKL_MEMBER
    };

    for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        for (told = 0; told < 2; told++) {
            tear_down(state);
            assert_int_equal(set_up(state), 0);
            world = *state;

            create_mode(world, 5, ZKL_WRITE);
            see(world, 4, modes[i]);
            see_own(world, find(world, 5));
            merge(world);
            world->view.watched = 1;

            find(world, 4)->watched = told;
            zkl_view_remove(&world->view, find(world, 4));

            if (told) {
                assert_int_equal(world->view.complete_through, 5);
                grant(world, 5);
                continue;
            }

            assert_int_equal(world->view.complete_through, 3);
            expect_next(world, ZKL_COMPLETE, 5, -1);

            see(world, 4, modes[i]);
            see_own(world, find(world, 5));
            merge(world);

            expect(world, "4f 5L");
            expect_next(world, ZKL_WATCH, 5, 4);
        }
    }
}


/* a list ahead of the watch shows the claim in place of the watched claim */

static void
test_downgrade_watched_listed(void **state)
{
    world_t  *world = *state;

    create(world, 5);
    see_foreign(world, 4);
    see_own(world, find(world, 5));
    merge(world);
    world->view.watched = 1;
    watch(world, 5, 4);

    see(world, 4, ZKL_READ)->who = 9;
    see_own(world, find(world, 5));
    merge(world);

    expect_gone(world, "4");
    expect(world, "4f 5L");
    assert_int_equal(find(world, 4)->mode, ZKL_READ);
    assert_int_equal(find(world, 4)->watched, 0);
    expect_next(world, ZKL_WATCH, 5, 4);
}


/* a live writer and the reader of the writer have the same seq */

static void
test_equal_seq(void **state)
{
    unsigned      i;
    world_t      *world = *state;
    zkl_entry_t  *writer, *reader;

    create_mode(world, 5, ZKL_WRITE);

    for (i = 0; i < 2; i++) {
        see(world, 4, ZKL_READ);
        see(world, 4, ZKL_WRITE);
        see_own(world, find(world, 5));
        merge(world);

        expect(world, "4f 4f 5L");
        expect_gone(world, "");
        assert_int_equal(world->made, 2);
    }

    writer = zkl_view_first(&world->view);
    reader = writer->next;

    assert_int_equal(writer->mode, ZKL_WRITE);
    assert_int_equal(reader->mode, ZKL_READ);

    zkl_view_remove(&world->view, writer);
    expect_next(world, ZKL_WATCH, 5, 4);

    /* that reader is known, but another reader may be there by now */

    assert_int_equal(world->view.complete_through, 3);
    zkl_view_remove(&world->view, reader);
    expect_next(world, ZKL_COMPLETE, 5, -1);
}


/*
 * A writer may make a reader, drop the reader, and make another reader, all of
 * the writer's seq.  When the writer is gone, the known reader may be the old
 * reader: the view takes the reader from the list.
 */

static void
test_equal_seq_replaced(void **state)
{
    world_t      *world = *state;
    zkl_entry_t  *old;

    create_mode(world, 5, ZKL_WRITE);
    see(world, 4, ZKL_WRITE);
    see(world, 4, ZKL_READ);
    see_own(world, find(world, 5));
    merge(world);

    old = find(world, 5)->prev;
    assert_int_equal(old->mode, ZKL_READ);

    /* a watch tells that the writer is gone, then a list is needed */

    drop(world, 4);
    expect(world, "4f 5L");

    see(world, 4, ZKL_READ)->who = 9;
    see_own(world, find(world, 5));
    merge(world);

    assert_ptr_equal(world->gone[0], old);
    expect_gone(world, "4");
    expect(world, "4f 5L");
    assert_int_equal(world->made, 3);
    expect_next(world, ZKL_WATCH, 5, 4);

    /* no other reader has followed */

    see(world, 4, ZKL_READ)->who = 9;
    see_own(world, find(world, 5));
    merge(world);

    expect_gone(world, "");
    assert_int_equal(world->made, 3);

    world->view.watched = 1;
    drop(world, 4);
    grant(world, 5);
}


/* the same if the list is the first to tell that the writer is gone */

static void
test_equal_seq_replaced_listed(void **state)
{
    world_t      *world = *state;
    zkl_entry_t  *old;

    create_mode(world, 5, ZKL_WRITE);
    see(world, 4, ZKL_READ);
    see(world, 4, ZKL_WRITE);
    see(world, 3, ZKL_READ);
    see_own(world, find(world, 5));
    merge(world);

    old = find(world, 5)->prev;
    assert_int_equal(old->mode, ZKL_READ);

    see(world, 3, ZKL_READ);
    see(world, 4, ZKL_READ)->who = 9;
    see_own(world, find(world, 5));
    merge(world);

    assert_ptr_equal(world->gone[1], old);
    expect_gone(world, "4 4");
    expect(world, "3f 4f 5L");
    assert_int_equal(find(world, 4)->mode, ZKL_READ);
    assert_int_equal(world->made, 4);
    assert_int_equal(world->view.complete_through, 5);
    expect_next(world, ZKL_WATCH, 5, 4);
}


/* another claim in the place of a claim: the parent was made anew */

static void
test_parent_made_anew(void **state)
{
    world_t  *world = *state;

    create(world, 0);
    create(world, 1);
    grant(world, 0);
    expect_next(world, ZKL_NOTHING, 1, -1);

    see(world, 0, ZKL_MUTEX)->who = 7;
    merge(world);

    /* both local claims are gone, and the next claim does not pass 0 */

    expect_gone(world, "0 1");
    expect(world, "0f");

    create(world, 1);
    expect_next(world, ZKL_COMPLETE, 1, -1);

    see(world, 0, ZKL_MUTEX)->who = 7;
    see_own(world, find(world, 1));
    merge(world);

    expect_next(world, ZKL_WATCH, 1, 0);
}


/*
 * The end of a foreign writer makes the view incomplete in front of a known
 * sibling.  The view must close the gap past the sibling, because the sibling
 * would be learned a second time otherwise.
 */

static void
test_learn_passes_known(void **state)
{
    world_t  *world = *state;

    create_mode(world, 6, ZKL_READ);
    see(world, 3, ZKL_WRITE);
    see(world, 5, ZKL_READ)->data = world;
    see_own(world, find(world, 6));
    merge(world);
    drop(world, 3);
    assert_int_equal(world->view.complete_through, 2);

    zkl_view_learn(&world->view, NULL);
    assert_int_equal(world->view.complete_through, 3);

    zkl_view_learn(&world->view, NULL);
    assert_int_equal(world->view.complete_through, 6);

    expect(world, "5s 6L");
    grant(world, 6);
}


/* but a foreign claim may have a duplicate that is not known */

static void
test_learn_stops_at_foreign(void **state)
{
    world_t  *world = *state;

    create_mode(world, 6, ZKL_WRITE);
    see(world, 4, ZKL_WRITE);
    see(world, 5, ZKL_WRITE);
    see(world, 5, ZKL_READ);
    see_own(world, find(world, 6));
    merge(world);

    drop(world, 5);
    drop(world, 4);
    expect(world, "5f 6L");
    assert_int_equal(world->view.complete_through, 3);

    zkl_view_learn(&world->view, NULL);

    assert_int_equal(world->view.complete_through, 4);
    expect_next(world, ZKL_WATCH, 6, 5);

    drop(world, 5);
    expect_next(world, ZKL_COMPLETE, 6, -1);
}


/* all permits are in use; any holder that leaves makes room */

static void
test_semaphore(void **state)
{
    int64_t     seq;
    world_t    *world = *state;
    zkl_mode_t  mode;

    mode = zkl_semaphore(3);

    for (seq = 0; seq < 6; seq++) {
        create_mode(world, seq, mode);
    }

    grant(world, 0);
    grant(world, 1);
    grant(world, 2);
    expect_nothing_for(world, 3);
    expect(world, "0l 1l 2l 3L 4L 5L");

    drop(world, 1);
    grant(world, 3);
    expect_nothing_for(world, 4);

    drop(world, 3);
    grant(world, 4);
    expect_nothing_for(world, 5);

    drop(world, 0);
    grant(world, 5);
    expect_nothing(world);
}


static void
test_semaphore_one(void **state)
{
    world_t  *world = *state;

    create_mode(world, 0, zkl_semaphore(1));
    create_mode(world, 1, zkl_semaphore(1));

    grant(world, 0);
    expect_nothing_for(world, 1);

    drop(world, 0);
    grant(world, 1);
}


/* the watches are as many as the permits, the nearest claims first */

static void
test_semaphore_watches(void **state)
{
    world_t    *world = *state;
    zkl_mode_t  mode;

    mode = zkl_semaphore(3);

    create_mode(world, 5, mode);
    see(world, 0, mode);
    see(world, 1, mode);
    see(world, 2, mode);
    see(world, 3, mode)->data = world;
    see(world, 4, mode);
    see_own(world, find(world, 5));
    merge(world);
    expect(world, "0f 1f 2f 3s 4f 5L");
    world->view.watched = 1;

    watch(world, 5, 4);
    watch(world, 5, 3);
    watch(world, 5, 2);
    expect_nothing_for(world, 5);

    /* the farther claims count only when a watched claim is gone */

    drop(world, 0);
    expect_nothing_for(world, 5);

    drop(world, 3);
    watch(world, 5, 1);
    expect_nothing_for(world, 5);

    /* no claim is in the place of 3, either */

    assert_int_equal(world->view.complete_through, 5);

    drop(world, 2);
    grant(world, 5);
    expect_nothing(world);
}


/* the end of any watched claim wakes the waiter */

static void
test_semaphore_woken(void **state)
{
    int64_t   seq;
    world_t  *world;

    for (seq = 0; seq < 3; seq++) {
        tear_down(state);
        assert_int_equal(set_up(state), 0);
        world = *state;

        create_mode(world, 3, zkl_semaphore(3));
        see(world, 0, zkl_semaphore(3));
        see(world, 1, zkl_semaphore(3));
        see(world, 2, zkl_semaphore(3));
        see_own(world, find(world, 3));
        merge(world);
        world->view.watched = 1;

        watch(world, 3, 2);
        watch(world, 3, 1);
        watch(world, 3, 0);
        expect_nothing_for(world, 3);

        drop(world, seq);
        grant(world, 3);
    }
}


/* local claims ahead count, too, but need no watch */

static void
test_semaphore_local(void **state)
{
    world_t    *world = *state;
    zkl_mode_t  mode;

    mode = zkl_semaphore(2);

    create_mode(world, 0, mode);
    grant(world, 0);
    create_mode(world, 2, mode);
    sibling_mode(world, 1, mode);
    expect(world, "0l 1s 2L");

    watch(world, 2, 1);
    expect_nothing_for(world, 2);

    drop(world, 0);
    grant(world, 2);
    create_mode(world, 3, mode);
    expect_nothing_for(world, 3);

    drop(world, 2);
    grant(world, 3);
}


/* the unknown claims may take the remaining permits */

static void
test_semaphore_unknown(void **state)
{
    world_t    *world = *state;
    zkl_mode_t  mode;

    mode = zkl_semaphore(2);

    create_mode(world, 0, mode);
    grant(world, 0);
    create_mode(world, 3, mode);
    expect_next(world, ZKL_COMPLETE, 3, -1);

    see_own(world, find(world, 0));
    see(world, 2, mode);
    see_own(world, find(world, 3));
    merge(world);

    watch(world, 3, 2);
    expect_nothing_for(world, 3);
}


/* a member is granted at once if all claims ahead are known */

static void
test_members(void **state)
{
    world_t  *world = *state;

    create_mode(world, 2, ZKL_MEMBER);
    expect_next(world, ZKL_COMPLETE, 2, -1);

    see(world, 0, ZKL_MEMBER);
    see(world, 1, ZKL_MEMBER)->data = world;
    see_own(world, find(world, 2));
    merge(world);
    create_mode(world, 3, ZKL_MEMBER);
    expect(world, "0f 1s 2L 3L");

    grant(world, 2);
    grant(world, 3);
    expect_nothing(world);
}


/* each mode behind each mode */

static void
test_conflict(void **state)
{
    int       mixes;
    size_t    i, k;
    world_t  *world;

    const zkl_mode_t  modes[] = {
        ZKL_MUTEX, ZKL_READ, ZKL_WRITE, ZKL_MEMBER,
        zkl_semaphore(1), zkl_semaphore(2),
        zkl_semaphore(ZKL_PERMITS_MAX)
    };

    for (i = 0; i < 7; i++) {
        for (k = 0; k < 7; k++) {
            tear_down(state);
            assert_int_equal(set_up(state), 0);
            world = *state;

            create_mode(world, 0, modes[i]);
            grant(world, 0);
            create_mode(world, 1, modes[k]);

            mixes = (i == k || (i < 3 && k < 3));

            assert_int_equal(zkl_view_mixes(modes[i], modes[k]), mixes);
            assert_int_equal(zkl_view_conflict(&world->view, find(world, 1)),
                                               !mixes);
            assert_false(zkl_view_conflict(&world->view, find(world, 0)));

            if (!mixes) {
                expect_next(world, ZKL_VIEW_CONFLICT, 1, -1);
            }

            /* when the first is gone, the lock is free for another use */

            drop(world, 0);
            grant(world, 1);
            assert_false(zkl_view_conflict(&world->view, find(world, 1)));
        }
    }
}


/* modes of claims in order, and which claims hold the lock: "+" */

static void
test_count(void **state)
{
    size_t         i, k;
    zkl_holders_t  holders;

    static const struct {
        zkl_mode_t   modes[5];
        const char  *held;
    } cases[] = {
        { { ZKL_MUTEX, ZKL_MUTEX }, "+-" },
        { { ZKL_READ, ZKL_READ, ZKL_WRITE, ZKL_READ }, "++--" },
        { { ZKL_WRITE, ZKL_READ }, "+-" },
        { { ZKL_MUTEX, ZKL_READ }, "+-" },
        { { ZKL_MEMBER, ZKL_MEMBER, ZKL_MEMBER }, "+++" },
        { { ZKL_MEMBER, ZKL_MUTEX, ZKL_MEMBER }, "+--" },
        { { zkl_semaphore(2), zkl_semaphore(2), zkl_semaphore(2) },
          "++-" },

        /* a claim of another use waits, or will be refused, even if permits
           are left */
        { { zkl_semaphore(1), zkl_semaphore(5) }, "+-" },
        { { ZKL_READ, zkl_semaphore(5), ZKL_READ }, "+--" }
    };

    (void) state;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memset(&holders, 0, sizeof(zkl_holders_t));

        for (k = 0; cases[i].held[k] != '\0'; k++) {
            assert_int_equal(zkl_view_count(&holders, cases[i].modes[k]),
                             cases[i].held[k] == '+');
        }
    }
}


/* of the claims ahead, only the first live claim decides the use of the lock */

static void
test_conflict_first(void **state)
{
    world_t  *world = *state;

    create_mode(world, 3, ZKL_WRITE);
    see(world, 0, ZKL_READ);
    see(world, 1, ZKL_MEMBER);
    see(world, 2, zkl_semaphore(2));
    see_own(world, find(world, 3));
    merge(world);
    world->view.watched = 1;

    assert_false(zkl_view_conflict(&world->view, find(world, 3)));
    watch(world, 3, 2);

    drop(world, 2);
    watch(world, 3, 1);

    /* 1 is first now */

    drop(world, 0);
    assert_true(zkl_view_conflict(&world->view, find(world, 3)));
    expect_next(world, ZKL_VIEW_CONFLICT, 3, -1);

    /* the next waiter has the use of 1, and is granted */

    create_mode(world, 4, ZKL_MEMBER);
    drop(world, 3);
    grant(world, 4);
}


/* a refused claim does not decide the use, and blocks no claim */

static void
test_conflict_removed(void **state)
{
    world_t      *world = *state;
    zkl_entry_t  *entry;

    create(world, 0);
    grant(world, 0);
    entry = create_mode(world, 1, ZKL_MEMBER);
    create(world, 2);

    expect_next(world, ZKL_VIEW_CONFLICT, 1, -1);
    drop(world, 1);
    assert_false(zkl_view_conflict(&world->view, entry));
    expect_nothing_for(world, 2);

    drop(world, 0);
    grant(world, 2);
}


/*
 * A sibling's claim of another use is blocked while claims are ahead, and may
 * be granted before the refusal.  So no claim passes the sibling's claim.
 */

static void
test_other_use_blocks(void **state)
{
    size_t    i;
    world_t  *world;

    const zkl_mode_t  modes[] = { ZKL_MEMBER, zkl_semaphore(5) };

    for (i = 0; i < 2; i++) {
        tear_down(state);
        assert_int_equal(set_up(state), 0);
        world = *state;

        create_mode(world, 0, modes[i]);
        grant(world, 0);
        create_mode(world, 2, modes[i]);
        sibling(world, 1);
        expect(world, "0l 1s 2L");

        watch(world, 2, 1);
        expect_nothing_for(world, 2);

        /* 1 was granted */

        drop(world, 0);
        expect_next(world, ZKL_VIEW_CONFLICT, 2, -1);

        /* or 1 left ungranted */

        drop(world, 1);
        grant(world, 2);
    }
}


/* the first claim may be long gone; then there is a conflict */

static void
test_other_use_looks_at_first(void **state)
{
    world_t  *world = *state;

    create_mode(world, 2, ZKL_MEMBER);
    see(world, 0, ZKL_MEMBER);
    see(world, 1, ZKL_WRITE);
    see_own(world, find(world, 2));
    merge(world);
    world->view.watched = 1;

    watch(world, 2, 1);
    watch(world, 2, 0);
    expect_nothing_for(world, 2);

    drop(world, 0);
    expect_next(world, ZKL_VIEW_CONFLICT, 2, -1);
}


/* a first claim without a watch may be gone, and does not decide the use */

static void
test_conflict_unwatched(void **state)
{
    world_t  *world = *state;

    create_mode(world, 2, zkl_semaphore(2));
    see(world, 0, ZKL_MUTEX);
    see(world, 1, ZKL_MUTEX)->data = world;
    see_own(world, find(world, 2));
    merge(world);
    world->view.watched = 1;

    watch(world, 2, 0);
    expect_next(world, ZKL_VIEW_CONFLICT, 2, -1);

    drop(world, 0);
    watch(world, 2, 1);
    expect_next(world, ZKL_VIEW_CONFLICT, 2, -1);

    drop(world, 1);
    grant(world, 2);
}


/* a claim that may not be first does not decide the use, either */

static void
test_conflict_unknown(void **state)
{
    world_t  *world = *state;

    create(world, 6);
    see(world, 4, ZKL_WRITE);
    see(world, 5, ZKL_MEMBER);
    see_own(world, find(world, 6));
    merge(world);
    watch(world, 6, 5);

    drop(world, 4);
    expect_next(world, ZKL_COMPLETE, 6, -1);

    see(world, 4, ZKL_READ);
    see(world, 5, ZKL_MEMBER);
    see_own(world, find(world, 6));
    merge(world);

    assert_false(zkl_view_conflict(&world->view, find(world, 6)));
}


/* an event finds the watched claim; there may be duplicates */

static void
test_watched(void **state)
{
    world_t      *world = *state;
    zkl_entry_t  *one, *two;

    create_mode(world, 6, ZKL_WRITE);
    see(world, 3, ZKL_READ);
    see(world, 4, ZKL_WRITE);
    see(world, 4, ZKL_READ);
    see(world, 5, ZKL_READ);
    see_own(world, find(world, 6));
    merge(world);
    create_mode(world, 7, ZKL_WRITE);

    one = find(world, 4);
    two = zkl_view_after(&world->view, one);
    assert_int_equal(two->seq, 4);
    assert_null(zkl_view_after(&world->view, find(world, 7)));

    assert_null(zkl_view_watched(&world->view, 4, NULL));
    assert_null(zkl_view_watched(&world->view, 5, NULL));

    watch(world, 6, 5);
    assert_ptr_equal(zkl_view_watched(&world->view, 5, NULL), find(world, 5));
    assert_null(zkl_view_watched(&world->view, 5, find(world, 5)));

    /* a single claim of the two is watched */

    one->watched = 1;
    assert_ptr_equal(zkl_view_watched(&world->view, 4, NULL), one);
    assert_null(zkl_view_watched(&world->view, 4, one));

    one->watched = 0;
    two->watched = 1;
    assert_ptr_equal(zkl_view_watched(&world->view, 4, NULL), two);
    assert_null(zkl_view_watched(&world->view, 4, two));

    /* both are watched */

    one->watched = 1;
    assert_ptr_equal(zkl_view_watched(&world->view, 4, NULL), two);
    assert_ptr_equal(zkl_view_watched(&world->view, 4, two), one);
    assert_null(zkl_view_watched(&world->view, 4, one));

    /* a seq without a claim, without a watch, or of a local claim */

    assert_null(zkl_view_watched(&world->view, 2, NULL));
    assert_null(zkl_view_watched(&world->view, 3, NULL));
    assert_null(zkl_view_watched(&world->view, 6, NULL));
    assert_null(zkl_view_watched(&world->view, 8, NULL));

    /* also without a waiter */

    drop(world, 6);
    drop(world, 7);
    assert_ptr_equal(zkl_view_watched(&world->view, 4, NULL), two);
    assert_ptr_equal(zkl_view_watched(&world->view, 4, two), one);
}


static void
test_position(void **state)
{
    world_t  *world = *state;

    create(world, 4);
    see_foreign(world, 1);
    see_sibling(world, 3);
    see_own(world, find(world, 4));
    merge(world);
    create(world, 5);
    expect(world, "1f 3s 4L 5L");

    assert_int_equal(zkl_view_position(&world->view, find(world, 1)), 0);
    assert_int_equal(zkl_view_position(&world->view, find(world, 4)), 2);
    assert_int_equal(zkl_view_position(&world->view, find(world, 5)), 3);

    drop(world, 3);
    assert_int_equal(zkl_view_position(&world->view, find(world, 5)), 2);
}


/* a second call does not change the view */

static void
test_idempotent(void **state)
{
    world_t      *world = *state;
    zkl_entry_t  *entry;

    entry = create(world, 0);
    create(world, 1);

    zkl_view_grant(entry);
    zkl_view_grant(entry);
    expect(world, "0l 1L");

    zkl_view_remove(&world->view, entry);
    zkl_view_remove(&world->view, entry);
    expect(world, "1L");
}


int
main(void)
{
#define test(name)  cmocka_unit_test_setup_teardown(name, set_up, tear_down)

    const struct CMUnitTest  tests[] = {
        test(test_empty),
        test(test_seq_0),
        test(test_unknown),
        test(test_contiguous),
        test(test_handoff),
        test(test_waiter_leaves),
        test(test_pin_by_claim),
        test(test_pin_by_watch),
        test(test_pin_lost),
        test(test_pin_lost_forgets_others),
        test(test_pin_changes_hands),
        test(test_seq_0_again),
        test(test_backwards),
        test(test_same_seq),
        test(test_gap),
        test(test_gap_behind_foreign),
        test(test_watch_nearest),
        test(test_watch_first_only),
        test(test_learn),
        test(test_learn_gone),
        test(test_keep),
        test(test_keep_all_but_one),
        test(test_learn_closes),
        test(test_merge_new),
        test(test_merge_again),
        test(test_merge_gone),
        test(test_merge_gone_local),
        test(test_merge_younger),
        test(test_merge_empty),
        test(test_merge_lagging),
        test(test_merge_decided),
        test(test_merge_decided_linked),
        test(test_merge_known_as_gone),
        test(test_misnumbered),
        test(test_misnumbered_alike),
        test(test_misnumbered_own),
        test(test_merge_no_memory),
        test(test_forget),
        test(test_merge_finds),
        test(test_merge_finds_ahead),
        test(test_readers),
        test(test_readers_foreign),
        test(test_blocks),
        test(test_downgrade),
        test(test_renamed),
        test(test_shared_since),
        test(test_downgrade_listed),
        test(test_no_downgrade),
        test(test_downgrade_mutex),
        test(test_durable),
        test(test_durable_permit),
        test(test_durable_member),
        test(test_downgrade_mutex_listed),
        test(test_downgrade_mutex_missing),
        test(test_durable_missing),
        test(test_downgrade_watched_listed),
        test(test_equal_seq),
        test(test_equal_seq_replaced),
        test(test_equal_seq_replaced_listed),
        test(test_parent_made_anew),
        test(test_learn_passes_known),
        test(test_learn_stops_at_foreign),
        test(test_semaphore),
        test(test_semaphore_one),
        test(test_semaphore_watches),
        test(test_semaphore_woken),
        test(test_semaphore_local),
        test(test_semaphore_unknown),
        test(test_members),
        test(test_conflict),
        test(test_conflict_first),
        test(test_count),
        test(test_conflict_removed),
        test(test_other_use_blocks),
        test(test_other_use_looks_at_first),
        test(test_conflict_unwatched),
        test(test_conflict_unknown),
        test(test_watched),
        test(test_position),
        test(test_idempotent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
