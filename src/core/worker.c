
/*
 * The worker: how a worker starts and leaves, what becomes of the sessions and
 * the slots then, and the wiring: the worker hears from the loop, the session,
 * the siblings and the clock, and tells the locks, claims, calls and adoptions.
 *
 * Everything here runs on the event loop.  `zone` and `session` are NULL only
 * while the worker is freed: the start failed, or the stop has given both away.
 * Calls and claims that are freed then still call zkl_worker_busy(), so that
 * function checks `session`.  `wakeup` is the connection that puts the slot's
 * descriptor into the loop.  All workers inherit the descriptors of the zone,
 * so a worker that leaves closes only a copy.
 *
 * A worker leaves after a reload, at a quit and at a stop.  nginx closes the
 * idle connections then, `wakeup` among them, and from that moment the worker
 * makes its leases durable, also those that it still grants.  The worker stays
 * until all are durable, for up to three seconds, and until its waiters were
 * told.  Then the session is
 *
 *   left    if a successor comes that needs it: a worker of the same nginx that
 *           stays, or that comes after the reload, which the master counts
 *           before it starts the new workers.  The slot is an orphan then, and
 *           a worker that stays is woken to adopt it.
 *   closed  otherwise, and at a stop: ephemeral claims are free at once.
 *
 * At a quit all workers leave at nearly the same time.  So a worker notes first
 * that it leaves, and looks then whether another stays; and one that leaves a
 * slot makes the slot an orphan first, and wakes then a worker that stays, or
 * else all that leave: the last worker adopts the orphans.  One that no reload
 * has replaced leaves the session only for a claim that is not durable.
 *
 * A worker without a successor leaves for good: it grants no claim any more,
 * and checks that before each grant.  The workers of a former reload count on
 * the new workers, until a quit notes in the zone that these leave, too.  The
 * last worker that leaves wakes the others, which look again.
 */


#include "core/worker.h"
#include "shm/seq_index.h"
#include "core/call.h"
#include "core/serve.h"
#include "core/adopt.h"
#include "core/custody.h"
#include "core/follow.h"
#include "core/names.h"


/* milliseconds from the start to the first sweep */
#define ZKL_FIRST_SWEEP               200

/* milliseconds from sweep to sweep */
#define ZKL_SWEEP               1000

/* how long a worker that leaves stays for leases that are not durable yet */
#define ZKL_LAST                3000


static void zkl_worker_begin_leaving(zkl_worker_t *worker);
static ngx_uint_t zkl_worker_holds(zkl_worker_t *worker, ngx_uint_t durable);
static void zkl_worker_free(zkl_worker_t *worker);
static void zkl_worker_refuse_waiters(zkl_worker_t *worker);
static void zkl_worker_shut(zkl_worker_t *worker);
static void zkl_worker_wakeup_handler(ngx_event_t *ev);
static void zkl_worker_write_handler(ngx_event_t *ev);
static void zkl_worker_ring(void *data, uint32_t record);
static void zkl_worker_move(ngx_queue_t *queue, ngx_queue_t *rest);
static ngx_queue_t *zkl_worker_next(ngx_queue_t *rest, ngx_queue_t *queue);
static void zkl_worker_opened(void *data, const zkl_key_t *key);
static void zkl_worker_connected(void *data, ngx_uint_t fresh);
static void zkl_worker_suspended(void *data);
static void zkl_worker_tell_locks(ngx_queue_t *locks,
    void (*tell)(zkl_lock_t *lock));
static void zkl_worker_lost(void *data);
static void zkl_worker_unreachable(void *data);
static void zkl_worker_heard(zkl_worker_t *worker);
static void zkl_worker_tell_calls(zkl_worker_t *worker,
    void (*tell)(zkl_call_t *call));
static void zkl_worker_changed(void *data, ngx_str_t *path,
    ngx_uint_t deleted);
static void zkl_worker_listed(void *data, ngx_str_t *path);
static void zkl_worker_made(void *data, int64_t zxid);
static void zkl_worker_proceed(zkl_worker_t *worker);
static void zkl_worker_sweep_handler(ngx_event_t *ev);


static const zkl_session_events_t  zkl_worker_events =
{
    zkl_worker_opened,
    zkl_worker_connected,
    zkl_worker_suspended,
    zkl_worker_lost,
    zkl_worker_unreachable,
    zkl_worker_changed,
    zkl_worker_listed,
    zkl_worker_made,
    zkl_worker_answered
};


