
/*
 * The configuration: what the directives say, checked and put together.
 *
 * Everything here runs on the main thread of the master or of "nginx -t" and
 * leaves nothing open: a file of credentials is read and closed.  ZooKeeper is
 * not asked.  A directive that was not set gets the default when all was read.
 * The zone is added last, because the servers and a hash of the credentials and
 * certificates are in the zone's name.
 *
 * zmcf->shm_zone is NULL without zk_lock_servers, and zmcf->worker is NULL
 * throughout.  The root of a location is never NULL after the merge.
 */


#include <ngx_md5.h>

#include "conf.h"


/* bytes of the first line of a file of credentials, with the newline */
#define NGX_HTTP_ZK_LOCK_AUTH_MAX     1024

/* descriptors of a worker beside the zone's and the connections' */
#define NGX_HTTP_ZK_LOCK_DESCRIPTORS  32


static char *ngx_http_zk_lock_certificates(ngx_conf_t *cf,
    ngx_http_zk_lock_main_conf_t *zmcf);
static ngx_int_t ngx_http_zk_lock_check_location(ngx_conf_t *cf,
    ngx_http_zk_lock_loc_conf_t *conf);
static void ngx_http_zk_lock_merge_longest(ngx_conf_t *cf,
    const char *directive, ngx_msec_t *value, ngx_msec_t def, ngx_msec_t max);
static ngx_uint_t ngx_http_zk_lock_serves_api(ngx_http_core_loc_conf_t *clcf);
static char *ngx_http_zk_lock_resolve(ngx_conf_t *cf,
    ngx_http_zk_lock_main_conf_t *zmcf, ngx_str_t *list);
static char *ngx_http_zk_lock_resolve_one(ngx_conf_t *cf, ngx_str_t *host,
    ngx_array_t *servers);
static ngx_uint_t ngx_http_zk_lock_auth_pair(ngx_str_t *auth);
static ngx_int_t ngx_http_zk_lock_auth_file(ngx_conf_t *cf, ngx_str_t *path,
    ngx_str_t *auth);
static char *ngx_http_zk_lock_answers(ngx_conf_t *cf,
    ngx_http_zk_lock_loc_conf_t *zlcf, ngx_http_handler_pt handler);
static ngx_int_t ngx_http_zk_lock_conf_zone_init(ngx_shm_zone_t *shm_zone,
    void *data);


static ngx_str_t  ngx_http_zk_lock_zone_name = ngx_string("zk_lock:");
static ngx_str_t  ngx_http_zk_lock_default_root = ngx_string("/locks");


void *
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
     *     zmcf->session.certificates = { 0, NULL };
     *     zmcf->ssl_trusted_certificate = { 0, NULL };
     *     zmcf->ssl_certificate = { 0, NULL };
     *     zmcf->ssl_certificate_key = { 0, NULL };
     *     zmcf->servers = { 0, NULL };
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


char *
ngx_http_zk_lock_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_zk_lock_main_conf_t *zmcf = conf;

    ngx_conf_init_msec_value(zmcf->session.timeout, 10000);
    ngx_conf_init_size_value(zmcf->zone_size, 4 * 1024 * 1024);
    ngx_conf_init_value(zmcf->cache, 10000);

    return ngx_http_zk_lock_certificates(cf, zmcf);
}


/* libzookeeper takes three paths as a single text, and TLS needs all three. */

static char *
ngx_http_zk_lock_certificates(ngx_conf_t *cf,
    ngx_http_zk_lock_main_conf_t *zmcf)
{
    u_char     *p;
    ngx_str_t  *ca, *own, *key;

    ca = &zmcf->ssl_trusted_certificate;
    own = &zmcf->ssl_certificate;
    key = &zmcf->ssl_certificate_key;

    if (ca->len == 0 && own->len == 0 && key->len == 0) {
        return NGX_CONF_OK;
    }

    if (ca->len == 0 || own->len == 0 || key->len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"zk_lock_ssl_trusted_certificate\", "
                           "\"zk_lock_ssl_certificate\" and "
                           "\"zk_lock_ssl_certificate_key\" need each other");
        return NGX_CONF_ERROR;
    }

    p = ngx_pnalloc(cf->pool, ca->len + own->len + key->len + 3);
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    zmcf->session.certificates.data = p;
    zmcf->session.certificates.len = ngx_sprintf(p, "%V,%V,%V%Z", ca, own, key)
                                     - p - 1;

    return NGX_CONF_OK;
}


void *
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
    zlcf->timeout = NGX_CONF_UNSET_MSEC;
    zlcf->ttl = NGX_CONF_UNSET_MSEC;
    zlcf->max_ttl = NGX_CONF_UNSET_MSEC;
    zlcf->grace = NGX_CONF_UNSET_MSEC;
    zlcf->max_queue = NGX_CONF_UNSET_UINT;
    zlcf->durable = NGX_CONF_UNSET;
    zlcf->admin = NGX_CONF_UNSET;
    zlcf->layout = NGX_CONF_UNSET_UINT;

    return zlcf;
}


