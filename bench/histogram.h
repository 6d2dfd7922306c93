
/*
 * A histogram of times with buckets of equal relative width: 32 to an octave,
 * so that a quantile is right within 3 per cent, whatever its size, and to
 * count one costs nothing that would be seen in what is measured.
 */


#ifndef _HISTOGRAM_H_INCLUDED_
#define _HISTOGRAM_H_INCLUDED_


#include <stdint.h>
#include <stdio.h>
#include <time.h>


#define HISTOGRAM_BITS      5
#define HISTOGRAM_SUB       (1 << HISTOGRAM_BITS)
#define HISTOGRAM_BUCKETS   ((64 - HISTOGRAM_BITS + 1) * HISTOGRAM_SUB)


typedef struct {
    uint64_t  n;
    uint64_t  max;                      /* ns */
    uint64_t  buckets[HISTOGRAM_BUCKETS];
} histogram_t;


/* the monotonic clock, in ns */

static inline uint64_t
now_ns(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}


/*
 * Below HISTOGRAM_SUB a bucket is one value.  Above, the shift is what cuts a
 * value down to its HISTOGRAM_BITS + 1 first bits.
 */

static inline void
histogram_add(histogram_t *h, uint64_t value)
{
    unsigned  shift;

    h->n++;

    if (value > h->max) {
        h->max = value;
    }

    if (value < HISTOGRAM_SUB) {
        h->buckets[value]++;
        return;
    }

    shift = 63 - (unsigned) __builtin_clzll(value) - HISTOGRAM_BITS;
    h->buckets[shift * HISTOGRAM_SUB + (value >> shift)]++;
}


/* the middle of the bucket in which the part q of all values is reached */

static inline double
histogram_quantile(const histogram_t *h, double q)
{
    double    middle;
    unsigned  i, shift;
    uint64_t  rank, seen;

    rank = (uint64_t) (q * (double) h->n);
    seen = 0;

    for (i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->buckets[i];

        if (seen > rank) {
            if (i < HISTOGRAM_SUB) {
                return i;
            }

            shift = i / HISTOGRAM_SUB - 1;
            middle = (double) (i - shift * HISTOGRAM_SUB) + 0.5;

            return middle * (double) ((uint64_t) 1 << shift);
        }
    }

    return (double) h->max;
}


/* as members of a JSON object, in microseconds; name goes in front of each */

static inline void
histogram_print(const histogram_t *h, const char *name)
{
    printf("\"%s_p50_us\":%.1f,\"%s_p99_us\":%.1f,\"%s_max_us\":%.1f",
           name, histogram_quantile(h, 0.50) / 1e3,
           name, histogram_quantile(h, 0.99) / 1e3,
           name, (double) h->max / 1e3);
}


#endif /* _HISTOGRAM_H_INCLUDED_ */
