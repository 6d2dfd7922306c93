
/*
 * Following a lock: who does is told when its claims may have changed.
 */


#ifndef _ZKL_FOLLOW_H_INCLUDED_
#define _ZKL_FOLLOW_H_INCLUDED_


#include "core/worker.h"


typedef struct zkl_follow_s  zkl_follow_t;

/*
 * Called again and again: since the last call, or since it was followed, a
 * claim may have come or gone.  It may leave.
 */
typedef void (*zkl_follow_pt)(zkl_follow_t *follow);

/* a part of the follower's own object, zeroed at first */

struct zkl_follow_s {
    ngx_queue_t                        queue;
    zkl_scene_t                       *scene;   /* NULL: not followed */
    zkl_follow_pt                      handler;
    unsigned                           node:1;  /* set by the caller: the lock
                                                   is one znode */
};


/*
 * Follows the lock at path; what is read after this call and is not up to date
 * will be told.  handler is set by the caller, and never called from inside.
 * NGX_ERROR: no memory.
 */
ngx_int_t zkl_follow(zkl_worker_t *worker, ngx_str_t *path,
    zkl_follow_t *follow);

/* Leaves; nothing happens if it is not followed. */
void zkl_unfollow(zkl_follow_t *follow);


/* for the worker */

/* The watch on the children of path fired. */
void zkl_follow_listed(zkl_worker_t *worker, ngx_str_t *path);
/* The watch on the data of path fired. */
void zkl_follow_changed(zkl_worker_t *worker, ngx_str_t *path);
/* The connection is back: what happened meanwhile is not known. */
void zkl_follow_connected(zkl_worker_t *worker);


#endif /* _ZKL_FOLLOW_H_INCLUDED_ */
