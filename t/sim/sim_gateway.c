
/*
 * The workers of a gateway, and the zone that the workers share.
 *
 * This is the part of src/core/ for claims, without leases and memory limits:
 * a worker sends the requests that the view needs, and gives the answers to the
 * view.
 *
 *   event               claim: START   CREATE    RECOVER   LIVE     DELETE/OWED
 *
 *   connected                  CREATE  -         list      list     DELETE
 *   created                    -       LIVE      -         -        -
 *   deleted                    -       -         -         -        gone
 *   end (delete decided)       gone    ended     ended     DELETE   -
 *   disconnected               -       RECOVER   -         -        OWED
 *   first list shows it        -       -         LIVE      LIVE     -
 *   first list does not        -       -         START     gone     -
 *   session lost               START   START     START     START    gone
 *
 * The list of RECOVER and LIVE is sent behind a sync, because the new server
 * may lag behind a create that the old server had passed on.
 *
 * An ended claim of CREATE or RECOVER goes on to DELETE when the znode shows
 * up, and is gone when the znode will surely never show up.  When the session
 * is lost, a held claim is gone; a waiting claim gets a new id and joins anew.
 *
 * A worker learns all facts in the order of the worker's session, but for the
 * zone, which the worker reads at any time.
 */


#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"


#define BOARD       64


/* a claim of another worker or client in a view */

typedef struct {
    zkl_entry_t  entry;              /* must be first */
    name_t       name;
    unsigned            asked:1;        /* the answer is under way */
} other_t;


typedef struct {
    int                 nworkers;
    int                 processes;
    worker_t            workers[SIM_WORKERS];
    record_t            records[SIM_RECORDS];
    int                 next_record;
    int                 board[SIM_LOCKS][BOARD];
    uint64_t            ids;
    size_t              entries;
} gateway_t;


/* the arguments of a merge */

typedef struct {
    worker_t           *worker;
    int                 lock;
} merge_t;


static int record_take(claim_t *claim);
static void record_publish(claim_t *claim);
static void record_end(record_t *record);
static record_t *record_of(const name_t *name);
static int record_dead(record_t *record);
static record_t *board_find(int lock, int64_t seq);

static lock_t *lock_of(claim_t *claim);
static worker_t *worker_of(claim_t *claim);
static void claim_end(claim_t *claim);
static void claim_create(claim_t *claim);
static void claim_created(claim_t *claim, int64_t czxid);
static void claim_delete(claim_t *claim);
static void claim_gone(claim_t *claim);
static void claim_anew(claim_t *claim);
static void claim_listed(claim_t *claim, znode_t *node);
static void claim_not_listed(claim_t *claim);
static claim_t *claim_find(worker_t *worker, uint64_t id);

static void send_request(worker_t *worker, zk_type_e type, int lock,
    const name_t *name, int64_t cause);
static void lock_list(worker_t *worker, int lock);
static void lock_guard(worker_t *worker, int lock, int64_t czxid);
static void lock_advance(worker_t *worker, int lock);
static int lock_grant(worker_t *worker, zkl_entry_t *entry);
static int lock_watch(worker_t *worker, int lock, zkl_entry_t *entry);
static int nearer_watched(lock_t *l, zkl_entry_t *entry);
static int lock_conflict(worker_t *worker, int lock, zkl_entry_t *entry);
static void sibling_look(zkl_entry_t *entry);
static int lock_learn(worker_t *worker, int lock, zkl_entry_t *entry);
static int lock_complete(worker_t *worker, int lock, zkl_entry_t *entry);
static int fresh(lock_t *l, claim_t *waiter, record_t *record);
static zkl_entry_t *other_new(const name_t *name, zkl_origin_e origin);
static zkl_kind_t shown(zkl_kind_t kind);
static void lock_removed(worker_t *worker, int lock, zkl_entry_t *entry);
static zkl_entry_t *lock_find(lock_t *l, const name_t *name);
static zkl_entry_t *lock_find_watched(lock_t *l, const name_t *name);
static void lock_name_gone(worker_t *worker, int lock, const name_t *name,
    int event);
static void lock_name_there(worker_t *worker, int lock, const name_t *name);
static void lock_guarded(worker_t *worker, zk_message_t *m);
static void lock_parent_changed(worker_t *worker, int lock);
static void lock_listed(worker_t *worker, zk_message_t *m);
static void lock_recovered(worker_t *worker, int lock);
static void remove_absent(lock_t *l, zk_message_t *m);
static int left_out(lock_t *l, const name_t *name);
static void sight(worker_t *worker, int lock, znode_t *node,
    zkl_sighting_t *s);
static zkl_entry_t *merge_make(void *data, zkl_sighting_t *s);
static void merge_gone(void *data, zkl_entry_t *entry);
static void forgotten(void *data, zkl_entry_t *entry);
static void worker_replied(worker_t *worker, zk_message_t *m);
static void worker_disconnected(worker_t *worker);


static gateway_t  gateway;


