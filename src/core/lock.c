
/*
 * The worker's locks: this file finds, keeps and frees lock objects, and does
 * for each lock what the view (base/view.h) needs next:
 *
 *   grant      of the first waiting claim
 *   watch      on the claim ahead: a subscription to a sibling's record, or a
 *              watch on a foreign claim's znode
 *   complete   the claims ahead are read from the sequence index, or listed
 *
 * What the view knows counts only under the parent watch, the watch on the
 * lock's znode: that watch tells that the znode is gone, and was perhaps made
 * anew, or that another gateway has changed a claim.
 *
 * lock.h has the states of a lock, and what leads from each state to the next.
 *
 * A function that changes a lock posts the lock.  In each turn of the event
 * loop zkl_lock_turn_handler() advances the posted locks, and it alone frees
 * locks and claims that have ended: so no function loses its lock or its claim
 * under way.
 *
 * Everything here runs on the event loop.  lock->nops counts the operations
 * under way that have the lock as data, and lock->soon while that timer is set.
 * Not counted are lock->reread, a timer that ends with the lock, and a watch on
 * a claim, which ends with the entry of the view.
 * `list`, `parent` and `verify` are NULL unless the operation is under way and
 * the answer still counts: several lists may be under way, but only the answer
 * of lock->list is used.  Once the parent watch is set, only view.watched says
 * so.  `other->watch` is NULL unless the operation is under way, and
 * lock->watching counts these operations.
 */


#include "core/lock.h"
#include "core/node.h"
#include "shm/seq_index.h"


/* so many claims make the queue of a mutex busy */
#define ZKL_QUEUE_LONG          5

/* milliseconds that a sibling gets to publish a new claim */
#define ZKL_SOON                1

/* so many held claims are not read for each change of the lock's znode */
#define ZKL_HOLDERS_MANY        16

/* milliseconds between two reads of so many claims */
#define ZKL_REREAD              300

/* claims that are learned from the sequence index at a time */
#define ZKL_LEARN               256

/* siblings' claims that stay in the view of a lock without own claims */
#define ZKL_KIN                 8


static void zkl_lock_unpost(zkl_lock_t *lock);
static void zkl_lock_resolve(zkl_lock_t *lock);
static ngx_int_t zkl_lock_step(zkl_lock_t *lock);
static ngx_int_t zkl_lock_complete(zkl_lock_t *lock, zkl_entry_t *waiter);
static ngx_int_t zkl_lock_learn(zkl_lock_t *lock, zkl_entry_t *waiter);
static void zkl_lock_soon_handler(ngx_event_t *ev);
static void zkl_lock_gap_handler(zkl_subscription_t *sub);
static void zkl_lock_list_handler(zkl_op_t *op);
static ngx_uint_t zkl_lock_observe(zkl_lock_t *lock, ngx_str_t *name,
    zkl_observed_t *observed);
static uint64_t zkl_lock_who(zkl_child_t *child, ngx_str_t *name);
static zkl_entry_t *zkl_lock_make_other(void *data, zkl_observed_t *observed);
static void zkl_lock_gone(void *data, zkl_entry_t *entry);
static size_t zkl_lock_bottom(zkl_lock_t *lock);
static void zkl_lock_make_step(zkl_lock_t *lock, size_t len);
static void zkl_lock_make_handler(zkl_op_t *op);
static void zkl_lock_doubt(zkl_lock_t *lock);
static void zkl_lock_watch_parent_handler(zkl_op_t *op);
static void zkl_lock_bumped(zkl_lock_t *lock);
static void zkl_lock_tell_bumped(zkl_lock_t *lock);
static void zkl_lock_reread_handler(ngx_event_t *ev);
static ngx_int_t zkl_lock_watch(zkl_lock_t *lock, zkl_other_t *other);
static ngx_uint_t zkl_lock_trusts(zkl_record_t *record);
static void zkl_lock_watch_handler(zkl_op_t *op);
static void zkl_lock_vanished(zkl_other_t *other);
static void zkl_lock_sub_handler(zkl_subscription_t *sub);
static void zkl_lock_verify_handler(zkl_op_t *op);
static void zkl_lock_unwatch(zkl_other_t *other);
static void zkl_lock_rest(zkl_lock_t *lock);


zkl_lock_t *
zkl_lock_find(zkl_worker_t *worker, ngx_str_t *path)
{
    /* the node is the first member */

    return (zkl_lock_t *)
           ngx_str_rbtree_lookup(&worker->locks, path,
                                 ngx_crc32_long(path->data, path->len));
}


zkl_lock_t *
zkl_lock_get(zkl_worker_t *worker, ngx_str_t *path)
{
    zkl_lock_t  *lock;

    lock = zkl_lock_find(worker, path);
    if (lock != NULL) {
        return lock;
    }

    lock = ngx_calloc(sizeof(zkl_lock_t) + path->len, worker->log);
    if (lock == NULL) {
        return NULL;
    }

    lock->worker = worker;
    lock->sn.str.len = path->len;
    lock->sn.str.data = (u_char *) lock + sizeof(zkl_lock_t);
    ngx_memcpy(lock->sn.str.data, path->data, path->len);

    lock->sn.node.key = ngx_crc32_long(path->data, path->len);

    zkl_worker_timer(worker, &lock->soon, zkl_lock_soon_handler);
    lock->gap.handler = zkl_lock_gap_handler;

    zkl_worker_timer(worker, &lock->reread, zkl_lock_reread_handler);
    lock->reread.cancelable = 1;

    zkl_view_init(&lock->view);
    ngx_queue_init(&lock->claims);

    ngx_rbtree_insert(&worker->locks, &lock->sn.node);
    ngx_queue_insert_tail(&worker->idle, &lock->queue);
    worker->nidle++;

    return lock;
}


void
zkl_lock_join(zkl_lock_t *lock, zkl_claim_t *claim)
{
    ngx_queue_insert_tail(&lock->claims, &claim->queue);
    lock->nclaims++;
    lock->nkeen += (claim->terms.keyed || claim->terms.bound);

    if (claim->named != claim->id.record) {
        claim->sn.str.data = claim->id.random;
        claim->sn.str.len = ZKL_RANDOM_LEN;
        claim->sn.node.key = ngx_crc32_short(claim->id.random, ZKL_RANDOM_LEN);

        ngx_rbtree_insert(&lock->worker->renumbered, &claim->sn.node);
    }

    if (lock->nclaims == 1) {
        ngx_queue_remove(&lock->queue);
        ngx_queue_insert_tail(&lock->worker->active, &lock->queue);
        lock->worker->nidle--;
    }
}


