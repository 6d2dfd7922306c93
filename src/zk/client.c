
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


struct zkl_handle_s {
    zhandle_t                       *zh;
    zkl_session_conf_t              *conf;
    zkl_session_t                   *session;
    zkl_message_pt                   deliver;
    struct ACL_vector               *acl;
    struct ACL                       entry;     /* the entry of acl, without the
                                                   right to create children */
    struct ACL_vector                childless; /* for a lock's znode that is
                                                   itself a claim */

    zkl_news_t                      *missed;
    ngx_atomic_t                     missing;   /* missed was posted */
};

typedef struct {
    zkl_message_t                    message;   /* must be first */
    ngx_uint_t                       level;
    size_t                           len;
    u_char                           text[ZKL_LINE_LEN];
} zkl_line_t;

typedef struct {
    struct Stat                      gate;
    struct Stat                      set;       /* of all SET parts; not read */
    zoo_op_result_t                  elts[ZKL_BATCH_MAX + 1];
} zkl_results_t;


/* of the first types of operations */

static const int  *zkl_client_modes[] = {
    &ZOO_EPHEMERAL_SEQUENTIAL,          /* ZKL_OP_CREATE */
    &ZOO_EPHEMERAL,                     /* ZKL_OP_GATE */
    &ZOO_CONTAINER,                     /* ZKL_OP_CONTAINER */
    &ZOO_PERSISTENT                     /* ZKL_OP_PERSISTENT */
};


/* what codes mean; any other code is a refusal */

static const struct {
    int                              code;
    zkl_rc_e                         rc;
} zkl_client_codes[] = {
    { ZOK, ZKL_OK },
    { ZNONODE, ZKL_NO_NODE },
    { ZNODEEXISTS, ZKL_EXISTS },
    { ZBADVERSION, ZKL_CHANGED },
    { ZNOCHILDRENFOREPHEMERALS, ZKL_CHILDLESS },
    { ZNOAUTH, ZKL_NO_AUTH },
    { ZINVALIDACL, ZKL_NO_AUTH },
    { ZUNIMPLEMENTED, ZKL_UNSUPPORTED },
    { ZKL_CODE_QUOTA, ZKL_OVER_QUOTA },
    { ZSYSTEMERROR, ZKL_UNKNOWN },
    { ZRUNTIMEINCONSISTENCY, ZKL_UNKNOWN },
    { ZDATAINCONSISTENCY, ZKL_UNKNOWN },
    { ZCONNECTIONLOSS, ZKL_UNKNOWN },
    { ZMARSHALLINGERROR, ZKL_UNKNOWN },
    { ZOPERATIONTIMEOUT, ZKL_UNKNOWN },
    { ZINVALIDSTATE, ZKL_UNKNOWN },
    { ZSESSIONEXPIRED, ZKL_UNKNOWN },
    { ZCLOSING, ZKL_UNKNOWN },
    { ZSESSIONMOVED, ZKL_UNKNOWN },
    { ZAUTHFAILED, ZKL_UNKNOWN }
};


static char *zkl_client_hosts(zkl_session_conf_t *conf);
static void zkl_client_level(void);
static ngx_uint_t zkl_client_set_servers(zkl_handle_t *h, const char *hosts);
static void zkl_client_woken_foreign(int code, const struct Stat *stat,
    const void *data);
static int zkl_client_fill(zkl_handle_t *h, zkl_op_t *batch, zoo_op_t *zops);
static void zkl_client_watch_foreign(zhandle_t *zh, int type, int state,
    const char *path, void *data);
static void zkl_client_created_foreign(int code, const char *path,
    const struct Stat *stat, const void *data);
static void zkl_client_done_foreign(int code, const void *data);
static void zkl_client_stat_foreign(int code, const struct Stat *stat,
    const void *data);
static void zkl_client_got_foreign(int code, const char *value, int len,
    const struct Stat *stat, const void *data);
static void zkl_client_listed_foreign(int code,
    const struct String_vector *strings, const struct Stat *stat,
    const void *data);
static void zkl_client_log_foreign(const char *text);
static void zkl_client_log(zkl_message_t *message, void *data);


/*
 * A worker has only this mailbox and this log.  Set before the first handle is
 * opened, never reset, because the log callback has no context.
 */

static zkl_mailbox_t  *zkl_client_mailbox;
static ngx_atomic_t        zkl_client_lines;
static ngx_atomic_t        zkl_client_dropped;
static ngx_log_t          *zkl_client_cycle_log;

