
/*
 * What goes on in a record while the claim is held, or waits for a client to
 * ask for it: the lease and its renewals, the holds, and requests for the
 * release.
 *
 * Several processes run this code at the same time, each on its event loop.
 * Any worker, not only the slot's keeper, may write these fields: each is one
 * atomic word, changed by compare and set where the old value matters, and the
 * record's gen stays.  A lease of 0 is none, or over, and no worker renews such
 * a lease any more.  A function that takes an id may get an id that a client
 * made up, whose cell is NULL.
 */


#include "ngx_http_zk_lock_record.h"


static void ngx_http_zk_lock_record_extend(ngx_http_zk_lock_cell_t *cell,
    ngx_msec_t ttl, ngx_msec_t seen);
static ngx_int_t ngx_http_zk_lock_record_count(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_uint_t less,
    ngx_atomic_uint_t *mark, ngx_uint_t *holds);
static ngx_int_t ngx_http_zk_lock_record_saw(ngx_atomic_t *word,
    ngx_atomic_uint_t n);


void
ngx_http_zk_lock_record_keep(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_msec_t ttl, ngx_msec_t lease)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    cell->ttl = ttl;
    cell->lease = lease ? lease : 1;
}


void
ngx_http_zk_lock_record_cut(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_msec_t from, ngx_msec_t lease)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    /* a worker that tells a client from here on changes the lease first */

    if (ngx_atomic_cmp_set(&cell->told, NGX_HTTP_ZK_LOCK_TOLD_ITS_OWN,
                           NGX_HTTP_ZK_LOCK_TOLD_NOBODY)
        && !ngx_atomic_cmp_set(&cell->lease, from, lease ? lease : 1))
    {
        cell->told = NGX_HTTP_ZK_LOCK_TOLD_OTHERS;
    }
}


ngx_int_t
ngx_http_zk_lock_record_lease_over(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_msec_t now, ngx_msec_t *lease)
{
    ngx_atomic_uint_t         until;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    for ( ;; ) {
        until = cell->lease;

        if (until != 0 && (ngx_msec_int_t) (until - now) > 0) {
            *lease = until;
            return NGX_AGAIN;
        }

        if (ngx_atomic_cmp_set(&cell->lease, until, 0)) {
            return NGX_OK;
        }
    }
}


ngx_int_t
ngx_http_zk_lock_record_lease(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_msec_t *lease)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    *lease = cell->lease;

    return (*lease != 0) ? NGX_OK : NGX_DECLINED;
}


ngx_int_t
ngx_http_zk_lock_record_renewed(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, int32_t version, uint32_t renewals, ngx_msec_t ttl,
    ngx_msec_t seen)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    /* may go down: the versions of a renamed znode begin at 0 again */

    cell->version = (ngx_atomic_uint_t) version;

    if (renewals <= cell->renewals) {
        return NGX_DECLINED;
    }

    /*
     * The lease is extended first, since an heir takes renewals that are known
     * for renewals that count already.
     */

    ngx_http_zk_lock_record_extend(cell, ttl, seen);

    (void) ngx_http_zk_lock_record_saw(&cell->renewals, renewals);

    return NGX_OK;
}


ngx_uint_t
ngx_http_zk_lock_record_knows(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    uint32_t renewals)
{
    return renewals <= ngx_http_zk_lock_map_cell(zone->map, record)->renewals;
}


static void
ngx_http_zk_lock_record_extend(ngx_http_zk_lock_cell_t *cell, ngx_msec_t ttl,
    ngx_msec_t seen)
{
    ngx_msec_t         lease;
    ngx_atomic_uint_t  until;

    ttl = ttl ? ttl : cell->ttl;
    lease = ngx_http_zk_lock_now() + ttl;

    do {
        until = cell->lease;

        if (until != 0 && until != seen
            && (ngx_msec_int_t) (lease - until) <= 0)
        {
            return;
        }

    } while (!ngx_atomic_cmp_set(&cell->lease, until, lease ? lease : 1));

    cell->ttl = ttl;
}


/* Raises word to n.  NGX_DECLINED: n or more were seen already. */

static ngx_int_t
ngx_http_zk_lock_record_saw(ngx_atomic_t *word, ngx_atomic_uint_t n)
{
    ngx_atomic_uint_t  known;

    do {
        known = *word;

        if (n <= known) {
            return NGX_DECLINED;
        }

    } while (!ngx_atomic_cmp_set(word, known, n));

    return NGX_OK;
}


int32_t
ngx_http_zk_lock_record_version(ngx_http_zk_lock_zone_t *zone,
    uint32_t record)
{
    return (int32_t) ngx_http_zk_lock_map_cell(zone->map, record)->version;
}


