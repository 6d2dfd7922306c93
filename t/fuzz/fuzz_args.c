
/*
 * Arguments, from a query and from a body of JSON.
 *
 * - Accepted arguments are allowed, and within the bounds of base/args.h; an
 *   argument that was not given was not touched.
 * - Accepted arguments are read as the same if written again: as a query with
 *   every byte escaped, and as a body.  So a query and a body with the same
 *   arguments are the same.
 * - A body that the naive reader refuses is refused.
 * - Each refusal has a sentence that can be shown, and is not cut off.
 */


#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "naive_json.h"
#include "base/args.h"


#define ALL     ((ZKL_ARG_SORT << 1) - 1)


static naive_json_t  naive;

static const char  *const field_names[] = {
    "wait", "ttl", "mode", "owner", "data", "hold", "permits", "names",
    "until", "prefix", "limit", "after", "force", "revoke", "durable",
    "holders", "sort"
};

#define FIELDS  (sizeof(field_names) / sizeof(field_names[0]))


static int read_query(zkl_args_t *args, const char *text, size_t len,
    unsigned allowed);
static int read_body(zkl_args_t *args, const char *text, size_t len,
    unsigned allowed);
static int blank(const char *text, size_t len);
static void check_error(const zkl_args_t *args);
static void check_args(const zkl_args_t *args, unsigned allowed);
static void check_text(const zkl_args_t *args, unsigned field,
    const char *text, size_t len, size_t max, size_t least);
static void check_letters(const char *text, size_t len, const char *letters);
static void check_names(const zkl_args_t *args);
static void check_twins(const char *text, size_t len, unsigned allowed);
static void check_again(const zkl_args_t *args, unsigned allowed);
static size_t as_query(char *buf, const zkl_args_t *args);
static size_t as_body(char *buf, const zkl_args_t *args);
static size_t value_of(char *buf, const zkl_args_t *args, unsigned field);
static int same(const zkl_args_t *one, const zkl_args_t *two);


/* body or query, the allowed arguments, then the text */

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int           rc;
    char         *text;
    unsigned      allowed, body;
    fuzz_input_t  in;
    zkl_args_t   *args;

    in.data = data;
    in.left = size;

    body = fuzz_byte(&in) & 1;
    allowed = fuzz_byte(&in);
    allowed = (allowed == 0) ? ALL : (allowed * 0x01010101u) & ALL;

    if (in.left > 3000) {
        return 0;
    }

    text = fuzz_block(in.data, in.left);
    args = fuzz_block(NULL, sizeof(zkl_args_t));

    rc = body ? read_body(args, text, in.left, allowed)
              : read_query(args, text, in.left, allowed);

    if (rc == 0) {
        check_args(args, allowed);
        check_again(args, allowed);

    } else {
        check_error(args);
    }

    if (body) {
        naive_json(&naive, text, in.left);

        rule(rc != 0 || (naive.valid && naive.type == '{')
             || blank(text, in.left), "no object is taken");

    } else {
        check_twins(text, in.left, allowed);
    }

    fuzz_block_free(args);
    fuzz_block_free(text);

    return 0;
}


static int
read_query(zkl_args_t *args, const char *text, size_t len, unsigned allowed)
{
    memset(args, 0, sizeof(zkl_args_t));

    return zkl_args_query_read(args, text, len, allowed);
}


static int
read_body(zkl_args_t *args, const char *text, size_t len, unsigned allowed)
{
    memset(args, 0, sizeof(zkl_args_t));

    return zkl_args_body_read(args, text, len, allowed);
}


static int
blank(const char *text, size_t len)
{
    size_t  i;

    /* a byte order mark */

    i = (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) ? 3 : 0;

    for ( /* void */ ; i < len; i++) {
        if (memchr(" \t\r\n", text[i], 4) == NULL) {
            return 0;
        }
    }

    return 1;
}


static void
check_error(const zkl_args_t *args)
{
    size_t  n;

    n = strnlen(args->error, ZKL_ERROR_MAX);

    rule(n != 0 && n < ZKL_ERROR_MAX - 1, "%zu bytes of error", n);
    rule(naive_shown(args->error, n), "an error that cannot be shown");
}


