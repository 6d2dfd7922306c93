
/*
 * Following a lock: a follower is told when the lock's claims may have changed.
 */


#ifndef _ZKL_FOLLOW_H_INCLUDED_
#define _ZKL_FOLLOW_H_INCLUDED_


#include "core/worker.h"


typedef struct zkl_follow_s  zkl_follow_t;

/*
 * Called each time when a claim may have come or gone since the last call, or
 * since the lock was followed.  The handler may unfollow.
 */
typedef void (*zkl_follow_pt)(zkl_follow_t *follow);

/* a part of the follower's own object, zeroed at first */

struct zkl_follow_s {
    ngx_queue_t                        queue;
    zkl_followed_t                    *followed;    /* NULL: not followed */
    zkl_follow_pt                      handler;
    unsigned                           node:1;      /* set by the caller: the
                                                       lock is one znode */
};


/*
 * Follows the lock at path; each change that a read after this call does not
 * show is told.  handler is set by the caller, and never called from inside.
 * NGX_ERROR: no memory.
 */
ngx_int_t zkl_follow(zkl_worker_t *worker, ngx_str_t *path,
    zkl_follow_t *follow);

/* Stops following, if the lock is followed. */
void zkl_unfollow(zkl_follow_t *follow);


/* for the worker */

/* The watch on the data of path fired; listed: on the children. */
void zkl_follow_changed(zkl_worker_t *worker, ngx_str_t *path,
    ngx_uint_t listed);
/* The connection is back: changes may have been missed. */
void zkl_follow_connected(zkl_worker_t *worker);


#endif /* _ZKL_FOLLOW_H_INCLUDED_ */
