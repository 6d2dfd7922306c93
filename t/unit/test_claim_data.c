
/*
 * Claim data, written and read, and the data that other clients write instead.
 */


#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/claim_data.h"
#include "base/name.h"


#define text_of(s)  (s), sizeof(s) - 1

#define OPEN_16     "[[[[[[[[[[[[[[[["
#define SHUT_16     "]]]]]]]]]]]]]]]]"


/* a text and the owner that is read from the text */

typedef struct {
    const char  *text;
    size_t       len;
    const char  *owner;
} foreign_t;


#define NEW_CDATA   "me\n{\"index\":\"07\",\"ttl\":1,\"data\":7,"

#define A10         "aaaaaaaaaa"

/* texts that are not a gateway's claim data */

static const foreign_t  foreign_data[] = {
    { text_of(""),                          "" },
    { text_of("10.0.0.5"),                  "10.0.0.5" },
    { text_of("worker 7\nmore"),            "worker 7" },
    { text_of("\n"),                        "" },
    { text_of("\n\n{\"index\":\"00\"}x"),   "" },
    { text_of("__REVOKE__\n"),              "__REVOKE__" },
    { text_of("__REVOKE__ "),               "__REVOKE__ " },
    { text_of("__REVOKE_"),                 "__REVOKE_" },
    { text_of("__revoke__"),                "__revoke__" },
    { text_of("a\r\nb"),                    "" },
    { text_of("\0\0\0\5"),                  "" },
    { text_of("\xff\xfe"),                  "" },
    { text_of("\xc2\x80"),                  "" },
    { text_of("\xc3\xa4"),                  "\xc3\xa4" },
    { text_of("me\n{\"index\":\"00\""),     "me" },
    { text_of("me\n{\"index\":\"0\"}"),     "me" },
    { text_of("me\n{\"index\":\"000\"}"),   "me" },
    { text_of("me\n{\"index\":\"0g\"}"),    "me" },
    { text_of("me\n{\"index\":0}"),         "me" },
    { text_of("me\n{\"index\":{}}"),        "me" },
    { text_of("me\n{\"ttl\":1}"),           "me" },
    { text_of("me\n{\"ttl\":7,\"data\":{\"a\":1}}"), "me" },
    { text_of("me\n{}"),                    "me" },
    { text_of("me\n[]"),                    "me" },
    { text_of("me\n00"),                    "me" },
    { text_of("me\n{\"index\":\"00\",\"index\":\"00\"}"),   "me" },
    { text_of("me\n{\"index\":\"00\",\"ttl\":-1}"),         "me" },
    { text_of("me\n{\"index\":\"00\",\"ttl\":1.5}"),        "me" },
    { text_of("me\n{\"index\":\"00\",\"ttl\":\"1\"}"),      "me" },
    { text_of("me\n{\"index\":\"00\",\"ttl\":99999999999999999999}"),
                                            "me" },
    { text_of("me\n{\"index\":\"00\"}{}"),  "me" },
    { text_of("me\n{\"index\":\"00\",\"data\":[" OPEN_16 SHUT_16 "]}"),
                                            "me" },

    { text_of(NEW_CDATA "\"holds\":\"2\"}"),           "me" },
    { text_of(NEW_CDATA "\"holds\":-2}"),              "me" },
    { text_of(NEW_CDATA "\"holds\":2.0}"),             "me" },
    { text_of(NEW_CDATA "\"holds\":4294967296}"),      "me" },
    { text_of(NEW_CDATA "\"holds\":[2]}"),             "me" },
    { text_of(NEW_CDATA "\"holds\":2,\"holds\":2}"),   "me" },
    { text_of(NEW_CDATA "\"renewals\":null}"),         "me" },
    { text_of(NEW_CDATA "\"renewals\":true}"),         "me" },
    { text_of(NEW_CDATA "\"renewals\":4294967296}"),   "me" },
    { text_of(NEW_CDATA "\"renewals\":1e1}"),          "me" },
    { text_of(NEW_CDATA "\"czxid\":\"42\"}"),          "me" },
    { text_of(NEW_CDATA "\"czxid\":-1}"),              "me" },
    { text_of(NEW_CDATA "\"czxid\":36028797018963969}"), "me" },
    { text_of(NEW_CDATA "\"gate\":7}"),                "me" },
    { text_of(NEW_CDATA "\"gate\":null}"),             "me" },
    { text_of(NEW_CDATA "\"gate\":\"\"}"),             "me" },
    { text_of(NEW_CDATA "\"gate\":\"" A10 "aaaaa\"}"), "me" },
    { text_of(NEW_CDATA "\"gate\":\"" A10 "aaaaaaa\"}"), "me" },
    { text_of(NEW_CDATA "\"gate\":\"" A10 "aaaaag\"}"), "me" },
    { text_of(NEW_CDATA "\"gate\":\"" A10 "aaaaa-\"}"), "me" },
    { text_of(NEW_CDATA "\"gate\":\"" A10 "aaaaaa\","
              "\"gate\":\"" A10 "aaaaaa\"}"),          "me" },
    { text_of(NEW_CDATA "\"params\":12345678}"),       "me" },
    { text_of(NEW_CDATA "\"params\":\"1234567\"}"),    "me" },
    { text_of(NEW_CDATA "\"params\":\"123456789\"}"),  "me" },
    { text_of(NEW_CDATA "\"params\":\"1234567g\"}"),   "me" },
    { text_of(NEW_CDATA "\"params\":\"\"}"),           "me" },
    { text_of(NEW_CDATA "\"async\":1}"),               "me" },
    { text_of(NEW_CDATA "\"async\":\"true\"}"),        "me" },
    { text_of(NEW_CDATA "\"async\":null}"),            "me" },
    { text_of(NEW_CDATA "\"revoke\":1}"),              "me" },
    { text_of(NEW_CDATA "\"revoke\":{}}"),             "me" },
    { text_of(NEW_CDATA "\"revoke\":\"true\"}"),       "me" },
    { text_of(NEW_CDATA "\"want\":true}"),             "me" },
    { text_of(NEW_CDATA "\"want\":7}"),                "me" },
    { text_of(NEW_CDATA "\"want\":\"\"}"),             "me" },
    { text_of(NEW_CDATA "\"want\":\"A\"}"),            "me" },
    { text_of(NEW_CDATA "\"want\":\"a b\"}"),          "me" },
    { text_of(NEW_CDATA "\"want\":\"" A10 A10 A10 "aa\"}"), "me" },
    { text_of(NEW_CDATA "\"name\":7}"),                "me" },
    { text_of(NEW_CDATA "\"name\":\"\"}"),             "me" },
    { text_of(NEW_CDATA "\"name\":\"a\\n\"}"),         "me" },
    { text_of(NEW_CDATA "\"from\":7}"),                "me" },
    { text_of(NEW_CDATA "\"from\":\"\"}"),             "me" },
    { text_of(NEW_CDATA "\"from\":\"a\\n\"}"),         "me" },
    { text_of(NEW_CDATA "\"from\":\"" A10 A10 A10 A10 A10 A10 "aaaaa\"}"),
                                                       "me" },
    { text_of(NEW_CDATA "\"id\":7}"),                  "me" },
    { text_of(NEW_CDATA "\"id\":\"\"}"),               "me" },
    { text_of(NEW_CDATA "\"id\":\"" A10 A10 A10 "a\"}"), "me" },
    { text_of(NEW_CDATA "\"id\":\"" A10 A10 A10 "aaa\"}"), "me" },
    { text_of(NEW_CDATA "\"id\":\"" A10 A10 A10 "ag\"}"), "me" },
    { text_of(NEW_CDATA "\"index\":7}"),               "me" },
    { text_of("me\n{\"index\":\"07\",\"revoke\":true"), "me" },
    { text_of("me\n{\"holds\":2,\"renewals\":3,\"params\":\"01234567\","
              "\"async\":true,\"revoke\":true,\"want\":\"a\","
              "\"from\":\"b\"}"),                      "me" },
    { text_of("me\n{\"index\":\"07\",\"holds\":2,\"renewals\":3,"
              "\"params\":\"01234567\",\"async\":true,\"revoke\":true,"
              "\"want\":\"a\",\"from\":\"b\",\"ttl\":\"\"}"), "me" },
    { NULL, 0, NULL }
};


