
/*
 * What other gateways have written about a claim, or want of the claim.
 *
 * Another gateway renews a claim by writing to the znode's data, and writes
 * wishes there, too: to hold the claim once more or once less, to share the
 * claim, to let go.  That gateway also changes the lock's znode, or a watch on
 * the claim tells; then this worker reads the data.  A worker shares a claim
 * for such a wish, or for a call at this gateway.
 *
 * Everything here runs on the event loop.  `share` is NULL unless the claim is
 * about to be shared: until that is done the znode's name is not known.
 */


#include "ngx_http_zk_lock_node.h"


static void ngx_http_zk_lock_claim_reread_handler(ngx_http_zk_lock_op_t *op);
static ngx_msec_t ngx_http_zk_lock_claim_shorter(
    ngx_http_zk_lock_claim_t *claim, zk_lock_label_t *label);
static ngx_uint_t ngx_http_zk_lock_claim_shown(
    ngx_http_zk_lock_claim_t *claim, zk_lock_label_t *label);
static void ngx_http_zk_lock_claim_renewed(ngx_http_zk_lock_claim_t *claim);
static ngx_uint_t ngx_http_zk_lock_claim_wishes(
    ngx_http_zk_lock_claim_t *claim, zk_lock_label_t *label);
static void ngx_http_zk_lock_claim_relabel(ngx_http_zk_lock_claim_t *claim,
    zk_lock_label_t *label, int32_t version);
static void ngx_http_zk_lock_claim_relabel_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_shared(void *data, ngx_int_t rc);


void
ngx_http_zk_lock_claim_changed(ngx_http_zk_lock_claim_t *claim,
    ngx_uint_t deleted)
{
    claim->watched = 0;

    if (claim->state == NGX_HTTP_ZK_LOCK_TAKE) {
        ngx_http_zk_lock_claim_take(claim);
        return;
    }

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

    if (claim->state == NGX_HTTP_ZK_LOCK_LAPSE && claim->op != NULL) {
        /* our delete is under way: its answer tells which delete was first */
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

void
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
    ngx_msec_t                 ttl, seen;
    zk_lock_label_t            label;
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE
        || (op->rc == NGX_HTTP_ZK_LOCK_OK && claim->lock->node
            && !ngx_http_zk_lock_node_of(claim, op)))
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

    if (ngx_http_zk_lock_claim_taken(claim, &label)) {

        /* this worker stood still for longer than its gate existed */

        ngx_http_zk_lock_claim_yield(claim);
        return;
    }

    ttl = (ngx_msec_t) label.ttl;
    seen = ngx_http_zk_lock_claim_shorter(claim, &label);

    if (claim->entry.waiting) {
        claim->alone = 1;
        ttl = claim->grace;

        if (ngx_http_zk_lock_claim_shown(claim, &label)) {
            claim->seen = 1;
            claim->limited = 0;
            claim->counting = 0;
            claim->expired = claim->expired && claim->handler != NULL;
            claim->ttl = label.ttl ? (ngx_msec_t) label.ttl : claim->ttl;
        }
    }

    /*
     * The time of a renewal cannot be known, since the other gateway has a
     * clock of its own: the lease counts from now, and so does not end before
     * the time that was told.
     */

    rc = ngx_http_zk_lock_record_renewed(claim->lock->worker->zone,
                                         claim->id.record, op->version,
                                         label.renewals, ttl, seen);

    if (!label.async && label.index >= 0
        && ngx_http_zk_lock_record_seen(claim->lock->worker->zone,
                                        claim->id.record, claim->ttl)
           == NGX_OK)
    {
        rc = NGX_OK;
    }

    if (claim->entry.waiting && claim->seen) {
        ngx_http_zk_lock_record_keep(claim->lock->worker->zone,
                                     claim->id.record, claim->ttl,
                                     ngx_http_zk_lock_now() + claim->ttl);
        rc = NGX_OK;
    }

    if (rc == NGX_OK) {
        claim->lapsed = 0;

        if (claim->state == NGX_HTTP_ZK_LOCK_LAPSE && !claim->entry.waiting
            && ngx_queue_empty(&claim->mourners))
        {
            /* the renewal may be a wish, which only a held claim fulfils */

            ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_HELD);
        }
    }

    if (ngx_http_zk_lock_claim_wishes(claim, &label)) {
        ngx_http_zk_lock_claim_relabel(claim, &label, op->version);
    }

    if (claim->state == NGX_HTTP_ZK_LOCK_DELETE
        || claim->state == NGX_HTTP_ZK_LOCK_OWED)
    {
        /* a wish released the claim */
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


/*
 * The lease that the data may make shorter: a lease that no call at this
 * gateway has renewed since the last sweep; 0: none.  The lease of a waiting
 * claim is the grace, which is the same for all gateways.
 */

static ngx_msec_t
ngx_http_zk_lock_claim_shorter(ngx_http_zk_lock_claim_t *claim,
    zk_lock_label_t *label)
{
    ngx_uint_t  shorter;

    shorter = ngx_http_zk_lock_record_said(claim->lock->worker->zone,
                                           claim->id.record, &claim->said,
                                           label);

    if (claim->bound && !claim->leased) {
        return 0;
    }

    return (shorter || claim->entry.waiting) ? claim->lease : 0;
}


/*
 * Whether another gateway has told that a claim is held which waits here: that
 * gateway saw no claim ahead.  This worker has yet to grant the claim; until
 * then the lease counts as told.
 */

static ngx_uint_t
ngx_http_zk_lock_claim_shown(ngx_http_zk_lock_claim_t *claim,
    zk_lock_label_t *label)
{
    return claim->grace != 0 && !claim->bound && label->index >= 0
           && !label->async;
}


static void
ngx_http_zk_lock_claim_renewed(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->state == NGX_HTTP_ZK_LOCK_LAPSE) {
        ngx_http_zk_lock_claim_state(claim, claim->entry.waiting
                                            ? NGX_HTTP_ZK_LOCK_WAIT
                                            : NGX_HTTP_ZK_LOCK_HELD);
    }

    if (!ngx_queue_empty(&claim->mourners)
        || (claim->bound && claim->handler == NULL && claim->event == NULL))
    {
        /* the claim was released, or the holder's connection is gone */

        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_CANCELLED);
        return;
    }

    if (claim->expired && claim->handler != NULL) {
        ngx_http_zk_lock_claim_leave(claim, NGX_HTTP_ZK_LOCK_TAKEN);
    }

    ngx_http_zk_lock_claim_rung(claim);

    if (claim->state == NGX_HTTP_ZK_LOCK_WAIT) {

        /* the waiter may have to be told that the claim still waits */

        claim->lock->settle |= (claim->handler != NULL);

        ngx_http_zk_lock_claim_single(claim);
        ngx_http_zk_lock_lock_advance(claim->lock);

    } else if (claim->handler != NULL || claim->lock->worker->leaving) {

        /* the claim could not become durable before the renewal was known */

        ngx_http_zk_lock_claim_durable(claim);
    }
}


