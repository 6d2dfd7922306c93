
/*
 * Quotas: how many claims of this gateway count under the same key.
 *
 * Several processes run this code at the same time, each on its event loop.
 * The cells tell which claims count.  The words of map->quotas are a quick
 * answer: a word counts the claims of all keys that share the word, and is
 * never too low, because a claim is counted before the cell says so, and counts
 * until the cell does not say so any more.  Where the word exceeds a limit, the
 * cells are counted: so neither a worker that died between the two steps nor
 * another key in the same word makes a claim be refused.
 *
 * Workers that take the last places at the same moment may all get one.
 */


#include "shm/quota.h"


static ngx_uint_t zkl_quota_count(zkl_layout_t *map, uint64_t key);


ngx_int_t
zkl_quota_take(zkl_layout_t *map, zkl_cell_t *cell, uint64_t key,
    ngx_uint_t max)
{
    ngx_atomic_t       *word;
    ngx_atomic_uint_t   n;

    word = &map->quotas[key % map->nquotas];

    n = ngx_atomic_fetch_add(word, 1);

    if (n >= max && zkl_quota_count(map, key) >= max) {
        (void) ngx_atomic_fetch_add(word, -1);
        return NGX_BUSY;
    }

    ngx_memory_barrier();

    cell->quota = key;

    return NGX_OK;
}


static ngx_uint_t
zkl_quota_count(zkl_layout_t *map, uint64_t key)
{
    uint64_t     starts;
    ngx_uint_t   i, k, n;
    zkl_cell_t  *cell;

    n = 0;

    for (i = 0; i < map->nchunks; i++) {

        if (map->owners[i] == 0) {
            continue;
        }

        starts = map->starts[i];

        for (k = 0; starts != 0; k++, starts >>= 1) {
            cell = zkl_layout_cell(map, (uint32_t) (i * ZKL_CHUNK + k));

            n += (starts & 1) && cell->quota == key;
        }
    }

    return n;
}


void
zkl_quota_give_back(zkl_layout_t *map, zkl_cell_t *cell)
{
    uint64_t  key;

    key = cell->quota;

    if (key == 0) {
        return;
    }

    cell->quota = 0;

    ngx_memory_barrier();

    (void) ngx_atomic_fetch_add(&map->quotas[key % map->nquotas], -1);
}
