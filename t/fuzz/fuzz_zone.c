
/*
 * The records that a dead worker leaves in the zone, and the worker that adopts
 * the records.
 *
 * First two workers make, grant and free records, as the input says; a plain
 * list has the records, and every worker must read the same.  Then the first
 * worker dies, maybe in the middle of a write.  A third worker joins, adopts,
 * and goes on.
 *
 * - Each record of the dead worker is inherited once, unchanged; no record of a
 *   living worker is touched.
 * - A call with an id or path that may not exist reads and writes only inside
 *   the zone.  No two records share a cell, new records included.
 * - A worker that leaves has no cells and no slot any more.
 * - An errand comes to the worker of the claim, once, or is called back.
 */


#include "fuzz.h"
#include "ngx_stub.h"
#include "shm/errand.h"
#include "shm/seq_index.h"


#define PAGES       24
#define RECORDS     24
#define SUCCESSORS       16
#define CELLS       256

#define DYING       1001
#define STAYING     1002
#define SUCCESSOR        1003


/* a record, as the list knows the record */

typedef struct {
    zkl_record_state_e  state;                  /* FREE: none */
    ngx_uint_t          dying;     /* the dying worker's */
    ngx_uint_t          path;
    zkl_id_t            id;
    zkl_mode_t          mode;
    int64_t             seq;
    ngx_uint_t          torn;
    ngx_uint_t          seen;      /* by the successor */
} known_t;


typedef struct {
    zkl_zone_t    *zones[SUCCESSORS];
    ngx_uint_t     nzones;
    ngx_uint_t     zone;             /* inherits now */
    uint8_t        used[CELLS];      /* cells of seen records */
    zkl_id_t       ids[CELLS];           /* of kept records */
    ngx_uint_t     nids;
    ngx_pid_t      self;
    fuzz_input_t  *in;
} successor_t;


static zkl_layout_t  *map;
static ngx_shm_zone_t           shm;
static u_char                  *base, *pristine;
static size_t                   size;
static ngx_str_t                paths[6];
static known_t                  known[RECORDS];
static ngx_uint_t               nknown;
static ngx_uint_t               nseen, last_seen;
static zkl_errand_t             last_errand;
static ngx_atomic_uint_t        last_word;


static void set_up(void);
static zkl_zone_t *join(ngx_pid_t pid);
static void live(zkl_zone_t **zones, fuzz_input_t *in);
static void make(zkl_zone_t *zone, ngx_uint_t dying, fuzz_input_t *in);
static void change(zkl_zone_t **zones, known_t *k, fuzz_input_t *in);
static void ask(zkl_zone_t *own, zkl_zone_t *other, known_t *k,
    ngx_uint_t how);
static void serve(zkl_zone_t *zone, ngx_uint_t n);
static void compare(zkl_zone_t **zones);
static void tear(fuzz_input_t *in);
static void meet(zkl_zone_t *zone, fuzz_input_t *in);
static void inherit(successor_t *successor);
static void inherited(void *data, zkl_record_t *record, ngx_str_t *path);
static void expected(zkl_record_t *record, ngx_str_t *path);
static void go_on(successor_t *successor);
static void rung(void *data, uint32_t record);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    ngx_uint_t     i;
    fuzz_input_t   in;
    successor_t    successor;
    zkl_zone_t    *zones[2];

    in.data = data;
    in.left = len;

    set_up();

    zones[0] = join(DYING);
    zones[1] = join(STAYING);

    live(zones, &in);
    compare(zones);

    stub_process(DYING, 0);
    stub_become(STAYING);

    tear(&in);

    ngx_memzero(&successor, sizeof(successor_t));
    successor.in = &in;

    meet(zones[1], &in);

    stub_process(SUCCESSOR, 77);
    stub_become(SUCCESSOR);

    inherit(&successor);

    compare(zones);

    for (i = 0; i < nknown; i++) {
        rule(!known[i].dying || known[i].state == 0 || known[i].seen == 1,
             "record %u was inherited %u times", known[i].id.record,
             (unsigned) known[i].seen);
    }

    meet(successor.zones[0], &in);
    go_on(&successor);

    ngx_free(zones[0]);
    ngx_free(zones[1]);

    return 0;
}


