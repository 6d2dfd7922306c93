
/*
 * Blocks in an area.  In front of each block lies its size, which realloc
 * needs; start is aligned, so that all blocks are.
 *
 * Owns nothing; the area is its caller's, and so is the thread.  block may be
 * NULL, memory never.
 */


#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "zk_lock_memory.h"


/* alignment of blocks, and room for the size in front of each */
#define ZK_LOCK_ALIGNMENT       16


static int zk_lock_memory_inside(zk_lock_memory_t *memory, const void *block);


void
zk_lock_memory_init(zk_lock_memory_t *memory, char *start, size_t size)
{
    size_t  skew;

    skew = (uintptr_t) start % ZK_LOCK_ALIGNMENT;

    memory->end = start + size;

    if (skew != 0) {
        start += ZK_LOCK_ALIGNMENT - skew;
    }

    memory->start = start;
    memory->last = start;
    memory->largest = 0;
}


void *
zk_lock_memory_alloc(void *data, size_t size)
{
    zk_lock_memory_t *memory = data;

    char    *p;
    size_t   n, room;

    if (size > memory->largest) {
        memory->largest = size;
    }

    room = (size_t) (memory->end - memory->last);

    if (room < 2 * ZK_LOCK_ALIGNMENT || size > room - 2 * ZK_LOCK_ALIGNMENT) {
        return malloc(size);
    }

    n = (size + ZK_LOCK_ALIGNMENT - 1) / ZK_LOCK_ALIGNMENT;
    p = memory->last;

    memcpy(p, &size, sizeof(size_t));
    memory->last += (n + 1) * ZK_LOCK_ALIGNMENT;

    return p + ZK_LOCK_ALIGNMENT;
}


void *
zk_lock_memory_realloc(void *data, void *block, size_t size)
{
    zk_lock_memory_t *memory = data;

    void    *p;
    size_t   old;

    if (block == NULL) {
        return zk_lock_memory_alloc(memory, size);
    }

    if (!zk_lock_memory_inside(memory, block)) {

        if (size > memory->largest) {
            memory->largest = size;
        }

        return realloc(block, size);
    }

    memcpy(&old, (char *) block - ZK_LOCK_ALIGNMENT, sizeof(size_t));

    if (size <= old) {
        return block;
    }

    p = zk_lock_memory_alloc(memory, size);

    if (p != NULL) {
        memcpy(p, block, old);
    }

    return p;
}


void
zk_lock_memory_free(void *data, void *block)
{
    /* what is inside goes with the area */

    if (!zk_lock_memory_inside(data, block)) {
        free(block);
    }
}


static int
zk_lock_memory_inside(zk_lock_memory_t *memory, const void *block)
{
    uintptr_t  p;

    p = (uintptr_t) block;

    return p >= (uintptr_t) memory->start && p < (uintptr_t) memory->end;
}