/*
 * Fulfils what other gateways want of the claim.  Returns 1 if the worker has
 * to write the claim's label anew, from label.
 */

static ngx_uint_t
ngx_http_zk_lock_claim_wishes(ngx_http_zk_lock_claim_t *claim,
    zk_lock_label_t *label)
{
    ngx_msec_t  ttl;
    ngx_uint_t  write;

    write = 0;

    if (claim->state != NGX_HTTP_ZK_LOCK_HELD) {
        return 0;
    }

    if (label->index < 0 && label->revoke) {

        /* a Curator client has written a mark over the label */

        zk_lock_label_read(label, (char *) claim->label, claim->label_len);
        label->ttl = claim->said.ttl ? (int64_t) claim->said.ttl : label->ttl;
        label->revoke = 1;
        label->mended = (uint32_t) ngx_random() | 1;

        ngx_http_zk_lock_record_label(claim->lock->worker->zone,
                                      claim->id.record, label);

        if (claim->durable) {
            label->gate_len = NGX_HTTP_ZK_LOCK_GATE_LEN;
            ngx_memcpy(label->gate, claim->gate, NGX_HTTP_ZK_LOCK_GATE_LEN);
        }

        write = 1;
    }

    if (label->revoke && !claim->revoked) {
        claim->revoked = 1;
        ngx_http_zk_lock_claim_tell(claim, NGX_HTTP_ZK_LOCK_EVENT_REVOKE,
                                    NULL);
    }

    ttl = ngx_http_zk_lock_record_ttl(claim->lock->worker->zone,
                                      claim->id.record, NULL);

    if (claim->durable && label->ttl > 0 && (int64_t) ttl > label->ttl) {

        /* a holder was told the longer ttl while the claim became durable */

        label->ttl = (int64_t) ttl;
        write = 1;
    }

    if (label->want_len == 0) {
        return write;
    }

    if (ngx_strcmp(label->want, "shared") == 0) {
        ngx_http_zk_lock_claim_share(claim);
        return write;
    }

    /* a wish is counted once, however often the label has to be written */

    if (ngx_http_zk_lock_record_wish(claim->lock->worker->zone, &claim->id,
                                     &claim->lock->sn.str, label,
                                     &claim->holds)
        != NGX_OK)
    {
        return write;
    }

    if (claim->holds == 0) {
        ngx_http_zk_lock_record_ending(claim->lock->worker->zone,
                                       claim->id.record,
                                       NGX_HTTP_ZK_LOCK_ENDING_RELEASED);
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
        /* the sweep reads the label again */
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
    zk_lock_id_t              id;
    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;

    if (claim->state != NGX_HTTP_ZK_LOCK_HELD || claim->share != NULL
        || (claim->entry.kind != ZK_LOCK_MUTEX
            && claim->entry.kind != ZK_LOCK_WRITE))
    {
        return;
    }

    id = ngx_http_zk_lock_claim_id(claim);

    claim->share = ngx_http_zk_lock_share(lock->worker, &lock->sn.str,
                                          &id, claim->id.record,
                                          claim->entry.kind, claim->entry.seq,
                                          NULL, ngx_http_zk_lock_claim_shared,
                                          claim);
    if (claim->share == NULL) {
        return;
    }

    /* readers behind the claim may be granted: sharing cannot be undone */

    claim->entry.kind = ZK_LOCK_READ;

    ngx_http_zk_lock_lock_advance(lock);
}


static void
ngx_http_zk_lock_claim_shared(void *data, ngx_int_t rc)
{
    ngx_http_zk_lock_claim_t *claim = data;

    claim->share = NULL;
    claim->watched = 0;

    if (rc == NGX_DECLINED) {
        ngx_http_zk_lock_claim_changed(claim, 1);
        return;
    }

    if (claim->ending) {
        claim->ending = 0;
        ngx_http_zk_lock_claim_end(claim, claim->outcome);
        return;
    }

    /* another gateway may have written another wish meanwhile */

    ngx_http_zk_lock_claim_reread(claim, 0);

    ngx_http_zk_lock_claim_lease(claim);
}
