
/*
 * Calls.
 *
 * A call reads or changes a claim or a lock, and waits for no grant.  This file
 * owns a worker's calls from zkl_call_start() until the client is told and the
 * call is freed.
 *
 * The token leads to the record of a claim of this worker or a sibling; for
 * another gateway's claim the call reads ZooKeeper.  Except by HOLDER, a claim
 * is told as held only after a read behind a write that was sent after the call
 * came, so that no other claim can have been granted before.
 *
 * A call waits for ZooKeeper until the call's timeout: while ZooKeeper does not
 * answer, the call does not begin, and a call whose operation had no answer
 * begins again.  At the timeout the client is told that ZooKeeper is out of
 * reach; sooner only if the answer to a write was lost that must not be
 * repeated.  A release begins at once, because the release is owed.
 *
 * While no operation is under way, call->step says what the call waits for:
 *
 *   step      waits for               which event                 then
 *   -------   ---------------------   -------------------------   -----------
 *   BEGIN     ZooKeeper's answers     zkl_call_connected()        begin
 *   LOOK      a look                  the look's end              tell, begin
 *   TURN      a turn to look          another look's end          list
 *   TELL      calls to be told        the timer                   tell the next
 *   DELETE    a delete, or a set of   zkl_call_connected()        delete
 *             the lock's znode, that
 *             is owed
 *   POLL      a moment                the timer                   inspect
 *   RECORD    how the claim ended     the timer                   missing
 *   SIBLING   the claim's worker      the subscription            ended
 *                                     the timer, or the timeout   delete
 *   CLAIM     this worker's claim     zkl_call_released()         tell
 *
 * zkl_call_connected() is called with each connection, and once a second while
 * ZooKeeper answers.  After the event the step is OP again, unless the call
 * ends.  The timeout tells the client in any step; CLAIM, DELETE and a count
 * that is not written go on without the client.
 *
 * The event loop of the worker that got the call runs all code here.  handler
 * is NULL once the client was told or has left.  infos is NULL until the call
 * reads a znode or has sorted a list.  A call is freed when handler is NULL and
 * no operation, completion listener, owed delete or unwritten count is left.
 */


#include "core/call.h"
#include "core/node.h"
#include "core/journal.h"


/* how soon, and how late at most, a claim is read again, milliseconds */
#define ZKL_CALL_AGAIN                15
#define ZKL_CALL_SELDOM               500

/*
 * How many looks of a worker are under way at a time: a look that describes a
 * long queue takes some 2 KB for each claim.
 */
#define ZKL_LOOKS_MAX                 32

/* claims in the answers that a turn of the event loop tells */
#define ZKL_TOLD_MAX                  256

/* how many releases a worker repeats when no client waits for the answers */
#define ZKL_UNAWAITED_MAX             4096

/* how often a set is tried while other writers change the znode's data */
#define ZKL_SET_TRIES                     5

/* how many claims a call reads at a time */
#define ZKL_READS_MAX                 64

/* how often a call lists the claims, if all are gone before the reads */
#define ZKL_LOOK_TRIES                10

/* how long a sibling may take to release, milliseconds */
#define ZKL_SIBLING_WAIT                  500

/* how soon a call reads the record of a missing claim again, milliseconds */
#define ZKL_MISSING_AGAIN                 15

/* what Curator's Revoker writes (Revoker.REVOKE_MESSAGE) */
#define ZKL_REVOKE_MARK               "__REVOKE__"


static ngx_msec_t zkl_call_time(zkl_question_t *question);
static void zkl_call_begin(zkl_call_t *call);
static void zkl_call_deaf(zkl_call_t *call);
static void zkl_call_over_handler(ngx_event_t *ev);
static void zkl_call_sub_handler(zkl_subscription_t *sub);
static void zkl_call_timer_handler(ngx_event_t *ev);
static void zkl_call_poll(zkl_call_t *call);
static zkl_call_t *zkl_call_new(zkl_worker_t *worker, zkl_call_e type,
    ngx_str_t *path, ngx_str_t *name);
static void zkl_call_share(zkl_call_t *call);
static zkl_call_t *zkl_call_look(zkl_call_t *call, uint32_t hash);
static void zkl_call_look_begin(zkl_call_t *look);
static void zkl_call_look_handler(zkl_call_t *look, zkl_answer_e answer);
static void zkl_call_look_tell(zkl_call_t *look);
static void zkl_call_look_end(zkl_call_t *look);
static void zkl_call_unshare(zkl_call_t *call);
static ngx_int_t zkl_call_turn(zkl_call_t *call);
static void zkl_call_turn_over(zkl_call_t *call);
static ngx_int_t zkl_call_rename(zkl_call_t *call);
static void zkl_call_name(zkl_call_t *call, ngx_str_t *name, u_char *buf);
static void zkl_call_send(zkl_call_t *call, zkl_op_t *op);
static void zkl_call_post(zkl_call_t *call, zkl_answer_e answer);
static void zkl_call_free(zkl_call_t *call);
static void zkl_call_find(zkl_call_t *call);
static void zkl_call_find_handler(zkl_op_t *op);
static void zkl_call_inspect(zkl_call_t *call);
static void zkl_call_inspect_handler(zkl_op_t *op);
static void zkl_call_other(zkl_call_t *call);
static void zkl_call_gone(zkl_call_t *call);
static void zkl_call_placed(zkl_call_t *call);
static ngx_uint_t zkl_call_early(zkl_call_t *call);
static void zkl_call_waits(zkl_call_t *call, zkl_claim_data_t *cdata);
static void zkl_call_set(zkl_call_t *call);
static void zkl_call_set_handler(zkl_op_t *op);
static void zkl_call_unset(zkl_call_t *call);
static ngx_int_t zkl_call_own(zkl_call_t *call, zkl_record_t *record);
static void zkl_call_renew(zkl_call_t *call);
static ngx_int_t zkl_call_prolong(zkl_call_t *call);
static void zkl_call_known(zkl_call_t *call, zkl_record_t *record);
static void zkl_call_known_held(zkl_call_t *call, zkl_record_t *record,
    zkl_claim_data_t *cdata);
static ngx_int_t zkl_call_keep(zkl_call_t *call, zkl_record_t *record);
static zkl_answer_e zkl_call_held(zkl_call_t *call, zkl_record_t *record);
static ngx_int_t zkl_call_extend(zkl_call_t *call, zkl_record_t *record);
static void zkl_call_more(zkl_call_t *call, zkl_record_t *record);
static uint32_t zkl_call_renewals(zkl_call_t *call);
static ngx_uint_t zkl_call_endless(zkl_record_t *record);
static void zkl_call_holder(zkl_call_t *call);
static void zkl_call_holder_handler(zkl_op_t *op);
static void zkl_call_list(zkl_call_t *call);
static void zkl_call_list_handler(zkl_op_t *op);
static ngx_int_t zkl_call_count(zkl_call_t *call, zkl_op_t *op);
static ngx_uint_t zkl_call_readers(zkl_op_t *op, int64_t writer);
static ngx_int_t zkl_call_sort(zkl_call_t *call, zkl_op_t *op);
static void zkl_call_state(zkl_call_t *call, zkl_info_t *infos, ngx_uint_t n);
static int ngx_libc_cdecl zkl_call_compare(const void *one, const void *two);
static void zkl_call_read(zkl_call_t *call);
static void zkl_call_read_handler(zkl_op_t *op);
static void zkl_call_found(zkl_call_t *call);
static ngx_int_t zkl_call_noted(zkl_call_t *call, zkl_op_t *op);
static void zkl_call_release(zkl_call_t *call);
static ngx_uint_t zkl_call_ours(zkl_claim_t *claim, zkl_record_t *record);
static ngx_uint_t zkl_call_current(zkl_record_t *record);
static ngx_int_t zkl_call_less(zkl_call_t *call);
static void zkl_call_delete(zkl_call_t *call);
static void zkl_call_cdata_handler(zkl_op_t *op);
static void zkl_call_parent_handler(zkl_op_t *op);
static void zkl_call_bumped_handler(zkl_op_t *op);
static void zkl_call_bump(zkl_call_t *call);
static void zkl_call_bump_read_handler(zkl_op_t *op);
static void zkl_call_bump_handler(zkl_op_t *op);
static zkl_op_t *zkl_call_bump_op(zkl_call_t *call, zkl_op_t *get,
    zkl_op_pt handler);
static void zkl_call_bump_end(zkl_call_t *call, zkl_rc_e rc);
static void zkl_call_delete_handler(zkl_op_t *op);
static void zkl_call_deleted(zkl_call_t *call);
static void zkl_call_missing(zkl_call_t *call);
static void zkl_call_ended(zkl_call_t *call);
static void zkl_call_released(void *data, zkl_rc_e rc);
static void zkl_call_rung(zkl_call_t *call);
static void zkl_call_forsaken(zkl_call_t *call);
static void zkl_call_remote(zkl_call_t *call, const char *want);
static void zkl_call_remote_handler(zkl_op_t *op);
static ngx_int_t zkl_call_remote_done(zkl_call_t *call);
static void zkl_call_downgrade(zkl_call_t *call);
static void zkl_call_revoke(zkl_call_t *call);
static void zkl_call_revoke_handler(zkl_op_t *op);
static void zkl_call_revoked_handler(zkl_op_t *op);
static void zkl_call_write(zkl_call_t *call, ngx_str_t *value, int32_t version,
    zkl_op_pt handler);


zkl_call_t *
zkl_call_start(zkl_worker_t *worker, zkl_question_t *question)
{
    zkl_call_t  *call;

    call = zkl_call_new(worker, question->type, question->path, question->name);
    if (call == NULL) {
        return NULL;
    }

    call->ttl = question->ttl;
    call->grace = question->grace;
    call->forced = (question->forced != 0);
    call->handler = question->handler;
    call->data = question->data;

    if (question->token != NULL) {
        call->token = *question->token;
        call->mode = call->token.mode;
        call->node = (call->mode == ZKL_NODE);

    } else {
        call->node = (question->node != 0);
    }

    /* not cancelable: a worker that leaves tells the client first */

    ngx_add_timer(&call->over, zkl_call_time(question));

    zkl_call_begin(call);

    return call;
}


/* A call that is awaited: the caller sets the handler. */

static zkl_call_t *
zkl_call_new(zkl_worker_t *worker, zkl_call_e type, ngx_str_t *path,
    ngx_str_t *name)
{
    size_t       len;
    u_char      *p;
    zkl_call_t  *call;

    len = name ? name->len : 0;

    call = ngx_calloc(sizeof(zkl_call_t) + path->len + len, worker->log);
    if (call == NULL) {
        return NULL;
    }

    call->worker = worker;
    call->type = type;
    call->recent = (type >= ZKL_COUNT);
    call->asked = ngx_current_msec;
    call->sub.handler = zkl_call_sub_handler;

    ngx_queue_init(&call->sharers);

    p = (u_char *) call + sizeof(zkl_call_t);

    call->path.len = path->len;
    call->path.data = p;
    p = ngx_cpymem(p, path->data, path->len);

    if (len != 0) {
        call->name.len = len;
        call->name.data = p;
        ngx_memcpy(p, name->data, len);
    }

    zkl_worker_timer(worker, &call->timer, zkl_call_timer_handler);
    zkl_worker_timer(worker, &call->over, zkl_call_over_handler);

    ngx_queue_insert_tail(&worker->calls, &call->queue);
    worker->ncalls++;
    worker->nawaited++;
    zkl_worker_busy(worker);

    return call;
}


/* HOLDER only completes another answer, which must not wait long. */

static ngx_msec_t
zkl_call_time(zkl_question_t *question)
{
    if (question->type == ZKL_HOLDER) {
        return ngx_min(question->timeout, ZKL_PATIENCE);
    }

    return question->timeout;
}


/*
 * While ZooKeeper does not answer, all calls but releases wait.  A release is
 * owed from the moment when the call came, but a worker keeps at most
 * ZKL_UNAWAITED_MAX releases whose clients have left.
 */

