
/*
 * JSON, by yajl, and the two other texts that are made of parts: the query
 * string and the label.
 *
 * A reader is a yajl parser and what it knows of the text so far.  It reads
 * either one object whose members are fields (a body, a label), or one value
 * that is data (data= in a query).  A field's scalar goes to `set`; data, at
 * any depth, goes through a yajl generator and comes out compact.  Members
 * that are skipped walk the same way with nothing at its end.
 *
 * yajl is left alone with nothing that it is lax about:
 *
 * - It uses allocated memory without a look at the pointer.  So all that it
 *   allocates comes from a block that its caller has got already, and tokens
 *   that would not fit are refused (ZK_LOCK_TOKEN_MAX; texts are fed to it in
 *   slices, so that it is seen in time).  malloc() is behind the block only
 *   for a yajl that wants more than the one that this was written for.
 *
 * - It takes overlong UTF-8 and surrogates, and makes a question mark of half
 *   a surrogate pair.  So strings are checked here, and escapes before it.
 *
 * - It takes vertical tabs and form feeds as white space.
 *
 * Runs on any thread; nothing is shared.  reader->args is NULL in a label,
 * reader->label elsewhere; json->text is NULL until something is written.
 */


#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yajl/yajl_gen.h>
#include <yajl/yajl_parse.h>

#include "zk_lock_json.h"
#include "zk_lock_name.h"


/* the longest string or number in a text, as it is spelled there */
#define ZK_LOCK_TOKEN_MAX       8192

/* how much of a text is given to yajl at once */
#define ZK_LOCK_SLICE           1024

/*
 * What yajl takes: two buffers, which grow from 2048 bytes to twice the
 * longest token, and whose older and shorter blocks stay where they are, and
 * some structures of about a KiB in all.
 */
#define ZK_LOCK_READER_MEMORY   (8 * ZK_LOCK_TOKEN_MAX)

/* the same for a text of at most ZK_LOCK_LABEL_MAX bytes, fed at once */
#define ZK_LOCK_LABEL_MEMORY    8192

#define ZK_LOCK_WRITER_MEMORY   2048

/* alignment of blocks, and room for the size in front of each */
#define ZK_LOCK_ALIGNMENT       16

/* bytes of a name that an error shows, with the dots and the NUL */
#define ZK_LOCK_QUOTE_MAX       64

/* fields of a reader besides ZK_LOCK_ARG_* */
#define ZK_LOCK_FIELD_INDEX     0x10000
#define ZK_LOCK_FIELD_SKIPPED   0x20000


typedef enum {
    ZK_LOCK_NULL = 0,
    ZK_LOCK_BOOLEAN,            /* text is "true" or "false" */
    ZK_LOCK_NUMBER,
    ZK_LOCK_STRING,
    ZK_LOCK_OBJECT,
    ZK_LOCK_ARRAY
} zk_lock_type_e;


typedef struct {
    const char          *name;
    unsigned             field;
    const char          *takes;
} zk_lock_field_t;


typedef struct {
    char                *start;
    char                *last;
    char                *end;
    size_t               largest;   /* block that was asked for */
} zk_lock_memory_t;


typedef struct zk_lock_reader_s  zk_lock_reader_t;

/* sets reader->field to what the name means, or fails */
typedef int (*zk_lock_reader_key_pt)(zk_lock_reader_t *reader,
    const char *name, size_t len);

/* takes the value of reader->field; text is NULL but for scalars */
typedef int (*zk_lock_reader_set_pt)(zk_lock_reader_t *reader,
    zk_lock_type_e type, const char *text, size_t len);

struct zk_lock_reader_s {
    yajl_handle              parser;
    yajl_gen                 gen;
    zk_lock_memory_t         memory;

    zk_lock_args_t          *args;
    zk_lock_label_t         *label;
    zk_lock_reader_key_pt    key;
    zk_lock_reader_set_pt    set;
    const char              *what;      /* is read, for an error */

    char                    *data;
    size_t                  *data_len;

    unsigned                 allowed;   /* ZK_LOCK_ARG_* */
    unsigned                 seen;
    unsigned                 field;     /* whose value comes next, or 0 */
    unsigned                 nested;    /* open brackets in that value */

    unsigned                 escape;    /* place in "\uXXXX", 0: outside */
    unsigned                 unit;      /* value of XXXX so far */

    unsigned                 surrogate:1;   /* the second one comes next */
    unsigned                 overflow:1;    /* data is too long */
    unsigned                 begun:1;       /* there was more than space */
    unsigned                 failed:1;
};


struct zk_lock_body_s {
    zk_lock_reader_t     reader;
    char                 memory[ZK_LOCK_READER_MEMORY];
};


struct zk_lock_json_s {
    yajl_gen             gen;
    char                *text;
    size_t               len;
    size_t               size;
    unsigned             depth;
    unsigned             failed:1;
    zk_lock_memory_t     memory;
    char                 block[ZK_LOCK_WRITER_MEMORY];
};


static int zk_lock_query_piece(zk_lock_args_t *args, const char *text,
    size_t len, unsigned allowed, unsigned *seen);
static int zk_lock_query_decode(char *buf, size_t size, const char *text,
    size_t len, size_t *decoded);
static int zk_lock_query_data(zk_lock_args_t *args, const char *text,
    size_t len);
static unsigned zk_lock_args_field(zk_lock_args_t *args, const char *kind,
    const char *name, size_t len, unsigned allowed, unsigned *seen);
static int zk_lock_args_set(zk_lock_args_t *args, unsigned field,
    const char *text, size_t len);
static int zk_lock_args_duration(zk_lock_args_t *args, unsigned field,
    int64_t *ms, const char *text, size_t len);
