
/* A request: the configuration, the context, and the life of a held request. */


#ifndef _NGX_HTTP_ZK_LOCK_REQUEST_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_REQUEST_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "core/call.h"


#define NGX_HTTP_ZK_LOCK_READS        (NGX_HTTP_GET|NGX_HTTP_HEAD)


typedef struct ngx_http_zk_lock_log_s  ngx_http_zk_lock_log_t;


typedef struct {
    zkl_session_conf_t                 session;
    ngx_str_t                          servers;     /* as configured */
    ngx_array_t                       *hosts;       /* of ..._host_t */
    ngx_resolver_t                    *resolver;    /* NULL: no "resolve" */
    ngx_msec_t                         resolver_timeout;
    ngx_pool_t                        *pool;        /* of session.servers; NULL:
                                                       of the configuration */
    ngx_shm_zone_t                    *shm_zone;
    size_t                             zone_size;
    ngx_int_t                          cache;       /* idle locks per worker */
    ngx_str_t                          ssl_trusted_certificate;
    ngx_str_t                          ssl_certificate;
    ngx_str_t                          ssl_certificate_key;

    ngx_http_zk_lock_log_t            *log;         /* NULL: off */

    /* NULL unless this process has started to serve locks */
    zkl_worker_t                      *worker;
    ngx_event_t                        start;       /* retries the start */
    ngx_connection_t                   ident;       /* for ngx_event_ident() */

    unsigned                           resolve:1;   /* names are resolved by the
                                                       resolver */
    unsigned                           used:1;      /* a directive needs
                                                       zk_lock_servers */
    unsigned                           guards:1;    /* requests are guarded */
    unsigned                           logs:1;      /* zk_lock_log is given */
} ngx_http_zk_lock_main_conf_t;


/* how the locks of a location are laid out in ZooKeeper */

#define NGX_HTTP_ZK_LOCK_LAYOUT_QUEUE  0    /* the lock's znode has claims */
#define NGX_HTTP_ZK_LOCK_LAYOUT_NODE   1    /* the lock's znode is the claim */


/* with zk_lock: a request whose lock cannot be had, or is lost */

#define NGX_HTTP_ZK_LOCK_UNREACHABLE_REFUSE  0
#define NGX_HTTP_ZK_LOCK_UNREACHABLE_PASS    1

#define NGX_HTTP_ZK_LOCK_LOST_ABORT     0
#define NGX_HTTP_ZK_LOCK_LOST_CONTINUE  1


typedef struct {
    ngx_http_complex_value_t          *root;
    ngx_msec_t                         wait;
    ngx_msec_t                         max_wait;
    ngx_msec_t                         timeout;     /* for ZooKeeper */
    ngx_msec_t                         ttl;
    ngx_msec_t                         max_ttl;
    ngx_msec_t                         grace;
    ngx_uint_t                         max_queue;
    ngx_uint_t                         max_claims;
    ngx_http_complex_value_t          *quota;       /* the key of max_claims;
                                                       NULL: no bound */
    ngx_http_complex_value_t          *owner;       /* NULL: the client says */
    ngx_http_complex_value_t          *origin;      /* whose pages may change
                                                       locks; NULL: the own */
    ngx_flag_t                         durable;
    ngx_flag_t                         admin;
    ngx_http_handler_pt                handler;     /* of the location */
    ngx_str_t                         *directive;   /* which has set handler */
    ngx_str_t                          page;        /* of zk_lock_page */
    ngx_uint_t                         layout;

    /* of guarded requests */
    ngx_array_t                       *guards;      /* of ..._guard_rule_t */
    ngx_array_t                       *requires;    /* of ..._require_rule_t */
    ngx_array_t                       *inner_guards;    /* of the locations
                                                           within */
    ngx_array_t                       *inner_requires;
    ngx_uint_t                         status;      /* the lock is taken */
    ngx_uint_t                         unreachable;
    ngx_uint_t                         lost;
    ngx_flag_t                         body;        /* is read before */
} ngx_http_zk_lock_loc_conf_t;


/* what a request is counted as */

typedef enum {
    NGX_HTTP_ZK_LOCK_OTHER = 0,
    NGX_HTTP_ZK_LOCK_ACQUIRE,
    NGX_HTTP_ZK_LOCK_RELEASE,
    NGX_HTTP_ZK_LOCK_RENEW,
    NGX_HTTP_ZK_LOCK_HOLD,
    NGX_HTTP_ZK_LOCK_INSPECT,
    NGX_HTTP_ZK_LOCK_LIST,
    NGX_HTTP_ZK_LOCK_WATCH,
    NGX_HTTP_ZK_LOCK_BREAK,
    NGX_HTTP_ZK_LOCK_REVOKE,
    NGX_HTTP_ZK_LOCK_GUARD,
    NGX_HTTP_ZK_LOCK_REQUIRE
} ngx_http_zk_lock_type_e;


