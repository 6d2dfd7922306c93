
/*
 * The session's pulse: whether ZooKeeper is heard, and what is done if not.
 *
 * Somebody has to ask for something now and then, or nothing is heard of a
 * session that nobody uses: a third of its timeout is the heartbeat.  What is
 * under way is looked at more often.  An answer that is overdue is first asked
 * for once more; then those who wait are told that ZooKeeper is out of reach;
 * and what the library never answers ends the session at last.
 *
 * Everything here runs on the event loop.
 */


#include "ngx_http_zk_lock_flight.h"


/* a server can leave a lone request unanswered: a nudge helps (milliseconds) */
#define NGX_HTTP_ZK_LOCK_NUDGE        200

/* an answer that is not older shows that the server is there, milliseconds */
#define NGX_HTTP_ZK_LOCK_PROMPT       2000

#define NGX_HTTP_ZK_LOCK_TICK         100


static void ngx_http_zk_lock_session_ask(ngx_http_zk_lock_session_t *s);


static ngx_str_t  ngx_http_zk_lock_top = ngx_string("/");


ngx_uint_t
ngx_http_zk_lock_session_reachable(ngx_http_zk_lock_session_t *s)
{
    return !s->unreachable;
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


ngx_msec_t
ngx_http_zk_lock_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (ngx_msec_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


void
ngx_http_zk_lock_session_watchdog(ngx_http_zk_lock_session_t *s,
    ngx_msec_t now)
{
    ngx_msec_t                  silence;
    ngx_queue_t                *q;
    ngx_http_zk_lock_flight_t  *flight;

    if (ngx_queue_empty(&s->flights)) {
        s->doubts = 0;

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


void
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
