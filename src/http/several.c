
/*
 * Several locks at once: acquired together, then served by a single token.
 *
 * Each lock has a separate claim.  POST acquires a group of claims.  Until the
 * last grant the claims are bound: a bound claim has no lease and ends with the
 * worker.  Then all leases begin at once.
 *
 * The ids of the claims begin with the same random bytes, the key.  The token
 * is the first claim's, made for the path of all names together, then a dot
 * and the names.  So any worker of any gateway finds each claim by the lock's
 * path and the key.  A release, renewal or inspection starts the calls for all
 * claims at the same time; the last answer ends the request.
 *
 * Everything here runs on the event loop.  The state is in the request's pool
 * and in the context, whose cleanup leaves claims and calls.  The group has no
 * parts unless the request is a POST; part->call is NULL unless the call is in
 * flight.
 */


#include "http/several.h"
#include "http/acquire.h"
#include "http/args.h"
#include "http/repeat.h"
#include "http/result.h"


/* bytes of a token, a dot and the names */
#define NGX_HTTP_ZK_LOCK_PARTS_TEXT(len)                                       \
    (ZKL_TOKEN_LEN + 1 + ZKL_BASE64_LEN(len))


static ngx_int_t ngx_http_zk_lock_several_acquire(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
static ngx_int_t ngx_http_zk_lock_several_make(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, u_char *names, size_t len,
    ngx_http_zk_lock_several_t **several);
static void ngx_http_zk_lock_several_leave(void *data);
static ngx_int_t ngx_http_zk_lock_several_begin(
    ngx_http_zk_lock_several_t *several, zkl_acquire_t *acquire);
static const zkl_claim_data_t *ngx_http_zk_lock_several_cdata(
    zkl_group_t *group, ngx_uint_t part, zkl_claim_data_t *buf);
static void ngx_http_zk_lock_several_handler(zkl_group_t *group,
    zkl_outcome_e outcome);
static ngx_int_t ngx_http_zk_lock_several_refused(
    ngx_http_zk_lock_several_t *several);
static void ngx_http_zk_lock_several_holder_handler(zkl_call_t *call,
    zkl_answer_e answer);
static ngx_int_t ngx_http_zk_lock_several_problem(
    ngx_http_zk_lock_several_t *several, ngx_uint_t status, const char *detail,
    zkl_info_t *holder);
static ngx_int_t ngx_http_zk_lock_parts(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_e type);
static ngx_int_t ngx_http_zk_lock_parts_call(
    ngx_http_zk_lock_several_t *several, ngx_http_zk_lock_part_t *part,
    zkl_call_e type, ngx_msec_t ttl, zkl_call_pt handler);
static void ngx_http_zk_lock_parts_call_handler(zkl_call_t *call,
    zkl_answer_e answer);
static ngx_int_t ngx_http_zk_lock_parts_answered(
    ngx_http_zk_lock_several_t *several, zkl_call_t *call);
static ngx_int_t ngx_http_zk_lock_parts_answer(
    ngx_http_zk_lock_several_t *several, ngx_uint_t status);


ngx_int_t
ngx_http_zk_lock_several(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    switch (r->method) {

    case NGX_HTTP_POST:
        return ngx_http_zk_lock_several_acquire(r, ctx);

    case NGX_HTTP_DELETE:
        return ngx_http_zk_lock_parts(r, ctx, ZKL_RELEASE);

    case NGX_HTTP_PUT:
        return ngx_http_zk_lock_parts(r, ctx, ZKL_RENEW);

    default: /* NGX_HTTP_GET, NGX_HTTP_HEAD */
        return ngx_http_zk_lock_parts(r, ctx, ZKL_INSPECT);
    }
}


static ngx_int_t
ngx_http_zk_lock_several_acquire(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t                    rc;
    ngx_uint_t                   n;
    const char                  *why;
    zkl_args_t                   args;
    zkl_acquire_t                acquire;
    ngx_http_zk_lock_several_t  *several;

    rc = ngx_http_zk_lock_args(r, &args, ZKL_ARG_WAIT|ZKL_ARG_TTL
                                         |ZKL_ARG_MODE|ZKL_ARG_PERMITS
                                         |ZKL_ARG_OWNER|ZKL_ARG_DATA
                                         |ZKL_ARG_HOLD|ZKL_ARG_NAMES);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    why = NULL;

    if (ctx->text.data != NULL) {
        why = "several locks are acquired without a Lock-Token";

    } else if (ngx_http_zk_lock_header(r, "idempotency-key", &n)
               != NULL)
    {
        why = "an Idempotency-Key is for one lock";

    } else if (!(args.given & ZKL_ARG_NAMES)) {
        why = "there is no lock's name in the path (\".\" and \"..\" are "
              "none), and no \"names\" of several locks in the body";

    } else if ((args.given & ZKL_ARG_HOLD)
               && ngx_strcmp(args.hold, "connection") == 0)
    {
        why = "\"hold\" \"connection\" is for one lock";
    }

    if (why != NULL) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST, why);
    }

    rc = ngx_http_zk_lock_several_make(r, ctx, (u_char *) args.names,
                                       args.names_len, &several);
    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc != NGX_OK) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "the root and a name together are "
                                        "too long");
    }

    rc = ngx_http_zk_lock_acquire_fill(r, ctx, &args, &acquire,
                                       &several->cdata);
    if (rc != NGX_OK) {
        return ngx_http_zk_lock_problem(r, rc, args.error);
    }

    return ngx_http_zk_lock_several_begin(several, &acquire);
}


