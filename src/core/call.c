
/*
 * Calls.
 *
 * A call reads or changes a claim or a lock, and waits for no grant.  This file
 * owns a worker's calls from zkl_call_start() until the client is told and the
 * call is freed.
 *
 * The token leads to the record of a claim of this worker or a sibling: the
 * claim's worker does what the call asks for (core/serve.c), and the call reads
 * the claim's znode itself.  Another gateway's claim, and one whose worker does
 * not reply, the call changes in ZooKeeper.  Except by HOLDER, a claim is told
 * as held only after a read behind a write that was sent after the call came,
 * so that no other claim can have been granted before.  A hold and a downgrade
 * read the claim before they ask, too.
 *
 * A call waits for ZooKeeper until the call's timeout: while ZooKeeper does not
 * answer, the call does not begin, and a call whose operation had no answer
 * begins again.  At the timeout the client is told that ZooKeeper is out of
 * reach; sooner only if the answer to a write was lost that must not be
 * repeated.  A release begins at once, because the release is owed.
 *
 * The event loop of the worker that got the call runs all code here.  handler
 * is NULL once the client was told or has left.  infos is NULL until the call
 * reads a znode or has sorted a list.  zkl_step_e in call.h has the steps.
 */


#include "core/call.h"
#include "core/serve.h"
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

/*
 * How long a sibling may take to reply, or the worker of a claim that is gone
 * to note the reason, milliseconds.
 */
#define ZKL_SIBLING_WAIT                  500

/* what Curator's Revoker writes (Revoker.REVOKE_MESSAGE) */
#define ZKL_REVOKE_MARK               "__REVOKE__"


static zkl_call_t *zkl_call_new(zkl_worker_t *worker, zkl_call_e type,
    ngx_str_t *path, ngx_str_t *name);
static void zkl_call_begin(zkl_call_t *call);
static ngx_uint_t zkl_call_reads_first(zkl_call_t *call);
static void zkl_call_deaf(zkl_call_t *call);
static void zkl_call_over_handler(ngx_event_t *ev);
static void zkl_call_timer_handler(ngx_event_t *ev);
static void zkl_call_poll(zkl_call_t *call, ngx_uint_t contends);
static void zkl_call_share(zkl_call_t *call);
static void zkl_call_look_begin(zkl_call_t *look);
static void zkl_call_look_handler(zkl_call_t *look, zkl_answer_e answer);
static void zkl_call_look_tell(zkl_call_t *look);
static void zkl_call_look_end(zkl_call_t *look);
static zkl_op_t *zkl_call_claim_op(zkl_call_t *call, zkl_op_e type,
    ngx_str_t *value);
static void zkl_call_post(zkl_call_t *call, zkl_answer_e answer);
static void zkl_call_free(zkl_call_t *call);
static void zkl_call_inspect(zkl_call_t *call);
static void zkl_call_inspect_handler(zkl_op_t *op);
static void zkl_call_other(zkl_call_t *call);
static void zkl_call_missing(zkl_call_t *call);
static void zkl_call_placed(zkl_call_t *call);
static ngx_uint_t zkl_call_early(zkl_call_t *call);
static void zkl_call_ask(zkl_call_t *call, zkl_claim_data_t *newer);
static ngx_uint_t zkl_call_take_back(zkl_call_t *call);
static void zkl_call_reply(zkl_call_t *call, zkl_reply_e reply);
static void zkl_call_known(zkl_call_t *call, zkl_record_t *record);
static void zkl_call_holder(zkl_call_t *call);
static void zkl_call_list(zkl_call_t *call);
static void zkl_call_list_handler(zkl_op_t *op);
static ngx_uint_t zkl_call_child(zkl_op_t *op, ngx_uint_t i,
    zkl_child_t *child);
static ngx_int_t zkl_call_count(zkl_call_t *call, zkl_op_t *op);
static ngx_int_t zkl_call_sort(zkl_call_t *call, zkl_op_t *op);
static int ngx_libc_cdecl zkl_call_compare(const void *one, const void *two);
static void zkl_call_read(zkl_call_t *call);
static void zkl_call_read_handler(zkl_op_t *op);
static void zkl_call_found(zkl_call_t *call);
static void zkl_call_note_ttl(zkl_info_t *info);
static void zkl_call_note_record(zkl_info_t *info, zkl_record_t *record);
static ngx_int_t zkl_call_delete_read(zkl_call_t *call, zkl_op_t *op);
static void zkl_call_bump(zkl_call_t *call);
static void zkl_call_parent_handler(zkl_op_t *op);
static void zkl_call_bump_handler(zkl_op_t *op);
static void zkl_call_bumped(zkl_call_t *call, zkl_rc_e rc);
static void zkl_call_delete_handler(zkl_op_t *op);
static void zkl_call_deleted(zkl_call_t *call);
static void zkl_call_change(zkl_call_t *call);
static void zkl_call_want(zkl_call_t *call, zkl_claim_data_t *cdata);
static void zkl_call_write_handler(zkl_op_t *op);


