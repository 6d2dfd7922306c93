
/*
 * The layout: how the layout is made, the cells, and the processes that keep
 * slots.
 *
 * The master makes the layout; all other functions run in any process.  Each
 * process has a copy of map->own: the master closes the descriptors in that
 * copy with the last cycle that has the layout.
 */


#include <ngx_config.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include "shm/layout.h"


static void zkl_layout_cleanup(void *data);
static void zkl_layout_give_back(zkl_layout_own_t *own);
static ngx_int_t zkl_layout_lay_out(zkl_layout_t *map, u_char *p, size_t size);
static ngx_int_t zkl_layout_wakeups(zkl_layout_t *map, ngx_log_t *log);
static ngx_atomic_uint_t zkl_layout_process(ngx_pid_t pid);
static ngx_uint_t zkl_layout_stat(ngx_pid_t pid, uint64_t *start);


zkl_layout_t *
zkl_layout_make(ngx_slab_pool_t *shpool, ngx_log_t *log)
{
    size_t         size;
    u_char        *p;
    zkl_layout_t  *map;

    map = ngx_slab_calloc(shpool, sizeof(zkl_layout_t));
    if (map == NULL) {
        return NULL;
    }

    map->nslots = zkl_layout_nslots();

    size = shpool->pfree * ngx_pagesize;

    /* finds the number of cells; the pool is not written yet */

    if (zkl_layout_lay_out(map, NULL, size) != NGX_OK) {
        ngx_log_error(NGX_LOG_EMERG, log, 0, "zk_lock_zone is too small");
        return NULL;
    }

    p = ngx_slab_calloc(shpool, size);
    if (p == NULL) {
        return NULL;
    }

    (void) zkl_layout_lay_out(map, p, size);

    if (getrandom(map->secret, ZKL_SECRET, 0) != ZKL_SECRET) {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno, "getrandom() failed");
        return NULL;
    }

    if (zkl_layout_wakeups(map, log) != NGX_OK) {
        return NULL;
    }

    return map;
}


