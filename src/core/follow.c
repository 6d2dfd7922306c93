
/*
 * Following.
 *
 * A scene is a lock that has followers, with a single watch on the list of the
 * lock's children for all followers.  When the watch fires, the children are
 * listed again, which sets the next watch, and only then the followers are
 * told: so that watch covers what a follower reads afterwards.  A lock that
 * changes all the time is listed twenty times a second at most.  If the lock's
 * znode does not exist, the watch is on the creation; a lock that is a single
 * znode has the watch on that znode in any case.
 *
 * Everything here runs on the event loop.  A scene exists while it has
 * followers; `op` is NULL unless a read is under way.
 */


#include "core/follow.h"


/* milliseconds from list to list, and from a failed list to the next */
#define ZKL_SCENE_REST                50
#define ZKL_SCENE_AGAIN               1000

struct zkl_scene_s {
    ngx_str_node_t                     sn;      /* the path */
    ngx_queue_t                        follows;
    zkl_worker_t                      *worker;
    zkl_op_t                          *op;
    ngx_event_t                        timer;   /* until the next list */
    ngx_msec_t                         listed;  /* when the last was sent */

    unsigned                           told:1;  /* while followers are told */
    unsigned                           node:1;  /* the lock is one znode */
};


static zkl_scene_t *zkl_scene_get(zkl_worker_t *worker, ngx_str_t *path);
static void zkl_scene_free(zkl_scene_t *scene);
static void zkl_scene_list(zkl_scene_t *scene);
static void zkl_scene_timer_handler(ngx_event_t *ev);
static void zkl_scene_look(zkl_scene_t *scene, zkl_op_e type);
static void zkl_scene_handler(zkl_op_t *op);
static void zkl_scene_again(zkl_scene_t *scene);
static void zkl_scene_tell(zkl_scene_t *scene);
static void zkl_scene_connected(ngx_rbtree_node_t *node,
    ngx_rbtree_node_t *sentinel);


ngx_int_t
zkl_follow(zkl_worker_t *worker, ngx_str_t *path, zkl_follow_t *follow)
{
    ngx_uint_t    first;
    zkl_scene_t  *scene;

    scene = zkl_scene_get(worker, path);
    if (scene == NULL) {
        return NGX_ERROR;
    }

    first = ngx_queue_empty(&scene->follows);

    if (first) {
        scene->node = follow->node;
    }

    follow->scene = scene;

    ngx_queue_insert_tail(&scene->follows, &follow->queue);

    /* a later follower waits for the same watch */

    if (first) {
        zkl_scene_list(scene);
    }

    return NGX_OK;
}


void
zkl_unfollow(zkl_follow_t *follow)
{
    zkl_scene_t  *scene;

    scene = follow->scene;

    if (scene == NULL) {
        return;
    }

    ngx_queue_remove(&follow->queue);
    follow->scene = NULL;

    if (ngx_queue_empty(&scene->follows) && !scene->told) {
        zkl_scene_free(scene);
    }
}


static zkl_scene_t *
zkl_scene_get(zkl_worker_t *worker, ngx_str_t *path)
{
    uint32_t      hash;
    zkl_scene_t  *scene;

    hash = ngx_crc32_long(path->data, path->len);

    /* the node is the first member */

    scene = (zkl_scene_t *) ngx_str_rbtree_lookup(&worker->scenes, path, hash);

    if (scene != NULL) {
        return scene;
    }

    scene = ngx_calloc(sizeof(zkl_scene_t) + path->len, worker->log);
    if (scene == NULL) {
        return NULL;
    }

    scene->worker = worker;
    scene->sn.str.len = path->len;
    scene->sn.str.data = (u_char *) scene + sizeof(zkl_scene_t);
    ngx_memcpy(scene->sn.str.data, path->data, path->len);

    scene->sn.node.key = hash;

    ngx_queue_init(&scene->follows);

    zkl_worker_timer(worker, &scene->timer, zkl_scene_timer_handler);
    scene->timer.cancelable = 1;

    ngx_rbtree_insert(&worker->scenes, &scene->sn.node);

    return scene;
}


static void
zkl_scene_free(zkl_scene_t *scene)
{
    if (scene->op != NULL) {
        scene->op->handler = NULL;
    }

    if (scene->timer.timer_set) {
        ngx_del_timer(&scene->timer);
    }

    ngx_rbtree_delete(&scene->worker->scenes, &scene->sn.node);

    ngx_free(scene);
}


/* Lists the lock now, or when the lock has rested. */

