
/*
 * Leases: what happens to a claim while it is held, or waits alone.
 *
 * A claim has a deadline in its record: of its lease while it is held; of its
 * grace while nobody waits for it, until somebody comes and asks.  Any worker
 * moves that deadline in the record; another gateway counts up the renewals in
 * the znode's data.  So when the deadline has passed, the claim is deleted by
 * the version of its data: if that fails, it is read, and lives on if there is
 * a renewal that was not known.
 *
 * A claim that is bound to a connection has no lease, unless it was asked for.
 * Instead it is lost as soon as its session is not known to be alive, and who
 * holds it is told so at that moment: nobody else can have been granted by
 * then.
 *
 * What others want of a claim they write into its data, too: to be held once
 * more or once less, to be shared, to be let go.  They say so by a change of
 * the lock's znode, or a watch on the claim tells.
 *
 * Everything here runs on the event loop.
 */


#include "ngx_http_zk_lock_node.h"


/* a claim that is held for so long is watched, milliseconds */
#define NGX_HTTP_ZK_LOCK_LONG_HOLD    1000

/* how soon a lease is looked at again that cannot be judged now */
#define NGX_HTTP_ZK_LOCK_LEASE_AGAIN  100

/* the longest timer */
#define NGX_HTTP_ZK_LOCK_TIMER_MAX    86400000


static void ngx_http_zk_lock_claim_leave(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_arm(ngx_http_zk_lock_claim_t *claim,
    ngx_msec_t now);
static void ngx_http_zk_lock_claim_arm_bound(ngx_http_zk_lock_claim_t *claim,
    ngx_msec_t now, ngx_msec_t wait);
static void ngx_http_zk_lock_claim_lapse_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_sweep_held(
    ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_moved(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_reread(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t watch);
static void ngx_http_zk_lock_claim_reread_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_renewed(ngx_http_zk_lock_claim_t *claim);
static ngx_uint_t ngx_http_zk_lock_claim_wishes(
    ngx_http_zk_lock_claim_t *claim, zk_lock_label_t *label);
static void ngx_http_zk_lock_claim_relabel(ngx_http_zk_lock_claim_t *claim,
    zk_lock_label_t *label, int32_t version);
static void ngx_http_zk_lock_claim_relabel_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_shared(void *data, ngx_int_t rc);


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
    claim->lease = now + claim->grace;

    /* not cancelable: who polls is served to the end, too */

    claim->timer.cancelable = 0;

    ngx_http_zk_lock_record_keep(claim->lock->worker->zone, claim->id.record,
                                 claim->ttl, claim->lease, 0);

    ngx_http_zk_lock_claim_arm(claim, now);
}


void
ngx_http_zk_lock_claim_part(ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_t                lease;
    ngx_http_zk_lock_zone_t  *zone;

    zone = claim->lock->worker->zone;

    if (ngx_http_zk_lock_record_lease(zone, claim->id.record, &lease)
        == NGX_OK
        && lease != claim->lease)
    {
        /* somebody has asked for it at this gateway */

        ngx_http_zk_lock_claim_leave(claim);
        return;
    }

    /* or at another one: then the version of its data is not the one known */

    (void) ngx_http_zk_lock_record_lease_over(zone, claim->id.record,
                                              claim->lease, &lease);

    claim->outcome = NGX_HTTP_ZK_LOCK_TAKEN;

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_LAPSE);
    ngx_http_zk_lock_claim_lapse(claim);
}


static void
ngx_http_zk_lock_claim_leave(ngx_http_zk_lock_claim_t *claim)
{
    claim->expired = 0;
    claim->limited = 0;

    ngx_http_zk_lock_claim_alone(claim);
    ngx_http_zk_lock_claim_answer(claim, NGX_HTTP_ZK_LOCK_TAKEN);
}


void
ngx_http_zk_lock_claim_unseen(ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_t                now, lease;
    ngx_http_zk_lock_zone_t  *zone;

    if (claim->grace == 0) {
        ngx_http_zk_lock_claim_release(claim, NULL);
        return;
    }

    if (claim->state != NGX_HTTP_ZK_LOCK_HELD) {
        return;
    }

    zone = claim->lock->worker->zone;
    now = ngx_http_zk_lock_now();

    if (ngx_http_zk_lock_record_lease(zone, claim->id.record, &lease)
        == NGX_OK
        && (ngx_msec_int_t) (lease - now) > (ngx_msec_int_t) claim->grace)
    {
        ngx_http_zk_lock_record_keep(zone, claim->id.record, claim->ttl,
                                     now + claim->grace, 1);
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
                                     now + claim->ttl, 0);
    }

    /* this one word decides for all, if the worker should die here */

    for (i = 0; i < n; i++) {
        zone = claims[i]->lock->worker->zone;
        ngx_http_zk_lock_record_unbind(zone, claims[i]->id.record);
    }

    for (i = 0; i < n; i++) {
        ngx_http_zk_lock_claim_lease(claims[i]);
    }
}