char *
ngx_http_zk_lock_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_zk_lock_loc_conf_t *prev = parent;
    ngx_http_zk_lock_loc_conf_t *conf = child;

    ngx_http_core_loc_conf_t  *clcf;

    /* nginx does not pass the handler of a location on to limit_except */

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->lmt_excpt && clcf->handler == NULL) {
        conf->handler = prev->handler;
        clcf->handler = prev->handler;
    }

    if (ngx_http_zk_lock_check_location(cf, conf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    ngx_conf_merge_ptr_value(conf->root, prev->root, NULL);

    if (conf->root == NULL) {
        conf->root = ngx_pcalloc(cf->pool, sizeof(ngx_http_complex_value_t));
        if (conf->root == NULL) {
            return NGX_CONF_ERROR;
        }

        conf->root->value = ngx_http_zk_lock_default_root;
    }

    ngx_conf_merge_msec_value(conf->wait, prev->wait, NGX_CONF_UNSET_MSEC);
    ngx_conf_merge_msec_value(conf->max_wait, prev->max_wait, 300000);
    ngx_conf_merge_msec_value(conf->timeout, prev->timeout, 5000);
    ngx_conf_merge_msec_value(conf->ttl, prev->ttl, NGX_CONF_UNSET_MSEC);
    ngx_conf_merge_msec_value(conf->max_ttl, prev->max_ttl, 86400000);
    ngx_conf_merge_msec_value(conf->grace, prev->grace, 10000);
    ngx_conf_merge_uint_value(conf->max_queue, prev->max_queue, 10000);

    if (conf->handler == ngx_http_zk_lock_api_handler) {
        ngx_http_zk_lock_merge_longest(cf, "wait", &conf->wait, 30000,
                                       conf->max_wait);
        ngx_http_zk_lock_merge_longest(cf, "ttl", &conf->ttl, 60000,
                                       conf->max_ttl);
    }

    ngx_conf_merge_value(conf->durable, prev->durable, 0);
    ngx_conf_merge_value(conf->admin, prev->admin, 0);
    ngx_conf_merge_uint_value(conf->layout, prev->layout,
                              NGX_HTTP_ZK_LOCK_LAYOUT_QUEUE);

    return NGX_CONF_OK;
}


/* Checks the directives of the location alone, before the merge. */

static ngx_int_t
ngx_http_zk_lock_check_location(ngx_conf_t *cf,
    ngx_http_zk_lock_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (conf->handler != NULL && clcf->handler != conf->handler) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "location \"%V\": \"%s\" does not go with another "
                           "directive that answers requests, such as "
                           "\"proxy_pass\"", &clcf->name,
                           conf->handler == ngx_http_zk_lock_api_handler
                           ? "zk_lock_api" : "zk_lock_metrics");
        return NGX_ERROR;
    }

    if (conf->handler == ngx_http_zk_lock_api_handler
        && clcf->post_action.data != NULL)
    {

        /* a lock that a connection holds would stay held during the action */

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"post_action\" does not go with "
                           "\"zk_lock_api\"");
        return NGX_ERROR;
    }

    /* zk_lock_admin of a server or of http may be meant for other locations */

    if (conf->admin == 1 && clcf->name.len != 0
        && !ngx_http_zk_lock_serves_api(clcf))
    {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "location \"%V\": \"zk_lock_admin\" has no effect "
                           "without \"zk_lock_api\"", &clcf->name);
    }

    return NGX_OK;
}


/*
 * Sets the default, cut to max, or warns of a value above max.  Runs only where
 * locks are served, because otherwise an inherited default might cause the
 * warning.
 */

static void
ngx_http_zk_lock_merge_longest(ngx_conf_t *cf, const char *directive,
    ngx_msec_t *value, ngx_msec_t def, ngx_msec_t max)
{
    ngx_http_core_loc_conf_t  *clcf;

    if (*value == NGX_CONF_UNSET_MSEC) {
        *value = ngx_min(def, max);
        return;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (*value > max && !clcf->lmt_excpt) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "location \"%V\": \"zk_lock_%s\" is above "
                           "\"zk_lock_max_%s\", and is cut to it", &clcf->name,
                           directive, directive);
    }
}


/* Whether a location, or a location within, serves the API. */

static ngx_uint_t
ngx_http_zk_lock_serves_api(ngx_http_core_loc_conf_t *clcf)
{
    ngx_queue_t                *q;
    ngx_http_location_queue_t  *lq;

    if (clcf->handler == ngx_http_zk_lock_api_handler) {
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

        if (ngx_http_zk_lock_serves_api(lq->exact ? lq->exact : lq->inclusive))
        {
            return 1;
        }
    }

    return 0;
}


