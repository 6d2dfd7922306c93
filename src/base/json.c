
/*
 * JSON with yajl, which only this file includes.
 *
 * A reader hands each token that yajl finds to the caller, which may copy the
 * tokens of a value: the copy goes through a writer and comes out compact.  A
 * reader needs no memory of malloc(), so a lack of memory never makes a claim's
 * data look wrong.  A writer is a yajl generator and the text so far.
 *
 * The file makes up for the checks that yajl leaves out:
 *
 * - yajl does not check whether an allocation failed.  So yajl allocates from
 *   an area, which is large enough for a text of ZKL_JSON_MAX bytes.  malloc()
 *   is called only if another version of yajl needs more memory.
 *
 * - yajl accepts overlong UTF-8 and surrogates, and turns half a surrogate pair
 *   into "?".  So strings are checked here, and escapes before yajl sees the
 *   escapes.
 *
 * - yajl accepts vertical tabs and form feeds as white space, and the start of
 *   a token behind the value, such as a string without an end.  So control
 *   characters and the text behind the value are checked here.
 *
 * Any thread may call the functions; no state is shared.  json->text is NULL
 * until the first write.
 */


#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_gen.h>
#include <yajl/yajl_parse.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"


/*
 * The memory of a reader: two buffers, which grow from 2048 bytes to twice the
 * text and leave the shorter blocks behind, and structures of about a KiB
 * together.
 */
#define ZKL_READER_MEMORY       (8 * ZKL_JSON_MAX)

#define ZKL_WRITER_MEMORY       2048

struct zkl_json_s {
    yajl_gen             gen;
    char                *text;
    size_t               len;
    size_t               size;
    unsigned             depth;
    unsigned             failed:1;
    unsigned             fixed:1;   /* text is the caller's, of that size */
    zkl_memory_t         memory;
    char                 block[ZKL_WRITER_MEMORY];
};


static int zkl_json_scan(zkl_json_reader_t *r, const char *text, size_t len);
static int zkl_json_blank(const char *text, size_t len);
static int zkl_json_token(zkl_json_reader_t *r, zkl_type_e type,
    const char *text, size_t len);
static int zkl_json_error(zkl_json_reader_t *r, const char *format, ...);
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
static int zkl_json_init(zkl_json_t *json);
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
zkl_json_read(zkl_json_reader_t *r, const char *text, size_t len)
{
    int                rc;
    char               area[ZKL_READER_MEMORY], *p;
    size_t             n;
    zkl_json_t         copy;
    yajl_status        status;
    zkl_memory_t       memory;
    unsigned char     *reason;
    yajl_alloc_funcs   functions;

    static const char  mark[] = "\xef\xbb\xbf";

    if (len > ZKL_JSON_MAX) {
        return zkl_json_error(r, "%s is longer than %d bytes", r->what,
                              ZKL_JSON_MAX);
    }

    /*
     * A parser may ignore a byte order mark (RFC 8259, section 8.1).  A part
     * of a mark is no JSON.
     */

    for (n = 0; n < 3 && n < len && text[n] == mark[n]; n++) {
        /* void */
    }

    if (n % 3 != 0 && n != len) {
        return zkl_json_error(r, "%s is not valid JSON", r->what);
    }

    text += n;
    len -= n;

    if (r->optional && n % 3 == 0 && zkl_json_blank(text, len)) {
        return 0;
    }

    if (zkl_json_scan(r, text, len) != 0) {
        return -1;
    }

    if (zkl_json_init(&copy) != 0) {
        return zkl_json_error(r, "no memory");
    }

    copy.text = r->data;
    copy.size = ZKL_DATA_MAX;
    copy.fixed = 1;

    zkl_memory_init(&memory, area, sizeof(area));
    zkl_json_yajl_functions(&functions, &memory);

    r->parser = yajl_alloc(&zkl_yajl_callbacks, &functions, r);
    if (r->parser == NULL) {
        yajl_gen_free(copy.gen);
        return zkl_json_error(r, "no memory");
    }

    r->copy = &copy;
    r->depth = 0;
    r->end = len;
    r->too_large = 0;

    rc = 0;

    status = yajl_parse(r->parser, (const unsigned char *) text, len);

    if (status == yajl_status_ok
        && !zkl_json_blank(text + r->end, len - r->end))
    {
        rc = zkl_json_error(r, "%s is not valid JSON (trailing garbage)",
                            r->what);

    } else if (status == yajl_status_ok) {
        status = yajl_complete_parse(r->parser);
    }

    if (status == yajl_status_client_canceled) {
        /* the callback that canceled has written the error */
        rc = -1;

    } else if (status != yajl_status_ok) {
        rc = -1;
        reason = yajl_get_error(r->parser, 0, NULL, 0);

        if (reason == NULL) {
            (void) zkl_json_error(r, "%s is not valid JSON", r->what);

        } else {

            /* for example, "parse error: trailing garbage\n" */

            p = strstr((char *) reason, ": ");
            p = (p != NULL) ? p + 2 : (char *) reason;
            n = strcspn(p, ".\n");

            (void) zkl_json_error(r, "%s is not valid JSON (%.*s)", r->what,
                                  (n < 100) ? (int) n : 100, p);

            yajl_free_error(r->parser, reason);
        }
    }

    yajl_gen_free(copy.gen);
    yajl_free(r->parser);

    return rc;
}


