
/*
 * A claim's life.
 *
 *            reply OK     reply       reply     its     ended:   con-   session
 *            (or found)   no node     unknown   turn    release, nec-   lost
 *                                               comes   wait or  tion
 *                                                       lease    back
 *   -------  -----------  ----------  --------  ------  -------  -----  -------
 *   START    -            -           -         -       DONE     CREATE START
 *   CREATE   WAIT         START       RECOVER   -       (later)  -      START
 *   RECOVER  WAIT         START       -         -       (later)  (list) START
 *   WAIT     -            START       -         HELD    DELETE   (list) START
 *   HELD     -            DONE        -         -       DELETE   (list) DONE
 *                                                       or LAPSE
 *   LAPSE    DONE         DONE        (list)    -       (later)  (list) DONE
 *   DELETE   DONE         DONE        OWED      -       -        -      DONE
 *   OWED     -            -           -         -       -        DELETE DONE
 *
 * "(later)": a create that is under way cannot be called back, so the claim is
 * deleted when it is known to be there.  "(list)": the list of the lock's
 * children tells whether the claim is there.
 *
 * A lease that is over ends a claim only if no other gateway has renewed it,
 * which shows in the version of its data: so in LAPSE the claim still blocks
 * those behind it, and it is HELD again if it turns out to have been renewed.
 *
 * Everything here runs on the event loop.  `handler` is who waits; it is NULL
 * when he was told or has left.  The claim outlives him: it is freed when its
 * znode is known to be gone.  Only ngx_http_zk_lock_claim_state() changes the
 * state, and only ngx_http_zk_lock_claim_done() frees.
 */


#include "ngx_http_zk_lock_claim.h"


/* a claim that is held for so long is watched, milliseconds */
#define NGX_HTTP_ZK_LOCK_LONG_HOLD  1000

/* how often a create is tried again after its lock's znode was made */
#define NGX_HTTP_ZK_LOCK_TRIES      5