static void
zkl_scene_list(zkl_scene_t *scene)
{
    ngx_msec_t  past;

    if (scene->op != NULL || scene->timer.timer_set
        || !zkl_session_connected(scene->worker->session))
    {
        return;
    }

    past = ngx_current_msec - scene->listed;

    if (scene->listed != 0 && past < ZKL_SCENE_REST) {
        ngx_add_timer(&scene->timer, ZKL_SCENE_REST - past);
        return;
    }

    scene->listed = ngx_current_msec;

    zkl_scene_look(scene, scene->node ? ZKL_OP_EXISTS : ZKL_OP_LIST);
}


static void
zkl_scene_timer_handler(ngx_event_t *ev)
{
    zkl_scene_t  *scene;

    scene = ngx_queue_data(ev, zkl_scene_t, timer);

    zkl_scene_list(scene);
}


static void
zkl_scene_look(zkl_scene_t *scene, zkl_op_e type)
{
    zkl_op_t  *op;

    op = zkl_op_new(scene->worker->session, type, &scene->sn.str, NULL, NULL);
    if (op == NULL) {
        zkl_scene_again(scene);
        return;
    }

    op->handler = zkl_scene_handler;
    op->data = scene;
    op->watch = zkl_session_may_watch(scene->worker->session,
                                      scene->sn.str.len);

    scene->op = op;

    zkl_session_send(op);
}


static void
zkl_scene_handler(zkl_op_t *op)
{
    zkl_scene_t  *scene;

    scene = op->data;
    scene->op = NULL;

    if (op->type == ZKL_OP_LIST && op->rc == ZKL_NO_NODE) {
        zkl_scene_look(scene, ZKL_OP_EXISTS);
        return;
    }

    if (op->type == ZKL_OP_EXISTS && op->rc == ZKL_OK && !scene->node) {
        zkl_scene_look(scene, ZKL_OP_LIST);
        return;
    }

    if (!op->watch || (op->rc != ZKL_OK && op->rc != ZKL_NO_NODE)) {
        zkl_scene_again(scene);
    }

    zkl_scene_tell(scene);
}


/* There are too many watches, or no memory: lists again in a second. */

static void
zkl_scene_again(zkl_scene_t *scene)
{
    if (!scene->timer.timer_set) {
        ngx_add_timer(&scene->timer, ZKL_SCENE_AGAIN);
    }
}


/* Followers may leave, and new followers may come, while the scene tells. */

static void
zkl_scene_tell(zkl_scene_t *scene)
{
    ngx_queue_t    follows;
    ngx_queue_t   *q;
    zkl_follow_t  *follow;

    ngx_queue_init(&follows);

    if (!ngx_queue_empty(&scene->follows)) {
        ngx_queue_add(&follows, &scene->follows);
        ngx_queue_init(&scene->follows);
    }

    scene->told = 1;

    while (!ngx_queue_empty(&follows)) {
        q = ngx_queue_head(&follows);

        ngx_queue_remove(q);
        ngx_queue_insert_tail(&scene->follows, q);

        follow = ngx_queue_data(q, zkl_follow_t, queue);

        follow->handler(follow);
    }

    scene->told = 0;

    if (ngx_queue_empty(&scene->follows)) {
        zkl_scene_free(scene);
    }
}


void
zkl_follow_listed(zkl_worker_t *worker, ngx_str_t *path)
{
    zkl_scene_t  *scene;

    scene = (zkl_scene_t *)
                ngx_str_rbtree_lookup(&worker->scenes, path,
                                      ngx_crc32_long(path->data, path->len));

    if (scene != NULL) {
        zkl_scene_list(scene);
    }
}


void
zkl_follow_changed(zkl_worker_t *worker, ngx_str_t *path)
{
    zkl_scene_t  *scene;

    scene = (zkl_scene_t *)
                ngx_str_rbtree_lookup(&worker->scenes, path,
                                      ngx_crc32_long(path->data, path->len));

    if (scene != NULL && scene->node) {
        zkl_scene_list(scene);
    }
}


void
zkl_follow_connected(zkl_worker_t *worker)
{
    if (worker->scenes.root != worker->scenes.sentinel) {
        zkl_scene_connected(worker->scenes.root, worker->scenes.sentinel);
    }
}


/* No scene leaves the tree here, because the answers come later. */

static void
zkl_scene_connected(ngx_rbtree_node_t *node, ngx_rbtree_node_t *sentinel)
{
    if (node->left != sentinel) {
        zkl_scene_connected(node->left, sentinel);
    }

    if (node->right != sentinel) {
        zkl_scene_connected(node->right, sentinel);
    }

    zkl_scene_list((zkl_scene_t *) node);
}
