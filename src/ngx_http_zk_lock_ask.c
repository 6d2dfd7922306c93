
/*
 * Asks.
 *
 * A claim may be this worker's, a sibling's, or another gateway's.  Its token
 * leads to the record of the first two; for all others ZooKeeper is asked.
 * What is told as held was seen in ZooKeeper behind a sync, so that nobody
 * else can have been granted before the question came.
 *
 * Most of them read the claim's znode (inspect), and then either know it by its
 * record (held), or list the lock's claims to know its place (placed); what is
 * to be written into its data then is written by the version that was read.
 *
 * Everything here runs on the event loop.  An ask is freed when it was told
 * and nothing is under way for it.
 */


#include "ngx_http_zk_lock_node.h"


/* how often a znode's data are set against others */
#define NGX_HTTP_ZK_LOCK_SET_TRIES        5


static void ngx_http_zk_lock_ask_start(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_find(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_find_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_bell_handler(ngx_http_zk_lock_bell_t *bell);
static void ngx_http_zk_lock_ask_timer_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_ask_renew(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_inspect_handler(ngx_http_zk_lock_op_t *op);
static ngx_int_t ngx_http_zk_lock_ask_own(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record);
static void ngx_http_zk_lock_ask_known(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record);
static void ngx_http_zk_lock_ask_keep(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record);
static ngx_http_zk_lock_answer_e ngx_http_zk_lock_ask_held(
    ngx_http_zk_lock_ask_t *ask, ngx_http_zk_lock_record_t *record);
static void ngx_http_zk_lock_ask_more(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record);
static void ngx_http_zk_lock_ask_set_handler(ngx_http_zk_lock_op_t *op);


ngx_http_zk_lock_ask_t *
ngx_http_zk_lock_ask(ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_question_t *question)
{
    size_t                   len;
    u_char                  *p;
    ngx_http_zk_lock_ask_t  *ask;

    len = question->name ? question->name->len : 0;

    ask = ngx_calloc(sizeof(ngx_http_zk_lock_ask_t) + question->path->len
                     + len, worker->log);
    if (ask == NULL) {
        return NULL;
    }

    ask->worker = worker;
    ask->type = question->type;
    ask->ttl = question->ttl;
    ask->grace = question->grace;
    ask->handler = question->handler;
    ask->data = question->data;
    ask->asked = ngx_current_msec;
    ask->bell.handler = ngx_http_zk_lock_ask_bell_handler;

    p = (u_char *) ask + sizeof(ngx_http_zk_lock_ask_t);

    ask->path.len = question->path->len;
    ask->path.data = p;
    p = ngx_cpymem(p, question->path->data, question->path->len);

    if (len != 0) {
        ask->name.len = len;
        ask->name.data = p;
        ngx_memcpy(p, question->name->data, len);
    }

    if (question->token != NULL) {
        ask->token = *question->token;
        ask->kind = ask->token.kind;
        ask->find = (ask->token.seq == -1);
        ask->node = (ask->kind == ZK_LOCK_NODE);

    } else {
        ask->node = (question->node != 0);
    }

    ngx_http_zk_lock_worker_timer(worker, &ask->timer,
                                  ngx_http_zk_lock_ask_timer_handler);

    ngx_queue_insert_tail(&worker->asks, &ask->queue);
    ngx_http_zk_lock_worker_busy(worker);

    /* a release is owed from now on, even if it cannot be confirmed */

    if ((ask->type != NGX_HTTP_ZK_LOCK_RELEASE || ask->find)
        && !ngx_http_zk_lock_session_reachable(worker->session))
    {
        ngx_http_zk_lock_ask_post(ask, NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE);
        return ask;
    }

    ngx_http_zk_lock_ask_start(ask);

    return ask;
}


/* Without a connection, a new or a broken one, all but a release waits. */

static void
ngx_http_zk_lock_ask_start(ngx_http_zk_lock_ask_t *ask)
{
    if ((ask->type != NGX_HTTP_ZK_LOCK_RELEASE || ask->find || ask->counted)
        && !ngx_http_zk_lock_session_connected(ask->worker->session))
    {
        ask->later = 1;
        return;
    }

    if (ask->find) {
        ngx_http_zk_lock_ask_find(ask);
        return;
    }

    switch (ask->type) {

    case NGX_HTTP_ZK_LOCK_RELEASE:

        if (!ask->counted) {
            ngx_http_zk_lock_ask_release(ask);
            break;
        }

        /* it is held once less already, and only to be written down */

        ngx_http_zk_lock_ask_inspect(ask);
        break;

    case NGX_HTTP_ZK_LOCK_BREAK:
        ngx_http_zk_lock_ask_release(ask);
        break;

    case NGX_HTTP_ZK_LOCK_RENEW:
        ngx_http_zk_lock_ask_renew(ask);
        break;

    case NGX_HTTP_ZK_LOCK_HOLD:
    case NGX_HTTP_ZK_LOCK_SHARE:
    case NGX_HTTP_ZK_LOCK_INSPECT:
        ngx_http_zk_lock_ask_inspect(ask);
        break;

    case NGX_HTTP_ZK_LOCK_REVOKE:
        ngx_http_zk_lock_ask_revoke(ask);
        break;

    case NGX_HTTP_ZK_LOCK_LIST:
        ngx_http_zk_lock_ask_list(ask);
        break;

    case NGX_HTTP_ZK_LOCK_HOLDER:
        ngx_http_zk_lock_ask_holder(ask);
        break;
    }
}


void
ngx_http_zk_lock_ask_leave(ngx_http_zk_lock_ask_t *ask)
{
    ask->handler = NULL;

    ngx_http_zk_lock_ask_free(ask);
}


void
ngx_http_zk_lock_ask_connected(ngx_http_zk_lock_ask_t *ask)
{
    if (ask->owed) {

        if (ask->pins == 0) {
            ngx_http_zk_lock_ask_delete(ask);
        }

        return;
    }

    if (ask->later || (ask->unwritten && ask->pins == 0)) {
        ask->later = 0;
        ngx_http_zk_lock_ask_start(ask);
    }
}


void
ngx_http_zk_lock_ask_unreachable(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE);
    ngx_http_zk_lock_ask_free(ask);
}


void
ngx_http_zk_lock_ask_discard(ngx_http_zk_lock_ask_t *ask)
{
    ask->handler = NULL;
    ask->pins = 0;
    ask->mourning = 0;
    ask->owed = 0;
    ask->unwritten = 0;

    ngx_http_zk_lock_ask_free(ask);
}


static void
ngx_http_zk_lock_ask_bell_handler(ngx_http_zk_lock_bell_t *bell)
{
    ngx_http_zk_lock_ask_rung(ngx_queue_data(bell, ngx_http_zk_lock_ask_t,
                                             bell));
}


static void
ngx_http_zk_lock_ask_timer_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_ask_t  *ask;

    ask = ngx_queue_data(ev, ngx_http_zk_lock_ask_t, timer);

    if (ask->bell.set) {
        ngx_http_zk_lock_ask_forsaken(ask);
        return;
    }

    if (ask->polls) {
        ask->polls = 0;
        ngx_http_zk_lock_ask_inspect(ask);
        return;
    }

    ngx_http_zk_lock_ask_tell(ask, ask->answer);
    ngx_http_zk_lock_ask_free(ask);
}


/* Only the key in the claim's id is known: a list shows the rest. */

static void
ngx_http_zk_lock_ask_find(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_op_t  *op;

    ngx_http_zk_lock_ask_sync(ask);

    op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_LIST, NULL,
                                 ngx_http_zk_lock_ask_find_handler, ask);

    ngx_http_zk_lock_ask_send(ask, op);
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
            || ngx_memcmp(child.id.random, ask->token.id.random,
                          NGX_HTTP_ZK_LOCK_KEY)
               != 0
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


/*
 * A claim of this gateway is renewed in its record, also while its worker is
 * dead and nobody has adopted its session yet; another one in its znode.
 */

static void
ngx_http_zk_lock_ask_renew(ngx_http_zk_lock_ask_t *ask)
{
    ngx_int_t                  rc;
    ngx_msec_t                 ttl;
    ngx_http_zk_lock_record_t  record;

    if (ngx_http_zk_lock_ask_own(ask, &record) == NGX_OK
        && record.state != NGX_HTTP_ZK_LOCK_RECORD_WAITING)
    {
        ttl = ask->ttl ? ask->ttl : record.ttl;

        rc = NGX_OK;

        if (!ngx_http_zk_lock_ask_endless(&record)) {
            rc = ngx_http_zk_lock_record_renew(ask->worker->zone,
                                         &ask->token.id, &ask->path, ttl,
                                         ngx_http_zk_lock_now() + ttl, 0, 0);
        }

        if (rc != NGX_OK && rc != NGX_AGAIN
            && record.state == NGX_HTTP_ZK_LOCK_RECORD_ENDED)
        {
            ngx_http_zk_lock_ask_post(ask, NGX_HTTP_ZK_LOCK_ASK_GONE);
            return;
        }

        /* a lease that is over may have been renewed at another gateway */
    }

    ngx_http_zk_lock_ask_inspect(ask);
}


/* Whether it is a claim of this gateway. */

static ngx_int_t
ngx_http_zk_lock_ask_own(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record)
{
    ngx_int_t  rc;

    rc = ngx_http_zk_lock_record_read(ask->worker->zone, &ask->token.id,
                                      &ask->path, record);

    return ((rc == NGX_OK || rc == NGX_AGAIN)
            && record->seq == ask->token.seq) ? NGX_OK : NGX_DECLINED;
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

    ngx_http_zk_lock_ask_sync(ask);

    op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_GET, &name,
                                 ngx_http_zk_lock_ask_inspect_handler, ask);

    ngx_http_zk_lock_ask_send(ask, op);
}


