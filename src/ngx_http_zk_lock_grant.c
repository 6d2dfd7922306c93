
/*
 * A claim's way to the grant: the worker creates the znode, puts the claim into
 * the view, makes sure that no older claim has the same key, and grants the
 * claim when the view says so; or the wait ends before.
 *
 * Everything here runs on the event loop.  claim->op is NULL unless an
 * operation of the claim is under way; claim.c says when handler is NULL.
 */


#include "ngx_http_zk_lock_node.h"


static void ngx_http_zk_lock_claim_create_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_created(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_single_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_wait(ngx_http_zk_lock_claim_t *claim);


void
ngx_http_zk_lock_claim_start(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->state != NGX_HTTP_ZK_LOCK_START
        || claim->lock->making != 0
        || !ngx_http_zk_lock_session_ready(claim->lock->worker->session))
    {
        /* a client that leaves meanwhile leaves no znode in ZooKeeper */
        return;
    }

    if (claim->lock->node) {
        ngx_http_zk_lock_lock_advance(claim->lock);
        return;
    }

    ngx_http_zk_lock_claim_create(claim);
}


void
ngx_http_zk_lock_claim_create(ngx_http_zk_lock_claim_t *claim)
{
    u_char                      prefix[ZK_LOCK_PREFIX_MAX];
    ngx_str_t                   name, label;
    ngx_http_zk_lock_op_t      *op;
    ngx_http_zk_lock_worker_t  *worker;

    worker = claim->lock->worker;

    name.data = prefix;
    name.len = zk_lock_prefix_write((char *) prefix, &claim->id,
                                    claim->entry.kind);
    label.data = claim->label;
    label.len = claim->label_len;

    if (claim->lock->node) {
        zk_lock_label_id((char *) claim->label + claim->index_at
                         + ZK_LOCK_LABEL_ID_AT, &claim->id);
    }

    op = ngx_http_zk_lock_op_new(worker->session,
                                 claim->lock->node
                                 ? NGX_HTTP_ZK_LOCK_OP_GATE
                                 : NGX_HTTP_ZK_LOCK_OP_CREATE,
                                 &claim->lock->sn.str, &name, &label);
    if (op == NULL) {
        /* the sweep starts the claim again */
        return;
    }

    op->index_at = claim->index_at;
    op->handler = ngx_http_zk_lock_claim_create_handler;
    op->data = claim;
    op->gather = claim->lock->known && !claim->lock->node;

    /* the claim's turn is far off, and no client needs an early answer */

    op->patient = ngx_http_zk_lock_lock_crowded(claim->lock, claim->entry.kind,
                                                NULL)
                  && !claim->expired && !claim->async && !claim->keyed
                  && claim->event == NULL;

    claim->op = op;

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_CREATE);

    ngx_http_zk_lock_session_send(op);
}


static void
ngx_http_zk_lock_claim_create_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
        ngx_http_zk_lock_claim_created(claim, op);
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:
        ngx_http_zk_lock_claim_missing(claim);
        break;

    case NGX_HTTP_ZK_LOCK_UNKNOWN:
        ngx_http_zk_lock_claim_recover(claim);
        break;

    case NGX_HTTP_ZK_LOCK_UNSENT:
        ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_START);

        if (!ngx_http_zk_lock_claim_wanted(claim)) {
            ngx_http_zk_lock_claim_done(claim);
        }

        break;

    case NGX_HTTP_ZK_LOCK_EXISTS:

        if (claim->lock->node) {
            ngx_http_zk_lock_node_exists(claim);
            break;
        }

        ngx_http_zk_lock_claim_refuse(claim, NGX_HTTP_ZK_LOCK_WORN_OUT);
        break;

    case NGX_HTTP_ZK_LOCK_CHILDLESS:
        ngx_http_zk_lock_claim_refuse(claim, NGX_HTTP_ZK_LOCK_LAYOUT);
        break;

    case NGX_HTTP_ZK_LOCK_NO_AUTH:
        ngx_http_zk_lock_claim_refuse(claim, NGX_HTTP_ZK_LOCK_DENIED);
        break;

    default:
        ngx_http_zk_lock_claim_refuse(claim, NGX_HTTP_ZK_LOCK_FAILED);
        break;
    }
}


