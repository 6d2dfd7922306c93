
/*
 * The counts of a worker and of a zone, summed again from the queues and the
 * records while no process of the gateway is in a turn.
 *
 * A worker keeps a slot for the session and a slot for each adoption.  Each
 * record of the session's slot belongs to a claim of the worker; the worker's
 * other claims have records of adopted slots.
 */


#include "gsim.h"


static void gsim_zone_check_worker(gsim_process_t *p);
static void gsim_zone_check_claims(gsim_process_t *p);
static void gsim_zone_check_record(gsim_process_t *p, zkl_claim_t *claim);
static void gsim_zone_says(gsim_process_t *p, zkl_claim_t *claim,
    const char *what, int so);
static void gsim_zone_check_calls(gsim_process_t *p);
static void gsim_zone_check_locks(gsim_process_t *p, ngx_queue_t *locks);
static void gsim_zone_check_errands(gsim_process_t *p);
static void gsim_zone_check_stays(gsim_process_t *p);
static ngx_uint_t gsim_zone_length(ngx_queue_t *queue);
static void gsim_zone_differs(gsim_process_t *p, const char *what,
    ngx_uint_t counts, ngx_uint_t is);


void
gsim_zone_check(gsim_gateway_t *g)
{
    gsim_process_t  *p, *before;

    for (p = gsim_processes; p != NULL; p = p->next) {
        if (p->gateway == g && p->state != GSIM_DEAD
            && (p->in_turn || p->ending))
        {
            return;
        }
    }

    for (p = gsim_processes; p != NULL; p = p->next) {

        if (p->gateway != g || p->worker == NULL
            || (p->state != GSIM_RUNS && p->state != GSIM_LEAVES))
        {
            continue;
        }

        before = gsim_enter(p);

        gsim_zone_check_worker(p);
        gsim_zone_check_claims(p);
        gsim_zone_check_calls(p);
        gsim_zone_check_errands(p);
        gsim_zone_check_stays(p);

        gsim_leave(before);
    }
}


static void
gsim_zone_check_worker(gsim_process_t *p)
{
    ngx_uint_t          i, n;
    zkl_layout_t       *map;
    zkl_worker_t       *worker;
    ngx_atomic_uint_t   self;

    worker = p->worker;
    map = worker->zone->map;
    self = zkl_layout_self();

    for (n = 0, i = 0; i < map->nslots; i++) {

        if (map->slots[i].keeper != self) {
            continue;
        }

        n++;

        if (map->slots[i].home != worker->zone->slot) {
            gsim_violation("slot %d of process %d has the home %d", (int) i,
                           (int) p->pid, (int) map->slots[i].home);
        }
    }

    gsim_zone_differs(p, "slots", n,
                      1 + gsim_zone_length(&worker->adoptions));
    gsim_zone_differs(p, "idle locks", worker->nidle,
                      gsim_zone_length(&worker->idle));
    gsim_zone_differs(p, "questions that wait", worker->nsearches,
                      gsim_zone_length(&worker->searches));

    gsim_zone_check_locks(p, &worker->active);
    gsim_zone_check_locks(p, &worker->idle);
}


static void
gsim_zone_check_locks(gsim_process_t *p, ngx_queue_t *locks)
{
    zkl_lock_t   *lock;
    ngx_queue_t  *q;

    for (q = ngx_queue_head(locks); q != locks; q = ngx_queue_next(q)) {
        lock = ngx_queue_data(q, zkl_lock_t, queue);

        gsim_zone_differs(p, "claims of a lock", lock->nclaims,
                          gsim_zone_length(&lock->claims));
    }
}


/* Records and claims, one to one. */