/*
 * Without a connection libzookeeper repeats its lines several times a second.
 * So the first line is logged, and further lines are dropped.  Only the event
 * loop uses these variables.
 */

static ngx_uint_t          zkl_client_away;
static ngx_msec_t          zkl_client_told;


zkl_handle_t *
zkl_client_open(zkl_session_conf_t *conf, const zkl_key_t *key,
    ngx_msec_t timeout, zkl_session_t *session, zkl_message_pt deliver,
    zkl_mailbox_t *mailbox, ngx_log_t *log)
{
    int            rc;
    char          *hosts;
    sigset_t       all, old;
    clientid_t     id, *known;
    zkl_handle_t  *h;

    /* threads of open handles may read the variable, so the write is rare */

    if (zkl_client_mailbox != mailbox) {
        zkl_client_mailbox = mailbox;
    }

    zkl_client_cycle_log = log;

    hosts = NULL;

    h = ngx_calloc(sizeof(zkl_handle_t), log);
    if (h == NULL) {
        return NULL;
    }

    h->missed = malloc(sizeof(zkl_news_t));
    if (h->missed == NULL) {
        goto failed;
    }

    hosts = zkl_client_hosts(conf);
    if (hosts == NULL) {
        goto failed;
    }

    h->conf = conf;
    h->session = session;
    h->deliver = deliver;
    h->acl = conf->auth_scheme.len ? &ZOO_CREATOR_ALL_ACL
                                   : &ZOO_OPEN_ACL_UNSAFE;
    h->entry = h->acl->data[0];
    h->entry.perms &= ~ZOO_PERM_CREATE;
    h->childless.count = 1;
    h->childless.data = &h->entry;

    zkl_client_level();

    id.client_id = key->id;
    ngx_memcpy(id.passwd, key->password, sizeof(id.passwd));
    known = key->id ? &id : NULL;

    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_SETMASK, &all, &old);

#if (NGX_HTTP_ZK_LOCK_SSL)

    /*
     * With TLS the log callback cannot be given at once.  Until the callback is
     * set, libzookeeper would write to stderr, which mostly is the error log,
     * and would show the session's id.
     */

    if (conf->certificates.len) {
        zoo_set_debug_level(0);

        h->zh = zookeeper_init_ssl(hosts, (char *) conf->certificates.data,
                                   zkl_client_watch_foreign, (int) timeout,
                                   known, h, ZOO_NO_LOG_CLIENTENV);
        if (h->zh != NULL) {
            zoo_set_log_callback(h->zh, zkl_client_log_foreign);
        }

        zkl_client_level();

    } else

#endif

    {
        h->zh = zookeeper_init2(hosts, zkl_client_watch_foreign, (int) timeout,
                                known, h, ZOO_NO_LOG_CLIENTENV,
                                zkl_client_log_foreign);
    }

    (void) pthread_sigmask(SIG_SETMASK, &old, NULL);

    if (h->zh == NULL) {
        ngx_log_error(NGX_LOG_ERR, log, ngx_errno, "zookeeper_init() failed");
        goto failed;
    }

    ngx_free(hosts);

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

failed:

    ngx_free(hosts);
    free(h->missed);
    ngx_free(h);

    return NULL;
}


/* The servers, an odd number of them; NULL: no memory. */

static char *
zkl_client_hosts(zkl_session_conf_t *conf)
{
    size_t       i, first;
    u_char      *hosts;
    ngx_str_t   *servers;
    ngx_uint_t   n;

    servers = &conf->servers;
    first = servers->len;
    n = 1;

    for (i = 0; i < servers->len; i++) {
        if (servers->data[i] == ',' && n++ == 1) {
            first = i;
        }
    }

    hosts = ngx_alloc(servers->len + 1 + first + 1, zkl_client_cycle_log);

    if (hosts != NULL) {
        (void) ngx_sprintf(hosts, n % 2 ? "%V%Z" : "%V,%*s%Z", servers, first,
                           servers->data);
    }

    return (char *) hosts;
}


static void
zkl_client_level(void)
{
    zoo_set_debug_level(zkl_client_cycle_log->log_level >= NGX_LOG_INFO
                        ? ZOO_LOG_LEVEL_INFO : ZOO_LOG_LEVEL_WARN);
}


