
/*
 * Processes, and the system calls of src/.
 *
 * A process is a set of nginx's globals, swapped in while the process is the
 * current process; a list of all memory of the process; and an event loop.
 * When a process is killed, all memory is dropped.
 *
 * The linker leads the system calls of src/ here (--wrap).  At most of these
 * calls, and at each store into a zone, a process can die, or stand still while
 * the other processes go on: so a death or a pause can come in the middle of a
 * turn.  Death is a jump out of the turn.
 *
 * The simulation runs without a current process.
 */


#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "gsim.h"


#define GSIM_FIRST_PID      1000

/* descriptors that are not the system's */
#define GSIM_STAT_FD        100000      /* of /proc/PID/stat: + PID */
#define GSIM_EVENT_FD       200000
#define GSIM_EVENT_FDS      1024

#define GSIM_WORDS          32          /* that were read last */
#define GSIM_NEARBY         128         /* bytes: about a cell */


gsim_process_t  *gsim_current;
gsim_process_t  *gsim_processes;
int64_t          gsim_wall;

static gsim_globals_t   gsim_nobody;
static ngx_rbtree_node_t  gsim_nobody_sentinel;
static ngx_pid_t        gsim_next_pid;
static uint64_t         gsim_counts[GSIM_EVENT_FDS];
static unsigned char    gsim_open[GSIM_EVENT_FDS];
static unsigned         gsim_depth;
static int              gsim_in_thread;

static void            *gsim_words[GSIM_WORDS];
static unsigned         gsim_nwords;
static u_char          *gsim_stored;    /* last, by the current process */
static gsim_process_t  *gsim_lurker;    /* stands still before the write of */
static u_char          *gsim_lurks_at;  /* this word */
static int              gsim_prodded;   /* another process wrote nearby */


void *__real_malloc(size_t size);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__real_ngx_alloc(size_t size, ngx_log_t *log);
void *__real_ngx_calloc(size_t size, ngx_log_t *log);
void *__wrap_ngx_alloc(size_t size, ngx_log_t *log);
void *__wrap_ngx_calloc(size_t size, ngx_log_t *log);
void __wrap_free(void *p);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_kill(pid_t pid, int sig);
int __wrap_usleep(useconds_t us);
long __wrap_random(void);
ssize_t __wrap_getrandom(void *buf, size_t len, unsigned flags);
int __wrap_eventfd(unsigned count, int flags);
int __wrap_open64(const char *path, int flags, ...);
ssize_t __wrap_read(int fd, void *buf, size_t len);
ssize_t __wrap_write(int fd, const void *buf, size_t len);
int __wrap_close(int fd);
int __wrap_stat64(const char *path, struct stat *st);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);

static void gsim_globals_save(gsim_process_t *p);
static void gsim_globals_load(gsim_process_t *p);
static void gsim_globals_clear(gsim_globals_t *globals,
    ngx_rbtree_node_t *sentinel);
static void gsim_queue_move(ngx_queue_t *to, ngx_queue_t *from);
static void gsim_process_bury(gsim_process_t *p);
static void gsim_next_turn(gsim_process_t *p);
static void gsim_turn_event(void *data, uint64_t tag);
static void gsim_lurk(gsim_process_t *p, void *at);
static void gsim_fated(gsim_process_t *p, unsigned stores);
static void gsim_stand_still(gsim_process_t *p, int64_t us);
static gsim_process_t *gsim_process_find(ngx_pid_t pid);


void
gsim_process_reset(void)
{
    gsim_process_t  *p;

    for (p = gsim_processes; p != NULL; p = p->next) {
        gsim_process_free_memory(p);
    }

    ngx_queue_init(&ngx_posted_events);
    ngx_queue_init(&ngx_posted_next_events);

    gsim_globals_clear(&gsim_nobody, &gsim_nobody_sentinel);

    gsim_current = NULL;
    gsim_processes = NULL;
    gsim_wall = 0;
    gsim_next_pid = GSIM_FIRST_PID;
    gsim_depth = 0;
    gsim_in_thread = 0;
    gsim_lurker = NULL;

    memset(gsim_words, 0, sizeof(gsim_words));
    memset(gsim_open, 0, sizeof(gsim_open));
}


