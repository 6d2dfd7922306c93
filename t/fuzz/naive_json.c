
/* JSON, read in the plainest way; see naive_json.h. */


#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "naive_json.h"


typedef struct {
    naive_json_t   *json;
    const char     *p;
    const char     *end;
} parser_t;


static int value(parser_t *q, unsigned *depth, unsigned level);
static int object(parser_t *q, unsigned *depth, unsigned level);
static int array(parser_t *q, unsigned *depth, unsigned level);
static int string(parser_t *q, char **text, size_t *len);
static int escape(parser_t *q, char *text, size_t *len);
static int unit(parser_t *q, unsigned *u);
static int number(parser_t *q);
static int digits(parser_t *q);
static int word(parser_t *q, const char *text);
static int token(parser_t *q, char c);
static void space(parser_t *q);
static void put(parser_t *q, const char *text, size_t len);
static void put_string(parser_t *q, const char *text, size_t len);
static size_t utf8_write(char *text, uint32_t code);
static size_t utf8_len(const char *text, size_t len);


void
naive_json(naive_json_t *json, const char *text, size_t len)
{
    parser_t  q;

    json->valid = 0;
    json->type = 0;
    json->depth = 0;
    json->len = 0;
    json->nmembers = 0;
    json->used = 0;

    q.json = json;
    q.p = text;
    q.end = text + len;

    /* a byte order mark */

    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        q.p += 3;
    }

    if (len > NAIVE_TEXT || !value(&q, &json->depth, 0)) {
        return;
    }

    space(&q);

    json->valid = (q.p == q.end);
    json->type = json->compact[0];
}


/* level: the number of arrays and objects around the value */

static int
value(parser_t *q, unsigned *depth, unsigned level)
{
    char    *text;
    size_t   len;

    space(q);

    *depth = 0;

    if (q->p == q->end) {
        return 0;
    }

    switch (*q->p) {

    case '{':
        return object(q, depth, level);

    case '[':
        return array(q, depth, level);

    case '"':
        if (!string(q, &text, &len)) {
            return 0;
        }
        put_string(q, text, len);
        return 1;

    case 't':
        return word(q, "true");

    case 'f':
        return word(q, "false");

    case 'n':
        return word(q, "null");

    default:
        return number(q);
    }
}


static int
object(parser_t *q, unsigned *depth, unsigned level)
{
    char            *text;
    size_t           len, start;
    unsigned         inner;
    parser_t         before;
    naive_member_t  *m;

    *depth = 1;

    (void) token(q, '{');
    put(q, "{", 1);

    if (token(q, '}')) {
        put(q, "}", 1);
        return 1;
    }

    for ( ;; ) {
        space(q);

        if (!string(q, &text, &len)) {
            return 0;
        }

        put_string(q, text, len);

        if (!token(q, ':')) {
            return 0;
        }

        put(q, ":", 1);

        m = NULL;

        if (level == 0) {
            if (q->json->nmembers == NAIVE_MEMBERS) {
                fprintf(stderr, "more members than NAIVE_MEMBERS\n");
                exit(1);
            }

            m = &q->json->members[q->json->nmembers++];
            m->name = text;
            m->name_len = len;
        }

        space(q);

        start = q->json->len;
        before = *q;

        if (!value(q, &inner, level + 1)) {
            return 0;
        }

        *depth = (inner + 1 > *depth) ? inner + 1 : *depth;

        if (m != NULL) {
            m->depth = inner;
            m->text = q->json->compact + start;
            m->len = q->json->len - start;
            m->type = m->text[0];

            if (m->type == 'f') {
                m->type = 't';

            } else if (m->type == '-' || (m->type >= '0' && m->type <= '9')) {
                m->type = '0';

            } else if (m->type == '"') {
                (void) string(&before, &m->text, &m->len);
            }
        }

        if (token(q, '}')) {
            put(q, "}", 1);
            return 1;
        }

        if (!token(q, ',')) {
            return 0;
        }

        put(q, ",", 1);
    }
}