static void
test_is_written(void **state)
{
    char              buf[ZKL_CLAIM_DATA_MAX];
    size_t            at, len;
    zkl_claim_data_t  cdata;

    (void) state;

    memset(&cdata, 0, sizeof(zkl_claim_data_t));

    strcpy(cdata.owner, "me");
    cdata.owner_len = 2;
    cdata.index = 0x0f;
    cdata.ttl = 60000;
    strcpy(cdata.data, "{\"any\":\"JSON\"}");
    cdata.data_len = strlen(cdata.data);

    len = zkl_claim_data_write(buf, &cdata, &at);

    assert_int_equal(len, sizeof("me\n{\"index\":\"0f\",\"ttl\":60000,"
                                 "\"data\":{\"any\":\"JSON\"}}") - 1);
    assert_memory_equal(buf, "me\n{\"index\":\"0f\",\"ttl\":60000,"
                             "\"data\":{\"any\":\"JSON\"}}", len);
    assert_memory_equal(buf + at, "0f", 2);

    cdata.owner_len = 0;
    cdata.data_len = 0;
    cdata.ttl = 0;
    cdata.index = -1;

    len = zkl_claim_data_write(buf, &cdata, &at);

    assert_int_equal(len, sizeof("\n{\"index\":\"00\",\"ttl\":0}") - 1);
    assert_memory_equal(buf, "\n{\"index\":\"00\",\"ttl\":0}", len);
    assert_memory_equal(buf + at, "00", 2);
}


