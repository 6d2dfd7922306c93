
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

/* what a client of Curator's writes into a claim that it wants */
#define ZK_LOCK_LABEL_REVOKE    "__REVOKE__"

/* the digits of params */
#define ZK_LOCK_PARAMS_LEN      8


typedef enum {
    ZK_LOCK_LABEL_INDEX = 0,
    ZK_LOCK_LABEL_CLAIM,
    ZK_LOCK_LABEL_TTL,
    ZK_LOCK_LABEL_HOLDS,
    ZK_LOCK_LABEL_RENEWALS,
    ZK_LOCK_LABEL_MENDED,
    ZK_LOCK_LABEL_CZXID,
    ZK_LOCK_LABEL_GATE,
    ZK_LOCK_LABEL_PARAMS,
    ZK_LOCK_LABEL_ASYNC,
    ZK_LOCK_LABEL_REVOKED,
    ZK_LOCK_LABEL_WANT,
    ZK_LOCK_LABEL_FROM,
    ZK_LOCK_LABEL_DATA,
    ZK_LOCK_LABEL_FIELDS
} zk_lock_label_field_e;


typedef struct {
    zk_lock_label_t         *label;
    zk_lock_label_field_e    field;     /* whose value comes next */
    unsigned                 seen[ZK_LOCK_LABEL_FIELDS];
} zk_lock_label_ctx_t;


static char *zk_lock_label_text(char *p, const char *name, const char *text,
    size_t len);
static int zk_lock_label_json(zk_lock_label_t *label, const char *text,
    size_t len);
static zk_lock_value_e zk_lock_label_key(void *data, const char *name,
    size_t len);
static int zk_lock_label_set(void *data, zk_lock_type_e type,
    const char *text, size_t len);
static int zk_lock_label_string(zk_lock_label_t *label,
    zk_lock_label_field_e field, const char *text, size_t len);
static int zk_lock_label_number(zk_lock_label_t *label,
    zk_lock_label_field_e field, const char *text, size_t len);
static int zk_lock_label_boolean(zk_lock_label_t *label,
    zk_lock_label_field_e field, int value);
static int zk_lock_label_hex(uint32_t *value, const char *text, size_t len,
    size_t digits);
static int zk_lock_label_id_read(zk_lock_id_t *id, const char *text,
    size_t len);
static int zk_lock_label_want_check(const char *text, size_t len);
static int zk_lock_label_from_check(const char *text, size_t len);
static int zk_lock_label_gate_check(const char *text, size_t len);


static const char  *const zk_lock_label_names[] = {
    "index",
    "id",
    "ttl",
    "holds",
    "renewals",
    "mended",
    "czxid",
    "gate",
    "params",
    "async",
    "revoke",
    "want",
    "from",
    "data"
};


