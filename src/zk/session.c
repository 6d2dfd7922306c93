
/*
 * The session: the life of one ZooKeeper session of one worker.
 *
 * The file owns the session's operations from the send to the answer, the
 * gathering of writes into transactions, the heartbeat, and the bounds of what
 * the session has in ZooKeeper.  All functions run on the event loop; the
 * threads of libzookeeper post the answers to the mailbox.
 *
 *   state       from -> to                        meaning
 *   ---------   -------------------------------   ---------------------------
 *   CLOSED                                        no handle, and none follows
 *   CONNECTING  open() -> CONNECTED, BACKOFF      no connection yet
 *   CONNECTED   -> SUSPENDED, BACKOFF             operations are sent
 *   SUSPENDED   -> CONNECTED, BACKOFF,            the session may come back
 *                  CONNECTING
 *   BACKOFF     a timer -> CONNECTING             a new handle follows
 *
 * `handle` is NULL in the states CLOSED and BACKOFF; in CONNECTED `over` is not
 * posted.  `events` is NULL from the start of zkl_session_close() or
 * zkl_session_free() on; the handler of a cancelled operation is NULL.  An
 * operation is in one place at a time: in reads (see turns.c), pending, fresh,
 * failed, shared or flights, or in the ops of a batch or of a list.
 */


#include "zk/session.h"
#include "zk/client.h"
#include "zk/turns.h"

#include <sys/random.h>


typedef enum {
    ZKL_CLOSED = 0,
    ZKL_CONNECTING,
    ZKL_CONNECTED,
    ZKL_SUSPENDED,
    ZKL_BACKOFF
} zkl_session_state_e;


struct zkl_session_s {
    ngx_connection_t                          ident;    /* of the timers */

    zkl_session_conf_t                       *conf;
    const zkl_session_events_t               *events;
    void                                     *data;
    zkl_mailbox_t                            *mailbox;
    ngx_log_t                                *log;

    zkl_handle_t                             *handle;
    ngx_uint_t                                changes;  /* conf->changes, of the
                                                           handle's servers */
    zkl_session_state_e                       state;
    zkl_key_t                                 key;      /* id 0: none yet */
    ngx_msec_t                                timeout;  /* negotiated */
    ngx_msec_t                                backoff;
    ngx_msec_t                                since;    /* of the state */

    ngx_queue_t                               flights;  /* by sent */
    ngx_queue_t                               pending;  /* to be gathered */
    ngx_uint_t                                npending;
    ngx_uint_t                                gathered; /* a turn ago */
    ngx_uint_t                                turns;
    ngx_queue_t                               fresh;    /* reads, to be sent
                                                           behind a write */
    ngx_queue_t                               failed;   /* handler not called */
    zkl_turns_t                               reads;    /* with a turn */
    ngx_queue_t                               shared;   /* with a turn, and
                                                           told: the sharers are
                                                           to be told, too */
    ngx_uint_t                                writes;   /* in flight */

    ngx_msec_t                                paused;   /* when the backoff
                                                           began */
    ngx_msec_t                                wrote;    /* last write */
    ngx_msec_t                                replied;  /* last answer */
    ngx_msec_t                                apart;    /* a moment before a
                                                           server is asked for
                                                           the session */
    ngx_msec_t                                touched;  /* see known alive */
    ngx_msec_t                                proves;   /* a write that is sent
                                                           from then on */
    uint64_t                                  written;  /* writes so far */
    uint64_t                                  sure;     /* the last write that
                                                           reads may be sent
                                                           behind */
    uint64_t                                  committed;    /* last commit */
    uint64_t                                  behind;   /* told: the last write
                                                           that proves nothing
                                                           */
    int32_t                                   sets;     /* the version of the
                                                           gate's data; -1: not
                                                           known */
    ngx_msec_t                                refused;  /* when the gate was
                                                           refused; 0: not */
    ngx_uint_t                                doubts;   /* ticks in a row with
                                                           no answer at all */
    ngx_msec_t                                doubted;  /* the last such tick */
    ngx_msec_t                                denied;   /* last logged */
    ngx_msec_t                                rejected; /* when a write was
                                                           refused last; 0:
                                                           never */
    ngx_atomic_t                             *alive;

    u_char                                    gate_name[ZKL_GATE_LEN];
    ngx_str_t                                 gate;     /* gate_name */
    size_t                                    path_bytes;

    ngx_rbtree_t                              watches;  /* that are set */
    ngx_rbtree_node_t                         watches_sentinel;
    size_t                                    watch_bytes;
    size_t                                    watch_asked; /* in flight */

    ngx_event_t                               flush;    /* posted, a timer */
    ngx_event_t                               read;     /* posted */
    ngx_event_t                               over;     /* posted */
    ngx_event_t                               tick;

    unsigned                                  last:1;   /* no other follows */
    unsigned                                  gated:1;  /* gate is there */
    unsigned                                  gating:1; /* gate is requested */
    unsigned                                  nudged:1;
    unsigned                                  unreachable:1;
    unsigned                                  late:1;   /* connected, but no
                                                           memory to say so */
    unsigned                                  kept:1;   /* the session lives on
                                                           without handle */
    unsigned                                  told:1;   /* see known alive */
    unsigned                                  stale:1;  /* the session is that
                                                           of an older copy */
    unsigned                                  hurry:1;  /* not all that is
                                                           pending may wait */
    unsigned                                  barrier:1; /* no write was sent
                                                            since the reads came
                                                            to fresh */
};

#define ZKL_BACKOFF_MIN               50
#define ZKL_BACKOFF_MAX               5000

/* a server can leave a lone request unanswered: a nudge helps (milliseconds) */
#define ZKL_NUDGE                     200

/* a newer answer shows that the server is there, milliseconds */
#define ZKL_PROMPT                    2000

#define ZKL_TICK                      100

/* the least time between two log lines about ACLs, milliseconds */
#define ZKL_DENIED_AGAIN 1000

/* transactions in flight; further operations are gathered meanwhile */
#define ZKL_WRITES_MAX                4

/* a batch of this size goes within a turn; a smaller batch after these turns */
#define ZKL_GATHER                    64
#define ZKL_TURNS                     8

/* deferrable operations wait for so many milliseconds, or for this number */
#define ZKL_DEFER                     2
#define ZKL_DEFER_MAX                 32

/* bytes of paths and values in a batch; jute.maxbuffer is 1 MiB */
#define ZKL_BATCH_BYTES               (256 * 1024)

/* names in the lists that are told in a turn of the event loop */
#define ZKL_SHARED_NAMES              4096

/* RENAME sets the new znode's data if the claim's version is below this */
#define ZKL_VERSIONS                  (ZKL_BATCH_MAX - 4)

/* how soon a gate that was refused is asked for again, milliseconds */
#define ZKL_GATE_AGAIN                10000


static void zkl_session_free(zkl_session_t *s);
static void zkl_session_start(zkl_session_t *s);
static void zkl_session_state(zkl_session_t *s, zkl_session_state_e state);
static size_t zkl_session_shown(ngx_str_t *path);
static void zkl_session_news(zkl_message_t *message, void *data);
static void zkl_session_expired(zkl_session_t *s, ngx_uint_t kept,
    const char *reason);