char *
ngx_http_zk_lock_check_least(ngx_conf_t *cf, void *post, void *data)
{
    ngx_uint_t                *value = data;
    ngx_http_zk_lock_least_t  *least = post;

    return (*value < least->least) ? least->takes : NGX_CONF_OK;
}


char *
ngx_http_zk_lock_servers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zk_lock_main_conf_t *zmcf = conf;

    u_char      *slash;
    ngx_str_t   *value, list;
    const char  *why;

    if (zmcf->servers.len != 0) {
        return "is duplicate";
    }

    if (cf->args->nelts > 2) {
        return "takes one word: there is no blank between the servers, nor "
               "behind a comma";
    }

    value = cf->args->elts;
    list = value[1];

    if (ngx_strstr(list.data, "://") != NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"zk_lock_servers\" takes \"host:port\" for each "
                           "server, not a URL such as \"%V\"", &list);
        return NGX_CONF_ERROR;
    }

    zmcf->servers = list;

    slash = ngx_strlchr(list.data, list.data + list.len, '/');

    if (slash != NULL) {
        zmcf->session.chroot.data = slash;
        zmcf->session.chroot.len = list.data + list.len - slash;

        list.len = slash - list.data;

        why = zkl_name_path_check((char *) zmcf->session.chroot.data,
                                  zmcf->session.chroot.len);
        if (why != NULL) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid chroot \"%V\" in \"zk_lock_servers\": "
                               "%s", &zmcf->session.chroot, why);
            return NGX_CONF_ERROR;
        }

        if (zmcf->session.chroot.len == 1) {
            zmcf->session.chroot.len = 0;
        }
    }

    return ngx_http_zk_lock_resolve(cf, zmcf, &list);
}


/*
 * libzookeeper gets numeric addresses only, because libzookeeper would resolve
 * names on the event loop, and hang or spin when that fails.
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


char *
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

    if (ngx_strncmp(value[2].data, "file=", 5) == 0) {
        value[2].data += 5;
        value[2].len -= 5;

        if (ngx_http_zk_lock_auth_file(cf, &value[2], &zmcf->session.auth)
            != NGX_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    /* ZooKeeper takes "digest" without a password, which protects nothing */

    if (ngx_strcmp(value[1].data, "digest") == 0
        && !ngx_http_zk_lock_auth_pair(&zmcf->session.auth))
    {
        return "takes USER:PASSWORD with the scheme \"digest\"";
    }

    return NGX_CONF_OK;
}


/* Whether there is text on both sides of the first colon. */

static ngx_uint_t
ngx_http_zk_lock_auth_pair(ngx_str_t *auth)
{
    u_char  *colon;

    colon = ngx_strlchr(auth->data, auth->data + auth->len, ':');

    return colon != NULL
           && colon != auth->data
           && colon != auth->data + auth->len - 1;
}


/* Reads the first line of a file; no log gets the text. */

static ngx_int_t
ngx_http_zk_lock_auth_file(ngx_conf_t *cf, ngx_str_t *path, ngx_str_t *auth)
{
    u_char      *p;
    ssize_t      n;
    ngx_file_t   file;

    if (ngx_conf_full_name(cf->cycle, path, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    auth->data = ngx_pnalloc(cf->pool, NGX_HTTP_ZK_LOCK_AUTH_MAX);
    if (auth->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&file, sizeof(ngx_file_t));

    file.name = *path;
    file.log = cf->log;
    file.fd = ngx_open_file(path->data, NGX_FILE_RDONLY, NGX_FILE_OPEN, 0);

    if (file.fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_open_file_n " \"%V\" failed", path);
        return NGX_ERROR;
    }

    n = ngx_read_file(&file, auth->data, NGX_HTTP_ZK_LOCK_AUTH_MAX, 0);

    if (ngx_close_file(file.fd) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_ALERT, cf, ngx_errno,
                           ngx_close_file_n " \"%V\" failed", path);
    }

    if (n == NGX_ERROR) {
        return NGX_ERROR;
    }

    p = ngx_strlchr(auth->data, auth->data + n, LF);

    auth->len = p ? (size_t) (p - auth->data) : (size_t) n;

    if (auth->len > 0 && auth->data[auth->len - 1] == CR) {
        auth->len--;
    }

    if (auth->len == 0 || auth->len == NGX_HTTP_ZK_LOCK_AUTH_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the first line of \"%V\" is no credentials: it is "
                           "empty, or too long", path);
        return NGX_ERROR;
    }

    return NGX_OK;
}


