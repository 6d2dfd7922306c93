
/*
 * How an ask reads and writes a single claim.
 *
 * The ask reads the claim's znode (inspect).  Then a record of this gateway
 * tells about the claim (known), or a list of the lock's claims tells the
 * claim's place (placed).  A write to the claim's data then names the version
 * that was read (set).
 *
 * Everything here runs on the event loop.  The ask's infos[0] is there from the
 * first answer on.
 */


#include "ngx_http_zk_lock_node.h"


/* how often a set is tried while other writers change the znode's data */
#define NGX_HTTP_ZK_LOCK_SET_TRIES        5


static void ngx_http_zk_lock_ask_find_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_inspect_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_waits(ngx_http_zk_lock_ask_t *ask,
    zk_lock_label_t *label);
static void ngx_http_zk_lock_ask_set_handler(ngx_http_zk_lock_op_t *op);


/* Only the key in the claim's id is known: a list shows the rest. */

void
ngx_http_zk_lock_ask_find(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_op_t  *op;

    op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_LIST, NULL,
                                 ngx_http_zk_lock_ask_find_handler, ask);

    ngx_http_zk_lock_ask_send_fresh(ask, op);
}


static void
ngx_http_zk_lock_ask_find_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_uint_t               i;
    zk_lock_child_t          child;
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {
        op->rc = NGX_HTTP_ZK_LOCK_OK;
    }

    if (op->rc != NGX_HTTP_ZK_LOCK_OK) {
        ngx_http_zk_lock_ask_failed(ask, op->rc);
        goto done;
    }

    for (i = 0; i < op->nchildren; i++) {

        if (zk_lock_child_read(&child, (char *) op->children[i].data,
                               op->children[i].len)
            != 0
            || !child.has_id
            || !zk_lock_secret_equal(child.id.random, ask->token.id.random,
                                     NGX_HTTP_ZK_LOCK_KEY)
            || (ask->token.seq != -1 && child.seq >= ask->token.seq))
        {
            continue;
        }

        ask->token.id = child.id;
        ask->token.seq = child.seq;
        ask->token.kind = child.kind;
        ask->kind = child.kind;
    }

    ask->find = 0;

    if (ask->token.seq == -1) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_GONE);

    } else {
        ngx_http_zk_lock_ask_start(ask);
    }

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


void
ngx_http_zk_lock_ask_inspect(ngx_http_zk_lock_ask_t *ask)
{
    u_char                  buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t               name;
    ngx_http_zk_lock_op_t  *op;

    if (ngx_http_zk_lock_ask_infos(ask, 1) != NGX_OK) {
        ngx_http_zk_lock_ask_post(ask, NGX_HTTP_ZK_LOCK_ASK_FAILED);
        return;
    }

    ngx_http_zk_lock_ask_name(ask, &name, buf);

    op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_GET, &name,
                                 ngx_http_zk_lock_ask_inspect_handler, ask);

    ngx_http_zk_lock_ask_send_fresh(ask, op);
}


static void
ngx_http_zk_lock_ask_inspect_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_uint_t                  own;
    ngx_http_zk_lock_ask_t     *ask;
    ngx_http_zk_lock_lock_t    *lock;
    ngx_http_zk_lock_record_t   record;

    ask = op->data;

    if (ask->handler == NULL && !ask->counted) {
        goto done;
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_OK && ask->node
        && !ngx_http_zk_lock_node_is(&ask->token.id, op))
    {
        op->rc = NGX_HTTP_ZK_LOCK_NO_NODE;
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {

        if (ngx_http_zk_lock_ask_rename(ask) == NGX_OK) {
            ngx_http_zk_lock_ask_inspect(ask);
            goto done;
        }

        /* another client may have deleted a claim of this worker */

        lock = ngx_http_zk_lock_lock_find(ask->worker, &ask->path);

        if (lock != NULL && lock->nclaims != 0) {
            ngx_http_zk_lock_lock_list(lock);
        }

        ngx_http_zk_lock_ask_gone(ask);
        goto done;
    }

    if (ngx_http_zk_lock_ask_noted(ask, op) != NGX_OK) {
        goto done;
    }

    ask->other = 0;
    ask->version = op->version;
    ask->nknown = 1;
    ask->infos[0].child.kind = ask->token.kind;
    ask->infos[0].child.seq = ask->token.seq;

    own = (ngx_http_zk_lock_ask_own(ask, &record) == NGX_OK);

    if (own && ask->counted && record.gen != ask->gen) {

        /* the record was lost with its session, and perhaps the count, too */

        ask->unwritten = 0;
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE);

    } else if (own
               && (op->owner != 0 || ngx_http_zk_lock_ahead(record.alive)))
    {
        ngx_http_zk_lock_ask_known(ask, &record);

    } else if (ask->counted) {

        /*
         * Another gateway may have taken the claim over, with that hold or
         * without: the ask is answered when the session is known to live, or
         * the claim is gone.  A worker that leaves does not wait for either.
         */

        ask->unwritten = own && !ask->worker->leaving;
        ngx_http_zk_lock_ask_poll(ask);

    } else {

        /* the claim is another gateway's or session's by now: a list tells */

        ngx_http_zk_lock_ask_list(ask);
    }

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


