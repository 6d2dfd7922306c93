
/* Results: the usual answers to a refused acquire and to a call. */


#ifndef _NGX_HTTP_ZK_LOCK_RESULT_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_RESULT_H_INCLUDED_


#include "http/request.h"


/* the answer to a failure */

typedef struct {
    ngx_uint_t                         result;  /* zkl_outcome_e, or
                                                   zkl_answer_e */
    ngx_uint_t                         kind;    /* of the problem */
    ngx_str_t                          word;    /* for logs */
    const char                        *reason;  /* of a stream's end */
    const char                        *detail;
    const char                        *one;     /* the detail if one of several
                                                   locks is refused; NULL: the
                                                   refusal names no lock */
} ngx_http_zk_lock_result_t;


/* The row of an outcome; of a grant there is no row. */
const ngx_http_zk_lock_result_t *ngx_http_zk_lock_result(
    zkl_outcome_e outcome);

/* The row of a call's result; of OK there is no row. */
const ngx_http_zk_lock_result_t *ngx_http_zk_lock_result_answer(
    zkl_answer_e answer);

/* Answers a request whose acquire was refused. */
ngx_int_t ngx_http_zk_lock_result_refused(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_outcome_e outcome);

/* Sends the usual answer to the result of a call. */
ngx_int_t ngx_http_zk_lock_result_answered(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_t *call, zkl_answer_e answer);

/* Answers with the row of a call's result; of OK there is no row. */
ngx_int_t ngx_http_zk_lock_result_failed(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_answer_e answer);


#endif /* _NGX_HTTP_ZK_LOCK_RESULT_H_INCLUDED_ */