void
zkl_lock_leave(zkl_lock_t *lock, zkl_claim_t *claim)
{
    zkl_worker_t  *worker;

    worker = lock->worker;

    ngx_queue_remove(&claim->queue);
    ngx_queue_insert_tail(&worker->ended, &claim->queue);

    lock->nclaims--;
    lock->nkeen -= (claim->terms.keyed || claim->terms.bound);

    if (claim->named != claim->id.record) {
        ngx_rbtree_delete(&worker->renumbered, &claim->sn.node);
    }

    if (lock->nclaims == 0) {
        ngx_queue_remove(&lock->queue);
        ngx_queue_insert_tail(&worker->idle, &lock->queue);
        worker->nidle++;

        zkl_lock_rest(lock);
    }

    zkl_lock_post(lock);
}


ngx_int_t
zkl_lock_layout(zkl_lock_t *lock, ngx_uint_t node)
{
    if (lock->node == node) {
        return NGX_OK;
    }

    if (lock->nclaims != 0) {
        return NGX_DECLINED;
    }

    /* the view describes the other layout */

    zkl_lock_forget(lock);

    lock->node = (node != 0);

    return NGX_OK;
}


void
zkl_lock_post(zkl_lock_t *lock)
{
    if (!lock->posted) {
        lock->posted = 1;

        ngx_queue_insert_tail(&lock->worker->posted, &lock->turn);
        ngx_post_event(&lock->worker->turn, &ngx_posted_events);
    }
}


static void
zkl_lock_unpost(zkl_lock_t *lock)
{
    if (lock->posted) {
        lock->posted = 0;
        ngx_queue_remove(&lock->turn);
    }
}


void
zkl_lock_turn_handler(ngx_event_t *ev)
{
    ngx_queue_t   *q;
    zkl_lock_t    *lock;
    zkl_worker_t  *worker;

    worker = ngx_queue_data(ev, zkl_worker_t, turn);

    while (!ngx_queue_empty(&worker->posted)) {
        q = ngx_queue_head(&worker->posted);
        lock = ngx_queue_data(q, zkl_lock_t, turn);

        zkl_lock_unpost(lock);

        while (zkl_lock_step(lock) == NGX_OK) { /* void */ }

        zkl_lock_resolve(lock);

        if (!lock->view.watched && lock->nclaims == 0 && lock->nops == 0
            && !lock->posted)
        {
            zkl_lock_discard(lock);
        }
    }

    /*
     * The cache keeps the idle locks that were used last.  The watches of the
     * other idle locks stay, and late events find no lock.
     */

    while (worker->nidle > worker->cache) {
        q = ngx_queue_head(&worker->idle);
        lock = ngx_queue_data(q, zkl_lock_t, queue);

        if (lock->nops != 0) {
            /* the end of the last operation frees the lock, or the next run */
            break;
        }

        zkl_lock_discard(lock);
    }

    zkl_lock_reap(worker);
}


void
zkl_lock_reap(zkl_worker_t *worker)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(&worker->ended)) {
        q = ngx_queue_head(&worker->ended);
        ngx_queue_remove(q);

        ngx_free(ngx_queue_data(q, zkl_claim_t, queue));
    }
}


void
zkl_lock_op_end(zkl_lock_t *lock)
{
    lock->nops--;

    if (lock->nclaims == 0) {
        /* no further operation may need the lock */
        zkl_lock_post(lock);
    }
}


zkl_claim_t *
zkl_lock_next(zkl_lock_t *lock, zkl_claim_t *claim)
{
    ngx_queue_t  *q;

    q = claim ? ngx_queue_next(&claim->queue) : ngx_queue_head(&lock->claims);

    return (q != ngx_queue_sentinel(&lock->claims))
           ? ngx_queue_data(q, zkl_claim_t, queue) : NULL;
}


void
zkl_lock_tell(zkl_lock_t *lock, void (*tell)(zkl_claim_t *claim))
{
    zkl_claim_t  *claim, *next;

    for (claim = zkl_lock_next(lock, NULL); claim != NULL; claim = next) {
        next = zkl_lock_next(lock, claim);
        tell(claim);
    }
}


ngx_int_t
zkl_lock_read(zkl_lock_t *lock, zkl_op_t **under_way, zkl_op_e type,
    ngx_str_t *name, ngx_uint_t watch, zkl_op_pt handler)
{
    zkl_op_t  *op;

    if (*under_way != NULL) {
        return NGX_OK;
    }

    op = zkl_op_new(lock->worker->session, type, &lock->sn.str, name, NULL);
    if (op == NULL) {
        return NGX_ERROR;
    }

    op->watch = watch;

    *under_way = op;

    lock->nops++;
    zkl_session_send(op, handler, lock);

    return NGX_OK;
}


void
zkl_lock_name(zkl_entry_t *entry, ngx_str_t *name, u_char *buf)
{
    zkl_id_t      id;
    zkl_other_t  *other;

    other = (zkl_other_t *) entry;

    if (entry->origin == ZKL_LOCAL) {
        id = zkl_claim_id(zkl_claim_of(entry));

    } else if (other->name.len != 0) {
        *name = other->name;
        return;

    } else {
        id = other->id;
    }

    name->data = buf;
    name->len = zkl_name_claim_write((char *) buf, &id, entry->mode,
                                     entry->seq);
}


void
zkl_lock_forget(zkl_lock_t *lock)
{
    lock->list = NULL;
    lock->parent = NULL;
    lock->verify = NULL;
    lock->known = 0;
    lock->handled = lock->bumped ? 0 : lock->handled;
    lock->bumped = 0;
    lock->doubtful = 0;
    lock->partial = 0;
    lock->waits = 0;
    lock->born = 0;
    lock->view.watched = 0;

    zkl_view_forget(&lock->view, zkl_lock_gone, lock);

    zkl_lock_post(lock);
}


void
zkl_lock_session_over(zkl_lock_t *lock)
{
    zkl_lock_forget(lock);

    lock->handled = 0;
}


