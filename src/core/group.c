
/*
 * Groups: bound claims that a client acquires together, all or none.
 *
 * The locks are acquired in turn, in the order of their paths.  Each claim has
 * what is left of the wait for its lock.  If the session of the granted claims
 * is over, the client was told of no grant: so the group acquires all locks
 * again, in the time that is left, with a new key, because the former claims
 * may exist for a while.
 *
 * When all claims are granted, the caller either calls zkl_claim_begin(), after
 * which the claims are ordinary leases and need no group, or keeps the claims
 * bound until zkl_group_leave().
 *
 * All of the code runs on the event loop.  A group is a part of the caller's
 * object and has nothing to be freed once no claim is left.  part->claim is
 * NULL unless the claim waits or is held.  The worker may tell that a claim is
 * lost while the worker walks the claims of a lock, and to abandon a claim may
 * take the claim out of that walk: so `turn`, a posted event, goes on later.
 */


#include "core/group.h"

#include <sys/random.h>


static ngx_int_t zkl_group_begin(zkl_group_t *group);
static ngx_int_t zkl_group_next(zkl_group_t *group);
static ngx_msec_t zkl_group_left(zkl_group_t *group, ngx_msec_t time);
static void zkl_group_claim_handler(void *data, zkl_claim_t *claim,
    zkl_outcome_e outcome);
static void zkl_group_event_handler(void *data, zkl_claim_t *claim,
    zkl_event_e event, const char *reason);
static void zkl_group_turn_handler(ngx_event_t *ev);
static void zkl_group_refuse(zkl_group_t *group);


ngx_int_t
zkl_group_acquire(zkl_group_t *group)
{
    group->started = ngx_current_msec;
    group->turn.handler = zkl_group_turn_handler;
    group->turn.data = group;
    group->turn.log = group->worker->log;

    if (zkl_group_begin(group) != NGX_OK) {
        (void) zkl_group_leave(group);
        return NGX_DECLINED;
    }

    return NGX_OK;
}


ngx_uint_t
zkl_group_leave(zkl_group_t *group)
{
    ngx_uint_t    i, n;
    zkl_claim_t  *claim;

    if (group->turn.posted) {
        ngx_delete_posted_event(&group->turn);
    }

    n = 0;

    for (i = 0; i < group->nparts; i++) {
        claim = group->parts[i].claim;

        if (claim != NULL) {
            group->parts[i].claim = NULL;
            zkl_claim_abandon(claim);
            n++;
        }
    }

    return n != 0;
}


/* Draws the key by which calls find the claims; acquires the first lock. */

static ngx_int_t
zkl_group_begin(zkl_group_t *group)
{
    group->at = 0;

    if (group->keyed && getrandom(group->key, ZKL_KEY, 0) != ZKL_KEY) {
        ngx_log_error(NGX_LOG_ALERT, group->worker->log, ngx_errno,
                      "getrandom() failed");

        group->part = 0;
        group->outcome = ZKL_FAILED;

        return NGX_ERROR;
    }

    return zkl_group_next(group);
}


/* Acquires the next lock, in what is left of the wait and the timeout. */

static ngx_int_t
zkl_group_next(zkl_group_t *group)
{
    ngx_msec_t         timeout;
    zkl_acquire_t      acquire;
    zkl_claim_data_t   cdata;
    zkl_group_part_t  *part;

    ngx_memzero(&acquire, sizeof(zkl_acquire_t));
    ngx_memzero(&cdata, sizeof(zkl_claim_data_t));

    part = &group->parts[group->at];
    timeout = zkl_group_left(group, group->timeout);

    acquire.path = part->path;
    acquire.mode = part->mode;
    acquire.wait = zkl_group_left(group, part->wait);
    acquire.timeout = ngx_max(timeout, ZKL_PATIENCE);
    acquire.ttl = group->ttl;
    acquire.terms = group->terms;
    acquire.terms.once = part->once;
    acquire.terms.bound = 1;
    acquire.terms.leased = 0;
    acquire.key = group->keyed ? group->key : NULL;
    acquire.handler = zkl_group_claim_handler;
    acquire.event = zkl_group_event_handler;
    acquire.data = group;
    acquire.request = group->request;
    acquire.cdata = group->cdata(group, group->at, &cdata);

    acquire.begun = (group->at != 0);

    part->claim = zkl_claim_acquire(group->worker, &acquire, &group->outcome);

    if (part->claim == NULL) {
        group->part = group->at;
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* What is left of a time that began with the group. */

static ngx_msec_t
zkl_group_left(zkl_group_t *group, ngx_msec_t time)
{
    ngx_msec_t  past;

    past = ngx_current_msec - group->started;

    return (past < time) ? time - past : 0;
}


static void
zkl_group_claim_handler(void *data, zkl_claim_t *claim, zkl_outcome_e outcome)
{
    zkl_group_t *group = data;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, group->worker->log, 0,
                   "zk lock group: part %ui outcome %d", group->at, outcome);

    if (outcome != ZKL_GRANTED) {
        group->parts[group->at].claim = NULL;
        group->part = group->at;
        group->outcome = outcome;

        zkl_group_refuse(group);
        return;
    }

    if (group->turn.posted) {

        /* too late: another claim is lost */

        return;
    }

    if (++group->at == group->nparts) {
        group->handler(group, ZKL_GRANTED);
        return;
    }

    if (zkl_group_next(group) != NGX_OK) {
        zkl_group_refuse(group);
    }
}


/* The event of a granted claim. */

static void
zkl_group_event_handler(void *data, zkl_claim_t *claim, zkl_event_e event,
    const char *reason)
{
    zkl_group_t *group = data;

    ngx_uint_t  i;

    if (event != ZKL_EVENT_LOST) {
        return;
    }

    for (i = 0; group->parts[i].claim != claim; i++) {
        /* void */
    }

    group->parts[i].claim = NULL;
    group->part = i;
    group->reason = reason;

    if (ngx_strcmp(reason, "session") == 0) {
        group->outcome = ZKL_UNREACHABLE;

    } else if (ngx_strcmp(reason, "shutdown") == 0) {
        group->outcome = ZKL_SHUTTING_DOWN;

    } else {
        group->outcome = ZKL_CANCELLED;
    }

    ngx_post_event(&group->turn, &ngx_posted_events);
}


static void
zkl_group_turn_handler(ngx_event_t *ev)
{
    ngx_uint_t    i;
    ngx_msec_t    wait, longest;
    zkl_group_t  *group;

    group = ev->data;

    if (group->at == group->nparts) {

        if (group->lost != NULL && !group->told) {
            group->told = 1;
            group->lost(group, group->reason);
        }

        return;
    }

    longest = 0;

    for (i = 0; i < group->nparts; i++) {
        wait = group->parts[i].once ? group->timeout
                                    : group->parts[i].wait;
        longest = ngx_max(longest, wait);
    }

    if (group->outcome != ZKL_UNREACHABLE
        || zkl_group_left(group, longest) == 0)
    {
        zkl_group_refuse(group);
        return;
    }

    (void) zkl_group_leave(group);

    if (zkl_group_begin(group) != NGX_OK) {
        zkl_group_refuse(group);
    }
}


static void
zkl_group_refuse(zkl_group_t *group)
{
    (void) zkl_group_leave(group);

    group->handler(group, group->outcome);
}
