
/*
 * A simulated ZooKeeper: a few parents, their children, and sessions.
 *
 * The leader applies a write at once, and appends the write to the log; the
 * place in the log is the zxid.  A znode keeps the zxids of creation and
 * deletion, so the tree can be read as of any place that is not too old.
 *
 * Each session has a server, which has applied the log up to some place, and
 * moves on when the scheduler says so.  A session sees the tree at that place:
 *
 *   - a read is answered from that tree, in the order of the session's
 *     requests;
 *   - a write is sent to the leader early, but answered when the server reaches
 *     the write; earlier requests of the session are answered first;
 *   - a sync is answered when the server reaches the place of the leader then;
 *   - a watch fires when the server reaches the change, and so before any
 *     answer that shows the change.
 *
 * A cut connection loses the answers that are under way, and the watches.  The
 * leader may still commit earlier writes, until the session is attached to
 * another server, which has applied at least the writes that the client saw.
 */


#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"


#define LOG         1024
#define PARENTS     LOG
#define NODES       4096
#define QUEUE       128
#define WATCHES     256


typedef enum {
    TXN_NONE = 0,
    TXN_NODE,                           /* a child was deleted */
    TXN_MULTI,                          /* that, and the parent's data set */
    TXN_PARENT                          /* a parent was made or deleted */
} txn_e;


typedef struct {
    txn_e               type;
    int                 lock;
    name_t              name;
    int64_t             session;        /* of the request; 0: none */
    uint64_t            serial;
} txn_t;


/* an incarnation of a parent */

typedef struct {
    int64_t             created;
    int64_t             deleted;
    int64_t             counter;
} parent_t;


typedef struct {
    int                 lock;
    int                 parent;         /* the lock's znode, not a claim's */
    name_t              name;
} watch_t;


struct zk_session_s {
    int64_t             number;
    int64_t             applied;
    int64_t             seen;           /* by the client */

    zk_request_t        queue[QUEUE];   /* by serial % QUEUE */
    uint64_t            head;
    uint64_t            sent;           /* earlier writes are committed */
    uint64_t            tail;

    zk_message_t        replies[QUEUE]; /* by number % QUEUE */
    uint64_t            first;
    uint64_t            end;

    watch_t             watches[WATCHES];
    size_t              nwatches;

    zk_session_t       *next;           /* of all, or of the spare list */
    unsigned            cut:1;
    unsigned            expired:1;
};


typedef struct {
    int64_t             last;
    int64_t             lag;            /* the most a server may be behind */
    int64_t             sessions;
    txn_t               log[LOG];
    parent_t            parents[SIM_LOCKS][PARENTS];
    uint64_t            nparents[SIM_LOCKS];
    znode_t             nodes[SIM_LOCKS][NODES];
    size_t              nnodes[SIM_LOCKS];
    zk_session_t       *first;
    zk_session_t       *spare;
} ensemble_t;


static void broken_sim(const char *what);
static parent_t *parent_at(int lock, int64_t zxid);
static parent_t *parent_now(int lock);
static txn_t *log_txn(txn_e type, int lock, const name_t *name);
static void hurry(void);
static void compact(int lock);
static int64_t create(int lock, name_t *name, int64_t session, int plain);
static void add(int lock, name_t *name, int64_t session, parent_t *parent);
static znode_t *erase(int lock, const name_t *name);
static void apply(zk_session_t *session);
static void fire(zk_session_t *session, txn_t *txn);
static void fire_one(zk_session_t *session, txn_t *txn, int parent);
static zk_message_t *message(zk_session_t *session, zk_message_e type);
static int head_is_ready(zk_session_t *session);
static void answer_head(zk_session_t *session);
static void answer_list(zk_session_t *session, zk_message_t *reply);
static void answer_get(zk_session_t *session, zk_message_t *reply);
static void answer_exists(zk_session_t *session, zk_message_t *reply);
static void set_watch(zk_session_t *session, int lock, int parent,
    const name_t *name);
