
/*
 * The scan: durable claims whose gateway is gone.
 *
 * Each worker watches the list of the gates.  A mark without a gate is of a
 * session that is over: below the mark's root there may be claims whose leases
 * no session counts.  The workers of all gateways see this at the same moment.
 * So each worker waits first: a worker that lost its session takes its own
 * claims back in that time.  The worker waits longer the more gates there are
 * before its own gate, so that mostly one worker scans.  That worker lists all
 * locks of the root, reads their claims, and takes the claims over that name a
 * gate that is gone.  The mark is removed when a scan finds no such claim any
 * more: a claim that nobody has taken over would stay for ever without it.  If
 * two workers scan at once, each claim goes to one of them, by the version of
 * the claim's data.
 *
 * A mark and its gate are listed together, and the gate is made before the
 * mark: so a gate that is missing there never comes back.
 *
 *   IDLE    the gates are listed, if something has changed
 *   WAIT    a mark has no gate; a timer looks again
 *   ROOT    the locks of the root are listed
 *   LOCKS   their claims are listed and read
 *   TAKE    the claims that were found are in TAKE; then the root is scanned
 *           again, and the mark removed if none was found
 *
 * A mark whose scan fails is scanned again after the other marks, less and less
 * often.  Everything here runs on the event loop.  `pending` counts the reads
 * of the run that is under way; the run ends when `pending` is 0.  `names` is
 * NULL but in LOCKS.
 */


#include "ngx_http_zk_lock_scan.h"


/* time for a worker that lost its session to take its claims back, ms */
#define NGX_HTTP_ZK_LOCK_SCAN_FIRST   500

/* how much longer for each gate before the own gate; and at most */
#define NGX_HTTP_ZK_LOCK_SCAN_RANK    250
#define NGX_HTTP_ZK_LOCK_SCAN_LAST    5000

/* how soon a takeover is looked at again, and for how long */
#define NGX_HTTP_ZK_LOCK_SCAN_AGAIN   100
#define NGX_HTTP_ZK_LOCK_SCAN_TAKES   5000

/* how soon a scan that failed begins again; twice that the next time */
#define NGX_HTTP_ZK_LOCK_SCAN_RETRY   5000
#define NGX_HTTP_ZK_LOCK_SCAN_RARELY  300000

/* so often in a row claims are found before the scan pauses */
#define NGX_HTTP_ZK_LOCK_SCAN_RUNS    4

/* with so many reads under way the next lock is not listed yet */
#define NGX_HTTP_ZK_LOCK_SCAN_READS   32


typedef enum {
    NGX_HTTP_ZK_LOCK_SCAN_IDLE = 0,
    NGX_HTTP_ZK_LOCK_SCAN_WAIT,
    NGX_HTTP_ZK_LOCK_SCAN_ROOT,
    NGX_HTTP_ZK_LOCK_SCAN_LOCKS,
    NGX_HTTP_ZK_LOCK_SCAN_TAKE
} ngx_http_zk_lock_scan_state_e;


struct ngx_http_zk_lock_scan_s {
    ngx_http_zk_lock_worker_t      *worker;
    ngx_event_t                     timer;
    ngx_http_zk_lock_scan_state_e   state;

    ngx_http_zk_lock_op_t          *list;       /* of the gates, or NULL */
    u_char                          gate[NGX_HTTP_ZK_LOCK_GATE_LEN];
                                                /* of a mark, which is gone */
    ngx_msec_t                      since;      /* a mark of it was seen */
    ngx_msec_t                      wait;       /* so long it is waited */
    ngx_msec_t                      taking;     /* since then */
    ngx_uint_t                      failures;   /* in a row */
    ngx_uint_t                      runs;       /* for that mark, in a row */

    ngx_str_t                       mark;       /* the one that is looked for */
    ngx_str_t                       root;       /* its root */
    u_char                         *block;      /* what these are in */

    ngx_str_t                      *names;      /* of the root's locks */
    ngx_uint_t                      nnames;
    ngx_uint_t                      next;
    ngx_uint_t                      pending;    /* reads under way */

    unsigned                        again:1;    /* the list changed since */
    unsigned                        failed:1;   /* not all could be read */
    unsigned                        found:1;    /* a claim of that gate */
};


static void ngx_http_zk_lock_scan_timer_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_scan_after(ngx_http_zk_lock_scan_t *scan,
    ngx_msec_t wait);
