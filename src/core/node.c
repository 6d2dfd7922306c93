
/*
 * The one-node layout.
 *
 * The client that makes the lock's znode, an ephemeral, has the lock; all other
 * clients wait until the znode is deleted.  A release therefore wakes all
 * waiters, and there is no order among gateways, nor among the workers of a
 * gateway.  Of a worker's claims the first contends, and the rest wait in START
 * in order of arrival; none contends while a claim of this worker has, or may
 * have, the znode.
 *
 * A claim that contends creates the znode.  If the znode exists already, the
 * worker reads the znode with a watch, and the worker's first claim creates the
 * znode again when the watch fires, when the connection is back, or when the
 * read has found no znode.  A create or a read that failed is sent again by the
 * sweep, as is a read for which the session had no room for a watch.
 *
 * Once created, the claim is the only claim of the lock's view, and goes on as
 * in the other layout; but the znode's name does not say which claim made the
 * znode.  So the id is in the data, and the worker compares the id before a
 * write or a delete, which names the version that was read, unless the znode
 * has been watched since the create.
 *
 * The event loop runs all code here.
 */


#include "core/node.h"
#include "core/adopt.h"


/* the digits of a czxid */
#define ZKL_NODE_NAME               16


static ngx_uint_t zkl_node_fits(zkl_op_t *op, zkl_claim_data_t *cdata);
static void zkl_node_watch_handler(zkl_op_t *op);
static void zkl_node_look_handler(zkl_op_t *op);


ngx_uint_t
zkl_node_is(const zkl_id_t *id, zkl_op_t *op)
{
    zkl_claim_data_t  cdata;

    return zkl_node_fits(op, &cdata) && cdata.has_id
           && cdata.id.record == id->record
           && zkl_name_secret_equal(cdata.id.random, id->random,
                                    ZKL_RANDOM_LEN);
}


void
zkl_node_check(zkl_claim_t *claim, zkl_op_t *op)
{
    zkl_id_t  id;

    id = zkl_claim_id(claim);

    if (op->rc == ZKL_OK && claim->lock->node && !zkl_node_is(&id, op)) {
        op->rc = ZKL_NO_NODE;
    }
}


/*
 * Reads the claim data.  Returns whether the znode is a claim, and not the
 * parent znode of a queue: a claim is ephemeral, or the claim data name a gate,
 * which makes the claim durable.
 */

static ngx_uint_t
zkl_node_fits(zkl_op_t *op, zkl_claim_data_t *cdata)
{
    zkl_claim_data_read(cdata, (char *) op->reply.data, op->reply.len);

    return op->owner != 0
           || (cdata->has_id && cdata->gate_len == ZKL_GATE_LEN);
}


void
zkl_node_turn(zkl_lock_t *lock)
{
    zkl_claim_t  *claim;

    if (lock->waits || lock->parent != NULL || lock->making != 0
        || !zkl_session_ready(lock->worker->session))
    {
        return;
    }

    claim = NULL;

    while ((claim = zkl_lock_next(lock, claim)) != NULL) {

        if (claim->state != ZKL_START) {
            return;
        }
    }

    if (lock->nclaims != 0) {
        zkl_claim_create(zkl_lock_next(lock, NULL));
    }
}


/*
 * Reads the znode with a watch; the znode has to be a claim, which ends, but
 * the holder does not matter.
 */

void
zkl_node_exists(zkl_claim_t *claim)
{
    zkl_lock_t  *lock;

    lock = claim->lock;

    zkl_claim_state(claim, ZKL_START);

    claim->tries = 0;

    if (claim->handler == NULL) {
        zkl_claim_done(claim);
        return;
    }

    /* without memory, the sweep has the claim created again */

    (void) zkl_lock_read(lock, &lock->parent, ZKL_OP_GET, NULL,
                         zkl_session_may_watch(lock->worker->session,
                                               lock->sn.str.len),
                         zkl_node_watch_handler);
}