static void ngx_http_zk_lock_claim_state(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_claim_state_e state);
static void ngx_http_zk_lock_claim_answer(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome);
static void ngx_http_zk_lock_claim_create(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_create_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_created(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_queued(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_missing(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_recover(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_found(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_found_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_requeue(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_timer_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_claim_lease(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_lapse(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_lapse_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_reread(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t watch);
static void ngx_http_zk_lock_claim_reread_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_renewed(ngx_http_zk_lock_claim_t *claim);
static ngx_http_zk_lock_op_t *ngx_http_zk_lock_claim_op(
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_op_e type,
    ngx_http_zk_lock_op_pt handler);
static void ngx_http_zk_lock_claim_end(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome);
static void ngx_http_zk_lock_claim_delete(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t gather);
static void ngx_http_zk_lock_claim_delete_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_done(ngx_http_zk_lock_claim_t *claim);


ngx_http_zk_lock_claim_t *
ngx_http_zk_lock_claim_acquire(ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_acquire_t *acquire, ngx_http_zk_lock_outcome_e *outcome)
{
    char                       label[ZK_LOCK_LABEL_MAX];
    size_t                     len, index_at;
    ngx_int_t                  rc;
    ngx_http_zk_lock_lock_t   *lock;
    ngx_http_zk_lock_claim_t  *claim;

    *outcome = NGX_HTTP_ZK_LOCK_FAILED;

    if (!ngx_http_zk_lock_session_reachable(worker->session)) {
        *outcome = NGX_HTTP_ZK_LOCK_UNREACHABLE;
        return NULL;
    }

    lock = ngx_http_zk_lock_lock_get(worker, &acquire->path);
    if (lock == NULL) {
        return NULL;
    }

    ngx_http_zk_lock_lock_pin(lock);

    claim = NULL;

    /* those of this worker are enough to know: nothing is asked */

    if (lock->nclaims > acquire->max_queue) {
        *outcome = NGX_HTTP_ZK_LOCK_FULL;
        goto done;
    }

    len = zk_lock_label_write(label, acquire->label, &index_at);

    claim = ngx_calloc(sizeof(ngx_http_zk_lock_claim_t) + len, worker->log);
    if (claim == NULL) {
        goto done;
    }

    ngx_memcpy(claim->label, label, len);
    claim->label_len = (uint16_t) len;
    claim->index_at = (uint16_t) index_at;

    if (ngx_http_zk_lock_session_reserve(worker->session,
                                    acquire->path.len + 1 + ZK_LOCK_CLAIM_MAX)
        != NGX_OK)
    {
        *outcome = NGX_HTTP_ZK_LOCK_NO_ROOM;
        goto failed;
    }

    rc = ngx_http_zk_lock_record_take(worker->zone, &acquire->path,
                                      acquire->kind, &claim->id);
    if (rc != NGX_OK) {
        ngx_http_zk_lock_session_unreserve(worker->session,
                                    acquire->path.len + 1 + ZK_LOCK_CLAIM_MAX);

        *outcome = (rc == NGX_BUSY) ? NGX_HTTP_ZK_LOCK_NO_ROOM
                                    : NGX_HTTP_ZK_LOCK_FAILED;
        goto failed;
    }

    claim->lock = lock;
    claim->entry.kind = acquire->kind;
    claim->handler = acquire->handler;
    claim->data = acquire->data;
    claim->ttl = acquire->ttl;
    claim->max_queue = acquire->max_queue;
    claim->started = ngx_current_msec;
    claim->deadline = ngx_current_msec + acquire->wait;
    claim->state = NGX_HTTP_ZK_LOCK_DONE;
    claim->settled = 1;

    ngx_queue_init(&claim->mourners);
    ngx_http_zk_lock_lock_join(lock, &claim->queue);

    worker->claims[claim->id.record] = claim;

    /* not cancelable: a worker that leaves serves its waiters to the end */

    ngx_http_zk_lock_worker_timer(worker, &claim->timer,
                                  ngx_http_zk_lock_claim_timer_handler);

    if (acquire->wait != 0) {
        ngx_add_timer(&claim->timer, acquire->wait);

    } else {
        claim->expired = 1;
    }

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_START);
    ngx_http_zk_lock_claim_start(claim);

    goto done;

failed:

    ngx_free(claim);
    claim = NULL;

done:

    ngx_http_zk_lock_lock_unpin(lock);

    return claim;
}


void
ngx_http_zk_lock_claim_abandon(ngx_http_zk_lock_claim_t *claim)
{
    claim->handler = NULL;
    claim->timer.cancelable = 1;

    switch (claim->state) {

    case NGX_HTTP_ZK_LOCK_START:
        ngx_http_zk_lock_claim_done(claim);
        break;

    case NGX_HTTP_ZK_LOCK_WAIT:
    case NGX_HTTP_ZK_LOCK_HELD:
        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_CANCELLED);
        break;

    default:
        /* CREATE, RECOVER: it ends when it is known to be there */
        break;
    }
}


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


ngx_http_zk_lock_claim_t *
ngx_http_zk_lock_claim_find(ngx_http_zk_lock_worker_t *worker,
    const zk_lock_id_t *id, ngx_str_t *path)
{
    ngx_str_t                 *own;
    ngx_http_zk_lock_claim_t  *claim;

    if (id->record >= worker->nclaims) {
        return NULL;
    }

    claim = worker->claims[id->record];

    if (claim == NULL
        || ngx_memcmp(claim->id.random, id->random, ZK_LOCK_RANDOM_LEN) != 0)
    {
        return NULL;
    }

    own = &claim->lock->sn.str;

    if (own->len != path->len
        || ngx_memcmp(own->data, path->data, path->len) != 0)
    {
        return NULL;
    }

    return claim;
}


int64_t
ngx_http_zk_lock_fencing_token(int64_t czxid, ngx_uint_t index)
{
    return czxid * 256 + (int64_t) index;
}


ngx_http_zk_lock_claim_t *
ngx_http_zk_lock_claim_of(zk_lock_entry_t *entry)
{
    return (ngx_http_zk_lock_claim_t *) entry;
}


static void
ngx_http_zk_lock_claim_state(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_claim_state_e state)
{
    ngx_uint_t                  settled;
    ngx_http_zk_lock_worker_t  *worker;

    static char  *names[] = {
        "start", "create", "recover", "wait", "held", "lapse", "delete",
        "owed", "done"
    };

    worker = claim->lock->worker;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, worker->log, 0,
                   "zk lock claim %uD of \"%V\": %s -> %s",
                   claim->id.record, &claim->lock->sn.str,
                   names[claim->state], names[state]);

    claim->state = state;

    settled = state == NGX_HTTP_ZK_LOCK_WAIT
              || state == NGX_HTTP_ZK_LOCK_HELD
              || state == NGX_HTTP_ZK_LOCK_DONE;

    if (claim->settled && !settled) {
        ngx_queue_insert_tail(&worker->unsettled, &claim->unsettled);

    } else if (!claim->settled && settled) {
        ngx_queue_remove(&claim->unsettled);
    }

    claim->settled = settled;

    ngx_http_zk_lock_worker_busy(worker);
}


static void
ngx_http_zk_lock_claim_answer(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome)
{
    ngx_http_zk_lock_claim_pt  handler;

    handler = claim->handler;

    if (handler != NULL) {
        claim->handler = NULL;
        claim->timer.cancelable = 1;

        handler(claim->data, claim, outcome);
    }
}


void
ngx_http_zk_lock_claim_start(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->state != NGX_HTTP_ZK_LOCK_START
        || claim->lock->making != 0
        || !ngx_http_zk_lock_session_connected(claim->lock->worker->session))
    {
        return;
    }

    ngx_http_zk_lock_claim_create(claim);
}


static void
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

    op = ngx_http_zk_lock_op_new(worker->session, NGX_HTTP_ZK_LOCK_OP_CREATE,
                                 &claim->lock->sn.str, &name, &label);
    if (op == NULL) {
        /* the sweep starts it again */
        return;
    }

    op->index_at = claim->index_at;
    op->handler = ngx_http_zk_lock_claim_create_handler;
    op->data = claim;
    op->gather = claim->lock->known;

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

        if (claim->handler == NULL) {
            ngx_http_zk_lock_claim_done(claim);
        }

        break;

    case NGX_HTTP_ZK_LOCK_EXISTS:
        ngx_http_zk_lock_claim_refuse(claim, NGX_HTTP_ZK_LOCK_WORN_OUT);
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

    if (zk_lock_child_read(&child, (char *) op->reply.data, op->reply.len)
        != 0)
    {
        ngx_log_error(NGX_LOG_ERR, claim->lock->worker->log, 0,
                      "zookeeper made a claim with a strange name: \"%V\"",
                      &op->reply);

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


/* The claim is in the view, and its czxid is known. */

static void
ngx_http_zk_lock_claim_queued(ngx_http_zk_lock_claim_t *claim)
{
    int64_t                   ahead;
    zk_lock_entry_t          *first;
    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;

    ngx_http_zk_lock_record_publish(lock->worker->zone, claim->id.record,
                                    claim->entry.seq, claim->czxid,
                                    claim->index);
    ngx_http_zk_lock_board_put(lock->worker->zone, &lock->sn.str,
                               claim->entry.seq, claim->id.record);

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_WAIT);

    if (claim->entry.seq == ZK_LOCK_SEQ_MAX) {

        /* from here on all claims get the same number: no order any more */

        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_WORN_OUT);
        return;
    }

    if (claim->handler == NULL) {
        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_CANCELLED);
        return;
    }

    /* no more can be ahead than numbers were given since the first */

    first = zk_lock_view_first(&lock->view);
    ahead = claim->entry.seq - first->seq;

    if (ahead > (int64_t) claim->max_queue) {
        claim->counting = 1;
        ngx_http_zk_lock_lock_list(lock);
    }

    if (claim->counting || claim->expired) {
        lock->settle = 1;
    }

    ngx_http_zk_lock_lock_advance(lock);
}


/* The lock's znode is not there, or not any more. */

static void
ngx_http_zk_lock_claim_missing(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_START);

    if (claim->handler == NULL) {
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


static void
ngx_http_zk_lock_claim_recover(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_RECOVER);

    /* if the list shows it, it waits */

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

        /* the create never happened */

        ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_START);

        if (claim->handler == NULL) {
            ngx_http_zk_lock_claim_done(claim);
            break;
        }

        ngx_http_zk_lock_claim_start(claim);
        break;

    case NGX_HTTP_ZK_LOCK_WAIT:

        if (!claim->vanished && claim->entry.linked) {
            break;
        }

        /* by another gateway, which had its token; or by anybody */

        if (claim->lock->touched) {
            ngx_http_zk_lock_claim_refuse(claim,
                                          NGX_HTTP_ZK_LOCK_CANCELLED);

        } else {
            ngx_http_zk_lock_claim_requeue(claim);
        }

        break;

    case NGX_HTTP_ZK_LOCK_LAPSE:

        if (claim->vanished || !claim->entry.linked) {
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

            ngx_http_zk_lock_claim_done(claim);
        }

        break;

    default:
        break;
    }
}


/* The create happened, but its answer was lost: its czxid is to be read. */

static void
ngx_http_zk_lock_claim_found(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_op_t  *op;

    if (claim->op != NULL) {
        return;
    }

    op = ngx_http_zk_lock_claim_op(claim, NGX_HTTP_ZK_LOCK_OP_GET,
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
        zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

        claim->czxid = op->czxid;
        claim->index = (label.index > 0) ? label.index : 0;
        claim->lock->known = 1;

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
 * A waiting claim is gone without having been ended: its place is lost, and
 * it queues again under a new id, while who waits has time.
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

    if (claim->handler == NULL || !ngx_queue_empty(&claim->mourners)) {
        ngx_http_zk_lock_claim_done(claim);
        return;
    }

    if (ngx_http_zk_lock_record_take(worker->zone, &lock->sn.str,
                                     claim->entry.kind, &id)
        != NGX_OK)
    {
        ngx_http_zk_lock_claim_refuse(claim, NGX_HTTP_ZK_LOCK_NO_ROOM);
        return;
    }

    worker->claims[claim->id.record] = NULL;
    ngx_http_zk_lock_record_free(worker->zone, claim->id.record);

    claim->id = id;
    worker->claims[id.record] = claim;

    claim->czxid = 0;
    claim->requeued = 1;

    ngx_http_zk_lock_claim_start(claim);
}


ngx_int_t
ngx_http_zk_lock_claim_grant(ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_t                  now;
    ngx_http_zk_lock_worker_t  *worker;

    worker = claim->lock->worker;

    if (claim->state != NGX_HTTP_ZK_LOCK_WAIT
        || !ngx_http_zk_lock_session_alive(worker->session))
    {
        return NGX_AGAIN;
    }

    zk_lock_view_grant(&claim->lock->view, &claim->entry);

    now = ngx_http_zk_lock_now();
    claim->granted = now;
    claim->lease = now + claim->ttl;

    ngx_http_zk_lock_record_grant(worker->zone, claim->id.record, claim->ttl,
                                  now + claim->ttl);

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_HELD);

    /* a held claim keeps no worker that wants to leave */

    if (claim->timer.timer_set) {
        ngx_del_timer(&claim->timer);
    }

    claim->timer.cancelable = 1;
    ngx_add_timer(&claim->timer, claim->ttl);

    ngx_http_zk_lock_claim_answer(claim, NGX_HTTP_ZK_LOCK_GRANTED);

    return NGX_OK;
}


static void
ngx_http_zk_lock_claim_timer_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_claim_t  *claim;

    claim = ngx_queue_data(ev, ngx_http_zk_lock_claim_t, timer);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ev->log, 0,
                   "zk lock claim timer, state %d", claim->state);

    if (claim->state == NGX_HTTP_ZK_LOCK_HELD) {
        ngx_http_zk_lock_claim_lease(claim);
        return;
    }

    claim->expired = 1;

    ngx_http_zk_lock_claim_settle(claim);
}


