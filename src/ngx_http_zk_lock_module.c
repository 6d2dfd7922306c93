
/*
 * The module: directives, configuration, hooks.
 *
 * Configuration is read in the master, and under "nginx -t", where nothing
 * may be opened: the session is opened when a worker starts to serve, and
 * not in the cache manager and the cache loader, which run the same hook.
 * That ZooKeeper is not there is no error at any of these moments.
 *
 * The worker object hangs off the main configuration of the process's cycle;
 * it is NULL everywhere else.
 */


#include "ngx_http_zk_lock_api.h"

#include <ngx_md5.h>


/* how soon a worker that found no place tries again, milliseconds */
#define NGX_HTTP_ZK_LOCK_START_AGAIN  500


static ngx_int_t ngx_http_zk_lock_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_zk_lock_init_module(ngx_cycle_t *cycle);
static ngx_http_zk_lock_main_conf_t *ngx_http_zk_lock_cycle_conf(
    ngx_cycle_t *cycle);
static ngx_int_t ngx_http_zk_lock_init_process(ngx_cycle_t *cycle);
static void ngx_http_zk_lock_start_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_exit_process(ngx_cycle_t *cycle);

static void *ngx_http_zk_lock_create_main_conf(ngx_conf_t *cf);
static char *ngx_http_zk_lock_init_main_conf(ngx_conf_t *cf, void *conf);
static void *ngx_http_zk_lock_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_zk_lock_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);

