
/*
 * What a claim does when the answer to a create, a znode, or a session with
 * all its znodes was lost; or when ZooKeeper cannot be reached, or the worker
 * leaves.
 *
 * A create whose answer was lost may have happened: the worker looks for the
 * claim in a list, by the id in the znode's name, and creates the claim anew
 * only if no list has shown the znode.  A waiting claim whose znode is gone
 * queues again under a new id, as long as a client waits for the claim.  A held
 * claim whose znode is gone is lost.
 *
 * Everything here runs on the event loop.  Most functions may free the claim.
 */


#include "ngx_http_zk_lock_node.h"


/* how often a create is tried again after its lock's znode was made */
#define NGX_HTTP_ZK_LOCK_TRIES      5


static void ngx_http_zk_lock_claim_found(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_found_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_removed(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_requeue(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_limit(ngx_http_zk_lock_claim_t *claim);


/* The lock's znode is not there, or not any more. */

void
ngx_http_zk_lock_claim_missing(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_START);

    if (!ngx_http_zk_lock_claim_wanted(claim)) {
        ngx_http_zk_lock_claim_done(claim);
        return;
    }

    if (++claim->tries > NGX_HTTP_ZK_LOCK_TRIES) {
        ngx_log_error(NGX_LOG_ERR, lock->worker->log, 0,
                      "the znode \"%V\" vanishes as often as it is made",
                      &lock->sn.str);

        ngx_http_zk_lock_claim_refuse(claim, NGX_HTTP_ZK_LOCK_FAILED);
        return;
    }

    lock->known = 0;

    ngx_http_zk_lock_lock_make(lock);
}


void
ngx_http_zk_lock_claim_recover(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_RECOVER);

    /* a claim that the list shows waits */

    claim->entry.waiting = 1;

    if (ngx_http_zk_lock_session_connected(claim->lock->worker->session)) {
        ngx_http_zk_lock_lock_list(claim->lock);
    }
}


void
ngx_http_zk_lock_claim_listed(ngx_http_zk_lock_claim_t *claim)
{
    switch (claim->state) {

    case NGX_HTTP_ZK_LOCK_RECOVER:

        if (claim->entry.linked) {
            ngx_http_zk_lock_claim_found(claim);
            break;
        }

        if (claim->vanished) {
            /* an earlier list has shown the znode */
            ngx_http_zk_lock_claim_removed(claim);
            break;
        }

        /* the create never happened */

        ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_START);

        if (!ngx_http_zk_lock_claim_wanted(claim)) {
            ngx_http_zk_lock_claim_done(claim);
            break;
        }

        ngx_http_zk_lock_claim_start(claim);
        break;

    case NGX_HTTP_ZK_LOCK_WAIT:

        if (!claim->vanished && claim->entry.linked) {

            if (ngx_http_zk_lock_lock_conflicts(claim->lock, &claim->entry)
                && ngx_http_zk_lock_claim_conflict(claim) == NGX_OK)
            {
                break;
            }

            ngx_http_zk_lock_claim_single(claim);
            break;
        }

        ngx_http_zk_lock_claim_removed(claim);
        break;

    case NGX_HTTP_ZK_LOCK_LAPSE:

        if (claim->vanished || !claim->entry.linked) {
            ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_LOST,
                                        "lease");
            ngx_http_zk_lock_claim_done(claim);

        } else {
            ngx_http_zk_lock_claim_lapse(claim);
        }

        break;

    case NGX_HTTP_ZK_LOCK_HELD:

        if (claim->vanished || !claim->entry.linked) {
            ngx_log_error(NGX_LOG_WARN, claim->lock->worker->log, 0,
                          "a held claim of \"%V\" was deleted by "
                          "somebody else", &claim->lock->sn.str);

            claim->lapsed = 1;

            ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_LOST,
                                        "deleted");
            ngx_http_zk_lock_claim_done(claim);
            break;
        }

        if (claim->share != NULL) {
            ngx_http_zk_lock_share_again(claim->share);
        }

        break;

    default:
        break;
    }
}


/* The create happened, but its answer was lost: reads the claim's czxid. */

static void
ngx_http_zk_lock_claim_found(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_op_t  *op;

    if (claim->op != NULL) {
        return;
    }

    op = ngx_http_zk_lock_claim_op(claim, NGX_HTTP_ZK_LOCK_OP_GET, NULL,
                                   ngx_http_zk_lock_claim_found_handler);
    if (op != NULL) {
        ngx_http_zk_lock_session_send(op);
    }
}


