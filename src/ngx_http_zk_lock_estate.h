
/*
 * An estate: a session that a worker has from one that is dead or has left,
 * and the claims that were made through it.
 *
 * Those that were waiting are deleted: who waited is gone with the worker.
 * Those that are held go on, as wards: by their records, anybody renews and
 * releases them as before.  When the last one has ended, so does the session;
 * unless it is the one that this worker itself goes on with (its home).
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
    unsigned                           home:1;  /* zone and session are the
                                                   worker's own */
};


/*
 * Takes what is in a slot that was adopted, and opens its session.  Owns zone.
 * If there is no memory, the slot is left again, and NGX_ERROR is returned.
 */
ngx_int_t ngx_http_zk_lock_estate_open(ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_zone_t *zone);

/*
 * The same for the worker's home, whose zone and session are the worker's;
 * its events are passed on by the worker.  Returns NULL if there is no memory.
 */
ngx_http_zk_lock_estate_t *ngx_http_zk_lock_estate_home(
    ngx_http_zk_lock_worker_t *worker);

/* The home's session is open: its wards take room in it. */
void ngx_http_zk_lock_estate_charge(ngx_http_zk_lock_estate_t *estate);

void ngx_http_zk_lock_estate_changed(void *data, ngx_str_t *path,
    ngx_uint_t deleted);
void ngx_http_zk_lock_estate_connected(void *data, ngx_uint_t fresh);
void ngx_http_zk_lock_estate_lost(void *data);

/* The session of its claims. */
ngx_http_zk_lock_session_t *ngx_http_zk_lock_estate_session(
    ngx_http_zk_lock_estate_t *estate);

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
