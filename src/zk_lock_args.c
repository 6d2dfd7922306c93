
/*
 * Arguments: the table of what there is, and how a value is read.
 *
 * A query and a body both end in zk_lock_args_set() but for data, which the
 * JSON reader writes to args->data, and for names, which only a body has.
 *
 * Owns nothing; runs on any thread.  A pointer may be NULL only beside a
 * length of 0.
 */


#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "zk_lock_args.h"
#include "zk_lock_json.h"
#include "zk_lock_name.h"


typedef struct {
    const char          *name;
    unsigned             field;     /* ZK_LOCK_ARG_* */
    const char          *takes;
} zk_lock_field_t;


static int zk_lock_args_duration(zk_lock_args_t *args, unsigned field,
    int64_t *ms, const char *text, size_t len);
static int zk_lock_args_word(zk_lock_args_t *args, unsigned field, char *word,
    size_t *word_len, const char *text, size_t len);
static int zk_lock_args_shown(zk_lock_args_t *args, unsigned field, char *buf,
    size_t max, size_t *buf_len, const char *text, size_t len);
static int zk_lock_args_after(zk_lock_args_t *args, const char *text,
    size_t len);
static int zk_lock_args_number(zk_lock_args_t *args, unsigned field,
    uint32_t *number, uint32_t max, const char *text, size_t len);
static int zk_lock_args_one(zk_lock_args_t *args, unsigned field,
    const char *text, size_t len);
static size_t zk_lock_args_place(const zk_lock_args_t *args, const char *text,
    size_t len);


static const char  zk_lock_takes_duration[] =
    "a duration such as \"10s\", \"1500ms\" or a number of seconds,"
    " up to ten years and with at most three decimals";


static const char  zk_lock_takes_number[] = "an integer from 1 to 1000";

static const char  zk_lock_takes_one[] = "1 and nothing else";


static const zk_lock_field_t  zk_lock_fields[] = {
    { "wait",    ZK_LOCK_ARG_WAIT,    zk_lock_takes_duration },
    { "ttl",     ZK_LOCK_ARG_TTL,     zk_lock_takes_duration },
    { "mode",    ZK_LOCK_ARG_MODE,    "a word such as \"exclusive\"" },
    { "owner",   ZK_LOCK_ARG_OWNER,   "a string of at most 255 bytes of UTF-8"
                                      " without control characters" },
    { "data",    ZK_LOCK_ARG_DATA,    "JSON" },
    { "hold",    ZK_LOCK_ARG_HOLD,    "a word such as \"lease\"" },
    { "permits", ZK_LOCK_ARG_PERMITS, zk_lock_takes_number },
    { "names",   ZK_LOCK_ARG_NAMES,   "an array of 1 to 32 names, in a body"
                                      " of JSON" },
    { "until",   ZK_LOCK_ARG_UNTIL,   "a word such as \"free\"" },
    { "prefix",  ZK_LOCK_ARG_PREFIX,  "a string of at most 200 bytes of UTF-8"
                                      " without control characters" },
    { "limit",   ZK_LOCK_ARG_LIMIT,   zk_lock_takes_number },
    { "after",   ZK_LOCK_ARG_AFTER,   "the \"next\" of another answer" },
    { "force",   ZK_LOCK_ARG_FORCE,   zk_lock_takes_one },
    { "revoke",  ZK_LOCK_ARG_REVOKE,  zk_lock_takes_one },
    { "durable", ZK_LOCK_ARG_DURABLE, zk_lock_takes_one },
    { NULL,      0,                   NULL }
};


unsigned
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


/* any field but data and names, from a string or a number */

int
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

    case ZK_LOCK_ARG_UNTIL:
        rc = zk_lock_args_word(args, field, args->until, &args->until_len,
                               text, len);
        break;

    case ZK_LOCK_ARG_PERMITS:
        rc = zk_lock_args_number(args, field, &args->permits,
                                 ZK_LOCK_PERMITS_MAX, text, len);
        break;

    case ZK_LOCK_ARG_LIMIT:
        rc = zk_lock_args_number(args, field, &args->limit,
                                 ZK_LOCK_LIMIT_MAX, text, len);
        break;

    case ZK_LOCK_ARG_PREFIX:
        rc = zk_lock_args_shown(args, field, args->prefix, ZK_LOCK_NAME_MAX,
                                &args->prefix_len, text, len);
        break;

    case ZK_LOCK_ARG_AFTER:
        rc = zk_lock_args_after(args, text, len);
        break;

    case ZK_LOCK_ARG_OWNER:
        rc = zk_lock_args_shown(args, field, args->owner, ZK_LOCK_OWNER_MAX,
                                &args->owner_len, text, len);
        break;

    default: /* ZK_LOCK_ARG_FORCE, ZK_LOCK_ARG_REVOKE, ZK_LOCK_ARG_DURABLE */
        rc = zk_lock_args_one(args, field, text, len);
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
zk_lock_args_shown(zk_lock_args_t *args, unsigned field, char *buf, size_t max,
    size_t *buf_len, const char *text, size_t len)
{
    if (len > max || !zk_lock_shown_check(text, len)) {
        return zk_lock_args_refuse(args, field);
    }

    if (len != 0) {
        memcpy(buf, text, len);
    }

    buf[len] = '\0';
    *buf_len = len;

    return 0;
}


