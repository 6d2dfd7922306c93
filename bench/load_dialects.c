
/*
 * How servers are asked for locks, and what they answer.
 *
 * gateway: POST /locks/NAME, and DELETE with the token.  The request is held
 * until the lock is granted.
 *
 * three: the same, and a request under the lock, GET /plain/?lock=NAME.
 *
 * one: GET /NAME, and nothing else: NAME leads to a location, which may have a
 * guard.
 *
 * etcd 3.4, by etcd's JSON gateway: a lease for each client, granted before the
 * measurement and revoked afterwards; /v3/lock/lock with the name and the
 * lease, and /v3/lock/unlock with the key of the answer.  The request is held
 * until the lock is granted.  The fencing token is the store's revision.
 *
 * webdis over Redis: SET NAME VALUE NX PX, with a value of this client alone,
 * and a script that deletes the key if the key still has the value.  No request
 * is held: a client that finds the lock taken tries again.  There is no fencing
 * token.
 */


#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"


/* seconds: longer than any run, so that no client has to renew */
#define LEASE           "3600"

/* ms: what is usual */
#define EXPIRY          "30000"

/*
 * if redis.call('get',KEYS[1])==ARGV[1] then
 *     return redis.call('del',KEYS[1]) else return 0 end
 */
#define DELETE_IF_MINE                                                        \
    "if%20redis%2Ecall(%27get%27,KEYS%5B1%5D)%3D%3DARGV%5B1%5D%20then%20"     \
    "return%20redis%2Ecall(%27del%27,KEYS%5B1%5D)%20else%20return%200%20end"


static int gateway_ask_acquire(client_t *c, char *text, size_t size);
static outcome_e gateway_hear_acquire(client_t *c, const answer_t *answer);
static int gateway_ask_release(client_t *c, char *text, size_t size);
static outcome_e gateway_hear_release(client_t *c, const answer_t *answer);

static int three_ask(client_t *c, char *text, size_t size);
static int one_ask(client_t *c, char *text, size_t size);
static outcome_e get_hear(client_t *c, const answer_t *answer);

static int etcd_ask_open(client_t *c, char *text, size_t size);
static outcome_e etcd_hear_open(client_t *c, const answer_t *answer);
static int etcd_ask_acquire(client_t *c, char *text, size_t size);
static outcome_e etcd_hear_acquire(client_t *c, const answer_t *answer);
static int etcd_ask_release(client_t *c, char *text, size_t size);
static int etcd_ask_close(client_t *c, char *text, size_t size);
static outcome_e etcd_hear(client_t *c, const answer_t *answer);
static int etcd_post(char *text, size_t size, const char *path,
    const char *body);

static int webdis_ask_open(client_t *c, char *text, size_t size);
static outcome_e webdis_hear_open(client_t *c, const answer_t *answer);
static int webdis_ask_acquire(client_t *c, char *text, size_t size);
static outcome_e webdis_hear_acquire(client_t *c, const answer_t *answer);
static int webdis_ask_release(client_t *c, char *text, size_t size);
static outcome_e webdis_hear_release(client_t *c, const answer_t *answer);

static outcome_e hear_open(client_t *c, const answer_t *answer,
    const char *name);
static int take(char *to, size_t size, const char *value, const char *end);
static int member(const char *json, const char *name, char *to, size_t size);
static void base64(char *to, const char *from);


static const dialect_t  dialects[] = {

    { "gateway", 1,
      { { NULL, NULL },
        { gateway_ask_acquire, gateway_hear_acquire },
        { NULL, NULL },
        { gateway_ask_release, gateway_hear_release },
        { NULL, NULL } } },

    { "three", 1,
      { { NULL, NULL },
        { gateway_ask_acquire, gateway_hear_acquire },
        { three_ask, get_hear },
        { gateway_ask_release, gateway_hear_release },
        { NULL, NULL } } },

    { "one", 0,
      { { NULL, NULL },
        { one_ask, get_hear },
        { NULL, NULL },
        { NULL, NULL },
        { NULL, NULL } } },

    { "etcd", 1,
      { { etcd_ask_open, etcd_hear_open },
        { etcd_ask_acquire, etcd_hear_acquire },
        { NULL, NULL },
        { etcd_ask_release, etcd_hear },
        { etcd_ask_close, etcd_hear } } },

    { "webdis", 0,
      { { webdis_ask_open, webdis_hear_open },
        { webdis_ask_acquire, webdis_hear_acquire },
        { NULL, NULL },
        { webdis_ask_release, webdis_hear_release },
        { NULL, NULL } } }
};


