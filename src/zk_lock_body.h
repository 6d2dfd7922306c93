
/*
 * Reads a call's arguments from a JSON body.  Plain C; any thread, for one body
 * by one at a time.
 */


#ifndef _ZK_LOCK_BODY_H_INCLUDED_
#define _ZK_LOCK_BODY_H_INCLUDED_


#include "zk_lock_args.h"


typedef struct zk_lock_body_s  zk_lock_body_t;


/*
 * Reads a JSON body piece by piece.  What the body gives takes the place of
 * what args has from a query already.  An empty body (or white space only) is
 * fine, anything but one object of known fields is not: wrong types, unknown,
 * refused or repeated fields, text behind the object, invalid UTF-8, a data
 * label that is too deep or too long.  zk_lock_body_open() returns NULL if
 * there is no memory.  zk_lock_body_feed() and zk_lock_body_close() return 0,
 * or -1 with args->error (after which feed must not be called again); close
 * always frees body.
 */
zk_lock_body_t *zk_lock_body_open(zk_lock_args_t *args, unsigned allowed);
int zk_lock_body_feed(zk_lock_body_t *body, const char *text, size_t len);
int zk_lock_body_close(zk_lock_body_t *body);


#endif /* _ZK_LOCK_BODY_H_INCLUDED_ */
