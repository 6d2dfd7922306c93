
/*
 * The real zk/session.c, included unchanged, so that the file's own state can
 * be looked at.
 *
 * What a session counts is counted here once more; what waits has something to
 * wait for; and what a read tells was so at some moment since the read was
 * asked for: at ZooKeeper if the read is to be fresh, else as far as the client
 * has heard.
 */


#include "../../src/zk/session.c"

#include "gsim.h"


typedef struct gsim_opened_s  gsim_opened_t;

/* a session that is open */

struct gsim_opened_s {
    gsim_opened_t               *next;
    gsim_process_t              *process;
    zkl_session_t               *session;
};


/* a read, from the send to the handler */

typedef struct {
    zkl_op_pt                    handler;
    void                        *data;
    int64_t                      since;         /* zxid */
    int64_t                      at;
    uint64_t                     restored;      /* servers had lost data */
    ngx_msec_t                   rejected;      /* a write had been refused */
    unsigned                     watch:1;
} gsim_asked_t;


typedef struct {
    ngx_uint_t                   counted;
    ngx_uint_t                   lists;
    size_t                       bytes;         /* of turns */
    size_t                       watches;       /* in flight */
} gsim_sums_t;


static gsim_opened_t  *gsim_opened;


zkl_session_t *__wrap_zkl_session_open(zkl_session_conf_t *conf,
    zkl_mailbox_t *mailbox, const zkl_session_events_t *events, void *data,
    const zkl_key_t *key, ngx_atomic_t *alive, ngx_log_t *log);
void __wrap_zkl_session_close(zkl_session_t *s);
void __wrap_zkl_session_leave(zkl_session_t *s);
void __wrap_zkl_session_send(zkl_op_t *op, zkl_op_pt handler, void *data);
void __wrap_zkl_turns_answered(zkl_turns_t *turns, zkl_op_t *op,
    ngx_msec_t now);
void __real_zkl_turns_answered(zkl_turns_t *turns, zkl_op_t *op,
    ngx_msec_t now);

static void gsim_session_over(zkl_session_t *s);
static void gsim_session_answered(zkl_op_t *op);
static int gsim_session_true(zkl_op_t *op, int64_t zxid);
static int gsim_session_lists(zkl_op_t *op, gsim_node_t *node, int64_t zxid);
static void gsim_session_check_one(gsim_process_t *p, zkl_session_t *s);
static void gsim_session_add(gsim_sums_t *sums, ngx_queue_t *queue,
    ngx_uint_t sent);
static ngx_uint_t gsim_session_nodes(ngx_rbtree_node_t *node,
    ngx_rbtree_node_t *sentinel);
static size_t gsim_session_watches(zkl_session_t *s, ngx_rbtree_node_t *node);
static size_t gsim_session_length(ngx_queue_t *queue);
static void gsim_session_differs(gsim_process_t *p, const char *what,
    size_t counts, size_t is);


void
gsim_session_reset(void)
{
    gsim_opened = NULL;
}


zkl_session_t *
__wrap_zkl_session_open(zkl_session_conf_t *conf, zkl_mailbox_t *mailbox,
    const zkl_session_events_t *events, void *data, const zkl_key_t *key,
    ngx_atomic_t *alive, ngx_log_t *log)
{
    gsim_opened_t  *o;
    zkl_session_t  *s;

    s = zkl_session_open(conf, mailbox, events, data, key, alive, log);

    if (s != NULL) {
        o = gsim_alloc(sizeof(gsim_opened_t));

        o->process = gsim_current;
        o->session = s;
        o->next = gsim_opened;
        gsim_opened = o;
    }

    return s;
}


void
__wrap_zkl_session_close(zkl_session_t *s)
{
    gsim_session_over(s);
    zkl_session_close(s);
}


void
__wrap_zkl_session_leave(zkl_session_t *s)
{
    gsim_session_over(s);
    zkl_session_leave(s);
}


static void
gsim_session_over(zkl_session_t *s)
{
    gsim_opened_t  **o;

    for (o = &gsim_opened; *o != NULL; o = &(*o)->next) {
        if ((*o)->session == s && (*o)->process == gsim_current) {
            *o = (*o)->next;
            return;
        }
    }
}


/* Takes the place of the handler of a read, and makes lists count as long. */

