
/*
 * Lock names, claim names and tokens.
 *
 * Plain C, no I/O, no allocation, no nginx, no ZooKeeper.  Any thread may call
 * the functions.  Inputs are a pointer and a length and need not end in NUL;
 * outputs go to a buffer of the caller, of the size given at each function.
 */


#ifndef _ZKL_NAME_H_INCLUDED_
#define _ZKL_NAME_H_INCLUDED_


#include "base/text.h"


/* bytes of the name of a lock's znode */
#define ZKL_NAME_MAX            200

/* bytes of a SHA-1, and of "%sha1-" with the digits */
#define ZKL_SHA1_LEN            20
#define ZKL_SHA1_TEXT           (6 + 2 * ZKL_SHA1_LEN)

/* bytes of a lock's path, root and name together */
#define ZKL_PATH_MAX            463

/* bytes of the random part of a claim's id, and of the id */
#define ZKL_RANDOM_LEN          12
#define ZKL_ID_BYTES            (ZKL_RANDOM_LEN + 4)

/* bytes of a token, without a NUL */
#define ZKL_TOKEN_LEN           32

/* bytes of "_c_UUID-permit1000-", the longest prefix, without a NUL */
#define ZKL_PREFIX_MAX          51

/* bytes of a claim's name up to the end of the first 8 bytes of the id */
#define ZKL_PREFIX_KEY          21

/* bytes of the longest claim name that a gateway makes, without a NUL */
#define ZKL_CLAIM_MAX           (ZKL_PREFIX_MAX + 10)

/*
 * The counter of a parent (ZooKeeper: DataNode.stat.cversion) stays at this
 * number, and then claims have no order any more.
 */
#define ZKL_SEQ_MAX             2147483647


/*
 * How a claim takes part in the lock, as the claim's name shows.  A semaphore's
 * mode includes the permits.  The layouts come from Curator's InterProcessMutex
 * ("-lock-") and InterProcessReadWriteLock ("-__READ__", "-__WRIT__"), from
 * kazoo ("__lock__", "__rlock__"), and from this module.
 */

typedef uint32_t  zkl_mode_t;

#define ZKL_MUTEX               0   /* exclusive */
#define ZKL_READ                1   /* shared, blocked by a writer or a mutex */
#define ZKL_WRITE               2   /* exclusive, in the read-write layout */
#define ZKL_MEMBER              3   /* takes part, and blocks no member */
#define ZKL_SEMAPHORE           4   /* the base of a mode with permits */
#define ZKL_NODE                5   /* exclusive; the claim is the lock's own
                                       znode: no claim name, seq 0 */

/* the most permits of a semaphore; the least is 1 */
#define ZKL_PERMITS_MAX         1000

#define zkl_semaphore(permits)                                                 \
    (ZKL_SEMAPHORE | ((zkl_mode_t) (permits) << 8))

#define zkl_mode_base(mode)         ((mode) & 0xff)
#define zkl_mode_permits(mode)      ((mode) >> 8)


/*
 * The id in a claim's name: random bytes that no client can guess, and the
 * index of the claim's record in the gateway's zone.
 */

typedef struct {
    uint8_t         random[ZKL_RANDOM_LEN];
    uint32_t        record;
} zkl_id_t;


/* a child of a lock's znode, read from the child's name */

typedef struct {
    int64_t         seq;
    zkl_mode_t      mode;
    unsigned        has_id:1;   /* id is set: "_c_UUID-..." */
    zkl_id_t        id;
} zkl_child_t;


typedef struct {
    zkl_id_t        id;
    int64_t         seq;
    zkl_mode_t      mode;
} zkl_token_t;


/* Returns 1 if mode is a mode above, and a semaphore's with valid permits. */
int zkl_name_mode_check(zkl_mode_t mode);

/*
 * Checks the name of a lock's znode, a single path segment.  Returns NULL if
 * the name is usable, or a static sentence with the fault: empty, too long,
 * "/", ".", "..", "zookeeper", not UTF-8, or a character that a znode's name
 * cannot hold (ZooKeeper Programmer's Guide, "The ZooKeeper Data Model").
 */
const char *zkl_name_check(const char *name, size_t len);

/*
 * Writes a text as a lock's name to buf.  "/" and "%2F" are slashes, which
 * become "%2F"; slashes in a row are one, and a slash at the beginning is left
 * out, unless nothing follows.  So a name is written as itself.  Returns the
 * length, at most 3 * len; buf may be NULL.
 */
