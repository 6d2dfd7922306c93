
/*
 * Estates: the sessions of workers that are gone, from the adoption to the
 * close, which comes when no claim depends on the session any more.
 *
 * An estate owns the slot, the session and the wards.  All of the code runs on
 * the event loop.  estate->session is NULL until the session is opened.
 */


#include "core/estate.h"
#include "core/ward.h"


static zkl_estate_t *zkl_estate_new(zkl_worker_t *worker, zkl_zone_t *zone);
static void zkl_estate_connected(void *data, const zkl_key_t *fresh);
static void zkl_estate_away(void *data);
static void zkl_estate_lost(void *data);
static void zkl_estate_over_handler(ngx_event_t *ev);
static void zkl_estate_free(zkl_estate_t *estate);


static const zkl_session_events_t
    zkl_estate_events =
{
    zkl_estate_connected,
    zkl_estate_away,
    zkl_estate_lost,
    zkl_estate_away,

    /* no watch is set through an adopted session */

    NULL,
    NULL
};


ngx_int_t
zkl_estate_open(zkl_worker_t *worker, zkl_zone_t *zone)
{
    zkl_key_t      key;
    zkl_estate_t  *estate;

    (void) zkl_zone_key(zone, &key);

    estate = zkl_estate_new(worker, zone);
    if (estate == NULL) {
        zkl_zone_abandon(zone);
        return NGX_ERROR;
    }

    estate->session = zkl_session_open(worker->conf,
                                   &worker->mailbox, &zkl_estate_events,
                                   estate, &key, zkl_zone_alive(zone),
                                   worker->log);
    if (estate->session == NULL) {
        zkl_estate_free(estate);
        zkl_zone_abandon(zone);
        return NGX_ERROR;
    }

    ngx_queue_insert_tail(&worker->estates, &estate->queue);

    ngx_log_error(NGX_LOG_NOTICE, worker->log, 0,
                  "the session of a worker that has gone is adopted");

    return NGX_OK;
}


static zkl_estate_t *
zkl_estate_new(zkl_worker_t *worker, zkl_zone_t *zone)
{
    zkl_estate_t  *estate;

    estate = ngx_calloc(sizeof(zkl_estate_t), worker->log);
    if (estate == NULL) {
        return NULL;
    }

    estate->worker = worker;
    estate->zone = zone;

    ngx_queue_init(&estate->wards);

    estate->over.handler = zkl_estate_over_handler;
    estate->over.data = estate;
    estate->over.log = worker->log;

    zkl_record_inherit(zone, zkl_ward_take, estate);

    if (estate->failed) {

        /* the close of the session would end the claims that have no ward */

        zkl_estate_free(estate);
        return NULL;
    }

    return estate;
}


static void
zkl_estate_connected(void *data, const zkl_key_t *fresh)
{
    zkl_estate_t  *estate = data;

    zkl_estate_sweep(estate);
}


void
zkl_estate_sweep(zkl_estate_t *estate)
{
    ngx_queue_t  *q, *next;
    zkl_ward_t   *ward;

    for (q = ngx_queue_head(&estate->wards);
         q != ngx_queue_sentinel(&estate->wards);
         q = next)
    {
        ward = ngx_queue_data(q, zkl_ward_t, queue);

        next = ngx_queue_next(q);

        if (ward->share != NULL) {
            zkl_share_again(ward->share);

        } else {
            zkl_ward_go(ward);
        }
    }

    if (ngx_queue_empty(&estate->wards)) {
        ngx_post_event(&estate->over, &ngx_posted_events);
    }
}


void
zkl_estate_unshare(zkl_estate_t *estate)
{
    ngx_queue_t  *q;

    for (q = ngx_queue_head(&estate->wards);
         q != ngx_queue_sentinel(&estate->wards);
         q = ngx_queue_next(q))
    {
        zkl_ward_unshare(ngx_queue_data(q, zkl_ward_t, queue));
    }
}


/* The operations under way get an error, and the wards send them again. */

static void
zkl_estate_away(void *data)
{
}


/* A claim that may be durable may have outlived the adopted session. */

static void
zkl_estate_lost(void *data)
{
    zkl_estate_t  *estate = data;

    ngx_queue_t  *q;
    zkl_ward_t   *ward;

    while (!ngx_queue_empty(&estate->wards)) {
        q = ngx_queue_head(&estate->wards);
        ward = ngx_queue_data(q, zkl_ward_t, queue);

        if (zkl_ward_outlives(ward) && zkl_ward_move(ward, NULL) == NGX_OK) {
            continue;
        }

        zkl_record_lose(estate->zone, ward->id.record);
        zkl_record_ending(estate->zone, ward->id.record, ZKL_ENDING_LOST);
        zkl_ward_done(ward);
    }

    estate->ended = 1;
    ngx_post_event(&estate->over, &ngx_posted_events);
}


/*
 * Closes the session, which no ward needs any more; an event does so, because a
 * session must not be freed from inside a handler that the session calls.  A
 * session that is not connected cannot be closed: the sweep tries again.
 */

static void
zkl_estate_over_handler(ngx_event_t *ev)
{
    zkl_zone_t     *zone;
    zkl_estate_t   *estate;
    zkl_worker_t   *worker;
    zkl_session_t  *session;

    estate = ev->data;

    if (!estate->ended && !zkl_session_prompt(estate->session)) {
        return;
    }

    zone = estate->zone;
    session = estate->session;

    worker = estate->worker;

    zkl_estate_free(estate);

    zkl_session_close(session);
    zkl_record_hand_over(zone, worker->zone);
    zkl_zone_leave(zone);

    zkl_worker_busy(worker);
}


void
zkl_estate_leave(zkl_estate_t *estate)
{
    ngx_uint_t      heir;
    zkl_zone_t     *zone;
    zkl_session_t  *session;

    if (estate->ended) {
        zkl_estate_over_handler(&estate->over);
        return;
    }

    zone = estate->zone;
    session = estate->session;

    /* the wards first, because the session frees the wards' operations */

    zkl_estate_free(estate);

    heir = zkl_zone_outlives(zone);

    zkl_worker_part(session, zone, heir, heir);
}


/* Frees the estate and the wards, but not the zone and the session. */

static void
zkl_estate_free(zkl_estate_t *estate)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(&estate->wards)) {
        q = ngx_queue_head(&estate->wards);
        zkl_ward_free(ngx_queue_data(q, zkl_ward_t, queue));
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
zkl_estate_rung(zkl_worker_t *worker, uint32_t record)
{
    zkl_ward_t  *ward;

    ward = zkl_ward_find(worker, record);

    if (ward != NULL && ward->state == ZKL_WARD_READ
        && zkl_record_asked(ward->estate->zone, record))
    {
        zkl_ward_delete(ward);
    }
}
