
/*
 * The worker's locks: how a lock is found, kept and freed, how claims join and
 * leave a lock, and how all claims of a lock are told.
 *
 * Everything here runs on the event loop.  Each operation under way pins the
 * lock, except a watch, which ends with the watched entry of the view.
 * `list`, `guard` and `verify` are NULL unless the operation is under way and
 * its answer still counts.
 */


#include "ngx_http_zk_lock_node.h"


static void ngx_http_zk_lock_lock_trim(ngx_http_zk_lock_worker_t *worker);
static void ngx_http_zk_lock_lock_free(ngx_http_zk_lock_lock_t *lock);
static ngx_uint_t ngx_http_zk_lock_lock_sweep_view(
    ngx_http_zk_lock_lock_t *lock);
static void ngx_http_zk_lock_lock_sweep_held(ngx_http_zk_lock_lock_t *lock);


ngx_http_zk_lock_lock_t *
ngx_http_zk_lock_lock_find(ngx_http_zk_lock_worker_t *worker, ngx_str_t *path)
{
    uint32_t  hash;

    hash = ngx_crc32_long(path->data, path->len);

    /* the node is the first member */

    return (ngx_http_zk_lock_lock_t *)
               ngx_str_rbtree_lookup(&worker->locks, path, hash);
}


ngx_http_zk_lock_lock_t *
ngx_http_zk_lock_lock_get(ngx_http_zk_lock_worker_t *worker, ngx_str_t *path)
{
    ngx_http_zk_lock_lock_t  *lock;

    lock = ngx_http_zk_lock_lock_find(worker, path);
    if (lock != NULL) {
        return lock;
    }

    lock = ngx_calloc(sizeof(ngx_http_zk_lock_lock_t) + path->len,
                      worker->log);
    if (lock == NULL) {
        return NULL;
    }

    lock->worker = worker;
    lock->sn.str.len = path->len;
    lock->sn.str.data = (u_char *) lock + sizeof(ngx_http_zk_lock_lock_t);
    ngx_memcpy(lock->sn.str.data, path->data, path->len);

    lock->sn.node.key = ngx_crc32_long(path->data, path->len);

    ngx_http_zk_lock_lock_await_init(lock);

    zk_lock_view_init(&lock->view);
    ngx_queue_init(&lock->claims);

    ngx_rbtree_insert(&worker->locks, &lock->sn.node);
    ngx_queue_insert_tail(&worker->idle, &lock->queue);
    worker->nidle++;

    return lock;
}


void
ngx_http_zk_lock_lock_join(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_claim_t *claim)
{
    ngx_queue_insert_tail(&lock->claims, &claim->queue);
    lock->nclaims++;
    lock->nkeen += claim->keen;
    lock->nrenumbered += (claim->named != claim->id.record);

    if (lock->nclaims == 1) {
        ngx_queue_remove(&lock->queue);
        ngx_queue_insert_tail(&lock->worker->active, &lock->queue);
        lock->worker->nidle--;
    }
}


void
ngx_http_zk_lock_lock_leave(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_claim_t *claim)
{
    ngx_http_zk_lock_worker_t  *worker;

    worker = lock->worker;

    ngx_queue_remove(&claim->queue);
    lock->nclaims--;
    lock->nkeen -= claim->keen;
    lock->nrenumbered -= (claim->named != claim->id.record);

    if (lock->converting == claim) {
        lock->converting = NULL;
    }

    if (lock->nclaims == 0) {
        ngx_queue_remove(&lock->queue);
        ngx_queue_insert_tail(&worker->idle, &lock->queue);
        worker->nidle++;

        /* no claim of this worker keeps the view true any more */

        if (lock->view.nalive != 0
            && !ngx_http_zk_lock_lock_rest(lock))
        {
            zk_lock_view_forget(&lock->view, ngx_http_zk_lock_lock_forgotten,
                                lock);
        }
    }

    ngx_http_zk_lock_lock_free(lock);
    ngx_http_zk_lock_lock_trim(worker);
}


void
ngx_http_zk_lock_lock_order(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_claim_t *claim)
{
    if (lock->node) {
        /* the claims of a one-node lock stay in the order of arrival */
        return;
    }

    ngx_queue_remove(&claim->queue);

    if (claim->state == NGX_HTTP_ZK_LOCK_HELD) {
        ngx_queue_insert_head(&lock->claims, &claim->queue);

    } else {
        ngx_queue_insert_tail(&lock->claims, &claim->queue);
    }
}


/*
 * Frees the idle locks that were used longest ago, if there are more idle locks
 * than the cache keeps.  The watches stay, and late events find no lock.
 */