static char *ngx_http_zk_lock_servers(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_zk_lock_resolve(ngx_conf_t *cf,
    ngx_http_zk_lock_main_conf_t *zmcf, ngx_str_t *list);
static char *ngx_http_zk_lock_resolve_one(ngx_conf_t *cf, ngx_str_t *host,
    ngx_array_t *servers);
static char *ngx_http_zk_lock_auth(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_zk_lock_state_path(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_zk_lock_api(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_zk_lock_metrics(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_zk_lock_root(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


static ngx_str_t  ngx_http_zk_lock_zone_name = ngx_string("zk_lock:");
static ngx_str_t  ngx_http_zk_lock_default_root = ngx_string("/locks");


static ngx_conf_enum_t  ngx_http_zk_lock_layouts[] = {
    { ngx_string("queue"), NGX_HTTP_ZK_LOCK_LAYOUT_QUEUE },
    { ngx_string("node"), NGX_HTTP_ZK_LOCK_LAYOUT_NODE },
    { ngx_null_string, 0 }
};


static ngx_command_t  ngx_http_zk_lock_commands[] = {

    { ngx_string("zk_lock_servers"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_zk_lock_servers,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zk_lock_session_timeout"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_main_conf_t, session.timeout),
      NULL },

    { ngx_string("zk_lock_auth"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE2,
      ngx_http_zk_lock_auth,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zk_lock_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_size_slot,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_main_conf_t, zone_size),
      NULL },

    { ngx_string("zk_lock_cache"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_num_slot,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_main_conf_t, cache),
      NULL },

    { ngx_string("zk_lock_state_path"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_zk_lock_state_path,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zk_lock_metrics"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_zk_lock_metrics,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zk_lock_api"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_zk_lock_api,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zk_lock_root"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_zk_lock_root,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, root),
      NULL },

    { ngx_string("zk_lock_wait"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, wait),
      NULL },

    { ngx_string("zk_lock_max_wait"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, max_wait),
      NULL },

    { ngx_string("zk_lock_ttl"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, ttl),
      NULL },

    { ngx_string("zk_lock_max_ttl"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, max_ttl),
      NULL },

    { ngx_string("zk_lock_max_queue"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_num_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, max_queue),
      NULL },

    { ngx_string("zk_lock_grace"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, grace),
      NULL },

    { ngx_string("zk_lock_admin"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, admin),
      NULL },

    { ngx_string("zk_lock_layout"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_enum_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, layout),
      &ngx_http_zk_lock_layouts },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_zk_lock_module_ctx = {
    ngx_http_zk_lock_add_variables,        /* preconfiguration */
    ngx_http_zk_lock_init,                 /* postconfiguration */

    ngx_http_zk_lock_create_main_conf,     /* create main configuration */
    ngx_http_zk_lock_init_main_conf,       /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_zk_lock_create_loc_conf,      /* create location configuration */
    ngx_http_zk_lock_merge_loc_conf        /* merge location configuration */
};


ngx_module_t  ngx_http_zk_lock_module = {
    NGX_MODULE_V1,
    &ngx_http_zk_lock_module_ctx,          /* module context */
    ngx_http_zk_lock_commands,             /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_zk_lock_init_module,          /* init module */
    ngx_http_zk_lock_init_process,         /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_zk_lock_exit_process,         /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_zk_lock_init(ngx_conf_t *cf)
{
    u_char                        *p;
    u_char                         hash[16];
    ngx_md5_t                      md5;
    ngx_str_t                      name;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    zmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_zk_lock_module);

    if (zmcf->servers.len == 0) {

        if (zmcf->api) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "\"zk_lock_api\" and \"zk_lock_metrics\" need "
                          "\"zk_lock_servers\"");
            return NGX_ERROR;
        }

        return NGX_OK;
    }

    /*
     * Records are known by their path: other servers, other zone.  Who we are
     * to the servers says what we may do there.  And a zone cannot move to
     * another file.
     */

    ngx_md5_init(&md5);
    ngx_md5_update(&md5, zmcf->session.auth_scheme.data,
                   zmcf->session.auth_scheme.len);
    ngx_md5_update(&md5, ":", 1);
    ngx_md5_update(&md5, zmcf->session.auth.data, zmcf->session.auth.len);
    ngx_md5_final(hash, &md5);

    name.len = ngx_http_zk_lock_zone_name.len + zmcf->servers.len + 1 + 8 + 1
               + zmcf->state_path.len;

    name.data = ngx_pnalloc(cf->pool, name.len);
    if (name.data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(name.data, "%V%V ", &ngx_http_zk_lock_zone_name,
                    &zmcf->servers);
    p = ngx_hex_dump(p, hash, 4);
    (void) ngx_sprintf(p, " %V", &zmcf->state_path);

    zmcf->shm_zone = ngx_shared_memory_add(cf, &name, zmcf->zone_size,
                                           &ngx_http_zk_lock_module);
    if (zmcf->shm_zone == NULL) {
        return NGX_ERROR;
    }

    zmcf->map.servers.data = name.data;
    zmcf->map.servers.len = name.len - zmcf->state_path.len;
    zmcf->map.path = zmcf->state_path;
    zmcf->map.cycle = cf->cycle;

    zmcf->shm_zone->init = ngx_http_zk_lock_zone_init;
    zmcf->shm_zone->data = &zmcf->map;

    return NGX_OK;
}


/*
 * Runs in the master when nothing can fail any more, before workers are
 * started: those of before are told in time that others come after them.
 */

static ngx_int_t
ngx_http_zk_lock_init_module(ngx_cycle_t *cycle)
{
    ngx_http_zk_lock_main_conf_t  *zmcf, *old;

    if (ngx_test_config) {
        return NGX_OK;
    }

    zmcf = ngx_http_zk_lock_cycle_conf(cycle);
    old = ngx_http_zk_lock_cycle_conf(cycle->old_cycle);

    ngx_http_zk_lock_zone_reloaded(zmcf ? zmcf->shm_zone : NULL,
                                   old ? old->shm_zone : NULL);

    return NGX_OK;
}


/* NULL if a cycle has no configuration, or none of ours. */

static ngx_http_zk_lock_main_conf_t *
ngx_http_zk_lock_cycle_conf(ngx_cycle_t *cycle)
{
    ngx_uint_t  i;

    if (cycle == NULL || cycle->conf_ctx == NULL || cycle->modules == NULL) {
        return NULL;
    }

    /* a reload may have loaded this module, or loaded it anew */

    for (i = 0; cycle->modules[i]; i++) {
        if (cycle->modules[i] == &ngx_http_zk_lock_module) {
            return ngx_http_cycle_get_module_main_conf(cycle,
                                                     ngx_http_zk_lock_module);
        }
    }

    return NULL;
}


static ngx_int_t
ngx_http_zk_lock_init_process(ngx_cycle_t *cycle)
{
    ngx_http_zk_lock_main_conf_t  *zmcf;

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return NGX_OK;
    }

    zmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_zk_lock_module);

    if (zmcf == NULL || zmcf->shm_zone == NULL) {
        return NGX_OK;
    }

    /*
     * An error here would keep the worker from being started ever again: what
     * else it serves goes on, and locks get 503 until it works.
     */

    zmcf->worker = ngx_http_zk_lock_worker_start(&zmcf->session,
                                                 zmcf->cache,
                                                 zmcf->shm_zone, cycle->log);

    if (zmcf->worker == NULL) {
        ngx_log_error(NGX_LOG_ERR, cycle->log, 0,
                      "this worker serves no locks yet: no place in "
                      "zk_lock_zone, or no memory");

        zmcf->ident.fd = (ngx_socket_t) -1;

        zmcf->start.handler = ngx_http_zk_lock_start_handler;
        zmcf->start.data = &zmcf->ident;
        zmcf->start.log = cycle->log;
        zmcf->start.cancelable = 1;

        ngx_add_timer(&zmcf->start, NGX_HTTP_ZK_LOCK_START_AGAIN);
    }

    return NGX_OK;
}


static void
ngx_http_zk_lock_start_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_main_conf_t  *zmcf;

    zmcf = ngx_queue_data(ev, ngx_http_zk_lock_main_conf_t, start);

    if (ngx_exiting) {
        return;
    }

    zmcf->worker = ngx_http_zk_lock_worker_start(&zmcf->session,
                                                 zmcf->cache,
                                                 zmcf->shm_zone, ev->log);

    if (zmcf->worker == NULL) {
        ngx_add_timer(&zmcf->start, NGX_HTTP_ZK_LOCK_START_AGAIN);
        return;
    }

    ngx_log_error(NGX_LOG_NOTICE, ev->log, 0, "this worker serves locks now");
}


static void
ngx_http_zk_lock_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_zk_lock_main_conf_t  *zmcf;

    zmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_zk_lock_module);

    if (zmcf == NULL || zmcf->worker == NULL) {
        return;
    }

    ngx_http_zk_lock_worker_stop(zmcf->worker);

    zmcf->worker = NULL;
}


static void *
ngx_http_zk_lock_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_zk_lock_main_conf_t  *zmcf;

    zmcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_zk_lock_main_conf_t));
    if (zmcf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     zmcf->session.servers = { 0, NULL };
     *     zmcf->session.auth_scheme = { 0, NULL };
     *     zmcf->session.auth = { 0, NULL };
     *     zmcf->servers = { 0, NULL };
     *     zmcf->state_path = { 0, NULL };
     *     zmcf->shm_zone = NULL;
     *     zmcf->worker = NULL;
     *     zmcf->start = { 0 };
     *     zmcf->api = 0;
     */

    ngx_str_set(&zmcf->session.chroot, "");
    zmcf->session.timeout = NGX_CONF_UNSET_MSEC;
    zmcf->zone_size = NGX_CONF_UNSET_SIZE;
    zmcf->cache = NGX_CONF_UNSET;

    return zmcf;
}


static char *
ngx_http_zk_lock_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_zk_lock_main_conf_t *zmcf = conf;

    ngx_conf_init_msec_value(zmcf->session.timeout, 10000);
    ngx_conf_init_size_value(zmcf->zone_size, 4 * 1024 * 1024);
    ngx_conf_init_value(zmcf->cache, 10000);

    if (zmcf->session.timeout < 1000) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"zk_lock_session_timeout\" takes at least 1s");
        return NGX_CONF_ERROR;
    }

    if (zmcf->zone_size < 256 * 1024) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"zk_lock_zone\" takes at least 256k");
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static void *
ngx_http_zk_lock_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_zk_lock_loc_conf_t));
    if (zlcf == NULL) {
        return NULL;
    }

    zlcf->root = NGX_CONF_UNSET_PTR;
    zlcf->wait = NGX_CONF_UNSET_MSEC;
    zlcf->max_wait = NGX_CONF_UNSET_MSEC;
    zlcf->ttl = NGX_CONF_UNSET_MSEC;
    zlcf->max_ttl = NGX_CONF_UNSET_MSEC;
    zlcf->grace = NGX_CONF_UNSET_MSEC;
    zlcf->max_queue = NGX_CONF_UNSET_UINT;
    zlcf->admin = NGX_CONF_UNSET;
    zlcf->layout = NGX_CONF_UNSET_UINT;

    return zlcf;
}


