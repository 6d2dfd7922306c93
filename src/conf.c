
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
#include "warn.h"


/* bytes of the first line of a file of credentials, with the newline */
#define NGX_HTTP_ZK_LOCK_AUTH_MAX     1024

/* how long ZooKeeper may be silent before a session asks, milliseconds */
#define NGX_HTTP_ZK_LOCK_PROBE        700

/* descriptors of a worker beside the zone's and the connections' */
#define NGX_HTTP_ZK_LOCK_DESCRIPTORS  32


/* Whether a resolver has a server; in Angie the servers are a list. */

#if (angie_version)
#define ngx_http_zk_lock_resolves(r)  ((r)->connections != NULL)
#else
#define ngx_http_zk_lock_resolves(r)  ((r)->connections.nelts != 0)
#endif


static ngx_int_t ngx_http_zk_lock_check_location(ngx_conf_t *cf,
    ngx_http_zk_lock_loc_conf_t *conf);
static void ngx_http_zk_lock_merge_rules(ngx_array_t **rules,
    ngx_array_t **inner, ngx_array_t *prev, ngx_array_t *prev_inner,
    ngx_uint_t inherits);
static void ngx_http_zk_lock_merge_longest(ngx_conf_t *cf,
    const char *directive, ngx_msec_t *value, ngx_msec_t def, ngx_msec_t max);
static ngx_int_t ngx_http_zk_lock_check_guards(ngx_conf_t *cf,
    ngx_http_zk_lock_loc_conf_t *conf);
static char *ngx_http_zk_lock_hosts(ngx_conf_t *cf,
    ngx_http_zk_lock_main_conf_t *zmcf, ngx_str_t *list);
static ngx_int_t ngx_http_zk_lock_host(ngx_conf_t *cf, ngx_str_t *text,
    ngx_http_zk_lock_host_t *host);
static void ngx_http_zk_lock_former_addrs(ngx_conf_t *cf,
    ngx_http_zk_lock_main_conf_t *zmcf);
static ngx_int_t ngx_http_zk_lock_init_resolver(ngx_conf_t *cf,
    ngx_http_zk_lock_main_conf_t *zmcf);
static ngx_int_t ngx_http_zk_lock_auth_file(ngx_conf_t *cf, ngx_str_t *path,
    ngx_str_t *auth);
static char *ngx_http_zk_lock_conf_log_buffer(ngx_conf_t *cf,
    ngx_http_zk_lock_log_t *log, size_t size, ngx_msec_t flush);
static char *ngx_http_zk_lock_answers(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_http_zk_lock_loc_conf_t *zlcf, ngx_http_handler_pt handler);
static ngx_uint_t ngx_http_zk_lock_page_path(ngx_str_t *path);
static ngx_int_t ngx_http_zk_lock_rule_parameter(ngx_conf_t *cf,
    ngx_http_zk_lock_guard_rule_t *rule, ngx_str_t *value, ngx_str_t *word,
    ngx_int_t *permits);
static void *ngx_http_zk_lock_rule_push(ngx_conf_t *cf, ngx_array_t **rules,
    size_t size);
static ngx_uint_t ngx_http_zk_lock_rule_has(ngx_str_t *value,
    const char *name, ngx_str_t *text);
static char *ngx_http_zk_lock_rule_mode(ngx_conf_t *cf,
    ngx_http_zk_lock_guard_rule_t *rule, ngx_str_t *word, ngx_int_t permits);
static ngx_http_complex_value_t *ngx_http_zk_lock_rule_value(ngx_conf_t *cf,
    ngx_str_t *value);
static ngx_int_t ngx_http_zk_lock_rule_invalid(ngx_conf_t *cf,
    ngx_str_t *value);
static ngx_int_t ngx_http_zk_lock_conf_phase(ngx_conf_t *cf, ngx_uint_t phase,
    ngx_http_handler_pt handler);
static ngx_int_t ngx_http_zk_lock_conf_zone_init(ngx_shm_zone_t *shm_zone,
    void *data);