static void ngx_http_zk_lock_scan_gates_handler(ngx_http_zk_lock_op_t *op);
static ngx_str_t *ngx_http_zk_lock_scan_orphan(ngx_http_zk_lock_op_t *op,
    ngx_str_t *after);
static int ngx_libc_cdecl ngx_http_zk_lock_scan_compare(const void *one,
    const void *two);
static ngx_uint_t ngx_http_zk_lock_scan_rank(ngx_http_zk_lock_scan_t *scan,
    ngx_http_zk_lock_op_t *op);
static ngx_int_t ngx_http_zk_lock_scan_begin(ngx_http_zk_lock_scan_t *scan,
    ngx_str_t *mark);
static ngx_http_zk_lock_op_t *ngx_http_zk_lock_scan_op(
    ngx_http_zk_lock_scan_t *scan, ngx_http_zk_lock_op_e type, ngx_str_t *dir,
    ngx_str_t *name, ngx_http_zk_lock_op_pt handler);
static void ngx_http_zk_lock_scan_root_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_scan_go(ngx_http_zk_lock_scan_t *scan);
static ngx_str_t ngx_http_zk_lock_scan_path(ngx_http_zk_lock_scan_t *scan,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_scan_lock_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_scan_claims(ngx_http_zk_lock_scan_t *scan,
    ngx_str_t *path, ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_scan_claim_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_scan_node_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_scan_claim(ngx_http_zk_lock_scan_t *scan,
    ngx_str_t *path, zk_lock_child_t *child, ngx_http_zk_lock_op_t *get);
static void ngx_http_zk_lock_scan_done(ngx_http_zk_lock_scan_t *scan);
static void ngx_http_zk_lock_scan_removed_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_scan_failed(ngx_http_zk_lock_scan_t *scan);
static void ngx_http_zk_lock_scan_end(ngx_http_zk_lock_scan_t *scan);


ngx_http_zk_lock_scan_t *
ngx_http_zk_lock_scan_new(ngx_http_zk_lock_worker_t *worker)
{
    ngx_http_zk_lock_scan_t  *scan;

    scan = ngx_calloc(sizeof(ngx_http_zk_lock_scan_t), worker->log);
    if (scan == NULL) {
        return NULL;
    }

    scan->worker = worker;

    ngx_http_zk_lock_worker_timer(worker, &scan->timer,
                                  ngx_http_zk_lock_scan_timer_handler);
    scan->timer.cancelable = 1;

    return scan;
}


void
ngx_http_zk_lock_scan_free(ngx_http_zk_lock_scan_t *scan)
{
    ngx_http_zk_lock_scan_end(scan);

    if (scan->timer.timer_set) {
        ngx_del_timer(&scan->timer);
    }

    ngx_free(scan);
}


void
ngx_http_zk_lock_scan_listed(ngx_http_zk_lock_scan_t *scan, ngx_str_t *path)
{
    if (path->len == ngx_http_zk_lock_gates.len
        && ngx_memcmp(path->data, ngx_http_zk_lock_gates.data, path->len) == 0)
    {
        ngx_http_zk_lock_scan_look(scan);
    }
}


static void
ngx_http_zk_lock_scan_timer_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_scan_t  *scan;

    scan = ngx_queue_data(ev, ngx_http_zk_lock_scan_t, timer);

    if (scan->state == NGX_HTTP_ZK_LOCK_SCAN_TAKE) {
        ngx_http_zk_lock_scan_done(scan);
        return;
    }

    ngx_http_zk_lock_scan_look(scan);
}


static void
ngx_http_zk_lock_scan_after(ngx_http_zk_lock_scan_t *scan, ngx_msec_t wait)
{
    if (scan->timer.timer_set) {
        ngx_del_timer(&scan->timer);
    }

    ngx_add_timer(&scan->timer, wait);
}


void
ngx_http_zk_lock_scan_look(ngx_http_zk_lock_scan_t *scan)
{
    ngx_http_zk_lock_op_t  *op;

    if (scan->list != NULL || scan->state > NGX_HTTP_ZK_LOCK_SCAN_WAIT) {
        scan->again = 1;
        return;
    }

    scan->again = 0;

    if (scan->worker->leaving
        || !ngx_http_zk_lock_session_connected(scan->worker->session))
    {
        return;
    }

    op = ngx_http_zk_lock_op_new(scan->worker->session,
                                 NGX_HTTP_ZK_LOCK_OP_LIST,
                                 &ngx_http_zk_lock_gates, NULL, NULL);
    if (op == NULL) {
        ngx_http_zk_lock_scan_after(scan, NGX_HTTP_ZK_LOCK_SCAN_RETRY);
        return;
    }

    op->watch = 1;
    op->handler = ngx_http_zk_lock_scan_gates_handler;
    op->data = scan;

    scan->list = op;

    ngx_http_zk_lock_session_send(op);
}


static void
ngx_http_zk_lock_scan_gates_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_str_t                *mark;
    ngx_msec_t                wait;
    ngx_http_zk_lock_scan_t  *scan;

    scan = op->data;
    scan->list = NULL;

    if (op->rc != NGX_HTTP_ZK_LOCK_OK) {

        /* there is no gate so far, or the next connection looks again */

        ngx_http_zk_lock_scan_after(scan, NGX_HTTP_ZK_LOCK_SCAN_RETRY);
        return;
    }

    ngx_http_zk_lock_durable_listed(scan->worker, op->children,
                                    op->nchildren);

    if (op->nchildren != 0) {
        ngx_qsort(op->children, op->nchildren, sizeof(ngx_str_t),
                  ngx_http_zk_lock_scan_compare);
    }

    /* the mark that failed is not tried again before other marks */

    mark = NULL;

    if (scan->failed && scan->mark.len != 0) {
        mark = ngx_http_zk_lock_scan_orphan(op, &scan->mark);
    }

    if (mark == NULL) {
        mark = ngx_http_zk_lock_scan_orphan(op, NULL);
    }

    if (mark == NULL) {
        scan->state = NGX_HTTP_ZK_LOCK_SCAN_IDLE;
        scan->failures = 0;
        ngx_http_zk_lock_scan_end(scan);

        if (scan->again) {
            ngx_http_zk_lock_scan_look(scan);
        }

        return;
    }

    if (scan->state == NGX_HTTP_ZK_LOCK_SCAN_IDLE
        || ngx_memcmp(scan->gate, mark->data, NGX_HTTP_ZK_LOCK_GATE_LEN) != 0)
    {
        ngx_memcpy(scan->gate, mark->data, NGX_HTTP_ZK_LOCK_GATE_LEN);

        scan->state = NGX_HTTP_ZK_LOCK_SCAN_WAIT;
        scan->since = ngx_current_msec;
        scan->wait = NGX_HTTP_ZK_LOCK_SCAN_FIRST
                     + NGX_HTTP_ZK_LOCK_SCAN_RANK
                       * ngx_http_zk_lock_scan_rank(scan, op);
        scan->wait = ngx_min(scan->wait, NGX_HTTP_ZK_LOCK_SCAN_LAST);
    }

    wait = ngx_current_msec - scan->since;

    if (wait < scan->wait) {
        ngx_http_zk_lock_scan_after(scan, scan->wait - wait);
        return;
    }

    if (ngx_http_zk_lock_scan_begin(scan, mark) != NGX_OK) {
        ngx_http_zk_lock_scan_failed(scan);
    }
}


