
/*
 * Lock names, claim names and tokens: the texts that cross a border.
 *
 * Plain C, no I/O, no allocation, no nginx, no ZooKeeper.  Every function may
 * be called from any thread.  Inputs are a pointer and a length and need not
 * end in NUL; outputs go to the caller's buffer, whose size is given beside
 * each function.  Nothing is ever rewritten: a text is taken as it is, or it
 * is refused with a sentence that says why.
 */


#ifndef _ZKL_NAME_H_INCLUDED_
#define _ZKL_NAME_H_INCLUDED_


#include "base/text.h"


/* bytes of a lock's name */
#define ZKL_NAME_MAX            200

/* bytes of a lock's path, root and name together */
#define ZKL_PATH_MAX            463

/* bytes of the random part of a claim's id */
#define ZKL_RANDOM_LEN          12

/* bytes of a token, without a NUL */
#define ZKL_TOKEN_LEN           32

/* bytes of "_c_UUID-permit1000-", the longest prefix, without a NUL */
#define ZKL_PREFIX_MAX          51

/* bytes of the longest claim name that is ours, without a NUL */
#define ZKL_CLAIM_MAX           (ZKL_PREFIX_MAX + 10)

/*
 * The counter of a parent sticks here (ZooKeeper: DataNode.stat.cversion), and
 * claims cannot be put in an order any more.
 */
#define ZKL_SEQ_MAX             2147483647


/*
 * A kind is how a claim takes part in its lock, as its name says it; the kind
 * of a semaphore's claim has the semaphore's permits in it, so that two claims
 * are of one use if their kinds are equal.  The layouts are those of Curator's
 * InterProcessMutex ("-lock-") and InterProcessReadWriteLock ("-__READ__",
 * "-__WRIT__"), of kazoo ("__lock__", "__rlock__"), and our own.
 */

typedef uint32_t  zkl_kind_t;

#define ZKL_MUTEX               0   /* exclusive */
#define ZKL_READ                1   /* shared, blocked by a writer or a mutex */
#define ZKL_WRITE               2   /* exclusive, in the read-write layout */
#define ZKL_MEMBER              3   /* takes part, and keeps nobody waiting */
#define ZKL_SEMAPHORE           4   /* the base of a kind with permits */
#define ZKL_NODE                5   /* exclusive, and the lock's own znode: it
                                       has no name of a claim, and seq 0 */

/* the permits of a semaphore are 1 to this */
#define ZKL_PERMITS_MAX         1000

#define zkl_semaphore(permits)                                                 \
    (ZKL_SEMAPHORE | ((zkl_kind_t) (permits) << 8))

#define zkl_kind_base(kind)         ((kind) & 0xff)
#define zkl_kind_permits(kind)      ((kind) >> 8)


/*
 * The id in a claim's name: random bytes that nobody can guess, and the index
 * of the claim's record in its gateway's zone.
 */

typedef struct {
    uint8_t         random[ZKL_RANDOM_LEN];
    uint32_t        record;
} zkl_id_t;


/* a child of a lock's znode, as far as its name tells */

typedef struct {
    int64_t         seq;
    zkl_kind_t      kind;
    unsigned        has_id:1;   /* id is set: "_c_UUID-..." */
    zkl_id_t        id;
} zkl_child_t;


typedef struct {
    zkl_id_t        id;
    int64_t         seq;
    zkl_kind_t      kind;
} zkl_token_t;


/* Returns 1 if kind is one of those above, with permits if it needs them. */
int zkl_name_kind_check(zkl_kind_t kind);

/*
 * Checks a lock's name, one path segment.  Returns NULL if it can be used, or
 * a static sentence that says what is wrong: empty, too long, "/", ".", "..",
 * "zookeeper", not UTF-8, or a character that a znode's name cannot hold
 * (ZooKeeper Programmer's Guide, "The ZooKeeper Data Model").
 */
const char *zkl_name_check(const char *name, size_t len);

/*
 * Checks an absolute znode path, such as a root.  "/" alone is fine, a slash
 * at the end is not.  Returns NULL or a static sentence.
 */
const char *zkl_name_path_check(const char *path, size_t len);

/*
 * Writes the part of a claim's name before its seq ("_c_UUID-lock-") to buf,
 * which has room for ZKL_PREFIX_MAX bytes.  kind is one that
 * zkl_name_kind_check() takes.  Returns its length, 0 for ZKL_NODE; no NUL.
 */
size_t zkl_name_prefix_write(char *buf, const zkl_id_t *id, zkl_kind_t kind);

/*
 * Writes a claim's whole name, with its seq (0 to ZKL_SEQ_MAX) in ten
 * digits, to buf, which has room for ZKL_CLAIM_MAX bytes.  Returns its
 * length, 0 for ZKL_NODE; no NUL.
 */
size_t zkl_name_claim_write(char *buf, const zkl_id_t *id, zkl_kind_t kind,
    int64_t seq);

/*
 * Reads the name of a lock's child.  Returns 0 and fills child, or -1 if the
 * name is no claim of a known layout: such a child takes no part in the lock.
 * Accepted before the ten digits: "-lock-", "lock-" at the start, "__lock__",
 * "__rlock__", "-__READ__", "-__WRIT__"; and behind "_c_UUID" alone, as only
 * gateways write them, "-member-" and "-permitK-", where K is decimal, 1 to
 * ZKL_PERMITS_MAX.  A negative number (an overflown counter of an old
 * server) is read as ZKL_SEQ_MAX.
 */
int zkl_name_child_read(zkl_child_t *child, const char *name, size_t len);

/*
 * Writes a token, ZKL_TOKEN_LEN URL-safe bytes, no NUL.  path is the
 * lock's whole path: a few bits of its hash make a token of another lock, a
 * truncated or a mistyped one known as such without asking anybody.  They are
 * no secret; the secret is the id.
 */
void zkl_name_token_write(char *buf, const zkl_token_t *token,
    const char *path, size_t path_len);

/*
 * Reads a token of the lock at path.  Returns 0, or -1 if text is no token of
 * that lock.
 */
int zkl_name_token_read(zkl_token_t *token, const char *text, size_t len,
    const char *path, size_t path_len);

/*
 * Returns 1 if the len bytes at a and b are equal, else 0, and takes as long
 * for one as for the other: no other function compares what a client gave with
 * the random part of an id.
 */
int zkl_name_secret_equal(const void *a, const void *b, size_t len);

/*
 * Returns how many bytes of a znode's path may be written to a log: all, or
 * those up to the UUID of a claim, from which its token could be made.
 */
size_t zkl_name_path_shown(const char *path, size_t len);


#endif /* _ZKL_NAME_H_INCLUDED_ */