zkl_worker_t *
zkl_worker_start(zkl_session_conf_t *conf, ngx_uint_t cache,
    ngx_shm_zone_t *shm_zone, ngx_log_t *log)
{
    int                err;
    ngx_uint_t         i;
    zkl_worker_t      *worker;
    ngx_connection_t  *c;

    worker = ngx_calloc(sizeof(zkl_worker_t), log);
    if (worker == NULL) {
        return NULL;
    }

    worker->ident.fd = (ngx_socket_t) -1;
    worker->log = log;
    worker->conf = conf;
    worker->cache = cache;

    ngx_rbtree_init(&worker->locks, &worker->locks_sentinel,
                    ngx_str_rbtree_insert_value);
    ngx_rbtree_init(&worker->renumbered, &worker->renumbered_sentinel,
                    ngx_str_rbtree_insert_value);
    ngx_rbtree_init(&worker->followed, &worker->followed_sentinel,
                    ngx_str_rbtree_insert_value);

    ngx_queue_init(&worker->adoptions);
    ngx_queue_init(&worker->gates);
    ngx_queue_init(&worker->posted);
    ngx_queue_init(&worker->ended);
    ngx_queue_init(&worker->active);
    ngx_queue_init(&worker->idle);
    ngx_queue_init(&worker->transient);
    ngx_queue_init(&worker->calls);
    ngx_queue_init(&worker->looks);
    ngx_queue_init(&worker->searches);
    ngx_rbtree_init(&worker->looking, &worker->looking_sentinel,
                    ngx_str_rbtree_insert_value);

    for (i = 0; i < ZKL_SUBS; i++) {
        ngx_queue_init(&worker->subs[i]);
    }

    zkl_worker_timer(worker, &worker->turn, zkl_lock_turn_handler);
    zkl_worker_timer(worker, &worker->sweep, zkl_worker_sweep_handler);
    worker->sweep.cancelable = 1;

    worker->zone = zkl_zone_join(shm_zone, log);
    if (worker->zone == NULL) {
        goto failed;
    }

    worker->nclaims = worker->zone->map->ncells;

    worker->claims = ngx_calloc(worker->nclaims
                                * sizeof(zkl_claim_t *), log);
    if (worker->claims == NULL) {
        goto failed;
    }

    err = zkl_mailbox_init(&worker->mailbox,
                           worker->zone->map->own->wakeups[worker->zone->slot]);
    if (err != 0) {
        ngx_log_error(NGX_LOG_ALERT, log, err, "pthread_mutex_init() failed");
        goto failed;
    }

    /* puts the slot's descriptor into the event loop */

    c = ngx_get_connection(worker->mailbox.fd, log);
    if (c == NULL) {
        goto failed;
    }

    c->data = worker;

    c->read->handler = zkl_worker_wakeup_handler;
    c->read->log = log;
    c->write->handler = zkl_worker_write_handler;
    c->write->log = log;

    /*
     * Level-triggered, so that a wake-up cannot be missed; idle, so that
     * nginx calls the handler when a graceful exit begins.
     */

    c->idle = 1;

    if (ngx_add_event(c->read, NGX_READ_EVENT, 0) != NGX_OK) {
        ngx_free_connection(c);
        goto failed;
    }

    worker->wakeup = c;

    worker->session = zkl_session_open(conf, &worker->mailbox,
                                   &zkl_worker_events, worker, NULL,
                                   &worker->zone->own->alive, log);
    if (worker->session == NULL) {
        goto failed;
    }

    /* the workers that start beside this worker adopt slots, too */

    ngx_add_timer(&worker->sweep, ZKL_FIRST_SWEEP);

    return worker;

failed:

    zkl_worker_free(worker);

    return NULL;
}


void
zkl_worker_stop(zkl_worker_t *worker)
{
    ngx_uint_t      successor, needed;
    zkl_zone_t     *zone;
    zkl_session_t  *session;

    zkl_worker_begin_leaving(worker);

    zkl_adopt_leave(worker);

    zone = worker->zone;
    session = worker->session;

    successor = zkl_worker_holds(worker, 1) && zkl_zone_outlives(zone);

    needed = successor
             && (zone->map->reloads != zone->reloads
                 || zkl_worker_holds(worker, 0));

    worker->session = NULL;

    /*
     * No caller is told.  What is under way is freed with the session: no claim
     * may know of it.
     */

    zkl_worker_tell_calls(worker, zkl_call_discard);
    zkl_worker_tell_locks(&worker->active, zkl_lock_discard);
    zkl_worker_tell_locks(&worker->idle, zkl_lock_discard);

    zkl_lock_reap(worker);

    if (worker->turn.posted) {
        ngx_delete_posted_event(&worker->turn);
    }

    zkl_custody_stop(worker);

    worker->zone = NULL;

    zkl_worker_part(session, zone, successor, needed);

    zkl_worker_free(worker);
}