static int same_name(const name_t *one, const name_t *two);
static void drop_unanswered(zk_session_t *session);


static ensemble_t  zk;


void
zk_reset(int64_t lag)
{
    while (zk.first != NULL) {
        zk_session_done(zk.first);
    }

    memset(zk.nparents, 0, sizeof(zk.nparents));
    memset(zk.nnodes, 0, sizeof(zk.nnodes));

    zk.last = 0;
    zk.sessions = 0;
    zk.lag = lag;
}


int64_t
zk_last(void)
{
    return zk.last;
}


/* the client's side */

zk_session_t *
zk_session_new(void)
{
    zk_session_t  *session;

    session = zk.spare;

    if (session != NULL) {
        zk.spare = session->next;

    } else {
        session = malloc(sizeof(zk_session_t));
        if (session == NULL) {
            broken_sim("no memory");
        }
    }

    session->head = 0;
    session->sent = 0;
    session->tail = 0;
    session->first = 0;
    session->end = 0;
    session->nwatches = 0;
    session->cut = 0;
    session->expired = 0;

    session->number = ++zk.sessions;
    session->next = zk.first;
    zk.first = session;

    /* the server has applied the create of the session, which is a write */

    (void) log_txn(TXN_NONE, 0, NULL);
    session->applied = zk.last;
    session->seen = zk.last;

    return session;
}


void
zk_session_done(zk_session_t *session)
{
    zk_session_t  **p;

    for (p = &zk.first; *p != session; p = &(*p)->next) { /* void */ }

    *p = session->next;

    session->next = zk.spare;
    zk.spare = session;
}


void
zk_send(zk_session_t *session, zk_request_t *request)
{
    if (session->cut) {
        /* the client does not know yet that the connection is dead */
        return;
    }

    if (session->tail - session->head == QUEUE) {
        broken_sim("too many requests");
    }

    request->zxid = 0;
    request->missing = 0;

    session->queue[session->tail++ % QUEUE] = *request;
}


zk_message_t *
zk_receive(zk_session_t *session)
{
    zk_message_t  *m;

    if (session->first == session->end) {
        return NULL;
    }

    m = &session->replies[session->first++ % QUEUE];

    if (m->zxid > session->seen) {
        session->seen = m->zxid;
    }

    return m;
}


/* the client gets only the first `received` answers that are under way */

void
zk_cut(zk_session_t *session, size_t received)
{
    session->cut = 1;
    session->nwatches = 0;

    if (session->end - session->first > received) {
        session->end = session->first + received;
    }

    (void) message(session, ZK_DISCONNECTED);
}


void
zk_reconnect(zk_session_t *session)
{
    int64_t  least;

    drop_unanswered(session);

    least = zk.last - zk.lag;
    if (least < session->seen) {
        least = session->seen;
    }

    session->applied = least + rnd(zk.last - least + 1);
    session->cut = 0;
}


void
zk_expire(zk_session_t *session)
{
    int       lock;
    name_t    name;
    size_t    i;
    znode_t  *node;

    drop_unanswered(session);
    session->expired = 1;

    for (lock = 0; lock < SIM_LOCKS; lock++) {
        for (i = 0; i < zk.nnodes[lock]; i++) {
            node = &zk.nodes[lock][i];

            if (node->session == session->number && node->deleted == SIM_ALIVE)
            {
                name = node->name;
                (void) erase(lock, &name);
            }
        }
    }

    hurry();
}


int
zk_is_cut(zk_session_t *session)
{
    return session->cut;
}


int
zk_is_expired(zk_session_t *session)
{
    return session->expired;
}


static void
drop_unanswered(zk_session_t *session)
{
    session->head = session->tail;
    session->sent = session->tail;
}


/* the leader's side */

