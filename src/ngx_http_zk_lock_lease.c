
/*
 * Leases: how long a claim lasts that is held, or waits alone.
 *
 * A claim's record has a deadline: of the lease while the claim is held; of the
 * grace while the claim is alone, until a client asks for the claim.  Any
 * worker moves that deadline in the record; another gateway counts up the
 * renewals in the znode's data.  So when the deadline has passed, the worker
 * deletes the znode only if the data have the known version: else the worker
 * reads the data, and the claim lives on if a renewal there was not known.
 *
 * A claim that is bound to a connection has no lease, unless the client asked
 * for a lease.  Every bound claim is lost as soon as the session is not known
 * to be alive, and the holder is told so at that moment: no other claim can
 * have been granted by then.
 *
 * Everything here runs on the event loop.
 */


#include "ngx_http_zk_lock_node.h"


/* how long a claim is held before it is made durable, and watched, in ms */
#define NGX_HTTP_ZK_LOCK_LONG_HOLD    2000

/* how soon a lease that cannot be judged now is looked at again, in ms */
#define NGX_HTTP_ZK_LOCK_LEASE_AGAIN  100

/* the longest timer, in ms */
#define NGX_HTTP_ZK_LOCK_TIMER_MAX    86400000


static void ngx_http_zk_lock_claim_arm(ngx_http_zk_lock_claim_t *claim,
    ngx_msec_t now);
static void ngx_http_zk_lock_claim_arm_bound(ngx_http_zk_lock_claim_t *claim,
    ngx_msec_t now, ngx_msec_t wait);
static void ngx_http_zk_lock_claim_lapse_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_sweep_held(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_moved(ngx_http_zk_lock_claim_t *claim);


void
ngx_http_zk_lock_claim_alone(ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_t  now;

    if (claim->state == NGX_HTTP_ZK_LOCK_HELD) {
        ngx_http_zk_lock_claim_unseen(claim);
        return;
    }

    now = ngx_http_zk_lock_now();

    claim->alone = 1;
    claim->lease = now + (claim->seen ? claim->ttl : claim->grace);

    /* not cancelable: a worker that leaves serves polling clients to the end */

    claim->timer.cancelable = 0;

    ngx_http_zk_lock_record_keep(claim->lock->worker->zone, claim->id.record,
                                 claim->ttl, claim->lease);

    ngx_http_zk_lock_claim_arm(claim, now);
}


void
ngx_http_zk_lock_claim_part(ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_t  lease;

    if (ngx_http_zk_lock_record_lease_over(claim->lock->worker->zone,
                                           claim->id.record, claim->lease,
                                           &lease)
        == NGX_AGAIN)
    {
        /* a client has asked for the claim at this gateway */

        ngx_http_zk_lock_claim_leave(claim, NGX_HTTP_ZK_LOCK_TAKEN);
        return;
    }

    /* if a client asked at another gateway, the data's version has changed */

    ngx_http_zk_lock_claim_withdraw(claim, NGX_HTTP_ZK_LOCK_TAKEN);
}


void
ngx_http_zk_lock_claim_leave(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome)
{
    claim->expired = 0;
    claim->limited = 0;

    ngx_http_zk_lock_claim_alone(claim);
    ngx_http_zk_lock_claim_answer(claim, outcome);
}


void
ngx_http_zk_lock_claim_unseen(ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_t  granted, lease;

    if (claim->grace == 0) {
        ngx_http_zk_lock_claim_release(claim, NULL);
        return;
    }

    if (claim->state != NGX_HTTP_ZK_LOCK_HELD) {
        return;
    }

    granted = claim->granted + claim->ttl;
    lease = ngx_http_zk_lock_now() + claim->grace;

    if (!claim->seen && (ngx_msec_int_t) (granted - lease) > 0) {
        ngx_http_zk_lock_record_cut(claim->lock->worker->zone,
                                    claim->id.record, granted, lease);
    }

    ngx_http_zk_lock_claim_lease(claim);
}


void
ngx_http_zk_lock_claim_begin(ngx_http_zk_lock_claim_t **claims, ngx_uint_t n)
{
    ngx_uint_t                 i;
    ngx_msec_t                 now;
    ngx_http_zk_lock_zone_t   *zone;
    ngx_http_zk_lock_claim_t  *claim;

    now = ngx_http_zk_lock_now();

    for (i = 0; i < n; i++) {
        claim = claims[i];
        zone = claim->lock->worker->zone;

        claim->bound = 0;
        claim->event = NULL;
        claim->timer.cancelable = 1;

        ngx_http_zk_lock_record_keep(zone, claim->id.record, claim->ttl,
                                     now + claim->ttl);

        /* a claim that queued again has had no leader since then */

        ngx_http_zk_lock_record_bind(zone, claim->id.record,
                                     claims[0]->id.record);
    }

    /* the leader, unbound first, decides for all if the worker dies here */

    for (i = 0; i < n; i++) {
        zone = claims[i]->lock->worker->zone;
        ngx_http_zk_lock_record_unbind(zone, claims[i]->id.record);
    }

    for (i = 0; i < n; i++) {
        ngx_http_zk_lock_claim_state(claims[i], claims[i]->state);
        ngx_http_zk_lock_claim_lease(claims[i]);
    }
}


void
ngx_http_zk_lock_claim_lease(ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_t                  now, lease;
    ngx_msec_int_t              left;
    ngx_http_zk_lock_worker_t  *worker;

    worker = claim->lock->worker;
    now = ngx_http_zk_lock_now();

    if (claim->bound && claim->state == NGX_HTTP_ZK_LOCK_HELD
        && !ngx_http_zk_lock_ahead(*ngx_http_zk_lock_zone_alive(worker->zone)))
    {
        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_LOST,
                                    "session");
        ngx_http_zk_lock_record_ending(worker->zone, claim->id.record,
                                       NGX_HTTP_ZK_LOCK_ENDING_LOST);
        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_CANCELLED);
        return;
    }

    if (claim->share != NULL) {
        ngx_add_timer(&claim->timer, NGX_HTTP_ZK_LOCK_LEASE_AGAIN);
        return;
    }

    if (ngx_http_zk_lock_record_lease_over(worker->zone, claim->id.record,
                                           now, &lease)
        == NGX_AGAIN)
    {
        if (lease != claim->lease) {
            claim->lease = lease;
            claim->warned = 0;
        }

        ngx_http_zk_lock_claim_arm(claim, now);
        return;
    }

    ngx_log_error(NGX_LOG_INFO, worker->log, 0,
                  claim->state == NGX_HTTP_ZK_LOCK_HELD
                  ? "a lease of \"%V\" is over"
                  : "nobody asks any more for a claim of \"%V\"",
                  &claim->lock->sn.str);

    if (claim->timer.timer_set) {
        ngx_del_timer(&claim->timer);
    }

    if (claim->handler != NULL) {

        /* another gateway told of the claim: the waiter still has time left */

        left = (ngx_msec_int_t) (claim->deadline - ngx_current_msec);

        ngx_add_timer(&claim->timer,
                      left > NGX_HTTP_ZK_LOCK_PATIENCE
                      ? (ngx_msec_t) left : NGX_HTTP_ZK_LOCK_PATIENCE);
    }

    claim->lapsed = 1;

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_LAPSE);
    ngx_http_zk_lock_claim_lapse(claim);
}


