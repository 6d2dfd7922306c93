
/*
 * Sharing, and making durable.
 *
 * One transaction puts another znode into the claim's place.  It sets the
 * lock's znode to the data that the znode has, so that all gateways with claims
 * of the lock list the lock before they grant anything; it deletes the old
 * znode of the claim, and makes the new one.  A durable znode has the name of
 * the ephemeral one: a client that watches that name hears of the delete,
 * looks, and finds the claim there.  A reader has another name.  Its record is
 * changed first: the workers of this gateway go by the record.
 *
 * If the answer is lost, the same is tried again: then either the new znode is
 * there already, or nothing has happened, or the claim is gone.
 *
 * Everything here runs on the event loop.  `op` is NULL unless an operation is
 * under way; the share lives until it is done or its claim ends.
 */


#include "ngx_http_zk_lock_node.h"
#include "ngx_http_zk_lock_share.h"


struct ngx_http_zk_lock_share_s {
    ngx_http_zk_lock_session_t    *session;
    ngx_http_zk_lock_zone_t       *zone;
    ngx_http_zk_lock_op_t         *op;

    ngx_http_zk_lock_share_pt      handler;
    void                          *data;

    zk_lock_id_t                   id;      /* in its name */
    uint32_t                       record;
    zk_lock_kind_t                 kind;    /* before */
    zk_lock_kind_t                 to;      /* and afterwards */
    int64_t                        seq;
    ngx_str_t                      path;
    ngx_str_t                      gate;    /* "": it is to be shared */
    u_char                         gate_name[NGX_HTTP_ZK_LOCK_GATE_LEN];
    ngx_uint_t                     persistent;
    ngx_uint_t                     mends;

    int32_t                        version; /* of the label */
    u_char                         label[ZK_LOCK_LABEL_MAX];
    size_t                         label_len;
};


static void ngx_http_zk_lock_share_label_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_share_label(ngx_http_zk_lock_share_t *share,
    zk_lock_label_t *label);
static void ngx_http_zk_lock_share_read(ngx_http_zk_lock_share_t *share);
static void ngx_http_zk_lock_share_parent_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_share_rename(ngx_http_zk_lock_share_t *share,
    ngx_http_zk_lock_op_t *parent);
