
/*
 * Results: what a client is told of an acquire that was refused, and of a call.
 *
 * Two tables have a row for each failure: the status, the word for logs, the
 * reason that a stream gives, and the detail.  The code below them is about the
 * few results that need more than their row: the holder of a lock that is
 * taken, how a claim has ended, and whether a repeat is safe.
 *
 * Everything here runs on the event loop.
 */


#include "http/result.h"
#include "http/answer.h"


static const ngx_http_zk_lock_result_t *ngx_http_zk_lock_result_find(
    const ngx_http_zk_lock_result_t *row, ngx_uint_t result);
static ngx_int_t ngx_http_zk_lock_result_tell(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, const ngx_http_zk_lock_result_t *row);
static void ngx_http_zk_lock_result_holder_handler(zkl_call_t *call,
    zkl_answer_e answer);
static ngx_int_t ngx_http_zk_lock_result_done(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_t *call);


/*
 * The last row of a table is for all results that have no row.  A refusal
 * speaks of this request alone, because an earlier request with the same key
 * may have been granted the lock.
 */

static const ngx_http_zk_lock_result_t  ngx_http_zk_lock_outcomes[] = {

    { ZKL_CONFLICT, NGX_HTTP_CONFLICT, ngx_string("conflict"), "conflict",
      "the lock is used in another mode, or with another number of permits, "
      "by the claims that hold it or wait for it; of other permits a longer "
      "\"wait\" waits for the end",
      "one of the locks is used in another mode, or with another number of "
      "permits, by the claims that hold it or wait for it; of other permits a "
      "longer \"wait\" waits for the end" },

    { ZKL_LAYOUT, NGX_HTTP_CONFLICT, ngx_string("conflict"), "conflict",
      "this znode is no lock of this location's zk_lock_layout", NULL },

    { ZKL_FULL, NGX_HTTP_TOO_MANY_REQUESTS, ngx_string("full"), "full",
      "the queue of this lock is full",
      "the queue of one of the locks is full" },

    { ZKL_QUOTA, NGX_HTTP_ZK_LOCK_KIND_QUOTA, ngx_string("quota"), "quota",
      "this client has as many claims at this gateway as zk_lock_max_claims "
      "allows: this request was granted nothing", NULL },

    { ZKL_UNREACHABLE, NGX_HTTP_SERVICE_UNAVAILABLE,
      ngx_string("unreachable"), "unreachable",
      "ZooKeeper is out of reach: this request was granted nothing, repeating "
      "is safe", NULL },

    { ZKL_NO_ROOM, NGX_HTTP_ZK_LOCK_KIND_NO_ROOM, ngx_string("no_room"),
      "no_room",
      "this gateway has no room for one more claim, in its zk_lock_zone, in "
      "this worker's ZooKeeper session or below a quota of ZooKeeper: this "
      "request was granted nothing",
      NULL },

    { ZKL_SEQ_EXHAUSTED, NGX_HTTP_CONFLICT, ngx_string("refused"), "refused",
      "ZooKeeper has no numbers left for claims of this lock: its znode has "
      "to be removed once it is empty",
      "ZooKeeper has no numbers left for claims of one of the locks: its "
      "znode has to be removed once it is empty" },

    { ZKL_DENIED, NGX_HTTP_INTERNAL_SERVER_ERROR, ngx_string("refused"),
      "refused",
      "ZooKeeper does not let this gateway queue for this lock",
      "ZooKeeper does not let this gateway queue for one of the locks" },

    { ZKL_CANCELLED, NGX_HTTP_ZK_LOCK_STATUS_GONE, ngx_string("cancelled"),
      "cancelled",
      "the claim was cancelled",
      "the claim of one of the locks was cancelled" },

    { ZKL_SHUTTING_DOWN, NGX_HTTP_SERVICE_UNAVAILABLE, ngx_string("shut"),
      "shutdown",
      "this worker process leaves: this request was granted nothing, repeating "
      "is safe", NULL },

    { ZKL_DRAINED, NGX_HTTP_ZK_LOCK_KIND_DRAINED, ngx_string("drained"),
      "drained",
      "this gateway is drained, and takes no new locks: this request was "
      "granted nothing, repeating is safe", NULL },

    { ZKL_FAILED, NGX_HTTP_INTERNAL_SERVER_ERROR, ngx_string("failed"),
      "failed",
      "the claim could not be made: this request was granted nothing", NULL }
};


