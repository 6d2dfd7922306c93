
/*
 * The file of zk_lock_state_path, with anything in it, as a new nginx finds it.
 *
 * - A file is taken exactly if it is ours, whole and of this configuration;
 *   then what is in it is there, but for who kept the slots.  Else there is a
 *   new one, with nothing in it but a head.
 * - One that another nginx has open is never replaced, nor are its slots'
 *   keepers touched; and a failure leaves it as it was.
 * - A worker joins, adopts and inherits from it whatever it holds, and nothing
 *   is read or written outside of it.
 */


#include "fuzz.h"
#include "ngx_stub.h"
#include "ngx_http_zk_lock_record.h"

#include <stdio.h>
#include <sys/file.h>


#define PAGES       8
#define SIZE        (PAGES * 4096)

#define IN_USE      1       /* by another nginx */
#define RAW         2       /* the input is the file */
#define SEALED      4       /* the head's sum is right */


static ngx_http_zk_lock_map_conf_t  conf;
static ngx_slab_pool_t              pool;
static char                         folder[200];
static char                         path[220];
static u_char                      *image;      /* a sound file */
static u_char                      *found;      /* what is in it now */
static ngx_uint_t                   seen[64];


static void set_up(void);
static void clean_up(void);
static void sample(void);
static ngx_http_zk_lock_map_t *open_map(void);
static void close_map(ngx_http_zk_lock_map_t *map);
static size_t contents(fuzz_input_t *in, unsigned flags);
static ngx_uint_t is_sound(size_t len, unsigned mode);
static void check_map(ngx_http_zk_lock_map_t *map, ngx_uint_t sound,
    ngx_uint_t alone);
static void check_file(ngx_uint_t kept, ino_t before);
static void use(ngx_http_zk_lock_map_t *map);
static void inherited(void *data, ngx_http_zk_lock_record_t *record,
    ngx_str_t *name);


/* flags, the file's mode, then its bytes, or what is put over a sound one */

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int                       fd;
    size_t                    len;
    unsigned                  flags, mode;
    ngx_uint_t                sound, expected;
    struct stat               st;
    fuzz_input_t              in;
    ngx_http_zk_lock_map_t   *map;

    static const unsigned  modes[] = { 0600, 0600, 0600, 0640, 0604, 0700 };

    if (image == NULL) {
        set_up();
    }

    in.data = data;
    in.left = size;

    stub_reset();
    stub_process(1001, 42);
    stub_become(1001);

    flags = fuzz_byte(&in);
    mode = modes[fuzz_below(&in, 6)];
    len = contents(&in, flags);
    sound = is_sound(len, mode);

    fd = open(path, O_RDWR|O_CREAT|O_TRUNC|O_CLOEXEC, 0600);
    rule(fd != -1 && fchmod(fd, mode) == 0
         && pwrite(fd, found, len, 0) == (ssize_t) len
         && fstat(fd, &st) == 0, "the file cannot be made");

    if (flags & IN_USE) {
        rule(flock(fd, LOCK_SH|LOCK_NB) == 0, "flock()");

    } else {
        (void) close(fd);
    }

    /* with another namespace of pids nobody shares it */

    expected = !(flags & IN_USE)
               || (sound && ngx_memcmp(
                       found + offsetof(ngx_http_zk_lock_head_t, pids),
                       image + offsetof(ngx_http_zk_lock_head_t, pids),
                       sizeof(uint64_t)) == 0);

    map = open_map();

    rule((map != NULL) == expected, "%s", map ? "made" : "not made");

    if (map != NULL) {
        check_map(map, sound, !(flags & IN_USE));
        check_file(sound, st.st_ino);
        use(map);
        close_map(map);

    } else {
        check_file(1, st.st_ino);
    }

    if (flags & IN_USE) {
        (void) close(fd);
    }

    return 0;
}


