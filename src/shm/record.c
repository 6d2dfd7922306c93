
/*
 * Records: how a worker takes, writes, reads and frees records, and what a
 * successor makes of the records of an adopted slot.
 *
 * Several processes run this code at the same time, each on its event loop,
 * under these rules:
 *
 * - A writer that fills or publishes a record makes gen odd first and even
 *   again afterwards, so that a reader knows a torn copy.
 * - A watcher first sets a bit and then looks at the state, while a writer
 *   first changes the state and then looks at the bits: at least one sees the
 *   other.
 * - A record's start is noted when the record is whole, and forgotten when the
 *   record is free: a successor finds all records of claims that may be in
 *   ZooKeeper.
 * - The lease, the renewals, the holds and the like are words that the keeper
 *   writes one by one while the claim is held, and gen stays.  A lease of 0 is
 *   none, or over.
 * - What a state says is written before the state, and read behind it.
 *
 * The cell of an id may be NULL, because a client may have made the id up.
 */


#include "shm/record.h"
#include "shm/quota.h"

#include <sys/random.h>


/* in how many places a record may be noted that was taken over */
#define ZKL_MOVED                     8

/* the time between two log lines about a full zone, milliseconds */
#define ZKL_FULL_AGAIN                10000


static uint32_t zkl_record_begin(zkl_zone_t *zone, ngx_str_t *path,
    zkl_mode_t mode, const uint8_t *random);
static void zkl_record_start(zkl_zone_t *zone, uint32_t record);
static void zkl_record_moved(zkl_zone_t *zone, uint32_t record);
static uint32_t zkl_record_number(zkl_zone_t *zone, const zkl_id_t *id);
static uint32_t zkl_record_cells(zkl_zone_t *zone, ngx_uint_t n);
static int64_t zkl_record_clock(void);
static void zkl_record_fill(zkl_zone_t *zone, zkl_cell_t *cell,
    uint32_t record, zkl_record_t *copy);
static zkl_found_e zkl_record_get(zkl_zone_t *zone, uint32_t record,
    const zkl_id_t *id, ngx_str_t *path, zkl_record_t *copy);
static ngx_uint_t zkl_record_counted(zkl_cell_t *cell,
    zkl_claim_data_t *cdata);
static void zkl_record_extend(zkl_cell_t *cell, ngx_msec_t ttl,
    ngx_msec_t grace, ngx_msec_t seen);


ngx_int_t
zkl_record_take(zkl_zone_t *zone, ngx_str_t *path, zkl_mode_t mode,
    const uint8_t *key, zkl_id_t *id)
{
    if (getrandom(id->random, ZKL_RANDOM_LEN, 0) != ZKL_RANDOM_LEN) {
        ngx_log_error(NGX_LOG_CRIT, zone->log, ngx_errno, "getrandom() failed");
        return NGX_ERROR;
    }

    if (key != NULL) {
        ngx_memcpy(id->random, key, ZKL_KEY);
    }

    id->record = zkl_record_begin(zone, path, mode, id->random);
    if (id->record == ZKL_NO_RECORD) {
        return NGX_BUSY;
    }

    zkl_record_start(zone, id->record);

    return NGX_OK;
}


/*
 * Takes cells for a new record, and fills the record.  A full zone is logged
 * once in a while, and not for each request that is refused.
 */

