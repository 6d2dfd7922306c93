
/*
 * The API: methods, names, arguments, and a request's life while it is held.
 *
 * Everything here runs on the event loop.  A request that waits has either a
 * claim or an ask in its context, never both, and a pool cleanup that lets go
 * of it: so whatever ends the request (the answer, a client that leaves, a
 * connection that breaks) ends the waiting.  A grant whose answer could not be
 * written is released by the same cleanup.
 *
 * The body is always read first, even where none is wanted: a body that is
 * still being discarded would hide a client that leaves.
 */


#include "ngx_http_zk_lock_api.h"


static ngx_int_t ngx_http_zk_lock_api_target(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, const char **why);
static ngx_uint_t ngx_http_zk_lock_api_rewritten(ngx_str_t *uri);
static ngx_int_t ngx_http_zk_lock_api_method(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
static ngx_int_t ngx_http_zk_lock_api_path(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
static void ngx_http_zk_lock_api_body_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_zk_lock_api_dispatch(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
static ngx_int_t ngx_http_zk_lock_api_acquire(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
static ngx_int_t ngx_http_zk_lock_api_modes(zk_lock_args_t *args);
static const char *ngx_http_zk_lock_api_kind(zk_lock_args_t *args,
    zk_lock_kind_e *kind);
static ngx_int_t ngx_http_zk_lock_api_claim(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_uint_t renew);
static ngx_int_t ngx_http_zk_lock_api_release(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
static ngx_int_t ngx_http_zk_lock_api_token(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
static ngx_int_t ngx_http_zk_lock_api_ask(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_ask_e type, ngx_msec_t ttl,
    ngx_http_zk_lock_ask_pt handler);
static ngx_int_t ngx_http_zk_lock_api_hold(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx);
static void ngx_http_zk_lock_api_cleanup(void *data);
static void ngx_http_zk_lock_api_claim_handler(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_outcome_e outcome);
static ngx_int_t ngx_http_zk_lock_api_granted(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_claim_t *claim);
static ngx_uint_t ngx_http_zk_lock_api_gone(ngx_http_request_t *r);
static ngx_int_t ngx_http_zk_lock_api_refused(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_outcome_e outcome);
static void ngx_http_zk_lock_api_ask_handler(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer);
static void ngx_http_zk_lock_api_holder_handler(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer);
static ngx_int_t ngx_http_zk_lock_api_answered(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer);


static ngx_str_t  ngx_http_zk_lock_token_header = ngx_string("lock-token");


ngx_int_t
ngx_http_zk_lock_api_handler(ngx_http_request_t *r)
{
    ngx_int_t                      rc;
    const char                    *why;
    ngx_http_zk_lock_ctx_t        *ctx;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    if (r != r->main) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "a lock cannot be taken in a subrequest");
        return NGX_HTTP_FORBIDDEN;
    }

    ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_zk_lock_ctx_t));
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_set_ctx(r, ctx, ngx_http_zk_lock_module);

    zmcf = ngx_http_get_module_main_conf(r, ngx_http_zk_lock_module);

    ctx->request = r;
    ctx->worker = zmcf->worker;

    why = NULL;
    rc = NGX_OK;

    if (ngx_http_zk_lock_api_target(r, ctx, &why) != NGX_OK) {
        rc = ngx_http_discard_request_body(r);

        return (rc != NGX_OK) ? rc : ngx_http_zk_lock_problem(r,
                                          NGX_HTTP_BAD_REQUEST, why);
    }

    rc = ngx_http_zk_lock_api_method(r, ctx);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (r->headers_in.content_length_n > NGX_HTTP_ZK_LOCK_BODY_MAX) {
        rc = ngx_http_discard_request_body(r);

        return (rc != NGX_OK) ? rc : ngx_http_zk_lock_problem(r,
                                          NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                          "a body has at most 8192 bytes");
    }

    rc = ngx_http_zk_lock_api_path(r, ctx);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    rc = ngx_http_read_client_request_body(r,
                                           ngx_http_zk_lock_api_body_handler);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    return NGX_DONE;
}


/* What follows the location's own prefix: NAME, or NAME/TOKEN. */

static ngx_int_t
ngx_http_zk_lock_api_target(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, const char **why)
{
    u_char                    *p, *last, *slash;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    p = r->uri.data;
    last = p + r->uri.len;

    if (r->uri.len >= clcf->name.len
        && ngx_strncmp(p, clcf->name.data, clcf->name.len) == 0)
    {
        p += clcf->name.len;
    }

    if (p < last && *p == '/') {
        p++;
    }

    /* what nginx has put right already was not a name that can be taken */

    if (ngx_http_zk_lock_api_rewritten(&r->unparsed_uri)) {
        *why = "a lock's name is one path segment, without \"/\", \".\", "
               "\"..\" or an empty segment around it";
        return NGX_ERROR;
    }

    slash = ngx_strlchr(p, last, '/');

    ctx->name.data = p;
    ctx->name.len = (slash ? slash : last) - p;

    if (slash != NULL) {
        ctx->text.data = slash + 1;
        ctx->text.len = last - slash - 1;
    }

    *why = zk_lock_name_check((char *) ctx->name.data, ctx->name.len);

    return (*why == NULL) ? NGX_OK : NGX_ERROR;
}


/*
 * Whether nginx has changed the path: merged slashes, resolved dots, or took
 * an escaped slash for one.
 */

static ngx_uint_t
ngx_http_zk_lock_api_rewritten(ngx_str_t *uri)
{
    size_t      i, len, dots;
    u_char     *p;
    ngx_uint_t  c;

    len = 0;
    dots = 0;

    for (i = 1; i <= uri->len; i++) {

        p = &uri->data[i];
        c = (i == uri->len) ? '?' : *p;

        if (c == '%' && i + 2 < uri->len && p[1] == '2') {

            if ((p[2] | 0x20) == 'f') {
                return 1;
            }

            if ((p[2] | 0x20) == 'e') {
                c = '.';
                i += 2;
            }
        }

        if (c == '/' || c == '?') {

            if ((len == 0 && c == '/')
                || (len != 0 && len == dots && dots <= 2))
            {
                return 1;
            }

            if (c == '?') {
                break;
            }

            len = 0;
            dots = 0;
            continue;
        }

        len++;
        dots += (c == '.');
    }

    return 0;
}


/* NGX_DECLINED: the method is fine; else an answer was sent. */

static ngx_int_t
ngx_http_zk_lock_api_method(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t    rc;
    ngx_uint_t   claim, methods;

    claim = (ctx->text.data != NULL);

    methods = NGX_HTTP_GET|NGX_HTTP_HEAD|NGX_HTTP_PUT|NGX_HTTP_DELETE
              |(claim ? 0 : NGX_HTTP_POST);

    if (r->method & methods) {
        return NGX_DECLINED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    return ngx_http_zk_lock_answer_method(r, claim ? "GET, HEAD, PUT, DELETE"
                                       : "GET, HEAD, POST, PUT, DELETE");
}


/*
 * The lock's znode: the root, which may hold variables, and the name.  Returns
 * NGX_DECLINED to go on; else an answer was sent.
 */

static ngx_int_t
ngx_http_zk_lock_api_path(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    u_char                       *p;
    ngx_int_t                     rc;
    ngx_str_t                     root;
    const char                   *why;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    if (ngx_http_complex_value(r, zlcf->root, &root) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    why = zk_lock_path_check((char *) root.data, root.len);

    if (why != NULL) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "zk_lock_root \"%V\" cannot be used: %s", &root, why);

        rc = ngx_http_discard_request_body(r);

        return (rc != NGX_OK) ? rc : ngx_http_zk_lock_problem(r,
                                          NGX_HTTP_INTERNAL_SERVER_ERROR,
                                          "this location's root cannot be "
                                          "used for this request");
    }

    if (root.len == 1) {
        root.len = 0;
    }

    ctx->path.len = root.len + 1 + ctx->name.len;

    if (ctx->path.len > ZK_LOCK_PATH_MAX) {
        rc = ngx_http_discard_request_body(r);

        return (rc != NGX_OK) ? rc : ngx_http_zk_lock_problem(r,
                                          NGX_HTTP_BAD_REQUEST,
                                          "the root and the name together "
                                          "are too long");
    }

    ctx->path.data = ngx_pnalloc(r->pool, ctx->path.len);
    if (ctx->path.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    p = ngx_cpymem(ctx->path.data, root.data, root.len);
    *p++ = '/';
    ngx_memcpy(p, ctx->name.data, ctx->name.len);

    return NGX_DECLINED;
}


static void
ngx_http_zk_lock_api_body_handler(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    rc = ngx_http_zk_lock_api_dispatch(r, ctx);

    if (rc != NGX_DONE) {
        ngx_http_finalize_request(r, rc);
    }
}


/* NGX_DONE: the request is held; else it is to be finalized. */

static ngx_int_t
ngx_http_zk_lock_api_dispatch(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t  rc;

    if (ngx_http_zk_lock_body_size(r) > NGX_HTTP_ZK_LOCK_BODY_MAX) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                        "a body has at most 8192 bytes");
    }

    if (ctx->worker == NULL) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                        "this worker has no place in "
                                        "zk_lock_zone");
    }

    rc = ngx_http_zk_lock_api_token(r, ctx);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    switch (r->method) {

    case NGX_HTTP_POST:
        return ngx_http_zk_lock_api_acquire(r, ctx);

    case NGX_HTTP_PUT:
        return ngx_http_zk_lock_api_claim(r, ctx, 1);

    case NGX_HTTP_DELETE:
        return ngx_http_zk_lock_api_release(r, ctx);

    default: /* NGX_HTTP_GET, NGX_HTTP_HEAD */
        return ngx_http_zk_lock_api_claim(r, ctx, 0);
    }
}


