
/*
 * Asks: their life, and what all of them use.
 *
 * A claim may be this worker's, a sibling's, or another gateway's.  Its token
 * leads to the record of the first two; for all others ZooKeeper is asked.
 * What is told as held was seen in ZooKeeper behind a sync, so that nobody
 * else can have been granted before the question came.
 *
 * Everything here runs on the event loop.  An ask is freed when it was told
 * and nothing is under way for it; its handler is NULL when who asked has left.
 */


#include "ngx_http_zk_lock_node.h"


/* how soon a claim is read again, and for how long, milliseconds */
#define NGX_HTTP_ZK_LOCK_ASK_AGAIN    15
#define NGX_HTTP_ZK_LOCK_ASK_TIME     3000

/*
 * How many asks of a worker list a lock at a time: one that describes a long
 * line takes some 2 KB for each claim, and watchers look all at once.
 */
#define NGX_HTTP_ZK_LOCK_LOOKS_MAX    32

/* how many releases a worker repeats by itself, when nobody waits for them */
#define NGX_HTTP_ZK_LOCK_DEBTS_MAX    4096


static void ngx_http_zk_lock_ask_deaf(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_bell_handler(ngx_http_zk_lock_bell_t *bell);
static void ngx_http_zk_lock_ask_timer_handler(ngx_event_t *ev);


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

    ngx_queue_insert_tail(&worker->asks, &ask->queue);
    worker->nasks++;
    worker->nawaited++;
    ngx_http_zk_lock_worker_busy(worker);

    /*
     * A release is owed from now on, even if it cannot be confirmed; but out of
     * reach, when nobody may be left to hear of it, only so many are.
     */

    if ((ask->type != NGX_HTTP_ZK_LOCK_RELEASE || ask->find
         || worker->nasks - worker->nawaited >= NGX_HTTP_ZK_LOCK_DEBTS_MAX)
        && !ngx_http_zk_lock_session_reachable(worker->session))
    {
        ngx_http_zk_lock_ask_post(ask, NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE);
        return ask;
    }

    ngx_http_zk_lock_ask_start(ask);

    return ask;
}


/* Without a connection, a new or a broken one, all but a release waits. */

void
ngx_http_zk_lock_ask_start(ngx_http_zk_lock_ask_t *ask)
{
    if ((ask->type != NGX_HTTP_ZK_LOCK_RELEASE || ask->find || ask->counted)
        && !ngx_http_zk_lock_session_connected(ask->worker->session))
    {
        ask->later = 1;
        return;
    }

    if (ask->find) {
        ngx_http_zk_lock_ask_find(ask);
        return;
    }

    switch (ask->type) {

    case NGX_HTTP_ZK_LOCK_RELEASE:

        if (!ask->counted) {
            ngx_http_zk_lock_ask_release(ask);
            break;
        }

        /* it is held once less already, and only to be written down */

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
}


void
ngx_http_zk_lock_ask_connected(ngx_http_zk_lock_ask_t *ask)
{
    if (ask->owed) {

        if (ask->pins == 0) {
            ngx_http_zk_lock_ask_delete(ask);
        }

        return;
    }

    if (ask->later || (ask->unwritten && ask->pins == 0)) {
        ask->later = 0;
        ngx_http_zk_lock_ask_start(ask);

    } else if (ask->waits) {
        ngx_http_zk_lock_ask_list(ask);
    }
}


void
ngx_http_zk_lock_ask_unreachable(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE);
    ngx_http_zk_lock_ask_free(ask);
}


/* One that a sibling was asked for waits for that: its timer ends it. */

void
ngx_http_zk_lock_ask_out_of_reach(ngx_http_zk_lock_ask_t *ask)
{
    if (!ask->bell.set) {
        ngx_http_zk_lock_ask_unreachable(ask);
    }
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


/* Later and later, so that even 3 s are not twenty times. */

void
ngx_http_zk_lock_ask_poll(ngx_http_zk_lock_ask_t *ask)
{
    ngx_msec_t  elapsed;

    if (ask->handler == NULL) {
        return;
    }

    elapsed = ngx_current_msec - ask->asked;

    if (elapsed > NGX_HTTP_ZK_LOCK_ASK_TIME) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE);
        return;
    }

    ask->polls = 1;

    if (!ask->timer.timer_set) {
        ngx_add_timer(&ask->timer, NGX_HTTP_ZK_LOCK_ASK_AGAIN + elapsed / 4);
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


ngx_int_t
ngx_http_zk_lock_ask_sync(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_op_t  *op;

    op = ngx_http_zk_lock_op_new(ask->worker->session,
                                 NGX_HTTP_ZK_LOCK_OP_SYNC, &ask->path, NULL,
                                 NULL);
    if (op == NULL) {
        ngx_http_zk_lock_ask_post(ask, NGX_HTTP_ZK_LOCK_ASK_FAILED);
        return NGX_ERROR;
    }

    ngx_http_zk_lock_session_send(op);

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
ngx_http_zk_lock_ask_failed(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_rc_e rc)
{
    ngx_http_zk_lock_answer_e  answer;

    ask->unwritten = ask->counted && (rc == NGX_HTTP_ZK_LOCK_UNSENT
                                      || rc == NGX_HTTP_ZK_LOCK_UNKNOWN);

    switch (rc) {

    case NGX_HTTP_ZK_LOCK_NO_AUTH:
        answer = NGX_HTTP_ZK_LOCK_ASK_DENIED;
        break;

    case NGX_HTTP_ZK_LOCK_UNSENT:
    case NGX_HTTP_ZK_LOCK_UNKNOWN:
        answer = NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE;
        break;

    default:
        answer = NGX_HTTP_ZK_LOCK_ASK_FAILED;
        break;
    }

    ngx_http_zk_lock_ask_tell(ask, answer);
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
