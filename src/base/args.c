
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


/* the kinds before ZKL_TEXT may be numbers of JSON */

typedef enum {
    ZKL_TIME = 0,
    ZKL_COUNT,
    ZKL_DIGIT,
    ZKL_TEXT,
    ZKL_JSON,
    ZKL_LIST
} zkl_kind_e;

typedef struct {
    const char          *name;
    unsigned             field;     /* ZKL_ARG_* */
    zkl_kind_e           kind;
    size_t               value;     /* offset in zkl_args_t; 0: no value */
    size_t               len;       /* offset of the length of a text */
    size_t               min;       /* bytes of a text */
    uint32_t             max;       /* of a count, or bytes of a text */
    const char          *letters;   /* of a text; NULL: UTF-8 without control
                                       characters */
    const char          *takes;
} zkl_field_t;

typedef struct {
    zkl_args_t          *args;
    unsigned             allowed;   /* ZKL_ARG_* */
    unsigned             seen;
    const zkl_field_t   *field;     /* of the next value */
} zkl_args_body_t;


static const zkl_field_t *zkl_args_field(zkl_args_t *args, const char *noun,
    const char *name, size_t len, unsigned allowed, unsigned *seen);
static int zkl_args_set(zkl_args_t *args, const zkl_field_t *f,
    const char *text, size_t len);
static int zkl_args_refuse(zkl_args_t *args, const zkl_field_t *f);
static int zkl_args_name(zkl_args_t *args, const char *text, size_t len);
static int zkl_args_error(zkl_args_t *args, const char *format, ...);
static const char *zkl_args_quote(char *buf, const char *text, size_t len);
static int zkl_args_query_decode(char *buf, size_t size, const char *text,
    size_t len, size_t *decoded);
static int zkl_args_json(zkl_args_t *args, zkl_args_body_t *body,
    const char *text, size_t len);
static int zkl_args_body_token(zkl_json_reader_t *r, zkl_type_e type,
    const char *text, size_t len);


static const char  zkl_takes_duration[] =
    "a duration such as \"10s\", \"1500ms\" or a number of seconds,"
    " up to ten years and with at most three decimals";

static const char  zkl_takes_count[] = "an integer from 1 to 1000";

static const char  zkl_takes_one[] = "1 and nothing else";

static const char  zkl_args_word[] = "abcdefghijklmnopqrstuvwxyz-";

