
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


#include "ngx_http_zk_lock_node.h"


/* how often a create is tried again after its lock's znode was made */
#define NGX_HTTP_ZK_LOCK_TRIES      5


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
static void ngx_http_zk_lock_claim_delete(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t gather);
static void ngx_http_zk_lock_claim_look_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_delete_handler(ngx_http_zk_lock_op_t *op);
static ngx_uint_t ngx_http_zk_lock_claim_wanted(
    ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_single_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_wait(ngx_http_zk_lock_claim_t *claim);


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

    if (ngx_http_zk_lock_lock_layout(lock, acquire->kind == ZK_LOCK_NODE)
        != NGX_OK)
    {
        *outcome = NGX_HTTP_ZK_LOCK_LAYOUT;
        goto done;
    }

    /* those of this worker are enough to know: nothing is asked */

    if (acquire->key == NULL && lock->nclaims > acquire->max_queue) {
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
                                      acquire->kind, acquire->key, &claim->id);
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
    claim->event = acquire->event;
    claim->data = acquire->data;
    claim->ttl = acquire->ttl;
    claim->grace = acquire->grace;
    claim->limited = !acquire->forever;
    claim->keyed = (acquire->key != NULL);
    claim->async = acquire->async;
    claim->bound = acquire->bound;
    claim->leased = acquire->leased;
    claim->max_queue = acquire->max_queue;
    claim->started = ngx_current_msec;
    claim->deadline = ngx_current_msec + acquire->wait;
    claim->state = NGX_HTTP_ZK_LOCK_DONE;
    claim->settled = 1;

    ngx_queue_init(&claim->mourners);
    ngx_http_zk_lock_lock_join(lock, &claim->queue);

    worker->claims[claim->id.record] = claim;

    if (claim->keyed) {

        /* others that wait with it move this */

        claim->lease = ngx_http_zk_lock_now() + acquire->wait + claim->grace;

        ngx_http_zk_lock_record_keep(worker->zone, claim->id.record,
                                     claim->ttl, claim->lease, 0);
    }

    if (claim->bound) {
        ngx_http_zk_lock_record_bind(worker->zone, claim->id.record,
                                     acquire->leader
                                     ? acquire->leader->id.record
                                     : NGX_HTTP_ZK_LOCK_NO_RECORD);
    }

    /* not cancelable: a worker that leaves serves its waiters to the end */

    ngx_http_zk_lock_worker_timer(worker, &claim->timer,
                                  ngx_http_zk_lock_claim_timer_handler);

    if (acquire->forever) {
        /* a worker that leaves knows it by the answer that is owed */

    } else if (acquire->wait != 0) {
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
    claim->event = NULL;

    if (claim->grace != 0 && claim->state != NGX_HTTP_ZK_LOCK_START) {

        /* how long he would have waited does not count any more */

        claim->limited = 0;

        ngx_http_zk_lock_claim_alone(claim);
        return;
    }

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


/* Somebody waits for the claim, or may come and ask for it. */

static ngx_uint_t
ngx_http_zk_lock_claim_wanted(ngx_http_zk_lock_claim_t *claim)
{
    return claim->handler != NULL || claim->alone;
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


void
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


void
ngx_http_zk_lock_claim_answer(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome)
{
    ngx_http_zk_lock_claim_pt  handler;

    handler = claim->handler;

    if (handler != NULL) {
        claim->handler = NULL;

        if (outcome != NGX_HTTP_ZK_LOCK_GRANTED) {
            claim->event = NULL;
        }

        claim->timer.cancelable = (claim->event == NULL && !claim->alone);

        handler(claim->data, claim, outcome);
    }
}


void
ngx_http_zk_lock_claim_tell(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_event_e event, const char *reason)
{
    ngx_http_zk_lock_event_pt  handler;

    handler = claim->event;

    if (handler == NULL) {
        return;
    }

    if (event == NGX_HTTP_ZK_LOCK_EVENT_LOST) {
        claim->event = NULL;
        claim->timer.cancelable = 1;
    }

    handler(claim->data, claim, event, reason);
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
        /* the sweep starts it again */
        return;
    }

    op->index_at = claim->index_at;
    op->handler = ngx_http_zk_lock_claim_create_handler;
    op->data = claim;
    op->gather = claim->lock->known && !claim->lock->node;

    /* its turn is far off, and whoever waits with it has time */

    op->patient = ngx_http_zk_lock_lock_crowded(claim->lock, NULL)
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

        /* from here on all claims get the same number: no order any more */

        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_WORN_OUT);
        return;
    }

    if (!ngx_http_zk_lock_claim_wanted(claim)) {
        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_CANCELLED);
        return;
    }

    if (!claim->keyed
        && ngx_http_zk_lock_lock_conflicts(lock, &claim->entry))
    {
        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_CONFLICT);
        return;
    }

    ngx_http_zk_lock_claim_single(claim);

    /*
     * No more can be ahead than are known, and numbers were given that nobody
     * here knows of.
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


/* The lock's znode is not there, or not any more. */