static char *
ngx_http_zk_lock_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_zk_lock_loc_conf_t *prev = parent;
    ngx_http_zk_lock_loc_conf_t *conf = child;

    ngx_http_core_loc_conf_t  *clcf;

    /* nginx gives limit_except no handler of the location that it is in */

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->lmt_excpt && clcf->handler == NULL) {
        conf->handler = prev->handler;
        clcf->handler = prev->handler;
    }

    ngx_conf_merge_ptr_value(conf->root, prev->root, NULL);

    if (conf->root == NULL) {
        conf->root = ngx_pcalloc(cf->pool, sizeof(ngx_http_complex_value_t));
        if (conf->root == NULL) {
            return NGX_CONF_ERROR;
        }

        conf->root->value = ngx_http_zk_lock_default_root;
    }

    ngx_conf_merge_msec_value(conf->wait, prev->wait, 30000);
    ngx_conf_merge_msec_value(conf->max_wait, prev->max_wait, 300000);
    ngx_conf_merge_msec_value(conf->ttl, prev->ttl, 60000);
    ngx_conf_merge_msec_value(conf->max_ttl, prev->max_ttl, 86400000);
    ngx_conf_merge_msec_value(conf->grace, prev->grace, 10000);
    ngx_conf_merge_uint_value(conf->max_queue, prev->max_queue, 10000);
    ngx_conf_merge_value(conf->admin, prev->admin, 0);
    ngx_conf_merge_uint_value(conf->layout, prev->layout,
                              NGX_HTTP_ZK_LOCK_LAYOUT_QUEUE);

    if (conf->ttl == 0 || conf->max_ttl == 0 || conf->grace == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"zk_lock_ttl\", \"zk_lock_max_ttl\" and "
                           "\"zk_lock_grace\" take a time above zero");
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_zk_lock_servers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zk_lock_main_conf_t *zmcf = conf;

    u_char      *slash;
    ngx_str_t   *value, list;
    const char  *why;

    if (zmcf->servers.len != 0) {
        return "is duplicate";
    }

    value = cf->args->elts;
    list = value[1];

    zmcf->servers = list;

    slash = ngx_strlchr(list.data, list.data + list.len, '/');

    if (slash != NULL) {
        zmcf->session.chroot.data = slash;
        zmcf->session.chroot.len = list.data + list.len - slash;

        list.len = slash - list.data;

        why = zk_lock_path_check((char *) zmcf->session.chroot.data,
                                 zmcf->session.chroot.len);
        if (why != NULL) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid chroot \"%V\" in \"zk_lock_servers\": "
                               "%s",
                               &zmcf->session.chroot, why);
            return NGX_CONF_ERROR;
        }

        if (zmcf->session.chroot.len == 1) {
            zmcf->session.chroot.len = 0;
        }
    }

    return ngx_http_zk_lock_resolve(cf, zmcf, &list);
}


