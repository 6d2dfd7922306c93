
/*
 * What answers tell of claims and locks, as members of JSON and as headers.
 *
 * Of a claim that was made by this request its own object tells, and of any
 * other, and of a lock, what an ask has read of them.  A token is told only to
 * who has acquired the claim or has named it by that token: the context has it.
 *
 * Everything here runs on the event loop.  The request's context is never NULL
 * here; who holds a lock (info) is, if that is not known.
 */


#include "ngx_http_zk_lock_answer.h"


static void ngx_http_zk_lock_write_own_label(zk_lock_json_t *json,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_claim_t *claim);
static void ngx_http_zk_lock_write_label(zk_lock_json_t *json,
    ngx_http_zk_lock_info_t *info);
static void ngx_http_zk_lock_write_time(zk_lock_json_t *json, const char *key,
    time_t when);
static ngx_int_t ngx_http_zk_lock_secrets(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_uint_t location);
static ngx_int_t ngx_http_zk_lock_location(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);


ngx_int_t
ngx_http_zk_lock_answer_taken(ngx_http_request_t *r,
    ngx_http_zk_lock_info_t *info)
{
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    return ngx_http_zk_lock_answer_holder(r, NGX_HTTP_ZK_LOCK_STATUS_LOCKED,
                                          "the lock is held, and the wait is "
                                          "over: a longer \"wait\" holds the "
                                          "request until the lock is free, "
                                          "which is better than to ask again",
                                          info, ctx->plain);
}


ngx_int_t
ngx_http_zk_lock_answer_holder(ngx_http_request_t *r, ngx_uint_t status,
    const char *detail, ngx_http_zk_lock_info_t *info, ngx_uint_t terraform)
{
    zk_lock_json_t          *json;
    zk_lock_label_t          label;
    zk_lock_terraform_t      t;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    json = zk_lock_json_open();

    ngx_http_zk_lock_open_problem(json, status, detail);
    ngx_http_zk_lock_write_note(json, ctx, NGX_HTTP_ZK_LOCK_NOTE_WAIT);

    if (info == NULL) {
        return ngx_http_zk_lock_send_problem(r, status, json);
    }

    if (terraform) {
        zk_lock_label_read(&label, (char *) info->label.data,
                           info->label.len);

        if (label.data_len != 0
            && zk_lock_terraform_read(&t, label.data, label.data_len) == 0)
        {
            return ngx_http_zk_lock_send_holder(r, status, json, &t);
        }
    }

    zk_lock_json_object(json, "holder");
    ngx_http_zk_lock_write_info(json, info);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send_problem(r, status, json);
}


ngx_int_t
ngx_http_zk_lock_answer_gone(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    zk_lock_json_t             *json;
    ngx_http_zk_lock_ending_e   ending;

    /* in the order of the endings */

    static struct {
        const char  *reason;
        const char  *detail;
    } endings[] = {
        { NULL, "the claim of this token is gone: released, its lease over, "
                "or its session lost" },
        { "released", "the claim of this token is gone: it was released" },
        { "expired", "the claim of this token is gone: its lease was over, "
                     "or its wait, or it was not asked for in time" },
        { "broken", "the claim of this token is gone: an operator has broken "
                    "it" },
        { "lost", "the claim of this token is gone: its session with "
                  "ZooKeeper is over" }
    };

    ending = ctx->has_token ? ngx_http_zk_lock_record_ended(ctx->worker->zone,
                                                            &ctx->token,
                                                            &ctx->path)
                            : NGX_HTTP_ZK_LOCK_ENDING_UNKNOWN;

    json = zk_lock_json_open();

    ngx_http_zk_lock_open_problem(json, NGX_HTTP_ZK_LOCK_STATUS_GONE,
                                  endings[ending].detail);

    if (endings[ending].reason != NULL) {
        ngx_http_zk_lock_write_text(json, "reason", endings[ending].reason);
    }

    return ngx_http_zk_lock_send_problem(r, NGX_HTTP_ZK_LOCK_STATUS_GONE,
                                         json);
}


ngx_int_t
ngx_http_zk_lock_answer_granted(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_claim_t *claim)
{
    zk_lock_json_t  *json;

    if (ngx_http_zk_lock_secrets(r, ctx, 1) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);
    ngx_http_zk_lock_write_grant(json, ctx, claim);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, ctx->plain ? NGX_HTTP_OK
                                               : NGX_HTTP_CREATED,
                                 "application/json", json);
}


