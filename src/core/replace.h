
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
 * the old znode is there, because another client has written to the claim, and
 * that write counts first, or because ZooKeeper has refused: the caller reads
 * the claim, and tries again; NGX_BUSY: the claim is durable, and entered below
 * another gate; NGX_ERROR: the claim cannot become durable.  The replacement is
 * freed, and claim->replace NULL, before the handler is called.
 */
typedef void (*zkl_replace_pt)(zkl_claim_t *claim, ngx_int_t rc);


/*
 * Replaces the znode of the claim, through the worker's session: the claim
 * becomes durable under the same name, and is entered below claim->gate, which
 * the caller sets at once, and which the session owns; or the claim becomes a
 * reader.  Then the record changes at once, and the new znode is persistent if
 * the old znode was.  handler is called later, never from inside.  NGX_ERROR:
 * no memory; else claim->replace is the replacement.
 *
 * If a Curator client has written a mark over the claim data of an adopted
 * claim, the data are written anew from the record, without the owner and the
 * data of the claim's client.
 */
ngx_int_t zkl_replace(zkl_claim_t *claim, ngx_uint_t durable,
    zkl_replace_pt handler);

/* Tries again after a lost connection, unless an operation is under way. */
void zkl_replace_again(zkl_replace_t *replace);

/* Frees the claim's replacement, if there is one; handler is not called. */
void zkl_replace_free(zkl_claim_t *claim);


#endif /* _ZKL_REPLACE_H_INCLUDED_ */