static uint32_t
zkl_record_begin(zkl_zone_t *zone, ngx_str_t *path, zkl_mode_t mode,
    const uint8_t *random)
{
    uint32_t     record;
    ngx_msec_t   now;
    ngx_uint_t   i;
    zkl_cell_t  *cell;

    record = zkl_record_cells(zone, zkl_layout_cells_of(path->len));

    if (record == ZKL_NO_RECORD) {
        now = zkl_now();

        if (zone->full == 0 || now - zone->full >= ZKL_FULL_AGAIN) {
            zone->full = now;

            ngx_log_error(NGX_LOG_ERR, zone->log, 0,
                          "no room for one more claim in \"zk_lock_zone\": its "
                          "size is to be larger, or there are to be fewer "
                          "claims; such lines come once in ten seconds at "
                          "most");
        }

        return ZKL_NO_RECORD;
    }

    cell = zkl_layout_cell(zone->map, record);

    /*
     * A free cell keeps its id, so that a reader learns how the claim ended.
     * The cells behind the first get the rest of the path over what was there.
     */

    for (i = zkl_layout_cells_of(path->len) - 1; i != 0; i--) {
        ngx_memzero(zkl_layout_cell(zone->map, record + i)->random,
                    ZKL_RANDOM_LEN);
    }

    cell->gen |= 1;
    ngx_memory_barrier();

    ngx_memzero((u_char *) cell + offsetof(zkl_cell_t, state),
                offsetof(zkl_cell_t, path) - offsetof(zkl_cell_t, state));

    cell->seq = -1;
    cell->named = record;
    cell->mode = mode;
    cell->was = mode;
    cell->slot = (uint16_t) zone->slot;
    cell->path_len = (uint16_t) path->len;

    ngx_memcpy(cell->path, path->data, path->len);
    ngx_memcpy(cell->random, random, ZKL_RANDOM_LEN);

    cell->state = ZKL_RECORD_NEW;

    ngx_memory_barrier();
    cell->gen++;

    return record;
}


/* Notes that a record is whole: a successor finds the record from now on. */

static void
zkl_record_start(zkl_zone_t *zone, uint32_t record)
{
    ngx_memory_barrier();

    zone->map->starts[record / ZKL_CHUNK] |=
                       (uint64_t) 1 << (record % ZKL_CHUNK);
}


ngx_int_t
zkl_record_adopt(zkl_zone_t *zone, ngx_str_t *path, zkl_child_t *child,
    int64_t czxid, ngx_uint_t index, uint32_t *record)
{
    zkl_cell_t  *cell;

    *record = zkl_record_begin(zone, path, child->mode, child->id.random);
    if (*record == ZKL_NO_RECORD) {
        return NGX_BUSY;
    }

    /*
     * A successor finds the record of a living claim, or no record.  The record
     * is open before the seq is there: if this worker dies in between, a reader
     * asks ZooKeeper.
     */

    cell = zkl_layout_cell(zone->map, *record);

    cell->state = ZKL_RECORD_OPEN;
    ngx_memory_barrier();

    cell->named = child->id.record;
    cell->czxid = czxid;
    cell->index = (uint8_t) index;
    cell->durable = 1;
    cell->seq = child->seq;

    zkl_record_start(zone, *record);
    zkl_record_moved(zone, *record);

    return NGX_OK;
}


/*
 * Notes the record under a hash of the id.  A place is free again when the
 * record there is free, or another claim has the cell.  If no place is free,
 * the record is not noted: then siblings ask ZooKeeper about the claim.
 */

static void
zkl_record_moved(zkl_zone_t *zone, uint32_t record)
{
    uint32_t            hash;
    ngx_uint_t          k;
    zkl_cell_t         *cell;
    ngx_atomic_t       *place;
    ngx_atomic_uint_t   old;

    cell = zkl_layout_cell(zone->map, record);
    hash = ngx_crc32_short(cell->random, ZKL_RANDOM_LEN);

    for (k = 0; k < ZKL_MOVED; k++) {
        place = &zone->map->moved[(hash + k) % zone->map->ncells];
        old = *place;

        cell = zkl_layout_cell(zone->map, (uint32_t) old - 1);

        if ((cell == NULL || cell->state == ZKL_RECORD_FREE
             || cell->named == (uint32_t) old - 1)
            && ngx_atomic_cmp_set(place, old, (ngx_atomic_uint_t) record + 1))
        {
            return;
        }
    }
}


/*
 * The number of a record that has the claim with that id, or else had; or else
 * the number in the id.  A claim may have two records, if a worker has not
 * heard yet that its session is over, and a sibling counts the lease by now.
 */

static uint32_t
zkl_record_number(zkl_zone_t *zone, const zkl_id_t *id)
{
    uint32_t     hash, record, found;
    ngx_uint_t   k;
    zkl_cell_t  *cell;

    found = id->record;
    hash = ngx_crc32_short((u_char *) id->random, ZKL_RANDOM_LEN);

    for (k = 0; k <= ZKL_MOVED; k++) {
        record = id->record;

        if (k < ZKL_MOVED) {
            record = zone->map->moved[(hash + k) % zone->map->ncells] - 1;
        }

        cell = zkl_layout_cell(zone->map, record);

        if (cell == NULL || cell->named != id->record
            || !zkl_name_secret_equal(cell->random, id->random,
                                      ZKL_RANDOM_LEN))
        {
            continue;
        }

        if (cell->state != ZKL_RECORD_FREE) {
            return record;
        }

        if (found == id->record) {
            found = record;
        }
    }

    return found;
}