/*
 * The token, from the path or from the header.  What is no token of this lock
 * is told without asking anybody.  Returns NGX_DECLINED to go on; else an
 * answer was sent.
 */

static ngx_int_t
ngx_http_zk_lock_api_token(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_str_t   *header;
    ngx_uint_t   n;

    header = ngx_http_zk_lock_header(r, &ngx_http_zk_lock_token_header,
                                         &n);

    if (n > 1 || (n == 1 && ctx->text.data != NULL)) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "one token is enough: in the path or "
                                        "in one Lock-Token header");
    }

    if (ctx->text.data == NULL) {

        if (n == 0) {
            return NGX_DECLINED;
        }

        ctx->text = *header;
    }

    if (zk_lock_token_read(&ctx->token, (char *) ctx->text.data,
                           ctx->text.len, (char *) ctx->path.data,
                           ctx->path.len)
        != 0)
    {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_NOT_FOUND,
                                        "no such claim: this is no token of "
                                        "this lock");
    }

    ngx_memcpy(ctx->secret, ctx->text.data, ZK_LOCK_TOKEN_LEN);
    ctx->has_token = 1;

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_zk_lock_api_acquire(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_int_t                     rc;
    ngx_uint_t                    status;
    zk_lock_args_t                args;
    zk_lock_label_t               label;
    ngx_http_zk_lock_outcome_e    outcome;
    ngx_http_zk_lock_acquire_t    acquire;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    if (ctx->has_token) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "an acquire takes no Lock-Token");
    }

    if (ngx_http_zk_lock_args(r, &args, ZK_LOCK_ARG_WAIT|ZK_LOCK_ARG_TTL
                                  |ZK_LOCK_ARG_MODE|ZK_LOCK_ARG_OWNER
                                  |ZK_LOCK_ARG_DATA|ZK_LOCK_ARG_HOLD, &status)
        != NGX_OK
        || ngx_http_zk_lock_api_modes(&args) != NGX_OK)
    {
        return ngx_http_zk_lock_problem(r, status, args.error);
    }

    ngx_memzero(&acquire, sizeof(ngx_http_zk_lock_acquire_t));
    ngx_memzero(&label, sizeof(zk_lock_label_t));

    acquire.path = ctx->path;
    (void) ngx_http_zk_lock_api_kind(&args, &acquire.kind);
    acquire.wait = (args.given & ZK_LOCK_ARG_WAIT) ? (ngx_msec_t) args.wait
                                                   : zlcf->wait;
    acquire.wait = ngx_min(acquire.wait, zlcf->max_wait);
    acquire.ttl = (args.given & ZK_LOCK_ARG_TTL) ? (ngx_msec_t) args.ttl
                                                 : zlcf->ttl;
    acquire.ttl = ngx_min(acquire.ttl, zlcf->max_ttl);
    acquire.max_queue = zlcf->max_queue;
    acquire.label = &label;
    acquire.handler = ngx_http_zk_lock_api_claim_handler;
    acquire.data = ctx;

    label.ttl = acquire.ttl;
    label.owner_len = args.owner_len;
    label.data_len = args.data_len;
    ngx_memcpy(label.owner, args.owner, args.owner_len);
    ngx_memcpy(label.data, args.data, args.data_len);

    ctx->waits = 1;

    rc = ngx_http_zk_lock_api_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    ctx->claim = ngx_http_zk_lock_claim_acquire(ctx->worker, &acquire,
                                                &outcome);

    if (ctx->claim == NULL) {
        return ngx_http_zk_lock_api_refused(r, ctx, outcome);
    }

    return NGX_DONE;
}


