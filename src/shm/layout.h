
/*
 * The layout of the zone's shared memory.
 *
 * The master makes the layout before the fork of the workers, and all workers
 * have the layout at the same address, so pointers in the layout are good in
 * every process of one nginx.
 */


#ifndef _ZKL_LAYOUT_H_INCLUDED_
#define _ZKL_LAYOUT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "zk/session.h"
#include "shm/counters.h"
#include "base/name.h"


#define ZKL_SLOTS_MAX                 256
#define ZKL_WORD_BITS                 (8 * sizeof(ngx_atomic_t))
#define ZKL_SLOT_WORDS                                                         \
    (ZKL_SLOTS_MAX / ZKL_WORD_BITS)

/* words for each cell that count claims under keys */
#define ZKL_QUOTA_WORDS               2

/* bytes of a cell, cells of a chunk */
#define ZKL_CELL                      256
#define ZKL_CHUNK                     64

#define ZKL_NO_RECORD                 ((uint32_t) -1)

/* the keeper of a slot that no process keeps */
#define ZKL_FREE                      ((ngx_atomic_uint_t) 0)
#define ZKL_ORPHAN                    ((ngx_atomic_uint_t) -1)


/* random bytes, so that no client finds two keys with the same hash */
#define ZKL_SECRET                    16

/* of a cell's holds: the number of holds */
#define ZKL_HOLDS_BITS                (4 * sizeof(ngx_atomic_t))
#define ZKL_HOLDS                                                              \
    (((ngx_atomic_uint_t) 1 << ZKL_HOLDS_BITS) - 1)


/* errands that are under way at a time, a multiple of ZKL_WORD_BITS */
#define ZKL_PLACES                    128


/*
 * A claim's record; a long path takes the next cells, too.  The slot's keeper
 * writes all fields but watchers.
 */

typedef struct {
    ngx_atomic_t                gen;        /* odd: being written */

    /* the slots to ring (any) */

    ngx_atomic_t                watchers[ZKL_SLOT_WORDS];

    /* what a new record begins with is 0 from here on */

    ngx_atomic_t                state;
    ngx_atomic_t                lease;      /* the deadline; 0: none, or
                                               over */
    ngx_atomic_t                ttl;
    ngx_atomic_t                version;    /* of the znode's data at the last
                                               read, or UNREAD: the lease is
                                               right up to that version */
    ngx_atomic_t                renewals;   /* in the znode's data */
    ngx_atomic_t                holds;      /* the number of holds, 0: not held
                                               (any more); upper half: the last
                                               counted remote request */
    ngx_atomic_t                delivery;   /* which client was told of the
                                               grant */
    ngx_atomic_t                bound;      /* the claim ends with the worker */
    int64_t                     seq;        /* -1: not published */
    int64_t                     czxid;
    int64_t                     since;      /* the grant, in milliseconds of
                                               the wall clock; 0: none yet */
    uint64_t                    quota;      /* the key that the claim counts
                                               under; 0: none */
    uint8_t                     random[ZKL_RANDOM_LEN];
    uint32_t                    mode;
    uint32_t                    was;        /* the mode before, in the znode's
                                               name until a rename */
    uint32_t                    remote;     /* the last counted remote request
                                               in full */
    uint32_t                    named;      /* the record in the znode's name */
    uint32_t                    term;       /* how often the gate below which
                                               the lease is entered was taken
                                               over, when this gateway counted
                                               the lease last; 0: never, or not
                                               known */
    uint8_t                     index;
    uint8_t                     ending;     /* how the claim ended */
    uint8_t                     durable;    /* the znode may be durable */
    uint16_t                    slot;
    uint16_t                    path_len;
    u_char                      path[1];
} zkl_cell_t;


/* a session's place; the keeper writes all fields but keeper */

typedef struct {
    ngx_atomic_t                keeper;     /* a process, FREE or ORPHAN; any
                                               worker may take over by compare
                                               and set */
    ngx_atomic_t                home;       /* the keeper's own slot */
    ngx_atomic_t                leaving;    /* the keeper leaves, and
                                               is no successor */
    ngx_atomic_t                alive;      /* the session surely lives until
                                               then; in the past if that is not
                                               known, or the session is over or
                                               closed */
    ngx_atomic_t                keyed;      /* key is whole */
    zkl_key_t                   key;
} zkl_slot_t;


/* what a worker asks a sibling to do; only the asking worker writes */

typedef struct {
    zkl_id_t                    id;         /* of the claim */
    int64_t                     seq;
    uint32_t                    type;       /* a zkl_call_e of core/call.h */
    uint32_t                    forced;
    ngx_msec_t                  ttl;
    ngx_msec_t                  grace;
    int32_t                     version;    /* of data that the asking worker
                                               has read, */
    uint32_t                    renewals;   /* and their renewals; or 0 */
} zkl_errand_t;


