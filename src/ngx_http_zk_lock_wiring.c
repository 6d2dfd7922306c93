
/*
 * The worker's wiring: what it hears, from the loop, its session, siblings and
 * the clock, and whom it tells.
 *
 * Everything here runs on the event loop.  `wakeup` is the connection that
 * puts the slot's descriptor into the loop; the descriptor belongs to the
 * zone and is inherited by all workers, so it is never closed here.  What is
 * heard finds zone, home and session; but worker->session is NULL when calls
 * and claims are freed in the end, which say that what is unsettled changed.
 */


#include "ngx_http_zk_lock_ask.h"
#include "ngx_http_zk_lock_durable.h"
#include "ngx_http_zk_lock_estate.h"
#include "ngx_http_zk_lock_follow.h"
#include "ngx_http_zk_lock_scan.h"


/* the slow net below the doorbell, milliseconds */
#define NGX_HTTP_ZK_LOCK_SWEEP  1000

/* how long a worker that leaves stays for leases that are not durable yet */
#define NGX_HTTP_ZK_LOCK_LAST   3000


static void ngx_http_zk_lock_worker_wakeup_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_worker_write_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_worker_ring(void *data, uint32_t record);
static ngx_http_zk_lock_bell_t *ngx_http_zk_lock_bell_find(
    ngx_http_zk_lock_worker_t *worker, uint32_t record);
static ngx_uint_t ngx_http_zk_lock_worker_secures(
    ngx_http_zk_lock_worker_t *worker);
static void ngx_http_zk_lock_worker_connected(void *data,
    const ngx_http_zk_lock_key_t *fresh);
static void ngx_http_zk_lock_worker_suspended(void *data);
static void ngx_http_zk_lock_worker_lost(void *data);
static void ngx_http_zk_lock_worker_unreachable(void *data);
static void ngx_http_zk_lock_worker_heard(
    ngx_http_zk_lock_worker_t *worker);
static void ngx_http_zk_lock_worker_changed(void *data, ngx_str_t *path,
    ngx_uint_t deleted);
static void ngx_http_zk_lock_worker_listed(void *data, ngx_str_t *path);
static void ngx_http_zk_lock_worker_tell_locks(
    ngx_http_zk_lock_worker_t *worker,
    void (*tell)(ngx_http_zk_lock_lock_t *lock));
static void ngx_http_zk_lock_worker_forget(ngx_http_zk_lock_worker_t *worker);
static void ngx_http_zk_lock_worker_tell(ngx_http_zk_lock_worker_t *worker,
    void (*tell)(ngx_http_zk_lock_claim_t *claim));
static void ngx_http_zk_lock_worker_refuse_waiters(
    ngx_http_zk_lock_worker_t *worker);
static void ngx_http_zk_lock_worker_shut(ngx_http_zk_lock_worker_t *worker);
static void ngx_http_zk_lock_worker_adopt(ngx_http_zk_lock_worker_t *worker);
static void ngx_http_zk_lock_worker_sweep_estates(
    ngx_http_zk_lock_worker_t *worker);
static void ngx_http_zk_lock_worker_tell_asks(
    ngx_http_zk_lock_worker_t *worker,
    void (*tell)(ngx_http_zk_lock_ask_t *ask));


const ngx_http_zk_lock_session_events_t ngx_http_zk_lock_worker_events =
{
    ngx_http_zk_lock_worker_connected,
    ngx_http_zk_lock_worker_suspended,
    ngx_http_zk_lock_worker_lost,
    ngx_http_zk_lock_worker_unreachable,
    ngx_http_zk_lock_worker_changed,
    ngx_http_zk_lock_worker_listed
};


/*
 * A worker that leaves for good refuses its waiters: its session is about to be
 * closed.  The worker may find out only when the last of its siblings begins to
 * leave.
 */

static void
ngx_http_zk_lock_worker_refuse_waiters(ngx_http_zk_lock_worker_t *worker)
{
    if (ngx_http_zk_lock_worker_over(worker)) {
        ngx_http_zk_lock_worker_tell_claims(worker,
                                            ngx_http_zk_lock_claim_over);
    }
}


/* There is no more time: who waits is told so before nginx cuts him off. */

