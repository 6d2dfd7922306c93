
/*
 * The zone.
 *
 * Everything here runs on the event loop of one of several processes at the
 * same time.  Two rules keep that simple.  Who writes a record's body makes
 * its gen odd first and even again afterwards, so that a reader knows a torn
 * copy.  And who wants to be told sets a bit first and looks at the state
 * then, while who changes the state looks at the bits afterwards: one of the
 * two sees the other.
 */


#include <sys/eventfd.h>
#include <sys/random.h>

#include "ngx_http_zk_lock_zone.h"


#define NGX_HTTP_ZK_LOCK_SLOTS_MAX    256
#define NGX_HTTP_ZK_LOCK_WORD_BITS    (8 * sizeof(ngx_atomic_t))
#define NGX_HTTP_ZK_LOCK_SLOT_WORDS                                           \
    (NGX_HTTP_ZK_LOCK_SLOTS_MAX / NGX_HTTP_ZK_LOCK_WORD_BITS)

#define NGX_HTTP_ZK_LOCK_CELL         192
#define NGX_HTTP_ZK_LOCK_CHUNK        64

#define NGX_HTTP_ZK_LOCK_NO_CHUNK     ((ngx_uint_t) -1)

/* how much longer than asked for a session may last, milliseconds */
#define NGX_HTTP_ZK_LOCK_GRACE        10000


typedef struct {
    ngx_atomic_t                gen;        /* odd: being written */
    ngx_atomic_t                state;
    ngx_atomic_t                lease;      /* anybody's; 0: none, or over */
    ngx_atomic_t                ttl;        /* anybody's */
    ngx_atomic_t                asked;      /* anybody's: the gen to release */
    ngx_atomic_t                watchers[NGX_HTTP_ZK_LOCK_SLOT_WORDS];

    int64_t                     seq;        /* -1: not published */
    int64_t                     czxid;
    int64_t                     since;
    uint8_t                     random[ZK_LOCK_RANDOM_LEN];
    uint8_t                     index;
    uint8_t                     kind;
    uint16_t                    slot;
    uint16_t                    path_len;
    u_char                      path[1];
} ngx_http_zk_lock_cell_t;


typedef struct {
    ngx_atomic_t                pid;        /* 0: free */
    ngx_atomic_t                alive;
    ngx_atomic_t                dead;       /* when its pid was first seen to
                                               be dead; 0: not yet */
    ngx_atomic_t               *bits;       /* the doorbell, one a cell */
    ngx_atomic_t               *summary;    /* one a word of bits */
    int                         fd;         /* inherited from the master */
} ngx_http_zk_lock_slot_t;


typedef struct {
    ngx_uint_t                  nslots;
    ngx_uint_t                  ncells;
    ngx_uint_t                  nchunks;
    ngx_uint_t                  nboard;     /* a power of two */

    ngx_http_zk_lock_slot_t    *slots;
    ngx_atomic_t               *owners;     /* of chunks: slot + 1 */
    ngx_atomic_t               *board;      /* cell + 1 */
    u_char                     *cells;
} ngx_http_zk_lock_shared_t;


struct ngx_http_zk_lock_zone_s {
    ngx_http_zk_lock_shared_t  *sh;
    ngx_uint_t                  slot;
    ngx_log_t                  *log;

    uint64_t                   *used;       /* cells of own chunks */
    ngx_uint_t                  chunk;      /* where the last one was taken */

    u_char                      random[256];
    size_t                      nrandom;    /* bytes of it that are left */
};


static ngx_uint_t ngx_http_zk_lock_zone_nslots(void);
static void ngx_http_zk_lock_zone_layout(ngx_http_zk_lock_shared_t *sh,
    u_char *p, size_t size);
static ngx_int_t ngx_http_zk_lock_zone_wakeups(ngx_http_zk_lock_shared_t *sh,
    ngx_log_t *log);
static ngx_uint_t ngx_http_zk_lock_zone_dead(ngx_atomic_uint_t pid);
static ngx_int_t ngx_http_zk_lock_zone_take_slot(
    ngx_http_zk_lock_zone_t *zone, ngx_msec_t timeout);
static void ngx_http_zk_lock_zone_wipe(ngx_http_zk_lock_shared_t *sh,
    ngx_uint_t slot);
