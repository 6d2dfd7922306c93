
/*
 * Makes a lock's znode, and whatever of its parents is missing, once for all
 * claims of the worker that wait for it.
 *
 * Everything here runs on the event loop.  lock->making is the length of the
 * path that is being made, 0 if none is; its operation pins the lock.
 */


#include "ngx_http_zk_lock_node.h"


static size_t ngx_http_zk_lock_lock_bottom(ngx_http_zk_lock_lock_t *lock);
static void ngx_http_zk_lock_lock_make_step(ngx_http_zk_lock_lock_t *lock);
static void ngx_http_zk_lock_lock_make_handler(ngx_http_zk_lock_op_t *op);


/*
 * Makes the lock's znode, unless its claims do, and what is missing above it:
 * from there up to the first parent that can be made, and down again.  Each is
 * made alone, as a container, which ZooKeeper removes when it is empty for a
 * while; as a persistent znode if the server knows no containers.
 */

void
ngx_http_zk_lock_lock_make(ngx_http_zk_lock_lock_t *lock)
{
    if (lock->making != 0) {
        return;
    }

    lock->making = ngx_http_zk_lock_lock_bottom(lock);

    ngx_http_zk_lock_lock_make_step(lock);
}


/* The length of the path of the last znode that is to be made. */

static size_t
ngx_http_zk_lock_lock_bottom(ngx_http_zk_lock_lock_t *lock)
{
    size_t  len;

    len = lock->sn.str.len;

    if (lock->node) {
        for (len--; len > 1 && lock->sn.str.data[len] != '/'; len--) {
            /* void */
        }
    }

    return len;
}


static void
ngx_http_zk_lock_lock_make_step(ngx_http_zk_lock_lock_t *lock)
{
    ngx_str_t                   dir;
    ngx_http_zk_lock_op_t      *op;
    ngx_http_zk_lock_worker_t  *worker;

    worker = lock->worker;

    dir.data = lock->sn.str.data;
    dir.len = lock->making;

    op = ngx_http_zk_lock_op_new(worker->session,
                                 worker->persistent
                                 ? NGX_HTTP_ZK_LOCK_OP_PERSISTENT
                                 : NGX_HTTP_ZK_LOCK_OP_CONTAINER,
                                 &dir, NULL, NULL);
    if (op == NULL) {
        lock->making = 0;
        ngx_http_zk_lock_lock_refuse(lock, NGX_HTTP_ZK_LOCK_FAILED);
        return;
    }

    op->handler = ngx_http_zk_lock_lock_make_handler;
    op->data = lock;

    ngx_http_zk_lock_lock_pin(lock);
    ngx_http_zk_lock_session_send(op);
}


static void
ngx_http_zk_lock_lock_make_handler(ngx_http_zk_lock_op_t *op)
{
    size_t                    len;
    u_char                   *path;
    ngx_http_zk_lock_lock_t  *lock;

    lock = op->data;
    path = lock->sn.str.data;
    len = lock->making;

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
    case NGX_HTTP_ZK_LOCK_EXISTS:

        if (len == ngx_http_zk_lock_lock_bottom(lock)) {
            lock->making = 0;
            ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_start);
            break;
        }

        for (len++; len < lock->sn.str.len && path[len] != '/'; len++) {
            /* void */
        }

        lock->making = len;
        ngx_http_zk_lock_lock_make_step(lock);
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:

        if (len == 1) {
            ngx_log_error(NGX_LOG_ERR, lock->worker->log, 0,
                          "the parent of the chroot of zk_lock_servers "
                          "does not exist");

            lock->making = 0;
            ngx_http_zk_lock_lock_refuse(lock, NGX_HTTP_ZK_LOCK_FAILED);
            break;
        }

        for (len--; len > 1 && path[len] != '/'; len--) { /* void */ }

        lock->making = len;
        ngx_http_zk_lock_lock_make_step(lock);
        break;

    case NGX_HTTP_ZK_LOCK_UNSUPPORTED:

        if (!lock->worker->persistent) {
            lock->worker->persistent = 1;
            ngx_http_zk_lock_lock_make_step(lock);
            break;
        }

        /* fall through */

    case NGX_HTTP_ZK_LOCK_REFUSED:
    case NGX_HTTP_ZK_LOCK_NO_AUTH:
        lock->making = 0;
        ngx_http_zk_lock_lock_refuse(lock,
                                     op->rc == NGX_HTTP_ZK_LOCK_NO_AUTH
                                     ? NGX_HTTP_ZK_LOCK_DENIED
                                     : NGX_HTTP_ZK_LOCK_FAILED);
        break;

    default:
        /* the claims start again with the next connection */
        lock->making = 0;
        break;
    }

    ngx_http_zk_lock_lock_unpin(lock);
}


void
ngx_http_zk_lock_lock_refuse(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_outcome_e outcome)
{
    ngx_queue_t               *q, *next;
    ngx_http_zk_lock_claim_t  *claim;

    ngx_http_zk_lock_lock_pin(lock);

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = next)
    {
        next = ngx_queue_next(q);
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        if (claim->state == NGX_HTTP_ZK_LOCK_START) {
            ngx_http_zk_lock_claim_refuse(claim, outcome);
        }
    }

    ngx_http_zk_lock_lock_unpin(lock);
}
