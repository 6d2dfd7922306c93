
/*
 * libzookeeper, as zk/client.c calls the library.
 *
 * A handle belongs to a process.  Completions and watchers run "on the handle's
 * threads": in a separate event, with the process's globals, even while the
 * process's event loop is in a turn.  As libzookeeper does:
 *
 *   - completions and events come in the order of the server's messages;
 *   - when the connection breaks, the session event comes first, and then all
 *     operations in flight fail, with an unknown outcome;
 *   - an operation without a connection is sent with the next connection, or
 *     fails with the next attempt;
 *   - the end of the session is only known when a server is reached again;
 *   - watches are set again with each new connection of the same handle;
 *   - a ping goes out after a third of the timeout without a request, and two
 *     thirds without a message of the server break the connection;
 *   - a handle connects, asks for the session, and waits for the answer;
 *   - a server that knows less than the handle has seen closes the connection;
 *   - closing may lose completions, and blocks for a round trip.
 */


#define THREADED

#include <zookeeper/zookeeper.h>

#include <stdio.h>
#include <stdlib.h>

#include "gsim.h"


typedef struct gsim_op_s  gsim_op_t;

/* an operation that has not completed */

struct gsim_op_s {
    gsim_op_t                   *next;
    gsim_request_t              *request;
    const void                  *data;
    zoo_op_result_t             *results;       /* of a multi */
    zoo_op_t                    *zops;
    int                          nops;
    unsigned                     sent:1;

    union {
        string_stat_completion_t  created;
        string_completion_t       string;
        void_completion_t         done;
        stat_completion_t         stat;
        data_completion_t         got;
        strings_stat_completion_t list;
    } u;
};


struct _zhandle {
    zhandle_t                   *next;
    gsim_process_t              *process;
    watcher_fn                   watcher;
    void                        *context;
    int                          timeout;       /* milliseconds */
    int                          state;
    clientid_t                   id;
    gsim_conn_t                 *conn;
    gsim_op_t                   *ops, **ops_end;
    gsim_watch_t                *watches;
    gsim_watch_t                *fired;
    int64_t                      opened;
    int64_t                      seen;
    int64_t                      heard;
    int64_t                      asked;
    gsim_member_t               *member;        /* asked for the session */
    uint64_t                     attempt;
    unsigned                     astray:1;      /* has no servers */
    unsigned                     closing:1;
    unsigned                     closed:1;
    unsigned                     answered:1;    /* the close was answered */
    unsigned                     exists:1;      /* EXISTS has set a watch */
};


const int ZOO_EXPIRED_SESSION_STATE = -112;
const int ZOO_AUTH_FAILED_STATE = -113;
const int ZOO_CONNECTING_STATE = 1;
const int ZOO_ASSOCIATING_STATE = 2;
const int ZOO_CONNECTED_STATE = 3;
const int ZOO_NOTCONNECTED_STATE = 999;
const int ZOO_CREATED_EVENT = 1;
const int ZOO_DELETED_EVENT = 2;
const int ZOO_CHANGED_EVENT = 3;
const int ZOO_CHILD_EVENT = 4;
const int ZOO_SESSION_EVENT = -1;
const int ZOO_PERSISTENT = 0;
const int ZOO_EPHEMERAL = 1;
const int ZOO_SEQUENCE = 2;
const int ZOO_EPHEMERAL_SEQUENTIAL = 3;
const int ZOO_CONTAINER = 4;

const int ZOO_PERM_CREATE = 4;

static struct ACL  gsim_acl = { 31, { "world", "anyone" } };

struct ACL_vector  ZOO_OPEN_ACL_UNSAFE = { 1, &gsim_acl };
struct ACL_vector  ZOO_CREATOR_ALL_ACL = { 1, &gsim_acl };

static zhandle_t  *gsim_handles;


static void gsim_connect_event(void *data, uint64_t tag);
static void gsim_connect_arrived(void *data, uint64_t tag);
static void gsim_connect_late(void *data, uint64_t tag);
static void gsim_connect_failed(zhandle_t *zh, int code, int64_t us);
static void gsim_connect_answered(void *data, uint64_t tag);
static void gsim_connect_soon(zhandle_t *zh, int64_t us);
static void gsim_pulse_event(void *data, uint64_t tag);
static void gsim_client_cut(gsim_conn_t *conn, unsigned late);
static void gsim_state(zhandle_t *zh, int state);
static void gsim_fail_ops(zhandle_t *zh, int code);
static gsim_op_t *gsim_op(zhandle_t *zh, gsim_request_e type, const char *path,
    const char *value, int len, const void *data);