void
zkl_lock_discard(zkl_lock_t *lock)
{
    lock->worker->nidle -= (lock->nclaims == 0);

    zkl_view_forget(&lock->view, zkl_lock_gone, lock);
    zkl_view_free(&lock->view);

    zkl_lock_tell(lock, zkl_claim_discard);
    zkl_lock_unpost(lock);

    if (lock->soon.timer_set) {
        ngx_del_timer(&lock->soon);
        zkl_worker_unsubscribe(&lock->gap);
    }

    if (lock->reread.timer_set) {
        ngx_del_timer(&lock->reread);
    }

    ngx_rbtree_delete(&lock->worker->locks, &lock->sn.node);
    ngx_queue_remove(&lock->queue);

    ngx_free(lock);
}


/*
 * Work that may wait for a second.  Because many claims may wait for a lock,
 * the sweep looks at the held claims and at the claims ahead of the first
 * waiting claim only; at the other waiting claims only if a claim is keen.
 */

void
zkl_lock_sweep(zkl_lock_t *lock)
{
    ngx_uint_t    n, holders, others, listeners, all;
    zkl_entry_t  *entry;
    zkl_claim_t  *claim, *next;

    n = 0;
    holders = zkl_view_holders(&lock->view);
    others = 0;
    listeners = 0;

    for (entry = zkl_view_first(&lock->view);
         entry != NULL;
         entry = zkl_view_after(&lock->view, entry))
    {
        if (entry->origin == ZKL_SIBLING && entry->watched) {
            /* the sibling may have died: the record is read again */
            zkl_lock_unwatch((zkl_other_t *) entry);
        }

        if (entry->origin != ZKL_LOCAL) {
            others++;

        } else if (entry->waiting) {

            if (lock->nkeen == 0) {
                /* only the first waiting claim watches claims ahead */
                break;
            }

            claim = zkl_claim_of(entry);
            claim->place = zkl_place(n, holders);

            listeners += (claim->event != NULL && others != 0);
        }

        n++;
    }

    if (listeners != 0 || lock->partial || lock->bumped) {

        /*
         * Only the nearest claims ahead are watched, so a list has to show the
         * rest; or a list was due, and failed.
         */

        zkl_lock_list(lock);
    }

    if (lock->blind) {
        lock->blind = 0;
        lock->waits = 0;
    }

    all = (lock->nkeen != 0 || lock->node);

    for (claim = zkl_lock_next(lock, NULL); claim != NULL; claim = next) {
        next = zkl_lock_next(lock, claim);

        if (!all && claim->state == ZKL_WAIT) {
            break;
        }

        zkl_claim_proceed(claim);
    }

    zkl_lock_post(lock);
}


/*
 * Advance: grants, watches and reads until the lock has to wait.  A grant can
 * end in a release, which posts the lock again.
 */


void
zkl_lock_created(zkl_lock_t *lock, zkl_entry_t *entry, int64_t czxid)
{
    int  anew;

    lock->known = 1;

    zkl_lock_doubt(lock);

    anew = zkl_view_create(&lock->view, entry, zkl_lock_gone, lock);

    if (anew || (!lock->view.watched && lock->view.nlocal == 1)
        || lock->born == 0)
    {

        /* the znode may have been made anew, up to this moment */

        lock->born = czxid;
    }

    zkl_lock_watch_parent(lock, czxid);

    if (anew || lock->partial) {
        zkl_lock_list(lock);
    }
}


ngx_uint_t
zkl_lock_queue_long(zkl_lock_t *lock, zkl_mode_t mode, zkl_entry_t *entry)
{
    zkl_entry_t  *next;

    if (lock->node || mode == ZKL_READ || lock->view.nlocal < ZKL_QUEUE_LONG
        || lock->view.nlocal - ZKL_QUEUE_LONG < zkl_view_capacity(mode) - 1)
    {
        return 0;
    }

    if (entry == NULL) {
        return 1;
    }

    next = (entry->linked && mode == ZKL_MUTEX)
           ? zkl_view_after(&lock->view, entry) : NULL;

    return next != NULL && next->origin != ZKL_FOREIGN;
}


void
zkl_lock_removed(zkl_lock_t *lock, zkl_entry_t *entry)
{
    zkl_view_remove(&lock->view, entry);

    zkl_lock_post(lock);
}


/*
 * Tells the claims that waited for the view to be sure.  If one of them ends,
 * the next claim may be granted, and is not told that the lock is taken.
 */

static void
zkl_lock_resolve(zkl_lock_t *lock)
{
    ngx_uint_t    ended;
    zkl_claim_t  *claim, *next;

    if (lock->node) {
        zkl_node_resolve(lock);
        return;
    }

    if (!lock->resolve || zkl_lock_reads_pending(lock)) {
        return;
    }

    lock->resolve = 0;
    ended = 0;

    for (claim = zkl_lock_next(lock, NULL); claim != NULL; claim = next) {
        next = zkl_lock_next(lock, claim);
        zkl_claim_resolve(claim);

        if (lock->posted) {
            zkl_lock_unpost(lock);

            while (zkl_lock_step(lock) == NGX_OK) { /* void */ }

            ended = 1;
        }
    }

    if (ended) {
        zkl_lock_post(lock);
    }
}


/* NGX_OK: a step was made; NGX_AGAIN: the lock has to wait. */

static ngx_int_t
zkl_lock_step(zkl_lock_t *lock)
{
    u_char          buf[ZKL_CLAIM_MAX];
    ngx_str_t       name;
    zkl_entry_t    *waiter, *blocker;
    zkl_verdict_e   verdict;

    if (!zkl_session_connected(lock->worker->session)) {
        return NGX_AGAIN;
    }

    verdict = zkl_view_next(&lock->view, &waiter, &blocker);

    if (lock->bumped && (verdict == ZKL_GRANT || verdict == ZKL_VIEW_CONFLICT))
    {
        zkl_lock_list(lock);
        return NGX_AGAIN;
    }

    switch (verdict) {

    case ZKL_GRANT:

        if (!lock->node && lock->parent != NULL && waiter->seq != 0) {
            /* the parent watch tells whether the view is of this znode */
            return NGX_AGAIN;
        }

        if (lock->doubtful) {
            /* without memory, the sweep tries again */

            zkl_lock_name(waiter, &name, buf);

            (void) zkl_lock_read(lock, &lock->verify, ZKL_OP_GET, &name, 0,
                                 zkl_lock_verify_handler);
            return NGX_AGAIN;
        }

        return zkl_claim_grant(zkl_claim_of(waiter));

    case ZKL_VIEW_CONFLICT:

        if (zkl_lock_conflicts(lock, waiter)) {
            return zkl_claim_conflict(zkl_claim_of(waiter));
        }

        blocker = zkl_view_first(&lock->view);

        if (blocker->origin != ZKL_SIBLING) {

            /* the watch is under way; or this worker's claim waits, too */

            return NGX_AGAIN;
        }

        zkl_lock_unwatch((zkl_other_t *) blocker);

        /* fall through */

    case ZKL_WATCH:
        return zkl_lock_watch(lock, (zkl_other_t *) blocker);

    case ZKL_COMPLETE:
        return zkl_lock_complete(lock, waiter);

    default: /* ZKL_NOTHING */

        if (lock->node) {
            zkl_node_turn(lock);
        }

        return NGX_AGAIN;
    }
}