static void ngx_http_zk_lock_share_rename_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_share_look(ngx_http_zk_lock_share_t *share);
static void ngx_http_zk_lock_share_look_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_share_failed(ngx_http_zk_lock_share_t *share,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_share_send(ngx_http_zk_lock_share_t *share,
    ngx_http_zk_lock_op_t *op, ngx_http_zk_lock_op_pt handler);
static void ngx_http_zk_lock_share_done(ngx_http_zk_lock_share_t *share,
    ngx_int_t rc);
static ngx_str_t ngx_http_zk_lock_share_name(ngx_http_zk_lock_share_t *share,
    zk_lock_kind_t kind, u_char *buf);


ngx_http_zk_lock_share_t *
ngx_http_zk_lock_share(ngx_http_zk_lock_worker_t *worker, ngx_str_t *path,
    const zk_lock_id_t *id, uint32_t record, zk_lock_kind_t kind, int64_t seq,
    ngx_str_t *gate, ngx_http_zk_lock_share_pt handler, void *data)
{
    ngx_http_zk_lock_share_t  *share;

    share = ngx_calloc(sizeof(ngx_http_zk_lock_share_t) + path->len,
                       worker->log);
    if (share == NULL) {
        return NULL;
    }

    share->session = worker->session;
    share->zone = worker->zone;
    share->handler = handler;
    share->data = data;
    share->id = *id;
    share->record = record;
    share->kind = kind;
    share->to = gate ? kind : ZK_LOCK_READ;
    share->seq = seq;
    share->gate.data = share->gate_name;

    if (gate != NULL) {
        share->gate.len = NGX_HTTP_ZK_LOCK_GATE_LEN;
        ngx_memcpy(share->gate_name, gate->data, NGX_HTTP_ZK_LOCK_GATE_LEN);
    }

    share->path.len = path->len;
    share->path.data = (u_char *) share + sizeof(ngx_http_zk_lock_share_t);
    ngx_memcpy(share->path.data, path->data, path->len);

    if (gate == NULL) {
        ngx_http_zk_lock_record_kind(share->zone, record, ZK_LOCK_READ);
    }

    ngx_http_zk_lock_share_again(share);

    return share;
}


void
ngx_http_zk_lock_share_again(ngx_http_zk_lock_share_t *share)
{
    u_char      buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t   name;

    if (share->op != NULL
        || !ngx_http_zk_lock_session_connected(share->session))
    {
        return;
    }

    name = ngx_http_zk_lock_share_name(share, share->kind, buf);

    ngx_http_zk_lock_share_send(share,
                  ngx_http_zk_lock_op_new(share->session,
                                          NGX_HTTP_ZK_LOCK_OP_GET,
                                          &share->path, &name, NULL),
                  ngx_http_zk_lock_share_label_handler);
}


void
ngx_http_zk_lock_share_mend(ngx_http_zk_lock_share_t *share)
{
    share->mends = 1;
}


void
ngx_http_zk_lock_share_free(ngx_http_zk_lock_share_t *share)
{
    if (share->op != NULL) {
        share->op->handler = NULL;
    }

    ngx_free(share);
}


/*
 * The label goes along to the new znode: without the wish to share, and with
 * the czxid, which the claim's fencing token comes from.
 */

static void
ngx_http_zk_lock_share_label_handler(ngx_http_zk_lock_op_t *op)
{
    size_t                     index_at;
    zk_lock_label_t            label;
    ngx_http_zk_lock_share_t  *share;

    share = op->data;
    share->op = NULL;

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE
        || (op->rc == NGX_HTTP_ZK_LOCK_OK && share->kind == ZK_LOCK_NODE
            && !ngx_http_zk_lock_node_is(&share->id, op)))
    {
        ngx_http_zk_lock_share_look(share);
        return;
    }

    if (op->rc != NGX_HTTP_ZK_LOCK_OK) {
        ngx_http_zk_lock_share_failed(share, op);
        return;
    }

    share->persistent = (share->gate.len != 0 || op->owner == 0);

    if (share->gate.len != 0 && op->owner == 0) {

        /* the answer was lost */

        ngx_http_zk_lock_share_done(share, NGX_OK);
        return;
    }

    zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

    if (label.index < 0 && label.revoke && share->mends) {
        label.mended = (uint32_t) ngx_random() | 1;

        ngx_http_zk_lock_record_label(share->zone, share->record, &label);
    }

    if (label.index >= 0 && share->gate.len != 0
        && !ngx_http_zk_lock_record_knows(share->zone, share->record,
                                          label.renewals))
    {
        /* another gateway has renewed it: that counts first */

        ngx_http_zk_lock_share_done(share, NGX_AGAIN);
        return;
    }

    if (label.index >= 0) {
        ngx_http_zk_lock_share_label(share, &label);

        if (label.czxid == 0) {
            label.czxid = op->czxid;
        }

        share->label_len = zk_lock_label_write((char *) share->label, &label,
                                               &index_at);

    } else if (share->gate.len != 0) {

        /* a Curator client's mark: the sweep begins anew when it is mended */

        ngx_http_zk_lock_share_done(share, NGX_AGAIN);
        return;

    } else {
        share->label_len = op->reply.len;
        ngx_memcpy(share->label, op->reply.data, op->reply.len);
    }

    share->version = op->version;

    if (share->kind == ZK_LOCK_NODE) {
        ngx_http_zk_lock_share_rename(share, NULL);
        return;
    }

    ngx_http_zk_lock_share_read(share);
}


/*
 * A durable claim's label has the longest time that a holder was told, and how
 * often the claim is held, since the next session to count the lease knows
 * nothing else.
 */

static void
ngx_http_zk_lock_share_label(ngx_http_zk_lock_share_t *share,
    zk_lock_label_t *label)
{
    ngx_msec_t  ttl;

    if (share->gate.len == 0) {

        if (ngx_strcmp(label->want, "shared") == 0) {
            label->want_len = 0;
        }

        return;
    }

    ngx_http_zk_lock_record_durable(share->zone, share->record);

    ttl = ngx_http_zk_lock_record_ttl(share->zone, share->record, NULL);

    label->ttl = ngx_max(label->ttl, (int64_t) ttl);
    label->holds = (uint32_t) ngx_http_zk_lock_record_holds(share->zone,
                                                            share->record);
    label->gate_len = NGX_HTTP_ZK_LOCK_GATE_LEN;
    ngx_memcpy(label->gate, share->gate_name, NGX_HTTP_ZK_LOCK_GATE_LEN);
}


static void
ngx_http_zk_lock_share_read(ngx_http_zk_lock_share_t *share)
{
    ngx_http_zk_lock_op_t  *op;

    op = ngx_http_zk_lock_op_new(share->session, NGX_HTTP_ZK_LOCK_OP_GET,
                                 &share->path, NULL, NULL);
    if (op != NULL) {
        op->whole = 1;
    }

    ngx_http_zk_lock_share_send(share, op,
                                ngx_http_zk_lock_share_parent_handler);
}


