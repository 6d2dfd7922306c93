
/*
 * Lock names, paths, durations and base64url: every function reads the same
 * text, and the answer is compared with an answer found in another way.
 *
 * - A name is accepted exactly if the name has the form that base/name.h says.
 *   ZooKeeper takes all accepted names (PathUtils.validatePath(), on UTF-16, is
 *   here), and so does zkl_name_path_check() behind any root, where the name is
 *   the last segment.  So two names never are the same znode.
 * - A shown text is UTF-8 without control characters, and a text that is made
 *   to be shown is one.
 * - A name is the segments of a text, with "%2F" between them, and a name is
 *   written as itself.  A text that is no name is never written as the name of
 *   a hash, nor is a "%2F" in the text a slash.
 * - The name of a hash is that of a znode, is written as itself, and begins as
 *   the name does.
 * - Durations agree with exact arithmetic, and milliseconds are canonical.
 * - base64url that is read has a single spelling, and written bytes come back.
 */


#include <stdio.h>
#include <string.h>

#include "fuzz.h"
#include "base/name.h"


#define NO_CODE     0xffffffff
#define TEXT_MAX    1024


static void check_name(const char *text, size_t len);
static void check_path(const char *text, size_t len);
static void check_write(const char *text, size_t len, int plain);
static size_t naive_write(char *buf, const char *text, size_t len, int plain);
static void check_hash(const char *text, size_t len);
static int ends_in_hash(const char *text, size_t len);
static void check_shown(const char *text, size_t len);
static void check_show(const char *text, size_t len, size_t size);
static void check_duration(const char *text, size_t len);
static void check_base64(const char *text, size_t len);
static uint32_t code_at(const uint8_t *text, size_t len, size_t *n);
static int codes(uint32_t *code, size_t *n, const char *text, size_t len);
static int segment_ok(const char *text, size_t len);
static int path_ok(const char *text, size_t len);
static int zookeeper_takes(const char *path, size_t len);
static int is(const char *text, size_t len, const char *word);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char  *text;

    if (size > TEXT_MAX) {
        return 0;
    }

    text = fuzz_block(data, size);

    check_name(text, size);
    check_path(text, size);
    check_write(text, size, 0);
    check_write(text, size, 1);
    check_hash(text, size);
    check_shown(text, size);
    check_duration(text, size);
    check_base64(text, size);

    fuzz_block_free(text);

    return 0;
}


static void
check_name(const char *text, size_t len)
{
    int          ok;
    char        *path;
    const char  *error;

    ok = len != 0 && len <= 200 && segment_ok(text, len)
         && memchr(text, '/', len) == NULL && !is(text, len, "zookeeper");

    error = zkl_name_check(text, len);

    rule((error == NULL) == ok, "name: %s", error ? error : "accepted");

    if (error != NULL) {
        rule(strlen(error) != 0, "no sentence");
        return;
    }

    path = fuzz_block(NULL, 6 + len);
    memcpy(path, "/zk/a/", 6);
    memcpy(path + 6, text, len);

    rule(zkl_name_path_check(path, 6 + len) == NULL, "a name that is no path");
    rule(zookeeper_takes(path, 6 + len), "ZooKeeper refuses it");
    rule(memrchr(path, '/', 6 + len) == path + 5, "the name is not the last");

    fuzz_block_free(path);
}


static void
check_path(const char *text, size_t len)
{
    const char  *error;

    error = zkl_name_path_check(text, len);

    rule((error == NULL) == path_ok(text, len), "path: %s",
         error ? error : "accepted");

    rule(error != NULL || zookeeper_takes(text, len), "ZooKeeper refuses it");
}


static void
check_write(const char *text, size_t len, int plain)
{
    char    *name, *again;
    char     naive[3 * TEXT_MAX + 3];
    size_t   n;

    size_t (*write)(char *buf, const char *text, size_t len);

    write = plain ? zkl_name_text_write : zkl_name_write;

    n = write(NULL, text, len);

    rule(n <= 3 * len, "%zu bytes", n);
    rule((n == 0) == (len == 0), "%zu bytes of %zu", n, len);

    name = fuzz_block(NULL, n);
    again = fuzz_block(NULL, n);

    rule(write(name, text, len) == n, "another length");
    rule(naive_write(naive, text, len, plain) == n
         && memcmp(naive, name, n) == 0, "written in another way");
    rule(!plain || !ends_in_hash(name, n), "the name of a hash");

    rule(zkl_name_write(again, name, n) == n && memcmp(again, name, n) == 0,
         "a name is another name");

    fuzz_block_free(again);
    fuzz_block_free(name);
}


