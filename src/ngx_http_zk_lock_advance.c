
/*
 * What a lock's view wants next.
 *
 * The view (floor 0) says it, and this file sees to it: a grant, a watch on the
 * claim ahead or word of it through the zone (others), the board or a list of
 * all claims (complete).
 *
 * Everything here runs on the event loop.  A lock is pinned while it advances,
 * for a grant can end in a release, which advances it again.  lock->guard and
 * lock->verify are NULL unless the operation is under way and its answer still
 * counts: a grant waits for both.
 */


#include "ngx_http_zk_lock_node.h"


/* so many in line, of which most will wait for a while yet */
#define NGX_HTTP_ZK_LOCK_CROWD  5

/* a semaphore with more permits is seldom short of them */
#define NGX_HTTP_ZK_LOCK_SEATS  64


static ngx_uint_t ngx_http_zk_lock_lock_line(ngx_http_zk_lock_lock_t *lock,
    size_t n);
static ngx_int_t ngx_http_zk_lock_lock_step(ngx_http_zk_lock_lock_t *lock);
static ngx_uint_t ngx_http_zk_lock_lock_there(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_other_t *other);
static ngx_int_t ngx_http_zk_lock_lock_conflict(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *waiter);


void
ngx_http_zk_lock_lock_created(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *entry, int64_t czxid)
{
    lock->known = 1;

    ngx_http_zk_lock_lock_doubt(lock);

    zk_lock_view_create(&lock->view, entry, ngx_http_zk_lock_lock_gone, lock);

    if ((!lock->view.watched && lock->view.nlocal == 1) || lock->born == 0) {

        /* it may have been made anew, up to this moment */

        lock->born = czxid;
    }

    if (!lock->node) {
        ngx_http_zk_lock_lock_guard(lock, czxid);
    }

    if (lock->partial) {
        ngx_http_zk_lock_lock_list(lock);
    }

    if (lock->vanished) {
        lock->vanished = 0;
        ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_listed);
    }
}


ngx_uint_t
ngx_http_zk_lock_lock_crowded(ngx_http_zk_lock_lock_t *lock,
    zk_lock_kind_t kind, zk_lock_entry_t *entry)
{
    size_t            seats;
    zk_lock_entry_t  *next;

    seats = zk_lock_view_seats(kind);

    if (lock->node || kind == ZK_LOCK_READ || seats > NGX_HTTP_ZK_LOCK_SEATS
        || !ngx_http_zk_lock_lock_line(lock,
                                       seats - 1 + NGX_HTTP_ZK_LOCK_CROWD))
    {
        return 0;
    }

    if (entry == NULL) {
        return 1;
    }

    if (!entry->linked || kind != ZK_LOCK_MUTEX) {
        return 0;
    }

    next = zk_lock_view_after(&lock->view, entry);

    return next != NULL && next->origin != ZK_LOCK_FOREIGN;
}


/* Whether n claims are in line; a sibling's that is known may have ended. */

