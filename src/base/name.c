
/*
 * Names and tokens.  The file has no state, so any thread may call the
 * functions.  A pointer may be NULL only with a length of 0.
 *
 * A token is 24 bytes, written as 32 characters of base64url:
 *
 *     mode (2)  random (12)  record (4)  seq (4)  check (2)
 *
 * Numbers are big endian.  mode is three bits of the base and thirteen bits of
 * the permits.  check is the top of a hash of the 22 bytes before check and of
 * the lock's path.  Because 24 is a multiple of 3, there is no padding and a
 * token has a single spelling.
 *
 * The id in a claim's name is a UUID of lower-case hexadecimal digits: the
 * random bytes, then the record.
 */


#include <stdio.h>
#include <string.h>

#include "base/name.h"


#define ZKL_TOKEN_BYTES         24
#define ZKL_TOKEN_CHECKED       22

/* where the permits end and the base of a mode begins, in a token */
#define ZKL_TOKEN_BASE          13
#define ZKL_TOKEN_PERMITS       ((1 << ZKL_TOKEN_BASE) - 1)

/* bytes of a UUID with the dashes, and of "_c_UUID-" */
#define ZKL_UUID_LEN            36
#define ZKL_UUID_PREFIX         (3 + ZKL_UUID_LEN + 1)

#define ZKL_SEQ_LEN             10

/* the longest marker in a claim's name, with a NUL, whatever the permits */
#define ZKL_MARKER_SIZE         24

/* digits of ZKL_PERMITS_MAX */
#define ZKL_PERMITS_LEN         4

typedef struct {
    const char      *text;
    size_t           len;
    unsigned         alone:1;   /* only at the start of a name */
    zkl_mode_t       mode;
} zkl_marker_t;


static size_t zkl_name_fill(char *buf, const char *text, size_t len,
    int plain);
static const char *zkl_name_segment_check(const char *text, size_t len);
static const char *zkl_name_char_check(const char *text, size_t len,
    size_t *at);
static int zkl_name_segment_is(const char *text, size_t len, const char *word);
static int zkl_name_uuid_read(zkl_id_t *id, const char *text);
static size_t zkl_name_marker_read(zkl_mode_t *mode, const char *name,
    size_t len);
static void zkl_name_uint32_write(uint8_t *bytes, uint32_t value);
static void zkl_name_token_check(uint8_t *check, const uint8_t *bytes,
    const char *path, size_t path_len);


/* a gateway's claim has the first marker of the claim's mode */

static const zkl_marker_t  zkl_markers[] = {
    { "-lock-",    6, 0, ZKL_MUTEX },
    { "-__READ__", 9, 0, ZKL_READ },
    { "-__WRIT__", 9, 0, ZKL_WRITE },
    { "-member-",  8, 0, ZKL_MEMBER },
    { "lock-",     5, 1, ZKL_MUTEX },
    { "__lock__",  8, 0, ZKL_MUTEX },
    { "__rlock__", 9, 0, ZKL_READ },
    { NULL,        0, 0, ZKL_MUTEX }
};


int
zkl_name_mode_check(zkl_mode_t mode)
{
    uint32_t  permits;

    permits = zkl_mode_permits(mode);

    if (zkl_mode_base(mode) == ZKL_SEMAPHORE) {
        return permits >= 1 && permits <= ZKL_PERMITS_MAX;
    }

    return mode <= ZKL_MEMBER || mode == ZKL_NODE;
}


const char *
zkl_name_check(const char *name, size_t len)
{
    if (len == 0) {
        return "the name is empty";
    }

    if (len > ZKL_NAME_MAX) {
        return "the name is longer than 200 bytes";
    }

    if (memchr(name, '/', len) != NULL) {
        return "the name has a slash in it";
    }

    if (zkl_name_segment_is(name, len, "zookeeper")) {
        return "\"zookeeper\" is ZooKeeper's own";
    }

    return zkl_name_segment_check(name, len);
}


size_t
zkl_name_write(char *buf, const char *text, size_t len)
{
    return zkl_name_fill(buf, text, len, 0);
}


