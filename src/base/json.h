
/*
 * JSON, read piece by piece and written: the reader of bodies and labels, and
 * the writer of answers.
 *
 * Plain C over yajl; zk_lock_json.c is the only file that includes it.  No
 * nginx, no ZooKeeper.  Every function may be called from any thread, for one
 * reader or writer by one at a time.
 */


#ifndef _ZKL_JSON_H_INCLUDED_
#define _ZKL_JSON_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"


/* bytes of an owner, in arguments and in labels */
#define ZKL_OWNER_MAX           255

/* bytes of data, in arguments and in labels, as compact JSON */
#define ZKL_DATA_MAX            1024

/* how deep the JSON of data may be nested */
#define ZKL_DATA_DEPTH          16

/* the longest string or number in a text, as it is spelled there */
#define ZKL_TOKEN_MAX           8192

/* bytes of an error, with its NUL */
#define ZKL_ERROR_MAX           256

/*
 * Bytes that a reader takes: two buffers, which grow from 2048 bytes to twice
 * the longest token, and whose older and shorter blocks stay where they are,
 * and some structures of about a KiB in all.  A reader of short texts does
 * with less.
 */
#define ZKL_JSON_READER_MEMORY   (8 * ZKL_TOKEN_MAX)


typedef enum {
    ZKL_NULL = 0,
    ZKL_BOOLEAN,                /* text is "true" or "false" */
    ZKL_NUMBER,
    ZKL_STRING,
    ZKL_OBJECT,
    ZKL_ARRAY
} zkl_type_e;


/* what is to be done with a member's value */

typedef enum {
    ZKL_VALUE_NONE = 0,         /* no such member: the text is refused */
    ZKL_VALUE_SET,              /* give it to `set` */
    ZKL_VALUE_STRING,           /* give it to `set` if it is a string */
    ZKL_VALUE_LIST,             /* an array: give its strings to `set` */
    ZKL_VALUE_COPIED,           /* to data; for one value of a text only */
    ZKL_VALUE_SKIPPED
} zkl_value_e;


/*
 * Called for each member of the object with its name in UTF-8, which is not
 * kept.  Who returns ZKL_VALUE_NONE has written the error.
 */
typedef zkl_value_e (*zkl_json_reader_key_pt)(void *owner, const char *name,
    size_t len);

/*
 * Takes the value of the last key, UTF-8 that is not kept; an object or an
 * array, which it must refuse, has the text NULL.  Of a list it takes the
 * strings, one by one, and then once ZKL_ARRAY for the end; whatever is no
 * array, or no string in it, comes as ZKL_NULL, which it must refuse.
 * Returns 0, or -1 and has written the error.
 */
typedef int (*zkl_json_reader_set_pt)(void *owner, zkl_type_e type,
    const char *text, size_t len);


typedef struct {

    /* what the caller sets, in a structure of zeros, and keeps till close */

    zkl_json_reader_key_pt   key;       /* NULL: the text is a value, copied */
    zkl_json_reader_set_pt   set;       /* NULL if key never asks for it */
    void                    *owner;     /* for key and set */
    const char              *what;      /* is read, for an error; short */
    char                    *data;      /* ZKL_DATA_MAX bytes and a NUL */
    size_t                  *data_len;  /* 0 before the value is copied */
    char                    *error;     /* ZKL_ERROR_MAX bytes, or NULL */
    unsigned                 optional:1;    /* white space alone will do */

    /* the reader's own */

    void                    *parser;
    void                    *gen;
    zkl_memory_t             memory;

    zkl_value_e              value;     /* what comes next, or is in work */
    unsigned                 nested;    /* open brackets in that value */
    size_t                   behind;    /* in a slice: where it is over */

    unsigned                 escape;    /* place in "\uXXXX", 0: outside */
    unsigned                 unit;      /* value of XXXX so far */

    unsigned                 surrogate:1;   /* the second one comes next */
    unsigned                 overflow:1;    /* data is too long */
    unsigned                 begun:1;       /* there was more than space */
    unsigned                 over:1;        /* the whole value was there */
    unsigned                 failed:1;
} zkl_json_reader_t;


/*
 * Starts to read a text that is one object (or, without a key, any one value).
 * memory is size bytes, of which the reader makes use until it is closed.
 * Returns 0, or -1 if there is no memory, and then nothing is to be closed.
 */
int zkl_json_reader_open(zkl_json_reader_t *r, char *memory, size_t size);

/*
 * Reads the next len bytes, which are not kept.  Returns 0, or -1 with a
 * sentence in error: no JSON, no UTF-8 (strings and names), half a surrogate
 * pair, a token that is too long, data that is too long or too deep, or what
 * key and set refused.  After that it does nothing more.
 */
int zkl_json_reader_feed(zkl_json_reader_t *r, const char *text, size_t len);

/*
 * Ends the text and frees what the reader has, but not r or its memory.
 * Returns 0, or -1 if the text ended too soon or feed had failed already.
 */
int zkl_json_reader_close(zkl_json_reader_t *r);


/*
 * A writer.  zkl_json_open() returns NULL if there is no memory; all
 * other functions take NULL for that, remember any failure, and report it in
 * zkl_json_text().  Keys are C strings; inside an array key is NULL.
 */
typedef struct zkl_json_s  zkl_json_t;

zkl_json_t *zkl_json_open(void);
void zkl_json_object(zkl_json_t *json, const char *key);
void zkl_json_array(zkl_json_t *json, const char *key);
void zkl_json_end_object(zkl_json_t *json);
void zkl_json_end_array(zkl_json_t *json);
void zkl_json_string(zkl_json_t *json, const char *key, const char *text,
    size_t len);
void zkl_json_integer(zkl_json_t *json, const char *key, int64_t value);
void zkl_json_boolean(zkl_json_t *json, const char *key, int value);
/* text is valid compact JSON already */
void zkl_json_raw(zkl_json_t *json, const char *key, const char *text,
    size_t len);

/*
 * Returns the text, which is compact, on one line and without a line's end,
 * and lives until the writer is closed, and sets *len; or NULL if anything
 * failed (no memory, a string that is not UTF-8).
 */
const char *zkl_json_text(zkl_json_t *json, size_t *len);
void zkl_json_close(zkl_json_t *json);


#endif /* _ZKL_JSON_H_INCLUDED_ */