/*
 * Copies names, which are joined by slashes, and sorts the parts by the paths,
 * as a guard's locks.  NGX_DECLINED: a name is bad or too long, or the names
 * are too many or not in order.  NGX_ERROR: no memory.
 */

static ngx_int_t
ngx_http_zk_lock_several_make(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, u_char *names, size_t len,
    ngx_http_zk_lock_several_t **several)
{
    u_char                      *p, *last, *end;
    size_t                       n;
    ngx_int_t                    rc;
    ngx_str_t                    name, prior, path;
    ngx_uint_t                   i;
    ngx_http_zk_lock_part_t     *part;
    ngx_http_zk_lock_several_t  *s;

    s = ngx_pcalloc(r->pool, sizeof(ngx_http_zk_lock_several_t));
    if (s == NULL) {
        return NGX_ERROR;
    }

    s->request = r;
    s->ctx = ctx;
    s->nparts = 1;
    s->ttl = (ngx_msec_t) -1;
    s->expires = (ngx_msec_t) -1;

    for (n = 0; n < len; n++) {
        s->nparts += (names[n] == '/');
    }

    if (s->nparts > ZKL_ARGS_NAMES_MAX
        || len - (s->nparts - 1) > ZKL_NAMES_BYTES)
    {
        return NGX_DECLINED;
    }

    s->whole.len = ctx->root.len + 1 + len;
    s->whole.data = ngx_pnalloc(r->pool, s->whole.len);
    s->parts = ngx_pcalloc(r->pool,
                           s->nparts * sizeof(ngx_http_zk_lock_part_t));

    if (s->whole.data == NULL || s->parts == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(s->whole.data, ctx->root.data, ctx->root.len);
    *p++ = '/';
    last = ngx_cpymem(p, names, len);

    s->names.data = p;
    s->names.len = len;

    *several = s;

    ngx_str_null(&prior);

    for (i = 0; i < s->nparts; i++) {
        end = ngx_strlchr(p, last, '/');

        name.data = p;
        name.len = (end ? end : last) - p;

        if (name.len == 0
            || zkl_name_write(NULL, (char *) p, name.len) != name.len
            || (i != 0
                && ngx_memn2cmp(prior.data, p, prior.len, name.len) >= 0))
        {
            return NGX_DECLINED;
        }

        prior = name;
        p += name.len + 1;

        rc = ngx_http_zk_lock_request_path(r, &ctx->root, &name, &path);
        if (rc != NGX_OK) {
            return rc;
        }

        for (part = &s->parts[i]; part > s->parts; part--) {

            if (ngx_memn2cmp(part[-1].path.data, path.data, part[-1].path.len,
                             path.len)
                < 0)
            {
                break;
            }

            *part = part[-1];
        }

        part->name = name;
        part->path = path;
    }

    return NGX_OK;
}


/* The request ends; granted claims stay if the answer was written. */

static void
ngx_http_zk_lock_several_leave(void *data)
{
    ngx_http_zk_lock_several_t *several = data;

    ngx_uint_t                i;
    zkl_claim_t              *claim;
    ngx_http_zk_lock_part_t  *part;

    if (zkl_group_leave(&several->group)
        && several->ctx->told.outcome.len == 0)
    {
        ngx_str_set(&several->ctx->told.outcome, "gone");
    }

    for (i = 0; i < several->nparts; i++) {
        part = &several->parts[i];

        if (part->call != NULL) {
            zkl_call_leave(part->call);
            part->call = NULL;
        }
    }

    if (!several->granted || ngx_http_zk_lock_request_written(several->ctx)) {
        return;
    }

    ngx_log_error(NGX_LOG_INFO, several->request->connection->log, 0,
                  "client left before its grant was written, "
                  "its locks are released");

    ngx_str_set(&several->ctx->told.outcome, "gone");

    several->granted = 0;

    for (i = 0; i < several->nparts; i++) {
        part = &several->parts[i];

        claim = zkl_claim_find(several->ctx->worker, &part->id, &part->path);
        if (claim != NULL) {
            zkl_claim_release(claim, NULL);
        }
    }
}


static ngx_int_t
ngx_http_zk_lock_several_begin(ngx_http_zk_lock_several_t *several,
    zkl_acquire_t *acquire)
{
    ngx_int_t          rc;
    ngx_uint_t         i;
    zkl_group_t       *group;
    zkl_group_part_t  *part;

    group = &several->group;

    group->parts = ngx_pcalloc(several->request->pool,
                               several->nparts * sizeof(zkl_group_part_t));
    if (group->parts == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_zk_lock_request_hold(several->request, several->ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    several->ctx->other = several;
    several->ctx->leave = ngx_http_zk_lock_several_leave;

    for (i = 0; i < several->nparts; i++) {
        part = &group->parts[i];

        part->path = several->parts[i].path;
        part->mode = acquire->mode;
        part->wait = acquire->wait;
        part->once = acquire->terms.once;
    }

    group->worker = several->ctx->worker;
    group->nparts = several->nparts;
    group->timeout = acquire->timeout;
    group->ttl = acquire->ttl;
    group->terms = acquire->terms;
    group->cdata = ngx_http_zk_lock_several_cdata;
    group->request = acquire->request;
    group->handler = ngx_http_zk_lock_several_handler;
    group->data = several;
    group->keyed = 1;

    if (zkl_group_acquire(group) != NGX_OK) {
        return ngx_http_zk_lock_several_refused(several);
    }

    return NGX_DONE;
}


static const zkl_claim_data_t *
ngx_http_zk_lock_several_cdata(zkl_group_t *group, ngx_uint_t part,
    zkl_claim_data_t *buf)
{
    ngx_http_zk_lock_part_t     *named;
    ngx_http_zk_lock_several_t  *several;

    several = group->data;
    named = &several->parts[part];

    ngx_http_zk_lock_request_cdata(several->request, &several->cdata,
                                   &named->name, &named->path);

    return &several->cdata;
}


static void
ngx_http_zk_lock_several_handler(zkl_group_t *group, zkl_outcome_e outcome)
{
    ngx_int_t                    rc;
    ngx_uint_t                   i;
    zkl_claim_t                 *claim;
    ngx_http_request_t          *r;
    ngx_http_zk_lock_ctx_t      *ctx;
    ngx_http_zk_lock_part_t     *part;
    ngx_http_zk_lock_several_t  *several;
    zkl_claim_t                 *claims[ZKL_ARGS_NAMES_MAX];

    several = group->data;
    ctx = several->ctx;
    r = several->request;

    ngx_http_set_log_request(r->connection->log, r);

    if (outcome != ZKL_GRANTED) {
        ngx_http_zk_lock_request_end(r,
                                   ngx_http_zk_lock_several_refused(several));
        return;
    }

    ctx->told.waited = ngx_current_msec - group->started;

    if (ngx_http_zk_lock_request_gone(r)) {
        ngx_http_zk_lock_request_end(r, NGX_HTTP_CLIENT_CLOSED_REQUEST);
        return;
    }

    for (i = 0; i < several->nparts; i++) {
        part = &several->parts[i];
        claim = group->parts[i].claim;
        claims[i] = claim;

        part->id = claim->id;
        part->fencing = zkl_fencing_token(claim->czxid, claim->index);
    }

    several->mode = claims[0]->entry.mode;
    several->ttl = claims[0]->ttl;
    several->expires = claims[0]->ttl;

    ctx->token.id = claims[0]->id;
    ctx->token.seq = claims[0]->entry.seq;
    ctx->token.mode = claims[0]->entry.mode;

    zkl_claim_begin(claims, several->nparts);

    /* the group has no claims any more */

    group->nparts = 0;

    several->granted = 1;
    ngx_str_set(&ctx->told.outcome, "granted");

    rc = ngx_http_zk_lock_parts_answer(several, NGX_HTTP_CREATED);

    ngx_http_zk_lock_request_end(r, rc);
}


/* The request acquires no lock, because of the group's part. */

static ngx_int_t
ngx_http_zk_lock_several_refused(ngx_http_zk_lock_several_t *several)
{
    ngx_http_zk_lock_ctx_t           *ctx;
    const ngx_http_zk_lock_result_t  *row;

    ctx = several->ctx;
    ctx->told.waited = ngx_current_msec - several->group.started;

    several->part = &several->parts[several->group.part];

    if (several->group.outcome == ZKL_TIMED_OUT) {
        ngx_str_set(&ctx->told.outcome, "taken");

        return ngx_http_zk_lock_parts_call(several, several->part,
                                    ZKL_HOLDER, 0,
                                    ngx_http_zk_lock_several_holder_handler);
    }

    row = ngx_http_zk_lock_result(several->group.outcome);

    if (row->one != NULL) {
        ctx->told.outcome = row->word;

        return ngx_http_zk_lock_several_problem(several, row->kind, row->one,
                                                NULL);
    }

    return ngx_http_zk_lock_result_refused(several->request, ctx,
                                           several->group.outcome);
}


static void
ngx_http_zk_lock_several_holder_handler(zkl_call_t *call, zkl_answer_e answer)
{
    ngx_int_t                    rc;
    ngx_http_request_t          *r;
    ngx_http_zk_lock_several_t  *several;

    several = call->data;
    several->part->call = NULL;

    r = several->request;

    ngx_http_set_log_request(r->connection->log, r);

    /* the holder is a courtesy: the answer is sent without a holder, too */

    rc = ngx_http_zk_lock_several_problem(several,
                                    NGX_HTTP_ZK_LOCK_STATUS_LOCKED,
                                    "one of the locks is held, and the wait "
                                    "is over: a longer \"wait\" holds the "
                                    "request until all are free, which is "
                                    "better than to ask again",
                                    answer == ZKL_CALL_OK
                                    ? &call->infos[0] : NULL);

    ngx_http_zk_lock_request_end(r, rc);
}


/* holder may be NULL */

static ngx_int_t
ngx_http_zk_lock_several_problem(ngx_http_zk_lock_several_t *several,
    ngx_uint_t status, const char *detail, zkl_info_t *holder)
{
    ngx_str_t   *name;
    zkl_json_t  *json;

    name = &several->part->name;

    json = ngx_http_zk_lock_open_problem(several->request, status, detail);

    zkl_json_string(json, "name", (char *) name->data, name->len);

    ngx_http_zk_lock_write_holder(json, "holder", holder);

    if (status == NGX_HTTP_ZK_LOCK_STATUS_LOCKED) {
        ngx_http_zk_lock_write_note(json, several->ctx,
                                    NGX_HTTP_ZK_LOCK_NOTE_WAIT);
    }

    return ngx_http_zk_lock_send_problem(several->request, status, json);
}


/* Calls for locks that were acquired together, by the token. */


/* Releases, renews or inspects. */

static ngx_int_t
ngx_http_zk_lock_parts(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx,
    zkl_call_e type)
{
    char                         names[ZKL_NAMES_LEN];
    char                        *text;
    size_t                       len, n;
    ngx_int_t                    rc;
    ngx_msec_t                   ttl;
    ngx_uint_t                   i;
    zkl_args_t                   args;
    ngx_http_zk_lock_several_t  *several;

    rc = ngx_http_zk_lock_args(r, &args, type == ZKL_RENEW ? ZKL_ARG_TTL : 0);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (ctx->text.data == NULL) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "what is done with several locks "
                                        "takes the token of their grant, in "
                                        "a Lock-Token header");
    }

    /* the token, a dot, and the names */

    text = (char *) ctx->text.data;
    len = ctx->text.len;
    several = NULL;
    rc = NGX_DECLINED;

    if (len > ZKL_TOKEN_LEN + 1
        && len <= NGX_HTTP_ZK_LOCK_PARTS_TEXT(ZKL_NAMES_LEN)
        && text[ZKL_TOKEN_LEN] == '.'
        && zkl_text_base64_read(names, &n, text + ZKL_TOKEN_LEN + 1,
                                len - ZKL_TOKEN_LEN - 1)
           == 0)
    {
        rc = ngx_http_zk_lock_several_make(r, ctx, (u_char *) names, n,
                                           &several);
    }

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc != NGX_OK
        || zkl_name_token_read(&ctx->token, text, ZKL_TOKEN_LEN,
                               (char *) several->whole.data,
                               several->whole.len)
           != 0)
    {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_NOT_FOUND,
                                        "no such claims: this is no token of "
                                        "locks here");
    }

    several->text = ctx->text;
    ngx_memcpy(several->key, ctx->token.id.random, ZKL_KEY);

    ttl = ngx_http_zk_lock_args_ttl(ctx, &args);

    rc = ngx_http_zk_lock_request_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    ctx->other = several;
    ctx->leave = ngx_http_zk_lock_several_leave;

    for (i = 0; i < several->nparts; i++) {

        rc = ngx_http_zk_lock_parts_call(several, &several->parts[i], type, ttl,
                                         ngx_http_zk_lock_parts_call_handler);
        if (rc != NGX_DONE) {
            return rc;
        }
    }

    return NGX_DONE;
}


