
/*
 * The zone: slots, and the keepers of slots.
 *
 * Several processes run this code at the same time, each on its event loop.  A
 * slot changes hands by one atomic step on slot->keeper; the new keeper then
 * writes the rest of the slot.
 *
 * A worker that leaves sets `leaving` first, and then looks whether another
 * worker stays.  A worker that leaves a slot makes the slot an orphan first,
 * and then wakes all workers, because a worker may have begun to leave
 * meanwhile.  The last worker adopts orphans after `leaving` is set.  Still, a
 * slot may be an orphan when all workers have left, so a worker that quits
 * closes its own session if no claim needs the session.
 */


#include "shm/record.h"


static ngx_int_t zkl_zone_take(zkl_zone_t *zone, ngx_uint_t orphan);
static ngx_uint_t zkl_zone_staying(zkl_zone_t *zone);
static void zkl_zone_wipe(zkl_zone_t *zone);
static void zkl_zone_raise(ngx_atomic_t *word, int64_t zxid);


ngx_int_t
zkl_zone_init(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_cycle_t   *cycle;
    zkl_layout_t  *map;

    cycle = shm_zone->data;

    if (data) {
        shm_zone->data = data;
        return zkl_layout_keep(data, cycle);
    }

    map = zkl_layout_make((ngx_slab_pool_t *) shm_zone->shm.addr, cycle);
    if (map == NULL) {
        return NGX_ERROR;
    }

    shm_zone->data = map;

    ngx_log_error(NGX_LOG_NOTICE, shm_zone->shm.log, 0,
                  "zk_lock_zone has room for %ui claims and %ui sessions",
                  map->ncells, map->nslots);

    return NGX_OK;
}


void
zkl_zone_reloaded(ngx_shm_zone_t *shm_zone, ngx_shm_zone_t *old)
{
    zkl_layout_t  *map, *before;

    map = shm_zone ? shm_zone->data : NULL;
    before = old ? old->data : NULL;

    if (map != NULL) {
        (void) ngx_atomic_fetch_add(&map->reloads, 1);
    }

    if (before != NULL && before != map) {
        before->superseded = 1;
    }
}


zkl_zone_t *
zkl_zone_join(ngx_shm_zone_t *shm_zone, ngx_log_t *log)
{
    zkl_layout_t  *map;
    zkl_zone_t    *zone;

    map = shm_zone->data;

    zone = ngx_calloc(sizeof(zkl_zone_t), log);
    if (zone == NULL) {
        return NULL;
    }

    zone->map = map;
    zone->log = log;
    zone->home = map->nslots;
    zone->reloads = map->reloads;

    if (zkl_zone_take(zone, 0) != NGX_OK
        && (zkl_zone_staying(zone) || zkl_zone_take(zone, 1) != NGX_OK))
    {
        ngx_log_error(NGX_LOG_INFO, log, 0,
                      "zk_lock_zone has no place left for this worker's "
                      "session, all %ui are in use", map->nslots);

        ngx_free(zone);
        return NULL;
    }

    /*
     * If this was an orphan, no worker is there that could adopt it.  The
     * orphan's session ends with the timeout, and a takeover finds the durable
     * claims.
     */

    zkl_zone_wipe(zone);

    map->over = 0;

    return zone;
}


zkl_zone_t *
zkl_zone_adopt(zkl_zone_t *home)
{
    zkl_zone_t  *zone;

    home->map->orphans = 0;

    for ( ;; ) {
        zone = ngx_alloc(sizeof(zkl_zone_t), home->log);
        if (zone == NULL) {
            return NULL;
        }

        *zone = *home;
        zone->chunk = home->map->nchunks;

        if (zkl_zone_take(zone, 1) != NGX_OK) {
            ngx_free(zone);
            return NULL;
        }

        if (zone->own->keyed) {
            return zone;
        }

        zkl_zone_free(zone);
    }
}


/*
 * Takes a free slot or, with orphan, the slot of a process that is gone.  If no
 * home is known yet, the slot is the home.
 */

static ngx_int_t
zkl_zone_take(zkl_zone_t *zone, ngx_uint_t orphan)
{
    ngx_uint_t          i;
    zkl_slot_t         *slot;
    ngx_atomic_uint_t   keeper;

    for (i = 0; i < zone->map->nslots; i++) {
        slot = &zone->map->slots[i];
        keeper = slot->keeper;

        if ((keeper != ZKL_FREE) != orphan
            || !zkl_layout_dead(keeper, 0)
            || !ngx_atomic_cmp_set(&slot->keeper, keeper, zkl_layout_self()))
        {
            continue;
        }

        if (keeper != ZKL_FREE && keeper != ZKL_ORPHAN) {

            /* the keeper died, perhaps while it changed a shared count */

            (void) ngx_atomic_fetch_add(&zone->map->deaths, 1);
        }

        slot->home = (zone->home < zone->map->nslots) ? zone->home : i;
        slot->leaving = 0;

        zone->slot = i;
        zone->own = slot;
        zone->home = slot->home;

        return NGX_OK;
    }

    return NGX_DECLINED;
}


void
zkl_zone_leaving(zkl_zone_t *zone)
{
    zkl_layout_t  *map;

    map = zone->map;

    zone->own->leaving = 1;

    if (map->reloads == zone->reloads) {

        /* the generation of this worker has to quit */

        map->over = map->reloads;
    }

    ngx_memory_barrier();
}


