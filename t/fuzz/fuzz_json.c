
/*
 * The reader of JSON, Terraform's object, and the writer.
 *
 * - A value is taken exactly if the naive reader takes the value, and the value
 *   is not too deep or too long.  The copy is the naive reader's, byte by byte.
 * - A copy is copied again unchanged.
 * - All members that are read of Terraform's object are the naive reader's.
 * - The writer writes an object as the naive reader's compact text, which the
 *   naive reader reads again.
 */


#include <string.h>

#include "fuzz.h"
#include "naive_json.h"
#include "base/json.h"
#include "base/name.h"
#include "base/terraform.h"


static naive_json_t  naive, again;


static void check_value(const char *text, size_t len);
static int copy_value(char *data, size_t *data_len, const char *text,
    size_t len);
static void check_terraform(const char *text, size_t len);
static void check_writer(void);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char  *text;

    if (size > 2048) {
        return 0;
    }

    text = fuzz_block(data, size);

    naive_json(&naive, text, size);

    check_value(text, size);
    check_terraform(text, size);

    if (naive.valid && naive.type == '{') {
        check_writer();
    }

    fuzz_block_free(text);

    return 0;
}


static void
check_value(const char *text, size_t len)
{
    int      rc, ok;
    char    *data;
    size_t   n;

    data = fuzz_block(NULL, ZKL_DATA_MAX + 1);

    ok = naive.valid && naive.depth <= ZKL_DATA_DEPTH
         && naive.len <= ZKL_DATA_MAX;

    rc = copy_value(data, &n, text, len);

    rule((rc == 0) == ok, "%.*s: read says %d", (int) len, text, rc);
    rule(n <= ZKL_DATA_MAX, "%zu bytes", n);

    if (rc == 0) {
        rule(n == naive.len && memcmp(data, naive.compact, n) == 0,
             "%.*s is copied", (int) n, data);
        rule(data[n] == '\0', "no NUL");

        rc = copy_value(data, &n, naive.compact, naive.len);

        rule(rc == 0 && n == naive.len
             && memcmp(data, naive.compact, n) == 0, "is not stable");
    }

    fuzz_block_free(data);
}


static int
copy_value(char *data, size_t *data_len, const char *text, size_t len)
{
    int                rc;
    char              *error;
    size_t             n;
    zkl_json_reader_t  r;

    memset(&r, 0, sizeof(r));

    error = fuzz_block(NULL, ZKL_ERROR_MAX);
    error[0] = '\0';

    *data_len = 0;

    r.what = "the value";
    r.copied = r.what;
    r.data = data;
    r.data_len = data_len;
    r.error = error;

    rc = zkl_json_read(&r, text, len);

    if (rc != 0) {
        n = strnlen(error, ZKL_ERROR_MAX);
        rule(n != 0 && n < ZKL_ERROR_MAX - 1, "%zu bytes of error", n);
        rule(naive_shown(error, n), "an error that cannot be shown");
    }

    fuzz_block_free(error);

    return rc;
}


static void
check_terraform(const char *text, size_t len)
{
    int               rc, expected, ids, too_long;
    size_t            i;
    naive_member_t   *m, *id, *who;
    zkl_terraform_t  *t;

    id = NULL;
    who = NULL;
    ids = 0;

    expected = naive.valid && naive.type == '{' ? 0 : -1;

    for (i = 0; i < naive.nmembers; i++) {
        m = &naive.members[i];

        if (m->name_len == 2 && memcmp(m->name, "ID", 2) == 0) {
            ids++;
            id = (m->type == '"' && m->len != 0) ? m : NULL;

        } else if (m->name_len == 3 && memcmp(m->name, "Who", 3) == 0
                   && m->type == '"')
        {
            who = m;
        }
    }

    if (expected == 0) {
        too_long = id != NULL && (id->len > 255
                                  || !naive_shown(id->text, id->len));

        if (naive.depth > ZKL_DATA_DEPTH + 1 || ids > 1 || too_long) {
            expected = -1;

        } else if (id == NULL) {
            expected = 1;

        } else if (naive.depth > ZKL_DATA_DEPTH || naive.len > ZKL_DATA_MAX)
        {
            expected = -1;
        }
    }

    t = fuzz_block(NULL, sizeof(zkl_terraform_t));
    rc = zkl_terraform_read(t, text, len);

    rule(rc == expected, "%.*s: terraform says %d", (int) len, text, rc);

    if (rc == 0) {
        rule(t->id_len == id->len
             && memcmp(t->id, id->text, id->len) == 0
             && t->id[t->id_len] == '\0', "another ID");
        rule(t->data_len == naive.len
             && memcmp(t->data, naive.compact, naive.len) == 0
             && t->data[t->data_len] == '\0', "other data");

        if (who == NULL || who->len > ZKL_OWNER_MAX
            || !naive_shown(who->text, who->len))
        {
            rule(t->who_len == 0, "somebody");

        } else {
            rule(t->who_len == who->len
                 && memcmp(t->who, who->text, who->len) == 0, "somebody else");
        }

    } else if (rc == -1) {
        i = strnlen(t->error, ZKL_ERROR_MAX);
        rule(i != 0 && i < ZKL_ERROR_MAX - 1
             && naive_shown(t->error, i), "an error of %zu bytes", i);
        rule(!t->too_large || (naive.len > ZKL_DATA_MAX), "too large?");
    }

    fuzz_block_free(t);
}


/* writes strings as strings, and other values as raw JSON */

static void
check_writer(void)
{
    char            *key;
    size_t           i, n;
    const char      *text;
    naive_member_t  *m;
    zkl_json_t      *json;

    json = zkl_json_open();
    rule(json != NULL, "no memory");

    for (i = 0; i < naive.nmembers; i++) {
        m = &naive.members[i];

        if (memchr(m->name, '\0', m->name_len) != NULL) {
            zkl_json_close(json);
            return;
        }

        key = fuzz_block(NULL, m->name_len + 1);
        memcpy(key, m->name, m->name_len);
        key[m->name_len] = '\0';

        if (m->type == '"') {
            zkl_json_string(json, key, m->text, m->len);

        } else {
            zkl_json_raw(json, key, m->text, m->len);
        }

        fuzz_block_free(key);
    }

    text = zkl_json_text(json, &n);
    rule(text != NULL, "nothing was written");

    rule(n == naive.len && memcmp(text, naive.compact, n) == 0,
         "%.*s was written", (int) n, text);

    naive_json(&again, text, n < NAIVE_TEXT ? n : 0);
    rule(again.valid || n >= NAIVE_TEXT, "no JSON was written");

    zkl_json_close(json);
}
