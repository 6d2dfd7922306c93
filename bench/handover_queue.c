
/*
 * A standing queue: a closed loop of many clients on one lock.
 *
 * Each client waits in line, releases as soon as it is granted, and is in line
 * again as soon as its release was answered, so the queue is always about as
 * long as there are clients.  With epoll an answer costs the same, however many
 * others wait.
 *
 * First all of them ask.  Then a line is read from stdin; until it comes, the
 * first of them holds, so that it can be seen from outside when all are in
 * line.  After the warm-up "begin" is printed, and "end" when the time is over,
 * for whoever wants to read other counters then.  Who is in line at the end is
 * served, and no claim is left.
 */


#define _GNU_SOURCE

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "handover.h"


#define EVENTS          256

/* what is in line at the end has so long to be served */
#define DRAIN_NS        60000000000ull


static void queue_open(void);
static void queue_acquire(conn_t *c);
static void queue_serve(uint64_t until);
static void queue_take(conn_t *c);
static void queue_phase(uint64_t now);


static conn_t    *conns;
static int        epoll;
static int        nbusy;            /* in line, holding or releasing */
static uint64_t   count_from, count_until;

static enum { BEFORE, WITHIN, AFTER }  phase;


void
queue_loop(void)
{
    int       c;
    uint64_t  now;

    queue_open();

    do {
        c = getchar();
    } while (c != '\n' && c != EOF);

    now = now_ns();
    count_from = now + (uint64_t) (settings.warm_up * SECOND_NS);
    count_until = count_from + (uint64_t) (settings.seconds * SECOND_NS);

    queue_serve(count_until + DRAIN_NS);

    tally.stuck = nbusy;
}


/* all join the line at once */

static void
queue_open(void)
{
    int  i;

    conns = conns_open(&epoll);

    for (i = 0; i < settings.clients; i++) {
        queue_acquire(&conns[i]);
        nbusy++;
    }
}


/* whoever is at the end of a long queue waits for long */

static void
queue_acquire(conn_t *c)
{
    int   len;
    char  text[REQUEST_MAX];

    len = snprintf(text, sizeof(text), "POST /locks/%s?wait=1h HTTP/1.1\r\n"
                   "Host: localhost\r\n\r\n", settings.name);

    conn_ask_as(c, ACQUIRING, text, len);
}


static void
queue_serve(uint64_t until)
{
    int                 i, n;
    uint64_t            now;
    struct epoll_event  events[EVENTS];

    for (now = now_ns(); nbusy > 0 && now < until; now = now_ns()) {
        queue_phase(now);

        n = epoll_wait(epoll, events, EVENTS, 10);

        if (n == -1 && errno != EINTR) {
            die("epoll_wait()");
        }

        for (i = 0; i < n; i++) {
            queue_take(events[i].data.ptr);
        }
    }

    queue_phase(now);
}


static void
queue_take(conn_t *c)
{
    uint64_t  now;

    if (!conn_take(c)) {
        return;
    }

    if (c->holds) {
        now = now_ns();

        if (tally.released >= count_from && now < count_until) {
            histogram_add(&tally.grants, now - tally.released);
        }

        conn_ask(c, RELEASING);
        return;
    }

    if (phase == AFTER) {
        nbusy--;

    } else {
        queue_acquire(c);
    }
}


static void
queue_phase(uint64_t now)
{
    if (phase == BEFORE && now >= count_from) {
        phase = WITHIN;
        puts("begin");
        fflush(stdout);
    }

    if (phase == WITHIN && now >= count_until) {
        phase = AFTER;
        puts("end");
        fflush(stdout);
    }
}