static void
zkl_call_begin(zkl_call_t *call)
{
    ngx_uint_t     find;
    zkl_worker_t  *worker;

    worker = call->worker;
    find = (call->token.seq == -1);

    if ((call->type != ZKL_RELEASE || find || call->counted
         || worker->ncalls - worker->nawaited >= ZKL_UNAWAITED_MAX)
        && !zkl_session_ready(worker->session))
    {
        if (call->type == ZKL_RENEW && !find) {

            /* the lease must not end while the call waits */

            (void) zkl_call_prolong(call);
        }

        call->step = ZKL_STEP_BEGIN;
        return;
    }

    if (find) {
        zkl_call_find(call);
        return;
    }

    switch (call->type) {

    case ZKL_RELEASE:

        if (!call->counted && !call->remote) {
            zkl_call_release(call);
            break;
        }

        /* the record has a hold less already, or a remote request is written */

        zkl_call_inspect(call);
        break;

    case ZKL_BREAK:
        zkl_call_release(call);
        break;

    case ZKL_RENEW:
        zkl_call_renew(call);
        break;

    case ZKL_HOLD:
    case ZKL_DOWNGRADE:
    case ZKL_INSPECT:
        zkl_call_inspect(call);
        break;

    case ZKL_REVOKE:
        zkl_call_revoke(call);
        break;

    case ZKL_LIST:
    case ZKL_FIRST:
    case ZKL_COUNT:
    case ZKL_HOLDERS:
        zkl_call_list(call);
        break;

    case ZKL_HOLDER:

        if (call->shared) {
            zkl_call_holder(call);

        } else {
            zkl_call_share(call);
        }

        break;
    }
}


void
zkl_call_leave(zkl_call_t *call)
{
    zkl_call_deaf(call);

    zkl_call_free(call);
}


/* No client waits for the answer any more. */

static void
zkl_call_deaf(zkl_call_t *call)
{
    if (call->handler != NULL) {
        call->handler = NULL;
        call->worker->nawaited--;
    }

    if (call->over.timer_set) {
        ngx_del_timer(&call->over);
    }
}


void
zkl_call_connected(zkl_call_t *call)
{
    if (call->step == ZKL_STEP_TURN) {
        zkl_call_list(call);
        return;
    }

    if (call->nops != 0) {
        return;
    }

    if (call->step == ZKL_STEP_DELETE && call->tries == 0) {

        /* no delete was sent: the claim's worker can end the claim again */

        call->step = ZKL_STEP_OP;
        zkl_call_release(call);
        zkl_call_free(call);

    } else if (call->step == ZKL_STEP_DELETE) {
        zkl_call_delete(call);

    } else if (call->step == ZKL_STEP_BEGIN
               || (call->step == ZKL_STEP_OP && call->unwritten))
    {
        call->step = ZKL_STEP_OP;
        call->asked = ngx_current_msec;
        zkl_call_begin(call);
    }
}


void
zkl_call_unreachable(zkl_call_t *call)
{
    if (call->deleted) {

        /* only the lock's znode is not set so far */

        zkl_call_tell(call, ZKL_CALL_OK);

    } else if (call->look != NULL && call->look->step == ZKL_STEP_TURN
               && zkl_session_ready(call->worker->session))
    {
        zkl_call_tell(call, ZKL_CALL_BUSY);

    } else {
        zkl_call_tell(call, ZKL_CALL_UNREACHABLE);
    }

    if (call->step == ZKL_STEP_SIBLING) {

        /* the release is owed, though the claim's worker stands still */

        ngx_del_timer(&call->timer);
        zkl_call_forsaken(call);
    }

    zkl_call_free(call);
}


static void
zkl_call_over_handler(ngx_event_t *ev)
{
    zkl_call_unreachable(ngx_queue_data(ev, zkl_call_t, over));
}


void
zkl_call_discard(zkl_call_t *call)
{
    ngx_queue_t  *q;
    zkl_call_t   *sharer;

    zkl_call_deaf(call);

    zkl_call_turn_over(call);

    while (!ngx_queue_empty(&call->sharers)) {
        q = ngx_queue_head(&call->sharers);
        ngx_queue_remove(q);

        sharer = ngx_queue_data(q, zkl_call_t, turn);
        sharer->look = NULL;
    }

    call->later = NULL;
    call->nops = 0;
    call->step = ZKL_STEP_OP;
    call->unwritten = 0;

    zkl_call_free(call);
}


static void
zkl_call_sub_handler(zkl_subscription_t *sub)
{
    zkl_call_rung(ngx_queue_data(sub, zkl_call_t, sub));
}


static void
zkl_call_timer_handler(ngx_event_t *ev)
{
    zkl_call_t  *call;

    call = ngx_queue_data(ev, zkl_call_t, timer);

    switch (call->step) {

    case ZKL_STEP_SIBLING:
        zkl_call_forsaken(call);
        break;

    case ZKL_STEP_RECORD:
        zkl_call_missing(call);
        zkl_call_free(call);
        break;

    case ZKL_STEP_POLL:
        call->step = ZKL_STEP_OP;
        zkl_call_inspect(call);
        break;

    case ZKL_STEP_LOOK:
        call->step = ZKL_STEP_OP;
        zkl_call_begin(call);
        break;

    case ZKL_STEP_TELL:
        zkl_call_look_tell(call);
        break;

    default: /* zkl_call_post() */
        zkl_call_tell(call, call->answer);
        zkl_call_free(call);
    }
}


/*
 * Reads the claim again in a moment, until the call's timeout: later and later,
 * so that some seconds are not many reads.
 */

static void
zkl_call_poll(zkl_call_t *call)
{
    ngx_msec_t  elapsed;

    if (call->handler == NULL) {
        return;
    }

    elapsed = ngx_current_msec - call->asked;

    call->step = ZKL_STEP_POLL;

    if (!call->timer.timer_set) {
        ngx_add_timer(&call->timer, ngx_min(ZKL_CALL_AGAIN + elapsed / 4,
                              ZKL_CALL_SELDOM));
    }
}


/*
 * Looks.  Calls about a lock that ask for the same share a look: a call of no
 * client, which reads ZooKeeper and then lends each of these calls the result.
 * A lock has one look of a type under way.  A call that comes after the look
 * was sent waits for the next look, because the answer is not to be older than
 * the call.
 */


/* The call waits for a look, which begins now if the lock has none. */

static void
zkl_call_share(zkl_call_t *call)
{
    uint32_t         hash;
    zkl_call_t      *look, *ahead;
    zkl_worker_t    *worker;
    ngx_str_node_t  *sn;

    worker = call->worker;
    ahead = NULL;
    look = NULL;

    hash = ngx_crc32_long(call->path.data, call->path.len)
           + 2 * call->type + call->node;

    sn = ngx_str_rbtree_lookup(&worker->looking, &call->path, hash);

    if (sn != NULL) {
        look = ngx_queue_data(sn, zkl_call_t, sn);

        if (look->begun || look->handler == NULL) {
            ahead = look;
            look = ahead->later;
        }
    }

    if (look == NULL) {

        /* HTTP/2 and HTTP/3 have many requests on a connection */

        if (worker->nlooking >= ngx_cycle->connection_n && !call->recent) {
            zkl_call_post(call, ZKL_CALL_BUSY);
            return;
        }

        look = zkl_call_look(call, hash);
        if (look == NULL) {
            zkl_call_post(call, ZKL_CALL_FAILED);
            return;
        }

        if (ahead != NULL) {
            ahead->later = look;
        }
    }

    call->step = ZKL_STEP_LOOK;
    call->look = look;
    ngx_queue_insert_tail(&look->sharers, &call->turn);

    if (ahead == NULL && !look->current) {
        zkl_call_look_begin(look);
    }
}


static zkl_call_t *
zkl_call_look(zkl_call_t *call, uint32_t hash)
{
    zkl_call_t  *look;

    look = zkl_call_new(call->worker, call->type, &call->path, NULL);
    if (look == NULL) {
        return NULL;
    }

    look->shared = 1;
    look->node = call->node;
    look->step = ZKL_STEP_LOOK;
    look->handler = zkl_call_look_handler;
    look->sn.str = look->path;
    look->sn.node.key = hash;

    call->worker->nlooking++;

    return look;
}


/* Begins the look behind the other events of this turn, which may share it. */

static void
zkl_call_look_begin(zkl_call_t *look)
{
    look->current = 1;
    ngx_rbtree_insert(&look->worker->looking, &look->sn.node);

    ngx_post_event(&look->timer, &ngx_posted_events);
}


static void
zkl_call_look_handler(zkl_call_t *look, zkl_answer_e answer)
{
    look->answer = answer;
    look->step = ZKL_STEP_TELL;

    if (look->timer.timer_set) {
        ngx_del_timer(&look->timer);
    }

    ngx_post_event(&look->timer, &ngx_posted_events);
}


/*
 * Lends the result to the calls that share the look.  A client's answer may
 * describe many claims, so a turn of the event loop tells a few calls only.
 */

static void
zkl_call_look_tell(zkl_call_t *look)
{
    ngx_uint_t    n;
    ngx_queue_t  *q;
    zkl_call_t   *call;

    for (n = 0; !ngx_queue_empty(&look->sharers); n += 1 + look->nknown) {

        if (n >= ZKL_TOLD_MAX) {
            ngx_post_event(&look->timer, &ngx_posted_next_events);
            return;
        }

        q = ngx_queue_head(&look->sharers);
        ngx_queue_remove(q);

        call = ngx_queue_data(q, zkl_call_t, turn);

        call->look = NULL;
        call->step = ZKL_STEP_OP;
        call->infos = look->infos;
        call->ninfos = look->ninfos;
        call->nknown = look->nknown;
        call->total = look->total;
        call->holders = look->holders;
        call->last = look->last;
        call->etag = look->etag;

        call->nops++;

        zkl_call_tell(call, look->answer);

        call->infos = NULL;
        call->ninfos = 0;

        zkl_call_op_end(call);
    }

    look->step = ZKL_STEP_OP;
    zkl_call_free(look);
}


/* The look is about to be freed: the next look at the lock begins. */

static void
zkl_call_look_end(zkl_call_t *look)
{
    zkl_call_t      *ahead;
    zkl_worker_t    *worker;
    ngx_str_node_t  *sn;

    worker = look->worker;
    worker->nlooking--;

    if (!look->current) {

        /* no call needs the look any more, which is another's next look */

        sn = ngx_str_rbtree_lookup(&worker->looking, &look->path,
                                   (uint32_t) look->sn.node.key);
        if (sn != NULL) {
            ahead = ngx_queue_data(sn, zkl_call_t, sn);
            ahead->later = NULL;
        }

        return;
    }

    ngx_rbtree_delete(&worker->looking, &look->sn.node);

    if (look->later != NULL) {
        zkl_call_look_begin(look->later);
    }
}


/* The call is told, or its client has left, before the look's end. */

static void
zkl_call_unshare(zkl_call_t *call)
{
    zkl_call_t  *look;

    look = call->look;

    call->look = NULL;
    call->step = ZKL_STEP_OP;
    ngx_queue_remove(&call->turn);

    /* a look that was sent goes on, so that no second look begins beside */

    if (ngx_queue_empty(&look->sharers) && !look->begun) {
        zkl_call_leave(look);
    }
}


/*
 * At most ZKL_LOOKS_MAX looks are under way.  NGX_OK: the look has a turn, and
 * has to end the turn; NGX_AGAIN: zkl_call_list() runs at the look's turn.
 */

static ngx_int_t
zkl_call_turn(zkl_call_t *look)
{
    zkl_worker_t  *worker;

    worker = look->worker;

    if (look->looks) {
        return NGX_OK;
    }

    if (worker->nlooks >= ZKL_LOOKS_MAX) {

        if (look->step != ZKL_STEP_TURN) {
            look->step = ZKL_STEP_TURN;
            ngx_queue_insert_tail(&worker->looks, &look->turn);
        }

        return NGX_AGAIN;
    }

    if (look->step == ZKL_STEP_TURN) {
        ngx_queue_remove(&look->turn);
    }

    look->step = ZKL_STEP_OP;
    look->looks = 1;
    worker->nlooks++;

    return NGX_OK;
}


