
/*
 * Load for a lock gateway: clients that acquire and release in a closed loop.
 *
 *   load -p PORT -c CLIENTS -t SECONDS [-w SECONDS] [-o] [-n NAME]
 *
 * Each client is one keep-alive connection to 127.0.0.1 with one request under
 * way: POST /locks/NAME, and when that is granted DELETE with the token, and
 * so on.  Without -o each client has a lock of its own, NAME-0, NAME-1, ...;
 * with -o all share the one lock NAME and wait for each other.
 *
 * One thread, epoll, and no more work on an answer than to find its end and
 * its token: a generator of load that is slower than what it loads measures
 * itself.
 *
 * On a lock that is shared it is checked that locks exclude.  A client holds
 * from when its grant was read until it begins to send the release; a grant
 * that is read while another client holds is an overlap.  It cannot be a false
 * alarm: the release was not sent yet when the second grant arrived.  The
 * fencing tokens have to grow from grant to grant, too.
 *
 * What ends in the first -w seconds is not counted.  After the last second
 * nothing is begun any more, but what was begun is brought to its end, so that
 * no claim is left.  The result is one JSON object on stdout; the first answer
 * that is neither 201 nor 204 is shown on stderr.
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
#include <unistd.h>

#include "histogram.h"


#define CLIENTS_MAX     4096
#define EVENTS          256
#define BUFFER          4096
#define TOKEN_MAX       128

/* what is under way at the end has so long to end */
#define DRAIN_NS        10000000000ull

#define SECOND_NS       1000000000.0


typedef enum {
    IDLE = 0,
    ACQUIRING,
    RELEASING
} state_e;


typedef struct {
    int        fd;
    state_e    state;
    uint64_t   began;               /* of the cycle */
    uint64_t   granted;

    char       name[64];
    char       token[TOKEN_MAX + 1];

    size_t     len;                 /* of the answer, as far as it was read */
    char       buffer[BUFFER];
} client_t;


typedef struct {
    int        status;
    int64_t    fencing;             /* -1: none */
} answer_t;


static void parse_options(int argc, char **argv);
static void usage(void);
static void client_connect(client_t *c);
static void client_acquire(client_t *c);
static void client_release(client_t *c);
static void client_send(client_t *c, const char *text, int len);
static void client_read(client_t *c);
static void client_answered(client_t *c, answer_t *answer);
static void client_granted(client_t *c, answer_t *answer);
static void client_released(client_t *c);
static size_t parse_answer(client_t *c, answer_t *answer);
static const char *header(const char *head, const char *name);
static void report(void);
static void die(const char *what);


static int          port;
static int          one_lock;
static int          nclients = 1;
static double       seconds = 5;
static double       warm_up = 0.5;
static const char  *lock_name = "load";

static client_t    *clients;
static int          nbusy;          /* clients in a cycle */
static uint64_t     count_from, count_until;

static histogram_t  cycles, acquires;
static uint64_t     ntotal;         /* cycles, those not counted too */
static uint64_t     nwrong;         /* answers that were not expected */
static uint64_t     noverlaps;      /* grants while another client held */
static uint64_t     nbackwards;     /* fencing tokens that did not grow */

static client_t    *holder;         /* of the shared lock */
static int64_t      last_fencing = -1;


int
main(int argc, char **argv)
{
    int                 i, n, epoll;
    uint64_t            now;
    struct epoll_event  ee, events[EVENTS];

    parse_options(argc, argv);

    clients = calloc((size_t) nclients, sizeof(client_t));
    epoll = epoll_create1(0);

    if (clients == NULL || epoll == -1) {
        die("start");
    }

    for (i = 0; i < nclients; i++) {
        snprintf(clients[i].name, sizeof(clients[i].name),
                 one_lock ? "%s" : "%s-%d", lock_name, i);

        client_connect(&clients[i]);

        ee.events = EPOLLIN;
        ee.data.ptr = &clients[i];

        if (epoll_ctl(epoll, EPOLL_CTL_ADD, clients[i].fd, &ee) == -1) {
            die("epoll_ctl()");
        }
    }

    now = now_ns();
    count_from = now + (uint64_t) (warm_up * SECOND_NS);
    count_until = count_from + (uint64_t) (seconds * SECOND_NS);

    for (i = 0; i < nclients; i++) {
        client_acquire(&clients[i]);
    }

    while (nbusy > 0 && now_ns() < count_until + DRAIN_NS) {
        n = epoll_wait(epoll, events, EVENTS, 100);

        if (n == -1 && errno != EINTR) {
            die("epoll_wait()");
        }

        for (i = 0; i < n; i++) {
            client_read(events[i].data.ptr);
        }
    }

    report();

    return 0;
}


static void
parse_options(int argc, char **argv)
{
    int  opt;

    while ((opt = getopt(argc, argv, "p:c:t:w:on:")) != -1) {
        switch (opt) {
        case 'p':
            port = atoi(optarg);
            break;
        case 'c':
            nclients = atoi(optarg);
            break;
        case 't':
            seconds = atof(optarg);
            break;
        case 'w':
            warm_up = atof(optarg);
            break;
        case 'o':
            one_lock = 1;
            break;
        case 'n':
            lock_name = optarg;
            break;
        default:
            usage();
        }
    }

    if (optind != argc || port <= 0 || port > 65535 || seconds <= 0
        || warm_up < 0 || nclients < 1 || nclients > CLIENTS_MAX
        || strlen(lock_name) > 40)
    {
        usage();
    }
}


static void
usage(void)
{
    fprintf(stderr, "usage: load -p PORT -c CLIENTS -t SECONDS "
            "[-w SECONDS] [-o] [-n NAME]\n");
    exit(2);
}


