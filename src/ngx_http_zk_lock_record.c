
/*
 * Records: how a worker takes, writes, reads and frees records, and what an
 * heir makes of the records that it finds.  The words of a record that any
 * worker may change are in ngx_http_zk_lock_held.c.
 *
 * Several processes run this code at the same time, each on its event loop.
 * Two rules keep that simple.  A writer that fills or publishes a record makes
 * gen odd first and even again afterwards, so that a reader knows a torn copy.
 * And a watcher sets its bit first and looks at the state then, while a writer
 * changes the state first and looks at the bits then: one of the two sees the
 * other.
 *
 * A record's start is noted when the record is whole, and forgotten when the
 * record is free: an heir that adopts a slot finds all records whose claims can
 * have been sent to ZooKeeper.
 */


#include "ngx_http_zk_lock_record.h"

#include <sys/random.h>


/* the time between two log lines about a full zone, milliseconds */
#define NGX_HTTP_ZK_LOCK_FULL_AGAIN   10000


static void ngx_http_zk_lock_record_inherit_chunk(
    ngx_http_zk_lock_zone_t *zone, ngx_uint_t chunk,
    ngx_http_zk_lock_inherit_pt handler, void *data);
static void ngx_http_zk_lock_record_begin(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_str_t *path, zk_lock_kind_t kind,
    const uint8_t *random);
static void ngx_http_zk_lock_record_start(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);
static uint32_t ngx_http_zk_lock_cells_take_at(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_uint_t n);
static uint32_t ngx_http_zk_lock_cells_take(ngx_http_zk_lock_zone_t *zone,
    ngx_uint_t n);
static uint32_t ngx_http_zk_lock_cells_find(ngx_http_zk_lock_zone_t *zone,
    ngx_uint_t chunk, ngx_uint_t n);
static void ngx_http_zk_lock_record_full(ngx_http_zk_lock_zone_t *zone);
static ngx_int_t ngx_http_zk_lock_record_random(ngx_http_zk_lock_zone_t *zone,
    u_char *buf, size_t len);
static void ngx_http_zk_lock_record_fill(ngx_http_zk_lock_zone_t *zone,
    ngx_http_zk_lock_cell_t *cell, uint32_t record,
    ngx_http_zk_lock_record_t *copy);


ngx_int_t
ngx_http_zk_lock_record_take(ngx_http_zk_lock_zone_t *zone, ngx_str_t *path,
    zk_lock_kind_t kind, const uint8_t *key, zk_lock_id_t *id)
{
    uint32_t  record;
    u_char    random[ZK_LOCK_RANDOM_LEN];

    if (ngx_http_zk_lock_record_random(zone, random, ZK_LOCK_RANDOM_LEN)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (key != NULL) {
        ngx_memcpy(random, key, NGX_HTTP_ZK_LOCK_KEY);
    }

    ngx_memcpy(id->random, random, ZK_LOCK_RANDOM_LEN);

    record = ngx_http_zk_lock_cells_take(zone,
                                    ngx_http_zk_lock_map_cells_of(path->len));
    if (record == NGX_HTTP_ZK_LOCK_NO_RECORD) {
        ngx_http_zk_lock_record_full(zone);
        return NGX_BUSY;
    }

    id->record = record;

    ngx_http_zk_lock_record_begin(zone, record, path, kind, random);
    ngx_http_zk_lock_record_start(zone, record);

    return NGX_OK;
}


/* Fills the cell of a record that was taken for a new claim. */

static void
ngx_http_zk_lock_record_begin(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_str_t *path, zk_lock_kind_t kind, const uint8_t *random)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    cell->gen |= 1;
    ngx_memory_barrier();

    if ((ngx_atomic_int_t) (cell->lost - cell->gen) > 0) {

        /*
         * A long path lay here, or zone_wipe() noted a gen to come: no later
         * claim must be taken for a lost one.
         */

        cell->lost = cell->gen;
    }

    cell->lease = 0;
    cell->ttl = 0;
    cell->asked = 0;
    cell->seq = -1;
    cell->czxid = 0;
    cell->since = 0;
    cell->version = 0;
    cell->renewals = 0;
    cell->holds = 0;
    cell->wish = 0;
    cell->told = NGX_HTTP_ZK_LOCK_TOLD_ITS_OWN;
    cell->bound = 0;
    cell->leader = 0;
    cell->named = record;
    cell->index = 0;
    cell->ending = NGX_HTTP_ZK_LOCK_ENDING_UNKNOWN;
    cell->durable = 0;
    cell->kind = kind;
    cell->was = kind;
    cell->slot = (uint16_t) zone->slot;
    cell->path_len = (uint16_t) path->len;

    ngx_memcpy(cell->path, path->data, path->len);
    ngx_memcpy(cell->random, random, ZK_LOCK_RANDOM_LEN);

    cell->state = NGX_HTTP_ZK_LOCK_RECORD_NEW;

    ngx_memory_barrier();
    cell->gen++;
}


