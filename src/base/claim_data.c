
/*
 * Claim data.  Any client may write the first line; the JSON behind the line
 * is a gateway's only if every known member is valid and there is an index.
 *
 * The file owns no memory.  Any thread may call the functions.  A pointer may
 * be NULL only with a length of 0.
 */


#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/claim_data.h"
#include "base/json.h"
#include "base/name.h"


/* the data by which a Curator client asks the holder to let go */
#define ZKL_CLAIM_DATA_REVOKE    "__REVOKE__"

/* hexadecimal digits of params */
#define ZKL_PARAMS_LEN          8

typedef enum {
    ZKL_CLAIM_DATA_INDEX = 0,
    ZKL_CLAIM_DATA_CLAIM,
    ZKL_CLAIM_DATA_TTL,
    ZKL_CLAIM_DATA_HOLDS,
    ZKL_CLAIM_DATA_RENEWALS,
    ZKL_CLAIM_DATA_MENDED,
    ZKL_CLAIM_DATA_CZXID,
    ZKL_CLAIM_DATA_GATE,
    ZKL_CLAIM_DATA_PARAMS,
    ZKL_CLAIM_DATA_ASYNC,
    ZKL_CLAIM_DATA_HELD,
    ZKL_CLAIM_DATA_REVOKED,
    ZKL_CLAIM_DATA_WANT,
    ZKL_CLAIM_DATA_FROM,
    ZKL_CLAIM_DATA_NAME,
    ZKL_CLAIM_DATA_DATA,
    ZKL_CLAIM_DATA_FIELDS
} zkl_claim_data_field_e;

typedef struct {
    zkl_claim_data_t        *cdata;
    zkl_claim_data_field_e   field;     /* of the next value */
    unsigned                 seen[ZKL_CLAIM_DATA_FIELDS];
} zkl_claim_data_ctx_t;


static char *zkl_claim_data_text(char *p, const char *name, const char *text,
    size_t len);
static int zkl_claim_data_json(zkl_claim_data_t *cdata, const char *text,
    size_t len);
static int zkl_claim_data_token(zkl_json_reader_t *r, zkl_type_e type,
    const char *text, size_t len);
static int zkl_claim_data_string(zkl_claim_data_t *cdata,
    zkl_claim_data_field_e field, const char *text, size_t len);
static int zkl_claim_data_number(zkl_claim_data_t *cdata,
    zkl_claim_data_field_e field, const char *text, size_t len);
static int zkl_claim_data_boolean(zkl_claim_data_t *cdata,
    zkl_claim_data_field_e field, int value);
static int zkl_claim_data_hex(uint32_t *value, const char *text, size_t len,
    size_t digits);
static int zkl_claim_data_id_read(zkl_id_t *id, const char *text, size_t len);
static int zkl_claim_data_want_check(const char *text, size_t len);
static int zkl_claim_data_shown_check(const char *text, size_t len,
    size_t max);
static int zkl_claim_data_gate_check(const char *text, size_t len);


static const char  *const zkl_claim_data_names[] = {
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
    "held",
    "revoke",
    "want",
    "from",
    "name",
    "data"
};


size_t
zkl_claim_data_write(char *buf, const zkl_claim_data_t *cdata, size_t *index_at)
{
    int    index;
    char  *p;

    p = buf;

    memcpy(p, cdata->owner, cdata->owner_len);
    p += cdata->owner_len;

    index = (cdata->index >= 0 && cdata->index <= 0xff) ? cdata->index : 0;

    *index_at = cdata->owner_len + sizeof("\n{\"index\":\"") - 1;

    /* ZKL_CLAIM_DATA_MAX has room for the longest numbers */

    p += sprintf(p, "\n{\"index\":\"%02x\"", (unsigned) index);

    if (cdata->has_id) {
        p += sprintf(p, ",\"id\":\"");
        zkl_claim_data_id(p, &cdata->id);
        p += ZKL_CLAIM_DATA_ID;
        *p++ = '"';
    }

    p += sprintf(p, ",\"ttl\":%" PRId64, cdata->ttl);

    if (cdata->holds > 1) {
        p += sprintf(p, ",\"holds\":%" PRIu32, cdata->holds);
    }

    if (cdata->renewals != 0) {
        p += sprintf(p, ",\"renewals\":%" PRIu32, cdata->renewals);
    }

    if (cdata->mended != 0) {
        p += sprintf(p, ",\"mended\":%" PRIu32, cdata->mended);
    }

    if (cdata->czxid > 0 && cdata->czxid <= ZKL_CZXID_MAX) {
        p += sprintf(p, ",\"czxid\":%" PRId64, cdata->czxid);
    }

    if (zkl_claim_data_gate_check(cdata->gate, cdata->gate_len)) {
        p = zkl_claim_data_text(p, "gate", cdata->gate, cdata->gate_len);
    }

    if (cdata->has_params) {
        p += sprintf(p, ",\"params\":\"%08" PRIx32 "\"", cdata->params);
    }

    if (cdata->async) {
        p += sprintf(p, cdata->held ? ",\"async\":true,\"held\":true"
                                    : ",\"async\":true");
    }

    if (cdata->revoke) {
        p += sprintf(p, ",\"revoke\":true");
    }

    if (zkl_claim_data_want_check(cdata->want, cdata->want_len)) {
        p = zkl_claim_data_text(p, "want", cdata->want, cdata->want_len);
    }

    if (zkl_claim_data_shown_check(cdata->from, cdata->from_len,
                                   ZKL_FROM_MAX))
    {
        p = zkl_claim_data_text(p, "from", cdata->from, cdata->from_len);
    }

    if (zkl_claim_data_shown_check(cdata->name, cdata->name_len,
                                   ZKL_FULL_MAX))
    {
        p = zkl_claim_data_text(p, "name", cdata->name, cdata->name_len);
    }

    if (cdata->data_len != 0) {
        memcpy(p, ",\"data\":", sizeof(",\"data\":") - 1);
        p += sizeof(",\"data\":") - 1;

        memcpy(p, cdata->data, cdata->data_len);
        p += cdata->data_len;
    }

    *p++ = '}';

    return (size_t) (p - buf);
}