gsim_process_t *
gsim_process_new(gsim_gateway_t *gateway, gsim_process_e state)
{
    gsim_process_t  *p;

    p = gsim_alloc(sizeof(gsim_process_t));

    p->state = state;
    p->gateway = gateway;
    p->pid = gsim_next_pid++;
    p->start = (uint64_t) (gsim_now / 10000);
    p->turn_at = GSIM_NEVER;

    gsim_globals_clear(&p->globals, &p->sentinel);

    p->next = gsim_processes;
    gsim_processes = p;

    return p;
}


void
gsim_process_kill(gsim_process_t *p)
{
    if (p->state == GSIM_DEAD) {
        return;
    }

    if (p->in_turn) {
        /* the process sleeps or stands still, and dies on waking up */
        p->doomed = 1;
        return;
    }

    gsim_say("process %d is killed", (int) p->pid);

    gsim_process_bury(p);
}


static void
gsim_process_bury(gsim_process_t *p)
{
    if (gsim_lurker == p) {
        gsim_lurker = NULL;
    }

    p->state = GSIM_DEAD;
    p->listens = 0;
    p->worker = NULL;
    p->turn_at = GSIM_NEVER;

    if (gsim_chance(20)) {
        /* another process gets the pid */
        p->stranger = 1;
        gsim_count.strangers++;
    }

    gsim_client_dead(p);
    gsim_process_free_memory(p);
    gsim_user_process_gone(p);
    gsim_look_gone(p);
    gsim_gateway_died(p);
}


void
gsim_process_free_memory(gsim_process_t *p)
{
    gsim_block_t  *block;

    while (p->blocks != NULL) {
        block = p->blocks;
        p->blocks = block->next;
        __real_free(block);
    }

    p->nblocks = 0;
}


/* Puts p's globals into nginx's, and returns the process before. */

gsim_process_t *
gsim_enter(gsim_process_t *p)
{
    gsim_process_t  *before;

    before = gsim_current;

    if (before != p) {
        gsim_globals_save(before);
        gsim_current = p;
        gsim_globals_load(p);
    }

    return before;
}


void
gsim_leave(gsim_process_t *before)
{
    (void) gsim_enter(before);
}


gsim_process_t *
gsim_enter_thread(gsim_process_t *p)
{
    gsim_in_thread = 1;

    return gsim_enter(p);
}


void
gsim_leave_thread(gsim_process_t *before)
{
    gsim_in_thread = 0;

    gsim_leave(before);
}


static void
gsim_globals_save(gsim_process_t *p)
{
    gsim_globals_t  *globals;

    globals = p ? &p->globals : &gsim_nobody;

    globals->timers = ngx_event_timer_rbtree;
    globals->msec = ngx_current_msec;

    gsim_queue_move(&globals->posted, &ngx_posted_events);
    gsim_queue_move(&globals->posted_next, &ngx_posted_next_events);

    gsim_library_save(globals);
}


static void
gsim_globals_load(gsim_process_t *p)
{
    gsim_globals_t  *globals;

    globals = p ? &p->globals : &gsim_nobody;

    ngx_event_timer_rbtree = globals->timers;
    ngx_current_msec = globals->msec;
    ngx_pid = p ? p->pid : 0;
    ngx_terminate = (p != NULL && p->terminates);

    gsim_queue_move(&ngx_posted_events, &globals->posted);
    gsim_queue_move(&ngx_posted_next_events, &globals->posted_next);

    gsim_library_load(globals);
}


static void
gsim_globals_clear(gsim_globals_t *globals, ngx_rbtree_node_t *sentinel)
{
    memset(globals, 0, sizeof(gsim_globals_t));

    ngx_rbtree_init(&globals->timers, sentinel, ngx_rbtree_insert_timer_value);
    ngx_queue_init(&globals->posted);
    ngx_queue_init(&globals->posted_next);

    globals->msec = (ngx_msec_t) (gsim_now / GSIM_MS);
}


static void
gsim_queue_move(ngx_queue_t *to, ngx_queue_t *from)
{
    ngx_queue_init(to);

    if (!ngx_queue_empty(from)) {
        ngx_queue_add(to, from);
        ngx_queue_init(from);
    }
}


/* turns */

