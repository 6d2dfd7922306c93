
/*
 * The one-node layout: a lock is a plain ephemeral znode, and the claim that
 * makes the znode has the lock.
 */


#ifndef _ZKL_NODE_H_INCLUDED_
#define _ZKL_NODE_H_INCLUDED_


#include "core/call.h"
#include "core/replace.h"


/*
 * Whether op, a GET, has read the znode of the claim with the id: the znode's
 * name does not have the id, but the data do.
 */
ngx_uint_t zkl_node_is(const zkl_id_t *id, zkl_op_t *op);

/*
 * op has read the znode of the claim: the znode of another claim of a one-node
 * lock is none of the claim's, so op->rc becomes ZKL_NO_NODE.
 */
void zkl_node_check(zkl_claim_t *claim, zkl_op_t *op);


/* for the lock */

/*
 * Lets the first claim contend, unless a claim of this worker contends or has
 * the lock, or the znode of another client is watched.
 */
void zkl_node_turn(zkl_lock_t *lock);
/*
 * If another claim surely has the lock, tells the clients that have to know,
 * later and not from inside.
 */
void zkl_node_resolve(zkl_lock_t *lock);
/* The watch on the znode fired. */
void zkl_node_changed(zkl_lock_t *lock, ngx_uint_t deleted);
/*
 * Makes the znode that op, a GET, has read the only claim of a list; 0: the
 * claim is not this worker's.
 */
ngx_uint_t zkl_node_observe(zkl_lock_t *lock, zkl_op_t *op,
    zkl_observed_t *observed);


/* for the claim */

/* The claim's create found that the znode exists. */
void zkl_node_exists(zkl_claim_t *claim);


/* for the call */

/* Describes the lock's only claim, if there is one. */
void zkl_node_look(zkl_call_t *call);
/*
 * Whether op, a GET, has read the znode that the call is about, by the token or
 * by the name that zkl_node_look() has given to the claim.
 */
ngx_uint_t zkl_node_asked(zkl_call_t *call, zkl_op_t *op);


#endif /* _ZKL_NODE_H_INCLUDED_ */
