
/*
 * Estates.
 *
 *            connected         the answer          its turn to end
 *   ------   ---------------   -----------------   ---------------------------
 *   FIND     list              DELETE, or freed    -
 *                              (after some time)
 *   READ     get               HELD, or freed      -
 *   HELD     -                 -                   released: DELETE
 *                                                  lease over: LAPSE
 *   LAPSE    delete (version)  freed, or READ      released: DELETE
 *   DELETE   delete            freed               -
 *
 * Everything here runs on the event loop.  A ward is in no view: those who
 * wait behind it, in this worker too, know it by its record, as a sibling's.
 * All that a ward has to do begins when the session is connected, and begins
 * again when it is connected again; `op` is NULL in between.
 */


#include "ngx_http_zk_lock_estate.h"


/* how long a create of a dead worker may take to show, milliseconds */
#define NGX_HTTP_ZK_LOCK_LATE  3000


static ngx_http_zk_lock_estate_t *ngx_http_zk_lock_estate_new(
    ngx_http_zk_lock_worker_t *worker, ngx_http_zk_lock_zone_t *zone);
static void ngx_http_zk_lock_estate_inherit(void *data,
    ngx_http_zk_lock_record_t *record, ngx_str_t *path);
static void ngx_http_zk_lock_estate_suspended(void *data);
static void ngx_http_zk_lock_estate_unreachable(void *data);
static void ngx_http_zk_lock_estate_over_handler(ngx_event_t *ev);
static ngx_http_zk_lock_session_t *ngx_http_zk_lock_estate_session(
    ngx_http_zk_lock_estate_t *estate);
static ngx_http_zk_lock_ward_t *ngx_http_zk_lock_ward_find(
    ngx_http_zk_lock_worker_t *worker, uint32_t record);
static void ngx_http_zk_lock_ward_go(ngx_http_zk_lock_ward_t *ward);
static ngx_http_zk_lock_op_t *ngx_http_zk_lock_ward_op(
    ngx_http_zk_lock_ward_t *ward);
