
/*
 * Metrics: what is in the zone, in Prometheus' text format 0.0.4.
 *
 * Runs on the event loop.  Each answer counts the records of all workers by a
 * walk over the zone.  There are no counters, because a worker that died would
 * leave the counters wrong.
 */


#include "http/api.h"


#define NGX_HTTP_ZK_LOCK_METRICS_MAX  2048


static ngx_buf_t *ngx_http_zk_lock_metrics_text(ngx_http_request_t *r,
    zkl_zone_t *zone);


ngx_int_t
ngx_http_zk_lock_metrics_handler(ngx_http_request_t *r)
{
    ngx_int_t                      rc;
    ngx_buf_t                     *b;
    ngx_chain_t                    out;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    zmcf = ngx_http_get_module_main_conf(r, ngx_http_zk_lock_module);

    if (zmcf->worker == NULL) {
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }

    b = ngx_http_zk_lock_metrics_text(r, zmcf->worker->zone);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_str_set(&r->headers_out.content_type,
                "text/plain; version=0.0.4; charset=utf-8");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = b->last - b->pos;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


static ngx_buf_t *
ngx_http_zk_lock_metrics_text(ngx_http_request_t *r, zkl_zone_t *zone)
{
    ngx_buf_t    *b;
    zkl_counts_t  n;

    b = ngx_create_temp_buf(r->pool, NGX_HTTP_ZK_LOCK_METRICS_MAX);
    if (b == NULL) {
        return NULL;
    }

    zkl_zone_count(zone, &n);

    b->last = ngx_slprintf(b->last, b->end,
        "# HELP zk_lock_claims Claims of this gateway.\n"
        "# TYPE zk_lock_claims gauge\n"
        "zk_lock_claims{state=\"new\"} %ui\n"
        "zk_lock_claims{state=\"waiting\"} %ui\n"
        "zk_lock_claims{state=\"held\"} %ui\n"
        "zk_lock_claims{state=\"ended\"} %ui\n", n.states[ZKL_RECORD_NEW],
        n.states[ZKL_RECORD_WAITING], n.states[ZKL_RECORD_HELD],
        n.states[ZKL_RECORD_ENDED]);

    b->last = ngx_slprintf(b->last, b->end,
        "# HELP zk_lock_sessions ZooKeeper sessions of this gateway.\n"
        "# TYPE zk_lock_sessions gauge\n"
        "zk_lock_sessions{state=\"own\"} %ui\n"
        "zk_lock_sessions{state=\"adopted\"} %ui\n"
        "zk_lock_sessions{state=\"orphaned\"} %ui\n", n.own, n.adopted,
        n.orphans);

    b->last = ngx_slprintf(b->last, b->end,
        "# HELP zk_lock_slots Places for sessions in zk_lock_zone.\n"
        "# TYPE zk_lock_slots gauge\n"
        "zk_lock_slots{state=\"used\"} %ui\n"
        "zk_lock_slots{state=\"total\"} %ui\n"
        "# HELP zk_lock_cells Places for claims in zk_lock_zone.\n"
        "# TYPE zk_lock_cells gauge\n"
        "zk_lock_cells{state=\"used\"} %ui\n"
        "zk_lock_cells{state=\"total\"} %ui\n", n.slots, zone->map->nslots,
        n.cells, zone->map->ncells);

    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    return b;
}
