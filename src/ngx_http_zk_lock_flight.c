
/*
 * What is under way: operations from when they are sent to when ZooKeeper has
 * answered them, or never will.
 *
 * Group commit: ZooKeeper pays by the transaction, not by the operation.  So
 * creates and deletes that are sure to succeed are gathered while a few
 * transactions are under way, and go out together; an idle session sends at
 * once.  "At once" is when a turn of the event loop has brought nothing more to
 * gather: who is idle loses no time by that, and who is busy sends more at a
 * time.  An operation that nobody is in a hurry for says so (`patient`), and
 * waits for others to go with.  One operation that fails rolls all of its batch
 * back: then the culprit goes again alone, and the others together.
 *
 * All creates of a batch share one zxid, which the session's gate tells: an
 * ephemeral znode of its own, set in the same transaction.  Until the gate is
 * there, creates go alone.
 *
 * Everything here runs on the event loop; the library's threads have posted
 * what lands here.  An operation is in one place: pending, in a batch, alone
 * in flights, or failed; its handler is NULL if it was cancelled.
 */


#include "ngx_http_zk_lock_flight.h"


/* transactions under way; what comes meanwhile is gathered */
#define NGX_HTTP_ZK_LOCK_WRITES_MAX   4

/* a batch of this size goes in the midst of a turn; others after so many */
#define NGX_HTTP_ZK_LOCK_GATHER       64
#define NGX_HTTP_ZK_LOCK_TURNS        8

/* patient operations wait so long (milliseconds), or until they are so many */
#define NGX_HTTP_ZK_LOCK_PATIENT      2
#define NGX_HTTP_ZK_LOCK_PATIENT_MAX  32

/* bytes of paths and values in a batch; jute.maxbuffer is 1 MiB */
#define NGX_HTTP_ZK_LOCK_BATCH_BYTES  (256 * 1024)

/* what ACLs forbid is logged no more often, milliseconds */
#define NGX_HTTP_ZK_LOCK_DENIED_AGAIN 1000


