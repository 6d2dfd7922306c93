
/*
 * The target: what a request is about.
 *
 * The location's own prefix is taken off its path, and what is left is nothing,
 * NAME, or NAME/TOKEN.  With the location's root, which may hold variables,
 * that is the path of a znode; both have been checked then.
 *
 * Everything here runs on the event loop.  In the context are written name and
 * text, which point into the request's path (text.data is NULL if there is no
 * token in it), and root and path, which are the pool's.
 */


#include "ngx_http_zk_lock_answer.h"


static ngx_uint_t ngx_http_zk_lock_target_rewritten(ngx_str_t *uri);


ngx_int_t
ngx_http_zk_lock_target(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, const char **why)
{
    u_char                    *p, *last, *slash;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    p = r->uri.data;
    last = p + r->uri.len;

    if (r->uri.len >= clcf->name.len
        && ngx_strncmp(p, clcf->name.data, clcf->name.len) == 0)
    {
        p += clcf->name.len;
    }

    if (p < last && *p == '/') {
        p++;
    }

    /* what nginx has put right already was not a name that can be taken */

    if (ngx_http_zk_lock_target_rewritten(&r->unparsed_uri)) {
        *why = "a lock's name is one path segment, neither \".\" nor \"..\", "
               "without a slash in it, \"%2F\" included, and without an empty "
               "segment or one of dots around it";
        return NGX_ERROR;
    }

    /* "location /locks" has "/locksmith" as well, which names no lock */

    if (p > r->uri.data && p[-1] != '/') {
        *why = "this is no path of a lock: what goes before a lock's name "
               "ends in a slash";
        return NGX_DECLINED;
    }

    slash = ngx_strlchr(p, last, '/');

    ctx->name.data = p;
    ctx->name.len = (slash ? slash : last) - p;

    if (slash != NULL) {
        ctx->text.data = slash + 1;
        ctx->text.len = last - slash - 1;
    }

    if (ctx->name.len == 0 && slash == NULL && p > r->uri.data
        && p[-1] == '/')
    {
        return NGX_OK;
    }

    *why = zk_lock_name_check((char *) ctx->name.data, ctx->name.len);

    return (*why == NULL) ? NGX_OK : NGX_ERROR;
}


/*
 * Whether nginx has changed the path: merged slashes, resolved dots, or took
 * an escaped slash for one.
 */

static ngx_uint_t
ngx_http_zk_lock_target_rewritten(ngx_str_t *uri)
{
    size_t      i, len, dots;
    u_char     *p;
    ngx_uint_t  c;

    len = 0;
    dots = 0;

    for (i = 1; i <= uri->len; i++) {

        p = &uri->data[i];
        c = (i == uri->len) ? '?' : *p;

        if (c == '%' && i + 2 < uri->len && p[1] == '2') {

            if ((p[2] | 0x20) == 'f') {
                return 1;
            }

            if ((p[2] | 0x20) == 'e') {
                c = '.';
                i += 2;
            }
        }

        if (c == '/' || c == '?') {

            if ((len == 0 && c == '/')
                || (len != 0 && len == dots && dots <= 2))
            {
                return 1;
            }

            if (c == '?') {
                break;
            }

            len = 0;
            dots = 0;
            continue;
        }

        len++;
        dots += (c == '.');
    }

    return 0;
}


ngx_int_t
ngx_http_zk_lock_target_method(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t    rc;
    ngx_uint_t   methods;
    const char  *allow;

    if (ctx->text.data != NULL) {
        methods = NGX_HTTP_ZK_LOCK_READS|NGX_HTTP_PUT|NGX_HTTP_DELETE;
        allow = "GET, HEAD, PUT, DELETE";

    } else if (ctx->name.len == 0) {
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

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ctx->text.data != NULL && ctx->text.len != ZK_LOCK_TOKEN_LEN
        && (r->method & (NGX_HTTP_POST|NGX_HTTP_LOCK|NGX_HTTP_UNLOCK)))
    {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "a lock's name is one path segment, "
                                        "and behind it stands a token: a name "
                                        "has no slash in it, \"%2F\" "
                                        "included; write \"team:job\", say, "
                                        "for \"team/job\"");
    }

    return ngx_http_zk_lock_answer_method(r, allow);
}


ngx_int_t
ngx_http_zk_lock_target_path(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    u_char                       *p;
    ngx_int_t                     rc;
    ngx_str_t                     root;
    const char                   *why;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    if (ngx_http_complex_value(r, zlcf->root, &root) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    why = zk_lock_path_check((char *) root.data, root.len);

    if (why != NULL) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "zk_lock_root \"%V\" cannot be used: %s", &root, why);

        rc = ngx_http_discard_request_body(r);

        return (rc != NGX_OK) ? rc : ngx_http_zk_lock_problem(r,
                                          NGX_HTTP_INTERNAL_SERVER_ERROR,
                                          "this location's root cannot be "
                                          "used for this request");
    }

    ctx->path = root;

    if (root.len == 1) {
        root.len = 0;
    }

    ctx->root = root;

    if (ctx->name.len == 0) {
        return NGX_DECLINED;
    }

    ctx->path.len = root.len + 1 + ctx->name.len;

    if (ctx->path.len > ZK_LOCK_PATH_MAX) {
        rc = ngx_http_discard_request_body(r);

        return (rc != NGX_OK) ? rc : ngx_http_zk_lock_problem(r,
                                          NGX_HTTP_BAD_REQUEST,
                                          "the root and the name together "
                                          "are too long");
    }

    ctx->path.data = ngx_pnalloc(r->pool, ctx->path.len);
    if (ctx->path.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    p = ngx_cpymem(ctx->path.data, root.data, root.len);
    *p++ = '/';
    ngx_memcpy(p, ctx->name.data, ctx->name.len);

    return NGX_DECLINED;
}