static void ngx_http_zk_lock_ward_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ward_found(ngx_http_zk_lock_ward_t *ward,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ward_missing(ngx_http_zk_lock_ward_t *ward);
static void ngx_http_zk_lock_ward_read(ngx_http_zk_lock_ward_t *ward,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ward_deleted(ngx_http_zk_lock_ward_t *ward,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ward_timer_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_ward_lease(ngx_http_zk_lock_ward_t *ward);
static void ngx_http_zk_lock_ward_delete(ngx_http_zk_lock_ward_t *ward);
static void ngx_http_zk_lock_ward_done(ngx_http_zk_lock_ward_t *ward);
static void ngx_http_zk_lock_ward_free(ngx_http_zk_lock_ward_t *ward);


static const ngx_http_zk_lock_session_events_t
    ngx_http_zk_lock_estate_events =
{
    ngx_http_zk_lock_estate_connected,
    ngx_http_zk_lock_estate_suspended,
    ngx_http_zk_lock_estate_lost,
    ngx_http_zk_lock_estate_unreachable,
    ngx_http_zk_lock_estate_changed
};


ngx_int_t
ngx_http_zk_lock_estate_open(ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_zone_t *zone)
{
    ngx_http_zk_lock_key_t      key;
    ngx_http_zk_lock_estate_t  *estate;

    if (ngx_http_zk_lock_zone_key(zone, &key) != NGX_OK) {
        ngx_http_zk_lock_zone_leave(zone);
        return NGX_OK;
    }

    estate = ngx_http_zk_lock_estate_new(worker, zone);
    if (estate == NULL) {
        ngx_http_zk_lock_zone_abandon(zone);
        return NGX_ERROR;
    }

    estate->session = ngx_http_zk_lock_session_open(worker->conf,
                                   &worker->mailbox,
                                   &ngx_http_zk_lock_estate_events, estate,
                                   &key, ngx_http_zk_lock_zone_alive(zone),
                                   worker->log);
    if (estate->session == NULL) {
        ngx_http_zk_lock_estate_free(estate);
        ngx_http_zk_lock_zone_abandon(zone);
        return NGX_ERROR;
    }

    ngx_http_zk_lock_session_last(estate->session);

    ngx_queue_insert_tail(&worker->estates, &estate->queue);

    ngx_log_error(NGX_LOG_NOTICE, worker->log, 0,
                  "the session of a worker that has gone is adopted");

    return NGX_OK;
}


ngx_http_zk_lock_estate_t *
ngx_http_zk_lock_estate_home(ngx_http_zk_lock_worker_t *worker)
{
    ngx_http_zk_lock_estate_t  *estate;

    estate = ngx_http_zk_lock_estate_new(worker, worker->zone);

    if (estate != NULL) {
        estate->home = 1;
    }

    return estate;
}


/* What was made through the home's session counts with what will be. */

void
ngx_http_zk_lock_estate_charge(ngx_http_zk_lock_estate_t *estate)
{
    ngx_queue_t              *q;
    ngx_http_zk_lock_ward_t  *ward;

    for (q = ngx_queue_head(&estate->wards);
         q != ngx_queue_sentinel(&estate->wards);
         q = ngx_queue_next(q))
    {
        ward = ngx_queue_data(q, ngx_http_zk_lock_ward_t, queue);

        ward->charged = 1;

        ngx_http_zk_lock_session_charge(estate->worker->session,
                                     ward->path.len + 1 + ZK_LOCK_CLAIM_MAX);
    }
}


static ngx_http_zk_lock_estate_t *
ngx_http_zk_lock_estate_new(ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_zone_t *zone)
{
    ngx_http_zk_lock_estate_t  *estate;

    estate = ngx_calloc(sizeof(ngx_http_zk_lock_estate_t), worker->log);
    if (estate == NULL) {
        return NULL;
    }

    estate->worker = worker;
    estate->zone = zone;

    ngx_queue_init(&estate->wards);

    estate->over.handler = ngx_http_zk_lock_estate_over_handler;
    estate->over.data = estate;
    estate->over.log = worker->log;

    ngx_http_zk_lock_record_inherit(zone, ngx_http_zk_lock_estate_inherit,
                                    estate);

    return estate;
}


static void
ngx_http_zk_lock_estate_inherit(void *data, ngx_http_zk_lock_record_t *record,
    ngx_str_t *path)
{
    ngx_http_zk_lock_estate_t *estate = data;

    ngx_http_zk_lock_ward_t    *ward;
    ngx_http_zk_lock_worker_t  *worker;

    worker = estate->worker;

    ward = ngx_calloc(sizeof(ngx_http_zk_lock_ward_t) + path->len,
                      worker->log);
    if (ward == NULL) {

        /* its record is left, and its claim ends with the session */

        return;
    }

    ward->estate = estate;
    ward->node.key = record->id.record;
    ward->id = record->id;
    ward->kind = record->kind;
    ward->seq = record->seq;

    ward->path.len = path->len;
    ward->path.data = (u_char *) ward + sizeof(ngx_http_zk_lock_ward_t);
    ngx_memcpy(ward->path.data, path->data, path->len);

    ngx_http_zk_lock_worker_timer(worker, &ward->timer,
                                  ngx_http_zk_lock_ward_timer_handler);
    ward->timer.cancelable = 1;

    if (record->seq == -1) {
        ward->state = NGX_HTTP_ZK_LOCK_WARD_FIND;

    } else if (record->state == NGX_HTTP_ZK_LOCK_RECORD_HELD) {
        ward->state = NGX_HTTP_ZK_LOCK_WARD_READ;

    } else {
        ward->state = NGX_HTTP_ZK_LOCK_WARD_DELETE;
    }

    ngx_rbtree_insert(&worker->wards, &ward->node);
    ngx_queue_insert_tail(&estate->wards, &ward->queue);
}


void
ngx_http_zk_lock_estate_connected(void *data, ngx_uint_t fresh)
{
    ngx_http_zk_lock_estate_t *estate = data;

    (void) fresh;

    ngx_http_zk_lock_estate_sweep(estate);
}


void
ngx_http_zk_lock_estate_sweep(ngx_http_zk_lock_estate_t *estate)
{
    ngx_queue_t              *q;
    ngx_http_zk_lock_ward_t  *ward;

    for (q = ngx_queue_head(&estate->wards);
         q != ngx_queue_sentinel(&estate->wards);
         q = ngx_queue_next(q))
    {
        ward = ngx_queue_data(q, ngx_http_zk_lock_ward_t, queue);

        if (ward->state == NGX_HTTP_ZK_LOCK_WARD_HELD) {
            (void) ngx_http_zk_lock_record_lease(estate->zone,
                                                 ward->id.record,
                                                 &ward->lease);
            continue;
        }

        ngx_http_zk_lock_ward_go(ward);
    }

    if (ngx_queue_empty(&estate->wards) && !estate->home) {
        ngx_post_event(&estate->over, &ngx_posted_events);
    }
}


/* What is under way is answered, with an error, and begins again. */

static void
ngx_http_zk_lock_estate_suspended(void *data)
{
}


static void
ngx_http_zk_lock_estate_unreachable(void *data)
{
}


/* The watch on the znode of a ward: another gateway has set or deleted it. */

void
ngx_http_zk_lock_estate_changed(void *data, ngx_str_t *path,
    ngx_uint_t deleted)
{
    ngx_http_zk_lock_estate_t *estate = data;

    size_t                    len;
    zk_lock_child_t           child;
    ngx_http_zk_lock_ward_t  *ward;

    for (len = path->len; len > 0 && path->data[len - 1] != '/'; len--) {
        /* void */
    }

    if (zk_lock_child_read(&child, (char *) path->data + len, path->len - len)
        != 0
        || !child.has_id)
    {
        return;
    }

    ward = ngx_http_zk_lock_ward_find(estate->worker, child.id.record);

    if (ward == NULL || ward->state != NGX_HTTP_ZK_LOCK_WARD_HELD
        || ngx_memcmp(child.id.random, ward->id.random, ZK_LOCK_RANDOM_LEN)
           != 0)
    {
        return;
    }

    if (deleted) {
        ngx_http_zk_lock_ward_done(ward);
        return;
    }

    ward->state = NGX_HTTP_ZK_LOCK_WARD_READ;
    ngx_http_zk_lock_ward_go(ward);
}


void
ngx_http_zk_lock_estate_lost(void *data)
{
    ngx_http_zk_lock_estate_t *estate = data;

    ngx_queue_t  *q;

    while (!ngx_queue_empty(&estate->wards)) {
        q = ngx_queue_head(&estate->wards);
        ngx_http_zk_lock_ward_done(ngx_queue_data(q, ngx_http_zk_lock_ward_t,
                                                  queue));
    }

    if (!estate->home) {
        estate->ended = 1;
        ngx_post_event(&estate->over, &ngx_posted_events);
    }
}


/*
 * Nothing is left of it: not from inside a message of its session.  A session
 * that is not connected cannot be ended; the sweep comes back to it.
 */

static void
ngx_http_zk_lock_estate_over_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_zone_t     *zone;
    ngx_http_zk_lock_estate_t   *estate;
    ngx_http_zk_lock_session_t  *session;

    estate = ev->data;

    if (!estate->ended && !ngx_http_zk_lock_session_prompt(estate->session)) {
        return;
    }

    zone = estate->zone;
    session = estate->session;

    ngx_http_zk_lock_estate_free(estate);

    ngx_http_zk_lock_session_close(session);
    ngx_http_zk_lock_zone_leave(zone);
}


void
ngx_http_zk_lock_estate_leave(ngx_http_zk_lock_estate_t *estate)
{
    ngx_uint_t                   heir, connected, stays;
    ngx_http_zk_lock_zone_t     *zone;
    ngx_http_zk_lock_worker_t   *worker;
    ngx_http_zk_lock_session_t  *session;

    worker = estate->worker;
    zone = estate->zone;

    heir = ngx_http_zk_lock_zone_outlives(zone);
    connected = ngx_http_zk_lock_session_connected(estate->session);

    stays = !estate->ended && (heir || !connected);
    session = estate->session;

    /* its wards first: operations of theirs end with the session */

    ngx_http_zk_lock_estate_free(estate);

    if (stays) {
        ngx_http_zk_lock_session_leave(session);
        ngx_http_zk_lock_worker_bequeath(worker, zone);
        return;
    }

    ngx_http_zk_lock_session_close(session);
    ngx_http_zk_lock_zone_leave(zone);
}


void
ngx_http_zk_lock_estate_free(ngx_http_zk_lock_estate_t *estate)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(&estate->wards)) {
        q = ngx_queue_head(&estate->wards);
        ngx_http_zk_lock_ward_free(ngx_queue_data(q, ngx_http_zk_lock_ward_t,
                                                  queue));
    }

    if (estate->over.posted) {
        ngx_delete_posted_event(&estate->over);
    }

    if (!estate->home && estate->session != NULL) {
        ngx_queue_remove(&estate->queue);
    }

    ngx_free(estate);
}