char *
ngx_http_zk_lock_ssl(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
#if (NGX_HTTP_ZK_LOCK_SSL)

    char       *rc;
    ngx_str_t  *path;

    path = (ngx_str_t *) ((u_char *) conf + cmd->offset);

    rc = ngx_conf_set_str_slot(cf, cmd, conf);
    if (rc != NGX_CONF_OK) {
        return rc;
    }

    if (path->len == 0 || ngx_strchr(path->data, ',') != NULL) {
        return "takes a path without a comma in it";
    }

    if (ngx_conf_full_name(cf->cycle, path, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;

#else

    return "needs a ZooKeeper client library that was built with TLS, which "
           "the one of this build was not";

#endif
}


char *
ngx_http_zk_lock_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    return ngx_http_zk_lock_answers(cf, conf, ngx_http_zk_lock_metrics_handler);
}


/*
 * Of two directives that answer a location's requests nginx takes the last.  A
 * directive that follows is found by ngx_http_zk_lock_check_location().
 */

static char *
ngx_http_zk_lock_answers(ngx_conf_t *cf, ngx_http_zk_lock_loc_conf_t *zlcf,
    ngx_http_handler_pt handler)
{
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    if (zlcf->handler == handler) {
        return "is duplicate";
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler != NULL) {
        return "does not go with another directive that answers requests, "
               "such as \"proxy_pass\"";
    }

    zmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_zk_lock_module);

    clcf->handler = handler;
    zlcf->handler = handler;

    zmcf->api = 1;

    return NGX_CONF_OK;
}


char *
ngx_http_zk_lock_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

#if (NGX_PCRE)

    if (clcf->regex) {
        return "takes a location that is a prefix, not a regular expression";
    }

#endif

    if (clcf->named || clcf->noname || clcf->exact_match) {
        return "takes a location that is a prefix";
    }

    if (clcf->name.len != 0 && clcf->name.data[clcf->name.len - 1] == '/') {
        clcf->auto_redirect = 1;

    } else {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "location \"%V\" with \"zk_lock_api\" has no slash "
                           "at its end: \"%V/\" is what it serves",
                           &clcf->name, &clcf->name);
    }

    return ngx_http_zk_lock_answers(cf, conf, ngx_http_zk_lock_api_handler);
}


char *
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

    why = zkl_name_path_check((char *) value[1].data, value[1].len);

    if (why != NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid \"zk_lock_root\" \"%V\": %s", &value[1],
                           why);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


ngx_int_t
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
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"zk_lock_api\" and \"zk_lock_metrics\" need "
                               "\"zk_lock_servers\"");
            return NGX_ERROR;
        }

        return NGX_OK;
    }

    /*
     * The zone finds a record by the path of a znode, so other servers need
     * another zone.  So do other credentials, because of the access rights.
     */

    ngx_md5_init(&md5);
    ngx_md5_update(&md5, zmcf->session.auth_scheme.data,
                   zmcf->session.auth_scheme.len);
    ngx_md5_update(&md5, ":", 1);
    ngx_md5_update(&md5, zmcf->session.auth.data, zmcf->session.auth.len);
    ngx_md5_update(&md5, zmcf->session.certificates.data,
                   zmcf->session.certificates.len);
    ngx_md5_final(hash, &md5);

    name.len = ngx_http_zk_lock_zone_name.len + zmcf->servers.len + 1 + 8;

    name.data = ngx_pnalloc(cf->pool, name.len);
    if (name.data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_sprintf(name.data, "%V%V ", &ngx_http_zk_lock_zone_name,
                    &zmcf->servers);
    (void) ngx_hex_dump(p, hash, 4);

    zmcf->shm_zone = ngx_shared_memory_add(cf, &name, zmcf->zone_size,
                                           &ngx_http_zk_lock_module);
    if (zmcf->shm_zone == NULL) {
        return NGX_ERROR;
    }

    zmcf->shm_zone->init = ngx_http_zk_lock_conf_zone_init;
    zmcf->shm_zone->data = cf->cycle;

    return NGX_OK;
}


/*
 * A worker inherits the zone's descriptors, so with a lower limit the worker
 * can open nothing.  The limit is known when the whole configuration is read.
 */

static ngx_int_t
ngx_http_zk_lock_conf_zone_init(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_int_t         least;
    ngx_cycle_t      *cycle;
    ngx_core_conf_t  *ccf;

    cycle = shm_zone->data;
    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);

    least = (ngx_int_t) zkl_layout_nslots() + NGX_HTTP_ZK_LOCK_DESCRIPTORS;

    if (ccf->master && ccf->rlimit_nofile != NGX_CONF_UNSET
        && ccf->rlimit_nofile < least)
    {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "\"worker_rlimit_nofile %i\" leaves a worker no "
                      "descriptors for connections: with \"zk_lock_servers\" "
                      "it takes at least %i, and one for each connection",
                      ccf->rlimit_nofile, least);
        return NGX_ERROR;
    }

    return zkl_zone_init(shm_zone, data);
}