static int gsim_submit(zhandle_t *zh, gsim_op_t *op);
static gsim_request_t *gsim_request(gsim_request_e type, const char *path,
    const char *value, int len);
static void gsim_complete(zhandle_t *zh, gsim_op_t *op, int code);
static void gsim_complete_list(gsim_op_t *op, int code);
static void gsim_complete_multi(zhandle_t *zh, gsim_op_t *op, int code);
static void gsim_known(zhandle_t *zh, gsim_request_t *r);
static void gsim_stat(struct Stat *stat, gsim_node_t *node,
    gsim_data_t *value);
static void gsim_watch_set(zhandle_t *zh, int type, char *path);
static zhandle_t *gsim_client_handle(gsim_process_t *p, int64_t id);
static int gsim_watch_take(zhandle_t *zh, int type, const char *path);
static void gsim_client_event(zhandle_t *zh, gsim_message_t *m);


void
gsim_client_reset(void)
{
    gsim_handles = NULL;
}


zhandle_t *
zookeeper_init2(const char *host, watcher_fn fn, int recv_timeout,
    const clientid_t *clientid, void *context, int flags,
    log_callback_fn log_callback)
{
    zhandle_t  *zh;

    (void) host;
    (void) flags;
    (void) log_callback;

    gsim_point();

    zh = gsim_alloc(sizeof(zhandle_t));

    zh->process = gsim_current;
    zh->watcher = fn;
    zh->context = context;
    zh->timeout = recv_timeout;
    zh->state = 999;
    zh->ops_end = &zh->ops;
    zh->opened = gsim_now;

    if (clientid != NULL) {
        zh->id = *clientid;
    }

    zh->next = gsim_handles;
    gsim_handles = zh;

    gsim_connect_soon(zh, gsim_between(300, 3000));
    gsim_at(gsim_now + recv_timeout * GSIM_MS / 6, gsim_pulse_event, zh, 0);

    return zh;
}


static void
gsim_connect_soon(zhandle_t *zh, int64_t us)
{
    gsim_at(gsim_now + us, gsim_connect_event, zh, ++zh->attempt);
}


/* Asks a server for the session, as soon as the connection is there. */

static void
gsim_connect_event(void *data, uint64_t tag)
{
    zhandle_t *zh = data;

    gsim_process_t  *p;

    p = zh->process;

    if (tag != zh->attempt || zh->closed || zh->astray || zh->state < 0) {
        return;
    }

    if (p->stopped > gsim_now) {
        gsim_connect_soon(zh, p->stopped - gsim_now + 100);
        return;
    }

    zh->member = gsim_ensemble_pick();

    if (gsim_member_takes(zh->member, zh->id.client_id, zh->seen)
        == GSIM_REFUSES)
    {
        gsim_connect_failed(zh, ZCONNECTIONLOSS, gsim_between(1, 100)
                                                 * GSIM_MS);
        return;
    }

    zh->state = ZOO_ASSOCIATING_STATE;

    gsim_at(gsim_now + gsim_between(50, gsim_chance(8) ? 300 * GSIM_MS : 800),
            gsim_connect_arrived, zh, zh->attempt);
}


/* The server has read the request. */

static void
gsim_connect_arrived(void *data, uint64_t tag)
{
    zhandle_t *zh = data;

    int64_t          us;
    gsim_process_t  *p;

    p = zh->process;

    if (tag != zh->attempt || zh->closed || zh->astray || zh->state < 0) {
        return;
    }

    if (p->down[0] > gsim_now
        || gsim_member_takes(zh->member, zh->id.client_id, zh->seen)
           != GSIM_TAKES)
    {
        /* no answer comes */

        gsim_at(gsim_now + zh->timeout * GSIM_MS / 3, gsim_connect_late, zh,
                tag);
        return;
    }

    if (gsim_member_is(zh->member) == GSIM_QUORUM && zh->seen > gsim_zxid) {

        /* the server closes the connection: the client has seen more */

        gsim_connect_failed(zh, ZCONNECTIONLOSS, gsim_between(1, 100)
                                                 * GSIM_MS);
        return;
    }

    zh->conn = gsim_server_connect(zh->member, zh, p, zh->id.client_id,
                                   zh->id.passwd,
                                   (int64_t) zh->timeout * GSIM_MS, zh->seen);
    zh->heard = gsim_now;

    us = (zh->conn != NULL) ? zh->conn->latency : 500;

    us += gsim_below(us) + gsim_fault_slow_one();

    gsim_at(gsim_now + us, gsim_connect_answered, zh, tag);
}


