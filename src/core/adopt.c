
/*
 * Adoption: the session of a worker that is dead or has left, and the claims
 * that were made through the session, from the adoption to the close.
 *
 * An adoption owns the slot, the session and the adopted claims.  The session
 * is closed when no claim depends on the session any more.  An adopted claim is
 * deleted, or becomes a claim of this worker:
 *
 *            sends         the answer leads to
 *   ------   -----------   ----------------------------------------------------
 *   FIND     list, or      DELETE, or freed (after ZKL_LATE)
 *            get
 *   READ     get           made durable, and READ again; or a claim of this
 *                          worker; or DELETE, if released; or freed
 *            delete        (the lease is over) freed, or READ again
 *   DELETE   delete        freed; or FIND, if the data have changed
 *
 * An adopted claim is in no view: the waiters behind the claim, in this worker
 * too, know the claim by the record, as a sibling's, or by the znode.  The
 * znode of a one-node lock may be another claim's by now, so the worker reads
 * the znode first, and deletes by the version that was read.
 *
 * All of the code runs on the event loop.  The session of an adoption is NULL
 * until the session is opened.  The work on a claim begins anew with each
 * connection of the adopted session; `op` is NULL in between, and `replace`
 * is NULL unless the claim is about to be durable.
 */


#include "core/adopt.h"
#include "core/custody.h"
#include "core/node.h"
#include "core/replace.h"


/* how long a create of a dead worker may take to show, in ms */
#define ZKL_LATE               3000


typedef struct {
    ngx_queue_t                        queue;   /* worker->adoptions */
    zkl_worker_t                      *worker;
    zkl_zone_t                        *zone;
    zkl_session_t                     *session; /* NULL: not open yet */
    int64_t                            id;      /* of the session */
    ngx_queue_t                        claims;
    ngx_event_t                        over;    /* closes the session */

    unsigned                           ended:1; /* the session is over */
    unsigned                           failed:1;    /* no memory for a
                                                       claim */
} zkl_adoption_t;


typedef enum {
    ZKL_ADOPTED_FIND = 0,           /* the claim waited; a list, or a read of
                                       the lock's znode, tells whether the claim
                                       has a znode */
    ZKL_ADOPTED_READ,               /* the claim is held, if its znode is
                                       there; the znode is read */
    ZKL_ADOPTED_DELETE
} zkl_adopted_e;


typedef struct {
    ngx_rbtree_node_t                  node;    /* worker->adopted, by record */
    ngx_queue_t                        queue;   /* adoption->claims */
    zkl_adoption_t                    *adoption;
    zkl_op_t                          *op;      /* under way, or NULL */
    zkl_replace_t                     *replace; /* under way, or NULL */

    zkl_adopted_e                      state;
    zkl_id_t                           id;
    zkl_id_t                           named;   /* in the znode's name */
    zkl_mode_t                         mode;    /* in the znode's name */
    zkl_mode_t                         renamed; /* in the name after a rename,
                                                   which the dead worker may
                                                   have sent */
    int64_t                            seq;     /* -1: not known */
    ngx_msec_t                         missed;  /* when a list lacked the claim
                                                   first; 0: not yet */

    ngx_str_t                          path;    /* of the lock */
    int32_t                            version; /* of the data read, of a claim
                                                   that is held */

    unsigned                           ending:1;    /* the claim is deleted when
                                                       the replacement is
                                                       done */
    unsigned                           entered:1;   /* the claim may have an
                                                       entry below this
                                                       session's gate */
    unsigned                           unfit:1;     /* ZooKeeper refuses to make
                                                       the claim durable */
    unsigned                           over:1;      /* the lease is over: the
                                                       claim is deleted by
                                                       version */
    unsigned                           existed:1;   /* the record or the znode
                                                       was read while no
                                                       release was asked for,
                                                       and no delete can have
                                                       happened since */
} zkl_adopted_t;


static ngx_int_t zkl_adopt_open(zkl_worker_t *worker, zkl_zone_t *zone);
static zkl_adoption_t *zkl_adopt_new(zkl_worker_t *worker, zkl_zone_t *zone);
static void zkl_adopt_answered(void *data, ngx_uint_t write, ngx_uint_t n,
    ngx_msec_int_t time);