static void
gsim_zone_check_claims(gsim_process_t *p)
{
    uint64_t            starts;
    ngx_uint_t          i, n, untold;
    zkl_cell_t         *cell;
    zkl_claim_t        *claim;
    zkl_layout_t       *map;
    zkl_worker_t       *worker;
    ngx_atomic_uint_t   self;

    worker = p->worker;
    map = worker->zone->map;
    self = zkl_layout_self();
    untold = 0;
    starts = 0;
    cell = NULL;

    for (i = 0; i < worker->nclaims; i++, starts >>= 1) {

        if (i % ZKL_CHUNK == 0) {
            starts = map->owners[i / ZKL_CHUNK] ? map->starts[i / ZKL_CHUNK]
                                                : 0;
        }

        claim = worker->claims[i];
        n = starts & 1;

        if (n) {

            /* the chunk of a record that has moved may be another slot's */

            cell = (zkl_cell_t *) (void *) (map->cells + i * ZKL_CELL);

            if (cell->state == ZKL_RECORD_FREE
                && map->owners[i / ZKL_CHUNK] == worker->zone->slot + 1)
            {
                gsim_violation("process %d has cell %d in use without a "
                               "record", (int) p->pid, (int) i);
            }

            n = (map->slots[cell->slot].keeper == self
                 && (cell->slot == worker->zone->slot || claim != NULL)
                 && cell->state != ZKL_RECORD_FREE);
        }

        if (claim != NULL) {
            untold += (claim->handler != NULL);
        }

        if (claim != NULL && n) {
            gsim_zone_check_record(p, claim);
            gsim_zone_says(p, claim, "slot",
                           (cell->slot == worker->zone->slot)
                           == (claim->adoption == NULL));
        }

        if (n != (claim != NULL)) {
            gsim_violation("process %d has %s %d, but no %s", (int) p->pid,
                           n ? "the record" : "the claim", (int) i,
                           n ? "claim" : "record");
        }
    }

    gsim_zone_differs(p, "claims whose clients wait", worker->nuntold, untold);
}


/*
 * Siblings and successors read the record in place of the claim, so the record
 * has the claim's fields, also after the claim has queued again with another
 * record.
 */

static void
gsim_zone_check_record(gsim_process_t *p, zkl_claim_t *claim)
{
    int            waits;
    zkl_id_t       id;
    zkl_cell_t    *cell;
    zkl_record_t   record;

    id = zkl_claim_id(claim);
    cell = zkl_layout_cell(p->worker->zone->map, claim->id.record);

    waits = (claim->state == ZKL_START || claim->state == ZKL_CREATE
             || claim->state == ZKL_RECOVER || claim->state == ZKL_WAIT);

    gsim_zone_says(p, claim, "path",
                   cell->path_len == claim->lock->sn.str.len
                   && memcmp(cell->path, claim->lock->sn.str.data,
                             cell->path_len) == 0);

    gsim_zone_says(p, claim, "id", memcmp(cell->random, claim->id.random,
                                          ZKL_RANDOM_LEN) == 0);

    gsim_zone_says(p, claim, "number", claim->entry.seq == -1
                                       || cell->seq == claim->entry.seq
                                       || cell->state == ZKL_RECORD_NEW);

    gsim_zone_says(p, claim, "mode", cell->mode == claim->entry.mode);

    gsim_zone_says(p, claim, "name", cell->named == claim->named);

    gsim_zone_says(p, claim, "own number",
                   zkl_claim_find(p->worker, &id, &claim->lock->sn.str)
                   == claim);

    /* a record of a former worker may hide this one until all is well */

    gsim_zone_says(p, claim, "place",
                   claim->state != ZKL_HELD
                   || gsim_now < gsim_quiet + 4 * GSIM_S
                   || (zkl_record_read(p->worker->zone, &id,
                                       &claim->lock->sn.str, &record)
                       == ZKL_FOUND
                       && record.id.record == claim->id.record));

    /* the record alone has the quota of a claim that was taken over */

    gsim_zone_says(p, claim, "quota", claim->terms.quota == 0
                                      || cell->quota == claim->terms.quota);

    gsim_zone_says(p, claim, "state",
                   !waits || cell->state == ZKL_RECORD_NEW
                   || cell->state == ZKL_RECORD_WAITING);

    gsim_zone_says(p, claim, "grant",
                   claim->state != ZKL_HELD || cell->state == ZKL_RECORD_HELD);

    /* all requests of a key share a claim, and each sets the deadline */

    gsim_zone_says(p, claim, "deadline",
                   !waits || !(claim->terms.keyed || claim->detached)
                   || cell->lease != 0);

    gsim_zone_says(p, claim, "lease",
                   claim->state != ZKL_HELD || cell->bound
                   || cell->lease != 0);

    gsim_zone_says(p, claim, "ttl",
                   claim->state != ZKL_HELD || cell->bound || cell->ttl != 0);
}


static void
gsim_zone_says(gsim_process_t *p, zkl_claim_t *claim, const char *what, int so)
{
    if (!so) {
        gsim_violation("the record %d of process %d has another %s than the "
                       "claim, in state %d", (int) claim->id.record,
                       (int) p->pid, what, (int) claim->state);
    }
}