static void
ngx_http_zk_lock_lock_trim(ngx_http_zk_lock_worker_t *worker)
{
    ngx_http_zk_lock_lock_t  *lock;

    while (worker->nidle > worker->cache) {
        lock = ngx_queue_data(ngx_queue_head(&worker->idle),
                              ngx_http_zk_lock_lock_t, queue);

        if (lock->pins != 0) {
            /* the last unpin frees the lock, or the next trim */
            break;
        }

        lock->view.watched = 0;
        ngx_http_zk_lock_lock_free(lock);
    }
}


ngx_int_t
ngx_http_zk_lock_lock_layout(ngx_http_zk_lock_lock_t *lock, ngx_uint_t node)
{
    if (lock->node == node) {
        return NGX_OK;
    }

    if (lock->nclaims != 0) {
        return NGX_DECLINED;
    }

    /* the view describes the other layout */

    ngx_http_zk_lock_node_leave(lock);
    ngx_http_zk_lock_lock_forget(lock);

    lock->node = (node != 0);

    if (node) {
        ngx_http_zk_lock_node_init(lock);
    }

    return NGX_OK;
}


void
ngx_http_zk_lock_lock_pin(ngx_http_zk_lock_lock_t *lock)
{
    lock->pins++;
}


void
ngx_http_zk_lock_lock_unpin(ngx_http_zk_lock_lock_t *lock)
{
    lock->pins--;

    ngx_http_zk_lock_lock_free(lock);
}


/* Frees a lock that is not in use and whose view no watch keeps true. */

static void
ngx_http_zk_lock_lock_free(ngx_http_zk_lock_lock_t *lock)
{
    if (lock->nclaims != 0 || lock->pins != 0
        || (lock->view.watched
            && lock->worker->nidle <= lock->worker->cache))
    {
        return;
    }

    zk_lock_view_forget(&lock->view, ngx_http_zk_lock_lock_forgotten, lock);
    ngx_http_zk_lock_node_leave(lock);

    ngx_rbtree_delete(&lock->worker->locks, &lock->sn.node);
    ngx_queue_remove(&lock->queue);
    lock->worker->nidle--;

    ngx_free(lock);
}


/* An entry has left the view. */

void
ngx_http_zk_lock_lock_forgotten(void *data, zk_lock_entry_t *entry)
{
    (void) data;

    if (entry->origin != ZK_LOCK_LOCAL) {
        ngx_http_zk_lock_lock_free_other((ngx_http_zk_lock_other_t *) entry);
    }
}


void
ngx_http_zk_lock_lock_tell(ngx_http_zk_lock_lock_t *lock,
    void (*tell)(ngx_http_zk_lock_claim_t *claim))
{
    ngx_queue_t  *q, *next;

    ngx_http_zk_lock_lock_pin(lock);

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = next)
    {
        next = ngx_queue_next(q);
        tell(ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue));
    }

    ngx_http_zk_lock_lock_unpin(lock);
}


ngx_http_zk_lock_op_t *
ngx_http_zk_lock_lock_op(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_op_e type, ngx_str_t *name,
    ngx_http_zk_lock_op_pt handler)
{
    ngx_http_zk_lock_op_t  *op;

    op = ngx_http_zk_lock_op_new(lock->worker->session, type, &lock->sn.str,
                                 name, NULL);
    if (op == NULL) {
        return NULL;
    }

    op->handler = handler;
    op->data = lock;

    ngx_http_zk_lock_lock_pin(lock);

    return op;
}


void
ngx_http_zk_lock_lock_name(zk_lock_entry_t *entry, ngx_str_t *name,
    u_char *buf)
{
    zk_lock_id_t               id;
    ngx_http_zk_lock_other_t  *other;

    other = (ngx_http_zk_lock_other_t *) entry;

    if (entry->origin == ZK_LOCK_LOCAL) {
        id = ngx_http_zk_lock_claim_id(ngx_http_zk_lock_claim_of(entry));

    } else if (other->name.len != 0) {
        *name = other->name;
        return;

    } else {
        id = other->id;
    }

    name->data = buf;
    name->len = zk_lock_claim_write((char *) buf, &id, entry->kind,
                                    entry->seq);
}


void
ngx_http_zk_lock_lock_forget(ngx_http_zk_lock_lock_t *lock)
{
    lock->list = NULL;
    lock->guard = NULL;
    lock->verify = NULL;
    lock->known = 0;
    lock->handled = lock->touched ? 0 : lock->handled;
    lock->touched = 0;
    lock->doubtful = 0;
    lock->partial = 0;
    lock->waits = 0;
    lock->born = 0;
    lock->view.watched = 0;

    zk_lock_view_forget(&lock->view, ngx_http_zk_lock_lock_forgotten, lock);

    ngx_http_zk_lock_lock_free(lock);
}


