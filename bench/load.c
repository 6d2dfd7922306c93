
/*
 * Load for a lock server: clients that acquire and release in a closed loop.
 *
 *   load -p PORT [-p PORT]... -c CLIENTS -t SECONDS [-w SECONDS]
 *        [-d gateway|three|one|etcd|webdis] [-o | -N COUNT] [-n NAME] [-r MS]
 *        [-g MS]
 *
 * Each client is one keep-alive connection to 127.0.0.1 with one request under
 * way: it acquires, and when that is granted it releases, and so on.  A dialect
 * may have a request between these two, or no release: then a cycle ends with
 * the grant.  With several ports the clients are dealt out to them in turn.
 * How a server of the sort -d is asked is in load_dialects.c.
 *
 * Without -o each client has a separate lock, NAME-0, NAME-1, ...; with -o all
 * clients share the lock NAME and wait for each other.  With -N there are COUNT
 * names, and each cycle takes another name: of C clients, client I takes
 * NAME-I, NAME-(I+C), and so on, and begins again behind the last name.  If a
 * server holds no request, a client that finds the lock taken tries again after
 * -r ms, and all tries are one acquire.  With -g a client rests for MS before
 * the next cycle.
 *
 * The program has one thread and epoll, and looks only for the end and the
 * token of an answer: a generator that is slower than the server would measure
 * the generator.
 *
 * On a shared lock the program checks that claims exclude each other.  A client
 * holds from the read of the grant until the client begins to send the release,
 * and before the release the program looks for other grants that may have
 * arrived; a grant that is read while another client holds is an overlap.  An
 * overlap is no false alarm: the release was not sent when the second grant
 * arrived.  Fencing tokens, if there are any, have to grow from grant to grant.
 *
 * A cycle that ends in the first -w seconds is not counted.  After the last
 * second no cycle begins, but each cycle is brought to the end, so that no
 * claim is left; a client whose cycle takes ten seconds more, or three seconds
 * without any answer, is "unfinished".  The result is one JSON object on
 * stdout; the first answer that is not expected is shown on stderr.
 */


#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "histogram.h"
#include "load.h"


#define EVENTS          256

#define BUFFER          2048
#define BUFFER_MAX      (1024 * 1024)

/* what is under way at the end has so long to end, and so long in silence */
#define DRAIN_NS        10000000000ull
#define SILENCE_NS      3000000000ull

/* for what is done in front of the measurement, and behind it */
#define PREPARE_NS      30000000000ull

#define SECOND_NS       1000000000.0
#define MS_NS           1000000.0


static void start(void);
static void measure(void);
static void all_ask(step_e step);
static void finish(void);
static void loop(uint64_t until, uint64_t silence);
static void client_name(client_t *c);
static void client_connect(client_t *c);
static void client_acquire(client_t *c);
static void client_ask(client_t *c, step_e step);
static void client_read(client_t *c);
static void client_answered(client_t *c, const answer_t *answer);
static void client_wrong(client_t *c, const answer_t *answer);
static void client_granted(client_t *c);
static void client_under_lock(client_t *c);
static void client_released(client_t *c);
static void client_idle(client_t *c);
static void release_holders(void);
static void try_later(client_t *c);
static void later(client_t *c, double ms);
static void try_again(void);
static void set_timer(uint64_t due);
static void report(void);
static void die(const char *what);


static options_t         options;
static const dialect_t  *dialect;

static int               epoll;
static int               timer;
static client_t         *clients;
static int               nbusy;         /* clients that are not idle */
static uint64_t          count_from, count_until;
static uint64_t          last_answer;

static histogram_t       cycles, acquires;
static uint64_t          ntotal;        /* cycles, also before count_from */
static uint64_t          nretries;
static uint64_t          nwrong;        /* answers that were not expected */
static uint64_t          noverlaps;     /* grants while another client held */
static uint64_t          nbackwards;    /* fencing tokens that did not grow */
static int               nunfinished;

static client_t         *holders;       /* of the shared lock */
static client_t         *trying;        /* again, the next one first */
static client_t        **trying_last = &trying;
static int64_t           last_fencing = -1;


int
main(int argc, char **argv)
{
    options_parse(argc, argv, &options);
    dialect = options.dialect;

    start();
    all_ask(OPENING);

    if (nbusy > 0 || nwrong > 0) {
        errno = nwrong > 0 ? EPROTO : ETIMEDOUT;
        die("the preparation");
    }

    measure();
    nunfinished = nbusy;

    report();
    finish();

    return 0;
}


/* --- the course of it --------------------------------------------------- */

