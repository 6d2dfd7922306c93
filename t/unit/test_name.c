
/*
 * Names, claims, tokens and durations: which texts are taken, which are
 * refused, and that each written text is read back.
 */


#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/name.h"


#define UUID        "00010203-0405-0607-0809-0a0bdeadbeef"
#define UUID_UPPER  "00010203-0405-0607-0809-0A0BDEADBEEF"
#define HEX32       "000102030405060708090a0bdeadbeef"

#define HASH        "00112233445566778899aabbccddeeff01234567"

#define text_of(s)  (s), sizeof(s) - 1


typedef struct {
    const char      *text;
    size_t           len;
    const char      *error;     /* a part; NULL: name is taken */
} name_case_t;


typedef struct {
    const char  *name;
    int64_t      seq;       /* -1: not a claim */
    zkl_mode_t   mode;
    unsigned     has_id;
} child_case_t;


typedef struct {
    const char      *text;
    int64_t          ms;
} duration_case_t;


static const zkl_id_t  id = {
    { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 }, 0xdeadbeef
};


static const name_case_t  names[] = {
    { text_of("a"),                         NULL },
    { text_of("nightly build"),             NULL },
    { text_of("..."),                       NULL },
    { text_of(".a"),                        NULL },
    { text_of("zookeeper2"),                NULL },
    { text_of("Zookeeper"),                 NULL },
    { text_of("\xc3\xa4"),                  NULL },     /* U+E4 */
    { text_of("\xc2\xa0"),                  NULL },     /* U+A0 */
    { text_of("\xed\x9f\xbf"),              NULL },     /* U+D7FF */
    { text_of("\xef\xa4\x80"),              NULL },     /* U+F900 */
    { text_of("\xef\xbf\xaf"),              NULL },     /* U+FFEF */

    { text_of(""),                          "empty" },
    { text_of("."),                         "\"..\"" },
    { text_of(".."),                        "\"..\"" },
    { text_of("a/b"),                       "slash" },
    { text_of("/"),                         "slash" },
    { text_of("zookeeper"),                 "own" },

    { text_of("a\0b"),                      "control" },
    { text_of("\x01"),                      "control" },
    { text_of("\x1f"),                      "control" },
    { text_of("\x7f"),                      "control" },
    { text_of("\xc2\x80"),                  "control" },
    { text_of("\xc2\x9f"),                  "control" },

    { text_of("\xee\x80\x80"),              "private" },    /* U+E000 */
    { text_of("\xef\xa3\xbf"),              "private" },    /* U+F8FF */
    { text_of("\xef\xbf\xb0"),              "private" },    /* U+FFF0 */
    { text_of("\xef\xbf\xbf"),              "private" },    /* U+FFFF */
    { text_of("\xf0\x9f\x94\x92"),          "private" },    /* U+1F512 */

    { text_of("\xff"),                      "UTF-8" },
    { text_of("\xc3"),                      "UTF-8" },
    { text_of("\xed\xa0\x80"),              "UTF-8" },      /* U+D800 */

    { NULL, 0, NULL }
};


static const name_case_t  paths[] = {
    { text_of("/"),                         NULL },
    { text_of("/a"),                        NULL },
    { text_of("/a/b c/\xc3\xa4"),           NULL },
    { text_of("/a/zookeeper"),              NULL },
    { text_of("/zookeepers/a"),             NULL },
    { text_of("/..."),                      NULL },

    { text_of(""),                          "begin" },
    { text_of("a"),                         "begin" },
    { text_of("a/b"),                       "begin" },
    { text_of("/a/"),                       "ends" },
    { text_of("//"),                        "ends" },
    { text_of("//a"),                       "two slashes" },
    { text_of("/a//b"),                     "two slashes" },
    { text_of("/."),                        "\"..\"" },
    { text_of("/a/.."),                     "\"..\"" },
    { text_of("/./a"),                      "\"..\"" },
    { text_of("/a/../b"),                   "\"..\"" },
    { text_of("/zookeeper"),                "own" },
    { text_of("/zookeeper/quota"),          "own" },
    { text_of("/a/b\0c"),                   "control" },
    { text_of("/a\n/b"),                    "control" },
    { text_of("/a/\xc0\xaf"),               "UTF-8" },
    { text_of("/a/\xf0\x9f\x94\x92/b"),     "private" },

    { NULL, 0, NULL }
};