/* what it means is the caller's to find out */

static int
zk_lock_args_after(zk_lock_args_t *args, const char *text, size_t len)
{
    size_t  i;

    if (len > ZK_LOCK_AFTER_MAX) {
        return zk_lock_args_refuse(args, ZK_LOCK_ARG_AFTER);
    }

    for (i = 0; i < len; i++) {
        if (text[i] != '-' && text[i] != '_'
            && (text[i] < '0' || text[i] > '9')
            && (text[i] < 'A' || text[i] > 'Z')
            && (text[i] < 'a' || text[i] > 'z'))
        {
            return zk_lock_args_refuse(args, ZK_LOCK_ARG_AFTER);
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
zk_lock_args_number(zk_lock_args_t *args, unsigned field, uint32_t *number,
    uint32_t max, const char *text, size_t len)
{
    size_t    i;
    uint32_t  value;

    value = 0;

    for (i = 0; i < len; i++) {

        if (text[i] < '0' || text[i] > '9') {
            return zk_lock_args_refuse(args, field);
        }

        value = value * 10 + (uint32_t) (text[i] - '0');

        if (value > max) {
            return zk_lock_args_refuse(args, field);
        }
    }

    if (value == 0) {
        return zk_lock_args_refuse(args, field);
    }

    *number = value;

    return 0;
}


static int
zk_lock_args_one(zk_lock_args_t *args, unsigned field, const char *text,
    size_t len)
{
    if (len != 1 || text[0] != '1') {
        return zk_lock_args_refuse(args, field);
    }

    return 0;
}


/* puts one more name to its place among args->names */

int
zk_lock_args_name(zk_lock_args_t *args, const char *text, size_t len)
{
    char        *p, quoted[ZK_LOCK_QUOTE_MAX];
    size_t       at, rest;
    const char  *error;

    error = zk_lock_name_check(text, len);

    if (error != NULL) {
        return zk_lock_args_error(args, "\"names\" has \"%s\" in it, but %s",
                                  zk_lock_quote(quoted, text, len), error);
    }

    at = zk_lock_args_place(args, text, len);

    if (at > args->names_len) {
        return zk_lock_args_error(args, "\"names\" has \"%s\" in it twice",
                                  zk_lock_quote(quoted, text, len));
    }

    if (args->nnames == ZK_LOCK_NAMES_MAX) {
        return zk_lock_args_error(args, "\"names\" has more than %d names in"
                                  " it, \"%s\" is one too many",
                                  ZK_LOCK_NAMES_MAX,
                                  zk_lock_quote(quoted, text, len));
    }

    /* a slash is there for each name but the last */

    if (args->nnames != 0
        && args->names_len - (args->nnames - 1) + len > ZK_LOCK_NAMES_BYTES)
    {
        return zk_lock_args_error(args, "\"names\" has more than %d bytes of"
                                  " names in it, \"%s\" is too much",
                                  ZK_LOCK_NAMES_BYTES,
                                  zk_lock_quote(quoted, text, len));
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
 * Where in args->names a name belongs: the offset of the first one that is
 * greater, or the end.  If the name is there already, what is returned is
 * behind the end.
 */

static size_t
zk_lock_args_place(const zk_lock_args_t *args, const char *text, size_t len)
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


int
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
 * What goes into format is from here or through zk_lock_quote(), and
 * short enough that nothing is cut off.
 */

int
zk_lock_args_error(zk_lock_args_t *args, const char *format, ...)
{
    va_list  ap;

    va_start(ap, format);
    (void) vsnprintf(args->error, sizeof(args->error), format, ap);
    va_end(ap);

    return -1;
}


/* what can be shown of text, in ZK_LOCK_QUOTE_MAX bytes at buf */

const char *
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