static void
ngx_http_zk_lock_claim_created(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_op_t *op)
{
    zk_lock_child_t  child;

    if (claim->lock->node) {
        child.seq = 0;
        claim->lock->waits = 0;

    } else if (zk_lock_child_read(&child, (char *) op->reply.data,
                                  op->reply.len)
               != 0)
    {
        ngx_log_error(NGX_LOG_ERR, claim->lock->worker->log, 0,
                      "zookeeper made a claim of \"%V\" with a strange "
                      "name of %uz bytes",
                      &claim->lock->sn.str, op->reply.len);

        ngx_http_zk_lock_claim_recover(claim);
        return;
    }

    claim->entry.seq = child.seq;
    claim->czxid = op->czxid;
    claim->index = op->index;

    ngx_http_zk_lock_lock_pin(claim->lock);

    ngx_http_zk_lock_lock_created(claim->lock, &claim->entry, claim->czxid);
    ngx_http_zk_lock_claim_queued(claim);

    ngx_http_zk_lock_lock_unpin(claim->lock);
}


/* Called when the claim is in the view and the czxid is known. */

void
ngx_http_zk_lock_claim_queued(ngx_http_zk_lock_claim_t *claim)
{
    int64_t                   ahead;
    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;

    ngx_http_zk_lock_record_publish(lock->worker->zone, claim->id.record,
                                    claim->entry.seq, claim->czxid,
                                    claim->index);

    if (!lock->node) {
        ngx_http_zk_lock_board_put(lock->worker->zone, &lock->sn.str,
                                   claim->entry.seq, claim->id.record);
    }

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_WAIT);

    if (claim->entry.seq == ZK_LOCK_SEQ_MAX) {

        /* from here on all claims get the same number, and have no order */

        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_WORN_OUT);
        return;
    }

    if (!ngx_http_zk_lock_claim_wanted(claim)) {

        /* a repeated request may have found the claim at another gateway */

        ngx_http_zk_lock_claim_withdraw(claim, NGX_HTTP_ZK_LOCK_CANCELLED);
        return;
    }

    if (ngx_http_zk_lock_lock_conflicts(lock, &claim->entry)
        && ngx_http_zk_lock_claim_conflict(claim) == NGX_OK)
    {
        return;
    }

    ngx_http_zk_lock_claim_single(claim);

    if (!claim->keyed) {
        ngx_http_zk_lock_lock_look_first(lock, &claim->entry);
    }

    /*
     * At most so many claims are ahead: the known claims, and one claim for
     * each number that ZooKeeper gave and the view does not know of.
     */

    ahead = claim->entry.seq - lock->view.complete_through;
    ahead = ngx_max(ahead, 0) + (int64_t) lock->view.nalive - 1;

    if (ahead > (int64_t) claim->max_queue) {
        claim->counting = 1;
        ngx_http_zk_lock_lock_list(lock);
    }

    if (claim->counting || claim->expired || claim->async
        || claim->event != NULL)
    {
        lock->settle = 1;
    }

    ngx_http_zk_lock_lock_advance(lock);
}


/*
 * Several requests with one key may each have made a claim.  A list that is
 * sent behind the create shows the older claims: only the oldest counts, since
 * each claim between finds the oldest, too, and is withdrawn.
 */

void
ngx_http_zk_lock_claim_single(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_op_t  *op;

    if (!claim->keyed || claim->single || claim->op != NULL) {
        return;
    }

    op = ngx_http_zk_lock_claim_op(claim, NGX_HTTP_ZK_LOCK_OP_LIST, NULL,
                                   ngx_http_zk_lock_claim_single_handler);
    if (op != NULL) {
        ngx_http_zk_lock_session_send(op);
    }
}


void
ngx_http_zk_lock_claim_unlisted(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->state == NGX_HTTP_ZK_LOCK_WAIT
        && claim->handler != NULL && !claim->seen && !claim->told)
    {
        ngx_http_zk_lock_claim_withdraw(claim, NGX_HTTP_ZK_LOCK_DENIED);
    }
}


