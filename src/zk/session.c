
/*
 * The session: its life.
 *
 * What is sent through it is in the flight's file, what an operation is made of
 * in the op's, what it has in ZooKeeper in that of the bounds, and whether it
 * is heard in the pulse's.  Everything here runs on the event loop.  `handle`
 * is NULL in the states CLOSED and BACKOFF.
 *
 *   state       from -> to                        what it means
 *   ---------   -------------------------------   ---------------------------
 *   CLOSED                                        no handle, none is wanted
 *   CONNECTING  open() -> CONNECTED               no session yet
 *   CONNECTED   -> SUSPENDED, BACKOFF             operations are sent
 *   SUSPENDED   -> CONNECTED, BACKOFF             the session may come back
 *   BACKOFF     a timer -> CONNECTING             the session is over
 *
 * Until when the session surely lives is reckoned in the pulse's file.
 */


#include "zk/session.h"
#include "zk/client.h"


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
    zkl_session_state_e                       state;
    ngx_uint_t                                serial;   /* of the handle */
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
    ngx_queue_t                               failed;   /* to be told */
    ngx_uint_t                                writes;   /* under way */

    ngx_msec_t                                asked;    /* last request */
    ngx_msec_t                                wrote;    /* last write */
    ngx_msec_t                                replied;  /* last answer */
    ngx_msec_t                                apart;    /* a moment before a
                                                           server is asked for
                                                           the session */
    ngx_msec_t                                touched;  /* see known alive */
    ngx_msec_t                                proves;   /* a write that is sent
                                                           from then on */
    uint64_t                                  written;  /* writes so far */
    uint64_t                                  committed;    /* the last one
                                                           that was */
    ngx_msec_t                                refused;  /* the gate was, when;
                                                           0: it was not */
    ngx_uint_t                                doubts;   /* ticks in a row with
                                                           no answer at all */
    ngx_msec_t                                doubted;  /* the last of them */
    ngx_msec_t                                starving; /* if starved: since */
    ngx_msec_t                                denied;   /* last logged */
    ngx_atomic_t                             *alive;

    u_char                                    gate_name[
                                                   ZKL_GATE_LEN];
    ngx_str_t                                 gate;     /* with the chroot */
    size_t                                    path_bytes;

    ngx_rbtree_t                              watches;  /* that are set */
    ngx_rbtree_node_t                         watches_sentinel;
    size_t                                    watch_bytes;
    size_t                                    watch_asked; /* under way */

    ngx_event_t                               flush;    /* posted */
    ngx_event_t                               gather;   /* a timer */
    ngx_event_t                               read;     /* posted */
    ngx_event_t                               over;     /* posted */
    ngx_event_t                               tick;

    unsigned                                  last:1;   /* no other follows */
    unsigned                                  gated:1;  /* gate is there */
    unsigned                                  gating:1; /* it is asked for */
    unsigned                                  nudged:1;
    unsigned                                  unreachable:1;
    unsigned                                  late:1;   /* it is connected; no
                                                           memory to say so */
    unsigned                                  kept:1;   /* not over, though its
                                                           handle is */
    unsigned                                  starved:1; /* no memory for the
                                                            last operation */
    unsigned                                  hurry:1;  /* not all that is
                                                           pending is patient */
    unsigned                                  barrier:1; /* fresh has reads
                                                           that no write was
                                                           sent behind */
};

#define ZKL_BACKOFF_MIN               50
#define ZKL_BACKOFF_MAX               5000

/* a server can leave a lone request unanswered: a nudge helps (milliseconds) */
#define ZKL_NUDGE                     200

/* an answer that is not older shows that the server is there, milliseconds */
#define ZKL_PROMPT                    2000

#define ZKL_TICK                      100

/* the least time between two log lines about ACLs, milliseconds */
#define ZKL_DENIED_AGAIN 1000

/* transactions under way; what comes meanwhile is gathered */
#define ZKL_WRITES_MAX                4

/* a batch of this size goes in the midst of a turn; others after so many */
#define ZKL_GATHER                    64
#define ZKL_TURNS                     8

/* patient operations wait so long (milliseconds), or until they are so many */
#define ZKL_PATIENT                   2
#define ZKL_PATIENT_MAX               32

/* bytes of paths and values in a batch; jute.maxbuffer is 1 MiB */
#define ZKL_BATCH_BYTES               (256 * 1024)

/* how soon a gate that was refused is asked for again, milliseconds */
#define ZKL_GATE_AGAIN                10000

/* bytes of ephemeral paths, and of watched paths, of one session */
#define ZKL_PATH_BYTES                1000000


static void zkl_session_free(zkl_session_t *s);
static void zkl_session_start(zkl_session_t *s);
static void zkl_session_state(zkl_session_t *s, zkl_session_state_e state);
static size_t zkl_session_shown(ngx_str_t *path);
static void zkl_session_news(zkl_message_t *message, void *data);
static void zkl_session_connected_handler(zkl_session_t *s);
static void zkl_session_suspended_handler(zkl_session_t *s);
static void zkl_session_over_handler(ngx_event_t *ev);
static void zkl_session_end_handle(zkl_session_t *s);
static void zkl_session_tick_handler(ngx_event_t *ev);
static void zkl_session_touched(zkl_session_t *s);
static void zkl_session_committed(zkl_session_t *s, ngx_msec_t sent);
static void zkl_session_bound(zkl_session_t *s, ngx_msec_t since);
static ngx_msec_t zkl_session_until(zkl_session_t *s, ngx_msec_t since);
static ngx_msec_t zkl_session_due(zkl_session_t *s);
static void zkl_session_watchdog(zkl_session_t *s, ngx_msec_t now);
static void zkl_session_out_of_reach(zkl_session_t *s);
static void zkl_session_barrier(zkl_session_t *s);
static void zkl_session_arm(zkl_session_t *s);
static ngx_uint_t zkl_op_same(ngx_str_t *one, ngx_str_t *two);
static void zkl_session_finish(zkl_op_t *op);
static void zkl_session_free_op(zkl_op_t *op);
static void zkl_session_flush_failed(zkl_session_t *s);
static void zkl_session_submit(zkl_session_t *s, zkl_op_t *op);
static void zkl_session_submit_batch(zkl_session_t *s, zkl_batch_t *batch);
static void zkl_session_took_off(zkl_session_t *s, zkl_flight_t *flight);
static void zkl_session_wrote(zkl_session_t *s, zkl_flight_t *flight);
static void zkl_session_written(zkl_session_t *s, zkl_flight_t *flight,
    zkl_rc_e rc);