static void
ngx_http_zk_lock_ask_inspect_handler(ngx_http_zk_lock_op_t *op)
{
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

    if (op->rc != NGX_HTTP_ZK_LOCK_OK) {
        ngx_http_zk_lock_ask_failed(ask, op->rc);
        goto done;
    }

    if (ngx_http_zk_lock_ask_note(&ask->infos[0], op) != NGX_OK) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_FAILED);
        goto done;
    }

    ask->other = 0;
    ask->version = op->version;
    ask->nknown = 1;
    ask->infos[0].child.kind = ask->token.kind;
    ask->infos[0].child.seq = ask->token.seq;

    if (ngx_http_zk_lock_ask_own(ask, &record) == NGX_OK) {
        ngx_http_zk_lock_ask_known(ask, &record);

    } else {

        /* another gateway's: the others tell */

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


/* A claim of this gateway, whose znode was there just now. */

static void
ngx_http_zk_lock_ask_known(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record)
{
    ngx_http_zk_lock_answer_e  answer;

    ngx_http_zk_lock_ask_note_record(&ask->infos[0], record);

    if (record->state == NGX_HTTP_ZK_LOCK_RECORD_WAITING) {
        ask->pending = 1;
        ngx_http_zk_lock_ask_keep(ask, record);
        ngx_http_zk_lock_ask_list(ask);
        return;
    }

    ask->pending = 0;

    if (ask->counted) {
        ngx_http_zk_lock_ask_set(ask);
        return;
    }

    answer = ngx_http_zk_lock_ask_held(ask, record);

    if (answer == NGX_HTTP_ZK_LOCK_ASK_GONE
        && ask->type == NGX_HTTP_ZK_LOCK_RENEW
        && record->state == NGX_HTTP_ZK_LOCK_RECORD_HELD
        && record->renewals != ngx_http_zk_lock_ask_renewals(ask))
    {
        ngx_http_zk_lock_ask_set(ask);
        return;
    }

    if (answer == NGX_HTTP_ZK_LOCK_ASK_OK) {

        if (ask->type == NGX_HTTP_ZK_LOCK_HOLD) {
            ngx_http_zk_lock_ask_more(ask, record);
            return;
        }

        if (ask->type == NGX_HTTP_ZK_LOCK_SHARE) {
            ngx_http_zk_lock_ask_share(ask);
            return;
        }
    }

    ngx_http_zk_lock_ask_tell(ask, answer);
}


/* Who asks for a claim that waits alone keeps it. */

static void
ngx_http_zk_lock_ask_keep(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record)
{
    if (ask->type != NGX_HTTP_ZK_LOCK_INSPECT || ask->grace == 0
        || record->lease == 0)
    {
        return;
    }

    (void) ngx_http_zk_lock_record_renew(ask->worker->zone, &ask->token.id,
                                     &ask->path, record->ttl,
                                     ngx_http_zk_lock_now() + ask->grace,
                                     0, 0);
}


/* What is told of a claim of this gateway that is held, or was. */

static ngx_http_zk_lock_answer_e
ngx_http_zk_lock_ask_held(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record)
{
    uint32_t                  renewals;
    ngx_msec_t                ttl;
    ngx_http_zk_lock_info_t  *info;

    if (record->state == NGX_HTTP_ZK_LOCK_RECORD_ENDED) {
        return NGX_HTTP_ZK_LOCK_ASK_GONE;
    }

    info = &ask->infos[0];
    renewals = ngx_http_zk_lock_ask_renewals(ask);

    if (renewals <= record->renewals) {

        if (record->lease == 0) {
            return NGX_HTTP_ZK_LOCK_ASK_GONE;
        }

        if (record->unseen) {

            /* from now on the lease counts */

            (void) ngx_http_zk_lock_record_renew(ask->worker->zone,
                                    &ask->token.id, &ask->path, record->ttl,
                                    ngx_http_zk_lock_now() + record->ttl,
                                    0, 0);
            info->expires = record->ttl;
        }

    } else if (ask->type != NGX_HTTP_ZK_LOCK_RENEW) {

        /* another gateway has renewed it; here that is not known yet */

        ngx_http_zk_lock_ask_note_ttl(info);
        info->timed = 0;

    } else if (record->lease == 0) {
        return NGX_HTTP_ZK_LOCK_ASK_GONE;

    } else {

        /* the same, but now it was renewed here */

        ttl = info->ttl;

        if (ask->ttl == 0) {
            ngx_http_zk_lock_ask_note_ttl(info);
            info->ttl = info->ttl ? info->ttl : ttl;
        }

        (void) ngx_http_zk_lock_record_renew(ask->worker->zone,
                                        &ask->token.id, &ask->path, info->ttl,
                                        ngx_http_zk_lock_now() + info->ttl,
                                        ask->version, renewals);
        info->expires = info->ttl;
    }

    info->holds = record->holds;

    return ngx_http_zk_lock_ahead(record->alive)
           ? NGX_HTTP_ZK_LOCK_ASK_OK : NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE;
}


/* It is held once more: its record says so, and then its label. */

static void
ngx_http_zk_lock_ask_more(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record)
{
    ngx_int_t                 rc;
    ngx_msec_t                ttl;
    ngx_http_zk_lock_info_t  *info;

    info = &ask->infos[0];

    rc = ngx_http_zk_lock_record_hold(ask->worker->zone, &ask->token.id,
                                      &ask->path, 0, &ask->holds);

    if (rc != NGX_OK && rc != NGX_AGAIN) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_GONE);
        return;
    }

    ask->counted = 1;

    if (!info->endless) {
        ttl = ask->ttl ? ask->ttl : record->ttl;

        (void) ngx_http_zk_lock_record_renew(ask->worker->zone,
                                          &ask->token.id, &ask->path, ttl,
                                          ngx_http_zk_lock_now() + ttl, 0, 0);
        info->ttl = ttl;
        info->expires = ttl;
    }

    ngx_http_zk_lock_ask_set(ask);
}


