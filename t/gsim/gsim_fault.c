
/*
 * Which faults happen, and when.
 *
 * Each history draws kinds faults, and how often faults come, so that some
 * histories have many faults of a kind and other histories a few of all kinds.
 * While a fault may still be felt, gsim_quiet lies ahead: then a user is
 * promised no more than an answer in the end.
 */


#define THREADED

#include <zookeeper/zookeeper.h>

#include <stdio.h>
#include <stdlib.h>

#include "gsim.h"


typedef void (*gsim_fault_pt)(void);


static void gsim_fault_event(void *data, uint64_t tag);
static void gsim_fault_vanish(void *data, uint64_t tag);
static void gsim_fault_then(void *data, uint64_t tag);
static void gsim_fault_soon(gsim_process_t *p);
static void gsim_fault_felt(int64_t us);
static void gsim_fault_stores(gsim_process_t *p, unsigned one_in);
static void gsim_fault_answer_event(void *data, uint64_t tag);
static gsim_conn_t *gsim_fault_conn(void);
static gsim_process_t *gsim_fault_process(void);
static void gsim_fault_cut(void);
static void gsim_fault_server(void);
static void gsim_fault_partition(void);
static void gsim_fault_slow(void);
static void gsim_fault_pause(void);
static void gsim_fault_minority(void);
static void gsim_fault_uneven(void);
static void gsim_fault_crash(void);
static void gsim_fault_midway(void);
static void gsim_fault_stop(void);
static void gsim_fault_stand(void);
static void gsim_fault_nap(void);
static void gsim_fault_reload(void);
static void gsim_fault_gateway(void);
static void gsim_fault_clock(void);
static void gsim_fault_reap(void);


static const gsim_fault_pt  gsim_faults[] = {
    gsim_fault_nap,                     /* faults of sessions come first */
    gsim_fault_minority,
    gsim_fault_uneven,
    gsim_fault_server,
    gsim_fault_pause,
    gsim_fault_cut,
    gsim_fault_partition,
    gsim_fault_slow,
    gsim_fault_crash,
    gsim_fault_midway,
    gsim_fault_stop,
    gsim_fault_stand,
    gsim_fault_reload,
    gsim_fault_gateway,
    gsim_fault_clock,
    gsim_fault_reap
};

#define GSIM_OF_SESSIONS    6
#define GSIM_FAULTS         (int) (sizeof(gsim_faults) / sizeof(gsim_faults[0]))


static int64_t  gsim_faults_until;
static int64_t  gsim_faults_every;
static int      gsim_drawn[sizeof(gsim_faults) / sizeof(gsim_faults[0])];
static int      gsim_ndrawn;
static int64_t  gsim_uneven_until;
static int64_t  gsim_lurking_until;
static int64_t  gsim_lack_drawn;
static int64_t  gsim_lack_until;


void
gsim_fault_clear(void)
{
    gsim_faults_until = 0;
    gsim_ndrawn = 0;
    gsim_uneven_until = 0;
    gsim_lurking_until = 0;
    gsim_lack_drawn = 0;
    gsim_lack_until = 0;
}


void
gsim_fault_reset(int64_t until)
{
    int       i, n;
    unsigned  one_in;

    gsim_faults_until = until;
    gsim_faults_every = gsim_between(200, 8000) * GSIM_MS;
    gsim_ndrawn = 0;
    if (gsim_calm) {
        gsim_at(gsim_between((gsim_now + until) / 2, until), gsim_fault_vanish,
                NULL, 0);
        return;
    }

    one_in = gsim_chance(2) ? 2 : 5;
    n = GSIM_FAULTS;

    if (gsim_chance(5) || gsim_about_sessions) {

        /* only faults about how long sessions live */

        one_in = 2;
        n = GSIM_OF_SESSIONS;
        gsim_faults_every = gsim_between(200, 1500) * GSIM_MS;
    }

    for (i = 0; i < n; i++) {
        if (gsim_chance(one_in)) {
            gsim_drawn[gsim_ndrawn++] = i;
        }
    }

    if (gsim_ndrawn != 0) {
        gsim_at(gsim_now + GSIM_S, gsim_fault_event, NULL, 0);
    }
}