/*
 * A claim need not be the first that waits to be told of the conflict.  A first
 * claim of the queue that may be gone does not count.
 */

ngx_uint_t
zkl_lock_conflicts(zkl_lock_t *lock, zkl_entry_t *entry)
{
    zkl_entry_t    *first;
    zkl_other_t    *other;
    zkl_record_t    record;
    zkl_verdict_e   verdict;

    verdict = zkl_view_conflict(&lock->view, entry);

    if (verdict == ZKL_NOTHING) {
        return 0;
    }

    first = zkl_view_first(&lock->view);
    other = (zkl_other_t *) first;

    if (lock->bumped || (first->origin == ZKL_LOCAL && first->waiting)) {

        /*
         * Another gateway may have released the claim; or the claim is about
         * to be granted, unless it leaves, or its znode is found missing.
         */

        lock->resolve = 1;
        return 0;
    }

    if (verdict != ZKL_VIEW_CONFLICT) {
        return 0;
    }

    if (first->origin == ZKL_LOCAL) {
        return 1;
    }

    /* the watch may not have told of the end yet */

    if (first->origin == ZKL_FOREIGN) {
        return other->watch == NULL;
    }

    return zkl_record_read(lock->worker->zone, &other->id, &lock->sn.str,
                           &record)
           == ZKL_FOUND
           && record.state != ZKL_RECORD_ENDED
           && zkl_lock_trusts(&record);
}


/*
 * Waiting claims watch only the nearest claims ahead.  So a claim that may be
 * in conflict has the worker watch the first claim of the queue.
 */

void
zkl_lock_look_first(zkl_lock_t *lock, zkl_entry_t *entry)
{
    zkl_other_t    *first;
    zkl_verdict_e   verdict;

    do {
        verdict = zkl_view_conflict(&lock->view, entry);
        first = (zkl_other_t *) zkl_view_first(&lock->view);

        /* the answer settles the conflict */

        lock->resolve |= (verdict != ZKL_NOTHING);

        if (verdict == ZKL_COMPLETE) {
            zkl_lock_list(lock);
        }

        /* without a watch the conflict is known when the queue moves on */

    } while (verdict == ZKL_WATCH && zkl_lock_watch(lock, first) == NGX_OK);
}


ngx_uint_t
zkl_lock_reads_pending(zkl_lock_t *lock)
{
    return lock->list != NULL || lock->parent != NULL || lock->watching != 0
           || lock->verify != NULL || lock->soon.timer_set || lock->posted
           || !zkl_session_connected(lock->worker->session);
}


/*
 * Complete: the sequence index, or a list of the claims, makes a view complete.
 * A list that is out of date before the answer comes is not lock->list any
 * more, and the answer is dropped.
 */


/*
 * Makes the view complete up to waiter, from the sequence index, which costs
 * nothing, or by a list.  Returns NGX_OK if the view changed, and NGX_AGAIN if
 * the lock has to wait.
 *
 * The worker learns at once all that the sequence index knows, though the next
 * claim may block for long: so waiter watches the nearest claim of a sibling,
 * and not each claim in turn.
 */

static ngx_int_t
zkl_lock_complete(zkl_lock_t *lock, zkl_entry_t *waiter)
{
    int64_t     seq;
    uint32_t    place;
    ngx_int_t   rc;
    ngx_uint_t  n;

    if (lock->list != NULL || lock->soon.timer_set) {
        return NGX_AGAIN;
    }

    for (n = 0; n < ZKL_LEARN && lock->view.complete_through < waiter->seq; n++)
    {
        if (zkl_lock_learn(lock, waiter) != NGX_OK) {
            break;
        }
    }

    if (n != 0) {
        return NGX_OK;
    }

    /*
     * A sibling may have made the next claim, and rings when the claim is
     * published: a list would tell no sooner, and cost a read.
     */

    seq = lock->view.complete_through + 1;

    if (!lock->mixed && lock->view.watched && seq != 0 && seq != lock->missing)
    {
        lock->missing = seq;

        rc = zkl_seq_index_await(lock->worker->zone, &lock->sn.str, seq,
                                 &place);

        if (rc == NGX_OK) {
            /* the sequence index has the claim by now */
            return NGX_OK;
        }

        if (rc == NGX_AGAIN) {
            lock->nops++;

            zkl_worker_subscribe(lock->worker, &lock->gap, place);
            ngx_add_timer(&lock->soon, ZKL_SOON);

            return NGX_AGAIN;
        }
    }

    zkl_lock_list(lock);

    return NGX_AGAIN;
}


/*
 * Asks the sequence index for the claim with the next seq.  The answer counts
 * only for a claim that was made in this incarnation of the lock's znode: after
 * the znode was made, and before waiter; and only while the claim's session
 * surely lives, so that the claim is not of before ZooKeeper lost data.
 * NGX_DECLINED: the claim has to be listed or waited for.
 */