const dialect_t *
dialect_find(const char *name)
{
    size_t  i;

    for (i = 0; i < sizeof(dialects) / sizeof(dialects[0]); i++) {
        if (strcmp(dialects[i].name, name) == 0) {
            return &dialects[i];
        }
    }

    return NULL;
}


/* --- the gateway -------------------------------------------------------- */

static int
gateway_ask_acquire(client_t *c, char *text, size_t size)
{
    return snprintf(text, size, "POST /locks/%s HTTP/1.1\r\n"
                    "Host: localhost\r\n\r\n", c->name);
}


static outcome_e
gateway_hear_acquire(client_t *c, const answer_t *answer)
{
    const char  *token, *fencing;

    token = http_header(answer->head, "Lock-Token");
    fencing = http_header(answer->head, "Lock-Fencing-Token");

    if (answer->status != 201 || token == NULL || fencing == NULL) {
        return WRONG;
    }

    c->fencing = atoll(fencing);

    return take(c->token, sizeof(c->token), token, "\r") ? DONE : WRONG;
}


static int
gateway_ask_release(client_t *c, char *text, size_t size)
{
    return snprintf(text, size, "DELETE /locks/%s HTTP/1.1\r\n"
                    "Host: localhost\r\nLock-Token: %s\r\n\r\n",
                    c->name, c->token);
}


static outcome_e
gateway_hear_release(client_t *c, const answer_t *answer)
{
    (void) c;

    return answer->status == 204 ? DONE : WRONG;
}


/* --- a request ---------------------------------------------------------- */

static int
three_ask(client_t *c, char *text, size_t size)
{
    return snprintf(text, size, "GET /plain/?lock=%s HTTP/1.1\r\n"
                    "Host: localhost\r\n\r\n", c->name);
}


static int
one_ask(client_t *c, char *text, size_t size)
{
    return snprintf(text, size, "GET /%s HTTP/1.1\r\n"
                    "Host: localhost\r\n\r\n", c->name);
}


static outcome_e
get_hear(client_t *c, const answer_t *answer)
{
    (void) c;

    return answer->status == 204 ? DONE : WRONG;
}


/* --- etcd --------------------------------------------------------------- */

static int
etcd_ask_open(client_t *c, char *text, size_t size)
{
    (void) c;

    return etcd_post(text, size, "/v3/lease/grant", "{\"TTL\":" LEASE "}");
}


static outcome_e
etcd_hear_open(client_t *c, const answer_t *answer)
{
    return hear_open(c, answer, "ID");
}


static int
etcd_ask_acquire(client_t *c, char *text, size_t size)
{
    char  name[2 * NAME_MAX_LEN], body[4 * NAME_MAX_LEN + TOKEN_MAX_LEN];

    base64(name, c->name);

    snprintf(body, sizeof(body), "{\"name\":\"%s\",\"lease\":\"%s\"}", name,
             c->session);

    return etcd_post(text, size, "/v3/lock/lock", body);
}


static outcome_e
etcd_hear_acquire(client_t *c, const answer_t *answer)
{
    char  revision[32];

    if (answer->status != 200
        || !member(answer->body, "key", c->token, sizeof(c->token))
        || !member(answer->body, "revision", revision, sizeof(revision)))
    {
        return WRONG;
    }

    c->fencing = atoll(revision);

    return DONE;
}


static int
etcd_ask_release(client_t *c, char *text, size_t size)
{
    char  body[TOKEN_MAX_LEN + 32];

    snprintf(body, sizeof(body), "{\"key\":\"%s\"}", c->token);

    return etcd_post(text, size, "/v3/lock/unlock", body);
}


static int
etcd_ask_close(client_t *c, char *text, size_t size)
{
    char  body[TOKEN_MAX_LEN + 32];

    snprintf(body, sizeof(body), "{\"ID\":\"%s\"}", c->session);

    return etcd_post(text, size, "/v3/lease/revoke", body);
}


