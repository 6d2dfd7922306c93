
/*
 * A call's arguments: what they are.  zk_lock_query.h and zk_lock_body.h read
 * them.
 *
 * Plain C, no nginx, no ZooKeeper.  args is the caller's and of a fixed size.
 * Every function may be called from any thread, for one args by one at a time.
 */


#ifndef _ZK_LOCK_ARGS_H_INCLUDED_
#define _ZK_LOCK_ARGS_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "zk_lock_json.h"
#include "zk_lock_name.h"


/* bytes of a mode, a hold or an until */
#define ZK_LOCK_WORD_MAX        31

/* how many names there may be, and their bytes in all */
#define ZK_LOCK_NAMES_MAX       32
#define ZK_LOCK_NAMES_BYTES     2048

/* the same with a slash between each two */
#define ZK_LOCK_NAMES_LEN       (ZK_LOCK_NAMES_BYTES + ZK_LOCK_NAMES_MAX - 1)

/* bytes of what a listing's cursor looks like */
#define ZK_LOCK_AFTER_MAX       400

/* how many locks a listing shows at most */
#define ZK_LOCK_LIMIT_MAX       1000


/* the arguments, and those of them that were given */

#define ZK_LOCK_ARG_WAIT        0x0001
#define ZK_LOCK_ARG_TTL         0x0002
#define ZK_LOCK_ARG_MODE        0x0004
#define ZK_LOCK_ARG_OWNER       0x0008
#define ZK_LOCK_ARG_DATA        0x0010
#define ZK_LOCK_ARG_HOLD        0x0020
#define ZK_LOCK_ARG_PERMITS     0x0040
#define ZK_LOCK_ARG_NAMES       0x0080      /* in a body only */
#define ZK_LOCK_ARG_UNTIL       0x0100
#define ZK_LOCK_ARG_PREFIX      0x0200
#define ZK_LOCK_ARG_LIMIT       0x0400
#define ZK_LOCK_ARG_AFTER       0x0800
#define ZK_LOCK_ARG_FORCE       0x1000      /* given is all there is */
#define ZK_LOCK_ARG_REVOKE      0x2000      /* given is all there is */
#define ZK_LOCK_ARG_DURABLE     0x4000      /* given is all there is */


typedef struct {
    unsigned        given;      /* ZK_LOCK_ARG_* */

    int64_t         wait;       /* milliseconds */
    int64_t         ttl;        /* milliseconds */

    uint32_t        permits;    /* 1 to ZK_LOCK_PERMITS_MAX */
    uint32_t        limit;      /* 1 to ZK_LOCK_LIMIT_MAX */
    uint32_t        nnames;     /* 1 to ZK_LOCK_NAMES_MAX */

    size_t          mode_len;
    size_t          owner_len;
    size_t          data_len;
    size_t          hold_len;
    size_t          until_len;
    size_t          prefix_len;
    size_t          after_len;
    size_t          names_len;

    char            mode[ZK_LOCK_WORD_MAX + 1];
    char            hold[ZK_LOCK_WORD_MAX + 1];
    char            until[ZK_LOCK_WORD_MAX + 1];
    char            owner[ZK_LOCK_OWNER_MAX + 1];   /* UTF-8, no controls */
    char            prefix[ZK_LOCK_NAME_MAX + 1];   /* UTF-8, no controls */
    char            after[ZK_LOCK_AFTER_MAX + 1];   /* of base64url's letters */
    char            data[ZK_LOCK_DATA_MAX + 1];     /* compact JSON */

    /* each checked and there once, in the order of bytes: "a/b/c" */
    char            names[ZK_LOCK_NAMES_LEN + 1];

    /* a sentence in UTF-8, if a read failed */
    char            error[ZK_LOCK_ERROR_MAX];
} zk_lock_args_t;


/* for those who read them */

/* bytes of a name that an error shows, with the dots and the NUL */
#define ZK_LOCK_QUOTE_MAX       64

/*
 * The ZK_LOCK_ARG_* of a name, which must be allowed and not seen; kind is what
 * an error calls it.  Returns 0 with args->error if it is not one.
 */
unsigned zk_lock_args_field(zk_lock_args_t *args, const char *kind,
    const char *name, size_t len, unsigned allowed, unsigned *seen);

/* Reads a value, not of data or names.  Returns 0, or -1 with args->error. */
int zk_lock_args_set(zk_lock_args_t *args, unsigned field, const char *text,
    size_t len);

/* Adds one of the names.  Returns 0, or -1 with args->error. */
int zk_lock_args_name(zk_lock_args_t *args, const char *text, size_t len);

/* args->error: what field takes.  Returns -1. */
int zk_lock_args_refuse(zk_lock_args_t *args, unsigned field);

/*
 * args->error.  Returns -1.  What goes into format is this project's own or
 * through zk_lock_quote(), and short enough that nothing is cut off.
 */
int zk_lock_args_error(zk_lock_args_t *args, const char *format, ...);

/* What can be shown of text, in ZK_LOCK_QUOTE_MAX bytes at buf; that is it. */
const char *zk_lock_quote(char *buf, const char *text, size_t len);


#endif /* _ZK_LOCK_ARGS_H_INCLUDED_ */