static void ngx_http_zk_lock_session_gate_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_session_pend(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_session_hurry(ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_flush_pending(
    ngx_http_zk_lock_session_t *s);
static ngx_http_zk_lock_batch_t *ngx_http_zk_lock_session_gather(
    ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_submit(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_session_submit_batch(
    ngx_http_zk_lock_session_t *s, ngx_http_zk_lock_batch_t *batch);
static void ngx_http_zk_lock_session_took_off(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_flight_t *flight);
static void ngx_http_zk_lock_session_landed(ngx_http_zk_lock_flight_t *flight);
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
static void ngx_http_zk_lock_session_fail(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op, ngx_http_zk_lock_rc_e rc);


static ngx_str_t  ngx_http_zk_lock_gates = ngx_string("/zk_lock_gates");


void
ngx_http_zk_lock_session_send(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_session_t  *s;

    s = op->flight.session;

    if (s->state != NGX_HTTP_ZK_LOCK_CONNECTED) {
        ngx_http_zk_lock_session_fail(s, op, NGX_HTTP_ZK_LOCK_UNSENT);
        return;
    }

    if (!op->gather) {

        if (!ngx_queue_empty(&s->pending) && !s->hurry) {

            /* who asks sees what was decided before */

            ngx_http_zk_lock_session_flush_pending(s);
        }

        ngx_http_zk_lock_session_submit(s, op);
        return;
    }

    ngx_http_zk_lock_session_pend(s, op);
}


/*
 * Makes the gate.  Its parent is made when it turns out to be missing, and
 * stays.  Without a gate all goes on, but slower.
 */

void
ngx_http_zk_lock_session_gate(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_e type)
{
    u_char                  name[16];
    u_char                  value[NGX_MAXHOSTNAMELEN + NGX_INT64_LEN + 1];
    ngx_str_t               leaf, label;
    ngx_http_zk_lock_op_t  *op;

    leaf.data = name;
    leaf.len = ngx_sprintf(name, "%08xD%08xD", (uint32_t) ngx_random(),
                           (uint32_t) ngx_random())
               - name;

    label.data = value;
    label.len = ngx_sprintf(value, "%V %P", &ngx_cycle->hostname, ngx_pid)
                - value;

    op = ngx_http_zk_lock_op_new(s, type, &ngx_http_zk_lock_gates,
                                 type == NGX_HTTP_ZK_LOCK_OP_GATE ? &leaf
                                                                  : NULL,
                                 type == NGX_HTTP_ZK_LOCK_OP_GATE ? &label
                                                                  : NULL);
    if (op == NULL) {
        return;
    }

    op->handler = ngx_http_zk_lock_session_gate_handler;
    op->data = s;

    ngx_http_zk_lock_session_send(op);
}


static void
ngx_http_zk_lock_session_gate_handler(ngx_http_zk_lock_op_t *op)
{
    u_char                      *p;
    ngx_http_zk_lock_session_t  *s;

    s = op->data;

    if (op->type != NGX_HTTP_ZK_LOCK_OP_GATE) {

        if (op->rc == NGX_HTTP_ZK_LOCK_OK
            || op->rc == NGX_HTTP_ZK_LOCK_EXISTS)
        {
            ngx_http_zk_lock_session_gate(s, NGX_HTTP_ZK_LOCK_OP_GATE);
        }

        return;
    }

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
        p = ngx_cpymem(s->gate.data, op->path.data, op->path.len);
        *p = '\0';

        s->gate.len = op->path.len;
        s->gated = 1;
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:
        ngx_http_zk_lock_session_gate(s, NGX_HTTP_ZK_LOCK_OP_PERSISTENT);
        break;

    default:
        /* tried again when the connection is back */
        break;
    }
}


/* Puts op to what is gathered for the next transaction. */

static void
ngx_http_zk_lock_session_pend(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op)
{
    ngx_queue_insert_tail(&s->pending, &op->flight.queue);
    s->npending++;

    ngx_http_zk_lock_session_arm(s);

    if (s->npending >= NGX_HTTP_ZK_LOCK_GATHER
        && s->writes < NGX_HTTP_ZK_LOCK_WRITES_MAX)
    {
        /* ZooKeeper begins while this turn goes on */

        ngx_http_zk_lock_session_flush_pending(s);

    } else if (!op->patient || s->npending >= NGX_HTTP_ZK_LOCK_PATIENT_MAX) {
        ngx_http_zk_lock_session_hurry(s);

    } else if (!s->gather.timer_set) {
        ngx_add_timer(&s->gather, NGX_HTTP_ZK_LOCK_PATIENT);
    }
}


/* There is no connection to send it to. */

void
ngx_http_zk_lock_session_unpend(ngx_http_zk_lock_session_t *s)
{
    ngx_queue_t            *q;
    ngx_http_zk_lock_op_t  *op;

    while (!ngx_queue_empty(&s->pending)) {
        q = ngx_queue_head(&s->pending);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);
        ngx_http_zk_lock_session_fail(s, op, NGX_HTTP_ZK_LOCK_UNSENT);
    }

    s->npending = 0;
    s->hurry = 0;
}


/* What is pending goes as soon as the event loop brings no more of it. */

static void
ngx_http_zk_lock_session_hurry(ngx_http_zk_lock_session_t *s)
{
    s->hurry = 1;

    if (s->writes < NGX_HTTP_ZK_LOCK_WRITES_MAX && !s->flush.posted) {
        s->gathered = s->npending;
        s->turns = 0;

        ngx_post_event(&s->flush, &ngx_posted_next_events);
    }
}


void
ngx_http_zk_lock_session_gather_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_session_t  *s;

    s = ev->data;

    if (!ngx_queue_empty(&s->pending)) {
        ngx_http_zk_lock_session_hurry(s);
    }
}


void
ngx_http_zk_lock_session_flush_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_session_t  *s;

    s = ev->data;

    if (s->npending > s->gathered
        && s->npending < NGX_HTTP_ZK_LOCK_GATHER
        && s->turns < NGX_HTTP_ZK_LOCK_TURNS)
    {
        s->gathered = s->npending;
        s->turns++;

        ngx_post_event(&s->flush, &ngx_posted_next_events);

    } else if (s->hurry) {
        ngx_http_zk_lock_session_flush_pending(s);
    }

    ngx_http_zk_lock_session_flush_failed(s);
}


/* Tells of those that failed; those that fail meanwhile wait for a turn. */

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


static void
ngx_http_zk_lock_session_flush_pending(ngx_http_zk_lock_session_t *s)
{
    ngx_queue_t               *q;
    ngx_http_zk_lock_op_t     *op;
    ngx_http_zk_lock_batch_t  *batch;

    while (s->writes < NGX_HTTP_ZK_LOCK_WRITES_MAX
           && !ngx_queue_empty(&s->pending))
    {
        q = ngx_queue_head(&s->pending);
        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);

        batch = NULL;

        if (q != ngx_queue_last(&s->pending)
            && (s->gated || op->type != NGX_HTTP_ZK_LOCK_OP_CREATE))
        {
            batch = ngx_http_zk_lock_session_gather(s);
        }

        if (batch != NULL) {
            ngx_http_zk_lock_session_submit_batch(s, batch);
            continue;
        }

        ngx_queue_remove(q);
        s->npending--;

        op->flight.counted = 1;
        s->writes++;

        ngx_http_zk_lock_session_submit(s, op);
    }

    if (ngx_queue_empty(&s->pending)) {
        s->hurry = 0;

        if (s->gather.timer_set) {
            ngx_del_timer(&s->gather);
        }
    }
}