static const child_case_t  children[] = {

    /* of gateways and of Curator */

    { "_c_" UUID "-lock-0000000000",        0,          ZKL_MUTEX, 1 },
    { "_c_" UUID "-lock-2147483647",        2147483647, ZKL_MUTEX, 1 },
    { "_c_" UUID "-__READ__0000000007",     7,          ZKL_READ,  1 },
    { "_c_" UUID "-__WRIT__0000000007",     7,          ZKL_WRITE, 1 },
    { "_c_" UUID_UPPER "-lock-0000000012",  12,         ZKL_MUTEX, 1 },

    /* go-zk, kazoo, .NET */

    { "_c_" HEX32 "-lock-0000000012",       12,         ZKL_MUTEX, 0 },
    { HEX32 "__lock__0000000012",           12,         ZKL_MUTEX, 0 },
    { HEX32 "__rlock__0000000012",          12,         ZKL_READ,  0 },
    { "lock-0000000003",                    3,          ZKL_MUTEX, 0 },
    { "-lock-0000000003",                   3,          ZKL_MUTEX, 0 },
    { "x-lock-0000000003",                  3,          ZKL_MUTEX, 0 },

    /* almost an id */

    { "_c_" "00010203-0405-0607-0809-0a0bdeadbeeg" "-lock-0000000001",
                                            1,          ZKL_MUTEX, 0 },
    { "_c_" "00010203x0405-0607-0809-0a0bdeadbeef" "-lock-0000000001",
                                            1,          ZKL_MUTEX, 0 },
    { "_d_" UUID "-lock-0000000001",        1,          ZKL_MUTEX, 0 },
    { "_c_" UUID "__lock__0000000001",      1,          ZKL_MUTEX, 0 },

    /* the counter has overflown */

    { "_c_" UUID "-lock--2147483648",       2147483647, ZKL_MUTEX, 1 },
    { "_c_" UUID "-__READ__-2147483648",    2147483647, ZKL_READ,  1 },
    { HEX32 "__lock__-2147483648",          2147483647, ZKL_MUTEX, 0 },
    { "lock--2147483648",                   2147483647, ZKL_MUTEX, 0 },
    { "-lock---2147483648",                 -1,         ZKL_MUTEX, 0 },

    /* not claims */

    { "",                                   -1,         ZKL_MUTEX, 0 },
    { "0000000001",                         -1,         ZKL_MUTEX, 0 },
    { "-0000000001",                        -1,         ZKL_MUTEX, 0 },
    { "xlock-0000000001",                   -1,         ZKL_MUTEX, 0 },
    { "lock-000000001",                     -1,         ZKL_MUTEX, 0 },
    { "lock-00000000001",                   -1,         ZKL_MUTEX, 0 },
    { "lock-000000000x",                    -1,         ZKL_MUTEX, 0 },
    { "lock-2147483648",                    -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-latch-0000000001",       -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-lease-0000000001",       -1,         ZKL_MUTEX, 0 },
    { "x__READ__0000000001",                -1,         ZKL_MUTEX, 0 },
    { "read-0000000001",                    -1,         ZKL_MUTEX, 0 },
    { "n_0000000001",                       -1,         ZKL_MUTEX, 0 },
    { HEX32 "__party__0000000001",          -1,         ZKL_MUTEX, 0 },

    /* only gateways have members and semaphores */

    { "_c_" UUID "-member-0000000007",      7,          ZKL_MEMBER, 1 },
    { "_c_" UUID "-member--2147483648",     2147483647, ZKL_MEMBER, 1 },
    { "_c_" UUID_UPPER "-member-0000000007", 7,         ZKL_MEMBER, 1 },
    { "_c_" UUID "-permit1-0000000007",     7,    zkl_semaphore(1),    1 },
    { "_c_" UUID "-permit9-0000000000",     0,    zkl_semaphore(9),    1 },
    { "_c_" UUID "-permit10-0000000007",    7,    zkl_semaphore(10),   1 },
    { "_c_" UUID "-permit305-0000000007",   7,    zkl_semaphore(305),  1 },
    { "_c_" UUID "-permit1000-2147483647",  2147483647,
                                                  zkl_semaphore(1000), 1 },
    { "_c_" UUID "-permit42--2147483648",   2147483647,
                                                  zkl_semaphore(42),   1 },

    { "_c_" UUID "-permit0-0000000007",     -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-permit-0000000007",      -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-permit01-0000000007",    -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-permit0001-0000000007",  -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-permit00001-0000000007", -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-permit1001-0000000007",  -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-permit9999-0000000007",  -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-permit11000-0000000007", -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-permit4294967297-0000000007",
                                            -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-permit+1-0000000007",    -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-permit1x-0000000007",    -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-permit1---2147483648",   -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-Permit1-0000000007",     -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-permit1-x-0000000007",   -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-x-permit1-0000000007",   -1,         ZKL_MUTEX, 0 },
    { "_c_" UUID "-x-member-0000000007",    -1,         ZKL_MUTEX, 0 },
    { "_c_" HEX32 "-permit1-0000000007",    -1,         ZKL_MUTEX, 0 },
    { "_c_" HEX32 "-member-0000000007",     -1,         ZKL_MUTEX, 0 },
    { "_c_" "00010203-0405-0607-0809-0a0bdeadbeeg" "-member-0000000007",
                                            -1,         ZKL_MUTEX, 0 },
    { "x-member-0000000007",                -1,         ZKL_MUTEX, 0 },
    { "-member-0000000007",                 -1,         ZKL_MUTEX, 0 },
    { "member-0000000007",                  -1,         ZKL_MUTEX, 0 },
    { "-permit1-0000000007",                -1,         ZKL_MUTEX, 0 },
    { "permit1-0000000007",                 -1,         ZKL_MUTEX, 0 },
    { "1-0000000007",                       -1,         ZKL_MUTEX, 0 },
    { "1000-0000000007",                    -1,         ZKL_MUTEX, 0 },
    { "10000-0000000007",                   -1,         ZKL_MUTEX, 0 },

    { NULL, 0, ZKL_MUTEX, 0 }
};


