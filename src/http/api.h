
/*
 * The API: HTTP on one side, claims and asks on the other.
 */


#ifndef _NGX_HTTP_ZK_LOCK_API_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_API_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "core/call.h"
#include "base/args.h"


/* bytes of a request's body */
#define NGX_HTTP_ZK_LOCK_BODY_MAX     8192

#define NGX_HTTP_ZK_LOCK_READS        (NGX_HTTP_GET|NGX_HTTP_HEAD)


typedef struct {
    zkl_session_conf_t                 session;
    ngx_str_t                          servers;     /* as configured */
    ngx_shm_zone_t                    *shm_zone;
    size_t                             zone_size;
    ngx_int_t                          cache;       /* idle locks a worker */
    ngx_str_t                          ssl_trusted_certificate;
    ngx_str_t                          ssl_certificate;
    ngx_str_t                          ssl_certificate_key;

    /* NULL but in a process that serves; set when it starts */
    zkl_worker_t                      *worker;
    ngx_event_t                        start;       /* of it, again */
    ngx_connection_t                   ident;       /* of the timer */

    unsigned                           api:1;       /* used by a location */
} ngx_http_zk_lock_main_conf_t;


/* how the locks of a location are laid out in ZooKeeper */

#define NGX_HTTP_ZK_LOCK_LAYOUT_QUEUE  0    /* the lock's znode has claims */
#define NGX_HTTP_ZK_LOCK_LAYOUT_NODE   1    /* it is the claim */


typedef struct {
    ngx_http_complex_value_t          *root;
    ngx_msec_t                         wait;
    ngx_msec_t                         max_wait;
    ngx_msec_t                         timeout;     /* for ZooKeeper */
    ngx_msec_t                         ttl;
    ngx_msec_t                         max_ttl;
    ngx_msec_t                         grace;
    ngx_uint_t                         max_queue;
    ngx_flag_t                         durable;
    ngx_flag_t                         admin;
    ngx_http_handler_pt                handler;     /* of the location */
    ngx_uint_t                         layout;
} ngx_http_zk_lock_loc_conf_t;


/* a request; in its pool */

typedef struct {
    ngx_http_request_t                *request;
    zkl_worker_t                      *worker;

    ngx_str_t                          name;        /* "": the location's own
                                                       path */
    ngx_str_t                          root;        /* "" or "/..." */
    ngx_str_t                          path;        /* of the lock's znode, or
                                                       of the root */
    ngx_str_t                          text;        /* the token given, "" */

    /* set while it waits; NULL otherwise */
    zkl_claim_t                       *claim;
    zkl_call_t                        *call;

    /* what else waits for the request, and how it is told to let go */
    void                              *other;
    void                             (*leave)(void *other);

    ngx_msec_t                         wait;        /* as it was said, or cut */
    ngx_msec_t                         patience;    /* of its next asks, if it
                                                       is not the location's */
    ngx_msec_t                         waited;
    ngx_str_t                          outcome;     /* for logs */
    int64_t                            fencing;     /* 0: none */

    zkl_token_t                        token;
    u_char                             secret[ZKL_TOKEN_LEN];

    unsigned                           has_token:1; /* token was read */
    unsigned                           granted:1;   /* token was granted by
                                                       this request */
    unsigned                           waits:1;     /* waited is set: it
                                                       acquires */
    unsigned                           labelled:1;  /* with an owner, or data */
    unsigned                           preferred:1; /* wait is, by Prefer */
    unsigned                           wait_cut:1;  /* to zk_lock_max_wait */
    unsigned                           ttl_cut:1;   /* to zk_lock_max_ttl */
    unsigned                           plain:1;     /* all success is 200 */
    unsigned                           told:1;
    unsigned                           held:1;      /* the request is, with a
                                                       cleanup */
} ngx_http_zk_lock_ctx_t;


extern ngx_module_t  ngx_http_zk_lock_module;


/* The content handler of a location with zk_lock_api. */
ngx_int_t ngx_http_zk_lock_api_handler(ngx_http_request_t *r);

/* The content handler of a location with zk_lock_metrics. */
ngx_int_t ngx_http_zk_lock_metrics_handler(ngx_http_request_t *r);

/* Adds the variables; a preconfiguration hook. */
ngx_int_t ngx_http_zk_lock_add_variables(ngx_conf_t *cf);


/*
 * What serves a call returns NGX_DONE if the request is held and will be
 * finalized later, or else what is to be given to ngx_http_finalize_request().
 */

/*
 * From here on the request is held: it has its claim, its call, or what else
 * waits for it, in the context, and when it ends in whatever way these are let
 * go.  Call it before one of them is made.  Returns NGX_OK, or a status.
 */
ngx_int_t ngx_http_zk_lock_api_hold(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);

/* Finalizes a request that was held, from an event that is not its own. */
void ngx_http_zk_lock_api_end(ngx_http_request_t *r, ngx_int_t rc);

/* Whether all of a grant's answer is with the kernel. */
ngx_uint_t ngx_http_zk_lock_api_written(ngx_http_zk_lock_ctx_t *ctx);