/* text has no control characters, so only quotes and backslashes matter */

static char *
zkl_claim_data_text(char *p, const char *name, const char *text, size_t len)
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
zkl_claim_data_id(char *buf, const zkl_id_t *id)
{
    size_t   i;
    uint8_t  byte;

    static const char  hex[] = "0123456789abcdef";

    for  (i = 0; i < ZKL_CLAIM_DATA_ID / 2; i++) {

        byte = (i < ZKL_RANDOM_LEN)
               ? id->random[i]
               : (uint8_t) (id->record >> (8 * (15 - i)));

        *buf++ = hex[byte >> 4];
        *buf++ = hex[byte & 0xf];
    }
}


void
zkl_claim_data_read(zkl_claim_data_t *cdata, const char *text, size_t len)
{
    size_t       n;
    const char  *end;

    memset(cdata, 0, sizeof(zkl_claim_data_t));
    cdata->index = -1;

    if (len == 0) {
        return;
    }

    if (len == sizeof(ZKL_CLAIM_DATA_REVOKE) - 1
        && memcmp(text, ZKL_CLAIM_DATA_REVOKE, len) == 0)
    {
        cdata->revoke = 1;
        return;
    }

    end = memchr(text, '\n', len);
    n = (end != NULL) ? (size_t) (end - text) : len;

    if (end != NULL && len <= ZKL_CLAIM_DATA_MAX
        && zkl_claim_data_json(cdata, end + 1, len - n - 1) != 0)
    {
        memset(cdata, 0, sizeof(zkl_claim_data_t));
        cdata->index = -1;
    }

    if (n <= ZKL_OWNER_MAX && zkl_text_shown_check(text, n)) {
        memcpy(cdata->owner, text, n);
        cdata->owner_len = n;
    }
}


static int
zkl_claim_data_json(zkl_claim_data_t *cdata, const char *text, size_t len)
{
    zkl_json_reader_t     r;
    zkl_claim_data_ctx_t  ctx;

    memset(&r, 0, sizeof(zkl_json_reader_t));
    memset(&ctx, 0, sizeof(zkl_claim_data_ctx_t));

    ctx.cdata = cdata;

    r.token = zkl_claim_data_token;
    r.owner = &ctx;
    r.what = "the claim data";
    r.data = cdata->data;
    r.data_len = &cdata->data_len;

    if (zkl_json_read(&r, text, len) != 0) {
        return -1;
    }

    return ctx.seen[ZKL_CLAIM_DATA_INDEX] ? 0 : -1;
}


static int
zkl_claim_data_token(zkl_json_reader_t *r, zkl_type_e type, const char *text,
    size_t len)
{
    zkl_claim_data_ctx_t  *ctx = r->owner;

    unsigned     i;
    const char  *name;

    if (r->depth == 1 && type == ZKL_KEY) {

        for  (i = 0; i < ZKL_CLAIM_DATA_FIELDS; i++) {
            name = zkl_claim_data_names[i];

            if (len == strlen(name) && memcmp(text, name, len) == 0) {
                break;
            }
        }

        ctx->field = i;

        if (i == ZKL_CLAIM_DATA_FIELDS) {
            /* a newer gateway may write further members */
            return 0;
        }

        return ctx->seen[i]++ ? -1 : 0;
    }

    if (ctx->field == ZKL_CLAIM_DATA_FIELDS) {
        return 0;
    }

    if (ctx->field == ZKL_CLAIM_DATA_DATA) {
        return zkl_json_copy(r, type, text, len);
    }

    switch (type) {

    case ZKL_STRING:
        return zkl_claim_data_string(ctx->cdata, ctx->field, text, len);

    case ZKL_NUMBER:
        return zkl_claim_data_number(ctx->cdata, ctx->field, text, len);

    case ZKL_BOOLEAN:
        return zkl_claim_data_boolean(ctx->cdata, ctx->field, text[0] == 't');

    default:
        return -1;
    }
}