static int zk_lock_args_word(zk_lock_args_t *args, unsigned field, char *word,
    size_t *word_len, const char *text, size_t len);
static int zk_lock_args_owner(zk_lock_args_t *args, const char *text,
    size_t len);
static int zk_lock_args_refuse(zk_lock_args_t *args, unsigned field);
static int zk_lock_args_error(zk_lock_args_t *args, const char *format, ...);

static int zk_lock_body_key(zk_lock_reader_t *r, const char *name,
    size_t len);
static int zk_lock_body_set(zk_lock_reader_t *r, zk_lock_type_e type,
    const char *text, size_t len);

static int zk_lock_label_json(zk_lock_label_t *label, const char *text,
    size_t len);
static int zk_lock_label_key(zk_lock_reader_t *r, const char *name,
    size_t len);
static int zk_lock_label_set(zk_lock_reader_t *r, zk_lock_type_e type,
    const char *text, size_t len);

static int zk_lock_reader_open(zk_lock_reader_t *r, char *memory,
    size_t size);
static int zk_lock_reader_feed(zk_lock_reader_t *r, const char *text,
    size_t len);
static int zk_lock_reader_done(zk_lock_reader_t *r);
static void zk_lock_reader_close(zk_lock_reader_t *r);
static int zk_lock_reader_scan(zk_lock_reader_t *r, const char *text,
    size_t len);
static int zk_lock_reader_escape(zk_lock_reader_t *r, char c);
static int zk_lock_reader_status(zk_lock_reader_t *r, yajl_status status);
static int zk_lock_reader_scalar(zk_lock_reader_t *r, zk_lock_type_e type,
    const char *text, size_t len);
static int zk_lock_reader_begin(zk_lock_reader_t *r, zk_lock_type_e type);
static int zk_lock_reader_end(zk_lock_reader_t *r, zk_lock_type_e type);
static int zk_lock_reader_copy(zk_lock_reader_t *r, zk_lock_type_e type,
    const char *text, size_t len);
static int zk_lock_reader_copied(zk_lock_reader_t *r, yajl_gen_status status);
static void zk_lock_reader_print(void *data, const char *text, size_t len);
static int zk_lock_reader_utf8(zk_lock_reader_t *r, const char *text,
    size_t len);

static int zk_lock_yajl_null(void *data);
static int zk_lock_yajl_boolean(void *data, int value);
static int zk_lock_yajl_number(void *data, const char *text, size_t len);
static int zk_lock_yajl_string(void *data, const unsigned char *text,
    size_t len);
static int zk_lock_yajl_start_map(void *data);
static int zk_lock_yajl_map_key(void *data, const unsigned char *text,
    size_t len);
static int zk_lock_yajl_end_map(void *data);
static int zk_lock_yajl_start_array(void *data);
static int zk_lock_yajl_end_array(void *data);

static int zk_lock_json_begin(zk_lock_json_t *json, const char *key);
static void zk_lock_json_wrote(zk_lock_json_t *json, yajl_gen_status status);
static void zk_lock_json_print(void *data, const char *text, size_t len);

static void zk_lock_memory_init(zk_lock_memory_t *memory, char *start,
    size_t size, yajl_alloc_funcs *functions);
static void *zk_lock_memory_alloc(void *data, size_t size);
static void *zk_lock_memory_realloc(void *data, void *block, size_t size);
static void zk_lock_memory_free(void *data, void *block);
static int zk_lock_memory_inside(zk_lock_memory_t *memory, const void *block);

static size_t zk_lock_shown_len(const char *text, size_t len);
static int zk_lock_shown_check(const char *text, size_t len);
static const char *zk_lock_quote(char *buf, const char *text, size_t len);
static int zk_lock_hex_digit(char c);


static const char  zk_lock_takes_duration[] =
    "a duration such as \"10s\", \"1500ms\" or a number of seconds,"
    " up to ten years and with at most three decimals";


static const zk_lock_field_t  zk_lock_fields[] = {
    { "wait",  ZK_LOCK_ARG_WAIT,  zk_lock_takes_duration },
    { "ttl",   ZK_LOCK_ARG_TTL,   zk_lock_takes_duration },
    { "mode",  ZK_LOCK_ARG_MODE,  "a word such as \"exclusive\"" },
    { "owner", ZK_LOCK_ARG_OWNER, "a string of at most 255 bytes of UTF-8"
                                  " without control characters" },
    { "data",  ZK_LOCK_ARG_DATA,  "JSON" },
    { "hold",  ZK_LOCK_ARG_HOLD,  "a word such as \"lease\"" },
    { NULL,    0,                 NULL }
};


static const yajl_callbacks  zk_lock_yajl_callbacks = {
    zk_lock_yajl_null,
    zk_lock_yajl_boolean,
    NULL,                       /* integer */
    NULL,                       /* double */
    zk_lock_yajl_number,
    zk_lock_yajl_string,
    zk_lock_yajl_start_map,
    zk_lock_yajl_map_key,
    zk_lock_yajl_end_map,
    zk_lock_yajl_start_array,
    zk_lock_yajl_end_array
};


int
zk_lock_args_query(zk_lock_args_t *args, const char *query, size_t len,
    unsigned allowed)
{
    size_t       n;
    unsigned     seen;
    const char  *end;

    seen = 0;

    while (len != 0) {
        end = memchr(query, '&', len);
        n = (end != NULL) ? (size_t) (end - query) : len;

        if (n != 0
            && zk_lock_query_piece(args, query, n, allowed, &seen) != 0)
        {
            return -1;
        }

        if (end != NULL) {
            n++;
        }

        query += n;
        len -= n;
    }

    return 0;
}