/*
 * The successor makes the held claims durable, moves the records, and closes
 * the session if that is open.  At a quit and a stop the siblings end at the
 * same time, and may be no successors a moment later: so the session is closed
 * here at a stop, and at a quit if all held claims are durable.
 */

void
zkl_worker_part(zkl_session_t *session, zkl_zone_t *zone, ngx_uint_t successor,
    ngx_uint_t needed)
{
    ngx_uint_t  closes;

    closes = zkl_session_connected(session) && (ngx_terminate || !needed);

    if (closes) {
        zkl_session_close(session);

    } else {
        zkl_session_leave(session);
    }

    if ((successor || !closes) && zone->own->keyed) {
        zkl_zone_abandon(zone);

    } else {
        zkl_zone_free(zone);
    }
}


/* Begins to leave: the waiters are served to the end.  May be called again. */

static void
zkl_worker_begin_leaving(zkl_worker_t *worker)
{
    if (!worker->leaving) {
        worker->leaving = 1;
        worker->left = ngx_current_msec;
    }

    zkl_zone_leaving(worker->zone);

    /* the held claims become durable at once */

    if (zkl_session_connected(worker->session)) {
        zkl_worker_tell_claims(worker, zkl_claim_durable);
    }

    zkl_worker_busy(worker);

    if (zkl_worker_over(worker)) {
        zkl_zone_wake(worker->zone);
    }
}


ngx_uint_t
zkl_worker_over(zkl_worker_t *worker)
{
    return worker->leaving && !zkl_zone_outlives(worker->zone);
}


/*
 * Whether a claim is held, or may be held because another gateway may have
 * renewed the lease or told of the grant.  Without durable, held claims that
 * are durable do not count, because a durable claim needs no session.
 */

static ngx_uint_t
zkl_worker_holds(zkl_worker_t *worker, ngx_uint_t durable)
{
    ngx_uint_t    i;
    zkl_claim_t  *claim;

    for (i = 0; i < worker->nclaims; i++) {
        claim = worker->claims[i];

        if (claim != NULL
            && (claim->state == ZKL_EXPIRING
                || (claim->state == ZKL_HELD
                    && (durable || claim->lasting != ZKL_DURABLE))))
        {
            return 1;
        }
    }

    return 0;
}


void
zkl_worker_timer(zkl_worker_t *worker, ngx_event_t *ev,
    ngx_event_handler_pt handler)
{
    ev->handler = handler;
    ev->data = &worker->ident;
    ev->log = worker->log;
}


static void
zkl_worker_free(zkl_worker_t *worker)
{
    if (worker->sweep.timer_set) {
        ngx_del_timer(&worker->sweep);
    }

    if (worker->wakeup != NULL) {

        /* this process's copy of the slot's descriptor */

        ngx_close_connection(worker->wakeup);
    }

    if (worker->mailbox.last != NULL) {
        worker->mailbox.fd = -1;
        zkl_mailbox_done(&worker->mailbox);
    }

    if (worker->zone != NULL) {
        zkl_zone_free(worker->zone);
    }

    ngx_free(worker->claims);
    ngx_free(worker);
}


/* The wiring: what the worker hears, and the objects that the worker tells. */


/*
 * A worker that leaves for good refuses the waiters, because the session is
 * about to be closed.  The worker may find out only when the last sibling
 * begins to leave.
 */

static void
zkl_worker_refuse_waiters(zkl_worker_t *worker)
{
    if (zkl_worker_over(worker)) {
        zkl_worker_tell_claims(worker, zkl_claim_over);
    }
}


/* The time is over: refuses the waiters before nginx cuts the clients off. */

static void
zkl_worker_shut(zkl_worker_t *worker)
{
    ngx_uint_t  i, n;

    n = 0;

    for (i = 0; i < worker->nclaims; i++) {

        if (worker->claims[i] != NULL) {
            n += zkl_claim_shut(worker->claims[i]);
        }
    }

    zkl_worker_tell_calls(worker, zkl_call_unreachable);

    if (n != 0) {
        ngx_log_error(NGX_LOG_WARN, worker->log, 0,
                      "worker_shutdown_timeout: %ui clients that waited for "
                      "locks, or held them by a request, were told", n);
    }
}


