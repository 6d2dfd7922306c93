
/*
 * The API: which lock or claim a request names, and which file serves it.
 *
 * The location's prefix is taken off the path, which leaves nothing, NAME or
 * NAME/TOKEN, where NAME may have slashes.  The location's root, which may hold
 * variables, and NAME make the path of the lock's znode.  Then the body is
 * read, even if the method needs no body, because a body that nginx still
 * discards would hide a client that leaves.
 *
 * Everything here runs on the event loop.  ctx->worker is NULL while the
 * process serves no locks.  The lock's name points into the request's path, or
 * into the pool, ctx->text into the path or into the Lock-Token header;
 * text.data is NULL if the request has no token.
 */


#include "http/api.h"
#include "http/acquire.h"
#include "http/admin.h"
#include "http/answer.h"
#include "http/args.h"
#include "http/calls.h"
#include "http/list.h"
#include "http/origin.h"
#include "http/several.h"
#include "http/terraform.h"


static ngx_int_t ngx_http_zk_lock_api_refuse(ngx_http_request_t *r,
    ngx_uint_t status, const char *why);
static void ngx_http_zk_lock_api_body_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_zk_lock_api_dispatch(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
static ngx_http_zk_lock_type_e ngx_http_zk_lock_api_type(
    ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx);
static ngx_int_t ngx_http_zk_lock_api_token(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
static ngx_int_t ngx_http_zk_lock_api_target(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, const char **why);
static ngx_uint_t ngx_http_zk_lock_api_target_sent(ngx_str_t *uri,
    ngx_uint_t *escaped);
static ngx_uint_t ngx_http_zk_lock_api_target_next(ngx_str_t *uri, size_t *at,
    ngx_uint_t *escaped);
static ngx_uint_t ngx_http_zk_lock_api_overridden(ngx_http_request_t *r);
static ngx_int_t ngx_http_zk_lock_api_target_method(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);


ngx_int_t
ngx_http_zk_lock_api_handler(ngx_http_request_t *r)
{
    ngx_int_t                      rc, found;
    const char                    *why;
    ngx_http_zk_lock_ctx_t        *ctx;
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    if (ngx_http_zk_lock_add_no_store(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (r != r->main || r->post_action || clcf->post_action.data != NULL) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "a lock cannot be taken in a subrequest, nor with "
                      "\"post_action\"");
        return NGX_HTTP_FORBIDDEN;
    }

    ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_zk_lock_ctx_t));
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_set_ctx(r, ctx, ngx_http_zk_lock_module);

    zmcf = ngx_http_get_module_main_conf(r, ngx_http_zk_lock_module);

    ctx->request = r;
    ctx->worker = zmcf->worker;
    ctx->conf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    r->disable_not_modified = 1;

    why = NULL;
    found = ngx_http_zk_lock_api_target(r, ctx, &why);

    if (found == NGX_OK && ngx_http_zk_lock_api_overridden(r)) {
        why = "the method is that of the request line alone: no "
              "X-HTTP-Method-Override may name another";
        found = NGX_ERROR;
    }

    if (found == NGX_ABORT) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (found != NGX_OK) {
        return ngx_http_zk_lock_api_refuse(r, (found == NGX_DECLINED)
                                           ? NGX_HTTP_NOT_FOUND
                                           : NGX_HTTP_BAD_REQUEST, why);
    }

    rc = ngx_http_zk_lock_request_root(r, &ctx->root);

    if (rc == NGX_DECLINED) {
        return ngx_http_zk_lock_api_refuse(r,
                                           NGX_HTTP_INTERNAL_SERVER_ERROR,
                                           "this location's root cannot be "
                                           "used for this request");
    }

    if (rc == NGX_OK && ctx->told.name.len != 0) {
        rc = ngx_http_zk_lock_request_path(r, &ctx->root, &ctx->told.name,
                                           &ctx->path);

    } else if (ctx->root.len != 0) {
        ctx->path = ctx->root;

    } else {
        ngx_str_set(&ctx->path, "/");
    }

    if (rc == NGX_DECLINED) {
        return ngx_http_zk_lock_api_refuse(r, NGX_HTTP_BAD_REQUEST,
                                           "the root and the name together "
                                           "are too long");
    }

    if (rc != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_zk_lock_api_target_method(r, ctx);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (r->headers_in.content_length_n > NGX_HTTP_ZK_LOCK_BODY_MAX) {
        return ngx_http_zk_lock_api_refuse(r,
                                           NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                           "a body has at most 8192 bytes");
    }

    rc = ngx_http_read_client_request_body(r,
                                           ngx_http_zk_lock_api_body_handler);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    return NGX_DONE;
}


/* Answers before the body is read. */

static ngx_int_t
ngx_http_zk_lock_api_refuse(ngx_http_request_t *r, ngx_uint_t status,
    const char *why)
{
    ngx_int_t  rc;

    rc = ngx_http_discard_request_body(r);

    return (rc != NGX_OK) ? rc : ngx_http_zk_lock_problem(r, status, why);
}


static void
ngx_http_zk_lock_api_body_handler(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    rc = ngx_http_zk_lock_api_dispatch(r, ctx);

    if (rc != NGX_DONE) {
        ngx_http_zk_lock_request_finalize(r, rc);
    }
}


/* Returns NGX_DONE if the request is held, or else the rc to finalize with. */

static ngx_int_t
ngx_http_zk_lock_api_dispatch(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t    rc;
    ngx_uint_t   node, reads;
    const char  *why;

    if (ngx_http_zk_lock_body_size(r) > NGX_HTTP_ZK_LOCK_BODY_MAX) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                        "a body has at most 8192 bytes");
    }

    if (ctx->worker == NULL) {
        ngx_str_set(&ctx->told.outcome, "no_room");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_ZK_LOCK_KIND_NO_ROOM,
                                        "this worker has no place in "
                                        "zk_lock_zone");
    }

    rc = ngx_http_zk_lock_api_token(r, ctx);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    ctx->told.type = ngx_http_zk_lock_api_type(r, ctx);

    rc = ngx_http_zk_lock_origin_check(r);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    node = ngx_http_zk_lock_request_node(r);
    reads = (r->method & NGX_HTTP_ZK_LOCK_READS);
    why = NULL;

    if (node && ctx->told.name.len == 0) {
        why = "zk_lock_layout node takes one lock at a time, and has no list "
              "of them";

    } else if (node && (r->method & (NGX_HTTP_LOCK|NGX_HTTP_UNLOCK))) {
        why = "zk_lock_layout node takes no LOCK and UNLOCK";

    } else if (node && r->method == NGX_HTTP_POST && ctx->has_token) {
        why = "zk_lock_layout node lets a claim be held once only";

    } else if (ctx->has_token
               && (r->method & (NGX_HTTP_LOCK|NGX_HTTP_UNLOCK)))
    {
        why = "LOCK and UNLOCK take an \"ID\", and no token";
    }

    if (why != NULL) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST, why);
    }

    if (ctx->told.name.len == 0) {
        return (reads && ctx->text.data == NULL)
               ? ngx_http_zk_lock_list(r, ctx)
               : ngx_http_zk_lock_several(r, ctx);
    }

    if (!ctx->has_token && !reads && !node) {
        rc = ngx_http_zk_lock_terraform(r, ctx);
        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    switch (r->method) {

    case NGX_HTTP_POST:
        return ctx->has_token ? ngx_http_zk_lock_call_hold(r, ctx)
                              : ngx_http_zk_lock_acquire(r, ctx);

    case NGX_HTTP_PUT:
        return ngx_http_zk_lock_call_put(r, ctx);

    case NGX_HTTP_DELETE:
        return ngx_http_zk_lock_call_delete(r, ctx);

    default: /* NGX_HTTP_GET, NGX_HTTP_HEAD */
        return ngx_http_zk_lock_call_get(r, ctx);
    }
}