/* Takes a batch from what is pending; NULL if there is no memory. */

static ngx_http_zk_lock_batch_t *
ngx_http_zk_lock_session_gather(ngx_http_zk_lock_session_t *s)
{
    size_t                     bytes;
    ngx_queue_t               *q;
    ngx_http_zk_lock_op_t     *op;
    ngx_http_zk_lock_batch_t  *batch;

    batch = ngx_calloc(sizeof(ngx_http_zk_lock_batch_t), s->log);
    if (batch == NULL) {
        return NULL;
    }

    ngx_queue_init(&batch->ops);
    batch->flight.session = s;
    batch->gate = &s->gate;

    bytes = 0;

    while (batch->nops < NGX_HTTP_ZK_LOCK_BATCH_MAX
           && bytes < NGX_HTTP_ZK_LOCK_BATCH_BYTES
           && !ngx_queue_empty(&s->pending))
    {
        q = ngx_queue_head(&s->pending);
        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);

        if (op->type == NGX_HTTP_ZK_LOCK_OP_CREATE) {

            if (!s->gated) {
                break;
            }

            op->index = batch->ncreates++;

            (void) ngx_sprintf(op->value.data + op->index_at, "%02xi",
                               op->index);
        }

        ngx_queue_remove(q);
        s->npending--;

        ngx_queue_insert_tail(&batch->ops, q);

        batch->nops++;
        bytes += op->path.len + op->value.len;
    }

    return batch;
}


static void
ngx_http_zk_lock_session_submit(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op)
{
    int  code;

    if (op->type == NGX_HTTP_ZK_LOCK_OP_CREATE) {
        op->index = 0;
        (void) ngx_sprintf(op->value.data + op->index_at, "00");
    }

    op->flight.message.deliver = ngx_http_zk_lock_session_op_landed;

    ngx_http_zk_lock_session_took_off(s, &op->flight);

    if (op->watch) {
        s->watch_asked += op->path.len + 5;
    }

    code = ngx_http_zk_lock_library_submit(s->handle, op);

    if (code == 0) {
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


static void
ngx_http_zk_lock_session_submit_batch(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_batch_t *batch)
{
    int                     code;
    ngx_queue_t            *q;
    ngx_http_zk_lock_op_t  *op;

    batch->flight.message.deliver = ngx_http_zk_lock_session_batch_landed;
    batch->flight.counted = 1;
    s->writes++;

    ngx_http_zk_lock_session_took_off(s, &batch->flight);

    code = ngx_http_zk_lock_library_submit_batch(s->handle, batch);

    if (code == 0) {
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


/* Notes that ZooKeeper has answered what was sent then. */

static void
ngx_http_zk_lock_session_heard(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_flight_t *flight)
{
    ngx_atomic_uint_t  until;

    if (s->handle == NULL
        || ngx_http_zk_lock_library_rc(flight->code)
           == NGX_HTTP_ZK_LOCK_UNKNOWN)
    {
        return;
    }

    s->replied = ngx_http_zk_lock_now();
    s->unreachable = 0;
    s->nudged = 0;
    s->doubts = 0;
    s->backoff = 0;

    until = flight->sent + s->timeout - s->timeout / 3;

    if ((ngx_msec_int_t) (until - *s->alive) > 0) {
        *s->alive = until;
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

    if (op->rc == NGX_HTTP_ZK_LOCK_REFUSED) {
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


/* Whoever asks for a lock that is not ours brings this about, at any rate. */

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
 * Nothing of the batch happened.  The culprit, the one whose code is its own,
 * goes again alone and gets its answer so; the others go again together,
 * ahead of what came later.
 */

static void
ngx_http_zk_lock_session_rolled_back(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_batch_t *batch)
{
    ngx_uint_t              culprits, connected;
    ngx_queue_t            *q;
    ngx_http_zk_lock_op_t  *op;

    culprits = 0;

    /* a handle that was closed answers, too */

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

        /* somebody deleted the gate */

        s->gated = 0;
        ngx_http_zk_lock_session_gate(s, NGX_HTTP_ZK_LOCK_OP_GATE);
    }

    if (!ngx_queue_empty(&s->pending)) {
        ngx_http_zk_lock_session_hurry(s);
    }
}


static void
ngx_http_zk_lock_session_fail(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op, ngx_http_zk_lock_rc_e rc)
{
    op->rc = rc;

    ngx_queue_insert_tail(&s->failed, &op->flight.queue);

    /*
     * Told in the next turn: who tries again, while the library refuses what is
     * sent, must not keep the loop from the message that the session is over.
     */

    ngx_post_event(&s->flush, &ngx_posted_next_events);
}
