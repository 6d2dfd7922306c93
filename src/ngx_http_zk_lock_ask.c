
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


#include "ngx_http_zk_lock_node.h"


/* how soon a claim is read again, and how late at most, milliseconds */
#define NGX_HTTP_ZK_LOCK_ASK_AGAIN    15
#define NGX_HTTP_ZK_LOCK_ASK_SELDOM   500

/*
 * How many asks of a worker list a lock at a time: one that describes a long
 * line takes some 2 KB for each claim, and watchers look all at once.
 */
#define NGX_HTTP_ZK_LOCK_LOOKS_MAX    32

/* how many releases a worker repeats by itself, when nobody waits for them */
#define NGX_HTTP_ZK_LOCK_DEBTS_MAX    4096


static ngx_msec_t ngx_http_zk_lock_ask_time(
    ngx_http_zk_lock_question_t *question);
static void ngx_http_zk_lock_ask_deaf(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_bell_handler(ngx_http_zk_lock_bell_t *bell);
static void ngx_http_zk_lock_ask_timer_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_ask_over_handler(ngx_event_t *ev);


ngx_http_zk_lock_ask_t *
ngx_http_zk_lock_ask(ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_question_t *question)
{
    size_t                   len;
    u_char                  *p;
    ngx_http_zk_lock_ask_t  *ask;

    len = question->name ? question->name->len : 0;

    ask = ngx_calloc(sizeof(ngx_http_zk_lock_ask_t) + question->path->len
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
    ask->bell.handler = ngx_http_zk_lock_ask_bell_handler;

    p = (u_char *) ask + sizeof(ngx_http_zk_lock_ask_t);

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
        ask->node = (ask->kind == ZK_LOCK_NODE);

    } else {
        ask->node = (question->node != 0);
    }

    ngx_http_zk_lock_worker_timer(worker, &ask->timer,
                                  ngx_http_zk_lock_ask_timer_handler);
    ngx_http_zk_lock_worker_timer(worker, &ask->over,
                                  ngx_http_zk_lock_ask_over_handler);

    /* not cancelable: a worker that leaves tells first */

    ngx_add_timer(&ask->over, ngx_http_zk_lock_ask_time(question));

    ngx_queue_insert_tail(&worker->asks, &ask->queue);
    worker->nasks++;
    worker->nawaited++;
    ngx_http_zk_lock_worker_busy(worker);

    ngx_http_zk_lock_ask_start(ask);

    return ask;
}


/* The holder is a courtesy beside another answer, which is not held up. */

static ngx_msec_t
ngx_http_zk_lock_ask_time(ngx_http_zk_lock_question_t *question)
{
    if (question->type == NGX_HTTP_ZK_LOCK_HOLDER) {
        return ngx_min(question->timeout, NGX_HTTP_ZK_LOCK_PATIENCE);
    }

    return question->timeout;
}


/*
 * While ZooKeeper does not answer, all asks but releases wait.  A release is
 * owed from the moment when the call came; but of those whose callers have left
 * only so many are kept.
 */

void
ngx_http_zk_lock_ask_start(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_worker_t  *worker;

    worker = ask->worker;

    if ((ask->type != NGX_HTTP_ZK_LOCK_RELEASE || ask->find || ask->counted
         || worker->nasks - worker->nawaited >= NGX_HTTP_ZK_LOCK_DEBTS_MAX)
        && !ngx_http_zk_lock_session_ready(worker->session))
    {
        if (ask->type == NGX_HTTP_ZK_LOCK_RENEW && !ask->find) {

            /* the lease must not end while the call waits */

            (void) ngx_http_zk_lock_ask_prolong(ask);
        }

        ask->later = 1;
        return;
    }

    if (ask->find) {
        ngx_http_zk_lock_ask_find(ask);
        return;
    }

    switch (ask->type) {

    case NGX_HTTP_ZK_LOCK_RELEASE:

        if (!ask->counted && !ask->wished) {
            ngx_http_zk_lock_ask_release(ask);
            break;
        }

        /* it is held once less already, or that is wished */

        ngx_http_zk_lock_ask_inspect(ask);
        break;

    case NGX_HTTP_ZK_LOCK_BREAK:
        ngx_http_zk_lock_ask_release(ask);
        break;

    case NGX_HTTP_ZK_LOCK_RENEW:
        ngx_http_zk_lock_ask_renew(ask);
        break;

    case NGX_HTTP_ZK_LOCK_HOLD:
    case NGX_HTTP_ZK_LOCK_SHARE:
    case NGX_HTTP_ZK_LOCK_INSPECT:
        ngx_http_zk_lock_ask_inspect(ask);
        break;

    case NGX_HTTP_ZK_LOCK_REVOKE:
        ngx_http_zk_lock_ask_revoke(ask);
        break;

    case NGX_HTTP_ZK_LOCK_LIST:
    case NGX_HTTP_ZK_LOCK_FIRST:
        ngx_http_zk_lock_ask_list(ask);
        break;

    case NGX_HTTP_ZK_LOCK_HOLDER:
        ngx_http_zk_lock_ask_holder(ask);
        break;
    }
}


void
ngx_http_zk_lock_ask_leave(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_ask_deaf(ask);

    ngx_http_zk_lock_ask_free(ask);
}


/* Nobody waits for its answer any more. */

static void
ngx_http_zk_lock_ask_deaf(ngx_http_zk_lock_ask_t *ask)
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
ngx_http_zk_lock_ask_connected(ngx_http_zk_lock_ask_t *ask)
{
    if (ask->owed) {

        if (ask->pins == 0 && ask->tries == 0) {

            /* nothing was sent: the claim's worker can end the claim again */

            ask->owed = 0;
            ngx_http_zk_lock_ask_release(ask);
            ngx_http_zk_lock_ask_free(ask);

        } else if (ask->pins == 0) {
            ngx_http_zk_lock_ask_delete(ask);
        }

        return;
    }

    if ((ask->later || ask->unwritten) && ask->pins == 0) {
        ask->later = 0;
        ask->asked = ngx_current_msec;
        ngx_http_zk_lock_ask_start(ask);

    } else if (ask->waits) {
        ngx_http_zk_lock_ask_list(ask);
    }
}


void
ngx_http_zk_lock_ask_unreachable(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE);

    if (ask->bell.set) {

        /* the release is owed, though the claim's worker stands still */

        ngx_del_timer(&ask->timer);
        ngx_http_zk_lock_ask_forsaken(ask);
    }

    ngx_http_zk_lock_ask_free(ask);
}