int
zk_commit(zk_session_t *session)
{
    uint64_t       serial;
    zk_request_t  *r;

    while (session->sent != session->tail
           && session->queue[session->sent % QUEUE].type >= ZK_LIST)
    {
        session->sent++;
    }

    if (session->sent == session->tail) {
        return 0;
    }

    serial = session->sent++;
    r = &session->queue[serial % QUEUE];

    switch (r->type) {

    case ZK_CREATE:
        create(r->lock, &r->name, session->number, 0);
        break;

    case ZK_DELETE:
        r->missing = (erase(r->lock, &r->name) == NULL);
        if (r->missing) {
            (void) log_txn(TXN_NONE, r->lock, &r->name);
        }
        break;

    default: /* ZK_SYNC */
        r->zxid = zk.last;
        return 1;
    }

    r->zxid = zk.last;

    zk.log[zk.last % LOG].session = session->number;
    zk.log[zk.last % LOG].serial = serial;

    hurry();

    return 1;
}


/* reaps an empty container, if the container ever had a child */

int
zk_reap(int lock)
{
    size_t     i;
    parent_t  *parent;

    parent = parent_now(lock);
    if (parent == NULL || parent->counter == 0) {
        return 0;
    }

    for (i = 0; i < zk.nnodes[lock]; i++) {
        if (zk.nodes[lock][i].deleted == SIM_ALIVE) {
            return 0;
        }
    }

    (void) log_txn(TXN_PARENT, lock, NULL);
    parent->deleted = zk.last;
    counters.reaped++;
    trace("zk: lock %d reaped", lock);
    hurry();

    return 1;
}


void
zk_claim(int lock, name_t *name, int plain)
{
    create(lock, name, 0, plain);
    hurry();
}


void
zk_unclaim(int lock, name_t *name)
{
    (void) erase(lock, name);
    hurry();
}


/*
 * A gateway shares a lock, or makes a claim durable: a single transaction sets
 * the parent's data, deletes the claim, and creates the reader with the same
 * seq, or the durable claim with the same name.
 */

void
zk_replace(int lock, const name_t *name, name_t *by)
{
    znode_t   *node;
    parent_t  *parent;

    compact(lock);

    parent = parent_now(lock);
    parent->counter++;

    (void) log_txn(TXN_MULTI, lock, name);

    node = zk_find(lock, name);
    node->deleted = zk.last;

    add(lock, by, 0, parent);

    hurry();
}


/* a child that is not a claim came and went, and took a seq */

void
zk_noise(int lock)
{
    parent_t  *parent;

    parent = parent_now(lock);

    if (parent != NULL) {
        parent->counter++;
    }
}


znode_t *
zk_nodes(int lock, size_t *n)
{
    *n = zk.nnodes[lock];

    return zk.nodes[lock];
}


znode_t *
zk_find(int lock, const name_t *name)
{
    size_t    i;
    znode_t  *node;

    for (i = zk.nnodes[lock]; i-- != 0; /* void */) {
        node = &zk.nodes[lock][i];

        if (node->deleted == SIM_ALIVE && same_name(&node->name, name)) {
            return node;
        }
    }

    return NULL;
}


static int64_t
create(int lock, name_t *name, int64_t session, int plain)
{
    parent_t  *parent;

    compact(lock);

    parent = parent_now(lock);

    if (parent == NULL) {
        (void) log_txn(TXN_PARENT, lock, NULL);

        parent = &zk.parents[lock][zk.nparents[lock]++ % PARENTS];
        parent->created = zk.last;
        parent->deleted = SIM_ALIVE;
        parent->counter = 0;
    }

    if (!plain) {
        name->seq = parent->counter;
    }

    parent->counter++;

    (void) log_txn(TXN_NONE, lock, name);

    add(lock, name, session, parent);

    return zk.last;
}


static void
add(int lock, name_t *name, int64_t session, parent_t *parent)
{
    znode_t  *node;

    node = &zk.nodes[lock][zk.nnodes[lock]++];
    node->name = *name;
    node->session = session;
    node->parent = parent->created;
    node->created = zk.last;
    node->deleted = SIM_ALIVE;
    node->clashed = 0;

    trace("zk: lock %d %d created, id %d, zxid %d", lock, (int) name->seq,
          (int) name->id, (int) zk.last);
}


