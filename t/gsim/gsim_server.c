
/*
 * Sessions, and servers that lag behind the leader.
 *
 * Each connection has a place in the log up to which the server has applied the
 * log, and moves on a moment after the leader's log has grown; the place of a
 * server that is cut off stays.
 *
 *   - requests are answered in order; a read from the server's place;
 *   - a write goes to the leader, and is answered when the server has come to
 *     the write; a sync when the server has come to where the leader was;
 *   - a watch fires when the server comes to the change, so before any answer
 *     that shows the change.
 *
 * When a connection breaks, requests that have reached the server still get to
 * the leader, unless the session has moved to another server by then.  If the
 * session comes back to the same server, these requests come first: a single
 * queue leads from a server to the leader, and the reads of a session wait for
 * the session's writes.  (See ZooKeeperServer.processConnectRequest(),
 * PrepRequestProcessor, which asks for the session's owner, a server, and
 * CommitProcessor.)  But a request can be held up in a thread that reads the
 * old connection: requests of the next connection to that server may pass.
 */


#define THREADED

#include <zookeeper/zookeeper.h>

#include <stdio.h>
#include <stdlib.h>

#include "gsim.h"


static gsim_session_t  *gsim_sessions;
static gsim_conn_t     *gsim_conns;
static int64_t          gsim_restored;  /* when the servers lost data */
static int64_t          gsim_next_session;


static void gsim_session_expiry(void *data, uint64_t tag);
static void gsim_session_end(gsim_session_t *session, int closed);
static void gsim_adopt(gsim_conn_t *conn, gsim_conn_t *old);
static void gsim_late(void *data, uint64_t tag);
static void gsim_heard(gsim_conn_t *conn);
static void gsim_up_pump(void *data, uint64_t tag);
static void gsim_down_pump(void *data, uint64_t tag);
static void gsim_arrived(gsim_conn_t *conn, gsim_request_t *r);
static void gsim_commit(void *data, uint64_t tag);
static int gsim_commit_alone(gsim_conn_t *conn);
static void gsim_commit_one(gsim_conn_t *conn, gsim_request_t *r);
static int gsim_commit_multi(gsim_conn_t *conn, gsim_request_t *r);
static int gsim_commit_part(gsim_conn_t *conn, gsim_request_t *r);
static void gsim_apply(void *data, uint64_t tag);
static int64_t gsim_apply_limit(gsim_conn_t *conn, int64_t to);
static void gsim_apply_to(gsim_conn_t *conn, int64_t to);
static void gsim_fire(gsim_conn_t *conn, gsim_txn_t *txn);
static int gsim_take_watch(gsim_conn_t *conn, int type, const char *path);
static void gsim_set_watch(gsim_conn_t *conn, int type, char *path);
static void gsim_tell_event(gsim_conn_t *conn, int event, char *path);
static void gsim_serve(gsim_conn_t *conn);
static void gsim_read(gsim_conn_t *conn, gsim_request_t *r);
static void gsim_tell(gsim_conn_t *conn, gsim_message_t *m);
static void gsim_disconnect(gsim_conn_t *conn);


void
gsim_server_reset(void)
{
    gsim_sessions = NULL;
    gsim_conns = NULL;
    gsim_restored = 0;
    gsim_next_session = gsim_between(1, 1 << 20) << 16;
}


gsim_conn_t *
gsim_server_conns(void)
{
    return gsim_conns;
}


gsim_session_t *
gsim_server_session(int64_t id)
{
    gsim_session_t  *session;

    for (session = gsim_sessions; session; session = session->next) {
        if (session->id == id) {
            return session;
        }
    }

    return NULL;
}


gsim_session_t *
gsim_server_new_session(int64_t deadline)
{
    int              i;
    gsim_session_t  *session;

    session = gsim_alloc(sizeof(gsim_session_t));

    session->id = ++gsim_next_session;
    session->deadline = deadline;
    session->made = gsim_now;

    for (i = 0; i < 16; i++) {
        session->password[i] = (char) gsim_random();
    }

    session->next = gsim_sessions;
    gsim_sessions = session;

    return session;
}


