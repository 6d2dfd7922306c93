
/*
 * Labels: the data of a claim's znode, from gateways and from other clients.
 *
 * - Each value that is read is within bounds.  If the naive reader finds no
 *   JSON object, or no index, the label is not a gateway's: only the first
 *   line, or a Curator client's revoke, is taken.
 * - A gateway's label that is written again fits, and is read as the same.  So
 *   a gateway that rewrites another gateway's label, as for a remote request,
 *   changes no other member.
 * - Any label that a gateway may write is read unchanged.
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
static void check_bounds(const zkl_claim_data_t *label);
static void check_again(const zkl_claim_data_t *label);
static int has_index(void);
static void longest(zkl_claim_data_t *label);
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
    zkl_claim_data_t  *label;

    len = in->left;
    text = fuzz_block(in->data, len);
    label = fuzz_block(NULL, sizeof(zkl_claim_data_t));

    zkl_claim_data_read(label, text, len);

    check_bounds(label);

    end = (len != 0) ? memchr(text, '\n', len) : NULL;
    n = (end != NULL) ? (size_t) (end - text) : len;

    if (label->owner_len != 0) {
        rule(label->owner_len == n && memcmp(label->owner, text, n) == 0,
             "the owner is not the first line");

    } else if (n <= ZKL_OWNER_MAX && naive_shown(text, n)) {
        rule(n == 0 || label->revoke, "an owner is left out");
    }

    if (label->index != -1) {
        rule(end != NULL && len <= ZKL_CLAIM_DATA_MAX, "index of nothing");

        naive_json(&naive, end + 1, len - n - 1);
        rule(naive.valid && naive.type == '{' && has_index(),
             "a gateway's: %.*s", (int) naive.len, naive.compact);

        check_again(label);

    } else {
        rule(label->data_len == 0 && label->want_len == 0
             && label->from_len == 0 && label->ttl == 0 && label->holds == 0
             && label->renewals == 0 && label->mended == 0
             && label->czxid == 0 && label->gate_len == 0
             && !label->has_id && !label->has_params && !label->async,
             "of nobody's label more than the owner is taken");
        rule(!label->revoke || (len == 10
                                && memcmp(text, "__REVOKE__", 10) == 0),
             "nobody asks");
    }

    fuzz_block_free(label);
    fuzz_block_free(text);
}


/* a label that a gateway may write */

