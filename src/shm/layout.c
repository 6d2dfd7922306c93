
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


static uintptr_t zkl_layout_lay_out(zkl_layout_t *map);
static void *zkl_layout_part(uintptr_t *at, size_t size);
static void zkl_layout_cleanup(void *data);
static ngx_atomic_uint_t zkl_layout_process(ngx_pid_t pid);


zkl_layout_t *
zkl_layout_make(ngx_slab_pool_t *shpool, ngx_cycle_t *cycle)
{
    int                fd;
    size_t             size;
    zkl_layout_t      *map;
    zkl_layout_own_t  *own;

    size = shpool->pfree * ngx_pagesize;

    map = ngx_slab_calloc(shpool, size);
    if (map == NULL) {
        return NULL;
    }

    map->nslots = zkl_layout_nslots();
    map->nchunks = size / (ZKL_CHUNK * ZKL_CELL);

    while (map->nchunks != 0
           && zkl_layout_lay_out(map) - (uintptr_t) map > size)
    {
        map->nchunks--;
    }

    if (map->nchunks == 0) {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, 0,
                      "zk_lock_zone is too small");
        return NULL;
    }

    if (getrandom(map->secret, ZKL_SECRET, 0) != ZKL_SECRET) {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno,
                      "getrandom() failed");
        return NULL;
    }

    /*
     * The master makes the eventfds, so that every worker inherits all of the
     * eventfds, also a worker that is started later.  If this fails, the end of
     * the cycle closes the eventfds that were made.
     */

    own = ngx_calloc(sizeof(zkl_layout_own_t) + map->nslots * sizeof(int),
                     cycle->log);
    if (own == NULL) {
        return NULL;
    }

    map->own = own;

    if (zkl_layout_keep(map, cycle) != NGX_OK) {
        ngx_free(own);
        return NULL;
    }

    while (own->nwakeups != map->nslots) {
        fd = eventfd(0, EFD_NONBLOCK|EFD_CLOEXEC);

        if (fd == -1) {
            ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno,
                          "eventfd() failed");
            return NULL;
        }

        own->wakeups[own->nwakeups++] = fd;
    }

    return map;
}


zkl_cell_t *
zkl_layout_cell(zkl_layout_t *map, uint32_t record)
{
    if (record >= map->ncells) {
        return NULL;
    }

    return (zkl_cell_t *) (map->cells + (size_t) record * ZKL_CELL);
}


zkl_cell_t *
zkl_layout_next(zkl_layout_t *map, ngx_uint_t slot, uint32_t *record)
{
    uint32_t           n;
    ngx_uint_t         chunk;
    ngx_atomic_uint_t  owner;

    for (n = *record + 1; n < map->ncells; n++) {
        chunk = n / ZKL_CHUNK;
        owner = map->owners[chunk];

        if (owner == 0 || (slot != map->nslots && owner != slot + 1)) {
            n |= ZKL_CHUNK - 1;

        } else if (map->starts[chunk] >> (n % ZKL_CHUNK) & 1) {
            *record = n;
            return zkl_layout_cell(map, n);
        }
    }

    return NULL;
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

    return now != keeper && now != (ngx_atomic_uint_t) pid
           && keeper != (ngx_atomic_uint_t) pid;
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


/* Lays out the zone with map->nchunks chunks behind map; returns the end. */

static uintptr_t
zkl_layout_lay_out(zkl_layout_t *map)
{
    uintptr_t  at;

    const size_t  word = sizeof(ngx_atomic_t);

    map->ncells = map->nchunks * ZKL_CHUNK;
    map->nquotas = map->ncells * ZKL_QUOTA_WORDS;

    map->nseq_index = 1;

    while (map->nseq_index * 2 <= map->ncells) {
        map->nseq_index *= 2;
    }

    map->nbits = (map->ncells + ZKL_PLACES) / ZKL_WORD_BITS;
    map->nsummary = map->nbits / ZKL_WORD_BITS + 1;

    at = (uintptr_t) (map + 1);

    map->counters = zkl_layout_part(&at, sizeof(zkl_counters_t));
    map->quotas = zkl_layout_part(&at, map->nquotas * word);
    map->slots = zkl_layout_part(&at, map->nslots * sizeof(zkl_slot_t));
    map->owners = zkl_layout_part(&at, map->nchunks * word);
    map->seq_index = zkl_layout_part(&at, map->nseq_index * word);
    map->moved = zkl_layout_part(&at, map->ncells * word);
    map->bits = zkl_layout_part(&at, map->nslots * map->nbits * word);
    map->summaries = zkl_layout_part(&at, map->nslots * map->nsummary * word);
    map->places = zkl_layout_part(&at, ZKL_PLACES * sizeof(zkl_place_t));
    map->starts = zkl_layout_part(&at, map->nchunks * sizeof(uint64_t));
    map->cells = zkl_layout_part(&at, map->ncells * ZKL_CELL);

    return at;
}


static void *
zkl_layout_part(uintptr_t *at, size_t size)
{
    uintptr_t  part;

    part = ngx_align(*at, 64);
    *at = part + size;

    return (void *) part;
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

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_HELPER)
    {
        if (--own->cycles != 0) {
            return;
        }

        while (own->nwakeups != 0) {
            (void) close(own->wakeups[--own->nwakeups]);
        }
    }

    ngx_free(own);
}


/*
 * A process as one word: the pid, and in the bits above the start time, as far
 * as there is room.  Only the pid if the start time is not known.  The start
 * time is field 22 of /proc/PID/stat; a zombie gets one that no process has,
 * since a zombie has ended.
 */

static ngx_atomic_uint_t
zkl_layout_process(ngx_pid_t pid)
{
    int                 fd;
    char               *p, state;
    ssize_t             n;
    unsigned long long  start;
    char                buf[512];
    u_char              name[sizeof("/proc//stat") + NGX_INT64_LEN];

    (void) ngx_sprintf(name, "/proc/%P/stat%Z", pid);

    fd = open((char *) name, O_RDONLY|O_CLOEXEC);
    if (fd == -1) {
        return (ngx_atomic_uint_t) pid;
    }

    n = read(fd, buf, sizeof(buf) - 1);

    (void) close(fd);

    buf[ngx_max(n, 0)] = '\0';

    /* the name of the program, in parentheses, may have any bytes */

    p = strrchr(buf, ')');

    if (p == NULL
        || sscanf(p, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                  "%*s %*s %*s %*s %*s %*s %llu", &state, &start) != 2)
    {
        return (ngx_atomic_uint_t) pid;
    }

    if (state == 'Z') {
        start = 0x1fffffffff;
    }

    return (ngx_atomic_uint_t) pid | (ngx_atomic_uint_t) start << 22;
}


uint64_t
zkl_layout_used(zkl_layout_t *map, ngx_uint_t chunk)
{
    uint64_t     starts, used;
    ngx_uint_t   k, n;
    zkl_cell_t  *cell;

    starts = map->starts[chunk];
    used = starts;

    for (k = 0; ~used != 0 && starts != 0; k++, starts >>= 1) {

        if (starts & 1) {
            cell = zkl_layout_cell(map, (uint32_t) (chunk * ZKL_CHUNK + k));
            n = zkl_layout_cells_of(cell->path_len);
            used |= (((uint64_t) 1 << n) - 1) << k;
        }
    }

    return used;
}