void
ngx_http_zk_lock_ask_placed(ngx_http_zk_lock_ask_t *ask)
{
    zk_lock_label_t           label;
    ngx_http_zk_lock_info_t  *info;

    info = &ask->infos[0];

    if (ask->pending && info->held) {

        /* nobody is ahead of it, but only its worker grants */

        info->held = 0;
        info->pending = 1;
    }

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    if (!info->held) {

        if (ask->type == NGX_HTTP_ZK_LOCK_INSPECT && ask->grace != 0
            && label.async && !ask->pending)
        {
            ngx_http_zk_lock_ask_set(ask);
            return;
        }

        ngx_http_zk_lock_ask_tell(ask, ask->type == NGX_HTTP_ZK_LOCK_INSPECT
                                       || ask->type == NGX_HTTP_ZK_LOCK_RENEW
                                       ? NGX_HTTP_ZK_LOCK_ASK_OK
                                       : NGX_HTTP_ZK_LOCK_ASK_WAITS);
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

        if (ask->wished && label.want_len == 0) {
            break;
        }

        ngx_http_zk_lock_ask_wish(ask, ask->type == NGX_HTTP_ZK_LOCK_HOLD
                                       ? "hold" : "drop");
        return;

    default: /* NGX_HTTP_ZK_LOCK_INSPECT */

        if (label.async) {

            /* nobody was told so far; its gateway hears of it by this */

            ask->seen = 1;
            ngx_http_zk_lock_ask_set(ask);
            return;
        }

        break;
    }

    ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);
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

    if (ask->counted) {

        /* others may have counted meanwhile */

        label.holds = (ngx_http_zk_lock_ask_own(ask, &record) == NGX_OK)
                      ? (uint32_t) record.holds : (uint32_t) ask->holds;

    } else {
        /* that a grant was seen is no renewal */

        label.renewals += !(ask->type == NGX_HTTP_ZK_LOCK_INSPECT
                            && info->held);
        label.async = label.async && !info->held;

        if (ask->ttl != 0) {
            label.ttl = (int64_t) ask->ttl;
        }

        info->ttl = (ngx_msec_t) label.ttl;
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
    ngx_http_zk_lock_ask_t   *ask;
    ngx_http_zk_lock_info_t  *info;

    ask = op->data;
    info = &ask->infos[0];

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:

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

        if (ask->counted
            || (ask->handler != NULL
                && ++ask->tries < NGX_HTTP_ZK_LOCK_SET_TRIES))
        {
            ngx_http_zk_lock_ask_inspect(ask);
            break;
        }

        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE);
        break;

    default:
        ngx_http_zk_lock_ask_failed(ask, op->rc);
        break;
    }

    ngx_http_zk_lock_ask_unpin(ask);
}


