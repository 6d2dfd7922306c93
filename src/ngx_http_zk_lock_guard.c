
/*
 * The guard: the watch on a lock's znode; and what follows when the guard, or a
 * watch on a claim's znode, fires.
 *
 * The guard tells that the znode is gone, and was perhaps made anew, or that
 * another gateway has changed a claim; what is known of a lock counts only
 * under the guard.
 *
 * Everything here runs on the event loop.  lock->guard is NULL unless the watch
 * is being set and the answer still counts, and that operation pins the lock;
 * once the watch is set, only view.watched says so.  A lock that is one znode
 * has no guard (node).
 */


#include "ngx_http_zk_lock_node.h"


static void ngx_http_zk_lock_lock_guard_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_lock_found(ngx_http_zk_lock_lock_t *lock,
    int64_t mzxid);
static void ngx_http_zk_lock_lock_touched(ngx_http_zk_lock_lock_t *lock);


/*
 * Sets the guard, unless there is a guard.  The read is sent behind the create
 * of a claim that still exists, so a znode that is older than the claim is the
 * znode that the claim was made in.
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
 * An own claim pins the znode only as long as the claim exists, and only the
 * guard would have told that another gateway removed that claim.  So without a
 * guard the view is forgotten, and a list has to follow.
 */

void
ngx_http_zk_lock_lock_doubt(ngx_http_zk_lock_lock_t *lock)
{
    if (!lock->node && !lock->view.watched && lock->guard == NULL) {

        /* a list finds the own claims again */

        lock->partial |= (lock->view.nlocal != 0);

        zk_lock_view_forget(&lock->view, ngx_http_zk_lock_lock_forgotten,
                            lock);
    }
}


/*
 * A znode that is older than an existing own claim has been there as long as
 * that claim.  Of the own claims in the view the oldest has to exist, since the
 * view counts on all; if the view has no own claim, any own claim will do, and
 * the youngest most likely exists.
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
             * That claim is gone, and the znode was made anew, if at all; or
             * the read failed.  So the view does not count any more.  A list
             * that is under way does: the list was sent behind this read.
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
 * Another gateway changed the znode before the watch was set.  A claim that is
 * missing in a later connection was not removed by a change that was handled
 * before: so such a change does not set touched again.
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

        /* a znode with children cannot be deleted: all claims are gone, too */

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


/* Another gateway says, by the lock's znode, that a claim was changed. */

static void
ngx_http_zk_lock_lock_touched(ngx_http_zk_lock_lock_t *lock)
{
    lock->touched = 1;

    /* a list has to follow the new watch: a list under way is too old */

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
     * The claim's data were set, and the claim is watched anew; or the claim
     * is a sibling's, which may be durable by now, and the record tells.
     */

    ngx_http_zk_lock_lock_unwatch((ngx_http_zk_lock_other_t *) entry);
    ngx_http_zk_lock_lock_advance(lock);
}
