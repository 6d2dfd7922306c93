
/*
 * Marks: where the leases are that outlive their gateway.
 *
 * A claim that is durable names the gate of the session that counts its lease.
 * When that gate is gone somebody has to find the claim.  So before the first
 * claim below a root is made durable, a persistent znode beside the gates says
 * which session has such claims there: its name is GATE.ROOT, with "%2F" for a
 * slash and "%25" for "%".  Who has looked at all of the root's locks after the
 * end of the session removes it (scan).
 */


#ifndef _ZKL_MARK_H_INCLUDED_
#define _ZKL_MARK_H_INCLUDED_


#include "core/claim.h"


/*
 * Whether a claim of the lock at path can be durable: *gate is the session's
 * then.  NGX_AGAIN: what that needs was asked for, and claim_marked() is called
 * for all claims below the root when it is there; NGX_DECLINED: ZooKeeper
 * refused, or there are too many roots; it is asked again later.
 */
ngx_int_t zkl_mark_ready(zkl_worker_t *worker, ngx_str_t *path,
    ngx_str_t *gate);

/* The gates were listed, with the marks: makes again what is missing. */
void zkl_mark_listed(zkl_worker_t *worker, ngx_str_t *names, ngx_uint_t n);

/* The session is over: the next one has another gate, and marks nothing yet. */
void zkl_mark_lost(zkl_worker_t *worker);

/* Writes the root that a mark's name ends with to buf; its length. */
size_t zkl_mark_root(u_char *buf, ngx_str_t *mark);


#endif /* _ZKL_MARK_H_INCLUDED_ */
