
/*
 * The servers: which server leads, which sessions each server has heard of, and
 * what becomes of a server that is cut off, fails, or stands still.
 *
 * A server has three states:
 *
 *   QUORUM  the leader, or a follower that the leader hears
 *   ALONE   cut off from the other servers, not noticed so far
 *   DOWN    takes no connections
 *
 * With the answer to the leader's ping, each half of a tick, a follower reports
 * the sessions that were heard of; what has not come to the leader is lost when
 * the follower fails or is cut off.  The leader counts a session's timeout from
 * the report, rounded up to a tick.  The writes that a follower passes on do
 * not count; a new session, and a session that comes back, do.  A leader that
 * was elected gives each session the whole timeout anew.
 *
 * Between a follower and the leader there is a connection: pings and commits
 * come in order, and so do reports and writes, each of which may be slow.  A
 * server's clock is up to a twentieth faster or slower than the gateways'.
 *
 * A server that is alone answers pings, and reads from the state at the
 * cut-off; a former leader answers a sync, too, until a write has come, and
 * takes back the sessions of that time.  A server that is alone commits no
 * write.  After some ticks the server notices, and closes all connections.
 *
 * See Leader.lead(), LearnerHandler.run(), Learner.ping(), ExpiryQueue and
 * LeaderZooKeeperServer in ZooKeeper's sources.
 */


#include <stdio.h>
#include <stdlib.h>

#include "gsim.h"


typedef struct gsim_touch_s  gsim_touch_t;

/* a session that a follower has heard of since the last report to the leader */

struct gsim_touch_s {
    gsim_touch_t                *next;
    gsim_session_t              *session;
};


typedef struct {
    gsim_member_t               *member;
    uint64_t                     tag;           /* of the member */
    gsim_touch_t                *touches;
} gsim_report_t;


struct gsim_member_s {
    int                          index;
    int64_t                      pace;          /* real time for a thousandth of
                                                   the clock's */
    int64_t                      sent;          /* to the leader: when the last
                                                   message arrives */
    int64_t                      pinged;        /* when the last ping arrives */
    int64_t                      ahead;         /* zxid before that ping */
    gsim_member_e                state;
    int64_t                      since;         /* of the state */
    int64_t                      paused;        /* stands still until then */
    int64_t                      frozen;        /* ALONE, led: last zxid */
    gsim_touch_t                *touches;
    uint64_t                     tag;           /* of the event to come */
    gsim_session_t              *prey;          /* see gsim_member_hunt() */
    unsigned                     untold:1;      /* is to be cut off before the
                                                   next report arrives */
    unsigned                     led:1;         /* ALONE: was the leader */
    unsigned                     proposed:1;    /* ALONE: a write came */
};


static gsim_member_t   gsim_members[GSIM_MEMBERS];
static int             gsim_nmembers;
static gsim_member_t  *gsim_leader;     /* NULL: no leader */
static int64_t         gsim_tick;
static uint64_t        gsim_reign;      /* counts the leaders' loops */
static int64_t         gsim_phase;      /* of the leader's ticks */


static void gsim_ensemble_loop(void *data, uint64_t tag);
static void gsim_ensemble_pinged(void *data, uint64_t tag);
static void gsim_ensemble_report(gsim_member_t *m);
static void gsim_ensemble_reported(void *data, uint64_t tag);
static void gsim_member_hunted(gsim_member_t *m);
static void gsim_member_untold_event(void *data, uint64_t tag);
static int64_t gsim_ensemble_time(int64_t us);
static void gsim_member_state(gsim_member_t *m, gsim_member_e state);
static void gsim_member_down(gsim_member_t *m, int64_t us);
static void gsim_member_down_event(void *data, uint64_t tag);
static void gsim_member_up_event(void *data, uint64_t tag);
static void gsim_ensemble_elect(void);
static void gsim_ensemble_elect_event(void *data, uint64_t tag);
static void gsim_ensemble_leaderless(gsim_member_t *old, int slowly);


void
gsim_ensemble_reset(void)
{
    int  i;

    memset(gsim_members, 0, sizeof(gsim_members));

    gsim_nmembers = gsim_chance(8) ? 1 : GSIM_MEMBERS;

    for (i = 0; i < GSIM_MEMBERS; i++) {
        gsim_members[i].index = i;
        gsim_members[i].pace = gsim_chance(2) ? 1000
                               : gsim_chance(2) ? gsim_between(955, 1045)
                               : gsim_chance(2) ? 955 : 1045;
    }

    gsim_leader = &gsim_members[gsim_below(gsim_nmembers)];
    gsim_phase = gsim_below(10 * GSIM_S);
}


/* least: the shortest session timeout; a tick is at most half of that */

