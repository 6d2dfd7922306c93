
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
 * Everything here runs on the event loop.  names->op and the look at each name
 * are NULL unless under way; named and found are NULL until the root is listed.
 * All are left when names is freed.  If the list of the root had no answer the
 * root is listed again.  A question without a turn waits in worker->searches.
 * The timer of the first is posted when another question gets its turns or
 * ends, and when ZooKeeper answers again.  The timer also looks whether
 * ZooKeeper answers, and whether the time is over.
 */


#include "core/names.h"


/* how often the connection is looked at, milliseconds */
#define ZKL_NAMES_TICK                50


static u_char *zkl_names_copy(u_char *p, ngx_str_t *text);
static void zkl_names_timer_handler(ngx_event_t *ev);
static void zkl_names_root_handler(zkl_op_t *op);
static ngx_int_t zkl_names_keep(zkl_names_t *names, zkl_op_t *op);
static int ngx_libc_cdecl zkl_names_by_bytes(const void *one,
    const void *two);
static ngx_uint_t zkl_names_wanted(zkl_names_t *names, ngx_str_t *name);
static ngx_uint_t zkl_names_begins(ngx_str_t *name, ngx_str_t *prefix,
    size_t len);
static void zkl_names_go(zkl_names_t *names);
static ngx_uint_t zkl_names_next(zkl_names_t *names);
static void zkl_names_look_handler(zkl_call_t *call, zkl_answer_e answer);
static ngx_int_t zkl_names_full(zkl_names_t *names, zkl_named_t *named,
    zkl_call_t *call);
static ngx_int_t zkl_names_take(zkl_names_t *names, zkl_named_t *named,
    zkl_call_t *call);
static ngx_uint_t zkl_names_owns(zkl_names_t *names, zkl_info_t *info);
static void zkl_names_cut(zkl_names_t *names);
static int ngx_libc_cdecl zkl_names_by_rank(const void *one, const void *two);
static void zkl_names_forget_infos(zkl_named_t *named);
static void zkl_names_tell(zkl_names_t *names, zkl_answer_e answer);


zkl_names_t *
zkl_names(zkl_worker_t *worker, zkl_names_question_t *question)
{
    size_t                 len;
    u_char                *p;
    zkl_names_t           *names;
    zkl_names_question_t  *asked;

    len = question->root.len + question->prefix.len + question->after.len
          + question->owner.len;

    names = ngx_calloc(sizeof(zkl_names_t) + len, worker->log);
    if (names == NULL) {
        return NULL;
    }

    asked = &names->asked;
    *asked = *question;

    p = (u_char *) names + sizeof(zkl_names_t);
    p = zkl_names_copy(p, &asked->root);
    p = zkl_names_copy(p, &asked->prefix);
    p = zkl_names_copy(p, &asked->after);
    (void) zkl_names_copy(p, &asked->owner);

    names->worker = worker;
    names->judged = (asked->owned || asked->sort == ZKL_NAMES_BY_SINCE);
    names->type = (asked->holders || names->judged) ? ZKL_HOLDERS : ZKL_COUNT;
    names->max = (asked->owned || asked->sort != ZKL_NAMES_BY_NAME)
                 ? ZKL_NAMES_SEARCH_MAX : ZKL_NAMES_MAX;
    names->until = ngx_current_msec + asked->timeout;

    /* not cancelable: a worker that leaves answers first */

    zkl_worker_timer(worker, &names->timer, zkl_names_timer_handler);

    /* a question that has not begun yet may still get free turns */

    if (worker->nsearches + worker->nsearching
        >= ZKL_NAMES_TURNS + ZKL_NAMES_WAITING)
    {
        names->busy = 1;
        names->until = ngx_current_msec;
    }

    worker->nsearches++;
    ngx_queue_insert_tail(&worker->searches, &names->queue);

    ngx_post_event(&names->timer, &ngx_posted_events);

    return names;
}


/* Copies a text to p, and returns the end of the copy. */

static u_char *
zkl_names_copy(u_char *p, ngx_str_t *text)
{
    u_char  *end;

    end = (text->len != 0) ? ngx_cpymem(p, text->data, text->len) : p;
    text->data = p;

    return end;
}


/* Begins as soon as there are turns, and ZooKeeper answers. */