/* Notes that a record is whole: an heir finds the record from now on. */

static void
ngx_http_zk_lock_record_start(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    ngx_memory_barrier();

    zone->map->starts[record / NGX_HTTP_ZK_LOCK_CHUNK] |=
                       (uint64_t) 1 << (record % NGX_HTTP_ZK_LOCK_CHUNK);
}


ngx_int_t
ngx_http_zk_lock_record_adopt(ngx_http_zk_lock_zone_t *zone, ngx_str_t *path,
    zk_lock_child_t *child, int64_t czxid, ngx_uint_t index, uint32_t *record)
{
    ngx_uint_t                n;
    ngx_http_zk_lock_cell_t  *cell;

    n = ngx_http_zk_lock_map_cells_of(path->len);

    *record = ngx_http_zk_lock_cells_take_at(zone, child->id.record, n);

    if (*record == NGX_HTTP_ZK_LOCK_NO_RECORD) {
        *record = ngx_http_zk_lock_cells_take(zone, n);
    }

    if (*record == NGX_HTTP_ZK_LOCK_NO_RECORD) {
        ngx_http_zk_lock_record_full(zone);
        return NGX_BUSY;
    }

    ngx_http_zk_lock_record_begin(zone, *record, path, child->kind,
                                  child->id.random);

    /* an heir finds the record of a living claim, or no record */

    cell = ngx_http_zk_lock_map_cell(zone->map, *record);

    cell->named = child->id.record;
    cell->seq = child->seq;
    cell->czxid = czxid;
    cell->index = (uint8_t) index;
    cell->durable = 1;
    cell->state = NGX_HTTP_ZK_LOCK_RECORD_OPEN;

    ngx_http_zk_lock_record_start(zone, *record);

    return NGX_OK;
}


void
ngx_http_zk_lock_record_move(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    zk_lock_kind_t was)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    cell->state = NGX_HTTP_ZK_LOCK_RECORD_OPEN;
    ngx_memory_barrier();

    cell->was = was;
    cell->version = NGX_HTTP_ZK_LOCK_UNREAD;
    cell->slot = (uint16_t) zone->slot;
    ngx_memory_barrier();

    ngx_http_zk_lock_ring_watchers(zone->map, record, 0);
}


void
ngx_http_zk_lock_record_hand_over(ngx_http_zk_lock_zone_t *from,
    ngx_http_zk_lock_zone_t *to)
{
    uint32_t    record;
    uint64_t    starts;
    ngx_uint_t  i, k;

    for (i = 0; i < from->map->nchunks; i++) {

        if (from->map->owners[i] != from->slot + 1) {
            continue;
        }

        starts = from->map->starts[i];

        for (k = 0; starts != 0; k++, starts >>= 1) {
            record = (uint32_t) (i * NGX_HTTP_ZK_LOCK_CHUNK + k);

            if ((starts & 1)
                && ngx_http_zk_lock_map_cell(from->map, record)->slot
                   == from->slot)
            {
                ngx_http_zk_lock_record_end(from, record);
                ngx_http_zk_lock_record_free(from, record);
            }
        }

        (void) ngx_atomic_cmp_set(&from->map->owners[i], from->slot + 1,
                                  to->slot + 1);
    }
}


/* Takes n cells from record on, if all are free. */

