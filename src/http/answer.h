
/*
 * Answers: statuses, headers and JSON.
 */


#ifndef _NGX_HTTP_ZK_LOCK_ANSWER_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_ANSWER_H_INCLUDED_


#include "http/request.h"
#include "base/json.h"
#include "base/claim_data.h"
#include "base/terraform.h"


/* statuses that nginx has no names for */
#define NGX_HTTP_ZK_LOCK_STATUS_GONE           410
#define NGX_HTTP_ZK_LOCK_STATUS_UNPROCESSABLE  422
#define NGX_HTTP_ZK_LOCK_STATUS_LOCKED         423
#define NGX_HTTP_ZK_LOCK_STATUS_PRECONDITION   428

/*
 * A problem's kind gives the type and the title: the status, or for a further
 * kind of a status a number that ends in the status.
 */
#define NGX_HTTP_ZK_LOCK_KIND_QUOTA    1429
#define NGX_HTTP_ZK_LOCK_KIND_NO_ROOM  1503
#define NGX_HTTP_ZK_LOCK_KIND_DRAINED  2503

#define ngx_http_zk_lock_kind_status(kind)  ((kind) % 1000)


/* why a guarded request is not served */

typedef struct {
    ngx_uint_t                         status;
    ngx_uint_t                         kind;    /* gives type, title and
                                                   Retry-After */
    const char                        *detail;
    zkl_info_t                        *holder;  /* NULL: not told */
} ngx_http_zk_lock_refusal_t;


/* All send a whole answer and return the rc for ngx_http_finalize_request(). */

/* detail is ASCII */
ngx_int_t ngx_http_zk_lock_problem(ngx_http_request_t *r, ngx_uint_t kind,
    const char *detail);

/* 410, and how the claim of the context's token ended, if that is known */
ngx_int_t ngx_http_zk_lock_answer_gone(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);

/* Sets the refusal, with the status of the kind, and returns NGX_ABORT. */
ngx_int_t ngx_http_zk_lock_refuse(ngx_http_zk_lock_refusal_t *refusal,
    ngx_uint_t kind, const char *detail);

/* The location's error_page for the refusal's status, or a problem. */
ngx_int_t ngx_http_zk_lock_answer_refusal(ngx_http_request_t *r,
    ngx_http_zk_lock_refusal_t *refusal);

/* 423: the wait is over; info is the holder, or NULL */
ngx_int_t ngx_http_zk_lock_answer_taken(ngx_http_request_t *r,
    zkl_info_t *info);

/*
 * The same with another status and detail; with terraform and a holder that is
 * Terraform, too, the holder's own members replace "holder"
 */
ngx_int_t ngx_http_zk_lock_answer_holder(ngx_http_request_t *r,
    ngx_uint_t status, const char *detail, zkl_info_t *info,
    ngx_uint_t terraform);

/* 201, or 200 if ctx->plain */
ngx_int_t ngx_http_zk_lock_answer_granted(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_claim_t *claim);

/* a claim, from a call; status is 200 or 202 */
ngx_int_t ngx_http_zk_lock_answer_claim(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_t *call, ngx_uint_t status);

/* 202: a claim that waits on, without a request */
ngx_int_t ngx_http_zk_lock_answer_queued(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_claim_t *claim);

/* 204, or 200 if ctx->plain */
ngx_int_t ngx_http_zk_lock_answer_done(ngx_http_request_t *r);

/* 405; allow is the value of the Allow header */
ngx_int_t ngx_http_zk_lock_answer_method(ngx_http_request_t *r,
    const char *allow);


/* Parts of answers.  The writers write members into the open object. */

void ngx_http_zk_lock_write_text(zkl_json_t *json, const char *key,
    const char *text);
/* "name" */
void ngx_http_zk_lock_write_name(zkl_json_t *json,
    ngx_http_zk_lock_ctx_t *ctx);
/* what clients call a mode */
const char *ngx_http_zk_lock_mode_word(zkl_mode_t mode);
/* "mode", and "permits" of a semaphore */
void ngx_http_zk_lock_write_mode(zkl_json_t *json, zkl_mode_t mode);
/*
 * an object with what info tells of a claim: "owner", "data", "fencing_token",
 * "since", ...; nothing if info is NULL
 */
void ngx_http_zk_lock_write_holder(zkl_json_t *json, const char *key,
    zkl_info_t *info);
/* all members of a lock, from a call that may have found no claim */
void ngx_http_zk_lock_write_lock(zkl_json_t *json, ngx_http_zk_lock_ctx_t *ctx,
    zkl_call_t *call);
/* all members of a grant that the context has noted */
void ngx_http_zk_lock_write_grant(zkl_json_t *json,
    ngx_http_zk_lock_ctx_t *ctx, zkl_claim_t *claim);

/*
 * "note": what the client may not expect, as selected by notes: that the claim
 * queued again, that the ttl was cut, that the wait was cut
 */
#define NGX_HTTP_ZK_LOCK_NOTE_AGAIN  1
#define NGX_HTTP_ZK_LOCK_NOTE_TTL    2
#define NGX_HTTP_ZK_LOCK_NOTE_WAIT   4

void ngx_http_zk_lock_write_note(zkl_json_t *json, ngx_http_zk_lock_ctx_t *ctx,
    ngx_uint_t notes);

/* the fencing token of a claim, from the czxid or the claim data */
int64_t ngx_http_zk_lock_info_fencing(zkl_info_t *info);

/*
 * Adds Retry-After, if due, and opens a problem, to which more members may be
 * written.  NULL: no memory.
 */
zkl_json_t *ngx_http_zk_lock_open_problem(ngx_http_request_t *r,
    ngx_uint_t kind, const char *detail);
/* Sends the problem, and closes json in any case. */
ngx_int_t ngx_http_zk_lock_send_problem(ngx_http_request_t *r,
    ngx_uint_t status, zkl_json_t *json);
/* Sends the answer, and closes json in any case. */
ngx_int_t ngx_http_zk_lock_send(ngx_http_request_t *r, ngx_uint_t status,
    zkl_json_t *json);
/* Sends b, which is the whole answer. */
ngx_int_t ngx_http_zk_lock_send_buf(ngx_http_request_t *r, ngx_uint_t status,
    const char *type, ngx_buf_t *b);
/*
 * Cache-Control: no cache may keep the answer, because the answer tells of this
 * moment alone, and may have a token.  A handler calls this before all else, so
 * that nginx's own error pages have the header, too.
 */
ngx_int_t ngx_http_zk_lock_add_no_store(ngx_http_request_t *r);
/* key and value are not copied */
ngx_int_t ngx_http_zk_lock_add_header(ngx_http_request_t *r, const char *key,
    u_char *value, size_t len);


#endif /* _NGX_HTTP_ZK_LOCK_ANSWER_H_INCLUDED_ */
