
/*
 * A claim's life: the acquire, the grant, the lease, the end, the recovery.
 * The states, and what leads from one to the next, are in claim.h.
 *
 * The claim outlives the waiter: the claim is freed when the znode is known to
 * be gone, or another session counts the lease.  Only zkl_claim_state() changes
 * the state; zkl_claim_done() ends a claim, or zkl_claim_forget() for a claim
 * whose znode stays, except in a process that ends.  Most functions may end the
 * claim, which stays in memory until the end of the turn of the event loop.
 *
 * A held claim whose lease is over ends only if no other gateway has renewed
 * the lease, and a waiting claim that a client may call for at another gateway
 * only if no client has.  The version of the znode's data shows both: so a
 * claim in EXPIRING still blocks the claims behind, and goes back to HELD or
 * WAIT if the data have changed.
 *
 * One rule holds for an operation that could not be sent, for lack of memory,
 * room or a connection, and for an operation without an answer: the claim stays
 * in its state, but for a create, and zkl_claim_proceed() tries again, at each
 * sweep and when ZooKeeper answers again.
 *
 * All of the code runs on the event loop.  `handler` tells the waiter, and is
 * NULL when the waiter was told or has left.  `op` is NULL unless an operation
 * of the claim is under way.  `replace` is NULL unless the claim is about to
 * become a reader or durable; the znode's name is not known until that is done.
 */


#include "core/claim.h"
#include "core/node.h"
#include "core/adopt.h"
#include "core/custody.h"
#include "core/replace.h"
#include "core/journal.h"
#include "shm/quota.h"
#include "shm/seq_index.h"


/* after how long a held claim is made durable, and watched, in ms */
#define ZKL_LONG_HOLD                 2000

/* how soon a lease that cannot be judged now is looked at again, in ms */
#define ZKL_LEASE_AGAIN               100

/* the longest timer, in ms */
#define ZKL_TIMER_MAX                 86400000

/* how often the claim is created again after the lock's znode was made */
#define ZKL_TRIES                   5


static ngx_uint_t zkl_claim_wanted(zkl_claim_t *claim);
static ngx_uint_t zkl_claim_known(zkl_claim_t *claim);
static zkl_claim_t *zkl_claim_new(zkl_lock_t *lock, zkl_acquire_t *acquire,
    zkl_outcome_e *outcome);
static void zkl_claim_fill(zkl_claim_t *claim, zkl_acquire_t *acquire);
static void zkl_claim_note(zkl_claim_t *claim);
static ngx_uint_t zkl_claim_stable(zkl_claim_t *claim);
static ngx_uint_t zkl_claim_blocks_exit(zkl_claim_t *claim);
static void zkl_claim_uncount(zkl_claim_t *claim);
static void zkl_claim_count(zkl_claim_t *claim);
static void zkl_claim_quit(zkl_claim_t *claim);
static void zkl_claim_answer(zkl_claim_t *claim, zkl_outcome_e outcome);
static void zkl_claim_waited(zkl_claim_t *claim, zkl_times_e how);
static zkl_op_t *zkl_claim_op(zkl_claim_t *claim, zkl_op_e type,
    ngx_str_t *value);
static void zkl_claim_send(zkl_claim_t *claim, zkl_op_t *op,
    zkl_op_pt handler);
static void zkl_claim_forget_op(zkl_claim_t *claim);
static void zkl_claim_create_handler(zkl_op_t *op);
static void zkl_claim_created(zkl_claim_t *claim, zkl_op_t *op);
static void zkl_claim_queued(zkl_claim_t *claim);
static ngx_uint_t zkl_claim_maybe_full(zkl_claim_t *claim);
static void zkl_claim_single(zkl_claim_t *claim);
static void zkl_claim_single_handler(zkl_op_t *op);
static void zkl_claim_show(zkl_claim_t *claim);
static void zkl_claim_timer_handler(ngx_event_t *ev);
static void zkl_claim_wait(zkl_claim_t *claim);
static void zkl_claim_detach(zkl_claim_t *claim);
static void zkl_claim_give_up(zkl_claim_t *claim, zkl_outcome_e outcome);
static void zkl_claim_leave(zkl_claim_t *claim, zkl_outcome_e outcome);
static void zkl_claim_lease(zkl_claim_t *claim);
static void zkl_claim_arm(zkl_claim_t *claim, ngx_msec_t now);
static ngx_msec_int_t zkl_claim_time_left(zkl_claim_t *claim);
static ngx_uint_t zkl_claim_timed(zkl_claim_t *claim);
static ngx_uint_t zkl_claim_limited(zkl_claim_t *claim);
static void zkl_claim_expire(zkl_claim_t *claim);
static void zkl_claim_note_expired(zkl_claim_t *claim);
static void zkl_claim_vanished(zkl_claim_t *claim);
static void zkl_claim_proceed_held(zkl_claim_t *claim);
static ngx_uint_t zkl_claim_lasts(zkl_claim_t *claim);
static void zkl_claim_moved(zkl_claim_t *claim);
static ngx_uint_t zkl_claim_ephemeral(zkl_claim_t *claim);
static ngx_int_t zkl_claim_replace(zkl_claim_t *claim, zkl_replace_pt handler);
static void zkl_claim_next_durable(zkl_claim_t *claim, ngx_int_t rc);
static void zkl_claim_made_durable(zkl_claim_t *claim, ngx_int_t rc);
static void zkl_claim_replaced(zkl_claim_t *claim, ngx_int_t rc);
static void zkl_claim_set_lasting(zkl_claim_t *claim, zkl_lasting_e lasting);
static void zkl_claim_persists(zkl_claim_t *claim);
static void zkl_claim_watch(zkl_claim_t *claim);
static ngx_uint_t zkl_claim_may_watch(zkl_claim_t *claim);
static void zkl_claim_tell_durable(zkl_claim_t *claim);
static void zkl_claim_yield(zkl_claim_t *claim);
static void zkl_claim_take(zkl_claim_t *claim);
static void zkl_claim_take_handler(zkl_op_t *op);
static void zkl_claim_take_read(zkl_claim_t *claim, zkl_op_t *op);
static void zkl_claim_secure(zkl_claim_t *claim, zkl_claim_data_t *cdata,
    int32_t version);
static void zkl_claim_secured(zkl_claim_t *claim, ngx_int_t rc);
static void zkl_claim_settled(zkl_claim_t *claim);
static ngx_int_t zkl_claim_renamed(zkl_claim_t *claim);
static void zkl_claim_took(zkl_claim_t *claim, zkl_claim_data_t *cdata,
    int32_t version);
static zkl_claim_t *zkl_claim_enter(zkl_worker_t *worker, ngx_str_t *path,
    zkl_child_t *child, ngx_str_t *cdata, zkl_record_t *from, ngx_int_t *rc);
static void zkl_claim_write(zkl_claim_t *claim, zkl_listener_t *listener);
static void zkl_claim_write_asked(zkl_claim_t *claim);
static void zkl_claim_write_done(zkl_claim_t *claim);
static void zkl_claim_unwritten(zkl_claim_t *claim, zkl_rc_e rc);
static void zkl_claim_reread(zkl_claim_t *claim, ngx_uint_t watch);
static void zkl_claim_reread_handler(zkl_op_t *op);
static ngx_int_t zkl_claim_reread_lease(zkl_claim_t *claim,
    zkl_claim_data_t *cdata, int32_t version);
static void zkl_claim_renewed(zkl_claim_t *claim);
static ngx_uint_t zkl_claim_remote(zkl_claim_t *claim,
    zkl_claim_data_t *cdata);
static void zkl_claim_rewrite(zkl_claim_t *claim, zkl_claim_data_t *cdata);
static void zkl_claim_rewrite_handler(zkl_op_t *op);
static void zkl_claim_end(zkl_claim_t *claim, zkl_outcome_e outcome);
static void zkl_claim_withdraw(zkl_claim_t *claim, zkl_outcome_e outcome);
static void zkl_claim_delete(zkl_claim_t *claim, ngx_uint_t gather);
static void zkl_claim_send_delete(zkl_claim_t *claim, ngx_uint_t gather);
static void zkl_claim_delete_handler(zkl_op_t *op);
static void zkl_claim_tell_listeners(ngx_queue_t *listeners, zkl_rc_e rc);
static void zkl_claim_tell_listener(ngx_queue_t *listeners, zkl_rc_e rc);
static void zkl_claim_stop(zkl_claim_t *claim);
static void zkl_claim_stop_ops(zkl_claim_t *claim);
static void zkl_claim_missing(zkl_claim_t *claim);
static void zkl_claim_recover(zkl_claim_t *claim);
static void zkl_claim_found_handler(zkl_op_t *op);
static void zkl_claim_removed(zkl_claim_t *claim);
static void zkl_claim_requeue(zkl_claim_t *claim);


zkl_claim_t *
zkl_claim_acquire(zkl_worker_t *worker, zkl_acquire_t *acquire,
    zkl_outcome_e *outcome)
{
    zkl_lock_t   *lock;
    zkl_claim_t  *claim;

    *outcome = ZKL_FAILED;

    if (zkl_worker_over(worker)) {
        *outcome = ZKL_SHUTTING_DOWN;
        return NULL;
    }

    if (worker->zone->map->drained != 0 && !acquire->begun) {
        *outcome = ZKL_DRAINED;
        return NULL;
    }

    lock = zkl_lock_get(worker, &acquire->path);
    if (lock == NULL) {
        return NULL;
    }

    claim = zkl_claim_new(lock, acquire, outcome);

    if (claim == NULL) {
        zkl_lock_post(lock);
        return NULL;
    }

    zkl_lock_join(lock, claim);

    worker->nuntold++;

    /* not cancelable: a worker that leaves serves all waiters to the end */

    zkl_worker_timer(worker, &claim->timer, zkl_claim_timer_handler);

    if (acquire->terms.forever) {
        ngx_add_timer(&claim->timer, acquire->timeout);

    } else if (acquire->wait != 0) {
        ngx_add_timer(&claim->timer, acquire->wait);

    } else {
        claim->time = ZKL_TIME_OVER;
        ngx_add_timer(&claim->timer, acquire->terms.once ? acquire->timeout
                                                         : ZKL_PATIENCE);
    }

    zkl_claim_state(claim, ZKL_START);
    zkl_claim_start(claim);

    return claim;
}


/* Makes a claim with a record, and with room in the session; or NULL. */

static zkl_claim_t *
zkl_claim_new(zkl_lock_t *lock, zkl_acquire_t *acquire, zkl_outcome_e *outcome)
{
    char           cdata[ZKL_CLAIM_DATA_MAX];
    size_t         len, room, index_at;
    ngx_int_t      rc;
    zkl_claim_t   *claim;
    zkl_worker_t  *worker;

    worker = lock->worker;

    if (zkl_lock_layout(lock, acquire->mode == ZKL_NODE) != NGX_OK) {
        *outcome = ZKL_LAYOUT;
        return NULL;
    }

    /* this worker's claims alone exceed the limit */

    if (acquire->key == NULL && lock->nclaims > acquire->terms.max_queue) {
        *outcome = ZKL_FULL;
        return NULL;
    }

    len = zkl_claim_data_write(cdata, acquire->cdata, &index_at);

    claim = ngx_calloc(sizeof(zkl_claim_t) + len, worker->log);
    if (claim == NULL) {
        return NULL;
    }

    ngx_memcpy(claim->cdata, cdata, len);
    claim->cdata_len = (uint16_t) len;
    claim->index_at = (uint16_t) index_at;

    room = acquire->path.len + 1 + ZKL_CLAIM_MAX;

    if (zkl_session_reserve(worker->session, room) != NGX_OK) {
        *outcome = ZKL_NO_ROOM;
        goto failed;
    }

    rc = zkl_record_take(worker->zone, &acquire->path, acquire->mode,
                         acquire->key, &claim->id);
    if (rc != NGX_OK) {
        *outcome = (rc == NGX_BUSY) ? ZKL_NO_ROOM : ZKL_FAILED;
        goto unreserve;
    }

    claim->cell = zkl_layout_cell(worker->zone->map, claim->id.record);

    if (acquire->terms.quota != 0
        && zkl_quota_take(worker->zone->map, claim->cell,
                          acquire->terms.quota, acquire->terms.max_claims)
           != NGX_OK)
    {
        *outcome = ZKL_QUOTA;
        zkl_record_free(worker->zone, claim->id.record);
        goto unreserve;
    }

    claim->lock = lock;

    zkl_claim_fill(claim, acquire);

    return claim;

unreserve:

    zkl_session_unreserve(worker->session, room);

failed:

    ngx_free(claim);

    return NULL;
}


static void
zkl_claim_fill(zkl_claim_t *claim, zkl_acquire_t *acquire)
{
    claim->terms = acquire->terms;
    claim->terms.keyed = (acquire->key != NULL);
    claim->entry.mode = acquire->mode;
    claim->handler = acquire->handler;
    claim->event = acquire->event;
    claim->data = acquire->data;
    claim->ttl = acquire->ttl;
    claim->said.ttl = (claim->terms.bound && !claim->terms.leased)
                      ? 0 : claim->ttl;
    claim->time = claim->terms.forever ? ZKL_TIME_ENDLESS : ZKL_TIME_LIMITED;
    claim->started = ngx_current_msec;
    claim->deadline = ngx_current_msec + acquire->wait;
    claim->patience = ngx_current_msec
                      + (claim->terms.once
                         ? ngx_max(acquire->wait, acquire->timeout)
                         : acquire->timeout + (claim->terms.forever
                                               ? 0 : acquire->wait));
    claim->state = ZKL_DONE;

    if (acquire->request.len != 0) {
        claim->request_len = ngx_min(acquire->request.len, ZKL_REQUEST_MAX);
        ngx_memcpy(claim->request, acquire->request.data, claim->request_len);
    }

    ngx_queue_init(&claim->listeners);
    ngx_queue_init(&claim->written);
    ngx_queue_init(&claim->asked);

    claim->lease = zkl_now() + acquire->wait + claim->terms.grace;

    zkl_claim_note(claim);
}


/*
 * The claim has a new record, and no znode yet.  Writes to the record what a
 * successor has to know before the claim is held.
 */

