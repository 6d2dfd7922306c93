
/*
 * Arguments, from a query and from a body.
 */


#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/args.h"
#include "base/name.h"


#define OLD         (ZKL_ARG_WAIT|ZKL_ARG_TTL|ZKL_ARG_MODE                   \
                     |ZKL_ARG_OWNER|ZKL_ARG_DATA|ZKL_ARG_HOLD)

#define NEW         (ZKL_ARG_PERMITS|ZKL_ARG_UNTIL                            \
                     |ZKL_ARG_PREFIX|ZKL_ARG_LIMIT|ZKL_ARG_AFTER  \
                     |ZKL_ARG_FORCE|ZKL_ARG_REVOKE                    \
                     |ZKL_ARG_DURABLE|ZKL_ARG_HOLDERS|ZKL_ARG_SORT)

#define ALL         (OLD|NEW|ZKL_ARG_NAMES)

#define text_of(s)  (s), sizeof(s) - 1

#define A10         "aaaaaaaaaa"
#define A50         A10 A10 A10 A10 A10

#define A200        A50 A50 A50 A50
#define A400        A200 A200

#define OPEN_16     "[[[[[[[[[[[[[[[["
#define SHUT_16     "]]]]]]]]]]]]]]]]"


/* a text and the reason for the refusal */

typedef struct {
    const char  *text;
    size_t       len;
    const char  *error;
} refusal_t;


/* a JSON text and the compact form; NULL: the text is compact */

typedef struct {
    const char  *text;
    const char  *compact;
} data_case_t;