static void zkl_session_connected_handler(zkl_session_t *s);
static void zkl_session_suspended_handler(zkl_session_t *s);
static void zkl_session_over_handler(ngx_event_t *ev);
static void zkl_session_end_handle(zkl_session_t *s);
static void zkl_session_tick_handler(ngx_event_t *ev);
static void zkl_session_committed(zkl_session_t *s, zkl_op_t *op);
static void zkl_session_bound(zkl_session_t *s);
static ngx_msec_t zkl_session_until(zkl_session_t *s, ngx_msec_t since);
static ngx_msec_t zkl_session_due(zkl_session_t *s);
static void zkl_session_watchdog(zkl_session_t *s, ngx_msec_t now);
static void zkl_session_out_of_reach(zkl_session_t *s);
static void zkl_session_barrier(zkl_session_t *s);
static void zkl_session_arm(zkl_session_t *s);
static zkl_op_t *zkl_op_add(zkl_op_t *op, zkl_op_t *part, int32_t version);
static zkl_op_t *zkl_op_first(ngx_queue_t *queue);
static zkl_op_t *zkl_op_pop(ngx_queue_t *queue);
static void zkl_session_finish(zkl_op_t *op);
static void zkl_session_share(zkl_session_t *s);
static void zkl_session_free_op(zkl_op_t *op);
static void zkl_session_flush_failed(zkl_session_t *s);
static void zkl_session_finish_all(zkl_session_t *s);
static void zkl_session_submit(zkl_session_t *s, zkl_op_t *op);
static void zkl_session_heard(zkl_session_t *s, zkl_op_t *op);
static void zkl_session_landed(zkl_message_t *message, void *data);
static void zkl_session_rolled_back(zkl_session_t *s, zkl_op_t *batch);
static void zkl_session_fail(zkl_session_t *s, zkl_op_t *op, zkl_rc_e rc);
static void zkl_session_flush_deferred(zkl_session_t *s);
static void zkl_session_read_handler(ngx_event_t *ev);
static void zkl_session_gate(zkl_session_t *s, zkl_op_e type);
static zkl_op_t *zkl_session_gate_op(zkl_session_t *s, zkl_op_e type);
static void zkl_session_gate_handler(zkl_op_t *op);
static void zkl_session_give_up(zkl_session_t *s, const char *why);
static void zkl_session_unpend(zkl_session_t *s);
static void zkl_session_hurry(zkl_session_t *s);
static void zkl_session_flush_handler(ngx_event_t *ev);
static void zkl_session_flush_pending(zkl_session_t *s);
static zkl_op_t *zkl_session_gather(zkl_session_t *s);
static void zkl_session_watched(zkl_session_t *s, zkl_op_t *op);
static void zkl_session_unwatched(zkl_session_t *s, ngx_str_t *path,
    ngx_uint_t list);
static void zkl_session_forget_watches(zkl_session_t *s, ngx_uint_t told);


static ngx_str_t  zkl_top = ngx_string("/");

ngx_str_t  zkl_gates = ngx_string(ZKL_GATES);


zkl_session_t *
zkl_session_open(zkl_session_conf_t *conf, zkl_mailbox_t *mailbox,
    const zkl_session_events_t *events, void *data, const zkl_key_t *key,
    ngx_atomic_t *alive, ngx_log_t *log)
{
    zkl_session_t  *s;

    s = ngx_calloc(sizeof(zkl_session_t), log);
    if (s == NULL) {
        return NULL;
    }

    s->ident.fd = (ngx_socket_t) -1;
    s->conf = conf;
    s->mailbox = mailbox;
    s->events = events;
    s->data = data;
    s->alive = alive;
    s->log = log;

    s->gate.data = s->gate_name;
    s->gate.len = ZKL_GATE_LEN;

    ngx_rbtree_init(&s->watches, &s->watches_sentinel,
                    ngx_str_rbtree_insert_value);

    ngx_queue_init(&s->flights);
    ngx_queue_init(&s->pending);
    ngx_queue_init(&s->fresh);
    ngx_queue_init(&s->failed);
    ngx_queue_init(&s->shared);
    zkl_turns_init(&s->reads);

    s->flush.handler = zkl_session_flush_handler;
    s->flush.data = s;
    s->flush.log = log;

    s->read.handler = zkl_session_read_handler;
    s->read.data = s;
    s->read.log = log;

    s->over.handler = zkl_session_over_handler;
    s->over.data = s;
    s->over.log = log;

    s->tick.handler = zkl_session_tick_handler;
    s->tick.data = s;
    s->tick.log = log;

    if (key != NULL) {
        s->key = *key;
        s->last = 1;
    }

    zkl_session_start(s);

    return s;
}


void
zkl_session_leave(zkl_session_t *s)
{
    if (s->handle != NULL) {
        zkl_client_cut(s->handle);
    }

    zkl_session_free(s);
}


void
zkl_session_close(zkl_session_t *s)
{
    ngx_msec_t  until;

    /*
     * libzookeeper closes the socket when the request that closes the session
     * is sent.  An answer that is still unread then makes the kernel reset the
     * connection, and the server drops the requests that the server has not
     * read.
     */

    s->events = NULL;
    until = zkl_now() + ZKL_PATIENCE;

    while (s->state == ZKL_CONNECTED
           && !ngx_queue_empty(&s->flights)
           && zkl_ahead(until))
    {
        if (zkl_mailbox_drain(s->mailbox, NULL) == 0) {
            ngx_msleep(1);
        }
    }

    /* from here on no worker may report that a claim of this session is held */

    *s->alive = zkl_now() - 1;
    ngx_memory_barrier();

    zkl_session_free(s);
}


static void
zkl_session_free(zkl_session_t *s)
{
    /* no handler is called for the remaining answers */

    s->events = NULL;

    zkl_session_state(s, ZKL_CLOSED);
    zkl_session_end_handle(s);
    zkl_session_forget_watches(s, 0);
    zkl_session_finish_all(s);

    if (s->flush.posted) {
        ngx_delete_posted_event(&s->flush);
    }

    if (s->read.posted) {
        ngx_delete_posted_event(&s->read);
    }

    if (s->over.posted) {
        ngx_delete_posted_event(&s->over);
    }

    if (s->flush.timer_set) {
        ngx_del_timer(&s->flush);
    }

    if (s->tick.timer_set) {
        ngx_del_timer(&s->tick);
    }

    ngx_free(s);
}


/*
 * A server counts a session that is taken over from the receipt of the request,
 * so the time that was known before is cut to that.
 */

static void
zkl_session_start(zkl_session_t *s)
{
    s->gating = 0;
    s->refused = 0;
    s->changes = s->conf->changes;
    s->gated &= (s->key.id != 0);
    s->apart = zkl_now();
    s->timeout = s->key.id ? s->key.timeout : s->conf->timeout;

    zkl_session_bound(s);

    if (s->conf->servers.len != 0) {
        s->handle = zkl_client_open(s->conf, &s->key, s->timeout, s,
                                    zkl_session_news, s->mailbox, s->log);
    }

    zkl_session_state(s, s->handle ? ZKL_CONNECTING : ZKL_BACKOFF);
}


static void
zkl_session_state(zkl_session_t *s, zkl_session_state_e state)
{
    ngx_msec_t  now;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, s->log, 0,
                   "zk lock session: state %d -> %d", s->state, state);

    now = zkl_now();

    /* out of reach since the last moment of a connection */

    if (s->state == ZKL_CONNECTED || s->state == ZKL_CLOSED) {
        s->since = now;
    }

    s->state = state;

    if (state == ZKL_BACKOFF) {
        s->backoff = s->backoff ? ngx_min(s->backoff * 2, ZKL_BACKOFF_MAX)
                                : ZKL_BACKOFF_MIN;
        s->paused = now;
    }

    if (state != ZKL_CLOSED) {
        zkl_session_arm(s);
    }
}


/*
 * The bytes of a path that logs may have, because the rest would make a token.
 */

static size_t
zkl_session_shown(ngx_str_t *path)
{
    return zkl_name_path_shown((char *) path->data, path->len);
}


static void
zkl_session_news(zkl_message_t *message, void *data)
{
    zkl_news_t  *n = (zkl_news_t *) message;

    zkl_session_t  *s;

    s = n->session;

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, s->log, 0,
                   "zk lock session: news %d \"%*s\"", n->news,
                   zkl_session_shown(&n->path), n->path.data);

    /* what a handle has told is delivered before there is another handle */

    if (s->events == NULL || s->handle == NULL) {
        free(n);
        return;
    }

    switch (n->news) {

    case ZKL_NEWS_CONNECTED:
        zkl_client_listen();
        zkl_session_connected_handler(s);
        break;

    case ZKL_NEWS_SUSPENDED:
        zkl_session_suspended_handler(s);
        break;

    case ZKL_NEWS_MISSED:
        ngx_log_error(NGX_LOG_ERR, s->log, 0,
                      "no memory for a message of libzookeeper");

        /* fall through */

    case ZKL_NEWS_EXPIRED:
        zkl_session_expired(s, 0, "expired");
        break;

    case ZKL_NEWS_AUTH_FAILED:
        zkl_session_expired(s, s->key.id != 0,
                            "authentication failed, see \"zk_lock_auth\"");
        break;

    default: /* ZKL_NEWS_DELETED, ZKL_NEWS_CHANGED, ZKL_NEWS_LISTED */

        if (n->news != ZKL_NEWS_LISTED) {
            zkl_session_unwatched(s, &n->path, 0);
        }

        if (n->news != ZKL_NEWS_CHANGED) {
            zkl_session_unwatched(s, &n->path, 1);
            s->events->listed(s->data, &n->path);
        }

        if (n->news != ZKL_NEWS_LISTED) {
            s->events->changed(s->data, &n->path,
                               n->news == ZKL_NEWS_DELETED);
        }

        break;
    }

    free(n);
}


