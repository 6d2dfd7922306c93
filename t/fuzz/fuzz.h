
/*
 * The functions that the fuzzers share: to take values from an input, to hand a
 * text to the code under test, and to report a broken rule.
 *
 * A fuzzer is a file, fuzz_NAME.c, with LLVMFuzzerTestOneInput().  The fuzzer
 * must keep no state between inputs, because an input that was kept has to fail
 * again alone.
 */


#ifndef _FUZZ_H_INCLUDED_
#define _FUZZ_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>


/* the rest of an input; zeros follow the end */

typedef struct {
    const uint8_t  *data;
    size_t          left;
} fuzz_input_t;


/* unless ok holds, ends the program, which libFuzzer counts as a finding */
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

/* takes up to max bytes: returns the number, and sets *data to the bytes */
size_t fuzz_bytes(fuzz_input_t *in, const uint8_t **data, size_t max);

/*
 * A block of exactly len bytes, a copy of data unless data is NULL.  The bytes
 * before and behind the block are AddressSanitizer's, also if len is 0.
 */
void *fuzz_block(const void *data, size_t len);
void fuzz_block_free(void *block);

/* a hash, to compare large data */
uint64_t fuzz_hash(const void *data, size_t len);


#endif /* _FUZZ_H_INCLUDED_ */
