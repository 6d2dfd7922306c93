
/*
 * How a claim ends: the worker sends the delete of the znode until the znode is
 * known to be gone, and only then frees the claim.
 *
 * A call that ends the claim may wait for the delete, as a mourner; the waiter
 * of the claim is told the outcome then.  claim_end() decides: the claims
 * behind may be granted at once.  claim_withdraw() asks: the delete names the
 * version of the data, since another gateway may have told that the claim is
 * held.
 *
 * Everything here runs on the event loop.  `op` is the delete, or the read in
 * front of it, and NULL in OWED.
 */


#include "ngx_http_zk_lock_node.h"


static void ngx_http_zk_lock_claim_look_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_delete_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_mourn(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_rc_e rc);


void
ngx_http_zk_lock_claim_release(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_mourner_t *mourner)
{
    if (mourner != NULL) {
        ngx_queue_insert_tail(&claim->mourners, &mourner->queue);
    }

    if (claim->state == NGX_HTTP_ZK_LOCK_WAIT
        || claim->state == NGX_HTTP_ZK_LOCK_HELD)
    {
        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_CANCELLED);
    }
}


/*
 * The claim ends, which cannot be taken back: the claims behind may be granted
 * at once.  The waiter, if there still is a waiter, is told outcome when the
 * claim is gone.
 */

void
ngx_http_zk_lock_claim_end(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome)
{
    ngx_uint_t                linked;
    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;
    linked = claim->entry.linked;

    claim->outcome = outcome;

    if (claim->share != NULL) {

        /* the claim ends when the name of its znode is known */

        claim->ending = 1;
        return;
    }

    ngx_http_zk_lock_lock_pin(lock);

    /* the holder is told before the next claim is granted */

    if (claim->state == NGX_HTTP_ZK_LOCK_HELD) {
        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_LOST,
                                    "released");
    }

    ngx_http_zk_lock_record_end(lock->worker->zone, claim->id.record);
    ngx_http_zk_lock_claim_delete(claim, linked);
    ngx_http_zk_lock_lock_removed(lock, &claim->entry);

    ngx_http_zk_lock_lock_unpin(lock);
}


void
ngx_http_zk_lock_claim_withdraw(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome)
{
    if (!ngx_http_zk_lock_claim_known(claim)) {
        ngx_http_zk_lock_claim_end(claim, outcome);
        return;
    }

    claim->outcome = outcome;

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_LAPSE);
    ngx_http_zk_lock_claim_lapse(claim);
}


void
ngx_http_zk_lock_claim_disown(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome)
{
    ngx_http_zk_lock_claim_answer(claim, outcome);

    if (ngx_http_zk_lock_claim_known(claim)) {
        ngx_http_zk_lock_claim_alone(claim);

    } else {
        ngx_http_zk_lock_claim_end(claim, outcome);
    }
}


/* gather: the znode surely exists; the delete may share a transaction */

void
ngx_http_zk_lock_claim_delete(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t gather)
{
    ngx_http_zk_lock_op_t  *op;

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_DELETE);

    if (claim->op != NULL) {
        claim->op->handler = NULL;
        claim->op = NULL;
    }

    /* a waiter's timer stays: the claim may not be gone in time */

    if (claim->timer.timer_set && claim->handler == NULL) {
        ngx_del_timer(&claim->timer);
    }

    if (claim->lock->node && !claim->watched) {

        /* the znode may be that of another claim by now */

        op = ngx_http_zk_lock_claim_op(claim, NGX_HTTP_ZK_LOCK_OP_GET, NULL,
                                       ngx_http_zk_lock_claim_look_handler);

    } else {
        op = ngx_http_zk_lock_claim_op(claim, NGX_HTTP_ZK_LOCK_OP_DELETE,
                                       NULL,
                                       ngx_http_zk_lock_claim_delete_handler);
    }

    if (op == NULL) {
        ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_OWED);
        return;
    }

    if (!claim->lock->node) {
        op->gather = gather;
        op->patient = ngx_http_zk_lock_lock_crowded(claim->lock,
                                                    claim->entry.kind,
                                                    &claim->entry);

    } else if (claim->watched) {
        op->version = ngx_http_zk_lock_record_version(
                                                claim->lock->worker->zone,
                                                claim->id.record);
    }

    ngx_http_zk_lock_session_send(op);
}


/* The znode was read: the delete follows if the znode is the claim's. */

static void
ngx_http_zk_lock_claim_look_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_op_t     *delete;
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;

    if (op->rc == NGX_HTTP_ZK_LOCK_OK
        && ngx_http_zk_lock_node_of(claim, op))
    {
        delete = ngx_http_zk_lock_claim_op(claim, NGX_HTTP_ZK_LOCK_OP_DELETE,
                                       NULL,
                                       ngx_http_zk_lock_claim_delete_handler);

        if (delete != NULL) {
            delete->version = op->version;
            ngx_http_zk_lock_session_send(delete);
            return;
        }

        op->rc = NGX_HTTP_ZK_LOCK_UNSENT;

    } else if (op->rc == NGX_HTTP_ZK_LOCK_OK) {
        op->rc = NGX_HTTP_ZK_LOCK_NO_NODE;
    }

    ngx_http_zk_lock_claim_delete_handler(op);
}