static uint32_t
ngx_http_zk_lock_cells_take_at(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_uint_t n)
{
    uint64_t    mask;
    ngx_uint_t  chunk, k;

    chunk = record / NGX_HTTP_ZK_LOCK_CHUNK;
    k = record % NGX_HTTP_ZK_LOCK_CHUNK;

    if (chunk >= zone->map->nchunks || k + n > NGX_HTTP_ZK_LOCK_CHUNK) {
        return NGX_HTTP_ZK_LOCK_NO_RECORD;
    }

    if (zone->map->owners[chunk] == 0
        && ngx_atomic_cmp_set(&zone->map->owners[chunk], 0, zone->slot + 1))
    {
        zone->used[chunk] = 0;
        zone->map->starts[chunk] = 0;
    }

    mask = (((uint64_t) 1 << n) - 1) << k;

    if (zone->map->owners[chunk] != zone->slot + 1
        || (zone->used[chunk] & mask) != 0)
    {
        return NGX_HTTP_ZK_LOCK_NO_RECORD;
    }

    zone->used[chunk] |= mask;

    return record;
}


void
ngx_http_zk_lock_record_open(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    ngx_http_zk_lock_map_cell(zone->map, record)->state =
                                             NGX_HTTP_ZK_LOCK_RECORD_OPEN;
    ngx_memory_barrier();

    ngx_http_zk_lock_ring_watchers(zone->map, record, 0);
}


void
ngx_http_zk_lock_record_regain(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    zk_lock_label_t *label, ngx_uint_t anew)
{
    ngx_msec_t                ttl, lease;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    if (anew) {

        /* the whole ttl that the client was told counts from now */

        ttl = (label->ttl > 0) ? (ngx_msec_t) label->ttl : 1;
        lease = ngx_http_zk_lock_now() + ttl;

        cell->since = ngx_time();
        cell->ttl = ttl;
        cell->lease = lease ? lease : 1;
        cell->holds = ngx_max(label->holds, 1);
        cell->renewals = label->renewals;
        cell->told = NGX_HTTP_ZK_LOCK_TOLD_OTHERS;
    }

    ngx_memory_barrier();

    cell->state = NGX_HTTP_ZK_LOCK_RECORD_HELD;
}


void
ngx_http_zk_lock_record_durable(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    ngx_http_zk_lock_map_cell(zone->map, record)->durable = 1;

    /* first this, then the ttl is read: record_renew() does the reverse */

    ngx_memory_barrier();
}


ngx_msec_t
ngx_http_zk_lock_record_ttl(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    zk_lock_kind_t *was)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    if (was != NULL) {
        *was = cell->was;
    }

    return cell->ttl;
}


ngx_int_t
ngx_http_zk_lock_record_forsaken(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path)
{
    ngx_http_zk_lock_cell_t    *cell;
    ngx_http_zk_lock_record_t   copy;

    if (ngx_http_zk_lock_record_copy(zone, id->record, path, &copy)
        != NGX_OK
        || copy.state != NGX_HTTP_ZK_LOCK_RECORD_FREE)
    {
        return NGX_AGAIN;
    }

    if (copy.forsaken) {
        return NGX_OK;
    }

    cell = ngx_http_zk_lock_map_cell(zone->map, id->record);

    return (cell->wish == ngx_crc32_short((u_char *) id->random,
                                          ZK_LOCK_RANDOM_LEN))
           ? NGX_DECLINED : NGX_AGAIN;
}


void
ngx_http_zk_lock_record_publish(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, int64_t seq, int64_t czxid, ngx_uint_t index)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    cell->gen |= 1;
    ngx_memory_barrier();

    cell->seq = seq;
    cell->czxid = czxid;
    cell->index = (uint8_t) index;
    cell->state = NGX_HTTP_ZK_LOCK_RECORD_WAITING;

    /* a worker that has listed this claim already knows it by the id, which
       stays while gen goes on */

    ngx_memory_barrier();
    cell->gen++;
}