/* every mode, and the limits of permits */

static const zkl_mode_t  modes[] = {
    ZKL_MUTEX,
    ZKL_READ,
    ZKL_WRITE,
    ZKL_MEMBER,
    zkl_semaphore(1),
    zkl_semaphore(9),
    zkl_semaphore(10),
    zkl_semaphore(255),
    zkl_semaphore(256),
    zkl_semaphore(ZKL_PERMITS_MAX)
};

#define NMODES      (sizeof(modes) / sizeof(modes[0]))


static const duration_case_t  durations[] = {
    { "0",                  0 },
    { "10",                 10000 },
    { "1.5",                1500 },
    { "0.001",              1 },
    { "10s",                10000 },
    { "1.5s",               1500 },
    { "1.25s",              1250 },
    { "1500ms",             1500 },
    { "0ms",                0 },
    { "2m",                 120000 },
    { "0.5m",               30000 },
    { "1h",                 3600000 },
    { "1.5h",               5400000 },
    { "1d",                 86400000 },
    { "007s",               7000 },
    { "3650d",              315360000000 },
    { "315360000",          315360000000 },
    { "315360000000ms",     315360000000 },

    { "",                   -1 },
    { "s",                  -1 },
    { ".5",                 -1 },
    { "1.",                 -1 },
    { "1.s",                -1 },
    { "1.0001",             -1 },
    { "1.5ms",              -1 },
    { "1..5",               -1 },
    { "-1",                 -1 },
    { "+1",                 -1 },
    { " 1",                 -1 },
    { "1 s",                -1 },
    { "1s ",                -1 },
    { "1S",                 -1 },
    { "1e3",                -1 },
    { "0x10",               -1 },
    { "1sec",               -1 },
    { "1m30s",              -1 },
    { "3651d",              -1 },
    { "3650.001d",          -1 },
    { "315360000.001",      -1 },
    { "315360000001ms",     -1 },
    { "99999999999999999999999999999999", -1 },

    { NULL, 0 }
};


static void
check(const name_case_t *c, const char *(*read)(const char *, size_t))
{
    const char  *error;

    for ( /* void */ ; c->text != NULL; c++) {
        error = read(c->text, c->len);

        if ((error == NULL) != (c->error == NULL)
            || (error != NULL && strstr(error, c->error) == NULL))
        {
            fail_msg("\"%s\": \"%s\", expected \"%s\"", c->text,
                     error ? error : "taken", c->error ? c->error : "taken");
        }
    }
}


static void
test_names(void **state)
{
    (void) state;

    check(names, zkl_name_check);
}


static void
test_paths(void **state)
{
    (void) state;

    check(paths, zkl_name_path_check);
}


/* Slashes become "%2F", one in a row, and no other character is changed. */

static void
test_slashes(void **state)
{
    char    buf[3 * ZKL_NAME_MAX];
    size_t  i, len, n;

    static const struct {
        const char  *text;
        const char  *name;
        const char  *plain;     /* of a text that is no name; NULL: the same */
    } cases[] = {
        { "",               "",                 NULL },
        { "a",              "a",                NULL },
        { "/",              "%2F",              NULL },
        { "///",            "%2F",              NULL },
        { "a/b",            "a%2Fb",            NULL },
        { "/a//b/",         "a%2Fb%2F",         NULL },
        { "//a///b//",      "a%2Fb%2F",         NULL },
        { "a%2fb/%",        "a%2fb%2F%",        NULL },
        { "../.",           "..%2F.",           NULL },
        { "\xc3\xa4/\xff",  "\xc3\xa4%2F\xff",  NULL },
        { "a%252Fb",        "a%252Fb",          NULL },
        { "100%/x",         "100%%2Fx",         NULL },

        { "%2F",            "%2F",              "%252F" },
        { "%2F/%2F",        "%2F",              "%252F%2F%252F" },
        { "a%2Fb",          "a%2Fb",            "a%252Fb" },
        { "/%2Fa/%2Fb%2F",  "a%2Fb%2F",         "%252Fa%2F%252Fb%252F" },

        { "%sha1-" HASH,    "%sha1-" HASH,      "%25sha1-" HASH },
        { "/a/%sha1-" HASH, "a%2F%sha1-" HASH,  "a%2F%25sha1-" HASH },
        { "%sha1-" HASH "0", "%sha1-" HASH "0", NULL },
        { "%sha2-" HASH,    "%sha2-" HASH,      NULL },
        { "%sha1-" HASH "/", "%sha1-" HASH "%2F", NULL }
    };

    (void) state;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        len = strlen(cases[i].text);
        n = strlen(cases[i].name);

        memset(buf, '#', sizeof(buf));

        assert_int_equal(zkl_name_write(NULL, cases[i].text, len), n);
        assert_int_equal(zkl_name_write(buf, cases[i].text, len), n);
        assert_memory_equal(buf, cases[i].name, n);
        assert_int_equal(buf[n], '#');

        assert_int_equal(zkl_name_write(NULL, cases[i].name, n), n);

        if (cases[i].plain != NULL) {
            n = strlen(cases[i].plain);
        }

        assert_int_equal(zkl_name_text_write(NULL, cases[i].text, len), n);
        assert_int_equal(zkl_name_text_write(buf, cases[i].text, len), n);
        assert_memory_equal(buf, cases[i].plain ? cases[i].plain
                                                : cases[i].name, n);
        assert_int_equal(zkl_name_hash_check(buf, n), 0);
    }

    assert_int_equal(zkl_name_write(buf, "a\0/", 3), 5);
    assert_memory_equal(buf, "a\0%2F", 5);
}