/* As the method says: a watch, a break and a revocation are found later. */

static ngx_http_zk_lock_type_e
ngx_http_zk_lock_api_type(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    switch (r->method) {

    case NGX_HTTP_POST:
        return ctx->has_token ? NGX_HTTP_ZK_LOCK_HOLD
                              : NGX_HTTP_ZK_LOCK_ACQUIRE;

    case NGX_HTTP_LOCK:
        return NGX_HTTP_ZK_LOCK_ACQUIRE;

    case NGX_HTTP_PUT:
        return NGX_HTTP_ZK_LOCK_RENEW;

    case NGX_HTTP_DELETE:
    case NGX_HTTP_UNLOCK:
        return NGX_HTTP_ZK_LOCK_RELEASE;

    default: /* NGX_HTTP_GET, NGX_HTTP_HEAD */
        return (ctx->told.name.len == 0 && ctx->text.data == NULL)
               ? NGX_HTTP_ZK_LOCK_LIST
               : NGX_HTTP_ZK_LOCK_INSPECT;
    }
}


/*
 * Reads the token from the path or the header.  A text that is no token of this
 * lock is answered without a call.  Returns NGX_DECLINED unless an answer was
 * sent.
 */

static ngx_int_t
ngx_http_zk_lock_api_token(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_str_t   *header;
    ngx_uint_t   n;

    header = ngx_http_zk_lock_header(r, "lock-token", &n);

    if (n > 1 || (n == 1 && ctx->text.data != NULL)) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "one token is enough: in the path or "
                                        "in one Lock-Token header");
    }

    if (ctx->text.data == NULL) {

        if (n == 0) {
            return NGX_DECLINED;
        }

        ctx->text = *header;
    }

    if (ctx->told.name.len == 0) {

        /* a token of several locks, which contains the locks' names */

        return NGX_DECLINED;
    }

    if (zkl_name_token_read(&ctx->token, (char *) ctx->text.data,
                            ctx->text.len, (char *) ctx->path.data,
                            ctx->path.len)
        != 0)
    {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_NOT_FOUND, (n == 0)
                                        ? "no such claim: what is behind the "
                                          "last slash is no token of this "
                                          "lock; in a name that ends so the "
                                          "slash is sent as \"%252F\""
                                        : "no such claim: this is no token of "
                                          "this lock");
    }

    ngx_memcpy(ctx->secret, ctx->text.data, ZKL_TOKEN_LEN);
    ctx->has_token = 1;

    return NGX_DECLINED;
}