static void
test_says_more(void **state)
{
    char              buf[ZKL_CLAIM_DATA_MAX];
    size_t            at, len;
    zkl_claim_data_t  in, out;

    static const char  expected[] =
        "me\n{\"index\":\"0f\",\"ttl\":60000,\"holds\":2,\"renewals\":1,"
        "\"mended\":3,\"czxid\":42,\"gate\":\"0123456789abcdef\","
        "\"params\":\"000c0fee\",\"async\":true,\"held\":true,\"revoke\":true,"
        "\"want\":\"shared-2\",\"from\":\"a\\\"b\\\\c/\xc3\xa4\","
        "\"name\":\"d\\\"\xc3\xa4\",\"data\":7}";

    (void) state;

    memset(&in, 0, sizeof(zkl_claim_data_t));

    strcpy(in.owner, "me");
    in.owner_len = 2;
    in.index = 0x0f;
    in.ttl = 60000;
    in.holds = 2;
    in.renewals = 1;
    in.mended = 3;
    in.czxid = 42;
    strcpy(in.gate, "0123456789abcdef");
    in.gate_len = ZKL_GATE_LEN;
    in.params = 0x000c0fee;
    in.has_params = 1;
    in.async = 1;
    in.held = 1;
    in.revoke = 1;
    strcpy(in.want, "shared-2");
    in.want_len = strlen(in.want);
    strcpy(in.from, "a\"b\\c/\xc3\xa4");
    in.from_len = strlen(in.from);
    strcpy(in.name, "d\"\xc3\xa4");
    in.name_len = strlen(in.name);
    strcpy(in.data, "7");
    in.data_len = 1;

    len = zkl_claim_data_write(buf, &in, &at);

    assert_int_equal(len, sizeof(expected) - 1);
    assert_memory_equal(buf, expected, len);
    assert_memory_equal(buf + at, "0f\",\"ttl\"", 9);

    memset(&out, 0xff, sizeof(zkl_claim_data_t));
    zkl_claim_data_read(&out, buf, len);

    assert_int_equal(out.index, 0x0f);
    assert_int_equal(out.ttl, 60000);
    assert_int_equal(out.holds, 2);
    assert_int_equal(out.renewals, 1);
    assert_int_equal(out.mended, 3);
    assert_int_equal(out.czxid, 42);
    assert_int_equal(out.gate_len, ZKL_GATE_LEN);
    assert_memory_equal(out.gate, in.gate, ZKL_GATE_LEN);
    assert_int_equal(out.params, 0x000c0fee);
    assert_int_equal(out.has_params, 1);
    assert_int_equal(out.async, 1);
    assert_int_equal(out.held, 1);
    assert_int_equal(out.revoke, 1);
    assert_string_equal(out.want, in.want);
    assert_int_equal(out.want_len, in.want_len);
    assert_string_equal(out.from, in.from);
    assert_int_equal(out.from_len, in.from_len);
    assert_string_equal(out.name, in.name);
    assert_int_equal(out.name_len, in.name_len);
    assert_string_equal(out.data, "7");

    /* params 0 is a number, too */

    in.params = 0;
    len = zkl_claim_data_write(buf, &in, &at);
    zkl_claim_data_read(&out, buf, len);

    assert_int_equal(out.params, 0);
    assert_int_equal(out.has_params, 1);
}