static int
zk_lock_query_piece(zk_lock_args_t *args, const char *text, size_t len,
    unsigned allowed, unsigned *seen)
{
    char         name[ZK_LOCK_QUOTE_MAX], quoted[ZK_LOCK_QUOTE_MAX];
    char         value[ZK_LOCK_TOKEN_MAX];
    size_t       n, name_len, value_len;
    unsigned     field;
    const char  *end;

    end = memchr(text, '=', len);
    n = (end != NULL) ? (size_t) (end - text) : len;

    if (zk_lock_query_decode(name, sizeof(name), text, n, &name_len) != 0) {
        return zk_lock_args_error(args, "unknown argument \"%s\"",
                                  zk_lock_quote(quoted, text, n));
    }

    field = zk_lock_args_field(args, "argument", name, name_len, allowed,
                               seen);
    if (field == 0) {
        return -1;
    }

    if (end != NULL) {
        n++;
    }

    if (zk_lock_query_decode(value, sizeof(value), text + n, len - n,
                             &value_len)
        != 0)
    {
        return zk_lock_args_error(args, "the argument \"%s\" has a broken"
                                  " escape in it or is too long",
                                  zk_lock_quote(quoted, name, name_len));
    }

    if (field == ZK_LOCK_ARG_DATA) {
        return zk_lock_query_data(args, value, value_len);
    }

    return zk_lock_args_set(args, field, value, value_len);
}


static int
zk_lock_query_decode(char *buf, size_t size, const char *text, size_t len,
    size_t *decoded)
{
    int     high, low;
    size_t  i, n;

    n = 0;

    for (i = 0; i < len; i++) {

        if (n == size) {
            return -1;
        }

        if (text[i] != '%') {
            buf[n++] = text[i];
            continue;
        }

        if (len - i < 3) {
            return -1;
        }

        high = zk_lock_hex_digit(text[i + 1]);
        low = zk_lock_hex_digit(text[i + 2]);

        if (high == -1 || low == -1) {
            return -1;
        }

        buf[n++] = (char) (high << 4 | low);
        i += 2;
    }

    *decoded = n;

    return 0;
}


static int
zk_lock_query_data(zk_lock_args_t *args, const char *text, size_t len)
{
    int               rc;
    char              memory[ZK_LOCK_READER_MEMORY];
    zk_lock_reader_t  r;

    memset(&r, 0, sizeof(zk_lock_reader_t));

    r.args = args;
    r.what = "\"data\"";
    r.data = args->data;
    r.data_len = &args->data_len;
    r.field = ZK_LOCK_ARG_DATA;

    args->data_len = 0;

    if (zk_lock_reader_open(&r, memory, sizeof(memory)) != 0) {
        return zk_lock_args_error(args, "no memory");
    }

    rc = zk_lock_reader_feed(&r, text, len);

    if (rc == 0) {
        rc = zk_lock_reader_done(&r);
    }

    zk_lock_reader_close(&r);

    if (rc == 0) {
        args->given |= ZK_LOCK_ARG_DATA;
    }

    return rc;
}


/* returns the field's bit, or 0 with an error */

static unsigned
zk_lock_args_field(zk_lock_args_t *args, const char *kind, const char *name,
    size_t len, unsigned allowed, unsigned *seen)
{
    char                    quoted[ZK_LOCK_QUOTE_MAX];
    const zk_lock_field_t  *f;

    for (f = zk_lock_fields; f->name != NULL; f++) {
        if (len == strlen(f->name) && memcmp(name, f->name, len) == 0) {
            break;
        }
    }

    if (f->name == NULL) {
        (void) zk_lock_args_error(args, "unknown %s \"%s\"", kind,
                                  zk_lock_quote(quoted, name, len));
        return 0;
    }

    if (!(f->field & allowed)) {
        (void) zk_lock_args_error(args, "the %s \"%s\" has no place in this"
                                  " call", kind, f->name);
        return 0;
    }

    if (f->field & *seen) {
        (void) zk_lock_args_error(args, "the %s \"%s\" is there twice", kind,
                                  f->name);
        return 0;
    }

    *seen |= f->field;

    return f->field;
}


/* any field but data, from a string */

static int
zk_lock_args_set(zk_lock_args_t *args, unsigned field, const char *text,
    size_t len)
{
    int  rc;

    switch (field) {

    case ZK_LOCK_ARG_WAIT:
        rc = zk_lock_args_duration(args, field, &args->wait, text, len);
        break;

    case ZK_LOCK_ARG_TTL:
        rc = zk_lock_args_duration(args, field, &args->ttl, text, len);
        break;

    case ZK_LOCK_ARG_MODE:
        rc = zk_lock_args_word(args, field, args->mode, &args->mode_len,
                               text, len);
        break;

    case ZK_LOCK_ARG_HOLD:
        rc = zk_lock_args_word(args, field, args->hold, &args->hold_len,
                               text, len);
        break;

    default: /* ZK_LOCK_ARG_OWNER */
        rc = zk_lock_args_owner(args, text, len);
        break;
    }

    if (rc == 0) {
        args->given |= field;
    }

    return rc;
}


static int
zk_lock_args_duration(zk_lock_args_t *args, unsigned field, int64_t *ms,
    const char *text, size_t len)
{
    int64_t  value;

    value = zk_lock_duration_read(text, len);

    if (value == -1) {
        return zk_lock_args_refuse(args, field);
    }

    *ms = value;

    return 0;
}


