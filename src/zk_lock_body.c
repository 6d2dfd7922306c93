
/*
 * A body: an object that the reader of zk_lock_json.c walks, and whose members
 * come here one by one.
 *
 * Owns its memory from open to close, nothing else; runs on any thread.  A
 * pointer may be NULL only beside a length of 0.
 */


#include <stdlib.h>
#include <string.h>

#include "zk_lock_body.h"


struct zk_lock_body_s {
    zk_lock_reader_t     reader;
    zk_lock_args_t      *args;
    unsigned             allowed;   /* ZK_LOCK_ARG_* */
    unsigned             seen;
    unsigned             field;     /* whose value comes next */
    char                 memory[ZK_LOCK_READER_MEMORY];
};


static zk_lock_value_e zk_lock_body_key(void *data, const char *name,
    size_t len);
static int zk_lock_body_set(void *data, zk_lock_type_e type, const char *text,
    size_t len);
static int zk_lock_body_names(zk_lock_body_t *body, zk_lock_type_e type,
    const char *text, size_t len);


zk_lock_body_t *
zk_lock_body_open(zk_lock_args_t *args, unsigned allowed)
{
    zk_lock_body_t    *body;
    zk_lock_reader_t  *r;

    body = malloc(sizeof(zk_lock_body_t));
    if (body == NULL) {
        return NULL;
    }

    body->args = args;
    body->allowed = allowed;
    body->seen = 0;
    body->field = 0;

    r = &body->reader;

    memset(r, 0, sizeof(zk_lock_reader_t));

    r->key = zk_lock_body_key;
    r->set = zk_lock_body_set;
    r->owner = body;
    r->what = "the body";
    r->data = args->data;
    r->data_len = &args->data_len;
    r->error = args->error;
    r->optional = 1;

    if (zk_lock_reader_open(r, body->memory, sizeof(body->memory)) != 0) {
        free(body);
        return NULL;
    }

    return body;
}


int
zk_lock_body_feed(zk_lock_body_t *body, const char *text, size_t len)
{
    return zk_lock_reader_feed(&body->reader, text, len);
}


int
zk_lock_body_close(zk_lock_body_t *body)
{
    int  rc;

    rc = zk_lock_reader_close(&body->reader);
    free(body);

    return rc;
}


static zk_lock_value_e
zk_lock_body_key(void *data, const char *name, size_t len)
{
    zk_lock_body_t *body = data;

    body->field = zk_lock_args_field(body->args, "field", name, len,
                                     body->allowed, &body->seen);

    if (body->field == 0) {
        return ZK_LOCK_VALUE_NONE;
    }

    if (body->field == ZK_LOCK_ARG_NAMES) {
        body->args->names_len = 0;
        body->args->nnames = 0;
        return ZK_LOCK_VALUE_LIST;
    }

    if (body->field != ZK_LOCK_ARG_DATA) {
        return ZK_LOCK_VALUE_SET;
    }

    body->args->given |= ZK_LOCK_ARG_DATA;
    body->args->data_len = 0;

    return ZK_LOCK_VALUE_COPIED;
}


static int
zk_lock_body_set(void *data, zk_lock_type_e type, const char *text, size_t len)
{
    zk_lock_body_t *body = data;

    unsigned  number, timed;

    if (body->field == ZK_LOCK_ARG_NAMES) {
        return zk_lock_body_names(body, type, text, len);
    }

    timed = body->field & (ZK_LOCK_ARG_WAIT|ZK_LOCK_ARG_TTL);
    number = timed
             || (body->field & (ZK_LOCK_ARG_PERMITS|ZK_LOCK_ARG_LIMIT
                                |ZK_LOCK_ARG_FORCE|ZK_LOCK_ARG_REVOKE
                                |ZK_LOCK_ARG_DURABLE));

    if (type != ZK_LOCK_STRING && !(number && type == ZK_LOCK_NUMBER)) {
        return zk_lock_args_refuse(body->args, body->field);
    }

    if (timed && type == ZK_LOCK_NUMBER
        && (memchr(text, 'e', len) != NULL || memchr(text, 'E', len) != NULL))
    {
        return zk_lock_args_error(body->args, "\"%s\" takes a number of seconds"
                                  " without an exponent",
                                  (body->field == ZK_LOCK_ARG_TTL) ? "ttl"
                                                                : "wait");
    }

    return zk_lock_args_set(body->args, body->field, text, len);
}


/* one of the names, or the end of them */

static int
zk_lock_body_names(zk_lock_body_t *body, zk_lock_type_e type,
    const char *text, size_t len)
{
    if (type == ZK_LOCK_STRING) {
        return zk_lock_args_name(body->args, text, len);
    }

    if (type != ZK_LOCK_ARRAY || body->args->nnames == 0) {
        return zk_lock_args_refuse(body->args, body->field);
    }

    body->args->given |= ZK_LOCK_ARG_NAMES;

    return 0;
}