static void
check_args(const zkl_args_t *args, unsigned allowed)
{
    static const char  lower[] = "abcdefghijklmnopqrstuvwxyz-";
    static const char  base64[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    rule((args->given & ~allowed) == 0, "%x of %x", args->given, allowed);
    rule(args->error[0] == '\0', "an error of what is accepted");

    rule(args->wait >= 0 && args->wait <= ZKL_DURATION_MAX, "wait");
    rule(args->ttl >= 0 && args->ttl <= ZKL_DURATION_MAX, "ttl");
    rule((args->given & ZKL_ARG_WAIT) || args->wait == 0, "no wait");
    rule((args->given & ZKL_ARG_TTL) || args->ttl == 0, "no ttl");

    rule((args->given & ZKL_ARG_PERMITS)
         ? args->permits >= 1 && args->permits <= ZKL_PERMITS_MAX
         : args->permits == 0, "permits");
    rule((args->given & ZKL_ARG_LIMIT)
         ? args->limit >= 1 && args->limit <= ZKL_LIMIT_MAX
         : args->limit == 0, "limit");
    rule((args->given & ZKL_ARG_HOLDERS)
         ? args->holders <= 1 : args->holders == 0, "holders");

    check_text(args, ZKL_ARG_MODE, args->mode, args->mode_len, ZKL_WORD_MAX,
               1);
    check_text(args, ZKL_ARG_HOLD, args->hold, args->hold_len, ZKL_WORD_MAX,
               1);
    check_text(args, ZKL_ARG_UNTIL, args->until, args->until_len, ZKL_WORD_MAX,
               1);
    check_text(args, ZKL_ARG_SORT, args->sort, args->sort_len, ZKL_WORD_MAX,
               5);
    check_text(args, ZKL_ARG_OWNER, args->owner, args->owner_len,
               ZKL_OWNER_MAX, 0);
    check_text(args, ZKL_ARG_PREFIX, args->prefix, args->prefix_len,
               ZKL_NAME_MAX, 0);
    check_text(args, ZKL_ARG_AFTER, args->after, args->after_len,
               ZKL_AFTER_MAX, 0);
    check_text(args, ZKL_ARG_DATA, args->data, args->data_len, ZKL_DATA_MAX,
               1);
    check_text(args, ZKL_ARG_NAMES, args->names, args->names_len,
               ZKL_NAMES_LEN, 1);

    check_letters(args->mode, args->mode_len, lower);
    check_letters(args->hold, args->hold_len, lower);
    check_letters(args->until, args->until_len, lower);
    check_letters(args->after, args->after_len, base64);

    rule(!(args->given & ZKL_ARG_SORT) || strcmp(args->sort, "since") == 0
         || strcmp(args->sort, "waiting") == 0, "a sort");
    rule(naive_shown(args->owner, args->owner_len), "an owner");
    rule(naive_shown(args->prefix, args->prefix_len), "a prefix");

    if (args->given & ZKL_ARG_DATA) {
        naive_json(&naive, args->data, args->data_len);

        rule(naive.valid && naive.depth <= ZKL_DATA_DEPTH
             && naive.len == args->data_len
             && memcmp(naive.compact, args->data, naive.len) == 0,
             "data is no compact JSON: %s", args->data);
    }

    check_names(args);
}


/* an argument that was not given has not a single byte */

static void
check_text(const zkl_args_t *args, unsigned field, const char *text,
    size_t len, size_t max, size_t least)
{
    size_t  i;

    if (args->given & field) {
        rule(len >= least && len <= max, "%x has %zu bytes", field, len);
        rule(text[len] == '\0', "%x ends with no NUL", field);
        return;
    }

    rule(len == 0, "%x was not given", field);

    for (i = 0; i <= max; i++) {
        rule(text[i] == '\0', "%x was touched", field);
    }
}


static void
check_letters(const char *text, size_t len, const char *letters)
{
    rule(strspn(text, letters) == len, "%.*s", (int) len, text);
}


static void
check_names(const zkl_args_t *args)
{
    int          rc;
    size_t       n, bytes, count, last;
    const char  *p, *end, *before;

    if (!(args->given & ZKL_ARG_NAMES)) {
        rule(args->nnames == 0, "%u names", args->nnames);
        return;
    }

    before = NULL;
    last = 0;
    bytes = 0;
    count = 0;
    p = args->names;
    end = args->names + args->names_len;

    for ( ;; ) {
        n = (size_t) (end - p);
        n = memchr(p, '/', n) ? (size_t) ((char *) memchr(p, '/', n) - p) : n;

        rule(zkl_name_refuse(p, n) == NULL
             && zkl_name_write(NULL, p, n) == n, "%.*s", (int) n, p);

        if (before != NULL) {
            rc = memcmp(before, p, last < n ? last : n);
            rule(rc < 0 || (rc == 0 && last < n), "no order, or twice: %s",
                 args->names);
        }

        before = p;
        last = n;
        bytes += n;
        count++;

        if (p + n == end) {
            break;
        }

        p += n + 1;
    }

    rule(count == args->nnames && count <= ZKL_ARGS_NAMES_MAX, "%zu names",
         count);
    rule(bytes <= ZKL_NAMES_BYTES, "%zu bytes of names", bytes);
}


/* empty pieces of a query do not matter */

static void
check_twins(const char *text, size_t len, unsigned allowed)
{
    int          rc;
    char        *longer;
    zkl_args_t  *one, *two;

    one = fuzz_block(NULL, sizeof(zkl_args_t));
    two = fuzz_block(NULL, sizeof(zkl_args_t));

    longer = fuzz_block(NULL, len + 3);
    longer[0] = '&';
    memcpy(longer + 1, text, len);
    longer[len + 1] = '&';
    longer[len + 2] = '&';

    rc = read_query(one, text, len, allowed);

    rule(read_query(two, longer, len + 3, allowed) == rc,
         "empty pieces change that it is %d", rc);
    rule(rc != 0 || same(one, two), "empty pieces change something");

    fuzz_block_free(longer);
    fuzz_block_free(two);
    fuzz_block_free(one);
}


static void
check_again(const zkl_args_t *args, unsigned allowed)
{
    char        *buf, *text;
    size_t       n;
    zkl_args_t  *again;

    again = fuzz_block(NULL, sizeof(zkl_args_t));
    buf = fuzz_block(NULL, 65536);

    if (!(args->given & ZKL_ARG_NAMES)) {
        n = as_query(buf, args);
        text = fuzz_block(buf, n);

        rule(read_query(again, text, n, allowed) == 0, "as a query: %s",
             again->error);
        rule(same(args, again), "another query: %.*s", (int) n, text);

        fuzz_block_free(text);
    }

    n = as_body(buf, args);
    text = fuzz_block(buf, n);

    rule(read_body(again, text, n, allowed) == 0, "as a body: %s",
         again->error);
    rule(same(args, again), "another body: %.*s", (int) n, text);

    fuzz_block_free(text);
    fuzz_block_free(buf);
    fuzz_block_free(again);
}


static size_t
as_query(char *buf, const zkl_args_t *args)
{
    char      value[4096];
    char     *p;
    size_t    i, n;
    unsigned  k;

    p = buf;

    for (k = 0; k < FIELDS; k++) {

        if (!(args->given & (1u << k))) {
            continue;
        }

        p += sprintf(p, "%s=", field_names[k]);
        n = value_of(value, args, 1u << k);

        for (i = 0; i < n; i++) {
            p += sprintf(p, "%%%02x", (unsigned char) value[i]);
        }

        *p++ = '&';
    }

    return (size_t) (p - buf);
}


static size_t
as_body(char *buf, const zkl_args_t *args)
{
    char      value[4096];
    char     *p;
    size_t    i, n;
    unsigned  k, field;

    p = buf;
    *p++ = '{';

    for (k = 0; k < FIELDS; k++) {
        field = 1u << k;

        if (!(args->given & field)) {
            continue;
        }

        p += sprintf(p, "%s\"%s\":", p[-1] == '{' ? "" : ",", field_names[k]);

        n = value_of(value, args, field);

        if (field == ZKL_ARG_DATA) {
            memcpy(p, value, n);
            p += n;
            continue;
        }

        p += sprintf(p, field == ZKL_ARG_NAMES ? "[\"" : "\"");

        for (i = 0; i < n; i++) {

            if (field == ZKL_ARG_NAMES && value[i] == '/') {
                p += sprintf(p, "\",\"");
                continue;
            }

            if ((unsigned char) value[i] < 0x20) {
                p += sprintf(p, "\\u%04x", value[i]);
                continue;
            }

            if (value[i] == '"' || value[i] == '\\') {
                *p++ = '\\';
            }

            *p++ = value[i];
        }

        p += sprintf(p, field == ZKL_ARG_NAMES ? "\"]" : "\"");
    }

    *p++ = '}';

    return (size_t) (p - buf);
}


static size_t
value_of(char *buf, const zkl_args_t *args, unsigned field)
{
    size_t       len;
    const char  *text;

    switch (field) {

    case ZKL_ARG_WAIT:
        return (size_t) sprintf(buf, "%lldms", (long long) args->wait);

    case ZKL_ARG_TTL:
        return (size_t) sprintf(buf, "%lldms", (long long) args->ttl);

    case ZKL_ARG_PERMITS:
        return (size_t) sprintf(buf, "%u", args->permits);

    case ZKL_ARG_LIMIT:
        return (size_t) sprintf(buf, "%u", args->limit);

    case ZKL_ARG_HOLDERS:
        return (size_t) sprintf(buf, "%u", args->holders);

    case ZKL_ARG_SORT:   text = args->sort; len = args->sort_len; break;
    case ZKL_ARG_MODE:   text = args->mode; len = args->mode_len; break;
    case ZKL_ARG_OWNER:  text = args->owner; len = args->owner_len; break;
    case ZKL_ARG_DATA:   text = args->data; len = args->data_len; break;
    case ZKL_ARG_HOLD:   text = args->hold; len = args->hold_len; break;
    case ZKL_ARG_NAMES:  text = args->names; len = args->names_len; break;
    case ZKL_ARG_UNTIL:  text = args->until; len = args->until_len; break;
    case ZKL_ARG_PREFIX: text = args->prefix; len = args->prefix_len;
                             break;
    case ZKL_ARG_AFTER:  text = args->after; len = args->after_len; break;
    default:                 text = "1"; len = 1; break;
    }

    memcpy(buf, text, len);

    return len;
}


static int
same(const zkl_args_t *one, const zkl_args_t *two)
{
    char      a[4096], b[4096];
    size_t    n;
    unsigned  k;

    if (one->given != two->given || one->nnames != two->nnames) {
        return 0;
    }

    for (k = 0; k < FIELDS; k++) {

        if (!(one->given & (1u << k))) {
            continue;
        }

        n = value_of(a, one, 1u << k);

        if (value_of(b, two, 1u << k) != n || memcmp(a, b, n) != 0) {
            return 0;
        }
    }

    return 1;
}
