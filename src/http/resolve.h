
/*
 * The names of ZooKeeper's servers: how the addresses are written, and how a
 * worker follows names whose addresses change.
 */


#ifndef _NGX_HTTP_ZK_LOCK_RESOLVE_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_RESOLVE_H_INCLUDED_


#include "http/request.h"


/* a server of zk_lock_servers */

typedef struct {
    ngx_http_zk_lock_main_conf_t      *zmcf;
    ngx_str_t                          name;        /* "": the server has an
                                                       address, and no name */
    in_port_t                          port;
    ngx_str_t                          addrs;       /* "address:port,..."; "":
                                                       none is known */
    ngx_pool_t                        *pool;        /* of addrs; NULL: of the
                                                       configuration */
    ngx_event_t                        timer;       /* the next query */
    ngx_resolver_ctx_t                *ctx;         /* the query, or NULL */
    ngx_int_t                          failed;      /* the last answer; 0: the
                                                       answer was addresses */
} ngx_http_zk_lock_host_t;


/*
 * Adds an address, as libzookeeper reads addresses, to an array of ngx_str_t.
 * The text is in the array's pool.  Returns NGX_OK or NGX_ERROR.
 */
ngx_int_t ngx_http_zk_lock_resolve_addr(ngx_array_t *addrs,
    struct sockaddr *sockaddr, socklen_t socklen, in_port_t port);

/* Joins the texts of an array by commas, with a NUL.  NGX_OK or NGX_ERROR. */
ngx_int_t ngx_http_zk_lock_resolve_join(ngx_array_t *texts, ngx_pool_t *pool,
    ngx_str_t *joined);

/* Joins the addresses of all servers. */
ngx_int_t ngx_http_zk_lock_resolve_servers(ngx_http_zk_lock_main_conf_t *zmcf,
    ngx_pool_t *pool, ngx_str_t *servers);

/* Begins to resolve the names, in a worker; no effect without "resolve". */
void ngx_http_zk_lock_resolve_start(ngx_http_zk_lock_main_conf_t *zmcf,
    ngx_log_t *log);

/* Ends that, when the worker object is gone. */
void ngx_http_zk_lock_resolve_stop(ngx_http_zk_lock_main_conf_t *zmcf);


#endif /* _NGX_HTTP_ZK_LOCK_RESOLVE_H_INCLUDED_ */
