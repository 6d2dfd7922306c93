
/*
 * zk_lock_require: whether the client shows that it holds a lock.
 *
 * The client shows a token, which is a secret, or the fencing token of a grant.
 * A token is inspected as by GET, and has to be that of a claim that holds the
 * lock at this moment; for a fencing token the lock is listed.  The ID of a
 * LOCK by Terraform stands for the token, and leads to the claim as at an
 * UNLOCK.  A client that shows none of these is served, by a rule with if_held,
 * while the lock has no claim: the first claim is about to hold the lock, if
 * the claim does not yet.
 *
 * By a rule with lost=abort the lock is followed while the request is served:
 * each change, and a question that had no answer, leads to the same question
 * again.  The follower is set before the question is asked, so no change goes
 * unnoticed.  Only a claim that is known
 * to be gone is lost: ZooKeeper being out of reach is no answer.
 *
 * Everything here runs on the event loop.  require->call is NULL unless a call
 * is in flight, and the caller calls ..._leave() when the request ends.
 */


#include "http/require.h"
#include "http/answer.h"
#include "http/repeat.h"
#include "http/result.h"


/* how soon a claim is looked at again after a look that failed, in ms */
#define NGX_HTTP_ZK_LOCK_REQUIRE_AGAIN  1000

/* how soon, and how late at most, a claim that may be held is looked at */
#define NGX_HTTP_ZK_LOCK_REQUIRE_SOON   15
#define NGX_HTTP_ZK_LOCK_REQUIRE_SELDOM 500


static ngx_int_t ngx_http_zk_lock_require_shown(
    ngx_http_zk_lock_require_t *require);
static ngx_int_t ngx_http_zk_lock_require_call(
    ngx_http_zk_lock_require_t *require);
static void ngx_http_zk_lock_require_handler(zkl_call_t *call,
    zkl_answer_e answer);
static ngx_int_t ngx_http_zk_lock_require_judge(
    ngx_http_zk_lock_require_t *require, zkl_call_t *call,
    zkl_answer_e answer, const char **why);
static ngx_int_t ngx_http_zk_lock_require_holds(
    ngx_http_zk_lock_require_t *require, zkl_info_t *info, const char **why);
static ngx_int_t ngx_http_zk_lock_require_listed(
    ngx_http_zk_lock_require_t *require, zkl_call_t *call, const char **why);
static ngx_int_t ngx_http_zk_lock_require_answer(
    ngx_http_zk_lock_require_t *require, zkl_call_t *call,
    zkl_answer_e answer);
static zkl_answer_e ngx_http_zk_lock_require_early(
    ngx_http_zk_lock_require_t *require, zkl_call_t *call);
static void ngx_http_zk_lock_require_follow_handler(zkl_follow_t *follow);
static void ngx_http_zk_lock_require_again(
    ngx_http_zk_lock_require_t *require);
static void ngx_http_zk_lock_require_later(
    ngx_http_zk_lock_require_t *require);
static void ngx_http_zk_lock_require_again_handler(ngx_event_t *ev);


static const char  ngx_http_zk_lock_require_hidden[] =
    "another client of ZooKeeper has asked a holder to let go, by a mark that "
    "hides the holder's fencing token until the holder's gateway writes it "
    "anew";


