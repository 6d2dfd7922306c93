
/*
 * Serving: what a claim's worker does for a call, its own or a sibling's.
 *
 * Only the claim's worker changes a claim and the claim's record, so a call
 * that renews, holds or releases a claim asks that worker: by zkl_serve() if
 * the claim is this worker's, by an errand if it is a sibling's.  The reply
 * tells what the claim's worker knows; that the claim's znode is there the call
 * reads from ZooKeeper itself.
 *
 * A reply that needs ZooKeeper, to a release or a hold, comes later: from the
 * claim's listener, which is in the call, or in worker->served for an errand.
 *
 * Everything here runs on the event loop.
 */


#include "core/serve.h"


static ngx_uint_t zkl_serve_doubts(zkl_claim_t *claim, zkl_served_t *served);
static zkl_reply_e zkl_serve_release(zkl_claim_t *claim,
    zkl_errand_t *errand, zkl_served_t *served);
static ngx_int_t zkl_serve_begin(zkl_served_t *served, zkl_errand_e state);
static void zkl_serve_handler(void *data, zkl_rc_e rc);


zkl_reply_e
zkl_serve(zkl_claim_t *claim, zkl_errand_t *errand, zkl_served_t *served)
{
    served->listener.handler = zkl_serve_handler;
    served->listener.data = served;
    served->done = ZKL_REPLY_OK;
    served->gone = ZKL_REPLY_ANSWER + ZKL_CALL_GONE;

    if (claim->entry.seq != errand->seq) {
        return ZKL_REPLY_ABSENT;
    }

    if (errand->type == ZKL_RELEASE || errand->type == ZKL_BREAK) {
        return zkl_serve_release(claim, errand, served);
    }

    if (claim->state == ZKL_TAKE) {

        /* another session may count the lease: only ZooKeeper knows */

        return ZKL_REPLY_ABSENT;
    }

    if (claim->state == ZKL_WAIT
        && (errand->type != ZKL_INSPECT
            || zkl_claim_keep(claim, errand->grace) == NGX_OK))
    {
        return ZKL_REPLY_WAITS;
    }

    if (claim->state != ZKL_HELD || claim->ending) {
        return ZKL_REPLY_OVER;
    }

    switch (errand->type) {

    case ZKL_RENEW:
    case ZKL_HOLD:

        if (errand->type == ZKL_HOLD && zkl_serve_doubts(claim, served)) {
            return ZKL_REPLY_ABSENT;
        }

        if (zkl_claim_renew(claim, errand->ttl, errand->version,
                            errand->renewals)
            != NGX_OK)
        {
            return ZKL_REPLY_OVER;
        }

        if (zkl_serve_begin(served, errand->type == ZKL_HOLD
                                    ? ZKL_ERRAND_COUNTS : ZKL_ERRAND_KEPT)
            != NGX_OK)
        {
            return ZKL_REPLY_NONE;
        }

        if (errand->type == ZKL_HOLD) {
            served->done = ZKL_REPLY_COUNTED;

            return zkl_claim_hold(claim, 0, &served->listener) == NGX_OK
                   ? ZKL_REPLY_LATER : ZKL_REPLY_OVER;
        }

        /* a session that takes the claim over has to know the longer ttl */

        return zkl_claim_told(claim, &served->listener) == NGX_AGAIN
               ? ZKL_REPLY_LATER : ZKL_REPLY_OK;

    default: /* ZKL_DOWNGRADE, ZKL_INSPECT */

        if (zkl_claim_seen(claim) != NGX_OK) {
            return ZKL_REPLY_OVER;
        }

        if (errand->type == ZKL_DOWNGRADE) {
            zkl_claim_downgrade(claim);
        }

        return ZKL_REPLY_OK;
    }
}


/*
 * Once this worker's session may be over, another session may count the lease
 * of a durable claim, and further holds: then the call reads ZooKeeper.  So
 * does a sibling's, which does not wait for this worker's session for long.
 */

static ngx_uint_t
zkl_serve_doubts(zkl_claim_t *claim, zkl_served_t *served)
{
    return !zkl_session_alive(claim->lock->worker->session)
           && (claim->lasting == ZKL_DURABLE || served->call == NULL);
}


/* Ends the claim, or takes a hold away. */