static ngx_http_zk_lock_cell_t *ngx_http_zk_lock_cell(
    ngx_http_zk_lock_shared_t *sh, uint32_t record);
static ngx_uint_t ngx_http_zk_lock_cells_of(size_t path_len);
static uint32_t ngx_http_zk_lock_cells_take(ngx_http_zk_lock_zone_t *zone,
    ngx_uint_t n);
static uint32_t ngx_http_zk_lock_cells_find(ngx_http_zk_lock_zone_t *zone,
    ngx_uint_t chunk, ngx_uint_t n);
static ngx_int_t ngx_http_zk_lock_zone_random(ngx_http_zk_lock_zone_t *zone,
    u_char *buf, size_t len);
static void ngx_http_zk_lock_ring(ngx_http_zk_lock_shared_t *sh,
    ngx_uint_t slot, uint32_t record);
static void ngx_http_zk_lock_ring_watchers(ngx_http_zk_lock_shared_t *sh,
    uint32_t record, ngx_uint_t clear);
static ngx_int_t ngx_http_zk_lock_record_copy(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_str_t *path, ngx_http_zk_lock_record_t *copy,
    ngx_atomic_uint_t *gen);
static ngx_int_t ngx_http_zk_lock_record_known(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path,
    ngx_http_zk_lock_record_t *copy, ngx_atomic_uint_t *gen);
static void ngx_http_zk_lock_atomic_or(ngx_atomic_t *word,
    ngx_atomic_uint_t bits);
static ngx_atomic_uint_t ngx_http_zk_lock_atomic_take(ngx_atomic_t *word);


ngx_int_t
ngx_http_zk_lock_zone_init(ngx_shm_zone_t *shm_zone, void *data)
{
    size_t                      size;
    u_char                     *p;
    ngx_slab_pool_t            *shpool;
    ngx_http_zk_lock_shared_t  *sh;

    if (data) {
        shm_zone->data = data;
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (shm_zone->shm.exists) {
        shm_zone->data = shpool->data;
        return NGX_OK;
    }

    size = shpool->pfree * ngx_pagesize;

    p = ngx_slab_calloc(shpool, size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    sh = (ngx_http_zk_lock_shared_t *) p;

    ngx_http_zk_lock_zone_layout(sh, p, size);

    if (sh->nchunks == 0) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "zk_lock_zone is too small");
        return NGX_ERROR;
    }

    if (ngx_http_zk_lock_zone_wakeups(sh, shm_zone->shm.log) != NGX_OK) {
        return NGX_ERROR;
    }

    shpool->data = sh;
    shm_zone->data = sh;

    ngx_log_error(NGX_LOG_NOTICE, shm_zone->shm.log, 0,
                  "zk_lock_zone has room for %ui claims of %ui workers",
                  sh->ncells, sh->nslots);

    return NGX_OK;
}


/* A reload keeps the old workers for a while, and each worker needs a slot. */

static ngx_uint_t
ngx_http_zk_lock_zone_nslots(void)
{
    ngx_uint_t  n;

    n = 32 + 8 * (ngx_ncpu > 0 ? (ngx_uint_t) ngx_ncpu : 1);

    return ngx_min(n, NGX_HTTP_ZK_LOCK_SLOTS_MAX);
}


