
/*
 * The scan: durable claims whose gateway is gone.
 *
 * Each worker watches the list of the gates.  A mark without a gate is of a
 * session that is over: below the mark's root there may be claims whose leases
 * no session counts.  The workers of all gateways see this at the same moment.
 * So each worker waits first, because a worker that lost the session takes its
 * own claims back in that time.  The more gates there are before the worker's
 * gate, the longer is the wait, so that mostly a single worker scans.  That
 * worker lists all locks of the root, reads the claims, and takes over the
 * claims that name the missing gate.  The mark is removed when a scan finds no
 * such claim any more, because without the mark a claim that no worker has
 * taken over would stay for ever.  If two workers scan at once, the version of
 * a claim's data lets only the first of these workers take the claim.
 *
 * A mark and the gate are listed together, and the gate is made before the
 * mark: so a gate that is missing there never comes back.
 *
 * A scan that meets a claim whose gate and mark are both missing makes the mark
 * again: an operator has removed it, or ZooKeeper has lost it.  So the claim is
 * found as if the mark had always been there.
 *
 *   IDLE    no mark is without a gate; a change has the gates listed
 *   WAIT    a mark has no gate; a timer looks again
 *   ROOT    the locks of the root are listed
 *   LOCKS   the claims of the locks are listed and read
 *   TAKE    the claims that were found are in TAKE; then the root is scanned
 *           again, and the mark removed if no claim was found
 *
 * A mark whose scan fails is scanned again after the other marks, less and less
 * often.  Everything here runs on the event loop.  `pending` counts the reads
 * under way; LOCKS ends when `pending` is 0.  `names` is NULL from the begin of
 * a run until the root was listed; `gates` is NULL until the gates were listed.
 */


#include "core/scan.h"


/* time for a worker that lost its session to take its claims back, ms */
#define ZKL_SCAN_FIRST                500

/* how much longer for each gate before the own gate; and at most */
#define ZKL_SCAN_RANK                 250
#define ZKL_SCAN_LAST                 5000

/* how soon a takeover is looked at again, and for how long */
#define ZKL_SCAN_AGAIN                100
#define ZKL_SCAN_TAKES                5000

/* how soon a scan that failed begins again; twice that the next time */
#define ZKL_SCAN_RETRY                5000
#define ZKL_SCAN_RARELY               300000

/* runs in a row that find claims before the scan pauses */
#define ZKL_SCAN_RUNS                 4

/* with so many reads under way the next lock is not listed yet */
#define ZKL_SCAN_READS                32

typedef enum {
    ZKL_SCAN_IDLE = 0,
    ZKL_SCAN_WAIT,
    ZKL_SCAN_ROOT,
    ZKL_SCAN_LOCKS,
    ZKL_SCAN_TAKE
} zkl_scan_state_e;

struct zkl_scan_s {
    zkl_worker_t                   *worker;
    ngx_event_t                     timer;
    zkl_scan_state_e                state;

    zkl_op_t                       *list;       /* of the gates, or NULL */
    ngx_str_t                      *gates;      /* and marks, sorted */
    ngx_uint_t                      ngates;
    u_char                          gate[ZKL_GATE_LEN];
                                                /* the missing gate of a mark */
    ngx_msec_t                      since;      /* a mark of gate was seen */
    ngx_msec_t                      wait;       /* the time to wait then */
    ngx_msec_t                      taking;     /* when TAKE began */
    ngx_uint_t                      failures;   /* in a row */
    ngx_uint_t                      runs;       /* for that mark, in a row */

    ngx_str_t                       mark;       /* the mark of the run */
    ngx_str_t                       root;       /* the mark's root */
    u_char                         *block;      /* of mark and root */
    u_char                          unmarked[ZKL_GATE_LEN];
                                                /* its mark was made last */

    ngx_str_t                      *names;      /* of the root's locks */
    ngx_uint_t                      nnames;
    ngx_uint_t                      next;
    ngx_uint_t                      pending;    /* reads under way */

