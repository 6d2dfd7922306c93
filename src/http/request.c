
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


#include "http/request.h"
#include "http/answer.h"


static void ngx_http_zk_lock_request_writer(ngx_http_request_t *r);
static void ngx_http_zk_lock_request_cleanup(void *data);


/*
 * A ready read event is posted, because an end of the connection that came
 * before now raises no further event.
 */

ngx_int_t
ngx_http_zk_lock_request_hold(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx)
{
    ngx_connection_t    *c;
    ngx_http_cleanup_t  *cln;

    if (ctx->held) {
        return NGX_OK;
    }

    if (ctx->preferred && ngx_http_zk_lock_add_preference(r, ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln->handler = ngx_http_zk_lock_request_cleanup;
    cln->data = ctx;

    ctx->held = 1;

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

        if (ctx->outcome.len == 0) {
            ngx_str_set(&ctx->outcome, "gone");
        }

        zkl_claim_abandon(claim);
    }

    if (ctx->call != NULL) {
        zkl_call_leave(ctx->call);
        ctx->call = NULL;
    }

    if (ctx->other != NULL) {
        ctx->leave(ctx->other);
        ctx->other = NULL;
    }

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

        ngx_str_set(&ctx->outcome, "gone");
        zkl_claim_unseen(claim);
    }
}


/* r->header_sent proves nothing, because nginx sets the flag before sending */

ngx_uint_t
ngx_http_zk_lock_request_written(ngx_http_zk_lock_ctx_t *ctx)
{
    return ctx->told && ctx->request->request_complete;
}


void
ngx_http_zk_lock_request_end(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_connection_t  *c;

    c = r->connection;

    if (rc != NGX_DONE) {
        ngx_http_finalize_request(r, rc);
    }

    ngx_http_run_posted_requests(c);
}


ngx_int_t
ngx_http_zk_lock_request_call(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, zkl_call_e type, ngx_msec_t ttl,
    zkl_call_pt handler)
{
    ngx_int_t                     rc;
    ngx_http_zk_lock_loc_conf_t  *zlcf;
    zkl_question_t                question;

    rc = ngx_http_zk_lock_request_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    ngx_memzero(&question, sizeof(zkl_question_t));

    question.type = type;
    question.path = &ctx->path;
    question.token = ctx->has_token ? &ctx->token : NULL;
    question.ttl = ttl;
    question.timeout = ctx->patience ? ctx->patience : zlcf->timeout;
    question.grace = zlcf->grace;
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


void
ngx_http_zk_lock_request_note(ngx_http_zk_lock_ctx_t *ctx, zkl_claim_t *claim)
{
    ctx->token.id = claim->id;
    ctx->token.seq = claim->entry.seq;
    ctx->token.kind = claim->entry.kind;
    ctx->has_token = 1;

    zkl_name_token_write((char *) ctx->secret, &ctx->token,
                         (char *) ctx->path.data, ctx->path.len);

    ctx->fencing = zkl_fencing_token(claim->czxid, claim->index);
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
