
/*
 * Tokens, and the names of claims.
 *
 * - A written token is read unchanged, and no other text has the same meaning:
 *   there is a single spelling.  The fuzzer computes the check of a path a
 *   second time, because a token must be read for another path only if the 16
 *   bits of both paths are equal.
 * - The written name of a claim is read unchanged.  Any other name is read as a
 *   list of all known layouts says.
 */


#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "fuzz.h"
#include "base/name.h"


#define BYTES       24

static const char  letters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";


static void check_token(fuzz_input_t *in);
static void check_any_token(fuzz_input_t *in);
static void check_claim(fuzz_input_t *in);
static void check_any_child(fuzz_input_t *in);
static unsigned check_of(const uint8_t *bytes, const char *path, size_t len);
static zkl_mode_t some_mode(fuzz_input_t *in);
static void some_id(fuzz_input_t *in, zkl_id_t *id);
static int same_id(const zkl_id_t *one, const zkl_id_t *two);
static int naive_child(zkl_child_t *child, const char *name, size_t len);
static int naive_id(zkl_id_t *id, const char *name, size_t len);
static int ends(const char *text, size_t len, const char *end);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t  in;

    in.data = data;
    in.left = size;

    switch (fuzz_byte(&in) % 4) {
    case 0:   check_token(&in); break;
    case 1:   check_any_token(&in); break;
    case 2:   check_claim(&in); break;
    default:  check_any_child(&in); break;
    }

    return 0;
}


/* a written token, read for this lock and for a lock with another name */

static void
check_token(fuzz_input_t *in)
{
    int             rc, same;
    char           *buf, *path, *other;
    size_t          len, at;
    uint8_t         bytes[BYTES];
    unsigned        byte;
    const uint8_t  *data;
    zkl_token_t     token, again;

    memset(&token, 0, sizeof(token));

    some_id(in, &token.id);
    token.mode = some_mode(in);
    token.seq = fuzz_32(in) & 0x7fffffff;

    at = fuzz_byte(in);
    byte = fuzz_byte(in);

    len = fuzz_bytes(in, &data, ZKL_PATH_MAX);
    path = fuzz_block(data, len);
    buf = fuzz_block(NULL, ZKL_TOKEN_LEN);

    zkl_name_token_write(buf, &token, path, len);

    rule(zkl_name_token_read(&again, buf, ZKL_TOKEN_LEN, path, len) == 0,
         "is not read");
    rule(same_id(&again.id, &token.id) && again.mode == token.mode
         && again.seq == token.seq, "something else is read");
    rule(zkl_name_token_read(&again, buf, ZKL_TOKEN_LEN - 1, path, len)
         == -1, "a part of a token");

    for  (rc = 0; rc < ZKL_TOKEN_LEN; rc++) {
        rule(strchr(letters, buf[rc]) != NULL, "a byte that URLs escape");
    }

    if (len != 0) {
        other = fuzz_block(path, len);
        other[at % len] ^= (char) (byte ? byte : 1);

        rule(zkl_text_base64_read(bytes, &at, buf, ZKL_TOKEN_LEN) == 0
             && at == BYTES, "no base64url");

        same = check_of(bytes, path, len) == check_of(bytes, other, len);
        rc = zkl_name_token_read(&again, buf, ZKL_TOKEN_LEN, other, len);

        rule((rc == 0) == same, "another lock's token is read: %d", rc);

        fuzz_block_free(other);
    }

    fuzz_block_free(buf);
    fuzz_block_free(path);
}


/* any 32 characters; or any 22 bytes, and the check that completes a token */

