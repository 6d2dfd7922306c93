
/*
 * A replacement puts a new znode, with the same seq and id, in the place of a
 * held claim's znode: that of a reader, as Curator 5.5 makes a writer a reader,
 * or a persistent znode.
 */


#ifndef _ZKL_REPLACE_H_INCLUDED_
#define _ZKL_REPLACE_H_INCLUDED_


#include "core/claim.h"


/*
 * NGX_OK: the new znode is there; NGX_DECLINED: the claim is gone; NGX_AGAIN:
 * another client has written to the claim, and that write counts first: the
 * caller reads the claim, and tries again; NGX_BUSY: the claim is durable, and
 * entered below another gate; NGX_ERROR: the claim cannot become durable.  The
 * replacement is freed before the handler is called.
 */
typedef void (*zkl_replace_pt)(void *data, ngx_int_t rc);


/*
 * Replaces the znode of the claim with that id and seq, through the worker's
 * session.  With gate NULL the claim becomes a reader: the record changes at
 * once, and the new znode is persistent if the old znode was.  With a gate, of
 * the session that counts the lease, the claim becomes durable under the same
 * name, and is entered below the gate; gate is copied.  handler is called
 * later, never from inside.  Returns NULL if there is no memory.
 *
 * lagging: another session has made the znode, so this session's server may not
 * have the znode yet, and is asked to catch up first.  If a Curator client has
 * written a mark over the claim data, the data are written anew from the
 * record, without the owner and the data of the claim's client.
 */
zkl_replace_t *zkl_replace(zkl_worker_t *worker, ngx_str_t *path,
    const zkl_id_t *id, uint32_t record, zkl_mode_t mode, int64_t seq,
    const u_char *gate, ngx_uint_t lagging, zkl_replace_pt handler, void *data);

/* Tries again after a lost connection, unless an operation is under way. */
void zkl_replace_again(zkl_replace_t *replace);

/* Frees the replacement; handler is not called. */
void zkl_replace_free(zkl_replace_t *replace);


#endif /* _ZKL_REPLACE_H_INCLUDED_ */
