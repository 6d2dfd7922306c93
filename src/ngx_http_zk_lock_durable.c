
/*
 * Durable leases: how a held claim outlives its session.
 *
 * A lease that has been held for a while becomes durable: a persistent znode
 * takes the claim's place, under the claim's name (share).  The label of that
 * znode names the session that counts the lease, by the session's gate.  While
 * the gate is there, no other session ends the lease.
 *
 * When this worker's session is over, its durable claims go to TAKE.  Their
 * records are open then: all workers ask ZooKeeper about these claims, and do
 * not go by the records.  The next session reads each claim.  If the label
 * still names a gate of this worker, the session writes its own gate there, by
 * the version that was read, and the lease goes on with its deadline.  A claim
 * of a gateway that is gone (scan) goes the same way; its lease counts from
 * then on.  If another session was first, the claim stays in TAKE until the
 * znode is gone.
 *
 * Everything here runs on the event loop.  A mark's `op` is NULL unless the
 * mark's create is under way; claim->op is NULL in TAKE unless the claim is
 * read or written.
 */


#include "ngx_http_zk_lock_durable.h"
#include "ngx_http_zk_lock_node.h"
#include "ngx_http_zk_lock_share.h"


/* roots that a session marks at most: a client may name them */
#define NGX_HTTP_ZK_LOCK_MARKS_MAX    1024

/* how soon a mark that was refused is asked for again, milliseconds */
#define NGX_HTTP_ZK_LOCK_MARK_AGAIN   10000

/* bytes of a mark's name at most: each byte of the root may be escaped */
#define NGX_HTTP_ZK_LOCK_MARK_LEN     (NGX_HTTP_ZK_LOCK_GATE_LEN + 1          \
                                       + 3 * ZK_LOCK_PATH_MAX)


struct ngx_http_zk_lock_mark_s {
    ngx_queue_t                        queue;   /* worker->marks */
    ngx_http_zk_lock_worker_t         *worker;
    ngx_http_zk_lock_op_t             *op;      /* its create, or NULL */
    ngx_msec_t                         refused; /* when; 0: it was not */
    ngx_str_t                          root;
    unsigned                           there:1;
};


static ngx_http_zk_lock_mark_t *ngx_http_zk_lock_mark_get(
    ngx_http_zk_lock_worker_t *worker, ngx_str_t *root);
static ngx_uint_t ngx_http_zk_lock_durable_lists(ngx_str_t *names,
    ngx_uint_t n, ngx_str_t *name);
static ngx_str_t ngx_http_zk_lock_mark_name(ngx_http_zk_lock_mark_t *mark,
    ngx_str_t *gate, u_char *buf);
static void ngx_http_zk_lock_mark_send(ngx_http_zk_lock_mark_t *mark,
    ngx_str_t *gate);
static void ngx_http_zk_lock_mark_handler(ngx_http_zk_lock_op_t *op);
static ngx_str_t ngx_http_zk_lock_durable_dir(ngx_str_t *path);
static void ngx_http_zk_lock_claim_next_durable(
    ngx_http_zk_lock_claim_t *claim, ngx_int_t rc);