uint32_t
ngx_http_zk_lock_ask_renewals(ngx_http_zk_lock_ask_t *ask)
{
    zk_lock_label_t           label;
    ngx_http_zk_lock_info_t  *info;

    info = &ask->infos[0];

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    return label.renewals;
}


ngx_uint_t
ngx_http_zk_lock_ask_endless(ngx_http_zk_lock_record_t *record)
{
    return (ngx_msec_int_t) (record->lease - ngx_http_zk_lock_now())
           > (ngx_msec_int_t) NGX_HTTP_ZK_LOCK_NO_LEASE / 2;
}


ngx_int_t
ngx_http_zk_lock_ask_rename(ngx_http_zk_lock_ask_t *ask)
{
    if (ask->name.len != 0 || ask->other
        || (ask->kind != ZK_LOCK_MUTEX && ask->kind != ZK_LOCK_WRITE))
    {
        ask->other = 0;
        return NGX_DECLINED;
    }

    ask->other = 1;
    ask->token.kind = (ask->token.kind == ZK_LOCK_READ) ? ask->kind
                                                        : ZK_LOCK_READ;
    return NGX_OK;
}


void
ngx_http_zk_lock_ask_sync(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_op_t  *op;

    op = ngx_http_zk_lock_op_new(ask->worker->session,
                                 NGX_HTTP_ZK_LOCK_OP_SYNC, &ask->path, NULL,
                                 NULL);
    if (op != NULL) {
        ngx_http_zk_lock_session_send(op);
    }
}


