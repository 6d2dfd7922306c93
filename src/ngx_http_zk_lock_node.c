
/*
 * The one-node layout.
 *
 * The client that makes the lock's znode, an ephemeral, has the lock; all other
 * clients wait until the znode is deleted.  A release therefore wakes all
 * waiters, and no order among gateways exists.  Within a gateway only one claim
 * contends at a time; the other claims wait in START, in order of arrival.  A
 * worker keeps its claims in a list; the board has the record of each worker's
 * first claim, with the time since when that claim waits.  The claim that has
 * waited longest contends, unless a claim of the gateway contends already or
 * has the lock: then no claim does.  The worker of a claim that does not
 * contend hangs a bell on the record before the claim's.  Should two claims
 * contend all the same, the second create finds the znode, and its claim waits.
 *
 * A claim that contends creates the znode.  If the znode exists already, the
 * worker reads the znode with a watch, and tries to create the znode again when
 * the watch fires.  Once created, the claim is the only claim of the lock's
 * view, and goes on as in the other layout; but the znode's name does not say
 * whose claim the znode is.  So the claim's id is in the data, and before the
 * worker writes or deletes the znode, by the version that was read, the worker
 * compares the id, unless the znode has been watched since the create.
 *
 * Everything here runs on the event loop.
 */


#include "ngx_http_zk_lock_node.h"


/* the digits of a czxid */
#define NGX_HTTP_ZK_LOCK_NODE_NAME  16


static ngx_uint_t ngx_http_zk_lock_node_fits(ngx_http_zk_lock_op_t *op);
static ngx_http_zk_lock_claim_t *ngx_http_zk_lock_node_first(
    ngx_http_zk_lock_lock_t *lock, ngx_uint_t *busy);
static void ngx_http_zk_lock_node_offer(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t contends);
static ngx_int_t ngx_http_zk_lock_node_waits(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_record_t *record);
static void ngx_http_zk_lock_node_bell_handler(ngx_http_zk_lock_bell_t *bell);
static void ngx_http_zk_lock_node_watch(ngx_http_zk_lock_lock_t *lock);
static void ngx_http_zk_lock_node_watch_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_node_later_handler(ngx_event_t *ev);
static ngx_uint_t ngx_http_zk_lock_node_taken(ngx_http_zk_lock_lock_t *lock);
static void ngx_http_zk_lock_node_places(ngx_http_zk_lock_lock_t *lock);
static void ngx_http_zk_lock_node_look_handler(ngx_http_zk_lock_op_t *op);
static ngx_int_t ngx_http_zk_lock_node_note(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op);


ngx_uint_t
ngx_http_zk_lock_node_is(const zk_lock_id_t *id, ngx_http_zk_lock_op_t *op)
{
    zk_lock_label_t  label;

    zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

    return label.has_id && ngx_http_zk_lock_node_fits(op)
           && label.id.record == id->record
           && zk_lock_secret_equal(label.id.random, id->random,
                                   ZK_LOCK_RANDOM_LEN);
}


ngx_uint_t
ngx_http_zk_lock_node_of(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_op_t *op)
{
    zk_lock_id_t  id;

    id = ngx_http_zk_lock_claim_id(claim);

    return ngx_http_zk_lock_node_is(&id, op);
}


/*
 * Whether the znode is a claim, and not the parent znode of a queue: a claim is
 * ephemeral, or its label names a gate, which makes the claim durable.
 */

static ngx_uint_t
ngx_http_zk_lock_node_fits(ngx_http_zk_lock_op_t *op)
{
    zk_lock_label_t  label;

    zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

    return op->owner != 0
           || (label.has_id && label.gate_len == NGX_HTTP_ZK_LOCK_GATE_LEN);
}


void
ngx_http_zk_lock_node_init(ngx_http_zk_lock_lock_t *lock)
{
    lock->bell.handler = ngx_http_zk_lock_node_bell_handler;

    ngx_http_zk_lock_worker_timer(lock->worker, &lock->later,
                                  ngx_http_zk_lock_node_later_handler);
}


void
ngx_http_zk_lock_node_leave(ngx_http_zk_lock_lock_t *lock)
{
    ngx_http_zk_lock_bell_take_down(lock->worker, &lock->bell);

    if (lock->later.posted) {
        ngx_delete_posted_event(&lock->later);
    }
}


/* The first claim in START; busy: another claim has, or may have, the znode. */