static void
set_up(void)
{
    ngx_uint_t              i, k;
    static ngx_cycle_t      cycle;
    static ngx_slab_pool_t  pool;

    /* the third path just fits into a cell */

    static const size_t  fits = ZKL_CELL - offsetof(zkl_cell_t, path);
    static const size_t  lens[] = { 2, 6, fits, fits + 1, 300, ZKL_PATH_MAX };

    if (map == NULL) {
        pool.pfree = PAGES;

        cycle.log = &stub_log;
        map = zkl_layout_make(&pool, &cycle);
        rule(map != NULL && map->ncells <= CELLS, "no map");

        base = stub_slab;
        size = stub_slab_size;
        pristine = malloc(size);
        ngx_memcpy(pristine, base, size);

        shm.data = map;

        for (i = 0; i < 6; i++) {
            paths[i].len = lens[i];
            paths[i].data = malloc(lens[i]);

            for (k = 0; k < lens[i]; k++) {
                paths[i].data[k] = (k % 200 == 0) ? '/' : (u_char) ('a' + i);
            }
        }
    }

    ngx_memcpy(base, pristine, size);
    nknown = 0;
    stub_reset();
}


static zkl_zone_t *
join(ngx_pid_t pid)
{
    zkl_key_t    key;
    zkl_zone_t  *zone;

    stub_process(pid, 42);
    stub_become(pid);

    zone = zkl_zone_join(&shm, &stub_log);
    rule(zone != NULL, "no slot");

    ngx_memset(&key, (int) pid, sizeof(key));
    zkl_zone_set_key(zone, &key);

    zone->own->alive = stub_clock + 1000;

    return zone;
}


static void
live(zkl_zone_t **zones, fuzz_input_t *in)
{
    ngx_uint_t  n, who;

    for (n = fuzz_below(in, 32); n != 0; n--) {
        who = fuzz_byte(in);

        if (who & 1) {
            make(zones[(who >> 1) & 1], !((who >> 1) & 1), in);

        } else if (nknown != 0) {
            change(zones, &known[fuzz_below(in, (unsigned) nknown)], in);
        }
    }
}


static void
make(zkl_zone_t *zone, ngx_uint_t dying, fuzz_input_t *in)
{
    known_t     *k;
    unsigned     mode;
    ngx_uint_t   i;
    uint32_t     first, last;

    if (nknown == RECORDS) {
        return;
    }

    k = &known[nknown];
    ngx_memzero(k, sizeof(known_t));

    mode = fuzz_below(in, 6);

    k->mode = (mode == ZKL_SEMAPHORE) ? zkl_semaphore(7) : mode;
    k->path = fuzz_below(in, 6);
    k->dying = dying;
    k->seq = -1;
    k->state = ZKL_RECORD_NEW;

    rule(zkl_record_take(zone, &paths[k->path], k->mode, (fuzz_byte(in) & 1)
                         ? (uint8_t *) "keykeyke" : NULL, &k->id)
         == NGX_OK, "the zone is full");

    nknown++;

    first = k->id.record;
    last = first + zkl_layout_cells_of(paths[k->path].len) - 1;

    rule(last < map->ncells && first / 64 == last / 64, "cells %u to %u",
         first, last);

    for (i = 0; i + 1 < nknown; i++) {
        rule(known[i].state == 0 || known[i].id.record > last
             || known[i].id.record
                + zkl_layout_cells_of(paths[known[i].path].len)
                <= first, "a cell was taken twice");
    }
}


static void
change(zkl_zone_t **zones, known_t *k, fuzz_input_t *in)
{
    uint32_t      awaited;
    ngx_str_t    *path;
    ngx_uint_t    how;
    zkl_zone_t   *own, *other;
    zkl_record_t  copy;

    if (k->state == ZKL_RECORD_FREE) {
        return;
    }

    path = &paths[k->path];
    own = zones[!k->dying];
    other = zones[k->dying];

    switch (fuzz_below(in, 11)) {

    case 0:
        if (k->state == ZKL_RECORD_NEW) {
            k->seq = fuzz_byte(in);
            k->state = ZKL_RECORD_WAITING;
            zkl_record_publish(zkl_layout_cell(map, k->id.record), k->seq, 1,
                               2);
            zkl_seq_index_put(own, path, k->seq, k->id.record);
        }
        break;

    case 1:
        if (k->state == ZKL_RECORD_WAITING) {
            k->state = ZKL_RECORD_HELD;
            zkl_record_grant(zkl_layout_cell(map, k->id.record), 10,
                             stub_clock + 10, ZKL_UNDELIVERED);
        }
        break;

    case 2:
        k->state = ZKL_RECORD_ENDED;
        zkl_record_end(own, k->id.record);
        break;

    case 3:
        k->state = ZKL_RECORD_FREE;
        zkl_record_free(own, k->id.record);
        break;

    case 4:
        zkl_record_bind(zkl_layout_cell(map, k->id.record), 1);
        break;

    case 5:
        if (k->mode == ZKL_WRITE || k->mode == ZKL_MUTEX) {
            k->mode = ZKL_READ;
            zkl_record_downgrade(own, k->id.record);
        }
        break;

    case 6:
        zkl_record_keep(zkl_layout_cell(map, k->id.record), 20,
                        stub_clock + fuzz_byte(in));
        break;

    case 7:
        how = fuzz_byte(in);
        zkl_record_count(zkl_layout_cell(map, k->id.record), how & 127,
                         how > 127);
        break;

    case 8:
        ask(own, other, k, fuzz_below(in, 4));
        break;

    case 9:
        rule(zkl_record_watch(other, &k->id, path, &copy) == ZKL_FOUND,
             "watch");
        break;

    default:
        (void) zkl_seq_index_await(other, path, fuzz_byte(in), &awaited);
        break;
    }
}