/* Without a connection the next look waits for zkl_call_connected(). */

static void
zkl_call_turn_over(zkl_call_t *look)
{
    ngx_queue_t   *q;
    zkl_worker_t  *worker;

    worker = look->worker;

    if (look->step == ZKL_STEP_TURN) {
        look->step = ZKL_STEP_OP;
        ngx_queue_remove(&look->turn);
    }

    if (!look->looks) {
        return;
    }

    look->looks = 0;
    worker->nlooks--;

    if (!ngx_queue_empty(&worker->looks)
        && worker->session != NULL
        && zkl_session_connected(worker->session))
    {
        q = ngx_queue_head(&worker->looks);

        zkl_call_list(ngx_queue_data(q, zkl_call_t, turn));
    }
}


/*
 * A claim that held the lock alone may share the lock by now, under another
 * name.  NGX_OK: the call has to try the other name; else NGX_DECLINED.
 */

static ngx_int_t
zkl_call_rename(zkl_call_t *call)
{
    if (call->name.len != 0 || call->other
        || (call->mode != ZKL_MUTEX && call->mode != ZKL_WRITE))
    {
        call->other = 0;
        return NGX_DECLINED;
    }

    call->other = 1;
    call->token.mode = (call->token.mode == ZKL_READ) ? call->mode : ZKL_READ;
    return NGX_OK;
}


/* The name of the claim's znode; buf has room for ZKL_CLAIM_MAX. */

static void
zkl_call_name(zkl_call_t *call, ngx_str_t *name, u_char *buf)
{
    if (call->name.len != 0) {
        *name = call->name;

        if (call->node) {
            name->len = 0;
        }

        return;
    }

    name->data = buf;
    name->len = zkl_name_claim_write((char *) buf, &call->token.id,
                                     call->token.mode, call->token.seq);
}


zkl_op_t *
zkl_call_op(zkl_call_t *call, zkl_op_e type, ngx_str_t *name,
    zkl_op_pt handler, void *data)
{
    zkl_op_t  *op;

    op = zkl_op_new(call->worker->session, type, &call->path, name, NULL);
    if (op == NULL) {
        return NULL;
    }

    op->handler = handler;
    op->data = data;

    return op;
}


/* Sends op, which keeps the call; op may be NULL for want of memory. */

static void
zkl_call_send(zkl_call_t *call, zkl_op_t *op)
{
    if (op == NULL) {
        zkl_call_post(call, ZKL_CALL_FAILED);
        return;
    }

    call->nops++;

    zkl_session_send(op);
}


void
zkl_call_send_fresh(zkl_call_t *call, zkl_op_t *op)
{
    if (op != NULL) {
        op->fresh = 1;
    }

    zkl_call_send(call, op);
}


void
zkl_call_failed(zkl_call_t *call, zkl_rc_e rc)
{
    if (rc == ZKL_UNSENT || rc == ZKL_UNKNOWN) {

        /* a counted hold is written even if the client has left */

        call->unwritten = call->counted;
        call->recent = 0;

        if (call->handler != NULL) {
            call->step = ZKL_STEP_BEGIN;
        }

        if (call->shared) {
            call->begun = 0;

            if (ngx_queue_empty(&call->sharers)) {
                zkl_call_deaf(call);
            }
        }

        return;
    }

    call->unwritten = 0;

    switch (rc) {

    case ZKL_NO_AUTH:
        zkl_call_tell(call, ZKL_CALL_DENIED);
        break;

    case ZKL_OVER_QUOTA:
        zkl_call_tell(call, ZKL_CALL_NO_ROOM);
        break;

    default:
        zkl_call_tell(call, ZKL_CALL_FAILED);
        break;
    }
}


/* Tells the client in the next turn of the event loop. */

static void
zkl_call_post(zkl_call_t *call, zkl_answer_e answer)
{
    call->answer = answer;

    if (!call->timer.timer_set) {
        ngx_post_event(&call->timer, &ngx_posted_events);
    }
}


void
zkl_call_tell(zkl_call_t *call, zkl_answer_e answer)
{
    zkl_call_pt  handler;

    handler = call->handler;

    if (handler == NULL) {
        return;
    }

    call->nops++;
    zkl_call_deaf(call);

    handler(call, answer);

    call->nops--;
}


void
zkl_call_op_end(zkl_call_t *call)
{
    call->nops--;

    zkl_call_free(call);
}


/* Frees the call if the client was told or has left, and no work is left. */

static void
zkl_call_free(zkl_call_t *call)
{
    if (call->handler != NULL || call->nops != 0 || call->unwritten
        || call->step == ZKL_STEP_CLAIM
        || call->step == ZKL_STEP_DELETE
        || call->step == ZKL_STEP_TELL)
    {
        return;
    }

    if (call->look != NULL) {
        zkl_call_unshare(call);
    }

    if (call->sub.set) {
        zkl_worker_unsubscribe(call->worker, &call->sub);
    }

    if (call->timer.timer_set) {
        ngx_del_timer(&call->timer);
    }

    if (call->timer.posted) {
        ngx_delete_posted_event(&call->timer);
    }

    (void) zkl_call_infos(call, 0);

    if (call->owner.data != NULL) {
        ngx_free(call->owner.data);
    }

    zkl_call_turn_over(call);

    ngx_queue_remove(&call->queue);
    call->worker->ncalls--;

    if (call->shared) {
        zkl_call_look_end(call);
    }

    zkl_worker_busy(call->worker);

    ngx_free(call);
}


/*
 * Reads and writes of a single claim: a read of the znode (inspect); then the
 * record of a claim of this gateway (known), or the claim data of another
 * gateway's claim (other), and a list if the claim waits; then a set of the
 * claim data, by the version that was read (set).
 */


/* Only the key is known: finds the oldest claim whose id has that key. */

static void
zkl_call_find(zkl_call_t *call)
{
    zkl_op_t  *op;

    op = zkl_call_op(call, ZKL_OP_LIST, NULL, zkl_call_find_handler, call);
    if (op != NULL) {
        op->turn = ZKL_TURN_CLAIM;
    }

    zkl_call_send_fresh(call, op);
}


static void
zkl_call_find_handler(zkl_op_t *op)
{
    ngx_uint_t   i;
    zkl_child_t  child;
    zkl_call_t  *call;
    u_char       key[ZKL_PREFIX_MAX];

    call = op->data;

    /* op->rc stays, because others may share the list */

    if (op->rc != ZKL_OK && op->rc != ZKL_NO_NODE) {
        zkl_call_failed(call, op->rc);
        goto done;
    }

    (void) zkl_name_prefix_write((char *) key, &call->token.id, ZKL_MUTEX);

    for (i = 0; i < op->nchildren; i++) {

        if (op->children[i].len <= ZKL_PREFIX_KEY
            || !zkl_name_secret_equal(op->children[i].data, key,
                                      ZKL_PREFIX_KEY)
            || zkl_name_child_read(&child, (char *) op->children[i].data,
                                   op->children[i].len)
               != 0
            || !child.has_id
            || !zkl_name_secret_equal(child.id.random, call->token.id.random,
                                      ZKL_KEY)
            || (call->token.seq != -1 && child.seq >= call->token.seq))
        {
            continue;
        }

        call->token.id = child.id;
        call->token.seq = child.seq;
        call->token.mode = child.mode;
        call->mode = child.mode;
    }

    if (call->token.seq == -1) {
        zkl_call_tell(call, ZKL_CALL_GONE);

    } else {
        zkl_call_begin(call);
    }

done:

    zkl_call_op_end(call);
}


static void
zkl_call_inspect(zkl_call_t *call)
{
    u_char     buf[ZKL_CLAIM_MAX];
    ngx_str_t  name;
    zkl_op_t  *op;

    if (zkl_call_infos(call, 1) != NGX_OK) {
        zkl_call_post(call, ZKL_CALL_FAILED);
        return;
    }

    zkl_call_name(call, &name, buf);

    op = zkl_call_op(call, ZKL_OP_GET, &name, zkl_call_inspect_handler, call);

    zkl_call_send_fresh(call, op);
}


static void
zkl_call_inspect_handler(zkl_op_t *op)
{
    ngx_uint_t    own;
    zkl_call_t   *call;
    zkl_lock_t   *lock;
    zkl_record_t  record;

    call = op->data;

    if (call->handler == NULL && !call->counted) {
        goto done;
    }

    if (op->rc == ZKL_OK && call->node && !zkl_node_is(&call->token.id, op)) {
        op->rc = ZKL_NO_NODE;
    }

    if (op->rc == ZKL_NO_NODE) {

        if (zkl_call_rename(call) == NGX_OK) {
            zkl_call_inspect(call);
            goto done;
        }

        /* another client may have deleted a claim of this worker */

        lock = zkl_lock_find(call->worker, &call->path);

        if (lock != NULL && lock->nclaims != 0) {
            zkl_lock_list(lock);
        }

        zkl_call_gone(call);
        goto done;
    }

    if (zkl_call_noted(call, op) != NGX_OK) {
        goto done;
    }

    call->other = 0;
    call->version = op->version;
    call->nknown = 1;
    call->infos[0].child.mode = call->token.mode;
    call->infos[0].child.seq = call->token.seq;

    own = (zkl_call_own(call, &record) == NGX_OK);

    if (own && call->counted
        && (record.gen != call->gen || record.since != call->since))
    {
        /*
         * The session was over, and the claim is in another record, or was
         * taken over, with the holds in the claim data: perhaps without this.
         */

        call->unwritten = 0;
        zkl_call_tell(call, ZKL_CALL_UNREACHABLE);

    } else if (own && (op->owner != 0 || zkl_ahead(record.alive)))
    {
        zkl_call_known(call, &record);

    } else if (call->counted) {

        /*
         * Another gateway may have taken the claim over, with that hold or
         * without: the call is answered when the session is known to live, or
         * the claim is gone.  A worker that leaves does not wait for either.
         */

        call->unwritten = own && !call->worker->leaving;
        zkl_call_poll(call);

    } else {

        /* the claim is another gateway's, or another session's by now */

        zkl_call_other(call);
    }

done:

    zkl_call_op_end(call);
}


/*
 * Only the claim's worker grants, so the claim data tell whether the claim is
 * held; if they do not, a list tells how many claims are ahead.
 */

static void
zkl_call_other(zkl_call_t *call)
{
    zkl_claim_data_t  cdata;
    zkl_info_t       *info;

    info = &call->infos[0];

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    if (cdata.index < 0 || !zkl_call_granted(&cdata)) {

        if (call->due && zkl_call_early(call)) {
            zkl_call_poll(call);

        } else {
            zkl_call_list(call);
        }

        return;
    }

    call->position = 0;
    call->place = 0;
    info->held = 1;

    zkl_call_placed(call);
}


/* A call that dropped a hold is told OK, though the last hold is gone, too. */

static void
zkl_call_gone(zkl_call_t *call)
{
    call->nknown = 0;
    call->unwritten = 0;

    if (call->type == ZKL_RELEASE && (call->counted || call->remote)) {
        zkl_call_tell(call, ZKL_CALL_OK);
        return;
    }

    call->tries = 0;

    zkl_call_missing(call);
}


/* The claim was read, and the claim is held or its place is known. */

static void
zkl_call_placed(zkl_call_t *call)
{
    ngx_int_t         rc;
    zkl_claim_data_t  cdata;
    zkl_info_t       *info;

    info = &call->infos[0];

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    if (info->held
        && (call->pending
            || (cdata.async && !zkl_call_granted(&cdata))))
    {
        /* no claim is ahead, but only the claim's worker grants */

        info->held = 0;
        info->pending = 1;
    }

    if (!info->held) {
        zkl_call_waits(call, &cdata);
        return;
    }

    zkl_call_note_ttl(info);

    switch (call->type) {

    case ZKL_RENEW:
        zkl_call_set(call);
        return;

    case ZKL_DOWNGRADE:
        zkl_call_downgrade(call);
        return;

    case ZKL_HOLD:
    case ZKL_RELEASE:

        rc = call->remote ? zkl_call_remote_done(call) : NGX_AGAIN;

        if (rc == NGX_OK) {
            break;
        }

        if (rc == NGX_DECLINED) {
            zkl_call_tell(call, ZKL_CALL_UNREACHABLE);
            return;
        }

        zkl_call_remote(call, call->type == ZKL_HOLD ? "hold" : "drop");
        return;

    default: /* ZKL_INSPECT */

        if (cdata.async) {

            /* no client was told so far; the write tells the claim's gateway */

            zkl_call_set(call);
            return;
        }

        break;
    }

    zkl_call_tell(call, ZKL_CALL_OK);
}


