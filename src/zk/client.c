
/*
 * The client of libzookeeper_mt.
 *
 * Functions named *_foreign run on the I/O or completion thread of
 * libzookeeper.  They only copy the arguments into an operation or a new
 * message, and post this to the mailbox.  The event loop runs the rest, and
 * waits for the network only in zkl_client_close().
 *
 * Defects of libzookeeper that the client works around:
 *
 * - A name that does not resolve makes libzookeeper hang or spin, and
 *   libzookeeper resolves names for every packet.  So only numeric addresses
 *   are given, with a resolution delay of -1.
 * - Signals are blocked around the start of the threads, which do not block
 *   any.
 * - All watches have the same function and context, because each distinct pair
 *   costs a walk over all pairs at each event.
 * - Watches are never removed; the session ignores a late event.
 * - A container in a transaction makes libzookeeper misread the results, so a
 *   container is created alone.  An invalid path in a transaction makes
 *   libzookeeper free garbage, so the callers check paths first.
 * - The log callback has no context and no level, and runs on any thread.
 * - No result of malloc() is checked: the worker dies if there is no memory.
 * - zoo_set_servers() replaces the list of servers while the I/O thread may log
 *   the old list, or step through the old list.  If the server of the
 *   connection is not in the new list, and at random if the new list is longer,
 *   zoo_set_servers() also closes the socket and frees the TLS state under the
 *   I/O thread, tells no watcher, and completes no operation.  So only a worker
 *   that ends, or a handle without a connection, gets another list.
 * - zoo_set_servers() does not wake the I/O thread, which may wait for an
 *   address of the old list: a request wakes the thread.
 * - Lists that differ in ports alone are the same list to zoo_set_servers().
 * - An IPv6 address in brackets is no address: the port is behind the last
 *   colon.
 * - After an address that does not answer, libzookeeper skips an address.  With
 *   an even number of addresses half of them would never be tried, and without
 *   a pause: so the number is made odd.
 */


#include <ngx_config.h>

#define THREADED

#if (NGX_HTTP_ZK_LOCK_SSL)
#define HAVE_OPENSSL_H 1
#endif

#include <zookeeper/zookeeper.h>

#include <pthread.h>
#include <signal.h>

#include "zk/client.h"


/* KeeperException.Code.QUOTAEXCEEDED, which libzookeeper has no name for */
#define ZKL_CODE_QUOTA                (-125)

/* log lines in flight; further lines are counted and dropped */
#define ZKL_LINES_MAX                 64

#define ZKL_LINE_LEN                  480

/* while ZooKeeper is away, the interval between two logged lines, in ms */
#define ZKL_LINES_AGAIN               10000

/* RENAME sets the new znode's data if the claim's version is below this */
#define ZKL_VERSIONS                  (ZKL_BATCH_MAX - 4)


struct zkl_handle_s {
    zhandle_t                       *zh;
    zkl_session_t                   *session;
    ngx_uint_t                       serial;
    zkl_message_pt                   deliver;
    zkl_mailbox_t                   *mailbox;
    ngx_log_t                       *log;
    struct ACL_vector               *acl;
    struct ACL                       entry;     /* the entry of acl, without the
                                                   right to create children */
    struct ACL_vector                childless; /* for a lock's znode that is
                                                   itself a claim */
    size_t                           chroot_len;

    zkl_news_t                      *missed;
    ngx_atomic_t                     missing;   /* missed was posted */
};

typedef struct {
    zkl_message_t                    message;   /* must be first */
    ngx_uint_t                       level;     /* 0: no text, but there is a
                                                   connection */
    size_t                           len;
    u_char                           text[ZKL_LINE_LEN];
} zkl_line_t;

typedef struct {
    struct Stat                      gate;
    struct Stat                      set;       /* of all SET parts; not read */
    zoo_op_result_t                  elts[ZKL_BATCH_MAX + 1];
} zkl_results_t;


typedef struct {
    struct Stat                      gate;
    zoo_op_result_t                  result;
} zkl_barrier_t;


static void zkl_client_level(ngx_log_t *log);
static char *zkl_client_hosts(zkl_session_conf_t *conf, ngx_log_t *log);
static zhandle_t *zkl_client_init(zkl_session_conf_t *conf, char *hosts,
    ngx_msec_t timeout, const clientid_t *id, zkl_handle_t *h);
static int zkl_client_submit_barrier(zhandle_t *zh, zkl_handle_t *h,
    zkl_op_t *op);
