
/*
 * Variables: the result of a lock request, for logs and headers.
 *
 * The handlers read the request's context, which is filled before the answer is
 * sent.  If the context is NULL or the value is not set yet, the variable is
 * not found, and a log prints "-".
 */


#include "http/api.h"


static ngx_int_t ngx_http_zk_lock_variable_name(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_zk_lock_variable_outcome(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_zk_lock_variable_wait_time(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_zk_lock_variable_fencing(ngx_http_request_t *r,
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
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    ngx_http_zk_lock_variable_set(v, ctx ? &ctx->name : NULL);

    return NGX_OK;
}


static ngx_int_t
ngx_http_zk_lock_variable_outcome(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    ngx_http_zk_lock_variable_set(v, ctx ? &ctx->outcome : NULL);

    return NGX_OK;
}


/* Seconds and milliseconds, of requests that acquire. */

static ngx_int_t
ngx_http_zk_lock_variable_wait_time(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                  *p;
    ngx_str_t                value;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    if (ctx == NULL || !ctx->waits) {
        ngx_http_zk_lock_variable_set(v, NULL);
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_TIME_T_LEN + 4);
    if (p == NULL) {
        return NGX_ERROR;
    }

    value.data = p;
    value.len = ngx_sprintf(p, "%T.%03M", (time_t) (ctx->waited / 1000),
                            ctx->waited % 1000)
                - p;

    ngx_http_zk_lock_variable_set(v, &value);

    return NGX_OK;
}


static ngx_int_t
ngx_http_zk_lock_variable_fencing(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                  *p;
    ngx_str_t                value;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    if (ctx == NULL || ctx->fencing == 0) {
        ngx_http_zk_lock_variable_set(v, NULL);
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    value.data = p;
    value.len = ngx_sprintf(p, "%L", ctx->fencing) - p;

    ngx_http_zk_lock_variable_set(v, &value);

    return NGX_OK;
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