static void
start(void)
{
    int                 i;
    struct epoll_event  ee;

    clients = calloc((size_t) options.nclients, sizeof(client_t));
    epoll = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK|TFD_CLOEXEC);

    ee.events = EPOLLIN;
    ee.data.ptr = NULL;

    if (clients == NULL || epoll == -1 || timer == -1
        || epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &ee) == -1)
    {
        die("start");
    }

    for (i = 0; i < options.nclients; i++) {
        clients[i].number = clients[i].name_number = i;
        clients[i].step = IDLE;
        clients[i].size = BUFFER;
        clients[i].buffer = malloc(BUFFER);

        if (clients[i].buffer == NULL) {
            die("malloc()");
        }

        client_name(&clients[i]);
        client_connect(&clients[i]);
    }
}


static void
measure(void)
{
    int       i;
    uint64_t  now;

    now = now_ns();
    count_from = now + (uint64_t) (options.warm_up * SECOND_NS);
    count_until = count_from + (uint64_t) (options.seconds * SECOND_NS);

    for (i = 0; i < options.nclients; i++) {
        client_acquire(&clients[i]);
    }

    loop(count_until + DRAIN_NS, SILENCE_NS);
}


/* all do one step, once */

static void
all_ask(step_e step)
{
    int  i;

    if (dialect->steps[step].ask == NULL) {
        return;
    }

    for (i = 0; i < options.nclients; i++) {
        nbusy++;
        client_ask(&clients[i], step);
    }

    loop(now_ns() + PREPARE_NS, PREPARE_NS);
}


/* does what the dialect tells; a client without an answer hangs up */

static void
finish(void)
{
    int  i;

    if (dialect->steps[CLOSING].ask == NULL) {
        return;
    }

    trying = NULL;
    holders = NULL;
    nbusy = 0;

    for (i = 0; i < options.nclients; i++) {
        if (clients[i].step != IDLE) {
            close(clients[i].fd);
            client_connect(&clients[i]);
        }
    }

    all_ask(CLOSING);

    if (nbusy > 0) {
        fprintf(stderr, "load: %d clients could not clear up\n", nbusy);
    }
}


/* until nobody is busy, or time is over, or nobody has got an answer */

static void
loop(uint64_t until, uint64_t silence)
{
    int                  i, n, looked;
    uint64_t             now;
    struct epoll_event   events[EVENTS];

    last_answer = now = now_ns();

    while (nbusy > 0 && now < until
           && (now < count_until || now < last_answer + silence))
    {
        looked = (holders != NULL);
        n = epoll_wait(epoll, events, EVENTS, looked ? 0 : 100);

        if (n == -1 && errno != EINTR) {
            die("epoll_wait()");
        }

        for (i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL) {
                try_again();

            } else {
                client_read(events[i].data.ptr);
            }
        }

        if (looked) {
            release_holders();
        }

        now = now_ns();
    }
}


/* --- a client ----------------------------------------------------------- */

static void
client_name(client_t *c)
{
    snprintf(c->name, sizeof(c->name), options.one_lock ? "%s" : "%s-%d",
             options.name, c->name_number);
}


static void
client_connect(client_t *c)
{
    int                 one;
    struct epoll_event  ee;
    struct sockaddr_in  sin;

    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_port = htons((uint16_t) options.ports[c->number % options.nports]);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    c->fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);

    if (c->fd == -1
        || connect(c->fd, (struct sockaddr *) &sin, sizeof(sin)) == -1)
    {
        die("connect()");
    }

    one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

    ee.events = EPOLLIN;
    ee.data.ptr = c;

    if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &ee) == -1) {
        die("epoll_ctl()");
    }
}


static void
client_acquire(client_t *c)
{
    if (options.nnames > 0) {
        client_name(c);

        c->name_number += options.nclients;

        if (c->name_number >= options.nnames) {
            c->name_number = c->number;
        }
    }

    nbusy++;
    c->began = now_ns();

    client_ask(c, ACQUIRING);
}


/* a request fits into the socket's buffer, which is empty */

static void
client_ask(client_t *c, step_e step)
{
    int   len;
    char  text[REQUEST_MAX];

    c->step = step;
    c->len = 0;

    len = dialect->steps[step].ask(c, text, sizeof(text));

    if (len >= (int) sizeof(text)) {
        errno = EMSGSIZE;
        die("a request");
    }

    if (send(c->fd, text, (size_t) len, MSG_NOSIGNAL|MSG_DONTWAIT) != len) {
        die("send()");
    }
}


static void
client_read(client_t *c)
{
    size_t    len;
    ssize_t   n;
    answer_t  answer;

    if (c->len + 1 == c->size) {
        c->size *= 2;
        c->buffer = c->size > BUFFER_MAX ? NULL : realloc(c->buffer, c->size);

        if (c->buffer == NULL) {
            die("a large answer");
        }
    }

    n = recv(c->fd, c->buffer + c->len, c->size - 1 - c->len, MSG_DONTWAIT);

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }

    if (n <= 0) {
        errno = n == 0 ? ECONNRESET : errno;
        die("recv()");
    }

    c->len += (size_t) n;
    c->buffer[c->len] = '\0';

    len = http_answer(c->buffer, c->len, &answer);

    if (len == 0) {
        return;
    }

    if (len != c->len || c->step == IDLE) {
        errno = EPROTO;
        die("what was answered");
    }

    client_answered(c, &answer);
}