static void
gsim_zone_check_calls(gsim_process_t *p)
{
    ngx_uint_t     awaited, looks, shared;
    zkl_call_t    *call;
    ngx_queue_t   *q;
    zkl_worker_t  *worker;

    worker = p->worker;
    awaited = 0;
    looks = 0;
    shared = 0;

    for (q = ngx_queue_head(&worker->calls); q != &worker->calls;
         q = ngx_queue_next(q))
    {
        call = ngx_queue_data(q, zkl_call_t, queue);

        awaited += (call->handler != NULL);
        looks += call->looks;
        shared += call->shared;
    }

    gsim_zone_differs(p, "calls", worker->ncalls,
                      gsim_zone_length(&worker->calls));
    gsim_zone_differs(p, "calls that clients wait for", worker->nawaited,
                      awaited);
    gsim_zone_differs(p, "looks with a turn", worker->nlooks, looks);
    gsim_zone_differs(p, "looks", worker->nlooking, shared);
}


/*
 * A place is that of a call that waits for a sibling, or the sibling keeps the
 * errand and the call does not wait any more.  The process whose step is
 * the next was rung, unless the process that had to ring is dead.
 */

static void
gsim_zone_check_errands(gsim_process_t *p)
{
    int                 rung;
    ngx_uint_t          n, state, slot;
    zkl_call_t         *call;
    zkl_place_t        *place;
    zkl_layout_t       *map;
    ngx_atomic_uint_t   self;

    map = p->worker->zone->map;
    self = zkl_layout_self();

    for (n = 0; n < ZKL_PLACES; n++) {
        place = &map->places[n];
        call = p->worker->asked[n];

        if (place->owner != self) {

            if (call != NULL) {
                gsim_violation("process %d waits for errand %d, which is "
                               "another's", (int) p->pid, (int) n);
            }

            continue;
        }

        state = ngx_min((place->word & 0xff), ZKL_ERRAND_REPLIED);
        slot = place->from;

        if (state == ZKL_ERRAND_ASKED) {
            for (slot = 0; map->slots[slot].keeper != place->sibling
                           || map->slots[slot].home != slot; slot++)
            {
                if (slot + 1 == map->nslots) {
                    break;
                }
            }
        }

        rung = map->bits[slot * map->nbits
                         + (map->ncells + n) / ZKL_WORD_BITS]
               >> (n % ZKL_WORD_BITS) & 1;

        if (call != NULL ? state == ZKL_ERRAND_IDLE || call->errand != n
                         : state <= ZKL_ERRAND_ASKED)
        {
            gsim_violation("errand %d of process %d is no call's", (int) n,
                           (int) p->pid);
        }

        if ((state == ZKL_ERRAND_ASKED || state == ZKL_ERRAND_REPLIED)
            && !rung && !zkl_layout_dead(place->sibling, 0))
        {
            gsim_violation("process %d has not heard of errand %d of process "
                           "%d", (int) ((state == ZKL_ERRAND_ASKED
                                         ? place->sibling : self)
                                        & 0x3fffff), (int) n, (int) p->pid);
        }
    }
}


/* A worker knows whether another worker stays, or new workers are to come. */

static void
gsim_zone_check_stays(gsim_process_t *p)
{
    int              stays, comes;
    zkl_layout_t    *map;
    gsim_process_t  *other;

    stays = 0;
    map = p->worker->zone->map;
    comes = (map->reloads != p->worker->zone->reloads
             && map->reloads != map->over);

    for (other = gsim_processes; other != NULL; other = other->next) {

        stays |= (other != p && other->gateway == p->gateway
                  && other->worker != NULL && !other->worker->leaving
                  && (other->state == GSIM_RUNS
                      || other->state == GSIM_LEAVES));
    }

    if ((zkl_zone_outlives(p->worker->zone) != 0) != (stays || comes)) {
        gsim_violation("process %d %s, but %s", (int) p->pid,
                       stays || comes ? "takes itself for the last worker"
                                      : "leaves the claims to another worker",
                       stays || comes ? "is not" : "there is none");
    }
}


static ngx_uint_t
gsim_zone_length(ngx_queue_t *queue)
{
    ngx_uint_t    n;
    ngx_queue_t  *q;

    for (n = 0, q = ngx_queue_head(queue); q != queue; q = ngx_queue_next(q)) {
        n++;
    }

    return n;
}


static void
gsim_zone_differs(gsim_process_t *p, const char *what, ngx_uint_t counts,
    ngx_uint_t is)
{
    if (counts != is) {
        gsim_violation("process %d counts %d %s, but there are %d",
                       (int) p->pid, (int) counts, what, (int) is);
    }
}
