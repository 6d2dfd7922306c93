
/*
 * Virtual time, chance, and the memory of a history.
 *
 * A heap keeps the events in the order of time, and then of the calls.
 * gsim_run() can be nested: a process that sleeps lets the other processes go
 * on.  All memory is dropped as a whole when the next history begins, so that
 * an event never leads to memory that is gone.
 */


#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "gsim.h"


#define GSIM_CHUNK          (1024 * 1024)
#define GSIM_CHUNKS         64


typedef struct {
    int64_t                      at;
    uint64_t                     serial;
    gsim_event_pt                fn;
    void                        *data;
    uint64_t                     tag;
} gsim_event_t;


int64_t          gsim_now;
int              gsim_tracing;
jmp_buf          gsim_over;

static gsim_event_t  *gsim_heap;
static size_t         gsim_nheap;
static size_t         gsim_heap_size;
static uint64_t       gsim_serial;
static uint64_t       gsim_state;

static char          *gsim_chunks[GSIM_CHUNKS];
static size_t         gsim_chunk;
static size_t         gsim_used;


/* the system's own functions, because no process owns this memory */
void *__real_malloc(size_t size);
void *__real_realloc(void *p, size_t size);

static int gsim_before(gsim_event_t *one, gsim_event_t *two);
static gsim_event_t gsim_pop(void);


void
gsim_loop_reset(uint64_t seed)
{
    gsim_now = 1000 * GSIM_S;
    gsim_nheap = 0;
    gsim_serial = 0;
    gsim_state = seed * 0x9e3779b97f4a7c15 + 0x1234567;
    gsim_chunk = 0;
    gsim_used = 0;
}


static int
gsim_before(gsim_event_t *one, gsim_event_t *two)
{
    return one->at < two->at
           || (one->at == two->at && one->serial < two->serial);
}


void
gsim_at(int64_t at, gsim_event_pt fn, void *data, uint64_t tag)
{
    size_t        i;
    gsim_event_t  e;

    if (gsim_nheap == gsim_heap_size) {
        gsim_heap_size = gsim_heap_size ? 2 * gsim_heap_size : 1024;
        gsim_heap = __real_realloc(gsim_heap,
                                   gsim_heap_size * sizeof(gsim_event_t));

        if (gsim_heap == NULL) {
            exit(2);
        }
    }

    e.at = (at < gsim_now) ? gsim_now : at;
    e.serial = gsim_serial++;
    e.fn = fn;
    e.data = data;
    e.tag = tag;

    for (i = gsim_nheap++; i > 0; i = (i - 1) / 2) {

        if (!gsim_before(&e, &gsim_heap[(i - 1) / 2])) {
            break;
        }

        gsim_heap[i] = gsim_heap[(i - 1) / 2];
    }

    gsim_heap[i] = e;
}


static gsim_event_t
gsim_pop(void)
{
    size_t        i, child;
    gsim_event_t  first, last;

    first = gsim_heap[0];
    last = gsim_heap[--gsim_nheap];

    for (i = 0; (child = 2 * i + 1) < gsim_nheap; i = child) {

        if (child + 1 < gsim_nheap
            && gsim_before(&gsim_heap[child + 1], &gsim_heap[child]))
        {
            child++;
        }

        if (!gsim_before(&gsim_heap[child], &last)) {
            break;
        }

        gsim_heap[i] = gsim_heap[child];
    }

    gsim_heap[i] = last;

    return first;
}


void
gsim_run(int64_t until)
{
    gsim_event_t  e;

    while (gsim_nheap != 0 && gsim_heap[0].at <= until) {
        e = gsim_pop();

        gsim_now = e.at;
        gsim_count.events++;

        e.fn(e.data, e.tag);
    }

    if (gsim_now < until) {
        gsim_now = until;
    }
}


uint64_t
gsim_random(void)
{
    uint64_t  z;

    z = (gsim_state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;

    return z ^ (z >> 31);
}


int64_t
gsim_below(int64_t n)
{
    return (int64_t) (gsim_random() % (uint64_t) n);
}


int64_t
gsim_between(int64_t least, int64_t most)
{
    return least + gsim_below(most - least + 1);
}


int
gsim_chance(unsigned one_in)
{
    return gsim_random() % one_in == 0;
}


void *
gsim_alloc(size_t size)
{
    void  *p;

    size = (size + 15) & ~(size_t) 15;

    if (gsim_chunks[gsim_chunk] == NULL || gsim_used + size > GSIM_CHUNK) {

        if (gsim_chunks[gsim_chunk] != NULL) {
            gsim_chunk++;
        }

        if (gsim_chunk == GSIM_CHUNKS || size > GSIM_CHUNK) {
            gsim_violation("the history is too long");
        }

        if (gsim_chunks[gsim_chunk] == NULL) {
            gsim_chunks[gsim_chunk] = __real_malloc(GSIM_CHUNK);

            if (gsim_chunks[gsim_chunk] == NULL) {
                exit(2);
            }
        }

        gsim_used = 0;
    }

    p = gsim_chunks[gsim_chunk] + gsim_used;
    gsim_used += size;

    memset(p, 0, size);

    return p;
}


char *
gsim_text(const char *text, size_t len)
{
    char  *p;

    p = gsim_alloc(len + 1);

    if (len) {
        memcpy(p, text, len);
    }

    return p;
}


void
gsim_trace(const char *fmt, ...)
{
    va_list  args;

    if (!gsim_tracing) {
        return;
    }

    printf("%10.3f ", (double) (gsim_now - 1000 * GSIM_S) / GSIM_MS);

    if (gsim_current != NULL) {
        printf("[%d] ", (int) gsim_current->pid);
    }

    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);

    printf("\n");
}


void
gsim_violation(const char *fmt, ...)
{
    va_list  args;

    printf("%10.3f VIOLATION: ",
           (double) (gsim_now - 1000 * GSIM_S) / GSIM_MS);

    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);

    printf("\n");

    longjmp(gsim_over, 1);
}