/* A call that dropped a hold is told OK, though the last hold is gone, too. */

void
ngx_http_zk_lock_ask_gone(ngx_http_zk_lock_ask_t *ask)
{
    ask->nknown = 0;
    ask->unwritten = 0;

    ngx_http_zk_lock_ask_tell(ask, ask->type == NGX_HTTP_ZK_LOCK_RELEASE
                                   && (ask->counted || ask->wished)
                                   ? NGX_HTTP_ZK_LOCK_ASK_OK
                                   : NGX_HTTP_ZK_LOCK_ASK_GONE);
}


void
ngx_http_zk_lock_ask_placed(ngx_http_zk_lock_ask_t *ask)
{
    ngx_int_t                 rc;
    zk_lock_label_t           label;
    ngx_http_zk_lock_info_t  *info;

    info = &ask->infos[0];

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    if (ask->pending && info->held) {

        if (label.index >= 0 && !label.async) {

            /*
             * The token is told with the grant only, so another gateway has
             * told that the claim is held; the claim's worker knows that soon.
             */

            ngx_http_zk_lock_ask_poll(ask);
            return;
        }

        /* no claim is ahead, but only the claim's worker grants */

        info->held = 0;
        info->pending = 1;
    }

    if (!info->held) {
        ngx_http_zk_lock_ask_waits(ask, &label);
        return;
    }

    ngx_http_zk_lock_ask_note_ttl(info);

    switch (ask->type) {

    case NGX_HTTP_ZK_LOCK_RENEW:
        ngx_http_zk_lock_ask_set(ask);
        return;

    case NGX_HTTP_ZK_LOCK_SHARE:
        ngx_http_zk_lock_ask_share(ask);
        return;

    case NGX_HTTP_ZK_LOCK_HOLD:
    case NGX_HTTP_ZK_LOCK_RELEASE:

        rc = ask->wished ? ngx_http_zk_lock_ask_wished(ask) : NGX_AGAIN;

        if (rc == NGX_OK) {
            break;
        }

        if (rc == NGX_DECLINED) {
            ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE);
            return;
        }

        ngx_http_zk_lock_ask_wish(ask, ask->type == NGX_HTTP_ZK_LOCK_HOLD
                                       ? "hold" : "drop");
        return;

    default: /* NGX_HTTP_ZK_LOCK_INSPECT */

        if (label.async) {

            /* no client was told so far; the write tells the claim's gateway */

            ngx_http_zk_lock_ask_set(ask);
            return;
        }

        break;
    }

    ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);
}


/*
 * Another claim is ahead, and yet the claim may be held: a gateway hands a lock
 * over before the delete of the claim ahead is done.  That is so if the claim
 * is another gateway's and not async, since the token was told with the grant,
 * or if the claim is held more than once; the ask waits a while for an async
 * claim that the caller takes for held.
 */

static void
ngx_http_zk_lock_ask_waits(ngx_http_zk_lock_ask_t *ask,
    zk_lock_label_t *label)
{
    ngx_uint_t  looks, granted;

    looks = (ask->type == NGX_HTTP_ZK_LOCK_INSPECT);

    /* a mark of Curator's hides the label until the claim's gateway mends it */

    granted = !ask->pending && (label->index >= 0
                                ? !label->async || label->holds > 1
                                : label->revoke);

    if (granted) {
        ngx_http_zk_lock_ask_poll(ask);
        return;
    }

    if (label->async && !ask->pending) {

        if (looks && ask->grace != 0
            && (ask->tries == 0 || label->renewals == ask->renewals))
        {
            ngx_http_zk_lock_ask_set(ask);
            return;
        }

        /* else another ask has inspected the claim since, which will do */

        if (!looks
            && ngx_current_msec - ask->asked <= NGX_HTTP_ZK_LOCK_PATIENCE)
        {
            ngx_http_zk_lock_ask_poll(ask);
            return;
        }
    }

    ngx_http_zk_lock_ask_tell(ask, looks
                                   || ask->type == NGX_HTTP_ZK_LOCK_RENEW
                                   ? NGX_HTTP_ZK_LOCK_ASK_OK
                                   : NGX_HTTP_ZK_LOCK_ASK_WAITS);
}