static const ngx_http_zk_lock_result_t  ngx_http_zk_lock_answers[] = {

    { ZKL_CALL_FREE, NGX_HTTP_NOT_FOUND, ngx_string("free"), NULL,
      "no claim holds this lock or waits for it", NULL },

    { ZKL_CALL_FOREIGN, NGX_HTTP_CONFLICT, ngx_string("refused"), NULL,
      "this claim was not made by a gateway, and has no lease", NULL },

    { ZKL_CALL_WAITS, NGX_HTTP_CONFLICT, ngx_string("refused"), NULL,
      "this claim waits: it does not hold the lock yet", NULL },

    { ZKL_CALL_CONFLICT, NGX_HTTP_CONFLICT, ngx_string("refused"), NULL,
      "only an exclusive claim that has its lock alone can share it, and not "
      "a lock that is one znode", NULL },

    { ZKL_CALL_LAYOUT, NGX_HTTP_CONFLICT, ngx_string("conflict"), NULL,
      "this znode is no lock of this location's zk_lock_layout", NULL },

    { ZKL_CALL_UNREACHABLE, NGX_HTTP_SERVICE_UNAVAILABLE,
      ngx_string("unreachable"), NULL,
      "ZooKeeper is out of reach: nothing is sure, repeating is safe", NULL },

    { ZKL_CALL_BUSY, NGX_HTTP_SERVICE_UNAVAILABLE,
      ngx_string("unreachable"), NULL,
      "this worker makes as many lists, and looks at as many locks, as it may "
      "at a time: repeat the call later", NULL },

    { ZKL_CALL_NO_ROOM, NGX_HTTP_ZK_LOCK_KIND_NO_ROOM, ngx_string("no_room"),
      NULL,
      "a quota of ZooKeeper leaves no room for this change, repeating is safe",
      NULL },

    { ZKL_CALL_DENIED, NGX_HTTP_INTERNAL_SERVER_ERROR, ngx_string("refused"),
      NULL,
      "ZooKeeper does not let this gateway see what is asked for", NULL },

    { ZKL_CALL_FAILED, NGX_HTTP_INTERNAL_SERVER_ERROR, ngx_string("failed"),
      NULL,
      "memory is short, or ZooKeeper refused: the error log tells more",
      NULL }
};


const ngx_http_zk_lock_result_t *
ngx_http_zk_lock_result(zkl_outcome_e outcome)
{
    return ngx_http_zk_lock_result_find(ngx_http_zk_lock_outcomes, outcome);
}


const ngx_http_zk_lock_result_t *
ngx_http_zk_lock_result_answer(zkl_answer_e answer)
{
    return ngx_http_zk_lock_result_find(ngx_http_zk_lock_answers, answer);
}


static const ngx_http_zk_lock_result_t *
ngx_http_zk_lock_result_find(const ngx_http_zk_lock_result_t *row,
    ngx_uint_t result)
{
    ngx_uint_t  last;

    last = (row == ngx_http_zk_lock_outcomes) ? ZKL_FAILED
                                              : ZKL_CALL_FAILED;

    while (row->result != result && row->result != last) {
        row++;
    }

    return row;
}


static ngx_int_t
ngx_http_zk_lock_result_tell(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, const ngx_http_zk_lock_result_t *row)
{
    ctx->told.outcome = row->word;

    return ngx_http_zk_lock_problem(r, row->kind, row->detail);
}