size_t
zkl_name_text_write(char *buf, const char *text, size_t len)
{
    return zkl_name_fill(buf, text, len, 1);
}


/* plain: the text is no name, so a "%2F" is not a slash, nor a hash a hash */

static size_t
zkl_name_fill(char *buf, const char *text, size_t len, int plain)
{
    int          slash;
    size_t       i, n, m, size, hash;
    const char  *p;

    hash = (plain && zkl_name_hash_check(text, len)) ? len - ZKL_SHA1_TEXT
                                                     : len;
    n = 0;
    slash = 1;

    for (i = 0; i < len; i += size) {
        p = &text[i];
        m = 1;
        size = 1;

        if (text[i] == '/') {
            p = "%2F";
            m = 3;

        } else if (len - i >= 3 && memcmp(p, "%2F", 3) == 0) {

            if (plain) {
                p = "%25";
            } else {
                size = 3;
            }

            m = 3;

        } else if (i == hash) {
            p = "%25";
            m = 3;
        }

        if (m == 3 && p[2] == 'F') {

            if (slash && (n != 0 || i + size != len)) {
                continue;
            }

            slash = 1;

        } else {
            slash = 0;
        }

        if (buf != NULL) {
            memcpy(buf + n, p, m);
        }

        n += m;
    }

    return n;
}


int
zkl_name_hash_check(const char *name, size_t len)
{
    const char  *hash;

    if (len < ZKL_SHA1_TEXT) {
        return 0;
    }

    hash = name + len - ZKL_SHA1_TEXT;

    return memcmp(hash, "%sha1-", 6) == 0
           && zkl_text_letters_check(hash + 6, 2 * ZKL_SHA1_LEN,
                                     zkl_hex_digits);
}


const char *
zkl_name_refuse(const char *name, size_t len)
{
    if (len == 0) {
        return "the name is empty";
    }

    if (zkl_name_segment_is(name, len, ".")
        || zkl_name_segment_is(name, len, ".."))
    {
        return "\".\" and \"..\" are no names";
    }

    if (zkl_name_hash_check(name, len)) {
        return "\"%sha1-\" and 40 digits end the name of the znode of a lock"
               " whose name is longer, and the lock is acquired by that name";
    }

    return NULL;
}


size_t
zkl_name_hash_write(char *buf, const char *name, size_t len,
    const uint8_t *sha1)
{
    size_t  n, at;

    n = 0;
    at = 0;

    while (at < len && zkl_name_char_check(name, len, &at) == NULL
           && at <= ZKL_NAME_MAX - ZKL_SHA1_TEXT)
    {
        n = at;
    }

    if (n != 0) {
        memcpy(buf, name, n);
    }

    memcpy(buf + n, "%sha1-", 6);
    (void) zkl_text_hex_write(buf + n + 6, sha1, ZKL_SHA1_LEN);

    return n + ZKL_SHA1_TEXT;
}


const char *
zkl_name_path_check(const char *path, size_t len)
{
    size_t       n;
    const char  *end, *error;

    if (len == 0 || path[0] != '/') {
        return "the path does not begin with a slash";
    }

    if (len > ZKL_PATH_MAX) {
        return "the path is longer than 463 bytes";
    }

    if (len == 1) {
        return NULL;
    }

    if (path[len - 1] == '/') {
        return "the path ends with a slash";
    }

    end = memchr(path + 1, '/', len - 1);
    n = (end != NULL) ? (size_t) (end - path) - 1 : len - 1;

    if (zkl_name_segment_is(path + 1, n, "zookeeper")) {
        return "\"/zookeeper\" is ZooKeeper's own";
    }

    while (len != 0) {
        path++;
        len--;

        end = memchr(path, '/', len);
        n = (end != NULL) ? (size_t) (end - path) : len;

        if (n == 0) {
            return "the path has two slashes in a row";
        }

        error = zkl_name_segment_check(path, n);
        if (error != NULL) {
            return error;
        }

        path += n;
        len -= n;
    }

    return NULL;
}