void
ngx_http_zk_lock_ask_name(ngx_http_zk_lock_ask_t *ask, ngx_str_t *name,
    u_char *buf)
{
    if (ask->name.len != 0) {
        *name = ask->name;

        if (ask->node) {
            name->len = 0;
        }

        return;
    }

    name->data = buf;
    name->len = zk_lock_claim_write((char *) buf, &ask->token.id,
                                    ask->token.kind, ask->token.seq);
}


ngx_http_zk_lock_op_t *
ngx_http_zk_lock_ask_op(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_e type, ngx_str_t *name,
    ngx_http_zk_lock_op_pt handler, void *data)
{
    ngx_http_zk_lock_op_t  *op;

    op = ngx_http_zk_lock_op_new(ask->worker->session, type, &ask->path, name,
                                 NULL);
    if (op == NULL) {
        return NULL;
    }

    op->handler = handler;
    op->data = data;

    return op;
}


void
ngx_http_zk_lock_ask_send(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op)
{
    if (op == NULL) {
        ngx_http_zk_lock_ask_post(ask, NGX_HTTP_ZK_LOCK_ASK_FAILED);
        return;
    }

    ask->pins++;

    ngx_http_zk_lock_session_send(op);
}


void
ngx_http_zk_lock_ask_failed(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_rc_e rc)
{
    ngx_http_zk_lock_answer_e  answer;

    ask->unwritten = ask->counted && (rc == NGX_HTTP_ZK_LOCK_UNSENT
                                      || rc == NGX_HTTP_ZK_LOCK_UNKNOWN);

    switch (rc) {

    case NGX_HTTP_ZK_LOCK_NO_AUTH:
        answer = NGX_HTTP_ZK_LOCK_ASK_DENIED;
        break;

    case NGX_HTTP_ZK_LOCK_UNSENT:
    case NGX_HTTP_ZK_LOCK_UNKNOWN:
        answer = NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE;
        break;

    default:
        answer = NGX_HTTP_ZK_LOCK_ASK_FAILED;
        break;
    }

    ngx_http_zk_lock_ask_tell(ask, answer);
}


