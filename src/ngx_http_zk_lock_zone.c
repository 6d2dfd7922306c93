
/*
 * The zone: slots, and their keepers.
 *
 * Everything here runs on the event loop of several processes at the same time.
 * A slot changes hands by one atomic step on its keeper; the new keeper then
 * writes the rest of the slot.
 *
 * A worker that leaves says so first (leaving), and then looks whether another
 * worker stays.  A worker that leaves a slot makes it an orphan first, and then
 * wakes a worker that stays, or else all that leave.  The last worker that
 * leaves adopts orphans after it said so.  All the same a slot may be an orphan
 * when all workers have left, so a worker that quits closes its own session if
 * no claim needs it.
 */


#include "ngx_http_zk_lock_zone.h"


static ngx_http_zk_lock_zone_t *ngx_http_zk_lock_zone_new(
    ngx_http_zk_lock_map_t *map, uint64_t *used, ngx_log_t *log);
static ngx_int_t ngx_http_zk_lock_zone_take(ngx_http_zk_lock_zone_t *zone,
    ngx_uint_t slot, ngx_atomic_uint_t keeper, ngx_uint_t home);
static ngx_int_t ngx_http_zk_lock_zone_take_orphan(
    ngx_http_zk_lock_zone_t *zone);
static ngx_int_t ngx_http_zk_lock_zone_take_free(
    ngx_http_zk_lock_zone_t *zone);
static void ngx_http_zk_lock_zone_wipe(ngx_http_zk_lock_zone_t *zone);
static ngx_http_zk_lock_slot_t *ngx_http_zk_lock_zone_staying(
    ngx_http_zk_lock_zone_t *zone);
static void ngx_http_zk_lock_zone_count_cells(ngx_http_zk_lock_map_t *map,
    ngx_http_zk_lock_counts_t *counts);


ngx_int_t
ngx_http_zk_lock_zone_init(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_cycle_t             *cycle;
    ngx_slab_pool_t         *shpool;
    ngx_http_zk_lock_map_t  *map;

    cycle = shm_zone->data;

    if (data) {
        shm_zone->data = data;
        return ngx_http_zk_lock_map_keep(data, cycle);
    }

    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (shm_zone->shm.exists) {
        shm_zone->data = shpool->data;
        return NGX_OK;
    }

    map = ngx_http_zk_lock_map_make(shpool, shm_zone->shm.log);

    if (map == NULL || ngx_http_zk_lock_map_keep(map, cycle) != NGX_OK) {
        return NGX_ERROR;
    }

    shpool->data = map;
    shm_zone->data = map;

    ngx_log_error(NGX_LOG_NOTICE, shm_zone->shm.log, 0,
                  "zk_lock_zone has room for %ui claims and %ui sessions",
                  map->ncells, map->nslots);

    return NGX_OK;
}


void
ngx_http_zk_lock_zone_reloaded(ngx_shm_zone_t *shm_zone, ngx_shm_zone_t *old)
{
    ngx_http_zk_lock_map_t  *map, *before;

    map = shm_zone ? shm_zone->data : NULL;
    before = old ? old->data : NULL;

    if (map != NULL) {
        (void) ngx_atomic_fetch_add(&map->reloads, 1);
    }

    if (before != NULL && before != map) {
        before->superseded = 1;
    }
}


ngx_http_zk_lock_zone_t *
ngx_http_zk_lock_zone_join(ngx_shm_zone_t *shm_zone, ngx_log_t *log)
{
    ngx_http_zk_lock_map_t   *map;
    ngx_http_zk_lock_zone_t  *zone;

    map = shm_zone->data;

    for ( ;; ) {
        zone = ngx_http_zk_lock_zone_new(map, NULL, log);
        if (zone == NULL) {
            return NULL;
        }

        if (ngx_http_zk_lock_zone_take_free(zone) == NGX_OK) {
            map->over = 0;
            return zone;
        }

        if (ngx_http_zk_lock_zone_staying(zone) != NULL
            || ngx_http_zk_lock_zone_take_orphan(zone) != NGX_OK)
        {
            break;
        }

        /*
         * No worker is there that could adopt the orphan.  Its session ends
         * with its timeout, and what is durable is found by a scan.
         */

        ngx_http_zk_lock_zone_leave(zone);
    }

    ngx_log_error(NGX_LOG_INFO, log, 0,
                  "zk_lock_zone has no place left for this worker's session, "
                  "all %ui are in use", map->nslots);

    ngx_free(zone);

    return NULL;
}