/* The session is over; or kept: a server refuses the worker's identity. */

static void
zkl_session_expired(zkl_session_t *s, ngx_uint_t kept, const char *reason)
{
    if (s->over.posted) {
        return;
    }

    zkl_session_suspended_handler(s);

    s->kept = (kept != 0);

    ngx_log_error(NGX_LOG_WARN, s->log, 0, "zookeeper session is over: %s",
                  reason);

    /* not from here: messages of the same turn are still to be taken */

    ngx_post_event(&s->over, &ngx_posted_events);
}


static void
zkl_session_connected_handler(zkl_session_t *s)
{
    int64_t     bits;
    zkl_op_t   *gate;
    zkl_key_t   key;
    ngx_uint_t  fresh, another;

    if (s->state == ZKL_CONNECTED || s->over.posted) {
        return;
    }

    /* the tick tries again if there is no memory for what follows */

    s->late = 1;

    /* each connection negotiates the timeout anew; see known alive */

    zkl_client_key(s->handle, &key);

    s->timeout = key.timeout;
    s->told = 1;
    s->behind = s->written;
    s->touched = s->apart;
    s->proves = zkl_now();

    zkl_session_bound(s);

    /* the next reads must not be older than what was known before */

    s->barrier = 1;
    zkl_session_barrier(s);

    if (s->barrier) {
        return;
    }

    fresh = (key.id != s->key.id);

    if (fresh) {
        s->sets = -1;

        /*
         * No other session may have the same gate.  libzookeeper seeds random()
         * with 32 bits, so the bits come from the kernel.
         */

        if (getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) {
            bits = (int64_t) ((uint64_t) ngx_random() << 32 ^ ngx_random());
        }

        (void) ngx_sprintf(s->gate_name, "%016xL", bits);
    }

    gate = NULL;

    if (!s->gated && !s->last) {
        gate = zkl_session_gate_op(s, ZKL_OP_GATE);

        if (gate == NULL) {
            return;
        }
    }

    s->late = 0;

    another = (s->state == ZKL_CONNECTING);

    s->unreachable = 0;
    s->nudged = 0;
    s->replied = zkl_now();

    /* what has failed is told before the session is back */

    zkl_session_finish_all(s);

    zkl_session_state(s, ZKL_CONNECTED);

    ngx_log_error(NGX_LOG_NOTICE, s->log, 0,
                  "zookeeper session is %s, timeout %M ms",
                  fresh ? "open" : "back", s->timeout);

    /* the owner notes how far ZooKeeper is before any create is sent */

    if (fresh) {
        s->key = key;
        s->events->opened(s->data, &s->key);
    }

    /*
     * The gate is made before all claims of the session, so an older copy of
     * ZooKeeper's data that has claims of the session has the gate as well.
     */

    if (gate != NULL) {
        s->gating = 1;
        zkl_session_send(gate, zkl_session_gate_handler, s);
    }

    s->events->connected(s->data, fresh);

    if (another) {

        /* another handle has the session, and none of the watches */

        zkl_session_forget_watches(s, 1);
    }
}


/* The connection is lost: pending operations fail. */

static void
zkl_session_suspended_handler(zkl_session_t *s)
{
    s->late = 0;

    if (s->state != ZKL_CONNECTED) {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, s->log, 0,
                  "zookeeper connection is lost, the session may come back");

    zkl_session_state(s, ZKL_SUSPENDED);

    /* libzookeeper answers the operations in flight, with an error */

    zkl_session_unpend(s);

    s->events->suspended(s->data);
}


static void
zkl_session_over_handler(ngx_event_t *ev)
{
    zkl_session_t  *s;

    s = ev->data;

    zkl_session_end_handle(s);

    if (s->stale) {

        /* the request to close may be lost, so ZooKeeper is asked once more */

        s->stale = 0;
        zkl_session_start(s);
        return;
    }

    zkl_session_forget_watches(s, 0);

    /* the handlers of failed operations run before the session is lost */

    zkl_session_finish_all(s);

    *s->alive = zkl_now() - 1;

    if (s->kept) {

        /*
         * A server refuses the identity, but has not ended the session: the
         * session and all of its znodes stay until the session has expired.
         */

        zkl_session_state(s, ZKL_BACKOFF);
        return;
    }

    s->key.id = 0;

    zkl_session_state(s, s->last ? ZKL_CLOSED : ZKL_BACKOFF);

    /* ZooKeeper has just answered, so a new session gets the whole patience */

    s->since = zkl_now();

    s->events->lost(s->data);
}


/*
 * Closes the handle.  The answers that libzookeeper gives meanwhile are
 * delivered, and the other operations in flight fail here, because libzookeeper
 * can lose completions when a handle is closed (ZOOKEEPER-2894,
 * ZOOKEEPER-3868).
 */

static void
zkl_session_end_handle(zkl_session_t *s)
{
    zkl_op_t  *op;

    if (s->handle == NULL) {
        return;
    }

    zkl_client_close(s->handle);

    s->handle = NULL;

    (void) zkl_mailbox_drain(s->mailbox, NULL);

    while ((op = zkl_op_first(&s->flights)) != NULL) {
        zkl_session_landed(&op->message, NULL);
    }

    zkl_session_unpend(s);
}


/*
 * If no server takes the session back, another handle asks for the session.
 *
 * A handle tells each server the last zxid that the handle has seen, and a
 * server that has less closes the connection.  Such a server lags behind, and
 * another server will do; or ZooKeeper has lost data, or was restored from an
 * older copy, and then libzookeeper tries for ever.  Another handle has seen
 * nothing, and asks for the same session; so nothing is lost if ZooKeeper is
 * just away.  No time that passes here shows that the session is over, because
 * each start of the servers and each election gives a session the whole timeout
 * anew: ZooKeeper says so, or the session is back.
 *
 * Reads through the new handle come behind a write, so the data are not older
 * than a quorum's.
 *
 * If the list of servers has changed, a pause ends, and a handle without a
 * connection gets the list.  A connection is left alone, because libzookeeper
 * would drop the connection without a word of the operations in flight.
 */

static void
zkl_session_tick_handler(ngx_event_t *ev)
{
    ngx_msec_t      now;
    zkl_session_t  *s;

    s = ev->data;
    now = zkl_now();

    if (s->state == ZKL_CLOSED) {
        return;
    }

    if (s->state == ZKL_CONNECTED) {
        zkl_session_watchdog(s, now);
        zkl_session_arm(s);
        return;
    }

    if (s->changes != s->conf->changes) {
        s->backoff = 0;
    }

    if (s->state == ZKL_BACKOFF && !s->kept) {

        if (now - s->paused >= s->backoff) {
            zkl_session_start(s);
        }

    } else if (s->state == ZKL_BACKOFF && now - s->paused >= 2 * s->timeout) {

        /* twice the timeout, because ZooKeeper counts by ticks */

        s->kept = 0;
        ngx_post_event(&s->over, &ngx_posted_events);
    }

    if (s->late) {
        zkl_session_connected_handler(s);

    } else if (s->handle != NULL && !zkl_client_asked(s->handle)) {
        s->apart = now;
    }

    if (s->changes != s->conf->changes && s->handle != NULL
        && s->state != ZKL_CONNECTED && zkl_client_servers(s->handle))
    {
        s->changes = s->conf->changes;
    }

    if (s->state != ZKL_CONNECTED && now - s->since >= ZKL_PATIENCE) {
        zkl_session_out_of_reach(s);
    }

    if (s->state == ZKL_SUSPENDED && now - s->since >= s->timeout
        && !s->late && !s->over.posted && zkl_client_idle(s->handle))
    {
        ngx_log_error(NGX_LOG_NOTICE, s->log, 0,
                      "no zookeeper server has taken the session back for "
                      "%M ms: another handle asks for the session", s->timeout);

        /* a handle that connects just now would end the session when closed */

        zkl_client_cut(s->handle);
        zkl_session_end_handle(s);
        zkl_session_start(s);
    }

    zkl_session_arm(s);
}


