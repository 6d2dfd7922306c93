
/*
 * Estates: the sessions of workers that are gone, from the adoption to the
 * close, which comes when no claim depends on the session any more.
 *
 * Everything here runs on the event loop.  estate->session is NULL until the
 * adopted session is opened.
 */


#include "ngx_http_zk_lock_ward.h"


static ngx_http_zk_lock_estate_t *ngx_http_zk_lock_estate_new(
    ngx_http_zk_lock_worker_t *worker, ngx_http_zk_lock_zone_t *zone);
static void ngx_http_zk_lock_estate_away(void *data);
static void ngx_http_zk_lock_estate_connected(void *data,
    const ngx_http_zk_lock_key_t *fresh);
static void ngx_http_zk_lock_estate_lost(void *data);
static void ngx_http_zk_lock_estate_over_handler(ngx_event_t *ev);


static const ngx_http_zk_lock_session_events_t
    ngx_http_zk_lock_estate_events =
{
    ngx_http_zk_lock_estate_connected,
    ngx_http_zk_lock_estate_away,
    ngx_http_zk_lock_estate_lost,
    ngx_http_zk_lock_estate_away,

    /* no watch is set through an adopted session */

    NULL,
    NULL
};


ngx_int_t
ngx_http_zk_lock_estate_open(ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_zone_t *zone)
{
    ngx_http_zk_lock_key_t      key;
    ngx_http_zk_lock_estate_t  *estate;

    (void) ngx_http_zk_lock_zone_key(zone, &key);

    estate = ngx_http_zk_lock_estate_new(worker, zone);
    if (estate == NULL) {
        ngx_http_zk_lock_zone_abandon(zone);
        return NGX_ERROR;
    }

    estate->session = ngx_http_zk_lock_session_open(worker->conf,
                                   &worker->mailbox,
                                   &ngx_http_zk_lock_estate_events, estate,
                                   &key, ngx_http_zk_lock_zone_alive(zone),
                                   worker->log);
    if (estate->session == NULL) {
        ngx_http_zk_lock_estate_free(estate);
        ngx_http_zk_lock_zone_abandon(zone);
        return NGX_ERROR;
    }

    ngx_queue_insert_tail(&worker->estates, &estate->queue);

    ngx_log_error(NGX_LOG_NOTICE, worker->log, 0,
                  "the session of a worker that has gone is adopted");

    return NGX_OK;
}


static ngx_http_zk_lock_estate_t *
ngx_http_zk_lock_estate_new(ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_zone_t *zone)
{
    ngx_http_zk_lock_estate_t  *estate;

    estate = ngx_calloc(sizeof(ngx_http_zk_lock_estate_t), worker->log);
    if (estate == NULL) {
        return NULL;
    }

    estate->worker = worker;
    estate->zone = zone;

    ngx_queue_init(&estate->wards);

    estate->over.handler = ngx_http_zk_lock_estate_over_handler;
    estate->over.data = estate;
    estate->over.log = worker->log;

    ngx_http_zk_lock_record_inherit(zone, ngx_http_zk_lock_ward_take, estate);

    if (estate->failed) {

        /* a session that stays for some claims would have to end the others */

        ngx_http_zk_lock_estate_free(estate);
        return NULL;
    }

    return estate;
}


static void
ngx_http_zk_lock_estate_connected(void *data,
    const ngx_http_zk_lock_key_t *fresh)
{
    ngx_http_zk_lock_estate_t *estate = data;

    ngx_http_zk_lock_estate_sweep(estate);
}


void
ngx_http_zk_lock_estate_sweep(ngx_http_zk_lock_estate_t *estate)
{
    ngx_queue_t              *q, *next;
    ngx_http_zk_lock_ward_t  *ward;

    for (q = ngx_queue_head(&estate->wards);
         q != ngx_queue_sentinel(&estate->wards);
         q = next)
    {
        ward = ngx_queue_data(q, ngx_http_zk_lock_ward_t, queue);

        next = ngx_queue_next(q);

        if (ward->share != NULL) {
            ngx_http_zk_lock_share_again(ward->share);

        } else {
            ngx_http_zk_lock_ward_go(ward);
        }
    }

    if (ngx_queue_empty(&estate->wards)) {
        ngx_post_event(&estate->over, &ngx_posted_events);
    }
}


