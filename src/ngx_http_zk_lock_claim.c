
/*
 * A claim's life: the acquire, the states, and how the waiter is told.
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
 *                                                       or LAPSE
 *   HELD     -            DONE        -         -       DELETE   (list) DONE
 *                                                       or LAPSE
 *   LAPSE    DONE         DONE        (list)    -       (later)  (list) DONE
 *   TAKE     HELD         DONE        TAKE      -       (later)  TAKE   TAKE
 *   DELETE   DONE         DONE        OWED      -       -        -      DONE
 *   OWED     -            -           -         -       -        DELETE DONE
 *
 * "(later)": a create that is under way cannot be called back, so the claim is
 * deleted when the znode is known to exist.  "(list)": the list of the lock's
 * children tells whether the claim's znode exists.
 *
 * A durable claim outlives its session.  From HELD or LAPSE the claim goes to
 * TAKE, until the next session counts the lease; a durable claim of a gateway
 * that is gone begins in TAKE.  From DELETE or OWED the claim goes to OWED with
 * the next session.
 *
 * A held claim whose lease is over ends only if no other gateway has renewed
 * the lease.  A waiting claim that a client may ask for at another gateway ends
 * only if no other gateway has told a client that the claim is held.  The
 * version of the znode's data shows both: so a claim in LAPSE still blocks the
 * claims behind, and goes back to HELD or WAIT if the data have changed.
 *
 * Everything here runs on the event loop.  `handler` tells the waiter, and is
 * NULL when the waiter was told or has left.  The claim outlives the waiter:
 * the claim is freed when the znode is known to be gone.  Only
 * ngx_http_zk_lock_claim_state() changes the state, and only
 * ngx_http_zk_lock_claim_done() frees a claim, except in a process that ends.
 */


#include "ngx_http_zk_lock_node.h"


static ngx_http_zk_lock_claim_t *ngx_http_zk_lock_claim_renumbered(
    ngx_http_zk_lock_worker_t *worker, const zk_lock_id_t *id,
    ngx_str_t *path);
static void ngx_http_zk_lock_claim_quit(ngx_http_zk_lock_claim_t *claim);


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

    if (ngx_http_zk_lock_worker_over(worker)) {
        *outcome = NGX_HTTP_ZK_LOCK_SHUT;
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

    /* the claims of this worker exceed the limit: ZooKeeper is not asked */

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
    claim->named = claim->id.record;
    claim->urgent = (acquire->durable && !acquire->bound);
    claim->entry.kind = acquire->kind;
    claim->entry.seq = -1;
    claim->handler = acquire->handler;
    claim->event = acquire->event;
    claim->data = acquire->data;
    claim->ttl = acquire->ttl;
    claim->said.ttl = (acquire->bound && !acquire->leased) ? 0 : acquire->ttl;
    claim->grace = acquire->grace;
    claim->limited = !acquire->forever;
    claim->keyed = (acquire->key != NULL);
    claim->async = acquire->async;
    claim->keen = (acquire->event != NULL || claim->keyed);
    claim->bound = acquire->bound;
    claim->leased = acquire->leased;
    claim->max_queue = acquire->max_queue;
    claim->started = ngx_current_msec;
    claim->deadline = ngx_current_msec + acquire->wait;
    claim->once = acquire->once;
    claim->patience = ngx_current_msec
                      + (acquire->once ? ngx_max(acquire->wait,
                                                 acquire->timeout)
                                       : acquire->wait + acquire->timeout);
    claim->state = NGX_HTTP_ZK_LOCK_DONE;
    claim->settled = 1;

    ngx_queue_init(&claim->mourners);
    ngx_http_zk_lock_lock_join(lock, claim);

    worker->nowed++;

    worker->claims[claim->id.record] = claim;

    if (claim->keyed) {

        /* further requests with this key move this deadline */

        claim->lease = ngx_http_zk_lock_now() + acquire->wait + claim->grace;

        ngx_http_zk_lock_record_keep(worker->zone, claim->id.record,
                                     claim->ttl, claim->lease);
    }

    if (claim->bound) {
        ngx_http_zk_lock_record_bind(worker->zone, claim->id.record,
                                     acquire->leader
                                     ? acquire->leader->id.record
                                     : NGX_HTTP_ZK_LOCK_NO_RECORD);
    }

    /* not cancelable: a worker that leaves serves all waiters to the end */

    ngx_http_zk_lock_worker_timer(worker, &claim->timer,
                                  ngx_http_zk_lock_claim_timer_handler);

    if (!acquire->forever && acquire->wait != 0) {
        ngx_add_timer(&claim->timer, acquire->wait);

    } else {
        claim->expired = !acquire->forever;
        ngx_add_timer(&claim->timer, acquire->once || acquire->forever
                                     ? acquire->timeout
                                     : NGX_HTTP_ZK_LOCK_PATIENCE);
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
    ngx_http_zk_lock_claim_quit(claim);
    claim->event = NULL;

    if (ngx_http_zk_lock_claim_known(claim)
        && claim->state != NGX_HTTP_ZK_LOCK_START)
    {
        /* the wait of the client does not count any more */

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
        /* CREATE, RECOVER: the claim ends when the znode is known to exist */
        break;
    }
}


/* Whether a client waits for the claim, or may still ask for the claim. */

ngx_uint_t
ngx_http_zk_lock_claim_wanted(ngx_http_zk_lock_claim_t *claim)
{
    return claim->handler != NULL || claim->alone;
}


/* Whether a client may ask for the claim, knowing the key or the token. */

ngx_uint_t
ngx_http_zk_lock_claim_known(ngx_http_zk_lock_claim_t *claim)
{
    return claim->grace != 0 && (claim->keyed || claim->told);
}


ngx_http_zk_lock_claim_t *
ngx_http_zk_lock_claim_find(ngx_http_zk_lock_worker_t *worker,
    const zk_lock_id_t *id, ngx_str_t *path)
{
    ngx_str_t                 *own;
    ngx_http_zk_lock_claim_t  *claim;

    claim = (id->record < worker->nclaims) ? worker->claims[id->record] : NULL;

    if (claim == NULL || claim->named != id->record
        || !zk_lock_secret_equal(claim->id.random, id->random,
                                 ZK_LOCK_RANDOM_LEN))
    {
        return ngx_http_zk_lock_claim_renumbered(worker, id, path);
    }

    own = &claim->lock->sn.str;

    if (own->len != path->len
        || ngx_memcmp(own->data, path->data, path->len) != 0)
    {
        return NULL;
    }

    return claim;
}


/*
 * A claim that was taken over from another gateway has another record than the
 * znode's name says, if that record was in use here.  The claim is held, and
 * held claims come first in lock->claims, so the search is short.
 */

static ngx_http_zk_lock_claim_t *
ngx_http_zk_lock_claim_renumbered(ngx_http_zk_lock_worker_t *worker,
    const zk_lock_id_t *id, ngx_str_t *path)
{
    ngx_queue_t               *q;
    ngx_http_zk_lock_lock_t   *lock;
    ngx_http_zk_lock_claim_t  *claim;

    lock = ngx_http_zk_lock_lock_find(worker, path);

    if (lock == NULL || lock->nrenumbered == 0) {
        return NULL;
    }

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        if (claim->named != claim->id.record
            && claim->named == id->record
            && zk_lock_secret_equal(claim->id.random, id->random,
                                    ZK_LOCK_RANDOM_LEN))
        {
            return claim;
        }
    }

    return NULL;
}


