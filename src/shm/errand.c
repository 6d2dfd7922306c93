
/*
 * Errands: how a worker asks a sibling to do something with a claim, which only
 * the claim's own worker may change.
 *
 * An errand has a place in the zone.  The asking worker, the owner of the
 * place, writes the question, sets ASKED, and rings the sibling; the sibling
 * copies the question, sets TAKEN, writes the reply, sets REPLIED, and rings
 * back.  The state is in a word that has another number with each question, and
 * ASKED ends by a compare and set: so a sibling that stands still between its
 * copy and its set takes no later question, and an owner that does not wait any
 * longer knows whether the sibling has begun.
 *
 *   state     the next, set by the owner       by the sibling
 *   -------   ------------------------------   --------------
 *   IDLE      ASKED
 *   ASKED     IDLE: the sibling never begins   TAKEN
 *   TAKEN                                      REPLIED
 *   REPLIED   IDLE
 *
 * A place in TAKEN is the sibling's to write to, and is not used again until
 * the sibling has replied, or is dead.  A ring may be lost when a worker dies:
 * the sweep looks at all places.
 *
 * Several processes run this code at the same time, each on its event loop.  No
 * argument may be NULL.
 */


#include "shm/errand.h"


#define ZKL_PLACE_IDLE                0
#define ZKL_PLACE_ASKED               1
#define ZKL_PLACE_TAKEN               2
#define ZKL_PLACE_REPLIED             3

#define zkl_place_state(word)         ((word) & 3)
#define zkl_place_set(word, state)                                             \
    (((word) & ~(ngx_atomic_uint_t) 3) | (state))


static ngx_int_t zkl_errand_place(zkl_zone_t *zone, ngx_uint_t *n);
static ngx_uint_t zkl_errand_left(zkl_place_t *place);
static void zkl_errand_ring(zkl_layout_t *map, ngx_uint_t slot, ngx_uint_t n);
static void zkl_errand_look(zkl_zone_t *zone, ngx_uint_t n, ngx_uint_t all,
    zkl_errand_pt handler, void *data);


ngx_int_t
zkl_errand_send(zkl_zone_t *zone, uint32_t record, zkl_errand_t *errand,
    ngx_uint_t *n)
{
    ngx_uint_t          slot, home;
    zkl_cell_t         *cell;
    zkl_place_t        *place;
    zkl_layout_t       *map;
    ngx_atomic_uint_t   sibling;

    map = zone->map;
    cell = zkl_layout_cell(map, record);

    slot = cell ? cell->slot : map->nslots;
    home = (slot < map->nslots) ? map->slots[slot].home : map->nslots;

    if (home >= map->nslots || home == zone->slot) {
        return NGX_DECLINED;
    }

    sibling = map->slots[home].keeper;

    if (sibling != map->slots[slot].keeper || zkl_layout_dead(sibling, 1)) {
        return NGX_DECLINED;
    }

    if (zkl_errand_place(zone, n) != NGX_OK) {
        return NGX_BUSY;
    }

    place = &map->places[*n];

    place->sibling = sibling;
    place->from = zone->slot;
    place->errand = *errand;

    ngx_memory_barrier();

    place->word = zkl_place_set(place->word, ZKL_PLACE_ASKED);

    zkl_errand_ring(map, home, *n);

    return NGX_OK;
}


/* Takes a place, perhaps one that a dead process has left. */

static ngx_int_t
zkl_errand_place(zkl_zone_t *zone, ngx_uint_t *n)
{
    ngx_uint_t          i, k;
    zkl_place_t        *place;
    ngx_atomic_uint_t   owner;

    for (i = 0; i < 2 * ZKL_PLACES; i++) {
        k = zone->place++ % ZKL_PLACES;

        place = &zone->map->places[k];
        owner = place->owner;

        if ((owner == ZKL_FREE || (i >= ZKL_PLACES && zkl_errand_left(place)))
            && ngx_atomic_cmp_set(&place->owner, owner, zkl_layout_self()))
        {
            place->word = zkl_place_set(place->word + 4, ZKL_PLACE_IDLE);
            *n = k;

            return NGX_OK;
        }
    }

    return NGX_BUSY;
}


/*
 * Whether no living process uses the place any more.  The question of a dead
 * owner that the sibling has not taken is called back first.
 */