static void
check_hash(const char *name, size_t len, const char *start, size_t n)
{
    char  buf[ZKL_NAME_MAX + 1];

    static const uint8_t  sha1[ZKL_SHA1_LEN] = {
        0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99,
        0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x01, 0x23, 0x45, 0x67
    };

    buf[ZKL_NAME_MAX] = '#';

    assert_int_equal(zkl_name_hash_write(buf, name, len, sha1),
                     n + ZKL_SHA1_TEXT);
    assert_memory_equal(buf, start, n);
    assert_memory_equal(buf + n, "%sha1-" HASH, ZKL_SHA1_TEXT);
    assert_int_equal(buf[ZKL_NAME_MAX], '#');
    assert_int_equal(zkl_name_hash_check(buf, n + ZKL_SHA1_TEXT), 1);
    assert_null(zkl_name_check(buf, n + ZKL_SHA1_TEXT));
    assert_non_null(strstr(zkl_name_refuse(buf, n + ZKL_SHA1_TEXT), "%sha1-"));
}


/* the name of the znode of a name that no znode can have */

static void
test_hashes(void **state)
{
    char  text[300];

    (void) state;

    check_hash(NULL, 0, "", 0);
    check_hash("zookeeper", 9, "zookeeper", 9);
    check_hash("..", 2, "..", 2);
    check_hash("a\xf0\x9f\x94\x92" "b", 6, "a", 1);
    check_hash("\xc3\xa4\xff", 3, "\xc3\xa4", 2);
    check_hash("ab\0c", 4, "ab", 2);

    memset(text, 'x', sizeof(text));

    check_hash(text, sizeof(text), text, 154);

    /* a character that does not fit is left out */

    memcpy(text + 153, "\xc3\xa4", 2);

    check_hash(text, sizeof(text), text, 153);

    assert_int_equal(zkl_name_hash_check(NULL, 0), 0);
    assert_int_equal(zkl_name_hash_check("%sha1-" HASH, ZKL_SHA1_TEXT - 1), 0);
    assert_int_equal(zkl_name_hash_check("%sha1-" HASH + 1,
                                         ZKL_SHA1_TEXT - 1), 0);

    memcpy(text, "%sha1-" HASH, ZKL_SHA1_TEXT);
    assert_int_equal(zkl_name_hash_check(text, ZKL_SHA1_TEXT), 1);
    text[20] = 'F';
    assert_int_equal(zkl_name_hash_check(text, ZKL_SHA1_TEXT), 0);
    text[20] = '\0';
    assert_int_equal(zkl_name_hash_check(text, ZKL_SHA1_TEXT), 0);

    assert_non_null(strstr(zkl_name_refuse(NULL, 0), "empty"));
    assert_non_null(strstr(zkl_name_refuse(".", 1), "\"..\""));
    assert_non_null(strstr(zkl_name_refuse("..", 2), "\"..\""));
    assert_null(zkl_name_refuse("...", 3));
    assert_null(zkl_name_refuse("zookeeper", 9));
}


static void
test_lengths(void **state)
{
    char  text[ZKL_PATH_MAX + 1];

    (void) state;

    memset(text, 'a', sizeof(text));

    assert_null(zkl_name_check(text, ZKL_NAME_MAX));
    assert_non_null(strstr(zkl_name_check(text, ZKL_NAME_MAX + 1),
                           "longer than 200"));
    assert_non_null(zkl_name_check(NULL, 0));

    text[0] = '/';

    assert_null(zkl_name_path_check(text, ZKL_PATH_MAX));
    assert_non_null(strstr(zkl_name_path_check(text, ZKL_PATH_MAX + 1),
                           "longer than 463"));
    assert_non_null(zkl_name_path_check(NULL, 0));
}


