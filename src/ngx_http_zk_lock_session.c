
/*
 * The session.
 *
 * It owns the library's handle, the list of what is under way in it, and the
 * operations that are gathered for the next transaction.  Everything here runs
 * on the event loop.  `handle` is NULL in the states CLOSED and BACKOFF.
 *
 *   state       from -> to                        what it means
 *   ---------   -------------------------------   ---------------------------
 *   CLOSED                                        no handle, none is wanted
 *   CONNECTING  open() -> CONNECTED               no session yet
 *   CONNECTED   -> SUSPENDED, BACKOFF             operations are sent
 *   SUSPENDED   -> CONNECTED, BACKOFF             the session may come back
 *   BACKOFF     a timer -> CONNECTING             the session is over
 *
 * Group commit: ZooKeeper pays by the transaction, not by the operation.  So
 * creates and deletes that are sure to succeed are gathered while a few
 * transactions are under way, and go out together; an idle session sends at
 * once.  "At once" is when a turn of the event loop has brought nothing more to
 * gather: who is idle loses no time by that, and who is busy sends more at a
 * time.  An operation that nobody is in a hurry for says so (`patient`), and
 * waits for others to go with.  One operation that fails rolls all of its batch
 * back: then the culprit goes again alone, and the others together.
 *
 * All creates of a batch share one zxid, which the session's gate tells: an
 * ephemeral znode of its own, set in the same transaction.  Until the gate is
 * there, creates go alone.
 *
 * Known alive: ZooKeeper ends a session no sooner than its timeout after it
 * heard from it, and tells the client only when it is back.  So the session
 * surely lives for the timeout, counted from the moment when a request was
 * *sent* that was answered since.  A third is taken off as a margin: a
 * follower passes on to the leader whom it heard with a delay of up to a tick,
 * and if it fails just then, the leader counts from the request before, which
 * is never more than a third of the timeout older (the heartbeat).
 */


#include "ngx_http_zk_lock_library.h"


/* transactions under way; what comes meanwhile is gathered */
#define NGX_HTTP_ZK_LOCK_WRITES_MAX   4

/* a batch of this size waits for no more; nor after so many turns */
#define NGX_HTTP_ZK_LOCK_GATHER       64
#define NGX_HTTP_ZK_LOCK_TURNS        8

/* patient operations wait so long (milliseconds), or until they are so many */
#define NGX_HTTP_ZK_LOCK_PATIENT      2
#define NGX_HTTP_ZK_LOCK_PATIENT_MAX  32

/* bytes of paths and values in a batch; jute.maxbuffer is 1 MiB */
#define NGX_HTTP_ZK_LOCK_BATCH_BYTES  (256 * 1024)

/* bytes of ephemeral paths, and of watched paths, of one session */
#define NGX_HTTP_ZK_LOCK_PATH_BYTES   1000000

/* a server can leave a lone request unanswered: a nudge helps (milliseconds) */
#define NGX_HTTP_ZK_LOCK_NUDGE        200

/* an answer that is not older shows that the server is there, milliseconds */
#define NGX_HTTP_ZK_LOCK_PROMPT       2000

#define NGX_HTTP_ZK_LOCK_TICK         100
#define NGX_HTTP_ZK_LOCK_BACKOFF_MIN  50
#define NGX_HTTP_ZK_LOCK_BACKOFF_MAX  5000


typedef enum {
    NGX_HTTP_ZK_LOCK_CLOSED = 0,
    NGX_HTTP_ZK_LOCK_CONNECTING,
    NGX_HTTP_ZK_LOCK_CONNECTED,
    NGX_HTTP_ZK_LOCK_SUSPENDED,
    NGX_HTTP_ZK_LOCK_BACKOFF
} ngx_http_zk_lock_session_state_e;


struct ngx_http_zk_lock_session_s {
    ngx_connection_t                          ident;    /* of the timers */

    ngx_http_zk_lock_session_conf_t          *conf;
    const ngx_http_zk_lock_session_events_t  *events;
    void                                     *data;
    zk_lock_mailbox_t                        *mailbox;
    ngx_log_t                                *log;

    ngx_http_zk_lock_handle_t                *handle;
    ngx_http_zk_lock_session_state_e          state;
    ngx_uint_t                                serial;   /* of the handle */
    ngx_http_zk_lock_key_t                    key;      /* id 0: none yet */
    ngx_msec_t                                timeout;  /* negotiated */
    ngx_msec_t                                backoff;
    ngx_msec_t                                since;    /* of the state */

    ngx_queue_t                               flights;  /* by sent */
    ngx_queue_t                               pending;  /* to be gathered */
    ngx_uint_t                                npending;
    ngx_uint_t                                gathered; /* a turn ago */
    ngx_uint_t                                turns;
    ngx_queue_t                               failed;   /* to be told */
    ngx_uint_t                                writes;   /* under way */

    ngx_msec_t                                asked;    /* last request */
    ngx_msec_t                                replied;  /* last answer */
    ngx_atomic_t                             *alive;

    ngx_str_t                                 gate;     /* with the chroot */
    size_t                                    path_bytes;

    ngx_rbtree_t                              watches;  /* that are set */
    ngx_rbtree_node_t                         watches_sentinel;
    size_t                                    watch_bytes;

    ngx_event_t                               flush;    /* posted */
    ngx_event_t                               gather;   /* a timer */
    ngx_event_t                               over;     /* posted */
    ngx_event_t                               tick;

    unsigned                                  last:1;   /* no other follows */
    unsigned                                  gated:1;  /* gate is there */
    unsigned                                  nudged:1;
    unsigned                                  unreachable:1;
    unsigned                                  hurry:1;  /* not all that is
                                                           pending is patient */
};


