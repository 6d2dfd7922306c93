
/*
 * Names.
 *
 * The root is listed, and the first children that can be names of locks are
 * kept, because a root may have many more children than are looked at.  Then
 * the locks are listed in that order, several at the same time, but never more
 * than are still to be found: so the locks that were looked at are always the
 * first of the kept names.
 *
 * Everything here runs on the event loop.  names->op and the `op` of each list
 * are NULL unless the read is under way.  The reads are cancelled when names is
 * freed, and when the search begins again because there was no answer.  The
 * worker does not know of a search: the timer looks whether ZooKeeper answers
 * and whether the time is over.
 */


#include "core/names.h"


/* how often the connection is looked at, milliseconds */
#define ZKL_NAMES_TICK                50


static void zkl_names_timer_handler(ngx_event_t *ev);
static void zkl_names_begin(zkl_names_t *names);
static void zkl_names_root_handler(zkl_op_t *op);
static ngx_int_t zkl_names_keep(zkl_names_t *names, zkl_op_t *op);
static ngx_uint_t zkl_names_first(zkl_names_t *names, zkl_op_t *op,
    ngx_str_t **heap);
static ngx_uint_t zkl_names_wanted(zkl_names_t *names, ngx_str_t *name);
static void zkl_names_sift(ngx_str_t **heap, ngx_uint_t n, ngx_uint_t i);
static ngx_int_t zkl_names_copy(zkl_names_t *names, ngx_str_t **sorted,
    ngx_uint_t n);
static void zkl_names_go(zkl_names_t *names);
static ngx_int_t zkl_names_list(zkl_names_t *names);
static void zkl_names_list_handler(zkl_op_t *op);
static ngx_int_t zkl_names_count(zkl_names_t *names, zkl_named_t *named,
    zkl_op_t *op);
static int ngx_libc_cdecl zkl_names_compare(const void *one, const void *two);
static void zkl_names_failed(zkl_names_t *names, zkl_rc_e rc);
static void zkl_names_forget(zkl_names_t *names);
static void zkl_names_tell(zkl_names_t *names, zkl_answer_e answer);
static void zkl_names_free(zkl_names_t *names);


zkl_names_t *
zkl_names(zkl_worker_t *worker, zkl_names_question_t *question)
{
    u_char       *p;
    zkl_names_t  *names;

    names = ngx_calloc(sizeof(zkl_names_t) + question->root->len
                       + question->prefix->len + question->after->len,
                       worker->log);
    if (names == NULL) {
        return NULL;
    }

    p = (u_char *) names + sizeof(zkl_names_t);

    names->root.len = question->root->len;
    names->root.data = p;
    p = ngx_cpymem(p, question->root->data, question->root->len);

    names->prefix.len = question->prefix->len;
    names->prefix.data = p;
    p = ngx_cpymem(p, question->prefix->data, question->prefix->len);

    names->after.len = question->after->len;
    names->after.data = p;
    ngx_memcpy(p, question->after->data, question->after->len);

    names->worker = worker;
    names->limit = question->limit;
    names->until = ngx_current_msec + question->timeout;
    names->handler = question->handler;
    names->data = question->data;

    /* not cancelable: a worker that leaves answers first */

    zkl_worker_timer(worker, &names->timer, zkl_names_timer_handler);

    ngx_post_event(&names->timer, &ngx_posted_events);

    return names;
}


void
zkl_names_leave(zkl_names_t *names)
{
    zkl_names_free(names);
}


static void
zkl_names_timer_handler(ngx_event_t *ev)
{
    zkl_names_t    *names;
    zkl_session_t  *session;

    names = ngx_queue_data(ev, zkl_names_t, timer);
    session = names->worker->session;

    if ((ngx_msec_int_t) (names->until - ngx_current_msec) <= 0) {
        zkl_names_tell(names, ZKL_CALL_UNREACHABLE);
        return;
    }

    ngx_add_timer(ev, ZKL_NAMES_TICK);

    if (!names->begun && zkl_session_ready(session)) {
        names->begun = 1;
        zkl_names_begin(names);
    }
}


static void
zkl_names_begin(zkl_names_t *names)
{
    zkl_op_t       *op;
    zkl_session_t  *session;

    session = names->worker->session;

    op = zkl_op_new(session, ZKL_OP_LIST, &names->root, NULL, NULL);
    if (op == NULL) {
        zkl_names_tell(names, ZKL_CALL_FAILED);
        return;
    }

    op->handler = zkl_names_root_handler;
    op->data = names;
    op->fresh = 1;

    names->op = op;

    zkl_session_send(op);
}


static void
zkl_names_root_handler(zkl_op_t *op)
{
    zkl_names_t  *names;

    names = op->data;
    names->op = NULL;

    if (op->rc != ZKL_OK && op->rc != ZKL_NO_NODE) {
        zkl_names_failed(names, op->rc);
        return;
    }

    if (zkl_names_keep(names, op) != NGX_OK) {
        zkl_names_tell(names, ZKL_CALL_FAILED);
        return;
    }

    zkl_names_go(names);
}


