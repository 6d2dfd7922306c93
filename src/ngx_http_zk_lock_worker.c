
/*
 * The worker's life: how a worker starts, how it leaves, and what becomes of
 * its sessions and slots then.
 *
 * Everything here runs on the event loop.  zone and session are NULL only while
 * the worker is freed: the start failed, or the stop has given both away.
 */


#include "ngx_http_zk_lock_ask.h"
#include "ngx_http_zk_lock_durable.h"
#include "ngx_http_zk_lock_estate.h"
#include "ngx_http_zk_lock_scan.h"


/* milliseconds from the start */
#define NGX_HTTP_ZK_LOCK_FIRST_SWEEP  200


static ngx_uint_t ngx_http_zk_lock_worker_holds(
    ngx_http_zk_lock_worker_t *worker, ngx_uint_t durable);
static void ngx_http_zk_lock_worker_discard(ngx_http_zk_lock_worker_t *worker);
static void ngx_http_zk_lock_worker_free(ngx_http_zk_lock_worker_t *worker);


ngx_http_zk_lock_worker_t *
ngx_http_zk_lock_worker_start(ngx_http_zk_lock_session_conf_t *conf,
    ngx_uint_t cache, ngx_shm_zone_t *shm_zone, ngx_log_t *log)
{
    int                         err;
    ngx_http_zk_lock_worker_t  *worker;

    worker = ngx_calloc(sizeof(ngx_http_zk_lock_worker_t), log);
    if (worker == NULL) {
        return NULL;
    }

    worker->ident.fd = (ngx_socket_t) -1;
    worker->log = log;
    worker->conf = conf;
    worker->cache = cache;

    ngx_rbtree_init(&worker->locks, &worker->locks_sentinel,
                    ngx_str_rbtree_insert_value);
    ngx_rbtree_init(&worker->scenes, &worker->scenes_sentinel,
                    ngx_str_rbtree_insert_value);
    ngx_rbtree_init(&worker->bells, &worker->bells_sentinel,
                    ngx_rbtree_insert_value);
    ngx_rbtree_init(&worker->wards, &worker->wards_sentinel,
                    ngx_rbtree_insert_value);

    ngx_queue_init(&worker->estates);
    ngx_queue_init(&worker->active);
    ngx_queue_init(&worker->idle);
    ngx_queue_init(&worker->unsettled);
    ngx_queue_init(&worker->asks);
    ngx_queue_init(&worker->looks);
    ngx_queue_init(&worker->marks);

    ngx_http_zk_lock_worker_timer(worker, &worker->sweep,
                                  ngx_http_zk_lock_worker_sweep_handler);
    worker->sweep.cancelable = 1;

    worker->zone = ngx_http_zk_lock_zone_join(shm_zone, log);
    if (worker->zone == NULL) {
        goto failed;
    }

    worker->nclaims = ngx_http_zk_lock_zone_cells(worker->zone);

    worker->claims = ngx_calloc(worker->nclaims
                                * sizeof(ngx_http_zk_lock_claim_t *), log);
    if (worker->claims == NULL) {
        goto failed;
    }

    err = zk_lock_mailbox_init(&worker->mailbox,
                               ngx_http_zk_lock_zone_fd(worker->zone));
    if (err != 0) {
        ngx_log_error(NGX_LOG_ALERT, log, err,
                      "pthread_mutex_init() failed");
        goto failed;
    }

    if (ngx_http_zk_lock_worker_listen(worker) != NGX_OK) {
        goto failed;
    }

    worker->scan = ngx_http_zk_lock_scan_new(worker);
    if (worker->scan == NULL) {
        goto failed;
    }

    worker->session = ngx_http_zk_lock_session_open(conf, &worker->mailbox,
                                   &ngx_http_zk_lock_worker_events, worker,
                                   NULL,
                                   ngx_http_zk_lock_zone_alive(worker->zone),
                                   log);
    if (worker->session == NULL) {
        goto failed;
    }

    /* what was left is for the workers that start beside this one, too */

    ngx_add_timer(&worker->sweep, NGX_HTTP_ZK_LOCK_FIRST_SWEEP);

    return worker;

failed:

    ngx_http_zk_lock_worker_free(worker);

    return NULL;
}


void
ngx_http_zk_lock_worker_stop(ngx_http_zk_lock_worker_t *worker)
{
    ngx_uint_t                   heir, needed;
    ngx_queue_t                 *q;
    ngx_http_zk_lock_zone_t     *zone;
    ngx_http_zk_lock_session_t  *session;

    ngx_http_zk_lock_worker_drain(worker);

    while (!ngx_queue_empty(&worker->estates)) {
        q = ngx_queue_head(&worker->estates);
        ngx_http_zk_lock_estate_leave(ngx_queue_data(q,
                                           ngx_http_zk_lock_estate_t, queue));
    }

    zone = worker->zone;
    session = worker->session;

    heir = ngx_http_zk_lock_worker_holds(worker, 1)
           && ngx_http_zk_lock_zone_outlives(zone);

    needed = heir && (ngx_http_zk_lock_zone_replaced(zone)
                      || ngx_http_zk_lock_worker_holds(worker, 0));

    worker->session = NULL;
    worker->zone = NULL;

    /* what is under way is freed with the session: no claim may know of it */

    ngx_http_zk_lock_worker_discard(worker);
    ngx_http_zk_lock_durable_lost(worker);

    ngx_http_zk_lock_worker_part(session, zone, heir, needed);

    ngx_http_zk_lock_worker_free(worker);
}


