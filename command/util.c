/*
 * The clock, text in memory, and messages on standard error.
 *
 * The owned data is the last message of util_log_once(), by which a failure
 * that lasts is logged once and not at each try.  After fork() each process has
 * a copy.
 */

#include "zk-lock.h"

#define UTIL_LINE  1024         /* bytes of a message; the rest is cut */

static char util_last[UTIL_LINE];       /* "": the next message is new */


/* Milliseconds of CLOCK_BOOTTIME. */
int64_t util_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t) t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Returns text for free().  Exits when memory is short, so the keeper of run.c
 * must not call this function. */
char *util_text(const char *format, ...)
{
    va_list args;
    char *text;
    int len;

    va_start(args, format);
    len = vasprintf(&text, format, args);
    va_end(args);
    if (len == -1)
        err(EXIT_SYSTEM, NULL);
    return text;
}

/* Writes a line, with every control sequence of a terminal escaped.  The line
 * is dropped if standard error is full: a reader that does not read must not
 * delay the end of a command. */
static void util_write(const char *message)
{
    struct pollfd fd = { .fd = STDERR_FILENO, .events = POLLOUT };
    char line[2 * UTIL_LINE] = "";
    FILE *f = fmemopen(line, sizeof(line), "w");

    if (!f)
        return;
    fputs("zk-lock: ", f);
    json_print(f, message);
    putc('\n', f);
    fclose(f);
    if (poll(&fd, 1, 0) == 1 && (fd.revents & POLLOUT))
        (void) !write(STDERR_FILENO, line, strlen(line));
}

void util_vlog(const char *format, va_list args)
{
    char message[UTIL_LINE];

    vsnprintf(message, sizeof(message), format, args);
    util_write(message);
}

void util_log(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    util_vlog(format, args);
    va_end(args);
}

/* Logs a message, unless the last call of this function had the same. */
void util_log_once(const char *format, ...)
{
    char message[UTIL_LINE];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    if (strcmp(message, util_last)) {
        util_write(message);
        strcpy(util_last, message);
    }
}

/* Lets util_log_once() log the last message once more. */
void util_log_again(void)
{
    util_last[0] = '\0';
}