static void zkl_adopt_connected(void *data, ngx_uint_t fresh);
static void zkl_adopt_sweep_one(zkl_adoption_t *adoption);
static void zkl_adopt_away(void *data);
static void zkl_adopt_lost(void *data);
static void zkl_adopt_over_handler(ngx_event_t *ev);
static void zkl_adopt_leave_one(zkl_adoption_t *adoption);
static void zkl_adopt_free(zkl_adoption_t *adoption);
static void zkl_adopted_take(void *data, zkl_record_t *record, ngx_str_t *path);
static zkl_adopted_t *zkl_adopted_new(zkl_adoption_t *adoption,
    zkl_record_t *record, ngx_str_t *path);
static void zkl_adopted_begin(zkl_adopted_t *claim, zkl_record_t *record);
static zkl_adopted_t *zkl_adopted_find(zkl_worker_t *worker, uint32_t record);
static void zkl_adopted_go(zkl_adopted_t *claim);
static ngx_uint_t zkl_adopted_outlives(zkl_adopted_t *claim);
static ngx_int_t zkl_adopted_move(zkl_adopted_t *claim, zkl_op_t *get);
static void zkl_adopted_forsake(zkl_adopted_t *claim);
static void zkl_adopted_gate_lost(zkl_adopted_t *claim);
static void zkl_adopted_delete(zkl_adopted_t *claim);
static void zkl_adopted_done(zkl_adopted_t *claim);
static void zkl_adopted_free(zkl_adopted_t *claim);
static zkl_op_t *zkl_adopted_op(zkl_adopted_t *claim);
static void zkl_adopted_handler(zkl_op_t *op);
static ngx_int_t zkl_adopted_renamed(zkl_adopted_t *claim);
static void zkl_adopted_found(zkl_adopted_t *claim, zkl_op_t *op);
static void zkl_adopted_missing(zkl_adopted_t *claim);
static void zkl_adopted_read(zkl_adopted_t *claim, zkl_op_t *op);
static void zkl_adopted_secure(zkl_adopted_t *claim);
static void zkl_adopted_lease(zkl_adopted_t *claim);
static void zkl_adopted_secured(void *data, ngx_int_t rc);
static void zkl_adopted_deleted(zkl_adopted_t *claim, zkl_op_t *op);
static ngx_uint_t zkl_adopted_lost(zkl_adopted_t *claim);


static const zkl_session_events_t  zkl_adopt_events =
{
    NULL,                           /* the session is an older one */
    zkl_adopt_connected,
    zkl_adopt_away,
    zkl_adopt_lost,
    zkl_adopt_away,

    /* no watch is set through an adopted session, and no znode is made */

    NULL,
    NULL,
    NULL,

    zkl_adopt_answered
};


void
zkl_adopt_orphans(zkl_worker_t *worker)
{
    zkl_zone_t  *zone;

    while (!worker->leaving || zkl_worker_over(worker)) {

        zone = zkl_zone_adopt(worker->zone);
        if (zone == NULL) {
            break;
        }

        if (zkl_adopt_open(worker, zone) != NGX_OK) {
            break;
        }

        worker->left = ngx_current_msec;
    }

    zkl_worker_busy(worker);
}


/*
 * Makes adopted claims of the records in the slot, and opens the slot's
 * session.  Owns zone.  NGX_ERROR: no memory; the slot is abandoned again.
 */

static ngx_int_t
zkl_adopt_open(zkl_worker_t *worker, zkl_zone_t *zone)
{
    zkl_key_t        key;
    zkl_adoption_t  *adoption;

    (void) zkl_zone_key(zone, &key);

    adoption = zkl_adopt_new(worker, zone);
    if (adoption == NULL) {
        zkl_zone_abandon(zone);
        return NGX_ERROR;
    }

    adoption->id = key.id;
    adoption->session = zkl_session_open(worker->conf,
                                   &worker->mailbox, &zkl_adopt_events,
                                   adoption, &key, zkl_zone_alive(zone),
                                   worker->log);
    if (adoption->session == NULL) {
        zkl_adopt_free(adoption);
        zkl_zone_abandon(zone);
        return NGX_ERROR;
    }

    ngx_queue_insert_tail(&worker->adoptions, &adoption->queue);

    zkl_worker_count(worker, ZKL_COUNT_ADOPTED, 1);

    ngx_log_error(NGX_LOG_NOTICE, worker->log, 0,
                  "the session of a worker that has gone is adopted");

    return NGX_OK;
}