ngx_uint_t
zkl_zone_outlives(zkl_zone_t *zone)
{
    zkl_layout_t  *map;

    map = zone->map;

    return (map->reloads != zone->reloads && map->reloads != map->over
            && !map->superseded)
           || zkl_zone_staying(zone);
}


void
zkl_zone_wake(zkl_zone_t *zone)
{
    ngx_uint_t     i;
    zkl_layout_t  *map;

    map = zone->map;

    for (i = 0; i < map->nslots; i++) {

        if (map->slots[i].keeper != ZKL_FREE && map->slots[i].home == i
            && i != zone->home)
        {
            zkl_doorbell_wake(map, i);
        }
    }
}


/* Whether another worker stays. */

static ngx_uint_t
zkl_zone_staying(zkl_zone_t *zone)
{
    ngx_uint_t   i;
    zkl_slot_t  *slot;

    for (i = 0; i < zone->map->nslots; i++) {
        slot = &zone->map->slots[i];

        if (i != zone->home && slot->home == i && !slot->leaving
            && !zkl_layout_dead(slot->keeper, 0))
        {
            return 1;
        }
    }

    return 0;
}


void
zkl_zone_abandon(zkl_zone_t *zone)
{
    zone->own->keeper = ZKL_ORPHAN;
    zone->map->orphans = 1;

    ngx_memory_barrier();

    zkl_zone_wake(zone);

    ngx_free(zone);
}


void
zkl_zone_free(zkl_zone_t *zone)
{
    zkl_zone_wipe(zone);

    ngx_memory_barrier();

    zone->own->keeper = ZKL_FREE;

    ngx_free(zone);
}


/* Empties a slot whose session is over, or never was. */

static void
zkl_zone_wipe(zkl_zone_t *zone)
{
    zkl_record_hand_over(zone, NULL);
    zkl_zone_set_key(zone, NULL);

    zone->own->alive = zkl_now() - 1;
}


void
zkl_zone_set_key(zkl_zone_t *zone, const zkl_key_t *key)
{
    zkl_slot_t  *slot;

    slot = zone->own;

    slot->keyed = 0;
    ngx_memory_barrier();

    if (key == NULL) {
        ngx_explicit_memzero(&slot->key, sizeof(zkl_key_t));
        return;
    }

    slot->key = *key;
    ngx_memory_barrier();

    slot->keyed = 1;
}


void
zkl_zone_count(zkl_zone_t *zone, zkl_counts_t *counts)
{
    uint32_t           record;
    ngx_uint_t         i;
    ngx_msec_t         now;
    zkl_cell_t        *cell;
    zkl_slot_t        *slot;
    zkl_layout_t      *map;
    ngx_msec_int_t     left, alive;
    ngx_atomic_uint_t  keeper;

    ngx_memzero(counts, sizeof(zkl_counts_t));

    map = zone->map;
    now = zkl_now();
    alive = NGX_MAX_INT32_VALUE;

    for (i = 0; i < map->nslots; i++) {
        slot = &map->slots[i];
        keeper = slot->keeper;

        if (keeper == ZKL_FREE) {
            continue;
        }

        counts->slots++;

        if (zkl_layout_dead(keeper, 0)) {
            counts->orphans += (slot->keyed != 0);

        } else if (slot->home != i) {
            counts->adopted += (slot->keyed != 0);

        } else {
            counts->own += (slot->keyed != 0);

            left = slot->keyed ? (ngx_msec_int_t) (slot->alive - now) : 0;
            alive = ngx_min(alive, left);
        }
    }

    counts->alive = (alive > 0) ? (ngx_msec_t) alive : 0;

    record = ZKL_NO_RECORD;

    while ((cell = zkl_layout_next(map, map->nslots, &record)) != NULL) {
        counts->states[cell->state % 6]++;
        counts->cells += zkl_layout_cells_of(cell->path_len);
    }
}


ngx_uint_t
zkl_zone_made(zkl_zone_t *zone, int64_t floor, int64_t zxid)
{
    ngx_atomic_uint_t  present;

    while (zxid <= floor) {
        present = zone->map->present;

        if ((int64_t) present < floor) {
            /* another worker has shown so */
            break;
        }

        if (ngx_atomic_cmp_set(&zone->map->present, present,
                               (ngx_atomic_uint_t) zxid))
        {
            return 1;
        }
    }

    zkl_zone_raise(&zone->map->present, zxid);
    zkl_zone_raise(&zone->map->zxid, zxid);

    return 0;
}


static void
zkl_zone_raise(ngx_atomic_t *word, int64_t zxid)
{
    ngx_atomic_uint_t  old;

    do {
        old = *word;

    } while ((int64_t) old < zxid
             && !ngx_atomic_cmp_set(word, old, (ngx_atomic_uint_t) zxid));
}


ngx_uint_t
zkl_zone_behind(zkl_zone_t *zone)
{
    return zone->map->present < zone->map->zxid;
}


ngx_uint_t
zkl_zone_room(zkl_zone_t *home)
{
    ngx_uint_t         i;
    ngx_atomic_uint_t  owner;

    for (i = 0; i < home->map->nchunks; i++) {
        owner = home->map->owners[i];

        if (owner == 0
            || (owner == home->slot + 1
                && ~zkl_layout_used(home->map, i) != 0))
        {
            return 1;
        }
    }

    return 0;
}
