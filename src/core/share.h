
/*
 * Another znode in the place of a held claim, with the same seq and the same
 * id: of a reader, as Curator 5.5 does it with a writer, or a durable one.
 */


#ifndef _ZKL_SHARE_H_INCLUDED_
#define _ZKL_SHARE_H_INCLUDED_


#include "core/claim.h"


/*
 * NGX_OK: it is there; NGX_DECLINED: it is gone; NGX_AGAIN: another gateway has
 * written to it, which counts first; NGX_ERROR: ZooKeeper refuses.  The share
 * is freed.
 */
typedef void (*zkl_share_pt)(void *data, ngx_int_t rc);


/*
 * Makes the claim with that id and seq in its name a reader, through the
 * worker's session; its record is one at once.  Or, if gate is not NULL, makes
 * the claim durable under the name that it has: gate is that of the session
 * that counts its lease, and is copied.  A reader stays ephemeral or durable,
 * as it was.  handler is called later, never from inside.  Returns NULL if
 * there is no memory.
 */
zkl_share_t *zkl_share(zkl_worker_t *worker, ngx_str_t *path,
    const zkl_id_t *id, uint32_t record, zkl_kind_t kind, int64_t seq,
    ngx_str_t *gate, zkl_share_pt handler, void *data);

/* Tries again, unless something is under way; after a lost connection. */
void zkl_share_again(zkl_share_t *share);

/*
 * A mark that a Curator client wrote over the label is mended from the record;
 * owner and data are lost.
 */
void zkl_share_mend(zkl_share_t *share);

/* Frees it; handler is not called. */
void zkl_share_free(zkl_share_t *share);


#endif /* _ZKL_SHARE_H_INCLUDED_ */
