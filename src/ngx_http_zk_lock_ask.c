
/*
 * Asks.
 *
 * A claim may be this worker's, a sibling's, or another gateway's.  Its token
 * leads to the record of the first two; for all others ZooKeeper is asked.
 * What is told as held was seen in ZooKeeper behind a sync, so that nobody
 * else can have been granted before the question came.
 *
 * Everything here runs on the event loop.  An ask is freed when it was told
 * and nothing is under way for it.
 */


#include "ngx_http_zk_lock_ask.h"


/* how long a sibling may take to release, milliseconds */
#define NGX_HTTP_ZK_LOCK_SIBLING_WAIT     500

/* how often a renewal in a znode is tried against others */
#define NGX_HTTP_ZK_LOCK_SET_TRIES        5

/* the same for a lock's znode, on which all releases at once meet */
#define NGX_HTTP_ZK_LOCK_TOUCHES_MAX      50


static void ngx_http_zk_lock_ask_start(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_release(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_delete(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_delete_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_parent_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_touched_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_touch_handler(ngx_http_zk_lock_op_t *op);
static ngx_http_zk_lock_op_t *ngx_http_zk_lock_ask_touch(
    ngx_http_zk_lock_ask_t *ask, ngx_http_zk_lock_op_t *get);
static void ngx_http_zk_lock_ask_released(void *data, ngx_uint_t lapsed);
static void ngx_http_zk_lock_ask_bell_handler(ngx_http_zk_lock_bell_t *bell);
static void ngx_http_zk_lock_ask_timer_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_ask_renew(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_inspect(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_inspect_handler(ngx_http_zk_lock_op_t *op);
static ngx_http_zk_lock_answer_e ngx_http_zk_lock_ask_held(
    ngx_http_zk_lock_ask_t *ask, ngx_http_zk_lock_record_t *record);
static void ngx_http_zk_lock_ask_set(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_set_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_holder(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_holder_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_list(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_list_handler(ngx_http_zk_lock_op_t *op);
static ngx_int_t ngx_http_zk_lock_ask_count(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op);
static ngx_int_t ngx_http_zk_lock_ask_sort(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op);
static int ngx_libc_cdecl ngx_http_zk_lock_ask_compare(const void *one,
    const void *two);
static void ngx_http_zk_lock_ask_find(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_read(ngx_http_zk_lock_ask_t *ask,
    ngx_str_t *name, ngx_http_zk_lock_info_t *info);
static void ngx_http_zk_lock_ask_read_handler(ngx_http_zk_lock_op_t *op);
static ngx_int_t ngx_http_zk_lock_ask_note(ngx_http_zk_lock_info_t *info,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_note_ttl(ngx_http_zk_lock_info_t *info);
static void ngx_http_zk_lock_ask_note_record(ngx_http_zk_lock_info_t *info,
    ngx_http_zk_lock_record_t *record);
static ngx_int_t ngx_http_zk_lock_ask_infos(ngx_http_zk_lock_ask_t *ask,
    ngx_uint_t n);
static void ngx_http_zk_lock_ask_sync(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_name(ngx_http_zk_lock_ask_t *ask,
    ngx_str_t *name, u_char *buf);
static ngx_http_zk_lock_op_t *ngx_http_zk_lock_ask_op(
    ngx_http_zk_lock_ask_t *ask, ngx_http_zk_lock_op_e type, ngx_str_t *name,
    ngx_http_zk_lock_op_pt handler, void *data);
static void ngx_http_zk_lock_ask_send(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_failed(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_rc_e rc);
static void ngx_http_zk_lock_ask_post(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer);
static void ngx_http_zk_lock_ask_tell(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer);
static void ngx_http_zk_lock_ask_unpin(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_free(ngx_http_zk_lock_ask_t *ask);


ngx_http_zk_lock_ask_t *
ngx_http_zk_lock_ask(ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_ask_e type, ngx_str_t *path, zk_lock_token_t *token,
    ngx_msec_t ttl, ngx_http_zk_lock_ask_pt handler, void *data)
{
    ngx_http_zk_lock_ask_t  *ask;

    ask = ngx_calloc(sizeof(ngx_http_zk_lock_ask_t) + path->len, worker->log);
    if (ask == NULL) {
        return NULL;
    }

    ask->worker = worker;
    ask->type = type;
    ask->ttl = ttl;
    ask->handler = handler;
    ask->data = data;
    ask->bell.handler = ngx_http_zk_lock_ask_bell_handler;

    ask->path.len = path->len;
    ask->path.data = (u_char *) ask + sizeof(ngx_http_zk_lock_ask_t);
    ngx_memcpy(ask->path.data, path->data, path->len);

    if (token != NULL) {
        ask->token = *token;
    }

    ngx_http_zk_lock_worker_timer(worker, &ask->timer,
                                  ngx_http_zk_lock_ask_timer_handler);

    ngx_queue_insert_tail(&worker->asks, &ask->queue);
    ngx_http_zk_lock_worker_busy(worker);

    /* a release is owed from now on, even if it cannot be confirmed */

    if (type != NGX_HTTP_ZK_LOCK_RELEASE
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
    if (ask->type != NGX_HTTP_ZK_LOCK_RELEASE
        && !ngx_http_zk_lock_session_connected(ask->worker->session))
    {
        ask->later = 1;
        return;
    }

    switch (ask->type) {

    case NGX_HTTP_ZK_LOCK_RELEASE:
        ngx_http_zk_lock_ask_release(ask);
        break;

    case NGX_HTTP_ZK_LOCK_RENEW:
        ngx_http_zk_lock_ask_renew(ask);
        break;

    case NGX_HTTP_ZK_LOCK_INSPECT:
        ngx_http_zk_lock_ask_inspect(ask);
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

    if (ask->later) {
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

    ngx_http_zk_lock_ask_free(ask);
}


/*
 * A claim of this gateway is released by its own worker, which knows who is
 * next; any other by a delete.
 */

static void
ngx_http_zk_lock_ask_release(ngx_http_zk_lock_ask_t *ask)
{
    zk_lock_token_t            *token;
    ngx_http_zk_lock_claim_t   *claim;
    ngx_http_zk_lock_worker_t  *worker;
    ngx_http_zk_lock_record_t   record;

    worker = ask->worker;
    token = &ask->token;

    claim = ngx_http_zk_lock_claim_find(worker, &token->id, &ask->path);

    if (claim != NULL && claim->entry.seq == token->seq) {
        ask->mourning = 1;
        ask->mourner.handler = ngx_http_zk_lock_ask_released;
        ask->mourner.data = ask;

        ngx_http_zk_lock_claim_release(claim, &ask->mourner);
        return;
    }

    if (ngx_http_zk_lock_record_read(worker->zone, &token->id, &ask->path,
                                     &record)
        == NGX_OK
        && record.seq == token->seq
        && record.near
        && ngx_http_zk_lock_record_ask(worker->zone, &token->id, &ask->path)
           == NGX_OK)
    {
        ask->lapsed = (record.state == NGX_HTTP_ZK_LOCK_RECORD_HELD
                       && record.lease == 0);

        ngx_http_zk_lock_bell_hang(worker, &ask->bell, token->id.record);
        ngx_add_timer(&ask->timer, NGX_HTTP_ZK_LOCK_SIBLING_WAIT);
        return;
    }

    ngx_http_zk_lock_ask_delete(ask);
}


/*
 * A release that could not be confirmed is repeated until it is, also when
 * who asked for it was told so and has left.
 *
 * The gateway whose claim is deleted may have more of them in the same queue,
 * and no reason to look.  It watches the lock's znode: in the transaction that
 * deletes the claim that is set to what it is, and so all look who take part.
 */

static void
ngx_http_zk_lock_ask_delete(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_op_t  *op;

    ask->owed = 1;

    if (!ngx_http_zk_lock_session_connected(ask->worker->session)) {
        return;
    }

    op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_GET, NULL,
                                 ngx_http_zk_lock_ask_parent_handler, ask);

    ngx_http_zk_lock_ask_send(ask, op);
}


static void
ngx_http_zk_lock_ask_parent_handler(ngx_http_zk_lock_op_t *op)
{
    u_char                  buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t               name;
    ngx_http_zk_lock_op_t  *set, *delete;
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    if (op->rc == NGX_HTTP_ZK_LOCK_UNKNOWN
        || op->rc == NGX_HTTP_ZK_LOCK_UNSENT)
    {
        goto done;
    }

    ngx_http_zk_lock_ask_name(ask, &name, buf);

    delete = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_DELETE, &name,
                                     ngx_http_zk_lock_ask_delete_handler,
                                     ask);
    if (delete == NULL) {
        goto done;
    }

    set = ngx_http_zk_lock_ask_touch(ask, op);

    delete->gather = (set != NULL);
    ngx_http_zk_lock_ask_send(ask, delete);

    if (set != NULL) {
        set->gather = 1;
        ngx_http_zk_lock_ask_send(ask, set);
    }

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


/* Two releases at once: the one that came second says so by itself. */

static void
ngx_http_zk_lock_ask_touched_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_op_t   *get;
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    if (op->rc == NGX_HTTP_ZK_LOCK_CHANGED
        && ++ask->touches < NGX_HTTP_ZK_LOCK_TOUCHES_MAX)
    {
        get = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_GET, NULL,
                                      ngx_http_zk_lock_ask_touch_handler, ask);
        if (get != NULL) {
            ngx_http_zk_lock_ask_send(ask, get);
        }
    }

    ngx_http_zk_lock_ask_unpin(ask);
}


static void
ngx_http_zk_lock_ask_touch_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_op_t   *set;
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    set = ngx_http_zk_lock_ask_touch(ask, op);

    if (set != NULL) {
        ngx_http_zk_lock_ask_send(ask, set);
    }

    ngx_http_zk_lock_ask_unpin(ask);
}


/*
 * Sets the lock's znode to what get has read of it; NULL if that is not known
 * to its end, or there is no memory.
 */

static ngx_http_zk_lock_op_t *
ngx_http_zk_lock_ask_touch(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *get)
{
    ngx_http_zk_lock_op_t  *op;

    if (get->rc != NGX_HTTP_ZK_LOCK_OK || get->reply.len >= ZK_LOCK_LABEL_MAX)
    {
        return NULL;
    }

    op = ngx_http_zk_lock_op_new(ask->worker->session,
                                 NGX_HTTP_ZK_LOCK_OP_SET, &ask->path, NULL,
                                 &get->reply);
    if (op == NULL) {
        return NULL;
    }

    op->version = get->version;
    op->handler = ngx_http_zk_lock_ask_touched_handler;
    op->data = ask;

    return op;
}


static void
ngx_http_zk_lock_ask_delete_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);
        ask->owed = 0;
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:
        ngx_http_zk_lock_ask_tell(ask, ask->tries
                                       ? NGX_HTTP_ZK_LOCK_ASK_OK
                                       : NGX_HTTP_ZK_LOCK_ASK_GONE);
        ask->owed = 0;
        break;

    case NGX_HTTP_ZK_LOCK_UNKNOWN:
    case NGX_HTTP_ZK_LOCK_UNSENT:
        ask->owed = 1;
        ask->tries += (op->rc == NGX_HTTP_ZK_LOCK_UNKNOWN);
        break;

    default:
        ngx_http_zk_lock_ask_failed(ask, op->rc);
        ask->owed = 0;
        break;
    }

    ngx_http_zk_lock_ask_unpin(ask);
}


static void
ngx_http_zk_lock_ask_released(void *data, ngx_uint_t lapsed)
{
    ngx_http_zk_lock_ask_t *ask = data;

    ask->mourning = 0;

    ngx_http_zk_lock_ask_tell(ask, lapsed ? NGX_HTTP_ZK_LOCK_ASK_GONE
                                          : NGX_HTTP_ZK_LOCK_ASK_OK);
    ngx_http_zk_lock_ask_free(ask);
}


static void
ngx_http_zk_lock_ask_bell_handler(ngx_http_zk_lock_bell_t *bell)
{
    ngx_http_zk_lock_ask_t     *ask;
    ngx_http_zk_lock_record_t   record;

    ask = ngx_queue_data(bell, ngx_http_zk_lock_ask_t, bell);

    if (ngx_http_zk_lock_record_read(ask->worker->zone, &ask->token.id,
                                     &ask->path, &record)
        != NGX_DECLINED)
    {
        ngx_http_zk_lock_bell_hang(ask->worker, &ask->bell,
                                   ask->token.id.record);
        return;
    }

    ngx_http_zk_lock_ask_tell(ask, ask->lapsed ? NGX_HTTP_ZK_LOCK_ASK_GONE
                                               : NGX_HTTP_ZK_LOCK_ASK_OK);
    ngx_http_zk_lock_ask_free(ask);
}


static void
ngx_http_zk_lock_ask_timer_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_ask_t  *ask;

    ask = ngx_queue_data(ev, ngx_http_zk_lock_ask_t, timer);

    if (ask->bell.set) {

        /*
         * The sibling does not answer, and may be dead; who comes after it
         * may have done what it was asked for.
         */

        ask->tries++;

        ngx_http_zk_lock_bell_take_down(ask->worker, &ask->bell);
        ngx_http_zk_lock_ask_delete(ask);
        return;
    }

    ngx_http_zk_lock_ask_tell(ask, ask->answer);
    ngx_http_zk_lock_ask_free(ask);
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

    rc = ngx_http_zk_lock_record_read(ask->worker->zone, &ask->token.id,
                                      &ask->path, &record);

    if ((rc == NGX_OK || rc == NGX_AGAIN) && record.seq == ask->token.seq) {

        ttl = ask->ttl ? ask->ttl : record.ttl;

        rc = ngx_http_zk_lock_record_renew(ask->worker->zone, &ask->token.id,
                                           &ask->path, ttl,
                                           ngx_http_zk_lock_now() + ttl, 0);

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


static void
ngx_http_zk_lock_ask_inspect(ngx_http_zk_lock_ask_t *ask)
{
    u_char                  buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t               name;
    ngx_http_zk_lock_op_t  *op;

    if (ngx_http_zk_lock_ask_infos(ask, 1) != NGX_OK) {
        ngx_http_zk_lock_ask_post(ask, NGX_HTTP_ZK_LOCK_ASK_FAILED);
        return;
    }

    ask->infos[0].child.kind = ask->token.kind;
    ask->infos[0].child.seq = ask->token.seq;

    ngx_http_zk_lock_ask_name(ask, &name, buf);

    ngx_http_zk_lock_ask_sync(ask);

    op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_GET, &name,
                                 ngx_http_zk_lock_ask_inspect_handler, ask);

    ngx_http_zk_lock_ask_send(ask, op);
}


static void
ngx_http_zk_lock_ask_inspect_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_int_t                   rc;
    ngx_http_zk_lock_ask_t     *ask;
    ngx_http_zk_lock_lock_t    *lock;
    ngx_http_zk_lock_record_t   record;

    ask = op->data;

    if (ask->handler == NULL) {
        goto done;
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {

        /* if it was this worker's, somebody else deleted it */

        lock = ngx_http_zk_lock_lock_find(ask->worker, &ask->path);

        if (lock != NULL && lock->nclaims != 0) {
            ngx_http_zk_lock_lock_list(lock);
        }

        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_GONE);
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

    ask->version = op->version;

    rc = ngx_http_zk_lock_record_read(ask->worker->zone, &ask->token.id,
                                      &ask->path, &record);

    if ((rc == NGX_OK || rc == NGX_AGAIN) && record.seq == ask->token.seq) {

        ngx_http_zk_lock_ask_note_record(&ask->infos[0], &record);

        if (record.state == NGX_HTTP_ZK_LOCK_RECORD_HELD
            && record.lease == 0
            && ask->type == NGX_HTTP_ZK_LOCK_RENEW
            && ask->version != record.version)
        {
            ngx_http_zk_lock_ask_set(ask);
            goto done;
        }

        if (record.state == NGX_HTTP_ZK_LOCK_RECORD_HELD
            || record.state == NGX_HTTP_ZK_LOCK_RECORD_ENDED)
        {
            ngx_http_zk_lock_ask_tell(ask,
                                      ngx_http_zk_lock_ask_held(ask, &record));
            goto done;
        }
    }

    /* it waits, or is another gateway's: the others tell */

    ngx_http_zk_lock_ask_list(ask);

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


/* What is told of a claim of this gateway whose znode was there just now. */

static ngx_http_zk_lock_answer_e
ngx_http_zk_lock_ask_held(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record)
{
    ngx_msec_t                ttl;
    ngx_http_zk_lock_info_t  *info;

    if (record->state == NGX_HTTP_ZK_LOCK_RECORD_ENDED) {
        return NGX_HTTP_ZK_LOCK_ASK_GONE;
    }

    info = &ask->infos[0];

    if (ask->version == record->version) {

        if (record->lease == 0) {
            return NGX_HTTP_ZK_LOCK_ASK_GONE;
        }

    } else if (ask->type == NGX_HTTP_ZK_LOCK_INSPECT) {

        /* another gateway has renewed it; here that is not known yet */

        ngx_http_zk_lock_ask_note_ttl(info);
        info->timed = 0;

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
                                        ask->version);
        info->expires = info->ttl;
    }

    return ngx_http_zk_lock_ahead(record->alive)
           ? NGX_HTTP_ZK_LOCK_ASK_OK : NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE;
}


/*
 * Renews a claim of another gateway: its znode's data are set.  That gateway
 * has a watch on it, if it is held for some time; else it sees that they have
 * another version when the lease is over as it knows it.
 */

static void
ngx_http_zk_lock_ask_set(ngx_http_zk_lock_ask_t *ask)
{
    char                      text[ZK_LOCK_LABEL_MAX];
    u_char                    buf[ZK_LOCK_CLAIM_MAX];
    size_t                    index_at;
    ngx_str_t                 name, value;
    zk_lock_label_t           label;
    ngx_http_zk_lock_op_t    *op;
    ngx_http_zk_lock_info_t  *info;

    info = &ask->infos[0];

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    if (label.index < 0) {

        /* no gateway's, and not to be written to */

        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_FOREIGN);
        return;
    }

    if (ask->ttl != 0) {
        label.ttl = (int64_t) ask->ttl;
    }

    value.len = zk_lock_label_write(text, &label, &index_at);
    value.data = (u_char *) text;

    (void) ngx_sprintf((u_char *) text + index_at, "%02xi",
                       (ngx_int_t) label.index);

    info->ttl = (ngx_msec_t) label.ttl;

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
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
        ask->infos[0].expires = ask->infos[0].ttl;
        ask->infos[0].timed = 1;
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_GONE);
        break;

    case NGX_HTTP_ZK_LOCK_CHANGED:

        if (ask->handler != NULL
            && ++ask->tries < NGX_HTTP_ZK_LOCK_SET_TRIES)
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


/* The one who is first in the view, without a read if it is this worker's. */

static void
ngx_http_zk_lock_ask_holder(ngx_http_zk_lock_ask_t *ask)
{
    u_char                      buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t                   name;
    zk_lock_entry_t            *first;
    ngx_http_zk_lock_op_t      *op;
    ngx_http_zk_lock_lock_t    *lock;

    lock = ngx_http_zk_lock_lock_find(ask->worker, &ask->path);
    first = lock ? zk_lock_view_first(&lock->view) : NULL;

    if (first == NULL) {
        ngx_http_zk_lock_ask_list(ask);
        return;
    }

    if (ngx_http_zk_lock_ask_infos(ask, 1) != NGX_OK) {
        ngx_http_zk_lock_ask_post(ask, NGX_HTTP_ZK_LOCK_ASK_FAILED);
        return;
    }

    ngx_http_zk_lock_lock_name(first, &name, buf);

    (void) zk_lock_child_read(&ask->infos[0].child, (char *) name.data,
                              name.len);

    op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_GET, &name,
                                 ngx_http_zk_lock_ask_holder_handler, ask);

    ngx_http_zk_lock_ask_send(ask, op);
}


static void
ngx_http_zk_lock_ask_holder_handler(ngx_http_zk_lock_op_t *op)
{
    zk_lock_id_t               *id;
    ngx_http_zk_lock_ask_t     *ask;
    ngx_http_zk_lock_record_t   record;

    ask = op->data;

    if (ask->handler == NULL) {
        goto done;
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {
        ngx_http_zk_lock_ask_list(ask);
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

    id = &ask->infos[0].child.id;

    if (ask->infos[0].child.has_id
        && ngx_http_zk_lock_record_read(ask->worker->zone, id, &ask->path,
                                        &record)
           == NGX_OK)
    {
        ngx_http_zk_lock_ask_note_record(&ask->infos[0], &record);
    }

    ask->infos[0].held = 1;

    if (!ask->infos[0].timed) {
        ngx_http_zk_lock_ask_note_ttl(&ask->infos[0]);
    }

    ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


static void
ngx_http_zk_lock_ask_list(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_op_t  *op;

    ngx_http_zk_lock_ask_sync(ask);

    op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_LIST, NULL,
                                 ngx_http_zk_lock_ask_list_handler, ask);

    ngx_http_zk_lock_ask_send(ask, op);
}


static void
ngx_http_zk_lock_ask_list_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_uint_t               i;
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    if (ask->handler == NULL) {
        goto done;
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {
        op->rc = NGX_HTTP_ZK_LOCK_OK;
    }

    if (op->rc != NGX_HTTP_ZK_LOCK_OK) {
        ngx_http_zk_lock_ask_failed(ask, op->rc);
        goto done;
    }

    if (ask->type == NGX_HTTP_ZK_LOCK_INSPECT
        || ask->type == NGX_HTTP_ZK_LOCK_RENEW)
    {
        /* the claim was read; what was missing is its place */

        if (ngx_http_zk_lock_ask_count(ask, op) != NGX_OK) {
            ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_GONE);
            goto done;
        }

        if (ask->infos[0].held) {

            if (ask->type == NGX_HTTP_ZK_LOCK_RENEW) {
                ngx_http_zk_lock_ask_set(ask);
                goto done;
            }

            ngx_http_zk_lock_ask_note_ttl(&ask->infos[0]);
        }

        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);
        goto done;
    }

    if (ngx_http_zk_lock_ask_sort(ask, op) != NGX_OK) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_FAILED);
        goto done;
    }

    if (ask->ninfos == 0) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_FREE);
        goto done;
    }

    for (i = 0; i < ask->ninfos; i++) {
        ngx_http_zk_lock_ask_read(ask, &ask->infos[i].label, &ask->infos[i]);
    }

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


/* Counts the claims ahead that block it; NGX_DECLINED if it is gone itself. */

static ngx_int_t
ngx_http_zk_lock_ask_count(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op)
{
    ngx_uint_t       i, there;
    zk_lock_child_t  child;

    ask->position = 0;
    there = 0;

    for (i = 0; i < op->nchildren; i++) {

        if (zk_lock_child_read(&child, (char *) op->children[i].data,
                               op->children[i].len)
            != 0)
        {
            continue;
        }

        if (child.seq < ask->token.seq
            && zk_lock_view_blocks(child.kind, ask->token.kind))
        {
            ask->position++;
        }

        there |= (child.has_id && child.seq == ask->token.seq
                  && ngx_memcmp(child.id.random, ask->token.id.random,
                                ZK_LOCK_RANDOM_LEN)
                     == 0);
    }

    ask->infos[0].held = (ask->position == 0);

    return there ? NGX_OK : NGX_DECLINED;
}


/* Puts the children in order, and keeps as many as are wanted. */

static ngx_int_t
ngx_http_zk_lock_ask_sort(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op)
{
    u_char                   *p;
    size_t                    len;
    ngx_uint_t                i, n, max;
    ngx_http_zk_lock_info_t  *infos, *info;

    infos = ngx_alloc((op->nchildren + 1) * sizeof(ngx_http_zk_lock_info_t),
                      ask->worker->log);
    if (infos == NULL) {
        return NGX_ERROR;
    }

    for (i = 0, n = 0; i < op->nchildren; i++) {
        ngx_memzero(&infos[n], sizeof(ngx_http_zk_lock_info_t));

        if (zk_lock_child_read(&infos[n].child,
                               (char *) op->children[i].data,
                               op->children[i].len)
            == 0)
        {
            infos[n++].label = op->children[i];
        }
    }

    ngx_qsort(infos, n, sizeof(ngx_http_zk_lock_info_t),
              ngx_http_zk_lock_ask_compare);

    ask->total = n;

    max = (ask->type == NGX_HTTP_ZK_LOCK_HOLDER) ? 1
                                                 : NGX_HTTP_ZK_LOCK_LIST_MAX;
    n = ngx_min(n, max);

    if (ngx_http_zk_lock_ask_infos(ask, n) != NGX_OK) {
        ngx_free(infos);
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        info = &ask->infos[i];
        info->child = infos[i].child;

        info->held = (i == 0)
                     || (ask->infos[i - 1].held
                         && !zk_lock_view_blocks(ask->infos[0].child.kind,
                                                 info->child.kind)
                         && !zk_lock_view_blocks(infos[i - 1].child.kind,
                                                 info->child.kind));

        /* the name, until the claim's label takes its place */

        len = infos[i].label.len;

        p = ngx_alloc(len, ask->worker->log);
        if (p == NULL) {
            ngx_free(infos);
            return NGX_ERROR;
        }

        ngx_memcpy(p, infos[i].label.data, len);

        info->label.data = p;
        info->label.len = len;
    }

    ngx_free(infos);

    return NGX_OK;
}


static int ngx_libc_cdecl
ngx_http_zk_lock_ask_compare(const void *one, const void *two)
{
    const ngx_http_zk_lock_info_t  *a, *b;

    a = one;
    b = two;

    if (a->child.seq != b->child.seq) {
        return (a->child.seq < b->child.seq) ? -1 : 1;
    }

    return 0;
}


static void
ngx_http_zk_lock_ask_read(ngx_http_zk_lock_ask_t *ask, ngx_str_t *name,
    ngx_http_zk_lock_info_t *info)
{
    ngx_str_t               leaf;
    ngx_http_zk_lock_op_t  *op;

    leaf = *name;

    op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_GET, &leaf,
                                 ngx_http_zk_lock_ask_read_handler, info);

    if (op != NULL) {
        ask->reads++;
    }

    /* a name that was the label's place holder */

    ngx_free(info->label.data);
    ngx_str_null(&info->label);

    ngx_http_zk_lock_ask_send(ask, op);
}


static void
ngx_http_zk_lock_ask_read_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_ask_t     *ask;
    ngx_http_zk_lock_info_t    *info;
    ngx_http_zk_lock_record_t   record;

    info = op->data;
    ask = info->ask;

    ask->reads--;

    if (ask->handler == NULL) {
        goto done;
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_UNKNOWN
        || op->rc == NGX_HTTP_ZK_LOCK_UNSENT)
    {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE);
        goto done;
    }

    /* NO_NODE: it is gone meanwhile; NO_AUTH: its label is not for us */

    if (op->rc == NGX_HTTP_ZK_LOCK_OK
        && ngx_http_zk_lock_ask_note(info, op) == NGX_OK
        && info->child.has_id
        && ngx_http_zk_lock_record_read(ask->worker->zone, &info->child.id,
                                        &ask->path, &record)
           == NGX_OK)
    {
        ngx_http_zk_lock_ask_note_record(info, &record);
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_AUTH) {
        info->known = 1;
    }

    if (ask->reads == 0) {
        ngx_http_zk_lock_ask_find(ask);
    }

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


/* All were read: those that are gone meanwhile are left out. */

static void
ngx_http_zk_lock_ask_find(ngx_http_zk_lock_ask_t *ask)
{
    ngx_uint_t  i, n;

    for (i = 0, n = 0; i < ask->ninfos; i++) {

        if (!ask->infos[i].known) {
            ask->total--;
            continue;
        }

        if (i != n) {
            ask->infos[n] = ask->infos[i];
            ngx_str_null(&ask->infos[i].label);
        }

        n++;
    }

    ask->ninfos = n;

    if (n != 0) {
        ask->infos[0].held = 1;
    }

    for (i = 0; i < n && ask->infos[i].held; i++) {
        if (!ask->infos[i].timed) {
            ngx_http_zk_lock_ask_note_ttl(&ask->infos[i]);
        }
    }

    ngx_http_zk_lock_ask_tell(ask, n ? NGX_HTTP_ZK_LOCK_ASK_OK
                                     : NGX_HTTP_ZK_LOCK_ASK_FREE);
}


static ngx_int_t
ngx_http_zk_lock_ask_note(ngx_http_zk_lock_info_t *info,
    ngx_http_zk_lock_op_t *op)
{
    info->known = 1;
    info->czxid = op->czxid;
    info->since = (time_t) (op->ctime / 1000);

    if (op->reply.len == 0) {
        return NGX_OK;
    }

    info->label.data = ngx_alloc(op->reply.len, info->ask->worker->log);
    if (info->label.data == NULL) {
        return NGX_ERROR;
    }

    info->label.len = op->reply.len;
    ngx_memcpy(info->label.data, op->reply.data, op->reply.len);

    return NGX_OK;
}


/* Of another gateway's claim: when its lease ends, only that one knows. */

static void
ngx_http_zk_lock_ask_note_ttl(ngx_http_zk_lock_info_t *info)
{
    zk_lock_label_t  label;

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    info->ttl = (label.ttl > 0) ? (ngx_msec_t) label.ttl : 0;
}


static void
ngx_http_zk_lock_ask_note_record(ngx_http_zk_lock_info_t *info,
    ngx_http_zk_lock_record_t *record)
{
    ngx_msec_int_t  left;

    if (record->state != NGX_HTTP_ZK_LOCK_RECORD_HELD) {
        return;
    }

    left = (ngx_msec_int_t) (record->lease - ngx_http_zk_lock_now());

    info->held = 1;
    info->since = record->since;
    info->ttl = record->ttl;
    info->expires = (left > 0) ? left : 0;
    info->timed = 1;
}


static ngx_int_t
ngx_http_zk_lock_ask_infos(ngx_http_zk_lock_ask_t *ask, ngx_uint_t n)
{
    ngx_uint_t  i;

    for (i = 0; i < ask->ninfos; i++) {
        if (ask->infos[i].label.data != NULL) {
            ngx_free(ask->infos[i].label.data);
        }
    }

    if (ask->infos != NULL) {
        ngx_free(ask->infos);
        ask->infos = NULL;
    }

    ask->ninfos = 0;

    if (n == 0) {
        return NGX_OK;
    }

    ask->infos = ngx_calloc(n * sizeof(ngx_http_zk_lock_info_t),
                            ask->worker->log);
    if (ask->infos == NULL) {
        return NGX_ERROR;
    }

    ask->ninfos = n;

    for (i = 0; i < n; i++) {
        ask->infos[i].ask = ask;
    }

    return NGX_OK;
}


/* What is read behind it is not older than the question. */

static void
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


/* The name of the claim's znode; buf has room for ZK_LOCK_CLAIM_MAX. */

static void
ngx_http_zk_lock_ask_name(ngx_http_zk_lock_ask_t *ask, ngx_str_t *name,
    u_char *buf)
{
    name->data = buf;
    name->len = zk_lock_claim_write((char *) buf, &ask->token.id,
                                    ask->token.kind, ask->token.seq);
}


static ngx_http_zk_lock_op_t *
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


static void
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


static void
ngx_http_zk_lock_ask_failed(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_rc_e rc)
{
    ngx_http_zk_lock_answer_e  answer;

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


/* Tells in the next turn. */

static void
ngx_http_zk_lock_ask_post(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer)
{
    ask->answer = answer;

    if (!ask->timer.timer_set) {
        ngx_post_event(&ask->timer, &ngx_posted_events);
    }
}


static void
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


static void
ngx_http_zk_lock_ask_unpin(ngx_http_zk_lock_ask_t *ask)
{
    ask->pins--;

    ngx_http_zk_lock_ask_free(ask);
}


/* Frees an ask that was told, or whose asker has left, if nothing is left. */

static void
ngx_http_zk_lock_ask_free(ngx_http_zk_lock_ask_t *ask)
{
    if (ask->handler != NULL || ask->pins != 0 || ask->mourning || ask->owed) {
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