/* the segments that are not empty, and how the text ends */

static size_t
naive_write(char *buf, const char *text, size_t len, int plain)
{
    size_t  i, n, hash;
    char    before;

    /* first as single characters, with a slash for each slash */

    hash = (plain && ends_in_hash(text, len)) ? len - 46 : len;

    for (i = 0, n = 0; i < len; i++) {

        if (len - i >= 3 && memcmp(text + i, "%2F", 3) == 0) {

            if (plain) {
                memcpy(buf + n, "%252F", 5);
                n += 5;

            } else {
                buf[n++] = '/';
            }

            i += 2;
            continue;
        }

        if (i == hash) {
            memcpy(buf + n, "%25", 3);
            n += 3;
            continue;
        }

        buf[n++] = text[i];
    }

    /* then without slashes in a row, from the end on */

    for (i = n; i > 1; i--) {
        if (buf[i - 1] == '/' && buf[i - 2] == '/') {
            memmove(buf + i - 1, buf + i, n - i);
            n--;
        }
    }

    if (n > 1 && buf[0] == '/') {
        memmove(buf, buf + 1, --n);
    }

    for (i = 0; i < n; i++) {
        before = buf[i];

        if (before == '/') {
            memmove(buf + i + 3, buf + i + 1, n - i - 1);
            memcpy(buf + i, "%2F", 3);
            n += 2;
        }
    }

    return n;
}


static void
check_hash(const char *text, size_t len)
{
    char    *name, *hashed, *again;
    size_t   n, m;

    static const uint8_t  sha1[20] = { 0x01, 0x23, 0xab, 0xff };

    rule(zkl_name_hash_check(text, len) == ends_in_hash(text, len), "hash");

    n = zkl_name_write(NULL, text, len);
    name = fuzz_block(NULL, n);
    hashed = fuzz_block(NULL, ZKL_NAME_MAX);
    again = fuzz_block(NULL, ZKL_NAME_MAX);

    (void) zkl_name_write(name, text, len);

    m = zkl_name_hash_write(hashed, name, n, sha1);

    rule(m >= 46 && m <= 200, "%zu bytes", m);
    rule(ends_in_hash(hashed, m), "no name of a hash");
    rule(memcmp(hashed + m - 40, "0123abff00", 10) == 0, "another hash");
    rule(zkl_name_check(hashed, m) == NULL, "no name of a znode");
    rule(m - 46 <= n && memcmp(hashed, name, m - 46) == 0, "begins otherwise");
    rule(m - 46 == n || m > 150 || !segment_ok(name, m - 46 + 4 > n ? n
                                                       : m - 46 + 4)
         || m == 46, "begins too early");

    /* "%2F" alone, the name of a slash, needs no hash */

    rule(is(name, n, "%2F")
         || (zkl_name_write(NULL, hashed, m) == m
             && zkl_name_write(again, hashed, m) == m
             && memcmp(again, hashed, m) == 0), "is another name");

    rule((zkl_name_refuse(text, len) == NULL)
         == (len != 0 && !is(text, len, ".") && !is(text, len, "..")
             && !ends_in_hash(text, len)), "refused");

    fuzz_block_free(again);
    fuzz_block_free(hashed);
    fuzz_block_free(name);
}


static int
ends_in_hash(const char *text, size_t len)
{
    size_t  i;

    if (len < 46 || memcmp(text + len - 46, "%sha1-", 6) != 0) {
        return 0;
    }

    for (i = len - 40; i < len; i++) {
        if (!((text[i] >= '0' && text[i] <= '9')
              || (text[i] >= 'a' && text[i] <= 'f')))
        {
            return 0;
        }
    }

    return 1;
}


static void
check_shown(const char *text, size_t len)
{
    int       utf8, shown;
    size_t    n, i, at;
    uint32_t  code[TEXT_MAX];

    utf8 = codes(code, &n, text, len);
    shown = utf8;

    for (i = 0; i < n && shown; i++) {
        shown = code[i] >= 0x20 && (code[i] < 0x7f || code[i] > 0x9f);
    }

    rule(zkl_text_utf8_check(text, len) == utf8, "UTF-8 is %d", utf8);
    rule(zkl_text_shown_check(text, len) == shown, "shown is %d", shown);

    /* the run ends in front of the first character that cannot be shown */

    at = zkl_text_shown_len(text, len);

    rule(at <= len && (at == len) == shown, "%zu bytes of the text", at);
    rule(zkl_text_shown_check(text, at), "the run is not shown");

    for (i = 1; i <= 4 && at + i <= len; i++) {
        rule(!zkl_text_shown_check(text, at + i), "the run is too short");
    }

    for (i = 0; i <= len + 1; i += 1 + len / 4) {
        check_show(text, len, i);
    }
}