static zkl_adoption_t *
zkl_adopt_new(zkl_worker_t *worker, zkl_zone_t *zone)
{
    zkl_adoption_t  *adoption;

    adoption = ngx_calloc(sizeof(zkl_adoption_t), worker->log);
    if (adoption == NULL) {
        return NULL;
    }

    adoption->worker = worker;
    adoption->zone = zone;

    ngx_queue_init(&adoption->claims);

    adoption->over.handler = zkl_adopt_over_handler;
    adoption->over.data = adoption;
    adoption->over.log = worker->log;

    zkl_record_inherit(zone, zkl_adopted_take, adoption);

    if (adoption->failed) {

        /* the close of the session would end the claims that are not known */

        zkl_adopt_free(adoption);
        return NULL;
    }

    return adoption;
}


static void
zkl_adopt_answered(void *data, ngx_uint_t write, ngx_uint_t n,
    ngx_msec_int_t time)
{
    zkl_adoption_t  *adoption = data;

    zkl_worker_count_answer(adoption->worker, write, n, time);
}


static void
zkl_adopt_connected(void *data, ngx_uint_t fresh)
{
    zkl_adoption_t  *adoption = data;

    zkl_adopt_sweep_one(adoption);
}


void
zkl_adopt_servers(zkl_worker_t *worker)
{
    ngx_queue_t     *q;
    zkl_adoption_t  *adoption;

    for (q = ngx_queue_head(&worker->adoptions);
         q != ngx_queue_sentinel(&worker->adoptions);
         q = ngx_queue_next(q))
    {
        adoption = ngx_queue_data(q, zkl_adoption_t, queue);
        zkl_session_servers(adoption->session);
    }
}


void
zkl_adopt_sweep(zkl_worker_t *worker)
{
    ngx_queue_t  *q;

    for (q = ngx_queue_head(&worker->adoptions);
         q != ngx_queue_sentinel(&worker->adoptions);
         q = ngx_queue_next(q))
    {
        zkl_adopt_sweep_one(ngx_queue_data(q, zkl_adoption_t, queue));
    }
}


static void
zkl_adopt_sweep_one(zkl_adoption_t *adoption)
{
    ngx_queue_t    *q, *next;
    zkl_adopted_t  *claim;

    for (q = ngx_queue_head(&adoption->claims);
         q != ngx_queue_sentinel(&adoption->claims);
         q = next)
    {
        claim = ngx_queue_data(q, zkl_adopted_t, queue);

        next = ngx_queue_next(q);

        if (adoption->ended) {
            (void) zkl_adopted_move(claim, NULL);

        } else if (claim->replace != NULL) {
            zkl_replace_again(claim->replace);

        } else {
            zkl_adopted_go(claim);
        }
    }

    if (ngx_queue_empty(&adoption->claims)) {
        ngx_post_event(&adoption->over, &ngx_posted_events);
    }
}


void
zkl_adopt_gate_lost(zkl_worker_t *worker)
{
    ngx_queue_t     *q, *p;
    zkl_adoption_t  *adoption;

    for (q = ngx_queue_head(&worker->adoptions);
         q != ngx_queue_sentinel(&worker->adoptions);
         q = ngx_queue_next(q))
    {
        adoption = ngx_queue_data(q, zkl_adoption_t, queue);

        for (p = ngx_queue_head(&adoption->claims);
             p != ngx_queue_sentinel(&adoption->claims);
             p = ngx_queue_next(p))
        {
            zkl_adopted_gate_lost(ngx_queue_data(p, zkl_adopted_t, queue));
        }
    }
}


/* The operations under way get an error, and the sweep sends them again. */

static void
zkl_adopt_away(void *data)
{
}


/* A claim that may be durable may have outlived the adopted session. */

static void
zkl_adopt_lost(void *data)
{
    zkl_adoption_t  *adoption = data;

    ngx_queue_t    *q, *next;
    zkl_adopted_t  *claim;

    adoption->ended = 1;

    for (q = ngx_queue_head(&adoption->claims);
         q != ngx_queue_sentinel(&adoption->claims);
         q = next)
    {
        claim = ngx_queue_data(q, zkl_adopted_t, queue);

        next = ngx_queue_next(q);

        if (zkl_adopted_outlives(claim)) {

            /* without memory the claim stays, and the sweep tries again */

            (void) zkl_adopted_move(claim, NULL);
            continue;
        }

        zkl_record_lose(adoption->zone, claim->id.record);
        zkl_record_ending(adoption->zone, claim->id.record, ZKL_ENDING_LOST);
        zkl_adopted_done(claim);
    }

    if (ngx_queue_empty(&adoption->claims)) {
        ngx_post_event(&adoption->over, &ngx_posted_events);
    }
}


