
/*
 * JSON with yajl, which only this file includes.
 *
 * A reader is a yajl parser and the state of the text so far.  Scalars and the
 * strings of a list go to `set`.  A copied value, at any depth, goes through a
 * yajl generator and comes out compact; a skipped value is walked and dropped.
 * A writer is a yajl generator and the text so far.
 *
 * The file makes up for the checks that yajl leaves out:
 *
 * - yajl does not check whether an allocation failed.  So yajl allocates from
 *   an area that the caller got before, and tokens that would not fit are
 *   refused (ZKL_TOKEN_MAX; texts are fed in slices, so that a token that is
 *   too long is seen in time).  malloc() is called only if another version of
 *   yajl needs more memory than ZKL_JSON_READER_MEMORY allows for.
 *
 * - yajl accepts overlong UTF-8 and surrogates, and turns half a surrogate pair
 *   into "?".  So strings are checked here, and escapes before yajl sees the
 *   escapes.
 *
 * - yajl accepts vertical tabs and form feeds as white space, and the start of
 *   a token behind the value, such as a string without an end.  So control
 *   characters and the text behind the value are checked here.
 *
 * Any thread may call the functions; no state is shared.  The file owns the
 * memory of yajl, from open to close, and a writer's text.  json->text is NULL
 * until the first write; the reader's key, set and error may be NULL (json.h).
 */


#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_gen.h>
#include <yajl/yajl_parse.h>

#include "base/json.h"
#include "base/name.h"


/* the most bytes of a text that yajl gets at once */
#define ZKL_SLICE               1024

#define ZKL_WRITER_MEMORY       2048

struct zkl_json_s {
    yajl_gen             gen;
    char                *text;
    size_t               len;
    size_t               size;
    unsigned             depth;
    unsigned             failed:1;
    zkl_memory_t         memory;
    char                 block[ZKL_WRITER_MEMORY];
};


static size_t zkl_json_reader_mark(zkl_json_reader_t *r, const char *text,
    size_t len);
static int zkl_json_reader_scan(zkl_json_reader_t *r, const char *text,
    size_t len);
static int zkl_json_reader_escape(zkl_json_reader_t *r, char c);
static void zkl_json_reader_over(zkl_json_reader_t *r);
static int zkl_json_reader_behind(zkl_json_reader_t *r, const char *text,
    size_t len);
static int zkl_json_reader_status(zkl_json_reader_t *r, yajl_status status);
static int zkl_json_reader_value(zkl_json_reader_t *r, zkl_type_e type,
    const char *text, size_t len);
static int zkl_json_reader_list(zkl_json_reader_t *r, zkl_type_e type,
    const char *text, size_t len);
static int zkl_json_reader_key(zkl_json_reader_t *r, const char *name,
    size_t len);
static int zkl_json_reader_end(zkl_json_reader_t *r, zkl_type_e type);
static int zkl_json_reader_copy(zkl_json_reader_t *r, zkl_type_e type,
    const char *text, size_t len);
static int zkl_json_reader_copied(zkl_json_reader_t *r,
    yajl_gen_status status);
static void zkl_json_reader_print(void *data, const char *text, size_t len);
static int zkl_json_reader_utf8(zkl_json_reader_t *r, const char *text,
    size_t len);
static const char *zkl_json_reader_what(zkl_json_reader_t *r);
static int zkl_json_reader_error(zkl_json_reader_t *r, const char *format,
    ...);
static void zkl_json_yajl_functions(yajl_alloc_funcs *functions,
    zkl_memory_t *memory);
static int zkl_json_yajl_null(void *data);
static int zkl_json_yajl_boolean(void *data, int value);
static int zkl_json_yajl_number(void *data, const char *text, size_t len);
static int zkl_json_yajl_string(void *data, const unsigned char *text,
    size_t len);
static int zkl_json_yajl_start_map(void *data);
static int zkl_json_yajl_map_key(void *data, const unsigned char *text,
    size_t len);
