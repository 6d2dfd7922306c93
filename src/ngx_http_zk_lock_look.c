
/*
 * Looks: which claims hold a lock and which claims wait, from a list of the
 * lock's claims and the claims' labels.
 *
 * For a claim of this gateway the record tells, too, when the claim was granted
 * and how long the lease lasts; for another gateway's claim only that gateway
 * knows.
 *
 * All code here runs on the event loop, for an ask; `infos` belong to the ask,
 * and have the names and labels of the claims.
 */


#include "ngx_http_zk_lock_node.h"


/* how many claims an ask reads at a time */
#define NGX_HTTP_ZK_LOCK_READS_MAX    64

/* how often an ask lists the claims, if all are gone before the reads */
#define NGX_HTTP_ZK_LOCK_LOOK_TRIES   10


static void ngx_http_zk_lock_ask_holder_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_list_handler(ngx_http_zk_lock_op_t *op);
static ngx_int_t ngx_http_zk_lock_ask_count(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op);
static ngx_uint_t ngx_http_zk_lock_ask_readers(ngx_http_zk_lock_op_t *op,
    int64_t writer);
static ngx_int_t ngx_http_zk_lock_ask_sort(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_state(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_info_t *infos, ngx_uint_t n);
static int ngx_libc_cdecl ngx_http_zk_lock_ask_compare(const void *one,
    const void *two);
static void ngx_http_zk_lock_ask_read(ngx_http_zk_lock_ask_t *ask);
static void ngx_http_zk_lock_ask_read_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_ask_found(ngx_http_zk_lock_ask_t *ask);


/* Describes the first claim of this worker's view: a list is not needed. */

void
ngx_http_zk_lock_ask_holder(ngx_http_zk_lock_ask_t *ask)
{
    u_char                      buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t                   name;
    zk_lock_entry_t            *first;
    ngx_http_zk_lock_op_t      *op;
    ngx_http_zk_lock_lock_t    *lock;

    lock = ngx_http_zk_lock_lock_find(ask->worker, &ask->path);
    first = lock ? zk_lock_view_first(&lock->view) : NULL;

    if (first == NULL || ask->node) {
        ngx_http_zk_lock_ask_list(ask);
        return;
    }

    if (ngx_http_zk_lock_ask_infos(ask, 1) != NGX_OK) {
        ngx_http_zk_lock_ask_post(ask, NGX_HTTP_ZK_LOCK_ASK_FAILED);
        return;
    }

    ngx_http_zk_lock_lock_name(first, &name, buf);

    (void) zk_lock_child_read(&ask->infos[0].child, (char *) name.data,
                              name.len);

    op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_GET, &name,
                                 ngx_http_zk_lock_ask_holder_handler, ask);

    ngx_http_zk_lock_ask_send(ask, op);
}


static void
ngx_http_zk_lock_ask_holder_handler(ngx_http_zk_lock_op_t *op)
{
    zk_lock_id_t               *id;
    ngx_http_zk_lock_ask_t     *ask;
    ngx_http_zk_lock_record_t   record;

    ask = op->data;

    if (ask->handler == NULL) {
        goto done;
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {
        ngx_http_zk_lock_ask_list(ask);
        goto done;
    }

    if (ngx_http_zk_lock_ask_noted(ask, op) != NGX_OK) {
        goto done;
    }

    id = &ask->infos[0].child.id;

    if (ask->infos[0].child.has_id
        && ngx_http_zk_lock_record_read(ask->worker->zone, id, &ask->path,
                                        &record)
           == NGX_OK)
    {
        ngx_http_zk_lock_ask_note_record(&ask->infos[0], &record);
    }

    ask->infos[0].held = 1;
    ask->nknown = 1;

    if (!ask->infos[0].timed) {
        ngx_http_zk_lock_ask_note_ttl(&ask->infos[0]);
    }

    ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


void
ngx_http_zk_lock_ask_list(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_op_t  *op;

    if (ask->node && ask->ninfos != 0) {

        /* the claim was read, and is the lock's only claim */

        ask->position = 0;
        ask->place = 0;
        ask->infos[0].held = 1;
        ngx_http_zk_lock_ask_placed(ask);
        return;
    }

    if (ask->node) {
        ngx_http_zk_lock_node_look(ask);
        return;
    }

    if (ngx_http_zk_lock_ask_turn(ask) != NGX_OK) {
        return;
    }

    op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_LIST, NULL,
                                 ngx_http_zk_lock_ask_list_handler, ask);

    ngx_http_zk_lock_ask_send_fresh(ask, op);
}


static void
ngx_http_zk_lock_ask_list_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_ask_t  *ask;

    ask = op->data;

    if (ask->handler == NULL) {
        ngx_http_zk_lock_ask_turn_over(ask);
        goto done;
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {
        op->rc = NGX_HTTP_ZK_LOCK_OK;
    }

    if (op->rc != NGX_HTTP_ZK_LOCK_OK) {
        ngx_http_zk_lock_ask_failed(ask, op->rc);
        goto done;
    }

    if (ask->type < NGX_HTTP_ZK_LOCK_LIST) {

        /* the claim was read; only the place was missing */

        ngx_http_zk_lock_ask_turn_over(ask);

        if (ngx_http_zk_lock_ask_count(ask, op) != NGX_OK) {
            ngx_http_zk_lock_ask_gone(ask);

        } else {
            ngx_http_zk_lock_ask_placed(ask);
        }

        goto done;
    }

    if (ngx_http_zk_lock_ask_sort(ask, op) != NGX_OK) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_FAILED);
        goto done;
    }

    if (ask->ninfos == 0) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_FREE);
        goto done;
    }

    ngx_http_zk_lock_ask_read(ask);

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


