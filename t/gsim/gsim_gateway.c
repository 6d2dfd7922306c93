
/*
 * Gateways: a master, a zone, and workers, which start, reload, leave and die
 * as nginx's do.
 *
 * A worker that cannot start tries again, as in module.c.  A worker that leaves
 * is told by the idle connection, goes on until no timer holds the worker, and
 * stops then; or is told to hurry first, when the time to leave is over.  A
 * worker that died is replaced.  A gateway that dies loses the zone, and so
 * does a gateway that quits: once all workers know of the end, or are dead, no
 * worker grants a lock, because all that the gateway holds is about to be lost.
 */


#include <stdio.h>
#include <stdlib.h>

#include "gsim.h"
#include "shm/quota.h"


#define GSIM_PAGES          72
#define GSIM_LOOK_AGAIN     (20 * GSIM_MS)


gsim_gateway_t  gsim_gateways[GSIM_GATEWAYS];

static u_char  *gsim_memory[GSIM_GATEWAYS];


static void gsim_gateway_master(gsim_gateway_t *g);
static void gsim_gateway_spawn(gsim_gateway_t *g, int i);
static void gsim_worker_start(void *data);
static void gsim_worker_started(void *data, uint64_t tag);
static void gsim_worker_leave(gsim_process_t *p);
static int gsim_worker_newest(gsim_process_t *p);
static void gsim_worker_idle(void *data);
static void gsim_worker_shut(void *data, uint64_t tag);
static void gsim_worker_hurry(void *data);
static int gsim_worker_idles(gsim_process_t *p);
static void gsim_worker_left(void *data, uint64_t tag);
static void gsim_worker_stop(void *data);
static int gsim_worker_adopters(gsim_process_t *p, int staying);
static void gsim_worker_terminated(void *data, uint64_t tag);
static void gsim_worker_again(void *data, uint64_t tag);
static void gsim_gateway_end(gsim_gateway_t *g, int64_t us);
static void gsim_gateway_again(void *data, uint64_t tag);
static int gsim_slot_left(zkl_layout_t *map, ngx_uint_t i);
static void gsim_gateway_quitting(void *data, uint64_t tag);


void
gsim_gateway_reset(void)
{
    int              i;
    int64_t          least;
    ngx_msec_t       timeout;
    gsim_gateway_t  *g;

    least = GSIM_NEVER;
    timeout = (ngx_msec_t) gsim_between(20, 60) * 100;

    for (i = 0; i < GSIM_GATEWAYS; i++) {

        if (gsim_memory[i] == NULL) {
            gsim_memory[i] = aligned_alloc(4096, GSIM_PAGES * 4096);

            if (gsim_memory[i] == NULL) {
                exit(2);
            }
        }

        g = &gsim_gateways[i];

        memset(g, 0, sizeof(gsim_gateway_t));

        g->index = i;
        g->log.log_level = gsim_log_level;

        ngx_str_set(&g->conf.servers, "simulated");
        g->conf.timeout = gsim_chance(2) ? timeout
                          : (ngx_msec_t) gsim_between(20, 60) * 100;

        least = ngx_min(least, (int64_t) g->conf.timeout * GSIM_MS);
    }

    gsim_ensemble_start(least);
}


void
gsim_gateway_start(gsim_gateway_t *g)
{
    int  i;

    gsim_gateway_master(g);

    for (i = 0; i < GSIM_WORKERS; i++) {
        gsim_gateway_spawn(g, i);
    }
}


