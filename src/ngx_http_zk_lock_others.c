
/*
 * The claims of other workers in a lock's view: siblings' claims, of which the
 * zone tells, and foreign ones, of which only ZooKeeper does.
 *
 * The end of each claim that is in the way is told by the zone, by a bell that
 * hangs at the claim's record, or by ZooKeeper, by a watch.  If the zone cannot
 * tell it, since the worker is dead or stopped, ZooKeeper is asked: the sibling
 * becomes foreign then, and not a sibling again.
 *
 * Everything here runs on the event loop.  `other->watch` is NULL unless the
 * operation is under way, and `lock->watching` counts those; a cancelled one
 * has no handler.
 */


#include "ngx_http_zk_lock_node.h"


/* of siblings' claims that are kept in the view of a lock without a claim */
#define NGX_HTTP_ZK_LOCK_KIN    8


static void ngx_http_zk_lock_lock_same(ngx_http_zk_lock_other_t *other,
    ngx_http_zk_lock_record_t *record);
static void ngx_http_zk_lock_lock_watch_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_lock_bell_handler(ngx_http_zk_lock_bell_t *bell);
static void ngx_http_zk_lock_lock_verify_handler(ngx_http_zk_lock_op_t *op);


ngx_http_zk_lock_other_t *
ngx_http_zk_lock_lock_other(ngx_http_zk_lock_lock_t *lock,
    zk_lock_origin_e origin, zk_lock_id_t *id, ngx_str_t *name)
{
    size_t                     len;
    ngx_http_zk_lock_other_t  *other;

    len = (origin == ZK_LOCK_FOREIGN) ? name->len : 0;

    other = ngx_calloc(sizeof(ngx_http_zk_lock_other_t) + len,
                       lock->worker->log);
    if (other == NULL) {
        return NULL;
    }

    other->lock = lock;
    other->bell.handler = ngx_http_zk_lock_lock_bell_handler;
    other->entry.origin = origin;
    other->id = *id;

    if (len != 0) {
        other->name.len = len;
        other->name.data = (u_char *) other + sizeof(ngx_http_zk_lock_other_t);
        ngx_memcpy(other->name.data, name->data, len);
    }

    return other;
}


/* A sibling that held the lock alone may share it by now. */

static void
ngx_http_zk_lock_lock_same(ngx_http_zk_lock_other_t *other,
    ngx_http_zk_lock_record_t *record)
{
    if (other->entry.seq == record->seq) {
        other->entry.kind = record->kind;
    }
}


void
ngx_http_zk_lock_lock_siblings(ngx_http_zk_lock_lock_t *lock)
{
    ngx_int_t                   rc;
    zk_lock_entry_t            *entry;
    ngx_http_zk_lock_other_t   *other;
    ngx_http_zk_lock_record_t   record;

    for (entry = zk_lock_view_first(&lock->view);
         entry != NULL;
         entry = zk_lock_view_after(&lock->view, entry))
    {
        if (entry->origin != ZK_LOCK_SIBLING
            || (entry->kind != ZK_LOCK_MUTEX && entry->kind != ZK_LOCK_WRITE))
        {
            continue;
        }

        other = (ngx_http_zk_lock_other_t *) entry;

        rc = ngx_http_zk_lock_record_read(lock->worker->zone, &other->id,
                                          &lock->sn.str, &record);

        /* who is dead may have shared it before */

        if (rc == NGX_OK || rc == NGX_AGAIN) {
            ngx_http_zk_lock_lock_same(other, &record);
        }
    }
}


/*
 * The watch is a getData: an exists on a node that is gone would leave a watch
 * that never fires.
 */

ngx_int_t
ngx_http_zk_lock_lock_watch_znode(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_other_t *other)
{
    u_char                  buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t               name;
    ngx_http_zk_lock_op_t  *op;

    ngx_http_zk_lock_lock_name(&other->entry, &name, buf);

    if (!ngx_http_zk_lock_session_must_watch(lock->worker->session,
                                      lock->sn.str.len + 1 + name.len))
    {
        /* the sweep lists */
        lock->partial = 1;
        return NGX_AGAIN;
    }

    op = ngx_http_zk_lock_op_new(lock->worker->session,
                                 NGX_HTTP_ZK_LOCK_OP_GET, &lock->sn.str,
                                 &name, NULL);
    if (op == NULL) {
        /* the sweep tries again */
        return NGX_AGAIN;
    }

    op->watch = 1;
    op->handler = ngx_http_zk_lock_lock_watch_handler;
    op->data = other;

    other->watch = op;
    other->entry.watched = 1;
    lock->watching++;

    ngx_http_zk_lock_session_send(op);

    return NGX_OK;
}