gsim_conn_t *
gsim_server_connect(gsim_member_t *m, void *handle, gsim_process_t *p,
    int64_t id, const char *password, int64_t timeout, int64_t seen)
{
    int              alone;
    gsim_conn_t     *conn, *old;
    gsim_session_t  *session;

    alone = (gsim_member_is(m) == GSIM_ALONE);
    old = NULL;

    if (id == 0) {
        session = gsim_server_new_session(gsim_ensemble_deadline(timeout));

        gsim_at(session->deadline, gsim_session_expiry, session, 0);

    } else {
        session = gsim_server_session(id);

        if (session == NULL || (session->over && !alone)
            || memcmp(session->password, password, 16) != 0)
        {
            return NULL;
        }

        old = session->conn;

        if (old != NULL && !alone) {
            old->moved = 1;
            gsim_disconnect(old);
        }

        old = session->before;
    }

    conn = gsim_alloc(sizeof(gsim_conn_t));

    conn->handle = handle;
    conn->process = p;
    conn->session = session;
    conn->member = m;
    conn->up_end = &conn->up;
    conn->queue_end = &conn->queue;
    conn->down_end = &conn->downs;
    conn->latency = gsim_between(50, 800);
    conn->lag = gsim_between(20, 1500);

    if (alone) {
        conn->applied = gsim_member_frozen(m);
        conn->log_at = gsim_tree_ntxns();
        conn->next = gsim_conns;
        gsim_conns = conn;

        return conn;
    }

    /* a new session, or a session that moves, is a transaction */

    (void) gsim_tree_begin();

    conn->applied = gsim_zxid - 1;

    /* a server that is new to the client may be far behind */

    if (gsim_chance(3)) {
        conn->applied = seen > gsim_zxid - 20 ? seen : gsim_zxid - 20;
        conn->lag = gsim_fault_lag();
    }

    if (conn->applied < 1) {
        conn->applied = 1;
    }

    conn->log_at = gsim_tree_ntxns();

    while (conn->log_at > 0
           && gsim_tree_txn(conn->log_at - 1)->zxid > conn->applied)
    {
        conn->log_at--;
    }

    /* requests of the session's other connections are refused from now on */

    conn->serial = ++session->serial;

    session->conn = conn;
    session->before = conn;
    session->last = p;

    if (session->first == NULL) {
        session->first = p;
    }
    session->timeout = timeout;

    conn->next = gsim_conns;
    gsim_conns = conn;

    if (old != NULL && old->member == m) {
        gsim_adopt(conn, old);
    }

    gsim_server_touch(session);

    if (p->hunted && gsim_member_hunt(m, session)) {
        p->hunted = 0;
    }

    gsim_heard(conn);
    gsim_server_spread();

    return conn;
}


/*
 * The session was at the same server before: the requests that the server has
 * read are on the way, ahead of all new requests; unread requests are lost.
 */

static void
gsim_adopt(gsim_conn_t *conn, gsim_conn_t *old)
{
    gsim_request_t  *r, *next;

    old->moved = 1;

    for (r = old->queue; r != NULL; r = next) {
        next = r->next;

        if (r->type >= GSIM_GET) {
            continue;
        }

        r->orphan = 1;
        r->next = NULL;
        *conn->queue_end = r;
        conn->queue_end = &r->next;

        if (!r->committed) {
            gsim_at(gsim_member_send(conn->member), gsim_commit, conn, 0);
        }
    }

    old->queue = NULL;
    old->queue_end = &old->queue;
}


/* Delays the last request of a broken connection; all before are lost. */

void
gsim_server_linger(gsim_conn_t *conn)
{
    gsim_request_t  *r;

    if (conn->cut || conn->moved || conn->up == NULL) {
        return;
    }

    for (r = conn->up; r->next != NULL; r = r->next) {
        /* void */
    }

    if (r->type >= GSIM_SYNC) {
        return;
    }

    conn->late = r;
    gsim_at(gsim_now + gsim_between(1, 2000) * GSIM_MS, gsim_late, conn,
            (uint64_t) gsim_now);
}


