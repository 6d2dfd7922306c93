
/*
 * Names.
 *
 * The root is listed, and the first children that can be names of locks are
 * kept, because a root may have many more children than are looked at.  Then a
 * call looks at each lock in that order, several at the same time: the call
 * counts the claims and, if need be, describes the holders.
 *
 * In the order of the names a look begins only while the answer may lack a
 * lock.  With an owner most locks are not found, so more looks are under way
 * than locks are missing; what is found too much is dropped, and the next
 * question finds that again.  With a sort all names are looked at, and the
 * answer keeps the locks that come first so far.
 *
 * The names, the claims that are read, the claims that the answer describes,
 * and the time are bounded.  Each bound ends the search early, and the answer
 * tells.  Few questions have a turn at the same time, because each keeps names
 * and may need some megabytes; a question for which too many others wait is
 * refused at once.  The questions about a root share the lists of the root
 * (zk/turns.c), and the looks at a lock (call.c).
 *
 * Everything here runs on the event loop.  names->op and the `call` of each
 * look are NULL unless under way; named and found are NULL until the root was
 * listed.  All are left when names is freed, and when the search begins again
 * because the list of the root had no answer.  A question without a turn waits
 * in worker->searches.  The timer of the first is posted when another question
 * gets its turns or ends, and when ZooKeeper answers again.  The timer also
 * looks whether ZooKeeper answers, and whether the time is over.
 */


#include "core/names.h"


/* how often the connection is looked at, milliseconds */
#define ZKL_NAMES_TICK                50


static u_char *zkl_names_text(ngx_str_t *to, ngx_str_t *from, u_char *p);
static void zkl_names_timer_handler(ngx_event_t *ev);
static void zkl_names_unwait(zkl_names_t *names);
static void zkl_names_root_handler(zkl_op_t *op);
static ngx_int_t zkl_names_keep(zkl_names_t *names, zkl_op_t *op);
static ngx_uint_t zkl_names_first(zkl_names_t *names, ngx_str_t **kept,
    ngx_uint_t n);
static int ngx_libc_cdecl zkl_names_compare(const void *one, const void *two);
static ngx_uint_t zkl_names_wanted(zkl_names_t *names, ngx_str_t *name);
static ngx_uint_t zkl_names_begins(ngx_str_t *name, ngx_str_t *prefix,
    size_t len);
static ngx_int_t zkl_names_copy(zkl_names_t *names, ngx_str_t **sorted,
    ngx_uint_t n);
static void zkl_names_go(zkl_names_t *names);
static ngx_uint_t zkl_names_next(zkl_names_t *names);
static ngx_int_t zkl_names_look(zkl_names_t *names);
static void zkl_names_look_handler(zkl_call_t *call, zkl_answer_e answer);
static ngx_int_t zkl_names_take(zkl_names_t *names, zkl_named_t *named,
    zkl_call_t *call);
static ngx_int_t zkl_names_full(zkl_names_t *names, zkl_named_t *named,
    zkl_call_t *call);
static ngx_uint_t zkl_names_choose(zkl_names_t *names, zkl_named_t *named,
    zkl_call_t *call);
static ngx_uint_t zkl_names_owns(zkl_names_t *names, zkl_info_t *info);
static ngx_int_t zkl_names_describe(zkl_names_t *names, zkl_named_t *named,
    zkl_call_t *call, ngx_uint_t n);
static void zkl_names_cut(zkl_names_t *names);
static int ngx_libc_cdecl zkl_names_by_name(const void *one, const void *two);
static int ngx_libc_cdecl zkl_names_by_since(const void *one, const void *two);
static int ngx_libc_cdecl zkl_names_by_waiting(const void *one,
    const void *two);
static void zkl_names_forget(zkl_names_t *names);
static void zkl_names_forget_infos(zkl_named_t *named);
static void zkl_names_tell(zkl_names_t *names, zkl_answer_e answer);