static void
gsim_fault_event(void *data, uint64_t tag)
{
    (void) data;
    (void) tag;

    if (gsim_now >= gsim_faults_until) {
        return;
    }

    gsim_faults[gsim_drawn[gsim_below(gsim_ndrawn)]]();

    gsim_at(gsim_now + gsim_below(2 * gsim_faults_every), gsim_fault_event,
            NULL, 0);
}


/*
 * No connection breaks but those of a gateway that dies: its sessions end, and
 * the other gateway takes over what it has left.
 */

static void
gsim_fault_vanish(void *data, uint64_t tag)
{
    (void) data;
    (void) tag;

    gsim_fault_felt(16 * GSIM_S);
    gsim_gateway_vanish(&gsim_gateways[GSIM_GATEWAYS - 1]);
}


/* The gateway of a worker that has died ends or reloads, too. */

static void
gsim_fault_then(void *data, uint64_t tag)
{
    gsim_gateway_t *g = data;

    if (gsim_now >= gsim_faults_until || !g->up || g->stops || g->life != tag) {
        return;
    }

    gsim_fault_felt(6 * GSIM_S);

    switch (gsim_below(4)) {

    case 0:
        gsim_gateway_reload(g);
        break;

    case 1:
        gsim_gateway_terminate(g);
        break;

    default:
        gsim_gateway_quit(g);
        break;
    }
}


static void
gsim_fault_soon(gsim_process_t *p)
{
    if (gsim_chance(3)) {
        gsim_at(gsim_now + gsim_below(gsim_chance(2) ? 20 * GSIM_MS
                                                     : 2 * GSIM_S),
                gsim_fault_then, p->gateway, p->gateway->life);
    }
}


static void
gsim_fault_felt(int64_t us)
{
    if (gsim_quiet < gsim_now + us) {
        gsim_quiet = gsim_now + us;
    }
}


/* Ends all faults; a process that stands still goes on by itself. */

void
gsim_fault_heal(void)
{
    gsim_conn_t     *conn;
    gsim_process_t  *p;

    gsim_say("all is well from now on");

    for (p = gsim_processes; p != NULL; p = p->next) {
        p->down[0] = 0;
        p->down[1] = 0;
        p->fate_in = 0;
        p->lurks = 0;
    }

    gsim_uneven_until = 0;
    gsim_lurking_until = 0;
    gsim_ensemble_heal();

    for (conn = gsim_server_conns(); conn != NULL; conn = conn->next) {
        conn->lag = gsim_between(20, 2000);
        conn->latency = gsim_between(50, 800);
    }

    gsim_fault_felt(8 * GSIM_S);
}


void
gsim_fault_answer(gsim_process_t *p, int64_t us)
{
    if (gsim_now < gsim_faults_until && gsim_ndrawn != 0) {
        gsim_fault_felt(2 * GSIM_S);
        gsim_at(gsim_now + gsim_between(100, us), gsim_fault_answer_event, p,
                0);
    }
}


static void
gsim_fault_answer_event(void *data, uint64_t tag)
{
    gsim_process_t *p = data;

    (void) tag;

    if (p->state == GSIM_DEAD || p->stopped > gsim_now) {
        return;
    }

    gsim_say("fault: answers of process %d are lost", (int) p->pid);
    gsim_count.cuts++;

    gsim_client_break_process(p);
}


static gsim_conn_t *
gsim_fault_conn(void)
{
    int           n;
    gsim_conn_t  *conn;

    for (n = 0, conn = gsim_server_conns(); conn; conn = conn->next) {
        n++;
    }

    if (n == 0) {
        return NULL;
    }

    n = (int) gsim_below(n);

    for (conn = gsim_server_conns(); n != 0; n--) {
        conn = conn->next;
    }

    return (conn->cut || conn->moved) ? NULL : conn;
}


/* A worker that is alive, or NULL. */

static gsim_process_t *
gsim_fault_process(void)
{
    int              n;
    gsim_process_t  *p, *found;

    n = 0;
    found = NULL;

    for (p = gsim_processes; p != NULL; p = p->next) {
        if (p->state == GSIM_RUNS || p->state == GSIM_LEAVES) {
            if (gsim_below(++n) == 0) {
                found = p;
            }
        }
    }

    return found;
}