void
ngx_http_zk_lock_ask_post(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer)
{
    ask->answer = answer;

    if (!ask->timer.timer_set) {
        ngx_post_event(&ask->timer, &ngx_posted_events);
    }
}


void
ngx_http_zk_lock_ask_tell(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer)
{
    ngx_http_zk_lock_ask_pt  handler;

    handler = ask->handler;

    if (handler == NULL) {
        return;
    }

    ask->pins++;
    ask->handler = NULL;

    handler(ask, answer);

    ask->pins--;
}


void
ngx_http_zk_lock_ask_unpin(ngx_http_zk_lock_ask_t *ask)
{
    ask->pins--;

    ngx_http_zk_lock_ask_free(ask);
}


void
ngx_http_zk_lock_ask_free(ngx_http_zk_lock_ask_t *ask)
{
    if (ask->handler != NULL || ask->pins != 0 || ask->mourning || ask->owed
        || ask->unwritten)
    {
        return;
    }

    if (ask->bell.set) {
        ngx_http_zk_lock_bell_take_down(ask->worker, &ask->bell);
    }

    if (ask->timer.timer_set) {
        ngx_del_timer(&ask->timer);
    }

    if (ask->timer.posted) {
        ngx_delete_posted_event(&ask->timer);
    }

    (void) ngx_http_zk_lock_ask_infos(ask, 0);

    ngx_queue_remove(&ask->queue);
    ngx_http_zk_lock_worker_busy(ask->worker);

    ngx_free(ask);
}