void
gateway_reset(int nworkers)
{
    int        i, lock;
    worker_t  *worker;

    memset(&gateway, 0, sizeof(gateway_t));

    gateway.nworkers = nworkers;
    gateway.ids = 1;

    for (i = 0; i < SIM_RECORDS; i++) {
        gateway.records[i].seq = -1;
    }

    for (i = 0; i < nworkers; i++) {
        worker = &gateway.workers[i];
        worker->index = i;
        worker->process = gateway.processes++;
        worker->session = zk_session_new();
        worker->connected = 1;

        for (lock = 0; lock < SIM_LOCKS; lock++) {
            zkl_view_init(&worker->locks[lock].view);
        }
    }
}


void
gateway_done(void)
{
    int        i, lock;
    worker_t  *worker;

    for (i = 0; i < gateway.nworkers; i++) {
        worker = &gateway.workers[i];

        for (lock = 0; lock < SIM_LOCKS; lock++) {
            zkl_view_forget(&worker->locks[lock].view, forgotten, NULL);
        }

        while (worker->nclaims != 0) {
            claim_gone(worker->claims[0]);
        }
    }
}


worker_t *
gateway_worker(int index)
{
    return (index < gateway.nworkers) ? &gateway.workers[index] : NULL;
}


record_t *
gateway_record(int index)
{
    return &gateway.records[index];
}


size_t
gateway_entries(void)
{
    return gateway.entries;
}


/* a claim, from the acquire to the end */

claim_t *
gateway_acquire(worker_t *worker, int lock, zkl_kind_t kind)
{
    claim_t  *claim;

    if (worker->nclaims == SIM_CLAIMS) {
        return NULL;
    }

    claim = calloc(1, sizeof(claim_t));
    if (claim == NULL) {
        return NULL;
    }

    claim->worker = worker->index;
    claim->lock = lock;
    claim->name.kind = kind;
    claim->state = CLAIM_START;

    if (record_take(claim) != 0) {
        free(claim);
        return NULL;
    }

    gateway.entries++;
    worker->claims[worker->nclaims++] = claim;

    trace("w%d: lock %d acquire, id %d, kind %d", worker->index, lock,
          (int) claim->name.id, kind);

    if (worker->connected) {
        claim_create(claim);
    }

    return claim;
}


/* the holder or the waiter left: the claim counts as gone from now on */

void
gateway_end(claim_t *claim)
{
    int        lock;
    worker_t  *worker;

    worker = worker_of(claim);
    lock = claim->lock;

    claim_end(claim);
    lock_advance(worker, lock);
}


static void
claim_end(claim_t *claim)
{
    trace("w%d: lock %d id %d ends, state %d%s", claim->worker, claim->lock,
          (int) claim->name.id, claim->state, claim->held ? ", held" : "");

    touched(claim->lock);

    claim->ended = 1;
    claim->held = 0;
    record_end(record_of(&claim->name));

    switch (claim->state) {

    case CLAIM_START:
        claim_gone(claim);
        break;

    case CLAIM_LIVE:
        zkl_view_remove(&lock_of(claim)->view, &claim->entry);
        claim_delete(claim);
        break;

    default:
        /* CLAIM_CREATE, CLAIM_RECOVER: when the reply or a list tells */
        break;
    }
}


static lock_t *
lock_of(claim_t *claim)
{
    return &gateway.workers[claim->worker].locks[claim->lock];
}


static worker_t *
worker_of(claim_t *claim)
{
    return &gateway.workers[claim->worker];
}


static void
claim_create(claim_t *claim)
{
    claim->state = CLAIM_CREATE;
    claim->entry.kind = shown(claim->name.kind);

    send_request(worker_of(claim), ZK_CREATE, claim->lock, &claim->name, 0);
}


static void
claim_created(claim_t *claim, int64_t czxid)
{
    int        pinned, lock;
    lock_t    *l;
    worker_t  *worker;

    worker = worker_of(claim);
    lock = claim->lock;
    l = lock_of(claim);

    trace("w%d: lock %d id %d is %d, complete through %d%s", worker->index,
          lock, (int) claim->name.id, (int) claim->name.seq,
          (int) l->view.complete_through, l->view.watched ? ", watched" : "");

    claim->state = CLAIM_LIVE;
    claim->czxid = czxid;
    claim->entry.seq = claim->name.seq;

    if (broken(SIM_UNPINNED_PROOF)) {
        l->view.watched = 1;
    }

    pinned = (l->view.watched || l->view.nlocal != 0);

    if (!pinned || claim->name.seq == 0 || l->born == 0) {
        l->born = czxid;
    }

    zkl_view_create(&l->view, &claim->entry, forgotten, NULL);

    if (l->view.complete_through == claim->name.seq) {
        counters.proofs++;
    }

    if (broken(SIM_TRUST_GAP)) {
        l->view.complete_through = claim->name.seq;
    }

    if (claim->ended) {
        zkl_view_remove(&l->view, &claim->entry);
        claim_delete(claim);

    } else {
        record_publish(claim);
    }

    lock_guard(worker, lock, czxid);
    lock_advance(worker, lock);
}


static void
claim_delete(claim_t *claim)
{
    worker_t  *worker;

    worker = worker_of(claim);

    if (!worker->connected) {
        claim->state = CLAIM_OWED;
        return;
    }

    claim->state = CLAIM_DELETE;
    send_request(worker, ZK_DELETE, claim->lock, &claim->name, 0);
}


