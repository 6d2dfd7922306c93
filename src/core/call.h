
/*
 * A call: a call about a claim or a lock that waits for no grant: release,
 * renew, inspect, list, and what else is wanted of a claim.  Any worker serves
 * it for any claim.  No HTTP.
 */


#ifndef _ZKL_CALL_H_INCLUDED_
#define _ZKL_CALL_H_INCLUDED_


#include "core/claim.h"


/* claims that a list describes; the others are only counted */
#define ZKL_LIST_MAX                  100
#define ZKL_MEMBERS_MAX               1000


typedef enum {
    ZKL_RELEASE = 0,                /* a claim; told when it is gone, or, of
                                       one that is held more than once, when it
                                       is held once less: then held is set */
    ZKL_BREAK,                      /* a claim, however often it is held, or
                                       the one with that name */
    ZKL_RENEW,                      /* a held claim, with ttl */
    ZKL_HOLD,                       /* a held claim: once more, with ttl */
    ZKL_SHARE,                      /* a held claim: as a reader */
    ZKL_REVOKE,                     /* the claim with that name: its holder is
                                       asked to let go */
    ZKL_INSPECT,                    /* a claim; who asks has seen it, and it
                                       stays for another grace */

    /* from here on of a lock, not of a claim */
    ZKL_LIST,                       /* the claims of a lock, in order */
    ZKL_FIRST,                      /* of these only the first is described */
    ZKL_HOLDER                      /* that one, as this worker may know it */
} zkl_call_e;


typedef enum {
    ZKL_CALL_OK = 0,
    ZKL_CALL_GONE,                      /* the claim is not there any more */
    ZKL_CALL_FREE,                      /* the lock has no claims */
    ZKL_CALL_FOREIGN,                   /* it is no gateway's claim */
    ZKL_CALL_WAITS,                     /* it is not held yet */
    ZKL_CALL_CONFLICT,                  /* it cannot be shared */
    ZKL_CALL_LAYOUT,                    /* the znode is of the other layout */
    ZKL_CALL_UNREACHABLE,               /* ZooKeeper does not answer */
    ZKL_CALL_DENIED,                    /* by ZooKeeper's ACL */
    ZKL_CALL_FAILED                     /* no memory; was logged */
} zkl_answer_e;


typedef struct zkl_call_s  zkl_call_t;

/* Tells the result, once, and never from inside the function that asked. */
typedef void (*zkl_call_pt)(zkl_call_t *call, zkl_answer_e answer);


/* what is known of a claim */

typedef struct {
    zkl_call_t                        *call;
    zkl_child_t                        child;
    ngx_str_t                          name;    /* of the znode; LIST */
    ngx_str_t                          label;   /* the znode's data, or "" */
    int64_t                            czxid;
    time_t                             since;   /* granted, else created */
    ngx_msec_t                         ttl;     /* 0: unknown */
    ngx_msec_t                         expires; /* in; if timed */
    ngx_uint_t                         holds;   /* 0 and 1: once */
    unsigned                           timed:1;
    unsigned                           endless:1;   /* it has no lease */
    unsigned                           held:1;
    unsigned                           pending:1;   /* it is first, but its
                                                       worker has to say so */
    unsigned                           known:1; /* the znode was read */
} zkl_info_t;


struct zkl_call_s {
    ngx_queue_t                        queue;   /* worker->asks */
    zkl_worker_t                      *worker;
    zkl_call_e                         type;
    ngx_str_t                          path;
    zkl_token_t                        token;
    ngx_str_t                          name;    /* instead of it, or "" */
    ngx_msec_t                         ttl;
    ngx_msec_t                         grace;   /* INSPECT, 0: none */
    zkl_kind_t                         kind;    /* the token's own */

    zkl_call_pt                        handler; /* NULL: told, or left */
    void                              *data;

    ngx_uint_t                         pins;    /* operations under way */
    ngx_uint_t                         reads;   /* of these, of claims */
    ngx_queue_t                        turn;    /* worker->looks, if waits */
    ngx_event_t                        timer;
    ngx_event_t                        over;    /* its time is */
    zkl_subscription_t                 bell;
    zkl_mourner_t                      mourner;

    zkl_info_t                        *infos;
    ngx_uint_t                         ninfos;
    ngx_uint_t                         next;    /* of these, to be read */
    ngx_uint_t                         nknown;  /* of these, the first ones
                                                   are told; FIRST: 0 if that
                                                   one is gone since */
    ngx_uint_t                         total;   /* claims of the lock */
    ngx_uint_t                         holders; /* of these */
    int64_t                            last;    /* the seq of the last holder */
    uint64_t                           mark;    /* of the claims there are */
    ngx_uint_t                         position;    /* claims ahead that block
                                                       it, or would */
    ngx_uint_t                         place;       /* claims ahead that wait;
                                                       0: it is next */