/*
 * Closes the session, which no claim needs any more; an event does so, because
 * a session must not be freed from inside a handler that the session calls.  A
 * session that is not connected cannot be closed: the sweep tries again.
 */

static void
zkl_adopt_over_handler(ngx_event_t *ev)
{
    zkl_zone_t      *zone;
    zkl_adoption_t  *adoption;
    zkl_worker_t    *worker;
    zkl_session_t   *session;

    adoption = ev->data;

    if (adoption->ended ? !ngx_queue_empty(&adoption->claims)
                        : !zkl_session_prompt(adoption->session))
    {
        return;
    }

    zone = adoption->zone;
    session = adoption->session;

    worker = adoption->worker;

    zkl_adopt_free(adoption);

    zkl_session_close(session);
    zkl_record_hand_over(zone, worker->zone);
    zkl_zone_free(zone);

    zkl_worker_busy(worker);
}


void
zkl_adopt_leave(zkl_worker_t *worker)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(&worker->adoptions)) {
        q = ngx_queue_head(&worker->adoptions);
        zkl_adopt_leave_one(ngx_queue_data(q, zkl_adoption_t, queue));
    }
}


static void
zkl_adopt_leave_one(zkl_adoption_t *adoption)
{
    ngx_uint_t      successor;
    ngx_queue_t    *q;
    zkl_zone_t     *zone;
    zkl_session_t  *session;

    if (adoption->ended) {

        while (!ngx_queue_empty(&adoption->claims)) {
            q = ngx_queue_head(&adoption->claims);
            zkl_adopted_forsake(ngx_queue_data(q, zkl_adopted_t, queue));
        }

        zkl_adopt_over_handler(&adoption->over);
        return;
    }

    zone = adoption->zone;
    session = adoption->session;

    /* the claims first, because the session frees the claims' operations */

    zkl_adopt_free(adoption);

    successor = zkl_zone_outlives(zone);

    zkl_worker_part(session, zone, successor, successor);
}


/* Frees the adoption and the claims, but not the zone and the session. */

static void
zkl_adopt_free(zkl_adoption_t *adoption)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(&adoption->claims)) {
        q = ngx_queue_head(&adoption->claims);
        zkl_adopted_free(ngx_queue_data(q, zkl_adopted_t, queue));
    }

    if (adoption->over.posted) {
        ngx_delete_posted_event(&adoption->over);
    }

    if (adoption->session != NULL) {
        ngx_queue_remove(&adoption->queue);
    }

    ngx_free(adoption);
}


void
zkl_adopt_rung(zkl_worker_t *worker, uint32_t record)
{
    zkl_adopted_t  *claim;

    claim = zkl_adopted_find(worker, record);

    if (claim != NULL && claim->state == ZKL_ADOPTED_READ
        && zkl_record_asked(claim->adoption->zone, record))
    {
        zkl_adopted_delete(claim);
    }
}


ngx_uint_t
zkl_adopt_has(zkl_worker_t *worker, const zkl_id_t *id)
{
    zkl_adopted_t  *claim;

    claim = zkl_adopted_find(worker, id->record);

    return claim != NULL
           && zkl_name_secret_equal(claim->id.random, id->random,
                                    ZKL_RANDOM_LEN);
}


/*
 * Makes an adopted claim of a record; data is the adoption, whose `failed` is
 * set if there is no memory.
 */

