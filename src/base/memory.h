
/*
 * Memory of a fixed size for a library that does not look whether its
 * allocations worked: blocks come from one area that is the caller's, one
 * behind the other.  An area lives as long as what is built in it, and is
 * given back as a whole.
 *
 * Plain C.  Owns nothing but what malloc() gave once an area was full.  Every
 * function may be called from any thread, for one area by one at a time.
 */


#ifndef _ZKL_MEMORY_H_INCLUDED_
#define _ZKL_MEMORY_H_INCLUDED_


#include <stddef.h>


typedef struct {
    char            *start;
    char            *last;      /* where the next block begins */
    char            *end;
    size_t           largest;   /* bytes of the largest block asked for */
} zkl_memory_t;


/*
 * Takes the size bytes at start, of any alignment and 16 at least, which stay
 * the caller's and outlive memory.
 */
void zkl_memory_init(zkl_memory_t *memory, char *start, size_t size);

/*
 * Work as malloc(), realloc() and free() do, on a zkl_memory_t in data.
 * Where there is no room, alloc and realloc turn to malloc(), and only then
 * may they return NULL; a freed block inside the area is just left there.
 * block may be NULL.
 */
void *zkl_memory_alloc(void *data, size_t size);
void *zkl_memory_realloc(void *data, void *block, size_t size);
void zkl_memory_free(void *data, void *block);


#endif /* _ZKL_MEMORY_H_INCLUDED_ */