static void
ngx_http_zk_lock_lock_watch_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_lock_t   *lock;
    ngx_http_zk_lock_other_t  *other;

    other = op->data;
    lock = other->lock;

    other->watch = NULL;
    lock->watching--;

    ngx_http_zk_lock_lock_pin(lock);

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
        ngx_http_zk_lock_lock_advance(lock);
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:

        /* when it vanished nobody knows, nor what it may have left */

        other->entry.watched = 0;
        ngx_http_zk_lock_lock_vanished(other);
        break;

    default:
        /* the sweep, or the next connection, tries again */
        other->entry.watched = 0;
        ngx_http_zk_lock_lock_settle(lock);
        break;
    }

    ngx_http_zk_lock_lock_unpin(lock);
}


void
ngx_http_zk_lock_lock_vanished(ngx_http_zk_lock_other_t *other)
{
    ngx_uint_t                kin;
    ngx_http_zk_lock_lock_t  *lock;

    lock = other->lock;
    kin = (other->name.len == 0);

    zk_lock_view_remove(&lock->view, &other->entry);
    ngx_http_zk_lock_lock_free_other(other);

    /* who removed that one may have removed ours, too */

    lock->doubtful = 1;

    if (kin && lock->view.nalive > lock->view.nlocal) {

        /* its worker may be dead, and may have had more of them */

        ngx_http_zk_lock_lock_list(lock);
    }

    ngx_http_zk_lock_lock_advance(lock);
}


ngx_int_t
ngx_http_zk_lock_lock_watch_sibling(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_other_t *other)
{
    ngx_int_t                  rc;
    ngx_http_zk_lock_record_t  record;

    rc = ngx_http_zk_lock_record_watch(lock->worker->zone, &other->id,
                                       &lock->sn.str, &record);

    if (rc == NGX_ABORT || rc == NGX_AGAIN
        || (rc == NGX_DECLINED
            && ngx_http_zk_lock_record_forsaken(lock->worker->zone, &other->id,
                                                &lock->sn.str)
               != NGX_DECLINED)
        || (rc == NGX_OK && (record.state == NGX_HTTP_ZK_LOCK_RECORD_OPEN
                             || !ngx_http_zk_lock_ahead(record.alive)
                             || (record.state == NGX_HTTP_ZK_LOCK_RECORD_HELD
                                 && record.lease == 0))))
    {
        /*
         * Its worker is dead or stopped, or has sent a delete since its lease
         * is over; or its session is over, and the claim is durable: ZooKeeper
         * knows.
         */

        other->entry.origin = ZK_LOCK_FOREIGN;

        if (other->entry.kind == ZK_LOCK_READ) {

            /* under which name, if it was about to be shared */

            other->entry.kind = (rc == NGX_ABORT || rc == NGX_DECLINED)
                                ? ZK_LOCK_MUTEX : record.was;

            /* nor has this worker's server to have heard of that */

            other->entry.renamed = 1;
        }

        return NGX_OK;
    }

    if (rc == NGX_OK && record.state != NGX_HTTP_ZK_LOCK_RECORD_ENDED) {

        ngx_http_zk_lock_lock_same(other, &record);

        other->entry.watched = 1;
        ngx_http_zk_lock_bell_hang(lock->worker, &other->bell,
                                   other->id.record);

        return NGX_OK;
    }

    zk_lock_view_remove(&lock->view, &other->entry);
    ngx_http_zk_lock_lock_free_other(other);

    return NGX_OK;
}