static void ngx_http_zk_lock_session_free(ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_start(ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_state(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_session_state_e state);
static void ngx_http_zk_lock_session_news(zk_lock_message_t *message,
    void *data);
static void ngx_http_zk_lock_session_no_news(zk_lock_message_t *message,
    void *data);
static void ngx_http_zk_lock_session_connected_handler(
    ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_suspended_handler(
    ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_over_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_session_end_handle(
    ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_tick_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_session_watchdog(ngx_http_zk_lock_session_t *s,
    ngx_msec_t now);
static void ngx_http_zk_lock_session_out_of_reach(
    ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_ask(ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_gate(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_e type);
static void ngx_http_zk_lock_session_gate_handler(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_session_pend(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_session_unpend(ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_hurry(ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_gather_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_session_flush_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_session_flush_pending(
    ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_flush_failed(
    ngx_http_zk_lock_session_t *s);
static ngx_http_zk_lock_batch_t *ngx_http_zk_lock_session_gather(
    ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_submit(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_session_submit_batch(
    ngx_http_zk_lock_session_t *s, ngx_http_zk_lock_batch_t *batch);
static void ngx_http_zk_lock_session_took_off(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_flight_t *flight);
static void ngx_http_zk_lock_session_landed(
    ngx_http_zk_lock_flight_t *flight);
static void ngx_http_zk_lock_session_heard(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_flight_t *flight);
static void ngx_http_zk_lock_session_op_landed(zk_lock_message_t *message,
    void *data);
static void ngx_http_zk_lock_session_batch_landed(zk_lock_message_t *message,
    void *data);
static void ngx_http_zk_lock_session_watched(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_session_unwatched(ngx_http_zk_lock_session_t *s,
    ngx_str_t *path, ngx_uint_t list);
static void ngx_http_zk_lock_session_forget_watches(
    ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_rolled_back(
    ngx_http_zk_lock_session_t *s, ngx_http_zk_lock_batch_t *batch);
static void ngx_http_zk_lock_session_fail(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op, ngx_http_zk_lock_rc_e rc);
static void ngx_http_zk_lock_session_finish(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_session_free_op(ngx_http_zk_lock_op_t *op);
static void ngx_http_zk_lock_session_arm(ngx_http_zk_lock_session_t *s);


static ngx_str_t  ngx_http_zk_lock_gates = ngx_string("/zk_lock_gates");
static ngx_str_t  ngx_http_zk_lock_top = ngx_string("/");


ngx_http_zk_lock_session_t *
ngx_http_zk_lock_session_open(ngx_http_zk_lock_session_conf_t *conf,
    zk_lock_mailbox_t *mailbox,
    const ngx_http_zk_lock_session_events_t *events, void *data,
    const ngx_http_zk_lock_key_t *key, ngx_atomic_t *alive, ngx_log_t *log)
{
    ngx_http_zk_lock_session_t  *s;

    s = ngx_calloc(sizeof(ngx_http_zk_lock_session_t), log);
    if (s == NULL) {
        return NULL;
    }

    s->gate.data = ngx_alloc(conf->chroot.len + ngx_http_zk_lock_gates.len
                             + 1 + 16 + 1, log);
    if (s->gate.data == NULL) {
        ngx_free(s);
        return NULL;
    }

    s->ident.fd = (ngx_socket_t) -1;
    s->conf = conf;
    s->mailbox = mailbox;
    s->events = events;
    s->data = data;
    s->alive = alive;
    s->log = log;
    s->timeout = conf->timeout;

    ngx_rbtree_init(&s->watches, &s->watches_sentinel,
                    ngx_str_rbtree_insert_value);

    ngx_queue_init(&s->flights);
    ngx_queue_init(&s->pending);
    ngx_queue_init(&s->failed);

    s->flush.handler = ngx_http_zk_lock_session_flush_handler;
    s->flush.data = s;
    s->flush.log = log;

    s->gather.handler = ngx_http_zk_lock_session_gather_handler;
    s->gather.data = s;
    s->gather.log = log;

    s->over.handler = ngx_http_zk_lock_session_over_handler;
    s->over.data = s;
    s->over.log = log;

    s->tick.handler = ngx_http_zk_lock_session_tick_handler;
    s->tick.data = s;
    s->tick.log = log;

    if (key != NULL) {
        s->key = *key;
    }

    ngx_http_zk_lock_session_start(s);

    return s;
}


void
ngx_http_zk_lock_session_last(ngx_http_zk_lock_session_t *s)
{
    s->last = 1;
}


void
ngx_http_zk_lock_session_leave(ngx_http_zk_lock_session_t *s)
{
    if (s->handle != NULL) {
        ngx_http_zk_lock_library_cut(s->handle);
    }

    ngx_http_zk_lock_session_free(s);
}


ngx_int_t
ngx_http_zk_lock_session_end(ngx_http_zk_lock_session_conf_t *conf,
    const ngx_http_zk_lock_key_t *key, zk_lock_mailbox_t *mailbox,
    ngx_log_t *log)
{
    ngx_int_t                   rc;
    ngx_uint_t                  i, heard;
    ngx_http_zk_lock_handle_t  *handle;

    handle = ngx_http_zk_lock_library_open(conf, key, NULL, 0,
                                           ngx_http_zk_lock_session_no_news,
                                           mailbox, log);
    if (handle == NULL) {
        return NGX_DECLINED;
    }

    rc = ngx_http_zk_lock_library_wait(handle, NGX_HTTP_ZK_LOCK_PATIENCE);

    /* the library loses, and leaks, what it has not said when it is closed */

    for (i = 0, heard = 0; rc != NGX_AGAIN && !heard && i < 100; i++) {
        (void) zk_lock_mailbox_take(mailbox, &heard);
        ngx_msleep(1);
    }

    ngx_http_zk_lock_library_close(handle);

    (void) zk_lock_mailbox_take(mailbox, &heard);

    return (rc == NGX_AGAIN) ? NGX_DECLINED : NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_session_key(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_key_t *key)
{
    if (s->key.id == 0) {
        return NGX_DECLINED;
    }

    *key = s->key;

    return NGX_OK;
}


void
ngx_http_zk_lock_session_close(ngx_http_zk_lock_session_t *s)
{
    ngx_msec_t  until;

    /*
     * The library closes its socket when it has sent that it closes the
     * session: an answer that is still unread makes a reset of that, and the
     * server throws away what it has not read.
     */

    s->events = NULL;
    until = ngx_http_zk_lock_now() + NGX_HTTP_ZK_LOCK_PATIENCE;

    while (s->state == NGX_HTTP_ZK_LOCK_CONNECTED
           && !ngx_queue_empty(&s->flights)
           && ngx_http_zk_lock_ahead(until))
    {
        if (zk_lock_mailbox_take(s->mailbox, NULL) == 0) {
            ngx_msleep(1);
        }
    }

    ngx_http_zk_lock_session_free(s);
}


static void
ngx_http_zk_lock_session_free(ngx_http_zk_lock_session_t *s)
{
    ngx_queue_t            *q;
    ngx_http_zk_lock_op_t  *op;

    /* the answers that are left are for nobody */

    s->events = NULL;

    ngx_http_zk_lock_session_end_handle(s);
    ngx_http_zk_lock_session_state(s, NGX_HTTP_ZK_LOCK_CLOSED);

    while (!ngx_queue_empty(&s->failed)) {
        q = ngx_queue_head(&s->failed);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);
        ngx_http_zk_lock_session_free_op(op);
    }

    if (s->flush.posted) {
        ngx_delete_posted_event(&s->flush);
    }

    if (s->over.posted) {
        ngx_delete_posted_event(&s->over);
    }

    if (s->gather.timer_set) {
        ngx_del_timer(&s->gather);
    }

    if (s->tick.timer_set) {
        ngx_del_timer(&s->tick);
    }

    ngx_free(s->gate.data);
    ngx_free(s);
}


ngx_http_zk_lock_op_t *
ngx_http_zk_lock_op_new(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_e type, ngx_str_t *dir, ngx_str_t *name,
    ngx_str_t *value)
{
    u_char                 *p;
    size_t                  path, reply, len;
    ngx_http_zk_lock_op_t  *op;

    if (name != NULL && name->len == 0) {
        name = NULL;
    }

    path = s->conf->chroot.len + dir->len + (name ? 1 + name->len : 0);
    len = value ? value->len : 0;

    switch (type) {

    case NGX_HTTP_ZK_LOCK_OP_CREATE:
        reply = path + 10 + 1;
        break;

    case NGX_HTTP_ZK_LOCK_OP_GET:
        reply = ZK_LOCK_LABEL_MAX;
        break;

    default:
        reply = 0;
        break;
    }

    op = ngx_alloc(sizeof(ngx_http_zk_lock_op_t) + path + 1 + len + 1 + reply,
                   s->log);
    if (op == NULL) {
        return NULL;
    }

    ngx_memzero(op, sizeof(ngx_http_zk_lock_op_t));

    op->type = type;
    op->version = -1;
    op->flight.session = s;

    p = (u_char *) op + sizeof(ngx_http_zk_lock_op_t);

    op->path.data = p;

    p = ngx_cpymem(p, s->conf->chroot.data, s->conf->chroot.len);

    /* the top of a chroot is the chroot itself */

    if (dir->len > 1 || s->conf->chroot.len == 0) {
        p = ngx_cpymem(p, dir->data, dir->len);
    }

    if (name) {

        if (p == op->path.data || p[-1] != '/') {
            *p++ = '/';
        }

        p = ngx_cpymem(p, name->data, name->len);
    }

    op->path.len = p - op->path.data;
    *p++ = '\0';

    op->value.data = p;
    op->value.len = len;

    if (len) {
        p = ngx_cpymem(p, value->data, len);
    }

    *p++ = '\0';

    op->reply.data = p;

    return op;
}


ngx_http_zk_lock_op_t *
ngx_http_zk_lock_op_rename(ngx_http_zk_lock_session_t *s, ngx_str_t *dir,
    ngx_str_t *name, ngx_str_t *to, ngx_str_t *value, int32_t version,
    ngx_http_zk_lock_op_t *get)
{
    u_char                 *p;
    size_t                  len;
    ngx_http_zk_lock_op_t  *op;

    op = ngx_http_zk_lock_op_new(s, NGX_HTTP_ZK_LOCK_OP_RENAME, dir, name,
                                 value);
    if (op == NULL) {
        return NULL;
    }

    len = get->path.len;

    p = ngx_alloc(2 * (len + 1) + to->len + 1 + get->reply.len, s->log);
    if (p == NULL) {
        ngx_free(op);
        return NULL;
    }

    op->more = p;
    op->version = get->version;
    op->from_version = version;

    op->parent.data = p;
    op->parent.len = len;
    p = ngx_cpymem(p, get->path.data, len);
    *p++ = '\0';

    op->target.data = p;
    op->target.len = len + 1 + to->len;
    p = ngx_cpymem(p, get->path.data, len);
    *p++ = '/';
    p = ngx_cpymem(p, to->data, to->len);
    *p++ = '\0';

    op->content.data = p;
    op->content.len = get->reply.len;
    ngx_memcpy(p, get->reply.data, get->reply.len);

    return op;
}


void
ngx_http_zk_lock_session_send(ngx_http_zk_lock_op_t *op)
{
    ngx_http_zk_lock_session_t  *s;

    s = op->flight.session;

    if (s->state != NGX_HTTP_ZK_LOCK_CONNECTED) {
        ngx_http_zk_lock_session_fail(s, op, NGX_HTTP_ZK_LOCK_UNSENT);
        return;
    }

    if (!op->gather) {

        if (!ngx_queue_empty(&s->pending) && !s->hurry) {

            /* who asks sees what was decided before */

            ngx_http_zk_lock_session_flush_pending(s);
        }

        ngx_http_zk_lock_session_submit(s, op);
        return;
    }

    ngx_http_zk_lock_session_pend(s, op);
}


ngx_uint_t
ngx_http_zk_lock_session_reachable(ngx_http_zk_lock_session_t *s)
{
    return !s->unreachable;
}


ngx_uint_t
ngx_http_zk_lock_session_prompt(ngx_http_zk_lock_session_t *s)
{
    if (s->state != NGX_HTTP_ZK_LOCK_CONNECTED) {
        return 0;
    }

    if (ngx_http_zk_lock_now() - s->replied < NGX_HTTP_ZK_LOCK_PROMPT) {
        return 1;
    }

    ngx_http_zk_lock_session_ask(s);

    return 0;
}


ngx_uint_t
ngx_http_zk_lock_session_connected(ngx_http_zk_lock_session_t *s)
{
    return s->state == NGX_HTTP_ZK_LOCK_CONNECTED;
}


ngx_uint_t
ngx_http_zk_lock_session_alive(ngx_http_zk_lock_session_t *s)
{
    return s->state == NGX_HTTP_ZK_LOCK_CONNECTED
           && ngx_http_zk_lock_ahead(*s->alive);
}


ngx_int_t
ngx_http_zk_lock_session_reserve(ngx_http_zk_lock_session_t *s, size_t len)
{
    len += s->conf->chroot.len + 4;

    if (s->path_bytes + len > NGX_HTTP_ZK_LOCK_PATH_BYTES) {
        return NGX_BUSY;
    }

    s->path_bytes += len;

    return NGX_OK;
}


void
ngx_http_zk_lock_session_charge(ngx_http_zk_lock_session_t *s, size_t len)
{
    s->path_bytes += len + s->conf->chroot.len + 4;
}


void
ngx_http_zk_lock_session_unreserve(ngx_http_zk_lock_session_t *s, size_t len)
{
    s->path_bytes -= len + s->conf->chroot.len + 4;
}


ngx_uint_t
ngx_http_zk_lock_session_may_watch(ngx_http_zk_lock_session_t *s, size_t len)
{
    len += s->conf->chroot.len + 4;

    return s->watch_bytes + len <= NGX_HTTP_ZK_LOCK_PATH_BYTES;
}


ngx_uint_t
ngx_http_zk_lock_session_watches(ngx_http_zk_lock_session_t *s,
    ngx_str_t *path)
{
    return ngx_str_rbtree_lookup(&s->watches, path,
                                 ngx_crc32_long(path->data, path->len))
           != NULL;
}


ngx_msec_t
ngx_http_zk_lock_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (ngx_msec_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


/*
 * A session that is taken over has its timeout negotiated anew, when the server
 * has the request: what was known of its life before counts no longer than
 * that.
 */

static void
ngx_http_zk_lock_session_start(ngx_http_zk_lock_session_t *s)
{
    ngx_msec_t                     until;
    const ngx_http_zk_lock_key_t  *key;

    s->serial++;
    s->gated = 0;

    key = NULL;

    if (s->key.id != 0) {
        key = &s->key;

        until = ngx_http_zk_lock_now() + s->timeout - s->timeout / 3;

        if ((ngx_msec_int_t) (*s->alive - until) > 0) {
            *s->alive = until;
        }
    }

    s->handle = ngx_http_zk_lock_library_open(s->conf, key, s, s->serial,
                                              ngx_http_zk_lock_session_news,
                                              s->mailbox, s->log);

    ngx_http_zk_lock_session_state(s, s->handle
                                      ? NGX_HTTP_ZK_LOCK_CONNECTING
                                      : NGX_HTTP_ZK_LOCK_BACKOFF);
}


static void
ngx_http_zk_lock_session_state(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_session_state_e state)
{
    ngx_msec_t    now;
    static char  *names[] = {
        "closed", "connecting", "connected", "suspended", "backoff"
    };

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, s->log, 0,
                   "zk lock session: %s -> %s", names[s->state], names[state]);

    now = ngx_http_zk_lock_now();

    /* out of reach since the last moment when it was connected */

    if (s->state == NGX_HTTP_ZK_LOCK_CONNECTED
        || s->state == NGX_HTTP_ZK_LOCK_CLOSED)
    {
        s->since = now;
    }

    s->state = state;

    if (state == NGX_HTTP_ZK_LOCK_BACKOFF) {
        s->backoff = s->backoff ? ngx_min(s->backoff * 2,
                                          NGX_HTTP_ZK_LOCK_BACKOFF_MAX)
                                : NGX_HTTP_ZK_LOCK_BACKOFF_MIN;
        s->asked = now;
    }

    if (state != NGX_HTTP_ZK_LOCK_CLOSED) {
        ngx_http_zk_lock_session_arm(s);
    }
}


static void
ngx_http_zk_lock_session_news(zk_lock_message_t *message, void *data)
{
    ngx_http_zk_lock_news_t     *n = (ngx_http_zk_lock_news_t *) message;

    ngx_http_zk_lock_news_e      news;
    ngx_http_zk_lock_session_t  *s;

    s = n->session;
    news = n->news;

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, s->log, 0,
                   "zk lock session: news %d \"%V\" of handle %ui",
                   news, &n->path, n->serial);

    if (n->serial != s->serial || s->events == NULL || s->handle == NULL) {
        goto done;
    }

    switch (news) {

    case NGX_HTTP_ZK_LOCK_NEWS_CONNECTED:
        ngx_http_zk_lock_session_connected_handler(s);
        break;

    case NGX_HTTP_ZK_LOCK_NEWS_SUSPENDED:
        ngx_http_zk_lock_session_suspended_handler(s);
        break;

    case NGX_HTTP_ZK_LOCK_NEWS_MISSED:
        ngx_log_error(NGX_LOG_ERR, s->log, 0,
                      "no memory for a message of libzookeeper");

        /* fall through */

    case NGX_HTTP_ZK_LOCK_NEWS_EXPIRED:
    case NGX_HTTP_ZK_LOCK_NEWS_AUTH_FAILED:
        ngx_http_zk_lock_session_suspended_handler(s);

        ngx_log_error(NGX_LOG_WARN, s->log, 0,
                      "zookeeper session is over: %s",
                      news == NGX_HTTP_ZK_LOCK_NEWS_AUTH_FAILED
                      ? "authentication failed" : "expired");

        /* not from here: messages of the same turn are still to be taken */

        ngx_post_event(&s->over, &ngx_posted_events);
        break;

    case NGX_HTTP_ZK_LOCK_NEWS_DELETED:
    case NGX_HTTP_ZK_LOCK_NEWS_CHANGED:
        ngx_http_zk_lock_session_unwatched(s, &n->path, 0);

        if (news == NGX_HTTP_ZK_LOCK_NEWS_DELETED) {
            ngx_http_zk_lock_session_unwatched(s, &n->path, 1);
            s->events->listed(s->data, &n->path);
        }

        s->events->changed(s->data, &n->path,
                           news == NGX_HTTP_ZK_LOCK_NEWS_DELETED);
        break;

    case NGX_HTTP_ZK_LOCK_NEWS_LISTED:
        ngx_http_zk_lock_session_unwatched(s, &n->path, 1);

        s->events->listed(s->data, &n->path);
        break;
    }

done:

    free(n);
}


/* The news of a handle that is only opened to be closed. */

static void
ngx_http_zk_lock_session_no_news(zk_lock_message_t *message, void *data)
{
    ngx_uint_t *heard = data;

    if (heard != NULL) {
        *heard = 1;
    }

    free(message);
}


static void
ngx_http_zk_lock_session_connected_handler(ngx_http_zk_lock_session_t *s)
{
    int64_t     id;
    ngx_uint_t  fresh;
    ngx_msec_t  until;

    if (s->state == NGX_HTTP_ZK_LOCK_CONNECTED) {
        return;
    }

    id = s->key.id;

    ngx_http_zk_lock_library_key(s->handle, &s->key);

    fresh = (s->key.id != id);

    s->timeout = ngx_http_zk_lock_library_timeout(s->handle);

    /* the timeout may be another one from when the server was asked again */

    until = s->since + s->timeout - s->timeout / 3;

    if (!fresh && (ngx_msec_int_t) (*s->alive - until) > 0) {
        *s->alive = until;
    }

    s->unreachable = 0;
    s->nudged = 0;
    s->asked = ngx_http_zk_lock_now();
    s->replied = s->asked;

    ngx_http_zk_lock_session_state(s, NGX_HTTP_ZK_LOCK_CONNECTED);

    ngx_log_error(NGX_LOG_NOTICE, s->log, 0,
                  "zookeeper session is %s, timeout %M ms",
                  fresh ? "open" : "back", s->timeout);

    if (fresh) {
        /* nothing was sent yet that was answered, but the session is young */
        *s->alive = s->asked + s->timeout - s->timeout / 3;
    }

    ngx_http_zk_lock_session_ask(s);

    if (!s->gated && !s->last) {
        ngx_http_zk_lock_session_gate(s, NGX_HTTP_ZK_LOCK_OP_GATE);
    }

    s->events->connected(s->data, fresh);
}


static void
ngx_http_zk_lock_session_suspended_handler(ngx_http_zk_lock_session_t *s)
{
    if (s->state != NGX_HTTP_ZK_LOCK_CONNECTED) {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, s->log, 0,
                  "zookeeper connection is lost, the session may come back");

    ngx_http_zk_lock_session_state(s, NGX_HTTP_ZK_LOCK_SUSPENDED);

    /* what is under way is answered by the library, with an error */

    ngx_http_zk_lock_session_unpend(s);

    s->events->suspended(s->data);
}


static void
ngx_http_zk_lock_session_over_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_session_t  *s;

    s = ev->data;

    ngx_http_zk_lock_session_end_handle(s);

    /* what is told of operations comes before what is told of the session */

    while (!ngx_queue_empty(&s->failed)) {
        ngx_http_zk_lock_session_flush_failed(s);
    }

    s->key.id = 0;
    *s->alive = ngx_http_zk_lock_now() - 1;

    ngx_http_zk_lock_session_state(s, s->last ? NGX_HTTP_ZK_LOCK_CLOSED
                                              : NGX_HTTP_ZK_LOCK_BACKOFF);

    /* ZooKeeper has just told: there is patience for a new session */

    s->since = ngx_http_zk_lock_now();

    s->events->lost(s->data);
}


/*
 * Closes the handle.  What the library answers meanwhile is delivered, and
 * what it never answered fails here: it can lose completions when it closes
 * (ZOOKEEPER-2894, ZOOKEEPER-3868).
 */

static void
ngx_http_zk_lock_session_end_handle(ngx_http_zk_lock_session_t *s)
{
    ngx_queue_t                *q;
    ngx_http_zk_lock_flight_t  *flight;

    if (s->handle == NULL) {
        return;
    }

    ngx_http_zk_lock_library_close(s->handle);

    s->handle = NULL;

    ngx_http_zk_lock_session_forget_watches(s);

    (void) zk_lock_mailbox_take(s->mailbox, NULL);

    while (!ngx_queue_empty(&s->flights)) {
        q = ngx_queue_head(&s->flights);
        flight = ngx_queue_data(q, ngx_http_zk_lock_flight_t, queue);

        flight->code = 0;
        flight->message.deliver(&flight->message, s);
    }

    ngx_http_zk_lock_session_unpend(s);
}


static void
ngx_http_zk_lock_session_tick_handler(ngx_event_t *ev)
{
    ngx_msec_t                   now;
    ngx_http_zk_lock_session_t  *s;

    s = ev->data;
    now = ngx_http_zk_lock_now();

    switch (s->state) {

    case NGX_HTTP_ZK_LOCK_CLOSED:
        return;

    case NGX_HTTP_ZK_LOCK_BACKOFF:

        if (now - s->asked >= s->backoff) {
            ngx_http_zk_lock_session_start(s);
        }

        /* fall through */

    case NGX_HTTP_ZK_LOCK_CONNECTING:
    case NGX_HTTP_ZK_LOCK_SUSPENDED:

        if (now - s->since >= NGX_HTTP_ZK_LOCK_PATIENCE) {
            ngx_http_zk_lock_session_out_of_reach(s);
        }

        break;

    case NGX_HTTP_ZK_LOCK_CONNECTED:
        ngx_http_zk_lock_session_watchdog(s, now);
        break;
    }

    ngx_http_zk_lock_session_arm(s);
}


static void
ngx_http_zk_lock_session_watchdog(ngx_http_zk_lock_session_t *s,
    ngx_msec_t now)
{
    ngx_msec_t                  silence;
    ngx_queue_t                *q;
    ngx_http_zk_lock_flight_t  *flight;

    if (ngx_queue_empty(&s->flights)) {

        if (now - s->asked >= s->timeout / 3) {
            ngx_http_zk_lock_session_ask(s);
        }

        return;
    }

    q = ngx_queue_head(&s->flights);
    flight = ngx_queue_data(q, ngx_http_zk_lock_flight_t, queue);

    silence = now - flight->sent;

    if (now - s->replied < silence) {
        silence = now - s->replied;
    }

    if (silence >= NGX_HTTP_ZK_LOCK_NUDGE && !s->nudged) {
        s->nudged = 1;
        ngx_http_zk_lock_session_ask(s);
    }

    if (silence >= NGX_HTTP_ZK_LOCK_PATIENCE) {
        ngx_http_zk_lock_session_out_of_reach(s);
    }

    if (silence >= 2 * s->timeout && !s->over.posted) {

        /* the library would have told; it must have lost an answer */

        ngx_log_error(NGX_LOG_ERR, s->log, 0,
                      "no answer from libzookeeper for %M ms, "
                      "the session is given up", silence);

        ngx_http_zk_lock_session_suspended_handler(s);
        ngx_post_event(&s->over, &ngx_posted_events);
    }
}


static void
ngx_http_zk_lock_session_out_of_reach(ngx_http_zk_lock_session_t *s)
{
    if (!s->unreachable) {
        s->unreachable = 1;

        ngx_log_error(NGX_LOG_WARN, s->log, 0,
                      "zookeeper is out of reach at \"%V\"",
                      &s->conf->servers);
    }

    s->events->unreachable(s->data);
}


/* Asks for something, so as to hear something. */

static void
ngx_http_zk_lock_session_ask(ngx_http_zk_lock_session_t *s)
{
    ngx_http_zk_lock_op_t  *op;

    op = ngx_http_zk_lock_op_new(s, NGX_HTTP_ZK_LOCK_OP_SYNC,
                                 &ngx_http_zk_lock_top, NULL, NULL);
    if (op == NULL) {
        return;
    }

    ngx_http_zk_lock_session_send(op);
}


/*
 * Makes the gate.  Its parent is made when it turns out to be missing, and
 * stays.  Without a gate all goes on, but slower.
 */

static void
ngx_http_zk_lock_session_gate(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_e type)
{
    u_char                  name[16];
    u_char                  value[NGX_MAXHOSTNAMELEN + NGX_INT64_LEN + 1];
    ngx_str_t               leaf, label;
    ngx_http_zk_lock_op_t  *op;

    leaf.data = name;
    leaf.len = ngx_sprintf(name, "%08xD%08xD", (uint32_t) ngx_random(),
                           (uint32_t) ngx_random())
               - name;

    label.data = value;
    label.len = ngx_sprintf(value, "%V %P", &ngx_cycle->hostname, ngx_pid)
                - value;

    op = ngx_http_zk_lock_op_new(s, type, &ngx_http_zk_lock_gates,
                                 type == NGX_HTTP_ZK_LOCK_OP_GATE ? &leaf
                                                                  : NULL,
                                 type == NGX_HTTP_ZK_LOCK_OP_GATE ? &label
                                                                  : NULL);
    if (op == NULL) {
        return;
    }

    op->handler = ngx_http_zk_lock_session_gate_handler;
    op->data = s;

    ngx_http_zk_lock_session_send(op);
}


static void
ngx_http_zk_lock_session_gate_handler(ngx_http_zk_lock_op_t *op)
{
    u_char                      *p;
    ngx_http_zk_lock_session_t  *s;

    s = op->data;

    if (op->type != NGX_HTTP_ZK_LOCK_OP_GATE) {

        if (op->rc == NGX_HTTP_ZK_LOCK_OK
            || op->rc == NGX_HTTP_ZK_LOCK_EXISTS)
        {
            ngx_http_zk_lock_session_gate(s, NGX_HTTP_ZK_LOCK_OP_GATE);
        }

        return;
    }

    switch (op->rc) {

    case NGX_HTTP_ZK_LOCK_OK:
        p = ngx_cpymem(s->gate.data, op->path.data, op->path.len);
        *p = '\0';

        s->gate.len = op->path.len;
        s->gated = 1;
        break;

    case NGX_HTTP_ZK_LOCK_NO_NODE:
        ngx_http_zk_lock_session_gate(s, NGX_HTTP_ZK_LOCK_OP_PERSISTENT);
        break;

    default:
        /* tried again when the connection is back */
        break;
    }
}


/* Puts op to what is gathered for the next transaction. */

static void
ngx_http_zk_lock_session_pend(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op)
{
    ngx_queue_insert_tail(&s->pending, &op->flight.queue);
    s->npending++;

    ngx_http_zk_lock_session_arm(s);

    if (!op->patient || s->npending >= NGX_HTTP_ZK_LOCK_PATIENT_MAX) {
        ngx_http_zk_lock_session_hurry(s);

    } else if (!s->gather.timer_set) {
        ngx_add_timer(&s->gather, NGX_HTTP_ZK_LOCK_PATIENT);
    }
}


/* There is no connection to send it to. */

static void
ngx_http_zk_lock_session_unpend(ngx_http_zk_lock_session_t *s)
{
    ngx_queue_t            *q;
    ngx_http_zk_lock_op_t  *op;

    while (!ngx_queue_empty(&s->pending)) {
        q = ngx_queue_head(&s->pending);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);
        ngx_http_zk_lock_session_fail(s, op, NGX_HTTP_ZK_LOCK_UNSENT);
    }

    s->npending = 0;
    s->hurry = 0;
}


/* What is pending goes as soon as the event loop brings no more of it. */

static void
ngx_http_zk_lock_session_hurry(ngx_http_zk_lock_session_t *s)
{
    s->hurry = 1;

    if (s->writes < NGX_HTTP_ZK_LOCK_WRITES_MAX && !s->flush.posted) {
        s->gathered = s->npending;
        s->turns = 0;

        ngx_post_event(&s->flush, &ngx_posted_next_events);
    }
}


static void
ngx_http_zk_lock_session_gather_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_session_t  *s;

    s = ev->data;

    if (!ngx_queue_empty(&s->pending)) {
        ngx_http_zk_lock_session_hurry(s);
    }
}


static void
ngx_http_zk_lock_session_flush_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_session_t  *s;

    s = ev->data;

    if (s->npending > s->gathered
        && s->npending < NGX_HTTP_ZK_LOCK_GATHER
        && s->turns < NGX_HTTP_ZK_LOCK_TURNS)
    {
        s->gathered = s->npending;
        s->turns++;

        ngx_post_event(&s->flush, &ngx_posted_next_events);

    } else if (s->hurry) {
        ngx_http_zk_lock_session_flush_pending(s);
    }

    ngx_http_zk_lock_session_flush_failed(s);
}


/* Tells of those that failed; those that fail meanwhile wait for a turn. */

static void
ngx_http_zk_lock_session_flush_failed(ngx_http_zk_lock_session_t *s)
{
    ngx_queue_t             failed;
    ngx_queue_t            *q;
    ngx_http_zk_lock_op_t  *op;

    if (ngx_queue_empty(&s->failed)) {
        return;
    }

    ngx_queue_init(&failed);
    ngx_queue_add(&failed, &s->failed);
    ngx_queue_init(&s->failed);

    while (!ngx_queue_empty(&failed)) {
        q = ngx_queue_head(&failed);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);
        ngx_http_zk_lock_session_finish(op);
    }
}


static void
ngx_http_zk_lock_session_flush_pending(ngx_http_zk_lock_session_t *s)
{
    ngx_queue_t               *q;
    ngx_http_zk_lock_op_t     *op;
    ngx_http_zk_lock_batch_t  *batch;

    while (s->writes < NGX_HTTP_ZK_LOCK_WRITES_MAX
           && !ngx_queue_empty(&s->pending))
    {
        q = ngx_queue_head(&s->pending);
        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);

        batch = NULL;

        if (q != ngx_queue_last(&s->pending)
            && (s->gated || op->type != NGX_HTTP_ZK_LOCK_OP_CREATE))
        {
            batch = ngx_http_zk_lock_session_gather(s);
        }

        if (batch != NULL) {
            ngx_http_zk_lock_session_submit_batch(s, batch);
            continue;
        }

        ngx_queue_remove(q);
        s->npending--;

        op->flight.counted = 1;
        s->writes++;

        ngx_http_zk_lock_session_submit(s, op);
    }

    if (ngx_queue_empty(&s->pending)) {
        s->hurry = 0;

        if (s->gather.timer_set) {
            ngx_del_timer(&s->gather);
        }
    }
}


/* Takes a batch from what is pending; NULL if there is no memory. */

static ngx_http_zk_lock_batch_t *
ngx_http_zk_lock_session_gather(ngx_http_zk_lock_session_t *s)
{
    size_t                     bytes;
    ngx_queue_t               *q;
    ngx_http_zk_lock_op_t     *op;
    ngx_http_zk_lock_batch_t  *batch;

    batch = ngx_calloc(sizeof(ngx_http_zk_lock_batch_t), s->log);
    if (batch == NULL) {
        return NULL;
    }

    ngx_queue_init(&batch->ops);
    batch->flight.session = s;
    batch->gate = &s->gate;

    bytes = 0;

    while (batch->nops < NGX_HTTP_ZK_LOCK_BATCH_MAX
           && bytes < NGX_HTTP_ZK_LOCK_BATCH_BYTES
           && !ngx_queue_empty(&s->pending))
    {
        q = ngx_queue_head(&s->pending);
        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);

        if (op->type == NGX_HTTP_ZK_LOCK_OP_CREATE) {

            if (!s->gated) {
                break;
            }

            op->index = batch->ncreates++;

            (void) ngx_sprintf(op->value.data + op->index_at, "%02xi",
                               op->index);
        }

        ngx_queue_remove(q);
        s->npending--;

        ngx_queue_insert_tail(&batch->ops, q);

        batch->nops++;
        bytes += op->path.len + op->value.len;
    }

    return batch;
}


static void
ngx_http_zk_lock_session_submit(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op)
{
    int  code;

    if (op->type == NGX_HTTP_ZK_LOCK_OP_CREATE) {
        op->index = 0;
        (void) ngx_sprintf(op->value.data + op->index_at, "00");
    }

    op->flight.message.deliver = ngx_http_zk_lock_session_op_landed;

    ngx_http_zk_lock_session_took_off(s, &op->flight);

    code = ngx_http_zk_lock_library_submit(s->handle, op);

    if (code == 0) {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, s->log, 0,
                  "libzookeeper refused an operation on \"%V\": %s",
                  &op->path, ngx_http_zk_lock_library_text(code));

    ngx_http_zk_lock_session_landed(&op->flight);
    ngx_http_zk_lock_session_fail(s, op,
                          ngx_http_zk_lock_library_rc(code)
                          == NGX_HTTP_ZK_LOCK_REFUSED
                          ? NGX_HTTP_ZK_LOCK_REFUSED
                          : NGX_HTTP_ZK_LOCK_UNSENT);
}


static void
ngx_http_zk_lock_session_submit_batch(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_batch_t *batch)
{
    int                     code;
    ngx_queue_t            *q;
    ngx_http_zk_lock_op_t  *op;

    batch->flight.message.deliver = ngx_http_zk_lock_session_batch_landed;
    batch->flight.counted = 1;
    s->writes++;

    ngx_http_zk_lock_session_took_off(s, &batch->flight);

    code = ngx_http_zk_lock_library_submit_batch(s->handle, batch);

    if (code == 0) {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, s->log, 0,
                  "libzookeeper refused a transaction of %ui: %s",
                  batch->nops, ngx_http_zk_lock_library_text(code));

    ngx_http_zk_lock_session_landed(&batch->flight);

    while (!ngx_queue_empty(&batch->ops)) {
        q = ngx_queue_head(&batch->ops);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);
        ngx_http_zk_lock_session_fail(s, op, NGX_HTTP_ZK_LOCK_UNSENT);
    }

    ngx_http_zk_lock_library_free_batch(batch);
}


static void
ngx_http_zk_lock_session_took_off(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_flight_t *flight)
{
    flight->sent = ngx_http_zk_lock_now();
    s->asked = flight->sent;

    ngx_queue_insert_tail(&s->flights, &flight->queue);

    ngx_http_zk_lock_session_arm(s);
}


static void
ngx_http_zk_lock_session_landed(ngx_http_zk_lock_flight_t *flight)
{
    ngx_http_zk_lock_session_t  *s;

    s = flight->session;

    ngx_queue_remove(&flight->queue);

    if (flight->counted) {
        flight->counted = 0;
        s->writes--;
    }

    if (s->hurry) {
        ngx_http_zk_lock_session_hurry(s);
    }
}


/* Notes that ZooKeeper has answered what was sent then. */

static void
ngx_http_zk_lock_session_heard(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_flight_t *flight)
{
    ngx_atomic_uint_t  until;

    if (s->handle == NULL
        || ngx_http_zk_lock_library_rc(flight->code)
           == NGX_HTTP_ZK_LOCK_UNKNOWN)
    {
        return;
    }

    s->replied = ngx_http_zk_lock_now();
    s->unreachable = 0;
    s->nudged = 0;
    s->backoff = 0;

    until = flight->sent + s->timeout - s->timeout / 3;

    if ((ngx_msec_int_t) (until - *s->alive) > 0) {
        *s->alive = until;
    }
}


static void
ngx_http_zk_lock_session_op_landed(zk_lock_message_t *message, void *data)
{
    ngx_http_zk_lock_op_t       *op = (ngx_http_zk_lock_op_t *) message;

    ngx_http_zk_lock_session_t  *s;

    s = op->flight.session;

    /* data is the session if the library never answered */

    op->rc = (data == s) ? NGX_HTTP_ZK_LOCK_UNKNOWN
                         : ngx_http_zk_lock_library_rc(op->flight.code);

    if (data != s) {
        ngx_http_zk_lock_session_heard(s, &op->flight);
    }

    ngx_http_zk_lock_session_landed(&op->flight);

    if (op->watch
        && (op->rc == NGX_HTTP_ZK_LOCK_OK
            || (op->rc == NGX_HTTP_ZK_LOCK_NO_NODE
                && op->type == NGX_HTTP_ZK_LOCK_OP_EXISTS)))
    {
        ngx_http_zk_lock_session_watched(s, op);
    }

    if (op->rc == NGX_HTTP_ZK_LOCK_REFUSED) {
        ngx_log_error(NGX_LOG_ERR, s->log, 0,
                      "zookeeper refused an operation on \"%V\": %s",
                      &op->path,
                      ngx_http_zk_lock_library_text(op->flight.code));
    }

    ngx_http_zk_lock_session_finish(op);
}


static void
ngx_http_zk_lock_session_batch_landed(zk_lock_message_t *message, void *data)
{
    ngx_http_zk_lock_batch_t    *batch = (ngx_http_zk_lock_batch_t *) message;

    ngx_queue_t                 *q;
    ngx_http_zk_lock_rc_e        rc;
    ngx_http_zk_lock_op_t       *op;
    ngx_http_zk_lock_session_t  *s;

    s = batch->flight.session;

    rc = NGX_HTTP_ZK_LOCK_UNKNOWN;

    if (data != s) {
        rc = ngx_http_zk_lock_library_rc(batch->flight.code);

        ngx_http_zk_lock_session_heard(s, &batch->flight);
        ngx_http_zk_lock_library_read_batch(batch);
    }

    ngx_http_zk_lock_session_landed(&batch->flight);

    if (rc != NGX_HTTP_ZK_LOCK_OK && rc != NGX_HTTP_ZK_LOCK_UNKNOWN) {
        ngx_http_zk_lock_session_rolled_back(s, batch);
    }

    while (!ngx_queue_empty(&batch->ops)) {
        q = ngx_queue_head(&batch->ops);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);
        op->rc = rc;

        ngx_http_zk_lock_session_finish(op);
    }

    ngx_http_zk_lock_library_free_batch(batch);
}


/*
 * The library keeps one watch a path until it fires, and sets all of them
 * again in one packet after a reconnect, which ZooKeeper refuses if it is too
 * long (ZOOKEEPER-706): so the bytes of the paths are counted, each once.
 */

static void
ngx_http_zk_lock_session_watched(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op)
{
    uint32_t         hash;
    ngx_str_t        path;
    ngx_str_node_t  *sn;

    path.data = op->path.data + s->conf->chroot.len;
    path.len = op->path.len - s->conf->chroot.len;

    /* those of lists are kept apart: the NUL belongs to their key */

    path.len += (op->type != NGX_HTTP_ZK_LOCK_OP_GET);

    hash = ngx_crc32_long(path.data, path.len);

    if (s->handle == NULL
        || ngx_str_rbtree_lookup(&s->watches, &path, hash) != NULL)
    {
        return;
    }

    sn = ngx_alloc(sizeof(ngx_str_node_t) + path.len, s->log);
    if (sn == NULL) {
        return;
    }

    sn->node.key = hash;
    sn->str.len = path.len;
    sn->str.data = (u_char *) sn + sizeof(ngx_str_node_t);
    ngx_memcpy(sn->str.data, path.data, path.len);

    ngx_rbtree_insert(&s->watches, &sn->node);

    s->watch_bytes += path.len + s->conf->chroot.len + 4;
}


static void
ngx_http_zk_lock_session_unwatched(ngx_http_zk_lock_session_t *s,
    ngx_str_t *path, ngx_uint_t list)
{
    ngx_str_t        key;
    ngx_str_node_t  *sn;

    key.data = path->data;
    key.len = path->len + list;

    sn = ngx_str_rbtree_lookup(&s->watches, &key,
                               ngx_crc32_long(key.data, key.len));
    if (sn == NULL) {
        return;
    }

    s->watch_bytes -= key.len + s->conf->chroot.len + 4;

    ngx_rbtree_delete(&s->watches, &sn->node);
    ngx_free(sn);
}


static void
ngx_http_zk_lock_session_forget_watches(ngx_http_zk_lock_session_t *s)
{
    ngx_str_node_t  *sn;

    while (s->watches.root != s->watches.sentinel) {
        sn = (ngx_str_node_t *) s->watches.root;

        ngx_rbtree_delete(&s->watches, &sn->node);
        ngx_free(sn);
    }

    s->watch_bytes = 0;
}


/*
 * Nothing of the batch happened.  The culprit, the one whose code is its own,
 * goes again alone and gets its answer so; the others go again together,
 * ahead of what came later.
 */

static void
ngx_http_zk_lock_session_rolled_back(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_batch_t *batch)
{
    ngx_uint_t              culprits, connected;
    ngx_queue_t            *q;
    ngx_http_zk_lock_op_t  *op;

    culprits = 0;

    /* a handle that was closed answers, too */

    connected = (s->state == NGX_HTTP_ZK_LOCK_CONNECTED && s->handle != NULL);

    while (!ngx_queue_empty(&batch->ops)) {
        q = ngx_queue_last(&batch->ops);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_http_zk_lock_op_t, flight.queue);

        if (!connected) {
            ngx_http_zk_lock_session_fail(s, op, NGX_HTTP_ZK_LOCK_UNSENT);
            continue;
        }

        if (ngx_http_zk_lock_library_innocent(op->flight.code)) {
            ngx_queue_insert_head(&s->pending, q);
            s->npending++;
            continue;
        }

        culprits++;
        op->gather = 0;

        ngx_http_zk_lock_session_submit(s, op);
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, s->log, 0,
                   "zk lock session: batch of %ui rolled back, culprits: %ui",
                   batch->nops, culprits);

    if (culprits == 0 && connected) {

        /* somebody deleted the gate */

        s->gated = 0;
        ngx_http_zk_lock_session_gate(s, NGX_HTTP_ZK_LOCK_OP_GATE);
    }

    if (!ngx_queue_empty(&s->pending)) {
        ngx_http_zk_lock_session_hurry(s);
    }
}


static void
ngx_http_zk_lock_session_fail(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op, ngx_http_zk_lock_rc_e rc)
{
    op->rc = rc;

    ngx_queue_insert_tail(&s->failed, &op->flight.queue);

    ngx_post_event(&s->flush, &ngx_posted_events);
}


static void
ngx_http_zk_lock_session_finish(ngx_http_zk_lock_op_t *op)
{
    size_t                       i;
    ngx_http_zk_lock_session_t  *s;

    s = op->flight.session;

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, s->log, 0,
                   "zk lock session: op %d \"%V\" rc:%d",
                   op->type, &op->path, op->rc);

    if (op->type == NGX_HTTP_ZK_LOCK_OP_CREATE
        && op->rc == NGX_HTTP_ZK_LOCK_OK)
    {
        /* names are told without the path that leads to them */

        for (i = op->reply.len; i > 0 && op->reply.data[i - 1] != '/'; i--) {
            /* void */
        }

        op->reply.data += i;
        op->reply.len -= i;
    }

    if (op->handler != NULL && s->events != NULL) {
        op->handler(op);
    }

    ngx_http_zk_lock_session_free_op(op);
}


static void
ngx_http_zk_lock_session_free_op(ngx_http_zk_lock_op_t *op)
{
    if (op->children != NULL) {
        free(op->children);
    }

    if (op->more != NULL) {
        ngx_free(op->more);
    }

    if (op->results != NULL) {
        ngx_free(op->results);
    }

    ngx_free(op);
}


/*
 * The tick is short while something is under way or out of reach, else it is
 * the heartbeat.  An operation under way keeps a worker that wants to leave.
 */

static void
ngx_http_zk_lock_session_arm(ngx_http_zk_lock_session_t *s)
{
    ngx_msec_t  period;

    period = NGX_HTTP_ZK_LOCK_TICK;

    s->tick.cancelable = ngx_queue_empty(&s->flights)
                         && ngx_queue_empty(&s->pending);

    if (s->state == NGX_HTTP_ZK_LOCK_CONNECTED && s->tick.cancelable) {
        period = s->timeout / 3;
    }

    if (s->tick.timer_set
        && (ngx_msec_int_t) (s->tick.timer.key - ngx_current_msec)
           <= (ngx_msec_int_t) period)
    {
        return;
    }

    ngx_add_timer(&s->tick, period);
}