/* the znode of the claim does not exist, and never will */

static void
claim_gone(claim_t *claim)
{
    size_t     i;
    record_t  *record;
    worker_t  *worker;

    worker = worker_of(claim);

    zkl_view_remove(&lock_of(claim)->view, &claim->entry);

    record = record_of(&claim->name);
    record_end(record);
    record->owned = 0;

    for (i = 0; worker->claims[i] != claim; i++) { /* void */ }

    worker->claims[i] = worker->claims[--worker->nclaims];

    gateway.entries--;
    touched(claim->lock);
    free(claim);
}


/*
 * The session is lost, and the claim is gone, or soon will be.  The claim needs
 * a new id, because a watcher of the old record would wait for a claim that is
 * behind the watcher's own claim.
 */

static void
claim_anew(claim_t *claim)
{
    record_t  *record;

    claim->state = CLAIM_START;
    claim->name.seq = -1;
    claim->czxid = 0;

    if (broken(SIM_SAME_ID_ANEW)) {
        return;
    }

    record = record_of(&claim->name);
    record_end(record);
    record->owned = 0;

    if (record_take(claim) != 0) {
        violation("no record");
    }
}


/* the first list after a reconnect */

static void
claim_listed(claim_t *claim, znode_t *node)
{
    if (claim->state != CLAIM_RECOVER) {
        return;
    }

    counters.found++;
    claim->name.seq = node->name.seq;
    claim->state = CLAIM_LIVE;

    if (claim->ended) {
        claim_delete(claim);
        return;
    }

    /* the view has never had the claim, and cannot know that the claim waits */

    claim->entry.waiting = !broken(SIM_FOUND_AS_HELD);
    record_publish(claim);
}


static void
claim_not_listed(claim_t *claim)
{
    switch (claim->state) {

    case CLAIM_RECOVER:

        if (claim->ended) {
            claim_gone(claim);

        } else {
            claim_create(claim);
        }

        break;

    case CLAIM_LIVE:

        if (!claim->entry.linked) {
            trace("w%d: lock %d id %d vanished", claim->worker, claim->lock,
                  (int) claim->name.id);
            claim_gone(claim);
        }

        break;

    default:
        break;
    }
}


static claim_t *
claim_find(worker_t *worker, uint64_t id)
{
    size_t  i;

    for (i = 0; i < worker->nclaims; i++) {
        if (worker->claims[i]->name.id == id) {
            return worker->claims[i];
        }
    }

    return NULL;
}


/* the zone: all workers read a record, only the owner writes the record */

static int
record_take(claim_t *claim)
{
    int        i;
    record_t  *r;

    for (i = 0; i < SIM_RECORDS; i++) {
        gateway.next_record = (gateway.next_record + 1) % SIM_RECORDS;
        r = &gateway.records[gateway.next_record];

        if (r->owned) {
            continue;
        }

        r->state = RECORD_NEW;
        r->id = gateway.ids++;
        r->kind = claim->name.kind;
        r->worker = claim->worker;
        r->process = worker_of(claim)->process;
        r->lock = claim->lock;
        r->seq = -1;
        r->czxid = 0;
        r->watchers = 0;
        r->owned = 1;

        claim->name.id = r->id;
        claim->name.record = gateway.next_record;
        claim->name.seq = -1;

        return 0;
    }

    return -1;
}


static void
record_publish(claim_t *claim)
{
    record_t  *r;

    r = record_of(&claim->name);

    r->state = claim->held ? RECORD_HELD : RECORD_WAITING;
    r->seq = claim->name.seq;
    r->czxid = claim->czxid;

    gateway.board[claim->lock][r->seq % BOARD] = claim->name.record;
}


static void
record_end(record_t *record)
{
    int  i;

    if (record->state == RECORD_ENDED) {
        return;
    }

    record->state = RECORD_ENDED;

    if (broken(SIM_NO_DOORBELL)) {
        return;
    }

    for (i = 0; i < gateway.nworkers; i++) {
        if (record->watchers & (1u << i)) {
            gateway.workers[i].subs |= 1u << record->lock;
        }
    }

    record->watchers = 0;
}


static record_t *
record_of(const name_t *name)
{
    return &gateway.records[name->record];
}


/* whether the process of a record is dead: only RECORD_ENDED still counts */

static int
record_dead(record_t *record)
{
    return gateway.workers[record->worker].process != record->process;
}


/* the sequence index is a hint; the record tells the truth */

static record_t *
board_find(int lock, int64_t seq)
{
    record_t  *r;

    r = &gateway.records[gateway.board[lock][seq % BOARD]];

    return (r->lock == lock && r->seq == seq) ? r : NULL;
}


/* a lock, as a worker sees the lock */

static void
send_request(worker_t *worker, zk_type_e type, int lock, const name_t *name,
    int64_t cause)
{
    zk_request_t  r;

    static const char  *names[] = {
        "create", "delete", "sync", "list", "get", "exists"
    };

    memset(&r, 0, sizeof(zk_request_t));
    r.type = type;
    r.lock = lock;
    r.cause = cause;

    if (name != NULL) {
        r.name = *name;
    }

    trace("w%d: lock %d asks: %s, id %d", worker->index, lock, names[type],
          (int) r.name.id);

    zk_send(worker->session, &r);
}