ngx_http_zk_lock_zone_t *
ngx_http_zk_lock_zone_adopt(ngx_http_zk_lock_zone_t *home)
{
    ngx_http_zk_lock_key_t    key;
    ngx_http_zk_lock_zone_t  *zone;

    home->map->orphans = 0;

    for ( ;; ) {
        zone = ngx_http_zk_lock_zone_new(home->map, home->used, home->log);
        if (zone == NULL) {
            return NULL;
        }

        zone->home = home->home;
        zone->reloads = home->reloads;

        if (ngx_http_zk_lock_zone_take_orphan(zone) != NGX_OK) {
            ngx_free(zone);
            return NULL;
        }

        if (ngx_http_zk_lock_zone_key(zone, &key) == NGX_OK) {
            return zone;
        }

        ngx_http_zk_lock_zone_leave(zone);
    }
}


/* All slots of a worker have one map of used cells: the home's. */

static ngx_http_zk_lock_zone_t *
ngx_http_zk_lock_zone_new(ngx_http_zk_lock_map_t *map, uint64_t *used,
    ngx_log_t *log)
{
    ngx_http_zk_lock_zone_t  *zone;

    zone = ngx_calloc(sizeof(ngx_http_zk_lock_zone_t)
                      + (used ? 0 : map->nchunks * sizeof(uint64_t)), log);
    if (zone == NULL) {
        return NULL;
    }

    zone->map = map;
    zone->log = log;
    zone->home = map->nslots;
    zone->reloads = map->reloads;
    zone->chunk = NGX_HTTP_ZK_LOCK_NO_CHUNK;
    zone->used = used ? used : (uint64_t *) (zone + 1);

    return zone;
}


/* A home that is not known yet is the slot itself. */

static ngx_int_t
ngx_http_zk_lock_zone_take(ngx_http_zk_lock_zone_t *zone, ngx_uint_t i,
    ngx_atomic_uint_t keeper, ngx_uint_t home)
{
    ngx_http_zk_lock_slot_t  *slot;

    slot = &zone->map->slots[i];

    if (!ngx_atomic_cmp_set(&slot->keeper, keeper,
                            ngx_http_zk_lock_map_self()))
    {
        return NGX_DECLINED;
    }

    slot->home = (home < zone->map->nslots) ? home : i;
    slot->leaving = 0;

    zone->slot = i;
    zone->home = slot->home;

    return NGX_OK;
}