static ngx_str_t  ngx_http_zk_lock_zone_name = ngx_string("zk_lock:");
static ngx_str_t  ngx_http_zk_lock_default_root = ngx_string("/locks");
static ngx_str_t  ngx_http_zk_lock_default_token =
    ngx_string("$http_lock_token");


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
     *     zmcf->session.changes = 0;
     *     zmcf->session.auth_scheme = { 0, NULL };
     *     zmcf->session.auth = { 0, NULL };
     *     zmcf->session.certificates = { 0, NULL };
     *     zmcf->session.probe = 0;
     *     zmcf->ssl_trusted_certificate = { 0, NULL };
     *     zmcf->ssl_certificate = { 0, NULL };
     *     zmcf->ssl_certificate_key = { 0, NULL };
     *     zmcf->servers = { 0, NULL };
     *     zmcf->hosts = NULL;
     *     zmcf->resolver = NULL;
     *     zmcf->pool = NULL;
     *     zmcf->resolve = 0;
     *     zmcf->log = NULL;
     *     zmcf->logs = 0;
     *     zmcf->shm_zone = NULL;
     *     zmcf->worker = NULL;
     *     zmcf->start = { 0 };
     *     zmcf->used = 0;
     *     zmcf->guards = 0;
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

    u_char     *p;
    ngx_str_t  *ca, *own, *key;

    ngx_conf_init_msec_value(zmcf->session.timeout, 10000);
    ngx_conf_init_size_value(zmcf->zone_size, 4 * 1024 * 1024);
    ngx_conf_init_value(zmcf->cache, 10000);

    /* libzookeeper takes three paths as one text, and TLS needs all three */

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

    /*
     * set by ngx_pcalloc():
     *
     *     zlcf->handler = NULL;
     *     zlcf->directive = NULL;
     *     zlcf->page = { 0, NULL };
     *     zlcf->guards = NULL;
     *     zlcf->requires = NULL;
     *     zlcf->inner_guards = NULL;
     *     zlcf->inner_requires = NULL;
     */

    zlcf->root = NGX_CONF_UNSET_PTR;
    zlcf->wait = NGX_CONF_UNSET_MSEC;
    zlcf->max_wait = NGX_CONF_UNSET_MSEC;
    zlcf->timeout = NGX_CONF_UNSET_MSEC;
    zlcf->ttl = NGX_CONF_UNSET_MSEC;
    zlcf->max_ttl = NGX_CONF_UNSET_MSEC;
    zlcf->grace = NGX_CONF_UNSET_MSEC;
    zlcf->max_queue = NGX_CONF_UNSET_UINT;
    zlcf->max_claims = NGX_CONF_UNSET_UINT;
    zlcf->quota = NGX_CONF_UNSET_PTR;
    zlcf->owner = NGX_CONF_UNSET_PTR;
    zlcf->origin = NGX_CONF_UNSET_PTR;
    zlcf->durable = NGX_CONF_UNSET;
    zlcf->admin = NGX_CONF_UNSET;
    zlcf->layout = NGX_CONF_UNSET_UINT;
    zlcf->status = NGX_CONF_UNSET_UINT;
    zlcf->unreachable = NGX_CONF_UNSET_UINT;
    zlcf->lost = NGX_CONF_UNSET_UINT;
    zlcf->body = NGX_CONF_UNSET;

    return zlcf;
}


char *
ngx_http_zk_lock_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_zk_lock_loc_conf_t *prev = parent;
    ngx_http_zk_lock_loc_conf_t *conf = child;

    ngx_uint_t                 own;
    ngx_http_core_loc_conf_t  *clcf;

    own = (conf->requires != NULL);

    /* nginx does not pass the handler on to limit_except, nor to an "if" */

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if ((clcf->lmt_excpt || clcf->noname) && clcf->handler == NULL) {
        conf->handler = prev->handler;
        conf->directive = prev->directive;
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
    ngx_conf_merge_uint_value(conf->max_claims, prev->max_claims, 0);
    ngx_conf_merge_ptr_value(conf->quota, prev->quota, NULL);
    ngx_conf_merge_ptr_value(conf->owner, prev->owner, NULL);
    ngx_conf_merge_ptr_value(conf->origin, prev->origin, NULL);

    ngx_conf_merge_str_value(conf->page, prev->page, "");

    ngx_http_zk_lock_merge_rules(&conf->guards, &conf->inner_guards,
                                 prev->guards, prev->inner_guards,
                                 conf->handler == NULL);
    ngx_http_zk_lock_merge_rules(&conf->requires, &conf->inner_requires,
                                 prev->requires, prev->inner_requires,
                                 conf->handler == NULL);

    if (conf->handler == ngx_http_zk_lock_api_handler || conf->guards != NULL)
    {
        ngx_http_zk_lock_merge_longest(cf, "wait", &conf->wait, 30000,
                                       conf->max_wait);
        ngx_http_zk_lock_merge_longest(cf, "ttl", &conf->ttl, 60000,
                                       conf->max_ttl);
    }

    ngx_conf_merge_value(conf->durable, prev->durable, 0);
    ngx_conf_merge_value(conf->admin, prev->admin, 0);
    ngx_conf_merge_uint_value(conf->layout, prev->layout,
                              NGX_HTTP_ZK_LOCK_LAYOUT_QUEUE);
    ngx_conf_merge_uint_value(conf->status, prev->status,
                              NGX_HTTP_ZK_LOCK_STATUS_LOCKED);
    ngx_conf_merge_uint_value(conf->unreachable, prev->unreachable,
                              NGX_HTTP_ZK_LOCK_UNREACHABLE_REFUSE);
    ngx_conf_merge_uint_value(conf->lost, prev->lost,
                              NGX_HTTP_ZK_LOCK_LOST_ABORT);
    ngx_conf_merge_value(conf->body, prev->body, 1);

    if (ngx_http_zk_lock_check_guards(cf, conf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    ngx_http_zk_lock_warn(cf, conf, own);

    return NGX_CONF_OK;
}


/*
 * A location that the module answers inherits no rules, but the locations
 * within do.
 */

static void
ngx_http_zk_lock_merge_rules(ngx_array_t **rules, ngx_array_t **inner,
    ngx_array_t *prev, ngx_array_t *prev_inner, ngx_uint_t inherits)
{
    *inner = *rules;

    if (*inner == NULL) {

        /* the http block, which is not merged, has no prev_inner */

        *inner = prev_inner ? prev_inner : prev;
    }

    if (inherits) {
        *rules = *inner;
    }
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
                           "location \"%V\": \"%V\" does not go with another "
                           "directive that answers requests, such as "
                           "\"proxy_pass\"", &clcf->name, conf->directive);
        return NGX_ERROR;
    }

    if (conf->handler == ngx_http_zk_lock_api_handler && !clcf->noname
        && clcf->post_action.data != NULL)
    {

        /* a lock that a connection holds would stay held during the action */

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"post_action\" does not go with "
                           "\"zk_lock_api\"");
        return NGX_ERROR;
    }

    if (conf->handler != NULL
        && (conf->guards != NULL || conf->requires != NULL))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "location \"%V\": \"%s\" does not go with \"%V\"",
                           &clcf->name, conf->guards ? "zk_lock"
                                                     : "zk_lock_require",
                           conf->directive);
        return NGX_ERROR;
    }

    /* zk_lock_admin of a server or of http may be meant for other locations */

    if (conf->admin == 1 && clcf->name.len != 0
        && !ngx_http_zk_lock_warn_serves(clcf))
    {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "location \"%V\": \"zk_lock_admin\" has no effect "
                           "without \"zk_lock_api\" or \"zk_lock_health\"",
                           &clcf->name);
    }

    return NGX_OK;
}