static void ngx_http_zk_lock_claim_made_durable(void *data, ngx_int_t rc);
static void ngx_http_zk_lock_claim_persists(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_watch(ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_tell_durable(
    ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_take_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_take_read(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_take_missed(
    ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_claim_take_write(ngx_http_zk_lock_claim_t *claim,
    zk_lock_label_t *label, int32_t version, ngx_str_t *gate);
static void ngx_http_zk_lock_claim_took_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_claim_took(ngx_http_zk_lock_claim_t *claim,
    zk_lock_label_t *label, int32_t version);
static ngx_http_zk_lock_claim_t *ngx_http_zk_lock_claim_same(
    ngx_http_zk_lock_worker_t *worker, ngx_str_t *path, zk_lock_child_t *child);
static ngx_http_zk_lock_claim_t *ngx_http_zk_lock_claim_enter(
    ngx_http_zk_lock_worker_t *worker, ngx_str_t *path,
    zk_lock_child_t *child, ngx_http_zk_lock_op_t *get,
    ngx_http_zk_lock_record_t *from, ngx_int_t *rc);
static ngx_http_zk_lock_claim_t *ngx_http_zk_lock_claim_copy(
    ngx_http_zk_lock_worker_t *worker, ngx_str_t *path,
    zk_lock_child_t *child, ngx_http_zk_lock_op_t *get,
    ngx_http_zk_lock_record_t *from, ngx_int_t *rc);
static void ngx_http_zk_lock_claim_labelled(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_op_t *get);


ngx_int_t
ngx_http_zk_lock_durable_ready(ngx_http_zk_lock_worker_t *worker,
    ngx_str_t *path, ngx_str_t *gate)
{
    ngx_int_t                 rc;
    ngx_str_t                 root;
    ngx_http_zk_lock_mark_t  *mark;

    rc = ngx_http_zk_lock_session_gated(worker->session, gate);
    if (rc != NGX_OK) {
        return rc;
    }

    root = ngx_http_zk_lock_durable_dir(path);

    mark = ngx_http_zk_lock_mark_get(worker, &root);
    if (mark == NULL) {
        return NGX_DECLINED;
    }

    if (mark->there) {
        return NGX_OK;
    }

    if (mark->op == NULL
        && (mark->refused == 0
            || ngx_current_msec - mark->refused
               >= NGX_HTTP_ZK_LOCK_MARK_AGAIN))
    {
        ngx_http_zk_lock_mark_send(mark, gate);
    }

    return mark->refused ? NGX_DECLINED : NGX_AGAIN;
}


/* NULL: no memory, or too many marks. */

static ngx_http_zk_lock_mark_t *
ngx_http_zk_lock_mark_get(ngx_http_zk_lock_worker_t *worker, ngx_str_t *root)
{
    ngx_uint_t                n;
    ngx_queue_t              *q;
    ngx_http_zk_lock_mark_t  *mark;

    n = 0;

    for (q = ngx_queue_head(&worker->marks);
         q != ngx_queue_sentinel(&worker->marks);
         q = ngx_queue_next(q))
    {
        mark = ngx_queue_data(q, ngx_http_zk_lock_mark_t, queue);

        if (mark->root.len == root->len
            && ngx_memcmp(mark->root.data, root->data, root->len) == 0)
        {
            return mark;
        }

        n++;
    }

    if (n >= NGX_HTTP_ZK_LOCK_MARKS_MAX) {
        return NULL;
    }

    mark = ngx_calloc(sizeof(ngx_http_zk_lock_mark_t) + root->len,
                      worker->log);
    if (mark == NULL) {
        return NULL;
    }

    mark->worker = worker;
    mark->root.len = root->len;
    mark->root.data = (u_char *) mark + sizeof(ngx_http_zk_lock_mark_t);
    ngx_memcpy(mark->root.data, root->data, root->len);

    ngx_queue_insert_tail(&worker->marks, &mark->queue);

    return mark;
}


/* The mark's name; buf has room for the longest one. */

static ngx_str_t
ngx_http_zk_lock_mark_name(ngx_http_zk_lock_mark_t *mark, ngx_str_t *gate,
    u_char *buf)
{
    u_char     *p;
    size_t      i;
    ngx_str_t   name;

    p = ngx_cpymem(buf, gate->data, gate->len);
    *p++ = '.';

    for (i = 0; i < mark->root.len; i++) {

        if (mark->root.data[i] == '/') {
            p = ngx_cpymem(p, "%2F", 3);

        } else if (mark->root.data[i] == '%') {
            p = ngx_cpymem(p, "%25", 3);

        } else {
            *p++ = mark->root.data[i];
        }
    }

    name.data = buf;
    name.len = p - buf;

    return name;
}


static void
ngx_http_zk_lock_mark_send(ngx_http_zk_lock_mark_t *mark, ngx_str_t *gate)
{
    ngx_str_t               name;
    ngx_http_zk_lock_op_t  *op;
    u_char                  buf[NGX_HTTP_ZK_LOCK_MARK_LEN];

    name = ngx_http_zk_lock_mark_name(mark, gate, buf);

    op = ngx_http_zk_lock_op_new(mark->worker->session,
                                 NGX_HTTP_ZK_LOCK_OP_PERSISTENT,
                                 &ngx_http_zk_lock_gates, &name, NULL);
    if (op == NULL) {
        return;
    }

    op->handler = ngx_http_zk_lock_mark_handler;
    op->data = mark;

    mark->op = op;

    ngx_http_zk_lock_session_send(op);
}


/*
 * The gate or a mark that is not in the list was removed, by an operator or by
 * another gateway, or a server has lost it: it is made again.  The list was
 * read behind the create of what is known to be there.
 */

void
ngx_http_zk_lock_durable_listed(ngx_http_zk_lock_worker_t *worker,
    ngx_str_t *names, ngx_uint_t n)
{
    ngx_str_t                 gate, name;
    ngx_queue_t              *q;
    ngx_http_zk_lock_mark_t  *mark;
    u_char                    buf[NGX_HTTP_ZK_LOCK_MARK_LEN];

    if (ngx_http_zk_lock_session_gated(worker->session, &gate) != NGX_OK) {
        return;
    }

    if (!ngx_http_zk_lock_durable_lists(names, n, &gate)) {
        ngx_http_zk_lock_session_ungated(worker->session);
        return;
    }

    for (q = ngx_queue_head(&worker->marks);
         q != ngx_queue_sentinel(&worker->marks);
         q = ngx_queue_next(q))
    {
        mark = ngx_queue_data(q, ngx_http_zk_lock_mark_t, queue);

        if (!mark->there) {
            continue;
        }

        name = ngx_http_zk_lock_mark_name(mark, &gate, buf);

        if (!ngx_http_zk_lock_durable_lists(names, n, &name)) {
            ngx_log_error(NGX_LOG_NOTICE, worker->log, 0,
                          "the mark of the durable leases below \"%V\" was "
                          "removed", &mark->root);

            mark->there = 0;
            ngx_http_zk_lock_mark_send(mark, &gate);
        }
    }
}


static ngx_uint_t
ngx_http_zk_lock_durable_lists(ngx_str_t *names, ngx_uint_t n, ngx_str_t *name)
{
    ngx_uint_t  i;

    for (i = 0; i < n; i++) {
        if (names[i].len == name->len
            && ngx_memcmp(names[i].data, name->data, name->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_http_zk_lock_mark_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_str_t                   dir;
    ngx_queue_t                *q, *next;
    ngx_http_zk_lock_lock_t    *lock;
    ngx_http_zk_lock_mark_t    *mark;
    ngx_http_zk_lock_worker_t  *worker;

    mark = op->data;
    mark->op = NULL;
    mark->refused = 0;

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
    case NGX_HTTP_ZK_LOCK_EXISTS:
        mark->there = 1;
        break;

    case NGX_HTTP_ZK_LOCK_UNSENT:
    case NGX_HTTP_ZK_LOCK_UNKNOWN:
        /* the sweep asks again */
        return;

    default:
        mark->refused = ngx_current_msec ? ngx_current_msec : 1;
        break;
    }

    worker = mark->worker;

    for (q = ngx_queue_head(&worker->active);
         q != ngx_queue_sentinel(&worker->active);
         q = next)
    {
        next = ngx_queue_next(q);
        lock = ngx_queue_data(q, ngx_http_zk_lock_lock_t, queue);
        dir = ngx_http_zk_lock_durable_dir(&lock->sn.str);

        if (dir.len == mark->root.len
            && ngx_memcmp(dir.data, mark->root.data, dir.len) == 0)
        {
            ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_marked);
        }
    }
}


/* Of "/a/b" that is "/a", of "/b" it is "/". */

static ngx_str_t
ngx_http_zk_lock_durable_dir(ngx_str_t *path)
{
    ngx_str_t  dir;

    dir = *path;

    while (dir.len > 1 && dir.data[dir.len - 1] != '/') {
        dir.len--;
    }

    if (dir.len > 1) {
        dir.len--;
    }

    return dir;
}


size_t
ngx_http_zk_lock_durable_root(u_char *buf, ngx_str_t *mark)
{
    u_char  *p, *src, *last;

    p = buf;
    src = mark->data + NGX_HTTP_ZK_LOCK_GATE_LEN + 1;
    last = mark->data + mark->len;

    while (src < last) {

        if (*src != '%') {
            *p++ = *src++;
            continue;
        }

        *p++ = (last - src > 2 && src[2] == 'F') ? '/' : '%';
        src += ngx_min(3, last - src);
    }

    return p - buf;
}


void
ngx_http_zk_lock_durable_lost(ngx_http_zk_lock_worker_t *worker)
{
    ngx_queue_t              *q;
    ngx_http_zk_lock_mark_t  *mark;

    while (!ngx_queue_empty(&worker->marks)) {
        q = ngx_queue_head(&worker->marks);
        ngx_queue_remove(q);

        mark = ngx_queue_data(q, ngx_http_zk_lock_mark_t, queue);

        if (mark->op != NULL) {
            mark->op->handler = NULL;
        }

        ngx_free(mark);
    }
}


ngx_uint_t
ngx_http_zk_lock_claim_ephemeral(ngx_http_zk_lock_claim_t *claim)
{
    return claim->state == NGX_HTTP_ZK_LOCK_HELD
           && !claim->durable && !claim->unfit && !claim->bound;
}


void
ngx_http_zk_lock_claim_marked(ngx_http_zk_lock_claim_t *claim)
{
    if (claim->state == NGX_HTTP_ZK_LOCK_TAKE) {
        ngx_http_zk_lock_claim_take(claim);

    } else if (claim->handler != NULL || claim->lock->worker->leaving) {
        ngx_http_zk_lock_claim_durable(claim);
    }
}


void
ngx_http_zk_lock_claim_durable(ngx_http_zk_lock_claim_t *claim)
{
    ngx_int_t                   rc;
    ngx_str_t                   gate;
    zk_lock_id_t                id;
    ngx_http_zk_lock_lock_t    *lock;
    ngx_http_zk_lock_worker_t  *worker;

    lock = claim->lock;
    worker = lock->worker;

    if (!ngx_http_zk_lock_claim_ephemeral(claim) || claim->share != NULL
        || lock->converting != NULL)
    {
        return;
    }

    rc = ngx_http_zk_lock_durable_ready(worker, &lock->sn.str, &gate);

    if (rc == NGX_DECLINED && claim->handler != NULL) {
        ngx_http_zk_lock_claim_disown(claim, NGX_HTTP_ZK_LOCK_DENIED);
        return;
    }

    if (rc != NGX_OK) {
        return;
    }

    id = ngx_http_zk_lock_claim_id(claim);

    claim->share = ngx_http_zk_lock_share(worker, &lock->sn.str, &id,
                                          claim->id.record, claim->entry.kind,
                                          claim->entry.seq, &gate,
                                          ngx_http_zk_lock_claim_made_durable,
                                          claim);

    if (claim->share != NULL) {
        lock->converting = claim;
        ngx_memcpy(claim->gate, gate.data, NGX_HTTP_ZK_LOCK_GATE_LEN);
    }
}


/*
 * Making a claim durable sets the lock's znode by the version that was read.
 * Two at once would refuse each other, so a worker makes the claims of a lock
 * durable one after the other.
 */

static void
ngx_http_zk_lock_claim_next_durable(ngx_http_zk_lock_claim_t *claim,
    ngx_int_t rc)
{
    ngx_queue_t               *q, *next;
    ngx_http_zk_lock_lock_t   *lock;
    ngx_http_zk_lock_claim_t  *other;

    lock = claim->lock;
    lock->converting = NULL;

    /* the sweep comes back to the claims before one that cannot be now */

    for (q = (rc == NGX_OK) ? ngx_queue_head(&lock->claims)
                            : ngx_queue_next(&claim->queue);
         q != ngx_queue_sentinel(&lock->claims) && lock->converting == NULL;
         q = next)
    {
        next = ngx_queue_next(q);
        other = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        if (ngx_http_zk_lock_claim_lasts(other)) {
            ngx_http_zk_lock_claim_durable(other);
        }
    }
}


static void
ngx_http_zk_lock_claim_made_durable(void *data, ngx_int_t rc)
{
    ngx_http_zk_lock_claim_t *claim = data;

    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;

    claim->share = NULL;
    claim->watched = 0;

    if (rc == NGX_OK) {
        ngx_http_zk_lock_claim_persists(claim);

    } else if (rc == NGX_ERROR) {
        ngx_log_error(NGX_LOG_WARN, lock->worker->log, 0,
                      "ZooKeeper refuses to make a lease of \"%V\" durable: "
                      "it ends with this worker's session", &lock->sn.str);

        claim->unfit = 1;
    }

    ngx_http_zk_lock_claim_next_durable(claim, rc);

    if (rc == NGX_DECLINED) {
        claim->outcome = NGX_HTTP_ZK_LOCK_CANCELLED;
        ngx_http_zk_lock_claim_changed(claim, 1);
        return;
    }

    /* it is not fleeting any more */

    ngx_http_zk_lock_claim_state(claim, claim->state);

    if (claim->ending) {
        claim->ending = 0;
        ngx_http_zk_lock_claim_end(claim, claim->outcome);
        return;
    }

    if (claim->handler != NULL && claim->unfit) {
        ngx_http_zk_lock_claim_disown(claim, NGX_HTTP_ZK_LOCK_DENIED);
        return;
    }

    if (claim->handler != NULL && claim->durable) {
        ngx_http_zk_lock_claim_tell_durable(claim);
        return;
    }

    ngx_http_zk_lock_claim_watch(claim);
    ngx_http_zk_lock_claim_lease(claim);
}


/* The claim is not an ephemeral znode of this session any more. */

static void
ngx_http_zk_lock_claim_persists(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_lock_t  *lock;

    if (claim->durable) {
        return;
    }

    claim->durable = 1;

    lock = claim->lock;

    ngx_http_zk_lock_session_unreserve(lock->worker->session,
                                    lock->sn.str.len + 1 + ZK_LOCK_CLAIM_MAX);
}


/* The znode is read, and watched if the session has room for a watch. */

static void
ngx_http_zk_lock_claim_watch(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;

    ngx_http_zk_lock_claim_reread(claim,
                ngx_http_zk_lock_session_may_watch(lock->worker->session,
                                    lock->sn.str.len + 1 + ZK_LOCK_CLAIM_MAX));
}


/* The client that waits for a durable claim is told; the lease begins. */

static void
ngx_http_zk_lock_claim_tell_durable(ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_t                  lease, now;
    ngx_http_zk_lock_worker_t  *worker;

    worker = claim->lock->worker;

    if (!ngx_http_zk_lock_session_alive(worker->session)) {

        /* another session may count the lease by now */

        ngx_http_zk_lock_claim_disown(claim, NGX_HTTP_ZK_LOCK_UNREACHABLE);
        return;
    }

    now = ngx_http_zk_lock_now();

    if (ngx_http_zk_lock_record_lease(worker->zone, claim->id.record, &lease)
        != NGX_OK
        || (ngx_msec_int_t) (now + claim->ttl - lease) > 0)
    {
        claim->lease = now + claim->ttl;

        ngx_http_zk_lock_record_keep(worker->zone, claim->id.record,
                                     claim->ttl, claim->lease);
    }

    ngx_http_zk_lock_claim_watch(claim);
    ngx_http_zk_lock_claim_lease(claim);

    if (claim->state == NGX_HTTP_ZK_LOCK_HELD) {
        ngx_http_zk_lock_claim_answer(claim, NGX_HTTP_ZK_LOCK_GRANTED);
    }
}


ngx_int_t
ngx_http_zk_lock_claim_outlives(ngx_http_zk_lock_claim_t *claim)
{
    ngx_uint_t  begun;

    begun = (claim->lock->converting == claim);

    switch (claim->state) {

    case NGX_HTTP_ZK_LOCK_DELETE:
    case NGX_HTTP_ZK_LOCK_OWED:

        if (!claim->durable) {
            return NGX_DECLINED;
        }

        /* an operation under way may have deleted the znode */

        claim->doubtful |= (claim->state == NGX_HTTP_ZK_LOCK_DELETE);
        ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_OWED);
        return NGX_OK;

    case NGX_HTTP_ZK_LOCK_TAKE:

        /* the watch went with the session */

        claim->watched = 0;
        return NGX_OK;

    case NGX_HTTP_ZK_LOCK_HELD:
    case NGX_HTTP_ZK_LOCK_LAPSE:

        if ((!claim->durable && !begun) || claim->entry.waiting) {
            return NGX_DECLINED;
        }

        ngx_http_zk_lock_claim_yield(claim);
        return NGX_OK;

    default:
        return NGX_DECLINED;
    }
}


void
ngx_http_zk_lock_claim_yield(ngx_http_zk_lock_claim_t *claim)
{
    zk_lock_kind_t              was;
    ngx_http_zk_lock_worker_t  *worker;

    worker = claim->lock->worker;

    /* a client that waited for a durable claim, or for its end, is told 503 */

    claim->ending |= !ngx_queue_empty(&claim->mourners)
                     || (claim->handler != NULL
                         && !ngx_http_zk_lock_claim_known(claim));

    if (claim->share != NULL) {
        ngx_http_zk_lock_share_free(claim->share);
        claim->share = NULL;
    }

    if (claim->lock->converting == claim) {
        claim->lock->converting = NULL;
    }

    if (claim->op != NULL) {
        claim->op->handler = NULL;
        claim->op = NULL;
    }

    if (claim->timer.timer_set) {
        ngx_del_timer(&claim->timer);
    }

    (void) ngx_http_zk_lock_record_ttl(worker->zone, claim->id.record, &was);

    claim->unshared = (was != claim->entry.kind);
    claim->watched = 0;
    claim->changed = 0;

    ngx_http_zk_lock_record_open(worker->zone, claim->id.record);
    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_TAKE);

    ngx_http_zk_lock_claim_answer(claim, NGX_HTTP_ZK_LOCK_UNREACHABLE);
}


ngx_uint_t
ngx_http_zk_lock_claim_taken(ngx_http_zk_lock_claim_t *claim,
    zk_lock_label_t *label)
{
    return claim->durable && label->index >= 0
           && (label->gate_len != NGX_HTTP_ZK_LOCK_GATE_LEN
               || ngx_memcmp(label->gate, claim->gate,
                             NGX_HTTP_ZK_LOCK_GATE_LEN)
                  != 0);
}


void
ngx_http_zk_lock_claim_take(ngx_http_zk_lock_claim_t *claim)
{
    zk_lock_kind_t              kind;
    ngx_http_zk_lock_op_t      *op;
    ngx_http_zk_lock_lock_t    *lock;
    ngx_http_zk_lock_worker_t  *worker;

    lock = claim->lock;
    worker = lock->worker;

    if (claim->op != NULL || claim->watched
        || !ngx_http_zk_lock_session_connected(worker->session))
    {
        return;
    }

    kind = claim->entry.kind;

    if (claim->unshared) {

        /* whether the znode got the new name is not known */

        (void) ngx_http_zk_lock_record_ttl(worker->zone, claim->id.record,
                                           &claim->entry.kind);
    }

    op = ngx_http_zk_lock_claim_op(claim, NGX_HTTP_ZK_LOCK_OP_GET, NULL,
                                   ngx_http_zk_lock_claim_take_handler);

    claim->entry.kind = kind;

    if (op == NULL) {
        return;
    }

    op->fresh = 1;
    op->watch = ngx_http_zk_lock_session_may_watch(worker->session,
                                    lock->sn.str.len + 1 + ZK_LOCK_CLAIM_MAX);

    ngx_http_zk_lock_session_send(op);
}


static void
ngx_http_zk_lock_claim_take_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    if (claim->state != NGX_HTTP_ZK_LOCK_TAKE) {
        return;
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE
        || (op->rc == NGX_HTTP_ZK_LOCK_OK && claim->lock->node
            && !ngx_http_zk_lock_node_of(claim, op)))
    {
        ngx_http_zk_lock_claim_take_missed(claim);

    } else if (op->rc == NGX_HTTP_ZK_LOCK_OK) {
        ngx_http_zk_lock_claim_take_read(claim, op);
    }

    /* else the sweep, or the next connection, tries again */
}


static void
ngx_http_zk_lock_claim_take_read(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_op_t *op)
{
    ngx_str_t                 gate;
    zk_lock_label_t           label;
    ngx_http_zk_lock_lock_t  *lock;

    lock = claim->lock;

    zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

    if (op->owner != 0) {

        /* it never became durable, and its session is over */

        return;
    }

    if (claim->ending) {

        /* it is deleted, whichever session counts its lease */

        claim->ending = 0;
        claim->lapsed = 0;
        ngx_http_zk_lock_claim_persists(claim);

        if (claim->unshared) {
            (void) ngx_http_zk_lock_record_ttl(lock->worker->zone,
                                               claim->id.record,
                                               &claim->entry.kind);
        }

        ngx_http_zk_lock_record_end(lock->worker->zone, claim->id.record);
        ngx_http_zk_lock_claim_delete(claim, 0);
        ngx_http_zk_lock_lock_removed(lock, &claim->entry);
        return;
    }

    if (label.index < 0 && label.revoke) {

        /* a Curator client has written its mark over the label */

        zk_lock_label_read(&label, (char *) claim->label, claim->label_len);
        label.ttl = claim->said.ttl ? (int64_t) claim->said.ttl : label.ttl;
        label.revoke = 1;
        label.mended = (uint32_t) ngx_random() | 1;

        ngx_http_zk_lock_record_label(lock->worker->zone, claim->id.record,
                                      &label);

        label.gate_len = NGX_HTTP_ZK_LOCK_GATE_LEN;
        ngx_memcpy(label.gate, claim->gate, NGX_HTTP_ZK_LOCK_GATE_LEN);
    }

    ngx_http_zk_lock_claim_persists(claim);

    if (ngx_http_zk_lock_durable_ready(lock->worker, &lock->sn.str, &gate)
        != NGX_OK)
    {
        return;
    }

    if (label.gate_len == NGX_HTTP_ZK_LOCK_GATE_LEN
        && ngx_memcmp(label.gate, gate.data, NGX_HTTP_ZK_LOCK_GATE_LEN) == 0)
    {
        /* the answer was lost when that was written */

        claim->watched = op->watch;
        ngx_memcpy(claim->gate, gate.data, NGX_HTTP_ZK_LOCK_GATE_LEN);

        ngx_http_zk_lock_claim_took(claim, &label, op->version);
        return;
    }

    if (ngx_http_zk_lock_claim_taken(claim, &label)) {

        /* another session counts its lease: the watch tells when that ends */

        claim->elsewhere = 1;
        claim->watched = op->watch;
        return;
    }

    ngx_http_zk_lock_claim_take_write(claim, &label, op->version, &gate);
}


/* The znode is not there, under that name. */

static void
ngx_http_zk_lock_claim_take_missed(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_worker_t  *worker;

    worker = claim->lock->worker;

    if (claim->unshared) {

        /* the znode got the new name, or is gone */

        claim->unshared = 0;
        ngx_http_zk_lock_record_named(worker->zone, claim->id.record,
                                      claim->entry.kind);
        ngx_http_zk_lock_claim_take(claim);
        return;
    }

    if (ngx_http_zk_lock_claim_renamed(claim) == NGX_OK) {
        ngx_http_zk_lock_claim_take(claim);
        return;
    }

    claim->lapsed = !claim->doubtful;
    ngx_http_zk_lock_claim_done(claim);
}


ngx_int_t
ngx_http_zk_lock_claim_renamed(ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_zone_t  *zone;

    if (!claim->durable || (claim->entry.kind != ZK_LOCK_MUTEX
                            && claim->entry.kind != ZK_LOCK_WRITE))
    {
        return NGX_DECLINED;
    }

    zone = claim->lock->worker->zone;

    claim->entry.kind = ZK_LOCK_READ;

    ngx_http_zk_lock_record_kind(zone, claim->id.record, ZK_LOCK_READ);
    ngx_http_zk_lock_record_named(zone, claim->id.record, ZK_LOCK_READ);

    return NGX_OK;
}


static void
ngx_http_zk_lock_claim_take_write(ngx_http_zk_lock_claim_t *claim,
    zk_lock_label_t *label, int32_t version, ngx_str_t *gate)
{
    char                      text[ZK_LOCK_LABEL_MAX];
    size_t                    index_at;
    ngx_str_t                 value;
    ngx_msec_t                ttl;
    zk_lock_kind_t            kind;
    ngx_http_zk_lock_op_t    *op;
    ngx_http_zk_lock_zone_t  *zone;

    zone = claim->lock->worker->zone;

    label->gate_len = NGX_HTTP_ZK_LOCK_GATE_LEN;
    ngx_memcpy(label->gate, gate->data, NGX_HTTP_ZK_LOCK_GATE_LEN);

    if (!claim->anew) {

        /* the record knows of renewals that the label does not have */

        ttl = ngx_http_zk_lock_record_ttl(zone, claim->id.record, NULL);

        label->ttl = ngx_max(label->ttl, (int64_t) ttl);
        label->holds = (uint32_t) ngx_http_zk_lock_record_holds(zone,
                                                            claim->id.record);
    }

    value.len = zk_lock_label_write(text, label, &index_at);
    value.data = (u_char *) text;

    kind = claim->entry.kind;

    if (claim->unshared) {
        (void) ngx_http_zk_lock_record_ttl(zone, claim->id.record,
                                           &claim->entry.kind);
    }

    op = ngx_http_zk_lock_claim_op(claim, NGX_HTTP_ZK_LOCK_OP_SET, &value,
                                   ngx_http_zk_lock_claim_took_handler);

    claim->entry.kind = kind;

    if (op != NULL) {
        op->version = version;
        ngx_http_zk_lock_session_send(op);
    }
}


static void
ngx_http_zk_lock_claim_took_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_str_t                  gate;
    zk_lock_label_t            label;
    ngx_http_zk_lock_claim_t  *claim;

    claim = op->data;
    claim->op = NULL;

    if (claim->state != NGX_HTTP_ZK_LOCK_TAKE) {
        return;
    }

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:

        if (ngx_http_zk_lock_session_gated(claim->lock->worker->session, &gate)
            != NGX_OK)
        {
            break;
        }

        zk_lock_label_read(&label, (char *) op->value.data, op->value.len);
        ngx_memcpy(claim->gate, label.gate, NGX_HTTP_ZK_LOCK_GATE_LEN);

        ngx_http_zk_lock_claim_took(claim, &label, op->version);
        break;

    case NGX_HTTP_ZK_LOCK_CHANGED:
    case NGX_HTTP_ZK_LOCK_NO_NODE:
        ngx_http_zk_lock_claim_take(claim);
        break;

    default:
        /* the sweep, or the next connection, tries again */
        break;
    }
}


/* This session counts the lease from now on. */

static void
ngx_http_zk_lock_claim_took(ngx_http_zk_lock_claim_t *claim,
    zk_lock_label_t *label, int32_t version)
{
    ngx_http_zk_lock_lock_t  *lock;
    ngx_http_zk_lock_zone_t  *zone;

    lock = claim->lock;
    zone = lock->worker->zone;

    ngx_http_zk_lock_record_regain(zone, claim->id.record, label,
                                   claim->anew);
    (void) ngx_http_zk_lock_record_renewed(zone, claim->id.record, version,
                                           label->renewals,
                                           (ngx_msec_t) label->ttl, 0);
    (void) ngx_http_zk_lock_record_said(zone, claim->id.record, &claim->said,
                                        label);

    claim->holds = ngx_http_zk_lock_record_holds(zone, claim->id.record);
    claim->granted = ngx_http_zk_lock_now();
    claim->anew = 0;
    claim->elsewhere = 0;
    claim->lapsed = 0;
    claim->vanished = 0;

    ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_HELD);

    ngx_log_error(NGX_LOG_INFO, lock->worker->log, 0,
                  "a durable lease of \"%V\" is counted by this worker",
                  &lock->sn.str);

    if (!claim->entry.linked) {

        /* a list puts it into the view */

        lock->partial = 1;
        ngx_http_zk_lock_lock_list(lock);
    }

    if (claim->unshared) {
        claim->unshared = 0;
        (void) ngx_http_zk_lock_record_ttl(zone, claim->id.record,
                                           &claim->entry.kind);
        ngx_http_zk_lock_claim_share(claim);
    }

    if (!claim->watched || label->want_len != 0) {

        /* what another gateway wants of the claim is read and done, too */

        ngx_http_zk_lock_claim_watch(claim);
    }

    ngx_http_zk_lock_claim_lease(claim);
}


