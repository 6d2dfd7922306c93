
/*
 * Stores into a zone: before each store a process can die, or stand still; and
 * between a read of a word and the write of that word a process stands still
 * until another process has written nearby.
 *
 * The files of src/ that write to zones are compiled with -fsanitize=thread, so
 * that the compiler calls these functions at each access to memory; the program
 * is linked without the sanitizer's library.  Only a store into the zone of the
 * process's own gateway counts.  A copy of several words is a single store.
 */


#include "gsim.h"


#if defined(__GNUC__) && !defined(__clang__)

/* under AddressSanitizer gcc predefines other types for these functions */

#pragma GCC diagnostic ignored "-Wbuiltin-declaration-mismatch"

#endif

void __tsan_init(void);
void __tsan_func_entry(void *pc);
void __tsan_func_exit(void);
void __tsan_atomic_thread_fence(int order);
void __tsan_read_range(void *p, unsigned long size);
void __tsan_write_range(void *p, unsigned long size);
int __tsan_atomic64_compare_exchange_strong(uint64_t *p, uint64_t *expected,
    uint64_t value, int order, int failed);
uint64_t __tsan_atomic64_compare_exchange_val(uint64_t *p, uint64_t expected,
    uint64_t value, int order, int failed);
int __tsan_atomic32_compare_exchange_strong(uint32_t *p, uint32_t *expected,
    uint32_t value, int order, int failed);
uint32_t __tsan_atomic32_compare_exchange_val(uint32_t *p, uint32_t expected,
    uint32_t value, int order, int failed);


#define GSIM_ACCESS(n)                                                         \
    void __tsan_read##n(void *p);                                             \
    void __tsan_unaligned_read##n(void *p);                                   \
    void __tsan_write##n(void *p);                                            \
    void __tsan_unaligned_write##n(void *p);                                  \
                                                                              \
    void __tsan_read##n(void *p) { gsim_load(p); }                            \
    void __tsan_unaligned_read##n(void *p) { gsim_load(p); }                  \
    void __tsan_write##n(void *p) { gsim_store(p); }                          \
    void __tsan_unaligned_write##n(void *p) { gsim_store(p); }

GSIM_ACCESS(1)
GSIM_ACCESS(2)
GSIM_ACCESS(4)
GSIM_ACCESS(8)
GSIM_ACCESS(16)


#define GSIM_ATOMIC(bits, type)                                                \
    int                                                                       \
    __tsan_atomic##bits##_compare_exchange_strong(type *p, type *expected,    \
        type value, int order, int failed)                                    \
    {                                                                         \
        type  was;                                                            \
                                                                              \
        (void) order;                                                         \
        (void) failed;                                                        \
        gsim_store(p);                                                        \
                                                                              \
        was = *p;                                                             \
                                                                              \
        if (was != *expected) {                                               \
            *expected = was;                                                  \
            return 0;                                                         \
        }                                                                     \
                                                                              \
        *p = value;                                                           \
        return 1;                                                             \
    }                                                                         \
                                                                              \
    type                                                                      \
    __tsan_atomic##bits##_compare_exchange_val(type *p, type expected,        \
        type value, int order, int failed)                                    \
    {                                                                         \
        (void) __tsan_atomic##bits##_compare_exchange_strong(p, &expected,    \
                                                    value, order, failed);    \
        return expected;                                                      \
    }

GSIM_ATOMIC(64, uint64_t)
GSIM_ATOMIC(32, uint32_t)


#define GSIM_CHANGE(bits, type, name, then)                                    \
    type __tsan_atomic##bits##_##name(type *p, type n, int order);            \
                                                                              \
    type                                                                      \
    __tsan_atomic##bits##_##name(type *p, type n, int order)                  \
    {                                                                         \
        type  was;                                                            \
                                                                              \
        (void) order;                                                         \
        gsim_store(p);                                                        \
                                                                              \
        was = *p;                                                             \
        *p = then;                                                            \
                                                                              \
        return was;                                                           \
    }

GSIM_CHANGE(64, uint64_t, fetch_add, was + n)
GSIM_CHANGE(64, uint64_t, fetch_and, was & n)
GSIM_CHANGE(64, uint64_t, fetch_or, was | n)
GSIM_CHANGE(64, uint64_t, exchange, n)
GSIM_CHANGE(32, uint32_t, fetch_add, was + n)
GSIM_CHANGE(32, uint32_t, fetch_and, was & n)
GSIM_CHANGE(32, uint32_t, fetch_or, was | n)
GSIM_CHANGE(32, uint32_t, exchange, n)


void
__tsan_init(void)
{
}


void
__tsan_func_entry(void *pc)
{
    (void) pc;
}


void
__tsan_func_exit(void)
{
}


void
__tsan_atomic_thread_fence(int order)
{
    (void) order;
}


void
__tsan_read_range(void *p, unsigned long size)
{
    (void) p;
    (void) size;
}


void
__tsan_write_range(void *p, unsigned long size)
{
    (void) size;

    gsim_store(p);
}