zkl_names_t *
zkl_names(zkl_worker_t *worker, zkl_names_question_t *question)
{
    size_t        len;
    u_char       *p;
    zkl_names_t  *names;

    len = question->root->len + question->prefix->len + question->after->len
          + (question->owner ? question->owner->len : 0);

    names = ngx_calloc(sizeof(zkl_names_t) + len, worker->log);
    if (names == NULL) {
        return NULL;
    }

    p = (u_char *) names + sizeof(zkl_names_t);

    p = zkl_names_text(&names->root, question->root, p);
    p = zkl_names_text(&names->prefix, question->prefix, p);
    p = zkl_names_text(&names->after, question->after, p);

    if (question->owner != NULL) {
        names->owned = 1;
        (void) zkl_names_text(&names->owner, question->owner, p);
    }

    names->worker = worker;
    names->limit = question->limit;
    names->room = 2 * question->limit + ZKL_NAMES_LISTS;
    names->holders = (question->holders != 0);
    names->sort = question->sort;
    names->type = (names->holders || names->owned
                   || names->sort == ZKL_NAMES_BY_SINCE)
                  ? ZKL_HOLDERS : ZKL_COUNT;
    names->max = (names->owned || names->sort != ZKL_NAMES_BY_NAME)
                 ? ZKL_NAMES_SEARCH_MAX : ZKL_NAMES_MAX;
    names->turns = (names->type == ZKL_COUNT
                    && names->sort == ZKL_NAMES_BY_NAME)
                   ? 1 : ZKL_NAMES_SEARCH;
    names->until = ngx_current_msec + question->timeout;
    names->enough = ngx_current_msec + question->timeout / 2;
    names->handler = question->handler;
    names->data = question->data;

    /* not cancelable: a worker that leaves answers first */

    zkl_worker_timer(worker, &names->timer, zkl_names_timer_handler);

    /* a question that has not begun yet may still get free turns */

    if (worker->nsearches + worker->nsearching
        < ZKL_NAMES_TURNS + ZKL_NAMES_WAITING)
    {
        names->waits = 1;
        worker->nsearches++;
        ngx_queue_insert_tail(&worker->searches, &names->queue);
    }

    ngx_post_event(&names->timer, &ngx_posted_events);

    return names;
}


static u_char *
zkl_names_text(ngx_str_t *to, ngx_str_t *from, u_char *p)
{
    to->len = from->len;
    to->data = p;

    return ngx_cpymem(p, from->data, from->len);
}


static void
zkl_names_timer_handler(ngx_event_t *ev)
{
    zkl_op_t      *op;
    zkl_names_t   *names;
    zkl_worker_t  *worker;

    names = ngx_queue_data(ev, zkl_names_t, timer);
    worker = names->worker;

    if (!names->waits && !names->turn) {
        zkl_names_tell(names, ZKL_CALL_BUSY);
        return;
    }

    if ((ngx_msec_int_t) (names->until - ngx_current_msec) <= 0) {
        zkl_names_tell(names, names->busy ? ZKL_CALL_BUSY
                                          : ZKL_CALL_UNREACHABLE);
        return;
    }

    ngx_add_timer(ev, ZKL_NAMES_TICK);

    if (names->begun || !zkl_session_ready(worker->session)) {
        return;
    }

    if (!names->turn) {
        names->busy = (&names->queue != ngx_queue_head(&worker->searches)
                       || worker->nsearching + names->turns > ZKL_NAMES_TURNS);

        if (names->busy) {
            return;
        }

        zkl_names_unwait(names);

        names->turn = 1;
        worker->nsearching += names->turns;

        zkl_names_wake(worker);
    }

    names->begun = 1;

    op = zkl_op_new(worker->session, ZKL_OP_LIST, &names->root, NULL, NULL);
    if (op == NULL) {
        zkl_names_tell(names, ZKL_CALL_FAILED);
        return;
    }

    op->handler = zkl_names_root_handler;
    op->data = names;
    op->fresh = 1;
    op->turn = ZKL_TURN_LOOK;

    names->op = op;

    zkl_session_send(op);
}


static void
zkl_names_unwait(zkl_names_t *names)
{
    if (names->waits) {
        names->waits = 0;
        names->worker->nsearches--;
        ngx_queue_remove(&names->queue);
    }
}


void
zkl_names_wake(zkl_worker_t *worker)
{
    zkl_names_t  *first;

    if (!ngx_queue_empty(&worker->searches)) {
        first = ngx_queue_data(ngx_queue_head(&worker->searches), zkl_names_t,
                               queue);

        ngx_post_event(&first->timer, &ngx_posted_events);
    }
}