static void
ngx_http_zk_lock_lock_bell_handler(ngx_http_zk_lock_bell_t *bell)
{
    ngx_http_zk_lock_other_t  *other;

    other = ngx_queue_data(bell, ngx_http_zk_lock_other_t, bell);

    /* its record is looked at again */

    other->entry.watched = 0;

    ngx_http_zk_lock_lock_advance(other->lock);
}


void
ngx_http_zk_lock_lock_verify(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *entry)
{
    u_char                  buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t               name;
    ngx_http_zk_lock_op_t  *op;

    if (lock->verify != NULL) {
        return;
    }

    ngx_http_zk_lock_lock_name(entry, &name, buf);

    op = ngx_http_zk_lock_lock_op(lock, NGX_HTTP_ZK_LOCK_OP_GET, &name,
                                  ngx_http_zk_lock_lock_verify_handler);
    if (op == NULL) {
        return;
    }

    lock->verify = op;

    ngx_http_zk_lock_session_send(op);
}


static void
ngx_http_zk_lock_lock_verify_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_lock_t  *lock;

    lock = op->data;

    if (lock->verify == op) {
        lock->verify = NULL;

        switch (op->rc) {

        case NGX_HTTP_ZK_LOCK_OK:
            lock->doubtful = 0;
            ngx_http_zk_lock_lock_advance(lock);
            break;

        case NGX_HTTP_ZK_LOCK_NO_NODE:
            ngx_http_zk_lock_lock_list(lock);
            break;

        default:
            /* the sweep, or the next connection, tries again */
            break;
        }
    }

    ngx_http_zk_lock_lock_unpin(lock);
}


void
ngx_http_zk_lock_lock_unwatch(ngx_http_zk_lock_other_t *other)
{
    other->entry.watched = 0;

    if (other->watch != NULL) {

        /* a late answer or event is ignored */

        other->watch->handler = NULL;
        other->watch = NULL;
        other->lock->watching--;
    }

    ngx_http_zk_lock_bell_take_down(other->lock->worker, &other->bell);
}


void
ngx_http_zk_lock_lock_free_other(ngx_http_zk_lock_other_t *other)
{
    ngx_http_zk_lock_lock_unwatch(other);

    ngx_free(other);
}


void
ngx_http_zk_lock_lock_prune(ngx_http_zk_lock_lock_t *lock)
{
    ngx_int_t                   rc;
    zk_lock_entry_t            *entry, *next;
    ngx_http_zk_lock_other_t   *other;
    ngx_http_zk_lock_record_t   record;

    for (entry = zk_lock_view_first(&lock->view); entry != NULL; entry = next)
    {
        next = zk_lock_view_after(&lock->view, entry);

        if (entry->origin != ZK_LOCK_SIBLING || entry->watched) {
            continue;
        }

        other = (ngx_http_zk_lock_other_t *) entry;

        rc = ngx_http_zk_lock_record_read(lock->worker->zone, &other->id,
                                          &lock->sn.str, &record);

        if ((rc == NGX_DECLINED
             && ngx_http_zk_lock_record_forsaken(lock->worker->zone,
                                                 &other->id, &lock->sn.str)
                == NGX_DECLINED)
            || (rc == NGX_OK
                && record.state == NGX_HTTP_ZK_LOCK_RECORD_ENDED))
        {
            zk_lock_view_remove(&lock->view, entry);
            ngx_http_zk_lock_lock_free_other(other);
        }
    }
}


ngx_uint_t
ngx_http_zk_lock_lock_rest(ngx_http_zk_lock_lock_t *lock)
{
    ngx_uint_t        n;
    zk_lock_entry_t  *entry;

    if (lock->node) {
        return 0;
    }

    n = 0;

    for (entry = zk_lock_view_first(&lock->view);
         entry != NULL && n++ < NGX_HTTP_ZK_LOCK_KIN;
         entry = zk_lock_view_after(&lock->view, entry))
    {
        if (entry->origin != ZK_LOCK_SIBLING) {
            return 0;
        }

        ngx_http_zk_lock_lock_unwatch((ngx_http_zk_lock_other_t *) entry);
    }

    zk_lock_view_keep(&lock->view, NGX_HTTP_ZK_LOCK_KIN,
                      ngx_http_zk_lock_lock_gone, lock);

    return 1;
}