static void
gsim_gateway_master(gsim_gateway_t *g)
{
    ngx_uint_t       i;
    zkl_layout_t    *map;
    gsim_process_t  *before;

    memset(gsim_memory[g->index], 0, GSIM_PAGES * 4096);

    g->slab = gsim_alloc(sizeof(ngx_slab_pool_t));
    g->slab->start = gsim_memory[g->index];
    g->slab->end = g->slab->start + GSIM_PAGES * 4096;
    g->slab->pfree = GSIM_PAGES - 1;

    memset(&g->shm_zone, 0, sizeof(ngx_shm_zone_t));
    memset(&g->cleanup, 0, sizeof(ngx_pool_cleanup_t));

    g->pool.cleanup = &g->cleanup;
    g->cycle.pool = &g->pool;
    g->cycle.log = &g->log;
    g->shm_zone.shm.addr = (u_char *) g->slab;
    g->shm_zone.shm.log = &g->log;
    g->shm_zone.data = &g->cycle;

    g->master = gsim_process_new(g, GSIM_MASTER);
    g->life++;
    g->up = 1;
    g->stops = 0;
    g->heard = 0;

    before = gsim_enter(g->master);

    if (zkl_zone_init(&g->shm_zone, NULL) != NGX_OK) {
        gsim_violation("the zone cannot be made");
    }

    /* few places for errands, so that each is used again, also a dead one's */

    map = g->shm_zone.data;

    for (i = g->index ? 4 : 1; i < ZKL_PLACES; i++) {
        map->places[i].owner = zkl_layout_self();
    }

    zkl_zone_reloaded(&g->shm_zone, NULL);

    gsim_leave(before);
}


static void
gsim_gateway_spawn(gsim_gateway_t *g, int i)
{
    gsim_process_t  *p;

    p = gsim_process_new(g, GSIM_RUNS);

    g->workers[i] = p;

    gsim_say("gateway %d: worker %d is process %d", g->index, i, (int) p->pid);

    gsim_at(gsim_now + gsim_between(100, 3000), gsim_worker_started, p, 0);
}


static void
gsim_worker_started(void *data, uint64_t tag)
{
    gsim_process_t *p = data;

    (void) tag;

    if (p->state == GSIM_DEAD || p->worker != NULL
        || (p->state == GSIM_LEAVES && p->begun))
    {
        return;
    }

    if (gsim_turn(p, gsim_worker_start, p)) {
        p->begun = 1;
    }

    if (p->worker == NULL) {
        gsim_at(gsim_now + 500 * GSIM_MS, gsim_worker_started, p, 0);
    }
}


static void
gsim_worker_start(void *data)
{
    gsim_process_t *p = data;

    ngx_uint_t  cache;

    cache = gsim_chance(4) ? 0 : 100;

    p->worker = zkl_worker_start(&p->gateway->conf, cache,
                                 &p->gateway->shm_zone, &p->gateway->log);

    if (gsim_long_names && p->worker != NULL) {

        /* as after many claims: the end of the worker's chunk is near */

        p->worker->zone->next = ZKL_CHUNK - gsim_below(16);
    }
}


void
gsim_gateway_reload(gsim_gateway_t *g)
{
    int              i;
    gsim_process_t  *old[GSIM_WORKERS], *before;

    gsim_say("gateway %d reloads", g->index);
    gsim_count.reloads++;

    for (i = 0; i < GSIM_WORKERS; i++) {
        old[i] = g->workers[i];
    }

    before = gsim_enter(g->master);
    zkl_zone_reloaded(&g->shm_zone, &g->shm_zone);
    gsim_leave(before);

    for (i = 0; i < GSIM_WORKERS; i++) {
        gsim_gateway_spawn(g, i);
        gsim_worker_leave(old[i]);
    }
}


/* The master tells the worker to quit. */

static void
gsim_worker_leave(gsim_process_t *p)
{
    if (p == NULL || p->state != GSIM_RUNS) {
        return;
    }

    p->state = GSIM_LEAVES;

    gsim_at(gsim_now + gsim_between(100, 5000), gsim_worker_left, p, 1);

    /* worker_shutdown_timeout */

    gsim_at(gsim_now + gsim_between(1, 12) * GSIM_S, gsim_worker_shut, p, 0);
}


static void
gsim_worker_idle(void *data)
{
    gsim_process_t *p = data;

    if (p->worker != NULL) {
        p->wakeup.close = 1;
        p->wakeup.read->handler(p->wakeup.read);
    }
}


