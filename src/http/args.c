
/*
 * Arguments: what a request says beside the method and the path: in the
 * headers, the query, and the body, which has been read before.
 *
 * Everything here runs on the event loop, and only reads the request, but for
 * the answer to wrong arguments.  The context notes for the answer that the
 * wait or the ttl was cut, and the wait.
 */


#include "http/args.h"
#include "http/answer.h"


static ngx_int_t ngx_http_zk_lock_args_preference(ngx_http_request_t *r,
    const char *start, ngx_str_t *value);
static ngx_uint_t ngx_http_zk_lock_args_is_json(ngx_http_request_t *r);
static ngx_str_t *ngx_http_zk_lock_args_next(const char *name,
    ngx_list_part_t **part, ngx_uint_t *i);


ngx_int_t
ngx_http_zk_lock_args(ngx_http_request_t *r, zkl_args_t *args,
    unsigned allowed)
{
    ngx_str_t                text;
    ngx_uint_t               preferred;
    ngx_http_zk_lock_ctx_t  *ctx;

    ngx_memzero(args, sizeof(zkl_args_t));

    /* Prefer: wait=N (RFC 7240), seconds */

    preferred = (allowed & ZKL_ARG_WAIT)
                && ngx_http_zk_lock_args_preference(r, "wait=", &text)
                   == NGX_OK;

    if (preferred) {
        args->wait = zkl_text_duration_read((char *) text.data, text.len);

        if (args->wait < 0) {
            return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                            "\"Prefer: wait=N\" takes a "
                                            "number of seconds");
        }
    }

    if (zkl_args_query_read(args, (char *) r->args.data, r->args.len, allowed)
        != 0)
    {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST, args->error);
    }

    if (ngx_http_zk_lock_body_size(r) != 0) {

        if (!ngx_http_zk_lock_args_is_json(r)) {
            return ngx_http_zk_lock_problem(r, NGX_HTTP_UNSUPPORTED_MEDIA_TYPE,
                                            "the body is JSON (with "
                                            "Content-Type: application/json), "
                                            "or the arguments are in the "
                                            "query");
        }

        if (ngx_http_zk_lock_body_text(r, &text) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        if (zkl_args_body_read(args, (char *) text.data, text.len, allowed)
            != 0)
        {
            return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                            args->error);
        }
    }

    if (preferred && !(args->given & ZKL_ARG_WAIT)) {
        args->given |= ZKL_ARG_WAIT;

        ctx = ngx_http_get_module_ctx(r, ngx_http_zk_lock_module);
        ctx->preferred = 1;
    }

    if ((args->given & ZKL_ARG_TTL) && args->ttl == 0) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "\"ttl\" takes a duration above "
                                        "zero");
    }

    return NGX_DECLINED;
}


ngx_msec_t
ngx_http_zk_lock_args_wait(ngx_http_zk_lock_ctx_t *ctx, zkl_args_t *args,
    ngx_msec_t wait)
{
    if (!(args->given & ZKL_ARG_WAIT)) {
        return ngx_min(wait, ctx->conf->max_wait);
    }

    ctx->wait_cut = (args->wait > (int64_t) ctx->conf->max_wait);
    ctx->wait = ctx->wait_cut ? ctx->conf->max_wait : (ngx_msec_t) args->wait;

    return ctx->wait;
}


ngx_msec_t
ngx_http_zk_lock_args_ttl(ngx_http_zk_lock_ctx_t *ctx, zkl_args_t *args)
{
    if (!(args->given & ZKL_ARG_TTL)) {
        return 0;
    }

    ctx->ttl_cut = (args->ttl > (int64_t) ctx->conf->max_ttl);

    return ctx->ttl_cut ? ctx->conf->max_ttl : (ngx_msec_t) args->ttl;
}


ngx_uint_t
ngx_http_zk_lock_prefers(ngx_http_request_t *r, const char *word)
{
    ngx_str_t  value;

    return ngx_http_zk_lock_args_preference(r, word, &value) == NGX_OK
           && value.len == 0;
}


/*
 * Finds the first preference, in all Prefer headers, that begins with start;
 * value is the rest of the preference, without parameters.
 */

static ngx_int_t
ngx_http_zk_lock_args_preference(ngx_http_request_t *r, const char *start,
    ngx_str_t *value)
{
    size_t            len;
    u_char           *p, *last, *end;
    ngx_str_t        *header;
    ngx_uint_t        i;
    ngx_list_part_t  *part;

    len = ngx_strlen(start);

    part = &r->headers_in.headers.part;
    i = 0;

    for ( ;; ) {
        header = ngx_http_zk_lock_args_next("prefer", &part, &i);
        if (header == NULL) {
            return NGX_DECLINED;
        }

        last = header->data + header->len;

        for (p = header->data; p < last; p = end + 1) {

            while (p < last && (*p == ' ' || *p == '\t' || *p == ',')) {
                p++;
            }

            end = ngx_strlchr(p, last, ',');
            end = (end != NULL) ? end : last;

            if ((size_t) (end - p) < len
                || ngx_strncasecmp(p, (u_char *) start, len) != 0)
            {
                continue;
            }

            value->data = p + len;

            p = ngx_strlchr(value->data, end, ';');
            p = (p != NULL) ? p : end;

            while (p > value->data && (p[-1] == ' ' || p[-1] == '\t')) {
                p--;
            }

            value->len = p - value->data;

            return NGX_OK;
        }
    }
}