static void
zkl_adopted_take(void *data, zkl_record_t *record, ngx_str_t *path)
{
    zkl_adoption_t  *adoption = data;

    zkl_adopted_t  *claim;

    if (record->state == ZKL_RECORD_HELD && record->bound) {

        /* the connection that held the claim has ended with the worker */

        zkl_record_let_go(adoption->zone, record->id.record);
    }

    if (record->mode == ZKL_NODE
        && (record->state != ZKL_RECORD_HELD || record->bound))
    {
        /* the record ends now: no sibling waits until the znode is gone */

        zkl_record_publish(adoption->zone, record->id.record, record->seq, 0,
                           0);
        zkl_record_end(adoption->zone, record->id.record);

        if (record->seq == -1) {

            /* the claim never had a znode */

            zkl_record_free(adoption->zone, record->id.record);
            return;
        }

        record->seq = -1;
    }

    if (record->state == ZKL_RECORD_OPEN) {

        /* the session was over before the worker died */

        zkl_record_ending(adoption->zone, record->id.record,
                          ZKL_ENDING_FORSAKEN);
        zkl_record_free(adoption->zone, record->id.record);
        return;
    }

    claim = zkl_adopted_new(adoption, record, path);
    if (claim == NULL) {
        adoption->failed = 1;
        return;
    }

    zkl_adopted_begin(claim, record);

    ngx_rbtree_insert(&adoption->worker->adopted, &claim->node);
    ngx_queue_insert_tail(&adoption->claims, &claim->queue);
}


static zkl_adopted_t *
zkl_adopted_new(zkl_adoption_t *adoption, zkl_record_t *record,
    ngx_str_t *path)
{
    zkl_adopted_t  *claim;

    claim = ngx_calloc(sizeof(zkl_adopted_t) + path->len,
                       adoption->worker->log);
    if (claim == NULL) {
        return NULL;
    }

    claim->adoption = adoption;
    claim->node.key = record->id.record;
    claim->id = record->id;
    claim->named = record->id;
    claim->named.record = record->named;
    claim->mode = record->was;
    claim->renamed = record->mode;
    claim->seq = record->seq;

    claim->path.len = path->len;
    claim->path.data = (u_char *) claim + sizeof(zkl_adopted_t);
    ngx_memcpy(claim->path.data, path->data, path->len);

    return claim;
}


/* Sets the first state, by what the record says of the claim. */

static void
zkl_adopted_begin(zkl_adopted_t *claim, zkl_record_t *record)
{
    zkl_zone_t  *zone;

    zone = claim->adoption->zone;

    if (record->seq == -1) {
        claim->state = ZKL_ADOPTED_FIND;

    } else if (record->state == ZKL_RECORD_HELD && !record->bound) {
        claim->state = ZKL_ADOPTED_READ;

        /* the dead worker may have deleted a claim that was released */

        claim->existed = !zkl_record_asked(zone, record->id.record);

        /* from here on the claim is held, even if the leader is deleted */

        zkl_record_unbind(zone, record->id.record);

    } else {
        claim->state = ZKL_ADOPTED_DELETE;
    }
}


/* The adopted claim of that record, or NULL. */

static zkl_adopted_t *
zkl_adopted_find(zkl_worker_t *worker, uint32_t record)
{
    ngx_rbtree_node_t  *node;

    node = worker->adopted.root;

    while (node != worker->adopted.sentinel && node->key != record) {
        node = (record < node->key) ? node->left : node->right;
    }

    return (node != worker->adopted.sentinel) ? (zkl_adopted_t *) node : NULL;
}


/* Sends what the claim's state asks for, unless that is under way. */

static void
zkl_adopted_go(zkl_adopted_t *claim)
{
    zkl_op_t       *op;
    zkl_session_t  *session;

    session = claim->adoption->session;

    if (claim->op != NULL || claim->replace != NULL
        || !zkl_session_connected(session))
    {
        return;
    }

    op = zkl_adopted_op(claim);
    if (op == NULL) {
        /* the sweep tries again */
        return;
    }

    op->handler = zkl_adopted_handler;
    op->data = claim;

    claim->op = op;

    zkl_session_send(op);
}


static zkl_op_t *
zkl_adopted_op(zkl_adopted_t *claim)
{
    u_char          buf[ZKL_CLAIM_MAX];
    ngx_str_t       name;
    zkl_op_t       *op;
    zkl_session_t  *session;

    session = claim->adoption->session;

    if (claim->state == ZKL_ADOPTED_FIND) {
        return zkl_op_new(session, claim->mode == ZKL_NODE
                                   ? ZKL_OP_GET
                                   : ZKL_OP_LIST,
                          &claim->path, NULL, NULL);
    }

    name.data = buf;
    name.len = zkl_name_claim_write((char *) buf, &claim->named, claim->mode,
                                    claim->seq);

    if (claim->state == ZKL_ADOPTED_READ && !claim->over) {
        return zkl_op_new(session, ZKL_OP_GET, &claim->path, &name, NULL);
    }

    op = zkl_op_new(session, ZKL_OP_DELETE, &claim->path, &name, NULL);

    if (op == NULL) {
        return NULL;
    }

    if (claim->mode == ZKL_NODE || claim->over) {
        op->version = claim->version;
    }

    op->gather = (claim->mode != ZKL_NODE);

    return op;
}