static void
ngx_http_zk_lock_ask_over_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_ask_unreachable(ngx_queue_data(ev,
                                                    ngx_http_zk_lock_ask_t,
                                                    over));
}


void
ngx_http_zk_lock_ask_discard(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_ask_deaf(ask);

    ask->pins = 0;
    ask->mourning = 0;
    ask->owed = 0;
    ask->unwritten = 0;

    ngx_http_zk_lock_ask_free(ask);
}


static void
ngx_http_zk_lock_ask_bell_handler(ngx_http_zk_lock_bell_t *bell)
{
    ngx_http_zk_lock_ask_rung(ngx_queue_data(bell, ngx_http_zk_lock_ask_t,
                                             bell));
}


static void
ngx_http_zk_lock_ask_timer_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_ask_t  *ask;

    ask = ngx_queue_data(ev, ngx_http_zk_lock_ask_t, timer);

    if (ask->bell.set) {
        ngx_http_zk_lock_ask_forsaken(ask);
        return;
    }

    if (ask->missing) {
        ngx_http_zk_lock_ask_missing(ask);
        ngx_http_zk_lock_ask_free(ask);
        return;
    }

    if (ask->polls) {
        ask->polls = 0;
        ngx_http_zk_lock_ask_inspect(ask);
        return;
    }

    ngx_http_zk_lock_ask_tell(ask, ask->answer);
    ngx_http_zk_lock_ask_free(ask);
}


/* Later and later, so that some seconds are not many times. */

void
ngx_http_zk_lock_ask_poll(ngx_http_zk_lock_ask_t *ask)
{
    ngx_msec_t  elapsed;

    if (ask->handler == NULL) {
        return;
    }

    elapsed = ngx_current_msec - ask->asked;

    ask->polls = 1;

    if (!ask->timer.timer_set) {
        ngx_add_timer(&ask->timer,
                      ngx_min(NGX_HTTP_ZK_LOCK_ASK_AGAIN + elapsed / 4,
                              NGX_HTTP_ZK_LOCK_ASK_SELDOM));
    }
}


