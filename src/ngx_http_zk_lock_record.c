
/*
 * Records.
 *
 * Everything here runs on the event loop of one of several processes at the
 * same time.  Two rules keep that simple.  Who writes a record's body makes
 * its gen odd first and even again afterwards, so that a reader knows a torn
 * copy.  And who wants to be told sets a bit first and looks at the state
 * then, while who changes the state looks at the bits afterwards: one of the
 * two sees the other.
 *
 * A record's start is noted when it is whole, and forgotten when it is free:
 * who adopts a slot finds no record whose claim can have been sent to
 * ZooKeeper missing.
 */


#include <sys/random.h>

#include "ngx_http_zk_lock_record.h"


#define NGX_HTTP_ZK_LOCK_NO_CHUNK     ((ngx_uint_t) -1)

/* an entry of the board is a record, or the slots that wait for one, a bit for
   each, and this one */
#define NGX_HTTP_ZK_LOCK_AWAITED                                              \
    ((ngx_atomic_uint_t) 1 << (NGX_HTTP_ZK_LOCK_WORD_BITS - 1))


static void ngx_http_zk_lock_record_inherit_chunk(
    ngx_http_zk_lock_zone_t *zone, ngx_uint_t chunk,
    ngx_http_zk_lock_inherit_pt handler, void *data);
static ngx_uint_t ngx_http_zk_lock_record_sound(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);
static ngx_int_t ngx_http_zk_lock_record_saw(ngx_atomic_t *word,
    ngx_atomic_uint_t n);
static uint32_t ngx_http_zk_lock_cells_take(ngx_http_zk_lock_zone_t *zone,
    ngx_uint_t n);
static uint32_t ngx_http_zk_lock_cells_find(ngx_http_zk_lock_zone_t *zone,
    ngx_uint_t chunk, ngx_uint_t n);
static ngx_int_t ngx_http_zk_lock_record_random(ngx_http_zk_lock_zone_t *zone,
    u_char *buf, size_t len);
static uint32_t ngx_http_zk_lock_board_index(ngx_http_zk_lock_zone_t *zone,
    ngx_str_t *path, int64_t seq);
static uint32_t ngx_http_zk_lock_board_record(ngx_http_zk_lock_zone_t *zone,
    uint32_t i);
static ngx_uint_t ngx_http_zk_lock_board_others(
    ngx_http_zk_lock_zone_t *zone);
static ngx_uint_t ngx_http_zk_lock_board_before(
    ngx_http_zk_lock_record_t *one, ngx_http_zk_lock_record_t *two);
static ngx_int_t ngx_http_zk_lock_record_copy(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_str_t *path, ngx_http_zk_lock_record_t *copy,
    ngx_atomic_uint_t *gen);
static void ngx_http_zk_lock_record_fill(ngx_http_zk_lock_zone_t *zone,
    ngx_http_zk_lock_cell_t *cell, uint32_t record,
    ngx_http_zk_lock_record_t *copy);
static ngx_int_t ngx_http_zk_lock_record_known(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path,
    ngx_http_zk_lock_record_t *copy, ngx_atomic_uint_t *gen);


ngx_int_t
ngx_http_zk_lock_record_take(ngx_http_zk_lock_zone_t *zone, ngx_str_t *path,
    zk_lock_kind_t kind, const uint8_t *key, zk_lock_id_t *id)
{
    uint32_t                  record;
    u_char                    random[ZK_LOCK_RANDOM_LEN];
    ngx_http_zk_lock_cell_t  *cell;

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
        return NGX_BUSY;
    }

    id->record = record;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    cell->gen |= 1;
    ngx_memory_barrier();

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
    cell->unseen = 0;
    cell->bound = 0;
    cell->leader = 0;
    cell->index = 0;
    cell->kind = kind;
    cell->was = kind;
    cell->slot = (uint16_t) zone->slot;
    cell->path_len = (uint16_t) path->len;

    ngx_memcpy(cell->path, path->data, path->len);
    ngx_memcpy(cell->random, id->random, ZK_LOCK_RANDOM_LEN);

    cell->state = NGX_HTTP_ZK_LOCK_RECORD_NEW;

    ngx_memory_barrier();
    cell->gen++;

    zone->map->starts[record / NGX_HTTP_ZK_LOCK_CHUNK] |=
                       (uint64_t) 1 << (record % NGX_HTTP_ZK_LOCK_CHUNK);

    return NGX_OK;
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

    /* whom a list had shown this claim already, knows it by its id: the gen
       goes on, the id stays */

    ngx_memory_barrier();
    cell->gen++;
}


