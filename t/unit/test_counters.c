
/*
 * The counters: a bucket of a histogram includes the bucket's bound, as "le" of
 * Prometheus' format says, and what is out of range counts nowhere else.
 */


#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../src/shm/counters.c"


static zkl_counters_t  counters;


/* In which bucket, of all histograms, the time of which is counted. */

static ngx_uint_t
bucket(zkl_times_e which, ngx_msec_int_t time)
{
    ngx_uint_t  i, k, n, found;

    memset(&counters, 0, sizeof(counters));
    zkl_counters_time(&counters, which, time);

    n = 0;
    found = 0;

    for (i = 0; i < ZKL_TIMES; i++) {
        for (k = 0; k <= ZKL_BOUNDS_MAX; k++) {

            if (counters.times[i].counts[k] != 0) {
                n += counters.times[i].counts[k];
                found = k;
                assert_int_equal(i, which);
            }
        }

        assert_int_equal(counters.times[i].sum,
                         (i == which && time > 0) ? time : 0);
    }

    assert_int_equal(n, 1);

    return found;
}


static void
test_bounds(void **state)
{
    ngx_uint_t         i, which;
    ngx_msec_int_t     bound;
    const ngx_msec_t  *bounds;

    (void) state;

    for (which = 0; which < ZKL_TIMES; which++) {
        bounds = zkl_counters_bounds[which];

        for (i = 0; bounds[i] != 0; i++) {
            bound = (ngx_msec_int_t) bounds[i];

            assert_true(i < ZKL_BOUNDS_MAX);
            assert_true(i == 0 || bounds[i] > bounds[i - 1]);

            assert_int_equal(bucket(which, bound), i);
            assert_int_equal(bucket(which, bound + 1), i + 1);

            if (bound - 1 > (i ? (ngx_msec_int_t) bounds[i - 1] : -1)) {
                assert_int_equal(bucket(which, bound - 1), i);
            }
        }

        /* the last one has no bound */

        assert_int_equal(bucket(which, INT64_MAX), i);
    }
}


static void
test_no_time(void **state)
{
    ngx_uint_t  which;

    (void) state;

    for (which = 0; which < ZKL_TIMES; which++) {
        assert_int_equal(bucket(which, 0), 0);
        assert_int_equal(bucket(which, -1), 0);
        assert_int_equal(bucket(which, -86400000), 0);
    }
}


static void
test_sums(void **state)
{
    (void) state;

    memset(&counters, 0, sizeof(counters));

    zkl_counters_time(&counters, ZKL_TIMES_HELD, 10);
    zkl_counters_time(&counters, ZKL_TIMES_HELD, 2);
    zkl_counters_time(&counters, ZKL_TIMES_HELD, 10);

    assert_int_equal(counters.times[ZKL_TIMES_HELD].counts[1], 3);
    assert_int_equal(counters.times[ZKL_TIMES_HELD].sum, 22);
}


/* A call or an outcome that has no number here is not another's. */

static void
test_calls(void **state)
{
    zkl_counters_t  before;

    (void) state;

    memset(&counters, 0, sizeof(counters));

    zkl_counters_call(&counters, 0, 0);
    zkl_counters_call(&counters, ZKL_COUNTED_CALLS - 1,
                      ZKL_COUNTED_OUTCOMES - 1);

    assert_int_equal(counters.calls[0][0], 1);
    assert_int_equal(counters.calls[ZKL_COUNTED_CALLS - 1]
                                   [ZKL_COUNTED_OUTCOMES - 1], 1);

    before = counters;

    zkl_counters_call(&counters, ZKL_COUNTED_CALLS, 0);
    zkl_counters_call(&counters, 0, ZKL_COUNTED_OUTCOMES);

    assert_memory_equal(&counters, &before, sizeof(counters));
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_no_time),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_calls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
