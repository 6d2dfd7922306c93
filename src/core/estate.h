
/*
 * An estate: the session of a worker that is dead or has left, adopted by this
 * worker, and the claims that were made through the session.
 *
 * This worker deletes the claims that waited, because the clients are gone with
 * the dead worker.  The held claims are made durable and become claims of this
 * worker, whose session counts the leases on, with the same deadlines.  Then
 * the adopted session is closed.
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
    ngx_event_t                        over;    /* closes the session */

    unsigned                           ended:1; /* the session is over */
    unsigned                           failed:1;    /* no memory for a ward */
};


/*
 * Makes wards of the records in an adopted slot, and opens the slot's session.
 * Owns zone.  NGX_ERROR: no memory; the slot is abandoned again.
 */
ngx_int_t zkl_estate_open(zkl_worker_t *worker, zkl_zone_t *zone);

/* The worker leaves: gives up the slot and the session (worker_part()). */
void zkl_estate_leave(zkl_estate_t *estate);


/* Once a second: sends the operations that could not be sent before. */
void zkl_estate_sweep(zkl_estate_t *estate);

/* The session of this worker is over, and the session's gate is gone. */
void zkl_estate_unshare(zkl_estate_t *estate);

/* A sibling has changed the record, which may be the record of a ward. */
void zkl_estate_rung(zkl_worker_t *worker, uint32_t record);


#endif /* _ZKL_ESTATE_H_INCLUDED_ */
