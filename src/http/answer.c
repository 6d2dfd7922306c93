
/*
 * Answers: statuses, headers and problems, and what answers tell of claims and
 * locks, as members of JSON and as headers.
 *
 * A grant is described from the claim that the request made; any other claim,
 * and a lock, from what a call has read.  An answer has a token only if the
 * request acquired the claim, repeats an acquire, or named the claim by that
 * token, because only then the context has the token.
 *
 * Everything here runs on the event loop.  The text of the JSON writer is
 * copied into the request's pool, and the writer is closed in any case; the
 * text is NULL if the writer has failed.  An answer that describes a claim or a
 * lock needs a context; the holder (info) is NULL if unknown.
 */


#include "http/answer.h"
#include "core/journal.h"


/* the type and the title of a kind of problem */

typedef struct {
    ngx_uint_t    kind;
    const char   *type;
    const char   *title;
} ngx_http_zk_lock_title_t;


static zkl_json_t *ngx_http_zk_lock_open_title(ngx_http_request_t *r,
    ngx_uint_t kind, ngx_uint_t status, const char *detail);
static ngx_uint_t ngx_http_zk_lock_retries(ngx_uint_t kind);
static ngx_int_t ngx_http_zk_lock_retry(ngx_http_request_t *r,
    ngx_uint_t kind);
static ngx_int_t ngx_http_zk_lock_send_json(ngx_http_request_t *r,
    ngx_uint_t status, const char *type, zkl_json_t *json, zkl_terraform_t *t);
static ngx_uint_t ngx_http_zk_lock_has_page(ngx_http_request_t *r,
    ngx_uint_t status);
static void ngx_http_zk_lock_write_info(zkl_json_t *json, zkl_info_t *info);
static void ngx_http_zk_lock_write_cdata(zkl_json_t *json, ngx_str_t *text);
static void ngx_http_zk_lock_write_time(zkl_json_t *json, const char *key,
    time_t when);