/* the claim data of a znode whose name has no claim id */

static void
test_with_an_id(void **state)
{
    char              buf[ZKL_CLAIM_DATA_MAX];
    size_t            at, i, len;
    zkl_claim_data_t  in, out;

    static const char  expected[] =
        "me\n{\"index\":\"00\",\"id\":\"00010203040506070809fafb89abcdef\","
        "\"ttl\":1}";

    (void) state;

    memset(&in, 0, sizeof(zkl_claim_data_t));

    strcpy(in.owner, "me");
    in.owner_len = 2;
    in.ttl = 1;
    in.has_id = 1;

    for  (i = 0; i < ZKL_RANDOM_LEN; i++) {
        in.id.random[i] = (uint8_t) ((i < 10) ? i : 0xf0 + i);
    }

    in.id.record = 0x89abcdef;

    len = zkl_claim_data_write(buf, &in, &at);

    assert_int_equal(len, sizeof(expected) - 1);
    assert_memory_equal(buf, expected, len);

    zkl_claim_data_read(&out, buf, len);

    assert_int_equal(out.index, 0);
    assert_int_equal(out.has_id, 1);
    assert_memory_equal(out.id.random, in.id.random, ZKL_RANDOM_LEN);
    assert_int_equal(out.id.record, in.id.record);

    /* the id replaces the digits in claim data that were written */

    memset(in.id.random, 0x5a, ZKL_RANDOM_LEN);
    in.id.record = 7;

    zkl_claim_data_id(buf + at + ZKL_CLAIM_DATA_ID_AT, &in.id);
    zkl_claim_data_read(&out, buf, len);

    assert_int_equal(out.has_id, 1);
    assert_memory_equal(out.id.random, in.id.random, ZKL_RANDOM_LEN);
    assert_int_equal(out.id.record, 7);
}


/* a member that is empty, or that could not be read again, is left out */

static void
test_says_no_more(void **state)
{
    char              buf[ZKL_CLAIM_DATA_MAX];
    size_t            at, i, len;
    zkl_claim_data_t  in, out;

    static const char  expected[] = "\n{\"index\":\"00\",\"ttl\":0}";

    (void) state;

    for (i = 0; i < 8; i++) {
        memset(&in, 0, sizeof(zkl_claim_data_t));

        in.holds = 1;
        in.params = 7;

        switch (i) {

        case 0:
            in.want_len = 1;
            in.want[0] = 'W';
            break;

        case 1:
            in.want_len = 1;
            in.want[0] = '"';
            break;

        case 2:
            in.from_len = 1;
            in.from[0] = '\n';
            break;

        case 3:
            in.from_len = 1;
            in.from[0] = '\xff';
            break;

        case 4:
            in.gate_len = ZKL_GATE_LEN;
            memset(in.gate, 'a', ZKL_GATE_LEN);
            in.gate[ZKL_GATE_LEN - 1] = 'g';
            break;

        case 5:
            in.gate_len = ZKL_GATE_LEN - 1;
            memset(in.gate, 'a', ZKL_GATE_LEN);
            break;

        case 6:
            in.gate_len = ZKL_GATE_LEN;
            memset(in.gate, 'a', ZKL_GATE_LEN);
            in.gate[0] = '"';
            break;

        default:
            in.want_len = ZKL_WANT_MAX + 1;
            in.from_len = ZKL_FROM_MAX + 1;
            memset(in.want, 'a', ZKL_WANT_MAX + 1);
            memset(in.from, 'a', ZKL_FROM_MAX + 1);
            break;
        }

        len = zkl_claim_data_write(buf, &in, &at);

        assert_int_equal(len, sizeof(expected) - 1);
        assert_memory_equal(buf, expected, len);
    }

    zkl_claim_data_read(&out, text_of("me\n{\"index\":\"07\",\"async\":false,"
                                      "\"revoke\":false,\"holds\":0}"));

    assert_int_equal(out.index, 7);
    assert_int_equal(out.async, 0);
    assert_int_equal(out.revoke, 0);
    assert_int_equal(out.holds, 0);
    assert_int_equal(out.renewals, 0);
    assert_int_equal(out.has_params, 0);
    assert_int_equal(out.want_len, 0);
    assert_int_equal(out.from_len, 0);
    assert_int_equal(out.gate_len, 0);

    /* params: digits in lower and upper case; numbers: up to the maximum */

    zkl_claim_data_read(&out, text_of("me\n{\"index\":\"07\","
                                      "\"params\":\"FfFfFFfE\","
                                      "\"holds\":4294967295,"
                                      "\"renewals\":4294967295}"));

    assert_int_equal(out.index, 7);
    assert_int_equal(out.params, 0xfffffffe);
    assert_int_equal(out.holds, UINT32_MAX);
    assert_int_equal(out.renewals, UINT32_MAX);
}