/* Checks the rules of the location against the merged directives. */

static ngx_int_t
ngx_http_zk_lock_check_guards(ngx_conf_t *cf,
    ngx_http_zk_lock_loc_conf_t *conf)
{
    ngx_uint_t                      i;
    ngx_http_core_loc_conf_t       *clcf;
    ngx_http_zk_lock_guard_rule_t  *rule;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if ((conf->guards != NULL || conf->requires != NULL)
        && clcf->post_action.data != NULL)
    {
        /* the request does not end before the action */

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"post_action\" does not go with \"zk_lock\" and "
                           "\"zk_lock_require\"");
        return NGX_ERROR;
    }

    /* of an "if" the location was checked, or is answered by the module */

    rule = (conf->guards && !clcf->noname) ? conf->guards->elts : NULL;

    for (i = 0; rule != NULL && i < conf->guards->nelts; i++) {

        if (conf->layout == NGX_HTTP_ZK_LOCK_LAYOUT_NODE
            && rule[i].mode != ZKL_MUTEX)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "location \"%V\": \"zk_lock_layout node\" takes "
                               "\"zk_lock\" with \"mode=exclusive\" only",
                               &clcf->name);
            return NGX_ERROR;
        }

        if (rule[i].wait != NGX_CONF_UNSET_MSEC
            && rule[i].wait > conf->max_wait)
        {
            ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                               "location \"%V\": \"wait\" of \"zk_lock\" is "
                               "above \"zk_lock_max_wait\", and is cut to it",
                               &clcf->name);
        }
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

    if (*value > max && !clcf->lmt_excpt && !clcf->noname) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "location \"%V\": \"zk_lock_%s\" is above "
                           "\"zk_lock_max_%s\", and is cut to it", &clcf->name,
                           directive, directive);
    }
}


char *
ngx_http_zk_lock_check_least(ngx_conf_t *cf, void *post, void *data)
{
    ngx_uint_t                *value = data;
    ngx_http_zk_lock_least_t  *least = post;

    return (*value < least->least) ? least->takes : NGX_CONF_OK;
}


char *
ngx_http_zk_lock_check_status(ngx_conf_t *cf, void *post, void *data)
{
    ngx_int_t *status = data;

    if (*status < 400 || *status > 599) {
        return "takes a status between 400 and 599";
    }

    /* ngx_http_finalize_request() sends no answer with these */

    if (*status == NGX_HTTP_REQUEST_TIME_OUT
        || *status == NGX_HTTP_CLIENT_CLOSED_REQUEST)
    {
        return "does not take 408 and 499, with which nginx closes the "
               "connection";
    }

    return NGX_CONF_OK;
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

    value = cf->args->elts;
    list = value[1];

    if (cf->args->nelts == 3 && ngx_strcmp(value[2].data, "resolve") == 0) {
        zmcf->resolve = 1;

    } else if (cf->args->nelts > 2) {
        return "takes one word, and \"resolve\" behind it: there is no blank "
               "between the servers, nor behind a comma";
    }

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

    return ngx_http_zk_lock_hosts(cf, zmcf, &list);
}