static void
ngx_http_zk_lock_claim_found_handler(ngx_http_zk_lock_op_t *op)
{
    zk_lock_label_t            label;
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    if (claim->state != NGX_HTTP_ZK_LOCK_RECOVER || !claim->entry.linked) {
        return;
    }

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:

        if (claim->lock->node && !ngx_http_zk_lock_node_of(claim, op)) {
            ngx_http_zk_lock_lock_list(claim->lock);
            break;
        }

        zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

        claim->czxid = op->czxid;
        claim->index = (label.index > 0) ? label.index : 0;
        claim->lock->known = 1;

        ngx_http_zk_lock_lock_guard_again(claim->lock);
        ngx_http_zk_lock_claim_queued(claim);
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:
        ngx_http_zk_lock_lock_list(claim->lock);
        break;

    default:
        /* the next connection lists again */
        break;
    }
}


/*
 * A claim was deleted: by another gateway that had the claim's token, if the
 * lock was touched, else by any client.
 */

static void
ngx_http_zk_lock_claim_removed(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->lock->touched) {
        ngx_http_zk_lock_claim_refuse(claim, NGX_HTTP_ZK_LOCK_CANCELLED);

    } else {
        ngx_http_zk_lock_claim_requeue(claim);
    }
}


/*
 * A waiting claim is gone without having been ended: the claim has lost its
 * place, and queues again under a new id, while the waiter has time.
 */

static void
ngx_http_zk_lock_claim_requeue(ngx_http_zk_lock_claim_t *claim)
{
    zk_lock_id_t                id;
    ngx_http_zk_lock_lock_t    *lock;
    ngx_http_zk_lock_worker_t  *worker;

    lock = claim->lock;
    worker = lock->worker;

    if (claim->entry.linked) {
        zk_lock_view_remove(&lock->view, &claim->entry);
    }

    claim->vanished = 0;

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_START);

    /* a client that was told the token would not find the claim's new id */

    if (claim->handler == NULL || !ngx_queue_empty(&claim->mourners)) {
        claim->lapsed |= claim->seen;
        ngx_http_zk_lock_claim_done(claim);
        return;
    }

    if (ngx_http_zk_lock_record_take(worker->zone, &lock->sn.str,
                                     claim->entry.kind,
                                     claim->keyed ? claim->id.random : NULL,
                                     &id)
        != NGX_OK)
    {
        ngx_http_zk_lock_claim_refuse(claim, NGX_HTTP_ZK_LOCK_NO_ROOM);
        return;
    }

    if (claim->bound) {
        ngx_http_zk_lock_record_bind(worker->zone, id.record,
                                     NGX_HTTP_ZK_LOCK_NO_RECORD);
    }

    if (claim->keyed) {
        ngx_http_zk_lock_record_keep(worker->zone, id.record, claim->ttl,
                                     claim->lease);
    }

    if (claim->seen) {

        /* another gateway has told that the claim was held */

        ngx_http_zk_lock_record_lose(worker->zone, claim->id.record);
        ngx_http_zk_lock_claim_limit(claim);
    }

    worker->claims[claim->id.record] = NULL;
    ngx_http_zk_lock_record_free(worker->zone, claim->id.record);

    claim->id = id;
    claim->named = id.record;
    worker->claims[id.record] = claim;

    claim->entry.seq = -1;
    claim->czxid = 0;
    claim->requeued = 1;
    claim->seen = 0;
    ngx_memzero(&claim->said, sizeof(ngx_http_zk_lock_said_t));
    claim->single = 0;
    claim->offered = 0;
    claim->contends = 0;
    claim->told = 0;

    ngx_http_zk_lock_claim_start(claim);
}


/*
 * A claim that was told as held stayed whatever the wait was.  Only the waiter
 * knows the claim that takes the same place now: the wait counts again.
 */

static void
ngx_http_zk_lock_claim_limit(ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_int_t  left;

    claim->alone = 0;
    claim->limited = 1;

    if (claim->timer.timer_set) {
        ngx_del_timer(&claim->timer);
    }

    left = (ngx_msec_int_t) (claim->deadline - ngx_current_msec);

    ngx_add_timer(&claim->timer, (ngx_msec_t) ngx_max(left, 0));
}


void
ngx_http_zk_lock_claim_connected(ngx_http_zk_lock_claim_t *claim)
{
    switch (claim->state) {

    case NGX_HTTP_ZK_LOCK_START:
        ngx_http_zk_lock_claim_start(claim);
        break;

    case NGX_HTTP_ZK_LOCK_RECOVER:
        ngx_http_zk_lock_lock_list(claim->lock);
        break;

    case NGX_HTTP_ZK_LOCK_LAPSE:
        ngx_http_zk_lock_claim_lapse(claim);
        break;

    case NGX_HTTP_ZK_LOCK_TAKE:
        ngx_http_zk_lock_claim_take(claim);
        break;

    case NGX_HTTP_ZK_LOCK_OWED:
        ngx_http_zk_lock_claim_delete(claim, 0);
        break;

    default:
        break;
    }
}


