
/*
 * The bodies that Terraform sends, and bodies of other clients.
 */


#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/name.h"
#include "base/terraform.h"


#define text_of(s)  (s), sizeof(s) - 1

#define A10         "aaaaaaaaaa"
#define A50         A10 A10 A10 A10 A10
#define A250        A50 A50 A50 A50 A50

#define OPEN_15     "[[[[[[[[[[[[[[["
#define SHUT_15     "]]]]]]]]]]]]]]]"


typedef struct {
    const char  *text;
    size_t       len;
    const char  *error;
} refusal_t;


static const char  *others[] = {
    "{}",
    " { } \n",
    "{\"id\":\"a\"}",
    "{\"Id\":\"a\"}",
    "{\"IDs\":\"a\"}",
    "{\"I\":\"a\"}",
    "{\"ID\":\"\"}",
    "{\"ID\":7}",
    "{\"ID\":null}",
    "{\"ID\":true}",
    "{\"ID\":{\"ID\":\"a\"}}",
    "{\"ID\":[\"a\",{\"ID\":\"b\"}]}",
    "{\"Who\":\"me\",\"Info\":{\"ID\":\"a\"}}",
    "{\"wait\":10,\"data\":{\"ID\":\"a\"},\"owner\":\"me\"}",
    NULL
};


static const refusal_t  refusals[] = {
    { text_of(""),                      "the body is not valid JSON" },
    { text_of("  \n"),                  "the body is not valid JSON" },
    { text_of("x"),                     "the body is not valid JSON" },
    { text_of("{\"ID\":\"a\""),         "the body is not valid JSON" },
    { text_of("{\"ID\":\"a\"}{}"),      "the body is not valid JSON" },
    { text_of("{\"ID\":\"a\"} x"),      "the body is not valid JSON" },
    { text_of("[]"),                    "the body is not a JSON object" },
    { text_of("[{\"ID\":\"a\"}]"),      "the body is not a JSON object" },
    { text_of("\"ID\""),                "the body is not a JSON object" },
    { text_of("null"),                  "the body is not a JSON object" },
    { text_of("{\"ID\":\"\xff\"}"),     "the body is not" },
    { text_of("{\"ID\":\"\\ud800\"}"), "half a surrogate pair" },
    { text_of("{\"ID\":\"a\",\"ID\":\"a\"}"), "\"ID\" is there twice" },
    { text_of("{\"ID\":1,\"ID\":\"a\"}"), "\"ID\" is there twice" },
    { text_of("{\"ID\":\"a\\n\"}"),    "\"ID\" takes a string of at most 255" },
    { text_of("{\"ID\":\"\\u0000\"}"), "\"ID\" takes a string" },
    { text_of("{\"ID\":\"" A250 "aaaaaa\"}"), "\"ID\" takes a string" },
    { text_of("{\"ID\":\"a\",\"x\":[" OPEN_15 SHUT_15 "]}"),
                                        "the body is nested deeper than 16" },
    { text_of("{\"x\":[[" OPEN_15 SHUT_15 "]]}"),
                                        "the body is nested deeper than 16" },
    { NULL, 0, NULL }
};


/* the text in a block of exactly len + 1 bytes */

static int
read_body(zkl_terraform_t *t, const char *text, size_t len)
{
    int    rc;
    char  *copy;

    copy = malloc(len + 1);
    assert_non_null(copy);
    memcpy(copy, text, len);

    memset(t, 0xff, sizeof(zkl_terraform_t));

    rc = zkl_terraform_read(t, copy, len);

    free(copy);

    return rc;
}


static void
test_lock_information(void **state)
{
    zkl_terraform_t  t;

    static const char  text[] =
        " {\"ID\": \"5ff9b2f6-8f2a-5b0e-2a28-cdc2b6e1ba2f\",\n"
        "  \"Operation\" :\"OperationTypeApply\", \"Info\":\"\","
        " \"Who\":\"j\\u00fcrgen@host\",\"Version\":\"1.5.7\","
        " \"Created\":\"2026-08-01T12:00:00.5Z\", \"Path\":\"a\\/b\","
        " \"More\": [ 1e400, {\"ID\" : 2, \"Who\":\"x\"} ] }\r\n";

    static const char  compact[] =
        "{\"ID\":\"5ff9b2f6-8f2a-5b0e-2a28-cdc2b6e1ba2f\","
        "\"Operation\":\"OperationTypeApply\",\"Info\":\"\","
        "\"Who\":\"j\xc3\xbcrgen@host\",\"Version\":\"1.5.7\","
        "\"Created\":\"2026-08-01T12:00:00.5Z\",\"Path\":\"a/b\","
        "\"More\":[1e400,{\"ID\":2,\"Who\":\"x\"}]}";

    (void) state;

    assert_int_equal(read_body(&t, text_of(text)), 0);

    assert_string_equal(t.id, "5ff9b2f6-8f2a-5b0e-2a28-cdc2b6e1ba2f");
    assert_int_equal(t.id_len, 36);
    assert_string_equal(t.who, "j\xc3\xbcrgen@host");
    assert_int_equal(t.who_len, strlen(t.who));
    assert_string_equal(t.data, compact);
    assert_int_equal(t.data_len, sizeof(compact) - 1);
    assert_string_equal(t.error, "");
    assert_int_equal(t.too_large, 0);

    /* the body of a forced unlock of OpenTofu */

    assert_int_equal(read_body(&t, text_of("{\"ID\":\"a\",\"Who\":\"\"}")), 0);

    assert_string_equal(t.id, "a");
    assert_int_equal(t.id_len, 1);
    assert_int_equal(t.who_len, 0);
    assert_string_equal(t.data, "{\"ID\":\"a\",\"Who\":\"\"}");

    assert_int_equal(read_body(&t, text_of("{\"ID\":\"" A250 "aaaaa\"}")), 0);

    assert_string_equal(t.id, A250 "aaaaa");
    assert_int_equal(t.id_len, ZKL_TERRAFORM_ID_MAX);

    assert_int_equal(read_body(&t, text_of("{\"ID\":\"a\",\"x\":" OPEN_15
                                           SHUT_15 "}")), 0);
}