ngx_uint_t
ngx_http_zk_lock_lock_shut(ngx_http_zk_lock_lock_t *lock)
{
    ngx_uint_t    n;
    ngx_queue_t  *q, *next;

    n = 0;

    ngx_http_zk_lock_lock_pin(lock);

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = next)
    {
        next = ngx_queue_next(q);
        n += ngx_http_zk_lock_claim_shut(ngx_queue_data(q,
                                            ngx_http_zk_lock_claim_t, queue));
    }

    ngx_http_zk_lock_lock_unpin(lock);

    return n;
}


ngx_uint_t
ngx_http_zk_lock_lock_holds(ngx_http_zk_lock_lock_t *lock, ngx_uint_t durable)
{
    ngx_queue_t               *q;
    ngx_http_zk_lock_claim_t  *claim;

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        /* a waiting claim may be told as held elsewhere: an heir looks */

        if ((claim->state == NGX_HTTP_ZK_LOCK_HELD
             && (durable || !claim->durable))
            || claim->state == NGX_HTTP_ZK_LOCK_LAPSE
            || (claim->state == NGX_HTTP_ZK_LOCK_WAIT && claim->grace != 0))
        {
            return 1;
        }
    }

    return 0;
}


void
ngx_http_zk_lock_lock_discard(ngx_http_zk_lock_lock_t *lock)
{
    ngx_queue_t  *q;

    zk_lock_view_forget(&lock->view, ngx_http_zk_lock_lock_forgotten, lock);

    while (!ngx_queue_empty(&lock->claims)) {
        q = ngx_queue_head(&lock->claims);
        ngx_queue_remove(q);

        ngx_http_zk_lock_claim_discard(ngx_queue_data(q,
                                             ngx_http_zk_lock_claim_t, queue));
    }

    ngx_http_zk_lock_node_leave(lock);

    if (lock->soon.timer_set) {
        ngx_del_timer(&lock->soon);
        ngx_http_zk_lock_bell_take_down(lock->worker, &lock->gap);
    }

    ngx_rbtree_delete(&lock->worker->locks, &lock->sn.node);
    ngx_queue_remove(&lock->queue);

    ngx_free(lock);
}


/*
 * Work that may wait for a second.  Many claims may wait for a lock, but the
 * sweep looks at the held claims and the claims ahead of the first waiting
 * claim only; at the other waiting claims only if a claim is keen.
 */

void
ngx_http_zk_lock_lock_sweep(ngx_http_zk_lock_lock_t *lock)
{
    ngx_http_zk_lock_lock_pin(lock);

    if (ngx_http_zk_lock_lock_sweep_view(lock) != 0 || lock->partial
        || lock->touched)
    {
        /*
         * Only the nearest claims ahead are watched: a list shows the rest.
         * Or a list was due, and failed.
         */

        ngx_http_zk_lock_lock_list(lock);
    }

    ngx_http_zk_lock_node_sweep(lock);

    if (lock->nkeen != 0 || lock->node) {
        ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_sweep);

    } else {
        ngx_http_zk_lock_lock_sweep_held(lock);
    }

    ngx_http_zk_lock_lock_advance(lock);

    ngx_http_zk_lock_lock_unpin(lock);
}


/*
 * Siblings ahead may have died meanwhile: advance() looks again.  Returns the
 * number of listening claims behind a claim of another worker or gateway.
 */

static ngx_uint_t
ngx_http_zk_lock_lock_sweep_view(ngx_http_zk_lock_lock_t *lock)
{
    ngx_uint_t                 n, holders, others, listeners;
    zk_lock_entry_t           *entry;
    ngx_http_zk_lock_claim_t  *claim;

    n = 0;
    holders = zk_lock_view_holders(&lock->view);
    others = 0;
    listeners = 0;

    for (entry = zk_lock_view_first(&lock->view);
         entry != NULL;
         entry = zk_lock_view_after(&lock->view, entry))
    {
        if (entry->origin == ZK_LOCK_SIBLING && entry->watched) {
            ngx_http_zk_lock_lock_unwatch((ngx_http_zk_lock_other_t *) entry);
        }

        if (entry->origin != ZK_LOCK_LOCAL) {
            others++;

        } else if (entry->waiting) {

            if (lock->nkeen == 0) {
                /* only the first waiting claim watches claims ahead */
                break;
            }

            claim = ngx_http_zk_lock_claim_of(entry);
            claim->place = ngx_http_zk_lock_place(n, holders);

            listeners += (claim->event != NULL && others != 0);
        }

        n++;
    }

    return listeners;
}


static void
ngx_http_zk_lock_lock_sweep_held(ngx_http_zk_lock_lock_t *lock)
{
    ngx_queue_t               *q, *next;
    ngx_http_zk_lock_claim_t  *claim;

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = next)
    {
        next = ngx_queue_next(q);
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        if (claim->state == NGX_HTTP_ZK_LOCK_WAIT) {
            break;
        }

        ngx_http_zk_lock_claim_sweep(claim);
    }
}