/*
 * The library is given numeric addresses only: it would resolve names on the
 * event loop, and hang or spin when that fails.
 */

static char *
ngx_http_zk_lock_resolve(ngx_conf_t *cf, ngx_http_zk_lock_main_conf_t *zmcf,
    ngx_str_t *list)
{
    char         *rc;
    size_t        len;
    u_char       *p, *last, *comma;
    ngx_str_t     host, *server;
    ngx_uint_t    i;
    ngx_array_t   servers;

    if (ngx_array_init(&servers, cf->pool, 4, sizeof(ngx_str_t)) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    last = list->data + list->len;

    for (p = list->data; p <= last; p = comma + 1) {
        comma = ngx_strlchr(p, last, ',');
        comma = comma ? comma : last;

        host.data = p;
        host.len = comma - p;

        rc = ngx_http_zk_lock_resolve_one(cf, &host, &servers);
        if (rc != NGX_CONF_OK) {
            return rc;
        }
    }

    server = servers.elts;
    len = 0;

    for (i = 0; i < servers.nelts; i++) {
        len += server[i].len + 1;
    }

    p = ngx_pnalloc(cf->pool, len);
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    zmcf->session.servers.data = p;
    zmcf->session.servers.len = len - 1;

    for (i = 0; i < servers.nelts; i++) {
        p = ngx_cpymem(p, server[i].data, server[i].len);
        *p++ = ',';
    }

    p[-1] = '\0';

    return NGX_CONF_OK;
}


static char *
ngx_http_zk_lock_resolve_one(ngx_conf_t *cf, ngx_str_t *host,
    ngx_array_t *servers)
{
    ngx_url_t    u;
    ngx_str_t   *server;
    ngx_uint_t   i;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = *host;
    u.default_port = 2181;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK || u.naddrs == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s in server \"%V\"",
                           u.err ? u.err : "no address", host);
        return NGX_CONF_ERROR;
    }

    for (i = 0; i < u.naddrs; i++) {

        if (u.addrs[i].sockaddr->sa_family != AF_INET
            && u.addrs[i].sockaddr->sa_family != AF_INET6)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" is no address of a ZooKeeper server",
                               host);
            return NGX_CONF_ERROR;
        }

        server = ngx_array_push(servers);
        if (server == NULL) {
            return NGX_CONF_ERROR;
        }

        *server = u.addrs[i].name;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_zk_lock_auth(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zk_lock_main_conf_t *zmcf = conf;

    ngx_str_t  *value;

    if (zmcf->session.auth_scheme.len != 0) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (value[1].len == 0) {
        return "takes a scheme and credentials";
    }

    zmcf->session.auth_scheme = value[1];
    zmcf->session.auth = value[2];

    return NGX_CONF_OK;
}