void
ngx_http_zk_lock_estate_rung(ngx_http_zk_lock_worker_t *worker,
    uint32_t record)
{
    ngx_http_zk_lock_ward_t  *ward;

    ward = ngx_http_zk_lock_ward_find(worker, record);

    if (ward == NULL) {
        return;
    }

    if (ward->state != NGX_HTTP_ZK_LOCK_WARD_HELD
        && ward->state != NGX_HTTP_ZK_LOCK_WARD_READ
        && ward->state != NGX_HTTP_ZK_LOCK_WARD_LAPSE)
    {
        return;
    }

    if (ngx_http_zk_lock_record_asked(ward->estate->zone, record)) {
        ngx_http_zk_lock_ward_delete(ward);

    } else if (ward->state == NGX_HTTP_ZK_LOCK_WARD_HELD) {
        ngx_http_zk_lock_ward_lease(ward);
    }
}


static ngx_http_zk_lock_session_t *
ngx_http_zk_lock_estate_session(ngx_http_zk_lock_estate_t *estate)
{
    return estate->home ? estate->worker->session : estate->session;
}


static ngx_http_zk_lock_ward_t *
ngx_http_zk_lock_ward_find(ngx_http_zk_lock_worker_t *worker, uint32_t record)
{
    ngx_rbtree_node_t  *node;

    node = worker->wards.root;

    while (node != worker->wards.sentinel && node->key != record) {
        node = (record < node->key) ? node->left : node->right;
    }

    return (node != worker->wards.sentinel) ? (ngx_http_zk_lock_ward_t *) node
                                            : NULL;
}