/* Each byte is that of the text or a "?", and no character is cut. */

static void
check_show(const char *text, size_t len, size_t size)
{
    char    *buf;
    size_t   i, n;

    buf = fuzz_block(NULL, size);
    n = zkl_text_show(buf, size, text, len);

    rule(n <= size && n <= len, "%zu bytes of %zu", n, size);
    rule(n + 4 > size || n == len, "%zu bytes, with room for %zu", n, size);
    rule(zkl_text_shown_check(buf, n), "a text that is not shown");

    for (i = 0; i < n; i++) {
        rule(buf[i] == text[i] || buf[i] == '?', "another byte");
    }

    fuzz_block_free(buf);
}


static void
check_duration(const char *text, size_t len)
{
    char      again[32];
    size_t    i, digits, decimals;
    int64_t   value;
    __int128  thousandths, expected, unit;

    /* thousandths of a unit, up to a number that is too large */

    thousandths = 0;
    digits = 0;
    decimals = 0;

    for (i = 0; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
        if (thousandths < (__int128) 1 << 90) {
            thousandths = thousandths * 10 + (text[i] - '0') * 1000;
        }
        digits++;
    }

    if (digits != 0 && i < len && text[i] == '.') {
        for (i++; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
            decimals++;
            thousandths += (decimals == 1) ? (text[i] - '0') * 100
                           : (decimals == 2) ? (text[i] - '0') * 10
                           : (decimals == 3) ? (text[i] - '0') : 0;
        }

        if (decimals < 1 || decimals > 3) {
            digits = 0;
        }
    }

    unit = (is(text + i, len - i, "")) ? 1000
           : is(text + i, len - i, "s") ? 1000
           : is(text + i, len - i, "m") ? 60000
           : is(text + i, len - i, "h") ? 3600000
           : is(text + i, len - i, "d") ? 86400000
           : (is(text + i, len - i, "ms") && decimals == 0) ? 1 : 0;

    expected = thousandths * unit / 1000;

    if (digits == 0 || unit == 0 || thousandths >= (__int128) 1 << 80
        || expected > (__int128) 315360000000)
    {
        expected = -1;
    }

    value = zkl_text_duration_read(text, len);

    rule(value == expected, "%lld instead of %lld", (long long) value,
         (long long) expected);

    if (value != -1) {
        (void) snprintf(again, sizeof(again), "%lldms", (long long) value);
        rule(zkl_text_duration_read(again, strlen(again)) == value,
             "%s is read as something else", again);
    }
}


static void
check_base64(const char *text, size_t len)
{
    int      rc;
    char    *again;
    size_t   n, m;
    uint8_t *bytes;

    /* the text as bytes: written and read back */

    again = fuzz_block(NULL, ZKL_BASE64_LEN(len));
    bytes = fuzz_block(NULL, len);

    n = zkl_text_base64_write(again, text, len);
    rule(n == ZKL_BASE64_LEN(len), "%zu characters", n);
    rule(zkl_text_base64_read(bytes, &m, again, n) == 0, "is not read");
    rule(m == len && (len == 0 || memcmp(bytes, text, len) == 0),
         "other bytes came back");

    fuzz_block_free(again);
    fuzz_block_free(bytes);

    /* the text as characters: there is a single spelling */

    bytes = fuzz_block(NULL, ZKL_BASE64_BYTES(len));

    rc = zkl_text_base64_read(bytes, &n, text, len);

    if (rc == 0) {
        rule(n == ZKL_BASE64_BYTES(len), "%zu bytes", n);

        again = fuzz_block(NULL, ZKL_BASE64_LEN(n));
        m = zkl_text_base64_write(again, bytes, n);

        rule(m == len && (len == 0 || memcmp(again, text, len) == 0),
             "two spellings");

        fuzz_block_free(again);
    }

    fuzz_block_free(bytes);
}


/* the character at text, by the table of RFC 3629, 4; or NO_CODE */