static void
ngx_http_zk_lock_claim_single_handler(ngx_http_zk_lock_op_t *op)
{
    int64_t                    seq;
    ngx_uint_t                 i;
    zk_lock_child_t            child;
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_AUTH) {
        ngx_http_zk_lock_claim_unlisted(claim);
        return;
    }

    if (op->rc != NGX_HTTP_ZK_LOCK_OK
        || claim->state != NGX_HTTP_ZK_LOCK_WAIT)
    {
        /* the sweep, or the list of the next connection, tries again */
        return;
    }

    seq = claim->entry.seq;

    for (i = 0; i < op->nchildren; i++) {

        if (zk_lock_child_read(&child, (char *) op->children[i].data,
                               op->children[i].len)
            == 0
            && child.has_id
            && child.seq < seq
            && zk_lock_secret_equal(child.id.random, claim->id.random,
                                    NGX_HTTP_ZK_LOCK_KEY))
        {
            claim->twin = child;
            seq = child.seq;
        }
    }

    if (seq != claim->entry.seq) {

        /* if the twin has ended by now, a client may have joined this claim */

        claim->alone = 0;
        ngx_http_zk_lock_claim_withdraw(claim, NGX_HTTP_ZK_LOCK_TWIN);
        return;
    }

    claim->single = 1;

    if (ngx_http_zk_lock_lock_conflicts(claim->lock, &claim->entry)
        && ngx_http_zk_lock_claim_conflict(claim) == NGX_OK)
    {
        return;
    }

    ngx_http_zk_lock_lock_look_first(claim->lock, &claim->entry);
    ngx_http_zk_lock_lock_advance(claim->lock);
}


ngx_int_t
ngx_http_zk_lock_claim_conflict(ngx_http_zk_lock_claim_t *claim)
{
    /*
     * A keyed claim that may have a twin may be in conflict with that twin.
     * And if another gateway has told that the claim is held, the claims ahead
     * are gone, though the view does not show that yet.
     */

    if (claim->state != NGX_HTTP_ZK_LOCK_WAIT || claim->seen
        || (claim->keyed && !claim->single))
    {
        return NGX_AGAIN;
    }

    ngx_http_zk_lock_claim_withdraw(claim, NGX_HTTP_ZK_LOCK_CONFLICT);

    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_claim_grant(ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_t                  lease;
    ngx_uint_t                  told;
    ngx_http_zk_lock_worker_t  *worker;

    worker = claim->lock->worker;

    if (claim->state != NGX_HTTP_ZK_LOCK_WAIT
        || (claim->keyed && !claim->single)
        || !ngx_http_zk_lock_session_alive(worker->session)
        || ngx_http_zk_lock_worker_over(worker))
    {
        return NGX_AGAIN;
    }

    zk_lock_view_grant(&claim->lock->view, &claim->entry);

    told = NGX_HTTP_ZK_LOCK_TOLD_ITS_OWN;
    lease = claim->ttl;

    if (claim->seen) {
        told = NGX_HTTP_ZK_LOCK_TOLD_OTHERS;

    } else if (claim->alone && claim->handler == NULL) {
        told = NGX_HTTP_ZK_LOCK_TOLD_NOBODY;
        lease = claim->grace;
    }

    if (claim->bound && !claim->leased) {
        lease = NGX_HTTP_ZK_LOCK_NO_LEASE;
    }

    claim->granted = ngx_http_zk_lock_now();
    claim->lease = claim->granted + lease;

    ngx_http_zk_lock_record_grant(worker->zone, claim->id.record, claim->ttl,
                                  claim->lease, told);

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_HELD);

    /* a held claim keeps no worker that wants to leave; a stream does */

    claim->timer.cancelable = (claim->event == NULL);

    ngx_http_zk_lock_claim_lease(claim);

    if (claim->lock->node) {

        /* watched from now on: a later claim's znode has the same name */

        ngx_http_zk_lock_claim_sweep(claim);
    }

    if (claim->urgent && claim->handler != NULL
        && claim->state == NGX_HTTP_ZK_LOCK_HELD)
    {
        /* the waiter is told when the claim is durable */

        claim->outcome = NGX_HTTP_ZK_LOCK_CANCELLED;
        ngx_http_zk_lock_claim_durable(claim);
        return NGX_OK;
    }

    /* the waiter may release the claim at once */

    if (claim->state == NGX_HTTP_ZK_LOCK_HELD) {
        ngx_http_zk_lock_claim_answer(claim, NGX_HTTP_ZK_LOCK_GRANTED);

    } else if (claim->state == NGX_HTTP_ZK_LOCK_LAPSE) {

        /* this process stood still for longer than the lease */

        ngx_http_zk_lock_claim_answer(claim, NGX_HTTP_ZK_LOCK_UNREACHABLE);
    }

    return NGX_OK;
}


/*
 * The wait is over, or the time for ZooKeeper's answer, or perhaps the lease.
 * The waiter is told what is known by now; while ZooKeeper answers, the worker
 * waits a little longer for the answers that are under way.
 */