    unsigned                        again:1;    /* the gates changed since */
    unsigned                        failed:1;   /* not all could be read */
    unsigned                        found:1;    /* a claim of gate */
};


static void zkl_scan_timer_handler(ngx_event_t *ev);
static void zkl_scan_after(zkl_scan_t *scan, ngx_msec_t wait);
static void zkl_scan_gates_handler(zkl_op_t *op);
static ngx_str_t *zkl_scan_orphan(zkl_scan_t *scan, ngx_str_t *after);
static int ngx_libc_cdecl zkl_scan_compare(const void *one, const void *two);
static ngx_uint_t zkl_scan_lists(zkl_scan_t *scan, ngx_str_t *name);
static ngx_uint_t zkl_scan_rank(zkl_scan_t *scan);
static ngx_int_t zkl_scan_begin(zkl_scan_t *scan, ngx_str_t *mark);
static zkl_op_t *zkl_scan_op(zkl_scan_t *scan, zkl_op_e type, ngx_str_t *dir,
    ngx_str_t *name, zkl_op_pt handler);
static void zkl_scan_root_handler(zkl_op_t *op);
static void zkl_scan_go(zkl_scan_t *scan);
static ngx_str_t zkl_scan_path(zkl_scan_t *scan, zkl_op_t *op);
static void zkl_scan_lock_handler(zkl_op_t *op);
static void zkl_scan_claims(zkl_scan_t *scan, ngx_str_t *path, zkl_op_t *op);
static void zkl_scan_claim_handler(zkl_op_t *op);
static void zkl_scan_node_handler(zkl_op_t *op);
static void zkl_scan_claim(zkl_scan_t *scan, ngx_str_t *path,
    zkl_child_t *child, zkl_op_t *get);
static void zkl_scan_unmarked(zkl_scan_t *scan, zkl_claim_data_t *cdata);
static void zkl_scan_marked_handler(zkl_op_t *op);
static void zkl_scan_done(zkl_scan_t *scan);
static void zkl_scan_removed_handler(zkl_op_t *op);
static void zkl_scan_failed(zkl_scan_t *scan);
static void zkl_scan_end(zkl_scan_t *scan);


zkl_scan_t *
zkl_scan_new(zkl_worker_t *worker)
{
    zkl_scan_t  *scan;

    scan = ngx_calloc(sizeof(zkl_scan_t), worker->log);
    if (scan == NULL) {
        return NULL;
    }

    scan->worker = worker;

    zkl_worker_timer(worker, &scan->timer, zkl_scan_timer_handler);
    scan->timer.cancelable = 1;

    return scan;
}


void
zkl_scan_free(zkl_scan_t *scan)
{
    zkl_scan_end(scan);

    if (scan->timer.timer_set) {
        ngx_del_timer(&scan->timer);
    }

    free(scan->gates);
    ngx_free(scan);
}


void
zkl_scan_listed(zkl_scan_t *scan, ngx_str_t *path)
{
    if (path->len == zkl_gates.len
        && ngx_memcmp(path->data, zkl_gates.data, path->len) == 0)
    {
        zkl_scan_look(scan);
    }
}


static void
zkl_scan_timer_handler(ngx_event_t *ev)
{
    zkl_scan_t  *scan;

    scan = ngx_queue_data(ev, zkl_scan_t, timer);

    if (scan->state == ZKL_SCAN_TAKE) {
        zkl_scan_done(scan);
        return;
    }

    zkl_scan_look(scan);
}


static void
zkl_scan_after(zkl_scan_t *scan, ngx_msec_t wait)
{
    if (scan->timer.timer_set) {
        ngx_del_timer(&scan->timer);
    }

    ngx_add_timer(&scan->timer, wait);
}


