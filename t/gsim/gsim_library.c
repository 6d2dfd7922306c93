
/*
 * The real zk/client.c, included unchanged, so that the file's statics, a set
 * for each process, can change with the process.
 */


#include "../../src/zk/client.c"

#include "gsim.h"


void
gsim_library_save(gsim_globals_t *globals)
{
    globals->mailbox = zkl_client_mailbox;
    globals->lines = zkl_client_lines;
    globals->dropped = zkl_client_dropped;
    globals->log = zkl_client_cycle_log;
}


void
gsim_library_load(gsim_globals_t *globals)
{
    zkl_client_mailbox = globals->mailbox;
    zkl_client_lines = globals->lines;
    zkl_client_dropped = globals->dropped;
    zkl_client_cycle_log = globals->log;
}