void
zkl_client_close(zkl_handle_t *h)
{
    int  rc;

    rc = zookeeper_close(h->zh);

    if (rc != ZOK && rc != ZINVALIDSTATE) {
        ngx_log_error(NGX_LOG_WARN, zkl_client_cycle_log, 0,
                      "zookeeper_close() failed: %s", zerror(rc));
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
    /* the I/O thread logs the list that is freed here */

    zoo_set_debug_level(0);

    (void) zkl_client_set_servers(h, "127.0.0.9:1");

    zkl_client_level();
}


static ngx_uint_t
zkl_client_set_servers(zkl_handle_t *h, const char *hosts)
{
    int  rc;

    rc = zoo_set_servers(h->zh, hosts);

    if (rc != ZOK) {
        ngx_log_error(NGX_LOG_ERR, zkl_client_cycle_log, 0,
                      "zoo_set_servers() failed: %s", zerror(rc));
        return 0;
    }

    return 1;
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
zkl_client_servers(zkl_handle_t *h)
{
    char        *hosts;
    ngx_uint_t   set;

    if (!zkl_client_idle(h)) {
        return 0;
    }

    hosts = zkl_client_hosts(h->conf);
    if (hosts == NULL) {
        return 0;
    }

    set = zkl_client_set_servers(h, hosts);

    ngx_free(hosts);

    if (set) {

        /* if the handle is over, there is no thread to wake */

        (void) zoo_awexists(h->zh, "/", NULL, NULL, zkl_client_woken_foreign,
                            NULL);
    }

    return set;
}


ngx_uint_t
zkl_client_idle(zkl_handle_t *h)
{
    return zoo_state(h->zh) != ZOO_CONNECTED_STATE
           && (h->conf->certificates.len == 0 || !zkl_client_asked(h));
}


static void
zkl_client_woken_foreign(int code, const struct Stat *stat, const void *data)
{
    /* the request was only sent to wake the I/O thread */
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
    key->timeout = ngx_max(zoo_recv_timeout(h->zh), 0);
    ngx_memcpy(key->password, id->passwd, sizeof(key->password));
}


int
zkl_client_submit(zkl_handle_t *h, zkl_op_t *op)
{
    int             n;
    char           *path;
    zoo_op_t        zops[ZKL_BATCH_MAX + 1];
    zhandle_t      *zh;
    watcher_fn      watcher;
    zkl_handle_t   *context;
    zkl_results_t  *results;

    zh = h->zh;
    path = (char *) op->path.data;
    watcher = op->watch ? zkl_client_watch_foreign : NULL;
    context = op->watch ? h : NULL;

    /* the code of an operation that is never answered */

    op->code = ZCLOSING;

    switch (op->type) {

    case ZKL_OP_CREATE:
    case ZKL_OP_GATE:
    case ZKL_OP_CONTAINER:
    case ZKL_OP_PERSISTENT:
        return zoo_acreate2(zh, path, (char *) op->value.data,
                            (int) op->value.len, h->acl,
                            *zkl_client_modes[op->type],
                            zkl_client_created_foreign, op);

    case ZKL_OP_DELETE:
        return zoo_adelete(zh, path, op->version, zkl_client_done_foreign, op);

    case ZKL_OP_SET:
        return zoo_aset(zh, path, (char *) op->value.data, (int) op->value.len,
                        op->version, zkl_client_stat_foreign, op);

    case ZKL_OP_GET:
        return zoo_awget(zh, path, watcher, context, zkl_client_got_foreign,
                         op);

    case ZKL_OP_EXISTS:
        return zoo_awexists(zh, path, watcher, context, zkl_client_stat_foreign,
                            op);

    case ZKL_OP_LIST:
        return zoo_awget_children2(zh, path, watcher, context,
                                   zkl_client_listed_foreign, op);

    default: /* ZKL_OP_RENAME, ZKL_OP_BATCH, ZKL_OP_BARRIER */
        results = ngx_calloc(sizeof(zkl_results_t), zkl_client_cycle_log);
        if (results == NULL) {
            return ZSYSTEMERROR;
        }

        op->results = results;

        n = zkl_client_fill(h, op, zops);

        return zoo_amulti(zh, n, zops, results->elts, zkl_client_done_foreign,
                          op);
    }
}


/*
 * The creates of a transaction share a zxid, but libzookeeper cannot report the
 * zxid (create2 in a transaction is not implemented).  So the transaction sets
 * the session's gate too, and the answer has the gate's mzxid.
 *
 * A barrier is a transaction, because the leader proposes even a transaction
 * that the leader refuses.  A sync would prove nothing, because a server of a
 * minority answers a sync.
 */

static int
zkl_client_fill(zkl_handle_t *h, zkl_op_t *batch, zoo_op_t *zops)
{
    int             n;
    ngx_queue_t    *q;
    zkl_op_t       *op;
    zkl_results_t  *results;

    n = 0;
    results = batch->results;

    for (q = ngx_queue_head(&batch->ops);
         q != ngx_queue_sentinel(&batch->ops);
         q = ngx_queue_next(q))
    {
        op = ngx_queue_data(q, zkl_op_t, queue);

        if (op->type == ZKL_OP_DELETE) {
            zoo_delete_op_init(&zops[n++], (char *) op->path.data, op->version);

        } else if (op->type == ZKL_OP_SET) {
            zoo_set_op_init(&zops[n++], (char *) op->path.data,
                            (char *) op->value.data, (int) op->value.len,
                            op->version, &results->set);

        } else {
            /* the buffer of a sequential znode has room for ten digits */

            zoo_create_op_init(&zops[n++], (char *) op->path.data,
                               (char *) op->value.data, (int) op->value.len,
                               op->childless ? &h->childless : h->acl,
                               *zkl_client_modes[op->type],
                               (char *) op->reply.data,
                               op->type == ZKL_OP_CREATE
                               ? (int) op->path.len + 11 : 0);
        }
    }

    if (batch->gate) {
        zoo_set_op_init(&zops[n++], (char *) batch->path.data, "", 0, -1,
                        &results->gate);

    } else if (n == 0) {
        zoo_check_op_init(&zops[n++], (char *) batch->path.data, -1);
    }

    return n;
}


void
zkl_client_read_batch(zkl_op_t *batch)
{
    int             code;
    ngx_uint_t      n;
    ngx_queue_t    *q;
    zkl_op_t       *op;
    zkl_results_t  *results;

    n = 0;
    results = batch->results;
    batch->czxid = results->gate.mzxid;
    batch->version = results->gate.version;

    for (q = ngx_queue_head(&batch->ops);
         q != ngx_queue_sentinel(&batch->ops);
         q = ngx_queue_next(q))
    {
        op = ngx_queue_data(q, zkl_op_t, queue);

        code = results->elts[n++].err;

        /* the latter code only says that another operation failed */

        op->gather = (code == ZOK || code == ZRUNTIMEINCONSISTENCY);

        if (batch->code == ZOK && op->type == ZKL_OP_CREATE) {
            op->reply.len = ngx_strlen(op->reply.data);
            op->czxid = batch->czxid;
        }
    }
}


zkl_rc_e
zkl_client_rc(int code)
{
    ngx_uint_t  i;

    for (i = 0; i < sizeof(zkl_client_codes) / sizeof(*zkl_client_codes); i++) {

        if (zkl_client_codes[i].code == code) {
            return zkl_client_codes[i].rc;
        }
    }

    return ZKL_REFUSED;
}


ngx_uint_t
zkl_client_expired(int code)
{
    return code == ZSESSIONEXPIRED;
}


const char *
zkl_client_text(int code)
{
    return zerror(code);
}


static void
zkl_client_watch_foreign(zhandle_t *zh, int type, int state, const char *path,
    void *data)
{
    size_t         len;
    zkl_news_e     news;
    zkl_news_t    *n;
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

    } else if (state == ZOO_EXPIRED_SESSION_STATE) {
        news = ZKL_NEWS_EXPIRED;

    } else if (state == ZOO_AUTH_FAILED_STATE) {
        news = ZKL_NEWS_AUTH_FAILED;

    } else {
        news = ZKL_NEWS_SUSPENDED;
    }

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
    n->news = news;
    n->path.len = 0;
    n->path.data = (u_char *) n + sizeof(zkl_news_t);

    if (len > h->conf->chroot.len) {
        n->path.len = len - h->conf->chroot.len;
        memcpy(n->path.data, path + h->conf->chroot.len, n->path.len);
        n->path.data[n->path.len] = '\0';
    }

    zkl_mailbox_post_foreign(zkl_client_mailbox, &n->message);
}


static void
zkl_client_created_foreign(int code, const char *path, const struct Stat *stat,
    const void *data)
{
    size_t     len;
    zkl_op_t  *op = (zkl_op_t *) data;

    if (code == ZOK && path != NULL && op->type == ZKL_OP_CREATE) {
        len = strlen(path);

        /* the buffer of a claim has room for the path and ten digits */

        if (len <= op->path.len + 10) {
            memcpy(op->reply.data, path, len);
            op->reply.len = len;
        }
    }

    zkl_client_stat_foreign(code, stat, op);
}


static void
zkl_client_done_foreign(int code, const void *data)
{
    zkl_client_stat_foreign(code, NULL, data);
}


/*
 * Each operation ends here.  A stat shows as cversion the creates and the
 * deletes of children (ZooKeeper: DataNode.copyStat()), modulo 2^32: with the
 * children that are left these are twice the creates.
 */

static void
zkl_client_stat_foreign(int code, const struct Stat *stat, const void *data)
{
    zkl_op_t  *op = (zkl_op_t *) data;

    if (code == ZOK && stat != NULL) {
        op->czxid = stat->czxid;
        op->mzxid = stat->mzxid;
        op->ctime = stat->ctime;
        op->owner = stat->ephemeralOwner;
        op->version = stat->version;
        op->given = ((uint32_t) stat->cversion + (uint32_t) stat->numChildren)
                    / 2;

        /* the counter stays at the last number, which was given, too */

        op->given += (op->given == ZKL_SEQ_MAX);
    }

    op->code = code;

    zkl_mailbox_post_foreign(zkl_client_mailbox, &op->message);
}


/*
 * Longer data than ZKL_CLAIM_DATA_MAX are no claim data of a gateway.  A GET
 * with op->whole keeps longer data for a second write, which has to fit into a
 * packet.
 */

static void
zkl_client_got_foreign(int code, const char *value, int len,
    const struct Stat *stat, const void *data)
{
    zkl_op_t  *op = (zkl_op_t *) data;

    if (code == ZOK && value != NULL && len > 0) {

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

    zkl_client_stat_foreign(code, stat, op);
}


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
            zkl_client_done_foreign(ZSYSTEMERROR, op);
            return;
        }

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

    zkl_client_stat_foreign(code, stat, op);
}


