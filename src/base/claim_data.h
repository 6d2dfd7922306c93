
/*
 * Claim data: the data of a claim's znode, written and read.
 *
 * Plain C, no nginx, no ZooKeeper.  The caller owns the structures and the
 * buffers, which have a fixed size.  Any thread may call the functions.
 */


#ifndef _ZKL_CLAIM_DATA_H_INCLUDED_
#define _ZKL_CLAIM_DATA_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/name.h"


/* the most bytes of claim data that a gateway writes */
#define ZKL_CLAIM_DATA_MAX                                                    \
    (ZKL_OWNER_MAX + ZKL_DATA_MAX + 2 * ZKL_FULL_MAX + 454)

/* the limit of a czxid, because a fencing token is czxid * 256 + index */
#define ZKL_CZXID_MAX           (((int64_t) 1 << 55) - 1)

/* bytes of a remote request to a claim's holder */
#define ZKL_WANT_MAX            31

/* bytes of the address of the client that made a claim */
#define ZKL_FROM_MAX            64

/* bytes of a lock's full name */
#define ZKL_FULL_MAX            512

/* hexadecimal digits of the gate of a session that counts a lease */
#define ZKL_GATE_LEN            16

/* digits of a claim's id, and the offset of the id behind the index's digits */
#define ZKL_CLAIM_DATA_ID        32
#define ZKL_CLAIM_DATA_ID_AT     (2 + sizeof("\",\"id\":\"") - 1)


/*
 * The owner is the first line, because clients of other kinds show the data of
 * a claim.  The JSON behind the line is for gateways:
 *
 *     OWNER\n{"index":"0f","ttl":60000,"data":{"any":"JSON"}}
 *
 * index is the claim's place among the creates of the transaction, two
 * hexadecimal digits that the session writes when the transaction is made.
 * The optional members stand between ttl and data, in this order:
 *
 *     "holds":2,"renewals":7,"mended":5,"czxid":42,"gate":"0123456789abcdef",
 *     "params":"00c0ffee","async":true,"held":true,"revoke":true,
 *     "want":"shared","from":"192.0.2.1","name":"team%2Fjob"
 *
 * With async, clients at any gateway may know the token or the key before the
 * grant, and no client was told of the grant at another gateway.  held is
 * written by the claim's worker when it grants such a claim.
 *
 * name is the lock's, if the znode has the name of a hash.
 *
 * A durable claim has a gate, which names the session that counts the claim's
 * lease.
 *
 * If the name of the znode has no claim id, the id stands behind the index, as
 * 32 hexadecimal digits: "id":"00112233...".
 *
 * A Curator client asks a holder to let go by writing "__REVOKE__" over all of
 * the claim's data.  That data is read as no gateway's, without an owner and
 * with revoke.  The gateway writes the data anew with another number in mended;
 * a change that was written just before the Curator client's is lost.
 */

typedef struct {
    size_t          owner_len;
    size_t          data_len;       /* 0: none */
    size_t          want_len;       /* 0: none */
    size_t          from_len;       /* 0: none */
    size_t          name_len;       /* 0: none */
    size_t          gate_len;       /* 0: none; or ZKL_GATE_LEN */

    int64_t         ttl;            /* milliseconds, 0: unknown */
    int             index;          /* -1: not a gateway's claim */

    int64_t         holds;          /* written above 1; 0: not there */
    int64_t         renewals;       /* written above 0 */
    int64_t         mended;         /* written above 0 */
    int64_t         czxid;          /* 0: that of the znode; else that of the
                                       znode that was in the place before */
    uint32_t        params;

    zkl_id_t        id;

    unsigned        has_id:1;
    unsigned        has_params:1;

    char            async;
    char            held;           /* written with async */
    char            revoke;         /* a client asks the holder to let go */

    char            want[ZKL_WANT_MAX + 1];         /* of "a-z0-9-" */
    char            from[ZKL_FROM_MAX + 1];         /* UTF-8, no controls */
    char            name[ZKL_FULL_MAX + 1];         /* UTF-8, no controls */
    char            gate[ZKL_GATE_LEN + 1];         /* of "0-9a-f" */
    char            owner[ZKL_OWNER_MAX + 1];
    char            data[ZKL_DATA_MAX + 1];
} zkl_claim_data_t;

/*
 * Writes cdata to buf (room for ZKL_CLAIM_DATA_MAX bytes).  Returns the length;
 * *index_at is the offset of the two digits of index.  No NUL.  A want, a from,
 * a name or a gate that zkl_claim_data_read() would refuse is left out.
 */
size_t zkl_claim_data_write(char *buf, const zkl_claim_data_t *cdata,
    size_t *index_at);

/* Writes the digits of an id, ZKL_CLAIM_DATA_ID bytes; no NUL. */
void zkl_claim_data_id(char *buf, const zkl_id_t *id);

/*
 * Reads a znode's data.  Never fails: the first line becomes the owner if the
 * line is UTF-8 without control characters and not too long, else the owner is
 * empty.  A known member with a value that no gateway writes makes the whole
 * JSON no gateway's; unknown members are left out.
 */
void zkl_claim_data_read(zkl_claim_data_t *cdata, const char *text, size_t len);


#endif /* _ZKL_CLAIM_DATA_H_INCLUDED_ */