static void
test_modes(void **state)
{
    size_t      i;
    uint32_t    base, permits;
    zkl_mode_t  mode;

    (void) state;

    for (i = 0; i < NMODES; i++) {
        assert_int_equal(zkl_name_mode_check(modes[i]), 1);
    }

    mode = zkl_semaphore(ZKL_PERMITS_MAX);

    assert_int_equal(zkl_mode_base(mode), ZKL_SEMAPHORE);
    assert_int_equal(zkl_mode_permits(mode), ZKL_PERMITS_MAX);
    assert_int_equal(zkl_mode_base(ZKL_MEMBER), ZKL_MEMBER);
    assert_int_equal(zkl_mode_permits(ZKL_MEMBER), 0);

    assert_int_equal(zkl_name_mode_check(zkl_semaphore(0)), 0);
    assert_int_equal(zkl_name_mode_check(zkl_semaphore(1001)), 0);
    assert_int_equal(zkl_name_mode_check(0xffffff04), 0);

    for (base = 0; base <= 0xff; base++) {
        for (permits = 0; permits <= 2; permits++) {

            mode = base | permits << 8;

            assert_int_equal(zkl_name_mode_check(mode),
                             ((base <= ZKL_MEMBER || base == ZKL_NODE)
                              && permits == 0)
                             || (base == ZKL_SEMAPHORE && permits != 0));
        }
    }
}


static void
test_claims_are_written(void **state)
{
    char    buf[ZKL_CLAIM_MAX + 1];
    size_t  len;

    (void) state;

    memset(buf, '!', sizeof(buf));
    len = zkl_name_prefix_write(buf, &id, ZKL_MUTEX);
    assert_int_equal(len, strlen("_c_" UUID "-lock-"));
    assert_memory_equal(buf, "_c_" UUID "-lock-!", len + 1);

    memset(buf, '!', sizeof(buf));
    len = zkl_name_prefix_write(buf, &id, ZKL_READ);
    assert_int_equal(len, strlen("_c_" UUID "-__READ__"));
    assert_memory_equal(buf, "_c_" UUID "-__READ__!", len + 1);

    memset(buf, '!', sizeof(buf));
    len = zkl_name_prefix_write(buf, &id, ZKL_MEMBER);
    assert_int_equal(len, strlen("_c_" UUID "-member-"));
    assert_memory_equal(buf, "_c_" UUID "-member-!", len + 1);

    /* a claim that is the lock's own znode has no name */

    memset(buf, '!', sizeof(buf));
    assert_int_equal(zkl_name_prefix_write(buf, &id, ZKL_NODE), 0);
    assert_int_equal(zkl_name_claim_write(buf, &id, ZKL_NODE, 0), 0);
    assert_int_equal(buf[0], '!');

    memset(buf, '!', sizeof(buf));
    len = zkl_name_prefix_write(buf, &id, zkl_semaphore(7));
    assert_int_equal(len, strlen("_c_" UUID "-permit7-"));
    assert_memory_equal(buf, "_c_" UUID "-permit7-!", len + 1);

    memset(buf, '!', sizeof(buf));
    len = zkl_name_prefix_write(buf, &id, zkl_semaphore(ZKL_PERMITS_MAX));
    assert_int_equal(len, ZKL_PREFIX_MAX);
    assert_memory_equal(buf, "_c_" UUID "-permit1000-!", len + 1);

    memset(buf, '!', sizeof(buf));
    len = zkl_name_claim_write(buf, &id, zkl_semaphore(ZKL_PERMITS_MAX),
                               ZKL_SEQ_MAX);
    assert_int_equal(len, ZKL_CLAIM_MAX);
    assert_memory_equal(buf, "_c_" UUID "-permit1000-2147483647!", len + 1);

    memset(buf, '!', sizeof(buf));
    len = zkl_name_claim_write(buf, &id, ZKL_WRITE, ZKL_SEQ_MAX);
    assert_int_equal(len, strlen("_c_" UUID "-__WRIT__2147483647"));
    assert_memory_equal(buf, "_c_" UUID "-__WRIT__2147483647!", len + 1);

    len = zkl_name_claim_write(buf, &id, ZKL_MUTEX, 42);
    assert_memory_equal(buf, "_c_" UUID "-lock-0000000042", len);
}


static void
test_children(void **state)
{
    int                  rc;
    zkl_child_t          child;
    const child_case_t  *c;

    (void) state;

    for (c = children; c->name != NULL; c++) {
        memset(&child, 0xff, sizeof(child));

        rc = zkl_name_child_read(&child, c->name, strlen(c->name));

        if (rc != (c->seq == -1 ? -1 : 0)) {
            fail_msg("%s: %d", c->name, rc);
        }

        if (rc == 0 && (child.seq != c->seq || child.mode != c->mode
                        || child.has_id != c->has_id))
        {
            fail_msg("%s: %lld %d %d", c->name, (long long) child.seq,
                     child.mode, child.has_id);
        }

        if (rc == 0 && child.has_id) {
            assert_memory_equal(child.id.random, id.random, ZKL_RANDOM_LEN);
            assert_int_equal(child.id.record, id.record);
        }
    }

    assert_int_equal(zkl_name_child_read(&child, NULL, 0), -1);
}