void
ngx_http_zk_lock_record_grant(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_msec_t ttl, ngx_msec_t lease, ngx_uint_t told)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    cell->since = ngx_time();
    cell->ttl = ttl;
    cell->holds = 1;
    cell->told = told;
    cell->lease = lease ? lease : 1;

    ngx_memory_barrier();

    cell->state = NGX_HTTP_ZK_LOCK_RECORD_HELD;

    ngx_memory_barrier();

    if (cell->kind == ZK_LOCK_NODE) {
        ngx_http_zk_lock_ring_watchers(zone->map, record, 0);
    }
}


void
ngx_http_zk_lock_record_bind(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    uint32_t leader)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    cell->leader = (leader != NGX_HTTP_ZK_LOCK_NO_RECORD && leader != record)
                   ? leader + 1 : 0;
    cell->bound = 1;
}


void
ngx_http_zk_lock_record_unbind(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    /* records that have this record for a leader go by this word */

    ngx_memory_barrier();
    cell->bound = 0;
    ngx_memory_barrier();
}


void
ngx_http_zk_lock_record_kind(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    zk_lock_kind_t kind)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    if (cell->kind == kind) {

        /* a dead worker has begun this; the znode has the former name */

        return;
    }

    cell->was = cell->kind;
    ngx_memory_barrier();
    cell->kind = kind;

    ngx_memory_barrier();

    ngx_http_zk_lock_ring_watchers(zone->map, record, 0);
}


void
ngx_http_zk_lock_record_named(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    zk_lock_kind_t kind)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    cell->kind = kind;
    cell->was = kind;

    /*
     * The data went along to the new name, perhaps with renewals that were not
     * read: no delete may use a version before the data are read.
     */

    cell->version = NGX_HTTP_ZK_LOCK_UNREAD;
}


void
ngx_http_zk_lock_record_end(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    cell->lease = 0;
    cell->state = NGX_HTTP_ZK_LOCK_RECORD_ENDED;

    ngx_memory_barrier();

    ngx_http_zk_lock_ring_watchers(zone->map, record, 0);
}


void
ngx_http_zk_lock_record_free(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    uint64_t                  mask;
    ngx_uint_t                chunk, n, ended;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    n = ngx_http_zk_lock_map_cells_of(cell->path_len);
    ended = (cell->state == NGX_HTTP_ZK_LOCK_RECORD_ENDED);

    /* a hash of the secret stays, by which the claim's token is known */

    cell->wish = ngx_crc32_short(cell->random, ZK_LOCK_RANDOM_LEN);
    ngx_memzero(cell->random, ZK_LOCK_RANDOM_LEN);
    cell->lease = 0;
    cell->state = NGX_HTTP_ZK_LOCK_RECORD_FREE;

    ngx_memory_barrier();

    /* end() has told locks; an ask for the release waits for this ring */

    if (!ended || cell->asked != 0 || cell->kind == ZK_LOCK_NODE) {
        ngx_http_zk_lock_ring_watchers(zone->map, record, 1);

    } else {
        ngx_http_zk_lock_ring_forget(zone->map, record);
    }

    chunk = record / NGX_HTTP_ZK_LOCK_CHUNK;
    mask = (((uint64_t) 1 << n) - 1) << (record % NGX_HTTP_ZK_LOCK_CHUNK);

    zone->map->starts[chunk] &=
                    ~((uint64_t) 1 << (record % NGX_HTTP_ZK_LOCK_CHUNK));
    zone->used[chunk] &= ~mask;

    if (zone->used[chunk] == 0 && chunk != zone->chunk) {
        zone->map->owners[chunk] = 0;
    }
}


void
ngx_http_zk_lock_record_ending(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_http_zk_lock_ending_e ending)
{
    ngx_http_zk_lock_map_cell(zone->map, record)->ending = (uint8_t) ending;
}


