
/*
 * Answers: statuses, headers and JSON.
 *
 * Everything here runs on the event loop.  An answer lives in the request's
 * pool; the JSON writer is closed before anything is sent.
 */


#include "ngx_http_zk_lock_answer.h"
#include "zk_lock_terraform.h"


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
static ngx_int_t ngx_http_zk_lock_retry(ngx_http_request_t *r,
    ngx_uint_t status, zk_lock_json_t *json);
static ngx_int_t ngx_http_zk_lock_send_holder(ngx_http_request_t *r,
    ngx_uint_t status, zk_lock_json_t *json, zk_lock_terraform_t *t);
static void ngx_http_zk_lock_write_label(zk_lock_json_t *json,
    ngx_http_zk_lock_info_t *info);
static void ngx_http_zk_lock_write_time(zk_lock_json_t *json, const char *key,
    time_t when);
static ngx_int_t ngx_http_zk_lock_location(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
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
ngx_http_zk_lock_answer_taken(ngx_http_request_t *r,
    ngx_http_zk_lock_info_t *info)
{
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    return ngx_http_zk_lock_answer_holder(r, NGX_HTTP_ZK_LOCK_STATUS_LOCKED,
                                          "somebody else holds the lock, and "
                                          "the wait is over", info,
                                          ctx->plain);
}


ngx_int_t
ngx_http_zk_lock_answer_holder(ngx_http_request_t *r, ngx_uint_t status,
    const char *detail, ngx_http_zk_lock_info_t *info, ngx_uint_t terraform)
{
    zk_lock_json_t       *json;
    zk_lock_label_t       label;
    zk_lock_terraform_t   t;

    json = zk_lock_json_open();

    ngx_http_zk_lock_open_problem(json, status, detail);

    if (info == NULL) {
        return ngx_http_zk_lock_send_problem(r, status, json);
    }

    if (terraform) {
        zk_lock_label_read(&label, (char *) info->label.data,
                           info->label.len);

        if (label.data_len != 0
            && zk_lock_terraform_read(&t, label.data, label.data_len) == 0)
        {
            return ngx_http_zk_lock_send_holder(r, status, json, &t);
        }
    }

    zk_lock_json_object(json, "holder");
    ngx_http_zk_lock_write_info(json, info);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send_problem(r, status, json);
}


/*
 * Terraform looks for the holder's own members, as it sent them: those of the
 * problem come behind them.
 */

static ngx_int_t
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
ngx_http_zk_lock_answer_granted(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_claim_t *claim)
{
    zk_lock_json_t  *json;

    if (ngx_http_zk_lock_secrets(r, ctx, 1) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);
    ngx_http_zk_lock_write_grant(json, ctx, claim);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, ctx->plain ? NGX_HTTP_OK
                                               : NGX_HTTP_CREATED,
                                 "application/json", json);
}


void
ngx_http_zk_lock_write_grant(zk_lock_json_t *json,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_int_t  left;

    ngx_http_zk_lock_write_name(json, ctx);
    zk_lock_json_string(json, "token", (char *) ctx->secret,
                        ZK_LOCK_TOKEN_LEN);
    zk_lock_json_integer(json, "fencing_token", ctx->fencing);
    ngx_http_zk_lock_write_mode(json, claim->entry.kind);

    if (!claim->bound || claim->leased) {
        left = (ngx_msec_int_t) claim->ttl;

        if (claim->reminded) {
            left = (ngx_msec_int_t) (claim->lease - ngx_http_zk_lock_now());
            left = ngx_max(left, 0);
        }

        zk_lock_json_integer(json, "ttl_ms", (int64_t) claim->ttl);
        zk_lock_json_integer(json, "expires_in_ms", (int64_t) left);
    }

    zk_lock_json_integer(json, "waited_ms", (int64_t) ctx->waited);

    if (claim->requeued) {
        ngx_http_zk_lock_write_text(json, "note",
                                    "the place in the queue was lost with "
                                    "the gateway's ZooKeeper session, and "
                                    "the claim queued again");
    }
}


ngx_int_t
ngx_http_zk_lock_answer_queued(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_claim_t *claim)
{
    zk_lock_json_t  *json;

    if (ngx_http_zk_lock_secrets(r, ctx, 1) != NGX_OK
        || ngx_http_zk_lock_add_header(r, "Preference-Applied",
                                       (u_char *) "respond-async", 13)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);
    ngx_http_zk_lock_write_name(json, ctx);
    ngx_http_zk_lock_write_text(json, "state", "queued");
    zk_lock_json_string(json, "token", (char *) ctx->secret,
                        ZK_LOCK_TOKEN_LEN);
    ngx_http_zk_lock_write_mode(json, claim->entry.kind);
    zk_lock_json_integer(json, "position", (int64_t) claim->position);
    zk_lock_json_integer(json, "grace_ms", (int64_t) claim->grace);
    zk_lock_json_integer(json, "ttl_ms", (int64_t) claim->ttl);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, NGX_HTTP_ACCEPTED, "application/json",
                                 json);
}