static int zkl_client_submit_create(zhandle_t *zh, zkl_handle_t *h,
    zkl_op_t *op);
static int zkl_client_submit_rename(zhandle_t *zh, zkl_handle_t *h,
    zkl_op_t *op);
static ngx_uint_t zkl_client_fill_batch(zkl_handle_t *h, zkl_batch_t *batch,
    zoo_op_t *zops);
static void zkl_client_woken_foreign(int code, const struct Stat *stat,
    const void *data);
static void zkl_client_post_foreign(zkl_flight_t *flight, int code);
static void zkl_client_watch_foreign(zhandle_t *zh, int type, int state,
    const char *path, void *data);
static void zkl_client_news_foreign(zkl_handle_t *h, zkl_news_e news,
    const char *path);
static void zkl_client_created_foreign(int code, const char *path,
    const struct Stat *stat, const void *data);
static void zkl_client_done_foreign(int code, const void *data);
static void zkl_client_set_foreign(int code, const struct Stat *stat,
    const void *data);
static void zkl_client_reply_foreign(zkl_op_t *op, const char *value,
    size_t len);
static void zkl_client_got_foreign(int code, const char *value, int len,
    const struct Stat *stat, const void *data);
static void zkl_client_listed_foreign(int code,
    const struct String_vector *strings, const struct Stat *stat,
    const void *data);
static void zkl_client_log_foreign(const char *text);
static zkl_line_t *zkl_client_line_foreign(void);
static void zkl_client_post_line_foreign(zkl_line_t *line);
static void zkl_client_connected_foreign(void);
static void zkl_client_log(zkl_message_t *message, void *data);
static void zkl_client_line(zkl_line_t *line);
static void zkl_client_left_out(void);


/*
 * The context that the log callback lacks: a worker has only this mailbox.  Set
 * before the first handle is opened, never reset.
 */

static zkl_mailbox_t  *zkl_client_mailbox;
static ngx_atomic_t        zkl_client_lines;
static ngx_atomic_t        zkl_client_dropped;
static ngx_log_t          *zkl_client_cycle_log;

/*
 * Without a connection libzookeeper repeats its lines several times a second.
 * So the first line is logged, and further lines are only counted.  Only the
 * event loop uses these variables.
 */

static ngx_uint_t          zkl_client_away;
static ngx_uint_t          zkl_client_more;
static ngx_msec_t          zkl_client_told;


zkl_handle_t *
zkl_client_open(zkl_session_conf_t *conf, const zkl_key_t *key,
    ngx_msec_t timeout, zkl_session_t *session, ngx_uint_t serial,
    zkl_message_pt deliver, zkl_mailbox_t *mailbox, ngx_log_t *log)
{
    int            rc;
    char          *hosts;
    sigset_t       all, old;
    clientid_t     id;
    zkl_handle_t  *h;

    h = ngx_calloc(sizeof(zkl_handle_t), log);
    if (h == NULL) {
        return NULL;
    }

    h->missed = malloc(sizeof(zkl_news_t));
    if (h->missed == NULL) {
        ngx_free(h);
        return NULL;
    }

    hosts = zkl_client_hosts(conf, log);
    if (hosts == NULL) {
        free(h->missed);
        ngx_free(h);
        return NULL;
    }

    h->session = session;
    h->serial = serial;
    h->deliver = deliver;
    h->mailbox = mailbox;
    h->log = log;
    h->acl = conf->auth_scheme.len ? &ZOO_CREATOR_ALL_ACL
                                   : &ZOO_OPEN_ACL_UNSAFE;
    h->entry = h->acl->data[0];
    h->entry.perms &= ~ZOO_PERM_CREATE;
    h->childless.count = 1;
    h->childless.data = &h->entry;
    h->chroot_len = conf->chroot.len;

    /* threads of open handles may read the variable, so the write is rare */

    if (zkl_client_mailbox != mailbox) {
        zkl_client_mailbox = mailbox;
    }

    zkl_client_cycle_log = log;

    zkl_client_level(log);

    if (key != NULL) {
        id.client_id = key->id;
        ngx_memcpy(id.passwd, key->password, sizeof(id.passwd));
    }

    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_SETMASK, &all, &old);

    h->zh = zkl_client_init(conf, hosts, timeout, key ? &id : NULL, h);

    (void) pthread_sigmask(SIG_SETMASK, &old, NULL);

    ngx_free(hosts);

    if (h->zh == NULL) {
        ngx_log_error(NGX_LOG_ERR, log, ngx_errno, "zookeeper_init() failed");
        free(h->missed);
        ngx_free(h);
        return NULL;
    }

    (void) zoo_set_servers_resolution_delay(h->zh, -1);

    if (conf->auth_scheme.len) {
        rc = zoo_add_auth(h->zh, (char *) conf->auth_scheme.data,
                          (char *) conf->auth.data, (int) conf->auth.len, NULL,
                          NULL);

        if (rc != ZOK) {
            ngx_log_error(NGX_LOG_ERR, log, 0, "zoo_add_auth() failed: %s",
                          zerror(rc));
        }
    }

    return h;
}


