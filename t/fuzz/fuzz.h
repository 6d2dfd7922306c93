
/*
 * What the fuzzers share: how to take things from an input, how to hand a text
 * to the code under test, and how to say that a rule is broken.
 *
 * A fuzzer is one file, fuzz_NAME.c, with LLVMFuzzerTestOneInput().  It must
 * remember nothing from one input to the next, so that an input that was kept
 * fails again by itself.
 */


#ifndef _FUZZ_H_INCLUDED_
#define _FUZZ_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>


/* what is left of an input; behind its end there are zeros */

typedef struct {
    const uint8_t  *data;
    size_t          left;
} fuzz_input_t;


/* ends the program, which libFuzzer takes for a finding, unless ok holds */
#define rule(ok, ...)                                                          \
    do {                                                                      \
        if (!(ok)) {                                                          \
            fuzz_broken(__FILE__, __LINE__, #ok, __VA_ARGS__);                \
        }                                                                     \
    } while (0)

void fuzz_broken(const char *file, int line, const char *ok,
    const char *format, ...)
    __attribute__((format(printf, 4, 5), noreturn));

/* numbers: a byte, 0 to n - 1 (n up to 65536), four and eight bytes */
unsigned fuzz_byte(fuzz_input_t *in);
unsigned fuzz_below(fuzz_input_t *in, unsigned n);
uint32_t fuzz_32(fuzz_input_t *in);
uint64_t fuzz_64(fuzz_input_t *in);

/* up to max of the next bytes: their number, and *data at them */
size_t fuzz_bytes(fuzz_input_t *in, const uint8_t **data, size_t max);

/*
 * A block of exactly len bytes, a copy of data unless that is NULL: a byte
 * before it and a byte behind it are AddressSanitizer's, if len is 0, too.
 */
void *fuzz_block(const void *data, size_t len);
void fuzz_block_free(void *block);

/* a hash, to compare what is large */
uint64_t fuzz_hash(const void *data, size_t len);


#endif /* _FUZZ_H_INCLUDED_ */