static void
zkl_node_watch_handler(zkl_op_t *op)
{
    zkl_lock_t        *lock;
    zkl_claim_data_t   cdata;

    lock = op->data;

    if (lock->parent != op) {
        goto done;
    }

    lock->parent = NULL;

    switch (op->rc) {

    case ZKL_OK:

        if (!zkl_node_fits(op, &cdata)) {

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
    zkl_claim_t  *claim;

    lock->waits = 0;
    claim = NULL;

    while ((claim = zkl_lock_next(lock, claim)) != NULL) {

        if (claim->entry.linked || claim->watched
            || claim->state == ZKL_TAKE)
        {
            zkl_claim_changed(claim, deleted);
            break;
        }
    }

    zkl_lock_post(lock);
}


ngx_uint_t
zkl_node_observe(zkl_lock_t *lock, zkl_op_t *op, zkl_observed_t *observed)
{
    zkl_claim_data_t  cdata;
    zkl_claim_t      *claim;

    /* czxid 0: there is no znode */

    if (op->czxid == 0 || !zkl_node_fits(op, &cdata) || !cdata.has_id) {
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
    observed->who = zkl_name_who(&cdata.id);

    zkl_claim_observed(claim, observed);

    return 1;
}


void
zkl_node_resolve(zkl_lock_t *lock)
{
    ngx_uint_t    n, taken, ready;
    zkl_claim_t  *claim;

again:

    n = 0;

    /* whether another claim surely has the lock, or is next */

    taken = lock->waits;
    ready = zkl_session_ready(lock->worker->session);
    claim = NULL;

    while ((claim = zkl_lock_next(lock, claim)) != NULL) {
        taken |= claim->state == ZKL_WAIT
                 || claim->state == ZKL_HELD
                 || claim->state == ZKL_EXPIRING
                 || (claim->state == ZKL_TAKE && claim->adoption != NULL
                     && !claim->ending && !claim->adoption->ended);
    }

    while ((claim = zkl_lock_next(lock, claim)) != NULL) {

        if (claim->state != ZKL_START) {
            continue;
        }

        /* of the claims that wait ahead only this worker's are known */

        claim->place = n++;

        if (zkl_claim_expired(claim) && taken && ready) {
            zkl_claim_refuse(claim, ZKL_TIMED_OUT);

            /* the handler that was called may have removed other claims */

            goto again;
        }

        if (claim->event != NULL && taken
            && !(claim->told & ZKL_TOLD_WAITS))
        {
            claim->told |= ZKL_TOLD_WAITS;
            claim->position = claim->place;
            zkl_claim_tell(claim, ZKL_EVENT_WAITS, NULL);
            goto again;
        }
    }
}


void
zkl_node_look(zkl_call_t *call)
{
    zkl_op_t  *op;

    op = zkl_call_op(call, ZKL_OP_GET, NULL, NULL);
    if (op != NULL) {
        op->fresh = 1;
    }

    zkl_call_send(call, op, zkl_node_look_handler);
}


static void
zkl_node_look_handler(zkl_op_t *op)
{
    u_char             buf[ZKL_NODE_NAME];
    ngx_str_t          name;
    zkl_call_t        *call;
    zkl_info_t        *info;
    zkl_claim_data_t   cdata;

    call = op->data;

    if (call->handler == NULL) {
        goto done;
    }

    if (op->rc == ZKL_NO_NODE) {
        zkl_call_tell(call, ZKL_CALL_FREE);
        goto done;
    }

    if (op->rc != ZKL_OK) {
        zkl_call_failed(call, op->rc);
        goto done;
    }

    if (!zkl_node_fits(op, &cdata)) {
        zkl_call_tell(call, ZKL_CALL_LAYOUT);
        goto done;
    }

    if (zkl_call_infos(call, 1) != NGX_OK) {
        zkl_call_tell(call, ZKL_CALL_FAILED);
        goto done;
    }

    info = &call->infos[0];

    info->child.mode = ZKL_NODE;
    info->child.has_id = cdata.has_id;
    info->child.id = cdata.id;
    info->held = 1;

    /* the path is the same for all claims of the lock: the czxid is the name */

    name.data = buf;
    name.len = ngx_sprintf(buf, "%016xL", op->czxid) - buf;

    if (zkl_call_copy(call, &info->name, &name) != NGX_OK
        || zkl_call_describe(info, op) != NGX_OK)
    {
        zkl_call_tell(call, ZKL_CALL_FAILED);
        goto done;
    }

    call->nknown = 1;
    call->total = 1;
    call->holders = 1;
    call->etag = (uint64_t) op->czxid;

    zkl_call_tell(call, ZKL_CALL_OK);

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