/* Sends what the ward's state asks for, unless that is under way. */

static void
ngx_http_zk_lock_ward_go(ngx_http_zk_lock_ward_t *ward)
{
    ngx_http_zk_lock_op_t       *op;
    ngx_http_zk_lock_session_t  *session;

    session = ngx_http_zk_lock_estate_session(ward->estate);

    if (ward->op != NULL
        || ward->state == NGX_HTTP_ZK_LOCK_WARD_HELD
        || !ngx_http_zk_lock_session_connected(session))
    {
        return;
    }

    op = ngx_http_zk_lock_ward_op(ward);
    if (op == NULL) {
        /* the sweep tries again */
        return;
    }

    op->handler = ngx_http_zk_lock_ward_handler;
    op->data = ward;

    ward->op = op;

    ngx_http_zk_lock_session_send(op);
}


static ngx_http_zk_lock_op_t *
ngx_http_zk_lock_ward_op(ngx_http_zk_lock_ward_t *ward)
{
    u_char                       buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t                    name;
    ngx_http_zk_lock_op_t       *op;
    ngx_http_zk_lock_session_t  *session;

    session = ngx_http_zk_lock_estate_session(ward->estate);

    if (ward->state == NGX_HTTP_ZK_LOCK_WARD_FIND) {
        return ngx_http_zk_lock_op_new(session, NGX_HTTP_ZK_LOCK_OP_LIST,
                                       &ward->path, NULL, NULL);
    }

    name.data = buf;
    name.len = zk_lock_claim_write((char *) buf, &ward->id, ward->kind,
                                   ward->seq);

    if (ward->state == NGX_HTTP_ZK_LOCK_WARD_READ) {
        op = ngx_http_zk_lock_op_new(session, NGX_HTTP_ZK_LOCK_OP_GET,
                                     &ward->path, &name, NULL);

        if (op != NULL) {
            op->watch = ngx_http_zk_lock_session_may_watch(session,
                                             ward->path.len + 1 + name.len);
        }

        return op;
    }

    op = ngx_http_zk_lock_op_new(session, NGX_HTTP_ZK_LOCK_OP_DELETE,
                                 &ward->path, &name, NULL);

    if (op == NULL) {
        return NULL;
    }

    if (ward->state == NGX_HTTP_ZK_LOCK_WARD_LAPSE) {
        op->version = ngx_http_zk_lock_record_version(ward->estate->zone,
                                                      ward->id.record);
    }

    op->gather = 1;

    return op;
}