/* Sets the timer to when the claim is to be looked at next. */

static void
ngx_http_zk_lock_claim_arm(ngx_http_zk_lock_claim_t *claim, ngx_msec_t now)
{
    ngx_msec_t      wait;
    ngx_msec_int_t  left;

    left = (ngx_msec_int_t) (claim->lease - now);
    wait = (left > 0) ? (ngx_msec_t) left : 0;

    if (claim->state == NGX_HTTP_ZK_LOCK_HELD) {

        if (claim->bound) {
            ngx_http_zk_lock_claim_arm_bound(claim, now, wait);
            return;
        }

        if (claim->handler != NULL) {

            /* the waiter waits until the claim is durable */

            left = (ngx_msec_int_t) (claim->patience - ngx_current_msec);
            left = ngx_max(left, 0);
            wait = ngx_min(wait, (ngx_msec_t) left);
        }

    } else if (claim->limited || claim->handler != NULL) {
        left = (ngx_msec_int_t) (claim->deadline - ngx_current_msec);
        left = ngx_max(left, 0);
        wait = ngx_min(wait, (ngx_msec_t) left);
    }

    if (claim->timer.timer_set) {
        ngx_del_timer(&claim->timer);
    }

    ngx_add_timer(&claim->timer, ngx_min(wait, NGX_HTTP_ZK_LOCK_TIMER_MAX));
}


static void
ngx_http_zk_lock_claim_arm_bound(ngx_http_zk_lock_claim_t *claim,
    ngx_msec_t now, ngx_msec_t wait)
{
    ngx_uint_t      warn;
    ngx_msec_t      alive, warning;
    ngx_msec_int_t  left;

    warn = 0;

    if (claim->leased && !claim->warned) {
        warning = claim->ttl / 3;

        if (wait <= warning) {
            warn = 1;

        } else {
            wait -= warning;
        }
    }

    alive = *ngx_http_zk_lock_zone_alive(claim->lock->worker->zone);
    left = (ngx_msec_int_t) (alive - now) + 1;
    left = ngx_max(left, 1);
    wait = ngx_min(wait, (ngx_msec_t) left);

    if (claim->timer.timer_set) {
        ngx_del_timer(&claim->timer);
    }

    ngx_add_timer(&claim->timer, ngx_min(wait, NGX_HTTP_ZK_LOCK_TIMER_MAX));

    if (warn) {
        claim->warned = 1;
        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_ENDING,
                                    "lease");
    }
}


/* Deletes the znode if the data have the known version; the sweep retries. */

