
/*
 * Answers: statuses, headers and problems, and how each of them is sent.  What
 * they tell of claims and locks is in tell.
 *
 * Everything here runs on the event loop.  An answer lives in the request's
 * pool: what the JSON writer has written is copied, and the writer is closed in
 * any case.  Its text is NULL if it has failed.
 */


#include "ngx_http_zk_lock_answer.h"


/* what a client is asked to wait before it tries again, seconds */
#define NGX_HTTP_ZK_LOCK_RETRY_AFTER  1


/* what a problem's status stands for */

typedef struct {
    ngx_uint_t    status;
    ngx_str_t     type;
    ngx_str_t     title;
} ngx_http_zk_lock_title_t;


static const ngx_http_zk_lock_title_t *ngx_http_zk_lock_title(
    ngx_uint_t status);
static void ngx_http_zk_lock_open_title(zk_lock_json_t *json,
    const ngx_http_zk_lock_title_t *t, ngx_uint_t status, const char *detail);
static ngx_int_t ngx_http_zk_lock_retry(ngx_http_request_t *r,
    ngx_uint_t status, zk_lock_json_t *json);
static ngx_int_t ngx_http_zk_lock_send_text(ngx_http_request_t *r,
    ngx_uint_t status, const char *type, const char *text, size_t len);


static const ngx_http_zk_lock_title_t  ngx_http_zk_lock_titles[] = {

    { NGX_HTTP_BAD_REQUEST,
      ngx_string("urn:zk-lock:bad-request"), ngx_string("Bad request") },

    { NGX_HTTP_FORBIDDEN,
      ngx_string("urn:zk-lock:forbidden"), ngx_string("Not allowed here") },

    { NGX_HTTP_NOT_FOUND,
      ngx_string("urn:zk-lock:not-found"), ngx_string("Not found") },

    { NGX_HTTP_NOT_ALLOWED,
      ngx_string("urn:zk-lock:method"), ngx_string("Method not allowed") },

    { NGX_HTTP_CONFLICT,
      ngx_string("urn:zk-lock:conflict"), ngx_string("Conflict") },

    { NGX_HTTP_ZK_LOCK_STATUS_GONE,
      ngx_string("urn:zk-lock:gone"), ngx_string("The claim is gone") },

    { NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
      ngx_string("urn:zk-lock:too-large"), ngx_string("Body too large") },

    { NGX_HTTP_UNSUPPORTED_MEDIA_TYPE,
      ngx_string("urn:zk-lock:media-type"),
      ngx_string("Unsupported media type") },

    { NGX_HTTP_PRECONDITION_FAILED,
      ngx_string("urn:zk-lock:another-holder"), ngx_string("Not that holder")
    },

    { NGX_HTTP_ZK_LOCK_STATUS_UNPROCESSABLE,
      ngx_string("urn:zk-lock:key"), ngx_string("The key was used already") },

    { NGX_HTTP_ZK_LOCK_STATUS_PRECONDITION,
      ngx_string("urn:zk-lock:whom"), ngx_string("Which holder is meant?") },

    { NGX_HTTP_ZK_LOCK_STATUS_LOCKED,
      ngx_string("urn:zk-lock:taken"), ngx_string("The lock is taken") },

    { NGX_HTTP_TOO_MANY_REQUESTS,
      ngx_string("urn:zk-lock:full"), ngx_string("The queue is full") },

    { NGX_HTTP_SERVICE_UNAVAILABLE,
      ngx_string("urn:zk-lock:unavailable"), ngx_string("Not available") },

    { 0,
      ngx_string("urn:zk-lock:failed"), ngx_string("Failed") }
};


/* not for ZooKeeper's sake: the gateway is too small for what it is asked */

static const ngx_http_zk_lock_title_t  ngx_http_zk_lock_no_room = {
    NGX_HTTP_SERVICE_UNAVAILABLE,
    ngx_string("urn:zk-lock:no-room"), ngx_string("No room")
};


ngx_int_t
ngx_http_zk_lock_problem(ngx_http_request_t *r, ngx_uint_t status,
    const char *detail)
{
    zk_lock_json_t  *json;

    json = zk_lock_json_open();

    ngx_http_zk_lock_open_problem(json, status, detail);

    return ngx_http_zk_lock_send_problem(r, status, json);
}


void
ngx_http_zk_lock_open_problem(zk_lock_json_t *json, ngx_uint_t status,
    const char *detail)
{
    ngx_http_zk_lock_open_title(json, ngx_http_zk_lock_title(status), status,
                                detail);
}


ngx_int_t
ngx_http_zk_lock_answer_no_room(ngx_http_request_t *r, const char *detail)
{
    zk_lock_json_t  *json;

    json = zk_lock_json_open();

    ngx_http_zk_lock_open_title(json, &ngx_http_zk_lock_no_room,
                                NGX_HTTP_SERVICE_UNAVAILABLE, detail);

    return ngx_http_zk_lock_send_problem(r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                         json);
}


static void
ngx_http_zk_lock_open_title(zk_lock_json_t *json,
    const ngx_http_zk_lock_title_t *t, ngx_uint_t status, const char *detail)
{
    zk_lock_json_object(json, NULL);
    zk_lock_json_string(json, "type", (char *) t->type.data, t->type.len);
    zk_lock_json_string(json, "title", (char *) t->title.data, t->title.len);
    zk_lock_json_integer(json, "status", (int64_t) status);
    ngx_http_zk_lock_write_text(json, "detail", detail);
}