ngx_int_t
ngx_http_zk_lock_answer_claim(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_ask_t *ask,
    ngx_uint_t status)
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

    if (ngx_http_zk_lock_secrets(r, ctx, status == NGX_HTTP_ACCEPTED)
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (status == NGX_HTTP_ACCEPTED
        && ngx_http_zk_lock_add_header(r, "Preference-Applied",
                                       (u_char *) "respond-async", 13)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);
    ngx_http_zk_lock_write_name(json, ctx);
    zk_lock_json_string(json, "state", (char *) ctx->outcome.data,
                        ctx->outcome.len);
    zk_lock_json_string(json, "token", (char *) ctx->secret,
                        ZK_LOCK_TOKEN_LEN);
    ngx_http_zk_lock_write_mode(json, info->child.kind);

    if (!info->held) {

        zk_lock_json_integer(json, "position", (int64_t) ask->place);
    }

    if (ctx->waits) {
        zk_lock_json_integer(json, "waited_ms", (int64_t) ctx->waited);
    }

    ngx_http_zk_lock_write_info(json, info);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, status, "application/json", json);
}


ngx_int_t
ngx_http_zk_lock_answer_lock(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_ask_t *ask)
{
    zk_lock_json_t  *json;

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);
    ngx_http_zk_lock_write_lock(json, ctx, ask);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, NGX_HTTP_OK, "application/json", json);
}


void
ngx_http_zk_lock_write_lock(zk_lock_json_t *json,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_ask_t *ask)
{
    ngx_uint_t                i;
    ngx_http_zk_lock_info_t  *info;

    ngx_http_zk_lock_write_name(json, ctx);

    if (ask->nknown != 0) {
        ngx_http_zk_lock_write_mode(json, ask->infos[0].child.kind);
    }

    zk_lock_json_integer(json, "held", (int64_t) ask->holders);
    zk_lock_json_array(json, "holders");

    for (i = 0; i < ask->nknown && ask->infos[i].held; i++) {
        zk_lock_json_object(json, NULL);
        ngx_http_zk_lock_write_info(json, &ask->infos[i]);
        zk_lock_json_end_object(json);
    }

    zk_lock_json_end_array(json);
    zk_lock_json_integer(json, "queued",
                         (int64_t) (ask->total - ask->holders));
    zk_lock_json_array(json, "queue");

    for ( /* void */ ; i < ask->nknown; i++) {
        info = &ask->infos[i];

        zk_lock_json_object(json, NULL);

        if (info->child.kind != ask->infos[0].child.kind) {
            ngx_http_zk_lock_write_mode(json, info->child.kind);
        }

        ngx_http_zk_lock_write_label(json, info);
        ngx_http_zk_lock_write_time(json, "since", info->since);
        zk_lock_json_end_object(json);
    }

    zk_lock_json_end_array(json);
}


ngx_int_t
ngx_http_zk_lock_answer_done(ngx_http_request_t *r)
{
    zk_lock_json_t          *json;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    if (!ctx->plain) {
        r->headers_out.status = NGX_HTTP_NO_CONTENT;
        r->header_only = 1;

        return ngx_http_send_header(r);
    }

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);
    ngx_http_zk_lock_write_name(json, ctx);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, NGX_HTTP_OK, "application/json", json);
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

    if (label.from_len != 0) {
        zk_lock_json_string(json, "from", label.from, label.from_len);
    }

    if (label.revoke) {
        zk_lock_json_boolean(json, "revoke", 1);
    }
}


void
ngx_http_zk_lock_write_info(zk_lock_json_t *json,
    ngx_http_zk_lock_info_t *info)
{
    int64_t  fencing;

    ngx_http_zk_lock_write_label(json, info);

    fencing = ngx_http_zk_lock_info_fencing(info);

    if (fencing != 0) {
        zk_lock_json_integer(json, "fencing_token", fencing);
    }

    ngx_http_zk_lock_write_time(json, "since", info->since);

    if (info->ttl != 0) {
        zk_lock_json_integer(json, "ttl_ms", (int64_t) info->ttl);
    }

    if (info->timed) {
        zk_lock_json_integer(json, "expires_in_ms", (int64_t) info->expires);
    }

    if (info->holds > 1) {
        zk_lock_json_integer(json, "holds", (int64_t) info->holds);
    }
}


int64_t
ngx_http_zk_lock_info_fencing(ngx_http_zk_lock_info_t *info)
{
    zk_lock_label_t  label;

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    return ngx_http_zk_lock_fencing_token(label.czxid ? label.czxid
                                                      : info->czxid,
                                          label.index > 0
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


void
ngx_http_zk_lock_write_mode(zk_lock_json_t *json, zk_lock_kind_t kind)
{
    static const char *const  modes[] = {
        "exclusive", "shared", "write", "member", "semaphore", "exclusive"
    };

    ngx_http_zk_lock_write_text(json, "mode", modes[zk_lock_kind_base(kind)]);

    if (zk_lock_kind_base(kind) == ZK_LOCK_SEMAPHORE) {
        zk_lock_json_integer(json, "permits",
                             (int64_t) zk_lock_kind_permits(kind));
    }
}


void
ngx_http_zk_lock_write_name(zk_lock_json_t *json, ngx_http_zk_lock_ctx_t *ctx)
{
    zk_lock_json_string(json, "name", (char *) ctx->name.data, ctx->name.len);
}


void
ngx_http_zk_lock_write_text(zk_lock_json_t *json, const char *key,
    const char *text)
{
    zk_lock_json_string(json, key, text, strlen(text));
}


ngx_int_t
ngx_http_zk_lock_secrets(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx,
    ngx_uint_t location)
{
    u_char  *p;

    if (ctx->fencing != 0) {

        p = ngx_pnalloc(r->pool, NGX_INT64_LEN);
        if (p == NULL) {
            return NGX_ERROR;
        }

        if (ngx_http_zk_lock_add_header(r, "Lock-Fencing-Token", p,
                                        ngx_sprintf(p, "%L", ctx->fencing)
                                        - p)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
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
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_chain_t   out;

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

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}