static uint32_t
code_at(const uint8_t *text, size_t len, size_t *n)
{
    size_t    i, k;
    uint32_t  code;

    static const struct {
        uint8_t  first[2], second[2];
        uint8_t  n, bits;
    } forms[] = {
        { { 0x00, 0x7f }, { 0, 0 },       1, 0x7f },
        { { 0xc2, 0xdf }, { 0x80, 0xbf }, 2, 0x1f },
        { { 0xe0, 0xe0 }, { 0xa0, 0xbf }, 3, 0x0f },
        { { 0xe1, 0xec }, { 0x80, 0xbf }, 3, 0x0f },
        { { 0xed, 0xed }, { 0x80, 0x9f }, 3, 0x0f },
        { { 0xee, 0xef }, { 0x80, 0xbf }, 3, 0x0f },
        { { 0xf0, 0xf0 }, { 0x90, 0xbf }, 4, 0x07 },
        { { 0xf1, 0xf3 }, { 0x80, 0xbf }, 4, 0x07 },
        { { 0xf4, 0xf4 }, { 0x80, 0x8f }, 4, 0x07 },
    };

    for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {

        if (text[0] < forms[i].first[0] || text[0] > forms[i].first[1]) {
            continue;
        }

        if (len < forms[i].n) {
            return NO_CODE;
        }

        code = text[0] & forms[i].bits;

        for (k = 1; k < forms[i].n; k++) {
            if (text[k] < (k == 1 ? forms[i].second[0] : 0x80)
                || text[k] > (k == 1 ? forms[i].second[1] : 0xbf))
            {
                return NO_CODE;
            }
            code = code << 6 | (text[k] & 0x3f);
        }

        *n = forms[i].n;
        return code;
    }

    return NO_CODE;
}


static int
codes(uint32_t *code, size_t *n, const char *text, size_t len)
{
    size_t  k;

    for (*n = 0; len != 0; text += k, len -= k) {
        code[*n] = code_at((const uint8_t *) text, len, &k);

        if (code[(*n)++] == NO_CODE) {
            return 0;
        }
    }

    return 1;
}


/* zkl_name_check()'s rules for characters, written in another way */

static int
segment_ok(const char *text, size_t len)
{
    size_t    i, n;
    uint32_t  code[TEXT_MAX];

    if (is(text, len, ".") || is(text, len, "..")
        || !codes(code, &n, text, len))
    {
        return 0;
    }

    for (i = 0; i < n; i++) {
        if (code[i] <= 0x1f || (code[i] >= 0x7f && code[i] <= 0x9f)
            || (code[i] >= 0xe000 && code[i] <= 0xf8ff)
            || code[i] >= 0xfff0)
        {
            return 0;
        }
    }

    return 1;
}


static int
path_ok(const char *text, size_t len)
{
    size_t  start, end;

    if (len == 0 || len > 463 || text[0] != '/') {
        return 0;
    }

    if (len == 1) {
        return 1;
    }

    for (start = 1; start <= len; start = end + 1) {
        for (end = start; end < len && text[end] != '/'; end++) {
            /* void */
        }

        if (end == start || !segment_ok(text + start, end - start)
            || (start == 1 && is(text + start, end - start, "zookeeper")))
        {
            return 0;
        }
    }

    return 1;
}


/* ZooKeeper's PathUtils.validatePath(), of 3.8 */

static int
zookeeper_takes(const char *path, size_t len)
{
    size_t    i, n, k;
    uint32_t  code[TEXT_MAX], c;
    uint16_t  u[2 * TEXT_MAX];

    if (!codes(code, &n, path, len) || n == 0) {
        return 0;
    }

    for (i = 0, k = 0; i < n; i++) {
        c = code[i];

        if (c >= 0x10000) {
            u[k++] = (uint16_t) (0xd800 + ((c - 0x10000) >> 10));
            c = 0xdc00 + ((c - 0x10000) & 0x3ff);
        }

        u[k++] = (uint16_t) c;
    }

    if (u[0] != '/') {
        return 0;
    }

    if (k == 1) {
        return 1;
    }

    if (u[k - 1] == '/') {
        return 0;
    }

    for (i = 1; i < k; i++) {

        if (u[i] == 0
            || (u[i] == '/' && u[i - 1] == '/')
            || (u[i] > 0x0000 && u[i] <= 0x001f)
            || (u[i] >= 0x007f && u[i] <= 0x009f)
            || (u[i] >= 0xd800 && u[i] <= 0xf8ff)
            || (u[i] >= 0xfff0))
        {
            return 0;
        }

        if (u[i] != '.' || (i + 1 != k && u[i + 1] != '/')) {
            continue;
        }

        if (u[i - 1] == '/' || (u[i - 1] == '.' && u[i - 2] == '/')) {
            return 0;
        }
    }

    return 1;
}


static int
is(const char *text, size_t len, const char *word)
{
    return len == strlen(word) && (len == 0 || memcmp(text, word, len) == 0);
}