static zkl_reply_e
zkl_serve_release(zkl_claim_t *claim, zkl_errand_t *errand,
    zkl_served_t *served)
{
    ngx_uint_t     several;
    zkl_worker_t  *worker;

    worker = claim->lock->worker;

    if (zkl_serve_doubts(claim, served)) {
        return ZKL_REPLY_ABSENT;
    }

    several = (errand->type == ZKL_RELEASE && zkl_claim_holds(claim) > 1);

    if ((claim->state == ZKL_EXPIRING && (several || served->call == NULL))
        || (several && claim->state == ZKL_TAKE)
        || (several && !zkl_session_ready(worker->session)))
    {
        /* the data may tell of a renewal, or cannot be written now */

        return ZKL_REPLY_ABSENT;
    }

    if (several && claim->state == ZKL_HELD) {

        if (zkl_serve_begin(served, ZKL_ERRAND_COUNTS) != NGX_OK) {
            return ZKL_REPLY_NONE;
        }

        /* a hold that was taken away is gone with the claim */

        served->done = ZKL_REPLY_COUNTED;
        served->gone = ZKL_REPLY_OK;

        (void) zkl_claim_hold(claim, 1, &served->listener);

        return ZKL_REPLY_LATER;
    }

    if (claim->state != ZKL_TAKE
        && zkl_serve_begin(served, claim->state == ZKL_WAIT
                                   || claim->state == ZKL_HELD
                                   ? ZKL_ERRAND_ENDS : ZKL_ERRAND_KEPT)
           != NGX_OK)
    {
        return ZKL_REPLY_NONE;
    }

    zkl_record_ending(claim->cell, errand->forced ? ZKL_ENDING_BROKEN
                                                  : ZKL_ENDING_RELEASED);

    if (claim->state == ZKL_TAKE) {

        /* the call deletes the claim, whichever session counts the lease */

        zkl_claim_release(claim, NULL);
        return ZKL_REPLY_ABSENT;
    }

    zkl_claim_release(claim, &served->listener);

    return ZKL_REPLY_LATER;
}


/*
 * A sibling that does not wait any longer has to know how far this worker is;
 * NGX_DECLINED: the sibling has called the errand back.
 */

static ngx_int_t
zkl_serve_begin(zkl_served_t *served, zkl_errand_e state)
{
    if (served->call != NULL) {
        return NGX_OK;
    }

    return zkl_errand_begin(served->worker->zone,
                            served - served->worker->served, &served->word,
                            state);
}


/* A call of this worker hears of the reply, or the sibling. */

static void
zkl_serve_handler(void *data, zkl_rc_e rc)
{
    zkl_served_t  *served = data;

    ngx_uint_t  reply;

    switch (rc) {

    case ZKL_OK:
        reply = served->done;
        break;

    case ZKL_NO_NODE:
        reply = served->gone;
        break;

    default:
        reply = ZKL_REPLY_ANSWER + zkl_call_answer(rc);
        break;
    }

    if (served->call != NULL) {
        zkl_call_replied(served->call, reply);
        return;
    }

    zkl_errand_reply(served->worker->zone, served - served->worker->served,
                     served->word, reply);
}


void
zkl_serve_errand(zkl_worker_t *worker, ngx_uint_t n)
{
    ngx_int_t           rc;
    zkl_claim_t        *claim;
    zkl_reply_e         reply;
    zkl_errand_t        errand;
    zkl_served_t       *served;
    ngx_atomic_uint_t   word;

    rc = zkl_errand_look(worker->zone, n, &errand, &word);

    if (rc == NGX_DECLINED) {
        return;
    }

    if (rc == NGX_DONE && worker->asked[n] != NULL) {
        zkl_call_rung(worker->asked[n]);
        return;
    }

    if (rc == NGX_DONE) {

        /* the call does not wait any more */

        (void) zkl_errand_free(worker->zone, n);
        return;
    }

    served = &worker->served[n];
    served->worker = worker;
    served->call = NULL;
    served->word = word;

    claim = zkl_claim_find(worker, &errand.id, NULL);
    reply = claim ? zkl_serve(claim, &errand, served) : ZKL_REPLY_ABSENT;

    if (reply != ZKL_REPLY_LATER && reply != ZKL_REPLY_NONE) {
        zkl_errand_reply(worker->zone, n, served->word, reply);
    }
}