static ngx_int_t
zkl_lock_learn(zkl_lock_t *lock, zkl_entry_t *waiter)
{
    int64_t          seq;
    ngx_int_t        rc;
    zkl_claim_t     *claim;
    zkl_entry_t     *entry;
    zkl_record_t     record;
    zkl_observed_t   observed;

    claim = zkl_claim_of(waiter);
    seq = lock->view.complete_through + 1;

    /* if the view has that seq, the index may tell of another claim */

    if (seq == 0 || claim->czxid == 0 || lock->born == 0
        || zkl_view_knows(&lock->view, seq))
    {
        return NGX_DECLINED;
    }

    rc = zkl_seq_index_find(lock->worker->zone, &lock->sn.str, seq, &record);

    if (rc == NGX_DECLINED || !zkl_ahead(record.alive)
        || record.czxid <= lock->born || record.czxid >= claim->czxid)
    {
        return NGX_DECLINED;
    }

    if (rc == NGX_DONE) {
        zkl_view_learn(&lock->view, NULL);
        return NGX_OK;
    }

    if (zkl_claim_find(lock->worker, &record.id, &lock->sn.str) != NULL) {
        return NGX_DECLINED;
    }

    ngx_memzero(&observed, sizeof(zkl_observed_t));
    observed.origin = ZKL_SIBLING;
    observed.id = record.id;

    entry = zkl_lock_make_other(lock, &observed);
    if (entry == NULL) {
        return NGX_DECLINED;
    }

    entry->seq = seq;
    entry->mode = record.mode;
    entry->who = zkl_name_who(&record.id);

    zkl_view_learn(&lock->view, entry);

    return NGX_OK;
}


static void
zkl_lock_soon_handler(ngx_event_t *ev)
{
    zkl_lock_t  *lock;

    lock = ngx_queue_data(ev, zkl_lock_t, soon);

    zkl_worker_unsubscribe(&lock->gap);

    zkl_lock_op_end(lock);
    zkl_lock_post(lock);
}


static void
zkl_lock_gap_handler(zkl_subscription_t *sub)
{
    zkl_lock_t  *lock;

    lock = ngx_queue_data(sub, zkl_lock_t, gap);

    ngx_del_timer(&lock->soon);

    zkl_lock_soon_handler(&lock->soon);
}


void
zkl_lock_list(zkl_lock_t *lock)
{
    if (lock->list != NULL) {
        return;
    }

    /* the list shows changes before the watch, the watch later changes */

    zkl_lock_watch_parent(lock, 0);
    zkl_lock_doubt(lock);

    lock->tick = lock->view.tick;

    if (zkl_lock_read(lock, &lock->list, lock->node ? ZKL_OP_GET : ZKL_OP_LIST,
                      NULL, 0, zkl_lock_list_handler)
        != NGX_OK)
    {
        /* the sweep tries again */
        lock->partial = 1;
    }
}


static void
zkl_lock_list_handler(zkl_op_t *op)
{
    int              rc;
    ngx_uint_t       i, n;
    zkl_lock_t      *lock;
    zkl_observed_t  *children;

    lock = op->data;
    rc = -1;
    children = NULL;

    if (lock->list != op) {
        goto done;
    }

    lock->list = NULL;

    if (op->rc == ZKL_NO_NODE) {
        lock->known = 0;
        op->rc = ZKL_OK;
    }

    if (op->rc == ZKL_OK) {
        children = ngx_alloc((op->nchildren + 1) * sizeof(zkl_observed_t),
                             lock->worker->log);
    }

    if (children != NULL) {
        lock->mixed = 0;

        for (i = 0, n = 0; i < op->nchildren; i++) {
            n += zkl_lock_observe(lock, &op->children[i], &children[n]);
        }

        if (lock->node) {
            n = zkl_node_observe(lock, op, children);
            op->given = (int64_t) n;
        }

        rc = zkl_view_merge(&lock->view, lock->tick, op->given, children, n,
                            zkl_lock_make_other, zkl_lock_gone, lock);

        ngx_free(children);
    }

    if (rc == 0) {
        lock->doubtful = 0;
        lock->partial = 0;

        zkl_lock_tell(lock, zkl_claim_listed);
        lock->bumped = 0;
        zkl_lock_post(lock);
        goto done;
    }

    if (op->rc == ZKL_NO_AUTH) {
        zkl_lock_tell(lock, zkl_claim_unlisted);

    } else {
        lock->partial = 1;
    }

    /* the sweep, or the next connection, tries again */

    zkl_lock_resolve(lock);

done:

    zkl_lock_op_end(lock);
}


/*
 * Finds out the origin of a child.  Returns 0 if the child is no claim.  A
 * child with the id of a claim, but with another number, is a copy that another
 * client has made.
 */

static ngx_uint_t
zkl_lock_observe(zkl_lock_t *lock, ngx_str_t *name, zkl_observed_t *observed)
{
    zkl_child_t    child;
    zkl_claim_t   *claim;
    zkl_found_e    found;
    zkl_record_t   record;

    if (zkl_name_child_read(&child, (char *) name->data, name->len) != 0) {
        return 0;
    }

    ngx_memzero(observed, sizeof(zkl_observed_t));
    observed->seq = child.seq;
    observed->mode = child.mode;
    observed->who = zkl_lock_who(&child, name);
    observed->data = name;
    observed->origin = ZKL_FOREIGN;
    observed->id = child.id;

    claim = child.has_id
            ? zkl_claim_find(lock->worker, &child.id, &lock->sn.str) : NULL;

    if (claim != NULL) {
        zkl_claim_observed(claim, observed);

    } else if (child.has_id) {
        found = zkl_record_read(lock->worker->zone, &child.id, &lock->sn.str,
                                &record);

        if ((found == ZKL_FOUND || found == ZKL_FOUND_END)
            && (record.seq == child.seq || record.seq == -1))
        {
            observed->origin = ZKL_SIBLING;
            observed->mode = record.mode;

            /* the claim may have ended since the list */

            observed->gone = (found == ZKL_FOUND_END
                              || record.state == ZKL_RECORD_ENDED);
        }
    }

    lock->mixed |= (observed->origin == ZKL_FOREIGN && observed->entry == NULL
                    && !observed->gone);

    return 1;
}


/* A rename does not change the id of a claim, nor who the claim is. */

static uint64_t
zkl_lock_who(zkl_child_t *child, ngx_str_t *name)
{
    if (child->has_id) {
        return zkl_name_who(&child->id);
    }

    return (uint64_t) ngx_crc32_long(name->data, name->len) << 32
           ^ ngx_hash_key(name->data, name->len);
}


/*
 * Makes a foreign claim with a name, which is copied, or a sibling's claim with
 * an id; the claim is not in the view yet.  NULL: no memory.
 */