static void
zkl_names_root_handler(zkl_op_t *op)
{
    zkl_names_t  *names;

    names = op->data;
    names->op = NULL;

    switch (op->rc) {

    case ZKL_OK:
    case ZKL_NO_NODE:
        break;

    case ZKL_UNSENT:
    case ZKL_UNKNOWN:
        zkl_names_forget(names);
        return;

    case ZKL_NO_AUTH:
        zkl_names_tell(names, ZKL_CALL_DENIED);
        return;

    default:
        zkl_names_tell(names, ZKL_CALL_FAILED);
        return;
    }

    if (zkl_names_keep(names, op) != NGX_OK) {
        zkl_names_tell(names, ZKL_CALL_FAILED);
        return;
    }

    zkl_names_go(names);
}


/*
 * Keeps the first names.  The array has room for twice as many; when the array
 * is full, the names are put in order, and the second half is dropped.
 */

static ngx_int_t
zkl_names_keep(zkl_names_t *names, zkl_op_t *op)
{
    ngx_int_t    rc;
    ngx_str_t   *name, *last;
    ngx_str_t  **kept;
    ngx_uint_t   i, n, room;

    room = ngx_min(op->nchildren, 2 * names->max) + 1;

    kept = ngx_alloc(room * sizeof(ngx_str_t *), names->worker->log);
    if (kept == NULL) {
        return NGX_ERROR;
    }

    last = NULL;
    n = 0;

    for (i = 0; i < op->nchildren; i++) {
        name = &op->children[i];

        if (last != NULL && zkl_names_compare(&name, &last) > 0) {
            names->more = 1;
            continue;
        }

        if (!zkl_names_wanted(names, name)) {
            continue;
        }

        kept[n++] = name;

        if (n == 2 * names->max) {
            n = zkl_names_first(names, kept, n);
            last = kept[n - 1];
        }
    }

    n = zkl_names_first(names, kept, n);

    rc = zkl_names_copy(names, kept, n);

    ngx_free(kept);

    return rc;
}


/* Puts n names in order, and returns how many are kept. */

static ngx_uint_t
zkl_names_first(zkl_names_t *names, ngx_str_t **kept, ngx_uint_t n)
{
    if (n != 0) {
        ngx_qsort(kept, n, sizeof(ngx_str_t *), zkl_names_compare);
    }

    names->more |= (n > names->max);

    return ngx_min(n, names->max);
}


static int ngx_libc_cdecl
zkl_names_compare(const void *one, const void *two)
{
    const ngx_str_t  *a, *b;

    a = *(ngx_str_t *const *) one;
    b = *(ngx_str_t *const *) two;

    return (int) ngx_memn2cmp(a->data, b->data, a->len, b->len);
}


static ngx_uint_t
zkl_names_wanted(zkl_names_t *names, ngx_str_t *name)
{
    size_t      len;
    ngx_str_t  *after;

    after = &names->after;

    /* zkl_names_full() compares what a hash does not show */

    len = zkl_name_hash_check((char *) name->data, name->len)
          ? name->len - ZKL_SHA1_TEXT : names->prefix.len;

    if (!zkl_names_begins(name, &names->prefix, len)) {
        return 0;
    }

    if (after->len != 0
        && ngx_memn2cmp(name->data, after->data, name->len, after->len) <= 0)
    {
        return 0;
    }

    /* a name that is written otherwise is no gateway's lock */

    return names->root.len + 1 + name->len <= ZKL_PATH_MAX
           && zkl_name_check((char *) name->data, name->len) == NULL
           && zkl_name_write(NULL, (char *) name->data, name->len)
              == name->len;
}


/* Whether name begins as the first len bytes of prefix. */

static ngx_uint_t
zkl_names_begins(ngx_str_t *name, ngx_str_t *prefix, size_t len)
{
    len = ngx_min(prefix->len, len);

    return name->len >= len && ngx_memcmp(name->data, prefix->data, len) == 0;
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

    names->found = ngx_alloc(names->room * sizeof(zkl_named_t *),
                             names->worker->log);
    if (names->found == NULL) {
        return NGX_ERROR;
    }

    p = (u_char *) &names->named[n];

    for (i = 0; i < n; i++) {
        names->named[i].name.data = p;
        names->named[i].name.len = sorted[i]->len;

        p = ngx_cpymem(p, sorted[i]->data, sorted[i]->len);
    }

    return NGX_OK;
}