/*
 * libzookeeper gets numeric addresses only, because libzookeeper would resolve
 * names on the event loop, and hang or spin when that fails.
 */

static char *
ngx_http_zk_lock_hosts(ngx_conf_t *cf, ngx_http_zk_lock_main_conf_t *zmcf,
    ngx_str_t *list)
{
    u_char                   *p, *last, *comma;
    ngx_str_t                 text;
    ngx_uint_t                unknown;
    ngx_http_zk_lock_host_t  *host;

    zmcf->hosts = ngx_array_create(cf->pool, 4,
                                   sizeof(ngx_http_zk_lock_host_t));
    if (zmcf->hosts == NULL) {
        return NGX_CONF_ERROR;
    }

    unknown = 0;
    last = list->data + list->len;

    for (p = list->data; p <= last; p = comma + 1) {
        comma = ngx_strlchr(p, last, ',');
        comma = comma ? comma : last;

        text.data = p;
        text.len = comma - p;

        host = ngx_array_push(zmcf->hosts);
        if (host == NULL) {
            return NGX_CONF_ERROR;
        }

        ngx_memzero(host, sizeof(ngx_http_zk_lock_host_t));
        host->zmcf = zmcf;

        if (ngx_http_zk_lock_host(cf, &text, host) != NGX_OK) {
            return NGX_CONF_ERROR;
        }

        unknown |= (host->addrs.len == 0);
    }

    if (ngx_http_zk_lock_resolve_servers(zmcf, cf->pool,
                                         &zmcf->session.servers)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (unknown && !zmcf->resolve) {
        ngx_http_zk_lock_former_addrs(cf, zmcf);
    }

    return NGX_CONF_OK;
}


/*
 * Reads one server, and resolves a name.  A name without an address is no
 * error: nginx would not start while DNS is away.
 */

static ngx_int_t
ngx_http_zk_lock_host(ngx_conf_t *cf, ngx_str_t *text,
    ngx_http_zk_lock_host_t *host)
{
    ngx_url_t         u;
    ngx_uint_t        i;
    ngx_array_t       addrs;
    struct sockaddr  *sockaddr;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = *text;
    u.default_port = 2181;
    u.no_resolve = 1;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK
        || (u.naddrs == 0 && u.host.len == 0))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s in server \"%V\"",
                           u.err ? u.err : "no address", text);
        return NGX_ERROR;
    }

    if (u.naddrs == 0) {
        host->name = u.host;
        host->port = u.port;

        if (host->zmcf->resolve) {
            return NGX_OK;
        }

        if (ngx_inet_resolve_host(cf->pool, &u) != NGX_OK) {

            if (u.err == NULL) {
                return NGX_ERROR;
            }

            ngx_conf_log_error(NGX_LOG_WARN, cf, 0, "%s in server \"%V\", "
                               "which is left out until the next reload, "
                               "because \"zk_lock_servers\" has no \"resolve\"",
                               u.err, text);
            return NGX_OK;
        }
    }

    if (ngx_array_init(&addrs, cf->pool, u.naddrs, sizeof(ngx_str_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < u.naddrs; i++) {
        sockaddr = u.addrs[i].sockaddr;

        if (sockaddr->sa_family != AF_INET && sockaddr->sa_family != AF_INET6)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" is no address of a ZooKeeper server",
                               text);
            return NGX_ERROR;
        }

        if (ngx_http_zk_lock_resolve_addr(&addrs, sockaddr, u.addrs[i].socklen,
                                          ngx_inet_get_port(sockaddr))
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return ngx_http_zk_lock_resolve_join(&addrs, cf->pool, &host->addrs);
}


/*
 * A name does not resolve at a reload: if the servers are those of before, the
 * addresses of before stay, because a reload while DNS is away must not take
 * ZooKeeper from workers that have it.
 */

static void
ngx_http_zk_lock_former_addrs(ngx_conf_t *cf,
    ngx_http_zk_lock_main_conf_t *zmcf)
{
    u_char                        *p;
    ngx_http_zk_lock_main_conf_t  *old;

    old = ngx_http_zk_lock_cycle_conf(cf->cycle->old_cycle);

    if (old == NULL || old->session.servers.len == 0
        || old->servers.len != zmcf->servers.len
        || ngx_memcmp(old->servers.data, zmcf->servers.data,
                      zmcf->servers.len) != 0)
    {
        return;
    }

    p = ngx_pnalloc(cf->pool, old->session.servers.len + 1);
    if (p == NULL) {
        return;
    }

    zmcf->session.servers.data = p;
    zmcf->session.servers.len = old->session.servers.len;

    ngx_memcpy(p, old->session.servers.data, old->session.servers.len + 1);

    ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                       "the addresses from before the reload stay: \"%V\"",
                       &zmcf->session.servers);
}


