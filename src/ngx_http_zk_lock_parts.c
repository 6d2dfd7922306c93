
/*
 * What is done with several locks that were acquired together, by their token.
 *
 * The claims have a key in common, random bytes that the ids of all begin with.
 * The token is that of the first one, but for the path of all names together, a
 * dot, and these names.  So each claim is found by its lock's path and the key,
 * at whatever worker and gateway.  All of them are asked for at the same time;
 * the last answer that comes makes that of the call.
 *
 * Everything here runs on the event loop.  A part's ask is NULL unless it is
 * under way.
 */


#include "ngx_http_zk_lock_several.h"


/* bytes of a token and the names behind it */
#define NGX_HTTP_ZK_LOCK_PARTS_TEXT(len)                                      \
    (ZK_LOCK_TOKEN_LEN + 1 + ZK_LOCK_BASE64_LEN(len))


static ngx_int_t ngx_http_zk_lock_parts_ask_all(
    ngx_http_zk_lock_several_t *several, ngx_http_zk_lock_ask_e type,
    ngx_msec_t ttl);
static ngx_int_t ngx_http_zk_lock_parts_read(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_several_t **several);
static void ngx_http_zk_lock_parts_ask_handler(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer);
static void ngx_http_zk_lock_parts_note(
    ngx_http_zk_lock_several_t *several, ngx_http_zk_lock_part_t *part,
    ngx_http_zk_lock_ask_t *ask);
static ngx_int_t ngx_http_zk_lock_parts_answered(
    ngx_http_zk_lock_several_t *several, ngx_http_zk_lock_ask_t *ask);
static ngx_int_t ngx_http_zk_lock_parts_gone(
    ngx_http_zk_lock_several_t *several, ngx_http_zk_lock_ask_e type,
    ngx_uint_t all);
static ngx_int_t ngx_http_zk_lock_parts_token(
    ngx_http_zk_lock_several_t *several);
static void ngx_http_zk_lock_parts_write_locks(zk_lock_json_t *json,
    ngx_http_zk_lock_several_t *several);
static void ngx_http_zk_lock_parts_write_lease(zk_lock_json_t *json,
    ngx_http_zk_lock_several_t *several);
static void ngx_http_zk_lock_parts_write_label(zk_lock_json_t *json,
    ngx_http_zk_lock_several_t *several);


ngx_int_t
ngx_http_zk_lock_parts(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx,
    ngx_http_zk_lock_ask_e type)
{
    ngx_int_t                    rc;
    ngx_uint_t                   status;
    zk_lock_args_t               args;
    ngx_http_zk_lock_several_t  *several;

    if (ngx_http_zk_lock_args(r, &args, type == NGX_HTTP_ZK_LOCK_RENEW
                                        ? ZK_LOCK_ARG_TTL : 0, &status)
        != NGX_OK)
    {
        return ngx_http_zk_lock_problem(r, status, args.error);
    }

    if ((args.given & ZK_LOCK_ARG_TTL) && args.ttl == 0) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "\"ttl\" takes a duration above "
                                        "zero");
    }

    if (ctx->text.data == NULL) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "what is done with several locks "
                                        "takes the token of their grant, in "
                                        "a Lock-Token header");
    }

    rc = ngx_http_zk_lock_parts_read(r, ctx, &several);

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc != NGX_OK) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_NOT_FOUND,
                                        "no such claims: this is no token of "
                                        "locks here");
    }

    return ngx_http_zk_lock_parts_ask_all(several, type,
                                          ngx_http_zk_lock_args_ttl(r,
                                                                    &args));
}


static ngx_int_t
ngx_http_zk_lock_parts_ask_all(ngx_http_zk_lock_several_t *several,
    ngx_http_zk_lock_ask_e type, ngx_msec_t ttl)
{
    ngx_int_t   rc;
    ngx_uint_t  i;

    rc = ngx_http_zk_lock_several_hold(several);
    if (rc != NGX_OK) {
        return rc;
    }

    for (i = 0; i < several->nparts; i++) {

        rc = ngx_http_zk_lock_parts_ask(several, &several->parts[i], type, ttl,
                                        ngx_http_zk_lock_parts_ask_handler);
        if (rc != NGX_DONE) {
            return rc;
        }
    }

    return NGX_DONE;
}


