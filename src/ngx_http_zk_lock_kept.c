
/*
 * Wards that are held: what their data say, what is wanted of them, and how
 * long they last.
 *
 * The worker that granted such a claim is gone, and its holder need not know.
 * So all is done for it that its worker would do: renewals at other gateways
 * are counted, wishes fulfilled, marks mended, readers let in, and its lease
 * ended.
 *
 * Everything here runs on the event loop, in the states READ, WRITE, HELD and
 * LAPSE of the table in ngx_http_zk_lock_ward.c.
 */


#include "ngx_http_zk_lock_ward.h"


static ngx_int_t ngx_http_zk_lock_ward_wishes(ngx_http_zk_lock_ward_t *ward,
    zk_lock_label_t *label, int32_t version);
static void ngx_http_zk_lock_ward_share(ngx_http_zk_lock_ward_t *ward);
static void ngx_http_zk_lock_ward_shared(void *data, ngx_int_t rc);


void
ngx_http_zk_lock_ward_read(ngx_http_zk_lock_ward_t *ward,
    ngx_http_zk_lock_op_t *op)
{
    ngx_msec_t                seen;
    ngx_uint_t                marked;
    zk_lock_label_t           label;
    ngx_http_zk_lock_zone_t  *zone;

    zone = ward->estate->zone;

    if (ward->state != NGX_HTTP_ZK_LOCK_WARD_READ) {

        /* it was released meanwhile */

        ngx_http_zk_lock_ward_go(ward);
        return;
    }

    ward->durable = (op->owner == 0);

    /* another gateway may have renewed it, some time ago */

    zk_lock_label_read(&label, (char *) op->reply.data, op->reply.len);

    seen = ngx_http_zk_lock_record_said(zone, ward->id.record, &ward->said,
                                        &label)
           ? ward->lease : 0;

    (void) ngx_http_zk_lock_record_renewed(zone, ward->id.record, op->version,
                                           label.renewals,
                                           (ngx_msec_t) label.ttl, seen);

    if (!label.async && label.index >= 0 && label.ttl > 0) {
        (void) ngx_http_zk_lock_record_seen(zone, ward->id.record,
                                            (ngx_msec_t) label.ttl);
    }

    ward->state = NGX_HTTP_ZK_LOCK_WARD_HELD;

    if (ngx_http_zk_lock_record_asked(zone, ward->id.record)) {
        ngx_http_zk_lock_ward_delete(ward);
        return;
    }

    ward->seen = 1;

    if (ward->shared) {
        ngx_http_zk_lock_ward_share(ward);
        ngx_http_zk_lock_ward_lease(ward);
        return;
    }

    /* a Curator client's mark is mended; owner and data are lost with it */

    marked = (label.index < 0 && label.revoke);

    if (marked) {
        label.ttl = (int64_t) ward->said.ttl;
        label.mended = (uint32_t) ngx_random() | 1;

        ngx_http_zk_lock_record_label(zone, ward->id.record, &label);
    }

    /* a worker may have died between counting and writing it down */

    if ((marked || label.want_len != 0
         || (label.index >= 0 && ngx_max(label.holds, 1)
                         != ngx_http_zk_lock_record_holds(zone,
                                                          ward->id.record)))
        && ngx_http_zk_lock_ward_wishes(ward, &label, op->version) == NGX_OK)
    {
        return;
    }

    ngx_http_zk_lock_ward_lease(ward);
}


/* What others want of it; NGX_DECLINED: nothing is to be done for that. */

