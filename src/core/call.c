
/*
 * Asks: their life, and what all of them use.
 *
 * A claim may be this worker's, a sibling's, or another gateway's.  Its token
 * leads to the record of the first two; for all others ZooKeeper is asked.
 * What is told as held was seen in ZooKeeper behind a write that was sent after
 * the call had come, so that no other claim can have been granted before.
 *
 * An ask waits for ZooKeeper until its time is over: while ZooKeeper does not
 * answer the ask is not begun, and one whose operation had no answer begins
 * again.  At the end of that time the caller is told that ZooKeeper is out of
 * reach; sooner only if the answer to a write was lost that must not be
 * repeated.  A release is begun at once, since it is owed.
 *
 * Everything here runs on the event loop.  An ask is freed when it was told
 * and nothing is under way for it; its handler is NULL when who asked has left.
 */


#include "core/call.h"
#include "core/node.h"


/* how soon a claim is read again, and how late at most, milliseconds */
#define ZKL_CALL_AGAIN                15
#define ZKL_CALL_SELDOM               500

/*
 * How many asks of a worker list a lock at a time: one that describes a long
 * line takes some 2 KB for each claim, and watchers look all at once.
 */
#define ZKL_LOOKS_MAX                 32

/* how many releases a worker repeats by itself, when nobody waits for them */
#define ZKL_DEBTS_MAX                 4096

/* how often a set is tried while other writers change the znode's data */
#define ZKL_SET_TRIES                     5

/* how many claims an ask reads at a time */
#define ZKL_READS_MAX                 64

/* how often an ask lists the claims, if all are gone before the reads */
#define ZKL_LOOK_TRIES                10

/* how long a sibling may take to release, milliseconds */
#define ZKL_SIBLING_WAIT                  500

/* how soon a record is read again that is to tell, milliseconds */
#define ZKL_MISSING_AGAIN                 15

/* how often a lock's znode is set against others, as all releases meet on it */
#define ZKL_TOUCHES_MAX                   50

/* what Curator's Revoker writes (Revoker.REVOKE_MESSAGE) */
#define ZKL_REVOKE_MARK               "__REVOKE__"


static ngx_msec_t zkl_call_time(zkl_question_t *question);
static void zkl_call_begin(zkl_call_t *ask);
static void zkl_call_deaf(zkl_call_t *ask);
static void zkl_call_over_handler(ngx_event_t *ev);
static void zkl_call_bell_handler(zkl_subscription_t *bell);
static void zkl_call_timer_handler(ngx_event_t *ev);
static void zkl_call_poll(zkl_call_t *ask);
static ngx_int_t zkl_call_turn(zkl_call_t *ask);
static void zkl_call_turn_over(zkl_call_t *ask);
static ngx_int_t zkl_call_rename(zkl_call_t *ask);
static void zkl_call_name(zkl_call_t *ask, ngx_str_t *name, u_char *buf);
static void zkl_call_send(zkl_call_t *ask, zkl_op_t *op);
static void zkl_call_post(zkl_call_t *ask, zkl_answer_e answer);
static void zkl_call_free(zkl_call_t *ask);
static void zkl_call_find(zkl_call_t *ask);
static void zkl_call_find_handler(zkl_op_t *op);
static void zkl_call_inspect(zkl_call_t *ask);
static void zkl_call_inspect_handler(zkl_op_t *op);
static void zkl_call_gone(zkl_call_t *ask);
static void zkl_call_placed(zkl_call_t *ask);
static void zkl_call_waits(zkl_call_t *ask, zkl_claim_data_t *label);
static void zkl_call_set(zkl_call_t *ask);
static void zkl_call_set_handler(zkl_op_t *op);
static ngx_int_t zkl_call_own(zkl_call_t *ask, zkl_record_t *record);
static void zkl_call_renew(zkl_call_t *ask);
static ngx_int_t zkl_call_prolong(zkl_call_t *ask);
static void zkl_call_known(zkl_call_t *ask, zkl_record_t *record);
static void zkl_call_keep(zkl_call_t *ask, zkl_record_t *record);
static zkl_answer_e zkl_call_held(zkl_call_t *ask, zkl_record_t *record);
static ngx_int_t zkl_call_extend(zkl_call_t *ask, zkl_record_t *record);
static void zkl_call_more(zkl_call_t *ask, zkl_record_t *record);
static uint32_t zkl_call_renewals(zkl_call_t *ask);
static ngx_uint_t zkl_call_endless(zkl_record_t *record);
static void zkl_call_holder(zkl_call_t *ask);
static void zkl_call_holder_handler(zkl_op_t *op);
static void zkl_call_list(zkl_call_t *ask);
static void zkl_call_list_handler(zkl_op_t *op);
static ngx_int_t zkl_call_count(zkl_call_t *ask, zkl_op_t *op);
static ngx_uint_t zkl_call_readers(zkl_op_t *op, int64_t writer);
static ngx_int_t zkl_call_sort(zkl_call_t *ask, zkl_op_t *op);
static void zkl_call_state(zkl_call_t *ask, zkl_info_t *infos, ngx_uint_t n);
static int ngx_libc_cdecl zkl_call_compare(const void *one, const void *two);
static void zkl_call_read(zkl_call_t *ask);
static void zkl_call_read_handler(zkl_op_t *op);
static void zkl_call_found(zkl_call_t *ask);
static ngx_int_t zkl_call_noted(zkl_call_t *ask, zkl_op_t *op);
static void zkl_call_release(zkl_call_t *ask);
static ngx_uint_t zkl_call_ours(zkl_claim_t *claim, zkl_record_t *record);
static ngx_uint_t zkl_call_current(zkl_record_t *record);
static ngx_int_t zkl_call_less(zkl_call_t *ask);
static void zkl_call_delete(zkl_call_t *ask);
static void zkl_call_label_handler(zkl_op_t *op);
static void zkl_call_parent_handler(zkl_op_t *op);
static void zkl_call_touched_handler(zkl_op_t *op);
static void zkl_call_touch(zkl_call_t *ask);
static void zkl_call_touch_handler(zkl_op_t *op);
static zkl_op_t *zkl_call_touch_op(zkl_call_t *ask, zkl_op_t *get);
static void zkl_call_delete_handler(zkl_op_t *op);
static void zkl_call_missing(zkl_call_t *ask);
static void zkl_call_ended(zkl_call_t *ask);
static void zkl_call_released(void *data, zkl_rc_e rc);
static void zkl_call_rung(zkl_call_t *ask);
static void zkl_call_forsaken(zkl_call_t *ask);
static void zkl_call_wish(zkl_call_t *ask, const char *want);
static void zkl_call_wish_handler(zkl_op_t *op);
static ngx_int_t zkl_call_wished(zkl_call_t *ask);
static void zkl_call_share(zkl_call_t *ask);
static void zkl_call_revoke(zkl_call_t *ask);
static void zkl_call_mark_handler(zkl_op_t *op);
static void zkl_call_marked_handler(zkl_op_t *op);
static void zkl_call_write(zkl_call_t *ask, ngx_str_t *value, int32_t version,
    zkl_op_pt handler);


zkl_call_t *
zkl_call_start(zkl_worker_t *worker, zkl_question_t *question)
{
    size_t       len;
    u_char      *p;
    zkl_call_t  *ask;

    len = question->name ? question->name->len : 0;

    ask = ngx_calloc(sizeof(zkl_call_t) + question->path->len
                     + len, worker->log);
    if (ask == NULL) {
        return NULL;
    }

    ask->worker = worker;
    ask->type = question->type;
    ask->ttl = question->ttl;
    ask->grace = question->grace;
    ask->forced = (question->forced != 0);
    ask->handler = question->handler;
    ask->data = question->data;
    ask->asked = ngx_current_msec;
    ask->bell.handler = zkl_call_bell_handler;

    p = (u_char *) ask + sizeof(zkl_call_t);

    ask->path.len = question->path->len;
    ask->path.data = p;
    p = ngx_cpymem(p, question->path->data, question->path->len);

    if (len != 0) {
        ask->name.len = len;
        ask->name.data = p;
        ngx_memcpy(p, question->name->data, len);
    }

    if (question->token != NULL) {
        ask->token = *question->token;
        ask->kind = ask->token.kind;
        ask->find = (ask->token.seq == -1);
        ask->node = (ask->kind == ZKL_NODE);

    } else {
        ask->node = (question->node != 0);
    }

    zkl_worker_timer(worker, &ask->timer, zkl_call_timer_handler);
    zkl_worker_timer(worker, &ask->over, zkl_call_over_handler);

    /* not cancelable: a worker that leaves tells first */

    ngx_add_timer(&ask->over, zkl_call_time(question));

    ngx_queue_insert_tail(&worker->asks, &ask->queue);
    worker->nasks++;
    worker->nawaited++;
    zkl_worker_busy(worker);

    zkl_call_begin(ask);

    return ask;
}


/* The holder is a courtesy beside another answer, which is not held up. */

static ngx_msec_t
zkl_call_time(zkl_question_t *question)
{
    if (question->type == ZKL_HOLDER) {
        return ngx_min(question->timeout, ZKL_PATIENCE);
    }

    return question->timeout;
}


/*
 * What it asks for is begun: by what type it is of.
 *
 * While ZooKeeper does not answer, all asks but releases wait.  A release is
 * owed from the moment when the call came; but of those whose callers have left
 * only so many are kept.
 */