size_t
zkl_name_prefix_write(char *buf, const zkl_id_t *id, zkl_mode_t mode)
{
    char                *p, permits[ZKL_MARKER_SIZE];
    size_t               i, n;
    uint8_t              bytes[ZKL_ID_BYTES];
    const char          *marker;
    const zkl_marker_t  *m;

    if (mode == ZKL_NODE) {
        return 0;
    }

    zkl_name_id_pack(bytes, id);

    p = buf;

    *p++ = '_';
    *p++ = 'c';
    *p++ = '_';

    for  (i = 0; i < ZKL_ID_BYTES; i++) {

        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *p++ = '-';
        }

        p = zkl_text_hex_write(p, &bytes[i], 1);
    }

    if (zkl_mode_base(mode) == ZKL_SEMAPHORE) {
        (void) snprintf(permits, sizeof(permits), "-permit%u-",
                        (unsigned) zkl_mode_permits(mode));
        marker = permits;

    } else {
        for (m = zkl_markers; m->text != NULL && m->mode != mode; m++) {
            /* void */
        }

        marker = m->text != NULL ? m->text : "";
    }

    n = strlen(marker);

    memcpy(p, marker, n);

    return (size_t) (p - buf) + n;
}


size_t
zkl_name_claim_write(char *buf, const zkl_id_t *id, zkl_mode_t mode,
    int64_t seq)
{
    size_t  i, len;

    len = zkl_name_prefix_write(buf, id, mode);

    if (len == 0) {
        return 0;
    }

    len += ZKL_SEQ_LEN;

    for  (i = 1; i <= ZKL_SEQ_LEN; i++) {
        buf[len - i] = (char) ('0' + seq % 10);
        seq /= 10;
    }

    return len;
}


int
zkl_name_child_read(zkl_child_t *child, const char *name, size_t len)
{
    size_t      n, marker;
    int64_t     seq;
    unsigned    has_id;
    zkl_id_t    id;
    zkl_mode_t  mode;

    if (len < ZKL_SEQ_LEN) {
        return -1;
    }

    n = len - ZKL_SEQ_LEN;

    seq = zkl_text_number_read(name + n, ZKL_SEQ_LEN, INT64_MAX);
    if (seq == -1) {
        return -1;
    }

    marker = zkl_name_marker_read(&mode, name, n);

    if (marker == 0 && n != 0 && name[n - 1] == '-') {

        /* no marker ends with two dashes, so the last dash is a sign */

        n--;
        marker = zkl_name_marker_read(&mode, name, n);
        seq = ZKL_SEQ_MAX;
    }

    if (marker == 0 || seq > ZKL_SEQ_MAX) {
        return -1;
    }

    memset(&id, 0, sizeof(zkl_id_t));

    has_id = n >= ZKL_UUID_PREFIX
             && memcmp(name, "_c_", 3) == 0
             && name[ZKL_UUID_PREFIX - 1] == '-'
             && zkl_name_uuid_read(&id, name + 3) == 0;

    /* only gateways make members and permits, and always with the whole name */

    if (mode >= ZKL_MEMBER && (!has_id || n != ZKL_UUID_PREFIX - 1 + marker)) {
        return -1;
    }

    memset(child, 0, sizeof(zkl_child_t));

    child->seq = seq;
    child->mode = mode;

    if (has_id) {
        child->has_id = 1;
        child->id = id;
    }

    return 0;
}


void
zkl_name_token_write(char *buf, const zkl_token_t *token, const char *path,
    size_t path_len)
{
    uint8_t   bytes[ZKL_TOKEN_BYTES];
    uint32_t  mode;

    mode = (zkl_mode_base(token->mode) << ZKL_TOKEN_BASE)
           | (zkl_mode_permits(token->mode) & ZKL_TOKEN_PERMITS);

    bytes[0] = (uint8_t) (mode >> 8);
    bytes[1] = (uint8_t) mode;

    zkl_name_id_pack(bytes + 2, &token->id);
    zkl_name_uint32_write(bytes + 18, (uint32_t) token->seq);
    zkl_name_token_check(bytes + ZKL_TOKEN_CHECKED, bytes, path, path_len);

    (void) zkl_text_base64_write(buf, bytes, ZKL_TOKEN_BYTES);
}