char *
ngx_http_zk_lock_auth(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zk_lock_main_conf_t *zmcf = conf;

    u_char     *colon;
    ngx_str_t  *value, *auth;

    if (zmcf->session.auth_scheme.len != 0) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (value[1].len == 0) {
        return "takes a scheme and credentials";
    }

    auth = &zmcf->session.auth;
    *auth = value[2];
    zmcf->session.auth_scheme = value[1];

    if (ngx_strncmp(value[2].data, "file=", 5) == 0) {
        value[2].data += 5;
        value[2].len -= 5;

        if (ngx_http_zk_lock_auth_file(cf, &value[2], auth) != NGX_OK) {
            return NGX_CONF_ERROR;
        }
    }

    /* ZooKeeper takes "digest" without a password, which protects nothing */

    colon = ngx_strlchr(auth->data, auth->data + auth->len, ':');

    if (ngx_strcmp(value[1].data, "digest") == 0
        && (colon == NULL || colon == auth->data
            || colon == auth->data + auth->len - 1))
    {
        return "takes USER:PASSWORD with the scheme \"digest\"";
    }

    return NGX_CONF_OK;
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
    return ngx_http_zk_lock_answers(cf, cmd, conf,
                                    ngx_http_zk_lock_metrics_handler);
}


char *
ngx_http_zk_lock_health(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    return ngx_http_zk_lock_answers(cf, cmd, conf,
                                    ngx_http_zk_lock_health_handler);
}


char *
ngx_http_zk_lock_conf_max_claims(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_zk_lock_loc_conf_t *zlcf = conf;

    ngx_int_t   n;
    ngx_str_t  *value, key;

    if (zlcf->quota != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0 && cf->args->nelts == 2) {
        zlcf->quota = NULL;
        return NGX_CONF_OK;
    }

    n = ngx_atoi(value[1].data, value[1].len);

    if (n < 1) {
        return "takes a number above zero, or \"off\"";
    }

    if (cf->args->nelts == 3) {
        key = value[2];

    } else {
        ngx_str_set(&key, "$remote_addr");
    }

    zlcf->max_claims = n;
    zlcf->quota = ngx_http_zk_lock_rule_value(cf, &key);

    return zlcf->quota ? NGX_CONF_OK : NGX_CONF_ERROR;
}


char *
ngx_http_zk_lock_conf_text(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                  *value;
    ngx_http_complex_value_t  **text;

    text = (ngx_http_complex_value_t **) ((u_char *) conf + cmd->offset);

    if (*text != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        *text = NULL;
        return NGX_CONF_OK;
    }

    *text = ngx_http_zk_lock_rule_value(cf, &value[1]);

    return *text ? NGX_CONF_OK : NGX_CONF_ERROR;
}


char *
ngx_http_zk_lock_conf_origin(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zk_lock_loc_conf_t *zlcf = conf;

    char       *rc, *host;
    ngx_str_t  *value;

    rc = ngx_http_zk_lock_conf_text(cf, cmd, conf);

    if (rc != NGX_CONF_OK || zlcf->origin == NULL
        || zlcf->origin->lengths != NULL)
    {
        return rc;
    }

    value = cf->args->elts;
    host = ngx_strstr(value[1].data, "://");

    if (host == NULL || host[3] == '\0' || ngx_strchr(host + 3, '/') != NULL) {
        return "takes an origin as a browser sends it, such as "
               "\"https://app.example.com\", or a variable, or \"off\"";
    }

    return NGX_CONF_OK;
}


char *
ngx_http_zk_lock_conf_log(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zk_lock_main_conf_t *zmcf = conf;

    ssize_t                  size;
    ngx_int_t                flush;
    ngx_str_t               *value, name, text;
    ngx_uint_t               i;
    ngx_http_zk_lock_log_t  *log;

    if (zmcf->logs) {
        return "is duplicate";
    }

    zmcf->logs = 1;
    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0 && cf->args->nelts == 2) {
        return NGX_CONF_OK;
    }

    if (ngx_strncmp(value[1].data, "syslog:", 7) == 0
        || ngx_strcmp(value[1].data, "stderr") == 0
        || ngx_strchr(value[1].data, '$') != NULL)
    {
        return "takes the path of a file, without variables";
    }

    size = 0;
    flush = 0;

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_http_zk_lock_rule_has(&value[i], "buffer=", &text)) {
            size = ngx_parse_size(&text);

            if (size < NGX_HTTP_ZK_LOCK_LOG_LEAST) {
                return "takes a \"buffer\" of at least 16k";
            }

        } else if (ngx_http_zk_lock_rule_has(&value[i], "flush=", &text)) {
            flush = ngx_parse_time(&text, 0);

            if (flush <= 0) {
                return "takes a \"flush\" above zero";
            }

        } else {
            return "takes a path, \"buffer=\" and \"flush=\"";
        }
    }

    if (flush != 0 && size == 0) {
        return "takes \"flush\" with \"buffer\" only";
    }

    log = ngx_pcalloc(cf->pool, sizeof(ngx_http_zk_lock_log_t));
    if (log == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_str_set(&name, "request_id");

    log->request = ngx_http_get_variable_index(cf, &name);
    log->file = ngx_conf_open_file(cf->cycle, &value[1]);

    if (log->request == NGX_ERROR || log->file == NULL) {
        return NGX_CONF_ERROR;
    }

    if (log->file->flush != NULL || log->file->name.len == 0) {
        return "takes a file that no other log has";
    }

    zmcf->log = log;

    return ngx_http_zk_lock_conf_log_buffer(cf, log, size, flush);
}