/* Counts the claims ahead; NGX_DECLINED if the claim asked for is gone. */

static ngx_int_t
ngx_http_zk_lock_ask_count(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op)
{
    int64_t          writer;
    ngx_uint_t       i, there, mixes, seats, ahead, readers;
    zk_lock_child_t  child;

    ask->position = 0;
    ahead = 0;
    there = 0;
    mixes = 1;

    writer = ask->token.seq;

    for (i = 0; i < op->nchildren; i++) {

        if (zk_lock_child_read(&child, (char *) op->children[i].data,
                               op->children[i].len)
            != 0)
        {
            continue;
        }

        there |= (child.has_id && child.seq == ask->token.seq
                  && zk_lock_secret_equal(child.id.random,
                                          ask->token.id.random,
                                          ZK_LOCK_RANDOM_LEN));

        if (child.seq >= ask->token.seq) {
            continue;
        }

        ahead++;

        mixes &= zk_lock_view_mixes(child.kind, ask->token.kind);

        if (zk_lock_view_blocks(child.kind, ask->token.kind)) {
            ask->position++;
        }

        if (child.kind != ZK_LOCK_READ && child.seq < writer) {
            writer = child.seq;
        }
    }

    readers = ngx_http_zk_lock_ask_readers(op, writer);
    seats = zk_lock_view_seats(ask->token.kind);

    /* a single claim of another use ahead blocks the claim */

    ask->infos[0].held = (mixes && ask->position < seats);
    ask->place = ngx_http_zk_lock_place(ahead, ngx_max(readers, seats));

    return there ? NGX_OK : NGX_DECLINED;
}


/* The readers ahead of the first claim that is no reader share the lock. */

static ngx_uint_t
ngx_http_zk_lock_ask_readers(ngx_http_zk_lock_op_t *op, int64_t writer)
{
    ngx_uint_t       i, n;
    zk_lock_child_t  child;

    n = 0;

    for (i = 0; i < op->nchildren; i++) {
        n += (zk_lock_child_read(&child, (char *) op->children[i].data,
                                 op->children[i].len)
              == 0
              && child.kind == ZK_LOCK_READ && child.seq < writer);
    }

    return n;
}


/* Puts the children in order, and keeps as many as are wanted. */

static ngx_int_t
ngx_http_zk_lock_ask_sort(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op)
{
    u_char                   *p;
    ngx_str_t                *name;
    ngx_uint_t                i, n, max;
    ngx_http_zk_lock_info_t  *infos;

    infos = ngx_alloc((op->nchildren + 1) * sizeof(ngx_http_zk_lock_info_t),
                      ask->worker->log);
    if (infos == NULL) {
        return NGX_ERROR;
    }

    for (i = 0, n = 0; i < op->nchildren; i++) {
        ngx_memzero(&infos[n], sizeof(ngx_http_zk_lock_info_t));

        if (zk_lock_child_read(&infos[n].child,
                               (char *) op->children[i].data,
                               op->children[i].len)
            == 0)
        {
            infos[n++].name = op->children[i];
        }
    }

    ngx_qsort(infos, n, sizeof(ngx_http_zk_lock_info_t),
              ngx_http_zk_lock_ask_compare);

    ngx_http_zk_lock_ask_state(ask, infos, n);

    max = NGX_HTTP_ZK_LOCK_LIST_MAX;

    if (ask->type != NGX_HTTP_ZK_LOCK_LIST) {
        max = 1;

    } else {

        /* all holders are described, if there are not very many */

        max = ngx_max(max, ngx_min(ask->holders,
                                   NGX_HTTP_ZK_LOCK_MEMBERS_MAX));
    }

    n = ngx_min(n, max);

    if (ngx_http_zk_lock_ask_infos(ask, n) != NGX_OK) {
        ngx_free(infos);
        return NGX_ERROR;
    }

    ask->next = 0;

    for (i = 0; i < n; i++) {
        name = &infos[i].name;

        p = ngx_alloc(name->len, ask->worker->log);
        if (p == NULL) {
            ngx_free(infos);
            return NGX_ERROR;
        }

        ngx_memcpy(p, name->data, name->len);

        ask->infos[i].child = infos[i].child;
        ask->infos[i].held = infos[i].held;
        ask->infos[i].name.data = p;
        ask->infos[i].name.len = name->len;
    }

    ngx_free(infos);

    return NGX_OK;
}