ngx_http_zk_lock_ending_e
ngx_http_zk_lock_record_ended(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_token_t *token, ngx_str_t *path)
{
    ngx_uint_t                  same;
    ngx_http_zk_lock_cell_t    *cell;
    ngx_http_zk_lock_ending_e   ending;
    ngx_http_zk_lock_record_t   copy;

    if (ngx_http_zk_lock_record_copy(zone, token->id.record, path, &copy)
        != NGX_OK)
    {
        return NGX_HTTP_ZK_LOCK_ENDING_UNKNOWN;
    }

    cell = ngx_http_zk_lock_map_cell(zone->map, token->id.record);

    if (copy.state == NGX_HTTP_ZK_LOCK_RECORD_FREE) {
        same = (cell->wish == ngx_crc32_short((u_char *) token->id.random,
                                              ZK_LOCK_RANDOM_LEN));
    } else {
        same = zk_lock_secret_equal(copy.id.random, token->id.random,
                                    ZK_LOCK_RANDOM_LEN);
    }

    ending = cell->ending;

    if (ending == NGX_HTTP_ZK_LOCK_ENDING_UNKNOWN
        && (cell->asked & ~(ngx_atomic_uint_t) 1) == copy.gen)
    {
        ending = (cell->asked & 1) ? NGX_HTTP_ZK_LOCK_ENDING_BROKEN
                                   : NGX_HTTP_ZK_LOCK_ENDING_RELEASED;
    }

    if (cell->lost == copy.gen
        && (ending == NGX_HTTP_ZK_LOCK_ENDING_RELEASED
            || ending == NGX_HTTP_ZK_LOCK_ENDING_BROKEN))
    {
        /* the claim was gone before the release */

        ending = NGX_HTTP_ZK_LOCK_ENDING_UNKNOWN;
    }

    /* the lease is over, and the delete is not confirmed yet */

    if (ending == NGX_HTTP_ZK_LOCK_ENDING_UNKNOWN
        && (copy.state == NGX_HTTP_ZK_LOCK_RECORD_HELD
            || copy.state == NGX_HTTP_ZK_LOCK_RECORD_WAITING)
        && copy.ttl != 0 && copy.lease == 0)
    {
        ending = NGX_HTTP_ZK_LOCK_ENDING_EXPIRED;
    }

    ngx_memory_barrier();

    return (same && copy.seq == token->seq && cell->gen == copy.gen
            && ending != NGX_HTTP_ZK_LOCK_ENDING_FORSAKEN)
           ? ending : NGX_HTTP_ZK_LOCK_ENDING_UNKNOWN;
}


void
ngx_http_zk_lock_record_inherit(ngx_http_zk_lock_zone_t *zone,
    ngx_http_zk_lock_inherit_pt handler, void *data)
{
    ngx_uint_t  i;

    for (i = 0; i < zone->map->nchunks; i++) {

        if (zone->map->owners[i] != zone->slot + 1) {
            continue;
        }

        ngx_http_zk_lock_record_inherit_chunk(zone, i, handler, data);

        if (zone->used[i] == 0) {

            /* free() may have given it up: another slot may own it */

            (void) ngx_atomic_cmp_set(&zone->map->owners[i], zone->slot + 1,
                                      0);
        }
    }
}


/* Finds all cells in use first, since handler may free records. */

