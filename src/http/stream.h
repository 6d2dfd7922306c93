
/*
 * Streams: answers that go on, event after event.
 */


#ifndef _NGX_HTTP_ZK_LOCK_STREAM_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_STREAM_H_INCLUDED_


#include "http/answer.h"
#include "http/args.h"
#include "core/follow.h"


typedef struct {
    ngx_http_request_t                *request;
    ngx_http_zk_lock_ctx_t            *ctx;
    ngx_http_zk_lock_format_e          format;
    const char                        *event;   /* that is written */

    ngx_chain_t                       *free;    /* with empty buffers */
    ngx_chain_t                       *busy;    /* not sent so far */
    ngx_event_t                        timer;   /* to the next sign of life */

    /* of a lock's stream */
    zkl_follow_t                       follow;
    ngx_event_t                        rest;    /* while set, no look */
    uint64_t                           etag;    /* of the last state told */

    unsigned                           begun:1; /* the header was sent */
    unsigned                           held:1;  /* the claim was granted */
    unsigned                           told:1;  /* etag is set */
    unsigned                           changed:1;   /* look again */
} ngx_http_zk_lock_stream_t;


/*
 * Acquires a claim that the request's connection holds.  The caller fills
 * acquire except bound, the handlers and data, which the stream sets.  A
 * refusal before the first event is answered as for any other acquire.
 */
ngx_int_t ngx_http_zk_lock_stream_claim(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_acquire_t *acquire);

/* GET of a lock: tells the state, and each later state. */
ngx_int_t ngx_http_zk_lock_stream_lock(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);


#endif /* _NGX_HTTP_ZK_LOCK_STREAM_H_INCLUDED_ */
