
/* What "nginx -t" warns of: directives that work, and are hardly meant so. */


#ifndef _NGX_HTTP_ZK_LOCK_WARN_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_WARN_H_INCLUDED_


#include "http/request.h"


/*
 * The configuration of a location that is queued.  In Angie several locations
 * may share a configuration.
 */

#if (angie_version)
#define ngx_http_zk_lock_queued(lq)                                           \
    ((lq)->exact ? (lq)->exact : (lq)->inclusive)->conf
#else
#define ngx_http_zk_lock_queued(lq)                                           \
    ((lq)->exact ? (lq)->exact : (lq)->inclusive)
#endif


/*
 * Warns of a location, or of a server, after the merge.  own: whether
 * zk_lock_require stands in the location's own block.
 */
void ngx_http_zk_lock_warn(ngx_conf_t *cf, ngx_http_zk_lock_loc_conf_t *conf,
    ngx_uint_t own);

/* Whether a location, or a location within, serves operators' calls. */
ngx_uint_t ngx_http_zk_lock_warn_serves(ngx_http_core_loc_conf_t *clcf);


#endif /* _NGX_HTTP_ZK_LOCK_WARN_H_INCLUDED_ */
