
/*
 * Shares: a held claim becomes a reader, or durable.
 *
 * A transaction puts another znode into the claim's place: sets the lock's
 * znode, if the claim is not that znode, to the present data, so that all
 * gateways with claims list the lock before the next grant; deletes the claim's
 * znode; and creates the new znode.  A durable znode has the name of the
 * ephemeral znode: a client that watches the name sees the delete, looks, and
 * finds the claim there.  A reader has another name, and the record changes
 * first, because the workers of this gateway go by the record.
 *
 * If the answer is lost, the share reads the claim again: then the new znode is
 * there already, or nothing has happened, or the claim is gone.
 *
 * The event loop runs all code here.  op is NULL unless an operation is under
 * way.  A share lives until handler is called or the claim ends.
 */


#include "core/share.h"
#include "core/node.h"


struct zkl_share_s {
    zkl_session_t                 *session;
    zkl_zone_t                    *zone;
    zkl_op_t                      *op;

    zkl_share_pt                   handler;
    void                          *data;

    zkl_id_t                       id;      /* in the claim's name */
    uint32_t                       record;
    zkl_kind_t                     kind;    /* before */
    zkl_kind_t                     to;      /* and afterwards */
    int64_t                        seq;
    ngx_str_t                      path;
    ngx_str_t                      gate;    /* "": for a reader */
    u_char                         gate_name[ZKL_GATE_LEN];
    ngx_uint_t                     persistent;
    ngx_uint_t                     foreign;

    int32_t                        version; /* of the data */
    u_char                         label[ZKL_CLAIM_DATA_MAX];
    size_t                         label_len;
};


static void zkl_share_label_handler(zkl_op_t *op);
static void zkl_share_label(zkl_share_t *share, zkl_claim_data_t *label);
static void zkl_share_read(zkl_share_t *share);
static void zkl_share_parent_handler(zkl_op_t *op);
static void zkl_share_rename(zkl_share_t *share, zkl_op_t *parent);
static void zkl_share_rename_handler(zkl_op_t *op);
static void zkl_share_failed(zkl_share_t *share, zkl_op_t *op);
static void zkl_share_look(zkl_share_t *share);
static void zkl_share_look_handler(zkl_op_t *op);
static void zkl_share_send(zkl_share_t *share, zkl_op_t *op,
    zkl_op_pt handler);
static void zkl_share_done(zkl_share_t *share, ngx_int_t rc);
static ngx_str_t zkl_share_name(zkl_share_t *share, zkl_kind_t kind,
    u_char *buf);


zkl_share_t *
zkl_share(zkl_worker_t *worker, ngx_str_t *path, const zkl_id_t *id,
    uint32_t record, zkl_kind_t kind, int64_t seq, ngx_str_t *gate,
    ngx_uint_t foreign, zkl_share_pt handler, void *data)
{
    zkl_share_t  *share;

    share = ngx_calloc(sizeof(zkl_share_t) + path->len, worker->log);
    if (share == NULL) {
        return NULL;
    }

    share->session = worker->session;
    share->zone = worker->zone;
    share->foreign = foreign;
    share->handler = handler;
    share->data = data;
    share->id = *id;
    share->record = record;
    share->kind = kind;
    share->to = gate ? kind : ZKL_READ;
    share->seq = seq;
    share->gate.data = share->gate_name;

    if (gate != NULL) {
        share->gate.len = ZKL_GATE_LEN;
        ngx_memcpy(share->gate_name, gate->data, ZKL_GATE_LEN);
    }

    share->path.len = path->len;
    share->path.data = (u_char *) share + sizeof(zkl_share_t);
    ngx_memcpy(share->path.data, path->data, path->len);

    if (gate == NULL) {
        zkl_record_kind(share->zone, record, ZKL_READ);
    }

    zkl_share_again(share);

    return share;
}