static void
zkl_adopted_handler(zkl_op_t *op)
{
    zkl_adopted_t  *claim;

    claim = op->data;
    claim->op = NULL;

    if (op->rc == ZKL_NO_NODE && zkl_adopted_renamed(claim) == NGX_OK) {
        return;
    }

    if (op->rc == ZKL_OK && claim->mode == ZKL_NODE
        && op->type == ZKL_OP_GET
        && !zkl_node_is(&claim->named, op))
    {
        op->rc = ZKL_NO_NODE;
    }

    if (op->rc == ZKL_NO_NODE) {

        if (claim->state == ZKL_ADOPTED_FIND) {
            zkl_adopted_missing(claim);

        } else {
            zkl_adopted_done(claim);
        }

        return;
    }

    if (op->type == ZKL_OP_DELETE
        && (op->rc == ZKL_OK
            || op->rc == ZKL_UNKNOWN))
    {
        claim->existed = 0;
    }

    if (op->rc != ZKL_OK && op->rc != ZKL_CHANGED) {
        /* the sweep, or the next connection, tries again */
        return;
    }

    switch (op->type) {

    case ZKL_OP_LIST:
        zkl_adopted_found(claim, op);
        break;

    case ZKL_OP_GET:

        if (claim->state == ZKL_ADOPTED_FIND) {
            claim->state = ZKL_ADOPTED_DELETE;
            claim->version = op->version;
            zkl_adopted_go(claim);
            break;
        }

        zkl_adopted_read(claim, op);
        break;

    default: /* ZKL_OP_DELETE */
        zkl_adopted_deleted(claim, op);
        break;
    }
}


/*
 * The claim has no znode of that name.  NGX_OK: the worker looks for the new
 * name, because the dead worker may have sent a rename, which the server may
 * execute at any time until the session is closed.
 */

static ngx_int_t
zkl_adopted_renamed(zkl_adopted_t *claim)
{
    if (claim->mode == claim->renamed) {
        return NGX_DECLINED;
    }

    claim->mode = claim->renamed;

    zkl_adopted_go(claim);

    return NGX_OK;
}


/* The id shows the claim's znode, unless the create never happened. */

static void
zkl_adopted_found(zkl_adopted_t *claim, zkl_op_t *op)
{
    ngx_uint_t   i;
    zkl_child_t  child;

    for (i = 0; i < op->nchildren; i++) {

        if (zkl_name_child_read(&child, (char *) op->children[i].data,
                                op->children[i].len)
            == 0
            && child.has_id
            && child.id.record == claim->id.record
            && zkl_name_secret_equal(child.id.random, claim->id.random,
                                     ZKL_RANDOM_LEN))
        {
            claim->seq = child.seq;
            claim->mode = child.mode;
            claim->renamed = child.mode;

            zkl_adopted_delete(claim);
            return;
        }
    }

    zkl_adopted_missing(claim);
}


/*
 * The server may still execute a create that the dead worker has sent: the
 * worker lists again.  If all claims of the adoption wait for such a create,
 * the session is closed, because no create happens after the close.
 */

static void
zkl_adopted_missing(zkl_adopted_t *claim)
{
    ngx_msec_t      now;
    ngx_queue_t    *q;
    zkl_adopted_t  *other;

    now = zkl_now();

    if (claim->missed == 0) {
        claim->missed = now ? now : 1;
    }

    if (now - claim->missed >= ZKL_LATE) {
        zkl_adopted_done(claim);
        return;
    }

    for (q = ngx_queue_head(&claim->adoption->claims);
         q != ngx_queue_sentinel(&claim->adoption->claims);
         q = ngx_queue_next(q))
    {
        other = ngx_queue_data(q, zkl_adopted_t, queue);

        if (other->state != ZKL_ADOPTED_FIND || other->missed == 0) {
            return;
        }
    }

    ngx_post_event(&claim->adoption->over, &ngx_posted_events);
}


/* A GET has read the znode of a held claim. */