/* Whether the call has more time left than it has taken so far. */

static ngx_uint_t
zkl_call_early(zkl_call_t *call)
{
    ngx_msec_t  past;

    past = ngx_current_msec - call->asked;

    return past <= ZKL_PATIENCE
           && (ngx_msec_int_t) (call->over.timer.key - ngx_current_msec)
              > (ngx_msec_int_t) past;
}


/*
 * The claim is not known to be held.  The call waits a while for an async claim
 * that is first, or that the client takes for held, because the claim's worker
 * may be about to write that it has granted the claim; and until a mark that
 * hides the claim data is mended.
 */

static void
zkl_call_waits(zkl_call_t *call, zkl_claim_data_t *cdata)
{
    ngx_uint_t  looks;

    looks = (call->type == ZKL_INSPECT);

    if (!call->pending
        && (zkl_call_granted(cdata)
            || (call->infos[0].pending
                && zkl_call_early(call))))
    {
        call->due = call->infos[0].pending;
        zkl_call_poll(call);
        return;
    }

    if (cdata->async && !call->pending) {

        if (looks && call->grace != 0
            && (call->tries == 0 || cdata->renewals == call->renewals))
        {
            zkl_call_set(call);
            return;
        }

        /*
         * else another call has inspected the claim since, and extended the
         * grace
         */

        if (!looks && zkl_call_early(call)) {
            zkl_call_poll(call);
            return;
        }
    }

    zkl_call_tell(call, looks
                        || call->type == ZKL_RENEW
                        ? ZKL_CALL_OK
                        : ZKL_CALL_WAITS);
}


/*
 * A claim of another gateway is held if the claim is not async, since the token
 * was told with the grant, if the claim's worker has written so, if it has
 * several holds, and if it is durable: a claim has a gate only while the claim
 * is held.  Curator's mark hides the claim data until the mark is mended.
 */

ngx_uint_t
zkl_call_granted(zkl_claim_data_t *cdata)
{
    return (cdata->index >= 0) ? !cdata->async || cdata->held
                                 || cdata->holds > 1 || cdata->gate_len != 0
                               : cdata->revoke;
}


/*
 * Writes the claim data of infos[0] with what the call changes.  The claim's
 * gateway watches a claim that is held for some time; of any other claim that
 * gateway sees the new count of renewals when the known lease is over.
 */

static void
zkl_call_set(zkl_call_t *call)
{
    char              text[ZKL_CLAIM_DATA_MAX];
    u_char            buf[ZKL_CLAIM_MAX];
    size_t            index_at;
    ngx_str_t         name, value;
    ngx_uint_t        own;
    zkl_claim_data_t  cdata;
    zkl_op_t         *op;
    zkl_info_t       *info;
    zkl_record_t      record;

    info = &call->infos[0];

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    if (cdata.index < 0) {

        /*
         * The claim is no gateway's, and must not be written to; or the claim
         * data are a Curator client's mark, which the claim's gateway mends.
         */

        zkl_call_tell(call, cdata.revoke
                            ? ZKL_CALL_UNREACHABLE
                            : ZKL_CALL_FOREIGN);
        return;
    }

    own = (zkl_call_own(call, &record) == NGX_OK);

    if (info->held && (cdata.gate_len != 0 || (own && record.durable))) {

        /* the longest ttl told: a gateway that takes over knows no other ttl */

        cdata.ttl = ngx_max(cdata.ttl, (int64_t) info->ttl);
    }

    if (call->counted || call->recounts) {

        /* other workers may have counted meanwhile */

        if (own) {
            zkl_record_counted(call->worker->zone, record.id.record, &cdata);

        } else if (call->counted) {
            cdata.holds = (uint32_t) call->holds;
        }

    } else {
        /*
         * A grant that was seen counts as a renewal: this client is told the
         * whole ttl, and the claim's worker may have told an earlier client.
         */

        if (call->tries == 0) {
            call->renewals = cdata.renewals;
        }

        cdata.renewals++;
        cdata.async = cdata.async && !info->held;

        if (call->ttl != 0) {
            cdata.ttl = (int64_t) call->ttl;
        }

        if (info->held) {
            info->ttl = (ngx_msec_t) cdata.ttl;
        }
    }

    value.len = zkl_claim_data_write(text, &cdata, &index_at);
    value.data = (u_char *) text;

    zkl_call_name(call, &name, buf);

    op = zkl_op_new(call->worker->session, ZKL_OP_SET, &call->path, &name,
                    &value);
    if (op != NULL) {
        op->version = call->version;
        op->handler = zkl_call_set_handler;
        op->data = call;
    }

    zkl_call_send(call, op);
}


static void
zkl_call_set_handler(zkl_op_t *op)
{
    ngx_uint_t   recounted;
    zkl_call_t  *call;
    zkl_info_t  *info;

    call = op->data;
    info = &call->infos[0];

    recounted = call->recounts;
    call->recounts = 0;

    switch (op->rc) {

    case ZKL_OK:

        if (recounted) {

            /* the recount is written: now the call itself */

            zkl_call_inspect(call);
            break;
        }

        call->unwritten = 0;

        if (call->counted) {
            info->holds = call->holds;
            info->held = 1;

        } else if (info->held) {
            info->expires = info->ttl;
            info->timed = 1;
        }

        zkl_call_tell(call, ZKL_CALL_OK);
        break;

    case ZKL_NO_NODE:

        if (zkl_call_rename(call) == NGX_OK) {
            zkl_call_inspect(call);
            break;
        }

        zkl_call_gone(call);
        break;

    case ZKL_CHANGED:

        /* a count has to be written, and another writer was faster */

        if (call->counted || recounted
            || (call->handler != NULL
                && ++call->tries < ZKL_SET_TRIES))
        {
            zkl_call_inspect(call);
            break;
        }

        /* many calls write at once: only the first write succeeds each time */

        zkl_call_poll(call);
        break;

    default:

        if (op->rc != ZKL_UNSENT && op->rc != ZKL_UNKNOWN) {
            zkl_call_unset(call);
        }

        zkl_call_failed(call, op->rc);
        break;
    }

    zkl_call_op_end(call);
}


/*
 * ZooKeeper refuses to write what the record has already.  The record gets the
 * ttl and the number of holds of before, because the client is told that the
 * call changed nothing.
 */

static void
zkl_call_unset(zkl_call_t *call)
{
    zkl_zone_t       *zone;
    zkl_record_t      record;
    zkl_claim_data_t  cdata;

    zone = call->worker->zone;

    if (call->counted) {
        call->counted = 0;

        (void) zkl_record_hold(zone, &call->token.id, &call->path,
                               call->type == ZKL_HOLD, &call->holds);
        return;
    }

    zkl_claim_data_read(&cdata, (char *) call->infos[0].cdata.data,
                        call->infos[0].cdata.len);

    if (call->type == ZKL_RENEW && cdata.ttl > 0
        && zkl_call_own(call, &record) == NGX_OK)
    {
        (void) zkl_record_renew(zone, &call->token.id, &call->path, 0,
                                (ngx_msec_t) cdata.ttl, 0, 0, 0);
    }
}


/*
 * Records.  The claim's worker may be a sibling, stand still or be dead: the
 * record is in the zone, so a renewal or a hold in the record counts.  Another
 * gateway's write is in infos[0], but may not be in the record yet.
 */


/* Whether the claim is this gateway's, and not open; copies the record. */

static ngx_int_t
zkl_call_own(zkl_call_t *call, zkl_record_t *record)
{
    ngx_int_t  rc;

    rc = zkl_record_read(call->worker->zone, &call->token.id, &call->path,
                         record);

    return ((rc == NGX_OK || rc == NGX_AGAIN)
            && record->state != ZKL_RECORD_OPEN
            && record->seq == call->token.seq) ? NGX_OK : NGX_DECLINED;
}


/*
 * Renews a claim of this gateway in the record, also while the claim's worker
 * is dead and no successor has adopted the session yet; renews another
 * gateway's claim in the znode.
 */

static void
zkl_call_renew(zkl_call_t *call)
{
    if (zkl_call_prolong(call) == NGX_DONE) {
        zkl_call_post(call, ZKL_CALL_GONE);

    } else {
        zkl_call_inspect(call);
    }
}


/*
 * Starts the lease in the record of a claim of this gateway anew.  NGX_DONE:
 * the claim has ended; else NGX_OK, also if no such lease runs.
 */

static ngx_int_t
zkl_call_prolong(zkl_call_t *call)
{
    ngx_int_t     rc;
    ngx_msec_t    ttl;
    zkl_record_t  record;

    if (zkl_call_own(call, &record) != NGX_OK
        || record.state == ZKL_RECORD_WAITING
        || zkl_call_endless(&record))
    {
        return NGX_OK;
    }

    ttl = call->ttl ? call->ttl : record.ttl;

    rc = zkl_record_renew(call->worker->zone, &call->token.id, &call->path, 0,
                          ttl, 0, 0, 0);

    call->renewed = (rc == NGX_OK);
    call->record = record.id.record;
    call->since = record.since;

    /* another gateway may have renewed a lease that is over here */

    return (rc != NGX_OK && rc != NGX_AGAIN
            && record.state == ZKL_RECORD_ENDED)
           ? NGX_DONE : NGX_OK;
}


/* The claim is this gateway's, and the znode was read just now. */

static void
zkl_call_known(zkl_call_t *call, zkl_record_t *record)
{
    ngx_int_t         rc;
    zkl_info_t       *info;
    zkl_claim_data_t  cdata;

    info = &call->infos[0];

    zkl_call_note_record(info, record);

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    if (record->state == ZKL_RECORD_WAITING) {

        /* if the grace is over, only a write of the data keeps the claim */

        call->pending = (zkl_call_keep(call, record) == NGX_OK
                         || !cdata.async);
        zkl_call_list(call);
        return;
    }

    call->pending = 0;

    if (call->counted) {

        if (zkl_call_renewals(call) > record->renewals) {
            /* the record does not have another gateway's renewal yet */
            info->timed = 0;
        }

        zkl_call_set(call);
        return;
    }

    if (call->type == ZKL_RELEASE && !call->remote
        && record->state == ZKL_RECORD_HELD)
    {
        /* no record told the number of holds when the call began */

        if (zkl_ahead(record->alive)) {
            zkl_call_release(call);

        } else {
            zkl_call_poll(call);
        }

        return;
    }

    if (record->state == ZKL_RECORD_HELD && cdata.index >= 0
        && record->holds > ngx_max(cdata.holds, 1))
    {
        /*
         * Other gateways trust the claim data, and the worker that counted may
         * have died before the write of the claim data.
         */

        call->recounts = 1;
        zkl_call_set(call);
        return;
    }

    if (call->remote && call->type != ZKL_DOWNGRADE) {

        /* no worker had the claim before; the new worker counts the request */

        rc = zkl_call_remote_done(call);

        if (rc == NGX_AGAIN) {
            zkl_call_poll(call);
            return;
        }

        if (rc == NGX_DECLINED) {
            zkl_call_tell(call, ZKL_CALL_UNREACHABLE);
            return;
        }
    }

    zkl_call_known_held(call, record, &cdata);
}


/* The record says that the claim is held, or was held. */