typedef struct {
    ngx_atomic_t                word;       /* a number, the reply, and the
                                               state */
    ngx_atomic_t                owner;      /* the process that asks, or FREE */
    ngx_atomic_t                sibling;    /* the process that is asked */
    ngx_uint_t                  from;       /* the owner's slot, to be rung */
    zkl_errand_t                errand;
} zkl_place_t;


/* what the master gives back when no cycle has the layout any more */

typedef struct {
    ngx_uint_t                  cycles;
    ngx_uint_t                  nwakeups;
    int                         wakeups[1]; /* of the slots: inherited by all
                                               workers of this nginx */
} zkl_layout_own_t;


typedef struct {
    zkl_counters_t             *counters;
    ngx_atomic_t               *quotas;     /* by key */
    zkl_slot_t                 *slots;
    ngx_atomic_t               *owners;     /* of chunks: slot + 1; 0: free */
    uint64_t                   *starts;     /* of chunks: cells where a record
                                               starts */
    ngx_atomic_t               *seq_index;  /* cell + 1, or slots that wait */
    ngx_atomic_t               *moved;      /* by id: cell + 1 of a claim that
                                               was taken over */
    ngx_atomic_t               *bits;       /* the doorbells: of each slot a bit
                                               for each cell and errand */
    ngx_atomic_t               *summaries;  /* of each slot a bit for each word
                                               of bits */
    zkl_place_t                *places;     /* of errands */
    u_char                     *cells;

    u_char                      secret[ZKL_SECRET];     /* no client knows, of
                                                           hashes of the
                                                           keys of quotas */

    ngx_uint_t                  nslots;
    ngx_uint_t                  ncells;
    ngx_uint_t                  nchunks;
    ngx_uint_t                  nseq_index; /* a power of two */
    ngx_uint_t                  nquotas;
    ngx_uint_t                  nbits;      /* words of a doorbell */
    ngx_uint_t                  nsummary;

    ngx_atomic_t                orphans;    /* a hint that orphans exist */
    ngx_atomic_t                deaths;     /* slots of processes that died */
    ngx_atomic_t                reloads;    /* of this nginx so far */
    ngx_atomic_t                over;       /* the value of reloads whose
                                               workers quit, with no new
                                               workers */
    ngx_atomic_t                superseded; /* by a new layout */
    ngx_atomic_t                drained;    /* since when, in seconds of the
                                               wall clock; 0: not */
    ngx_atomic_t                zxid;       /* the largest of the workers'
                                               creates */
    ngx_atomic_t                present;    /* the largest since ZooKeeper last
                                               lost transactions */
    zkl_layout_own_t *own;
} zkl_layout_t;


/* How many slots a layout has; a worker inherits a descriptor for each slot. */
ngx_uint_t zkl_layout_nslots(void);

/*
 * Makes a layout in the slab pool of a new zone, for cycle, which has the
 * layout.  Returns NULL, after logging why, if the zone is too small or memory
 * or a descriptor is lacking.
 */
zkl_layout_t *zkl_layout_make(ngx_slab_pool_t *shpool, ngx_cycle_t *cycle);

/* Notes that one more cycle has the layout; the last gives map->own back. */
ngx_int_t zkl_layout_keep(zkl_layout_t *map, ngx_cycle_t *cycle);

/* The cell of a record, or NULL if the layout has no cell of that number. */
zkl_cell_t *zkl_layout_cell(zkl_layout_t *map, uint32_t record);

/*
 * The cell of the next record that is noted in a chunk of slot, or in any chunk
 * if slot is map->nslots, and the record's number; NULL: there is none.  The
 * caller sets *record to ZKL_NO_RECORD first.
 */
zkl_cell_t *zkl_layout_next(zkl_layout_t *map, ngx_uint_t slot,
    uint32_t *record);

/* The cells of a chunk that records have, a bit each. */
uint64_t zkl_layout_used(zkl_layout_t *map, ngx_uint_t chunk);

/* How many cells the record of a lock takes. */
ngx_uint_t zkl_layout_cells_of(size_t path_len);

/* This process, as the keeper of a slot. */
ngx_atomic_uint_t zkl_layout_self(void);

/*
 * Whether a keeper is dead, or another process has the keeper's pid by now.
 * quick: looks only whether a process has the pid.
 */
ngx_uint_t zkl_layout_dead(ngx_atomic_uint_t keeper, ngx_uint_t quick);


#endif /* _ZKL_LAYOUT_H_INCLUDED_ */
