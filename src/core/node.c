
/*
 * The one-node layout.
 *
 * The client that makes the lock's znode, an ephemeral, has the lock; all other
 * clients wait until the znode is deleted.  A release therefore wakes all
 * waiters, and no order among gateways exists.  Within a gateway a single claim
 * contends at a time; the other claims wait in START, in order of arrival.  A
 * worker keeps its claims in a list; the sequence index has the record of each
 * worker's first claim, and the record tells since when that claim waits.  The
 * claim that has waited longest contends, unless a claim of the gateway
 * contends already or has the lock.  The worker of a claim that does not
 * contend subscribes to the record of the claim before.  Should two claims
 * contend, the second create finds the znode, and that claim waits.
 *
 * A claim that contends creates the znode.  If the znode exists already, the
 * worker reads the znode with a watch, and tries to create the znode again when
 * the watch fires.  Once created, the claim is the only claim of the lock's
 * view, and goes on as in the other layout; but the znode's name does not say
 * which claim made the znode.  So the id is in the data, and the worker
 * compares the id before a write or a delete, which names the version that was
 * read, unless the znode has been watched since the create.
 *
 * The event loop runs all code here.
 */


#include "core/node.h"
#include "core/adopt.h"
#include "shm/seq_index.h"


/* the digits of a czxid */
#define ZKL_NODE_NAME               16


static ngx_uint_t zkl_node_fits(zkl_op_t *op);
static zkl_claim_t *zkl_node_first(zkl_lock_t *lock, ngx_uint_t *busy);
static void zkl_node_offer(zkl_claim_t *claim, zkl_offer_e offer);
static ngx_int_t zkl_node_waits(zkl_lock_t *lock, zkl_record_t *record);
static void zkl_node_sub_handler(zkl_subscription_t *sub);
static void zkl_node_watch(zkl_lock_t *lock);
static void zkl_node_watch_handler(zkl_op_t *op);
static ngx_uint_t zkl_node_taken(zkl_lock_t *lock);
static void zkl_node_places(zkl_lock_t *lock);
static void zkl_node_look_handler(zkl_op_t *op);
static ngx_int_t zkl_node_note(zkl_call_t *call, zkl_op_t *op);


ngx_uint_t
zkl_node_is(const zkl_id_t *id, zkl_op_t *op)
{
    zkl_claim_data_t  cdata;

    zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);

    return cdata.has_id && zkl_node_fits(op)
           && cdata.id.record == id->record
           && zkl_name_secret_equal(cdata.id.random, id->random,
                                    ZKL_RANDOM_LEN);
}


ngx_uint_t
zkl_node_of(zkl_claim_t *claim, zkl_op_t *op)
{
    zkl_id_t  id;

    id = zkl_claim_id(claim);

    return zkl_node_is(&id, op);
}


/*
 * Whether the znode is a claim, and not the parent znode of a queue: a claim is
 * ephemeral, or the claim data name a gate, which makes the claim durable.
 */

static ngx_uint_t
zkl_node_fits(zkl_op_t *op)
{
    zkl_claim_data_t  cdata;

    zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);

    return op->owner != 0 || (cdata.has_id && cdata.gate_len == ZKL_GATE_LEN);
}


void
zkl_node_init(zkl_lock_t *lock)
{
    lock->sub.handler = zkl_node_sub_handler;
}


void
zkl_node_leave(zkl_lock_t *lock)
{
    zkl_worker_unsubscribe(lock->worker, &lock->sub);
}


/* The first claim in START; busy: another claim has, or may have, the znode. */

static zkl_claim_t *
zkl_node_first(zkl_lock_t *lock, ngx_uint_t *busy)
{
    ngx_queue_t  *q;
    zkl_claim_t  *claim, *first;

    first = NULL;
    *busy = 0;

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, zkl_claim_t, queue);

        if (claim->state == ZKL_START) {
            first = first ? first : claim;

        } else if (claim->state != ZKL_DONE) {
            *busy = 1;
        }

        if (first != NULL && *busy) {
            break;
        }
    }

    return first;
}


void
zkl_node_turn(zkl_lock_t *lock)
{
    ngx_uint_t     busy, tries;
    zkl_claim_t   *first;
    zkl_record_t   record;
    zkl_worker_t  *worker;

    worker = lock->worker;

    first = zkl_node_first(lock, &busy);

    if (first == NULL || busy) {
        zkl_worker_unsubscribe(worker, &lock->sub);
        return;
    }

    if (!zkl_session_ready(worker->session)) {
        return;
    }

    if (lock->sub.set || lock->making != 0 || lock->parent != NULL) {
        return;
    }

    zkl_node_offer(first, ZKL_OFFER_WAITS);

    for (tries = 0; tries < 3; tries++) {

        if (zkl_seq_index_turn(worker->zone, &lock->sn.str, first->id.record,
                               &record)
            == NGX_OK)
        {
            break;
        }

        if (zkl_node_waits(lock, &record) == NGX_OK) {
            return;
        }
    }

    zkl_node_offer(first, ZKL_OFFER_CONTENDS);

    if (!lock->waits) {
        zkl_claim_create(first);
    }
}