/* The operations of that time fail with the attempt. */

static void
gsim_connect_late(void *data, uint64_t tag)
{
    zhandle_t *zh = data;

    if (tag == zh->attempt && !zh->closed && !zh->astray && zh->state > 0) {
        gsim_connect_failed(zh, ZOPERATIONTIMEOUT, 1);
    }
}


static void
gsim_connect_failed(zhandle_t *zh, int code, int64_t us)
{
    gsim_process_t  *before;

    zh->state = ZOO_NOTCONNECTED_STATE;

    before = gsim_enter_thread(zh->process);
    gsim_fail_ops(zh, code);
    gsim_leave_thread(before);

    gsim_connect_soon(zh, us);
}


static void
gsim_connect_answered(void *data, uint64_t tag)
{
    zhandle_t *zh = data;

    int64_t          until;
    gsim_op_t       *op;
    gsim_process_t  *p, *before;

    p = zh->process;

    if (tag != zh->attempt || zh->closed || zh->astray || zh->state < 0) {
        return;
    }

    until = ngx_max(p->stopped, p->down[1]);

    if (until > gsim_now) {
        gsim_at(until + gsim_below(200), gsim_connect_answered, zh, tag);
        return;
    }

    zh->heard = gsim_now;
    zh->asked = gsim_now;

    before = gsim_enter_thread(p);

    if (zh->conn == NULL) {
        gsim_state(zh, ZOO_EXPIRED_SESSION_STATE);
        gsim_fail_ops(zh, ZSESSIONEXPIRED);
        gsim_leave_thread(before);
        return;
    }

    zh->id.client_id = zh->conn->session->id;
    memcpy(zh->id.passwd, zh->conn->session->password, 16);

    gsim_server_rewatch(zh->conn, zh->watches, zh->seen);

    for (op = zh->ops; op != NULL; op = op->next) {
        op->sent = 1;
        gsim_server_send(zh->conn, op->request);
    }

    gsim_state(zh, ZOO_CONNECTED_STATE);

    gsim_leave_thread(before);
}


/* Sends pings, and breaks a connection that is silent for too long. */

static void
gsim_pulse_event(void *data, uint64_t tag)
{
    zhandle_t *zh = data;

    int64_t          t;
    gsim_process_t  *p;

    (void) tag;

    p = zh->process;

    if (zh->closed || p->state == GSIM_DEAD || zh->state < 0) {
        return;
    }

    t = (int64_t) zh->timeout * GSIM_MS;

    if (p->stopped > gsim_now) {
        gsim_at(p->stopped + gsim_between(1, 2000), gsim_pulse_event, zh, 0);
        return;
    }

    if (zh->conn != NULL) {

        if (gsim_now - zh->heard > 2 * t / 3) {
            gsim_client_break(zh->conn, ZOPERATIONTIMEOUT);

        } else if (zh->state == ZOO_CONNECTED_STATE && zh->ops == NULL
                   && gsim_now - zh->asked >= t / 3)
        {
            zh->asked = gsim_now;
            gsim_server_send(zh->conn, gsim_request(GSIM_PING, "/", NULL, 0));
        }
    }

    gsim_at(gsim_now + t / 6, gsim_pulse_event, zh, 0);
}


static void
gsim_state(zhandle_t *zh, int state)
{
    zh->state = state;

    gsim_say("library: session %llx is %s", (long long) zh->id.client_id,
             state == ZOO_CONNECTED_STATE ? "connected"
             : state == ZOO_EXPIRED_SESSION_STATE ? "expired" : "suspended");

    zh->watcher(zh, ZOO_SESSION_EVENT, state, "", zh->context);
}


void
gsim_client_break(gsim_conn_t *conn, int code)
{
    int              was;
    zhandle_t       *zh;
    gsim_process_t  *before;

    zh = conn->handle;

    if (zh->conn != conn) {
        return;
    }

    if (gsim_lates) {
        gsim_client_cut(conn, 4);

    } else {
        gsim_server_cut(conn, gsim_chance(2));
    }

    zh->conn = NULL;

    if (zh->closed) {
        return;
    }

    before = gsim_enter_thread(zh->process);

    was = zh->state;
    zh->state = ZOO_NOTCONNECTED_STATE;

    if (was == ZOO_CONNECTED_STATE) {
        conn->session->away = gsim_now;
        gsim_state(zh, ZOO_CONNECTING_STATE);
    }

    gsim_fail_ops(zh, code);

    gsim_leave_thread(before);

    gsim_connect_soon(zh, gsim_chance(3) ? gsim_between(1, 300) * GSIM_MS
                                         : gsim_between(100, 5000));
}