static void
check_any_token(fuzz_input_t *in)
{
    int             ok;
    char           *text, again[ZKL_TOKEN_LEN];
    size_t          i, len, path_len;
    uint8_t         bytes[BYTES];
    unsigned        sum, base, permits, made;
    const uint8_t  *data;
    zkl_token_t     token;
    const char     *path;

    made = fuzz_byte(in) & 1;

    if (made) {
        memset(bytes, 0, BYTES);
        len = fuzz_bytes(in, &data, BYTES - 2);
        memcpy(bytes, data, len);
        path_len = fuzz_bytes(in, (const uint8_t **) &path, ZKL_PATH_MAX);

        sum = check_of(bytes, path, path_len);
        bytes[22] = (uint8_t) (sum >> 8);
        bytes[23] = (uint8_t) sum;

        text = fuzz_block(NULL, ZKL_TOKEN_LEN);
        len = ZKL_TOKEN_LEN;

        for (i = 0; i < BYTES / 3; i++) {
            sum = bytes[3 * i] << 16 | bytes[3 * i + 1] << 8
                  | bytes[3 * i + 2];
            text[4 * i] = letters[sum >> 18];
            text[4 * i + 1] = letters[sum >> 12 & 63];
            text[4 * i + 2] = letters[sum >> 6 & 63];
            text[4 * i + 3] = letters[sum & 63];
        }

        base = bytes[0] >> 5;
        permits = (bytes[0] & 31) << 8 | bytes[1];
        ok = !(bytes[18] & 0x80)
             && (base == ZKL_SEMAPHORE ? permits >= 1 && permits <= 1000
                                       : base <= 5 && permits == 0);

    } else {
        len = fuzz_bytes(in, &data, ZKL_TOKEN_LEN + 2);
        text = fuzz_block(data, len);
        path_len = fuzz_bytes(in, (const uint8_t **) &path, ZKL_PATH_MAX);
        ok = -1;
    }

    i = (zkl_name_token_read(&token, text, len, path, path_len) == 0);

    rule(ok == -1 || (int) i == ok, "read says %zu", i);

    if (i) {
        rule(len == ZKL_TOKEN_LEN, "%zu bytes are a token", len);
        rule(zkl_name_mode_check(token.mode), "mode %x", token.mode);
        rule(token.seq >= 0 && token.seq <= ZKL_SEQ_MAX, "seq %lld",
             (long long) token.seq);

        zkl_name_token_write(again, &token, path, path_len);
        rule(memcmp(again, text, len) == 0, "two spellings");
    }

    fuzz_block_free(text);
}


static void
check_claim(fuzz_input_t *in)
{
    char        *buf, exact[ZKL_CLAIM_MAX];
    size_t       n, prefix;
    int64_t      seq;
    zkl_id_t     id;
    zkl_mode_t   mode;
    zkl_child_t  child;

    some_id(in, &id);
    mode = some_mode(in);
    seq = fuzz_32(in) & 0x7fffffff;

    buf = fuzz_block(NULL, ZKL_CLAIM_MAX);
    n = zkl_name_claim_write(buf, &id, mode, seq);

    rule(n <= ZKL_CLAIM_MAX, "%zu bytes", n);
    memcpy(exact, buf, n);
    fuzz_block_free(buf);

    buf = fuzz_block(NULL, ZKL_PREFIX_MAX);
    prefix = zkl_name_prefix_write(buf, &id, mode);
    rule(prefix <= ZKL_PREFIX_MAX && memcmp(exact, buf, prefix) == 0,
         "another prefix");
    fuzz_block_free(buf);

    if (mode == ZKL_NODE) {
        rule(n == 0, "such a claim has no name");
        return;
    }

    rule(n == prefix + 10, "no ten digits");
    rule(zkl_name_check(exact, n) == NULL, "it cannot be a znode");

    buf = fuzz_block(exact, n);

    rule(zkl_name_child_read(&child, buf, n) == 0, "is not read");
    rule(child.has_id && same_id(&child.id, &id) && child.mode == mode
         && child.seq == seq, "something else is read");
    rule(zkl_name_child_read(&child, buf, n - 1) == -1
         || child.seq != seq || seq < 10, "a part of a name is the same");

    fuzz_block_free(buf);
}


static void
check_any_child(fuzz_input_t *in)
{
    int             rc, expected;
    char           *name;
    size_t          len;
    const uint8_t  *data;
    zkl_child_t     child, naive;

    memset(&naive, 0, sizeof(naive));

    len = fuzz_bytes(in, &data, 300);
    name = fuzz_block(data, len);

    rc = zkl_name_child_read(&child, name, len);
    expected = naive_child(&naive, name, len);

    rule(rc == expected, "%.*s: %d", (int) len, name, rc);

    if (rc == 0) {
        rule(child.seq == naive.seq, "seq %lld", (long long) child.seq);
        rule(child.mode == naive.mode, "mode %x, not %x", child.mode,
             naive.mode);
        rule(child.has_id == naive.has_id
             && (!child.has_id || same_id(&child.id, &naive.id)), "its id");
        rule(zkl_name_mode_check(child.mode) && child.mode != ZKL_NODE,
             "mode %x", child.mode);
    }

    fuzz_block_free(name);
}


/* the two bytes at the end of a token, as base/name.c describes */

static unsigned
check_of(const uint8_t *bytes, const char *path, size_t len)
{
    size_t    i;
    uint64_t  hash;

    hash = 14695981039346656037u;

    for (i = 0; i < 22 + len; i++) {
        hash ^= (i < 22) ? bytes[i] : (uint8_t) path[i - 22];
        hash *= 1099511628211u;
    }

    hash ^= hash >> 33;
    hash *= 0xff51afd7ed558ccd;
    hash ^= hash >> 33;
    hash *= 0xc4ceb9fe1a85ec53;
    hash ^= hash >> 33;

    return (unsigned) (hash >> 48);
}