/* Looks at more locks, or tells the result. */

static void
zkl_names_go(zkl_names_t *names)
{
    ngx_uint_t  n;

    while (names->nlooks < ZKL_NAMES_LISTS && zkl_names_next(names)) {

        if (zkl_names_look(names) != NGX_OK) {
            zkl_names_tell(names, ZKL_CALL_FAILED);
            return;
        }
    }

    if (names->nlooks != 0) {
        return;
    }

    n = names->nfound;

    zkl_names_cut(names);

    if (names->sort == ZKL_NAMES_BY_NAME && names->nfound < n) {

        /* the next page begins with the first lock that was dropped */

        names->nlooked = names->found[names->nfound - 1] - names->named + 1;
    }

    zkl_names_tell(names, ZKL_CALL_OK);
}


/* Whether a look at the next name is to begin. */

static ngx_uint_t
zkl_names_next(zkl_names_t *names)
{
    ngx_uint_t  n;

    if (names->nlooked == names->nnamed
        || names->nread >= ZKL_NAMES_READ_MAX)
    {
        return 0;
    }

    if (names->nlooked != 0
        && (ngx_msec_int_t) (names->enough - ngx_current_msec) <= 0)
    {
        return 0;
    }

    if (names->sort != ZKL_NAMES_BY_NAME) {
        return 1;
    }

    /* with an owner, a lock that is looked at is hardly found */

    n = names->nfound + (names->owned ? 0 : names->nlooks);

    return n < names->limit && names->ndescribed < ZKL_NAMES_DESCRIBED_MAX;
}


static ngx_int_t
zkl_names_look(zkl_names_t *names)
{
    u_char             path[ZKL_PATH_MAX];
    ngx_str_t          str;
    ngx_uint_t         i;
    zkl_named_t       *named;
    ngx_msec_int_t     left;
    zkl_question_t     question;
    zkl_names_look_t  *look;

    named = &names->named[names->nlooked];

    /* zkl_names_wanted() leaves out the names that are too long */

    str.data = path;
    str.len = ngx_sprintf(path, "%V%s%V", &names->root,
                          (names->root.len > 1) ? "/" : "", &named->name)
              - path;

    ngx_memzero(&question, sizeof(zkl_question_t));

    left = (ngx_msec_int_t) (names->until - ngx_current_msec);

    /* the full name is in the claim data of a holder */

    question.type = zkl_name_hash_check((char *) named->name.data,
                                        named->name.len)
                    ? ZKL_HOLDERS : names->type;
    question.path = &str;
    question.timeout = (ngx_msec_t) ngx_max(left, 1);
    question.handler = zkl_names_look_handler;

    for (i = 0; names->looks[i].call != NULL; i++) {
        /* void */
    }

    look = &names->looks[i];

    question.data = look;

    look->names = names;
    look->named = named;
    look->call = zkl_call_start(names->worker, &question);

    if (look->call == NULL) {
        return NGX_ERROR;
    }

    names->nlooks++;
    names->nlooked++;

    return NGX_OK;
}


static void
zkl_names_look_handler(zkl_call_t *call, zkl_answer_e answer)
{
    zkl_names_t       *names;
    zkl_names_look_t  *look;

    look = call->data;
    names = look->names;

    look->call = NULL;
    names->nlooks--;

    switch (answer) {

    case ZKL_CALL_OK:

        if (zkl_names_take(names, look->named, call) != NGX_OK) {
            zkl_names_tell(names, ZKL_CALL_FAILED);
            return;
        }

        break;

    case ZKL_CALL_FREE:
        break;

    case ZKL_CALL_DENIED:
        names->partial = 1;
        break;

    default:
        zkl_names_tell(names, answer);
        return;
    }

    zkl_names_go(names);
}


/* Takes what the call has found out about a lock with claims. */

