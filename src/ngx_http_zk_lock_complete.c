
/*
 * What makes a lock's view complete: the board, or a list of the claims.
 *
 * A list that counts is lock->list.  One that came to be out of date while it
 * was under way is not: lock->list is NULL or another one then, and its answer
 * is dropped.  So more than one may be under way, but one counts.
 *
 * Everything here runs on the event loop.  lock->soon, while it is set, and
 * each list pin the lock.
 */


#include "ngx_http_zk_lock_node.h"


/* in so many milliseconds a sibling may publish what it has made */
#define NGX_HTTP_ZK_LOCK_SOON   1

/* so many claims are learned from the board at a time */
#define NGX_HTTP_ZK_LOCK_LEARN  256


/* a child of the lock's znode, between a list and its merge */

typedef struct {
    ngx_str_t                   name;
    zk_lock_id_t                id;
    zk_lock_origin_e            origin;
} ngx_http_zk_lock_seen_t;


static ngx_int_t ngx_http_zk_lock_lock_learn(ngx_http_zk_lock_lock_t *lock,
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
static uint64_t ngx_http_zk_lock_id_who(zk_lock_id_t *id);
static uint64_t ngx_http_zk_lock_name_who(ngx_str_t *name);


/*
 * Claims ahead of waiter may be unknown.  The board may know them, which costs
 * nothing; else one list tells all.
 *
 * What the board knows is learned at once, though the next one may block for
 * long: so waiter watches the nearest of a sibling's, and not each in turn.
 */

ngx_int_t
ngx_http_zk_lock_lock_complete(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *waiter)
{
    ngx_int_t   rc;
    ngx_uint_t  n;

    if (lock->list != NULL || lock->soon.timer_set) {
        return NGX_AGAIN;
    }

    n = 0;

    do {
        rc = ngx_http_zk_lock_lock_learn(lock, waiter);

    } while (rc == NGX_OK
             && ++n < NGX_HTTP_ZK_LOCK_LEARN
             && lock->view.complete_through < waiter->seq);

    if (n != 0) {
        return NGX_OK;
    }

    if (rc != NGX_DECLINED) {
        return rc;
    }

    rc = ngx_http_zk_lock_lock_await(lock, lock->view.complete_through + 1);

    if (rc == NGX_DECLINED) {
        ngx_http_zk_lock_lock_list(lock);
        rc = NGX_AGAIN;
    }

    return rc;
}


/*
 * Asks the board for the claim that comes next.  Its word counts only for one
 * that was made in this incarnation of the lock's znode: after it was born, and
 * before waiter.  That such a claim may still exist counts only while its
 * session surely lives.  NGX_DECLINED: it is to be listed, or waited for;
 * NGX_AGAIN: there is no memory.
 */

static ngx_int_t
ngx_http_zk_lock_lock_learn(ngx_http_zk_lock_lock_t *lock,
    zk_lock_entry_t *waiter)
{
    int64_t                     seq;
    ngx_int_t                   rc;
    ngx_http_zk_lock_claim_t   *claim;
    ngx_http_zk_lock_other_t   *other;
    ngx_http_zk_lock_record_t   record;

    claim = ngx_http_zk_lock_claim_of(waiter);
    seq = lock->view.complete_through + 1;

    /* one that is known may be another's by now that has the same seq */

    if (seq == 0 || claim->czxid == 0 || lock->born == 0
        || zk_lock_view_knows(&lock->view, seq))
    {
        return NGX_DECLINED;
    }

    rc = ngx_http_zk_lock_board_find(lock->worker->zone, &lock->sn.str, seq,
                                     &record);

    if (rc == NGX_DECLINED
        || record.czxid <= lock->born || record.czxid >= claim->czxid)
    {
        return NGX_DECLINED;
    }

    if (rc == NGX_DONE) {
        zk_lock_view_learn(&lock->view, NULL);
        return NGX_OK;
    }

    if (!ngx_http_zk_lock_ahead(record.alive)
        || ngx_http_zk_lock_claim_find(lock->worker, &record.id, &lock->sn.str)
           != NULL)
    {
        return NGX_DECLINED;
    }

    other = ngx_http_zk_lock_lock_other(lock, ZK_LOCK_SIBLING, &record.id,
                                        NULL);
    if (other == NULL) {
        return NGX_AGAIN;
    }

    other->entry.seq = seq;
    other->entry.kind = record.kind;
    other->entry.who = ngx_http_zk_lock_id_who(&record.id);

    zk_lock_view_learn(&lock->view, &other->entry);

    return NGX_OK;
}


void
ngx_http_zk_lock_lock_await_init(ngx_http_zk_lock_lock_t *lock)
{
    ngx_http_zk_lock_worker_timer(lock->worker, &lock->soon,
                                  ngx_http_zk_lock_lock_soon_handler);
    lock->gap.handler = ngx_http_zk_lock_lock_gap_handler;
    lock->missing = -1;
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

    /* the list shows what was before the watch, the watch what is after */

    ngx_http_zk_lock_lock_guard_again(lock);
    ngx_http_zk_lock_lock_doubt(lock);

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
            lock->partial = 0;

            ngx_http_zk_lock_lock_tell(lock, ngx_http_zk_lock_claim_listed);
            lock->touched = 0;
            ngx_http_zk_lock_lock_advance(lock);

        } else {
            if (op->rc == NGX_HTTP_ZK_LOCK_NO_AUTH) {
                ngx_http_zk_lock_lock_tell(lock,
                                           ngx_http_zk_lock_claim_unlisted);
            }

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
    sighting->who = child.has_id ? ngx_http_zk_lock_id_who(&child.id)
                                 : ngx_http_zk_lock_name_who(name);
    sighting->data = seen;

    seen->name = *name;
    seen->id = child.id;
    seen->origin = ZK_LOCK_FOREIGN;

    if (!child.has_id) {
        return 1;
    }

    claim = ngx_http_zk_lock_claim_find(worker, &child.id, &lock->sn.str);

    if (claim != NULL) {
        ngx_http_zk_lock_claim_sighted(claim, sighting);
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

    ngx_http_zk_lock_seen_t   *seen;
    ngx_http_zk_lock_other_t  *other;

    seen = sighting->data;

    other = ngx_http_zk_lock_lock_other(lock, seen->origin, &seen->id,
                                        &seen->name);

    return (other != NULL) ? &other->entry : NULL;
}


void
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


/* A claim keeps its id when it is renamed. */

static uint64_t
ngx_http_zk_lock_id_who(zk_lock_id_t *id)
{
    uint64_t  who;

    ngx_memcpy(&who, id->random, sizeof(uint64_t));

    return who;
}


static uint64_t
ngx_http_zk_lock_name_who(ngx_str_t *name)
{
    return (uint64_t) ngx_crc32_long(name->data, name->len) << 32
           ^ ngx_hash_key(name->data, name->len);
}
