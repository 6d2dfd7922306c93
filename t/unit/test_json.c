
/*
 * The writer: answers, and calls that must not become an answer.  Tests of the
 * reader are in test_args.c, test_claim_data.c and test_terraform.c.
 */


#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"


#define text_of(s)  (s), sizeof(s) - 1


static void
test_answer(void **state)
{
    size_t       len;
    const char  *text;
    zkl_json_t  *json;

    static const char  expected[] =
        "{\"name\":\"a/b \\\"\\\\ \\n\\u0000\\u001F\x7f\xc3\xa4\","
        "\"fencing_token\":9223372036854775807,\"least\":"
        "-9223372036854775808,"
        "\"yes\":true,\"no\":false,"
        "\"holders\":[{\"data\":{\"x\":[1e400]},\"owner\":\"\"},7,[],"
        "\"s\",true],\"none\":{}}";

    (void) state;

    json = zkl_json_open();
    assert_non_null(json);

    zkl_json_string(json, "name", text_of("a/b \"\\ \n\0\x1f\x7f\xc3\xa4"));
    zkl_json_integer(json, "fencing_token", INT64_MAX);
    zkl_json_integer(json, "least", INT64_MIN);
    zkl_json_boolean(json, "yes", 0x100);
    zkl_json_boolean(json, "no", 0);
    zkl_json_array(json, "holders");
    zkl_json_object(json, NULL);
    zkl_json_raw(json, "data", text_of("{\"x\":[1e400]}"));
    zkl_json_string(json, "owner", NULL, 0);
    zkl_json_end_object(json);
    zkl_json_integer(json, NULL, 7);
    zkl_json_array(json, NULL);
    zkl_json_end_array(json);
    zkl_json_string(json, NULL, text_of("s"));
    zkl_json_boolean(json, NULL, 1);
    zkl_json_end_array(json);
    zkl_json_object(json, "none");
    zkl_json_end_object(json);

    text = zkl_json_text(json, &len);

    assert_non_null(text);
    assert_int_equal(len, sizeof(expected) - 1);
    assert_memory_equal(text, expected, len);

    zkl_json_close(json);
}


static void
test_long_answer(void **state)
{
    size_t       i, len;
    const char  *text;
    zkl_json_t  *json;

    (void) state;

    json = zkl_json_open();
    assert_non_null(json);

    zkl_json_array(json, "a");

    for (i = 0; i < 20000; i++) {
        zkl_json_string(json, NULL, text_of("1234567"));
    }

    zkl_json_end_array(json);

    text = zkl_json_text(json, &len);

    assert_non_null(text);
    assert_int_equal(len, 20000 * 10 + 7);
    assert_memory_equal(text + len - 11, "\"1234567\"]}", 11);

    zkl_json_close(json);
}


/* each event is a line, so no answer may contain the end of a line */

static void
test_answer_is_one_line(void **state)
{
    char         text[128];
    size_t       i, len;
    const char  *p;
    zkl_json_t  *json;

    (void) state;

    for (i = 0; i < sizeof(text); i++) {
        text[i] = (char) i;
    }

    json = zkl_json_open();
    assert_non_null(json);

    zkl_json_string(json, "all", text, sizeof(text));
    zkl_json_array(json, "a\nkey\r");
    zkl_json_integer(json, NULL, 1);
    zkl_json_end_array(json);
    zkl_json_object(json, "none");
    zkl_json_end_object(json);

    p = zkl_json_text(json, &len);
    assert_non_null(p);

    for (i = 0; i < len; i++) {
        assert_true((unsigned char) p[i] >= 0x20);
    }

    zkl_json_close(json);
}


static void
test_answers_that_fail(void **state)
{
    size_t       i, len;
    zkl_json_t  *json;

    (void) state;

    /* the writer never returns an answer that is not JSON */

    for (i = 0; i < 7; i++) {
        json = zkl_json_open();
        assert_non_null(json);

        switch (i) {

        case 0:     /* not closed */
            zkl_json_array(json, "a");
            break;

        case 1:     /* closed too often */
            zkl_json_end_object(json);
            zkl_json_end_object(json);
            zkl_json_end_array(json);
            break;

        case 2:     /* not UTF-8; the writer remembers that */
            zkl_json_string(json, "a", text_of("\xed\xa0\x80"));
            zkl_json_string(json, "b", text_of("b"));
            break;

        case 3:     /* no value */
            zkl_json_raw(json, "a", "", 0);
            break;

        case 4:     /* no key */
            zkl_json_integer(json, NULL, 1);
            break;

        case 5:     /* no key either */
            zkl_json_boolean(json, NULL, 1);
            break;

        default:    /* deeper than yajl goes */
            zkl_json_array(json, "a");

            for (len = 0; len < 1000; len++) {
                zkl_json_array(json, NULL);
            }

            for (len = 0; len < 1000; len++) {
                zkl_json_end_array(json);
            }

            break;
        }

        if (zkl_json_text(json, &len) != NULL) {
            fail_msg("case %zu", i);
        }

        zkl_json_close(json);
    }
}


static void
test_no_writer(void **state)
{
    size_t  len;

    (void) state;

    zkl_json_object(NULL, NULL);
    zkl_json_array(NULL, "a");
    zkl_json_string(NULL, "a", text_of("a"));
    zkl_json_integer(NULL, "a", 1);
    zkl_json_boolean(NULL, "a", 1);
    zkl_json_raw(NULL, "a", text_of("1"));
    zkl_json_end_array(NULL);
    zkl_json_end_object(NULL);

    assert_null(zkl_json_text(NULL, &len));

    zkl_json_close(NULL);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_answer),
        cmocka_unit_test(test_long_answer),
        cmocka_unit_test(test_answer_is_one_line),
        cmocka_unit_test(test_answers_that_fail),
        cmocka_unit_test(test_no_writer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