static void zkl_session_landed(zkl_flight_t *flight);
static void zkl_session_heard(zkl_session_t *s, zkl_flight_t *flight);
static void zkl_session_op_landed(zkl_message_t *message, void *data);
static void zkl_session_denied(zkl_session_t *s, zkl_op_t *op);
static void zkl_session_batch_landed(zkl_message_t *message, void *data);
static void zkl_session_rolled_back(zkl_session_t *s, zkl_batch_t *batch);
static void zkl_session_fail(zkl_session_t *s, zkl_op_t *op, zkl_rc_e rc);
static void zkl_session_flush_patient(zkl_session_t *s);
static void zkl_session_read_handler(ngx_event_t *ev);
static void zkl_session_gate(zkl_session_t *s, zkl_op_e type);
static void zkl_session_gate_handler(zkl_op_t *op);
static void zkl_session_gate_failed(zkl_session_t *s, zkl_op_t *op);
static void zkl_session_pend(zkl_session_t *s, zkl_op_t *op);
static void zkl_session_unpend(zkl_session_t *s);
static void zkl_session_hurry(zkl_session_t *s);
static void zkl_session_gather_handler(ngx_event_t *ev);
static void zkl_session_flush_handler(ngx_event_t *ev);
static void zkl_session_flush_pending(zkl_session_t *s);
static zkl_batch_t *zkl_session_gather(zkl_session_t *s);
static ngx_uint_t zkl_session_watch_room(zkl_session_t *s, size_t len,
    size_t max);
static void zkl_session_watched(zkl_session_t *s, zkl_op_t *op);
static void zkl_session_unwatched(zkl_session_t *s, ngx_str_t *path,
    ngx_uint_t list);
static void zkl_session_forget_watches(zkl_session_t *s);


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

    s->gate.data = ngx_alloc(conf->chroot.len
                             + sizeof(ZKL_GATES "/")
                             + ZKL_GATE_LEN, log);
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

    ngx_rbtree_init(&s->watches, &s->watches_sentinel,
                    ngx_str_rbtree_insert_value);

    ngx_queue_init(&s->flights);
    ngx_queue_init(&s->pending);
    ngx_queue_init(&s->fresh);
    ngx_queue_init(&s->failed);

    s->flush.handler = zkl_session_flush_handler;
    s->flush.data = s;
    s->flush.log = log;

    s->gather.handler = zkl_session_gather_handler;
    s->gather.data = s;
    s->gather.log = log;

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
     * The library closes its socket when it has sent that it closes the
     * session: an answer that is still unread makes a reset of that, and the
     * server throws away what it has not read.
     */

    s->events = NULL;
    until = zkl_now() + ZKL_PATIENCE;

    while (s->state == ZKL_CONNECTED
           && !ngx_queue_empty(&s->flights)
           && zkl_ahead(until))
    {
        if (zkl_mailbox_take(s->mailbox, NULL) == 0) {
            ngx_msleep(1);
        }
    }

    /* from here on no worker may tell that a claim of this session is held */

    *s->alive = zkl_now() - 1;
    ngx_memory_barrier();

    zkl_session_free(s);
}


static void
zkl_session_free(zkl_session_t *s)
{
    ngx_queue_t  *q;
    zkl_op_t     *op;

    /* the answers that are left are for nobody */

    s->events = NULL;

    zkl_session_end_handle(s);
    zkl_session_state(s, ZKL_CLOSED);

    while (!ngx_queue_empty(&s->failed)) {
        q = ngx_queue_head(&s->failed);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, zkl_op_t, flight.queue);
        zkl_session_free_op(op);
    }

    if (s->flush.posted) {
        ngx_delete_posted_event(&s->flush);
    }

    if (s->read.posted) {
        ngx_delete_posted_event(&s->read);
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


/*
 * A server counts a session that is taken over from when it has the request:
 * what was known of its life before counts no longer than that.
 */

static void
zkl_session_start(zkl_session_t *s)
{
    const zkl_key_t  *key;

    s->serial++;
    s->gated = 0;
    s->gating = 0;
    s->refused = 0;
    s->apart = zkl_now();
    s->timeout = s->conf->timeout;

    key = NULL;

    if (s->key.id != 0) {
        key = &s->key;
        s->timeout = key->timeout;
        zkl_session_bound(s, s->apart);
    }

    s->handle = zkl_client_open(s->conf, key, s->timeout, s, s->serial,
                                zkl_session_news, s->mailbox, s->log);

    zkl_session_state(s, s->handle ? ZKL_CONNECTING : ZKL_BACKOFF);
}


static void
zkl_session_state(zkl_session_t *s, zkl_session_state_e state)
{
    ngx_msec_t  now;

#if (NGX_DEBUG)
    static char  *names[] = {
        "closed", "connecting", "connected", "suspended", "backoff"
    };
#endif

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, s->log, 0, "zk lock session: %s -> %s",
                   names[s->state], names[state]);

    now = zkl_now();

    /* out of reach since the last moment when it was connected */

    if (s->state == ZKL_CONNECTED || s->state == ZKL_CLOSED) {
        s->since = now;
    }

    s->state = state;

    if (state == ZKL_BACKOFF) {
        s->backoff = s->backoff ? ngx_min(s->backoff * 2, ZKL_BACKOFF_MAX)
                                : ZKL_BACKOFF_MIN;
        s->asked = now;
    }

    if (state != ZKL_CLOSED) {
        zkl_session_arm(s);
    }
}


/*
 * The bytes of a path that logs may have: the rest would make a token.
 *
 * The bytes of a path that logs may have: the rest would make a token.
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

    zkl_news_e      news;
    zkl_session_t  *s;

    s = n->session;
    news = n->news;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, s->log, 0,
                   "zk lock session: news %d \"%*s\" of handle %ui", news,
                   zkl_session_shown(&n->path), n->path.data, n->serial);

    if (n->serial != s->serial || s->events == NULL || s->handle == NULL) {
        goto done;
    }

    switch (news) {

    case ZKL_NEWS_CONNECTED:
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
    case ZKL_NEWS_AUTH_FAILED:
        zkl_session_suspended_handler(s);

        s->kept = (news == ZKL_NEWS_AUTH_FAILED && s->key.id != 0);

        ngx_log_error(NGX_LOG_WARN, s->log, 0, "zookeeper session is over: %s",
                      news == ZKL_NEWS_AUTH_FAILED
                      ? "authentication failed, see \"zk_lock_auth\""
                      : "expired");

        /* not from here: messages of the same turn are still to be taken */

        ngx_post_event(&s->over, &ngx_posted_events);
        break;

    case ZKL_NEWS_DELETED:
    case ZKL_NEWS_CHANGED:
        zkl_session_unwatched(s, &n->path, 0);

        if (news == ZKL_NEWS_DELETED) {
            zkl_session_unwatched(s, &n->path, 1);
            s->events->listed(s->data, &n->path);
        }

        s->events->changed(s->data, &n->path, news == ZKL_NEWS_DELETED);
        break;

    case ZKL_NEWS_LISTED:
        zkl_session_unwatched(s, &n->path, 1);

        s->events->listed(s->data, &n->path);
        break;
    }