/* The target: which lock or claim the request's path names. */


/*
 * Reads name and text from the path.  NGX_ERROR and why the path is no target;
 * NGX_DECLINED and why the path is not below the location's.  NGX_ABORT: no
 * memory.
 *
 * A slash in the name may be sent as "/", "%2F" or "%252F", because a proxy may
 * have decoded the path.  So what is behind the last slash is the token if the
 * slash was not escaped and the text looks like a token.
 */

static ngx_int_t
ngx_http_zk_lock_api_target(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx,
    const char **why)
{
    size_t                     n;
    u_char                    *p, *last, bytes[ZKL_BASE64_BYTES(ZKL_TOKEN_LEN)];
    ngx_str_t                  text;
    ngx_uint_t                 escaped;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    p = r->uri.data;
    last = p + r->uri.len;

    if (r->uri.len >= clcf->name.len
        && ngx_strncmp(p, clcf->name.data, clcf->name.len) == 0)
    {
        p += clcf->name.len;
    }

    if (p < last && *p == '/' && (p == r->uri.data || p[-1] != '/')) {
        p++;
    }

    if (ngx_http_zk_lock_api_target_sent(&r->unparsed_uri, &escaped)) {
        *why = "a lock's name in a path has no segment \".\" or \"..\", which "
               "nginx resolves, and so does a proxy; with \"%252F\" for the "
               "slashes there are no segments";
        return NGX_ERROR;
    }

    /* "location /locks" also gets "/locksmith", which names no lock */

    if (p > r->uri.data && p[-1] != '/') {
        *why = "this is no path of a lock: what goes before a lock's name "
               "ends in a slash";
        return NGX_DECLINED;
    }

    ctx->dir.data = r->uri.data;
    ctx->dir.len = p - r->uri.data;

    text.data = p;
    text.len = last - p;

    if (text.len == 0) {
        ctx->told.name.data = p;
        return NGX_OK;
    }

    if (text.data[0] == '/') {

        /* with merge_slashes off; a location of the path would not match */

        *why = "a lock's name does not begin with a slash";
        return NGX_ERROR;
    }

    if (!escaped) {

        if (last[-1] == '/') {
            *why = "a slash at the end of a lock's name is sent as \"%2F\", "
                   "and as \"%252F\" through a proxy that decodes the path";
            return NGX_ERROR;
        }

        if (text.len > ZKL_TOKEN_LEN + 1
            && last[-ZKL_TOKEN_LEN - 1] == '/'
            && zkl_text_base64_read(bytes, &n, (char *) last - ZKL_TOKEN_LEN,
                                    ZKL_TOKEN_LEN)
               == 0)
        {
            ctx->text.data = last - ZKL_TOKEN_LEN;
            ctx->text.len = ZKL_TOKEN_LEN;

            text.len -= ZKL_TOKEN_LEN + 1;
        }
    }

    if (ngx_http_zk_lock_request_name(r, &text, zkl_name_write, &ctx->told.name)
        != NGX_OK)
    {
        return NGX_ABORT;
    }

    if (r->method & (NGX_HTTP_POST|NGX_HTTP_LOCK)) {
        *why = zkl_name_refuse((char *) ctx->told.name.data,
                               ctx->told.name.len);
    }

    return (*why == NULL) ? NGX_OK : NGX_ERROR;
}


