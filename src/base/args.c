
/*
 * A call's arguments: the table of the arguments, the readers of a value, and
 * the readers of a query and of a JSON body.
 *
 * A query and a body both end in zkl_args_set(), except for data, which the
 * JSON reader writes to args->data, and for names, which only a body has.
 *
 * Any thread may call the functions.  A pointer to a text may be NULL only with
 * a length of 0.
 */


#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/args.h"
#include "base/json.h"
#include "base/name.h"


typedef struct {
    const char          *name;
    unsigned             field;     /* ZKL_ARG_* */
    const char          *takes;
} zkl_field_t;

typedef struct {
    zkl_args_t          *args;
    unsigned             allowed;   /* ZKL_ARG_* */
    unsigned             seen;
    unsigned             field;     /* of the next value */
} zkl_args_body_t;


static unsigned zkl_args_field(zkl_args_t *args, const char *noun,
    const char *name, size_t len, unsigned allowed, unsigned *seen);
static int zkl_args_set(zkl_args_t *args, unsigned field, const char *text,
    size_t len);
static int zkl_args_duration(zkl_args_t *args, unsigned field, int64_t *ms,
    const char *text, size_t len);
static int zkl_args_word(zkl_args_t *args, unsigned field, char *word,
    size_t *word_len, const char *text, size_t len);
static int zkl_args_sort(zkl_args_t *args, const char *text, size_t len);
static int zkl_args_shown(zkl_args_t *args, unsigned field, char *buf,
    size_t max, size_t *buf_len, const char *text, size_t len);
static int zkl_args_after(zkl_args_t *args, const char *text, size_t len);
static int zkl_args_number(zkl_args_t *args, unsigned field, uint32_t *number,
    uint32_t max, const char *text, size_t len);
static int zkl_args_one(zkl_args_t *args, unsigned field, const char *text,
    size_t len);
static int zkl_args_flag(zkl_args_t *args, unsigned field, uint32_t *flag,
    const char *text, size_t len);
static int zkl_args_name(zkl_args_t *args, const char *text, size_t len);
static size_t zkl_args_place(const zkl_args_t *args, const char *text,
    size_t len);
static int zkl_args_refuse(zkl_args_t *args, unsigned field);
static int zkl_args_error(zkl_args_t *args, const char *format, ...);
static const char *zkl_args_quote(char *buf, const char *text, size_t len);
static int zkl_args_query_piece(zkl_args_t *args, const char *text, size_t len,
    unsigned allowed, unsigned *seen);
static int zkl_args_query_decode(char *buf, size_t size, const char *text,
    size_t len, size_t *decoded);
static int zkl_args_query_data(zkl_args_t *args, const char *text, size_t len);
static int zkl_args_body_token(zkl_json_reader_t *r, zkl_type_e type,
    const char *text, size_t len);
static int zkl_args_body_names(zkl_args_body_t *body, unsigned depth,
    zkl_type_e type, const char *text, size_t len);


static const char  zkl_takes_duration[] =
    "a duration such as \"10s\", \"1500ms\" or a number of seconds,"
    " up to ten years and with at most three decimals";

static const char  zkl_takes_number[] = "an integer from 1 to 1000";

static const char  zkl_takes_one[] = "1 and nothing else";

static const zkl_field_t  zkl_fields[] = {
    { "wait",    ZKL_ARG_WAIT,    zkl_takes_duration },
    { "ttl",     ZKL_ARG_TTL,     zkl_takes_duration },
    { "mode",    ZKL_ARG_MODE,    "a word such as \"exclusive\"" },
    { "owner",   ZKL_ARG_OWNER,   "a string of at most 255 bytes of UTF-8"
                                  " without control characters" },
    { "data",    ZKL_ARG_DATA,    "JSON" },
    { "hold",    ZKL_ARG_HOLD,    "a word such as \"lease\"" },
    { "permits", ZKL_ARG_PERMITS, zkl_takes_number },
    { "names",   ZKL_ARG_NAMES,   "an array of 1 to 32 names, in a body"
                                  " of JSON" },
    { "until",   ZKL_ARG_UNTIL,   "a word such as \"free\"" },
    { "prefix",  ZKL_ARG_PREFIX,  "a string of at most 200 bytes of UTF-8"
                                  " without control characters" },
    { "limit",   ZKL_ARG_LIMIT,   zkl_takes_number },
    { "after",   ZKL_ARG_AFTER,   "the \"next\" of another answer" },
    { "force",   ZKL_ARG_FORCE,   zkl_takes_one },
    { "revoke",  ZKL_ARG_REVOKE,  zkl_takes_one },
    { "durable", ZKL_ARG_DURABLE, zkl_takes_one },
    { "holders", ZKL_ARG_HOLDERS, "1 or 0" },
    { "sort",    ZKL_ARG_SORT,    "\"since\" or \"waiting\"" },
    { NULL,      0,                   NULL }
};