done:

    free(n);
}


static void
zkl_session_connected_handler(zkl_session_t *s)
{
    ngx_uint_t  fresh;
    zkl_key_t   key;

    s->late = 0;

    if (s->state == ZKL_CONNECTED) {
        return;
    }

    s->timeout = zkl_client_timeout(s->handle);

    zkl_session_touched(s);

    /* what is read next is not to be older than what was known before */

    s->barrier = 1;
    zkl_session_barrier(s);

    if (s->barrier) {
        /* no memory; the tick tries again */
        s->late = 1;
        return;
    }

    key = s->key;
    zkl_client_key(s->handle, &key);

    fresh = (key.id != s->key.id);

    if (fresh) {
        key.timeout = s->timeout;

        (void) ngx_sprintf(s->gate_name, "%08xD%08xD", (uint32_t) ngx_random(),
                           (uint32_t) ngx_random());
    }

    s->key = key;

    s->unreachable = 0;
    s->nudged = 0;
    s->doubts = 0;
    s->asked = zkl_now();
    s->replied = s->asked;

    zkl_session_state(s, ZKL_CONNECTED);

    ngx_log_error(NGX_LOG_NOTICE, s->log, 0,
                  "zookeeper session is %s, timeout %M ms",
                  fresh ? "open" : "back", s->timeout);

    if (!s->gated && !s->last) {
        zkl_session_gate(s, ZKL_OP_GATE);
    }

    s->events->connected(s->data, fresh ? &s->key : NULL);
}


/* The connection is lost: what is pending fails. */

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

    /* what is under way is answered by the library, with an error */

    zkl_session_unpend(s);

    s->events->suspended(s->data);
}


static void
zkl_session_over_handler(ngx_event_t *ev)
{
    zkl_session_t  *s;

    s = ev->data;

    zkl_session_end_handle(s);

    /* what is told of operations comes before what is told of the session */

    while (!ngx_queue_empty(&s->failed)) {
        zkl_session_flush_failed(s);
    }

    *s->alive = zkl_now() - 1;

    if (s->kept) {

        /*
         * A server refuses the identity, but has not ended the session: with
         * all that was made through it, it is there until it has expired.
         */

        zkl_session_state(s, ZKL_BACKOFF);
        return;
    }

    s->key.id = 0;

    zkl_session_state(s, s->last ? ZKL_CLOSED : ZKL_BACKOFF);

    /* ZooKeeper has just told: there is patience for a new session */

    s->since = zkl_now();

    s->events->lost(s->data);
}


/*
 * Closes the handle.  What the library answers meanwhile is delivered, and
 * what it never answered fails here: it can lose completions when it closes
 * (ZOOKEEPER-2894, ZOOKEEPER-3868).
 */

static void
zkl_session_end_handle(zkl_session_t *s)
{
    ngx_queue_t   *q;
    zkl_flight_t  *flight;

    if (s->handle == NULL) {
        return;
    }

    zkl_client_close(s->handle);

    s->handle = NULL;

    zkl_session_forget_watches(s);

    (void) zkl_mailbox_take(s->mailbox, NULL);

    while (!ngx_queue_empty(&s->flights)) {
        q = ngx_queue_head(&s->flights);
        flight = ngx_queue_data(q, zkl_flight_t, queue);

        flight->code = 0;
        flight->message.deliver(&flight->message, s);
    }

    zkl_session_unpend(s);
}


static void
zkl_session_tick_handler(ngx_event_t *ev)
{
    ngx_msec_t      now;
    zkl_session_t  *s;

    s = ev->data;
    now = zkl_now();

    switch (s->state) {

    case ZKL_CLOSED:
        return;

    case ZKL_BACKOFF:

        if (s->kept) {

            /* nobody asks for it meanwhile; and ZooKeeper counts by ticks */

            if (now - s->asked >= 2 * s->timeout) {
                s->kept = 0;
                ngx_post_event(&s->over, &ngx_posted_events);
            }

        } else if (now - s->asked >= s->backoff) {
            zkl_session_start(s);
        }

        /* fall through */

    case ZKL_CONNECTING:
    case ZKL_SUSPENDED:

        if (s->late) {
            zkl_session_connected_handler(s);

        } else if (s->handle != NULL && !zkl_client_asked(s->handle))
        {
            s->apart = now;
        }

        if (s->state != ZKL_CONNECTED && now - s->since >= ZKL_PATIENCE) {
            zkl_session_out_of_reach(s);
        }

        break;

    case ZKL_CONNECTED:
        zkl_session_watchdog(s, now);
        break;
    }

    zkl_session_arm(s);
}