int
zkl_name_token_read(zkl_token_t *token, const char *text, size_t len,
    const char *path, size_t path_len)
{
    size_t      n;
    uint8_t     bytes[ZKL_TOKEN_BYTES], check[2];
    uint32_t    bits, seq;
    zkl_mode_t  mode;

    if (len != ZKL_TOKEN_LEN
        || zkl_text_base64_read(bytes, &n, text, len) != 0)
    {
        return -1;
    }

    zkl_name_token_check(check, bytes, path, path_len);

    bits = ((uint32_t) bytes[0] << 8) | bytes[1];
    mode = (bits >> ZKL_TOKEN_BASE) | ((bits & ZKL_TOKEN_PERMITS) << 8);
    seq = zkl_name_uint32_read(bytes + 18);

    if (!zkl_name_secret_equal(check, bytes + ZKL_TOKEN_CHECKED, sizeof(check))
        || !zkl_name_mode_check(mode)
        || seq > ZKL_SEQ_MAX)
    {
        return -1;
    }

    memset(token, 0, sizeof(zkl_token_t));

    zkl_name_id_unpack(&token->id, bytes + 2);
    token->seq = (int64_t) seq;
    token->mode = mode;

    return 0;
}


/* volatile, because a compiler could return at the first difference */

int
zkl_name_secret_equal(const void *a, const void *b, size_t len)
{
    size_t                   i;
    volatile uint8_t         differ;
    const volatile uint8_t  *one = a;
    const volatile uint8_t  *other = b;

    differ = 0;

    for (i = 0; i < len; i++) {
        differ |= one[i] ^ other[i];
    }

    return differ == 0;
}


uint64_t
zkl_name_who(const zkl_id_t *id)
{
    uint32_t  end;
    uint64_t  who;

    memcpy(&who, id->random, sizeof(uint64_t));
    memcpy(&end, id->random + sizeof(uint64_t), sizeof(uint32_t));

    return who ^ end;
}


size_t
zkl_name_path_shown(const char *path, size_t len)
{
    size_t    start;
    zkl_id_t  id;

    for (start = len; start > 0 && path[start - 1] != '/'; start--) {
        /* void */
    }

    if (len - start >= ZKL_UUID_PREFIX - 1
        && memcmp(path + start, "_c_", 3) == 0
        && zkl_name_uuid_read(&id, path + start + 3) == 0)
    {
        return start + 3;
    }

    return len;
}


void
zkl_name_id_pack(uint8_t *bytes, const zkl_id_t *id)
{
    memcpy(bytes, id->random, ZKL_RANDOM_LEN);
    zkl_name_uint32_write(bytes + ZKL_RANDOM_LEN, id->record);
}


void
zkl_name_id_unpack(zkl_id_t *id, const uint8_t *bytes)
{
    memcpy(id->random, bytes, ZKL_RANDOM_LEN);
    id->record = zkl_name_uint32_read(bytes + ZKL_RANDOM_LEN);
}


uint32_t
zkl_name_uint32_read(const uint8_t *bytes)
{
    return ((uint32_t) bytes[0] << 24)
           | ((uint32_t) bytes[1] << 16)
           | ((uint32_t) bytes[2] << 8)
           | bytes[3];
}


/* text is not empty and has no slash in it */

static const char *
zkl_name_segment_check(const char *text, size_t len)
{
    size_t       at;
    const char  *error;

    if (zkl_name_segment_is(text, len, ".")
        || zkl_name_segment_is(text, len, ".."))
    {
        return "\".\" and \"..\" are no names";
    }

    error = NULL;

    for (at = 0; at < len && error == NULL; /* void */ ) {
        error = zkl_name_char_check(text, len, &at);
    }

    return error;
}


/* Moves *at behind the character there. */

