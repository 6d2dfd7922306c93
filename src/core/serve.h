
/*
 * Serving: what a claim's worker does for a call, its own or a sibling's.
 */


#ifndef _ZKL_SERVE_H_INCLUDED_
#define _ZKL_SERVE_H_INCLUDED_


#include "core/call.h"


/*
 * Does for a claim of this worker what the errand asks: its type is a
 * zkl_call_e.  Returns the reply; after ZKL_REPLY_LATER served stays until the
 * reply comes, by zkl_call_replied() or in the errand.
 */
zkl_reply_e zkl_serve(zkl_claim_t *claim, zkl_errand_t *errand,
    zkl_served_t *served);

/*
 * Serves the siblings whose errands have come, and tells the calls of this
 * worker whose replies have; all: looks at all errands of the zone.
 */
void zkl_serve_errands(zkl_worker_t *worker, ngx_uint_t all);


#endif /* _ZKL_SERVE_H_INCLUDED_ */