static int
zk_lock_args_word(zk_lock_args_t *args, unsigned field, char *word,
    size_t *word_len, const char *text, size_t len)
{
    size_t  i;

    if (len == 0 || len > ZK_LOCK_WORD_MAX) {
        return zk_lock_args_refuse(args, field);
    }

    for (i = 0; i < len; i++) {
        if (text[i] != '-' && (text[i] < 'a' || text[i] > 'z')) {
            return zk_lock_args_refuse(args, field);
        }
    }

    memcpy(word, text, len);
    word[len] = '\0';
    *word_len = len;

    return 0;
}


static int
zk_lock_args_owner(zk_lock_args_t *args, const char *text, size_t len)
{
    if (len > ZK_LOCK_OWNER_MAX || !zk_lock_shown_check(text, len)) {
        return zk_lock_args_refuse(args, ZK_LOCK_ARG_OWNER);
    }

    if (len != 0) {
        memcpy(args->owner, text, len);
    }

    args->owner[len] = '\0';
    args->owner_len = len;

    return 0;
}


static int
zk_lock_args_refuse(zk_lock_args_t *args, unsigned field)
{
    const zk_lock_field_t  *f;

    for (f = zk_lock_fields; f->name != NULL; f++) {
        if (f->field == field) {
            return zk_lock_args_error(args, "\"%s\" takes %s", f->name,
                                      f->takes);
        }
    }

    return -1;
}


/*
 * What goes into format is from here, from yajl, or through zk_lock_quote(),
 * and short enough that nothing is cut off.
 */

static int
zk_lock_args_error(zk_lock_args_t *args, const char *format, ...)
{
    va_list  ap;

    if (args == NULL) {
        return -1;
    }

    va_start(ap, format);
    (void) vsnprintf(args->error, sizeof(args->error), format, ap);
    va_end(ap);

    return -1;
}


zk_lock_body_t *
zk_lock_body_open(zk_lock_args_t *args, unsigned allowed)
{
    zk_lock_body_t    *body;
    zk_lock_reader_t  *r;

    body = malloc(sizeof(zk_lock_body_t));
    if (body == NULL) {
        return NULL;
    }

    r = &body->reader;

    memset(r, 0, sizeof(zk_lock_reader_t));

    r->args = args;
    r->key = zk_lock_body_key;
    r->set = zk_lock_body_set;
    r->what = "the body";
    r->data = args->data;
    r->data_len = &args->data_len;
    r->allowed = allowed;

    if (zk_lock_reader_open(r, body->memory, sizeof(body->memory)) != 0) {
        free(body);
        return NULL;
    }

    return body;
}


int
zk_lock_body_feed(zk_lock_body_t *body, const char *text, size_t len)
{
    return zk_lock_reader_feed(&body->reader, text, len);
}


int
zk_lock_body_close(zk_lock_body_t *body)
{
    int  rc;

    rc = body->reader.failed ? -1 : 0;

    if (rc == 0 && body->reader.begun) {
        rc = zk_lock_reader_done(&body->reader);
    }

    zk_lock_reader_close(&body->reader);
    free(body);

    return rc;
}


static int
zk_lock_body_key(zk_lock_reader_t *r, const char *name, size_t len)
{
    r->field = zk_lock_args_field(r->args, "field", name, len, r->allowed,
                                  &r->seen);

    if (r->field == 0) {
        return -1;
    }

    if (r->field == ZK_LOCK_ARG_DATA) {
        r->args->given |= ZK_LOCK_ARG_DATA;
        r->args->data_len = 0;
    }

    return 0;
}


static int
zk_lock_body_set(zk_lock_reader_t *r, zk_lock_type_e type, const char *text,
    size_t len)
{
    int  timed;

    timed = (r->field & (ZK_LOCK_ARG_WAIT|ZK_LOCK_ARG_TTL)) != 0;

    if (type != ZK_LOCK_STRING && !(timed && type == ZK_LOCK_NUMBER)) {
        return zk_lock_args_refuse(r->args, r->field);
    }

    if (type == ZK_LOCK_NUMBER
        && (memchr(text, 'e', len) != NULL || memchr(text, 'E', len) != NULL))
    {
        return zk_lock_args_error(r->args, "\"%s\" takes a number of seconds"
                                  " without an exponent",
                                  (r->field == ZK_LOCK_ARG_TTL) ? "ttl"
                                                                : "wait");
    }

    return zk_lock_args_set(r->args, r->field, text, len);
}


size_t
zk_lock_label_write(char *buf, const zk_lock_label_t *label, size_t *index_at)
{
    int   n, index;
    char  *p;

    p = buf;

    memcpy(p, label->owner, label->owner_len);
    p += label->owner_len;

    index = (label->index >= 0 && label->index <= 0xff) ? label->index : 0;

    *index_at = label->owner_len + sizeof("\n{\"index\":\"") - 1;

    n = snprintf(p, ZK_LOCK_LABEL_MAX - label->owner_len,
                 "\n{\"index\":\"%02x\",\"ttl\":%" PRId64, (unsigned) index,
                 label->ttl);
    if (n > 0) {
        p += n;
    }

    if (label->data_len != 0) {
        memcpy(p, ",\"data\":", sizeof(",\"data\":") - 1);
        p += sizeof(",\"data\":") - 1;

        memcpy(p, label->data, label->data_len);
        p += label->data_len;
    }

    *p++ = '}';

    return (size_t) (p - buf);
}


