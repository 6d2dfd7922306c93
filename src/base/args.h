
/*
 * A call's arguments, and the readers of a query string and of a JSON body.
 *
 * Plain C, no nginx, no ZooKeeper.  The caller owns args, which has a fixed
 * size.  Any thread may call the functions, but two threads must not use the
 * same args at the same time.
 */


#ifndef _ZKL_ARGS_H_INCLUDED_
#define _ZKL_ARGS_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/name.h"


/* bytes of a mode, a hold, an until or a sort */
#define ZKL_WORD_MAX            31

/* the most names of a call, and the most bytes of all names together */
#define ZKL_ARGS_NAMES_MAX       32
#define ZKL_NAMES_BYTES         2048

/* the names' bytes with a slash between each two names */
#define ZKL_NAMES_LEN           (ZKL_NAMES_BYTES + ZKL_ARGS_NAMES_MAX - 1)

/* bytes of a listing's cursor */
#define ZKL_AFTER_MAX           400

/* the most locks that a listing shows */
#define ZKL_LIMIT_MAX           1000


/* the arguments, as the bits of `given` and of `allowed` */

#define ZKL_ARG_WAIT            0x0001
#define ZKL_ARG_TTL             0x0002
#define ZKL_ARG_MODE            0x0004
#define ZKL_ARG_OWNER           0x0008
#define ZKL_ARG_DATA            0x0010
#define ZKL_ARG_HOLD            0x0020
#define ZKL_ARG_PERMITS         0x0040
#define ZKL_ARG_NAMES           0x0080      /* in a body only */
#define ZKL_ARG_UNTIL           0x0100
#define ZKL_ARG_PREFIX          0x0200
#define ZKL_ARG_LIMIT           0x0400
#define ZKL_ARG_AFTER           0x0800
#define ZKL_ARG_FORCE           0x1000      /* a bit of given, no value */
#define ZKL_ARG_REVOKE          0x2000      /* a bit of given, no value */
#define ZKL_ARG_DURABLE         0x4000      /* a bit of given, no value */
#define ZKL_ARG_HOLDERS         0x8000
#define ZKL_ARG_SORT            0x10000
#define ZKL_ARG_ID              0x20000     /* in a query: is not looked at */


typedef struct {
    unsigned        given;      /* ZKL_ARG_* */

    int64_t         wait;       /* milliseconds */
    int64_t         ttl;        /* milliseconds */

    uint32_t        permits;    /* 1 to ZKL_PERMITS_MAX */
    uint32_t        limit;      /* 1 to ZKL_LIMIT_MAX */
    uint32_t        nnames;     /* 1 to ZKL_ARGS_NAMES_MAX */
    uint32_t        holders;    /* 0 or 1 */

    size_t          mode_len;
    size_t          owner_len;
    size_t          data_len;
    size_t          hold_len;
    size_t          until_len;
    size_t          sort_len;
    size_t          prefix_len;
    size_t          after_len;
    size_t          names_len;

    char            mode[ZKL_WORD_MAX + 1];
    char            hold[ZKL_WORD_MAX + 1];
    char            until[ZKL_WORD_MAX + 1];
    char            sort[ZKL_WORD_MAX + 1];         /* "since", "waiting" */
    char            owner[ZKL_OWNER_MAX + 1];       /* UTF-8, no controls */
    char            prefix[ZKL_NAME_MAX + 1];       /* UTF-8, no controls */
    char            after[ZKL_AFTER_MAX + 1];       /* of base64url's letters */
    char            data[ZKL_DATA_MAX + 1];         /* compact JSON */

    /* checked names without duplicates, in byte order: "a/b/c" */
    char            names[ZKL_NAMES_LEN + 1];

    /* a sentence in UTF-8, if a read failed */
    char            error[ZKL_ERROR_MAX];
} zkl_args_t;


/* bytes of a name that an error shows, with the dots and the NUL */
#define ZKL_QUOTE_MAX           64


/*
 * Reads a query string ("wait=10s&owner=me", encoded as HTML forms are: "+" is
 * a blank) into args, which the caller zeroed.  allowed has the ZKL_ARG_* that
 * the call takes.  Returns 0, or -1 with args->error: an unknown, refused or
 * repeated argument, a broken escape, a bad value.
 */
int zkl_args_query_read(zkl_args_t *args, const char *query, size_t len,
    unsigned allowed);


/*
 * Reads a JSON body.  A field of the body replaces the same argument of a query
 * that was read before.  An empty body (or white space only) is fine.  Refused
 * are a body that is no object, wrong types, unknown, refused or repeated
 * fields, text behind the object, invalid UTF-8, and data that is too deep or
 * too long.  Returns 0, or -1 with args->error.
 */
int zkl_args_body_read(zkl_args_t *args, const char *text, size_t len,
    unsigned allowed);


#endif /* _ZKL_ARGS_H_INCLUDED_ */