static void
test_of_a_revoker(void **state)
{
    zkl_claim_data_t  cdata;

    (void) state;

    memset(&cdata, 0xff, sizeof(zkl_claim_data_t));
    zkl_claim_data_read(&cdata, text_of("__REVOKE__"));

    assert_int_equal(cdata.revoke, 1);
    assert_int_equal(cdata.index, -1);
    assert_int_equal(cdata.ttl, 0);
    assert_int_equal(cdata.owner_len, 0);
    assert_string_equal(cdata.owner, "");
    assert_int_equal(cdata.data_len, 0);
    assert_string_equal(cdata.data, "");
}


static void
test_is_read_back(void **state)
{
    char              buf[ZKL_CLAIM_DATA_MAX];
    size_t            at, len;
    zkl_claim_data_t  in, out;

    (void) state;

    memset(&in, 0, sizeof(zkl_claim_data_t));

    /* the longest claim data */

    memset(in.owner, 'o', ZKL_OWNER_MAX);
    in.owner_len = ZKL_OWNER_MAX;
    memset(in.data, 'd', ZKL_DATA_MAX);
    in.data[0] = '"';
    in.data[ZKL_DATA_MAX - 1] = '"';
    in.data_len = ZKL_DATA_MAX;
    in.ttl = ZKL_DURATION_MAX;
    in.holds = UINT32_MAX;
    in.renewals = UINT32_MAX;
    in.mended = UINT32_MAX;
    in.czxid = ZKL_CZXID_MAX;
    memset(in.gate, 'f', ZKL_GATE_LEN);
    in.gate_len = ZKL_GATE_LEN;
    in.has_id = 1;
    in.has_params = 1;
    in.async = 1;
    in.held = 1;
    in.revoke = 1;
    memset(in.want, '-', ZKL_WANT_MAX);
    in.want_len = ZKL_WANT_MAX;
    memset(in.from, '"', ZKL_FROM_MAX);
    in.from_len = ZKL_FROM_MAX;
    memset(in.name, '"', ZKL_FULL_MAX);
    in.name_len = ZKL_FULL_MAX;

    len = zkl_claim_data_write(buf, &in, &at);
    assert_in_range(len, ZKL_CLAIM_DATA_MAX - 16, ZKL_CLAIM_DATA_MAX);

    len = 0;
    at = 0;

    for (in.index = 0; in.index <= 0xff; in.index++) {
        len = zkl_claim_data_write(buf, &in, &at);
        assert_in_range(len, 1, ZKL_CLAIM_DATA_MAX);

        memset(&out, 0xff, sizeof(zkl_claim_data_t));
        zkl_claim_data_read(&out, buf, len);

        assert_int_equal(out.index, in.index);
        assert_int_equal(out.ttl, in.ttl);
        assert_int_equal(out.owner_len, in.owner_len);
        assert_string_equal(out.owner, in.owner);
        assert_int_equal(out.data_len, in.data_len);
        assert_string_equal(out.data, in.data);
        assert_int_equal(out.holds, in.holds);
        assert_int_equal(out.renewals, in.renewals);
        assert_int_equal(out.mended, in.mended);
        assert_int_equal(out.czxid, in.czxid);
        assert_int_equal(out.gate_len, in.gate_len);
        assert_memory_equal(out.gate, in.gate, ZKL_GATE_LEN);
        assert_int_equal(out.params, in.params);
        assert_int_equal(out.want_len, in.want_len);
        assert_string_equal(out.want, in.want);
        assert_int_equal(out.from_len, in.from_len);
        assert_string_equal(out.from, in.from);
        assert_int_equal(out.name_len, in.name_len);
        assert_string_equal(out.name, in.name);
    }

    /* digits of the index that are written later; lower and upper case */

    memcpy(buf + at, "Ab", 2);
    zkl_claim_data_read(&out, buf, len);
    assert_int_equal(out.index, 0xab);
}


