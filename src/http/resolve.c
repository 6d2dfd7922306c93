
/*
 * The names of ZooKeeper's servers.
 *
 * With "zk_lock_servers ... resolve" each worker asks nginx's resolver for the
 * addresses of each name, again and again: when the time of an answer is over,
 * or a second after an answer that is an error.  An error changes nothing: the
 * addresses that were known stay.  If the addresses of any name have changed,
 * the worker's sessions get the new list.
 *
 * The file owns the servers (zmcf->hosts) of a worker, and the list of all
 * addresses, zmcf->session.servers, from resolve_start() on.  The texts of new
 * addresses are in pools, one for each server and one for the list; the first
 * texts are in the pool of the configuration, and then the pool is NULL.  The
 * resolver is NULL without "resolve".
 *
 * The event loop runs all of this file but the functions that conf.c calls.
 * The timers and queries are cancelable, so they keep no worker from leaving;
 * a worker that stays for its clients goes on resolving.
 */


#include "http/resolve.h"


/* milliseconds until a query that failed is sent again */
#define NGX_HTTP_ZK_LOCK_RESOLVE_AGAIN  1000

/* the longest time between two questions, seconds */
#define NGX_HTTP_ZK_LOCK_RESOLVE_LATEST 3600


static void ngx_http_zk_lock_resolve_timer_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_resolve_handler(ngx_resolver_ctx_t *ctx);
static void ngx_http_zk_lock_resolve_failed(ngx_http_zk_lock_host_t *host,
    ngx_int_t state);
static ngx_int_t ngx_http_zk_lock_resolve_addrs(ngx_http_zk_lock_host_t *host,
    ngx_resolver_ctx_t *ctx);
static int ngx_libc_cdecl ngx_http_zk_lock_resolve_cmp(const void *one,
    const void *two);


/*
 * libzookeeper takes what is behind the last colon for the port, and does not
 * know brackets.
 */