static void
ngx_http_zk_lock_worker_shut(ngx_http_zk_lock_worker_t *worker)
{
    ngx_uint_t                n;
    ngx_queue_t              *q, *next;
    ngx_http_zk_lock_lock_t  *lock;

    n = 0;

    for (q = ngx_queue_head(&worker->active);
         q != ngx_queue_sentinel(&worker->active);
         q = next)
    {
        next = ngx_queue_next(q);
        lock = ngx_queue_data(q, ngx_http_zk_lock_lock_t, queue);

        n += ngx_http_zk_lock_lock_shut(lock);
    }

    ngx_http_zk_lock_worker_tell_asks(worker, ngx_http_zk_lock_ask_unreachable);

    if (n != 0) {
        ngx_log_error(NGX_LOG_WARN, worker->log, 0,
                      "worker_shutdown_timeout: %ui who waited for a lock "
                      "were refused", n);
    }
}


/*
 * Adopts the slots of workers that are dead or have left, unless this worker
 * leaves and another worker stays.
 */

static void
ngx_http_zk_lock_worker_adopt(ngx_http_zk_lock_worker_t *worker)
{
    ngx_http_zk_lock_zone_t  *zone;

    while (!worker->leaving || ngx_http_zk_lock_worker_over(worker)) {

        zone = ngx_http_zk_lock_zone_adopt(worker->zone);
        if (zone == NULL) {
            break;
        }

        if (ngx_http_zk_lock_estate_open(worker, zone) != NGX_OK) {
            break;
        }

        worker->left = ngx_current_msec;
    }

    ngx_http_zk_lock_worker_busy(worker);
}


ngx_int_t
ngx_http_zk_lock_worker_listen(ngx_http_zk_lock_worker_t *worker)
{
    ngx_connection_t  *c;

    c = ngx_get_connection(worker->mailbox.fd, worker->log);
    if (c == NULL) {
        return NGX_ERROR;
    }

    c->data = worker;

    c->read->handler = ngx_http_zk_lock_worker_wakeup_handler;
    c->read->log = worker->log;
    c->write->handler = ngx_http_zk_lock_worker_write_handler;
    c->write->log = worker->log;

    /*
     * Level-triggered, so that a wake-up cannot be missed; idle, so that
     * nginx calls the handler when a graceful exit begins.
     */

    c->idle = 1;

    if (ngx_add_event(c->read, NGX_READ_EVENT, 0) != NGX_OK) {
        ngx_free_connection(c);
        return NGX_ERROR;
    }

    worker->wakeup = c;

    return NGX_OK;
}


static void
ngx_http_zk_lock_worker_wakeup_handler(ngx_event_t *ev)
{
    ngx_connection_t           *c;
    ngx_http_zk_lock_worker_t  *worker;

    c = ev->data;
    worker = c->data;

    if (c->close) {

        /* nginx begins to leave, or ends to wait for us */

        ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ev->log, 0,
                       "zk lock worker: leaving, shut: %d", c->error);

        ngx_http_zk_lock_worker_drain(worker);
        ngx_http_zk_lock_worker_adopt(worker);
        ngx_http_zk_lock_worker_refuse_waiters(worker);

        if (c->error) {
            ngx_http_zk_lock_worker_shut(worker);
        }

        c->close = 0;
        c->error = 0;
        return;
    }

    (void) zk_lock_mailbox_take(&worker->mailbox, NULL);

    if (worker->away && ngx_http_zk_lock_session_ready(worker->session)) {
        ngx_http_zk_lock_worker_heard(worker);
    }

    ngx_http_zk_lock_ring_answer(worker->zone->map, worker->zone->slot,
                                 ngx_http_zk_lock_worker_ring, worker);

    if (ngx_http_zk_lock_zone_orphans(worker->zone)) {
        ngx_http_zk_lock_worker_adopt(worker);
    }

    ngx_http_zk_lock_worker_refuse_waiters(worker);
}


static void
ngx_http_zk_lock_worker_write_handler(ngx_event_t *ev)
{
    /* never added; nginx calls it without asking */
}