static void
gsim_worker_shut(void *data, uint64_t tag)
{
    gsim_process_t *p = data;

    (void) tag;

    if (p->state == GSIM_LEAVES && p->worker != NULL
        && !gsim_turn(p, gsim_worker_hurry, p))
    {
        gsim_at(gsim_now + GSIM_LOOK_AGAIN, gsim_worker_shut, p, 0);
    }
}


static void
gsim_worker_hurry(void *data)
{
    gsim_process_t *p = data;

    gsim_look_leave(p);

    p->wakeup.close = 1;
    p->wakeup.error = 1;
    p->wakeup.read->handler(p->wakeup.read);
}


/* As in nginx, looks after each turn whether a timer still holds the worker. */

void
gsim_worker_turned(gsim_process_t *p)
{
    if (p->state != GSIM_LEAVES || !p->told) {
        return;
    }

    if (gsim_worker_idles(p)) {
        gsim_at(gsim_now, gsim_worker_left, p, 0);
    }
}


/* A stream holds the worker, because each stream has a timer. */

static int
gsim_worker_idles(gsim_process_t *p)
{
    int              idle;
    gsim_process_t  *before;

    before = gsim_enter(p);
    idle = ngx_event_no_timers_left() == NGX_OK && !gsim_user_streams(p)
           && !gsim_look_holds(p);
    gsim_leave(before);

    return idle;
}


/* tag: the worker was not told so far */

static void
gsim_worker_left(void *data, uint64_t tag)
{
    int              left;
    gsim_process_t  *p = data;

    if (p->state != GSIM_LEAVES) {
        return;
    }

    if (tag) {

        if (p->begun && gsim_turn(p, gsim_worker_idle, p)) {
            p->told = 1;
            p->gateway->heard |= gsim_worker_newest(p);
            gsim_worker_turned(p);

        } else {
            gsim_at(gsim_now + GSIM_LOOK_AGAIN, gsim_worker_left, p, 1);
        }

        return;
    }

    left = 0;

    if (!p->in_turn && !gsim_stands(p)) {
        left = gsim_worker_idles(p);
    }

    if (!left) {
        return;
    }

    (void) gsim_turn(p, gsim_worker_stop, p);
}


/* Whether no reload has replaced the worker. */

static int
gsim_worker_newest(gsim_process_t *p)
{
    int  i;

    for (i = 0; i < GSIM_WORKERS; i++) {
        if (p->gateway->workers[i] == p) {
            return 1;
        }
    }

    return 0;
}


static void
gsim_worker_stop(void *data)
{
    gsim_process_t *p = data;

    int            stayed;
    zkl_worker_t  *worker;

    gsim_say("worker stops");

    worker = p->worker;

    if (!p->terminates) {
        gsim_user_process_left(p);

    } else {
        gsim_look_leave(p);
    }

    if (worker != NULL) {
        p->ending = 1;
        stayed = gsim_worker_adopters(p, 1);
        p->outlived = !zkl_session_connected(worker->session);

        zkl_worker_stop(worker);

        if (stayed && !gsim_worker_adopters(p, 0)) {
            p->outlived = 1;
        }

        if (p->nblocks != 0) {
            gsim_violation("process %d leaves %d blocks of memory, one of %d "
                           "bytes", (int) p->pid, (int) p->nblocks,
                           (int) p->blocks->size);
        }
    }

    p->worker = NULL;
    p->state = GSIM_DEAD;
    p->listens = 0;

    gsim_client_dead(p);

    if (p->terminates) {
        gsim_user_process_gone(p);
    }

    gsim_look_gone(p);

    gsim_gateway_died(p);
}


/* Whether another worker can adopt a slot still; staying: and was not told. */

static int
gsim_worker_adopters(gsim_process_t *p, int staying)
{
    gsim_process_t  *other;

    for (other = gsim_processes; other != NULL; other = other->next) {

        if (other != p && other->gateway == p->gateway && other->worker != NULL
            && !other->ending && !(staying && other->told))
        {
            return 1;
        }
    }

    return 0;
}


/* Replaces a worker that died, unless the worker had left. */

