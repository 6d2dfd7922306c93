
/*
 * Warnings of "nginx -t": a root or a key that clients choose, an operator's
 * rights in all locations, and directives that go around zk_lock_require.
 *
 * A client chooses the headers, arguments and cookies of a request, and the
 * user where nginx checks no password.  A text is searched for the names of
 * these variables; variables that a map or a "set" makes are not followed.
 *
 * nginx runs "return" and "rewrite" before zk_lock_require, and an error page
 * instead of the answer.  The codes of the rewrite module are private, but
 * their functions and structures are not (ngx_http_script.h): a code begins
 * with its function.
 *
 * This file runs while nginx reads the configuration, after the merge of the
 * modules of nginx, which come first.
 */


#include "warn.h"
#include "http/api.h"
#include "http/user.h"


static void ngx_http_zk_lock_warn_text(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf, const char *directive,
    ngx_http_complex_value_t *value, ngx_uint_t sent);
static ngx_uint_t ngx_http_zk_lock_warn_has(ngx_str_t *text, const char *name);
static void ngx_http_zk_lock_warn_codes(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf);
static void ngx_http_zk_lock_warn_pages(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf, ngx_http_zk_lock_loc_conf_t *conf);
static ngx_http_core_loc_conf_t *ngx_http_zk_lock_warn_target(
    ngx_http_core_loc_conf_t *server, ngx_str_t *target);


void
ngx_http_zk_lock_warn(ngx_conf_t *cf, ngx_http_zk_lock_loc_conf_t *conf,
    ngx_uint_t own)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->noname || clcf->lmt_excpt) {
        return;
    }

    if (clcf->name.len == 0) {

        /* a server */

        if (conf->admin == 1 && ngx_http_zk_lock_warn_serves(clcf)) {
            ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                               "\"zk_lock_admin\" is on in all locations of "
                               "the server: any client of a location may break "
                               "locks, so set it in the operators' location");
        }

        return;
    }

    if (conf->handler == ngx_http_zk_lock_api_handler || conf->guards != NULL
        || conf->requires != NULL)
    {
        ngx_http_zk_lock_warn_text(cf, clcf, "zk_lock_root", conf->root, 1);
        ngx_http_zk_lock_warn_text(cf, clcf, "zk_lock_max_claims", conf->quota,
                                   1);

        /* a client chooses the owner, but a user looks like a checked name */

        ngx_http_zk_lock_warn_text(cf, clcf, "zk_lock_owner", conf->owner, 0);
    }

    if (own) {
        ngx_http_zk_lock_warn_codes(cf, clcf);
        ngx_http_zk_lock_warn_pages(cf, clcf, conf);
    }
}


ngx_uint_t
ngx_http_zk_lock_warn_serves(ngx_http_core_loc_conf_t *clcf)
{
    ngx_queue_t                *q;
    ngx_http_location_queue_t  *lq;

    if (clcf->handler == ngx_http_zk_lock_api_handler
        || clcf->handler == ngx_http_zk_lock_health_handler)
    {
        return 1;
    }

    if (clcf->locations == NULL) {
        return 0;
    }

    for (q = ngx_queue_head(clcf->locations);
         q != ngx_queue_sentinel(clcf->locations);
         q = ngx_queue_next(q))
    {
        lq = ngx_queue_data(q, ngx_http_location_queue_t, queue);

        if (ngx_http_zk_lock_warn_serves(ngx_http_zk_lock_queued(lq))) {
            return 1;
        }
    }

    return 0;
}


/* sent: also variables that any client sends */

static void
ngx_http_zk_lock_warn_text(ngx_conf_t *cf, ngx_http_core_loc_conf_t *clcf,
    const char *directive, ngx_http_complex_value_t *value, ngx_uint_t sent)
{
    ngx_uint_t            i;
    ngx_http_conf_ctx_t  *ctx;

    static const char *names[] = {
        "http_", "arg_", "cookie_", "args", "query_string", "request",
        "request_uri", "uri", "document_uri", "proxy_add_x_forwarded_for"
    };

    if (value == NULL || value->lengths == NULL) {
        return;
    }

    ctx = cf->ctx;

    if (ngx_http_zk_lock_warn_has(&value->value, "remote_user")
        && ngx_http_zk_lock_user_realm(cf->cycle->modules, ctx->loc_conf)
           == NULL)
    {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "location \"%V\": $remote_user in \"%s\" is any "
                           "name that the client sends, because no "
                           "\"auth_basic\" checks the password of each request "
                           "here", &clcf->name, directive);
    }

    for (i = 0; sent && i < sizeof(names) / sizeof(names[0]); i++) {

        if (ngx_http_zk_lock_warn_has(&value->value, names[i])) {
            ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                               "location \"%V\": the client chooses the "
                               "variable in \"%s\", and so may choose that of "
                               "another client", &clcf->name, directive);
            return;
        }
    }
}


/* Whether a text has a variable; a name with "_" at its end is a prefix. */