int
gsim_turn(gsim_process_t *p, void (*act)(void *data), void *data)
{
    if (p->state == GSIM_DEAD || p->in_turn || gsim_stands(p)) {
        return 0;
    }

    p->outer = gsim_enter(p);
    memset(gsim_words, 0, sizeof(gsim_words));
    gsim_stored = NULL;

    gsim_fault_lurk(p);

    p->in_turn = 1;
    p->stood = 0;
    p->turned = gsim_now;

    if (setjmp(p->die) == 0) {

        if (act != NULL) {
            ngx_current_msec = (ngx_msec_t) (gsim_now / GSIM_MS);
            act(data);
        }

        if (p->listens || p->worker == NULL) {
            gsim_nginx_turn();
        }
    }

    p->in_turn = 0;

    gsim_leave(p->outer);

    if (p->doomed) {
        gsim_process_bury(p);

    } else {
        gsim_next_turn(p);
        gsim_worker_turned(p);
    }

    return 1;
}


int
gsim_wake_ready(gsim_process_t *p)
{
    return gsim_counts[p->wakeup.fd - GSIM_EVENT_FD] != 0;
}


static void
gsim_next_turn(gsim_process_t *p)
{
    ngx_rbtree_node_t  *node;

    p->turn_at = GSIM_NEVER;

    if (p->state == GSIM_DEAD || p->state == GSIM_MASTER) {
        return;
    }

    if (!ngx_queue_empty(&p->globals.posted_next)
        || !ngx_queue_empty(&p->globals.posted)
        || (p->listens && gsim_wake_ready(p)))
    {
        gsim_wake(p, gsim_now + gsim_between(2, 20));
        return;
    }

    if (p->globals.timers.root != p->globals.timers.sentinel) {
        node = ngx_rbtree_min(p->globals.timers.root,
                              p->globals.timers.sentinel);

        gsim_wake(p, (int64_t) node->key * GSIM_MS);
    }
}


void
gsim_wake(gsim_process_t *p, int64_t at)
{
    if (p->state == GSIM_DEAD || p->in_turn) {
        return;
    }

    if (at < gsim_now) {
        at = gsim_now;
    }

    if (at < p->turn_at) {
        p->turn_at = at;
        gsim_at(at, gsim_turn_event, p, ++p->turn_tag);
    }
}


static void
gsim_turn_event(void *data, uint64_t tag)
{
    gsim_process_t *p = data;

    if (tag != p->turn_tag || p->state == GSIM_DEAD || p->in_turn) {
        return;
    }

    p->turn_at = GSIM_NEVER;

    if (gsim_stands(p)) {
        gsim_wake(p, ngx_max(p->stopped, p->still));
        return;
    }

    (void) gsim_turn(p, NULL, NULL);
}


void
gsim_point(void)
{
    if (gsim_current != NULL) {
        gsim_fated(gsim_current, 0);
    }
}


/* Notes the words of the zone that the current process has read. */

void
gsim_load(void *p)
{
    if (gsim_current != NULL && gsim_current->lurks != 0
        && gsim_gateway_shares(gsim_current->gateway, p))
    {
        gsim_words[gsim_nwords++ % GSIM_WORDS] = p;
    }
}


void
gsim_store(void *p)
{
    int  i, half;

    if (gsim_current == NULL) {
        return;
    }

    if (gsim_lurker != NULL && gsim_current != gsim_lurker
        && (u_char *) p > gsim_lurks_at - GSIM_NEARBY
        && (u_char *) p < gsim_lurks_at + GSIM_NEARBY)
    {
        gsim_prodded = 1;
    }

    if (gsim_current->lurks != 0
        && gsim_gateway_shares(gsim_current->gateway, p))
    {
        /* between two stores another process sees only the first */

        half = (gsim_stored != NULL && p != gsim_stored
                && (u_char *) p > gsim_stored - GSIM_NEARBY
                && (u_char *) p < gsim_stored + GSIM_NEARBY
                && gsim_user_polls(gsim_gateway_record(gsim_current->gateway,
                                                       p)));

        for (i = 0; i < GSIM_WORDS; i++) {
            if (gsim_words[i] == p) {
                gsim_words[i] = NULL;
                half = 1;
            }
        }

        if (half) {
            gsim_lurk(gsim_current, p);
        }

        gsim_stored = p;
    }

    if (gsim_current != NULL && gsim_current->fate_in != 0
        && gsim_gateway_shares(gsim_current->gateway, p))
    {
        gsim_fated(gsim_current, 1);

        if (gsim_current->stores == 2
            && gsim_gateway_promise(gsim_current->gateway, p))
        {
            gsim_fated(gsim_current, 2);
        }
    }
}


int
gsim_stands(gsim_process_t *p)
{
    return p->stopped > gsim_now || p->still > gsim_now;
}