/*
 * Whether the client of an HTTP/3 request reads no more of its response, though
 * its connection is there: nginx tells that by the write event alone.
 */
ngx_uint_t ngx_http_zk_lock_api_stopped(ngx_connection_t *c);

/* Whether the client has left: looks at the socket itself. */
ngx_uint_t ngx_http_zk_lock_api_gone(ngx_http_request_t *r);

/*
 * Asks, with a handler that finds the context in ask->data; the path and the
 * token are the context's.  The handler begins with api_told().
 */
ngx_int_t ngx_http_zk_lock_api_call(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_e type, ngx_msec_t ttl,
    zkl_call_pt handler);

/* Begins the handler of such a call: who asked is not held by it any more. */
ngx_http_request_t *ngx_http_zk_lock_api_told(zkl_call_t *call,
    zkl_answer_e answer);

/* Whether a lock of this request's location is one znode. */
ngx_uint_t ngx_http_zk_lock_api_node(ngx_http_request_t *r);

/* Answers what came of a call that is not to be told in another way. */
ngx_int_t ngx_http_zk_lock_api_answered(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_t *call, zkl_answer_e answer);

/* Notes the token of a grant in the context; told: who waits gets it. */
void ngx_http_zk_lock_api_note(ngx_http_zk_lock_ctx_t *ctx,
    zkl_claim_t *claim);

/* Answers why an acquire was refused. */
ngx_int_t ngx_http_zk_lock_api_refused(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_outcome_e outcome);


/*
 * Acquires: fills what is to be acquired from the arguments and the location;
 * label is the caller's and zeroed.  Returns NGX_OK, or NGX_ERROR with the
 * error in args.
 */
ngx_int_t ngx_http_zk_lock_acquire_fill(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_args_t *args, zkl_acquire_t *acquire,
    zkl_claim_data_t *label);

/* POST of a lock, without a token. */
ngx_int_t ngx_http_zk_lock_acquire(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);

/* What a claim is told to who waits for it: data is his context. */
void ngx_http_zk_lock_acquire_handler(void *data, zkl_claim_t *claim,
    zkl_outcome_e outcome);


/*
 * Repeats: acquires with a key; the params of its label are what a repeat has
 * to have in common.
 */
ngx_int_t ngx_http_zk_lock_repeat(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_acquire_t *acquire);

/* NGX_OK and the request's key (data is NULL: none); NGX_ERROR: that is none */
ngx_int_t ngx_http_zk_lock_repeat_key(ngx_http_request_t *r, ngx_str_t *key);

/* What a key becomes in a claim's id (ZKL_KEY bytes). */
void ngx_http_zk_lock_repeat_hash(ngx_http_zk_lock_ctx_t *ctx,
    const char *kind, ngx_str_t *key, uint8_t *hash);

/* The params of what is asked for; how long a repeat waits is its own. */
uint32_t ngx_http_zk_lock_repeat_params(zkl_args_t *args,
    zkl_acquire_t *acquire);


/*
 * Reads the arguments into args; the last one wins: Prefer, then the query,
 * then the body.  allowed is what the call takes (ZK_LOCK_ARG_*).  Returns
 * NGX_OK, or NGX_ERROR with args->error and the status to answer.
 */
ngx_int_t ngx_http_zk_lock_args(ngx_http_request_t *r, zkl_args_t *args,
    unsigned allowed, ngx_uint_t *status);

/* The wait that was said, else the one given here; both are cut. */
ngx_msec_t ngx_http_zk_lock_args_wait(ngx_http_request_t *r, zkl_args_t *args,
    ngx_msec_t wait);

/* The lease that was said, which is cut; 0: none was. */
ngx_msec_t ngx_http_zk_lock_args_ttl(ngx_http_request_t *r, zkl_args_t *args);

/* Bytes of the body, which has been read. */
off_t ngx_http_zk_lock_body_size(ngx_http_request_t *r);

/*
 * The whole body in one piece, of the request's pool, at most
 * NGX_HTTP_ZK_LOCK_BODY_MAX bytes.  NGX_ERROR: no memory, or not to be read.
 */
ngx_int_t ngx_http_zk_lock_body_text(ngx_http_request_t *r, ngx_str_t *text);

/* The value of a request's header, or NULL; *n is how often it is there. */
ngx_str_t *ngx_http_zk_lock_header(ngx_http_request_t *r, ngx_str_t *name,
    ngx_uint_t *n);

/* Whether a word is preferred (RFC 7240), such as "respond-async". */
ngx_uint_t ngx_http_zk_lock_prefers(ngx_http_request_t *r, const char *word);

/* What the client accepts (RFC 9110): one of the streams, or neither. */
typedef enum {
    NGX_HTTP_ZK_LOCK_PLAIN = 0,
    NGX_HTTP_ZK_LOCK_EVENTS,        /* text/event-stream */
    NGX_HTTP_ZK_LOCK_LINES          /* application/x-ndjson, or jsonl */
} ngx_http_zk_lock_format_e;

ngx_http_zk_lock_format_e ngx_http_zk_lock_accepts(ngx_http_request_t *r);


#endif /* _NGX_HTTP_ZK_LOCK_API_H_INCLUDED_ */