static ngx_uint_t
zkl_errand_left(zkl_place_t *place)
{
    ngx_atomic_uint_t  word;

    if (!zkl_layout_dead(place->owner, 0)) {
        return 0;
    }

    word = place->word;

    switch (zkl_place_state(word)) {

    case ZKL_PLACE_ASKED:
        return ngx_atomic_cmp_set(&place->word, word,
                                  zkl_place_set(word, ZKL_PLACE_IDLE));

    case ZKL_PLACE_TAKEN:
        return zkl_layout_dead(place->sibling, 0);

    default:
        return 1;
    }
}


static void
zkl_errand_ring(zkl_layout_t *map, ngx_uint_t slot, ngx_uint_t n)
{
    ngx_atomic_t       *mail;
    ngx_atomic_uint_t   old, bit;

    mail = &map->mail[(slot * ZKL_PLACES + n) / ZKL_WORD_BITS];
    bit = (ngx_atomic_uint_t) 1 << (n % ZKL_WORD_BITS);

    do {
        old = *mail;
    } while (!ngx_atomic_cmp_set(mail, old, old | bit));

    zkl_doorbell_wake(map, slot);
}


ngx_int_t
zkl_errand_free(zkl_zone_t *zone, ngx_uint_t n, zkl_errand_t *errand)
{
    ngx_int_t           rc;
    zkl_place_t        *place;
    ngx_atomic_uint_t   word;

    place = &zone->map->places[n];
    word = place->word;
    rc = NGX_OK;

    if (zkl_place_state(word) == ZKL_PLACE_ASKED
        && ngx_atomic_cmp_set(&place->word, word,
                              zkl_place_set(word, ZKL_PLACE_IDLE)))
    {
        rc = NGX_DECLINED;

    } else if (zkl_place_state(place->word) == ZKL_PLACE_TAKEN) {

        rc = NGX_AGAIN;
    }

    ngx_memory_barrier();

    *errand = place->errand;

    if (rc != NGX_AGAIN || zkl_layout_dead(place->sibling, 0)) {
        place->owner = ZKL_FREE;
    }

    /* else the place is free when the reply has come */

    return rc;
}


void
zkl_errand_take(zkl_zone_t *zone, ngx_uint_t all, zkl_errand_pt handler,
    void *data)
{
    ngx_uint_t          n;
    ngx_atomic_t       *mail;
    ngx_atomic_uint_t   bits;

    bits = 0;

    for (n = 0; n < ZKL_PLACES; n++, bits >>= 1) {

        if (n % ZKL_WORD_BITS == 0) {
            mail = &zone->map->mail[(zone->slot * ZKL_PLACES + n)
                                    / ZKL_WORD_BITS];
            do {
                bits = *mail;
            } while (bits != 0 && !ngx_atomic_cmp_set(mail, bits, 0));
        }

        if (all || (bits & 1)) {
            zkl_errand_look(zone, n, all, handler, data);
        }
    }
}


static void
zkl_errand_look(zkl_zone_t *zone, ngx_uint_t n, ngx_uint_t all,
    zkl_errand_pt handler, void *data)
{
    zkl_place_t        *place;
    zkl_errand_t        errand;
    ngx_atomic_uint_t   word, self;

    place = &zone->map->places[n];
    self = zkl_layout_self();

    word = place->word;
    ngx_memory_barrier();

    errand = place->errand;

    switch (zkl_place_state(word)) {

    case ZKL_PLACE_REPLIED:

        if (place->owner == self) {
            handler(data, n, &errand, 1);
        }

        break;

    case ZKL_PLACE_ASKED:

        if (place->sibling == self
            && ngx_atomic_cmp_set(&place->word, word,
                                  zkl_place_set(word, ZKL_PLACE_TAKEN)))
        {
            handler(data, n, &errand, 0);
        }

        break;

    case ZKL_PLACE_TAKEN:

        if (all && place->owner == self && zkl_layout_dead(place->sibling, 0)) {
            handler(data, n, &errand, 1);
        }

        break;

    default:
        break;
    }
}


void
zkl_errand_begun(zkl_zone_t *zone, ngx_uint_t n, ngx_uint_t begun)
{
    zone->map->places[n].errand.begun = (uint32_t) begun;
    ngx_memory_barrier();
}


void
zkl_errand_reply(zkl_zone_t *zone, ngx_uint_t n, ngx_uint_t reply)
{
    zkl_place_t  *place;

    place = &zone->map->places[n];

    place->errand.reply = reply;
    ngx_memory_barrier();

    place->word = zkl_place_set(place->word, ZKL_PLACE_REPLIED);
    ngx_memory_barrier();

    zkl_errand_ring(zone->map, place->from, n);
}