static void
gsim_late(void *data, uint64_t tag)
{
    gsim_conn_t *conn = data;

    gsim_conn_t  *now;

    now = conn->session->before;

    if (conn->session->over || now == NULL || now->member != conn->member
        || gsim_member_is(conn->member) != GSIM_QUORUM
        || gsim_member_since(conn->member) > (int64_t) tag)
    {
        return;
    }

    gsim_say("zk: a request of a connection before is read");

    conn->late->orphan = 1;
    conn->late->next = NULL;
    *now->queue_end = conn->late;
    now->queue_end = &conn->late->next;

    gsim_at(gsim_member_send(now->member), gsim_commit, now, 0);
}


static void
gsim_heard(gsim_conn_t *conn)
{
    gsim_session_t  *session;

    session = conn->session;

    if (session->conn != conn || session->over) {
        return;
    }

    gsim_member_heard(conn->member, session);
}


void
gsim_server_touch(gsim_session_t *session)
{
    if (!session->over) {
        session->deadline = gsim_ensemble_deadline(session->timeout);
    }
}


void
gsim_server_elected(void)
{
    gsim_session_t  *session;

    for (session = gsim_sessions; session; session = session->next) {
        if (session->timeout != 0) {
            gsim_server_touch(session);
        }
    }
}


void
gsim_server_down(gsim_member_t *m)
{
    gsim_conn_t  *conn;

    for (conn = gsim_conns; conn != NULL; conn = conn->next) {

        if (conn->member != m || conn->gone) {
            continue;
        }

        /* requests that the server has not passed on may be lost */

        conn->moved = gsim_chance(2);

        if (conn->session->before == conn) {
            conn->session->before = NULL;
        }

        if (gsim_chance(8)) {

            /* without telling the client */

            conn->gone = 1;
            continue;
        }

        gsim_disconnect(conn);
    }
}


int
gsim_server_copied(int64_t id)
{
    gsim_session_t  *session;

    session = gsim_server_session(id);

    return session != NULL && session->made < gsim_restored;
}


/*
 * How much the older copy has at most: each session that goes on has set its
 * gate twice since, as one answer may be lost.  A session that has only deleted
 * since the copy does not notice that its claims are back (docs/design.md,
 * servers that know less).
 */

static size_t
gsim_server_copy_max(void)
{
    int           sets;
    size_t        i, last;
    gsim_node_t  *gate, *node;

    gate = gsim_tree_find("/zk_lock_gates", gsim_zxid);
    last = gsim_tree_ntxns();

    for (gate = gate ? gate->children : NULL; gate; gate = gate->sibling) {

        sets = 0;

        for (i = gsim_tree_ntxns(); i > 0; i--) {
            node = gsim_tree_txn(i - 1)->node;

            if (node == gate && ++sets == 2) {
                break;
            }
        }

        if (gate->owner != 0 && gate->deleted == GSIM_NEVER) {
            last = ngx_min(last, i);
        }
    }

    return last ? last - 1 : 0;
}


/*
 * A session that has a znode in the older copy is in the copy, too, as other
 * sessions may be, and has the whole timeout anew.
 */

