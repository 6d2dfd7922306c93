
/*
 * Adoption: this worker takes over the session of a worker that is dead or has
 * left, and the claims that were made through the session.
 *
 * This worker deletes the claims that waited, because the clients are gone with
 * the dead worker, and the held claims that are bound.  The other held claims
 * become durable, and claims of this worker, which goes on counting the leases,
 * with the same deadlines.  The adopted session is closed when no claim depends
 * on it.
 */


#ifndef _ZKL_ADOPT_H_INCLUDED_
#define _ZKL_ADOPT_H_INCLUDED_


#include "core/worker.h"


/*
 * Adopts the slots of workers that are dead or have left, unless this worker
 * leaves and another worker stays.  If there is no memory, the sweep tries
 * again.
 */
void zkl_adopt_orphans(zkl_worker_t *worker);

/* The worker leaves: gives up the slots and the sessions. */
void zkl_adopt_leave(zkl_worker_t *worker);


/* The servers have changed: tells the adopted sessions. */
void zkl_adopt_servers(zkl_worker_t *worker);

/* Once a second: sends the operations that could not be sent before. */
void zkl_adopt_sweep(zkl_worker_t *worker);

/* This worker's session is over: no claim becomes durable under its gate. */
void zkl_adopt_gate_lost(zkl_worker_t *worker);

/* Whether an adopted claim has that id. */
ngx_uint_t zkl_adopt_has(zkl_worker_t *worker, const zkl_id_t *id);

/* A sibling has changed the record, which may be that of an adopted claim. */
void zkl_adopt_rung(zkl_worker_t *worker, uint32_t record);


#endif /* _ZKL_ADOPT_H_INCLUDED_ */