ngx_int_t
ngx_http_zk_lock_record_seen(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_msec_t ttl)
{
    ngx_uint_t                nobody;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    if (cell->state != NGX_HTTP_ZK_LOCK_RECORD_HELD) {
        return NGX_DECLINED;
    }

    nobody = (cell->told == NGX_HTTP_ZK_LOCK_TOLD_NOBODY);

    if (nobody) {
        ngx_http_zk_lock_record_extend(cell, ttl, 0);
    }

    cell->told = NGX_HTTP_ZK_LOCK_TOLD_OTHERS;

    return nobody ? NGX_OK : NGX_DECLINED;
}


ngx_uint_t
ngx_http_zk_lock_record_said(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    ngx_http_zk_lock_said_t *said, zk_lock_label_t *label)
{
    ngx_uint_t                shorter;
    ngx_msec_t                ttl;
    ngx_http_zk_lock_cell_t  *cell;

    if (label->index < 0) {
        return 0;
    }

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    ttl = (ngx_msec_t) label->ttl;

    shorter = (said->ttl != 0 && ttl != 0
               && ttl != said->ttl
               && said->renewals == cell->renewals);

    said->ttl = ttl;
    said->renewals = label->renewals;

    return shorter;
}


void
ngx_http_zk_lock_record_label(ngx_http_zk_lock_zone_t *zone, uint32_t record,
    zk_lock_label_t *label)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    label->index = cell->index;
    label->czxid = cell->czxid;
    label->renewals = (uint32_t) cell->renewals;
    label->holds = (uint32_t) (cell->holds & NGX_HTTP_ZK_LOCK_HOLDS);

    if (label->ttl == 0 && !cell->bound) {
        label->ttl = (int64_t) cell->ttl;
    }

    if (cell->told == NGX_HTTP_ZK_LOCK_TOLD_OTHERS) {
        label->async = 0;
    }
}


ngx_uint_t
ngx_http_zk_lock_record_holds(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    return ngx_http_zk_lock_map_cell(zone->map, record)->holds
           & NGX_HTTP_ZK_LOCK_HOLDS;
}


ngx_int_t
ngx_http_zk_lock_record_wish(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, zk_lock_label_t *label,
    ngx_uint_t *holds)
{
    uint32_t                  wish;
    ngx_atomic_uint_t         mark;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, id->record);

    wish = ngx_crc32_short((u_char *) label->want, label->want_len);
    mark = (ngx_atomic_uint_t) wish << NGX_HTTP_ZK_LOCK_HOLDS_BITS;

    if (cell->wish == wish
        && (cell->holds & ~NGX_HTTP_ZK_LOCK_HOLDS) == mark)
    {
        *holds = cell->holds & NGX_HTTP_ZK_LOCK_HOLDS;
        return NGX_OK;
    }

    /*
     * One word counts the wish and marks the wish as counted, so that a worker
     * that dies cannot have done only half of that.
     */

    cell->wish = wish;
    ngx_memory_barrier();

    return ngx_http_zk_lock_record_count(zone, id, path,
                                      ngx_strncmp(label->want, "drop", 4) == 0,
                                      &mark, holds);
}


ngx_uint_t
ngx_http_zk_lock_record_asked(ngx_http_zk_lock_zone_t *zone, uint32_t record)
{
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, record);

    return cell->asked != 0
           && (cell->asked & ~(ngx_atomic_uint_t) 1) == cell->gen;
}