static void
ngx_http_zk_lock_zone_layout(ngx_http_zk_lock_shared_t *sh, u_char *p,
    size_t size)
{
    size_t      chunk, fixed, words, summary;
    u_char     *end;
    ngx_uint_t  i, n;

    n = ngx_http_zk_lock_zone_nslots();
    end = p + size;

    /* a chunk's cells, its owner, its board's share, its bits in each slot */

    chunk = NGX_HTTP_ZK_LOCK_CHUNK * NGX_HTTP_ZK_LOCK_CELL
            + sizeof(ngx_atomic_t)
            + NGX_HTTP_ZK_LOCK_CHUNK * sizeof(ngx_atomic_t)
            + n * (NGX_HTTP_ZK_LOCK_CHUNK / 8 + 1);

    fixed = sizeof(ngx_http_zk_lock_shared_t)
            + n * (sizeof(ngx_http_zk_lock_slot_t) + 4 * sizeof(ngx_atomic_t))
            + 4096;

    sh->nslots = n;
    sh->nchunks = (size > fixed) ? (size - fixed) / chunk : 0;
    sh->ncells = sh->nchunks * NGX_HTTP_ZK_LOCK_CHUNK;

    for (sh->nboard = 1; sh->nboard * 2 <= sh->ncells; sh->nboard *= 2) {
        /* void */
    }

    words = sh->ncells / NGX_HTTP_ZK_LOCK_WORD_BITS;
    summary = words / NGX_HTTP_ZK_LOCK_WORD_BITS + 1;

    p += ngx_align(sizeof(ngx_http_zk_lock_shared_t), 64);

    sh->slots = (ngx_http_zk_lock_slot_t *) p;
    p += n * sizeof(ngx_http_zk_lock_slot_t);

    sh->owners = (ngx_atomic_t *) p;
    p += sh->nchunks * sizeof(ngx_atomic_t);

    sh->board = (ngx_atomic_t *) p;
    p += sh->nboard * sizeof(ngx_atomic_t);

    for (i = 0; i < n; i++) {
        sh->slots[i].fd = -1;

        sh->slots[i].bits = (ngx_atomic_t *) p;
        p += words * sizeof(ngx_atomic_t);

        sh->slots[i].summary = (ngx_atomic_t *) p;
        p += summary * sizeof(ngx_atomic_t);
    }

    sh->cells = ngx_align_ptr(p, 64);

    if (sh->cells + sh->ncells * NGX_HTTP_ZK_LOCK_CELL > end) {
        sh->nchunks = 0;
    }
}


/*
 * The wake-ups are made in the master, so that every worker inherits them,
 * those that come later too.
 */