ngx_int_t
ngx_http_zk_lock_claim_inherit(ngx_http_zk_lock_worker_t *worker,
    ngx_str_t *path, zk_lock_child_t *child, ngx_http_zk_lock_op_t *get)
{
    ngx_int_t                  rc;
    zk_lock_label_t            label;
    ngx_http_zk_lock_claim_t  *claim;

    zk_lock_label_read(&label, (char *) get->reply.data, get->reply.len);

    claim = ngx_http_zk_lock_claim_same(worker, path, child);

    if (claim != NULL) {

        if (claim->state == NGX_HTTP_ZK_LOCK_TAKE) {

            /* the session that was first is over as well */

            claim->anew |= (ngx_memcmp(claim->gate, label.gate,
                                       NGX_HTTP_ZK_LOCK_GATE_LEN)
                            != 0);
            claim->elsewhere = 0;
            claim->watched = 0;
            ngx_memcpy(claim->gate, label.gate, NGX_HTTP_ZK_LOCK_GATE_LEN);

            ngx_http_zk_lock_claim_take(claim);
        }

        return NGX_OK;
    }

    claim = ngx_http_zk_lock_claim_enter(worker, path, child, get, NULL, &rc);

    if (claim != NULL) {
        claim->anew = 1;
        ngx_http_zk_lock_claim_take(claim);
    }

    return rc;
}


