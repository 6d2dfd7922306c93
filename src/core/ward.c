
/*
 * Wards: the claims of a worker that is dead or has left, one by one, until the
 * claim is deleted or has become a claim of this worker.
 *
 *            connected         the answer
 *   ------   ---------------   -----------------------------------------------
 *   FIND     list              DELETE, LOOK, or freed (after some time)
 *   LOOK     get               DELETE (version), READ, or freed
 *   READ     get               made durable, and READ again; or, if durable,
 *                              a claim of this worker; or freed
 *            delete            the lease was over: freed, or READ again
 *   DELETE   delete            freed
 *
 * A ward is in no view: the waiters behind the ward, in this worker too, know
 * the claim by the record, as a sibling's, or by the znode.  The znode of a
 * one-node lock may be another claim's by now, so the worker reads the znode
 * first, and deletes by the version that was read.
 *
 * A claim that waited alone (a client may call for the claim later) may be held
 * all the same, because a client with the token may call at any gateway, and a
 * gateway that sees no claim ahead writes into the claim data that the claim is
 * held and tells so.  The worker therefore deletes such a claim by the version
 * of claim data that do not say "held".
 *
 * All of the code runs on the event loop.  The work on a ward begins anew with
 * each connection of the adopted session; `op` is NULL in between, and `share`
 * is NULL unless the claim is about to be durable.
 */


#include "core/ward.h"
#include "core/mark.h"
#include "core/node.h"
#include "core/share.h"


/* how long a create of a dead worker may take to show, in ms */
#define ZKL_LATE               3000


static zkl_op_t *zkl_ward_op(zkl_ward_t *ward);
static void zkl_ward_handler(zkl_op_t *op);
static void zkl_ward_found(zkl_ward_t *ward, zkl_op_t *op);
static void zkl_ward_missing(zkl_ward_t *ward);
static void zkl_ward_look(zkl_ward_t *ward, zkl_op_t *op);
static void zkl_ward_read(zkl_ward_t *ward, zkl_op_t *op);
static void zkl_ward_secure(zkl_ward_t *ward);
static void zkl_ward_lease(zkl_ward_t *ward);
static void zkl_ward_secured(void *data, ngx_int_t rc);
static void zkl_ward_deleted(zkl_ward_t *ward, zkl_op_t *op);
static ngx_uint_t zkl_ward_lost(zkl_ward_t *ward);


void
zkl_ward_take(void *data, zkl_record_t *record, ngx_str_t *path)
{
    zkl_estate_t  *estate = data;

    zkl_ward_t    *ward;
    zkl_worker_t  *worker;

    worker = estate->worker;

    if (record->kind == ZKL_NODE
        && (record->state != ZKL_RECORD_HELD || record->bound))
    {
        /* the record ends now: no sibling waits until the znode is gone */

        zkl_record_publish(estate->zone, record->id.record, record->seq, 0, 0);
        zkl_record_end(estate->zone, record->id.record);

        if (record->seq == -1) {

            /* the claim never had a znode */

            zkl_record_free(estate->zone, record->id.record);
            return;
        }

        record->seq = -1;
    }

    if (record->state == ZKL_RECORD_OPEN) {

        /* the session was over before the worker died */

        zkl_record_ending(estate->zone, record->id.record,
                          ZKL_ENDING_FORSAKEN);
        zkl_record_free(estate->zone, record->id.record);
        return;
    }

    ward = ngx_calloc(sizeof(zkl_ward_t) + path->len, worker->log);
    if (ward == NULL) {
        estate->failed = 1;
        return;
    }

    ward->estate = estate;
    ward->node.key = record->id.record;
    ward->id = record->id;
    ward->named = record->id;
    ward->named.record = record->named;
    ward->kind = record->kind;
    ward->other = record->was;
    ward->seq = record->seq;
    ward->alone = (record->ttl != 0 && !record->bound
                   && record->kind != ZKL_NODE
                   && (record->state == ZKL_RECORD_NEW
                       || record->state == ZKL_RECORD_WAITING));

    ward->path.len = path->len;
    ward->path.data = (u_char *) ward + sizeof(zkl_ward_t);
    ngx_memcpy(ward->path.data, path->data, path->len);

    if (record->seq == -1) {
        ward->state = ZKL_WARD_FIND;

    } else if (record->state == ZKL_RECORD_HELD && !record->bound)
    {
        ward->state = ZKL_WARD_READ;

        /* the dead worker may have deleted a claim that was released */

        ward->seen = !zkl_record_asked(estate->zone, record->id.record);

        /* from here on the claim is held, even if the leader is deleted */

        zkl_record_unbind(estate->zone, record->id.record);

    } else if (ward->alone) {
        ward->state = ZKL_WARD_LOOK;

    } else {
        ward->state = ZKL_WARD_DELETE;
    }

    ngx_rbtree_insert(&worker->wards, &ward->node);
    ngx_queue_insert_tail(&estate->wards, &ward->queue);
}


