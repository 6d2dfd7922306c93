
/*
 * A group: bound claims that a client acquires together, all or none.  No HTTP.
 */


#ifndef _ZKL_GROUP_H_INCLUDED_
#define _ZKL_GROUP_H_INCLUDED_


#include "core/claim.h"


typedef struct zkl_group_s  zkl_group_t;

/*
 * Tells the result, once, and never from inside zkl_group_acquire().  GRANTED:
 * all claims are held.  Else no claim of the group is left, and group->part is
 * the part that was refused, or lost.  A lock may be walked over below on the
 * stack, but each claim and lock stays in memory until the end of the turn.
 */
typedef void (*zkl_group_pt)(zkl_group_t *group, zkl_outcome_e outcome);

/*
 * Tells, once, that the claim of group->part was lost after GRANTED; the other
 * claims are held on.  reason is that of ZKL_EVENT_LOST.  No claim's function
 * is on the stack.
 */
typedef void (*zkl_group_lost_pt)(zkl_group_t *group, const char *reason);


/*
 * Returns the claim data of a part; buf is zeroed, for a function that has none
 * at hand.
 */
typedef const zkl_claim_data_t *(*zkl_group_cdata_pt)(zkl_group_t *group,
    ngx_uint_t part, zkl_claim_data_t *buf);


/* a claim of the group; the caller sets all but claim */

typedef struct {
    ngx_str_t                          path;    /* of the lock */
    zkl_mode_t                         mode;
    ngx_msec_t                         wait;    /* since the group began */
    zkl_claim_t                       *claim;   /* NULL unless the claim waits
                                                   or is held */
    unsigned                           once:1;  /* as in zkl_terms_t */
} zkl_group_part_t;


struct zkl_group_s {
    /* set by the caller, in a zeroed group */
    zkl_worker_t                      *worker;
    zkl_group_part_t                  *parts;   /* in the order of the paths */
    ngx_uint_t                         nparts;
    ngx_msec_t                         timeout; /* as in zkl_acquire_t; of all
                                                   claims */
    ngx_msec_t                         ttl;
    zkl_terms_t                        terms;   /* but for once, bound and
                                                   leased */
    zkl_group_cdata_pt                 cdata;
    ngx_str_t                          request; /* as in zkl_acquire_t */
    zkl_group_pt                       handler;
    zkl_group_lost_pt                  lost;    /* may be NULL */
    void                              *data;
    unsigned                           keyed:1; /* each claim's id begins with
                                                   key */
    unsigned                           told:1;  /* of a loss */

    uint8_t                            key[ZKL_KEY];
    ngx_uint_t                         at;      /* the part that waits; nparts:
                                                   all are granted */
    ngx_msec_t                         started;
    ngx_event_t                        turn;    /* posted: a claim is lost */
    ngx_uint_t                         part;
    zkl_outcome_e                      outcome; /* of part */
    const char                        *reason;  /* of the loss */
};


/*
 * Acquires the locks in turn.  So two groups with locks in common never wait
 * for each other.  NGX_DECLINED: refused at once, as outcome and part tell; the
 * handler is not called then.
 */
ngx_int_t zkl_group_acquire(zkl_group_t *group);

/*
 * Ends all claims of the group, because the client has left or the request is
 * done.  Calls no handler.  Returns whether there was a claim.
 */
ngx_uint_t zkl_group_leave(zkl_group_t *group);


#endif /* _ZKL_GROUP_H_INCLUDED_ */
