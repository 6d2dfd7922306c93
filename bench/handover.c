
/*
 * Hand-over of a lock: how long after a release was sent has the next in line
 * read its grant?
 *
 *   handover -v local|sibling|other|etcd -p PORT [-q PORT] [-n ROUNDS]
 *            [-g MS] [-b SECONDS] [-l NAME]
 *   handover -v queue -p PORT -c CLIENTS -t SECONDS [-w SECONDS] [-l NAME]
 *   handover -v names -p PORT -c CLIENTS [-d gateway|etcd|webdis] [-l NAME]
 *
 * Two keep-alive connections to 127.0.0.1, A and B.  A holds, B asks and waits;
 * A's release is sent, and the clock runs until B's grant was read; then they
 * change roles, -n times.  "local" is two connections of one worker of a
 * gateway, "sibling" of two workers, "other" of two gateways (-p and -q), which
 * are told from each other by the header X-Worker; "etcd" is its JSON gateway,
 * with a lease for each connection.
 *
 * B has to be in line before A releases, and the time of getting there is not
 * to be measured.  So after B has asked, another lock, which nobody has, is
 * looked up over a third connection of the same worker: ZooKeeper answers a
 * session in order, so when that is answered, B's claim is there.  Then nothing
 * happens for -g milliseconds.  etcd has only these.
 *
 * A grant that is read before the release was sent is an overlap, and fencing
 * tokens have to grow.  If there is no grant within -b seconds of a release,
 * that is the end, and it is said.
 *
 * "queue" is a closed loop on one lock, see handover_queue.c, and "names" are
 * many locks, see handover_names.c.
 *
 * One thread, poll or epoll.  The result is one JSON object on stdout.
 */


#define _GNU_SOURCE

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "handover.h"


/* connections that are opened to find one of a worker */
#define TRIES           200

/* of all rounds, and in front of them: these are not counted */
#define WARM_UP         10          /* per cent */


static void parse_options(int argc, char **argv);
static int parse_option(int opt);
static int known_way(const char *way);
static void usage(void);
static void open_ways(void);
static void open_at(conn_t *c, int port, long worker, int same);
static void open_session(conn_t *c);
static int hand_over(conn_t *from, conn_t *to, int counted);
static void settle(conn_t *control);
static int take_both(conn_t *from, conn_t *to, int counted);
static void leave(void);
static void report(void);


settings_t        settings = { .dialect = "gateway", .rounds = 200,
                               .gap_ms = 3, .bound = 10, .seconds = 2,
                               .warm_up = 0.5, .name = "handover" };
tally_t           tally = { .fencing = -1 };
const dialect_t  *dialect;

static conn_t     conns[2];
static conn_t     controls[2];


int
main(int argc, char **argv)
{
    parse_options(argc, argv);

    if (settings.many) {
        names_loop();
        return 0;
    }

    if (settings.clients) {
        queue_loop();

    } else {
        hand_overs();
    }

    report();

    return 0;
}


static void
parse_options(int argc, char **argv)
{
    int         opt, bad;
    settings_t *o = &settings;

    bad = 0;

    while ((opt = getopt(argc, argv, "v:d:p:q:n:g:b:l:c:t:w:")) != -1) {
        bad |= !parse_option(opt);
    }

    if (!known_way(o->way)) {
        usage();
    }

    if (strcmp(o->way, "etcd") == 0) {
        o->dialect = "etcd";
    }

    dialect = dialect_find(o->dialect);
    o->many = (strcmp(o->way, "names") == 0);

    if (bad || optind != argc || dialect == NULL || o->port <= 0
        || o->port > 65535 || o->rounds < 1 || o->gap_ms < 0 || o->bound <= 0
        || o->seconds <= 0 || o->warm_up < 0 || strlen(o->name) > 40
        || o->clients < 0
        || (strcmp(o->way, "other") == 0) != (o->other_port != 0)
        || (o->many || strcmp(o->way, "queue") == 0) != (o->clients != 0))
    {
        usage();
    }
}


static int
parse_option(int opt)
{
    switch (opt) {
    case 'v':
        settings.way = optarg;
        return 1;
    case 'd':
        settings.dialect = optarg;
        return 1;
    case 'p':
        settings.port = atoi(optarg);
        return 1;
    case 'q':
        settings.other_port = atoi(optarg);
        return 1;
    case 'n':
        settings.rounds = atoi(optarg);
        return 1;
    case 'g':
        settings.gap_ms = atoi(optarg);
        return 1;
    case 'b':
        settings.bound = atof(optarg);
        return 1;
    case 'l':
        settings.name = optarg;
        return 1;
    case 'c':
        settings.clients = atoi(optarg);
        return 1;
    case 't':
        settings.seconds = atof(optarg);
        return 1;
    case 'w':
        settings.warm_up = atof(optarg);
        return 1;
    }

    return 0;
}


static int
known_way(const char *way)
{
    size_t              i;
    static const char  *ways[] = { "local", "sibling", "other", "etcd",
                                   "queue", "names" };

    for (i = 0; way && i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (strcmp(way, ways[i]) == 0) {
            return 1;
        }
    }

    return 0;
}


static void
usage(void)
{
    fprintf(stderr,
            "usage: handover -v local|sibling|other|etcd -p PORT [-q PORT]\n"
            "                [-n ROUNDS] [-g MS] [-b SECONDS] [-l NAME]\n"
            "       handover -v queue -p PORT -c CLIENTS -t SECONDS\n"
            "                [-w SECONDS] [-l NAME]\n"
            "       handover -v names -p PORT -c CLIENTS\n"
            "                [-d gateway|etcd|webdis] [-l NAME]\n");
    exit(2);
}


