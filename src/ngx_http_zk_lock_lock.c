
/*
 * A lock, as one worker sees it.
 *
 * The view (floor 0) says what is needed next; this file asks for it: a watch
 * on the claim ahead, or word from a sibling through the zone, or a list of
 * all claims, or the lock's znode itself.  At most one of each is under way.
 *
 * Everything here runs on the event loop.  Each operation under way pins the
 * lock, but for a watch, which ends with the entry of the view that it is for.
 * `list`, `guard` and `verify` are NULL unless the operation is under way.
 */


#include "ngx_http_zk_lock_node.h"


/* of this worker's claims, of which most will wait for a while yet */
#define NGX_HTTP_ZK_LOCK_CROWD  8

/* of siblings' claims that are kept in the view of a lock without a claim */
#define NGX_HTTP_ZK_LOCK_KIN    8

/* in so many milliseconds a sibling may publish what it has made */
#define NGX_HTTP_ZK_LOCK_SOON   1


/* a child of the lock's znode, between a list and its merge */

typedef struct {
    ngx_str_t                   name;
    zk_lock_id_t                id;
    zk_lock_origin_e            origin;
} ngx_http_zk_lock_seen_t;


static void ngx_http_zk_lock_lock_free(ngx_http_zk_lock_lock_t *lock);
static void ngx_http_zk_lock_lock_trim(ngx_http_zk_lock_worker_t *worker);
static ngx_uint_t ngx_http_zk_lock_lock_rest(ngx_http_zk_lock_lock_t *lock);
static ngx_int_t ngx_http_zk_lock_lock_step(ngx_http_zk_lock_lock_t *lock);
static ngx_int_t ngx_http_zk_lock_lock_conflict(
    ngx_http_zk_lock_lock_t *lock, zk_lock_entry_t *waiter);
static ngx_int_t ngx_http_zk_lock_lock_watch_znode(
    ngx_http_zk_lock_lock_t *lock, ngx_http_zk_lock_other_t *other);
static ngx_int_t ngx_http_zk_lock_lock_watch_sibling(
    ngx_http_zk_lock_lock_t *lock, ngx_http_zk_lock_other_t *other);
static void ngx_http_zk_lock_lock_watch_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_lock_vanished(ngx_http_zk_lock_other_t *other);
static void ngx_http_zk_lock_lock_verify(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *entry);
static void ngx_http_zk_lock_lock_verify_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_lock_bell_handler(ngx_http_zk_lock_bell_t *bell);
static void ngx_http_zk_lock_lock_unwatch(ngx_http_zk_lock_other_t *other);
static void ngx_http_zk_lock_lock_free_other(ngx_http_zk_lock_other_t *other);
static void ngx_http_zk_lock_lock_same(ngx_http_zk_lock_other_t *other,
    ngx_http_zk_lock_record_t *record);
static void ngx_http_zk_lock_lock_siblings(ngx_http_zk_lock_lock_t *lock);
static void ngx_http_zk_lock_lock_settle(ngx_http_zk_lock_lock_t *lock);
static ngx_int_t ngx_http_zk_lock_lock_complete(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *waiter);
static ngx_int_t ngx_http_zk_lock_lock_await(ngx_http_zk_lock_lock_t *lock,
    int64_t seq);
static void ngx_http_zk_lock_lock_soon_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_lock_gap_handler(ngx_http_zk_lock_bell_t *bell);
static void ngx_http_zk_lock_lock_list_handler(ngx_http_zk_lock_op_t *op);
static ngx_int_t ngx_http_zk_lock_lock_merge(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_op_t *op);
static ngx_uint_t ngx_http_zk_lock_lock_sight(ngx_http_zk_lock_lock_t *lock,
    ngx_str_t *name, zk_lock_sighting_t *sighting,
    ngx_http_zk_lock_seen_t *seen);
static zk_lock_entry_t *ngx_http_zk_lock_lock_make_other(void *data,
    zk_lock_sighting_t *sighting);
static void ngx_http_zk_lock_lock_gone(void *data, zk_lock_entry_t *entry);
static void ngx_http_zk_lock_lock_forgotten(void *data,
    zk_lock_entry_t *entry);
static void ngx_http_zk_lock_lock_tell(ngx_http_zk_lock_lock_t *lock,
    void (*tell)(ngx_http_zk_lock_claim_t *claim));
static ngx_http_zk_lock_op_t *ngx_http_zk_lock_lock_op(
    ngx_http_zk_lock_lock_t *lock, ngx_http_zk_lock_op_e type,
    ngx_str_t *name, ngx_http_zk_lock_op_pt handler);
static uint64_t ngx_http_zk_lock_lock_who(zk_lock_id_t *id, ngx_str_t *name);
static void ngx_http_zk_lock_lock_guard(ngx_http_zk_lock_lock_t *lock,
    int64_t czxid);
