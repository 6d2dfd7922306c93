
/*
 * Sharing: a claim that holds its lock alone becomes a reader with the same
 * seq and the same id, as Curator 5.5 does it with a writer.
 */


#ifndef _NGX_HTTP_ZK_LOCK_SHARE_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_SHARE_H_INCLUDED_


#include "ngx_http_zk_lock_claim.h"


/* NGX_OK: it is a reader; NGX_DECLINED: it is gone.  The share is freed. */
typedef void (*ngx_http_zk_lock_share_pt)(void *data, ngx_int_t rc);


/*
 * Makes the claim of seq, which is a record of zone and an ephemeral of
 * session, a reader.  Its record is one at once.  handler is called later,
 * never from inside.  Returns NULL if there is no memory.
 */
ngx_http_zk_lock_share_t *ngx_http_zk_lock_share(
    ngx_http_zk_lock_worker_t *worker, ngx_http_zk_lock_session_t *session,
    ngx_http_zk_lock_zone_t *zone, ngx_str_t *path, const zk_lock_id_t *id,
    zk_lock_kind_t kind, int64_t seq, ngx_http_zk_lock_share_pt handler,
    void *data);

/* Tries again, unless something is under way; after a lost connection. */
void ngx_http_zk_lock_share_again(ngx_http_zk_lock_share_t *share);

/* Frees it; handler is not called. */
void ngx_http_zk_lock_share_free(ngx_http_zk_lock_share_t *share);


#endif /* _NGX_HTTP_ZK_LOCK_SHARE_H_INCLUDED_ */
