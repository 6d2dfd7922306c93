
/*
 * Many names, each used once in a pass.
 *
 * A pass is a line of stdin, "FIRST COUNT": the locks NAME-FIRST and so on are
 * acquired and released, each by whichever client comes to it, until all of
 * them had their turn.  A pass is answered with one JSON object in one line, so
 * that who asks can look at other counters in between.  Passes of the same
 * names are the same work for a server that has forgotten nothing, and other
 * work for one that keeps what it needs.
 */


#define _GNU_SOURCE

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "handover.h"


#define EVENTS          256

/* a pass in which nobody gets an answer for so long is given up */
#define SILENCE_MS      30000


static void names_pass(void);
static void names_step(step_e step);
static void names_take(conn_t *c);
static void names_next(conn_t *c);
static void names_report(uint64_t ns);


static conn_t       *conns;
static int           epoll;
static int           nbusy;

static long          next, end;         /* of the names of a pass */
static uint64_t      ndone;
static histogram_t   cycles, acquires;


void
names_loop(void)
{
    long      first, count;
    uint64_t  began;

    conns = conns_open(&epoll);
    names_step(OPENING);

    while (scanf("%ld %ld", &first, &count) == 2) {
        next = first;
        end = first + count;
        ndone = 0;
        cycles = (histogram_t) { .n = 0 };
        acquires = (histogram_t) { .n = 0 };
        tally.wrong = 0;

        began = now_ns();
        names_pass();
        names_report(now_ns() - began);
    }

    names_step(CLOSING);
}


/* what some servers want in front of it all, and behind it */

static void
names_step(step_e step)
{
    int  i;

    if (dialect->steps[step].ask == NULL) {
        return;
    }

    for (i = 0; i < settings.clients; i++) {
        conn_ask(&conns[i], step);

        if (!conn_await(&conns[i])) {
            tally.wrong++;
        }
    }

    if (tally.wrong) {
        errno = EPROTO;
        die("a session of a client");
    }
}


static void
names_pass(void)
{
    int                 i, n;
    struct epoll_event  events[EVENTS];

    for (i = 0; i < settings.clients; i++) {
        names_next(&conns[i]);
    }

    while (nbusy > 0) {
        n = epoll_wait(epoll, events, EVENTS, SILENCE_MS);

        if (n == -1 && errno != EINTR) {
            die("epoll_wait()");
        }

        if (n == 0) {
            errno = ETIMEDOUT;
            die("a pass");
        }

        for (i = 0; i < n; i++) {
            names_take(events[i].data.ptr);
        }
    }
}


static void
names_take(conn_t *c)
{
    uint64_t  now, wrong;

    wrong = tally.wrong;

    if (!conn_take(c)) {
        return;
    }

    now = now_ns();

    if (c->holds) {
        c->client.granted = now;
        conn_ask(c, RELEASING);
        return;
    }

    if (tally.wrong == wrong) {
        ndone++;
        histogram_add(&cycles, now - c->client.began);
        histogram_add(&acquires, c->client.granted - c->client.began);
    }

    nbusy--;
    names_next(c);
}


static void
names_next(conn_t *c)
{
    if (next == end) {
        return;
    }

    snprintf(c->client.name, sizeof(c->client.name), "%s-%ld", settings.name,
             next++);

    nbusy++;
    c->client.began = now_ns();
    conn_ask(c, ACQUIRING);
}


static void
names_report(uint64_t ns)
{
    double  s;

    s = (double) ns / SECOND_NS;

    printf("{\"total\":%llu,\"seconds\":%.3f,\"per_second\":%.1f,",
           (unsigned long long) ndone, s, (double) ndone / s);

    histogram_print(&cycles, "cycle");
    putchar(',');
    histogram_print(&acquires, "acquire");

    printf(",\"wrong_answers\":%llu}\n", (unsigned long long) tally.wrong);
    fflush(stdout);
}
