/*
 * zk-lock: commands under distributed locks, by the HTTP API of a lock gateway.
 *
 *     main.c    the arguments           lease.c   acquire, renew, release
 *     run.c     run, lead, join         child.c   the command's process
 *     look.c    ls, show, watch,        http.c    calls, and the event loop
 *               break, drain            config.c  the URL, the file of -K
 *                                       json.c    what a gateway answers
 *
 * There are no files, and no threads but the one in which libcurl may resolve
 * a name.  All times are milliseconds of CLOCK_BOOTTIME, which no change of the
 * date moves, and which goes on while the machine is suspended, as leases do.
 */

#ifndef ZK_LOCK_H
#define ZK_LOCK_H

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/param.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include <curl/curl.h>
#include <yajl/yajl_tree.h>

enum { EXIT_NOT_THERE = 1, EXIT_USAGE = 64, EXIT_UNREACHED = 69,
       EXIT_LOST = 70, EXIT_SYSTEM = 71, EXIT_TAKEN = 75, EXIT_TOO_LONG = 124 };

#define TOKEN_MAX  256          /* bytes of a token, with the NUL */
#define NEVER      INT64_MAX    /* a time that does not come */

/* in the order of main_commands */
typedef enum { RUN = 1, LEAD = 2, JOIN = 4, LS = 8, SHOW = 16, WATCH = 32,
               BREAK = 64, DRAIN = 128 } command_e;

typedef struct {
    command_e command;
    char **argv;                /* a copy of main()'s */
    char *url, *health;         /* without a "/" at the end; health or NULL */
    const char *config;         /* a file, or NULL */
    const char *owner;          /* NULL: not given; "": send none */
    const char *prefix, *sort;  /* NULL: not given */
    int64_t wait, ttl, grace, min_hold;
    int64_t max_hold, permits;  /* 0: not given */
    int64_t taken_status;
    bool shared, foreground, quiet, owners, json, all;
} options_t;

/* A call, made by http_new(); the next part may be changed before the start. */
typedef struct http_call_s {
    const char *method;         /* NULL: there was no memory */
    CURLU *url;
    struct curl_slist *head;
    int64_t timeout;            /* NEVER: as long as bytes come */
    size_t limit;               /* bytes of the body, or of a line */
    bool last;                  /* no other call uses the connection */
    /* for each line of a 200, without the end; false ends the call */
    bool (*line)(struct http_call_s *call, char *line, size_t len);
    const void *data;           /* for line() */

    /* set by http.c */
    CURL *easy;                 /* NULL: not started */
    bool sent, done;            /* the request has left; see status */
    long status;                /* 0: no answer, see why */
    char why[CURL_ERROR_SIZE];
    char *body;                 /* NULL, or with a NUL behind */
    size_t len;
    int64_t pause;              /* Retry-After, or a second */
} http_call_t;

/* The claim, in memory that both processes of run.c share: no pointers. */
typedef struct {
    char key[40];               /* Idempotency-Key */
    char token[TOKEN_MAX];      /* "": none is known */
    char fencing[TOKEN_MAX];
    int64_t sent, ttl;          /* the lease counts from sent */
    bool unsure;                /* a claim may be there, untold */
} lease_t;

typedef enum { LEASE_HELD = 0, LEASE_LOST, LEASE_ASKED_FOR } lease_state_e;

/* The command, shared alike.  A pid of 0 is no command. */
typedef struct {
    pid_t pid, group;           /* a group of 0 is that of zk-lock */
    bool reaped, stopped;
    bool has_keys;              /* it was started where a terminal's keys go */
    int status;                 /* of waitpid(), when reaped */
    int64_t kill_at;            /* by child_end(); 0: not yet */
} child_t;

/* waits until then, or for an event; true: no further wait is wanted */
typedef bool (*wait_pt)(int64_t until);

/* main.c */
int64_t now(void);
char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
void main_say(bool once, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#define say(...)       main_say(false, __VA_ARGS__)
#define say_once(...)  main_say(true, __VA_ARGS__)
#define say_anew()     main_say(true, "%s", "")     /* say all again */

/* run.c, look.c: return the exit status */
int run(const options_t *options, const char *lock, char **argv, char *title,
        size_t title_size);
int look_ls(const options_t *options);
int look_show(const options_t *options, const char *lock, const char *name);
int look_watch(const options_t *options, char **locks);
int look_break(const char *lock, const char *token);
int look_drain(const options_t *options, const char *what);
bool look_print(FILE *out, const options_t *options, const char *what,
                const char *body, size_t len, yajl_val *tree);

/* lease.c */
void lease_open(const options_t *options, const char *lock, lease_t *lease,
                wait_pt wait);
int lease_acquire(void);
void lease_take_back(void);
lease_state_e lease_step(void);
int64_t lease_next(void);
int64_t lease_deadline(void);
bool lease_release(int64_t keep_until);
void lease_forget(void);

/* child.c */
int child_open(bool stays, child_t *child);
int child_start(char **argv, const char *fencing);
void child_reap(void);
bool child_gone(void);
void child_signal(int signo);
void child_continue(void);
void child_end(bool told, int64_t grace);
bool child_ended(void);
void child_finish(int64_t grace);
bool child_was_interrupted(void);

/* http.c */
int http_open(const options_t *options);
void http_close(void);
http_call_t http_new(const char *method, const char *url, int64_t timeout);
void http_add(http_call_t *call, bool head, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define http_head(call, ...)   http_add(call, true, __VA_ARGS__)
#define http_query(call, ...)  http_add(call, false, __VA_ARGS__)
void http_start(http_call_t *call);
void http_wait(struct curl_waitfd *fds, unsigned n, int64_t until);
void http_call(http_call_t *call, wait_pt wait);
void http_end(http_call_t *call);
const char *http_header(const http_call_t *call, const char *name);
int http_exit_status(long status);
const char *http_told(http_call_t *call);

/* config.c */
char *config_url(const char *url, char *argument);
bool config_apply(CURL *easy, const char *file, struct curl_slist **head);

/* json.c */
yajl_val json_parse(const char *body, size_t len);
yajl_val json_get(yajl_val tree, const char *member);
const char *json_string(yajl_val tree, const char *member);
int64_t json_number(yajl_val tree, const char *member, int64_t missing);
void json_print(FILE *out, const char *string);

#endif