static void
zkl_names_timer_handler(ngx_event_t *ev)
{
    zkl_op_t      *op;
    ngx_uint_t     turns;
    zkl_names_t   *names;
    zkl_worker_t  *worker;

    names = ngx_queue_data(ev, zkl_names_t, timer);
    worker = names->worker;

    if ((ngx_msec_int_t) (names->until - ngx_current_msec) <= 0) {
        zkl_names_tell(names, names->busy ? ZKL_CALL_BUSY
                                          : ZKL_CALL_UNREACHABLE);
        return;
    }

    ngx_add_timer(ev, ZKL_NAMES_TICK);

    if (names->op != NULL || names->nnamed != 0
        || !zkl_session_ready(worker->session))
    {
        return;
    }

    if (names->turns == 0) {

        turns = (names->type == ZKL_COUNT
                 && names->asked.sort == ZKL_NAMES_BY_NAME)
                ? 1 : ZKL_NAMES_SEARCH;

        names->busy = (&names->queue != ngx_queue_head(&worker->searches)
                       || worker->nsearching + turns > ZKL_NAMES_TURNS);

        if (names->busy) {
            return;
        }

        ngx_queue_remove(&names->queue);
        worker->nsearches--;

        names->turns = turns;
        worker->nsearching += turns;

        zkl_names_wake(worker);
    }

    op = zkl_op_new(worker->session, ZKL_OP_LIST, &names->asked.root, NULL,
                    NULL);
    if (op == NULL) {
        zkl_names_tell(names, ZKL_CALL_FAILED);
        return;
    }

    op->fresh = 1;
    op->turn = ZKL_TURN_LOOK;

    names->op = op;

    zkl_session_send(op, zkl_names_root_handler, names);
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

        if (zkl_names_keep(names, op) != NGX_OK) {
            zkl_names_tell(names, ZKL_CALL_FAILED);
            break;
        }

        zkl_names_go(names);
        break;

    case ZKL_UNSENT:
    case ZKL_UNKNOWN:
        /* the timer has the list sent again */
        break;

    default:
        zkl_names_tell(names, zkl_call_answer(op->rc));
        break;
    }
}


/*
 * Copies the first names, because the list is freed with the operation.  When
 * twice as many were collected the greater half is dropped, and so is each name
 * behind from then on.
 */

static ngx_int_t
zkl_names_keep(zkl_names_t *names, zkl_op_t *op)
{
    u_char       *p;
    size_t        len;
    ngx_log_t    *log;
    ngx_str_t    *name, *last, **kept;
    ngx_uint_t    i, n;

    log = names->worker->log;

    n = ngx_min(op->nchildren, 2 * names->max);

    kept = ngx_alloc((n + 1) * sizeof(ngx_str_t *), log);
    if (kept == NULL) {
        return NGX_ERROR;
    }

    last = NULL;
    n = 0;

    for (i = 0; i < op->nchildren; i++) {
        name = &op->children[i];

        if ((last != NULL
             && ngx_memn2cmp(name->data, last->data, name->len, last->len) > 0)
            || !zkl_names_wanted(names, name))
        {
            continue;
        }

        kept[n++] = name;

        if (n == 2 * names->max) {
            ngx_qsort(kept, n, sizeof(ngx_str_t *), zkl_names_by_bytes);

            names->more = 1;
            n = names->max;
            last = kept[n - 1];
        }
    }

    ngx_qsort(kept, n, sizeof(ngx_str_t *), zkl_names_by_bytes);

    if (n > names->max) {
        names->more = 1;
        n = names->max;
    }

    len = 0;

    for (i = 0; i < n; i++) {
        len += kept[i]->len;
    }

    if (n != 0) {
        names->named = ngx_calloc(n * sizeof(zkl_named_t) + len, log);
        names->found = ngx_alloc(n * sizeof(zkl_named_t *), log);

        if (names->named == NULL || names->found == NULL) {
            ngx_free(kept);
            return NGX_ERROR;
        }
    }

    names->nnamed = n;

    p = (u_char *) (names->named + n);

    for (i = 0; i < n; i++) {
        names->named[i].name.data = p;
        names->named[i].name.len = kept[i]->len;

        p = ngx_cpymem(p, kept[i]->data, kept[i]->len);
    }

    ngx_free(kept);

    return NGX_OK;
}


static int ngx_libc_cdecl
zkl_names_by_bytes(const void *one, const void *two)
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

    after = &names->asked.after;

    /* zkl_names_full() compares what a hash does not show */

    len = zkl_name_hash_check((char *) name->data, name->len)
          ? name->len - ZKL_SHA1_TEXT : names->asked.prefix.len;

    if (!zkl_names_begins(name, &names->asked.prefix, len)) {
        return 0;
    }

    if (after->len != 0
        && ngx_memn2cmp(name->data, after->data, name->len, after->len) <= 0)
    {
        return 0;
    }

    /* a name that is written otherwise is no gateway's lock */

    return names->asked.root.len + 1 + name->len <= ZKL_PATH_MAX
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