/*
 * The first mark whose gate is not in the list, or the first behind `after`.
 * The list is sorted: a gate's marks, which begin with its name, come next.
 */

static ngx_str_t *
ngx_http_zk_lock_scan_orphan(ngx_http_zk_lock_op_t *op, ngx_str_t *after)
{
    ngx_str_t   *name, *gate;
    ngx_uint_t   i;

    gate = NULL;

    for (i = 0; i < op->nchildren; i++) {
        name = &op->children[i];

        if (name->len == NGX_HTTP_ZK_LOCK_GATE_LEN) {
            gate = name;
            continue;
        }

        if (name->len <= NGX_HTTP_ZK_LOCK_GATE_LEN + 1
            || name->data[NGX_HTTP_ZK_LOCK_GATE_LEN] != '.')
        {
            continue;
        }

        if (gate != NULL
            && ngx_memcmp(gate->data, name->data, NGX_HTTP_ZK_LOCK_GATE_LEN)
               == 0)
        {
            continue;
        }

        if (after == NULL || ngx_http_zk_lock_scan_compare(name, after) > 0) {
            return name;
        }
    }

    return NULL;
}


static int ngx_libc_cdecl
ngx_http_zk_lock_scan_compare(const void *one, const void *two)
{
    int               rc;
    const ngx_str_t  *a, *b;

    a = one;
    b = two;

    rc = ngx_memcmp(a->data, b->data, ngx_min(a->len, b->len));

    return (rc != 0) ? rc : (a->len > b->len) - (a->len < b->len);
}