static znode_t *
erase(int lock, const name_t *name)
{
    znode_t  *node;

    node = zk_find(lock, name);
    if (node == NULL) {
        return NULL;
    }

    (void) log_txn(TXN_NODE, lock, name);
    node->deleted = zk.last;

    trace("zk: lock %d %d deleted, id %d, zxid %d", lock, (int) name->seq,
          (int) name->id, (int) zk.last);

    return node;
}


static txn_t *
log_txn(txn_e type, int lock, const name_t *name)
{
    txn_t  *txn;

    txn = &zk.log[++zk.last % LOG];

    memset(txn, 0, sizeof(txn_t));
    txn->type = type;
    txn->lock = lock;

    if (name != NULL) {
        txn->name = *name;
    }

    touched(lock);

    return txn;
}


/* keeps each server within the reach of the log and of the old znodes */

static void
hurry(void)
{
    zk_session_t  *session;

    for (session = zk.first; session != NULL; session = session->next) {

        if (session->cut) {
            continue;
        }

        while (zk.last - session->applied > zk.lag) {
            apply(session);
        }
    }
}


/* forgets znodes that no server can see any more */

static void
compact(int lock)
{
    size_t    i, n;
    znode_t  *nodes;

    if (zk.nnodes[lock] < 2 * SIM_CHILDREN) {
        return;
    }

    nodes = zk.nodes[lock];
    n = 0;

    for (i = 0; i < zk.nnodes[lock]; i++) {
        if (nodes[i].deleted > zk.last - LOG / 2) {
            nodes[n++] = nodes[i];
        }
    }

    zk.nnodes[lock] = n;

    if (n == NODES) {
        broken_sim("too many znodes");
    }
}


static parent_t *
parent_now(int lock)
{
    return parent_at(lock, zk.last);
}


static parent_t *
parent_at(int lock, int64_t zxid)
{
    uint64_t   i, n;
    parent_t  *parent;

    n = zk.nparents[lock];

    for (i = n; i != 0 && i + PARENTS > n; i--) {
        parent = &zk.parents[lock][(i - 1) % PARENTS];

        if (parent->created <= zxid) {
            return (zxid < parent->deleted) ? parent : NULL;
        }
    }

    return NULL;
}


/* a server's side */

int
zk_serve(zk_session_t *session)
{
    int  behind;

    if (session->cut) {
        return 0;
    }

    behind = (session->applied < zk.last);

    if (head_is_ready(session) && (!behind || chance(2))) {
        answer_head(session);
        return 1;
    }

    if (!behind) {
        return 0;
    }

    apply(session);

    return 1;
}


/* applies the next write, which may be the session's own */

static void
apply(zk_session_t *session)
{
    int     own;
    txn_t  *txn;

    txn = &zk.log[(session->applied + 1) % LOG];

    own = txn->session == session->number
          && txn->serial >= session->head
          && txn->serial < session->tail;

    if (own) {
        while (session->head != txn->serial) {

            if (!head_is_ready(session)) {
                broken_sim("a request is stuck");
            }

            answer_head(session);
        }
    }

    session->applied++;
    fire(session, txn);

    if (own) {
        answer_head(session);
    }
}


static void
fire(zk_session_t *session, txn_t *txn)
{
    switch (txn->type) {

    case TXN_NODE:
        fire_one(session, txn, 0);
        break;

    case TXN_MULTI:
        fire_one(session, txn, 1);
        fire_one(session, txn, 0);
        break;

    case TXN_PARENT:
        fire_one(session, txn, 1);
        break;

    default: /* TXN_NONE */
        break;
    }
}


static void
fire_one(zk_session_t *session, txn_t *txn, int parent)
{
    size_t         i;
    watch_t       *w;
    zk_message_t  *m;

    for (i = 0; i < session->nwatches; i++) {
        w = &session->watches[i];

        if (w->lock != txn->lock
            || w->parent != parent
            || (!w->parent && !same_name(&w->name, &txn->name)))
        {
            continue;
        }

        m = message(session, w->parent ? ZK_PARENT_CHANGED : ZK_NODE_DELETED);
        m->request.lock = w->lock;
        m->request.name = w->name;

        *w = session->watches[--session->nwatches];
        return;
    }
}