static void
set_up(void)
{
    int                       fd;
    ngx_http_zk_lock_map_t   *map;
    static void              *conf_ctx[1];
    static ngx_cycle_t        cycle;
    static ngx_core_conf_t    ccf;

    (void) snprintf(folder, sizeof(folder), "%s/zk_lock_fuzz.XXXXXX",
                    getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");

    rule(mkdtemp(folder) != NULL, "mkdtemp() of %s", folder);
    (void) snprintf(path, sizeof(path), "%s/state", folder);
    (void) atexit(clean_up);

    ccf.user = geteuid();
    conf_ctx[0] = &ccf;
    cycle.conf_ctx = (void ****) conf_ctx;

    conf.cycle = &cycle;
    conf.path.data = (u_char *) path;
    conf.path.len = strlen(path);
    ngx_str_set(&conf.servers, "127.0.0.1:2181");

    pool.pfree = PAGES;
    image = malloc(SIZE);
    found = malloc(SIZE + 4096);

    stub_reset();

    /* a new one; as it is in memory, with what a worker made of it */

    map = open_map();
    rule(map != NULL, "no file");

    fd = open(path, O_RDONLY);
    rule(pread(fd, image, SIZE, 0) == SIZE, "the file is short");
    (void) close(fd);

    close_map(map);
    sample();
}


static void
clean_up(void)
{
    (void) unlink(path);
    (void) rmdir(folder);
}


/* two records of a worker that dies, in the image */

static void
sample(void)
{
    zk_lock_id_t              id;
    ngx_str_t                 name;
    ngx_http_zk_lock_key_t    key;
    ngx_http_zk_lock_map_t   *map;
    ngx_http_zk_lock_zone_t  *zone;
    ngx_shm_zone_t            shm;

    stub_process(1000, 42);
    stub_become(1000);

    map = open_map();
    shm.data = map;
    zone = ngx_http_zk_lock_zone_join(&shm, &stub_log);
    rule(zone != NULL, "no slot");

    ngx_memset(&key, 7, sizeof(key));
    ngx_http_zk_lock_zone_set_key(zone, &key);

    ngx_str_set(&name, "/locks/a");
    (void) ngx_http_zk_lock_record_take(zone, &name, ZK_LOCK_MUTEX, NULL,
                                        &id);
    ngx_http_zk_lock_record_publish(zone, id.record, 1, 2, 3);
    ngx_http_zk_lock_record_grant(zone, id.record, 10, 20, 0);

    ngx_str_set(&name, "/locks/b");
    (void) ngx_http_zk_lock_record_take(zone, &name, ZK_LOCK_NODE,
                                        (uint8_t *) "12345678", &id);

    /* the random parts would make each run another one */

    ngx_memset(ngx_http_zk_lock_map_cell(map, 0)->random, 1, 12);
    ngx_memset(ngx_http_zk_lock_map_cell(map, 1)->random, 2, 12);

    ngx_memcpy(image, map->own->addr, SIZE);

    ngx_free(zone);
    close_map(map);
}


static ngx_http_zk_lock_map_t *
open_map(void)
{
    ngx_http_zk_lock_map_t  *map;

    map = ngx_http_zk_lock_map_make(&pool, &conf, &stub_log);

    if (map == NULL) {
        free(stub_slab);
        return NULL;
    }

    rule(ngx_http_zk_lock_map_keep(map, conf.cycle) == NGX_OK, "keep");

    return map;
}


static void
close_map(ngx_http_zk_lock_map_t *map)
{
    stub_cleanup.handler(stub_cleanup.data);
    free(map);
}


/* fills `found`, and returns how long the file is to be */

static size_t
contents(fuzz_input_t *in, unsigned flags)
{
    size_t          at, n, len;
    const uint8_t  *data;

    uint32_t                  crc;
    ngx_http_zk_lock_head_t  *head;

    len = SIZE;

    if (flags & RAW) {
        ngx_memzero(found, SIZE + 4096);

        n = fuzz_bytes(in, &data, SIZE);
        ngx_memcpy(found, data, n);

        return (flags & 128) ? n : SIZE;
    }

    ngx_memcpy(found, image, SIZE);
    ngx_memzero(found + SIZE, 4096);

    while (in->left != 0) {
        n = fuzz_byte(in);

        /* where: the head, the slots and what follows them, cells, anywhere;
           or another size */

        switch (n >> 5) {

        case 0:
        case 1:
            at = fuzz_byte(in);
            break;

        case 2:
        case 3:
            at = 128 + fuzz_below(in, 12288);
            break;

        case 4:
        case 5:
            at = SIZE - 64 * 256 - 64 + fuzz_below(in, 600);
            break;

        case 6:
            at = fuzz_32(in) % SIZE;
            break;

        default:
            len = fuzz_32(in) % (SIZE + 4096);
            continue;
        }

        n = 1 + (n & 15);
        n = fuzz_bytes(in, &data, ngx_min(n, SIZE - at));
        ngx_memcpy(found + at, data, n);
    }

    if (flags & SEALED) {
        head = (ngx_http_zk_lock_head_t *) found;
        crc = ngx_crc32_long(found, offsetof(ngx_http_zk_lock_head_t, crc));
        head->crc = crc;
    }

    return len;
}


/* it is ours alone, and says of itself what ours says */

static ngx_uint_t
is_sound(size_t len, unsigned mode)
{
    return len == SIZE && (mode & 077) == 0
           && ngx_memcmp(found, image,
                         offsetof(ngx_http_zk_lock_head_t, pids)
                         - sizeof(uint32_t))
              == 0
           && ((ngx_http_zk_lock_head_t *) found)->crc
              == ((ngx_http_zk_lock_head_t *) image)->crc;
}


static void
check_map(ngx_http_zk_lock_map_t *map, ngx_uint_t sound, ngx_uint_t alone)
{
    u_char             *p;
    size_t              i;
    ngx_uint_t          k;
    ngx_atomic_uint_t   keeper, before;

    p = map->own->addr;

    rule(p != NULL && map->own->size == SIZE && map->own->file != -1,
         "there is no file");
    rule((u_char *) map->head == p && (u_char *) map->slots > p
         && map->cells + map->ncells * 256 <= p + SIZE
         && (u_char *) (map->starts + map->nchunks) <= map->cells, "layout");

    rule(ngx_memcmp(p, image, offsetof(ngx_http_zk_lock_head_t, pids))
         == 0, "another head");
    rule(map->head->nginx == map->nginx, "its number");
    rule(map->head->pids == ((ngx_http_zk_lock_head_t *) image)->pids,
         "its pids");

    if (!sound) {
        rule(map->nginx == 1, "a new file has number %u",
             (unsigned) map->nginx);

        i = sizeof(ngx_http_zk_lock_head_t);

        rule(p[i] == 0 && ngx_memcmp(p + i, p + i + 1, SIZE - i - 1) == 0,
             "there is something in a new file");

        return;
    }

    for (k = 0; k < map->nslots; k++) {
        keeper = map->slots[k].keeper;
        before = ((ngx_http_zk_lock_slot_t *)
                      (found + ((u_char *) map->slots - p)))[k].keeper;

        if (alone) {
            rule(keeper == (before ? NGX_HTTP_ZK_LOCK_ORPHAN
                                   : NGX_HTTP_ZK_LOCK_FREE),
                 "slot %u has a keeper", (unsigned) k);

        } else {
            rule(keeper == before, "slot %u was taken", (unsigned) k);
        }

        rule(ngx_memcmp((void *) (&map->slots[k].keeper + 1),
                        found + ((u_char *) (&map->slots[k].keeper + 1) - p),
                        sizeof(ngx_http_zk_lock_slot_t)
                        - sizeof(ngx_atomic_t)) == 0, "a slot was changed");
    }

    i = (size_t) ((u_char *) map->owners - p);

    rule(ngx_memcmp(p + i, found + i, SIZE - i) == 0,
         "what is in the file was changed");
}


/* the same file as before, or a new one in its place; nothing else */

static void
check_file(ngx_uint_t kept, ino_t before)
{
    char         temp[240];
    struct stat  st;

    rule(lstat(path, &st) == 0 && S_ISREG(st.st_mode), "no file");

    if (!kept) {
        rule((st.st_mode & 0777) == 0600 && st.st_size == SIZE,
             "a new file has mode %o", (unsigned) st.st_mode);

    } else {
        rule(st.st_ino == before, "the file was replaced");
    }

    (void) snprintf(temp, sizeof(temp), "%s.%d", path, (int) ngx_pid);
    rule(lstat(temp, &st) == -1, "a file is left");
}


static void
use(ngx_http_zk_lock_map_t *map)
{
    ngx_uint_t                 n;
    ngx_shm_zone_t             shm;
    ngx_http_zk_lock_zone_t   *home, *zone;
    ngx_http_zk_lock_counts_t  counts;

    shm.data = map;

    home = ngx_http_zk_lock_zone_join(&shm, &stub_log);

    if (home == NULL) {
        return;
    }

    ngx_memzero(seen, sizeof(seen));

    zone = home;

    for (n = 0; zone != NULL; n++) {
        ngx_http_zk_lock_record_inherit(zone, inherited, zone);
        ngx_http_zk_lock_zone_count(home, &counts);

        if (zone != home) {
            ngx_http_zk_lock_zone_leave(zone);
        }

        rule(n <= map->nslots, "adopted without end");
        zone = ngx_http_zk_lock_zone_adopt(home);
    }

    ngx_http_zk_lock_zone_leave(home);
}


static void
inherited(void *data, ngx_http_zk_lock_record_t *record, ngx_str_t *name)
{
    ngx_uint_t                i;
    ngx_http_zk_lock_zone_t  *zone = data;

    rule(record->id.record < zone->map->ncells, "record %u",
         record->id.record);
    rule(zk_lock_kind_check(record->kind) && zk_lock_kind_check(record->was),
         "kind %x", record->kind);
    rule((record->kind == ZK_LOCK_NODE) == (record->was == ZK_LOCK_NODE),
         "a claim that was the lock's znode, or will be");
    rule(record->seq >= -1 && record->seq <= ZK_LOCK_SEQ_MAX, "seq");
    rule(zk_lock_path_check((char *) name->data, name->len) == NULL, "path");

    for (i = 0; i < ngx_http_zk_lock_map_cells_of(name->len); i++) {
        rule(record->id.record + i < zone->map->ncells
             && seen[record->id.record + i] != zone->slot + 1,
             "cell %u is of two records", (unsigned) (record->id.record + i));
        seen[record->id.record + i] = zone->slot + 1;
    }

    if (record->id.random[0] & 1) {
        ngx_http_zk_lock_record_free(zone, record->id.record);
    }
}
