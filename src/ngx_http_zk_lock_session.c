
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


#include "ngx_http_zk_lock_flight.h"


#define NGX_HTTP_ZK_LOCK_BACKOFF_MIN  50
#define NGX_HTTP_ZK_LOCK_BACKOFF_MAX  5000


static void ngx_http_zk_lock_session_free(ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_start(ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_state(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_session_state_e state);
static void ngx_http_zk_lock_session_news(zk_lock_message_t *message,
    void *data);
static void ngx_http_zk_lock_session_connected_handler(
    ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_over_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_session_end_handle(ngx_http_zk_lock_session_t *s);
static void ngx_http_zk_lock_session_tick_handler(ngx_event_t *ev);


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

    s->gate.data = ngx_alloc(conf->chroot.len
                             + sizeof(NGX_HTTP_ZK_LOCK_GATES "/")
                             + NGX_HTTP_ZK_LOCK_GATE_LEN, log);
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

    s->flush.handler = ngx_http_zk_lock_session_flush_handler;
    s->flush.data = s;
    s->flush.log = log;

    s->gather.handler = ngx_http_zk_lock_session_gather_handler;
    s->gather.data = s;
    s->gather.log = log;

    s->read.handler = ngx_http_zk_lock_session_read_handler;
    s->read.data = s;
    s->read.log = log;

    s->over.handler = ngx_http_zk_lock_session_over_handler;
    s->over.data = s;
    s->over.log = log;

    s->tick.handler = ngx_http_zk_lock_session_tick_handler;
    s->tick.data = s;
    s->tick.log = log;

    if (key != NULL) {
        s->key = *key;
        s->last = 1;
    }

    ngx_http_zk_lock_session_start(s);

    return s;
}


void
ngx_http_zk_lock_session_leave(ngx_http_zk_lock_session_t *s)
{
    if (s->handle != NULL) {
        ngx_http_zk_lock_library_cut(s->handle);
    }

    ngx_http_zk_lock_session_free(s);
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

    /* from here on no worker may tell that a claim of this session is held */

    *s->alive = ngx_http_zk_lock_now() - 1;
    ngx_memory_barrier();

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
ngx_http_zk_lock_session_start(ngx_http_zk_lock_session_t *s)
{
    const ngx_http_zk_lock_key_t  *key;

    s->serial++;
    s->gated = 0;
    s->gating = 0;
    s->refused = 0;
    s->apart = ngx_http_zk_lock_now();
    s->timeout = s->conf->timeout;

    key = NULL;

    if (s->key.id != 0) {
        key = &s->key;
        s->timeout = key->timeout;
        ngx_http_zk_lock_session_bound(s, s->apart);
    }

    s->handle = ngx_http_zk_lock_library_open(s->conf, key, s->timeout, s,
                                              s->serial,
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
    ngx_msec_t  now;

#if (NGX_DEBUG)
    static char  *names[] = {
        "closed", "connecting", "connected", "suspended", "backoff"
    };
#endif

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


/* The bytes of a path that logs may have: the rest would make a token. */

size_t
ngx_http_zk_lock_session_shown(ngx_str_t *path)
{
    return zk_lock_path_shown((char *) path->data, path->len);
}


static void
ngx_http_zk_lock_session_news(zk_lock_message_t *message, void *data)
{
    ngx_http_zk_lock_news_t     *n = (ngx_http_zk_lock_news_t *) message;

    ngx_http_zk_lock_news_e      news;
    ngx_http_zk_lock_session_t  *s;

    s = n->session;
    news = n->news;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, s->log, 0,
                   "zk lock session: news %d \"%*s\" of handle %ui",
                   news, ngx_http_zk_lock_session_shown(&n->path),
                   n->path.data, n->serial);

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

        s->kept = (news == NGX_HTTP_ZK_LOCK_NEWS_AUTH_FAILED
                   && s->key.id != 0);

        ngx_log_error(NGX_LOG_WARN, s->log, 0,
                      "zookeeper session is over: %s",
                      news == NGX_HTTP_ZK_LOCK_NEWS_AUTH_FAILED
                      ? "authentication failed, see \"zk_lock_auth\""
                      : "expired");

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


static void
ngx_http_zk_lock_session_connected_handler(ngx_http_zk_lock_session_t *s)
{
    ngx_uint_t              fresh;
    ngx_http_zk_lock_key_t  key;

    s->late = 0;

    if (s->state == NGX_HTTP_ZK_LOCK_CONNECTED) {
        return;
    }

    s->timeout = ngx_http_zk_lock_library_timeout(s->handle);

    ngx_http_zk_lock_session_touched(s);

    /* what is read next is not to be older than what was known before */

    s->barrier = 1;
    ngx_http_zk_lock_session_barrier(s);

    if (s->barrier) {
        /* no memory; the tick tries again */
        s->late = 1;
        return;
    }

    key = s->key;
    ngx_http_zk_lock_library_key(s->handle, &key);

    fresh = (key.id != s->key.id);

    if (fresh) {
        key.timeout = s->timeout;

        (void) ngx_sprintf(s->gate_name, "%08xD%08xD",
                           (uint32_t) ngx_random(), (uint32_t) ngx_random());
    }

    s->key = key;

    s->unreachable = 0;
    s->nudged = 0;
    s->doubts = 0;
    s->asked = ngx_http_zk_lock_now();
    s->replied = s->asked;

    ngx_http_zk_lock_session_state(s, NGX_HTTP_ZK_LOCK_CONNECTED);

    ngx_log_error(NGX_LOG_NOTICE, s->log, 0,
                  "zookeeper session is %s, timeout %M ms",
                  fresh ? "open" : "back", s->timeout);

    if (!s->gated && !s->last) {
        ngx_http_zk_lock_session_gate(s, NGX_HTTP_ZK_LOCK_OP_GATE);
    }

    s->events->connected(s->data, fresh ? &s->key : NULL);
}


void
ngx_http_zk_lock_session_suspended_handler(ngx_http_zk_lock_session_t *s)
{
    s->late = 0;

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

    *s->alive = ngx_http_zk_lock_now() - 1;

    if (s->kept) {

        /*
         * A server refuses the identity, but has not ended the session: with
         * all that was made through it, it is there until it has expired.
         */

        ngx_http_zk_lock_session_state(s, NGX_HTTP_ZK_LOCK_BACKOFF);
        return;
    }

    s->key.id = 0;

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

        if (s->kept) {

            /* nobody asks for it meanwhile; and ZooKeeper counts by ticks */

            if (now - s->asked >= 2 * s->timeout) {
                s->kept = 0;
                ngx_post_event(&s->over, &ngx_posted_events);
            }

        } else if (now - s->asked >= s->backoff) {
            ngx_http_zk_lock_session_start(s);
        }

        /* fall through */

    case NGX_HTTP_ZK_LOCK_CONNECTING:
    case NGX_HTTP_ZK_LOCK_SUSPENDED:

        if (s->late) {
            ngx_http_zk_lock_session_connected_handler(s);

        } else if (s->handle != NULL
                   && !ngx_http_zk_lock_library_asked(s->handle))
        {
            s->apart = now;
        }

        if (s->state != NGX_HTTP_ZK_LOCK_CONNECTED
            && now - s->since >= NGX_HTTP_ZK_LOCK_PATIENCE)
        {
            ngx_http_zk_lock_session_out_of_reach(s);
        }

        break;

    case NGX_HTTP_ZK_LOCK_CONNECTED:
        ngx_http_zk_lock_session_watchdog(s, now);
        break;
    }

    ngx_http_zk_lock_session_arm(s);
}