static zkl_mode_t
some_mode(fuzz_input_t *in)
{
    unsigned  mode;

    mode = fuzz_below(in, 6);

    return (mode == ZKL_SEMAPHORE)
           ? zkl_semaphore(1 + fuzz_below(in, 1000)) : mode;
}


static void
some_id(fuzz_input_t *in, zkl_id_t *id)
{
    size_t  i;

    for  (i = 0; i < ZKL_RANDOM_LEN; i++) {
        id->random[i] = (uint8_t) fuzz_byte(in);
    }

    id->record = fuzz_32(in);
}


static int
same_id(const zkl_id_t *one, const zkl_id_t *two)
{
    return memcmp(one->random, two->random, ZKL_RANDOM_LEN) == 0
           && one->record == two->record;
}


/* a layout, then perhaps a sign, then ten digits */

static int
naive_child(zkl_child_t *child, const char *name, size_t len)
{
    int        has_id, negative, permits;
    char       marker[32];
    size_t     i, n;
    long long  seq;

    static const struct {
        const char  *text;
        int          whole;     /* no text is in front */
        int          ours;      /* only an id is in front */
        zkl_mode_t   mode;
    } layouts[] = {
        { "-lock-",    0, 0, ZKL_MUTEX },
        { "lock-",     1, 0, ZKL_MUTEX },
        { "__lock__",  0, 0, ZKL_MUTEX },
        { "__rlock__", 0, 0, ZKL_READ },
        { "-__READ__", 0, 0, ZKL_READ },
        { "-__WRIT__", 0, 0, ZKL_WRITE },
        { "-member-",  0, 1, ZKL_MEMBER },
    };

    if (len < 10) {
        return -1;
    }

    seq = 0;

    for (i = len - 10; i < len; i++) {
        if (!isdigit((unsigned char) name[i])) {
            return -1;
        }
        seq = seq * 10 + (name[i] - '0');
    }

    has_id = naive_id(&child->id, name, len);

    for (negative = 0; negative < 2; negative++) {
        n = len - 10 - (size_t) negative;

        if (negative && (len == 10 || name[n] != '-')) {
            return -1;
        }

        for (i = 0; i < 7; i++) {
            if (ends(name, n, layouts[i].text)
                && (!layouts[i].whole || n == strlen(layouts[i].text)))
            {
                child->mode = layouts[i].mode;

                if (layouts[i].ours
                    && !(has_id && n == 39 + strlen(layouts[i].text)))
                {
                    return -1;
                }

                goto found;
            }
        }

        /* like "-permit7-": a single spelling, only of gateways */

        permits = 0;
        i = (n != 0 && name[n - 1] == '-') ? n - 1 : n;

        while (i != 0 && i < n && isdigit((unsigned char) name[i - 1])) {
            i--;
        }

        for ( /* void */ ; n != 0 && i < n - 1 && permits <= 1000; i++) {
            permits = permits * 10 + (name[i] - '0');
        }

        if (permits >= 1 && permits <= 1000) {
            (void) snprintf(marker, sizeof(marker), "-permit%d-", permits);

            if (ends(name, n, marker)) {
                if (!has_id || n != 39 + strlen(marker)) {
                    return -1;
                }

                child->mode = zkl_semaphore(permits);
                goto found;
            }
        }
    }

    return -1;

found:

    child->seq = negative ? ZKL_SEQ_MAX : seq;
    child->has_id = has_id && n >= 40;

    return (child->seq <= ZKL_SEQ_MAX) ? 0 : -1;
}


/* "_c_XXXXXXXX-XXXX-XXXX-XXXX-XXXXXXXXXXXX-" */

static int
naive_id(zkl_id_t *id, const char *name, size_t len)
{
    size_t    i, k;
    unsigned  byte[16];
    char      hex[3];

    static const char  form[] = "_c_xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx-";

    if (len < sizeof(form) - 1) {
        return 0;
    }

    for (i = 0, k = 0; i < sizeof(form) - 1; i++) {

        if (form[i] != 'x') {
            if (name[i] != form[i]) {
                return 0;
            }
            continue;
        }

        if (!isxdigit((unsigned char) name[i])) {
            return 0;
        }

        hex[k & 1] = name[i];
        hex[2] = '\0';

        if (k++ & 1) {
            (void) sscanf(hex, "%x", &byte[k / 2 - 1]);
        }
    }

    for  (i = 0; i < ZKL_RANDOM_LEN; i++) {
        id->random[i] = (uint8_t) byte[i];
    }

    id->record = byte[12] << 24 | byte[13] << 16 | byte[14] << 8 | byte[15];

    return 1;
}


static int
ends(const char *text, size_t len, const char *end)
{
    size_t  n;

    n = strlen(end);

    return len >= n && memcmp(text + len - n, end, n) == 0;
}
