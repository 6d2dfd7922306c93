
/*
 * The map: the memory that the zone lies in, how it is laid out, and where it
 * comes from: nginx's shared memory, or a file that outlives nginx.
 *
 * The map itself is made in the master, before workers are forked, and is the
 * same in all of them: its pointers are good in every process of one nginx.
 * What lies in the file has no pointers and no descriptors in it, since another
 * nginx may go on with it: the next one after a restart, or at the same time
 * the new binary of an upgrade.
 */


#ifndef _NGX_HTTP_ZK_LOCK_MAP_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_MAP_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_http_zk_lock_session.h"
#include "zk_lock_name.h"


#define NGX_HTTP_ZK_LOCK_SLOTS_MAX    256
#define NGX_HTTP_ZK_LOCK_WORD_BITS    (8 * sizeof(ngx_atomic_t))
#define NGX_HTTP_ZK_LOCK_SLOT_WORDS                                           \
    (NGX_HTTP_ZK_LOCK_SLOTS_MAX / NGX_HTTP_ZK_LOCK_WORD_BITS)

/* bytes of a cell, cells of a chunk */
#define NGX_HTTP_ZK_LOCK_CELL         256
#define NGX_HTTP_ZK_LOCK_CHUNK        64

/* whom a slot belongs to, instead of a keeper */
#define NGX_HTTP_ZK_LOCK_FREE         ((ngx_atomic_uint_t) 0)
#define NGX_HTTP_ZK_LOCK_ORPHAN       ((ngx_atomic_uint_t) -1)


/* of a cell's holds: how often */
#define NGX_HTTP_ZK_LOCK_HOLDS_BITS   (4 * sizeof(ngx_atomic_t))
#define NGX_HTTP_ZK_LOCK_HOLDS                                                \
    (((ngx_atomic_uint_t) 1 << NGX_HTTP_ZK_LOCK_HOLDS_BITS) - 1)


/* of a cell's ending: its claim may live, and only ZooKeeper tells */
#define NGX_HTTP_ZK_LOCK_FORSAKEN     5

/* a claim's record; a long path takes the next cells, too */

typedef struct {
    ngx_atomic_t                gen;        /* odd: being written */
    ngx_atomic_t                state;
    ngx_atomic_t                lease;      /* anybody's; 0: none, or over */
    ngx_atomic_t                ttl;        /* anybody's */
    ngx_atomic_t                asked;      /* anybody's: the gen to release;
                                               odd: by an operator */
    ngx_atomic_t                version;    /* anybody's: of the znode's data,
                                               as far as it was seen */
    ngx_atomic_t                renewals;   /* anybody's: those in the data */
    ngx_atomic_t                holds;      /* anybody's: how often it is held;
                                               0: it is not, any more.  In the
                                               upper half: the wish that was
                                               counted last */
    ngx_atomic_t                told;       /* anybody's: who was told that it
                                               is held */
    ngx_atomic_t                bound;      /* it goes with its worker */
    ngx_atomic_t                lost;       /* the gen of the last claim here
                                               that was gone before its
                                               release */
    ngx_atomic_t                watchers[NGX_HTTP_ZK_LOCK_SLOT_WORDS];

    int64_t                     seq;        /* -1: not published */
    int64_t                     czxid;
    int64_t                     since;
    uint8_t                     random[ZK_LOCK_RANDOM_LEN];
    uint32_t                    kind;
    uint32_t                    was;        /* the kind before, in its name if
                                               it was not renamed yet */
    uint32_t                    wish;       /* the last one, which holds may
                                               have no room for; of a free
                                               record: a hash of the id that
                                               was here */
    uint32_t                    named;      /* the record in its znode's name */
    uint32_t                    leader;     /* whose bound counts; the record
                                               + 1, 0: its own */
    uint8_t                     index;
    uint8_t                     ending;     /* how the claim ended */
    uint16_t                    slot;
    uint16_t                    path_len;
    u_char                      path[1];
} ngx_http_zk_lock_cell_t;


/* a session's place */

typedef struct {
    ngx_atomic_t                keeper;     /* a process; FREE, ORPHAN */
    ngx_atomic_t                home;       /* the keeper's own slot */
    ngx_atomic_t                leaving;    /* the keeper does; no heir */
    ngx_atomic_t                nginx;      /* the keeper's: map->nginx */
    ngx_atomic_t                alive;      /* until when the session surely
                                               lives */
    ngx_atomic_t                keyed;      /* key is whole */
    ngx_http_zk_lock_key_t      key;
} ngx_http_zk_lock_slot_t;


/* the file's first bytes; of the zone in nginx's memory, too */

typedef struct {
    u_char                      magic[16];
    u_char                      boot[40];   /* the clock's and the pids' */
    u_char                      servers[16];    /* a hash */
    uint64_t                    size;
    uint32_t                    nslots;
    uint32_t                    ncells;
    uint32_t                    word;       /* bytes of an atomic word */
    uint32_t                    crc;        /* of all above */

    uint64_t                    pids;       /* the namespace of the pids */
    ngx_atomic_t                nginx;      /* how many opened it so far */
    ngx_atomic_t                orphans;    /* a hint that there are some */
} ngx_http_zk_lock_head_t;


