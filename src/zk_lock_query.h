
/*
 * Reads a call's arguments from a query string.  Plain C; any thread.
 */


#ifndef _ZK_LOCK_QUERY_H_INCLUDED_
#define _ZK_LOCK_QUERY_H_INCLUDED_


#include "zk_lock_args.h"


/*
 * Reads a query string ("wait=10s&owner=me", encoded as HTML forms are: "+" is
 * a blank) into args, which the caller zeroed.  allowed is the ZK_LOCK_ARG_*
 * that the call takes.  Returns 0, or -1 with args->error: an unknown, refused
 * or repeated argument, a broken escape, a bad value.
 */
int zk_lock_query_read(zk_lock_args_t *args, const char *query, size_t len,
    unsigned allowed);


#endif /* _ZK_LOCK_QUERY_H_INCLUDED_ */