/* The number of gates before the gate of this worker. */

static ngx_uint_t
ngx_http_zk_lock_scan_rank(ngx_http_zk_lock_scan_t *scan,
    ngx_http_zk_lock_op_t *op)
{
    ngx_str_t   gate;
    ngx_uint_t  i, rank;

    rank = 0;

    if (ngx_http_zk_lock_session_gated(scan->worker->session, &gate)
        != NGX_OK)
    {
        return op->nchildren;
    }

    for (i = 0; i < op->nchildren; i++) {
        rank += op->children[i].len == NGX_HTTP_ZK_LOCK_GATE_LEN
                && ngx_memcmp(op->children[i].data, gate.data,
                              NGX_HTTP_ZK_LOCK_GATE_LEN)
                   < 0;
    }

    return rank;
}


static ngx_int_t
ngx_http_zk_lock_scan_begin(ngx_http_zk_lock_scan_t *scan, ngx_str_t *mark)
{
    u_char                 *p;
    ngx_http_zk_lock_op_t  *op;

    p = ngx_alloc(2 * mark->len, scan->worker->log);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_http_zk_lock_scan_end(scan);

    scan->block = p;
    scan->mark.data = p;
    scan->mark.len = mark->len;
    p = ngx_cpymem(p, mark->data, mark->len);

    scan->root.data = p;
    scan->root.len = ngx_http_zk_lock_durable_root(p, &scan->mark);

    if (zk_lock_path_check((char *) scan->root.data, scan->root.len) != NULL) {

        /* a person's */

        return NGX_ERROR;
    }

    op = ngx_http_zk_lock_scan_op(scan, NGX_HTTP_ZK_LOCK_OP_LIST, &scan->root,
                                  NULL, ngx_http_zk_lock_scan_root_handler);
    if (op == NULL) {
        return NGX_ERROR;
    }

    scan->state = NGX_HTTP_ZK_LOCK_SCAN_ROOT;

    return NGX_OK;
}


static ngx_http_zk_lock_op_t *
ngx_http_zk_lock_scan_op(ngx_http_zk_lock_scan_t *scan,
    ngx_http_zk_lock_op_e type, ngx_str_t *dir, ngx_str_t *name,
    ngx_http_zk_lock_op_pt handler)
{
    ngx_http_zk_lock_op_t  *op;

    op = ngx_http_zk_lock_op_new(scan->worker->session, type, dir, name, NULL);
    if (op == NULL) {
        scan->failed = 1;
        return NULL;
    }

    op->handler = handler;
    op->data = scan;

    scan->pending++;

    ngx_http_zk_lock_session_send(op);

    return op;
}


static void
ngx_http_zk_lock_scan_root_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_scan_t  *scan;

    scan = op->data;
    scan->pending--;

    if (op->rc == NGX_HTTP_ZK_LOCK_OK) {

        /* they are the scan's from now on */

        scan->names = op->children;
        scan->nnames = op->nchildren;

        op->children = NULL;
        op->nchildren = 0;

    } else if (op->rc != NGX_HTTP_ZK_LOCK_NO_NODE) {
        scan->failed = 1;
    }

    scan->next = 0;
    scan->state = NGX_HTTP_ZK_LOCK_SCAN_LOCKS;

    ngx_http_zk_lock_scan_go(scan);
}


static void
ngx_http_zk_lock_scan_go(ngx_http_zk_lock_scan_t *scan)
{
    ngx_str_t  *name;

    while (scan->next < scan->nnames
           && scan->pending < NGX_HTTP_ZK_LOCK_SCAN_READS
           && ngx_http_zk_lock_session_connected(scan->worker->session))
    {
        name = &scan->names[scan->next++];

        if (scan->root.len + 1 + name->len <= ZK_LOCK_PATH_MAX) {
            (void) ngx_http_zk_lock_scan_op(scan, NGX_HTTP_ZK_LOCK_OP_LIST,
                                        &scan->root, name,
                                        ngx_http_zk_lock_scan_lock_handler);
        }
    }

    if (scan->pending == 0) {
        scan->failed |= (scan->next < scan->nnames);
        scan->taking = ngx_current_msec;
        scan->state = NGX_HTTP_ZK_LOCK_SCAN_TAKE;
        ngx_http_zk_lock_scan_done(scan);
    }
}


