
/* The configuration: what the directives say, checked and put together. */


#ifndef _NGX_HTTP_ZK_LOCK_CONF_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_CONF_H_INCLUDED_


#include "http/api.h"
#include "http/guard.h"
#include "http/log.h"
#include "http/page.h"
#include "http/require.h"
#include "http/resolve.h"


/* the least value of a directive: the "post" of an ngx_command_t */

typedef struct {
    ngx_conf_post_handler_pt           post_handler;
    ngx_uint_t                         least;
    char                              *takes;   /* the error */
} ngx_http_zk_lock_least_t;


/* Hooks of the module. */

void *ngx_http_zk_lock_create_main_conf(ngx_conf_t *cf);
/* Sets defaults; joins the paths of the certificates. */
char *ngx_http_zk_lock_init_main_conf(ngx_conf_t *cf, void *conf);
void *ngx_http_zk_lock_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_zk_lock_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
/* Adds the zone, when all directives have been read. */
ngx_int_t ngx_http_zk_lock_init(ngx_conf_t *cf);


/* Returns NULL if the cycle has no configuration of this module. */
ngx_http_zk_lock_main_conf_t *ngx_http_zk_lock_cycle_conf(ngx_cycle_t *cycle);


/* Handlers of the directives of the same names. */

/* The handler of all ngx_http_zk_lock_least_t, for times and sizes. */
char *ngx_http_zk_lock_check_least(ngx_conf_t *cf, void *post, void *data);

/* Of zk_lock_status. */
char *ngx_http_zk_lock_check_status(ngx_conf_t *cf, void *post, void *data);

/* Resolves the names, unless the resolver does so; cuts off a chroot. */
char *ngx_http_zk_lock_servers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_zk_lock_auth(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* Of all three zk_lock_ssl_*; fails if libzookeeper was built without TLS. */
char *ngx_http_zk_lock_ssl(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_zk_lock_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_zk_lock_health(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* Takes "off", or a number and a key. */
char *ngx_http_zk_lock_conf_max_claims(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
/* Takes "off", or a text with variables. */
char *ngx_http_zk_lock_conf_text(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
/* Takes "off", or an origin, which may be a variable. */
char *ngx_http_zk_lock_conf_origin(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
/* Opens the file with the cycle's, and makes the buffer. */
char *ngx_http_zk_lock_conf_log(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_zk_lock_page(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_zk_lock_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* A zk_lock and a zk_lock_require: adds a rule to the location's. */
char *ngx_http_zk_lock_rule(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_zk_lock_require_rule(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
/* Checks a root without variables; any other is checked at each request. */
char *ngx_http_zk_lock_root(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);


#endif /* _NGX_HTTP_ZK_LOCK_CONF_H_INCLUDED_ */
