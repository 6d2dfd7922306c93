
/*
 * Doorbells: how one process makes another process's event loop look at a
 * record, or at an errand.
 *
 * A doorbell is a row of bits in the zone, a bit for each cell, and a bit for
 * each errand behind the cells, with a summary above the row, and an eventfd
 * that wakes the worker.  A process that rings sets the bit, then the bit in
 * the summary, then writes the eventfd; the worker that answers clears the
 * summary first.  So the worker sees each ring, perhaps twice, unless the
 * ringing process died in between.  Then the worker's sweep finds a ring that
 * is in the summary; a ring outside of the summary waits for the next ring in
 * the same word.
 *
 * Several processes run this code at the same time, each on its event loop.  No
 * argument may be NULL.
 */


#include "shm/doorbell.h"


static void zkl_doorbell_set(ngx_atomic_t *words, ngx_uint_t bit);


void
zkl_doorbell_keeper(zkl_layout_t *map, ngx_uint_t slot, uint32_t record)
{
    ngx_uint_t  home;

    if (slot >= map->nslots) {
        return;
    }

    home = map->slots[slot].home;

    zkl_doorbell_set(&map->bits[home * map->nbits], record);
    zkl_doorbell_set(&map->summaries[home * map->nsummary],
                     record / ZKL_WORD_BITS);

    zkl_doorbell_wake(map, home);
}


void
zkl_doorbell_wake(zkl_layout_t *map, ngx_uint_t home)
{
    ssize_t   n;
    uint64_t  one;

    one = 1;

    do {
        n = write(map->own->wakeups[home], &one, sizeof(uint64_t));

        /* EAGAIN: the counter is full, so the worker will wake up anyway */

    } while (n == -1 && ngx_errno == NGX_EINTR);
}


void
zkl_doorbell_answer(zkl_layout_t *map, ngx_uint_t home,
    zkl_doorbell_pt handler, void *data)
{
    ngx_uint_t          i, m, record;
    ngx_atomic_t       *summary;
    ngx_atomic_uint_t   changed, bits;

    summary = &map->summaries[home * map->nsummary];

    for (i = 0; i < map->nsummary; i++) {
        changed = __sync_fetch_and_and(&summary[i], 0);

        for (m = i * ZKL_WORD_BITS; changed != 0; m++, changed >>= 1) {

            if (!(changed & 1) || m >= map->nbits) {
                continue;
            }

            bits = __sync_fetch_and_and(&map->bits[home * map->nbits + m], 0);
            record = m * ZKL_WORD_BITS;

            for ( /* void */ ; bits != 0; record++, bits >>= 1) {

                if (bits & 1) {
                    handler(data, (uint32_t) record);
                }
            }
        }
    }
}


void
zkl_doorbell_watch(zkl_layout_t *map, ngx_uint_t slot, uint32_t record)
{
    zkl_doorbell_set(zkl_layout_cell(map, record)->watchers, slot);
}


void
zkl_doorbell_watchers(zkl_layout_t *map, uint32_t record, ngx_uint_t clear)
{
    ngx_uint_t         i, k;
    ngx_atomic_uint_t  word;
    zkl_cell_t        *cell;

    cell = zkl_layout_cell(map, record);

    for (i = 0; i < ZKL_SLOT_WORDS; i++) {
        word = __sync_fetch_and_and(&cell->watchers[i],
                                    clear ? 0 : ~(ngx_atomic_uint_t) 0);

        for (k = 0; word != 0; k++, word >>= 1) {
            if (word & 1) {
                zkl_doorbell_keeper(map, i * ZKL_WORD_BITS + k, record);
            }
        }
    }
}


static void
zkl_doorbell_set(ngx_atomic_t *words, ngx_uint_t bit)
{
    (void) __sync_fetch_and_or(&words[bit / ZKL_WORD_BITS],
                               (ngx_atomic_uint_t) 1 << bit % ZKL_WORD_BITS);
}