void
zkl_record_hand_over(zkl_zone_t *from, zkl_zone_t *to)
{
    uint32_t       record;
    ngx_uint_t     i;
    zkl_cell_t    *cell;
    zkl_layout_t  *map;

    map = from->map;
    record = ZKL_NO_RECORD;

    while ((cell = zkl_layout_next(map, from->slot, &record)) != NULL) {

        if (to == NULL) {
            zkl_record_ending(cell, ZKL_ENDING_FORSAKEN);

        } else if (cell->slot != from->slot) {
            continue;
        }

        zkl_record_free(from, record);
    }

    for (i = 0; i < map->nchunks; i++) {
        (void) ngx_atomic_cmp_set(&map->owners[i], from->slot + 1,
                                  (to != NULL && map->starts[i] != 0)
                                  ? to->slot + 1 : 0);
    }
}


void
zkl_record_open(zkl_zone_t *zone, uint32_t record)
{
    zkl_cell_t  *cell;

    cell = zkl_layout_cell(zone->map, record);

    cell->state = ZKL_RECORD_OPEN;
    ngx_memory_barrier();

    cell->version = ZKL_UNREAD;
    cell->slot = (uint16_t) zone->slot;
    ngx_memory_barrier();

    zkl_doorbell_watchers(zone->map, record, 0);
}


void
zkl_record_regain(zkl_cell_t *cell, zkl_claim_data_t *cdata, ngx_uint_t anew,
    uint32_t term)
{
    ngx_msec_t  ttl;

    cell->term = term;

    if (anew) {

        /* the whole ttl that the client was told counts from now */

        ttl = (cdata->ttl > 0) ? (ngx_msec_t) cdata->ttl : 1;

        cell->since = zkl_record_clock();
        zkl_record_keep(cell, ttl, zkl_now() + ttl);
        cell->holds = ngx_max(cdata->holds, 1);
        cell->renewals = cdata->renewals;
        cell->delivery = ZKL_DELIVERED_ELSEWHERE;
    }

    ngx_memory_barrier();

    cell->state = ZKL_RECORD_HELD;
}


void
zkl_record_publish(zkl_cell_t *cell, int64_t seq, int64_t czxid,
    ngx_uint_t index)
{
    cell->gen |= 1;
    ngx_memory_barrier();

    cell->seq = seq;
    cell->czxid = czxid;
    cell->index = (uint8_t) index;
    cell->state = ZKL_RECORD_WAITING;

    /* a worker that has listed this claim already knows the claim by the id,
       which stays while gen changes */

    ngx_memory_barrier();
    cell->gen++;
}


void
zkl_record_grant(zkl_cell_t *cell, ngx_msec_t ttl, ngx_msec_t lease,
    ngx_uint_t delivery)
{
    cell->since = zkl_record_clock();
    cell->holds = 1;
    cell->delivery = delivery;
    zkl_record_keep(cell, ttl, lease);

    ngx_memory_barrier();

    cell->state = ZKL_RECORD_HELD;
}


void
zkl_record_bind(zkl_cell_t *cell, ngx_uint_t bound)
{
    /* the lease was written before, and counts for a successor from now on */

    ngx_memory_barrier();
    cell->bound = bound;
    ngx_memory_barrier();
}


void
zkl_record_downgrade(zkl_zone_t *zone, uint32_t record)
{
    zkl_cell_t  *cell;

    cell = zkl_layout_cell(zone->map, record);

    if (cell->mode == ZKL_READ) {

        /* a dead worker has begun this; the znode has the former name */

        return;
    }

    cell->was = cell->mode;
    ngx_memory_barrier();
    cell->mode = ZKL_READ;

    ngx_memory_barrier();

    zkl_doorbell_watchers(zone->map, record, 0);
}