static void ngx_http_zk_lock_lock_guard_again(ngx_http_zk_lock_lock_t *lock);
static void ngx_http_zk_lock_lock_guard_handler(ngx_http_zk_lock_op_t *op);
static size_t ngx_http_zk_lock_lock_bottom(ngx_http_zk_lock_lock_t *lock);
static void ngx_http_zk_lock_lock_make_step(ngx_http_zk_lock_lock_t *lock);
static void ngx_http_zk_lock_lock_make_handler(ngx_http_zk_lock_op_t *op);


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

    ngx_http_zk_lock_worker_timer(worker, &lock->soon,
                                  ngx_http_zk_lock_lock_soon_handler);
    lock->gap.handler = ngx_http_zk_lock_lock_gap_handler;
    lock->missing = -1;

    zk_lock_view_init(&lock->view);
    ngx_queue_init(&lock->claims);

    ngx_rbtree_insert(&worker->locks, &lock->sn.node);
    ngx_queue_insert_tail(&worker->idle, &lock->queue);
    worker->nidle++;

    return lock;
}


void
ngx_http_zk_lock_lock_join(ngx_http_zk_lock_lock_t *lock, ngx_queue_t *claim)
{
    ngx_queue_insert_tail(&lock->claims, claim);
    lock->nclaims++;

    if (lock->nclaims == 1) {
        ngx_queue_remove(&lock->queue);
        ngx_queue_insert_tail(&lock->worker->active, &lock->queue);
        lock->worker->nidle--;
    }
}