static ngx_int_t
ngx_http_zk_lock_zone_wakeups(ngx_http_zk_lock_shared_t *sh, ngx_log_t *log)
{
    ngx_uint_t  i;

    for (i = 0; i < sh->nslots; i++) {
        sh->slots[i].fd = eventfd(0, EFD_NONBLOCK|EFD_CLOEXEC);

        if (sh->slots[i].fd == -1) {
            ngx_log_error(NGX_LOG_EMERG, log, ngx_errno, "eventfd() failed");
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_http_zk_lock_zone_t *
ngx_http_zk_lock_zone_join(ngx_shm_zone_t *shm_zone, ngx_msec_t timeout,
    ngx_log_t *log)
{
    ngx_http_zk_lock_zone_t  *zone;

    zone = ngx_calloc(sizeof(ngx_http_zk_lock_zone_t), log);
    if (zone == NULL) {
        return NULL;
    }

    zone->sh = shm_zone->data;
    zone->log = log;
    zone->chunk = NGX_HTTP_ZK_LOCK_NO_CHUNK;

    zone->used = ngx_calloc(zone->sh->nchunks * sizeof(uint64_t), log);
    if (zone->used == NULL) {
        ngx_free(zone);
        return NULL;
    }

    if (ngx_http_zk_lock_zone_take_slot(zone, timeout) != NGX_OK) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "zk_lock_zone has no slot left for this worker, "
                      "all %ui are in use", zone->sh->nslots);

        ngx_free(zone->used);
        ngx_free(zone);
        return NULL;
    }

    return zone;
}


static ngx_int_t
ngx_http_zk_lock_zone_take_slot(ngx_http_zk_lock_zone_t *zone,
    ngx_msec_t timeout)
{
    ngx_uint_t                i;
    ngx_atomic_uint_t         pid;
    ngx_http_zk_lock_slot_t  *slot;

    for (i = 0; i < zone->sh->nslots; i++) {
        slot = &zone->sh->slots[i];
        pid = slot->pid;

        if (pid != 0) {

            if (!ngx_http_zk_lock_zone_dead(pid)) {
                continue;
            }

            (void) ngx_atomic_cmp_set(&slot->dead, 0, ngx_current_msec);

            if ((ngx_msec_int_t) (ngx_current_msec - slot->dead)
                < (ngx_msec_int_t) (2 * timeout + NGX_HTTP_ZK_LOCK_GRACE))
            {
                continue;
            }
        }

        if (!ngx_atomic_cmp_set(&slot->pid, pid, (ngx_atomic_uint_t) ngx_pid))
        {
            continue;
        }

        zone->slot = i;
        slot->dead = 0;
        slot->alive = ngx_current_msec - 1;

        ngx_http_zk_lock_zone_wipe(zone->sh, i);

        return NGX_OK;
    }

    return NGX_DECLINED;
}


static ngx_uint_t
ngx_http_zk_lock_zone_dead(ngx_atomic_uint_t pid)
{
    return kill((ngx_pid_t) pid, 0) == -1 && ngx_errno == NGX_ESRCH;
}


/* Frees all records of a slot whose session is over. */

static void
ngx_http_zk_lock_zone_wipe(ngx_http_zk_lock_shared_t *sh, ngx_uint_t slot)
{
    uint32_t                  record;
    ngx_uint_t                i, k;
    ngx_http_zk_lock_cell_t  *cell;

    for (i = 0; i < sh->nchunks; i++) {

        if (sh->owners[i] != slot + 1) {
            continue;
        }

        for (k = 0; k < NGX_HTTP_ZK_LOCK_CHUNK; k++) {
            record = (uint32_t) (i * NGX_HTTP_ZK_LOCK_CHUNK + k);
            cell = ngx_http_zk_lock_cell(sh, record);

            if (cell == NULL) {
                break;
            }

            /* the further cells of a long path hold any bytes */

            ngx_memzero(cell->random, ZK_LOCK_RANDOM_LEN);
            cell->state = NGX_HTTP_ZK_LOCK_RECORD_FREE;
            cell->gen &= ~(ngx_atomic_uint_t) 1;

            ngx_http_zk_lock_ring_watchers(sh, record, 1);
        }

        ngx_memory_barrier();

        sh->owners[i] = 0;
    }
}


void
ngx_http_zk_lock_zone_leave(ngx_http_zk_lock_zone_t *zone, ngx_uint_t clean)
{
    if (clean) {
        ngx_http_zk_lock_zone_wipe(zone->sh, zone->slot);
        zone->sh->slots[zone->slot].pid = 0;
    }

    ngx_free(zone->used);
    ngx_free(zone);
}


int
ngx_http_zk_lock_zone_fd(ngx_http_zk_lock_zone_t *zone)
{
    return zone->sh->slots[zone->slot].fd;
}


ngx_atomic_t *
ngx_http_zk_lock_zone_alive(ngx_http_zk_lock_zone_t *zone)
{
    return &zone->sh->slots[zone->slot].alive;
}


ngx_uint_t
ngx_http_zk_lock_zone_cells(ngx_http_zk_lock_zone_t *zone)
{
    return zone->sh->ncells;
}


ngx_int_t
ngx_http_zk_lock_record_take(ngx_http_zk_lock_zone_t *zone, ngx_str_t *path,
    zk_lock_kind_e kind, zk_lock_id_t *id)
{
    uint32_t                  record;
    ngx_http_zk_lock_cell_t  *cell;

    if (ngx_http_zk_lock_zone_random(zone, id->random, ZK_LOCK_RANDOM_LEN)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    record = ngx_http_zk_lock_cells_take(zone,
                                         ngx_http_zk_lock_cells_of(path->len));
    if (record == NGX_HTTP_ZK_LOCK_NO_RECORD) {
        return NGX_BUSY;
    }

    id->record = record;

    cell = ngx_http_zk_lock_cell(zone->sh, record);

    cell->gen |= 1;
    ngx_memory_barrier();

    cell->lease = 0;
    cell->ttl = 0;
    cell->asked = 0;
    cell->seq = -1;
    cell->czxid = 0;
    cell->since = 0;
    cell->index = 0;
    cell->kind = (uint8_t) kind;
    cell->slot = (uint16_t) zone->slot;
    cell->path_len = (uint16_t) path->len;

    ngx_memcpy(cell->path, path->data, path->len);
    ngx_memcpy(cell->random, id->random, ZK_LOCK_RANDOM_LEN);

    cell->state = NGX_HTTP_ZK_LOCK_RECORD_NEW;

    ngx_memory_barrier();
    cell->gen++;

    return NGX_OK;
}


void
ngx_http_zk_lock_record_publish(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, int64_t seq, int64_t czxid, ngx_uint_t index)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_cell(zone->sh, record);

    cell->gen |= 1;
    ngx_memory_barrier();

    cell->seq = seq;
    cell->czxid = czxid;
    cell->index = (uint8_t) index;
    cell->state = NGX_HTTP_ZK_LOCK_RECORD_WAITING;

    /* whom a list had shown this claim already, knows it by its id: the gen
       goes on, the id stays */

    ngx_memory_barrier();
    cell->gen++;
}


void
ngx_http_zk_lock_record_grant(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_msec_t ttl, ngx_msec_t lease)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_cell(zone->sh, record);

    cell->since = ngx_time();
    cell->ttl = ttl;
    cell->lease = lease ? lease : 1;

    ngx_memory_barrier();

    cell->state = NGX_HTTP_ZK_LOCK_RECORD_HELD;
}