/*
 * Goes through the path as sent.  Returns 1 if a segment is "." or "..", so
 * nginx has changed the path.  escaped: the last slash was sent as "%2F".
 */

static ngx_uint_t
ngx_http_zk_lock_api_target_sent(ngx_str_t *uri, ngx_uint_t *escaped)
{
    size_t      at, len, dots;
    ngx_uint_t  c, slash;

    *escaped = 0;

    len = 0;
    dots = 0;
    at = 0;

    do {
        c = ngx_http_zk_lock_api_target_next(uri, &at, &slash);

        if (c != 0 && c != '/') {
            len++;
            dots += (c == '.');
            continue;
        }

        if (len != 0 && len == dots && dots <= 2) {
            return 1;
        }

        if (c == '/') {
            *escaped = slash;
        }

        len = 0;
        dots = 0;

    } while (c != 0);

    return 0;
}


/*
 * Returns the next character of a path as sent, unescaped, and moves *at behind
 * it; 0 at the end.  escaped: the character is a slash that was sent as "%2F".
 */

static ngx_uint_t
ngx_http_zk_lock_api_target_next(ngx_str_t *uri, size_t *at,
    ngx_uint_t *escaped)
{
    u_char     *p;
    ngx_int_t   c;

    *escaped = 0;

    if (*at >= uri->len || uri->data[*at] == '?' || uri->data[*at] == '#') {
        return 0;
    }

    p = &uri->data[(*at)++];

    if (*p != '%' || *at + 2 > uri->len) {
        return *p;
    }

    c = ngx_hextoi(p + 1, 2);

    if (c == NGX_ERROR) {
        return *p;
    }

    *at += 2;
    *escaped = (c == '/');

    return c;
}


/*
 * Whether a header names another method than the request line.  Where a server
 * knows these headers, a POST with DELETE releases; here it would hold the
 * claim once more.
 */

static ngx_uint_t
ngx_http_zk_lock_api_overridden(ngx_http_request_t *r)
{
    ngx_str_t   *value;
    ngx_uint_t   i, n;

    static const char *const  names[] = {
        "x-http-method-override", "x-http-method", "x-method-override"
    };

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        value = ngx_http_zk_lock_header(r, names[i], &n);

        if (n > 1
            || (n == 1 && (value->len != r->method_name.len
                           || ngx_strncasecmp(value->data, r->method_name.data,
                                              value->len)
                              != 0)))
        {
            return 1;
        }
    }

    return 0;
}


/* Returns NGX_DECLINED if the target takes the method, or else answers. */

static ngx_int_t
ngx_http_zk_lock_api_target_method(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t    rc;
    ngx_uint_t   methods;
    const char  *allow;

    if (ctx->text.data != NULL) {
        methods = NGX_HTTP_ZK_LOCK_READS|NGX_HTTP_PUT|NGX_HTTP_DELETE;
        allow = "GET, HEAD, PUT, DELETE";

    } else if (ctx->told.name.len == 0) {
        methods = NGX_HTTP_ZK_LOCK_READS|NGX_HTTP_POST|NGX_HTTP_PUT
                  |NGX_HTTP_DELETE;
        allow = "GET, HEAD, POST, PUT, DELETE";

    } else {
        methods = NGX_HTTP_ZK_LOCK_READS|NGX_HTTP_POST|NGX_HTTP_PUT
                  |NGX_HTTP_DELETE|NGX_HTTP_LOCK|NGX_HTTP_UNLOCK;
        allow = "GET, HEAD, POST, PUT, DELETE, LOCK, UNLOCK";
    }

    if (r->method & methods) {
        return NGX_DECLINED;
    }

    if (ctx->text.data != NULL
        && (r->method & (NGX_HTTP_POST|NGX_HTTP_LOCK|NGX_HTTP_UNLOCK))
        && zkl_name_token_read(&ctx->token, (char *) ctx->text.data,
                               ctx->text.len, (char *) ctx->path.data,
                               ctx->path.len)
           != 0)
    {
        return ngx_http_zk_lock_api_refuse(r, NGX_HTTP_BAD_REQUEST,
                                           "what is behind the last slash "
                                           "looks like a token, and is none "
                                           "of this lock; if it belongs to "
                                           "the name, a proxy may have "
                                           "decoded \"%2F\": \"%252F\" "
                                           "passes");
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    return ngx_http_zk_lock_answer_method(r, allow);
}