/*
 * The session's pulse: until when the session surely lives, whether ZooKeeper
 * is heard, and what is done if not.
 *
 * Known alive.  Only the leader ends a session, a timeout after it has heard of
 * it last, and the client hears of that when it is back.  So the question is
 * when the leader has heard of the session.
 *
 * - Only what a quorum has committed proves anything.  A leader that was cut
 *   off from the quorum answers pings, reads and syncs for syncLimit ticks, and
 *   so does a follower that was cut off from its leader, while the new leader
 *   ends the session.  A write is answered when it is committed; what the
 *   leader refuses is committed as an error.  But a server may refuse by itself
 *   what ACLs forbid, or what is too much: that is not counted.
 *
 * - A write proves that the session was not over.  It does not move the
 *   leader's clock if it comes by a follower: that one tells the leader whom it
 *   has heard when the leader pings it, which is twice a tick, and with a
 *   session timeout of two ticks or more at least four times in a timeout
 *   (guarantees.md has this among the assumptions).  So of a write that was
 *   sent at t, and answered at u, the leader knows when another one, sent at u
 *   and a quarter of the timeout, has been committed: the follower has told of
 *   the first one before it passed on the second one.  Then the leader counts
 *   from t or later.  The quarter is the leader's: a twentieth of the timeout
 *   is waited longer, since clocks do not run evenly.
 *
 * - When a session is made, and when it moves to another server or comes back
 *   to the same, the leader is asked at once, and counts from then.  When the
 *   library asked is not known, but a moment before that: the last one at
 *   which it had no connection, or at which it sent what was answered before
 *   the connection broke (`apart`).  Which leader was asked shows the first
 *   write that is committed through the new connection.
 *
 * - A new leader gives each session the whole timeout that it was made with,
 *   from when a quorum follows it.  That is later than when anything was sent
 *   that the leader before has committed.
 *
 * So the session lives for its timeout from `touched` on, as soon as a write
 * that was sent at `proves` or later is committed.  A twentieth is taken off
 * that, too.
 *
 * For that a write is due each third of the timeout.  If there is none, a
 * barrier is sent, a transaction that changes nothing.
 *
 * What is under way is looked at more often.  For an answer that is overdue
 * ZooKeeper is asked once more; then it is out of reach, and nothing more is
 * begun before it is heard again; and what the library never answers ends the
 * session at last.
 *
 * Everything here runs on the event loop.
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
zkl_session_starved(zkl_session_t *s)
{
    return s->starved && ngx_current_msec - s->starving >= ZKL_PATIENCE;
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


/* Known alive.  The session is connected; its leader may be deposed. */

static void
zkl_session_touched(zkl_session_t *s)
{
    s->touched = s->apart;
    s->proves = zkl_now();

    /* the timeout is negotiated anew with each connection */

    zkl_session_bound(s, s->apart);
}


/* The same: a quorum has committed a write that was sent then. */

static void
zkl_session_committed(zkl_session_t *s, ngx_msec_t sent)
{
    ngx_msec_t  until;

    if (s->events == NULL || (ngx_msec_int_t) (sent - s->proves) < 0) {

        /* the session is about to be closed, or enough is known */

        return;
    }

    until = zkl_session_until(s, s->touched);

    if ((ngx_msec_int_t) (until - *s->alive) > 0) {
        *s->alive = until;
    }

    s->touched = sent;
    s->proves = zkl_now() + s->timeout / 4 + s->timeout / 20;
}


/* The session lives no longer than what it has from `since` on. */

static void
zkl_session_bound(zkl_session_t *s, ngx_msec_t since)
{
    ngx_msec_t  until;

    until = zkl_session_until(s, since);

    if ((ngx_msec_int_t) (*s->alive - until) > 0) {
        *s->alive = until;
    }
}


static ngx_msec_t
zkl_session_until(zkl_session_t *s, ngx_msec_t since)
{
    return since + s->timeout - s->timeout / 20;
}


/* When the next write is due, if none comes by itself. */

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
    ngx_msec_t     silence;
    ngx_queue_t   *q;
    zkl_flight_t  *flight;

    if ((ngx_msec_int_t) (now - zkl_session_due(s)) >= 0) {
        zkl_session_barrier(s);
    }

    if (ngx_queue_empty(&s->flights)) {
        s->doubts = 0;
        return;
    }

    q = ngx_queue_head(&s->flights);
    flight = ngx_queue_data(q, zkl_flight_t, queue);

    silence = now - flight->sent;

    if (now - s->replied < silence) {
        silence = now - s->replied;
    }

    if (silence >= ZKL_NUDGE && !s->nudged) {
        s->nudged = 1;
        zkl_session_barrier(s);
    }

    if (silence >= ZKL_PATIENCE) {
        zkl_session_out_of_reach(s);
    }

    if (silence < 2 * s->timeout) {
        return;
    }

    /*
     * If this process stood still, so did the library: an answer may be in the
     * mailbox by now, or word that the connection broke come soon.  So only
     * ticks count that come one after the other.
     */

    if (now - s->doubted >= ZKL_PATIENCE) {
        s->doubts = 0;
    }

    s->doubted = now;

    if (++s->doubts > s->timeout / ZKL_TICK && !s->over.posted) {

        /* the library would have told; it must have lost an answer */

        ngx_log_error(NGX_LOG_ERR, s->log, 0,
                      "no answer from libzookeeper for %M ms, "
                      "the session is given up", silence);

        zkl_session_suspended_handler(s);
        ngx_post_event(&s->over, &ngx_posted_events);
    }
}


/* ZooKeeper is out of reach: that is logged, and streams are told. */

static void
zkl_session_out_of_reach(zkl_session_t *s)
{
    if (!s->unreachable) {
        s->unreachable = 1;

        ngx_log_error(NGX_LOG_WARN, s->log, 0,
                      "zookeeper is out of reach at \"%V\"",
                      &s->conf->servers);
    }

    s->events->unreachable(s->data);
}


/*
 * A write that changes nothing: to be heard, and in front of reads.  Without
 * memory none is sent.
 */

static void
zkl_session_barrier(zkl_session_t *s)
{
    zkl_op_t  *op;

    op = zkl_op_new(s, ZKL_OP_BARRIER, &zkl_top, NULL, NULL);
    if (op != NULL) {
        zkl_session_submit(s, op);
    }
}


/*
 * The tick is short while something is under way or out of reach, else it is
 * the heartbeat.  An operation under way keeps a worker that wants to leave.
 */