void
gsim_ensemble_start(int64_t least)
{
    gsim_tick = gsim_chance(3) ? least / 2
                               : gsim_between(least / 8, least / 2);

    gsim_reign = 0;

    gsim_at(gsim_now + gsim_tick / 2, gsim_ensemble_loop, NULL, gsim_reign);
}


/*
 * The leader's loop: a ping for each follower.  A follower that stands still
 * reads the ping when the follower goes on, ahead of all later messages.  A
 * leader that stood still pings at once when it goes on, and the commit of a
 * write takes a round trip more (see zkl_session_committed()).
 */

static void
gsim_ensemble_loop(void *data, uint64_t tag)
{
    int             i;
    gsim_member_t  *m;

    (void) data;

    if (tag != gsim_reign) {

        /* another server leads, and has a separate loop */

        return;
    }

    if (gsim_leader != NULL && gsim_leader->paused > gsim_now) {
        gsim_at(gsim_leader->paused + gsim_below(20), gsim_ensemble_loop,
                NULL, tag);
        return;
    }

    for (i = 0; i < gsim_nmembers && gsim_leader != NULL; i++) {
        m = &gsim_members[i];

        if (m == gsim_leader || m->state != GSIM_QUORUM) {
            continue;
        }

        if (m->pinged <= gsim_now) {
            m->ahead = gsim_zxid;
        }

        m->pinged = ngx_max(m->pinged, gsim_now + gsim_fault_slow_one()) + 1;

        gsim_at(m->pinged, gsim_ensemble_pinged, m, m->tag);
    }

    /* the loop sleeps for half of a tick, and a moment */

    gsim_at(gsim_now + gsim_ensemble_time(gsim_tick / 2)
            + gsim_between(50, 1500), gsim_ensemble_loop, NULL, tag);
}


static void
gsim_ensemble_pinged(void *data, uint64_t tag)
{
    gsim_member_t *m = data;

    if (tag != m->tag) {
        return;
    }

    if (m->paused > gsim_now) {
        gsim_at(m->paused, gsim_ensemble_pinged, m, tag);
        return;
    }

    gsim_ensemble_report(m);
}


static void
gsim_ensemble_report(gsim_member_t *m)
{
    int64_t         at;
    gsim_report_t  *report;

    if (m->state != GSIM_QUORUM || m->touches == NULL) {
        return;
    }

    report = gsim_alloc(sizeof(gsim_report_t));

    report->member = m;
    report->tag = m->tag;
    report->touches = m->touches;

    m->touches = NULL;

    at = gsim_member_send(m);

    if (m->untold) {
        m->untold = 0;
        gsim_at(gsim_between(gsim_now, at - 1), gsim_member_untold_event, m,
                m->tag);
    }

    gsim_at(at, gsim_ensemble_reported, report, 0);
}


static void
gsim_ensemble_reported(void *data, uint64_t tag)
{
    gsim_touch_t   *touch;
    gsim_report_t  *report = data;

    (void) tag;

    if (report->tag != report->member->tag) {
        return;
    }

    if (gsim_ensemble_paused() > gsim_now) {

        /* in front of the writes that came behind */

        gsim_at(gsim_ensemble_paused() + gsim_below(20),
                gsim_ensemble_reported, report, 0);
        return;
    }

    for (touch = report->touches; touch != NULL; touch = touch->next) {
        gsim_server_touch(touch->session);
    }
}


/* When a message that m sends to the leader now arrives, behind all before. */

int64_t
gsim_member_send(gsim_member_t *m)
{
    int64_t  at;

    at = gsim_now + gsim_between(20, 600);

    if (m != gsim_leader) {
        at += gsim_fault_slow_one();
        m->sent = ngx_max(m->sent + 1, at);
        at = m->sent;
    }

    return at;
}


/* How far m may have come: no commit arrives ahead of a ping before it. */

int64_t
gsim_member_ahead(gsim_member_t *m)
{
    return m->pinged > gsim_now ? m->ahead : GSIM_NEVER;
}


int64_t
gsim_member_pinged(gsim_member_t *m)
{
    return m->pinged;
}


void
gsim_member_heard(gsim_member_t *m, gsim_session_t *session)
{
    gsim_touch_t  *touch;

    if (m == gsim_leader) {
        gsim_server_touch(session);
        return;
    }

    if (m->prey == session) {
        gsim_member_hunted(m);
    }

    for (touch = m->touches; touch != NULL; touch = touch->next) {
        if (touch->session == session) {
            return;
        }
    }

    touch = gsim_alloc(sizeof(gsim_touch_t));

    touch->session = session;
    touch->next = m->touches;
    m->touches = touch;
}


int64_t
gsim_ensemble_deadline(int64_t timeout)
{
    int64_t  at, tick;

    tick = gsim_ensemble_time(gsim_tick);
    at = gsim_now + gsim_ensemble_time(timeout);

    if (gsim_chance(4)) {

        /* the tick ends just then */

        return at + 1;
    }

    at += gsim_phase;

    return (at / tick + 1) * tick - gsim_phase;
}


