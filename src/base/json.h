
/*
 * JSON: the reader of bodies and claim data, which hands over the tokens of a
 * text, and the writer of answers.
 *
 * Plain C over yajl, which only json.c includes; no nginx, no ZooKeeper.  Any
 * thread may call the functions, but two threads must not use the same reader
 * or writer at the same time.
 */


#ifndef _ZKL_JSON_H_INCLUDED_
#define _ZKL_JSON_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>


/* bytes of an owner, in arguments and in claim data */
#define ZKL_OWNER_MAX           255

/* bytes of data, in arguments and in claim data, as compact JSON */
#define ZKL_DATA_MAX            1024

/* how deep the JSON of data may be nested */
#define ZKL_DATA_DEPTH          16

/* the longest text that is read */
#define ZKL_JSON_MAX            8192

/* bytes of an error, with the NUL */
#define ZKL_ERROR_MAX           256


/* a token, and what the text of a call for the token is */

typedef enum {
    ZKL_NULL = 0,               /* "null" */
    ZKL_BOOLEAN,                /* "true" or "false" */
    ZKL_NUMBER,                 /* as spelled */
    ZKL_STRING,                 /* UTF-8 */
    ZKL_KEY,                    /* UTF-8, the name of the next value */
    ZKL_OBJECT,                 /* NULL, as below */
    ZKL_OBJECT_END,
    ZKL_ARRAY,
    ZKL_ARRAY_END
} zkl_type_e;


typedef struct zkl_json_s         zkl_json_t;
typedef struct zkl_json_reader_s  zkl_json_reader_t;

/*
 * Takes a token inside the outermost object.  r->depth is 1 for the names of
 * the object's members and for their values, both brackets included, and more
 * for what is inside of a value.  The text does not outlive the call.  Returns
 * 0, or -1 with the error written.
 */
typedef int (*zkl_json_token_pt)(zkl_json_reader_t *r, zkl_type_e type,
    const char *text, size_t len);


struct zkl_json_reader_s {

    /* set by the caller in a structure of zeros */

    zkl_json_token_pt        token;     /* NULL: the text is a value, copied */
    void                    *owner;     /* for token */
    const char              *what;      /* short names of the text and of the */
    const char              *copied;    /* value that is copied, for error */
    char                    *data;      /* ZKL_DATA_MAX bytes and a NUL */
    size_t                  *data_len;  /* 0 before the value is copied */
    char                    *error;     /* ZKL_ERROR_MAX bytes, or NULL */
    unsigned                 optional:1;    /* the text may be blank */

    /* set by the reader only */

    unsigned                 too_large:1;   /* the value, so the read failed */
    unsigned                 depth;     /* open brackets around the token */
    size_t                   end;       /* of the outermost value */
    void                    *parser;
    zkl_json_t              *copy;
};


/*
 * Reads a text that is an object (or, without token, any value).  Returns 0,
 * or -1 with a sentence in error: a text that is too long, no JSON, no UTF-8
 * (strings and names), half a surrogate pair, a value that is too deep, or
 * data that is too long, or a token that `token` refused.
 */
int zkl_json_read(zkl_json_reader_t *r, const char *text, size_t len);

/*
 * For token: adds a token of the single value that is copied to r->data, as
 * compact JSON.  Returns 0, or -1 with the error written.
 */
int zkl_json_copy(zkl_json_reader_t *r, zkl_type_e type, const char *text,
    size_t len);


/*
 * A writer of an object.  zkl_json_open() opens the object, and returns NULL if
 * there is no memory; the remaining functions accept that NULL, remember a
 * failure, and let zkl_json_text() report the failure.  Keys are C strings;
 * inside an array key is NULL.
 */
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
 * Closes the object, returns the text and sets *len, or returns NULL after any
 * failure (no memory, a string that is not UTF-8).  The text is compact, on a
 * single line without a line end, and lives until the writer is closed.
 */
const char *zkl_json_text(zkl_json_t *json, size_t *len);
void zkl_json_close(zkl_json_t *json);


#endif /* _ZKL_JSON_H_INCLUDED_ */