static void
zkl_claim_note(zkl_claim_t *claim)
{
    if (claim->terms.keyed) {

        /* further requests with this key move this deadline */

        zkl_record_keep(claim->cell, claim->ttl, claim->lease);
    }

    zkl_record_bind(claim->cell, claim->terms.bound);

    claim->named = claim->id.record;
    claim->entry.seq = -1;
    claim->copied = -1;
    claim->single = !claim->terms.keyed;

    claim->lock->worker->claims[claim->id.record] = claim;
}


void
zkl_claim_abandon(zkl_claim_t *claim)
{
    ngx_uint_t  expired;

    expired = zkl_claim_expired(claim);

    zkl_claim_quit(claim);

    claim->event = NULL;
    claim->timer.cancelable = 1;

    zkl_claim_leave(claim, ZKL_CANCELLED);

    /* a wait that was over stays over, until another client calls */

    if (expired && claim->time == ZKL_TIME_ENDLESS) {
        claim->time = ZKL_TIME_ABANDONED;
    }
}


/* Whether a client waits for the claim, or may call for the claim later. */

static ngx_uint_t
zkl_claim_wanted(zkl_claim_t *claim)
{
    return claim->handler != NULL || claim->detached;
}


/* Whether other clients may call for the claim, with the key or the token. */

static ngx_uint_t
zkl_claim_known(zkl_claim_t *claim)
{
    return claim->terms.grace != 0
           && (claim->terms.keyed || (claim->told & ZKL_TOLD_WAITS));
}


zkl_claim_t *
zkl_claim_find(zkl_worker_t *worker, const zkl_id_t *id, ngx_str_t *path)
{
    ngx_str_t        random;
    zkl_claim_t     *claim;
    ngx_str_node_t  *sn;

    claim = (id->record < worker->nclaims) ? worker->claims[id->record] : NULL;

    if (claim == NULL
        || !zkl_name_secret_equal(claim->id.random, id->random,
                                  ZKL_RANDOM_LEN))
    {
        /* the claim was taken over, or is not this worker's */

        random.data = (u_char *) id->random;
        random.len = ZKL_RANDOM_LEN;

        sn = ngx_str_rbtree_lookup(&worker->renumbered, &random,
                                   ngx_crc32_short(random.data, random.len));

        claim = sn ? ngx_queue_data(sn, zkl_claim_t, sn) : NULL;
    }

    if (claim == NULL || claim->named != id->record
        || (path != NULL
            && (claim->lock->sn.str.len != path->len
                || ngx_memcmp(claim->lock->sn.str.data, path->data, path->len)
                   != 0)))
    {
        return NULL;
    }

    return claim;
}


zkl_id_t
zkl_claim_id(zkl_claim_t *claim)
{
    zkl_id_t  id;

    id = claim->id;
    id.record = claim->named;

    return id;
}


ngx_str_t
zkl_claim_name(zkl_claim_t *claim, zkl_mode_t mode, u_char *buf)
{
    zkl_id_t   id;
    ngx_str_t  name;

    id = zkl_claim_id(claim);

    name.data = buf;
    name.len = zkl_name_claim_write((char *) buf, &id, mode, claim->entry.seq);

    return name;
}


int64_t
zkl_fencing_token(int64_t czxid, ngx_uint_t index)
{
    return czxid * 256 + (int64_t) index;
}


zkl_claim_t *
zkl_claim_of(zkl_entry_t *entry)
{
    return (zkl_claim_t *) entry;
}


void
zkl_claim_observed(zkl_claim_t *claim, zkl_observed_t *observed)
{
    if (claim->entry.seq == -1 ? observed->seq <= claim->copied
                               : observed->seq != claim->entry.seq)
    {
        /* a copy of the claim, which another client has made by name */
        return;
    }

    observed->mode = claim->entry.mode;

    if (claim->state == ZKL_DELETE) {
        observed->gone = 1;

    } else {
        observed->entry = &claim->entry;
    }
}


void
zkl_claim_state(zkl_claim_t *claim, zkl_claim_state_e state)
{
    ngx_uint_t     stable;
    zkl_worker_t  *worker;

#if (NGX_DEBUG)
    static char  *names[] = {
        "start", "create", "recover", "wait", "held", "expiring",
        "take", "delete", "done"
    };
#endif

    worker = claim->lock->worker;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, worker->log, 0,
                   "zk lock claim %uD of \"%V\": %s -> %s", claim->id.record,
                   &claim->lock->sn.str, names[claim->state], names[state]);

    stable = zkl_claim_stable(claim);

    zkl_claim_uncount(claim);
    claim->state = state;
    zkl_claim_count(claim);

    if (state == ZKL_HELD && !claim->lock->node) {
        ngx_queue_remove(&claim->queue);
        ngx_queue_insert_head(&claim->lock->claims, &claim->queue);
    }

    if (stable && !zkl_claim_stable(claim)) {
        ngx_queue_insert_tail(&worker->transient, &claim->transient);

    } else if (!stable && zkl_claim_stable(claim)) {
        ngx_queue_remove(&claim->transient);
    }
}


/* Whether the claim may stay in its state for long; else it is transient. */

static ngx_uint_t
zkl_claim_stable(zkl_claim_t *claim)
{
    return claim->state == ZKL_WAIT || claim->state == ZKL_HELD
           || claim->state == ZKL_DONE;
}


/* Whether a worker that leaves waits until the claim is stable. */

static ngx_uint_t
zkl_claim_blocks_exit(zkl_claim_t *claim)
{
    return !zkl_claim_stable(claim) && !claim->refused
           && claim->state != ZKL_TAKE;
}


/*
 * The worker counts the claims that are pressing, and the claims that are still
 * to become durable.  So a claim is taken out of both counts before its state,
 * refused, lasting or bound changes, and is counted again after the change.
 */

static void
zkl_claim_uncount(zkl_claim_t *claim)
{
    claim->lock->worker->nblocking -= zkl_claim_blocks_exit(claim);
    claim->lock->worker->nfleeting -= zkl_claim_ephemeral(claim);
}


static void
zkl_claim_count(zkl_claim_t *claim)
{
    claim->lock->worker->nblocking += zkl_claim_blocks_exit(claim);
    claim->lock->worker->nfleeting += zkl_claim_ephemeral(claim);

    zkl_worker_busy(claim->lock->worker);
}


/* Notes that no waiter is to be told any more. */

static void
zkl_claim_quit(zkl_claim_t *claim)
{
    if (claim->handler != NULL) {
        claim->handler = NULL;
        claim->lock->worker->nuntold--;

        zkl_worker_busy(claim->lock->worker);
    }
}


/* Tells the waiting client the outcome. */

static void
zkl_claim_answer(zkl_claim_t *claim, zkl_outcome_e outcome)
{
    zkl_claim_pt  handler;

    handler = claim->handler;

    if (handler != NULL) {
        zkl_claim_quit(claim);

        if (outcome == ZKL_TIMED_OUT) {
            zkl_claim_waited(claim, ZKL_TIMES_TAKEN);
        }

        if (outcome != ZKL_GRANTED) {
            claim->event = NULL;
        }

        claim->timer.cancelable = (claim->event == NULL && !claim->detached);

        handler(claim->data, claim, outcome);
    }
}


/* Counts the wait, which ends now. */

static void
zkl_claim_waited(zkl_claim_t *claim, zkl_times_e how)
{
    zkl_counters_time(claim->lock->worker->zone->map->counters, how,
                      (ngx_msec_int_t) (zkl_now() - claim->started));
}


void
zkl_claim_tell(zkl_claim_t *claim, zkl_event_e event, const char *reason)
{
    zkl_event_pt  handler;

    handler = claim->event;

    if (handler == NULL || (event == ZKL_EVENT_LOST && claim->handler != NULL))
    {
        /* a waiter that was not answered yet gets the outcome instead */
        return;
    }

    if (event == ZKL_EVENT_LOST) {
        claim->event = NULL;
        claim->timer.cancelable = 1;
    }

    handler(claim->data, claim, event, reason);
}


static zkl_op_t *
zkl_claim_op(zkl_claim_t *claim, zkl_op_e type, ngx_str_t *value)
{
    u_char       buf[ZKL_CLAIM_MAX];
    ngx_str_t    name;
    zkl_lock_t  *lock;

    lock = claim->lock;
    name = zkl_claim_name(claim, claim->cell->was, buf);

    return zkl_op_new(lock->worker->session, type, &lock->sn.str,
                      type == ZKL_OP_LIST ? NULL : &name, value);
}


/* Sends an operation; a claim has one at a time. */

static void
zkl_claim_send(zkl_claim_t *claim, zkl_op_t *op, zkl_op_pt handler)
{
    zkl_claim_forget_op(claim);
    claim->op = op;

    zkl_session_send(op, handler, claim);
}


/* The handler of the operation that is under way is not called any more. */

static void
zkl_claim_forget_op(zkl_claim_t *claim)
{
    if (claim->op != NULL) {
        claim->op->handler = NULL;
        claim->op = NULL;
    }
}


/*
 * The way to the grant: the worker creates the znode, puts the claim into the
 * view, makes sure that no older claim has the same key, and grants the claim
 * when the view says so; or the wait ends before.
 */


void
zkl_claim_start(zkl_claim_t *claim)
{
    if (claim->state != ZKL_START
        || claim->lock->making != 0
        || !zkl_session_ready(claim->lock->worker->session))
    {
        /* a client that leaves meanwhile leaves no znode in ZooKeeper */
        return;
    }

    if (claim->lock->node) {
        zkl_lock_post(claim->lock);
        return;
    }

    zkl_claim_create(claim);
}


void
zkl_claim_create(zkl_claim_t *claim)
{
    u_char         prefix[ZKL_PREFIX_MAX];
    ngx_str_t      name, cdata;
    zkl_op_t      *op;
    zkl_worker_t  *worker;

    worker = claim->lock->worker;

    name.data = prefix;
    name.len = zkl_name_prefix_write((char *) prefix, &claim->id,
                                     claim->entry.mode);
    cdata.data = claim->cdata;
    cdata.len = claim->cdata_len;

    if (claim->lock->node) {
        zkl_claim_data_id((char *) claim->cdata + claim->index_at
                          + ZKL_CLAIM_DATA_ID_AT, &claim->id);
    }

    op = zkl_op_new(worker->session, claim->lock->node
                    ? ZKL_OP_GATE
                    : ZKL_OP_CREATE, &claim->lock->sn.str, &name, &cdata);
    if (op == NULL) {
        return;
    }

    op->index_at = claim->index_at;
    op->gather = claim->lock->known && !claim->lock->node;

    /* the claim's turn is far off, and no client needs an early answer */

    op->deferrable = zkl_lock_queue_long(claim->lock, claim->entry.mode, NULL)
                  && !zkl_claim_expired(claim) && claim->event == NULL
                  && !claim->terms.async && !claim->terms.keyed;

    zkl_claim_state(claim, ZKL_CREATE);

    /* a list for a duplicate may be under way, of a znode that is gone */

    zkl_claim_send(claim, op, zkl_claim_create_handler);
}


static void
zkl_claim_create_handler(zkl_op_t *op)
{
    zkl_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    switch (op->rc) {

    case ZKL_OK:
        zkl_claim_created(claim, op);
        break;

    case ZKL_NO_NODE:
        zkl_claim_missing(claim);
        break;

    case ZKL_UNKNOWN:
        zkl_claim_recover(claim);
        break;

    case ZKL_UNSENT:
        zkl_claim_state(claim, ZKL_START);

        if (!zkl_claim_wanted(claim)) {
            zkl_claim_done(claim);
        }

        break;

    case ZKL_EXISTS:

        if (claim->lock->node) {
            zkl_node_exists(claim);
            break;
        }

        zkl_claim_refuse(claim, ZKL_SEQ_EXHAUSTED);
        break;

    case ZKL_CHILDLESS:
        zkl_claim_refuse(claim, ZKL_LAYOUT);
        break;

    case ZKL_NO_AUTH:
        zkl_claim_refuse(claim, ZKL_DENIED);
        break;

    case ZKL_OVER_QUOTA:
        zkl_claim_refuse(claim, ZKL_NO_ROOM);
        break;

    default:
        zkl_claim_refuse(claim, ZKL_FAILED);
        break;
    }
}


static void
zkl_claim_created(zkl_claim_t *claim, zkl_op_t *op)
{
    zkl_child_t  child;

    if (claim->lock->node) {
        child.seq = 0;
        claim->lock->waits = 0;

    } else if (zkl_name_child_read(&child, (char *) op->reply.data,
                                   op->reply.len)
               != 0)
    {
        ngx_log_error(NGX_LOG_ERR, claim->lock->worker->log, 0,
                      "zookeeper made a claim of \"%V\" with a strange "
                      "name of %uz bytes", &claim->lock->sn.str,
                      op->reply.len);

        zkl_claim_recover(claim);
        return;
    }

    claim->entry.seq = child.seq;
    claim->czxid = op->czxid;
    claim->index = op->index;

    zkl_lock_created(claim->lock, &claim->entry, claim->czxid);
    zkl_claim_queued(claim);
}


/*
 * The claim is in the view, and the czxid is known: asks ZooKeeper for what the
 * grant depends on, or ends the claim.
 */

static void
zkl_claim_queued(zkl_claim_t *claim)
{
    zkl_lock_t  *lock;

    lock = claim->lock;

    zkl_record_publish(claim->cell, claim->entry.seq, claim->czxid,
                       claim->index);

    if (!lock->node) {
        zkl_seq_index_put(lock->worker->zone, &lock->sn.str, claim->entry.seq,
                          claim->id.record);
    }

    zkl_claim_state(claim, ZKL_WAIT);

    if (claim->entry.seq == ZKL_SEQ_MAX) {

        /* ZooKeeper gives all further claims the same number */

        zkl_claim_end(claim, ZKL_SEQ_EXHAUSTED);
        return;
    }

    if (!zkl_claim_wanted(claim)) {

        /* a repeated request may have found the claim at another gateway */

        zkl_claim_withdraw(claim, ZKL_CANCELLED);
        return;
    }

    if (zkl_claim_conflict(claim) == NGX_OK) {
        return;
    }

    zkl_claim_single(claim);

    if (!claim->terms.keyed) {
        zkl_lock_look_first(lock, &claim->entry);
    }

    if (zkl_claim_maybe_full(claim)) {
        zkl_lock_list(lock);
        lock->resolve = 1;
    }

    if (zkl_claim_expired(claim) || claim->terms.async || claim->event != NULL)
    {
        lock->resolve = 1;
    }

    zkl_lock_post(lock);
}


