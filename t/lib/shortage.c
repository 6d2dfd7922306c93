
/*
 * A library to preload (LD_PRELOAD): allocations of a process fail, as told by
 * the test that shares the file $ZK_LOCK_SHORTAGE with the process.
 *
 * The library owns that file's memory, which lib/shortage.py writes and reads:
 * the process and the threads whose allocations are counted, and the failing
 * allocations, from `first` to `last`.  Each failure is noted with a backtrace.
 * Until the test writes a pid no process is meant, and an allocation costs one
 * comparison.
 *
 * Code between `low` and `high` never fails: these are the libraries that do
 * not check the result of malloc(), which this project cannot mend.
 *
 * Any thread may run this code.  The memory is mapped before main(), and shared
 * by the master's children; map is NULL if there is no file.
 */


#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>


#define DEPTH   16
#define NOTES   24
#define ATTIC   8192

#define LOOP    1
#define OTHERS  2


typedef struct {
    uint64_t   pid;
    uint64_t   threads;
    uint64_t   first;
    uint64_t   last;
    uint64_t   low;
    uint64_t   high;

    uint64_t   count;
    uint64_t   failed;
    uint64_t   notes[NOTES][DEPTH];
} shortage_t;


static shortage_t              *map;
static uint64_t                 self;

/* only the forking thread lives on in the child, and is the event loop */
static __thread int             others = 1;
static __thread int             busy;

/* allocations while the real functions are looked up */
static char                     attic[ATTIC];
static size_t                   used;

static void                    *(*real_malloc)(size_t);
static void                    *(*real_calloc)(size_t, size_t);
static void                    *(*real_realloc)(void *, size_t);
static void                     (*real_free)(void *);
static int                      (*real_posix_memalign)(void **, size_t,
                                                       size_t);
static void                    *(*real_memalign)(size_t, size_t);
static void                    *(*real_aligned_alloc)(size_t, size_t);
static void                    *(*real_mmap)(void *, size_t, int, int, int,
                                             off_t);


void *memalign(size_t alignment, size_t size);


static void
find(void)
{
    *(void **) &real_calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **) &real_realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **) &real_free = dlsym(RTLD_NEXT, "free");
    *(void **) &real_posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    *(void **) &real_memalign = dlsym(RTLD_NEXT, "memalign");
    *(void **) &real_aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
    *(void **) &real_mmap = dlsym(RTLD_NEXT, "mmap");
    *(void **) &real_malloc = dlsym(RTLD_NEXT, "malloc");
}


static void *
from_attic(size_t size)
{
    char  *p;

    size = (size + 15) & ~(size_t) 15;

    if (size > ATTIC - used) {
        return NULL;
    }

    p = attic + used;
    used += size;

    return p;
}


static int
is_in_attic(void *p)
{
    return (char *) p >= attic && (char *) p < attic + ATTIC;
}


static void
child(void)
{
    self = (uint64_t) getpid();
    others = 0;
}


__attribute__((constructor)) static void
start(void)
{
    int          fd;
    void        *p, *frame[1];
    const char  *path;

    if (real_malloc == NULL) {
        find();
    }

    path = getenv("ZK_LOCK_SHORTAGE");
    if (path == NULL) {
        return;
    }

    fd = open(path, O_RDWR|O_CLOEXEC);
    if (fd == -1) {
        return;
    }

    p = real_mmap(NULL, sizeof(shortage_t), PROT_READ|PROT_WRITE, MAP_SHARED,
                  fd, 0);
    (void) close(fd);

    if (p == MAP_FAILED) {
        return;
    }

    /* the first call of backtrace() loads a library */
    (void) backtrace(frame, 1);

    child();
    (void) pthread_atfork(NULL, NULL, child);

    map = p;
}


static void
note(uint64_t n)
{
    int    i, depth;
    void  *frames[DEPTH + 2];

    if (n >= NOTES) {
        return;
    }

    busy = 1;
    depth = backtrace(frames, DEPTH + 2);
    busy = 0;

    /* without the frames of note() and fails() */
    for (i = 2; i < depth; i++) {
        map->notes[n][i - 2] = (uint64_t) (uintptr_t) frames[i];
    }
}


static int
fails(void *caller)
{
    uint64_t   n, who;

    if (map == NULL || busy
        || __atomic_load_n(&map->pid, __ATOMIC_ACQUIRE) != self
        || !(map->threads & (others ? OTHERS : LOOP)))
    {
        return 0;
    }

    who = (uint64_t) (uintptr_t) caller;
    if (who >= map->low && who < map->high) {
        return 0;
    }

    n = __atomic_add_fetch(&map->count, 1, __ATOMIC_ACQ_REL);
    if (n < map->first || n > map->last) {
        return 0;
    }

    note(__atomic_fetch_add(&map->failed, 1, __ATOMIC_ACQ_REL));
    errno = ENOMEM;

    return 1;
}


#define CALLER  __builtin_extract_return_addr(__builtin_return_address(0))


void *
malloc(size_t size)
{
    if (real_malloc == NULL) {
        return from_attic(size);
    }

    return fails(CALLER) ? NULL : real_malloc(size);
}


void *
calloc(size_t n, size_t size)
{
    if (real_malloc == NULL) {
        return from_attic(n * size);
    }

    return fails(CALLER) ? NULL : real_calloc(n, size);
}


void *
realloc(void *p, size_t size)
{
    if (real_malloc == NULL || is_in_attic(p)) {
        return NULL;
    }

    return fails(CALLER) ? NULL : real_realloc(p, size);
}


void
free(void *p)
{
    if (real_malloc != NULL && !is_in_attic(p)) {
        real_free(p);
    }
}


int
posix_memalign(void **p, size_t alignment, size_t size)
{
    return fails(CALLER) ? ENOMEM : real_posix_memalign(p, alignment, size);
}


void *
memalign(size_t alignment, size_t size)
{
    return fails(CALLER) ? NULL : real_memalign(alignment, size);
}


void *
aligned_alloc(size_t alignment, size_t size)
{
    return fails(CALLER) ? NULL : real_aligned_alloc(alignment, size);
}


char *
strdup(const char *s)
{
    char    *p;
    size_t   size;

    size = strlen(s) + 1;
    p = fails(CALLER) ? NULL : real_malloc(size);

    return (p != NULL) ? memcpy(p, s, size) : NULL;
}


void *
mmap(void *p, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (real_mmap == NULL) {
        find();
    }

    return fails(CALLER) ? MAP_FAILED
                         : real_mmap(p, size, protection, flags, fd, offset);
}