ngx_int_t
ngx_http_zk_lock_claim_move(ngx_http_zk_lock_worker_t *worker,
    ngx_str_t *path, ngx_http_zk_lock_record_t *record,
    ngx_http_zk_lock_op_t *get, ngx_uint_t ending)
{
    ngx_int_t                  rc;
    zk_lock_child_t            child;
    ngx_http_zk_lock_claim_t  *claim;

    ngx_memzero(&child, sizeof(zk_lock_child_t));

    child.id = record->id;
    child.id.record = record->named;
    child.has_id = 1;
    child.seq = record->seq;
    child.kind = record->kind;

    if (ngx_http_zk_lock_claim_same(worker, path, &child) != NULL) {

        /* a scan has found the znode, and taken it over */

        return NGX_BUSY;
    }

    claim = ngx_http_zk_lock_claim_enter(worker, path, &child, get, record,
                                         &rc);

    if (claim != NULL) {
        claim->unshared = (record->was != record->kind);
        claim->ttl = record->ttl;
        claim->said.ttl = record->ttl;
        claim->ending = (ending != 0);
        claim->doubtful = (ending != 0);
        ngx_http_zk_lock_claim_take(claim);
    }

    return rc;
}


/* The claim of this worker that is that znode, under any record, or NULL. */

static ngx_http_zk_lock_claim_t *
ngx_http_zk_lock_claim_same(ngx_http_zk_lock_worker_t *worker, ngx_str_t *path,
    zk_lock_child_t *child)
{
    ngx_queue_t               *q;
    ngx_http_zk_lock_lock_t   *lock;
    ngx_http_zk_lock_claim_t  *claim;

    lock = ngx_http_zk_lock_lock_find(worker, path);

    if (lock == NULL) {
        return NULL;
    }

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        if (claim->entry.seq == child->seq
            && zk_lock_secret_equal(claim->id.random, child->id.random,
                                    ZK_LOCK_RANDOM_LEN))
        {
            return claim;
        }
    }

    return NULL;
}