ngx_http_zk_lock_format_e
ngx_http_zk_lock_accepts(ngx_http_request_t *r)
{
    ngx_str_t   *accept;
    ngx_uint_t   i, n;

    static const struct {
        const char                 *type;
        ngx_http_zk_lock_format_e   format;
    } types[] = {
        { "text/event-stream",    NGX_HTTP_ZK_LOCK_EVENTS },
        { "application/x-ndjson", NGX_HTTP_ZK_LOCK_LINES },
        { "application/jsonl",    NGX_HTTP_ZK_LOCK_LINES }
    };

    accept = ngx_http_zk_lock_header(r, "accept", &n);

    for (i = 0; accept != NULL && i < sizeof(types) / sizeof(types[0]); i++) {
        if (ngx_strlcasestrn(accept->data, accept->data + accept->len,
                             (u_char *) types[i].type,
                             ngx_strlen(types[i].type) - 1)
            != NULL)
        {
            return types[i].format;
        }
    }

    return NGX_HTTP_ZK_LOCK_PLAIN;
}


off_t
ngx_http_zk_lock_body_size(ngx_http_request_t *r)
{
    off_t         size;
    ngx_chain_t  *cl;

    if (r->request_body == NULL) {
        return 0;
    }

    size = 0;

    for (cl = r->request_body->bufs; cl; cl = cl->next) {
        size += ngx_buf_size(cl->buf);
    }

    return size;
}


static ngx_uint_t
ngx_http_zk_lock_args_is_json(ngx_http_request_t *r)
{
    u_char     *p, *last;
    ngx_str_t  *type;

    if (r->headers_in.content_type == NULL) {
        return 1;
    }

    type = &r->headers_in.content_type->value;

    p = type->data;

    last = ngx_strlchr(p, p + type->len, ';');
    last = (last != NULL) ? last : p + type->len;

    while (last > p && last[-1] == ' ') {
        last--;
    }

    return (last - p == 16
            && ngx_strncasecmp(p, (u_char *) "application/json", 16) == 0)
           || (last - p > 5
               && ngx_strncasecmp(last - 5, (u_char *) "+json", 5) == 0);
}


ngx_int_t
ngx_http_zk_lock_body_text(ngx_http_request_t *r, ngx_str_t *text)
{
    size_t        size;
    ssize_t       n;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    text->len = 0;
    text->data = ngx_pnalloc(r->pool, ngx_http_zk_lock_body_size(r) + 1);

    if (text->data == NULL) {
        return NGX_ERROR;
    }

    if (r->request_body == NULL) {
        return NGX_OK;
    }

    for (cl = r->request_body->bufs; cl; cl = cl->next) {
        b = cl->buf;

        if (!b->in_file) {
            size = b->last - b->pos;

            if (size != 0) {
                ngx_memcpy(text->data + text->len, b->pos, size);
                text->len += size;
            }

            continue;
        }

        size = (size_t) (b->file_last - b->file_pos);

        n = ngx_read_file(b->file, text->data + text->len, size, b->file_pos);

        if (n != (ssize_t) size) {
            return NGX_ERROR;
        }

        text->len += size;
    }

    return NGX_OK;
}


ngx_str_t *
ngx_http_zk_lock_header(ngx_http_request_t *r, const char *name,
    ngx_uint_t *n)
{
    ngx_str_t        *first, *value;
    ngx_uint_t        i;
    ngx_list_part_t  *part;

    part = &r->headers_in.headers.part;
    i = 0;

    first = ngx_http_zk_lock_args_next(name, &part, &i);

    *n = 0;

    for (value = first; value != NULL; (*n)++) {
        value = ngx_http_zk_lock_args_next(name, &part, &i);
    }

    return first;
}


/* The next value of a header, from the place that part and i tell, or NULL. */

static ngx_str_t *
ngx_http_zk_lock_args_next(const char *name, ngx_list_part_t **part,
    ngx_uint_t *i)
{
    size_t            len;
    ngx_table_elt_t  *h;

    len = ngx_strlen(name);

    for ( /* void */ ; *part; *part = (*part)->next) {

        while (*i < (*part)->nelts) {
            h = (ngx_table_elt_t *) (*part)->elts + (*i)++;

            if (h->key.len == len
                && ngx_strncasecmp(h->key.data, (u_char *) name, len) == 0)
            {
                return &h->value;
            }
        }

        *i = 0;
    }

    return NULL;
}