static void
zkl_session_arm(zkl_session_t *s)
{
    ngx_msec_int_t  period;

    period = ZKL_TICK;

    s->tick.cancelable = ngx_queue_empty(&s->flights)
                         && ngx_queue_empty(&s->pending)
                         && ngx_queue_empty(&s->fresh);

    if (s->state == ZKL_CONNECTED && s->tick.cancelable) {
        period = zkl_session_due(s) - zkl_now();
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
 * Operations: how an operation is made, and how an operation ends.
 *
 * An operation is one block of memory with path, value and reply; only a list's
 * children, which the library gave, and a rename's further paths and results
 * are separate blocks.  Everything here runs on the event loop.
 */


zkl_op_t *
zkl_op_new(zkl_session_t *s, zkl_op_e type, ngx_str_t *dir, ngx_str_t *name,
    ngx_str_t *value)
{
    u_char    *p;
    size_t     path, reply, len;
    zkl_op_t  *op;

    if (name != NULL && name->len == 0) {
        name = NULL;
    }

    path = s->conf->chroot.len + dir->len + (name ? 1 + name->len : 0);
    len = value ? value->len : 0;

    switch (type) {

    case ZKL_OP_CREATE:
        reply = path + 10 + 1;
        break;

    case ZKL_OP_GET:
        reply = ZKL_CLAIM_DATA_MAX;
        break;

    default:
        reply = 0;
        break;
    }

    op = ngx_alloc(sizeof(zkl_op_t) + path + 1 + len + 1 + reply, s->log);
    if (op == NULL) {

        if (!s->starved) {
            s->starved = 1;
            s->starving = ngx_current_msec;
        }

        return NULL;
    }

    s->starved = 0;

    ngx_memzero(op, sizeof(zkl_op_t));

    op->type = type;
    op->version = -1;
    op->flight.session = s;

    p = (u_char *) op + sizeof(zkl_op_t);

    op->path.data = p;

    p = ngx_cpymem(p, s->conf->chroot.data, s->conf->chroot.len);

    /* the path "/" below a chroot is the chroot itself */

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


static ngx_uint_t
zkl_op_same(ngx_str_t *one, ngx_str_t *two)
{
    return one->len == two->len
           && ngx_memcmp(one->data, two->data, one->len) == 0;
}


zkl_op_t *
zkl_op_rename(zkl_session_t *s, ngx_str_t *dir, ngx_str_t *name, ngx_str_t *to,
    ngx_str_t *value, int32_t version, zkl_op_t *get)
{
    u_char    *p;
    zkl_op_t  *op;

    op = zkl_op_new(s, ZKL_OP_RENAME, dir, name, value);
    if (op == NULL) {
        return NULL;
    }

    op->from_version = version;
    op->target = op->path;

    if (get == NULL) {
        return op;
    }

    p = ngx_alloc(2 * (get->path.len + 1) + to->len + 1 + get->reply.len,
                  s->log);
    if (p == NULL) {
        ngx_free(op);
        return NULL;
    }

    op->more = p;
    op->version = get->version;

    op->parent.data = p;
    op->parent.len = get->path.len;
    p = ngx_cpymem(p, get->path.data, get->path.len);
    *p++ = '\0';

    op->content.data = p;
    op->content.len = get->reply.len;
    p = ngx_cpymem(p, get->reply.data, get->reply.len);

    if (zkl_op_same(name, to)) {
        return op;
    }

    op->target.data = p;
    op->target.len = get->path.len + 1 + to->len;
    p = ngx_cpymem(p, get->path.data, get->path.len);
    *p++ = '/';
    p = ngx_cpymem(p, to->data, to->len);
    *p = '\0';

    return op;
}


/* Tells what came of an operation, and frees it. */

static void
zkl_session_finish(zkl_op_t *op)
{
    size_t          i;
    zkl_session_t  *s;

    s = op->flight.session;

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

    if (op->handler != NULL && s->events != NULL) {
        op->handler(op);
    }

    zkl_session_free_op(op);
}


/* Frees an operation, and what the library gave with it; tells nobody. */

static void
zkl_session_free_op(zkl_op_t *op)
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
 * Operations, and batches of operations, that are under way: from the send to
 * ZooKeeper's answer, or to the moment when no answer can come any more.
 *
 * One operation that fails rolls the whole batch back: then the culprit is sent
 * again alone, and the remaining operations together.
 *
 * Everything here runs on the event loop; the library's threads post the
 * answers.  An operation is in one place: pending, in a batch, alone in
 * flights, or failed; the handler of a cancelled operation is NULL.
 */


/* Tells of those that failed; those that fail meanwhile wait for a turn. */

static void
zkl_session_flush_failed(zkl_session_t *s)
{
    ngx_queue_t   failed;
    ngx_queue_t  *q;
    zkl_op_t     *op;

    if (ngx_queue_empty(&s->failed)) {
        return;
    }

    ngx_queue_init(&failed);
    ngx_queue_add(&failed, &s->failed);
    ngx_queue_init(&s->failed);

    while (!ngx_queue_empty(&failed)) {
        q = ngx_queue_head(&failed);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, zkl_op_t, flight.queue);
        zkl_session_finish(op);
    }
}


/* Send, now, to a handle that is there; one that is refused has failed. */

static void
zkl_session_submit(zkl_session_t *s, zkl_op_t *op)
{
    int  code;

    if (op->type == ZKL_OP_CREATE) {
        op->index = 0;
        (void) ngx_sprintf(op->value.data + op->index_at, "00");
    }

    op->flight.message.deliver = zkl_session_op_landed;
    op->flight.write = (op->type <= ZKL_OP_BARRIER);

    zkl_session_took_off(s, &op->flight);

    if (op->watch) {
        s->watch_asked += op->path.len + 5;
    }

    code = zkl_client_submit(s->handle, op);

    if (code == 0) {
        zkl_session_wrote(s, &op->flight);
        return;
    }

    if (op->watch) {
        s->watch_asked -= op->path.len + 5;
    }

    ngx_log_error(NGX_LOG_WARN, s->log, 0,
                  "libzookeeper refused an operation on \"%*s\": %s",
                  zkl_session_shown(&op->path), op->path.data,
                  zkl_client_text(code));

    zkl_session_landed(&op->flight);
    zkl_session_fail(s, op,
                          zkl_client_rc(code)
                          == ZKL_REFUSED
                          ? ZKL_REFUSED
                          : ZKL_UNSENT);
}


static void
zkl_session_submit_batch(zkl_session_t *s, zkl_batch_t *batch)
{
    int           code;
    ngx_queue_t  *q;
    zkl_op_t     *op;

    batch->flight.message.deliver = zkl_session_batch_landed;
    batch->flight.write = 1;
    batch->flight.counted = 1;
    s->writes++;

    zkl_session_took_off(s, &batch->flight);

    code = zkl_client_submit_batch(s->handle, batch);

    if (code == 0) {
        zkl_session_wrote(s, &batch->flight);
        return;
    }

    ngx_log_error(NGX_LOG_WARN, s->log, 0,
                  "libzookeeper refused a transaction of %ui: %s", batch->nops,
                  zkl_client_text(code));

    zkl_session_landed(&batch->flight);

    while (!ngx_queue_empty(&batch->ops)) {
        q = ngx_queue_head(&batch->ops);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, zkl_op_t, flight.queue);
        zkl_session_fail(s, op, ZKL_UNSENT);
    }

    zkl_client_free_batch(batch);
}


static void
zkl_session_took_off(zkl_session_t *s, zkl_flight_t *flight)
{
    flight->sent = zkl_now();
    s->asked = flight->sent;

    ngx_queue_insert_tail(&s->flights, &flight->queue);

    zkl_session_arm(s);
}


/* Notes that each operation that is sent from now on is behind a write. */

static void
zkl_session_wrote(zkl_session_t *s, zkl_flight_t *flight)
{
    if (flight->write) {
        flight->number = ++s->written;
        s->wrote = flight->sent;
        s->barrier = 0;
    }
}


/* Notes whether a quorum has committed a write. */

static void
zkl_session_written(zkl_session_t *s, zkl_flight_t *flight, zkl_rc_e rc)
{
    switch (rc) {

    case ZKL_OK:
    case ZKL_NO_NODE:
    case ZKL_EXISTS:
    case ZKL_CHANGED:
    case ZKL_CHILDLESS:
        s->committed = flight->number;
        zkl_session_committed(s, flight->sent);
        break;

    default:

        /* a server may have refused the write by itself: a new write is due */

        if (s->wrote == flight->sent) {
            s->wrote = s->proves - 1;
        }

        break;
    }
}


static void
zkl_session_landed(zkl_flight_t *flight)
{
    zkl_session_t  *s;

    s = flight->session;

    ngx_queue_remove(&flight->queue);

    if (flight->counted) {
        flight->counted = 0;
        s->writes--;
    }

    if (s->hurry) {
        zkl_session_hurry(s);
    }
}


/* Notes that ZooKeeper has answered an operation or a batch. */

static void
zkl_session_heard(zkl_session_t *s, zkl_flight_t *flight)
{
    zkl_rc_e  rc;

    rc = zkl_client_rc(flight->code);

    if (s->handle == NULL || rc == ZKL_UNKNOWN) {
        return;
    }

    s->replied = zkl_now();

    if (s->unreachable) {
        s->unreachable = 0;

        ngx_log_error(NGX_LOG_NOTICE, s->log, 0, "zookeeper answers again");
    }

    s->nudged = 0;
    s->doubts = 0;
    s->backoff = 0;

    if (s->state == ZKL_CONNECTED
        && (ngx_msec_int_t) (flight->sent - s->apart) > 0)
    {
        s->apart = flight->sent;
    }

    if (flight->write) {
        zkl_session_written(s, flight, rc);
    }
}


static void
zkl_session_op_landed(zkl_message_t *message, void *data)
{
    zkl_op_t  *op = (zkl_op_t *) message;

    zkl_session_t  *s;

    s = op->flight.session;

    /* data is the session if the library never answered */

    op->rc = (data == s) ? ZKL_UNKNOWN : zkl_client_rc(op->flight.code);

    if (op->type == ZKL_OP_BARRIER && op->rc == ZKL_NO_AUTH) {
        /*
         * The leader checks the rights of each part of a transaction, and
         * commits a refusal as well: the barrier needs no right to read.
         */

        op->flight.code = 0;
    }

    if (data != s) {
        zkl_session_heard(s, &op->flight);
    }

    zkl_session_landed(&op->flight);

    if (op->watch) {
        s->watch_asked -= op->path.len + 5;
    }

    if (op->watch
        && (op->rc == ZKL_OK
            || (op->rc == ZKL_NO_NODE
                && op->type == ZKL_OP_EXISTS)))
    {
        zkl_session_watched(s, op);
    }

    if (op->fresh && s->committed <= op->flight.number) {

        /* the write in front of it was not committed: the data may be old */

        op->rc = ZKL_UNSENT;
    }

    if (op->type == ZKL_OP_BARRIER) {
        /* a barrier serves its purpose, whatever the answer */

    } else if (op->rc == ZKL_REFUSED) {
        ngx_log_error(NGX_LOG_ERR, s->log, 0,
                      "zookeeper refused an operation on \"%*s\": %s",
                      zkl_session_shown(&op->path), op->path.data,
                      zkl_client_text(op->flight.code));

    } else if (op->rc == ZKL_NO_AUTH) {
        zkl_session_denied(s, op);
    }

    zkl_session_finish(op);
}


/* Logs seldom: any client can ask for a lock that the ACL forbids. */

static void
zkl_session_denied(zkl_session_t *s, zkl_op_t *op)
{
    ngx_msec_t  now;

    now = zkl_now();

    if (s->denied != 0 && now - s->denied < ZKL_DENIED_AGAIN) {
        return;
    }

    s->denied = now;

    ngx_log_error(NGX_LOG_ERR, s->log, 0,
                  "zookeeper's ACL forbids an operation on \"%*s\", see "
                  "\"zk_lock_auth\"; such lines come once a second at most",
                  zkl_session_shown(&op->path), op->path.data);
}


static void
zkl_session_batch_landed(zkl_message_t *message, void *data)
{
    zkl_batch_t  *batch = (zkl_batch_t *) message;

    ngx_queue_t    *q;
    zkl_rc_e        rc;
    zkl_op_t       *op;
    zkl_session_t  *s;

    s = batch->flight.session;

    rc = ZKL_UNKNOWN;

    if (data != s) {
        rc = zkl_client_rc(batch->flight.code);

        zkl_session_heard(s, &batch->flight);
        zkl_client_read_batch(batch);
    }

    zkl_session_landed(&batch->flight);

    if (rc != ZKL_OK && rc != ZKL_UNKNOWN) {
        zkl_session_rolled_back(s, batch);
    }

    while (!ngx_queue_empty(&batch->ops)) {
        q = ngx_queue_head(&batch->ops);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, zkl_op_t, flight.queue);
        op->rc = rc;

        zkl_session_finish(op);
    }

    zkl_client_free_batch(batch);
}


