
/*
 * Operators' calls: break the claims of holders, or ask holders to let go.
 *
 * A list tells the holders of the lock; then a call for each holder that
 * If-Match names breaks or revokes the claim, some calls at a time.  Because a
 * list describes a limited number of holders, the break of all holders lists
 * again, until as many holders were described as held the lock at first.  So a
 * claim that is granted later, because of the break, is not broken.
 *
 * Everything here runs on the event loop.  The state is in the request's pool
 * and in the context, whose cleanup leaves the calls: a call that was started
 * has an effect all the same.  target->call is NULL unless the call is in
 * flight; the call of the list is ctx->call.
 */


#include "http/admin.h"
#include "http/answer.h"
#include "http/args.h"
#include "http/log.h"
#include "http/result.h"
#include "http/user.h"


/* calls in flight */
#define NGX_HTTP_ZK_LOCK_ADMIN_ASKS   16

/* bytes of a user's name in the log */
#define NGX_HTTP_ZK_LOCK_ADMIN_USER   128

/* a holder */

typedef struct {
    zkl_call_t                        *call;
    ngx_str_t                          name;    /* of the znode */
    ngx_str_t                          owner;   /* as logged */
    zkl_token_t                        token;
    int64_t                            fencing;
    unsigned                           has_id:1;    /* token is set */
} ngx_http_zk_lock_target_t;

typedef struct {
    ngx_http_request_t                *request;
    ngx_http_zk_lock_ctx_t            *ctx;
    zkl_call_e                         type;    /* BREAK or REVOKE */
    int64_t                            fencing; /* 0: of all holders */

    ngx_http_zk_lock_target_t         *targets; /* of the last list */
    ngx_uint_t                         ntargets;
    ngx_uint_t                         next;    /* target to be called for */
    ngx_uint_t                         calls;   /* in flight */

    ngx_uint_t                         rest;    /* holders of the first list
                                                   still to be described */
    int64_t                            last;    /* the seq of the last holder
                                                   of the first list */
    ngx_uint_t                         done;
    zkl_answer_e                       worst;

    unsigned                           listed:1;
} ngx_http_zk_lock_admin_t;


static ngx_int_t ngx_http_zk_lock_admin_match(ngx_str_t *header,
    int64_t *fencing);
static void ngx_http_zk_lock_admin_leave(void *data);
static void ngx_http_zk_lock_admin_list_handler(zkl_call_t *call,
    zkl_answer_e answer);
static ngx_int_t ngx_http_zk_lock_admin_targets(
    ngx_http_zk_lock_admin_t *admin, zkl_call_t *call);
static ngx_int_t ngx_http_zk_lock_admin_go(ngx_http_zk_lock_admin_t *admin);
static ngx_int_t ngx_http_zk_lock_admin_call(ngx_http_zk_lock_admin_t *admin,
    ngx_http_zk_lock_target_t *target);
static void ngx_http_zk_lock_admin_call_handler(zkl_call_t *call,
    zkl_answer_e answer);
static void ngx_http_zk_lock_admin_log(ngx_http_zk_lock_admin_t *admin,
    ngx_http_zk_lock_target_t *target);
static ngx_int_t ngx_http_zk_lock_admin_escape(ngx_pool_t *pool,
    ngx_str_t *dst, u_char *src, size_t len);
static ngx_int_t ngx_http_zk_lock_admin_answer(
    ngx_http_zk_lock_admin_t *admin);


