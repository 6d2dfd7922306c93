
/*
 * Wards: the claims of an estate.  ngx_http_zk_lock_ward.c has their lives,
 * ngx_http_zk_lock_kept.c what is done for those that are held.
 */


#ifndef _NGX_HTTP_ZK_LOCK_WARD_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_WARD_H_INCLUDED_


#include "ngx_http_zk_lock_estate.h"
#include "ngx_http_zk_lock_share.h"


typedef enum {
    NGX_HTTP_ZK_LOCK_WARD_FIND = 0, /* if it has a znode, a list tells, or a
                                       read of the lock's; it is to be
                                       deleted */
    NGX_HTTP_ZK_LOCK_WARD_LOOK,     /* it waited alone: deleted, unless another
                                       gateway told that it is held */
    NGX_HTTP_ZK_LOCK_WARD_READ,     /* held, if its znode is there; that is
                                       read */
    NGX_HTTP_ZK_LOCK_WARD_WRITE,    /* held; its label is written */
    NGX_HTTP_ZK_LOCK_WARD_HELD,
    NGX_HTTP_ZK_LOCK_WARD_LAPSE,    /* its lease is over: it is deleted, unless
                                       another gateway has renewed it */
    NGX_HTTP_ZK_LOCK_WARD_DELETE
} ngx_http_zk_lock_ward_state_e;


typedef struct {
    ngx_rbtree_node_t                  node;    /* worker->wards; the record */
    ngx_queue_t                        queue;   /* estate->wards */
    ngx_http_zk_lock_estate_t         *estate;
    ngx_http_zk_lock_op_t             *op;      /* under way, or NULL */
    ngx_http_zk_lock_share_t          *share;   /* under way, or NULL */
    ngx_event_t                        timer;   /* of the lease */

    ngx_http_zk_lock_ward_state_e      state;
    zk_lock_id_t                       id;
    zk_lock_id_t                       named;   /* in its znode's name */
    zk_lock_kind_t                     kind;    /* the same */
    zk_lock_kind_t                     other;   /* or this one; kind, if there
                                                   is no doubt */
    int64_t                            seq;     /* -1: not known */
    ngx_msec_t                         lease;   /* as it was seen last */
    ngx_http_zk_lock_said_t            said;    /* by its znode's data */
    ngx_msec_t                         missed;  /* when a list did not show it
                                                   first; 0: not yet */

    ngx_str_t                          path;    /* of the lock */
    ngx_str_t                          label;   /* to be written */
    int32_t                            version; /* in the place of that one */
    ngx_uint_t                         holds;   /* as it was counted last */

    unsigned                           alone:1;     /* it waited alone; version
                                                       is what was read */
    unsigned                           charged:1;   /* to the session */
    unsigned                           ending:1;    /* when it is shared */
    unsigned                           shared:1;    /* as its record says, but
                                                       not its name */
    unsigned                           looked:1;    /* its znode is known to be
                                                       its own */
    unsigned                           seen:1;      /* the record or the znode
                                                       was read while no
                                                       release was asked for,
                                                       and this worker has sent
                                                       no delete since */
    unsigned                           lapses:1;    /* by op */
    unsigned                           lost:1;      /* before it was released */
    unsigned                           durable:1;
} ngx_http_zk_lock_ward_t;


/* Makes a ward of a record; NGX_ERROR: no memory. */
ngx_int_t ngx_http_zk_lock_ward_take(ngx_http_zk_lock_estate_t *estate,
    ngx_http_zk_lock_record_t *record, ngx_str_t *path);

/* The ward of that record, or NULL. */
ngx_http_zk_lock_ward_t *ngx_http_zk_lock_ward_find(
    ngx_http_zk_lock_worker_t *worker, uint32_t record);

/* Sends what the ward's state asks for, unless that is under way. */
void ngx_http_zk_lock_ward_go(ngx_http_zk_lock_ward_t *ward);

/* The znode of a held claim is there. */
void ngx_http_zk_lock_ward_read(ngx_http_zk_lock_ward_t *ward,
    ngx_http_zk_lock_op_t *op);

/* The lease is over, unless somebody has renewed it. */
void ngx_http_zk_lock_ward_lease(ngx_http_zk_lock_ward_t *ward);
void ngx_http_zk_lock_ward_timer_handler(ngx_event_t *ev);

/* From here on it cannot be called back: who is next may be granted. */
void ngx_http_zk_lock_ward_delete(ngx_http_zk_lock_ward_t *ward);

/* There is no znode (any more): it is freed, and its record. */
void ngx_http_zk_lock_ward_done(ngx_http_zk_lock_ward_t *ward);

/*
 * Whether its znode is durable, as far as is known, and lives on when its
 * session is over.  Then it is forsaken: freed, and its record, of which
 * nothing follows any more.
 */
ngx_uint_t ngx_http_zk_lock_ward_outlives(ngx_http_zk_lock_ward_t *ward);
void ngx_http_zk_lock_ward_forsake(ngx_http_zk_lock_ward_t *ward);

/*
 * Frees one that is about to be deleted when its session is over.  If it was
 * durable, which is not known, its znode is there: a claim of the worker
 * deletes it.
 */
void ngx_http_zk_lock_ward_owe(ngx_http_zk_lock_ward_t *ward);

/* Frees the ward only. */
void ngx_http_zk_lock_ward_free(ngx_http_zk_lock_ward_t *ward);


#endif /* _NGX_HTTP_ZK_LOCK_WARD_H_INCLUDED_ */
