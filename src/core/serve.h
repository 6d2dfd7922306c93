
/*
 * Serving: what a claim's worker does for a call, its own or a sibling's.
 */


#ifndef _ZKL_SERVE_H_INCLUDED_
#define _ZKL_SERVE_H_INCLUDED_


#include "core/call.h"


/*
 * Does for a claim of this worker what the errand asks; errand->type is a
 * zkl_call_e.  Returns the reply; NONE: the errand was called back.  After
 * LATER the caller keeps served until the reply comes, by zkl_call_replied() or
 * in the errand.
 */
zkl_reply_e zkl_serve(zkl_claim_t *claim, zkl_errand_t *errand,
    zkl_served_t *served);

/*
 * Looks at the errand n of the zone: serves the errand of a sibling, or passes
 * the reply of a sibling to the call of this worker.
 */
void zkl_serve_errand(zkl_worker_t *worker, ngx_uint_t n);


#endif /* _ZKL_SERVE_H_INCLUDED_ */