/*
 * A claim in TAKE, of a znode that another worker has made; get has read it, or
 * is NULL.  Its record is `from`, which moves to this worker, or a new one.
 * Returns NULL if there is no room, or if the lock has another layout here.
 */

static ngx_http_zk_lock_claim_t *
ngx_http_zk_lock_claim_enter(ngx_http_zk_lock_worker_t *worker,
    ngx_str_t *path, zk_lock_child_t *child, ngx_http_zk_lock_op_t *get,
    ngx_http_zk_lock_record_t *from, ngx_int_t *rc)
{
    ngx_http_zk_lock_lock_t   *lock;
    ngx_http_zk_lock_claim_t  *claim;

    lock = ngx_http_zk_lock_lock_get(worker, path);
    if (lock == NULL) {
        *rc = NGX_ERROR;
        return NULL;
    }

    ngx_http_zk_lock_lock_pin(lock);

    claim = NULL;
    *rc = ngx_http_zk_lock_lock_layout(lock, child->kind == ZK_LOCK_NODE);

    if (*rc == NGX_OK) {
        claim = ngx_http_zk_lock_claim_copy(worker, path, child, get, from,
                                            rc);
    }

    if (claim != NULL) {
        claim->lock = lock;
        ngx_http_zk_lock_lock_join(lock, claim);

        worker->claims[claim->id.record] = claim;

        /* it may be in the view as another gateway's: a list tells */

        ngx_http_zk_lock_lock_forget(lock);

        ngx_http_zk_lock_claim_state(claim, NGX_HTTP_ZK_LOCK_TAKE);

        lock->partial = 1;
        ngx_http_zk_lock_lock_list(lock);
    }

    ngx_http_zk_lock_lock_unpin(lock);

    return claim;
}


