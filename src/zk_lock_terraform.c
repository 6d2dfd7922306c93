
/*
 * Terraform's lock information, read twice: once for the members that matter
 * here, and, if it is Terraform's at all, once more to be kept.  The client of
 * the other end compares names of members without regard to case, but writes
 * them as they are here.
 *
 * Owns nothing, allocates nothing that outlives a call, and runs on any thread.
 * text may be NULL only beside a length of 0.
 */


#include <stdio.h>
#include <string.h>

#include "zk_lock_json.h"
#include "zk_lock_name.h"
#include "zk_lock_terraform.h"


typedef enum {
    ZK_LOCK_TERRAFORM_ID = 0,
    ZK_LOCK_TERRAFORM_WHO
} zk_lock_terraform_field_e;


typedef struct {
    zk_lock_terraform_t         *t;
    zk_lock_terraform_field_e    field;     /* whose value comes next */
    unsigned                     has_id:1;
} zk_lock_terraform_ctx_t;


static int zk_lock_terraform_pass(zk_lock_terraform_t *t, zk_lock_reader_t *r,
    const char *text, size_t len);
static zk_lock_value_e zk_lock_terraform_key(void *data, const char *name,
    size_t len);
static int zk_lock_terraform_set(void *data, zk_lock_type_e type,
    const char *text, size_t len);
static int zk_lock_terraform_error(zk_lock_terraform_t *t, const char *text);


int
zk_lock_terraform_read(zk_lock_terraform_t *t, const char *text, size_t len)
{
    zk_lock_reader_t         r;
    zk_lock_terraform_ctx_t  ctx;

    memset(t, 0, sizeof(zk_lock_terraform_t));
    memset(&ctx, 0, sizeof(zk_lock_terraform_ctx_t));
    memset(&r, 0, sizeof(zk_lock_reader_t));

    ctx.t = t;

    r.key = zk_lock_terraform_key;
    r.set = zk_lock_terraform_set;
    r.owner = &ctx;

    if (zk_lock_terraform_pass(t, &r, text, len) != 0) {
        return -1;
    }

    if (t->id_len == 0) {
        return 1;
    }

    memset(&r, 0, sizeof(zk_lock_reader_t));

    if (zk_lock_terraform_pass(t, &r, text, len) != 0) {
        t->too_large = r.overflow;
        return -1;
    }

    return 0;
}


static int
zk_lock_terraform_pass(zk_lock_terraform_t *t, zk_lock_reader_t *r,
    const char *text, size_t len)
{
    char  memory[ZK_LOCK_READER_MEMORY];

    r->what = "the body";
    r->data = t->data;
    r->data_len = &t->data_len;
    r->error = t->error;

    if (zk_lock_reader_open(r, memory, sizeof(memory)) != 0) {
        return zk_lock_terraform_error(t, "no memory");
    }

    (void) zk_lock_reader_feed(r, text, len);

    return zk_lock_reader_close(r);
}


static zk_lock_value_e
zk_lock_terraform_key(void *data, const char *name, size_t len)
{
    zk_lock_terraform_ctx_t *ctx = data;

    if (len == 2 && memcmp(name, "ID", 2) == 0) {

        if (ctx->has_id) {
            (void) zk_lock_terraform_error(ctx->t, "\"ID\" is there twice");
            return ZK_LOCK_VALUE_NONE;
        }

        ctx->has_id = 1;
        ctx->field = ZK_LOCK_TERRAFORM_ID;

        return ZK_LOCK_VALUE_STRING;
    }

    if (len == 3 && memcmp(name, "Who", 3) == 0) {
        ctx->field = ZK_LOCK_TERRAFORM_WHO;
        return ZK_LOCK_VALUE_STRING;
    }

    return ZK_LOCK_VALUE_SKIPPED;
}


/* type is ZK_LOCK_STRING */

static int
zk_lock_terraform_set(void *data, zk_lock_type_e type, const char *text,
    size_t len)
{
    zk_lock_terraform_ctx_t *ctx = data;

    zk_lock_terraform_t  *t;

    (void) type;

    t = ctx->t;

    if (ctx->field == ZK_LOCK_TERRAFORM_WHO) {

        /* of two, the last one counts, as it does for the client */

        t->who_len = 0;
        t->who[0] = '\0';

        if (len != 0 && len <= ZK_LOCK_OWNER_MAX
            && zk_lock_shown_check(text, len))
        {
            memcpy(t->who, text, len);
            t->who[len] = '\0';
            t->who_len = len;
        }

        return 0;
    }

    if (len > ZK_LOCK_TERRAFORM_ID_MAX || !zk_lock_shown_check(text, len)) {
        return zk_lock_terraform_error(t, "\"ID\" takes a string of at most"
                                       " 255 bytes of UTF-8 without control"
                                       " characters");
    }

    memcpy(t->id, text, len);
    t->id_len = len;

    return 0;
}


static int
zk_lock_terraform_error(zk_lock_terraform_t *t, const char *text)
{
    (void) snprintf(t->error, sizeof(t->error), "%s", text);

    return -1;
}