static char *
ngx_http_zk_lock_state_path(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zk_lock_main_conf_t *zmcf = conf;

    ngx_str_t  *value;

    if (zmcf->state_path.len != 0) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        return NGX_CONF_OK;
    }

    if (value[1].len == 0) {
        return "takes a path, or \"off\"";
    }

    zmcf->state_path = value[1];

    if (ngx_conf_full_name(cf->cycle, &zmcf->state_path, 0) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_zk_lock_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zk_lock_loc_conf_t *zlcf = conf;

    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    zmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_zk_lock_module);

    clcf->handler = ngx_http_zk_lock_metrics_handler;
    zlcf->handler = clcf->handler;

    zmcf->api = 1;

    return NGX_CONF_OK;
}


static char *
ngx_http_zk_lock_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zk_lock_loc_conf_t *zlcf = conf;

    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    zmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_zk_lock_module);

#if (NGX_PCRE)

    if (clcf->regex) {
        return "takes a location that is a prefix, not a regular expression";
    }

#endif

    if (clcf->named || clcf->noname || clcf->exact_match) {
        return "takes a location that is a prefix";
    }

    clcf->handler = ngx_http_zk_lock_api_handler;
    zlcf->handler = clcf->handler;

    zmcf->api = 1;

    return NGX_CONF_OK;
}


/* A root without variables is checked here, one with them at each request. */

static char *
ngx_http_zk_lock_root(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zk_lock_loc_conf_t *zlcf = conf;

    char        *rc;
    ngx_str_t   *value;
    const char  *why;

    rc = ngx_http_set_complex_value_slot(cf, cmd, conf);
    if (rc != NGX_CONF_OK) {
        return rc;
    }

    if (zlcf->root->lengths != NULL) {
        return NGX_CONF_OK;
    }

    value = cf->args->elts;

    why = zk_lock_path_check((char *) value[1].data, value[1].len);

    if (why != NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid \"zk_lock_root\" \"%V\": %s",
                           &value[1], why);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}
