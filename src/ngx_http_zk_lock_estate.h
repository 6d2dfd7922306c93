
/*
 * An estate: a session that a worker has from one that is dead or has left,
 * and the claims that were made through it.
 *
 * Those that were waiting are deleted: their clients are gone with the worker.
 * Those that are held are made durable, and become claims of this worker, whose
 * session counts their leases from then on, with the deadlines that they had.
 * When that is done the adopted session is closed.
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

/* Leaves it to another worker, or ends its session if there is none. */
void ngx_http_zk_lock_estate_leave(ngx_http_zk_lock_estate_t *estate);

/* Frees it and its wards, not its zone and session. */
void ngx_http_zk_lock_estate_free(ngx_http_zk_lock_estate_t *estate);

/* Tries again what could not be sent. */
void ngx_http_zk_lock_estate_sweep(ngx_http_zk_lock_estate_t *estate);

/* Somebody changed a record, perhaps one of a ward. */
void ngx_http_zk_lock_estate_rung(ngx_http_zk_lock_worker_t *worker,
    uint32_t record);


#endif /* _NGX_HTTP_ZK_LOCK_ESTATE_H_INCLUDED_ */
