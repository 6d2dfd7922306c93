/*
 * zk-lock: commands under distributed locks, by the HTTP API of a lock gateway.
 *
 *     main.c    the arguments           lease.c   acquire, renew, release
 *     run.c     run, lead, join         child.c   the process of the command
 *     look.c    ls, show, watch,        http.c    calls, and the event loop
 *               break, drain            config.c  the URL, the file of -K
 *     util.c    clock, text, messages   json.c    answers of the gateway
 *
 * zk-lock writes no files.  The only thread beside main() is the thread in
 * which libcurl may resolve a name.  All times are milliseconds of
 * CLOCK_BOOTTIME: a change of the date does not move this clock, and the clock
 * goes on while the machine is suspended, as leases do.
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

/* arguments from n + 1 on are those of the format n */
#define FORMAT(n)  __attribute__((format(printf, n, n + 1)))

/* a set of bits says which commands take an option */
typedef enum { RUN = 1, LEAD = 2, JOIN = 4, LS = 8, SHOW = 16, WATCH = 32,
               BREAK = 64, DRAIN = 128 } command_e;

typedef struct {
    command_e command;
    char *url, *health;         /* without a "/" at the end; health or NULL */
    const char *config;         /* a file, or NULL */
    const char *owner;          /* NULL: not given; "": send none */
    const char *prefix, *sort;  /* NULL: not given */
    int64_t wait, ttl, grace, min_hold;
    int64_t max_hold, permits;  /* 0: not given */
    int64_t taken_status;
    bool shared, foreground, quiet, owners, json, all;
} options_t;

typedef enum { HTTP_HEAD, HTTP_QUERY } http_part_e;

/* Waits until then, or for an event; true: no further wait is wanted. */
typedef bool (*http_wait_pt)(int64_t until);

/* A call.  The caller owns the memory, and frees the parts by http_end(). */
typedef struct http_call_s {
    /* set by http_new(); the caller may change these before http_start() */
    const char *method;         /* NULL: there was no memory */
    CURLU *url;
    struct curl_slist *head;
    int64_t timeout;            /* NEVER: as long as bytes come */
    size_t limit;               /* bytes of the body, or of a line */
    bool last;                  /* no other call uses the connection */
    /* Takes a line of a 200, len bytes and a NUL; false ends the call.  NULL:
     * the body is kept whole. */
    bool (*line)(struct http_call_s *call, char *line, size_t len);
    const void *data;           /* for line() */

    /* set by http.c */
    CURL *easy;                 /* NULL: not started */
    bool sent;                  /* the request has left; by http_call() */
    bool done;
    long status;                /* 0: no answer, see why */
    char why[CURL_ERROR_SIZE];
    char *body;                 /* NULL, or len bytes and a NUL */
    size_t len;
    int64_t pause;              /* ms before a repeat, by Retry-After */
} http_call_t;

/* The claim, in memory that the processes of run.c share: no pointers. */
typedef struct {
    char key[40];               /* Idempotency-Key */
    char token[TOKEN_MAX];      /* "": none is known */
    char fencing[TOKEN_MAX];
    int64_t sent, ttl;          /* the lease counts from sent */
    bool unsure;                /* a claim may exist, with a token unknown */
} lease_t;

typedef enum { LEASE_HELD = 0, LEASE_LOST, LEASE_REVOKED } lease_state_e;

/* The command, in the same shared memory.  A pid of 0 is no command. */
typedef struct {
    pid_t pid, group;           /* a group of 0 is the group of zk-lock */
    bool reaped, stopped;
    bool has_keys;              /* was started where keys of a terminal go */
    int status;                 /* of waitpid(), when reaped */
    int64_t kill_at;            /* by child_end(); 0: not yet */
} child_t;

/* util.c */
int64_t util_now(void);
char *util_text(const char *format, ...) FORMAT(1);
void util_log(const char *format, ...) FORMAT(1);
void util_log_once(const char *format, ...) FORMAT(1);
void util_log_again(void);
void util_vlog(const char *format, va_list args);

/* run.c */
int run_command(const options_t *options, const char *lock, char **argv,
                char *title, size_t title_size);

/* look.c */
int look_ls(const options_t *options, char **names, char **locks);
int look_show(const options_t *options, char **names, char **locks);
int look_watch(const options_t *options, char **names, char **locks);
int look_break(const options_t *options, char **names, char **locks);
int look_drain(const options_t *options, char **names, char **locks);
bool look_print(FILE *out, const options_t *options, const char *what,
                const char *body, size_t len, yajl_val *tree);

/* lease.c */
void lease_open(const options_t *options, const char *lock, lease_t *lease,
                http_wait_pt wait);
int lease_acquire(void);
void lease_take_back(void);
lease_state_e lease_step(void);
int64_t lease_next(void);
int64_t lease_deadline(void);
bool lease_release(int64_t keep_until);
void lease_forget(void);

/* child.c */
int child_open(bool foreground, child_t *child);
int child_start(char **argv, const char *fencing);
void child_reap(void);
bool child_is_gone(void);
void child_signal(int signo);
void child_continue(void);
void child_terminate(int64_t grace);
void child_set_end(int64_t grace);
bool child_try_end(void);
void child_finish(int64_t grace);
bool child_was_interrupted(void);

/* http.c */
int http_open(const options_t *options);
void http_close(void);
http_call_t http_new(const char *method, const char *url, int64_t timeout);
void http_add(http_call_t *call, http_part_e part, const char *format, ...)
    FORMAT(3);
void http_start(http_call_t *call);
void http_wait(struct curl_waitfd *fds, unsigned n, int64_t until);
void http_call(http_call_t *call, http_wait_pt wait);
void http_end(http_call_t *call);
const char *http_header(const http_call_t *call, const char *name);
int http_exit_status(long status);
const char *http_describe(http_call_t *call);

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