static ngx_http_zk_lock_claim_t *
ngx_http_zk_lock_node_first(ngx_http_zk_lock_lock_t *lock, ngx_uint_t *busy)
{
    ngx_queue_t               *q;
    ngx_http_zk_lock_claim_t  *claim, *first;

    first = NULL;
    *busy = 0;

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        if (claim->state == NGX_HTTP_ZK_LOCK_START) {
            first = first ? first : claim;

        } else if (claim->state != NGX_HTTP_ZK_LOCK_DONE) {
            *busy = 1;
        }

        if (first != NULL && *busy) {
            break;
        }
    }

    return first;
}


void
ngx_http_zk_lock_node_turn(ngx_http_zk_lock_lock_t *lock)
{
    ngx_uint_t                  busy, tries;
    ngx_http_zk_lock_claim_t   *first;
    ngx_http_zk_lock_record_t   record;
    ngx_http_zk_lock_worker_t  *worker;

    worker = lock->worker;

    first = ngx_http_zk_lock_node_first(lock, &busy);

    if (first == NULL || busy) {
        ngx_http_zk_lock_bell_take_down(worker, &lock->bell);
        return;
    }

    if (!ngx_http_zk_lock_session_ready(worker->session)) {
        return;
    }

    if (lock->bell.set || lock->making != 0 || lock->guard != NULL) {
        return;
    }

    ngx_http_zk_lock_node_offer(first, 0);

    for (tries = 0; tries < 3; tries++) {

        if (ngx_http_zk_lock_board_turn(worker->zone, &lock->sn.str,
                                        first->id.record, &record)
            == NGX_OK)
        {
            break;
        }

        if (ngx_http_zk_lock_node_waits(lock, &record) == NGX_OK) {
            return;
        }
    }

    ngx_http_zk_lock_node_offer(first, 1);

    if (!lock->waits) {
        ngx_http_zk_lock_claim_create(first);
    }
}


/* Writes to the record since when the claim waits, and whether it contends. */

static void
ngx_http_zk_lock_node_offer(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t contends)
{
    if (claim->contends || (claim->offered && !contends)) {
        return;
    }

    claim->offered = 1;
    claim->contends = (contends != 0);

    ngx_http_zk_lock_record_publish(claim->lock->worker->zone,
                                    claim->id.record, 0,
                                    claim->started ? (int64_t) claim->started
                                                   : 1,
                                    contends);
}


void
ngx_http_zk_lock_node_next(ngx_http_zk_lock_claim_t *claim)
{
    ngx_uint_t                 busy;
    ngx_http_zk_lock_lock_t   *lock;
    ngx_http_zk_lock_claim_t  *first;

    lock = claim->lock;

    first = ngx_http_zk_lock_node_first(lock, &busy);

    if (first != NULL && !busy) {
        ngx_http_zk_lock_node_offer(first, 0);
        ngx_http_zk_lock_board_put(lock->worker->zone, &lock->sn.str,
                              (int64_t) lock->worker->zone->slot,
                              first->id.record);
    }
}


/* NGX_DECLINED: the record has ended meanwhile. */

static ngx_int_t
ngx_http_zk_lock_node_waits(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_record_t *record)
{
    zk_lock_id_t  id;

    id = record->id;

    if (ngx_http_zk_lock_record_watch(lock->worker->zone, &id, &lock->sn.str,
                                      record)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    lock->ahead = (record->state != NGX_HTTP_ZK_LOCK_RECORD_ENDED);

    ngx_http_zk_lock_bell_hang(lock->worker, &lock->bell, id.record);

    return NGX_OK;
}


static void
ngx_http_zk_lock_node_bell_handler(ngx_http_zk_lock_bell_t *bell)
{
    ngx_http_zk_lock_lock_advance(ngx_queue_data(bell,
                                              ngx_http_zk_lock_lock_t, bell));
}


void
ngx_http_zk_lock_node_exists(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;

    ngx_http_zk_lock_lock_pin(lock);

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_START);

    claim->tries = 0;

    if (claim->handler == NULL) {
        ngx_http_zk_lock_claim_done(claim);

    } else {
        ngx_http_zk_lock_node_watch(lock);
    }

    ngx_http_zk_lock_lock_unpin(lock);
}


/*
 * Watches the znode, and looks whether the znode is a claim, which ends; the
 * holder does not matter.
 */

static void
ngx_http_zk_lock_node_watch(ngx_http_zk_lock_lock_t *lock)
{
    ngx_http_zk_lock_op_t  *op;

    if (lock->guard != NULL) {
        return;
    }

    op = ngx_http_zk_lock_op_new(lock->worker->session,
                                 NGX_HTTP_ZK_LOCK_OP_GET, &lock->sn.str, NULL,
                                 NULL);
    if (op == NULL) {
        /* the sweep tries again */
        return;
    }

    op->watch = ngx_http_zk_lock_session_may_watch(lock->worker->session,
                                                   lock->sn.str.len);
    op->handler = ngx_http_zk_lock_node_watch_handler;
    op->data = lock;

    lock->guard = op;

    ngx_http_zk_lock_lock_pin(lock);
    ngx_http_zk_lock_session_send(op);
}