/* Writes to the record since when the claim waits, and whether it contends. */

static void
zkl_node_offer(zkl_claim_t *claim, zkl_offer_e offer)
{
    if (claim->offer >= offer) {
        return;
    }

    claim->offer = offer;

    zkl_record_publish(claim->lock->worker->zone, claim->id.record, 0,
                       claim->started ? (int64_t) claim->started
                                      : 1,
                       offer == ZKL_OFFER_CONTENDS);
}


void
zkl_node_next(zkl_claim_t *claim)
{
    ngx_uint_t    busy;
    zkl_lock_t   *lock;
    zkl_claim_t  *first;

    lock = claim->lock;

    first = zkl_node_first(lock, &busy);

    if (first != NULL && !busy) {
        zkl_node_offer(first, ZKL_OFFER_WAITS);
        zkl_seq_index_put(lock->worker->zone, &lock->sn.str,
                          (int64_t) lock->worker->zone->slot,
                          first->id.record);
    }
}


/* NGX_DECLINED: the record has ended meanwhile. */

static ngx_int_t
zkl_node_waits(zkl_lock_t *lock, zkl_record_t *record)
{
    zkl_id_t  id;

    id = record->id;

    if (zkl_record_watch(lock->worker->zone, &id, &lock->sn.str, record)
        != ZKL_FOUND)
    {
        return NGX_DECLINED;
    }

    lock->ahead = (record->state != ZKL_RECORD_ENDED);

    zkl_worker_subscribe(lock->worker, &lock->sub, id.record);

    return NGX_OK;
}


static void
zkl_node_sub_handler(zkl_subscription_t *sub)
{
    zkl_lock_post(ngx_queue_data(sub, zkl_lock_t, sub));
}


void
zkl_node_exists(zkl_claim_t *claim)
{
    zkl_lock_t  *lock;

    lock = claim->lock;

    zkl_claim_state(claim, ZKL_START);

    claim->tries = 0;

    if (claim->handler == NULL) {
        zkl_claim_done(claim);

    } else {
        zkl_node_watch(lock);
    }
}


/*
 * Reads the znode with a watch; the znode has to be a claim, which ends, but
 * the holder does not matter.
 */

static void
zkl_node_watch(zkl_lock_t *lock)
{
    zkl_op_t  *op;

    if (lock->parent != NULL) {
        return;
    }

    op = zkl_op_new(lock->worker->session, ZKL_OP_GET, &lock->sn.str, NULL,
                    NULL);
    if (op == NULL) {
        /* the sweep tries again */
        return;
    }

    op->watch = zkl_session_may_watch(lock->worker->session, lock->sn.str.len);
    op->handler = zkl_node_watch_handler;
    op->data = lock;

    lock->parent = op;

    zkl_lock_op_begin(lock);
    zkl_session_send(op);
}


static void
zkl_node_watch_handler(zkl_op_t *op)
{
    zkl_lock_t  *lock;

    lock = op->data;

    if (lock->parent != op) {
        goto done;
    }

    lock->parent = NULL;

    switch (op->rc) {

    case ZKL_OK:

        if (!zkl_node_fits(op)) {

            /* the znode stays when the session that made the znode is over */

            zkl_lock_refuse(lock, ZKL_LAYOUT);
            break;
        }

        lock->waits = 1;
        lock->blind = !op->watch;
        break;

    case ZKL_NO_NODE:
        break;

    case ZKL_NO_AUTH:
        zkl_lock_refuse(lock, ZKL_DENIED);
        break;

    default:
        /* the sweep, or the next connection, tries again */
        goto done;
    }

    zkl_lock_post(lock);

done:

    zkl_lock_op_end(lock);
}


void
zkl_node_changed(zkl_lock_t *lock, ngx_uint_t deleted)
{
    ngx_uint_t    busy;
    ngx_queue_t  *q;
    zkl_claim_t  *claim;

    lock->waits = 0;

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, zkl_claim_t, queue);

        if (claim->entry.linked || claim->watched
            || claim->state == ZKL_TAKE)
        {
            zkl_claim_changed(claim, deleted);
            break;
        }
    }

    /* the data were set: the znode still exists */

    if (!deleted && zkl_node_first(lock, &busy) != NULL && !busy) {
        zkl_node_watch(lock);
    }

    zkl_lock_post(lock);
}


void
zkl_node_sweep(zkl_lock_t *lock)
{
    if (!lock->node) {
        return;
    }

    zkl_node_places(lock);
    zkl_worker_unsubscribe(lock->worker, &lock->sub);

    lock->ahead = 0;

    if (lock->blind) {
        lock->blind = 0;
        lock->waits = 0;
    }
}


