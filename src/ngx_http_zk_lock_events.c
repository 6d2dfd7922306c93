
/*
 * Events: how those of a stream are written, and how they get to the client.
 *
 * An event is one buffer, flushed.  Its text is allocated outside of the
 * request's pool and freed when it was sent, since a stream may go on for
 * days; the buffer itself and its chain link are used again.  What was not
 * sent is freed with the pool and not sooner: with HTTP/2 the connection may
 * have to send the rest of a frame when the request was terminated long ago.
 *
 * While nothing happens, a word every now and then keeps whatever lies between
 * from closing the connection, and finds out that the client is not there any
 * more.
 *
 * A client that does not read is cut off: after send_timeout without any
 * progress, or when too much is waiting for it.  Nor does send_timeout wait for
 * what the client's machine has not confirmed: one that vanished without a word
 * holds a lock no longer than that, after the next sign of life.
 *
 * Everything here runs on the event loop.  What an event tells is not known
 * here: claims and asks are the other half's.  Either chain of a stream is NULL
 * while nothing is in it.
 */


#include "ngx_http_zk_lock_stream.h"


/* milliseconds from one sign of life to the next */
#define NGX_HTTP_ZK_LOCK_STREAM_ALIVE   15000

/* bytes of events that may wait for the client when another one comes */
#define NGX_HTTP_ZK_LOCK_STREAM_MAX     65536


static ngx_chain_t *ngx_http_zk_lock_stream_write(
    ngx_http_zk_lock_stream_t *stream, const char *event,
    zk_lock_json_t *json);
static void ngx_http_zk_lock_stream_patience(ngx_connection_t *c,
    ngx_msec_t timeout);
static ngx_chain_t *ngx_http_zk_lock_stream_chain(
    ngx_http_zk_lock_stream_t *stream, size_t size);
static ngx_int_t ngx_http_zk_lock_stream_output(
    ngx_http_zk_lock_stream_t *stream, ngx_chain_t *out);
static void ngx_http_zk_lock_stream_reap(ngx_http_zk_lock_stream_t *stream);
static size_t ngx_http_zk_lock_stream_pending(
    ngx_http_zk_lock_stream_t *stream);
static void ngx_http_zk_lock_stream_writer(ngx_http_request_t *r);


zk_lock_json_t *
ngx_http_zk_lock_stream_open(ngx_http_zk_lock_stream_t *stream,
    const char *event)
{
    zk_lock_json_t  *json;

    json = zk_lock_json_open();

    zk_lock_json_object(json, NULL);

    if (stream->format != NGX_HTTP_ZK_LOCK_EVENTS) {
        ngx_http_zk_lock_write_text(json, "event", event);
    }

    return json;
}


ngx_int_t
ngx_http_zk_lock_stream_send(ngx_http_zk_lock_stream_t *stream,
    const char *event, zk_lock_json_t *json, ngx_uint_t last)
{
    ngx_int_t            rc;
    ngx_chain_t         *out;
    ngx_http_request_t  *r;

    r = stream->request;

    if (ngx_http_zk_lock_stream_pending(stream) > NGX_HTTP_ZK_LOCK_STREAM_MAX)
    {
        zk_lock_json_close(json);

        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "client does not read its events");

        return NGX_ERROR;
    }

    zk_lock_json_end_object(json);

    out = ngx_http_zk_lock_stream_write(stream, event, json);

    zk_lock_json_close(json);

    if (out == NULL) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "an event could not be written");

        return NGX_ERROR;
    }

    out->buf->last_buf = last;
    out->buf->last_in_chain = last;

    if (last) {
        ngx_http_zk_lock_stream_stop(stream);
    }

    if (!stream->begun) {
        rc = ngx_http_zk_lock_stream_begin(stream);

        if (rc == NGX_ERROR || rc > NGX_OK) {
            return NGX_ERROR;
        }
    }

    rc = ngx_http_zk_lock_stream_output(stream, out);

    return (last || rc == NGX_ERROR) ? rc : NGX_DONE;
}


static ngx_chain_t *
ngx_http_zk_lock_stream_write(ngx_http_zk_lock_stream_t *stream,
    const char *event, zk_lock_json_t *json)
{
    size_t        len;
    ngx_buf_t    *b;
    const char   *text;
    ngx_chain_t  *cl;

    text = zk_lock_json_text(json, &len);
    if (text == NULL) {
        return NULL;
    }

    cl = ngx_http_zk_lock_stream_chain(stream, sizeof("event: \ndata: \n\n")
                                               + ngx_strlen(event) + len);
    if (cl == NULL) {
        return NULL;
    }

    b = cl->buf;

    if (stream->format == NGX_HTTP_ZK_LOCK_EVENTS) {
        b->last = ngx_sprintf(b->last, "event: %s\ndata: ", event);
    }

    b->last = ngx_cpymem(b->last, text, len);
    *b->last++ = '\n';

    if (stream->format == NGX_HTTP_ZK_LOCK_EVENTS) {
        *b->last++ = '\n';
    }

    return cl;
}