static ngx_uint_t
ngx_http_zk_lock_warn_has(ngx_str_t *text, const char *name)
{
    size_t   len;
    u_char  *p, *last;

    len = ngx_strlen(name);
    last = text->data + text->len;

    for (p = text->data; p < last; p++) {

        if (*p != '$') {
            continue;
        }

        if (last - p > 1 && p[1] == '{') {
            p++;
        }

        if ((size_t) (last - p - 1) < len
            || ngx_strncmp(p + 1, name, len) != 0)
        {
            continue;
        }

        if (name[len - 1] == '_' || p + 1 + len == last
            || !((p[1 + len] >= 'a' && p[1 + len] <= 'z')
                 || (p[1 + len] >= '0' && p[1 + len] <= '9')
                 || p[1 + len] == '_'))
        {
            return 1;
        }
    }

    return 0;
}


/*
 * A "return" within an "if" is a decision of the configuration, and serves a
 * text and no file.  A "rewrite" leads to another location, which may serve the
 * files that this location protects.
 */

static void
ngx_http_zk_lock_warn_codes(ngx_conf_t *cf, ngx_http_core_loc_conf_t *clcf)
{
    uintptr_t                      *word;
    ngx_uint_t                      i, n, skip;
    ngx_array_t                    *codes;
    ngx_module_t                  **modules;
    ngx_http_conf_ctx_t            *ctx;
    ngx_http_script_code_pt         code;
#if (NGX_PCRE)
    ngx_http_script_regex_code_t   *regex;
#endif

    ctx = cf->ctx;
    codes = NULL;
    modules = cf->cycle->modules;

    for (i = 0; modules[i]; i++) {
        if (ngx_strcmp(modules[i]->name, "ngx_http_rewrite_module") == 0) {
            codes = *(ngx_array_t **) ctx->loc_conf[modules[i]->ctx_index];
        }
    }

    if (codes == NULL) {
        return;
    }

    word = codes->elts;
    n = codes->nelts * codes->size / sizeof(uintptr_t);
    skip = 0;

    for (i = 0; i < n; i++) {
        code = (ngx_http_script_code_pt) word[i];

        if (code == ngx_http_script_if_code && i + 1 < n) {
            skip = i + word[i + 1] / sizeof(uintptr_t);
        }

        if (code == ngx_http_script_return_code && i >= skip) {
            ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                               "location \"%V\": \"return\" answers before "
                               "\"zk_lock_require\" is looked at",
                               &clcf->name);
        }

#if (NGX_PCRE)

        if (code == ngx_http_script_regex_start_code) {
            regex = (ngx_http_script_regex_code_t *) &word[i];

            if (regex->uri && !regex->break_cycle && !regex->redirect) {
                ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                                   "location \"%V\": \"rewrite\" leads to "
                                   "another location before "
                                   "\"zk_lock_require\" is looked at: add "
                                   "\"break\", or require the lock there",
                                   &clcf->name);
            }
        }

#endif
    }
}


/* An error page that another module serves, without the rule. */

static void
ngx_http_zk_lock_warn_pages(ngx_conf_t *cf, ngx_http_core_loc_conf_t *clcf,
    ngx_http_zk_lock_loc_conf_t *conf)
{
    ngx_uint_t                    i;
    ngx_http_err_page_t          *page;
    ngx_http_core_loc_conf_t     *server, *target;
    ngx_http_core_srv_conf_t     *cscf;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    if (clcf->error_pages == NULL) {
        return;
    }

    cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    server = cscf->ctx->loc_conf[ngx_http_core_module.ctx_index];
    zlcf = cscf->ctx->loc_conf[ngx_http_zk_lock_module.ctx_index];

    if (zlcf->requires != NULL) {
        return;
    }

    page = clcf->error_pages->elts;

    for (i = 0; i < clcf->error_pages->nelts; i++) {

        if (page[i].status != (ngx_int_t) conf->status
            && page[i].status != NGX_HTTP_PRECONDITION_FAILED
            && page[i].status != NGX_HTTP_SERVICE_UNAVAILABLE)
        {
            continue;
        }

        target = ngx_http_zk_lock_warn_target(server, &page[i].value.value);

        if (target == NULL || target == clcf || target->handler == NULL) {
            continue;
        }

        zlcf = target->loc_conf[ngx_http_zk_lock_module.ctx_index];

        if (zlcf->requires == NULL) {
            ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                               "location \"%V\": \"error_page %ui\" has a "
                               "request that \"zk_lock_require\" refuses "
                               "served by location \"%V\"", &clcf->name,
                               (ngx_uint_t) page[i].status, &target->name);
        }
    }
}


/* The location of that name, or else the location with the longest prefix. */

static ngx_http_core_loc_conf_t *
ngx_http_zk_lock_warn_target(ngx_http_core_loc_conf_t *server,
    ngx_str_t *target)
{
    ngx_queue_t                *q;
    ngx_http_core_loc_conf_t   *clcf, *found;
    ngx_http_location_queue_t  *lq;

    found = NULL;

    if (server->locations == NULL) {
        return NULL;
    }

    for (q = ngx_queue_head(server->locations);
         q != ngx_queue_sentinel(server->locations);
         q = ngx_queue_next(q))
    {
        lq = ngx_queue_data(q, ngx_http_location_queue_t, queue);
        clcf = ngx_http_zk_lock_queued(lq);

        if (clcf->noname || clcf->name.len > target->len
            || ngx_strncmp(clcf->name.data, target->data, clcf->name.len) != 0)
        {
            continue;
        }

        if (clcf->name.len == target->len) {
            return clcf;
        }

        if (lq->inclusive != NULL && !clcf->named
            && (found == NULL || found->name.len < clcf->name.len))
        {
            found = clcf;
        }
    }

    return found;
}
