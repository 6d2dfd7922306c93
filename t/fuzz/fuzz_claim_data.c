
/*
 * Claim data: the data of a claim's znode, from gateways and other clients.
 *
 * - Each value that is read is within bounds.  If the naive reader finds no
 *   JSON object, or no index, the data are not a gateway's: only the first
 *   line, or a Curator client's revoke, is taken.
 * - A gateway's claim data that are written again fit, and are read as the
 *   same.  So a gateway that rewrites another gateway's data, as for a remote
 *   request, changes no other member.
 * - Any claim data that a gateway may write are read unchanged.
 */


#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "naive_json.h"
#include "base/claim_data.h"


static naive_json_t  naive;


static void check_any(fuzz_input_t *in);
static void check_ours(fuzz_input_t *in);
static void check_bounds(const zkl_claim_data_t *cdata);
static void check_again(const zkl_claim_data_t *cdata);
static int has_index(void);
static void longest(zkl_claim_data_t *cdata);
static size_t shown(char *buf, fuzz_input_t *in, size_t max);
static int same(const zkl_claim_data_t *one, const zkl_claim_data_t *two);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t  in;

    in.data = data;
    in.left = size;

    if (size > 3000) {
        return 0;
    }

    if (fuzz_byte(&in) & 1) {
        check_ours(&in);

    } else {
        check_any(&in);
    }

    return 0;
}


static void
check_any(fuzz_input_t *in)
{
    char              *text;
    size_t             len, n;
    const char        *end;
    zkl_claim_data_t  *cdata;

    len = in->left;
    text = fuzz_block(in->data, len);
    cdata = fuzz_block(NULL, sizeof(zkl_claim_data_t));

    zkl_claim_data_read(cdata, text, len);

    check_bounds(cdata);

    end = (len != 0) ? memchr(text, '\n', len) : NULL;
    n = (end != NULL) ? (size_t) (end - text) : len;

    if (cdata->owner_len != 0) {
        rule(cdata->owner_len == n && memcmp(cdata->owner, text, n) == 0,
             "the owner is not the first line");

    } else if (n <= ZKL_OWNER_MAX && naive_shown(text, n)) {
        rule(n == 0 || cdata->revoke, "an owner is left out");
    }

    if (cdata->index != -1) {
        rule(end != NULL && len <= ZKL_CLAIM_DATA_MAX, "index of nothing");

        naive_json(&naive, end + 1, len - n - 1);
        rule(naive.valid && naive.type == '{' && has_index(),
             "a gateway's: %.*s", (int) naive.len, naive.compact);

        check_again(cdata);

    } else {
        rule(cdata->data_len == 0 && cdata->want_len == 0
             && cdata->from_len == 0 && cdata->name_len == 0
             && cdata->ttl == 0 && cdata->holds == 0
             && cdata->renewals == 0 && cdata->mended == 0
             && cdata->czxid == 0 && cdata->gate_len == 0
             && !cdata->has_id && !cdata->has_params && !cdata->async,
             "of nobody's cdata more than the owner is taken");
        rule(!cdata->revoke || (len == 10
                                && memcmp(text, "__REVOKE__", 10) == 0),
             "nobody asks");
    }

    fuzz_block_free(cdata);
    fuzz_block_free(text);
}


/* claim data that a gateway may write */