static void
gsim_fault_cut(void)
{
    gsim_conn_t  *conn;

    conn = gsim_fault_conn();

    if (conn == NULL || conn->process->stopped > gsim_now) {
        return;
    }

    gsim_say("fault: a connection of process %d breaks",
             (int) conn->process->pid);
    gsim_count.cuts++;
    gsim_fault_felt(2 * GSIM_S);

    gsim_client_break(conn, ZCONNECTIONLOSS);
}


static void
gsim_fault_server(void)
{
    gsim_conn_t  *conn;

    conn = gsim_fault_conn();

    if (conn == NULL || conn->process->stopped > gsim_now) {
        return;
    }

    gsim_say("fault: the server of process %d fails",
             (int) conn->process->pid);
    gsim_count.cuts++;
    gsim_fault_felt(6 * GSIM_S);

    gsim_member_fail(conn->member);
}


static void
gsim_fault_partition(void)
{
    int64_t          us;
    unsigned         ways;
    gsim_process_t  *p;

    p = gsim_fault_process();
    if (p == NULL) {
        return;
    }

    us = gsim_between(50, gsim_chance(2) ? 1500 : 9000) * GSIM_MS;
    ways = 1 + (unsigned) gsim_below(3);

    gsim_say("fault: no packets of process %d for %d ms, ways %u",
             (int) p->pid, (int) (us / GSIM_MS), ways);
    gsim_count.partitions++;
    gsim_fault_felt(us + 4 * GSIM_S);

    if (ways & 1) {
        p->down[0] = gsim_now + us;
    }

    if (ways & 2) {
        p->down[1] = gsim_now + us;
    }
}


static void
gsim_fault_slow(void)
{
    gsim_conn_t  *conn;

    conn = gsim_fault_conn();
    if (conn == NULL) {
        return;
    }

    if (gsim_chance(2)) {
        conn->lag = gsim_between(5, 400) * GSIM_MS;

    } else {
        conn->latency = gsim_between(5, 300) * GSIM_MS;
    }

    gsim_say("fault: process %d has a slow server, lag %d ms, latency %d ms",
             (int) conn->process->pid, (int) (conn->lag / GSIM_MS),
             (int) (conn->latency / GSIM_MS));
    gsim_count.slow++;

    /* until all is well, or the process gets another server */

    gsim_fault_felt(gsim_faults_until - gsim_now + GSIM_S);
}


static void
gsim_fault_crash(void)
{
    gsim_process_t  *p;

    p = gsim_fault_process();
    if (p == NULL) {
        return;
    }

    gsim_count.crashes++;
    gsim_fault_felt(3 * GSIM_S);
    gsim_fault_soon(p);

    gsim_process_kill(p);
}


static void
gsim_fault_midway(void)
{
    gsim_process_t  *p;

    p = gsim_fault_process();
    if (p == NULL) {
        return;
    }

    gsim_say("fault: process %d will die in a turn", (int) p->pid);
    gsim_count.crashes++;
    gsim_fault_felt(4 * GSIM_S);

    p->fate_in = (unsigned) gsim_between(1, 40);
    p->fate = 0;
    gsim_fault_stores(p, 2);
    gsim_fault_soon(p);
}


/* Whether calls or stores are counted; half of the stores in few words. */

static void
gsim_fault_stores(gsim_process_t *p, unsigned one_in)
{
    p->stores = gsim_chance(one_in);

    if (p->stores && gsim_chance(2)) {
        p->stores = 2;
        p->fate_in = (unsigned) gsim_between(1, 10);
    }
}


void
gsim_fault_store(gsim_process_t *p, unsigned stores)
{
    if (gsim_now >= gsim_faults_until || p->fate_in != 0) {
        return;
    }

    gsim_say("fault: process %d will die before a store", (int) p->pid);
    gsim_count.crashes++;
    gsim_fault_felt(4 * GSIM_S);

    p->fate_in = (unsigned) gsim_between(1, stores);
    p->fate = 0;
    p->stores = 1;
}