static void
ngx_http_zk_lock_record_inherit_chunk(ngx_http_zk_lock_zone_t *zone,
    ngx_uint_t chunk, ngx_http_zk_lock_inherit_pt handler, void *data)
{
    uint32_t                    record;
    uint64_t                    starts, mask;
    ngx_str_t                   path;
    ngx_uint_t                  k, n;
    ngx_http_zk_lock_cell_t    *cell;
    ngx_http_zk_lock_record_t   copy;

    starts = 0;
    zone->used[chunk] = 0;

    for (k = 0; k < NGX_HTTP_ZK_LOCK_CHUNK; k++) {
        record = (uint32_t) (chunk * NGX_HTTP_ZK_LOCK_CHUNK + k);

        cell = ngx_http_zk_lock_map_cell(zone->map, record);

        if (!(zone->map->starts[chunk] & ((uint64_t) 1 << k))
            || cell->state == NGX_HTTP_ZK_LOCK_RECORD_FREE)
        {
            continue;
        }

        n = ngx_http_zk_lock_map_cells_of(cell->path_len);
        mask = (((uint64_t) 1 << n) - 1) << k;

        if (zone->used[chunk] & mask) {
            continue;
        }

        zone->used[chunk] |= mask;
        starts |= (uint64_t) 1 << k;

        if (cell->gen & 1) {

            /* the worker died while it published the claim */

            cell->state = NGX_HTTP_ZK_LOCK_RECORD_NEW;
            cell->seq = -1;

            if (cell->kind == ZK_LOCK_NODE) {

                /* the znode may exist: seq 0 says so */

                cell->seq = 0;
            }

            cell->gen++;
        }
    }

    zone->map->starts[chunk] = starts;

    for (k = 0; starts != 0; k++, starts >>= 1) {

        if (!(starts & 1)) {
            continue;
        }

        record = (uint32_t) (chunk * NGX_HTTP_ZK_LOCK_CHUNK + k);
        cell = ngx_http_zk_lock_map_cell(zone->map, record);

        if (cell->slot != zone->slot) {

            /*
             * The record had moved to another slot, and the worker died or left
             * before it handed the chunk over.  The claim is durable, and the
             * session that counts its lease next makes another record.
             */

            cell->ending = NGX_HTTP_ZK_LOCK_ENDING_FORSAKEN;
            ngx_http_zk_lock_record_free(zone, record);
            continue;
        }

        path.data = cell->path;
        path.len = cell->path_len;

        ngx_http_zk_lock_record_fill(zone, cell, record, &copy);

        handler(data, &copy, &path);
    }
}


ngx_int_t
ngx_http_zk_lock_record_watch(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_http_zk_lock_record_t *copy)
{
    ngx_int_t  rc;

    rc = ngx_http_zk_lock_record_read(zone, id, path, copy);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_zk_lock_ring_watch(zone->map, zone->slot, id->record);

    ngx_memory_barrier();

    return ngx_http_zk_lock_record_read(zone, id, path, copy);
}


void
ngx_http_zk_lock_record_lose(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);
    cell->lost = cell->gen;
}


ngx_int_t
ngx_http_zk_lock_record_lost(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_atomic_uint_t gen)
{
    ngx_atomic_uint_t  lost;

    lost = ngx_http_zk_lock_map_cell(zone->map, record)->lost;

    if (lost == gen) {
        return NGX_OK;
    }

    return ((ngx_atomic_int_t) (lost - gen) > 0) ? NGX_AGAIN : NGX_DECLINED;
}