/*
 * The heartbeat: until when the session surely lives, whether ZooKeeper
 * answers, and what follows if not.  A write is due each third of the timeout:
 * if there is none, a barrier is sent, a transaction that changes nothing.
 */


ngx_uint_t
zkl_session_reachable(zkl_session_t *s)
{
    return !s->unreachable;
}


ngx_uint_t
zkl_session_ready(zkl_session_t *s)
{
    return s->state == ZKL_CONNECTED && !s->unreachable;
}


ngx_uint_t
zkl_session_prompt(zkl_session_t *s)
{
    if (s->state != ZKL_CONNECTED) {
        return 0;
    }

    if (zkl_now() - s->replied < ZKL_PROMPT) {
        return 1;
    }

    zkl_session_barrier(s);

    return 0;
}


ngx_uint_t
zkl_session_connected(zkl_session_t *s)
{
    return s->state == ZKL_CONNECTED;
}


ngx_uint_t
zkl_session_alive(zkl_session_t *s)
{
    return s->state == ZKL_CONNECTED && zkl_ahead(*s->alive);
}


ngx_msec_t
zkl_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (ngx_msec_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


/*
 * Known alive: the session is connected, but the leader may be deposed.
 *
 * Only the leader ends a session, a timeout after the leader has last heard of
 * the session.  So the session's time is reckoned from when the leader has
 * heard.
 *
 * - Only a commit by a quorum proves anything.  A leader that was cut off from
 *   the quorum answers pings, reads and syncs for syncLimit ticks, and so does
 *   a follower that was cut off from its leader, while the new leader ends the
 *   session.  A write is answered when the write is committed, and a write that
 *   the leader refuses is committed as an error.  A server may refuse alone a
 *   write that an ACL forbids or that is too large, so these refusals do not
 *   count.
 *
 * - A committed write proves that the session was not over, but a write through
 *   a follower does not move the leader's clock.  The leader pings a follower
 *   twice a tick, and so at least four times in a timeout of two ticks or more
 *   (guarantees.md names this assumption); the follower answers each ping with
 *   the sessions that the follower has heard of since the last.  Three writes
 *   show that such an answer has come to the leader.  Let the first be sent at
 *   t and answered at u.  The second is sent at u and a quarter of the timeout,
 *   so the leader has pinged meanwhile; the commit of the second comes to the
 *   follower behind that ping, so the follower has answered the ping before the
 *   follower answers the second write.  The third is sent after that; it comes
 *   to the leader behind the answer to the ping.  So when the third is
 *   committed, the leader counts from t or later.  The quarter is by the
 *   leader's clock: because clocks do not run evenly, the second write is sent
 *   a twentieth of the timeout later.
 *
 * - Two writes are not enough: the second write of a follower that stood still
 *   may be committed while the answer to the ping is in the follower's socket,
 *   and the follower may be cut off then.
 *
 * - A leader that stands still pings no follower.  So a second write whose
 *   answer took an eighth of the timeout only counts as a first write.  A
 *   leader that goes on when the second write comes pings at once, and the
 *   commit takes a round trip more; nothing else keeps these in order.
 *
 * - When a session is made, moves to another server or comes back to the same
 *   server, the leader is asked at once, and counts from then.  The time of the
 *   request is not known, but `apart` is earlier: the last moment at which
 *   libzookeeper had no connection, or at which a request was sent that was
 *   answered before the connection broke.  The first write that is committed
 *   through the new connection shows which leader was asked, and counts as a
 *   third write.
 *
 * - A new leader gives each session the whole timeout that the session was made
 *   with, from when a quorum follows the leader.  This is later than the send
 *   of any write that the leader before has committed.
 *
 * So the session lives for the timeout, less a twentieth, from `touched` on,
 * when the first write was sent.  A write that is sent at `proves` or later is
 * the second write, or the third if the session is `told`.
 */

static void
zkl_session_committed(zkl_session_t *s, zkl_op_t *op)
{
    ngx_msec_t  now, until;

    if (s->events == NULL
        || (ngx_msec_int_t) (op->sent - s->proves) < 0
        || (s->told && op->number <= s->behind))
    {
        /* the session is about to be closed, or the write proves nothing yet */

        return;
    }

    now = zkl_now();

    if (!s->told && now - op->sent < s->timeout / 8) {
        s->told = 1;
        s->behind = s->written;
        s->proves = now;
        zkl_session_barrier(s);
        return;
    }

    if (s->told) {
        until = zkl_session_until(s, s->touched);

        if ((ngx_msec_int_t) (until - *s->alive) > 0) {
            *s->alive = until;
        }
    }

    s->told = 0;
    s->touched = op->sent;
    s->proves = now + s->timeout / 4 + s->timeout / 20;
}


/* Bounds the session's time by a timeout from `apart` on. */

static void
zkl_session_bound(zkl_session_t *s)
{
    ngx_msec_t  until;

    until = zkl_session_until(s, s->apart);

    if ((ngx_msec_int_t) (*s->alive - until) > 0) {
        *s->alive = until;
    }
}


static ngx_msec_t
zkl_session_until(zkl_session_t *s, ngx_msec_t since)
{
    return since + s->timeout - s->timeout / 20;
}


/* When a barrier is due, if no other write is sent. */

static ngx_msec_t
zkl_session_due(zkl_session_t *s)
{
    ngx_msec_t  due;

    if ((ngx_msec_int_t) (s->wrote - s->proves) >= 0) {
        return s->wrote + s->timeout / 3;
    }

    due = s->touched + s->timeout / 3;

    return ((ngx_msec_int_t) (s->proves - due) > 0) ? s->proves : due;
}


/* At a tick of a session that is connected; now: of the monotonic clock. */

static void
zkl_session_watchdog(zkl_session_t *s, ngx_msec_t now)
{
    zkl_op_t    *op;
    ngx_msec_t   silence;

    if ((ngx_msec_int_t) (now - zkl_session_due(s)) >= 0) {
        zkl_session_barrier(s);
    }

    op = zkl_op_first(&s->flights);

    if (op == NULL) {
        s->doubts = 0;

        if (s->conf->probe != 0 && now - s->replied >= s->conf->probe) {

            /* asks for something that the server has at hand */

            op = zkl_op_new(s, ZKL_OP_EXISTS, &zkl_top, NULL, NULL);
            if (op != NULL) {
                zkl_session_submit(s, op);
            }
        }

        return;
    }

    silence = ngx_min(now - op->sent, now - s->replied);

    if (silence >= ZKL_NUDGE && !s->nudged) {
        s->nudged = 1;
        zkl_session_barrier(s);
    }

    if (silence >= ZKL_PATIENCE) {
        zkl_session_out_of_reach(s);
    }

    if (silence < 2 * s->timeout) {
        s->doubts = 0;
        return;
    }

    /*
     * If this process stood still, the threads of libzookeeper did too: an
     * answer may be in the mailbox by now, or the news of a broken connection
     * may come soon.  So only ticks without a pause between count.
     */

    if (now - s->doubted >= ZKL_PATIENCE) {
        s->doubts = 0;
    }

    s->doubted = now;

    if (++s->doubts > s->timeout / ZKL_TICK) {

        /* libzookeeper would report a broken connection: an answer was lost */

        ngx_log_error(NGX_LOG_ERR, s->log, 0,
                      "no answer from libzookeeper for %M ms, "
                      "the session is given up", silence);

        zkl_session_suspended_handler(s);
        ngx_post_event(&s->over, &ngx_posted_events);
    }
}


/* ZooKeeper is out of reach: logs that, and tells the owner of the session. */

static void
zkl_session_out_of_reach(zkl_session_t *s)
{
    if (!s->unreachable) {
        s->unreachable = 1;

        if (s->conf->servers.len == 0) {
            ngx_log_error(NGX_LOG_WARN, s->log, 0,
                          "zookeeper is out of reach: no address of a server "
                          "is known");

        } else {
            ngx_log_error(NGX_LOG_WARN, s->log, 0,
                          "zookeeper is out of reach at \"%V\"",
                          &s->conf->servers);
        }
    }

    s->events->unreachable(s->data);
}


/*
 * Sends a write that changes no claim, to be heard, or in front of reads: a set
 * of the gate, or a check of the top if there is no gate.  Without memory no
 * write is sent.
 */

static void
zkl_session_barrier(zkl_session_t *s)
{
    zkl_op_t  *op;

    op = zkl_op_new(s, ZKL_OP_BARRIER, s->gated ? &zkl_gates : &zkl_top,
                    s->gated ? &s->gate : NULL, NULL);

    if (op != NULL) {
        op->gate = s->gated;
        zkl_session_submit(s, op);
    }
}


/*
 * Ticks are short while an operation is in flight or ZooKeeper is out of reach,
 * else a tick is a heartbeat.  An operation in flight delays a worker's exit.
 */

static void
zkl_session_arm(zkl_session_t *s)
{
    ngx_msec_int_t  period;

    period = ZKL_TICK;

    s->tick.cancelable = ngx_queue_empty(&s->flights)
                         && ngx_queue_empty(&s->pending)
                         && ngx_queue_empty(&s->fresh)
                         && ngx_queue_empty(&s->shared)
                         && !zkl_turns_waiting(&s->reads);

    if (s->state == ZKL_CONNECTED && s->tick.cancelable) {
        period = zkl_session_due(s) - zkl_now();

        if (s->conf->probe != 0) {
            period = ngx_min(period, (ngx_msec_int_t) s->conf->probe);
        }

        period = ngx_max(period, ZKL_TICK);
    }

    if (s->tick.timer_set
        && (ngx_msec_int_t) (s->tick.timer.key - ngx_current_msec)
           <= period)
    {
        return;
    }

    ngx_add_timer(&s->tick, period);
}


/*
 * Operations: an operation is one block of memory with path, value and reply.
 * The children of a LIST, a long reply of a GET, and the parts and results of a
 * transaction are separate blocks.
 */


zkl_op_t *
zkl_op_new(zkl_session_t *s, zkl_op_e type, ngx_str_t *dir, ngx_str_t *name,
    ngx_str_t *value)
{
    u_char    *p;
    size_t     path, reply, len;
    zkl_op_t  *op;

    path = s->conf->chroot.len + dir->len + 1 + (name ? name->len : 0);
    len = value ? value->len : 0;

    reply = 0;

    if (type == ZKL_OP_CREATE) {
        reply = path + 10 + 1;

    } else if (type == ZKL_OP_GET) {
        reply = ZKL_CLAIM_DATA_MAX;
    }

    op = ngx_alloc(sizeof(zkl_op_t) + path + 1 + len + 1 + reply, s->log);
    if (op == NULL) {
        return NULL;
    }

    ngx_memzero(op, sizeof(zkl_op_t));

    op->type = type;
    op->version = -1;
    op->session = s;
    ngx_queue_init(&op->ops);

    p = (u_char *) op + sizeof(zkl_op_t);

    op->path.data = p;

    p = ngx_cpymem(p, s->conf->chroot.data, s->conf->chroot.len);

    /* the path "/" below a chroot is the chroot */

    if (dir->len > 1 || s->conf->chroot.len == 0) {
        p = ngx_cpymem(p, dir->data, dir->len);
    }

    if (name != NULL && name->len != 0) {

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


zkl_op_t *
zkl_op_rename(zkl_session_t *s, ngx_str_t *dir, ngx_str_t *name, ngx_str_t *to,
    ngx_str_t *value, int32_t version, zkl_op_e type, zkl_op_t *get,
    zkl_op_t *entry)
{
    int32_t    i, sets;
    zkl_op_t  *op, *new;

    op = zkl_op_new(s, ZKL_OP_RENAME, dir, name, NULL);

    if (get != NULL) {
        op = zkl_op_add(op, zkl_op_new(s, ZKL_OP_SET, dir, NULL, &get->reply),
                        get->version);
    }

    op = zkl_op_add(op, zkl_op_new(s, ZKL_OP_DELETE, dir, name, NULL),
                    version);

    new = zkl_op_new(s, type, dir, to, value);

    if (new != NULL) {
        new->childless = (get == NULL);
    }

    op = zkl_op_add(op, new, -1);

    if (entry != NULL) {
        op = zkl_op_add(op, entry, -1);
    }

    sets = 0;

    if (version < ZKL_VERSIONS && name->len == to->len
        && ngx_memcmp(name->data, to->data, to->len) == 0)
    {
        sets = version + 1;
    }

    for (i = 0; i < sets; i++) {
        op = zkl_op_add(op, zkl_op_new(s, ZKL_OP_SET, dir, to,
                                       i < version ? NULL : value), i);
    }

    return op;
}


/* Adds a part to op; if one of them is NULL, frees the other: no memory. */

static zkl_op_t *
zkl_op_add(zkl_op_t *op, zkl_op_t *part, int32_t version)
{
    if (op == NULL || part == NULL) {
        zkl_session_free_op(op);
        zkl_session_free_op(part);
        return NULL;
    }

    part->version = version;
    ngx_queue_insert_tail(&op->ops, &part->queue);

    return op;
}


/* The first operation of a queue, or NULL. */

static zkl_op_t *
zkl_op_first(ngx_queue_t *queue)
{
    if (ngx_queue_empty(queue)) {
        return NULL;
    }

    return ngx_queue_data(ngx_queue_head(queue), zkl_op_t, queue);
}


/* Takes the first operation out of a queue. */

static zkl_op_t *
zkl_op_pop(ngx_queue_t *queue)
{
    zkl_op_t  *op;

    op = zkl_op_first(queue);

    if (op != NULL) {
        ngx_queue_remove(&op->queue);
    }

    return op;
}


/* Calls the handler of an operation, and frees the operation. */

static void
zkl_session_finish(zkl_op_t *op)
{
    size_t          i;
    zkl_op_t       *part;
    zkl_session_t  *s;

    s = op->session;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, s->log, 0,
                   "zk lock session: op %d \"%*s\" rc:%d", op->type,
                   zkl_session_shown(&op->path), op->path.data, op->rc);

    if (op->type == ZKL_OP_CREATE && op->rc == ZKL_OK) {
        /* the handler gets the new znode's name without the parent's path */

        for (i = op->reply.len; i > 0 && op->reply.data[i - 1] != '/'; i--) {
            /* void */
        }

        op->reply.data += i;
        op->reply.len -= i;
    }

    while (op->turn == ZKL_TURN_NONE && (part = zkl_op_pop(&op->ops)) != NULL) {
        part->rc = op->rc;
        zkl_session_finish(part);
    }

    if (op->handler != NULL && s->events != NULL) {
        op->handler(op);
    }

    if (op->turn == ZKL_TURN_NONE) {
        zkl_session_free_op(op);

    } else {
        ngx_queue_insert_tail(&s->shared, &op->queue);
        ngx_post_event(&s->read, &ngx_posted_next_events);
    }
}


/*
 * Tells the operations that share a list.  Each handler goes through all names,
 * so a turn of the event loop calls a few handlers only.  When all were told,
 * the list is freed, and the next list of the path is sent.
 */

static void
zkl_session_share(zkl_session_t *s)
{
    zkl_op_t    *op, *later, *sharer;
    ngx_uint_t   n;

    n = 0;

    while (n < ZKL_SHARED_NAMES && (op = zkl_op_first(&s->shared)) != NULL) {

        sharer = zkl_op_pop(&op->ops);

        if (sharer == NULL) {
            ngx_queue_remove(&op->queue);
            later = zkl_turns_end(&s->reads, op);
            zkl_session_free_op(op);

            if (later != NULL) {
                zkl_session_send(later, later->handler, later->data);
            }

            continue;
        }

        n += op->nchildren + 1;

        sharer->rc = op->rc;
        sharer->children = op->children;
        sharer->nchildren = op->nchildren;
        sharer->given = op->given;

        if (sharer->handler != NULL && s->events != NULL) {
            sharer->handler(sharer);
        }

        sharer->children = NULL;
        zkl_session_free_op(sharer);
    }

    if (!ngx_queue_empty(&s->shared)) {
        ngx_post_event(&s->read, &ngx_posted_next_events);
    }
}


/* Frees an operation, and what the operation owns; calls no handler. */

static void
zkl_session_free_op(zkl_op_t *op)
{
    zkl_op_t  *part;

    if (op == NULL) {
        return;
    }

    while ((part = zkl_op_pop(&op->ops)) != NULL) {
        zkl_session_free_op(part);
    }

    free(op->children);
    ngx_free(op->more);
    ngx_free(op->results);
    ngx_free(op);
}


/*
 * Operations in flight: from the send to ZooKeeper's answer, or to the moment
 * when no answer can come any more.
 */


/* Calls the handlers of failed operations; later failures wait for a turn. */

static void
zkl_session_flush_failed(zkl_session_t *s)
{
    zkl_op_t     *op;
    ngx_queue_t   failed;

    ngx_queue_init(&failed);
    ngx_queue_add(&failed, &s->failed);
    ngx_queue_init(&s->failed);

    while ((op = zkl_op_pop(&failed)) != NULL) {
        zkl_session_finish(op);
    }
}


/* Finishes all operations that are not in flight, and not waiting. */

static void
zkl_session_finish_all(zkl_session_t *s)
{
    while (!ngx_queue_empty(&s->failed) || !ngx_queue_empty(&s->shared)) {
        zkl_session_flush_failed(s);
        zkl_session_share(s);
    }
}


/*
 * Sends op to the handle, which is there; if the client refuses, op fails.
 *
 * After a write, each operation that is sent is behind a write.  A write that a
 * server refuses alone proves nothing: so for a timeout after a refusal reads
 * wait for barriers, and barriers are due, whatever else was sent, however many
 * clients ask for what is forbidden.
 */

static void
zkl_session_submit(zkl_session_t *s, zkl_op_t *op)
{
    int  code;

    if (op->type == ZKL_OP_CREATE) {
        op->index = 0;
        (void) ngx_sprintf(op->value.data + op->index_at, "00");
    }

    op->message.deliver = zkl_session_landed;
    op->sent = zkl_now();

    code = zkl_client_submit(s->handle, op);

    if (code != 0) {

        if (op->type == ZKL_OP_BATCH) {
            ngx_log_error(NGX_LOG_WARN, s->log, 0,
                          "libzookeeper refused a transaction of %ui: %s",
                          op->nops, zkl_client_text(code));

        } else {
            ngx_log_error(NGX_LOG_WARN, s->log, 0,
                          "libzookeeper refused an operation on \"%*s\": %s",
                          zkl_session_shown(&op->path), op->path.data,
                          zkl_client_text(code));
        }

        zkl_session_fail(s, op, (zkl_client_rc(code) == ZKL_REFUSED
                                 && op->type != ZKL_OP_BATCH) ? ZKL_REFUSED
                                                              : ZKL_UNSENT);
        return;
    }

    ngx_queue_insert_tail(&s->flights, &op->queue);
    zkl_session_arm(s);

    s->writes += op->gather;

    if (op->watch) {
        s->watch_asked += op->path.len + 5;
    }

    if (op->type > ZKL_OP_BARRIER) {
        return;
    }

    op->number = ++s->written;

    if (op->type == ZKL_OP_BARRIER
        || s->rejected == 0
        || op->sent - s->rejected >= s->timeout)
    {
        s->sure = op->number;
        s->wrote = op->sent;
        s->barrier = 0;
    }
}


/*
 * Notes that ZooKeeper has answered an operation.
 *
 * A session that is over may keep its connection: a follower that ends a
 * session for the request of one connection does not close the session's next
 * connection to the same server, answers reads and pings there, and passes all
 * writes on to the leader, which refuses them (FinalRequestProcessor.java, and
 * removeCnxnFromSessionMap()).
 */

static void
zkl_session_heard(zkl_session_t *s, zkl_op_t *op)
{
    if (s->handle == NULL) {
        return;
    }

    if (zkl_client_expired(op->code) && s->events != NULL) {
        zkl_session_expired(s, 0, "expired");
    }

    if (op->rc == ZKL_UNKNOWN) {
        return;
    }

    s->replied = zkl_now();

    if (s->events != NULL) {
        s->events->answered(s->data, op->type <= ZKL_OP_BARRIER, op->nops,
                            (ngx_msec_int_t) (s->replied - op->sent));
    }

    if (s->unreachable) {
        s->unreachable = 0;

        ngx_log_error(NGX_LOG_NOTICE, s->log, 0, "zookeeper answers again");
    }

    s->nudged = 0;
    s->backoff = 0;

    if (s->state == ZKL_CONNECTED
        && (ngx_msec_int_t) (op->sent - s->apart) > 0)
    {
        s->apart = op->sent;
    }

    if (op->type > ZKL_OP_BARRIER) {
        return;
    }

    /*
     * The leader checks the rights of each part of a transaction, and commits a
     * refusal as well, so the barrier needs no right to read.
     */

    if (op->rc <= ZKL_CHILDLESS
        || (op->rc == ZKL_NO_AUTH && op->type == ZKL_OP_BARRIER))
    {
        s->committed = op->number;
        zkl_session_committed(s, op);
        return;
    }

    /* the server may have refused the write alone: a new write is due */

    s->rejected = zkl_now();

    if (s->sure == op->number) {
        s->sure = 0;
    }

    if (s->wrote == op->sent) {
        s->wrote = s->proves - 1;
    }
}


static void
zkl_session_landed(zkl_message_t *message, void *data)
{
    zkl_op_t  *op = (zkl_op_t *) message;

    zkl_session_t  *s;

    s = op->session;

    op->rc = zkl_client_rc(op->code);

    zkl_session_heard(s, op);

    if (op->type == ZKL_OP_BATCH || op->type == ZKL_OP_BARRIER) {
        zkl_client_read_batch(op);
    }

    ngx_queue_remove(&op->queue);
    s->writes -= op->gather;

    if (s->hurry) {
        zkl_session_hurry(s);
    }

    if (zkl_turns_waiting(&s->reads)) {
        ngx_post_event(&s->read, &ngx_posted_next_events);
    }

    if (op->watch) {
        s->watch_asked -= op->path.len + 5;

        if (op->rc == ZKL_OK
            || (op->rc == ZKL_NO_NODE && op->type == ZKL_OP_EXISTS))
        {
            zkl_session_watched(s, op);
        }
    }

    if (op->rc == ZKL_OK && s->events != NULL) {

        /*
         * Each transaction of creates and each barrier sets the gate, so the
         * version grows.
         */

        if (op->gate && op->version <= s->sets) {
            zkl_session_give_up(s, "its znodes are those of an older copy of "
                               "zookeeper's data");

        } else if (op->gate) {
            s->sets = op->version;
        }

        if (op->type <= ZKL_OP_PERSISTENT
            || (op->type == ZKL_OP_BATCH && op->gate))
        {
            s->events->made(s->data, op->czxid);
        }
    }

    if (op->type == ZKL_OP_BARRIER && op->rc == ZKL_NO_NODE && op->gate) {
        zkl_session_ungated(s);
    }

    if (op->type == ZKL_OP_BATCH
        && op->rc != ZKL_OK
        && op->rc != ZKL_UNKNOWN)
    {
        zkl_session_rolled_back(s, op);
    }

    if (op->fresh && s->committed <= op->number) {

        /* the write ahead of the read was not committed: the data may be old */

        op->rc = ZKL_UNSENT;
    }

    if (op->turn != ZKL_TURN_NONE) {
        zkl_turns_answered(&s->reads, op, zkl_now());
    }

    if (op->type == ZKL_OP_BATCH || op->type == ZKL_OP_BARRIER) {
        /* no answer to a barrier is an error; parts are sent again */

    } else if (op->rc == ZKL_REFUSED) {
        ngx_log_error(NGX_LOG_ERR, s->log, 0,
                      "zookeeper refused an operation on \"%*s\": %s (%d)",
                      zkl_session_shown(&op->path), op->path.data,
                      zkl_client_text(op->code), op->code);

    } else if ((op->rc == ZKL_NO_AUTH || op->rc == ZKL_OVER_QUOTA)
               && zkl_now() - s->denied >= ZKL_DENIED_AGAIN)
    {
        /* seldom: any client can ask for a lock that ZooKeeper forbids */

        s->denied = zkl_now();

        ngx_log_error(NGX_LOG_ERR, s->log, 0,
                      "zookeeper's %s forbids an operation on \"%*s\"%s; such "
                      "lines come once a second at most",
                      op->rc == ZKL_NO_AUTH ? "ACL" : "quota",
                      zkl_session_shown(&op->path), op->path.data,
                      op->rc == ZKL_NO_AUTH ? ", see \"zk_lock_auth\""
                                            : ": quota exceeded (-125)");
    }

    zkl_session_finish(op);
}


/*
 * No operation of the batch took effect.  All are sent again ahead of later
 * operations, the culprit, the operation with an error code of its own, alone
 * to get an answer.  They keep their order, because the culprit may have failed
 * for what an operation ahead did: of two deletes of a znode the first has to
 * stay with the set that is gathered with it.
 */

static void
zkl_session_rolled_back(zkl_session_t *s, zkl_op_t *batch)
{
    zkl_op_t     *op;
    ngx_uint_t    culprits;
    ngx_queue_t  *q;

    culprits = 0;

    /* the answers of a closed handle come here, too */

    if (s->state != ZKL_CONNECTED) {
        batch->rc = ZKL_UNSENT;
        return;
    }

    while (!ngx_queue_empty(&batch->ops)) {
        q = ngx_queue_last(&batch->ops);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, zkl_op_t, queue);

        culprits += !op->gather;

        ngx_queue_insert_head(&s->pending, q);
        s->npending++;
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, s->log, 0,
                   "zk lock session: batch of %ui rolled back, culprits: %ui",
                   batch->nops, culprits);

    zkl_session_hurry(s);

    if (culprits == 0) {

        /* only the write to the gate failed: the gate was deleted */

        zkl_session_ungated(s);
    }
}


/* Fails an operation; the handler is called in the next turn of the loop. */

static void
zkl_session_fail(zkl_session_t *s, zkl_op_t *op, zkl_rc_e rc)
{
    op->rc = rc;

    ngx_queue_insert_tail(&s->failed, &op->queue);

    /*
     * Not in this turn, because libzookeeper may refuse each operation that a
     * handler sends again, and such refusals must not keep the loop from the
     * message that the session is over.
     */

    ngx_post_event(&s->flush, &ngx_posted_next_events);
}


/*
 * Group commit: which operations are gathered, and when a transaction goes out.
 * A pending operation belongs to this part; a submitted operation is in flight.
 */


/*
 * ZooKeeper's cost is a transaction's, not an operation's.  So creates and
 * deletes that are sure to succeed are gathered while a few transactions are in
 * flight, and go out together; an idle session sends when a turn of the event
 * loop has added no operation.  A deferrable operation waits for other
 * operations.
 *
 * All creates of a batch have the same zxid.  The answer shows the zxid,
 * because the transaction also sets the session's gate; without a gate, creates
 * go alone.
 */

void
zkl_session_send(zkl_op_t *op, zkl_op_pt handler, void *data)
{
    zkl_session_t  *s;

    s = op->session;

    op->handler = handler;
    op->data = data;

    if (s->state != ZKL_CONNECTED) {
        zkl_session_fail(s, op, ZKL_UNSENT);
        return;
    }

    op->number = s->written;

    if (op->turn != ZKL_TURN_NONE) {

        /* the operations of this turn of the event loop can share a list */

        zkl_turns_add(&s->reads, op);
        ngx_post_event(&s->read, &ngx_posted_next_events);

    } else if (op->fresh) {
        s->barrier = 1;

        ngx_queue_insert_tail(&s->fresh, &op->queue);
        ngx_post_event(&s->read, &ngx_posted_next_events);

    } else if (op->gather) {
        ngx_queue_insert_tail(&s->pending, &op->queue);
        s->npending++;

        if (s->npending >= ZKL_GATHER && s->writes < ZKL_WRITES_MAX) {
            /* ZooKeeper begins while this turn goes on */

            zkl_session_flush_pending(s);

        } else if (!op->deferrable || s->npending >= ZKL_DEFER_MAX) {
            zkl_session_hurry(s);

        } else if (!s->flush.timer_set) {
            ngx_add_timer(&s->flush, ZKL_DEFER);
        }

    } else {
        zkl_session_flush_deferred(s);
        zkl_session_submit(s, op);
    }

    zkl_session_arm(s);
}


/* Sends the deferrable writes, so that the next read shows their results. */

static void
zkl_session_flush_deferred(zkl_session_t *s)
{
    if (!ngx_queue_empty(&s->pending) && !s->hurry) {
        zkl_session_flush_pending(s);
    }
}


/*
 * Of the session's event read: tells the operations that share a list, sends
 * the operations whose turn has come, then the fresh reads behind a write.
 *
 * ZooKeeper answers a read behind the writes that the session has sent before,
 * with the data as of then.  So the reads of one turn of the event loop go
 * together, behind any write that was sent since.  If no such write is
 * committed, the reads fail.
 */

static void
zkl_session_read_handler(ngx_event_t *ev)
{
    zkl_op_t       *op;
    zkl_session_t  *s;

    s = ev->data;

    /* first, because the bytes of a list count until all were told */

    zkl_session_share(s);

    while (s->state == ZKL_CONNECTED) {
        op = zkl_op_first(&s->flights);
        op = zkl_turns_take(&s->reads, op ? op->sent : 0);

        if (op == NULL) {
            break;
        }

        if (op->fresh) {

            /* a write since the call was sent serves as the barrier */

            s->barrier |= (op->number >= s->sure);

            ngx_queue_insert_tail(&s->fresh, &op->queue);

        } else {
            zkl_session_flush_deferred(s);
            zkl_session_submit(s, op);
        }
    }

    if (!ngx_queue_empty(&s->fresh)) {
        zkl_session_flush_deferred(s);

        if (s->barrier) {
            zkl_session_barrier(s);
        }
    }

    while ((op = zkl_op_pop(&s->fresh)) != NULL) {
        if (s->barrier) {
            zkl_session_fail(s, op, ZKL_UNSENT);

        } else {
            zkl_session_submit(s, op);
        }
    }
}


/*
 * Makes the gate.  If the gate's parent is missing, the parent is made, and
 * stays.  Without a gate all operations work, but creates go alone.
 */

static void
zkl_session_gate(zkl_session_t *s, zkl_op_e type)
{
    zkl_op_t  *op;

    op = zkl_session_gate_op(s, type);

    if (op != NULL) {
        s->gating = 1;
        zkl_session_send(op, zkl_session_gate_handler, s);
    }
}


static zkl_op_t *
zkl_session_gate_op(zkl_session_t *s, zkl_op_e type)
{
    u_char     value[NGX_MAXHOSTNAMELEN + NGX_INT64_LEN + 1];
    ngx_str_t  cdata;

    cdata.data = value;
    cdata.len = ngx_sprintf(value, "%V %P", &ngx_cycle->hostname, ngx_pid)
                - value;

    return (type == ZKL_OP_GATE)
           ? zkl_op_new(s, type, &zkl_gates, &s->gate, &cdata)
           : zkl_op_new(s, type, &zkl_gates, NULL, NULL);
}


ngx_int_t
zkl_session_gated(zkl_session_t *s, ngx_str_t *name)
{
    if (s->gated) {
        *name = s->gate;
        return NGX_OK;
    }

    if (s->state == ZKL_CONNECTED && !s->gating && !s->last
        && (s->refused == 0
            || ngx_current_msec - s->refused >= ZKL_GATE_AGAIN))
    {
        zkl_session_gate(s, ZKL_OP_GATE);
    }

    return s->refused ? NGX_DECLINED : NGX_AGAIN;
}


/*
 * Without its gate the session proves nothing, and may be that of an older copy
 * of ZooKeeper's data, from before the gate was made.
 */

void
zkl_session_ungated(zkl_session_t *s)
{
    if (s->gated) {
        zkl_session_give_up(s, "its gate was removed");
    }
}


/*
 * After a refusal the create is sent again when the connection is back, or
 * after a while; sooner if there is no chroot yet, which the first lock makes.
 */

static void
zkl_session_gate_handler(zkl_op_t *op)
{
    ngx_uint_t      made;
    zkl_session_t  *s;

    s = op->data;
    s->gating = 0;

    /* EXISTS: or it was made, and the answer was lost */

    made = (op->rc == ZKL_OK || op->rc == ZKL_EXISTS);

    if (made && op->type == ZKL_OP_GATE) {
        s->gated = 1;
        s->refused = 0;

    } else if (made || (op->rc == ZKL_NO_NODE && op->type == ZKL_OP_GATE)) {
        zkl_session_gate(s, made ? ZKL_OP_GATE : ZKL_OP_PERSISTENT);

    } else if (op->rc != ZKL_UNSENT && op->rc != ZKL_UNKNOWN
               && op->rc != ZKL_NO_NODE)
    {
        s->refused = ngx_current_msec ? ngx_current_msec : 1;
    }
}


/*
 * The session has znodes of which the records know nothing, or may have.  The
 * close of the handle ends the session, and removes these znodes; the next
 * handle asks for the session again, and is told that the session is over.
 */

static void
zkl_session_give_up(zkl_session_t *s, const char *why)
{
    if (s->state != ZKL_CONNECTED || s->events == NULL) {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, s->log, 0,
                  "zookeeper session is closed: %s", why);

    s->stale = 1;

    /* the close may be lost again and again, and no write makes this right */

    s->sets = NGX_MAX_INT32_VALUE;

    zkl_session_suspended_handler(s);
    ngx_post_event(&s->over, &ngx_posted_events);
}


/* Without a connection, the operations that are not sent yet fail. */

static void
zkl_session_unpend(zkl_session_t *s)
{
    zkl_op_t  *op;

    while ((op = zkl_op_pop(&s->pending)) != NULL
           || (op = zkl_turns_drop(&s->reads)) != NULL
           || (op = zkl_op_pop(&s->fresh)) != NULL)
    {
        zkl_session_fail(s, op, ZKL_UNSENT);
    }

    s->npending = 0;
    s->hurry = 0;
}


/* Sends the pending operations when a turn of the loop adds no more. */

static void
zkl_session_hurry(zkl_session_t *s)
{
    s->hurry = 1;

    if (s->writes < ZKL_WRITES_MAX && !s->flush.posted) {
        s->gathered = s->npending;
        s->turns = 0;

        ngx_post_event(&s->flush, &ngx_posted_next_events);
    }
}


/*
 * Of the session's event flush: sends the gathered, calls failed handlers.  The
 * event is a timer, too: the time of what is deferred is over.
 */

static void
zkl_session_flush_handler(ngx_event_t *ev)
{
    zkl_session_t  *s;

    s = ev->data;

    if (ev->timedout) {
        ev->timedout = 0;

        if (!ngx_queue_empty(&s->pending)) {
            zkl_session_hurry(s);
        }

        return;
    }

    if (s->npending > s->gathered
        && s->npending < ZKL_GATHER
        && s->turns < ZKL_TURNS)
    {
        s->gathered = s->npending;
        s->turns++;

        ngx_post_event(&s->flush, &ngx_posted_next_events);

    } else if (s->hurry) {
        zkl_session_flush_pending(s);
    }

    zkl_session_flush_failed(s);
}


static void
zkl_session_flush_pending(zkl_session_t *s)
{
    while (s->writes < ZKL_WRITES_MAX && !ngx_queue_empty(&s->pending)) {
        zkl_session_submit(s, zkl_session_gather(s));
    }

    if (ngx_queue_empty(&s->pending)) {
        s->hurry = 0;

        if (s->flush.timer_set) {
            ngx_del_timer(&s->flush);
        }
    }
}


/*
 * Takes pending operations, in a batch; or the first of them, which is to go
 * alone, or for whose batch there is no memory.
 */

static zkl_op_t *
zkl_session_gather(zkl_session_t *s)
{
    size_t     bytes;
    zkl_op_t  *op, *batch;

    batch = NULL;
    bytes = 0;

    if (s->npending > 1) {
        batch = zkl_op_new(s, ZKL_OP_BATCH, &zkl_gates, &s->gate, NULL);
    }

    while (batch != NULL && batch->nops < ZKL_BATCH_MAX
           && bytes < ZKL_BATCH_BYTES)
    {
        op = zkl_op_first(&s->pending);

        if (op == NULL || !op->gather
            || (op->type == ZKL_OP_CREATE && !s->gated))
        {
            break;
        }

        if (op->type == ZKL_OP_CREATE) {
            op->index = batch->index++;
            batch->gate = 1;

            (void) ngx_sprintf(op->value.data + op->index_at, "%02xi",
                               op->index);
        }

        ngx_queue_remove(&op->queue);
        s->npending--;

        ngx_queue_insert_tail(&batch->ops, &op->queue);

        batch->nops++;
        bytes += op->path.len + op->value.len;
    }

    if (batch != NULL && batch->nops != 0) {
        batch->gather = 1;
        return batch;
    }

    zkl_session_free_op(batch);

    op = zkl_op_pop(&s->pending);
    s->npending--;

    return op;
}


/*
 * What a session has in ZooKeeper, as far as there is a bound: bytes of the
 * paths of ephemeral znodes, and of watched paths.  A watch counts from the
 * send to the event, or until the handle is closed.
 */


ngx_int_t
zkl_session_reserve(zkl_session_t *s, size_t len)
{
    len += s->conf->chroot.len + 4;

    if (s->path_bytes + len > ZKL_PATH_BYTES) {
        return NGX_BUSY;
    }

    s->path_bytes += len;

    return NGX_OK;
}


void
zkl_session_unreserve(zkl_session_t *s, size_t len)
{
    s->path_bytes -= len + s->conf->chroot.len + 4;
}


ngx_uint_t
zkl_session_may_watch(zkl_session_t *s, size_t len)
{
    return zkl_session_must_watch(s, len + ZKL_PATH_BYTES / 2);
}


/* A watch in flight may be set by now. */

ngx_uint_t
zkl_session_must_watch(zkl_session_t *s, size_t len)
{
    return s->watch_bytes + s->watch_asked + len + s->conf->chroot.len + 5
           <= ZKL_PATH_BYTES;
}


ngx_uint_t
zkl_session_watches(zkl_session_t *s, ngx_str_t *path)
{
    return ngx_str_rbtree_lookup(&s->watches, path,
                                 ngx_crc32_long(path->data, path->len))
           != NULL;
}


/*
 * libzookeeper keeps one watch a path until the watch fires, and after a
 * reconnect sets all watches again in one packet, which ZooKeeper refuses if
 * the packet is too long (ZOOKEEPER-706).  So the bytes of the paths are
 * counted, each path once.
 */

static void
zkl_session_watched(zkl_session_t *s, zkl_op_t *op)
{
    uint32_t         hash;
    ngx_str_t        path;
    ngx_str_node_t  *sn;

    path.data = op->path.data + s->conf->chroot.len;
    path.len = op->path.len - s->conf->chroot.len;

    /* the key of a watch of LIST or EXISTS ends with the path's NUL */

    path.len += (op->type != ZKL_OP_GET);

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


/* Forgets a watch whose event has come; list: the watch on the children. */

static void
zkl_session_unwatched(zkl_session_t *s, ngx_str_t *path, ngx_uint_t list)
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


/*
 * Forgets all watches, because the handle is another.  told: tells of each
 * watch on data as if it had fired; what a list tells is read anew with each
 * connection.
 */

static void
zkl_session_forget_watches(zkl_session_t *s, ngx_uint_t told)
{
    ngx_str_node_t  *sn;

    while (s->watches.root != s->watches.sentinel) {
        sn = (ngx_str_node_t *) s->watches.root;

        ngx_rbtree_delete(&s->watches, &sn->node);

        if (told && sn->str.data[sn->str.len - 1] != '\0') {
            s->events->changed(s->data, &sn->str, 0);
        }

        ngx_free(sn);
    }

    s->watch_bytes = 0;
}