/* Real time, for a time by the leader's clock. */

static int64_t
gsim_ensemble_time(int64_t us)
{
    return gsim_leader != NULL ? us * gsim_leader->pace / 1000 : us;
}


gsim_member_t *
gsim_ensemble_pick(void)
{
    return &gsim_members[gsim_below(gsim_nmembers)];
}


gsim_takes_e
gsim_member_takes(gsim_member_t *m, int64_t id, int64_t seen)
{
    gsim_session_t  *session;

    if (m->state == GSIM_DOWN) {
        return GSIM_REFUSES;
    }

    if (m->paused > gsim_now) {
        return GSIM_HANGS;
    }

    if (m->state == GSIM_QUORUM) {
        return (gsim_leader != NULL && gsim_leader->paused <= gsim_now)
               ? GSIM_TAKES : GSIM_HANGS;
    }

    /* a former leader knows the sessions of that time without the quorum */

    session = gsim_server_session(id);

    return (m->led && session != NULL && session->made < m->since
            && (!session->over || session->ended > m->since)
            && seen <= m->frozen)
           ? GSIM_TAKES : GSIM_HANGS;
}


gsim_member_e
gsim_member_is(gsim_member_t *m)
{
    return m->state;
}


int64_t
gsim_member_frozen(gsim_member_t *m)
{
    return m->frozen;
}


int64_t
gsim_member_since(gsim_member_t *m)
{
    return m->since;
}


int64_t
gsim_member_paused(gsim_member_t *m)
{
    return m->paused;
}


int64_t
gsim_ensemble_paused(void)
{
    if (gsim_leader == NULL) {
        return gsim_now + 20 * GSIM_MS;
    }

    return gsim_leader->paused;
}


int
gsim_member_syncs(gsim_member_t *m)
{
    return m->led && !m->proposed;
}


void
gsim_member_propose(gsim_member_t *m)
{
    m->proposed = 1;
}


/* states */

static void
gsim_member_state(gsim_member_t *m, gsim_member_e state)
{
    static char  *names[] = { "in the quorum", "alone", "down" };

    gsim_say("zk: server %d is %s", m->index, names[state]);

    m->state = state;
    m->since = gsim_now;
    m->tag++;
    m->sent = 0;
    m->pinged = 0;
    m->untold = 0;
    m->prey = NULL;

    if (state != GSIM_QUORUM) {
        m->touches = NULL;
    }

    if (state != GSIM_ALONE) {
        m->led = 0;
        m->proposed = 0;
    }
}


/* The server closes all connections, and is back after a while. */

static void
gsim_member_down(gsim_member_t *m, int64_t us)
{
    gsim_member_state(m, GSIM_DOWN);
    gsim_server_down(m);

    gsim_at(gsim_now + us, gsim_member_up_event, m, m->tag);
}


static void
gsim_member_down_event(void *data, uint64_t tag)
{
    gsim_member_t *m = data;

    if (tag != m->tag) {
        return;
    }

    if (m->paused > gsim_now) {
        gsim_at(m->paused + gsim_below(300 * GSIM_MS), gsim_member_down_event,
                m, tag);
        return;
    }

    gsim_member_down(m, gsim_between(50, 2000) * GSIM_MS);
}


static void
gsim_member_up_event(void *data, uint64_t tag)
{
    gsim_member_t *m = data;

    if (tag != m->tag) {
        return;
    }

    if (gsim_leader == NULL) {
        gsim_at(gsim_now + 20 * GSIM_MS, gsim_member_up_event, m, tag);
        return;
    }

    gsim_member_state(m, GSIM_QUORUM);
}


static void
gsim_ensemble_elect_event(void *data, uint64_t tag)
{
    (void) data;
    (void) tag;

    if (gsim_leader == NULL) {
        gsim_ensemble_elect();
    }
}


/* Elects any of the servers that are DOWN, once a majority is DOWN. */

static void
gsim_ensemble_elect(void)
{
    int             i, n;
    gsim_member_t  *m;

    for (n = 0, i = 0; i < gsim_nmembers; i++) {
        m = &gsim_members[i];

        if (m->state == GSIM_DOWN && gsim_below(++n) == 0) {
            gsim_leader = m;
        }
    }

    if (n == 0 || n <= gsim_nmembers / 2) {
        gsim_leader = NULL;
        gsim_at(gsim_now + 20 * GSIM_MS, gsim_ensemble_elect_event, NULL, 0);
        return;
    }

    gsim_say("zk: server %d is elected", gsim_leader->index);
    gsim_count.elections++;

    gsim_phase = gsim_below(10 * GSIM_S);
    gsim_leader->paused = 0;
    gsim_member_state(gsim_leader, GSIM_QUORUM);

    gsim_server_elected();

    gsim_at(gsim_now + gsim_ensemble_time(gsim_tick / 2)
            + gsim_between(50, 1500), gsim_ensemble_loop, NULL, ++gsim_reign);
}