void
ngx_http_zk_lock_claim_lease(ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_t                  now, lease;
    ngx_http_zk_lock_worker_t  *worker;

    worker = claim->lock->worker;
    now = ngx_http_zk_lock_now();

    if (claim->bound && claim->state == NGX_HTTP_ZK_LOCK_HELD
        && !ngx_http_zk_lock_ahead(*ngx_http_zk_lock_zone_alive(worker->zone)))
    {
        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_LOST,
                                    "session");
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

    claim->lapsed = 1;

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_LAPSE);
    ngx_http_zk_lock_claim_lapse(claim);
}


/* When the claim is to be looked at next. */

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

    } else if (claim->limited) {
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


/* Deletes the claim as it is known here; the sweep tries again. */

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
        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_LOST,
                                    "lease");
        ngx_http_zk_lock_claim_done(claim);
        break;

    case NGX_HTTP_ZK_LOCK_CHANGED:
        ngx_http_zk_lock_claim_reread(claim, claim->watched);
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
 * A lock that is held for long may be renewed or released at another gateway,
 * or deleted by a person; a watch tells at once.  Those that are held for a
 * moment cost no read.
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

    if (!claim->watched
        && (lock->node
            || ngx_current_msec - claim->granted >= NGX_HTTP_ZK_LOCK_LONG_HOLD)
        && ngx_http_zk_lock_session_may_watch(lock->worker->session,
                                    lock->sn.str.len + 1 + ZK_LOCK_CLAIM_MAX))
    {
        ngx_http_zk_lock_claim_reread(claim, 1);
    }
}


/* Who listens hears of each place that it gains, once a second. */

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


void
ngx_http_zk_lock_claim_changed(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t deleted)
{
    claim->watched = 0;

    if (claim->share != NULL
        || (claim->state != NGX_HTTP_ZK_LOCK_HELD
            && claim->state != NGX_HTTP_ZK_LOCK_LAPSE))
    {
        return;
    }

    if (!deleted) {
        ngx_http_zk_lock_claim_reread(claim, 1);
        return;
    }

    ngx_log_error(NGX_LOG_INFO, claim->lock->worker->log, 0,
                  "a held claim of \"%V\" was deleted by somebody else",
                  &claim->lock->sn.str);

    claim->lapsed = 1;

    ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_LOST,
                                claim->state == NGX_HTTP_ZK_LOCK_LAPSE
                                ? "lease" : "deleted");
    ngx_http_zk_lock_claim_done(claim);
}


void
ngx_http_zk_lock_claim_touched(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->state == NGX_HTTP_ZK_LOCK_HELD && claim->share == NULL) {
        ngx_http_zk_lock_claim_reread(claim, claim->watched);
    }
}


/* Another gateway may have written to the claim. */