void
gsim_gateway_died(gsim_process_t *p)
{
    int              i;
    gsim_gateway_t  *g;

    g = p->gateway;

    for (i = 0; i < GSIM_WORKERS && g->up && !g->stops; i++) {
        if (g->workers[i] == p) {
            gsim_at(gsim_now + gsim_between(1, 400) * GSIM_MS,
                    gsim_worker_again, p, (uint64_t) i);
        }
    }
}


static void
gsim_worker_again(void *data, uint64_t tag)
{
    gsim_process_t *p = data;

    if (p->gateway->up && !p->gateway->stops && p->gateway->workers[tag] == p)
    {
        gsim_gateway_spawn(p->gateway, (int) tag);
    }
}


void
gsim_gateway_vanish(gsim_gateway_t *g)
{
    gsim_gateway_end(g, gsim_between(180, 240) * GSIM_S);
}


void
gsim_gateway_kill(gsim_gateway_t *g)
{
    gsim_gateway_end(g, gsim_between(10, 3000) * GSIM_MS);
}


/* All processes die; the gateway starts anew in us microseconds. */

static void
gsim_gateway_end(gsim_gateway_t *g, int64_t us)
{
    int              i;
    ngx_uint_t       k;
    gsim_process_t  *p;
    zkl_layout_t    *map;

    gsim_say("gateway %d dies", g->index);
    gsim_count.gateways++;

    for (p = gsim_processes; p != NULL; p = p->next) {

        if (p->gateway == g && p->state != GSIM_DEAD && p->in_turn) {
            /* a process stands still in a turn: not now */
            return;
        }
    }

    g->up = 0;
    map = g->shm_zone.data;

    for (k = 0; k < map->own->nwakeups; k++) {
        (void) close(map->own->wakeups[k]);
    }

    for (p = gsim_processes; p != NULL; p = p->next) {
        if (p->gateway == g && p->state != GSIM_DEAD) {
            gsim_process_kill(p);
        }
    }

    for (i = 0; i < GSIM_WORKERS; i++) {
        g->workers[i] = NULL;
    }

    gsim_at(gsim_now + us, gsim_gateway_again, g, g->life);
}


static void
gsim_gateway_again(void *data, uint64_t tag)
{
    gsim_gateway_t *g = data;

    if (!g->up && g->life == tag) {
        gsim_gateway_start(g);
    }
}


void
gsim_gateway_stop(gsim_gateway_t *g)
{
    int              i;
    gsim_process_t  *p;

    gsim_say("gateway %d stops", g->index);

    g->stops = 1;

    for (p = gsim_processes; p != NULL; p = p->next) {
        if (p->gateway == g) {
            p->quits = 1;
        }
    }

    for (i = 0; i < GSIM_WORKERS; i++) {
        gsim_worker_leave(g->workers[i]);
    }
}


/* Ends with grace, and starts anew when all workers are gone. */

void
gsim_gateway_quit(gsim_gateway_t *g)
{
    if (g->stops) {
        return;
    }

    gsim_count.quits++;

    gsim_gateway_stop(g);
    gsim_gateway_quitting(g, g->life);
}


/* Ends at once, old workers too, and starts anew. */

void
gsim_gateway_terminate(gsim_gateway_t *g)
{
    gsim_process_t  *p;

    gsim_say("gateway %d is terminated", g->index);
    gsim_count.terms++;

    g->stops = 1;

    for (p = gsim_processes; p != NULL; p = p->next) {

        if (p->gateway == g && p->state != GSIM_DEAD
            && p->state != GSIM_MASTER)
        {
            gsim_at(gsim_now + gsim_between(10, 5000), gsim_worker_terminated,
                    p, 0);
        }
    }

    gsim_gateway_quitting(g, g->life);
}


static void
gsim_worker_terminated(void *data, uint64_t tag)
{
    gsim_process_t *p = data;

    (void) tag;

    if (p->state == GSIM_DEAD) {
        return;
    }

    p->terminates = 1;

    if (!p->begun || !gsim_turn(p, gsim_worker_stop, p)) {
        gsim_at(gsim_now + GSIM_LOOK_AGAIN, gsim_worker_terminated, p, 0);
    }
}


