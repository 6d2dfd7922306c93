
/*
 * Operations, and batches of operations, that are under way: from the send to
 * ZooKeeper's answer, or to the moment when no answer can come any more.
 *
 * One operation that fails rolls the whole batch back: then the culprit is sent
 * again alone, and the remaining operations together.
 *
 * Everything here runs on the event loop; the library's threads post the
 * answers.  An operation is in one place: pending, in a batch, alone in
 * flights, or failed; the handler of a cancelled operation is NULL.
 */


#include "ngx_http_zk_lock_flight.h"


/* the least time between two log lines about ACLs, milliseconds */
#define NGX_HTTP_ZK_LOCK_DENIED_AGAIN 1000


static void ngx_http_zk_lock_session_took_off(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_flight_t *flight);
static void ngx_http_zk_lock_session_wrote(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_flight_t *flight);
static void ngx_http_zk_lock_session_landed(ngx_http_zk_lock_flight_t *flight);
static void ngx_http_zk_lock_session_written(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_flight_t *flight, ngx_http_zk_lock_rc_e rc);
static void ngx_http_zk_lock_session_heard(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_flight_t *flight);
static void ngx_http_zk_lock_session_op_landed(zk_lock_message_t *message,
    void *data);
static void ngx_http_zk_lock_session_denied(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_session_batch_landed(zk_lock_message_t *message,
    void *data);
static void ngx_http_zk_lock_session_rolled_back(
    ngx_http_zk_lock_session_t *s, ngx_http_zk_lock_batch_t *batch);


void
ngx_http_zk_lock_session_flush_failed(ngx_http_zk_lock_session_t *s)
{
    ngx_queue_t             failed;
    ngx_queue_t            *q;
    ngx_http_zk_lock_op_t  *op;

    if (ngx_queue_empty(&s->failed)) {
        return;
    }

    ngx_queue_init(&failed);
    ngx_queue_add(&failed, &s->failed);
    ngx_queue_init(&s->failed);

    while (!ngx_queue_empty(&failed)) {
        q = ngx_queue_head(&failed);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);
        ngx_http_zk_lock_session_finish(op);
    }
}


void
ngx_http_zk_lock_session_submit(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op)
{
    int  code;

    if (op->type == NGX_HTTP_ZK_LOCK_OP_CREATE) {
        op->index = 0;
        (void) ngx_sprintf(op->value.data + op->index_at, "00");
    }

    op->flight.message.deliver = ngx_http_zk_lock_session_op_landed;
    op->flight.write = (op->type <= NGX_HTTP_ZK_LOCK_OP_BARRIER);

    ngx_http_zk_lock_session_took_off(s, &op->flight);

    if (op->watch) {
        s->watch_asked += op->path.len + 5;
    }

    code = ngx_http_zk_lock_library_submit(s->handle, op);

    if (code == 0) {
        ngx_http_zk_lock_session_wrote(s, &op->flight);
        return;
    }

    if (op->watch) {
        s->watch_asked -= op->path.len + 5;
    }

    ngx_log_error(NGX_LOG_WARN, s->log, 0,
                  "libzookeeper refused an operation on \"%*s\": %s",
                  ngx_http_zk_lock_session_shown(&op->path), op->path.data,
                  ngx_http_zk_lock_library_text(code));

    ngx_http_zk_lock_session_landed(&op->flight);
    ngx_http_zk_lock_session_fail(s, op,
                          ngx_http_zk_lock_library_rc(code)
                          == NGX_HTTP_ZK_LOCK_REFUSED
                          ? NGX_HTTP_ZK_LOCK_REFUSED
                          : NGX_HTTP_ZK_LOCK_UNSENT);
}


void
ngx_http_zk_lock_session_submit_batch(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_batch_t *batch)
{
    int                     code;
    ngx_queue_t            *q;
    ngx_http_zk_lock_op_t  *op;

    batch->flight.message.deliver = ngx_http_zk_lock_session_batch_landed;
    batch->flight.write = 1;
    batch->flight.counted = 1;
    s->writes++;

    ngx_http_zk_lock_session_took_off(s, &batch->flight);

    code = ngx_http_zk_lock_library_submit_batch(s->handle, batch);

    if (code == 0) {
        ngx_http_zk_lock_session_wrote(s, &batch->flight);
        return;
    }

    ngx_log_error(NGX_LOG_WARN, s->log, 0,
                  "libzookeeper refused a transaction of %ui: %s",
                  batch->nops, ngx_http_zk_lock_library_text(code));

    ngx_http_zk_lock_session_landed(&batch->flight);

    while (!ngx_queue_empty(&batch->ops)) {
        q = ngx_queue_head(&batch->ops);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);
        ngx_http_zk_lock_session_fail(s, op, NGX_HTTP_ZK_LOCK_UNSENT);
    }

    ngx_http_zk_lock_library_free_batch(batch);
}