void
gsim_server_restore(void)
{
    size_t             i, n;
    gsim_conn_t       *conn;
    gsim_node_t       *node;
    gsim_session_t    *session;
    zkl_claim_data_t   cdata;

    for (conn = gsim_conns; conn != NULL; conn = conn->next) {
        conn->moved = 1;

        if (!conn->gone) {
            gsim_disconnect(conn);
        }
    }

    gsim_conns = NULL;

    n = gsim_chance(3) ? 0 : (size_t) gsim_below(
                                          (int64_t) gsim_server_copy_max() + 1);
    gsim_tree_restore(n);

    gsim_say("zk: the servers go back to %llx", (long long) gsim_zxid);
    gsim_count.restored++;
    gsim_restored = gsim_now;

    /* a stranger's child is nobody's to remove, so the stranger does at once */

    for (i = 0, n = gsim_tree_ntxns(); i < n; i++) {
        node = gsim_tree_txn(i)->node;

        if (node->deleted != GSIM_NEVER || node->owner != 0
            || gsim_oracle_lock(node->path) < 0)
        {
            continue;
        }

        zkl_claim_data_read(&cdata, node->data->bytes, node->data->len);

        if (cdata.gate_len == 0) {
            (void) gsim_tree_begin();
            (void) gsim_tree_delete(node->path, -1);
        }
    }

    for (session = gsim_sessions; session; session = session->next) {
        session->conn = NULL;
        session->before = NULL;

        if (gsim_tree_owns(session->id)
            || (n > 0 && !session->over && gsim_chance(2)))
        {
            session->over = 0;
            session->deadline = gsim_ensemble_deadline(
                                    ngx_max(session->timeout, GSIM_S));

            gsim_at(session->deadline, gsim_session_expiry, session, 0);

        } else {
            session->over = 1;
            session->ended = gsim_now;
        }
    }
}


static void
gsim_session_expiry(void *data, uint64_t tag)
{
    gsim_session_t *session = data;

    (void) tag;

    if (session->over) {
        return;
    }

    if (session->deadline > gsim_now) {
        gsim_at(session->deadline, gsim_session_expiry, session, 0);
        return;
    }

    if (gsim_ensemble_paused() > gsim_now) {

        /* the leader may look at the clock before the leader reads messages */

        gsim_at(gsim_ensemble_paused() + gsim_below(2) * GSIM_MS,
                gsim_session_expiry, session, 0);
        return;
    }

    gsim_server_expire(session, "timeout");
}


void
gsim_server_expire(gsim_session_t *session, const char *why)
{
    gsim_say("zk: session %llx is over: %s", (long long) session->id, why);
    gsim_count.expired++;

    gsim_gateway_check_over(session);

    gsim_session_end(session, 0);
}


static void
gsim_session_end(gsim_session_t *session, int closed)
{
    size_t  i, n;

    session->over = 1;
    session->ended = gsim_now;
    n = gsim_tree_ntxns();

    gsim_tree_end_session(session->id);

    for (i = n; i < gsim_tree_ntxns(); i++) {
        gsim_oracle_deleted(gsim_tree_txn(i)->node, closed);
    }

    if (session->conn != NULL && !closed
        && gsim_member_is(session->conn->member) == GSIM_QUORUM)
    {
        gsim_disconnect(session->conn);
    }

    gsim_server_spread();
    gsim_foreign_look();
}


/* the way to the server */

void
gsim_server_send(gsim_conn_t *conn, gsim_request_t *request)
{
    int64_t  at;

    if (conn->cut) {
        return;
    }

    at = gsim_now + conn->latency + gsim_below(conn->latency)
         + gsim_fault_slow_one();

    if (at <= conn->up_at) {
        at = conn->up_at + 1;
    }

    conn->up_at = at;
    request->at = at;
    request->next = NULL;

    *conn->up_end = request;
    conn->up_end = &request->next;

    if (!conn->up_pumped) {
        conn->up_pumped = 1;
        gsim_at(at, gsim_up_pump, conn, 0);
    }
}


static void
gsim_up_pump(void *data, uint64_t tag)
{
    gsim_conn_t *conn = data;

    gsim_request_t  *r;

    (void) tag;

    conn->up_pumped = 0;

    while (conn->up != NULL && !conn->moved) {
        r = conn->up;

        if (r->at > gsim_now) {
            conn->up_pumped = 1;
            gsim_at(r->at, gsim_up_pump, conn, 0);
            return;
        }

        if (conn->process->down[0] > gsim_now) {
            conn->up_pumped = 1;
            gsim_at(conn->process->down[0] + conn->latency, gsim_up_pump, conn,
                    0);
            return;
        }

        if (gsim_member_paused(conn->member) > gsim_now) {
            conn->up_pumped = 1;
            gsim_at(gsim_member_paused(conn->member) + gsim_below(2000),
                    gsim_up_pump, conn, 0);
            return;
        }

        conn->up = r->next;

        if (conn->up == NULL) {
            conn->up_end = &conn->up;
        }

        gsim_arrived(conn, r);
    }
}