/* what logs and metrics tell of a request */

typedef struct {
    ngx_str_t                          name;        /* of the lock; "": the
                                                       location's own path */
    ngx_str_t                          outcome;
    ngx_http_zk_lock_type_e            type;
    ngx_msec_t                         waited;
    int64_t                            fencing;     /* 0: none */
    ngx_str_t                          fencings;    /* of all locks of a guarded
                                                       request */
    ngx_uint_t                         waits;       /* the request acquires */
    ngx_uint_t                         refused;     /* a guarded request is not
                                                       served */
} ngx_http_zk_lock_told_t;


/* the context of a request, in the request's pool */

typedef struct {
    ngx_http_request_t                *request;
    zkl_worker_t                      *worker;
    ngx_http_zk_lock_loc_conf_t       *conf;        /* of the location */

    ngx_http_zk_lock_told_t            told;
    ngx_str_t                          dir;         /* of the request's path, in
                                                       front of the name */
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

    zkl_token_t                        token;
    u_char                             secret[ZKL_TOKEN_LEN];

    unsigned                           has_token:1; /* token is set */
    unsigned                           granted:1;   /* token was granted by
                                                       this request */
    unsigned                           has_data:1;  /* with an owner, or data */
    unsigned                           preferred:1; /* wait is from Prefer */
    unsigned                           wait_cut:1;  /* to zk_lock_max_wait */
    unsigned                           ttl_cut:1;   /* to zk_lock_max_ttl */
    unsigned                           plain:1;     /* all success is 200 */
    unsigned                           sent:1;      /* 200 or 201 */
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

/*
 * Makes a request that waits hear of the client's end: the request is finalized
 * then.  Returns NGX_OK, or a status.
 */
ngx_int_t ngx_http_zk_lock_request_listen(ngx_http_request_t *r);

/* Finalizes a held request, unless rc is NGX_DONE, in the module's events. */
void ngx_http_zk_lock_request_end(ngx_http_request_t *r, ngx_int_t rc);

/* The same in an event of nginx, with any other rc. */
void ngx_http_zk_lock_request_finalize(ngx_http_request_t *r, ngx_int_t rc);

/* Whether the whole answer to a grant was passed to the kernel. */
ngx_uint_t ngx_http_zk_lock_request_written(ngx_http_zk_lock_ctx_t *ctx);

/*
 * Whether an HTTP/3 client has stopped reading the response while the
 * connection is open: nginx tells that by the write event alone.
 */
ngx_uint_t ngx_http_zk_lock_request_stopped(ngx_connection_t *c);

/*
 * Sets the terms that are the location's: of the queue, and how many claims the
 * client may have.  NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_zk_lock_request_terms(ngx_http_request_t *r,
    zkl_worker_t *worker, zkl_terms_t *terms);

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

/*
 * The location's root, checked: "" or "/...".  NGX_DECLINED: the root cannot be
 * used, as the log tells.  NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_zk_lock_request_root(ngx_http_request_t *r,
    ngx_str_t *root);

/* zkl_name_write(), or zkl_name_text_write() */
typedef size_t (*ngx_http_zk_lock_name_pt)(char *buf, const char *text,
    size_t len);

/*
 * Makes a lock's name of a text by write(); the name may be the text.  No name
 * is empty unless the text is.  NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_zk_lock_request_name(ngx_http_request_t *r,
    ngx_str_t *text, ngx_http_zk_lock_name_pt write, ngx_str_t *name);

/*
 * The path of the lock with that name.  A name that no answer can show becomes
 * the name of the lock's znode.  NGX_DECLINED: the root is too long.
 * NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_zk_lock_request_path(ngx_http_request_t *r, ngx_str_t *root,
    ngx_str_t *name, ngx_str_t *path);

/*
 * Notes the client's address in the claim data, and the lock's name if the path
 * does not show it.
 */
void ngx_http_zk_lock_request_cdata(ngx_http_request_t *r,
    zkl_claim_data_t *cdata, ngx_str_t *name, ngx_str_t *path);

/* Notes the claim's token and fencing token in the context. */
void ngx_http_zk_lock_request_note(ngx_http_zk_lock_ctx_t *ctx,
    zkl_claim_t *claim);


#endif /* _NGX_HTTP_ZK_LOCK_REQUEST_H_INCLUDED_ */
