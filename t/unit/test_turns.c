
/*
 * Turns: no queue waits for ever behind the other, the answers to come are
 * bounded, and a list is shared by those alone that asked before the list was
 * sent.
 */


#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../src/zk/turns.c"


#define OPS         1024
#define SHORT       (ZKL_TURNS_BYTES / ZKL_TURNS_SHORT)
#define GETS        (ZKL_TURNS_BYTES / ZKL_TURNS_GET)


static zkl_turns_t  turns;
static zkl_op_t     ops[OPS];
static char         paths[OPS][16];
static unsigned     nops;


static int
setup(void **state)
{
    (void) state;

    memset(&turns, 0, sizeof(turns));
    memset(ops, 0, sizeof(ops));
    nops = 0;

    zkl_turns_init(&turns);

    return 0;
}


static zkl_op_t *
make(zkl_op_e type, zkl_turn_e turn, const char *path)
{
    zkl_op_t  *op;

    assert_true(nops < OPS);

    op = &ops[nops++];

    op->type = type;
    op->turn = turn;
    op->path.data = (u_char *) path;
    op->path.len = strlen(path);
    ngx_queue_init(&op->ops);

    return op;
}


/* An operation that waits, on a path of its own. */

static zkl_op_t *
add(zkl_op_e type, zkl_turn_e turn)
{
    zkl_op_t  *op;

    snprintf(paths[nops], sizeof(paths[0]), "/locks/%u", nops);
    op = make(type, turn, paths[nops]);

    zkl_turns_add(&turns, op);

    return op;
}


static zkl_op_t *
list(const char *path)
{
    zkl_op_t  *op;

    op = make(ZKL_OP_LIST, ZKL_TURN_LOOK, path);
    zkl_turns_add(&turns, op);

    return op;
}


static zkl_op_t *
take(void)
{
    return zkl_turns_take(&turns, 1);
}


/* The answer is a list of one name, for which bytes are counted. */

static void
answer(zkl_op_t *op, size_t bytes, ngx_msec_t now)
{
    static ngx_str_t  name;

    name.len = bytes - 5;

    op->rc = ZKL_OK;
    op->children = &name;
    op->nchildren = 1;

    zkl_turns_answered(&turns, op, now);
}


/* Takes an operation that shares the list of op; NULL: none is left. */

static zkl_op_t *
sharer(zkl_op_t *op)
{
    ngx_queue_t  *q;

    if (ngx_queue_empty(&op->ops)) {
        return NULL;
    }

    q = ngx_queue_head(&op->ops);
    ngx_queue_remove(q);

    return ngx_queue_data(q, zkl_op_t, queue);
}


static zkl_op_t *
end(zkl_op_t *op)
{
    op->children = NULL;

    return zkl_turns_end(&turns, op);
}


/* The lists of claims go first, and each second operation is a look. */

static void
test_each_second(void **state)
{
    int       i;
    zkl_op_t  *claims[4], *looks[4];

    (void) state;

    for (i = 0; i < 4; i++) {
        looks[i] = add(ZKL_OP_GET, ZKL_TURN_LOOK);
        claims[i] = add(ZKL_OP_LIST, ZKL_TURN_CLAIM);
    }

    for (i = 0; i < 4; i++) {
        assert_ptr_equal(take(), claims[i]);
        assert_ptr_equal(take(), looks[i]);
    }

    assert_null(take());
    assert_false(zkl_turns_waiting(&turns));
}


/* However many operations of the one kind come, those of the other go on. */

static void
test_neither_starves(void **state)
{
    int       i, n;
    zkl_op_t  *claim, *look, *op;

    (void) state;

    /* a burst of the one kind alone, before the other comes */

    for (n = 0; n < 2; n++) {
        setup(NULL);

        for (i = 0; i < 5; i++) {
            (void) add(ZKL_OP_GET, n ? ZKL_TURN_CLAIM : ZKL_TURN_LOOK);
            assert_non_null(take());
        }

        claim = add(ZKL_OP_GET, ZKL_TURN_CLAIM);
        look = add(ZKL_OP_GET, ZKL_TURN_LOOK);

        for (i = 0; i < 100; i++) {
            op = take();
            assert_true(op == claim || op == look);

            if (op == claim) {
                claim = add(ZKL_OP_GET, ZKL_TURN_CLAIM);
                op = take();
                assert_ptr_equal(op, look);
                look = add(ZKL_OP_GET, ZKL_TURN_LOOK);

            } else {
                look = add(ZKL_OP_GET, ZKL_TURN_LOOK);
                op = take();
                assert_ptr_equal(op, claim);
                claim = add(ZKL_OP_GET, ZKL_TURN_CLAIM);
            }
        }
    }
}