void
zkl_scan_look(zkl_scan_t *scan)
{
    zkl_op_t  *op;

    if (scan->list != NULL || scan->state > ZKL_SCAN_WAIT) {
        scan->again = 1;
        return;
    }

    scan->again = 0;

    if (scan->worker->leaving || !zkl_session_connected(scan->worker->session))
    {
        return;
    }

    op = zkl_op_new(scan->worker->session, ZKL_OP_LIST, &zkl_gates, NULL,
                    NULL);
    if (op == NULL) {
        zkl_scan_after(scan, ZKL_SCAN_RETRY);
        return;
    }

    op->watch = 1;
    op->handler = zkl_scan_gates_handler;
    op->data = scan;

    scan->list = op;

    zkl_session_send(op);
}


static void
zkl_scan_gates_handler(zkl_op_t *op)
{
    ngx_str_t   *mark;
    ngx_msec_t   wait;
    zkl_scan_t  *scan;

    scan = op->data;
    scan->list = NULL;

    if (op->rc != ZKL_OK) {

        /* there is no gate so far, or the next connection looks again */

        zkl_scan_after(scan, ZKL_SCAN_RETRY);
        return;
    }

    zkl_mark_listed(scan->worker, op->children, op->nchildren);

    /* the scan owns the list from now on */

    free(scan->gates);

    scan->gates = op->children;
    scan->ngates = op->nchildren;

    op->children = NULL;
    op->nchildren = 0;

    if (scan->ngates != 0) {
        ngx_qsort(scan->gates, scan->ngates, sizeof(ngx_str_t),
                  zkl_scan_compare);
    }

    /* the mark that failed is not tried again before other marks */

    mark = NULL;

    if (scan->failed && scan->mark.len != 0) {
        mark = zkl_scan_orphan(scan, &scan->mark);
    }

    if (mark == NULL) {
        mark = zkl_scan_orphan(scan, NULL);
    }

    if (mark == NULL) {
        scan->state = ZKL_SCAN_IDLE;
        scan->failures = 0;
        zkl_scan_end(scan);

        if (scan->again) {
            zkl_scan_look(scan);
        }

        return;
    }

    if (scan->state == ZKL_SCAN_IDLE
        || ngx_memcmp(scan->gate, mark->data, ZKL_GATE_LEN) != 0)
    {
        ngx_memcpy(scan->gate, mark->data, ZKL_GATE_LEN);

        scan->state = ZKL_SCAN_WAIT;
        scan->since = ngx_current_msec;
        scan->wait = ZKL_SCAN_FIRST + ZKL_SCAN_RANK * zkl_scan_rank(scan);
        scan->wait = ngx_min(scan->wait, ZKL_SCAN_LAST);
    }

    wait = ngx_current_msec - scan->since;

    if (wait < scan->wait) {
        zkl_scan_after(scan, scan->wait - wait);
        return;
    }

    if (zkl_scan_begin(scan, mark) != NGX_OK) {
        zkl_scan_failed(scan);
    }
}


/*
 * The first mark whose gate is not in the list, or the first behind `after`.
 * The list is sorted: a gate's marks begin with the gate's name and come next.
 */

static ngx_str_t *
zkl_scan_orphan(zkl_scan_t *scan, ngx_str_t *after)
{
    ngx_str_t   *name, *gate;
    ngx_uint_t   i;

    gate = NULL;

    for (i = 0; i < scan->ngates; i++) {
        name = &scan->gates[i];

        if (name->len == ZKL_GATE_LEN) {
            gate = name;
            continue;
        }

        if (name->len <= ZKL_GATE_LEN + 1 || name->data[ZKL_GATE_LEN] != '.') {
            continue;
        }

        if (gate != NULL
            && ngx_memcmp(gate->data, name->data, ZKL_GATE_LEN)
               == 0)
        {
            continue;
        }

        if (after == NULL || zkl_scan_compare(name, after) > 0) {
            return name;
        }
    }

    return NULL;
}


static int ngx_libc_cdecl
zkl_scan_compare(const void *one, const void *two)
{
    int               rc;
    const ngx_str_t  *a, *b;

    a = one;
    b = two;

    rc = ngx_memcmp(a->data, b->data, ngx_min(a->len, b->len));

    return (rc != 0) ? rc : (a->len > b->len) - (a->len < b->len);
}


/* Whether the last list of the gates has the gate or mark. */