static void
lock_list(worker_t *worker, int lock)
{
    lock_t  *l;

    l = &worker->locks[lock];

    if (l->listing) {
        return;
    }

    counters.lists++;

    l->listing = 1;
    l->mark = zkl_view_tick(&l->view);

    send_request(worker, ZK_LIST, lock, NULL, 0);
}


/* sets the parent watch, which pins the parent while there is no claim */

static void
lock_guard(worker_t *worker, int lock, int64_t czxid)
{
    lock_t  *l;

    l = &worker->locks[lock];

    if (l->view.watched || l->guarding) {
        return;
    }

    l->guarding = 1;

    send_request(worker, ZK_EXISTS, lock, NULL, czxid);
}


static void
lock_advance(worker_t *worker, int lock)
{
    int           again;
    lock_t       *l;
    zkl_entry_t  *waiter, *blocker;

    l = &worker->locks[lock];

    do {
        switch (zkl_view_next(&l->view, &waiter, &blocker)) {

        case ZKL_GRANT:
            again = lock_grant(worker, waiter);
            break;

        case ZKL_WATCH:
            again = lock_watch(worker, lock, blocker);
            break;

        case ZKL_COMPLETE:
            again = lock_complete(worker, lock, waiter);
            break;

        case ZKL_VIEW_CONFLICT:
            again = lock_conflict(worker, lock, waiter);
            break;

        default: /* ZKL_NOTHING */
            again = 0;
        }

    } while (again);
}


static int
lock_grant(worker_t *worker, zkl_entry_t *entry)
{
    claim_t  *claim;

    /* the expiry stands for the clock, which tells the worker in time */

    if (!worker->connected
        || (zk_is_expired(worker->session) && !broken(SIM_ZOMBIE_GRANT)))
    {
        return 0;
    }

    claim = (claim_t *) entry;

    trace("w%d: lock %d id %d granted, %d", worker->index, claim->lock,
          (int) claim->name.id, (int) claim->name.seq);

    counters.grants++;
    counters.seats += (claim->name.kind >= ZKL_SEMAPHORE);
    counters.members += (claim->name.kind == ZKL_MEMBER);

    zkl_view_grant(&lock_of(claim)->view, entry);

    claim->held = 1;
    record_of(&claim->name)->state = RECORD_HELD;

    granted(claim);

    return 1;
}


static int
lock_watch(worker_t *worker, int lock, zkl_entry_t *entry)
{
    other_t   *other;
    record_t  *r;

    if (broken(SIM_ONE_WATCH)
        && entry->kind >= ZKL_SEMAPHORE
        && nearer_watched(&worker->locks[lock], entry))
    {
        return 0;
    }

    other = (other_t *) entry;

    if (entry->origin == ZKL_FOREIGN) {
        entry->watched = 1;
        other->asked = 1;
        send_request(worker, ZK_GET, lock, &other->name, 0);

        return 1;
    }

    r = record_of(&other->name);

    if (r->id == other->name.id && record_dead(r)) {

        if (!broken(SIM_DEAD_IS_GONE)) {
            /* only ZooKeeper knows when the claim is gone */
            entry->origin = ZKL_FOREIGN;
            return 1;
        }

    } else if (r->id == other->name.id) {
        r->watchers |= 1u << worker->index;

        if (r->state != RECORD_ENDED || broken(SIM_NO_RECHECK)) {
            entry->watched = 1;
            return r->state != RECORD_ENDED;
        }
    }

    lock_removed(worker, lock, entry);

    return 1;
}


/* whether a nearer claim is watched already: for --break one-watch */

static int
nearer_watched(lock_t *l, zkl_entry_t *entry)
{
    zkl_entry_t  *nearer;

    for  (nearer = zkl_view_after(&l->view, entry);
         nearer != NULL && !nearer->waiting;
         nearer = zkl_view_after(&l->view, nearer))
    {
        if (nearer->origin != ZKL_LOCAL && nearer->watched) {
            return 1;
        }
    }

    return 0;
}


/*
 * The lock has another use, if the first claim still exists: the claim may have
 * no watch, or a sibling may not know yet that the sibling's session is over.
 */

static int
lock_conflict(worker_t *worker, int lock, zkl_entry_t *entry)
{
    claim_t      *claim;
    zkl_entry_t  *first;

    if (broken(SIM_CONFLICT_IGNORED)) {
        return lock_grant(worker, entry);
    }

    first = zkl_view_first(&worker->locks[lock].view);

    if (first->origin != ZKL_LOCAL && !broken(SIM_CONFLICT_UNSEEN)) {

        if (first->origin == ZKL_SIBLING) {
            sibling_look(first);
        }

        if (!first->watched) {
            return lock_watch(worker, lock, first);
        }

        if (((other_t *) first)->asked) {
            return 0;
        }
    }

    claim = (claim_t *) entry;

    trace("w%d: lock %d id %d refused, %d", worker->index, lock,
          (int) claim->name.id, (int) claim->name.seq);

    counters.refused++;

    refused(claim);
    claim_end(claim);

    return 1;
}