static void
zkl_worker_wakeup_handler(ngx_event_t *ev)
{
    ngx_connection_t  *c;
    zkl_worker_t      *worker;

    c = ev->data;
    worker = c->data;

    if (c->close) {

        /* nginx begins to leave, or does not wait any longer */

        ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ev->log, 0,
                       "zk lock worker: leaving, shut: %d", c->error);

        zkl_worker_begin_leaving(worker);
        zkl_adopt_orphans(worker);
        zkl_worker_refuse_waiters(worker);

        if (c->error) {
            zkl_worker_shut(worker);
        }

        c->close = 0;
        c->error = 0;
        return;
    }

    (void) zkl_mailbox_take(&worker->mailbox, NULL);

    if (worker->away && zkl_session_ready(worker->session)) {
        zkl_worker_heard(worker);
    }

    zkl_doorbell_answer(worker->zone->map, worker->zone->slot, zkl_worker_ring,
                        worker);

    if (worker->zone->map->orphans) {
        zkl_adopt_orphans(worker);
    }

    zkl_worker_refuse_waiters(worker);
}


static void
zkl_worker_write_handler(ngx_event_t *ev)
{
    /* the event is never added, but nginx may call the handler */
}


static void
zkl_worker_ring(void *data, uint32_t record)
{
    zkl_worker_t  *worker = data;

    ngx_queue_t          rung;
    ngx_queue_t         *q, *subs;
    zkl_subscription_t  *sub;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, worker->log, 0,
                   "zk lock worker: rung for record %uD", record);

    if (record >= worker->nclaims) {
        zkl_serve_errand(worker, record - worker->nclaims);
        return;
    }

    /* a handler may subscribe again, or end another subscription */

    subs = &worker->subs[record % ZKL_SUBS];
    zkl_worker_move(subs, &rung);

    while ((q = zkl_worker_next(&rung, subs)) != NULL) {
        sub = ngx_queue_data(q, zkl_subscription_t, queue);

        if (sub->record == record) {
            zkl_worker_unsubscribe(sub);
            sub->handler(sub);
        }
    }
}


/*
 * Moves all members of a queue to `rest`, from which zkl_worker_next() gives
 * them back to the queue, one by one.  Meanwhile any member may leave, and what
 * joins the queue is not among the rest.
 */

static void
zkl_worker_move(ngx_queue_t *queue, ngx_queue_t *rest)
{
    ngx_queue_init(rest);
    ngx_queue_add(rest, queue);
    ngx_queue_init(queue);
}


static ngx_queue_t *
zkl_worker_next(ngx_queue_t *rest, ngx_queue_t *queue)
{
    ngx_queue_t  *q;

    if (ngx_queue_empty(rest)) {
        return NULL;
    }

    q = ngx_queue_head(rest);

    ngx_queue_remove(q);
    ngx_queue_insert_tail(queue, q);

    return q;
}


void
zkl_worker_subscribe(zkl_worker_t *worker, zkl_subscription_t *sub,
    uint32_t record)
{
    sub->record = record;
    sub->set = 1;

    ngx_queue_insert_tail(&worker->subs[record % ZKL_SUBS], &sub->queue);
}


void
zkl_worker_unsubscribe(zkl_subscription_t *sub)
{
    if (sub->set) {
        sub->set = 0;
        ngx_queue_remove(&sub->queue);
    }
}


/*
 * A worker that leaves answers all requests first, each at the latest when the
 * time of the request is over.  Claims that ZooKeeper refuses to delete would
 * keep the worker for ever, so the waiter is told, and the claims are left to
 * the end of the session.  Out of reach, only calls that a client waits for
 * keep the worker, because no client waits for a delete that is owed.
 */

void
zkl_worker_busy(zkl_worker_t *worker)
{
    ngx_uint_t  secures;

    if (worker->session == NULL) {
        worker->sweep.cancelable = 1;

    } else if (worker->nuntold != 0) {
        worker->sweep.cancelable = 0;

    } else if (zkl_session_reachable(worker->session)) {

        /* a worker that leaves makes its leases durable first */

        secures = worker->leaving
                  && (worker->nfleeting != 0
                      || !ngx_queue_empty(&worker->adoptions))
                  && ngx_current_msec - worker->left < ZKL_LAST;

        worker->sweep.cancelable = worker->nblocking == 0
                                   && ngx_queue_empty(&worker->calls)
                                   && !secures;

    } else {
        worker->sweep.cancelable = (worker->nawaited == 0);
    }
}