static void
zkl_call_begin(zkl_call_t *ask)
{
    zkl_worker_t  *worker;

    worker = ask->worker;

    if ((ask->type != ZKL_RELEASE || ask->find || ask->counted
         || worker->nasks - worker->nawaited >= ZKL_DEBTS_MAX)
        && !zkl_session_ready(worker->session))
    {
        if (ask->type == ZKL_RENEW && !ask->find) {

            /* the lease must not end while the call waits */

            (void) zkl_call_prolong(ask);
        }

        ask->later = 1;
        return;
    }

    if (ask->find) {
        zkl_call_find(ask);
        return;
    }

    switch (ask->type) {

    case ZKL_RELEASE:

        if (!ask->counted && !ask->wished) {
            zkl_call_release(ask);
            break;
        }

        /* it is held once less already, or that is wished */

        zkl_call_inspect(ask);
        break;

    case ZKL_BREAK:
        zkl_call_release(ask);
        break;

    case ZKL_RENEW:
        zkl_call_renew(ask);
        break;

    case ZKL_HOLD:
    case ZKL_SHARE:
    case ZKL_INSPECT:
        zkl_call_inspect(ask);
        break;

    case ZKL_REVOKE:
        zkl_call_revoke(ask);
        break;

    case ZKL_LIST:
    case ZKL_FIRST:
        zkl_call_list(ask);
        break;

    case ZKL_HOLDER:
        zkl_call_holder(ask);
        break;
    }
}


void
zkl_call_leave(zkl_call_t *ask)
{
    zkl_call_deaf(ask);

    zkl_call_free(ask);
}


/* Nobody waits for its answer any more. */

static void
zkl_call_deaf(zkl_call_t *ask)
{
    if (ask->handler != NULL) {
        ask->handler = NULL;
        ask->worker->nawaited--;
    }

    if (ask->over.timer_set) {
        ngx_del_timer(&ask->over);
    }
}


void
zkl_call_connected(zkl_call_t *ask)
{
    if (ask->owed) {

        if (ask->pins == 0 && ask->tries == 0) {

            /* nothing was sent: the claim's worker can end the claim again */

            ask->owed = 0;
            zkl_call_release(ask);
            zkl_call_free(ask);

        } else if (ask->pins == 0) {
            zkl_call_delete(ask);
        }

        return;
    }

    if ((ask->later || ask->unwritten) && ask->pins == 0) {
        ask->later = 0;
        ask->asked = ngx_current_msec;
        zkl_call_begin(ask);

    } else if (ask->waits) {
        zkl_call_list(ask);
    }
}


void
zkl_call_unreachable(zkl_call_t *ask)
{
    zkl_call_tell(ask, ZKL_CALL_UNREACHABLE);

    if (ask->bell.set) {

        /* the release is owed, though the claim's worker stands still */

        ngx_del_timer(&ask->timer);
        zkl_call_forsaken(ask);
    }

    zkl_call_free(ask);
}


static void
zkl_call_over_handler(ngx_event_t *ev)
{
    zkl_call_unreachable(ngx_queue_data(ev, zkl_call_t, over));
}


void
zkl_call_discard(zkl_call_t *ask)
{
    zkl_call_deaf(ask);

    ask->pins = 0;
    ask->mourning = 0;
    ask->owed = 0;
    ask->unwritten = 0;

    zkl_call_free(ask);
}


static void
zkl_call_bell_handler(zkl_subscription_t *bell)
{
    zkl_call_rung(ngx_queue_data(bell, zkl_call_t, bell));
}


static void
zkl_call_timer_handler(ngx_event_t *ev)
{
    zkl_call_t  *ask;

    ask = ngx_queue_data(ev, zkl_call_t, timer);

    if (ask->bell.set) {
        zkl_call_forsaken(ask);
        return;
    }

    if (ask->missing) {
        zkl_call_missing(ask);
        zkl_call_free(ask);
        return;
    }

    if (ask->polls) {
        ask->polls = 0;
        zkl_call_inspect(ask);
        return;
    }

    zkl_call_tell(ask, ask->answer);
    zkl_call_free(ask);
}


/*
 * The claim is read again in a moment, until the ask's time is over.
 *
 * Later and later, so that some seconds are not many times.
 */

static void
zkl_call_poll(zkl_call_t *ask)
{
    ngx_msec_t  elapsed;

    if (ask->handler == NULL) {
        return;
    }

    elapsed = ngx_current_msec - ask->asked;

    ask->polls = 1;

    if (!ask->timer.timer_set) {
        ngx_add_timer(&ask->timer, ngx_min(ZKL_CALL_AGAIN + elapsed / 4,
                              ZKL_CALL_SELDOM));
    }
}


/*
 * Only so many asks list a lock at a time: NGX_OK, it is this one's turn, which
 * it has to end, or to be freed; NGX_AGAIN, ask_list() is called when it is.
 */

static ngx_int_t
zkl_call_turn(zkl_call_t *ask)
{
    zkl_worker_t  *worker;

    worker = ask->worker;

    if (ask->looks) {
        return NGX_OK;
    }

    if (worker->nlooks >= ZKL_LOOKS_MAX) {

        if (ask->waits) {
            return NGX_AGAIN;
        }

        ask->waits = 1;

        if (ask->type < ZKL_LIST) {

            /* a holder's: it is short, and about his claim only */

            ngx_queue_insert_head(&worker->looks, &ask->turn);

        } else {
            ngx_queue_insert_tail(&worker->looks, &ask->turn);
        }

        return NGX_AGAIN;
    }

    if (ask->waits) {
        ask->waits = 0;
        ngx_queue_remove(&ask->turn);
    }

    ask->looks = 1;
    worker->nlooks++;

    return NGX_OK;
}


/* Without a connection the others wait for that; at the end there is none. */

