
/*
 * Drops: releases, at any worker and gateway.
 *
 * A claim of this gateway is released by its own worker, which knows the next
 * claim in line; another gateway's claim is deleted.  Of a claim that is held
 * more than once the claim's gateway counts one hold less.
 *
 * Everything here runs on the event loop, for an ask.
 */


#include "ngx_http_zk_lock_node.h"


/* how long a sibling may take to release, milliseconds */
#define NGX_HTTP_ZK_LOCK_SIBLING_WAIT     500

/* how soon a record is read again that is to tell, milliseconds */
#define NGX_HTTP_ZK_LOCK_MISSING_AGAIN    15

/* how often a lock's znode is set against others, as all releases meet on it */
#define NGX_HTTP_ZK_LOCK_TOUCHES_MAX      50


static ngx_uint_t ngx_http_zk_lock_ask_ours(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_record_t *record);
static ngx_uint_t ngx_http_zk_lock_ask_current(
    ngx_http_zk_lock_record_t *record);
static ngx_int_t ngx_http_zk_lock_ask_less(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_label_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_parent_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_touched_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_touch_handler(ngx_http_zk_lock_op_t *op);
static ngx_http_zk_lock_op_t *ngx_http_zk_lock_ask_touch_op(
    ngx_http_zk_lock_ask_t *ask, ngx_http_zk_lock_op_t *get);
static void ngx_http_zk_lock_ask_delete_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_ended(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_released(void *data,
    ngx_http_zk_lock_rc_e rc);


void
ngx_http_zk_lock_ask_release(ngx_http_zk_lock_ask_t *ask)
{
    ngx_int_t                   rc;
    zk_lock_token_t            *token;
    ngx_http_zk_lock_claim_t   *claim;
    ngx_http_zk_lock_worker_t  *worker;
    ngx_http_zk_lock_record_t   record;

    worker = ask->worker;
    token = &ask->token;

    if (ask->name.len != 0) {
        ngx_http_zk_lock_ask_delete(ask);
        return;
    }

    if (ask->type == NGX_HTTP_ZK_LOCK_RELEASE
        && ngx_http_zk_lock_ask_less(ask) == NGX_OK)
    {
        return;
    }

    rc = ngx_http_zk_lock_record_read(worker->zone, &token->id, &ask->path,
                                      &record);

    claim = ngx_http_zk_lock_claim_find(worker, &token->id, &ask->path);

    if (claim != NULL && claim->entry.seq == token->seq
        && (rc == NGX_OK || rc == NGX_AGAIN)
        && ngx_http_zk_lock_ask_ours(claim, &record)
        && claim->state != NGX_HTTP_ZK_LOCK_TAKE)
    {
        ask->mourning = 1;
        ask->mourner.handler = ngx_http_zk_lock_ask_released;
        ask->mourner.data = ask;

        ngx_http_zk_lock_record_ending(worker->zone, token->id.record,
                                       ask->forced
                                       ? NGX_HTTP_ZK_LOCK_ENDING_BROKEN
                                       : NGX_HTTP_ZK_LOCK_ENDING_RELEASED);

        ngx_http_zk_lock_claim_release(claim, &ask->mourner);
        return;
    }

    if (rc == NGX_OK && record.seq == token->seq
        && record.state != NGX_HTTP_ZK_LOCK_RECORD_OPEN
        && ngx_http_zk_lock_ask_current(&record))
    {
        rc = ngx_http_zk_lock_record_ask(worker->zone, &token->id, &ask->path,
                                         ask->forced);

        if (rc == NGX_OK) {
            ask->gen = record.gen;
            ask->ended = (record.state == NGX_HTTP_ZK_LOCK_RECORD_ENDED);

            ngx_http_zk_lock_bell_hang(worker, &ask->bell, token->id.record);
            ngx_add_timer(&ask->timer, NGX_HTTP_ZK_LOCK_SIBLING_WAIT);
            return;
        }
    }

    ngx_http_zk_lock_ask_delete(ask);
}


/*
 * Whether this worker may end the claim without a look at ZooKeeper: another
 * session may count a durable claim, and more holds of the claim, once this
 * worker's session is over.
 */

static ngx_uint_t
ngx_http_zk_lock_ask_ours(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_record_t *record)
{
    return claim->named == claim->id.record
           && (!claim->durable || ngx_http_zk_lock_ahead(record->alive));
}


/*
 * Whether its worker would have to know if it was gone: else it is not asked,
 * nor believed that it did what it was asked for.
 */

static ngx_uint_t
ngx_http_zk_lock_ask_current(ngx_http_zk_lock_record_t *record)
{
    return ngx_http_zk_lock_ahead(record->alive)
           && (record->state != NGX_HTTP_ZK_LOCK_RECORD_HELD
               || ngx_http_zk_lock_ahead(record->lease));
}


/*
 * A claim of this gateway that is held more than once is held once less: that
 * its record says at once, and its label for other gateways.  NGX_DECLINED:
 * it is to be released.
 */

static ngx_int_t
ngx_http_zk_lock_ask_less(ngx_http_zk_lock_ask_t *ask)
{
    ngx_int_t                  rc;
    ngx_uint_t                 alive;
    ngx_http_zk_lock_claim_t  *claim;
    ngx_http_zk_lock_record_t  record;

    rc = ngx_http_zk_lock_record_read(ask->worker->zone, &ask->token.id,
                                      &ask->path, &record);

    if ((rc != NGX_OK && rc != NGX_AGAIN) || record.seq != ask->token.seq
        || record.state != NGX_HTTP_ZK_LOCK_RECORD_HELD)
    {
        return NGX_DECLINED;
    }

    claim = ngx_http_zk_lock_claim_find(ask->worker, &ask->token.id,
                                        &ask->path);

    alive = ngx_http_zk_lock_ahead(record.alive);

    if (record.holds > 1
        && (!alive || !ngx_http_zk_lock_session_ready(ask->worker->session)))
    {
        /*
         * Another session may count a durable claim by now, in another record.
         * Nothing is counted in this one before its session is known to live;
         * a client that is told 503 meanwhile may repeat the call.
         */

        ngx_http_zk_lock_ask_poll(ask);
        return NGX_OK;
    }

    if (!alive && (claim == NULL || !ngx_http_zk_lock_ask_ours(claim, &record)))
    {
        return NGX_DECLINED;
    }

    rc = ngx_http_zk_lock_record_hold(ask->worker->zone, &ask->token.id,
                                      &ask->path, 1, &ask->holds);

    if (rc != NGX_OK && rc != NGX_AGAIN) {
        return NGX_DECLINED;
    }

    if (ask->holds == 0) {
        ask->dropped = 1;
        ask->gen = record.gen;

        return NGX_DECLINED;
    }

    ask->counted = 1;
    ask->gen = record.gen;

    ngx_http_zk_lock_ask_inspect(ask);

    return NGX_OK;
}


/*
 * A release that could not be confirmed is repeated until it is, also when the
 * client was told 503 and has left.
 *
 * The gateway whose claim is deleted may have more claims in the same queue,
 * and no reason to list it.  But every gateway that takes part watches the
 * lock's znode: the transaction that deletes the claim sets that znode to the
 * data that it has, so that all these gateways list the lock.
 */

void
ngx_http_zk_lock_ask_delete(ngx_http_zk_lock_ask_t *ask)
{
    u_char                  buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t               name;
    ngx_http_zk_lock_op_t  *op;

    ask->owed = 1;

    if (!ngx_http_zk_lock_session_connected(ask->worker->session)) {
        return;
    }

    ngx_http_zk_lock_ask_name(ask, &name, buf);

    op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_GET, &name,
                                 ngx_http_zk_lock_ask_label_handler, ask);

    /* a server that lags behind may not have the claim yet */

    ngx_http_zk_lock_ask_send_fresh(ask, op);
}


/* Its gateway counts how often a claim is held. */

static void
ngx_http_zk_lock_ask_label_handler(ngx_http_zk_lock_op_t *op)
{
    zk_lock_label_t          label;
    ngx_http_zk_lock_op_t   *next;
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    if (op->rc == NGX_HTTP_ZK_LOCK_OK && ask->node
        && !ngx_http_zk_lock_node_asked(ask, op))
    {
        op->rc = NGX_HTTP_ZK_LOCK_NO_NODE;
    }

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:

        if (ngx_http_zk_lock_ask_rename(ask) == NGX_OK) {
            ngx_http_zk_lock_ask_delete(ask);

        } else {
            ngx_http_zk_lock_ask_missing(ask);
        }

        goto done;

    case NGX_HTTP_ZK_LOCK_UNKNOWN:
    case NGX_HTTP_ZK_LOCK_UNSENT:
        goto done;

    default:

        if (ask->node) {
            ngx_http_zk_lock_ask_failed(ask, op->rc);
            ask->owed = 0;
            goto done;
        }

        /* without the right to read it the gateway may delete it */

        op->version = -1;
        break;
    }

    zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

    ask->version = op->version;

    if (ask->node) {

        /* of that version, since it may be another claim's by now */

        next = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_DELETE, NULL,
                                      ngx_http_zk_lock_ask_delete_handler,
                                      ask);
        if (next != NULL) {
            next->version = ask->version;
        }

        ngx_http_zk_lock_ask_send(ask, next);
        goto done;
    }

    if (ask->type == NGX_HTTP_ZK_LOCK_BREAK) {
        ask->version = -1;

    } else if (!ask->dropped
               && ((label.index >= 0 && label.holds > 1)
                   || (label.index < 0 && label.revoke)))
    {
        ask->owed = 0;

        /* that is a wish; how often a Curator client's mark does not tell */

        ngx_http_zk_lock_ask_inspect(ask);
        goto done;
    }

    next = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_GET, NULL,
                                  ngx_http_zk_lock_ask_parent_handler, ask);
    if (next != NULL) {
        next->whole = 1;
    }

    ngx_http_zk_lock_ask_send(ask, next);

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


