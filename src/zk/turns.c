
/*
 * Turns.
 *
 * The answers to come are bounded by bytes.  The last list of a path tells how
 * long the next list will be, as far as a table without chains remembers that;
 * any other answer counts as short, so one list of a root with very many names
 * can be in flight unnoticed, once.
 *
 * A longer list is sent when no other answer is to come.  The operations
 * without a turn that were sent behind a long list are answered before the next
 * operation with a turn is sent: so such an operation waits for one long list
 * at most, however many clients ask for lists.
 *
 * A list is shared: the operations that came before the list was sent are in
 * op->ops, and get the list's result, one after the other.  Meanwhile the bytes
 * of the list count, because the list is kept.  What comes later is in
 * op->later, the next list of the path, and in the ops of that list.
 *
 * All functions run on the event loop, for the session, which calls the
 * handlers.  An operation with a turn is waiting, in flight, in the ops of
 * another or the `later` of another, or the session tells its ops.
 */


#include "zk/turns.h"


/* answers to come, in bytes */
#define ZKL_TURNS_BYTES               (256 * 1024)

/* an answer that makes other operations wait */
#define ZKL_TURNS_LONG                (64 * 1024)

/* what a list counts that is not known to be longer, and what a GET counts */
#define ZKL_TURNS_SHORT               512
#define ZKL_TURNS_GET                 1024


static zkl_op_t *zkl_turns_next(zkl_turns_t *turns);


void
zkl_turns_init(zkl_turns_t *turns)
{
    ngx_queue_init(&turns->claims);
    ngx_queue_init(&turns->looks);

    ngx_rbtree_init(&turns->lists, &turns->sentinel,
                    ngx_str_rbtree_insert_value);
}


void
zkl_turns_add(zkl_turns_t *turns, zkl_op_t *op)
{
    uint32_t         hash;
    zkl_op_t        *list;
    ngx_str_node_t  *sn;

    if (op->type == ZKL_OP_LIST) {
        hash = ngx_crc32_long(op->path.data, op->path.len);

        sn = ngx_str_rbtree_lookup(&turns->lists, &op->path, hash);

        if (sn != NULL) {
            list = ngx_queue_data(sn, zkl_op_t, listed);

            if (list->bytes != 0) {

                if (list->later == NULL) {
                    list->later = op;
                    return;
                }

                list = list->later;
            }

            list->watch |= op->watch;

            if (op->fresh) {
                list->fresh = 1;
                list->number = op->number;
            }

            ngx_queue_insert_tail(&list->ops, &op->queue);
            return;
        }

        op->listed.str = op->path;
        op->listed.node.key = hash;

        ngx_rbtree_insert(&turns->lists, &op->listed.node);
    }

    ngx_queue_insert_tail(op->turn == ZKL_TURN_CLAIM ? &turns->claims
                                                     : &turns->looks,
                          &op->queue);
}


zkl_op_t *
zkl_turns_take(zkl_turns_t *turns, ngx_msec_t first)
{
    size_t             bytes;
    zkl_op_t          *op;
    zkl_turns_size_t  *size;

    op = zkl_turns_next(turns);

    if (op == NULL) {
        return NULL;
    }

    bytes = ZKL_TURNS_GET;

    if (op->type == ZKL_OP_LIST) {
        size = &turns->sizes[op->listed.node.key & (ZKL_TURNS_SIZES - 1)];

        bytes = (size->bytes != 0 && size->hash == op->listed.node.key)
                ? size->bytes : ZKL_TURNS_SHORT;
    }

    if (turns->bytes != 0) {

        if (turns->bytes + bytes > ZKL_TURNS_BYTES) {
            return NULL;
        }

    } else if (turns->answered != 0 && first != 0
               && (ngx_msec_int_t) (first - turns->answered) <= 0)
    {
        /* what was sent behind the last long list is answered first */

        return NULL;
    }

    op->bytes = bytes;
    turns->bytes += bytes;
    turns->claim = (op->turn == ZKL_TURN_CLAIM);

    ngx_queue_remove(&op->queue);

    return op;
}


/* The claims' lists go first, but each second operation is a look. */

static zkl_op_t *
zkl_turns_next(zkl_turns_t *turns)
{
    ngx_queue_t  *waiting;

    waiting = &turns->claims;

    if (ngx_queue_empty(waiting)
        || (turns->claim && !ngx_queue_empty(&turns->looks)))
    {
        waiting = &turns->looks;
    }

    if (ngx_queue_empty(waiting)) {
        return NULL;
    }

    return ngx_queue_data(ngx_queue_head(waiting), zkl_op_t, queue);
}


zkl_op_t *
zkl_turns_drop(zkl_turns_t *turns)
{
    zkl_op_t  *op;

    op = zkl_turns_next(turns);

    if (op != NULL) {

        /* what comes from now on does not share the failure */

        op->bytes = 1;
        turns->bytes++;

        ngx_queue_remove(&op->queue);
    }

    return op;
}


/* Notes how long the list is; until zkl_turns_end() the list counts. */

void
zkl_turns_answered(zkl_turns_t *turns, zkl_op_t *op, ngx_msec_t now)
{
    size_t             bytes;
    ngx_uint_t         i;
    zkl_turns_size_t  *size;

    if (op->type != ZKL_OP_LIST || op->rc != ZKL_OK) {
        return;
    }

    bytes = 1;

    for (i = 0; i < op->nchildren; i++) {
        bytes += 4 + op->children[i].len;
    }

    size = &turns->sizes[op->listed.node.key & (ZKL_TURNS_SIZES - 1)];

    if (bytes > ZKL_TURNS_SHORT) {
        size->hash = (uint32_t) op->listed.node.key;
        size->bytes = (uint32_t) ngx_min(bytes, NGX_MAX_UINT32_VALUE);

    } else if (size->hash == op->listed.node.key) {
        size->bytes = 0;
    }

    turns->bytes = turns->bytes - op->bytes + bytes;
    op->bytes = bytes;

    if (bytes >= ZKL_TURNS_LONG) {
        turns->answered = now;
    }
}


zkl_op_t *
zkl_turns_end(zkl_turns_t *turns, zkl_op_t *op)
{
    if (op->bytes == 0) {
        /* there was no connection when the operation was to be added */
        return NULL;
    }

    turns->bytes -= op->bytes;
    op->bytes = 0;

    if (op->type == ZKL_OP_LIST) {
        ngx_rbtree_delete(&turns->lists, &op->listed.node);
    }

    return op->later;
}