static void
ngx_http_zk_lock_ward_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_ward_t  *ward;

    ward = op->data;
    ward->op = NULL;

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {

        if (op->type == NGX_HTTP_ZK_LOCK_OP_LIST) {
            ngx_http_zk_lock_ward_missing(ward);

        } else {
            ngx_http_zk_lock_ward_done(ward);
        }

        return;
    }

    if (op->rc != NGX_HTTP_ZK_LOCK_OK && op->rc != NGX_HTTP_ZK_LOCK_CHANGED) {
        /* the sweep, or the next connection, tries again */
        return;
    }

    switch (op->type) {

    case NGX_HTTP_ZK_LOCK_OP_LIST:
        ngx_http_zk_lock_ward_found(ward, op);
        break;

    case NGX_HTTP_ZK_LOCK_OP_GET:
        ngx_http_zk_lock_ward_read(ward, op);
        break;

    default: /* NGX_HTTP_ZK_LOCK_OP_DELETE */
        ngx_http_zk_lock_ward_deleted(ward, op);
        break;
    }
}


/* A claim whose create may never have happened is known by its id. */

static void
ngx_http_zk_lock_ward_found(ngx_http_zk_lock_ward_t *ward,
    ngx_http_zk_lock_op_t *op)
{
    ngx_uint_t       i;
    zk_lock_child_t  child;

    for (i = 0; i < op->nchildren; i++) {

        if (zk_lock_child_read(&child, (char *) op->children[i].data,
                               op->children[i].len)
            == 0
            && child.has_id
            && child.id.record == ward->id.record
            && ngx_memcmp(child.id.random, ward->id.random,
                          ZK_LOCK_RANDOM_LEN)
               == 0)
        {
            ward->seq = child.seq;
            ward->kind = child.kind;

            ngx_http_zk_lock_ward_delete(ward);
            return;
        }
    }

    ngx_http_zk_lock_ward_missing(ward);
}


/*
 * The server may still have a create in its hands that came over the dead
 * worker's connection: it is looked for again.  A session that can be closed
 * makes sure.
 */

static void
ngx_http_zk_lock_ward_missing(ngx_http_zk_lock_ward_t *ward)
{
    ngx_msec_t                now;
    ngx_queue_t              *q;
    ngx_http_zk_lock_ward_t  *other;

    now = ngx_http_zk_lock_now();

    if (ward->missed == 0) {
        ward->missed = now ? now : 1;
    }

    if (now - ward->missed >= NGX_HTTP_ZK_LOCK_LATE) {
        ngx_http_zk_lock_ward_done(ward);
        return;
    }

    if (ward->estate->home) {
        return;
    }

    for (q = ngx_queue_head(&ward->estate->wards);
         q != ngx_queue_sentinel(&ward->estate->wards);
         q = ngx_queue_next(q))
    {
        other = ngx_queue_data(q, ngx_http_zk_lock_ward_t, queue);

        if (other->state != NGX_HTTP_ZK_LOCK_WARD_FIND || other->missed == 0) {
            return;
        }
    }

    ngx_post_event(&ward->estate->over, &ngx_posted_events);
}


/* The znode of a held claim is there. */