void
ngx_http_zk_lock_lock_leave(ngx_http_zk_lock_lock_t *lock, ngx_queue_t *claim)
{
    ngx_http_zk_lock_worker_t  *worker;

    worker = lock->worker;

    ngx_queue_remove(claim);
    lock->nclaims--;

    if (lock->nclaims == 0) {
        ngx_queue_remove(&lock->queue);
        ngx_queue_insert_tail(&worker->idle, &lock->queue);
        worker->nidle++;

        /* nobody will hear of the others any more */

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


/*
 * Forgets what was used longest ago, if there are more idle locks than are to
 * be kept.  Their watches stay, and their late events find nobody.
 */

static void
ngx_http_zk_lock_lock_trim(ngx_http_zk_lock_worker_t *worker)
{
    ngx_http_zk_lock_lock_t  *lock;

    while (worker->nidle > worker->cache) {
        lock = ngx_queue_data(ngx_queue_head(&worker->idle),
                              ngx_http_zk_lock_lock_t, queue);

        if (lock->pins != 0) {
            /* it goes when it is left, or the next time */
            break;
        }

        lock->view.watched = 0;
        ngx_http_zk_lock_lock_free(lock);
    }
}


/* A few siblings need not be forgotten: the zone tells what became of them. */

static ngx_uint_t
ngx_http_zk_lock_lock_rest(ngx_http_zk_lock_lock_t *lock)
{
    zk_lock_entry_t  *entry;

    if (lock->node || lock->view.nalive > NGX_HTTP_ZK_LOCK_KIN) {
        return 0;
    }

    for (entry = zk_lock_view_first(&lock->view);
         entry != NULL;
         entry = zk_lock_view_after(&lock->view, entry))
    {
        if (entry->origin != ZK_LOCK_SIBLING) {
            return 0;
        }

        ngx_http_zk_lock_lock_unwatch((ngx_http_zk_lock_other_t *) entry);
    }

    return 1;
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

    /* what is known of it was meant in another way */

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


/* Frees a lock that nobody needs and whose view nothing keeps true. */

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


void
ngx_http_zk_lock_lock_created(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *entry, int64_t czxid)
{
    lock->known = 1;

    zk_lock_view_create(&lock->view, entry, ngx_http_zk_lock_lock_gone, lock);

    if ((!lock->view.watched && lock->view.nlocal == 1) || lock->born == 0) {

        /* it may have been made anew, up to this moment */

        lock->born = czxid;
    }

    if (!lock->node) {
        ngx_http_zk_lock_lock_guard(lock, czxid);
    }

    if (lock->vanished) {
        lock->vanished = 0;
        ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_listed);
    }
}


ngx_uint_t
ngx_http_zk_lock_lock_crowded(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *entry)
{
    zk_lock_entry_t  *next;

    if (lock->node || lock->view.nlocal < NGX_HTTP_ZK_LOCK_CROWD) {
        return 0;
    }

    if (entry == NULL) {
        return 1;
    }

    if (!entry->linked || entry->kind != ZK_LOCK_MUTEX) {
        return 0;
    }

    next = zk_lock_view_after(&lock->view, entry);

    return next != NULL && next->origin != ZK_LOCK_FOREIGN;
}


void
ngx_http_zk_lock_lock_removed(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *entry)
{
    zk_lock_view_remove(&lock->view, entry);

    ngx_http_zk_lock_lock_advance(lock);
}


void
ngx_http_zk_lock_lock_advance(ngx_http_zk_lock_lock_t *lock)
{
    ngx_int_t  rc;

    /* a grant can end in a release, which calls this again */

    if (lock->advancing) {
        lock->again = 1;
        return;
    }

    ngx_http_zk_lock_lock_pin(lock);
    lock->advancing = 1;

    do {
        lock->again = 0;
        rc = ngx_http_zk_lock_lock_step(lock);
    } while (rc == NGX_OK || lock->again);

    lock->advancing = 0;

    ngx_http_zk_lock_lock_settle(lock);

    ngx_http_zk_lock_lock_unpin(lock);
}


/* Claims that were waiting for the view to be sure are told. */

static void
ngx_http_zk_lock_lock_settle(ngx_http_zk_lock_lock_t *lock)
{
    if (lock->node) {
        ngx_http_zk_lock_node_settle(lock);
        return;
    }

    if (lock->settle && !ngx_http_zk_lock_lock_unsure(lock)) {
        lock->settle = 0;
        ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_settle);
    }
}


/* Returns NGX_OK if something changed, NGX_AGAIN if there is to be waited. */

static ngx_int_t
ngx_http_zk_lock_lock_step(ngx_http_zk_lock_lock_t *lock)
{
    zk_lock_entry_t  *waiter, *blocker;

    if (!ngx_http_zk_lock_session_connected(lock->worker->session)) {
        return NGX_AGAIN;
    }

    switch (zk_lock_view_next(&lock->view, &waiter, &blocker)) {

    case ZK_LOCK_GRANT:

        if (lock->touched) {
            ngx_http_zk_lock_lock_list(lock);
            return NGX_AGAIN;
        }

        if (lock->doubtful) {
            ngx_http_zk_lock_lock_verify(lock, waiter);
            return NGX_AGAIN;
        }

        return ngx_http_zk_lock_claim_grant(
                                        ngx_http_zk_lock_claim_of(waiter));

    case ZK_LOCK_WATCH:

        if (blocker->origin == ZK_LOCK_SIBLING) {
            return ngx_http_zk_lock_lock_watch_sibling(lock,
                                      (ngx_http_zk_lock_other_t *) blocker);
        }

        return ngx_http_zk_lock_lock_watch_znode(lock,
                                      (ngx_http_zk_lock_other_t *) blocker);

    case ZK_LOCK_CONFLICT:
        return ngx_http_zk_lock_lock_conflict(lock, waiter);

    case ZK_LOCK_COMPLETE:
        return ngx_http_zk_lock_lock_complete(lock, waiter);

    default: /* ZK_LOCK_NOTHING */

        if (lock->node) {
            ngx_http_zk_lock_node_turn(lock);
        }

        return NGX_AGAIN;
    }
}


/*
 * Not only of the first that waits: the others need not wait for it to know.
 * What is said by a claim that may be gone for long does not count.
 */

ngx_uint_t
ngx_http_zk_lock_lock_conflicts(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *entry)
{
    zk_lock_entry_t  *first;

    if (!zk_lock_view_conflict(&lock->view, entry)) {
        return 0;
    }

    first = zk_lock_view_first(&lock->view);

    return first->origin == ZK_LOCK_LOCAL
           || (first->origin == ZK_LOCK_FOREIGN && first->watched
               && ((ngx_http_zk_lock_other_t *) first)->watch == NULL);
}


/*
 * The first claim says that the lock is used in another way: if that one is
 * there.
 */

static ngx_int_t
ngx_http_zk_lock_lock_conflict(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *waiter)
{
    zk_lock_entry_t            *first;
    ngx_http_zk_lock_other_t   *other;
    ngx_http_zk_lock_record_t   record;

    first = zk_lock_view_first(&lock->view);
    other = (ngx_http_zk_lock_other_t *) first;

    if (first->origin == ZK_LOCK_FOREIGN && other->watch != NULL) {
        return NGX_AGAIN;
    }

    if (first->origin == ZK_LOCK_SIBLING
        && (ngx_http_zk_lock_record_read(lock->worker->zone, &other->id,
                                         &lock->sn.str, &record)
            != NGX_OK
            || record.state == NGX_HTTP_ZK_LOCK_RECORD_ENDED
            || !ngx_http_zk_lock_ahead(record.alive)))
    {
        ngx_http_zk_lock_lock_unwatch(other);

        return ngx_http_zk_lock_lock_watch_sibling(lock, other);
    }

    return ngx_http_zk_lock_claim_conflict(ngx_http_zk_lock_claim_of(waiter));
}


ngx_uint_t
ngx_http_zk_lock_lock_unsure(ngx_http_zk_lock_lock_t *lock)
{
    return lock->list != NULL || lock->watching != 0 || lock->verify != NULL
           || lock->soon.timer_set
           || !ngx_http_zk_lock_session_connected(lock->worker->session);
}


/*
 * Somebody will tell when the claim is gone.  The watch is a getData: an
 * exists on a node that is gone would leave a watch that never fires.
 */

static ngx_int_t
ngx_http_zk_lock_lock_watch_znode(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_other_t *other)
{
    u_char                  buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t               name;
    ngx_http_zk_lock_op_t  *op;

    ngx_http_zk_lock_lock_name(&other->entry, &name, buf);

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


static ngx_int_t
ngx_http_zk_lock_lock_watch_sibling(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_other_t *other)
{
    ngx_int_t                  rc;
    ngx_http_zk_lock_record_t  record;

    rc = ngx_http_zk_lock_record_watch(lock->worker->zone, &other->id,
                                       &lock->sn.str, &record);

    if (rc == NGX_ABORT || rc == NGX_AGAIN
        || (rc == NGX_OK && (!record.near
                             || !ngx_http_zk_lock_ahead(record.alive))))
    {
        /* its worker is dead, stopped or another nginx's: ZooKeeper knows */

        other->entry.origin = ZK_LOCK_FOREIGN;

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


/* ZooKeeper says that a claim that was watched is gone. */

static void
ngx_http_zk_lock_lock_vanished(ngx_http_zk_lock_other_t *other)
{
    ngx_http_zk_lock_lock_t  *lock;

    lock = other->lock;

    zk_lock_view_remove(&lock->view, &other->entry);
    ngx_http_zk_lock_lock_free_other(other);

    /* who removed that one may have removed ours, too */

    lock->doubtful = 1;

    ngx_http_zk_lock_lock_advance(lock);
}


/* Looks whether a claim that is to be granted is there. */

static void
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


static void
ngx_http_zk_lock_lock_bell_handler(ngx_http_zk_lock_bell_t *bell)
{
    ngx_http_zk_lock_other_t  *other;

    other = ngx_queue_data(bell, ngx_http_zk_lock_other_t, bell);

    /* its record is looked at again */

    other->entry.watched = 0;

    ngx_http_zk_lock_lock_advance(other->lock);
}


static void
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


static void
ngx_http_zk_lock_lock_free_other(ngx_http_zk_lock_other_t *other)
{
    ngx_http_zk_lock_lock_unwatch(other);

    ngx_free(other);
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


/*
 * Claims ahead of waiter may be unknown.  The board may know them, which costs
 * nothing; else one list tells all.  The board's word counts only for a claim
 * that was made in this incarnation of the lock's znode: after it was born,
 * and before waiter.  That such a claim may still exist counts only while its
 * session surely lives.
 */

static ngx_int_t
ngx_http_zk_lock_lock_complete(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *waiter)
{
    int64_t                     seq;
    ngx_int_t                   rc;
    ngx_http_zk_lock_claim_t   *claim;
    ngx_http_zk_lock_other_t   *other;
    ngx_http_zk_lock_record_t   record;

    if (lock->list != NULL || lock->soon.timer_set) {
        return NGX_AGAIN;
    }

    claim = ngx_http_zk_lock_claim_of(waiter);
    seq = lock->view.complete_through + 1;

    rc = NGX_DECLINED;

    if (seq != 0 && claim->czxid != 0) {
        rc = ngx_http_zk_lock_board_find(lock->worker->zone, &lock->sn.str,
                                         seq, &record);
    }

    if (rc != NGX_DECLINED
        && (lock->born == 0 || record.czxid <= lock->born
            || record.czxid >= claim->czxid))
    {
        rc = NGX_DECLINED;
    }

    if (rc == NGX_OK && ngx_http_zk_lock_ahead(record.alive)
        && ngx_http_zk_lock_claim_find(lock->worker, &record.id,
                                       &lock->sn.str) == NULL)
    {
        other = ngx_calloc(sizeof(ngx_http_zk_lock_other_t),
                           lock->worker->log);
        if (other == NULL) {
            return NGX_AGAIN;
        }

        other->lock = lock;
        other->bell.handler = ngx_http_zk_lock_lock_bell_handler;
        other->entry.seq = seq;
        other->entry.kind = record.kind;
        other->entry.origin = ZK_LOCK_SIBLING;
        other->entry.who = ngx_http_zk_lock_lock_who(&record.id, NULL);
        other->id = record.id;

        zk_lock_view_learn(&lock->view, &other->entry);

        return NGX_OK;
    }

    if (rc == NGX_DONE) {
        zk_lock_view_learn(&lock->view, NULL);

        return NGX_OK;
    }

    rc = ngx_http_zk_lock_lock_await(lock, seq);

    if (rc == NGX_DECLINED) {
        ngx_http_zk_lock_lock_list(lock);
        rc = NGX_AGAIN;
    }

    return rc;
}


/*
 * A sibling may have made the claim, and not know it yet.  It rings when it
 * publishes it: a list would tell no sooner, and cost a read.  NGX_OK: it is
 * on the board by now.
 */

static ngx_int_t
ngx_http_zk_lock_lock_await(ngx_http_zk_lock_lock_t *lock, int64_t seq)
{
    uint32_t   record;
    ngx_int_t  rc;

    if (lock->mixed || !lock->view.watched || seq == 0
        || seq == lock->missing)
    {
        return NGX_DECLINED;
    }

    lock->missing = seq;

    rc = ngx_http_zk_lock_board_await(lock->worker->zone, &lock->sn.str, seq,
                                      &record);
    if (rc != NGX_AGAIN) {
        return rc;
    }

    ngx_http_zk_lock_lock_pin(lock);

    ngx_http_zk_lock_bell_hang(lock->worker, &lock->gap, record);
    ngx_add_timer(&lock->soon, NGX_HTTP_ZK_LOCK_SOON);

    return NGX_AGAIN;
}


static void
ngx_http_zk_lock_lock_soon_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_lock_t  *lock;

    lock = ngx_queue_data(ev, ngx_http_zk_lock_lock_t, soon);

    ngx_http_zk_lock_bell_take_down(lock->worker, &lock->gap);

    ngx_http_zk_lock_lock_advance(lock);
    ngx_http_zk_lock_lock_unpin(lock);
}


static void
ngx_http_zk_lock_lock_gap_handler(ngx_http_zk_lock_bell_t *bell)
{
    ngx_http_zk_lock_lock_t  *lock;

    lock = ngx_queue_data(bell, ngx_http_zk_lock_lock_t, gap);

    ngx_del_timer(&lock->soon);

    ngx_http_zk_lock_lock_advance(lock);
    ngx_http_zk_lock_lock_unpin(lock);
}


void
ngx_http_zk_lock_lock_list(ngx_http_zk_lock_lock_t *lock)
{
    ngx_http_zk_lock_op_t  *op;

    if (lock->list != NULL) {
        return;
    }

    op = ngx_http_zk_lock_lock_op(lock, lock->node ? NGX_HTTP_ZK_LOCK_OP_GET
                                                   : NGX_HTTP_ZK_LOCK_OP_LIST,
                                  NULL, ngx_http_zk_lock_lock_list_handler);
    if (op == NULL) {
        return;
    }

    lock->list = op;
    lock->mark = zk_lock_view_mark(&lock->view);

    ngx_http_zk_lock_session_send(op);
}


static void
ngx_http_zk_lock_lock_list_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_lock_t  *lock;

    lock = op->data;

    if (lock->list == op) {
        lock->list = NULL;

        if (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE) {
            lock->known = 0;
            op->rc = NGX_HTTP_ZK_LOCK_OK;
        }

        if (op->rc == NGX_HTTP_ZK_LOCK_OK
            && ngx_http_zk_lock_lock_merge(lock, op) == NGX_OK)
        {
            lock->vanished = 0;
            lock->doubtful = 0;

            ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_listed);
            lock->touched = 0;
            ngx_http_zk_lock_lock_advance(lock);

        } else {
            /* the sweep, or the next connection, tries again */
            ngx_http_zk_lock_lock_settle(lock);
        }
    }

    ngx_http_zk_lock_lock_unpin(lock);
}


static ngx_int_t
ngx_http_zk_lock_lock_merge(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_op_t *op)
{
    int                       rc;
    ngx_uint_t                i, n;
    zk_lock_sighting_t       *sightings;
    ngx_http_zk_lock_seen_t  *seen;

    n = op->nchildren;

    sightings = ngx_alloc((n + 1) * (sizeof(zk_lock_sighting_t)
                                     + sizeof(ngx_http_zk_lock_seen_t)),
                          lock->worker->log);
    if (sightings == NULL) {
        return NGX_ERROR;
    }

    seen = (ngx_http_zk_lock_seen_t *) (sightings + n + 1);

    lock->mixed = 0;

    for (i = 0, n = 0; i < op->nchildren; i++) {

        if (!ngx_http_zk_lock_lock_sight(lock, &op->children[i],
                                         &sightings[n], &seen[n]))
        {
            continue;
        }

        if (sightings[n].entry == NULL && !sightings[n].gone
            && seen[n].origin == ZK_LOCK_FOREIGN)
        {
            lock->mixed = 1;
        }

        n++;
    }

    if (lock->node) {
        n = ngx_http_zk_lock_node_sight(lock, op, sightings);
    }

    ngx_http_zk_lock_lock_siblings(lock);

    rc = zk_lock_view_merge(&lock->view, lock->mark, sightings, n,
                            ngx_http_zk_lock_lock_make_other,
                            ngx_http_zk_lock_lock_gone, lock);

    ngx_free(sightings);

    return (rc == 0) ? NGX_OK : NGX_ERROR;
}


/* What they are, their records tell sooner than their znodes' names. */

static void
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

        if (rc == NGX_DECLINED
            || (rc == NGX_OK
                && record.state == NGX_HTTP_ZK_LOCK_RECORD_ENDED))
        {
            zk_lock_view_remove(&lock->view, entry);
            ngx_http_zk_lock_lock_free_other(other);
        }
    }
}


