
/*
 * Marks: where the leases are that outlive a gateway.
 *
 * A durable claim names the gate of the session that counts the lease.  When
 * that gate is gone, a worker has to find the claim.  So before the first claim
 * below a root is made durable, a persistent znode beside the gates says which
 * session has durable claims there: the znode's name is GATE.ROOT, with "%2F"
 * for a slash and "%25" for "%".  The worker that has looked at all of the
 * root's locks after the end of the session removes the mark (scan).
 */


#ifndef _ZKL_MARK_H_INCLUDED_
#define _ZKL_MARK_H_INCLUDED_


#include "core/claim.h"


/* bytes of a mark's name at most: each byte of the root may be escaped */
#define ZKL_MARK_LEN                  (ZKL_GATE_LEN + 1 + 3 * ZKL_PATH_MAX)


/*
 * Whether a claim of the lock at path can be durable: *gate is the session's
 * then.  NGX_AGAIN: the gate or the mark is being made, and zkl_claim_marked()
 * is called for all claims below the root when the mark exists; NGX_DECLINED:
 * ZooKeeper refused, which is tried again later, or there are too many roots.
 */
ngx_int_t zkl_mark_ready(zkl_worker_t *worker, ngx_str_t *path,
    ngx_str_t *gate);

/* The gates were listed, with the marks: makes again what is missing. */
void zkl_mark_listed(zkl_worker_t *worker, ngx_str_t *names, ngx_uint_t n);

/* The session is over: the next session has another gate, and no marks yet. */
void zkl_mark_lost(zkl_worker_t *worker);

/* Writes the root in a mark's name to buf; returns the length. */
size_t zkl_mark_root(u_char *buf, ngx_str_t *mark);


#endif /* _ZKL_MARK_H_INCLUDED_ */
