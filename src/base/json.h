
/*
 * JSON: the reader of bodies and claim data, which takes a text piece by piece,
 * and the writer of answers.
 *
 * Plain C over yajl, which only json.c includes; no nginx, no ZooKeeper.  Any
 * thread may call the functions, but two threads must not use the same reader
 * or writer at the same time.
 */


#ifndef _ZKL_JSON_H_INCLUDED_
#define _ZKL_JSON_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"


/* bytes of an owner, in arguments and in claim data */
#define ZKL_OWNER_MAX           255

/* bytes of data, in arguments and in claim data, as compact JSON */
#define ZKL_DATA_MAX            1024

/* how deep the JSON of data may be nested */
#define ZKL_DATA_DEPTH          16

/* the longest string or number in a text, as spelled in the text */
#define ZKL_TOKEN_MAX           8192

/* bytes of an error, with the NUL */
#define ZKL_ERROR_MAX           256

/*
 * The memory of a reader: two buffers, which grow from 2048 bytes to twice the
 * longest token and leave the shorter blocks behind, and structures of about a
 * KiB together.  A reader of short texts needs less.
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


/* the destination of a member's value */

typedef enum {
    ZKL_VALUE_NONE = 0,         /* no such member: the text is refused */
    ZKL_VALUE_SET,              /* to `set` */
    ZKL_VALUE_STRING,           /* to `set` if a string, else skipped */
    ZKL_VALUE_LIST,             /* an array: the strings go to `set` */
    ZKL_VALUE_COPIED,           /* to data; for a single value of a text */
    ZKL_VALUE_SKIPPED
} zkl_value_e;


/*
 * Called for each member of the object with the name in UTF-8, which does not
 * outlive the call.  Writes the error before a return of ZKL_VALUE_NONE.
 */
typedef zkl_value_e (*zkl_json_reader_key_pt)(void *owner, const char *name,
    size_t len);

/*
 * Takes the value of the last key, UTF-8 that does not outlive the call.  An
 * object or an array comes with a text of NULL, and set must refuse the value.
 * Of a list, set takes each string, and then ZKL_ARRAY for the end; a value
 * that is no array, or an element that is no string, comes as ZKL_NULL, which
 * set must refuse.  Returns 0, or -1 with the error written.
 */
typedef int (*zkl_json_reader_set_pt)(void *owner, zkl_type_e type,
    const char *text, size_t len);


typedef struct {

    /* set by the caller in a structure of zeros, and kept till close */

    zkl_json_reader_key_pt   key;       /* NULL: the text is a value, copied */
    zkl_json_reader_set_pt   set;       /* NULL if key never uses set */
    void                    *owner;     /* for key and set */
    const char              *what;      /* short name of the text, for error */
    char                    *data;      /* ZKL_DATA_MAX bytes and a NUL */
    size_t                  *data_len;  /* 0 before the value is copied */
    char                    *error;     /* ZKL_ERROR_MAX bytes, or NULL */
    unsigned                 optional:1;    /* the text may be blank */

    /* set by the reader only */

    void                    *parser;
    void                    *gen;
    zkl_memory_t             memory;

    zkl_value_e              value;     /* next, or open */
    unsigned                 nested;    /* open brackets in that value */
    size_t                   behind;    /* end of the value in the slice */

    unsigned                 escape;    /* place in "\uXXXX", 0: outside */
    unsigned                 unit;      /* value of XXXX so far */

    unsigned                 mark:2;        /* bytes of a byte order mark so
                                               far; 3: no more may come */
    unsigned                 surrogate:1;   /* low half is next */
    unsigned                 overflow:1;    /* data is too long */
    unsigned                 begun:1;       /* not only white space */
    unsigned                 over:1;        /* the value is complete */
    unsigned                 failed:1;
} zkl_json_reader_t;


/*
 * Starts to read a text that is an object (or, without a key, any value).  The
 * reader uses the size bytes at memory until the close.  Returns 0, or -1 if
 * there is no memory, and then the reader is closed already.
 */
int zkl_json_reader_open(zkl_json_reader_t *r, char *memory, size_t size);

/*
 * Reads the next len bytes, which may be freed then.  Returns 0, or -1 with a
 * sentence in error: no JSON, no UTF-8 (strings and names), half a surrogate
 * pair, a token that is too long, data that is too long or too deep, or a
 * value that key or set refused.  After a failure every call returns -1.
 */
int zkl_json_reader_feed(zkl_json_reader_t *r, const char *text, size_t len);

/*
 * Ends the text and frees the parser, but neither r nor the memory.  Returns
 * 0, or -1 if the text ended too soon or if a feed failed before.
 */
int zkl_json_reader_close(zkl_json_reader_t *r);


/*
 * A writer.  zkl_json_open() returns NULL if there is no memory; the remaining
 * functions accept that NULL, remember a failure, and let zkl_json_text()
 * report the failure.  Keys are C strings; inside an array key is NULL.
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
 * Returns the text and sets *len, or returns NULL after any failure (no
 * memory, a string that is not UTF-8).  The text is compact, on a single line
 * without a line end, and lives until the writer is closed.
 */
const char *zkl_json_text(zkl_json_t *json, size_t *len);
void zkl_json_close(zkl_json_t *json);


#endif /* _ZKL_JSON_H_INCLUDED_ */