/* The token, a dot, and the names; NGX_DECLINED: it is something else. */

static ngx_int_t
ngx_http_zk_lock_parts_read(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_several_t **several)
{
    char        names[ZK_LOCK_NAMES_LEN];
    char       *text;
    size_t      len, n;
    ngx_int_t   rc;
    ngx_str_t  *whole;

    text = (char *) ctx->text.data;
    len = ctx->text.len;

    if (len <= ZK_LOCK_TOKEN_LEN + 1
        || len > NGX_HTTP_ZK_LOCK_PARTS_TEXT(ZK_LOCK_NAMES_LEN)
        || text[ZK_LOCK_TOKEN_LEN] != '.'
        || zk_lock_base64_read(names, &n, text + ZK_LOCK_TOKEN_LEN + 1,
                               len - ZK_LOCK_TOKEN_LEN - 1)
           != 0)
    {
        return NGX_DECLINED;
    }

    rc = ngx_http_zk_lock_several_make(r, ctx, (u_char *) names, n, several);
    if (rc != NGX_OK) {
        return rc;
    }

    whole = &(*several)->whole;

    if (zk_lock_token_read(&ctx->token, text, ZK_LOCK_TOKEN_LEN,
                           (char *) whole->data, whole->len)
        != 0)
    {
        return NGX_DECLINED;
    }

    (*several)->text = ctx->text;
    ngx_memcpy((*several)->key, ctx->token.id.random, NGX_HTTP_ZK_LOCK_KEY);

    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_parts_ask(ngx_http_zk_lock_several_t *several,
    ngx_http_zk_lock_part_t *part, ngx_http_zk_lock_ask_e type,
    ngx_msec_t ttl, ngx_http_zk_lock_ask_pt handler)
{
    zk_lock_token_t               token;
    ngx_http_zk_lock_loc_conf_t  *zlcf;
    ngx_http_zk_lock_question_t   question;

    zlcf = ngx_http_get_module_loc_conf(several->request,
                                        ngx_http_zk_lock_module);

    ngx_memzero(&token, sizeof(zk_lock_token_t));
    ngx_memzero(&question, sizeof(ngx_http_zk_lock_question_t));

    token.seq = -1;
    ngx_memcpy(token.id.random, several->key, NGX_HTTP_ZK_LOCK_KEY);

    question.type = type;
    question.path = &part->path;
    question.token = (type != NGX_HTTP_ZK_LOCK_HOLDER) ? &token : NULL;
    question.ttl = ttl;
    question.timeout = zlcf->timeout;
    question.handler = handler;
    question.data = several;

    part->ask = ngx_http_zk_lock_ask(several->ctx->worker, &question);

    if (part->ask == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    several->asks++;

    return NGX_DONE;
}


static void
ngx_http_zk_lock_parts_ask_handler(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer)
{
    ngx_int_t                    rc;
    ngx_uint_t                   i;
    ngx_http_request_t          *r;
    ngx_http_zk_lock_part_t     *part;
    ngx_http_zk_lock_several_t  *several;

    several = ask->data;
    r = several->request;

    for (i = 0; several->parts[i].ask != ask; i++) {
        /* void */
    }

    part = &several->parts[i];

    part->ask = NULL;
    part->answer = answer;

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock: \"%V\" \"%V\" answer %d", &r->uri, &part->name,
                   answer);

    if (answer == NGX_HTTP_ZK_LOCK_ASK_OK
        && ask->type != NGX_HTTP_ZK_LOCK_RELEASE)
    {
        ngx_http_zk_lock_parts_note(several, part, ask);
    }

    if (--several->asks != 0) {
        return;
    }

    ngx_http_set_log_request(r->connection->log, r);

    rc = ngx_http_zk_lock_parts_answered(several, ask);

    ngx_http_zk_lock_api_end(r, rc);
}


static void
ngx_http_zk_lock_parts_note(ngx_http_zk_lock_several_t *several,
    ngx_http_zk_lock_part_t *part, ngx_http_zk_lock_ask_t *ask)
{
    ngx_http_zk_lock_info_t  *info;

    info = &ask->infos[0];

    if (!info->held) {
        part->answer = NGX_HTTP_ZK_LOCK_ASK_WAITS;
        return;
    }

    /* of the labels, which are alike, the last one is kept */

    zk_lock_label_read(&several->label, (char *) info->label.data,
                       info->label.len);

    part->fencing = ngx_http_zk_lock_info_fencing(info);
    part->kind = info->child.kind;
    part->ttl = info->ttl;
    part->expires = info->expires;
    part->timed = info->timed;
    part->revoke = several->label.revoke;
}


static ngx_int_t
ngx_http_zk_lock_parts_answered(ngx_http_zk_lock_several_t *several,
    ngx_http_zk_lock_ask_t *ask)
{
    ngx_uint_t                  i, gone;
    ngx_http_zk_lock_answer_e   worst;
    ngx_http_zk_lock_ctx_t     *ctx;

    ctx = several->ctx;
    worst = NGX_HTTP_ZK_LOCK_ASK_OK;
    gone = 0;

    for (i = 0; i < several->nparts; i++) {

        if (several->parts[i].answer == NGX_HTTP_ZK_LOCK_ASK_GONE) {
            gone++;

        } else {
            worst = ngx_max(worst, several->parts[i].answer);
        }
    }

    if (worst != NGX_HTTP_ZK_LOCK_ASK_OK) {
        return ngx_http_zk_lock_api_answered(several->request, ctx, ask,
                                             worst);
    }

    if (gone != 0) {
        return ngx_http_zk_lock_parts_gone(several, ask->type,
                                             gone == several->nparts);
    }

    if (ask->type == NGX_HTTP_ZK_LOCK_RELEASE) {
        ngx_str_set(&ctx->outcome, "released");
        return ngx_http_zk_lock_answer_done(several->request);
    }

    ngx_str_set(&ctx->outcome, "held");

    return ngx_http_zk_lock_parts_answer(several, NGX_HTTP_OK);
}


static ngx_int_t
ngx_http_zk_lock_parts_gone(ngx_http_zk_lock_several_t *several,
    ngx_http_zk_lock_ask_e type, ngx_uint_t all)
{
    ngx_uint_t                i;
    const char               *detail;
    zk_lock_json_t           *json;
    ngx_http_zk_lock_part_t  *part;

    ngx_str_set(&several->ctx->outcome, "lost");

    if (all) {
        detail = "the claims of this token are gone: released, their leases "
                 "over, or their session lost";

    } else if (type == NGX_HTTP_ZK_LOCK_RELEASE) {
        detail = "some of the claims of this token were gone already, the "
                 "others are released";

    } else if (type == NGX_HTTP_ZK_LOCK_RENEW) {
        detail = "some of the claims of this token are gone, the others are "
                 "renewed";

    } else {
        detail = "some of the claims of this token are gone";
    }

    json = zk_lock_json_open();

    ngx_http_zk_lock_open_problem(json, NGX_HTTP_ZK_LOCK_STATUS_GONE, detail);
    zk_lock_json_array(json, "gone");

    for (i = 0; i < several->nparts; i++) {
        part = &several->parts[i];

        if (part->answer == NGX_HTTP_ZK_LOCK_ASK_GONE) {
            zk_lock_json_string(json, NULL, (char *) part->name.data,
                                part->name.len);
        }
    }

    zk_lock_json_end_array(json);

    return ngx_http_zk_lock_send_problem(several->request,
                                         NGX_HTTP_ZK_LOCK_STATUS_GONE, json);
}


static ngx_int_t
ngx_http_zk_lock_parts_token(ngx_http_zk_lock_several_t *several)
{
    u_char     *p;
    ngx_str_t  *whole;

    p = ngx_pnalloc(several->request->pool,
                    NGX_HTTP_ZK_LOCK_PARTS_TEXT(several->names.len));
    if (p == NULL) {
        return NGX_ERROR;
    }

    whole = &several->whole;

    zk_lock_token_write((char *) p, &several->ctx->token,
                        (char *) whole->data, whole->len);

    p[ZK_LOCK_TOKEN_LEN] = '.';

    several->text.data = p;
    several->text.len = ZK_LOCK_TOKEN_LEN + 1
                        + zk_lock_base64_write((char *) p + ZK_LOCK_TOKEN_LEN
                                               + 1, several->names.data,
                                               several->names.len);
    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_parts_answer(ngx_http_zk_lock_several_t *several,
    ngx_uint_t status)
{
    ngx_str_t           *text;
    zk_lock_json_t      *json;
    ngx_http_request_t  *r;

    r = several->request;
    text = &several->text;

    if (text->len == 0 && ngx_http_zk_lock_parts_token(several) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_zk_lock_add_header(r, "Lock-Token", text->data, text->len)
        != NGX_OK
        || ngx_http_zk_lock_add_header(r, "Cache-Control",
                                       (u_char *) "no-store", 8)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);

    ngx_http_zk_lock_write_text(json, "state", "held");
    zk_lock_json_string(json, "token", (char *) text->data, text->len);
    ngx_http_zk_lock_parts_write_locks(json, several);
    ngx_http_zk_lock_write_mode(json, several->parts[0].kind);
    ngx_http_zk_lock_parts_write_lease(json, several);

    ngx_http_zk_lock_parts_write_label(json, several);

    if (status == NGX_HTTP_CREATED) {
        zk_lock_json_integer(json, "waited_ms",
                             (int64_t) several->ctx->waited);
    }

    ngx_http_zk_lock_write_note(json, several->ctx,
                                NGX_HTTP_ZK_LOCK_NOTE_TTL);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, status, "application/json", json);
}


static void
ngx_http_zk_lock_parts_write_locks(zk_lock_json_t *json,
    ngx_http_zk_lock_several_t *several)
{
    ngx_uint_t                i;
    ngx_http_zk_lock_part_t  *part;

    zk_lock_json_array(json, "locks");

    for (i = 0; i < several->nparts; i++) {
        part = &several->parts[i];

        zk_lock_json_object(json, NULL);
        zk_lock_json_string(json, "name", (char *) part->name.data,
                            part->name.len);
        zk_lock_json_integer(json, "fencing_token", part->fencing);

        if (part->revoke) {
            zk_lock_json_boolean(json, "revoke", 1);
        }

        zk_lock_json_end_object(json);
    }

    zk_lock_json_end_array(json);
}


/* What is known of all of them: the least. */

static void
ngx_http_zk_lock_parts_write_lease(zk_lock_json_t *json,
    ngx_http_zk_lock_several_t *several)
{
    ngx_uint_t                i, timed;
    ngx_msec_t                ttl, expires;
    ngx_http_zk_lock_part_t  *part;

    timed = 1;
    ttl = several->parts[0].ttl;
    expires = several->parts[0].expires;

    for (i = 0; i < several->nparts; i++) {
        part = &several->parts[i];

        timed &= part->timed;
        ttl = ngx_min(ttl, part->ttl);
        expires = ngx_min(expires, part->expires);
    }

    if (ttl != 0) {
        zk_lock_json_integer(json, "ttl_ms", (int64_t) ttl);
    }

    if (timed) {
        zk_lock_json_integer(json, "expires_in_ms", (int64_t) expires);
    }
}


static void
ngx_http_zk_lock_parts_write_label(zk_lock_json_t *json,
    ngx_http_zk_lock_several_t *several)
{
    ngx_uint_t        i, revoke;
    zk_lock_label_t  *label;

    label = &several->label;
    revoke = 0;

    for (i = 0; i < several->nparts; i++) {
        revoke |= several->parts[i].revoke;
    }

    if (label->owner_len != 0) {
        zk_lock_json_string(json, "owner", label->owner, label->owner_len);
    }

    if (label->data_len != 0) {
        zk_lock_json_raw(json, "data", label->data, label->data_len);
    }

    if (revoke) {
        zk_lock_json_boolean(json, "revoke", 1);
    }
}