/* The claim alone, with a record. */

static ngx_http_zk_lock_claim_t *
ngx_http_zk_lock_claim_copy(ngx_http_zk_lock_worker_t *worker, ngx_str_t *path,
    zk_lock_child_t *child, ngx_http_zk_lock_op_t *get,
    ngx_http_zk_lock_record_t *from, ngx_int_t *rc)
{
    size_t                     len;
    ngx_http_zk_lock_claim_t  *claim;

    len = get ? get->reply.len : 0;

    claim = ngx_calloc(sizeof(ngx_http_zk_lock_claim_t) + len, worker->log);
    if (claim == NULL) {
        *rc = NGX_ERROR;
        return NULL;
    }

    ngx_http_zk_lock_claim_labelled(claim, get);

    if (from != NULL) {
        claim->czxid = from->czxid;
        claim->index = from->index;
        claim->id.record = from->id.record;

        ngx_http_zk_lock_record_move(worker->zone, from->id.record, from->was);

    } else {
        *rc = ngx_http_zk_lock_record_adopt(worker->zone, path, child,
                                            claim->czxid, claim->index,
                                            &claim->id.record);
        if (*rc != NGX_OK) {
            ngx_free(claim);
            return NULL;
        }
    }

    claim->named = child->id.record;
    ngx_memcpy(claim->id.random, child->id.random, ZK_LOCK_RANDOM_LEN);
    claim->entry.kind = child->kind;
    claim->entry.seq = child->seq;
    claim->durable = 1;
    claim->state = NGX_HTTP_ZK_LOCK_DONE;
    claim->settled = 1;

    ngx_queue_init(&claim->mourners);

    ngx_http_zk_lock_worker_timer(worker, &claim->timer,
                                  ngx_http_zk_lock_claim_timer_handler);
    claim->timer.cancelable = 1;

    return claim;
}


