
/*
 * The journal: what becomes of the claims that hold locks, line by line.
 */


#ifndef _ZKL_JOURNAL_H_INCLUDED_
#define _ZKL_JOURNAL_H_INCLUDED_


#include "core/claim.h"
#include "core/call.h"


typedef enum {
    ZKL_JOURNAL_GRANTED = 0,        /* to a claim of this worker */
    ZKL_JOURNAL_TAKEN_OVER,         /* a durable claim, whose lease this worker
                                       counts from now on */
    ZKL_JOURNAL_ENDED,              /* the claim held the lock, and is gone or
                                       about to be deleted */
    ZKL_JOURNAL_DELETED             /* a call has deleted another gateway's or
                                       another client's claim */
} zkl_journal_e;


/* a line; the texts are good until the journal's function returns */

struct zkl_journal_s {
    zkl_journal_e                      event;
    ngx_str_t                          path;    /* of the lock */
    zkl_mode_t                         mode;
    int64_t                            fencing; /* 0: not known */
    ngx_msec_t                         time;    /* GRANTED: how long the claim
                                                   waited; ENDED: for how long
                                                   the lock was held */
    const char                        *reason;  /* of ENDED and DELETED */
    ngx_str_t                          owner;   /* "": none, or not known */
    ngx_str_t                          from;    /* the client's address */
    ngx_str_t                          request; /* the id of the request that
                                                   made the claim, or "" */
};


/* Has the journal hear of a worker's claims; before the worker has claims. */
void zkl_journal_open(zkl_worker_t *worker, zkl_journal_pt journal,
    void *data);

/* How a claim ended, in a word. */
const char *zkl_journal_reason(zkl_ending_e ending);

/* GRANTED or TAKEN_OVER: the claim holds the lock. */
void zkl_journal_claim(zkl_claim_t *claim, zkl_journal_e event);

/*
 * op has read a claim that a call is about to delete; then: the claim was
 * deleted.  The call keeps what the line tells.
 */
void zkl_journal_read(zkl_call_t *call, zkl_op_t *op);
void zkl_journal_deleted(zkl_call_t *call);


#endif /* _ZKL_JOURNAL_H_INCLUDED_ */
