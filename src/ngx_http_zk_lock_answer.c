
/*
 * Answers: statuses, headers and JSON.
 *
 * Everything here runs on the event loop.  An answer lives in the request's
 * pool; the JSON writer is closed before anything is sent.
 */


#include "ngx_http_zk_lock_api.h"
#include "zk_lock_json.h"
#include "zk_lock_label.h"


/* what a client is asked to wait before it tries again, seconds */
#define NGX_HTTP_ZK_LOCK_RETRY_AFTER  1


/* what a problem's status stands for */

typedef struct {
    ngx_uint_t    status;
    ngx_str_t     type;
    ngx_str_t     title;
} ngx_http_zk_lock_title_t;


static void ngx_http_zk_lock_open_problem(zk_lock_json_t *json,
    ngx_uint_t status, const char *detail);
static const ngx_http_zk_lock_title_t *ngx_http_zk_lock_title(
    ngx_uint_t status);
static ngx_int_t ngx_http_zk_lock_send_problem(ngx_http_request_t *r,
    ngx_uint_t status, zk_lock_json_t *json);
static void ngx_http_zk_lock_write_label(zk_lock_json_t *json,
    ngx_http_zk_lock_info_t *info);
static void ngx_http_zk_lock_write_info(zk_lock_json_t *json,
    ngx_http_zk_lock_info_t *info);
static void ngx_http_zk_lock_write_fencing(zk_lock_json_t *json,
    ngx_http_zk_lock_info_t *info);
static void ngx_http_zk_lock_write_time(zk_lock_json_t *json, const char *key,
    time_t when);
static int64_t ngx_http_zk_lock_info_fencing(ngx_http_zk_lock_info_t *info);
static char *ngx_http_zk_lock_mode(zk_lock_kind_e kind);
static void ngx_http_zk_lock_write_text(zk_lock_json_t *json, const char *key,
    const char *text);
