
/*
 * Marks: how a mark is made, kept and named.  core/mark.h says what marks are
 * for; how a claim becomes durable is in core/claim.c.
 *
 * A worker has a list of marks, one for each root below which the worker has
 * made a lease durable since its session began; the end of the session frees
 * the list, because the next session has another gate.  A mark that ZooKeeper
 * refused is tried again after some time.
 *
 * Everything here runs on the event loop.  A mark's `op` is NULL unless the
 * create of the mark's znode is under way.
 */


#include "core/mark.h"


/* roots that a session marks at most, because a client may name roots */
#define ZKL_MARKS_MAX                 1024

/* how soon a mark that was refused is asked for again, milliseconds */
#define ZKL_MARK_AGAIN                10000

struct zkl_mark_s {
    ngx_queue_t                        queue;   /* worker->marks */
    zkl_worker_t                      *worker;
    zkl_op_t                          *op;      /* the create, or NULL */
    ngx_msec_t                         refused; /* when; 0: not refused */
    ngx_str_t                          root;
    unsigned                           there:1;
};


static zkl_mark_t *zkl_mark_get(zkl_worker_t *worker, ngx_str_t *root);
static ngx_str_t zkl_mark_name(zkl_mark_t *mark, ngx_str_t *gate, u_char *buf);
static void zkl_mark_send(zkl_mark_t *mark, ngx_str_t *gate);
static ngx_uint_t zkl_mark_lists(ngx_str_t *names, ngx_uint_t n,
    ngx_str_t *name);
static void zkl_mark_handler(zkl_op_t *op);
static ngx_str_t zkl_mark_dir(ngx_str_t *path);


ngx_int_t
zkl_mark_ready(zkl_worker_t *worker, ngx_str_t *path, ngx_str_t *gate)
{
    ngx_int_t    rc;
    ngx_str_t    root;
    zkl_mark_t  *mark;

    rc = zkl_session_gated(worker->session, gate);
    if (rc != NGX_OK) {
        return rc;
    }

    root = zkl_mark_dir(path);

    mark = zkl_mark_get(worker, &root);
    if (mark == NULL) {
        return NGX_DECLINED;
    }

    if (mark->there) {
        return NGX_OK;
    }

    if (mark->op == NULL
        && (mark->refused == 0
            || ngx_current_msec - mark->refused
               >= ZKL_MARK_AGAIN))
    {
        zkl_mark_send(mark, gate);
    }

    return mark->refused ? NGX_DECLINED : NGX_AGAIN;
}


/* NULL: no memory, or too many marks. */

static zkl_mark_t *
zkl_mark_get(zkl_worker_t *worker, ngx_str_t *root)
{
    ngx_uint_t    n;
    ngx_queue_t  *q;
    zkl_mark_t   *mark;

    n = 0;

    for (q = ngx_queue_head(&worker->marks);
         q != ngx_queue_sentinel(&worker->marks);
         q = ngx_queue_next(q))
    {
        mark = ngx_queue_data(q, zkl_mark_t, queue);

        if (mark->root.len == root->len
            && ngx_memcmp(mark->root.data, root->data, root->len) == 0)
        {
            return mark;
        }

        n++;
    }

    if (n >= ZKL_MARKS_MAX) {
        return NULL;
    }

    mark = ngx_calloc(sizeof(zkl_mark_t) + root->len, worker->log);
    if (mark == NULL) {
        return NULL;
    }

    mark->worker = worker;
    mark->root.len = root->len;
    mark->root.data = (u_char *) mark + sizeof(zkl_mark_t);
    ngx_memcpy(mark->root.data, root->data, root->len);

    ngx_queue_insert_tail(&worker->marks, &mark->queue);

    return mark;
}


/* Writes the mark's name to buf, which has room for the longest name. */

static ngx_str_t
zkl_mark_name(zkl_mark_t *mark, ngx_str_t *gate, u_char *buf)
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
zkl_mark_send(zkl_mark_t *mark, ngx_str_t *gate)
{
    ngx_str_t  name;
    zkl_op_t  *op;
    u_char     buf[ZKL_MARK_LEN];

    name = zkl_mark_name(mark, gate, buf);

    op = zkl_op_new(mark->worker->session, ZKL_OP_PERSISTENT, &zkl_gates,
                    &name, NULL);
    if (op == NULL) {
        return;
    }

    op->handler = zkl_mark_handler;
    op->data = mark;

    mark->op = op;

    zkl_session_send(op);
}


/*
 * An operator or another gateway has removed the gate or a mark that is not in
 * the list, or a server has lost that znode: makes the znode again.  The list
 * was read behind the create of each mark that is known to exist.
 */

void
zkl_mark_listed(zkl_worker_t *worker, ngx_str_t *names, ngx_uint_t n)
{
    ngx_str_t     gate, name;
    ngx_queue_t  *q;
    zkl_mark_t   *mark;
    u_char        buf[ZKL_MARK_LEN];

    if (zkl_session_gated(worker->session, &gate) != NGX_OK) {
        return;
    }

    if (!zkl_mark_lists(names, n, &gate)) {
        zkl_session_ungated(worker->session);
        return;
    }

    for (q = ngx_queue_head(&worker->marks);
         q != ngx_queue_sentinel(&worker->marks);
         q = ngx_queue_next(q))
    {
        mark = ngx_queue_data(q, zkl_mark_t, queue);

        if (!mark->there) {
            continue;
        }

        name = zkl_mark_name(mark, &gate, buf);

        if (!zkl_mark_lists(names, n, &name)) {
            ngx_log_error(NGX_LOG_NOTICE, worker->log, 0,
                          "the mark of the durable leases below \"%V\" was "
                          "removed", &mark->root);

            mark->there = 0;
            zkl_mark_send(mark, &gate);
        }
    }
}


static ngx_uint_t
zkl_mark_lists(ngx_str_t *names, ngx_uint_t n, ngx_str_t *name)
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
zkl_mark_handler(zkl_op_t *op)
{
    ngx_str_t      dir;
    ngx_queue_t   *q, *next;
    zkl_lock_t    *lock;
    zkl_mark_t    *mark;
    zkl_worker_t  *worker;

    mark = op->data;
    mark->op = NULL;
    mark->refused = 0;

    switch (op->rc) {

    case ZKL_OK:
    case ZKL_EXISTS:
        mark->there = 1;
        break;

    case ZKL_UNSENT:
    case ZKL_UNKNOWN:
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
        lock = ngx_queue_data(q, zkl_lock_t, queue);
        dir = zkl_mark_dir(&lock->sn.str);

        if (dir.len == mark->root.len
            && ngx_memcmp(dir.data, mark->root.data, dir.len) == 0)
        {
            zkl_lock_tell(lock, zkl_claim_marked);
        }
    }
}


/* The parent of path: "/a" of "/a/b", and "/" of "/b". */

static ngx_str_t
zkl_mark_dir(ngx_str_t *path)
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
zkl_mark_root(u_char *buf, ngx_str_t *mark)
{
    u_char  *p, *src, *last;

    p = buf;
    src = mark->data + ZKL_GATE_LEN + 1;
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
zkl_mark_lost(zkl_worker_t *worker)
{
    ngx_queue_t  *q;
    zkl_mark_t   *mark;

    while (!ngx_queue_empty(&worker->marks)) {
        q = ngx_queue_head(&worker->marks);
        ngx_queue_remove(q);

        mark = ngx_queue_data(q, zkl_mark_t, queue);

        if (mark->op != NULL) {
            mark->op->handler = NULL;
        }

        ngx_free(mark);
    }
}