static void
ngx_http_zk_lock_claim_reread(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t watch)
{
    ngx_http_zk_lock_op_t  *op;

    claim->changed = 1;

    if (claim->op != NULL) {
        return;
    }

    op = ngx_http_zk_lock_claim_op(claim, NGX_HTTP_ZK_LOCK_OP_GET, NULL,
                                   ngx_http_zk_lock_claim_reread_handler);
    if (op != NULL) {
        claim->changed = 0;
        op->watch = watch;
        ngx_http_zk_lock_session_send(op);
    }
}


static void
ngx_http_zk_lock_claim_reread_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_int_t                  rc;
    ngx_msec_t                 ttl;
    zk_lock_label_t            label;
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE
        || (op->rc == NGX_HTTP_ZK_LOCK_OK && claim->lock->node
            && !ngx_http_zk_lock_node_is(&claim->id, op)))
    {
        ngx_http_zk_lock_claim_changed(claim, 1);
        return;
    }

    if (op->rc != NGX_HTTP_ZK_LOCK_OK) {
        return;
    }

    claim->watched |= op->watch;
    claim->looked = (claim->state == NGX_HTTP_ZK_LOCK_LAPSE);

    zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

    ttl = (ngx_msec_t) label.ttl;

    if (claim->entry.waiting) {
        claim->alone = 1;
        ttl = claim->grace;
    }

    /*
     * When it was renewed cannot be known, since the clocks are others': the
     * lease counts from now, so that it does not end before the time that was
     * told.  It is made shorter only if nobody has renewed it here since the
     * last sweep.
     */

    rc = ngx_http_zk_lock_record_renewed(claim->lock->worker->zone,
                                         claim->id.record, op->version,
                                         label.renewals, ttl, claim->lease);

    if (!label.async && label.index >= 0
        && ngx_http_zk_lock_record_seen(claim->lock->worker->zone,
                                        claim->id.record, claim->ttl)
           == NGX_OK)
    {
        rc = NGX_OK;
    }

    if (ngx_http_zk_lock_claim_wishes(claim, &label)) {
        ngx_http_zk_lock_claim_relabel(claim, &label, op->version);
    }

    if (claim->state == NGX_HTTP_ZK_LOCK_DELETE
        || claim->state == NGX_HTTP_ZK_LOCK_OWED)
    {
        /* it was wished away */
        return;
    }

    if (rc == NGX_OK) {
        ngx_http_zk_lock_claim_renewed(claim);

    } else if (claim->state == NGX_HTTP_ZK_LOCK_LAPSE) {
        ngx_http_zk_lock_claim_lapse(claim);

    } else if (claim->changed) {
        ngx_http_zk_lock_claim_reread(claim, claim->watched);
    }
}


static void
ngx_http_zk_lock_claim_renewed(ngx_http_zk_lock_claim_t *claim)
{
    claim->lapsed = 0;

    if (claim->state == NGX_HTTP_ZK_LOCK_LAPSE) {
        ngx_http_zk_lock_claim_state(claim, claim->entry.waiting
                                            ? NGX_HTTP_ZK_LOCK_WAIT
                                            : NGX_HTTP_ZK_LOCK_HELD);
    }

    if (!ngx_queue_empty(&claim->mourners)) {

        /* it was released meanwhile */

        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_CANCELLED);
        return;
    }

    if (claim->expired && claim->handler != NULL) {
        ngx_http_zk_lock_claim_leave(claim);
    }

    ngx_http_zk_lock_claim_rung(claim);

    if (claim->state == NGX_HTTP_ZK_LOCK_WAIT) {
        ngx_http_zk_lock_lock_advance(claim->lock);
    }
}


/*
 * What others want of the claim.  Returns 1 if its label is to be written
 * anew, as it is in label then.
 */