ngx_int_t
ngx_http_zk_lock_result_refused(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_outcome_e outcome)
{
    if (outcome == ZKL_TIMED_OUT) {
        ngx_str_set(&ctx->told.outcome, "taken");

        return ngx_http_zk_lock_request_call(r, ctx, ZKL_HOLDER, 0,
                                        ngx_http_zk_lock_result_holder_handler);
    }

    return ngx_http_zk_lock_result_tell(r, ctx,
                                        ngx_http_zk_lock_result(outcome));
}


static void
ngx_http_zk_lock_result_holder_handler(zkl_call_t *call, zkl_answer_e answer)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = ngx_http_zk_lock_request_told(call, answer);

    /* the holder is a courtesy: the answer is sent without a holder, too */

    rc = ngx_http_zk_lock_answer_taken(r, answer == ZKL_CALL_OK
                                          ? &call->infos[0] : NULL);

    ngx_http_zk_lock_request_end(r, rc);
}


ngx_int_t
ngx_http_zk_lock_result_answered(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_t *call, zkl_answer_e answer)
{
    if (call->fencing != 0) {
        ctx->told.fencing = call->fencing;
    }

    if (ctx->told.type == NGX_HTTP_ZK_LOCK_HOLD && call->type == ZKL_RENEW
        && answer != ZKL_CALL_OK && answer != ZKL_CALL_GONE)
    {
        /* the hold is counted, whatever became of the renewal with it */

        answer = ZKL_CALL_UNREACHABLE;
    }

    switch (answer) {

    case ZKL_CALL_OK:
        return ngx_http_zk_lock_result_done(r, ctx, call);

    case ZKL_CALL_GONE:
        ngx_str_set(&ctx->told.outcome, "lost");

        return ngx_http_zk_lock_answer_gone(r, ctx);

    case ZKL_CALL_UNREACHABLE:

        /* whether a repeat is safe depends on the call */

        if (ctx->told.type == NGX_HTTP_ZK_LOCK_HOLD
            || (call->type == ZKL_RELEASE
                && (call->ninfos != 0
                    || call->served.done == ZKL_REPLY_COUNTED)))
        {
            /* the gateway counts the holds */

            ngx_str_set(&ctx->told.outcome, "unreachable");

            return ngx_http_zk_lock_problem(r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                            "ZooKeeper is out of reach: this "
                                            "may have been counted or not, "
                                            "and GET tells \"holds\"; a "
                                            "repeat counts again");
        }

        if (call->type == ZKL_RELEASE) {
            ngx_str_set(&ctx->told.outcome, "unreachable");

            return ngx_http_zk_lock_problem(r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                            "ZooKeeper is out of reach: the "
                                            "release is not confirmed, "
                                            "repeating is safe");
        }

        /* fall through */

    default:
        return ngx_http_zk_lock_result_failed(r, ctx, answer);
    }
}


ngx_int_t
ngx_http_zk_lock_result_failed(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_answer_e answer)
{
    return ngx_http_zk_lock_result_tell(r, ctx,
                                       ngx_http_zk_lock_result_answer(answer));
}


static ngx_int_t
ngx_http_zk_lock_result_done(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_t *call)
{
    zkl_json_t  *json;

    switch (call->type) {

    case ZKL_RELEASE:

        if (call->nknown != 0 && call->infos[0].held) {
            return ngx_http_zk_lock_answer_claim(r, ctx, call, NGX_HTTP_OK);
        }

        ngx_str_set(&ctx->told.outcome, "released");
        return ngx_http_zk_lock_answer_done(r);

    case ZKL_LIST:
        ngx_str_set(&ctx->told.outcome, "listed");

        json = zkl_json_open();

        ngx_http_zk_lock_write_lock(json, ctx, call);

        return ngx_http_zk_lock_send(r, NGX_HTTP_OK, json);

    case ZKL_RENEW:

        /* a waiting claim has no lease, so the status differs */

        return ngx_http_zk_lock_answer_claim(r, ctx, call,
                                             call->infos[0].held
                                             ? NGX_HTTP_OK
                                             : NGX_HTTP_ACCEPTED);

    default:
        return ngx_http_zk_lock_answer_claim(r, ctx, call, NGX_HTTP_OK);
    }
}
