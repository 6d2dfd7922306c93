
/*
 * Watching: a question that is asked again whenever the lock has changed,
 * until its answer will do or the time is over.
 */


#ifndef _NGX_HTTP_ZK_LOCK_WATCH_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_WATCH_H_INCLUDED_


#include "http/api.h"
#include "core/follow.h"


typedef struct ngx_http_zk_lock_watch_s  ngx_http_zk_lock_watch_t;


typedef enum {
    NGX_HTTP_ZK_LOCK_ENOUGH = 0,    /* the request was answered */
    NGX_HTTP_ZK_LOCK_LATER,         /* when the lock has changed */
    ZKL_SOON                        /* in a moment, too: that a claim is held
                                       is no change of the lock */
} ngx_http_zk_lock_again_e;


/*
 * An answer has come.  *again says whether to go on; if not, what is returned
 * goes to ngx_http_finalize_request().  When watch->over is set there is no
 * time left, but for what is about to be known: then SOON.
 */
typedef ngx_int_t (*ngx_http_zk_lock_watch_pt)(ngx_http_zk_lock_watch_t *watch,
    zkl_call_t *call, zkl_answer_e answer, ngx_http_zk_lock_again_e *again);


/* in the request's pool */

struct ngx_http_zk_lock_watch_s {
    ngx_http_request_t                *request;
    ngx_http_zk_lock_ctx_t            *ctx;
    zkl_follow_t                       follow;
    ngx_event_t                        timer;   /* of the whole */
    ngx_event_t                        soon;

    zkl_call_e                         type;    /* INSPECT, LIST or FIRST */
    ngx_http_zk_lock_watch_pt          handler;
    void                              *data;

    ngx_msec_t                         rest;    /* how long its calls may take
                                                   beyond the wait */

    unsigned                           over:1;
    unsigned                           news:1;  /* since it was asked */
};


/*
 * Asks for ctx's lock or token, for wait milliseconds at most; 0: once.  type,
 * handler and data are set by the caller in a zeroed watch.  Returns NGX_DONE,
 * or a status.
 */
ngx_int_t ngx_http_zk_lock_watch(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_watch_t *watch,
    ngx_msec_t wait);


#endif /* _NGX_HTTP_ZK_LOCK_WATCH_H_INCLUDED_ */