static ngx_int_t
ngx_http_zk_lock_api_modes(zk_lock_args_t *args)
{
    const char      *why;
    zk_lock_kind_e   kind;

    why = ngx_http_zk_lock_api_kind(args, &kind);

    if ((args->given & ZK_LOCK_ARG_HOLD)
        && ngx_strcmp(args->hold, "lease") != 0)
    {
        why = "\"hold\" takes \"lease\"";
    }

    if ((args->given & ZK_LOCK_ARG_TTL) && args->ttl == 0) {
        why = "\"ttl\" takes a duration above zero";
    }

    if (why == NULL) {
        return NGX_OK;
    }

    (void) ngx_cpystrn((u_char *) args->error, (u_char *) why,
                       sizeof(args->error));

    return NGX_ERROR;
}


/* Returns NULL, or what a mode may be. */

static const char *
ngx_http_zk_lock_api_kind(zk_lock_args_t *args, zk_lock_kind_e *kind)
{
    ngx_uint_t  i;

    static struct {
        const char      *mode;
        zk_lock_kind_e   kind;
    } modes[] = {
        { "exclusive", ZK_LOCK_MUTEX },
        { "shared",    ZK_LOCK_READ },
        { "read",      ZK_LOCK_READ },
        { "write",     ZK_LOCK_WRITE }
    };

    *kind = ZK_LOCK_MUTEX;

    if (!(args->given & ZK_LOCK_ARG_MODE)) {
        return NULL;
    }

    for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (ngx_strcmp(args->mode, modes[i].mode) == 0) {
            *kind = modes[i].kind;
            return NULL;
        }
    }

    return "\"mode\" takes \"exclusive\", \"shared\" (or \"read\") or "
           "\"write\"";
}