/*
 * An errand that the record's worker does not see (0), keeps (1), or replies to
 * (2); or that is not called back (3).
 */

static void
ask(zkl_zone_t *own, zkl_zone_t *other, known_t *k, ngx_uint_t how)
{
    ngx_int_t      rc;
    ngx_pid_t      self;
    ngx_uint_t     n, state;
    zkl_errand_t   errand;

    static const ngx_uint_t  freed[] = { ZKL_ERRAND_IDLE, ZKL_ERRAND_KEPT,
                                         ZKL_ERRAND_REPLIED + 9 };

    self = ngx_pid;

    ngx_memzero(&errand, sizeof(zkl_errand_t));
    errand.id = k->id;
    errand.seq = k->seq;
    errand.ttl = how + 1;

    stub_become(k->dying ? STAYING : DYING);

    n = zkl_errand_send(other, k->id.record, &errand);
    rule(n < ZKL_PLACES, "send: %d", (int) n);

    if (how == 1 || how == 2) {
        stub_become(k->dying ? DYING : STAYING);
        nseen = 0;
        zkl_doorbell_answer(map, own->slot, rung, own);

        rule(nseen != 0 && last_seen == n
             && last_errand.ttl == errand.ttl
             && ngx_memcmp(&last_errand.id, &k->id, sizeof(zkl_id_t)) == 0,
             "the errand was not seen");

        if (how == 1) {
            rc = zkl_errand_begin(own, n, &last_word, ZKL_ERRAND_KEPT);
            rule(rc == NGX_OK, "begin: %d", (int) rc);

        } else {
            zkl_errand_reply(own, n, last_word, 9);
        }

        stub_become(k->dying ? STAYING : DYING);
    }

    if (how != 3) {
        state = zkl_errand_free(other, n);
        rule(state == freed[how], "free: %d after %u", (int) state,
             (unsigned) how);
    }

    stub_become(self);
}


static void
serve(zkl_zone_t *zone, ngx_uint_t n)
{
    zkl_errand_t        errand;
    ngx_atomic_uint_t   word;

    switch (zkl_errand_look(zone, n, &errand, &word)) {

    case NGX_OK:
        nseen++;
        last_seen = n;
        last_word = word;
        last_errand = errand;
        break;

    case NGX_DONE:
        (void) zkl_errand_free(zone, n);
        break;

    default:
        break;
    }
}


/* each worker reads each record as in the list, and no freed record */

static void
compare(zkl_zone_t **zones)
{
    known_t      *k;
    ngx_int_t     rc;
    ngx_uint_t    i;
    zkl_found_e   found;
    zkl_record_t  copy;

    for (k = known; k < known + nknown; k++) {
        for (i = 0; i < 2; i++) {
            found = zkl_record_read(zones[i], &k->id, &paths[k->path], &copy);

            if (k->state == ZKL_RECORD_FREE) {
                rule(found == ZKL_FOUND_END || found == ZKL_FOUND_NOTHING,
                     "one that is free: %d", (int) found);
                continue;
            }

            rule(found == ZKL_FOUND || (found == ZKL_FOUND_ORPHAN && k->dying),
                 "one that is there: %d", (int) found);

            if (k->torn) {
                continue;
            }

            rule(copy.state == k->state && copy.mode == k->mode
                 && copy.seq == k->seq && copy.id.record == k->id.record,
                 "record %u is in state %d", k->id.record, (int) copy.state);
        }

        if (k->seq != -1 && k->state >= ZKL_RECORD_WAITING) {
            rc = zkl_seq_index_find(zones[1], &paths[k->path], k->seq, &copy);
            rule(rc != NGX_OK || (copy.seq == k->seq
                 && (copy.state == ZKL_RECORD_WAITING
                     || copy.state == ZKL_RECORD_HELD)),
                 "the seq_index shows another");
        }
    }
}


