
/*
 * Errands: how a worker asks a sibling to do something with a claim, which only
 * the claim's own worker may change.
 *
 * An errand has a place in the zone.  The asking worker, the owner of the
 * place, writes the question, sets ASKED, and rings the sibling; the sibling
 * copies the question, sets REPLIED with the reply, and rings back.  Before the
 * sibling counts a hold, the sibling sets COUNTS; before the sibling ends the
 * claim, ENDS; and before the sibling keeps the errand, because the reply needs
 * ZooKeeper, KEPT.
 *
 * State and reply are in a single word, with a number that each question
 * changes, and a compare and set ends ASKED.  So a sibling that stands still
 * behind the copy begins no errand that the owner has called back, and the
 * owner, when the time for the reply is over, knows what the sibling may have
 * done.
 *
 *   state     the next, set by the owner   by the sibling
 *   -------   --------------------------   ---------------------------
 *   IDLE      ASKED
 *   ASKED     IDLE: called back            KEPT, COUNTS, ENDS, REPLIED
 *   KEPT                                   COUNTS, ENDS, REPLIED
 *   COUNTS                                 REPLIED
 *   ENDS                                   REPLIED
 *   REPLIED   IDLE
 *
 * A question of a dead owner is called back by the sibling: the client has lost
 * the connection, and a later call of the client's may have been answered.
 *
 * A place in KEPT, COUNTS or ENDS is not used again until the sibling has
 * replied, or is dead.  A ring may be lost when a worker dies: the sweep looks
 * at all places.
 *
 * Several processes run this code at the same time, each on its event loop.  No
 * argument may be NULL.
 */


#include "shm/errand.h"


#define ZKL_PLACE_STATE               0xff  /* below the number */

#define zkl_place_state(word)                                                  \
    ((word) & ZKL_PLACE_STATE)
#define zkl_place_set(word, state)                                             \
    (((word) & ~(ngx_atomic_uint_t) ZKL_PLACE_STATE) | (state))


static ngx_uint_t zkl_errand_place(zkl_zone_t *zone);
static ngx_uint_t zkl_errand_over(zkl_place_t *place, ngx_atomic_uint_t *word);


ngx_uint_t
zkl_errand_send(zkl_zone_t *zone, uint32_t record, zkl_errand_t *errand)
{
    ngx_uint_t          n, slot, home;
    zkl_cell_t         *cell;
    zkl_place_t        *place;
    zkl_layout_t       *map;
    ngx_atomic_uint_t   sibling;

    map = zone->map;
    cell = zkl_layout_cell(map, record);

    slot = cell ? cell->slot : map->nslots;
    home = (slot < map->nslots) ? map->slots[slot].home : map->nslots;

    if (home >= map->nslots || home == zone->slot) {
        return ZKL_NO_ERRAND;
    }

    sibling = map->slots[home].keeper;

    if (sibling != map->slots[slot].keeper || zkl_layout_dead(sibling, 1)) {
        return ZKL_NO_ERRAND;
    }

    n = zkl_errand_place(zone);
    if (n == ZKL_NO_ERRAND) {
        return ZKL_NO_ERRAND;
    }

    place = &map->places[n];

    place->sibling = sibling;
    place->from = zone->slot;
    place->errand = *errand;

    ngx_memory_barrier();

    place->word = zkl_place_set(place->word, ZKL_ERRAND_ASKED);

    zkl_doorbell_keeper(map, home, map->ncells + n);

    return n;
}


/* Takes a place, perhaps one that a dead process has left. */

static ngx_uint_t
zkl_errand_place(zkl_zone_t *zone)
{
    ngx_uint_t          i, n;
    zkl_place_t        *place;
    ngx_atomic_uint_t   owner, word;

    for (i = 0; i < 2 * ZKL_PLACES; i++) {
        n = zone->place++ % ZKL_PLACES;

        place = &zone->map->places[n];
        owner = place->owner;

        if ((owner == ZKL_FREE
             || (i >= ZKL_PLACES && zkl_layout_dead(owner, 0)
                 && zkl_errand_over(place, &word)))
            && ngx_atomic_cmp_set(&place->owner, owner, zkl_layout_self()))
        {
            place->word = (place->word | ZKL_PLACE_STATE) + 1;

            return n;
        }
    }

    return ZKL_NO_ERRAND;
}


/*
 * Whether the sibling does nothing with the place any more.  A question that
 * the sibling has not begun is called back first.
 */

static ngx_uint_t
zkl_errand_over(zkl_place_t *place, ngx_atomic_uint_t *word)
{
    *word = place->word;

    if (zkl_place_state(*word) == ZKL_ERRAND_ASKED) {
        (void) ngx_atomic_cmp_set(&place->word, *word,
                                  zkl_place_set(*word, ZKL_ERRAND_IDLE));
        *word = place->word;
    }

    return zkl_place_state(*word) == ZKL_ERRAND_IDLE
           || zkl_place_state(*word) >= ZKL_ERRAND_REPLIED
           || zkl_layout_dead(place->sibling, 0);
}


ngx_uint_t
zkl_errand_free(zkl_zone_t *zone, ngx_uint_t n)
{
    zkl_place_t        *place;
    ngx_atomic_uint_t   word;

    place = &zone->map->places[n];

    if (zkl_errand_over(place, &word)) {
        place->owner = ZKL_FREE;
    }

    return zkl_place_state(word);
}


ngx_int_t
zkl_errand_look(zkl_zone_t *zone, ngx_uint_t n, zkl_errand_t *errand,
    ngx_atomic_uint_t *word)
{
    zkl_place_t        *place;
    ngx_atomic_uint_t   self;

    place = &zone->map->places[n];
    self = zkl_layout_self();

    *word = place->word;

    switch (zkl_place_state(*word)) {

    case ZKL_ERRAND_IDLE:
        return NGX_DECLINED;

    case ZKL_ERRAND_ASKED:

        if (place->sibling != self) {
            return NGX_DECLINED;
        }

        if (zkl_layout_dead(place->owner, 1)) {

            /* the client was cut off, and may have called again meanwhile */

            (void) ngx_atomic_cmp_set(&place->word, *word,
                                      zkl_place_set(*word, ZKL_ERRAND_IDLE));
            return NGX_DECLINED;
        }

        ngx_memory_barrier();
        *errand = place->errand;
        ngx_memory_barrier();

        return (place->word == *word) ? NGX_OK : NGX_DECLINED;

    default: /* KEPT, COUNTS, ENDS, REPLIED */
        return (place->owner == self
                && (zkl_place_state(*word) >= ZKL_ERRAND_REPLIED
                    || zkl_layout_dead(place->sibling, 0)))
               ? NGX_DONE : NGX_DECLINED;
    }
}


ngx_int_t
zkl_errand_begin(zkl_zone_t *zone, ngx_uint_t n, ngx_atomic_uint_t *word,
    zkl_errand_e state)
{
    ngx_atomic_uint_t  old;

    old = *word;
    *word = zkl_place_set(old, state);

    return ngx_atomic_cmp_set(&zone->map->places[n].word, old, *word)
           ? NGX_OK : NGX_DECLINED;
}


void
zkl_errand_reply(zkl_zone_t *zone, ngx_uint_t n, ngx_atomic_uint_t word,
    ngx_uint_t reply)
{
    zkl_place_t  *place;

    place = &zone->map->places[n];

    if (ngx_atomic_cmp_set(&place->word, word,
                           zkl_place_set(word, ZKL_ERRAND_REPLIED + reply)))
    {
        zkl_doorbell_keeper(zone->map, place->from, zone->map->ncells + n);
    }
}