ngx_int_t
ngx_http_zk_lock_admin(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx,
    zkl_call_e type)
{
    ngx_str_t                 *header;
    ngx_uint_t                 n;
    ngx_http_zk_lock_admin_t  *admin;

    ctx->told.type = (type == ZKL_BREAK) ? NGX_HTTP_ZK_LOCK_BREAK
                                         : NGX_HTTP_ZK_LOCK_REVOKE;

    if (!ctx->conf->admin) {
        ngx_str_set(&ctx->told.outcome, "refused");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_FORBIDDEN,
                                        "this takes a location with "
                                        "zk_lock_admin");
    }

    admin = ngx_pcalloc(r->pool, sizeof(ngx_http_zk_lock_admin_t));
    if (admin == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    admin->request = r;
    admin->ctx = ctx;
    admin->type = type;

    header = ngx_http_zk_lock_header(r, "if-match", &n);

    if (n > 1
        || (n == 1
            && ngx_http_zk_lock_admin_match(header, &admin->fencing) != NGX_OK))
    {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "If-Match takes one fencing token, "
                                        "or \"*\"");
    }

    /* a forced unlock of Terraform's cannot name the holder */

    if (n == 0 && type == ZKL_BREAK && !ctx->plain) {
        return ngx_http_zk_lock_problem(r,
                                        NGX_HTTP_ZK_LOCK_STATUS_PRECONDITION,
                                        "whose claim is to be broken is said "
                                        "by If-Match: its fencing token, or "
                                        "\"*\" for all who hold the lock");
    }

    ctx->other = admin;
    ctx->leave = ngx_http_zk_lock_admin_leave;

    return ngx_http_zk_lock_request_call(r, ctx, ZKL_LIST, 0,
                                         ngx_http_zk_lock_admin_list_handler);
}


/*
 * A fencing token, with or without quotes; 0 stands for "*".  A fencing token
 * names a single claim, so W/, which some clients add to a tag, does no harm.
 */

static ngx_int_t
ngx_http_zk_lock_admin_match(ngx_str_t *header, int64_t *fencing)
{
    off_t    n;
    size_t   len;
    u_char  *p;

    p = header->data;
    len = header->len;

    *fencing = 0;

    if (len == 1 && *p == '*') {
        return NGX_OK;
    }

    if (len > 4 && p[0] == 'W' && p[1] == '/' && p[2] == '"') {
        p += 2;
        len -= 2;
    }

    if (len > 2 && p[0] == '"' && p[len - 1] == '"') {
        p++;
        len -= 2;
    }

    n = ngx_atoof(p, len);

    if (n == NGX_ERROR || n == 0) {
        return NGX_ERROR;
    }

    *fencing = n;

    return NGX_OK;
}


static void
ngx_http_zk_lock_admin_leave(void *data)
{
    ngx_http_zk_lock_admin_t *admin = data;

    ngx_uint_t                  i;
    ngx_http_zk_lock_target_t  *target;

    for (i = 0; i < admin->ntargets; i++) {
        target = &admin->targets[i];

        if (target->call != NULL) {
            zkl_call_leave(target->call);
            target->call = NULL;
        }
    }
}


static void
ngx_http_zk_lock_admin_list_handler(zkl_call_t *call, zkl_answer_e answer)
{
    ngx_int_t                  rc;
    ngx_http_request_t        *r;
    ngx_http_zk_lock_ctx_t    *ctx;
    ngx_http_zk_lock_admin_t  *admin;

    ctx = call->data;
    admin = ctx->other;
    r = ngx_http_zk_lock_request_told(call, answer);

    admin->ntargets = 0;
    admin->next = 0;

    if (answer == ZKL_CALL_FREE) {
        rc = ngx_http_zk_lock_admin_answer(admin);

    } else if (answer != ZKL_CALL_OK) {
        rc = ngx_http_zk_lock_result_answered(r, ctx, call, answer);

    } else if (ngx_http_zk_lock_admin_targets(admin, call) != NGX_OK) {
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;

    } else {
        rc = ngx_http_zk_lock_admin_go(admin);
    }

    ngx_http_zk_lock_request_end(r, rc);
}


/* Copies what the list tells of the holders: the infos go with the list. */