/* Tells whose a child is.  Returns 0 if it is no claim at all. */

static ngx_uint_t
ngx_http_zk_lock_lock_sight(ngx_http_zk_lock_lock_t *lock, ngx_str_t *name,
    zk_lock_sighting_t *sighting, ngx_http_zk_lock_seen_t *seen)
{
    zk_lock_child_t             child;
    ngx_http_zk_lock_claim_t   *claim;
    ngx_http_zk_lock_worker_t  *worker;
    ngx_http_zk_lock_record_t   record;

    if (zk_lock_child_read(&child, (char *) name->data, name->len) != 0) {
        return 0;
    }

    worker = lock->worker;

    ngx_memzero(sighting, sizeof(zk_lock_sighting_t));
    sighting->seq = child.seq;
    sighting->kind = child.kind;
    sighting->who = ngx_http_zk_lock_lock_who(child.has_id ? &child.id : NULL,
                                              name);
    sighting->data = seen;

    seen->name = *name;
    seen->id = child.id;
    seen->origin = ZK_LOCK_FOREIGN;

    if (!child.has_id) {
        return 1;
    }

    claim = ngx_http_zk_lock_claim_find(worker, &child.id, &lock->sn.str);

    if (claim != NULL) {

        sighting->kind = claim->entry.kind;

        if (claim->state == NGX_HTTP_ZK_LOCK_DELETE
            || claim->state == NGX_HTTP_ZK_LOCK_OWED)
        {
            sighting->gone = 1;

        } else {
            sighting->entry = &claim->entry;
        }

        return 1;
    }

    if (ngx_http_zk_lock_record_read(worker->zone, &child.id, &lock->sn.str,
                                     &record)
        == NGX_OK)
    {
        seen->origin = ZK_LOCK_SIBLING;
        sighting->kind = record.kind;

        if (record.state == NGX_HTTP_ZK_LOCK_RECORD_ENDED) {
            sighting->gone = 1;
        }
    }

    return 1;
}