/*
 * Returns the ZKL_ARG_* of a name, or 0 with args->error if the name is
 * unknown, not allowed or seen already.  noun is a noun for the error.
 */

static unsigned
zkl_args_field(zkl_args_t *args, const char *noun, const char *name,
    size_t len, unsigned allowed, unsigned *seen)
{
    char                quoted[ZKL_QUOTE_MAX];
    const zkl_field_t  *f;

    for  (f = zkl_fields; f->name != NULL; f++) {
        if (len == strlen(f->name) && memcmp(name, f->name, len) == 0) {
            break;
        }
    }

    if (f->name == NULL) {
        (void) zkl_args_error(args, "unknown %s \"%s\"", noun,
                              zkl_args_quote(quoted, name, len));
        return 0;
    }

    if (!(f->field & allowed)) {
        (void) zkl_args_error(args, "the %s \"%s\" has no place in this"
                              " call", noun, f->name);
        return 0;
    }

    if (f->field & *seen) {
        (void) zkl_args_error(args, "the %s \"%s\" is there twice", noun,
                              f->name);
        return 0;
    }

    *seen |= f->field;

    return f->field;
}


/*
 * Reads the value of any field but data and names, from a string or a number.
 * Returns 0, or -1 with args->error.
 */

static int
zkl_args_set(zkl_args_t *args, unsigned field, const char *text, size_t len)
{
    int  rc;

    switch (field) {

    case ZKL_ARG_WAIT:
        rc = zkl_args_duration(args, field, &args->wait, text, len);
        break;

    case ZKL_ARG_TTL:
        rc = zkl_args_duration(args, field, &args->ttl, text, len);
        break;

    case ZKL_ARG_MODE:
        rc = zkl_args_word(args, field, args->mode, &args->mode_len, text,
                           len);
        break;

    case ZKL_ARG_HOLD:
        rc = zkl_args_word(args, field, args->hold, &args->hold_len, text,
                           len);
        break;

    case ZKL_ARG_UNTIL:
        rc = zkl_args_word(args, field, args->until, &args->until_len, text,
                           len);
        break;

    case ZKL_ARG_PERMITS:
        rc = zkl_args_number(args, field, &args->permits, ZKL_PERMITS_MAX,
                             text, len);
        break;

    case ZKL_ARG_LIMIT:
        rc = zkl_args_number(args, field, &args->limit, ZKL_LIMIT_MAX, text,
                             len);
        break;

    case ZKL_ARG_PREFIX:
        rc = zkl_args_shown(args, field, args->prefix, ZKL_NAME_MAX,
                            &args->prefix_len, text, len);
        break;

    case ZKL_ARG_AFTER:
        rc = zkl_args_after(args, text, len);
        break;

    case ZKL_ARG_HOLDERS:
        rc = zkl_args_flag(args, field, &args->holders, text, len);
        break;

    case ZKL_ARG_SORT:
        rc = zkl_args_sort(args, text, len);
        break;

    case ZKL_ARG_OWNER:
        rc = zkl_args_shown(args, field, args->owner, ZKL_OWNER_MAX,
                            &args->owner_len, text, len);
        break;

    default: /* ZKL_ARG_FORCE, ZKL_ARG_REVOKE, ZKL_ARG_DURABLE */
        rc = zkl_args_one(args, field, text, len);
        break;
    }

    if (rc == 0) {
        args->given |= field;
    }

    return rc;
}


static int
zkl_args_duration(zkl_args_t *args, unsigned field, int64_t *ms,
    const char *text, size_t len)
{
    int64_t  value;

    value = zkl_text_duration_read(text, len);

    if (value == -1) {
        return zkl_args_refuse(args, field);
    }

    *ms = value;

    return 0;
}


static int
zkl_args_word(zkl_args_t *args, unsigned field, char *word, size_t *word_len,
    const char *text, size_t len)
{
    size_t  i;

    if (len == 0 || len > ZKL_WORD_MAX) {
        return zkl_args_refuse(args, field);
    }

    for (i = 0; i < len; i++) {
        if (text[i] != '-' && (text[i] < 'a' || text[i] > 'z')) {
            return zkl_args_refuse(args, field);
        }
    }

    memcpy(word, text, len);
    word[len] = '\0';
    *word_len = len;

    return 0;
}