static void
ngx_http_zk_lock_worker_ring(void *data, uint32_t record)
{
    ngx_http_zk_lock_worker_t *worker = data;

    ngx_queue_t                ringing;
    ngx_queue_t               *q;
    ngx_http_zk_lock_bell_t   *bell;
    ngx_http_zk_lock_claim_t  *claim;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, worker->log, 0,
                   "zk lock worker: rung for record %uD", record);

    claim = worker->claims[record];

    if (claim != NULL) {
        ngx_http_zk_lock_claim_rung(claim);
    }

    ngx_http_zk_lock_estate_rung(worker, record);

    /* each may hang itself anew, or take another one down */

    ngx_queue_init(&ringing);

    for ( ;; ) {
        bell = ngx_http_zk_lock_bell_find(worker, record);
        if (bell == NULL) {
            break;
        }

        ngx_rbtree_delete(&worker->bells, &bell->node);
        ngx_queue_insert_tail(&ringing, &bell->queue);
        bell->ringing = 1;
    }

    while (!ngx_queue_empty(&ringing)) {
        q = ngx_queue_head(&ringing);
        bell = ngx_queue_data(q, ngx_http_zk_lock_bell_t, queue);

        ngx_http_zk_lock_bell_take_down(worker, bell);
        bell->handler(bell);
    }
}


static ngx_http_zk_lock_bell_t *
ngx_http_zk_lock_bell_find(ngx_http_zk_lock_worker_t *worker, uint32_t record)
{
    ngx_rbtree_node_t  *node;

    node = worker->bells.root;

    while (node != worker->bells.sentinel) {

        if (node->key == record) {
            return (ngx_http_zk_lock_bell_t *) node;
        }

        node = (record < node->key) ? node->left : node->right;
    }

    return NULL;
}


void
ngx_http_zk_lock_bell_hang(ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_bell_t *bell, uint32_t record)
{
    bell->node.key = record;
    bell->set = 1;
    bell->ringing = 0;

    ngx_rbtree_insert(&worker->bells, &bell->node);
}


void
ngx_http_zk_lock_bell_take_down(ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_bell_t *bell)
{
    if (!bell->set) {
        return;
    }

    if (bell->ringing) {
        ngx_queue_remove(&bell->queue);

    } else {
        ngx_rbtree_delete(&worker->bells, &bell->node);
    }

    bell->set = 0;
    bell->ringing = 0;
}


/*
 * A worker that leaves answers all requests first: each of them when its time
 * is over, at the latest.  Claims that ZooKeeper refuses to delete would keep
 * it for ever: who waited for these is told, and they are left to the end of
 * its session.  Out of reach, deletes are owed that nobody waits for any more,
 * and keep no worker.
 */

void
ngx_http_zk_lock_worker_busy(ngx_http_zk_lock_worker_t *worker)
{
    if (worker->session == NULL) {
        worker->sweep.cancelable = 1;

    } else if (worker->nowed != 0) {
        worker->sweep.cancelable = 0;

    } else if (ngx_http_zk_lock_session_reachable(worker->session)) {
        worker->sweep.cancelable = worker->npressing == 0
                                   && ngx_queue_empty(&worker->asks)
                                   && !ngx_http_zk_lock_worker_secures(worker);

    } else {
        worker->sweep.cancelable = (worker->nawaited == 0);
    }
}


/* A worker that leaves makes its leases durable first. */

static ngx_uint_t
ngx_http_zk_lock_worker_secures(ngx_http_zk_lock_worker_t *worker)
{
    return worker->leaving
           && (worker->nfleeting != 0 || !ngx_queue_empty(&worker->estates))
           && ngx_current_msec - worker->left < NGX_HTTP_ZK_LOCK_LAST;
}


static void
ngx_http_zk_lock_worker_connected(void *data,
    const ngx_http_zk_lock_key_t *fresh)
{
    ngx_http_zk_lock_worker_t *worker = data;

    /* from here on another worker can adopt the session */

    if (fresh != NULL) {
        ngx_http_zk_lock_zone_set_key(worker->zone, fresh);
    }

    /* what a worker left is made durable through this session */

    ngx_http_zk_lock_worker_adopt(worker);

    /*
     * The same session, perhaps on another server, which may lag behind: the
     * session sent a barrier ahead of these lists.
     */

    if (fresh == NULL) {
        ngx_http_zk_lock_worker_tell_locks(worker, ngx_http_zk_lock_lock_list);
    }

    ngx_http_zk_lock_worker_heard(worker);
    ngx_http_zk_lock_worker_tell_claims(worker, ngx_http_zk_lock_claim_sure);
    ngx_http_zk_lock_follow_connected(worker);
    ngx_http_zk_lock_scan_look(worker->scan);
}