static void
gsim_fail_ops(zhandle_t *zh, int code)
{
    gsim_op_t  *op;

    while (zh->ops != NULL) {
        op = zh->ops;
        zh->ops = op->next;

        gsim_complete(zh, op, code);
    }

    zh->ops_end = &zh->ops;
}


void
gsim_client_dead(gsim_process_t *p)
{
    zhandle_t  *zh;

    for (zh = gsim_handles; zh != NULL; zh = zh->next) {

        if (zh->process != p || zh->closed) {
            continue;
        }

        zh->closed = 1;

        if (zh->conn != NULL) {
            gsim_client_cut(zh->conn, 3);
            zh->conn = NULL;
        }
    }
}


static void
gsim_client_cut(gsim_conn_t *conn, unsigned late)
{
    int  lost;

    lost = gsim_chance(2);

    if (gsim_chance(late)) {
        lost = 1;
        gsim_server_linger(conn);
    }

    gsim_server_cut(conn, lost);
}


void
gsim_client_fail_server(gsim_process_t *p)
{
    zhandle_t  *zh;

    for (zh = gsim_handles; zh != NULL; zh = zh->next) {
        if (zh->process == p && !zh->closed && zh->conn != NULL) {
            gsim_member_fail(zh->conn->member);
            return;
        }
    }
}


void
gsim_client_break_process(gsim_process_t *p)
{
    zhandle_t  *zh;

    for (zh = gsim_handles; zh != NULL; zh = zh->next) {
        if (zh->process == p && !zh->closed && zh->conn != NULL) {
            gsim_client_break(zh->conn, ZCONNECTIONLOSS);
            return;
        }
    }
}


int
zookeeper_close(zhandle_t *zh)
{
    int64_t       until;
    gsim_conn_t  *conn;

    gsim_point();

    if (zh->conn != NULL && zh->state == ZOO_CONNECTED_STATE) {

        conn = zh->conn;
        zh->closing = 1;

        if (zh->ops != NULL && gsim_chance(4)) {

            /* unread answers reset the connection, and lose the close */

            gsim_say("library: the close is lost");
            gsim_server_cut(conn, 1);

        } else {
            conn->session->closer = zh->process;
            gsim_server_send(conn, gsim_request(GSIM_CLOSE, "/", NULL, 0));

            /* libzookeeper waits until the request is sent, no longer */

            until = gsim_now + (gsim_chance(2) ? 1500 * GSIM_MS
                                               : gsim_below(2 * GSIM_MS));

            while (!conn->session->over && !conn->cut && gsim_now < until) {
                gsim_sleep(500);
            }

            if (zh->conn != NULL) {
                gsim_server_cut(conn, 0);
            }
        }
    }

    /* either all operations in flight complete, or all completions are lost */

    if (gsim_chance(2)) {
        gsim_fail_ops(zh, ZCLOSING);
    }

    if (zh->conn != NULL && !zh->conn->cut) {
        gsim_server_cut(zh->conn, 0);
    }

    zh->conn = NULL;
    zh->closed = 1;

    return ZOK;
}


int
zoo_set_servers(zhandle_t *zh, const char *hosts)
{
    (void) hosts;

    gsim_point();

    zh->astray = 1;

    if (zh->conn != NULL) {
        gsim_server_cut(zh->conn, gsim_chance(4));
        zh->conn = NULL;
        zh->state = 999;
    }

    return ZOK;
}


int
zoo_set_servers_resolution_delay(zhandle_t *zh, int delay_ms)
{
    (void) zh;
    (void) delay_ms;

    return ZOK;
}


int
zoo_add_auth(zhandle_t *zh, const char *scheme, const char *cert, int certLen,
    void_completion_t completion, const void *data)
{
    (void) zh;
    (void) scheme;
    (void) cert;
    (void) certLen;
    (void) completion;
    (void) data;

    return ZOK;
}


const clientid_t *
zoo_client_id(zhandle_t *zh)
{
    return &zh->id;
}


int
zoo_recv_timeout(zhandle_t *zh)
{
    return zh->timeout;
}


int
zoo_state(zhandle_t *zh)
{
    return zh->state;
}


void
zoo_set_debug_level(ZooLogLevel logLevel)
{
    (void) logLevel;
}