static zk_lock_entry_t *
ngx_http_zk_lock_lock_make_other(void *data, zk_lock_sighting_t *sighting)
{
    ngx_http_zk_lock_lock_t *lock = data;

    size_t                     len;
    ngx_http_zk_lock_seen_t   *seen;
    ngx_http_zk_lock_other_t  *other;

    seen = sighting->data;

    len = (seen->origin == ZK_LOCK_FOREIGN) ? seen->name.len : 0;

    other = ngx_calloc(sizeof(ngx_http_zk_lock_other_t) + len,
                       lock->worker->log);
    if (other == NULL) {
        return NULL;
    }

    other->lock = lock;
    other->bell.handler = ngx_http_zk_lock_lock_bell_handler;
    other->entry.origin = seen->origin;
    other->id = seen->id;

    if (len != 0) {
        other->name.len = len;
        other->name.data = (u_char *) other + sizeof(ngx_http_zk_lock_other_t);
        ngx_memcpy(other->name.data, seen->name.data, len);
    }

    return &other->entry;
}


/* The view found out that a claim is gone. */

static void
ngx_http_zk_lock_lock_gone(void *data, zk_lock_entry_t *entry)
{
    ngx_http_zk_lock_lock_t *lock = data;

    if (entry->origin == ZK_LOCK_LOCAL) {
        ngx_http_zk_lock_claim_of(entry)->vanished = 1;
        lock->vanished = 1;
        return;
    }

    ngx_http_zk_lock_lock_free_other((ngx_http_zk_lock_other_t *) entry);
}