static zkl_entry_t *
zkl_lock_make_other(void *data, zkl_observed_t *observed)
{
    zkl_lock_t  *lock = data;

    size_t        len;
    ngx_str_t    *name;
    zkl_other_t  *other;

    name = observed->data;
    len = (observed->origin == ZKL_FOREIGN) ? name->len : 0;

    other = ngx_calloc(sizeof(zkl_other_t) + len, lock->worker->log);
    if (other == NULL) {
        return NULL;
    }

    other->lock = lock;
    other->sub.handler = zkl_lock_sub_handler;
    other->entry.origin = observed->origin;
    other->id = observed->id;

    if (len != 0) {
        other->name.len = len;
        other->name.data = (u_char *) other + sizeof(zkl_other_t);
        ngx_memcpy(other->name.data, name->data, len);
    }

    if (observed->misnumbered
        && !zkl_view_misnumbered(&lock->view, observed))
    {
        ngx_log_error(NGX_LOG_WARN, lock->worker->log, 0,
                      "\"%V\" in \"%V\" has a number that ZooKeeper has not "
                      "given: somebody made the znode by name, and it blocks "
                      "all claims until it is deleted", name, &lock->sn.str);
    }

    return &other->entry;
}


/*
 * Frees a claim that is gone, and removes the claim from the view, unless the
 * claim has left the view.  An own claim is told by zkl_claim_listed().
 */

static void
zkl_lock_gone(void *data, zkl_entry_t *entry)
{
    zkl_lock_t  *lock = data;

    if (entry->origin != ZKL_LOCAL) {
        zkl_view_remove(&lock->view, entry);
        zkl_lock_unwatch((zkl_other_t *) entry);

        ngx_free(entry);
    }
}


/*
 * Make: makes a lock's znode and the missing parents, once for all claims of
 * the worker that wait for the znode.
 */


/*
 * Makes the lock's znode, unless the claims do, and the missing znodes above:
 * up to the first parent that can be made, and down again.  Each znode is made
 * alone, as a container, which ZooKeeper removes when it has been empty for a
 * while, or as a persistent znode if the server knows no containers.
 */

void
zkl_lock_make(zkl_lock_t *lock)
{
    if (lock->making == 0) {
        zkl_lock_make_step(lock, zkl_lock_bottom(lock));
    }
}


/* The length of the path of the last znode that is to be made. */

static size_t
zkl_lock_bottom(zkl_lock_t *lock)
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
zkl_lock_make_step(zkl_lock_t *lock, size_t len)
{
    ngx_str_t      dir;
    zkl_op_t      *op;
    zkl_worker_t  *worker;

    worker = lock->worker;

    dir.data = lock->sn.str.data;
    dir.len = len;

    op = zkl_op_new(worker->session, worker->persistent
                    ? ZKL_OP_PERSISTENT
                    : ZKL_OP_CONTAINER, &dir, NULL, NULL);
    if (op == NULL) {
        zkl_lock_refuse(lock, ZKL_FAILED);
        return;
    }

    lock->making = len;
    lock->nops++;

    zkl_session_send(op, zkl_lock_make_handler, lock);
}


static void
zkl_lock_make_handler(zkl_op_t *op)
{
    size_t       len;
    u_char      *path;
    zkl_lock_t  *lock;

    lock = op->data;
    path = lock->sn.str.data;
    len = lock->making;

    lock->making = 0;

    switch (op->rc) {

    case ZKL_OK:
    case ZKL_EXISTS:

        if (len == zkl_lock_bottom(lock)) {
            zkl_lock_tell(lock, zkl_claim_start);
            break;
        }

        for (len++; len < lock->sn.str.len && path[len] != '/'; len++) {
            /* void */
        }

        zkl_lock_make_step(lock, len);
        break;

    case ZKL_NO_NODE:

        if (len == 1) {
            ngx_log_error(NGX_LOG_ERR, lock->worker->log, 0,
                          "the parent of the chroot of zk_lock_servers "
                          "does not exist");

            zkl_lock_refuse(lock, ZKL_FAILED);
            break;
        }

        for (len--; len > 1 && path[len] != '/'; len--) { /* void */ }

        zkl_lock_make_step(lock, len);
        break;

    case ZKL_UNSUPPORTED:

        if (op->type == ZKL_OP_CONTAINER) {
            lock->worker->persistent = 1;
            zkl_lock_make_step(lock, len);
            break;
        }

        /* fall through */

    case ZKL_OVER_QUOTA:
        zkl_lock_refuse(lock, ZKL_NO_ROOM);
        break;

    case ZKL_REFUSED:
        zkl_lock_refuse(lock, ZKL_FAILED);
        break;

    case ZKL_NO_AUTH:
        zkl_lock_refuse(lock, ZKL_DENIED);
        break;

    default:
        /* the claims start again with the next connection */
        break;
    }

    zkl_lock_op_end(lock);
}


void
zkl_lock_refuse(zkl_lock_t *lock, zkl_outcome_e outcome)
{
    zkl_claim_t  *claim, *next;

    for (claim = zkl_lock_next(lock, NULL); claim != NULL; claim = next) {
        next = zkl_lock_next(lock, claim);

        if (claim->state == ZKL_START) {
            zkl_claim_refuse(claim, outcome);
        }
    }
}


/*
 * The parent watch: the watch on a lock's znode; and what follows when this
 * watch, or a watch on a claim's znode, fires.  In the one-node layout
 * lock->parent is a read of node.c, which watches the znode for the waiting
 * claims.
 */


/*
 * A znode that is older than an existing own claim has been there as long as
 * that claim.  Of the own claims in the view the oldest has to exist, because
 * the view counts on all; if the view has no own claim, any own claim will do,
 * and the youngest most likely exists.
 */

void
zkl_lock_watch_parent(zkl_lock_t *lock, int64_t witness)
{
    int64_t       oldest, youngest;
    zkl_claim_t  *claim;

    if (lock->node || lock->view.watched || lock->parent != NULL) {
        return;
    }

    oldest = 0;
    youngest = 0;
    claim = NULL;

    while (witness == 0 && (claim = zkl_lock_next(lock, claim)) != NULL) {

        if (claim->entry.linked && claim->czxid != 0
            && (oldest == 0 || claim->czxid < oldest))
        {
            oldest = claim->czxid;
        }

        youngest = ngx_max(youngest, claim->czxid);
    }

    if (witness == 0) {
        witness = oldest ? oldest : youngest;
    }

    if (witness == 0
        || (!zkl_session_may_watch(lock->worker->session, lock->sn.str.len)
            && !zkl_session_watches(lock->worker->session, &lock->sn.str)))
    {
        return;
    }

    lock->witness = witness;

    /* without the watch, each list and each create tries again */

    (void) zkl_lock_read(lock, &lock->parent, ZKL_OP_GET, NULL, 1,
                         zkl_lock_watch_parent_handler);
}


