
/*
 * A claim's label: who holds or wants a lock, as ZooKeeper keeps it.
 *
 * Plain C, no nginx, no ZooKeeper.  Labels and buffers are the caller's and of
 * a fixed size.  Every function may be called from any thread.
 */


#ifndef _ZK_LOCK_LABEL_H_INCLUDED_
#define _ZK_LOCK_LABEL_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "zk_lock_json.h"


/* bytes of a label as it is written to ZooKeeper */
#define ZK_LOCK_LABEL_MAX       (ZK_LOCK_OWNER_MAX + ZK_LOCK_DATA_MAX + 128)


/*
 * A claim's label: the data of its znode.  The owner is the first line, so
 * that clients of other kinds that show a claim's data show the owner; then
 * comes what gateways tell each other, as JSON:
 *
 *     OWNER\n{"index":"0f","ttl":60000,"data":{"any":"JSON"}}
 *
 * index is the claim's place among the creates of its transaction, two
 * hexadecimal digits that the session floor writes when it knows them.
 */

typedef struct {
    size_t          owner_len;
    size_t          data_len;       /* 0: none */
    int64_t         ttl;            /* milliseconds, 0: unknown */
    int             index;          /* -1: not a gateway's claim */
    char            owner[ZK_LOCK_OWNER_MAX + 1];
    char            data[ZK_LOCK_DATA_MAX + 1];
} zk_lock_label_t;

/*
 * Writes label to buf (room for ZK_LOCK_LABEL_MAX bytes).  Returns its length;
 * *index_at is the offset of the two digits of index.  No NUL.
 */
size_t zk_lock_label_write(char *buf, const zk_lock_label_t *label,
    size_t *index_at);

/*
 * Reads a znode's data.  Never fails: of what is not a gateway's label, the
 * first line becomes the owner if it is UTF-8 without control characters and
 * not too long, else the owner is empty.
 */
void zk_lock_label_read(zk_lock_label_t *label, const char *text, size_t len);


#endif /* _ZK_LOCK_LABEL_H_INCLUDED_ */
