
/*
 * What is read and written of one claim, for those who ask.
 *
 * The claim's znode is read (inspect), and then either it is known by its
 * record (known), or the lock's claims are listed to know its place (placed);
 * what is to be written into its data then is written by the version that was
 * read (set).
 *
 * Everything here runs on the event loop.  The ask's infos[0] is there from the
 * first answer on.
 */


#include "ngx_http_zk_lock_node.h"


/* how often a znode's data are set against others */
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

        /* if it was this worker's, somebody else deleted it */

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

    if (own && (op->owner != 0 || ngx_http_zk_lock_ahead(record.alive))) {
        ngx_http_zk_lock_ask_known(ask, &record);

    } else if (ask->counted) {

        /*
         * Another gateway may have taken it over, with that hold or without:
         * nothing is told before the session is known to live, or the claim is
         * gone.  A worker that leaves does not wait for that.
         */

        ask->unwritten = own && !ask->worker->leaving;
        ngx_http_zk_lock_ask_poll(ask);

    } else {

        /* another gateway's, or another session's by now: the others tell */

        ngx_http_zk_lock_ask_list(ask);
    }

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


/* Who has dropped it is told that it was dropped, though by the last one. */

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
             * Its token is told with its grant only, so another gateway has
             * told that it is held; in a moment its own worker knows it too.
             */

            ngx_http_zk_lock_ask_poll(ask);
            return;
        }

        /* nobody is ahead of it, but only its worker grants */

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

            /* nobody was told so far; its gateway hears of it by this */

            ngx_http_zk_lock_ask_set(ask);
            return;
        }

        break;
    }

    ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);
}


/*
 * Somebody is ahead of it, and yet it may be held: its gateway hands a lock
 * over before the delete of the claim ahead is done.  So it was if the claim
 * is another gateway's and not async, since then its token was told with its
 * grant, or if it is held more than once; an async one that is asked for as if
 * it were held is given a while.
 */

static void
ngx_http_zk_lock_ask_waits(ngx_http_zk_lock_ask_t *ask,
    zk_lock_label_t *label)
{
    ngx_uint_t  looks, granted;

    looks = (ask->type == NGX_HTTP_ZK_LOCK_INSPECT);

    /* a mark of Curator's is mended by its gateway, and hides the label */

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

        /* else somebody has looked since this was asked, which will do */

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
 * Sets the data of the claim's znode.  Its gateway has a watch on it, if it is
 * held for some time; else it sees that there are more renewals in them when
 * the lease is over as it knows it.
 */

void
ngx_http_zk_lock_ask_set(ngx_http_zk_lock_ask_t *ask)
{
    char                       text[ZK_LOCK_LABEL_MAX];
    u_char                     buf[ZK_LOCK_CLAIM_MAX];
    size_t                     index_at;
    ngx_str_t                  name, value;
    zk_lock_label_t            label;
    ngx_http_zk_lock_op_t     *op;
    ngx_http_zk_lock_info_t   *info;
    ngx_http_zk_lock_record_t  record;

    info = &ask->infos[0];

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    if (label.index < 0) {

        /*
         * No gateway's, and not to be written to; or a Curator client has
         * written its mark over it, which its gateway will mend.
         */

        ngx_http_zk_lock_ask_tell(ask, label.revoke
                                       ? NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE
                                       : NGX_HTTP_ZK_LOCK_ASK_FOREIGN);
        return;
    }

    if (label.gate_len != 0 && info->held) {

        /* the longest time that was told: who takes it over knows no other */

        label.ttl = ngx_max(label.ttl, (int64_t) info->ttl);
    }

    if (ask->counted || ask->recounts) {

        /* others may have counted meanwhile */

        if (ngx_http_zk_lock_ask_own(ask, &record) == NGX_OK) {
            label.holds = (uint32_t) record.holds;

        } else if (ask->counted) {
            label.holds = (uint32_t) ask->holds;
        }

    } else {
        /*
         * That a grant was seen counts as a renewal: who is told here is told
         * the whole ttl, and the claim's worker may have told somebody before.
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

            /* now what was asked */

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

        /* what is counted has to be written, and others did so meanwhile */

        if (ask->counted || recounted
            || (ask->handler != NULL
                && ++ask->tries < NGX_HTTP_ZK_LOCK_SET_TRIES))
        {
            ngx_http_zk_lock_ask_inspect(ask);
            break;
        }

        /* many ask at once: each time only one of them comes through */

        ngx_http_zk_lock_ask_poll(ask);
        break;

    default:
        ngx_http_zk_lock_ask_failed(ask, op->rc);
        break;
    }

    ngx_http_zk_lock_ask_unpin(ask);
}
