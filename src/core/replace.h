
/*
 * Another znode in the place of a held claim, with the same seq and id: of a
 * reader, as Curator 5.5 replaces a writer, or a durable znode.
 */


#ifndef _ZKL_REPLACE_H_INCLUDED_
#define _ZKL_REPLACE_H_INCLUDED_


#include "core/claim.h"


/*
 * NGX_OK: the new znode is there; NGX_DECLINED: the claim is gone; NGX_AGAIN:
 * another client's write to the claim counts first; NGX_ERROR: the claim cannot
 * become durable.  The replacement is freed.
 */
typedef void (*zkl_replace_pt)(void *data, ngx_int_t rc);


/*
 * Makes the claim with that id and seq in the name a reader, through the
 * worker's session; the record changes at once.  Or, with a gate, makes the
 * claim durable under the same name: gate names the session that counts the
 * lease, and is copied.  A reader stays ephemeral or durable.  handler is
 * called later, never from inside.  Returns NULL if there is no memory.
 *
 * foreign: another session has made the znode, so this session's server may not
 * have the znode yet, and the reads wait for that.  The record then mends claim
 * data that a Curator client's mark has replaced; the owner and the data of the
 * claim's client are lost.
 */
zkl_replace_t *zkl_replace(zkl_worker_t *worker, ngx_str_t *path,
    const zkl_id_t *id, uint32_t record, zkl_kind_t kind, int64_t seq,
    ngx_str_t *gate, ngx_uint_t foreign, zkl_replace_pt handler, void *data);

/* Tries again after a lost connection, unless an operation is under way. */
void zkl_replace_again(zkl_replace_t *replace);

/* Frees the replacement; handler is not called. */
void zkl_replace_free(zkl_replace_t *replace);


#endif /* _ZKL_REPLACE_H_INCLUDED_ */
