
/*
 * Quotas: how many claims of this gateway count under the same key.
 *
 * Several processes run this code at the same time, each on its event loop.
 * The cells tell which claims count.  map->quotas is a table of words: a word
 * counts the claims of a key, and has in its upper bits a part of the key, so
 * that the key's words are found within a few words from the key's place on.
 * Two workers that begin to count a key at the same time may use two words: the
 * sum counts.  A word of no claims is 0, and free for any key.
 *
 * A claim is counted before the cell says so, and until the cell does not say
 * so any more.  A worker that dies between the two steps leaves a claim too
 * much.  So a word also has the number of workers that had died when it was
 * last known to be right: if more have died, the cells are counted before a
 * claim is refused, once for each key and each death.
 *
 * Workers that take the last places at the same moment may all get one; so may
 * a worker that stands still between the two steps while the cells are counted.
 */


#include "shm/quota.h"


/* how far from its place a key is counted, in words */
#define ZKL_QUOTA_REACH             64

/* of a word, from the lowest bit: the claims, the deaths, a part of the key */
#define ZKL_QUOTA_COUNT             (((ngx_atomic_uint_t) 1 << 20) - 1)
#define ZKL_QUOTA_DEATHS            ((ngx_atomic_uint_t) 0xff << 20)
#define ZKL_QUOTA_KEY               (~(ZKL_QUOTA_COUNT | ZKL_QUOTA_DEATHS))


/* what the table has of a key */

typedef struct {
    ngx_atomic_t               *word;       /* the key's first word, or the
                                               first free word, or NULL */
    ngx_atomic_uint_t           value;      /* of word */
    ngx_uint_t                  n;          /* claims */
    ngx_uint_t                  doubtful;   /* a worker has died since */
} zkl_quota_found_t;


static void zkl_quota_find(zkl_layout_t *map, uint64_t key,
    zkl_quota_found_t *found);
static ngx_atomic_uint_t zkl_quota_deaths(zkl_layout_t *map);
static void zkl_quota_recount(zkl_layout_t *map, uint64_t key,
    zkl_quota_found_t *found);


ngx_int_t
zkl_quota_take(zkl_layout_t *map, zkl_cell_t *cell, uint64_t key,
    ngx_uint_t max)
{
    zkl_quota_found_t  found;

    do {
        zkl_quota_find(map, key, &found);

        if (found.n >= max && found.doubtful) {
            zkl_quota_recount(map, key, &found);
            zkl_quota_find(map, key, &found);
        }

        if (found.n >= max) {
            return NGX_BUSY;
        }

        if (found.word == NULL) {

            /* twice as many words as cells: no key has so many neighbours */

            return NGX_OK;
        }

    } while (!ngx_atomic_cmp_set(found.word, found.value,
                                 found.value ? found.value + 1
                                 : (key & ZKL_QUOTA_KEY)
                                   | zkl_quota_deaths(map) | 1));

    ngx_memory_barrier();

    cell->quota = key;

    return NGX_OK;
}


void
zkl_quota_give_back(zkl_layout_t *map, zkl_cell_t *cell)
{
    uint64_t           key;
    zkl_quota_found_t  found;

    key = cell->quota;

    if (key == 0) {
        return;
    }

    cell->quota = 0;

    ngx_memory_barrier();

    do {
        zkl_quota_find(map, key, &found);

        if (found.value == 0) {
            return;
        }

    } while (!ngx_atomic_cmp_set(found.word, found.value,
                                 (found.value & ZKL_QUOTA_COUNT) > 1
                                 ? found.value - 1 : 0));
}


static void
zkl_quota_find(zkl_layout_t *map, uint64_t key, zkl_quota_found_t *found)
{
    ngx_uint_t         i;
    ngx_atomic_t      *word;
    ngx_atomic_uint_t  value;

    ngx_memzero(found, sizeof(zkl_quota_found_t));

    for (i = 0; i < ZKL_QUOTA_REACH; i++) {
        word = &map->quotas[(key + i) % map->nquotas];
        value = *word;

        if (value != 0 && ((value ^ key) & ZKL_QUOTA_KEY) != 0) {
            continue;
        }

        if (found->word == NULL || (found->value == 0 && value != 0)) {
            found->word = word;
            found->value = value;
        }

        found->n += value & ZKL_QUOTA_COUNT;
        found->doubtful |= (value != 0 && (value & ZKL_QUOTA_DEATHS)
                                          != zkl_quota_deaths(map));
    }
}


static ngx_atomic_uint_t
zkl_quota_deaths(zkl_layout_t *map)
{
    return (map->deaths << 20) & ZKL_QUOTA_DEATHS;
}


/*
 * Sets the key's first word to what the cells say, less what the other words
 * count, unless the word has changed since it was found.
 */

static void
zkl_quota_recount(zkl_layout_t *map, uint64_t key, zkl_quota_found_t *found)
{
    uint32_t            record;
    ngx_uint_t          n;
    zkl_cell_t         *cell;
    ngx_atomic_uint_t   deaths;

    deaths = zkl_quota_deaths(map);

    ngx_memory_barrier();

    n = 0;
    record = ZKL_NO_RECORD;

    while ((cell = zkl_layout_next(map, map->nslots, &record)) != NULL) {
        n += (cell->quota == key);
    }

    n -= ngx_min(n, found->n - (found->value & ZKL_QUOTA_COUNT));

    if (found->value != 0) {
        (void) ngx_atomic_cmp_set(found->word, found->value,
                                  n ? (key & ZKL_QUOTA_KEY) | deaths | n : 0);
    }
}