ngx_int_t
zkl_layout_keep(zkl_layout_t *map, ngx_cycle_t *cycle)
{
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(cycle->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = zkl_layout_cleanup;
    cln->data = map->own;

    map->own->cycles++;

    return NGX_OK;
}


/* A worker only frees the copy, because the exit closes the descriptors. */

static void
zkl_layout_cleanup(void *data)
{
    zkl_layout_own_t  *own = data;

    if (ngx_process == NGX_PROCESS_WORKER || ngx_process == NGX_PROCESS_HELPER)
    {
        ngx_free(own);
        return;
    }

    if (--own->cycles == 0) {
        zkl_layout_give_back(own);
    }
}


static void
zkl_layout_give_back(zkl_layout_own_t *own)
{
    ngx_uint_t  i;

    for (i = 0; i < own->nwakeups; i++) {
        (void) close(own->wakeups[i]);
    }

    ngx_free(own);
}


zkl_cell_t *
zkl_layout_cell(zkl_layout_t *map, uint32_t record)
{
    if (record >= map->ncells) {
        return NULL;
    }

    return (zkl_cell_t *) (map->cells + (size_t) record * ZKL_CELL);
}


ngx_uint_t
zkl_layout_cells_of(size_t path_len)
{
    return (offsetof(zkl_cell_t, path) + path_len + ZKL_CELL - 1) / ZKL_CELL;
}


ngx_atomic_uint_t
zkl_layout_self(void)
{
    static ngx_pid_t          pid;
    static ngx_atomic_uint_t  self;

    if (pid != ngx_pid) {
        pid = ngx_pid;
        self = zkl_layout_process(pid);
    }

    return self;
}


ngx_uint_t
zkl_layout_dead(ngx_atomic_uint_t keeper, ngx_uint_t quick)
{
    ngx_pid_t          pid;
    ngx_atomic_uint_t  now;

    if (keeper == ZKL_FREE || keeper == ZKL_ORPHAN) {
        return 1;
    }

    pid = (ngx_pid_t) (keeper & 0x3fffff);

    if (kill(pid, 0) == -1 && ngx_errno == NGX_ESRCH) {
        return 1;
    }

    if (quick) {
        return 0;
    }

    now = zkl_layout_process(pid);

    /* an unknown start time proves nothing */

    if (now == (ngx_atomic_uint_t) pid || keeper == (ngx_atomic_uint_t) pid) {
        return 0;
    }

    return now != keeper;
}


/*
 * Old workers keep slots for a while after a reload, and several reloads may
 * follow each other.
 */

ngx_uint_t
zkl_layout_nslots(void)
{
    ngx_uint_t  n;

    n = 64 + 16 * (ngx_ncpu > 0 ? (ngx_uint_t) ngx_ncpu : 1);

    return ngx_min(n, ZKL_SLOTS_MAX);
}


/*
 * Lays out size bytes at p for map->nslots, without a write to the bytes.  If p
 * is NULL, only the numbers in map are good.  NGX_ERROR: too few bytes.
 */

static ngx_int_t
zkl_layout_lay_out(zkl_layout_t *map, u_char *p, size_t size)
{
    size_t     chunk, fixed;
    uintptr_t  at, end;

    at = (uintptr_t) p;
    end = at + size;

    /* a chunk: cells, owner, starts, shares of indexes, quotas, doorbells */

    chunk = ZKL_CHUNK * ZKL_CELL
            + sizeof(ngx_atomic_t) + sizeof(uint64_t)
            + 2 * ZKL_CHUNK * sizeof(ngx_atomic_t)
            + ZKL_CHUNK * ZKL_QUOTA_WORDS * sizeof(ngx_atomic_t)
            + map->nslots * (ZKL_CHUNK / 8 + 1);

    fixed = 2 * 64
            + sizeof(zkl_counters_t)
            + ZKL_PLACES * sizeof(zkl_place_t)
            + map->nslots * (sizeof(zkl_slot_t)
                             + ZKL_PLACES / 8
                             + 4 * sizeof(ngx_atomic_t))
            + 4096;

    if (size < fixed + chunk) {
        return NGX_ERROR;
    }

    map->nchunks = (size - fixed) / chunk;
    map->ncells = map->nchunks * ZKL_CHUNK;
    map->nquotas = map->ncells * ZKL_QUOTA_WORDS;

    map->nseq_index = 1;

    while (map->nseq_index * 2 <= map->ncells) {
        map->nseq_index *= 2;
    }

    map->nbits = (map->ncells + ZKL_PLACES) / ZKL_WORD_BITS;
    map->nsummary = map->nbits / ZKL_WORD_BITS + 1;

    at = ngx_align(at, 64);
    map->counters = (zkl_counters_t *) at;
    at += sizeof(zkl_counters_t);

    map->quotas = (ngx_atomic_t *) at;
    at += map->nquotas * sizeof(ngx_atomic_t);

    at = ngx_align(at, 64);
    map->slots = (zkl_slot_t *) at;
    at += map->nslots * sizeof(zkl_slot_t);

    map->owners = (ngx_atomic_t *) at;
    at += map->nchunks * sizeof(ngx_atomic_t);

    map->seq_index = (ngx_atomic_t *) at;
    at += map->nseq_index * sizeof(ngx_atomic_t);

    map->moved = (ngx_atomic_t *) at;
    at += map->ncells * sizeof(ngx_atomic_t);

    map->bits = (ngx_atomic_t *) at;
    at += map->nslots * map->nbits * sizeof(ngx_atomic_t);

    map->summaries = (ngx_atomic_t *) at;
    at += map->nslots * map->nsummary * sizeof(ngx_atomic_t);

    at = ngx_align(at, sizeof(uint64_t));
    map->places = (zkl_place_t *) at;
    at += ZKL_PLACES * sizeof(zkl_place_t);

    map->starts = (uint64_t *) at;
    at += map->nchunks * sizeof(uint64_t);

    at = ngx_align(at, 64);
    map->cells = (u_char *) at;
    at += map->ncells * ZKL_CELL;

    return (at > end) ? NGX_ERROR : NGX_OK;
}


/*
 * The master makes the eventfds, so that every worker inherits all of the
 * eventfds, also a worker that is started later.
 */

static ngx_int_t
zkl_layout_wakeups(zkl_layout_t *map, ngx_log_t *log)
{
    int                fd;
    zkl_layout_own_t  *own;

    own = ngx_calloc(sizeof(zkl_layout_own_t)
                     + map->nslots * sizeof(int), log);
    if (own == NULL) {
        return NGX_ERROR;
    }

    for ( ;; ) {

        if (own->nwakeups == map->nslots) {
            map->own = own;
            return NGX_OK;
        }

        fd = eventfd(0, EFD_NONBLOCK|EFD_CLOEXEC);

        if (fd == -1) {
            ngx_log_error(NGX_LOG_EMERG, log, ngx_errno, "eventfd() failed");

            zkl_layout_give_back(own);
            return NGX_ERROR;
        }

        own->wakeups[own->nwakeups++] = fd;
    }
}


/*
 * A process as one word: the pid, and in the bits above the start time, as far
 * as there is room.  Only the pid if the start time is not known.
 */

static ngx_atomic_uint_t
zkl_layout_process(ngx_pid_t pid)
{
    uint64_t           start;
    ngx_atomic_uint_t  process;

    process = (ngx_atomic_uint_t) pid;

    if (NGX_PTR_SIZE == 8 && zkl_layout_stat(pid, &start)) {
        process |= (ngx_atomic_uint_t) start << 22;
    }

    return process;
}


/*
 * Reads the start time, field 22 of /proc/PID/stat.  A zombie gets a start time
 * that no process has, since a zombie has ended.
 */

static ngx_uint_t
zkl_layout_stat(ngx_pid_t pid, uint64_t *start)
{
    int          fd;
    char        *p;
    ssize_t      n;
    ngx_uint_t   field;
    char         buf[512];
    u_char       name[sizeof("/proc//stat") + NGX_INT64_LEN];

    (void) ngx_sprintf(name, "/proc/%P/stat%Z", pid);

    fd = open((char *) name, O_RDONLY|O_CLOEXEC);
    if (fd == -1) {
        return 0;
    }

    n = read(fd, buf, sizeof(buf) - 1);

    (void) close(fd);

    if (n <= 0) {
        return 0;
    }

    buf[n] = '\0';

    /* the name of the program, in parentheses, may have any bytes */

    p = strrchr(buf, ')');

    for (field = 2; p != NULL && field < 22; field++) {
        p = strchr(p + 1, ' ');

        if (p != NULL && field == 2 && p[1] == 'Z') {
            *start = 0x1fffffffff;
            return 1;
        }
    }

    if (p == NULL) {
        return 0;
    }

    *start = strtoull(p + 1, NULL, 10);

    return 1;
}
