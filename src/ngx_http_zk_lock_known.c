
/*
 * A claim of this gateway, for an ask: what the claim's record tells, and what
 * the ask changes in the record.
 *
 * The claim's worker may be a sibling, stand still or be dead: the record is in
 * the zone, so a renewal or a hold in the record counts.  What another gateway
 * has written into the znode's data may not be in the record yet; the ask has
 * read the data just before, into infos[0].
 *
 * All code here runs on the event loop of the worker that is asked.
 */


#include "ngx_http_zk_lock_node.h"


static void ngx_http_zk_lock_ask_keep(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record);
static ngx_http_zk_lock_answer_e ngx_http_zk_lock_ask_held(
    ngx_http_zk_lock_ask_t *ask, ngx_http_zk_lock_record_t *record);
static ngx_int_t ngx_http_zk_lock_ask_extend(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record);
static void ngx_http_zk_lock_ask_more(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record);
static uint32_t ngx_http_zk_lock_ask_renewals(ngx_http_zk_lock_ask_t *ask);
static ngx_uint_t ngx_http_zk_lock_ask_endless(
    ngx_http_zk_lock_record_t *record);


ngx_int_t
ngx_http_zk_lock_ask_own(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record)
{
    ngx_int_t  rc;

    rc = ngx_http_zk_lock_record_read(ask->worker->zone, &ask->token.id,
                                      &ask->path, record);

    return ((rc == NGX_OK || rc == NGX_AGAIN)
            && record->state != NGX_HTTP_ZK_LOCK_RECORD_OPEN
            && record->seq == ask->token.seq) ? NGX_OK : NGX_DECLINED;
}


/*
 * Renews a claim of this gateway in the record, also while the claim's worker
 * is dead and no heir has adopted the session yet; renews another gateway's
 * claim in the znode.
 */

void
ngx_http_zk_lock_ask_renew(ngx_http_zk_lock_ask_t *ask)
{
    if (ngx_http_zk_lock_ask_prolong(ask) == NGX_DONE) {
        ngx_http_zk_lock_ask_post(ask, NGX_HTTP_ZK_LOCK_ASK_GONE);

    } else {
        ngx_http_zk_lock_ask_inspect(ask);
    }
}


ngx_int_t
ngx_http_zk_lock_ask_prolong(ngx_http_zk_lock_ask_t *ask)
{
    ngx_int_t                  rc;
    ngx_msec_t                 ttl;
    ngx_http_zk_lock_record_t  record;

    if (ngx_http_zk_lock_ask_own(ask, &record) != NGX_OK
        || record.state == NGX_HTTP_ZK_LOCK_RECORD_WAITING
        || ngx_http_zk_lock_ask_endless(&record))
    {
        return NGX_OK;
    }

    ttl = ask->ttl ? ask->ttl : record.ttl;

    rc = ngx_http_zk_lock_record_renew(ask->worker->zone, &ask->token.id,
                                       &ask->path, 0, ttl, 0, 0, 0);

    ask->renewed = (rc == NGX_OK);

    /* another gateway may have renewed a lease that is over here */

    return (rc != NGX_OK && rc != NGX_AGAIN
            && record.state == NGX_HTTP_ZK_LOCK_RECORD_ENDED)
           ? NGX_DONE : NGX_OK;
}