static void
test_bound(void **state)
{
    int       i;
    zkl_op_t  *first, *last;

    (void) state;

    for (i = 0; i < SHORT + 1; i++) {
        (void) add(ZKL_OP_LIST, ZKL_TURN_LOOK);
    }

    last = &ops[SHORT];
    first = take();

    for (i = 1; i < SHORT; i++) {
        assert_non_null(take());
    }

    assert_int_equal(turns.bytes, ZKL_TURNS_BYTES);
    assert_null(take());
    assert_true(zkl_turns_waiting(&turns));

    /* an answer as long as was taken for granted, and the end of sharing */

    answer(first, ZKL_TURNS_SHORT, 1);
    assert_null(take());

    assert_null(end(first));
    assert_ptr_equal(take(), last);

    setup(NULL);

    for (i = 0; i < GETS + 1; i++) {
        (void) add(ZKL_OP_GET, ZKL_TURN_LOOK);
    }

    for (i = 0; i < GETS; i++) {
        assert_non_null(take());
    }

    assert_null(take());

    for (i = 0; i < GETS; i++) {
        assert_null(end(&ops[i]));
    }

    assert_non_null(take());
}


/* What a list counts is what the last list of the path counted. */

static void
test_sizes(void **state)
{
    zkl_op_t  *op, *other;

    (void) state;

    op = list("/a");
    assert_ptr_equal(take(), op);
    assert_int_equal(turns.bytes, ZKL_TURNS_SHORT);
    answer(op, ZKL_TURNS_BYTES - ZKL_TURNS_SHORT + 1, 1);
    assert_int_equal(turns.bytes, ZKL_TURNS_BYTES - ZKL_TURNS_SHORT + 1);
    assert_null(end(op));
    assert_int_equal(turns.bytes, 0);

    /* too long to be sent beside any other, but not for ever */

    other = list("/b");
    assert_ptr_equal(zkl_turns_take(&turns, 0), other);
    op = list("/a");
    assert_null(zkl_turns_take(&turns, 0));
    assert_null(end(other));
    assert_ptr_equal(zkl_turns_take(&turns, 0), op);
    assert_int_equal(turns.bytes, ZKL_TURNS_BYTES - ZKL_TURNS_SHORT + 1);

    /* the list has become shorter */

    answer(op, ZKL_TURNS_SHORT + 1, 2);
    assert_null(end(op));
    op = list("/a");
    assert_ptr_equal(zkl_turns_take(&turns, 0), op);
    assert_int_equal(turns.bytes, ZKL_TURNS_SHORT + 1);

    answer(op, ZKL_TURNS_SHORT, 3);
    assert_null(end(op));
    op = list("/a");
    assert_ptr_equal(zkl_turns_take(&turns, 0), op);
    assert_int_equal(turns.bytes, ZKL_TURNS_SHORT);

    /* an answer that is no list says nothing */

    op->rc = ZKL_UNKNOWN;
    zkl_turns_answered(&turns, op, 9);
    assert_null(end(op));
    assert_int_equal(turns.bytes, 0);

    /* longer than all together */

    op = list("/a");
    assert_ptr_equal(zkl_turns_take(&turns, 0), op);
    answer(op, 2 * ZKL_TURNS_BYTES, 4);
    assert_null(end(op));
    op = list("/a");
    assert_null(zkl_turns_take(&turns, 4));
    assert_ptr_equal(zkl_turns_take(&turns, 0), op);
}


/* Behind a long list the operations without a turn are answered first. */

