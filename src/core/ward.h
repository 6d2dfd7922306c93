
/*
 * Wards: the claims of an estate.
 */


#ifndef _ZKL_WARD_H_INCLUDED_
#define _ZKL_WARD_H_INCLUDED_


#include "core/estate.h"
#include "core/share.h"


typedef enum {
    ZKL_WARD_FIND = 0,              /* a list, or a read of the lock's znode,
                                       tells whether the claim has a znode;
                                       the znode is to be deleted */
    ZKL_WARD_LOOK,                  /* the claim waited alone: deleted, unless
                                       another gateway told the claim as held */
    ZKL_WARD_READ,                  /* the claim is held, if its znode is
                                       there; the znode is read */
    ZKL_WARD_DELETE
} zkl_ward_state_e;


typedef struct {
    ngx_rbtree_node_t                  node;    /* worker->wards; the record */
    ngx_queue_t                        queue;   /* estate->wards */
    zkl_estate_t                      *estate;
    zkl_op_t                          *op;      /* under way, or NULL */
    zkl_share_t                       *share;   /* under way, or NULL */

    zkl_ward_state_e                   state;
    zkl_id_t                           id;
    zkl_id_t                           named;   /* in the znode's name */
    zkl_kind_t                         kind;    /* in the znode's name, or */
    zkl_kind_t                         other;   /* the other possible kind */
    int64_t                            seq;     /* -1: not known */
    ngx_msec_t                         missed;  /* when a list lacked the claim
                                                   first; 0: not yet */

    ngx_str_t                          path;    /* of the lock */
    int32_t                            version; /* of the data read, of a claim
                                                   that waited alone or is
                                                   held */

    unsigned                           alone:1;     /* the claim waited alone */
    unsigned                           ending:1;    /* the claim is deleted when
                                                       share is done */
    unsigned                           unfit:1;     /* ZooKeeper refuses to make
                                                       the claim durable */
    unsigned                           over:1;      /* the lease is over: the
                                                       claim is deleted by
                                                       version */
    unsigned                           seen:1;      /* the record or the znode
                                                       was read while no
                                                       release was asked for,
                                                       and no delete can have
                                                       happened since */
} zkl_ward_t;


/*
 * Makes a ward of a record; data is the estate, whose `failed` is set if there
 * is no memory.
 */
void zkl_ward_take(void *data, zkl_record_t *record, ngx_str_t *path);

/* The ward of that record, or NULL. */
zkl_ward_t *zkl_ward_find(zkl_worker_t *worker, uint32_t record);

/* Sends what the ward's state asks for, unless that is under way. */
void zkl_ward_go(zkl_ward_t *ward);

/* Ends the claim for good: the claims behind may be granted at once. */
void zkl_ward_delete(zkl_ward_t *ward);

/*
 * This worker's session is over: the claim is not made durable under the gate
 * of that session any more, but is read again.
 */
void zkl_ward_unshare(zkl_ward_t *ward);

/* The claim has no znode (any more): frees the record and the ward. */
void zkl_ward_done(zkl_ward_t *ward);

/* Whether the claim may be durable, and so outlive the adopted session. */
ngx_uint_t zkl_ward_outlives(zkl_ward_t *ward);

/*
 * Makes the claim a claim of this worker, moves the record, and frees the ward.
 * get has read the durable znode; if get is NULL, the adopted session is over,
 * and the claim lives on if the claim was durable.  NGX_OK, or an error.
 */
ngx_int_t zkl_ward_move(zkl_ward_t *ward, zkl_op_t *get);

/* Frees the ward only. */
void zkl_ward_free(zkl_ward_t *ward);


#endif /* _ZKL_WARD_H_INCLUDED_ */