static int zkl_json_yajl_end_map(void *data);
static int zkl_json_yajl_start_array(void *data);
static int zkl_json_yajl_end_array(void *data);
static void zkl_json_nest(zkl_json_t *json, const char *key,
    yajl_gen_status (*open)(yajl_gen gen));
static void zkl_json_end(zkl_json_t *json,
    yajl_gen_status (*close)(yajl_gen gen));
static int zkl_json_begin(zkl_json_t *json, const char *key);
static void zkl_json_wrote(zkl_json_t *json, yajl_gen_status status);
static void zkl_json_print(void *data, const char *text, size_t len);


static const yajl_callbacks  zkl_yajl_callbacks = {
    zkl_json_yajl_null,
    zkl_json_yajl_boolean,
    NULL,                       /* integer */
    NULL,                       /* double */
    zkl_json_yajl_number,
    zkl_json_yajl_string,
    zkl_json_yajl_start_map,
    zkl_json_yajl_map_key,
    zkl_json_yajl_end_map,
    zkl_json_yajl_start_array,
    zkl_json_yajl_end_array
};


int
zkl_json_reader_open(zkl_json_reader_t *r, char *memory, size_t size)
{
    yajl_alloc_funcs  functions;

    zkl_memory_init(&r->memory, memory, size);
    zkl_json_yajl_functions(&functions, &r->memory);

    if (r->key == NULL) {
        r->value = ZKL_VALUE_COPIED;
    }

    r->parser = yajl_alloc(&zkl_yajl_callbacks, &functions, r);
    if (r->parser == NULL) {
        return -1;
    }

    r->gen = yajl_gen_alloc(&functions);

    if (r->gen == NULL
        || yajl_gen_config(r->gen, yajl_gen_print_callback,
                           zkl_json_reader_print, r)
           == 0)
    {
        r->failed = 1;
        return zkl_json_reader_close(r);
    }

    return 0;
}


int
zkl_json_reader_feed(zkl_json_reader_t *r, const char *text, size_t len)
{
    size_t       n;
    yajl_status  status;

    n = zkl_json_reader_mark(r, text, len);

    text += n;
    len -= n;

    while (len != 0 && !r->failed) {
        n = (len < ZKL_SLICE) ? len : ZKL_SLICE;

        if (zkl_json_reader_scan(r, text, n) != 0) {
            r->failed = 1;
            break;
        }

        status = yajl_parse(r->parser, (const unsigned char *) text, n);

        if (zkl_json_reader_status(r, status) != 0
            || zkl_json_reader_behind(r, text, n) != 0)
        {
            r->failed = 1;
            break;
        }

        if (r->memory.largest > ZKL_TOKEN_MAX) {
            r->failed = 1;
            (void) zkl_json_reader_error(r, "a string or a number in %s is too"
                                         " long", r->what);
            break;
        }

        text += n;
        len -= n;
    }

    return r->failed ? -1 : 0;
}


int
zkl_json_reader_close(zkl_json_reader_t *r)
{
    int  rc;

    rc = r->failed ? -1 : 0;

    if (rc == 0 && (r->begun || !r->optional)) {
        rc = zkl_json_reader_status(r, yajl_complete_parse(r->parser));
    }

    if (r->gen != NULL) {
        yajl_gen_free(r->gen);
    }

    yajl_free(r->parser);

    return rc;
}


/*
 * Returns the number of bytes that belong to a byte order mark at the start of
 * the text, which a parser may ignore (RFC 8259, section 8.1).  A part of a
 * mark is no JSON.
 */

static size_t
zkl_json_reader_mark(zkl_json_reader_t *r, const char *text, size_t len)
{
    size_t  n;

    static const char  mark[] = "\xef\xbb\xbf";

    for (n = 0; n < len && r->mark < 3; n++) {

        if (text[n] != mark[r->mark]) {

            if (r->mark != 0) {
                r->failed = 1;
                (void) zkl_json_reader_error(r, "%s is not valid JSON",
                                             r->what);
            }

            r->mark = 3;
            break;
        }

        r->begun = (++r->mark < 3);
    }

    return n;
}


/* checks the bytes before yajl, for control characters and half pairs */