void
ngx_http_zk_lock_ask_known(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record)
{
    ngx_int_t                  rc;
    zk_lock_label_t            label;
    ngx_http_zk_lock_info_t   *info;
    ngx_http_zk_lock_answer_e  answer;

    info = &ask->infos[0];

    ngx_http_zk_lock_ask_note_record(info, record);

    if (record->state == NGX_HTTP_ZK_LOCK_RECORD_WAITING) {
        ask->pending = 1;
        ngx_http_zk_lock_ask_keep(ask, record);
        ngx_http_zk_lock_ask_list(ask);
        return;
    }

    ask->pending = 0;

    if (ask->counted) {
        ngx_http_zk_lock_ask_set(ask);
        return;
    }

    if (ask->type == NGX_HTTP_ZK_LOCK_RELEASE && !ask->wished
        && record->state == NGX_HTTP_ZK_LOCK_RECORD_HELD)
    {
        /* at the start of the ask no record told how often the claim is held */

        if (ngx_http_zk_lock_ahead(record->alive)) {
            ngx_http_zk_lock_ask_release(ask);

        } else {
            ngx_http_zk_lock_ask_poll(ask);
        }

        return;
    }

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    if (record->state == NGX_HTTP_ZK_LOCK_RECORD_HELD && label.index >= 0
        && record->holds > ngx_max(label.holds, 1))
    {
        /*
         * Other gateways trust the label, and the worker that counted may have
         * died before it wrote the label.
         */

        ask->recounts = 1;
        ngx_http_zk_lock_ask_set(ask);
        return;
    }

    if (ask->wished && ask->type != NGX_HTTP_ZK_LOCK_SHARE) {

        /* no worker had the claim before; the new worker counts the wish */

        rc = ngx_http_zk_lock_ask_wished(ask);

        if (rc == NGX_AGAIN) {
            ngx_http_zk_lock_ask_poll(ask);
            return;
        }

        if (rc == NGX_DECLINED) {
            ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE);
            return;
        }
    }

    answer = ngx_http_zk_lock_ask_held(ask, record);

    if (answer == NGX_HTTP_ZK_LOCK_ASK_GONE
        && ask->type == NGX_HTTP_ZK_LOCK_RENEW
        && record->state == NGX_HTTP_ZK_LOCK_RECORD_HELD
        && record->renewals != ngx_http_zk_lock_ask_renewals(ask))
    {
        ngx_http_zk_lock_ask_set(ask);
        return;
    }

    if (answer == NGX_HTTP_ZK_LOCK_ASK_OK) {

        if (ask->type == NGX_HTTP_ZK_LOCK_HOLD && !ask->wished) {
            ngx_http_zk_lock_ask_more(ask, record);
            return;
        }

        if (ask->type == NGX_HTTP_ZK_LOCK_SHARE) {
            ngx_http_zk_lock_ask_share(ask);
            return;
        }

        if (ask->type == NGX_HTTP_ZK_LOCK_RENEW && !info->endless
            && record->durable && (int64_t) info->ttl > label.ttl)
        {
            /* a session that takes the claim over has to know the longer ttl */

            ngx_http_zk_lock_ask_set(ask);
            return;
        }
    }

    if (answer == NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE) {

        /* the worker may learn in a moment that the claim's session lives */

        ngx_http_zk_lock_ask_poll(ask);
        return;
    }

    ngx_http_zk_lock_ask_tell(ask, answer);
}


/*
 * A client that asks for a claim that waits alone extends the grace.  The time
 * is never cut, since another gateway may have told that the claim is held, but
 * always changed: the change tells the claim's worker that a client asks.
 */

static void
ngx_http_zk_lock_ask_keep(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record)
{
    ngx_msec_t  lease;

    if (ask->type != NGX_HTTP_ZK_LOCK_INSPECT || ask->grace == 0
        || record->lease == 0)
    {
        return;
    }

    lease = ngx_http_zk_lock_now() + ask->grace;

    if ((ngx_msec_int_t) (lease - record->lease) <= 0) {
        lease = record->lease + 1;
    }

    (void) ngx_http_zk_lock_record_renew(ask->worker->zone, &ask->token.id,
                                         &ask->path, record->lease,
                                         record->ttl, lease, 0, 0);
}


/* The answer for a claim of this gateway that is held, or was held. */

