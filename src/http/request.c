
/*
 * The life of a held request.
 *
 * A request that waits has a claim, a call or another object in the context,
 * and a cleanup that lets go of the object.  So the end of the request ends the
 * waiting: the answer, a client that leaves, a broken connection.  The cleanup
 * also releases a grant whose answer was not written, or keeps the claim for
 * the grace.
 *
 * Everything here runs on the event loop.  ctx->claim, ctx->call and ctx->other
 * are NULL unless the request waits for them.
 */


#include <ngx_sha1.h>

#include "http/request.h"
#include "http/answer.h"


static void ngx_http_zk_lock_request_writer(ngx_http_request_t *r);
static void ngx_http_zk_lock_request_cleanup(void *data);
static void ngx_http_zk_lock_request_stop(ngx_http_zk_lock_ctx_t *ctx);


ngx_int_t
ngx_http_zk_lock_request_hold(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    u_char              *p, *last;
    ngx_http_cleanup_t  *cln;

    if (ctx->held) {
        return NGX_OK;
    }

    if (ctx->preferred) {
        p = ngx_pnalloc(r->pool, sizeof("wait=.000") + NGX_INT64_LEN);
        if (p == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        last = ngx_sprintf(p, "wait=%M", ctx->wait / 1000);

        if (ctx->wait % 1000 != 0) {
            last = ngx_sprintf(last, ".%03M", ctx->wait % 1000);
        }

        if (ngx_http_zk_lock_add_header(r, "Preference-Applied", p, last - p)
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln->handler = ngx_http_zk_lock_request_cleanup;
    cln->data = ctx;

    ctx->held = 1;

    return ngx_http_zk_lock_request_listen(r);
}


/*
 * A ready read event is posted, because an end of the connection that came
 * before now raises no further event.
 */

ngx_int_t
ngx_http_zk_lock_request_listen(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;

    if (c->read->ready) {
        ngx_post_event(c->read, &ngx_posted_events);

    } else if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_zk_lock_request_writer;

    if (ngx_http_zk_lock_request_stopped(c)) {
        ngx_post_event(c->write, &ngx_posted_events);
    }

    return NGX_OK;
}


static void
ngx_http_zk_lock_request_writer(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;

    if (ngx_http_zk_lock_request_stopped(c)) {
        c->error = 1;

        ngx_log_error(NGX_LOG_INFO, c->log, 0,
                      "client stopped reading the response");

        ngx_http_finalize_request(r, NGX_HTTP_CLIENT_CLOSED_REQUEST);
    }
}


ngx_uint_t
ngx_http_zk_lock_request_stopped(ngx_connection_t *c)
{
#if (NGX_HTTP_V3)

    return c->quic != NULL && c->write->error;

#else

    return 0;

#endif
}


static void
ngx_http_zk_lock_request_cleanup(void *data)
{
    ngx_http_zk_lock_ctx_t *ctx = data;

    zkl_claim_t  *claim;

    if (ctx->claim != NULL) {
        claim = ctx->claim;
        ctx->claim = NULL;

        if (ctx->told.outcome.len == 0) {
            ngx_str_set(&ctx->told.outcome, "gone");
        }

        zkl_claim_abandon(claim);
    }

    ngx_http_zk_lock_request_stop(ctx);

    if (!ctx->granted) {
        return;
    }

    ctx->granted = 0;

    if (ngx_http_zk_lock_request_written(ctx)) {
        return;
    }

    claim = zkl_claim_find(ctx->worker, &ctx->token.id, &ctx->path);

    if (claim != NULL) {
        ngx_log_error(NGX_LOG_INFO, ctx->request->connection->log, 0,
                      "client left before its grant was written");

        ngx_str_set(&ctx->told.outcome, "gone");
        zkl_claim_undelivered(claim);
    }
}


static void
ngx_http_zk_lock_request_stop(ngx_http_zk_lock_ctx_t *ctx)
{
    if (ctx->call != NULL) {
        zkl_call_leave(ctx->call);
        ctx->call = NULL;
    }

    if (ctx->other != NULL) {
        ctx->leave(ctx->other);
        ctx->other = NULL;
    }
}


/* r->header_sent proves nothing, because nginx sets the flag before sending */

ngx_uint_t
ngx_http_zk_lock_request_written(ngx_http_zk_lock_ctx_t *ctx)
{
    return ctx->sent && ctx->request->request_complete;
}


void
ngx_http_zk_lock_request_end(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_connection_t  *c;

    c = r->connection;

    if (rc != NGX_DONE) {
        ngx_http_zk_lock_request_finalize(r, rc);
    }

    ngx_http_run_posted_requests(c);
}


/* The page of an error may take long: no call may answer meanwhile. */

void
ngx_http_zk_lock_request_finalize(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);

    if (ctx != NULL && rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        ngx_http_zk_lock_request_stop(ctx);
    }

    ngx_http_finalize_request(r, rc);
}


ngx_int_t
ngx_http_zk_lock_request_call(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_e type, ngx_msec_t ttl,
    zkl_call_pt handler)
{
    ngx_int_t       rc;
    zkl_question_t  question;

    rc = ngx_http_zk_lock_request_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_memzero(&question, sizeof(zkl_question_t));

    question.type = type;
    question.path = &ctx->path;
    question.token = ctx->has_token ? &ctx->token : NULL;
    question.ttl = ttl;
    question.timeout = ctx->patience ? ctx->patience : ctx->conf->timeout;
    question.grace = ctx->conf->grace;
    question.node = ngx_http_zk_lock_request_node(r);
    question.handler = handler;
    question.data = ctx;

    ctx->call = zkl_call_start(ctx->worker, &question);

    return (ctx->call != NULL) ? NGX_DONE : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


ngx_http_request_t *
ngx_http_zk_lock_request_told(zkl_call_t *call, zkl_answer_e answer)
{
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = call->data;
    r = ctx->request;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock: \"%V\" answer %d", &ctx->path, answer);

    ctx->call = NULL;

    return r;
}


ngx_int_t
ngx_http_zk_lock_request_root(ngx_http_request_t *r, ngx_str_t *root)
{
    const char                   *why;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    if (ngx_http_complex_value(r, zlcf->root, root) != NGX_OK) {
        return NGX_ERROR;
    }

    why = zkl_name_path_check((char *) root->data, root->len);

    if (why != NULL) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "zk_lock_root \"%V\" cannot be used: %s", root, why);
        return NGX_DECLINED;
    }

    if (root->len == 1) {
        root->len = 0;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_request_path(ngx_http_request_t *r, ngx_str_t *root,
    ngx_str_t *name, ngx_str_t *path)
{
    u_char      *p, sha1[ZKL_SHA1_LEN], hashed[ZKL_NAME_MAX];
    ngx_str_t    znode;
    ngx_sha1_t   ctx;

    znode = *name;

    if (zkl_name_check((char *) name->data, name->len) != NULL) {
        ngx_sha1_init(&ctx);
        ngx_sha1_update(&ctx, name->data, name->len);
        ngx_sha1_final(sha1, &ctx);

        znode.data = hashed;
        znode.len = zkl_name_hash_write((char *) hashed, (char *) name->data,
                                        name->len, sha1);
    }

    path->len = root->len + 1 + znode.len;

    if (path->len > ZKL_PATH_MAX) {
        return NGX_DECLINED;
    }

    path->data = ngx_pnalloc(r->pool, path->len);
    if (path->data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(path->data, root->data, root->len);
    *p++ = '/';

    if (znode.len != 0) {
        ngx_memcpy(p, znode.data, znode.len);
    }

    if (name->len > ZKL_FULL_MAX
        || !zkl_text_shown_check((char *) name->data, name->len))
    {
        name->data = p;
        name->len = znode.len;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_request_name(ngx_http_request_t *r, ngx_str_t *text,
    ngx_http_zk_lock_name_pt write, ngx_str_t *name)
{
    char  *p;

    p = (char *) text->data;

    name->len = write(NULL, p, text->len);

    if (name->len == text->len) {
        name->data = text->data;
        return NGX_OK;
    }

    name->data = ngx_pnalloc(r->pool, name->len);
    if (name->data == NULL) {
        return NGX_ERROR;
    }

    (void) write((char *) name->data, p, text->len);

    return NGX_OK;
}


void
ngx_http_zk_lock_request_cdata(ngx_http_request_t *r, zkl_claim_data_t *cdata,
    ngx_str_t *name, ngx_str_t *path)
{
    ngx_str_t  *addr;

    cdata->name_len = 0;

    if (name->len <= ZKL_FULL_MAX
        && zkl_name_hash_check((char *) path->data, path->len)
        && !zkl_name_hash_check((char *) name->data, name->len))
    {
        cdata->name_len = name->len;
        ngx_memcpy(cdata->name, name->data, name->len);
    }

    addr = &r->connection->addr_text;

    if (addr->len <= ZKL_FROM_MAX) {
        cdata->from_len = addr->len;
        ngx_memcpy(cdata->from, addr->data, addr->len);
    }
}


void
ngx_http_zk_lock_request_note(ngx_http_zk_lock_ctx_t *ctx, zkl_claim_t *claim)
{
    ctx->token.id = claim->id;
    ctx->token.seq = claim->entry.seq;
    ctx->token.mode = claim->entry.mode;
    ctx->has_token = 1;

    zkl_name_token_write((char *) ctx->secret, &ctx->token,
                         (char *) ctx->path.data, ctx->path.len);

    ctx->told.fencing = zkl_fencing_token(claim->czxid, claim->index);
}


ngx_int_t
ngx_http_zk_lock_request_terms(ngx_http_request_t *r, zkl_worker_t *worker,
    zkl_terms_t *terms)
{
    u_char                        digest[20];
    ngx_str_t                     key;
    ngx_sha1_t                    sha1;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    terms->max_queue = zlcf->max_queue;

    if (zlcf->quota == NULL) {
        return NGX_OK;
    }

    if (ngx_http_complex_value(r, zlcf->quota, &key) != NGX_OK) {
        return NGX_ERROR;
    }

    /* as with limit_conn, an empty key does not count */

    if (key.len == 0) {
        return NGX_OK;
    }

    /*
     * Without the secret a client would find another key with the hash of its
     * victim's, and would use up the victim's number.
     */

    ngx_sha1_init(&sha1);
    ngx_sha1_update(&sha1, worker->zone->map->secret, ZKL_SECRET);
    ngx_sha1_update(&sha1, key.data, key.len);
    ngx_sha1_final(digest, &sha1);

    ngx_memcpy(&terms->quota, digest, sizeof(uint64_t));

    terms->quota = ngx_max(terms->quota, 1);
    terms->max_claims = zlcf->max_claims;

    return NGX_OK;
}


/* The event that the client has left may come after the grant in the loop. */

ngx_uint_t
ngx_http_zk_lock_request_gone(ngx_http_request_t *r)
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

#if (NGX_HTTP_V3)

    if (c->quic) {
        return c->read->error || c->write->error;
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


ngx_uint_t
ngx_http_zk_lock_request_node(ngx_http_request_t *r)
{
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    return zlcf->layout == NGX_HTTP_ZK_LOCK_LAYOUT_NODE;
}