/*
 * No operation of the batch took effect.  The culprit, the operation with a
 * code of its own, is sent again alone and so gets an answer; the innocent
 * operations are sent again together, ahead of later operations.
 */

static void
zkl_session_rolled_back(zkl_session_t *s, zkl_batch_t *batch)
{
    ngx_uint_t    culprits, connected;
    ngx_queue_t  *q;
    zkl_op_t     *op;

    culprits = 0;

    /* the answers of a closed handle land here, too */

    connected = (s->state == ZKL_CONNECTED && s->handle != NULL);

    while (!ngx_queue_empty(&batch->ops)) {
        q = ngx_queue_last(&batch->ops);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, zkl_op_t, flight.queue);

        if (!connected) {
            zkl_session_fail(s, op, ZKL_UNSENT);
            continue;
        }

        if (zkl_client_innocent(op->flight.code)) {
            ngx_queue_insert_head(&s->pending, q);
            s->npending++;
            continue;
        }

        culprits++;
        op->gather = 0;

        zkl_session_submit(s, op);
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, s->log, 0,
                   "zk lock session: batch of %ui rolled back, culprits: %ui",
                   batch->nops, culprits);

    if (culprits == 0 && connected) {

        /* only the write to the gate failed: the gate was deleted */

        s->gated = 0;
        zkl_session_gate(s, ZKL_OP_GATE);
    }

    if (!ngx_queue_empty(&s->pending)) {
        zkl_session_hurry(s);
    }
}