ngx_int_t
ngx_http_zk_lock_stream_begin(ngx_http_zk_lock_stream_t *stream)
{
    ngx_connection_t          *c;
    ngx_http_request_t        *r;
    ngx_http_core_loc_conf_t  *clcf;

    r = stream->request;
    c = r->connection;
    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    stream->begun = 1;

    r->headers_out.status = NGX_HTTP_OK;

    if (stream->format == NGX_HTTP_ZK_LOCK_EVENTS) {
        ngx_str_set(&r->headers_out.content_type, "text/event-stream");

    } else {
        ngx_str_set(&r->headers_out.content_type, "application/x-ndjson");
    }

    r->headers_out.content_type_len = r->headers_out.content_type.len;

    if (ngx_http_zk_lock_add_header(r, "Cache-Control",
                                    (u_char *) "no-store", 8)
        != NGX_OK
        || ngx_http_zk_lock_add_header(r, "X-Accel-Buffering",
                                       (u_char *) "no", 2)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* a small event does not wait for the one before it to be confirmed */

    if (clcf->tcp_nodelay && ngx_tcp_nodelay(c) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_zk_lock_stream_patience(c, clcf->send_timeout);

    r->write_event_handler = ngx_http_zk_lock_stream_writer;

    ngx_add_timer(&stream->timer, NGX_HTTP_ZK_LOCK_STREAM_ALIVE);

    return ngx_http_send_header(r);
}


/*
 * A client that is not there any more does not confirm what was sent, and the
 * kernel goes on sending it for a quarter of an hour, meanwhile without the
 * probes of so_keepalive.  Here it gives up when either of these timeouts is
 * over.
 */

static void
ngx_http_zk_lock_stream_patience(ngx_connection_t *c, ngx_msec_t timeout)
{
#ifdef TCP_USER_TIMEOUT

    int           on, idle, interval, count;
    socklen_t     len;
    ngx_msec_t    probes;
    unsigned int  value;

    if (c->sockaddr->sa_family == AF_UNIX || c->fd == (ngx_socket_t) -1) {
        return;
    }

#if (NGX_HTTP_V3)

    /* its socket is that of all clients, and QUIC has a timeout of its own */

    if (c->quic) {
        return;
    }

#endif

    len = sizeof(int);

    if (getsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &on, &len) == 0 && on
        && getsockopt(c->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &len) == 0
        && getsockopt(c->fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, &len) == 0
        && getsockopt(c->fd, IPPROTO_TCP, TCP_KEEPCNT, &count, &len) == 0)
    {
        probes = ((ngx_msec_t) idle + (ngx_msec_t) interval * count) * 1000;
        timeout = ngx_min(timeout, probes);
    }

    value = (unsigned int) ngx_min(timeout, NGX_MAX_INT32_VALUE);

    if (setsockopt(c->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value,
                   sizeof(unsigned int))
        == -1)
    {
        ngx_log_error(NGX_LOG_INFO, c->log, ngx_socket_errno,
                      "setsockopt(TCP_USER_TIMEOUT) failed");
    }

#endif
}


void
ngx_http_zk_lock_stream_alive_handler(ngx_event_t *ev)
{
    ngx_str_t                   text;
    ngx_chain_t                *out;
    ngx_http_request_t         *r;
    ngx_http_zk_lock_stream_t  *stream;

    stream = ngx_queue_data(ev, ngx_http_zk_lock_stream_t, timer);
    r = stream->request;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock stream: \"%V\" alive", &stream->ctx->path);

    ngx_add_timer(&stream->timer, NGX_HTTP_ZK_LOCK_STREAM_ALIVE);

    if (ngx_http_zk_lock_stream_clogged(stream)) {
        return;
    }

    if (stream->format == NGX_HTTP_ZK_LOCK_EVENTS) {
        ngx_str_set(&text, ": alive\n\n");

    } else {
        ngx_str_set(&text, "{\"event\":\"alive\"}\n");
    }

    out = ngx_http_zk_lock_stream_chain(stream, text.len);
    if (out == NULL) {
        return;
    }

    out->buf->last = ngx_cpymem(out->buf->last, text.data, text.len);

    if (ngx_http_zk_lock_stream_output(stream, out) == NGX_ERROR) {
        ngx_http_zk_lock_api_end(r, NGX_ERROR);
    }
}