ngx_int_t
ngx_http_zk_lock_require(ngx_http_zk_lock_require_t *require)
{
    ngx_int_t  rc;

    if (require->follow.followed != NULL) {
        return NGX_OK;
    }

    if (require->worker == NULL) {
        require->word = "no_room";

        return ngx_http_zk_lock_refuse(&require->refusal,
                                       NGX_HTTP_ZK_LOCK_KIND_NO_ROOM,
                                       "this worker has no place in "
                                       "zk_lock_zone");
    }

    require->served = 0;
    require->word = "refused";
    require->asked = ngx_current_msec;

    zkl_worker_timer(require->worker, &require->again,
                     ngx_http_zk_lock_require_again_handler);
    require->again.cancelable = 0;

    if (!require->shown) {

        /* once, because a redirect may change the arguments */

        rc = ngx_http_zk_lock_require_shown(require);
        if (rc != NGX_OK) {
            return rc;
        }

        require->shown = 1;
    }

    if (require->rule->abort
        && (require->has_token || require->fencing != 0))
    {
        require->follow.handler = ngx_http_zk_lock_require_follow_handler;
        require->follow.node = require->node;

        if (zkl_follow(require->worker, &require->path, &require->follow)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return (ngx_http_zk_lock_require_call(require) == NGX_OK) ? NGX_AGAIN
                                                              : NGX_ERROR;
}


void
ngx_http_zk_lock_require_leave(ngx_http_zk_lock_require_t *require)
{
    zkl_unfollow(&require->follow);

    if (require->again.timer_set) {
        ngx_del_timer(&require->again);
    }

    if (require->call != NULL) {
        zkl_call_leave(require->call);
        require->call = NULL;
    }
}


/* Reads what the client shows; returns as ..._require(), or NGX_OK. */

static ngx_int_t
ngx_http_zk_lock_require_shown(ngx_http_zk_lock_require_t *require)
{
    ngx_str_t            token, fencing, id;
    ngx_http_request_t  *r;

    r = require->request;

    if (ngx_http_complex_value(r, require->rule->token, &token) != NGX_OK
        || ngx_http_complex_value(r, require->rule->fencing, &fencing)
           != NGX_OK
        || ngx_http_complex_value(r, require->rule->id, &id) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (token.len != 0) {

        if (zkl_name_token_read(&require->token, (char *) token.data,
                                token.len, (char *) require->path.data,
                                require->path.len)
            != 0)
        {
            return ngx_http_zk_lock_refuse(&require->refusal,
                                           NGX_HTTP_PRECONDITION_FAILED,
                                           "the token that was shown is no "
                                           "token of this request's lock");
        }

        require->has_token = 1;

    } else if (id.len != 0) {
        ngx_http_zk_lock_repeat_hash(&require->path, "terraform", &id,
                                     require->token.id.random);

        require->token.seq = -1;
        require->has_token = 1;
    }

    if (fencing.len != 0) {
        require->fencing = (fencing.len <= NGX_INT64_LEN)
                           ? ngx_atoof(fencing.data, fencing.len) : -1;

        if (require->fencing <= 0) {
            return ngx_http_zk_lock_refuse(&require->refusal,
                                           NGX_HTTP_BAD_REQUEST,
                                           "a fencing token is a number above "
                                           "zero");
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_zk_lock_require_call(ngx_http_zk_lock_require_t *require)
{
    zkl_question_t  question;

    require->news = 0;

    ngx_memzero(&question, sizeof(zkl_question_t));

    if (require->has_token) {
        question.type = ZKL_INSPECT;
        question.token = &require->token;

    } else {
        question.type = ((require->rule->shared && require->fencing != 0)
                         || require->queue)
                        ? ZKL_LIST : ZKL_FIRST;
    }

    require->queue = 0;

    question.path = &require->path;
    question.timeout = require->timeout;
    question.node = require->node;
    question.handler = ngx_http_zk_lock_require_handler;
    question.data = require;

    require->call = zkl_call_start(require->worker, &question);

    return (require->call != NULL) ? NGX_OK : NGX_ERROR;
}


static void
ngx_http_zk_lock_require_handler(zkl_call_t *call, zkl_answer_e answer)
{
    ngx_int_t                    rc;
    const char                  *why;
    ngx_http_request_t          *r;
    ngx_http_zk_lock_require_t  *require;

    require = call->data;
    require->call = NULL;

    r = require->request;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock require: \"%V\" answer %d", &require->path,
                   answer);

    if (answer == ZKL_CALL_OK && require->fencing != 0 && !require->has_token)
    {
        answer = ngx_http_zk_lock_require_early(require, call);

        if (answer == ZKL_CALL_WAITS) {
            return;
        }
    }

    if (!require->served) {
        rc = ngx_http_zk_lock_require_answer(require, call, answer);

        require->served = (rc == NGX_OK);
        require->again.cancelable = require->served;

        if (require->served && require->news) {
            ngx_http_zk_lock_require_again(require);
        }

        require->handler(require, rc);
        return;
    }

    rc = ngx_http_zk_lock_require_judge(require, call, answer, &why);

    if (rc == NGX_HTTP_PRECONDITION_FAILED) {
        zkl_unfollow(&require->follow);

        require->lost(require);
        return;
    }

    if (rc == NGX_ERROR || rc == NGX_HTTP_SERVICE_UNAVAILABLE) {
        ngx_http_zk_lock_require_later(require);

    } else if (require->news) {
        ngx_http_zk_lock_require_again(require);
    }
}


/*
 * NGX_OK: the request is to be served; or else a status, with *why unless the
 * call has failed.
 */

static ngx_int_t
ngx_http_zk_lock_require_judge(ngx_http_zk_lock_require_t *require,
    zkl_call_t *call, zkl_answer_e answer, const char **why)
{
    *why = NULL;

    switch (answer) {

    case ZKL_CALL_OK:
        break;

    case ZKL_CALL_GONE:
    case ZKL_CALL_WAITS:
    case ZKL_CALL_FOREIGN:
        *why = "the claim that was shown does not hold the lock of this "
               "request";
        return NGX_HTTP_PRECONDITION_FAILED;

    case ZKL_CALL_FREE:

        if (require->fencing == 0) {
            *why = "this request needs a lock, and shows no token of a claim "
                   "that holds the lock";
            return require->rule->if_held ? NGX_OK
                                         : NGX_HTTP_ZK_LOCK_STATUS_LOCKED;
        }

        *why = "no claim holds the lock of this request";
        return NGX_HTTP_PRECONDITION_FAILED;

    default:
        return NGX_ERROR;
    }

    if (require->has_token) {
        return ngx_http_zk_lock_require_holds(require, &call->infos[0], why);
    }

    return ngx_http_zk_lock_require_listed(require, call, why);
}


/* Whether the claim, which exists, is a holder as the rule says. */

static ngx_int_t
ngx_http_zk_lock_require_holds(ngx_http_zk_lock_require_t *require,
    zkl_info_t *info, const char **why)
{
    int64_t  fencing;

    if (!info->held) {
        *why = "the claim that was shown waits for the lock of this request";
        return NGX_HTTP_PRECONDITION_FAILED;
    }

    if (!require->rule->shared && info->child.mode != ZKL_MUTEX
        && info->child.mode != ZKL_WRITE && info->child.mode != ZKL_NODE)
    {
        *why = "this request needs a claim that has the lock alone";
        return NGX_HTTP_PRECONDITION_FAILED;
    }

    fencing = ngx_http_zk_lock_info_fencing(info);

    if (require->fencing != 0 && info->durable && fencing == 0) {
        *why = ngx_http_zk_lock_require_hidden;
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }

    if (require->fencing != 0 && require->fencing != fencing) {
        *why = "the fencing token that was shown is not that of the holder";
        return NGX_HTTP_PRECONDITION_FAILED;
    }

    return NGX_OK;
}


/* No token was shown, and the lock has claims. */

static ngx_int_t
ngx_http_zk_lock_require_listed(ngx_http_zk_lock_require_t *require,
    zkl_call_t *call, const char **why)
{
    int64_t      fencing;
    ngx_uint_t   i, hidden;
    zkl_info_t  *info;

    if (require->fencing == 0) {
        *why = "this request needs a lock, and shows no token of a claim that "
               "holds the lock";
        return NGX_HTTP_ZK_LOCK_STATUS_LOCKED;
    }

    hidden = 0;

    for (i = 0; i < call->nknown; i++) {
        info = &call->infos[i];
        fencing = ngx_http_zk_lock_info_fencing(info);

        if (info->held && require->fencing == fencing) {
            return ngx_http_zk_lock_require_holds(require, info, why);
        }

        hidden |= (info->held && info->durable && fencing == 0);
    }

    if (hidden) {
        *why = ngx_http_zk_lock_require_hidden;
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }

    /* the holders that are described are those with the smallest tokens */

    if (require->rule->shared && i != 0 && call->holders > i
        && require->fencing
           > ngx_http_zk_lock_info_fencing(&call->infos[i - 1]))
    {
        *why = "the lock has more holders than can be looked at: show the "
               "token in place of the fencing token";
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }

    *why = "the fencing token that was shown is that of no holder";
    return NGX_HTTP_PRECONDITION_FAILED;
}


/*
 * The claim with that fencing token may be held though the list shows another
 * claim ahead, because a gateway hands a lock over before the delete of the
 * claim ahead is done; see zkl_call_placed().  Fencing tokens grow, so a claim
 * behind the first has a larger one.  ZKL_CALL_WAITS: the lock is looked at
 * once more; else how the call is to be judged.
 */

static zkl_answer_e
ngx_http_zk_lock_require_early(ngx_http_zk_lock_require_t *require,
    zkl_call_t *call)
{
    ngx_uint_t         i;
    ngx_msec_t         past;
    zkl_claim_data_t   cdata;
    zkl_info_t        *info;

    info = NULL;

    for (i = 0; i < call->nknown; i++) {
        info = &call->infos[i];

        if (require->fencing == ngx_http_zk_lock_info_fencing(info)) {
            break;
        }
    }

    if (i == call->nknown) {

        if (call->type != ZKL_FIRST || i == 0
            || require->fencing
               < ngx_http_zk_lock_info_fencing(&call->infos[0]))
        {
            return ZKL_CALL_OK;
        }

        require->queue = 1;

        return (ngx_http_zk_lock_require_call(require) == NGX_OK)
               ? ZKL_CALL_WAITS : ZKL_CALL_FAILED;
    }

    if (info->held) {
        return ZKL_CALL_OK;
    }

    /* an async claim may have told the fencing token while the claim waits */

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    past = ngx_current_msec - require->asked;

    if (!zkl_call_granted(&cdata)
        && (cdata.index < 0 || past > ZKL_PATIENCE))
    {
        return ZKL_CALL_OK;
    }

    if (past > require->timeout) {
        return ZKL_CALL_UNREACHABLE;
    }

    past = ngx_max(past, NGX_HTTP_ZK_LOCK_REQUIRE_SOON);

    ngx_add_timer(&require->again,
                  ngx_min(past, NGX_HTTP_ZK_LOCK_REQUIRE_SELDOM));

    return ZKL_CALL_WAITS;
}


/* NGX_OK; NGX_ABORT: refused. */

static ngx_int_t
ngx_http_zk_lock_require_answer(ngx_http_zk_lock_require_t *require,
    zkl_call_t *call, zkl_answer_e answer)
{
    ngx_int_t                         rc;
    const char                       *why;
    const ngx_http_zk_lock_result_t  *row;

    rc = ngx_http_zk_lock_require_judge(require, call, answer, &why);

    if (rc == NGX_OK) {
        return NGX_OK;
    }

    if (rc == NGX_ERROR) {
        row = ngx_http_zk_lock_result_answer(answer);

        require->word = (char *) row->word.data;

        return ngx_http_zk_lock_refuse(&require->refusal, row->kind,
                                       row->detail);
    }

    (void) ngx_http_zk_lock_refuse(&require->refusal, rc, why);

    if (rc == NGX_HTTP_ZK_LOCK_STATUS_LOCKED && answer == ZKL_CALL_OK
        && call->nknown != 0 && call->infos[0].held)
    {
        require->refusal.holder = &call->infos[0];
    }

    return NGX_ABORT;
}


static void
ngx_http_zk_lock_require_follow_handler(zkl_follow_t *follow)
{
    ngx_http_zk_lock_require_t  *require;

    require = ngx_queue_data(follow, ngx_http_zk_lock_require_t, follow);

    ngx_http_zk_lock_require_again(require);
}


static void
ngx_http_zk_lock_require_again(ngx_http_zk_lock_require_t *require)
{
    if (require->call != NULL || !require->served) {
        require->news = 1;
        return;
    }

    if (ngx_http_zk_lock_require_call(require) != NGX_OK) {
        ngx_http_zk_lock_require_later(require);
    }
}


/*
 * The claim of a request that is served could not be looked at, or a mark hides
 * whether the claim is there.  The follow tells of no mark that goes.
 */

static void
ngx_http_zk_lock_require_later(ngx_http_zk_lock_require_t *require)
{
    if (!require->again.timer_set) {
        ngx_add_timer(&require->again, NGX_HTTP_ZK_LOCK_REQUIRE_AGAIN);
    }
}


static void
ngx_http_zk_lock_require_again_handler(ngx_event_t *ev)
{
    ngx_int_t                    rc;
    ngx_http_zk_lock_require_t  *require;

    require = ngx_queue_data(ev, ngx_http_zk_lock_require_t, again);

    if (require->served) {
        ngx_http_zk_lock_require_again(require);
        return;
    }

    require->queue = 1;

    if (ngx_http_zk_lock_require_call(require) != NGX_OK) {
        rc = ngx_http_zk_lock_require_answer(require, NULL, ZKL_CALL_FAILED);

        require->handler(require, rc);
    }
}