static ngx_int_t
zkl_names_keep(zkl_names_t *names, zkl_op_t *op)
{
    ngx_int_t    rc;
    ngx_str_t   *greatest;
    ngx_str_t  **heap;
    ngx_uint_t   i, n;

    n = ngx_min(op->nchildren, ZKL_NAMES_MAX);

    heap = ngx_alloc((n + 1) * sizeof(ngx_str_t *), names->worker->log);
    if (heap == NULL) {
        return NGX_ERROR;
    }

    n = zkl_names_first(names, op, heap);

    for (i = n; i > 1; i--) {
        greatest = heap[0];
        heap[0] = heap[i - 1];
        heap[i - 1] = greatest;

        zkl_names_sift(heap, i - 1, 0);
    }

    rc = zkl_names_copy(names, heap, n);

    ngx_free(heap);

    return rc;
}


/* Fills heap with the first names, the greatest on top; returns how many. */

static ngx_uint_t
zkl_names_first(zkl_names_t *names, zkl_op_t *op, ngx_str_t **heap)
{
    ngx_str_t   *name;
    ngx_uint_t   i, n, k;

    n = 0;

    for (i = 0; i < op->nchildren; i++) {
        name = &op->children[i];

        if (n == ZKL_NAMES_MAX
            && ngx_memn2cmp(name->data, heap[0]->data, name->len, heap[0]->len)
               > 0)
        {
            names->more = 1;
            continue;
        }

        if (!zkl_names_wanted(names, name)) {
            continue;
        }

        if (n == ZKL_NAMES_MAX) {
            names->more = 1;
            heap[0] = name;
            zkl_names_sift(heap, n, 0);
            continue;
        }

        heap[n++] = name;

        if (n == ZKL_NAMES_MAX) {
            for (k = n / 2; k > 0; k--) {
                zkl_names_sift(heap, n, k - 1);
            }
        }
    }

    if (n < ZKL_NAMES_MAX) {
        for (k = n / 2; k > 0; k--) {
            zkl_names_sift(heap, n, k - 1);
        }
    }

    return n;
}


static ngx_uint_t
zkl_names_wanted(zkl_names_t *names, ngx_str_t *name)
{
    ngx_str_t  *prefix, *after;

    prefix = &names->prefix;
    after = &names->after;

    if (name->len < prefix->len
        || ngx_memcmp(name->data, prefix->data, prefix->len) != 0)
    {
        return 0;
    }

    if (after->len != 0
        && ngx_memn2cmp(name->data, after->data, name->len, after->len) <= 0)
    {
        return 0;
    }

    return names->root.len + 1 + name->len <= ZKL_PATH_MAX
           && zkl_name_check((char *) name->data, name->len) == NULL;
}


/* Moves heap[i] down to the right place. */

static void
zkl_names_sift(ngx_str_t **heap, ngx_uint_t n, ngx_uint_t i)
{
    ngx_str_t   *name;
    ngx_uint_t   k;

    name = heap[i];

    for ( ;; ) {
        k = 2 * i + 1;

        if (k >= n) {
            break;
        }

        if (k + 1 < n
            && ngx_memn2cmp(heap[k]->data, heap[k + 1]->data, heap[k]->len,
                            heap[k + 1]->len)
               < 0)
        {
            k++;
        }

        if (ngx_memn2cmp(name->data, heap[k]->data, name->len, heap[k]->len)
            >= 0)
        {
            break;
        }

        heap[i] = heap[k];
        i = k;
    }

    heap[i] = name;
}


/* Copies the names, because the list is freed with the operation. */

static ngx_int_t
zkl_names_copy(zkl_names_t *names, ngx_str_t **sorted, ngx_uint_t n)
{
    u_char      *p;
    size_t       len;
    ngx_uint_t   i;

    if (n == 0) {
        return NGX_OK;
    }

    len = 0;

    for (i = 0; i < n; i++) {
        len += sorted[i]->len;
    }

    names->named = ngx_calloc(n * sizeof(zkl_named_t) + len,
                              names->worker->log);
    if (names->named == NULL) {
        return NGX_ERROR;
    }

    names->nnamed = n;

    p = (u_char *) &names->named[n];

    for (i = 0; i < n; i++) {
        names->named[i].name.data = p;
        names->named[i].name.len = sorted[i]->len;

        p = ngx_cpymem(p, sorted[i]->data, sorted[i]->len);
    }

    return NGX_OK;
}


/* Lists more locks, or tells the result. */

