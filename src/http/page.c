
/*
 * The page: HTML, with its script and style, over the API of another location.
 *
 * scripts/embed-page makes a header of page.html, so the text is part of the
 * module.  What differs between locations are three <meta> elements; the text
 * is put together when the directive is read, in the configuration's pool, and
 * is never NULL in a location with the handler.  All that the page shows the
 * script gets from the API: the answers here hold nothing that a client sent.
 *
 * The handler runs on the event loop, and waits for nothing.
 */


#include "http/page.h"
#include "http/answer.h"

#include <ngx_http_zk_lock_page.h>


/*
 * The hashes let in the page's own script and style alone.  A text that the
 * browser would take for markup is refused even if the script had a fault:
 * trusted types forbid innerHTML and its like.
 */

#define NGX_HTTP_ZK_LOCK_PAGE_POLICY                                         \
    "default-src 'none'; script-src " NGX_HTTP_ZK_LOCK_PAGE_SCRIPT           \
    "; style-src " NGX_HTTP_ZK_LOCK_PAGE_STYLE                               \
    "; connect-src 'self'; img-src data:; base-uri 'none'; "                 \
    "form-action 'none'; frame-ancestors 'none'; "                           \
    "require-trusted-types-for 'script'; trusted-types 'none'"

#define NGX_HTTP_ZK_LOCK_PAGE_META(name)                                     \
    "<meta name=\"zk-lock-" name "\" content=\""


typedef struct {
    const char  *key;
    ngx_str_t    value;
} ngx_http_zk_lock_page_header_t;


static ngx_str_t  ngx_http_zk_lock_page_head =
    ngx_string(NGX_HTTP_ZK_LOCK_PAGE_HEAD);

static ngx_str_t  ngx_http_zk_lock_page_tail =
    ngx_string(NGX_HTTP_ZK_LOCK_PAGE_TAIL);

static ngx_http_zk_lock_page_header_t  ngx_http_zk_lock_page_headers[] = {
    { "Content-Security-Policy", ngx_string(NGX_HTTP_ZK_LOCK_PAGE_POLICY) },
    { "X-Content-Type-Options", ngx_string("nosniff") },
    { "Referrer-Policy", ngx_string("no-referrer") },
    { "Cache-Control", ngx_string("no-cache") },
    { NULL, ngx_null_string }
};


ngx_int_t
ngx_http_zk_lock_page_handler(ngx_http_request_t *r)
{
    ngx_int_t                        rc;
    ngx_buf_t                       *b;
    ngx_http_zk_lock_loc_conf_t     *zlcf;
    ngx_http_zk_lock_page_header_t  *h;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    if (!(r->method & NGX_HTTP_ZK_LOCK_READS)) {
        return ngx_http_zk_lock_answer_method(r, "GET, HEAD");
    }

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    for (h = ngx_http_zk_lock_page_headers; h->key != NULL; h++) {
        if (ngx_http_zk_lock_add_header(r, h->key, h->value.data, h->value.len)
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->pos = zlcf->page.data;
    b->last = zlcf->page.data + zlcf->page.len;
    b->memory = 1;

    ngx_str_set(&r->headers_out.charset, "utf-8");

    return ngx_http_zk_lock_send_buf(r, NGX_HTTP_OK, "text/html", b);
}


ngx_int_t
ngx_http_zk_lock_page_make(ngx_pool_t *pool, ngx_str_t *page, ngx_str_t *api,
    ngx_str_t *health, ngx_uint_t admin)
{
    u_char  *p;
    size_t   len;

    /* a character takes at most six when escaped, as "&quot;" */

    len = ngx_http_zk_lock_page_head.len + ngx_http_zk_lock_page_tail.len
          + 6 * (api->len + health->len)
          + sizeof(NGX_HTTP_ZK_LOCK_PAGE_META("api") "\">\n"
                   NGX_HTTP_ZK_LOCK_PAGE_META("health") "\">\n"
                   NGX_HTTP_ZK_LOCK_PAGE_META("admin") "off\">\n");

    p = ngx_pnalloc(pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    page->data = p;

    p = ngx_cpymem(p, ngx_http_zk_lock_page_head.data,
                   ngx_http_zk_lock_page_head.len);
    p = ngx_sprintf(p, NGX_HTTP_ZK_LOCK_PAGE_META("api"));
    p = (u_char *) ngx_escape_html(p, api->data, api->len);
    p = ngx_sprintf(p, "\">\n" NGX_HTTP_ZK_LOCK_PAGE_META("health"));
    p = (u_char *) ngx_escape_html(p, health->data, health->len);
    p = ngx_sprintf(p, "\">\n" NGX_HTTP_ZK_LOCK_PAGE_META("admin") "%s\">\n",
                    admin ? "on" : "off");
    p = ngx_cpymem(p, ngx_http_zk_lock_page_tail.data,
                   ngx_http_zk_lock_page_tail.len);

    page->len = p - page->data;

    return NGX_OK;
}