/* An operation's path without the chroot: op->path is the library's. */

static ngx_str_t
ngx_http_zk_lock_scan_path(ngx_http_zk_lock_scan_t *scan,
    ngx_http_zk_lock_op_t *op)
{
    ngx_str_t  path;

    path.data = op->path.data + scan->worker->conf->chroot.len;
    path.len = op->path.len - scan->worker->conf->chroot.len;

    return path;
}


static void
ngx_http_zk_lock_scan_lock_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_str_t                 path;
    ngx_http_zk_lock_scan_t  *scan;

    scan = op->data;
    scan->pending--;

    if (op->rc == NGX_HTTP_ZK_LOCK_OK) {
        path = ngx_http_zk_lock_scan_path(scan, op);
        ngx_http_zk_lock_scan_claims(scan, &path, op);

    } else if (op->rc != NGX_HTTP_ZK_LOCK_NO_NODE) {
        scan->failed = 1;
    }

    ngx_http_zk_lock_scan_go(scan);
}


/*
 * Reads all claims of a lock, and not only the holders: a claim that is about
 * to be deleted may be ahead of a holder.  A znode without children may be the
 * claim itself.
 */

static void
ngx_http_zk_lock_scan_claims(ngx_http_zk_lock_scan_t *scan, ngx_str_t *path,
    ngx_http_zk_lock_op_t *op)
{
    ngx_uint_t       i;
    zk_lock_child_t  child;

    if (op->nchildren == 0) {
        (void) ngx_http_zk_lock_scan_op(scan, NGX_HTTP_ZK_LOCK_OP_GET, path,
                                        NULL,
                                        ngx_http_zk_lock_scan_node_handler);
        return;
    }

    for (i = 0; i < op->nchildren; i++) {

        if (zk_lock_child_read(&child, (char *) op->children[i].data,
                               op->children[i].len)
            == 0
            && child.has_id)
        {
            (void) ngx_http_zk_lock_scan_op(scan, NGX_HTTP_ZK_LOCK_OP_GET,
                                        path, &op->children[i],
                                        ngx_http_zk_lock_scan_claim_handler);
        }
    }
}


static void
ngx_http_zk_lock_scan_claim_handler(ngx_http_zk_lock_op_t *op)
{
    u_char                   *p;
    ngx_str_t                 path;
    zk_lock_child_t           child;
    ngx_http_zk_lock_scan_t  *scan;

    scan = op->data;

    path = ngx_http_zk_lock_scan_path(scan, op);

    for (p = path.data + path.len; p[-1] != '/'; p--) {
        /* void */
    }

    if (zk_lock_child_read(&child, (char *) p, path.data + path.len - p) == 0)
    {
        path.len = p - 1 - path.data;
        ngx_http_zk_lock_scan_claim(scan, &path, &child, op);
    }

    scan->pending--;
    ngx_http_zk_lock_scan_go(scan);
}


static void
ngx_http_zk_lock_scan_node_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_str_t                 path;
    zk_lock_child_t           child;
    zk_lock_label_t           label;
    ngx_http_zk_lock_scan_t  *scan;

    scan = op->data;

    path = ngx_http_zk_lock_scan_path(scan, op);

    zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

    if (op->rc != NGX_HTTP_ZK_LOCK_OK || label.has_id) {
        ngx_memzero(&child, sizeof(zk_lock_child_t));

        child.id = label.id;
        child.has_id = 1;
        child.kind = ZK_LOCK_NODE;

        ngx_http_zk_lock_scan_claim(scan, &path, &child, op);
    }

    scan->pending--;
    ngx_http_zk_lock_scan_go(scan);
}


/* Takes over the claim that get has read, if its label names the gate. */