ngx_int_t
ngx_http_zk_lock_ask_turn(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_worker_t  *worker;

    worker = ask->worker;

    if (ask->looks) {
        return NGX_OK;
    }

    if (worker->nlooks >= NGX_HTTP_ZK_LOCK_LOOKS_MAX) {

        if (ask->waits) {
            return NGX_AGAIN;
        }

        ask->waits = 1;

        if (ask->type < NGX_HTTP_ZK_LOCK_LIST) {

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

void
ngx_http_zk_lock_ask_turn_over(ngx_http_zk_lock_ask_t *ask)
{
    ngx_queue_t                *q;
    ngx_http_zk_lock_worker_t  *worker;

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
        && ngx_http_zk_lock_session_connected(worker->session))
    {
        q = ngx_queue_head(&worker->looks);

        ngx_http_zk_lock_ask_list(ngx_queue_data(q, ngx_http_zk_lock_ask_t,
                                                 turn));
    }
}


ngx_int_t
ngx_http_zk_lock_ask_rename(ngx_http_zk_lock_ask_t *ask)
{
    if (ask->name.len != 0 || ask->other
        || (ask->kind != ZK_LOCK_MUTEX && ask->kind != ZK_LOCK_WRITE))
    {
        ask->other = 0;
        return NGX_DECLINED;
    }

    ask->other = 1;
    ask->token.kind = (ask->token.kind == ZK_LOCK_READ) ? ask->kind
                                                        : ZK_LOCK_READ;
    return NGX_OK;
}


void
ngx_http_zk_lock_ask_name(ngx_http_zk_lock_ask_t *ask, ngx_str_t *name,
    u_char *buf)
{
    if (ask->name.len != 0) {
        *name = ask->name;

        if (ask->node) {
            name->len = 0;
        }

        return;
    }

    name->data = buf;
    name->len = zk_lock_claim_write((char *) buf, &ask->token.id,
                                    ask->token.kind, ask->token.seq);
}


ngx_http_zk_lock_op_t *
ngx_http_zk_lock_ask_op(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_e type, ngx_str_t *name,
    ngx_http_zk_lock_op_pt handler, void *data)
{
    ngx_http_zk_lock_op_t  *op;

    op = ngx_http_zk_lock_op_new(ask->worker->session, type, &ask->path, name,
                                 NULL);
    if (op == NULL) {
        return NULL;
    }

    op->handler = handler;
    op->data = data;

    return op;
}


void
ngx_http_zk_lock_ask_send(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op)
{
    if (op == NULL) {
        ngx_http_zk_lock_ask_post(ask, NGX_HTTP_ZK_LOCK_ASK_FAILED);
        return;
    }

    ask->pins++;

    ngx_http_zk_lock_session_send(op);
}


void
ngx_http_zk_lock_ask_send_fresh(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op)
{
    if (op != NULL) {
        op->fresh = 1;
    }

    ngx_http_zk_lock_ask_send(ask, op);
}


void
ngx_http_zk_lock_ask_failed(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_rc_e rc)
{
    if (rc == NGX_HTTP_ZK_LOCK_UNSENT || rc == NGX_HTTP_ZK_LOCK_UNKNOWN) {

        /* what is counted is written, also when the caller has left */

        ask->unwritten = ask->counted;
        ask->later = (ask->handler != NULL);

        return;
    }

    ask->unwritten = 0;

    ngx_http_zk_lock_ask_tell(ask, rc == NGX_HTTP_ZK_LOCK_NO_AUTH
                                   ? NGX_HTTP_ZK_LOCK_ASK_DENIED
                                   : NGX_HTTP_ZK_LOCK_ASK_FAILED);
}


void
ngx_http_zk_lock_ask_post(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer)
{
    ask->answer = answer;

    if (!ask->timer.timer_set) {
        ngx_post_event(&ask->timer, &ngx_posted_events);
    }
}


void
ngx_http_zk_lock_ask_tell(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer)
{
    ngx_http_zk_lock_ask_pt  handler;

    handler = ask->handler;

    if (handler == NULL) {
        return;
    }

    ask->pins++;
    ngx_http_zk_lock_ask_deaf(ask);

    handler(ask, answer);

    ask->pins--;
}


void
ngx_http_zk_lock_ask_unpin(ngx_http_zk_lock_ask_t *ask)
{
    ask->pins--;

    ngx_http_zk_lock_ask_free(ask);
}


void
ngx_http_zk_lock_ask_free(ngx_http_zk_lock_ask_t *ask)
{
    if (ask->handler != NULL || ask->pins != 0 || ask->mourning || ask->owed
        || ask->unwritten)
    {
        return;
    }

    if (ask->bell.set) {
        ngx_http_zk_lock_bell_take_down(ask->worker, &ask->bell);
    }

    if (ask->timer.timer_set) {
        ngx_del_timer(&ask->timer);
    }

    if (ask->timer.posted) {
        ngx_delete_posted_event(&ask->timer);
    }

    (void) ngx_http_zk_lock_ask_infos(ask, 0);

    ngx_http_zk_lock_ask_turn_over(ask);

    ngx_queue_remove(&ask->queue);
    ask->worker->nasks--;
    ngx_http_zk_lock_worker_busy(ask->worker);

    ngx_free(ask);
}