void
ngx_http_zk_lock_estate_unshare(ngx_http_zk_lock_estate_t *estate)
{
    ngx_queue_t  *q;

    for (q = ngx_queue_head(&estate->wards);
         q != ngx_queue_sentinel(&estate->wards);
         q = ngx_queue_next(q))
    {
        ngx_http_zk_lock_ward_unshare(ngx_queue_data(q,
                                             ngx_http_zk_lock_ward_t, queue));
    }
}


/* The operations under way get an error, and the wards send them again. */

static void
ngx_http_zk_lock_estate_away(void *data)
{
}


/* A claim that may be durable may have outlived the session. */

static void
ngx_http_zk_lock_estate_lost(void *data)
{
    ngx_http_zk_lock_estate_t *estate = data;

    ngx_queue_t              *q;
    ngx_http_zk_lock_ward_t  *ward;

    while (!ngx_queue_empty(&estate->wards)) {
        q = ngx_queue_head(&estate->wards);
        ward = ngx_queue_data(q, ngx_http_zk_lock_ward_t, queue);

        if (ngx_http_zk_lock_ward_outlives(ward)
            && ngx_http_zk_lock_ward_move(ward, NULL) == NGX_OK)
        {
            continue;
        }

        ngx_http_zk_lock_record_lose(estate->zone, ward->id.record);
        ngx_http_zk_lock_record_ending(estate->zone, ward->id.record,
                                       NGX_HTTP_ZK_LOCK_ENDING_LOST);
        ngx_http_zk_lock_ward_done(ward);
    }

    estate->ended = 1;
    ngx_post_event(&estate->over, &ngx_posted_events);
}


/*
 * The last ward is gone.  The session is not freed from inside one of its own
 * messages.  A session that is not connected cannot be closed; the sweep posts
 * the event again.
 */

static void
ngx_http_zk_lock_estate_over_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_zone_t     *zone;
    ngx_http_zk_lock_estate_t   *estate;
    ngx_http_zk_lock_worker_t   *worker;
    ngx_http_zk_lock_session_t  *session;

    estate = ev->data;

    if (!estate->ended && !ngx_http_zk_lock_session_prompt(estate->session)) {
        return;
    }

    zone = estate->zone;
    session = estate->session;

    worker = estate->worker;

    ngx_http_zk_lock_estate_free(estate);

    ngx_http_zk_lock_session_close(session);
    ngx_http_zk_lock_record_hand_over(zone, worker->zone);
    ngx_http_zk_lock_zone_leave(zone);

    ngx_http_zk_lock_worker_busy(worker);
}


void
ngx_http_zk_lock_estate_leave(ngx_http_zk_lock_estate_t *estate)
{
    ngx_uint_t                   heir;
    ngx_http_zk_lock_zone_t     *zone;
    ngx_http_zk_lock_session_t  *session;

    if (estate->ended) {
        ngx_http_zk_lock_estate_over_handler(&estate->over);
        return;
    }

    zone = estate->zone;
    session = estate->session;

    /* the wards first: the operations of wards are freed with the session */

    ngx_http_zk_lock_estate_free(estate);

    heir = ngx_http_zk_lock_zone_outlives(zone);

    ngx_http_zk_lock_worker_part(session, zone, heir, heir);
}


void
ngx_http_zk_lock_estate_free(ngx_http_zk_lock_estate_t *estate)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(&estate->wards)) {
        q = ngx_queue_head(&estate->wards);
        ngx_http_zk_lock_ward_free(ngx_queue_data(q, ngx_http_zk_lock_ward_t,
                                                  queue));
    }

    if (estate->over.posted) {
        ngx_delete_posted_event(&estate->over);
    }

    if (estate->session != NULL) {
        ngx_queue_remove(&estate->queue);
    }

    ngx_free(estate);
}


void
ngx_http_zk_lock_estate_rung(ngx_http_zk_lock_worker_t *worker,
    uint32_t record)
{
    ngx_http_zk_lock_ward_t  *ward;

    ward = ngx_http_zk_lock_ward_find(worker, record);

    if (ward != NULL && ward->state == NGX_HTTP_ZK_LOCK_WARD_READ
        && ngx_http_zk_lock_record_asked(ward->estate->zone, record))
    {
        ngx_http_zk_lock_ward_delete(ward);
    }
}
