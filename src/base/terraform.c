
/*
 * Terraform's lock information.  The body is read once for the members that
 * this module uses, and, if there is an ID, once more for data.  Terraform
 * compares names of members without regard to case, but writes the names as
 * zkl_terraform_key() has the names.
 *
 * The file owns no memory.  Any thread may call the functions.  text may be
 * NULL only with a length of 0.
 */


#include <stdio.h>
#include <string.h>

#include "base/terraform.h"
#include "base/json.h"
#include "base/name.h"


typedef enum {
    ZKL_TERRAFORM_ID = 0,
    ZKL_TERRAFORM_WHO
} zkl_terraform_field_e;

typedef struct {
    zkl_terraform_t             *t;
    zkl_terraform_field_e        field;     /* of the next value */
    unsigned                     has_id:1;
} zkl_terraform_ctx_t;


static int zkl_terraform_pass(zkl_terraform_t *t, zkl_json_reader_t *r,
    const char *text, size_t len);
static zkl_value_e zkl_terraform_key(void *data, const char *name, size_t len);
static int zkl_terraform_set(void *data, zkl_type_e type, const char *text,
    size_t len);
static int zkl_terraform_error(zkl_terraform_t *t, const char *text);


int
zkl_terraform_read(zkl_terraform_t *t, const char *text, size_t len)
{
    zkl_json_reader_t    r;
    zkl_terraform_ctx_t  ctx;

    memset(t, 0, sizeof(zkl_terraform_t));
    memset(&ctx, 0, sizeof(zkl_terraform_ctx_t));
    memset(&r, 0, sizeof(zkl_json_reader_t));

    ctx.t = t;

    r.key = zkl_terraform_key;
    r.set = zkl_terraform_set;
    r.owner = &ctx;

    if (zkl_terraform_pass(t, &r, text, len) != 0) {
        return -1;
    }

    if (t->id_len == 0) {
        return 1;
    }

    memset(&r, 0, sizeof(zkl_json_reader_t));

    if (zkl_terraform_pass(t, &r, text, len) != 0) {
        t->too_large = r.overflow;
        return -1;
    }

    return 0;
}


static int
zkl_terraform_pass(zkl_terraform_t *t, zkl_json_reader_t *r, const char *text,
    size_t len)
{
    char  memory[ZKL_JSON_READER_MEMORY];

    r->what = "the body";
    r->data = t->data;
    r->data_len = &t->data_len;
    r->error = t->error;

    if (zkl_json_reader_open(r, memory, sizeof(memory)) != 0) {
        return zkl_terraform_error(t, "no memory");
    }

    (void) zkl_json_reader_feed(r, text, len);

    return zkl_json_reader_close(r);
}


static zkl_value_e
zkl_terraform_key(void *data, const char *name, size_t len)
{
    zkl_terraform_ctx_t  *ctx = data;

    if (len == 2 && memcmp(name, "ID", 2) == 0) {

        if (ctx->has_id) {
            (void) zkl_terraform_error(ctx->t, "\"ID\" is there twice");
            return ZKL_VALUE_NONE;
        }

        ctx->has_id = 1;
        ctx->field = ZKL_TERRAFORM_ID;

        return ZKL_VALUE_STRING;
    }

    if (len == 3 && memcmp(name, "Who", 3) == 0) {
        ctx->field = ZKL_TERRAFORM_WHO;
        return ZKL_VALUE_STRING;
    }

    return ZKL_VALUE_SKIPPED;
}


/* type is ZKL_STRING */

static int
zkl_terraform_set(void *data, zkl_type_e type, const char *text, size_t len)
{
    zkl_terraform_ctx_t  *ctx = data;

    zkl_terraform_t  *t;

    (void) type;

    t = ctx->t;

    if (ctx->field == ZKL_TERRAFORM_WHO) {

        /* the last "Who" counts, as for Terraform */

        t->who_len = 0;
        t->who[0] = '\0';

        if (len != 0 && len <= ZKL_OWNER_MAX
            && zkl_text_shown_check(text, len))
        {
            memcpy(t->who, text, len);
            t->who[len] = '\0';
            t->who_len = len;
        }

        return 0;
    }

    if (len > ZKL_TERRAFORM_ID_MAX || !zkl_text_shown_check(text, len)) {
        return zkl_terraform_error(t, "\"ID\" takes a string of at most"
                                   " 255 bytes of UTF-8 without control"
                                   " characters");
    }

    memcpy(t->id, text, len);
    t->id_len = len;

    return 0;
}


static int
zkl_terraform_error(zkl_terraform_t *t, const char *text)
{
    (void) snprintf(t->error, sizeof(t->error), "%s", text);

    return -1;
}