/* GET and PUT: of a claim, if there is a token, else of the lock. */

static ngx_int_t
ngx_http_zk_lock_api_claim(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx,
    ngx_uint_t renew)
{
    ngx_msec_t                    ttl;
    ngx_uint_t                    status;
    zk_lock_args_t                args;
    ngx_http_zk_lock_ask_e        type;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    if (ngx_http_zk_lock_args(r, &args, renew ? ZK_LOCK_ARG_TTL : 0,
                                  &status)
        != NGX_OK
        || ngx_http_zk_lock_api_modes(&args) != NGX_OK)
    {
        return ngx_http_zk_lock_problem(r, status, args.error);
    }

    if (renew && !ctx->has_token) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "a renewal takes the token of the "
                                        "grant, in a Lock-Token header or "
                                        "behind the name");
    }

    ttl = (args.given & ZK_LOCK_ARG_TTL) ? (ngx_msec_t) args.ttl : 0;

    type = renew ? NGX_HTTP_ZK_LOCK_RENEW
                 : ctx->has_token ? NGX_HTTP_ZK_LOCK_INSPECT
                                  : NGX_HTTP_ZK_LOCK_LIST;

    return ngx_http_zk_lock_api_ask(r, ctx, type,
                                    ngx_min(ttl, zlcf->max_ttl),
                                    ngx_http_zk_lock_api_ask_handler);
}


static ngx_int_t
ngx_http_zk_lock_api_release(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_uint_t      status;
    zk_lock_args_t  args;

    if (ngx_http_zk_lock_args(r, &args, 0, &status) != NGX_OK) {
        return ngx_http_zk_lock_problem(r, status, args.error);
    }

    if (!ctx->has_token) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "a release takes the token of the "
                                        "grant, in a Lock-Token header or "
                                        "behind the name");
    }

    return ngx_http_zk_lock_api_ask(r, ctx, NGX_HTTP_ZK_LOCK_RELEASE, 0,
                                    ngx_http_zk_lock_api_ask_handler);
}