/*
 * Whether more claims may be ahead than max_queue, and the claim was not told
 * that it waits.  At most so many are ahead: the known claims, and a claim for
 * each number that ZooKeeper gave and that the view does not know.
 */

static ngx_uint_t
zkl_claim_maybe_full(zkl_claim_t *claim)
{
    int64_t      ahead;
    zkl_view_t  *view;

    view = &claim->lock->view;

    ahead = claim->entry.seq - view->complete_through;
    ahead = ngx_max(ahead, 0) + (int64_t) view->nalive - 1;

    return ahead > (int64_t) claim->terms.max_queue
           && !(claim->told & ZKL_TOLD_WAITS);
}


/*
 * Looks whether a claim with a key has a duplicate, unless this is known.
 *
 * Several requests with the same key may each have made a claim.  A list that
 * is sent behind the create shows the older claims: only the oldest counts,
 * because each claim between finds the oldest, too, and is withdrawn.
 */

static void
zkl_claim_single(zkl_claim_t *claim)
{
    zkl_op_t  *op;

    if (claim->single || claim->op != NULL) {
        return;
    }

    op = zkl_claim_op(claim, ZKL_OP_LIST, NULL);
    if (op != NULL) {
        op->turn = ZKL_TURN_CLAIM;
        zkl_claim_send(claim, op, zkl_claim_single_handler);
    }
}


void
zkl_claim_unlisted(zkl_claim_t *claim)
{
    if (claim->state == ZKL_WAIT
        && claim->handler != NULL
        && !(claim->told & ZKL_TOLD_WAITS))
    {
        zkl_claim_withdraw(claim, ZKL_DENIED);
    }
}


static void
zkl_claim_single_handler(zkl_op_t *op)
{
    int64_t       seq;
    ngx_uint_t    i;
    zkl_child_t   child;
    zkl_claim_t  *claim;
    u_char        key[ZKL_PREFIX_MAX];

    claim = op->data;
    claim->op = NULL;

    if (op->rc == ZKL_NO_AUTH) {
        zkl_claim_unlisted(claim);
        return;
    }

    if (op->rc != ZKL_OK || claim->state != ZKL_WAIT) {
        return;
    }

    seq = claim->entry.seq;

    /* few names are read, because many claims may share a long list */

    (void) zkl_name_prefix_write((char *) key, &claim->id, ZKL_MUTEX);

    for (i = 0; i < op->nchildren; i++) {

        if (op->children[i].len > ZKL_PREFIX_KEY
            && zkl_name_secret_equal(op->children[i].data, key,
                                     ZKL_PREFIX_KEY)
            && zkl_name_child_read(&child, (char *) op->children[i].data,
                                   op->children[i].len)
               == 0
            && child.has_id
            && child.seq < seq
            && zkl_name_secret_equal(child.id.random, claim->id.random,
                                     ZKL_KEY))
        {
            claim->duplicate = child;
            seq = child.seq;
        }
    }

    if (seq != claim->entry.seq) {

        /* a client may have joined this claim if the duplicate has ended */

        claim->detached = 0;
        zkl_claim_withdraw(claim, ZKL_DUPLICATE);
        return;
    }

    claim->single = 1;

    if (zkl_claim_conflict(claim) == NGX_OK) {
        return;
    }

    zkl_lock_look_first(claim->lock, &claim->entry);
    zkl_lock_post(claim->lock);
}


ngx_int_t
zkl_claim_conflict(zkl_claim_t *claim)
{
    zkl_entry_t  *first;

    /* a keyed claim may be in conflict with a duplicate */

    if (!zkl_lock_conflicts(claim->lock, &claim->entry)
        || claim->state != ZKL_WAIT || !claim->single)
    {
        return NGX_AGAIN;
    }

    first = zkl_view_first(&claim->lock->view);

    if (zkl_mode_base(claim->entry.mode) == ZKL_SEMAPHORE
        && zkl_mode_base(first->mode) == ZKL_SEMAPHORE)
    {
        /*
         * Clients come to a new number of permits one after the other.  The
         * claim waits as for a lock that is taken, and its turn comes, because
         * it blocks the later claims with the first claim's permits.
         */

        if (!zkl_claim_expired(claim)) {
            return NGX_AGAIN;
        }

        zkl_claim_give_up(claim, ZKL_CONFLICT);
        return NGX_OK;
    }

    zkl_claim_withdraw(claim, ZKL_CONFLICT);

    return NGX_OK;
}


ngx_int_t
zkl_claim_grant(zkl_claim_t *claim)
{
    ngx_msec_t     lease;
    ngx_uint_t     delivery;
    zkl_worker_t  *worker;

    worker = claim->lock->worker;

    if (claim->state != ZKL_WAIT || !claim->single
        || !zkl_session_alive(worker->session)
        || zkl_worker_over(worker))
    {
        return NGX_AGAIN;
    }

    zkl_view_grant(&claim->entry);

    delivery = ZKL_DELIVERED;
    lease = claim->ttl;

    if (claim->detached && claim->handler == NULL) {
        delivery = ZKL_UNDELIVERED;
        lease = claim->terms.grace;
    }

    if (claim->cell->bound && !claim->terms.leased) {
        lease = ZKL_NO_LEASE;
    }

    claim->said.holds = 1;
    claim->granted = zkl_now();
    claim->lease = claim->granted + lease;

    zkl_record_grant(claim->cell, claim->ttl, claim->lease, delivery);

    zkl_claim_state(claim, ZKL_HELD);

    zkl_claim_waited(claim, ZKL_TIMES_GRANTED);
    zkl_journal_claim(claim, ZKL_JOURNAL_GRANTED);

    /* a held claim keeps no worker that wants to leave; a stream does */

    claim->timer.cancelable = (claim->event == NULL);

    zkl_claim_lease(claim);

    if (claim->lock->node) {

        /* watched from now on: a later claim's znode has the same name */

        zkl_claim_watch(claim);
    }

    if (claim->terms.durable && !claim->terms.bound
        && claim->handler != NULL && claim->state == ZKL_HELD)
    {
        /* the waiter is told when the claim is durable */

        claim->outcome = ZKL_CANCELLED;
        zkl_claim_durable(claim);
        return NGX_OK;
    }

    if (claim->state == ZKL_HELD) {
        zkl_claim_show(claim);

        /* the waiter may release the claim at once */

        zkl_claim_answer(claim, ZKL_GRANTED);

    } else if (claim->state == ZKL_EXPIRING) {

        /* this process stood still for longer than the lease */

        zkl_claim_answer(claim, ZKL_UNREACHABLE);
    }

    return NGX_OK;
}


/*
 * Writes into the claim data that the claim is held, if clients may know the
 * claim since before the grant: another gateway tells such a client of the
 * grant only then.  Data that another gateway has written to are read first.
 */

static void
zkl_claim_show(zkl_claim_t *claim)
{
    zkl_claim_data_t  cdata;

    if (!claim->terms.async && !claim->terms.keyed) {
        return;
    }

    zkl_claim_data_read(&cdata, (char *) claim->cdata, claim->cdata_len);

    if (!cdata.async) {
        return;
    }

    if (claim->cell->version != 0) {
        zkl_claim_reread(claim, claim->watched);
        return;
    }

    zkl_record_cdata(claim->cell, &cdata);
    zkl_claim_rewrite(claim, &cdata);
}


/*
 * The wait is over, or the time for ZooKeeper's answer, or perhaps the lease or
 * the grace.  The waiter is told what is known by now; while ZooKeeper answers,
 * the worker waits a little longer for the answers that are under way.
 */

static void
zkl_claim_timer_handler(ngx_event_t *ev)
{
    ngx_msec_int_t  left;
    zkl_claim_t    *claim;

    claim = ngx_queue_data(ev, zkl_claim_t, timer);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ev->log, 0,
                   "zk lock claim timer, state %d", claim->state);

    if (claim->state == ZKL_HELD) {

        if (claim->handler != NULL
            && (ngx_msec_int_t) (claim->patience - ngx_current_msec) <= 0)
        {
            /* the claim could not be made durable in time */

            zkl_claim_leave(claim, ZKL_UNREACHABLE);
            return;
        }

        zkl_claim_lease(claim);
        return;
    }

    if (claim->detached
        && (!zkl_claim_limited(claim) || zkl_claim_time_left(claim) > 0))
    {
        if (claim->state == ZKL_WAIT) {
            zkl_claim_lease(claim);
            return;
        }

        if (claim->state == ZKL_EXPIRING) {

            /* the wait goes on if another gateway has renewed the claim */

            if (zkl_claim_limited(claim)) {
                ngx_add_timer(ev, zkl_claim_time_left(claim));
            }

            return;
        }
    }

    if (claim->handler != NULL) {
        left = (ngx_msec_int_t) (claim->patience - ngx_current_msec);

        if (left <= 0 || !zkl_claim_timed(claim)
            || (!claim->terms.once
                && !zkl_session_ready(claim->lock->worker->session)))
        {
            zkl_claim_leave(claim, ZKL_UNREACHABLE);
            return;
        }

        ngx_add_timer(ev, claim->terms.once
                          ? (ngx_msec_t) left
                          : ngx_min((ngx_msec_t) left, ZKL_PATIENCE));
    }

    claim->time = zkl_claim_timed(claim) ? ZKL_TIME_OVER : ZKL_TIME_ABANDONED;

    zkl_claim_resolve(claim);
}


void
zkl_claim_resolve(zkl_claim_t *claim)
{
    zkl_lock_t   *lock;
    zkl_entry_t  *waiter, *blocker;

    if (claim->state == ZKL_START && claim->lock->node) {
        zkl_node_resolve(claim->lock);
        return;
    }

    lock = claim->lock;

    if (claim->state != ZKL_WAIT) {
        return;
    }

    if (zkl_claim_expired(claim) && claim->single) {
        zkl_lock_look_first(lock, &claim->entry);
    }

    if (!zkl_lock_reads_pending(lock) && zkl_claim_conflict(claim) == NGX_OK) {
        return;
    }

    if (!zkl_claim_expired(claim) && !zkl_claim_maybe_full(claim)
        && ((!claim->terms.async && claim->event == NULL)
            || (claim->told & ZKL_TOLD_WAITS)))
    {
        return;
    }

    if (zkl_lock_reads_pending(lock) || !claim->single) {
        lock->resolve = 1;
        return;
    }

    if (zkl_claim_maybe_full(claim)
        && zkl_view_position(&lock->view, &claim->entry)
           > claim->terms.max_queue)
    {
        zkl_claim_withdraw(claim, ZKL_FULL);
        return;
    }

    if (!zkl_claim_expired(claim)) {
        zkl_claim_wait(claim);

    } else if (claim->handler != NULL
               && zkl_view_next(&lock->view, &waiter, &blocker) == ZKL_GRANT
               && waiter == &claim->entry)
    {
        /*
         * No claim is ahead: the grant waits until the session surely lives,
         * and the timer tells that ZooKeeper is out of reach.
         */

    } else {
        zkl_claim_give_up(claim, ZKL_TIMED_OUT);
    }
}


ngx_uint_t
zkl_claim_expired(zkl_claim_t *claim)
{
    return claim->time == ZKL_TIME_OVER || claim->time == ZKL_TIME_ABANDONED;
}


/* Tells an async or a streaming client that the claim has to wait. */

static void
zkl_claim_wait(zkl_claim_t *claim)
{
    zkl_lock_t  *lock;

    lock = claim->lock;

    if (claim->entry.seq > lock->view.complete_through) {

        /* the view does not know all claims ahead yet */

        lock->resolve = 1;
        zkl_lock_list(lock);
        return;
    }

    zkl_lock_prune(lock);

    claim->told |= ZKL_TOLD_WAITS;
    claim->place = zkl_place(zkl_view_position(&lock->view, &claim->entry),
                             zkl_view_holders(&lock->view));
    claim->position = claim->place;

    if (claim->event != NULL) {
        zkl_claim_tell(claim, ZKL_EVENT_WAITS, NULL);

    } else if (claim->terms.async && claim->handler != NULL) {
        zkl_claim_detach(claim);
        zkl_claim_answer(claim, ZKL_QUEUED);
    }
}


/*
 * Leases.  The deadline in the record is of the lease while the claim is held,
 * and of the grace while the claim is detached.  Another gateway counts up the
 * renewals in the znode's data.
 */


/* No client waits for the claim, which is not granted: the grace begins. */

static void
zkl_claim_detach(zkl_claim_t *claim)
{
    ngx_msec_t  now;

    now = zkl_now();

    claim->detached = 1;
    claim->lease = now + claim->terms.grace;

    /* not cancelable: a worker that leaves serves polling clients to the end */

    claim->timer.cancelable = 0;

    zkl_record_keep(claim->cell, claim->ttl, claim->lease);

    zkl_claim_arm(claim, now);
}


/*
 * The wait of the client that made the claim is over, and the client may have
 * left; with the key other clients may wait with the claim.
 */

static void
zkl_claim_give_up(zkl_claim_t *claim, zkl_outcome_e outcome)
{
    ngx_msec_t  lease;

    lease = claim->cell->lease;

    if (claim->terms.keyed
        && lease != 0 && (ngx_msec_int_t) (lease - claim->lease) > 0)
    {
        /* a client has called for the claim at this gateway */

        zkl_claim_leave(claim, outcome);
        return;
    }

    /* the delete fails if a client has called at another gateway */

    zkl_claim_withdraw(claim, outcome);
}


/*
 * Tells the waiter, if there still is one, the outcome now.  The claim stays
 * for the grace if other clients may call for it, and is deleted otherwise.
 */

static void
zkl_claim_leave(zkl_claim_t *claim, zkl_outcome_e outcome)
{
    if (claim->state == ZKL_START) {
        zkl_claim_refuse(claim, outcome);
        return;
    }

    zkl_claim_answer(claim, outcome);

    if (!zkl_claim_known(claim)) {

        if (claim->state == ZKL_WAIT || claim->state == ZKL_HELD) {
            zkl_claim_end(claim, outcome);
        }

        /* in CREATE and RECOVER: ends when the znode is known to exist */

        return;
    }

    /* the wait of the client does not count any more */

    claim->time = ZKL_TIME_ENDLESS;

    if (claim->state < ZKL_HELD) {
        zkl_claim_detach(claim);

    } else if (claim->state == ZKL_HELD) {
        zkl_claim_show(claim);
        zkl_claim_undelivered(claim);
    }

    /* else the claim is about to end, or outlives the session */
}