size_t
zk_lock_label_write(char *buf, const zk_lock_label_t *label, size_t *index_at)
{
    int   index;
    char  *p;

    p = buf;

    memcpy(p, label->owner, label->owner_len);
    p += label->owner_len;

    index = (label->index >= 0 && label->index <= 0xff) ? label->index : 0;

    *index_at = label->owner_len + sizeof("\n{\"index\":\"") - 1;

    /* all of it has room, whatever the numbers are */

    p += sprintf(p, "\n{\"index\":\"%02x\"", (unsigned) index);

    if (label->has_id) {
        p += sprintf(p, ",\"id\":\"");
        zk_lock_label_id(p, &label->id);
        p += ZK_LOCK_LABEL_ID;
        *p++ = '"';
    }

    p += sprintf(p, ",\"ttl\":%" PRId64, label->ttl);

    if (label->holds > 1) {
        p += sprintf(p, ",\"holds\":%" PRIu32, label->holds);
    }

    if (label->renewals != 0) {
        p += sprintf(p, ",\"renewals\":%" PRIu32, label->renewals);
    }

    if (label->mended != 0) {
        p += sprintf(p, ",\"mended\":%" PRIu32, label->mended);
    }

    if (label->czxid > 0 && label->czxid <= ZK_LOCK_CZXID_MAX) {
        p += sprintf(p, ",\"czxid\":%" PRId64, label->czxid);
    }

    if (zk_lock_label_gate_check(label->gate, label->gate_len)) {
        p = zk_lock_label_text(p, "gate", label->gate, label->gate_len);
    }

    if (label->has_params) {
        p += sprintf(p, ",\"params\":\"%08" PRIx32 "\"", label->params);
    }

    if (label->async) {
        p += sprintf(p, ",\"async\":true");
    }

    if (label->revoke) {
        p += sprintf(p, ",\"revoke\":true");
    }

    if (zk_lock_label_want_check(label->want, label->want_len)) {
        p = zk_lock_label_text(p, "want", label->want, label->want_len);
    }

    if (zk_lock_label_from_check(label->from, label->from_len)) {
        p = zk_lock_label_text(p, "from", label->from, label->from_len);
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


/* text has no control characters in it, so these two are all to be escaped */

static char *
zk_lock_label_text(char *p, const char *name, const char *text, size_t len)
{
    size_t  i;

    p += sprintf(p, ",\"%s\":\"", name);

    for (i = 0; i < len; i++) {

        if (text[i] == '"' || text[i] == '\\') {
            *p++ = '\\';
        }

        *p++ = text[i];
    }

    *p++ = '"';

    return p;
}


void
zk_lock_label_id(char *buf, const zk_lock_id_t *id)
{
    size_t   i;
    uint8_t  byte;

    static const char  hex[] = "0123456789abcdef";

    for (i = 0; i < ZK_LOCK_LABEL_ID / 2; i++) {

        byte = (i < ZK_LOCK_RANDOM_LEN)
               ? id->random[i]
               : (uint8_t) (id->record >> (8 * (15 - i)));

        *buf++ = hex[byte >> 4];
        *buf++ = hex[byte & 0xf];
    }
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

    if (len == sizeof(ZK_LOCK_LABEL_REVOKE) - 1
        && memcmp(text, ZK_LOCK_LABEL_REVOKE, len) == 0)
    {
        label->revoke = 1;
        return;
    }

    end = memchr(text, '\n', len);
    n = (end != NULL) ? (size_t) (end - text) : len;

    if (end != NULL && len <= ZK_LOCK_LABEL_MAX
        && zk_lock_label_json(label, end + 1, len - n - 1) != 0)
    {
        memset(label, 0, sizeof(zk_lock_label_t));
        label->index = -1;
    }

    if (n <= ZK_LOCK_OWNER_MAX && zk_lock_shown_check(text, n)) {
        memcpy(label->owner, text, n);
        label->owner_len = n;
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

    switch (type) {

    case ZK_LOCK_STRING:
        return zk_lock_label_string(ctx->label, ctx->field, text, len);

    case ZK_LOCK_NUMBER:
        return zk_lock_label_number(ctx->label, ctx->field, text, len);

    case ZK_LOCK_BOOLEAN:
        return zk_lock_label_boolean(ctx->label, ctx->field, text[0] == 't');

    default:
        return -1;
    }
}


static int
zk_lock_label_string(zk_lock_label_t *label, zk_lock_label_field_e field,
    const char *text, size_t len)
{
    uint32_t  value;

    switch (field) {

    case ZK_LOCK_LABEL_INDEX:
        if (zk_lock_label_hex(&value, text, len, 2) != 0) {
            return -1;
        }

        label->index = (int) value;
        return 0;

    case ZK_LOCK_LABEL_CLAIM:
        if (zk_lock_label_id_read(&label->id, text, len) != 0) {
            return -1;
        }

        label->has_id = 1;
        return 0;

    case ZK_LOCK_LABEL_PARAMS:
        if (zk_lock_label_hex(&value, text, len, ZK_LOCK_PARAMS_LEN) != 0) {
            return -1;
        }

        label->params = value;
        label->has_params = 1;
        return 0;

    case ZK_LOCK_LABEL_WANT:
        if (!zk_lock_label_want_check(text, len)) {
            return -1;
        }

        memcpy(label->want, text, len);
        label->want_len = len;
        return 0;

    case ZK_LOCK_LABEL_GATE:
        if (!zk_lock_label_gate_check(text, len)) {
            return -1;
        }

        memcpy(label->gate, text, len);
        label->gate_len = len;
        return 0;

    case ZK_LOCK_LABEL_FROM:
        if (!zk_lock_label_from_check(text, len)) {
            return -1;
        }

        memcpy(label->from, text, len);
        label->from_len = len;
        return 0;

    default:
        return -1;
    }
}


/* digits alone: no sign, no fraction, no exponent */

static int
zk_lock_label_number(zk_lock_label_t *label, zk_lock_label_field_e field,
    const char *text, size_t len)
{
    size_t   i;
    int64_t  max, value;

    switch (field) {

    case ZK_LOCK_LABEL_TTL:
        max = ZK_LOCK_DURATION_MAX;
        break;

    case ZK_LOCK_LABEL_CZXID:
        max = ZK_LOCK_CZXID_MAX;
        break;

    default:
        max = UINT32_MAX;
        break;
    }

    value = 0;

    for (i = 0; i < len; i++) {

        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }

        value = value * 10 + (text[i] - '0');

        if (value > max) {
            return -1;
        }
    }

    switch (field) {

    case ZK_LOCK_LABEL_TTL:
        label->ttl = value;
        return 0;

    case ZK_LOCK_LABEL_HOLDS:
        label->holds = (uint32_t) value;
        return 0;

    case ZK_LOCK_LABEL_RENEWALS:
        label->renewals = (uint32_t) value;
        return 0;

    case ZK_LOCK_LABEL_MENDED:
        label->mended = (uint32_t) value;
        return 0;

    case ZK_LOCK_LABEL_CZXID:
        label->czxid = value;
        return 0;

    default:
        return -1;
    }
}


static int
zk_lock_label_boolean(zk_lock_label_t *label, zk_lock_label_field_e field,
    int value)
{
    switch (field) {

    case ZK_LOCK_LABEL_ASYNC:
        label->async = (value != 0);
        return 0;

    case ZK_LOCK_LABEL_REVOKED:
        label->revoke = (value != 0);
        return 0;

    default:
        return -1;
    }
}


static int
zk_lock_label_hex(uint32_t *value, const char *text, size_t len,
    size_t digits)
{
    int       digit;
    size_t    i;
    uint32_t  bits;

    if (len != digits) {
        return -1;
    }

    bits = 0;

    for (i = 0; i < len; i++) {
        digit = zk_lock_hex_read(text[i]);
        if (digit == -1) {
            return -1;
        }

        bits = bits << 4 | (uint32_t) digit;
    }

    *value = bits;

    return 0;
}


static int
zk_lock_label_id_read(zk_lock_id_t *id, const char *text, size_t len)
{
    size_t    i;
    uint32_t  byte;

    if (len != ZK_LOCK_LABEL_ID) {
        return -1;
    }

    for (i = 0; i < ZK_LOCK_RANDOM_LEN; i++) {

        if (zk_lock_label_hex(&byte, text + 2 * i, 2, 2) != 0) {
            return -1;
        }

        id->random[i] = (uint8_t) byte;
    }

    return zk_lock_label_hex(&id->record, text + 2 * i, 8, 8);
}


static int
zk_lock_label_want_check(const char *text, size_t len)
{
    size_t  i;

    if (len == 0 || len > ZK_LOCK_WANT_MAX) {
        return 0;
    }

    for (i = 0; i < len; i++) {
        if (text[i] != '-'
            && (text[i] < 'a' || text[i] > 'z')
            && (text[i] < '0' || text[i] > '9'))
        {
            return 0;
        }
    }

    return 1;
}


static int
zk_lock_label_from_check(const char *text, size_t len)
{
    return len != 0 && len <= ZK_LOCK_FROM_MAX
           && zk_lock_shown_check(text, len);
}


static int
zk_lock_label_gate_check(const char *text, size_t len)
{
    size_t  i;

    if (len != ZK_LOCK_GATE_LEN) {
        return 0;
    }

    for (i = 0; i < len; i++) {
        if ((text[i] < '0' || text[i] > '9')
            && (text[i] < 'a' || text[i] > 'f'))
        {
            return 0;
        }
    }

    return 1;
}
