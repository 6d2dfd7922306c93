
/*
 * A claim's label: who holds or wants a lock, as ZooKeeper keeps it.
 *
 * Plain C, no nginx, no ZooKeeper.  Labels and buffers are the caller's and of
 * a fixed size.  Every function may be called from any thread.
 */


#ifndef _ZKL_CLAIM_DATA_H_INCLUDED_
#define _ZKL_CLAIM_DATA_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/name.h"


/* bytes of a label as it is written to ZooKeeper */
#define ZKL_CLAIM_DATA_MAX       (ZKL_OWNER_MAX + ZKL_DATA_MAX + 432)

/* what times 256 is a fencing token */
#define ZKL_CZXID_MAX           ((int64_t) 1 << 55)

/* bytes of what is wanted of a claim */
#define ZKL_WANT_MAX            31

/* bytes of where a claim came from */
#define ZKL_FROM_MAX            64

/* hexadecimal digits of the gate of a session that counts a lease */
#define ZKL_GATE_LEN            16

/* digits of a claim's id, and where they begin behind the index's digits */
#define ZKL_CLAIM_DATA_ID        32
#define ZKL_CLAIM_DATA_ID_AT     (2 + sizeof("\",\"id\":\"") - 1)


/*
 * A claim's label: the data of its znode.  The owner is the first line, so
 * that clients of other kinds that show a claim's data show the owner; then
 * comes what gateways tell each other, as JSON:
 *
 *     OWNER\n{"index":"0f","ttl":60000,"data":{"any":"JSON"}}
 *
 * index is the claim's place among the creates of its transaction, two
 * hexadecimal digits that the session floor writes when it knows them.  What
 * else a label may say stands between ttl and data, in this order, and only
 * where there is something to say:
 *
 *     "holds":2,"renewals":7,"mended":5,"czxid":42,"gate":"0123456789abcdef",
 *     "params":"00c0ffee","async":true,"revoke":true,"want":"shared",
 *     "from":"192.0.2.1"
 *
 * gate is said of a claim that is durable: it names the session that counts the
 * claim's lease.
 *
 * The label of a znode whose name does not say whose it is has the claim's id
 * behind the index, as 32 hexadecimal digits: "id":"00112233...".
 *
 * A recipe of Curator's asks a holder to let go by writing "__REVOKE__" over
 * the whole of its claim's data.  Such a label is nobody's, with revoke.  The
 * gateway writes a new label over that, with another number in mended: what
 * somebody else had written just before is lost.
 */

typedef struct {
    size_t          owner_len;
    size_t          data_len;       /* 0: none */
    size_t          want_len;       /* 0: none */
    size_t          from_len;       /* 0: none */
    size_t          gate_len;       /* 0: none; or ZKL_GATE_LEN */

    int64_t         ttl;            /* milliseconds, 0: unknown */
    int             index;          /* -1: not a gateway's claim */

    uint32_t        holds;          /* written above 1; 0: not there */
    uint32_t        renewals;       /* written above 0 */
    uint32_t        mended;         /* written above 0 */
    int64_t         czxid;          /* 0: that of the znode; else of the one
                                       that was in its place before */
    uint32_t        params;

    zkl_id_t        id;

    unsigned        has_id:1;
    unsigned        has_params:1;
    unsigned        async:1;
    unsigned        revoke:1;       /* somebody asks the holder to let go */

    char            want[ZKL_WANT_MAX + 1];         /* of "a-z0-9-" */
    char            from[ZKL_FROM_MAX + 1];         /* UTF-8, no controls */
    char            gate[ZKL_GATE_LEN + 1];         /* of "0-9a-f" */
    char            owner[ZKL_OWNER_MAX + 1];
    char            data[ZKL_DATA_MAX + 1];
} zkl_claim_data_t;

/*
 * Writes label to buf (room for ZKL_CLAIM_DATA_MAX bytes).  Returns its length;
 * *index_at is the offset of the two digits of index.  No NUL.  A want or a
 * from that could not be read again is left out.
 */
size_t zkl_claim_data_write(char *buf, const zkl_claim_data_t *label,
    size_t *index_at);

/* Writes the digits of an id, ZKL_CLAIM_DATA_ID bytes; no NUL. */
void zkl_claim_data_id(char *buf, const zkl_id_t *id);

/*
 * Reads a znode's data.  Never fails: of what is not a gateway's label, the
 * first line becomes the owner if it is UTF-8 without control characters and
 * not too long, else the owner is empty.  A member that is not as it would be
 * written makes the whole of the JSON no gateway's; unknown ones are left out.
 */
void zkl_claim_data_read(zkl_claim_data_t *label, const char *text, size_t len);


#endif /* _ZKL_CLAIM_DATA_H_INCLUDED_ */
