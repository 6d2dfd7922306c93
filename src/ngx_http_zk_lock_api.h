
/*
 * The API: HTTP on one side, claims and asks on the other.
 */


#ifndef _NGX_HTTP_ZK_LOCK_API_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_API_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_zk_lock_ask.h"
#include "zk_lock_args.h"


/* statuses that nginx has no names for */
#define NGX_HTTP_ZK_LOCK_STATUS_GONE    410
#define NGX_HTTP_ZK_LOCK_STATUS_LOCKED  423

/* bytes of a request's body */
#define NGX_HTTP_ZK_LOCK_BODY_MAX     8192


typedef struct {
    ngx_http_zk_lock_session_conf_t    session;
    ngx_str_t                          servers;     /* as configured */
    ngx_shm_zone_t                    *shm_zone;
    size_t                             zone_size;
    ngx_str_t                          state_path;
    ngx_http_zk_lock_map_conf_t        map;         /* of a new zone */

    /* NULL but in a process that serves; set when it starts */
    ngx_http_zk_lock_worker_t         *worker;
    ngx_event_t                        start;       /* of it, again */
    ngx_connection_t                   ident;       /* of the timer */

    unsigned                           api:1;       /* used by a location */
} ngx_http_zk_lock_main_conf_t;


typedef struct {
    ngx_http_complex_value_t          *root;
    ngx_msec_t                         wait;
    ngx_msec_t                         max_wait;
    ngx_msec_t                         ttl;
    ngx_msec_t                         max_ttl;
    ngx_uint_t                         max_queue;
} ngx_http_zk_lock_loc_conf_t;


/* a request; in its pool */

typedef struct {
    ngx_http_request_t                *request;
    ngx_http_zk_lock_worker_t         *worker;

    ngx_str_t                          name;
    ngx_str_t                          path;        /* of the lock's znode */
    ngx_str_t                          text;        /* the token given, "" */

    /* set while it waits; both NULL otherwise */
    ngx_http_zk_lock_claim_t          *claim;
    ngx_http_zk_lock_ask_t            *ask;

    ngx_msec_t                         waited;
    ngx_str_t                          outcome;     /* for logs */
    int64_t                            fencing;     /* 0: none */

    zk_lock_token_t                    token;
    u_char                             secret[ZK_LOCK_TOKEN_LEN];

    unsigned                           has_token:1; /* token was read */
    unsigned                           granted:1;   /* token was granted by
                                                       this request */
    unsigned                           waits:1;     /* waited is set */
} ngx_http_zk_lock_ctx_t;


extern ngx_module_t  ngx_http_zk_lock_module;


/* The content handler of a location with zk_lock_api. */
ngx_int_t ngx_http_zk_lock_api_handler(ngx_http_request_t *r);

/* The content handler of a location with zk_lock_metrics. */
ngx_int_t ngx_http_zk_lock_metrics_handler(ngx_http_request_t *r);

/* Adds the variables; a preconfiguration hook. */
ngx_int_t ngx_http_zk_lock_add_variables(ngx_conf_t *cf);


/*
 * Reads the arguments into args; the last one wins: Prefer, then the query,
 * then the body.  allowed is what the call takes (ZK_LOCK_ARG_*).  Returns
 * NGX_OK, or NGX_ERROR with args->error and the status to answer.
 */
ngx_int_t ngx_http_zk_lock_args(ngx_http_request_t *r, zk_lock_args_t *args,
    unsigned allowed, ngx_uint_t *status);

/* Bytes of the body, which has been read. */
off_t ngx_http_zk_lock_body_size(ngx_http_request_t *r);

/* The value of a request's header, or NULL; *n is how often it is there. */
ngx_str_t *ngx_http_zk_lock_header(ngx_http_request_t *r, ngx_str_t *name,
    ngx_uint_t *n);


/*
 * Answers.  All send a whole answer and return what is to be given to
 * ngx_http_finalize_request().
 */

/* title and type of a problem follow from its status; detail is ASCII */
ngx_int_t ngx_http_zk_lock_problem(ngx_http_request_t *r, ngx_uint_t status,
    const char *detail);

/* the wait is over; info is the holder, or NULL */
ngx_int_t ngx_http_zk_lock_answer_taken(ngx_http_request_t *r,
    ngx_http_zk_lock_info_t *info);

ngx_int_t ngx_http_zk_lock_answer_granted(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_claim_t *claim);

/* a claim, from an ask */
ngx_int_t ngx_http_zk_lock_answer_claim(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_ask_t *ask);

/* a lock, from an ask */
ngx_int_t ngx_http_zk_lock_answer_lock(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_ask_t *ask);

/* 204 */
ngx_int_t ngx_http_zk_lock_answer_done(ngx_http_request_t *r);

/* 405; allow is the value of the header */
ngx_int_t ngx_http_zk_lock_answer_method(ngx_http_request_t *r,
    const char *allow);


#endif /* _NGX_HTTP_ZK_LOCK_API_H_INCLUDED_ */