void
ngx_http_zk_lock_claim_settle(ngx_http_zk_lock_claim_t *claim)
{
    size_t                    ahead;
    ngx_http_zk_lock_lock_t  *lock;

    if (claim->state != NGX_HTTP_ZK_LOCK_WAIT
        || (!claim->expired && !claim->counting))
    {
        return;
    }

    lock = claim->lock;

    if (claim->expired
        && !ngx_http_zk_lock_session_connected(lock->worker->session))
    {
        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_TAKEN);
        return;
    }

    if (ngx_http_zk_lock_lock_unsure(lock)) {
        lock->settle = 1;
        return;
    }

    if (claim->counting) {
        claim->counting = 0;

        ahead = zk_lock_view_position(&lock->view, &claim->entry);

        if (ahead > claim->max_queue) {
            ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_FULL);
            return;
        }
    }

    if (claim->expired) {
        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_TAKEN);
    }
}


/* The lease is over, unless somebody has renewed it. */

static void
ngx_http_zk_lock_claim_lease(ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_t                  now, lease;
    ngx_http_zk_lock_worker_t  *worker;

    worker = claim->lock->worker;
    now = ngx_http_zk_lock_now();

    if (ngx_http_zk_lock_record_lease_over(worker->zone, claim->id.record,
                                           now, &lease)
        == NGX_AGAIN)
    {
        if (claim->timer.timer_set) {
            ngx_del_timer(&claim->timer);
        }

        claim->lease = lease;
        ngx_add_timer(&claim->timer, lease - now);
        return;
    }

    ngx_log_error(NGX_LOG_INFO, worker->log, 0,
                  "a lease of \"%V\" is over", &claim->lock->sn.str);

    if (claim->timer.timer_set) {
        ngx_del_timer(&claim->timer);
    }

    claim->lapsed = 1;

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_LAPSE);
    ngx_http_zk_lock_claim_lapse(claim);
}