static int
zkl_claim_data_string(zkl_claim_data_t *cdata, zkl_claim_data_field_e field,
    const char *text, size_t len)
{
    uint32_t  value;

    switch (field) {

    case ZKL_CLAIM_DATA_INDEX:
        if (zkl_claim_data_hex(&value, text, len, 2) != 0) {
            return -1;
        }

        cdata->index = (int) value;
        return 0;

    case ZKL_CLAIM_DATA_CLAIM:
        if (zkl_claim_data_id_read(&cdata->id, text, len) != 0) {
            return -1;
        }

        cdata->has_id = 1;
        return 0;

    case ZKL_CLAIM_DATA_PARAMS:
        if (zkl_claim_data_hex(&value, text, len, ZKL_PARAMS_LEN) != 0) {
            return -1;
        }

        cdata->params = value;
        cdata->has_params = 1;
        return 0;

    case ZKL_CLAIM_DATA_WANT:
        if (!zkl_claim_data_want_check(text, len)) {
            return -1;
        }

        memcpy(cdata->want, text, len);
        cdata->want_len = len;
        return 0;

    case ZKL_CLAIM_DATA_GATE:
        if (!zkl_claim_data_gate_check(text, len)) {
            return -1;
        }

        memcpy(cdata->gate, text, len);
        cdata->gate_len = len;
        return 0;

    case ZKL_CLAIM_DATA_FROM:
        if (!zkl_claim_data_shown_check(text, len, ZKL_FROM_MAX)) {
            return -1;
        }

        memcpy(cdata->from, text, len);
        cdata->from_len = len;
        return 0;

    case ZKL_CLAIM_DATA_NAME:
        if (!zkl_claim_data_shown_check(text, len, ZKL_FULL_MAX)) {
            return -1;
        }

        memcpy(cdata->name, text, len);
        cdata->name_len = len;
        return 0;

    default:
        return -1;
    }
}


/* takes digits only: no sign, no fraction, no exponent */

static int
zkl_claim_data_number(zkl_claim_data_t *cdata, zkl_claim_data_field_e field,
    const char *text, size_t len)
{
    size_t   i;
    int64_t  max, value;

    switch (field) {

    case ZKL_CLAIM_DATA_TTL:
        max = ZKL_DURATION_MAX;
        break;

    case ZKL_CLAIM_DATA_CZXID:
        max = ZKL_CZXID_MAX;
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

    case ZKL_CLAIM_DATA_TTL:
        cdata->ttl = value;
        return 0;

    case ZKL_CLAIM_DATA_HOLDS:
        cdata->holds = (uint32_t) value;
        return 0;

    case ZKL_CLAIM_DATA_RENEWALS:
        cdata->renewals = (uint32_t) value;
        return 0;

    case ZKL_CLAIM_DATA_MENDED:
        cdata->mended = (uint32_t) value;
        return 0;

    case ZKL_CLAIM_DATA_CZXID:
        cdata->czxid = value;
        return 0;

    default:
        return -1;
    }
}


static int
zkl_claim_data_boolean(zkl_claim_data_t *cdata, zkl_claim_data_field_e field,
    int value)
{
    switch (field) {

    case ZKL_CLAIM_DATA_ASYNC:
        cdata->async = (value != 0);
        return 0;

    case ZKL_CLAIM_DATA_HELD:
        cdata->held = (value != 0);
        return 0;

    case ZKL_CLAIM_DATA_REVOKED:
        cdata->revoke = (value != 0);
        return 0;

    default:
        return -1;
    }
}


static int
zkl_claim_data_hex(uint32_t *value, const char *text, size_t len,
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
        digit = zkl_text_hex_read(text[i]);
        if (digit == -1) {
            return -1;
        }

        bits = bits << 4 | (uint32_t) digit;
    }

    *value = bits;

    return 0;
}


static int
zkl_claim_data_id_read(zkl_id_t *id, const char *text, size_t len)
{
    size_t    i;
    uint32_t  byte;

    if (len != ZKL_CLAIM_DATA_ID) {
        return -1;
    }

    for  (i = 0; i < ZKL_RANDOM_LEN; i++) {

        if (zkl_claim_data_hex(&byte, text + 2 * i, 2, 2) != 0) {
            return -1;
        }

        id->random[i] = (uint8_t) byte;
    }

    return zkl_claim_data_hex(&id->record, text + 2 * i, 8, 8);
}


static int
zkl_claim_data_want_check(const char *text, size_t len)
{
    size_t  i;

    if (len == 0 || len > ZKL_WANT_MAX) {
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
zkl_claim_data_shown_check(const char *text, size_t len, size_t max)
{
    return len != 0 && len <= max && zkl_text_shown_check(text, len);
}


static int
zkl_claim_data_gate_check(const char *text, size_t len)
{
    size_t  i;

    if (len != ZKL_GATE_LEN) {
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