static void
zkl_call_known_held(zkl_call_t *call, zkl_record_t *record,
    zkl_claim_data_t *cdata)
{
    zkl_info_t    *info;
    zkl_answer_e   answer;

    info = &call->infos[0];
    answer = zkl_call_held(call, record);

    if (answer == ZKL_CALL_GONE
        && call->type == ZKL_RENEW
        && record->state == ZKL_RECORD_HELD
        && record->renewals != zkl_call_renewals(call))
    {
        zkl_call_set(call);
        return;
    }

    if (answer == ZKL_CALL_OK) {

        if (call->type == ZKL_HOLD && !call->remote) {
            zkl_call_more(call, record);
            return;
        }

        if (call->type == ZKL_DOWNGRADE) {
            zkl_call_downgrade(call);
            return;
        }

        if (call->type == ZKL_RENEW && !info->endless
            && record->durable && (int64_t) info->ttl > cdata->ttl)
        {
            /* a session that takes the claim over has to know the longer ttl */

            zkl_call_set(call);
            return;
        }
    }

    if (answer == ZKL_CALL_UNREACHABLE) {

        /* the worker may learn in a moment that the claim's session lives */

        zkl_call_poll(call);
        return;
    }

    zkl_call_tell(call, answer);
}


/*
 * A client that asks for a detached claim extends the grace.  The time is never
 * cut, but always changed: the change tells the claim's worker that a client
 * asks.  NGX_DECLINED: the grace is over, or the claim has none.
 */

static ngx_int_t
zkl_call_keep(zkl_call_t *call, zkl_record_t *record)
{
    ngx_msec_t  lease;

    if (call->type != ZKL_INSPECT || call->grace == 0) {
        return NGX_OK;
    }

    if (record->lease == 0) {
        return NGX_DECLINED;
    }

    lease = zkl_now() + call->grace;

    if ((ngx_msec_int_t) (lease - record->lease) <= 0) {
        lease = record->lease + 1;
    }

    return zkl_record_renew(call->worker->zone, &call->token.id, &call->path,
                            record->lease, record->ttl, lease, 0, 0);
}


/* The answer for a claim of this gateway that is held, or was held. */

static zkl_answer_e
zkl_call_held(zkl_call_t *call, zkl_record_t *record)
{
    int64_t      since;
    uint32_t     number;
    ngx_int_t    rc;
    ngx_msec_t   ttl;
    zkl_info_t  *info;

    if (record->state == ZKL_RECORD_ENDED) {
        return ZKL_CALL_GONE;
    }

    info = &call->infos[0];
    number = record->id.record;
    since = record->since;

    if (call->record != number || call->since != since) {

        /* the renewal is not in the record by which the lease counts now */

        call->renewed = 0;
    }

    if (zkl_call_renewals(call) <= record->renewals) {

        if (record->lease == 0) {
            return ZKL_CALL_GONE;
        }

        ttl = call->ttl ? call->ttl : record->ttl;

        if (call->type == ZKL_RENEW && !info->endless
            && (!call->renewed || record->ttl < ttl))
        {
            /*
             * Since the first try the claim was granted, or the claim's worker
             * has read of another gateway's renewal, which came before this
             * renewal.
             */

            (void) zkl_call_extend(call, record);
        }

        rc = zkl_record_told(call->worker->zone, &call->token.id, &call->path,
                             record);

        if ((rc != NGX_OK && rc != NGX_AGAIN)
            || record->id.record != number || record->since != since)
        {
            /*
             * The claim ended, or the lease was over, just now; or another
             * session has taken the claim over, and the lease counts without
             * this call's renewal.
             */

            return ZKL_CALL_UNREACHABLE;
        }

        zkl_call_note_record(info, record);

    } else if (call->type != ZKL_RENEW) {

        /* the record does not have another gateway's renewal yet */

        zkl_call_note_ttl(info);
        info->timed = 0;

    } else if (record->lease == 0) {
        return ZKL_CALL_GONE;

    } else if (!info->endless && zkl_call_extend(call, record) != NGX_OK)
    {
        /* the record ended, or the lease was over, before the renewal */

        return ZKL_CALL_UNREACHABLE;
    }

    info->holds = record->holds;

    return zkl_ahead(record->alive) ? ZKL_CALL_OK : ZKL_CALL_UNREACHABLE;
}


/*
 * Renews the claim in the record, for the ttl that the client asked for, or the
 * ttl of the latest renewal: from the data, if the record does not have the
 * data's renewals yet.  The record then gets the data's version and renewals,
 * so that an older renewal in the data does not replace this renewal.
 */