    int32_t                            version;     /* of the znode's data */
    uint32_t                           mended;      /* in the label with what is
                                                       wanted */
    ngx_uint_t                         tries;       /* to set or delete it, or
                                                       asked a sibling for
                                                       that; or to list */
    uint32_t                           renewals;    /* before the first try */
    ngx_uint_t                         touches;     /* of the lock's znode */
    ngx_uint_t                         holds;       /* what is to be written */
    ngx_atomic_uint_t                  gen;         /* of the record that was
                                                       counted in, or that
                                                       tells how it ended */
    ngx_msec_t                         asked;       /* when it was begun, or
                                                       begun again */
    ngx_msec_t                         missed;      /* when its znode was, if
                                                       missing */

    unsigned                           mourning:1;
    unsigned                           later:1;     /* waits for ZooKeeper, to
                                                       begin, or begin again */
    unsigned                           owed:1;      /* its delete may not have
                                                       happened */
    unsigned                           find:1;      /* seq is not known */
    unsigned                           other:1;     /* the other name was tried
                                                       already */
    unsigned                           renewed:1;   /* in the claim's record */
    unsigned                           counted:1;   /* it is held once more, or
                                                       less, in the record */
    unsigned                           recounts:1;  /* writes what others have
                                                       counted */
    unsigned                           ended:1;     /* it was about to end when
                                                       a sibling was asked */
    unsigned                           dropped:1;   /* so it was held last */
    unsigned                           missing:1;   /* its znode is, and its
                                                       record is to tell why */
    unsigned                           unwritten:1; /* that is not in the
                                                       claim's data yet */
    unsigned                           wished:1;    /* what is wanted is in the
                                                       claim's data */
    unsigned                           pending:1;   /* its worker has not
                                                       granted it so far */
    unsigned                           polls:1;     /* the timer is for that */
    unsigned                           waits:1;     /* for its turn to list */
    unsigned                           looks:1;     /* it has its turn */
    unsigned                           node:1;      /* the lock is one znode */
    unsigned                           forced:1;    /* by an operator */
    unsigned                           answer:4;    /* of a posted one */
};


/* what is asked */

typedef struct {
    zkl_call_e                         type;
    ngx_str_t                         *path;    /* of the lock */
    zkl_token_t                       *token;   /* NULL for LIST and HOLDER; a
                                                   seq of -1: the oldest claim
                                                   with that key in its id */
    ngx_str_t                         *name;    /* BREAK, REVOKE: of the znode,
                                                   instead of a token; or
                                                   NULL */
    ngx_msec_t                         ttl;     /* RENEW, HOLD; 0: as it was */
    ngx_msec_t                         timeout; /* for the answer */
    ngx_msec_t                         grace;   /* INSPECT: of one that waits
                                                   alone */
    ngx_uint_t                         node;    /* without a token: the lock is
                                                   one znode */
    ngx_uint_t                         forced;  /* BREAK: by an operator */
    zkl_call_pt                        handler;
    void                              *data;
} zkl_question_t;


/*
 * Asks; all that question leads to is copied.  The results are in the call
 * until handler returns: all that call for a claim fill infos[0], if it is
 * there, and token.  Returns NULL if there is no memory.
 */
zkl_call_t *zkl_call_start(zkl_worker_t *worker, zkl_question_t *question);

/* Who asked has left.  What was asked for is done all the same. */
void zkl_call_leave(zkl_call_t *call);


/* for the worker */

void zkl_call_connected(zkl_call_t *call);
void zkl_call_unreachable(zkl_call_t *call);
void zkl_call_discard(zkl_call_t *call);


/*
 * Between the parts: zkl_call_start.c has a call's life,
 * ngx_http_zk_lock_inspect.c what is read and written of one claim,
 * ngx_http_zk_lock_look.c what a list tells,
 * ngx_http_zk_lock_drop.c releases, ngx_http_zk_lock_wish.c what only the
 * claim's own gateway can do.
 */


/* Notes what was read of a claim, or is known of it here. */
ngx_int_t zkl_call_note(zkl_info_t *info, zkl_op_t *op);
void zkl_call_note_ttl(zkl_info_t *info);
void zkl_call_note_record(zkl_info_t *info, zkl_record_t *record);
ngx_int_t zkl_call_infos(zkl_call_t *call, ngx_uint_t n);


zkl_op_t *zkl_call_op(zkl_call_t *call, zkl_op_e type, ngx_str_t *name,
    zkl_op_pt handler, void *data);
/* The same for a GET or a LIST; what it reads is no older than this call. */
void zkl_call_send_fresh(zkl_call_t *call, zkl_op_t *op);
void zkl_call_unpin(zkl_call_t *call);

/*
 * Tells, or, if there was no connection, begins again when there is one: what
 * leads here does no harm if it is done twice.
 */
void zkl_call_failed(zkl_call_t *call, zkl_rc_e rc);
void zkl_call_tell(zkl_call_t *call, zkl_answer_e answer);


#endif /* _ZKL_CALL_H_INCLUDED_ */