/*
 * Starts a call for the claim of part or, with HOLDER, for the lock.  The
 * handler must set part->call to NULL.  Returns NGX_DONE, or a status.
 */

static ngx_int_t
ngx_http_zk_lock_parts_call(ngx_http_zk_lock_several_t *several,
    ngx_http_zk_lock_part_t *part, zkl_call_e type, ngx_msec_t ttl,
    zkl_call_pt handler)
{
    zkl_token_t     token;
    zkl_question_t  question;

    ngx_memzero(&token, sizeof(zkl_token_t));
    ngx_memzero(&question, sizeof(zkl_question_t));

    token.seq = -1;
    ngx_memcpy(token.id.random, several->key, ZKL_KEY);

    question.type = type;
    question.path = &part->path;
    question.token = (type != ZKL_HOLDER) ? &token : NULL;
    question.ttl = ttl;
    question.timeout = several->ctx->conf->timeout;
    question.handler = handler;
    question.data = several;

    part->call = zkl_call_start(several->ctx->worker, &question);

    if (part->call == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    several->calls++;

    return NGX_DONE;
}


static void
ngx_http_zk_lock_parts_call_handler(zkl_call_t *call, zkl_answer_e answer)
{
    ngx_int_t                    rc;
    ngx_uint_t                   i;
    zkl_info_t                  *info;
    ngx_http_request_t          *r;
    ngx_http_zk_lock_part_t     *part;
    ngx_http_zk_lock_several_t  *several;

    several = call->data;
    r = several->request;

    for  (i = 0; several->parts[i].call != call; i++) {
        /* void */
    }

    part = &several->parts[i];

    part->call = NULL;
    part->answer = answer;

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock: \"%V\" \"%V\" answer %d", &r->uri, &part->name,
                   answer);

    info = &call->infos[0];

    if (answer != ZKL_CALL_OK || call->type == ZKL_RELEASE) {
        /* nothing is told of the claim */

    } else if (!info->held) {
        part->answer = ZKL_CALL_WAITS;

    } else {

        /* the claims' data are alike but for revoke: the last data are kept */

        zkl_claim_data_read(&several->cdata, (char *) info->cdata.data,
                            info->cdata.len);

        part->fencing = ngx_http_zk_lock_info_fencing(info);
        part->revoke = several->cdata.revoke;

        several->mode = info->child.mode;
        several->ttl = ngx_min(several->ttl, info->ttl);
        several->expires = ngx_min(several->expires, info->expires);
        several->untimed |= !info->timed;
        several->revoke |= part->revoke;
    }

    if (--several->calls != 0) {
        return;
    }

    ngx_http_set_log_request(r->connection->log, r);

    rc = ngx_http_zk_lock_parts_answered(several, call);

    ngx_http_zk_lock_request_end(r, rc);
}


