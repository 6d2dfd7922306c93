
/*
 * Following.
 *
 * A lock that has followers is a followed lock, with a single watch on the list
 * of the lock's children for all followers.  When the watch fires, the children
 * are listed again, which sets the next watch, and only then the followers are
 * told: so that watch covers what a follower reads afterwards.  A lock that
 * changes all the time is listed twenty times a second at most.  If the lock's
 * znode does not exist, the watch is on the creation; a lock that is a single
 * znode has the watch on that znode in any case.
 *
 * Everything here runs on the event loop.  A zkl_followed_t exists while it has
 * followers; `op` is NULL unless a read is under way.
 */


#include "core/follow.h"


/* milliseconds from list to list, and from a failed list to the next */
#define ZKL_FOLLOWED_REST             50
#define ZKL_FOLLOWED_AGAIN            1000

struct zkl_followed_s {
    ngx_str_node_t                     sn;      /* the path */
    ngx_queue_t                        follows;
    zkl_worker_t                      *worker;
    zkl_op_t                          *op;
    ngx_event_t                        timer;   /* until the next list */
    ngx_msec_t                         listed;  /* when the last was sent */

    unsigned                           told:1;  /* while followers are told */
    unsigned                           node:1;  /* the lock is one znode */
};


static zkl_followed_t *zkl_followed_find(zkl_worker_t *worker,
    ngx_str_t *path);
static void zkl_followed_free(zkl_followed_t *followed);
static void zkl_followed_list(zkl_followed_t *followed);
static void zkl_followed_timer_handler(ngx_event_t *ev);
static void zkl_followed_look(zkl_followed_t *followed, zkl_op_e type);
static void zkl_followed_handler(zkl_op_t *op);
static void zkl_followed_tell(zkl_followed_t *followed);


ngx_int_t
zkl_follow(zkl_worker_t *worker, ngx_str_t *path, zkl_follow_t *follow)
{
    zkl_followed_t  *followed;

    followed = zkl_followed_find(worker, path);

    if (followed == NULL) {
        followed = ngx_calloc(sizeof(zkl_followed_t) + path->len, worker->log);
        if (followed == NULL) {
            return NGX_ERROR;
        }

        followed->worker = worker;
        followed->node = follow->node;
        followed->sn.str.len = path->len;
        followed->sn.str.data = (u_char *) followed + sizeof(zkl_followed_t);
        ngx_memcpy(followed->sn.str.data, path->data, path->len);

        followed->sn.node.key = ngx_crc32_long(path->data, path->len);

        ngx_queue_init(&followed->follows);

        zkl_worker_timer(worker, &followed->timer, zkl_followed_timer_handler);
        followed->timer.cancelable = 1;

        ngx_rbtree_insert(&worker->followed, &followed->sn.node);

        /* a later follower waits for the same watch */

        zkl_followed_list(followed);
    }

    follow->followed = followed;
    ngx_queue_insert_tail(&followed->follows, &follow->queue);

    return NGX_OK;
}


void
zkl_unfollow(zkl_follow_t *follow)
{
    zkl_followed_t  *followed;

    followed = follow->followed;

    if (followed == NULL) {
        return;
    }

    ngx_queue_remove(&follow->queue);
    follow->followed = NULL;

    if (ngx_queue_empty(&followed->follows) && !followed->told) {
        zkl_followed_free(followed);
    }
}


static zkl_followed_t *
zkl_followed_find(zkl_worker_t *worker, ngx_str_t *path)
{
    /* the node is the first member */

    return (zkl_followed_t *)
           ngx_str_rbtree_lookup(&worker->followed, path,
                                 ngx_crc32_long(path->data, path->len));
}


static void
zkl_followed_free(zkl_followed_t *followed)
{
    if (followed->op != NULL) {
        followed->op->handler = NULL;
    }

    if (followed->timer.timer_set) {
        ngx_del_timer(&followed->timer);
    }

    ngx_rbtree_delete(&followed->worker->followed, &followed->sn.node);

    ngx_free(followed);
}


/* Lists the lock now, or when the lock has rested. */