static void
sibling_look(zkl_entry_t *entry)
{
    name_t    *name;
    record_t  *r;

    name = &((other_t *) entry)->name;
    r = record_of(name);

    if (r->id != name->id || r->state == RECORD_ENDED || record_dead(r)) {
        entry->watched = 0;
        return;
    }

    /* the expiry stands for the clock, here too */

    if (zk_is_expired(gateway.workers[r->worker].session)) {
        entry->origin = ZKL_FOREIGN;
        entry->watched = 0;
    }
}


/* claims may be ahead: the sequence index has siblings, a list has all */

static int
lock_complete(worker_t *worker, int lock, zkl_entry_t *entry)
{
    int      n;
    lock_t  *l;

    l = &worker->locks[lock];

    for (n = 0; l->view.complete_through < entry->seq; n++) {

        if (!lock_learn(worker, lock, entry)) {
            break;
        }
    }

    if (n == 0) {
        lock_list(worker, lock);
    }

    return n != 0;
}


static int
lock_learn(worker_t *worker, int lock, zkl_entry_t *entry)
{
    name_t     name;
    lock_t    *l;
    record_t  *r;

    l = &worker->locks[lock];

    if (zkl_view_knows(&l->view, l->view.complete_through + 1)) {
        return 0;
    }

    r = board_find(lock, l->view.complete_through + 1);

    if (r != NULL && r->state == RECORD_ENDED
        && (broken(SIM_STALE_BOARD) || fresh(l, (claim_t *) entry, r)))
    {
        trace("w%d: lock %d board: %d is gone", worker->index, lock,
              (int) r->seq);

        counters.learned++;
        zkl_view_learn(&l->view, NULL);
        return 1;
    }

    if (r != NULL && r->state != RECORD_ENDED && r->worker != worker->index
        && (!record_dead(r) || broken(SIM_DEAD_BOARD))
        && (broken(SIM_STALE_LIVE_BOARD) || fresh(l, (claim_t *) entry, r)))
    {
        trace("w%d: lock %d board: %d is id %d of w%d", worker->index, lock,
              (int) r->seq, (int) r->id, r->worker);

        name.seq = r->seq;
        name.id = r->id;
        name.record = (int) (r - gateway.records);
        name.kind = r->kind;

        if (lock_find(l, &name) != NULL) {
            violation("learned twice");
            return 0;
        }

        counters.learned++;
        zkl_view_learn(&l->view, other_new(&name, ZKL_SIBLING));
        return 1;
    }

    return 0;
}


/* whether record and waiter surely have the same incarnation of the parent */

static int
fresh(lock_t *l, claim_t *waiter, record_t *record)
{
    return l->born != 0
           && record->czxid > l->born
           && record->czxid < waiter->czxid;
}


static zkl_entry_t *
other_new(const name_t *name, zkl_origin_e origin)
{
    other_t  *other;

    other = calloc(1, sizeof(other_t));
    if (other == NULL) {
        return NULL;
    }

    gateway.entries++;

    other->name = *name;
    other->entry.seq = name->seq;
    other->entry.kind = shown(name->kind);
    other->entry.origin = origin;

    return &other->entry;
}


/* the kind for the view, a permit too many: for --break seat-too-many */

static zkl_kind_t
shown(zkl_kind_t kind)
{
    if (kind < ZKL_SEMAPHORE || !broken(SIM_SEAT_TOO_MANY)) {
        return kind;
    }

    return zkl_semaphore(zkl_kind_permits(kind) + 1);
}


static void
lock_removed(worker_t *worker, int lock, zkl_entry_t *entry)
{
    lock_t        *l;
    int64_t        through;
    zkl_entry_t   *waiter, *blocker;
    zkl_verdict_e  verdict;

    l = &worker->locks[lock];

    verdict = zkl_view_next(&l->view, &waiter, &blocker);
    through = l->view.complete_through;

    zkl_view_remove(&l->view, entry);

    if (broken(SIM_DOWNGRADE_IGNORED)) {
        l->view.complete_through = through;
    }

    /* with this break, only exclusive claims leave another claim */

    if (broken(SIM_DURABLE_IGNORED) && entry->kind != ZKL_WRITE
        && entry->kind != ZKL_MUTEX)
    {
        l->view.complete_through = through;
    }

    if (broken(SIM_GRANT_ON_PREDECESSOR_GONE)
        && verdict == ZKL_WATCH && blocker == entry)
    {
        (void) lock_grant(worker, waiter);
    }

    forgotten(NULL, entry);
}


static zkl_entry_t *
lock_find(lock_t *l, const name_t *name)
{
    other_t      *other;
    zkl_entry_t  *entry;

    for  (entry = zkl_view_first(&l->view);
         entry != NULL && entry != &l->view.alive;
         entry = entry->next)
    {
        if (entry->origin == ZKL_LOCAL || entry->seq != name->seq) {
            continue;
        }

        other = (other_t *) entry;

        if (other->name.id == name->id && other->name.kind == name->kind) {
            return entry;
        }
    }

    return NULL;
}


/* the watched entry that an event is for */