/* what the master has to give back, when no cycle has the map any more */

typedef struct {
    ngx_uint_t                  cycles;
    int                         file;       /* -1: none; locked */
    u_char                     *addr;       /* of the file; NULL: none */
    size_t                      size;
    ngx_uint_t                  nwakeups;
    int                         wakeups[1]; /* of the slots: inherited by all
                                               workers of this nginx */
} ngx_http_zk_lock_map_own_t;


typedef struct {
    ngx_http_zk_lock_head_t    *head;
    ngx_http_zk_lock_slot_t    *slots;
    ngx_atomic_t               *owners;     /* of chunks: slot + 1 */
    uint64_t                   *starts;     /* of chunks: cells where a record
                                               starts */
    ngx_atomic_t               *board;      /* cell + 1 */
    ngx_atomic_t               *bits;       /* the doorbells, one a cell */
    ngx_atomic_t               *summaries;  /* one a word of bits */
    u_char                     *cells;

    ngx_uint_t                  nslots;
    ngx_uint_t                  ncells;
    ngx_uint_t                  nchunks;
    ngx_uint_t                  nboard;     /* a power of two */
    ngx_uint_t                  nbits;      /* words of one doorbell */
    ngx_uint_t                  nsummary;

    ngx_atomic_uint_t           nginx;      /* which one this is */
    ngx_atomic_t                reloads;    /* of this nginx so far */
    ngx_atomic_t                over;       /* the reload whose workers leave,
                                               and none is started any more */
    ngx_atomic_t                superseded; /* by a reload, with another map */
    ngx_http_zk_lock_map_own_t *own;
} ngx_http_zk_lock_map_t;


/* what a map is made for */

typedef struct {
    ngx_str_t                   servers;    /* as configured, and who we are
                                               to them */
    ngx_str_t                   path;       /* of the file; "": none; NUL */
    ngx_cycle_t                *cycle;      /* that it is made for */
} ngx_http_zk_lock_map_conf_t;


/* How many slots a map has; a worker inherits a descriptor for each. */
ngx_uint_t ngx_http_zk_lock_map_nslots(void);

/*
 * Makes a map in the slab pool of a new zone.  A file that cannot be used is
 * refused with a warning, and replaced.  Returns NULL if the zone is too
 * small, or nothing can be made; that was logged.
 */
ngx_http_zk_lock_map_t *ngx_http_zk_lock_map_make(ngx_slab_pool_t *shpool,
    ngx_http_zk_lock_map_conf_t *conf, ngx_log_t *log);

/* A cycle has the map: what is the master's goes with the last one. */
ngx_int_t ngx_http_zk_lock_map_keep(ngx_http_zk_lock_map_t *map,
    ngx_cycle_t *cycle);

/* Whether who comes after the last worker will find the map. */
ngx_uint_t ngx_http_zk_lock_map_lasts(ngx_http_zk_lock_map_t *map);

/* The cell of a record, or NULL if there is no such cell. */
ngx_http_zk_lock_cell_t *ngx_http_zk_lock_map_cell(
    ngx_http_zk_lock_map_t *map, uint32_t record);

/* How many cells the record of a lock takes. */
ngx_uint_t ngx_http_zk_lock_map_cells_of(size_t path_len);

/* This process, as the keeper of a slot. */
ngx_atomic_uint_t ngx_http_zk_lock_map_self(void);

/*
 * Whether a keeper is dead, or has ended and left its pid to another process.
 * The quick way asks for the pid only.
 */
ngx_uint_t ngx_http_zk_lock_map_dead(ngx_atomic_uint_t keeper,
    ngx_uint_t quick);


/*
 * Between the halves: ngx_http_zk_lock_map.c knows how a map is laid out,
 * ngx_http_zk_lock_file.c whether a file can be used for it.
 */

/*
 * Lays out size bytes at p for map->nslots; they are not touched.  NULL: says
 * only how many cells there are.  NGX_ERROR: too few bytes.
 */
ngx_int_t ngx_http_zk_lock_map_lay_out(ngx_http_zk_lock_map_t *map, u_char *p,
    size_t size);

/*
 * Opens the file of conf, or makes it, locks and maps it.  head is what it has
 * to begin with.  What it has of it is in map->own, after NGX_ERROR too; that
 * was logged.
 */
ngx_int_t ngx_http_zk_lock_map_file(ngx_http_zk_lock_map_t *map,
    ngx_http_zk_lock_map_conf_t *conf, size_t size,
    ngx_http_zk_lock_head_t *head, ngx_log_t *log);


#endif /* _NGX_HTTP_ZK_LOCK_MAP_H_INCLUDED_ */