/* The other servers are without a leader, and elect another leader. */

static void
gsim_ensemble_leaderless(gsim_member_t *old, int slowly)
{
    int             i;
    int64_t         us;
    gsim_member_t  *m;

    gsim_leader = NULL;

    for (i = 0; i < gsim_nmembers; i++) {
        m = &gsim_members[i];

        if (m == old || m->state == GSIM_DOWN) {
            continue;
        }

        if (!slowly) {
            gsim_member_down(m, 20 * GSIM_MS);
            continue;
        }

        gsim_member_state(m, GSIM_ALONE);
        us = gsim_below(2 * gsim_tick);
        gsim_at(gsim_now + us, gsim_member_down_event, m, m->tag);
    }

    gsim_at(gsim_now + gsim_between(50, 1500) * GSIM_MS,
            gsim_ensemble_elect_event, NULL, 0);
}


/* faults */

int
gsim_ensemble_well(void)
{
    int  i;

    for (i = 0; i < gsim_nmembers; i++) {
        if (gsim_members[i].state != GSIM_QUORUM) {
            return 0;
        }
    }

    return gsim_leader != NULL;
}


void
gsim_member_fail(gsim_member_t *m)
{
    if (m->state != GSIM_QUORUM || !gsim_ensemble_well()) {
        return;
    }

    gsim_member_down(m, gsim_between(20, 3000) * GSIM_MS);
    m->paused = 0;

    if (m == gsim_leader) {
        gsim_ensemble_leaderless(m, 0);
    }
}


void
gsim_member_pause(gsim_member_t *m, int64_t us)
{
    m->paused = ngx_max(m->paused, gsim_now + us);
}


/* The server is cut off from the other servers, but not from clients. */

int64_t
gsim_member_cut_off(gsim_member_t *m)
{
    int64_t  us;

    if (gsim_nmembers == 1 || !gsim_ensemble_well()) {
        return 0;
    }

    us = gsim_between(gsim_tick, 10 * gsim_tick);

    gsim_member_state(m, GSIM_ALONE);
    gsim_at(gsim_now + us, gsim_member_down_event, m, m->tag);

    if (gsim_chance(4)) {
        gsim_member_pause(m, gsim_below(us));
    }

    if (m == gsim_leader) {
        m->led = 1;
        m->frozen = gsim_zxid;
        gsim_ensemble_leaderless(m, gsim_chance(2));
    }

    return us;
}


/*
 * What the leader may not hear of for longest: the ping comes just before m
 * hears of the session, and m is cut off while the next report is on the way.
 * The leader's ticks may be anywhere.
 */

int
gsim_member_hunt(gsim_member_t *m, gsim_session_t *session)
{
    if (gsim_nmembers == 1 || m == gsim_leader || m->state != GSIM_QUORUM) {
        return 0;
    }

    m->prey = session;

    return 1;
}


static void
gsim_member_hunted(gsim_member_t *m)
{
    int      i;
    int64_t  us;

    m->prey = NULL;

    if (gsim_leader == NULL || gsim_leader->paused > gsim_now
        || m->paused > gsim_now || m->pinged > gsim_now)
    {
        return;
    }

    /* the leader pings all, so that no other waits longer for the next ping */

    for (i = 0; i < gsim_nmembers; i++) {
        gsim_ensemble_report(&gsim_members[i]);
    }

    m->untold = 1;

    us = gsim_ensemble_time(gsim_tick / 2);

    gsim_at(gsim_now + us + gsim_between(50, 1500), gsim_ensemble_loop, NULL,
            ++gsim_reign);

    gsim_user_poke(us - gsim_below(us / 8));
}


static void
gsim_member_untold_event(void *data, uint64_t tag)
{
    gsim_member_t *m = data;

    if (tag == m->tag) {
        gsim_fault_cut_off(m);
    }
}


gsim_member_t *
gsim_ensemble_leader(void)
{
    return gsim_leader;
}


void
gsim_ensemble_heal(void)
{
    int             i;
    gsim_member_t  *m;

    for (i = 0; i < gsim_nmembers; i++) {
        m = &gsim_members[i];

        if (m->state == GSIM_ALONE) {
            gsim_member_down(m, 20 * GSIM_MS);
        }
    }
}


/* All servers stop at once, and serve again after a while. */

void
gsim_ensemble_restart(int64_t us)
{
    int  i;

    for (i = 0; i < gsim_nmembers; i++) {
        gsim_members[i].paused = 0;
        gsim_member_down(&gsim_members[i], us);
    }
}