void
ngx_http_zk_lock_record_grant(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_msec_t ttl, ngx_msec_t lease, ngx_uint_t unseen)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    cell->since = ngx_time();
    cell->ttl = ttl;
    cell->holds = 1;
    cell->unseen = unseen;
    cell->lease = lease ? lease : 1;

    ngx_memory_barrier();

    cell->state = NGX_HTTP_ZK_LOCK_RECORD_HELD;

    ngx_memory_barrier();

    if (cell->kind == ZK_LOCK_NODE) {
        ngx_http_zk_lock_zone_ring_watchers(zone->map, record, 0);
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
    ngx_http_zk_lock_map_cell(zone->map, record)->bound = 0;
}


void
ngx_http_zk_lock_record_kind(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    zk_lock_kind_t kind)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    cell->was = cell->kind;
    ngx_memory_barrier();
    cell->kind = kind;

    ngx_memory_barrier();

    ngx_http_zk_lock_zone_ring_watchers(zone->map, record, 0);
}


void
ngx_http_zk_lock_record_named(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    zk_lock_kind_t kind)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    cell->kind = kind;
    cell->was = kind;
}


void
ngx_http_zk_lock_record_keep(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_msec_t ttl, ngx_msec_t lease, ngx_uint_t unseen)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    cell->unseen = unseen;
    cell->ttl = ttl;
    cell->lease = lease ? lease : 1;
}


void
ngx_http_zk_lock_record_end(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    cell->lease = 0;
    cell->state = NGX_HTTP_ZK_LOCK_RECORD_ENDED;

    ngx_memory_barrier();

    ngx_http_zk_lock_zone_ring_watchers(zone->map, record, 0);
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

    ngx_memzero(cell->random, ZK_LOCK_RANDOM_LEN);
    cell->lease = 0;
    cell->state = NGX_HTTP_ZK_LOCK_RECORD_FREE;

    ngx_memory_barrier();

    /* locks were told of the end; who has asked for it waits for this */

    if (!ended || cell->asked != 0 || cell->kind == ZK_LOCK_NODE) {
        ngx_http_zk_lock_zone_ring_watchers(zone->map, record, 1);

    } else {
        ngx_http_zk_lock_zone_forget_watchers(zone->map, record);
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


ngx_int_t
ngx_http_zk_lock_record_lease_over(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_msec_t now, ngx_msec_t *lease)
{
    ngx_atomic_uint_t         until;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

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


ngx_int_t
ngx_http_zk_lock_record_lease(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_msec_t *lease)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    *lease = cell->lease;

    return (*lease != 0) ? NGX_OK : NGX_DECLINED;
}


ngx_int_t
ngx_http_zk_lock_record_renewed(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, int32_t version, uint32_t renewals, ngx_msec_t ttl,
    ngx_msec_t seen)
{
    ngx_msec_t                lease;
    ngx_atomic_uint_t         until;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    /* as it was read: a znode that was renamed counts from 0 again */

    cell->version = (ngx_atomic_uint_t) version;

    if (ngx_http_zk_lock_record_saw(&cell->renewals, renewals) != NGX_OK) {
        return NGX_DECLINED;
    }

    ttl = ttl ? ttl : cell->ttl;
    lease = ngx_http_zk_lock_now() + ttl;

    do {
        until = cell->lease;

        if (until != 0 && until != seen
            && (ngx_msec_int_t) (lease - until) <= 0)
        {
            return NGX_OK;
        }

    } while (!ngx_atomic_cmp_set(&cell->lease, until, lease ? lease : 1));

    cell->ttl = ttl;

    return NGX_OK;
}


/* NGX_DECLINED: that many, or more, were seen already. */

static ngx_int_t
ngx_http_zk_lock_record_saw(ngx_atomic_t *word, ngx_atomic_uint_t n)
{
    ngx_atomic_uint_t  known;

    do {
        known = *word;

        if (n <= known) {
            return NGX_DECLINED;
        }

    } while (!ngx_atomic_cmp_set(word, known, n));

    return NGX_OK;
}


int32_t
ngx_http_zk_lock_record_version(ngx_http_zk_lock_zone_t *zone,
    uint32_t record)
{
    return (int32_t) ngx_http_zk_lock_map_cell(zone->map, record)->version;
}


ngx_int_t
ngx_http_zk_lock_record_seen(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_msec_t ttl)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    if (!cell->unseen || cell->state != NGX_HTTP_ZK_LOCK_RECORD_HELD) {
        return NGX_DECLINED;
    }

    ngx_http_zk_lock_record_keep(zone, record, ttl,
                                 ngx_http_zk_lock_now() + ttl, 0);
    return NGX_OK;
}


ngx_uint_t
ngx_http_zk_lock_record_holds(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    return ngx_http_zk_lock_map_cell(zone->map, record)->holds;
}


ngx_int_t
ngx_http_zk_lock_record_wish(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, zk_lock_label_t *label,
    ngx_uint_t *holds)
{
    uint32_t                  wish;
    ngx_int_t                 rc;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, id->record);

    wish = ngx_crc32_short((u_char *) label->want, label->want_len);

    if (cell->wish == wish) {
        *holds = cell->holds;
        return NGX_OK;
    }

    rc = ngx_http_zk_lock_record_hold(zone, id, path,
                                      ngx_strncmp(label->want, "drop", 4) == 0,
                                      holds);
    if (rc == NGX_OK) {
        cell->wish = wish;
    }

    return rc;
}