/* The process stands still: with all threads, or the event loop only. */

void
gsim_process_stop(gsim_process_t *p, int64_t us)
{
    if (gsim_chance(3)) {
        p->still = ngx_max(p->still, gsim_now + us);

    } else {
        p->stopped = ngx_max(p->stopped, gsim_now + us);
    }
}


/* p is about to write a word that p has read, or another word of a cell. */

static void
gsim_lurk(gsim_process_t *p, void *at)
{
    int64_t  until;

    if (!p->in_turn || gsim_in_thread || gsim_depth >= 4 || gsim_lurker != NULL
        || --p->lurks != 0)
    {
        return;
    }

    gsim_lurker = p;
    gsim_lurks_at = at;
    gsim_prodded = 0;

    until = gsim_now + gsim_between(1, 60) * GSIM_MS;

    gsim_say("process stands still between a read and a write");

    p->stood = 1;
    p->stopped = ngx_max(p->stopped, until);
    gsim_quiet = ngx_max(gsim_quiet, until + 4 * GSIM_S);

    gsim_user_prod(until - gsim_now, gsim_gateway_record(p->gateway, at));

    while (gsim_now < until && !gsim_prodded) {
        gsim_sleep(200);
    }

    gsim_count.lurks += gsim_prodded;

    p->stopped = gsim_now;
    gsim_lurker = NULL;
}


static void
gsim_fated(gsim_process_t *p, unsigned stores)
{
    int64_t  us;

    if (p->fate_in == 0 || p->stores != stores || !p->in_turn
        || gsim_in_thread || --p->fate_in != 0)
    {
        return;
    }

    us = p->fate;

    if (us != 0) {
        gsim_stand_still(p, us);
        return;
    }

    gsim_say("process dies in the middle of a turn%s",
             stores ? ", before a store" : "");
    gsim_count.midway++;
    gsim_count.stores += stores;

    p->doomed = 1;
    longjmp(p->die, 1);
}


static void
gsim_stand_still(gsim_process_t *p, int64_t us)
{
    if (gsim_depth >= 8) {
        return;
    }

    gsim_say("process stands still for %d ms in the middle of a turn",
             (int) (us / GSIM_MS));

    p->stood = 1;
    gsim_process_stop(p, us);
    gsim_quiet = ngx_max(gsim_quiet, gsim_now + us + 4 * GSIM_S);
    gsim_count.stops++;

    gsim_sleep(us);
}


void
gsim_sleep(int64_t us)
{
    gsim_process_t  *p;

    p = gsim_enter(NULL);

    gsim_depth++;
    gsim_run(gsim_now + us);
    gsim_depth--;

    gsim_leave(p);

    if (p != NULL && p->doomed) {
        longjmp(p->die, 1);
    }
}


/* memory: each block is in a list of the process */

void *
__wrap_malloc(size_t size)
{
    gsim_block_t    *block;
    gsim_process_t  *p;

    block = __real_malloc(sizeof(gsim_block_t) + size);
    if (block == NULL) {
        return NULL;
    }

    p = gsim_current;

    block->owner = p;
    block->size = size;
    block->next = NULL;
    block->back = NULL;

    if (p != NULL) {
        block->next = p->blocks;
        block->back = &p->blocks;

        if (p->blocks != NULL) {
            p->blocks->back = &block->next;
        }

        p->blocks = block;
        p->nblocks++;
    }

    return block + 1;
}


void *
__wrap_calloc(size_t n, size_t size)
{
    void  *p;

    p = __wrap_malloc(n * size);

    if (p != NULL) {
        memset(p, 0, n * size);
    }

    return p;
}


void *
__wrap_realloc(void *p, size_t size)
{
    void          *more;
    gsim_block_t  *block;

    more = __wrap_malloc(size);

    if (p != NULL && more != NULL) {
        block = (gsim_block_t *) p - 1;

        memcpy(more, p, block->size < size ? block->size : size);
        __wrap_free(p);
    }

    return more;
}


void *
__wrap_ngx_alloc(size_t size, ngx_log_t *log)
{
    return (!gsim_in_thread && gsim_fault_lacks())
           ? NULL : __real_ngx_alloc(size, log);
}


void *
__wrap_ngx_calloc(size_t size, ngx_log_t *log)
{
    return (!gsim_in_thread && gsim_fault_lacks())
           ? NULL : __real_ngx_calloc(size, log);
}


