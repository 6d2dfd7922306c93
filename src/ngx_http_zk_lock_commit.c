
/*
 * Group commit: what is gathered, and when it goes.
 *
 * ZooKeeper pays by the transaction, not by the operation.  So creates and
 * deletes that are sure to succeed are gathered while a few transactions are
 * under way, and go out together; an idle session sends at once.  "At once" is
 * when a turn of the event loop has brought nothing more to gather: who is idle
 * loses no time by that, and who is busy sends more at a time.  An operation
 * that nobody is in a hurry for says so (`patient`), and waits for others to go
 * with.
 *
 * All creates of a batch share one zxid, which the session's gate tells: an
 * ephemeral znode of its own, set in the same transaction.  Until the gate is
 * there, creates go alone.
 *
 * Everything here runs on the event loop.  Owns what is pending; from
 * submit on an operation belongs to what is under way.
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

/* how soon a gate that was refused is asked for again, milliseconds */
#define NGX_HTTP_ZK_LOCK_GATE_AGAIN   10000


static void ngx_http_zk_lock_session_gate_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_session_gate_failed(
    ngx_http_zk_lock_session_t *s, ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_session_pend(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_session_flush_patient(
    ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_flush_pending(
    ngx_http_zk_lock_session_t *s);
static ngx_http_zk_lock_batch_t *ngx_http_zk_lock_session_gather(
    ngx_http_zk_lock_session_t *s);


ngx_str_t  ngx_http_zk_lock_gates = ngx_string(NGX_HTTP_ZK_LOCK_GATES);


void
ngx_http_zk_lock_session_send(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_session_t  *s;

    s = op->flight.session;

    if (s->state != NGX_HTTP_ZK_LOCK_CONNECTED) {
        ngx_http_zk_lock_session_fail(s, op, NGX_HTTP_ZK_LOCK_UNSENT);
        return;
    }

    if (op->fresh) {
        s->barrier = 1;
        op->flight.number = s->written;

        ngx_queue_insert_tail(&s->fresh, &op->flight.queue);
        ngx_http_zk_lock_session_arm(s);

        ngx_post_event(&s->read, &ngx_posted_next_events);
        return;
    }

    if (op->gather) {
        ngx_http_zk_lock_session_pend(s, op);
        return;
    }

    ngx_http_zk_lock_session_flush_patient(s);
    ngx_http_zk_lock_session_submit(s, op);
}


/* What is read shows what was decided before. */

static void
ngx_http_zk_lock_session_flush_patient(ngx_http_zk_lock_session_t *s)
{
    if (!ngx_queue_empty(&s->pending) && !s->hurry) {
        ngx_http_zk_lock_session_flush_pending(s);
    }
}


/*
 * ZooKeeper answers a read behind the writes that the session has sent before
 * it, with what is there by then.  So those that were asked for in one turn of
 * the event loop go together, behind any write that was sent since.  If none of
 * these is committed, what was read does not count.
 */

void
ngx_http_zk_lock_session_read_handler(ngx_event_t *ev)
{
    ngx_queue_t                 *q;
    ngx_http_zk_lock_op_t       *op;
    ngx_http_zk_lock_session_t  *s;

    s = ev->data;

    if (ngx_queue_empty(&s->fresh)) {
        return;
    }

    ngx_http_zk_lock_session_flush_patient(s);

    if (s->barrier) {
        ngx_http_zk_lock_session_barrier(s);
    }

    while (!ngx_queue_empty(&s->fresh)) {
        q = ngx_queue_head(&s->fresh);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);

        if (s->barrier) {
            ngx_http_zk_lock_session_fail(s, op, NGX_HTTP_ZK_LOCK_UNSENT);

        } else {
            ngx_http_zk_lock_session_submit(s, op);
        }
    }
}


void
ngx_http_zk_lock_session_gate(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_e type)
{
    u_char                  value[NGX_MAXHOSTNAMELEN + NGX_INT64_LEN + 1];
    ngx_str_t               leaf, label;
    ngx_http_zk_lock_op_t  *op;

    leaf.data = s->gate_name;
    leaf.len = NGX_HTTP_ZK_LOCK_GATE_LEN;

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

    s->gating = 1;

    ngx_http_zk_lock_session_send(op);
}


ngx_int_t
ngx_http_zk_lock_session_gated(ngx_http_zk_lock_session_t *s, ngx_str_t *name)
{
    if (s->gated) {
        name->data = s->gate_name;
        name->len = NGX_HTTP_ZK_LOCK_GATE_LEN;

        return NGX_OK;
    }

    if (s->state == NGX_HTTP_ZK_LOCK_CONNECTED && !s->gating && !s->last
        && (s->refused == 0
            || ngx_current_msec - s->refused >= NGX_HTTP_ZK_LOCK_GATE_AGAIN))
    {
        ngx_http_zk_lock_session_gate(s, NGX_HTTP_ZK_LOCK_OP_GATE);
    }

    return s->refused ? NGX_DECLINED : NGX_AGAIN;
}


void
ngx_http_zk_lock_session_ungated(ngx_http_zk_lock_session_t *s)
{
    ngx_log_error(NGX_LOG_NOTICE, s->log, 0,
                  "the gate of this zookeeper session was removed");

    s->gated = 0;

    ngx_http_zk_lock_session_gate(s, NGX_HTTP_ZK_LOCK_OP_GATE);
}


static void
ngx_http_zk_lock_session_gate_handler(ngx_http_zk_lock_op_t *op)
{
    u_char                      *p;
    ngx_http_zk_lock_session_t  *s;

    s = op->data;
    s->gating = 0;

    if (op->type != NGX_HTTP_ZK_LOCK_OP_GATE) {

        if (op->rc == NGX_HTTP_ZK_LOCK_OK
            || op->rc == NGX_HTTP_ZK_LOCK_EXISTS)
        {
            ngx_http_zk_lock_session_gate(s, NGX_HTTP_ZK_LOCK_OP_GATE);

        } else {
            ngx_http_zk_lock_session_gate_failed(s, op);
        }

        return;
    }

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
    case NGX_HTTP_ZK_LOCK_EXISTS:

        /* or the answer was lost when it was made */

        p = ngx_cpymem(s->gate.data, op->path.data, op->path.len);
        *p = '\0';

        s->gate.len = op->path.len;
        s->gated = 1;
        s->refused = 0;
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:
        ngx_http_zk_lock_session_gate(s, NGX_HTTP_ZK_LOCK_OP_PERSISTENT);
        break;

    default:
        ngx_http_zk_lock_session_gate_failed(s, op);
        break;
    }
}


/*
 * It is asked for again when the connection is back, or after a while; sooner
 * if there is no chroot yet, which the first lock makes.
 */

static void
ngx_http_zk_lock_session_gate_failed(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op)
{
    if (op->rc != NGX_HTTP_ZK_LOCK_UNSENT && op->rc != NGX_HTTP_ZK_LOCK_UNKNOWN
        && op->rc != NGX_HTTP_ZK_LOCK_NO_NODE)
    {
        s->refused = ngx_current_msec ? ngx_current_msec : 1;
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

    while (!ngx_queue_empty(&s->fresh)) {
        q = ngx_queue_head(&s->fresh);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);
        ngx_http_zk_lock_session_fail(s, op, NGX_HTTP_ZK_LOCK_UNSENT);
    }
}


void
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