void
ngx_http_zk_lock_write_grant(zk_lock_json_t *json,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_claim_t *claim)
{
    ngx_msec_int_t             left;
    ngx_http_zk_lock_record_t  record;

    ngx_http_zk_lock_write_name(json, ctx);
    ngx_http_zk_lock_write_text(json, "state", "held");
    zk_lock_json_string(json, "token", (char *) ctx->secret,
                        ZK_LOCK_TOKEN_LEN);
    ngx_http_zk_lock_write_mode(json, claim->entry.kind);
    ngx_http_zk_lock_write_own_label(json, ctx, claim);
    zk_lock_json_integer(json, "fencing_token", ctx->fencing);

    if (ngx_http_zk_lock_record_read(ctx->worker->zone, &claim->id, &ctx->path,
                                     &record)
        == NGX_OK)
    {
        ngx_http_zk_lock_write_time(json, "since", record.since);
    }

    if (!claim->bound || claim->leased) {
        left = (ngx_msec_int_t) claim->ttl;

        if (claim->reminded) {
            left = (ngx_msec_int_t) (claim->lease - ngx_http_zk_lock_now());
            left = ngx_max(left, 0);
        }

        zk_lock_json_integer(json, "ttl_ms", (int64_t) claim->ttl);
        zk_lock_json_integer(json, "expires_in_ms", (int64_t) left);
    }

    zk_lock_json_integer(json, "waited_ms", (int64_t) ctx->waited);

    ngx_http_zk_lock_write_note(json, ctx, claim->requeued
                                ? NGX_HTTP_ZK_LOCK_NOTE_TTL
                                  |NGX_HTTP_ZK_LOCK_NOTE_AGAIN
                                : NGX_HTTP_ZK_LOCK_NOTE_TTL);
}


void
ngx_http_zk_lock_write_note(zk_lock_json_t *json, ngx_http_zk_lock_ctx_t *ctx,
    ngx_uint_t notes)
{
    u_char                       *p, *last;
    u_char                        buf[256];
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(ctx->request, ngx_http_zk_lock_module);

    p = buf;
    last = buf + sizeof(buf);

    if (notes & NGX_HTTP_ZK_LOCK_NOTE_AGAIN) {
        p = ngx_slprintf(p, last, "; the place in the queue was lost with the "
                         "gateway's ZooKeeper session, and the claim queued "
                         "again");
    }

    if ((notes & NGX_HTTP_ZK_LOCK_NOTE_TTL) && ctx->ttl_cut) {
        p = ngx_slprintf(p, last, "; \"ttl\" was cut to zk_lock_max_ttl, "
                         "%M ms", zlcf->max_ttl);
    }

    if ((notes & NGX_HTTP_ZK_LOCK_NOTE_WAIT) && ctx->wait_cut) {
        p = ngx_slprintf(p, last, "; \"wait\" was cut to zk_lock_max_wait, "
                         "%M ms", zlcf->max_wait);
    }

    if (p != buf) {
        zk_lock_json_string(json, "note", (char *) buf + 2, p - buf - 2);
    }
}


ngx_int_t
ngx_http_zk_lock_answer_queued(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_claim_t *claim)
{
    zk_lock_json_t  *json;

    if (ngx_http_zk_lock_secrets(r, ctx, 1) != NGX_OK
        || ngx_http_zk_lock_add_header(r, "Preference-Applied",
                                       (u_char *) "respond-async", 13)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);
    ngx_http_zk_lock_write_name(json, ctx);
    ngx_http_zk_lock_write_text(json, "state", "queued");
    zk_lock_json_string(json, "token", (char *) ctx->secret,
                        ZK_LOCK_TOKEN_LEN);
    ngx_http_zk_lock_write_mode(json, claim->entry.kind);
    zk_lock_json_integer(json, "position", (int64_t) claim->position);
    zk_lock_json_integer(json, "grace_ms", (int64_t) claim->grace);
    zk_lock_json_integer(json, "ttl_ms", (int64_t) claim->ttl);
    ngx_http_zk_lock_write_note(json, ctx, NGX_HTTP_ZK_LOCK_NOTE_TTL
                                           |NGX_HTTP_ZK_LOCK_NOTE_WAIT);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, NGX_HTTP_ACCEPTED, "application/json",
                                 json);
}


