
/*
 * Replacements: a held claim becomes a reader, or durable.
 *
 * A transaction puts another znode into the claim's place: sets the lock's
 * znode, if the claim is not that znode, to the present data, so that all
 * gateways with claims list the lock before the next grant; deletes the claim's
 * znode; and creates the new znode.  A durable znode has the name of the
 * ephemeral znode: a client that watches the name sees the delete, looks, and
 * finds the claim there.  A reader has another name, and the record changes
 * first, because the workers of this gateway go by the record.
 *
 * If the answer is lost, the claim is read again: then the new znode is
 * there already, or nothing has happened, or the claim is gone.
 *
 * The event loop runs all code here.  op is NULL unless an operation is under
 * way.  A replacement lives until the handler is called, or until the caller
 * frees the replacement, because the claim or the session has ended.
 */


#include "core/replace.h"
#include "core/custody.h"
#include "core/node.h"


struct zkl_replace_s {
    zkl_worker_t                  *worker;
    zkl_session_t                 *session;
    zkl_op_t                      *op;

    zkl_replace_pt                 handler;
    void                          *data;

    zkl_id_t                       id;      /* in the claim's name */
    zkl_cell_t                    *cell;
    zkl_mode_t                     mode;    /* before */
    zkl_mode_t                     to;      /* and afterwards */
    int64_t                        seq;
    ngx_str_t                      path;
    ngx_uint_t                     durable; /* 0: for a reader */
    u_char                         gate[ZKL_GATE_LEN];
    ngx_uint_t                     refused; /* the transaction was, though the
                                               claim is there */
    ngx_uint_t                     persistent;
    ngx_uint_t                     lagging;

    int32_t                        version; /* of the data */
    u_char                         cdata[ZKL_CLAIM_DATA_MAX];
    size_t                         cdata_len;
};


static void zkl_replace_read_handler(zkl_op_t *op);
static void zkl_replace_fill(zkl_replace_t *replace, zkl_claim_data_t *cdata);
static void zkl_replace_read(zkl_replace_t *replace);
static void zkl_replace_parent_handler(zkl_op_t *op);
static void zkl_replace_rename(zkl_replace_t *replace, zkl_op_t *parent);
static void zkl_replace_rename_handler(zkl_op_t *op);
static void zkl_replace_failed(zkl_replace_t *replace, zkl_op_t *op);
static void zkl_replace_look(zkl_replace_t *replace);
static void zkl_replace_look_handler(zkl_op_t *op);
static void zkl_replace_send(zkl_replace_t *replace, zkl_op_t *op,
    zkl_op_pt handler);
static void zkl_replace_done(zkl_replace_t *replace, ngx_int_t rc);
static ngx_str_t zkl_replace_name(zkl_replace_t *replace, zkl_mode_t mode,
    u_char *buf);


zkl_replace_t *
zkl_replace(zkl_worker_t *worker, ngx_str_t *path, const zkl_id_t *id,
    uint32_t record, zkl_mode_t mode, int64_t seq, const u_char *gate,
    ngx_uint_t lagging, zkl_replace_pt handler, void *data)
{
    zkl_replace_t  *replace;

    replace = ngx_calloc(sizeof(zkl_replace_t) + path->len, worker->log);
    if (replace == NULL) {
        return NULL;
    }

    replace->worker = worker;
    replace->session = worker->session;
    replace->lagging = lagging;
    replace->handler = handler;
    replace->data = data;
    replace->id = *id;
    replace->cell = zkl_layout_cell(worker->zone->map, record);
    replace->mode = mode;
    replace->to = gate ? mode : ZKL_READ;
    replace->seq = seq;

    if (gate != NULL) {
        replace->durable = 1;
        ngx_memcpy(replace->gate, gate, ZKL_GATE_LEN);
    }

    replace->path.len = path->len;
    replace->path.data = (u_char *) replace + sizeof(zkl_replace_t);
    ngx_memcpy(replace->path.data, path->data, path->len);

    if (gate == NULL) {
        zkl_record_downgrade(worker->zone, record);
    }

    zkl_replace_again(replace);

    return replace;
}


void
zkl_replace_again(zkl_replace_t *replace)
{
    u_char     buf[ZKL_CLAIM_MAX];
    ngx_str_t  name;

    if (replace->op != NULL || !zkl_session_connected(replace->session)) {
        return;
    }

    name = zkl_replace_name(replace, replace->mode, buf);

    zkl_replace_send(replace,
                     zkl_op_new(replace->session, ZKL_OP_GET, &replace->path,
                                &name, NULL),
                     zkl_replace_read_handler);
}


