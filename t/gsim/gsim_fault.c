
/*
 * What goes wrong, and when.
 *
 * Each history draws which kinds of faults it has, and how often they come, so
 * that some histories have many of one kind and others a few of all.  While
 * a fault may still be felt, gsim_quiet lies ahead: then nobody is promised
 * more than that he is answered in the end.
 */


#define THREADED

#include <zookeeper/zookeeper.h>

#include <stdio.h>
#include <stdlib.h>

#include "gsim.h"


typedef void (*gsim_fault_pt)(void);


static void gsim_fault_event(void *data, uint64_t tag);
static void gsim_fault_felt(int64_t us);
static gsim_conn_t *gsim_fault_conn(void);
static gsim_process_t *gsim_fault_process(void);
static void gsim_fault_cut(void);
static void gsim_fault_server(void);
static void gsim_fault_partition(void);
static void gsim_fault_slow(void);
static void gsim_fault_crash(void);
static void gsim_fault_midway(void);
static void gsim_fault_stop(void);
static void gsim_fault_stand(void);
static void gsim_fault_reload(void);
static void gsim_fault_gateway(void);
static void gsim_fault_clock(void);
static void gsim_fault_reap(void);


static const gsim_fault_pt  gsim_faults[] = {
    gsim_fault_cut,
    gsim_fault_server,
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

#define GSIM_FAULTS         (int) (sizeof(gsim_faults) / sizeof(gsim_faults[0]))


static int64_t  gsim_faults_until;
static int64_t  gsim_faults_every;
static int      gsim_drawn[sizeof(gsim_faults) / sizeof(gsim_faults[0])];
static int      gsim_ndrawn;


void
gsim_fault_reset(int64_t until)
{
    int       i;
    unsigned  one_in;

    gsim_faults_until = until;
    gsim_faults_every = gsim_between(200, 8000) * GSIM_MS;
    gsim_ndrawn = 0;

    one_in = gsim_chance(2) ? 2 : 5;

    for (i = 0; i < GSIM_FAULTS; i++) {
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


static void
gsim_fault_felt(int64_t us)
{
    if (gsim_quiet < gsim_now + us) {
        gsim_quiet = gsim_now + us;
    }
}


/* All is well from now on, but for those who still stand still. */

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
    }

    for (conn = gsim_server_conns(); conn != NULL; conn = conn->next) {
        conn->lag = gsim_between(20, 2000);
        conn->latency = gsim_between(50, 800);
    }

    gsim_fault_felt(8 * GSIM_S);
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


/* One of those that are alive, or NULL. */

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
    gsim_fault_felt(2 * GSIM_S);

    gsim_server_fail(conn);
    gsim_client_break(conn, ZCONNECTIONLOSS);
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

    /* until all is well, or it gets another one */

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

    p->stopped = ngx_max(p->stopped, gsim_now + us);
}


static void
gsim_fault_stand(void)
{
    gsim_process_t  *p;

    p = gsim_fault_process();
    if (p == NULL) {
        return;
    }

    p->fate = gsim_between(1, gsim_chance(2) ? 300 : 9000) * GSIM_MS;
    p->fate_in = (unsigned) gsim_between(1, 40);

    gsim_fault_felt(p->fate + 4 * GSIM_S);
}


static void
gsim_fault_reload(void)
{
    gsim_gateway_t  *g;

    g = &gsim_gateways[gsim_below(GSIM_GATEWAYS)];

    if (g->up) {
        gsim_fault_felt(3 * GSIM_S);
        gsim_gateway_reload(g);
    }
}


static void
gsim_fault_gateway(void)
{
    gsim_gateway_t  *g;

    g = &gsim_gateways[gsim_below(GSIM_GATEWAYS)];

    if (g->up && gsim_chance(2)) {
        gsim_fault_felt(4 * GSIM_S);
        gsim_gateway_kill(g);
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