/*
 * Checks the text before yajl, for control characters and half pairs.  escape
 * is the place in "\uXXXX", 0 outside, and unit the value of XXXX so far; yajl
 * refuses a backslash outside of a string and a wrong digit.
 */

static int
zkl_json_scan(zkl_json_reader_t *r, const char *text, size_t len)
{
    int       digit, half, second;
    char      c;
    size_t    i;
    unsigned  escape, unit;

    escape = 0;
    unit = 0;
    half = 0;

    for (i = 0; i < len; i++) {
        c = text[i];

        if ((unsigned char) c < 0x20 && c != '\t' && c != '\n' && c != '\r') {
            return zkl_json_error(r, "%s has a control character in it",
                                  r->what);
        }

        if (escape == 0 && c == '\\') {
            escape = 1;
            continue;
        }

        if (escape == 1 && c == 'u') {
            escape = 2;
            unit = 0;
            continue;
        }

        second = 0;
        digit = (escape >= 2) ? zkl_text_hex_digit(c) : -1;

        if (digit != -1) {
            unit = unit << 4 | (unsigned) digit;

            if (++escape < 6) {
                continue;
            }

            second = (unit >= 0xdc00 && unit <= 0xdfff);
        }

        if (second != half) {
            return zkl_json_error(r, "%s has half a surrogate pair in it",
                                  r->what);
        }

        half = (escape == 6 && unit >= 0xd800 && unit <= 0xdbff);
        escape = 0;
    }

    return 0;
}


/* returns 1 if the text is only white space */

static int
zkl_json_blank(const char *text, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i++) {
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\n'
            && text[i] != '\r')
        {
            return 0;
        }
    }

    return 1;
}


static int
zkl_json_token(zkl_json_reader_t *r, zkl_type_e type, const char *text,
    size_t len)
{
    int       rc;
    unsigned  opens;

    opens = (type == ZKL_OBJECT || type == ZKL_ARRAY);

    if ((type == ZKL_KEY || type == ZKL_STRING)
        && !zkl_text_utf8_check(text, len))
    {
        return zkl_json_error(r, "%s is not UTF-8", r->what);
    }

    if (type == ZKL_OBJECT_END || type == ZKL_ARRAY_END) {
        r->depth--;
    }

    /* the members of an object that is no value are a level deeper */

    if (opens && r->depth == ZKL_DATA_DEPTH + (r->token != NULL)) {
        return zkl_json_error(r, "%s is nested deeper than %d", r->copied,
                              ZKL_DATA_DEPTH);
    }

    if (r->token == NULL) {
        rc = zkl_json_copy(r, type, text, len);

    } else if (r->depth != 0) {
        rc = r->token(r, type, text, len);

    } else if (type == ZKL_OBJECT || type == ZKL_OBJECT_END) {
        rc = 0;

    } else {
        rc = zkl_json_error(r, "%s is not a JSON object", r->what);
    }

    if (opens) {
        r->depth++;

    } else if (r->depth == 0) {
        /* yajl refuses a second value */
        r->end = yajl_get_bytes_consumed(r->parser);
    }

    return rc;
}


