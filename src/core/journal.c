
/*
 * The journal: what becomes of the claims that hold locks, line by line.
 *
 * A line tells of a grant or of an end.  The keeper of a claim's record hears
 * of the end, whatever the reason: so each claim that was granted here has one
 * such line, also if the claim's worker has died.  No line tells of a claim
 * that ends because nginx is stopped, nor of a durable claim whose znode is
 * deleted while no session counts the lease.  The worker that made the claim
 * knows the owner and the request.
 *
 * Everything here runs on the event loop.  worker->journal is NULL if no
 * journal is kept.
 */


#include "core/journal.h"


static void zkl_journal_ended(void *data, uint32_t record, zkl_cell_t *cell,
    ngx_msec_t held);
static void zkl_journal_line(zkl_worker_t *worker, zkl_journal_e event,
    zkl_cell_t *cell, zkl_claim_t *claim, ngx_msec_t time);


void
zkl_journal_open(zkl_worker_t *worker, zkl_journal_pt journal, void *data)
{
    worker->journal = journal;
    worker->data = data;

    worker->zone->ended = zkl_journal_ended;
    worker->zone->data = worker;
}


void
zkl_journal_claim(zkl_claim_t *claim, zkl_journal_e event)
{
    zkl_worker_t  *worker;

    worker = claim->lock->worker;

    if (worker->journal != NULL) {
        zkl_journal_line(worker, event, claim->cell, claim,
                         claim->granted - claim->started);
    }
}


static void
zkl_journal_ended(void *data, uint32_t record, zkl_cell_t *cell,
    ngx_msec_t held)
{
    zkl_worker_t  *worker = data;

    zkl_journal_line(worker, ZKL_JOURNAL_ENDED, cell, worker->claims[record],
                     held);
}


/*
 * The cell tells of the claim, because a claim may have no lock here.  claim,
 * the worker's claim with that record, may be NULL.
 */

static void
zkl_journal_line(zkl_worker_t *worker, zkl_journal_e event, zkl_cell_t *cell,
    zkl_claim_t *claim, ngx_msec_t time)
{
    zkl_journal_t     line;
    zkl_claim_data_t  cdata;

    ngx_memzero(&line, sizeof(zkl_journal_t));

    line.event = event;
    line.path.data = cell->path;
    line.path.len = cell->path_len;
    line.mode = cell->mode;
    line.fencing = zkl_fencing_token(cell->czxid, cell->index);
    line.time = time;

    if (event == ZKL_JOURNAL_ENDED) {
        line.reason = zkl_journal_reason(cell->ending);
    }

    if (claim != NULL) {
        zkl_claim_data_read(&cdata, (char *) claim->cdata, claim->cdata_len);

        line.owner.data = (u_char *) cdata.owner;
        line.owner.len = cdata.owner_len;
        line.from.data = (u_char *) cdata.from;
        line.from.len = cdata.from_len;
        line.request.data = claim->request;
        line.request.len = claim->request_len;
    }

    worker->journal(worker->data, &line);
}


const char *
zkl_journal_reason(zkl_ending_e ending)
{
    static const char  *const reasons[] = {
        "deleted", "released", "expired", "broken", "session"
    };

    return reasons[ending <= ZKL_ENDING_LOST ? ending : ZKL_ENDING_UNKNOWN];
}


void
zkl_journal_read(zkl_call_t *call, zkl_op_t *op)
{
    zkl_claim_data_t  cdata;

    zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);

    call->fencing = zkl_fencing_token(cdata.czxid ? cdata.czxid : op->czxid,
                                      cdata.index > 0 ? cdata.index : 0);

    if (call->worker->journal == NULL || call->owner.data != NULL
        || cdata.owner_len == 0)
    {
        return;
    }

    /* without memory the line has no owner */

    call->owner.data = ngx_alloc(cdata.owner_len, call->worker->log);

    if (call->owner.data != NULL) {
        call->owner.len = cdata.owner_len;
        ngx_memcpy(call->owner.data, cdata.owner, cdata.owner_len);
    }
}


void
zkl_journal_deleted(zkl_call_t *call)
{
    zkl_journal_t  line;

    if (call->worker->journal == NULL) {
        return;
    }

    ngx_memzero(&line, sizeof(zkl_journal_t));

    line.event = ZKL_JOURNAL_DELETED;
    line.path = call->path;
    line.mode = call->token.mode;
    line.fencing = call->fencing;
    line.reason = call->forced ? "broken" : "released";
    line.owner = call->owner;

    call->worker->journal(call->worker->data, &line);
}