static char *
ngx_http_zk_lock_conf_log_buffer(ngx_conf_t *cf, ngx_http_zk_lock_log_t *log,
    size_t size, ngx_msec_t flush)
{
    ngx_event_t                 *event;
    ngx_http_zk_lock_log_buf_t  *buffer;

    buffer = ngx_pcalloc(cf->pool, sizeof(ngx_http_zk_lock_log_buf_t));
    if (buffer == NULL) {
        return NGX_CONF_ERROR;
    }

    buffer->keeps = (size != 0);

    if (size == 0) {
        size = NGX_HTTP_ZK_LOCK_LOG_LEAST;
    }

    buffer->start = ngx_pnalloc(cf->pool, size);
    if (buffer->start == NULL) {
        return NGX_CONF_ERROR;
    }

    buffer->pos = buffer->start;
    buffer->last = buffer->start + size;

    if (flush != 0) {
        event = ngx_pcalloc(cf->pool, sizeof(ngx_event_t));
        if (event == NULL) {
            return NGX_CONF_ERROR;
        }

        event->data = log->file;
        event->handler = ngx_http_zk_lock_log_flush_handler;
        event->log = &cf->cycle->new_log;
        event->cancelable = 1;

        buffer->event = event;
        buffer->flush = flush;
    }

    log->buffer = buffer;

    if (buffer->keeps) {
        log->file->data = buffer;
    }

    log->file->flush = ngx_http_zk_lock_log_reopen;

    return NGX_CONF_OK;
}


/*
 * Of two directives that answer a location's requests nginx takes the last.  A
 * directive that follows is found by ngx_http_zk_lock_check_location().
 */

static char *
ngx_http_zk_lock_answers(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_http_zk_lock_loc_conf_t *zlcf, ngx_http_handler_pt handler)
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
    zlcf->directive = &cmd->name;
    zmcf->used = 1;

    /* an outage shows soon, even if no request comes for a lock */

    if (handler == ngx_http_zk_lock_metrics_handler
        || handler == ngx_http_zk_lock_health_handler)
    {
        zmcf->session.probe = NGX_HTTP_ZK_LOCK_PROBE;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_zk_lock_page(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zk_lock_loc_conf_t *zlcf = conf;

    ngx_str_t   *value, health;
    ngx_uint_t   i, admin;

    value = cf->args->elts;
    admin = 0;
    ngx_str_null(&health);

    if (!ngx_http_zk_lock_page_path(&value[1])
        || value[1].data[value[1].len - 1] != '/')
    {
        return "takes the path of a location with \"zk_lock_api\", which "
               "begins and ends in a slash";
    }

    /* each parameter is given once at most */

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_strcmp(value[i].data, "admin") == 0 && !admin) {
            admin = 1;

        } else if (health.len != 0
                   || !ngx_http_zk_lock_rule_has(&value[i], "health=", &health)
                   || !ngx_http_zk_lock_page_path(&health))
        {
            (void) ngx_http_zk_lock_rule_invalid(cf, &value[i]);
            return NGX_CONF_ERROR;
        }
    }

    if (ngx_http_zk_lock_page_make(cf->pool, &zlcf->page, &value[1], &health,
                                   admin)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return ngx_http_zk_lock_answers(cf, cmd, zlcf,
                                    ngx_http_zk_lock_page_handler);
}


/* A path with two slashes in front would be the address of another host. */

static ngx_uint_t
ngx_http_zk_lock_page_path(ngx_str_t *path)
{
    return path->len != 0 && path->data[0] == '/'
           && !(path->len > 1 && path->data[1] == '/');
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

    return ngx_http_zk_lock_answers(cf, cmd, conf,
                                    ngx_http_zk_lock_api_handler);
}