static const zkl_field_t  zkl_fields[] = {

    { "wait", ZKL_ARG_WAIT, ZKL_TIME, offsetof(zkl_args_t, wait), 0,
      0, 0, NULL, zkl_takes_duration },

    { "ttl", ZKL_ARG_TTL, ZKL_TIME, offsetof(zkl_args_t, ttl), 0,
      0, 0, NULL, zkl_takes_duration },

    { "mode", ZKL_ARG_MODE, ZKL_TEXT,
      offsetof(zkl_args_t, mode), offsetof(zkl_args_t, mode_len),
      1, ZKL_WORD_MAX, zkl_args_word, "a word such as \"exclusive\"" },

    { "owner", ZKL_ARG_OWNER, ZKL_TEXT,
      offsetof(zkl_args_t, owner), offsetof(zkl_args_t, owner_len),
      0, ZKL_OWNER_MAX, NULL,
      "a string of at most 255 bytes of UTF-8 without control characters" },

    { "data", ZKL_ARG_DATA, ZKL_JSON, 0, 0,
      0, 0, NULL, "JSON" },

    { "hold", ZKL_ARG_HOLD, ZKL_TEXT,
      offsetof(zkl_args_t, hold), offsetof(zkl_args_t, hold_len),
      1, ZKL_WORD_MAX, zkl_args_word, "a word such as \"lease\"" },

    { "permits", ZKL_ARG_PERMITS, ZKL_COUNT, offsetof(zkl_args_t, permits), 0,
      0, ZKL_PERMITS_MAX, NULL, zkl_takes_count },

    { "names", ZKL_ARG_NAMES, ZKL_LIST, 0, 0,
      0, 0, NULL, "an array of 1 to 32 names, in a body of JSON" },

    { "until", ZKL_ARG_UNTIL, ZKL_TEXT,
      offsetof(zkl_args_t, until), offsetof(zkl_args_t, until_len),
      1, ZKL_WORD_MAX, zkl_args_word, "a word such as \"free\"" },

    { "prefix", ZKL_ARG_PREFIX, ZKL_TEXT,
      offsetof(zkl_args_t, prefix), offsetof(zkl_args_t, prefix_len),
      0, ZKL_NAME_MAX, NULL,
      "a string of at most 200 bytes of UTF-8 without control characters" },

    { "limit", ZKL_ARG_LIMIT, ZKL_COUNT, offsetof(zkl_args_t, limit), 0,
      0, ZKL_LIMIT_MAX, NULL, zkl_takes_count },

    /* only the letters are checked, because the caller decodes the cursor */

    { "after", ZKL_ARG_AFTER, ZKL_TEXT,
      offsetof(zkl_args_t, after), offsetof(zkl_args_t, after_len),
      0, ZKL_AFTER_MAX, zkl_base64_digits, "the \"next\" of another answer" },

    { "force", ZKL_ARG_FORCE, ZKL_DIGIT, 0, 0,
      1, 1, "1", zkl_takes_one },

    { "revoke", ZKL_ARG_REVOKE, ZKL_DIGIT, 0, 0,
      1, 1, "1", zkl_takes_one },

    { "durable", ZKL_ARG_DURABLE, ZKL_DIGIT, 0, 0,
      1, 1, "1", zkl_takes_one },

    { "holders", ZKL_ARG_HOLDERS, ZKL_DIGIT, offsetof(zkl_args_t, holders), 0,
      1, 1, "01", "1 or 0" },

    { "sort", ZKL_ARG_SORT, ZKL_TEXT,
      offsetof(zkl_args_t, sort), offsetof(zkl_args_t, sort_len),
      1, ZKL_WORD_MAX, zkl_args_word, "\"since\" or \"waiting\"" },

    { NULL, 0, ZKL_TIME, 0, 0, 0, 0, NULL, NULL }
};


/*
 * Returns the field of a name, or NULL with args->error if the name is
 * unknown, not allowed or seen already.  noun is a noun for the error.
 */

static const zkl_field_t *
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
        return NULL;
    }

    if (!(f->field & allowed)) {
        (void) zkl_args_error(args, "the %s \"%s\" has no place in this"
                              " call", noun, f->name);
        return NULL;
    }

    if (f->field & *seen) {
        (void) zkl_args_error(args, "the %s \"%s\" is there twice", noun,
                              f->name);
        return NULL;
    }

    *seen |= f->field;

    return f;
}


/*
 * Reads the value of any field but data and names, from a string or a number.
 * Returns 0, or -1 with args->error.
 */

static int
zkl_args_set(zkl_args_t *args, const zkl_field_t *f, const char *text,
    size_t len)
{
    char     *value;
    int64_t   number;

    value = (char *) args + f->value;

    switch (f->kind) {

    case ZKL_TIME:
        number = zkl_text_duration_read(text, len);
        if (number == -1) {
            return zkl_args_refuse(args, f);
        }

        *(int64_t *) value = number;
        break;

    case ZKL_COUNT:
        number = zkl_text_number_read(text, len, f->max);
        if (number < 1) {
            return zkl_args_refuse(args, f);
        }

        *(uint32_t *) value = (uint32_t) number;
        break;

    default: /* ZKL_DIGIT, ZKL_TEXT */

        if (len < f->min || len > f->max
            || !(f->letters != NULL
                 ? zkl_text_letters_check(text, len, f->letters)
                 : zkl_text_shown_check(text, len)))
        {
            return zkl_args_refuse(args, f);
        }

        if (f->field == ZKL_ARG_SORT
            && !(len == 5 && memcmp(text, "since", 5) == 0)
            && !(len == 7 && memcmp(text, "waiting", 7) == 0))
        {
            return zkl_args_refuse(args, f);
        }

        if (f->kind == ZKL_TEXT) {

            if (len != 0) {
                memcpy(value, text, len);
            }

            value[len] = '\0';
            *(size_t *) ((char *) args + f->len) = len;

        } else if (f->value != 0) {
            *(uint32_t *) value = (text[0] == '1');
        }

        break;
    }

    args->given |= f->field;

    return 0;
}