static ngx_uint_t
ngx_http_zk_lock_claim_wishes(ngx_http_zk_lock_claim_t *claim,
    zk_lock_label_t *label)
{
    ngx_uint_t  write;

    write = 0;

    if (claim->state != NGX_HTTP_ZK_LOCK_HELD) {
        return 0;
    }

    if (label->index < 0 && label->revoke) {

        /* a Curator client has written its mark over the label */

        zk_lock_label_read(label, (char *) claim->label, claim->label_len);
        label->index = (int) claim->index;
        label->revoke = 1;
        write = 1;
    }

    if (label->revoke && !claim->revoked) {
        claim->revoked = 1;
        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_REVOKE,
                                    NULL);
    }

    if (label->want_len == 0) {
        return write;
    }

    if (ngx_strcmp(label->want, "shared") == 0) {
        ngx_http_zk_lock_claim_share(claim);
        return write;
    }

    /* it is counted once, however often it takes to write that down */

    if (ngx_http_zk_lock_record_wish(claim->lock->worker->zone, &claim->id,
                                     &claim->lock->sn.str, label,
                                     &claim->holds)
        != NGX_OK)
    {
        return write;
    }

    if (claim->holds == 0) {
        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_CANCELLED);
        return 0;
    }

    label->holds = (uint32_t) claim->holds;
    label->want_len = 0;

    return 1;
}


static void
ngx_http_zk_lock_claim_relabel(ngx_http_zk_lock_claim_t *claim,
    zk_lock_label_t *label, int32_t version)
{
    char                    text[ZK_LOCK_LABEL_MAX];
    size_t                  index_at;
    ngx_str_t               value;
    ngx_http_zk_lock_op_t  *op;

    if (claim->state != NGX_HTTP_ZK_LOCK_HELD || claim->op != NULL) {
        return;
    }

    value.len = zk_lock_label_write(text, label, &index_at);
    value.data = (u_char *) text;

    op = ngx_http_zk_lock_claim_op(claim, NGX_HTTP_ZK_LOCK_OP_SET, &value,
                                   ngx_http_zk_lock_claim_relabel_handler);
    if (op != NULL) {
        op->version = version;
        ngx_http_zk_lock_session_send(op);
    }
}


static void
ngx_http_zk_lock_claim_relabel_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    if (op->rc != NGX_HTTP_ZK_LOCK_OK
        && op->rc != NGX_HTTP_ZK_LOCK_CHANGED)
    {
        /* the sweep reads what has become of it */
        claim->changed = 1;
        return;
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_CHANGED || claim->changed) {
        ngx_http_zk_lock_claim_reread(claim, claim->watched);
    }
}


void
ngx_http_zk_lock_claim_share(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;

    if (claim->state != NGX_HTTP_ZK_LOCK_HELD || claim->share != NULL
        || (claim->entry.kind != ZK_LOCK_MUTEX
            && claim->entry.kind != ZK_LOCK_WRITE))
    {
        return;
    }

    claim->share = ngx_http_zk_lock_share(lock->worker, lock->worker->session,
                                          lock->worker->zone, &lock->sn.str,
                                          &claim->id, claim->entry.kind,
                                          claim->entry.seq,
                                          ngx_http_zk_lock_claim_shared,
                                          claim);
    if (claim->share == NULL) {
        return;
    }

    /* readers behind it may be granted: it cannot be called back */

    claim->entry.kind = ZK_LOCK_READ;

    ngx_http_zk_lock_lock_advance(lock);
}


static void
ngx_http_zk_lock_claim_shared(void *data, ngx_int_t rc)
{
    ngx_http_zk_lock_claim_t *claim = data;

    claim->share = NULL;
    claim->watched = 0;

    if (rc != NGX_OK) {
        ngx_http_zk_lock_claim_changed(claim, 1);
        return;
    }

    if (claim->ending) {
        claim->ending = 0;
        ngx_http_zk_lock_claim_end(claim, claim->outcome);
        return;
    }

    /* others may have wanted something else of it meanwhile */

    ngx_http_zk_lock_claim_reread(claim, 0);

    ngx_http_zk_lock_claim_lease(claim);
}
