
/*
 * Several locks at once, on the location's own path: all or none.
 */


#ifndef _NGX_HTTP_ZK_LOCK_SEVERAL_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_SEVERAL_H_INCLUDED_


#include "http/answer.h"
#include "core/group.h"


/* a lock of the request */

typedef struct {
    ngx_str_t                          name;
    ngx_str_t                          path;
    zkl_call_t                        *call;

    zkl_id_t                           id;      /* set by the grant */

    zkl_answer_e                       answer;  /* of the call */
    int64_t                            fencing; /* 0: unknown */
    unsigned                           revoke:1;
} ngx_http_zk_lock_part_t;


typedef struct {
    ngx_http_request_t                *request;
    ngx_http_zk_lock_ctx_t            *ctx;

    ngx_str_t                          whole;   /* root/a/b/c */
    ngx_str_t                          names;   /* a/b/c, within whole */
    ngx_str_t                          text;    /* the token */
    ngx_http_zk_lock_part_t           *parts;   /* in the order of names */
    ngx_uint_t                         nparts;

    /* by a token: what the id of each claim begins with */
    uint8_t                            key[ZKL_KEY];

    /* POST */
    zkl_group_t                        group;
    ngx_http_zk_lock_part_t           *part;    /* was refused, or lost */

    /* any method */
    ngx_uint_t                         calls;   /* in flight */

    zkl_claim_data_t                   cdata;   /* of each claim */
    zkl_mode_t                         mode;
    ngx_msec_t                         ttl;     /* the least; 0: one is not
                                                   known */
    ngx_msec_t                         expires; /* the least */

    unsigned                           untimed:1;   /* not all leases are
                                                       known */
    unsigned                           revoke:1;    /* of any claim */
    unsigned                           granted:1;   /* by this request */
} ngx_http_zk_lock_several_t;


/*
 * POST acquires the locks that the body names; DELETE, PUT and GET serve the
 * locks whose token is ctx->text.  The caller has read the body.
 */
ngx_int_t ngx_http_zk_lock_several(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);


#endif /* _NGX_HTTP_ZK_LOCK_SEVERAL_H_INCLUDED_ */