static ngx_int_t
zkl_names_take(zkl_names_t *names, zkl_named_t *named, zkl_call_t *call)
{
    ngx_int_t   rc;
    ngx_uint_t  n;

    rc = zkl_names_full(names, named, call);
    if (rc != NGX_OK) {
        return (rc == NGX_DECLINED) ? NGX_OK : NGX_ERROR;
    }

    named->mode = call->infos[0].child.mode;
    named->held = call->holders;
    named->queued = call->total - call->holders;
    named->looked = ngx_current_msec;

    names->nread += call->nknown;

    n = zkl_names_choose(names, named, call);

    if (names->owned && n == 0) {
        return NGX_OK;
    }

    if (names->holders && zkl_names_describe(names, named, call, n) != NGX_OK)
    {
        return NGX_ERROR;
    }

    names->ndescribed += named->ninfos;
    names->found[names->nfound++] = named;

    if (names->sort != ZKL_NAMES_BY_NAME
        && (names->nfound == names->room
            || names->ndescribed >= 2 * ZKL_NAMES_DESCRIBED_MAX))
    {
        zkl_names_cut(names);
    }

    return NGX_OK;
}


/*
 * Copies the full name of a lock whose znode has the name of a hash.
 * NGX_DECLINED: neither name has the prefix.
 */

static ngx_int_t
zkl_names_full(zkl_names_t *names, zkl_named_t *named, zkl_call_t *call)
{
    ngx_uint_t        i;
    zkl_claim_data_t  cdata;

    if (!zkl_name_hash_check((char *) named->name.data, named->name.len)) {
        return NGX_OK;
    }

    for (i = 0; i < call->nknown && named->full.len == 0; i++) {
        zkl_claim_data_read(&cdata, (char *) call->infos[i].cdata.data,
                            call->infos[i].cdata.len);

        if (cdata.name_len == 0) {
            continue;
        }

        named->full.data = ngx_alloc(cdata.name_len, names->worker->log);
        if (named->full.data == NULL) {
            return NGX_ERROR;
        }

        named->full.len = cdata.name_len;
        ngx_memcpy(named->full.data, cdata.name, cdata.name_len);
    }

    if (zkl_names_begins(&named->name, &names->prefix, names->prefix.len)
        || zkl_names_begins(&named->full, &names->prefix, names->prefix.len))
    {
        return NGX_OK;
    }

    return NGX_DECLINED;
}


/* Counts the holders that count, and notes since when the lock is held. */

static ngx_uint_t
zkl_names_choose(zkl_names_t *names, zkl_named_t *named, zkl_call_t *call)
{
    ngx_uint_t   i, n;
    zkl_info_t  *info;

    if (names->owned || names->sort == ZKL_NAMES_BY_SINCE) {
        names->partial |= (call->holders > ZKL_MEMBERS_MAX);
    }

    for (i = 0, n = 0; i < call->nknown; i++) {
        info = &call->infos[i];

        if (!zkl_names_owns(names, info)) {
            continue;
        }

        n++;

        if (info->since != 0
            && (named->since == 0 || info->since < named->since))
        {
            named->since = info->since;
        }
    }

    return n;
}


static ngx_uint_t
zkl_names_owns(zkl_names_t *names, zkl_info_t *info)
{
    zkl_claim_data_t  cdata;

    if (info->czxid == 0) {

        /* the ACL hides the claim */

        names->partial |= (names->owned || names->sort == ZKL_NAMES_BY_SINCE);

        return !names->owned;
    }

    if (!names->owned) {
        return 1;
    }

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    return cdata.owner_len == names->owner.len
           && ngx_memcmp(cdata.owner, names->owner.data, cdata.owner_len) == 0;
}


/*
 * Copies the n holders that count, ZKL_LIST_MAX at most, because the call's
 * claims are lent.
 */