void
zkl_replace_free(zkl_replace_t *replace)
{
    if (replace->op != NULL) {
        replace->op->handler = NULL;
    }

    ngx_free(replace);
}


/*
 * The claim data go to the new znode: without the request to replace, and with
 * the czxid, which the claim's fencing token comes from.
 */

static void
zkl_replace_read_handler(zkl_op_t *op)
{
    size_t             index_at;
    zkl_claim_data_t   cdata;
    zkl_replace_t     *replace;

    replace = op->data;
    replace->op = NULL;

    if (op->rc == ZKL_NO_NODE
        || (op->rc == ZKL_OK && replace->mode == ZKL_NODE
            && !zkl_node_is(&replace->id, op)))
    {
        zkl_replace_look(replace);
        return;
    }

    if (op->rc != ZKL_OK) {
        zkl_replace_failed(replace, op);
        return;
    }

    replace->persistent = (replace->durable || op->owner == 0);

    zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);

    if (replace->durable && op->owner == 0) {

        /* the answer was lost */

        zkl_replace_done(replace, cdata.gate_len != ZKL_GATE_LEN
                                  || ngx_memcmp(cdata.gate, replace->gate,
                                                ZKL_GATE_LEN) == 0
                                  ? NGX_OK : NGX_BUSY);
        return;
    }

    if (cdata.index < 0 && cdata.revoke && replace->lagging) {
        cdata.mended = (uint32_t) ngx_random() | 1;

        zkl_record_cdata(replace->cell, &cdata);
    }

    if (cdata.index >= 0 && replace->durable
        && cdata.renewals > replace->cell->renewals)
    {
        /* another gateway has renewed the claim, which counts first */

        zkl_replace_done(replace, NGX_AGAIN);
        return;
    }

    if (cdata.index >= 0) {
        zkl_replace_fill(replace, &cdata);

        if (cdata.czxid == 0) {
            cdata.czxid = op->czxid;
        }

        replace->cdata_len = zkl_claim_data_write((char *) replace->cdata,
                                                  &cdata, &index_at);

    } else if (replace->durable) {

        /* a Curator client's mark, to be mended first: the sweep tries again */

        zkl_replace_done(replace, NGX_AGAIN);
        return;

    } else {
        replace->cdata_len = op->reply.len;
        ngx_memcpy(replace->cdata, op->reply.data, op->reply.len);
    }

    replace->version = op->version;

    if (replace->mode == ZKL_NODE) {
        zkl_replace_rename(replace, NULL);
        return;
    }

    zkl_replace_read(replace);
}


/* The next session to count the lease knows no more than a claim's data. */

static void
zkl_replace_fill(zkl_replace_t *replace, zkl_claim_data_t *cdata)
{
    if (!replace->durable) {

        if (ngx_strcmp(cdata->want, "shared") == 0) {
            cdata->want_len = 0;
        }

        return;
    }

    zkl_record_durable(replace->cell, cdata);

    cdata->gate_len = ZKL_GATE_LEN;
    ngx_memcpy(cdata->gate, replace->gate, ZKL_GATE_LEN);
}


static void
zkl_replace_read(zkl_replace_t *replace)
{
    zkl_op_t  *op;

    op = zkl_op_new(replace->session, ZKL_OP_GET, &replace->path, NULL, NULL);
    if (op != NULL) {
        op->whole = 1;
    }

    zkl_replace_send(replace, op, zkl_replace_parent_handler);
}


static void
zkl_replace_parent_handler(zkl_op_t *op)
{
    zkl_replace_t  *replace;

    replace = op->data;
    replace->op = NULL;

    if (op->rc == ZKL_NO_NODE) {
        zkl_replace_done(replace, NGX_DECLINED);
        return;
    }

    if (op->rc != ZKL_OK || op->cut) {
        zkl_replace_failed(replace, op);
        return;
    }

    zkl_replace_rename(replace, op);
}


/* parent is a GET of the lock's znode; NULL: the claim is that znode. */