/*
 * Forgets the view, unless the parent watch is set or under way.
 *
 * An own claim pins the znode only as long as the claim exists, and only the
 * parent watch would have told that another gateway removed that claim.  So
 * without the watch the view is forgotten, and a list has to follow.
 */

static void
zkl_lock_doubt(zkl_lock_t *lock)
{
    if (!lock->node && !lock->view.watched && lock->parent == NULL) {

        /* a list tells which of the own claims are left */

        lock->partial |= (lock->view.nlocal != 0);
        lock->born = 0;

        zkl_view_forget(&lock->view, zkl_lock_gone, lock);
    }
}


static void
zkl_lock_watch_parent_handler(zkl_op_t *op)
{
    zkl_lock_t  *lock;

    lock = op->data;

    if (lock->parent == op) {
        lock->parent = NULL;

        if (op->rc == ZKL_OK && op->czxid < lock->witness) {
            lock->view.watched = 1;
            lock->born = op->czxid;

            if (op->mzxid > lock->witness && lock->nclaims != 0) {

                /*
                 * Another gateway changed the znode before the watch was set.
                 * A claim that is missing in a later connection was not removed
                 * by a change that was handled before: so that change does not
                 * set bumped again.  A list under way was sent behind this
                 * read.
                 */

                if (op->mzxid <= lock->handled) {
                    zkl_lock_tell_bumped(lock);

                } else if (lock->list == NULL || !lock->bumped) {
                    zkl_lock_bumped(lock);
                }
            }

            lock->handled = op->mzxid;

        } else {

            /*
             * The claim is gone, and the znode was made anew, if at all; or the
             * read failed.  So the view does not count any more.  A list under
             * way does, because the list was sent behind this read.
             */

            zkl_lock_doubt(lock);

            if (op->rc == ZKL_OK || op->rc == ZKL_NO_NODE) {
                zkl_lock_list(lock);
            }
        }

        zkl_lock_post(lock);
    }

    zkl_lock_op_end(lock);
}


void
zkl_lock_changed(zkl_lock_t *lock, ngx_uint_t deleted)
{
    if (lock->node) {
        zkl_node_changed(lock, deleted);
        return;
    }

    lock->view.watched = 0;
    lock->born = 0;

    if (deleted) {
        lock->known = 0;
    }

    if (deleted || lock->view.nlocal == 0) {
        zkl_view_forget(&lock->view, zkl_lock_gone, lock);
    }

    if (lock->view.nlocal != 0) {

        /* a list has to follow the new watch: a list under way is too old */

        lock->list = NULL;

        if (deleted) {
            /* the claims are gone, too, as the list will tell */
            zkl_lock_list(lock);

        } else {
            zkl_lock_bumped(lock);
        }
    }

    zkl_lock_post(lock);
}


/* Another gateway wrote to the lock's znode because a claim was changed. */

static void
zkl_lock_bumped(zkl_lock_t *lock)
{
    lock->bumped = 1;

    zkl_lock_list(lock);
    zkl_lock_tell_bumped(lock);
}


/*
 * Has the held claims read.  Each claim that becomes durable changes the lock's
 * znode, so the reads of many would grow with the square of their number: a
 * change soon after the last reads waits, with all changes that follow.
 */

static void
zkl_lock_tell_bumped(zkl_lock_t *lock)
{
    ngx_msec_t  past;

    past = ngx_current_msec - lock->read;

    if (past >= ZKL_REREAD
        || lock->nclaims < ZKL_HOLDERS_MANY
        || zkl_view_holders(&lock->view) < ZKL_HOLDERS_MANY)
    {
        zkl_lock_reread_handler(&lock->reread);

    } else if (!lock->reread.timer_set) {
        ngx_add_timer(&lock->reread, ZKL_REREAD - past);
    }
}


static void
zkl_lock_reread_handler(ngx_event_t *ev)
{
    zkl_lock_t  *lock;

    lock = ngx_queue_data(ev, zkl_lock_t, reread);

    lock->read = ngx_current_msec;

    zkl_lock_tell(lock, zkl_claim_bumped);
}


void
zkl_lock_claim_changed(zkl_lock_t *lock, ngx_str_t *name, ngx_uint_t deleted)
{
    zkl_child_t   child;
    zkl_entry_t  *entry;
    zkl_claim_t  *claim;

    if (zkl_name_child_read(&child, (char *) name->data, name->len) != 0) {
        return;
    }

    if (child.has_id) {
        claim = zkl_claim_find(lock->worker, &child.id, &lock->sn.str);

        if (claim != NULL && claim->entry.seq == child.seq) {
            zkl_claim_changed(claim, deleted);
            return;
        }
    }

    entry = zkl_view_watched(&lock->view, child.seq, child.mode,
                             zkl_lock_who(&child, name));
    if (entry == NULL) {
        return;
    }

    if (deleted && entry->origin == ZKL_FOREIGN) {
        zkl_lock_vanished((zkl_other_t *) entry);
        return;
    }

    /*
     * The claim's data were set: the claim is watched anew.  Or the claim is a
     * sibling's, and may be durable by now: the record tells.
     */

    zkl_lock_unwatch((zkl_other_t *) entry);
    zkl_lock_post(lock);
}


/*
 * Other claims: the zone tells of a sibling's claim, and only ZooKeeper tells
 * of a foreign claim.  If the zone cannot tell, because the worker is dead or
 * stopped, the sibling's claim becomes foreign, and is never a sibling's again.
 */


/*
 * Makes sure that ZooKeeper or the zone tells when a claim in the way is gone.
 * Returns NGX_OK, or NGX_AGAIN if there is no memory or no room for a watch:
 * the sweep tries again.  The claim may be gone at once, and freed.
 *
 * The watch is a getData, because an exists on a znode that is gone would leave
 * a watch that never fires.
 */