static const ngx_http_zk_lock_title_t *
ngx_http_zk_lock_title(ngx_uint_t status)
{
    ngx_uint_t  i;

    for (i = 0; ngx_http_zk_lock_titles[i].status != 0; i++) {
        if (ngx_http_zk_lock_titles[i].status == status) {
            break;
        }
    }

    return &ngx_http_zk_lock_titles[i];
}


ngx_int_t
ngx_http_zk_lock_send_problem(ngx_http_request_t *r, ngx_uint_t status,
    zk_lock_json_t *json)
{
    if (ngx_http_zk_lock_retry(r, status, json) != NGX_OK) {
        zk_lock_json_close(json);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, status, "application/problem+json", json);
}


/* When it is worth to try again, as a member and as a header. */

static ngx_int_t
ngx_http_zk_lock_retry(ngx_http_request_t *r, ngx_uint_t status,
    zk_lock_json_t *json)
{
    u_char  *p;

    if (status != NGX_HTTP_ZK_LOCK_STATUS_LOCKED
        && status != NGX_HTTP_TOO_MANY_REQUESTS
        && status != NGX_HTTP_SERVICE_UNAVAILABLE)
    {
        return NGX_OK;
    }

    zk_lock_json_integer(json, "retry_after_ms",
                         NGX_HTTP_ZK_LOCK_RETRY_AFTER * 1000);

    p = ngx_pnalloc(r->pool, NGX_INT_T_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    return ngx_http_zk_lock_add_header(r, "Retry-After", p,
                            ngx_sprintf(p, "%d", NGX_HTTP_ZK_LOCK_RETRY_AFTER)
                            - p);
}


ngx_int_t
ngx_http_zk_lock_send_holder(ngx_http_request_t *r, ngx_uint_t status,
    zk_lock_json_t *json, zk_lock_terraform_t *t)
{
    u_char      *p, *body;
    size_t       len;
    ngx_int_t    rc;
    const char  *text;

    rc = ngx_http_zk_lock_retry(r, status, json);

    zk_lock_json_end_object(json);

    text = zk_lock_json_text(json, &len);

    body = (rc == NGX_OK && text != NULL)
           ? ngx_pnalloc(r->pool, t->data_len + len) : NULL;

    if (body == NULL) {
        zk_lock_json_close(json);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* both are compact objects with a member at least */

    p = ngx_cpymem(body, t->data, t->data_len - 1);
    *p++ = ',';
    p = ngx_cpymem(p, text + 1, len - 1);

    zk_lock_json_close(json);

    return ngx_http_zk_lock_send_text(r, status, "application/problem+json",
                                      (char *) body, p - body);
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
ngx_http_zk_lock_write_text(zk_lock_json_t *json, const char *key,
    const char *text)
{
    zk_lock_json_string(json, key, text, strlen(text));
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
ngx_http_zk_lock_add_preference(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    u_char  *p, *last;

    p = ngx_pnalloc(r->pool, sizeof("wait=.000") + NGX_INT64_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    last = ngx_sprintf(p, "wait=%M", ctx->wait / 1000);

    if (ctx->wait % 1000 != 0) {
        last = ngx_sprintf(last, ".%03M", ctx->wait % 1000);
    }

    return ngx_http_zk_lock_add_header(r, "Preference-Applied", p, last - p);
}


ngx_int_t
ngx_http_zk_lock_send(ngx_http_request_t *r, ngx_uint_t status,
    const char *type, zk_lock_json_t *json)
{
    size_t       len;
    ngx_int_t    rc;
    const char  *text;

    text = zk_lock_json_text(json, &len);

    if (text == NULL) {
        zk_lock_json_close(json);

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "an answer could not be written");

        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_zk_lock_send_text(r, status, type, text, len);

    zk_lock_json_close(json);

    return rc;
}


/* text is copied */

static ngx_int_t
ngx_http_zk_lock_send_text(ngx_http_request_t *r, ngx_uint_t status,
    const char *type, const char *text, size_t len)
{
    ngx_int_t                rc;
    ngx_buf_t               *b;
    ngx_chain_t              out;
    ngx_http_zk_lock_ctx_t  *ctx;

    b = ngx_create_temp_buf(r->pool, len + 1);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_cpymem(b->pos, text, len);
    *b->last++ = '\n';
    b->last_buf = 1;
    b->last_in_chain = 1;

    r->headers_out.status = status;

    if (status == NGX_HTTP_ZK_LOCK_STATUS_LOCKED) {
        ngx_str_set(&r->headers_out.status_line, "423 Locked");

    } else if (status == NGX_HTTP_ZK_LOCK_STATUS_UNPROCESSABLE) {
        ngx_str_set(&r->headers_out.status_line, "422 Unprocessable Content");

    } else if (status == NGX_HTTP_ZK_LOCK_STATUS_PRECONDITION) {
        ngx_str_set(&r->headers_out.status_line, "428 Precondition Required");
    }

    r->headers_out.content_length_n = b->last - b->pos;
    r->headers_out.content_type.data = (u_char *) type;
    r->headers_out.content_type.len = ngx_strlen(type);
    r->headers_out.content_type_len = r->headers_out.content_type.len;

    rc = ngx_http_send_header(r);

    if (rc == NGX_OK && !r->header_only) {
        out.buf = b;
        out.next = NULL;

        rc = ngx_http_output_filter(r, &out);
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    if (ctx != NULL) {
        ctx->told = (rc != NGX_ERROR && (status == NGX_HTTP_OK
                                         || status == NGX_HTTP_CREATED));
    }

    return rc;
}
