
/*
 * The world of layout.c, doorbell.c, zone.c, record.c and seq_index.c in
 * src/shm/, without nginx and without other processes: the functions of nginx
 * that these files call, the clock, and the kernel's knowledge of processes.
 *
 * t/lib/nginx_core.c has the parts of nginx's core that any test without nginx
 * needs; here are the functions that only these files call.  kill(), open(),
 * read(), write(), close() and eventfd() go through here (ld's --wrap): for
 * /proc/PID/stat and wake-ups stub_process() decides, else the kernel.
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

/* the last handler of a pool's end; the fuzzer calls the handler */
extern ngx_pool_cleanup_t  stub_cleanup;

/* no process lives, and the clock is set back */
void stub_reset(void);

/* a process lives from now on, or is dead if start is 0 */
void stub_process(ngx_pid_t pid, uint64_t start);

/* this process has the pid from now on */
void stub_become(ngx_pid_t pid);


#endif /* _NGX_STUB_H_INCLUDED_ */
