
/*
 * Counters: what the workers of a gateway have done since the zone was made.
 *
 * Several processes run this code at the same time, each on its event loop.  A
 * counter only grows.  The bucket of a histogram changes before the sum: a
 * reader may see the bucket without the sum, and so does every reader after a
 * worker has died in between.
 */


#include "shm/counters.h"


static const ngx_msec_t  zkl_counters_waits[] = {
    1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000,
    300000, 0
};

static const ngx_msec_t  zkl_counters_holds[] = {
    1, 10, 100, 500, 1000, 5000, 10000, 30000, 60000, 300000, 900000, 3600000,
    14400000, 86400000, 0
};

static const ngx_msec_t  zkl_counters_operations[] = {
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 0
};

const ngx_msec_t *const  zkl_counters_bounds[ZKL_TIMES] = {
    zkl_counters_waits,
    zkl_counters_waits,
    zkl_counters_holds,
    zkl_counters_operations,
    zkl_counters_operations
};


void
zkl_counters_time(zkl_counters_t *counters, zkl_times_e which,
    ngx_msec_int_t time)
{
    ngx_msec_t         ms;
    ngx_uint_t         i;
    const ngx_msec_t  *bounds;
    zkl_histogram_t   *times;

    ms = (time > 0) ? (ngx_msec_t) time : 0;

    times = &counters->times[which];
    bounds = zkl_counters_bounds[which];

    for (i = 0; bounds[i] != 0 && ms > bounds[i]; i++) { /* void */ }

    (void) ngx_atomic_fetch_add(&times->counts[i], 1);
    (void) ngx_atomic_fetch_add(&times->sum, ms);
}


void
zkl_counters_call(zkl_counters_t *counters, ngx_uint_t call,
    ngx_uint_t outcome)
{
    if (call < ZKL_COUNTED_CALLS && outcome < ZKL_COUNTED_OUTCOMES) {
        (void) ngx_atomic_fetch_add(&counters->calls[call][outcome], 1);
    }
}
