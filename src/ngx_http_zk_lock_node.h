
/*
 * The one-node layout: a lock is one plain ephemeral znode, and who makes it
 * has the lock.
 */


#ifndef _NGX_HTTP_ZK_LOCK_NODE_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_NODE_H_INCLUDED_


#include "ngx_http_zk_lock_ask.h"
#include "ngx_http_zk_lock_share.h"


/*
 * Whether the znode that a GET has read is that of the claim with that id: the
 * name of such a znode does not tell, but its data do.
 */
ngx_uint_t ngx_http_zk_lock_node_is(const zk_lock_id_t *id,
    ngx_http_zk_lock_op_t *op);

/* The same of a claim of this worker, by the id that its znode has. */
ngx_uint_t ngx_http_zk_lock_node_of(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_op_t *op);


/* for the lock */

void ngx_http_zk_lock_node_init(ngx_http_zk_lock_lock_t *lock);
/* It is about to be freed. */
void ngx_http_zk_lock_node_leave(ngx_http_zk_lock_lock_t *lock);
/* One of its claims contends for the znode, if it is their turn. */
void ngx_http_zk_lock_node_turn(ngx_http_zk_lock_lock_t *lock);
/*
 * Those whose wait is over are told, not from inside, if somebody else surely
 * has the lock.
 */
void ngx_http_zk_lock_node_settle(ngx_http_zk_lock_lock_t *lock);
/* The watch on the znode fired. */
void ngx_http_zk_lock_node_changed(ngx_http_zk_lock_lock_t *lock,
    ngx_uint_t deleted);
/* Once a second. */
void ngx_http_zk_lock_node_sweep(ngx_http_zk_lock_lock_t *lock);
/* What a GET has read, as the one claim of a list; 0: it is none of ours. */
ngx_uint_t ngx_http_zk_lock_node_sight(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_op_t *op, zk_lock_sighting_t *sighting);


/* for the claim */

/* Its create found a znode there. */
void ngx_http_zk_lock_node_exists(ngx_http_zk_lock_claim_t *claim);
/* The claim is about to end: the next one takes its place on the board. */
void ngx_http_zk_lock_node_next(ngx_http_zk_lock_claim_t *claim);


/* for the ask */

/* The lock's only claim, if it has one. */
void ngx_http_zk_lock_node_look(ngx_http_zk_lock_ask_t *ask);
/*
 * Whether a GET has read the znode that is asked for, by its token or by the
 * name that look() has given it.
 */
ngx_uint_t ngx_http_zk_lock_node_asked(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op);


#endif /* _NGX_HTTP_ZK_LOCK_NODE_H_INCLUDED_ */
