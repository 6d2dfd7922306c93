
/* The parts of nginx and of the kernel that the zone uses; see ngx_stub.h. */


#include "ngx_stub.h"

#include <stdarg.h>
#include <stdio.h>

#include "fuzz.h"


/* descriptors that are not the kernel's */
#define STUB_STAT       100000000
#define STUB_WAKEUP     200000000


typedef struct {
    ngx_pid_t   pid;
    uint64_t    start;
} stub_process_t;


ngx_log_t               stub_log;
ngx_msec_t              stub_clock;
size_t                  stub_slab_size;
void                   *stub_slab;
ngx_uint_t              stub_wakes;
ngx_pool_cleanup_t      stub_cleanup;

static stub_process_t   processes[STUB_PROCESSES];

static ngx_time_t       stub_time = { 1000000000, 0, 0 };
volatile ngx_time_t    *ngx_cached_time = &stub_time;


int __real_kill(pid_t pid, int sig);
int __real_open(const char *name, int flags, ...);
int __real_close(int fd);
ssize_t __real_read(int fd, void *buf, size_t n);
ssize_t __real_write(int fd, const void *buf, size_t n);
int __wrap_kill(pid_t pid, int sig);
int __wrap_open(const char *name, int flags, ...);
int __wrap_close(int fd);
ssize_t __wrap_read(int fd, void *buf, size_t n);
ssize_t __wrap_write(int fd, const void *buf, size_t n);
int __wrap_eventfd(unsigned int value, int flags);

ngx_msec_t zkl_now(void);

static stub_process_t *stub_find(ngx_pid_t pid);


void
stub_reset(void)
{
    ngx_memzero(processes, sizeof(processes));
    stub_clock = 5000;
    stub_wakes = 0;
}


void
stub_process(ngx_pid_t pid, uint64_t start)
{
    stub_process_t  *process;

    process = stub_find(pid);

    if (process == NULL) {
        process = stub_find(0);
    }

    if (process != NULL) {
        process->pid = start ? pid : 0;
        process->start = start;
    }
}


/* layout.c caches the process by ngx_pid, so another pid renews the cache */

void
stub_become(ngx_pid_t pid)
{
    ngx_pid = pid;
}


static stub_process_t *
stub_find(ngx_pid_t pid)
{
    ngx_uint_t  i;

    for (i = 0; i < STUB_PROCESSES; i++) {
        if (processes[i].pid == pid) {
            return &processes[i];
        }
    }

    return NULL;
}


/* pid 0 is the caller's group of processes, which exists */

int
__wrap_kill(pid_t pid, int sig)
{
    if (sig != 0) {
        return __real_kill(pid, sig);
    }

    if (pid == 0 || stub_find(pid) != NULL) {
        return 0;
    }

    errno = ESRCH;

    return -1;
}


int
__wrap_open(const char *name, int flags, ...)
{
    int      pid, mode;
    char     rest;
    va_list  ap;

    if (sscanf(name, "/proc/%d/sta%c", &pid, &rest) == 2 && rest == 't') {

        if (pid != 0 && stub_find(pid) != NULL) {
            return STUB_STAT + pid;
        }

        errno = ENOENT;
        return -1;
    }

    va_start(ap, flags);
    mode = (flags & O_CREAT) ? va_arg(ap, int) : 0;
    va_end(ap);

    return __real_open(name, flags, mode);
}


int
__wrap_close(int fd)
{
    return (fd >= STUB_STAT) ? 0 : __real_close(fd);
}


ssize_t
__wrap_read(int fd, void *buf, size_t n)
{
    int              len;
    char             text[256];
    stub_process_t  *process;

    if (fd < STUB_STAT) {
        return __real_read(fd, buf, n);
    }

    process = stub_find(fd - STUB_STAT);
    if (process == NULL) {
        errno = ESRCH;
        return -1;
    }

    len = snprintf(text, sizeof(text), "%d (nginx) Z) S 1 1 1 0 -1 0 0 0 0 0 "
                   "0 0 0 0 20 0 1 0 %llu 0 0\n", (int) process->pid,
                   (unsigned long long) process->start);

    n = ngx_min(n, (size_t) len);
    ngx_memcpy(buf, text, n);

    return (ssize_t) n;
}


ssize_t
__wrap_write(int fd, const void *buf, size_t n)
{
    if (fd < STUB_WAKEUP) {
        return __real_write(fd, buf, n);
    }

    stub_wakes++;

    return (ssize_t) n;
}


int
__wrap_eventfd(unsigned int value, int flags)
{
    (void) value;
    (void) flags;

    return STUB_WAKEUP;
}


ngx_msec_t
zkl_now(void)
{
    return stub_clock;
}


/* a block on a page's border, between AddressSanitizer's zones */

void *
ngx_slab_calloc(ngx_slab_pool_t *pool, size_t size)
{
    (void) pool;

    stub_slab = NULL;
    stub_slab_size = size;

    if (posix_memalign(&stub_slab, ngx_pagesize, size) != 0) {
        return NULL;
    }

    ngx_memzero(stub_slab, size);

    return stub_slab;
}


void
ngx_log_error_core(ngx_uint_t level, ngx_log_t *log, ngx_err_t err,
    const char *fmt, ...)
{
    (void) level;
    (void) log;
    (void) err;
    (void) fmt;
}


/* the formats that src/shm uses */

u_char * ngx_cdecl
ngx_sprintf(u_char *buf, const char *fmt, ...)
{
    va_list  ap;

    va_start(ap, fmt);

    for ( /* void */ ; *fmt != '\0'; fmt++) {

        if (*fmt != '%') {
            *buf++ = (u_char) *fmt;
            continue;
        }

        switch (*++fmt) {

        case 'P':
            buf += sprintf((char *) buf, "%d", (int) va_arg(ap, ngx_pid_t));
            break;

        case 'Z':
            *buf++ = '\0';
            break;

        default:
            rule(0, "the format %%%c", *fmt);
        }
    }

    va_end(ap);

    return buf;
}


ngx_pool_cleanup_t *
ngx_pool_cleanup_add(ngx_pool_t *p, size_t size)
{
    (void) p;
    (void) size;

    return &stub_cleanup;
}