static void
ngx_http_zk_lock_session_took_off(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_flight_t *flight)
{
    flight->sent = ngx_http_zk_lock_now();
    s->asked = flight->sent;

    ngx_queue_insert_tail(&s->flights, &flight->queue);

    ngx_http_zk_lock_session_arm(s);
}


/* Notes that each operation that is sent from now on is behind a write. */

static void
ngx_http_zk_lock_session_wrote(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_flight_t *flight)
{
    if (flight->write) {
        flight->number = ++s->written;
        s->wrote = flight->sent;
        s->barrier = 0;
    }
}


/* Notes whether a quorum has committed a write. */

static void
ngx_http_zk_lock_session_written(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_flight_t *flight, ngx_http_zk_lock_rc_e rc)
{
    switch (rc) {

    case NGX_HTTP_ZK_LOCK_OK:
    case NGX_HTTP_ZK_LOCK_NO_NODE:
    case NGX_HTTP_ZK_LOCK_EXISTS:
    case NGX_HTTP_ZK_LOCK_CHANGED:
    case NGX_HTTP_ZK_LOCK_CHILDLESS:
        s->committed = flight->number;
        ngx_http_zk_lock_session_committed(s, flight->sent);
        break;

    default:

        /* a server may have refused the write by itself: a new write is due */

        if (s->wrote == flight->sent) {
            s->wrote = s->proves - 1;
        }

        break;
    }
}


static void
ngx_http_zk_lock_session_landed(ngx_http_zk_lock_flight_t *flight)
{
    ngx_http_zk_lock_session_t  *s;

    s = flight->session;

    ngx_queue_remove(&flight->queue);

    if (flight->counted) {
        flight->counted = 0;
        s->writes--;
    }

    if (s->hurry) {
        ngx_http_zk_lock_session_hurry(s);
    }
}


/* Notes that ZooKeeper has answered an operation or a batch. */

static void
ngx_http_zk_lock_session_heard(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_flight_t *flight)
{
    ngx_http_zk_lock_rc_e  rc;

    rc = ngx_http_zk_lock_library_rc(flight->code);

    if (s->handle == NULL || rc == NGX_HTTP_ZK_LOCK_UNKNOWN) {
        return;
    }

    s->replied = ngx_http_zk_lock_now();

    if (s->unreachable) {
        s->unreachable = 0;

        ngx_log_error(NGX_LOG_NOTICE, s->log, 0, "zookeeper answers again");
    }

    s->nudged = 0;
    s->doubts = 0;
    s->backoff = 0;

    if (s->state == NGX_HTTP_ZK_LOCK_CONNECTED
        && (ngx_msec_int_t) (flight->sent - s->apart) > 0)
    {
        s->apart = flight->sent;
    }

    if (flight->write) {
        ngx_http_zk_lock_session_written(s, flight, rc);
    }
}


static void
ngx_http_zk_lock_session_op_landed(zk_lock_message_t *message, void *data)
{
    ngx_http_zk_lock_op_t       *op = (ngx_http_zk_lock_op_t *) message;

    ngx_http_zk_lock_session_t  *s;

    s = op->flight.session;

    /* data is the session if the library never answered */

    op->rc = (data == s) ? NGX_HTTP_ZK_LOCK_UNKNOWN
                         : ngx_http_zk_lock_library_rc(op->flight.code);

    if (op->type == NGX_HTTP_ZK_LOCK_OP_BARRIER
        && op->rc == NGX_HTTP_ZK_LOCK_NO_AUTH)
    {
        /*
         * The leader checks the rights of each part of a transaction, and
         * commits a refusal as well: the barrier needs no right to read.
         */

        op->flight.code = 0;
    }

    if (data != s) {
        ngx_http_zk_lock_session_heard(s, &op->flight);
    }

    ngx_http_zk_lock_session_landed(&op->flight);

    if (op->watch) {
        s->watch_asked -= op->path.len + 5;
    }

    if (op->watch
        && (op->rc == NGX_HTTP_ZK_LOCK_OK
            || (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE
                && op->type == NGX_HTTP_ZK_LOCK_OP_EXISTS)))
    {
        ngx_http_zk_lock_session_watched(s, op);
    }

    if (op->fresh && s->committed <= op->flight.number) {

        /* the write in front of it was not committed: the data may be old */

        op->rc = NGX_HTTP_ZK_LOCK_UNSENT;
    }

    if (op->type == NGX_HTTP_ZK_LOCK_OP_BARRIER) {
        /* a barrier serves its purpose, whatever the answer */

    } else if (op->rc == NGX_HTTP_ZK_LOCK_REFUSED) {
        ngx_log_error(NGX_LOG_ERR, s->log, 0,
                      "zookeeper refused an operation on \"%*s\": %s",
                      ngx_http_zk_lock_session_shown(&op->path),
                      op->path.data,
                      ngx_http_zk_lock_library_text(op->flight.code));

    } else if (op->rc == NGX_HTTP_ZK_LOCK_NO_AUTH) {
        ngx_http_zk_lock_session_denied(s, op);
    }

    ngx_http_zk_lock_session_finish(op);
}