/* Takes n cells in a row, and a chunk from the zone when one is needed. */

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

    for (i = 0; i < zone->map->nchunks; i++) {

        if (zone->map->owners[i] == 0
            && ngx_atomic_cmp_set(&zone->map->owners[i], 0, zone->slot + 1))
        {
            zone->used[i] = 0;
            zone->map->starts[i] = 0;
        }

        if (zone->map->owners[i] != zone->slot + 1) {
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
    ngx_uint_t  i, k;

    mask = ((uint64_t) 1 << n) - 1;

    /* in a circle: the board knows an ended claim until its cell is reused */

    for (i = 0; i < NGX_HTTP_ZK_LOCK_CHUNK; i++) {
        k = (zone->next + i) % NGX_HTTP_ZK_LOCK_CHUNK;

        if (k + n <= NGX_HTTP_ZK_LOCK_CHUNK
            && (zone->used[chunk] & (mask << k)) == 0)
        {
            zone->used[chunk] |= mask << k;
            zone->next = k + n;

            return (uint32_t) (chunk * NGX_HTTP_ZK_LOCK_CHUNK + k);
        }
    }

    return NGX_HTTP_ZK_LOCK_NO_RECORD;
}


/* Logs once in a while, not for each request that is refused. */

static void
ngx_http_zk_lock_record_full(ngx_http_zk_lock_zone_t *zone)
{
    ngx_msec_t  now;

    now = ngx_http_zk_lock_now();

    if (zone->full != 0 && now - zone->full < NGX_HTTP_ZK_LOCK_FULL_AGAIN) {
        return;
    }

    zone->full = now;

    ngx_log_error(NGX_LOG_ERR, zone->log, 0,
                  "no room for one more claim in \"zk_lock_zone\": its size "
                  "is to be larger, or there are to be fewer claims; such "
                  "lines come once in ten seconds at most");
}


static ngx_int_t
ngx_http_zk_lock_record_random(ngx_http_zk_lock_zone_t *zone, u_char *buf,
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


/*
 * Makes a copy that is not torn.  NGX_DECLINED: the record is not of that path;
 * NGX_ABORT: no whole copy can be made.
 */

ngx_int_t
ngx_http_zk_lock_record_copy(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_str_t *path, ngx_http_zk_lock_record_t *copy)
{
    ngx_uint_t                tries, same;
    ngx_atomic_uint_t         gen;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

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
               && ngx_http_zk_lock_map_cells_of(path->len)
                  <= zone->map->ncells - record
               && ngx_memcmp(cell->path, path->data, path->len) == 0;

        ngx_http_zk_lock_record_fill(zone, cell, record, copy);

        ngx_memory_barrier();

        if (cell->gen == gen) {
            copy->gen = gen;

            return same ? NGX_OK : NGX_DECLINED;
        }
    }

    /* the writer is dead, or stopped in the middle of the write */

    return NGX_ABORT;
}


static void
ngx_http_zk_lock_record_fill(ngx_http_zk_lock_zone_t *zone,
    ngx_http_zk_lock_cell_t *cell, uint32_t record,
    ngx_http_zk_lock_record_t *copy)
{
    ngx_http_zk_lock_cell_t  *leader;
    ngx_http_zk_lock_slot_t  *slot;

    copy->state = cell->state;
    copy->kind = cell->kind;
    copy->seq = cell->seq;
    copy->czxid = cell->czxid;
    copy->was = cell->was;
    copy->named = cell->named;
    copy->version = (int32_t) cell->version;
    copy->renewals = (uint32_t) cell->renewals;
    copy->holds = cell->holds & NGX_HTTP_ZK_LOCK_HOLDS;
    copy->told = cell->told;
    copy->index = cell->index;
    copy->lease = cell->lease;
    copy->ttl = cell->ttl;
    copy->since = (time_t) cell->since;
    copy->id.record = record;
    ngx_memcpy(copy->id.random, cell->random, ZK_LOCK_RANDOM_LEN);

    copy->forsaken = (cell->ending == NGX_HTTP_ZK_LOCK_ENDING_FORSAKEN);
    copy->bound = (cell->bound != 0);
    copy->durable = (cell->durable != 0);

    /*
     * A leader that is free counts no more, nor does another record in its
     * cell: records that were bound together have the key of their ids in
     * common.
     */

    leader = cell->leader
             ? ngx_http_zk_lock_map_cell(zone->map, cell->leader - 1) : NULL;

    if (leader != NULL
        && leader->state != NGX_HTTP_ZK_LOCK_RECORD_FREE
        && zk_lock_secret_equal(leader->random, cell->random,
                                NGX_HTTP_ZK_LOCK_KEY)
        && !leader->bound)
    {
        copy->bound = 0;
    }

    copy->alive = 0;

    if (cell->slot < zone->map->nslots) {
        slot = &zone->map->slots[cell->slot];

        copy->alive = slot->alive;
    }
}


ngx_int_t
ngx_http_zk_lock_record_read(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_http_zk_lock_record_t *copy)
{
    ngx_int_t                 rc;
    ngx_uint_t                slot;
    ngx_http_zk_lock_cell_t  *cell;

    rc = ngx_http_zk_lock_record_copy(zone, id->record, path, copy);
    if (rc != NGX_OK) {
        return rc;
    }

    if (copy->state == NGX_HTTP_ZK_LOCK_RECORD_FREE
        || !zk_lock_secret_equal(copy->id.random, id->random,
                                 ZK_LOCK_RANDOM_LEN))
    {
        return NGX_DECLINED;
    }

    cell = ngx_http_zk_lock_map_cell(zone->map, id->record);
    slot = cell->slot;

    if (slot == zone->slot) {
        return NGX_OK;
    }

    if (slot >= zone->map->nslots) {
        return NGX_ABORT;
    }

    if (ngx_http_zk_lock_map_dead(zone->map->slots[slot].keeper, 1)) {
        return NGX_AGAIN;
    }

    return NGX_OK;
}
