
/*
 * zk_lock_require: whether the client shows that it holds a lock.
 */


#ifndef _NGX_HTTP_ZK_LOCK_REQUIRE_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_REQUIRE_H_INCLUDED_


#include "http/answer.h"
#include "core/follow.h"


/* a zk_lock_require directive */

typedef struct {
    ngx_http_complex_value_t          *name;
    ngx_http_complex_value_t          *token;
    ngx_http_complex_value_t          *fencing;     /* "" without fencing= */
    ngx_http_complex_value_t          *id;          /* "" without id=;
                                                       Terraform's */
    unsigned                           if_held:1;   /* a client that shows
                                                       nothing is served while
                                                       the lock is free */
    unsigned                           shared:1;    /* any holder will do */
    unsigned                           abort:1;     /* the claim is watched */
} ngx_http_zk_lock_require_rule_t;


typedef struct ngx_http_zk_lock_require_s  ngx_http_zk_lock_require_t;

/*
 * Tells whether the request is to be served: NGX_OK; or NGX_ABORT: not, as
 * require->refusal tells until the handler returns.  Never from inside
 * ngx_http_zk_lock_require().
 */
typedef void (*ngx_http_zk_lock_require_pt)(
    ngx_http_zk_lock_require_t *require, ngx_int_t rc);

/* Tells, once, that the claim which was shown does not hold the lock now. */
typedef void (*ngx_http_zk_lock_require_lost_pt)(
    ngx_http_zk_lock_require_t *require);


struct ngx_http_zk_lock_require_s {
    /* set by the caller, in a zeroed object of the request's pool */
    ngx_http_request_t                *request;
    zkl_worker_t                      *worker;
    ngx_http_zk_lock_require_rule_t   *rule;
    ngx_str_t                          name;        /* of the lock */
    ngx_str_t                          path;
    ngx_http_zk_lock_require_pt        handler;
    ngx_http_zk_lock_require_lost_pt   lost;
    void                              *data;
    ngx_http_zk_lock_require_t        *next;        /* the caller's list */

    /* of the location that has the rule: a redirect may lead to another one */
    ngx_msec_t                         timeout;     /* of a call */
    unsigned                           node:1;      /* the lock is one znode */

    zkl_call_t                        *call;        /* NULL: none */
    zkl_follow_t                       follow;      /* of a rule with abort */
    zkl_token_t                        token;       /* with an ID: the key */
    int64_t                            fencing;     /* 0: not shown */
    ngx_http_zk_lock_refusal_t         refusal;
    const char                        *word;        /* of the refusal, for
                                                       logs */
    ngx_event_t                        again;       /* repeats a call; of a
                                                       request that is served
                                                       cancelable */
    ngx_msec_t                         asked;       /* when the check began */
    unsigned                           shown:1;     /* token and fencing are
                                                       read */
    unsigned                           has_token:1; /* or an ID */
    unsigned                           served:1;    /* the claim holds, or held
                                                       when asked */
    unsigned                           news:1;      /* the lock has changed
                                                       since the call began */
    unsigned                           queue:1;     /* the next call describes
                                                       more than a claim */
};


/*
 * Begins to check the rule, perhaps once more.  NGX_OK: the claim was checked
 * and is watched; NGX_AGAIN: the handler tells; NGX_ABORT: refused, as
 * require->refusal tells; NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_zk_lock_require(ngx_http_zk_lock_require_t *require);

/* The request ends: the handlers are not called any more. */
void ngx_http_zk_lock_require_leave(ngx_http_zk_lock_require_t *require);


#endif /* _NGX_HTTP_ZK_LOCK_REQUIRE_H_INCLUDED_ */