static void
zkl_adopted_read(zkl_adopted_t *claim, zkl_op_t *op)
{
    zkl_claim_data_t  cdata;
    zkl_zone_t       *zone;

    zone = claim->adoption->zone;

    if (claim->state != ZKL_ADOPTED_READ) {

        /* the claim was released meanwhile */

        zkl_adopted_go(claim);
        return;
    }

    if (zkl_record_asked(zone, claim->id.record)) {
        zkl_adopted_delete(claim);
        return;
    }

    claim->existed = 1;
    claim->version = op->version;

    /* the dead worker may not have heard of a renewal at another gateway */

    zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);

    /*
     * With async no client was told of the grant elsewhere: no renewal counts,
     * but a grace of a moment, which moves no deadline that is ahead.
     */

    (void) zkl_record_renewed(zone, claim->id.record, op->version,
                              cdata.renewals, (ngx_msec_t) cdata.ttl,
                              cdata.async ? 1 : 0, 0);

    if (op->owner != 0) {
        zkl_adopted_secure(claim);
        return;
    }

    (void) zkl_adopted_move(claim, op);
}


/* Whether the claim may be durable, and so outlive the adopted session. */

static ngx_uint_t
zkl_adopted_outlives(zkl_adopted_t *claim)
{
    return claim->state == ZKL_ADOPTED_READ
           || claim->state == ZKL_ADOPTED_DELETE
           || claim->mode == ZKL_NODE;
}


/*
 * Makes the adopted claim a claim of this worker, and moves the record.  get
 * has read the durable znode; if get is NULL, the adopted session is over, and
 * the claim lives on if the claim was durable.  NGX_OK, or an error.
 */