static void
gsim_gateway_quitting(void *data, uint64_t tag)
{
    gsim_gateway_t *g = data;

    if (!g->up || g->life != tag) {
        return;
    }

    if (gsim_gateway_stopped(g)) {
        gsim_gateway_kill(g);
    }

    gsim_at(gsim_now + GSIM_LOOK_AGAIN, gsim_gateway_quitting, g, tag);
}


/*
 * nginx tells a worker to quit once: a worker that a reload has replaced hears
 * of the gateway's end from the workers that replaced it, if these live to hear
 * of the end themselves.
 */

void
gsim_gateway_grants(gsim_process_t *p)
{
    gsim_process_t  *other;

    if (!p->gateway->heard || p->stood) {
        return;
    }

    for (other = gsim_processes; other != NULL; other = other->next) {

        if (other->gateway == p->gateway && other->state != GSIM_DEAD
            && other->state != GSIM_MASTER && !other->told)
        {
            return;
        }
    }

    gsim_violation("process %d grants a lock, but its gateway ends and closes "
                   "the session", (int) p->pid);
}


int
gsim_gateway_stopped(gsim_gateway_t *g)
{
    gsim_process_t  *p;

    for (p = gsim_processes; p != NULL; p = p->next) {
        if (p->gateway == g && p->state != GSIM_DEAD
            && p->state != GSIM_MASTER)
        {
            return 0;
        }
    }

    return 1;
}


/* All gateways are up, and no worker leaves or stands still. */

int
gsim_gateway_settled(void)
{
    int              i;
    gsim_process_t  *p;

    for (i = 0; i < GSIM_GATEWAYS; i++) {
        if (!gsim_gateways[i].up || gsim_gateways[i].stops) {
            return 0;
        }
    }

    for (p = gsim_processes; p != NULL; p = p->next) {
        if (p->state == GSIM_LEAVES || p->in_turn || gsim_stands(p)) {
            return 0;
        }
    }

    return 1;
}


int
gsim_gateway_shares(gsim_gateway_t *g, void *p)
{
    return (u_char *) p >= gsim_memory[g->index]
           && (u_char *) p < gsim_memory[g->index] + GSIM_PAGES * 4096;
}


int
gsim_gateway_promise(gsim_gateway_t *g, void *p)
{
    size_t         at;
    zkl_layout_t  *map;

    map = g->shm_zone.data;

    if ((u_char *) p < map->cells) {
        return 0;
    }

    at = (size_t) ((u_char *) p - map->cells) % ZKL_CELL;

    return at < offsetof(zkl_cell_t, watchers);
}


uint32_t
gsim_gateway_record(gsim_gateway_t *g, void *p)
{
    zkl_layout_t  *map;

    map = g->shm_zone.data;

    return ((u_char *) p < map->cells)
           ? ZKL_NO_RECORD
           : (uint32_t) (((u_char *) p - map->cells) / ZKL_CELL);
}


/*
 * The slot may stay an orphan.  Either the slot's last keeper had no connection
 * to close the session with, when the keeper ended; or a process that did not
 * end by itself was the last to have one.
 *
 * Or the last keeper left the slot to a worker that stayed, but that was told
 * to quit and ended while the last keeper closed the session, which takes a
 * while.  The keeper cannot abandon the slot before the close, because the
 * successor would attach to the session; and does not free the slot after the
 * close, because a worker that leaves as well may still adopt the records of
 * the durable claims.  The slot has to be given back if no worker stayed when
 * the keeper began to stop, or if a worker could adopt the slot afterwards.
 */

static int
gsim_slot_left(zkl_layout_t *map, ngx_uint_t i)
{
    gsim_session_t  *session;

    if (map->slots[i].keeper != ZKL_ORPHAN || !map->slots[i].keyed) {
        return 0;
    }

    session = gsim_server_session(map->slots[i].key.id);

    return session == NULL || session->last == NULL || !session->last->ending
           || session->last->outlived;
}