/*
 * The heir makes durable what is not, moves the records, and closes the session
 * if it is open.  At a quit and a stop the siblings end at the same time, and
 * may be no heirs a moment later: at a quit the session is closed here if all
 * that is held is durable, and at a stop in any case.
 */

void
ngx_http_zk_lock_worker_part(ngx_http_zk_lock_session_t *session,
    ngx_http_zk_lock_zone_t *zone, ngx_uint_t heir, ngx_uint_t needed)
{
    ngx_uint_t              closes;
    ngx_http_zk_lock_key_t  key;

    closes = ngx_http_zk_lock_session_connected(session)
             && (ngx_terminate || !needed);

    if (closes) {
        ngx_http_zk_lock_session_close(session);

    } else {
        ngx_http_zk_lock_session_leave(session);
    }

    if ((heir || !closes)
        && ngx_http_zk_lock_zone_key(zone, &key) == NGX_OK)
    {
        ngx_http_zk_lock_zone_abandon(zone);

    } else {
        ngx_http_zk_lock_zone_leave(zone);
    }
}


/* The worker begins to leave: it serves its waiters to the end. */

void
ngx_http_zk_lock_worker_drain(ngx_http_zk_lock_worker_t *worker)
{
    if (!worker->leaving) {
        worker->leaving = 1;
        worker->left = ngx_current_msec;
    }

    ngx_http_zk_lock_zone_leaving(worker->zone);

    /* what is held becomes durable at once */

    if (ngx_http_zk_lock_session_connected(worker->session)) {
        ngx_http_zk_lock_worker_tell_claims(worker,
                                            ngx_http_zk_lock_claim_durable);
    }

    ngx_http_zk_lock_worker_busy(worker);

    if (ngx_http_zk_lock_worker_over(worker)) {
        ngx_http_zk_lock_zone_wake(worker->zone);
    }
}


ngx_uint_t
ngx_http_zk_lock_worker_over(ngx_http_zk_lock_worker_t *worker)
{
    return worker->leaving && !ngx_http_zk_lock_zone_outlives(worker->zone);
}


static ngx_uint_t
ngx_http_zk_lock_worker_holds(ngx_http_zk_lock_worker_t *worker,
    ngx_uint_t durable)
{
    ngx_queue_t              *q;
    ngx_http_zk_lock_lock_t  *lock;

    for (q = ngx_queue_head(&worker->active);
         q != ngx_queue_sentinel(&worker->active);
         q = ngx_queue_next(q))
    {
        lock = ngx_queue_data(q, ngx_http_zk_lock_lock_t, queue);

        if (ngx_http_zk_lock_lock_holds(lock, durable)) {
            return 1;
        }
    }

    return 0;
}


void
ngx_http_zk_lock_worker_timer(ngx_http_zk_lock_worker_t *worker,
    ngx_event_t *ev, ngx_event_handler_pt handler)
{
    ev->handler = handler;
    ev->data = &worker->ident;
    ev->log = worker->log;
}


/* Frees locks and asks when the process leaves; no caller is told. */

static void
ngx_http_zk_lock_worker_discard(ngx_http_zk_lock_worker_t *worker)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(&worker->asks)) {
        q = ngx_queue_head(&worker->asks);
        ngx_http_zk_lock_ask_discard(ngx_queue_data(q, ngx_http_zk_lock_ask_t,
                                                    queue));
    }

    while (!ngx_queue_empty(&worker->active)) {
        q = ngx_queue_head(&worker->active);
        ngx_http_zk_lock_lock_discard(ngx_queue_data(q,
                                                     ngx_http_zk_lock_lock_t,
                                                     queue));
    }

    while (!ngx_queue_empty(&worker->idle)) {
        q = ngx_queue_head(&worker->idle);
        ngx_http_zk_lock_lock_discard(ngx_queue_data(q,
                                                     ngx_http_zk_lock_lock_t,
                                                     queue));
    }
}


static void
ngx_http_zk_lock_worker_free(ngx_http_zk_lock_worker_t *worker)
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
        zk_lock_mailbox_done(&worker->mailbox);
    }

    if (worker->zone != NULL) {
        ngx_http_zk_lock_zone_leave(worker->zone);
    }

    if (worker->scan != NULL) {
        ngx_http_zk_lock_scan_free(worker->scan);
    }

    if (worker->claims != NULL) {
        ngx_free(worker->claims);
    }

    ngx_free(worker);
}
