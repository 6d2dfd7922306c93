
/*
 * Wishes: what a call wants of a claim and only the claim's gateway can do.
 *
 * A claim's gateway has to know that the claim is held once more or once less,
 * or shared from now on, before the gateway does anything else with the claim.
 * So the ask writes the wish into the claim's data, and sets the lock's znode,
 * which that gateway watches, to the present value.  The gateway fulfils the
 * wish and takes the wish out of the data; the ask reads the claim again and
 * again until the wish is gone.  A wish that is not fulfilled in time may be
 * fulfilled later: the caller is told that the outcome is not known.
 *
 * Everything here runs on the event loop, for an ask.
 */


#include "ngx_http_zk_lock_node.h"


/* what Curator's Revoker writes (Revoker.REVOKE_MESSAGE) */
#define NGX_HTTP_ZK_LOCK_REVOKE_MARK  "__REVOKE__"


static void ngx_http_zk_lock_ask_wish_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_mark_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_marked_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_write(ngx_http_zk_lock_ask_t *ask,
    ngx_str_t *value, int32_t version, ngx_http_zk_lock_op_pt handler);


/* The claim's data were read; the label is in infos[0]. */

void
ngx_http_zk_lock_ask_wish(ngx_http_zk_lock_ask_t *ask, const char *want)
{
    char                      text[ZK_LOCK_LABEL_MAX];
    size_t                    index_at;
    ngx_str_t                 value;
    zk_lock_label_t           label;
    ngx_http_zk_lock_info_t  *info;

    info = &ask->infos[0];

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    if (label.index < 0 && !label.revoke) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_FOREIGN);
        return;
    }

    /* a label has room for one wish, of any ask; a mark is mended first */

    if (ask->wished || label.index < 0 || label.want_len != 0) {
        ngx_http_zk_lock_ask_poll(ask);
        return;
    }

    if (ask->type == NGX_HTTP_ZK_LOCK_HOLD && ask->ttl != 0) {
        label.ttl = (int64_t) ask->ttl;
    }

    /* this ask's client may be the first to be told that the claim is held */

    label.renewals += (ask->type == NGX_HTTP_ZK_LOCK_HOLD || label.async);
    label.async = 0;

    /* a number lets the claim's gateway tell two equal wishes apart */

    if (ask->type == NGX_HTTP_ZK_LOCK_SHARE) {
        label.want_len = ngx_sprintf((u_char *) label.want, "%s", want)
                         - (u_char *) label.want;

    } else {
        label.want_len = ngx_sprintf((u_char *) label.want, "%s-%08xD", want,
                                     (uint32_t) ngx_random())
                         - (u_char *) label.want;
    }

    label.want[label.want_len] = '\0';

    ask->mended = label.mended;

    value.len = zk_lock_label_write(text, &label, &index_at);
    value.data = (u_char *) text;

    ngx_http_zk_lock_ask_write(ask, &value, ask->version,
                               ngx_http_zk_lock_ask_wish_handler);
}


static void
ngx_http_zk_lock_ask_wish_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
        ask->wished = 1;
        ngx_http_zk_lock_ask_touch(ask);
        ngx_http_zk_lock_ask_poll(ask);
        break;

    case NGX_HTTP_ZK_LOCK_CHANGED:
        ngx_http_zk_lock_ask_poll(ask);
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:

        if (ngx_http_zk_lock_ask_rename(ask) == NGX_OK) {
            ngx_http_zk_lock_ask_poll(ask);

        } else {
            ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_GONE);
        }

        break;

    case NGX_HTTP_ZK_LOCK_UNKNOWN:

        if (ask->type != NGX_HTTP_ZK_LOCK_SHARE) {

            /* the wish may be fulfilled by now, and a repeat would be, too */

            ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE);
            break;
        }

        /* fall through */

    default:
        ngx_http_zk_lock_ask_failed(ask, op->rc);
        break;
    }

    ngx_http_zk_lock_ask_unpin(ask);
}


/*
 * The gateway that fulfils a wish writes the label without the wish.  So does
 * the gateway that mends a mark, which a Curator client may have written over a
 * wish that the gateway had not read.
 */