void
zkl_claim_undelivered(zkl_claim_t *claim)
{
    ngx_msec_t  granted, lease;

    if (claim->terms.grace == 0) {
        zkl_claim_release(claim, NULL);
        return;
    }

    if (claim->state != ZKL_HELD) {
        return;
    }

    granted = claim->granted + claim->ttl;
    lease = zkl_now() + claim->terms.grace;

    if ((ngx_msec_int_t) (granted - lease) > 0) {
        zkl_record_cut(claim->cell, lease);
    }

    zkl_claim_lease(claim);
}


void
zkl_claim_begin(zkl_claim_t **claims, ngx_uint_t n)
{
    ngx_uint_t    i;
    ngx_msec_t    now;
    zkl_claim_t  *claim;

    now = zkl_now();

    for (i = 0; i < n; i++) {
        claim = claims[i];

        claim->event = NULL;
        claim->timer.cancelable = 1;

        zkl_record_keep(claim->cell, claim->ttl, now + claim->ttl);

        /*
         * If the worker dies here, the leases that have begun end by
         * themselves, because the client was told of none.
         */

        zkl_claim_uncount(claim);
        zkl_record_bind(claim->cell, 0);
        zkl_claim_count(claim);

        zkl_claim_lease(claim);
    }
}


/*
 * Looks at the deadline in the record: arms the timer if the deadline is ahead,
 * else the claim is EXPIRING.  Called at the grant, after a renewal, and by the
 * timer.
 *
 * A bound claim is lost as soon as the session is not known to be alive.  The
 * holder is told at that moment, when no other claim can have been granted yet.
 */

static void
zkl_claim_lease(zkl_claim_t *claim)
{
    ngx_msec_t      now, lease;
    ngx_msec_int_t  left;
    zkl_worker_t   *worker;

    worker = claim->lock->worker;
    now = zkl_now();

    if (claim->cell->bound && claim->state == ZKL_HELD
        && !zkl_ahead(worker->zone->own->alive))
    {
        zkl_claim_tell(claim, ZKL_EVENT_LOST, "session");
        zkl_record_ending(claim->cell, ZKL_ENDING_LOST);
        zkl_claim_end(claim, ZKL_UNREACHABLE);
        return;
    }

    if (claim->replace != NULL) {
        ngx_add_timer(&claim->timer, ZKL_LEASE_AGAIN);
        return;
    }

    lease = claim->cell->lease;

    if (lease != 0 && (ngx_msec_int_t) (lease - now) > 0) {

        if (lease != claim->lease) {
            claim->lease = lease;
            claim->told &= ~ZKL_TOLD_LEASE;
        }

        zkl_claim_arm(claim, now);
        return;
    }

    zkl_record_close(claim->cell);

    ngx_log_error(NGX_LOG_INFO, worker->log, 0, claim->state == ZKL_HELD
                  ? "a lease of \"%V\" is over"
                  : "nobody asks any more for a claim of \"%V\"",
                  &claim->lock->sn.str);

    if (claim->timer.timer_set) {
        ngx_del_timer(&claim->timer);
    }

    if (claim->state == ZKL_HELD) {
        /* a waiter hears of this: the claim did not become durable in time */
        claim->outcome = ZKL_UNREACHABLE;
    }

    if (claim->handler != NULL) {

        /* the waiter has time left, and a client may have called elsewhere */

        left = (ngx_msec_int_t) (claim->deadline - ngx_current_msec);

        ngx_add_timer(&claim->timer, left > ZKL_PATIENCE
                      ? (ngx_msec_t) left : ZKL_PATIENCE);
    }

    claim->lost = 1;

    zkl_claim_state(claim, ZKL_EXPIRING);
    zkl_claim_expire(claim);
}


/*
 * Sets the timer to the next deadline of the claim or of the waiter.  The
 * client of a bound claim is warned when a third of the lease is left.
 */

static void
zkl_claim_arm(zkl_claim_t *claim, ngx_msec_t now)
{
    ngx_uint_t      warn;
    ngx_msec_int_t  wait, left;

    warn = 0;
    wait = (ngx_msec_int_t) (claim->lease - now);

    if (claim->state != ZKL_HELD) {

        if (zkl_claim_limited(claim)) {
            left = zkl_claim_time_left(claim);
            wait = ngx_min(wait, left);
        }

    } else if (claim->cell->bound) {

        if (claim->terms.leased && !(claim->told & ZKL_TOLD_LEASE)) {
            left = (ngx_msec_int_t) (claim->ttl / 3);

            if (wait <= left) {
                warn = 1;

            } else {
                wait -= left;
            }
        }

        left = (ngx_msec_int_t) (claim->lock->worker->zone->own->alive - now)
               + 1;
        left = ngx_max(left, 1);
        wait = ngx_min(wait, left);

    } else if (claim->handler != NULL) {

        /* the waiter waits until the claim is durable */

        left = (ngx_msec_int_t) (claim->patience - ngx_current_msec);
        wait = ngx_min(wait, left);
    }

    wait = ngx_max(wait, 0);

    if (claim->timer.timer_set) {
        ngx_del_timer(&claim->timer);
    }

    ngx_add_timer(&claim->timer, ngx_min((ngx_msec_t) wait, ZKL_TIMER_MAX));

    if (warn) {
        claim->told |= ZKL_TOLD_LEASE;
        zkl_claim_tell(claim, ZKL_EVENT_ENDING, "lease");
    }
}


/*
 * How long the waiter of a claim in WAIT is still held: until the deadline, or,
 * if the wait has no end, for as long as the claim waits for ZooKeeper.
 */

static ngx_msec_int_t
zkl_claim_time_left(zkl_claim_t *claim)
{
    return (ngx_msec_int_t) ((zkl_claim_timed(claim) ? claim->deadline
                                                     : claim->patience)
                             - ngx_current_msec);
}


/* Whether the deadline of the claim counts. */

static ngx_uint_t
zkl_claim_timed(zkl_claim_t *claim)
{
    return claim->time == ZKL_TIME_LIMITED || claim->time == ZKL_TIME_OVER;
}


/* Whether the time to wait has an end; the time of a waiter always has one. */

static ngx_uint_t
zkl_claim_limited(zkl_claim_t *claim)
{
    return claim->handler != NULL || zkl_claim_timed(claim);
}


/* Deletes the znode unless another gateway has renewed the claim. */

static void
zkl_claim_expire(zkl_claim_t *claim)
{
    if (claim->op != NULL
        || !zkl_session_connected(claim->lock->worker->session))
    {
        return;
    }

    if (claim->lock->node && !claim->watched) {

        /* the znode may be another claim's by now */

        zkl_claim_reread(claim, 0);
        return;
    }

    zkl_claim_send_delete(claim, 1);
}


static void
zkl_claim_note_expired(zkl_claim_t *claim)
{
    if (claim->lost || claim->outcome == ZKL_TIMED_OUT
        || claim->outcome == ZKL_CONFLICT)
    {
        zkl_record_ending(claim->cell, ZKL_ENDING_EXPIRED);
    }
}


/* The znode of a claim from HELD on is gone. */

static void
zkl_claim_vanished(zkl_claim_t *claim)
{
    switch (claim->state) {

    case ZKL_HELD:
        ngx_log_error(NGX_LOG_INFO, claim->lock->worker->log, 0,
                      "a held claim of \"%V\" was deleted by somebody else",
                      &claim->lock->sn.str);

        claim->lost = 1;
        zkl_claim_tell(claim, ZKL_EVENT_LOST, "deleted");
        break;

    case ZKL_TAKE:
        ngx_log_error(NGX_LOG_INFO, claim->lock->worker->log, 0,
                      "a lease of \"%V\" is over", &claim->lock->sn.str);

        claim->lost = 1;

        /* fall through */

    case ZKL_EXPIRING:
        zkl_claim_note_expired(claim);
        zkl_claim_tell(claim, ZKL_EVENT_LOST, "lease");
        break;

    default: /* ZKL_DELETE */
        break;
    }

    zkl_claim_done(claim);
}


void
zkl_claim_proceed(zkl_claim_t *claim)
{
    switch (claim->state) {

    case ZKL_START:
        zkl_claim_start(claim);
        zkl_claim_moved(claim);
        break;

    case ZKL_RECOVER:
        zkl_lock_list(claim->lock);
        break;

    case ZKL_WAIT:
        zkl_claim_single(claim);
        zkl_claim_moved(claim);
        break;

    case ZKL_HELD:
        zkl_claim_proceed_held(claim);
        break;

    case ZKL_EXPIRING:
        zkl_claim_expire(claim);
        break;

    case ZKL_TAKE:
        zkl_claim_take(claim);
        break;

    case ZKL_DELETE:

        if (claim->op == NULL) {
            zkl_claim_delete(claim, 0);
        }

        break;

    default:
        break;
    }
}


/*
 * A claim that is held for long is made durable, and watched, because another
 * gateway may renew or release the claim, or an operator delete the znode.  A
 * claim that is held for a moment costs neither a write nor a read.
 */

static void
zkl_claim_proceed_held(zkl_claim_t *claim)
{
    ngx_msec_t   lease;
    zkl_lock_t  *lock;

    lock = claim->lock;

    lease = claim->cell->lease;

    if (lease != 0 && lease != claim->lease) {
        claim->lease = lease;
        claim->told &= ~ZKL_TOLD_LEASE;
    }

    if (zkl_session_alive(lock->worker->session)
        && zkl_session_reachable(lock->worker->session))
    {
        zkl_claim_sure(claim);

        if (claim->state != ZKL_HELD) {
            return;
        }
    }

    if (claim->replace != NULL) {
        zkl_replace_again(claim->replace);
        return;
    }

    if (claim->changed) {
        zkl_claim_reread(claim, claim->watched);
        return;
    }

    if (claim->cell->was != claim->entry.mode) {

        /* there was no memory for the downgrade, or ZooKeeper refused it */

        zkl_claim_downgrade(claim);
        return;
    }

    if (zkl_claim_lasts(claim)) {
        zkl_claim_durable(claim);

        if (claim->state != ZKL_HELD || claim->replace != NULL) {
            return;
        }
    }

    if (!claim->watched
        && (lock->node
            || (zkl_claim_lasts(claim)
                && lock->converting == NULL))
        && zkl_claim_may_watch(claim))
    {
        zkl_claim_reread(claim, 1);
    }
}


/*
 * Whether a held claim is to be made durable: the client waits for that, the
 * worker leaves, or the claim has been held for long.
 */

static ngx_uint_t
zkl_claim_lasts(zkl_claim_t *claim)
{
    return claim->handler != NULL || claim->lock->worker->leaving
           || (ngx_msec_int_t) (ngx_current_msec - claim->granted)
              >= ZKL_LONG_HOLD;
}


/* Tells a client that listens, once a second, that the claim has moved. */

static void
zkl_claim_moved(zkl_claim_t *claim)
{
    if (claim->event != NULL && (claim->told & ZKL_TOLD_WAITS)
        && claim->place != claim->position)
    {
        claim->position = claim->place;
        zkl_claim_tell(claim, ZKL_EVENT_WAITS, NULL);
    }
}


void
zkl_claim_suspended(zkl_claim_t *claim)
{
    /* what was not made, because the connection broke, has not vanished */

    claim->tries = 0;

    if (claim->lock->node) {
        /* the watch reports a change only after the next requests are sent */

        claim->watched = 0;
    }

    if (claim->cell->bound && claim->state == ZKL_HELD
        && !(claim->told & ZKL_TOLD_ZOOKEEPER))
    {
        claim->told |= ZKL_TOLD_ZOOKEEPER;
        zkl_claim_tell(claim, ZKL_EVENT_ENDING, "zookeeper");
    }
}


void
zkl_claim_sure(zkl_claim_t *claim)
{
    if (claim->told & ZKL_TOLD_ZOOKEEPER) {
        claim->told &= ~ZKL_TOLD_ZOOKEEPER;
        claim->told |= ZKL_TOLD_SURE;
        zkl_claim_tell(claim, ZKL_EVENT_SURE, NULL);
    }
}


/*
 * Durable leases.  A persistent znode takes the claim's place under the same
 * name, and the lease is entered below the gate of the session (replace.c): the
 * session that owns that gate, this one or another, counts the lease
 * (custody.c).
 */


/* Whether the claim is a lease that can be, but is not yet, durable. */

static ngx_uint_t
zkl_claim_ephemeral(zkl_claim_t *claim)
{
    return claim->state == ZKL_HELD
           && claim->lasting == ZKL_EPHEMERAL && !claim->cell->bound;
}


void
zkl_claim_gated(zkl_claim_t *claim)
{
    if (claim->state == ZKL_TAKE) {
        zkl_claim_take(claim);

    } else if (claim->handler != NULL || claim->lock->worker->leaving) {
        zkl_claim_durable(claim);
    }
}


void
zkl_claim_durable(zkl_claim_t *claim)
{
    ngx_int_t    rc;
    zkl_lock_t  *lock;

    lock = claim->lock;

    if (!zkl_claim_ephemeral(claim) || claim->replace != NULL
        || lock->converting != NULL)
    {
        return;
    }

    rc = zkl_claim_replace(claim, zkl_claim_made_durable);

    if (rc == NGX_OK) {
        lock->converting = claim;

    } else if (rc == NGX_DECLINED && claim->handler != NULL) {
        zkl_claim_leave(claim, ZKL_DENIED);
    }
}


/*
 * A durable znode takes the claim's place, and the lease is entered below this
 * session's gate.  NGX_DECLINED: no session can have a gate; NGX_AGAIN: not
 * now.
 */

static ngx_int_t
zkl_claim_replace(zkl_claim_t *claim, zkl_replace_pt handler)
{
    ngx_int_t    rc;
    zkl_gate_t  *gate;

    rc = zkl_custody_ready(claim->lock->worker, &gate);
    if (rc != NGX_OK) {
        return rc;
    }

    if (zkl_replace(claim, 1, handler) != NGX_OK) {
        return NGX_AGAIN;
    }

    if (claim->gate != gate) {
        zkl_custody_leave(claim);
        zkl_custody_join(gate, claim);
    }

    return NGX_OK;
}


