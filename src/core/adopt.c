
/*
 * Adoption: what is left of a worker that is dead or has left: the slot in the
 * zone, the records there, and the session.
 *
 * A lease becomes a claim of this worker at once, in TAKE (core/claim.c): the
 * claim's znode is read, and becomes durable below this worker's gate, unless
 * the znode is durable already.  The record stays in the slot until then: if
 * this worker dies, too, the next one begins again.  A claim whose release a
 * client may wait for becomes one of this worker, too, to be deleted; the other
 * claims end.
 *
 * When no claim is left that may depend on the session, the worker closes the
 * session.  ZooKeeper deletes then what the dead worker has made, and refuses
 * what the dead worker has sent and ZooKeeper has not carried out so far.
 *
 * All of the code runs on the event loop.  The session of an adoption is open,
 * and not NULL, until the adoption is over.
 */


#include "core/adopt.h"
#include "core/claim.h"


static void zkl_adopt_record(void *data, zkl_record_t *record, ngx_str_t *path);
static void zkl_adopt_answered(void *data, ngx_uint_t write, ngx_uint_t n,
    ngx_msec_int_t time);
static void zkl_adopt_connected(void *data, ngx_uint_t fresh);
static void zkl_adopt_away(void *data);
static void zkl_adopt_lost(void *data);
static void zkl_adopt_over_handler(ngx_event_t *ev);
static void zkl_adopt_free(zkl_adoption_t *adoption);


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
    zkl_zone_t      *zone;
    zkl_adoption_t  *adoption;

    while (!worker->leaving || zkl_worker_over(worker)) {

        zone = zkl_zone_adopt(worker->zone);
        if (zone == NULL) {
            break;
        }

        adoption = ngx_calloc(sizeof(zkl_adoption_t), worker->log);
        if (adoption == NULL) {
            zkl_zone_abandon(zone);
            break;
        }

        adoption->worker = worker;
        adoption->zone = zone;

        adoption->over.handler = zkl_adopt_over_handler;
        adoption->over.data = adoption;
        adoption->over.log = worker->log;

        ngx_queue_insert_tail(&worker->adoptions, &adoption->queue);

        adoption->session = zkl_session_open(worker->conf, &worker->mailbox,
                                             &zkl_adopt_events, adoption,
                                             &zone->own->key,
                                             &zone->own->alive, worker->log);
        if (adoption->session == NULL) {
            zkl_adopt_free(adoption);
            zkl_zone_abandon(zone);
            break;
        }

        zkl_record_inherit(zone, zkl_adopt_record, adoption);

        zkl_worker_count(worker, ZKL_COUNT_ADOPTED, 1);

        ngx_log_error(NGX_LOG_NOTICE, worker->log, 0,
                      "the session of a worker that has gone is adopted");

        worker->left = ngx_current_msec;
    }

    zkl_worker_busy(worker);
}


/*
 * Of a lease, of a claim that may be durable, and of one that had begun to end,
 * the worker makes a claim: the record is freed when the znode is gone, which
 * the close of the session does not show.  The other claims end: their clients
 * are gone with the dead worker.
 */

static void
zkl_adopt_record(void *data, zkl_record_t *record, ngx_str_t *path)
{
    zkl_adoption_t  *adoption = data;

    u_char         buf[ZKL_CLAIM_MAX];
    uint32_t       n;
    zkl_op_t      *op;
    ngx_int_t      rc;
    ngx_str_t      name;
    ngx_uint_t     ended, lease;
    zkl_cell_t    *cell;
    zkl_zone_t    *zone;
    zkl_worker_t  *worker;

    worker = adoption->worker;
    zone = adoption->zone;
    n = record->id.record;
    cell = zkl_layout_cell(zone->map, n);

    if (worker->claims[n] != NULL) {
        return;
    }

    ended = (record->state == ZKL_RECORD_ENDED);
    lease = (record->state == ZKL_RECORD_HELD && !record->bound);

    if (record->state == ZKL_RECORD_HELD && record->bound) {

        /* the connection that held the claim has ended with the worker */

        zkl_record_let_go(cell);
    }

    if (record->state == ZKL_RECORD_OPEN) {

        /*
         * The session was over before the worker died; or the record had moved
         * to the slot of a successor that died or left before handing the chunk
         * over.  The claim is durable, and the session that counts the lease
         * next makes another record.
         */

        rc = NGX_BUSY;

    } else if (lease || record->durable || (ended && record->seq != -1)) {
        rc = zkl_claim_adopt(worker, path, record, !lease, adoption);

    } else {

        /*
         * The close deletes the znode, too, but has to wait until all leases
         * are durable.  A one-node lock's znode may be another claim's.
         */

        if (record->seq != -1 && record->mode != ZKL_NODE
            && zkl_session_connected(worker->session))
        {
            record->id.record = record->named;

            name.data = buf;
            name.len = zkl_name_claim_write((char *) buf, &record->id,
                                            record->was, record->seq);

            op = zkl_op_new(worker->session, ZKL_OP_DELETE, path, &name, NULL);

            if (op != NULL) {
                op->gather = 1;
                zkl_session_send(op, NULL, NULL);
            }
        }

        zkl_record_end(zone, n);
        return;
    }

    if (rc == NGX_OK) {
        adoption->nclaims++;

    } else if (rc == NGX_BUSY) {

        /* or the worker has found the entry, and has a claim */

        zkl_record_ending(cell, ZKL_ENDING_FORSAKEN);
        zkl_record_free(zone, n);

    } else {
        /* the sweep tries again */

        adoption->failed = 1;
    }
}


