
/*
 * Acquires: POST of a lock.
 *
 * A request becomes a claim, and waits with it.  With a key it may turn out
 * that the key has a claim already, made by a request before it, whatever
 * worker and gateway that came to: then the request waits with that one, and
 * is told of its grant.  What a key stands for is in the claim itself: its id
 * begins with a hash of the key, and the parameters of the request are hashed
 * into its label.
 *
 * Everything here runs on the event loop.
 */


#include "ngx_http_zk_lock_answer.h"
#include "ngx_http_zk_lock_stream.h"
#include "ngx_http_zk_lock_watch.h"

#include <ngx_sha1.h>


#define NGX_HTTP_ZK_LOCK_KEY_MAX      255


/* a request with a key, which may have to begin again */

typedef struct {
    ngx_http_zk_lock_watch_t           watch;
    ngx_http_zk_lock_acquire_t         acquire;
    zk_lock_label_t                    label;
    uint8_t                            key[NGX_HTTP_ZK_LOCK_KEY];
    ngx_msec_t                         started;
} ngx_http_zk_lock_keyed_t;


static const char *ngx_http_zk_lock_acquire_kind(zk_lock_args_t *args,
    zk_lock_kind_t *kind);
static const char *ngx_http_zk_lock_acquire_check(zk_lock_args_t *args);
static ngx_int_t ngx_http_zk_lock_acquire_key(ngx_http_request_t *r,
    ngx_str_t **key);
static uint32_t ngx_http_zk_lock_acquire_params(zk_lock_args_t *args,
    ngx_http_zk_lock_acquire_t *acquire);
static ngx_int_t ngx_http_zk_lock_acquire_send(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_acquire_t *acquire);
static void ngx_http_zk_lock_acquire_handler(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_outcome_e outcome);
static ngx_int_t ngx_http_zk_lock_acquire_granted(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_acquire_keyed_handler(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_outcome_e outcome);
static ngx_msec_t ngx_http_zk_lock_acquire_left(
    ngx_http_zk_lock_keyed_t *keyed);
static ngx_int_t ngx_http_zk_lock_acquire_join_handler(
    ngx_http_zk_lock_watch_t *watch, ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer, ngx_http_zk_lock_again_e *again);
static ngx_int_t ngx_http_zk_lock_acquire_joined(
    ngx_http_zk_lock_keyed_t *keyed, ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_again_e *again);
static void ngx_http_zk_lock_acquire_holder_handler(
    ngx_http_zk_lock_ask_t *ask, ngx_http_zk_lock_answer_e answer);


static ngx_str_t  ngx_http_zk_lock_key_header = ngx_string("idempotency-key");


ngx_int_t
ngx_http_zk_lock_acquire(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_str_t                    *key;
    ngx_uint_t                    status, stream;
    zk_lock_args_t                args;
    zk_lock_label_t               label;
    ngx_http_zk_lock_acquire_t    acquire;
    ngx_http_zk_lock_loc_conf_t  *zlcf;
    uint8_t                       hash[NGX_HTTP_ZK_LOCK_KEY];

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    if (ngx_http_zk_lock_args(r, &args, ZK_LOCK_ARG_WAIT|ZK_LOCK_ARG_TTL
                                  |ZK_LOCK_ARG_MODE|ZK_LOCK_ARG_PERMITS
                                  |ZK_LOCK_ARG_OWNER|ZK_LOCK_ARG_DATA
                                  |ZK_LOCK_ARG_HOLD, &status)
        != NGX_OK)
    {
        return ngx_http_zk_lock_problem(r, status, args.error);
    }

    ngx_memzero(&label, sizeof(zk_lock_label_t));

    if (ngx_http_zk_lock_acquire_fill(r, ctx, &args, &acquire, &label)
        != NGX_OK)
    {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST, args.error);
    }

    if (ngx_http_zk_lock_acquire_key(r, &key) != NGX_OK) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "an Idempotency-Key is one header of "
                                        "1 to 255 visible characters");
    }

    if (key != NULL && ngx_http_zk_lock_api_node(r)) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "zk_lock_layout node takes no "
                                        "Idempotency-Key");
    }

    stream = (args.given & ZK_LOCK_ARG_HOLD)
             && ngx_strcmp(args.hold, "connection") == 0;

    if (stream) {

        if (key != NULL) {
            return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                            "what is held by a connection "
                                            "takes no Idempotency-Key");
        }

        if (!acquire.leased) {
            label.ttl = 0;
        }

        return ngx_http_zk_lock_stream_claim(r, ctx, &acquire);
    }

    if (ngx_http_zk_lock_prefers(r, "respond-async")
        && !ngx_http_zk_lock_api_node(r))
    {
        acquire.async = 1;
        acquire.grace = zlcf->grace;
        acquire.forever = !(args.given & ZK_LOCK_ARG_WAIT);
        label.async = 1;
    }

    if (key == NULL) {
        return ngx_http_zk_lock_acquire_send(r, ctx, &acquire);
    }

    ngx_http_zk_lock_acquire_hash(ctx, "key", key, hash);

    acquire.key = hash;
    label.params = ngx_http_zk_lock_acquire_params(&args, &acquire);

    return ngx_http_zk_lock_acquire_keyed(r, ctx, &acquire);
}