static void
ngx_http_zk_lock_claim_delete_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE
        && ngx_http_zk_lock_claim_renamed(claim) == NGX_OK)
    {
        ngx_http_zk_lock_claim_delete(claim, 0);
        return;
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_OK || op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {

        /* another client was first to delete the znode */

        if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE && !claim->doubtful) {
            claim->lapsed = 1;
        }

        ngx_http_zk_lock_claim_done(claim);
        return;
    }

    claim->doubtful |= (op->rc == NGX_HTTP_ZK_LOCK_UNKNOWN);
    claim->watched = 0;

    if (op->rc == NGX_HTTP_ZK_LOCK_CHANGED) {

        /* the znode is read again, and its new version deleted */

        ngx_http_zk_lock_claim_delete(claim, 0);
        return;
    }

    /* the sweep, or the next connection, sends the delete again */

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_OWED);

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_AUTH
        || op->rc == NGX_HTTP_ZK_LOCK_REFUSED)
    {
        ngx_http_zk_lock_claim_denied(claim, op->rc);
    }
}


void
ngx_http_zk_lock_claim_denied(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_rc_e rc)
{
    /* a refused claim is not pressing: a leaving worker does not wait */

    claim->refused = 1;
    ngx_http_zk_lock_claim_state(claim, claim->state);

    ngx_http_zk_lock_lock_pin(claim->lock);

    ngx_http_zk_lock_claim_answer(claim, rc == NGX_HTTP_ZK_LOCK_NO_AUTH
                                         ? NGX_HTTP_ZK_LOCK_DENIED
                                         : NGX_HTTP_ZK_LOCK_FAILED);
    ngx_http_zk_lock_claim_mourn(claim, rc);

    ngx_http_zk_lock_lock_unpin(claim->lock);
}


/* Tells the mourners what became of the claim. */

static void
ngx_http_zk_lock_claim_mourn(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_rc_e rc)
{
    ngx_queue_t                 *q;
    ngx_http_zk_lock_mourner_t  *mourner;

    while (!ngx_queue_empty(&claim->mourners)) {
        q = ngx_queue_head(&claim->mourners);
        ngx_queue_remove(q);

        mourner = ngx_queue_data(q, ngx_http_zk_lock_mourner_t, queue);

        if (mourner->handler != NULL) {
            mourner->handler(mourner->data, rc);
        }
    }
}


void
ngx_http_zk_lock_claim_refuse(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome)
{
    claim->outcome = outcome;

    ngx_http_zk_lock_claim_done(claim);
}


/* The claim has no znode (any more): tells the waiter, frees the claim. */

void
ngx_http_zk_lock_claim_done(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_lock_t    *lock;
    ngx_http_zk_lock_worker_t  *worker;

    lock = claim->lock;
    worker = lock->worker;

    ngx_http_zk_lock_lock_pin(lock);

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_DONE);

    if (claim->timer.timer_set) {
        ngx_del_timer(&claim->timer);
    }

    if (claim->op != NULL) {
        claim->op->handler = NULL;
    }

    if (claim->share != NULL) {
        ngx_http_zk_lock_share_free(claim->share);
        claim->share = NULL;
    }

    worker->claims[claim->id.record] = NULL;

    if (lock->node) {
        ngx_http_zk_lock_node_next(claim);
    }

    /* first, since a sibling that is told the end may find this worker dead */

    if (claim->lapsed) {
        ngx_http_zk_lock_record_lose(worker->zone, claim->id.record);
    }

    ngx_http_zk_lock_record_end(worker->zone, claim->id.record);
    ngx_http_zk_lock_record_free(worker->zone, claim->id.record);

    if (!claim->durable) {
        ngx_http_zk_lock_session_unreserve(worker->session,
                                lock->sn.str.len + 1 + ZK_LOCK_CLAIM_MAX);
    }

    ngx_http_zk_lock_claim_answer(claim, claim->outcome);
    ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_LOST, "deleted");

    ngx_http_zk_lock_claim_mourn(claim, claim->lapsed
                                        ? NGX_HTTP_ZK_LOCK_NO_NODE
                                        : NGX_HTTP_ZK_LOCK_OK);

    ngx_http_zk_lock_lock_removed(lock, &claim->entry);
    ngx_http_zk_lock_lock_leave(lock, claim);

    ngx_free(claim);

    ngx_http_zk_lock_lock_unpin(lock);
}


void
ngx_http_zk_lock_claim_discard(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->timer.timer_set) {
        ngx_del_timer(&claim->timer);
    }

    if (claim->share != NULL) {
        ngx_http_zk_lock_share_free(claim->share);
    }

    ngx_free(claim);
}
