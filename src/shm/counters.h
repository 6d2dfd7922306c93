
/*
 * Counters: what the workers of a gateway have done since the zone was made.
 *
 * A single block in the zone, to which all workers add by atomic steps, as
 * nginx does for stub_status: the death of a worker takes nothing away, and no
 * counter goes back.
 */


#ifndef _ZKL_COUNTERS_H_INCLUDED_
#define _ZKL_COUNTERS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/* the bounds of a histogram, at most */
#define ZKL_BOUNDS_MAX                16

/* how many calls, and outcomes of calls, can be counted */
#define ZKL_COUNTED_CALLS             12
#define ZKL_COUNTED_OUTCOMES          32


typedef enum {
    ZKL_COUNT_READS = 0,            /* operations of ZooKeeper */
    ZKL_COUNT_WRITES,
    ZKL_COUNT_TRANSACTIONS,         /* in which several writes went together */
    ZKL_COUNT_CONNECTED,            /* sessions: a connection */
    ZKL_COUNT_SUSPENDED,            /* a connection was lost */
    ZKL_COUNT_EXPIRED,              /* the session is over */
    ZKL_COUNT_ADOPTED,              /* of a worker that is gone */
    ZKL_COUNT_ROLLBACKS,            /* ZooKeeper has lost transactions */
    ZKL_COUNTS                      /* how many */
} zkl_count_e;


/* of milliseconds */

typedef enum {
    ZKL_TIMES_GRANTED = 0,          /* waits that ended with the grant */
    ZKL_TIMES_TAKEN,                /* waits that ended without */
    ZKL_TIMES_HELD,                 /* from the grant to the end */
    ZKL_TIMES_READ,                 /* from the send to the answer */
    ZKL_TIMES_WRITE,
    ZKL_TIMES                       /* how many */
} zkl_times_e;


typedef struct {
    ngx_atomic_t                    counts[ZKL_BOUNDS_MAX + 1];
                                                /* the last one in use: above
                                                   all bounds */
    ngx_atomic_t                    sum;
} zkl_histogram_t;


typedef struct {
    ngx_atomic_t                    counts[ZKL_COUNTS];
    zkl_histogram_t                 times[ZKL_TIMES];
    ngx_atomic_t                    calls[ZKL_COUNTED_CALLS]
                                         [ZKL_COUNTED_OUTCOMES];
} zkl_counters_t;


/* Counts a time; one that is below zero, by a change of the clock, is zero. */
void zkl_counters_time(zkl_counters_t *counters, zkl_times_e which,
    ngx_msec_int_t time);

/* call and outcome are the caller's numbers. */
void zkl_counters_call(zkl_counters_t *counters, ngx_uint_t call,
    ngx_uint_t outcome);

/* the bounds of the histograms, in milliseconds; the last one is 0 */
extern const ngx_msec_t *const  zkl_counters_bounds[ZKL_TIMES];


#endif /* _ZKL_COUNTERS_H_INCLUDED_ */
