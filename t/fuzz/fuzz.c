
/* The functions that the fuzzers share; see fuzz.h. */


#include <sanitizer/asan_interface.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"


/* bytes in front of a block, which the tested code must not read */
#define FUZZ_HEAD       16


void
fuzz_broken(const char *file, int line, const char *ok, const char *format,
    ...)
{
    va_list  ap;

    fprintf(stderr, "%s:%d: BROKEN: %s: ", file, line, ok);

    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);

    fprintf(stderr, "\n");

    abort();
}


unsigned
fuzz_byte(fuzz_input_t *in)
{
    if (in->left == 0) {
        return 0;
    }

    in->left--;

    return *in->data++;
}


unsigned
fuzz_below(fuzz_input_t *in, unsigned n)
{
    unsigned  value;

    value = fuzz_byte(in);

    if (n > 256) {
        value = value << 8 | fuzz_byte(in);
    }

    return value % n;
}


uint32_t
fuzz_32(fuzz_input_t *in)
{
    int       i;
    uint32_t  value;

    value = 0;

    for (i = 0; i < 4; i++) {
        value = value << 8 | fuzz_byte(in);
    }

    return value;
}


uint64_t
fuzz_64(fuzz_input_t *in)
{
    uint64_t  high;

    high = fuzz_32(in);

    return high << 32 | fuzz_32(in);
}


size_t
fuzz_bytes(fuzz_input_t *in, const uint8_t **data, size_t max)
{
    size_t  n;

    n = (in->left < max) ? in->left : max;

    *data = in->data;

    in->data += n;
    in->left -= n;

    return n;
}


void *
fuzz_block(const void *data, size_t len)
{
    char  *p;

    p = malloc(FUZZ_HEAD + len);
    if (p == NULL) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }

    if (data != NULL && len != 0) {
        memcpy(p + FUZZ_HEAD, data, len);
    }

    ASAN_POISON_MEMORY_REGION(p, FUZZ_HEAD);

    return p + FUZZ_HEAD;
}


void
fuzz_block_free(void *block)
{
    char  *p;

    p = (char *) block - FUZZ_HEAD;

    ASAN_UNPOISON_MEMORY_REGION(p, FUZZ_HEAD);

    free(p);
}


uint64_t
fuzz_hash(const void *data, size_t len)
{
    size_t          i;
    uint64_t        hash;
    const uint8_t  *p;

    p = data;
    hash = 0xcbf29ce484222325;

    for (i = 0; i < len; i++) {
        hash = (hash ^ p[i]) * 0x100000001b3;
    }

    return hash;
}