zk_lock_id_t
ngx_http_zk_lock_claim_id(ngx_http_zk_lock_claim_t *claim)
{
    zk_lock_id_t  id;

    id = claim->id;
    id.record = claim->named;

    return id;
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
ngx_http_zk_lock_claim_sighted(ngx_http_zk_lock_claim_t *claim,
    zk_lock_sighting_t *sighting)
{
    sighting->kind = claim->entry.kind;

    if (claim->state == NGX_HTTP_ZK_LOCK_DELETE
        || claim->state == NGX_HTTP_ZK_LOCK_OWED)
    {
        sighting->gone = 1;

    } else {
        sighting->entry = &claim->entry;
    }
}


void
ngx_http_zk_lock_claim_state(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_claim_state_e state)
{
    ngx_uint_t                  settled, pressing, fleeting;
    ngx_http_zk_lock_worker_t  *worker;

#if (NGX_DEBUG)
    static char  *names[] = {
        "start", "create", "recover", "wait", "held", "lapse", "take",
        "delete", "owed", "done"
    };
#endif

    worker = claim->lock->worker;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, worker->log, 0,
                   "zk lock claim %uD of \"%V\": %s -> %s",
                   claim->id.record, &claim->lock->sn.str,
                   names[claim->state], names[state]);

    claim->state = state;

    if (state == NGX_HTTP_ZK_LOCK_WAIT || state == NGX_HTTP_ZK_LOCK_HELD) {
        ngx_http_zk_lock_lock_order(claim->lock, claim);
    }

    settled = state == NGX_HTTP_ZK_LOCK_WAIT
              || state == NGX_HTTP_ZK_LOCK_HELD
              || state == NGX_HTTP_ZK_LOCK_DONE;

    if (claim->settled && !settled) {
        ngx_queue_insert_tail(&worker->unsettled, &claim->unsettled);

    } else if (!claim->settled && settled) {
        ngx_queue_remove(&claim->unsettled);
    }

    claim->settled = settled;

    pressing = !settled && !claim->refused && state != NGX_HTTP_ZK_LOCK_TAKE;

    worker->npressing += pressing;
    worker->npressing -= claim->pressing;
    claim->pressing = pressing;

    fleeting = ngx_http_zk_lock_claim_ephemeral(claim);

    worker->nfleeting += fleeting;
    worker->nfleeting -= claim->fleeting;
    claim->fleeting = fleeting;

    ngx_http_zk_lock_worker_busy(worker);
}


/* Notes that no waiter is to be told any more. */

static void
ngx_http_zk_lock_claim_quit(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_worker_t  *worker;

    if (claim->handler == NULL) {
        return;
    }

    worker = claim->lock->worker;

    claim->handler = NULL;
    worker->nowed--;

    ngx_http_zk_lock_worker_busy(worker);
}


void
ngx_http_zk_lock_claim_answer(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome)
{
    ngx_http_zk_lock_claim_pt  handler;

    handler = claim->handler;

    if (handler != NULL) {
        ngx_http_zk_lock_claim_quit(claim);

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

    if (handler == NULL
        || (event == NGX_HTTP_ZK_LOCK_EVENT_LOST && claim->handler != NULL))
    {
        /* a waiter that was not answered yet gets the outcome instead */
        return;
    }

    if (event == NGX_HTTP_ZK_LOCK_EVENT_LOST) {
        claim->event = NULL;
        claim->timer.cancelable = 1;
    }

    handler(claim->data, claim, event, reason);
}


ngx_http_zk_lock_op_t *
ngx_http_zk_lock_claim_op(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_op_e type, ngx_str_t *value,
    ngx_http_zk_lock_op_pt handler)
{
    u_char                    buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t                 name;
    zk_lock_id_t              id;
    ngx_http_zk_lock_op_t    *op;
    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;
    id = ngx_http_zk_lock_claim_id(claim);

    name.data = buf;
    name.len = zk_lock_claim_write((char *) buf, &id, claim->entry.kind,
                                   claim->entry.seq);

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