/* Sets which claims hold the lock, and a mark that changes with the claims. */

static void
ngx_http_zk_lock_ask_state(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_info_t *infos, ngx_uint_t n)
{
    uint32_t         crc, sum;
    ngx_uint_t       i;
    zk_lock_tally_t  tally;

    ask->total = n;
    ask->holders = 0;

    ngx_memzero(&tally, sizeof(zk_lock_tally_t));
    sum = 0;

    ngx_crc32_init(crc);

    for (i = 0; i < n; i++) {
        infos[i].held = zk_lock_view_tally(&tally, infos[i].child.kind);

        if (infos[i].held) {
            ask->holders++;
            ask->last = infos[i].child.seq;
        }

        ngx_crc32_update(&crc, infos[i].name.data, infos[i].name.len);
        sum = ngx_murmur_hash2(infos[i].name.data, infos[i].name.len)
              + sum * 31;
    }

    ngx_crc32_final(crc);

    ask->mark = (uint64_t) crc << 32 | sum;
}


static int ngx_libc_cdecl
ngx_http_zk_lock_ask_compare(const void *one, const void *two)
{
    const ngx_http_zk_lock_info_t  *a, *b;

    a = one;
    b = two;

    if (a->child.seq != b->child.seq) {
        return (a->child.seq < b->child.seq) ? -1 : 1;
    }

    return 0;
}


/* Reads the next claims, a few at a time; tells when all were read. */

static void
ngx_http_zk_lock_ask_read(ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_op_t    *op;
    ngx_http_zk_lock_info_t  *info;

    while (ask->next < ask->ninfos && ask->reads < NGX_HTTP_ZK_LOCK_READS_MAX)
    {
        info = &ask->infos[ask->next];

        op = ngx_http_zk_lock_ask_op(ask, NGX_HTTP_ZK_LOCK_OP_GET, &info->name,
                                     ngx_http_zk_lock_ask_read_handler, info);
        if (op == NULL) {
            ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_FAILED);
            return;
        }

        ask->next++;
        ask->reads++;

        ngx_http_zk_lock_ask_send(ask, op);
    }

    if (ask->reads == 0) {
        ngx_http_zk_lock_ask_found(ask);
    }
}


static void
ngx_http_zk_lock_ask_read_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_ask_t     *ask;
    ngx_http_zk_lock_info_t    *info;
    ngx_http_zk_lock_record_t   record;

    info = op->data;
    ask = info->ask;

    ask->reads--;

    if (ask->handler == NULL || ask->later) {
        goto done;
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_UNKNOWN
        || op->rc == NGX_HTTP_ZK_LOCK_UNSENT)
    {
        ngx_http_zk_lock_ask_failed(ask, op->rc);
        goto done;
    }

    /* NO_NODE: the claim is gone; NO_AUTH: the ACL hides the claim's label */

    if (op->rc == NGX_HTTP_ZK_LOCK_OK
        && ngx_http_zk_lock_ask_note(info, op) == NGX_OK
        && info->child.has_id
        && ngx_http_zk_lock_record_read(ask->worker->zone, &info->child.id,
                                        &ask->path, &record)
           == NGX_OK)
    {
        ngx_http_zk_lock_ask_note_record(info, &record);
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_NO_AUTH) {
        info->known = 1;
    }

    ngx_http_zk_lock_ask_read(ask);

done:

    ngx_http_zk_lock_ask_unpin(ask);
}


/* All claims were read: the claims that are gone meanwhile are left out. */

