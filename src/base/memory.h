
/*
 * Memory of a fixed size for yajl, which does not check whether an allocation
 * failed: the blocks lie one behind the other in an area of the caller.  The
 * area lives as long as the parser or the generator that uses the area.
 *
 * Plain C.  Blocks come from malloc() once the area is full.  Any thread may
 * call the functions, but two threads must not use an area at the same time.
 */


#ifndef _ZKL_MEMORY_H_INCLUDED_
#define _ZKL_MEMORY_H_INCLUDED_


#include <stddef.h>


typedef struct {
    char            *start;
    char            *last;      /* where the next block begins */
    char            *end;
} zkl_memory_t;


/*
 * Takes the size bytes at start, at least 16 and of any alignment, which the
 * caller keeps for as long as memory is used.
 */
void zkl_memory_init(zkl_memory_t *memory, char *start, size_t size);

/*
 * Work as malloc(), realloc() and free() do, on a zkl_memory_t in data.  If
 * the area is full, alloc and realloc call malloc(), and only then may return
 * NULL.  A freed block inside the area stays unused.  block may be NULL.
 */
void *zkl_memory_alloc(void *data, size_t size);
void *zkl_memory_realloc(void *data, void *block, size_t size);
void zkl_memory_free(void *data, void *block);


#endif /* _ZKL_MEMORY_H_INCLUDED_ */