static ngx_int_t
zkl_call_extend(zkl_call_t *call, zkl_record_t *record)
{
    int32_t           version;
    uint32_t          renewals;
    ngx_msec_t        ttl;
    zkl_claim_data_t  cdata;
    zkl_info_t       *info;

    info = &call->infos[0];

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    ttl = record->ttl;
    version = 0;
    renewals = 0;

    if (cdata.renewals > record->renewals) {
        ttl = (cdata.ttl > 0) ? (ngx_msec_t) cdata.ttl : ttl;
        version = call->version;
        renewals = cdata.renewals;
    }

    ttl = call->ttl ? call->ttl : ttl;

    if (zkl_record_renew(call->worker->zone, &call->token.id, &call->path, 0,
                         ttl, 0, version, renewals)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    info->ttl = ttl;
    info->expires = ttl;
    info->timed = 1;

    return NGX_OK;
}


/* Counts one more hold: first in the record, then in the claim data. */

static void
zkl_call_more(zkl_call_t *call, zkl_record_t *record)
{
    ngx_int_t  rc;

    if (!call->infos[0].endless
        && zkl_call_extend(call, record) != NGX_OK
        && zkl_call_own(call, record) == NGX_OK
        && record->state == ZKL_RECORD_HELD)
    {
        /* the claim's worker looks just now whether the lease is over */

        zkl_call_poll(call);
        return;
    }

    rc = zkl_record_hold(call->worker->zone, &call->token.id, &call->path, 0,
                         &call->holds);

    if (rc != NGX_OK && rc != NGX_AGAIN) {

        if (zkl_call_own(call, record) == NGX_OK) {
            zkl_call_tell(call, ZKL_CALL_GONE);

        } else {
            /* the session is over: another session may count the claim */

            zkl_call_poll(call);
        }

        return;
    }

    call->counted = 1;
    call->gen = record->gen;
    call->since = record->since;

    zkl_call_set(call);
}


static uint32_t
zkl_call_renewals(zkl_call_t *call)
{
    zkl_claim_data_t  cdata;
    zkl_info_t       *info;

    info = &call->infos[0];

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    return cdata.renewals;
}


static ngx_uint_t
zkl_call_endless(zkl_record_t *record)
{
    return (ngx_msec_int_t) (record->lease - zkl_now())
           > (ngx_msec_int_t) ZKL_NO_LEASE / 2;
}


/*
 * Lists: which claims hold a lock and which claims wait, from the names of the
 * claims and the claim data.  When a claim was granted and when the lease ends,
 * only the claim's gateway knows: from the record.
 */


/* Describes the first claim of this worker's view: a list is not needed. */

static void
zkl_call_holder(zkl_call_t *call)
{
    u_char        buf[ZKL_CLAIM_MAX];
    ngx_str_t     name;
    zkl_entry_t  *first;
    zkl_op_t     *op;
    zkl_lock_t   *lock;

    lock = zkl_lock_find(call->worker, &call->path);
    first = lock ? zkl_view_first(&lock->view) : NULL;

    if (first == NULL || call->node) {
        zkl_call_list(call);
        return;
    }

    if (zkl_call_infos(call, 1) != NGX_OK) {
        zkl_call_post(call, ZKL_CALL_FAILED);
        return;
    }

    zkl_lock_name(first, &name, buf);

    (void) zkl_name_child_read(&call->infos[0].child, (char *) name.data,
                               name.len);

    op = zkl_call_op(call, ZKL_OP_GET, &name, zkl_call_holder_handler, call);

    zkl_call_send(call, op);
}


static void
zkl_call_holder_handler(zkl_op_t *op)
{
    zkl_id_t     *id;
    zkl_call_t   *call;
    zkl_record_t  record;

    call = op->data;

    if (call->handler == NULL) {
        goto done;
    }

    if (op->rc == ZKL_NO_NODE) {
        zkl_call_list(call);
        goto done;
    }

    if (zkl_call_noted(call, op) != NGX_OK) {
        goto done;
    }

    id = &call->infos[0].child.id;

    if (call->infos[0].child.has_id
        && zkl_record_read(call->worker->zone, id, &call->path, &record)
           == NGX_OK)
    {
        zkl_call_note_record(&call->infos[0], &record);
    }

    call->infos[0].held = 1;
    call->nknown = 1;

    if (!call->infos[0].timed) {
        zkl_call_note_ttl(&call->infos[0]);
    }

    zkl_call_tell(call, ZKL_CALL_OK);

done:

    zkl_call_op_end(call);
}


static void
zkl_call_list(zkl_call_t *call)
{
    zkl_op_t  *op;

    if (call->node && call->ninfos != 0) {

        /* the claim was read, and is the lock's only claim */

        call->position = 0;
        call->place = 0;
        call->infos[0].held = 1;
        zkl_call_placed(call);
        return;
    }

    if (call->type >= ZKL_LIST && !call->shared) {
        zkl_call_share(call);
        return;
    }

    if (call->node) {
        call->begun = 1;
        zkl_node_look(call);
        return;
    }

    if (call->shared && zkl_call_turn(call) != NGX_OK) {
        return;
    }

    call->begun = 1;

    op = zkl_call_op(call, ZKL_OP_LIST, NULL, zkl_call_list_handler, call);
    if (op != NULL) {
        op->turn = call->shared ? ZKL_TURN_LOOK : ZKL_TURN_CLAIM;
    }

    if (call->recent) {
        zkl_call_send(call, op);

    } else {
        zkl_call_send_fresh(call, op);
    }
}


static void
zkl_call_list_handler(zkl_op_t *op)
{
    zkl_call_t  *call;

    call = op->data;

    if (call->handler == NULL) {
        goto done;
    }

    /* op->rc stays, because others may share the list */

    if (op->rc != ZKL_OK && op->rc != ZKL_NO_NODE) {
        zkl_call_failed(call, op->rc);
        goto done;
    }

    if (call->type < ZKL_LIST) {

        /* the claim was read; only the place was missing */

        if (zkl_call_count(call, op) != NGX_OK) {
            zkl_call_gone(call);

        } else {
            zkl_call_placed(call);
        }

        goto done;
    }

    if (zkl_call_sort(call, op) != NGX_OK) {
        zkl_call_tell(call, ZKL_CALL_FAILED);
        goto done;
    }

    if (call->ninfos == 0) {
        zkl_call_tell(call, ZKL_CALL_FREE);
        goto done;
    }

    if (call->type == ZKL_COUNT) {
        zkl_call_tell(call, ZKL_CALL_OK);
        goto done;
    }

    zkl_call_read(call);

done:

    zkl_call_op_end(call);
}


/* Counts the claims ahead; NGX_DECLINED if the claim asked for is gone. */

static ngx_int_t
zkl_call_count(zkl_call_t *call, zkl_op_t *op)
{
    int64_t      writer;
    ngx_uint_t   i, own, there, mixes, capacity, ahead, readers, misnumbered;
    zkl_child_t  child;

    call->position = 0;
    ahead = 0;
    there = 0;
    mixes = 1;

    writer = call->token.seq;

    for (i = 0; i < op->nchildren; i++) {

        if (zkl_name_child_read(&child, (char *) op->children[i].data,
                                op->children[i].len)
            != 0)
        {
            continue;
        }

        own = (child.has_id && child.seq == call->token.seq
               && zkl_name_secret_equal(child.id.random,
                                        call->token.id.random,
                                        ZKL_RANDOM_LEN));
        there |= own;

        misnumbered = (child.seq >= op->given
                       || (child.seq == call->token.seq && !own));

        /* as in the view: misnumbered children come before all claims */

        if (misnumbered == (call->token.seq >= op->given)
            ? child.seq >= call->token.seq
            : !misnumbered)
        {
            continue;
        }

        ahead++;

        mixes &= zkl_view_mixes(child.mode, call->token.mode);

        if (zkl_view_blocks(child.mode, call->token.mode)) {
            call->position++;
        }

        if (child.mode != ZKL_READ && child.seq < writer) {
            writer = child.seq;
        }
    }

    readers = zkl_call_readers(op, writer);
    capacity = zkl_view_capacity(call->token.mode);

    /* a single claim of another use ahead blocks the claim */

    call->infos[0].held = (mixes && call->position < capacity);
    call->place = zkl_place(ahead, ngx_max(readers, capacity));

    return there ? NGX_OK : NGX_DECLINED;
}


/* The readers ahead of the first claim that is no reader share the lock. */

static ngx_uint_t
zkl_call_readers(zkl_op_t *op, int64_t writer)
{
    ngx_uint_t   i, n;
    zkl_child_t  child;

    n = 0;

    for (i = 0; i < op->nchildren; i++) {
        n += (zkl_name_child_read(&child, (char *) op->children[i].data,
                                  op->children[i].len)
              == 0
              && child.mode == ZKL_READ && child.seq < writer);
    }

    return n;
}


/* Puts the children in order; infos gets the claims that the call describes. */

static ngx_int_t
zkl_call_sort(zkl_call_t *call, zkl_op_t *op)
{
    u_char      *p;
    ngx_str_t   *name;
    ngx_uint_t   i, n, max;
    zkl_info_t  *infos;

    infos = ngx_alloc((op->nchildren + 1) * sizeof(zkl_info_t),
                      call->worker->log);
    if (infos == NULL) {
        return NGX_ERROR;
    }

    for (i = 0, n = 0; i < op->nchildren; i++) {
        ngx_memzero(&infos[n], sizeof(zkl_info_t));

        if (zkl_name_child_read(&infos[n].child, (char *) op->children[i].data,
                                op->children[i].len)
            == 0)
        {
            infos[n++].name = op->children[i];
        }
    }

    ngx_qsort(infos, n, sizeof(zkl_info_t), zkl_call_compare);

    zkl_call_state(call, infos, n);

    /* all holders are described, if there are not very many */

    max = ngx_min(call->holders, ZKL_MEMBERS_MAX);

    if (call->type == ZKL_LIST) {
        max = ngx_max(max, ZKL_LIST_MAX);

    } else if (call->type != ZKL_HOLDERS) {
        max = 1;
    }

    n = ngx_min(n, max);

    if (zkl_call_infos(call, n) != NGX_OK) {
        ngx_free(infos);
        return NGX_ERROR;
    }

    call->next = 0;

    for (i = 0; i < n; i++) {
        name = &infos[i].name;

        p = ngx_alloc(name->len, call->worker->log);
        if (p == NULL) {
            ngx_free(infos);
            return NGX_ERROR;
        }

        ngx_memcpy(p, name->data, name->len);

        call->infos[i].child = infos[i].child;
        call->infos[i].held = infos[i].held;
        call->infos[i].name.data = p;
        call->infos[i].name.len = name->len;
    }

    ngx_free(infos);

    return NGX_OK;
}


/* Sets which claims hold the lock, and a hash that changes with the claims. */

static void
zkl_call_state(zkl_call_t *call, zkl_info_t *infos, ngx_uint_t n)
{
    uint32_t       crc, sum;
    ngx_uint_t     i;
    zkl_holders_t  holders;

    call->total = n;
    call->holders = 0;

    ngx_memzero(&holders, sizeof(zkl_holders_t));
    sum = 0;

    ngx_crc32_init(crc);

    for (i = 0; i < n; i++) {
        infos[i].held = zkl_view_count(&holders, infos[i].child.mode);

        if (infos[i].held) {
            call->holders++;
            call->last = infos[i].child.seq;
        }

        ngx_crc32_update(&crc, infos[i].name.data, infos[i].name.len);
        sum = ngx_murmur_hash2(infos[i].name.data, infos[i].name.len)
              + sum * 31;
    }

    ngx_crc32_final(crc);

    call->etag = (uint64_t) crc << 32 | sum;
}


static int ngx_libc_cdecl
zkl_call_compare(const void *one, const void *two)
{
    const zkl_info_t  *a, *b;

    a = one;
    b = two;

    if (a->child.seq != b->child.seq) {
        return (a->child.seq < b->child.seq) ? -1 : 1;
    }

    return 0;
}


/* Reads the next claims, a few at a time; tells when all were read. */

static void
zkl_call_read(zkl_call_t *call)
{
    zkl_op_t    *op;
    zkl_info_t  *info;

    while (call->next < call->ninfos && call->reads < ZKL_READS_MAX)
    {
        info = &call->infos[call->next];

        op = zkl_call_op(call, ZKL_OP_GET, &info->name, zkl_call_read_handler,
                         info);
        if (op == NULL) {
            zkl_call_tell(call, ZKL_CALL_FAILED);
            return;
        }

        op->turn = ZKL_TURN_LOOK;

        call->next++;
        call->reads++;

        zkl_call_send(call, op);
    }

    if (call->reads == 0) {
        zkl_call_found(call);
    }
}


static void
zkl_call_read_handler(zkl_op_t *op)
{
    zkl_call_t   *call;
    zkl_info_t   *info;
    zkl_record_t  record;

    info = op->data;
    call = info->call;

    call->reads--;

    if (call->handler == NULL || call->step == ZKL_STEP_BEGIN) {
        goto done;
    }

    if (op->rc == ZKL_UNKNOWN || op->rc == ZKL_UNSENT) {
        zkl_call_failed(call, op->rc);
        goto done;
    }

    /* NO_NODE: the claim is gone; NO_AUTH: the ACL hides the claim data */

    if (op->rc == ZKL_OK) {

        if (zkl_call_note(info, op) != NGX_OK) {
            zkl_call_tell(call, ZKL_CALL_FAILED);
            goto done;
        }

        if (info->child.has_id
            && zkl_record_read(call->worker->zone, &info->child.id,
                               &call->path, &record)
               == NGX_OK)
        {
            zkl_call_note_record(info, &record);
        }
    }

    if (op->rc == ZKL_NO_AUTH) {
        info->known = 1;
    }

    zkl_call_read(call);

done:

    zkl_call_op_end(call);
}


/* All claims were read: the claims that are gone meanwhile are left out. */

static void
zkl_call_found(zkl_call_t *call)
{
    ngx_uint_t  i, n;
    zkl_info_t  gone;

    for  (i = 0, n = 0; i < call->ninfos; i++) {

        if (!call->infos[i].known) {
            call->total--;
            call->holders -= call->infos[i].held;
            continue;
        }

        if (i != n) {

            /* zkl_call_infos() frees the claims at the end */

            gone = call->infos[n];
            call->infos[n] = call->infos[i];
            call->infos[i] = gone;
        }

        n++;
    }

    /* the claim that is first by now holds the lock */

    if (n != 0 && call->holders == 0) {
        call->infos[0].held = 1;
        call->holders = 1;
        call->last = call->infos[0].child.seq;
    }

    for  (i = 0; i < n && call->infos[i].held; i++) {
        if (!call->infos[i].timed) {
            zkl_call_note_ttl(&call->infos[i]);
        }
    }

    call->nknown = n;

    if (n != 0) {
        zkl_call_tell(call, ZKL_CALL_OK);
        return;
    }

    /* the lock need not be free: other claims may have come meanwhile */

    if (++call->tries < ZKL_LOOK_TRIES) {
        zkl_call_list(call);
        return;
    }

    /* the lock changes hands all the time */

    if (call->type == ZKL_HOLDERS && call->total != 0) {

        /* the claim that is first by now holds the lock, and was not read */

        call->holders = 1;
        zkl_call_tell(call, ZKL_CALL_OK);
        return;
    }

    zkl_call_tell(call, call->type == ZKL_FIRST ? ZKL_CALL_OK : ZKL_CALL_FREE);
}


/* Notes in infos[0] what op has read, or tells the client why op has not. */

static ngx_int_t
zkl_call_noted(zkl_call_t *call, zkl_op_t *op)
{
    if (op->rc != ZKL_OK) {
        zkl_call_failed(call, op->rc);
        return NGX_ERROR;
    }

    if (zkl_call_note(&call->infos[0], op) != NGX_OK) {
        zkl_call_tell(call, ZKL_CALL_FAILED);
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
zkl_call_note(zkl_info_t *info, zkl_op_t *op)
{
    info->known = 1;
    info->durable = (op->owner == 0);
    info->czxid = op->czxid;
    info->since = (time_t) (op->ctime / 1000);

    if (info->cdata.data != NULL) {

        /* the claim is read again */

        ngx_free(info->cdata.data);
        ngx_str_null(&info->cdata);
    }

    if (op->reply.len == 0) {
        return NGX_OK;
    }

    info->cdata.data = ngx_alloc(op->reply.len, info->call->worker->log);
    if (info->cdata.data == NULL) {
        return NGX_ERROR;
    }

    info->cdata.len = op->reply.len;
    ngx_memcpy(info->cdata.data, op->reply.data, op->reply.len);

    return NGX_OK;
}


/* For another gateway's claim: only that gateway knows when the lease ends. */

void
zkl_call_note_ttl(zkl_info_t *info)
{
    zkl_claim_data_t  cdata;

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    info->ttl = (cdata.ttl > 0 && !info->endless) ? (ngx_msec_t) cdata.ttl : 0;
    info->holds = cdata.holds;
}


void
zkl_call_note_record(zkl_info_t *info, zkl_record_t *record)
{
    ngx_msec_int_t  left;

    if (record->state != ZKL_RECORD_HELD) {
        return;
    }

    left = (ngx_msec_int_t) (record->lease - zkl_now());

    info->held = 1;
    info->since = (time_t) (record->since / 1000);
    info->holds = record->holds;

    if (left > (ngx_msec_int_t) ZKL_NO_LEASE / 2) {
        info->endless = 1;
        return;
    }

    info->ttl = record->ttl;

    /* a client is told the ttl at most, even if the grace is longer */

    info->expires = (left > 0) ? ngx_min((ngx_msec_t) left, info->ttl) : 0;
    info->timed = 1;
}


ngx_int_t
zkl_call_infos(zkl_call_t *call, ngx_uint_t n)
{
    ngx_uint_t  i;

    for  (i = 0; i < call->ninfos; i++) {

        if (call->infos[i].cdata.data != NULL) {
            ngx_free(call->infos[i].cdata.data);
        }

        if (call->infos[i].name.data != NULL) {
            ngx_free(call->infos[i].name.data);
        }
    }

    if (call->infos != NULL) {
        ngx_free(call->infos);
        call->infos = NULL;
    }

    call->ninfos = 0;

    if (n == 0) {
        return NGX_OK;
    }

    call->infos = ngx_calloc(n * sizeof(zkl_info_t), call->worker->log);
    if (call->infos == NULL) {
        return NGX_ERROR;
    }

    call->ninfos = n;

    for (i = 0; i < n; i++) {
        call->infos[i].call = call;
    }

    return NGX_OK;
}


/*
 * Releases.  The claim's worker ends a claim of this gateway, because that
 * worker knows the next claim in the queue; another gateway's claim is
 * deleted.  Of a claim with several holds the claim's gateway takes one away.
 */


static void
zkl_call_release(zkl_call_t *call)
{
    ngx_int_t      rc;
    zkl_token_t   *token;
    zkl_claim_t   *claim;
    zkl_worker_t  *worker;
    zkl_record_t   record;

    worker = call->worker;
    token = &call->token;

    if (call->name.len != 0) {
        zkl_call_delete(call);
        return;
    }

    if (call->type == ZKL_RELEASE && zkl_call_less(call) == NGX_OK) {
        return;
    }

    rc = zkl_record_read(worker->zone, &token->id, &call->path, &record);

    if (rc == NGX_OK && record.czxid != 0) {
        call->fencing = zkl_fencing_token(record.czxid, record.index);
    }

    claim = zkl_claim_find(worker, &token->id, &call->path);

    if (claim != NULL && claim->entry.seq == token->seq
        && (rc == NGX_OK || rc == NGX_AGAIN)
        && zkl_call_ours(claim, &record)
        && claim->state != ZKL_TAKE)
    {
        call->step = ZKL_STEP_CLAIM;
        call->listener.handler = zkl_call_released;
        call->listener.data = call;

        zkl_record_ending(worker->zone, claim->id.record, call->forced
                          ? ZKL_ENDING_BROKEN
                          : ZKL_ENDING_RELEASED);

        zkl_claim_release(claim, &call->listener);
        return;
    }

    if (rc == NGX_OK && record.seq == token->seq
        && record.state != ZKL_RECORD_OPEN
        && zkl_call_current(&record))
    {
        rc = zkl_record_request(worker->zone, &token->id, &call->path,
                                call->forced);

        if (rc == NGX_OK) {
            call->record = record.id.record;
            call->gen = record.gen;
            call->ended = (record.state == ZKL_RECORD_ENDED);

            call->step = ZKL_STEP_SIBLING;
            zkl_worker_subscribe(worker, &call->sub, call->record);
            ngx_add_timer(&call->timer, ZKL_SIBLING_WAIT);
            return;
        }
    }

    zkl_call_delete(call);
}


/*
 * Whether this worker may end the claim without a look at ZooKeeper.  Once this
 * worker's session is over, another session may count the lease of a durable
 * claim, and further holds.
 */

static ngx_uint_t
zkl_call_ours(zkl_claim_t *claim, zkl_record_t *record)
{
    return claim->id.record == record->id.record
           && (claim->lasting != ZKL_DURABLE || zkl_ahead(record->alive));
}


/*
 * Whether the claim's worker would have to know that the claim is gone: else
 * the call neither asks nor believes that worker.
 */

static ngx_uint_t
zkl_call_current(zkl_record_t *record)
{
    return zkl_ahead(record->alive)
           && (record->state != ZKL_RECORD_HELD
               || zkl_ahead(record->lease));
}


/*
 * Takes a hold away from a claim of this gateway that has several: in the
 * record at once, then in the claim data for other gateways.  NGX_DECLINED: the
 * call has to release the claim.
 */

static ngx_int_t
zkl_call_less(zkl_call_t *call)
{
    ngx_int_t     rc;
    ngx_uint_t    alive;
    zkl_claim_t  *claim;
    zkl_record_t  record;

    rc = zkl_record_read(call->worker->zone, &call->token.id, &call->path,
                         &record);

    if ((rc != NGX_OK && rc != NGX_AGAIN) || record.seq != call->token.seq
        || record.state != ZKL_RECORD_HELD)
    {
        return NGX_DECLINED;
    }

    claim = zkl_claim_find(call->worker, &call->token.id, &call->path);

    alive = zkl_ahead(record.alive);

    if (record.holds > 1
        && (!alive || !zkl_session_ready(call->worker->session)))
    {
        /*
         * Another session may count a durable claim by now, in another record.
         * The holds in this record stay until the record's session is known to
         * live; a client that is told 503 meanwhile may repeat the call.
         */

        zkl_call_poll(call);
        return NGX_OK;
    }

    if (!alive && (claim == NULL || !zkl_call_ours(claim, &record)))
    {
        return NGX_DECLINED;
    }

    rc = zkl_record_hold(call->worker->zone, &call->token.id, &call->path, 1,
                         &call->holds);

    if (rc != NGX_OK && rc != NGX_AGAIN) {
        return NGX_DECLINED;
    }

    if (call->holds == 0) {
        call->dropped = 1;
        call->record = record.id.record;
        call->gen = record.gen;

        return NGX_DECLINED;
    }

    call->counted = 1;
    call->gen = record.gen;
    call->since = record.since;

    zkl_call_inspect(call);

    return NGX_OK;
}


/*
 * A release that is owed, or that ZooKeeper has to do.  The worker repeats an
 * unconfirmed delete until ZooKeeper confirms the delete, also when the client
 * was told 503 and has left.
 *
 * The gateway whose claim is deleted may have more claims in the same queue,
 * and no reason to list the lock.  But every gateway with claims of the lock
 * watches the lock's znode: the transaction that deletes the claim sets the
 * lock's znode to the present data, so that all these gateways list the lock.
 *
 * If another writer has changed the lock's znode since the read, a claim that
 * becomes durable, say, the transaction fails, and the session sends its parts
 * alone: the delete succeeds, and the set does not.  Then the call sets the
 * znode behind the delete, and tells the client afterwards.  Told before, the
 * client could be refused at the claim's gateway, which takes the claim for
 * held; for seconds, if this worker dies before the set.
 */

static void
zkl_call_delete(zkl_call_t *call)
{
    u_char     buf[ZKL_CLAIM_MAX];
    ngx_str_t  name;
    zkl_op_t  *op;

    call->step = ZKL_STEP_DELETE;

    if (!zkl_session_connected(call->worker->session)) {
        return;
    }

    zkl_call_name(call, &name, buf);

    op = zkl_call_op(call, ZKL_OP_GET, &name, zkl_call_cdata_handler, call);

    /* a server that lags behind may not have the claim yet */

    zkl_call_send_fresh(call, op);
}


/* A claim with several holds is not deleted: the claim's gateway counts. */

static void
zkl_call_cdata_handler(zkl_op_t *op)
{
    zkl_claim_data_t  cdata;
    zkl_op_t         *next;
    zkl_call_t       *call;

    call = op->data;

    if (op->rc == ZKL_OK && call->node && !zkl_node_asked(call, op)) {
        op->rc = ZKL_NO_NODE;
    }

    switch (op->rc) {

    case ZKL_OK:

        /* a delete that was sent before has not happened */

        call->deleted = 0;
        call->unbumped = 0;
        break;

    case ZKL_NO_NODE:

        if (zkl_call_rename(call) == NGX_OK) {
            zkl_call_delete(call);

        } else {
            zkl_call_missing(call);
        }

        goto done;

    case ZKL_UNKNOWN:
    case ZKL_UNSENT:
        goto done;

    default:

        if (call->node) {
            zkl_call_failed(call, op->rc);
            call->step = ZKL_STEP_OP;
            goto done;
        }

        /* a gateway may delete a znode that the gateway may not read */

        op->version = -1;
        break;
    }

    zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);
    zkl_journal_read(call, op);

    call->version = op->version;

    if (call->node) {

        /* by version, because the znode may be another claim's by now */

        next = zkl_call_op(call, ZKL_OP_DELETE, NULL,
                          zkl_call_delete_handler, call);
        if (next != NULL) {
            next->version = call->version;
        }

        zkl_call_send(call, next);
        goto done;
    }

    if (call->type == ZKL_BREAK) {
        call->version = -1;

    } else if (!call->dropped
               && ((cdata.index >= 0 && cdata.holds > 1)
                   || (cdata.index < 0 && cdata.revoke)))
    {
        call->step = ZKL_STEP_OP;

        /* the claim's gateway counts, also if Curator's mark hides the holds */

        zkl_call_inspect(call);
        goto done;
    }

    next = zkl_call_op(call, ZKL_OP_GET, NULL, zkl_call_parent_handler, call);
    if (next != NULL) {
        next->whole = 1;
    }

    zkl_call_send(call, next);

done:

    zkl_call_op_end(call);
}


static void
zkl_call_parent_handler(zkl_op_t *op)
{
    u_char       buf[ZKL_CLAIM_MAX];
    ngx_str_t    name;
    zkl_op_t    *set, *delete;
    zkl_call_t  *call;

    call = op->data;

    if (op->rc == ZKL_UNKNOWN || op->rc == ZKL_UNSENT) {
        goto done;
    }

    zkl_call_name(call, &name, buf);

    delete = zkl_call_op(call, ZKL_OP_DELETE, &name, zkl_call_delete_handler,
                         call);
    if (delete == NULL) {
        goto done;
    }

    set = zkl_call_bump_op(call, op, zkl_call_bumped_handler);

    delete->version = call->version;
    delete->gather = (set != NULL);
    zkl_call_send(call, delete);

    if (set != NULL) {
        set->gather = 1;
        call->unbumped = 1;
        call->sets++;
        zkl_call_send(call, set);
    }

done:

    zkl_call_op_end(call);
}


/*
 * Of two sets at once the second fails: the call sets the znode again.  A set
 * whose answer comes before the answer to the delete was ahead of the delete,
 * and does not count: zkl_call_deleted() sets the znode.
 */

static void
zkl_call_bumped_handler(zkl_op_t *op)
{
    zkl_call_t  *call;

    call = op->data;
    call->sets--;

    if (call->deleted && op->rc == ZKL_CHANGED) {
        zkl_call_bump(call);

    } else if (call->deleted || op->rc == ZKL_NO_AUTH
               || op->rc == ZKL_REFUSED || op->rc == ZKL_OVER_QUOTA)
    {
        zkl_call_bump_end(call, op->rc);
    }

    zkl_call_op_end(call);
}


/*
 * Sets the lock's znode to the present data, behind a change of a claim: all
 * gateways with claims of the lock list the lock.
 */

static void
zkl_call_bump(zkl_call_t *call)
{
    zkl_op_t  *get;

    if (call->node) {
        /* a claim that is the lock's znode has no other claims beside */
        return;
    }

    get = zkl_call_op(call, ZKL_OP_GET, NULL, zkl_call_bump_read_handler,
                      call);
    if (get == NULL) {
        zkl_call_bump_end(call, ZKL_UNSENT);
        return;
    }

    get->whole = 1;
    zkl_call_send(call, get);
}


static void
zkl_call_bump_read_handler(zkl_op_t *op)
{
    zkl_op_t    *set;
    zkl_call_t  *call;

    call = op->data;
    set = zkl_call_bump_op(call, op, zkl_call_bump_handler);

    if (set != NULL) {
        zkl_call_send(call, set);

    } else {
        zkl_call_bump_end(call, op->rc == ZKL_OK && !op->cut ? ZKL_UNSENT
                                                             : op->rc);
    }

    zkl_call_op_end(call);
}


/* If the version has changed since the read, another writer has set it. */

static void
zkl_call_bump_handler(zkl_op_t *op)
{
    zkl_call_t  *call;

    call = op->data;

    zkl_call_bump_end(call, op->rc);
    zkl_call_op_end(call);
}


/*
 * The lock's znode is set, or cannot be set: a release is told.  If it is not
 * known whether the znode is set, the release begins again with the next
 * connection, or with the sweep.
 */

static void
zkl_call_bump_end(zkl_call_t *call, zkl_rc_e rc)
{
    if (!call->unbumped) {
        return;
    }

    if (rc == ZKL_UNKNOWN || rc == ZKL_UNSENT) {
        call->step = ZKL_STEP_DELETE;
        call->tries++;
        return;
    }

    call->unbumped = 0;

    if (call->deleted) {
        zkl_call_tell(call, ZKL_CALL_OK);
    }
}


/*
 * Sets the lock's znode to the data that get has read; NULL if get has not read
 * all data, or there is no memory.
 */

static zkl_op_t *
zkl_call_bump_op(zkl_call_t *call, zkl_op_t *get, zkl_op_pt handler)
{
    zkl_op_t  *op;

    if (get->rc != ZKL_OK || get->cut) {
        return NULL;
    }

    op = zkl_op_new(call->worker->session, ZKL_OP_SET, &call->path, NULL,
                    &get->reply);
    if (op == NULL) {
        return NULL;
    }

    op->version = get->version;
    op->handler = handler;
    op->data = call;

    return op;
}


static void
zkl_call_delete_handler(zkl_op_t *op)
{
    zkl_call_t  *call;

    call = op->data;

    switch (op->rc) {

    case ZKL_OK:
        zkl_journal_deleted(call);
        call->step = ZKL_STEP_OP;
        zkl_call_deleted(call);
        break;

    case ZKL_NO_NODE:

        if (zkl_call_rename(call) == NGX_OK) {
            zkl_call_delete(call);
            break;
        }

        zkl_call_missing(call);
        break;

    case ZKL_CHANGED:

        /* the claim was renewed, or has several holds by now */

        zkl_call_delete(call);
        break;

    case ZKL_UNKNOWN:
    case ZKL_UNSENT:
        call->tries += (op->rc == ZKL_UNKNOWN);
        break;

    default:
        zkl_call_failed(call, op->rc);
        call->step = ZKL_STEP_OP;
        break;
    }

    zkl_call_op_end(call);
}


/* The claim is gone: the client is told when the lock's znode is set. */

static void
zkl_call_deleted(zkl_call_t *call)
{
    call->deleted = 1;

    if (!call->unbumped) {
        zkl_call_tell(call, ZKL_CALL_OK);

    } else if (call->sets == 0) {
        zkl_call_bump(call);
    }
}


/*
 * The claim's znode is not there: tells the client, or reads the record again.
 *
 * If an earlier try of a release may have deleted the znode, the claim was
 * released.  The successor of a dead worker may have deleted the znode, too,
 * because the record says that the claim has no holds: the successor frees the
 * record afterwards, and the record tells.
 *
 * Any other client is told that the claim is gone, and why: the claim's worker
 * may be about to note the reason.
 */

static void
zkl_call_missing(zkl_call_t *call)
{
    ngx_int_t     rc;
    ngx_uint_t    first;
    zkl_zone_t   *zone;
    zkl_record_t  record;

    zone = call->worker->zone;

    first = (call->step != ZKL_STEP_RECORD);
    call->step = ZKL_STEP_OP;

    if (call->tries != 0) {
        zkl_call_deleted(call);
        return;
    }

    rc = zkl_record_read(zone, &call->token.id, &call->path, &record);

    if (rc != NGX_OK && rc != NGX_AGAIN && call->dropped) {
        zkl_call_ended(call);
        return;
    }

    if (first) {
        call->missed = ngx_current_msec;
    }

    if ((rc != NGX_OK && rc != NGX_AGAIN)
        || (!call->dropped
            && zkl_record_ended(zone, &call->token, &call->path)
               != ZKL_ENDING_UNKNOWN)
        || ngx_current_msec - call->missed >= ZKL_SIBLING_WAIT)
    {
        /* the znode was not deleted for this call */

        zkl_call_tell(call, ZKL_CALL_GONE);
        return;
    }

    call->step = ZKL_STEP_RECORD;
    ngx_add_timer(&call->timer, ZKL_MISSING_AGAIN);
}


/*
 * The claim's record is free: the cell tells how the claim ended.
 *
 * A record that was forsaken tells nothing.  The call has found no znode then,
 * and neither this call nor a worker that the call asked can have deleted the
 * znode, because call->tries is 0: the claim was gone, as when the lease was
 * over and the worker that deleted the claim died before the answer.
 */

static void
zkl_call_ended(zkl_call_t *call)
{
    ngx_int_t     lost;
    zkl_answer_e  answer;

    lost = zkl_record_lost(call->worker->zone, call->record, call->gen);

    answer = ZKL_CALL_OK;

    if (lost == NGX_OK
        || (lost == NGX_DECLINED
            && zkl_record_forsaken(call->worker->zone, &call->token.id,
                                   &call->path)
               == NGX_OK))
    {
        answer = ZKL_CALL_GONE;

    } else if (lost == NGX_AGAIN) {

        /* this worker slept for longer than a record remembers */

        answer = ZKL_CALL_UNREACHABLE;
    }

    zkl_call_tell(call, answer);
}


static void
zkl_call_released(void *data, zkl_rc_e rc)
{
    zkl_call_t  *call = data;

    call->step = ZKL_STEP_OP;

    if (rc == ZKL_OK) {
        zkl_call_tell(call, ZKL_CALL_OK);

    } else if (rc == ZKL_NO_NODE) {
        zkl_call_tell(call, ZKL_CALL_GONE);

    } else {
        zkl_call_failed(call, rc);
    }

    zkl_call_free(call);
}


static void
zkl_call_rung(zkl_call_t *call)
{
    ngx_int_t     rc;
    zkl_record_t  record;

    if (zkl_record_read(call->worker->zone, &call->token.id, &call->path,
                        &record)
        != NGX_DECLINED)
    {
        zkl_worker_subscribe(call->worker, &call->sub, call->record);
        return;
    }

    rc = zkl_record_forsaken(call->worker->zone, &call->token.id, &call->path);

    if (rc != NGX_DECLINED) {

        /*
         * The claim's worker may be gone, and the claim live; or that worker
         * has carried out the request, and died before the record was free.
         */

        call->tries += ((rc == NGX_AGAIN || (call->dropped && !call->ended))
                        && zkl_record_lost(call->worker->zone, call->record,
                                           call->gen)
                           == NGX_DECLINED);

        ngx_del_timer(&call->timer);
        zkl_call_delete(call);
        return;
    }

    zkl_call_ended(call);
    zkl_call_free(call);
}


/*
 * The sibling does not answer.  The sibling may be dead, and the successor may
 * have carried out the release; a claim that had begun to end before the
 * request may have ended for another reason.
 */

static void
zkl_call_forsaken(zkl_call_t *call)
{
    call->tries += !call->ended;

    zkl_worker_unsubscribe(call->worker, &call->sub);
    zkl_call_delete(call);
}


/*
 * Remote requests.  Only the claim's gateway can count a hold or share the
 * claim.  So the call writes the request into the claim data, sets the lock's
 * znode, which that gateway watches, to the present data, and reads the claim
 * until that gateway has taken the request out.  A request may be carried out
 * after the call's timeout: the client is told that the outcome is not known.
 */


/* The claim data were read into infos[0]. */

static void
zkl_call_remote(zkl_call_t *call, const char *want)
{
    char              text[ZKL_CLAIM_DATA_MAX];
    size_t            index_at;
    ngx_str_t         value;
    zkl_claim_data_t  cdata;
    zkl_info_t       *info;

    info = &call->infos[0];

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    if (cdata.index < 0 && !cdata.revoke) {
        zkl_call_tell(call, ZKL_CALL_FOREIGN);
        return;
    }

    /* the claim data have room for one request; a mark is mended first */

    if (call->remote || cdata.index < 0 || cdata.want_len != 0) {
        zkl_call_poll(call);
        return;
    }

    if (call->type == ZKL_HOLD && call->ttl != 0) {
        cdata.ttl = (int64_t) call->ttl;
    }

    /* this call's client may be the first to be told that the claim is held */

    cdata.renewals += (call->type == ZKL_HOLD || cdata.async);
    cdata.async = 0;

    /* a number lets the claim's gateway tell two equal requests apart */

    if (call->type == ZKL_DOWNGRADE) {
        cdata.want_len = ngx_sprintf((u_char *) cdata.want, "%s", want)
                         - (u_char *) cdata.want;

    } else {
        cdata.want_len = ngx_sprintf((u_char *) cdata.want, "%s-%08xD", want,
                                     (uint32_t) ngx_random())
                         - (u_char *) cdata.want;
    }

    cdata.want[cdata.want_len] = '\0';

    call->mended = cdata.mended;

    value.len = zkl_claim_data_write(text, &cdata, &index_at);
    value.data = (u_char *) text;

    zkl_call_write(call, &value, call->version, zkl_call_remote_handler);
}


static void
zkl_call_remote_handler(zkl_op_t *op)
{
    zkl_call_t  *call;

    call = op->data;

    switch (op->rc) {

    case ZKL_OK:
        call->remote = 1;
        zkl_call_bump(call);
        zkl_call_poll(call);
        break;

    case ZKL_CHANGED:
        zkl_call_poll(call);
        break;

    case ZKL_NO_NODE:

        if (zkl_call_rename(call) == NGX_OK) {
            zkl_call_poll(call);

        } else {
            zkl_call_tell(call, ZKL_CALL_GONE);
        }

        break;

    case ZKL_UNKNOWN:

        if (call->type != ZKL_DOWNGRADE) {

            /* the request may be done by now, and a repeat would be, too */

            zkl_call_tell(call, ZKL_CALL_UNREACHABLE);
            break;
        }

        /* fall through */

    default:
        zkl_call_failed(call, op->rc);
        break;
    }

    zkl_call_op_end(call);
}


/*
 * What has become of the request, by the claim data that were read.  NGX_OK:
 * the request was carried out; NGX_AGAIN: not so far; NGX_DECLINED: not known.
 *
 * The gateway that carries out a request writes the claim data without the
 * request.  So does the gateway that mends a mark, which a Curator client may
 * have written over a request that the gateway had not read.
 */

static ngx_int_t
zkl_call_remote_done(zkl_call_t *call)
{
    zkl_claim_data_t  cdata;
    zkl_info_t       *info;

    info = &call->infos[0];

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    if (cdata.index >= 0 && cdata.want_len == 0) {
        return (cdata.mended == call->mended) ? NGX_OK : NGX_DECLINED;
    }

    return NGX_AGAIN;
}


/* Shares a held claim that was read, until the znode has a reader's name. */

static void
zkl_call_downgrade(zkl_call_t *call)
{
    zkl_claim_t  *claim;

    if (call->token.mode == ZKL_READ) {
        zkl_call_tell(call, ZKL_CALL_OK);
        return;
    }

    if (call->token.mode != ZKL_MUTEX && call->token.mode != ZKL_WRITE) {
        zkl_call_tell(call, ZKL_CALL_CONFLICT);
        return;
    }

    claim = zkl_claim_find(call->worker, &call->token.id, &call->path);

    if (claim == NULL) {
        zkl_call_remote(call, "shared");
        return;
    }

    zkl_claim_downgrade(claim);
    zkl_call_poll(call);
}


/*
 * Asks the holder to let go: by the claim data of a gateway's claim, else by
 * Curator's mark.
 */

static void
zkl_call_revoke(zkl_call_t *call)
{
    u_char     buf[ZKL_CLAIM_MAX];
    ngx_str_t  name;
    zkl_op_t  *op;

    zkl_call_name(call, &name, buf);

    op = zkl_call_op(call, ZKL_OP_GET, &name, zkl_call_revoke_handler, call);

    zkl_call_send(call, op);
}


static void
zkl_call_revoke_handler(zkl_op_t *op)
{
    char              text[ZKL_CLAIM_DATA_MAX];
    size_t            index_at;
    ngx_str_t         value;
    zkl_claim_data_t  cdata;
    zkl_call_t       *call;

    call = op->data;

    if (op->rc == ZKL_OK && call->node && !zkl_node_asked(call, op)) {
        op->rc = ZKL_NO_NODE;
    }

    if (op->rc != ZKL_OK) {

        if (op->rc == ZKL_NO_NODE) {
            zkl_call_tell(call, ZKL_CALL_GONE);

        } else {
            zkl_call_failed(call, op->rc);
        }

        goto done;
    }

    zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);

    if (cdata.revoke) {
        zkl_call_tell(call, ZKL_CALL_OK);
        goto done;
    }

    if (cdata.index < 0 && call->node) {

        /* only recipes with a queue know Curator's mark */

        zkl_call_tell(call, ZKL_CALL_FOREIGN);
        goto done;
    }

    if (cdata.index >= 0) {
        cdata.revoke = 1;
        value.len = zkl_claim_data_write(text, &cdata, &index_at);
        value.data = (u_char *) text;

    } else {
        ngx_str_set(&value, ZKL_REVOKE_MARK);
    }

    zkl_call_write(call, &value, op->version, zkl_call_revoked_handler);

done:

    zkl_call_op_end(call);
}


static void
zkl_call_revoked_handler(zkl_op_t *op)
{
    zkl_call_t  *call;

    call = op->data;

    switch (op->rc) {

    case ZKL_OK:
        zkl_call_bump(call);
        zkl_call_tell(call, ZKL_CALL_OK);
        break;

    case ZKL_CHANGED:
        zkl_call_revoke(call);
        break;

    case ZKL_NO_NODE:
        zkl_call_tell(call, ZKL_CALL_GONE);
        break;

    default:
        zkl_call_failed(call, op->rc);
        break;
    }

    zkl_call_op_end(call);
}


static void
zkl_call_write(zkl_call_t *call, ngx_str_t *value, int32_t version,
    zkl_op_pt handler)
{
    u_char     buf[ZKL_CLAIM_MAX];
    ngx_str_t  name;
    zkl_op_t  *op;

    zkl_call_name(call, &name, buf);

    op = zkl_op_new(call->worker->session, ZKL_OP_SET, &call->path, &name,
                    value);
    if (op != NULL) {
        op->version = version;
        op->handler = handler;
        op->data = call;
    }

    zkl_call_send(call, op);
}