static ngx_int_t
ngx_http_zk_lock_api_ask(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx,
    ngx_http_zk_lock_ask_e type, ngx_msec_t ttl,
    ngx_http_zk_lock_ask_pt handler)
{
    ngx_int_t  rc;

    rc = ngx_http_zk_lock_api_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    ctx->ask = ngx_http_zk_lock_ask(ctx->worker, type, &ctx->path,
                                    ctx->has_token ? &ctx->token : NULL, ttl,
                                    handler, ctx);

    return (ctx->ask != NULL) ? NGX_DONE : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


/*
 * From here on the request is held, and its client's leaving is noticed.  An
 * end of the connection that came earlier has used up its event, so the read
 * handler is called once in any case.
 */

static ngx_int_t
ngx_http_zk_lock_api_hold(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_connection_t    *c;
    ngx_http_cleanup_t  *cln;

    if (r->read_event_handler == ngx_http_test_reading) {
        return NGX_OK;
    }

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln->handler = ngx_http_zk_lock_api_cleanup;
    cln->data = ctx;

    c = r->connection;

    if (c->read->ready) {
        ngx_post_event(c->read, &ngx_posted_events);

    } else if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    return NGX_OK;
}


static void
ngx_http_zk_lock_api_cleanup(void *data)
{
    ngx_http_zk_lock_ctx_t *ctx = data;

    ngx_connection_t          *c;
    ngx_http_request_t        *r;
    ngx_http_zk_lock_claim_t  *claim;

    r = ctx->request;
    c = r->connection;

    if (ctx->claim != NULL) {
        claim = ctx->claim;
        ctx->claim = NULL;

        if (ctx->outcome.len == 0) {
            ngx_str_set(&ctx->outcome, "gone");
        }

        ngx_http_zk_lock_claim_abandon(claim);
    }

    if (ctx->ask != NULL) {
        ngx_http_zk_lock_ask_leave(ctx->ask);
        ctx->ask = NULL;
    }

    if (!ctx->granted) {
        return;
    }

    ctx->granted = 0;

    if (!c->error && r->header_sent && !r->buffered && !c->buffered
        && r->headers_out.status == NGX_HTTP_CREATED)
    {
        return;
    }

    /* the grant's answer was not written */

    claim = ngx_http_zk_lock_claim_find(ctx->worker, &ctx->token.id,
                                        &ctx->path);

    if (claim != NULL) {
        ngx_log_error(NGX_LOG_INFO, c->log, 0,
                      "client left before its grant was written, "
                      "the lock is released");

        ngx_str_set(&ctx->outcome, "gone");
        ngx_http_zk_lock_claim_release(claim, NULL);
    }
}


static void
ngx_http_zk_lock_api_claim_handler(void *data,
    ngx_http_zk_lock_claim_t *claim, ngx_http_zk_lock_outcome_e outcome)
{
    ngx_http_zk_lock_ctx_t *ctx = data;

    ngx_int_t            rc;
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = ctx->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "zk lock: \"%V\" outcome %d", &r->uri, outcome);

    ctx->claim = NULL;
    ctx->waited = ngx_current_msec - claim->started;

    rc = (outcome == NGX_HTTP_ZK_LOCK_GRANTED)
         ? ngx_http_zk_lock_api_granted(r, ctx, claim)
         : ngx_http_zk_lock_api_refused(r, ctx, outcome);

    if (rc != NGX_DONE) {
        ngx_http_finalize_request(r, rc);
    }

    ngx_http_run_posted_requests(c);
}


static ngx_int_t
ngx_http_zk_lock_api_granted(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_claim_t *claim)
{
    if (ngx_http_zk_lock_api_gone(r)) {
        ngx_str_set(&ctx->outcome, "gone");
        ngx_http_zk_lock_claim_abandon(claim);

        return NGX_HTTP_CLIENT_CLOSED_REQUEST;
    }

    ngx_str_set(&ctx->outcome, "granted");

    ctx->token.id = claim->id;
    ctx->token.seq = claim->entry.seq;
    ctx->token.kind = claim->entry.kind;
    ctx->granted = 1;

    zk_lock_token_write((char *) ctx->secret, &ctx->token,
                        (char *) ctx->path.data, ctx->path.len);

    ctx->fencing = ngx_http_zk_lock_fencing_token(claim->czxid, claim->index);

    return ngx_http_zk_lock_answer_granted(r, ctx, claim);
}


/* Looks at the socket itself: its event may be behind the grant in the loop. */