static void
gsim_arrived(gsim_conn_t *conn, gsim_request_t *r)
{
    int64_t        at;
    gsim_member_e  state;

    state = gsim_member_is(conn->member);

    if (conn->gone || state == GSIM_DOWN
        || (conn->session->over && state == GSIM_QUORUM
            && conn->session->conn != conn))
    {
        return;
    }

    if (state == GSIM_QUORUM) {
        gsim_heard(conn);
    }

    if (!conn->cut && r->type != GSIM_PING && r->type != GSIM_CLOSE) {
        conn->session->away = 0;
    }

    r->next = NULL;
    *conn->queue_end = r;
    conn->queue_end = &r->next;

    if (r->type < GSIM_GET) {

        /* to the leader, in order */

        at = gsim_member_send(conn->member);

        if (r->type == GSIM_CLOSE && gsim_chance(2)) {

            /* the session may come back to the same server before that */

            at += gsim_below(30 * GSIM_MS);
        }

        if (at <= conn->commit_at) {
            at = conn->commit_at + 1;
        }

        conn->commit_at = at;
        gsim_at(at, gsim_commit, conn, 0);
        return;
    }

    gsim_serve(conn);
}


/* at the leader: the first write that is not committed */

static void
gsim_commit(void *data, uint64_t tag)
{
    gsim_conn_t *conn = data;

    int64_t          paused;
    gsim_request_t  *r;

    (void) tag;

    if (conn->moved) {
        return;
    }

    if (gsim_member_is(conn->member) == GSIM_ALONE && !gsim_commit_alone(conn))
    {
        return;
    }

    if (conn->serial != conn->session->serial) {
        return;
    }

    paused = gsim_ensemble_paused();

    if (paused > gsim_now) {
        gsim_at(paused + gsim_between(20, 600), gsim_commit, conn, 0);
        return;
    }

    for (r = conn->queue; r != NULL; r = r->next) {
        if (r->type < GSIM_GET && !r->committed) {
            break;
        }
    }

    if (r == NULL) {
        return;
    }

    r->committed = 1;

    if (conn->session->over) {

        /* the session was closed through a connection before */

        r->code = ZSESSIONEXPIRED;
        gsim_serve(conn);
        return;
    }

    if (r->type == GSIM_SYNC) {
        r->zxid = gsim_zxid;
        gsim_serve(conn);
        return;
    }

    if (r->type == GSIM_CLOSE) {
        gsim_say("zk: session %llx is closed", (long long) conn->session->id);
        gsim_session_end(conn->session, 1);
        r->zxid = gsim_zxid;
        return;
    }

    gsim_commit_one(conn, r);
    gsim_server_spread();
    gsim_foreign_look();
}


/*
 * The commit of a server that is alone.  A write that was on the way at the
 * cut-off may have come to the other servers; this server does not hear.
 */

static int
gsim_commit_alone(gsim_conn_t *conn)
{
    gsim_request_t  *r;

    if (gsim_now - gsim_member_since(conn->member) < GSIM_MS && gsim_chance(2))
    {
        return 1;
    }

    for (r = conn->queue; r != NULL && r->committed; r = r->next) {
        /* void */
    }

    if (r == NULL || r->type >= GSIM_GET) {
        return 0;
    }

    if (r->type != GSIM_SYNC) {
        gsim_member_propose(conn->member);

    } else if (gsim_member_syncs(conn->member)) {
        r->committed = 1;
        r->zxid = conn->applied;
        gsim_serve(conn);
    }

    return 0;
}


static void
gsim_commit_one(gsim_conn_t *conn, gsim_request_t *r)
{
    size_t  i, n;

    n = gsim_tree_ntxns();

    r->zxid = gsim_tree_begin();
    r->code = (r->type == GSIM_MULTI) ? gsim_commit_multi(conn, r)
                                      : gsim_commit_part(conn, r);

    for (i = n; i < gsim_tree_ntxns(); i++) {
        if (gsim_tree_txn(i)->change == GSIM_DELETED) {
            gsim_oracle_removed(conn->session, gsim_tree_txn(i)->node);
            gsim_oracle_deleted(gsim_tree_txn(i)->node, 0);
        }
    }
}