static ngx_int_t
ngx_http_zk_lock_zone_take_orphan(ngx_http_zk_lock_zone_t *zone)
{
    ngx_uint_t         i;
    ngx_atomic_uint_t  keeper, self;

    self = ngx_http_zk_lock_map_self();

    for (i = 0; i < zone->map->nslots; i++) {
        keeper = zone->map->slots[i].keeper;

        if (keeper != NGX_HTTP_ZK_LOCK_FREE
            && keeper != self
            && ngx_http_zk_lock_map_dead(keeper, 0)
            && ngx_http_zk_lock_zone_take(zone, i, keeper, zone->home)
               == NGX_OK)
        {
            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_zk_lock_zone_take_free(ngx_http_zk_lock_zone_t *zone)
{
    ngx_uint_t  i;

    for (i = 0; i < zone->map->nslots; i++) {

        if (zone->map->slots[i].keeper == NGX_HTTP_ZK_LOCK_FREE
            && ngx_http_zk_lock_zone_take(zone, i, NGX_HTTP_ZK_LOCK_FREE,
                                          zone->home)
               == NGX_OK)
        {
            zone->map->slots[i].keyed = 0;
            zone->map->slots[i].alive = ngx_http_zk_lock_now() - 1;

            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


ngx_uint_t
ngx_http_zk_lock_zone_orphans(ngx_http_zk_lock_zone_t *zone)
{
    return zone->map->orphans != 0;
}


void
ngx_http_zk_lock_zone_leaving(ngx_http_zk_lock_zone_t *zone)
{
    ngx_http_zk_lock_map_t  *map;

    map = zone->map;

    map->slots[zone->slot].leaving = 1;

    if (!ngx_http_zk_lock_zone_replaced(zone)) {

        /* its generation has to quit */

        map->over = map->reloads;
    }

    ngx_memory_barrier();
}


ngx_uint_t
ngx_http_zk_lock_zone_replaced(ngx_http_zk_lock_zone_t *zone)
{
    return zone->map->reloads != zone->reloads;
}


ngx_uint_t
ngx_http_zk_lock_zone_outlives(ngx_http_zk_lock_zone_t *zone)
{
    ngx_http_zk_lock_map_t  *map;

    map = zone->map;

    return (ngx_http_zk_lock_zone_replaced(zone) && map->reloads != map->over
            && !map->superseded)
           || ngx_http_zk_lock_zone_staying(zone) != NULL;
}


void
ngx_http_zk_lock_zone_wake(ngx_http_zk_lock_zone_t *zone)
{
    ngx_uint_t                i;
    ngx_atomic_uint_t         self;
    ngx_http_zk_lock_map_t   *map;
    ngx_http_zk_lock_slot_t  *slot;

    map = zone->map;
    self = ngx_http_zk_lock_map_self();

    for (i = 0; i < map->nslots; i++) {
        slot = &map->slots[i];

        if (slot->keeper != NGX_HTTP_ZK_LOCK_FREE && slot->keeper != self
            && slot->leaving && slot->home == i)
        {
            ngx_http_zk_lock_ring_wake(map, i);
        }
    }
}


/* A slot of another worker that stays, or NULL. */

static ngx_http_zk_lock_slot_t *
ngx_http_zk_lock_zone_staying(ngx_http_zk_lock_zone_t *zone)
{
    ngx_uint_t                i;
    ngx_atomic_uint_t         self;
    ngx_http_zk_lock_slot_t  *slot;

    self = ngx_http_zk_lock_map_self();

    for (i = 0; i < zone->map->nslots; i++) {
        slot = &zone->map->slots[i];

        if (slot->keeper != self && !slot->leaving && slot->home == i
            && !ngx_http_zk_lock_map_dead(slot->keeper, 0))
        {
            return slot;
        }
    }

    return NULL;
}


void
ngx_http_zk_lock_zone_abandon(ngx_http_zk_lock_zone_t *zone)
{
    ngx_http_zk_lock_map_t   *map;
    ngx_http_zk_lock_slot_t  *heir;

    map = zone->map;

    map->slots[zone->slot].keeper = NGX_HTTP_ZK_LOCK_ORPHAN;
    map->orphans = 1;

    ngx_memory_barrier();

    heir = ngx_http_zk_lock_zone_staying(zone);

    if (heir != NULL) {
        ngx_http_zk_lock_ring_wake(map, heir - map->slots);

    } else {

        /* one that began to leave after this worker had looked for an heir */

        ngx_http_zk_lock_zone_wake(zone);
    }

    ngx_free(zone);
}


void
ngx_http_zk_lock_zone_leave(ngx_http_zk_lock_zone_t *zone)
{
    ngx_http_zk_lock_slot_t  *slot;

    slot = &zone->map->slots[zone->slot];

    ngx_http_zk_lock_zone_wipe(zone);
    ngx_http_zk_lock_zone_set_key(zone, NULL);

    slot->alive = ngx_http_zk_lock_now() - 1;

    ngx_memory_barrier();

    slot->keeper = NGX_HTTP_ZK_LOCK_FREE;

    ngx_free(zone);
}


/*
 * Frees all records of a slot whose session is over.  If the keeper died while
 * it learned of that, it is not known whether a claim that was asked to end was
 * still there: record_lost() says so.
 */

static void
ngx_http_zk_lock_zone_wipe(ngx_http_zk_lock_zone_t *zone)
{
    uint32_t                  record;
    ngx_uint_t                i, k, keyed;
    ngx_http_zk_lock_map_t   *map;
    ngx_http_zk_lock_cell_t  *cell;

    map = zone->map;
    keyed = map->slots[zone->slot].keyed;

    for (i = 0; i < map->nchunks; i++) {

        if (map->owners[i] != zone->slot + 1) {
            continue;
        }

        for (k = 0; k < NGX_HTTP_ZK_LOCK_CHUNK; k++) {
            record = (uint32_t) (i * NGX_HTTP_ZK_LOCK_CHUNK + k);
            cell = ngx_http_zk_lock_map_cell(map, record);

            if (!keyed) {

                /* a gen to come: the next claim here sets it right */

                cell->lost = cell->gen + 2;
                ngx_memory_barrier();
            }

            /* the further cells of a long path hold any bytes */

            ngx_memzero(cell->random, ZK_LOCK_RANDOM_LEN);

            if (cell->state != 0 && cell->ending == 0) {

                /* a durable claim does not end with its session */

                cell->ending = NGX_HTTP_ZK_LOCK_FORSAKEN;
            }

            cell->state = 0;
            cell->gen += cell->gen & 1;

            ngx_http_zk_lock_ring_watchers(map, record, 1);
        }

        map->starts[i] = 0;

        ngx_memory_barrier();

        map->owners[i] = 0;
    }
}


void
ngx_http_zk_lock_zone_set_key(ngx_http_zk_lock_zone_t *zone,
    const ngx_http_zk_lock_key_t *key)
{
    ngx_http_zk_lock_slot_t  *slot;

    slot = &zone->map->slots[zone->slot];

    slot->keyed = 0;
    ngx_memory_barrier();

    if (key == NULL) {
        ngx_explicit_memzero(&slot->key, sizeof(ngx_http_zk_lock_key_t));
        return;
    }

    slot->key = *key;
    ngx_memory_barrier();

    slot->keyed = 1;
}


ngx_int_t
ngx_http_zk_lock_zone_key(ngx_http_zk_lock_zone_t *zone,
    ngx_http_zk_lock_key_t *key)
{
    ngx_http_zk_lock_slot_t  *slot;

    slot = &zone->map->slots[zone->slot];

    if (!slot->keyed) {
        return NGX_DECLINED;
    }

    *key = slot->key;

    return NGX_OK;
}


int
ngx_http_zk_lock_zone_fd(ngx_http_zk_lock_zone_t *home)
{
    return home->map->own->wakeups[home->slot];
}


ngx_atomic_t *
ngx_http_zk_lock_zone_alive(ngx_http_zk_lock_zone_t *zone)
{
    return &zone->map->slots[zone->slot].alive;
}


ngx_uint_t
ngx_http_zk_lock_zone_cells(ngx_http_zk_lock_zone_t *zone)
{
    return zone->map->ncells;
}


void
ngx_http_zk_lock_zone_count(ngx_http_zk_lock_zone_t *zone,
    ngx_http_zk_lock_counts_t *counts)
{
    ngx_uint_t                i;
    ngx_atomic_uint_t         keeper;
    ngx_http_zk_lock_map_t   *map;
    ngx_http_zk_lock_slot_t  *slot;

    ngx_memzero(counts, sizeof(ngx_http_zk_lock_counts_t));

    map = zone->map;

    for (i = 0; i < map->nslots; i++) {
        slot = &map->slots[i];
        keeper = slot->keeper;

        if (keeper == NGX_HTTP_ZK_LOCK_FREE) {
            continue;
        }

        counts->slots++;

        if (!slot->keyed) {
            continue;
        }

        if (ngx_http_zk_lock_map_dead(keeper, 0)) {
            counts->orphans++;

        } else if (slot->home == i) {
            counts->own++;

        } else {
            counts->adopted++;
        }
    }

    ngx_http_zk_lock_zone_count_cells(map, counts);
}


static void
ngx_http_zk_lock_zone_count_cells(ngx_http_zk_lock_map_t *map,
    ngx_http_zk_lock_counts_t *counts)
{
    uint64_t                  starts;
    ngx_uint_t                i, k, n;
    ngx_http_zk_lock_cell_t  *cell;

    for (i = 0; i < map->nchunks; i++) {

        if (map->owners[i] == 0) {
            continue;
        }

        starts = map->starts[i];

        for (k = 0; starts != 0; k++, starts >>= 1) {

            if (!(starts & 1)) {
                continue;
            }

            cell = ngx_http_zk_lock_map_cell(map,
                               (uint32_t) (i * NGX_HTTP_ZK_LOCK_CHUNK + k));

            n = cell->state;

            counts->states[n % 6]++;
            counts->cells += ngx_http_zk_lock_map_cells_of(cell->path_len);
        }
    }
}
