
/*
 * Watching: a call that is repeated whenever the lock has changed.
 *
 * The watch follows the lock before the first call, so that no change goes
 * unnoticed.  A single call is in flight at a time, in ctx->call, else NULL; a
 * change meanwhile leads to the next call after the answer.
 *
 * Everything here runs on the event loop, for a request that is held.  The
 * context has the call and the watch, and the context's cleanup leaves both.
 */


#include "http/watch.h"


/* milliseconds, in which the claim's worker may have granted the claim */
#define NGX_HTTP_ZK_LOCK_WATCH_SOON   20


static ngx_int_t ngx_http_zk_lock_watch_call(ngx_http_zk_lock_watch_t *watch);
static void ngx_http_zk_lock_watch_handler(zkl_call_t *call,
    zkl_answer_e answer);
static void ngx_http_zk_lock_watch_news(zkl_follow_t *follow);
static void ngx_http_zk_lock_watch_timer_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_watch_soon_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_watch_again(ngx_http_zk_lock_watch_t *watch);
static void ngx_http_zk_lock_watch_leave(void *data);


ngx_int_t
ngx_http_zk_lock_watch(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx,
    ngx_http_zk_lock_watch_t *watch, ngx_msec_t wait)
{
    ngx_int_t  rc;

    watch->request = r;
    watch->ctx = ctx;
    watch->rest = (wait != 0) ? ZKL_PATIENCE : ctx->conf->timeout;

    rc = ngx_http_zk_lock_request_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    /* not cancelable: a worker that leaves serves the waiters to the end */

    zkl_worker_timer(ctx->worker, &watch->timer,
                     ngx_http_zk_lock_watch_timer_handler);
    zkl_worker_timer(ctx->worker, &watch->soon,
                     ngx_http_zk_lock_watch_soon_handler);

    ctx->other = watch;
    ctx->leave = ngx_http_zk_lock_watch_leave;

    if (wait == 0) {
        watch->over = 1;
        return ngx_http_zk_lock_watch_call(watch);
    }

    /* a repeat of an acquire is an acquire, even if the repeat waits here */

    if (ctx->told.type == NGX_HTTP_ZK_LOCK_INSPECT) {
        ctx->told.type = NGX_HTTP_ZK_LOCK_WATCH;
    }

    watch->follow.handler = ngx_http_zk_lock_watch_news;
    watch->follow.node = (ngx_http_zk_lock_request_node(r) != 0);

    if (zkl_follow(ctx->worker, &ctx->path, &watch->follow) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_add_timer(&watch->timer, wait);

    return ngx_http_zk_lock_watch_call(watch);
}


static ngx_int_t
ngx_http_zk_lock_watch_call(ngx_http_zk_lock_watch_t *watch)
{
    ngx_int_t                rc;
    ngx_msec_int_t           left;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = watch->ctx;
    watch->news = 0;

    /* a request that waits for the lock waits for ZooKeeper as long */

    left = 0;

    if (watch->timer.timer_set) {
        left = (ngx_msec_int_t) (watch->timer.timer.key - ngx_current_msec);
    }

    ctx->patience = ngx_max(left, 0) + watch->rest;

    rc = ngx_http_zk_lock_request_call(watch->request, ctx, watch->type, 0,
                                       ngx_http_zk_lock_watch_handler);

    ctx->patience = 0;

    return rc;
}


static void
ngx_http_zk_lock_watch_handler(zkl_call_t *call, zkl_answer_e answer)
{
    ngx_int_t                  rc;
    ngx_http_request_t        *r;
    ngx_http_zk_lock_ctx_t    *ctx;
    ngx_http_zk_lock_again_e   again;
    ngx_http_zk_lock_watch_t  *watch;

    ctx = call->data;
    watch = ctx->other;
    r = ngx_http_zk_lock_request_told(call, answer);

    again = NGX_HTTP_ZK_LOCK_ENOUGH;

    rc = watch->handler(watch, call, answer, &again);

    if (again == NGX_HTTP_ZK_LOCK_ENOUGH) {

        /* the handler may have put another object in the watch's place */

        ngx_http_zk_lock_watch_leave(watch);

        if (ctx->other == watch) {
            ctx->other = NULL;
        }

        ngx_http_zk_lock_request_end(r, rc);
        return;
    }

    if (watch->news || (watch->over && again != NGX_HTTP_ZK_LOCK_SOON)) {
        ngx_http_zk_lock_watch_again(watch);
        return;
    }

    if (watch->soon.timer_set) {
        ngx_del_timer(&watch->soon);
    }

    if (again == NGX_HTTP_ZK_LOCK_SOON) {
        ngx_add_timer(&watch->soon, NGX_HTTP_ZK_LOCK_WATCH_SOON);

    } else if (watch->type == ZKL_INSPECT) {

        /* a detached claim stays because INSPECT renews the grace */

        ngx_add_timer(&watch->soon, ngx_max(ctx->conf->grace / 3, 1));
    }
}


static void
ngx_http_zk_lock_watch_news(zkl_follow_t *follow)
{
    ngx_http_zk_lock_watch_again(ngx_queue_data(follow,
                                          ngx_http_zk_lock_watch_t, follow));
}


static void
ngx_http_zk_lock_watch_timer_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_watch_t  *watch;

    watch = ngx_queue_data(ev, ngx_http_zk_lock_watch_t, timer);
    watch->over = 1;

    ngx_http_zk_lock_watch_again(watch);
}


static void
ngx_http_zk_lock_watch_soon_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_watch_again(ngx_queue_data(ev, ngx_http_zk_lock_watch_t,
                                                soon));
}


/* The request may end in this function. */

static void
ngx_http_zk_lock_watch_again(ngx_http_zk_lock_watch_t *watch)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    if (watch->ctx->call != NULL) {
        watch->news = 1;
        return;
    }

    r = watch->request;

    rc = ngx_http_zk_lock_watch_call(watch);

    if (rc != NGX_DONE) {
        ngx_http_zk_lock_request_end(r, rc);
    }
}


static void
ngx_http_zk_lock_watch_leave(void *data)
{
    ngx_http_zk_lock_watch_t *watch = data;

    zkl_unfollow(&watch->follow);

    if (watch->timer.timer_set) {
        ngx_del_timer(&watch->timer);
    }

    if (watch->soon.timer_set) {
        ngx_del_timer(&watch->soon);
    }
}
