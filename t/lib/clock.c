/*
 * For LD_PRELOAD: clocks that a test moves.  The file $CLOCK_OFFSETS has two
 * numbers of seconds: how much the date is wrong, and for how long the machine
 * was suspended, which CLOCK_BOOTTIME counts, and CLOCK_MONOTONIC does not.
 * As in the kernel, an absolute timer of CLOCK_BOOTTIME, which is the only kind
 * here, expires during a suspension, and poll() returns after the suspension.
 */


#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>


#define TIMERS  64              /* descriptors above have the kernel's clock */
#define SLICE   50              /* ms after which a wait looks at the file */


static struct {
    long               suspended;
    struct itimerspec  when;
} timers[TIMERS];


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


int
timerfd_settime(int fd, int flags, const struct itimerspec *when,
    struct itimerspec *old)
{
    int                 (*real)(int, int, const struct itimerspec *,
                                struct itimerspec *);
    long                date, suspended;
    struct itimerspec   shifted;

    real = (int (*)(int, int, const struct itimerspec *, struct itimerspec *))
               dlsym(RTLD_NEXT, "timerfd_settime");

    shifted = *when;

    if (fd >= 0 && fd < TIMERS) {
        offsets(&date, &suspended);
        timers[fd].suspended = suspended;
        timers[fd].when = *when;

        if (when->it_value.tv_sec > suspended) {
            shifted.it_value.tv_sec -= suspended;

        } else if (when->it_value.tv_sec != 0) {

            /* the machine was on for less than the suspension: expired */

            shifted.it_value.tv_sec = 0;
            shifted.it_value.tv_nsec = 1;
        }
    }

    return real(fd, flags, &shifted, old);
}


int
poll(struct pollfd *fds, nfds_t n, int timeout)
{
    int    fd, rc, slice, (*real)(struct pollfd *, nfds_t, int);
    long   date, suspended;

    real = (int (*)(struct pollfd *, nfds_t, int)) dlsym(RTLD_NEXT, "poll");

    for ( ;; ) {
        offsets(&date, &suspended);

        for (fd = 0; fd < TIMERS; fd++) {
            if (timers[fd].when.it_value.tv_sec
                && timers[fd].suspended != suspended)
            {
                (void) timerfd_settime(fd, TFD_TIMER_ABSTIME, &timers[fd].when,
                                       NULL);
            }
        }

        slice = timeout < 0 || timeout > SLICE ? SLICE : timeout;
        rc = real(fds, n, slice);

        if (rc != 0 || slice == timeout) {
            return rc;
        }

        if (timeout > 0) {
            timeout -= slice;
        }
    }
}