void
zkl_record_named(zkl_cell_t *cell)
{
    cell->was = cell->mode;

    zkl_record_unread(cell);
}


/* The data may have renewals that were not read. */

void
zkl_record_unread(zkl_cell_t *cell)
{
    cell->version = ZKL_UNREAD;
}


/*
 * Milliseconds since the epoch.  As in nginx's $request_time, a change of the
 * clock shows in the time for which a lock was held.
 */

static int64_t
zkl_record_clock(void)
{
    ngx_time_t  *tp;

    tp = ngx_timeofday();

    return (int64_t) tp->sec * 1000 + tp->msec;
}


void
zkl_record_end(zkl_zone_t *zone, uint32_t record)
{
    zkl_cell_t      *cell;
    ngx_uint_t       was;
    ngx_msec_int_t   held;

    cell = zkl_layout_cell(zone->map, record);

    was = cell->state;

    cell->lease = 0;
    cell->state = ZKL_RECORD_ENDED;

    ngx_memory_barrier();

    /* behind the state: if the worker dies here, no successor counts again */

    if (was == ZKL_RECORD_HELD) {
        held = zkl_record_clock() - cell->since;
        held = ngx_max(held, 0);

        zkl_counters_time(zone->map->counters, ZKL_TIMES_HELD, held);

        if (zone->ended != NULL) {
            zone->ended(zone->data, record, cell, held);
        }
    }

    zkl_doorbell_watchers(zone->map, record, 1);
}


void
zkl_record_free(zkl_zone_t *zone, uint32_t record)
{
    ngx_uint_t   chunk;
    zkl_cell_t  *cell;

    cell = zkl_layout_cell(zone->map, record);

    zkl_quota_give_back(zone->map, cell);

    cell->lease = 0;

    /* a reader that finds the cell free learns how the claim ended */

    ngx_memory_barrier();
    cell->state = ZKL_RECORD_FREE;
    ngx_memory_barrier();

    zkl_doorbell_watchers(zone->map, record, 1);

    chunk = record / ZKL_CHUNK;

    zone->map->starts[chunk] &= ~((uint64_t) 1 << (record % ZKL_CHUNK));

    if (zone->map->starts[chunk] == 0 && chunk != zone->chunk) {
        ngx_memory_barrier();
        zone->map->owners[chunk] = 0;
    }
}


void
zkl_record_ending(zkl_cell_t *cell, zkl_ending_e ending)
{
    cell->ending = (uint8_t) ending;
}


void
zkl_record_lose(zkl_cell_t *cell)
{
    if (cell->ending == ZKL_ENDING_RELEASED
        || cell->ending == ZKL_ENDING_BROKEN)
    {
        cell->ending = ZKL_ENDING_UNKNOWN;
    }
}


void
zkl_record_let_go(zkl_cell_t *cell)
{
    if (cell->ending == ZKL_ENDING_UNKNOWN) {
        cell->ending = ZKL_ENDING_RELEASED;
    }
}


zkl_ending_e
zkl_record_ended(zkl_zone_t *zone, const zkl_token_t *token, ngx_str_t *path)
{
    ngx_uint_t    behind;
    zkl_record_t  copy;

    if (zkl_record_read(zone, &token->id, path, &copy) == ZKL_FOUND_NOTHING
        || copy.seq != token->seq)
    {
        return ZKL_ENDING_UNKNOWN;
    }

    if (copy.ending != ZKL_ENDING_UNKNOWN) {
        return copy.ending;
    }

    /* the lease is over, and the delete is not confirmed yet */

    if ((copy.state == ZKL_RECORD_HELD || copy.state == ZKL_RECORD_WAITING)
        && copy.ttl != 0 && copy.lease == 0)
    {
        return ZKL_ENDING_EXPIRED;
    }

    behind = zkl_zone_behind(zone);

    if (copy.state == ZKL_RECORD_FREE) {

        /*
         * The worker found the claim gone before it heard that data were lost:
         * ZooKeeper has not come to the claim's transaction again.
         */

        return (behind && copy.czxid > (int64_t) zone->map->present)
               ? ZKL_ENDING_LOST : ZKL_ENDING_UNKNOWN;
    }

    /* the worker has not heard yet that the session is over, or data lost */

    return (behind || (!copy.durable && !zkl_ahead(copy.alive)))
           ? ZKL_ENDING_LOST : ZKL_ENDING_UNKNOWN;
}