/* An empty buffer, which is the last one of those that are not sent. */

static ngx_chain_t *
ngx_http_zk_lock_stream_chain(ngx_http_zk_lock_stream_t *stream, size_t size)
{
    u_char       *p;
    ngx_buf_t    *b;
    ngx_chain_t  *cl, **last;

    p = ngx_alloc(size, stream->request->connection->log);
    if (p == NULL) {
        return NULL;
    }

    cl = ngx_chain_get_free_buf(stream->request->pool, &stream->free);
    if (cl == NULL) {
        ngx_free(p);
        return NULL;
    }

    b = cl->buf;

    ngx_memzero(b, sizeof(ngx_buf_t));

    b->start = p;
    b->pos = p;
    b->last = p;
    b->end = p + size;
    b->temporary = 1;
    b->flush = 1;
    b->tag = (ngx_buf_tag_t) &ngx_http_zk_lock_module;

    for (last = &stream->busy; *last; last = &(*last)->next) {
        /* void */
    }

    *last = cl;
    cl->next = NULL;

    return cl;
}


/* Returns what ngx_http_output_filter() does; out may be NULL. */

static ngx_int_t
ngx_http_zk_lock_stream_output(ngx_http_zk_lock_stream_t *stream,
    ngx_chain_t *out)
{
    ngx_int_t                  rc;
    ngx_event_t               *wev;
    ngx_http_request_t        *r;
    ngx_http_core_loc_conf_t  *clcf;

    r = stream->request;
    wev = r->connection->write;
    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    rc = ngx_http_output_filter(r, out);

    ngx_http_zk_lock_stream_reap(stream);

    if (rc == NGX_ERROR
        || ngx_handle_write_event(wev, clcf->send_lowat) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (wev->delayed) {
        return rc;
    }

    /* one that is set goes on: nothing was written since then */

    if (wev->ready) {

        if (wev->timer_set) {
            ngx_del_timer(wev);
        }

    } else if (!wev->timer_set) {
        ngx_add_timer(wev, clcf->send_timeout);
    }

    return rc;
}


/* Frees what was sent. */

static void
ngx_http_zk_lock_stream_reap(ngx_http_zk_lock_stream_t *stream)
{
    ngx_chain_t  *cl;

    while (stream->busy != NULL && ngx_buf_size(stream->busy->buf) == 0) {
        cl = stream->busy;
        stream->busy = cl->next;

        ngx_free(cl->buf->start);

        cl->next = stream->free;
        stream->free = cl;
    }
}


void
ngx_http_zk_lock_stream_cleanup(void *data)
{
    ngx_http_zk_lock_stream_t *stream = data;

    ngx_chain_t  *cl;

    for (cl = stream->busy; cl; cl = cl->next) {
        ngx_free(cl->buf->start);
    }
}


static size_t
ngx_http_zk_lock_stream_pending(ngx_http_zk_lock_stream_t *stream)
{
    size_t        size;
    ngx_chain_t  *cl;

    size = 0;

    for (cl = stream->busy; cl; cl = cl->next) {
        size += cl->buf->last - cl->buf->pos;
    }

    return size;
}


ngx_uint_t
ngx_http_zk_lock_stream_clogged(ngx_http_zk_lock_stream_t *stream)
{
    ngx_event_t  *wev;

    wev = stream->request->connection->write;

    return stream->begun
           && (stream->busy != NULL || !wev->ready || wev->delayed);
}


static void
ngx_http_zk_lock_stream_writer(ngx_http_request_t *r)
{
    ngx_event_t                *wev;
    ngx_connection_t           *c;
    ngx_http_zk_lock_ctx_t     *ctx;
    ngx_http_zk_lock_stream_t  *stream;

    c = r->connection;
    wev = c->write;

    ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);
    stream = ctx->other;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "zk lock stream: \"%V\" writer", &ctx->path);

    if (wev->timedout) {
        ngx_log_error(NGX_LOG_INFO, c->log, NGX_ETIMEDOUT,
                      "client does not read its events");
        c->timedout = 1;

        ngx_http_finalize_request(r, NGX_HTTP_REQUEST_TIME_OUT);
        return;
    }

    if (c->error || ngx_http_zk_lock_api_stopped(c)) {
        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    if (!wev->delayed && wev->timer_set) {
        ngx_del_timer(wev);
    }

    if (ngx_http_zk_lock_stream_output(stream, NULL) == NGX_ERROR) {
        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    ngx_http_zk_lock_stream_look(stream);
}
