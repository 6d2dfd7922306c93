
/*
 * An estate: the session of a worker that is dead or has left, adopted by this
 * worker, and the claims that were made through the session.
 *
 * Claims that were waiting are deleted: their clients are gone with the worker.
 * Claims that are held are made durable, and become claims of this worker: its
 * session counts the leases from then on, with the same deadlines.  Then the
 * adopted session is closed.
 */


#ifndef _ZKL_ESTATE_H_INCLUDED_
#define _ZKL_ESTATE_H_INCLUDED_


#include "core/worker.h"


struct zkl_estate_s {
    ngx_queue_t                        queue;   /* worker->estates */
    zkl_worker_t                      *worker;
    zkl_zone_t                        *zone;
    zkl_session_t                     *session; /* NULL: not open yet */
    ngx_queue_t                        wards;
    ngx_event_t                        over;    /* posted: it has ended */

    unsigned                           ended:1; /* its session has */
    unsigned                           failed:1;    /* no memory for a ward */
};


/*
 * Takes what is in a slot that was adopted, and opens its session.  Owns zone.
 * If there is no memory, the slot is left again, and NGX_ERROR is returned.
 */
ngx_int_t zkl_estate_open(zkl_worker_t *worker, zkl_zone_t *zone);

/* The worker leaves: parts from the slot and its session (worker_part()). */
void zkl_estate_leave(zkl_estate_t *estate);


/* Sends operations that could not be sent before. */
void zkl_estate_sweep(zkl_estate_t *estate);

/* The session of this worker is over, and with it its gate. */
void zkl_estate_unshare(zkl_estate_t *estate);

/* A record was changed, perhaps that of a ward. */
void zkl_estate_rung(zkl_worker_t *worker, uint32_t record);


#endif /* _ZKL_ESTATE_H_INCLUDED_ */