void
zk_lock_label_read(zk_lock_label_t *label, const char *text, size_t len)
{
    size_t       n;
    const char  *end;

    memset(label, 0, sizeof(zk_lock_label_t));
    label->index = -1;

    if (len == 0) {
        return;
    }

    end = memchr(text, '\n', len);
    n = (end != NULL) ? (size_t) (end - text) : len;

    if (n <= ZK_LOCK_OWNER_MAX && zk_lock_shown_check(text, n)) {
        memcpy(label->owner, text, n);
        label->owner_len = n;
    }

    if (end == NULL || len > ZK_LOCK_LABEL_MAX) {
        return;
    }

    if (zk_lock_label_json(label, end + 1, len - n - 1) != 0) {
        label->index = -1;
        label->ttl = 0;
        label->data_len = 0;
        label->data[0] = '\0';
    }
}


static int
zk_lock_label_json(zk_lock_label_t *label, const char *text, size_t len)
{
    int               rc;
    char              memory[ZK_LOCK_LABEL_MEMORY];
    zk_lock_reader_t  r;

    memset(&r, 0, sizeof(zk_lock_reader_t));

    r.label = label;
    r.key = zk_lock_label_key;
    r.set = zk_lock_label_set;
    r.what = "the label";
    r.data = label->data;
    r.data_len = &label->data_len;

    if (zk_lock_reader_open(&r, memory, sizeof(memory)) != 0) {
        return -1;
    }

    rc = zk_lock_reader_feed(&r, text, len);

    if (rc == 0) {
        rc = zk_lock_reader_done(&r);
    }

    zk_lock_reader_close(&r);

    return (rc == 0 && (r.seen & ZK_LOCK_FIELD_INDEX)) ? 0 : -1;
}


static int
zk_lock_label_key(zk_lock_reader_t *r, const char *name, size_t len)
{
    if (len == 5 && memcmp(name, "index", 5) == 0) {
        r->field = ZK_LOCK_FIELD_INDEX;

    } else if (len == 3 && memcmp(name, "ttl", 3) == 0) {
        r->field = ZK_LOCK_ARG_TTL;

    } else if (len == 4 && memcmp(name, "data", 4) == 0) {
        r->field = ZK_LOCK_ARG_DATA;

    } else {
        /* a newer gateway may have more to say */
        r->field = ZK_LOCK_FIELD_SKIPPED;
        return 0;
    }

    if (r->field & r->seen) {
        return -1;
    }

    r->seen |= r->field;

    return 0;
}


static int
zk_lock_label_set(zk_lock_reader_t *r, zk_lock_type_e type, const char *text,
    size_t len)
{
    int      high, low;
    size_t   i;
    int64_t  ttl;

    if (r->field == ZK_LOCK_FIELD_INDEX) {

        if (type != ZK_LOCK_STRING || len != 2) {
            return -1;
        }

        high = zk_lock_hex_digit(text[0]);
        low = zk_lock_hex_digit(text[1]);

        if (high == -1 || low == -1) {
            return -1;
        }

        r->label->index = high << 4 | low;

        return 0;
    }

    /* r->field == ZK_LOCK_ARG_TTL */

    if (type != ZK_LOCK_NUMBER) {
        return -1;
    }

    ttl = 0;

    for (i = 0; i < len; i++) {

        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }

        ttl = ttl * 10 + (text[i] - '0');

        if (ttl > ZK_LOCK_DURATION_MAX) {
            return -1;
        }
    }

    r->label->ttl = ttl;

    return 0;
}


/* the caller has zeroed r and set what comes from outside, args to field */

static int
zk_lock_reader_open(zk_lock_reader_t *r, char *memory, size_t size)
{
    yajl_alloc_funcs  functions;

    zk_lock_memory_init(&r->memory, memory, size, &functions);

    r->parser = yajl_alloc(&zk_lock_yajl_callbacks, &functions, r);
    if (r->parser == NULL) {
        return -1;
    }

    r->gen = yajl_gen_alloc(&functions);

    if (r->gen == NULL
        || yajl_gen_config(r->gen, yajl_gen_print_callback,
                           zk_lock_reader_print, r)
           == 0)
    {
        zk_lock_reader_close(r);
        return -1;
    }

    return 0;
}


static int
zk_lock_reader_feed(zk_lock_reader_t *r, const char *text, size_t len)
{
    size_t  n;

    if (r->failed) {
        return -1;
    }

    while (len != 0) {
        n = (len < ZK_LOCK_SLICE) ? len : ZK_LOCK_SLICE;

        if (zk_lock_reader_scan(r, text, n) != 0
            || zk_lock_reader_status(r, yajl_parse(r->parser,
                                                   (const unsigned char *) text,
                                                   n))
               != 0)
        {
            r->failed = 1;
            return -1;
        }

        if (r->memory.largest > ZK_LOCK_TOKEN_MAX) {
            r->failed = 1;
            return zk_lock_args_error(r->args, "a string or a number in %s is"
                                      " too long", r->what);
        }

        text += n;
        len -= n;
    }

    return 0;
}


static int
zk_lock_reader_done(zk_lock_reader_t *r)
{
    return zk_lock_reader_status(r, yajl_complete_parse(r->parser));
}


static void
zk_lock_reader_close(zk_lock_reader_t *r)
{
    if (r->gen != NULL) {
        yajl_gen_free(r->gen);
    }

    yajl_free(r->parser);
}


/* looks at the bytes before yajl does, for what it would let pass */

static int
zk_lock_reader_scan(zk_lock_reader_t *r, const char *text, size_t len)
{
    char    c;
    size_t  i;

    for (i = 0; i < len; i++) {
        c = text[i];

        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            /* void */

        } else {
            r->begun = 1;

            if ((unsigned char) c < 0x20) {
                return zk_lock_args_error(r->args, "%s has a control"
                                          " character in it", r->what);
            }
        }

        if (zk_lock_reader_escape(r, c) != 0) {
            return zk_lock_args_error(r->args, "%s has half a surrogate pair"
                                      " in it", r->what);
        }
    }

    return 0;
}