ngx_uint_t
ngx_http_zk_lock_record_asked(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    return cell->asked != 0 && cell->asked == cell->gen;
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
            zone->map->owners[i] = 0;
        }
    }
}


/* First which cells are in use, then what is in them: handler may free. */

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

        if (!(zone->map->starts[chunk] & ((uint64_t) 1 << k))
            || !ngx_http_zk_lock_record_sound(zone, record))
        {
            continue;
        }

        cell = ngx_http_zk_lock_map_cell(zone->map, record);

        n = ngx_http_zk_lock_map_cells_of(cell->path_len);
        mask = (((uint64_t) 1 << n) - 1) << k;

        if (zone->used[chunk] & mask) {
            continue;
        }

        zone->used[chunk] |= mask;
        starts |= (uint64_t) 1 << k;

        if (cell->gen & 1) {

            /* its worker died while it published the claim */

            cell->state = NGX_HTTP_ZK_LOCK_RECORD_NEW;
            cell->seq = -1;
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

        path.data = cell->path;
        path.len = cell->path_len;

        ngx_http_zk_lock_record_fill(zone, cell, record, &copy);

        handler(data, &copy, &path);
    }
}


/* A file may hold anything: nothing is done with what was never a record. */

static ngx_uint_t
ngx_http_zk_lock_record_sound(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    ngx_uint_t                n;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    n = ngx_http_zk_lock_map_cells_of(cell->path_len);

    return cell->state != NGX_HTTP_ZK_LOCK_RECORD_FREE
           && cell->state <= NGX_HTTP_ZK_LOCK_RECORD_ENDED
           && cell->slot == zone->slot
           && zk_lock_kind_check(cell->kind)
           && zk_lock_kind_check(cell->was)
           && cell->seq >= -1 && cell->seq <= ZK_LOCK_SEQ_MAX
           && cell->path_len <= ZK_LOCK_PATH_MAX
           && record % NGX_HTTP_ZK_LOCK_CHUNK + n <= NGX_HTTP_ZK_LOCK_CHUNK
           && zk_lock_path_check((char *) cell->path, cell->path_len) == NULL;
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

    cell = ngx_http_zk_lock_map_cell(zone->map, id->record);

    bit = (ngx_atomic_uint_t) 1 << (zone->slot % NGX_HTTP_ZK_LOCK_WORD_BITS);

    ngx_http_zk_lock_zone_or(
                   &cell->watchers[zone->slot / NGX_HTTP_ZK_LOCK_WORD_BITS],
                   bit);

    ngx_memory_barrier();

    return ngx_http_zk_lock_record_known(zone, id, path, copy, &gen);
}


