
/*
 * Turns: when a session sends its lists, and the reads of its looks, whose
 * answers may be long.
 *
 * The answers of a session come in the order of the requests, so a list of
 * megabytes delays the answer to a renewal that is sent behind the list.
 * Renewals, releases, grants and heartbeats are sent at once; an operation with
 * a turn waits here.
 */


#ifndef _ZKL_TURNS_H_INCLUDED_
#define _ZKL_TURNS_H_INCLUDED_


#include "zk/session.h"


/* lists whose size is remembered; a power of two */
#define ZKL_TURNS_SIZES               1024


typedef struct {
    uint32_t                       hash;        /* of the path */
    uint32_t                       bytes;       /* 0: none is known */
} zkl_turns_size_t;


typedef struct {
    ngx_queue_t                    claims;      /* waiting operations */
    ngx_queue_t                    looks;
    ngx_rbtree_t                   lists;       /* waiting, in flight, or being
                                                   shared; by path */
    ngx_rbtree_node_t              sentinel;
    size_t                         bytes;       /* of answers to come, or that
                                                   are being shared */
    ngx_msec_t                     answered;    /* the last long answer; 0:
                                                   none */
    ngx_uint_t                     claim;       /* the last one taken was of
                                                   claims */
    zkl_turns_size_t               sizes[ZKL_TURNS_SIZES];
} zkl_turns_t;


void zkl_turns_init(zkl_turns_t *turns);

/*
 * Adds an operation with a turn.  A LIST of a path whose list is not sent yet
 * shares that list, in the ops of the list; while the list is in flight, the
 * LIST is the next list of the path, because the list in flight may be older
 * than the call.
 */
void zkl_turns_add(zkl_turns_t *turns, zkl_op_t *op);

/*
 * Takes the operation that is to be sent now; NULL: none.  first: when the
 * oldest operation in flight was sent; 0: none is in flight.
 */
zkl_op_t *zkl_turns_take(zkl_turns_t *turns, ngx_msec_t first);

/* Takes any waiting operation, because the connection is lost; NULL: none. */
zkl_op_t *zkl_turns_drop(zkl_turns_t *turns);

/* The operation was answered, or has failed. */
void zkl_turns_answered(zkl_turns_t *turns, zkl_op_t *op, ngx_msec_t now);

/*
 * All that share op were told, so op can be freed.  Returns the next list of
 * the path, which is to be sent again, with the operations that share it; or
 * NULL.
 */
zkl_op_t *zkl_turns_end(zkl_turns_t *turns, zkl_op_t *op);

/* Whether an operation waits. */
#define zkl_turns_waiting(turns)                                               \
    (!ngx_queue_empty(&(turns)->claims) || !ngx_queue_empty(&(turns)->looks))


#endif /* _ZKL_TURNS_H_INCLUDED_ */