static void
zkl_followed_list(zkl_followed_t *followed)
{
    ngx_msec_t  past;

    if (followed->op != NULL || followed->timer.timer_set
        || !zkl_session_connected(followed->worker->session))
    {
        return;
    }

    past = ngx_current_msec - followed->listed;

    if (followed->listed != 0 && past < ZKL_FOLLOWED_REST) {
        ngx_add_timer(&followed->timer, ZKL_FOLLOWED_REST - past);
        return;
    }

    followed->listed = ngx_current_msec;

    zkl_followed_look(followed, followed->node ? ZKL_OP_EXISTS : ZKL_OP_LIST);
}


static void
zkl_followed_timer_handler(ngx_event_t *ev)
{
    zkl_followed_list(ngx_queue_data(ev, zkl_followed_t, timer));
}


static void
zkl_followed_look(zkl_followed_t *followed, zkl_op_e type)
{
    zkl_op_t  *op;

    op = zkl_op_new(followed->worker->session, type, &followed->sn.str, NULL,
                    NULL);
    if (op == NULL) {
        ngx_add_timer(&followed->timer, ZKL_FOLLOWED_AGAIN);
        return;
    }

    op->turn = (type == ZKL_OP_LIST) ? ZKL_TURN_LOOK : ZKL_TURN_NONE;
    op->watch = zkl_session_may_watch(followed->worker->session,
                                      followed->sn.str.len);

    followed->op = op;

    zkl_session_send(op, zkl_followed_handler, followed);
}


static void
zkl_followed_handler(zkl_op_t *op)
{
    zkl_followed_t  *followed;

    followed = op->data;
    followed->op = NULL;

    if (op->type == ZKL_OP_LIST && op->rc == ZKL_NO_NODE) {
        zkl_followed_look(followed, ZKL_OP_EXISTS);
        return;
    }

    if (op->type == ZKL_OP_EXISTS && op->rc == ZKL_OK && !followed->node) {
        zkl_followed_look(followed, ZKL_OP_LIST);
        return;
    }

    if (op->rc == ZKL_UNSENT && op->fresh) {

        /* the list was shared with a read that was not behind a commit */

        zkl_followed_list(followed);

    } else if (!op->watch || (op->rc != ZKL_OK && op->rc != ZKL_NO_NODE)) {

        /* there are too many watches, or the list has failed */

        ngx_add_timer(&followed->timer, ZKL_FOLLOWED_AGAIN);
    }

    zkl_followed_tell(followed);
}


/* Followers may leave, and new followers may come, during the calls. */

static void
zkl_followed_tell(zkl_followed_t *followed)
{
    ngx_queue_t    follows;
    ngx_queue_t   *q;
    zkl_follow_t  *follow;

    ngx_queue_init(&follows);

    if (!ngx_queue_empty(&followed->follows)) {
        ngx_queue_add(&follows, &followed->follows);
        ngx_queue_init(&followed->follows);
    }

    followed->told = 1;

    while (!ngx_queue_empty(&follows)) {
        q = ngx_queue_head(&follows);

        ngx_queue_remove(q);
        ngx_queue_insert_tail(&followed->follows, q);

        follow = ngx_queue_data(q, zkl_follow_t, queue);

        follow->handler(follow);
    }

    followed->told = 0;

    if (ngx_queue_empty(&followed->follows)) {
        zkl_followed_free(followed);
    }
}


void
zkl_follow_changed(zkl_worker_t *worker, ngx_str_t *path, ngx_uint_t listed)
{
    zkl_followed_t  *followed;

    followed = zkl_followed_find(worker, path);

    if (followed == NULL
        || (!listed && (!followed->node || followed->op != NULL)))
    {
        /* a read of a znode that is under way is as new as the change */

        return;
    }

    if (followed->op != NULL) {
        /* the watch has told before the list, which is shared, was told */

        followed->op->handler = NULL;
        followed->op = NULL;
    }

    zkl_followed_list(followed);
}


void
zkl_follow_connected(zkl_worker_t *worker)
{
    ngx_rbtree_node_t  *node;

    if (worker->followed.root == worker->followed.sentinel) {
        return;
    }

    /* no lock leaves the tree here, because the answers come later */

    for (node = ngx_rbtree_min(worker->followed.root,
                               worker->followed.sentinel);
         node != NULL;
         node = ngx_rbtree_next(&worker->followed, node))
    {
        zkl_followed_list((zkl_followed_t *) node);
    }
}
