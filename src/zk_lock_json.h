
/*
 * Texts with structure: a call's arguments (query and JSON body), a claim's
 * label in ZooKeeper, and the JSON of answers.
 *
 * Plain C over yajl; zk_lock_json.c is the only file that includes it.  No
 * nginx, no ZooKeeper.  Memory is the caller's and of a fixed size, but for
 * the parser and the writer, which yajl allocates and which are always closed
 * by their functions here.  Every function may be called from any thread.
 */


#ifndef _ZK_LOCK_JSON_H_INCLUDED_
#define _ZK_LOCK_JSON_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>


/* bytes of an owner label */
#define ZK_LOCK_OWNER_MAX       255

/* bytes of a data label, as compact JSON */
#define ZK_LOCK_DATA_MAX        1024

/* how deep the JSON of a data label may be nested */
#define ZK_LOCK_DATA_DEPTH      16

/* bytes of a label as it is written to ZooKeeper */
#define ZK_LOCK_LABEL_MAX       (ZK_LOCK_OWNER_MAX + ZK_LOCK_DATA_MAX + 128)

#define ZK_LOCK_WORD_MAX        31


/* the arguments, and those of them that were given */

#define ZK_LOCK_ARG_WAIT        0x0001
#define ZK_LOCK_ARG_TTL         0x0002
#define ZK_LOCK_ARG_MODE        0x0004
#define ZK_LOCK_ARG_OWNER       0x0008
#define ZK_LOCK_ARG_DATA        0x0010
#define ZK_LOCK_ARG_HOLD        0x0020


typedef struct {
    unsigned        given;      /* ZK_LOCK_ARG_* */

    int64_t         wait;       /* milliseconds */
    int64_t         ttl;        /* milliseconds */

    size_t          mode_len;
    size_t          owner_len;
    size_t          data_len;
    size_t          hold_len;

    char            mode[ZK_LOCK_WORD_MAX + 1];
    char            hold[ZK_LOCK_WORD_MAX + 1];
    char            owner[ZK_LOCK_OWNER_MAX + 1];   /* UTF-8, no controls */
    char            data[ZK_LOCK_DATA_MAX + 1];     /* compact JSON */

    char            error[256]; /* a sentence in UTF-8, if a read failed */
} zk_lock_args_t;


typedef struct zk_lock_body_s  zk_lock_body_t;
typedef struct zk_lock_json_s  zk_lock_json_t;


/*
 * Reads a query string ("wait=10s&owner=me", percent-encoded, "+" stays a
 * plus) into args, which the caller zeroed.  allowed is the ZK_LOCK_ARG_*
 * that the call takes.  Returns 0, or -1 with args->error: an unknown, refused
 * or repeated argument, a broken escape, a bad value.
 */
int zk_lock_args_query(zk_lock_args_t *args, const char *query, size_t len,
    unsigned allowed);

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


/*
 * A claim's label: the data of its znode.  The owner is the first line, so
 * that clients of other kinds that show a claim's data show the owner; then
 * comes what gateways tell each other, as JSON:
 *
 *     OWNER\n{"index":"0f","ttl":60000,"data":{"any":"JSON"}}
 *
 * index is the claim's place among the creates of its transaction, two
 * hexadecimal digits that the session floor writes when it knows them.
 */

typedef struct {
    size_t          owner_len;
    size_t          data_len;       /* 0: none */
    int64_t         ttl;            /* milliseconds, 0: unknown */
    int             index;          /* -1: not a gateway's claim */
    char            owner[ZK_LOCK_OWNER_MAX + 1];
    char            data[ZK_LOCK_DATA_MAX + 1];
} zk_lock_label_t;

/*
 * Writes label to buf (room for ZK_LOCK_LABEL_MAX bytes).  Returns its length;
 * *index_at is the offset of the two digits of index.  No NUL.
 */
size_t zk_lock_label_write(char *buf, const zk_lock_label_t *label,
    size_t *index_at);

/*
 * Reads a znode's data.  Never fails: of what is not a gateway's label, the
 * first line becomes the owner if it is UTF-8 without control characters and
 * not too long, else the owner is empty.
 */
void zk_lock_label_read(zk_lock_label_t *label, const char *text, size_t len);


/*
 * Writes JSON.  zk_lock_json_open() returns NULL if there is no memory; all
 * other functions take NULL for that, remember any failure, and report it in
 * zk_lock_json_text().  Keys are C strings; inside an array key is NULL.
 */
zk_lock_json_t *zk_lock_json_open(void);
void zk_lock_json_object(zk_lock_json_t *json, const char *key);
void zk_lock_json_array(zk_lock_json_t *json, const char *key);
void zk_lock_json_end_object(zk_lock_json_t *json);
void zk_lock_json_end_array(zk_lock_json_t *json);
void zk_lock_json_string(zk_lock_json_t *json, const char *key,
    const char *text, size_t len);
void zk_lock_json_integer(zk_lock_json_t *json, const char *key,
    int64_t value);
/* text is valid compact JSON already */
void zk_lock_json_raw(zk_lock_json_t *json, const char *key,
    const char *text, size_t len);

/*
 * Returns the text, which lives until the writer is closed, and sets *len; or
 * NULL if anything failed (no memory, a string that is not UTF-8).
 */
const char *zk_lock_json_text(zk_lock_json_t *json, size_t *len);
void zk_lock_json_close(zk_lock_json_t *json);


#endif /* _ZK_LOCK_JSON_H_INCLUDED_ */