static void
ngx_http_zk_lock_scan_claim(ngx_http_zk_lock_scan_t *scan, ngx_str_t *path,
    zk_lock_child_t *child, ngx_http_zk_lock_op_t *get)
{
    zk_lock_label_t  label;

    if (get->rc != NGX_HTTP_ZK_LOCK_OK) {
        scan->failed |= (get->rc != NGX_HTTP_ZK_LOCK_NO_NODE);
        return;
    }

    zk_lock_label_read(&label, (char *) get->reply.data, get->reply.len);

    if (get->owner != 0 || label.gate_len != NGX_HTTP_ZK_LOCK_GATE_LEN
        || ngx_memcmp(label.gate, scan->mark.data, NGX_HTTP_ZK_LOCK_GATE_LEN)
           != 0)
    {
        return;
    }

    scan->found = 1;

    if (ngx_http_zk_lock_claim_inherit(scan->worker, path, child, get)
        != NGX_OK)
    {
        scan->failed = 1;
    }
}


/*
 * All claims were read.  The root is scanned again when they are taken over, by
 * this worker or another one, and the mark is removed if that finds nothing.
 */

static void
ngx_http_zk_lock_scan_done(ngx_http_zk_lock_scan_t *scan)
{
    if (scan->failed
        || !ngx_http_zk_lock_session_connected(scan->worker->session)
        || ngx_current_msec - scan->taking >= NGX_HTTP_ZK_LOCK_SCAN_TAKES)
    {
        ngx_http_zk_lock_scan_failed(scan);
        return;
    }

    if (ngx_http_zk_lock_claim_untaken(scan->worker, scan->mark.data)) {
        ngx_http_zk_lock_scan_after(scan, NGX_HTTP_ZK_LOCK_SCAN_AGAIN);
        return;
    }

    if (scan->found) {

        if (++scan->runs >= NGX_HTTP_ZK_LOCK_SCAN_RUNS) {
            scan->runs = 0;
            ngx_http_zk_lock_scan_failed(scan);
            return;
        }

        scan->state = NGX_HTTP_ZK_LOCK_SCAN_WAIT;
        ngx_http_zk_lock_scan_look(scan);
        return;
    }

    if (ngx_http_zk_lock_scan_op(scan, NGX_HTTP_ZK_LOCK_OP_DELETE,
                                 &ngx_http_zk_lock_gates, &scan->mark,
                                 ngx_http_zk_lock_scan_removed_handler)
        == NULL)
    {
        ngx_http_zk_lock_scan_failed(scan);
    }
}


static void
ngx_http_zk_lock_scan_removed_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_scan_t  *scan;

    scan = op->data;
    scan->pending--;

    if (op->rc != NGX_HTTP_ZK_LOCK_OK && op->rc != NGX_HTTP_ZK_LOCK_NO_NODE) {
        ngx_http_zk_lock_scan_failed(scan);
        return;
    }

    /* the next mark may be of the same gate: then the wait is over */

    scan->failures = 0;
    scan->runs = 0;
    scan->state = NGX_HTTP_ZK_LOCK_SCAN_WAIT;
    ngx_http_zk_lock_scan_end(scan);
    ngx_http_zk_lock_scan_look(scan);
}


/*
 * The mark stays, and is scanned again later, less and less often, unless the
 * gates have changed meanwhile.
 */

static void
ngx_http_zk_lock_scan_failed(ngx_http_zk_lock_scan_t *scan)
{
    ngx_msec_t  wait;

    scan->failed = 1;
    scan->state = NGX_HTTP_ZK_LOCK_SCAN_WAIT;

    wait = NGX_HTTP_ZK_LOCK_SCAN_RETRY;

    if (!scan->again) {
        wait = ngx_min(wait << ngx_min(scan->failures, 6),
                       NGX_HTTP_ZK_LOCK_SCAN_RARELY);
    }

    scan->failures++;

    ngx_http_zk_lock_scan_after(scan, wait);
}


/* Frees the memory of a run. */

static void
ngx_http_zk_lock_scan_end(ngx_http_zk_lock_scan_t *scan)
{
    if (scan->names != NULL) {
        free(scan->names);
        scan->names = NULL;
    }

    if (scan->block != NULL) {
        ngx_free(scan->block);
        scan->block = NULL;
    }

    scan->nnames = 0;
    scan->next = 0;
    scan->failed = 0;
    scan->found = 0;

    ngx_str_null(&scan->mark);
    ngx_str_null(&scan->root);
}
