
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
    const char              *name;
    zkl_type_e               type;
    int64_t                  min;       /* of a number that is written, or
                                           bytes of a string */
    int64_t                  max;
    const char              *letters;   /* of a string; NULL: UTF-8 without
                                           control characters */
    size_t                   at;        /* where zkl_claim_data_t has the
                                           value */
    size_t                   len_at;    /* and the length of a string */
} zkl_claim_data_field_t;

typedef struct {
    zkl_claim_data_t        *cdata;
    zkl_claim_data_field_e   field;     /* of the next value */
    unsigned                 seen;      /* a bit for each field */
} zkl_claim_data_ctx_t;


static char *zkl_claim_data_member(char *p, const zkl_claim_data_t *cdata,
    const zkl_claim_data_field_t *f);
static int zkl_claim_data_check(const zkl_claim_data_field_t *f,
    const char *text, size_t len);
static int zkl_claim_data_token(zkl_json_reader_t *r, zkl_type_e type,
    const char *text, size_t len);
static int zkl_claim_data_set(zkl_claim_data_t *cdata,
    zkl_claim_data_field_e field, zkl_type_e type, const char *text,
    size_t len);


static const char  zkl_claim_data_digits[] = "0123456789abcdefABCDEF";
static const char  zkl_claim_data_word[] =
    "abcdefghijklmnopqrstuvwxyz0123456789-";

/* in the order of the enum, and of the members that are written */

static const zkl_claim_data_field_t  zkl_claim_data_fields[] = {
    { "index",    ZKL_STRING,  2, 2, zkl_claim_data_digits, 0, 0 },
    { "id",       ZKL_STRING,  ZKL_CLAIM_DATA_ID, ZKL_CLAIM_DATA_ID,
                  zkl_claim_data_digits, 0, 0 },
    { "ttl",      ZKL_NUMBER,  0, ZKL_DURATION_MAX, NULL,
                  offsetof(zkl_claim_data_t, ttl), 0 },
    { "holds",    ZKL_NUMBER,  2, UINT32_MAX, NULL,
                  offsetof(zkl_claim_data_t, holds), 0 },
    { "renewals", ZKL_NUMBER,  1, UINT32_MAX, NULL,
                  offsetof(zkl_claim_data_t, renewals), 0 },
    { "mended",   ZKL_NUMBER,  1, UINT32_MAX, NULL,
                  offsetof(zkl_claim_data_t, mended), 0 },
    { "czxid",    ZKL_NUMBER,  1, ZKL_CZXID_MAX, NULL,
                  offsetof(zkl_claim_data_t, czxid), 0 },
    { "gate",     ZKL_STRING,  ZKL_GATE_LEN, ZKL_GATE_LEN, zkl_hex_digits,
                  offsetof(zkl_claim_data_t, gate),
                  offsetof(zkl_claim_data_t, gate_len) },
    { "params",   ZKL_STRING,  8, 8, zkl_claim_data_digits, 0, 0 },
    { "async",    ZKL_BOOLEAN, 0, 0, NULL,
                  offsetof(zkl_claim_data_t, async), 0 },
    { "held",     ZKL_BOOLEAN, 0, 0, NULL,
                  offsetof(zkl_claim_data_t, held), 0 },
    { "revoke",   ZKL_BOOLEAN, 0, 0, NULL,
                  offsetof(zkl_claim_data_t, revoke), 0 },
    { "want",     ZKL_STRING,  1, ZKL_WANT_MAX, zkl_claim_data_word,
                  offsetof(zkl_claim_data_t, want),
                  offsetof(zkl_claim_data_t, want_len) },
    { "from",     ZKL_STRING,  1, ZKL_FROM_MAX, NULL,
                  offsetof(zkl_claim_data_t, from),
                  offsetof(zkl_claim_data_t, from_len) },
    { "name",     ZKL_STRING,  1, ZKL_FULL_MAX, NULL,
                  offsetof(zkl_claim_data_t, name),
                  offsetof(zkl_claim_data_t, name_len) },
    { "data",     ZKL_OBJECT,  0, 0, NULL, 0, 0 }       /* or any other */
};