/*
 * Follows the escapes.  A backslash outside of a string, and a wrong digit,
 * are for yajl to refuse.
 */

static int
zk_lock_reader_escape(zk_lock_reader_t *r, char c)
{
    int  digit;

    if (r->escape == 0) {

        if (c == '\\') {
            r->escape = 1;
            return 0;
        }

        return r->surrogate ? -1 : 0;
    }

    if (r->escape == 1) {

        if (c == 'u') {
            r->escape = 2;
            r->unit = 0;
            return 0;
        }

        r->escape = 0;

        return r->surrogate ? -1 : 0;
    }

    digit = zk_lock_hex_digit(c);
    if (digit == -1) {
        r->escape = 0;
        return r->surrogate ? -1 : 0;
    }

    r->unit = r->unit << 4 | (unsigned) digit;

    if (++r->escape < 6) {
        return 0;
    }

    r->escape = 0;

    if (r->unit >= 0xdc00 && r->unit <= 0xdfff) {

        if (!r->surrogate) {
            return -1;
        }

        r->surrogate = 0;

        return 0;
    }

    if (r->surrogate) {
        return -1;
    }

    r->surrogate = (r->unit >= 0xd800 && r->unit <= 0xdbff);

    return 0;
}


static int
zk_lock_reader_status(zk_lock_reader_t *r, yajl_status status)
{
    char           *p;
    size_t          len;
    unsigned char  *reason;

    if (status == yajl_status_ok) {
        return 0;
    }

    if (status == yajl_status_client_canceled) {
        /* whoever canceled has said why */
        return -1;
    }

    reason = yajl_get_error(r->parser, 0, NULL, 0);

    if (reason == NULL) {
        return zk_lock_args_error(r->args, "%s is not valid JSON", r->what);
    }

    /* such as "parse error: trailing garbage\n" */

    p = strstr((char *) reason, ": ");
    p = (p != NULL) ? p + 2 : (char *) reason;
    len = strcspn(p, ".\n");

    (void) zk_lock_args_error(r->args, "%s is not valid JSON (%.*s)", r->what,
                              (len < 100) ? (int) len : 100, p);

    yajl_free_error(r->parser, reason);

    return -1;
}


static int
zk_lock_reader_scalar(zk_lock_reader_t *r, zk_lock_type_e type,
    const char *text, size_t len)
{
    int  rc;

    if (type == ZK_LOCK_STRING && zk_lock_reader_utf8(r, text, len) != 0) {
        return -1;
    }

    if (r->field == 0) {
        return zk_lock_args_error(r->args, "%s is not a JSON object",
                                  r->what);
    }

    if (r->field & (ZK_LOCK_ARG_DATA|ZK_LOCK_FIELD_SKIPPED)) {
        rc = zk_lock_reader_copy(r, type, text, len);

    } else {
        rc = r->set(r, type, text, len);
    }

    if (r->nested == 0) {
        r->field = 0;
    }

    return rc;
}


static int
zk_lock_reader_begin(zk_lock_reader_t *r, zk_lock_type_e type)
{
    if (r->field == 0) {

        /* the outermost value, as yajl refuses a second one */

        if (type == ZK_LOCK_OBJECT) {
            return 0;
        }

        return zk_lock_args_error(r->args, "%s is not a JSON object",
                                  r->what);
    }

    if (!(r->field & (ZK_LOCK_ARG_DATA|ZK_LOCK_FIELD_SKIPPED))) {
        return r->set(r, type, NULL, 0);
    }

    if (r->nested == ZK_LOCK_DATA_DEPTH) {
        return zk_lock_args_error(r->args, "\"data\" is nested deeper than"
                                  " %d", ZK_LOCK_DATA_DEPTH);
    }

    r->nested++;

    return zk_lock_reader_copy(r, type, NULL, 0);
}


static int
zk_lock_reader_end(zk_lock_reader_t *r, zk_lock_type_e type)
{
    yajl_gen_status  status;

    if (r->nested == 0) {
        return 0;
    }

    status = yajl_gen_status_ok;

    if (r->field == ZK_LOCK_ARG_DATA) {
        status = (type == ZK_LOCK_OBJECT) ? yajl_gen_map_close(r->gen)
                                          : yajl_gen_array_close(r->gen);
    }

    r->nested--;

    if (r->nested == 0) {
        r->field = 0;
    }

    return zk_lock_reader_copied(r, status);
}


static int
zk_lock_reader_copy(zk_lock_reader_t *r, zk_lock_type_e type,
    const char *text, size_t len)
{
    yajl_gen_status  status;

    if (r->field != ZK_LOCK_ARG_DATA) {
        return 0;
    }

    switch (type) {

    case ZK_LOCK_STRING:
        status = yajl_gen_string(r->gen, (const unsigned char *) text, len);
        break;

    case ZK_LOCK_OBJECT:
        status = yajl_gen_map_open(r->gen);
        break;

    case ZK_LOCK_ARRAY:
        status = yajl_gen_array_open(r->gen);
        break;

    case ZK_LOCK_NULL:
        status = yajl_gen_null(r->gen);
        break;

    default: /* ZK_LOCK_NUMBER, ZK_LOCK_BOOLEAN: as it is */
        status = yajl_gen_number(r->gen, text, len);
        break;
    }

    return zk_lock_reader_copied(r, status);
}