ngx_int_t
ngx_http_zk_lock_record_renew(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_msec_t from, ngx_msec_t ttl,
    ngx_msec_t until, int32_t version, uint32_t renewals)
{
    ngx_int_t                   rc;
    ngx_msec_t                  lease;
    ngx_http_zk_lock_cell_t    *cell;
    ngx_http_zk_lock_record_t   copy;

    cell = ngx_http_zk_lock_map_cell(zone->map, id->record);

    if (cell == NULL) {
        return NGX_DECLINED;
    }

    for ( ;; ) {
        rc = ngx_http_zk_lock_record_read(zone, id, path, &copy);
        if (rc != NGX_OK && rc != NGX_AGAIN) {
            return rc;
        }

        if ((copy.state != NGX_HTTP_ZK_LOCK_RECORD_HELD
             && copy.state != NGX_HTTP_ZK_LOCK_RECORD_WAITING)
            || copy.lease == 0 || (from != 0 && copy.lease != from))
        {
            return NGX_DECLINED;
        }

        /*
         * The ttl counts from this moment, even if this process stood still
         * before, since a client may have been told of a later deadline.  The
         * new deadline differs from the old one, so that record_cut() fails.
         */

        lease = until ? until : ngx_http_zk_lock_now() + ttl;

        if (lease == 0 || lease == copy.lease) {
            lease++;
        }

        if (ngx_atomic_cmp_set(&cell->lease, copy.lease, lease)) {
            break;
        }
    }

    if (ngx_http_zk_lock_record_saw(&cell->renewals, renewals) == NGX_OK) {
        (void) ngx_http_zk_lock_record_saw(&cell->version,
                                           (ngx_uint_t) version);
    }

    if (copy.state == NGX_HTTP_ZK_LOCK_RECORD_HELD) {
        cell->told = NGX_HTTP_ZK_LOCK_TOLD_OTHERS;
        cell->ttl = ttl;

        /* the caller looks afterwards whether the znode may be durable */

        ngx_memory_barrier();
    }

    if ((ngx_msec_int_t) (lease - copy.lease) < 0) {
        ngx_http_zk_lock_ring_keeper(zone->map, cell->slot, id->record);
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_record_told(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_http_zk_lock_record_t *copy)
{
    ngx_int_t                 rc;
    ngx_msec_t                lease;
    ngx_http_zk_lock_cell_t  *cell;

    cell = ngx_http_zk_lock_map_cell(zone->map, id->record);

    if (cell == NULL) {
        return NGX_DECLINED;
    }

    for ( ;; ) {
        rc = ngx_http_zk_lock_record_read(zone, id, path, copy);
        if (rc != NGX_OK && rc != NGX_AGAIN) {
            return rc;
        }

        if (copy->state != NGX_HTTP_ZK_LOCK_RECORD_HELD || copy->lease == 0) {
            return NGX_DECLINED;
        }

        if (copy->told == NGX_HTTP_ZK_LOCK_TOLD_OTHERS) {
            return NGX_OK;
        }

        if (copy->told == NGX_HTTP_ZK_LOCK_TOLD_NOBODY) {
            lease = ngx_http_zk_lock_now() + copy->ttl;

            if ((ngx_msec_int_t) (lease - copy->lease) <= 0) {
                lease = copy->lease + 1;
            }

            lease = lease ? lease : 1;

            if (!ngx_atomic_cmp_set(&cell->lease, copy->lease, lease)) {
                continue;
            }

            copy->lease = lease;
        }

        if (ngx_atomic_cmp_set(&cell->told, copy->told,
                               NGX_HTTP_ZK_LOCK_TOLD_OTHERS))
        {
            return NGX_OK;
        }
    }
}


ngx_int_t
ngx_http_zk_lock_record_hold(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_uint_t less,
    ngx_uint_t *holds)
{
    return ngx_http_zk_lock_record_count(zone, id, path, less, NULL, holds);
}


/* mark: the wish that is counted; NULL: the mark stays. */

static ngx_int_t
ngx_http_zk_lock_record_count(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_uint_t less,
    ngx_atomic_uint_t *mark, ngx_uint_t *holds)
{
    ngx_int_t                   rc;
    ngx_atomic_uint_t           was, n;
    ngx_http_zk_lock_cell_t    *cell;
    ngx_http_zk_lock_record_t   copy;

    cell = ngx_http_zk_lock_map_cell(zone->map, id->record);

    if (cell == NULL) {
        return NGX_DECLINED;
    }

    for ( ;; ) {
        was = cell->holds;
        n = was & NGX_HTTP_ZK_LOCK_HOLDS;

        rc = ngx_http_zk_lock_record_read(zone, id, path, &copy);
        if (rc != NGX_OK && rc != NGX_AGAIN) {
            return rc;
        }

        if (copy.state != NGX_HTTP_ZK_LOCK_RECORD_HELD || copy.holds == 0
            || (!less && copy.holds == NGX_HTTP_ZK_LOCK_HOLDS))
        {
            return NGX_DECLINED;
        }

        if (n != copy.holds) {
            continue;
        }

        n = less ? n - 1 : n + 1;

        if (ngx_atomic_cmp_set(&cell->holds, was,
                               n | (mark ? *mark
                                         : was & ~NGX_HTTP_ZK_LOCK_HOLDS)))
        {
            *holds = n;
            return rc;
        }
    }
}


ngx_int_t
ngx_http_zk_lock_record_ask(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_uint_t broken)
{
    ngx_int_t                   rc;
    ngx_http_zk_lock_cell_t    *cell;
    ngx_http_zk_lock_record_t   copy;

    rc = ngx_http_zk_lock_record_watch(zone, id, path, &copy);
    if (rc != NGX_OK && rc != NGX_AGAIN) {
        return rc;
    }

    cell = ngx_http_zk_lock_map_cell(zone->map, id->record);

    /*
     * The gen ties the request to this claim, if another claim has the cell by
     * now.  The claim is read again afterwards, since free() rings an asker
     * only if asked is set by then.
     */

    cell->asked = broken ? copy.gen | 1 : copy.gen;

    ngx_memory_barrier();

    rc = ngx_http_zk_lock_record_read(zone, id, path, &copy);
    if (rc != NGX_OK && rc != NGX_AGAIN) {
        return rc;
    }

    ngx_http_zk_lock_ring_keeper(zone->map, cell->slot, id->record);

    return rc;
}