static void
zkl_replace_rename(zkl_replace_t *replace, zkl_op_t *parent)
{
    u_char     old[ZKL_CLAIM_MAX], new[ZKL_CLAIM_MAX];
    ngx_str_t  from, to, cdata;
    zkl_op_t  *rename, *entry;

    from = zkl_replace_name(replace, replace->mode, old);
    to = zkl_replace_name(replace, replace->to, new);

    cdata.data = replace->cdata;
    cdata.len = replace->cdata_len;

    entry = NULL;

    if (replace->durable) {
        entry = zkl_custody_entry(replace->worker, replace->gate, &replace->id,
                                  &replace->path, &to, &cdata);
        if (entry == NULL) {
            return;
        }
    }

    rename = zkl_op_rename(replace->session, &replace->path, &from, &to, &cdata,
                           replace->version, parent, entry);
    if (rename != NULL) {
        rename->persistent = (replace->persistent != 0);
    }

    zkl_replace_send(replace, rename, zkl_replace_rename_handler);
}


static void
zkl_replace_rename_handler(zkl_op_t *op)
{
    zkl_replace_t  *replace;

    replace = op->data;
    replace->op = NULL;

    switch (op->rc) {

    case ZKL_OK:
        zkl_replace_done(replace, NGX_OK);
        break;

    case ZKL_CHANGED:

        /* another writer was faster */

        zkl_replace_again(replace);
        break;

    case ZKL_NO_NODE:
    case ZKL_EXISTS:

        if (!replace->durable) {
            zkl_replace_look(replace);

        } else if (!replace->refused) {
            replace->refused = 1;
            zkl_replace_again(replace);

        } else {

            /* not the claim is missing, but the gate's directory */

            zkl_custody_unsure(replace->worker, replace->gate);
            zkl_replace_done(replace, NGX_AGAIN);
        }

        break;

    default:
        zkl_replace_failed(replace, op);
        break;
    }
}


/*
 * The sweep, or the next connection, tries again.  But a claim that ZooKeeper
 * refuses to make durable stays ephemeral, and so does a claim of a lock with
 * more data in the znode than a gateway reads.
 */

static void
zkl_replace_failed(zkl_replace_t *replace, zkl_op_t *op)
{
    if (replace->durable && op->rc != ZKL_UNSENT && op->rc != ZKL_UNKNOWN
        && op->rc != ZKL_OVER_QUOTA)
    {
        zkl_replace_done(replace, NGX_ERROR);
    }
}


/* The claim's znode does not have the old name: looks for the new name. */

static void
zkl_replace_look(zkl_replace_t *replace)
{
    u_char     buf[ZKL_CLAIM_MAX];
    ngx_str_t  name;

    if (replace->to == replace->mode) {
        zkl_replace_done(replace, NGX_DECLINED);
        return;
    }

    name = zkl_replace_name(replace, replace->to, buf);

    zkl_replace_send(replace,
                     zkl_op_new(replace->session, ZKL_OP_GET, &replace->path,
                                &name, NULL),
                     zkl_replace_look_handler);
}


static void
zkl_replace_look_handler(zkl_op_t *op)
{
    zkl_replace_t  *replace;

    replace = op->data;
    replace->op = NULL;

    if (op->rc == ZKL_OK) {
        zkl_replace_done(replace, NGX_OK);

    } else if (op->rc == ZKL_NO_NODE) {
        zkl_replace_done(replace, NGX_DECLINED);
    }
}


static void
zkl_replace_send(zkl_replace_t *replace, zkl_op_t *op, zkl_op_pt handler)
{
    if (op == NULL) {
        /* the sweep tries again */
        return;
    }

    op->handler = handler;
    op->data = replace;

    if (op->type == ZKL_OP_GET) {
        op->fresh = (replace->lagging != 0);
    }

    replace->op = op;

    zkl_session_send(op);
}


static void
zkl_replace_done(zkl_replace_t *replace, ngx_int_t rc)
{
    void            *data;
    zkl_replace_pt   handler;

    if (rc == NGX_OK && replace->durable) {
        zkl_record_unread(replace->cell);

    } else if (rc == NGX_OK) {
        zkl_record_named(replace->cell);
    }

    handler = replace->handler;
    data = replace->data;

    ngx_free(replace);

    handler(data, rc);
}


/* buf has room for ZKL_CLAIM_MAX bytes. */

static ngx_str_t
zkl_replace_name(zkl_replace_t *replace, zkl_mode_t mode, u_char *buf)
{
    ngx_str_t  name;

    name.data = buf;
    name.len = zkl_name_claim_write((char *) buf, &replace->id, mode,
                                    replace->seq);

    return name;
}