static int
array(parser_t *q, unsigned *depth, unsigned level)
{
    unsigned  inner;

    *depth = 1;

    (void) token(q, '[');
    put(q, "[", 1);

    if (token(q, ']')) {
        put(q, "]", 1);
        return 1;
    }

    for ( ;; ) {
        if (!value(q, &inner, level + 1)) {
            return 0;
        }

        *depth = (inner + 1 > *depth) ? inner + 1 : *depth;

        if (token(q, ']')) {
            put(q, "]", 1);
            return 1;
        }

        if (!token(q, ',')) {
            return 0;
        }

        put(q, ",", 1);
    }
}


/* decodes a string to the store */

static int
string(parser_t *q, char **text, size_t *len)
{
    size_t  n;

    if (q->p == q->end || *q->p != '"') {
        return 0;
    }

    q->p++;

    *text = q->json->store + q->json->used;
    *len = 0;

    for ( ;; ) {
        if (q->p == q->end || (unsigned char) *q->p < 0x20) {
            return 0;
        }

        if (*q->p == '"') {
            q->p++;
            q->json->used += *len;
            return 1;
        }

        if (*q->p == '\\') {
            if (!escape(q, *text, len)) {
                return 0;
            }
            continue;
        }

        n = utf8_len(q->p, (size_t) (q->end - q->p));
        if (n == 0) {
            return 0;
        }

        memcpy(*text + *len, q->p, n);
        *len += n;
        q->p += n;
    }
}


static int
escape(parser_t *q, char *text, size_t *len)
{
    unsigned     u, v;
    const char  *at;

    static const char  from[] = "\"\\/bfnrt";
    static const char  to[] = "\"\\/\b\f\n\r\t";

    q->p++;

    if (q->p == q->end || *q->p == '\0') {
        return 0;
    }

    at = strchr(from, *q->p);

    if (at != NULL) {
        text[(*len)++] = to[at - from];
        q->p++;
        return 1;
    }

    if (!unit(q, &u)) {
        return 0;
    }

    if (u >= 0xd800 && u <= 0xdbff) {

        if (q->p == q->end || *q->p++ != '\\' || !unit(q, &v)
            || v < 0xdc00 || v > 0xdfff)
        {
            return 0;
        }

        u = 0x10000 + ((u - 0xd800) << 10) + (v - 0xdc00);

    } else if (u >= 0xdc00 && u <= 0xdfff) {
        return 0;
    }

    *len += utf8_write(text + *len, u);

    return 1;
}


/* "uXXXX" */

static int
unit(parser_t *q, unsigned *u)
{
    int          i;
    const char  *at;

    static const char  hex[] = "0123456789abcdef0123456789ABCDEF";

    if (q->end - q->p < 5 || *q->p++ != 'u') {
        return 0;
    }

    *u = 0;

    for (i = 0; i < 4; i++, q->p++) {
        at = (*q->p != '\0') ? strchr(hex, *q->p) : NULL;
        if (at == NULL) {
            return 0;
        }
        *u = *u << 4 | ((unsigned) (at - hex) & 15);
    }

    return 1;
}


static int
number(parser_t *q)
{
    const char  *start;

    start = q->p;

    if (q->p != q->end && *q->p == '-') {
        q->p++;
    }

    if (q->p != q->end && *q->p == '0') {
        q->p++;

    } else if (!digits(q)) {
        return 0;
    }

    if (q->p != q->end && *q->p == '.') {
        q->p++;
        if (!digits(q)) {
            return 0;
        }
    }

    if (q->p != q->end && (*q->p == 'e' || *q->p == 'E')) {
        q->p++;

        if (q->p != q->end && (*q->p == '+' || *q->p == '-')) {
            q->p++;
        }

        if (!digits(q)) {
            return 0;
        }
    }

    put(q, start, (size_t) (q->p - start));

    return 1;
}


