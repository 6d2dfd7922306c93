
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


/* the data of the variables */

#define NGX_HTTP_ZK_LOCK_VARIABLE_NAME      0
#define NGX_HTTP_ZK_LOCK_VARIABLE_OUTCOME   1
#define NGX_HTTP_ZK_LOCK_VARIABLE_WAIT      2
#define NGX_HTTP_ZK_LOCK_VARIABLE_FENCING   3
#define NGX_HTTP_ZK_LOCK_VARIABLE_FENCINGS  4


static ngx_int_t ngx_http_zk_lock_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);


static ngx_http_variable_t  ngx_http_zk_lock_variables[] = {

    { ngx_string("zk_lock_name"), NULL, ngx_http_zk_lock_variable,
      NGX_HTTP_ZK_LOCK_VARIABLE_NAME, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("zk_lock_outcome"), NULL, ngx_http_zk_lock_variable,
      NGX_HTTP_ZK_LOCK_VARIABLE_OUTCOME, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("zk_lock_wait_time"), NULL, ngx_http_zk_lock_variable,
      NGX_HTTP_ZK_LOCK_VARIABLE_WAIT, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("zk_lock_fencing_token"), NULL, ngx_http_zk_lock_variable,
      NGX_HTTP_ZK_LOCK_VARIABLE_FENCING, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("zk_lock_fencing_tokens"), NULL, ngx_http_zk_lock_variable,
      NGX_HTTP_ZK_LOCK_VARIABLE_FENCINGS, NGX_HTTP_VAR_NOCACHEABLE, 0 },

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
ngx_http_zk_lock_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    u_char                    text[NGX_TIME_T_LEN + 4 + NGX_INT64_LEN];
    ngx_str_t                 value;
    ngx_http_zk_lock_told_t  *told;

    told = ngx_http_zk_lock_variable_told(r);

    if (told == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    value.data = text;
    value.len = 0;

    switch (data) {

    case NGX_HTTP_ZK_LOCK_VARIABLE_NAME:
        value = told->name;
        break;

    case NGX_HTTP_ZK_LOCK_VARIABLE_OUTCOME:
        value = told->outcome;
        break;

    case NGX_HTTP_ZK_LOCK_VARIABLE_WAIT:

        /* seconds and milliseconds, of requests that acquire */

        if (told->waits) {
            value.len = ngx_sprintf(text, "%T.%03M",
                                    (time_t) (told->waited / 1000),
                                    told->waited % 1000)
                        - text;
        }

        break;

    default: /* one fencing token, or those of all locks */

        if (data == NGX_HTTP_ZK_LOCK_VARIABLE_FENCINGS
            && told->fencings.len != 0)
        {
            value = told->fencings;

        } else if (told->fencing != 0) {
            value.len = ngx_sprintf(text, "%L", told->fencing) - text;
        }

        break;
    }

    if (value.len == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    v->data = (value.data == text) ? ngx_pstrdup(r->pool, &value) : value.data;

    if (v->data == NULL) {
        return NGX_ERROR;
    }

    v->len = value.len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


ngx_http_zk_lock_told_t *
ngx_http_zk_lock_variable_told(ngx_http_request_t *r)
{
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    return (ctx != NULL) ? &ctx->told : ngx_http_zk_lock_guard_notes(r);
}