static ngx_int_t
zkl_names_describe(zkl_names_t *names, zkl_named_t *named, zkl_call_t *call,
    ngx_uint_t n)
{
    ngx_uint_t   i;
    zkl_info_t  *info;

    n = ngx_min(n, ZKL_LIST_MAX);

    if (n == 0) {
        return NGX_OK;
    }

    named->infos = ngx_alloc(n * sizeof(zkl_info_t), call->worker->log);
    if (named->infos == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; named->ninfos < n; i++) {

        if (!zkl_names_owns(names, &call->infos[i])) {
            continue;
        }

        info = &named->infos[named->ninfos++];

        *info = call->infos[i];

        info->call = NULL;
        ngx_str_null(&info->name);

        if (info->cdata.len == 0) {
            continue;
        }

        info->cdata.data = ngx_alloc(info->cdata.len, call->worker->log);
        if (info->cdata.data == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(info->cdata.data, call->infos[i].cdata.data,
                   info->cdata.len);
    }

    return NGX_OK;
}


/* Puts what was found in order, and drops what the answer has no room for. */

static void
zkl_names_cut(zkl_names_t *names)
{
    zkl_named_t  *last;

    static int (ngx_libc_cdecl *const orders[])(const void *one,
        const void *two) = {
        zkl_names_by_name, zkl_names_by_since, zkl_names_by_waiting
    };

    if (names->nfound == 0) {
        return;
    }

    ngx_qsort(names->found, names->nfound, sizeof(zkl_named_t *),
              orders[names->sort]);

    while (names->nfound > 1
           && (names->nfound > names->limit
               || names->ndescribed > ZKL_NAMES_DESCRIBED_MAX))
    {
        last = names->found[--names->nfound];

        names->ndescribed -= last->ninfos;
        zkl_names_forget_infos(last);

        /* a lock that comes behind the dropped lock has no room either */

        names->limit = ngx_min(names->limit, names->nfound);
    }
}


/* the array of names is in the order of the bytes */

static int ngx_libc_cdecl
zkl_names_by_name(const void *one, const void *two)
{
    const zkl_named_t  *a, *b;

    a = *(zkl_named_t *const *) one;
    b = *(zkl_named_t *const *) two;

    return (a < b) ? -1 : (a > b);
}


/* a lock whose holders' times are unknown is the last */

static int ngx_libc_cdecl
zkl_names_by_since(const void *one, const void *two)
{
    const zkl_named_t  *a, *b;

    a = *(zkl_named_t *const *) one;
    b = *(zkl_named_t *const *) two;

    if (a->since == b->since) {
        return zkl_names_by_name(one, two);
    }

    if (a->since == 0 || b->since == 0) {
        return (a->since == 0) ? 1 : -1;
    }

    return (a->since < b->since) ? -1 : 1;
}


static int ngx_libc_cdecl
zkl_names_by_waiting(const void *one, const void *two)
{
    const zkl_named_t  *a, *b;

    a = *(zkl_named_t *const *) one;
    b = *(zkl_named_t *const *) two;

    if (a->queued == b->queued) {
        return zkl_names_by_name(one, two);
    }

    return (a->queued > b->queued) ? -1 : 1;
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

    for (i = 0; i < ZKL_NAMES_LISTS; i++) {
        if (names->looks[i].call != NULL) {
            zkl_call_leave(names->looks[i].call);
            names->looks[i].call = NULL;
        }
    }

    for (i = 0; i < names->nnamed; i++) {
        zkl_names_forget_infos(&names->named[i]);
    }

    if (names->named != NULL) {
        ngx_free(names->named);
        names->named = NULL;
    }

    if (names->found != NULL) {
        ngx_free(names->found);
        names->found = NULL;
    }

    names->nlooks = 0;
    names->nnamed = 0;
    names->nlooked = 0;
    names->nfound = 0;
    names->nread = 0;
    names->ndescribed = 0;
    names->begun = 0;
    names->more = 0;
    names->partial = 0;
}


static void
zkl_names_forget_infos(zkl_named_t *named)
{
    ngx_uint_t  i;

    for (i = 0; i < named->ninfos; i++) {
        if (named->infos[i].cdata.data != NULL) {
            ngx_free(named->infos[i].cdata.data);
        }
    }

    if (named->infos != NULL) {
        ngx_free(named->infos);
        named->infos = NULL;
        named->ninfos = 0;
    }

    if (named->full.data != NULL) {
        ngx_free(named->full.data);
        ngx_str_null(&named->full);
    }
}


static void
zkl_names_tell(zkl_names_t *names, zkl_answer_e answer)
{
    names->handler(names, answer);

    zkl_names_leave(names);
}


void
zkl_names_leave(zkl_names_t *names)
{
    zkl_names_forget(names);

    zkl_names_unwait(names);

    if (names->turn) {
        names->worker->nsearching -= names->turns;
    }

    zkl_names_wake(names->worker);

    if (names->timer.timer_set) {
        ngx_del_timer(&names->timer);
    }

    if (names->timer.posted) {
        ngx_delete_posted_event(&names->timer);
    }

    ngx_free(names);
}
