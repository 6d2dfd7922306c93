
/*
 * Several locks at once, on the location's own path: all or none.
 */


#ifndef _NGX_HTTP_ZK_LOCK_SEVERAL_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_SEVERAL_H_INCLUDED_


#include "http/answer.h"


/* one of the locks */

typedef struct {
    ngx_str_t                          name;
    ngx_str_t                          path;
    zkl_claim_t                       *claim;
    zkl_call_t                        *call;

    zkl_id_t                           id;      /* once it was granted */

    /* what is known of its claim */
    zkl_answer_e                       answer;  /* of the call */
    int64_t                            fencing;
    zkl_kind_t                         kind;
    ngx_msec_t                         ttl;     /* 0: unknown */
    ngx_msec_t                         expires;
    unsigned                           timed:1;
    unsigned                           revoke:1;
} ngx_http_zk_lock_part_t;


typedef struct {
    ngx_http_request_t                *request;
    ngx_http_zk_lock_ctx_t            *ctx;

    ngx_str_t                          whole;   /* root/a/b/c */
    ngx_str_t                          names;   /* a/b/c, a part of it */
    ngx_str_t                          text;    /* the token */
    ngx_http_zk_lock_part_t           *parts;   /* in the order of names */
    ngx_uint_t                         nparts;

    /* what the ids of their claims begin with */
    uint8_t                            key[ZKL_KEY];

    /* POST */
    zkl_acquire_t                      acquire;
    ngx_uint_t                         at;      /* the part that waits */
    ngx_msec_t                         started;
    ngx_msec_t                         wait;    /* of all */
    ngx_msec_t                         timeout; /* for ZooKeeper, likewise */
    ngx_event_t                        lost;    /* posted: one is */
    ngx_http_zk_lock_part_t           *part;    /* the one that was refused */
    zkl_outcome_e                      outcome; /* of it */

    /* all other calls */
    ngx_uint_t                         calls;   /* under way */

    zkl_claim_data_t                   label;   /* they have the same */

    unsigned                           granted:1;   /* by this request */
} ngx_http_zk_lock_several_t;


/*
 * POST acquires the locks that the body names; DELETE, PUT and GET are for
 * those whose token ctx->text is.  The body has been read.
 */
ngx_int_t ngx_http_zk_lock_several(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);


/*
 * Between the halves: ngx_http_zk_lock_several.c acquires,
 * ngx_http_zk_lock_parts.c does what is done with a token.
 */


#endif /* _NGX_HTTP_ZK_LOCK_SEVERAL_H_INCLUDED_ */