ngx_int_t
ngx_http_zk_lock_answer_claim(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_ask_t *ask,
    ngx_uint_t status)
{
    zk_lock_json_t           *json;
    ngx_http_zk_lock_info_t  *info;

    info = &ask->infos[0];

    ctx->fencing = ngx_http_zk_lock_info_fencing(info);

    if (info->held) {
        ngx_str_set(&ctx->outcome, "held");

    } else {
        ngx_str_set(&ctx->outcome, "queued");
    }

    /* an acquire is told where the claim is, also one that has joined it */

    if (ngx_http_zk_lock_secrets(r, ctx, ctx->waits) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (status == NGX_HTTP_ACCEPTED && ctx->waits
        && ngx_http_zk_lock_add_header(r, "Preference-Applied",
                                       (u_char *) "respond-async", 13)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);
    ngx_http_zk_lock_write_name(json, ctx);
    zk_lock_json_string(json, "state", (char *) ctx->outcome.data,
                        ctx->outcome.len);
    zk_lock_json_string(json, "token", (char *) ctx->secret,
                        ZK_LOCK_TOKEN_LEN);
    ngx_http_zk_lock_write_mode(json, info->child.kind);

    if (!info->held) {

        zk_lock_json_integer(json, "position", (int64_t) ask->place);
    }

    if (ctx->waits) {
        zk_lock_json_integer(json, "waited_ms", (int64_t) ctx->waited);
    }

    ngx_http_zk_lock_write_info(json, info);
    ngx_http_zk_lock_write_note(json, ctx, info->held
                                ? NGX_HTTP_ZK_LOCK_NOTE_TTL
                                : NGX_HTTP_ZK_LOCK_NOTE_TTL
                                  |NGX_HTTP_ZK_LOCK_NOTE_WAIT);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, status, "application/json", json);
}


ngx_int_t
ngx_http_zk_lock_answer_lock(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_ask_t *ask)
{
    zk_lock_json_t  *json;

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);
    ngx_http_zk_lock_write_lock(json, ctx, ask);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, NGX_HTTP_OK, "application/json", json);
}


void
ngx_http_zk_lock_write_lock(zk_lock_json_t *json,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_ask_t *ask)
{
    ngx_uint_t                i;
    ngx_http_zk_lock_info_t  *info;

    ngx_http_zk_lock_write_name(json, ctx);

    if (ask->nknown != 0) {
        ngx_http_zk_lock_write_mode(json, ask->infos[0].child.kind);
    }

    zk_lock_json_integer(json, "held", (int64_t) ask->holders);
    zk_lock_json_array(json, "holders");

    for (i = 0; i < ask->nknown && ask->infos[i].held; i++) {
        zk_lock_json_object(json, NULL);
        ngx_http_zk_lock_write_info(json, &ask->infos[i]);
        zk_lock_json_end_object(json);
    }

    zk_lock_json_end_array(json);
    zk_lock_json_integer(json, "queued",
                         (int64_t) (ask->total - ask->holders));
    zk_lock_json_array(json, "queue");

    for ( /* void */ ; i < ask->nknown; i++) {
        info = &ask->infos[i];

        zk_lock_json_object(json, NULL);

        if (info->child.kind != ask->infos[0].child.kind) {
            ngx_http_zk_lock_write_mode(json, info->child.kind);
        }

        ngx_http_zk_lock_write_label(json, info);
        ngx_http_zk_lock_write_time(json, "since", info->since);
        zk_lock_json_end_object(json);
    }

    zk_lock_json_end_array(json);
}


ngx_int_t
ngx_http_zk_lock_answer_done(ngx_http_request_t *r)
{
    zk_lock_json_t          *json;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    if (!ctx->plain) {
        r->headers_out.status = NGX_HTTP_NO_CONTENT;
        r->header_only = 1;

        return ngx_http_send_header(r);
    }

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);
    ngx_http_zk_lock_write_name(json, ctx);
    zk_lock_json_end_object(json);

    return ngx_http_zk_lock_send(r, NGX_HTTP_OK, "application/json", json);
}


/* Of a claim that was asked for by this request: what it said. */

static void
ngx_http_zk_lock_write_own_label(zk_lock_json_t *json,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_claim_t *claim)
{
    ngx_str_t                *addr;
    ngx_http_zk_lock_info_t   info;

    if (ctx->labelled) {
        info.label.data = claim->label;
        info.label.len = claim->label_len;

        ngx_http_zk_lock_write_label(json, &info);
        return;
    }

    /* nothing but where it came from, which needs no reading */

    addr = &ctx->request->connection->addr_text;

    if (addr->len <= ZK_LOCK_FROM_MAX) {
        zk_lock_json_string(json, "from", (char *) addr->data, addr->len);
    }
}


static void
ngx_http_zk_lock_write_label(zk_lock_json_t *json,
    ngx_http_zk_lock_info_t *info)
{
    zk_lock_label_t  label;

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    if (label.owner_len != 0) {
        zk_lock_json_string(json, "owner", label.owner, label.owner_len);
    }

    if (label.data_len != 0) {
        zk_lock_json_raw(json, "data", label.data, label.data_len);
    }

    if (label.from_len != 0) {
        zk_lock_json_string(json, "from", label.from, label.from_len);
    }

    if (label.revoke) {
        zk_lock_json_boolean(json, "revoke", 1);
    }
}