ngx_int_t
ngx_http_zk_lock_ask_wished(ngx_http_zk_lock_ask_t *ask)
{
    zk_lock_label_t           label;
    ngx_http_zk_lock_info_t  *info;

    info = &ask->infos[0];

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    if (label.index >= 0 && label.want_len == 0) {
        return (label.mended == ask->mended) ? NGX_OK : NGX_DECLINED;
    }

    return NGX_AGAIN;
}


/* Shares a held claim that was read, until the znode has a reader's name. */

void
ngx_http_zk_lock_ask_share(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_claim_t  *claim;

    if (ask->token.kind == ZK_LOCK_READ) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);
        return;
    }

    if (ask->token.kind != ZK_LOCK_MUTEX && ask->token.kind != ZK_LOCK_WRITE) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_CONFLICT);
        return;
    }

    claim = ngx_http_zk_lock_claim_find(ask->worker, &ask->token.id,
                                        &ask->path);

    if (claim == NULL) {
        ngx_http_zk_lock_ask_wish(ask, "shared");
        return;
    }

    ngx_http_zk_lock_claim_share(claim);
    ngx_http_zk_lock_ask_poll(ask);
}


/*
 * Asks the holder to let go: by the label of a gateway's claim, else by
 * Curator's mark.
 */

void
ngx_http_zk_lock_ask_revoke(ngx_http_zk_lock_ask_t *ask)
{
    u_char                  buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t               name;
    ngx_http_zk_lock_op_t  *op;

    ngx_http_zk_lock_ask_name(ask, &name, buf);

    op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_GET, &name,
                                 ngx_http_zk_lock_ask_mark_handler, ask);

    ngx_http_zk_lock_ask_send(ask, op);
}


static void
ngx_http_zk_lock_ask_mark_handler(ngx_http_zk_lock_op_t *op)
{
    char                     text[ZK_LOCK_LABEL_MAX];
    size_t                   index_at;
    ngx_str_t                value;
    zk_lock_label_t          label;
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    if (op->rc == NGX_HTTP_ZK_LOCK_OK && ask->node
        && !ngx_http_zk_lock_node_asked(ask, op))
    {
        op->rc = NGX_HTTP_ZK_LOCK_NO_NODE;
    }

    if (op->rc != NGX_HTTP_ZK_LOCK_OK) {

        if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {
            ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_GONE);

        } else {
            ngx_http_zk_lock_ask_failed(ask, op->rc);
        }

        goto done;
    }

    zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

    if (label.revoke) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);
        goto done;
    }

    if (label.index < 0 && ask->node) {

        /* only recipes with a queue know Curator's mark */

        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_FOREIGN);
        goto done;
    }

    if (label.index >= 0) {
        label.revoke = 1;
        value.len = zk_lock_label_write(text, &label, &index_at);
        value.data = (u_char *) text;

    } else {
        ngx_str_set(&value, NGX_HTTP_ZK_LOCK_REVOKE_MARK);
    }

    ngx_http_zk_lock_ask_write(ask, &value, op->version,
                               ngx_http_zk_lock_ask_marked_handler);

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


static void
ngx_http_zk_lock_ask_marked_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
        ngx_http_zk_lock_ask_touch(ask);
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);
        break;

    case NGX_HTTP_ZK_LOCK_CHANGED:
        ngx_http_zk_lock_ask_revoke(ask);
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_GONE);
        break;

    default:
        ngx_http_zk_lock_ask_failed(ask, op->rc);
        break;
    }

    ngx_http_zk_lock_ask_unpin(ask);
}


static void
ngx_http_zk_lock_ask_write(ngx_http_zk_lock_ask_t *ask, ngx_str_t *value,
    int32_t version, ngx_http_zk_lock_op_pt handler)
{
    u_char                  buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t               name;
    ngx_http_zk_lock_op_t  *op;

    ngx_http_zk_lock_ask_name(ask, &name, buf);

    op = ngx_http_zk_lock_op_new(ask->worker->session,
                                 NGX_HTTP_ZK_LOCK_OP_SET, &ask->path, &name,
                                 value);
    if (op != NULL) {
        op->version = version;
        op->handler = handler;
        op->data = ask;
    }

    ngx_http_zk_lock_ask_send(ask, op);
}