const char *
zerror(int c)
{
    static char  text[32];

    snprintf(text, sizeof(text), "error %d", c);

    return text;
}


/* requests */

static gsim_request_t *
gsim_request(gsim_request_e type, const char *path, const char *value,
    int len)
{
    gsim_request_t  *r;

    r = gsim_alloc(sizeof(gsim_request_t));

    r->type = type;
    r->path = gsim_text(path, strlen(path));
    r->len = (len > 0) ? (size_t) len : 0;
    r->data = gsim_text(value, r->len);
    r->version = -1;

    return r;
}


static gsim_op_t *
gsim_op(zhandle_t *zh, gsim_request_e type, const char *path,
    const char *value, int len, const void *data)
{
    gsim_op_t  *op;

    gsim_point();

    if (zh->state < 0 || zh->closed) {
        return NULL;
    }

    op = gsim_alloc(sizeof(gsim_op_t));

    op->request = gsim_request(type, path, value, len);
    op->data = data;

    return op;
}


static int
gsim_submit(zhandle_t *zh, gsim_op_t *op)
{
    *zh->ops_end = op;
    zh->ops_end = &op->next;

    zh->asked = gsim_now;

    if (zh->state == ZOO_CONNECTED_STATE) {
        op->sent = 1;
        gsim_server_send(zh->conn, op->request);
        gsim_fault_doze(zh->process);
    }

    return ZOK;
}


int
zoo_acreate2(zhandle_t *zh, const char *path, const char *value, int valuelen,
    const struct ACL_vector *acl, int mode,
    string_stat_completion_t completion, const void *data)
{
    gsim_op_t  *op;

    (void) acl;

    op = gsim_op(zh, GSIM_CREATE, path, value, valuelen, data);
    if (op == NULL) {
        return ZINVALIDSTATE;
    }

    op->request->flags = mode;
    op->u.created = completion;

    return gsim_submit(zh, op);
}


int
zoo_adelete(zhandle_t *zh, const char *path, int version,
    void_completion_t completion, const void *data)
{
    gsim_op_t  *op;

    op = gsim_op(zh, GSIM_DELETE, path, NULL, 0, data);
    if (op == NULL) {
        return ZINVALIDSTATE;
    }

    op->request->version = version;
    op->u.done = completion;

    return gsim_submit(zh, op);
}


int
zoo_aset(zhandle_t *zh, const char *path, const char *buffer, int buflen,
    int version, stat_completion_t completion, const void *data)
{
    gsim_op_t  *op;

    op = gsim_op(zh, GSIM_SET, path, buffer, buflen, data);
    if (op == NULL) {
        return ZINVALIDSTATE;
    }

    op->request->version = version;
    op->u.stat = completion;

    return gsim_submit(zh, op);
}


int
zoo_awget(zhandle_t *zh, const char *path, watcher_fn watcher,
    void *watcherCtx, data_completion_t completion, const void *data)
{
    gsim_op_t  *op;

    (void) watcherCtx;

    op = gsim_op(zh, GSIM_GET, path, NULL, 0, data);
    if (op == NULL) {
        return ZINVALIDSTATE;
    }

    op->request->watch = (watcher != NULL);
    op->u.got = completion;

    return gsim_submit(zh, op);
}


int
zoo_awexists(zhandle_t *zh, const char *path, watcher_fn watcher,
    void *watcherCtx, stat_completion_t completion, const void *data)
{
    gsim_op_t  *op;

    (void) watcherCtx;

    op = gsim_op(zh, GSIM_EXISTS, path, NULL, 0, data);
    if (op == NULL) {
        return ZINVALIDSTATE;
    }

    op->request->watch = (watcher != NULL);
    op->u.stat = completion;

    return gsim_submit(zh, op);
}


int
zoo_awget_children2(zhandle_t *zh, const char *path, watcher_fn watcher,
    void *watcherCtx, strings_stat_completion_t completion, const void *data)
{
    gsim_op_t  *op;

    (void) watcherCtx;

    op = gsim_op(zh, GSIM_LIST, path, NULL, 0, data);
    if (op == NULL) {
        return ZINVALIDSTATE;
    }

    op->request->watch = (watcher != NULL);
    op->u.list = completion;

    return gsim_submit(zh, op);
}


int
zoo_async(zhandle_t *zh, const char *path, string_completion_t completion,
    const void *data)
{
    gsim_op_t  *op;

    op = gsim_op(zh, GSIM_SYNC, path, NULL, 0, data);
    if (op == NULL) {
        return ZINVALIDSTATE;
    }

    op->u.string = completion;

    return gsim_submit(zh, op);
}