static void
gsim_fault_stop(void)
{
    int64_t          us;
    gsim_process_t  *p;

    p = gsim_fault_process();
    if (p == NULL || p->in_turn) {
        return;
    }

    us = gsim_between(10, gsim_chance(2) ? 500 : 10000) * GSIM_MS;

    gsim_say("fault: process %d stands still for %d ms", (int) p->pid,
             (int) (us / GSIM_MS));
    gsim_count.stops++;
    gsim_fault_felt(us + 4 * GSIM_S);

    gsim_process_stop(p, us);
}


static void
gsim_fault_stand(void)
{
    gsim_process_t  *p;

    p = gsim_fault_process();
    if (p == NULL) {
        return;
    }

    if (gsim_chance(2)) {
        gsim_lurking_until = gsim_now + gsim_between(2, 10) * GSIM_S;
        return;
    }

    p->fate = gsim_between(1, gsim_chance(2) ? 300 : 9000) * GSIM_MS;
    p->fate_in = (unsigned) gsim_between(1, 40);
    gsim_fault_stores(p, 3);

    gsim_fault_felt(p->fate + 4 * GSIM_S);
}


void
gsim_fault_lurk(gsim_process_t *p)
{
    if (gsim_now < gsim_lurking_until && gsim_chance(4)) {
        p->lurks = (unsigned) gsim_between(1, 6);
    }
}


/*
 * A worker sleeps until the session may end, or its event loop stands still for
 * so long while libzookeeper's threads go on; perhaps the server that last
 * heard of the session fails meanwhile, or only the connection breaks.  The
 * latter begins as soon as a request is under way, so that the event loop reads
 * an answer after libzookeeper has come to another server.
 */

static void
gsim_fault_nap(void)
{
    int64_t          us;
    ngx_msec_int_t   left;
    gsim_process_t  *p;

    p = gsim_fault_process();

    if (p == NULL || p->in_turn || p->worker == NULL || gsim_stands(p)) {
        return;
    }

    left = (ngx_msec_int_t)
           (p->worker->zone->own->alive
            - (ngx_msec_t) (gsim_now / GSIM_MS));

    us = left * GSIM_MS - gsim_between(gsim_chance(4) ? -300 : 0,
                                       gsim_chance(2) ? 20 : 300) * GSIM_MS;

    if (us <= 0) {
        return;
    }

    gsim_say("fault: process %d naps for %d ms", (int) p->pid,
             (int) (us / GSIM_MS));
    gsim_count.naps++;
    gsim_fault_felt(us + 6 * GSIM_S);

    if (gsim_chance(2)) {

        if (gsim_chance(2)) {
            p->dozes = gsim_between(1, (int64_t) p->gateway->conf.timeout
                                       * GSIM_MS / 3);
            return;
        }

        p->still = gsim_now + us;

    } else {
        p->stopped = gsim_now + us;
    }

    if (gsim_chance(4)) {
        return;
    }

    /* the server's report to the leader is lost */

    gsim_client_fail_server(p);
}


void
gsim_fault_doze(gsim_process_t *p)
{
    int64_t  us;

    us = p->dozes;
    p->dozes = 0;

    if (us == 0 || gsim_now >= gsim_faults_until) {
        return;
    }

    gsim_say("fault: the event loop of process %d stands still for %d ms",
             (int) p->pid, (int) (us / GSIM_MS));
    gsim_fault_felt(us + 6 * GSIM_S);

    p->hunted = 1;
    p->still = gsim_now + us;

    gsim_at(gsim_now + 5 * GSIM_MS + gsim_below(us) / 4,
            gsim_fault_answer_event, p, 0);
}


int64_t
gsim_fault_lag(void)
{
    return gsim_between(1000, gsim_now < gsim_faults_until ? 60 * GSIM_MS
                                                           : 2000);
}


/* A server stands still, and goes on. */

static void
gsim_fault_pause(void)
{
    int64_t         us;
    gsim_member_t  *m;

    m = gsim_chance(2) ? gsim_ensemble_leader() : gsim_ensemble_pick();

    if (m == NULL) {
        return;
    }

    us = gsim_between(50, gsim_chance(2) ? 1000 : 7000) * GSIM_MS;

    gsim_say("fault: a server stands still for %d ms", (int) (us / GSIM_MS));
    gsim_count.pauses++;
    gsim_fault_felt(us + 6 * GSIM_S);

    gsim_member_pause(m, us);
}