/* An operation has come to nothing; its handler is told in the next turn. */

static void
zkl_session_fail(zkl_session_t *s, zkl_op_t *op, zkl_rc_e rc)
{
    op->rc = rc;

    ngx_queue_insert_tail(&s->failed, &op->flight.queue);

    /*
     * The handler is told in the next turn of the loop: the library may refuse
     * each operation that a handler sends again, and such refusals must not
     * keep the loop from the message that the session is over.
     */

    ngx_post_event(&s->flush, &ngx_posted_next_events);
}


/*
 * Group commit: what is gathered, and when it goes.
 *
 * ZooKeeper pays by the transaction, not by the operation.  So creates and
 * deletes that are sure to succeed are gathered while a few transactions are
 * under way, and go out together; an idle session sends at once.  "At once" is
 * when a turn of the event loop has brought nothing more to gather: who is idle
 * loses no time by that, and who is busy sends more at a time.  An operation
 * that nobody is in a hurry for says so (`patient`), and waits for others to go
 * with.
 *
 * All creates of a batch share one zxid, which the session's gate tells: an
 * ephemeral znode of its own, set in the same transaction.  Until the gate is
 * there, creates go alone.
 *
 * Everything here runs on the event loop.  Owns what is pending; from
 * submit on an operation belongs to what is under way.
 */


void
zkl_session_send(zkl_op_t *op)
{
    zkl_session_t  *s;

    s = op->flight.session;

    if (s->state != ZKL_CONNECTED) {
        zkl_session_fail(s, op, ZKL_UNSENT);
        return;
    }

    if (op->fresh) {
        s->barrier = 1;
        op->flight.number = s->written;

        ngx_queue_insert_tail(&s->fresh, &op->flight.queue);
        zkl_session_arm(s);

        ngx_post_event(&s->read, &ngx_posted_next_events);
        return;
    }

    if (op->gather) {
        zkl_session_pend(s, op);
        return;
    }

    zkl_session_flush_patient(s);
    zkl_session_submit(s, op);
}


/* What is read shows what was decided before. */

static void
zkl_session_flush_patient(zkl_session_t *s)
{
    if (!ngx_queue_empty(&s->pending) && !s->hurry) {
        zkl_session_flush_pending(s);
    }
}


/*
 * Of the session's event read: sends the fresh reads behind a write.
 *
 * ZooKeeper answers a read behind the writes that the session has sent before
 * it, with what is there by then.  So those that were asked for in one turn of
 * the event loop go together, behind any write that was sent since.  If none of
 * these is committed, what was read does not count.
 */

static void
zkl_session_read_handler(ngx_event_t *ev)
{
    ngx_queue_t    *q;
    zkl_op_t       *op;
    zkl_session_t  *s;

    s = ev->data;

    if (ngx_queue_empty(&s->fresh)) {
        return;
    }

    zkl_session_flush_patient(s);

    if (s->barrier) {
        zkl_session_barrier(s);
    }

    while (!ngx_queue_empty(&s->fresh)) {
        q = ngx_queue_head(&s->fresh);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, zkl_op_t, flight.queue);

        if (s->barrier) {
            zkl_session_fail(s, op, ZKL_UNSENT);

        } else {
            zkl_session_submit(s, op);
        }
    }
}


/*
 * Makes the gate.  Its parent is made when it turns out to be missing, and
 * stays.  Without a gate all goes on, but slower.
 */

static void
zkl_session_gate(zkl_session_t *s, zkl_op_e type)
{
    u_char     value[NGX_MAXHOSTNAMELEN + NGX_INT64_LEN + 1];
    ngx_str_t  leaf, label;
    zkl_op_t  *op;

    leaf.data = s->gate_name;
    leaf.len = ZKL_GATE_LEN;

    label.data = value;
    label.len = ngx_sprintf(value, "%V %P", &ngx_cycle->hostname, ngx_pid)
                - value;

    op = zkl_op_new(s, type, &zkl_gates, type == ZKL_OP_GATE ? &leaf
                                        : NULL,
                    type == ZKL_OP_GATE ? &label
                                        : NULL);
    if (op == NULL) {
        return;
    }

    op->handler = zkl_session_gate_handler;
    op->data = s;

    s->gating = 1;

    zkl_session_send(op);
}