static ngx_uint_t
zkl_scan_lists(zkl_scan_t *scan, ngx_str_t *name)
{
    return scan->ngates != 0
           && bsearch(name, scan->gates, scan->ngates, sizeof(ngx_str_t),
                      zkl_scan_compare)
              != NULL;
}


/* The number of gates before the gate of this worker. */

static ngx_uint_t
zkl_scan_rank(zkl_scan_t *scan)
{
    ngx_str_t   gate;
    ngx_uint_t  i, rank;

    rank = 0;

    if (zkl_session_gated(scan->worker->session, &gate) != NGX_OK) {
        return scan->ngates;
    }

    for (i = 0; i < scan->ngates; i++) {
        rank += scan->gates[i].len == ZKL_GATE_LEN
                && ngx_memcmp(scan->gates[i].data, gate.data, ZKL_GATE_LEN)
                   < 0;
    }

    return rank;
}


static ngx_int_t
zkl_scan_begin(zkl_scan_t *scan, ngx_str_t *mark)
{
    u_char    *p;
    zkl_op_t  *op;

    p = ngx_alloc(2 * mark->len, scan->worker->log);
    if (p == NULL) {
        return NGX_ERROR;
    }

    zkl_scan_end(scan);

    scan->block = p;
    scan->mark.data = p;
    scan->mark.len = mark->len;
    p = ngx_cpymem(p, mark->data, mark->len);

    scan->root.data = p;
    scan->root.len = zkl_mark_root(p, &scan->mark);

    if (zkl_name_path_check((char *) scan->root.data, scan->root.len) != NULL) {

        /* an operator has made this mark */

        return NGX_ERROR;
    }

    op = zkl_scan_op(scan, ZKL_OP_LIST, &scan->root, NULL,
                     zkl_scan_root_handler);
    if (op == NULL) {
        return NGX_ERROR;
    }

    scan->state = ZKL_SCAN_ROOT;

    return NGX_OK;
}


static zkl_op_t *
zkl_scan_op(zkl_scan_t *scan, zkl_op_e type, ngx_str_t *dir, ngx_str_t *name,
    zkl_op_pt handler)
{
    zkl_op_t  *op;

    op = zkl_op_new(scan->worker->session, type, dir, name, NULL);
    if (op == NULL) {
        scan->failed = 1;
        return NULL;
    }

    op->handler = handler;
    op->data = scan;

    scan->pending++;

    zkl_session_send(op);

    return op;
}


static void
zkl_scan_root_handler(zkl_op_t *op)
{
    zkl_scan_t  *scan;

    scan = op->data;
    scan->pending--;

    if (op->rc == ZKL_OK) {

        /* the scan owns the names from now on */

        scan->names = op->children;
        scan->nnames = op->nchildren;

        op->children = NULL;
        op->nchildren = 0;

    } else if (op->rc != ZKL_NO_NODE) {
        scan->failed = 1;
    }

    scan->next = 0;
    scan->state = ZKL_SCAN_LOCKS;

    zkl_scan_go(scan);
}


static void
zkl_scan_go(zkl_scan_t *scan)
{
    ngx_str_t  *name;

    while (scan->next < scan->nnames
           && scan->pending < ZKL_SCAN_READS
           && zkl_session_connected(scan->worker->session))
    {
        name = &scan->names[scan->next++];

        if (scan->root.len + 1 + name->len <= ZKL_PATH_MAX) {
            (void) zkl_scan_op(scan, ZKL_OP_LIST,
                                        &scan->root, name,
                               zkl_scan_lock_handler);
        }
    }

    if (scan->pending == 0) {
        scan->failed |= (scan->next < scan->nnames);
        scan->taking = ngx_current_msec;
        scan->state = ZKL_SCAN_TAKE;
        zkl_scan_done(scan);
    }
}


/* An operation's path without the chroot, which is a part of op->path. */