static ngx_uint_t
ngx_http_zk_lock_lock_line(ngx_http_zk_lock_lock_t *lock, size_t n)
{
    int64_t                     seq;
    zk_lock_entry_t            *entry;
    ngx_http_zk_lock_record_t   record;

    if (lock->view.nalive < 2) {
        return 0;
    }

    entry = zk_lock_view_last(&lock->view, n);

    if (entry != NULL && entry->origin != ZK_LOCK_SIBLING) {
        return entry->origin == ZK_LOCK_LOCAL || entry->watched;
    }

    /* or this worker has not learned of its siblings' yet */

    seq = entry ? entry->seq : lock->view.complete_through + (int64_t) n;

    if (ngx_http_zk_lock_board_find(lock->worker->zone, &lock->sn.str, seq,
                                    &record)
        != NGX_OK)
    {
        return 0;
    }

    /* if that one holds it, those ahead have ended */

    return entry != NULL || record.state == NGX_HTTP_ZK_LOCK_RECORD_WAITING;
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


void
ngx_http_zk_lock_lock_settle(ngx_http_zk_lock_lock_t *lock)
{
    if (lock->node) {
        ngx_http_zk_lock_node_settle(lock);
        return;
    }

    /* each of many that go then calls this again */

    if (lock->settle && !lock->settling
        && !ngx_http_zk_lock_lock_unsure(lock))
    {
        ngx_http_zk_lock_lock_pin(lock);

        lock->settle = 0;
        lock->settling = 1;

        ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_settle);

        lock->settling = 0;

        ngx_http_zk_lock_lock_unpin(lock);
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

        if (!lock->node && lock->guard != NULL && waiter->seq != 0) {
            /* whether what is known is of the znode that is there */
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

        if (lock->touched) {
            ngx_http_zk_lock_lock_list(lock);
            return NGX_AGAIN;
        }

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
    zk_lock_entry_t           *first;
    ngx_http_zk_lock_other_t  *other;

    if (!zk_lock_view_conflict(&lock->view, entry)) {
        return 0;
    }

    first = zk_lock_view_first(&lock->view);
    other = (ngx_http_zk_lock_other_t *) first;

    if (lock->touched
        || (first->origin == ZK_LOCK_LOCAL && first->waiting
            && ngx_http_zk_lock_claim_of(first)->state
               != NGX_HTTP_ZK_LOCK_WAIT))
    {
        /* the first may have been released by another gateway, or leaves */
        lock->settle = 1;
        return 0;
    }

    if (first->seq > lock->view.complete_through + 1) {
        /* somebody who is not known may be the first */
        return 0;
    }

    return first->origin == ZK_LOCK_LOCAL
           || (first->watched && ngx_http_zk_lock_lock_there(lock, other));
}


/*
 * For a claim that may be in conflict, behind others that wait: they watch who
 * is just ahead of them, and the first of the line may be nobody's concern.
 */

void
ngx_http_zk_lock_lock_look_first(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *entry)
{
    ngx_int_t                  rc;
    zk_lock_entry_t           *first;
    ngx_http_zk_lock_other_t  *other;

    while (zk_lock_view_conflict(&lock->view, entry)) {

        /* the answer settles it */

        lock->settle = 1;

        first = zk_lock_view_first(&lock->view);
        other = (ngx_http_zk_lock_other_t *) first;

        if (first->seq > lock->view.complete_through + 1) {
            ngx_http_zk_lock_lock_list(lock);
            return;
        }

        if (first->origin == ZK_LOCK_LOCAL || first->watched) {
            return;
        }

        rc = (first->origin == ZK_LOCK_SIBLING)
             ? ngx_http_zk_lock_lock_watch_sibling(lock, other)
             : ngx_http_zk_lock_lock_watch_znode(lock, other);

        if (rc != NGX_OK) {
            /* then it is known once the line has moved on */
            return;
        }
    }
}


/* Whether a claim that is watched is there; its watch may not have told yet. */

static ngx_uint_t
ngx_http_zk_lock_lock_there(ngx_http_zk_lock_lock_t *lock,
    ngx_http_zk_lock_other_t *other)
{
    ngx_http_zk_lock_record_t  record;

    if (other->entry.origin == ZK_LOCK_FOREIGN) {
        return other->watch == NULL;
    }

    return ngx_http_zk_lock_record_read(lock->worker->zone, &other->id,
                                        &lock->sn.str, &record)
           == NGX_OK
           && record.state != NGX_HTTP_ZK_LOCK_RECORD_ENDED
           && ngx_http_zk_lock_ahead(record.alive);
}


/*
 * The first claim says that the lock is used in another way: if that one is
 * there.
 */

static ngx_int_t
ngx_http_zk_lock_lock_conflict(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *waiter)
{
    zk_lock_entry_t           *first;
    ngx_http_zk_lock_other_t  *other;

    first = zk_lock_view_first(&lock->view);
    other = (ngx_http_zk_lock_other_t *) first;

    if (first->origin == ZK_LOCK_LOCAL
        || ngx_http_zk_lock_lock_there(lock, other))
    {
        return ngx_http_zk_lock_claim_conflict(
                                           ngx_http_zk_lock_claim_of(waiter));
    }

    if (first->origin == ZK_LOCK_FOREIGN) {
        return NGX_AGAIN;
    }

    ngx_http_zk_lock_lock_unwatch(other);

    return ngx_http_zk_lock_lock_watch_sibling(lock, other);
}


ngx_uint_t
ngx_http_zk_lock_lock_unsure(ngx_http_zk_lock_lock_t *lock)
{
    return lock->list != NULL || lock->guard != NULL || lock->watching != 0
           || lock->verify != NULL || lock->soon.timer_set
           || !ngx_http_zk_lock_session_connected(lock->worker->session);
}