/* the first worker may have died while publishing a record */

static void
tear(fuzz_input_t *in)
{
    known_t     *k;
    ngx_uint_t   which;
    zkl_cell_t  *cell;

    which = fuzz_byte(in);

    if (which == 0 || nknown == 0) {
        return;
    }

    k = &known[which % nknown];

    if (!k->dying || k->state != ZKL_RECORD_NEW) {
        return;
    }

    cell = zkl_layout_cell(map, k->id.record);
    cell->gen |= 1;
    cell->seq = 5;

    if (which & 128) {
        cell->state = ZKL_RECORD_WAITING;
    }

    k->torn = 1;
}


/* calls on other workers' records, by ids and paths from clients */

static void
meet(zkl_zone_t *zone, fuzz_input_t *in)
{
    uint32_t      record;
    ngx_int_t     rc;
    ngx_str_t    *path;
    ngx_uint_t    times, op, n;
    zkl_id_t      id;
    zkl_cell_t   *cell;
    zkl_record_t  copy;
    zkl_counts_t  counts;
    zkl_errand_t  errand;

    for (times = fuzz_below(in, 16); times != 0; times--) {
        op = fuzz_byte(in);
        path = &paths[fuzz_below(in, 6)];

        id.record = (op & 128) ? fuzz_32(in)
                               : fuzz_below(in, (unsigned) map->ncells);
        ngx_memzero(id.random, ZKL_RANDOM_LEN);

        cell = zkl_layout_cell(map, id.record);

        if (cell != NULL) {
            ngx_memcpy(id.random, cell->random, ZKL_RANDOM_LEN);
        }

        switch (op % 8) {

        case 0:
            (void) zkl_record_read(zone, &id, path, &copy);
            break;

        case 1:
            (void) zkl_record_watch(zone, &id, path, &copy);
            break;

        case 2:
            ngx_memzero(&errand, sizeof(zkl_errand_t));
            n = zkl_errand_send(zone, id.record, &errand);
            rule(n < ZKL_PLACES || n == ZKL_NO_ERRAND, "send: %d", (int) n);

            if (n != ZKL_NO_ERRAND && (op & 64)) {
                (void) zkl_errand_free(zone, n);
            }

            break;

        case 3:

            for (n = 0; n < ZKL_PLACES; n++) {
                serve(zone, n);
            }

            break;

        case 4:
            break;

        case 5:
            rc = zkl_seq_index_find(zone, path, fuzz_byte(in), &copy);
            rule(rc == NGX_OK || rc == NGX_DONE || rc == NGX_DECLINED,
                 "find: %d", (int) rc);
            break;

        case 6:
            (void) zkl_seq_index_await(zone, path, fuzz_byte(in), &record);
            break;

        default:
            zkl_doorbell_answer(zone->map, zone->slot, rung, zone);
            zkl_zone_count(zone, &counts);
            rule(counts.slots <= map->nslots, "slots");
            break;
        }
    }
}


static void
rung(void *data, uint32_t record)
{
    rule(record < map->ncells + ZKL_PLACES, "a ring of no cell: %u", record);

    if (record >= map->ncells) {
        serve(data, record - map->ncells);
    }
}


/* the successor takes a home, and adopts orphans */

static void
inherit(successor_t *successor)
{
    ngx_uint_t   i;
    zkl_zone_t  *zone;

    successor->self = SUCCESSOR;

    zone = zkl_zone_join(&shm, &stub_log);

    while (zone != NULL) {

        rule(zone->slot < map->nslots && zone->home < map->nslots, "slot %u",
             (unsigned) zone->slot);
        rule(map->slots[zone->slot].keeper == zkl_layout_self(),
             "it is not the keeper");

        for (i = 0; i < successor->nzones; i++) {
            rule(successor->zones[i]->slot != zone->slot, "adopted twice");
        }

        successor->zone = successor->nzones;
        successor->zones[successor->nzones++] = zone;

        zkl_record_inherit(zone, inherited, successor);

        zone = (successor->nzones < SUCCESSORS)
               ? zkl_zone_adopt(successor->zones[0]) : NULL;
    }

    rule(successor->nzones != 0, "there is no slot");
}