/*
 * A server is cut off, with all clients, from the other servers: now, or while
 * the report of a session to the leader is on the way.
 */

static void
gsim_fault_minority(void)
{
    gsim_conn_t    *conn;
    gsim_member_t  *m;

    conn = gsim_chance(2) ? gsim_fault_conn() : NULL;

    if (conn != NULL && gsim_member_hunt(conn->member, conn->session)) {
        return;
    }

    m = gsim_chance(2) ? gsim_ensemble_leader() : gsim_ensemble_pick();

    if (m != NULL) {
        gsim_fault_cut_off(m);
    }
}


void
gsim_fault_cut_off(gsim_member_t *m)
{
    int64_t  us;

    /* a hunt may find its prey when all is well */

    if (gsim_now >= gsim_faults_until) {
        return;
    }

    us = gsim_member_cut_off(m);

    if (us == 0) {
        return;
    }

    gsim_say("fault: a server is cut off for %d ms", (int) (us / GSIM_MS));
    gsim_count.minorities++;
    gsim_fault_felt(us + 8 * GSIM_S);
}


/* Single messages are slow: between the servers, and to and from clients. */

static void
gsim_fault_uneven(void)
{
    int64_t  us;

    us = gsim_between(100, gsim_chance(2) ? 1000 : 9000) * GSIM_MS;

    gsim_say("fault: single messages are slow for %d ms", (int) (us / GSIM_MS));
    gsim_count.uneven++;
    gsim_fault_felt(us + 6 * GSIM_S);

    gsim_uneven_until = gsim_now + us;
}


int64_t
gsim_fault_slow_one(void)
{
    if (gsim_now >= gsim_uneven_until || !gsim_chance(16)) {
        return 0;
    }

    return gsim_between(1, gsim_chance(2) ? 100 : 800) * GSIM_MS;
}


static void
gsim_fault_reload(void)
{
    gsim_gateway_t  *g;

    g = &gsim_gateways[gsim_below(GSIM_GATEWAYS)];

    if (g->up && !g->stops) {
        gsim_fault_felt(3 * GSIM_S);
        gsim_gateway_reload(g);
    }
}


static void
gsim_fault_gateway(void)
{
    gsim_gateway_t  *g;

    g = &gsim_gateways[gsim_below(GSIM_GATEWAYS)];

    if (!g->up) {
        return;
    }

    gsim_fault_felt(4 * GSIM_S);

    switch (gsim_below(3)) {

    case 0:
        gsim_gateway_kill(g);
        break;

    case 1:
        gsim_gateway_terminate(g);
        break;

    default:
        gsim_gateway_quit(g);
        break;
    }
}


static void
gsim_fault_clock(void)
{
    gsim_wall += gsim_between(-100000, 100000) * GSIM_S;
    gsim_count.jumps++;
}


static void
gsim_fault_reap(void)
{
    gsim_count.reaped += (uint64_t) gsim_tree_reap();
    gsim_server_spread();
}


/*
 * A single allocation fails now and then; and for up to a second most of the
 * allocations of all processes do.
 */

int
gsim_fault_lacks(void)
{
    gsim_process_t  *p;

    p = gsim_current;

    if (!gsim_lacks || p == NULL || p->worker == NULL || !p->in_turn
        || gsim_now >= gsim_faults_until)
    {
        return 0;
    }

    if (gsim_now >= gsim_lack_drawn + 500 * GSIM_MS) {
        gsim_lack_drawn = gsim_now;

        if (gsim_chance(4)) {
            gsim_lack_until = gsim_now + gsim_between(1, gsim_chance(2) ? 30
                                                         : 1000) * GSIM_MS;
        }
    }

    if (gsim_now < gsim_lack_until ? gsim_chance(3) : !gsim_chance(300)) {
        return 0;
    }

    gsim_say("fault: process %d gets no memory", (int) p->pid);
    gsim_fault_felt(4 * GSIM_S);

    return 1;
}