void
zoo_create_op_init(zoo_op_t *op, const char *path, const char *value,
    int valuelen, const struct ACL_vector *acl, int mode, char *path_buffer,
    int path_buffer_len)
{
    op->type = GSIM_CREATE;
    op->create_op.path = path;
    op->create_op.data = value;
    op->create_op.datalen = valuelen;
    op->create_op.acl = acl;
    op->create_op.flags = mode;
    op->create_op.buf = path_buffer;
    op->create_op.buflen = path_buffer_len;
}


void
zoo_delete_op_init(zoo_op_t *op, const char *path, int version)
{
    op->type = GSIM_DELETE;
    op->delete_op.path = path;
    op->delete_op.version = version;
}


void
zoo_set_op_init(zoo_op_t *op, const char *path, const char *buffer, int buflen,
    int version, struct Stat *stat)
{
    op->type = GSIM_SET;
    op->set_op.path = path;
    op->set_op.data = buffer;
    op->set_op.datalen = buflen;
    op->set_op.version = version;
    op->set_op.stat = stat;
}


void
zoo_check_op_init(zoo_op_t *op, const char *path, int version)
{
    op->type = GSIM_CHECK;
    op->check_op.path = path;
    op->check_op.version = version;
}


int
zoo_amulti(zhandle_t *zh, int count, const zoo_op_t *ops,
    zoo_op_result_t *results, void_completion_t completion, const void *data)
{
    int              i;
    gsim_op_t       *op;
    gsim_request_t  *part, **end;

    op = gsim_op(zh, GSIM_MULTI, "/", NULL, 0, data);
    if (op == NULL) {
        return ZINVALIDSTATE;
    }

    op->u.done = completion;
    op->results = results;
    op->nops = count;
    op->zops = gsim_alloc((size_t) count * sizeof(zoo_op_t));
    memcpy(op->zops, ops, (size_t) count * sizeof(zoo_op_t));

    end = &op->request->parts;

    for (i = 0; i < count; i++) {

        switch ((gsim_request_e) ops[i].type) {

        case GSIM_CREATE:
            part = gsim_request(GSIM_CREATE, ops[i].create_op.path,
                                ops[i].create_op.data,
                                ops[i].create_op.datalen);
            part->flags = ops[i].create_op.flags;
            break;

        case GSIM_DELETE:
            part = gsim_request(GSIM_DELETE, ops[i].delete_op.path, NULL, 0);
            part->version = ops[i].delete_op.version;
            break;

        case GSIM_CHECK:
            part = gsim_request(GSIM_CHECK, ops[i].check_op.path, NULL, 0);
            part->version = ops[i].check_op.version;
            break;

        default: /* GSIM_SET */
            part = gsim_request(GSIM_SET, ops[i].set_op.path,
                                ops[i].set_op.data, ops[i].set_op.datalen);
            part->version = ops[i].set_op.version;
            break;
        }

        *end = part;
        end = &part->next;
    }

    return gsim_submit(zh, op);
}


/* answers */

void
gsim_client_receive(gsim_conn_t *conn, gsim_message_t *m)
{
    gsim_op_t       *op;
    zhandle_t       *zh;
    gsim_process_t  *before;

    zh = conn->handle;

    if (zh->conn != conn || zh->closed) {
        return;
    }

    if (m->closed) {
        gsim_client_break(conn, ZCONNECTIONLOSS);
        return;
    }

    zh->heard = gsim_now;

    if (m->zxid > zh->seen) {
        zh->seen = m->zxid;
    }

    before = gsim_enter_thread(zh->process);

    if (m->reply == NULL) {
        gsim_client_event(zh, m);

    } else if (m->reply->type != GSIM_PING && m->reply->type != GSIM_CLOSE)
    {
        op = zh->ops;

        /* in the order of the requests */

        if (op == NULL || op->request != m->reply) {
            gsim_violation("gateway_sim: an answer out of order");
        }

        zh->ops = op->next;

        if (zh->ops == NULL) {
            zh->ops_end = &zh->ops;
        }

        gsim_complete(zh, op, m->reply->code);
    }

    gsim_leave_thread(before);
}


static void
gsim_client_event(zhandle_t *zh, gsim_message_t *m)
{
    int  found;

    /* only a watch that the client has set fires */

    found = 0;

    if (m->event == ZOO_CHILD_EVENT || m->event == ZOO_DELETED_EVENT) {
        found |= gsim_watch_take(zh, GSIM_LIST, m->path);
    }

    if (m->event != ZOO_CHILD_EVENT) {
        found |= gsim_watch_take(zh, GSIM_GET, m->path);
        found |= gsim_watch_take(zh, GSIM_EXISTS, m->path);
    }

    if (found) {
        zh->watcher(zh, m->event, zh->state, m->path, zh->context);
    }
}


