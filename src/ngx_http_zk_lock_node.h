
/*
 * The one-node layout: a lock is one plain ephemeral znode, and the claim that
 * makes the znode has the lock.
 */


#ifndef _NGX_HTTP_ZK_LOCK_NODE_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_NODE_H_INCLUDED_


#include "ngx_http_zk_lock_ask.h"
#include "ngx_http_zk_lock_share.h"


/*
 * Whether the znode that a GET has read is the znode of the claim with the id:
 * the znode's name does not have the id, but the data do.
 */
ngx_uint_t ngx_http_zk_lock_node_is(const zk_lock_id_t *id,
    ngx_http_zk_lock_op_t *op);

/* Whether the znode is that of the worker's claim, by the id in the znode. */
ngx_uint_t ngx_http_zk_lock_node_of(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_op_t *op);


/* for the lock */

void ngx_http_zk_lock_node_init(ngx_http_zk_lock_lock_t *lock);
/* The lock is about to be freed. */
void ngx_http_zk_lock_node_leave(ngx_http_zk_lock_lock_t *lock);
/* The lock's first claim contends, if no claim of the gateway is before. */
void ngx_http_zk_lock_node_turn(ngx_http_zk_lock_lock_t *lock);
/*
 * Tells the clients whose wait is over, later and not from inside, if another
 * claim surely has the lock.
 */
void ngx_http_zk_lock_node_settle(ngx_http_zk_lock_lock_t *lock);
/* The watch on the znode fired. */
void ngx_http_zk_lock_node_changed(ngx_http_zk_lock_lock_t *lock,
    ngx_uint_t deleted);
/* Once a second. */
void ngx_http_zk_lock_node_sweep(ngx_http_zk_lock_lock_t *lock);
/*
 * Makes what a GET has read the only claim of a list; 0: the claim is not one
 * of this worker's.
 */
ngx_uint_t ngx_http_zk_lock_node_sight(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_op_t *op, zk_lock_sighting_t *sighting);


/* for the claim */

/* The claim's create found that the znode exists. */
void ngx_http_zk_lock_node_exists(ngx_http_zk_lock_claim_t *claim);
/* The claim is about to end: puts the next claim's record on the board. */
void ngx_http_zk_lock_node_next(ngx_http_zk_lock_claim_t *claim);


/* for the ask */

/* Describes the lock's only claim, if there is one. */
void ngx_http_zk_lock_node_look(ngx_http_zk_lock_ask_t *ask);
/*
 * Whether a GET has read the znode that is asked for, by the token or by the
 * name that look() has given to the claim.
 */
ngx_uint_t ngx_http_zk_lock_node_asked(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op);


#endif /* _NGX_HTTP_ZK_LOCK_NODE_H_INCLUDED_ */