static void
zkl_client_level(ngx_log_t *log)
{
    zoo_set_debug_level(log->log_level >= NGX_LOG_INFO ? ZOO_LOG_LEVEL_INFO
                                                       : ZOO_LOG_LEVEL_WARN);
}


/* The servers, an odd number of them; NULL: no memory. */

static char *
zkl_client_hosts(zkl_session_conf_t *conf, ngx_log_t *log)
{
    size_t      first;
    u_char     *hosts, *p, *comma, *last;
    ngx_uint_t  n;

    last = conf->servers.data + conf->servers.len;
    first = conf->servers.len;
    n = 1;

    for (p = conf->servers.data; p < last; p = comma + 1) {

        comma = ngx_strlchr(p, last, ',');
        if (comma == NULL) {
            break;
        }

        if (n++ == 1) {
            first = comma - conf->servers.data;
        }
    }

    hosts = ngx_alloc(conf->servers.len + 1 + first + 1, log);
    if (hosts == NULL) {
        return NULL;
    }

    p = ngx_cpymem(hosts, conf->servers.data, conf->servers.len);

    if (n % 2 == 0) {
        *p++ = ',';
        p = ngx_cpymem(p, conf->servers.data, first);
    }

    *p = '\0';

    return (char *) hosts;
}


/*
 * With TLS the log callback cannot be given at once.  Until the callback is
 * set, libzookeeper would write to stderr, which mostly is the error log, and
 * would show the session's id.
 */

static zhandle_t *
zkl_client_init(zkl_session_conf_t *conf, char *hosts, ngx_msec_t timeout,
    const clientid_t *id, zkl_handle_t *h)
{
#if (NGX_HTTP_ZK_LOCK_SSL)

    zhandle_t  *zh;

    if (conf->certificates.len) {
        zoo_set_debug_level(0);

        zh = zookeeper_init_ssl(hosts, (char *) conf->certificates.data,
                                zkl_client_watch_foreign, (int) timeout, id, h,
                                ZOO_NO_LOG_CLIENTENV);
        if (zh != NULL) {
            zoo_set_log_callback(zh, zkl_client_log_foreign);
        }

        zkl_client_level(h->log);

        return zh;
    }

#endif

    return zookeeper_init2(hosts, zkl_client_watch_foreign, (int) timeout, id,
                           h, ZOO_NO_LOG_CLIENTENV, zkl_client_log_foreign);
}


void
zkl_client_close(zkl_handle_t *h)
{
    int  rc;

    rc = zookeeper_close(h->zh);

    if (rc != ZOK && rc != ZINVALIDSTATE) {
        ngx_log_error(NGX_LOG_WARN, h->log, 0, "zookeeper_close() failed: %s",
                      zerror(rc));
    }

    if (!h->missing) {
        free(h->missed);
    }

    ngx_free(h);
}


/*
 * libzookeeper has no call for this.  When the server of the connection is not
 * in the new list, libzookeeper cuts the connection at once, and a handle
 * without a connection is closed without a request to ZooKeeper.
 */

void
zkl_client_cut(zkl_handle_t *h)
{
    int  rc;

    /* the I/O thread logs the list that is freed here */

    zoo_set_debug_level(0);

    rc = zoo_set_servers(h->zh, "127.0.0.9:1");

    zkl_client_level(h->log);

    if (rc != ZOK) {
        ngx_log_error(NGX_LOG_ERR, h->log, 0, "zoo_set_servers() failed: %s",
                      zerror(rc));
    }
}


/*
 * When a connection breaks, the I/O thread steps through the list without a
 * lock just after it has told the news: so the session calls this function from
 * a timer, and not when the news comes.
 *
 * In a TLS handshake the I/O thread uses what zoo_set_servers() would free, and
 * libzookeeper does not tell a handshake from an attempt to connect.
 */