void
ngx_http_zk_lock_record_end(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_cell(zone->sh, record);

    cell->lease = 0;
    cell->state = NGX_HTTP_ZK_LOCK_RECORD_ENDED;

    ngx_memory_barrier();

    ngx_http_zk_lock_ring_watchers(zone->sh, record, 0);
}


void
ngx_http_zk_lock_record_free(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    uint64_t                  mask;
    ngx_uint_t                chunk, n;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_cell(zone->sh, record);

    n = ngx_http_zk_lock_cells_of(cell->path_len);

    ngx_memzero(cell->random, ZK_LOCK_RANDOM_LEN);
    cell->lease = 0;
    cell->state = NGX_HTTP_ZK_LOCK_RECORD_FREE;

    ngx_memory_barrier();

    ngx_http_zk_lock_ring_watchers(zone->sh, record, 1);

    chunk = record / NGX_HTTP_ZK_LOCK_CHUNK;
    mask = (((uint64_t) 1 << n) - 1) << (record % NGX_HTTP_ZK_LOCK_CHUNK);

    zone->used[chunk] &= ~mask;

    if (zone->used[chunk] == 0 && chunk != zone->chunk) {
        zone->sh->owners[chunk] = 0;
    }
}


ngx_int_t
ngx_http_zk_lock_record_lease_over(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_msec_t now, ngx_msec_t *lease)
{
    ngx_atomic_uint_t         until;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_cell(zone->sh, record);

    for ( ;; ) {
        until = cell->lease;

        if (until != 0 && (ngx_msec_int_t) (until - now) > 0) {
            *lease = until;
            return NGX_AGAIN;
        }

        if (ngx_atomic_cmp_set(&cell->lease, until, 0)) {
            return NGX_OK;
        }
    }
}


ngx_uint_t
ngx_http_zk_lock_record_asked(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_cell(zone->sh, record);

    return cell->asked != 0 && cell->asked == cell->gen;
}


ngx_int_t
ngx_http_zk_lock_record_read(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_http_zk_lock_record_t *copy)
{
    ngx_atomic_uint_t  gen;

    return ngx_http_zk_lock_record_known(zone, id, path, copy, &gen);
}


ngx_int_t
ngx_http_zk_lock_record_watch(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_http_zk_lock_record_t *copy)
{
    ngx_int_t                 rc;
    ngx_atomic_uint_t         gen, bit;
    ngx_http_zk_lock_cell_t  *cell;

    rc = ngx_http_zk_lock_record_known(zone, id, path, copy, &gen);
    if (rc != NGX_OK) {
        return rc;
    }

    cell = ngx_http_zk_lock_cell(zone->sh, id->record);

    bit = (ngx_atomic_uint_t) 1 << (zone->slot % NGX_HTTP_ZK_LOCK_WORD_BITS);

    ngx_http_zk_lock_atomic_or(
                   &cell->watchers[zone->slot / NGX_HTTP_ZK_LOCK_WORD_BITS],
                   bit);

    ngx_memory_barrier();

    return ngx_http_zk_lock_record_known(zone, id, path, copy, &gen);
}