static const char *
zkl_name_char_check(const char *text, size_t len, size_t *at)
{
    uint32_t  code;

    code = zkl_text_utf8_next(text, len, at);

    if (code == ZKL_BROKEN) {
        return "the text is not UTF-8";
    }

    if (code < 0x20 || (code >= 0x7f && code <= 0x9f)) {
        return "a control character cannot be in a ZooKeeper path";
    }

    /*
     * ZooKeeper looks at UTF-16 and refuses D800 to F8FF, and so every
     * character above FFFF, because UTF-16 has a surrogate pair there.
     */

    if ((code >= 0xd800 && code <= 0xf8ff) || code >= 0xfff0) {
        return "ZooKeeper does not take private characters, U+FFF0 to"
               " U+FFFF, and characters above U+FFFF in a path";
    }

    return NULL;
}


static int
zkl_name_segment_is(const char *text, size_t len, const char *word)
{
    return len == strlen(word) && memcmp(text, word, len) == 0;
}


/* text has ZKL_UUID_LEN bytes; id is set only if text is a UUID */

static int
zkl_name_uuid_read(zkl_id_t *id, const char *text)
{
    size_t   i;
    uint8_t  bytes[ZKL_ID_BYTES];

    for  (i = 0; i < ZKL_ID_BYTES; i++) {

        if (i == 4 || i == 6 || i == 8 || i == 10) {
            if (*text++ != '-') {
                return -1;
            }
        }

        if (zkl_text_hex_read(&bytes[i], 1, text) != 0) {
            return -1;
        }

        text += 2;
    }

    zkl_name_id_unpack(id, bytes);

    return 0;
}


/* returns the length of the marker at the end of name and sets mode, or 0 */

static size_t
zkl_name_marker_read(zkl_mode_t *mode, const char *name, size_t len)
{
    size_t               at;
    uint32_t             permits;
    const zkl_marker_t  *m;

    for  (m = zkl_markers; m->text != NULL; m++) {

        if (len < m->len || (m->alone && len != m->len)) {
            continue;
        }

        if (memcmp(name + len - m->len, m->text, m->len) == 0) {
            *mode = m->mode;
            return m->len;
        }
    }

    /* "-permitK-"; K has no leading zero */

    if (len == 0 || name[len - 1] != '-') {
        return 0;
    }

    at = len - 1;

    while (at != 0 && len - at <= ZKL_PERMITS_LEN
           && name[at - 1] >= '0' && name[at - 1] <= '9')
    {
        at--;
    }

    permits = (uint32_t) zkl_text_number_read(name + at, len - 1 - at,
                                              UINT32_MAX);
    if (name[at] == '0'
        || !zkl_name_mode_check(zkl_semaphore(permits))
        || at < sizeof("-permit") - 1)
    {
        return 0;
    }

    at -= sizeof("-permit") - 1;

    if (memcmp(name + at, "-permit", sizeof("-permit") - 1) != 0) {
        return 0;
    }

    *mode = zkl_semaphore(permits);

    return len - at;
}


static void
zkl_name_uint32_write(uint8_t *bytes, uint32_t value)
{
    bytes[0] = (uint8_t) (value >> 24);
    bytes[1] = (uint8_t) (value >> 16);
    bytes[2] = (uint8_t) (value >> 8);
    bytes[3] = (uint8_t) value;
}


/* FNV-1a, and the finalizer of MurmurHash3, because the top bits are used */

static void
zkl_name_token_check(uint8_t *check, const uint8_t *bytes, const char *path,
    size_t path_len)
{
    size_t    i;
    uint64_t  hash;

    hash = 0xcbf29ce484222325;

    for  (i = 0; i < ZKL_TOKEN_CHECKED; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    }

    for (i = 0; i < path_len; i++) {
        hash = (hash ^ (uint8_t) path[i]) * 0x100000001b3;
    }

    hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
    hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53;
    hash ^= hash >> 33;

    check[0] = (uint8_t) (hash >> 56);
    check[1] = (uint8_t) (hash >> 48);
}