static void
zkl_worker_opened(void *data, const zkl_key_t *key)
{
    zkl_worker_t  *worker = data;

    /* from here on another worker can adopt the session */

    zkl_zone_set_key(worker->zone, key);

    worker->floor = (int64_t) worker->zone->map->present;
}


static void
zkl_worker_connected(void *data, ngx_uint_t fresh)
{
    zkl_worker_t  *worker = data;

    zkl_worker_count(worker, ZKL_COUNT_CONNECTED, 1);

    /* what a worker has left is made durable through this session */

    zkl_adopt_orphans(worker);

    /*
     * The same session, perhaps on another server, which may lag behind: the
     * session sent a barrier ahead of these lists.
     */

    if (!fresh) {
        zkl_worker_tell_locks(&worker->active, zkl_lock_list);
    }

    zkl_worker_heard(worker);
    zkl_worker_tell_claims(worker, zkl_claim_sure);
    zkl_follow_connected(worker);
    zkl_custody_connected(worker);
}


static void
zkl_worker_suspended(void *data)
{
    zkl_worker_t  *worker = data;

    zkl_worker_count(worker, ZKL_COUNT_SUSPENDED, 1);

    zkl_seq_index_clear(worker->zone);

    zkl_worker_tell_locks(&worker->active, zkl_lock_forget);
    zkl_worker_tell_locks(&worker->idle, zkl_lock_forget);
    zkl_worker_tell_claims(worker, zkl_claim_suspended);
}


/* The first create of a new session shows whether ZooKeeper has gone back. */

static void
zkl_worker_made(void *data, int64_t zxid)
{
    zkl_worker_t  *worker = data;

    if (zkl_zone_made(worker->zone, worker->floor, zxid)) {
        zkl_worker_count(worker, ZKL_COUNT_ROLLBACKS, 1);

        ngx_log_error(NGX_LOG_ERR, worker->log, 0,
                      "ZooKeeper knows less than this gateway has seen: it has "
                      "lost data, or was restored from an older copy; its "
                      "transactions are at 0x%xL, after 0x%xL: locks may have "
                      "been lost, and fencing tokens go back", zxid,
                      worker->floor);
    }

    if (zxid <= worker->floor) {
        worker->floor = 0;
    }
}


void
zkl_worker_answered(void *data, ngx_uint_t write, ngx_uint_t n,
    ngx_msec_int_t time)
{
    zkl_worker_t  *worker = data;

    if (n != 0) {
        zkl_worker_count(worker, ZKL_COUNT_TRANSACTIONS, 1);
    }

    zkl_worker_count(worker, write ? ZKL_COUNT_WRITES : ZKL_COUNT_READS,
                     n ? n : 1);

    zkl_counters_time(worker->zone->map->counters, write ? ZKL_TIMES_WRITE
                                                         : ZKL_TIMES_READ,
                      time);
}


void
zkl_worker_count(zkl_worker_t *worker, zkl_count_e which, ngx_uint_t n)
{
    (void) ngx_atomic_fetch_add(&worker->zone->map->counters->counts[which],
                                n);
}


/* Calls tell for each lock of worker->active, or worker->idle. */

static void
zkl_worker_tell_locks(ngx_queue_t *locks, void (*tell)(zkl_lock_t *lock))
{
    ngx_queue_t  *q, *next;

    for (q = ngx_queue_head(locks);
         q != ngx_queue_sentinel(locks);
         q = next)
    {
        /* a lock without claims goes to another queue */

        next = ngx_queue_next(q);
        tell(ngx_queue_data(q, zkl_lock_t, queue));
    }
}


void
zkl_worker_tell_claims(zkl_worker_t *worker, void (*tell)(zkl_claim_t *claim))
{
    ngx_queue_t  *q, *next;

    for (q = ngx_queue_head(&worker->active);
         q != ngx_queue_sentinel(&worker->active);
         q = next)
    {
        next = ngx_queue_next(q);
        zkl_lock_tell(ngx_queue_data(q, zkl_lock_t, queue), tell);
    }
}