static void
ngx_http_zk_lock_ward_read(ngx_http_zk_lock_ward_t *ward,
    ngx_http_zk_lock_op_t *op)
{
    zk_lock_label_t           label;
    ngx_http_zk_lock_zone_t  *zone;

    zone = ward->estate->zone;

    if (ward->state != NGX_HTTP_ZK_LOCK_WARD_READ) {

        /* it was released meanwhile */

        ngx_http_zk_lock_ward_go(ward);
        return;
    }

    /* another gateway may have renewed it, some time ago */

    zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

    (void) ngx_http_zk_lock_record_renewed(zone, ward->id.record, op->version,
                                           (ngx_msec_t) label.ttl,
                                           ward->lease);

    ward->state = NGX_HTTP_ZK_LOCK_WARD_HELD;

    if (ngx_http_zk_lock_record_asked(zone, ward->id.record)) {
        ngx_http_zk_lock_ward_delete(ward);
        return;
    }

    ngx_http_zk_lock_ward_lease(ward);
}


static void
ngx_http_zk_lock_ward_deleted(ngx_http_zk_lock_ward_t *ward,
    ngx_http_zk_lock_op_t *op)
{
    if (op->rc == NGX_HTTP_ZK_LOCK_OK) {
        ngx_http_zk_lock_ward_done(ward);
        return;
    }

    if (ward->state == NGX_HTTP_ZK_LOCK_WARD_LAPSE) {
        ward->state = NGX_HTTP_ZK_LOCK_WARD_READ;
    }

    ngx_http_zk_lock_ward_go(ward);
}


static void
ngx_http_zk_lock_ward_timer_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_ward_t  *ward;

    ward = ngx_queue_data(ev, ngx_http_zk_lock_ward_t, timer);

    if (ward->state == NGX_HTTP_ZK_LOCK_WARD_HELD) {
        ngx_http_zk_lock_ward_lease(ward);
    }
}


/* The lease is over, unless somebody has renewed it. */

static void
ngx_http_zk_lock_ward_lease(ngx_http_zk_lock_ward_t *ward)
{
    ngx_msec_t  now, lease;

    now = ngx_http_zk_lock_now();

    if (ward->timer.timer_set) {
        ngx_del_timer(&ward->timer);
    }

    if (ngx_http_zk_lock_record_lease_over(ward->estate->zone, ward->id.record,
                                           now, &lease)
        == NGX_AGAIN)
    {
        ward->lease = lease;
        ngx_add_timer(&ward->timer, lease - now);
        return;
    }

    ngx_log_error(NGX_LOG_INFO, ward->estate->worker->log, 0,
                  "a lease of \"%V\" is over", &ward->path);

    ward->state = NGX_HTTP_ZK_LOCK_WARD_LAPSE;

    ngx_http_zk_lock_ward_go(ward);
}


/* From here on it cannot be called back: who is next may be granted. */

static void
ngx_http_zk_lock_ward_delete(ngx_http_zk_lock_ward_t *ward)
{
    ward->state = NGX_HTTP_ZK_LOCK_WARD_DELETE;

    if (ward->timer.timer_set) {
        ngx_del_timer(&ward->timer);
    }

    ngx_http_zk_lock_record_end(ward->estate->zone, ward->id.record);
    ngx_http_zk_lock_ward_go(ward);
}


/* There is no znode (any more). */

static void
ngx_http_zk_lock_ward_done(ngx_http_zk_lock_ward_t *ward)
{
    ngx_http_zk_lock_estate_t  *estate;

    estate = ward->estate;

    ngx_http_zk_lock_record_end(estate->zone, ward->id.record);
    ngx_http_zk_lock_record_free(estate->zone, ward->id.record);

    ngx_http_zk_lock_ward_free(ward);

    if (ngx_queue_empty(&estate->wards) && !estate->home) {
        ngx_post_event(&estate->over, &ngx_posted_events);
    }
}


static void
ngx_http_zk_lock_ward_free(ngx_http_zk_lock_ward_t *ward)
{
    ngx_http_zk_lock_worker_t  *worker;

    worker = ward->estate->worker;

    if (ward->op != NULL) {
        ward->op->handler = NULL;
    }

    if (ward->timer.timer_set) {
        ngx_del_timer(&ward->timer);
    }

    if (ward->charged && worker->session != NULL) {
        ngx_http_zk_lock_session_unreserve(worker->session, ward->path.len
                                                     + 1 + ZK_LOCK_CLAIM_MAX);
    }

    ngx_rbtree_delete(&worker->wards, &ward->node);
    ngx_queue_remove(&ward->queue);

    ngx_free(ward);
}