static ngx_int_t
ngx_http_zk_lock_parts_answered(ngx_http_zk_lock_several_t *several,
    zkl_call_t *call)
{
    ngx_uint_t                i, gone;
    const char               *detail;
    zkl_json_t               *json;
    zkl_answer_e              worst;
    ngx_http_zk_lock_ctx_t   *ctx;
    ngx_http_zk_lock_part_t  *part;

    ctx = several->ctx;
    worst = ZKL_CALL_OK;
    gone = 0;

    for (i = 0; i < several->nparts; i++) {

        if (several->parts[i].answer == ZKL_CALL_GONE) {
            gone++;

        } else {
            worst = ngx_max(worst, several->parts[i].answer);
        }
    }

    if (worst != ZKL_CALL_OK) {
        return ngx_http_zk_lock_result_answered(several->request, ctx, call,
                                                worst);
    }

    if (gone == 0 && call->type == ZKL_RELEASE) {
        ngx_str_set(&ctx->told.outcome, "released");
        return ngx_http_zk_lock_answer_done(several->request);
    }

    if (gone == 0) {
        ngx_str_set(&ctx->told.outcome, "held");
        return ngx_http_zk_lock_parts_answer(several, NGX_HTTP_OK);
    }

    ngx_str_set(&ctx->told.outcome, "lost");

    if (gone == several->nparts) {
        detail = "the claims of this token are gone: released, their leases "
                 "over, or their session lost";

    } else if (call->type == ZKL_RELEASE) {
        detail = "some of the claims of this token were gone already, the "
                 "others are released";

    } else if (call->type == ZKL_RENEW) {
        detail = "some of the claims of this token are gone, the others are "
                 "renewed";

    } else {
        detail = "some of the claims of this token are gone";
    }

    json = ngx_http_zk_lock_open_problem(several->request,
                                         NGX_HTTP_ZK_LOCK_STATUS_GONE, detail);
    zkl_json_array(json, "gone");

    for (i = 0; i < several->nparts; i++) {
        part = &several->parts[i];

        if (part->answer == ZKL_CALL_GONE) {
            zkl_json_string(json, NULL, (char *) part->name.data,
                            part->name.len);
        }
    }

    zkl_json_end_array(json);

    return ngx_http_zk_lock_send_problem(several->request,
                                         NGX_HTTP_ZK_LOCK_STATUS_GONE, json);
}


