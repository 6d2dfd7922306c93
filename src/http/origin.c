
/*
 * Pages of other origins.
 *
 * A browser sends its user's password or certificate also with a request that a
 * page of another origin makes, and asks before only if the request is not a
 * simple one (the Fetch standard, "CORS-safelisted").  But the browser names
 * the page's origin in Origin, and, over a connection that the browser trusts,
 * says in Sec-Fetch-Site whether that is the origin of the request.  A page can
 * change neither header.  Other clients send neither.
 *
 * Everything here runs on the event loop.
 */


#include "http/origin.h"
#include "http/answer.h"
#include "http/args.h"


static ngx_uint_t ngx_http_zk_lock_origin_foreign(ngx_http_request_t *r,
    ngx_str_t *origin, ngx_str_t *site);
static ngx_uint_t ngx_http_zk_lock_origin_equal(ngx_str_t *one, ngx_str_t *two);


ngx_int_t
ngx_http_zk_lock_origin_check(ngx_http_request_t *r)
{
    ngx_str_t                    *origin, *site, allowed;
    ngx_uint_t                    n, sites;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    if (r->method & NGX_HTTP_ZK_LOCK_READS) {
        return NGX_DECLINED;
    }

    origin = ngx_http_zk_lock_header(r, "origin", &n);
    site = ngx_http_zk_lock_header(r, "sec-fetch-site", &sites);

    if (n > 1 || sites > 1) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "a request has one Origin, and one "
                                        "Sec-Fetch-Site");
    }

    if (ngx_http_zk_lock_origin_foreign(r, origin, site)) {
        zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

        ngx_str_null(&allowed);

        if (zlcf->origin != NULL
            && ngx_http_complex_value(r, zlcf->origin, &allowed) != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        if (origin == NULL || origin->len == 0
            || !ngx_http_zk_lock_origin_equal(origin, &allowed))
        {
            return ngx_http_zk_lock_problem(r, NGX_HTTP_FORBIDDEN,
                                            "a page of another origin sent "
                                            "this call, and "
                                            "zk_lock_allow_origin does not "
                                            "allow that origin");
        }
    }

    if (origin != NULL && r->headers_in.content_type == NULL
        && ngx_http_zk_lock_body_size(r) != 0)
    {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_UNSUPPORTED_MEDIA_TYPE,
                                        "a body that a page sends needs "
                                        "Content-Type: application/json");
    }

    return NGX_DECLINED;
}


/*
 * The browser's word counts before a comparison, because a proxy may have
 * replaced the Host.  The origin's host and port are compared with the
 * request's, and not the scheme, because a proxy in front may have ended TLS.
 * Without a Host, as in HTTP/3, the host is that of the request line or of
 * ":authority".
 */

static ngx_uint_t
ngx_http_zk_lock_origin_foreign(ngx_http_request_t *r, ngx_str_t *origin,
    ngx_str_t *site)
{
    u_char     *p;
    ngx_str_t   host, own, *port;

    static ngx_str_t  http = ngx_string(":80");
    static ngx_str_t  https = ngx_string(":443");
    static ngx_str_t  same_origin = ngx_string("same-origin");
    static ngx_str_t  same_site = ngx_string("same-site");
    static ngx_str_t  cross_site = ngx_string("cross-site");

    if (site != NULL) {

        if (ngx_http_zk_lock_origin_equal(site, &same_origin)) {
            return 0;
        }

        if (ngx_http_zk_lock_origin_equal(site, &cross_site)
            || (origin == NULL
                && ngx_http_zk_lock_origin_equal(site, &same_site)))
        {
            return 1;
        }
    }

    if (origin == NULL) {
        return 0;
    }

    p = ngx_strlchr(origin->data, origin->data + origin->len, ':');

    if (p == NULL || origin->data + origin->len - p < 3
        || p[1] != '/' || p[2] != '/')
    {
        /* "null" */

        return 1;
    }

    host.data = p + 3;
    host.len = origin->data + origin->len - host.data;

    if (r->headers_in.host != NULL) {
        own = r->headers_in.host->value;

    } else {
        own.data = r->host_start;
        own.len = r->host_end - r->host_start;
    }

    if (host.len == 0) {
        return 1;
    }

    if (ngx_http_zk_lock_origin_equal(&host, &own)) {
        return 0;
    }

    /* an origin has no port if that is the scheme's, but a proxy may name it */

    port = (p - origin->data == 5) ? &https : &http;

    if (own.len <= port->len
        || ngx_strncmp(own.data + own.len - port->len, port->data, port->len)
           != 0)
    {
        return 1;
    }

    own.len -= port->len;

    return !ngx_http_zk_lock_origin_equal(&host, &own);
}


static ngx_uint_t
ngx_http_zk_lock_origin_equal(ngx_str_t *one, ngx_str_t *two)
{
    return one->len == two->len
           && ngx_strncasecmp(one->data, two->data, one->len) == 0;
}