static void
ngx_http_zk_lock_ask_found(ngx_http_zk_lock_ask_t *ask)
{
    ngx_uint_t                i, n;
    ngx_http_zk_lock_info_t   gone;

    for (i = 0, n = 0; i < ask->ninfos; i++) {

        if (!ask->infos[i].known) {
            ask->total--;
            ask->holders -= ask->infos[i].held;
            continue;
        }

        if (i != n) {

            /* ngx_http_zk_lock_ask_infos() frees the claims at the end */

            gone = ask->infos[n];
            ask->infos[n] = ask->infos[i];
            ask->infos[i] = gone;
        }

        n++;
    }

    /* the claim that is first by now holds the lock */

    if (n != 0 && ask->holders == 0) {
        ask->infos[0].held = 1;
        ask->holders = 1;
        ask->last = ask->infos[0].child.seq;
    }

    for (i = 0; i < n && ask->infos[i].held; i++) {
        if (!ask->infos[i].timed) {
            ngx_http_zk_lock_ask_note_ttl(&ask->infos[i]);
        }
    }

    ask->nknown = n;

    if (n != 0) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);
        return;
    }

    /* the lock need not be free: other claims may have come meanwhile */

    if (++ask->tries < NGX_HTTP_ZK_LOCK_LOOK_TRIES) {
        ngx_http_zk_lock_ask_list(ask);
        return;
    }

    /* the lock changes hands all the time */

    ngx_http_zk_lock_ask_tell(ask, ask->type == NGX_HTTP_ZK_LOCK_FIRST
                                   ? NGX_HTTP_ZK_LOCK_ASK_OK
                                   : NGX_HTTP_ZK_LOCK_ASK_FREE);
}


ngx_int_t
ngx_http_zk_lock_ask_noted(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op)
{
    if (op->rc != NGX_HTTP_ZK_LOCK_OK) {
        ngx_http_zk_lock_ask_failed(ask, op->rc);
        return NGX_ERROR;
    }

    if (ngx_http_zk_lock_ask_note(&ask->infos[0], op) != NGX_OK) {
        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_FAILED);
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_ask_note(ngx_http_zk_lock_info_t *info,
    ngx_http_zk_lock_op_t *op)
{
    info->known = 1;
    info->czxid = op->czxid;
    info->since = (time_t) (op->ctime / 1000);

    if (info->label.data != NULL) {

        /* the claim is read again */

        ngx_free(info->label.data);
        ngx_str_null(&info->label);
    }

    if (op->reply.len == 0) {
        return NGX_OK;
    }

    info->label.data = ngx_alloc(op->reply.len, info->ask->worker->log);
    if (info->label.data == NULL) {
        return NGX_ERROR;
    }

    info->label.len = op->reply.len;
    ngx_memcpy(info->label.data, op->reply.data, op->reply.len);

    return NGX_OK;
}


/* For another gateway's claim: only that gateway knows when the lease ends. */

void
ngx_http_zk_lock_ask_note_ttl(ngx_http_zk_lock_info_t *info)
{
    zk_lock_label_t  label;

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    info->ttl = (label.ttl > 0 && !info->endless) ? (ngx_msec_t) label.ttl
                                                  : 0;
    info->holds = label.holds;
}


void
ngx_http_zk_lock_ask_note_record(ngx_http_zk_lock_info_t *info,
    ngx_http_zk_lock_record_t *record)
{
    ngx_msec_int_t  left;

    if (record->state != NGX_HTTP_ZK_LOCK_RECORD_HELD) {
        return;
    }

    left = (ngx_msec_int_t) (record->lease - ngx_http_zk_lock_now());

    info->held = 1;
    info->since = record->since;
    info->holds = record->holds;

    if (left > (ngx_msec_int_t) NGX_HTTP_ZK_LOCK_NO_LEASE / 2) {
        info->endless = 1;
        return;
    }

    info->ttl = record->ttl;

    /* a client is told the ttl at most, even if the grace is longer */

    info->expires = (left > 0) ? ngx_min((ngx_msec_t) left, info->ttl) : 0;
    info->timed = 1;
}


ngx_int_t
ngx_http_zk_lock_ask_infos(ngx_http_zk_lock_ask_t *ask, ngx_uint_t n)
{
    ngx_uint_t  i;

    for (i = 0; i < ask->ninfos; i++) {

        if (ask->infos[i].label.data != NULL) {
            ngx_free(ask->infos[i].label.data);
        }

        if (ask->infos[i].name.data != NULL) {
            ngx_free(ask->infos[i].name.data);
        }
    }

    if (ask->infos != NULL) {
        ngx_free(ask->infos);
        ask->infos = NULL;
    }

    ask->ninfos = 0;

    if (n == 0) {
        return NGX_OK;
    }

    ask->infos = ngx_calloc(n * sizeof(ngx_http_zk_lock_info_t),
                            ask->worker->log);
    if (ask->infos == NULL) {
        return NGX_ERROR;
    }

    ask->ninfos = n;

    for (i = 0; i < n; i++) {
        ask->infos[i].ask = ask;
    }

    return NGX_OK;
}
