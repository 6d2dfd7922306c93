
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
    zkl_claim_t                   *claim;
    zkl_op_t                      *op;
    zkl_replace_pt                 handler;

    ngx_uint_t                     durable; /* 0: for a reader */
    ngx_uint_t                     new;     /* the read is of the new name */
    ngx_uint_t                     refused; /* the transaction was, though the
                                               claim is there */
    zkl_op_e                       type;    /* of the new znode's create */

    int32_t                        version; /* of the data */
    u_char                         cdata[ZKL_CLAIM_DATA_MAX];
    size_t                         cdata_len;
};


static void zkl_replace_read(zkl_replace_t *replace, ngx_uint_t new);
static void zkl_replace_read_handler(zkl_op_t *op);
static void zkl_replace_rename(zkl_op_t *op);
static void zkl_replace_rename_handler(zkl_op_t *op);
static void zkl_replace_failed(zkl_replace_t *replace, zkl_op_t *op);
static void zkl_replace_send(zkl_replace_t *replace, zkl_op_t *op,
    zkl_op_pt handler);
static void zkl_replace_done(zkl_replace_t *replace, ngx_int_t rc);


ngx_int_t
zkl_replace(zkl_claim_t *claim, ngx_uint_t durable, zkl_replace_pt handler)
{
    zkl_worker_t   *worker;
    zkl_replace_t  *replace;

    worker = claim->lock->worker;

    replace = ngx_calloc(sizeof(zkl_replace_t), worker->log);
    if (replace == NULL) {
        return NGX_ERROR;
    }

    claim->replace = replace;

    replace->claim = claim;
    replace->handler = handler;
    replace->durable = durable;

    if (!durable) {
        zkl_record_downgrade(worker->zone, claim->id.record);
    }

    zkl_replace_again(replace);

    return NGX_OK;
}


void
zkl_replace_again(zkl_replace_t *replace)
{
    if (replace->op == NULL
        && zkl_session_connected(replace->claim->lock->worker->session))
    {
        zkl_replace_read(replace, 0);
    }
}


void
zkl_replace_free(zkl_claim_t *claim)
{
    zkl_replace_t  *replace;

    replace = claim->replace;

    if (replace == NULL) {
        return;
    }

    if (replace->op != NULL) {
        replace->op->handler = NULL;
    }

    if (claim->lock->converting == claim) {
        claim->lock->converting = NULL;
    }

    ngx_free(replace);
    claim->replace = NULL;
}


/*
 * Reads the znode with the claim's name or, to see if it is there, the znode of
 * the reader.
 */

static void
zkl_replace_read(zkl_replace_t *replace, ngx_uint_t new)
{
    u_char        buf[ZKL_CLAIM_MAX];
    ngx_str_t     name;
    zkl_lock_t   *lock;
    zkl_claim_t  *claim;

    claim = replace->claim;
    lock = claim->lock;
    name = zkl_claim_name(claim, new ? ZKL_READ : claim->cell->was, buf);

    replace->new = new;

    zkl_replace_send(replace,
                     zkl_op_new(lock->worker->session, ZKL_OP_GET,
                                &lock->sn.str, &name, NULL),
                     zkl_replace_read_handler);
}


/*
 * The claim data go to the new znode: without the request to replace, and with
 * the czxid, which the claim's fencing token comes from.  A durable claim's
 * data have the longest ttl that a holder was told, and the number of holds,
 * because the next session to count the lease knows no more.
 */

static void
zkl_replace_read_handler(zkl_op_t *op)
{
    size_t             index_at;
    zkl_lock_t        *lock;
    zkl_claim_t       *claim;
    zkl_replace_t     *replace;
    zkl_claim_data_t   cdata;

    replace = op->data;
    replace->op = NULL;

    claim = replace->claim;
    lock = claim->lock;

    zkl_node_check(claim, op);

    if (op->rc == ZKL_NO_NODE && !replace->durable && !replace->new) {

        /* a reader may have the new name */

        zkl_replace_read(replace, 1);
        return;
    }

    if (op->rc != ZKL_OK) {
        zkl_replace_failed(replace, op);
        return;
    }

    if (replace->new) {

        /* the answer was lost */

        zkl_replace_done(replace, NGX_OK);
        return;
    }

    replace->type = (replace->durable || op->owner == 0) ? ZKL_OP_PERSISTENT
                                                         : ZKL_OP_GATE;

    zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);

    if (replace->durable && op->owner == 0) {

        if (cdata.gate_len != ZKL_GATE_LEN
            || ngx_memcmp(cdata.gate, claim->gate->name.data, ZKL_GATE_LEN)
               == 0)
        {
            /* the answer was lost */

            zkl_replace_done(replace, NGX_OK);
            return;
        }

        /* the record may have the term of the gate that the claim leaves */

        zkl_record_uncounted(claim->cell);
        zkl_replace_done(replace, NGX_BUSY);
        return;
    }

    if (cdata.index < 0 && cdata.revoke && claim->adoption != NULL) {
        cdata.mended = (uint32_t) ngx_random() | 1;

        zkl_record_cdata(claim->cell, &cdata);
    }

    if (replace->durable
        && (cdata.index < 0
            || (uint32_t) cdata.renewals > claim->cell->renewals))
    {
        /*
         * A Curator client's mark is to be mended first; a renewal at another
         * gateway counts first.
         */

        zkl_replace_done(replace, NGX_AGAIN);
        return;
    }

    if (replace->durable) {
        zkl_record_durable(claim->cell, &cdata, claim->gate->term);

        cdata.gate_len = ZKL_GATE_LEN;
        ngx_memcpy(cdata.gate, claim->gate->name.data, ZKL_GATE_LEN);

    } else if (ngx_strcmp(cdata.want, "shared") == 0) {
        cdata.want_len = 0;
    }

    if (cdata.index >= 0) {

        if (cdata.czxid == 0) {
            cdata.czxid = op->czxid;
        }

        replace->cdata_len = zkl_claim_data_write((char *) replace->cdata,
                                                  &cdata, &index_at);

    } else {
        replace->cdata_len = op->reply.len;
        ngx_memcpy(replace->cdata, op->reply.data, op->reply.len);
    }

    replace->version = op->version;

    if (lock->node) {
        zkl_replace_rename(op);
        return;
    }

    op = zkl_op_new(lock->worker->session, ZKL_OP_GET, &lock->sn.str, NULL,
                    NULL);
    if (op != NULL) {
        op->whole = 1;
    }

    zkl_replace_send(replace, op, zkl_replace_rename);
}