/* Deletes the claim as it is known here; the sweep tries again. */

static void
ngx_http_zk_lock_claim_lapse(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_op_t       *op;
    ngx_http_zk_lock_session_t  *session;

    session = claim->lock->worker->session;

    if (claim->op != NULL || !ngx_http_zk_lock_session_connected(session)) {
        return;
    }

    op = ngx_http_zk_lock_claim_op(claim, NGX_HTTP_ZK_LOCK_OP_DELETE,
                                   ngx_http_zk_lock_claim_lapse_handler);
    if (op == NULL) {
        return;
    }

    op->version = ngx_http_zk_lock_record_version(claim->lock->worker->zone,
                                                  claim->id.record);
    op->gather = 1;

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


/*
 * A lock that is held for long may be renewed or released at another gateway,
 * or deleted by a person; a watch tells at once.  Those that are held for a
 * moment cost no read.
 */

void
ngx_http_zk_lock_claim_sweep(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_lock_t  *lock;

    if (claim->state != NGX_HTTP_ZK_LOCK_HELD) {
        return;
    }

    lock = claim->lock;

    (void) ngx_http_zk_lock_record_lease(lock->worker->zone, claim->id.record,
                                         &claim->lease);

    if (!claim->watched
        && ngx_current_msec - claim->granted >= NGX_HTTP_ZK_LOCK_LONG_HOLD
        && ngx_http_zk_lock_session_may_watch(lock->worker->session,
                                    lock->sn.str.len + 1 + ZK_LOCK_CLAIM_MAX))
    {
        ngx_http_zk_lock_claim_reread(claim, 1);
    }
}


void
ngx_http_zk_lock_claim_changed(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t deleted)
{
    claim->watched = 0;

    if (claim->state != NGX_HTTP_ZK_LOCK_HELD
        && claim->state != NGX_HTTP_ZK_LOCK_LAPSE)
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

    ngx_http_zk_lock_claim_done(claim);
}


/* Another gateway may have renewed the claim. */

static void
ngx_http_zk_lock_claim_reread(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t watch)
{
    ngx_http_zk_lock_op_t  *op;

    if (claim->op != NULL) {
        return;
    }

    op = ngx_http_zk_lock_claim_op(claim, NGX_HTTP_ZK_LOCK_OP_GET,
                                   ngx_http_zk_lock_claim_reread_handler);
    if (op != NULL) {
        op->watch = watch;
        ngx_http_zk_lock_session_send(op);
    }
}


static void
ngx_http_zk_lock_claim_reread_handler(ngx_http_zk_lock_op_t *op)
{
    zk_lock_label_t            label;
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {
        ngx_http_zk_lock_claim_changed(claim, 1);
        return;
    }

    if (op->rc != NGX_HTTP_ZK_LOCK_OK) {
        return;
    }

    claim->watched |= op->watch;

    zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

    /*
     * When it was renewed cannot be known, since the clocks are others': the
     * lease counts from now, so that it does not end before the time that was
     * told.  It is made shorter only if nobody has renewed it here since the
     * last sweep.
     */

    if (ngx_http_zk_lock_record_renewed(claim->lock->worker->zone,
                                        claim->id.record, op->version,
                                        (ngx_msec_t) label.ttl, claim->lease)
        == NGX_OK)
    {
        ngx_http_zk_lock_claim_renewed(claim);

    } else if (claim->state == NGX_HTTP_ZK_LOCK_LAPSE) {
        ngx_http_zk_lock_claim_lapse(claim);
    }
}


static void
ngx_http_zk_lock_claim_renewed(ngx_http_zk_lock_claim_t *claim)
{
    claim->lapsed = 0;

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_HELD);

    if (!ngx_queue_empty(&claim->mourners)) {

        /* it was released meanwhile */

        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_CANCELLED);
        return;
    }

    ngx_http_zk_lock_claim_rung(claim);
}