ngx_int_t
zkl_session_gated(zkl_session_t *s, ngx_str_t *name)
{
    if (s->gated) {
        name->data = s->gate_name;
        name->len = ZKL_GATE_LEN;

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


void
zkl_session_ungated(zkl_session_t *s)
{
    ngx_log_error(NGX_LOG_NOTICE, s->log, 0,
                  "the gate of this zookeeper session was removed");

    s->gated = 0;

    zkl_session_gate(s, ZKL_OP_GATE);
}


static void
zkl_session_gate_handler(zkl_op_t *op)
{
    u_char         *p;
    zkl_session_t  *s;

    s = op->data;
    s->gating = 0;

    if (op->type != ZKL_OP_GATE) {

        if (op->rc == ZKL_OK || op->rc == ZKL_EXISTS) {
            zkl_session_gate(s, ZKL_OP_GATE);

        } else {
            zkl_session_gate_failed(s, op);
        }

        return;
    }

    switch (op->rc) {

    case ZKL_OK:
    case ZKL_EXISTS:

        /* or the answer was lost when it was made */

        p = ngx_cpymem(s->gate.data, op->path.data, op->path.len);
        *p = '\0';

        s->gate.len = op->path.len;
        s->gated = 1;
        s->refused = 0;
        break;

    case ZKL_NO_NODE:
        zkl_session_gate(s, ZKL_OP_PERSISTENT);
        break;

    default:
        zkl_session_gate_failed(s, op);
        break;
    }
}


/*
 * It is asked for again when the connection is back, or after a while; sooner
 * if there is no chroot yet, which the first lock makes.
 */

static void
zkl_session_gate_failed(zkl_session_t *s, zkl_op_t *op)
{
    if (op->rc != ZKL_UNSENT && op->rc != ZKL_UNKNOWN && op->rc != ZKL_NO_NODE)
    {
        s->refused = ngx_current_msec ? ngx_current_msec : 1;
    }
}


/* Puts op to what is gathered for the next transaction. */

static void
zkl_session_pend(zkl_session_t *s, zkl_op_t *op)
{
    ngx_queue_insert_tail(&s->pending, &op->flight.queue);
    s->npending++;

    zkl_session_arm(s);

    if (s->npending >= ZKL_GATHER && s->writes < ZKL_WRITES_MAX) {
        /* ZooKeeper begins while this turn goes on */

        zkl_session_flush_pending(s);

    } else if (!op->patient || s->npending >= ZKL_PATIENT_MAX) {
        zkl_session_hurry(s);

    } else if (!s->gather.timer_set) {
        ngx_add_timer(&s->gather, ZKL_PATIENT);
    }
}


/* What is not sent yet fails: there is no connection to send it to. */

static void
zkl_session_unpend(zkl_session_t *s)
{
    ngx_queue_t  *q;
    zkl_op_t     *op;

    while (!ngx_queue_empty(&s->pending)) {
        q = ngx_queue_head(&s->pending);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, zkl_op_t, flight.queue);
        zkl_session_fail(s, op, ZKL_UNSENT);
    }

    s->npending = 0;
    s->hurry = 0;

    while (!ngx_queue_empty(&s->fresh)) {
        q = ngx_queue_head(&s->fresh);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, zkl_op_t, flight.queue);
        zkl_session_fail(s, op, ZKL_UNSENT);
    }
}


/* What is pending goes as soon as the event loop brings no more of it. */

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


static void
zkl_session_gather_handler(ngx_event_t *ev)
{
    zkl_session_t  *s;

    s = ev->data;

    if (!ngx_queue_empty(&s->pending)) {
        zkl_session_hurry(s);
    }
}


/* Of a session's events: what was gathered is sent, the patient no longer. */

static void
zkl_session_flush_handler(ngx_event_t *ev)
{
    zkl_session_t  *s;

    s = ev->data;

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
    ngx_queue_t  *q;
    zkl_op_t     *op;
    zkl_batch_t  *batch;

    while (s->writes < ZKL_WRITES_MAX && !ngx_queue_empty(&s->pending)) {
        q = ngx_queue_head(&s->pending);
        op = ngx_queue_data(q, zkl_op_t, flight.queue);

        batch = NULL;

        if (q != ngx_queue_last(&s->pending)
            && (s->gated || op->type != ZKL_OP_CREATE))
        {
            batch = zkl_session_gather(s);
        }

        if (batch != NULL) {
            zkl_session_submit_batch(s, batch);
            continue;
        }

        ngx_queue_remove(q);
        s->npending--;

        op->flight.counted = 1;
        s->writes++;

        zkl_session_submit(s, op);
    }

    if (ngx_queue_empty(&s->pending)) {
        s->hurry = 0;

        if (s->gather.timer_set) {
            ngx_del_timer(&s->gather);
        }
    }
}


/* Takes a batch from what is pending; NULL if there is no memory. */

static zkl_batch_t *
zkl_session_gather(zkl_session_t *s)
{
    size_t        bytes;
    ngx_queue_t  *q;
    zkl_op_t     *op;
    zkl_batch_t  *batch;

    batch = ngx_calloc(sizeof(zkl_batch_t), s->log);
    if (batch == NULL) {
        return NULL;
    }

    ngx_queue_init(&batch->ops);
    batch->flight.session = s;
    batch->gate = &s->gate;

    bytes = 0;

    while (batch->nops < ZKL_BATCH_MAX
           && bytes < ZKL_BATCH_BYTES
           && !ngx_queue_empty(&s->pending))
    {
        q = ngx_queue_head(&s->pending);
        op = ngx_queue_data(q, zkl_op_t, flight.queue);

        if (op->type == ZKL_OP_CREATE) {

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


/*
 * What a session has in ZooKeeper, as far as that is bounded: bytes of the
 * paths of ephemeral znodes, and of watched paths.
 *
 * A watch is remembered from when it was asked for to its event, or to the end
 * of the connection.  Everything here runs on the event loop.
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
    return zkl_session_watch_room(s, len, ZKL_PATH_BYTES / 2);
}


ngx_uint_t
zkl_session_must_watch(zkl_session_t *s, size_t len)
{
    return zkl_session_watch_room(s, len, ZKL_PATH_BYTES);
}


/* What is under way may be set by now. */

static ngx_uint_t
zkl_session_watch_room(zkl_session_t *s, size_t len, size_t max)
{
    return s->watch_bytes + s->watch_asked + len + s->conf->chroot.len + 5
           <= max;
}


ngx_uint_t
zkl_session_watches(zkl_session_t *s, ngx_str_t *path)
{
    return ngx_str_rbtree_lookup(&s->watches, path,
                                 ngx_crc32_long(path->data, path->len))
           != NULL;
}


/*
 * The library keeps one watch a path until it fires, and sets all of them
 * again in one packet after a reconnect, which ZooKeeper refuses if it is too
 * long (ZOOKEEPER-706): so the bytes of the paths are counted, each once.
 *
 * The library keeps one watch a path until it fires, and sets all of them
 * again in one packet after a reconnect, which ZooKeeper refuses if it is too
 * long (ZOOKEEPER-706): so the bytes of the paths are counted, each once.
 */

static void
zkl_session_watched(zkl_session_t *s, zkl_op_t *op)
{
    uint32_t         hash;
    ngx_str_t        path;
    ngx_str_node_t  *sn;

    path.data = op->path.data + s->conf->chroot.len;
    path.len = op->path.len - s->conf->chroot.len;

    /* those of lists are kept apart: the NUL belongs to their key */

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


/* A watch is gone: its event has come.  list: that of the children. */

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


/* The connection broke: none is set any more. */

static void
zkl_session_forget_watches(zkl_session_t *s)
{
    ngx_str_node_t  *sn;

    while (s->watches.root != s->watches.sentinel) {
        sn = (ngx_str_node_t *) s->watches.root;

        ngx_rbtree_delete(&s->watches, &sn->node);
        ngx_free(sn);
    }

    s->watch_bytes = 0;
}