static void
check_ours(fuzz_input_t *in)
{
    size_t             i;
    unsigned           flags;
    const uint8_t     *data;
    zkl_claim_data_t  *cdata;

    static const char  word[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

    cdata = fuzz_block(NULL, sizeof(zkl_claim_data_t));
    memset(cdata, 0, sizeof(zkl_claim_data_t));

    flags = fuzz_byte(in);

    cdata->index = (int) fuzz_byte(in);
    cdata->ttl = (int64_t) (fuzz_64(in) % (ZKL_DURATION_MAX + 1));
    cdata->holds = (flags & 1) ? fuzz_32(in) : 0;
    cdata->renewals = (flags & 2) ? fuzz_32(in) : 0;
    cdata->mended = (flags & 2) ? fuzz_32(in) : 0;
    cdata->czxid = (flags & 4)
                   ? (int64_t) (fuzz_64(in) % (ZKL_CZXID_MAX + 1)) : 0;
    cdata->async = (flags >> 3) & 1;
    cdata->revoke = (flags >> 4) & 1;

    if (flags & 4) {
        (void) snprintf(cdata->gate, sizeof(cdata->gate), "%016llx",
                        (unsigned long long) cdata->czxid);
        cdata->gate_len = ZKL_GATE_LEN;
    }

    if (flags & 32) {
        cdata->has_params = 1;
        cdata->params = fuzz_32(in);
    }

    if (flags & 64) {
        cdata->has_id = 1;
        cdata->id.record = fuzz_32(in);
        for  (i = 0; i < ZKL_RANDOM_LEN; i++) {
            cdata->id.random[i] = (uint8_t) fuzz_byte(in);
        }
    }

    if (flags & 128) {
        cdata->want_len = fuzz_below(in, ZKL_WANT_MAX + 1);
        for (i = 0; i < cdata->want_len; i++) {
            cdata->want[i] = word[fuzz_below(in, sizeof(word) - 1)];
        }
    }

    cdata->from_len = shown(cdata->from, in, ZKL_FROM_MAX);
    cdata->name_len = shown(cdata->name, in, ZKL_FULL_MAX);
    cdata->owner_len = shown(cdata->owner, in, ZKL_OWNER_MAX);

    /* data is the copy that the reader of arguments would make */

    i = fuzz_bytes(in, &data, NAIVE_TEXT);
    naive_json(&naive, (const char *) data, i);

    if (naive.valid && naive.len <= ZKL_DATA_MAX
        && naive.depth <= ZKL_DATA_DEPTH)
    {
        memcpy(cdata->data, naive.compact, naive.len);
        cdata->data_len = naive.len;
    }

    if (flags == 255 && cdata->index == 255) {
        longest(cdata);
    }

    check_bounds(cdata);
    check_again(cdata);

    fuzz_block_free(cdata);
}


static void
check_bounds(const zkl_claim_data_t *cdata)
{
    rule(cdata->index >= -1 && cdata->index <= 255, "%d", cdata->index);
    rule(cdata->ttl >= 0 && cdata->ttl <= ZKL_DURATION_MAX, "ttl");
    rule(cdata->czxid >= 0 && cdata->czxid <= ZKL_CZXID_MAX, "czxid");

    rule(cdata->owner_len <= ZKL_OWNER_MAX
         && cdata->owner[cdata->owner_len] == '\0'
         && naive_shown(cdata->owner, cdata->owner_len), "owner");
    rule(cdata->from_len <= ZKL_FROM_MAX
         && cdata->from[cdata->from_len] == '\0'
         && naive_shown(cdata->from, cdata->from_len), "from");
    rule(cdata->name_len <= ZKL_FULL_MAX
         && cdata->name[cdata->name_len] == '\0'
         && naive_shown(cdata->name, cdata->name_len), "name");
    rule(cdata->want_len <= ZKL_WANT_MAX
         && cdata->want[cdata->want_len] == '\0'
         && strspn(cdata->want, "abcdefghijklmnopqrstuvwxyz0123456789-")
            == cdata->want_len, "want");
    rule(cdata->gate_len == 0
         || (cdata->gate_len == ZKL_GATE_LEN
             && cdata->gate[ZKL_GATE_LEN] == '\0'
             && strspn(cdata->gate, "0123456789abcdefABCDEF")
                == ZKL_GATE_LEN), "gate");
    rule(cdata->data_len <= ZKL_DATA_MAX
         && cdata->data[cdata->data_len] == '\0', "data");
}


/* the longest claim data, because no other input comes near to that length */

static void
longest(zkl_claim_data_t *cdata)
{
    cdata->ttl = ZKL_DURATION_MAX;
    cdata->holds = UINT32_MAX;
    cdata->renewals = UINT32_MAX;
    cdata->mended = UINT32_MAX;
    cdata->czxid = ZKL_CZXID_MAX;
    cdata->gate_len = ZKL_GATE_LEN;
    memset(cdata->gate, 'f', cdata->gate_len);
    cdata->revoke = 1;
    cdata->async = 1;

    cdata->want_len = ZKL_WANT_MAX;
    memset(cdata->want, 'w', cdata->want_len);

    /* each quote is two bytes when written */

    cdata->from_len = ZKL_FROM_MAX;
    memset(cdata->from, '"', cdata->from_len);
    cdata->name_len = ZKL_FULL_MAX;
    memset(cdata->name, '"', cdata->name_len);

    cdata->owner_len = ZKL_OWNER_MAX;
    memset(cdata->owner, 'o', cdata->owner_len);

    cdata->data_len = ZKL_DATA_MAX;
    memset(cdata->data, 'd', cdata->data_len);
    cdata->data[0] = '"';
    cdata->data[ZKL_DATA_MAX - 1] = '"';
}


static void
check_again(const zkl_claim_data_t *cdata)
{
    char              *buf, *text, id[ZKL_CLAIM_DATA_ID];
    char               index[3];
    size_t             len, at, n;
    zkl_claim_data_t  *again;

    buf = fuzz_block(NULL, ZKL_CLAIM_DATA_MAX);
    again = fuzz_block(NULL, sizeof(zkl_claim_data_t));

    len = zkl_claim_data_write(buf, cdata, &at);

    rule(len <= ZKL_CLAIM_DATA_MAX, "%zu bytes", len);

    (void) snprintf(index, sizeof(index), "%02x", (unsigned) cdata->index);
    rule(at + 2 < len && memcmp(buf + at, index, 2) == 0, "the index's place");

    if (cdata->has_id) {
        zkl_claim_data_id(id, &cdata->id);
        rule(memcmp(buf + at + ZKL_CLAIM_DATA_ID_AT, id, ZKL_CLAIM_DATA_ID)
             == 0, "the id's place");
    }

    text = fuzz_block(buf, len);
    zkl_claim_data_read(again, text, len);

    rule(same(cdata, again), "something else is read: %.*s", (int) len, text);

    n = zkl_claim_data_write(buf, again, &at);

    rule(n == len && memcmp(buf, text, n) == 0, "it is written otherwise");

    fuzz_block_free(text);
    fuzz_block_free(again);
    fuzz_block_free(buf);
}


static int
has_index(void)
{
    size_t  i, n;

    for (i = 0, n = 0; i < naive.nmembers; i++) {
        n += naive.members[i].name_len == 5
             && memcmp(naive.members[i].name, "index", 5) == 0
             && naive.members[i].type == '"' && naive.members[i].len == 2;
    }

    return n == 1;
}


/* the longest start of a text that can be shown; 0: no start can */

static size_t
shown(char *buf, fuzz_input_t *in, size_t max)
{
    size_t          n;
    const uint8_t  *data;

    n = fuzz_byte(in);
    n = fuzz_bytes(in, &data, (n < max) ? n : max);

    while (n != 0 && !naive_shown((const char *) data, n)) {
        n--;
    }

    if (n != 0) {
        memcpy(buf, data, n);
    }

    return n;
}


/* claim data do not say that a claim is held once */

static int
same(const zkl_claim_data_t *one, const zkl_claim_data_t *two)
{
    return one->owner_len == two->owner_len
           && memcmp(one->owner, two->owner, one->owner_len) == 0
           && one->data_len == two->data_len
           && memcmp(one->data, two->data, one->data_len) == 0
           && one->want_len == two->want_len
           && memcmp(one->want, two->want, one->want_len) == 0
           && one->from_len == two->from_len
           && memcmp(one->from, two->from, one->from_len) == 0
           && one->name_len == two->name_len
           && memcmp(one->name, two->name, one->name_len) == 0
           && one->gate_len == two->gate_len
           && memcmp(one->gate, two->gate, one->gate_len) == 0
           && one->index == two->index
           && one->ttl == two->ttl
           && (one->holds > 1 ? one->holds : 0) == two->holds
           && one->renewals == two->renewals
           && one->mended == two->mended
           && one->czxid == two->czxid
           && one->has_params == two->has_params
           && one->params == two->params
           && one->has_id == two->has_id
           && one->id.record == two->id.record
           && memcmp(one->id.random, two->id.random, ZKL_RANDOM_LEN) == 0
           && one->async == two->async
           && one->revoke == two->revoke;
}
