
/*
 * Streams: answers that go on, one event after the other.
 */


#ifndef _NGX_HTTP_ZK_LOCK_STREAM_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_STREAM_H_INCLUDED_


#include "ngx_http_zk_lock_answer.h"
#include "ngx_http_zk_lock_follow.h"


typedef struct {
    ngx_http_request_t                *request;
    ngx_http_zk_lock_ctx_t            *ctx;
    ngx_http_zk_lock_format_e          format;

    ngx_chain_t                       *free;    /* their buffers are empty */
    ngx_chain_t                       *busy;    /* not sent so far */
    ngx_event_t                        timer;   /* to the next sign of life */

    /* of a lock's stream */
    ngx_http_zk_lock_follow_t          follow;
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
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_acquire_t *acquire);

/* GET of a lock: its state, and each one that comes after it. */
ngx_int_t ngx_http_zk_lock_stream_lock(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);


/*
 * Between the halves: ngx_http_zk_lock_stream.c knows what is told, and when,
 * ngx_http_zk_lock_events.c sends it.
 */

/* Nothing comes any more; what there is may still be sent. */
void ngx_http_zk_lock_stream_stop(void *data);
/* Looks at the lock, if that is to be done, and can be done now. */
void ngx_http_zk_lock_stream_look(ngx_http_zk_lock_stream_t *stream);

/* The object of an event; its members are to be written. */
zk_lock_json_t *ngx_http_zk_lock_stream_open(
    ngx_http_zk_lock_stream_t *stream, const char *event);
/*
 * Closes json in any case; nothing comes behind the last one.  Returns NGX_DONE
 * if the stream goes on, or else what is to be given to
 * ngx_http_finalize_request().
 */
ngx_int_t ngx_http_zk_lock_stream_send(ngx_http_zk_lock_stream_t *stream,
    const char *event, zk_lock_json_t *json, ngx_uint_t last);
/* Begins the answer; returns what ngx_http_send_header() does. */
ngx_int_t ngx_http_zk_lock_stream_begin(ngx_http_zk_lock_stream_t *stream);
/* Whether the client has something to read first. */
ngx_uint_t ngx_http_zk_lock_stream_clogged(ngx_http_zk_lock_stream_t *stream);
/* The handler of stream->timer: a sign of life. */
void ngx_http_zk_lock_stream_alive_handler(ngx_event_t *ev);
/* With the request's pool: frees what was not sent. */
void ngx_http_zk_lock_stream_cleanup(void *data);


#endif /* _NGX_HTTP_ZK_LOCK_STREAM_H_INCLUDED_ */
