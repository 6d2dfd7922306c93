
/*
 * The user of a request.
 *
 * $remote_user is the name that the client has put into Authorization, whether
 * the password was checked or not.  nginx checked the password if auth_basic is
 * on in the location, and every condition of the location has to be met.  The
 * structure of auth_basic is private, but the directives have the offsets of
 * their values in the structure.
 *
 * This file runs on the event loop, or while nginx reads the configuration.
 * nginx may have been built without auth_basic.
 */


#include "http/user.h"


ngx_http_complex_value_t *
ngx_http_zk_lock_user_realm(ngx_module_t **modules, void **loc_conf)
{
    u_char                     *conf;
    uintptr_t                   users;
    ngx_command_t              *cmd;
    ngx_http_complex_value_t   *realm;
    ngx_http_core_loc_conf_t   *clcf;

    clcf = loc_conf[ngx_http_core_module.ctx_index];

    if (clcf->satisfy == NGX_HTTP_SATISFY_ANY) {
        return NULL;
    }

    while (*modules != NULL
           && ngx_strcmp((*modules)->name, "ngx_http_auth_basic_module") != 0)
    {
        modules++;
    }

    if (*modules == NULL) {
        return NULL;
    }

    conf = loc_conf[(*modules)->ctx_index];
    realm = NULL;
    users = 0;

    for (cmd = (*modules)->commands; cmd->name.len; cmd++) {

        if (ngx_strcmp(cmd->name.data, "auth_basic") == 0
            && cmd->set == ngx_http_set_complex_value_slot)
        {
            realm = *(ngx_http_complex_value_t **) (conf + cmd->offset);
        }

        if (ngx_strcmp(cmd->name.data, "auth_basic_user_file") == 0) {

            /* a pointer, or the length of a text before nginx 1.21.7 */

            users = *(uintptr_t *) (conf + cmd->offset);
        }
    }

    if (realm == NULL || users == 0
        || (realm->lengths == NULL && realm->value.len == 3
            && ngx_strncmp(realm->value.data, "off", 3) == 0))
    {
        return NULL;
    }

    return realm;
}


ngx_int_t
ngx_http_zk_lock_user(ngx_http_request_t *r, ngx_str_t *name)
{
    ngx_int_t                  rc;
    ngx_str_t                  text;
    ngx_http_complex_value_t  *realm;

    ngx_str_null(name);

    realm = ngx_http_zk_lock_user_realm(ngx_cycle->modules, r->loc_conf);

    if (realm == NULL) {
        return NGX_OK;
    }

    if (ngx_http_complex_value(r, realm, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 3 && ngx_strncmp(text.data, "off", 3) == 0) {
        return NGX_OK;
    }

    rc = ngx_http_auth_basic_user(r);

    if (rc == NGX_OK) {
        *name = r->headers_in.user;
    }

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}