static void
ngx_http_zk_lock_ask_parent_handler(ngx_http_zk_lock_op_t *op)
{
    u_char                  buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t               name;
    ngx_http_zk_lock_op_t  *set, *delete;
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    if (op->rc == NGX_HTTP_ZK_LOCK_UNKNOWN
        || op->rc == NGX_HTTP_ZK_LOCK_UNSENT)
    {
        goto done;
    }

    ngx_http_zk_lock_ask_name(ask, &name, buf);

    delete = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_DELETE, &name,
                                     ngx_http_zk_lock_ask_delete_handler,
                                     ask);
    if (delete == NULL) {
        goto done;
    }

    set = ngx_http_zk_lock_ask_touch_op(ask, op);

    delete->version = ask->version;
    delete->gather = (set != NULL);
    ngx_http_zk_lock_ask_send(ask, delete);

    if (set != NULL) {
        set->gather = 1;
        ngx_http_zk_lock_ask_send(ask, set);
    }

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


/* Two releases at once: the one that came second says so by itself. */

static void
ngx_http_zk_lock_ask_touched_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    if (op->rc == NGX_HTTP_ZK_LOCK_CHANGED
        && ++ask->touches < NGX_HTTP_ZK_LOCK_TOUCHES_MAX)
    {
        ngx_http_zk_lock_ask_touch(ask);
    }

    ngx_http_zk_lock_ask_unpin(ask);
}


