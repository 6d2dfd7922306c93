
/*
 * The guard: the watch on a lock's znode, and what it, or a watch on a claim
 * below it, says when it fires.
 *
 * It tells that the znode is gone, and was perhaps made anew, or that another
 * gateway has changed a claim; what is known of a lock counts only under it.
 *
 * Everything here runs on the event loop.  lock->guard is NULL unless the watch
 * is being set and the answer still counts, and its operation pins the lock;
 * once it is set, only view.watched says so.  A lock that is one znode has no
 * guard (node).
 */


#include "ngx_http_zk_lock_node.h"


static void ngx_http_zk_lock_lock_guard_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_lock_found(ngx_http_zk_lock_lock_t *lock,
    int64_t mzxid);
static void ngx_http_zk_lock_lock_touched(ngx_http_zk_lock_lock_t *lock);


/*
 * Sets a watch on the lock's znode, unless there is one.  It is sent behind
 * the create of a claim that is still there, so it finds the same znode, if
 * that one is older than the claim.
 */

void
ngx_http_zk_lock_lock_guard(ngx_http_zk_lock_lock_t *lock, int64_t czxid)
{
    ngx_http_zk_lock_op_t  *op;

    if (lock->view.watched || lock->guard != NULL
        || (!ngx_http_zk_lock_session_may_watch(lock->worker->session,
                                                lock->sn.str.len)
            && !ngx_http_zk_lock_session_watches(lock->worker->session,
                                                 &lock->sn.str)))
    {
        return;
    }

    op = ngx_http_zk_lock_lock_op(lock, NGX_HTTP_ZK_LOCK_OP_GET, NULL,
                                  ngx_http_zk_lock_lock_guard_handler);
    if (op == NULL) {
        return;
    }

    op->watch = 1;

    lock->guard = op;
    lock->guarded = czxid;
    lock->stale = (lock->list != NULL);

    ngx_http_zk_lock_session_send(op);
}


/*
 * Claims of ours pin the znode only as long as they are there, and that another
 * gateway removed one only the guard would have told.  So without it nothing
 * counts that was known, and a list has to follow.
 */

void
ngx_http_zk_lock_lock_doubt(ngx_http_zk_lock_lock_t *lock)
{
    if (!lock->node && !lock->view.watched && lock->guard == NULL) {

        /* a list finds the claims of ours again */

        lock->partial |= (lock->view.nlocal != 0);

        zk_lock_view_forget(&lock->view, ngx_http_zk_lock_lock_forgotten,
                            lock);
    }
}


/*
 * What is older than a claim of ours that is there was there with it.  Of those
 * in the view the oldest is to be there, since the view counts on all; if it
 * has none, any will do, and the youngest most likely.
 */

void
ngx_http_zk_lock_lock_guard_again(ngx_http_zk_lock_lock_t *lock)
{
    int64_t                    oldest, youngest;
    ngx_queue_t               *q;
    ngx_http_zk_lock_claim_t  *claim;

    if (lock->node || lock->view.watched || lock->guard != NULL) {
        return;
    }

    oldest = 0;
    youngest = 0;

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        if (claim->entry.linked && claim->czxid != 0
            && (oldest == 0 || claim->czxid < oldest))
        {
            oldest = claim->czxid;
        }

        youngest = ngx_max(youngest, claim->czxid);
    }

    if (youngest != 0) {
        ngx_http_zk_lock_lock_guard(lock, oldest ? oldest : youngest);
    }
}


static void
ngx_http_zk_lock_lock_guard_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_lock_t  *lock;

    lock = op->data;

    if (lock->guard == op) {
        lock->guard = NULL;

        if (op->rc == NGX_HTTP_ZK_LOCK_OK && op->czxid < lock->guarded) {
            lock->view.watched = 1;
            lock->born = op->czxid;

            if (op->mzxid > lock->guarded && lock->nclaims != 0) {
                ngx_http_zk_lock_lock_found(lock, op->mzxid);
            }

            lock->handled = op->mzxid;

        } else {

            /*
             * That claim is gone, and the znode was made anew, if at all: so
             * nothing counts that was known.  A list that is under way does: it
             * was sent behind this.
             */

            ngx_http_zk_lock_lock_doubt(lock);

            if (op->rc == NGX_HTTP_ZK_LOCK_OK
                || op->rc == NGX_HTTP_ZK_LOCK_NO_NODE)
            {
                ngx_http_zk_lock_lock_list(lock);
            }
        }

        ngx_http_zk_lock_lock_advance(lock);
    }

    ngx_http_zk_lock_lock_unpin(lock);
}