static int
gsim_commit_multi(gsim_conn_t *conn, gsim_request_t *r)
{
    int              code;
    size_t           n;
    gsim_request_t  *part;

    code = ZOK;
    n = gsim_tree_ntxns();

    for (part = r->parts; part != NULL; part = part->next) {

        if (code != ZOK) {
            part->code = ZRUNTIMEINCONSISTENCY;
            continue;
        }

        part->zxid = r->zxid;
        part->code = gsim_commit_part(conn, part);
        code = part->code;
    }

    if (code != ZOK) {
        gsim_say("zk: %llx rolls back", (long long) gsim_zxid);
        gsim_tree_undo(n);
    }

    return code;
}


static int
gsim_commit_part(gsim_conn_t *conn, gsim_request_t *r)
{
    int           code;
    gsim_data_t  *data;
    gsim_node_t  *node;

    if (gsim_denied_code(r->path) != ZOK) {
        return gsim_denied_code(r->path);
    }

    if (r->type == GSIM_CREATE) {
        return gsim_tree_create(r->path, r->data, r->len, r->flags,
                                conn->session->id, &r->node);
    }

    node = gsim_tree_find(r->path, gsim_zxid);
    data = (node != NULL) ? node->data : NULL;

    switch (r->type) {

    case GSIM_DELETE:
        code = gsim_tree_delete(r->path, r->version);
        break;

    case GSIM_CHECK:
        code = gsim_tree_check(r->path, r->version);
        break;

    default: /* GSIM_SET */
        code = gsim_tree_set(r->path, r->data, r->len, r->version);

        if (code == ZOK) {
            r->node = node;
            r->value = node->data;
        }

        break;
    }

    if (code == ZOK && r->version >= 0) {
        gsim_oracle_wrote(conn->process, node, data);
    }

    return code;
}


/* the servers follow the leader */

void
gsim_server_spread(void)
{
    gsim_conn_t  *conn, **p;

    for (p = &gsim_conns; *p != NULL; ) {
        conn = *p;

        if ((conn->cut && conn->up == NULL) || conn->moved) {

            /* requests that have arrived go on without the list */

            *p = conn->next;
            continue;
        }

        if (!conn->applying && conn->applied < gsim_zxid
            && gsim_member_is(conn->member) != GSIM_ALONE)
        {
            conn->applying = 1;
            gsim_at(gsim_now + conn->lag / 2 + gsim_below(conn->lag),
                    gsim_apply, conn, 0);
        }

        p = &conn->next;
    }
}


static void
gsim_apply(void *data, uint64_t tag)
{
    gsim_conn_t *conn = data;

    int64_t  at, from, to;

    (void) tag;

    conn->applying = 0;

    if (conn->cut || conn->moved || gsim_member_is(conn->member) == GSIM_ALONE)
    {
        return;
    }

    if (gsim_member_paused(conn->member) > gsim_now) {
        conn->applying = 1;
        gsim_at(gsim_member_paused(conn->member) + gsim_below(2000),
                gsim_apply, conn, 0);
        return;
    }

    /* a server may have applied a part only */

    to = gsim_chance(4) ? gsim_between(conn->applied, gsim_zxid) : gsim_zxid;
    to = ngx_max(ngx_min(to, gsim_member_ahead(conn->member)), conn->applied);

    do {
        from = conn->applied;
        gsim_apply_to(conn, gsim_apply_limit(conn, to));
        gsim_serve(conn);

    } while (conn->applied > from && conn->applied < to);

    if (conn->applied < gsim_zxid) {
        conn->applying = 1;
        at = ngx_max(gsim_now, gsim_member_pinged(conn->member));
        gsim_at(at + 1 + gsim_below(conn->lag), gsim_apply, conn, 0);
    }
}