ngx_uint_t
gsim_gateway_counts(gsim_gateway_t *g, uint64_t key)
{
    uint64_t       starts;
    ngx_uint_t     i, k, n;
    zkl_layout_t  *map;

    map = g->shm_zone.data;
    n = 0;

    for (i = 0; i < map->nchunks; i++) {
        starts = map->owners[i] ? map->starts[i] : 0;

        for (k = 0; starts != 0; k++, starts >>= 1) {
            n += (starts & 1)
                 && zkl_layout_cell(map, (uint32_t) (i * ZKL_CHUNK + k))->quota
                    == key;
        }
    }

    return n;
}


void
gsim_gateway_check(gsim_gateway_t *g)
{
    ngx_uint_t       i;
    zkl_cell_t       cell;
    gsim_process_t  *before;
    zkl_layout_t    *map;

    map = g->shm_zone.data;

    for (i = 0; i < map->nslots; i++) {
        if (map->slots[i].keeper != ZKL_FREE && !gsim_slot_left(map, i)) {
            gsim_violation("gateway %d: slot %d is not given back", g->index,
                           (int) i);
        }
    }

    for (i = 0; i < map->nchunks; i++) {
        if (map->owners[i] != 0 && gsim_slot_left(map, map->owners[i] - 1)) {
            continue;
        }

        if (map->owners[i] != 0 || map->starts[i] != 0) {
            gsim_violation("gateway %d: records of chunk %d are left",
                           g->index, (int) i);
        }
    }

    for (i = 0; i < map->nquotas; i++) {
        if (map->quotas[i] != 0 && (map->quotas[i] & 0xfffff) == 0) {
            gsim_violation("gateway %d: no claim counts in a word of the "
                           "quotas, but the word is not free", g->index);
        }
    }

    /* no claim is left, so none counts */

    for (i = 0; i < GSIM_QUOTAS; i++) {
        if (gsim_gateway_counts(g, gsim_quota(i)) == 0
            && zkl_quota_take(map, &cell, gsim_quota(i), 1) != NGX_OK)
        {
            gsim_violation("gateway %d: claims are counted under the quota %d "
                           "for ever", g->index, (int) i);
        }
    }

    before = gsim_enter(g->master);

    ngx_process = NGX_PROCESS_MASTER;
    g->cleanup.handler(g->cleanup.data);
    ngx_process = NGX_PROCESS_WORKER;

    gsim_leave(before);

    if (g->master->nblocks != 0) {
        gsim_violation("gateway %d: the master leaves memory", g->index);
    }
}


/* A zone says until when each session surely lives, as src/ believes. */

void
gsim_gateway_check_over(gsim_session_t *session)
{
    int              i;
    ngx_uint_t       k;
    ngx_msec_int_t   left;
    zkl_layout_t    *map;
    gsim_gateway_t  *g;

    for (i = 0; i < GSIM_GATEWAYS; i++) {
        g = &gsim_gateways[i];
        map = g->shm_zone.data;

        if (!g->up) {
            continue;
        }

        for (k = 0; k < map->nslots; k++) {

            if (map->slots[k].keyed && map->slots[k].key.id == session->id) {
                left = (ngx_msec_int_t) (map->slots[k].alive
                                         - (ngx_msec_t) (gsim_now / GSIM_MS));

                if (left > 1) {
                    gsim_violation("session %llx is over, but gateway %d "
                                   "counts on it for %d ms more",
                                   (long long) session->id, i, (int) left);
                }
            }
        }
    }
}


gsim_process_t *
gsim_gateway_pick(int gateway)
{
    int              i;
    gsim_process_t  *p;

    i = (int) gsim_below(GSIM_WORKERS);
    p = gsim_gateways[gateway].workers[i];

    if (p == NULL || p->state != GSIM_RUNS || p->worker == NULL) {
        p = gsim_gateways[gateway].workers[(i + 1) % GSIM_WORKERS];
    }

    return (p != NULL && p->state == GSIM_RUNS && p->worker != NULL) ? p
                                                                     : NULL;
}