ngx_uint_t
zkl_adopt_has(zkl_worker_t *worker, int64_t session)
{
    ngx_queue_t     *q;
    zkl_adoption_t  *adoption;

    for (q = ngx_queue_head(&worker->adoptions);
         q != ngx_queue_sentinel(&worker->adoptions);
         q = ngx_queue_next(q))
    {
        adoption = ngx_queue_data(q, zkl_adoption_t, queue);

        if (adoption->zone->own->key.id == session) {
            return 1;
        }
    }

    return 0;
}


void
zkl_adopt_settled(zkl_adoption_t *adoption)
{
    adoption->nclaims--;
    ngx_post_event(&adoption->over, &ngx_posted_events);
}


static void
zkl_adopt_answered(void *data, ngx_uint_t write, ngx_uint_t n,
    ngx_msec_int_t time)
{
    zkl_adoption_t  *adoption = data;

    zkl_worker_answered(adoption->worker, write, n, time);
}


static void
zkl_adopt_connected(void *data, ngx_uint_t fresh)
{
    zkl_adoption_t  *adoption = data;

    ngx_post_event(&adoption->over, &ngx_posted_events);
}


void
zkl_adopt_sweep(zkl_worker_t *worker)
{
    ngx_queue_t     *q;
    zkl_adoption_t  *adoption;

    for (q = ngx_queue_head(&worker->adoptions);
         q != ngx_queue_sentinel(&worker->adoptions);
         q = ngx_queue_next(q))
    {
        adoption = ngx_queue_data(q, zkl_adoption_t, queue);

        if (adoption->failed) {
            adoption->failed = 0;
            zkl_record_inherit(adoption->zone, zkl_adopt_record, adoption);
        }

        ngx_post_event(&adoption->over, &ngx_posted_events);
    }
}


static void
zkl_adopt_away(void *data)
{
}


/* The claims are read again: those that are not durable by now are gone. */

static void
zkl_adopt_lost(void *data)
{
    zkl_adoption_t  *adoption = data;

    adoption->ended = 1;

    ngx_post_event(&adoption->over, &ngx_posted_events);
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

    adoption = ev->data;

    if (adoption->nclaims != 0 || adoption->failed
        || (!adoption->ended && !zkl_session_prompt(adoption->session)))
    {
        return;
    }

    zone = adoption->zone;
    worker = adoption->worker;

    zkl_session_close(adoption->session);
    zkl_record_hand_over(zone, worker->zone);
    zkl_zone_free(zone);

    zkl_adopt_free(adoption);

    zkl_worker_busy(worker);
}


void
zkl_adopt_leave(zkl_worker_t *worker)
{
    ngx_uint_t       successor;
    ngx_queue_t     *q;
    zkl_zone_t      *zone;
    zkl_session_t   *session;
    zkl_adoption_t  *adoption;

    while (!ngx_queue_empty(&worker->adoptions)) {
        q = ngx_queue_head(&worker->adoptions);
        adoption = ngx_queue_data(q, zkl_adoption_t, queue);

        zone = adoption->zone;
        session = adoption->session;

        zkl_adopt_free(adoption);

        successor = zkl_zone_outlives(zone);

        zkl_worker_part(session, zone, successor, successor);
    }
}


/*
 * Frees the adoption, but not the zone and the session.  The claims are
 * forgotten: the close of a session waits for its answers, and the worker's own
 * answers, which come meanwhile, must find no claim of a slot that is given up.
 */

static void
zkl_adopt_free(zkl_adoption_t *adoption)
{
    ngx_uint_t     i;
    zkl_claim_t   *claim;
    zkl_worker_t  *worker;

    worker = adoption->worker;

    for (i = 0; adoption->nclaims != 0 && i < worker->nclaims; i++) {
        claim = worker->claims[i];

        if (claim != NULL && claim->adoption == adoption) {
            zkl_claim_forget(claim);
            adoption->nclaims--;
        }
    }

    if (adoption->over.posted) {
        ngx_delete_posted_event(&adoption->over);
    }

    ngx_queue_remove(&adoption->queue);
    ngx_free(adoption);
}
