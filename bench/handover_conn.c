
/*
 * A connection: it asks for what its server's dialect calls a step, and takes
 * the answer.  Whoever is granted the lock while another one holds it, and
 * whose fencing token did not grow, is counted here.
 *
 * Who holds does so from when the grant was read until the release is about to
 * be sent, so an overlap cannot be a false alarm.
 */


#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "handover.h"


static void conn_send(conn_t *c, const char *text, int len);
static int conn_read(conn_t *c, answer_t *answer);
static void conn_heard(conn_t *c, const answer_t *answer);
static void conn_granted(conn_t *c);
static void conn_wrong(conn_t *c, step_e step, const answer_t *answer);


/* settings.clients of them, numbered, and an epoll that tells of each */

conn_t *
conns_open(int *epoll)
{
    int                 i;
    conn_t             *conns;
    struct epoll_event  ee;

    conns = calloc((size_t) settings.clients, sizeof(conn_t));
    *epoll = epoll_create1(EPOLL_CLOEXEC);

    if (conns == NULL || *epoll == -1) {
        die("start");
    }

    for (i = 0; i < settings.clients; i++) {
        conn_open(&conns[i], settings.port);
        conns[i].client.number = i;

        ee.events = EPOLLIN;
        ee.data.ptr = &conns[i];

        if (epoll_ctl(*epoll, EPOLL_CTL_ADD, conns[i].client.fd, &ee) == -1) {
            die("epoll_ctl()");
        }
    }

    return conns;
}


void
conn_open(conn_t *c, int port)
{
    int                 one;
    struct sockaddr_in  sin;

    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_port = htons((uint16_t) port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    c->client.fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);

    if (c->client.fd == -1
        || connect(c->client.fd, (struct sockaddr *) &sin, sizeof(sin)) == -1)
    {
        die("connect()");
    }

    one = 1;
    setsockopt(c->client.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

    c->client.step = IDLE;
    snprintf(c->client.name, sizeof(c->client.name), "%s", settings.name);
}


void
conn_close(conn_t *c)
{
    close(c->client.fd);
    c->client.fd = -1;
}


void
conn_ask(conn_t *c, step_e step)
{
    int   len;
    char  text[REQUEST_MAX];

    len = dialect->steps[step].ask(&c->client, text, sizeof(text));

    conn_ask_as(c, step, text, len);
}


void
conn_ask_as(conn_t *c, step_e step, const char *text, int len)
{
    c->client.step = step;

    if (step == RELEASING) {
        c->holds = 0;
        tally.holder = NULL;
        tally.released = now_ns();
    }

    conn_send(c, text, len);
}


/* a request that is no step; only its status and its worker are looked at */

void
conn_get(conn_t *c, const char *path)
{
    int   len;
    char  text[REQUEST_MAX];

    len = snprintf(text, sizeof(text),
                   "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);

    conn_send(c, text, len);
}


/* a request fits into the socket's buffer: nothing else is in it */

static void
conn_send(conn_t *c, const char *text, int len)
{
    c->client.len = 0;

    if (send(c->client.fd, text, (size_t) len, MSG_NOSIGNAL|MSG_DONTWAIT)
        != len)
    {
        die("send()");
    }
}


/* Returns 0 if there is no answer in time. */

int
conn_await(conn_t *c)
{
    int            n;
    struct pollfd  fd;

    fd.fd = c->client.fd;
    fd.events = POLLIN;

    do {
        n = poll(&fd, 1, (int) (settings.bound * 1e3));

        if (n == -1 && errno != EINTR) {
            die("poll()");
        }

        if (n == 0) {
            return 0;
        }

    } while (n == -1 || !conn_take(c));

    return 1;
}


/* Returns 1 if all of an answer was there. */

int
conn_take(conn_t *c)
{
    answer_t     answer;
    const char  *worker;

    if (!conn_read(c, &answer)) {
        return 0;
    }

    worker = http_header(answer.head, "X-Worker");

    c->status = answer.status;
    c->worker = worker ? atol(worker) : 0;

    if (c->client.step != IDLE) {
        conn_heard(c, &answer);
    }

    return 1;
}


static int
conn_read(conn_t *c, answer_t *answer)
{
    size_t    size, whole;
    ssize_t   n;
    client_t *client;

    client = &c->client;
    size = sizeof(c->buffer) - 1 - client->len;

    n = recv(client->fd, c->buffer + client->len, size, MSG_DONTWAIT);

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }

    if (n <= 0) {
        errno = n == 0 ? ECONNRESET : errno;
        die("recv()");
    }

    client->len += (size_t) n;
    c->buffer[client->len] = '\0';

    whole = http_answer(c->buffer, client->len, answer);

    if (whole == BROKEN || (whole == 0 && (size_t) n == size)) {
        errno = EPROTO;
        die("an answer");
    }

    return whole != 0;
}


static void
conn_heard(conn_t *c, const answer_t *answer)
{
    step_e  step;

    step = c->client.step;
    c->client.step = IDLE;

    if (dialect->steps[step].hear(&c->client, answer) != DONE) {
        conn_wrong(c, step, answer);
        return;
    }

    if (step == ACQUIRING) {
        conn_granted(c);
    }
}


static void
conn_granted(conn_t *c)
{
    c->holds = 1;

    if (settings.many) {
        return;
    }

    tally.overlaps += (tally.holder != NULL);
    tally.holder = c;

    if (dialect->fencing) {
        tally.backwards += (c->client.fencing <= tally.fencing);
        tally.fencing = c->client.fencing;
    }
}


static void
conn_wrong(conn_t *c, step_e step, const answer_t *answer)
{
    (void) c;

    if (tally.wrong++ == 0) {
        fprintf(stderr, "handover: %s was answered by:\n%s\n%s\n",
                step == ACQUIRING ? "an acquire"
                : step == RELEASING ? "a release" : "a session",
                answer->head, answer->body);
    }
}