static void
ngx_http_zk_lock_worker_suspended(void *data)
{
    ngx_http_zk_lock_worker_t *worker = data;

    ngx_http_zk_lock_worker_forget(worker);
    ngx_http_zk_lock_worker_tell_claims(worker,
                                        ngx_http_zk_lock_claim_suspended);
}


/* Calls tell for each lock with claims; it may free that one. */

static void
ngx_http_zk_lock_worker_tell_locks(ngx_http_zk_lock_worker_t *worker,
    void (*tell)(ngx_http_zk_lock_lock_t *lock))
{
    ngx_queue_t  *q, *next;

    for (q = ngx_queue_head(&worker->active);
         q != ngx_queue_sentinel(&worker->active);
         q = next)
    {
        /* a lock without claims goes to another queue, or is freed */

        next = ngx_queue_next(q);
        tell(ngx_queue_data(q, ngx_http_zk_lock_lock_t, queue));
    }
}


void
ngx_http_zk_lock_worker_tell_claims(ngx_http_zk_lock_worker_t *worker,
    void (*tell)(ngx_http_zk_lock_claim_t *claim))
{
    ngx_queue_t  *q, *next;

    for (q = ngx_queue_head(&worker->active);
         q != ngx_queue_sentinel(&worker->active);
         q = next)
    {
        next = ngx_queue_next(q);
        ngx_http_zk_lock_lock_tell(ngx_queue_data(q, ngx_http_zk_lock_lock_t,
                                                  queue), tell);
    }
}


static void
ngx_http_zk_lock_worker_lost(void *data)
{
    ngx_http_zk_lock_worker_t *worker = data;

    ngx_queue_t  *q;

    ngx_http_zk_lock_zone_set_key(worker->zone, NULL);
    ngx_http_zk_lock_durable_lost(worker);

    for (q = ngx_queue_head(&worker->estates);
         q != ngx_queue_sentinel(&worker->estates);
         q = ngx_queue_next(q))
    {
        ngx_http_zk_lock_estate_unshare(ngx_queue_data(q,
                                           ngx_http_zk_lock_estate_t, queue));
    }

    ngx_http_zk_lock_worker_forget(worker);
    ngx_http_zk_lock_worker_tell_claims(worker, ngx_http_zk_lock_claim_lost);
}


static void
ngx_http_zk_lock_worker_unreachable(void *data)
{
    ngx_http_zk_lock_worker_t *worker = data;

    worker->away = 1;

    ngx_http_zk_lock_worker_tell_claims(worker,
                                        ngx_http_zk_lock_claim_suspended);
    ngx_http_zk_lock_worker_busy(worker);
}


/* ZooKeeper answers again: what came meanwhile is begun. */

static void
ngx_http_zk_lock_worker_heard(ngx_http_zk_lock_worker_t *worker)
{
    worker->away = 0;

    ngx_http_zk_lock_worker_tell(worker, ngx_http_zk_lock_claim_connected);
    ngx_http_zk_lock_worker_tell_asks(worker, ngx_http_zk_lock_ask_connected);
    ngx_http_zk_lock_worker_busy(worker);
}


/* Calls tell for each call under way; it may free that one. */

static void
ngx_http_zk_lock_worker_tell_asks(ngx_http_zk_lock_worker_t *worker,
    void (*tell)(ngx_http_zk_lock_ask_t *ask))
{
    ngx_queue_t   asks;
    ngx_queue_t  *q;

    ngx_queue_init(&asks);

    if (!ngx_queue_empty(&worker->asks)) {
        ngx_queue_add(&asks, &worker->asks);
        ngx_queue_init(&worker->asks);
    }

    while (!ngx_queue_empty(&asks)) {
        q = ngx_queue_head(&asks);

        ngx_queue_remove(q);
        ngx_queue_insert_tail(&worker->asks, q);

        tell(ngx_queue_data(q, ngx_http_zk_lock_ask_t, queue));
    }
}