ngx_uint_t
zkl_client_servers(zkl_handle_t *h, zkl_session_conf_t *conf)
{
    int    rc;
    char  *hosts;

    if (!zkl_client_idle(h, conf)) {
        return 0;
    }

    hosts = zkl_client_hosts(conf, h->log);
    if (hosts == NULL) {
        return 0;
    }

    rc = zoo_set_servers(h->zh, hosts);

    ngx_free(hosts);

    if (rc != ZOK) {
        ngx_log_error(NGX_LOG_ERR, h->log, 0, "zoo_set_servers() failed: %s",
                      zerror(rc));
        return 0;
    }

    /* if the handle is over, there is no thread to wake */

    (void) zoo_awexists(h->zh, "/", NULL, NULL, zkl_client_woken_foreign, NULL);

    return 1;
}


ngx_uint_t
zkl_client_idle(zkl_handle_t *h, zkl_session_conf_t *conf)
{
    return zoo_state(h->zh) != ZOO_CONNECTED_STATE
           && (conf->certificates.len == 0 || !zkl_client_asked(h));
}


static void
zkl_client_woken_foreign(int code, const struct Stat *stat, const void *data)
{
    /* the request was only sent to wake the I/O thread */
}


ngx_msec_t
zkl_client_timeout(zkl_handle_t *h)
{
    int  timeout;

    timeout = zoo_recv_timeout(h->zh);

    return (timeout > 0) ? (ngx_msec_t) timeout : 0;
}


ngx_uint_t
zkl_client_asked(zkl_handle_t *h)
{
    int  state;

    state = zoo_state(h->zh);

    return state != 0 && state != ZOO_NOTCONNECTED_STATE;
}


void
zkl_client_key(zkl_handle_t *h, zkl_key_t *key)
{
    const clientid_t  *id;

    id = zoo_client_id(h->zh);

    key->id = id->client_id;
    ngx_memcpy(key->password, id->passwd, sizeof(key->password));
}


int
zkl_client_submit(zkl_handle_t *h, zkl_op_t *op)
{
    char       *path;
    zhandle_t  *zh;

    zh = h->zh;
    path = (char *) op->path.data;

    switch (op->type) {

    case ZKL_OP_CREATE:
    case ZKL_OP_GATE:
    case ZKL_OP_CONTAINER:
    case ZKL_OP_PERSISTENT:
        return zkl_client_submit_create(zh, h, op);

    case ZKL_OP_DELETE:
        return zoo_adelete(zh, path, op->version, zkl_client_done_foreign, op);

    case ZKL_OP_SET:
        return zoo_aset(zh, path, (char *) op->value.data, (int) op->value.len,
                        op->version, zkl_client_set_foreign, op);

    case ZKL_OP_GET:
        return zoo_awget(zh, path, op->watch ? zkl_client_watch_foreign
                                   : NULL,
                         op->watch ? h : NULL, zkl_client_got_foreign, op);

    case ZKL_OP_RENAME:
        return zkl_client_submit_rename(zh, h, op);

    case ZKL_OP_EXISTS:
        return zoo_awexists(zh, path, op->watch ? zkl_client_watch_foreign
                                      : NULL,
                            op->watch ? h : NULL, zkl_client_set_foreign, op);

    case ZKL_OP_LIST:
        return zoo_awget_children2(zh, path, op->watch
                                   ? zkl_client_watch_foreign
                                   : NULL, op->watch ? h : NULL,
                                   zkl_client_listed_foreign, op);

    default: /* ZKL_OP_BARRIER */
        return zkl_client_submit_barrier(zh, h, op);
    }
}


/*
 * A transaction, because the leader proposes even a transaction that the leader
 * refuses.  A sync would prove nothing, because a server of a minority answers
 * a sync.
 */

static int
zkl_client_submit_barrier(zhandle_t *zh, zkl_handle_t *h, zkl_op_t *op)
{
    zoo_op_t        zop;
    zkl_barrier_t  *barrier;

    barrier = ngx_calloc(sizeof(zkl_barrier_t), h->log);
    if (barrier == NULL) {
        return ZSYSTEMERROR;
    }

    op->results = barrier;

    if (op->gate) {
        zoo_set_op_init(&zop, (char *) op->path.data, "", 0, -1,
                        &barrier->gate);

    } else {
        zoo_check_op_init(&zop, (char *) op->path.data, -1);
    }

    return zoo_amulti(zh, 1, &zop, &barrier->result, zkl_client_done_foreign,
                      op);
}