static ngx_str_t
zkl_scan_path(zkl_scan_t *scan, zkl_op_t *op)
{
    ngx_str_t  path;

    path.data = op->path.data + scan->worker->conf->chroot.len;
    path.len = op->path.len - scan->worker->conf->chroot.len;

    return path;
}


static void
zkl_scan_lock_handler(zkl_op_t *op)
{
    ngx_str_t    path;
    zkl_scan_t  *scan;

    scan = op->data;
    scan->pending--;

    if (op->rc == ZKL_OK) {
        path = zkl_scan_path(scan, op);
        zkl_scan_claims(scan, &path, op);

    } else if (op->rc != ZKL_NO_NODE) {
        scan->failed = 1;
    }

    zkl_scan_go(scan);
}


/*
 * Reads all claims of a lock, and not only the holders: a claim that is about
 * to be deleted may be ahead of a holder.  A znode without children may be the
 * claim itself.
 */

static void
zkl_scan_claims(zkl_scan_t *scan, ngx_str_t *path, zkl_op_t *op)
{
    ngx_uint_t   i;
    zkl_child_t  child;

    if (op->nchildren == 0) {
        (void) zkl_scan_op(scan, ZKL_OP_GET, path, NULL,
                           zkl_scan_node_handler);
        return;
    }

    for (i = 0; i < op->nchildren; i++) {

        if (zkl_name_child_read(&child, (char *) op->children[i].data,
                                op->children[i].len)
            == 0
            && child.has_id)
        {
            (void) zkl_scan_op(scan, ZKL_OP_GET, path, &op->children[i],
                               zkl_scan_claim_handler);
        }
    }
}


static void
zkl_scan_claim_handler(zkl_op_t *op)
{
    u_char      *p;
    ngx_str_t    path;
    zkl_child_t  child;
    zkl_scan_t  *scan;

    scan = op->data;

    path = zkl_scan_path(scan, op);

    for (p = path.data + path.len; p[-1] != '/'; p--) {
        /* void */
    }

    if (zkl_name_child_read(&child, (char *) p, path.data + path.len - p) == 0)
    {
        path.len = p - 1 - path.data;
        zkl_scan_claim(scan, &path, &child, op);
    }

    scan->pending--;
    zkl_scan_go(scan);
}


static void
zkl_scan_node_handler(zkl_op_t *op)
{
    ngx_str_t         path;
    zkl_child_t       child;
    zkl_claim_data_t  cdata;
    zkl_scan_t       *scan;

    scan = op->data;

    path = zkl_scan_path(scan, op);

    zkl_claim_data_read(&cdata, (char *) op->reply.data, op->reply.len);

    if (op->rc != ZKL_OK || cdata.has_id) {
        ngx_memzero(&child, sizeof(zkl_child_t));

        child.id = cdata.id;
        child.has_id = 1;
        child.mode = ZKL_NODE;

        zkl_scan_claim(scan, &path, &child, op);
    }

    scan->pending--;
    zkl_scan_go(scan);
}


/* Takes over the claim that get has read, if the claim data name the gate. */

static void
zkl_scan_claim(zkl_scan_t *scan, ngx_str_t *path, zkl_child_t *child,
    zkl_op_t *get)
{
    zkl_claim_data_t  cdata;

    if (get->rc != ZKL_OK) {
        scan->failed |= (get->rc != ZKL_NO_NODE);
        return;
    }

    zkl_claim_data_read(&cdata, (char *) get->reply.data, get->reply.len);

    if (get->owner != 0 || cdata.gate_len != ZKL_GATE_LEN) {
        return;
    }

    if (ngx_memcmp(cdata.gate, scan->mark.data, ZKL_GATE_LEN) != 0) {
        zkl_scan_unmarked(scan, &cdata);
        return;
    }

    scan->found = 1;

    if (zkl_claim_inherit(scan->worker, path, child, get) != NGX_OK) {
        scan->failed = 1;
    }
}


/*
 * The claim names another gate than the mark.  If the gate is newer than the
 * list, and not missing, its mark exists, or is one too many, which a scan
 * removes.
 */