void
zkl_share_again(zkl_share_t *share)
{
    u_char     buf[ZKL_CLAIM_MAX];
    ngx_str_t  name;

    if (share->op != NULL || !zkl_session_connected(share->session)) {
        return;
    }

    name = zkl_share_name(share, share->kind, buf);

    zkl_share_send(share,
                  zkl_op_new(share->session, ZKL_OP_GET, &share->path, &name,
                             NULL),
                  zkl_share_label_handler);
}


void
zkl_share_free(zkl_share_t *share)
{
    if (share->op != NULL) {
        share->op->handler = NULL;
    }

    ngx_free(share);
}


/*
 * The claim data go to the new znode: without the request to share, and with
 * the czxid, which the claim's fencing token comes from.
 */

static void
zkl_share_label_handler(zkl_op_t *op)
{
    size_t            index_at;
    zkl_claim_data_t  label;
    zkl_share_t      *share;

    share = op->data;
    share->op = NULL;

    if (op->rc == ZKL_NO_NODE
        || (op->rc == ZKL_OK && share->kind == ZKL_NODE
            && !zkl_node_is(&share->id, op)))
    {
        zkl_share_look(share);
        return;
    }

    if (op->rc != ZKL_OK) {
        zkl_share_failed(share, op);
        return;
    }

    share->persistent = (share->gate.len != 0 || op->owner == 0);

    if (share->gate.len != 0 && op->owner == 0) {

        /* the answer was lost */

        zkl_share_done(share, NGX_OK);
        return;
    }

    zkl_claim_data_read(&label, (char *) op->reply.data, op->reply.len);

    if (label.index < 0 && label.revoke && share->foreign) {
        label.mended = (uint32_t) ngx_random() | 1;

        zkl_record_label(share->zone, share->record, &label);
    }

    if (label.index >= 0 && share->gate.len != 0
        && !zkl_record_knows(share->zone, share->record, label.renewals))
    {
        /* another gateway has renewed the claim, which counts first */

        zkl_share_done(share, NGX_AGAIN);
        return;
    }

    if (label.index >= 0) {
        zkl_share_label(share, &label);

        if (label.czxid == 0) {
            label.czxid = op->czxid;
        }

        share->label_len = zkl_claim_data_write((char *) share->label, &label,
                                                &index_at);

    } else if (share->gate.len != 0) {

        /* a Curator client's mark, to be mended first: the sweep tries again */

        zkl_share_done(share, NGX_AGAIN);
        return;

    } else {
        share->label_len = op->reply.len;
        ngx_memcpy(share->label, op->reply.data, op->reply.len);
    }

    share->version = op->version;

    if (share->kind == ZKL_NODE) {
        zkl_share_rename(share, NULL);
        return;
    }

    zkl_share_read(share);
}


/*
 * A durable claim's data have the longest ttl that a holder was told, and the
 * number of holds, because the next session to count the lease knows no more.
 */

static void
zkl_share_label(zkl_share_t *share, zkl_claim_data_t *label)
{
    ngx_msec_t  ttl;

    if (share->gate.len == 0) {

        if (ngx_strcmp(label->want, "shared") == 0) {
            label->want_len = 0;
        }

        return;
    }

    zkl_record_durable(share->zone, share->record);

    ttl = zkl_record_ttl(share->zone, share->record, NULL);

    label->ttl = ngx_max(label->ttl, (int64_t) ttl);
    label->holds = (uint32_t) zkl_record_holds(share->zone, share->record);
    label->gate_len = ZKL_GATE_LEN;
    ngx_memcpy(label->gate, share->gate_name, ZKL_GATE_LEN);
}


static void
zkl_share_read(zkl_share_t *share)
{
    zkl_op_t  *op;

    op = zkl_op_new(share->session, ZKL_OP_GET, &share->path, NULL, NULL);
    if (op != NULL) {
        op->whole = 1;
    }

    zkl_share_send(share, op, zkl_share_parent_handler);
}


static void
zkl_share_parent_handler(zkl_op_t *op)
{
    zkl_share_t  *share;

    share = op->data;
    share->op = NULL;

    if (op->rc == ZKL_NO_NODE) {
        zkl_share_done(share, NGX_DECLINED);
        return;
    }

    if (op->rc != ZKL_OK || op->cut) {
        zkl_share_failed(share, op);
        return;
    }

    zkl_share_rename(share, op);
}