static ngx_int_t
ngx_http_zk_lock_ward_wishes(ngx_http_zk_lock_ward_t *ward,
    zk_lock_label_t *label, int32_t version)
{
    size_t  index_at;

    if (ngx_strcmp(label->want, "shared") == 0) {
        ngx_http_zk_lock_ward_share(ward);
        return NGX_DECLINED;
    }

    if (label->want_len == 0) {
        ward->holds = ngx_http_zk_lock_record_holds(ward->estate->zone,
                                                    ward->id.record);

    } else if (ngx_http_zk_lock_record_wish(ward->estate->zone, &ward->id,
                                            &ward->path, label, &ward->holds)
               != NGX_OK)
    {
        return NGX_DECLINED;
    }

    if (ward->holds == 0) {
        ngx_http_zk_lock_ward_delete(ward);
        return NGX_OK;
    }

    if (ward->label.data == NULL) {
        ward->label.data = ngx_alloc(ZK_LOCK_LABEL_MAX,
                                     ward->estate->worker->log);
        if (ward->label.data == NULL) {
            return NGX_DECLINED;
        }
    }

    label->holds = (uint32_t) ward->holds;
    label->want_len = 0;

    ward->label.len = zk_lock_label_write((char *) ward->label.data, label,
                                          &index_at);
    ward->version = version;
    ward->state = NGX_HTTP_ZK_LOCK_WARD_WRITE;

    ngx_http_zk_lock_ward_go(ward);

    return NGX_OK;
}


static void
ngx_http_zk_lock_ward_share(ngx_http_zk_lock_ward_t *ward)
{
    ngx_http_zk_lock_estate_t  *estate;

    estate = ward->estate;

    if (ward->share != NULL
        || (ward->kind != ZK_LOCK_MUTEX && ward->kind != ZK_LOCK_WRITE))
    {
        return;
    }

    ward->share = ngx_http_zk_lock_share(estate->worker,
                                   ngx_http_zk_lock_estate_session(estate),
                                   estate->zone, &ward->path, &ward->named,
                                   ward->id.record, ward->kind, ward->seq,
                                   NULL, ngx_http_zk_lock_ward_shared, ward);
}


static void
ngx_http_zk_lock_ward_shared(void *data, ngx_int_t rc)
{
    ngx_http_zk_lock_ward_t *ward = data;

    ward->share = NULL;

    if (rc != NGX_OK) {
        ngx_http_zk_lock_ward_done(ward);
        return;
    }

    ward->kind = ZK_LOCK_READ;
    ward->other = ZK_LOCK_READ;
    ward->shared = 0;

    if (ward->ending) {
        ngx_http_zk_lock_ward_delete(ward);
        return;
    }

    ward->state = NGX_HTTP_ZK_LOCK_WARD_READ;
    ngx_http_zk_lock_ward_go(ward);
}


void
ngx_http_zk_lock_ward_timer_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_ward_t  *ward;

    ward = ngx_queue_data(ev, ngx_http_zk_lock_ward_t, timer);

    if (ward->state == NGX_HTTP_ZK_LOCK_WARD_HELD) {
        ngx_http_zk_lock_ward_lease(ward);
    }
}


void
ngx_http_zk_lock_ward_lease(ngx_http_zk_lock_ward_t *ward)
{
    ngx_msec_t  now, lease;

    now = ngx_http_zk_lock_now();

    if (ward->timer.timer_set) {
        ngx_del_timer(&ward->timer);
    }

    if (ward->share != NULL) {
        /* it is looked at when it has its new name */
        return;
    }

    if (ngx_http_zk_lock_record_lease_over(ward->estate->zone, ward->id.record,
                                           now, &lease)
        == NGX_AGAIN)
    {
        ward->lease = lease;
        ward->looked = 0;
        ngx_add_timer(&ward->timer, lease - now);
        return;
    }

    ngx_log_error(NGX_LOG_INFO, ward->estate->worker->log, 0,
                  "a lease of \"%V\" is over", &ward->path);

    if (ward->kind == ZK_LOCK_NODE && !ward->looked) {

        /* it is deleted if it is there still, and was not renewed */

        ward->looked = 1;
        ward->state = NGX_HTTP_ZK_LOCK_WARD_READ;

    } else {
        ward->looked = 0;
        ward->state = NGX_HTTP_ZK_LOCK_WARD_LAPSE;
    }

    ngx_http_zk_lock_ward_go(ward);
}