char *
ngx_http_zk_lock_rule(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zk_lock_loc_conf_t *zlcf = conf;

    ngx_int_t                       permits;
    ngx_str_t                      *value, word;
    ngx_uint_t                      i;
    ngx_http_zk_lock_main_conf_t   *zmcf;
    ngx_http_zk_lock_guard_rule_t  *rule, *first;

    rule = ngx_http_zk_lock_rule_push(cf, &zlcf->guards,
                                      sizeof(ngx_http_zk_lock_guard_rule_t));
    if (rule == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    rule->name = ngx_http_zk_lock_rule_value(cf, &value[1]);
    if (rule->name == NULL) {
        return NGX_CONF_ERROR;
    }

    first = zlcf->guards->elts;

    for (i = 0; &first[i] != rule; i++) {
        if (value[1].len != 0 && first[i].name->value.len == value[1].len
            && ngx_strncmp(first[i].name->value.data, value[1].data,
                           value[1].len)
               == 0)
        {
            return "asks for the same lock twice";
        }
    }

    rule->wait = NGX_CONF_UNSET_MSEC;

    ngx_str_set(&word, "exclusive");
    permits = 0;

    for (i = 2; i < cf->args->nelts; i++) {
        if (ngx_http_zk_lock_rule_parameter(cf, rule, &value[i], &word,
                                            &permits)
            != NGX_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    zmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_zk_lock_module);

    zmcf->used = 1;
    zmcf->guards = 1;

    return ngx_http_zk_lock_rule_mode(cf, rule, &word, permits);
}


static ngx_int_t
ngx_http_zk_lock_rule_parameter(ngx_conf_t *cf,
    ngx_http_zk_lock_guard_rule_t *rule, ngx_str_t *value, ngx_str_t *word,
    ngx_int_t *permits)
{
    ngx_str_t  text;

    if (ngx_http_zk_lock_rule_has(value, "mode=", word)) {
        return NGX_OK;
    }

    if (ngx_http_zk_lock_rule_has(value, "owner=", &text)) {
        rule->owner = ngx_http_zk_lock_rule_value(cf, &text);

        return rule->owner ? NGX_OK : NGX_ERROR;
    }

    if (ngx_http_zk_lock_rule_has(value, "permits=", &text)) {
        *permits = ngx_atoi(text.data, text.len);

        if (*permits >= 1 && *permits <= ZKL_PERMITS_MAX) {
            return NGX_OK;
        }

    } else if (ngx_http_zk_lock_rule_has(value, "wait=", &text)) {
        rule->wait = ngx_parse_time(&text, 0);

        if (rule->wait != (ngx_msec_t) NGX_ERROR) {
            return NGX_OK;
        }
    }

    return ngx_http_zk_lock_rule_invalid(cf, value);
}


static char *
ngx_http_zk_lock_rule_mode(ngx_conf_t *cf, ngx_http_zk_lock_guard_rule_t *rule,
    ngx_str_t *word, ngx_int_t permits)
{
    if (ngx_strcmp(word->data, "semaphore") == 0) {

        if (permits == 0) {
            return "with \"mode=semaphore\" takes \"permits\", the number of "
                   "requests that may hold the lock at the same time";
        }

        rule->mode = zkl_semaphore(permits);

        return NGX_CONF_OK;
    }

    if (permits != 0) {
        return "takes \"permits\" with \"mode=semaphore\" only";
    }

    if (ngx_strcmp(word->data, "exclusive") == 0) {
        rule->mode = ZKL_MUTEX;

    } else if (ngx_strcmp(word->data, "shared") == 0) {
        rule->mode = ZKL_READ;

    } else if (ngx_strcmp(word->data, "write") == 0) {
        rule->mode = ZKL_WRITE;

    } else {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"mode\" takes \"exclusive\", \"shared\", "
                           "\"write\" or \"semaphore\", not \"%V\"", word);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_zk_lock_require_rule(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_zk_lock_loc_conf_t *zlcf = conf;

    ngx_str_t                        *value, token, fencing, id;
    ngx_uint_t                        i;
    ngx_http_zk_lock_main_conf_t     *zmcf;
    ngx_http_zk_lock_require_rule_t  *rule;

    rule = ngx_http_zk_lock_rule_push(cf, &zlcf->requires,
                                      sizeof(ngx_http_zk_lock_require_rule_t));
    if (rule == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    token = ngx_http_zk_lock_default_token;

    /* a fencing token is no secret, and an ID is Terraform's */

    ngx_str_set(&fencing, "");
    ngx_str_set(&id, "");

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_http_zk_lock_rule_has(&value[i], "token=", &token)
            || ngx_http_zk_lock_rule_has(&value[i], "fencing=", &fencing)
            || ngx_http_zk_lock_rule_has(&value[i], "id=", &id)
            || ngx_strcmp(value[i].data, "mode=exclusive") == 0
            || ngx_strcmp(value[i].data, "lost=continue") == 0)
        {
            continue;
        }

        if (ngx_strcmp(value[i].data, "if_held") == 0) {
            rule->if_held = 1;

        } else if (ngx_strcmp(value[i].data, "mode=shared") == 0) {
            rule->shared = 1;

        } else if (ngx_strcmp(value[i].data, "lost=abort") == 0) {
            rule->abort = 1;

        } else {
            (void) ngx_http_zk_lock_rule_invalid(cf, &value[i]);
            return NGX_CONF_ERROR;
        }
    }

    rule->name = ngx_http_zk_lock_rule_value(cf, &value[1]);
    rule->token = ngx_http_zk_lock_rule_value(cf, &token);
    rule->fencing = ngx_http_zk_lock_rule_value(cf, &fencing);
    rule->id = ngx_http_zk_lock_rule_value(cf, &id);

    if (rule->name == NULL || rule->token == NULL || rule->fencing == NULL
        || rule->id == NULL)
    {
        return NGX_CONF_ERROR;
    }

    zmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_zk_lock_module);

    zmcf->used = 1;
    zmcf->guards = 1;

    return NGX_CONF_OK;
}


/* Adds a zeroed rule to the array, which is made at the first rule. */

static void *
ngx_http_zk_lock_rule_push(ngx_conf_t *cf, ngx_array_t **rules, size_t size)
{
    void  *rule;

    if (*rules == NULL) {
        *rules = ngx_array_create(cf->pool, 2, size);
        if (*rules == NULL) {
            return NULL;
        }
    }

    rule = ngx_array_push(*rules);

    if (rule != NULL) {
        ngx_memzero(rule, size);
    }

    return rule;
}


/* Whether value begins with the name of a parameter; text is what follows. */

static ngx_uint_t
ngx_http_zk_lock_rule_has(ngx_str_t *value, const char *name, ngx_str_t *text)
{
    size_t  len;

    len = ngx_strlen(name);

    if (ngx_strncmp(value->data, name, len) != 0) {
        return 0;
    }

    text->data = value->data + len;
    text->len = value->len - len;

    return 1;
}


static ngx_http_complex_value_t *
ngx_http_zk_lock_rule_value(ngx_conf_t *cf, ngx_str_t *value)
{
    ngx_http_complex_value_t          *cv;
    ngx_http_compile_complex_value_t   ccv;

    cv = ngx_pcalloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (cv == NULL) {
        return NULL;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = value;
    ccv.complex_value = cv;

    return (ngx_http_compile_complex_value(&ccv) == NGX_OK) ? cv : NULL;
}


static ngx_int_t
ngx_http_zk_lock_rule_invalid(ngx_conf_t *cf, ngx_str_t *value)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"",
                       value);

    return NGX_ERROR;
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


ngx_http_zk_lock_main_conf_t *
ngx_http_zk_lock_cycle_conf(ngx_cycle_t *cycle)
{
    ngx_uint_t  i;

    if (cycle == NULL || cycle->conf_ctx == NULL || cycle->modules == NULL) {
        return NULL;
    }

    /* the cycle before a reload may lack this module, or have another copy */

    for (i = 0; cycle->modules[i]; i++) {
        if (cycle->modules[i] == &ngx_http_zk_lock_module) {
            return ngx_http_cycle_get_module_main_conf(cycle,
                                                     ngx_http_zk_lock_module);
        }
    }

    return NULL;
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

    if (zmcf->log != NULL) {
        ngx_http_zk_lock_log_create(zmcf->log->file);
    }

    if (zmcf->servers.len == 0) {

        if (zmcf->used) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"zk_lock_api\", \"zk_lock_metrics\", "
                               "\"zk_lock_health\", \"zk_lock_page\", "
                               "\"zk_lock\" and \"zk_lock_require\" need "
                               "\"zk_lock_servers\"");
            return NGX_ERROR;
        }

        return NGX_OK;
    }

    if (zmcf->resolve && ngx_http_zk_lock_init_resolver(cf, zmcf) != NGX_OK) {
        return NGX_ERROR;
    }

    if (zmcf->used
        && ngx_http_zk_lock_conf_phase(cf, NGX_HTTP_LOG_PHASE,
                                       ngx_http_zk_lock_metrics_count)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (zmcf->guards
        && ngx_http_zk_lock_conf_phase(cf, NGX_HTTP_PRECONTENT_PHASE,
                                       ngx_http_zk_lock_guard_handler)
           != NGX_OK)
    {
        return NGX_ERROR;
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


/* nginx makes a resolver without servers where the configuration has none. */

static ngx_int_t
ngx_http_zk_lock_init_resolver(ngx_conf_t *cf,
    ngx_http_zk_lock_main_conf_t *zmcf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->resolver == NULL || !ngx_http_zk_lock_resolves(clcf->resolver)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"resolve\" of \"zk_lock_servers\" needs the "
                           "directive \"resolver\" in the http block");
        return NGX_ERROR;
    }

    zmcf->resolver = clcf->resolver;
    zmcf->resolver_timeout = clcf->resolver_timeout;

    if (zmcf->resolver_timeout == NGX_CONF_UNSET_MSEC) {
        zmcf->resolver_timeout = 30000;
    }

    return NGX_OK;
}


/*
 * nginx runs the handlers of a phase in the reverse order, so the guards' runs
 * ahead of those of mirror and try_files, whose modules come first.
 */

static ngx_int_t
ngx_http_zk_lock_conf_phase(ngx_conf_t *cf, ngx_uint_t phase,
    ngx_http_handler_pt handler)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[phase].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = handler;

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