static void
zkl_worker_lost(void *data)
{
    zkl_worker_t  *worker = data;

    zkl_worker_count(worker, ZKL_COUNT_EXPIRED, 1);

    zkl_custody_lost(worker, worker->zone->own->key.id);
    zkl_zone_set_key(worker->zone, NULL);

    zkl_worker_tell_locks(&worker->active, zkl_lock_session_over);
    zkl_worker_tell_locks(&worker->idle, zkl_lock_session_over);
    zkl_worker_tell_claims(worker, zkl_claim_session_over);
}


static void
zkl_worker_unreachable(void *data)
{
    zkl_worker_t  *worker = data;

    if (!worker->away) {
        worker->away = 1;
        worker->missed = ngx_current_msec;
    }

    zkl_worker_tell_claims(worker, zkl_claim_suspended);
    zkl_worker_busy(worker);
}


/*
 * ZooKeeper answers again: begins the claims, the calls and the questions for
 * names that came meanwhile.
 */

static void
zkl_worker_heard(zkl_worker_t *worker)
{
    worker->away = 0;

    zkl_worker_proceed(worker);
    zkl_worker_tell_calls(worker, zkl_call_connected);
    zkl_names_wake(worker);
    zkl_worker_busy(worker);
}


/* Calls tell for each call under way; tell may free that call. */

static void
zkl_worker_tell_calls(zkl_worker_t *worker, void (*tell)(zkl_call_t *call))
{
    ngx_queue_t   calls;
    ngx_queue_t  *q;

    zkl_worker_move(&worker->calls, &calls);

    while ((q = zkl_worker_next(&calls, &worker->calls)) != NULL) {
        tell(ngx_queue_data(q, zkl_call_t, queue));
    }
}


static void
zkl_worker_changed(void *data, ngx_str_t *path, ngx_uint_t deleted)
{
    zkl_worker_t  *worker = data;

    u_char      *p;
    ngx_str_t    dir, name;
    zkl_lock_t  *lock;

    lock = zkl_lock_find(worker, path);

    if (!deleted) {
        zkl_follow_changed(worker, path, 0);
    }

    if (lock != NULL) {
        zkl_lock_changed(lock, deleted);
        return;
    }

    for (p = path->data + path->len; p > path->data && p[-1] != '/'; p--) {
        /* void */
    }

    if (p <= path->data + 1) {
        return;
    }

    dir.data = path->data;
    dir.len = p - 1 - path->data;
    name.data = p;
    name.len = path->data + path->len - p;

    lock = zkl_lock_find(worker, &dir);

    if (lock != NULL) {
        zkl_lock_claim_changed(lock, &name, deleted);
    }
}


static void
zkl_worker_listed(void *data, ngx_str_t *path)
{
    zkl_worker_t  *worker = data;

    zkl_custody_listed(worker, path);
    zkl_follow_changed(worker, path, 1);
}


/* Has each transient claim proceed, which may end that claim. */

static void
zkl_worker_proceed(zkl_worker_t *worker)
{
    ngx_queue_t   transient;
    ngx_queue_t  *q;

    zkl_worker_move(&worker->transient, &transient);

    while ((q = zkl_worker_next(&transient, &worker->transient)) != NULL) {
        zkl_claim_proceed(ngx_queue_data(q, zkl_claim_t, transient));
    }
}


/* Looks for changes that no doorbell or event has told. */

static void
zkl_worker_sweep_handler(ngx_event_t *ev)
{
    ngx_uint_t     n;
    zkl_worker_t  *worker;

    worker = ngx_queue_data(ev, zkl_worker_t, sweep);

    if (zkl_session_connected(worker->session)) {

        zkl_worker_tell_locks(&worker->active, zkl_lock_sweep);

        /* claims that there was no memory for, or that were refused */

        zkl_worker_proceed(worker);
        zkl_custody_sweep(worker);
        zkl_worker_tell_calls(worker, zkl_call_connected);
    }

    zkl_adopt_orphans(worker);
    zkl_adopt_sweep(worker);

    /* rings that a worker lost by dying while ringing */

    zkl_doorbell_answer(worker->zone->map, worker->zone->slot, zkl_worker_ring,
                        worker);

    for (n = 0; n < ZKL_PLACES; n++) {
        zkl_serve_errand(worker, n);
    }

    zkl_worker_refuse_waiters(worker);

    zkl_worker_busy(worker);
    ngx_add_timer(&worker->sweep, ZKL_SWEEP);
}