static int
zkl_json_reader_scan(zkl_json_reader_t *r, const char *text, size_t len)
{
    char    c;
    size_t  i;

    for (i = 0; i < len; i++) {
        c = text[i];

        if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
            r->begun = 1;

            if ((unsigned char) c < 0x20) {
                return zkl_json_reader_error(r, "%s has a control character in"
                                             " it", r->what);
            }
        }

        if (zkl_json_reader_escape(r, c) != 0) {
            return zkl_json_reader_error(r, "%s has half a surrogate pair in"
                                         " it", r->what);
        }
    }

    return 0;
}


/*
 * Follows the escapes.  yajl refuses a backslash outside of a string and a
 * wrong digit.
 */

static int
zkl_json_reader_escape(zkl_json_reader_t *r, char c)
{
    int  digit, second;

    if (r->escape == 0 && c == '\\') {
        r->escape = 1;
        return 0;
    }

    if (r->escape == 1 && c == 'u') {
        r->escape = 2;
        r->unit = 0;
        return 0;
    }

    digit = (r->escape >= 2) ? zkl_text_hex_read(c) : -1;

    if (digit == -1) {
        r->escape = 0;
        return r->surrogate ? -1 : 0;
    }

    r->unit = r->unit << 4 | (unsigned) digit;

    if (++r->escape < 6) {
        return 0;
    }

    r->escape = 0;

    second = (r->unit >= 0xdc00 && r->unit <= 0xdfff);

    if (second != (int) r->surrogate) {
        return -1;
    }

    r->surrogate = (r->unit >= 0xd800 && r->unit <= 0xdbff);

    return 0;
}


/* The outermost value ends at the byte of the slice that yajl is at. */

static void
zkl_json_reader_over(zkl_json_reader_t *r)
{
    r->over = 1;
    r->behind = yajl_get_bytes_consumed(r->parser);
}


/* only white space may be behind the value, in this slice and the next */

static int
zkl_json_reader_behind(zkl_json_reader_t *r, const char *text, size_t len)
{
    size_t  i;

    if (!r->over) {
        return 0;
    }

    for (i = r->behind; i < len; i++) {

        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\n'
            && text[i] != '\r')
        {
            return zkl_json_reader_error(r, "%s is not valid JSON (trailing"
                                         " garbage)", r->what);
        }
    }

    r->behind = 0;

    return 0;
}


static int
zkl_json_reader_status(zkl_json_reader_t *r, yajl_status status)
{
    char           *p;
    size_t          len;
    unsigned char  *reason;

    if (status == yajl_status_ok) {
        return 0;
    }

    if (status == yajl_status_client_canceled) {
        /* the callback that canceled has written the error */
        return -1;
    }

    reason = yajl_get_error(r->parser, 0, NULL, 0);

    if (reason == NULL) {
        return zkl_json_reader_error(r, "%s is not valid JSON", r->what);
    }

    /* for example, "parse error: trailing garbage\n" */

    p = strstr((char *) reason, ": ");
    p = (p != NULL) ? p + 2 : (char *) reason;
    len = strcspn(p, ".\n");

    (void) zkl_json_reader_error(r, "%s is not valid JSON (%.*s)", r->what,
                                 (len < 100) ? (int) len : 100, p);

    yajl_free_error(r->parser, reason);

    return -1;
}


/* a scalar, or the start of an object or an array, whose text is NULL */