void
zkl_record_inherit(zkl_zone_t *zone, zkl_inherit_pt handler, void *data)
{
    uint32_t       record;
    ngx_str_t      path;
    zkl_cell_t    *cell;
    zkl_record_t   copy;

    record = ZKL_NO_RECORD;

    while ((cell = zkl_layout_next(zone->map, zone->slot, &record)) != NULL) {

        if (cell->state == ZKL_RECORD_FREE) {

            /* the worker died while it freed the record */

            zkl_record_free(zone, record);
            continue;
        }

        if (cell->gen & 1) {

            /* the worker died while it published the claim */

            cell->state = ZKL_RECORD_NEW;
            cell->seq = -1;
            cell->gen++;
        }

        path.data = cell->path;
        path.len = cell->path_len;

        zkl_record_fill(zone, cell, record, &copy);

        if (cell->slot != zone->slot) {

            /* the record has moved, and the slot may be another worker's */

            copy.state = ZKL_RECORD_OPEN;
        }

        handler(data, &copy, &path);
    }
}


zkl_found_e
zkl_record_watch(zkl_zone_t *zone, const zkl_id_t *id, ngx_str_t *path,
    zkl_record_t *copy)
{
    uint32_t     record;
    zkl_found_e  found;

    found = zkl_record_read(zone, id, path, copy);
    if (found != ZKL_FOUND) {
        return found;
    }

    record = copy->id.record;

    zkl_doorbell_watch(zone->map, zone->slot, record);

    ngx_memory_barrier();

    return zkl_record_get(zone, record, id, path, copy);
}


/* Takes n cells in a row, from a new chunk of the zone if necessary. */

static uint32_t
zkl_record_cells(zkl_zone_t *zone, ngx_uint_t n)
{
    uint64_t       used, mask;
    ngx_uint_t     i, k, tries, chunk;
    zkl_layout_t  *map;

    map = zone->map;

    for (i = 0; i < map->nchunks; i++) {
        chunk = (zone->chunk + i) % map->nchunks;

        if (map->owners[chunk] == 0
            && ngx_atomic_cmp_set(&map->owners[chunk], 0, zone->slot + 1))
        {
            map->starts[chunk] = 0;
        }

        if (map->owners[chunk] != zone->slot + 1) {
            continue;
        }

        used = zkl_layout_used(map, chunk);

        /* in a circle: the index finds an ended claim until a cell is reused */

        for (tries = 0; ~used != 0 && tries < ZKL_CHUNK; tries++) {
            k = (zone->next + tries) % ZKL_CHUNK;
            mask = (((uint64_t) 1 << n) - 1) << k;

            if (k + n <= ZKL_CHUNK && (used & mask) == 0) {
                zone->chunk = chunk;
                zone->next = k + n;

                return (uint32_t) (chunk * ZKL_CHUNK + k);
            }
        }
    }

    return ZKL_NO_RECORD;
}


ngx_int_t
zkl_record_copy(zkl_zone_t *zone, uint32_t record, ngx_str_t *path,
    zkl_record_t *copy)
{
    ngx_uint_t         tries, same;
    ngx_atomic_uint_t  gen;
    zkl_cell_t        *cell;

    cell = zkl_layout_cell(zone->map, record);

    if (cell == NULL) {
        return NGX_DECLINED;
    }

    for (tries = 0; tries < 100; tries++) {

        gen = cell->gen;
        ngx_memory_barrier();

        if (gen & 1) {
            ngx_cpu_pause();
            continue;
        }

        same = cell->path_len == path->len
               && zkl_layout_cells_of(path->len)
                  <= zone->map->ncells - record
               && ngx_memcmp(cell->path, path->data, path->len) == 0;

        zkl_record_fill(zone, cell, record, copy);

        ngx_memory_barrier();

        if (cell->gen == gen) {
            return same ? NGX_OK : NGX_DECLINED;
        }
    }

    /* the writer is dead, or stopped in the middle of the write */

    return NGX_DECLINED;
}