/*
 * A worker makes the claims of a lock durable in turn, because each transaction
 * sets the lock's znode by the version that was read before.
 */

static void
zkl_claim_next_durable(zkl_claim_t *claim, ngx_int_t rc)
{
    ngx_queue_t  *q, *next;
    zkl_lock_t   *lock;
    zkl_claim_t  *other;

    lock = claim->lock;

    /* after a failure the sweep comes back to the claims before */

    for (q = (rc == NGX_OK) ? ngx_queue_head(&lock->claims)
                            : ngx_queue_next(&claim->queue);
         q != ngx_queue_sentinel(&lock->claims) && lock->converting == NULL;
         q = next)
    {
        next = ngx_queue_next(q);
        other = ngx_queue_data(q, zkl_claim_t, queue);

        if (zkl_claim_lasts(other)) {
            zkl_claim_durable(other);
        }
    }
}


static void
zkl_claim_made_durable(zkl_claim_t *claim, ngx_int_t rc)
{
    zkl_lock_t  *lock;

    lock = claim->lock;

    if (rc == NGX_OK) {
        zkl_claim_persists(claim);

    } else if (rc == NGX_AGAIN) {
        zkl_record_ephemeral(claim->cell);

    } else if (rc == NGX_ERROR) {
        ngx_log_error(NGX_LOG_WARN, lock->worker->log, 0,
                      "ZooKeeper refuses to make a lease of \"%V\" durable: "
                      "it ends with this worker's session", &lock->sn.str);

        zkl_record_ephemeral(claim->cell);
        zkl_claim_set_lasting(claim, ZKL_UNFIT);
    }

    if (rc == NGX_BUSY) {
        zkl_custody_leave(claim);
        zkl_claim_yield(claim);
        zkl_claim_next_durable(claim, rc);
        return;
    }

    zkl_claim_next_durable(claim, rc);
    zkl_claim_replaced(claim, rc);
}


/* The znode's name is known.  NGX_AGAIN: the znode is the one of before. */

static void
zkl_claim_replaced(zkl_claim_t *claim, ngx_int_t rc)
{
    if (rc != NGX_AGAIN) {
        claim->watched = 0;
    }

    if (rc == NGX_DECLINED) {
        claim->outcome = ZKL_CANCELLED;
        zkl_claim_changed(claim, 1);
        return;
    }

    if (claim->ending) {
        claim->ending = 0;
        zkl_claim_end(claim, claim->outcome);
        return;
    }

    if (rc == NGX_AGAIN && claim->cell->was != claim->entry.mode) {

        /*
         * ZooKeeper refuses the downgrade.  The sweep begins again; a read of
         * the claim data, which ask for the downgrade, would do so at once.
         */

        zkl_claim_lease(claim);
        return;
    }

    if (claim->handler != NULL && claim->lasting == ZKL_UNFIT) {
        zkl_claim_leave(claim, ZKL_DENIED);
        return;
    }

    if (claim->handler != NULL && claim->lasting == ZKL_DURABLE) {
        zkl_claim_tell_durable(claim);
        return;
    }

    /* another gateway may have written to the claim */

    zkl_claim_watch(claim);
    zkl_claim_lease(claim);
}


static void
zkl_claim_set_lasting(zkl_claim_t *claim, zkl_lasting_e lasting)
{
    zkl_claim_uncount(claim);
    claim->lasting = lasting;
    zkl_claim_count(claim);
}


/* The claim's znode is not an ephemeral znode of this session any more. */

static void
zkl_claim_persists(zkl_claim_t *claim)
{
    zkl_lock_t  *lock;

    if (claim->lasting == ZKL_DURABLE) {
        return;
    }

    lock = claim->lock;

    zkl_claim_set_lasting(claim, ZKL_DURABLE);
    zkl_session_unreserve(lock->worker->session,
                          lock->sn.str.len + 1 + ZKL_CLAIM_MAX);
}


/* Reads the znode, with a watch if the session has room for a watch. */

static void
zkl_claim_watch(zkl_claim_t *claim)
{
    zkl_claim_reread(claim, zkl_claim_may_watch(claim));
}


static ngx_uint_t
zkl_claim_may_watch(zkl_claim_t *claim)
{
    return zkl_session_may_watch(claim->lock->worker->session,
                                 claim->lock->sn.str.len + 1 + ZKL_CLAIM_MAX);
}


/* Tells the client that waits for a durable claim; the lease begins. */

static void
zkl_claim_tell_durable(zkl_claim_t *claim)
{
    ngx_msec_t  lease;

    if (!zkl_session_alive(claim->lock->worker->session)) {

        /* another session may count the lease by now */

        zkl_claim_leave(claim, ZKL_UNREACHABLE);
        return;
    }

    /* the lease that a client has renewed meanwhile may be longer */

    lease = claim->cell->lease;

    if (lease == 0 || (ngx_msec_int_t) (zkl_now() + claim->ttl - lease) > 0) {
        claim->lease = zkl_now() + claim->ttl;

        zkl_record_keep(claim->cell, claim->ttl, claim->lease);
    }

    zkl_claim_watch(claim);
    zkl_claim_lease(claim);

    if (claim->state == ZKL_HELD) {
        zkl_claim_answer(claim, ZKL_GRANTED);
    }
}


/*
 * The session does not count the lease any more: the claim goes to TAKE, and
 * the record is open, so that all workers ask ZooKeeper about the claim.
 */

static void
zkl_claim_yield(zkl_claim_t *claim)
{
    /* deleted in TAKE: released, or no client can call for the claim */

    claim->ending |= !ngx_queue_empty(&claim->listeners)
                     || (claim->handler != NULL
                         && !zkl_claim_known(claim));

    zkl_claim_stop_ops(claim);

    claim->watched = 0;
    claim->changed = 0;

    /* the znode is durable, or ends with the session of the dead worker */

    zkl_claim_settled(claim);

    zkl_record_open(claim->lock->worker->zone, claim->id.record);
    zkl_claim_state(claim, ZKL_TAKE);

    zkl_claim_write_asked(claim);
    zkl_claim_tell_listeners(&claim->asked, ZKL_UNKNOWN);
    zkl_claim_answer(claim, ZKL_UNREACHABLE);
}


/*
 * In TAKE: reads the claim when this session counts the leases of the gate.  No
 * claim is written: the worker that owns the gate counts the lease on, with the
 * old deadline if no other session has counted the lease meanwhile.  A claim of
 * a dead worker of this gateway (core/adopt.c) is read at once: the claim may
 * not be durable yet, and becomes durable then.
 */

static void
zkl_claim_take(zkl_claim_t *claim)
{
    zkl_op_t  *op;

    if (!zkl_session_connected(claim->lock->worker->session)) {
        return;
    }

    if (claim->replace != NULL) {
        zkl_replace_again(claim->replace);
        return;
    }

    if (claim->op != NULL
        || (claim->gate != NULL && !claim->ending
            && !zkl_custody_counts(claim->gate)))
    {
        return;
    }

    op = zkl_claim_op(claim, ZKL_OP_GET, NULL);
    if (op == NULL) {
        return;
    }

    /* the takeover of the gate is a write, which no read is older than */

    op->fresh = (claim->gate == NULL || !zkl_custody_counts(claim->gate));
    op->watch = (claim->gate != NULL && zkl_claim_may_watch(claim));

    zkl_claim_send(claim, op, zkl_claim_take_handler);
}


static void
zkl_claim_take_handler(zkl_op_t *op)
{
    ngx_str_t      gate;
    zkl_claim_t   *claim;
    zkl_worker_t  *worker;

    claim = op->data;
    claim->op = NULL;

    worker = claim->lock->worker;

    zkl_node_check(claim, op);

    if (op->rc == ZKL_OK) {
        zkl_claim_take_read(claim, op);
        return;
    }

    /* the session's first create, the gate, shows if ZooKeeper has lost data */

    if (op->rc != ZKL_NO_NODE
        || zkl_session_gated(worker->session, &gate) == NGX_AGAIN)
    {
        return;
    }

    if (claim->cell->was != claim->entry.mode) {

        /* the znode got the new name, or is gone */

        zkl_record_named(claim->cell);
        zkl_claim_take(claim);
        return;
    }

    if (zkl_claim_renamed(claim) == NGX_OK) {
        zkl_claim_take(claim);
        return;
    }

    if (zkl_zone_behind(worker->zone)
        || (claim->adoption != NULL && claim->adoption->ended))
    {
        zkl_record_ending(claim->cell, ZKL_ENDING_LOST);
    }

    claim->lost = !claim->doubtful;
    zkl_claim_done(claim);
}


static void
zkl_claim_take_read(zkl_claim_t *claim, zkl_op_t *op)
{
    zkl_claim_data_t  cdata;
    zkl_lock_t       *lock;

    lock = claim->lock;

    zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);

    if (claim->ending) {
        claim->ending = 0;

        if (op->version != (int32_t) claim->cell->version
            && claim->cell->ending != ZKL_ENDING_BROKEN && !claim->cell->bound
            && cdata.index >= 0 && cdata.holds > 1)
        {
            /*
             * The holds end one by one, and another session has counted these
             * since this worker released the last hold that it knew.  An
             * operator's break ends all, and so does the end of a bound claim's
             * connection.
             */

            zkl_claim_tell_listeners(&claim->listeners, ZKL_UNKNOWN);
            zkl_claim_forsake(claim);
            return;
        }

        /* the claim is deleted, whichever session counts the lease */

        claim->refused = 0;
        claim->lost = 0;
        zkl_claim_persists(claim);

        zkl_record_end(lock->worker->zone, claim->id.record);
        zkl_claim_delete(claim, 0);
        zkl_lock_removed(lock, &claim->entry);
        return;
    }

    if (cdata.index < 0 && cdata.revoke) {

        /* a Curator client has written a mark over the claim data */

        zkl_claim_cdata(claim, &cdata);
        cdata.revoke = 1;
    }

    if (op->owner != 0) {

        /* else the claim did not become durable, and ends with its session */

        if (claim->adoption != NULL) {
            zkl_claim_secure(claim, &cdata, op->version);
        }

        return;
    }

    if (claim->adoption != NULL) {

        if (cdata.index >= 0 && op->reply.len <= ZKL_CLAIM_DATA_MAX) {
            claim->cdata_len = (uint16_t) op->reply.len;
            ngx_memcpy(claim->cdata, op->reply.data, op->reply.len);
        }

        zkl_record_open(lock->worker->zone, claim->id.record);
        zkl_claim_settled(claim);
    }

    zkl_claim_persists(claim);

    if (claim->gate != NULL && cdata.gate_len == ZKL_GATE_LEN
        && ngx_memcmp(cdata.gate, claim->gate->name.data, ZKL_GATE_LEN) != 0)
    {
        /* the dead worker has made the claim durable, below its own gate */

        zkl_custody_leave(claim);
    }

    if (claim->gate == NULL
        && (cdata.gate_len != ZKL_GATE_LEN
            || zkl_custody_claim(claim, (u_char *) cdata.gate) != NGX_OK))
    {
        /* the gate's next owner finds the claim, if this worker does not */

        return;
    }

    if (!zkl_custody_counts(claim->gate)) {
        return;
    }

    claim->watched = op->watch;

    zkl_claim_took(claim, &cdata, op->version);
}


/*
 * A lease that the dead worker did not make durable: becomes durable; or ends,
 * if that takes longer than the lease.  The data may tell of a renewal at
 * another gateway that the dead worker did not hear of.
 */

static void
zkl_claim_secure(zkl_claim_t *claim, zkl_claim_data_t *cdata, int32_t version)
{
    ngx_msec_t  lease;

    /* with async no client was told of a renewal elsewhere: a moment's grace */

    (void) zkl_record_renewed(claim->cell, version, cdata->renewals,
                              (ngx_msec_t) cdata->ttl, cdata->async ? 1 : 0,
                              0);

    lease = claim->cell->lease;

    if (lease == 0 || !zkl_ahead(lease)) {
        zkl_record_close(claim->cell);
        zkl_claim_send_delete(claim, 0);
        return;
    }

    if (!claim->refused) {
        (void) zkl_claim_replace(claim, zkl_claim_secured);
    }
}


static void
zkl_claim_secured(zkl_claim_t *claim, ngx_int_t rc)
{
    if (rc == NGX_ERROR) {
        ngx_log_error(NGX_LOG_WARN, claim->lock->worker->log, 0,
                      "ZooKeeper refuses to make a lease of \"%V\" durable: "
                      "it ends with the session of its worker",
                      &claim->lock->sn.str);

        claim->refused = 1;
        return;
    }

    if (rc != NGX_AGAIN) {
        zkl_claim_take(claim);
    }
}


/* The claim does not depend on the session of a dead worker any more. */

static void
zkl_claim_settled(zkl_claim_t *claim)
{
    if (claim->adoption != NULL) {
        zkl_adopt_settled(claim->adoption);
        claim->adoption = NULL;
        claim->refused = 0;
    }
}


/*
 * The znode of a durable claim is not there: NGX_OK if another gateway may have
 * downgraded the claim; the claim has a reader's name from now on.
 */

static ngx_int_t
zkl_claim_renamed(zkl_claim_t *claim)
{
    if (claim->lasting != ZKL_DURABLE
        || (claim->cell->was != ZKL_MUTEX && claim->cell->was != ZKL_WRITE))
    {
        return NGX_DECLINED;
    }

    claim->entry.mode = ZKL_READ;

    zkl_record_downgrade(claim->lock->worker->zone, claim->id.record);
    zkl_record_named(claim->cell);

    return NGX_OK;
}


/* This session counts the lease from now on. */