/* Logs seldom: any client can ask for a lock that the ACL forbids. */

static void
ngx_http_zk_lock_session_denied(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op)
{
    ngx_msec_t  now;

    now = ngx_http_zk_lock_now();

    if (s->denied != 0 && now - s->denied < NGX_HTTP_ZK_LOCK_DENIED_AGAIN) {
        return;
    }

    s->denied = now;

    ngx_log_error(NGX_LOG_ERR, s->log, 0,
                  "zookeeper's ACL forbids an operation on \"%*s\", see "
                  "\"zk_lock_auth\"; such lines come once a second at most",
                  ngx_http_zk_lock_session_shown(&op->path), op->path.data);
}


static void
ngx_http_zk_lock_session_batch_landed(zk_lock_message_t *message, void *data)
{
    ngx_http_zk_lock_batch_t    *batch = (ngx_http_zk_lock_batch_t *) message;

    ngx_queue_t                 *q;
    ngx_http_zk_lock_rc_e        rc;
    ngx_http_zk_lock_op_t       *op;
    ngx_http_zk_lock_session_t  *s;

    s = batch->flight.session;

    rc = NGX_HTTP_ZK_LOCK_UNKNOWN;

    if (data != s) {
        rc = ngx_http_zk_lock_library_rc(batch->flight.code);

        ngx_http_zk_lock_session_heard(s, &batch->flight);
        ngx_http_zk_lock_library_read_batch(batch);
    }

    ngx_http_zk_lock_session_landed(&batch->flight);

    if (rc != NGX_HTTP_ZK_LOCK_OK && rc != NGX_HTTP_ZK_LOCK_UNKNOWN) {
        ngx_http_zk_lock_session_rolled_back(s, batch);
    }

    while (!ngx_queue_empty(&batch->ops)) {
        q = ngx_queue_head(&batch->ops);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);
        op->rc = rc;

        ngx_http_zk_lock_session_finish(op);
    }

    ngx_http_zk_lock_library_free_batch(batch);
}


/*
 * No operation of the batch took effect.  The culprit, the operation with a
 * code of its own, is sent again alone and so gets an answer; the innocent
 * operations are sent again together, ahead of later operations.
 */

static void
ngx_http_zk_lock_session_rolled_back(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_batch_t *batch)
{
    ngx_uint_t              culprits, connected;
    ngx_queue_t            *q;
    ngx_http_zk_lock_op_t  *op;

    culprits = 0;

    /* the answers of a closed handle land here, too */

    connected = (s->state == NGX_HTTP_ZK_LOCK_CONNECTED && s->handle != NULL);

    while (!ngx_queue_empty(&batch->ops)) {
        q = ngx_queue_last(&batch->ops);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);

        if (!connected) {
            ngx_http_zk_lock_session_fail(s, op, NGX_HTTP_ZK_LOCK_UNSENT);
            continue;
        }

        if (ngx_http_zk_lock_library_innocent(op->flight.code)) {
            ngx_queue_insert_head(&s->pending, q);
            s->npending++;
            continue;
        }

        culprits++;
        op->gather = 0;

        ngx_http_zk_lock_session_submit(s, op);
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, s->log, 0,
                   "zk lock session: batch of %ui rolled back, culprits: %ui",
                   batch->nops, culprits);

    if (culprits == 0 && connected) {

        /* only the write to the gate failed: the gate was deleted */

        s->gated = 0;
        ngx_http_zk_lock_session_gate(s, NGX_HTTP_ZK_LOCK_OP_GATE);
    }

    if (!ngx_queue_empty(&s->pending)) {
        ngx_http_zk_lock_session_hurry(s);
    }
}


void
ngx_http_zk_lock_session_fail(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op, ngx_http_zk_lock_rc_e rc)
{
    op->rc = rc;

    ngx_queue_insert_tail(&s->failed, &op->flight.queue);

    /*
     * The handler is told in the next turn of the loop: the library may refuse
     * each operation that a handler sends again, and such refusals must not
     * keep the loop from the message that the session is over.
     */

    ngx_post_event(&s->flush, &ngx_posted_next_events);
}
