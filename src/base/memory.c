
/*
 * Blocks in an area.  The size of a block lies in front of the block, because
 * realloc needs the size.  start is aligned, and so all blocks are aligned.
 *
 * The caller owns the area.  block may be NULL, memory never.
 */


#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"


/* alignment of blocks, and room for the size in front of each block */
#define ZKL_ALIGNMENT           16


static int zkl_memory_inside(zkl_memory_t *memory, const void *block);


void
zkl_memory_init(zkl_memory_t *memory, char *start, size_t size)
{
    size_t  skew;

    skew = (uintptr_t) start % ZKL_ALIGNMENT;

    memory->end = start + size;

    if (skew != 0) {
        start += ZKL_ALIGNMENT - skew;
    }

    memory->start = start;
    memory->last = start;
}


void *
zkl_memory_alloc(void *data, size_t size)
{
    zkl_memory_t  *memory = data;

    char    *p;
    size_t   n, room;

    room = (size_t) (memory->end - memory->last);

    if (room < 2 * ZKL_ALIGNMENT || size > room - 2 * ZKL_ALIGNMENT) {
        return malloc(size);
    }

    n = (size + ZKL_ALIGNMENT - 1) / ZKL_ALIGNMENT;
    p = memory->last;

    memcpy(p, &size, sizeof(size_t));
    memory->last += (n + 1) * ZKL_ALIGNMENT;

    return p + ZKL_ALIGNMENT;
}


void *
zkl_memory_realloc(void *data, void *block, size_t size)
{
    zkl_memory_t  *memory = data;

    void    *p;
    size_t   old;

    if (block == NULL) {
        return zkl_memory_alloc(memory, size);
    }

    if (!zkl_memory_inside(memory, block)) {
        return realloc(block, size);
    }

    memcpy(&old, (char *) block - ZKL_ALIGNMENT, sizeof(size_t));

    if (size <= old) {
        return block;
    }

    p = zkl_memory_alloc(memory, size);

    if (p != NULL) {
        memcpy(p, block, old);
    }

    return p;
}


void
zkl_memory_free(void *data, void *block)
{
    /* a block inside is given back with the area */

    if (!zkl_memory_inside(data, block)) {
        free(block);
    }
}


static int
zkl_memory_inside(zkl_memory_t *memory, const void *block)
{
    uintptr_t  p;

    p = (uintptr_t) block;

    return p >= (uintptr_t) memory->start && p < (uintptr_t) memory->end;
}