/* The view does not know it any more. */

static void
ngx_http_zk_lock_lock_forgotten(void *data, zk_lock_entry_t *entry)
{
    (void) data;

    if (entry->origin != ZK_LOCK_LOCAL) {
        ngx_http_zk_lock_lock_free_other((ngx_http_zk_lock_other_t *) entry);
    }
}


/* Calls tell for each claim; it may free the claim that it is called for. */

static void
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


/* A read of the lock's znode, or of a child of it; it pins the lock. */

static ngx_http_zk_lock_op_t *
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
    zk_lock_id_t              *id;
    ngx_http_zk_lock_other_t  *other;

    other = (ngx_http_zk_lock_other_t *) entry;

    if (entry->origin == ZK_LOCK_LOCAL) {
        id = &ngx_http_zk_lock_claim_of(entry)->id;

    } else if (other->name.len != 0) {
        *name = other->name;
        return;

    } else {
        id = &other->id;
    }

    name->data = buf;
    name->len = zk_lock_claim_write((char *) buf, id, entry->kind, entry->seq);
}


/* A claim keeps its id when it is renamed. */

static uint64_t
ngx_http_zk_lock_lock_who(zk_lock_id_t *id, ngx_str_t *name)
{
    uint64_t  who;

    if (id != NULL) {
        ngx_memcpy(&who, id->random, sizeof(uint64_t));
        return who;
    }

    return (uint64_t) ngx_crc32_long(name->data, name->len) << 32
           ^ ngx_hash_key(name->data, name->len);
}


/*
 * Sets a watch on the lock's znode, unless there is one.  It is sent behind
 * the create of a claim that is still there, so it finds the same znode, if
 * that one is older than the claim.
 */

static void
ngx_http_zk_lock_lock_guard(ngx_http_zk_lock_lock_t *lock, int64_t czxid)
{
    ngx_http_zk_lock_op_t  *op;

    if (lock->view.watched || lock->guard != NULL
        || (!ngx_http_zk_lock_session_may_watch(lock->worker->session,
                                                lock->sn.str.len)
            && !ngx_http_zk_lock_session_watches(lock->worker->session,
                                                 &lock->sn.str)))
    {
        return;
    }

    op = ngx_http_zk_lock_lock_op(lock, NGX_HTTP_ZK_LOCK_OP_GET, NULL,
                                  ngx_http_zk_lock_lock_guard_handler);
    if (op == NULL) {
        return;
    }

    op->watch = 1;

    lock->guard = op;
    lock->guarded = czxid;

    ngx_http_zk_lock_session_send(op);
}


/* Any claim of ours will do: what is older than it and there, was there. */

static void
ngx_http_zk_lock_lock_guard_again(ngx_http_zk_lock_lock_t *lock)
{
    ngx_queue_t               *q;
    ngx_http_zk_lock_claim_t  *claim;

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        if (claim->czxid != 0) {
            ngx_http_zk_lock_lock_guard(lock, claim->czxid);
            return;
        }
    }
}


static void
ngx_http_zk_lock_lock_guard_handler(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_lock_t  *lock;

    lock = op->data;

    if (lock->guard == op) {
        lock->guard = NULL;

        if (op->rc == NGX_HTTP_ZK_LOCK_OK && op->czxid < lock->guarded) {
            lock->view.watched = 1;
            lock->born = op->czxid;
        }
    }

    ngx_http_zk_lock_lock_unpin(lock);
}


