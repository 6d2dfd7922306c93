
/* A request: the configuration, the context, and the life of a held request. */


#ifndef _NGX_HTTP_ZK_LOCK_REQUEST_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_REQUEST_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "core/call.h"


#define NGX_HTTP_ZK_LOCK_READS        (NGX_HTTP_GET|NGX_HTTP_HEAD)


typedef struct {
    zkl_session_conf_t                 session;
    ngx_str_t                          servers;     /* as configured */
    ngx_shm_zone_t                    *shm_zone;
    size_t                             zone_size;
    ngx_int_t                          cache;       /* idle locks per worker */
    ngx_str_t                          ssl_trusted_certificate;
    ngx_str_t                          ssl_certificate;
    ngx_str_t                          ssl_certificate_key;

    /* NULL unless this process has started to serve locks */
    zkl_worker_t                      *worker;
    ngx_event_t                        start;       /* retries the start */
    ngx_connection_t                   ident;       /* for ngx_event_ident() */

    unsigned                           api:1;       /* a location is served */
} ngx_http_zk_lock_main_conf_t;


/* how the locks of a location are laid out in ZooKeeper */

#define NGX_HTTP_ZK_LOCK_LAYOUT_QUEUE  0    /* the lock's znode has claims */
#define NGX_HTTP_ZK_LOCK_LAYOUT_NODE   1    /* the lock's znode is the claim */


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


/* the context of a request, in the request's pool */

typedef struct {
    ngx_http_request_t                *request;
    zkl_worker_t                      *worker;

    ngx_str_t                          name;        /* "": the location's own
                                                       path */
    ngx_str_t                          root;        /* "" or "/..." */
    ngx_str_t                          path;        /* of the lock's znode, or
                                                       of the root */
    ngx_str_t                          text;        /* data NULL: no token */

    /* the claim or the call that the request waits for, or NULL */
    zkl_claim_t                       *claim;
    zkl_call_t                        *call;

    /* another object that the request waits for, or NULL; leave() stops that */
    void                              *other;
    void                             (*leave)(void *other);

    ngx_msec_t                         wait;        /* as given, maybe cut */
    ngx_msec_t                         patience;    /* timeout of calls; 0: the
                                                       location's */
    ngx_msec_t                         waited;
    ngx_str_t                          outcome;     /* for logs */
    int64_t                            fencing;     /* 0: none */

    zkl_token_t                        token;
    u_char                             secret[ZKL_TOKEN_LEN];

    unsigned                           has_token:1; /* token is set */
    unsigned                           granted:1;   /* token was granted by
                                                       this request */
    unsigned                           waits:1;     /* the request acquires */
    unsigned                           labelled:1;  /* with an owner, or data */
    unsigned                           preferred:1; /* wait is from Prefer */
    unsigned                           wait_cut:1;  /* to zk_lock_max_wait */
    unsigned                           ttl_cut:1;   /* to zk_lock_max_ttl */
    unsigned                           plain:1;     /* all success is 200 */
    unsigned                           told:1;
    unsigned                           held:1;      /* the cleanup is added */
} ngx_http_zk_lock_ctx_t;


extern ngx_module_t  ngx_http_zk_lock_module;


/*
 * A function that serves a request returns NGX_DONE if the request is held and
 * is finalized later, or else the rc for ngx_http_finalize_request().
 */

/*
 * Holds the request: in whatever way the request ends, a cleanup lets go of the
 * context's claim, call and other object.  Call this function before any of
 * these is made.  Returns NGX_OK, or a status.
 */
ngx_int_t ngx_http_zk_lock_request_hold(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);

/* Finalizes a held request, unless rc is NGX_DONE, in the module's events. */
void ngx_http_zk_lock_request_end(ngx_http_request_t *r, ngx_int_t rc);

/* Whether the whole answer to a grant was passed to the kernel. */
ngx_uint_t ngx_http_zk_lock_request_written(ngx_http_zk_lock_ctx_t *ctx);

/*
 * Whether an HTTP/3 client has stopped reading the response while the
 * connection is open: nginx tells that by the write event alone.
 */
ngx_uint_t ngx_http_zk_lock_request_stopped(ngx_connection_t *c);

/* Whether the client has left; peeks into the socket, if not encrypted. */
ngx_uint_t ngx_http_zk_lock_request_gone(ngx_http_request_t *r);

/*
 * Starts a call with the context's path and token.  handler finds the context
 * in call->data and begins with ngx_http_zk_lock_request_told().
 */
ngx_int_t ngx_http_zk_lock_request_call(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_e type, ngx_msec_t ttl,
    zkl_call_pt handler);

/* Begins the handler of a call: the request does not wait for the call now. */
ngx_http_request_t *ngx_http_zk_lock_request_told(zkl_call_t *call,
    zkl_answer_e answer);

/* Whether a lock of this request's location is a single znode. */
ngx_uint_t ngx_http_zk_lock_request_node(ngx_http_request_t *r);

/* Notes the claim's token and fencing token in the context. */
void ngx_http_zk_lock_request_note(ngx_http_zk_lock_ctx_t *ctx,
    zkl_claim_t *claim);


#endif /* _NGX_HTTP_ZK_LOCK_REQUEST_H_INCLUDED_ */