ngx_int_t
ngx_http_zk_lock_acquire_fill(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zk_lock_args_t *args,
    ngx_http_zk_lock_acquire_t *acquire, zk_lock_label_t *label)
{
    const char                   *why;
    ngx_str_t                    *addr;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    ngx_memzero(acquire, sizeof(ngx_http_zk_lock_acquire_t));

    why = ngx_http_zk_lock_acquire_kind(args, &acquire->kind);

    if (why == NULL) {
        why = ngx_http_zk_lock_acquire_check(args);
    }

    if (why == NULL && ngx_http_zk_lock_api_node(r)) {

        if (acquire->kind != ZK_LOCK_MUTEX) {
            why = "zk_lock_layout node takes \"mode\" \"exclusive\" only";
        }

        acquire->kind = ZK_LOCK_NODE;
    }

    if (why != NULL) {
        (void) ngx_cpystrn((u_char *) args->error, (u_char *) why,
                           sizeof(args->error));
        return NGX_ERROR;
    }

    acquire->path = ctx->path;
    acquire->wait = (args->given & ZK_LOCK_ARG_WAIT) ? (ngx_msec_t) args->wait
                                                     : zlcf->wait;
    acquire->wait = ngx_min(acquire->wait, zlcf->max_wait);

    if (acquire->kind == ZK_LOCK_MEMBER) {

        /* never because of members: only until others have been refused */

        acquire->wait = ngx_max(acquire->wait, NGX_HTTP_ZK_LOCK_PATIENCE);
    }

    acquire->leased = (args->given & ZK_LOCK_ARG_TTL) ? 1 : 0;
    acquire->ttl = acquire->leased ? (ngx_msec_t) args->ttl : zlcf->ttl;
    acquire->ttl = ngx_min(acquire->ttl, zlcf->max_ttl);
    acquire->max_queue = zlcf->max_queue;
    acquire->label = label;

    label->has_id = (acquire->kind == ZK_LOCK_NODE);
    label->ttl = acquire->ttl;
    label->owner_len = args->owner_len;
    label->data_len = args->data_len;
    ngx_memcpy(label->owner, args->owner, args->owner_len);
    ngx_memcpy(label->data, args->data, args->data_len);

    addr = &r->connection->addr_text;

    if (addr->len <= ZK_LOCK_FROM_MAX) {
        label->from_len = addr->len;
        ngx_memcpy(label->from, addr->data, addr->len);
    }

    ctx->waits = 1;

    return NGX_OK;
}


/* Returns NULL, or what is wrong. */