/* op has read the lock's znode. */

static void
zkl_replace_rename(zkl_op_t *op)
{
    u_char          old[ZKL_CLAIM_MAX], new[ZKL_CLAIM_MAX];
    ngx_str_t       from, to, cdata;
    zkl_op_t       *rename, *entry;
    zkl_lock_t     *lock;
    zkl_claim_t    *claim;
    zkl_replace_t  *replace;

    replace = op->data;
    replace->op = NULL;

    claim = replace->claim;
    lock = claim->lock;

    if (op->rc != ZKL_OK || (op->cut && !lock->node)) {
        zkl_replace_failed(replace, op);
        return;
    }

    from = zkl_claim_name(claim, claim->cell->was, old);
    to = replace->durable ? from : zkl_claim_name(claim, ZKL_READ, new);

    cdata.data = replace->cdata;
    cdata.len = replace->cdata_len;

    entry = NULL;

    if (replace->durable) {
        entry = zkl_custody_entry(claim, &cdata);
        if (entry == NULL) {
            return;
        }
    }

    rename = zkl_op_rename(lock->worker->session, &lock->sn.str, &from, &to,
                           &cdata, replace->version, replace->type,
                           lock->node ? NULL : op, entry);

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
            zkl_replace_read(replace, 1);

        } else if (!replace->refused) {
            replace->refused = 1;
            zkl_replace_again(replace);

        } else {

            /* not the claim is missing, but the gate's directory */

            zkl_custody_unsure(replace->claim->gate);
            zkl_replace_done(replace, NGX_AGAIN);
        }

        break;

    default:
        zkl_replace_failed(replace, op);
        break;
    }
}


/*
 * The claim, or the lock's znode, is gone; or the operation failed.  The sweep,
 * or the next connection, tries again if nothing is known.  If ZooKeeper
 * refuses, the claim's znode is the old one: the replacement is over, because
 * the claim may have to end.  The sweep begins another; but a claim that
 * ZooKeeper refuses to make durable stays ephemeral, and so does a claim of a
 * lock with more data in the znode than a gateway reads.
 */

static void
zkl_replace_failed(zkl_replace_t *replace, zkl_op_t *op)
{
    if (op->rc == ZKL_NO_NODE) {
        zkl_replace_done(replace, NGX_DECLINED);

    } else if (op->rc != ZKL_UNSENT && op->rc != ZKL_UNKNOWN) {
        zkl_replace_done(replace,
                         (replace->durable && op->rc != ZKL_OVER_QUOTA)
                         ? NGX_ERROR : NGX_AGAIN);
    }
}


static void
zkl_replace_send(zkl_replace_t *replace, zkl_op_t *op, zkl_op_pt handler)
{
    if (op == NULL) {
        /* the sweep tries again */
        return;
    }

    if (op->type == ZKL_OP_GET) {

        /* another session has made the znode of an adopted claim */

        op->fresh = (replace->claim->adoption != NULL);
    }

    replace->op = op;

    zkl_session_send(op, handler, replace);
}


static void
zkl_replace_done(zkl_replace_t *replace, ngx_int_t rc)
{
    zkl_claim_t     *claim;
    zkl_replace_pt   handler;

    claim = replace->claim;
    handler = replace->handler;

    if (rc == NGX_OK && replace->durable) {
        zkl_record_unread(claim->cell);

    } else if (rc == NGX_OK) {
        zkl_record_named(claim->cell);
    }

    zkl_replace_free(claim);

    handler(claim, rc);
}