static void
ngx_http_zk_lock_share_parent_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_share_t  *share;

    share = op->data;
    share->op = NULL;

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {
        ngx_http_zk_lock_share_done(share, NGX_DECLINED);
        return;
    }

    if (op->rc != NGX_HTTP_ZK_LOCK_OK || op->cut) {
        ngx_http_zk_lock_share_failed(share, op);
        return;
    }

    ngx_http_zk_lock_share_rename(share, op);
}


/* parent is a GET of the lock's znode; NULL: the claim is that znode. */

static void
ngx_http_zk_lock_share_rename(ngx_http_zk_lock_share_t *share,
    ngx_http_zk_lock_op_t *parent)
{
    u_char                  old[ZK_LOCK_CLAIM_MAX], new[ZK_LOCK_CLAIM_MAX];
    ngx_str_t               from, to, label;
    ngx_http_zk_lock_op_t  *rename;

    from = ngx_http_zk_lock_share_name(share, share->kind, old);
    to = ngx_http_zk_lock_share_name(share, share->to, new);

    label.data = share->label;
    label.len = share->label_len;

    rename = ngx_http_zk_lock_op_rename(share->session, &share->path, &from,
                                        &to, &label, share->version, parent);
    if (rename != NULL) {
        rename->persistent = (share->persistent != 0);
    }

    ngx_http_zk_lock_share_send(share, rename,
                                ngx_http_zk_lock_share_rename_handler);
}


static void
ngx_http_zk_lock_share_rename_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_share_t  *share;

    share = op->data;
    share->op = NULL;

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
        ngx_http_zk_lock_share_done(share, NGX_OK);
        break;

    case NGX_HTTP_ZK_LOCK_CHANGED:

        /* the lock's znode, or the claim's */

        ngx_http_zk_lock_share_again(share);
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:
    case NGX_HTTP_ZK_LOCK_EXISTS:
        ngx_http_zk_lock_share_look(share);
        break;

    default:
        ngx_http_zk_lock_share_failed(share, op);
        break;
    }
}


/*
 * The sweep, or the next connection, tries again.  But a claim that ZooKeeper
 * refuses to make durable stays ephemeral, and so does a claim of a lock whose
 * znode has more data than a gateway reads.
 */

static void
ngx_http_zk_lock_share_failed(ngx_http_zk_lock_share_t *share,
    ngx_http_zk_lock_op_t *op)
{
    if (share->gate.len != 0
        && op->rc != NGX_HTTP_ZK_LOCK_UNSENT
        && op->rc != NGX_HTTP_ZK_LOCK_UNKNOWN)
    {
        ngx_http_zk_lock_share_done(share, NGX_ERROR);
    }
}


/* It does not have its old name any more: has it the new one? */

static void
ngx_http_zk_lock_share_look(ngx_http_zk_lock_share_t *share)
{
    u_char      buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t   name;

    if (share->to == share->kind) {
        ngx_http_zk_lock_share_done(share, NGX_DECLINED);
        return;
    }

    name = ngx_http_zk_lock_share_name(share, share->to, buf);

    ngx_http_zk_lock_share_send(share,
                  ngx_http_zk_lock_op_new(share->session,
                                          NGX_HTTP_ZK_LOCK_OP_GET,
                                          &share->path, &name, NULL),
                  ngx_http_zk_lock_share_look_handler);
}


static void
ngx_http_zk_lock_share_look_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_share_t  *share;

    share = op->data;
    share->op = NULL;

    if (op->rc == NGX_HTTP_ZK_LOCK_OK) {
        ngx_http_zk_lock_share_done(share, NGX_OK);

    } else if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {
        ngx_http_zk_lock_share_done(share, NGX_DECLINED);
    }
}


static void
ngx_http_zk_lock_share_send(ngx_http_zk_lock_share_t *share,
    ngx_http_zk_lock_op_t *op, ngx_http_zk_lock_op_pt handler)
{
    if (op == NULL) {
        /* the sweep tries again */
        return;
    }

    op->handler = handler;
    op->data = share;

    share->op = op;

    ngx_http_zk_lock_session_send(op);
}


static void
ngx_http_zk_lock_share_done(ngx_http_zk_lock_share_t *share, ngx_int_t rc)
{
    void                       *data;
    ngx_http_zk_lock_share_pt   handler;

    if (rc == NGX_OK) {
        ngx_http_zk_lock_record_named(share->zone, share->record, share->to);
    }

    handler = share->handler;
    data = share->data;

    ngx_free(share);

    handler(data, rc);
}


/* buf has room for ZK_LOCK_CLAIM_MAX bytes. */

static ngx_str_t
ngx_http_zk_lock_share_name(ngx_http_zk_lock_share_t *share,
    zk_lock_kind_t kind, u_char *buf)
{
    ngx_str_t  name;

    name.data = buf;
    name.len = zk_lock_claim_write((char *) buf, &share->id, kind, share->seq);

    return name;
}