static int
zkl_client_submit_create(zhandle_t *zh, zkl_handle_t *h, zkl_op_t *op)
{
    int                 mode;
    struct ACL_vector  *acl;

    acl = h->acl;

    switch (op->type) {

    case ZKL_OP_CREATE:
        mode = ZOO_EPHEMERAL_SEQUENTIAL;
        break;

    case ZKL_OP_GATE:
        mode = ZOO_EPHEMERAL;
        break;

    case ZKL_OP_CONTAINER:
        mode = ZOO_CONTAINER;
        break;

    default: /* ZKL_OP_PERSISTENT */
        mode = ZOO_PERSISTENT;
        break;
    }

    return zoo_acreate2(zh, (char *) op->path.data, (char *) op->value.data,
                        (int) op->value.len, acl, mode,
                        zkl_client_created_foreign, op);
}


/*
 * The parent is set first: a client that watches the parent then knows, when
 * the event of the deleted znode comes, that a new znode comes.
 *
 * The versions of the new znode's data begin with 0 again.  If the new znode
 * has the name of the claim, its data are set once more often than the claim's,
 * so that a write that was meant for the claim is refused; only the last set
 * has the data.  A transaction has no room for more than ZKL_VERSIONS sets:
 * then a late write takes effect if the new znode has come to its version.
 */

static int
zkl_client_submit_rename(zhandle_t *zh, zkl_handle_t *h, zkl_op_t *op)
{
    int             n, version;
    zoo_op_t        zops[ZKL_BATCH_MAX + 1];
    zkl_results_t  *results;

    results = ngx_calloc(sizeof(zkl_results_t), h->log);
    if (results == NULL) {
        return ZSYSTEMERROR;
    }

    op->results = results;

    n = 0;

    if (op->parent.len != 0) {
        zoo_set_op_init(&zops[n++], (char *) op->parent.data,
                        (char *) op->content.data, (int) op->content.len,
                        op->version, &results->set);
    }

    zoo_delete_op_init(&zops[n++], (char *) op->path.data, op->from_version);
    zoo_create_op_init(&zops[n++], (char *) op->target.data,
                       (char *) op->value.data, (int) op->value.len,
                       op->parent.len ? h->acl : &h->childless,
                       op->persistent ? ZOO_PERSISTENT : ZOO_EPHEMERAL, NULL,
                       0);

    if (op->entry != NULL) {
        zoo_create_op_init(&zops[n++], (char *) op->entry->path.data,
                           (char *) op->entry->value.data,
                           (int) op->entry->value.len, h->acl, ZOO_PERSISTENT,
                           NULL, 0);
    }

    if (op->from_version < ZKL_VERSIONS
        && ngx_strcmp(op->target.data, op->path.data) == 0)
    {
        for (version = 0; version <= op->from_version; version++) {
            zoo_set_op_init(&zops[n++], (char *) op->target.data,
                            (char *) op->value.data,
                            version < op->from_version ? 0
                                                       : (int) op->value.len,
                            version, &results->set);
        }
    }

    return zoo_amulti(zh, n, zops, results->elts, zkl_client_done_foreign, op);
}


int
zkl_client_submit_batch(zkl_handle_t *h, zkl_batch_t *batch)
{
    ngx_uint_t      n;
    zoo_op_t        zops[ZKL_BATCH_MAX + 1];
    zkl_results_t  *results;

    results = ngx_calloc(sizeof(zkl_results_t), h->log);
    if (results == NULL) {
        return ZSYSTEMERROR;
    }

    batch->results = results;

    n = zkl_client_fill_batch(h, batch, zops);

    return zoo_amulti(h->zh, (int) n, zops, results->elts,
                      zkl_client_done_foreign, batch);
}


/*
 * The creates of a transaction share a zxid, but libzookeeper cannot report the
 * zxid (create2 in a transaction is not implemented).  So the transaction sets
 * the session's gate too, and the answer has the gate's mzxid.
 */

static ngx_uint_t
zkl_client_fill_batch(zkl_handle_t *h, zkl_batch_t *batch, zoo_op_t *zops)
{
    ngx_uint_t      n;
    ngx_queue_t    *q;
    zkl_op_t       *op;
    zkl_results_t  *results;

    n = 0;
    results = batch->results;

    for (q = ngx_queue_head(&batch->ops);
         q != ngx_queue_sentinel(&batch->ops);
         q = ngx_queue_next(q))
    {
        op = ngx_queue_data(q, zkl_op_t, flight.queue);

        if (op->type == ZKL_OP_DELETE) {
            zoo_delete_op_init(&zops[n], (char *) op->path.data, op->version);

        } else if (op->type == ZKL_OP_SET) {
            zoo_set_op_init(&zops[n], (char *) op->path.data,
                            (char *) op->value.data, (int) op->value.len,
                            op->version, &results->set);

        } else {
            zoo_create_op_init(&zops[n], (char *) op->path.data,
                               (char *) op->value.data, (int) op->value.len,
                               h->acl, ZOO_EPHEMERAL_SEQUENTIAL,
                               (char *) op->reply.data,
                               (int) op->path.len + 11);
        }

        n++;
    }

    if (batch->ncreates != 0) {
        zoo_set_op_init(&zops[n], (char *) batch->gate->data, "", 0, -1,
                        &results->gate);
        n++;
    }

    return n;
}