static int
zkl_json_reader_value(zkl_json_reader_t *r, zkl_type_e type, const char *text,
    size_t len)
{
    int  rc;

    if (type == ZKL_STRING && zkl_json_reader_utf8(r, text, len) != 0) {
        return -1;
    }

    if (r->value == ZKL_VALUE_NONE) {

        /* the outermost value, because yajl refuses a second value */

        if (type == ZKL_OBJECT) {
            return 0;
        }

        return zkl_json_reader_error(r, "%s is not a JSON object", r->what);
    }

    if (r->value == ZKL_VALUE_STRING) {
        r->value = (type == ZKL_STRING) ? ZKL_VALUE_SET : ZKL_VALUE_SKIPPED;
    }

    if (r->value == ZKL_VALUE_SET) {
        r->value = ZKL_VALUE_NONE;
        return r->set(r->owner, type, text, len);
    }

    if (r->value == ZKL_VALUE_LIST) {
        return zkl_json_reader_list(r, type, text, len);
    }

    if (type == ZKL_OBJECT || type == ZKL_ARRAY) {

        if (r->nested == ZKL_DATA_DEPTH) {
            return zkl_json_reader_error(r, "%s is nested deeper than %d",
                                         zkl_json_reader_what(r),
                                         ZKL_DATA_DEPTH);
        }

        r->nested++;
    }

    rc = zkl_json_reader_copy(r, type, text, len);

    if (r->nested == 0) {
        r->value = ZKL_VALUE_NONE;

        if (r->key == NULL) {
            zkl_json_reader_over(r);
        }
    }

    return rc;
}


static int
zkl_json_reader_list(zkl_json_reader_t *r, zkl_type_e type, const char *text,
    size_t len)
{
    if (r->nested == 0 && type == ZKL_ARRAY) {
        r->nested = 1;
        return 0;
    }

    if (r->nested != 0 && type == ZKL_STRING) {
        return r->set(r->owner, type, text, len);
    }

    (void) r->set(r->owner, ZKL_NULL, NULL, 0);

    return -1;
}


static int
zkl_json_reader_key(zkl_json_reader_t *r, const char *name, size_t len)
{
    if (zkl_json_reader_utf8(r, name, len) != 0) {
        return -1;
    }

    if (r->nested != 0) {
        return zkl_json_reader_copy(r, ZKL_STRING, name, len);
    }

    r->value = r->key(r->owner, name, len);

    return (r->value != ZKL_VALUE_NONE) ? 0 : -1;
}


static int
zkl_json_reader_end(zkl_json_reader_t *r, zkl_type_e type)
{
    int              rc;
    yajl_gen_status  status;

    if (r->nested == 0) {
        zkl_json_reader_over(r);
        return 0;
    }

    if (r->value == ZKL_VALUE_LIST) {
        r->nested = 0;
        r->value = ZKL_VALUE_NONE;
        return r->set(r->owner, ZKL_ARRAY, NULL, 0);
    }

    status = yajl_gen_status_ok;

    if (r->value == ZKL_VALUE_COPIED) {
        status = (type == ZKL_OBJECT) ? yajl_gen_map_close(r->gen)
                                      : yajl_gen_array_close(r->gen);
    }

    rc = zkl_json_reader_copied(r, status);

    r->nested--;

    if (r->nested == 0) {
        r->value = ZKL_VALUE_NONE;

        if (r->key == NULL) {
            zkl_json_reader_over(r);
        }
    }

    return rc;
}


static int
zkl_json_reader_copy(zkl_json_reader_t *r, zkl_type_e type, const char *text,
    size_t len)
{
    yajl_gen_status  status;

    if (r->value != ZKL_VALUE_COPIED) {
        return 0;
    }

    switch (type) {

    case ZKL_STRING:
        status = yajl_gen_string(r->gen, (const unsigned char *) text, len);
        break;

    case ZKL_OBJECT:
        status = yajl_gen_map_open(r->gen);
        break;

    case ZKL_ARRAY:
        status = yajl_gen_array_open(r->gen);
        break;

    case ZKL_NULL:
        status = yajl_gen_null(r->gen);
        break;

    default: /* ZKL_NUMBER, ZKL_BOOLEAN: as it is */
        status = yajl_gen_number(r->gen, text, len);
        break;
    }

    return zkl_json_reader_copied(r, status);
}


static int
zkl_json_reader_copied(zkl_json_reader_t *r, yajl_gen_status status)
{
    if (r->overflow) {
        return zkl_json_reader_error(r, "%s is longer than %d bytes of compact"
                                     " JSON", zkl_json_reader_what(r),
                                     ZKL_DATA_MAX);
    }

    /* cannot happen, because the parser checked the order of the tokens */

    if (status != yajl_gen_status_ok) {
        return zkl_json_reader_error(r, "%s cannot be written",
                                     zkl_json_reader_what(r));
    }

    return 0;
}