void
ngx_http_zk_lock_claim_lapse(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_op_t       *op;
    ngx_http_zk_lock_session_t  *session;

    session = claim->lock->worker->session;

    if (claim->op != NULL || !ngx_http_zk_lock_session_connected(session)) {
        return;
    }

    if (claim->lock->node && !claim->watched && !claim->looked) {
        ngx_http_zk_lock_claim_reread(claim, 0);
        return;
    }

    claim->looked = 0;

    op = ngx_http_zk_lock_claim_op(claim, NGX_HTTP_ZK_LOCK_OP_DELETE, NULL,
                                   ngx_http_zk_lock_claim_lapse_handler);
    if (op == NULL) {
        return;
    }

    op->version = ngx_http_zk_lock_record_version(claim->lock->worker->zone,
                                                  claim->id.record);
    op->gather = !claim->lock->node;

    ngx_http_zk_lock_session_send(op);
}


static void
ngx_http_zk_lock_claim_lapse_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
    case NGX_HTTP_ZK_LOCK_NO_NODE:

        if (claim->lapsed || claim->outcome == NGX_HTTP_ZK_LOCK_TAKEN) {
            ngx_http_zk_lock_record_ending(claim->lock->worker->zone,
                                           claim->id.record,
                                           NGX_HTTP_ZK_LOCK_ENDING_EXPIRED);
        }

        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_LOST,
                                    "lease");
        ngx_http_zk_lock_claim_done(claim);
        break;

    case NGX_HTTP_ZK_LOCK_CHANGED:
        ngx_http_zk_lock_claim_reread(claim, claim->watched);
        break;

    case NGX_HTTP_ZK_LOCK_NO_AUTH:
    case NGX_HTTP_ZK_LOCK_REFUSED:
        ngx_http_zk_lock_claim_denied(claim, op->rc);
        break;

    default:
        /* the sweep, or the list of the next connection, tries again */
        break;
    }
}


void
ngx_http_zk_lock_claim_sweep(ngx_http_zk_lock_claim_t *claim)
{
    switch (claim->state) {

    case NGX_HTTP_ZK_LOCK_START:
        ngx_http_zk_lock_claim_moved(claim);
        break;

    case NGX_HTTP_ZK_LOCK_WAIT:
        ngx_http_zk_lock_claim_single(claim);
        ngx_http_zk_lock_claim_moved(claim);
        break;

    case NGX_HTTP_ZK_LOCK_HELD:
        ngx_http_zk_lock_claim_sweep_held(claim);
        break;

    default:
        break;
    }
}


/*
 * A claim that is held for long is made durable, and watched: another gateway
 * may renew or release the claim, or an operator may delete the znode, and the
 * watch tells at once.  A claim that is held for a moment costs neither a write
 * nor a read.
 */

static void
ngx_http_zk_lock_claim_sweep_held(ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_t                lease;
    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;

    if (ngx_http_zk_lock_record_lease(lock->worker->zone, claim->id.record,
                                      &lease)
        == NGX_OK
        && lease != claim->lease)
    {
        claim->lease = lease;
        claim->warned = 0;
    }

    if (ngx_http_zk_lock_session_alive(lock->worker->session)
        && ngx_http_zk_lock_session_reachable(lock->worker->session))
    {
        ngx_http_zk_lock_claim_sure(claim);

        if (claim->state != NGX_HTTP_ZK_LOCK_HELD) {
            return;
        }
    }

    if (claim->share != NULL) {
        ngx_http_zk_lock_share_again(claim->share);
        return;
    }

    if (claim->changed) {
        ngx_http_zk_lock_claim_reread(claim, claim->watched);
        return;
    }

    if (ngx_http_zk_lock_claim_lasts(claim)) {
        ngx_http_zk_lock_claim_durable(claim);

        if (claim->state != NGX_HTTP_ZK_LOCK_HELD || claim->share != NULL) {
            return;
        }
    }

    if (!claim->watched
        && (lock->node
            || (ngx_http_zk_lock_claim_lasts(claim)
                && lock->converting == NULL))
        && ngx_http_zk_lock_session_may_watch(lock->worker->session,
                                    lock->sn.str.len + 1 + ZK_LOCK_CLAIM_MAX))
    {
        ngx_http_zk_lock_claim_reread(claim, 1);
    }
}


ngx_uint_t
ngx_http_zk_lock_claim_lasts(ngx_http_zk_lock_claim_t *claim)
{
    return claim->handler != NULL || claim->lock->worker->leaving
           || (ngx_msec_int_t) (ngx_current_msec - claim->granted)
              >= NGX_HTTP_ZK_LOCK_LONG_HOLD;
}


/* Tells a client that listens, once a second, that the claim has moved. */

static void
ngx_http_zk_lock_claim_moved(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->event == NULL || !claim->told) {
        return;
    }

    if (claim->place != claim->position) {
        claim->position = claim->place;
        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_WAITS, NULL);
    }
}


void
ngx_http_zk_lock_claim_suspended(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->bound && claim->state == NGX_HTTP_ZK_LOCK_HELD
        && !claim->unsure)
    {
        claim->unsure = 1;
        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_ENDING,
                                    "zookeeper");
    }
}


void
ngx_http_zk_lock_claim_sure(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->unsure) {
        claim->unsure = 0;
        claim->reminded = 1;
        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_SURE, NULL);
    }
}