void
ngx_http_zk_lock_write_info(zk_lock_json_t *json,
    ngx_http_zk_lock_info_t *info)
{
    int64_t  fencing;

    ngx_http_zk_lock_write_label(json, info);

    fencing = ngx_http_zk_lock_info_fencing(info);

    if (fencing != 0) {
        zk_lock_json_integer(json, "fencing_token", fencing);
    }

    ngx_http_zk_lock_write_time(json, "since", info->since);

    if (info->ttl != 0) {
        zk_lock_json_integer(json, "ttl_ms", (int64_t) info->ttl);
    }

    if (info->timed) {
        zk_lock_json_integer(json, "expires_in_ms", (int64_t) info->expires);
    }

    if (info->holds > 1) {
        zk_lock_json_integer(json, "holds", (int64_t) info->holds);
    }
}


int64_t
ngx_http_zk_lock_info_fencing(ngx_http_zk_lock_info_t *info)
{
    zk_lock_label_t  label;

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    return ngx_http_zk_lock_fencing_token(label.czxid ? label.czxid
                                                      : info->czxid,
                                          label.index > 0
                                                       ? label.index : 0);
}


/* RFC 3339, in UTC */

static void
ngx_http_zk_lock_write_time(zk_lock_json_t *json, const char *key,
    time_t when)
{
    u_char    buf[sizeof("1970-01-01T00:00:00Z") + NGX_INT_T_LEN];
    u_char   *p;
    ngx_tm_t  tm;

    if (when == 0) {
        return;
    }

    ngx_gmtime(when, &tm);

    p = ngx_sprintf(buf, "%4d-%02d-%02dT%02d:%02d:%02dZ",
                    tm.ngx_tm_year, tm.ngx_tm_mon, tm.ngx_tm_mday,
                    tm.ngx_tm_hour, tm.ngx_tm_min, tm.ngx_tm_sec);

    zk_lock_json_string(json, key, (char *) buf, p - buf);
}


void
ngx_http_zk_lock_write_mode(zk_lock_json_t *json, zk_lock_kind_t kind)
{
    static const char *const  modes[] = {
        "exclusive", "shared", "write", "member", "semaphore", "exclusive"
    };

    ngx_http_zk_lock_write_text(json, "mode", modes[zk_lock_kind_base(kind)]);

    if (zk_lock_kind_base(kind) == ZK_LOCK_SEMAPHORE) {
        zk_lock_json_integer(json, "permits",
                             (int64_t) zk_lock_kind_permits(kind));
    }
}


void
ngx_http_zk_lock_write_name(zk_lock_json_t *json, ngx_http_zk_lock_ctx_t *ctx)
{
    zk_lock_json_string(json, "name", (char *) ctx->name.data, ctx->name.len);
}


/* Lock-Token, Lock-Fencing-Token (if any), Cache-Control; Location */

static ngx_int_t
ngx_http_zk_lock_secrets(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx,
    ngx_uint_t location)
{
    u_char  *p;

    if (ctx->fencing != 0) {

        p = ngx_pnalloc(r->pool, NGX_INT64_LEN);
        if (p == NULL) {
            return NGX_ERROR;
        }

        if (ngx_http_zk_lock_add_header(r, "Lock-Fencing-Token", p,
                                        ngx_sprintf(p, "%L", ctx->fencing)
                                        - p)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (ngx_http_zk_lock_add_header(r, "Lock-Token", ctx->secret,
                                    ZK_LOCK_TOKEN_LEN)
        != NGX_OK
        || ngx_http_zk_lock_add_header(r, "Cache-Control",
                                       (u_char *) "no-store", 8)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return location ? ngx_http_zk_lock_location(r, ctx) : NGX_OK;
}


/* Where the claim is: the path of the request, and the token behind it. */

static ngx_int_t
ngx_http_zk_lock_location(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    u_char     *p;
    size_t      len;
    ngx_str_t   dir;
    uintptr_t   escape;

    /* the name is a part of r->uri */

    dir.data = r->uri.data;
    dir.len = ctx->name.data - r->uri.data;

    escape = ngx_escape_uri(NULL, dir.data, dir.len, NGX_ESCAPE_URI)
             + ngx_escape_uri(NULL, ctx->name.data, ctx->name.len,
                              NGX_ESCAPE_URI_COMPONENT);

    len = dir.len + ctx->name.len + 2 * escape + 1 + ZK_LOCK_TOKEN_LEN;

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    if (ngx_http_zk_lock_add_header(r, "Location", p, len) != NGX_OK) {
        return NGX_ERROR;
    }

    p = (u_char *) ngx_escape_uri(p, dir.data, dir.len, NGX_ESCAPE_URI);
    p = (u_char *) ngx_escape_uri(p, ctx->name.data, ctx->name.len,
                                  NGX_ESCAPE_URI_COMPONENT);
    *p++ = '/';
    ngx_memcpy(p, ctx->secret, ZK_LOCK_TOKEN_LEN);

    return NGX_OK;
}