void
__wrap_free(void *p)
{
    gsim_block_t  *block;

    if (p == NULL) {
        return;
    }

    block = (gsim_block_t *) p - 1;

    if (block->owner != NULL) {

        if (block->owner != gsim_current) {
            gsim_violation("memory of process %d is freed by another process",
                           (int) block->owner->pid);
        }

        *block->back = block->next;

        if (block->next != NULL) {
            block->next->back = block->back;
        }

        block->owner->nblocks--;
    }

    __real_free(block);
}


/* time and chance */

int
__wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
    (void) clock;

    gsim_point();

    ts->tv_sec = gsim_now / GSIM_S;
    ts->tv_nsec = (gsim_now % GSIM_S) * 1000;

    return 0;
}


int
__wrap_usleep(useconds_t us)
{
    gsim_sleep(us);

    return 0;
}


long
__wrap_random(void)
{
    return (long) (gsim_random() & 0x7fffffff);
}


ssize_t
__wrap_getrandom(void *buf, size_t len, unsigned flags)
{
    size_t    i;
    uint8_t  *p = buf;

    (void) flags;

    for (i = 0; i < len; i++) {
        p[i] = (uint8_t) gsim_random();
    }

    return (ssize_t) len;
}


/* processes, seen from other processes */

static gsim_process_t *
gsim_process_find(ngx_pid_t pid)
{
    gsim_process_t  *p;

    for (p = gsim_processes; p != NULL && p->pid != pid; p = p->next) {
        /* void */
    }

    return p;
}


int
__wrap_kill(pid_t pid, int sig)
{
    gsim_process_t  *p;

    (void) sig;

    p = gsim_process_find(pid);

    if (p == NULL || (p->state == GSIM_DEAD && !p->stranger)) {
        errno = ESRCH;
        return -1;
    }

    return 0;
}


int
__wrap_open64(const char *path, int flags, ...)
{
    int              pid;
    gsim_process_t  *p;

    (void) flags;

    if (sscanf(path, "/proc/%d/stat", &pid) != 1) {
        errno = ENOENT;
        return -1;
    }

    p = gsim_process_find(pid);

    if (p == NULL || (p->state == GSIM_DEAD && !p->stranger)) {
        errno = ENOENT;
        return -1;
    }

    return GSIM_STAT_FD + pid;
}


int
__wrap_stat64(const char *path, struct stat *st)
{
    (void) path;

    memset(st, 0, sizeof(struct stat));
    errno = ENOENT;

    return -1;
}


/* descriptors */

int
__wrap_eventfd(unsigned count, int flags)
{
    int  i;

    (void) flags;

    for (i = 0; i < GSIM_EVENT_FDS; i++) {
        if (!gsim_open[i]) {
            gsim_open[i] = 1;
            gsim_counts[i] = count;

            return GSIM_EVENT_FD + i;
        }
    }

    errno = EMFILE;

    return -1;
}


ssize_t
__wrap_read(int fd, void *buf, size_t len)
{
    int              i, n;
    gsim_process_t  *p;

    if (fd >= GSIM_EVENT_FD) {
        i = fd - GSIM_EVENT_FD;

        if (gsim_counts[i] == 0) {
            errno = EAGAIN;
            return -1;
        }

        memcpy(buf, &gsim_counts[i], sizeof(uint64_t));
        gsim_counts[i] = 0;

        return sizeof(uint64_t);
    }

    p = gsim_process_find(fd - GSIM_STAT_FD);

    /* the 22nd field is the start */

    n = snprintf(buf, len, "%d (nginx) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 "
                 "0 %llu 0 0", (int) p->pid,
                 (unsigned long long) (p->start + (p->state == GSIM_DEAD)));

    return n;
}


ssize_t
__wrap_write(int fd, const void *buf, size_t len)
{
    gsim_process_t  *p;

    (void) buf;

    gsim_counts[fd - GSIM_EVENT_FD]++;

    for (p = gsim_processes; p != NULL; p = p->next) {
        if (p->listens && p->wakeup.fd == fd) {
            gsim_wake(p, gsim_now + gsim_between(5, 60));
        }
    }

    gsim_point();

    return (ssize_t) len;
}


int
__wrap_close(int fd)
{
    if (fd >= GSIM_EVENT_FD) {
        gsim_open[fd - GSIM_EVENT_FD] = 0;
    }

    return 0;
}


int
__wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    (void) how;
    (void) set;
    (void) old;

    return 0;
}