static int
zkl_args_sort(zkl_args_t *args, const char *text, size_t len)
{
    if ((len == 5 && memcmp(text, "since", 5) == 0)
        || (len == 7 && memcmp(text, "waiting", 7) == 0))
    {
        return zkl_args_word(args, ZKL_ARG_SORT, args->sort, &args->sort_len,
                             text, len);
    }

    return zkl_args_refuse(args, ZKL_ARG_SORT);
}


static int
zkl_args_shown(zkl_args_t *args, unsigned field, char *buf, size_t max,
    size_t *buf_len, const char *text, size_t len)
{
    if (len > max || !zkl_text_shown_check(text, len)) {
        return zkl_args_refuse(args, field);
    }

    if (len != 0) {
        memcpy(buf, text, len);
    }

    buf[len] = '\0';
    *buf_len = len;

    return 0;
}


/* checks the letters only, because the caller decodes the cursor */

static int
zkl_args_after(zkl_args_t *args, const char *text, size_t len)
{
    size_t  i;

    if (len > ZKL_AFTER_MAX) {
        return zkl_args_refuse(args, ZKL_ARG_AFTER);
    }

    for (i = 0; i < len; i++) {
        if (text[i] != '-' && text[i] != '_'
            && (text[i] < '0' || text[i] > '9')
            && (text[i] < 'A' || text[i] > 'Z')
            && (text[i] < 'a' || text[i] > 'z'))
        {
            return zkl_args_refuse(args, ZKL_ARG_AFTER);
        }
    }

    if (len != 0) {
        memcpy(args->after, text, len);
    }

    args->after[len] = '\0';
    args->after_len = len;

    return 0;
}


static int
zkl_args_number(zkl_args_t *args, unsigned field, uint32_t *number,
    uint32_t max, const char *text, size_t len)
{
    size_t    i;
    uint32_t  value;

    value = 0;

    for (i = 0; i < len; i++) {

        if (text[i] < '0' || text[i] > '9') {
            return zkl_args_refuse(args, field);
        }

        value = value * 10 + (uint32_t) (text[i] - '0');

        if (value > max) {
            return zkl_args_refuse(args, field);
        }
    }

    if (value == 0) {
        return zkl_args_refuse(args, field);
    }

    *number = value;

    return 0;
}


static int
zkl_args_one(zkl_args_t *args, unsigned field, const char *text, size_t len)
{
    if (len != 1 || text[0] != '1') {
        return zkl_args_refuse(args, field);
    }

    return 0;
}


static int
zkl_args_flag(zkl_args_t *args, unsigned field, uint32_t *flag,
    const char *text, size_t len)
{
    if (len != 1 || (text[0] != '0' && text[0] != '1')) {
        return zkl_args_refuse(args, field);
    }

    *flag = (text[0] == '1');

    return 0;
}


/*
 * Inserts a name into args->names, in byte order.  Returns 0, or -1 with
 * args->error.
 */

static int
zkl_args_name(zkl_args_t *args, const char *text, size_t len)
{
    char        *p, quoted[ZKL_QUOTE_MAX], name[ZKL_NAMES_BYTES];
    size_t       n, at, rest;
    const char  *error;

    n = zkl_name_write(NULL, text, len);

    if (n > ZKL_NAMES_BYTES) {
        return zkl_args_error(args, "\"names\" has more than %d bytes of"
                              " names in it, \"%s\" is too much",
                              ZKL_NAMES_BYTES,
                              zkl_args_quote(quoted, text, len));
    }

    (void) zkl_name_write(name, text, len);

    text = name;
    len = n;

    error = zkl_name_refuse(text, len);

    if (error != NULL) {
        return zkl_args_error(args, "\"names\" has \"%s\" in it, but %s",
                              zkl_args_quote(quoted, text, len), error);
    }

    at = zkl_args_place(args, text, len);

    if (at > args->names_len) {
        return zkl_args_error(args, "\"names\" has \"%s\" in it twice",
                              zkl_args_quote(quoted, text, len));
    }

    if (args->nnames == ZKL_ARGS_NAMES_MAX) {
        return zkl_args_error(args, "\"names\" has more than %d names in"
                              " it, \"%s\" is one too many",
                              ZKL_ARGS_NAMES_MAX,
                              zkl_args_quote(quoted, text, len));
    }

    /* each name but the last has a slash behind the name */

    if (args->nnames != 0
        && args->names_len - (args->nnames - 1) + len > ZKL_NAMES_BYTES)
    {
        return zkl_args_error(args, "\"names\" has more than %d bytes of"
                              " names in it, \"%s\" is too much",
                              ZKL_NAMES_BYTES,
                              zkl_args_quote(quoted, text, len));
    }

    p = args->names + at;
    rest = args->names_len - at;

    if (args->nnames == 0) {
        memcpy(p, text, len);
        args->names_len = len;

    } else if (rest == 0) {
        *p = '/';
        memcpy(p + 1, text, len);
        args->names_len += len + 1;

    } else {
        memmove(p + len + 1, p, rest);
        memcpy(p, text, len);
        p[len] = '/';
        args->names_len += len + 1;
    }

    args->names[args->names_len] = '\0';
    args->nnames++;

    return 0;
}