static ngx_int_t
zkl_lock_watch(zkl_lock_t *lock, zkl_other_t *other)
{
    u_char        buf[ZKL_CLAIM_MAX];
    ngx_str_t     name;
    zkl_op_t     *op;
    zkl_found_e   found;
    zkl_record_t  record;

    if (other->entry.origin == ZKL_SIBLING) {

        found = zkl_record_watch(lock->worker->zone, &other->id, &lock->sn.str,
                                 &record);

        if (found == ZKL_FOUND_END) {
            zkl_lock_gone(lock, &other->entry);
            return NGX_OK;
        }

        if (found == ZKL_FOUND && zkl_lock_trusts(&record)) {

            if (record.state == ZKL_RECORD_ENDED) {
                zkl_lock_gone(lock, &other->entry);
                return NGX_OK;
            }

            /* a sibling that held the lock alone may share the lock by now */

            if (other->entry.seq == record.seq) {
                other->entry.mode = record.mode;
            }

            other->entry.watched = 1;
            zkl_worker_subscribe(lock->worker, &other->sub, record.id.record);

            return NGX_OK;
        }

        other->entry.origin = ZKL_FOREIGN;

        if (other->entry.mode == ZKL_READ) {

            /* the mode in the znode's name: a rename may be under way */

            other->entry.mode = (found == ZKL_FOUND_NOTHING) ? ZKL_MUTEX
                                                             : record.was;
        }
    }

    zkl_lock_name(&other->entry, &name, buf);

    if (!zkl_session_must_watch(lock->worker->session,
                                lock->sn.str.len + 1 + name.len))
    {
        /* the sweep lists */
        lock->partial = 1;
        return NGX_AGAIN;
    }

    op = zkl_op_new(lock->worker->session, ZKL_OP_GET, &lock->sn.str, &name,
                    NULL);
    if (op == NULL) {
        /* the sweep tries again */
        return NGX_AGAIN;
    }

    op->watch = 1;

    other->watch = op;
    other->entry.watched = 1;
    lock->watching++;

    zkl_session_send(op, zkl_lock_watch_handler, other);

    return NGX_OK;
}


static void
zkl_lock_watch_handler(zkl_op_t *op)
{
    zkl_lock_t   *lock;
    zkl_other_t  *other;

    other = op->data;
    lock = other->lock;

    other->watch = NULL;
    lock->watching--;

    if (op->rc == ZKL_OK) {
        zkl_lock_post(lock);
        return;
    }

    other->entry.watched = 0;

    if (op->rc == ZKL_NO_NODE) {
        /* no watch was set yet, so a new claim may have taken the place */
        zkl_lock_vanished(other);

    } else {
        /* the sweep, or the next connection, tries again */
        zkl_lock_resolve(lock);
    }
}


/* ZooKeeper says that a watched claim is gone: frees the claim. */

static void
zkl_lock_vanished(zkl_other_t *other)
{
    ngx_uint_t   kin;
    zkl_lock_t  *lock;

    lock = other->lock;
    kin = (other->name.len == 0);

    zkl_lock_gone(lock, &other->entry);

    /* the client that removed that claim may have removed an own claim */

    lock->doubtful = 1;

    if (kin && lock->view.nalive > lock->view.nlocal) {

        /* the claim's worker may be dead, and may have had more claims */

        zkl_lock_list(lock);
    }

    zkl_lock_post(lock);
}


static void
zkl_lock_sub_handler(zkl_subscription_t *sub)
{
    zkl_other_t  *other;

    other = ngx_queue_data(sub, zkl_other_t, sub);

    /* zkl_lock_step() reads the claim's record again */

    other->entry.watched = 0;

    zkl_lock_post(other->lock);
}


static void
zkl_lock_verify_handler(zkl_op_t *op)
{
    zkl_lock_t  *lock;

    lock = op->data;

    if (lock->verify == op) {
        lock->verify = NULL;

        if (op->rc == ZKL_OK) {
            lock->doubtful = 0;
            zkl_lock_post(lock);

        } else if (op->rc == ZKL_NO_NODE) {
            zkl_lock_list(lock);
        }

        /* else the sweep, or the next connection, tries again */
    }

    zkl_lock_op_end(lock);
}


/*
 * Whether a sibling's record tells how the claim is.  Else ZooKeeper knows,
 * because the claim's worker is dead or stopped, or has sent a delete after the
 * lease or the wait; or the session is over, and the claim is durable.
 */

static ngx_uint_t
zkl_lock_trusts(zkl_record_t *record)
{
    if (record->state == ZKL_RECORD_OPEN || !zkl_ahead(record->alive)) {
        return 0;
    }

    if (record->state == ZKL_RECORD_HELD
        || (record->state == ZKL_RECORD_WAITING && record->ttl != 0))
    {
        return record->lease != 0;
    }

    return 1;
}


/* Cancels the watch and the subscription. */

static void
zkl_lock_unwatch(zkl_other_t *other)
{
    other->entry.watched = 0;

    if (other->watch != NULL) {

        /* a late answer or event is ignored */

        other->watch->handler = NULL;
        other->watch = NULL;
        other->lock->watching--;
    }

    zkl_worker_unsubscribe(&other->sub);
}


void
zkl_lock_prune(zkl_lock_t *lock)
{
    zkl_entry_t  *entry, *next;
    zkl_found_e   found;
    zkl_other_t  *other;
    zkl_record_t  record;

    for (entry = zkl_view_first(&lock->view); entry != NULL; entry = next)
    {
        next = zkl_view_after(&lock->view, entry);

        if (entry->origin != ZKL_SIBLING || entry->watched) {
            continue;
        }

        other = (zkl_other_t *) entry;

        found = zkl_record_read(lock->worker->zone, &other->id, &lock->sn.str,
                                &record);

        if (found == ZKL_FOUND_END
            || (found == ZKL_FOUND && record.state == ZKL_RECORD_ENDED))
        {
            zkl_lock_gone(lock, entry);
        }
    }
}


/*
 * No claim of this worker keeps the view true any more.  The first few claims
 * stay in the view, as far as they are siblings', because the zone tells of the
 * end of a sibling's claim.  The claims behind are forgotten.
 */

static void
zkl_lock_rest(zkl_lock_t *lock)
{
    ngx_uint_t    n;
    zkl_entry_t  *entry;

    n = 0;

    for (entry = zkl_view_first(&lock->view);
         entry != NULL && entry->origin == ZKL_SIBLING && n < ZKL_KIN;
         entry = zkl_view_after(&lock->view, entry))
    {
        zkl_lock_unwatch((zkl_other_t *) entry);
        n++;
    }

    zkl_view_keep(&lock->view, n, zkl_lock_gone, lock);
}
