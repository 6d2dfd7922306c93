
/*
 * The sequence index: which claim of this gateway has which number in a lock's
 * queue, so that a worker need not list the lock's claims.
 *
 * An entry is the record of the last claim that was put there, or a set of
 * slots that wait for a claim: the worker that puts a claim there rings these
 * slots.  A claim of another lock may overwrite the entry at any moment, so a
 * missing entry proves nothing.
 *
 * Several processes run this code at the same time, each on its event loop; an
 * entry is a word that changes by compare and set.
 */


#include "shm/seq_index.h"


/*
 * An entry of the index is a record + 1, or this bit and a bit for each slot
 * that waits (slots may share a bit).
 */
#define ZKL_AWAITED                                                            \
    ((ngx_atomic_uint_t) 1 << (ZKL_WORD_BITS - 1))


static uint32_t zkl_seq_index_index(zkl_zone_t *zone, ngx_str_t *path,
    int64_t seq);
static ngx_uint_t zkl_seq_index_others(zkl_zone_t *zone);


void
zkl_seq_index_put(zkl_zone_t *zone, ngx_str_t *path, int64_t seq,
    uint32_t record)
{
    uint32_t           i;
    ngx_uint_t         slot;
    ngx_atomic_t      *entry;
    ngx_atomic_uint_t  old;

    i = zkl_seq_index_index(zone, path, seq);
    entry = &zone->map->seq_index[i];

    old = __atomic_exchange_n(entry, (ngx_atomic_uint_t) record + 1,
                              __ATOMIC_SEQ_CST);

    if (!(old & ZKL_AWAITED)) {
        return;
    }

    for (slot = 0; slot < zone->map->nslots; slot++) {

        if (old & ((ngx_atomic_uint_t) 1 << (slot % (ZKL_WORD_BITS - 1)))) {
            zkl_doorbell_keeper(zone->map, slot, i);
        }
    }
}


ngx_int_t
zkl_seq_index_find(zkl_zone_t *zone, ngx_str_t *path, int64_t seq,
    zkl_record_t *copy)
{
    ngx_atomic_uint_t  entry;

    entry = zone->map->seq_index[zkl_seq_index_index(zone, path, seq)];

    if ((entry & ZKL_AWAITED)
        || zkl_record_copy(zone, (uint32_t) entry - 1, path, copy) != NGX_OK
        || copy->seq != seq || copy->ending == ZKL_ENDING_FORSAKEN
        || copy->state == ZKL_RECORD_OPEN)
    {
        return NGX_DECLINED;
    }

    return (copy->state == ZKL_RECORD_WAITING
            || copy->state == ZKL_RECORD_HELD)
           ? NGX_OK : NGX_DONE;
}


ngx_int_t
zkl_seq_index_await(zkl_zone_t *zone, ngx_str_t *path, int64_t seq,
    uint32_t *record)
{
    uint32_t           i;
    ngx_atomic_t      *entry;
    ngx_atomic_uint_t  old, marked;
    zkl_record_t       copy;

    if (!zkl_seq_index_others(zone)) {
        return NGX_DECLINED;
    }

    i = zkl_seq_index_index(zone, path, seq);
    entry = &zone->map->seq_index[i];

    do {
        old = *entry;

        if (zkl_seq_index_find(zone, path, seq, &copy) != NGX_DECLINED) {
            return NGX_OK;
        }

        marked = (ngx_atomic_uint_t) 1 << (zone->slot % (ZKL_WORD_BITS - 1));
        marked |= (old & ZKL_AWAITED) ? old : ZKL_AWAITED;

    } while (!ngx_atomic_cmp_set(entry, old, marked));

    *record = i;

    return NGX_AGAIN;
}


void
zkl_seq_index_clear(zkl_zone_t *zone)
{
    uint32_t           i;
    ngx_atomic_uint_t  entry;

    for (i = 0; i < zone->map->nseq_index; i++) {
        entry = zone->map->seq_index[i];

        if (entry != 0 && !(entry & ZKL_AWAITED)) {
            (void) ngx_atomic_cmp_set(&zone->map->seq_index[i], entry, 0);
        }
    }
}


static uint32_t
zkl_seq_index_index(zkl_zone_t *zone, ngx_str_t *path, int64_t seq)
{
    uint32_t  hash;

    hash = ngx_crc32_long(path->data, path->len) + (uint32_t) seq;

    return hash & (uint32_t) (zone->map->nseq_index - 1);
}


/* Whether another worker lives, or has left a session that lives on. */

static ngx_uint_t
zkl_seq_index_others(zkl_zone_t *zone)
{
    ngx_uint_t   i;
    zkl_slot_t  *slot;

    for (i = 0; i < zone->map->nslots; i++) {
        slot = &zone->map->slots[i];

        if (i != zone->slot && slot->home == i && zkl_ahead(slot->alive)) {
            return 1;
        }
    }

    return 0;
}