static zk_message_t *
message(zk_session_t *session, zk_message_e type)
{
    zk_message_t  *m;

    if (session->end - session->first == QUEUE) {
        broken_sim("too many answers");
    }

    m = &session->replies[session->end++ % QUEUE];

    m->type = type;
    m->zxid = (type == ZK_DISCONNECTED) ? 0 : session->applied;
    m->n = 0;

    return m;
}


static int
head_is_ready(zk_session_t *session)
{
    zk_request_t  *r;

    if (session->head == session->tail) {
        return 0;
    }

    r = &session->queue[session->head % QUEUE];

    switch (r->type) {

    case ZK_CREATE:
    case ZK_DELETE:
        return 0;

    case ZK_SYNC:
        return r->zxid != 0 && r->zxid <= session->applied;

    default:
        return 1;
    }
}


static void
answer_head(zk_session_t *session)
{
    zk_request_t  *r;
    zk_message_t  *reply;

    r = &session->queue[session->head++ % QUEUE];

    if (session->sent < session->head) {
        session->sent = session->head;
    }

    reply = message(session, ZK_REPLY);
    reply->request = *r;

    switch (r->type) {

    case ZK_CREATE:
        reply->czxid = r->zxid;
        break;

    case ZK_LIST:
        answer_list(session, reply);
        break;

    case ZK_GET:
        answer_get(session, reply);
        break;

    case ZK_EXISTS:
        answer_exists(session, reply);
        break;

    default:
        break;
    }
}


static void
answer_list(zk_session_t *session, zk_message_t *reply)
{
    int       lock;
    size_t    i;
    znode_t  *node;

    lock = reply->request.lock;

    for (i = 0; i < zk.nnodes[lock]; i++) {
        node = &zk.nodes[lock][i];

        if (node->created <= session->applied
            && session->applied < node->deleted)
        {
            if (reply->n == SIM_CHILDREN) {
                broken_sim("too many children");
            }

            reply->list[reply->n++] = *node;
        }
    }
}


static void
answer_get(zk_session_t *session, zk_message_t *reply)
{
    size_t         i;
    znode_t       *node;
    zk_request_t  *r;

    r = &reply->request;
    r->missing = 1;

    for (i = 0; i < zk.nnodes[r->lock]; i++) {
        node = &zk.nodes[r->lock][i];

        if (same_name(&node->name, &r->name)
            && node->created <= session->applied
            && session->applied < node->deleted)
        {
            r->missing = 0;
            set_watch(session, r->lock, 0, &r->name);
            return;
        }
    }
}


static void
answer_exists(zk_session_t *session, zk_message_t *reply)
{
    parent_t      *parent;
    zk_request_t  *r;

    r = &reply->request;
    parent = parent_at(r->lock, session->applied);

    r->missing = (parent == NULL);
    reply->czxid = (parent != NULL) ? parent->created : 0;

    set_watch(session, r->lock, 1, &r->name);
}


static void
set_watch(zk_session_t *session, int lock, int parent, const name_t *name)
{
    size_t    i;
    watch_t  *w;

    for (i = 0; i < session->nwatches; i++) {
        w = &session->watches[i];

        if (w->lock == lock && w->parent == parent
            && (parent || same_name(&w->name, name)))
        {
            return;
        }
    }

    if (session->nwatches == WATCHES) {
        broken_sim("too many watches");
    }

    w = &session->watches[session->nwatches++];
    w->lock = lock;
    w->parent = parent;
    w->name = *name;
}


static int
same_name(const name_t *one, const name_t *two)
{
    return one->seq == two->seq
           && one->id == two->id
           && one->kind == two->kind;
}


/* the simulation is wrong */

static void
broken_sim(const char *what)
{
    fprintf(stderr, "view_sim: %s\n", what);
    abort();
}