static void
inherited(void *data, zkl_record_t *record, ngx_str_t *path)
{
    successor_t *successor = data;

    uint32_t     at;
    ngx_uint_t   i, n;
    zkl_child_t  child;
    char         name[ZKL_CLAIM_MAX];
    zkl_zone_t  *zone;

    zone = successor->zones[successor->zone];
    at = record->id.record;
    n = zkl_layout_cells_of(path->len);

    rule(at < map->ncells && at % 64 + n <= 64, "cells %u, %u", at,
         (unsigned) n);
    rule(map->owners[at / 64] == zone->slot + 1, "another's chunk");
    rule(path->data > map->cells
         && path->data + path->len <= map->cells + map->ncells * 256,
         "a path outside of the cells");
    rule(zkl_name_path_check((char *) path->data, path->len) == NULL,
         "no path");

    rule(record->state >= ZKL_RECORD_NEW
         && record->state <= ZKL_RECORD_OPEN, "state %d", (int) record->state);
    rule(zkl_name_mode_check(record->mode) && zkl_name_mode_check(record->was),
         "mode %x, %x", record->mode, record->was);
    rule((record->mode == ZKL_NODE) == (record->was == ZKL_NODE),
         "a claim that was the lock's znode, or will be");
    rule(record->seq >= -1 && record->seq <= ZKL_SEQ_MAX, "seq %lld",
         (long long) record->seq);

    if (record->seq != -1 && record->mode != ZKL_NODE) {
        i = zkl_name_claim_write(name, &record->id, record->mode, record->seq);
        rule(zkl_name_child_read(&child, name, i) == 0
             && child.seq == record->seq, "its claim has no name");
    }

    for (i = at; i < at + n; i++) {
        rule(!successor->used[i], "cell %u has two records", (unsigned) i);
    }

    expected(record, path);

    for (i = at; i < at + n; i++) {
        successor->used[i] = 1;
    }

    successor->ids[successor->nids++] = record->id;
}


/* the record must be as the list knows */

static void
expected(zkl_record_t *record, ngx_str_t *path)
{
    known_t  *k;

    for (k = known; k < known + nknown; k++) {

        if (k->state == ZKL_RECORD_FREE || k->id.record != record->id.record) {
            continue;
        }

        rule(k->dying, "somebody's who lives");

        if (k->torn) {
            k->state = ZKL_RECORD_NEW;
            k->seq = -1;
            k->torn = 0;
        }

        rule(record->state == k->state && record->seq == k->seq
             && record->mode == k->mode
             && ngx_memcmp(record->id.random, k->id.random,
                           ZKL_RANDOM_LEN) == 0
             && path->len == paths[k->path].len
             && ngx_memcmp(path->data, paths[k->path].data, path->len) == 0,
             "record %u is not what it was", k->id.record);

        k->seen++;
        return;
    }

    rule(0, "nobody has made record %u", record->id.record);
}


/* new records, then the end of all records and slots */

static void
go_on(successor_t *successor)
{
    uint32_t     first;
    ngx_int_t    rc;
    ngx_uint_t   i, k, n, slots[SUCCESSORS];
    ngx_str_t   *path;
    zkl_id_t     id;
    zkl_zone_t  *zone;

    zone = successor->zones[0];

    for (n = fuzz_below(successor->in, 8); n != 0; n--) {
        path = &paths[fuzz_below(successor->in, 6)];

        rc = zkl_record_take(zone, path, ZKL_MUTEX, NULL, &id);
        if (rc != NGX_OK) {
            rule(rc == NGX_BUSY, "take: %d", (int) rc);
            continue;
        }

        first = id.record;

        for (i = first; i < first + zkl_layout_cells_of(path->len); i++) {
            rule(i < map->ncells && !successor->used[i],
                 "cell %u is taken again",
                 (unsigned) i);
            successor->used[i] = 1;
        }

        zkl_record_publish(zkl_layout_cell(map, id.record), 3, 1, 1);
        zkl_seq_index_put(zone, path, 3, id.record);
    }

    for (i = 0; i < successor->nids; i++) {
        zkl_record_end(zone, successor->ids[i].record);
    }

    for (i = 0; i < successor->nzones; i++) {
        slots[i] = successor->zones[i]->slot;
        zkl_zone_free(successor->zones[i]);
    }

    for (i = 0; i < successor->nzones; i++) {
        rule(map->slots[slots[i]].keeper == ZKL_FREE
             && !map->slots[slots[i]].keyed, "a slot is kept");

        for (k = 0; k < map->nchunks; k++) {
            rule(map->owners[k] != slots[i] + 1, "cells are kept");
        }
    }
}