static void
zkl_json_reader_print(void *data, const char *text, size_t len)
{
    zkl_json_reader_t  *r = data;

    if (r->overflow || len > ZKL_DATA_MAX - *r->data_len) {
        r->overflow = 1;
        return;
    }

    if (len != 0) {
        memcpy(r->data + *r->data_len, text, len);
    }

    *r->data_len += len;
    r->data[*r->data_len] = '\0';
}


static int
zkl_json_reader_utf8(zkl_json_reader_t *r, const char *text, size_t len)
{
    if (zkl_text_utf8_check(text, len)) {
        return 0;
    }

    return zkl_json_reader_error(r, "%s is not UTF-8", r->what);
}


/* the name of the copied value: the member, or the whole text */

static const char *
zkl_json_reader_what(zkl_json_reader_t *r)
{
    if (r->key != NULL && r->value == ZKL_VALUE_COPIED) {
        return "\"data\"";
    }

    return r->what;
}


/* the error is never cut off, because `what` and the arguments are short */

static int
zkl_json_reader_error(zkl_json_reader_t *r, const char *format, ...)
{
    va_list  ap;

    if (r->error == NULL) {
        return -1;
    }

    va_start(ap, format);
    (void) vsnprintf(r->error, ZKL_ERROR_MAX, format, ap);
    va_end(ap);

    return -1;
}


static void
zkl_json_yajl_functions(yajl_alloc_funcs *functions, zkl_memory_t *memory)
{
    functions->malloc = zkl_memory_alloc;
    functions->realloc = zkl_memory_realloc;
    functions->free = zkl_memory_free;
    functions->ctx = memory;
}


static int
zkl_json_yajl_null(void *data)
{
    return zkl_json_reader_value(data, ZKL_NULL, "null", 4) == 0;
}


static int
zkl_json_yajl_boolean(void *data, int value)
{
    const char  *text;

    text = value ? "true" : "false";

    return zkl_json_reader_value(data, ZKL_BOOLEAN, text, strlen(text)) == 0;
}


static int
zkl_json_yajl_number(void *data, const char *text, size_t len)
{
    return zkl_json_reader_value(data, ZKL_NUMBER, text, len) == 0;
}


static int
zkl_json_yajl_string(void *data, const unsigned char *text, size_t len)
{
    return zkl_json_reader_value(data, ZKL_STRING, (const char *) text, len)
           == 0;
}


static int
zkl_json_yajl_start_map(void *data)
{
    return zkl_json_reader_value(data, ZKL_OBJECT, NULL, 0) == 0;
}


static int
zkl_json_yajl_map_key(void *data, const unsigned char *text, size_t len)
{
    return zkl_json_reader_key(data, (const char *) text, len) == 0;
}


static int
zkl_json_yajl_end_map(void *data)
{
    return zkl_json_reader_end(data, ZKL_OBJECT) == 0;
}


static int
zkl_json_yajl_start_array(void *data)
{
    return zkl_json_reader_value(data, ZKL_ARRAY, NULL, 0) == 0;
}


static int
zkl_json_yajl_end_array(void *data)
{
    return zkl_json_reader_end(data, ZKL_ARRAY) == 0;
}


zkl_json_t *
zkl_json_open(void)
{
    zkl_json_t       *json;
    yajl_alloc_funcs  functions;

    json = malloc(sizeof(zkl_json_t));
    if (json == NULL) {
        return NULL;
    }

    memset(json, 0, sizeof(zkl_json_t));

    zkl_memory_init(&json->memory, json->block, sizeof(json->block));
    zkl_json_yajl_functions(&functions, &json->memory);

    json->gen = yajl_gen_alloc(&functions);

    if (json->gen == NULL) {
        free(json);
        return NULL;
    }

    if (yajl_gen_config(json->gen, yajl_gen_print_callback, zkl_json_print,
                        json)
        == 0)
    {
        zkl_json_close(json);
        return NULL;
    }

    return json;
}


