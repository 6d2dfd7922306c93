
/*
 * Adoption: this worker takes over what is left of a worker that is dead or has
 * left.  The leases become durable claims of this worker, with the same
 * deadlines.  The session is closed when no lease depends on it: the claims
 * that waited, and those that are bound, end with the session, because the
 * clients are gone with the dead worker.
 */


#ifndef _ZKL_ADOPT_H_INCLUDED_
#define _ZKL_ADOPT_H_INCLUDED_


#include "core/worker.h"


struct zkl_adoption_s {
    ngx_queue_t                        queue;   /* worker->adoptions */
    zkl_worker_t                      *worker;
    zkl_zone_t                        *zone;
    zkl_session_t                     *session; /* NULL: not open yet */
    ngx_uint_t                         nclaims; /* that may need the session */
    ngx_event_t                        over;    /* closes the session */

    unsigned                           ended:1; /* the session is over */
    unsigned                           failed:1;    /* a lease has no claim
                                                       yet */
};


/*
 * Adopts the slots of workers that are dead or have left, unless this worker
 * leaves and another worker stays.  If there is no memory, the sweep tries
 * again.
 */
void zkl_adopt_orphans(zkl_worker_t *worker);

/* The worker leaves: gives up the slots and the sessions. */
void zkl_adopt_leave(zkl_worker_t *worker);


/* Once a second: closes the sessions that could not be closed before. */
void zkl_adopt_sweep(zkl_worker_t *worker);

/* Whether the worker adopts that session. */
ngx_uint_t zkl_adopt_has(zkl_worker_t *worker, int64_t session);

/* A claim does not depend on the adopted session any more. */
void zkl_adopt_settled(zkl_adoption_t *adoption);


#endif /* _ZKL_ADOPT_H_INCLUDED_ */