ngx_int_t
ngx_http_zk_lock_resolve_addr(ngx_array_t *addrs, struct sockaddr *sockaddr,
    socklen_t socklen, in_port_t port)
{
    u_char     *p;
    ngx_str_t  *addr;

    addr = ngx_array_push(addrs);
    if (addr == NULL) {
        return NGX_ERROR;
    }

    p = ngx_pnalloc(addrs->pool, NGX_SOCKADDR_STRLEN + sizeof(":65535") - 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    addr->data = p;

    p += ngx_sock_ntop(sockaddr, socklen, p, NGX_SOCKADDR_STRLEN, 0);
    p = ngx_sprintf(p, ":%ui", (ngx_uint_t) port);

    addr->len = p - addr->data;

    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_resolve_join(ngx_array_t *texts, ngx_pool_t *pool,
    ngx_str_t *joined)
{
    size_t      len;
    u_char     *p;
    ngx_str_t  *text;
    ngx_uint_t  i;

    text = texts->elts;
    len = 0;

    for (i = 0; i < texts->nelts; i++) {
        len += text[i].len + 1;
    }

    p = ngx_pnalloc(pool, len + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    joined->data = p;

    for (i = 0; i < texts->nelts; i++) {

        if (i != 0) {
            *p++ = ',';
        }

        p = ngx_cpymem(p, text[i].data, text[i].len);
    }

    joined->len = p - joined->data;
    *p = '\0';

    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_resolve_servers(ngx_http_zk_lock_main_conf_t *zmcf,
    ngx_pool_t *pool, ngx_str_t *servers)
{
    ngx_str_t                *text;
    ngx_uint_t                i;
    ngx_array_t               texts;
    ngx_http_zk_lock_host_t  *host;

    if (ngx_array_init(&texts, pool, zmcf->hosts->nelts, sizeof(ngx_str_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    host = zmcf->hosts->elts;

    for (i = 0; i < zmcf->hosts->nelts; i++) {

        if (host[i].addrs.len == 0) {
            continue;
        }

        text = ngx_array_push(&texts);
        if (text == NULL) {
            return NGX_ERROR;
        }

        *text = host[i].addrs;
    }

    return ngx_http_zk_lock_resolve_join(&texts, pool, servers);
}


void
ngx_http_zk_lock_resolve_start(ngx_http_zk_lock_main_conf_t *zmcf,
    ngx_log_t *log)
{
    ngx_uint_t                i;
    ngx_http_zk_lock_host_t  *host;

    if (zmcf->resolver == NULL) {
        return;
    }

    zmcf->ident.fd = (ngx_socket_t) -1;

    host = zmcf->hosts->elts;

    for (i = 0; i < zmcf->hosts->nelts; i++) {

        if (host[i].name.len == 0) {
            continue;
        }

        host[i].timer.handler = ngx_http_zk_lock_resolve_timer_handler;
        host[i].timer.data = &zmcf->ident;
        host[i].timer.log = log;
        host[i].timer.cancelable = 1;

        ngx_add_timer(&host[i].timer, 1);
    }
}


void
ngx_http_zk_lock_resolve_stop(ngx_http_zk_lock_main_conf_t *zmcf)
{
    ngx_uint_t                i;
    ngx_http_zk_lock_host_t  *host;

    if (zmcf->resolver == NULL) {
        return;
    }

    host = zmcf->hosts->elts;

    for (i = 0; i < zmcf->hosts->nelts; i++) {

        if (host[i].timer.timer_set) {
            ngx_del_timer(&host[i].timer);
        }

        if (host[i].ctx != NULL) {
            ngx_resolve_name_done(host[i].ctx);
            host[i].ctx = NULL;
        }

        if (host[i].pool != NULL) {
            ngx_destroy_pool(host[i].pool);
            host[i].pool = NULL;
        }
    }

    if (zmcf->pool != NULL) {
        ngx_destroy_pool(zmcf->pool);
        zmcf->pool = NULL;
    }
}


static void
ngx_http_zk_lock_resolve_timer_handler(ngx_event_t *ev)
{
    ngx_resolver_ctx_t            *ctx;
    ngx_http_zk_lock_host_t       *host;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    host = ngx_queue_data(ev, ngx_http_zk_lock_host_t, timer);
    zmcf = host->zmcf;

    ctx = ngx_resolve_start(zmcf->resolver, NULL);

    if (ctx == NULL || ctx == NGX_NO_RESOLVER) {
        goto again;
    }

    ctx->name = host->name;
    ctx->handler = ngx_http_zk_lock_resolve_handler;
    ctx->data = host;
    ctx->timeout = zmcf->resolver_timeout;
    ctx->cancelable = 1;

    /* the handler may run, and free ctx, within the call */

    host->ctx = ctx;

    if (ngx_resolve_name(ctx) == NGX_OK) {
        return;
    }

    /* the resolver has freed ctx */

    host->ctx = NULL;

again:

    ngx_http_zk_lock_resolve_failed(host, NGX_ERROR);

    ngx_add_timer(&host->timer, NGX_HTTP_ZK_LOCK_RESOLVE_AGAIN);
}


static void
ngx_http_zk_lock_resolve_handler(ngx_resolver_ctx_t *ctx)
{
    time_t                    valid;
    ngx_msec_t                again;
    ngx_http_zk_lock_host_t  *host;

    host = ctx->data;
    again = NGX_HTTP_ZK_LOCK_RESOLVE_AGAIN;

    if (ctx->state || ctx->naddrs == 0) {
        ngx_http_zk_lock_resolve_failed(host, ctx->state ? ctx->state
                                                         : NGX_ERROR);

    } else if (ngx_http_zk_lock_resolve_addrs(host, ctx) == NGX_OK) {
        valid = ngx_min(ctx->valid - ngx_time(),
                        NGX_HTTP_ZK_LOCK_RESOLVE_LATEST);
        again = (valid > 1) ? (ngx_msec_t) valid * 1000 : 1000;
    }

    ngx_resolve_name_done(ctx);
    host->ctx = NULL;

    ngx_add_timer(&host->timer, again);
}


/* Logs a failure once, and not again until the answer is another one. */

static void
ngx_http_zk_lock_resolve_failed(ngx_http_zk_lock_host_t *host, ngx_int_t state)
{
    if (host->failed == state) {
        return;
    }

    host->failed = state;

    ngx_log_error(NGX_LOG_WARN, host->timer.log, 0,
                  "zookeeper server \"%V\" could not be resolved (%i: %s), %s",
                  &host->name, state,
                  state == NGX_ERROR ? "no query was sent"
                                     : ngx_resolver_strerror(state),
                  host->addrs.len ? "the last known addresses stay"
                                  : "no address is known");
}


/*
 * Takes over the addresses of an answer, and counts a change, which the
 * sessions of the worker see.  The addresses are in one order, because the
 * resolver changes the order.  NGX_ERROR: no memory.
 */

static ngx_int_t
ngx_http_zk_lock_resolve_addrs(ngx_http_zk_lock_host_t *host,
    ngx_resolver_ctx_t *ctx)
{
    ngx_log_t                     *log;
    ngx_str_t                      addrs, former, servers;
    ngx_uint_t                     i;
    ngx_pool_t                    *pool, *all;
    ngx_array_t                    texts;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    zmcf = host->zmcf;
    log = host->timer.log;
    all = NULL;

    pool = ngx_create_pool(NGX_MIN_POOL_SIZE, log);
    if (pool == NULL) {
        return NGX_ERROR;
    }

    if (ngx_array_init(&texts, pool, ctx->naddrs, sizeof(ngx_str_t)) != NGX_OK)
    {
        goto failed;
    }

    for (i = 0; i < ctx->naddrs; i++) {

        if (ngx_http_zk_lock_resolve_addr(&texts, ctx->addrs[i].sockaddr,
                                          ctx->addrs[i].socklen, host->port)
            != NGX_OK)
        {
            goto failed;
        }
    }

    ngx_qsort(texts.elts, texts.nelts, sizeof(ngx_str_t),
              ngx_http_zk_lock_resolve_cmp);

    if (ngx_http_zk_lock_resolve_join(&texts, pool, &addrs) != NGX_OK) {
        goto failed;
    }

    if (addrs.len == host->addrs.len
        && ngx_memcmp(addrs.data, host->addrs.data, addrs.len) == 0)
    {
        ngx_destroy_pool(pool);

        if (host->failed) {
            ngx_log_error(NGX_LOG_NOTICE, log, 0,
                          "zookeeper server \"%V\" is resolved again, the "
                          "addresses are the same", &host->name);
        }

        host->failed = 0;

        return NGX_OK;
    }

    former = host->addrs;
    host->addrs = addrs;

    all = ngx_create_pool(NGX_MIN_POOL_SIZE, log);

    if (all == NULL
        || ngx_http_zk_lock_resolve_servers(zmcf, all, &servers) != NGX_OK)
    {
        host->addrs = former;
        goto failed;
    }

    if (zmcf->pool != NULL) {
        ngx_destroy_pool(zmcf->pool);
    }

    zmcf->pool = all;
    zmcf->session.servers = servers;
    zmcf->session.changes++;

    ngx_log_error(NGX_LOG_NOTICE, log, 0,
                  "zookeeper server \"%V\" has the addresses \"%V\", "
                  "before: \"%V\"",
                  &host->name, &addrs, &former);

    host->failed = 0;

    if (host->pool != NULL) {
        ngx_destroy_pool(host->pool);
    }

    host->pool = pool;

    return NGX_OK;

failed:

    if (all != NULL) {
        ngx_destroy_pool(all);
    }

    ngx_destroy_pool(pool);

    return NGX_ERROR;
}


static int ngx_libc_cdecl
ngx_http_zk_lock_resolve_cmp(const void *one, const void *two)
{
    const ngx_str_t  *a = one;
    const ngx_str_t  *b = two;

    return (int) ngx_memn2cmp(a->data, b->data, a->len, b->len);
}