static void
ngx_http_zk_lock_worker_changed(void *data, ngx_str_t *path,
    ngx_uint_t deleted)
{
    ngx_http_zk_lock_worker_t *worker = data;

    u_char                   *p;
    ngx_str_t                 dir, name;
    ngx_http_zk_lock_lock_t  *lock;

    lock = ngx_http_zk_lock_lock_find(worker, path);

    if (!deleted) {
        ngx_http_zk_lock_follow_changed(worker, path);
    }

    if (lock != NULL) {
        ngx_http_zk_lock_lock_changed(lock, deleted);
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

    lock = ngx_http_zk_lock_lock_find(worker, &dir);

    if (lock != NULL) {
        ngx_http_zk_lock_lock_claim_changed(lock, &name, deleted);
    }
}


static void
ngx_http_zk_lock_worker_listed(void *data, ngx_str_t *path)
{
    ngx_http_zk_lock_worker_t *worker = data;

    ngx_http_zk_lock_scan_listed(worker->scan, path);
    ngx_http_zk_lock_follow_listed(worker, path);
}


static void
ngx_http_zk_lock_worker_forget(ngx_http_zk_lock_worker_t *worker)
{
    ngx_queue_t  *q, *next;

    ngx_http_zk_lock_worker_tell_locks(worker, ngx_http_zk_lock_lock_forget);

    for (q = ngx_queue_head(&worker->idle);
         q != ngx_queue_sentinel(&worker->idle);
         q = next)
    {
        next = ngx_queue_next(q);
        ngx_http_zk_lock_lock_forget(ngx_queue_data(q,
                                                    ngx_http_zk_lock_lock_t,
                                                    queue));
    }
}


/* Calls tell for each claim in between; it may free that claim. */

static void
ngx_http_zk_lock_worker_tell(ngx_http_zk_lock_worker_t *worker,
    void (*tell)(ngx_http_zk_lock_claim_t *claim))
{
    ngx_queue_t  unsettled;
    ngx_queue_t  *q;

    /* those that go in between meanwhile are not told */

    ngx_queue_init(&unsettled);

    if (ngx_queue_empty(&worker->unsettled)) {
        return;
    }

    ngx_queue_add(&unsettled, &worker->unsettled);
    ngx_queue_init(&worker->unsettled);

    while (!ngx_queue_empty(&unsettled)) {
        q = ngx_queue_head(&unsettled);

        ngx_queue_remove(q);
        ngx_queue_insert_tail(&worker->unsettled, q);

        tell(ngx_queue_data(q, ngx_http_zk_lock_claim_t, unsettled));
    }
}


void
ngx_http_zk_lock_worker_sweep_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_worker_t  *worker;

    worker = ngx_queue_data(ev, ngx_http_zk_lock_worker_t, sweep);

    if (ngx_http_zk_lock_session_connected(worker->session)) {

        ngx_http_zk_lock_worker_tell_locks(worker,
                                           ngx_http_zk_lock_lock_sweep);

        /* claims that there was no memory for, or that were refused */

        ngx_http_zk_lock_worker_tell(worker,
                                     ngx_http_zk_lock_claim_connected);
        ngx_http_zk_lock_worker_tell_asks(worker,
                                          ngx_http_zk_lock_ask_connected);
    }

    ngx_http_zk_lock_worker_sweep_estates(worker);

    /* rings that were lost with a worker that died while it rang */

    ngx_http_zk_lock_ring_answer(worker->zone->map, worker->zone->slot,
                                 ngx_http_zk_lock_worker_ring, worker);

    ngx_http_zk_lock_worker_refuse_waiters(worker);

    ngx_http_zk_lock_worker_busy(worker);
    ngx_add_timer(&worker->sweep, NGX_HTTP_ZK_LOCK_SWEEP);
}


/* What workers left that died, and what could not be sent for it so far. */

static void
ngx_http_zk_lock_worker_sweep_estates(ngx_http_zk_lock_worker_t *worker)
{
    ngx_queue_t  *q;

    ngx_http_zk_lock_worker_adopt(worker);

    for (q = ngx_queue_head(&worker->estates);
         q != ngx_queue_sentinel(&worker->estates);
         q = ngx_queue_next(q))
    {
        ngx_http_zk_lock_estate_sweep(ngx_queue_data(q,
                                           ngx_http_zk_lock_estate_t, queue));
    }
}