void
ngx_http_zk_lock_ask_touch(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_op_t  *get;

    if (ask->node) {
        /* a claim that is the lock's znode has no other claims beside it */
        return;
    }

    get = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_GET, NULL,
                                  ngx_http_zk_lock_ask_touch_handler, ask);
    if (get != NULL) {
        get->whole = 1;
        ngx_http_zk_lock_ask_send(ask, get);
    }
}


static void
ngx_http_zk_lock_ask_touch_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_op_t   *set;
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    set = ngx_http_zk_lock_ask_touch_op(ask, op);

    if (set != NULL) {
        ngx_http_zk_lock_ask_send(ask, set);
    }

    ngx_http_zk_lock_ask_unpin(ask);
}


/*
 * Sets the lock's znode to what get has read of it; NULL if that is not known
 * to its end, or there is no memory.
 */

static ngx_http_zk_lock_op_t *
ngx_http_zk_lock_ask_touch_op(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *get)
{
    ngx_http_zk_lock_op_t  *op;

    if (get->rc != NGX_HTTP_ZK_LOCK_OK || get->cut) {
        return NULL;
    }

    op = ngx_http_zk_lock_op_new(ask->worker->session,
                                 NGX_HTTP_ZK_LOCK_OP_SET, &ask->path, NULL,
                                 &get->reply);
    if (op == NULL) {
        return NULL;
    }

    op->version = get->version;
    op->handler = ngx_http_zk_lock_ask_touched_handler;
    op->data = ask;

    return op;
}


static void
ngx_http_zk_lock_ask_delete_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);
        ask->owed = 0;
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:

        if (ngx_http_zk_lock_ask_rename(ask) == NGX_OK) {
            ngx_http_zk_lock_ask_delete(ask);
            break;
        }

        ngx_http_zk_lock_ask_missing(ask);
        break;

    case NGX_HTTP_ZK_LOCK_CHANGED:

        /* it was renewed, or is held more than once by now */

        ngx_http_zk_lock_ask_delete(ask);
        break;

    case NGX_HTTP_ZK_LOCK_UNKNOWN:
    case NGX_HTTP_ZK_LOCK_UNSENT:
        ask->owed = 1;
        ask->tries += (op->rc == NGX_HTTP_ZK_LOCK_UNKNOWN);
        break;

    default:
        ngx_http_zk_lock_ask_failed(ask, op->rc);
        ask->owed = 0;
        break;
    }

    ngx_http_zk_lock_ask_unpin(ask);
}