zkl_call_t *
zkl_call_start(zkl_worker_t *worker, zkl_question_t *question)
{
    ngx_msec_t   timeout;
    zkl_call_t  *call;

    call = zkl_call_new(worker, question->type, question->path, question->name);
    if (call == NULL) {
        return NULL;
    }

    call->ttl = question->ttl;
    call->grace = question->grace;
    call->node = (question->node != 0);
    call->forced = (question->forced != 0);
    call->handler = question->handler;
    call->data = question->data;

    if (question->token != NULL) {
        call->token = *question->token;
        call->node = (call->token.mode == ZKL_NODE);
    }

    timeout = question->timeout;

    if (call->type == ZKL_HOLDER) {

        /* only completes another answer, which must not wait long */

        timeout = ngx_min(timeout, ZKL_PATIENCE);
    }

    /* not cancelable: a worker that leaves tells the client first */

    ngx_add_timer(&call->over, timeout);

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
    call->errand = ZKL_NO_ERRAND;

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


/*
 * While ZooKeeper does not answer, all calls wait but releases, and renewals,
 * whose lease must not end meanwhile.  A release is owed from the moment when
 * the call came, but a worker keeps at most ZKL_UNAWAITED_MAX releases whose
 * clients have left.
 */

static void
zkl_call_begin(zkl_call_t *call)
{
    ngx_uint_t     find;
    zkl_worker_t  *worker;

    worker = call->worker;
    find = (call->token.seq == -1);

    if (!zkl_session_ready(worker->session)
        && (find
            || (call->type != ZKL_RENEW && call->type != ZKL_RELEASE)
            || (call->type == ZKL_RELEASE
                && worker->ncalls - worker->nawaited >= ZKL_UNAWAITED_MAX)))
    {
        call->step = ZKL_STEP_BEGIN;
        return;
    }

    if (find) {
        zkl_call_list(call);
        return;
    }

    if (call->type >= ZKL_LIST && !call->shared) {
        zkl_call_share(call);
        return;
    }

    if (call->type == ZKL_HOLDER) {
        zkl_call_holder(call);

    } else if (call->type >= ZKL_LIST) {
        zkl_call_list(call);

    } else if (call->type == ZKL_REVOKE
               || call->remote
               || call->reply == ZKL_REPLY_COUNTED
               || (call->type == ZKL_RELEASE && call->ninfos != 0)
               || zkl_call_reads_first(call))
    {
        /* a hold or a request may be counted already, or must not be so far */

        zkl_call_inspect(call);

    } else {
        zkl_call_ask(call, NULL);
    }
}


/*
 * Whether the call changes the claim only after a read: while ZooKeeper does
 * not answer, or if the claim is gone, no hold is counted.
 */

static ngx_uint_t
zkl_call_reads_first(zkl_call_t *call)
{
    return call->reply == ZKL_REPLY_NONE
           && (call->type == ZKL_HOLD || call->type == ZKL_DOWNGRADE);
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
    if (call->nops != 0) {
        return;
    }

    switch (call->step) {

    case ZKL_STEP_TURN:
        zkl_call_list(call);
        break;

    case ZKL_STEP_DELETE:

        if (call->tries != 0) {
            zkl_call_inspect(call);
            break;
        }

        /* no delete was sent: the claim's worker can end the claim again */

        call->step = ZKL_STEP_OP;
        zkl_call_ask(call, NULL);
        zkl_call_free(call);
        break;

    case ZKL_STEP_BUMP:
        zkl_call_bump(call);
        break;

    case ZKL_STEP_BEGIN:
        call->step = ZKL_STEP_OP;
        call->asked = ngx_current_msec;
        zkl_call_begin(call);
        break;

    default:
        break;
    }
}


void
zkl_call_unreachable(zkl_call_t *call)
{
    if (call->step == ZKL_STEP_BUMP) {

        /* only the lock's znode is not set so far */

        zkl_call_tell(call, ZKL_CALL_OK);

    } else if (call->look != NULL && call->look->step == ZKL_STEP_TURN
               && zkl_session_ready(call->worker->session))
    {
        zkl_call_tell(call, ZKL_CALL_BUSY);

    } else {
        zkl_call_tell(call, ZKL_CALL_UNREACHABLE);
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
    zkl_call_deaf(call);

    call->nops = 0;
    call->step = ZKL_STEP_OP;

    zkl_call_free(call);
}


static void
zkl_call_timer_handler(ngx_event_t *ev)
{
    zkl_call_t  *call;

    call = ngx_queue_data(ev, zkl_call_t, timer);

    switch (call->step) {

    case ZKL_STEP_SIBLING:
        zkl_call_rung(call);
        break;

    case ZKL_STEP_POLL:
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
 * so that some seconds are not many reads.  If another call was first to write
 * to the claim, this call contends: the moment is random, and does not grow,
 * because otherwise a call that tries for longer would lose against each call
 * that comes later.
 */

static void
zkl_call_poll(zkl_call_t *call, ngx_uint_t contends)
{
    ngx_msec_t  time;

    if (call->handler == NULL) {
        return;
    }

    time = contends ? (ngx_msec_t) ngx_random() % (4 * ZKL_CALL_AGAIN)
                    : (ngx_current_msec - call->asked) / 4;

    call->step = ZKL_STEP_POLL;

    if (!call->timer.timer_set) {
        ngx_add_timer(&call->timer, ngx_min(ZKL_CALL_AGAIN + time,
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

        if (look->step == ZKL_STEP_SENT || look->handler == NULL) {
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

        look = zkl_call_new(worker, call->type, &call->path, NULL);
        if (look == NULL) {
            zkl_call_post(call, ZKL_CALL_FAILED);
            return;
        }

        look->shared = 1;
        look->node = call->node;
        look->step = ZKL_STEP_LOOK;
        look->handler = zkl_call_look_handler;
        look->sn.str = look->path;
        look->sn.node.key = hash;

        worker->nlooking++;

        if (ahead != NULL) {
            ahead->later = look;

        } else {
            zkl_call_look_begin(look);
        }
    }

    call->step = ZKL_STEP_LOOK;
    call->look = look;
    ngx_queue_insert_tail(&look->sharers, &call->turn);
}


/* Begins the look behind the other events of this turn, which may share it. */

static void
zkl_call_look_begin(zkl_call_t *look)
{
    ngx_rbtree_insert(&look->worker->looking, &look->sn.node);

    ngx_post_event(&look->timer, &ngx_posted_events);
}


static void
zkl_call_look_handler(zkl_call_t *look, zkl_answer_e answer)
{
    if (look->step == ZKL_STEP_TURN) {

        /* the worker is about to leave */

        ngx_queue_remove(&look->turn);
    }

    look->step = ZKL_STEP_TELL;

    zkl_call_post(look, answer);
}


/*
 * Tells the calls that share the look: their handlers are called with the look,
 * which has the result.  A client's answer may describe many claims, so a turn
 * of the event loop tells a few calls only.
 */

static void
zkl_call_look_tell(zkl_call_t *look)
{
    ngx_uint_t    n;
    ngx_queue_t  *q;
    zkl_call_t   *call;
    zkl_call_pt   handler;

    for (n = 0; !ngx_queue_empty(&look->sharers); n += 1 + look->nknown) {

        if (n >= ZKL_TOLD_MAX) {
            ngx_post_event(&look->timer, &ngx_posted_next_events);
            return;
        }

        q = ngx_queue_head(&look->sharers);
        ngx_queue_remove(q);

        call = ngx_queue_data(q, zkl_call_t, turn);

        handler = call->handler;
        look->data = call->data;

        call->look = NULL;
        zkl_call_leave(call);

        handler(look, look->answer);
    }

    look->step = ZKL_STEP_OP;
    zkl_call_free(look);
}


/* The look is about to be freed: the next look at the lock begins. */

static void
zkl_call_look_end(zkl_call_t *look)
{
    zkl_call_t      *ahead;
    ngx_queue_t     *q;
    zkl_worker_t    *worker;
    ngx_str_node_t  *sn;

    worker = look->worker;
    worker->nlooking--;

    sn = ngx_str_rbtree_lookup(&worker->looking, &look->path,
                               (uint32_t) look->sn.node.key);

    if (sn == &look->sn) {
        ngx_rbtree_delete(&worker->looking, &look->sn.node);

        if (look->later != NULL) {
            zkl_call_look_begin(look->later);
        }

    } else if (sn != NULL) {

        /* no call needs the look any more, which is another's next look */

        ahead = ngx_queue_data(sn, zkl_call_t, sn);
        ahead->later = NULL;
    }

    if (look->step == ZKL_STEP_TURN) {
        ngx_queue_remove(&look->turn);
    }

    if (!look->looks) {
        return;
    }

    worker->nlooks--;

    /* without a connection the next look waits for zkl_call_connected() */

    if (!ngx_queue_empty(&worker->looks)
        && zkl_session_connected(worker->session))
    {
        q = ngx_queue_head(&worker->looks);

        zkl_call_list(ngx_queue_data(q, zkl_call_t, turn));
    }
}


/*
 * An operation on the claim's znode: what is read is no older than the call,
 * because a server that lags behind may not have the claim yet; what is written
 * is of the version that was read.
 */

static zkl_op_t *
zkl_call_claim_op(zkl_call_t *call, zkl_op_e type, ngx_str_t *value)
{
    u_char      buf[ZKL_CLAIM_MAX];
    zkl_op_t   *op;
    ngx_str_t   name;

    if (call->name.len == 0) {
        name.data = buf;
        name.len = zkl_name_claim_write((char *) buf, &call->token.id,
                                        call->token.mode, call->token.seq);

    } else if (call->node) {
        ngx_str_null(&name);

    } else {
        name = call->name;
    }

    op = zkl_call_op(call, type, &name, value);
    if (op != NULL) {
        op->version = call->version;
        op->fresh = (type == ZKL_OP_GET);
    }

    return op;
}


zkl_op_t *
zkl_call_op(zkl_call_t *call, zkl_op_e type, ngx_str_t *name, ngx_str_t *value)
{
    return zkl_op_new(call->worker->session, type, &call->path, name, value);
}


void
zkl_call_send(zkl_call_t *call, zkl_op_t *op, zkl_op_pt handler)
{
    if (op == NULL) {
        zkl_call_post(call, ZKL_CALL_FAILED);
        return;
    }

    call->nops++;

    zkl_session_send(op, handler, call);
}


void
zkl_call_failed(zkl_call_t *call, zkl_rc_e rc)
{
    if (rc != ZKL_UNSENT && rc != ZKL_UNKNOWN) {
        zkl_call_tell(call, zkl_call_answer(rc));
        return;
    }

    call->recent = 0;

    if (call->handler != NULL) {
        call->step = ZKL_STEP_BEGIN;
    }

    if (call->shared && ngx_queue_empty(&call->sharers)) {
        zkl_call_deaf(call);
    }
}


zkl_answer_e
zkl_call_answer(zkl_rc_e rc)
{
    switch (rc) {

    case ZKL_UNSENT:
    case ZKL_UNKNOWN:
        return ZKL_CALL_UNREACHABLE;

    case ZKL_CHANGED:
        return ZKL_CALL_FOREIGN;

    case ZKL_NO_AUTH:
        return ZKL_CALL_DENIED;

    case ZKL_OVER_QUOTA:
        return ZKL_CALL_NO_ROOM;

    default:
        return ZKL_CALL_FAILED;
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


/*
 * A call ends when the client was told or has left, no operation is under way,
 * and the step owes nothing.
 */

static void
zkl_call_free(zkl_call_t *call)
{
    zkl_call_t  *look;

    if (call->handler != NULL || call->nops != 0) {
        return;
    }

    switch (call->step) {

    case ZKL_STEP_DELETE:
    case ZKL_STEP_BUMP:
    case ZKL_STEP_TELL:
        return;

    case ZKL_STEP_CLAIM:
    case ZKL_STEP_SIBLING:

        if (call->type == ZKL_RELEASE || call->type == ZKL_BREAK) {
            return;
        }

        break;

    default:
        break;
    }

    /* without a session all calls are discarded, and a look may be freed */

    look = call->worker->session ? call->look : NULL;

    if (look != NULL) {
        ngx_queue_remove(&call->turn);

        /* a look that was sent goes on, so that no second look begins beside */

        if (ngx_queue_empty(&look->sharers) && look->step != ZKL_STEP_SENT) {
            zkl_call_leave(look);
        }
    }

    if (call->errand != ZKL_NO_ERRAND) {
        (void) zkl_call_take_back(call);
    }

    if (call->step == ZKL_STEP_CLAIM) {
        ngx_queue_remove(&call->served.listener.queue);
    }

    if (call->timer.timer_set) {
        ngx_del_timer(&call->timer);
    }

    if (call->timer.posted) {
        ngx_delete_posted_event(&call->timer);
    }

    (void) zkl_call_infos(call, 0);

    ngx_free(call->owner.data);

    ngx_queue_remove(&call->queue);
    call->worker->ncalls--;

    if (call->shared && call->worker->session != NULL) {
        zkl_call_look_end(call);
    }

    zkl_worker_busy(call->worker);

    ngx_free(call);
}


/*
 * Reads and writes of a single claim: what the worker of a claim of this
 * gateway replies (ask); a read of the znode (inspect); then the record
 * (known), or the claim data of another gateway's claim (other), and a list if
 * the claim waits; then a set of the claim data, by the version that was read
 * (change).
 */


/*
 * Reads the claim, when ZooKeeper answers.  A read for a delete is sent at
 * once, and again with each zkl_call_connected().
 */

static void
zkl_call_inspect(zkl_call_t *call)
{
    if (call->step != ZKL_STEP_DELETE
        && !zkl_session_ready(call->worker->session))
    {
        call->step = ZKL_STEP_BEGIN;
        return;
    }

    zkl_call_send(call, zkl_call_claim_op(call, ZKL_OP_GET, NULL),
                  zkl_call_inspect_handler);
}


static void
zkl_call_inspect_handler(zkl_op_t *op)
{
    zkl_call_t   *call;
    zkl_found_e   found;
    zkl_record_t  record;

    call = op->data;

    if (op->rc == ZKL_OK && call->node && !zkl_node_asked(call, op)) {
        op->rc = ZKL_NO_NODE;
    }

    if (call->step == ZKL_STEP_DELETE
        && zkl_call_delete_read(call, op) == NGX_OK)
    {
        goto done;
    }

    if (call->handler == NULL) {
        goto done;
    }

    if (op->rc == ZKL_NO_NODE) {
        zkl_call_missing(call);
        goto done;
    }

    if (op->rc != ZKL_OK) {
        zkl_call_failed(call, op->rc);
        goto done;
    }

    if (zkl_call_reads_first(call)) {
        zkl_call_ask(call, NULL);
        goto done;
    }

    /* without the record, because the child is not set so far */

    if (zkl_call_infos(call, 1) != NGX_OK
        || zkl_call_describe(&call->infos[0], op) != NGX_OK)
    {
        zkl_call_tell(call, ZKL_CALL_FAILED);
        goto done;
    }

    call->version = op->version;

    if (call->type == ZKL_REVOKE) {
        zkl_call_change(call);
        goto done;
    }

    call->nknown = 1;
    call->infos[0].child.mode = call->token.mode;
    call->infos[0].child.seq = call->token.seq;

    found = zkl_record_read(call->worker->zone, &call->token.id, &call->path,
                            &record);

    if (call->reply == ZKL_REPLY_COUNTED) {

        zkl_call_note_ttl(&call->infos[0]);

        if (found == ZKL_FOUND) {
            zkl_call_note_record(&call->infos[0], &record);
        }

        call->infos[0].held = 1;
        zkl_call_tell(call, ZKL_CALL_OK);

    } else if (found == ZKL_FOUND && record.seq == call->token.seq
               && record.state != ZKL_RECORD_OPEN
               && call->reply != ZKL_REPLY_ABSENT
               && (op->owner != 0 || zkl_ahead(record.alive)))
    {
        zkl_call_known(call, &record);

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

    if (cdata.index >= 0 && zkl_call_granted(&cdata)) {
        call->place = 0;
        info->held = 1;

        zkl_call_placed(call);

    } else if (call->due && zkl_call_early(call)) {
        zkl_call_poll(call, 0);

    } else {
        zkl_call_list(call);
    }
}


/*
 * No znode has the claim's name: a claim that held the lock alone may share the
 * lock by now, under a reader's name, which stays; otherwise the claim is gone.
 * If an earlier try of a release may have deleted the znode, the claim was
 * released; and a call that dropped a hold is told OK, though the last hold is
 * gone, too.  Any other client is told that the claim is gone, and why: the
 * claim's worker may be about to note the reason.
 */

static void
zkl_call_missing(zkl_call_t *call)
{
    zkl_lock_t    *lock;
    zkl_zone_t    *zone;
    zkl_record_t   record;

    if (call->name.len == 0
        && (call->token.mode == ZKL_MUTEX || call->token.mode == ZKL_WRITE))
    {
        call->token.mode = ZKL_READ;

        zkl_call_inspect(call);
        return;
    }

    zone = call->worker->zone;
    call->nknown = 0;

    if (call->step == ZKL_STEP_DELETE) {

        if (call->tries != 0) {
            zkl_call_deleted(call);
            return;
        }

        call->step = ZKL_STEP_OP;

    } else {

        /* another client may have deleted a claim of this worker */

        lock = zkl_lock_find(call->worker, &call->path);

        if (lock != NULL && lock->nclaims != 0) {
            zkl_lock_list(lock);
        }
    }

    if (call->type == ZKL_RELEASE
        && (call->reply == ZKL_REPLY_COUNTED || call->remote))
    {
        zkl_call_tell(call, ZKL_CALL_OK);

    } else if (call->handler != NULL
               && ngx_current_msec - call->asked < ZKL_SIBLING_WAIT
               && zkl_record_read(zone, &call->token.id, &call->path, &record)
                  == ZKL_FOUND
               && zkl_record_ended(zone, &call->token, &call->path)
                  == ZKL_ENDING_UNKNOWN)
    {
        zkl_call_poll(call, 0);

    } else {
        zkl_call_tell(call, ZKL_CALL_GONE);
    }
}


/*
 * The claim was read, and the claim is held or its place is known.  If the
 * claim is not known to be held, the call waits a while for an async claim that
 * is first, or that the client takes for held, because the claim's worker may
 * be about to write that it has granted the claim; and until a mark that hides
 * the claim data is mended.
 */

static void
zkl_call_placed(zkl_call_t *call)
{
    ngx_uint_t         looks, granted;
    zkl_info_t        *info;
    zkl_claim_data_t   cdata;

    info = &call->infos[0];
    looks = (call->type == ZKL_INSPECT);

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    granted = zkl_call_granted(&cdata);

    if (info->held && (call->pending || (cdata.async && !granted))) {

        /* no claim is ahead, but only the claim's worker grants */

        info->held = 0;
        info->pending = 1;
    }

    if (info->held) {
        zkl_call_note_ttl(info);

        if (looks && !cdata.async) {
            zkl_call_tell(call, ZKL_CALL_OK);

        } else {

            /* INSPECT: no client was told of the grant, but this one is */

            zkl_call_change(call);
        }

        return;
    }

    if (!call->pending
        && (granted || (info->pending && zkl_call_early(call))))
    {
        call->due = info->pending;
        zkl_call_poll(call, 0);
        return;
    }

    if (cdata.async && !call->pending) {

        if (looks && call->grace != 0
            && (call->tries == 0 || cdata.renewals == call->renewals))
        {
            zkl_call_change(call);
            return;
        }

        /*
         * else another call has inspected the claim since, and extended the
         * grace
         */

        if (!looks && zkl_call_early(call)) {
            zkl_call_poll(call, 0);
            return;
        }
    }

    zkl_call_tell(call, looks
                        || call->type == ZKL_RENEW
                        ? ZKL_CALL_OK
                        : ZKL_CALL_WAITS);
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
 * Claims of this gateway.  Only the claim's worker changes the claim: the call
 * asks that worker, and goes on with the reply.  A sibling that stands still,
 * or is dead, does not reply: then the call goes on as at another gateway.
 */


/* newer: claim data with renewals that the record does not have; or NULL. */

static void
zkl_call_ask(zkl_call_t *call, zkl_claim_data_t *newer)
{
    zkl_claim_t   *claim;
    zkl_reply_e    reply;
    zkl_errand_t   errand;
    zkl_record_t   record;
    zkl_worker_t  *worker;

    worker = call->worker;

    if (call->name.len != 0
        || zkl_record_read(worker->zone, &call->token.id, &call->path, &record)
           != ZKL_FOUND
        || record.seq != call->token.seq)
    {
        zkl_call_reply(call, ZKL_REPLY_ABSENT);
        return;
    }

    if (record.czxid != 0
        && (call->type == ZKL_RELEASE || call->type == ZKL_BREAK))
    {
        call->fencing = zkl_fencing_token(record.czxid, record.index);
    }

    ngx_memzero(&errand, sizeof(zkl_errand_t));

    errand.id = call->token.id;
    errand.seq = call->token.seq;
    errand.type = call->type;
    errand.forced = call->forced;
    errand.ttl = call->ttl;
    errand.grace = call->grace;

    if (newer != NULL) {
        errand.ttl = call->ttl ? call->ttl : (ngx_msec_t) newer->ttl;
        errand.version = call->version;
        errand.renewals = newer->renewals;
    }

    reply = ZKL_REPLY_ABSENT;

    claim = zkl_claim_find(worker, &call->token.id, &call->path);

    if (claim != NULL) {
        call->served.call = call;
        reply = zkl_serve(claim, &errand, &call->served);

        if (reply == ZKL_REPLY_LATER) {
            call->step = ZKL_STEP_CLAIM;
            return;
        }

    } else {
        call->errand = zkl_errand_send(worker->zone, record.id.record, &errand);

        if (call->errand != ZKL_NO_ERRAND) {
            worker->asked[call->errand] = call;

            call->step = ZKL_STEP_SIBLING;
            ngx_add_timer(&call->timer, ZKL_SIBLING_WAIT);
            return;
        }
    }

    zkl_call_reply(call, reply);
}


/*
 * The sibling has replied, or does not: it stands still, or is dead.  What the
 * sibling has not begun never happens.  A release that it has begun may have
 * deleted the claim, which another try then finds missing; but a hold that it
 * may have counted must not be counted twice.
 */

void
zkl_call_rung(zkl_call_t *call)
{
    ngx_uint_t   state;
    zkl_reply_e  reply;

    state = zkl_call_take_back(call);
    reply = ZKL_REPLY_ABSENT;

    if (state >= ZKL_ERRAND_REPLIED) {
        reply = state - ZKL_ERRAND_REPLIED;

    } else if (state == ZKL_ERRAND_COUNTS) {
        reply = ZKL_REPLY_ANSWER + ZKL_CALL_UNREACHABLE;
    }

    call->tries += (state == ZKL_ERRAND_ENDS);

    zkl_call_replied(call, reply);
}


static ngx_uint_t
zkl_call_take_back(zkl_call_t *call)
{
    ngx_uint_t  n;

    n = call->errand;

    call->worker->asked[n] = NULL;
    call->errand = ZKL_NO_ERRAND;

    if (call->timer.timer_set) {
        ngx_del_timer(&call->timer);
    }

    return zkl_errand_free(call->worker->zone, n);
}


void
zkl_call_replied(zkl_call_t *call, zkl_reply_e reply)
{
    zkl_call_reply(call, reply);
    zkl_call_free(call);
}


/* Goes on with the reply; ABSENT: the claim's worker does nothing. */

static void
zkl_call_reply(zkl_call_t *call, zkl_reply_e reply)
{
    call->step = ZKL_STEP_OP;
    call->reply = reply;

    if (reply == ZKL_REPLY_COUNTED
        || reply == ZKL_REPLY_ANSWER + ZKL_CALL_UNREACHABLE)
    {
        /* of a release: a hold, which may be counted: an end is always told */

        call->served.done = ZKL_REPLY_COUNTED;
    }

    if (reply == ZKL_REPLY_COUNTED && call->type == ZKL_HOLD) {

        /* what is left to do may be repeated */

        call->type = ZKL_RENEW;
        call->reply = ZKL_REPLY_OK;
    }

    if (reply >= ZKL_REPLY_ANSWER
        && (reply != ZKL_REPLY_ANSWER + ZKL_CALL_UNREACHABLE
            || call->type != ZKL_RENEW))
    {
        zkl_call_post(call, reply - ZKL_REPLY_ANSWER);
        return;
    }

    if ((call->type == ZKL_RELEASE || call->type == ZKL_BREAK)
        && reply != ZKL_REPLY_COUNTED)
    {
        if (reply != ZKL_REPLY_ABSENT) {
            zkl_call_post(call, ZKL_CALL_OK);
            return;
        }

        call->step = ZKL_STEP_DELETE;
    }

    /*
     * UNREACHABLE: another session may count the lease, and a renewal may be
     * repeated.
     */

    zkl_call_inspect(call);
}


/* The claim is this gateway's, and the znode was read just now. */

static void
zkl_call_known(zkl_call_t *call, zkl_record_t *record)
{
    ngx_uint_t        newer;
    zkl_info_t       *info;
    zkl_claim_data_t  cdata;

    info = &call->infos[0];

    zkl_call_note_record(info, record);

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    if (record->state == ZKL_RECORD_WAITING) {

        if (call->reply == ZKL_REPLY_OK) {
            zkl_call_poll(call, 0);
            return;
        }

        /* if the grace is over, only a write of the data keeps the claim */

        call->pending = (call->reply != ZKL_REPLY_OVER || !cdata.async);
        zkl_call_list(call);
        return;
    }

    call->pending = 0;

    if (record->state != ZKL_RECORD_HELD) {
        zkl_call_tell(call, ZKL_CALL_GONE);
        return;
    }

    if (call->reply == ZKL_REPLY_WAITS
        || (call->type == ZKL_INSPECT && record->durable && !info->durable
            && zkl_call_early(call)))
    {
        /* granted since; or the data do not have the ttl of a renewal yet */

        zkl_call_poll(call, 0);
        return;
    }

    /* the record may not have another gateway's renewal yet */

    newer = (cdata.renewals > record->renewals);

    if (call->remote || call->type == ZKL_DOWNGRADE
        || (call->reply == ZKL_REPLY_OVER && newer
            && call->type != ZKL_INSPECT))
    {
        /* another gateway may have renewed the lease that was over here */

        zkl_call_change(call);
        return;
    }

    if (call->type == ZKL_RENEW && call->reply == ZKL_REPLY_OK
        && !info->endless && (newer || record->ttl < call->ttl))
    {
        /* another gateway's renewal came before this one */

        zkl_call_ask(call, newer ? &cdata : NULL);
        return;
    }

    if (call->type == ZKL_INSPECT && newer) {
        zkl_call_note_ttl(info);
        info->timed = 0;
        call->reply = ZKL_REPLY_OK;
    }

    if (record->lease == 0 && !newer) {
        zkl_call_tell(call, ZKL_CALL_GONE);

    } else if (call->reply == ZKL_REPLY_OVER || !zkl_ahead(record->alive)) {

        /*
         * The lease was renewed since; or the worker may learn in a moment that
         * the claim's session lives.
         */

        zkl_call_poll(call, 0);

    } else {
        zkl_call_tell(call, ZKL_CALL_OK);
    }
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
    zkl_lock_t   *lock;

    lock = zkl_lock_find(call->worker, &call->path);
    first = lock ? zkl_view_first(&lock->view) : NULL;

    if (first == NULL || call->node) {
        zkl_call_list(call);
        return;
    }

    zkl_lock_name(first, &name, buf);

    if (zkl_call_infos(call, 1) != NGX_OK
        || zkl_call_copy(call, &call->infos[0].name, &name) != NGX_OK)
    {
        zkl_call_post(call, ZKL_CALL_FAILED);
        return;
    }

    (void) zkl_name_child_read(&call->infos[0].child, (char *) name.data,
                               name.len);

    call->infos[0].held = 1;
    call->total = 1;
    call->holders = 1;

    zkl_call_read(call);
}


static void
zkl_call_list(zkl_call_t *call)
{
    zkl_op_t      *op;
    zkl_worker_t  *worker;

    worker = call->worker;

    if (call->node && call->ninfos != 0) {

        /* the claim was read, and is the lock's only claim */

        call->place = 0;
        call->infos[0].held = 1;
        zkl_call_placed(call);
        return;
    }

    if (call->node && call->shared) {
        call->step = ZKL_STEP_SENT;
        zkl_node_look(call);
        return;
    }

    if (call->shared) {

        if (!call->looks && worker->nlooks >= ZKL_LOOKS_MAX) {

            if (call->step != ZKL_STEP_TURN) {
                call->step = ZKL_STEP_TURN;
                ngx_queue_insert_tail(&worker->looks, &call->turn);
            }

            return;
        }

        if (call->step == ZKL_STEP_TURN) {
            ngx_queue_remove(&call->turn);
        }

        worker->nlooks += !call->looks;
        call->looks = 1;
        call->step = ZKL_STEP_SENT;
    }

    op = zkl_call_op(call, ZKL_OP_LIST, NULL, NULL);
    if (op != NULL) {
        op->turn = call->shared ? ZKL_TURN_LOOK : ZKL_TURN_CLAIM;
        op->fresh = !call->recent;
    }

    zkl_call_send(call, op, zkl_call_list_handler);
}


static void
zkl_call_list_handler(zkl_op_t *op)
{
    ngx_uint_t   i;
    zkl_child_t  child;
    zkl_call_t  *call;

    call = op->data;

    if (call->handler == NULL && call->token.seq != -1) {
        goto done;
    }

    /* op->rc stays, because others may share the list */

    if (op->rc != ZKL_OK && op->rc != ZKL_NO_NODE) {
        zkl_call_failed(call, op->rc);
        goto done;
    }

    if (call->token.seq == -1) {

        /* only the key is known: finds the oldest claim that has the key */

        for (i = 0; i < op->nchildren; i++) {

            if (zkl_call_child(op, i, &child)
                && child.has_id
                && zkl_name_secret_equal(child.id.random,
                                         call->token.id.random, ZKL_KEY)
                && (call->token.seq == -1 || child.seq < call->token.seq))
            {
                call->token.id = child.id;
                call->token.seq = child.seq;
                call->token.mode = child.mode;
            }
        }

        if (call->token.seq == -1) {
            zkl_call_tell(call, ZKL_CALL_GONE);

        } else {
            zkl_call_begin(call);
        }

        goto done;
    }

    if (call->type < ZKL_LIST) {

        /* the claim was read; only the place was missing */

        if (zkl_call_count(call, op) != NGX_OK) {
            zkl_call_missing(call);

        } else {
            zkl_call_placed(call);
        }

    } else if (zkl_call_sort(call, op) != NGX_OK) {
        zkl_call_tell(call, ZKL_CALL_FAILED);

    } else if (call->ninfos == 0) {
        zkl_call_tell(call, ZKL_CALL_FREE);

    } else if (call->type == ZKL_COUNT) {
        zkl_call_tell(call, ZKL_CALL_OK);

    } else {
        zkl_call_read(call);
    }

done:

    zkl_call_op_end(call);
}


/* Reads the name of a listed child; 0: the child is no claim. */

static ngx_uint_t
zkl_call_child(zkl_op_t *op, ngx_uint_t i, zkl_child_t *child)
{
    ngx_str_t  *name;

    name = &op->children[i];

    return zkl_name_child_read(child, (char *) name->data, name->len) == 0;
}


/* Counts the claims ahead; NGX_DECLINED if the claim asked for is gone. */

static ngx_int_t
zkl_call_count(zkl_call_t *call, zkl_op_t *op)
{
    int64_t      writer;
    ngx_uint_t   i, own, there, mixes, ahead, blocks, readers, capacity;
    ngx_uint_t   misnumbered;
    zkl_child_t  child;

    ahead = 0;
    blocks = 0;
    readers = 0;
    there = 0;
    mixes = 1;

    writer = call->token.seq;

    for (i = 0; i < op->nchildren; i++) {

        if (!zkl_call_child(op, i, &child)) {
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
        blocks += zkl_view_blocks(child.mode, call->token.mode);

        if (child.mode != ZKL_READ && child.seq < writer) {
            writer = child.seq;
        }
    }

    /* the readers ahead of the first claim that is no reader share the lock */

    for (i = 0; i < op->nchildren; i++) {
        readers += (zkl_call_child(op, i, &child)
                    && child.mode == ZKL_READ && child.seq < writer);
    }

    capacity = zkl_view_capacity(call->token.mode);

    /* a single claim of another use ahead blocks the claim */

    call->infos[0].held = (mixes && blocks < capacity);
    call->place = zkl_place(ahead, ngx_max(readers, capacity));

    return there ? NGX_OK : NGX_DECLINED;
}


/*
 * Puts the children in order, sets which claims hold the lock, and a hash that
 * changes with the claims; infos gets the claims that the call describes.
 */

static ngx_int_t
zkl_call_sort(zkl_call_t *call, zkl_op_t *op)
{
    uint32_t        crc, sum;
    ngx_int_t       rc;
    ngx_str_t      *name;
    ngx_uint_t      i, n, max;
    zkl_info_t     *infos;
    zkl_holders_t   holders;

    infos = ngx_alloc((op->nchildren + 1) * sizeof(zkl_info_t),
                      call->worker->log);
    if (infos == NULL) {
        return NGX_ERROR;
    }

    for (i = 0, n = 0; i < op->nchildren; i++) {

        if (zkl_call_child(op, i, &infos[n].child)) {
            infos[n++].name = op->children[i];
        }
    }

    ngx_qsort(infos, n, sizeof(zkl_info_t), zkl_call_compare);

    call->total = n;
    call->holders = 0;

    ngx_memzero(&holders, sizeof(zkl_holders_t));
    sum = 0;

    ngx_crc32_init(crc);

    for (i = 0; i < n; i++) {
        name = &infos[i].name;

        infos[i].held = zkl_view_count(&holders, infos[i].child.mode);

        if (infos[i].held) {
            call->holders++;
            call->last = infos[i].child.seq;
        }

        ngx_crc32_update(&crc, name->data, name->len);
        sum = ngx_murmur_hash2(name->data, name->len) + sum * 31;
    }

    ngx_crc32_final(crc);

    call->etag = (uint64_t) crc << 32 | sum;

    /* all holders are described, if there are not very many */

    max = ngx_min(call->holders, ZKL_MEMBERS_MAX);

    if (call->type == ZKL_LIST) {
        max = ngx_max(max, ZKL_LIST_MAX);

    } else if (call->type != ZKL_HOLDERS) {
        max = 1;
    }

    n = ngx_min(n, max);

    rc = zkl_call_infos(call, n);

    for (i = 0; rc == NGX_OK && i < n; i++) {
        call->infos[i].child = infos[i].child;
        call->infos[i].held = infos[i].held;

        rc = zkl_call_copy(call, &call->infos[i].name, &infos[i].name);
    }

    ngx_free(infos);

    return rc;
}


static int ngx_libc_cdecl
zkl_call_compare(const void *one, const void *two)
{
    const zkl_info_t  *a, *b;

    a = one;
    b = two;

    return (a->child.seq > b->child.seq) - (a->child.seq < b->child.seq);
}


/* Reads the next claims, a few at a time. */

static void
zkl_call_read(zkl_call_t *call)
{
    zkl_op_t    *op;
    zkl_info_t  *info;

    while (call->next < call->ninfos && call->nops <= ZKL_READS_MAX) {
        info = &call->infos[call->next];

        op = zkl_call_op(call, ZKL_OP_GET, &info->name, NULL);
        if (op == NULL) {
            zkl_call_tell(call, ZKL_CALL_FAILED);
            return;
        }

        op->turn = call->looks ? ZKL_TURN_LOOK : ZKL_TURN_NONE;

        call->next++;
        call->nops++;

        zkl_session_send(op, zkl_call_read_handler, info);
    }
}


static void
zkl_call_read_handler(zkl_op_t *op)
{
    zkl_call_t  *call;
    zkl_info_t  *info;

    info = op->data;
    call = info->call;

    if (call->handler == NULL || call->step == ZKL_STEP_BEGIN) {
        goto done;
    }

    if (op->rc == ZKL_UNKNOWN || op->rc == ZKL_UNSENT
        || (!call->looks && op->rc != ZKL_OK && op->rc != ZKL_NO_NODE))
    {
        zkl_call_failed(call, op->rc);
        goto done;
    }

    if (op->rc == ZKL_OK && zkl_call_describe(info, op) != NGX_OK) {
        zkl_call_tell(call, ZKL_CALL_FAILED);
        goto done;
    }

    /* NO_NODE: the claim is gone; NO_AUTH: the ACL hides the claim data */

    if (op->rc == ZKL_NO_AUTH) {
        info->known = 1;
    }

    zkl_call_read(call);

    if (call->nops == 1 && call->handler != NULL) {
        zkl_call_found(call);
    }

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

        /* zkl_call_infos() frees the claims at the end */

        gone = call->infos[n];
        call->infos[n++] = call->infos[i];
        call->infos[i] = gone;
    }

    /* the claim that is first by now holds the lock */

    if (n != 0 && call->holders == 0) {
        call->infos[0].held = 1;
        call->holders = 1;
        call->last = call->infos[0].child.seq;

        if (!call->infos[0].timed) {
            zkl_call_note_ttl(&call->infos[0]);
        }
    }

    call->nknown = n;

    if (n != 0) {
        zkl_call_tell(call, ZKL_CALL_OK);

    } else if (++call->tries < ZKL_LOOK_TRIES) {

        /* the lock need not be free: other claims may have come meanwhile */

        zkl_call_list(call);

    } else if (call->type == ZKL_HOLDERS && call->total != 0) {

        /*
         * The lock changes hands all the time: the claim that is first by now
         * holds the lock, and was not read.
         */

        call->holders = 1;
        zkl_call_tell(call, ZKL_CALL_OK);

    } else {
        zkl_call_tell(call, call->type == ZKL_FIRST ? ZKL_CALL_OK
                                                    : ZKL_CALL_FREE);
    }
}


ngx_int_t
zkl_call_describe(zkl_info_t *info, zkl_op_t *op)
{
    zkl_call_t    *call;
    zkl_record_t   record;

    call = info->call;

    info->known = 1;
    info->durable = (op->owner == 0);
    info->czxid = op->czxid;
    info->since = (time_t) (op->ctime / 1000);

    if (zkl_call_copy(call, &info->cdata, &op->reply) != NGX_OK) {
        return NGX_ERROR;
    }

    if (info->child.has_id
        && zkl_record_read(call->worker->zone, &info->child.id, &call->path,
                           &record)
           == ZKL_FOUND)
    {
        zkl_call_note_record(info, &record);
    }

    if (info->held && !info->timed) {
        zkl_call_note_ttl(info);
    }

    return NGX_OK;
}


ngx_int_t
zkl_call_copy(zkl_call_t *call, ngx_str_t *to, ngx_str_t *from)
{
    if (from->len == 0) {
        return NGX_OK;
    }

    to->data = ngx_alloc(from->len, call->worker->log);
    if (to->data == NULL) {
        return NGX_ERROR;
    }

    to->len = from->len;
    ngx_memcpy(to->data, from->data, from->len);

    return NGX_OK;
}


/* For another gateway's claim: only that gateway knows when the lease ends. */

static void
zkl_call_note_ttl(zkl_info_t *info)
{
    zkl_claim_data_t  cdata;

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    info->ttl = (cdata.ttl > 0 && !info->endless) ? (ngx_msec_t) cdata.ttl : 0;
    info->holds = cdata.holds;
}


/*
 * Of a durable claim no longer ttl is told than the claim data have: the record
 * has a renewal's while the write is under way, and the next session to count
 * the lease knows only the data.  The data that the reply waited for may be
 * newer than those that were read.
 */

static void
zkl_call_note_record(zkl_info_t *info, zkl_record_t *record)
{
    int64_t           ttl;
    zkl_call_t       *call;
    ngx_msec_int_t    left;
    zkl_claim_data_t  cdata;

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

    if (record->durable) {
        call = info->call;

        zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

        ttl = cdata.ttl;

        if (call->reply == ZKL_REPLY_OK || call->reply == ZKL_REPLY_COUNTED) {
            ttl = ngx_max(ttl, (int64_t) call->ttl);
        }

        if (ttl > 0) {
            info->ttl = (ngx_msec_t) ngx_min((int64_t) record->ttl, ttl);
        }
    }

    /* a client is told the ttl at most, even if the grace is longer */

    info->expires = (left > 0) ? ngx_min((ngx_msec_t) left, info->ttl) : 0;
    info->timed = 1;
}


ngx_int_t
zkl_call_infos(zkl_call_t *call, ngx_uint_t n)
{
    ngx_uint_t  i;

    for  (i = 0; i < call->ninfos; i++) {
        ngx_free(call->infos[i].cdata.data);
        ngx_free(call->infos[i].name.data);
    }

    ngx_free(call->infos);

    call->infos = NULL;
    call->ninfos = 0;
    call->next = 0;

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
 * A release that the claim's worker has not carried out, because the claim is
 * another gateway's, or that worker does not reply.  The worker repeats an
 * unconfirmed delete until ZooKeeper confirms the delete, also when the client
 * was told 503 and has left.
 *
 * The gateway whose claim is deleted may have more claims in the same queue,
 * and no reason to list the lock.  But every gateway with claims of the lock
 * watches the lock's znode: the transaction that deletes the claim sets the
 * lock's znode to the present data, so that all these gateways list the lock.
 *
 * A znode with data is set by the version that was read.  If another writer has
 * set it since, the transaction fails, and the session sends its parts alone:
 * the delete succeeds, and the set does not.  Then the call sets the znode
 * behind the delete, and tells the client afterwards.  Told before, the client
 * could be refused at the claim's gateway, which takes the claim for held; for
 * seconds, if this worker dies before the set.  And a gateway that lists the
 * lock between the two queues a waiter again that was cancelled.
 */


/*
 * The claim that is to be deleted was read, or could not be: goes on with the
 * delete.  NGX_DECLINED: a claim with several holds is not deleted, because the
 * claim's gateway counts; the call goes on with what was read.
 */

static ngx_int_t
zkl_call_delete_read(zkl_call_t *call, zkl_op_t *op)
{
    zkl_claim_data_t  cdata;

    if (op->rc == ZKL_NO_NODE) {
        zkl_call_missing(call);
        return NGX_OK;
    }

    if (op->rc == ZKL_UNKNOWN || op->rc == ZKL_UNSENT) {
        return NGX_OK;
    }

    if (op->rc != ZKL_OK && call->node) {
        zkl_call_failed(call, op->rc);
        call->step = ZKL_STEP_OP;
        return NGX_OK;
    }

    if (op->rc != ZKL_OK) {

        /* a gateway may delete a znode that the gateway may not read */

        op->version = -1;
    }

    zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);
    zkl_journal_read(call, op);

    call->version = op->version;

    if (call->node) {

        /* by version, because the znode may be another claim's by now */

        zkl_call_send(call, zkl_call_claim_op(call, ZKL_OP_DELETE, NULL),
                      zkl_call_delete_handler);
        return NGX_OK;
    }

    if (call->type == ZKL_BREAK) {
        call->version = -1;

    } else if ((cdata.index >= 0 && cdata.holds > 1)
               || (cdata.index < 0 && cdata.revoke))
    {
        /* a mark of Curator's may hide several holds */

        call->step = ZKL_STEP_OP;
        return NGX_DECLINED;
    }

    zkl_call_bump(call);

    return NGX_OK;
}


/*
 * Sets the lock's znode to the present data, with or behind a change of a
 * claim: all gateways with claims of the lock list the lock.  Without memory
 * the sweep tries again, if the set is owed.
 */

static void
zkl_call_bump(zkl_call_t *call)
{
    zkl_op_t  *get;

    if (call->node) {

        /* a claim that is the lock's znode has no other claims beside */

        zkl_call_bumped(call, ZKL_OK);
        return;
    }

    get = zkl_call_op(call, ZKL_OP_GET, NULL, NULL);

    if (get != NULL) {
        get->whole = 1;
        zkl_call_send(call, get, zkl_call_parent_handler);
    }
}


/* Sets the lock's znode to the data that were read: alone, or with a delete. */

static void
zkl_call_parent_handler(zkl_op_t *op)
{
    zkl_rc_e     rc;
    zkl_op_t    *set, *delete;
    zkl_call_t  *call;

    call = op->data;
    delete = NULL;
    set = NULL;
    rc = op->rc;

    if (call->step == ZKL_STEP_DELETE) {

        if (rc == ZKL_UNKNOWN || rc == ZKL_UNSENT) {
            goto done;
        }

        delete = zkl_call_claim_op(call, ZKL_OP_DELETE, NULL);
        if (delete == NULL) {
            goto done;
        }
    }

    if (rc == ZKL_OK && !op->cut) {
        rc = ZKL_UNSENT;
        set = zkl_call_op(call, ZKL_OP_SET, NULL, &op->reply);
    }

    if (delete != NULL) {
        delete->gather = (set != NULL);
        zkl_call_send(call, delete, zkl_call_delete_handler);
    }

    if (set != NULL) {

        /* no data can be lost, and the set does not fail if others set, too */

        set->version = op->reply.len ? op->version : -1;
        set->gather = (delete != NULL);
        zkl_call_send(call, set, zkl_call_bump_handler);

    } else {
        zkl_call_bumped(call, rc);
    }

done:

    zkl_call_op_end(call);
}


/*
 * Of two sets at once the second fails: the call sets the znode again, because
 * the first may have been ahead of the delete.
 */

static void
zkl_call_bump_handler(zkl_op_t *op)
{
    zkl_call_t  *call;

    call = op->data;

    if (call->step == ZKL_STEP_BUMP && op->rc == ZKL_CHANGED) {
        zkl_call_bump(call);

    } else {
        zkl_call_bumped(call, op->rc);
    }

    zkl_call_op_end(call);
}


/*
 * The lock's znode is set, or cannot be set: a release is told.  If it is not
 * known whether the znode is set, the call sets the znode again with the next
 * connection, or with the sweep.
 */

static void
zkl_call_bumped(zkl_call_t *call, zkl_rc_e rc)
{
    if (call->step == ZKL_STEP_BUMP && rc != ZKL_UNKNOWN && rc != ZKL_UNSENT) {
        call->step = ZKL_STEP_OP;
        zkl_call_tell(call, ZKL_CALL_OK);
    }
}


static void
zkl_call_delete_handler(zkl_op_t *op)
{
    zkl_call_t  *call;

    call = op->data;

    switch (op->rc) {

    case ZKL_OK:
        zkl_journal_deleted(call);
        zkl_call_deleted(call);
        break;

    case ZKL_NO_NODE:
        zkl_call_missing(call);
        break;

    case ZKL_CHANGED:

        /* the claim was renewed, or has several holds by now */

        zkl_call_inspect(call);
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


/*
 * The claim is gone: the client is told when the lock's znode is set.  A set
 * whose answer has come already was ahead of the delete, and does not count.
 */

static void
zkl_call_deleted(zkl_call_t *call)
{
    call->step = ZKL_STEP_BUMP;

    if (call->nops == 1) {
        zkl_call_bump(call);
    }
}


/*
 * Writes to the claim data, by the version that was read.
 *
 * A renewal is a write that counts up the renewals: the claim's gateway watches
 * a claim that is held for some time, and of any other claim sees the new count
 * when the known lease is over.
 *
 * Only the claim's gateway can count a hold or share the claim.  So the call
 * writes a remote request into the claim data, sets the lock's znode, which
 * that gateway watches, to the present data, and reads the claim until that
 * gateway has taken the request out.  A request may be carried out after the
 * call's timeout: the client is told that the outcome is not known.
 */


/*
 * Writes what was read into infos[0] with what the call changes.  A holder is
 * asked to let go by the claim data of a gateway's claim, else by Curator's
 * mark, which only recipes with a queue know.
 */

static void
zkl_call_change(zkl_call_t *call)
{
    char               text[ZKL_CLAIM_DATA_MAX];
    size_t             index_at;
    ngx_str_t          value;
    ngx_uint_t         renews, revokes, shares, asks;
    zkl_info_t        *info;
    zkl_claim_data_t   cdata;

    info = &call->infos[0];
    revokes = (call->type == ZKL_REVOKE);
    shares = (call->type == ZKL_DOWNGRADE);
    renews = (call->type == ZKL_RENEW || call->type == ZKL_INSPECT);
    asks = (!renews && !revokes);

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    if ((revokes && cdata.revoke) || (shares && call->token.mode == ZKL_READ)) {
        zkl_call_tell(call, ZKL_CALL_OK);
        return;
    }

    if (shares
        && call->token.mode != ZKL_MUTEX && call->token.mode != ZKL_WRITE)
    {
        zkl_call_tell(call, ZKL_CALL_CONFLICT);
        return;
    }

    if (shares && call->reply != ZKL_REPLY_ABSENT) {

        /* until the znode has a reader's name */

        zkl_call_poll(call, 0);
        return;
    }

    if (cdata.index < 0 && !cdata.revoke && (!revokes || call->node)) {

        /* the claim is no gateway's, and must not be written to */

        zkl_call_tell(call, ZKL_CALL_FOREIGN);
        return;
    }

    if (call->remote) {

        if (shares || cdata.index < 0 || cdata.want_len != 0) {
            zkl_call_poll(call, 0);
            return;
        }

        /*
         * The gateway that carries out a request writes the claim data without
         * the request.  So does the gateway that mends a mark, which a Curator
         * client may have written over a request that the gateway had not read:
         * then the outcome is not known.
         */

        zkl_call_tell(call, cdata.mended == call->mended
                            ? ZKL_CALL_OK
                            : ZKL_CALL_UNREACHABLE);
        return;
    }

    /* the claim data have room for one request; a mark is mended first */

    if ((cdata.index < 0 && !revokes) || (asks && cdata.want_len != 0)) {
        zkl_call_poll(call, 1);
        return;
    }

    if (call->tries == 0) {
        call->renewals = cdata.renewals;
    }

    /*
     * A grant that was seen counts as a renewal: this client is told the whole
     * ttl, and the claim's worker may have told an earlier client.
     */

    cdata.renewals += (renews || call->type == ZKL_HOLD
                       || (asks && cdata.async));
    cdata.async = cdata.async && !info->held;
    cdata.revoke |= revokes;

    if (call->ttl != 0) {
        cdata.ttl = (int64_t) call->ttl;
    }

    if (info->held) {

        if (cdata.gate_len != 0) {

            /* the longest ttl told: a gateway that takes over knows no other */

            cdata.ttl = ngx_max(cdata.ttl, (int64_t) info->ttl);
        }

        info->ttl = (ngx_msec_t) cdata.ttl;
    }

    if (asks) {
        zkl_call_want(call, &cdata);
    }

    if (cdata.index >= 0) {
        value.len = zkl_claim_data_write(text, &cdata, &index_at);
        value.data = (u_char *) text;

    } else {
        ngx_str_set(&value, ZKL_REVOKE_MARK);
    }

    zkl_call_send(call, zkl_call_claim_op(call, ZKL_OP_SET, &value),
                  zkl_call_write_handler);
}


/* Puts the remote request into the claim data. */

static void
zkl_call_want(zkl_call_t *call, zkl_claim_data_t *cdata)
{
    u_char  *p;

    p = (u_char *) cdata->want;

    if (call->type == ZKL_DOWNGRADE) {
        p = ngx_sprintf(p, "shared");

    } else {

        /* a number lets the claim's gateway tell two requests apart */

        p = ngx_sprintf(p, "%s-%08xD",
                        call->type == ZKL_HOLD ? "hold" : "drop",
                        (uint32_t) ngx_random());
    }

    *p = '\0';

    cdata->want_len = p - (u_char *) cdata->want;
    call->mended = cdata->mended;
}


static void
zkl_call_write_handler(zkl_op_t *op)
{
    ngx_uint_t   renews, asks;
    zkl_call_t  *call;
    zkl_info_t  *info;

    call = op->data;
    info = &call->infos[0];

    renews = (call->type == ZKL_RENEW || call->type == ZKL_INSPECT);
    asks = (!renews && call->type != ZKL_REVOKE);

    switch (op->rc) {

    case ZKL_OK:

        if (!renews) {
            zkl_call_bump(call);
        }

        if (asks) {
            call->remote = 1;
            zkl_call_poll(call, 0);
            break;
        }

        if (info->held) {
            info->expires = info->ttl;
            info->timed = 1;
        }

        zkl_call_tell(call, ZKL_CALL_OK);
        break;

    case ZKL_NO_NODE:
        zkl_call_missing(call);
        break;

    case ZKL_CHANGED:

        if (!asks && call->handler != NULL && ++call->tries < ZKL_SET_TRIES) {
            zkl_call_inspect(call);

        } else {
            zkl_call_poll(call, 1);
        }

        break;

    case ZKL_UNKNOWN:

        if (call->type == ZKL_HOLD || call->type == ZKL_RELEASE) {

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