static void
zkl_client_log_foreign(const char *text)
{
    size_t       len;
    const char  *p;
    zkl_line_t  *line;

    line = NULL;

    if (ngx_atomic_fetch_add(&zkl_client_lines, 1) < ZKL_LINES_MAX) {
        line = malloc(sizeof(zkl_line_t));
    }

    if (line == NULL) {
        (void) ngx_atomic_fetch_add(&zkl_client_lines, -1);
        (void) ngx_atomic_fetch_add(&zkl_client_dropped, 1);
        return;
    }

    /* "2026-01-31 12:00:00,123:4711(0x7f...):ZOO_WARN@function@line: text" */

    line->level = strstr(text, ":ZOO_ERROR@") ? NGX_LOG_ERR
                  : strstr(text, ":ZOO_WARN@") ? NGX_LOG_WARN : NGX_LOG_INFO;

    p = strstr(text, ":ZOO_");
    p = (p != NULL) ? strchr(p, '@') : NULL;
    text = (p != NULL) ? p + 1 : text;

    for (len = 0; *text != '\0' && len < ZKL_LINE_LEN; text++) {

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
    line->message.deliver = zkl_client_log;

    zkl_mailbox_post_foreign(zkl_client_mailbox, &line->message);
}


static void
zkl_client_log(zkl_message_t *message, void *data)
{
    ngx_msec_t   now;
    zkl_line_t  *line = (zkl_line_t *) message;

    now = zkl_now();

    if (!zkl_client_away || now - zkl_client_told >= ZKL_LINES_AGAIN) {
        zkl_client_listen();

        ngx_log_error(line->level, zkl_client_cycle_log, 0,
                      "libzookeeper: %*s", line->len, line->text);

        zkl_client_away = (line->level <= NGX_LOG_WARN);
        zkl_client_told = now;

    } else {
        (void) ngx_atomic_fetch_add(&zkl_client_dropped, 1);
    }

    free(line);

    (void) ngx_atomic_fetch_add(&zkl_client_lines, -1);
}


void
zkl_client_listen(void)
{
    ngx_uint_t  dropped;

    zkl_client_away = 0;
    dropped = zkl_client_dropped;

    if (dropped != 0) {
        ngx_log_error(NGX_LOG_WARN, zkl_client_cycle_log, 0,
                      "libzookeeper: %ui more lines left out", dropped);

        (void) ngx_atomic_fetch_add(&zkl_client_dropped,
                                    - (ngx_atomic_int_t) dropped);
    }
}