/* An operation on the claim's znode; the claim's only one. */

static ngx_http_zk_lock_op_t *
ngx_http_zk_lock_claim_op(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_op_e type, ngx_http_zk_lock_op_pt handler)
{
    u_char                    buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t                 name;
    ngx_http_zk_lock_op_t    *op;
    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;

    name.data = buf;
    name.len = zk_lock_claim_write((char *) buf, &claim->id,
                                   claim->entry.kind, claim->entry.seq);

    op = ngx_http_zk_lock_op_new(lock->worker->session, type, &lock->sn.str,
                                 &name, NULL);
    if (op == NULL) {
        return NULL;
    }

    op->handler = handler;
    op->data = claim;

    claim->op = op;

    return op;
}


void
ngx_http_zk_lock_claim_rung(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->state != NGX_HTTP_ZK_LOCK_WAIT
        && claim->state != NGX_HTTP_ZK_LOCK_HELD)
    {
        return;
    }

    if (ngx_http_zk_lock_record_asked(claim->lock->worker->zone,
                                      claim->id.record))
    {
        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_CANCELLED);
        return;
    }

    if (claim->state == NGX_HTTP_ZK_LOCK_HELD) {
        ngx_http_zk_lock_claim_lease(claim);
    }
}


/*
 * From here on the claim is on its way out, and cannot be called back: those
 * behind it may be granted at once.  outcome is for who still waits, when the
 * claim is gone.
 */