static void
zkl_call_turn_over(zkl_call_t *ask)
{
    ngx_queue_t   *q;
    zkl_worker_t  *worker;

    worker = ask->worker;

    if (ask->waits) {
        ask->waits = 0;
        ngx_queue_remove(&ask->turn);
    }

    if (!ask->looks) {
        return;
    }

    ask->looks = 0;
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
 * Who holds a lock alone may share it by now, under another name: NGX_OK if
 * that is to be tried, else NGX_DECLINED.
 */

static ngx_int_t
zkl_call_rename(zkl_call_t *ask)
{
    if (ask->name.len != 0 || ask->other
        || (ask->kind != ZKL_MUTEX && ask->kind != ZKL_WRITE))
    {
        ask->other = 0;
        return NGX_DECLINED;
    }

    ask->other = 1;
    ask->token.kind = (ask->token.kind == ZKL_READ) ? ask->kind : ZKL_READ;
    return NGX_OK;
}


/* The name of the claim's znode; buf has room for ZKL_CLAIM_MAX. */

static void
zkl_call_name(zkl_call_t *ask, ngx_str_t *name, u_char *buf)
{
    if (ask->name.len != 0) {
        *name = ask->name;

        if (ask->node) {
            name->len = 0;
        }

        return;
    }

    name->data = buf;
    name->len = zkl_name_claim_write((char *) buf, &ask->token.id,
                                     ask->token.kind, ask->token.seq);
}


zkl_op_t *
zkl_call_op(zkl_call_t *ask, zkl_op_e type, ngx_str_t *name, zkl_op_pt handler,
    void *data)
{
    zkl_op_t  *op;

    op = zkl_op_new(ask->worker->session, type, &ask->path, name, NULL);
    if (op == NULL) {
        return NULL;
    }

    op->handler = handler;
    op->data = data;

    return op;
}


/* Sends it, pinned; op may be NULL for want of memory. */

static void
zkl_call_send(zkl_call_t *ask, zkl_op_t *op)
{
    if (op == NULL) {
        zkl_call_post(ask, ZKL_CALL_FAILED);
        return;
    }

    ask->pins++;

    zkl_session_send(op);
}


void
zkl_call_send_fresh(zkl_call_t *ask, zkl_op_t *op)
{
    if (op != NULL) {
        op->fresh = 1;
    }

    zkl_call_send(ask, op);
}


void
zkl_call_failed(zkl_call_t *ask, zkl_rc_e rc)
{
    if (rc == ZKL_UNSENT || rc == ZKL_UNKNOWN) {

        /* what is counted is written, also when the caller has left */

        ask->unwritten = ask->counted;
        ask->later = (ask->handler != NULL);

        return;
    }

    ask->unwritten = 0;

    zkl_call_tell(ask, rc == ZKL_NO_AUTH ? ZKL_CALL_DENIED : ZKL_CALL_FAILED);
}


/* Tells; post in the next turn. */

static void
zkl_call_post(zkl_call_t *ask, zkl_answer_e answer)
{
    ask->answer = answer;

    if (!ask->timer.timer_set) {
        ngx_post_event(&ask->timer, &ngx_posted_events);
    }
}


void
zkl_call_tell(zkl_call_t *ask, zkl_answer_e answer)
{
    zkl_call_pt  handler;

    handler = ask->handler;

    if (handler == NULL) {
        return;
    }

    ask->pins++;
    zkl_call_deaf(ask);

    handler(ask, answer);

    ask->pins--;
}


void
zkl_call_unpin(zkl_call_t *ask)
{
    ask->pins--;

    zkl_call_free(ask);
}


/* Frees it if it was told, or left, and nothing is under way. */

static void
zkl_call_free(zkl_call_t *ask)
{
    if (ask->handler != NULL || ask->pins != 0 || ask->mourning || ask->owed
        || ask->unwritten)
    {
        return;
    }

    if (ask->bell.set) {
        zkl_worker_unsubscribe(ask->worker, &ask->bell);
    }

    if (ask->timer.timer_set) {
        ngx_del_timer(&ask->timer);
    }

    if (ask->timer.posted) {
        ngx_delete_posted_event(&ask->timer);
    }

    (void) zkl_call_infos(ask, 0);

    zkl_call_turn_over(ask);

    ngx_queue_remove(&ask->queue);
    ask->worker->nasks--;
    zkl_worker_busy(ask->worker);

    ngx_free(ask);
}


/*
 * How an ask reads and writes a single claim.
 *
 * The ask reads the claim's znode (inspect).  Then a record of this gateway
 * tells about the claim (known), or a list of the lock's claims tells the
 * claim's place (placed).  A write to the claim's data then names the version
 * that was read (set).
 *
 * Everything here runs on the event loop.  The ask's infos[0] is there from the
 * first answer on.
 */


/*
 * A token without a seq: the oldest claim with that key.
 *
 * Only the key in the claim's id is known: a list shows the rest.
 */

static void
zkl_call_find(zkl_call_t *ask)
{
    zkl_op_t  *op;

    op = zkl_call_op(ask, ZKL_OP_LIST, NULL, zkl_call_find_handler, ask);

    zkl_call_send_fresh(ask, op);
}


static void
zkl_call_find_handler(zkl_op_t *op)
{
    ngx_uint_t   i;
    zkl_child_t  child;
    zkl_call_t  *ask;

    ask = op->data;

    if (op->rc == ZKL_NO_NODE) {
        op->rc = ZKL_OK;
    }

    if (op->rc != ZKL_OK) {
        zkl_call_failed(ask, op->rc);
        goto done;
    }

    for (i = 0; i < op->nchildren; i++) {

        if (zkl_name_child_read(&child, (char *) op->children[i].data,
                                op->children[i].len)
            != 0
            || !child.has_id
            || !zkl_name_secret_equal(child.id.random, ask->token.id.random,
                                      ZKL_KEY)
            || (ask->token.seq != -1 && child.seq >= ask->token.seq))
        {
            continue;
        }

        ask->token.id = child.id;
        ask->token.seq = child.seq;
        ask->token.kind = child.kind;
        ask->kind = child.kind;
    }

    ask->find = 0;

    if (ask->token.seq == -1) {
        zkl_call_tell(ask, ZKL_CALL_GONE);

    } else {
        zkl_call_begin(ask);
    }

done:

    zkl_call_unpin(ask);
}


static void
zkl_call_inspect(zkl_call_t *ask)
{
    u_char     buf[ZKL_CLAIM_MAX];
    ngx_str_t  name;
    zkl_op_t  *op;

    if (zkl_call_infos(ask, 1) != NGX_OK) {
        zkl_call_post(ask, ZKL_CALL_FAILED);
        return;
    }

    zkl_call_name(ask, &name, buf);

    op = zkl_call_op(ask, ZKL_OP_GET, &name, zkl_call_inspect_handler, ask);

    zkl_call_send_fresh(ask, op);
}


static void
zkl_call_inspect_handler(zkl_op_t *op)
{
    ngx_uint_t    own;
    zkl_call_t   *ask;
    zkl_lock_t   *lock;
    zkl_record_t  record;

    ask = op->data;

    if (ask->handler == NULL && !ask->counted) {
        goto done;
    }

    if (op->rc == ZKL_OK && ask->node && !zkl_node_is(&ask->token.id, op)) {
        op->rc = ZKL_NO_NODE;
    }

    if (op->rc == ZKL_NO_NODE) {

        if (zkl_call_rename(ask) == NGX_OK) {
            zkl_call_inspect(ask);
            goto done;
        }

        /* another client may have deleted a claim of this worker */

        lock = zkl_lock_find(ask->worker, &ask->path);

        if (lock != NULL && lock->nclaims != 0) {
            zkl_lock_list(lock);
        }

        zkl_call_gone(ask);
        goto done;
    }

    if (zkl_call_noted(ask, op) != NGX_OK) {
        goto done;
    }

    ask->other = 0;
    ask->version = op->version;
    ask->nknown = 1;
    ask->infos[0].child.kind = ask->token.kind;
    ask->infos[0].child.seq = ask->token.seq;

    own = (zkl_call_own(ask, &record) == NGX_OK);

    if (own && ask->counted && record.gen != ask->gen) {

        /* the record was lost with its session, and perhaps the count, too */

        ask->unwritten = 0;
        zkl_call_tell(ask, ZKL_CALL_UNREACHABLE);

    } else if (own && (op->owner != 0 || zkl_ahead(record.alive)))
    {
        zkl_call_known(ask, &record);

    } else if (ask->counted) {

        /*
         * Another gateway may have taken the claim over, with that hold or
         * without: the ask is answered when the session is known to live, or
         * the claim is gone.  A worker that leaves does not wait for either.
         */

        ask->unwritten = own && !ask->worker->leaving;
        zkl_call_poll(ask);

    } else {

        /* the claim is another gateway's or session's by now: a list tells */

        zkl_call_list(ask);
    }

done:

    zkl_call_unpin(ask);
}


/* A call that dropped a hold is told OK, though the last hold is gone, too. */

static void
zkl_call_gone(zkl_call_t *ask)
{
    ask->nknown = 0;
    ask->unwritten = 0;

    zkl_call_tell(ask, ask->type == ZKL_RELEASE
                       && (ask->counted || ask->wished)
                       ? ZKL_CALL_OK
                       : ZKL_CALL_GONE);
}


/* The claim was read, and its place in the line is known. */

static void
zkl_call_placed(zkl_call_t *ask)
{
    ngx_int_t         rc;
    zkl_claim_data_t  label;
    zkl_info_t       *info;

    info = &ask->infos[0];

    zkl_claim_data_read(&label, (char *) info->label.data, info->label.len);

    if (ask->pending && info->held) {

        if (label.index >= 0 && !label.async) {

            /*
             * The token is told with the grant only, so another gateway has
             * told that the claim is held; the claim's worker knows that soon.
             */

            zkl_call_poll(ask);
            return;
        }

        /* no claim is ahead, but only the claim's worker grants */

        info->held = 0;
        info->pending = 1;
    }

    if (!info->held) {
        zkl_call_waits(ask, &label);
        return;
    }

    zkl_call_note_ttl(info);

    switch (ask->type) {

    case ZKL_RENEW:
        zkl_call_set(ask);
        return;

    case ZKL_SHARE:
        zkl_call_share(ask);
        return;

    case ZKL_HOLD:
    case ZKL_RELEASE:

        rc = ask->wished ? zkl_call_wished(ask) : NGX_AGAIN;

        if (rc == NGX_OK) {
            break;
        }

        if (rc == NGX_DECLINED) {
            zkl_call_tell(ask, ZKL_CALL_UNREACHABLE);
            return;
        }

        zkl_call_wish(ask, ask->type == ZKL_HOLD ? "hold" : "drop");
        return;

    default: /* ZKL_INSPECT */

        if (label.async) {

            /* no client was told so far; the write tells the claim's gateway */

            zkl_call_set(ask);
            return;
        }

        break;
    }

    zkl_call_tell(ask, ZKL_CALL_OK);
}


/*
 * Another claim is ahead, and yet the claim may be held: a gateway hands a lock
 * over before the delete of the claim ahead is done.  That is so if the claim
 * is another gateway's and not async, since the token was told with the grant,
 * or if the claim is held more than once; the ask waits a while for an async
 * claim that the caller takes for held.
 */

static void
zkl_call_waits(zkl_call_t *ask, zkl_claim_data_t *label)
{
    ngx_uint_t  looks, granted;

    looks = (ask->type == ZKL_INSPECT);

    /* a mark of Curator's hides the label until the claim's gateway mends it */

    granted = !ask->pending && (label->index >= 0
                                ? !label->async || label->holds > 1
                                : label->revoke);

    if (granted) {
        zkl_call_poll(ask);
        return;
    }

    if (label->async && !ask->pending) {

        if (looks && ask->grace != 0
            && (ask->tries == 0 || label->renewals == ask->renewals))
        {
            zkl_call_set(ask);
            return;
        }

        /* else another ask has inspected the claim since, which will do */

        if (!looks && ngx_current_msec - ask->asked <= ZKL_PATIENCE) {
            zkl_call_poll(ask);
            return;
        }
    }

    zkl_call_tell(ask, looks
                       || ask->type == ZKL_RENEW
                       ? ZKL_CALL_OK
                       : ZKL_CALL_WAITS);
}


/*
 * Writes the claim's label, as infos[0] has it, with what is asked for.
 *
 * Sets the data of the claim's znode.  The claim's gateway watches a claim that
 * is held for some time; else that gateway sees the new count of renewals in
 * the data when the lease that the gateway knows is over.
 */

static void
zkl_call_set(zkl_call_t *ask)
{
    char              text[ZKL_CLAIM_DATA_MAX];
    u_char            buf[ZKL_CLAIM_MAX];
    size_t            index_at;
    ngx_str_t         name, value;
    ngx_uint_t        own;
    zkl_claim_data_t  label;
    zkl_op_t         *op;
    zkl_info_t       *info;
    zkl_record_t      record;

    info = &ask->infos[0];

    zkl_claim_data_read(&label, (char *) info->label.data, info->label.len);

    if (label.index < 0) {

        /*
         * The claim is no gateway's, and must not be written to; or a Curator
         * client has written a mark over the label, which the gateway mends.
         */

        zkl_call_tell(ask, label.revoke
                           ? ZKL_CALL_UNREACHABLE
                           : ZKL_CALL_FOREIGN);
        return;
    }

    own = (zkl_call_own(ask, &record) == NGX_OK);

    if (info->held && (label.gate_len != 0 || (own && record.durable))) {

        /* the longest ttl told: a gateway that takes over knows no other */

        label.ttl = ngx_max(label.ttl, (int64_t) info->ttl);
    }

    if (ask->counted || ask->recounts) {

        /* other workers may have counted meanwhile */

        if (own) {
            label.holds = (uint32_t) record.holds;

        } else if (ask->counted) {
            label.holds = (uint32_t) ask->holds;
        }

    } else {
        /*
         * A grant that was seen counts as a renewal: this client is told the
         * whole ttl, and the claim's worker may have told an earlier client.
         */

        if (ask->tries == 0) {
            ask->renewals = label.renewals;
        }

        label.renewals++;
        label.async = label.async && !info->held;

        if (ask->ttl != 0) {
            label.ttl = (int64_t) ask->ttl;
        }

        if (info->held) {
            info->ttl = (ngx_msec_t) label.ttl;
        }
    }

    value.len = zkl_claim_data_write(text, &label, &index_at);
    value.data = (u_char *) text;

    zkl_call_name(ask, &name, buf);

    op = zkl_op_new(ask->worker->session, ZKL_OP_SET, &ask->path, &name,
                    &value);
    if (op != NULL) {
        op->version = ask->version;
        op->handler = zkl_call_set_handler;
        op->data = ask;
    }

    zkl_call_send(ask, op);
}


static void
zkl_call_set_handler(zkl_op_t *op)
{
    ngx_uint_t   recounted;
    zkl_call_t  *ask;
    zkl_info_t  *info;

    ask = op->data;
    info = &ask->infos[0];

    recounted = ask->recounts;
    ask->recounts = 0;

    switch (op->rc) {

    case ZKL_OK:

        if (recounted) {

            /* the recount is written: now the call itself */

            zkl_call_inspect(ask);
            break;
        }

        ask->unwritten = 0;

        if (ask->counted) {
            info->holds = ask->holds;
            info->held = 1;

        } else if (info->held) {
            info->expires = info->ttl;
            info->timed = 1;
        }

        zkl_call_tell(ask, ZKL_CALL_OK);
        break;

    case ZKL_NO_NODE:

        if (zkl_call_rename(ask) == NGX_OK) {
            zkl_call_inspect(ask);
            break;
        }

        zkl_call_gone(ask);
        break;

    case ZKL_CHANGED:

        /* a count has to be written, and another writer was faster */

        if (ask->counted || recounted
            || (ask->handler != NULL
                && ++ask->tries < ZKL_SET_TRIES))
        {
            zkl_call_inspect(ask);
            break;
        }

        /* many asks write at once: only the first write succeeds each time */

        zkl_call_poll(ask);
        break;

    default:
        zkl_call_failed(ask, op->rc);
        break;
    }

    zkl_call_unpin(ask);
}


/*
 * A claim of this gateway, for an ask: what the claim's record tells, and what
 * the ask changes in the record.
 *
 * The claim's worker may be a sibling, stand still or be dead: the record is in
 * the zone, so a renewal or a hold in the record counts.  What another gateway
 * has written into the znode's data may not be in the record yet; the ask has
 * read the data just before, into infos[0].
 *
 * All code here runs on the event loop of the worker that is asked.
 */


/* Whether it is a claim of this gateway; its record, if so. */

static ngx_int_t
zkl_call_own(zkl_call_t *ask, zkl_record_t *record)
{
    ngx_int_t  rc;

    rc = zkl_record_read(ask->worker->zone, &ask->token.id, &ask->path,
                         record);

    return ((rc == NGX_OK || rc == NGX_AGAIN)
            && record->state != ZKL_RECORD_OPEN
            && record->seq == ask->token.seq) ? NGX_OK : NGX_DECLINED;
}


/*
 * Renews a claim of this gateway in the record, also while the claim's worker
 * is dead and no heir has adopted the session yet; renews another gateway's
 * claim in the znode.
 */

static void
zkl_call_renew(zkl_call_t *ask)
{
    if (zkl_call_prolong(ask) == NGX_DONE) {
        zkl_call_post(ask, ZKL_CALL_GONE);

    } else {
        zkl_call_inspect(ask);
    }
}


/*
 * The lease in the record of a claim of this gateway counts from now on.
 * Returns NGX_OK, also if it is none or not held, or NGX_DONE: it has ended.
 */

static ngx_int_t
zkl_call_prolong(zkl_call_t *ask)
{
    ngx_int_t     rc;
    ngx_msec_t    ttl;
    zkl_record_t  record;

    if (zkl_call_own(ask, &record) != NGX_OK
        || record.state == ZKL_RECORD_WAITING
        || zkl_call_endless(&record))
    {
        return NGX_OK;
    }

    ttl = ask->ttl ? ask->ttl : record.ttl;

    rc = zkl_record_renew(ask->worker->zone, &ask->token.id, &ask->path, 0,
                          ttl, 0, 0, 0);

    ask->renewed = (rc == NGX_OK);

    /* another gateway may have renewed a lease that is over here */

    return (rc != NGX_OK && rc != NGX_AGAIN
            && record.state == ZKL_RECORD_ENDED)
           ? NGX_DONE : NGX_OK;
}


/* It is, and its znode was read just now. */

static void
zkl_call_known(zkl_call_t *ask, zkl_record_t *record)
{
    ngx_int_t         rc;
    zkl_claim_data_t  label;
    zkl_info_t       *info;
    zkl_answer_e      answer;

    info = &ask->infos[0];

    zkl_call_note_record(info, record);

    if (record->state == ZKL_RECORD_WAITING) {
        ask->pending = 1;
        zkl_call_keep(ask, record);
        zkl_call_list(ask);
        return;
    }

    ask->pending = 0;

    if (ask->counted) {
        zkl_call_set(ask);
        return;
    }

    if (ask->type == ZKL_RELEASE && !ask->wished
        && record->state == ZKL_RECORD_HELD)
    {
        /* at the start of the ask no record told how often the claim is held */

        if (zkl_ahead(record->alive)) {
            zkl_call_release(ask);

        } else {
            zkl_call_poll(ask);
        }

        return;
    }

    zkl_claim_data_read(&label, (char *) info->label.data, info->label.len);

    if (record->state == ZKL_RECORD_HELD && label.index >= 0
        && record->holds > ngx_max(label.holds, 1))
    {
        /*
         * Other gateways trust the label, and the worker that counted may have
         * died before it wrote the label.
         */

        ask->recounts = 1;
        zkl_call_set(ask);
        return;
    }

    if (ask->wished && ask->type != ZKL_SHARE) {

        /* no worker had the claim before; the new worker counts the wish */

        rc = zkl_call_wished(ask);

        if (rc == NGX_AGAIN) {
            zkl_call_poll(ask);
            return;
        }

        if (rc == NGX_DECLINED) {
            zkl_call_tell(ask, ZKL_CALL_UNREACHABLE);
            return;
        }
    }

    answer = zkl_call_held(ask, record);

    if (answer == ZKL_CALL_GONE
        && ask->type == ZKL_RENEW
        && record->state == ZKL_RECORD_HELD
        && record->renewals != zkl_call_renewals(ask))
    {
        zkl_call_set(ask);
        return;
    }

    if (answer == ZKL_CALL_OK) {

        if (ask->type == ZKL_HOLD && !ask->wished) {
            zkl_call_more(ask, record);
            return;
        }

        if (ask->type == ZKL_SHARE) {
            zkl_call_share(ask);
            return;
        }

        if (ask->type == ZKL_RENEW && !info->endless
            && record->durable && (int64_t) info->ttl > label.ttl)
        {
            /* a session that takes the claim over has to know the longer ttl */

            zkl_call_set(ask);
            return;
        }
    }

    if (answer == ZKL_CALL_UNREACHABLE) {

        /* the worker may learn in a moment that the claim's session lives */

        zkl_call_poll(ask);
        return;
    }

    zkl_call_tell(ask, answer);
}


/*
 * A client that asks for a claim that waits alone extends the grace.  The time
 * is never cut, since another gateway may have told that the claim is held, but
 * always changed: the change tells the claim's worker that a client asks.
 */

static void
zkl_call_keep(zkl_call_t *ask, zkl_record_t *record)
{
    ngx_msec_t  lease;

    if (ask->type != ZKL_INSPECT || ask->grace == 0 || record->lease == 0) {
        return;
    }

    lease = zkl_now() + ask->grace;

    if ((ngx_msec_int_t) (lease - record->lease) <= 0) {
        lease = record->lease + 1;
    }

    (void) zkl_record_renew(ask->worker->zone, &ask->token.id, &ask->path,
                            record->lease, record->ttl, lease, 0, 0);
}


/* The answer for a claim of this gateway that is held, or was held. */

static zkl_answer_e
zkl_call_held(zkl_call_t *ask, zkl_record_t *record)
{
    ngx_int_t    rc;
    ngx_msec_t   ttl;
    zkl_info_t  *info;

    if (record->state == ZKL_RECORD_ENDED) {
        return ZKL_CALL_GONE;
    }

    info = &ask->infos[0];

    if (zkl_call_renewals(ask) <= record->renewals) {

        if (record->lease == 0) {
            return ZKL_CALL_GONE;
        }

        ttl = ask->ttl ? ask->ttl : record->ttl;

        if (ask->type == ZKL_RENEW && !info->endless
            && (!ask->renewed || record->ttl < ttl))
        {
            /*
             * Since the first try the claim was granted, or the claim's worker
             * has read of another gateway's renewal, which came before this
             * renewal.
             */

            (void) zkl_call_extend(ask, record);
        }

        rc = zkl_record_told(ask->worker->zone, &ask->token.id, &ask->path,
                             record);

        if (rc != NGX_OK && rc != NGX_AGAIN) {

            /* the claim ended, or the lease was over, just now */

            return ZKL_CALL_UNREACHABLE;
        }

        zkl_call_note_record(info, record);

    } else if (ask->type != ZKL_RENEW) {

        /* the record does not have another gateway's renewal yet */

        zkl_call_note_ttl(info);
        info->timed = 0;

    } else if (record->lease == 0) {
        return ZKL_CALL_GONE;

    } else if (!info->endless && zkl_call_extend(ask, record) != NGX_OK)
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
zkl_call_extend(zkl_call_t *ask, zkl_record_t *record)
{
    int32_t           version;
    uint32_t          renewals;
    ngx_msec_t        ttl;
    zkl_claim_data_t  label;
    zkl_info_t       *info;

    info = &ask->infos[0];

    zkl_claim_data_read(&label, (char *) info->label.data, info->label.len);

    ttl = record->ttl;
    version = 0;
    renewals = 0;

    if (label.renewals > record->renewals) {
        ttl = (label.ttl > 0) ? (ngx_msec_t) label.ttl : ttl;
        version = ask->version;
        renewals = label.renewals;
    }

    ttl = ask->ttl ? ask->ttl : ttl;

    if (zkl_record_renew(ask->worker->zone, &ask->token.id, &ask->path, 0, ttl,
                         0, version, renewals)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    info->ttl = ttl;
    info->expires = ttl;
    info->timed = 1;

    return NGX_OK;
}


/* Counts one more hold of the claim: first in the record, then in the label. */

static void
zkl_call_more(zkl_call_t *ask, zkl_record_t *record)
{
    ngx_int_t  rc;

    if (!ask->infos[0].endless
        && zkl_call_extend(ask, record) != NGX_OK
        && zkl_call_own(ask, record) == NGX_OK
        && record->state == ZKL_RECORD_HELD)
    {
        /* the claim's worker looks just now whether the lease is over */

        zkl_call_poll(ask);
        return;
    }

    rc = zkl_record_hold(ask->worker->zone, &ask->token.id, &ask->path, 0,
                         &ask->holds);

    if (rc != NGX_OK && rc != NGX_AGAIN) {

        if (zkl_call_own(ask, record) == NGX_OK) {
            zkl_call_tell(ask, ZKL_CALL_GONE);

        } else {
            /* the session is over: another one may count the durable claim */

            zkl_call_poll(ask);
        }

        return;
    }

    ask->counted = 1;
    ask->gen = record->gen;

    zkl_call_set(ask);
}


static uint32_t
zkl_call_renewals(zkl_call_t *ask)
{
    zkl_claim_data_t  label;
    zkl_info_t       *info;

    info = &ask->infos[0];

    zkl_claim_data_read(&label, (char *) info->label.data, info->label.len);

    return label.renewals;
}


static ngx_uint_t
zkl_call_endless(zkl_record_t *record)
{
    return (ngx_msec_int_t) (record->lease - zkl_now())
           > (ngx_msec_int_t) ZKL_NO_LEASE / 2;
}


/*
 * Looks: which claims hold a lock and which claims wait, from a list of the
 * lock's claims and the claims' labels.
 *
 * For a claim of this gateway the record tells, too, when the claim was granted
 * and how long the lease lasts; for another gateway's claim only that gateway
 * knows.
 *
 * All code here runs on the event loop, for an ask; `infos` belong to the ask,
 * and have the names and labels of the claims.
 */


/* Describes the first claim of this worker's view: a list is not needed. */

static void
zkl_call_holder(zkl_call_t *ask)
{
    u_char        buf[ZKL_CLAIM_MAX];
    ngx_str_t     name;
    zkl_entry_t  *first;
    zkl_op_t     *op;
    zkl_lock_t   *lock;

    lock = zkl_lock_find(ask->worker, &ask->path);
    first = lock ? zkl_view_first(&lock->view) : NULL;

    if (first == NULL || ask->node) {
        zkl_call_list(ask);
        return;
    }

    if (zkl_call_infos(ask, 1) != NGX_OK) {
        zkl_call_post(ask, ZKL_CALL_FAILED);
        return;
    }

    zkl_lock_name(first, &name, buf);

    (void) zkl_name_child_read(&ask->infos[0].child, (char *) name.data,
                               name.len);

    op = zkl_call_op(ask, ZKL_OP_GET, &name, zkl_call_holder_handler, ask);

    zkl_call_send(ask, op);
}


static void
zkl_call_holder_handler(zkl_op_t *op)
{
    zkl_id_t     *id;
    zkl_call_t   *ask;
    zkl_record_t  record;

    ask = op->data;

    if (ask->handler == NULL) {
        goto done;
    }

    if (op->rc == ZKL_NO_NODE) {
        zkl_call_list(ask);
        goto done;
    }

    if (zkl_call_noted(ask, op) != NGX_OK) {
        goto done;
    }

    id = &ask->infos[0].child.id;

    if (ask->infos[0].child.has_id
        && zkl_record_read(ask->worker->zone, id, &ask->path, &record)
           == NGX_OK)
    {
        zkl_call_note_record(&ask->infos[0], &record);
    }

    ask->infos[0].held = 1;
    ask->nknown = 1;

    if (!ask->infos[0].timed) {
        zkl_call_note_ttl(&ask->infos[0]);
    }

    zkl_call_tell(ask, ZKL_CALL_OK);

done:

    zkl_call_unpin(ask);
}


static void
zkl_call_list(zkl_call_t *ask)
{
    zkl_op_t  *op;

    if (ask->node && ask->ninfos != 0) {

        /* the claim was read, and is the lock's only claim */

        ask->position = 0;
        ask->place = 0;
        ask->infos[0].held = 1;
        zkl_call_placed(ask);
        return;
    }

    if (ask->node) {
        zkl_node_look(ask);
        return;
    }

    if (zkl_call_turn(ask) != NGX_OK) {
        return;
    }

    op = zkl_call_op(ask, ZKL_OP_LIST, NULL, zkl_call_list_handler, ask);

    zkl_call_send_fresh(ask, op);
}


static void
zkl_call_list_handler(zkl_op_t *op)
{
    zkl_call_t  *ask;

    ask = op->data;

    if (ask->handler == NULL) {
        zkl_call_turn_over(ask);
        goto done;
    }

    if (op->rc == ZKL_NO_NODE) {
        op->rc = ZKL_OK;
    }

    if (op->rc != ZKL_OK) {
        zkl_call_failed(ask, op->rc);
        goto done;
    }

    if (ask->type < ZKL_LIST) {

        /* the claim was read; only the place was missing */

        zkl_call_turn_over(ask);

        if (zkl_call_count(ask, op) != NGX_OK) {
            zkl_call_gone(ask);

        } else {
            zkl_call_placed(ask);
        }

        goto done;
    }

    if (zkl_call_sort(ask, op) != NGX_OK) {
        zkl_call_tell(ask, ZKL_CALL_FAILED);
        goto done;
    }

    if (ask->ninfos == 0) {
        zkl_call_tell(ask, ZKL_CALL_FREE);
        goto done;
    }

    zkl_call_read(ask);

done:

    zkl_call_unpin(ask);
}


/* Counts the claims ahead; NGX_DECLINED if the claim asked for is gone. */

static ngx_int_t
zkl_call_count(zkl_call_t *ask, zkl_op_t *op)
{
    int64_t      writer;
    ngx_uint_t   i, there, mixes, seats, ahead, readers;
    zkl_child_t  child;

    ask->position = 0;
    ahead = 0;
    there = 0;
    mixes = 1;

    writer = ask->token.seq;

    for (i = 0; i < op->nchildren; i++) {

        if (zkl_name_child_read(&child, (char *) op->children[i].data,
                                op->children[i].len)
            != 0)
        {
            continue;
        }

        there |= (child.has_id && child.seq == ask->token.seq
                  && zkl_name_secret_equal(child.id.random,
                                           ask->token.id.random,
                                           ZKL_RANDOM_LEN));

        if (child.seq >= ask->token.seq) {
            continue;
        }

        ahead++;

        mixes &= zkl_view_mixes(child.kind, ask->token.kind);

        if (zkl_view_blocks(child.kind, ask->token.kind)) {
            ask->position++;
        }

        if (child.kind != ZKL_READ && child.seq < writer) {
            writer = child.seq;
        }
    }

    readers = zkl_call_readers(op, writer);
    seats = zkl_view_seats(ask->token.kind);

    /* a single claim of another use ahead blocks the claim */

    ask->infos[0].held = (mixes && ask->position < seats);
    ask->place = zkl_place(ahead, ngx_max(readers, seats));

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
              && child.kind == ZKL_READ && child.seq < writer);
    }

    return n;
}


/* Puts the children in order, and keeps as many as are wanted. */

static ngx_int_t
zkl_call_sort(zkl_call_t *ask, zkl_op_t *op)
{
    u_char      *p;
    ngx_str_t   *name;
    ngx_uint_t   i, n, max;
    zkl_info_t  *infos;

    infos = ngx_alloc((op->nchildren + 1) * sizeof(zkl_info_t),
                      ask->worker->log);
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

    zkl_call_state(ask, infos, n);

    max = ZKL_LIST_MAX;

    if (ask->type != ZKL_LIST) {
        max = 1;

    } else {

        /* all holders are described, if there are not very many */

        max = ngx_max(max, ngx_min(ask->holders, ZKL_MEMBERS_MAX));
    }

    n = ngx_min(n, max);

    if (zkl_call_infos(ask, n) != NGX_OK) {
        ngx_free(infos);
        return NGX_ERROR;
    }

    ask->next = 0;

    for (i = 0; i < n; i++) {
        name = &infos[i].name;

        p = ngx_alloc(name->len, ask->worker->log);
        if (p == NULL) {
            ngx_free(infos);
            return NGX_ERROR;
        }

        ngx_memcpy(p, name->data, name->len);

        ask->infos[i].child = infos[i].child;
        ask->infos[i].held = infos[i].held;
        ask->infos[i].name.data = p;
        ask->infos[i].name.len = name->len;
    }

    ngx_free(infos);

    return NGX_OK;
}


/* Sets which claims hold the lock, and a mark that changes with the claims. */

static void
zkl_call_state(zkl_call_t *ask, zkl_info_t *infos, ngx_uint_t n)
{
    uint32_t     crc, sum;
    ngx_uint_t   i;
    zkl_tally_t  tally;

    ask->total = n;
    ask->holders = 0;

    ngx_memzero(&tally, sizeof(zkl_tally_t));
    sum = 0;

    ngx_crc32_init(crc);

    for (i = 0; i < n; i++) {
        infos[i].held = zkl_view_tally(&tally, infos[i].child.kind);

        if (infos[i].held) {
            ask->holders++;
            ask->last = infos[i].child.seq;
        }

        ngx_crc32_update(&crc, infos[i].name.data, infos[i].name.len);
        sum = ngx_murmur_hash2(infos[i].name.data, infos[i].name.len)
              + sum * 31;
    }

    ngx_crc32_final(crc);

    ask->mark = (uint64_t) crc << 32 | sum;
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
zkl_call_read(zkl_call_t *ask)
{
    zkl_op_t    *op;
    zkl_info_t  *info;

    while (ask->next < ask->ninfos && ask->reads < ZKL_READS_MAX)
    {
        info = &ask->infos[ask->next];

        op = zkl_call_op(ask, ZKL_OP_GET, &info->name, zkl_call_read_handler,
                         info);
        if (op == NULL) {
            zkl_call_tell(ask, ZKL_CALL_FAILED);
            return;
        }

        ask->next++;
        ask->reads++;

        zkl_call_send(ask, op);
    }

    if (ask->reads == 0) {
        zkl_call_found(ask);
    }
}


static void
zkl_call_read_handler(zkl_op_t *op)
{
    zkl_call_t   *ask;
    zkl_info_t   *info;
    zkl_record_t  record;

    info = op->data;
    ask = info->ask;

    ask->reads--;

    if (ask->handler == NULL || ask->later) {
        goto done;
    }

    if (op->rc == ZKL_UNKNOWN || op->rc == ZKL_UNSENT) {
        zkl_call_failed(ask, op->rc);
        goto done;
    }

    /* NO_NODE: the claim is gone; NO_AUTH: the ACL hides the claim's label */

    if (op->rc == ZKL_OK
        && zkl_call_note(info, op) == NGX_OK
        && info->child.has_id
        && zkl_record_read(ask->worker->zone, &info->child.id, &ask->path,
                           &record)
           == NGX_OK)
    {
        zkl_call_note_record(info, &record);
    }

    if (op->rc == ZKL_NO_AUTH) {
        info->known = 1;
    }

    zkl_call_read(ask);

done:

    zkl_call_unpin(ask);
}


/* All claims were read: the claims that are gone meanwhile are left out. */

static void
zkl_call_found(zkl_call_t *ask)
{
    ngx_uint_t  i, n;
    zkl_info_t  gone;

    for (i = 0, n = 0; i < ask->ninfos; i++) {

        if (!ask->infos[i].known) {
            ask->total--;
            ask->holders -= ask->infos[i].held;
            continue;
        }

        if (i != n) {

            /* zkl_call_infos() frees the claims at the end */

            gone = ask->infos[n];
            ask->infos[n] = ask->infos[i];
            ask->infos[i] = gone;
        }

        n++;
    }

    /* the claim that is first by now holds the lock */

    if (n != 0 && ask->holders == 0) {
        ask->infos[0].held = 1;
        ask->holders = 1;
        ask->last = ask->infos[0].child.seq;
    }

    for (i = 0; i < n && ask->infos[i].held; i++) {
        if (!ask->infos[i].timed) {
            zkl_call_note_ttl(&ask->infos[i]);
        }
    }

    ask->nknown = n;

    if (n != 0) {
        zkl_call_tell(ask, ZKL_CALL_OK);
        return;
    }

    /* the lock need not be free: other claims may have come meanwhile */

    if (++ask->tries < ZKL_LOOK_TRIES) {
        zkl_call_list(ask);
        return;
    }

    /* the lock changes hands all the time */

    zkl_call_tell(ask, ask->type == ZKL_FIRST ? ZKL_CALL_OK : ZKL_CALL_FREE);
}


/* The same of infos[0] and what was read of it; or tells why not. */

static ngx_int_t
zkl_call_noted(zkl_call_t *ask, zkl_op_t *op)
{
    if (op->rc != ZKL_OK) {
        zkl_call_failed(ask, op->rc);
        return NGX_ERROR;
    }

    if (zkl_call_note(&ask->infos[0], op) != NGX_OK) {
        zkl_call_tell(ask, ZKL_CALL_FAILED);
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
zkl_call_note(zkl_info_t *info, zkl_op_t *op)
{
    info->known = 1;
    info->czxid = op->czxid;
    info->since = (time_t) (op->ctime / 1000);

    if (info->label.data != NULL) {

        /* the claim is read again */

        ngx_free(info->label.data);
        ngx_str_null(&info->label);
    }

    if (op->reply.len == 0) {
        return NGX_OK;
    }

    info->label.data = ngx_alloc(op->reply.len, info->ask->worker->log);
    if (info->label.data == NULL) {
        return NGX_ERROR;
    }

    info->label.len = op->reply.len;
    ngx_memcpy(info->label.data, op->reply.data, op->reply.len);

    return NGX_OK;
}


/* For another gateway's claim: only that gateway knows when the lease ends. */

void
zkl_call_note_ttl(zkl_info_t *info)
{
    zkl_claim_data_t  label;

    zkl_claim_data_read(&label, (char *) info->label.data, info->label.len);

    info->ttl = (label.ttl > 0 && !info->endless) ? (ngx_msec_t) label.ttl : 0;
    info->holds = label.holds;
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
    info->since = record->since;
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
zkl_call_infos(zkl_call_t *ask, ngx_uint_t n)
{
    ngx_uint_t  i;

    for (i = 0; i < ask->ninfos; i++) {

        if (ask->infos[i].label.data != NULL) {
            ngx_free(ask->infos[i].label.data);
        }

        if (ask->infos[i].name.data != NULL) {
            ngx_free(ask->infos[i].name.data);
        }
    }

    if (ask->infos != NULL) {
        ngx_free(ask->infos);
        ask->infos = NULL;
    }

    ask->ninfos = 0;

    if (n == 0) {
        return NGX_OK;
    }

    ask->infos = ngx_calloc(n * sizeof(zkl_info_t), ask->worker->log);
    if (ask->infos == NULL) {
        return NGX_ERROR;
    }

    ask->ninfos = n;

    for (i = 0; i < n; i++) {
        ask->infos[i].ask = ask;
    }

    return NGX_OK;
}


/*
 * Drops: releases, at any worker and gateway.
 *
 * A claim of this gateway is released by its own worker, which knows the next
 * claim in line; another gateway's claim is deleted.  Of a claim that is held
 * more than once the claim's gateway counts one hold less.
 *
 * Everything here runs on the event loop, for an ask.
 */


static void
zkl_call_release(zkl_call_t *ask)
{
    ngx_int_t      rc;
    zkl_token_t   *token;
    zkl_claim_t   *claim;
    zkl_worker_t  *worker;
    zkl_record_t   record;

    worker = ask->worker;
    token = &ask->token;

    if (ask->name.len != 0) {
        zkl_call_delete(ask);
        return;
    }

    if (ask->type == ZKL_RELEASE && zkl_call_less(ask) == NGX_OK) {
        return;
    }

    rc = zkl_record_read(worker->zone, &token->id, &ask->path, &record);

    claim = zkl_claim_find(worker, &token->id, &ask->path);

    if (claim != NULL && claim->entry.seq == token->seq
        && (rc == NGX_OK || rc == NGX_AGAIN)
        && zkl_call_ours(claim, &record)
        && claim->state != ZKL_TAKE)
    {
        ask->mourning = 1;
        ask->mourner.handler = zkl_call_released;
        ask->mourner.data = ask;

        zkl_record_ending(worker->zone, token->id.record, ask->forced
                          ? ZKL_ENDING_BROKEN
                          : ZKL_ENDING_RELEASED);

        zkl_claim_release(claim, &ask->mourner);
        return;
    }

    if (rc == NGX_OK && record.seq == token->seq
        && record.state != ZKL_RECORD_OPEN
        && zkl_call_current(&record))
    {
        rc = zkl_record_ask(worker->zone, &token->id, &ask->path, ask->forced);

        if (rc == NGX_OK) {
            ask->gen = record.gen;
            ask->ended = (record.state == ZKL_RECORD_ENDED);

            zkl_worker_subscribe(worker, &ask->bell, token->id.record);
            ngx_add_timer(&ask->timer, ZKL_SIBLING_WAIT);
            return;
        }
    }

    zkl_call_delete(ask);
}


/*
 * Whether this worker may end the claim without a look at ZooKeeper: another
 * session may count a durable claim, and more holds of the claim, once this
 * worker's session is over.
 */

static ngx_uint_t
zkl_call_ours(zkl_claim_t *claim, zkl_record_t *record)
{
    return claim->named == claim->id.record
           && (!claim->durable || zkl_ahead(record->alive));
}


/*
 * Whether its worker would have to know if it was gone: else it is not asked,
 * nor believed that it did what it was asked for.
 */

static ngx_uint_t
zkl_call_current(zkl_record_t *record)
{
    return zkl_ahead(record->alive)
           && (record->state != ZKL_RECORD_HELD
               || zkl_ahead(record->lease));
}


/*
 * A claim of this gateway that is held more than once is held once less: that
 * its record says at once, and its label for other gateways.  NGX_DECLINED:
 * it is to be released.
 */

static ngx_int_t
zkl_call_less(zkl_call_t *ask)
{
    ngx_int_t     rc;
    ngx_uint_t    alive;
    zkl_claim_t  *claim;
    zkl_record_t  record;

    rc = zkl_record_read(ask->worker->zone, &ask->token.id, &ask->path,
                         &record);

    if ((rc != NGX_OK && rc != NGX_AGAIN) || record.seq != ask->token.seq
        || record.state != ZKL_RECORD_HELD)
    {
        return NGX_DECLINED;
    }

    claim = zkl_claim_find(ask->worker, &ask->token.id, &ask->path);

    alive = zkl_ahead(record.alive);

    if (record.holds > 1
        && (!alive || !zkl_session_ready(ask->worker->session)))
    {
        /*
         * Another session may count a durable claim by now, in another record.
         * Nothing is counted in this one before its session is known to live;
         * a client that is told 503 meanwhile may repeat the call.
         */

        zkl_call_poll(ask);
        return NGX_OK;
    }

    if (!alive && (claim == NULL || !zkl_call_ours(claim, &record)))
    {
        return NGX_DECLINED;
    }

    rc = zkl_record_hold(ask->worker->zone, &ask->token.id, &ask->path, 1,
                         &ask->holds);

    if (rc != NGX_OK && rc != NGX_AGAIN) {
        return NGX_DECLINED;
    }

    if (ask->holds == 0) {
        ask->dropped = 1;
        ask->gen = record.gen;

        return NGX_DECLINED;
    }

    ask->counted = 1;
    ask->gen = record.gen;

    zkl_call_inspect(ask);

    return NGX_OK;
}


/*
 * A release that is owed, or that ZooKeeper has to do.
 *
 * A release that could not be confirmed is repeated until it is, also when the
 * client was told 503 and has left.
 *
 * The gateway whose claim is deleted may have more claims in the same queue,
 * and no reason to list it.  But every gateway that takes part watches the
 * lock's znode: the transaction that deletes the claim sets that znode to the
 * data that it has, so that all these gateways list the lock.
 */

static void
zkl_call_delete(zkl_call_t *ask)
{
    u_char     buf[ZKL_CLAIM_MAX];
    ngx_str_t  name;
    zkl_op_t  *op;

    ask->owed = 1;

    if (!zkl_session_connected(ask->worker->session)) {
        return;
    }

    zkl_call_name(ask, &name, buf);

    op = zkl_call_op(ask, ZKL_OP_GET, &name, zkl_call_label_handler, ask);

    /* a server that lags behind may not have the claim yet */

    zkl_call_send_fresh(ask, op);
}


/* Its gateway counts how often a claim is held. */

static void
zkl_call_label_handler(zkl_op_t *op)
{
    zkl_claim_data_t  label;
    zkl_op_t         *next;
    zkl_call_t       *ask;

    ask = op->data;

    if (op->rc == ZKL_OK && ask->node && !zkl_node_asked(ask, op)) {
        op->rc = ZKL_NO_NODE;
    }

    switch (op->rc) {

    case ZKL_OK:
        break;

    case ZKL_NO_NODE:

        if (zkl_call_rename(ask) == NGX_OK) {
            zkl_call_delete(ask);

        } else {
            zkl_call_missing(ask);
        }

        goto done;

    case ZKL_UNKNOWN:
    case ZKL_UNSENT:
        goto done;

    default:

        if (ask->node) {
            zkl_call_failed(ask, op->rc);
            ask->owed = 0;
            goto done;
        }

        /* without the right to read it the gateway may delete it */

        op->version = -1;
        break;
    }

    zkl_claim_data_read(&label, (char *) op->reply.data, op->reply.len);

    ask->version = op->version;

    if (ask->node) {

        /* of that version, since it may be another claim's by now */

        next = zkl_call_op(ask, ZKL_OP_DELETE, NULL,
                          zkl_call_delete_handler, ask);
        if (next != NULL) {
            next->version = ask->version;
        }

        zkl_call_send(ask, next);
        goto done;
    }

    if (ask->type == ZKL_BREAK) {
        ask->version = -1;

    } else if (!ask->dropped
               && ((label.index >= 0 && label.holds > 1)
                   || (label.index < 0 && label.revoke)))
    {
        ask->owed = 0;

        /* that is a wish; how often a Curator client's mark does not tell */

        zkl_call_inspect(ask);
        goto done;
    }

    next = zkl_call_op(ask, ZKL_OP_GET, NULL, zkl_call_parent_handler, ask);
    if (next != NULL) {
        next->whole = 1;
    }

    zkl_call_send(ask, next);

done:

    zkl_call_unpin(ask);
}


static void
zkl_call_parent_handler(zkl_op_t *op)
{
    u_char       buf[ZKL_CLAIM_MAX];
    ngx_str_t    name;
    zkl_op_t    *set, *delete;
    zkl_call_t  *ask;

    ask = op->data;

    if (op->rc == ZKL_UNKNOWN || op->rc == ZKL_UNSENT) {
        goto done;
    }

    zkl_call_name(ask, &name, buf);

    delete = zkl_call_op(ask, ZKL_OP_DELETE, &name, zkl_call_delete_handler,
                         ask);
    if (delete == NULL) {
        goto done;
    }

    set = zkl_call_touch_op(ask, op);

    delete->version = ask->version;
    delete->gather = (set != NULL);
    zkl_call_send(ask, delete);

    if (set != NULL) {
        set->gather = 1;
        zkl_call_send(ask, set);
    }

done:

    zkl_call_unpin(ask);
}


/* Two releases at once: the one that came second says so by itself. */

static void
zkl_call_touched_handler(zkl_op_t *op)
{
    zkl_call_t  *ask;

    ask = op->data;

    if (op->rc == ZKL_CHANGED && ++ask->touches < ZKL_TOUCHES_MAX) {
        zkl_call_touch(ask);
    }

    zkl_call_unpin(ask);
}


/* Sets the lock's znode to what it is, so that all look who take part. */

static void
zkl_call_touch(zkl_call_t *ask)
{
    zkl_op_t  *get;

    if (ask->node) {
        /* a claim that is the lock's znode has no other claims beside it */
        return;
    }

    get = zkl_call_op(ask, ZKL_OP_GET, NULL, zkl_call_touch_handler, ask);
    if (get != NULL) {
        get->whole = 1;
        zkl_call_send(ask, get);
    }
}


static void
zkl_call_touch_handler(zkl_op_t *op)
{
    zkl_op_t    *set;
    zkl_call_t  *ask;

    ask = op->data;

    set = zkl_call_touch_op(ask, op);

    if (set != NULL) {
        zkl_call_send(ask, set);
    }

    zkl_call_unpin(ask);
}


/*
 * Sets the lock's znode to what get has read of it; NULL if that is not known
 * to its end, or there is no memory.
 */

static zkl_op_t *
zkl_call_touch_op(zkl_call_t *ask, zkl_op_t *get)
{
    zkl_op_t  *op;

    if (get->rc != ZKL_OK || get->cut) {
        return NULL;
    }

    op = zkl_op_new(ask->worker->session, ZKL_OP_SET, &ask->path, NULL,
                    &get->reply);
    if (op == NULL) {
        return NULL;
    }

    op->version = get->version;
    op->handler = zkl_call_touched_handler;
    op->data = ask;

    return op;
}


static void
zkl_call_delete_handler(zkl_op_t *op)
{
    zkl_call_t  *ask;

    ask = op->data;

    switch (op->rc) {

    case ZKL_OK:
        zkl_call_tell(ask, ZKL_CALL_OK);
        ask->owed = 0;
        break;

    case ZKL_NO_NODE:

        if (zkl_call_rename(ask) == NGX_OK) {
            zkl_call_delete(ask);
            break;
        }

        zkl_call_missing(ask);
        break;

    case ZKL_CHANGED:

        /* it was renewed, or is held more than once by now */

        zkl_call_delete(ask);
        break;

    case ZKL_UNKNOWN:
    case ZKL_UNSENT:
        ask->owed = 1;
        ask->tries += (op->rc == ZKL_UNKNOWN);
        break;

    default:
        zkl_call_failed(ask, op->rc);
        ask->owed = 0;
        break;
    }

    zkl_call_unpin(ask);
}


/*
 * There is no znode of what was to be released: tells, or looks again.
 *
 * The claim's znode is not there.  If an earlier try may have deleted it, the
 * claim was released.  So it was if the heir of a dead worker deleted it,
 * because the record says that the claim has no holds any more: the heir frees
 * the record when it knows, and the record tells.
 */

static void
zkl_call_missing(zkl_call_t *ask)
{
    ngx_int_t     rc;
    zkl_record_t  record;

    ask->owed = 0;

    if (ask->tries != 0 || !ask->dropped) {
        zkl_call_tell(ask, ask->tries ? ZKL_CALL_OK : ZKL_CALL_GONE);
        return;
    }

    rc = zkl_record_read(ask->worker->zone, &ask->token.id, &ask->path,
                         &record);

    if (rc != NGX_OK && rc != NGX_AGAIN) {
        zkl_call_ended(ask);
        return;
    }

    if (!ask->missing) {
        ask->missing = 1;
        ask->missed = ngx_current_msec;
    }

    if (ngx_current_msec - ask->missed >= ZKL_SIBLING_WAIT) {

        /* it was not deleted for this release */

        zkl_call_tell(ask, ZKL_CALL_GONE);
        return;
    }

    ngx_add_timer(&ask->timer, ZKL_MISSING_AGAIN);
}


/* Its record is free: that tells how it ended. */

static void
zkl_call_ended(zkl_call_t *ask)
{
    ngx_int_t     lost;
    zkl_answer_e  answer;

    lost = zkl_record_lost(ask->worker->zone, ask->token.id.record, ask->gen);

    answer = ZKL_CALL_OK;

    if (lost == NGX_OK) {
        answer = ZKL_CALL_GONE;

    } else if (lost == NGX_AGAIN) {

        /* this worker slept for longer than a record remembers */

        answer = ZKL_CALL_UNREACHABLE;
    }

    zkl_call_tell(ask, answer);
}


static void
zkl_call_released(void *data, zkl_rc_e rc)
{
    zkl_call_t  *ask = data;

    ask->mourning = 0;

    if (rc == ZKL_OK) {
        zkl_call_tell(ask, ZKL_CALL_OK);

    } else if (rc == ZKL_NO_NODE) {
        zkl_call_tell(ask, ZKL_CALL_GONE);

    } else {
        zkl_call_failed(ask, rc);
    }

    zkl_call_free(ask);
}


static void
zkl_call_rung(zkl_call_t *ask)
{
    ngx_int_t     rc;
    zkl_record_t  record;

    if (zkl_record_read(ask->worker->zone, &ask->token.id, &ask->path, &record)
        != NGX_DECLINED)
    {
        zkl_worker_subscribe(ask->worker, &ask->bell, ask->token.id.record);
        return;
    }

    rc = zkl_record_forsaken(ask->worker->zone, &ask->token.id, &ask->path);

    if (rc != NGX_DECLINED) {

        /* its worker may be gone, and the claim live */

        ask->tries += (rc == NGX_AGAIN
                       && zkl_record_lost(ask->worker->zone,
                                         ask->token.id.record, ask->gen)
                          == NGX_DECLINED);

        ngx_del_timer(&ask->timer);
        zkl_call_delete(ask);
        return;
    }

    zkl_call_ended(ask);
    zkl_call_free(ask);
}


/*
 * The sibling that was asked does not answer.
 *
 * The sibling may be dead, and its heir may have carried out the release.  A
 * claim that had begun to end before may have ended for another reason.
 */

static void
zkl_call_forsaken(zkl_call_t *ask)
{
    ask->tries += !ask->ended;

    zkl_worker_unsubscribe(ask->worker, &ask->bell);
    zkl_call_delete(ask);
}


/*
 * Wishes: what a call wants of a claim and only the claim's gateway can do.
 *
 * A claim's gateway has to know that the claim is held once more or once less,
 * or shared from now on, before the gateway does anything else with the claim.
 * So the ask writes the wish into the claim's data, and sets the lock's znode,
 * which that gateway watches, to the present value.  The gateway fulfils the
 * wish and takes the wish out of the data; the ask reads the claim again and
 * again until the wish is gone.  A wish that is not fulfilled in time may be
 * fulfilled later: the caller is told that the outcome is not known.
 *
 * Everything here runs on the event loop, for an ask.
 */


/* The claim's data were read; the label is in infos[0]. */

static void
zkl_call_wish(zkl_call_t *ask, const char *want)
{
    char              text[ZKL_CLAIM_DATA_MAX];
    size_t            index_at;
    ngx_str_t         value;
    zkl_claim_data_t  label;
    zkl_info_t       *info;

    info = &ask->infos[0];

    zkl_claim_data_read(&label, (char *) info->label.data, info->label.len);

    if (label.index < 0 && !label.revoke) {
        zkl_call_tell(ask, ZKL_CALL_FOREIGN);
        return;
    }

    /* a label has room for one wish, of any ask; a mark is mended first */

    if (ask->wished || label.index < 0 || label.want_len != 0) {
        zkl_call_poll(ask);
        return;
    }

    if (ask->type == ZKL_HOLD && ask->ttl != 0) {
        label.ttl = (int64_t) ask->ttl;
    }

    /* this ask's client may be the first to be told that the claim is held */

    label.renewals += (ask->type == ZKL_HOLD || label.async);
    label.async = 0;

    /* a number lets the claim's gateway tell two equal wishes apart */

    if (ask->type == ZKL_SHARE) {
        label.want_len = ngx_sprintf((u_char *) label.want, "%s", want)
                         - (u_char *) label.want;

    } else {
        label.want_len = ngx_sprintf((u_char *) label.want, "%s-%08xD", want,
                                     (uint32_t) ngx_random())
                         - (u_char *) label.want;
    }

    label.want[label.want_len] = '\0';

    ask->mended = label.mended;

    value.len = zkl_claim_data_write(text, &label, &index_at);
    value.data = (u_char *) text;

    zkl_call_write(ask, &value, ask->version, zkl_call_wish_handler);
}


static void
zkl_call_wish_handler(zkl_op_t *op)
{
    zkl_call_t  *ask;

    ask = op->data;

    switch (op->rc) {

    case ZKL_OK:
        ask->wished = 1;
        zkl_call_touch(ask);
        zkl_call_poll(ask);
        break;

    case ZKL_CHANGED:
        zkl_call_poll(ask);
        break;

    case ZKL_NO_NODE:

        if (zkl_call_rename(ask) == NGX_OK) {
            zkl_call_poll(ask);

        } else {
            zkl_call_tell(ask, ZKL_CALL_GONE);
        }

        break;

    case ZKL_UNKNOWN:

        if (ask->type != ZKL_SHARE) {

            /* the wish may be fulfilled by now, and a repeat would be, too */

            zkl_call_tell(ask, ZKL_CALL_UNREACHABLE);
            break;
        }

        /* fall through */

    default:
        zkl_call_failed(ask, op->rc);
        break;
    }

    zkl_call_unpin(ask);
}


/*
 * What has become of the wish by what was read of the claim: NGX_OK, it was
 * fulfilled; NGX_AGAIN, not so far; NGX_DECLINED, that cannot be known.
 *
 * The gateway that fulfils a wish writes the label without the wish.  So does
 * the gateway that mends a mark, which a Curator client may have written over a
 * wish that the gateway had not read.
 */

static ngx_int_t
zkl_call_wished(zkl_call_t *ask)
{
    zkl_claim_data_t  label;
    zkl_info_t       *info;

    info = &ask->infos[0];

    zkl_claim_data_read(&label, (char *) info->label.data, info->label.len);

    if (label.index >= 0 && label.want_len == 0) {
        return (label.mended == ask->mended) ? NGX_OK : NGX_DECLINED;
    }

    return NGX_AGAIN;
}


/* Shares a held claim that was read, until the znode has a reader's name. */

static void
zkl_call_share(zkl_call_t *ask)
{
    zkl_claim_t  *claim;

    if (ask->token.kind == ZKL_READ) {
        zkl_call_tell(ask, ZKL_CALL_OK);
        return;
    }

    if (ask->token.kind != ZKL_MUTEX && ask->token.kind != ZKL_WRITE) {
        zkl_call_tell(ask, ZKL_CALL_CONFLICT);
        return;
    }

    claim = zkl_claim_find(ask->worker, &ask->token.id, &ask->path);

    if (claim == NULL) {
        zkl_call_wish(ask, "shared");
        return;
    }

    zkl_claim_share(claim);
    zkl_call_poll(ask);
}


/*
 * Asks the holder to let go: by the label of a gateway's claim, else by
 * Curator's mark.
 */

static void
zkl_call_revoke(zkl_call_t *ask)
{
    u_char     buf[ZKL_CLAIM_MAX];
    ngx_str_t  name;
    zkl_op_t  *op;

    zkl_call_name(ask, &name, buf);

    op = zkl_call_op(ask, ZKL_OP_GET, &name, zkl_call_mark_handler, ask);

    zkl_call_send(ask, op);
}


static void
zkl_call_mark_handler(zkl_op_t *op)
{
    char              text[ZKL_CLAIM_DATA_MAX];
    size_t            index_at;
    ngx_str_t         value;
    zkl_claim_data_t  label;
    zkl_call_t       *ask;

    ask = op->data;

    if (op->rc == ZKL_OK && ask->node && !zkl_node_asked(ask, op)) {
        op->rc = ZKL_NO_NODE;
    }

    if (op->rc != ZKL_OK) {

        if (op->rc == ZKL_NO_NODE) {
            zkl_call_tell(ask, ZKL_CALL_GONE);

        } else {
            zkl_call_failed(ask, op->rc);
        }

        goto done;
    }

    zkl_claim_data_read(&label, (char *) op->reply.data, op->reply.len);

    if (label.revoke) {
        zkl_call_tell(ask, ZKL_CALL_OK);
        goto done;
    }

    if (label.index < 0 && ask->node) {

        /* only recipes with a queue know Curator's mark */

        zkl_call_tell(ask, ZKL_CALL_FOREIGN);
        goto done;
    }

    if (label.index >= 0) {
        label.revoke = 1;
        value.len = zkl_claim_data_write(text, &label, &index_at);
        value.data = (u_char *) text;

    } else {
        ngx_str_set(&value, ZKL_REVOKE_MARK);
    }

    zkl_call_write(ask, &value, op->version, zkl_call_marked_handler);

done:

    zkl_call_unpin(ask);
}


static void
zkl_call_marked_handler(zkl_op_t *op)
{
    zkl_call_t  *ask;

    ask = op->data;

    switch (op->rc) {

    case ZKL_OK:
        zkl_call_touch(ask);
        zkl_call_tell(ask, ZKL_CALL_OK);
        break;

    case ZKL_CHANGED:
        zkl_call_revoke(ask);
        break;

    case ZKL_NO_NODE:
        zkl_call_tell(ask, ZKL_CALL_GONE);
        break;

    default:
        zkl_call_failed(ask, op->rc);
        break;
    }

    zkl_call_unpin(ask);
}


static void
zkl_call_write(zkl_call_t *ask, ngx_str_t *value, int32_t version,
    zkl_op_pt handler)
{
    u_char     buf[ZKL_CLAIM_MAX];
    ngx_str_t  name;
    zkl_op_t  *op;

    zkl_call_name(ask, &name, buf);

    op = zkl_op_new(ask->worker->session, ZKL_OP_SET, &ask->path, &name,
                    value);
    if (op != NULL) {
        op->version = version;
        op->handler = handler;
        op->data = ask;
    }

    zkl_call_send(ask, op);
}