void
ngx_http_zk_lock_lock_changed(ngx_http_zk_lock_lock_t *lock,
    ngx_uint_t deleted)
{
    if (lock->node) {
        ngx_http_zk_lock_node_changed(lock, deleted);
        return;
    }

    lock->view.watched = 0;
    lock->born = 0;

    if (deleted) {
        lock->known = 0;
    }

    ngx_http_zk_lock_lock_pin(lock);

    if (deleted) {

        /* a znode with children cannot be deleted: they are gone, too */

        zk_lock_view_forget(&lock->view, ngx_http_zk_lock_lock_gone, lock);

        if (lock->vanished) {
            lock->vanished = 0;
            ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_listed);
        }

    } else if (lock->view.nlocal == 0) {
        zk_lock_view_forget(&lock->view, ngx_http_zk_lock_lock_forgotten,
                            lock);

    } else {

        /* another gateway says that it has changed a claim */

        lock->touched = 1;

        /* a list behind the watch that is set now: one under way is too old */

        lock->list = NULL;

        ngx_http_zk_lock_lock_guard_again(lock);
        ngx_http_zk_lock_lock_list(lock);
        ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_touched);
    }

    ngx_http_zk_lock_lock_unpin(lock);
}


void
ngx_http_zk_lock_lock_claim_changed(ngx_http_zk_lock_lock_t *lock,
    ngx_str_t *name, ngx_uint_t deleted)
{
    u_char                     buf[ZK_LOCK_CLAIM_MAX];
    ngx_str_t                  watched;
    zk_lock_child_t            child;
    zk_lock_entry_t           *entry;
    ngx_http_zk_lock_claim_t  *claim;

    if (zk_lock_child_read(&child, (char *) name->data, name->len) != 0) {
        return;
    }

    if (child.has_id) {
        claim = ngx_http_zk_lock_claim_find(lock->worker, &child.id,
                                            &lock->sn.str);

        if (claim != NULL && claim->entry.seq == child.seq) {
            ngx_http_zk_lock_claim_changed(claim, deleted);
            return;
        }
    }

    entry = NULL;

    for ( ;; ) {
        entry = zk_lock_view_watched(&lock->view, child.seq, entry);
        if (entry == NULL) {
            return;
        }

        ngx_http_zk_lock_lock_name(entry, &watched, buf);

        if (watched.len == name->len
            && ngx_memcmp(watched.data, name->data, name->len) == 0)
        {
            break;
        }
    }

    if (deleted) {
        ngx_http_zk_lock_lock_vanished((ngx_http_zk_lock_other_t *) entry);
        return;
    }

    /* its data were set, and it is watched anew */

    ngx_http_zk_lock_lock_unwatch((ngx_http_zk_lock_other_t *) entry);
    ngx_http_zk_lock_lock_advance(lock);
}


void
ngx_http_zk_lock_lock_forget(ngx_http_zk_lock_lock_t *lock)
{
    lock->list = NULL;
    lock->guard = NULL;
    lock->verify = NULL;
    lock->known = 0;
    lock->touched = 0;
    lock->doubtful = 0;
    lock->waits = 0;
    lock->born = 0;
    lock->view.watched = 0;

    zk_lock_view_forget(&lock->view, ngx_http_zk_lock_lock_forgotten, lock);

    ngx_http_zk_lock_lock_free(lock);
}


void
ngx_http_zk_lock_lock_lost(ngx_http_zk_lock_lock_t *lock)
{
    ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_lost);
}


void
ngx_http_zk_lock_lock_suspended(ngx_http_zk_lock_lock_t *lock)
{
    ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_suspended);
}


void
ngx_http_zk_lock_lock_sure(ngx_http_zk_lock_lock_t *lock)
{
    ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_sure);
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
ngx_http_zk_lock_lock_holds(ngx_http_zk_lock_lock_t *lock)
{
    ngx_queue_t               *q;
    ngx_http_zk_lock_claim_t  *claim;

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = ngx_queue_next(q))
    {
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        if (claim->state == NGX_HTTP_ZK_LOCK_HELD
            || claim->state == NGX_HTTP_ZK_LOCK_LAPSE)
        {
            return 1;
        }
    }

    return 0;
}


void
ngx_http_zk_lock_lock_unreachable(ngx_http_zk_lock_lock_t *lock)
{
    if (lock->settle) {
        ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_unreachable);
    }
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


void
ngx_http_zk_lock_lock_sweep(ngx_http_zk_lock_lock_t *lock)
{
    ngx_uint_t                 n, holders, others, listeners;
    zk_lock_entry_t           *entry;
    ngx_http_zk_lock_claim_t  *claim;

    n = 0;
    holders = zk_lock_view_holders(&lock->view);
    others = 0;
    listeners = 0;

    ngx_http_zk_lock_lock_pin(lock);

    /* the siblings ahead may have died meanwhile: advance looks again */

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
            claim = ngx_http_zk_lock_claim_of(entry);
            claim->place = ngx_http_zk_lock_place(n, holders);

            listeners += (claim->event != NULL && others != 0);
        }

        n++;
    }

    if (listeners != 0) {

        /* of those ahead only the nearest are watched: a list shows the rest */

        ngx_http_zk_lock_lock_list(lock);
    }

    ngx_http_zk_lock_node_sweep(lock);

    ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_sweep);
    ngx_http_zk_lock_lock_advance(lock);

    ngx_http_zk_lock_lock_unpin(lock);
}