void
ngx_http_zk_lock_claim_unreachable(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->state == NGX_HTTP_ZK_LOCK_START) {
        ngx_http_zk_lock_claim_refuse(claim, NGX_HTTP_ZK_LOCK_UNREACHABLE);
        return;
    }

    if (claim->state == NGX_HTTP_ZK_LOCK_WAIT) {

        if (ngx_http_zk_lock_claim_known(claim)) {
            ngx_http_zk_lock_claim_leave(claim, NGX_HTTP_ZK_LOCK_UNREACHABLE);
            return;
        }

        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_UNREACHABLE);
    }

    if (claim->state == NGX_HTTP_ZK_LOCK_HELD) {

        /* the claim did not become durable in time */

        ngx_http_zk_lock_claim_disown(claim, NGX_HTTP_ZK_LOCK_UNREACHABLE);
        return;
    }

    if (ngx_http_zk_lock_claim_known(claim)
        && (claim->state == NGX_HTTP_ZK_LOCK_CREATE
            || claim->state == NGX_HTTP_ZK_LOCK_RECOVER))
    {
        ngx_http_zk_lock_claim_leave(claim, NGX_HTTP_ZK_LOCK_UNREACHABLE);
        return;
    }

    /* the waiter is answered now, and the claim deleted when possible */

    ngx_http_zk_lock_claim_answer(claim, NGX_HTTP_ZK_LOCK_UNREACHABLE);
}


void
ngx_http_zk_lock_claim_lost(ngx_http_zk_lock_claim_t *claim)
{
    if (ngx_http_zk_lock_claim_outlives(claim) == NGX_OK) {
        return;
    }

    switch (claim->state) {

    case NGX_HTTP_ZK_LOCK_START:
        break;

    case NGX_HTTP_ZK_LOCK_CREATE:
    case NGX_HTTP_ZK_LOCK_RECOVER:
    case NGX_HTTP_ZK_LOCK_WAIT:
        ngx_http_zk_lock_record_ending(claim->lock->worker->zone,
                                       claim->id.record,
                                       NGX_HTTP_ZK_LOCK_ENDING_LOST);
        ngx_http_zk_lock_claim_requeue(claim);
        break;

    case NGX_HTTP_ZK_LOCK_HELD:
        ngx_http_zk_lock_record_ending(claim->lock->worker->zone,
                                       claim->id.record,
                                       NGX_HTTP_ZK_LOCK_ENDING_LOST);
        /* fall through */

    default:

        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_LOST,
                                    "session");

        /* a later release is told that the claim was lost before */

        claim->lapsed = 1;
        claim->outcome = NGX_HTTP_ZK_LOCK_UNREACHABLE;

        ngx_http_zk_lock_claim_done(claim);
        break;
    }
}


void
ngx_http_zk_lock_claim_over(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->state == NGX_HTTP_ZK_LOCK_HELD) {

        /* the claim is held until the session is closed */
        return;
    }

    if (claim->handler != NULL) {
        (void) ngx_http_zk_lock_claim_shut(claim);

    } else if (claim->state == NGX_HTTP_ZK_LOCK_WAIT && claim->seen) {

        /* another gateway has told the grant: the worker may exit */

        claim->timer.cancelable = 1;

    } else if (claim->state == NGX_HTTP_ZK_LOCK_WAIT) {
        ngx_http_zk_lock_claim_withdraw(claim, NGX_HTTP_ZK_LOCK_SHUT);

    } else if (claim->state == NGX_HTTP_ZK_LOCK_START) {
        ngx_http_zk_lock_claim_done(claim);
    }
}


ngx_uint_t
ngx_http_zk_lock_claim_shut(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->event != NULL && claim->state == NGX_HTTP_ZK_LOCK_HELD) {
        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_LOST,
                                    "shutdown");
        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_SHUT);
        return 1;
    }

    if (claim->handler == NULL) {
        return 0;
    }

    if (claim->state == NGX_HTTP_ZK_LOCK_START) {
        ngx_http_zk_lock_claim_refuse(claim, NGX_HTTP_ZK_LOCK_SHUT);
        return 1;
    }

    if (claim->state == NGX_HTTP_ZK_LOCK_WAIT && claim->seen) {

        /* another gateway has told the grant: the heir keeps the claim */

        ngx_http_zk_lock_claim_leave(claim, NGX_HTTP_ZK_LOCK_SHUT);
        claim->timer.cancelable = 1;

        return 1;
    }

    if (claim->state == NGX_HTTP_ZK_LOCK_WAIT) {
        ngx_http_zk_lock_claim_withdraw(claim, NGX_HTTP_ZK_LOCK_SHUT);

    } else if (claim->state == NGX_HTTP_ZK_LOCK_HELD) {
        ngx_http_zk_lock_claim_disown(claim, NGX_HTTP_ZK_LOCK_SHUT);
        return 1;
    }

    ngx_http_zk_lock_claim_answer(claim, NGX_HTTP_ZK_LOCK_SHUT);

    return 1;
}