static void
client_connect(client_t *c)
{
    int                 one;
    struct sockaddr_in  sin;

    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_port = htons((uint16_t) port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    c->fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);

    if (c->fd == -1
        || connect(c->fd, (struct sockaddr *) &sin, sizeof(sin)) == -1)
    {
        die("connect()");
    }

    one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}


static void
client_acquire(client_t *c)
{
    int   len;
    char  text[256];

    c->state = ACQUIRING;
    c->began = now_ns();
    nbusy++;

    len = snprintf(text, sizeof(text),
                   "POST /locks/%s HTTP/1.1\r\nHost: localhost\r\n\r\n",
                   c->name);

    client_send(c, text, len);
}


static void
client_release(client_t *c)
{
    int   len;
    char  text[256 + TOKEN_MAX];

    c->state = RELEASING;
    holder = NULL;

    len = snprintf(text, sizeof(text),
                   "DELETE /locks/%s HTTP/1.1\r\nHost: localhost\r\n"
                   "Lock-Token: %s\r\n\r\n", c->name, c->token);

    client_send(c, text, len);
}


/* a request fits into the socket's buffer: nothing else is in it */

static void
client_send(client_t *c, const char *text, int len)
{
    c->len = 0;

    if (send(c->fd, text, (size_t) len, MSG_NOSIGNAL|MSG_DONTWAIT) != len) {
        die("send()");
    }
}


static void
client_read(client_t *c)
{
    ssize_t   n;
    answer_t  answer;

    n = recv(c->fd, c->buffer + c->len, BUFFER - 1 - c->len, MSG_DONTWAIT);

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }

    if (n <= 0) {
        errno = n == 0 ? ECONNRESET : errno;
        die("recv()");
    }

    c->len += (size_t) n;
    c->buffer[c->len] = '\0';

    answer.status = 0;
    answer.fencing = -1;

    if (parse_answer(c, &answer) == c->len) {
        client_answered(c, &answer);
    }
}


static void
client_answered(client_t *c, answer_t *answer)
{
    if (c->state == ACQUIRING && answer->status == 201) {
        client_granted(c, answer);
        return;
    }

    if (c->state == RELEASING && answer->status == 204) {
        client_released(c);
        return;
    }

    if (nwrong++ == 0) {
        fprintf(stderr, "load: %s was answered by:\n%s\n",
                c->state == ACQUIRING ? "an acquire" : "a release",
                c->buffer);
    }

    nbusy--;
    c->state = IDLE;

    if (now_ns() < count_until) {
        client_acquire(c);
    }
}


static void
client_granted(client_t *c, answer_t *answer)
{
    c->granted = now_ns();

    if (one_lock) {
        noverlaps += (holder != NULL);
        holder = c;

        nbackwards += (answer->fencing <= last_fencing);
        last_fencing = answer->fencing;
    }

    client_release(c);
}


static void
client_released(client_t *c)
{
    uint64_t  now;

    now = now_ns();
    ntotal++;

    if (now >= count_from && now < count_until) {
        histogram_add(&cycles, now - c->began);
        histogram_add(&acquires, c->granted - c->began);
    }

    nbusy--;
    c->state = IDLE;

    if (now < count_until) {
        client_acquire(c);
    }
}


/* Returns the length of the whole answer, or 0 if it is not all there. */

static size_t
parse_answer(client_t *c, answer_t *answer)
{
    char        *end;
    size_t       len;
    const char  *value;

    end = strstr(c->buffer, "\r\n\r\n");

    if (end == NULL) {
        if (c->len == BUFFER - 1) {
            errno = EMSGSIZE;
            die("the head of an answer");
        }

        return 0;
    }

    if (strncmp(c->buffer, "HTTP/1.1 ", 9) != 0) {
        errno = EPROTO;
        die("the head of an answer");
    }

    answer->status = atoi(c->buffer + 9);
    len = (size_t) (end + 4 - c->buffer);

    /* the search for headers ends where the head does */
    end[2] = '\0';

    value = header(c->buffer, "Content-Length: ");
    if (value != NULL) {
        len += (size_t) atol(value);
    }

    value = header(c->buffer, "Lock-Fencing-Token: ");
    if (value != NULL) {
        answer->fencing = atoll(value);
    }

    value = header(c->buffer, "Lock-Token: ");
    if (value != NULL) {
        snprintf(c->token, sizeof(c->token), "%.*s",
                 (int) strcspn(value, "\r"), value);
    }

    end[2] = '\r';

    return len;
}


/* the value of a header; name has the colon and the blank behind it, too */

static const char *
header(const char *head, const char *name)
{
    size_t       len;
    const char  *line;

    len = strlen(name);

    for (line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;

        if (strncasecmp(line, name, len) == 0) {
            return line + len;
        }
    }

    return NULL;
}


static void
report(void)
{
    printf("{\"clients\":%d,\"seconds\":%g,\"cycles\":%llu,"
           "\"total\":%llu,\"per_second\":%.1f,", nclients, seconds,
           (unsigned long long) cycles.n, (unsigned long long) ntotal,
           (double) cycles.n / seconds);

    histogram_print(&cycles, "cycle");
    putchar(',');
    histogram_print(&acquires, "acquire");

    printf(",\"overlaps\":%llu,\"fencing_backwards\":%llu,"
           "\"wrong_answers\":%llu,\"unfinished\":%d}\n",
           (unsigned long long) noverlaps, (unsigned long long) nbackwards,
           (unsigned long long) nwrong, nbusy);
}


static void
die(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}