static void
client_answered(client_t *c, const answer_t *answer)
{
    step_e     step;
    outcome_e  outcome;

    step = c->step;
    last_answer = now_ns();
    outcome = dialect->steps[step].hear(c, answer);

    if (outcome == WRONG) {
        client_wrong(c, answer);

    } else if (outcome == TAKEN) {
        try_later(c);

    } else if (step == ACQUIRING) {
        client_granted(c);

    } else if (step == SERVING) {
        client_ask(c, RELEASING);

    } else if (step == RELEASING) {
        client_released(c);

    } else {
        client_idle(c);
    }
}


static void
client_wrong(client_t *c, const answer_t *answer)
{
    step_e              step;
    static const char  *asked[] = { "the first request", "an acquire",
                                    "a request under the lock",
                                    "a release", "the last request" };

    step = c->step;

    if (nwrong++ == 0) {
        fprintf(stderr, "load: %s was answered by:\n%s\n%s\n", asked[step],
                answer->head, answer->body);
    }

    client_idle(c);

    if (step != OPENING && step != CLOSING && now_ns() < count_until) {
        client_acquire(c);
    }
}


/* a shared lock is released after the look for other grants */

static void
client_granted(client_t *c)
{
    c->granted = last_answer;

    if (dialect->steps[RELEASING].ask == NULL) {
        client_released(c);
        return;
    }

    if (!options.one_lock) {
        client_under_lock(c);
        return;
    }

    noverlaps += (holders != NULL);
    c->next = holders;
    holders = c;

    if (dialect->fencing) {
        nbackwards += (c->fencing <= last_fencing);
        last_fencing = c->fencing;
    }
}


static void
client_under_lock(client_t *c)
{
    client_ask(c, dialect->steps[SERVING].ask != NULL ? SERVING : RELEASING);
}


static void
client_released(client_t *c)
{
    uint64_t  now;

    now = last_answer;
    ntotal++;

    if (now >= count_from && now < count_until) {
        histogram_add(&cycles, now - c->began);
        histogram_add(&acquires, c->granted - c->began);
    }

    client_idle(c);

    if (now >= count_until) {
        return;
    }

    if (options.pause_ms > 0) {
        nbusy++;
        later(c, options.pause_ms);

    } else {
        client_acquire(c);
    }
}


static void
client_idle(client_t *c)
{
    nbusy--;
    c->step = IDLE;
}


static void
release_holders(void)
{
    client_t  *c, *next;

    for (c = holders, holders = NULL; c; c = next) {
        next = c->next;
        client_under_lock(c);
    }
}


/* --- clients that try again, or rest ------------------------------------- */

static void
try_later(client_t *c)
{
    nretries++;
    later(c, options.retry_ms);
}


/* each client waits for the same time, so the queue is in order */

static void
later(client_t *c, double ms)
{
    c->due = last_answer + (uint64_t) (ms * MS_NS);
    c->next = NULL;

    if (trying == NULL) {
        trying_last = &trying;
        set_timer(c->due);
    }

    *trying_last = c;
    trying_last = &c->next;
}


static void
try_again(void)
{
    uint64_t   now, expired;
    client_t  *c;

    if (read(timer, &expired, sizeof(expired)) == -1 && errno != EAGAIN) {
        die("read() from a timer");
    }

    now = now_ns();

    while (trying != NULL && trying->due <= now) {
        c = trying;
        trying = c->next;

        if (c->step == IDLE) {
            nbusy--;
            client_acquire(c);

        } else {
            client_ask(c, ACQUIRING);
        }
    }

    if (trying != NULL) {
        set_timer(trying->due);
    }
}


static void
set_timer(uint64_t due)
{
    struct itimerspec  spec;

    memset(&spec, 0, sizeof(spec));
    spec.it_value.tv_sec = (time_t) (due / 1000000000);
    spec.it_value.tv_nsec = (long) (due % 1000000000);

    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &spec, NULL) == -1) {
        die("timerfd_settime()");
    }
}


/* --- the result --------------------------------------------------------- */

static void
report(void)
{
    printf("{\"clients\":%d,\"seconds\":%g,\"cycles\":%llu,"
           "\"total\":%llu,\"per_second\":%.1f,",
           options.nclients, options.seconds, (unsigned long long) cycles.n,
           (unsigned long long) ntotal, (double) cycles.n / options.seconds);

    histogram_print(&cycles, "cycle");
    putchar(',');
    histogram_print(&acquires, "acquire");

    printf(",\"overlaps\":%llu,\"fencing_backwards\":%llu,"
           "\"wrong_answers\":%llu,\"unfinished\":%d,\"retries\":%llu}\n",
           (unsigned long long) noverlaps, (unsigned long long) nbackwards,
           (unsigned long long) nwrong, nunfinished,
           (unsigned long long) nretries);
}


static void
die(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}