/*
 * A server does not apply a session's write while reads of the session, ahead
 * of the write, wait (see ZooKeeper's CommitProcessor).
 */

static int64_t
gsim_apply_limit(gsim_conn_t *conn, int64_t to)
{
    int              reads;
    gsim_request_t  *r;

    for (reads = 0, r = conn->queue; r != NULL; r = r->next) {

        if (r->type >= GSIM_GET) {
            reads = 1;
            continue;
        }

        if (!r->committed) {
            break;
        }

        if (reads && r->type != GSIM_SYNC && r->zxid > conn->applied) {
            return ngx_min(to, r->zxid - 1);
        }
    }

    return to;
}


static void
gsim_apply_to(gsim_conn_t *conn, int64_t to)
{
    gsim_txn_t  *txn;

    conn->applied = to;

    while (conn->log_at < gsim_tree_ntxns()) {
        txn = gsim_tree_txn(conn->log_at);

        if (txn->zxid > to) {
            break;
        }

        gsim_fire(conn, txn);
        conn->log_at++;
    }
}


static void
gsim_fire(gsim_conn_t *conn, gsim_txn_t *txn)
{
    int           one, two;
    gsim_node_t  *node;

    node = txn->node;

    switch (txn->change) {

    case GSIM_CREATED:
        if (gsim_take_watch(conn, GSIM_GET, node->path)) {
            gsim_tell_event(conn, ZOO_CREATED_EVENT, node->path);
        }

        break;

    case GSIM_CHANGED:
        if (gsim_take_watch(conn, GSIM_GET, node->path)) {
            gsim_tell_event(conn, ZOO_CHANGED_EVENT, node->path);
        }

        return;

    case GSIM_DELETED:
        one = gsim_take_watch(conn, GSIM_GET, node->path);
        two = gsim_take_watch(conn, GSIM_LIST, node->path);

        if (one || two) {
            gsim_tell_event(conn, ZOO_DELETED_EVENT, node->path);
        }

        break;
    }

    if (gsim_take_watch(conn, GSIM_LIST, node->parent->path)) {
        gsim_tell_event(conn, ZOO_CHILD_EVENT, node->parent->path);
    }
}


/* A server has watches on data, which serve EXISTS, too, and on children. */

static int
gsim_take_watch(gsim_conn_t *conn, int type, const char *path)
{
    gsim_watch_t  *watch, **p;

    for (p = &conn->watches; *p != NULL; p = &watch->next) {
        watch = *p;

        if (watch->type == type && strcmp(watch->path, path) == 0) {
            *p = watch->next;
            return 1;
        }
    }

    return 0;
}


static void
gsim_set_watch(gsim_conn_t *conn, int type, char *path)
{
    gsim_watch_t  *watch;

    (void) gsim_take_watch(conn, type, path);

    watch = gsim_alloc(sizeof(gsim_watch_t));

    watch->type = type;
    watch->path = path;
    watch->next = conn->watches;
    conn->watches = watch;
}


void
gsim_server_rewatch(gsim_conn_t *conn, gsim_watch_t *watches, int64_t seen)
{
    gsim_node_t   *node;
    gsim_watch_t  *w;

    for (w = watches; w != NULL; w = w->next) {
        node = gsim_tree_find(w->path, conn->applied);

        if (w->type == GSIM_EXISTS) {

            if (node != NULL) {
                gsim_tell_event(conn, ZOO_CREATED_EVENT, w->path);

            } else {
                gsim_set_watch(conn, GSIM_GET, w->path);
            }

        } else if (node == NULL) {
            gsim_tell_event(conn, ZOO_DELETED_EVENT, w->path);

        } else if (w->type == GSIM_GET
                   && gsim_tree_data(node, conn->applied)->zxid > seen)
        {
            gsim_tell_event(conn, ZOO_CHANGED_EVENT, w->path);

        } else if (w->type == GSIM_LIST && node->pzxid > seen) {
            gsim_tell_event(conn, ZOO_CHILD_EVENT, w->path);

        } else {
            gsim_set_watch(conn, w->type, w->path);
        }
    }
}


/* answers, in the order of the requests */

