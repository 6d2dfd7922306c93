
/*
 * Records: what the workers of one gateway know of each other's claims.
 *
 * A record has one writer, the keeper of its slot; what others may change is
 * an atomic word.  A record is known by the random part of its claim's id:
 * when that is another one, the claim that was there has ended.  Which cells
 * of a chunk are in use is in the keeper's own memory; at which of them a
 * record starts is in the zone, for who comes after him.
 */


#ifndef _NGX_HTTP_ZK_LOCK_RECORD_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_RECORD_H_INCLUDED_


#include "ngx_http_zk_lock_zone.h"


#define NGX_HTTP_ZK_LOCK_NO_RECORD    ((uint32_t) -1)


typedef enum {
    NGX_HTTP_ZK_LOCK_RECORD_FREE = 0,
    NGX_HTTP_ZK_LOCK_RECORD_NEW,        /* its znode may not exist yet */
    NGX_HTTP_ZK_LOCK_RECORD_WAITING,
    NGX_HTTP_ZK_LOCK_RECORD_HELD,
    NGX_HTTP_ZK_LOCK_RECORD_ENDED       /* its delete cannot be called back */
} ngx_http_zk_lock_record_state_e;


/* a copy of a record */

typedef struct {
    ngx_http_zk_lock_record_state_e  state;
    zk_lock_id_t                     id;
    zk_lock_kind_e                   kind;
    int64_t                          seq;       /* -1: not published */
    int64_t                          czxid;
    int32_t                          version;   /* of the znode's data */
    ngx_uint_t                       index;
    ngx_msec_t                       lease;     /* the deadline, 0: none */
    ngx_msec_t                       ttl;
    time_t                           since;     /* granted; 0: not yet */
    ngx_msec_t                       alive;     /* until when its session
                                                   surely lives */
    unsigned                         near:1;    /* its worker can be rung */
} ngx_http_zk_lock_record_t;


/* path is in the zone: copy it */
typedef void (*ngx_http_zk_lock_inherit_pt)(void *data,
    ngx_http_zk_lock_record_t *record, ngx_str_t *path);


/*
 * The slot's own records.  take() makes a new id, and returns NGX_OK,
 * NGX_BUSY if the zone is full, or NGX_ERROR.  end() and free() ring those who
 * watch.
 */
ngx_int_t ngx_http_zk_lock_record_take(ngx_http_zk_lock_zone_t *zone,
    ngx_str_t *path, zk_lock_kind_e kind, zk_lock_id_t *id);
void ngx_http_zk_lock_record_publish(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, int64_t seq, int64_t czxid, ngx_uint_t index);
void ngx_http_zk_lock_record_grant(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_msec_t ttl, ngx_msec_t lease);
void ngx_http_zk_lock_record_end(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);
void ngx_http_zk_lock_record_free(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);

/*
 * Whether the lease of an own held record is over at now.  If so it is closed
 * for renewal, and NGX_OK is returned; else NGX_AGAIN, with its deadline.
 */
ngx_int_t ngx_http_zk_lock_record_lease_over(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_msec_t now, ngx_msec_t *lease);

/* The deadline of an own record.  NGX_DECLINED: it is over. */
ngx_int_t ngx_http_zk_lock_record_lease(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, ngx_msec_t *lease);

/*
 * The data of an own claim were seen with that version.  NGX_DECLINED: it is
 * known.  NGX_OK: somebody has renewed the claim in ZooKeeper, and the lease
 * counts from now; ttl 0: as it was.  Only a lease that is over, or the one
 * that was seen last, is made shorter.
 */
ngx_int_t ngx_http_zk_lock_record_renewed(ngx_http_zk_lock_zone_t *zone,
    uint32_t record, int32_t version, ngx_msec_t ttl, ngx_msec_t seen);

/* The version up to which an own record's lease is right. */
int32_t ngx_http_zk_lock_record_version(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);

/* Whether anybody asked for the release of an own record. */
ngx_uint_t ngx_http_zk_lock_record_asked(ngx_http_zk_lock_zone_t *zone,
    uint32_t record);

/*
 * Calls handler for each record of a slot that was adopted.  It may free the
 * record.  Before it, nothing else may be done with the slot's records.
 */
void ngx_http_zk_lock_record_inherit(ngx_http_zk_lock_zone_t *zone,
    ngx_http_zk_lock_inherit_pt handler, void *data);


/*
 * Any record.  All return NGX_DECLINED if there is no claim with that id on
 * that path (any more); NGX_AGAIN, with a copy, if nobody keeps its session at
 * this moment; and NGX_ABORT if its worker died or was stopped while it wrote:
 * then nothing follows from what the record says.
 *
 * read:   a copy
 * watch:  the same, and rings this worker's doorbell when the claim ends, and
 *         again when it is gone
 * renew:  sets the lease, and rings its worker's doorbell; declined unless the
 *         claim is held and its lease is not over.  version is that of the
 *         znode's data, if what they say is older than this renewal, or 0
 * ask:    asks its worker to release it
 */
ngx_int_t ngx_http_zk_lock_record_read(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path,
    ngx_http_zk_lock_record_t *copy);
ngx_int_t ngx_http_zk_lock_record_watch(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path,
    ngx_http_zk_lock_record_t *copy);
ngx_int_t ngx_http_zk_lock_record_renew(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path, ngx_msec_t ttl,
    ngx_msec_t lease, int32_t version);
ngx_int_t ngx_http_zk_lock_record_ask(ngx_http_zk_lock_zone_t *zone,
    const zk_lock_id_t *id, ngx_str_t *path);


/*
 * The board.  find() tells of the claim of path with that seq: NGX_OK and a
 * copy if it may exist, NGX_DONE and a copy if there was such a claim and it
 * ended (compare czxid: the path may have been made anew meanwhile), or
 * NGX_DECLINED if nothing is known.
 */
void ngx_http_zk_lock_board_put(ngx_http_zk_lock_zone_t *zone,
    ngx_str_t *path, int64_t seq, uint32_t record);
ngx_int_t ngx_http_zk_lock_board_find(ngx_http_zk_lock_zone_t *zone,
    ngx_str_t *path, int64_t seq, ngx_http_zk_lock_record_t *copy);


#endif /* _NGX_HTTP_ZK_LOCK_RECORD_H_INCLUDED_ */