/* Writes the values that a field takes to args->error.  Returns -1. */

static int
zkl_args_refuse(zkl_args_t *args, const zkl_field_t *f)
{
    return zkl_args_error(args, "\"%s\" takes %s", f->name, f->takes);
}


/*
 * Inserts a name and a slash into args->names, in byte order.  Returns 0, or -1
 * with args->error.
 */

static int
zkl_args_name(zkl_args_t *args, const char *text, size_t len)
{
    int          rc;
    char        *p, quoted[ZKL_QUOTE_MAX], name[ZKL_NAMES_BYTES];
    size_t       n, at;
    const char  *error;

    n = zkl_name_write(NULL, text, len);

    if (n > ZKL_NAMES_BYTES) {
        goto too_much;
    }

    (void) zkl_name_write(name, text, len);

    text = name;
    len = n;

    error = zkl_name_refuse(text, len);

    if (error != NULL) {
        return zkl_args_error(args, "\"names\" has \"%s\" in it, but %s",
                              zkl_args_quote(quoted, text, len), error);
    }

    /* the place is in front of the first greater name, or at the end */

    for (at = 0; at < args->names_len; at += n + 1) {
        p = args->names + at;
        n = (size_t) ((char *) memchr(p, '/', args->names_len - at) - p);

        rc = memcmp(text, p, (len < n) ? len : n);

        if (rc == 0 && len == n) {
            return zkl_args_error(args, "\"names\" has \"%s\" in it twice",
                                  zkl_args_quote(quoted, text, len));
        }

        if (rc < 0 || (rc == 0 && len < n)) {
            break;
        }
    }

    if (args->nnames == ZKL_ARGS_NAMES_MAX) {
        return zkl_args_error(args, "\"names\" has more than %d names in"
                              " it, \"%s\" is one too many",
                              ZKL_ARGS_NAMES_MAX,
                              zkl_args_quote(quoted, text, len));
    }

    if (args->names_len - args->nnames + len > ZKL_NAMES_BYTES) {
        goto too_much;
    }

    p = args->names + at;

    memmove(p + len + 1, p, args->names_len - at);
    memcpy(p, text, len);
    p[len] = '/';

    args->names_len += len + 1;
    args->nnames++;

    return 0;

too_much:

    return zkl_args_error(args, "\"names\" has more than %d bytes of"
                          " names in it, \"%s\" is too much",
                          ZKL_NAMES_BYTES,
                          zkl_args_quote(quoted, text, len));
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
    char                name[ZKL_QUOTE_MAX], quoted[ZKL_QUOTE_MAX];
    char                value[ZKL_JSON_MAX];
    size_t              at, size, n, name_len, value_len;
    unsigned            seen;
    const char         *text, *end;
    const zkl_field_t  *f;

    seen = 0;

    for (at = 0; at < len; at += size + 1) {
        text = query + at;

        end = memchr(text, '&', len - at);
        size = (end != NULL) ? (size_t) (end - text) : len - at;

        if (size == 0) {
            continue;
        }

        end = memchr(text, '=', size);
        n = (end != NULL) ? (size_t) (end - text) : size;

        /* Terraform tells the ID in the body, too */

        if ((allowed & ZKL_ARG_ID) && size >= 3 && memcmp(text, "ID=", 3) == 0)
        {
            continue;
        }

        if (zkl_args_query_decode(name, sizeof(name), text, n, &name_len)
            != 0)
        {
            return zkl_args_error(args, "unknown argument \"%s\"",
                                  zkl_args_quote(quoted, text, n));
        }

        f = zkl_args_field(args, "argument", name, name_len, allowed, &seen);
        if (f == NULL) {
            return -1;
        }

        if (end != NULL) {
            n++;
        }

        if (zkl_args_query_decode(value, sizeof(value), text + n, size - n,
                                  &value_len)
            != 0)
        {
            return zkl_args_error(args, "the argument \"%s\" has a broken"
                                  " escape in it or is too long",
                                  zkl_args_quote(quoted, name, name_len));
        }

        if (f->kind == ZKL_LIST) {
            return zkl_args_refuse(args, f);
        }

        if (f->kind == ZKL_JSON) {

            if (zkl_args_json(args, NULL, value, value_len) != 0) {
                return -1;
            }

            args->given |= ZKL_ARG_DATA;

        } else if (zkl_args_set(args, f, value, value_len) != 0) {
            return -1;
        }
    }

    return 0;
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


/* reads data, or a body, of which each member is read as a value */

static int
zkl_args_json(zkl_args_t *args, zkl_args_body_t *body, const char *text,
    size_t len)
{
    zkl_json_reader_t  r;

    memset(&r, 0, sizeof(zkl_json_reader_t));

    r.what = "\"data\"";
    r.copied = r.what;
    r.data = args->data;
    r.data_len = &args->data_len;
    r.error = args->error;

    if (body != NULL) {
        r.token = zkl_args_body_token;
        r.owner = body;
        r.what = "the body";
        r.optional = 1;
    }

    return zkl_json_read(&r, text, len);
}


int
zkl_args_body_read(zkl_args_t *args, const char *text, size_t len,
    unsigned allowed)
{
    zkl_args_body_t  body;

    memset(&body, 0, sizeof(zkl_args_body_t));

    body.args = args;
    body.allowed = allowed;

    return zkl_args_json(args, &body, text, len);
}


static int
zkl_args_body_token(zkl_json_reader_t *r, zkl_type_e type, const char *text,
    size_t len)
{
    zkl_args_body_t  *body = r->owner;

    zkl_args_t         *args;
    const zkl_field_t  *f;

    args = body->args;

    if (r->depth == 1 && type == ZKL_KEY) {
        body->field = zkl_args_field(args, "field", text, len, body->allowed,
                                     &body->seen);

        return (body->field != NULL) ? 0 : -1;
    }

    f = body->field;

    if (f->kind == ZKL_JSON) {
        args->given |= ZKL_ARG_DATA;

        return zkl_json_copy(r, type, text, len);
    }

    if (f->kind == ZKL_LIST) {

        if (r->depth == 2 && type == ZKL_STRING) {
            return zkl_args_name(args, text, len);
        }

        if (r->depth == 1 && type == ZKL_ARRAY) {
            args->names_len = 0;
            args->nnames = 0;
            return 0;
        }

        if (type != ZKL_ARRAY_END || args->nnames == 0) {
            return zkl_args_refuse(args, f);
        }

        /* no slash is behind the last name */

        args->names[--args->names_len] = '\0';
        args->given |= ZKL_ARG_NAMES;

        return 0;
    }

    if (type != ZKL_STRING && !(type == ZKL_NUMBER && f->kind < ZKL_TEXT)) {
        return zkl_args_refuse(args, f);
    }

    if (f->kind == ZKL_TIME && type == ZKL_NUMBER
        && (memchr(text, 'e', len) != NULL || memchr(text, 'E', len) != NULL))
    {
        return zkl_args_error(args, "\"%s\" takes a number of seconds"
                              " without an exponent", f->name);
    }

    return zkl_args_set(args, f, text, len);
}