static void
zkl_record_fill(zkl_zone_t *zone, zkl_cell_t *cell, uint32_t record,
    zkl_record_t *copy)
{
    copy->state = cell->state;

    /* what the state says was written before the state was */

    ngx_memory_barrier();

    copy->mode = cell->mode;
    copy->seq = cell->seq;
    copy->czxid = cell->czxid;
    copy->was = cell->was;
    copy->named = cell->named;
    copy->renewals = (uint32_t) cell->renewals;
    copy->holds = cell->holds & ZKL_HOLDS;
    copy->index = cell->index;
    copy->lease = cell->lease;
    copy->ttl = cell->ttl;
    copy->since = cell->since;
    copy->id.record = record;
    ngx_memcpy(copy->id.random, cell->random, ZKL_RANDOM_LEN);

    copy->ending = cell->ending;
    copy->bound = (cell->bound != 0);

    /* behind the ttl: a longer ttl of a durable claim is known as such */

    ngx_memory_barrier();

    copy->durable = (cell->durable != 0);

    copy->slot = cell->slot;
    copy->alive = (copy->slot < zone->map->nslots)
                  ? zone->map->slots[copy->slot].alive : 0;
}


zkl_found_e
zkl_record_read(zkl_zone_t *zone, const zkl_id_t *id, ngx_str_t *path,
    zkl_record_t *copy)
{
    return zkl_record_get(zone, zkl_record_number(zone, id), id, path, copy);
}


/*
 * Reads the record, if that has the claim with that id.  A caller that goes on
 * with the cell looks the number up once, because the claim may have another
 * record at any moment.
 */

static zkl_found_e
zkl_record_get(zkl_zone_t *zone, uint32_t record, const zkl_id_t *id,
    ngx_str_t *path, zkl_record_t *copy)
{
    if (zkl_record_copy(zone, record, path, copy) != NGX_OK
        || !zkl_name_secret_equal(copy->id.random, id->random, ZKL_RANDOM_LEN)
        || copy->ending == ZKL_ENDING_FORSAKEN
        || copy->slot >= zone->map->nslots)
    {
        return ZKL_FOUND_NOTHING;
    }

    if (copy->state == ZKL_RECORD_FREE) {
        return ZKL_FOUND_END;
    }

    return (copy->slot != zone->slot
            && zkl_layout_dead(zone->map->slots[copy->slot].keeper, 1))
           ? ZKL_FOUND_ORPHAN : ZKL_FOUND;
}


/*
 * A record while the claim is held, or waits for a client to ask for the claim:
 * the lease and the renewals, and the holds.
 */


void
zkl_record_keep(zkl_cell_t *cell, ngx_msec_t ttl, ngx_msec_t lease)
{
    cell->ttl = ttl;
    cell->lease = lease ? lease : 1;
}


void
zkl_record_cut(zkl_cell_t *cell, ngx_msec_t lease)
{
    if (cell->delivery == ZKL_DELIVERED) {
        cell->delivery = ZKL_UNDELIVERED;
        zkl_record_keep(cell, cell->ttl, lease);
    }
}


void
zkl_record_close(zkl_cell_t *cell)
{
    cell->lease = 0;
}


ngx_int_t
zkl_record_renewed(zkl_cell_t *cell, int32_t version, uint32_t renewals,
    ngx_msec_t ttl, ngx_msec_t grace, ngx_msec_t seen)
{
    /* may go down: the versions of a renamed znode begin at 0 again */

    cell->version = (uint32_t) version;

    if (renewals <= cell->renewals) {
        return NGX_DECLINED;
    }

    /*
     * The lease is extended first, because a successor takes known renewals for
     * renewals that count already.
     */

    zkl_record_extend(cell, ttl, grace, seen);

    cell->renewals = renewals;

    return NGX_OK;
}


/* With grace the deadline is that far off at least, and the ttl stays. */

static void
zkl_record_extend(zkl_cell_t *cell, ngx_msec_t ttl, ngx_msec_t grace,
    ngx_msec_t seen)
{
    ngx_msec_t  lease;

    ttl = (ttl && !grace) ? ttl : cell->ttl;
    lease = zkl_now() + (grace ? grace : ttl);

    if (cell->lease != 0 && cell->lease != seen
        && (ngx_msec_int_t) (lease - cell->lease) <= 0)
    {
        return;
    }

    zkl_record_keep(cell, ttl, lease);
}