ngx_int_t
ngx_http_zk_lock_record_renew(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_msec_t ttl, ngx_msec_t lease,
    int32_t version, uint32_t renewals)
{
    ngx_int_t                   rc;
    ngx_atomic_uint_t           gen;
    ngx_http_zk_lock_cell_t    *cell;
    ngx_http_zk_lock_record_t   copy;

    cell = ngx_http_zk_lock_map_cell(zone->map, id->record);

    if (cell == NULL) {
        return NGX_DECLINED;
    }

    for ( ;; ) {
        rc = ngx_http_zk_lock_record_known(zone, id, path, &copy, &gen);
        if (rc != NGX_OK && rc != NGX_AGAIN) {
            return rc;
        }

        if ((copy.state != NGX_HTTP_ZK_LOCK_RECORD_HELD
             && copy.state != NGX_HTTP_ZK_LOCK_RECORD_WAITING)
            || copy.lease == 0)
        {
            return NGX_DECLINED;
        }

        if (ngx_atomic_cmp_set(&cell->lease, copy.lease, lease ? lease : 1)) {
            break;
        }
    }

    (void) ngx_http_zk_lock_record_saw(&cell->version, (ngx_uint_t) version);
    (void) ngx_http_zk_lock_record_saw(&cell->renewals, renewals);

    if (copy.state == NGX_HTTP_ZK_LOCK_RECORD_HELD) {
        cell->unseen = 0;
        cell->ttl = ttl;
    }

    if ((ngx_msec_int_t) (lease - copy.lease) < 0) {
        ngx_http_zk_lock_zone_ring(zone->map, cell->slot, id->record);
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_record_hold(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_uint_t less,
    ngx_uint_t *holds)
{
    ngx_int_t                   rc;
    ngx_atomic_uint_t           gen, n;
    ngx_http_zk_lock_cell_t    *cell;
    ngx_http_zk_lock_record_t   copy;

    cell = ngx_http_zk_lock_map_cell(zone->map, id->record);

    if (cell == NULL) {
        return NGX_DECLINED;
    }

    for ( ;; ) {
        rc = ngx_http_zk_lock_record_known(zone, id, path, &copy, &gen);
        if (rc != NGX_OK && rc != NGX_AGAIN) {
            return rc;
        }

        if (copy.state != NGX_HTTP_ZK_LOCK_RECORD_HELD || copy.holds == 0) {
            return NGX_DECLINED;
        }

        n = less ? copy.holds - 1 : copy.holds + 1;

        if (ngx_atomic_cmp_set(&cell->holds, copy.holds, n)) {
            *holds = n;
            return rc;
        }
    }
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
    if (rc != NGX_OK && rc != NGX_AGAIN) {
        return rc;
    }

    cell = ngx_http_zk_lock_map_cell(zone->map, id->record);

    /*
     * The gen makes it this claim's, whoever has the cell by now; and the claim
     * is looked at afterwards, since its end is not told before this is set.
     */

    cell->asked = copy.gen;

    ngx_memory_barrier();

    rc = ngx_http_zk_lock_record_known(zone, id, path, &copy, &gen);
    if (rc != NGX_OK && rc != NGX_AGAIN) {
        return rc;
    }

    ngx_http_zk_lock_zone_ring(zone->map, cell->slot, id->record);

    return rc;
}


void
ngx_http_zk_lock_record_lose(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);
    cell->lost = cell->gen;
}


ngx_uint_t
ngx_http_zk_lock_record_lost(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_atomic_uint_t gen)
{
    return ngx_http_zk_lock_map_cell(zone->map, record)->lost == gen;
}


void
ngx_http_zk_lock_board_put(ngx_http_zk_lock_zone_t *zone, ngx_str_t *path,
    int64_t seq, uint32_t record)
{
    uint32_t           i;
    ngx_uint_t         slot;
    ngx_atomic_t      *entry;
    ngx_atomic_uint_t  old;

    i = ngx_http_zk_lock_board_index(zone, path, seq);
    entry = &zone->map->board[i];

    do {
        old = *entry;
    } while (!ngx_atomic_cmp_set(entry, old, (ngx_atomic_uint_t) record + 1));

    if (!(old & NGX_HTTP_ZK_LOCK_AWAITED)) {
        return;
    }

    for (slot = 0; slot < zone->map->nslots; slot++) {

        if (old & ((ngx_atomic_uint_t) 1
                   << (slot % (NGX_HTTP_ZK_LOCK_WORD_BITS - 1))))
        {
            ngx_http_zk_lock_zone_ring(zone->map, slot, i);
        }
    }
}


ngx_int_t
ngx_http_zk_lock_board_find(ngx_http_zk_lock_zone_t *zone, ngx_str_t *path,
    int64_t seq, ngx_http_zk_lock_record_t *copy)
{
    uint32_t           record;
    ngx_atomic_uint_t  gen;

    record = ngx_http_zk_lock_board_record(zone,
                             ngx_http_zk_lock_board_index(zone, path, seq));

    if (ngx_http_zk_lock_record_copy(zone, record, path, copy, &gen) != NGX_OK
        || copy->seq != seq)
    {
        return NGX_DECLINED;
    }

    return (copy->state == NGX_HTTP_ZK_LOCK_RECORD_WAITING
            || copy->state == NGX_HTTP_ZK_LOCK_RECORD_HELD)
           ? NGX_OK : NGX_DONE;
}


ngx_int_t
ngx_http_zk_lock_board_await(ngx_http_zk_lock_zone_t *zone, ngx_str_t *path,
    int64_t seq, uint32_t *record)
{
    uint32_t                   i;
    ngx_atomic_t              *entry;
    ngx_atomic_uint_t          old, marked;
    ngx_http_zk_lock_record_t  copy;

    if (!ngx_http_zk_lock_board_others(zone)) {
        return NGX_DECLINED;
    }

    i = ngx_http_zk_lock_board_index(zone, path, seq);
    entry = &zone->map->board[i];

    do {
        old = *entry;

        if (ngx_http_zk_lock_board_find(zone, path, seq, &copy)
            != NGX_DECLINED)
        {
            return NGX_OK;
        }

        marked = (ngx_atomic_uint_t) 1
                 << (zone->slot % (NGX_HTTP_ZK_LOCK_WORD_BITS - 1));
        marked |= (old & NGX_HTTP_ZK_LOCK_AWAITED) ? old
                                                   : NGX_HTTP_ZK_LOCK_AWAITED;

    } while (!ngx_atomic_cmp_set(entry, old, marked));

    *record = i;

    return NGX_AGAIN;
}


static uint32_t
ngx_http_zk_lock_board_index(ngx_http_zk_lock_zone_t *zone, ngx_str_t *path,
    int64_t seq)
{
    uint32_t  hash;

    hash = ngx_crc32_long(path->data, path->len) + (uint32_t) seq;

    return hash & (uint32_t) (zone->map->nboard - 1);
}


static uint32_t
ngx_http_zk_lock_board_record(ngx_http_zk_lock_zone_t *zone, uint32_t i)
{
    ngx_atomic_uint_t  entry;

    entry = zone->map->board[i];

    return (entry & NGX_HTTP_ZK_LOCK_AWAITED) ? NGX_HTTP_ZK_LOCK_NO_RECORD
                                              : (uint32_t) entry - 1;
}


/* Whether another worker of this nginx lives. */

static ngx_uint_t
ngx_http_zk_lock_board_others(ngx_http_zk_lock_zone_t *zone)
{
    ngx_uint_t                i;
    ngx_http_zk_lock_slot_t  *slot;

    for (i = 0; i < zone->map->nslots; i++) {
        slot = &zone->map->slots[i];

        if (i != zone->slot && slot->home == i
            && slot->keeper != NGX_HTTP_ZK_LOCK_FREE
            && slot->keeper != NGX_HTTP_ZK_LOCK_ORPHAN
            && slot->nginx == zone->map->nginx
            && ngx_http_zk_lock_ahead(slot->alive))
        {
            return 1;
        }
    }

    return 0;
}


ngx_int_t
ngx_http_zk_lock_board_turn(ngx_http_zk_lock_zone_t *zone, ngx_str_t *path,
    uint32_t record, ngx_http_zk_lock_record_t *copy)
{
    uint32_t                   hash;
    ngx_uint_t                 i, own;
    ngx_atomic_uint_t          gen;
    ngx_http_zk_lock_record_t  next;

    own = 1;
    hash = ngx_crc32_long(path->data, path->len);

    ngx_http_zk_lock_board_put(zone, path, (int64_t) zone->slot, record);
    ngx_memory_barrier();

    if (ngx_http_zk_lock_record_copy(zone, record, path, copy, &gen)
        != NGX_OK)
    {
        return NGX_OK;
    }

    for (i = 0; i < zone->map->nslots; i++) {

        record = ngx_http_zk_lock_board_record(zone,
                                          (hash + (uint32_t) i)
                                          & (uint32_t) (zone->map->nboard - 1));

        if (record == copy->id.record
            || ngx_http_zk_lock_record_copy(zone, record, path, &next, &gen)
               != NGX_OK
            || next.kind != ZK_LOCK_NODE || next.czxid == 0 || !next.near
            || next.state < NGX_HTTP_ZK_LOCK_RECORD_WAITING
            || !ngx_http_zk_lock_ahead(next.alive)
            || ngx_http_zk_lock_record_known(zone, &next.id, path, &next,
                                             &gen)
               != NGX_OK)
        {
            continue;
        }

        if (next.state != NGX_HTTP_ZK_LOCK_RECORD_WAITING) {
            *copy = next;
            return NGX_BUSY;
        }

        if (ngx_http_zk_lock_board_before(&next, copy)) {
            *copy = next;
            own = 0;
        }
    }

    return own ? NGX_OK : NGX_BUSY;
}


static ngx_uint_t
ngx_http_zk_lock_board_before(ngx_http_zk_lock_record_t *one,
    ngx_http_zk_lock_record_t *two)
{
    if (one->index != two->index) {
        return one->index > two->index;
    }

    if (one->czxid != two->czxid) {
        return one->czxid < two->czxid;
    }

    return one->id.record < two->id.record;
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

    /* from the last one on: the board knows a claim as long as its cell does */

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
 * A copy that is not torn; NGX_DECLINED if the record is not of that path,
 * NGX_ABORT if there is no such copy.
 */

static ngx_int_t
ngx_http_zk_lock_record_copy(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_str_t *path, ngx_http_zk_lock_record_t *copy, ngx_atomic_uint_t *gen)
{
    ngx_uint_t                tries, same;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

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
               && ngx_http_zk_lock_map_cells_of(path->len)
                  <= zone->map->ncells - record
               && ngx_memcmp(cell->path, path->data, path->len) == 0;

        ngx_http_zk_lock_record_fill(zone, cell, record, copy);

        ngx_memory_barrier();

        if (cell->gen == *gen) {
            copy->gen = *gen;

            return same ? NGX_OK : NGX_DECLINED;
        }
    }

    /* who writes it is dead or stopped in the middle of it */

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
    copy->version = (int32_t) cell->version;
    copy->renewals = (uint32_t) cell->renewals;
    copy->holds = cell->holds;
    copy->unseen = (cell->unseen != 0);
    copy->index = cell->index;
    copy->lease = cell->lease;
    copy->ttl = cell->ttl;
    copy->since = (time_t) cell->since;
    copy->id.record = record;
    ngx_memcpy(copy->id.random, cell->random, ZK_LOCK_RANDOM_LEN);

    copy->bound = (cell->bound != 0);

    /*
     * A leader that is gone has nothing to say any more, nor has what is in its
     * place: those who were bound together have the key of their ids in common.
     */

    leader = cell->leader
             ? ngx_http_zk_lock_map_cell(zone->map, cell->leader - 1) : NULL;

    if (leader != NULL
        && leader->state != NGX_HTTP_ZK_LOCK_RECORD_FREE
        && ngx_memcmp(leader->random, cell->random, NGX_HTTP_ZK_LOCK_KEY) == 0
        && !leader->bound)
    {
        copy->bound = 0;
    }

    copy->alive = 0;
    copy->near = 0;

    if (cell->slot < zone->map->nslots) {
        slot = &zone->map->slots[cell->slot];

        copy->alive = slot->alive;
        copy->near = (slot->nginx == zone->map->nginx);
    }
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
