
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


#include "ngx_http_zk_lock_flight.h"


/* a server can leave a lone request unanswered: a nudge helps (milliseconds) */
#define NGX_HTTP_ZK_LOCK_NUDGE        200

/* an answer that is not older shows that the server is there, milliseconds */
#define NGX_HTTP_ZK_LOCK_PROMPT       2000

#define NGX_HTTP_ZK_LOCK_TICK         100


static ngx_msec_t ngx_http_zk_lock_session_due(ngx_http_zk_lock_session_t *s);
static ngx_msec_t ngx_http_zk_lock_session_until(
    ngx_http_zk_lock_session_t *s, ngx_msec_t since);


static ngx_str_t  ngx_http_zk_lock_top = ngx_string("/");


ngx_uint_t
ngx_http_zk_lock_session_reachable(ngx_http_zk_lock_session_t *s)
{
    return !s->unreachable;
}


ngx_uint_t
ngx_http_zk_lock_session_ready(ngx_http_zk_lock_session_t *s)
{
    return s->state == NGX_HTTP_ZK_LOCK_CONNECTED && !s->unreachable;
}


ngx_uint_t
ngx_http_zk_lock_session_starved(ngx_http_zk_lock_session_t *s)
{
    return s->starved
           && ngx_current_msec - s->starving >= NGX_HTTP_ZK_LOCK_PATIENCE;
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

    ngx_http_zk_lock_session_barrier(s);

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


ngx_msec_t
ngx_http_zk_lock_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (ngx_msec_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


void
ngx_http_zk_lock_session_touched(ngx_http_zk_lock_session_t *s)
{
    s->touched = s->apart;
    s->proves = ngx_http_zk_lock_now();

    /* the timeout is negotiated anew with each connection */

    ngx_http_zk_lock_session_bound(s, s->apart);
}


void
ngx_http_zk_lock_session_committed(ngx_http_zk_lock_session_t *s,
    ngx_msec_t sent)
{
    ngx_msec_t  until;

    if (s->events == NULL || (ngx_msec_int_t) (sent - s->proves) < 0) {

        /* the session is about to be closed, or enough is known */

        return;
    }

    until = ngx_http_zk_lock_session_until(s, s->touched);

    if ((ngx_msec_int_t) (until - *s->alive) > 0) {
        *s->alive = until;
    }

    s->touched = sent;
    s->proves = ngx_http_zk_lock_now() + s->timeout / 4 + s->timeout / 20;
}


void
ngx_http_zk_lock_session_bound(ngx_http_zk_lock_session_t *s,
    ngx_msec_t since)
{
    ngx_msec_t  until;

    until = ngx_http_zk_lock_session_until(s, since);

    if ((ngx_msec_int_t) (*s->alive - until) > 0) {
        *s->alive = until;
    }
}


static ngx_msec_t
ngx_http_zk_lock_session_until(ngx_http_zk_lock_session_t *s,
    ngx_msec_t since)
{
    return since + s->timeout - s->timeout / 20;
}


/* When the next write is due, if none comes by itself. */

static ngx_msec_t
ngx_http_zk_lock_session_due(ngx_http_zk_lock_session_t *s)
{
    ngx_msec_t  due;

    if ((ngx_msec_int_t) (s->wrote - s->proves) >= 0) {
        return s->wrote + s->timeout / 3;
    }

    due = s->touched + s->timeout / 3;

    return ((ngx_msec_int_t) (s->proves - due) > 0) ? s->proves : due;
}


void
ngx_http_zk_lock_session_watchdog(ngx_http_zk_lock_session_t *s,
    ngx_msec_t now)
{
    ngx_msec_t                  silence;
    ngx_queue_t                *q;
    ngx_http_zk_lock_flight_t  *flight;

    if ((ngx_msec_int_t) (now - ngx_http_zk_lock_session_due(s)) >= 0) {
        ngx_http_zk_lock_session_barrier(s);
    }

    if (ngx_queue_empty(&s->flights)) {
        s->doubts = 0;
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
        ngx_http_zk_lock_session_barrier(s);
    }

    if (silence >= NGX_HTTP_ZK_LOCK_PATIENCE) {
        ngx_http_zk_lock_session_out_of_reach(s);
    }

    if (silence < 2 * s->timeout) {
        return;
    }

    /*
     * If this process stood still, so did the library: an answer may be in the
     * mailbox by now, or word that the connection broke come soon.  So only
     * ticks count that come one after the other.
     */

    if (now - s->doubted >= NGX_HTTP_ZK_LOCK_PATIENCE) {
        s->doubts = 0;
    }

    s->doubted = now;

    if (++s->doubts > s->timeout / NGX_HTTP_ZK_LOCK_TICK && !s->over.posted) {

        /* the library would have told; it must have lost an answer */

        ngx_log_error(NGX_LOG_ERR, s->log, 0,
                      "no answer from libzookeeper for %M ms, "
                      "the session is given up", silence);

        ngx_http_zk_lock_session_suspended_handler(s);
        ngx_post_event(&s->over, &ngx_posted_events);
    }
}


void
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


void
ngx_http_zk_lock_session_barrier(ngx_http_zk_lock_session_t *s)
{
    ngx_http_zk_lock_op_t  *op;

    op = ngx_http_zk_lock_op_new(s, NGX_HTTP_ZK_LOCK_OP_BARRIER,
                                 &ngx_http_zk_lock_top, NULL, NULL);
    if (op != NULL) {
        ngx_http_zk_lock_session_submit(s, op);
    }
}


void
ngx_http_zk_lock_session_arm(ngx_http_zk_lock_session_t *s)
{
    ngx_msec_int_t  period;

    period = NGX_HTTP_ZK_LOCK_TICK;

    s->tick.cancelable = ngx_queue_empty(&s->flights)
                         && ngx_queue_empty(&s->pending)
                         && ngx_queue_empty(&s->fresh);

    if (s->state == NGX_HTTP_ZK_LOCK_CONNECTED && s->tick.cancelable) {
        period = ngx_http_zk_lock_session_due(s) - ngx_http_zk_lock_now();
        period = ngx_max(period, NGX_HTTP_ZK_LOCK_TICK);
    }

    if (s->tick.timer_set
        && (ngx_msec_int_t) (s->tick.timer.key - ngx_current_msec)
           <= period)
    {
        return;
    }

    ngx_add_timer(&s->tick, period);
}
