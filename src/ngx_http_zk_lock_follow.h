
/*
 * Following a lock: who does is told when its claims may have changed.
 */


#ifndef _NGX_HTTP_ZK_LOCK_FOLLOW_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_FOLLOW_H_INCLUDED_


#include "ngx_http_zk_lock_worker.h"


typedef struct ngx_http_zk_lock_follow_s  ngx_http_zk_lock_follow_t;

/*
 * Called again and again: since the last call, or since it was followed, a
 * claim may have come or gone.  It may leave.
 */
typedef void (*ngx_http_zk_lock_follow_pt)(ngx_http_zk_lock_follow_t *follow);

/* a part of the follower's own object, zeroed at first */

struct ngx_http_zk_lock_follow_s {
    ngx_queue_t                        queue;
    ngx_http_zk_lock_scene_t          *scene;   /* NULL: not followed */
    ngx_http_zk_lock_follow_pt         handler;
    unsigned                           node:1;  /* set by the caller: the lock
                                                   is one znode */
};


/*
 * Follows the lock at path; what is read after this call and is not up to date
 * will be told.  handler is set by the caller, and never called from inside.
 * NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_zk_lock_follow(ngx_http_zk_lock_worker_t *worker,
    ngx_str_t *path, ngx_http_zk_lock_follow_t *follow);

/* Leaves; nothing happens if it is not followed. */
void ngx_http_zk_lock_unfollow(ngx_http_zk_lock_follow_t *follow);


/* for the worker */

/* The watch on the children of path fired. */
void ngx_http_zk_lock_follow_listed(ngx_http_zk_lock_worker_t *worker,
    ngx_str_t *path);
/* The watch on the data of path fired. */
void ngx_http_zk_lock_follow_changed(ngx_http_zk_lock_worker_t *worker,
    ngx_str_t *path);
/* The connection is back: what happened meanwhile is not known. */
void ngx_http_zk_lock_follow_connected(ngx_http_zk_lock_worker_t *worker);


#endif /* _NGX_HTTP_ZK_LOCK_FOLLOW_H_INCLUDED_ */