size_t zkl_name_write(char *buf, const char *text, size_t len);

/*
 * The same for a text that is no name, such as a URI: "%2F" is no slash, and
 * becomes "%252F".  The name that is written is never that of a hash.
 */
size_t zkl_name_text_write(char *buf, const char *text, size_t len);

/*
 * Returns 1 if name ends as zkl_name_hash_write() writes: the znode of a name
 * that no znode can have.
 */
int zkl_name_hash_check(const char *name, size_t len);

/*
 * Returns NULL, or a static sentence that says why a client cannot acquire a
 * lock of that name: the name is empty, "." or "..", or that of a hash.
 */
const char *zkl_name_refuse(const char *name, size_t len);

/*
 * Writes to buf, which has room for ZKL_NAME_MAX bytes, the name of the znode
 * for a lock's name that zkl_name_check() refuses: as many characters from the
 * beginning as fit and a znode's name can have, "%sha1-", and the SHA-1 of the
 * whole name, in hexadecimal digits.  Returns the length; no NUL.
 */
size_t zkl_name_hash_write(char *buf, const char *name, size_t len,
    const uint8_t *sha1);

/*
 * Checks an absolute znode path, such as a root.  "/" alone is fine, a slash
 * at the end is not.  Returns NULL or a static sentence.
 */
const char *zkl_name_path_check(const char *path, size_t len);

/*
 * Writes the part of a claim's name before the seq ("_c_UUID-lock-") to buf,
 * which has room for ZKL_PREFIX_MAX bytes.  zkl_name_mode_check() must accept
 * mode.  Returns the length, 0 for ZKL_NODE; no NUL.
 */
size_t zkl_name_prefix_write(char *buf, const zkl_id_t *id, zkl_mode_t mode);

/*
 * Writes a claim's whole name, with the seq (0 to ZKL_SEQ_MAX) in ten digits,
 * to buf, which has room for ZKL_CLAIM_MAX bytes.  Returns the length, 0 for
 * ZKL_NODE; no NUL.
 */
size_t zkl_name_claim_write(char *buf, const zkl_id_t *id, zkl_mode_t mode,
    int64_t seq);

/*
 * Reads the name of a lock's child.  Returns 0 and fills child, or -1 if the
 * name is no claim of a known layout: that child takes no part in the lock.
 * Accepted before the ten digits: "-lock-", "lock-" at the start, "__lock__",
 * "__rlock__", "-__READ__", "-__WRIT__"; and, directly behind "_c_UUID", the
 * gateways' own "-member-" and "-permitK-", where K is decimal, 1 to
 * ZKL_PERMITS_MAX.  A negative number (an overflown counter of an old server)
 * is read as ZKL_SEQ_MAX.
 */
int zkl_name_child_read(zkl_child_t *child, const char *name, size_t len);

/*
 * Writes a token, ZKL_TOKEN_LEN URL-safe bytes, no NUL.  path is the lock's
 * whole path: a hash of the path and the token, of 16 bits, shows a token of
 * another lock and a mistyped token without a call to ZooKeeper.  The hash is
 * no secret; the id is the secret.
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
 * Returns 1 if the len bytes at a and b are equal, else 0, in the same time.
 * No other function may compare a client's bytes with the random part of an
 * id, because the time of memcmp() would help to guess the id.
 */
int zkl_name_secret_equal(const void *a, const void *b, size_t len);

/*
 * Returns a number that tells claims apart (base/view.h): of the whole random
 * part, because claims with the same key share its beginning.
 */
uint64_t zkl_name_who(const zkl_id_t *id);

/* Writes an id as ZKL_ID_BYTES bytes, and reads the bytes. */
void zkl_name_id_pack(uint8_t *bytes, const zkl_id_t *id);
void zkl_name_id_unpack(zkl_id_t *id, const uint8_t *bytes);

/* Reads a big-endian number of four bytes. */
uint32_t zkl_name_uint32_read(const uint8_t *bytes);

/*
 * Returns how many bytes of a znode's path may be written to a log: all, or
 * the bytes in front of a claim's UUID, because the UUID gives the token away.
 */
size_t zkl_name_path_shown(const char *path, size_t len);


#endif /* _ZKL_NAME_H_INCLUDED_ */