/* Looks at more locks, or tells the result. */

static void
zkl_names_go(zkl_names_t *names)
{
    u_char           path[ZKL_PATH_MAX];
    ngx_str_t        str;
    zkl_named_t     *named;
    ngx_msec_int_t   left;
    zkl_question_t   question;

    while (names->nlooks < ZKL_NAMES_LISTS && zkl_names_next(names)) {

        named = &names->named[names->nlooked];

        /* zkl_names_wanted() leaves out the names that are too long */

        str.data = path;
        str.len = ngx_sprintf(path, "%V%s%V", &names->asked.root,
                              (names->asked.root.len > 1) ? "/" : "",
                              &named->name)
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
        question.data = named;

        named->names = names;
        named->look = zkl_call_start(names->worker, &question);

        if (named->look == NULL) {
            zkl_names_tell(names, ZKL_CALL_FAILED);
            return;
        }

        names->nlooks++;
        names->nlooked++;
    }

    if (names->nlooks == 0) {
        zkl_names_cut(names);
        zkl_names_tell(names, ZKL_CALL_OK);
    }
}


/* Whether a look at the next name is to begin. */

static ngx_uint_t
zkl_names_next(zkl_names_t *names)
{
    ngx_uint_t      n;
    ngx_msec_int_t  left;

    if (names->nlooked == names->nnamed
        || names->nread >= ZKL_NAMES_READ_MAX)
    {
        return 0;
    }

    left = (ngx_msec_int_t) (names->until - ngx_current_msec);

    if (names->nlooked != 0
        && left <= (ngx_msec_int_t) (names->asked.timeout / 2))
    {
        return 0;
    }

    if (names->asked.sort != ZKL_NAMES_BY_NAME) {
        return 1;
    }

    /* with an owner, a lock that is looked at is hardly found */

    n = names->nfound + (names->asked.owned ? 0 : names->nlooks);

    return n < names->asked.limit
           && names->ndescribed < ZKL_NAMES_DESCRIBED_MAX;
}