static ngx_uint_t
ngx_http_zk_lock_api_gone(ngx_http_request_t *r)
{
    char               buf[1];
    ssize_t            n;
    ngx_connection_t  *c;

    c = r->connection;

    if (c->error) {
        return 1;
    }

#if (NGX_HTTP_V2)

    if (r->stream) {
        c = r->stream->connection->connection;

        if (c->error) {
            return 1;
        }
    }

#endif

#if (NGX_HTTP_SSL)

    if (c->ssl) {
        return c->read->pending_eof;
    }

#endif

    n = recv(c->fd, buf, 1, MSG_PEEK);

    return n == 0 || (n == -1 && ngx_socket_errno != NGX_EAGAIN);
}


static ngx_int_t
ngx_http_zk_lock_api_refused(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_outcome_e outcome)
{
    switch (outcome) {

    case NGX_HTTP_ZK_LOCK_TAKEN:
        ngx_str_set(&ctx->outcome, "taken");

        return ngx_http_zk_lock_api_ask(r, ctx, NGX_HTTP_ZK_LOCK_HOLDER, 0,
                                        ngx_http_zk_lock_api_holder_handler);

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
ngx_http_zk_lock_api_ask_handler(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer)
{
    ngx_int_t                rc;
    ngx_connection_t        *c;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ask->data;
    r = ctx->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "zk lock: \"%V\" answer %d", &r->uri, answer);

    ctx->ask = NULL;

    rc = ngx_http_zk_lock_api_answered(r, ctx, ask, answer);

    ngx_http_finalize_request(r, rc);
    ngx_http_run_posted_requests(c);
}


static void
ngx_http_zk_lock_api_holder_handler(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer)
{
    ngx_int_t                rc;
    ngx_connection_t        *c;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ask->data;
    r = ctx->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ctx->ask = NULL;

    /* the holder is a courtesy: the answer does not depend on it */

    rc = ngx_http_zk_lock_answer_taken(r, answer == NGX_HTTP_ZK_LOCK_ASK_OK
                                          ? &ask->infos[0] : NULL);

    ngx_http_finalize_request(r, rc);
    ngx_http_run_posted_requests(c);
}


static ngx_int_t
ngx_http_zk_lock_api_answered(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer)
{
    switch (answer) {

    case NGX_HTTP_ZK_LOCK_ASK_OK:

        switch (ask->type) {

        case NGX_HTTP_ZK_LOCK_RELEASE:
            ngx_str_set(&ctx->outcome, "released");
            return ngx_http_zk_lock_answer_done(r);

        case NGX_HTTP_ZK_LOCK_LIST:
            ngx_str_set(&ctx->outcome, "listed");
            return ngx_http_zk_lock_answer_lock(r, ctx, ask);

        default:
            return ngx_http_zk_lock_answer_claim(r, ctx, ask);
        }

    case NGX_HTTP_ZK_LOCK_ASK_GONE:
        ngx_str_set(&ctx->outcome, "lost");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_ZK_LOCK_STATUS_GONE,
                                        "the claim of this token is gone: "
                                        "released, its lease over, or its "
                                        "session lost");

    case NGX_HTTP_ZK_LOCK_ASK_FREE:
        ngx_str_set(&ctx->outcome, "free");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_NOT_FOUND,
                                        "nobody holds this lock or waits "
                                        "for it");

    case NGX_HTTP_ZK_LOCK_ASK_FOREIGN:
        ngx_str_set(&ctx->outcome, "refused");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_CONFLICT,
                                        "this claim was not made by a "
                                        "gateway, and has no lease");

    case NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE:
        ngx_str_set(&ctx->outcome, "unreachable");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                        ask->type == NGX_HTTP_ZK_LOCK_RELEASE
                                        ? "ZooKeeper is out of reach: the "
                                          "release is not confirmed, "
                                          "repeating is safe"
                                        : "ZooKeeper is out of reach: nothing "
                                          "is sure, repeating is safe");

    case NGX_HTTP_ZK_LOCK_ASK_DENIED:
        ngx_str_set(&ctx->outcome, "refused");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_INTERNAL_SERVER_ERROR,
                                        "ZooKeeper does not let this gateway "
                                        "see this lock");

    default: /* NGX_HTTP_ZK_LOCK_ASK_FAILED */
        ngx_str_set(&ctx->outcome, "failed");

        return ngx_http_zk_lock_problem(r, NGX_HTTP_INTERNAL_SERVER_ERROR,
                                        "no memory");
    }
}