void
zkl_client_read_batch(zkl_batch_t *batch)
{
    ngx_uint_t      n;
    ngx_queue_t    *q;
    zkl_op_t       *op;
    zkl_results_t  *results;

    n = 0;
    results = batch->results;
    batch->zxid = results->gate.mzxid;
    batch->version = results->gate.version;

    for (q = ngx_queue_head(&batch->ops);
         q != ngx_queue_sentinel(&batch->ops);
         q = ngx_queue_next(q))
    {
        op = ngx_queue_data(q, zkl_op_t, flight.queue);

        op->flight.code = results->elts[n++].err;

        if (batch->flight.code == ZOK && op->type == ZKL_OP_CREATE) {
            op->reply.len = ngx_strlen(op->reply.data);
            op->czxid = batch->zxid;
        }
    }
}


void
zkl_client_read_barrier(zkl_op_t *op)
{
    zkl_barrier_t  *barrier;

    barrier = op->results;

    op->version = barrier->gate.version;
}


void
zkl_client_free_batch(zkl_batch_t *batch)
{
    if (batch->results != NULL) {
        ngx_free(batch->results);
    }

    ngx_free(batch);
}


zkl_rc_e
zkl_client_rc(int code)
{
    switch (code) {

    case ZOK:
        return ZKL_OK;

    case ZNONODE:
        return ZKL_NO_NODE;

    case ZNODEEXISTS:
        return ZKL_EXISTS;

    case ZBADVERSION:
        return ZKL_CHANGED;

    case ZNOAUTH:
    case ZINVALIDACL:
        return ZKL_NO_AUTH;

    case ZUNIMPLEMENTED:
        return ZKL_UNSUPPORTED;

    case ZNOCHILDRENFOREPHEMERALS:
        return ZKL_CHILDLESS;

    case ZKL_CODE_QUOTA:
        return ZKL_OVER_QUOTA;

    case ZSYSTEMERROR:
    case ZRUNTIMEINCONSISTENCY:
    case ZDATAINCONSISTENCY:
    case ZCONNECTIONLOSS:
    case ZMARSHALLINGERROR:
    case ZOPERATIONTIMEOUT:
    case ZINVALIDSTATE:
    case ZSESSIONEXPIRED:
    case ZCLOSING:
    case ZSESSIONMOVED:
    case ZAUTHFAILED:
        return ZKL_UNKNOWN;

    default:
        return ZKL_REFUSED;
    }
}


ngx_uint_t
zkl_client_expired(int code)
{
    return code == ZSESSIONEXPIRED;
}


ngx_uint_t
zkl_client_innocent(int code)
{
    return code == ZOK || code == ZRUNTIMEINCONSISTENCY;
}


const char *
zkl_client_text(int code)
{
    return (code == ZKL_CODE_QUOTA) ? "quota exceeded" : zerror(code);
}


static void
zkl_client_post_foreign(zkl_flight_t *flight, int code)
{
    flight->code = code;

    zkl_mailbox_post_foreign(zkl_client_mailbox, &flight->message);
}


static void
zkl_client_watch_foreign(zhandle_t *zh, int type, int state, const char *path,
    void *data)
{
    zkl_news_e     news;
    zkl_handle_t  *h;

    /*
     * The context of a watch is the handle.  Session events have the same
     * context, and come again for each distinct pair of function and context;
     * there is only one pair.
     */

    h = data;

    if (type == ZOO_DELETED_EVENT) {
        news = ZKL_NEWS_DELETED;

    } else if (type == ZOO_CHANGED_EVENT) {
        news = ZKL_NEWS_CHANGED;

    } else if (type != ZOO_SESSION_EVENT) {
        news = ZKL_NEWS_LISTED;

    } else if (state == ZOO_CONNECTED_STATE) {
        news = ZKL_NEWS_CONNECTED;
        zkl_client_connected_foreign();

    } else if (state == ZOO_EXPIRED_SESSION_STATE) {
        news = ZKL_NEWS_EXPIRED;

    } else if (state == ZOO_AUTH_FAILED_STATE) {
        news = ZKL_NEWS_AUTH_FAILED;

    } else {
        news = ZKL_NEWS_SUSPENDED;
    }

    zkl_client_news_foreign(h, news, path);
}