static void
test_claims_are_read_back(void **state)
{
    char         buf[ZKL_CLAIM_MAX];
    size_t       i, len;
    int64_t      seq;
    zkl_child_t  child;

    (void) state;

    for  (i = 0; i < NMODES; i++) {
        for  (seq = 0; seq <= ZKL_SEQ_MAX; seq = seq * 3 + 1) {
            len = zkl_name_claim_write(buf, &id, modes[i], seq);

            assert_int_equal(zkl_name_child_read(&child, buf, len), 0);
            assert_int_equal(child.mode, modes[i]);
            assert_int_equal(child.seq, seq);
            assert_int_equal(child.has_id, 1);
            assert_memory_equal(child.id.random, id.random, ZKL_RANDOM_LEN);
            assert_int_equal(child.id.record, id.record);
        }
    }
}


static void
make_token(char *buf, zkl_token_t *token, zkl_mode_t mode, int64_t seq,
    const char *path)
{
    memset(token, 0, sizeof(zkl_token_t));

    token->id = id;
    token->mode = mode;
    token->seq = seq;

    zkl_name_token_write(buf, token, path, strlen(path));
}


static void
test_tokens_are_read_back(void **state)
{
    char         buf[ZKL_TOKEN_LEN + 1];
    size_t       i;
    int64_t      seq;
    zkl_token_t  in, out;

    (void) state;

    for  (i = 0; i < NMODES; i++) {
        for  (seq = 0; seq <= ZKL_SEQ_MAX; seq = seq * 2 + 1) {
            buf[ZKL_TOKEN_LEN] = '!';
            make_token(buf, &in, modes[i], seq, "/locks/a");

            assert_int_equal(buf[ZKL_TOKEN_LEN], '!');
            assert_int_equal(strspn(buf, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                         "abcdefghijklmnopqrstuvwxyz"
                                         "0123456789-_"),
                             ZKL_TOKEN_LEN);

            assert_int_equal(zkl_name_token_read(&out, buf, ZKL_TOKEN_LEN,
                                                 text_of("/locks/a")),
                             0);
            assert_memory_equal(out.id.random, in.id.random, ZKL_RANDOM_LEN);
            assert_int_equal(out.id.record, in.id.record);
            assert_int_equal(out.seq, seq);
            assert_int_equal(out.mode, modes[i]);
        }
    }
}


/* the text of a token must never change, because clients keep tokens */

static void
test_token_is_stable(void **state)
{
    char         buf[ZKL_TOKEN_LEN + 1];
    zkl_token_t  token;

    (void) state;

    memset(buf, 0, sizeof(buf));
    make_token(buf, &token, ZKL_READ, 42, "/locks/a");

    assert_string_equal(buf, "IAAAAQIDBAUGBwgJCgverb7vAAAAKhBb");

    make_token(buf, &token, zkl_semaphore(1000), ZKL_SEQ_MAX, "/locks/a");

    assert_string_equal(buf, "g-gAAQIDBAUGBwgJCgverb7vf____0SH");
}


static void
test_tokens_of_others(void **state)
{
    char         buf[ZKL_TOKEN_LEN + 2], c;
    size_t       i, len;
    zkl_token_t  token;

    (void) state;

    memset(buf, 'A', sizeof(buf));
    make_token(buf, &token, ZKL_MUTEX, 1, "/locks/a");

    assert_int_equal(zkl_name_token_read(&token, buf, ZKL_TOKEN_LEN,
                                         text_of("/locks/b")), -1);
    assert_int_equal(zkl_name_token_read(&token, buf, ZKL_TOKEN_LEN,
                                         text_of("/locks/")), -1);
    assert_int_equal(zkl_name_token_read(&token, buf, ZKL_TOKEN_LEN, NULL, 0),
                                         -1);

    for (len = 0; len < sizeof(buf); len++) {
        assert_int_equal(zkl_name_token_read(&token, buf, len,
                                             text_of("/locks/a")),
                         len == ZKL_TOKEN_LEN ? 0 : -1);
    }

    for  (i = 0; i < ZKL_TOKEN_LEN; i++) {
        c = buf[i];

        buf[i] = (c == 'x') ? 'y' : 'x';
        assert_int_equal(zkl_name_token_read(&token, buf, ZKL_TOKEN_LEN,
                                             text_of("/locks/a")), -1);

        for (len = 0; len < 5; len++) {
            buf[i] = "+/=\0 "[len];
            assert_int_equal(zkl_name_token_read(&token, buf, ZKL_TOKEN_LEN,
                                                 text_of("/locks/a")), -1);
        }

        buf[i] = c;
    }
}


/* the letters of plain base64 are no second spelling */