static void
test_long(void **state)
{
    zkl_op_t  *op;

    (void) state;

    op = list("/a");
    assert_ptr_equal(take(), op);
    answer(op, ZKL_TURNS_LONG - 1, 50);
    assert_null(end(op));

    op = list("/a");
    assert_ptr_equal(zkl_turns_take(&turns, 40), op);
    answer(op, ZKL_TURNS_LONG, 100);
    assert_null(end(op));

    op = list("/b");
    assert_null(zkl_turns_take(&turns, 40));
    assert_null(zkl_turns_take(&turns, 100));
    assert_ptr_equal(zkl_turns_take(&turns, 101), op);
    assert_null(end(op));

    op = list("/b");
    assert_ptr_equal(zkl_turns_take(&turns, 0), op);
    assert_null(end(op));
}


static void
test_shared(void **state)
{
    zkl_op_t  *op, *one, *two, *three, *four;

    (void) state;

    op = list("/a");
    op->number = 0;

    one = make(ZKL_OP_LIST, ZKL_TURN_CLAIM, "/a");
    one->watch = 1;
    zkl_turns_add(&turns, one);

    assert_true(op->watch);
    assert_false(op->fresh);

    two = make(ZKL_OP_LIST, ZKL_TURN_LOOK, "/a");
    two->fresh = 1;
    two->number = 7;
    zkl_turns_add(&turns, two);

    /* no older than the call of any of those that share */

    assert_true(op->watch);
    assert_true(op->fresh);
    assert_int_equal(op->number, 7);

    assert_ptr_equal(take(), op);
    assert_null(take());

    /* what comes now may not share a list that was sent before */

    three = list("/a");
    four = list("/a");
    four->watch = 1;
    assert_null(take());

    answer(op, 100, 1);

    assert_ptr_equal(sharer(op), one);
    assert_ptr_equal(sharer(op), two);
    assert_null(sharer(op));

    assert_ptr_equal(end(op), three);

    zkl_turns_add(&turns, three);
    assert_ptr_equal(take(), three);
    assert_ptr_equal(sharer(three), four);
    assert_null(sharer(three));
    assert_null(end(three));

    assert_int_equal(turns.bytes, 0);
    assert_ptr_equal(turns.lists.root, turns.lists.sentinel);

    /* a read of data has no sharers */

    op = make(ZKL_OP_GET, ZKL_TURN_LOOK, "/a");
    one = make(ZKL_OP_GET, ZKL_TURN_LOOK, "/a");
    zkl_turns_add(&turns, op);
    zkl_turns_add(&turns, one);
    assert_ptr_equal(take(), op);
    assert_ptr_equal(take(), one);
}


/* The connection is lost: what comes from then on does not share the end. */

static void
test_dropped(void **state)
{
    zkl_op_t  *op, *one, *two, *get;

    (void) state;

    op = list("/a");
    one = list("/a");
    get = add(ZKL_OP_GET, ZKL_TURN_CLAIM);

    assert_ptr_equal(zkl_turns_drop(&turns), get);
    assert_null(end(get));

    assert_ptr_equal(zkl_turns_drop(&turns), op);
    assert_null(zkl_turns_drop(&turns));

    two = list("/a");
    assert_null(zkl_turns_drop(&turns));

    op->rc = ZKL_UNSENT;
    zkl_turns_answered(&turns, op, 1);
    assert_ptr_equal(sharer(op), one);
    assert_null(sharer(op));
    assert_ptr_equal(end(op), two);

    assert_int_equal(turns.bytes, 0);
    assert_ptr_equal(turns.lists.root, turns.lists.sentinel);

    /* and there was none when the operation came */

    op = make(ZKL_OP_LIST, ZKL_TURN_LOOK, "/a");
    assert_null(end(op));
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test_setup(test_each_second, setup),
        cmocka_unit_test_setup(test_neither_starves, setup),
        cmocka_unit_test_setup(test_bound, setup),
        cmocka_unit_test_setup(test_sizes, setup),
        cmocka_unit_test_setup(test_long, setup),
        cmocka_unit_test_setup(test_shared, setup),
        cmocka_unit_test_setup(test_dropped, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