static ngx_int_t ngx_http_zk_lock_fencing(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
static ngx_int_t ngx_http_zk_lock_secrets(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_uint_t async);


static const ngx_http_zk_lock_title_t  ngx_http_zk_lock_titles[] = {

    { NGX_HTTP_BAD_REQUEST, "/problems/bad-request", "Bad request" },
    { NGX_HTTP_FORBIDDEN, "/problems/forbidden", "Not allowed here" },
    { NGX_HTTP_NOT_FOUND, "/problems/not-found", "Not found" },
    { NGX_HTTP_NOT_ALLOWED, "/problems/method", "Method not allowed" },
    { NGX_HTTP_CONFLICT, "/problems/conflict", "Conflict" },

    { NGX_HTTP_ZK_LOCK_STATUS_GONE, "/problems/gone", "The claim is gone" },

    { NGX_HTTP_REQUEST_ENTITY_TOO_LARGE, "/problems/too-large",
      "Body too large" },

    { NGX_HTTP_UNSUPPORTED_MEDIA_TYPE, "/problems/media-type",
      "Unsupported media type" },

    { NGX_HTTP_PRECONDITION_FAILED, "/problems/another-holder",
      "Not that holder" },

    { NGX_HTTP_ZK_LOCK_STATUS_UNPROCESSABLE, "/problems/key",
      "The key was used already" },

    { NGX_HTTP_ZK_LOCK_STATUS_PRECONDITION, "/problems/whom",
      "Which holder is meant?" },

    { NGX_HTTP_ZK_LOCK_STATUS_LOCKED, "/problems/taken", "The lock is taken" },
    { NGX_HTTP_TOO_MANY_REQUESTS, "/problems/full", "The queue is full" },
    { NGX_HTTP_ZK_LOCK_KIND_QUOTA, "/problems/quota", "Too many claims" },
    { NGX_HTTP_SERVICE_UNAVAILABLE, "/problems/unavailable", "Not available" },

    /* a 503 that is due to the gateway's size, not to ZooKeeper */

    { NGX_HTTP_ZK_LOCK_KIND_NO_ROOM, "/problems/no-room", "No room" },
    { NGX_HTTP_ZK_LOCK_KIND_DRAINED, "/problems/drained", "Drained" },

    { 0, "/problems/failed", "Failed" }
};


ngx_int_t
ngx_http_zk_lock_problem(ngx_http_request_t *r, ngx_uint_t kind,
    const char *detail)
{
    return ngx_http_zk_lock_send_problem(r, ngx_http_zk_lock_kind_status(kind),
                                         ngx_http_zk_lock_open_problem(r, kind,
                                                                      detail));
}


zkl_json_t *
ngx_http_zk_lock_open_problem(ngx_http_request_t *r, ngx_uint_t kind,
    const char *detail)
{
    return ngx_http_zk_lock_open_title(r, kind,
                                       ngx_http_zk_lock_kind_status(kind),
                                       detail);
}


static zkl_json_t *
ngx_http_zk_lock_open_title(ngx_http_request_t *r, ngx_uint_t kind,
    ngx_uint_t status, const char *detail)
{
    zkl_json_t                      *json;
    const ngx_http_zk_lock_title_t  *t;

    if (ngx_http_zk_lock_retry(r, kind) != NGX_OK) {
        return NULL;
    }

    for (t = ngx_http_zk_lock_titles; t->kind != 0; t++) {
        if (t->kind == kind) {
            break;
        }
    }

    json = zkl_json_open();

    ngx_http_zk_lock_write_text(json, "type", t->type);
    ngx_http_zk_lock_write_text(json, "title", t->title);
    zkl_json_integer(json, "status", (int64_t) status);
    ngx_http_zk_lock_write_text(json, "detail", detail);

    if (ngx_http_zk_lock_retries(kind)) {
        zkl_json_integer(json, "retry_after_ms", 1000);
    }

    return json;
}


/* Whether a new try makes sense, after a second. */

static ngx_uint_t
ngx_http_zk_lock_retries(ngx_uint_t kind)
{
    ngx_uint_t  status;

    status = ngx_http_zk_lock_kind_status(kind);

    return status == NGX_HTTP_ZK_LOCK_STATUS_LOCKED
           || status == NGX_HTTP_TOO_MANY_REQUESTS
           || status == NGX_HTTP_SERVICE_UNAVAILABLE;
}


static ngx_int_t
ngx_http_zk_lock_retry(ngx_http_request_t *r, ngx_uint_t kind)
{
    return ngx_http_zk_lock_retries(kind)
           ? ngx_http_zk_lock_add_header(r, "Retry-After", (u_char *) "1", 1)
           : NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_send_problem(ngx_http_request_t *r, ngx_uint_t status,
    zkl_json_t *json)
{
    return ngx_http_zk_lock_send_json(r, status, "application/problem+json",
                                      json, NULL);
}


ngx_int_t
ngx_http_zk_lock_answer_method(ngx_http_request_t *r, const char *allow)
{
    if (ngx_http_zk_lock_add_header(r, "Allow", (u_char *) allow,
                                    ngx_strlen(allow))
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_zk_lock_problem(r, NGX_HTTP_NOT_ALLOWED,
                                    "the Allow header says which methods "
                                    "there are here");
}


void
ngx_http_zk_lock_write_text(zkl_json_t *json, const char *key,
    const char *text)
{
    zkl_json_string(json, key, text, strlen(text));
}


ngx_int_t
ngx_http_zk_lock_add_header(ngx_http_request_t *r, const char *key,
    u_char *value, size_t len)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->hash = 1;
    h->key.data = (u_char *) key;
    h->key.len = ngx_strlen(key);
    h->value.data = value;
    h->value.len = len;

    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_add_no_store(ngx_http_request_t *r)
{
    return ngx_http_zk_lock_add_header(r, "Cache-Control",
                                       (u_char *) "no-store",
                                       sizeof("no-store") - 1);
}


ngx_int_t
ngx_http_zk_lock_send(ngx_http_request_t *r, ngx_uint_t status,
    zkl_json_t *json)
{
    return ngx_http_zk_lock_send_json(r, status, "application/json", json,
                                      NULL);
}


/*
 * Closes the object, sends it, and closes json in any case.  Unless t is NULL,
 * the members that the holder sent go before those of json, because Terraform
 * looks for these members.
 */

static ngx_int_t
ngx_http_zk_lock_send_json(ngx_http_request_t *r, ngx_uint_t status,
    const char *type, zkl_json_t *json, zkl_terraform_t *t)
{
    size_t                   len;
    ngx_int_t                rc;
    ngx_buf_t               *b;
    const char              *text;
    ngx_http_zk_lock_ctx_t  *ctx;

    text = zkl_json_text(json, &len);

    if (text == NULL) {
        zkl_json_close(json);

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "an answer could not be written");

        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b = ngx_create_temp_buf(r->pool, (t ? t->data_len : 0) + len + 1);
    if (b == NULL) {
        zkl_json_close(json);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (t != NULL) {

        /* both texts are compact objects with at least one member */

        b->last = ngx_cpymem(b->last, t->data, t->data_len - 1);
        *b->last++ = ',';
        text++;
        len--;
    }

    b->last = ngx_cpymem(b->last, text, len);
    *b->last++ = '\n';

    zkl_json_close(json);

    if (status == NGX_HTTP_ZK_LOCK_STATUS_LOCKED) {
        ngx_str_set(&r->headers_out.status_line, "423 Locked");

    } else if (status == NGX_HTTP_ZK_LOCK_STATUS_UNPROCESSABLE) {
        ngx_str_set(&r->headers_out.status_line, "422 Unprocessable Content");

    } else if (status == NGX_HTTP_ZK_LOCK_STATUS_PRECONDITION) {
        ngx_str_set(&r->headers_out.status_line, "428 Precondition Required");
    }

    rc = ngx_http_zk_lock_send_buf(r, status, type, b);

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    /* NGX_AGAIN: the connection takes no more for now */

    if (ctx != NULL && (rc == NGX_OK || rc == NGX_AGAIN)) {
        ctx->sent = (status == NGX_HTTP_OK || status == NGX_HTTP_CREATED);
    }

    return rc;
}


ngx_int_t
ngx_http_zk_lock_send_buf(ngx_http_request_t *r, ngx_uint_t status,
    const char *type, ngx_buf_t *b)
{
    ngx_int_t    rc;
    ngx_chain_t  out;

    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    r->headers_out.status = status;
    r->headers_out.content_length_n = b->last - b->pos;
    r->headers_out.content_type.data = (u_char *) type;
    r->headers_out.content_type.len = ngx_strlen(type);
    r->headers_out.content_type_len = r->headers_out.content_type.len;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


/* What answers tell of claims and locks. */


ngx_int_t
ngx_http_zk_lock_refuse(ngx_http_zk_lock_refusal_t *refusal, ngx_uint_t kind,
    const char *detail)
{
    refusal->status = ngx_http_zk_lock_kind_status(kind);
    refusal->kind = kind;
    refusal->detail = detail;
    refusal->holder = NULL;

    return NGX_ABORT;
}


ngx_int_t
ngx_http_zk_lock_answer_refusal(ngx_http_request_t *r,
    ngx_http_zk_lock_refusal_t *refusal)
{
    zkl_json_t  *json;

    if (refusal->status == NGX_HTTP_CLOSE) {
        return NGX_HTTP_CLOSE;
    }

    if (ngx_http_zk_lock_add_no_store(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_zk_lock_has_page(r, refusal->status)) {
        return (ngx_http_zk_lock_retry(r, refusal->kind) == NGX_OK)
               ? (ngx_int_t) refusal->status : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_discard_request_body(r) != NGX_OK) {
        r->keepalive = 0;
    }

    /* this may be the error page of another status */

    r->err_status = 0;

    json = ngx_http_zk_lock_open_title(r, refusal->kind, refusal->status,
                                       refusal->detail);

    ngx_http_zk_lock_write_holder(json, "holder", refusal->holder);

    return ngx_http_zk_lock_send_problem(r, refusal->status, json);
}


/* as ngx_http_special_response_handler() decides */

static ngx_uint_t
ngx_http_zk_lock_has_page(ngx_http_request_t *r, ngx_uint_t status)
{
    ngx_uint_t                 i;
    ngx_http_err_page_t       *page;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (r->error_page || clcf->error_pages == NULL || r->uri_changes == 0) {
        return 0;
    }

    page = clcf->error_pages->elts;

    for (i = 0; i < clcf->error_pages->nelts; i++) {
        if (page[i].status == (ngx_int_t) status) {
            return 1;
        }
    }

    return 0;
}


ngx_int_t
ngx_http_zk_lock_answer_taken(ngx_http_request_t *r, zkl_info_t *info)
{
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    return ngx_http_zk_lock_answer_holder(r, NGX_HTTP_ZK_LOCK_STATUS_LOCKED,
                                          "the lock is held, and the wait is "
                                          "over: a longer \"wait\" holds the "
                                          "request until the lock is free, "
                                          "which is better than to ask again",
                                          info, ctx->plain);
}


ngx_int_t
ngx_http_zk_lock_answer_holder(ngx_http_request_t *r, ngx_uint_t status,
    const char *detail, zkl_info_t *info, ngx_uint_t terraform)
{
    zkl_json_t              *json;
    zkl_claim_data_t         cdata;
    zkl_terraform_t          t;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    json = ngx_http_zk_lock_open_problem(r, status, detail);

    ngx_http_zk_lock_write_note(json, ctx, NGX_HTTP_ZK_LOCK_NOTE_WAIT);

    if (info != NULL && terraform) {
        zkl_claim_data_read(&cdata, (char *) info->cdata.data,
                            info->cdata.len);

        if (cdata.data_len != 0
            && zkl_terraform_read(&t, cdata.data, cdata.data_len) == 0)
        {
            return ngx_http_zk_lock_send_json(r, status,
                                              "application/problem+json",
                                              json, &t);
        }
    }

    ngx_http_zk_lock_write_holder(json, "holder", info);

    return ngx_http_zk_lock_send_problem(r, status, json);
}


ngx_int_t
ngx_http_zk_lock_answer_gone(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    zkl_json_t    *json;
    zkl_ending_e   ending;

    /* in the order of zkl_ending_e */

    static const char *details[] = {
        "the claim of this token is gone: released, its lease over, or its "
        "session lost",
        "the claim of this token is gone: it was released",
        "the claim of this token is gone: its lease was over, or its wait, or "
        "it was not asked for in time",
        "the claim of this token is gone: an operator has broken it",
        "the claim of this token is gone: its session with ZooKeeper is over"
    };

    ending = ctx->has_token ? zkl_record_ended(ctx->worker->zone, &ctx->token,
                                               &ctx->path)
                            : ZKL_ENDING_UNKNOWN;

    json = ngx_http_zk_lock_open_problem(r, NGX_HTTP_ZK_LOCK_STATUS_GONE,
                                         details[ending]);

    if (ending != ZKL_ENDING_UNKNOWN) {
        ngx_http_zk_lock_write_text(json, "reason",
                                    zkl_journal_reason(ending));
    }

    return ngx_http_zk_lock_send_problem(r, NGX_HTTP_ZK_LOCK_STATUS_GONE,
                                         json);
}


ngx_int_t
ngx_http_zk_lock_answer_granted(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_claim_t *claim)
{
    zkl_json_t  *json;

    if (ngx_http_zk_lock_secrets(r, ctx, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = zkl_json_open();

    ngx_http_zk_lock_write_grant(json, ctx, claim);

    return ngx_http_zk_lock_send(r, ctx->plain ? NGX_HTTP_OK
                                               : NGX_HTTP_CREATED, json);
}


void
ngx_http_zk_lock_write_grant(zkl_json_t *json, ngx_http_zk_lock_ctx_t *ctx,
    zkl_claim_t *claim)
{
    ngx_str_t       *addr, cdata;
    ngx_msec_int_t   left;
    zkl_record_t     record;

    ngx_http_zk_lock_write_name(json, ctx);
    ngx_http_zk_lock_write_text(json, "state", "held");
    zkl_json_string(json, "token", (char *) ctx->secret, ZKL_TOKEN_LEN);
    ngx_http_zk_lock_write_mode(json, claim->entry.mode);

    addr = &ctx->request->connection->addr_text;

    if (ctx->has_data) {
        cdata.data = claim->cdata;
        cdata.len = claim->cdata_len;

        ngx_http_zk_lock_write_cdata(json, &cdata);

    } else if (addr->len <= ZKL_FROM_MAX) {

        /* the claim data tell only "from", which needs no parser */

        zkl_json_string(json, "from", (char *) addr->data, addr->len);
    }

    zkl_json_integer(json, "fencing_token", ctx->told.fencing);

    if (zkl_record_read(ctx->worker->zone, &claim->id, &ctx->path, &record)
        == ZKL_FOUND)
    {
        ngx_http_zk_lock_write_time(json, "since",
                                    (time_t) (record.since / 1000));
    }

    if (!claim->cell->bound || claim->terms.leased) {
        left = (ngx_msec_int_t) claim->ttl;

        if (claim->told & ZKL_TOLD_SURE) {
            left = (ngx_msec_int_t) (claim->lease - zkl_now());
            left = ngx_max(left, 0);
        }

        zkl_json_integer(json, "ttl_ms", (int64_t) claim->ttl);
        zkl_json_integer(json, "expires_in_ms", (int64_t) left);
    }

    zkl_json_integer(json, "waited_ms", (int64_t) ctx->told.waited);

    ngx_http_zk_lock_write_note(json, ctx, (claim->told & ZKL_TOLD_REQUEUED)
                                ? NGX_HTTP_ZK_LOCK_NOTE_TTL
                                  |NGX_HTTP_ZK_LOCK_NOTE_AGAIN
                                : NGX_HTTP_ZK_LOCK_NOTE_TTL);
}


void
ngx_http_zk_lock_write_note(zkl_json_t *json, ngx_http_zk_lock_ctx_t *ctx,
    ngx_uint_t notes)
{
    u_char  *p, *last;
    u_char   buf[256];

    p = buf;
    last = buf + sizeof(buf);

    if (notes & NGX_HTTP_ZK_LOCK_NOTE_AGAIN) {
        p = ngx_slprintf(p, last, "; the place in the queue was lost with the "
                         "gateway's ZooKeeper session, and the claim queued "
                         "again");
    }

    if ((notes & NGX_HTTP_ZK_LOCK_NOTE_TTL) && ctx->ttl_cut) {
        p = ngx_slprintf(p, last, "; \"ttl\" was cut to zk_lock_max_ttl, "
                         "%M ms", ctx->conf->max_ttl);
    }

    if ((notes & NGX_HTTP_ZK_LOCK_NOTE_WAIT) && ctx->wait_cut) {
        p = ngx_slprintf(p, last, "; \"wait\" was cut to zk_lock_max_wait, "
                         "%M ms", ctx->conf->max_wait);
    }

    if (p != buf) {
        zkl_json_string(json, "note", (char *) buf + 2, p - buf - 2);
    }
}


ngx_int_t
ngx_http_zk_lock_answer_queued(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_claim_t *claim)
{
    zkl_json_t  *json;

    if (ngx_http_zk_lock_secrets(r, ctx, 1) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = zkl_json_open();

    ngx_http_zk_lock_write_name(json, ctx);
    ngx_http_zk_lock_write_text(json, "state", "queued");
    zkl_json_string(json, "token", (char *) ctx->secret, ZKL_TOKEN_LEN);
    ngx_http_zk_lock_write_mode(json, claim->entry.mode);
    zkl_json_integer(json, "position", (int64_t) claim->position);
    zkl_json_integer(json, "grace_ms", (int64_t) claim->terms.grace);
    zkl_json_integer(json, "ttl_ms", (int64_t) claim->ttl);
    ngx_http_zk_lock_write_note(json, ctx, NGX_HTTP_ZK_LOCK_NOTE_TTL
                                           |NGX_HTTP_ZK_LOCK_NOTE_WAIT);

    return ngx_http_zk_lock_send(r, NGX_HTTP_ACCEPTED, json);
}


ngx_int_t
ngx_http_zk_lock_answer_claim(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_t *call, ngx_uint_t status)
{
    ngx_int_t    rc;
    zkl_json_t  *json;
    zkl_info_t  *info;

    info = &call->infos[0];

    ctx->told.fencing = ngx_http_zk_lock_info_fencing(info);

    if (info->held) {
        ngx_str_set(&ctx->told.outcome, "held");

    } else {
        ngx_str_set(&ctx->told.outcome, "queued");
    }

    /*
     * An acquire gets a Location, also an acquire that has joined a claim.  One
     * that joined by the ID of Terraform is not told the token, because any
     * client is shown the ID; Terraform uses no token.
     */

    rc = ctx->plain ? ngx_http_zk_lock_fencing(r, ctx)
                    : ngx_http_zk_lock_secrets(r, ctx,
                                               status == NGX_HTTP_ACCEPTED);
    if (rc != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = zkl_json_open();

    ngx_http_zk_lock_write_name(json, ctx);
    zkl_json_string(json, "state", (char *) ctx->told.outcome.data,
                    ctx->told.outcome.len);

    if (!ctx->plain) {
        zkl_json_string(json, "token", (char *) ctx->secret, ZKL_TOKEN_LEN);
    }

    ngx_http_zk_lock_write_mode(json, info->child.mode);

    if (!info->held) {
        zkl_json_integer(json, "position", (int64_t) call->place);
    }

    if (ctx->told.waits) {
        zkl_json_integer(json, "waited_ms", (int64_t) ctx->told.waited);
    }

    ngx_http_zk_lock_write_info(json, info);
    ngx_http_zk_lock_write_note(json, ctx, info->held
                                ? NGX_HTTP_ZK_LOCK_NOTE_TTL
                                : NGX_HTTP_ZK_LOCK_NOTE_TTL
                                  |NGX_HTTP_ZK_LOCK_NOTE_WAIT);

    return ngx_http_zk_lock_send(r, status, json);
}


void
ngx_http_zk_lock_write_lock(zkl_json_t *json, ngx_http_zk_lock_ctx_t *ctx,
    zkl_call_t *call)
{
    ngx_uint_t   i;
    zkl_info_t  *info;

    ngx_http_zk_lock_write_name(json, ctx);

    if (call->nknown != 0) {
        ngx_http_zk_lock_write_mode(json, call->infos[0].child.mode);
    }

    zkl_json_integer(json, "held", (int64_t) call->holders);
    zkl_json_array(json, "holders");

    for  (i = 0; i < call->nknown && call->infos[i].held; i++) {
        ngx_http_zk_lock_write_holder(json, NULL, &call->infos[i]);
    }

    zkl_json_end_array(json);
    zkl_json_integer(json, "queued", (int64_t) (call->total - call->holders));
    zkl_json_array(json, "queue");

    for ( /* void */ ; i < call->nknown; i++) {
        info = &call->infos[i];

        zkl_json_object(json, NULL);

        if (info->child.mode != call->infos[0].child.mode) {
            ngx_http_zk_lock_write_mode(json, info->child.mode);
        }

        ngx_http_zk_lock_write_cdata(json, &info->cdata);
        ngx_http_zk_lock_write_time(json, "since", info->since);
        zkl_json_end_object(json);
    }

    zkl_json_end_array(json);
}


ngx_int_t
ngx_http_zk_lock_answer_done(ngx_http_request_t *r)
{
    zkl_json_t              *json;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    if (!ctx->plain) {
        r->headers_out.status = NGX_HTTP_NO_CONTENT;
        r->header_only = 1;

        return ngx_http_send_header(r);
    }

    json = zkl_json_open();

    ngx_http_zk_lock_write_name(json, ctx);

    return ngx_http_zk_lock_send(r, NGX_HTTP_OK, json);
}


void
ngx_http_zk_lock_write_holder(zkl_json_t *json, const char *key,
    zkl_info_t *info)
{
    if (info != NULL) {
        zkl_json_object(json, key);
        ngx_http_zk_lock_write_info(json, info);
        zkl_json_end_object(json);
    }
}


/* What info tells of a claim, as members of the open object. */

static void
ngx_http_zk_lock_write_info(zkl_json_t *json, zkl_info_t *info)
{
    int64_t  fencing;

    ngx_http_zk_lock_write_cdata(json, &info->cdata);

    fencing = ngx_http_zk_lock_info_fencing(info);

    if (fencing != 0) {
        zkl_json_integer(json, "fencing_token", fencing);
    }

    ngx_http_zk_lock_write_time(json, "since", info->since);

    if (info->ttl != 0) {
        zkl_json_integer(json, "ttl_ms", (int64_t) info->ttl);
    }

    if (info->timed) {
        zkl_json_integer(json, "expires_in_ms", (int64_t) info->expires);
    }

    if (info->holds > 1) {
        zkl_json_integer(json, "holds", (int64_t) info->holds);
    }
}


static void
ngx_http_zk_lock_write_cdata(zkl_json_t *json, ngx_str_t *text)
{
    zkl_claim_data_t  cdata;

    zkl_claim_data_read(&cdata, (char *) text->data, text->len);

    if (cdata.owner_len != 0) {
        zkl_json_string(json, "owner", cdata.owner, cdata.owner_len);
    }

    if (cdata.data_len != 0) {
        zkl_json_raw(json, "data", cdata.data, cdata.data_len);
    }

    if (cdata.from_len != 0) {
        zkl_json_string(json, "from", cdata.from, cdata.from_len);
    }

    if (cdata.revoke) {
        zkl_json_boolean(json, "revoke", 1);
    }
}


int64_t
ngx_http_zk_lock_info_fencing(zkl_info_t *info)
{
    zkl_claim_data_t  cdata;

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    if (info->durable && cdata.index < 0 && cdata.revoke) {

        /* Curator's mark hides when the claim was made */

        return 0;
    }

    return zkl_fencing_token(cdata.czxid ? cdata.czxid : info->czxid,
                             ngx_max(cdata.index, 0));
}


/* RFC 3339, in UTC */

static void
ngx_http_zk_lock_write_time(zkl_json_t *json, const char *key, time_t when)
{
    u_char     buf[sizeof("1970-01-01T00:00:00Z") + NGX_INT_T_LEN];
    u_char    *p;
    ngx_tm_t   tm;

    if (when == 0) {
        return;
    }

    ngx_gmtime(when, &tm);

    p = ngx_sprintf(buf, "%4d-%02d-%02dT%02d:%02d:%02dZ", tm.ngx_tm_year,
                    tm.ngx_tm_mon, tm.ngx_tm_mday, tm.ngx_tm_hour,
                    tm.ngx_tm_min, tm.ngx_tm_sec);

    zkl_json_string(json, key, (char *) buf, p - buf);
}


const char *
ngx_http_zk_lock_mode_word(zkl_mode_t mode)
{
    static const char *const  modes[] = {
        "exclusive", "shared", "write", "member", "semaphore", "exclusive"
    };

    return modes[zkl_mode_base(mode)];
}


void
ngx_http_zk_lock_write_mode(zkl_json_t *json, zkl_mode_t mode)
{
    ngx_http_zk_lock_write_text(json, "mode", ngx_http_zk_lock_mode_word(mode));

    if (zkl_mode_base(mode) == ZKL_SEMAPHORE) {
        zkl_json_integer(json, "permits", (int64_t) zkl_mode_permits(mode));
    }
}


void
ngx_http_zk_lock_write_name(zkl_json_t *json, ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_str_t  *name;

    name = &ctx->told.name;

    zkl_json_string(json, "name", (char *) name->data, name->len);
}


/* Adds Lock-Fencing-Token, if any. */

static ngx_int_t
ngx_http_zk_lock_fencing(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    u_char  *p, *last;

    if (ctx->told.fencing == 0) {
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    last = ngx_sprintf(p, "%L", ctx->told.fencing);

    return ngx_http_zk_lock_add_header(r, "Lock-Fencing-Token", p, last - p);
}


/*
 * Adds Lock-Token, Lock-Fencing-Token (if any), and of an acquire the Location,
 * and with async the preference that was applied.  The Location is the path in
 * front of the name, as in the request, the lock's name, a slash and the token.
 */

static ngx_int_t
ngx_http_zk_lock_secrets(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx,
    ngx_uint_t async)
{
    u_char     *p;
    size_t      len;
    uintptr_t   escape;

    if (ngx_http_zk_lock_fencing(r, ctx) != NGX_OK
        || ngx_http_zk_lock_add_header(r, "Lock-Token", ctx->secret,
                                       ZKL_TOKEN_LEN)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!ctx->told.waits) {
        return NGX_OK;
    }

    escape = ngx_escape_uri(NULL, ctx->dir.data, ctx->dir.len, NGX_ESCAPE_URI)
             + ngx_escape_uri(NULL, ctx->told.name.data, ctx->told.name.len,
                              NGX_ESCAPE_URI_COMPONENT);

    len = ctx->dir.len + ctx->told.name.len + 2 * escape + 1 + ZKL_TOKEN_LEN;

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    if (ngx_http_zk_lock_add_header(r, "Location", p, len) != NGX_OK) {
        return NGX_ERROR;
    }

    p = (u_char *) ngx_escape_uri(p, ctx->dir.data, ctx->dir.len,
                                  NGX_ESCAPE_URI);
    p = (u_char *) ngx_escape_uri(p, ctx->told.name.data, ctx->told.name.len,
                                  NGX_ESCAPE_URI_COMPONENT);
    *p++ = '/';
    ngx_memcpy(p, ctx->secret, ZKL_TOKEN_LEN);

    return async ? ngx_http_zk_lock_add_header(r, "Preference-Applied",
                                               (u_char *) "respond-async", 13)
                 : NGX_OK;
}
