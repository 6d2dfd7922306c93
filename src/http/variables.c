
/*
 * Variables: the result of a lock request or of a guarded request, for logs and
 * headers.
 *
 * The handlers read the context of the request or of its guard, which is filled
 * before the answer is sent, or before the request is passed on.  If there is
 * no context or the value is not set yet, the variable is not found, and a log
 * prints "-".
 */


#include "http/api.h"
#include "http/guard.h"


static ngx_int_t ngx_http_zk_lock_variable_name(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_zk_lock_variable_outcome(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_zk_lock_variable_wait_time(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_zk_lock_variable_fencing(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_zk_lock_variable_fencings(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static void ngx_http_zk_lock_variable_set(ngx_http_variable_value_t *v,
    ngx_str_t *value);


static ngx_http_variable_t  ngx_http_zk_lock_variables[] = {

    { ngx_string("zk_lock_name"), NULL, ngx_http_zk_lock_variable_name, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("zk_lock_outcome"), NULL, ngx_http_zk_lock_variable_outcome,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("zk_lock_wait_time"), NULL,
      ngx_http_zk_lock_variable_wait_time, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("zk_lock_fencing_token"), NULL,
      ngx_http_zk_lock_variable_fencing, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("zk_lock_fencing_tokens"), NULL,
      ngx_http_zk_lock_variable_fencings, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


ngx_int_t
ngx_http_zk_lock_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_zk_lock_variables; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_zk_lock_variable_name(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_zk_lock_told_t  *told, buf;

    told = ngx_http_zk_lock_variable_told(r, &buf);

    ngx_http_zk_lock_variable_set(v, told ? &told->name : NULL);

    return NGX_OK;
}


static ngx_int_t
ngx_http_zk_lock_variable_outcome(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_zk_lock_told_t  *told, buf;

    told = ngx_http_zk_lock_variable_told(r, &buf);

    ngx_http_zk_lock_variable_set(v, told ? &told->outcome : NULL);

    return NGX_OK;
}


/* Seconds and milliseconds, of requests that acquire. */

static ngx_int_t
ngx_http_zk_lock_variable_wait_time(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                   *p;
    ngx_str_t                 value;
    ngx_http_zk_lock_told_t  *told, buf;

    told = ngx_http_zk_lock_variable_told(r, &buf);

    if (told == NULL || !told->waits) {
        ngx_http_zk_lock_variable_set(v, NULL);
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_TIME_T_LEN + 4);
    if (p == NULL) {
        return NGX_ERROR;
    }

    value.data = p;
    value.len = ngx_sprintf(p, "%T.%03M", (time_t) (told->waited / 1000),
                            told->waited % 1000)
                - p;

    ngx_http_zk_lock_variable_set(v, &value);

    return NGX_OK;
}


static ngx_int_t
ngx_http_zk_lock_variable_fencing(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                   *p;
    ngx_str_t                 value;
    ngx_http_zk_lock_told_t  *told, buf;

    told = ngx_http_zk_lock_variable_told(r, &buf);

    if (told == NULL || told->fencing == 0) {
        ngx_http_zk_lock_variable_set(v, NULL);
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    value.data = p;
    value.len = ngx_sprintf(p, "%L", told->fencing) - p;

    ngx_http_zk_lock_variable_set(v, &value);

    return NGX_OK;
}


static ngx_int_t
ngx_http_zk_lock_variable_fencings(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_zk_lock_told_t  *told, buf;

    told = ngx_http_zk_lock_variable_told(r, &buf);

    if (told == NULL || told->fencings.len == 0) {
        return ngx_http_zk_lock_variable_fencing(r, v, data);
    }

    ngx_http_zk_lock_variable_set(v, &told->fencings);

    return NGX_OK;
}


ngx_http_zk_lock_told_t *
ngx_http_zk_lock_variable_told(ngx_http_request_t *r,
    ngx_http_zk_lock_told_t *buf)
{
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    if (ctx == NULL) {
        return ngx_http_zk_lock_guard_notes(r);
    }

    buf->name = ctx->name;
    buf->outcome = ctx->outcome;
    buf->type = ctx->type;
    buf->waited = ctx->waited;
    buf->fencing = ctx->fencing;
    buf->waits = ctx->waits;
    buf->refused = 0;

    ngx_str_null(&buf->fencings);

    return buf;
}


static void
ngx_http_zk_lock_variable_set(ngx_http_variable_value_t *v, ngx_str_t *value)
{
    if (value == NULL || value->len == 0) {
        v->not_found = 1;
        return;
    }

    v->len = value->len;
    v->data = value->data;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
}