static void
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

        if (!ngx_http_zk_lock_claim_wanted(claim)) {
            ngx_http_zk_lock_claim_done(claim);
            break;
        }

        ngx_http_zk_lock_claim_start(claim);
        break;

    case NGX_HTTP_ZK_LOCK_WAIT:

        if (!claim->vanished && claim->entry.linked) {

            if ((!claim->keyed || claim->single)
                && ngx_http_zk_lock_lock_conflicts(claim->lock,
                                                   &claim->entry))
            {
                ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_CONFLICT);
                break;
            }

            ngx_http_zk_lock_claim_single(claim);
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


/* The create happened, but its answer was lost: its czxid is to be read. */

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

        if (claim->lock->node && !ngx_http_zk_lock_node_is(&claim->id, op)) {
            ngx_http_zk_lock_lock_list(claim->lock);
            break;
        }

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

    /* who was told a token knows it by that only */

    if (claim->handler == NULL || !ngx_queue_empty(&claim->mourners)) {
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

    worker->claims[claim->id.record] = NULL;
    ngx_http_zk_lock_record_free(worker->zone, claim->id.record);

    claim->id = id;
    worker->claims[id.record] = claim;

    claim->czxid = 0;
    claim->requeued = 1;
    claim->single = 0;
    claim->offered = 0;
    claim->contends = 0;
    claim->told = 0;

    ngx_http_zk_lock_claim_start(claim);
}


/*
 * Two requests with one key may both have made a claim.  A list behind the
 * create shows the one that is older: that one counts.  What is younger finds
 * this one.
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


static void
ngx_http_zk_lock_claim_single_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_uint_t                 i;
    zk_lock_child_t            child;
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    if (op->rc != NGX_HTTP_ZK_LOCK_OK
        || claim->state != NGX_HTTP_ZK_LOCK_WAIT)
    {
        /* the sweep, or the list of the next connection, tries again */
        return;
    }

    for (i = 0; i < op->nchildren; i++) {

        if (zk_lock_child_read(&child, (char *) op->children[i].data,
                               op->children[i].len)
            == 0
            && child.has_id
            && child.seq < claim->entry.seq
            && ngx_memcmp(child.id.random, claim->id.random,
                          NGX_HTTP_ZK_LOCK_KEY)
               == 0)
        {
            claim->twin = child;
            claim->alone = 0;

            ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_TWIN);
            return;
        }
    }

    claim->single = 1;

    ngx_http_zk_lock_lock_advance(claim->lock);
}


ngx_int_t
ngx_http_zk_lock_claim_conflict(ngx_http_zk_lock_claim_t *claim)
{
    /* the key's own claim may be the one that it is in conflict with */

    if (claim->state != NGX_HTTP_ZK_LOCK_WAIT
        || (claim->keyed && !claim->single))
    {
        return NGX_AGAIN;
    }

    ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_CONFLICT);

    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_claim_grant(ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_t                  lease;
    ngx_http_zk_lock_worker_t  *worker;

    worker = claim->lock->worker;

    if (claim->state != NGX_HTTP_ZK_LOCK_WAIT
        || (claim->keyed && !claim->single)
        || !ngx_http_zk_lock_session_alive(worker->session))
    {
        return NGX_AGAIN;
    }

    zk_lock_view_grant(&claim->lock->view, &claim->entry);

    lease = claim->alone ? claim->grace : claim->ttl;

    if (claim->bound && !claim->leased) {
        lease = NGX_HTTP_ZK_LOCK_NO_LEASE;
    }

    claim->granted = ngx_http_zk_lock_now();
    claim->lease = claim->granted + lease;

    ngx_http_zk_lock_record_grant(worker->zone, claim->id.record, claim->ttl,
                                  claim->lease, claim->alone);

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_HELD);

    /* a held claim keeps no worker that wants to leave; a stream does */

    claim->timer.cancelable = (claim->event == NULL);

    ngx_http_zk_lock_claim_lease(claim);

    if (claim->lock->node) {

        /* watched from now on: its name may be another claim's later */

        ngx_http_zk_lock_claim_sweep(claim);
    }

    /* who waits may release it at once */

    if (claim->state == NGX_HTTP_ZK_LOCK_HELD) {
        ngx_http_zk_lock_claim_answer(claim, NGX_HTTP_ZK_LOCK_GRANTED);
    }

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

    if (claim->alone && claim->state == NGX_HTTP_ZK_LOCK_WAIT
        && !(claim->limited
             && (ngx_msec_int_t) (claim->deadline - ngx_current_msec) <= 0))
    {
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

    if (claim->state == NGX_HTTP_ZK_LOCK_START && claim->lock->node) {
        ngx_http_zk_lock_node_settle(claim->lock);
        return;
    }

    if (claim->state != NGX_HTTP_ZK_LOCK_WAIT
        || (!claim->expired && !claim->counting
            && ((!claim->async && claim->event == NULL) || claim->told)))
    {
        return;
    }

    lock = claim->lock;

    if (claim->expired
        && !ngx_http_zk_lock_session_connected(lock->worker->session))
    {
        if (!ngx_http_zk_lock_session_reachable(lock->worker->session)) {

            /* nothing would keep a worker that leaves until that is told */

            ngx_http_zk_lock_claim_unreachable(claim);
            return;
        }

        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_TAKEN);
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
            ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_FULL);
            return;
        }
    }

    if (!claim->expired) {
        ngx_http_zk_lock_claim_wait(claim);

    } else if (claim->keyed && claim->handler != NULL) {
        ngx_http_zk_lock_claim_part(claim);

    } else {
        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_TAKEN);
    }
}