static void
ngx_http_zk_lock_claim_end(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome)
{
    ngx_uint_t                linked;
    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;
    linked = claim->entry.linked;

    claim->outcome = outcome;

    ngx_http_zk_lock_lock_pin(lock);

    ngx_http_zk_lock_record_end(lock->worker->zone, claim->id.record);
    ngx_http_zk_lock_claim_delete(claim, linked);
    ngx_http_zk_lock_lock_removed(lock, &claim->entry);

    ngx_http_zk_lock_lock_unpin(lock);
}


/* gather: it is surely there, and may share a transaction */

static void
ngx_http_zk_lock_claim_delete(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t gather)
{
    ngx_http_zk_lock_op_t  *op;

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_DELETE);

    if (claim->op != NULL) {
        claim->op->handler = NULL;
        claim->op = NULL;
    }

    if (claim->timer.timer_set) {
        ngx_del_timer(&claim->timer);
    }

    op = ngx_http_zk_lock_claim_op(claim, NGX_HTTP_ZK_LOCK_OP_DELETE,
                                   ngx_http_zk_lock_claim_delete_handler);
    if (op == NULL) {
        ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_OWED);
        return;
    }

    op->gather = gather;

    ngx_http_zk_lock_session_send(op);
}


static void
ngx_http_zk_lock_claim_delete_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    if (op->rc == NGX_HTTP_ZK_LOCK_OK || op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {

        /* somebody else was first */

        if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE && !claim->doubtful) {
            claim->lapsed = 1;
        }

        ngx_http_zk_lock_claim_done(claim);
        return;
    }

    claim->doubtful |= (op->rc == NGX_HTTP_ZK_LOCK_UNKNOWN);

    /* the sweep, or the next connection, sends it again */

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_OWED);
}