static const char *
ngx_http_zk_lock_acquire_kind(zk_lock_args_t *args, zk_lock_kind_t *kind)
{
    ngx_uint_t  i, permits;

    static struct {
        const char      *mode;
        zk_lock_kind_t   kind;
    } modes[] = {
        { "exclusive", ZK_LOCK_MUTEX },
        { "shared",    ZK_LOCK_READ },
        { "read",      ZK_LOCK_READ },
        { "write",     ZK_LOCK_WRITE },
        { "semaphore", ZK_LOCK_SEMAPHORE },
        { "member",    ZK_LOCK_MEMBER }
    };

    *kind = ZK_LOCK_MUTEX;

    if (args->given & ZK_LOCK_ARG_MODE) {

        for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
            if (ngx_strcmp(args->mode, modes[i].mode) == 0) {
                break;
            }
        }

        if (i == sizeof(modes) / sizeof(modes[0])) {
            return "\"mode\" takes \"exclusive\", \"shared\" (or \"read\"), "
                   "\"write\", \"semaphore\" or \"member\"";
        }

        *kind = modes[i].kind;
    }

    permits = (args->given & ZK_LOCK_ARG_PERMITS) != 0;

    if (*kind != ZK_LOCK_SEMAPHORE) {
        return permits ? "\"permits\" goes with \"mode\" \"semaphore\" only"
                       : NULL;
    }

    if (!permits) {
        return "\"mode\" \"semaphore\" takes \"permits\", the number of those "
               "who may hold the lock at the same time";
    }

    *kind = zk_lock_semaphore(args->permits);

    return NULL;
}


static const char *
ngx_http_zk_lock_acquire_check(zk_lock_args_t *args)
{
    if ((args->given & ZK_LOCK_ARG_HOLD)
        && ngx_strcmp(args->hold, "lease") != 0
        && ngx_strcmp(args->hold, "connection") != 0)
    {
        return "\"hold\" takes \"lease\" or \"connection\"";
    }

    if ((args->given & ZK_LOCK_ARG_TTL) && args->ttl == 0) {
        return "\"ttl\" takes a duration above zero";
    }

    return NULL;
}


/* *key is NULL if there is none. */