static zkl_entry_t *
lock_find_watched(lock_t *l, const name_t *name)
{
    other_t      *other;
    zkl_entry_t  *entry;

    entry = NULL;

    for ( ;; ) {
        entry = zkl_view_watched(&l->view, name->seq, entry);

        if (entry == NULL) {
            return NULL;
        }

        other = (other_t *) entry;

        if (other->name.id == name->id && other->name.kind == name->kind) {
            return entry;
        }
    }
}


/* the event of a watch on a claim, or "no node" instead of a watch */

static void
lock_name_gone(worker_t *worker, int lock, const name_t *name, int event)
{
    zkl_entry_t  *entry;

    trace("w%d: lock %d %d is gone, id %d%s", worker->index, lock,
          (int) name->seq, (int) name->id, event ? ", says a watch" : "");

    entry = lock_find_watched(&worker->locks[lock], name);

    if (entry == NULL) {
        /* the view has forgotten the claim */
        return;
    }

    /* without an event, the claim may have gone before the parent watch */

    entry->watched = event || broken(SIM_MISSING_TRUSTED);

    lock_removed(worker, lock, entry);

    if (!broken(SIM_LOST_WAKEUP)) {
        lock_advance(worker, lock);
    }
}


/* the watch on a claim is set */

static void
lock_name_there(worker_t *worker, int lock, const name_t *name)
{
    zkl_entry_t  *entry;

    entry = lock_find_watched(&worker->locks[lock], name);

    if (entry != NULL) {
        ((other_t *) entry)->asked = 0;
        lock_advance(worker, lock);
    }
}


static void
lock_guarded(worker_t *worker, zk_message_t *m)
{
    size_t    i;
    lock_t   *l;
    int64_t   youngest;
    claim_t  *claim;

    l = &worker->locks[m->request.lock];
    l->guarding = 0;

    if (m->request.missing) {
        return;
    }

    youngest = m->request.cause;

    for (i = 0; i < worker->nclaims; i++) {
        claim = worker->claims[i];

        if (claim->lock == m->request.lock && claim->entry.linked
            && claim->czxid > youngest)
        {
            youngest = claim->czxid;
        }
    }

    if (m->czxid < youngest || broken(SIM_GUARD_UNCHECKED)) {
        l->view.watched = 1;
        l->born = m->czxid;

        trace("w%d: lock %d watched, made at %d", worker->index,
              m->request.lock, (int) m->czxid);
    }
}


static void
lock_parent_changed(worker_t *worker, int lock)
{
    size_t    i;
    lock_t   *l;
    claim_t  *claim;

    trace("w%d: lock %d parent changed", worker->index, lock);

    if (broken(SIM_PARENT_EVENT_IGNORED)) {
        return;
    }

    l = &worker->locks[lock];
    l->view.watched = 0;

    if (l->view.nlocal == 0) {
        zkl_view_forget(&l->view, forgotten, NULL);
        l->born = 0;
        return;
    }

    for (i = 0; i < worker->nclaims; i++) {
        claim = worker->claims[i];

        if (claim->lock == lock && claim->entry.linked && claim->czxid != 0) {
            lock_guard(worker, lock, claim->czxid);
            break;
        }
    }

    /* src/core/ always lists; here the watches have a chance, too */

    if (chance(2)) {
        lock_list(worker, lock);
    }
}


static void
lock_listed(worker_t *worker, zk_message_t *m)
{
    int             lock;
    size_t          i, n;
    lock_t         *l;
    merge_t         merge;
    uint64_t        mark;
    zkl_sighting_t  sightings[SIM_CHILDREN];

    lock = m->request.lock;
    l = &worker->locks[lock];
    l->listing = 0;

    n = 0;

    for (i = 0; i < m->n; i++) {

        if (broken(SIM_DOWNGRADE_UNLISTED) && left_out(l, &m->list[i].name)) {
            continue;
        }

        sight(worker, lock, &m->list[i], &sightings[n]);

        trace("w%d: lock %d list: %d, id %d%s", worker->index, lock,
              (int) m->list[i].name.seq, (int) m->list[i].name.id,
              sightings[n].gone ? ", ended" : "");

        n++;
    }

    merge.worker = worker;
    merge.lock = lock;

    mark = broken(SIM_NO_LIST_MARK) ? UINT64_MAX : l->mark;

    if (broken(SIM_SIBLING_ABSENT_IS_GONE)) {
        remove_absent(l, m);
    }

    (void) zkl_view_merge(&l->view, mark, sightings, n, merge_make, merge_gone,
                          &merge);

    if (l->recovering) {
        lock_recovered(worker, lock);
    }

    lock_advance(worker, lock);
}


/* removes siblings, too: for --break sibling-absent-is-gone */

static void
remove_absent(lock_t *l, zk_message_t *m)
{
    size_t        i;
    zkl_entry_t  *entry, *next;

    for (entry = l->view.alive.next; entry != &l->view.alive; entry = next) {
        next = entry->next;

        if (entry->origin != ZKL_SIBLING) {
            continue;
        }

        for (i = 0; i < m->n; i++) {
            if (m->list[i].name.id == ((other_t *) entry)->name.id) {
                break;
            }
        }

        if (i == m->n) {
            zkl_view_remove(&l->view, entry);
            forgotten(NULL, entry);
        }
    }
}


