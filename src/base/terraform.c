
/*
 * Terraform's lock information.  The body is read once for the members that
 * this module uses, and, if there is an ID, once more for data.  Terraform
 * compares names of members without regard to case, but writes the names as
 * zkl_terraform_token() has the names.
 *
 * The file owns no memory.  Any thread may call the functions.  text may be
 * NULL only with a length of 0.
 */


#include <stdio.h>
#include <string.h>

#include "base/terraform.h"
#include "base/json.h"
#include "base/name.h"


typedef struct {
    zkl_terraform_t     *t;
    unsigned             id:1;      /* the next value is that of "ID" */
    unsigned             who:1;     /* the next value is that of "Who" */
    unsigned             has_id:1;
} zkl_terraform_ctx_t;


static int zkl_terraform_token(zkl_json_reader_t *r, zkl_type_e type,
    const char *text, size_t len);
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

    r.token = zkl_terraform_token;
    r.owner = &ctx;
    r.what = "the body";
    r.copied = r.what;
    r.data = t->data;
    r.data_len = &t->data_len;
    r.error = t->error;

    if (zkl_json_read(&r, text, len) != 0) {
        return -1;
    }

    if (t->id_len == 0) {
        return 1;
    }

    r.token = NULL;

    if (zkl_json_read(&r, text, len) != 0) {
        t->too_large = r.too_large;
        return -1;
    }

    return 0;
}


static int
zkl_terraform_token(zkl_json_reader_t *r, zkl_type_e type, const char *text,
    size_t len)
{
    zkl_terraform_ctx_t  *ctx = r->owner;

    zkl_terraform_t  *t;

    t = ctx->t;

    if (r->depth != 1) {
        return 0;
    }

    if (type == ZKL_KEY) {
        ctx->id = (len == 2 && memcmp(text, "ID", 2) == 0);
        ctx->who = (len == 3 && memcmp(text, "Who", 3) == 0);

        if (ctx->id && ctx->has_id) {
            return zkl_terraform_error(t, "\"ID\" is there twice");
        }

        ctx->has_id |= ctx->id;

        return 0;
    }

    if (type != ZKL_STRING) {
        return 0;
    }

    if (ctx->who) {

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
    }

    if (ctx->id) {

        if (len > ZKL_TERRAFORM_ID_MAX || !zkl_text_shown_check(text, len)) {
            return zkl_terraform_error(t, "\"ID\" takes a string of at most"
                                       " 255 bytes of UTF-8 without control"
                                       " characters");
        }

        memcpy(t->id, text, len);
        t->id_len = len;
    }

    return 0;
}


static int
zkl_terraform_error(zkl_terraform_t *t, const char *text)
{
    (void) snprintf(t->error, sizeof(t->error), "%s", text);

    return -1;
}