static void
test_token_has_one_spelling(void **state)
{
    char         buf[ZKL_TOKEN_LEN], *p;
    unsigned     dashes, lines;
    int64_t      seq;
    zkl_token_t  token;

    (void) state;

    dashes = 0;
    lines = 0;

    for (seq = 0; seq < 100; seq++) {
        make_token(buf, &token, ZKL_MUTEX, seq, "/a");

        p = memchr(buf, '-', sizeof(buf));

        if (p != NULL) {
            *p = '+';
            dashes++;

            assert_int_equal(zkl_name_token_read(&token, buf, sizeof(buf),
                                                 text_of("/a")), -1);
            *p = '-';
        }

        p = memchr(buf, '_', sizeof(buf));

        if (p != NULL) {
            *p = '/';
            lines++;

            assert_int_equal(zkl_name_token_read(&token, buf, sizeof(buf),
                                                 text_of("/a")), -1);
        }
    }

    assert_true(dashes != 0 && lines != 0);
}


/* an impossible mode or seq is refused even if the check is right */

static void
test_tokens_that_cannot_be(void **state)
{
    char         buf[ZKL_TOKEN_LEN];
    size_t       i;
    zkl_token_t  token;

    static const zkl_mode_t  wrong[] = {
        ZKL_SEMAPHORE,
        zkl_semaphore(ZKL_PERMITS_MAX + 1),
        ZKL_NODE + 1,
        7,
        ZKL_MUTEX | 1 << 8,
        ZKL_MEMBER | 1 << 8,
        ZKL_NODE | 1 << 8
    };

    (void) state;

    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        make_token(buf, &token, wrong[i], 1, "/a");
        assert_int_equal(zkl_name_token_read(&token, buf, ZKL_TOKEN_LEN,
                                             text_of("/a")), -1);
    }

    make_token(buf, &token, ZKL_WRITE, (int64_t) ZKL_SEQ_MAX + 1, "/a");
    assert_int_equal(zkl_name_token_read(&token, buf, ZKL_TOKEN_LEN,
                                         text_of("/a")), -1);
}


/* the vectors of RFC 4648, 10, without padding, and all bits */

static void
test_base64(void **state)
{
    char            text[8];
    size_t          i, len, n;
    uint8_t         bytes[8];
    const char     *expected;

    static const char  *rfc[] = {
        "", "Zg", "Zm8", "Zm9v", "Zm9vYg", "Zm9vYmE", "Zm9vYmFy"
    };

    (void) state;

    for (i = 0; i < sizeof(rfc) / sizeof(rfc[0]); i++) {
        expected = rfc[i];
        len = strlen(expected);

        assert_int_equal(ZKL_BASE64_LEN(i), len);
        assert_int_equal(ZKL_BASE64_BYTES(len), i);

        if (len != sizeof(text)) {
            text[len] = '!';
        }

        assert_int_equal(zkl_text_base64_write(text, "foobar", i), len);
        assert_memory_equal(text, expected, len);
        assert_true(len == sizeof(text) || text[len] == '!');

        memset(bytes, '!', sizeof(bytes));
        assert_int_equal(zkl_text_base64_read(bytes, &n, expected, len), 0);
        assert_int_equal(n, i);
        assert_memory_equal(bytes, "foobar", i);
        assert_int_equal(bytes[i], '!');
    }

    assert_int_equal(zkl_text_base64_write(text, "\xfb\xff\xfe\0", 4), 6);
    assert_memory_equal(text, "-__-AA", 6);
    assert_int_equal(zkl_text_base64_write(text, NULL, 0), 0);
    assert_int_equal(zkl_text_base64_read(bytes, &n, NULL, 0), 0);
    assert_int_equal(n, 0);
}


static void
test_base64_has_one_spelling(void **state)
{
    char      text[3], again[3], room[8];
    size_t    len, n;
    uint8_t   bytes[3];
    unsigned  i, expected, taken;

    static const char  *wrong[] = {
        "Z", "A", "Zm9vA", "Zm9vY", "Zg=", "Zg==", "Zh", "Zm9", "Z+", "Z/",
        "Zm8\n", " Zg", "Zm9vYh"
    };

    (void) state;

    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (zkl_text_base64_read(room, &n, wrong[i], strlen(wrong[i])) == 0) {
            fail_msg("%s: taken", wrong[i]);
        }
    }

    assert_int_equal(zkl_text_base64_read(bytes, &n, text_of("Z\0")), -1);

    /* of all texts of two and three characters, only the written texts */

    for (len = 2; len <= 3; len++) {
        taken = 0;

        for (i = 0; i < (1U << (8 * len)); i++) {
            text[0] = (char) i;
            text[1] = (char) (i >> 8);
            text[2] = (char) (i >> 16);

            if (zkl_text_base64_read(bytes, &n, text, len) == 0) {
                taken++;

                assert_int_equal(n, len - 1);
                assert_int_equal(zkl_text_base64_write(again, bytes, n), len);
                assert_memory_equal(again, text, len);
            }
        }

        expected = 1U << (8 * (len - 1));
        assert_int_equal(taken, expected);
    }
}


static void
test_durations(void **state)
{
    int64_t                 ms;
    const duration_case_t  *c;

    (void) state;

    for (c = durations; c->text != NULL; c++) {
        ms = zkl_text_duration_read(c->text, strlen(c->text));

        if (ms != c->ms) {
            fail_msg("\"%s\": %lld", c->text, (long long) ms);
        }
    }

    assert_int_equal(zkl_text_duration_read(NULL, 0), -1);
    assert_int_equal(zkl_text_duration_read(text_of("1\0")), -1);
    assert_int_equal(zkl_text_duration_read("10s", 2), 10000);
}


