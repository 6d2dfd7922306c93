
/*
 * Labels.  The first line is anybody's; the JSON behind it is a gateway's if it
 * has an index, and is taken as a whole or not at all.
 *
 * Owns nothing, allocates nothing that outlives a call, and runs on any thread.
 * A pointer may be NULL only beside a length of 0.
 */


#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "zk_lock_json.h"
#include "zk_lock_label.h"
#include "zk_lock_name.h"


/* what a reader takes for a text of at most ZK_LOCK_LABEL_MAX bytes */
#define ZK_LOCK_LABEL_MEMORY    8192


typedef enum {
    ZK_LOCK_LABEL_INDEX = 0,
    ZK_LOCK_LABEL_TTL,
    ZK_LOCK_LABEL_DATA,
    ZK_LOCK_LABEL_FIELDS
} zk_lock_label_field_e;


typedef struct {
    zk_lock_label_t         *label;
    zk_lock_label_field_e    field;     /* whose value comes next */
    unsigned                 seen[ZK_LOCK_LABEL_FIELDS];
} zk_lock_label_ctx_t;


static int zk_lock_label_json(zk_lock_label_t *label, const char *text,
    size_t len);
static zk_lock_value_e zk_lock_label_key(void *data, const char *name,
    size_t len);
static int zk_lock_label_set(void *data, zk_lock_type_e type,
    const char *text, size_t len);
static int zk_lock_label_index(zk_lock_label_t *label, zk_lock_type_e type,
    const char *text, size_t len);
static int zk_lock_label_ttl(zk_lock_label_t *label, zk_lock_type_e type,
    const char *text, size_t len);


static const char  *const zk_lock_label_names[] = {
    "index",
    "ttl",
    "data"
};


size_t
zk_lock_label_write(char *buf, const zk_lock_label_t *label, size_t *index_at)
{
    int   n, index;
    char  *p;

    p = buf;

    memcpy(p, label->owner, label->owner_len);
    p += label->owner_len;

    index = (label->index >= 0 && label->index <= 0xff) ? label->index : 0;

    *index_at = label->owner_len + sizeof("\n{\"index\":\"") - 1;

    n = snprintf(p, ZK_LOCK_LABEL_MAX - label->owner_len,
                 "\n{\"index\":\"%02x\",\"ttl\":%" PRId64, (unsigned) index,
                 label->ttl);
    if (n > 0) {
        p += n;
    }

    if (label->data_len != 0) {
        memcpy(p, ",\"data\":", sizeof(",\"data\":") - 1);
        p += sizeof(",\"data\":") - 1;

        memcpy(p, label->data, label->data_len);
        p += label->data_len;
    }

    *p++ = '}';

    return (size_t) (p - buf);
}


void
zk_lock_label_read(zk_lock_label_t *label, const char *text, size_t len)
{
    size_t       n;
    const char  *end;

    memset(label, 0, sizeof(zk_lock_label_t));
    label->index = -1;

    if (len == 0) {
        return;
    }

    end = memchr(text, '\n', len);
    n = (end != NULL) ? (size_t) (end - text) : len;

    if (n <= ZK_LOCK_OWNER_MAX && zk_lock_shown_check(text, n)) {
        memcpy(label->owner, text, n);
        label->owner_len = n;
    }

    if (end == NULL || len > ZK_LOCK_LABEL_MAX) {
        return;
    }

    if (zk_lock_label_json(label, end + 1, len - n - 1) != 0) {
        label->index = -1;
        label->ttl = 0;
        label->data_len = 0;
        label->data[0] = '\0';
    }
}


static int
zk_lock_label_json(zk_lock_label_t *label, const char *text, size_t len)
{
    char                 memory[ZK_LOCK_LABEL_MEMORY];
    zk_lock_reader_t     r;
    zk_lock_label_ctx_t  ctx;

    memset(&r, 0, sizeof(zk_lock_reader_t));
    memset(&ctx, 0, sizeof(zk_lock_label_ctx_t));

    ctx.label = label;

    r.key = zk_lock_label_key;
    r.set = zk_lock_label_set;
    r.owner = &ctx;
    r.what = "the label";
    r.data = label->data;
    r.data_len = &label->data_len;

    if (zk_lock_reader_open(&r, memory, sizeof(memory)) != 0) {
        return -1;
    }

    (void) zk_lock_reader_feed(&r, text, len);

    if (zk_lock_reader_close(&r) != 0) {
        return -1;
    }

    return ctx.seen[ZK_LOCK_LABEL_INDEX] ? 0 : -1;
}


static zk_lock_value_e
zk_lock_label_key(void *data, const char *name, size_t len)
{
    zk_lock_label_ctx_t *ctx = data;

    unsigned     i;
    const char  *known;

    for (i = 0; i < ZK_LOCK_LABEL_FIELDS; i++) {
        known = zk_lock_label_names[i];

        if (len == strlen(known) && memcmp(name, known, len) == 0) {
            break;
        }
    }

    if (i == ZK_LOCK_LABEL_FIELDS) {
        /* a newer gateway may have more to say */
        return ZK_LOCK_VALUE_SKIPPED;
    }

    if (ctx->seen[i]) {
        return ZK_LOCK_VALUE_NONE;
    }

    ctx->seen[i] = 1;
    ctx->field = i;

    return (i == ZK_LOCK_LABEL_DATA) ? ZK_LOCK_VALUE_COPIED
                                     : ZK_LOCK_VALUE_SET;
}


static int
zk_lock_label_set(void *data, zk_lock_type_e type, const char *text,
    size_t len)
{
    zk_lock_label_ctx_t *ctx = data;

    if (ctx->field == ZK_LOCK_LABEL_INDEX) {
        return zk_lock_label_index(ctx->label, type, text, len);
    }

    return zk_lock_label_ttl(ctx->label, type, text, len);
}


static int
zk_lock_label_index(zk_lock_label_t *label, zk_lock_type_e type,
    const char *text, size_t len)
{
    int  high, low;

    if (type != ZK_LOCK_STRING || len != 2) {
        return -1;
    }

    high = zk_lock_hex_read(text[0]);
    low = zk_lock_hex_read(text[1]);

    if (high == -1 || low == -1) {
        return -1;
    }

    label->index = high << 4 | low;

    return 0;
}


static int
zk_lock_label_ttl(zk_lock_label_t *label, zk_lock_type_e type,
    const char *text, size_t len)
{
    size_t   i;
    int64_t  ttl;

    if (type != ZK_LOCK_NUMBER) {
        return -1;
    }

    ttl = 0;

    for (i = 0; i < len; i++) {

        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }

        ttl = ttl * 10 + (text[i] - '0');

        if (ttl > ZK_LOCK_DURATION_MAX) {
            return -1;
        }
    }

    label->ttl = ttl;

    return 0;
}
