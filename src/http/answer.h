
/*
 * Answers: statuses, headers and JSON.
 */


#ifndef _NGX_HTTP_ZK_LOCK_ANSWER_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_ANSWER_H_INCLUDED_


#include "http/api.h"
#include "base/json.h"
#include "base/claim_data.h"
#include "base/terraform.h"


/* statuses that nginx has no names for */
#define NGX_HTTP_ZK_LOCK_STATUS_GONE           410
#define NGX_HTTP_ZK_LOCK_STATUS_UNPROCESSABLE  422
#define NGX_HTTP_ZK_LOCK_STATUS_LOCKED         423
#define NGX_HTTP_ZK_LOCK_STATUS_PRECONDITION   428


/*
 * Answers.  All send a whole answer and return what is to be given to
 * ngx_http_finalize_request().  ngx_http_zk_lock_tell.c has those that tell of
 * a claim or a lock, ngx_http_zk_lock_answer.c all else.
 */

/* title and type of a problem follow from its status; detail is ASCII */
ngx_int_t ngx_http_zk_lock_problem(ngx_http_request_t *r, ngx_uint_t status,
    const char *detail);

/* 503 of a type of its own: the zone, or the session, is full */
ngx_int_t ngx_http_zk_lock_answer_no_room(ngx_http_request_t *r,
    const char *detail);

/* 410 of the context's token, and how its claim ended, if that is known */
ngx_int_t ngx_http_zk_lock_answer_gone(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);

/* the wait is over; info is the holder, or NULL */
ngx_int_t ngx_http_zk_lock_answer_taken(ngx_http_request_t *r,
    zkl_info_t *info);

/*
 * The same with another status and detail; terraform: in the names that it
 * looks for, if the holder is one, too
 */
ngx_int_t ngx_http_zk_lock_answer_holder(ngx_http_request_t *r,
    ngx_uint_t status, const char *detail, zkl_info_t *info,
    ngx_uint_t terraform);

/* 201, or 200 if all success is that */
ngx_int_t ngx_http_zk_lock_answer_granted(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_claim_t *claim);

/* a claim, from a call; status is 200 or 202 */
ngx_int_t ngx_http_zk_lock_answer_claim(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_t *call, ngx_uint_t status);

/* 202: a claim that waits by itself */
ngx_int_t ngx_http_zk_lock_answer_queued(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_claim_t *claim);

/* a lock, from a call */
ngx_int_t ngx_http_zk_lock_answer_lock(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_t *call);

/* 204, or 200 if all success is that */
ngx_int_t ngx_http_zk_lock_answer_done(ngx_http_request_t *r);

/* 405; allow is the value of the header */
ngx_int_t ngx_http_zk_lock_answer_method(ngx_http_request_t *r,
    const char *allow);


/*
 * Their parts.  The writers write members into the object that is open.
 */

void ngx_http_zk_lock_write_text(zkl_json_t *json, const char *key,
    const char *text);
/* "name" */
void ngx_http_zk_lock_write_name(zkl_json_t *json,
    ngx_http_zk_lock_ctx_t *ctx);
/* "mode", and "permits" of a semaphore */
void ngx_http_zk_lock_write_mode(zkl_json_t *json, zkl_kind_t kind);
/* what is known of a claim: "owner", "data", "fencing_token", "since", ... */
void ngx_http_zk_lock_write_info(zkl_json_t *json, zkl_info_t *info);
/* all members of a lock; of one that nobody has, if ask->nknown is 0 */
void ngx_http_zk_lock_write_lock(zkl_json_t *json, ngx_http_zk_lock_ctx_t *ctx,
    zkl_call_t *call);
/* all members of a grant, which the context has noted */
void ngx_http_zk_lock_write_grant(zkl_json_t *json,
    ngx_http_zk_lock_ctx_t *ctx, zkl_claim_t *claim);

/*
 * "note": what the client may not expect, of what is asked for here: that the
 * claim queued again, and that its lease or the wait was cut
 */
#define NGX_HTTP_ZK_LOCK_NOTE_AGAIN  1
#define NGX_HTTP_ZK_LOCK_NOTE_TTL    2
#define NGX_HTTP_ZK_LOCK_NOTE_WAIT   4

void ngx_http_zk_lock_write_note(zkl_json_t *json, ngx_http_zk_lock_ctx_t *ctx,
    ngx_uint_t notes);

/* the fencing token of what is known of a claim */
int64_t ngx_http_zk_lock_info_fencing(zkl_info_t *info);

/* Opens the object of a problem, with what each has; more may be written. */
void ngx_http_zk_lock_open_problem(zkl_json_t *json, ngx_uint_t status,
    const char *detail);
/* Closes it, and sends it; json is closed in any case. */
ngx_int_t ngx_http_zk_lock_send_problem(ngx_http_request_t *r,
    ngx_uint_t status, zkl_json_t *json);
/* Sends an answer with a type such as "application/json"; closes json. */
ngx_int_t ngx_http_zk_lock_send(ngx_http_request_t *r, ngx_uint_t status,
    const char *type, zkl_json_t *json);
/* Preference-Applied, of a wait that was preferred */
ngx_int_t ngx_http_zk_lock_add_preference(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
/* value is not copied */
ngx_int_t ngx_http_zk_lock_add_header(ngx_http_request_t *r, const char *key,
    u_char *value, size_t len);


#endif /* _NGX_HTTP_ZK_LOCK_ANSWER_H_INCLUDED_ */
