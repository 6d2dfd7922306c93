
/*
 * Watching: a call that is repeated whenever the lock has changed, until the
 * answer will do or the time is over.
 */


#ifndef _NGX_HTTP_ZK_LOCK_WATCH_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_WATCH_H_INCLUDED_


#include "http/request.h"
#include "core/follow.h"


typedef struct ngx_http_zk_lock_watch_s  ngx_http_zk_lock_watch_t;


typedef enum {
    NGX_HTTP_ZK_LOCK_ENOUGH = 0,    /* the request was answered */
    NGX_HTTP_ZK_LOCK_LATER,         /* when the lock has changed */
    NGX_HTTP_ZK_LOCK_SOON           /* in a moment, too, because a grant is
                                       no change of the lock */
} ngx_http_zk_lock_again_e;


/*
 * Handles an answer; *again says when to call again.  With ENOUGH the return
 * value goes to ngx_http_finalize_request().  When watch->over is set no time
 * is left, and SOON is only for an answer that is about to be known.
 */
typedef ngx_int_t (*ngx_http_zk_lock_watch_pt)(ngx_http_zk_lock_watch_t *watch,
    zkl_call_t *call, zkl_answer_e answer, ngx_http_zk_lock_again_e *again);


/* in the request's pool */

struct ngx_http_zk_lock_watch_s {
    ngx_http_request_t                *request;
    ngx_http_zk_lock_ctx_t            *ctx;
    zkl_follow_t                       follow;
    ngx_event_t                        timer;   /* of the whole wait */
    ngx_event_t                        soon;

    zkl_call_e                         type;    /* INSPECT, LIST or FIRST */
    ngx_http_zk_lock_watch_pt          handler;
    void                              *data;

    ngx_msec_t                         rest;    /* how long a call may take
                                                   beyond the wait */

    unsigned                           over:1;
    unsigned                           news:1;  /* since the last call */
};


/*
 * Calls for the lock or the token of ctx, for wait milliseconds at most; 0:
 * once.  The caller sets type, handler and data in a zeroed watch.  Returns
 * NGX_DONE, or a status.
 */
ngx_int_t ngx_http_zk_lock_watch(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_watch_t *watch,
    ngx_msec_t wait);


#endif /* _NGX_HTTP_ZK_LOCK_WATCH_H_INCLUDED_ */