/*
 * Returns the offset in args->names where a name belongs: that of the first
 * greater name, or the end.  A name that is there already gives an offset
 * behind the end.
 */

static size_t
zkl_args_place(const zkl_args_t *args, const char *text, size_t len)
{
    int          rc;
    size_t       at, n;
    const char  *end, *name;

    for (at = 0; at < args->names_len; at += n + 1) {
        name = args->names + at;

        end = memchr(name, '/', args->names_len - at);
        n = (end != NULL) ? (size_t) (end - name) : args->names_len - at;

        rc = memcmp(text, name, (len < n) ? len : n);

        if (rc == 0 && len == n) {
            return args->names_len + 1;
        }

        if (rc < 0 || (rc == 0 && len < n)) {
            return at;
        }
    }

    return args->names_len;
}


/* Writes the values that a field takes to args->error.  Returns -1. */

static int
zkl_args_refuse(zkl_args_t *args, unsigned field)
{
    const zkl_field_t  *f;

    for  (f = zkl_fields; f->name != NULL; f++) {
        if (f->field == field) {
            return zkl_args_error(args, "\"%s\" takes %s", f->name, f->takes);
        }
    }

    return -1;
}


/*
 * Writes args->error.  Returns -1.  The error is never cut off, because the
 * texts for format are short constants or come from zkl_args_quote().
 */

static int
zkl_args_error(zkl_args_t *args, const char *format, ...)
{
    va_list  ap;

    va_start(ap, format);
    (void) vsnprintf(args->error, sizeof(args->error), format, ap);
    va_end(ap);

    return -1;
}


/*
 * Writes the printable form of text to the ZKL_QUOTE_MAX bytes at buf, and
 * returns buf: "?" for a byte that cannot be shown, "..." for the rest.
 */

static const char *
zkl_args_quote(char *buf, const char *text, size_t len)
{
    size_t  n;

    /* room for the dots and the NUL */

    n = zkl_text_show(buf, ZKL_QUOTE_MAX - 4, text, len);

    if (n < len) {
        memcpy(buf + n, "...", 3);
        n += 3;
    }

    buf[n] = '\0';

    return buf;
}


/* The query: each piece between two "&" is unescaped and read as a value. */


int
zkl_args_query_read(zkl_args_t *args, const char *query, size_t len,
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
            && zkl_args_query_piece(args, query, n, allowed, &seen) != 0)
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
zkl_args_query_piece(zkl_args_t *args, const char *text, size_t len,
    unsigned allowed, unsigned *seen)
{
    char         name[ZKL_QUOTE_MAX], quoted[ZKL_QUOTE_MAX];
    char         value[ZKL_JSON_MAX];
    size_t       n, name_len, value_len;
    unsigned     field;
    const char  *end;

    end = memchr(text, '=', len);
    n = (end != NULL) ? (size_t) (end - text) : len;

    if (zkl_args_query_decode(name, sizeof(name), text, n, &name_len) != 0) {
        return zkl_args_error(args, "unknown argument \"%s\"",
                              zkl_args_quote(quoted, text, n));
    }

    field = zkl_args_field(args, "argument", name, name_len, allowed, seen);
    if (field == 0) {
        return -1;
    }

    if (end != NULL) {
        n++;
    }

    if (zkl_args_query_decode(value, sizeof(value), text + n, len - n,
                              &value_len)
        != 0)
    {
        return zkl_args_error(args, "the argument \"%s\" has a broken"
                              " escape in it or is too long",
                              zkl_args_quote(quoted, name, name_len));
    }

    if (field == ZKL_ARG_DATA) {
        return zkl_args_query_data(args, value, value_len);
    }

    if (field == ZKL_ARG_NAMES) {
        return zkl_args_refuse(args, field);
    }

    return zkl_args_set(args, field, value, value_len);
}


