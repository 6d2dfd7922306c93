
/*
 * An estate: the session of a worker that is dead or has left, adopted by this
 * worker, and the claims that were made through the session.
 *
 * Claims that were waiting are deleted: their clients are gone with the worker.
 * Claims that are held are made durable, and become claims of this worker: its
 * session counts the leases from then on, with the same deadlines.  Then the
 * adopted session is closed.
 */


#ifndef _NGX_HTTP_ZK_LOCK_ESTATE_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_ESTATE_H_INCLUDED_


#include "ngx_http_zk_lock_worker.h"


struct ngx_http_zk_lock_estate_s {
    ngx_queue_t                        queue;   /* worker->estates */
    ngx_http_zk_lock_worker_t         *worker;
    ngx_http_zk_lock_zone_t           *zone;
    ngx_http_zk_lock_session_t        *session; /* NULL: not open yet */
    ngx_queue_t                        wards;
    ngx_event_t                        over;    /* posted: it has ended */

    unsigned                           ended:1; /* its session has */
    unsigned                           failed:1;    /* no memory for a ward */
};


/*
 * Takes what is in a slot that was adopted, and opens its session.  Owns zone.
 * If there is no memory, the slot is left again, and NGX_ERROR is returned.
 */
ngx_int_t ngx_http_zk_lock_estate_open(ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_zone_t *zone);

/* The worker leaves: parts from the slot and its session (worker_part()). */
void ngx_http_zk_lock_estate_leave(ngx_http_zk_lock_estate_t *estate);

/* Frees the estate and its wards, not the zone and the session. */
void ngx_http_zk_lock_estate_free(ngx_http_zk_lock_estate_t *estate);

/* Sends operations that could not be sent before. */
void ngx_http_zk_lock_estate_sweep(ngx_http_zk_lock_estate_t *estate);

/* The session of this worker is over, and with it its gate. */
void ngx_http_zk_lock_estate_unshare(ngx_http_zk_lock_estate_t *estate);

/* A record was changed, perhaps that of a ward. */
void ngx_http_zk_lock_estate_rung(ngx_http_zk_lock_worker_t *worker,
    uint32_t record);


#endif /* _NGX_HTTP_ZK_LOCK_ESTATE_H_INCLUDED_ */
