
/*
 * What src/ below http/ calls of nginx's core, beside t/lib/nginx_core.c, which
 * allocates the memory of the current process, and t/lib/nginx_tree.c.
 *
 * Written again, as plainly as can be: the turn of an event loop does what
 * ngx_process_events_and_timers() does.  The structures are nginx's own, and so
 * are the inline functions of the headers.
 */


#include <stdio.h>

#include "gsim.h"


/* the most posted events of a turn */
#define GSIM_POSTED         1000


volatile ngx_msec_t    ngx_current_msec;
volatile ngx_time_t   *ngx_cached_time;
volatile ngx_cycle_t  *ngx_cycle;
ngx_rbtree_t           ngx_event_timer_rbtree;
ngx_queue_t            ngx_posted_events;
ngx_queue_t            ngx_posted_next_events;
ngx_event_actions_t    ngx_event_actions;
ngx_uint_t             gsim_log_level;

static ngx_time_t      gsim_time;
static ngx_cycle_t     gsim_cycle;


static ngx_int_t gsim_event_add(ngx_event_t *ev, ngx_int_t event,
    ngx_uint_t flags);
static void gsim_expire_timers(void);
static u_char *gsim_vslprintf(u_char *buf, u_char *last, const char *fmt,
    va_list args);
static u_char *gsim_number(u_char *buf, u_char *last, uint64_t n, int minus,
    u_char zero, ngx_uint_t hex, ngx_uint_t width);
static u_char *gsim_copy(u_char *buf, u_char *last, const u_char *text,
    size_t len);


void
gsim_nginx_init(void)
{
    ngx_cached_time = &gsim_time;
    ngx_cycle = &gsim_cycle;
    ngx_process = NGX_PROCESS_WORKER;
    ngx_event_actions.add = gsim_event_add;

    ngx_str_set(&gsim_cycle.hostname, "simulated");
    gsim_cycle.connection_n = 512;

    ngx_queue_init(&ngx_posted_events);
    ngx_queue_init(&ngx_posted_next_events);
}


static ngx_int_t
gsim_event_add(ngx_event_t *ev, ngx_int_t event, ngx_uint_t flags)
{
    (void) ev;
    (void) event;
    (void) flags;

    gsim_current->listens = 1;
    gsim_wake(gsim_current, gsim_now);

    return NGX_OK;
}


/* Runs a turn of the current process's event loop. */

void
gsim_nginx_turn(void)
{
    ngx_uint_t        n;
    ngx_queue_t      *q;
    ngx_event_t      *ev;
    gsim_process_t   *p;

    n = 0;
    p = gsim_current;

    if (!ngx_queue_empty(&ngx_posted_next_events)) {

        for (q = ngx_queue_head(&ngx_posted_next_events);
             q != ngx_queue_sentinel(&ngx_posted_next_events);
             q = ngx_queue_next(q))
        {
            ev = ngx_queue_data(q, ngx_event_t, queue);
            ev->ready = 1;
        }

        ngx_queue_add(&ngx_posted_events, &ngx_posted_next_events);
        ngx_queue_init(&ngx_posted_next_events);
    }

    ngx_current_msec = (ngx_msec_t) (gsim_now / GSIM_MS);
    gsim_time.sec = 1700000000 + (gsim_now + gsim_wall) / GSIM_S;

    if (p->listens && gsim_wake_ready(p)) {
        p->wakeup.read->ready = 1;
        p->wakeup.read->handler(p->wakeup.read);
    }

    gsim_expire_timers();

    while (!ngx_queue_empty(&ngx_posted_events)) {
        q = ngx_queue_head(&ngx_posted_events);
        ev = ngx_queue_data(q, ngx_event_t, queue);

        ngx_delete_posted_event(ev);
        ev->handler(ev);

        if (++n == GSIM_POSTED) {
            gsim_violation("a turn of the event loop does not end");
        }
    }
}


static void
gsim_expire_timers(void)
{
    ngx_event_t        *ev;
    ngx_rbtree_node_t  *node;

    while (ngx_event_timer_rbtree.root != ngx_event_timer_rbtree.sentinel) {

        node = ngx_rbtree_min(ngx_event_timer_rbtree.root,
                              ngx_event_timer_rbtree.sentinel);

        if ((ngx_msec_int_t) (node->key - ngx_current_msec) > 0) {
            return;
        }

        ev = ngx_rbtree_data(node, ngx_event_t, timer);

        ngx_rbtree_delete(&ngx_event_timer_rbtree, &ev->timer);
        ev->timer_set = 0;
        ev->timedout = 1;

        ev->handler(ev);
    }
}


ngx_int_t
ngx_event_no_timers_left(void)
{
    ngx_event_t        *ev;
    ngx_rbtree_node_t  *node;

    if (ngx_event_timer_rbtree.root == ngx_event_timer_rbtree.sentinel) {
        return NGX_OK;
    }

    for (node = ngx_rbtree_min(ngx_event_timer_rbtree.root,
                               ngx_event_timer_rbtree.sentinel);
         node;
         node = ngx_rbtree_next(&ngx_event_timer_rbtree, node))
    {
        ev = ngx_rbtree_data(node, ngx_event_t, timer);

        if (!ev->cancelable) {
            return NGX_AGAIN;
        }
    }

    return NGX_OK;
}


/* The memory of the zone is zero at first, and never freed. */

void *
ngx_slab_calloc(ngx_slab_pool_t *pool, size_t size)
{
    u_char  *p;

    p = pool->start;

    if (p + size > pool->end) {
        return NULL;
    }

    pool->start = p + ngx_align(size, 64);

    return p;
}