/*
 * Makes the lock's znode, unless its claims do, and what is missing above it:
 * from there up to the first parent that can be made, and down again.  Each is
 * made alone, as a container, which ZooKeeper removes when it is empty for a
 * while; as a persistent znode if the server knows no containers.
 */

void
ngx_http_zk_lock_lock_make(ngx_http_zk_lock_lock_t *lock)
{
    if (lock->making != 0) {
        return;
    }

    lock->making = ngx_http_zk_lock_lock_bottom(lock);

    ngx_http_zk_lock_lock_make_step(lock);
}


/* The length of the path of the last znode that is to be made. */

static size_t
ngx_http_zk_lock_lock_bottom(ngx_http_zk_lock_lock_t *lock)
{
    size_t  len;

    len = lock->sn.str.len;

    if (lock->node) {
        for (len--; len > 1 && lock->sn.str.data[len] != '/'; len--) {
            /* void */
        }
    }

    return len;
}


static void
ngx_http_zk_lock_lock_make_step(ngx_http_zk_lock_lock_t *lock)
{
    ngx_str_t                   dir;
    ngx_http_zk_lock_op_t      *op;
    ngx_http_zk_lock_worker_t  *worker;

    worker = lock->worker;

    dir.data = lock->sn.str.data;
    dir.len = lock->making;

    op = ngx_http_zk_lock_op_new(worker->session,
                                 worker->persistent
                                 ? NGX_HTTP_ZK_LOCK_OP_PERSISTENT
                                 : NGX_HTTP_ZK_LOCK_OP_CONTAINER,
                                 &dir, NULL, NULL);
    if (op == NULL) {
        lock->making = 0;
        ngx_http_zk_lock_lock_refuse(lock, NGX_HTTP_ZK_LOCK_FAILED);
        return;
    }

    op->handler = ngx_http_zk_lock_lock_make_handler;
    op->data = lock;

    ngx_http_zk_lock_lock_pin(lock);
    ngx_http_zk_lock_session_send(op);
}


static void
ngx_http_zk_lock_lock_make_handler(ngx_http_zk_lock_op_t *op)
{
    size_t                    len;
    u_char                   *path;
    ngx_http_zk_lock_lock_t  *lock;

    lock = op->data;
    path = lock->sn.str.data;
    len = lock->making;

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
    case NGX_HTTP_ZK_LOCK_EXISTS:

        if (len == ngx_http_zk_lock_lock_bottom(lock)) {
            lock->making = 0;
            ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_start);
            break;
        }

        for (len++; len < lock->sn.str.len && path[len] != '/'; len++) {
            /* void */
        }

        lock->making = len;
        ngx_http_zk_lock_lock_make_step(lock);
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:

        if (len == 1) {
            ngx_log_error(NGX_LOG_ERR, lock->worker->log, 0,
                          "the parent of the chroot of zk_lock_servers "
                          "does not exist");

            lock->making = 0;
            ngx_http_zk_lock_lock_refuse(lock, NGX_HTTP_ZK_LOCK_FAILED);
            break;
        }

        for (len--; len > 1 && path[len] != '/'; len--) { /* void */ }

        lock->making = len;
        ngx_http_zk_lock_lock_make_step(lock);
        break;

    case NGX_HTTP_ZK_LOCK_UNSUPPORTED:

        if (!lock->worker->persistent) {
            lock->worker->persistent = 1;
            ngx_http_zk_lock_lock_make_step(lock);
            break;
        }

        /* fall through */

    case NGX_HTTP_ZK_LOCK_REFUSED:
    case NGX_HTTP_ZK_LOCK_NO_AUTH:
        lock->making = 0;
        ngx_http_zk_lock_lock_refuse(lock,
                                     op->rc == NGX_HTTP_ZK_LOCK_NO_AUTH
                                     ? NGX_HTTP_ZK_LOCK_DENIED
                                     : NGX_HTTP_ZK_LOCK_FAILED);
        break;

    default:
        /* the claims start again with the next connection */
        lock->making = 0;
        break;
    }

    ngx_http_zk_lock_lock_unpin(lock);
}


void
ngx_http_zk_lock_lock_refuse(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_outcome_e outcome)
{
    ngx_queue_t               *q, *next;
    ngx_http_zk_lock_claim_t  *claim;

    ngx_http_zk_lock_lock_pin(lock);

    for (q = ngx_queue_head(&lock->claims);
         q != ngx_queue_sentinel(&lock->claims);
         q = next)
    {
        next = ngx_queue_next(q);
        claim = ngx_queue_data(q, ngx_http_zk_lock_claim_t, queue);

        if (claim->state == NGX_HTTP_ZK_LOCK_START) {
            ngx_http_zk_lock_claim_refuse(claim, outcome);
        }
    }

    ngx_http_zk_lock_lock_unpin(lock);
}