static void
ngx_http_zk_lock_node_watch_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_lock_t  *lock;

    lock = op->data;

    if (lock->guard != op) {
        goto done;
    }

    lock->guard = NULL;

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:

        if (!ngx_http_zk_lock_node_fits(op)) {

            /* the znode stays when the session that made the znode is over */

            ngx_http_zk_lock_lock_refuse(lock, NGX_HTTP_ZK_LOCK_LAYOUT);
            break;
        }

        lock->waits = 1;
        lock->blind = !op->watch;
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:
        break;

    case NGX_HTTP_ZK_LOCK_NO_AUTH:
        ngx_http_zk_lock_lock_refuse(lock, NGX_HTTP_ZK_LOCK_DENIED);
        break;

    default:
        /* the sweep, or the next connection, tries again */
        goto done;
    }

    ngx_http_zk_lock_lock_advance(lock);

done:

    ngx_http_zk_lock_lock_unpin(lock);
}


void
ngx_http_zk_lock_node_changed(ngx_http_zk_lock_lock_t *lock,
    ngx_uint_t deleted)
{
    ngx_uint_t                 busy;
    ngx_queue_t               *q;
    ngx_http_zk_lock_claim_t  *claim;

    lock->waits = 0;

    ngx_http_zk_lock_lock_pin(lock);

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        if (claim->entry.linked
            || claim->state == NGX_HTTP_ZK_LOCK_TAKE)
        {
            ngx_http_zk_lock_claim_changed(claim, deleted);
            break;
        }
    }

    /* the data were set: the znode still exists */

    if (!deleted && ngx_http_zk_lock_node_first(lock, &busy) != NULL && !busy) {
        ngx_http_zk_lock_node_watch(lock);
    }

    ngx_http_zk_lock_lock_advance(lock);
    ngx_http_zk_lock_lock_unpin(lock);
}


void
ngx_http_zk_lock_node_sweep(ngx_http_zk_lock_lock_t *lock)
{
    if (!lock->node) {
        return;
    }

    ngx_http_zk_lock_node_places(lock);
    ngx_http_zk_lock_bell_take_down(lock->worker, &lock->bell);

    lock->ahead = 0;

    if (lock->blind) {
        lock->blind = 0;
        lock->waits = 0;
    }
}


ngx_uint_t
ngx_http_zk_lock_node_sight(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_op_t *op, zk_lock_sighting_t *sighting)
{
    zk_lock_label_t            label;
    ngx_http_zk_lock_claim_t  *claim;

    if (op->czxid == 0) {
        /* there is no znode */
        return 0;
    }

    zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

    if (!label.has_id || !ngx_http_zk_lock_node_is(&label.id, op)) {
        return 0;
    }

    claim = ngx_http_zk_lock_claim_find(lock->worker, &label.id,
                                        &lock->sn.str);

    if (claim == NULL
        || claim->state == NGX_HTTP_ZK_LOCK_START
        || claim->state == NGX_HTTP_ZK_LOCK_CREATE)
    {
        return 0;
    }

    ngx_memzero(sighting, sizeof(zk_lock_sighting_t));
    ngx_memcpy(&sighting->who, label.id.random, sizeof(uint64_t));

    ngx_http_zk_lock_claim_sighted(claim, sighting);

    return 1;
}


/* Whether another claim surely has the lock, or is next. */

static ngx_uint_t
ngx_http_zk_lock_node_taken(ngx_http_zk_lock_lock_t *lock)
{
    ngx_queue_t               *q;
    ngx_http_zk_lock_claim_t  *claim;

    if (lock->waits || (lock->bell.set && lock->ahead)) {
        return 1;
    }

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        if (claim->state == NGX_HTTP_ZK_LOCK_WAIT
            || claim->state == NGX_HTTP_ZK_LOCK_HELD
            || claim->state == NGX_HTTP_ZK_LOCK_LAPSE
            || (claim->state == NGX_HTTP_ZK_LOCK_TAKE && claim->elsewhere))
        {
            return 1;
        }
    }

    return 0;
}


void
ngx_http_zk_lock_node_settle(ngx_http_zk_lock_lock_t *lock)
{
    ngx_post_event(&lock->later, &ngx_posted_events);
}


