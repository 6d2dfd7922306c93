
/*
 * A query: taken apart, unescaped, and given to the arguments piece by piece.
 *
 * Owns nothing; runs on any thread.  A pointer may be NULL only beside a
 * length of 0.
 */


#include <string.h>

#include "zk_lock_query.h"


static int zk_lock_query_piece(zk_lock_args_t *args, const char *text,
    size_t len, unsigned allowed, unsigned *seen);
static int zk_lock_query_decode(char *buf, size_t size, const char *text,
    size_t len, size_t *decoded);
static int zk_lock_query_data(zk_lock_args_t *args, const char *text,
    size_t len);


int
zk_lock_query_read(zk_lock_args_t *args, const char *query, size_t len,
    unsigned allowed)
{
    size_t       n;
    unsigned     seen;
    const char  *end;

    seen = 0;

    while (len != 0) {
        end = memchr(query, '&', len);
        n = (end != NULL) ? (size_t) (end - query) : len;

        if (n != 0
            && zk_lock_query_piece(args, query, n, allowed, &seen) != 0)
        {
            return -1;
        }

        if (end != NULL) {
            n++;
        }

        query += n;
        len -= n;
    }

    return 0;
}


static int
zk_lock_query_piece(zk_lock_args_t *args, const char *text, size_t len,
    unsigned allowed, unsigned *seen)
{
    char         name[ZK_LOCK_QUOTE_MAX], quoted[ZK_LOCK_QUOTE_MAX];
    char         value[ZK_LOCK_TOKEN_MAX];
    size_t       n, name_len, value_len;
    unsigned     field;
    const char  *end;

    end = memchr(text, '=', len);
    n = (end != NULL) ? (size_t) (end - text) : len;

    if (zk_lock_query_decode(name, sizeof(name), text, n, &name_len) != 0) {
        return zk_lock_args_error(args, "unknown argument \"%s\"",
                                  zk_lock_quote(quoted, text, n));
    }

    field = zk_lock_args_field(args, "argument", name, name_len, allowed,
                               seen);
    if (field == 0) {
        return -1;
    }

    if (end != NULL) {
        n++;
    }

    if (zk_lock_query_decode(value, sizeof(value), text + n, len - n,
                             &value_len)
        != 0)
    {
        return zk_lock_args_error(args, "the argument \"%s\" has a broken"
                                  " escape in it or is too long",
                                  zk_lock_quote(quoted, name, name_len));
    }

    if (field == ZK_LOCK_ARG_DATA) {
        return zk_lock_query_data(args, value, value_len);
    }

    if (field == ZK_LOCK_ARG_NAMES) {
        return zk_lock_args_refuse(args, field);
    }

    return zk_lock_args_set(args, field, value, value_len);
}


static int
zk_lock_query_decode(char *buf, size_t size, const char *text, size_t len,
    size_t *decoded)
{
    int     high, low;
    size_t  i, n;

    n = 0;

    for (i = 0; i < len; i++) {

        if (n == size) {
            return -1;
        }

        if (text[i] != '%') {
            buf[n++] = (text[i] == '+') ? ' ' : text[i];
            continue;
        }

        if (len - i < 3) {
            return -1;
        }

        high = zk_lock_hex_read(text[i + 1]);
        low = zk_lock_hex_read(text[i + 2]);

        if (high == -1 || low == -1) {
            return -1;
        }

        buf[n++] = (char) (high << 4 | low);
        i += 2;
    }

    *decoded = n;

    return 0;
}


static int
zk_lock_query_data(zk_lock_args_t *args, const char *text, size_t len)
{
    char              memory[ZK_LOCK_READER_MEMORY];
    zk_lock_reader_t  r;

    memset(&r, 0, sizeof(zk_lock_reader_t));

    r.what = "\"data\"";
    r.data = args->data;
    r.data_len = &args->data_len;
    r.error = args->error;

    args->data_len = 0;

    if (zk_lock_reader_open(&r, memory, sizeof(memory)) != 0) {
        return zk_lock_args_error(args, "no memory");
    }

    (void) zk_lock_reader_feed(&r, text, len);

    if (zk_lock_reader_close(&r) != 0) {
        return -1;
    }

    args->given |= ZK_LOCK_ARG_DATA;

    return 0;
}