zkl_ward_t *
zkl_ward_find(zkl_worker_t *worker, uint32_t record)
{
    ngx_rbtree_node_t  *node;

    node = worker->wards.root;

    while (node != worker->wards.sentinel && node->key != record) {
        node = (record < node->key) ? node->left : node->right;
    }

    return (node != worker->wards.sentinel) ? (zkl_ward_t *) node : NULL;
}


void
zkl_ward_go(zkl_ward_t *ward)
{
    zkl_op_t       *op;
    zkl_session_t  *session;

    session = ward->estate->session;

    if (ward->op != NULL || ward->share != NULL
        || !zkl_session_connected(session))
    {
        return;
    }

    op = zkl_ward_op(ward);
    if (op == NULL) {
        /* the sweep tries again */
        return;
    }

    op->handler = zkl_ward_handler;
    op->data = ward;

    ward->op = op;

    zkl_session_send(op);
}


static zkl_op_t *
zkl_ward_op(zkl_ward_t *ward)
{
    u_char          buf[ZKL_CLAIM_MAX];
    ngx_str_t       name;
    zkl_op_t       *op;
    zkl_session_t  *session;

    session = ward->estate->session;

    if (ward->state == ZKL_WARD_FIND) {
        return zkl_op_new(session, ward->kind == ZKL_NODE
                                   ? ZKL_OP_GET
                                   : ZKL_OP_LIST,
                          &ward->path, NULL, NULL);
    }

    name.data = buf;
    name.len = zkl_name_claim_write((char *) buf, &ward->named, ward->kind,
                                    ward->seq);

    if ((ward->state == ZKL_WARD_READ && !ward->over)
        || ward->state == ZKL_WARD_LOOK)
    {
        return zkl_op_new(session, ZKL_OP_GET, &ward->path, &name, NULL);
    }

    op = zkl_op_new(session, ZKL_OP_DELETE, &ward->path, &name, NULL);

    if (op == NULL) {
        return NULL;
    }

    if (ward->kind == ZKL_NODE || ward->alone || ward->over) {
        op->version = ward->version;
    }

    op->gather = (ward->kind != ZKL_NODE);

    return op;
}


static void
zkl_ward_handler(zkl_op_t *op)
{
    zkl_ward_t  *ward;

    ward = op->data;
    ward->op = NULL;

    if (op->rc == ZKL_NO_NODE && ward->kind != ward->other) {

        /* the worker died while it renamed the claim: try the old name */

        ward->kind = ward->other;

        zkl_ward_go(ward);
        return;
    }

    if (op->rc == ZKL_OK && ward->kind == ZKL_NODE
        && op->type == ZKL_OP_GET
        && !zkl_node_is(&ward->named, op))
    {
        op->rc = ZKL_NO_NODE;
    }

    if (op->rc == ZKL_NO_NODE) {

        if (ward->state == ZKL_WARD_FIND) {
            zkl_ward_missing(ward);

        } else {
            zkl_ward_done(ward);
        }

        return;
    }

    if (op->type == ZKL_OP_DELETE
        && (op->rc == ZKL_OK
            || op->rc == ZKL_UNKNOWN))
    {
        ward->seen = 0;
    }

    if (op->rc != ZKL_OK && op->rc != ZKL_CHANGED) {
        /* the sweep, or the next connection, tries again */
        return;
    }

    switch (op->type) {

    case ZKL_OP_LIST:
        zkl_ward_found(ward, op);
        break;

    case ZKL_OP_GET:

        if (ward->state == ZKL_WARD_FIND) {
            ward->state = ZKL_WARD_DELETE;
            ward->version = op->version;
            zkl_ward_go(ward);
            break;
        }

        if (ward->alone) {
            zkl_ward_look(ward, op);
            break;
        }

        zkl_ward_read(ward, op);
        break;

    default: /* ZKL_OP_DELETE */
        zkl_ward_deleted(ward, op);
        break;
    }
}


/* The id shows the claim's znode, unless the create never happened. */

static void
zkl_ward_found(zkl_ward_t *ward, zkl_op_t *op)
{
    ngx_uint_t   i;
    zkl_child_t  child;

    for (i = 0; i < op->nchildren; i++) {

        if (zkl_name_child_read(&child, (char *) op->children[i].data,
                                op->children[i].len)
            == 0
            && child.has_id
            && child.id.record == ward->id.record
            && zkl_name_secret_equal(child.id.random, ward->id.random,
                                     ZKL_RANDOM_LEN))
        {
            ward->seq = child.seq;
            ward->kind = child.kind;
            ward->other = child.kind;

            if (ward->alone) {
                ward->state = ZKL_WARD_LOOK;
                zkl_ward_go(ward);
                return;
            }

            zkl_ward_delete(ward);
            return;
        }
    }

    zkl_ward_missing(ward);
}