ngx_int_t
zkl_record_seen(zkl_cell_t *cell, ngx_msec_t ttl)
{
    ngx_uint_t  undelivered;

    if (cell->state != ZKL_RECORD_HELD) {
        return NGX_DECLINED;
    }

    undelivered = (cell->delivery == ZKL_UNDELIVERED);

    if (undelivered) {
        zkl_record_extend(cell, ttl, 0, 0);
    }

    cell->delivery = ZKL_DELIVERED_ELSEWHERE;

    return undelivered ? NGX_OK : NGX_DECLINED;
}


ngx_uint_t
zkl_record_said(zkl_cell_t *cell, zkl_said_t *said, zkl_claim_data_t *cdata)
{
    ngx_uint_t  shorter;
    ngx_msec_t  ttl;

    if (cdata->index < 0) {
        return 0;
    }

    ttl = (ngx_msec_t) cdata->ttl;

    shorter = (said->ttl != 0 && ttl != 0
               && ttl != said->ttl
               && said->renewals == (uint32_t) cell->renewals);

    said->ttl = ttl;
    said->renewals = cdata->renewals;
    said->holds = ngx_max(cdata->holds, 1);

    return shorter;
}


void
zkl_record_cdata(zkl_cell_t *cell, zkl_claim_data_t *cdata)
{
    cdata->index = cell->index;
    cdata->czxid = cell->czxid;
    cdata->renewals = (uint32_t) cell->renewals;
    cdata->holds = (uint32_t) (cell->holds & ZKL_HOLDS);
    cdata->held = 1;

    if (cdata->ttl == 0 && !cell->bound) {
        cdata->ttl = (int64_t) cell->ttl;
    }

    if (cell->delivery == ZKL_DELIVERED_ELSEWHERE) {
        cdata->async = 0;
    }
}


void
zkl_record_durable(zkl_cell_t *cell, zkl_claim_data_t *cdata, uint32_t term)
{
    cell->durable = 1;
    cell->term = term;

    cdata->ttl = ngx_max(cdata->ttl, (int64_t) cell->ttl);
    cdata->holds = (uint32_t) (cell->holds & ZKL_HOLDS);

    if (cdata->holds != 0 && zkl_record_counted(cell, cdata)) {
        cdata->want_len = 0;
    }
}


/* Whether the remote request in claim data was the last one to be counted. */

static ngx_uint_t
zkl_record_counted(zkl_cell_t *cell, zkl_claim_data_t *cdata)
{
    uint32_t  remote;

    remote = ngx_crc32_short((u_char *) cdata->want, cdata->want_len);

    return cell->remote == remote && cell->holds >> ZKL_HOLDS_BITS
                                     == (remote & ZKL_HOLDS);
}


void
zkl_record_uncounted(zkl_cell_t *cell)
{
    cell->term = 0;
}


void
zkl_record_ephemeral(zkl_cell_t *cell)
{
    cell->durable = 0;
}


void
zkl_record_count(zkl_cell_t *cell, ngx_uint_t holds, ngx_uint_t anew)
{
    cell->holds = anew ? holds : (cell->holds & ~ZKL_HOLDS) | holds;
}


ngx_int_t
zkl_record_remote(zkl_cell_t *cell, zkl_claim_data_t *cdata)
{
    uint32_t    remote;
    ngx_uint_t  n, less;

    if (zkl_record_counted(cell, cdata)) {
        return NGX_OK;
    }

    n = cell->holds & ZKL_HOLDS;
    less = (ngx_strncmp(cdata->want, "drop", 4) == 0);

    if (n == 0 || (!less && n == ZKL_HOLDS)) {
        return NGX_DECLINED;
    }

    /*
     * A single word counts the remote request and marks the request as counted,
     * so that a dying worker cannot do only half of that.
     */

    remote = ngx_crc32_short((u_char *) cdata->want, cdata->want_len);

    cell->remote = remote;
    ngx_memory_barrier();

    cell->holds = (ngx_atomic_uint_t) remote << ZKL_HOLDS_BITS
                  | (less ? n - 1 : n + 1);

    return NGX_OK;
}