static void
zkl_client_news_foreign(zkl_handle_t *h, zkl_news_e news, const char *path)
{
    size_t       len;
    zkl_news_t  *n;

    len = (path != NULL) ? strlen(path) : 0;

    n = malloc(sizeof(zkl_news_t) + len + 1);

    if (n == NULL) {

        if (!ngx_atomic_cmp_set(&h->missing, 0, 1)) {
            return;
        }

        n = h->missed;
        news = ZKL_NEWS_MISSED;
        len = 0;
    }

    n->message.deliver = h->deliver;
    n->session = h->session;
    n->serial = h->serial;
    n->news = news;
    n->path.len = 0;
    n->path.data = (u_char *) n + sizeof(zkl_news_t);

    if (len > h->chroot_len) {
        n->path.len = len - h->chroot_len;
        memcpy(n->path.data, path + h->chroot_len, n->path.len);
        n->path.data[n->path.len] = '\0';
    }

    zkl_mailbox_post_foreign(h->mailbox, &n->message);
}


static void
zkl_client_created_foreign(int code, const char *path, const struct Stat *stat,
    const void *data)
{
    size_t     len;
    zkl_op_t  *op = (zkl_op_t *) data;

    if (code == ZOK && path != NULL && stat != NULL) {
        len = strlen(path);

        /* the buffer of a claim has room for the path and ten digits */

        if (op->type == ZKL_OP_CREATE && len <= op->path.len + 10) {
            memcpy(op->reply.data, path, len);
            op->reply.len = len;
        }

        op->czxid = stat->czxid;
    }

    zkl_client_post_foreign(&op->flight, code);
}


static void
zkl_client_done_foreign(int code, const void *data)
{
    zkl_client_post_foreign((zkl_flight_t *) data, code);
}


static void
zkl_client_set_foreign(int code, const struct Stat *stat, const void *data)
{
    zkl_op_t  *op = (zkl_op_t *) data;

    if (code == ZOK && stat != NULL) {
        op->version = stat->version;
    }

    zkl_client_post_foreign(&op->flight, code);
}


/*
 * Longer data are no claim data of a gateway.  A GET with op->whole keeps
 * longer data for a second write, which has to fit into a packet.
 */

static void
zkl_client_reply_foreign(zkl_op_t *op, const char *value, size_t len)
{
    if (len > ZKL_CLAIM_DATA_MAX && op->whole && len <= ZKL_WHOLE_MAX) {
        op->more = malloc(len);
    }

    if (op->more != NULL) {
        op->reply.data = op->more;

    } else if (len > ZKL_CLAIM_DATA_MAX) {
        len = ZKL_CLAIM_DATA_MAX;
        op->cut = 1;
    }

    op->reply.len = len;
    memcpy(op->reply.data, value, len);
}


static void
zkl_client_got_foreign(int code, const char *value, int len,
    const struct Stat *stat, const void *data)
{
    zkl_op_t  *op = (zkl_op_t *) data;

    if (code == ZOK && stat != NULL) {

        if (value != NULL && len > 0) {
            zkl_client_reply_foreign(op, value, len);
        }

        op->czxid = stat->czxid;
        op->mzxid = stat->mzxid;
        op->ctime = stat->ctime;
        op->owner = stat->ephemeralOwner;
        op->version = stat->version;
    }

    zkl_client_post_foreign(&op->flight, code);
}


/*
 * A stat shows as cversion the creates and the deletes of children (ZooKeeper:
 * DataNode.copyStat()), modulo 2^32: with the children that are left these are
 * twice the creates.
 */