/*
 * The server may still execute a create that the dead worker has sent: the ward
 * lists again.  If all wards of the estate wait for such a create, the session
 * is closed, because no create happens after the close.
 */

static void
zkl_ward_missing(zkl_ward_t *ward)
{
    ngx_msec_t    now;
    ngx_queue_t  *q;
    zkl_ward_t   *other;

    now = zkl_now();

    if (ward->missed == 0) {
        ward->missed = now ? now : 1;
    }

    if (now - ward->missed >= ZKL_LATE) {
        zkl_ward_done(ward);
        return;
    }

    for (q = ngx_queue_head(&ward->estate->wards);
         q != ngx_queue_sentinel(&ward->estate->wards);
         q = ngx_queue_next(q))
    {
        other = ngx_queue_data(q, zkl_ward_t, queue);

        if (other->state != ZKL_WARD_FIND || other->missed == 0) {
            return;
        }
    }

    ngx_post_event(&ward->estate->over, &ngx_posted_events);
}


/* A GET has read the znode of a claim that waited alone. */

static void
zkl_ward_look(zkl_ward_t *ward, zkl_op_t *op)
{
    ngx_msec_t        ttl;
    zkl_claim_data_t  label;
    zkl_zone_t       *zone;

    zone = ward->estate->zone;

    if (ward->state != ZKL_WARD_LOOK) {

        /* the claim was released meanwhile */

        zkl_ward_go(ward);
        return;
    }

    zkl_claim_data_read(&label, (char *) op->reply.data, op->reply.len);

    if (label.async || label.index < 0 || label.ttl == 0) {
        ward->version = op->version;
        ward->state = ZKL_WARD_DELETE;
        zkl_ward_go(ward);
        return;
    }

    ward->alone = 0;
    ttl = (ngx_msec_t) label.ttl;

    zkl_record_publish(zone, ward->id.record, ward->seq, op->czxid,
                       (ngx_uint_t) label.index);
    zkl_record_grant(zone, ward->id.record, ttl, zkl_now() + ttl,
                     ZKL_DELIVERED_ELSEWHERE);

    ward->state = ZKL_WARD_READ;
    zkl_ward_read(ward, op);
}


/* A GET has read the znode of a held claim. */

static void
zkl_ward_read(zkl_ward_t *ward, zkl_op_t *op)
{
    zkl_claim_data_t  label;
    zkl_zone_t       *zone;

    zone = ward->estate->zone;

    if (ward->state != ZKL_WARD_READ) {

        /* the claim was released meanwhile */

        zkl_ward_go(ward);
        return;
    }

    if (zkl_record_asked(zone, ward->id.record)) {
        zkl_ward_delete(ward);
        return;
    }

    ward->seen = 1;
    ward->version = op->version;

    /* the dead worker may not have heard of a renewal at another gateway */

    zkl_claim_data_read(&label, (char *) op->reply.data, op->reply.len);

    (void) zkl_record_renewed(zone, ward->id.record, op->version,
                              label.renewals, (ngx_msec_t) label.ttl, 0);

    if (op->owner != 0) {
        zkl_ward_secure(ward);
        return;
    }

    (void) zkl_ward_move(ward, op);
}


ngx_uint_t
zkl_ward_outlives(zkl_ward_t *ward)
{
    return ward->state == ZKL_WARD_READ
           || ward->state == ZKL_WARD_DELETE
           || ward->kind == ZKL_NODE;
}