static ngx_int_t
ngx_http_zk_lock_admin_targets(ngx_http_zk_lock_admin_t *admin,
    zkl_call_t *call)
{
    ngx_uint_t                  i, n;
    ngx_pool_t                 *pool;
    zkl_info_t                 *info;
    zkl_claim_data_t            cdata;
    ngx_http_zk_lock_target_t  *target;

    pool = admin->request->pool;

    if (!admin->listed) {
        admin->listed = 1;
        admin->rest = call->holders;
        admin->last = call->last;
    }

    /* a claim that was granted since the first list stays */

    for (n = 0;
         n < call->nknown && call->infos[n].held
         && call->infos[n].child.seq <= admin->last;
         n++)
    {
        /* void */
    }

    n = ngx_min(n, admin->rest);

    admin->targets = ngx_pcalloc(pool,
                                 (n + 1) * sizeof(ngx_http_zk_lock_target_t));
    if (admin->targets == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        info = &call->infos[i];
        target = &admin->targets[admin->ntargets];

        target->fencing = ngx_http_zk_lock_info_fencing(info);

        if (admin->fencing != 0 && admin->fencing != target->fencing) {
            continue;
        }

        zkl_claim_data_read(&cdata, (char *) info->cdata.data,
                            info->cdata.len);

        target->name.len = info->name.len;
        target->name.data = ngx_pstrdup(pool, &info->name);

        if (target->name.data == NULL
            || ngx_http_zk_lock_admin_escape(pool, &target->owner,
                                             (u_char *) cdata.owner,
                                             cdata.owner_len)
               != NGX_OK)
        {
            return NGX_ERROR;
        }

        target->has_id = info->child.has_id;
        target->token.id = info->child.id;
        target->token.seq = info->child.seq;
        target->token.mode = info->child.mode;

        admin->ntargets++;
    }

    /* a list that shows no holder any more is the last list */

    admin->rest = (n != 0) ? admin->rest - n : 0;

    return NGX_OK;
}


/* Starts as many calls as may be in flight, lists again, or answers. */

static ngx_int_t
ngx_http_zk_lock_admin_go(ngx_http_zk_lock_admin_t *admin)
{
    while (admin->next < admin->ntargets
           && admin->calls < NGX_HTTP_ZK_LOCK_ADMIN_ASKS
           && admin->worst == ZKL_CALL_OK)
    {
        if (ngx_http_zk_lock_admin_call(admin, &admin->targets[admin->next])
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        admin->next++;
    }

    if (admin->calls != 0) {
        return NGX_DONE;
    }

    /* after a revoke the next list would show the same holders */

    if (admin->rest != 0 && admin->fencing == 0 && admin->type == ZKL_BREAK) {
        return ngx_http_zk_lock_request_call(admin->request, admin->ctx,
                                        ZKL_LIST, 0,
                                        ngx_http_zk_lock_admin_list_handler);
    }

    return ngx_http_zk_lock_admin_answer(admin);
}


/*
 * A break of a gateway's claim names the id, because the claim's worker knows
 * the id; any other call names the znode.
 */

static ngx_int_t
ngx_http_zk_lock_admin_call(ngx_http_zk_lock_admin_t *admin,
    ngx_http_zk_lock_target_t *target)
{
    zkl_question_t  question;

    ngx_memzero(&question, sizeof(zkl_question_t));

    question.type = admin->type;
    question.forced = 1;
    question.path = &admin->ctx->path;
    question.timeout = admin->ctx->conf->timeout;
    question.node = ngx_http_zk_lock_request_node(admin->request);
    question.handler = ngx_http_zk_lock_admin_call_handler;
    question.data = admin;

    if (admin->type == ZKL_BREAK && target->has_id) {
        question.token = &target->token;

    } else {
        question.name = &target->name;
    }

    target->call = zkl_call_start(admin->ctx->worker, &question);
    if (target->call == NULL) {
        return NGX_ERROR;
    }

    admin->calls++;

    return NGX_OK;
}


static void
ngx_http_zk_lock_admin_call_handler(zkl_call_t *call, zkl_answer_e answer)
{
    ngx_int_t                   rc;
    ngx_uint_t                  i;
    ngx_http_request_t         *r;
    ngx_http_zk_lock_admin_t   *admin;
    ngx_http_zk_lock_target_t  *target;

    admin = call->data;
    r = admin->request;

    for  (i = 0; admin->targets[i].call != call; i++) {
        /* void */
    }

    target = &admin->targets[i];
    target->call = NULL;
    admin->calls--;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock: \"%V\" holder %ui, answer %d", &admin->ctx->path,
                   i, answer);

    switch (answer) {

    case ZKL_CALL_OK:
        admin->done++;
        ngx_http_zk_lock_admin_log(admin, target);
        break;

    case ZKL_CALL_GONE:

        /* the claim has ended meanwhile */

        break;

    default:
        admin->worst = answer;
        break;
    }

    if (admin->calls == 0 && admin->worst != ZKL_CALL_OK) {
        rc = ngx_http_zk_lock_result_answered(r, admin->ctx, call,
                                              admin->worst);

    } else {
        rc = ngx_http_zk_lock_admin_go(admin);
    }

    ngx_http_zk_lock_request_end(r, rc);
}