size_t
zkl_claim_data_write(char *buf, const zkl_claim_data_t *cdata, size_t *index_at)
{
    int       index;
    char     *p;
    unsigned  i;

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

    for (i = ZKL_CLAIM_DATA_TTL; i < ZKL_CLAIM_DATA_DATA; i++) {

        if (i == ZKL_CLAIM_DATA_PARAMS && cdata->has_params) {
            p += sprintf(p, ",\"params\":\"%08" PRIx32 "\"", cdata->params);

        } else if (i != ZKL_CLAIM_DATA_PARAMS
                   && (i != ZKL_CLAIM_DATA_HELD || cdata->async))
        {
            p = zkl_claim_data_member(p, cdata, &zkl_claim_data_fields[i]);
        }
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


/*
 * Leaves out a number below f->min, and what zkl_claim_data_read() refuses.
 * A text has no control characters, so only quotes and backslashes matter.
 */

static char *
zkl_claim_data_member(char *p, const zkl_claim_data_t *cdata,
    const zkl_claim_data_field_t *f)
{
    size_t       i, len;
    int64_t      number;
    const char  *text;

    text = (const char *) cdata + f->at;

    switch (f->type) {

    case ZKL_NUMBER:
        number = *(const int64_t *) text;

        if (number >= f->min && number <= f->max) {
            p += sprintf(p, ",\"%s\":%" PRId64, f->name, number);
        }

        return p;

    case ZKL_BOOLEAN:
        return *text ? p + sprintf(p, ",\"%s\":true", f->name) : p;

    default: /* ZKL_STRING */
        len = *(const size_t *) ((const char *) cdata + f->len_at);
        break;
    }

    if (!zkl_claim_data_check(f, text, len)) {
        return p;
    }

    p += sprintf(p, ",\"%s\":\"", f->name);

    for (i = 0; i < len; i++) {

        if (text[i] == '"' || text[i] == '\\') {
            *p++ = '\\';
        }

        *p++ = text[i];
    }

    *p++ = '"';

    return p;
}


static int
zkl_claim_data_check(const zkl_claim_data_field_t *f, const char *text,
    size_t len)
{
    if (len < (size_t) f->min || len > (size_t) f->max) {
        return 0;
    }

    return (f->letters != NULL) ? zkl_text_letters_check(text, len, f->letters)
                                : zkl_text_shown_check(text, len);
}


void
zkl_claim_data_id(char *buf, const zkl_id_t *id)
{
    uint8_t  bytes[ZKL_ID_BYTES];

    zkl_name_id_pack(bytes, id);

    (void) zkl_text_hex_write(buf, bytes, ZKL_ID_BYTES);
}


void
zkl_claim_data_read(zkl_claim_data_t *cdata, const char *text, size_t len)
{
    size_t                n;
    const char           *end;
    zkl_json_reader_t     r;
    zkl_claim_data_ctx_t  ctx;

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

    if (end != NULL && len <= ZKL_CLAIM_DATA_MAX) {
        memset(&r, 0, sizeof(zkl_json_reader_t));
        memset(&ctx, 0, sizeof(zkl_claim_data_ctx_t));

        ctx.cdata = cdata;

        r.token = zkl_claim_data_token;
        r.owner = &ctx;
        r.data = cdata->data;
        r.data_len = &cdata->data_len;

        if (zkl_json_read(&r, end + 1, len - n - 1) != 0 || cdata->index == -1)
        {
            memset(cdata, 0, sizeof(zkl_claim_data_t));
            cdata->index = -1;
        }
    }

    if (n <= ZKL_OWNER_MAX && zkl_text_shown_check(text, n)) {
        memcpy(cdata->owner, text, n);
        cdata->owner_len = n;
    }
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
            name = zkl_claim_data_fields[i].name;

            if (len == strlen(name) && memcmp(text, name, len) == 0) {
                break;
            }
        }

        ctx->field = i;

        if (i != ZKL_CLAIM_DATA_FIELDS && (ctx->seen & 1U << i)) {
            return -1;
        }

        ctx->seen |= 1U << i;

        return 0;
    }

    switch (ctx->field) {

    case ZKL_CLAIM_DATA_FIELDS:
        /* a newer gateway may write further members */
        return 0;

    case ZKL_CLAIM_DATA_DATA:
        return zkl_json_copy(r, type, text, len);

    default:
        return zkl_claim_data_set(ctx->cdata, ctx->field, type, text, len);
    }
}


static int
zkl_claim_data_set(zkl_claim_data_t *cdata, zkl_claim_data_field_e field,
    zkl_type_e type, const char *text, size_t len)
{
    char                          *to;
    uint8_t                        bytes[ZKL_ID_BYTES];
    const zkl_claim_data_field_t  *f;

    f = &zkl_claim_data_fields[field];
    to = (char *) cdata + f->at;

    if (type != f->type
        || (type == ZKL_STRING && !zkl_claim_data_check(f, text, len)))
    {
        return -1;
    }

    switch (field) {

    case ZKL_CLAIM_DATA_INDEX:
        (void) zkl_text_hex_read(bytes, 1, text);
        cdata->index = bytes[0];
        return 0;

    case ZKL_CLAIM_DATA_CLAIM:
        (void) zkl_text_hex_read(bytes, ZKL_ID_BYTES, text);
        zkl_name_id_unpack(&cdata->id, bytes);
        cdata->has_id = 1;
        return 0;

    case ZKL_CLAIM_DATA_PARAMS:
        (void) zkl_text_hex_read(bytes, 4, text);
        cdata->params = zkl_name_uint32_read(bytes);
        cdata->has_params = 1;
        return 0;

    default:
        break;
    }

    switch (type) {

    case ZKL_NUMBER:

        /* takes digits only: no sign, no fraction, no exponent */

        *(int64_t *) to = zkl_text_number_read(text, len, f->max);

        return (*(int64_t *) to == -1) ? -1 : 0;

    case ZKL_BOOLEAN:
        *to = (text[0] == 't');
        return 0;

    default: /* ZKL_STRING */
        memcpy(to, text, len);
        *(size_t *) ((char *) cdata + f->len_at) = len;
        return 0;
    }
}