void
__wrap_zkl_session_send(zkl_op_t *op, zkl_op_pt handler, void *data)
{
    uint32_t           hash;
    gsim_asked_t      *asked;
    zkl_session_t     *s;
    zkl_turns_size_t  *size;

    s = op->session;

    if (gsim_long_lists && op->type == ZKL_OP_LIST) {
        hash = ngx_crc32_long(op->path.data, op->path.len);
        size = &s->reads.sizes[hash & (ZKL_TURNS_SIZES - 1)];

        size->hash = hash;
        size->bytes = 1000000;
    }

    if (op->type >= ZKL_OP_GET && handler != NULL && gsim_current != NULL) {
        asked = gsim_alloc(sizeof(gsim_asked_t));

        asked->handler = handler;
        asked->data = data;
        asked->since = op->fresh ? gsim_zxid
                                 : gsim_client_seen(gsim_current, s->key.id);
        asked->at = gsim_now;
        asked->restored = gsim_count.restored;
        asked->rejected = (s->rejected != 0
                           && zkl_now() - s->rejected < s->timeout / 2)
                          ? s->rejected : 0;
        asked->watch = op->watch;

        handler = gsim_session_answered;
        data = asked;
    }

    zkl_session_send(op, handler, data);
}


void
__wrap_zkl_turns_answered(zkl_turns_t *turns, zkl_op_t *op, ngx_msec_t now)
{
    __real_zkl_turns_answered(turns, op, now);

    if (gsim_long_lists && op->type == ZKL_OP_LIST && op->rc == ZKL_OK) {
        turns->answered = now;
    }
}


static void
gsim_session_answered(zkl_op_t *op)
{
    size_t         i;
    int64_t        zxid;
    gsim_asked_t  *asked;

    asked = op->data;

    op->handler = asked->handler;
    op->data = asked->data;

    /* such a read is sent behind what a server does not refuse */

    if (op->fresh && op->rc == ZKL_UNSENT && asked->rejected != 0
        && op->session->state == ZKL_CONNECTED && !gsim_lacks
        && gsim_now > gsim_quiet + 4 * GSIM_S)
    {
        gsim_violation("a read of %s fails, because another client's write was "
                       "refused", op->path.data);
    }

    if ((op->rc != ZKL_OK && op->rc != ZKL_NO_NODE)
        || asked->restored != gsim_count.restored)
    {
        op->handler(op);
        return;
    }

    gsim_count.reads++;

    if (!gsim_session_true(op, asked->since)) {

        for (i = gsim_tree_ntxns(), zxid = 0; i > 0; i--) {
            zxid = gsim_tree_txn(i - 1)->zxid;

            if (zxid <= asked->since || gsim_session_true(op, zxid)) {
                break;
            }
        }

        if (zxid <= asked->since) {
            gsim_violation("a read of %s, asked for %d us ago, tells what was "
                           "never so since then", op->path.data,
                           (int) (gsim_now - asked->at));
        }
    }

    if (asked->watch && op->type != ZKL_OP_EXISTS && op->rc == ZKL_OK
        && !gsim_client_watches(gsim_current, op->session->key.id,
                                (char *) op->path.data,
                                op->type == ZKL_OP_LIST, asked->at))
    {
        gsim_violation("a read of %s was to set a watch, but there is none",
                       op->path.data);
    }

    op->handler(op);
}


/* Whether what op tells was so at zxid. */

static int
gsim_session_true(zkl_op_t *op, int64_t zxid)
{
    gsim_data_t  *data;
    gsim_node_t  *node;

    node = gsim_tree_find((char *) op->path.data, zxid);

    if (node == NULL || op->rc == ZKL_NO_NODE) {
        return node == NULL && op->rc == ZKL_NO_NODE;
    }

    switch (op->type) {

    case ZKL_OP_GET:
        data = gsim_tree_data(node, zxid);

        return node->created == op->czxid && data->zxid == op->mzxid
               && data->version == op->version && node->owner == op->owner;

    case ZKL_OP_LIST:
        return gsim_session_lists(op, node, zxid);

    default:
        return 1;
    }
}


static int
gsim_session_lists(zkl_op_t *op, gsim_node_t *node, int64_t zxid)
{
    size_t        len;
    int64_t       given;
    ngx_uint_t    i, n;
    gsim_node_t  *child;

    n = 0;
    given = 0;

    for (child = node->children; child != NULL; child = child->sibling) {

        given += (child->created <= zxid);

        if (child->created > zxid || child->deleted <= zxid) {
            continue;
        }

        n++;
        len = strlen(child->name);

        for (i = 0; i < op->nchildren; i++) {
            if (op->children[i].len == len
                && memcmp(op->children[i].data, child->name, len) == 0)
            {
                break;
            }
        }

        if (i == op->nchildren) {
            return 0;
        }
    }

    return n == op->nchildren && given == op->given;
}