void
zkl_json_object(zkl_json_t *json, const char *key)
{
    zkl_json_nest(json, key, yajl_gen_map_open);
}


void
zkl_json_array(zkl_json_t *json, const char *key)
{
    zkl_json_nest(json, key, yajl_gen_array_open);
}


void
zkl_json_end_object(zkl_json_t *json)
{
    zkl_json_end(json, yajl_gen_map_close);
}


void
zkl_json_end_array(zkl_json_t *json)
{
    zkl_json_end(json, yajl_gen_array_close);
}


void
zkl_json_string(zkl_json_t *json, const char *key, const char *text,
    size_t len)
{
    if (zkl_json_begin(json, key) != 0) {
        return;
    }

    if (!zkl_text_utf8_check(text, len)) {
        json->failed = 1;
        return;
    }

    zkl_json_wrote(json, yajl_gen_string(json->gen,
                                         (const unsigned char *) text, len));
}


void
zkl_json_integer(zkl_json_t *json, const char *key, int64_t value)
{
    if (zkl_json_begin(json, key) == 0) {
        zkl_json_wrote(json, yajl_gen_integer(json->gen, value));
    }
}


void
zkl_json_boolean(zkl_json_t *json, const char *key, int value)
{
    if (zkl_json_begin(json, key) == 0) {
        zkl_json_wrote(json, yajl_gen_bool(json->gen, value != 0));
    }
}


void
zkl_json_raw(zkl_json_t *json, const char *key, const char *text, size_t len)
{
    if (zkl_json_begin(json, key) != 0) {
        return;
    }

    if (len == 0) {
        json->failed = 1;
        return;
    }

    /* yajl writes the text of a number as it is */

    zkl_json_wrote(json, yajl_gen_number(json->gen, text, len));
}


const char *
zkl_json_text(zkl_json_t *json, size_t *len)
{
    if (json == NULL || json->failed || json->depth != 0 || json->len == 0) {
        return NULL;
    }

    *len = json->len;

    return json->text;
}


void
zkl_json_close(zkl_json_t *json)
{
    if (json == NULL) {
        return;
    }

    yajl_gen_free(json->gen);
    free(json->text);
    free(json);
}


static void
zkl_json_nest(zkl_json_t *json, const char *key,
    yajl_gen_status (*open)(yajl_gen gen))
{
    if (zkl_json_begin(json, key) == 0) {
        json->depth++;
        zkl_json_wrote(json, open(json->gen));
    }
}


static void
zkl_json_end(zkl_json_t *json, yajl_gen_status (*close)(yajl_gen gen))
{
    if (zkl_json_begin(json, NULL) != 0) {
        return;
    }

    /* yajl would count below zero */

    if (json->depth == 0) {
        json->failed = 1;
        return;
    }

    json->depth--;
    zkl_json_wrote(json, close(json->gen));
}


/* returns 0 if the writer works and the key, if any, is written */

static int
zkl_json_begin(zkl_json_t *json, const char *key)
{
    if (json == NULL || json->failed) {
        return -1;
    }

    if (key == NULL) {
        return 0;
    }

    zkl_json_wrote(json, yajl_gen_string(json->gen,
                                         (const unsigned char *) key,
                                         strlen(key)));

    return json->failed ? -1 : 0;
}


static void
zkl_json_wrote(zkl_json_t *json, yajl_gen_status status)
{
    if (status != yajl_gen_status_ok) {
        json->failed = 1;
    }
}


static void
zkl_json_print(void *data, const char *text, size_t len)
{
    zkl_json_t  *json = data;

    char    *p;
    size_t   size;

    if (json->failed) {
        return;
    }

    size = (json->size != 0) ? json->size : 512;

    while (size - json->len < len) {

        if (size > SIZE_MAX / 2) {
            json->failed = 1;
            return;
        }

        size *= 2;
    }

    if (size != json->size) {
        p = realloc(json->text, size);
        if (p == NULL) {
            json->failed = 1;
            return;
        }

        json->text = p;
        json->size = size;
    }

    if (len != 0) {
        memcpy(json->text + json->len, text, len);
        json->len += len;
    }
}
