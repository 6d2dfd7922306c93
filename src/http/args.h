
/* The arguments of a request: headers, the query and the body. */


#ifndef _NGX_HTTP_ZK_LOCK_ARGS_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_ARGS_H_INCLUDED_


#include "http/request.h"
#include "base/args.h"


/* bytes of a request's body */
#define NGX_HTTP_ZK_LOCK_BODY_MAX     8192


/*
 * Reads the arguments into args: Prefer, then the query, then the body, of
 * which the last wins.  allowed is what the request may have (ZKL_ARG_*).
 * Returns NGX_DECLINED to go on, or else answers.
 */
ngx_int_t ngx_http_zk_lock_args(ngx_http_request_t *r, zkl_args_t *args,
    unsigned allowed);

/* The wait in args, or else the given wait, cut to zk_lock_max_wait. */
ngx_msec_t ngx_http_zk_lock_args_wait(ngx_http_zk_lock_ctx_t *ctx,
    zkl_args_t *args, ngx_msec_t wait);

/* The ttl in args, cut to zk_lock_max_ttl, or 0 if args has no ttl. */
ngx_msec_t ngx_http_zk_lock_args_ttl(ngx_http_zk_lock_ctx_t *ctx,
    zkl_args_t *args);

/* Bytes of the body, which has been read. */
off_t ngx_http_zk_lock_body_size(ngx_http_request_t *r);

/*
 * Copies the whole body, of at most NGX_HTTP_ZK_LOCK_BODY_MAX bytes, into the
 * request's pool.  NGX_ERROR: no memory, or the body's file cannot be read.
 */
ngx_int_t ngx_http_zk_lock_body_text(ngx_http_request_t *r, ngx_str_t *text);

/* The first value of a request's header, or NULL; *n counts the values. */
ngx_str_t *ngx_http_zk_lock_header(ngx_http_request_t *r, const char *name,
    ngx_uint_t *n);

/* Whether a word is preferred (RFC 7240), such as "respond-async". */
ngx_uint_t ngx_http_zk_lock_prefers(ngx_http_request_t *r, const char *word);

/* The stream that the client accepts (RFC 9110), or no stream: PLAIN. */
typedef enum {
    NGX_HTTP_ZK_LOCK_PLAIN = 0,
    NGX_HTTP_ZK_LOCK_EVENTS,        /* text/event-stream */
    NGX_HTTP_ZK_LOCK_LINES          /* application/x-ndjson, or jsonl */
} ngx_http_zk_lock_format_e;

ngx_http_zk_lock_format_e ngx_http_zk_lock_accepts(ngx_http_request_t *r);


#endif /* _NGX_HTTP_ZK_LOCK_ARGS_H_INCLUDED_ */