static void
zkl_claim_took(zkl_claim_t *claim, zkl_claim_data_t *cdata, int32_t version)
{
    uint32_t     term;
    ngx_uint_t   anew;
    zkl_lock_t  *lock;

    lock = claim->lock;

    /* each takeover counts one: more than this one is another session's */

    term = claim->gate->term;
    anew = (claim->cell->term == 0 || term - claim->cell->term > 1);

    zkl_record_regain(claim->cell, cdata, anew, term);
    (void) zkl_record_renewed(claim->cell, version, cdata->renewals,
                              (ngx_msec_t) cdata->ttl, 0, 0);
    (void) zkl_record_said(claim->cell, &claim->said, cdata);

    claim->granted = zkl_now();
    claim->lost = 0;

    zkl_claim_state(claim, ZKL_HELD);

    ngx_log_error(NGX_LOG_INFO, lock->worker->log, 0,
                  "a durable lease of \"%V\" is counted by this worker",
                  &lock->sn.str);

    zkl_journal_claim(claim, ZKL_JOURNAL_TAKEN_OVER);

    if (!claim->entry.linked && lock->nclaims > 1) {

        /* a list puts the claim into the view, for the claims behind */

        lock->partial = 1;
        zkl_lock_list(lock);
    }

    if (claim->cell->was != claim->entry.mode) {

        /* the downgrade that the session did not finish begins again */

        zkl_claim_downgrade(claim);
    }

    if (!claim->watched || cdata->want_len != 0 || cdata->revoke
        || (int64_t) zkl_claim_holds(claim) != ngx_max(cdata->holds, 1))
    {
        /*
         * A remote request is read and fulfilled, a mark mended, and a number
         * of holds written that the dead worker has not written.
         */

        zkl_claim_watch(claim);
    }

    zkl_claim_lease(claim);
}


ngx_int_t
zkl_claim_inherit(zkl_worker_t *worker, ngx_str_t *path, zkl_child_t *child,
    ngx_str_t *cdata, zkl_gate_t *gate, zkl_op_t *op)
{
    ngx_int_t     rc;
    zkl_claim_t  *claim;

    claim = zkl_claim_find(worker, &child->id, path);

    if (claim == NULL || claim->entry.seq != child->seq) {
        claim = zkl_claim_enter(worker, path, child, cdata, NULL, &rc);
        if (claim == NULL) {
            return rc;
        }
    }

    if (claim->gate == NULL && claim->state == ZKL_TAKE) {
        zkl_custody_join(gate, claim);
    }

    if (claim->gate != gate) {
        return NGX_AGAIN;
    }

    if (claim->state == ZKL_TAKE && claim->op == NULL
        && claim->adoption == NULL && claim->cell->was == child->mode)
    {
        zkl_claim_take_read(claim, op);

    } else if (claim->state == ZKL_TAKE) {
        zkl_claim_take(claim);
    }

    return NGX_OK;
}


ngx_int_t
zkl_claim_adopt(zkl_worker_t *worker, ngx_str_t *path, zkl_record_t *record,
    ngx_uint_t ending, zkl_adoption_t *adoption)
{
    ngx_int_t     rc;
    zkl_child_t   child;
    zkl_claim_t  *claim;

    ngx_memzero(&child, sizeof(zkl_child_t));

    child.id = record->id;
    child.id.record = record->named;
    child.has_id = 1;
    child.seq = record->seq;
    child.mode = record->mode;

    claim = zkl_claim_find(worker, &child.id, path);

    if (claim != NULL && claim->entry.seq == child.seq) {
        return NGX_BUSY;
    }

    claim = zkl_claim_enter(worker, path, &child, NULL, record, &rc);
    if (claim == NULL) {
        return rc;
    }

    claim->adoption = adoption;
    claim->said.ttl = record->ttl;
    claim->ending = (ending != 0);
    claim->doubtful = (ending != 0);

    zkl_claim_take(claim);

    return NGX_OK;
}


/*
 * Makes a claim in TAKE, of a znode that another worker has made: with `from`,
 * a record of an adopted slot, or with cdata, the claim data, and a new record.
 * NULL: no room, or the lock has the other layout here; *rc says why.
 */

static zkl_claim_t *
zkl_claim_enter(zkl_worker_t *worker, ngx_str_t *path, zkl_child_t *child,
    ngx_str_t *cdata, zkl_record_t *from, ngx_int_t *rc)
{
    zkl_lock_t        *lock;
    zkl_claim_t       *claim;
    zkl_claim_data_t   data;

    *rc = NGX_ERROR;

    lock = zkl_lock_get(worker, path);
    if (lock == NULL) {
        return NULL;
    }

    claim = ngx_calloc(sizeof(zkl_claim_t)
                       + (from ? ZKL_CLAIM_DATA_MAX : cdata->len), worker->log);
    if (claim == NULL) {
        goto failed;
    }

    *rc = zkl_lock_layout(lock, child->mode == ZKL_NODE);
    if (*rc != NGX_OK) {
        goto failed;
    }

    if (from != NULL) {
        claim->ttl = from->ttl;
        claim->id.record = from->id.record;

    } else {
        zkl_claim_data_read(&data, (char *) cdata->data, cdata->len);

        claim->cdata_len = (uint16_t) cdata->len;
        ngx_memcpy(claim->cdata, cdata->data, cdata->len);

        claim->ttl = (ngx_msec_t) data.ttl;

        *rc = zkl_record_adopt(worker->zone, path, child, data.czxid,
                               ngx_max(data.index, 0), &claim->id.record);
        if (*rc != NGX_OK) {
            goto failed;
        }
    }

    claim->lock = lock;
    claim->cell = zkl_layout_cell(worker->zone->map, claim->id.record);
    claim->czxid = claim->cell->czxid;
    claim->index = claim->cell->index;
    claim->named = child->id.record;
    ngx_memcpy(claim->id.random, child->id.random, ZKL_RANDOM_LEN);
    claim->entry.mode = child->mode;
    claim->entry.seq = child->seq;
    claim->lasting = ZKL_DURABLE;
    claim->single = 1;
    claim->state = ZKL_DONE;

    ngx_queue_init(&claim->listeners);
    ngx_queue_init(&claim->written);
    ngx_queue_init(&claim->asked);

    zkl_worker_timer(worker, &claim->timer, zkl_claim_timer_handler);
    claim->timer.cancelable = 1;

    zkl_lock_join(lock, claim);

    worker->claims[claim->id.record] = claim;

    zkl_claim_state(claim, ZKL_TAKE);

    if (lock->node || zkl_view_knows(&lock->view, child->seq)
        || lock->view.nmisnumbered != 0)
    {
        /* the view may have the znode as another gateway's claim */

        zkl_lock_forget(lock);

        if (lock->nclaims > 1) {
            lock->partial = 1;
            zkl_lock_list(lock);
        }
    }

    return claim;

failed:

    if (claim != NULL) {
        ngx_free(claim);
    }

    zkl_lock_post(lock);

    return NULL;
}


void
zkl_claim_ungated(zkl_claim_t *claim)
{
    if (claim->lasting == ZKL_DURABLE) {

        if (claim->state == ZKL_HELD || claim->state == ZKL_EXPIRING) {
            zkl_claim_yield(claim);

        } else if (claim->replace != NULL) {
            zkl_replace_free(claim);
            zkl_custody_leave(claim);
            zkl_claim_take(claim);
        }

        return;
    }

    /* the claim is not durable yet, and is entered below the next gate */

    zkl_custody_leave(claim);

    if (claim->lock->converting == claim) {
        zkl_replace_free(claim);

        if (claim->ending) {
            claim->ending = 0;
            zkl_claim_end(claim, claim->outcome);
        }
    }
}


/*
 * The znode stays, and is another gateway's from now on: siblings that wait for
 * the record's claim ask ZooKeeper.  A claim that was released is deleted all
 * the same.
 */

void
zkl_claim_forsake(zkl_claim_t *claim)
{
    zkl_custody_leave(claim);

    if (claim->state != ZKL_TAKE || claim->ending) {
        return;
    }

    if (claim->adoption != NULL) {

        /* the claim may not be durable, or be entered below another gate */

        zkl_claim_take(claim);
        return;
    }

    zkl_record_ending(claim->cell, ZKL_ENDING_FORSAKEN);
    zkl_record_free(claim->lock->worker->zone, claim->id.record);

    zkl_claim_forget(claim);
}


void
zkl_claim_forget(zkl_claim_t *claim)
{
    zkl_lock_t  *lock;

    lock = claim->lock;

    if (claim->gate != NULL) {
        ngx_queue_remove(&claim->custody);
    }

    zkl_claim_stop(claim);

    /* the next list shows the znode as another worker's */

    zkl_view_remove(&lock->view, &claim->entry);
    zkl_lock_forget(lock);

    zkl_lock_leave(lock, claim);

    if (lock->nclaims != 0) {
        lock->partial = 1;
        zkl_lock_list(lock);
    }
}


/*
 * What calls of this gateway ask for.
 */


ngx_int_t
zkl_claim_keep(zkl_claim_t *claim, ngx_msec_t grace)
{
    ngx_msec_t  lease, until;

    if (grace == 0) {
        return NGX_OK;
    }

    lease = claim->cell->lease;

    if (lease == 0) {
        return NGX_DECLINED;
    }

    /* never sooner, but always another: the change shows that a client asks */

    until = zkl_now() + grace;

    if ((ngx_msec_int_t) (until - lease) <= 0) {
        until = lease + 1;
    }

    zkl_record_keep(claim->cell, claim->cell->ttl, until);

    return NGX_OK;
}


ngx_int_t
zkl_claim_seen(zkl_claim_t *claim)
{
    if (claim->cell->lease == 0) {
        return NGX_DECLINED;
    }

    (void) zkl_record_seen(claim->cell, claim->ttl);

    return NGX_OK;
}


ngx_int_t
zkl_claim_renew(zkl_claim_t *claim, ngx_msec_t ttl, int32_t version,
    uint32_t renewals)
{
    ngx_msec_t  lease;

    if (zkl_claim_seen(claim) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (ttl == 0) {
        ttl = claim->cell->ttl;
    }

    if (renewals > claim->cell->renewals) {

        /*
         * The lease is this renewal's, and not that of the one before, whose
         * data may have a shorter ttl.
         */

        claim->said.ttl = 0;
        (void) zkl_record_renewed(claim->cell, version, renewals, ttl, 0, 0);
    }

    if (claim->cell->bound && !claim->terms.leased) {
        return NGX_OK;
    }

    lease = zkl_now() + ttl;

    zkl_record_keep(claim->cell, ttl, lease);

    if ((ngx_msec_int_t) (lease - claim->lease) < 0) {
        zkl_claim_lease(claim);
    }

    return (claim->state == ZKL_HELD) ? NGX_OK : NGX_DECLINED;
}


ngx_int_t
zkl_claim_hold(zkl_claim_t *claim, ngx_uint_t less, zkl_listener_t *listener)
{
    ngx_uint_t  holds;

    holds = zkl_claim_holds(claim);

    if (holds == 0 || (!less && holds == ZKL_HOLDS)) {
        return NGX_DECLINED;
    }

    zkl_record_count(claim->cell, less ? holds - 1 : holds + 1, 0);
    zkl_claim_write(claim, listener);

    return NGX_OK;
}


ngx_uint_t
zkl_claim_holds(zkl_claim_t *claim)
{
    return claim->cell->holds & ZKL_HOLDS;
}


ngx_int_t
zkl_claim_told(zkl_claim_t *claim, zkl_listener_t *listener)
{
    if ((claim->lasting != ZKL_DURABLE && claim->replace == NULL)
        || claim->cell->ttl <= claim->said.ttl)
    {
        return NGX_OK;
    }

    zkl_claim_write(claim, listener);

    return NGX_AGAIN;
}


/* Tells listener when the claim data have what the record has. */

static void
zkl_claim_write(zkl_claim_t *claim, zkl_listener_t *listener)
{
    ngx_queue_insert_tail(&claim->written, &listener->queue);

    zkl_claim_reread(claim, claim->watched);
}


/*
 * An operation is about to be sent, whose answer counts for the listeners that
 * are there by now.  Later listeners are behind these, and wait for the next
 * operation, because this one does not have what the record has got since.
 */

static void
zkl_claim_write_asked(zkl_claim_t *claim)
{
    ngx_queue_add(&claim->asked, &claim->written);
    ngx_queue_init(&claim->written);
}


/*
 * The claim data have what the record had when the operation was sent.  A later
 * change does not hold up the listeners of then, because there may always be
 * one, as long as other gateways or calls go on.
 */

static void
zkl_claim_write_done(zkl_claim_t *claim)
{
    while (claim->state == ZKL_HELD && !ngx_queue_empty(&claim->asked)) {
        zkl_claim_tell_listener(&claim->asked, ZKL_OK);
    }
}


/*
 * ZooKeeper refuses to write the claim data: what the data do not have does not
 * count, because the clients are told that their calls changed nothing.
 */

static void
zkl_claim_unwritten(zkl_claim_t *claim, zkl_rc_e rc)
{
    ngx_msec_t  ttl;

    zkl_claim_write_asked(claim);

    if (claim->state == ZKL_HELD && !ngx_queue_empty(&claim->asked)) {
        zkl_record_count(claim->cell, claim->said.holds, 1);

        ttl = claim->said.ttl;

        if (ttl != 0 && claim->lasting == ZKL_DURABLE
            && claim->cell->ttl > ttl)
        {
            zkl_record_keep(claim->cell, ttl, zkl_now() + ttl);
            zkl_claim_lease(claim);
        }
    }

    zkl_claim_tell_listeners(&claim->asked, rc);
}


/*
 * What other gateways write to the znode's data: renewals, and remote requests
 * to hold the claim once more or once less, to share the claim, to let go.  A
 * watch on the claim tells this worker, or a change of the lock's znode.
 */


void
zkl_claim_changed(zkl_claim_t *claim, ngx_uint_t deleted)
{
    claim->watched = 0;

    if (claim->state == ZKL_TAKE) {
        zkl_claim_take(claim);
        return;
    }

    if (claim->replace != NULL
        || (claim->state != ZKL_HELD
            && claim->state != ZKL_EXPIRING))
    {
        return;
    }

    if (!deleted) {
        zkl_claim_reread(claim, 1);
        return;
    }

    if (claim->state == ZKL_EXPIRING && claim->op != NULL) {
        /* the answer to the delete under way tells which delete was first */
        return;
    }

    zkl_claim_vanished(claim);
}


void
zkl_claim_bumped(zkl_claim_t *claim)
{
    if (claim->state == ZKL_HELD) {
        zkl_claim_reread(claim, claim->watched);
    }
}


/* Reads the data, because another gateway may have written to the claim. */

static void
zkl_claim_reread(zkl_claim_t *claim, ngx_uint_t watch)
{
    zkl_op_t  *op;

    claim->changed = 1;

    if (claim->op != NULL || claim->replace != NULL) {
        /* or when the znode's name is known */
        return;
    }

    op = zkl_claim_op(claim, ZKL_OP_GET, NULL);
    if (op != NULL) {
        claim->changed = 0;
        op->watch = watch;

        zkl_claim_write_asked(claim);
        zkl_claim_send(claim, op, zkl_claim_reread_handler);
    }
}


static void
zkl_claim_reread_handler(zkl_op_t *op)
{
    ngx_int_t         rc;
    zkl_claim_t      *claim;
    zkl_claim_data_t  cdata;

    claim = op->data;
    claim->op = NULL;

    zkl_node_check(claim, op);

    if (op->rc == ZKL_NO_NODE) {
        zkl_claim_changed(claim, 1);
        return;
    }

    if (op->rc != ZKL_OK) {
        claim->changed |= !ngx_queue_empty(&claim->asked);

        if (op->rc == ZKL_NO_AUTH || op->rc == ZKL_REFUSED) {
            zkl_claim_unwritten(claim, op->rc);
        }

        return;
    }

    claim->watched |= op->watch;

    zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);

    rc = zkl_claim_reread_lease(claim, &cdata, op->version);

    if (rc == NGX_OK) {
        claim->lost = 0;

        if (claim->state == ZKL_EXPIRING && !claim->entry.waiting
            && ngx_queue_empty(&claim->listeners))
        {
            /* only a held claim fulfils a remote request */

            zkl_claim_state(claim, ZKL_HELD);
        }
    }

    if (cdata.index < 0 && !cdata.revoke) {
        zkl_claim_write_asked(claim);
        zkl_claim_tell_listeners(&claim->asked, ZKL_CHANGED);

    } else if (zkl_claim_remote(claim, &cdata)) {
        zkl_claim_rewrite(claim, &cdata);

    } else {
        zkl_claim_write_done(claim);
    }

    if (claim->state == ZKL_DELETE) {
        /* a remote request has released the claim */
        return;
    }

    if (rc == NGX_OK) {
        zkl_claim_renewed(claim);

    } else if (claim->state == ZKL_EXPIRING) {
        zkl_claim_send_delete(claim, 1);

    } else if (claim->changed) {
        zkl_claim_reread(claim, claim->watched);
    }
}