ngx_int_t
ngx_http_zk_lock_record_renew(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_msec_t ttl, ngx_msec_t lease)
{
    ngx_int_t                   rc;
    ngx_atomic_uint_t           gen;
    ngx_http_zk_lock_cell_t    *cell;
    ngx_http_zk_lock_record_t   copy;

    cell = ngx_http_zk_lock_cell(zone->sh, id->record);

    if (cell == NULL) {
        return NGX_DECLINED;
    }

    for ( ;; ) {
        rc = ngx_http_zk_lock_record_known(zone, id, path, &copy, &gen);
        if (rc != NGX_OK) {
            return rc;
        }

        if (copy.state != NGX_HTTP_ZK_LOCK_RECORD_HELD || copy.lease == 0) {
            return NGX_DECLINED;
        }

        if (ngx_atomic_cmp_set(&cell->lease, copy.lease, lease ? lease : 1)) {
            break;
        }
    }

    cell->ttl = ttl;

    if ((ngx_msec_int_t) (lease - copy.lease) < 0) {
        ngx_http_zk_lock_ring(zone->sh, cell->slot, id->record);
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_record_ask(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path)
{
    ngx_int_t                   rc;
    ngx_atomic_uint_t           gen;
    ngx_http_zk_lock_cell_t    *cell;
    ngx_http_zk_lock_record_t   copy;

    rc = ngx_http_zk_lock_record_watch(zone, id, path, &copy);
    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_http_zk_lock_record_known(zone, id, path, &copy, &gen);
    if (rc != NGX_OK) {
        return rc;
    }

    cell = ngx_http_zk_lock_cell(zone->sh, id->record);

    /* the gen makes it this claim's, whoever has the cell by now */

    cell->asked = gen;

    ngx_memory_barrier();

    ngx_http_zk_lock_ring(zone->sh, cell->slot, id->record);

    return NGX_OK;
}


void
ngx_http_zk_lock_board_put(ngx_http_zk_lock_zone_t *zone, ngx_str_t *path,
    int64_t seq, uint32_t record)
{
    uint32_t  hash;

    hash = ngx_crc32_long(path->data, path->len) + (uint32_t) seq;

    zone->sh->board[hash & (zone->sh->nboard - 1)] = record + 1;
}


ngx_int_t
ngx_http_zk_lock_board_find(ngx_http_zk_lock_zone_t *zone, ngx_str_t *path,
    int64_t seq, ngx_http_zk_lock_record_t *copy)
{
    uint32_t           hash, record;
    ngx_atomic_uint_t  gen;

    hash = ngx_crc32_long(path->data, path->len) + (uint32_t) seq;

    record = (uint32_t) zone->sh->board[hash & (zone->sh->nboard - 1)] - 1;

    if (ngx_http_zk_lock_record_copy(zone, record, path, copy, &gen) != NGX_OK
        || copy->seq != seq)
    {
        return NGX_DECLINED;
    }

    return (copy->state == NGX_HTTP_ZK_LOCK_RECORD_WAITING
            || copy->state == NGX_HTTP_ZK_LOCK_RECORD_HELD)
           ? NGX_OK : NGX_DONE;
}


void
ngx_http_zk_lock_zone_answer(ngx_http_zk_lock_zone_t *zone,
    ngx_http_zk_lock_ring_pt handler, void *data)
{
    ngx_uint_t                i, k, m, words;
    ngx_atomic_uint_t         summary, bits;
    ngx_http_zk_lock_slot_t  *slot;

    slot = &zone->sh->slots[zone->slot];

    words = zone->sh->ncells / NGX_HTTP_ZK_LOCK_WORD_BITS;

    for (i = 0; i * NGX_HTTP_ZK_LOCK_WORD_BITS < words; i++) {

        summary = ngx_http_zk_lock_atomic_take(&slot->summary[i]);

        for (k = 0; summary != 0; k++, summary >>= 1) {

            if (!(summary & 1)) {
                continue;
            }

            m = i * NGX_HTTP_ZK_LOCK_WORD_BITS + k;
            bits = ngx_http_zk_lock_atomic_take(&slot->bits[m]);

            for (m *= NGX_HTTP_ZK_LOCK_WORD_BITS; bits != 0; m++, bits >>= 1)
            {
                if (bits & 1) {
                    handler(data, (uint32_t) m);
                }
            }
        }
    }
}


/* NULL if there is no such cell. */

static ngx_http_zk_lock_cell_t *
ngx_http_zk_lock_cell(ngx_http_zk_lock_shared_t *sh, uint32_t record)
{
    if (record >= sh->ncells) {
        return NULL;
    }

    return (ngx_http_zk_lock_cell_t *)
               (sh->cells + (size_t) record * NGX_HTTP_ZK_LOCK_CELL);
}


static ngx_uint_t
ngx_http_zk_lock_cells_of(size_t path_len)
{
    return (offsetof(ngx_http_zk_lock_cell_t, path) + path_len
            + NGX_HTTP_ZK_LOCK_CELL - 1)
           / NGX_HTTP_ZK_LOCK_CELL;
}


/* Takes n cells in a row; a chunk is taken from the zone when it is needed. */

static uint32_t
ngx_http_zk_lock_cells_take(ngx_http_zk_lock_zone_t *zone, ngx_uint_t n)
{
    uint32_t    record;
    ngx_uint_t  i;

    if (zone->chunk != NGX_HTTP_ZK_LOCK_NO_CHUNK) {
        record = ngx_http_zk_lock_cells_find(zone, zone->chunk, n);

        if (record != NGX_HTTP_ZK_LOCK_NO_RECORD) {
            return record;
        }
    }

    for (i = 0; i < zone->sh->nchunks; i++) {

        if (zone->sh->owners[i] == 0
            && ngx_atomic_cmp_set(&zone->sh->owners[i], 0, zone->slot + 1))
        {
            zone->used[i] = 0;
        }

        if (zone->sh->owners[i] != zone->slot + 1) {
            continue;
        }

        record = ngx_http_zk_lock_cells_find(zone, i, n);

        if (record != NGX_HTTP_ZK_LOCK_NO_RECORD) {
            zone->chunk = i;
            return record;
        }
    }

    return NGX_HTTP_ZK_LOCK_NO_RECORD;
}


static uint32_t
ngx_http_zk_lock_cells_find(ngx_http_zk_lock_zone_t *zone, ngx_uint_t chunk,
    ngx_uint_t n)
{
    uint64_t    mask;
    ngx_uint_t  k;

    mask = ((uint64_t) 1 << n) - 1;

    for (k = 0; k + n <= NGX_HTTP_ZK_LOCK_CHUNK; k++) {

        if ((zone->used[chunk] & (mask << k)) == 0) {
            zone->used[chunk] |= mask << k;

            return (uint32_t) (chunk * NGX_HTTP_ZK_LOCK_CHUNK + k);
        }
    }

    return NGX_HTTP_ZK_LOCK_NO_RECORD;
}


static ngx_int_t
ngx_http_zk_lock_zone_random(ngx_http_zk_lock_zone_t *zone, u_char *buf,
    size_t len)
{
    ssize_t  n;

    if (zone->nrandom < len) {

        do {
            n = getrandom(zone->random, sizeof(zone->random), 0);
        } while (n == -1 && ngx_errno == NGX_EINTR);

        if (n < (ssize_t) len) {
            ngx_log_error(NGX_LOG_CRIT, zone->log, ngx_errno,
                          "getrandom() failed");
            return NGX_ERROR;
        }

        zone->nrandom = n;
    }

    zone->nrandom -= len;

    ngx_memcpy(buf, &zone->random[zone->nrandom], len);
    ngx_memzero(&zone->random[zone->nrandom], len);

    return NGX_OK;
}


static void
ngx_http_zk_lock_ring(ngx_http_zk_lock_shared_t *sh, ngx_uint_t slot,
    uint32_t record)
{
    ssize_t                   n;
    uint64_t                  one;
    ngx_uint_t                word;
    ngx_http_zk_lock_slot_t  *s;

    if (slot >= sh->nslots) {
        return;
    }

    s = &sh->slots[slot];
    word = record / NGX_HTTP_ZK_LOCK_WORD_BITS;

    ngx_http_zk_lock_atomic_or(&s->bits[word],
                   (ngx_atomic_uint_t) 1
                   << (record % NGX_HTTP_ZK_LOCK_WORD_BITS));

    ngx_http_zk_lock_atomic_or(&s->summary[word / NGX_HTTP_ZK_LOCK_WORD_BITS],
                   (ngx_atomic_uint_t) 1
                   << (word % NGX_HTTP_ZK_LOCK_WORD_BITS));

    one = 1;

    do {
        n = write(s->fd, &one, sizeof(uint64_t));

        /* EAGAIN: the counter is full, so the worker will wake up anyway */

    } while (n == -1 && ngx_errno == NGX_EINTR);
}


static void
ngx_http_zk_lock_ring_watchers(ngx_http_zk_lock_shared_t *sh, uint32_t record,
    ngx_uint_t clear)
{
    ngx_uint_t                i, k;
    ngx_atomic_uint_t         word;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_cell(sh, record);

    for (i = 0; i < NGX_HTTP_ZK_LOCK_SLOT_WORDS; i++) {

        word = clear ? ngx_http_zk_lock_atomic_take(&cell->watchers[i])
                     : cell->watchers[i];

        for (k = 0; word != 0; k++, word >>= 1) {
            if (word & 1) {
                ngx_http_zk_lock_ring(sh,
                              i * NGX_HTTP_ZK_LOCK_WORD_BITS + k, record);
            }
        }
    }
}


/*
 * A copy that is not torn; NGX_DECLINED if the record is not of that path,
 * NGX_ABORT if there is no such copy.
 */

static ngx_int_t
ngx_http_zk_lock_record_copy(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_str_t *path, ngx_http_zk_lock_record_t *copy, ngx_atomic_uint_t *gen)
{
    ngx_uint_t                tries, same;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_cell(zone->sh, record);

    if (cell == NULL) {
        return NGX_DECLINED;
    }

    for (tries = 0; tries < 100; tries++) {

        *gen = cell->gen;
        ngx_memory_barrier();

        if (*gen & 1) {
            ngx_cpu_pause();
            continue;
        }

        same = cell->path_len == path->len
               && ngx_http_zk_lock_cells_of(path->len)
                  <= zone->sh->ncells - record
               && ngx_memcmp(cell->path, path->data, path->len) == 0;

        copy->state = cell->state;
        copy->kind = cell->kind;
        copy->seq = cell->seq;
        copy->czxid = cell->czxid;
        copy->index = cell->index;
        copy->lease = cell->lease;
        copy->ttl = cell->ttl;
        copy->since = (time_t) cell->since;
        copy->id.record = record;
        ngx_memcpy(copy->id.random, cell->random, ZK_LOCK_RANDOM_LEN);

        copy->alive = (cell->slot < zone->sh->nslots)
                      ? zone->sh->slots[cell->slot].alive : 0;

        ngx_memory_barrier();

        if (cell->gen == *gen) {
            return same ? NGX_OK : NGX_DECLINED;
        }
    }

    /* who writes it is dead or stopped in the middle of it */

    return NGX_ABORT;
}


static ngx_int_t
ngx_http_zk_lock_record_known(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_http_zk_lock_record_t *copy,
    ngx_atomic_uint_t *gen)
{
    ngx_int_t                 rc;
    ngx_uint_t                slot;
    ngx_http_zk_lock_cell_t  *cell;

    rc = ngx_http_zk_lock_record_copy(zone, id->record, path, copy, gen);
    if (rc != NGX_OK) {
        return rc;
    }

    if (copy->state == NGX_HTTP_ZK_LOCK_RECORD_FREE
        || ngx_memcmp(copy->id.random, id->random, ZK_LOCK_RANDOM_LEN) != 0)
    {
        return NGX_DECLINED;
    }

    cell = ngx_http_zk_lock_cell(zone->sh, id->record);
    slot = cell->slot;

    if (slot == zone->slot) {
        return NGX_OK;
    }

    if (slot >= zone->sh->nslots
        || zone->sh->slots[slot].pid == 0
        || ngx_http_zk_lock_zone_dead(zone->sh->slots[slot].pid))
    {
        return NGX_ABORT;
    }

    return NGX_OK;
}


static void
ngx_http_zk_lock_atomic_or(ngx_atomic_t *word, ngx_atomic_uint_t bits)
{
    ngx_atomic_uint_t  old;

    do {
        old = *word;
    } while (!ngx_atomic_cmp_set(word, old, old | bits));
}


static ngx_atomic_uint_t
ngx_http_zk_lock_atomic_take(ngx_atomic_t *word)
{
    ngx_atomic_uint_t  old;

    do {
        old = *word;
    } while (old != 0 && !ngx_atomic_cmp_set(word, old, 0));

    return old;
}