static outcome_e
etcd_hear(client_t *c, const answer_t *answer)
{
    (void) c;

    return answer->status == 200 ? DONE : WRONG;
}


static int
etcd_post(char *text, size_t size, const char *path, const char *body)
{
    return snprintf(text, size, "POST %s HTTP/1.1\r\nHost: localhost\r\n"
                    "Content-Type: application/json\r\n"
                    "Content-Length: %zu\r\n\r\n%s", path, strlen(body), body);
}


/* --- webdis ------------------------------------------------------------- */

static int
webdis_ask_open(client_t *c, char *text, size_t size)
{
    (void) c;

    return snprintf(text, size, "GET /SCRIPT/LOAD/%s HTTP/1.1\r\n"
                    "Host: localhost\r\n\r\n", DELETE_IF_MINE);
}


static outcome_e
webdis_hear_open(client_t *c, const answer_t *answer)
{
    return hear_open(c, answer, "SCRIPT");
}


/* the value is the client's number and when the cycle began */

static int
webdis_ask_acquire(client_t *c, char *text, size_t size)
{
    snprintf(c->token, sizeof(c->token), "%d-%llu", c->number,
             (unsigned long long) c->began);

    return snprintf(text, size, "GET /SET/%s/%s/NX/PX/" EXPIRY " HTTP/1.1\r\n"
                    "Host: localhost\r\n\r\n", c->name, c->token);
}


static outcome_e
webdis_hear_acquire(client_t *c, const answer_t *answer)
{
    (void) c;

    if (answer->status != 200) {
        return WRONG;
    }

    if (strcmp(answer->body, "{\"SET\":null}") == 0) {
        return TAKEN;
    }

    return strcmp(answer->body, "{\"SET\":[true,\"OK\"]}") == 0 ? DONE : WRONG;
}


static int
webdis_ask_release(client_t *c, char *text, size_t size)
{
    return snprintf(text, size, "GET /EVALSHA/%s/1/%s/%s HTTP/1.1\r\n"
                    "Host: localhost\r\n\r\n", c->session, c->name, c->token);
}


static outcome_e
webdis_hear_release(client_t *c, const answer_t *answer)
{
    (void) c;

    return answer->status == 200
           && strcmp(answer->body, "{\"EVALSHA\":1}") == 0 ? DONE : WRONG;
}


/* what a session is called is in a member of the answer */

static outcome_e
hear_open(client_t *c, const answer_t *answer, const char *name)
{
    return answer->status == 200
           && member(answer->body, name, c->session, sizeof(c->session))
           ? DONE : WRONG;
}


/* --- texts -------------------------------------------------------------- */

/* a copy of what is in front of any of the characters; 0: it does not fit */

static int
take(char *to, size_t size, const char *value, const char *end)
{
    size_t  len;

    len = strcspn(value, end);

    if (len == 0 || len >= size) {
        return 0;
    }

    memcpy(to, value, len);
    to[len] = '\0';

    return 1;
}


/*
 * The first member of that name, in whatever object it is: a string without
 * escapes, or a number.  0: there is none.
 */

static int
member(const char *json, const char *name, char *to, size_t size)
{
    char         quoted[32];
    const char  *p;

    snprintf(quoted, sizeof(quoted), "\"%s\"", name);

    p = strstr(json, quoted);

    if (p == NULL) {
        return 0;
    }

    p += strlen(quoted);
    p += strspn(p, " :");

    return *p == '"' ? take(to, size, p + 1, "\"")
                     : take(to, size, p, ", }\r\n");
}


static void
base64(char *to, const char *from)
{
    unsigned           bits;
    size_t             i, left;
    static const char  digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (left = strlen(from); left > 0; left -= i, from += i) {
        bits = 0;

        for (i = 0; i < 3; i++) {
            bits = bits << 8 | (i < left ? (unsigned char) from[i] : 0);
        }

        *to++ = digits[bits >> 18];
        *to++ = digits[bits >> 12 & 63];
        *to++ = left > 1 ? digits[bits >> 6 & 63] : '=';
        *to++ = left > 2 ? digits[bits & 63] : '=';

        i = left < 3 ? left : 3;
    }

    *to = '\0';
}