static int
digits(parser_t *q)
{
    const char  *start;

    for (start = q->p; q->p != q->end && *q->p >= '0' && *q->p <= '9'; q->p++)
    {
        /* void */
    }

    return q->p != start;
}


static int
word(parser_t *q, const char *text)
{
    size_t  n;

    n = strlen(text);

    if ((size_t) (q->end - q->p) < n || memcmp(q->p, text, n) != 0) {
        return 0;
    }

    put(q, text, n);
    q->p += n;

    return 1;
}


static int
token(parser_t *q, char c)
{
    space(q);

    if (q->p == q->end || *q->p != c) {
        return 0;
    }

    q->p++;

    return 1;
}


static void
space(parser_t *q)
{
    while (q->p != q->end && (*q->p == ' ' || *q->p == '\t' || *q->p == '\n'
                              || *q->p == '\r'))
    {
        q->p++;
    }
}


static void
put(parser_t *q, const char *text, size_t len)
{
    memcpy(q->json->compact + q->json->len, text, len);
    q->json->len += len;
}


static void
put_string(parser_t *q, const char *text, size_t len)
{
    char         buf[8];
    size_t       i;
    const char  *at;

    static const char  from[] = "\"\\\b\f\n\r\t";
    static const char  to[] = "\"\\bfnrt";

    put(q, "\"", 1);

    for (i = 0; i < len; i++) {
        at = (text[i] != '\0') ? strchr(from, text[i]) : NULL;

        if (at != NULL) {
            buf[0] = '\\';
            buf[1] = to[at - from];
            put(q, buf, 2);

        } else if ((unsigned char) text[i] < 0x20) {
            (void) snprintf(buf, sizeof(buf), "\\u%04X", (unsigned) text[i]);
            put(q, buf, 6);

        } else {
            put(q, text + i, 1);
        }
    }

    put(q, "\"", 1);
}


static size_t
utf8_write(char *text, uint32_t code)
{
    size_t  n, i;

    if (code < 0x80) {
        text[0] = (char) code;
        return 1;
    }

    n = (code < 0x800) ? 2 : (code < 0x10000) ? 3 : 4;

    for (i = n - 1; i != 0; i--) {
        text[i] = (char) (0x80 | (code & 0x3f));
        code >>= 6;
    }

    text[0] = (char) (0xf00 >> n | code);

    return n;
}


/* bytes of the character at text, if written again as the same; else 0 */

static size_t
utf8_len(const char *text, size_t len)
{
    char      again[4];
    size_t    n, i;
    uint32_t  code;

    code = (unsigned char) text[0];

    if (code < 0x80) {
        return 1;
    }

    n = (code < 0xe0) ? 2 : (code < 0xf0) ? 3 : 4;

    if (code < 0xc0 || code > 0xf7 || n > len) {
        return 0;
    }

    code &= 0x7f >> n;

    for (i = 1; i < n; i++) {
        code = code << 6 | ((unsigned char) text[i] & 0x3f);
    }

    if ((code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff) {
        return 0;
    }

    return (utf8_write(again, code) == n && memcmp(again, text, n) == 0)
           ? n : 0;
}


int
naive_utf8(const char *text, size_t len)
{
    size_t  n;

    for ( /* void */ ; len != 0; text += n, len -= n) {
        n = utf8_len(text, len);
        if (n == 0) {
            return 0;
        }
    }

    return 1;
}


int
naive_shown(const char *text, size_t len)
{
    size_t          i;
    unsigned char   c;

    for (i = 0; i < len; i++) {
        c = (unsigned char) text[i];

        if (c < 0x20 || c == 0x7f
            || (c == 0xc2 && i + 1 < len && (unsigned char) text[i + 1] < 0xa0))
        {
            return 0;
        }
    }

    return naive_utf8(text, len);
}