static void
zkl_client_listed_foreign(int code, const struct String_vector *strings,
    const struct Stat *stat, const void *data)
{
    size_t     size, len;
    u_char    *p;
    int32_t    i;
    zkl_op_t  *op = (zkl_op_t *) data;

    if (code == ZOK && strings != NULL && strings->count > 0) {

        size = strings->count * sizeof(ngx_str_t);

        for (i = 0; i < strings->count; i++) {
            size += strlen(strings->data[i]);
        }

        op->children = malloc(size);

        if (op->children == NULL) {
            code = ZSYSTEMERROR;

        } else {
            p = (u_char *) &op->children[strings->count];

            for (i = 0; i < strings->count; i++) {
                len = strlen(strings->data[i]);
                memcpy(p, strings->data[i], len);

                op->children[i].data = p;
                op->children[i].len = len;
                p += len;
            }

            op->nchildren = strings->count;
        }
    }

    if (code == ZOK && stat != NULL) {
        op->version = stat->version;
        op->given = ((uint32_t) stat->cversion + (uint32_t) stat->numChildren)
                    / 2;

        /* the counter stays at the last number, which was given, too */

        op->given += (op->given == ZKL_SEQ_MAX);
    }

    zkl_client_post_foreign(&op->flight, code);
}


static void
zkl_client_log_foreign(const char *text)
{
    size_t       len;
    const char  *p;
    zkl_line_t  *line;

    line = zkl_client_line_foreign();
    if (line == NULL) {
        (void) ngx_atomic_fetch_add(&zkl_client_dropped, 1);
        return;
    }

    /* "2026-01-31 12:00:00,123:4711(0x7f...):ZOO_WARN@function@line: text" */

    line->level = NGX_LOG_INFO;

    p = strstr(text, ":ZOO_");

    if (p != NULL) {
        if (strncmp(p, ":ZOO_ERROR", 10) == 0) {
            line->level = NGX_LOG_ERR;

        } else if (strncmp(p, ":ZOO_WARN", 9) == 0) {
            line->level = NGX_LOG_WARN;
        }

        p = strchr(p, '@');
    }

    text = (p != NULL) ? p + 1 : text;

    for  (len = 0; *text != '\0' && len < ZKL_LINE_LEN; text++) {

        if (*text == '\n') {
            continue;
        }

        line->text[len++] = (u_char) *text;

        /* half of what takes a session over: the digits of "sessionId=0x..." */

        if (text[0] == 'x' && text[-1] == '0' && len > 2) {
            while (strchr("0123456789abcdef", text[1]) && text[1] != '\0') {
                text++;
            }
        }
    }

    line->len = len;

    zkl_client_post_line_foreign(line);
}


/* Returns NULL if there is no memory, or if too many lines are in flight. */

static zkl_line_t *
zkl_client_line_foreign(void)
{
    zkl_line_t  *line;

    line = NULL;

    if (ngx_atomic_fetch_add(&zkl_client_lines, 1) < ZKL_LINES_MAX) {
        line = malloc(sizeof(zkl_line_t));
    }

    if (line == NULL) {
        (void) ngx_atomic_fetch_add(&zkl_client_lines, -1);
    }

    return line;
}


static void
zkl_client_post_line_foreign(zkl_line_t *line)
{
    line->message.deliver = zkl_client_log;

    zkl_mailbox_post_foreign(zkl_client_mailbox, &line->message);
}


static void
zkl_client_connected_foreign(void)
{
    zkl_line_t  *line;

    line = zkl_client_line_foreign();

    if (line != NULL) {
        line->level = 0;
        line->len = 0;

        zkl_client_post_line_foreign(line);
    }
}


static void
zkl_client_log(zkl_message_t *message, void *data)
{
    ngx_atomic_uint_t  dropped;
    zkl_line_t        *line = (zkl_line_t *) message;

    dropped = zkl_client_dropped;

    (void) ngx_atomic_fetch_add(&zkl_client_dropped,
                                - (ngx_atomic_int_t) dropped);

    zkl_client_more += dropped;

    if (line->level != 0) {
        zkl_client_line(line);

    } else {
        zkl_client_away = 0;
        zkl_client_left_out();
    }

    free(line);

    (void) ngx_atomic_fetch_add(&zkl_client_lines, -1);
}


static void
zkl_client_line(zkl_line_t *line)
{
    ngx_msec_t  now;

    now = zkl_now();

    if (!zkl_client_away || now - zkl_client_told >= ZKL_LINES_AGAIN) {
        zkl_client_left_out();

        ngx_log_error(line->level, zkl_client_cycle_log, 0,
                      "libzookeeper: %*s", line->len, line->text);

        zkl_client_away = (line->level <= NGX_LOG_WARN);
        zkl_client_told = now;
        return;
    }

    zkl_client_more++;
}


static void
zkl_client_left_out(void)
{
    if (zkl_client_more != 0) {
        ngx_log_error(NGX_LOG_WARN, zkl_client_cycle_log, 0,
                      "libzookeeper: %ui more lines left out",
                      zkl_client_more);

        zkl_client_more = 0;
    }
}