static void
ngx_http_zk_lock_node_later_handler(ngx_event_t *ev)
{
    ngx_uint_t                  taken, ready;
    ngx_queue_t                *q;
    ngx_http_zk_lock_lock_t    *lock;
    ngx_http_zk_lock_claim_t   *claim;
    ngx_http_zk_lock_worker_t  *worker;

    lock = ngx_queue_data(ev, ngx_http_zk_lock_lock_t, later);
    worker = lock->worker;

    ngx_http_zk_lock_lock_pin(lock);

again:

    taken = ngx_http_zk_lock_node_taken(lock);
    ready = ngx_http_zk_lock_session_ready(worker->session);

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        if (claim->state != NGX_HTTP_ZK_LOCK_START) {
            continue;
        }

        if (claim->expired && taken && ready) {
            ngx_http_zk_lock_claim_refuse(claim, NGX_HTTP_ZK_LOCK_TAKEN);

            /* the handler that was called may have removed other claims */

            goto again;
        }

        if (claim->event != NULL && taken && !claim->told) {
            claim->told = 1;
            ngx_http_zk_lock_node_places(lock);
            claim->position = claim->place;
            ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_WAITS,
                                        NULL);
            goto again;
        }
    }

    ngx_http_zk_lock_lock_unpin(lock);
}


/* How many of this worker's claims wait ahead of each claim. */

static void
ngx_http_zk_lock_node_places(ngx_http_zk_lock_lock_t *lock)
{
    ngx_uint_t                 n;
    ngx_queue_t               *q;
    ngx_http_zk_lock_claim_t  *claim;

    n = 0;

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        if (claim->state == NGX_HTTP_ZK_LOCK_START) {
            claim->place = n++;
        }
    }
}


void
ngx_http_zk_lock_node_look(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_op_t  *op;

    op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_GET, NULL,
                                 ngx_http_zk_lock_node_look_handler, ask);

    ngx_http_zk_lock_ask_send_fresh(ask, op);
}


static void
ngx_http_zk_lock_node_look_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    if (ask->handler == NULL) {
        goto done;
    }

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:

        if (!ngx_http_zk_lock_node_fits(op)) {
            ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_LAYOUT);
            break;
        }

        ngx_http_zk_lock_ask_tell(ask,
                                  ngx_http_zk_lock_node_note(ask, op) == NGX_OK
                                  ? NGX_HTTP_ZK_LOCK_ASK_OK
                                  : NGX_HTTP_ZK_LOCK_ASK_FAILED);
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_FREE);
        break;

    default:
        ngx_http_zk_lock_ask_failed(ask, op->rc);
        break;
    }

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


ngx_uint_t
ngx_http_zk_lock_node_asked(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op)
{
    u_char  buf[NGX_HTTP_ZK_LOCK_NODE_NAME];

    if (ask->name.len == 0) {
        return ngx_http_zk_lock_node_is(&ask->token.id, op);
    }

    (void) ngx_sprintf(buf, "%016xL", op->czxid);

    return ask->name.len == sizeof(buf)
           && ngx_memcmp(ask->name.data, buf, sizeof(buf)) == 0;
}


static ngx_int_t
ngx_http_zk_lock_node_note(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op)
{
    u_char                      buf[NGX_HTTP_ZK_LOCK_NODE_NAME];
    zk_lock_label_t             label;
    ngx_http_zk_lock_info_t    *info;
    ngx_http_zk_lock_record_t   record;

    if (ngx_http_zk_lock_ask_infos(ask, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    info = &ask->infos[0];

    if (ngx_http_zk_lock_ask_note(info, op) != NGX_OK) {
        return NGX_ERROR;
    }

    /* the path is the same for all claims of the lock: the czxid is the name */

    (void) ngx_sprintf(buf, "%016xL", op->czxid);

    info->name.data = ngx_alloc(sizeof(buf), ask->worker->log);
    if (info->name.data == NULL) {
        return NGX_ERROR;
    }

    info->name.len = sizeof(buf);
    ngx_memcpy(info->name.data, buf, sizeof(buf));

    zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

    info->child.kind = ZK_LOCK_NODE;
    info->child.has_id = label.has_id;
    info->child.id = label.id;
    info->held = 1;

    if (label.has_id
        && ngx_http_zk_lock_record_read(ask->worker->zone, &label.id,
                                        &ask->path, &record)
           == NGX_OK)
    {
        ngx_http_zk_lock_ask_note_record(info, &record);
    }

    if (!info->timed) {
        ngx_http_zk_lock_ask_note_ttl(info);
    }

    ask->nknown = 1;
    ask->total = 1;
    ask->holders = 1;
    ask->mark = (uint64_t) op->czxid;

    return NGX_OK;
}
