
/*
 * The world of src/shm/layout.c, _ring.c, _zone.c, _record.c, _held.c
 * and _board.c, without nginx and without other processes: what they call of
 * nginx, the clock, and the part of the kernel that knows of processes.
 *
 * What any test without nginx needs of its core is in t/lib/nginx_core.c, what
 * only these files call is here.  kill(), open(), read(), write(), close() and
 * eventfd() go through here (ld's --wrap): of /proc/PID/stat and of wake-ups
 * they know what stub_process() says, and all else is the kernel's.
 */


#ifndef _NGX_STUB_H_INCLUDED_
#define _NGX_STUB_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define STUB_PROCESSES  8

extern ngx_log_t      stub_log;
extern ngx_msec_t     stub_clock;
extern size_t         stub_slab_size;   /* of the last block of a slab */
extern void          *stub_slab;
extern ngx_uint_t     stub_wakes;

/* the last handler of a pool's end; it is for the fuzzer to call */
extern ngx_pool_cleanup_t  stub_cleanup;

/* no process lives, and the clock is set back */
void stub_reset(void);

/* a process lives from now on, or, with start 0, does no more */
void stub_process(ngx_pid_t pid, uint64_t start);

/* this process is pid from now on */
void stub_become(ngx_pid_t pid);


#endif /* _NGX_STUB_H_INCLUDED_ */