void
ngx_http_zk_lock_claim_refuse(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome)
{
    claim->outcome = outcome;

    ngx_http_zk_lock_claim_done(claim);
}


/* There is no znode (any more): tells who waits, and frees. */

static void
ngx_http_zk_lock_claim_done(ngx_http_zk_lock_claim_t *claim)
{
    ngx_queue_t                 *q;
    ngx_http_zk_lock_lock_t     *lock;
    ngx_http_zk_lock_worker_t   *worker;
    ngx_http_zk_lock_mourner_t  *mourner;

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

    worker->claims[claim->id.record] = NULL;

    ngx_http_zk_lock_record_end(worker->zone, claim->id.record);
    ngx_http_zk_lock_record_free(worker->zone, claim->id.record);

    ngx_http_zk_lock_session_unreserve(worker->session,
                                lock->sn.str.len + 1 + ZK_LOCK_CLAIM_MAX);

    ngx_http_zk_lock_claim_answer(claim, claim->outcome);

    while (!ngx_queue_empty(&claim->mourners)) {
        q = ngx_queue_head(&claim->mourners);
        ngx_queue_remove(q);

        mourner = ngx_queue_data(q, ngx_http_zk_lock_mourner_t, queue);

        if (mourner->handler != NULL) {
            mourner->handler(mourner->data, claim->lapsed);
        }
    }

    ngx_http_zk_lock_lock_removed(lock, &claim->entry);
    ngx_http_zk_lock_lock_leave(lock, &claim->queue);

    ngx_free(claim);

    ngx_http_zk_lock_lock_unpin(lock);
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

        if (!claim->expired) {
            return;
        }

        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_UNREACHABLE);
    }

    /* the claim is removed when that can be done; nobody waits for it */

    ngx_http_zk_lock_claim_answer(claim, NGX_HTTP_ZK_LOCK_UNREACHABLE);
}


void
ngx_http_zk_lock_claim_lost(ngx_http_zk_lock_claim_t *claim)
{
    switch (claim->state) {

    case NGX_HTTP_ZK_LOCK_START:
        break;

    case NGX_HTTP_ZK_LOCK_CREATE:
    case NGX_HTTP_ZK_LOCK_RECOVER:
    case NGX_HTTP_ZK_LOCK_WAIT:
        ngx_http_zk_lock_claim_requeue(claim);
        break;

    case NGX_HTTP_ZK_LOCK_HELD:
    default:

        /* who releases it now is told that it was lost before */

        claim->lapsed = 1;

        ngx_http_zk_lock_claim_done(claim);
        break;
    }
}


ngx_uint_t
ngx_http_zk_lock_claim_shut(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->handler == NULL) {
        return 0;
    }

    if (claim->state == NGX_HTTP_ZK_LOCK_START) {
        ngx_http_zk_lock_claim_refuse(claim, NGX_HTTP_ZK_LOCK_SHUT);
        return 1;
    }

    if (claim->state == NGX_HTTP_ZK_LOCK_WAIT) {
        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_SHUT);
    }

    ngx_http_zk_lock_claim_answer(claim, NGX_HTTP_ZK_LOCK_SHUT);

    return 1;
}


void
ngx_http_zk_lock_claim_discard(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->timer.timer_set) {
        ngx_del_timer(&claim->timer);
    }

    ngx_free(claim);
}