ngx_pool_cleanup_t *
ngx_pool_cleanup_add(ngx_pool_t *pool, size_t size)
{
    (void) size;

    return pool->cleanup;
}


uint32_t
ngx_murmur_hash2(u_char *data, size_t len)
{
    return (uint32_t) ngx_hash_key(data, len) * 0x5bd1e995;
}


/* connections: only the wake-up */

ngx_connection_t *
ngx_get_connection(ngx_socket_t s, ngx_log_t *log)
{
    gsim_process_t  *p;

    p = gsim_current;

    ngx_memzero(&p->wakeup, sizeof(ngx_connection_t));
    ngx_memzero(&p->read, sizeof(ngx_event_t));
    ngx_memzero(&p->write, sizeof(ngx_event_t));

    p->wakeup.fd = s;
    p->wakeup.log = log;
    p->wakeup.read = &p->read;
    p->wakeup.write = &p->write;
    p->read.data = &p->wakeup;
    p->write.data = &p->wakeup;

    return &p->wakeup;
}


void
ngx_close_connection(ngx_connection_t *c)
{
    (void) c;

    gsim_current->listens = 0;
}


void
ngx_free_connection(ngx_connection_t *c)
{
    ngx_close_connection(c);
}


/* text */

u_char * ngx_cdecl
ngx_sprintf(u_char *buf, const char *fmt, ...)
{
    u_char   *p;
    va_list   args;

    va_start(args, fmt);
    p = gsim_vslprintf(buf, (u_char *) -1, fmt, args);
    va_end(args);

    return p;
}


void
ngx_log_error_core(ngx_uint_t level, ngx_log_t *log, ngx_err_t err,
    const char *fmt, ...)
{
    u_char   *p;
    va_list   args;
    u_char    text[1024];

    (void) log;

    va_start(args, fmt);
    p = gsim_vslprintf(text, text + sizeof(text) - 1, fmt, args);
    va_end(args);

    *p = '\0';

    if (level <= NGX_LOG_ALERT) {
        gsim_violation("the log says: %s (%d)", text, (int) err);
    }

    gsim_trace("%s%s", level == NGX_LOG_DEBUG ? "  " : "log: ", text);
}


static u_char *
gsim_vslprintf(u_char *buf, u_char *last, const char *fmt, va_list args)
{
    int          minus;
    size_t       len;
    u_char       zero;
    int64_t      n;
    ngx_str_t   *v;
    ngx_uint_t   width, hex, plain;
    const char  *s;

    for ( ; *fmt && buf < last; fmt++) {

        if (*fmt != '%') {
            *buf++ = (u_char) *fmt;
            continue;
        }

        zero = (*++fmt == '0') ? '0' : ' ';
        width = 0;
        hex = 0;
        plain = 0;
        len = (size_t) -1;

        while (*fmt >= '0' && *fmt <= '9') {
            width = width * 10 + (ngx_uint_t) (*fmt++ - '0');
        }

        for ( ;; fmt++) {
            if (*fmt == 'u') {
                plain = 1;

            } else if (*fmt == 'x' || *fmt == 'X') {
                hex = 1;
                plain = 1;

            } else if (*fmt == '*') {
                len = va_arg(args, size_t);

            } else {
                break;
            }
        }

        switch (*fmt) {

        case 'V':
            v = va_arg(args, ngx_str_t *);
            buf = gsim_copy(buf, last, v->data, v->len);
            continue;

        case 's':
            s = va_arg(args, const char *);
            buf = gsim_copy(buf, last, (const u_char *) s,
                            len == (size_t) -1 ? ngx_strlen(s) : len);
            continue;

        case 'c':
            *buf++ = (u_char) va_arg(args, int);
            continue;

        case 'Z':
            *buf++ = '\0';
            continue;

        case '%':
            *buf++ = '%';
            continue;

        case 'd':
        case 'D':
            n = plain ? (int64_t) va_arg(args, unsigned) : va_arg(args, int);
            break;

        case 'P':
            n = va_arg(args, ngx_pid_t);
            break;

        default: /* i, L, A, O, T, M, z, p */
            n = va_arg(args, int64_t);
            plain |= (*fmt == 'M' || *fmt == 'p');
            break;
        }

        minus = (!plain && n < 0);

        buf = gsim_number(buf, last, minus ? 0 - (uint64_t) n : (uint64_t) n,
                          minus, zero, hex, width);
    }

    return buf;
}


static u_char *
gsim_number(u_char *buf, u_char *last, uint64_t n, int minus, u_char zero,
    ngx_uint_t hex, ngx_uint_t width)
{
    u_char   digits[32];
    u_char  *p, *end;

    end = digits + sizeof(digits);
    p = end;

    do {
        *--p = (u_char) "0123456789abcdef"[n % (hex ? 16 : 10)];
        n /= (hex ? 16 : 10);
    } while (n != 0);

    if (minus) {
        *--p = '-';
    }

    for ( ; (ngx_uint_t) (end - p) < width && buf < last; width--) {
        *buf++ = zero;
    }

    return gsim_copy(buf, last, p, (size_t) (end - p));
}


static u_char *
gsim_copy(u_char *buf, u_char *last, const u_char *text, size_t len)
{
    if (last != (u_char *) -1 && len > (size_t) (last - buf)) {
        len = (size_t) (last - buf);
    }

    return ngx_cpymem(buf, text, len);
}