/* parent is a GET of the lock's znode; NULL: the claim is that znode. */

static void
zkl_share_rename(zkl_share_t *share, zkl_op_t *parent)
{
    u_char     old[ZKL_CLAIM_MAX], new[ZKL_CLAIM_MAX];
    ngx_str_t  from, to, label;
    zkl_op_t  *rename;

    from = zkl_share_name(share, share->kind, old);
    to = zkl_share_name(share, share->to, new);

    label.data = share->label;
    label.len = share->label_len;

    rename = zkl_op_rename(share->session, &share->path, &from, &to, &label,
                           share->version, parent);
    if (rename != NULL) {
        rename->persistent = (share->persistent != 0);
    }

    zkl_share_send(share, rename, zkl_share_rename_handler);
}


static void
zkl_share_rename_handler(zkl_op_t *op)
{
    zkl_share_t  *share;

    share = op->data;
    share->op = NULL;

    switch (op->rc) {

    case ZKL_OK:
        zkl_share_done(share, NGX_OK);
        break;

    case ZKL_CHANGED:

        /* another writer was faster */

        zkl_share_again(share);
        break;

    case ZKL_NO_NODE:
    case ZKL_EXISTS:
        zkl_share_look(share);
        break;

    default:
        zkl_share_failed(share, op);
        break;
    }
}


/*
 * The sweep, or the next connection, tries again.  But a claim that ZooKeeper
 * refuses to make durable stays ephemeral, and so does a claim of a lock with
 * more data in the znode than a gateway reads.
 */

static void
zkl_share_failed(zkl_share_t *share, zkl_op_t *op)
{
    if (share->gate.len != 0 && op->rc != ZKL_UNSENT && op->rc != ZKL_UNKNOWN)
    {
        zkl_share_done(share, NGX_ERROR);
    }
}


/* The claim's znode does not have the old name: looks for the new name. */

static void
zkl_share_look(zkl_share_t *share)
{
    u_char     buf[ZKL_CLAIM_MAX];
    ngx_str_t  name;

    if (share->to == share->kind) {
        zkl_share_done(share, NGX_DECLINED);
        return;
    }

    name = zkl_share_name(share, share->to, buf);

    zkl_share_send(share,
                  zkl_op_new(share->session, ZKL_OP_GET, &share->path, &name,
                             NULL),
                  zkl_share_look_handler);
}


static void
zkl_share_look_handler(zkl_op_t *op)
{
    zkl_share_t  *share;

    share = op->data;
    share->op = NULL;

    if (op->rc == ZKL_OK) {
        zkl_share_done(share, NGX_OK);

    } else if (op->rc == ZKL_NO_NODE) {
        zkl_share_done(share, NGX_DECLINED);
    }
}


static void
zkl_share_send(zkl_share_t *share, zkl_op_t *op, zkl_op_pt handler)
{
    if (op == NULL) {
        /* the sweep tries again */
        return;
    }

    op->handler = handler;
    op->data = share;

    if (op->type == ZKL_OP_GET) {
        op->fresh = (share->foreign != 0);
    }

    share->op = op;

    zkl_session_send(op);
}


static void
zkl_share_done(zkl_share_t *share, ngx_int_t rc)
{
    void         *data;
    zkl_share_pt  handler;

    if (rc == NGX_OK) {
        zkl_record_named(share->zone, share->record, share->to);
    }

    handler = share->handler;
    data = share->data;

    ngx_free(share);

    handler(data, rc);
}


/* buf has room for ZKL_CLAIM_MAX bytes. */

static ngx_str_t
zkl_share_name(zkl_share_t *share, zkl_kind_t kind, u_char *buf)
{
    ngx_str_t  name;

    name.data = buf;
    name.len = zkl_name_claim_write((char *) buf, &share->id, kind, share->seq);

    return name;
}
