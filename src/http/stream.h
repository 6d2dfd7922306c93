
/*
 * Streams: answers that go on, one event after the other.
 */


#ifndef _NGX_HTTP_ZK_LOCK_STREAM_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_STREAM_H_INCLUDED_


#include "http/answer.h"
#include "core/follow.h"


typedef struct {
    ngx_http_request_t                *request;
    ngx_http_zk_lock_ctx_t            *ctx;
    ngx_http_zk_lock_format_e          format;

    ngx_chain_t                       *free;    /* their buffers are empty */
    ngx_chain_t                       *busy;    /* not sent so far */
    ngx_event_t                        timer;   /* to the next sign of life */

    /* of a lock's stream */
    zkl_follow_t                       follow;
    ngx_event_t                        rest;    /* it does not look so long */
    uint64_t                           mark;    /* of the last state told */

    unsigned                           begun:1; /* the header was sent */
    unsigned                           held:1;  /* the claim was granted */
    unsigned                           told:1;  /* mark is set */
    unsigned                           changed:1;   /* look again */
} ngx_http_zk_lock_stream_t;


/*
 * Acquires what is held by the request's connection.  acquire is filled but
 * for what is the stream's: whom to tell, and that the claim is bound.  What is
 * refused before the stream has begun is answered as ever.
 */
ngx_int_t ngx_http_zk_lock_stream_claim(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_acquire_t *acquire);

/* GET of a lock: its state, and each one that comes after it. */
ngx_int_t ngx_http_zk_lock_stream_lock(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);


/*
 * Between the halves: ngx_http_zk_lock_stream.c knows what is told, and when,
 * ngx_http_zk_lock_events.c sends it.
 */


#endif /* _NGX_HTTP_ZK_LOCK_STREAM_H_INCLUDED_ */