static ngx_int_t
ngx_http_zk_lock_acquire_key(ngx_http_request_t *r, ngx_str_t **key)
{
    size_t      i;
    ngx_uint_t  n;

    *key = ngx_http_zk_lock_header(r, &ngx_http_zk_lock_key_header, &n);

    if (*key == NULL) {
        return NGX_OK;
    }

    if (n != 1 || (*key)->len == 0 || (*key)->len > NGX_HTTP_ZK_LOCK_KEY_MAX) {
        return NGX_ERROR;
    }

    for (i = 0; i < (*key)->len; i++) {
        if ((*key)->data[i] < 0x21 || (*key)->data[i] > 0x7e) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


void
ngx_http_zk_lock_acquire_hash(ngx_http_zk_lock_ctx_t *ctx,
    const char *kind, ngx_str_t *key, uint8_t *hash)
{
    u_char      digest[20];
    ngx_sha1_t  sha1;

    ngx_sha1_init(&sha1);
    ngx_sha1_update(&sha1, kind, ngx_strlen(kind) + 1);
    ngx_sha1_update(&sha1, ctx->path.data, ctx->path.len);
    ngx_sha1_update(&sha1, "", 1);
    ngx_sha1_update(&sha1, key->data, key->len);
    ngx_sha1_final(digest, &sha1);

    ngx_memcpy(hash, digest, NGX_HTTP_ZK_LOCK_KEY);
}


/* What a repeat has to have in common; how long it waits is its own. */

static uint32_t
ngx_http_zk_lock_acquire_params(zk_lock_args_t *args,
    ngx_http_zk_lock_acquire_t *acquire)
{
    uint32_t  crc;

    ngx_crc32_init(crc);
    ngx_crc32_update(&crc, (u_char *) &acquire->kind, sizeof(zk_lock_kind_t));
    ngx_crc32_update(&crc, (u_char *) &acquire->ttl, sizeof(ngx_msec_t));
    ngx_crc32_update(&crc, (u_char *) args->owner, args->owner_len + 1);
    ngx_crc32_update(&crc, (u_char *) args->data, args->data_len);
    ngx_crc32_final(crc);

    return crc;
}


static ngx_int_t
ngx_http_zk_lock_acquire_send(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_acquire_t *acquire)
{
    ngx_int_t                   rc;
    ngx_http_zk_lock_outcome_e  outcome;

    rc = ngx_http_zk_lock_api_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    acquire->handler = ngx_http_zk_lock_acquire_handler;
    acquire->data = ctx;

    ctx->claim = ngx_http_zk_lock_claim_acquire(ctx->worker, acquire,
                                                &outcome);

    if (ctx->claim == NULL) {
        return ngx_http_zk_lock_api_refused(r, ctx, outcome);
    }

    return NGX_DONE;
}


static void
ngx_http_zk_lock_acquire_handler(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_outcome_e outcome)
{
    ngx_http_zk_lock_ctx_t *ctx = data;

    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = ctx->request;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock: \"%V\" outcome %d", &ctx->path, outcome);

    ctx->claim = NULL;
    ctx->waited = ngx_current_msec - claim->started;

    switch (outcome) {

    case NGX_HTTP_ZK_LOCK_GRANTED:
        rc = ngx_http_zk_lock_acquire_granted(r, ctx, claim);
        break;

    case NGX_HTTP_ZK_LOCK_QUEUED:
        ngx_str_set(&ctx->outcome, "queued");
        ngx_http_zk_lock_api_note(ctx, claim);

        rc = ngx_http_zk_lock_answer_queued(r, ctx, claim);
        break;

    default:
        rc = ngx_http_zk_lock_api_refused(r, ctx, outcome);
        break;
    }

    ngx_http_zk_lock_api_end(r, rc);
}


static ngx_int_t
ngx_http_zk_lock_acquire_granted(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_claim_t *claim)
{
    if (ngx_http_zk_lock_api_gone(r)) {
        ngx_str_set(&ctx->outcome, "gone");
        ngx_http_zk_lock_claim_abandon(claim);

        return NGX_HTTP_CLIENT_CLOSED_REQUEST;
    }

    ngx_str_set(&ctx->outcome, "granted");

    ngx_http_zk_lock_api_note(ctx, claim);
    ctx->granted = 1;

    return ngx_http_zk_lock_answer_granted(r, ctx, claim);
}


ngx_int_t
ngx_http_zk_lock_acquire_keyed(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_acquire_t *acquire)
{
    ngx_int_t                     rc;
    ngx_http_zk_lock_keyed_t     *keyed;
    ngx_http_zk_lock_outcome_e    outcome;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    rc = ngx_http_zk_lock_api_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    keyed = ngx_pcalloc(r->pool, sizeof(ngx_http_zk_lock_keyed_t));
    if (keyed == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    keyed->started = ngx_current_msec;
    keyed->label = *acquire->label;
    keyed->label.has_params = 1;
    keyed->label.async = 1;
    ngx_memcpy(keyed->key, acquire->key, NGX_HTTP_ZK_LOCK_KEY);

    keyed->acquire = *acquire;
    keyed->acquire.label = &keyed->label;
    keyed->acquire.key = keyed->key;
    keyed->acquire.grace = zlcf->grace;
    keyed->acquire.handler = ngx_http_zk_lock_acquire_keyed_handler;
    keyed->acquire.data = keyed;

    keyed->watch.request = r;
    keyed->watch.ctx = ctx;
    keyed->watch.data = keyed;

    ctx->claim = ngx_http_zk_lock_claim_acquire(ctx->worker, &keyed->acquire,
                                                &outcome);

    if (ctx->claim == NULL) {
        return ngx_http_zk_lock_api_refused(r, ctx, outcome);
    }

    return NGX_DONE;
}


static void
ngx_http_zk_lock_acquire_keyed_handler(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_outcome_e outcome)
{
    ngx_http_zk_lock_keyed_t *keyed = data;

    ngx_int_t                 rc;
    ngx_msec_t                left;
    zk_lock_child_t           twin;
    ngx_http_zk_lock_ctx_t   *ctx;

    ctx = keyed->watch.ctx;

    if (outcome != NGX_HTTP_ZK_LOCK_TWIN) {
        ngx_http_zk_lock_acquire_handler(ctx, claim, outcome);
        return;
    }

    ctx->claim = NULL;

    twin = claim->twin;

    ctx->token.id = twin.id;
    ctx->token.seq = twin.seq;
    ctx->token.kind = twin.kind;
    ctx->has_token = 1;

    zk_lock_token_write((char *) ctx->secret, &ctx->token,
                        (char *) ctx->path.data, ctx->path.len);

    ngx_memzero(&keyed->watch, sizeof(ngx_http_zk_lock_watch_t));

    keyed->watch.type = NGX_HTTP_ZK_LOCK_INSPECT;
    keyed->watch.handler = ngx_http_zk_lock_acquire_join_handler;
    keyed->watch.data = keyed;

    left = keyed->acquire.async ? 0 : ngx_http_zk_lock_acquire_left(keyed);

    rc = ngx_http_zk_lock_watch(ctx->request, ctx, &keyed->watch, left);

    if (rc != NGX_DONE) {
        ngx_http_zk_lock_api_end(ctx->request, rc);
    }
}


/* What is left of the wait. */

static ngx_msec_t
ngx_http_zk_lock_acquire_left(ngx_http_zk_lock_keyed_t *keyed)
{
    ngx_msec_t  past;

    past = ngx_current_msec - keyed->started;

    return (past < keyed->acquire.wait) ? keyed->acquire.wait - past : 0;
}


static ngx_int_t
ngx_http_zk_lock_acquire_join_handler(ngx_http_zk_lock_watch_t *watch,
    ngx_http_zk_lock_ask_t *ask, ngx_http_zk_lock_answer_e answer,
    ngx_http_zk_lock_again_e *again)
{
    ngx_http_zk_lock_keyed_t *keyed = watch->data;

    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    r = watch->request;
    ctx = watch->ctx;

    ctx->waited = ngx_current_msec - keyed->started;

    switch (answer) {

    case NGX_HTTP_ZK_LOCK_ASK_OK:
        return ngx_http_zk_lock_acquire_joined(keyed, ask, again);

    case NGX_HTTP_ZK_LOCK_ASK_GONE:

        /* the one that was joined has ended: this one begins anew */

        ctx->has_token = 0;
        keyed->acquire.wait = ngx_http_zk_lock_acquire_left(keyed);

        return ngx_http_zk_lock_acquire_keyed(r, ctx, &keyed->acquire);

    default:
        return ngx_http_zk_lock_api_answered(r, ctx, ask, answer);
    }
}


static ngx_int_t
ngx_http_zk_lock_acquire_joined(ngx_http_zk_lock_keyed_t *keyed,
    ngx_http_zk_lock_ask_t *ask, ngx_http_zk_lock_again_e *again)
{
    zk_lock_label_t           label;
    ngx_http_request_t       *r;
    ngx_http_zk_lock_ctx_t   *ctx;
    ngx_http_zk_lock_info_t  *info;

    r = keyed->watch.request;
    ctx = keyed->watch.ctx;
    info = &ask->infos[0];

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    if (label.has_params && label.params != keyed->label.params) {
        ngx_str_set(&ctx->outcome, "refused");

        return ngx_http_zk_lock_problem(r,
                                        NGX_HTTP_ZK_LOCK_STATUS_UNPROCESSABLE,
                                        "this Idempotency-Key was used for "
                                        "this lock with other parameters");
    }

    if (info->held) {
        return ngx_http_zk_lock_answer_claim(r, ctx, ask, NGX_HTTP_OK);
    }

    if (keyed->acquire.async) {
        return ngx_http_zk_lock_answer_claim(r, ctx, ask, NGX_HTTP_ACCEPTED);
    }

    /* who tries once is told what becomes of a claim that is being granted */

    if (info->pending
        && ctx->waited < keyed->acquire.wait + NGX_HTTP_ZK_LOCK_PATIENCE)
    {
        *again = NGX_HTTP_ZK_LOCK_SOON;
        return NGX_OK;
    }

    if (!keyed->watch.over) {
        *again = NGX_HTTP_ZK_LOCK_LATER;
        return NGX_OK;
    }

    return ngx_http_zk_lock_api_refused(r, ctx, NGX_HTTP_ZK_LOCK_TAKEN);
}


ngx_int_t
ngx_http_zk_lock_api_refused(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_outcome_e outcome)
{
    switch (outcome) {

    case NGX_HTTP_ZK_LOCK_TAKEN:
        ngx_str_set(&ctx->outcome, "taken");

        return ngx_http_zk_lock_api_ask(r, ctx, NGX_HTTP_ZK_LOCK_HOLDER, 0,
                                    ngx_http_zk_lock_acquire_holder_handler);

    case NGX_HTTP_ZK_LOCK_CONFLICT:
        ngx_str_set(&ctx->outcome, "conflict");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_CONFLICT,
                                        "the lock is used in another mode, or "
                                        "with another number of permits, by "
                                        "those who hold it or wait for it");

    case NGX_HTTP_ZK_LOCK_LAYOUT:
        ngx_str_set(&ctx->outcome, "conflict");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_CONFLICT,
                                        "this znode is no lock of this "
                                        "location's zk_lock_layout");

    case NGX_HTTP_ZK_LOCK_FULL:
        ngx_str_set(&ctx->outcome, "full");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_TOO_MANY_REQUESTS,
                                        "the queue of this lock is full");

    case NGX_HTTP_ZK_LOCK_UNREACHABLE:
        ngx_str_set(&ctx->outcome, "unreachable");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                        "ZooKeeper is out of reach: nothing "
                                        "was granted, repeating is safe");

    case NGX_HTTP_ZK_LOCK_NO_ROOM:
        ngx_str_set(&ctx->outcome, "no_room");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                        "this gateway has no room for one "
                                        "more claim: nothing was granted");

    case NGX_HTTP_ZK_LOCK_WORN_OUT:
        ngx_str_set(&ctx->outcome, "refused");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_CONFLICT,
                                        "ZooKeeper has no numbers left for "
                                        "claims of this lock: its znode has "
                                        "to be removed once it is empty");

    case NGX_HTTP_ZK_LOCK_DENIED:
        ngx_str_set(&ctx->outcome, "refused");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_INTERNAL_SERVER_ERROR,
                                        "ZooKeeper does not let this gateway "
                                        "queue for this lock");

    case NGX_HTTP_ZK_LOCK_CANCELLED:
        ngx_str_set(&ctx->outcome, "cancelled");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_ZK_LOCK_STATUS_GONE,
                                        "the claim was cancelled");

    case NGX_HTTP_ZK_LOCK_SHUT:
        ngx_str_set(&ctx->outcome, "shut");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                        "this worker process leaves: nothing "
                                        "was granted, repeating is safe");

    default: /* NGX_HTTP_ZK_LOCK_FAILED */
        ngx_str_set(&ctx->outcome, "failed");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_INTERNAL_SERVER_ERROR,
                                        "the claim could not be made: "
                                        "nothing was granted");
    }
}


static void
ngx_http_zk_lock_acquire_holder_handler(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer)
{
    ngx_int_t                rc;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ask->data;
    r = ctx->request;

    ngx_http_set_log_request(r->connection->log, r);

    ctx->ask = NULL;

    /* the holder is a courtesy: the answer does not depend on it */

    rc = ngx_http_zk_lock_answer_taken(r, answer == NGX_HTTP_ZK_LOCK_ASK_OK
                                          ? &ask->infos[0] : NULL);

    ngx_http_zk_lock_api_end(r, rc);
}