/* each sequence of up to four bytes of a sample against RFC 3629's table */

static int
utf8_model(const unsigned char *p, size_t len)
{
    size_t  i, n;

    for (i = 0; i < len; i += n) {

        if (p[i] < 0x80) {
            n = 1;
        } else if (p[i] >= 0xc2 && p[i] <= 0xdf) {
            n = 2;
        } else if (p[i] >= 0xe0 && p[i] <= 0xef) {
            n = 3;
        } else if (p[i] >= 0xf0 && p[i] <= 0xf4) {
            n = 4;
        } else {
            return 0;
        }

        if (n > len - i
            || (n > 1 && (p[i + 1] < 0x80 || p[i + 1] > 0xbf))
            || (n > 2 && (p[i + 2] < 0x80 || p[i + 2] > 0xbf))
            || (n > 3 && (p[i + 3] < 0x80 || p[i + 3] > 0xbf))
            || (p[i] == 0xe0 && p[i + 1] < 0xa0)
            || (p[i] == 0xed && p[i + 1] > 0x9f)
            || (p[i] == 0xf0 && p[i + 1] < 0x90)
            || (p[i] == 0xf4 && p[i + 1] > 0x8f))
        {
            return 0;
        }
    }

    return 1;
}


static void
test_utf8(void **state)
{
    size_t                len, n, rest;
    unsigned char         text[4];

    static const unsigned char  sample[] = {
        0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1,
        0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf4,
        0xf5, 0xf8, 0xff
    };

    (void) state;

    for (n = 0; n < 25 * 25 * 25 * 25; n++) {
        rest = n;

        for (len = 0; len < 4; len++) {
            text[len] = sample[rest % 25];
            rest /= 25;
        }

        for (len = 0; len <= 4; len++) {
            if (zkl_text_utf8_check((char *) text, len)
                != utf8_model(text, len))
            {
                fail_msg("%02x %02x %02x %02x, %zu bytes", text[0], text[1],
                         text[2], text[3], len);
            }
        }
    }

    assert_int_equal(zkl_text_utf8_check(NULL, 0), 1);
}


static void
test_secrets_are_equal_or_not(void **state)
{
    size_t         i, bit;
    unsigned char  one[32], other[32];

    (void) state;

    for (i = 0; i < sizeof(one); i++) {
        one[i] = (unsigned char) (i * 37);
    }

    memcpy(other, one, sizeof(one));

    assert_int_equal(zkl_name_secret_equal(one, other, sizeof(one)), 1);
    assert_int_equal(zkl_name_secret_equal(one, one, sizeof(one)), 1);
    assert_int_equal(zkl_name_secret_equal(one, other, 0), 1);

    for (i = 0; i < sizeof(one); i++) {
        for (bit = 0; bit < 8; bit++) {
            other[i] = (unsigned char) (one[i] ^ (1 << bit));

            assert_int_equal(zkl_name_secret_equal(one, other, sizeof(one)), 0);
            assert_int_equal(zkl_name_secret_equal(other, one, i + 1), 0);
            assert_int_equal(zkl_name_secret_equal(one, other, i), 1);
        }

        other[i] = one[i];
    }
}


static void
test_paths_in_logs(void **state)
{
    size_t  i;

    static const struct {
        const char  *path;
        size_t       hidden;    /* bytes at the end; 0: none */
    } cases[] = {
        { "/locks/x/_c_" UUID "-lock-0000000001",   52 },
        { "/locks/x/_c_" UUID "-lock-",             42 },
        { "/locks/x/_c_" UUID_UPPER "-member-",     44 },
        { "/locks/x/_c_" UUID,                      36 },
        { "_c_" UUID "-__READ__0000000001",         55 },
        { "/locks/x",                               0 },
        { "/locks/_c_x",                            0 },
        { "/locks/_c_0001",                         0 },
        { "/_c_" UUID "/x",                         0 },
        { "/",                                      0 },
        { "",                                       0 }
    };

    (void) state;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(zkl_name_path_shown(cases[i].path,
                                             strlen(cases[i].path)),
                         strlen(cases[i].path) - cases[i].hidden);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_slashes),
        cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_claims_are_written),
        cmocka_unit_test(test_children),
        cmocka_unit_test(test_claims_are_read_back),
        cmocka_unit_test(test_tokens_are_read_back),
        cmocka_unit_test(test_token_is_stable),
        cmocka_unit_test(test_tokens_of_others),
        cmocka_unit_test(test_token_has_one_spelling),
        cmocka_unit_test(test_tokens_that_cannot_be),
        cmocka_unit_test(test_secrets_are_equal_or_not),
        cmocka_unit_test(test_paths_in_logs),
        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_base64_has_one_spelling),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_utf8),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