static ngx_int_t
zkl_adopted_move(zkl_adopted_t *claim, zkl_op_t *get)
{
    ngx_int_t        rc;
    zkl_adoption_t  *adoption;
    zkl_record_t     record;

    adoption = claim->adoption;

    if (zkl_record_read(adoption->zone, &claim->id, &claim->path, &record)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (get != NULL) {
        record.was = claim->mode;
    }

    rc = zkl_claim_move(adoption->worker, &claim->path, &record, get,
                        claim->state != ZKL_ADOPTED_READ,
                        adoption->ended ? 0 : adoption->id);
    if (rc == NGX_BUSY) {

        /* a claim with another record counts the lease already */

        zkl_adopted_forsake(claim);

    } else if (rc != NGX_OK) {

        /* the sweep tries again */

        return rc;

    } else {
        zkl_adopted_free(claim);
    }

    if (ngx_queue_empty(&adoption->claims)) {
        ngx_post_event(&adoption->over, &ngx_posted_events);
    }

    return NGX_OK;
}


/* Frees the record of a claim that may live, and the claim. */

static void
zkl_adopted_forsake(zkl_adopted_t *claim)
{
    zkl_zone_t  *zone;

    zone = claim->adoption->zone;

    zkl_record_ending(zone, claim->id.record, ZKL_ENDING_FORSAKEN);
    zkl_record_free(zone, claim->id.record);

    zkl_adopted_free(claim);
}


static void
zkl_adopted_secure(zkl_adopted_t *claim)
{
    zkl_gate_t      *gate;
    zkl_adoption_t  *adoption;
    zkl_worker_t    *worker;

    adoption = claim->adoption;
    worker = adoption->worker;

    if (claim->unfit || zkl_custody_ready(worker, &gate) != NGX_OK) {
        /* the sweep tries again */

        zkl_adopted_lease(claim);
        return;
    }

    claim->entered = 1;

    claim->replace = zkl_replace(worker, &claim->path, &claim->named,
                             claim->id.record, claim->mode, claim->seq,
                             zkl_custody_name(gate), 1,
                             zkl_adopted_secured, claim);
}


/* A lease that cannot become durable, or not yet, ends at the deadline. */

static void
zkl_adopted_lease(zkl_adopted_t *claim)
{
    ngx_msec_t  lease;

    if (zkl_record_lease_over(claim->adoption->zone, claim->id.record,
                              zkl_now(), &lease)
        != NGX_OK)
    {
        return;
    }

    ngx_log_error(NGX_LOG_INFO, claim->adoption->worker->log, 0,
                  "a lease of \"%V\" is over", &claim->path);

    claim->over = 1;

    zkl_adopted_go(claim);
}


static void
zkl_adopted_secured(void *data, ngx_int_t rc)
{
    zkl_adopted_t  *claim = data;

    claim->replace = NULL;

    if (claim->ending) {
        claim->ending = 0;
        zkl_adopted_delete(claim);
        return;
    }

    if (rc == NGX_DECLINED) {

        if (zkl_adopted_renamed(claim) != NGX_OK) {
            zkl_adopted_done(claim);
        }

        return;
    }

    if (rc == NGX_ERROR) {
        ngx_log_error(NGX_LOG_WARN, claim->adoption->worker->log, 0,
                      "ZooKeeper refuses to make a lease of \"%V\" durable: "
                      "it ends with the session of its worker", &claim->path);

        claim->unfit = 1;
        return;
    }

    zkl_adopted_go(claim);
}


/*
 * This worker's session is over: the claim is not made durable under the gate
 * of that session any more, but is read again.
 */

static void
zkl_adopted_gate_lost(zkl_adopted_t *claim)
{
    if (claim->replace == NULL) {
        return;
    }

    zkl_replace_free(claim->replace);
    claim->replace = NULL;

    if (claim->ending) {
        claim->ending = 0;
        zkl_adopted_delete(claim);
    }
}


static void
zkl_adopted_deleted(zkl_adopted_t *claim, zkl_op_t *op)
{
    if (op->rc == ZKL_OK) {

        if (claim->over) {
            zkl_record_ending(claim->adoption->zone, claim->id.record,
                              ZKL_ENDING_EXPIRED);
        }

        zkl_adopted_done(claim);
        return;
    }

    if (claim->over) {

        /* another gateway may have renewed the lease */

        claim->over = 0;
        zkl_adopted_go(claim);
        return;
    }

    if (claim->mode == ZKL_NODE) {
        claim->state = ZKL_ADOPTED_FIND;
    }

    zkl_adopted_go(claim);
}


/* Ends the claim for good: the claims behind may be granted at once. */

static void
zkl_adopted_delete(zkl_adopted_t *claim)
{
    if (claim->replace != NULL) {

        /* the znode's name is not known until the replacement is done */

        claim->ending = 1;
        return;
    }

    claim->state = ZKL_ADOPTED_DELETE;
    claim->over = 0;

    if (claim->mode == ZKL_NODE) {
        claim->state = ZKL_ADOPTED_FIND;
        claim->missed = zkl_now() - ZKL_LATE;
    }

    zkl_record_end(claim->adoption->zone, claim->id.record);
    zkl_adopted_go(claim);
}


/* The claim has no znode (any more): frees the record and the claim. */

static void
zkl_adopted_done(zkl_adopted_t *claim)
{
    zkl_adoption_t  *adoption;

    adoption = claim->adoption;

    if (zkl_adopted_lost(claim)) {
        zkl_record_lose(adoption->zone, claim->id.record);
    }

    zkl_record_end(adoption->zone, claim->id.record);
    zkl_record_free(adoption->zone, claim->id.record);

    if (claim->entered) {
        zkl_custody_drop(adoption->worker, &claim->named);
    }

    zkl_adopted_free(claim);

    if (ngx_queue_empty(&adoption->claims)) {
        ngx_post_event(&adoption->over, &ngx_posted_events);
    }
}


/*
 * Whether the lease was over, or the znode gone, before a client released the
 * claim.  If the release came before the adoption, the dead worker may have
 * deleted the znode; later only a foreign client can have done so.
 */

static ngx_uint_t
zkl_adopted_lost(zkl_adopted_t *claim)
{
    switch (claim->state) {

    case ZKL_ADOPTED_READ:
        return claim->existed
               || !zkl_record_asked(claim->adoption->zone, claim->id.record);

    case ZKL_ADOPTED_DELETE:
        return claim->existed;

    default:
        return 0;
    }
}


/* Frees the claim only. */

static void
zkl_adopted_free(zkl_adopted_t *claim)
{
    zkl_worker_t  *worker;

    worker = claim->adoption->worker;

    if (claim->op != NULL) {
        claim->op->handler = NULL;
    }

    if (claim->replace != NULL) {
        zkl_replace_free(claim->replace);
    }

    ngx_rbtree_delete(&worker->adopted, &claim->node);
    ngx_queue_remove(&claim->queue);

    ngx_free(claim);
}