static void
zkl_names_look_handler(zkl_call_t *call, zkl_answer_e answer)
{
    ngx_int_t     rc;
    zkl_names_t  *names;
    zkl_named_t  *named;

    named = call->data;
    names = named->names;

    named->look = NULL;
    names->nlooks--;

    switch (answer) {

    case ZKL_CALL_OK:
        rc = zkl_names_full(names, named, call);

        if (rc == NGX_OK) {
            rc = zkl_names_take(names, named, call);
        }

        if (rc == NGX_ERROR) {
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


/*
 * Copies the full name of a lock whose znode has the name of a hash.
 * NGX_DECLINED: neither name has the prefix.
 */

static ngx_int_t
zkl_names_full(zkl_names_t *names, zkl_named_t *named, zkl_call_t *call)
{
    ngx_str_t         name, *prefix;
    ngx_uint_t        i;
    zkl_claim_data_t  cdata;

    if (!zkl_name_hash_check((char *) named->name.data, named->name.len)) {
        return NGX_OK;
    }

    for (i = 0; i < call->nknown && named->full.len == 0; i++) {
        zkl_claim_data_read(&cdata, (char *) call->infos[i].cdata.data,
                            call->infos[i].cdata.len);

        name.data = (u_char *) cdata.name;
        name.len = cdata.name_len;

        if (zkl_call_copy(call, &named->full, &name) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    prefix = &names->asked.prefix;

    if (zkl_names_begins(&named->name, prefix, prefix->len)
        || zkl_names_begins(&named->full, prefix, prefix->len))
    {
        return NGX_OK;
    }

    return NGX_DECLINED;
}


/*
 * Takes what the call has found out about a lock with claims, and copies the
 * holders that count, ZKL_LIST_MAX at most, because the call's claims are lent.
 */

static ngx_int_t
zkl_names_take(zkl_names_t *names, zkl_named_t *named, zkl_call_t *call)
{
    ngx_uint_t   i, n;
    zkl_info_t  *info, *copy;

    named->mode = call->infos[0].child.mode;
    named->held = call->holders;
    named->queued = call->total - call->holders;
    named->looked = ngx_current_msec;

    names->nread += call->nknown;
    names->partial |= (names->judged && call->holders > ZKL_MEMBERS_MAX);

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

        if (!names->asked.holders || n > ZKL_LIST_MAX) {
            continue;
        }

        if (n == 1) {
            named->infos = ngx_alloc(ngx_min(call->nknown - i, ZKL_LIST_MAX)
                                     * sizeof(zkl_info_t), call->worker->log);
            if (named->infos == NULL) {
                return NGX_ERROR;
            }
        }

        copy = &named->infos[named->ninfos++];

        *copy = *info;

        copy->call = NULL;
        ngx_str_null(&copy->name);
        ngx_str_null(&copy->cdata);

        if (zkl_call_copy(call, &copy->cdata, &info->cdata) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (names->asked.owned && n == 0) {
        return NGX_OK;
    }

    if (names->asked.sort == ZKL_NAMES_BY_WAITING) {
        named->rank = - (int64_t) named->queued;

    } else if (names->asked.sort == ZKL_NAMES_BY_SINCE) {

        /* a lock whose holders' times are unknown is the last */

        named->rank = named->since ? named->since : INT64_MAX;
    }

    names->ndescribed += named->ninfos;
    names->found[names->nfound++] = named;

    if (names->asked.sort != ZKL_NAMES_BY_NAME
        && names->ndescribed >= 2 * ZKL_NAMES_DESCRIBED_MAX)
    {
        zkl_names_cut(names);
    }

    return NGX_OK;
}


static ngx_uint_t
zkl_names_owns(zkl_names_t *names, zkl_info_t *info)
{
    zkl_claim_data_t  cdata;

    if (info->czxid == 0) {

        /* the ACL hides the claim */

        names->partial |= names->judged;

        return !names->asked.owned;
    }

    if (!names->asked.owned) {
        return 1;
    }

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    return cdata.owner_len == names->asked.owner.len
           && ngx_memcmp(cdata.owner, names->asked.owner.data,
                         cdata.owner_len)
              == 0;
}


/* Puts what was found in order, and drops what the answer has no room for. */

static void
zkl_names_cut(zkl_names_t *names)
{
    zkl_named_t  *last;

    if (names->nfound == 0) {
        return;
    }

    ngx_qsort(names->found, names->nfound, sizeof(zkl_named_t *),
              zkl_names_by_rank);

    while (names->nfound > 1
           && (names->nfound > names->asked.limit
               || names->ndescribed > ZKL_NAMES_DESCRIBED_MAX))
    {
        last = names->found[--names->nfound];

        names->ndescribed -= last->ninfos;
        zkl_names_forget_infos(last);

        if (names->asked.sort == ZKL_NAMES_BY_NAME) {

            /* the next page begins with the first lock that was dropped */

            names->nlooked = last - names->named;
        }

        /* a lock that comes behind the dropped lock has no room either */

        names->asked.limit = ngx_min(names->asked.limit, names->nfound);
    }
}


/* by rank; the array of names is in the order of the bytes */

static int ngx_libc_cdecl
zkl_names_by_rank(const void *one, const void *two)
{
    const zkl_named_t  *a, *b;

    a = *(zkl_named_t *const *) one;
    b = *(zkl_named_t *const *) two;

    if (a->rank != b->rank) {
        return (a->rank < b->rank) ? -1 : 1;
    }

    return (a < b) ? -1 : (a > b);
}


static void
zkl_names_forget_infos(zkl_named_t *named)
{
    ngx_uint_t  i;

    for (i = 0; i < named->ninfos; i++) {
        ngx_free(named->infos[i].cdata.data);
    }

    ngx_free(named->infos);
    ngx_free(named->full.data);

    named->infos = NULL;
    named->ninfos = 0;
    ngx_str_null(&named->full);
}


static void
zkl_names_tell(zkl_names_t *names, zkl_answer_e answer)
{
    names->asked.handler(names, answer);

    zkl_names_leave(names);
}


void
zkl_names_leave(void *data)
{
    zkl_names_t *names = data;

    ngx_uint_t  i;

    if (names->op != NULL) {
        names->op->handler = NULL;
    }

    for (i = 0; i < names->nnamed; i++) {

        if (names->named[i].look != NULL) {
            zkl_call_leave(names->named[i].look);
        }

        zkl_names_forget_infos(&names->named[i]);
    }

    ngx_free(names->named);
    ngx_free(names->found);

    if (names->turns == 0) {
        ngx_queue_remove(&names->queue);
        names->worker->nsearches--;
    }

    names->worker->nsearching -= names->turns;

    zkl_names_wake(names->worker);

    if (names->timer.timer_set) {
        ngx_del_timer(&names->timer);
    }

    if (names->timer.posted) {
        ngx_delete_posted_event(&names->timer);
    }

    ngx_free(names);
}