/* All locks are held; with 201 this request was granted the locks. */

static ngx_int_t
ngx_http_zk_lock_parts_answer(ngx_http_zk_lock_several_t *several,
    ngx_uint_t status)
{
    char                     *p;
    ngx_str_t                *text;
    ngx_uint_t                i;
    zkl_json_t               *json;
    zkl_claim_data_t         *cdata;
    ngx_http_request_t       *r;
    ngx_http_zk_lock_part_t  *part;

    r = several->request;
    text = &several->text;
    cdata = &several->cdata;

    if (text->len == 0) {
        p = ngx_pnalloc(r->pool,
                        NGX_HTTP_ZK_LOCK_PARTS_TEXT(several->names.len));
        if (p == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        text->data = (u_char *) p;

        zkl_name_token_write(p, &several->ctx->token,
                             (char *) several->whole.data, several->whole.len);

        p += ZKL_TOKEN_LEN;
        *p++ = '.';

        text->len = ZKL_TOKEN_LEN + 1
                    + zkl_text_base64_write(p, several->names.data,
                                            several->names.len);
    }

    if (ngx_http_zk_lock_add_header(r, "Lock-Token", text->data, text->len)
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = zkl_json_open();

    ngx_http_zk_lock_write_text(json, "state", "held");
    zkl_json_string(json, "token", (char *) text->data, text->len);
    zkl_json_array(json, "locks");

    for (i = 0; i < several->nparts; i++) {
        part = &several->parts[i];

        zkl_json_object(json, NULL);
        zkl_json_string(json, "name", (char *) part->name.data,
                        part->name.len);

        if (part->fencing != 0) {
            zkl_json_integer(json, "fencing_token", part->fencing);
        }

        if (part->revoke) {
            zkl_json_boolean(json, "revoke", 1);
        }

        zkl_json_end_object(json);
    }

    zkl_json_end_array(json);
    ngx_http_zk_lock_write_mode(json, several->mode);

    if (several->ttl != 0) {
        zkl_json_integer(json, "ttl_ms", (int64_t) several->ttl);
    }

    if (!several->untimed) {
        zkl_json_integer(json, "expires_in_ms", (int64_t) several->expires);
    }

    if (cdata->owner_len != 0) {
        zkl_json_string(json, "owner", cdata->owner, cdata->owner_len);
    }

    if (cdata->data_len != 0) {
        zkl_json_raw(json, "data", cdata->data, cdata->data_len);
    }

    if (several->revoke) {
        zkl_json_boolean(json, "revoke", 1);
    }

    if (status == NGX_HTTP_CREATED) {
        zkl_json_integer(json, "waited_ms",
                         (int64_t) several->ctx->told.waited);
    }

    ngx_http_zk_lock_write_note(json, several->ctx, NGX_HTTP_ZK_LOCK_NOTE_TTL);

    return ngx_http_zk_lock_send(r, status, json);
}