static void
ngx_http_zk_lock_admin_log(ngx_http_zk_lock_admin_t *admin,
    ngx_http_zk_lock_target_t *target)
{
    ngx_str_t            name, user, text, *lock;
    ngx_uint_t           level, broken;
    ngx_http_request_t  *r;

    r = admin->request;
    lock = &admin->ctx->told.name;

    /* a break must be seen in a log of nginx's default level, too */

    broken = (admin->type == ZKL_BREAK);
    level = broken ? NGX_LOG_ERR : NGX_LOG_WARN;

    if (ngx_http_zk_lock_user(r, &text) != NGX_OK) {
        return;
    }

    /* the user whose password was checked, or "-" */

    if (text.len == 0) {
        ngx_str_set(&text, "-");
    }

    text.len = ngx_min(text.len, NGX_HTTP_ZK_LOCK_ADMIN_USER);

    if (ngx_http_zk_lock_admin_escape(r->pool, &user, text.data, text.len)
        != NGX_OK
        || ngx_http_zk_lock_admin_escape(r->pool, &name, lock->data, lock->len)
           != NGX_OK)
    {
        return;
    }

    ngx_http_zk_lock_log_operator(r, admin->ctx, broken ? "break" : "revoke",
                                  &target->owner, target->fencing, &user);

    ngx_log_error(level, r->connection->log, 0,
                  "lock \"%V\": the claim of \"%V\" with fencing token %L "
                  "was %s by user \"%V\" from %V", &name, &target->owner,
                  target->fencing, broken ? "broken" : "revoked", &user,
                  &r->connection->addr_text);
}


/* Escapes a client's text, so that the text cannot end the quotes. */

static ngx_int_t
ngx_http_zk_lock_admin_escape(ngx_pool_t *pool, ngx_str_t *dst, u_char *src,
    size_t len)
{
    u_char  *p;
    size_t   i;

    dst->data = ngx_pnalloc(pool, 4 * len + 1);
    if (dst->data == NULL) {
        return NGX_ERROR;
    }

    p = dst->data;

    for (i = 0; i < len; i++) {

        if (src[i] < 0x20 || src[i] == 0x7f || src[i] == '"' || src[i] == '\\')
        {
            p = ngx_sprintf(p, "\\x%02Xui", (ngx_uint_t) src[i]);

        } else {
            *p++ = src[i];
        }
    }

    dst->len = p - dst->data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_zk_lock_admin_answer(ngx_http_zk_lock_admin_t *admin)
{
    zkl_json_t              *json;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    r = admin->request;
    ctx = admin->ctx;

    if (admin->done != 0 && admin->type == ZKL_BREAK) {
        ngx_str_set(&ctx->told.outcome, "broken");
        return ngx_http_zk_lock_answer_done(r);
    }

    if (admin->done != 0) {
        ngx_str_set(&ctx->told.outcome, "revoked");

        json = zkl_json_open();

        ngx_http_zk_lock_write_name(json, ctx);
        zkl_json_integer(json, "asked", (int64_t) admin->done);

        return ngx_http_zk_lock_send(r, NGX_HTTP_ACCEPTED, json);
    }

    if (admin->fencing != 0 && admin->listed) {
        ngx_str_set(&ctx->told.outcome, "refused");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_PRECONDITION_FAILED,
                                        "nobody holds this lock with that "
                                        "fencing token");
    }

    ngx_str_set(&ctx->told.outcome, "free");

    if (ctx->plain) {
        return ngx_http_zk_lock_answer_done(r);
    }

    return ngx_http_zk_lock_problem(r, NGX_HTTP_NOT_FOUND,
                                    "nobody holds this lock");
}