void
ngx_http_zk_lock_claim_timer_handler(ngx_event_t *ev)
{
    ngx_msec_int_t               left;
    ngx_http_zk_lock_claim_t    *claim;
    ngx_http_zk_lock_session_t  *session;

    claim = ngx_queue_data(ev, ngx_http_zk_lock_claim_t, timer);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ev->log, 0,
                   "zk lock claim timer, state %d", claim->state);

    if (claim->state == NGX_HTTP_ZK_LOCK_HELD) {

        if (claim->handler != NULL
            && (ngx_msec_int_t) (claim->patience - ngx_current_msec) <= 0)
        {
            /* the claim could not be made durable in time */

            ngx_http_zk_lock_claim_unreachable(claim);
            return;
        }

        ngx_http_zk_lock_claim_lease(claim);
        return;
    }

    if (claim->alone && claim->state == NGX_HTTP_ZK_LOCK_WAIT
        && !((claim->limited || claim->handler != NULL)
             && (ngx_msec_int_t) (claim->deadline - ngx_current_msec) <= 0))
    {
        ngx_http_zk_lock_claim_lease(claim);
        return;
    }

    if (claim->handler != NULL) {
        session = claim->lock->worker->session;
        left = (ngx_msec_int_t) (claim->patience - ngx_current_msec);

        if (left <= 0 || !claim->limited
            || (!claim->once
                && (!ngx_http_zk_lock_session_ready(session)
                    || ngx_http_zk_lock_session_starved(session))))
        {
            ngx_http_zk_lock_claim_unreachable(claim);
            return;
        }

        ngx_add_timer(ev, claim->once ? (ngx_msec_t) left
                                      : ngx_min((ngx_msec_t) left,
                                                NGX_HTTP_ZK_LOCK_PATIENCE));
    }

    claim->expired = 1;

    ngx_http_zk_lock_claim_settle(claim);
}


void
ngx_http_zk_lock_claim_settle(ngx_http_zk_lock_claim_t *claim)
{
    size_t                    ahead;
    ngx_http_zk_lock_lock_t  *lock;

    if (claim->state == NGX_HTTP_ZK_LOCK_START && claim->lock->node) {
        ngx_http_zk_lock_node_settle(claim->lock);
        return;
    }

    lock = claim->lock;

    if (claim->state != NGX_HTTP_ZK_LOCK_WAIT) {
        return;
    }

    if (!ngx_http_zk_lock_lock_unsure(lock)
        && ngx_http_zk_lock_lock_conflicts(lock, &claim->entry)
        && ngx_http_zk_lock_claim_conflict(claim) == NGX_OK)
    {
        return;
    }

    if (!claim->expired && !claim->counting
        && ((!claim->async && claim->event == NULL) || claim->told))
    {
        return;
    }

    if (ngx_http_zk_lock_lock_unsure(lock)
        || (claim->keyed && !claim->single))
    {
        lock->settle = 1;
        return;
    }

    if (claim->counting) {
        claim->counting = 0;

        ahead = zk_lock_view_position(&lock->view, &claim->entry);

        if (ahead > claim->max_queue) {
            ngx_http_zk_lock_claim_withdraw(claim, NGX_HTTP_ZK_LOCK_FULL);
            return;
        }
    }

    if (!claim->expired) {
        ngx_http_zk_lock_claim_wait(claim);

    } else if (claim->keyed && claim->handler != NULL) {
        ngx_http_zk_lock_claim_part(claim);

    } else {
        ngx_http_zk_lock_claim_withdraw(claim, NGX_HTTP_ZK_LOCK_TAKEN);
    }
}


/* Tells an async or a streaming client that the claim has to wait. */

static void
ngx_http_zk_lock_claim_wait(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_lock_t  *lock;

    if (claim->told) {
        return;
    }

    lock = claim->lock;

    if (claim->entry.seq > lock->view.complete_through) {

        /* the view does not know all claims ahead yet */

        lock->settle = 1;
        ngx_http_zk_lock_lock_list(lock);
        return;
    }

    ngx_http_zk_lock_lock_prune(lock);

    claim->told = 1;
    claim->place = ngx_http_zk_lock_place(
                          zk_lock_view_position(&lock->view, &claim->entry),
                          zk_lock_view_holders(&lock->view));
    claim->position = claim->place;

    if (claim->event != NULL) {
        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_WAITS, NULL);

    } else if (claim->async && claim->handler != NULL) {
        ngx_http_zk_lock_claim_alone(claim);
        ngx_http_zk_lock_claim_answer(claim, NGX_HTTP_ZK_LOCK_QUEUED);
    }
}