static void
gsim_watch_set(zhandle_t *zh, int type, char *path)
{
    gsim_watch_t  *watch;

    (void) gsim_watch_take(zh, type, path);

    watch = gsim_alloc(sizeof(gsim_watch_t));

    watch->type = type;
    watch->path = path;
    watch->next = zh->watches;
    zh->watches = watch;
}


static zhandle_t *
gsim_client_handle(gsim_process_t *p, int64_t id)
{
    zhandle_t  *zh;

    for (zh = gsim_handles; zh != NULL; zh = zh->next) {
        if (zh->process == p && zh->id.client_id == id && !zh->closing
            && !zh->closed)
        {
            return zh;
        }
    }

    return NULL;
}


int
gsim_client_flights(gsim_process_t *p, int64_t id)
{
    int         n;
    zhandle_t  *zh;
    gsim_op_t  *op;

    zh = gsim_client_handle(p, id);

    if (zh == NULL || zh->state != ZOO_CONNECTED_STATE || gsim_wake_ready(p)) {
        return -1;
    }

    for (n = 0, op = zh->ops; op != NULL; op = op->next) {
        n++;
    }

    return n;
}


int64_t
gsim_client_seen(gsim_process_t *p, int64_t id)
{
    zhandle_t  *zh;

    zh = gsim_client_handle(p, id);

    return (zh != NULL) ? zh->seen : 1;
}


int
gsim_client_watches(gsim_process_t *p, int64_t id, const char *path, int list,
    int64_t since)
{
    zhandle_t     *zh;
    gsim_watch_t  *watch;

    zh = gsim_client_handle(p, id);

    if (zh == NULL || zh->opened > since) {
        return 1;
    }

    for (watch = zh->watches; watch != NULL; watch = watch->next) {
        if ((watch->type == GSIM_LIST) == list
            && strcmp(watch->path, path) == 0)
        {
            return 1;
        }
    }

    for (watch = zh->fired; watch != NULL; watch = watch->next) {
        if (watch->at >= since && (watch->type == GSIM_LIST) == list
            && strcmp(watch->path, path) == 0)
        {
            return 1;
        }
    }

    return 0;
}


int
gsim_client_has(gsim_process_t *p, int64_t id, const char *path,
    gsim_request_e type)
{
    zhandle_t     *zh;
    gsim_watch_t  *watch;

    zh = gsim_client_handle(p, id);

    for (watch = zh ? zh->watches : NULL; watch; watch = watch->next) {
        if (watch->type == (int) type && strcmp(watch->path, path) == 0) {
            return 1;
        }
    }

    return 0;
}


int64_t
gsim_client_watched(gsim_process_t *p, int64_t id)
{
    int64_t        bytes;
    zhandle_t     *zh;
    gsim_watch_t  *watch;

    if (gsim_wake_ready(p)) {
        return -1;
    }

    zh = gsim_client_handle(p, id);

    /* the session counts a watch of EXISTS as that of a list */

    if (zh == NULL || zh->state != ZOO_CONNECTED_STATE || zh->ops != NULL
        || zh->exists)
    {
        return -1;
    }

    /* 4 bytes of length; the key of a list's watch ends with a NUL */

    for (bytes = 0, watch = zh->watches; watch != NULL; watch = watch->next) {
        bytes += 4 + (int64_t) strlen(watch->path)
                 + (watch->type == GSIM_LIST);
    }

    return bytes;
}


static int
gsim_watch_take(zhandle_t *zh, int type, const char *path)
{
    gsim_watch_t  *watch, **p;

    for (p = &zh->watches; *p != NULL; p = &watch->next) {
        watch = *p;

        if (watch->type == type && strcmp(watch->path, path) == 0) {
            *p = watch->next;

            watch->at = gsim_now;
            watch->next = zh->fired;
            zh->fired = watch;

            return 1;
        }
    }

    return 0;
}


static void
gsim_stat(struct Stat *stat, gsim_node_t *node, gsim_data_t *value)
{
    memset(stat, 0, sizeof(struct Stat));

    stat->czxid = node->created;
    stat->ctime = node->ctime;
    stat->ephemeralOwner = node->owner;

    if (value != NULL) {
        stat->mzxid = value->zxid;
        stat->version = value->version;
        stat->dataLength = (int32_t) value->len;
    }
}