/*
 * The znode was changed, by somebody who came before the watch.  What he has
 * removed is not missed again in a later connection: then it was others.
 */

static void
ngx_http_zk_lock_lock_found(ngx_http_zk_lock_lock_t *lock, int64_t mzxid)
{
    if (mzxid <= lock->handled) {
        ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_touched);

    } else if (lock->list == NULL || lock->stale) {
        ngx_http_zk_lock_lock_touched(lock);

    } else if (!lock->touched) {
        lock->touched = 1;
        ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_touched);
    }
}


void
ngx_http_zk_lock_lock_changed(ngx_http_zk_lock_lock_t *lock,
    ngx_uint_t deleted)
{
    if (lock->node) {
        ngx_http_zk_lock_node_changed(lock, deleted);
        return;
    }

    lock->view.watched = 0;
    lock->born = 0;

    if (deleted) {
        lock->known = 0;
    }

    ngx_http_zk_lock_lock_pin(lock);

    if (deleted) {

        /* a znode with children cannot be deleted: they are gone, too */

        zk_lock_view_forget(&lock->view, ngx_http_zk_lock_lock_gone, lock);

        if (lock->vanished) {
            lock->vanished = 0;
            ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_listed);
        }

    } else if (lock->view.nlocal == 0) {
        zk_lock_view_forget(&lock->view, ngx_http_zk_lock_lock_forgotten,
                            lock);

    } else {
        ngx_http_zk_lock_lock_touched(lock);
    }

    ngx_http_zk_lock_lock_unpin(lock);
}


/* Another gateway says that it has changed a claim. */

static void
ngx_http_zk_lock_lock_touched(ngx_http_zk_lock_lock_t *lock)
{
    lock->touched = 1;

    /* a list behind the watch that is set now: one under way is too old */

    lock->list = NULL;

    ngx_http_zk_lock_lock_guard_again(lock);
    ngx_http_zk_lock_lock_list(lock);
    ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_touched);
}


void
ngx_http_zk_lock_lock_claim_changed(ngx_http_zk_lock_lock_t *lock,
    ngx_str_t *name, ngx_uint_t deleted)
{
    u_char                     buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t                  watched;
    zk_lock_child_t            child;
    zk_lock_entry_t           *entry;
    ngx_http_zk_lock_claim_t  *claim;

    if (zk_lock_child_read(&child, (char *) name->data, name->len) != 0) {
        return;
    }

    if (child.has_id) {
        claim = ngx_http_zk_lock_claim_find(lock->worker, &child.id,
                                            &lock->sn.str);

        if (claim != NULL && claim->entry.seq == child.seq) {
            ngx_http_zk_lock_claim_changed(claim, deleted);
            return;
        }
    }

    entry = NULL;

    for ( ;; ) {
        entry = zk_lock_view_watched(&lock->view, child.seq, entry);
        if (entry == NULL) {
            return;
        }

        ngx_http_zk_lock_lock_name(entry, &watched, buf);

        if (watched.len == name->len
            && ngx_memcmp(watched.data, name->data, name->len) == 0)
        {
            break;
        }
    }

    if (deleted && entry->origin == ZK_LOCK_FOREIGN) {
        ngx_http_zk_lock_lock_vanished((ngx_http_zk_lock_other_t *) entry);
        return;
    }

    /*
     * Its data were set, and it is watched anew; or it is a sibling's, which
     * may be durable by now, and its record tells.
     */

    ngx_http_zk_lock_lock_unwatch((ngx_http_zk_lock_other_t *) entry);
    ngx_http_zk_lock_lock_advance(lock);
}