static int
zk_lock_reader_copied(zk_lock_reader_t *r, yajl_gen_status status)
{
    if (r->overflow) {
        return zk_lock_args_error(r->args, "\"data\" is longer than %d bytes"
                                  " of compact JSON", ZK_LOCK_DATA_MAX);
    }

    /* the tokens came from a parser, so their order is right */

    if (status != yajl_gen_status_ok) {
        return zk_lock_args_error(r->args, "\"data\" cannot be written");
    }

    return 0;
}


static void
zk_lock_reader_print(void *data, const char *text, size_t len)
{
    zk_lock_reader_t *r = data;

    if (r->overflow || len > ZK_LOCK_DATA_MAX - *r->data_len) {
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
zk_lock_reader_utf8(zk_lock_reader_t *r, const char *text, size_t len)
{
    if (zk_lock_utf8_check(text, len)) {
        return 0;
    }

    return zk_lock_args_error(r->args, "%s is not UTF-8", r->what);
}


static int
zk_lock_yajl_null(void *data)
{
    return zk_lock_reader_scalar(data, ZK_LOCK_NULL, "null", 4) == 0;
}


static int
zk_lock_yajl_boolean(void *data, int value)
{
    const char  *text;

    text = value ? "true" : "false";

    return zk_lock_reader_scalar(data, ZK_LOCK_BOOLEAN, text, strlen(text))
           == 0;
}


static int
zk_lock_yajl_number(void *data, const char *text, size_t len)
{
    return zk_lock_reader_scalar(data, ZK_LOCK_NUMBER, text, len) == 0;
}


static int
zk_lock_yajl_string(void *data, const unsigned char *text, size_t len)
{
    return zk_lock_reader_scalar(data, ZK_LOCK_STRING, (const char *) text,
                                 len)
           == 0;
}


static int
zk_lock_yajl_start_map(void *data)
{
    return zk_lock_reader_begin(data, ZK_LOCK_OBJECT) == 0;
}


static int
zk_lock_yajl_map_key(void *data, const unsigned char *text, size_t len)
{
    const char  *name;

    zk_lock_reader_t *r = data;

    name = (const char *) text;

    if (zk_lock_reader_utf8(r, name, len) != 0) {
        return 0;
    }

    if (r->nested != 0) {
        return zk_lock_reader_copy(r, ZK_LOCK_STRING, name, len) == 0;
    }

    return r->key(r, name, len) == 0;
}


static int
zk_lock_yajl_end_map(void *data)
{
    return zk_lock_reader_end(data, ZK_LOCK_OBJECT) == 0;
}


static int
zk_lock_yajl_start_array(void *data)
{
    return zk_lock_reader_begin(data, ZK_LOCK_ARRAY) == 0;
}


static int
zk_lock_yajl_end_array(void *data)
{
    return zk_lock_reader_end(data, ZK_LOCK_ARRAY) == 0;
}


zk_lock_json_t *
zk_lock_json_open(void)
{
    zk_lock_json_t    *json;
    yajl_alloc_funcs   functions;

    json = malloc(sizeof(zk_lock_json_t));
    if (json == NULL) {
        return NULL;
    }

    memset(json, 0, sizeof(zk_lock_json_t));

    zk_lock_memory_init(&json->memory, json->block, sizeof(json->block),
                        &functions);

    json->gen = yajl_gen_alloc(&functions);

    if (json->gen == NULL) {
        free(json);
        return NULL;
    }

    if (yajl_gen_config(json->gen, yajl_gen_print_callback,
                        zk_lock_json_print, json)
        == 0)
    {
        zk_lock_json_close(json);
        return NULL;
    }

    return json;
}


void
zk_lock_json_object(zk_lock_json_t *json, const char *key)
{
    if (zk_lock_json_begin(json, key) == 0) {
        json->depth++;
        zk_lock_json_wrote(json, yajl_gen_map_open(json->gen));
    }
}


void
zk_lock_json_array(zk_lock_json_t *json, const char *key)
{
    if (zk_lock_json_begin(json, key) == 0) {
        json->depth++;
        zk_lock_json_wrote(json, yajl_gen_array_open(json->gen));
    }
}


void
zk_lock_json_end_object(zk_lock_json_t *json)
{
    if (zk_lock_json_begin(json, NULL) != 0) {
        return;
    }

    /* yajl counts on below zero */

    if (json->depth == 0) {
        json->failed = 1;
        return;
    }

    json->depth--;
    zk_lock_json_wrote(json, yajl_gen_map_close(json->gen));
}


void
zk_lock_json_end_array(zk_lock_json_t *json)
{
    if (zk_lock_json_begin(json, NULL) != 0) {
        return;
    }

    if (json->depth == 0) {
        json->failed = 1;
        return;
    }

    json->depth--;
    zk_lock_json_wrote(json, yajl_gen_array_close(json->gen));
}


void
zk_lock_json_string(zk_lock_json_t *json, const char *key, const char *text,
    size_t len)
{
    if (zk_lock_json_begin(json, key) != 0) {
        return;
    }

    if (!zk_lock_utf8_check(text, len)) {
        json->failed = 1;
        return;
    }

    zk_lock_json_wrote(json, yajl_gen_string(json->gen,
                                             (const unsigned char *) text,
                                             len));
}


void
zk_lock_json_integer(zk_lock_json_t *json, const char *key, int64_t value)
{
    if (zk_lock_json_begin(json, key) == 0) {
        zk_lock_json_wrote(json, yajl_gen_integer(json->gen, value));
    }
}


void
zk_lock_json_raw(zk_lock_json_t *json, const char *key, const char *text,
    size_t len)
{
    if (zk_lock_json_begin(json, key) != 0) {
        return;
    }

    if (len == 0) {
        json->failed = 1;
        return;
    }

    /* yajl writes the text of a number as it is */

    zk_lock_json_wrote(json, yajl_gen_number(json->gen, text, len));
}


const char *
zk_lock_json_text(zk_lock_json_t *json, size_t *len)
{
    if (json == NULL || json->failed || json->depth != 0 || json->len == 0) {
        return NULL;
    }

    *len = json->len;

    return json->text;
}


void
zk_lock_json_close(zk_lock_json_t *json)
{
    if (json == NULL) {
        return;
    }

    yajl_gen_free(json->gen);
    free(json->text);
    free(json);
}


/* returns 0 if the writer works and the key, if there is one, is written */

static int
zk_lock_json_begin(zk_lock_json_t *json, const char *key)
{
    if (json == NULL || json->failed) {
        return -1;
    }

    if (key == NULL) {
        return 0;
    }

    zk_lock_json_wrote(json, yajl_gen_string(json->gen,
                                             (const unsigned char *) key,
                                             strlen(key)));

    return json->failed ? -1 : 0;
}


static void
zk_lock_json_wrote(zk_lock_json_t *json, yajl_gen_status status)
{
    if (status != yajl_gen_status_ok) {
        json->failed = 1;
    }
}


static void
zk_lock_json_print(void *data, const char *text, size_t len)
{
    zk_lock_json_t *json = data;

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


static void
zk_lock_memory_init(zk_lock_memory_t *memory, char *start, size_t size,
    yajl_alloc_funcs *functions)
{
    size_t  skew;

    skew = (uintptr_t) start % ZK_LOCK_ALIGNMENT;

    memory->end = start + size;

    if (skew != 0) {
        start += ZK_LOCK_ALIGNMENT - skew;
    }

    memory->start = start;
    memory->last = start;
    memory->largest = 0;

    functions->malloc = zk_lock_memory_alloc;
    functions->realloc = zk_lock_memory_realloc;
    functions->free = zk_lock_memory_free;
    functions->ctx = memory;
}


static void *
zk_lock_memory_alloc(void *data, size_t size)
{
    zk_lock_memory_t *memory = data;

    char    *p;
    size_t   n, room;

    if (size > memory->largest) {
        memory->largest = size;
    }

    room = (size_t) (memory->end - memory->last);

    if (room < 2 * ZK_LOCK_ALIGNMENT || size > room - 2 * ZK_LOCK_ALIGNMENT) {
        return malloc(size);
    }

    n = (size + ZK_LOCK_ALIGNMENT - 1) / ZK_LOCK_ALIGNMENT;
    p = memory->last;

    memcpy(p, &size, sizeof(size_t));
    memory->last += (n + 1) * ZK_LOCK_ALIGNMENT;

    return p + ZK_LOCK_ALIGNMENT;
}


static void *
zk_lock_memory_realloc(void *data, void *block, size_t size)
{
    zk_lock_memory_t *memory = data;

    void    *p;
    size_t   old;

    if (block == NULL) {
        return zk_lock_memory_alloc(memory, size);
    }

    if (!zk_lock_memory_inside(memory, block)) {

        if (size > memory->largest) {
            memory->largest = size;
        }

        return realloc(block, size);
    }

    memcpy(&old, (char *) block - ZK_LOCK_ALIGNMENT, sizeof(size_t));

    if (size <= old) {
        return block;
    }

    p = zk_lock_memory_alloc(memory, size);

    if (p != NULL) {
        memcpy(p, block, old);
    }

    return p;
}


static void
zk_lock_memory_free(void *data, void *block)
{
    /* what is inside goes with the reader or the writer */

    if (!zk_lock_memory_inside(data, block)) {
        free(block);
    }
}


static int
zk_lock_memory_inside(zk_lock_memory_t *memory, const void *block)
{
    uintptr_t  p;

    p = (uintptr_t) block;

    return p >= (uintptr_t) memory->start && p < (uintptr_t) memory->end;
}


/*
 * Bytes of the character at the start of text, which is not empty; 0 if it is
 * a control character or no UTF-8.
 */

static size_t
zk_lock_shown_len(const char *text, size_t len)
{
    size_t         n;
    unsigned char  c;

    c = (unsigned char) text[0];

    if (c < 0x80) {
        return (c < 0x20 || c == 0x7f) ? 0 : 1;
    }

    n = (c < 0xe0) ? 2 : (c < 0xf0) ? 3 : 4;

    if (n > len || !zk_lock_utf8_check(text, n)) {
        return 0;
    }

    return (c == 0xc2 && (unsigned char) text[1] < 0xa0) ? 0 : n;
}


static int
zk_lock_shown_check(const char *text, size_t len)
{
    size_t  n;

    while (len != 0) {
        n = zk_lock_shown_len(text, len);

        if (n == 0) {
            return 0;
        }

        text += n;
        len -= n;
    }

    return 1;
}


/* what can be shown of text, in ZK_LOCK_QUOTE_MAX bytes at buf */

static const char *
zk_lock_quote(char *buf, const char *text, size_t len)
{
    char    *p;
    size_t   n;

    p = buf;

    while (len != 0) {

        /* room for a character, the dots and the NUL */

        if (p - buf > ZK_LOCK_QUOTE_MAX - 8) {
            memcpy(p, "...", 3);
            p += 3;
            break;
        }

        n = zk_lock_shown_len(text, len);

        if (n == 0) {
            *p++ = '?';
            n = 1;

        } else {
            memcpy(p, text, n);
            p += n;
        }

        text += n;
        len -= n;
    }

    *p = '\0';

    return buf;
}


static int
zk_lock_hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }

    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }

    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }

    return -1;
}