/* a reader in place of a mutex: for --break downgrade-unlisted */

static int
left_out(lock_t *l, const name_t *name)
{
    zkl_entry_t  *entry;

    if (name->kind != ZKL_READ || name->record != SIM_FOREIGN) {
        return 0;
    }

    for  (entry = zkl_view_first(&l->view);
         entry != NULL;
         entry = zkl_view_after(&l->view, entry))
    {
        if (entry->seq == name->seq && entry->kind == ZKL_MUTEX) {
            return 1;
        }
    }

    return 0;
}


/* a child in a list, as a sighting */

static void
sight(worker_t *worker, int lock, znode_t *node, zkl_sighting_t *s)
{
    claim_t   *claim;
    record_t  *r;

    memset(s, 0, sizeof(zkl_sighting_t));

    s->seq = node->name.seq;
    s->kind = shown(node->name.kind);
    s->data = &node->name;

    if (node->name.record == SIM_FOREIGN) {
        return;
    }

    r = record_of(&node->name);

    if (r->id != node->name.id || !r->owned || record_dead(r)) {
        /* no worker of this gateway answers for the claim */
        return;
    }

    if (r->worker != worker->index) {
        s->gone = (r->state == RECORD_ENDED);
        return;
    }

    claim = claim_find(worker, node->name.id);

    if (claim == NULL) {
        return;
    }

    if (worker->locks[lock].recovering) {
        claim_listed(claim, node);
    }

    if (claim->name.seq != s->seq || claim->state == CLAIM_START) {
        /* a ghost of the claim; there should be no ghost */
        return;
    }

    s->gone = claim->ended;
    s->entry = claim->ended ? NULL : &claim->entry;
}


static zkl_entry_t *
merge_make(void *data, zkl_sighting_t *s)
{
    name_t       *name;
    merge_t      *merge;
    zkl_origin_e  origin;

    merge = data;
    name = s->data;

    origin = (name->record == SIM_FOREIGN
              || record_of(name)->id != name->id
              || record_of(name)->worker == merge->worker->index
              || record_dead(record_of(name)))
             ? ZKL_FOREIGN : ZKL_SIBLING;

    return other_new(name, origin);
}


static void
merge_gone(void *data, zkl_entry_t *entry)
{
    claim_t  *claim;
    merge_t  *merge;

    merge = data;

    if (entry->origin != ZKL_LOCAL) {
        forgotten(NULL, entry);
        return;
    }

    /* another client deleted the claim */

    claim = (claim_t *) entry;

    trace("w%d: lock %d id %d vanished", merge->worker->index, merge->lock,
          (int) claim->name.id);

    claim_gone(claim);
}


/* the own claims after the first list of a connection */

static void
lock_recovered(worker_t *worker, int lock)
{
    size_t    i, n;
    claim_t  *claim;
    claim_t  *claims[SIM_CLAIMS];

    worker->locks[lock].recovering = 0;

    n = worker->nclaims;
    memcpy(claims, worker->claims, n * sizeof(claim_t *));

    for (i = 0; i < n; i++) {
        claim = claims[i];

        if (claim->lock == lock) {
            claim_not_listed(claim);
        }
    }
}


static void
forgotten(void *data, zkl_entry_t *entry)
{
    (void) data;

    if (entry->origin != ZKL_LOCAL) {
        gateway.entries--;
        free(entry);
    }
}


/* a worker, and the messages for the worker */

int
gateway_deliver(worker_t *worker)
{
    zk_message_t  *m;

    m = zk_receive(worker->session);

    if (m == NULL) {
        return 0;
    }

    switch (m->type) {

    case ZK_NODE_DELETED:
        lock_name_gone(worker, m->request.lock, &m->request.name, 1);
        break;

    case ZK_PARENT_CHANGED:
        lock_parent_changed(worker, m->request.lock);
        break;

    case ZK_DISCONNECTED:
        worker_disconnected(worker);
        break;

    default: /* ZK_REPLY */
        worker_replied(worker, m);
    }

    return 1;
}


static void
worker_replied(worker_t *worker, zk_message_t *m)
{
    claim_t       *claim;
    zk_request_t  *r;

    r = &m->request;

    switch (r->type) {

    case ZK_CREATE:
        claim = claim_find(worker, r->name.id);

        if (claim == NULL || claim->state != CLAIM_CREATE) {
            violation("a create's reply has no claim");
            break;
        }

        claim->name = r->name;
        claim_created(claim, m->czxid);
        break;

    case ZK_DELETE:
        claim = claim_find(worker, r->name.id);

        if (claim == NULL || claim->state != CLAIM_DELETE) {
            violation("a delete's reply has no claim");
            break;
        }

        claim_gone(claim);
        break;

    case ZK_LIST:
        lock_listed(worker, m);
        break;

    case ZK_GET:
        if (r->missing) {
            lock_name_gone(worker, r->lock, &r->name, 0);

        } else {
            lock_name_there(worker, r->lock, &r->name);
        }
        break;

    case ZK_EXISTS:
        lock_guarded(worker, m);
        break;

    default: /* ZK_SYNC */
        break;
    }
}