void
gsim_session_check(gsim_process_t *p)
{
    gsim_opened_t  *o;

    for (o = gsim_opened; o != NULL; o = o->next) {
        if (o->process == p) {
            gsim_session_check_one(p, o->session);
        }
    }
}


static void
gsim_session_check_one(gsim_process_t *p, zkl_session_t *s)
{
    int          n;
    size_t       counted, flights, watches;
    gsim_sums_t  sums;

    memset(&sums, 0, sizeof(gsim_sums_t));

    gsim_session_add(&sums, &s->flights, 1);

    flights = gsim_session_length(&s->flights);
    counted = sums.counted;
    watches = sums.watches;

    gsim_session_add(&sums, &s->fresh, 1);
    gsim_session_add(&sums, &s->failed, 1);
    gsim_session_add(&sums, &s->shared, 1);
    gsim_session_add(&sums, &s->reads.claims, 0);
    gsim_session_add(&sums, &s->reads.looks, 0);

    gsim_count.counts++;

    gsim_session_differs(p, "transactions", s->writes, counted);
    gsim_session_differs(p, "gathered operations", s->npending,
                         gsim_session_length(&s->pending));
    gsim_session_differs(p, "bytes of turns", s->reads.bytes, sums.bytes);
    gsim_session_differs(p, "lists", gsim_session_nodes(s->reads.lists.root,
                                                        &s->reads.sentinel),
                         sums.lists);
    gsim_session_differs(p, "bytes of watches in flight", s->watch_asked,
                         watches);
    gsim_session_differs(p, "bytes of watches", s->watch_bytes,
                         gsim_session_watches(s, s->watches.root));

    n = (s->state == ZKL_CONNECTED) ? gsim_client_flights(p, s->key.id) : -1;

    if (n >= 0) {
        gsim_session_differs(p, "operations in flight", flights,
                             (size_t) n);
    }

    if ((!ngx_queue_empty(&s->failed) && !s->flush.posted)
        || (!ngx_queue_empty(&s->fresh) && !s->read.posted)
        || (!ngx_queue_empty(&s->shared) && !s->read.posted)
        || (!ngx_queue_empty(&s->pending) && s->writes < ZKL_WRITES_MAX
            && !s->flush.posted && !s->flush.timer_set)
        || (zkl_turns_waiting(&s->reads) && flights == 0
            && s->reads.bytes == 0 && !s->read.posted)
        || (!s->tick.timer_set && s->state != ZKL_CLOSED))
    {
        gsim_violation("the session of process %d has an operation that "
                       "nothing wakes", (int) p->pid);
    }
}


/* Adds what the operations of a queue count. */

static void
gsim_session_add(gsim_sums_t *sums, ngx_queue_t *queue, ngx_uint_t sent)
{
    zkl_op_t     *op;
    ngx_queue_t  *q;

    for (q = ngx_queue_head(queue); q != queue; q = ngx_queue_next(q)) {

        op = ngx_queue_data(q, zkl_op_t, queue);

        sums->counted += op->gather;

        if (op->watch) {
            sums->watches += op->path.len + 5;
        }

        if (op->turn != ZKL_TURN_NONE) {
            sums->bytes += op->bytes;
            sums->lists += (op->type == ZKL_OP_LIST
                            && (!sent || op->bytes != 0));
        }
    }
}


static ngx_uint_t
gsim_session_nodes(ngx_rbtree_node_t *node, ngx_rbtree_node_t *sentinel)
{
    return (node == sentinel)
           ? 0 : 1 + gsim_session_nodes(node->left, sentinel)
                 + gsim_session_nodes(node->right, sentinel);
}


static size_t
gsim_session_watches(zkl_session_t *s, ngx_rbtree_node_t *node)
{
    ngx_str_node_t  *sn;

    if (node == s->watches.sentinel) {
        return 0;
    }

    sn = (ngx_str_node_t *) node;

    return sn->str.len + s->conf->chroot.len + 4
           + gsim_session_watches(s, node->left)
           + gsim_session_watches(s, node->right);
}


static size_t
gsim_session_length(ngx_queue_t *queue)
{
    size_t        n;
    ngx_queue_t  *q;

    for (n = 0, q = ngx_queue_head(queue); q != queue; q = ngx_queue_next(q)) {
        n++;
    }

    return n;
}


static void
gsim_session_differs(gsim_process_t *p, const char *what, size_t counts,
    size_t is)
{
    if (counts != is) {
        gsim_violation("the session of process %d counts %d %s, but there are "
                       "%d", (int) p->pid, (int) counts, what, (int) is);
    }
}