/* There is to be waited, and who wants to hear of that is told. */

static void
ngx_http_zk_lock_claim_wait(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_lock_t  *lock;

    if (claim->told) {
        return;
    }

    lock = claim->lock;

    if (claim->entry.seq > lock->view.complete_through) {

        /* not all who are ahead are known */

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


ngx_http_zk_lock_op_t *
ngx_http_zk_lock_claim_op(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_op_e type, ngx_str_t *value,
    ngx_http_zk_lock_op_pt handler)
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
                                 type == NGX_HTTP_ZK_LOCK_OP_LIST ? NULL
                                                                  : &name,
                                 value);
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

    if (claim->state == NGX_HTTP_ZK_LOCK_HELD || claim->alone) {
        ngx_http_zk_lock_claim_lease(claim);
    }
}


/*
 * From here on the claim is on its way out, and cannot be called back: those
 * behind it may be granted at once.  outcome is for who still waits, when the
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

        /* it ends when it is known which name it has */

        claim->ending = 1;
        return;
    }

    ngx_http_zk_lock_lock_pin(lock);

    /* before anybody else is granted */

    if (claim->state == NGX_HTTP_ZK_LOCK_HELD) {
        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_LOST,
                                    "released");
    }

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

    if (claim->lock->node && !claim->watched) {

        /* what is there may be somebody else's */

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
                                                    &claim->entry);

    } else if (claim->watched) {
        op->version = ngx_http_zk_lock_record_version(
                                                claim->lock->worker->zone,
                                                claim->id.record);
    }

    ngx_http_zk_lock_session_send(op);
}


/* The znode that has the claim's name was read, to be deleted. */

static void
ngx_http_zk_lock_claim_look_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_op_t     *delete;
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;

    if (op->rc == NGX_HTTP_ZK_LOCK_OK
        && ngx_http_zk_lock_node_is(&claim->id, op))
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

    if (op->rc == NGX_HTTP_ZK_LOCK_OK || op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {

        /* somebody else was first */

        if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE && !claim->doubtful) {
            claim->lapsed = 1;
        }

        ngx_http_zk_lock_claim_done(claim);
        return;
    }

    claim->doubtful |= (op->rc == NGX_HTTP_ZK_LOCK_UNKNOWN);
    claim->watched = 0;

    if (op->rc == NGX_HTTP_ZK_LOCK_CHANGED) {

        /* it is read, and deleted as it is by now */

        ngx_http_zk_lock_claim_delete(claim, 0);
        return;
    }

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

void
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

    if (claim->share != NULL) {
        ngx_http_zk_lock_share_free(claim->share);
        claim->share = NULL;
    }

    worker->claims[claim->id.record] = NULL;

    if (lock->node) {
        ngx_http_zk_lock_node_next(claim);
    }

    ngx_http_zk_lock_record_end(worker->zone, claim->id.record);

    if (claim->lapsed) {
        ngx_http_zk_lock_record_lose(worker->zone, claim->id.record);
    }

    ngx_http_zk_lock_record_free(worker->zone, claim->id.record);

    ngx_http_zk_lock_session_unreserve(worker->session,
                                lock->sn.str.len + 1 + ZK_LOCK_CLAIM_MAX);

    ngx_http_zk_lock_claim_answer(claim, claim->outcome);
    ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_LOST, "deleted");

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

        if (claim->lock->node && !claim->expired) {
            /* it is in the line, in this gateway */
            return;
        }

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

        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_LOST,
                                    "session");

        /* who releases it now is told that it was lost before */

        claim->lapsed = 1;

        ngx_http_zk_lock_claim_done(claim);
        break;
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

    if (claim->share != NULL) {
        ngx_http_zk_lock_share_free(claim->share);
    }

    ngx_free(claim);
}
