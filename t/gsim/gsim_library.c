
/*
 * The real library file, taken in as it is, so that its statics, one set a
 * process, can change with the process.
 */


#include "../../src/ngx_http_zk_lock_library.c"

#include "gsim.h"


void
gsim_library_save(gsim_globals_t *globals)
{
    globals->mailbox = ngx_http_zk_lock_library_mailbox;
    globals->lines = ngx_http_zk_lock_library_lines;
    globals->dropped = ngx_http_zk_lock_library_dropped;
    globals->log = ngx_http_zk_lock_library_cycle_log;
}


void
gsim_library_load(gsim_globals_t *globals)
{
    ngx_http_zk_lock_library_mailbox = globals->mailbox;
    ngx_http_zk_lock_library_lines = globals->lines;
    ngx_http_zk_lock_library_dropped = globals->dropped;
    ngx_http_zk_lock_library_cycle_log = globals->log;
}