static ngx_int_t ngx_http_zk_lock_secrets(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_uint_t location);
static ngx_int_t ngx_http_zk_lock_location(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
static ngx_int_t ngx_http_zk_lock_add_header(ngx_http_request_t *r,
    const char *key, u_char *value, size_t len);
static ngx_int_t ngx_http_zk_lock_send(ngx_http_request_t *r,
    ngx_uint_t status, const char *type, zk_lock_json_t *json);


static const ngx_http_zk_lock_title_t  ngx_http_zk_lock_titles[] = {

    { NGX_HTTP_BAD_REQUEST,
      ngx_string("urn:zk-lock:bad-request"), ngx_string("Bad request") },

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

    { NGX_HTTP_ZK_LOCK_STATUS_LOCKED,
      ngx_string("urn:zk-lock:taken"), ngx_string("The lock is taken") },

    { NGX_HTTP_TOO_MANY_REQUESTS,
      ngx_string("urn:zk-lock:full"), ngx_string("The queue is full") },

    { NGX_HTTP_SERVICE_UNAVAILABLE,
      ngx_string("urn:zk-lock:unavailable"), ngx_string("Not available") },

    { 0,
      ngx_string("urn:zk-lock:failed"), ngx_string("Failed") }
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


static void
ngx_http_zk_lock_open_problem(zk_lock_json_t *json, ngx_uint_t status,
    const char *detail)
{
    const ngx_http_zk_lock_title_t  *t;

    t = ngx_http_zk_lock_title(status);

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


static ngx_int_t
ngx_http_zk_lock_send_problem(ngx_http_request_t *r, ngx_uint_t status,
    zk_lock_json_t *json)
{
    u_char      *p;
    ngx_uint_t   again;

    again = status == NGX_HTTP_ZK_LOCK_STATUS_LOCKED
            || status == NGX_HTTP_TOO_MANY_REQUESTS
            || status == NGX_HTTP_SERVICE_UNAVAILABLE;

    if (again) {
        zk_lock_json_integer(json, "retry_after_ms",
                             NGX_HTTP_ZK_LOCK_RETRY_AFTER * 1000);

        p = ngx_pnalloc(r->pool, NGX_INT_T_LEN);
        if (p == NULL) {
            zk_lock_json_close(json);
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        if (ngx_http_zk_lock_add_header(r, "Retry-After", p,
                            ngx_sprintf(p, "%d", NGX_HTTP_ZK_LOCK_RETRY_AFTER)
                            - p)
            != NGX_OK)
        {
            zk_lock_json_close(json);
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, status, "application/problem+json", json);
}


ngx_int_t
ngx_http_zk_lock_answer_taken(ngx_http_request_t *r,
    ngx_http_zk_lock_info_t *info)
{
    zk_lock_json_t  *json;

    json = zk_lock_json_open();

    ngx_http_zk_lock_open_problem(json, NGX_HTTP_ZK_LOCK_STATUS_LOCKED,
                                  "somebody else holds the lock, and the "
                                  "wait is over");

    if (info != NULL) {
        zk_lock_json_object(json, "holder");
        ngx_http_zk_lock_write_info(json, info);
        zk_lock_json_end_object(json);
    }

    return ngx_http_zk_lock_send_problem(r, NGX_HTTP_ZK_LOCK_STATUS_LOCKED,
                                         json);
}


ngx_int_t
ngx_http_zk_lock_answer_granted(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_claim_t *claim)
{
    zk_lock_json_t  *json;

    if (ngx_http_zk_lock_secrets(r, ctx, 1) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);
    zk_lock_json_string(json, "name", (char *) ctx->name.data, ctx->name.len);
    zk_lock_json_string(json, "token", (char *) ctx->secret,
                        ZK_LOCK_TOKEN_LEN);
    zk_lock_json_integer(json, "fencing_token", ctx->fencing);
    ngx_http_zk_lock_write_text(json, "mode",
                                ngx_http_zk_lock_mode(claim->entry.kind));
    zk_lock_json_integer(json, "ttl_ms", (int64_t) claim->ttl);
    zk_lock_json_integer(json, "expires_in_ms", (int64_t) claim->ttl);
    zk_lock_json_integer(json, "waited_ms", (int64_t) ctx->waited);

    if (claim->requeued) {
        ngx_http_zk_lock_write_text(json, "note",
                                    "the place in the queue was lost with "
                                    "the gateway's ZooKeeper session, and "
                                    "the claim queued again");
    }

    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, NGX_HTTP_CREATED, "application/json",
                                 json);
}


ngx_int_t
ngx_http_zk_lock_answer_claim(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_ask_t *ask)
{
    zk_lock_json_t           *json;
    ngx_http_zk_lock_info_t  *info;

    info = &ask->infos[0];

    ctx->fencing = ngx_http_zk_lock_info_fencing(info);

    if (info->held) {
        ngx_str_set(&ctx->outcome, "held");

    } else {
        ngx_str_set(&ctx->outcome, "queued");
    }

    if (ngx_http_zk_lock_secrets(r, ctx, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);
    zk_lock_json_string(json, "name", (char *) ctx->name.data, ctx->name.len);
    zk_lock_json_string(json, "state", (char *) ctx->outcome.data,
                        ctx->outcome.len);
    zk_lock_json_string(json, "token", (char *) ctx->secret,
                        ZK_LOCK_TOKEN_LEN);
    ngx_http_zk_lock_write_text(json, "mode",
                                ngx_http_zk_lock_mode(info->child.kind));

    if (!info->held) {

        /* 0 is next */

        zk_lock_json_integer(json, "position",
                             ask->position ? (int64_t) ask->position - 1 : 0);
    }

    ngx_http_zk_lock_write_info(json, info);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, NGX_HTTP_OK, "application/json", json);
}


ngx_int_t
ngx_http_zk_lock_answer_lock(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_ask_t *ask)
{
    ngx_uint_t       i;
    zk_lock_json_t  *json;

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);
    zk_lock_json_string(json, "name", (char *) ctx->name.data, ctx->name.len);
    ngx_http_zk_lock_write_text(json, "mode",
                           ngx_http_zk_lock_mode(ask->infos[0].child.kind));

    zk_lock_json_array(json, "holders");

    for (i = 0; i < ask->ninfos && ask->infos[i].held; i++) {
        zk_lock_json_object(json, NULL);
        ngx_http_zk_lock_write_info(json, &ask->infos[i]);
        zk_lock_json_end_object(json);
    }

    zk_lock_json_end_array(json);
    zk_lock_json_integer(json, "queued", (int64_t) (ask->total - i));
    zk_lock_json_array(json, "queue");

    for ( /* void */ ; i < ask->ninfos; i++) {
        zk_lock_json_object(json, NULL);
        ngx_http_zk_lock_write_label(json, &ask->infos[i]);
        ngx_http_zk_lock_write_time(json, "since", ask->infos[i].since);
        zk_lock_json_end_object(json);
    }

    zk_lock_json_end_array(json);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, NGX_HTTP_OK, "application/json", json);
}


ngx_int_t
ngx_http_zk_lock_answer_done(ngx_http_request_t *r)
{
    r->headers_out.status = NGX_HTTP_NO_CONTENT;
    r->header_only = 1;

    return ngx_http_send_header(r);
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


static void
ngx_http_zk_lock_write_label(zk_lock_json_t *json,
    ngx_http_zk_lock_info_t *info)
{
    zk_lock_label_t  label;

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    if (label.owner_len != 0) {
        zk_lock_json_string(json, "owner", label.owner, label.owner_len);
    }

    if (label.data_len != 0) {
        zk_lock_json_raw(json, "data", label.data, label.data_len);
    }
}


static void
ngx_http_zk_lock_write_info(zk_lock_json_t *json,
    ngx_http_zk_lock_info_t *info)
{
    ngx_http_zk_lock_write_label(json, info);
    ngx_http_zk_lock_write_fencing(json, info);
    ngx_http_zk_lock_write_time(json, "since", info->since);

    if (info->ttl != 0) {
        zk_lock_json_integer(json, "ttl_ms", (int64_t) info->ttl);
    }

    if (info->timed) {
        zk_lock_json_integer(json, "expires_in_ms", (int64_t) info->expires);
    }
}


static void
ngx_http_zk_lock_write_fencing(zk_lock_json_t *json,
    ngx_http_zk_lock_info_t *info)
{
    int64_t  fencing;

    fencing = ngx_http_zk_lock_info_fencing(info);

    if (fencing != 0) {
        zk_lock_json_integer(json, "fencing_token", fencing);
    }
}


static int64_t
ngx_http_zk_lock_info_fencing(ngx_http_zk_lock_info_t *info)
{
    zk_lock_label_t  label;

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    return ngx_http_zk_lock_fencing_token(info->czxid, label.index > 0
                                                       ? label.index : 0);
}


/* RFC 3339, in UTC */

static void
ngx_http_zk_lock_write_time(zk_lock_json_t *json, const char *key,
    time_t when)
{
    u_char    buf[sizeof("1970-01-01T00:00:00Z") + NGX_INT_T_LEN];
    u_char   *p;
    ngx_tm_t  tm;

    if (when == 0) {
        return;
    }

    ngx_gmtime(when, &tm);

    p = ngx_sprintf(buf, "%4d-%02d-%02dT%02d:%02d:%02dZ",
                    tm.ngx_tm_year, tm.ngx_tm_mon, tm.ngx_tm_mday,
                    tm.ngx_tm_hour, tm.ngx_tm_min, tm.ngx_tm_sec);

    zk_lock_json_string(json, key, (char *) buf, p - buf);
}


static char *
ngx_http_zk_lock_mode(zk_lock_kind_e kind)
{
    switch (kind) {

    case ZK_LOCK_READ:
        return "shared";

    case ZK_LOCK_WRITE:
        return "write";

    default:
        return "exclusive";
    }
}


static void
ngx_http_zk_lock_write_text(zk_lock_json_t *json, const char *key,
    const char *text)
{
    zk_lock_json_string(json, key, text, strlen(text));
}


/* What a shell wants of a claim, as headers. */

static ngx_int_t
ngx_http_zk_lock_secrets(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx,
    ngx_uint_t location)
{
    u_char  *p;

    p = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    if (ngx_http_zk_lock_add_header(r, "Lock-Fencing-Token", p,
                                    ngx_sprintf(p, "%L", ctx->fencing) - p)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_http_zk_lock_add_header(r, "Lock-Token", ctx->secret,
                                    ZK_LOCK_TOKEN_LEN)
        != NGX_OK
        || ngx_http_zk_lock_add_header(r, "Cache-Control",
                                       (u_char *) "no-store", 8)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return location ? ngx_http_zk_lock_location(r, ctx) : NGX_OK;
}


/* Where the claim is: the path of the request, and the token behind it. */

static ngx_int_t
ngx_http_zk_lock_location(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    u_char     *p;
    size_t      len;
    ngx_str_t   dir;
    uintptr_t   escape;

    /* the name is a part of r->uri */

    dir.data = r->uri.data;
    dir.len = ctx->name.data - r->uri.data;

    escape = ngx_escape_uri(NULL, dir.data, dir.len, NGX_ESCAPE_URI)
             + ngx_escape_uri(NULL, ctx->name.data, ctx->name.len,
                              NGX_ESCAPE_URI_COMPONENT);

    len = dir.len + ctx->name.len + 2 * escape + 1 + ZK_LOCK_TOKEN_LEN;

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    if (ngx_http_zk_lock_add_header(r, "Location", p, len) != NGX_OK) {
        return NGX_ERROR;
    }

    p = (u_char *) ngx_escape_uri(p, dir.data, dir.len, NGX_ESCAPE_URI);
    p = (u_char *) ngx_escape_uri(p, ctx->name.data, ctx->name.len,
                                  NGX_ESCAPE_URI_COMPONENT);
    *p++ = '/';
    ngx_memcpy(p, ctx->secret, ZK_LOCK_TOKEN_LEN);

    return NGX_OK;
}


/* value is not copied */

static ngx_int_t
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


/* Closes json in any case. */

static ngx_int_t
ngx_http_zk_lock_send(ngx_http_request_t *r, ngx_uint_t status,
    const char *type, zk_lock_json_t *json)
{
    size_t        len;
    ngx_int_t     rc;
    ngx_buf_t    *b;
    const char   *text;
    ngx_chain_t   out;

    text = zk_lock_json_text(json, &len);
    b = NULL;

    if (text != NULL) {
        b = ngx_create_temp_buf(r->pool, len + 1);
    }

    if (b == NULL) {
        zk_lock_json_close(json);

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "an answer could not be written");

        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_cpymem(b->pos, text, len);
    *b->last++ = '\n';
    b->last_buf = 1;
    b->last_in_chain = 1;

    zk_lock_json_close(json);

    r->headers_out.status = status;

    if (status == NGX_HTTP_ZK_LOCK_STATUS_LOCKED) {
        ngx_str_set(&r->headers_out.status_line, "423 Locked");
    }

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