ngx_int_t
zkl_ward_move(zkl_ward_t *ward, zkl_op_t *get)
{
    ngx_int_t      rc;
    zkl_estate_t  *estate;
    zkl_record_t   record;

    estate = ward->estate;

    if (zkl_record_read(estate->zone, &ward->id, &ward->path, &record)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (get != NULL) {
        record.was = ward->kind;
    }

    rc = zkl_claim_move(estate->worker, &ward->path, &record, get,
                        ward->state != ZKL_WARD_READ);
    if (rc == NGX_BUSY) {

        /* a claim with another record counts the lease already */

        zkl_record_ending(estate->zone, ward->id.record, ZKL_ENDING_FORSAKEN);
        zkl_record_free(estate->zone, ward->id.record);

    } else if (rc != NGX_OK) {

        /* the sweep tries again */

        return rc;
    }

    zkl_ward_free(ward);

    if (ngx_queue_empty(&estate->wards)) {
        ngx_post_event(&estate->over, &ngx_posted_events);
    }

    return NGX_OK;
}


static void
zkl_ward_secure(zkl_ward_t *ward)
{
    ngx_str_t      gate;
    zkl_estate_t  *estate;
    zkl_worker_t  *worker;

    estate = ward->estate;
    worker = estate->worker;

    if (ward->unfit || zkl_mark_ready(worker, &ward->path, &gate) != NGX_OK) {
        /* the sweep tries again */

        zkl_ward_lease(ward);
        return;
    }

    ward->share = zkl_share(worker, &ward->path, &ward->named, ward->id.record,
                            ward->kind, ward->seq, &gate, 1, zkl_ward_secured,
                            ward);
}


/* A lease that cannot become durable, or not yet, ends at the deadline. */

static void
zkl_ward_lease(zkl_ward_t *ward)
{
    ngx_msec_t  lease;

    if (zkl_record_lease_over(ward->estate->zone, ward->id.record, zkl_now(),
                              &lease)
        != NGX_OK)
    {
        return;
    }

    ngx_log_error(NGX_LOG_INFO, ward->estate->worker->log, 0,
                  "a lease of \"%V\" is over", &ward->path);

    ward->over = 1;

    zkl_ward_go(ward);
}


static void
zkl_ward_secured(void *data, ngx_int_t rc)
{
    zkl_ward_t  *ward = data;

    ward->share = NULL;

    if (ward->ending) {
        ward->ending = 0;
        zkl_ward_delete(ward);
        return;
    }

    if (rc == NGX_DECLINED) {
        zkl_ward_done(ward);
        return;
    }

    if (rc == NGX_ERROR) {
        ngx_log_error(NGX_LOG_WARN, ward->estate->worker->log, 0,
                      "ZooKeeper refuses to make a lease of \"%V\" durable: "
                      "it ends with the session of its worker", &ward->path);

        ward->unfit = 1;
        return;
    }

    zkl_ward_go(ward);
}


void
zkl_ward_unshare(zkl_ward_t *ward)
{
    if (ward->share == NULL) {
        return;
    }

    zkl_share_free(ward->share);
    ward->share = NULL;

    if (ward->ending) {
        ward->ending = 0;
        zkl_ward_delete(ward);
    }
}


static void
zkl_ward_deleted(zkl_ward_t *ward, zkl_op_t *op)
{
    if (op->rc == ZKL_OK) {

        if (ward->over) {
            zkl_record_ending(ward->estate->zone, ward->id.record,
                              ZKL_ENDING_EXPIRED);
        }

        zkl_ward_done(ward);
        return;
    }

    if (ward->over) {

        /* another gateway may have renewed the lease */

        ward->over = 0;
        zkl_ward_go(ward);
        return;
    }

    if (ward->kind == ZKL_NODE) {
        ward->state = ZKL_WARD_FIND;

    } else if (ward->alone) {
        ward->state = ZKL_WARD_LOOK;
    }

    zkl_ward_go(ward);
}


void
zkl_ward_delete(zkl_ward_t *ward)
{
    if (ward->share != NULL) {

        /* the znode's name is not known until the share is done */

        ward->ending = 1;
        return;
    }

    ward->state = ZKL_WARD_DELETE;
    ward->alone = 0;
    ward->over = 0;

    if (ward->kind == ZKL_NODE) {
        ward->state = ZKL_WARD_FIND;
        ward->missed = zkl_now() - ZKL_LATE;
    }

    zkl_record_end(ward->estate->zone, ward->id.record);
    zkl_ward_go(ward);
}


void
zkl_ward_done(zkl_ward_t *ward)
{
    zkl_estate_t  *estate;

    estate = ward->estate;

    if (zkl_ward_lost(ward)) {
        zkl_record_lose(estate->zone, ward->id.record);
    }

    zkl_record_end(estate->zone, ward->id.record);
    zkl_record_free(estate->zone, ward->id.record);

    zkl_ward_free(ward);

    if (ngx_queue_empty(&estate->wards)) {
        ngx_post_event(&estate->over, &ngx_posted_events);
    }
}


/*
 * Whether the lease was over, or the znode gone, before a client released the
 * claim.  If the release came before the claim became a ward, the dead worker
 * may have deleted the znode; later only a foreign client can have done so.
 */

static ngx_uint_t
zkl_ward_lost(zkl_ward_t *ward)
{
    switch (ward->state) {

    case ZKL_WARD_READ:
        return ward->seen
               || !zkl_record_asked(ward->estate->zone, ward->id.record);

    case ZKL_WARD_DELETE:
        return ward->seen;

    default:
        return 0;
    }
}


void
zkl_ward_free(zkl_ward_t *ward)
{
    zkl_worker_t  *worker;

    worker = ward->estate->worker;

    if (ward->op != NULL) {
        ward->op->handler = NULL;
    }

    if (ward->share != NULL) {
        zkl_share_free(ward->share);
    }

    ngx_rbtree_delete(&worker->wards, &ward->node);
    ngx_queue_remove(&ward->queue);

    ngx_free(ward);
}