void
hand_overs(void)
{
    int       i, warm_up;
    uint64_t  began;

    open_ways();

    warm_up = settings.rounds * WARM_UP / 100;

    conn_ask(&conns[0], ACQUIRING);
    (void) conn_await(&conns[0]);

    began = now_ns();

    for (i = 0; i < settings.rounds + warm_up; i++) {
        if (!hand_over(&conns[i % 2], &conns[1 - i % 2], i >= warm_up)) {
            break;
        }
    }

    settings.seconds = (double) (now_ns() - began) / SECOND_NS;

    leave();
}


static void
open_ways(void)
{
    int  to;

    if (dialect->steps[OPENING].ask) {
        open_session(&conns[0]);
        open_session(&conns[1]);
        return;
    }

    to = settings.other_port ? settings.other_port : settings.port;

    open_at(&conns[0], settings.port, 0, 0);
    open_at(&conns[1], to, conns[0].worker, strcmp(settings.way, "local") == 0);
    open_at(&controls[0], settings.port, conns[0].worker, 1);
    open_at(&controls[1], to, conns[1].worker, 1);
}


/* a connection whose worker is, or is not, the one that is given */

static void
open_at(conn_t *c, int port, long worker, int same)
{
    int  i;

    for (i = 0; i < TRIES; i++) {
        conn_open(c, port);
        conn_get(c, "/ready");

        if (!conn_await(c) || c->worker == 0) {
            errno = EPROTO;
            die("/ready and its X-Worker");
        }

        if ((c->worker == worker) == same) {
            return;
        }

        conn_close(c);
    }

    errno = EHOSTUNREACH;
    die("a connection of the worker that is wanted");
}


static void
open_session(conn_t *c)
{
    conn_open(c, settings.port);
    conn_ask(c, OPENING);

    if (!conn_await(c) || tally.wrong) {
        errno = EPROTO;
        die("a lease");
    }
}


/* Returns 0 if that is the end. */

static int
hand_over(conn_t *from, conn_t *to, int counted)
{
    struct pollfd  early;

    if (!from->holds) {
        return 0;
    }

    conn_ask(to, ACQUIRING);
    settle(&controls[to - conns]);

    early.fd = to->client.fd;
    early.events = POLLIN;

    if (poll(&early, 1, 0) > 0) {
        /* an overlap, or no grant at all: this counts it */
        (void) conn_await(to);
        return 0;
    }

    conn_ask(from, RELEASING);

    return take_both(from, to, counted);
}


/* until what was asked for before is there, and some quiet */

static void
settle(conn_t *control)
{
    char             path[128];
    struct timespec  ts;

    if (control->worker != 0) {
        snprintf(path, sizeof(path), "/locks/%s-nobody", settings.name);
        conn_get(control, path);

        tally.wrong += (!conn_await(control) || control->status != 404);
    }

    ts.tv_sec = settings.gap_ms / 1000;
    ts.tv_nsec = settings.gap_ms % 1000 * 1000000L;

    while (nanosleep(&ts, &ts) == -1 && errno == EINTR) { /* void */ }
}


static int
take_both(conn_t *from, conn_t *to, int counted)
{
    int            i, n;
    conn_t        *c[2] = { to, from };
    histogram_t   *h[2] = { &tally.grants, &tally.releases };
    struct pollfd  fds[2];

    for (i = 0; i < 2; i++) {
        fds[i].fd = c[i]->client.fd;
        fds[i].events = POLLIN;
    }

    while (fds[0].fd != -1 || fds[1].fd != -1) {
        n = poll(fds, 2, (int) (settings.bound * 1e3));

        if (n == -1 && errno != EINTR) {
            die("poll()");
        }

        if (n == 0) {
            tally.stuck++;
            return 0;
        }

        for (i = 0; i < 2 && n > 0; i++) {
            if (fds[i].revents == 0 || !conn_take(c[i])) {
                continue;
            }

            fds[i].fd = -1;

            if (counted) {
                histogram_add(h[i], now_ns() - tally.released);
            }
        }
    }

    return 1;
}


/* what is held is released, and sessions are ended; etcd's end what waits */

static void
leave(void)
{
    int  i;

    if (tally.holder != NULL) {
        i = (int) (tally.holder - conns);
        conn_ask(&conns[i], RELEASING);
        (void) conn_await(&conns[i]);
    }

    for (i = 0; i < 2; i++) {
        if (dialect->steps[CLOSING].ask && conns[i].client.step == IDLE) {
            conn_ask(&conns[i], CLOSING);
            (void) conn_await(&conns[i]);
        }
    }
}


static void
report(void)
{
    printf("{\"way\":\"%s\",\"rounds\":%llu,\"per_second\":%.1f,",
           settings.way, (unsigned long long) tally.grants.n,
           (double) tally.grants.n / settings.seconds);

    histogram_print(&tally.grants, "handover");
    putchar(',');
    histogram_print(&tally.releases, "release");

    printf(",\"overlaps\":%llu,\"fencing_backwards\":%llu,"
           "\"wrong_answers\":%llu,\"not_granted\":%d}\n",
           (unsigned long long) tally.overlaps,
           (unsigned long long) tally.backwards,
           (unsigned long long) tally.wrong, tally.stuck);
}


void
die(const char *what)
{
    fprintf(stderr, "handover: %s: %s\n", what, strerror(errno));
    exit(1);
}