static void
test_who(void **state)
{
    size_t           i;
    zkl_terraform_t  t;

    static const char  *nobody[] = {
        "{\"ID\":\"a\"}",
        "{\"ID\":\"a\",\"who\":\"me\"}",
        "{\"ID\":\"a\",\"Who\":7}",
        "{\"ID\":\"a\",\"Who\":null}",
        "{\"ID\":\"a\",\"Who\":{\"Who\":\"me\"}}",
        "{\"ID\":\"a\",\"Who\":[\"me\"]}",
        "{\"ID\":\"a\",\"Who\":\"a\\nb\"}",
        "{\"ID\":\"a\",\"Who\":\"me\",\"Who\":\"a\\nb\"}",
        "{\"Who\":\"" A250 "aaaaaa\",\"ID\":\"a\"}",
        "{\"Who\":\"\\u0085\",\"ID\":\"a\"}"
    };

    (void) state;

    for (i = 0; i < sizeof(nobody) / sizeof(nobody[0]); i++) {
        if (read_body(&t, nobody[i], strlen(nobody[i])) != 0
            || t.who_len != 0 || t.who[0] != '\0'
            || strcmp(t.id, "a") != 0
            || strlen(t.data) != t.data_len)
        {
            fail_msg("%s: %s, %s", nobody[i], t.who, t.error);
        }
    }

    assert_int_equal(read_body(&t, text_of("{\"Who\":\"" A250 "aaaaa\","
                                           "\"ID\":\"a\"}")), 0);
    assert_int_equal(t.who_len, ZKL_OWNER_MAX);
    assert_string_equal(t.who, A250 "aaaaa");

    assert_int_equal(read_body(&t, text_of("{\"Who\":\"long\",\"ID\":\"a\","
                                           "\"Who\":\"me\"}")), 0);
    assert_int_equal(t.who_len, 2);
    assert_string_equal(t.who, "me");
}


static void
test_bodies_of_others(void **state)
{
    size_t           i;
    zkl_terraform_t  t;

    (void) state;

    for (i = 0; others[i] != NULL; i++) {
        if (read_body(&t, others[i], strlen(others[i])) != 1) {
            fail_msg("%s: taken or refused", others[i]);
        }

        assert_int_equal(t.too_large, 0);
    }
}


static void
test_refusals(void **state)
{
    zkl_terraform_t   t;
    const refusal_t  *r;

    (void) state;

    for (r = refusals; r->text != NULL; r++) {
        if (read_body(&t, r->text, r->len) != -1
            || strstr(t.error, r->error) == NULL
            || t.too_large)
        {
            fail_msg("%s: \"%s\"", r->text, t.error);
        }

        assert_true(zkl_text_shown_check(t.error, strlen(t.error)));
    }

    assert_int_equal(zkl_terraform_read(&t, NULL, 0), -1);
}


/* white space does not count */

static void
test_large(void **state)
{
    char             text[3 * ZKL_DATA_MAX];
    size_t           len;
    zkl_terraform_t  t;

    (void) state;

    /* blanks stand between the string and the last bracket */

    for  (len = ZKL_DATA_MAX - 1; len <= ZKL_DATA_MAX + 1; len++) {
        memset(text, 'a', sizeof(text));
        memcpy(text, "{\"ID\":\"a\",\"x\":\"", 15);
        memset(text + len - 2, ' ', sizeof(text) - len + 2);
        memcpy(text + len - 2, "\"", 1);
        text[sizeof(text) - 1] = '}';

        if (len <= ZKL_DATA_MAX) {
            assert_int_equal(read_body(&t, text, sizeof(text)), 0);
            assert_int_equal(t.data_len, len);
            assert_int_equal(strlen(t.data), len);
            assert_int_equal(t.too_large, 0);

        } else {
            assert_int_equal(read_body(&t, text, sizeof(text)), -1);
            assert_int_equal(t.too_large, 1);
            assert_string_equal(t.error, "the body is longer than 1024 bytes"
                                         " of compact JSON");
        }
    }

    /* an object without an ID may be of any length */

    memset(text, 'a', sizeof(text));
    memcpy(text, "{\"id\":\"a\",\"x\":\"", 15);
    memcpy(text + sizeof(text) - 2, "\"}", 2);

    assert_int_equal(read_body(&t, text, sizeof(text)), 1);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_lock_information),
        cmocka_unit_test(test_who),
        cmocka_unit_test(test_bodies_of_others),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_large),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