/*
 * The claim's znode is not there.  If an earlier try may have deleted it, the
 * claim was released.  So it was if the heir of a dead worker deleted it,
 * because the record says that the claim has no holds any more: the heir frees
 * the record when it knows, and the record tells.
 */

void
ngx_http_zk_lock_ask_missing(ngx_http_zk_lock_ask_t *ask)
{
    ngx_int_t                  rc;
    ngx_http_zk_lock_record_t  record;

    ask->owed = 0;

    if (ask->tries != 0 || !ask->dropped) {
        ngx_http_zk_lock_ask_tell(ask, ask->tries
                                       ? NGX_HTTP_ZK_LOCK_ASK_OK
                                       : NGX_HTTP_ZK_LOCK_ASK_GONE);
        return;
    }

    rc = ngx_http_zk_lock_record_read(ask->worker->zone, &ask->token.id,
                                      &ask->path, &record);

    if (rc != NGX_OK && rc != NGX_AGAIN) {
        ngx_http_zk_lock_ask_ended(ask);
        return;
    }

    if (!ask->missing) {
        ask->missing = 1;
        ask->missed = ngx_current_msec;
    }

    if (ngx_current_msec - ask->missed >= NGX_HTTP_ZK_LOCK_SIBLING_WAIT) {

        /* it was not deleted for this release */

        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_GONE);
        return;
    }

    ngx_add_timer(&ask->timer, NGX_HTTP_ZK_LOCK_MISSING_AGAIN);
}


/* Its record is free: that tells how it ended. */

static void
ngx_http_zk_lock_ask_ended(ngx_http_zk_lock_ask_t *ask)
{
    ngx_int_t                  lost;
    ngx_http_zk_lock_answer_e  answer;

    lost = ngx_http_zk_lock_record_lost(ask->worker->zone,
                                        ask->token.id.record, ask->gen);

    answer = NGX_HTTP_ZK_LOCK_ASK_OK;

    if (lost == NGX_OK) {
        answer = NGX_HTTP_ZK_LOCK_ASK_GONE;

    } else if (lost == NGX_AGAIN) {

        /* this worker slept for longer than a record remembers */

        answer = NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE;
    }

    ngx_http_zk_lock_ask_tell(ask, answer);
}


static void
ngx_http_zk_lock_ask_released(void *data, ngx_http_zk_lock_rc_e rc)
{
    ngx_http_zk_lock_ask_t *ask = data;

    ask->mourning = 0;

    if (rc == NGX_HTTP_ZK_LOCK_OK) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);

    } else if (rc == NGX_HTTP_ZK_LOCK_NO_NODE) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_GONE);

    } else {
        ngx_http_zk_lock_ask_failed(ask, rc);
    }

    ngx_http_zk_lock_ask_free(ask);
}


void
ngx_http_zk_lock_ask_rung(ngx_http_zk_lock_ask_t *ask)
{
    ngx_int_t                  rc;
    ngx_http_zk_lock_record_t  record;

    if (ngx_http_zk_lock_record_read(ask->worker->zone, &ask->token.id,
                                     &ask->path, &record)
        != NGX_DECLINED)
    {
        ngx_http_zk_lock_bell_hang(ask->worker, &ask->bell,
                                   ask->token.id.record);
        return;
    }

    rc = ngx_http_zk_lock_record_forsaken(ask->worker->zone, &ask->token.id,
                                          &ask->path);

    if (rc != NGX_DECLINED) {

        /* its worker may be gone, and the claim live */

        ask->tries += (rc == NGX_AGAIN
                       && ngx_http_zk_lock_record_lost(ask->worker->zone,
                                                      ask->token.id.record,
                                                      ask->gen)
                          == NGX_DECLINED);

        ngx_del_timer(&ask->timer);
        ngx_http_zk_lock_ask_delete(ask);
        return;
    }

    ngx_http_zk_lock_ask_ended(ask);
    ngx_http_zk_lock_ask_free(ask);
}


/*
 * The sibling may be dead, and its heir may have carried out the release.  A
 * claim that had begun to end before may have ended for another reason.
 */

void
ngx_http_zk_lock_ask_forsaken(ngx_http_zk_lock_ask_t *ask)
{
    ask->tries += !ask->ended;

    ngx_http_zk_lock_bell_take_down(ask->worker, &ask->bell);
    ngx_http_zk_lock_ask_delete(ask);
}