void
zkl_claim_cdata(zkl_claim_t *claim, zkl_claim_data_t *cdata)
{
    zkl_claim_data_read(cdata, (char *) claim->cdata, claim->cdata_len);

    if (claim->said.ttl != 0) {
        cdata->ttl = (int64_t) claim->said.ttl;
    }

    zkl_record_cdata(claim->cell, cdata);

    if (claim->lasting == ZKL_DURABLE && claim->gate != NULL) {
        cdata->gate_len = ZKL_GATE_LEN;
        ngx_memcpy(cdata->gate, claim->gate->name.data, ZKL_GATE_LEN);
    }
}


/* NGX_OK: another gateway has renewed the claim, or told of the grant. */

static ngx_int_t
zkl_claim_reread_lease(zkl_claim_t *claim, zkl_claim_data_t *cdata,
    int32_t version)
{
    ngx_int_t   rc;
    ngx_uint_t  shorter;
    ngx_msec_t  grace, seen;

    shorter = zkl_record_said(claim->cell, &claim->said, cdata);

    /*
     * The data may make the deadline shorter, unless a call at this gateway has
     * moved the deadline since the last look.  The lease of a waiting claim is
     * the grace, which is the same for all gateways.
     */

    seen = (shorter || claim->entry.waiting)
           && (!claim->cell->bound || claim->terms.leased) ? claim->lease : 0;

    claim->detached |= claim->entry.waiting;

    /* with async no client of another gateway was told of a grant */

    grace = (claim->entry.waiting || cdata->async) ? claim->terms.grace : 0;

    /*
     * The lease counts from now, because the other gateway's clock differs: so
     * the lease does not end before the time that the client was told.
     */

    rc = zkl_record_renewed(claim->cell, version, cdata->renewals,
                            (ngx_msec_t) cdata->ttl, grace, seen);

    if (!cdata->async && cdata->index >= 0
        && zkl_record_seen(claim->cell, claim->ttl) == NGX_OK)
    {
        rc = NGX_OK;
    }

    return rc;
}


static void
zkl_claim_renewed(zkl_claim_t *claim)
{
    if (claim->state == ZKL_EXPIRING) {
        zkl_record_ending(claim->cell, ZKL_ENDING_UNKNOWN);
        zkl_claim_state(claim, claim->entry.waiting ? ZKL_WAIT : ZKL_HELD);
    }

    if (!ngx_queue_empty(&claim->listeners)
        || (claim->cell->bound && claim->handler == NULL
            && claim->event == NULL))
    {
        /* the claim was released, or the holder's connection is gone */

        zkl_claim_end(claim, ZKL_CANCELLED);
        return;
    }

    if (zkl_claim_expired(claim) && claim->state == ZKL_WAIT
        && claim->handler != NULL)
    {
        zkl_claim_leave(claim, ZKL_TIMED_OUT);

    } else if (claim->time == ZKL_TIME_ABANDONED) {

        /* another client has called for the claim */

        claim->time = ZKL_TIME_ENDLESS;
    }

    if (claim->state == ZKL_HELD || claim->detached) {
        zkl_claim_lease(claim);
    }

    if (claim->state == ZKL_WAIT) {

        /* the waiter may have to be told that the claim still waits */

        claim->lock->resolve |= (claim->handler != NULL);

        zkl_claim_single(claim);
        zkl_lock_post(claim->lock);

    } else if (claim->handler != NULL || claim->lock->worker->leaving) {

        /* the claim could not become durable before the renewal was known */

        zkl_claim_durable(claim);
    }
}


/*
 * Fulfils the remote requests in the claim data.  Returns 1 if the worker has
 * to write the claim data anew, from cdata.
 */

static ngx_uint_t
zkl_claim_remote(zkl_claim_t *claim, zkl_claim_data_t *cdata)
{
    ngx_msec_t  ttl;
    ngx_uint_t  write;

    write = 0;

    if (claim->state != ZKL_HELD || claim->ending) {

        /* the other gateway finds that the claim is gone */

        return 0;
    }

    if (cdata->index < 0 && cdata->revoke) {

        /* a Curator client has written a mark over the data */

        zkl_claim_cdata(claim, cdata);
        cdata->revoke = 1;
        cdata->mended = (uint32_t) ngx_random() | 1;

        write = 1;
    }

    if (cdata->revoke && !(claim->told & ZKL_TOLD_REVOKE)) {
        claim->told |= ZKL_TOLD_REVOKE;
        zkl_claim_tell(claim, ZKL_EVENT_REVOKE, NULL);
    }

    if (cdata->async && !cdata->held && cdata->gate_len == 0) {
        cdata->held = 1;
        write = 1;
    }

    ttl = claim->cell->ttl;

    if (claim->lasting == ZKL_DURABLE
        && cdata->ttl > 0 && (int64_t) ttl > cdata->ttl)
    {
        /* a holder was told the longer ttl while the claim became durable */

        cdata->ttl = (int64_t) ttl;
        write = 1;
    }

    if (ngx_strcmp(cdata->want, "shared") == 0) {
        zkl_claim_downgrade(claim);

    } else if (cdata->want_len != 0
               && zkl_record_remote(claim->cell, cdata) == NGX_OK)
    {
        /* counted once, however often the claim data have to be written */

        cdata->want_len = 0;
        write = 1;
    }

    if (zkl_claim_holds(claim) == 0) {
        zkl_record_ending(claim->cell, ZKL_ENDING_RELEASED);
        zkl_claim_end(claim, ZKL_CANCELLED);
        return 0;
    }

    if ((int64_t) zkl_claim_holds(claim) != ngx_max(cdata->holds, 1)) {
        cdata->holds = (uint32_t) zkl_claim_holds(claim);
        write = 1;
    }

    return write;
}


static void
zkl_claim_rewrite(zkl_claim_t *claim, zkl_claim_data_t *cdata)
{
    char       text[ZKL_CLAIM_DATA_MAX];
    size_t     index_at;
    ngx_str_t  value;
    zkl_op_t  *op;

    if (claim->state != ZKL_HELD) {
        return;
    }

    value.len = zkl_claim_data_write(text, cdata, &index_at);
    value.data = (u_char *) text;

    op = claim->op ? NULL : zkl_claim_op(claim, ZKL_OP_SET, &value);

    if (op == NULL) {
        claim->changed = 1;
        return;
    }

    op->version = (int32_t) claim->cell->version;

    claim->changed = 0;
    claim->writing = (uint32_t) ngx_max(cdata->holds, 1);

    zkl_claim_write_asked(claim);
    zkl_claim_send(claim, op, zkl_claim_rewrite_handler);
}


static void
zkl_claim_rewrite_handler(zkl_op_t *op)
{
    zkl_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    switch (op->rc) {

    case ZKL_OK:

        /* the renewals that were written are known */

        (void) zkl_record_renewed(claim->cell, op->version, 0, 0, 0, 0);

        claim->said.holds = claim->writing;
        zkl_claim_write_done(claim);

        break;

    case ZKL_CHANGED:
        claim->changed = 1;
        break;

    case ZKL_NO_AUTH:
    case ZKL_REFUSED:
    case ZKL_OVER_QUOTA:
        zkl_claim_unwritten(claim, op->rc);
        /* fall through */

    default:
        claim->changed = 1;
        return;
    }

    if (claim->changed) {
        zkl_claim_reread(claim, claim->watched);

    } else if (claim->state == ZKL_EXPIRING) {
        zkl_claim_expire(claim);
    }
}


void
zkl_claim_downgrade(zkl_claim_t *claim)
{
    if (claim->state != ZKL_HELD || claim->replace != NULL
        || (claim->cell->was != ZKL_MUTEX && claim->cell->was != ZKL_WRITE)
        || zkl_replace(claim, 0, zkl_claim_replaced) != NGX_OK)
    {
        return;
    }

    /* readers behind the claim may be granted: sharing cannot be undone */

    claim->entry.mode = ZKL_READ;

    zkl_lock_post(claim->lock);
}


/*
 * The end.  The worker sends the delete until the znode is known to be gone,
 * and only then tells the waiter the outcome, tells the completion listeners,
 * and ends the claim.
 */


void
zkl_claim_release(zkl_claim_t *claim, zkl_listener_t *listener)
{
    if (listener != NULL) {
        ngx_queue_insert_tail(&claim->listeners, &listener->queue);
    }

    if (claim->state == ZKL_WAIT || claim->state == ZKL_HELD) {
        zkl_claim_end(claim, ZKL_CANCELLED);

    } else if (claim->state == ZKL_TAKE) {
        claim->doubtful = 1;
    }
}


/*
 * Ends the claim, which cannot be taken back: the claims behind may be granted
 * at once.  A waiter is told the outcome when the claim is gone.
 */

static void
zkl_claim_end(zkl_claim_t *claim, zkl_outcome_e outcome)
{
    zkl_lock_t  *lock;

    lock = claim->lock;

    claim->outcome = outcome;

    if (claim->replace != NULL) {

        /* the claim ends when the znode's name is known */

        claim->ending = 1;
        return;
    }

    /* the holder is told before the next claim is granted */

    if (claim->state == ZKL_HELD) {
        zkl_claim_tell(claim, ZKL_EVENT_LOST, "released");
        zkl_record_let_go(claim->cell);
    }

    zkl_record_end(lock->worker->zone, claim->id.record);
    zkl_claim_delete(claim, claim->entry.linked);
    zkl_lock_removed(lock, &claim->entry);
}


/*
 * Ends a claim that waits.  If other clients may have the token or the key, the
 * delete names the version of the data, and so fails if a client has called for
 * the claim at another gateway.
 */

static void
zkl_claim_withdraw(zkl_claim_t *claim, zkl_outcome_e outcome)
{
    if (!zkl_claim_known(claim)) {
        zkl_claim_end(claim, outcome);
        return;
    }

    claim->outcome = outcome;

    /* a sibling may find that the znode is gone before this worker does */

    zkl_claim_note_expired(claim);

    /* siblings that wait behind the claim ask ZooKeeper from now on */

    zkl_record_close(claim->cell);

    zkl_claim_state(claim, ZKL_EXPIRING);
    zkl_claim_expire(claim);
}


/*
 * Deletes the znode.  gather: the znode surely exists, so the delete may share
 * a transaction.
 */

static void
zkl_claim_delete(zkl_claim_t *claim, ngx_uint_t gather)
{
    zkl_op_t  *op;

    zkl_claim_state(claim, ZKL_DELETE);
    zkl_claim_forget_op(claim);

    /* a waiter's timer stays, because the claim may not be gone in time */

    if (claim->timer.timer_set && claim->handler == NULL) {
        ngx_del_timer(&claim->timer);
    }

    if (!claim->lock->node || claim->watched) {
        zkl_claim_send_delete(claim, gather);
        return;
    }

    /* the znode may be another claim's by now */

    op = zkl_claim_op(claim, ZKL_OP_GET, NULL);
    if (op != NULL) {
        zkl_claim_send(claim, op, zkl_claim_delete_handler);
    }
}


/*
 * Sends a delete of the znode: in DELETE whatever the data, else, and of a
 * one-node lock, which may be another claim's by now, of the version that was
 * read last.
 */

static void
zkl_claim_send_delete(zkl_claim_t *claim, ngx_uint_t gather)
{
    zkl_op_t    *op;
    ngx_uint_t   any;

    op = zkl_claim_op(claim, ZKL_OP_DELETE, NULL);
    if (op == NULL) {
        return;
    }

    any = (claim->state == ZKL_DELETE && !claim->lock->node);

    op->version = any ? -1 : (int32_t) claim->cell->version;
    op->gather = gather && !claim->lock->node;
    op->deferrable = any && zkl_lock_queue_long(claim->lock, claim->entry.mode,
                                                &claim->entry);

    zkl_claim_send(claim, op, zkl_claim_delete_handler);
}


/* Of a delete in DELETE, EXPIRING or TAKE, and of the read before a delete. */