static const refusal_t  query_refusals[] = {
    { text_of("what=1"),            "unknown argument \"what\"" },
    { text_of("Wait=1"),            "unknown argument \"Wait\"" },
    { text_of("=1"),                "unknown argument \"\"" },
    { text_of("waitx=1"),           "unknown argument \"waitx\"" },
    { text_of("wai=1"),             "unknown argument \"wai\"" },
    { text_of("%zz=1"),             "unknown argument \"%zz\"" },
    { text_of("%00%1f%7f%c2%85%ff=1"),
                                    "unknown argument \"??????\"" },
    { text_of("%c3%a4%22=1"),       "unknown argument \"\xc3\xa4\"\"" },
    { text_of(A50 A50 "=1"),        A50 "aaaaaaa...\"" },
    { text_of("wait=1&wait=2"),     "the argument \"wait\" is there twice" },
    { text_of("wait=1&w%61it=2"),   "the argument \"wait\" is there twice" },
    { text_of("data=1&data=1"),     "the argument \"data\" is there twice" },
    { text_of("owner=%"),           "\"owner\" has a broken escape" },
    { text_of("owner=%4"),          "\"owner\" has a broken escape" },
    { text_of("owner=%4g"),         "\"owner\" has a broken escape" },
    { text_of("wait"),              "\"wait\" takes a duration such as" },
    { text_of("wait="),             "\"wait\" takes a duration such as" },
    { text_of("wait=10+"),          "\"wait\" takes a duration such as" },
    { text_of("ttl=1e3"),           "\"ttl\" takes a duration such as" },
    { text_of("ttl=10%00"),         "\"ttl\" takes a duration such as" },
    { text_of("mode=Shared"),       "\"mode\" takes a word" },
    { text_of("mode="),             "\"mode\" takes a word" },
    { text_of("mode=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
                                    "\"mode\" takes a word" },
    { text_of("hold=a_b"),          "\"hold\" takes a word" },
    { text_of("owner=a%0ab"),       "\"owner\" takes a string" },
    { text_of("owner=a%00b"),       "\"owner\" takes a string" },
    { text_of("owner=%7f"),         "\"owner\" takes a string" },
    { text_of("owner=%c2%9f"),      "\"owner\" takes a string" },
    { text_of("owner=%c3"),         "\"owner\" takes a string" },
    { text_of("owner=%ed%a0%80"),   "\"owner\" takes a string" },
    { text_of("owner=" A50 A50 A50 A50 A50 "aaaaaa"),
                                    "\"owner\" takes a string" },
    { text_of("permits="),          "\"permits\" takes an integer from 1 to"
                                    " 1000" },
    { text_of("permits=0"),         "\"permits\" takes an integer" },
    { text_of("permits=000"),       "\"permits\" takes an integer" },
    { text_of("permits=1001"),      "\"permits\" takes an integer" },
    { text_of("permits=4294967297"), "\"permits\" takes an integer" },
    { text_of("permits=-1"),        "\"permits\" takes an integer" },
    { text_of("permits=+1"),        "\"permits\" takes an integer" },
    { text_of("permits=1.0"),       "\"permits\" takes an integer" },
    { text_of("permits=1%00"),      "\"permits\" takes an integer" },
    { text_of("permits=1&permits=1"), "\"permits\" is there twice" },
    { text_of("limit=0"),           "\"limit\" takes an integer from 1 to"
                                    " 1000" },
    { text_of("limit=1001"),        "\"limit\" takes an integer" },
    { text_of("limit=all"),         "\"limit\" takes an integer" },
    { text_of("holders="),          "\"holders\" takes 1 or 0" },
    { text_of("holders=2"),         "\"holders\" takes 1 or 0" },
    { text_of("holders=01"),        "\"holders\" takes 1 or 0" },
    { text_of("sort="),             "\"sort\" takes \"since\" or"
                                    " \"waiting\"" },
    { text_of("sort=name"),         "\"sort\" takes \"since\" or" },
    { text_of("sort=sinc"),         "\"sort\" takes \"since\" or" },
    { text_of("sort=sincf"),        "\"sort\" takes \"since\" or" },
    { text_of("sort=since%00"),     "\"sort\" takes \"since\" or" },
    { text_of("names=a"),           "\"names\" takes an array of 1 to 32"
                                    " names, in a body" },
    { text_of("names=1"),           "\"names\" takes an array" },
    { text_of("names=[%22a%22]"),   "\"names\" takes an array" },
    { text_of("until="),            "\"until\" takes a word such as"
                                    " \"free\"" },
    { text_of("until=Free"),        "\"until\" takes a word" },
    { text_of("prefix=%0a"),        "\"prefix\" takes a string of at most 200"
                                    " bytes" },
    { text_of("prefix=%c3"),        "\"prefix\" takes a string" },
    { text_of("prefix=" A200 "a"),  "\"prefix\" takes a string" },
    { text_of("after=a%20b"),       "\"after\" takes the \"next\" of another"
                                    " answer" },
    { text_of("after=a%00"),        "\"after\" takes the" },
    { text_of("after=a+b"),         "\"after\" takes the" },
    { text_of("after=YQ=="),        "\"after\" takes the" },
    { text_of("after=a."),          "\"after\" takes the" },
    { text_of("after=" A400 "a"),   "\"after\" takes the" },
    { text_of("force="),            "\"force\" takes 1 and nothing else" },
    { text_of("force"),             "\"force\" takes 1" },
    { text_of("force=0"),           "\"force\" takes 1" },
    { text_of("force=11"),          "\"force\" takes 1" },
    { text_of("force=true"),        "\"force\" takes 1" },
    { text_of("revoke=2"),          "\"revoke\" takes 1 and nothing else" },
    { text_of("revoke=1&revoke=1"), "\"revoke\" is there twice" },
    { text_of("durable="),          "\"durable\" takes 1 and nothing else" },
    { text_of("durable"),           "\"durable\" takes 1" },
    { text_of("durable=0"),         "\"durable\" takes 1" },
    { text_of("durable=01"),        "\"durable\" takes 1" },
    { text_of("durable=on"),        "\"durable\" takes 1" },
    { text_of("durable=1%00"),      "\"durable\" takes 1" },
    { text_of("durable=1&durable=1"), "\"durable\" is there twice" },
    { text_of("data="),             "\"data\" is not valid JSON" },
    { text_of("data=x"),            "\"data\" is not valid JSON" },
    { text_of("data=1%202"),        "\"data\" is not valid JSON" },
    { text_of("data={}{}"),         "\"data\" is not valid JSON" },
    { text_of("data=1\""),          "\"data\" is not valid JSON" },
    { text_of("data=1%20t"),        "\"data\" is not valid JSON" },
    { text_of("data=true%20\"a"),   "\"data\" is not valid JSON" },
    { text_of("data=[]%20\""),      "\"data\" is not valid JSON" },
    { text_of("data=[1"),           "\"data\" is not valid JSON" },
    { text_of("data=%22%ff%22"),    "\"data\" is not" },
    { text_of("data=%22%c0%80%22"), "\"data\" is not UTF-8" },
    { text_of("data=%22\\ud800%22"), "half a surrogate pair" },
    { text_of("data=[" OPEN_16 SHUT_16 "]"), "deeper than 16" },
    { NULL, 0, NULL }
};


static const refusal_t  body_refusals[] = {

    /* not an object */

    { text_of("[]"),                        "is not a JSON object" },
    { text_of("[{\"wait\":1}]"),            "is not a JSON object" },
    { text_of("\"wait\""),                  "is not a JSON object" },
    { text_of("null"),                      "is not a JSON object" },
    { text_of("true"),                      "is not a JSON object" },
    { text_of("12"),                        "is not a JSON object" },
    { text_of("wait=10"),                   "is not valid JSON" },
    { text_of("{"),                         "is not valid JSON" },
    { text_of("{\"wait\":1"),               "is not valid JSON" },
    { text_of("{\"wait\":1,"),              "is not valid JSON" },
    { text_of("{\"wait\":1,}"),             "is not valid JSON" },
    { text_of("{\"wait\""),                 "is not valid JSON" },
    { text_of("{\"wai"),                    "is not valid JSON" },
    { text_of("{wait:1}"),                  "is not valid JSON" },
    { text_of("{}{}"),                      "(trailing garbage)" },
    { text_of("{} x"),                      "(trailing garbage)" },
    { text_of("{}]"),                       "(trailing garbage)" },
    { text_of("{}\""),                      "(trailing garbage)" },
    { text_of("{} \"x"),                    "(trailing garbage)" },
    { text_of("{}t"),                       "(trailing garbage)" },
    { text_of("{}\n nul"),                  "(trailing garbage)" },
    { text_of("{}-"),                       "(trailing garbage)" },
    { text_of("/* c */{}"),                 "is not valid JSON" },
    { text_of("{}// c"),                    "is not valid JSON" },
    { text_of("\xef\xbb{}"),                "is not valid JSON" },
    { text_of("\xef\xbb"),                  "is not valid JSON" },
    { text_of(" \xef\xbb\xbf{}"),           "is not valid JSON" },
    { text_of("\xef\xbb\xbf\xef\xbb\xbf{}"), "is not valid JSON" },
    { text_of("{}\xef\xbb\xbf"),            "(trailing garbage)" },
    { text_of("\v{}"),                      "control character" },
    { text_of("{}\f"),                      "control character" },
    { text_of("{}\0"),                      "control character" },

    /* fields */

    { text_of("{\"what\":1}"),              "unknown field \"what\"" },
    { text_of("{\"\":1}"),                  "unknown field \"\"" },
    { text_of("{\"a\\nb\\u0000c\":1}"),     "unknown field \"a?b?c\"" },
    { text_of("{\"Wait\":1}"),              "unknown field \"Wait\"" },
    { text_of("{\"wait\":1,\"wait\":1}"),   "\"wait\" is there twice" },
    { text_of("{\"wait\":1,\"w\\u0061it\":1}"),
                                            "\"wait\" is there twice" },
    { text_of("{\"data\":{},\"data\":1}"),  "\"data\" is there twice" },
    { text_of("{\"data\":{\"a\":1},\"a\":1}"), "unknown field \"a\"" },

    /* types and values */

    { text_of("{\"wait\":true}"),           "\"wait\" takes a duration" },
    { text_of("{\"wait\":null}"),           "\"wait\" takes a duration" },
    { text_of("{\"wait\":{}}"),             "\"wait\" takes a duration" },
    { text_of("{\"wait\":[1]}"),            "\"wait\" takes a duration" },
    { text_of("{\"wait\":-1}"),             "\"wait\" takes a duration" },
    { text_of("{\"wait\":0.0001}"),         "\"wait\" takes a duration" },
    { text_of("{\"wait\":\"\"}"),           "\"wait\" takes a duration" },
    { text_of("{\"wait\":99999999999999999999}"),
                                            "\"wait\" takes a duration" },
    { text_of("{\"wait\":1e3}"),            "\"wait\" takes a number of"
                                            " seconds without an exponent" },
    { text_of("{\"ttl\":1E3}"),             "\"ttl\" takes a number of"
                                            " seconds without an exponent" },
    { text_of("{\"ttl\":\"soon\"}"),        "\"ttl\" takes a duration such"
                                            " as \"10s\", \"1500ms\" or a"
                                            " number of seconds" },
    { text_of("{\"mode\":1}"),              "\"mode\" takes a word" },
    { text_of("{\"mode\":null}"),           "\"mode\" takes a word" },
    { text_of("{\"mode\":[[[[[[[["),        "\"mode\" takes a word" },
    { text_of("{\"mode\":\"\"}"),           "\"mode\" takes a word" },
    { text_of("{\"hold\":false}"),          "\"hold\" takes a word" },
    { text_of("{\"hold\":\"a\\u0000\"}"),   "\"hold\" takes a word" },
    { text_of("{\"owner\":{\"a\":1}}"),     "\"owner\" takes a string" },
    { text_of("{\"owner\":7}"),             "\"owner\" takes a string" },
    { text_of("{\"owner\":null}"),          "\"owner\" takes a string" },
    { text_of("{\"owner\":\"a\\tb\"}"),     "\"owner\" takes a string" },
    { text_of("{\"owner\":\"\\u0085\"}"),   "\"owner\" takes a string" },
    { text_of("{\"owner\":\"" A50 A50 A50 A50 A50 "aaaaaa\"}"),
                                            "\"owner\" takes a string" },

    { text_of("{\"permits\":0}"),           "\"permits\" takes an integer" },
    { text_of("{\"permits\":1001}"),        "\"permits\" takes an integer" },
    { text_of("{\"permits\":-1}"),          "\"permits\" takes an integer" },
    { text_of("{\"permits\":1.0}"),         "\"permits\" takes an integer" },
    { text_of("{\"permits\":1e2}"),         "\"permits\" takes an integer" },
    { text_of("{\"permits\":\"\"}"),        "\"permits\" takes an integer" },
    { text_of("{\"permits\":true}"),        "\"permits\" takes an integer" },
    { text_of("{\"permits\":[1]}"),         "\"permits\" takes an integer" },
    { text_of("{\"permits\":null}"),        "\"permits\" takes an integer" },
    { text_of("{\"limit\":{}}"),            "\"limit\" takes an integer" },
    { text_of("{\"until\":1}"),             "\"until\" takes a word" },
    { text_of("{\"prefix\":1}"),            "\"prefix\" takes a string" },
    { text_of("{\"after\":1}"),             "\"after\" takes the" },
    { text_of("{\"force\":true}"),          "\"force\" takes 1" },
    { text_of("{\"force\":10}"),            "\"force\" takes 1" },
    { text_of("{\"revoke\":null}"),         "\"revoke\" takes 1" },
    { text_of("{\"durable\":true}"),        "\"durable\" takes 1" },
    { text_of("{\"durable\":0}"),           "\"durable\" takes 1" },
    { text_of("{\"durable\":1.0}"),         "\"durable\" takes 1" },
    { text_of("{\"durable\":\"\"}"),        "\"durable\" takes 1" },
    { text_of("{\"durable\":[1]}"),         "\"durable\" takes 1" },
    { text_of("{\"durable\":{}}"),          "\"durable\" takes 1" },
    { text_of("{\"durable\":1,\"durable\":1}"),
                                            "\"durable\" is there twice" },

    /* names */

    { text_of("{\"names\":[]}"),            "\"names\" takes an array of 1 to"
                                            " 32 names" },
    { text_of("{\"names\":\"a\"}"),         "\"names\" takes an array" },
    { text_of("{\"names\":7}"),             "\"names\" takes an array" },
    { text_of("{\"names\":null}"),          "\"names\" takes an array" },
    { text_of("{\"names\":true}"),          "\"names\" takes an array" },
    { text_of("{\"names\":{\"wait\":1}}"),  "\"names\" takes an array" },
    { text_of("{\"names\":[7]}"),           "\"names\" takes an array" },
    { text_of("{\"names\":[\"a\",null]}"),  "\"names\" takes an array" },
    { text_of("{\"names\":[\"a\",true]}"),  "\"names\" takes an array" },
    { text_of("{\"names\":[\"a\",{}]}"),    "\"names\" takes an array" },
    { text_of("{\"names\":[{\"a\":\"b\"}]}"), "\"names\" takes an array" },
    { text_of("{\"names\":[[\"a\"]]}"),     "\"names\" takes an array" },
    { text_of("{\"names\":[\"a\",[]]}"),    "\"names\" takes an array" },
    { text_of("{\"names\":[\"a\",]}"),      "is not valid JSON" },
    { text_of("{\"names\":[\"a\"}"),        "is not valid JSON" },
    { text_of("{\"names\":[\"a\"]"),        "is not valid JSON" },
    { text_of("{\"names\":[\"a\"],\"names\":[\"b\"]}"),
                                            "\"names\" is there twice" },
    { text_of("{\"names\":[\"a\"],\"what\":1}"), "unknown field \"what\"" },
    { text_of("{\"names\":[\"a\",\"b\",\"a\"]}"),
                                            "\"names\" has \"a\" in it twice" },
    { text_of("{\"names\":[\"b\",\"a\",\"b\"]}"),
                                            "\"names\" has \"b\" in it twice" },
    { text_of("{\"names\":[\"a\",\"\\u0061\"]}"),
                                            "\"names\" has \"a\" in it twice" },
    { text_of("{\"names\":[\"\"]}"),        "\"names\" has \"\" in it, but the"
                                            " name is empty" },
    { text_of("{\"names\":[\"a/b\",\"/a%2F%2Fb\"]}"),
                                            "\"names\" has \"a%2Fb\" in"
                                            " it twice" },
    { text_of("{\"names\":[\"..\"]}"),      "\"..\" in it, but" },
    { text_of("{\"names\":[\"/.\"]}"),      "\".\" in it, but" },
    { text_of("{\"names\":[\"a%sha1-" A10 A10 A10 A10 "\"]}"),
                                            "\"%sha1-\"" },
    { text_of("{\"names\":[\"\xc0\x80\"]}"), "is not UTF-8" },

    /* UTF-8 and UTF-16 */

    { text_of("{\"owner\":\"\xff\"}"),      "the body is not" },
    { text_of("{\"owner\":\"\xc0\x80\"}"),  "is not UTF-8" },
    { text_of("{\"owner\":\"\xed\xa0\x80\"}"),  "is not UTF-8" },
    { text_of("{\"\xc0\x80\":1}"),          "is not UTF-8" },
    { text_of("{\"data\":{\"\xc0\x80\":1}}"),   "is not UTF-8" },
    { text_of("{\"owner\":\"\\ud800\"}"),   "half a surrogate pair" },
    { text_of("{\"owner\":\"\\ud800x\"}"),  "half a surrogate pair" },
    { text_of("{\"owner\":\"\\ud800\\n\"}"),    "half a surrogate pair" },
    { text_of("{\"owner\":\"\\ud800\\u0041\"}"), "half a surrogate pair" },
    { text_of("{\"owner\":\"\\ud800\\ud800\"}"), "half a surrogate pair" },
    { text_of("{\"owner\":\"\\udc00\"}"),   "half a surrogate pair" },
    { text_of("{\"data\":[\"\\\\\\udc00\"]}"),  "half a surrogate pair" },
    { text_of("{\"owner\":\"\\u12g4\"}"),   "is not valid JSON" },

    /* data */

    { text_of("{\"data\":[1,]}"),           "is not valid JSON" },
    { text_of("{\"data\":01}"),             "is not valid JSON" },
    { text_of("{\"data\":nul}"),            "is not valid JSON" },
    { text_of("{\"data\":[" OPEN_16 SHUT_16 "]}"), "deeper than 16" },
    { text_of("{\"data\":[" OPEN_16),       "\"data\" is nested deeper"
                                            " than 16" },

    { NULL, 0, NULL }
};


static const data_case_t  data_cases[] = {
    { "1", NULL },
    { "0", NULL },
    { "-0", NULL },
    { "null", NULL },
    { "true", NULL },
    { "false", NULL },
    { "\"\"", NULL },
    { "{}", NULL },
    { "[]", NULL },
    { "1e400", NULL },
    { "1.50", NULL },
    { "99999999999999999999", NULL },
    { "-1.0E-99999", NULL },
    { "[1e400,99999999999999999999]", NULL },
    { "{\"a\":{\"b\":[1,null,\"c\"]},\"a\":2}", NULL },
    { " { \"a\" :\t[ 1 ,\r\n 2 ] } ", "{\"a\":[1,2]}" },
    { "\"\\u0041\\/\\u00e4\"", "\"A/\xc3\xa4\"" },
    { "\"\\ud83d\\udd12\"", "\"\xf0\x9f\x94\x92\"" },
    { "\"\\\\ud800\"", NULL },
    { "\"\\u0000\\u001f\\n\"", "\"\\u0000\\u001F\\n\"" },
    { "[\"\\\"\\\\\"]", NULL },
    { OPEN_16 SHUT_16, NULL },
    { "[" "[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]" "]", NULL },
    { NULL, NULL }
};


/* each error is a sentence that can be shown */

static void
check_error(const zkl_args_t *args, const char *text, const char *part)
{
    size_t  i, len;

    len = strnlen(args->error, sizeof(args->error));

    assert_in_range(len, 1, sizeof(args->error) - 1);
    assert_true(zkl_text_utf8_check(args->error, len));

    for (i = 0; i < len; i++) {
        assert_true((unsigned char) args->error[i] >= 0x20);
        assert_true(args->error[i] != 0x7f);
    }

    if (strstr(args->error, part) == NULL) {
        fail_msg("%s: \"%s\", expected \"%s\"", text, args->error, part);
    }
}


static int
read_query(zkl_args_t *args, const char *query, size_t len, unsigned allowed)
{
    memset(args, 0, sizeof(zkl_args_t));

    return zkl_args_query_read(args, query, len, allowed);
}


/* adds text to args, from a block of its own */

static int
add_body(zkl_args_t *args, const char *text, size_t len, unsigned allowed)
{
    int    rc;
    char  *copy;

    copy = malloc((len != 0) ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);

    rc = zkl_args_body_read(args, copy, len, allowed);

    free(copy);

    return rc;
}


static int
read_body(zkl_args_t *args, const char *text, size_t len, unsigned allowed)
{
    memset(args, 0, sizeof(zkl_args_t));

    return add_body(args, text, len, allowed);
}


static void
test_query(void **state)
{
    zkl_args_t  args;

    (void) state;

    assert_int_equal(read_query(&args,
                                text_of("wait=10s&ttl=1500ms&mode=shared"
                                        "&owner=J%C3%BCrgen+%26%20C%2bo"
                                        "&hold=connection"
                                        "&data=%7B%22a%22%20:%20[1]}"),
                                ALL), 0);

    assert_int_equal(args.given, OLD);
    assert_int_equal(args.wait, 10000);
    assert_int_equal(args.ttl, 1500);
    assert_string_equal(args.mode, "shared");
    assert_int_equal(args.mode_len, 6);
    assert_string_equal(args.hold, "connection");
    assert_int_equal(args.hold_len, 10);
    assert_string_equal(args.owner, "J\xc3\xbcrgen & C+o");
    assert_int_equal(args.owner_len, strlen(args.owner));
    assert_string_equal(args.data, "{\"a\":[1]}");
    assert_int_equal(args.data_len, strlen(args.data));
    assert_string_equal(args.error, "");
}


static void
test_query_of_operators(void **state)
{
    zkl_args_t  args;

    (void) state;

    assert_int_equal(read_query(&args, text_of("permits=1000&until=free"
                                        "&prefix=a/b%20%C3%BC&limit=1"
                                        "&after=Az09-_&force=1&revoke=%31"
                                        "&durable=1&holders=1&sort=since"),
                                ALL), 0);

    assert_int_equal(args.given, NEW);
    assert_int_equal(args.permits, 1000);
    assert_string_equal(args.until, "free");
    assert_int_equal(args.until_len, 4);
    assert_string_equal(args.prefix, "a/b \xc3\xbc");
    assert_int_equal(args.prefix_len, strlen(args.prefix));
    assert_int_equal(args.limit, 1);
    assert_string_equal(args.after, "Az09-_");
    assert_int_equal(args.after_len, 6);
    assert_int_equal(args.holders, 1);
    assert_string_equal(args.sort, "since");
    assert_int_equal(args.sort_len, 5);

    assert_int_equal(read_query(&args, text_of("holders=0&sort=waiting"), ALL),
                     0);

    assert_int_equal(args.given, ZKL_ARG_HOLDERS|ZKL_ARG_SORT);
    assert_int_equal(args.holders, 0);
    assert_string_equal(args.sort, "waiting");

    assert_int_equal(read_query(&args,
                                text_of("permits=1&limit=1000&prefix=&after="),
                                ALL), 0);

    assert_int_equal(args.given, ZKL_ARG_PERMITS|ZKL_ARG_LIMIT
                                 |ZKL_ARG_PREFIX|ZKL_ARG_AFTER);
    assert_int_equal(args.permits, 1);
    assert_int_equal(args.limit, 1000);
    assert_int_equal(args.prefix_len, 0);
    assert_int_equal(args.after_len, 0);

    assert_int_equal(read_query(&args, text_of("prefix=" A200 "&after=" A400),
                                ALL), 0);

    assert_int_equal(args.prefix_len, 200);
    assert_string_equal(args.prefix, A200);
    assert_int_equal(args.after_len, 400);
    assert_string_equal(args.after, A400);
}


static void
test_query_of_little(void **state)
{
    zkl_args_t  args;

    (void) state;

    assert_int_equal(read_query(&args, NULL, 0, ALL), 0);
    assert_int_equal(args.given, 0);

    assert_int_equal(read_query(&args, text_of("&&"), ALL), 0);
    assert_int_equal(args.given, 0);

    assert_int_equal(read_query(&args, text_of("&wait=0&"), ALL), 0);
    assert_int_equal(args.given, ZKL_ARG_WAIT);
    assert_int_equal(args.wait, 0);

    assert_int_equal(read_query(&args, text_of("owner="), ALL), 0);
    assert_int_equal(args.given, ZKL_ARG_OWNER);
    assert_int_equal(args.owner_len, 0);

    assert_int_equal(read_query(&args, text_of("owner=a=b"), ALL), 0);
    assert_string_equal(args.owner, "a=b");

    assert_int_equal(read_query(&args, text_of("owner=+a++b+"), ALL), 0);
    assert_string_equal(args.owner, " a  b ");

    assert_int_equal(read_query(&args, text_of("w%61it=3"), ALL), 0);
    assert_int_equal(args.wait, 3000);
}


static void
test_query_refusals(void **state)
{
    zkl_args_t        args;
    const refusal_t  *r;

    (void) state;

    for (r = query_refusals; r->text != NULL; r++) {
        if (read_query(&args, r->text, r->len, ALL) != -1) {
            fail_msg("%s: taken", r->text);
        }

        check_error(&args, r->text, r->error);
    }
}


static void
test_not_allowed(void **state)
{
    zkl_args_t  args;

    (void) state;

    assert_int_equal(read_query(&args, text_of("wait=1&mode=a"), ZKL_ARG_WAIT),
                                -1);
    check_error(&args, "mode", "the argument \"mode\" has no place");

    assert_int_equal(read_body(&args, text_of("{\"data\":{}}"),
                               ALL & ~(unsigned) ZKL_ARG_DATA), -1);
    check_error(&args, "data", "the field \"data\" has no place");

    assert_int_equal(read_query(&args, text_of("durable=1"),
                                ALL & ~(unsigned) ZKL_ARG_DURABLE), -1);
    check_error(&args, "durable", "the argument \"durable\" has no place");

    assert_int_equal(read_body(&args, text_of("{\"durable\":1}"),
                               ALL & ~(unsigned) ZKL_ARG_DURABLE), -1);
    check_error(&args, "durable", "the field \"durable\" has no place");

    assert_int_equal(read_body(&args, text_of("{\"durable\":\"1\"}"),
                               ZKL_ARG_DURABLE), 0);
    assert_int_equal(args.given, ZKL_ARG_DURABLE);

    assert_int_equal(read_query(&args, text_of("wait=1"), 0), -1);
    assert_int_equal(read_body(&args, text_of("{}"), 0), 0);
}


static void
test_body(void **state)
{
    zkl_args_t  args;

    static const char  text[] =
        " {\"wait\" : \"10s\", \"ttl\":1.5,\"mode\":\"shared\",\r\n"
        "\"owner\":\"J\\u00fcrgen \xc3\xbc \\ud83d\\udd12 \\\"\\/\","
        "\"hold\":\"connection\","
        "\"data\": { \"a\" : [ 1e400, \"\xc3\xbc\\u00fc\" ] } }\n";

    (void) state;

    assert_int_equal(read_body(&args, text_of(text), ALL), 0);

    assert_int_equal(args.given, OLD);
    assert_int_equal(args.wait, 10000);
    assert_int_equal(args.ttl, 1500);
    assert_string_equal(args.mode, "shared");
    assert_int_equal(args.mode_len, 6);
    assert_string_equal(args.hold, "connection");
    assert_int_equal(args.hold_len, 10);
    assert_string_equal(args.owner, "J\xc3\xbcrgen \xc3\xbc "
                                    "\xf0\x9f\x94\x92 \"/");
    assert_int_equal(args.owner_len, strlen(args.owner));
    assert_string_equal(args.data, "{\"a\":[1e400,\"\xc3\xbc\xc3\xbc\"]}");
    assert_int_equal(args.data_len, strlen(args.data));
}


static void
test_body_of_new_fields(void **state)
{
    zkl_args_t  args;

    static const char  text[] =
        "{\"permits\":305,\"until\":\"free\",\"prefix\":\"a/\\u00fc\","
        "\"limit\":\"7\",\"after\":\"Az09-_\",\"force\":1,\"revoke\":\"1\","
        "\"durable\":1,\"holders\":1,\"sort\":\"waiting\","
        "\"names\":[\"b\", \"a b\" ,\"\\u00fc\",\"aa\",\"a\",\"B\"],"
        "\"mode\":\"semaphore\"}";

    (void) state;

    assert_int_equal(read_body(&args, text_of(text), ALL), 0);

    assert_int_equal(args.given, NEW|ZKL_ARG_NAMES|ZKL_ARG_MODE);
    assert_int_equal(args.permits, 305);
    assert_string_equal(args.until, "free");
    assert_int_equal(args.until_len, 4);
    assert_string_equal(args.prefix, "a/\xc3\xbc");
    assert_int_equal(args.prefix_len, strlen(args.prefix));
    assert_int_equal(args.limit, 7);
    assert_string_equal(args.after, "Az09-_");
    assert_int_equal(args.after_len, 6);
    assert_string_equal(args.mode, "semaphore");
    assert_int_equal(args.holders, 1);
    assert_string_equal(args.sort, "waiting");

    assert_string_equal(args.names, "B/a/a b/aa/b/\xc3\xbc");
    assert_int_equal(args.names_len, strlen(args.names));
    assert_int_equal(args.nnames, 6);

    assert_int_equal(read_body(&args, text_of("{\"permits\":\"1000\"}"),
                               ALL), 0);
    assert_int_equal(args.permits, 1000);

    assert_int_equal(read_body(&args, text_of("{\"names\":[\"a\"]}"), ALL), 0);
    assert_int_equal(args.given, ZKL_ARG_NAMES);
    assert_string_equal(args.names, "a");
    assert_int_equal(args.nnames, 1);

    /* the names of another body replace the names of the first body */

    assert_int_equal(add_body(&args, text_of("{\"names\":[\"c\",\"b\"]}"),
                              ALL), 0);
    assert_string_equal(args.names, "b/c");
    assert_int_equal(args.names_len, 3);
    assert_int_equal(args.nnames, 2);

    assert_int_equal(add_body(&args, text_of("{\"names\":[\"d\"]}"), ALL),
                     0);
    assert_string_equal(args.names, "d");
    assert_int_equal(args.nnames, 1);

    assert_int_equal(read_body(&args, text_of("{\"names\":[\"a\"]}"),
                               ALL & ~(unsigned) ZKL_ARG_NAMES), -1);
    check_error(&args, "names", "the field \"names\" has no place");
    assert_int_equal(args.nnames, 0);
}


/* names in any order of arrival are sorted by bytes */

static void
test_names_are_sorted(void **state)
{
    char        text[100];
    size_t      at, i, k, n, rest, used;
    zkl_args_t  args;

    static const char  *names[] = { "a", "a b", "a.", "a0", "\xc3\xa4" };

    (void) state;

    for (i = 0; i < 120; i++) {
        rest = i;
        used = 0;
        strcpy(text, "{\"names\":[");

        for (n = 5; n != 0; n--) {
            k = rest % n;
            rest /= n;

            /* the k-th of the names that are left */

            for (at = 0; k != 0 || (used & 1U << at); at++) {
                k -= !(used & 1U << at);
            }

            used |= 1U << at;

            strcat(text, "\"");
            strcat(text, names[at]);
            strcat(text, (n == 1) ? "\"]}" : "\",");
        }

        assert_int_equal(read_body(&args, text, strlen(text), ALL), 0);
        assert_string_equal(args.names, "a/a b/a./a0/\xc3\xa4");
        assert_int_equal(args.nnames, 5);
    }
}


/* n names of len bytes, and a further name of `last` bytes if not 0 */

static int
read_names(zkl_args_t *args, size_t n, size_t len, size_t last)
{
    char    *text, *p;
    int      rc;
    size_t   i;

    text = malloc(n * (len + 3) + last + 20);
    assert_non_null(text);

    p = text + sprintf(text, "{\"names\":[");

    for (i = 0; i < n; i++) {
        p += sprintf(p, "\"%0*zu\",", (int) len, n - i);
    }

    if (last != 0) {
        p += sprintf(p, "\"%0*d\",", (int) last, 0);
    }

    p += sprintf(p - 1, "]}") - 1;

    rc = read_body(args, text, (size_t) (p - text), ALL);

    free(text);

    return rc;
}


static void
test_names_limits(void **state)
{
    zkl_args_t  args;

    (void) state;

    assert_int_equal(read_names(&args, 32, 2, 0), 0);
    assert_int_equal(args.nnames, 32);
    assert_int_equal(args.names_len, 32 * 3 - 1);
    assert_memory_equal(args.names, "01/02/03/", 9);
    assert_string_equal(args.names + 31 * 3, "32");

    assert_int_equal(read_names(&args, 33, 2, 0), -1);
    check_error(&args, "33", "\"names\" has more than 32 names in it, \"01\""
                             " is one too many");

    /* 2048 bytes */

    assert_int_equal(read_names(&args, 32, 64, 0), 0);
    assert_int_equal(args.nnames, 32);
    assert_int_equal(args.names_len, ZKL_NAMES_LEN);
    assert_int_equal(strlen(args.names), ZKL_NAMES_LEN);

    assert_int_equal(read_names(&args, 31, 64, 65), -1);
    check_error(&args, "65", "\"names\" has more than 2048 bytes of names in"
                             " it, \"000000000000");

    assert_int_equal(read_names(&args, 10, 200, 48), 0);
    assert_int_equal(args.names_len, 2048 + 10);

    assert_int_equal(read_names(&args, 10, 200, 49), -1);
    check_error(&args, "49", "more than 2048 bytes");

    assert_int_equal(read_names(&args, 1, 2048, 0), 0);
    assert_int_equal(args.names_len, 2048);
    assert_int_equal(read_names(&args, 1, 2049, 0), -1);
    check_error(&args, "2049", "more than 2048 bytes");
}


static void
test_empty_body(void **state)
{
    zkl_args_t  args;

    (void) state;

    assert_int_equal(read_body(&args, "", 0, ALL), 0);
    assert_int_equal(args.given, 0);
    assert_int_equal(read_body(&args, text_of(" \r\n\t "), ALL), 0);
    assert_int_equal(args.given, 0);
    assert_int_equal(read_body(&args, text_of(" {} \n"), ALL), 0);
    assert_int_equal(args.given, 0);
}


static void
test_body_wins(void **state)
{
    zkl_args_t  args;

    (void) state;

    assert_int_equal(read_query(&args,
                                text_of("wait=1&owner=long+name&mode=read"
                                        "&data={\"from\":\"query\"}"),
                                ALL), 0);
    assert_int_equal(add_body(&args, text_of("{\"data\":[7],\"owner\":\"me\","
                                      "\"wait\":0,\"ttl\":9}"), ALL), 0);

    assert_string_equal(args.data, "[7]");
    assert_int_equal(args.data_len, 3);
    assert_string_equal(args.owner, "me");
    assert_int_equal(args.owner_len, 2);
    assert_string_equal(args.mode, "read");
    assert_int_equal(args.wait, 0);
    assert_int_equal(args.ttl, 9000);
}


static void
test_body_refusals(void **state)
{
    zkl_args_t        args;
    const refusal_t  *r;

    (void) state;

    for (r = body_refusals; r->text != NULL; r++) {
        if (read_body(&args, r->text, r->len, ALL) != -1) {
            fail_msg("%s: taken", r->text);
        }

        check_error(&args, r->text, r->error);
    }
}


/* a name of any length, of any bytes, leaves a sentence to show */

static void
test_error_of_long_names(void **state)
{
    char        text[400];
    size_t      i, k, n;
    zkl_args_t  args;

    static const char  *chars[] = {
        "a", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x94\x92", "\x7f"
    };

    (void) state;

    for (i = 0; i < sizeof(chars) / sizeof(chars[0]); i++) {
        for (n = 0; n < 80; n++) {
            strcpy(text, "{\"");

            for (k = 0; k < n; k++) {
                strcat(text, (k % 7 == 3) ? "b" : chars[i]);
            }

            strcat(text, "\":1}");

            assert_int_equal(read_body(&args, text, strlen(text), ALL),
                             -1);
            check_error(&args, text, "unknown field \"");
            assert_int_equal(args.error[strlen(args.error) - 1], '"');
        }
    }
}


static void
test_data(void **state)
{
    char                text[1000], *p;
    size_t              i;
    const char         *compact;
    zkl_args_t          args;
    const data_case_t  *c;

    (void) state;

    for (c = data_cases; c->text != NULL; c++) {
        compact = (c->compact != NULL) ? c->compact : c->text;

        (void) snprintf(text, sizeof(text), "{\"data\":%s,\"ttl\":1}",
                        c->text);

        assert_int_equal(read_body(&args, text, strlen(text), ALL), 0);
        assert_string_equal(args.data, compact);
        assert_int_equal(args.data_len, strlen(compact));
        assert_int_equal(args.ttl, 1000);

        p = text + sprintf(text, "data=");

        for (i = 0; c->text[i] != '\0'; i++) {
            p += sprintf(p, "%%%02x", (unsigned char) c->text[i]);
        }

        assert_int_equal(read_query(&args, text, strlen(text), ALL), 0);
        assert_string_equal(args.data, compact);
        assert_int_equal(args.given, ZKL_ARG_DATA);
    }
}


static void
test_data_limit(void **state)
{
    char        text[ZKL_DATA_MAX + 100];
    size_t      len;
    zkl_args_t  args;

    (void) state;

    /* with the last bracket, data is a byte too long */

    memset(text, 'a', sizeof(text));
    memcpy(text, "{\"data\":[\"", 10);
    memcpy(text + 10 + ZKL_DATA_MAX - 3, "\"]}", 4);

    assert_int_equal(read_body(&args, text, strlen(text), ALL), -1);
    check_error(&args, "data", "\"data\" is longer than 1024 bytes");

    /* a string of n bytes is n + 2 bytes of JSON */

    for  (len = ZKL_DATA_MAX - 1; len <= ZKL_DATA_MAX + 1; len++) {
        memset(text, 'a', sizeof(text));
        memcpy(text, "{\"data\":\"", 9);
        memcpy(text + 9 + len - 2, "\"}", 3);

        if (len <= ZKL_DATA_MAX) {
            assert_int_equal(read_body(&args, text, strlen(text), ALL), 0);
            assert_int_equal(args.data_len, len);
            assert_int_equal(strlen(args.data), len);

        } else {
            assert_int_equal(read_body(&args, text, strlen(text), ALL),
                             -1);
            check_error(&args, "data", "\"data\" is longer than 1024 bytes");
        }

        memset(text, '7', sizeof(text));
        memcpy(text, "data=", 5);

        assert_int_equal(read_query(&args, text, 5 + len, ALL),
                         len <= ZKL_DATA_MAX ? 0 : -1);
    }
}


/* white space does not count for data, but a text has a limit */

static void
test_long_texts(void **state)
{
    char        text[ZKL_JSON_MAX + 2];
    size_t      len;
    zkl_args_t  args;

    (void) state;

    len = ZKL_JSON_MAX;

    memset(text, ' ', len + 1);
    memcpy(text, "{\"data\":[", 9);
    memcpy(text + len - 13, "1],\"ttl\":\"5\"}", 13);
    assert_int_equal(read_body(&args, text, len, ALL), 0);
    assert_string_equal(args.data, "[1]");
    assert_int_equal(args.ttl, 5000);

    assert_int_equal(read_body(&args, text, len + 1, ALL), -1);
    check_error(&args, "long", "the body is longer than 8192 bytes");

    /* the longest strings, with and without an end, of any kind */

    memset(text, 'a', len);
    memcpy(text, "{\"owner\":\"", 10);
    assert_int_equal(read_body(&args, text, len, ALL), -1);
    check_error(&args, "owner", "the body is not valid JSON (premature EOF)");

    memcpy(text + len - 4, "\\n\"}", 4);
    assert_int_equal(read_body(&args, text, len, ALL), -1);
    check_error(&args, "owner", "\"owner\" takes a string");

    memset(text, '1', len);
    memcpy(text, "{\"ttl\":", 7);
    text[len - 1] = '}';
    assert_int_equal(read_body(&args, text, len, ALL), -1);
    check_error(&args, "ttl", "\"ttl\" takes a duration");

    memset(text, '1', len + 1);
    memcpy(text, "data=", 5);
    assert_int_equal(read_query(&args, text, len + 1, ALL), -1);
    check_error(&args, "data", "\"data\" is longer than 1024 bytes");

    /* the longest string that fits into data: escapes of six bytes */

    len = 0;
    len += (size_t) sprintf(text, "{\"data\":\"");

    while (len < 9 + 6 * (ZKL_DATA_MAX - 2)) {
        len += (size_t) sprintf(text + len, "\\u0041");
    }

    len += (size_t) sprintf(text + len, "\"}");

    assert_int_equal(read_body(&args, text, len, ALL), 0);
    assert_int_equal(args.data_len, ZKL_DATA_MAX);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_query_of_operators),
        cmocka_unit_test(test_query_of_little),
        cmocka_unit_test(test_query_refusals),
        cmocka_unit_test(test_not_allowed),
        cmocka_unit_test(test_body),
        cmocka_unit_test(test_body_of_new_fields),
        cmocka_unit_test(test_names_are_sorted),
        cmocka_unit_test(test_names_limits),
        cmocka_unit_test(test_empty_body),
        cmocka_unit_test(test_body_wins),
        cmocka_unit_test(test_body_refusals),
        cmocka_unit_test(test_error_of_long_names),
        cmocka_unit_test(test_data),
        cmocka_unit_test(test_data_limit),
        cmocka_unit_test(test_long_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