static ngx_http_zk_lock_answer_e
ngx_http_zk_lock_ask_held(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record)
{
    ngx_int_t                 rc;
    ngx_msec_t                ttl;
    ngx_http_zk_lock_info_t  *info;

    if (record->state == NGX_HTTP_ZK_LOCK_RECORD_ENDED) {
        return NGX_HTTP_ZK_LOCK_ASK_GONE;
    }

    info = &ask->infos[0];

    if (ngx_http_zk_lock_ask_renewals(ask) <= record->renewals) {

        if (record->lease == 0) {
            return NGX_HTTP_ZK_LOCK_ASK_GONE;
        }

        ttl = ask->ttl ? ask->ttl : record->ttl;

        if (ask->type == NGX_HTTP_ZK_LOCK_RENEW && !info->endless
            && (!ask->renewed || record->ttl < ttl))
        {
            /*
             * Since the first try the claim was granted, or the claim's worker
             * has read of another gateway's renewal, which came before this
             * renewal.
             */

            (void) ngx_http_zk_lock_ask_extend(ask, record);
        }

        rc = ngx_http_zk_lock_record_told(ask->worker->zone, &ask->token.id,
                                          &ask->path, record);

        if (rc != NGX_OK && rc != NGX_AGAIN) {

            /* the claim ended, or the lease was over, just now */

            return NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE;
        }

        ngx_http_zk_lock_ask_note_record(info, record);

    } else if (ask->type != NGX_HTTP_ZK_LOCK_RENEW) {

        /* the record does not have another gateway's renewal yet */

        ngx_http_zk_lock_ask_note_ttl(info);
        info->timed = 0;

    } else if (record->lease == 0) {
        return NGX_HTTP_ZK_LOCK_ASK_GONE;

    } else if (!info->endless
               && ngx_http_zk_lock_ask_extend(ask, record) != NGX_OK)
    {
        /* the record ended, or the lease was over, before the renewal */

        return NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE;
    }

    info->holds = record->holds;

    return ngx_http_zk_lock_ahead(record->alive)
           ? NGX_HTTP_ZK_LOCK_ASK_OK : NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE;
}


/*
 * Renews the claim in the record, for the ttl that the client asked for, or the
 * ttl of the latest renewal: from the data, if the record does not have the
 * data's renewals yet.  The record then gets the data's version and renewals,
 * so that an older renewal in the data does not replace this renewal.
 */

static ngx_int_t
ngx_http_zk_lock_ask_extend(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record)
{
    int32_t                   version;
    uint32_t                  renewals;
    ngx_msec_t                ttl;
    zk_lock_label_t           label;
    ngx_http_zk_lock_info_t  *info;

    info = &ask->infos[0];

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    ttl = record->ttl;
    version = 0;
    renewals = 0;

    if (label.renewals > record->renewals) {
        ttl = (label.ttl > 0) ? (ngx_msec_t) label.ttl : ttl;
        version = ask->version;
        renewals = label.renewals;
    }

    ttl = ask->ttl ? ask->ttl : ttl;

    if (ngx_http_zk_lock_record_renew(ask->worker->zone, &ask->token.id,
                                      &ask->path, 0, ttl, 0, version,
                                      renewals)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    info->ttl = ttl;
    info->expires = ttl;
    info->timed = 1;

    return NGX_OK;
}


/* Counts one more hold of the claim: first in the record, then in the label. */

static void
ngx_http_zk_lock_ask_more(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record)
{
    ngx_int_t  rc;

    if (!ask->infos[0].endless
        && ngx_http_zk_lock_ask_extend(ask, record) != NGX_OK
        && ngx_http_zk_lock_ask_own(ask, record) == NGX_OK
        && record->state == NGX_HTTP_ZK_LOCK_RECORD_HELD)
    {
        /* the claim's worker looks just now whether the lease is over */

        ngx_http_zk_lock_ask_poll(ask);
        return;
    }

    rc = ngx_http_zk_lock_record_hold(ask->worker->zone, &ask->token.id,
                                      &ask->path, 0, &ask->holds);

    if (rc != NGX_OK && rc != NGX_AGAIN) {

        if (ngx_http_zk_lock_ask_own(ask, record) == NGX_OK) {
            ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_GONE);

        } else {
            /* the session is over: another one may count the durable claim */

            ngx_http_zk_lock_ask_poll(ask);
        }

        return;
    }

    ask->counted = 1;
    ask->gen = record->gen;

    ngx_http_zk_lock_ask_set(ask);
}


static uint32_t
ngx_http_zk_lock_ask_renewals(ngx_http_zk_lock_ask_t *ask)
{
    zk_lock_label_t           label;
    ngx_http_zk_lock_info_t  *info;

    info = &ask->infos[0];

    zk_lock_label_read(&label, (char *) info->label.data, info->label.len);

    return label.renewals;
}


static ngx_uint_t
ngx_http_zk_lock_ask_endless(ngx_http_zk_lock_record_t *record)
{
    return (ngx_msec_int_t) (record->lease - ngx_http_zk_lock_now())
           > (ngx_msec_int_t) NGX_HTTP_ZK_LOCK_NO_LEASE / 2;
}
