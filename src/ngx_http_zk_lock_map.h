
/*
 * The map: the shared memory that the zone lies in, and how it is laid out.
 *
 * The master makes it before it forks workers, and the map is the same in all
 * of them: its pointers are good in every process of one nginx.
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
    ngx_atomic_t                alive;      /* until when the session surely
                                               lives */
    ngx_atomic_t                keyed;      /* key is whole */
    ngx_http_zk_lock_key_t      key;
} ngx_http_zk_lock_slot_t;


/* what the master has to give back, when no cycle has the map any more */

typedef struct {
    ngx_uint_t                  cycles;
    ngx_uint_t                  nwakeups;
    int                         wakeups[1]; /* of the slots: inherited by all
                                               workers of this nginx */
} ngx_http_zk_lock_map_own_t;


typedef struct {
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

    ngx_atomic_t                orphans;    /* a hint that there are some */
    ngx_atomic_t                reloads;    /* of this nginx so far */
    ngx_atomic_t                over;       /* the reload whose workers leave,
                                               and none is started any more */
    ngx_atomic_t                superseded; /* by a reload, with another map */
    ngx_http_zk_lock_map_own_t *own;
} ngx_http_zk_lock_map_t;


/* How many slots a map has; a worker inherits a descriptor for each. */
ngx_uint_t ngx_http_zk_lock_map_nslots(void);

/*
 * Makes a map in the slab pool of a new zone.  Returns NULL if the zone is too
 * small, or nothing can be made; that was logged.
 */
ngx_http_zk_lock_map_t *ngx_http_zk_lock_map_make(ngx_slab_pool_t *shpool,
    ngx_log_t *log);

/* A cycle has the map: what is the master's goes with the last one. */
ngx_int_t ngx_http_zk_lock_map_keep(ngx_http_zk_lock_map_t *map,
    ngx_cycle_t *cycle);

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


#endif /* _NGX_HTTP_ZK_LOCK_MAP_H_INCLUDED_ */