int
gateway_answer(worker_t *worker)
{
    int           lock;
    unsigned      subs;
    zkl_entry_t  *entry;

    subs = worker->subs;
    worker->subs = 0;

    if (subs == 0) {
        return 0;
    }

    for (lock = 0; lock < SIM_LOCKS; lock++) {
        if (subs & (1u << lock)) {
            trace("w%d: lock %d doorbell", worker->index, lock);

            /* reads the records of the siblings again */

            for (entry = zkl_view_first(&worker->locks[lock].view);
                 entry != NULL;
                 entry = zkl_view_after(&worker->locks[lock].view, entry))
            {
                if (entry->origin == ZKL_SIBLING) {
                    entry->watched = 0;
                }
            }

            lock_advance(worker, lock);
        }
    }

    return 1;
}


static void
worker_disconnected(worker_t *worker)
{
    int       lock;
    size_t    i, n;
    lock_t   *l;
    claim_t  *claim;
    claim_t  *claims[SIM_CLAIMS];

    trace("w%d: disconnected", worker->index);

    counters.disconnects++;

    worker->connected = 0;

    for (lock = 0; lock < SIM_LOCKS; lock++) {
        l = &worker->locks[lock];

        l->listing = 0;
        l->recovering = 0;
        l->guarding = 0;

        if (!broken(SIM_FORGET_NOTHING)) {
            zkl_view_forget(&l->view, forgotten, NULL);
            l->view.watched = 0;
            l->born = 0;
        }
    }

    n = worker->nclaims;
    memcpy(claims, worker->claims, n * sizeof(claim_t *));

    for (i = 0; i < n; i++) {
        claim = claims[i];

        if (claim->state == CLAIM_CREATE) {
            claim->state = CLAIM_RECOVER;

        } else if (claim->state == CLAIM_DELETE) {
            claim->state = CLAIM_OWED;

            if (broken(SIM_DELETE_ONCE)) {
                claim_gone(claim);
            }
        }
    }
}


void
gateway_reconnect(worker_t *worker)
{
    int       lock;
    size_t    i;
    lock_t   *l;
    claim_t  *claim;

    trace("w%d: connected", worker->index);

    worker->connected = 1;

    for (i = 0; i < worker->nclaims; i++) {
        claim = worker->claims[i];
        lock = claim->lock;
        l = &worker->locks[lock];

        if (claim->state == CLAIM_RECOVER && broken(SIM_CREATE_BLINDLY)) {
            claim->state = CLAIM_START;
        }

        if ((claim->state == CLAIM_RECOVER || claim->state == CLAIM_LIVE)
            && !l->listing)
        {
            if (!broken(SIM_NO_SYNC)) {
                send_request(worker, ZK_SYNC, lock, NULL, 0);
            }

            l->recovering = 1;
            lock_list(worker, lock);
        }
    }

    for (i = 0; i < worker->nclaims; i++) {
        claim = worker->claims[i];

        if (claim->state == CLAIM_OWED) {
            claim_delete(claim);

        } else if (claim->state == CLAIM_START) {
            claim_create(claim);
        }
    }
}


/* a new session in place of a session that is or will be over */

void
gateway_lost(worker_t *worker, zk_session_t *session)
{
    int       lock;
    size_t    i, n;
    claim_t  *claim;
    claim_t  *claims[SIM_CLAIMS];

    trace("w%d: session lost", worker->index);

    counters.sessions++;
    worker->session = session;

    for (lock = 0; lock < SIM_LOCKS; lock++) {
        zkl_view_forget(&worker->locks[lock].view, forgotten, NULL);
    }

    n = worker->nclaims;
    memcpy(claims, worker->claims, n * sizeof(claim_t *));

    for (i = 0; i < n; i++) {
        claim = claims[i];

        if (claim->ended || claim->held) {
            claim_gone(claim);

        } else {
            claim_anew(claim);
        }
    }
}


void
gateway_crash(worker_t *worker, zk_session_t *session)
{
    int       i, lock;
    claim_t  *claim;

    trace("w%d: crashed", worker->index);

    counters.crashes++;

    worker->process = gateway.processes++;
    worker->session = session;
    worker->connected = 1;

    for (lock = 0; lock < SIM_LOCKS; lock++) {
        zkl_view_forget(&worker->locks[lock].view, forgotten, NULL);
        memset(&worker->locks[lock], 0, sizeof(lock_t));
        zkl_view_init(&worker->locks[lock].view);
    }

    while (worker->nclaims != 0) {
        claim = worker->claims[--worker->nclaims];
        gateway.entries--;
        free(claim);
    }

    /* the slow sweep of all workers, some time later */

    for (i = 0; i < gateway.nworkers; i++) {
        gateway.workers[i].subs = (1u << SIM_LOCKS) - 1;
    }
}


void
gateway_reclaim(int process)
{
    int        i;
    record_t  *r;

    for (i = 0; i < SIM_RECORDS; i++) {
        r = &gateway.records[i];

        if (r->owned && r->process == process) {
            record_end(r);
            r->owned = 0;
        }
    }
}