static void
zkl_scan_unmarked(zkl_scan_t *scan, zkl_claim_data_t *cdata)
{
    u_char     *p, buf[ZKL_MARK_LEN];
    ngx_str_t   name;

    name.data = buf;
    name.len = ZKL_GATE_LEN;
    p = ngx_cpymem(buf, cdata->gate, ZKL_GATE_LEN);

    if (zkl_scan_lists(scan, &name)
        || ngx_memcmp(cdata->gate, scan->unmarked, ZKL_GATE_LEN) == 0)
    {
        return;
    }

    name.len = scan->mark.len;
    ngx_memcpy(p, scan->mark.data + ZKL_GATE_LEN,
               scan->mark.len - ZKL_GATE_LEN);

    if (zkl_scan_lists(scan, &name)) {
        return;
    }

    ngx_memcpy(scan->unmarked, cdata->gate, ZKL_GATE_LEN);

    (void) zkl_scan_op(scan, ZKL_OP_PERSISTENT, &zkl_gates, &name,
                       zkl_scan_marked_handler);
}


static void
zkl_scan_marked_handler(zkl_op_t *op)
{
    zkl_scan_t  *scan;

    scan = op->data;
    scan->pending--;

    switch (op->rc) {

    case ZKL_OK:
        ngx_log_error(NGX_LOG_NOTICE, scan->worker->log, 0,
                      "durable leases below \"%V\" had no mark any more",
                      &scan->root);
        break;

    case ZKL_EXISTS:
        break;

    default:
        scan->failed = 1;
        break;
    }

    zkl_scan_go(scan);
}


/*
 * All claims were read.  The root is scanned again when workers have taken the
 * claims over, and the mark is removed if that scan finds no claim.
 */

static void
zkl_scan_done(zkl_scan_t *scan)
{
    if (scan->failed
        || !zkl_session_connected(scan->worker->session)
        || ngx_current_msec - scan->taking >= ZKL_SCAN_TAKES)
    {
        zkl_scan_failed(scan);
        return;
    }

    if (zkl_claim_untaken(scan->worker, scan->mark.data)) {
        zkl_scan_after(scan, ZKL_SCAN_AGAIN);
        return;
    }

    if (scan->found) {

        if (++scan->runs >= ZKL_SCAN_RUNS) {
            scan->runs = 0;
            zkl_scan_failed(scan);
            return;
        }

        scan->state = ZKL_SCAN_WAIT;
        zkl_scan_look(scan);
        return;
    }

    if (zkl_scan_op(scan, ZKL_OP_DELETE, &zkl_gates, &scan->mark,
                    zkl_scan_removed_handler)
        == NULL)
    {
        zkl_scan_failed(scan);
    }
}


static void
zkl_scan_removed_handler(zkl_op_t *op)
{
    zkl_scan_t  *scan;

    scan = op->data;
    scan->pending--;

    if (op->rc != ZKL_OK && op->rc != ZKL_NO_NODE) {
        zkl_scan_failed(scan);
        return;
    }

    /* the next mark may be of the same gate: then the wait is over */

    scan->failures = 0;
    scan->runs = 0;
    scan->state = ZKL_SCAN_WAIT;
    zkl_scan_end(scan);
    zkl_scan_look(scan);
}


/*
 * The mark stays, and is scanned again later, less and less often, unless the
 * gates have changed meanwhile.
 */

static void
zkl_scan_failed(zkl_scan_t *scan)
{
    ngx_msec_t  wait;

    scan->failed = 1;
    scan->state = ZKL_SCAN_WAIT;

    wait = ZKL_SCAN_RETRY;

    if (!scan->again) {
        wait = ngx_min(wait << ngx_min(scan->failures, 6), ZKL_SCAN_RARELY);
    }

    scan->failures++;

    zkl_scan_after(scan, wait);
}


/* Frees the memory of a run. */

static void
zkl_scan_end(zkl_scan_t *scan)
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

    ngx_memzero(scan->unmarked, ZKL_GATE_LEN);

    ngx_str_null(&scan->mark);
    ngx_str_null(&scan->root);
}