static int
zkl_args_query_decode(char *buf, size_t size, const char *text, size_t len,
    size_t *decoded)
{
    size_t  i, n;

    n = 0;

    for (i = 0; i < len; i++) {

        if (n == size) {
            return -1;
        }

        if (text[i] != '%') {
            buf[n++] = (text[i] == '+') ? ' ' : text[i];
            continue;
        }

        if (len - i < 3) {
            return -1;
        }

        if (zkl_text_hex_read((uint8_t *) &buf[n++], 1, text + i + 1) != 0) {
            return -1;
        }

        i += 2;
    }

    *decoded = n;

    return 0;
}


static int
zkl_args_query_data(zkl_args_t *args, const char *text, size_t len)
{
    zkl_json_reader_t  r;

    memset(&r, 0, sizeof(zkl_json_reader_t));

    r.what = "\"data\"";
    r.copied = r.what;
    r.data = args->data;
    r.data_len = &args->data_len;
    r.error = args->error;

    args->data_len = 0;

    if (zkl_json_read(&r, text, len) != 0) {
        return -1;
    }

    args->given |= ZKL_ARG_DATA;

    return 0;
}


/* The body: each member of the object is read as a value. */


int
zkl_args_body_read(zkl_args_t *args, const char *text, size_t len,
    unsigned allowed)
{
    zkl_args_body_t    body;
    zkl_json_reader_t  r;

    memset(&body, 0, sizeof(zkl_args_body_t));
    memset(&r, 0, sizeof(zkl_json_reader_t));

    body.args = args;
    body.allowed = allowed;

    r.token = zkl_args_body_token;
    r.owner = &body;
    r.what = "the body";
    r.copied = "\"data\"";
    r.data = args->data;
    r.data_len = &args->data_len;
    r.error = args->error;
    r.optional = 1;

    return zkl_json_read(&r, text, len);
}


static int
zkl_args_body_token(zkl_json_reader_t *r, zkl_type_e type, const char *text,
    size_t len)
{
    zkl_args_body_t  *body = r->owner;

    unsigned  number, timed;

    if (r->depth == 1 && type == ZKL_KEY) {
        body->field = zkl_args_field(body->args, "field", text, len,
                                     body->allowed, &body->seen);

        if (body->field == ZKL_ARG_NAMES) {
            body->args->names_len = 0;
            body->args->nnames = 0;

        } else if (body->field == ZKL_ARG_DATA) {
            body->args->given |= ZKL_ARG_DATA;
            body->args->data_len = 0;
        }

        return (body->field != 0) ? 0 : -1;
    }

    if (body->field == ZKL_ARG_DATA) {
        return zkl_json_copy(r, type, text, len);
    }

    if (body->field == ZKL_ARG_NAMES) {
        return zkl_args_body_names(body, r->depth, type, text, len);
    }

    timed = body->field & (ZKL_ARG_WAIT|ZKL_ARG_TTL);
    number = timed
             || (body->field & (ZKL_ARG_PERMITS|ZKL_ARG_LIMIT
                                |ZKL_ARG_FORCE|ZKL_ARG_REVOKE
                                |ZKL_ARG_DURABLE|ZKL_ARG_HOLDERS));

    if (type != ZKL_STRING && !(number && type == ZKL_NUMBER)) {
        return zkl_args_refuse(body->args, body->field);
    }

    if (timed && type == ZKL_NUMBER
        && (memchr(text, 'e', len) != NULL || memchr(text, 'E', len) != NULL))
    {
        return zkl_args_error(body->args, "\"%s\" takes a number of seconds"
                              " without an exponent",
                              (body->field == ZKL_ARG_TTL) ? "ttl"
                                                                : "wait");
    }

    return zkl_args_set(body->args, body->field, text, len);
}


/* takes a bracket of the array of names, or a string in the array */

static int
zkl_args_body_names(zkl_args_body_t *body, unsigned depth, zkl_type_e type,
    const char *text, size_t len)
{
    if (depth == 2 && type == ZKL_STRING) {
        return zkl_args_name(body->args, text, len);
    }

    if (depth == 1 && type == ZKL_ARRAY) {
        return 0;
    }

    if (type != ZKL_ARRAY_END || body->args->nnames == 0) {
        return zkl_args_refuse(body->args, body->field);
    }

    body->args->given |= ZKL_ARG_NAMES;

    return 0;
}