static void
test_of_the_future(void **state)
{
    zkl_claim_data_t  cdata;

    (void) state;

    zkl_claim_data_read(&cdata,
                        text_of("me\n{\"new\":{\"data\":[1,{\"ttl\":2}]},"
                                "\"index\":\"07\",\"newer\":null,"
                                "\"data\":{\"index\":\"08\"},\"ttl\":5}"));

    assert_int_equal(cdata.index, 7);
    assert_int_equal(cdata.ttl, 5);
    assert_string_equal(cdata.data, "{\"index\":\"08\"}");
    assert_string_equal(cdata.owner, "me");

    zkl_claim_data_read(&cdata, text_of("\n{\"index\":\"00\"}"));

    assert_int_equal(cdata.index, 0);
    assert_int_equal(cdata.ttl, 0);
    assert_int_equal(cdata.data_len, 0);
    assert_int_equal(cdata.owner_len, 0);
}


static void
test_foreign_data(void **state)
{
    char              text[ZKL_CLAIM_DATA_MAX * 2];
    zkl_claim_data_t  cdata;
    const foreign_t  *r;

    (void) state;

    for (r = foreign_data; r->text != NULL; r++) {
        memset(&cdata, 0xff, sizeof(zkl_claim_data_t));
        zkl_claim_data_read(&cdata, r->text, r->len);

        if (cdata.index != -1 || cdata.ttl != 0 || cdata.data_len != 0
            || cdata.data[0] != '\0' || cdata.holds != 0
            || cdata.renewals != 0 || cdata.params != 0 || cdata.has_params
            || cdata.async || cdata.revoke || cdata.want_len != 0
            || cdata.want[0] != '\0' || cdata.from_len != 0
            || cdata.from[0] != '\0' || cdata.gate_len != 0
            || cdata.czxid != 0
            || cdata.owner_len != strlen(r->owner)
            || strcmp(cdata.owner, r->owner) != 0)
        {
            fail_msg("%s: %d %s %s", r->text, cdata.index, cdata.owner,
                     cdata.data);
        }
    }

    zkl_claim_data_read(&cdata, NULL, 0);
    assert_int_equal(cdata.index, -1);

    memset(text, 'a', sizeof(text));

    zkl_claim_data_read(&cdata, text, ZKL_OWNER_MAX);
    assert_int_equal(cdata.owner_len, ZKL_OWNER_MAX);
    zkl_claim_data_read(&cdata, text, ZKL_OWNER_MAX + 1);
    assert_int_equal(cdata.owner_len, 0);
    zkl_claim_data_read(&cdata, text, sizeof(text));
    assert_int_equal(cdata.owner_len, 0);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_is_written),
        cmocka_unit_test(test_says_more),
        cmocka_unit_test(test_says_no_more),
        cmocka_unit_test(test_with_an_id),
        cmocka_unit_test(test_of_a_revoker),
        cmocka_unit_test(test_is_read_back),
        cmocka_unit_test(test_of_the_future),
        cmocka_unit_test(test_foreign_data),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