/* What the data of its znode say; get may be NULL. */

static void
ngx_http_zk_lock_claim_labelled(ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_op_t *get)
{
    zk_lock_label_t  label;

    if (get == NULL) {
        return;
    }

    zk_lock_label_read(&label, (char *) get->reply.data, get->reply.len);

    claim->label_len = (uint16_t) get->reply.len;
    ngx_memcpy(claim->label, get->reply.data, get->reply.len);
    ngx_memcpy(claim->gate, label.gate, NGX_HTTP_ZK_LOCK_GATE_LEN);

    claim->czxid = label.czxid ? label.czxid : get->czxid;
    claim->index = (label.index > 0) ? label.index : 0;
    claim->ttl = (ngx_msec_t) label.ttl;
}


ngx_uint_t
ngx_http_zk_lock_claim_untaken(ngx_http_zk_lock_worker_t *worker,
    const u_char *gate)
{
    ngx_queue_t               *q;
    ngx_http_zk_lock_claim_t  *claim;

    for (q = ngx_queue_head(&worker->unsettled);
         q != ngx_queue_sentinel(&worker->unsettled);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, unsettled);

        if (((claim->state == NGX_HTTP_ZK_LOCK_TAKE && !claim->elsewhere)
             || (claim->durable && (claim->state == NGX_HTTP_ZK_LOCK_DELETE
                                    || claim->state == NGX_HTTP_ZK_LOCK_OWED)))
            && ngx_memcmp(claim->gate, gate, NGX_HTTP_ZK_LOCK_GATE_LEN) == 0)
        {
            return 1;
        }
    }

    return 0;
}