static void
gsim_serve(gsim_conn_t *conn)
{
    gsim_message_t  *m;
    gsim_request_t  *r;

    for ( ;; ) {
        r = conn->queue;

        if (r == NULL
            || (r->type < GSIM_GET
                && (!r->committed || r->zxid > conn->applied)))
        {
            return;
        }

        conn->queue = r->next;

        if (conn->queue == NULL) {
            conn->queue_end = &conn->queue;
        }

        if (r->type >= GSIM_GET) {
            gsim_read(conn, r);
        }

        if (r->orphan) {
            continue;
        }

        m = gsim_alloc(sizeof(gsim_message_t));
        m->reply = r;

        gsim_tell(conn, m);
    }
}


static void
gsim_read(gsim_conn_t *conn, gsim_request_t *r)
{
    if (r->type == GSIM_PING) {
        return;
    }

    r->seen = conn->applied;
    r->node = gsim_tree_find(r->path, conn->applied);
    r->code = (r->node != NULL) ? ZOK : ZNONODE;

    if (r->node != NULL) {
        r->value = gsim_tree_data(r->node, conn->applied);
    }

    if (r->watch && (r->node != NULL || r->type == GSIM_EXISTS)) {
        gsim_set_watch(conn, r->type == GSIM_LIST ? GSIM_LIST : GSIM_GET,
                       r->path);
    }
}


static void
gsim_tell_event(gsim_conn_t *conn, int event, char *path)
{
    gsim_message_t  *m;

    m = gsim_alloc(sizeof(gsim_message_t));
    m->event = event;
    m->path = path;

    gsim_tell(conn, m);
}


/* the way to the client */

static void
gsim_tell(gsim_conn_t *conn, gsim_message_t *m)
{
    int64_t  at;

    if (conn->cut || conn->gone) {
        return;
    }

    at = gsim_now + conn->latency + gsim_below(conn->latency)
         + gsim_fault_slow_one();

    if (at <= conn->down_at) {
        at = conn->down_at + gsim_below(20);
    }

    conn->down_at = at;
    m->at = at;
    m->zxid = conn->applied;

    *conn->down_end = m;
    conn->down_end = &m->next;

    if (!conn->down_pumped) {
        conn->down_pumped = 1;
        gsim_at(at, gsim_down_pump, conn, 0);
    }
}


static void
gsim_down_pump(void *data, uint64_t tag)
{
    gsim_conn_t *conn = data;

    int64_t          at;
    gsim_message_t  *m;

    (void) tag;

    conn->down_pumped = 0;

    while (conn->downs != NULL && !conn->cut) {
        m = conn->downs;
        at = m->at;

        if (conn->process->down[1] > gsim_now) {
            at = conn->process->down[1] + conn->latency;
        }

        if (conn->process->stopped > gsim_now && at < conn->process->stopped) {
            at = conn->process->stopped + gsim_below(200);
        }

        if (at > gsim_now) {
            conn->down_pumped = 1;
            gsim_at(at, gsim_down_pump, conn, 0);
            return;
        }

        conn->downs = m->next;

        if (conn->downs == NULL) {
            conn->down_end = &conn->downs;
        }

        gsim_client_receive(conn, m);
    }
}


/* The server closes the connection: messages sent before come first. */

static void
gsim_disconnect(gsim_conn_t *conn)
{
    gsim_message_t  *m;

    if (conn->cut) {
        return;
    }

    m = gsim_alloc(sizeof(gsim_message_t));
    m->closed = 1;

    gsim_tell(conn, m);

    conn->watches = NULL;
    conn->gone = 1;

    if (conn->session->conn == conn) {
        conn->session->conn = NULL;
    }
}


void
gsim_server_cut(gsim_conn_t *conn, int lost)
{
    if (lost) {
        conn->up = NULL;
        conn->up_end = &conn->up;
    }

    conn->cut = 1;
    conn->watches = NULL;
    conn->downs = NULL;
    conn->down_end = &conn->downs;

    if (conn->session->conn == conn) {
        conn->session->conn = NULL;
    }
}