static void
gsim_complete(zhandle_t *zh, gsim_op_t *op, int code)
{
    struct Stat      stat;
    gsim_request_t  *r;

    r = op->request;

    if (r->watch && (code == ZOK
                     || (code == ZNONODE && r->type == GSIM_EXISTS)))
    {
        zh->exists |= (r->type == GSIM_EXISTS);

        gsim_watch_set(zh, code == ZOK && r->type == GSIM_EXISTS ? GSIM_GET
                                                                 : r->type,
                       r->path);
    }

    if (code == ZOK && r->node != NULL) {
        gsim_stat(&stat, r->node, r->value);
        gsim_known(zh, r);
    }

    switch (r->type) {

    case GSIM_CREATE:
        op->u.created(code, code == ZOK ? r->node->path : NULL,
                      code == ZOK ? &stat : NULL, op->data);
        break;

    case GSIM_MULTI:
        gsim_complete_multi(zh, op, code);
        op->u.done(code, op->data);
        break;

    case GSIM_DELETE:
        op->u.done(code, op->data);
        break;

    case GSIM_SYNC:
        op->u.string(code, r->path, op->data);
        break;

    case GSIM_SET:
    case GSIM_EXISTS:
        op->u.stat(code, code == ZOK ? &stat : NULL, op->data);
        break;

    case GSIM_GET:
        op->u.got(code, code == ZOK ? r->value->bytes : NULL,
                  code == ZOK ? (int) r->value->len : -1,
                  code == ZOK ? &stat : NULL, op->data);
        break;

    default: /* GSIM_LIST */
        gsim_complete_list(op, code);
        break;
    }
}


static void
gsim_complete_list(gsim_op_t *op, int code)
{
    size_t                i, k;
    char                 *name;
    int32_t               creates;
    struct Stat           stat;
    gsim_node_t          *child;
    gsim_request_t       *r;
    struct String_vector  names;

    r = op->request;

    if (code != ZOK) {
        op->u.list(code, NULL, NULL, op->data);
        return;
    }

    creates = 0;

    for (names.count = 0, child = r->node->children;
         child != NULL;
         child = child->sibling)
    {
        creates += (child->created <= r->seen);
        names.count += (child->created <= r->seen && child->deleted > r->seen);
    }

    /* a stat shows the creates and the deletes of children */

    gsim_stat(&stat, r->node, gsim_tree_data(r->node, r->seen));

    stat.numChildren = names.count;
    stat.cversion = creates * 2 - names.count;

    names.data = gsim_alloc(((size_t) names.count + 1) * sizeof(char *));

    for (i = 0, child = r->node->children; child; child = child->sibling) {
        if (child->created <= r->seen && child->deleted > r->seen) {
            names.data[i++] = child->name;
        }
    }

    gsim_say("library: %s has %d children at %llx", r->path, names.count,
             (long long) r->seen);

    /* in no particular order */

    while (i > 1) {
        k = (size_t) gsim_below((int64_t) i--);
        name = names.data[k];
        names.data[k] = names.data[i];
        names.data[i] = name;
    }

    op->u.list(code, &names, &stat, op->data);
}


/* The gateway knows the version of the data from now on. */

static void
gsim_known(zhandle_t *zh, gsim_request_t *r)
{
    gsim_data_t  *data;

    data = (r->type == GSIM_CREATE) ? gsim_tree_data(r->node, r->zxid)
                                    : r->value;

    if (data != NULL) {
        data->known |= 1U << zh->process->gateway->index;
    }
}


static void
gsim_complete_multi(zhandle_t *zh, gsim_op_t *op, int code)
{
    int              i;
    zoo_op_t        *zop;
    gsim_request_t  *part;

    if (code <= ZSYSTEMERROR && code > ZAPIERROR) {
        return;
    }

    for (i = 0, part = op->request->parts; i < op->nops; part = part->next) {

        zop = &op->zops[i];
        op->results[i++].err = part->code;

        if (code != ZOK) {
            continue;
        }

        if (part->node != NULL) {
            gsim_known(zh, part);
        }

        if (part->type == GSIM_CREATE && zop->create_op.buf != NULL) {
            snprintf(zop->create_op.buf, (size_t) zop->create_op.buflen, "%s",
                     part->node->path);

        } else if (part->type == GSIM_SET && zop->set_op.stat != NULL) {
            gsim_stat(zop->set_op.stat, part->node, part->value);
        }
    }
}