static void
zkl_names_go(zkl_names_t *names)
{
    while (names->nlooked < names->nnamed
           && names->nlists < ZKL_NAMES_LISTS
           && names->nfound + names->nlists < names->limit)
    {
        if (zkl_names_list(names) != NGX_OK) {
            zkl_names_tell(names, ZKL_CALL_FAILED);
            return;
        }
    }

    if (names->nlists == 0) {
        zkl_names_tell(names, ZKL_CALL_OK);
    }
}


static ngx_int_t
zkl_names_list(zkl_names_t *names)
{
    ngx_uint_t         i;
    zkl_op_t          *op;
    zkl_named_t       *named;
    zkl_names_list_t  *list;

    named = &names->named[names->nlooked];

    op = zkl_op_new(names->worker->session, ZKL_OP_LIST, &names->root,
                    &named->name, NULL);
    if (op == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; names->lists[i].op != NULL; i++) {
        /* void */
    }

    list = &names->lists[i];

    list->names = names;
    list->named = named;
    list->op = op;

    op->handler = zkl_names_list_handler;
    op->data = list;

    names->nlists++;
    names->nlooked++;

    zkl_session_send(op);

    return NGX_OK;
}


static void
zkl_names_list_handler(zkl_op_t *op)
{
    zkl_names_t       *names;
    zkl_names_list_t  *list;

    list = op->data;
    names = list->names;

    list->op = NULL;
    names->nlists--;

    switch (op->rc) {

    case ZKL_OK:

        if (zkl_names_count(names, list->named, op) != NGX_OK) {
            zkl_names_tell(names, ZKL_CALL_FAILED);
            return;
        }

        break;

    case ZKL_NO_NODE:
    case ZKL_NO_AUTH:

        /* the lock is gone meanwhile, or the ACL denies the list */

        break;

    default:
        zkl_names_failed(names, op->rc);
        return;
    }

    zkl_names_go(names);
}


/* Counts the claims that hold the lock, by the rule of a look, and the rest. */

static ngx_int_t
zkl_names_count(zkl_names_t *names, zkl_named_t *named, zkl_op_t *op)
{
    ngx_uint_t    i, n;
    zkl_tally_t   tally;
    zkl_child_t  *children;

    if (op->nchildren == 0) {
        return NGX_OK;
    }

    children = ngx_alloc(op->nchildren * sizeof(zkl_child_t),
                         names->worker->log);
    if (children == NULL) {
        return NGX_ERROR;
    }

    for (i = 0, n = 0; i < op->nchildren; i++) {
        n += (zkl_name_child_read(&children[n], (char *) op->children[i].data,
                                  op->children[i].len)
              == 0);
    }

    ngx_qsort(children, n, sizeof(zkl_child_t), zkl_names_compare);

    ngx_memzero(&tally, sizeof(zkl_tally_t));

    for (i = 0; i < n; i++) {

        if (zkl_view_tally(&tally, children[i].kind)) {
            named->held++;

        } else {
            named->queued++;
        }
    }

    if (n != 0) {
        named->kind = children[0].kind;
        names->nfound++;
    }

    ngx_free(children);

    return NGX_OK;
}


static int ngx_libc_cdecl
zkl_names_compare(const void *one, const void *two)
{
    const zkl_child_t  *a, *b;

    a = one;
    b = two;

    if (a->seq != b->seq) {
        return (a->seq < b->seq) ? -1 : 1;
    }

    return 0;
}


static void
zkl_names_failed(zkl_names_t *names, zkl_rc_e rc)
{
    switch (rc) {

    case ZKL_UNSENT:
    case ZKL_UNKNOWN:
        zkl_names_forget(names);
        break;

    case ZKL_NO_AUTH:
        zkl_names_tell(names, ZKL_CALL_DENIED);
        break;

    default:
        zkl_names_tell(names, ZKL_CALL_FAILED);
        break;
    }
}


/* Cancels what is under way, and forgets the names. */

static void
zkl_names_forget(zkl_names_t *names)
{
    ngx_uint_t  i;

    if (names->op != NULL) {
        names->op->handler = NULL;
        names->op = NULL;
    }

    for  (i = 0; i < ZKL_NAMES_LISTS; i++) {
        if (names->lists[i].op != NULL) {
            names->lists[i].op->handler = NULL;
            names->lists[i].op = NULL;
        }
    }

    if (names->named != NULL) {
        ngx_free(names->named);
        names->named = NULL;
    }

    names->nlists = 0;
    names->nnamed = 0;
    names->nlooked = 0;
    names->nfound = 0;
    names->begun = 0;
    names->more = 0;
}


static void
zkl_names_tell(zkl_names_t *names, zkl_answer_e answer)
{
    names->handler(names, answer);

    zkl_names_free(names);
}


static void
zkl_names_free(zkl_names_t *names)
{
    zkl_names_forget(names);

    if (names->timer.timer_set) {
        ngx_del_timer(&names->timer);
    }

    if (names->timer.posted) {
        ngx_delete_posted_event(&names->timer);
    }

    ngx_free(names);
}