static void
check_ours(fuzz_input_t *in)
{
    size_t             i;
    unsigned           flags;
    const uint8_t     *data;
    zkl_claim_data_t  *label;

    static const char  word[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

    label = fuzz_block(NULL, sizeof(zkl_claim_data_t));
    memset(label, 0, sizeof(zkl_claim_data_t));

    flags = fuzz_byte(in);

    label->index = (int) fuzz_byte(in);
    label->ttl = (int64_t) (fuzz_64(in) % (ZKL_DURATION_MAX + 1));
    label->holds = (flags & 1) ? fuzz_32(in) : 0;
    label->renewals = (flags & 2) ? fuzz_32(in) : 0;
    label->mended = (flags & 2) ? fuzz_32(in) : 0;
    label->czxid = (flags & 4)
                   ? (int64_t) (fuzz_64(in) % (ZKL_CZXID_MAX + 1)) : 0;
    label->async = (flags >> 3) & 1;
    label->revoke = (flags >> 4) & 1;

    if (flags & 4) {
        (void) snprintf(label->gate, sizeof(label->gate), "%016llx",
                        (unsigned long long) label->czxid);
        label->gate_len = ZKL_GATE_LEN;
    }

    if (flags & 32) {
        label->has_params = 1;
        label->params = fuzz_32(in);
    }

    if (flags & 64) {
        label->has_id = 1;
        label->id.record = fuzz_32(in);
        for  (i = 0; i < ZKL_RANDOM_LEN; i++) {
            label->id.random[i] = (uint8_t) fuzz_byte(in);
        }
    }

    if (flags & 128) {
        label->want_len = fuzz_below(in, ZKL_WANT_MAX + 1);
        for (i = 0; i < label->want_len; i++) {
            label->want[i] = word[fuzz_below(in, sizeof(word) - 1)];
        }
    }

    label->from_len = shown(label->from, in, ZKL_FROM_MAX);
    label->owner_len = shown(label->owner, in, ZKL_OWNER_MAX);

    /* data is the copy that the reader of arguments would make */

    i = fuzz_bytes(in, &data, NAIVE_TEXT);
    naive_json(&naive, (const char *) data, i);

    if (naive.valid && naive.len <= ZKL_DATA_MAX
        && naive.depth <= ZKL_DATA_DEPTH)
    {
        memcpy(label->data, naive.compact, naive.len);
        label->data_len = naive.len;
    }

    if (flags == 255 && label->index == 255) {
        longest(label);
    }

    check_bounds(label);
    check_again(label);

    fuzz_block_free(label);
}


static void
check_bounds(const zkl_claim_data_t *label)
{
    rule(label->index >= -1 && label->index <= 255, "%d", label->index);
    rule(label->ttl >= 0 && label->ttl <= ZKL_DURATION_MAX, "ttl");
    rule(label->czxid >= 0 && label->czxid <= ZKL_CZXID_MAX, "czxid");

    rule(label->owner_len <= ZKL_OWNER_MAX
         && label->owner[label->owner_len] == '\0'
         && naive_shown(label->owner, label->owner_len), "owner");
    rule(label->from_len <= ZKL_FROM_MAX
         && label->from[label->from_len] == '\0'
         && naive_shown(label->from, label->from_len), "from");
    rule(label->want_len <= ZKL_WANT_MAX
         && label->want[label->want_len] == '\0'
         && strspn(label->want, "abcdefghijklmnopqrstuvwxyz0123456789-")
            == label->want_len, "want");
    rule(label->gate_len == 0
         || (label->gate_len == ZKL_GATE_LEN
             && label->gate[ZKL_GATE_LEN] == '\0'
             && strspn(label->gate, "0123456789abcdefABCDEF")
                == ZKL_GATE_LEN), "gate");
    rule(label->data_len <= ZKL_DATA_MAX
         && label->data[label->data_len] == '\0', "data");
}


/* the longest label, because no other input comes near to that length */

static void
longest(zkl_claim_data_t *label)
{
    label->ttl = ZKL_DURATION_MAX;
    label->holds = UINT32_MAX;
    label->renewals = UINT32_MAX;
    label->mended = UINT32_MAX;
    label->czxid = ZKL_CZXID_MAX;
    label->gate_len = ZKL_GATE_LEN;
    memset(label->gate, 'f', label->gate_len);
    label->revoke = 1;
    label->async = 1;

    label->want_len = ZKL_WANT_MAX;
    memset(label->want, 'w', label->want_len);

    /* each quote is two bytes when written */

    label->from_len = ZKL_FROM_MAX;
    memset(label->from, '"', label->from_len);

    label->owner_len = ZKL_OWNER_MAX;
    memset(label->owner, 'o', label->owner_len);

    label->data_len = ZKL_DATA_MAX;
    memset(label->data, 'd', label->data_len);
    label->data[0] = '"';
    label->data[ZKL_DATA_MAX - 1] = '"';
}


static void
check_again(const zkl_claim_data_t *label)
{
    char              *buf, *text, id[ZKL_CLAIM_DATA_ID];
    char               index[3];
    size_t             len, at, n;
    zkl_claim_data_t  *again;

    buf = fuzz_block(NULL, ZKL_CLAIM_DATA_MAX);
    again = fuzz_block(NULL, sizeof(zkl_claim_data_t));

    len = zkl_claim_data_write(buf, label, &at);

    rule(len <= ZKL_CLAIM_DATA_MAX, "%zu bytes", len);

    (void) snprintf(index, sizeof(index), "%02x", (unsigned) label->index);
    rule(at + 2 < len && memcmp(buf + at, index, 2) == 0, "the index's place");

    if (label->has_id) {
        zkl_claim_data_id(id, &label->id);
        rule(memcmp(buf + at + ZKL_CLAIM_DATA_ID_AT, id, ZKL_CLAIM_DATA_ID)
             == 0, "the id's place");
    }

    text = fuzz_block(buf, len);
    zkl_claim_data_read(again, text, len);

    rule(same(label, again), "something else is read: %.*s", (int) len, text);

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


/* a label does not say that a claim is held once */

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