int
zkl_json_copy(zkl_json_reader_t *r, zkl_type_e type, const char *text,
    size_t len)
{
    zkl_json_t  *json;

    json = r->copy;

    switch (type) {

    case ZKL_KEY:
    case ZKL_STRING:
        zkl_json_string(json, NULL, text, len);
        break;

    case ZKL_OBJECT:
        zkl_json_object(json, NULL);
        break;

    case ZKL_OBJECT_END:
        zkl_json_end_object(json);
        break;

    case ZKL_ARRAY:
        zkl_json_array(json, NULL);
        break;

    case ZKL_ARRAY_END:
        zkl_json_end_array(json);
        break;

    default: /* ZKL_NULL, ZKL_BOOLEAN, ZKL_NUMBER: as it is */
        zkl_json_raw(json, NULL, text, len);
        break;
    }

    /* the parser checked the order of the tokens, and the text is UTF-8 */

    if (json->failed) {
        r->too_large = 1;

        return zkl_json_error(r, "%s is longer than %d bytes of compact JSON",
                              r->copied, ZKL_DATA_MAX);
    }

    r->data[json->len] = '\0';
    *r->data_len = json->len;

    return 0;
}


/* the error is never cut off, because `what` and the arguments are short */

static int
zkl_json_error(zkl_json_reader_t *r, const char *format, ...)
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
    return zkl_json_token(data, ZKL_NULL, "null", 4) == 0;
}


static int
zkl_json_yajl_boolean(void *data, int value)
{
    const char  *text;

    text = value ? "true" : "false";

    return zkl_json_token(data, ZKL_BOOLEAN, text, strlen(text)) == 0;
}


static int
zkl_json_yajl_number(void *data, const char *text, size_t len)
{
    return zkl_json_token(data, ZKL_NUMBER, text, len) == 0;
}


static int
zkl_json_yajl_string(void *data, const unsigned char *text, size_t len)
{
    return zkl_json_token(data, ZKL_STRING, (const char *) text, len) == 0;
}


static int
zkl_json_yajl_start_map(void *data)
{
    return zkl_json_token(data, ZKL_OBJECT, NULL, 0) == 0;
}


static int
zkl_json_yajl_map_key(void *data, const unsigned char *text, size_t len)
{
    return zkl_json_token(data, ZKL_KEY, (const char *) text, len) == 0;
}


static int
zkl_json_yajl_end_map(void *data)
{
    return zkl_json_token(data, ZKL_OBJECT_END, NULL, 0) == 0;
}


static int
zkl_json_yajl_start_array(void *data)
{
    return zkl_json_token(data, ZKL_ARRAY, NULL, 0) == 0;
}


static int
zkl_json_yajl_end_array(void *data)
{
    return zkl_json_token(data, ZKL_ARRAY_END, NULL, 0) == 0;
}


zkl_json_t *
zkl_json_open(void)
{
    zkl_json_t  *json;

    json = malloc(sizeof(zkl_json_t));
    if (json == NULL) {
        return NULL;
    }

    if (zkl_json_init(json) != 0) {
        free(json);
        return NULL;
    }

    zkl_json_object(json, NULL);

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
    zkl_json_end_object(json);

    if (json == NULL || json->failed || json->depth != 0) {
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


static int
zkl_json_init(zkl_json_t *json)
{
    yajl_alloc_funcs  functions;

    memset(json, 0, offsetof(zkl_json_t, block));

    zkl_memory_init(&json->memory, json->block, sizeof(json->block));
    zkl_json_yajl_functions(&functions, &json->memory);

    json->gen = yajl_gen_alloc(&functions);
    if (json->gen == NULL) {
        return -1;
    }

    if (yajl_gen_config(json->gen, yajl_gen_print_callback, zkl_json_print,
                        json)
        == 0)
    {
        yajl_gen_free(json->gen);
        return -1;
    }

    return 0;
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

    if (json->fixed && len > json->size - json->len) {
        json->failed = 1;
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