static void
zkl_claim_delete_handler(zkl_op_t *op)
{
    zkl_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    if (op->type == ZKL_OP_GET) {
        zkl_node_check(claim, op);

        if (op->rc == ZKL_OK) {
            (void) zkl_record_renewed(claim->cell, op->version, 0, 0, 0, 0);
            zkl_claim_send_delete(claim, 0);
            return;
        }
    }

    if (claim->state == ZKL_DELETE) {
        claim->doubtful |= (op->rc == ZKL_UNKNOWN);
        claim->watched = 0;
    }

    switch (op->rc) {

    case ZKL_NO_NODE:

        /* another client was first to delete the znode, or to rename it */

        if (claim->state == ZKL_TAKE) {
            /* the next read tells */
            break;
        }

        if (claim->state == ZKL_DELETE) {

            if (zkl_claim_renamed(claim) == NGX_OK) {
                zkl_claim_delete(claim, 0);
                break;
            }

            claim->lost |= !claim->doubtful;
        }

        /* fall through */

    case ZKL_OK:
        zkl_claim_vanished(claim);
        break;

    case ZKL_CHANGED:

        if (claim->state == ZKL_EXPIRING) {
            zkl_claim_reread(claim, claim->watched);

        } else if (claim->state == ZKL_DELETE) {

            /* the worker reads the znode again, and deletes the new version */

            zkl_claim_delete(claim, 0);
        }

        break;

    case ZKL_NO_AUTH:
    case ZKL_REFUSED:

        if (claim->state == ZKL_TAKE) {
            break;
        }

        /* by an ACL, say; a worker that leaves does not wait for the claim */

        zkl_claim_uncount(claim);
        claim->refused = 1;
        zkl_claim_count(claim);

        zkl_claim_answer(claim, op->rc == ZKL_NO_AUTH ? ZKL_DENIED
                                                      : ZKL_FAILED);
        zkl_claim_tell_listeners(&claim->listeners, op->rc);
        break;

    default:
        break;
    }
}


/* Tells what became of the claim, or of the write of the claim data. */

static void
zkl_claim_tell_listeners(ngx_queue_t *listeners, zkl_rc_e rc)
{
    while (!ngx_queue_empty(listeners)) {
        zkl_claim_tell_listener(listeners, rc);
    }
}


static void
zkl_claim_tell_listener(ngx_queue_t *listeners, zkl_rc_e rc)
{
    ngx_queue_t     *q;
    zkl_listener_t  *listener;

    q = ngx_queue_head(listeners);
    ngx_queue_remove(q);

    listener = ngx_queue_data(q, zkl_listener_t, queue);

    listener->handler(listener->data, rc);
}


void
zkl_claim_refuse(zkl_claim_t *claim, zkl_outcome_e outcome)
{
    claim->outcome = outcome;

    zkl_claim_done(claim);
}


/* The claim has no znode (any more): tells the waiter, ends the claim. */

void
zkl_claim_done(zkl_claim_t *claim)
{
    zkl_lock_t    *lock;
    zkl_worker_t  *worker;

    lock = claim->lock;
    worker = lock->worker;

    /* the log finds the claim, and the claim's data, by the record */

    zkl_record_end(worker->zone, claim->id.record);
    zkl_claim_stop(claim);

    if (claim->lost) {
        zkl_record_lose(claim->cell);
    }

    zkl_record_free(worker->zone, claim->id.record);

    zkl_custody_leave(claim);
    zkl_claim_settled(claim);

    zkl_claim_answer(claim, claim->outcome);
    zkl_claim_tell(claim, ZKL_EVENT_LOST, "deleted");

    zkl_claim_write_asked(claim);
    zkl_claim_tell_listeners(&claim->asked, ZKL_NO_NODE);
    zkl_claim_tell_listeners(&claim->listeners,
                             claim->lost ? ZKL_NO_NODE : ZKL_OK);

    zkl_lock_removed(lock, &claim->entry);
    zkl_lock_leave(lock, claim);
}


/* Ends all that the claim does; no search finds the claim from now on. */

static void
zkl_claim_stop(zkl_claim_t *claim)
{
    zkl_lock_t    *lock;
    zkl_worker_t  *worker;

    lock = claim->lock;
    worker = lock->worker;

    zkl_claim_state(claim, ZKL_DONE);
    zkl_claim_stop_ops(claim);

    worker->claims[claim->id.record] = NULL;

    if (claim->lasting != ZKL_DURABLE) {
        zkl_session_unreserve(worker->session,
                              lock->sn.str.len + 1 + ZKL_CLAIM_MAX);
    }
}


/*
 * Stops the timer, and forgets all that is under way.  The znode's name is
 * found by a read, if the replacement was under way.
 */

static void
zkl_claim_stop_ops(zkl_claim_t *claim)
{
    if (claim->timer.timer_set) {
        ngx_del_timer(&claim->timer);
    }

    zkl_claim_forget_op(claim);
    zkl_replace_free(claim);
}


void
zkl_claim_discard(zkl_claim_t *claim)
{
    zkl_claim_stop_ops(claim);
    ngx_free(claim);
}


/*
 * The recovery from a lost answer, znode or session; and how the claim ends
 * when ZooKeeper cannot be reached, or the worker leaves.
 */


/* The lock's znode does not exist (any more). */

static void
zkl_claim_missing(zkl_claim_t *claim)
{
    zkl_lock_t  *lock;

    lock = claim->lock;

    zkl_claim_state(claim, ZKL_START);

    if (!zkl_claim_wanted(claim)) {
        zkl_claim_done(claim);
        return;
    }

    if (++claim->tries > ZKL_TRIES) {
        ngx_log_error(NGX_LOG_ERR, lock->worker->log, 0,
                      "the znode \"%V\" vanishes as often as it is made",
                      &lock->sn.str);

        zkl_claim_refuse(claim, ZKL_FAILED);
        return;
    }

    lock->known = 0;

    zkl_lock_make(lock);
}


/*
 * The create's answer was lost.  A list tells, by the id in the znode's name,
 * whether the create happened; if not, the worker creates the claim anew.
 */

static void
zkl_claim_recover(zkl_claim_t *claim)
{
    zkl_claim_state(claim, ZKL_RECOVER);

    /* a claim that the list shows waits */

    claim->entry.waiting = 1;

    if (zkl_session_connected(claim->lock->worker->session)) {
        zkl_lock_list(claim->lock);
    }
}


void
zkl_claim_listed(zkl_claim_t *claim)
{
    zkl_op_t  *op;

    switch (claim->state) {

    case ZKL_RECOVER:

        if (claim->entry.linked) {

            /* the create happened: reads the claim's czxid */

            op = claim->op ? NULL : zkl_claim_op(claim, ZKL_OP_GET, NULL);

            if (op != NULL) {
                zkl_claim_send(claim, op, zkl_claim_found_handler);
            }

            break;
        }

        if (claim->entry.seq != -1) {
            /* an earlier list has shown the znode */
            zkl_claim_removed(claim);
            break;
        }

        /* the create never happened */

        zkl_claim_state(claim, ZKL_START);

        if (!zkl_claim_wanted(claim)) {
            zkl_claim_done(claim);
            break;
        }

        zkl_claim_start(claim);
        break;

    case ZKL_WAIT:

        if (!claim->entry.linked) {
            zkl_claim_removed(claim);

        } else if (zkl_claim_conflict(claim) != NGX_OK) {
            zkl_claim_single(claim);
        }

        break;

    case ZKL_EXPIRING:
    case ZKL_HELD:

        if (!claim->entry.linked) {
            zkl_claim_vanished(claim);

        } else if (claim->state == ZKL_EXPIRING) {
            zkl_claim_expire(claim);

        } else if (claim->replace != NULL) {
            zkl_replace_again(claim->replace);
        }

        break;

    default:
        break;
    }
}


static void
zkl_claim_found_handler(zkl_op_t *op)
{
    zkl_slot_t        *slot;
    zkl_lock_t        *lock;
    zkl_claim_t       *claim;
    zkl_claim_data_t   cdata;

    claim = op->data;
    claim->op = NULL;

    if (claim->state != ZKL_RECOVER || !claim->entry.linked) {
        return;
    }

    lock = claim->lock;
    slot = lock->worker->zone->own;

    zkl_node_check(claim, op);

    if (op->rc == ZKL_OK && slot->keyed && op->owner != slot->key.id) {

        /* a copy, made by another client: the next list finds the next */

        zkl_view_remove(&lock->view, &claim->entry);

        claim->copied = claim->entry.seq;
        claim->entry.seq = -1;
        claim->entry.waiting = 1;

        op->rc = ZKL_NO_NODE;
    }

    if (op->rc == ZKL_NO_NODE) {
        zkl_lock_list(lock);

    } else if (op->rc == ZKL_OK) {
        zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);

        claim->czxid = op->czxid;
        claim->index = (cdata.index > 0) ? cdata.index : 0;
        lock->known = 1;

        zkl_lock_watch_parent(lock, 0);
        zkl_claim_queued(claim);
    }
}


/*
 * A waiting claim was deleted: perhaps by a gateway that was given the token,
 * which bumps the lock; else by a person.  A bump may as well announce that the
 * lock's holder became durable, so the token has to be known to a client, too.
 *
 * In RECOVER the worker may not know of the bump, because the parent watch
 * needs the czxid of a claim, and the claim was deleted before the read that
 * was to tell the czxid.  Nor does the worker know if the parent watch is under
 * way, because the list was sent ahead of the watch: a list in RECOVER is sent
 * without.  So such a claim was cancelled, as far as is known.
 */

static void
zkl_claim_removed(zkl_claim_t *claim)
{
    zkl_lock_t  *lock;

    lock = claim->lock;

    if ((lock->bumped || lock->parent != NULL || claim->state == ZKL_RECOVER)
        && zkl_claim_known(claim))
    {
        zkl_claim_refuse(claim, ZKL_CANCELLED);

    } else {
        zkl_claim_requeue(claim);
    }
}


/*
 * The znode of a waiting claim is gone, and no client has ended the claim: the
 * claim queues again under a new id, if a client waits.
 */

static void
zkl_claim_requeue(zkl_claim_t *claim)
{
    zkl_id_t       id;
    zkl_lock_t    *lock;
    zkl_worker_t  *worker;

    lock = claim->lock;
    worker = lock->worker;

    zkl_view_remove(&lock->view, &claim->entry);
    zkl_claim_state(claim, ZKL_START);

    /* a client that was told the token would not find the claim's new id */

    if (claim->handler == NULL || !ngx_queue_empty(&claim->listeners)) {
        zkl_claim_done(claim);
        return;
    }

    if (zkl_record_take(worker->zone, &lock->sn.str, claim->entry.mode,
                        claim->terms.keyed ? claim->id.random : NULL, &id)
        != NGX_OK)
    {
        zkl_claim_refuse(claim, ZKL_NO_ROOM);
        return;
    }

    claim->cell = zkl_layout_cell(worker->zone->map, id.record);

    if (claim->terms.quota != 0) {

        /* the record of before, which is freed now, counts, too */

        (void) zkl_quota_take(worker->zone->map, claim->cell,
                              claim->terms.quota, NGX_MAX_UINT32_VALUE);
    }

    worker->claims[claim->id.record] = NULL;
    zkl_record_free(worker->zone, claim->id.record);

    claim->id = id;
    zkl_claim_note(claim);

    claim->czxid = 0;
    ngx_memzero(&claim->said, sizeof(zkl_said_t));
    claim->told = (claim->told & ~ZKL_TOLD_WAITS) | ZKL_TOLD_REQUEUED;

    zkl_claim_start(claim);
}


void
zkl_claim_session_over(zkl_claim_t *claim)
{
    switch (claim->state) {

    case ZKL_START:
    case ZKL_DONE:
        return;

    case ZKL_CREATE:
    case ZKL_RECOVER:
    case ZKL_WAIT:
        zkl_record_ending(claim->cell, ZKL_ENDING_LOST);
        zkl_claim_requeue(claim);
        return;

    case ZKL_TAKE:

        /* the watch went with the session */

        claim->watched = 0;

        zkl_replace_free(claim);

        if (claim->adoption != NULL) {
            zkl_custody_leave(claim);
        }

        return;

    default: /* ZKL_HELD, ZKL_EXPIRING, ZKL_DELETE */

        if (!claim->entry.waiting && (claim->lasting == ZKL_DURABLE
                                      || claim->lock->converting == claim))
        {
            /* the znode is, or may be, durable */

            if (claim->state == ZKL_DELETE) {

                /*
                 * The operation under way may have deleted the znode; or
                 * another session counts the lease from now on, and further
                 * holds.
                 */

                claim->doubtful |= (claim->op != NULL);
                claim->ending = 1;
            }

            zkl_claim_yield(claim);
            return;
        }

        if (claim->state == ZKL_HELD) {
            zkl_record_ending(claim->cell, ZKL_ENDING_LOST);

        } else if (claim->state == ZKL_EXPIRING) {
            zkl_claim_note_expired(claim);
        }

        break;
    }

    zkl_claim_tell(claim, ZKL_EVENT_LOST, "session");

    /* a later release is told that the claim was lost before */

    claim->lost = 1;
    claim->outcome = ZKL_UNREACHABLE;

    zkl_claim_done(claim);
}


void
zkl_claim_over(zkl_claim_t *claim)
{
    if (claim->state == ZKL_HELD) {

        /* the claim is held until the session is closed */
        return;
    }

    if (claim->handler != NULL) {
        (void) zkl_claim_shut(claim);

    } else if (claim->state == ZKL_WAIT) {
        zkl_claim_withdraw(claim, ZKL_SHUTTING_DOWN);

    } else if (claim->state == ZKL_START) {
        zkl_claim_done(claim);
    }
}


ngx_uint_t
zkl_claim_shut(zkl_claim_t *claim)
{
    if (claim->event != NULL && claim->state == ZKL_HELD) {
        zkl_claim_tell(claim, ZKL_EVENT_LOST, "shutdown");
        zkl_claim_end(claim, ZKL_SHUTTING_DOWN);
        return 1;
    }

    if (claim->handler == NULL) {
        return 0;
    }

    if (claim->state == ZKL_START || claim->state == ZKL_HELD) {
        zkl_claim_leave(claim, ZKL_SHUTTING_DOWN);
        return 1;
    }

    if (claim->state == ZKL_WAIT) {
        zkl_claim_withdraw(claim, ZKL_SHUTTING_DOWN);
    }

    zkl_claim_answer(claim, ZKL_SHUTTING_DOWN);

    return 1;
}
