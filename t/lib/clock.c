/*
 * For LD_PRELOAD: clocks that a test moves.  The file $CLOCK_OFFSETS has two
 * numbers of seconds: how much the date is wrong, and for how long the machine
 * was suspended, which CLOCK_BOOTTIME counts, and CLOCK_MONOTONIC does not.
 */


#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>


static void
offsets(long *date, long *suspended)
{
    int          fd;
    char         text[64], *end;
    ssize_t      n;
    const char  *path;

    *date = *suspended = 0;
    path = getenv("CLOCK_OFFSETS");
    fd = path ? open(path, O_RDONLY|O_CLOEXEC) : -1;

    if (fd == -1) {
        return;
    }

    n = read(fd, text, sizeof(text) - 1);
    (void) close(fd);

    if (n > 0) {
        text[n] = '\0';
        *date = strtol(text, &end, 10);
        *suspended = strtol(end, NULL, 10);
    }
}


int
clock_gettime(clockid_t clock, struct timespec *t)
{
    int    rc;
    long   date, suspended;
    int  (*real)(clockid_t, struct timespec *);

    real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT,
                                                         "clock_gettime");
    rc = real(clock, t);
    offsets(&date, &suspended);

    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        t->tv_sec += date + suspended;

    } else if (clock == CLOCK_BOOTTIME) {
        t->tv_sec += suspended;
    }

    return rc;
}


int
gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec  t;

    (void) zone;
    (void) clock_gettime(CLOCK_REALTIME, &t);
    tv->tv_sec = t.tv_sec;
    tv->tv_usec = t.tv_nsec / 1000;

    return 0;
}


time_t
time(time_t *result)
{
    struct timespec  t;

    (void) clock_gettime(CLOCK_REALTIME, &t);

    if (result) {
        *result = t.tv_sec;
    }

    return t.tv_sec;
}