/*
 * Sets the data of the claim's znode.  The claim's gateway watches a claim that
 * is held for some time; else that gateway sees the new count of renewals in
 * the data when the lease that the gateway knows is over.
 */

void
ngx_http_zk_lock_ask_set(ngx_http_zk_lock_ask_t *ask)
{
    char                       text[ZK_LOCK_LABEL_MAX];
    u_char                     buf[ZK_LOCK_CLAIM_MAX];
    size_t                     index_at;
    ngx_str_t                  name, value;
    ngx_uint_t                 own;
    zk_lock_label_t            label;
    ngx_http_zk_lock_op_t     *op;
    ngx_http_zk_lock_info_t   *info;
    ngx_http_zk_lock_record_t  record;

    info = &ask->infos[0];

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    if (label.index < 0) {

        /*
         * The claim is no gateway's, and must not be written to; or a Curator
         * client has written a mark over the label, which the gateway mends.
         */

        ngx_http_zk_lock_ask_tell(ask, label.revoke
                                       ? NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE
                                       : NGX_HTTP_ZK_LOCK_ASK_FOREIGN);
        return;
    }

    own = (ngx_http_zk_lock_ask_own(ask, &record) == NGX_OK);

    if (info->held && (label.gate_len != 0 || (own && record.durable))) {

        /* the longest ttl told: a gateway that takes over knows no other */

        label.ttl = ngx_max(label.ttl, (int64_t) info->ttl);
    }

    if (ask->counted || ask->recounts) {

        /* other workers may have counted meanwhile */

        if (own) {
            label.holds = (uint32_t) record.holds;

        } else if (ask->counted) {
            label.holds = (uint32_t) ask->holds;
        }

    } else {
        /*
         * A grant that was seen counts as a renewal: this client is told the
         * whole ttl, and the claim's worker may have told an earlier client.
         */

        if (ask->tries == 0) {
            ask->renewals = label.renewals;
        }

        label.renewals++;
        label.async = label.async && !info->held;

        if (ask->ttl != 0) {
            label.ttl = (int64_t) ask->ttl;
        }

        if (info->held) {
            info->ttl = (ngx_msec_t) label.ttl;
        }
    }

    value.len = zk_lock_label_write(text, &label, &index_at);
    value.data = (u_char *) text;

    ngx_http_zk_lock_ask_name(ask, &name, buf);

    op = ngx_http_zk_lock_op_new(ask->worker->session,
                                 NGX_HTTP_ZK_LOCK_OP_SET, &ask->path, &name,
                                 &value);
    if (op != NULL) {
        op->version = ask->version;
        op->handler = ngx_http_zk_lock_ask_set_handler;
        op->data = ask;
    }

    ngx_http_zk_lock_ask_send(ask, op);
}


static void
ngx_http_zk_lock_ask_set_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_uint_t                recounted;
    ngx_http_zk_lock_ask_t   *ask;
    ngx_http_zk_lock_info_t  *info;

    ask = op->data;
    info = &ask->infos[0];

    recounted = ask->recounts;
    ask->recounts = 0;

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:

        if (recounted) {

            /* the recount is written: now the call itself */

            ngx_http_zk_lock_ask_inspect(ask);
            break;
        }

        ask->unwritten = 0;

        if (ask->counted) {
            info->holds = ask->holds;
            info->held = 1;

        } else if (info->held) {
            info->expires = info->ttl;
            info->timed = 1;
        }

        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:

        if (ngx_http_zk_lock_ask_rename(ask) == NGX_OK) {
            ngx_http_zk_lock_ask_inspect(ask);
            break;
        }

        ngx_http_zk_lock_ask_gone(ask);
        break;

    case NGX_HTTP_ZK_LOCK_CHANGED:

        /* a count has to be written, and another writer was faster */

        if (ask->counted || recounted
            || (ask->handler != NULL
                && ++ask->tries < NGX_HTTP_ZK_LOCK_SET_TRIES))
        {
            ngx_http_zk_lock_ask_inspect(ask);
            break;
        }

        /* many asks write at once: only the first write succeeds each time */

        ngx_http_zk_lock_ask_poll(ask);
        break;

    default:
        ngx_http_zk_lock_ask_failed(ask, op->rc);
        break;
    }

    ngx_http_zk_lock_ask_unpin(ask);
}