ngx_uint_t
zkl_node_observe(zkl_lock_t *lock, zkl_op_t *op, zkl_observed_t *observed)
{
    zkl_claim_data_t  cdata;
    zkl_claim_t      *claim;

    if (op->czxid == 0) {
        /* there is no znode */
        return 0;
    }

    zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);

    if (!cdata.has_id || !zkl_node_is(&cdata.id, op)) {
        return 0;
    }

    claim = zkl_claim_find(lock->worker, &cdata.id, &lock->sn.str);

    if (claim == NULL
        || claim->state == ZKL_START
        || claim->state == ZKL_CREATE)
    {
        return 0;
    }

    ngx_memzero(observed, sizeof(zkl_observed_t));
    ngx_memcpy(&observed->who, cdata.id.random, sizeof(uint64_t));

    zkl_claim_observed(claim, observed);

    return 1;
}


/* Whether another claim surely has the lock, or is next. */

static ngx_uint_t
zkl_node_taken(zkl_lock_t *lock)
{
    ngx_queue_t  *q;
    zkl_claim_t  *claim;

    if (lock->waits || (lock->sub.set && lock->ahead)) {
        return 1;
    }

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, zkl_claim_t, queue);

        if (claim->state == ZKL_WAIT
            || claim->state == ZKL_HELD
            || claim->state == ZKL_EXPIRING
            || (claim->state == ZKL_TAKE && claim->adoption != NULL
                && !claim->ending && !zkl_adopt_ended(claim->adoption)))
        {
            return 1;
        }
    }

    return 0;
}


void
zkl_node_resolve(zkl_lock_t *lock)
{
    ngx_uint_t    taken, ready;
    ngx_queue_t  *q;
    zkl_claim_t  *claim;

again:

    taken = zkl_node_taken(lock);
    ready = zkl_session_ready(lock->worker->session);

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, zkl_claim_t, queue);

        if (claim->state != ZKL_START) {
            continue;
        }

        if (zkl_claim_expired(claim) && taken && ready) {
            zkl_claim_refuse(claim, ZKL_TIMED_OUT);

            /* the handler that was called may have removed other claims */

            goto again;
        }

        if (claim->event != NULL && taken
            && !(claim->told & ZKL_TOLD_WAITS))
        {
            claim->told |= ZKL_TOLD_WAITS;
            zkl_node_places(lock);
            claim->position = claim->place;
            zkl_claim_tell(claim, ZKL_EVENT_WAITS, NULL);
            goto again;
        }
    }
}


/* How many of this worker's claims wait ahead of each claim. */

static void
zkl_node_places(zkl_lock_t *lock)
{
    ngx_uint_t    n;
    ngx_queue_t  *q;
    zkl_claim_t  *claim;

    n = 0;

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, zkl_claim_t, queue);

        if (claim->state == ZKL_START) {
            claim->place = n++;
        }
    }
}


void
zkl_node_look(zkl_call_t *call)
{
    zkl_op_t  *op;

    op = zkl_call_op(call, ZKL_OP_GET, NULL, NULL, zkl_node_look_handler);

    zkl_call_send_fresh(call, op);
}


static void
zkl_node_look_handler(zkl_op_t *op)
{
    zkl_call_t  *call;

    call = op->data;

    if (call->handler == NULL) {
        goto done;
    }

    switch (op->rc) {

    case ZKL_OK:

        if (!zkl_node_fits(op)) {
            zkl_call_tell(call, ZKL_CALL_LAYOUT);
            break;
        }

        zkl_call_tell(call, zkl_node_note(call, op) == NGX_OK
                      ? ZKL_CALL_OK
                      : ZKL_CALL_FAILED);
        break;

    case ZKL_NO_NODE:
        zkl_call_tell(call, ZKL_CALL_FREE);
        break;

    default:
        zkl_call_failed(call, op->rc);
        break;
    }

done:

    zkl_call_op_end(call);
}


ngx_uint_t
zkl_node_asked(zkl_call_t *call, zkl_op_t *op)
{
    u_char  buf[ZKL_NODE_NAME];

    if (call->name.len == 0) {
        return zkl_node_is(&call->token.id, op);
    }

    (void) ngx_sprintf(buf, "%016xL", op->czxid);

    return call->name.len == sizeof(buf)
           && ngx_memcmp(call->name.data, buf, sizeof(buf)) == 0;
}


static ngx_int_t
zkl_node_note(zkl_call_t *call, zkl_op_t *op)
{
    u_char            buf[ZKL_NODE_NAME];
    ngx_str_t         name;
    zkl_claim_data_t  cdata;
    zkl_info_t       *info;

    if (zkl_call_infos(call, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    info = &call->infos[0];

    /* the path is the same for all claims of the lock: the czxid is the name */

    name.data = buf;
    name.len = ngx_sprintf(buf, "%016xL", op->czxid) - buf;

    zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);

    info->child.mode = ZKL_NODE;
    info->child.has_id = cdata.has_id;
    info->child.id = cdata.id;
    info->held = 1;

    if (zkl_call_copy(call, &info->name, &name) != NGX_OK
        || zkl_call_describe(info, op) != NGX_OK)
    {
        return NGX_ERROR;
    }

    call->nknown = 1;
    call->total = 1;
    call->holders = 1;
    call->etag = (uint64_t) op->czxid;

    return NGX_OK;
}
