
/*
 * Calls about a claim or a lock that wait for no grant: release, renew,
 * inspect, list and so on.  Any worker serves a call for any claim.  No HTTP.
 */


#ifndef _ZKL_CALL_H_INCLUDED_
#define _ZKL_CALL_H_INCLUDED_


#include "core/claim.h"


/* how many claims a list describes, and how many holders at most */
#define ZKL_LIST_MAX                  100
#define ZKL_MEMBERS_MAX               1000


typedef enum {
    ZKL_RELEASE = 0,                /* a claim; of a claim with several holds a
                                       hold: then infos[0].held is set */
    ZKL_BREAK,                      /* a claim with all holds, by the token or
                                       the znode's name */
    ZKL_RENEW,                      /* a held claim, with ttl */
    ZKL_HOLD,                       /* a held claim: one more hold, with ttl;
                                       RENEW once the hold is counted */
    ZKL_DOWNGRADE,                  /* a held claim becomes a reader */
    ZKL_REVOKE,                     /* the claim with that name: asks the holder
                                       to let go */
    ZKL_INSPECT,                    /* a claim; a detached claim stays for
                                       another grace */

    /* a lock, not a claim: */
    ZKL_LIST,                       /* the claims of a lock, in order */
    ZKL_FIRST,                      /* LIST, with only the first claim
                                       described */
    ZKL_HOLDER,                     /* the first claim, perhaps not fresh */

    /* the caller has read afresh before: the list need not be fresh */
    ZKL_COUNT,                      /* LIST, with no claim described; the
                                       mode of infos[0] is told */
    ZKL_HOLDERS                     /* LIST, with only the holders
                                       described */
} zkl_call_e;


typedef enum {
    ZKL_CALL_OK = 0,
    ZKL_CALL_GONE,                      /* the claim does not exist any more */
    ZKL_CALL_FREE,                      /* the lock has no claims */
    ZKL_CALL_FOREIGN,                   /* the claim is no gateway's */
    ZKL_CALL_WAITS,                     /* the claim is not held yet */
    ZKL_CALL_CONFLICT,                  /* the claim cannot be shared */
    ZKL_CALL_LAYOUT,                    /* the znode is of the other layout */
    ZKL_CALL_UNREACHABLE,               /* ZooKeeper does not answer, or the
                                           outcome is not known */
    ZKL_CALL_BUSY,                      /* too many looks wait for a turn */
    ZKL_CALL_NO_ROOM,                   /* below a quota of ZooKeeper */
    ZKL_CALL_DENIED,                    /* by ZooKeeper's ACL */
    ZKL_CALL_FAILED                     /* no memory; was logged */
} zkl_answer_e;


/*
 * What a call waits for:
 *
 *   step      comes from             waits for                 then
 *   -------   --------------------   -----------------------   ------------
 *   OP        each step, when its    the handler of an         each step
 *             event has come         operation; or, posted,
 *                                    to tell the client
 *   BEGIN     any: ZooKeeper does    zkl_call_connected()      OP: begins
 *             not answer
 *   POLL      OP: the claim may      the timer                 OP: begins
 *             change in a moment
 *   SIBLING   OP: asked a sibling    the ring, or the timer    OP: replied
 *   CLAIM     OP: asked the claim    the claim's listener      OP: replied
 *             of this worker
 *   DELETE    OP: ZooKeeper has to   the answer to the         OP, BUMP
 *             delete the claim       delete, which each
 *                                    zkl_call_connected()
 *                                    sends again
 *   BUMP      DELETE: deleted, but   the answer to the set,    OP
 *             the lock's znode is    which each
 *             not set                zkl_call_connected()
 *                                    sends again
 *
 * a call that looks, and the look that such calls share:
 *
 *   LOOK      OP: shares a look      the look's TELL; a        OP: is told,
 *                                    look: the end of the      or begins
 *                                    look ahead
 *   TURN      OP: too many           a turn, when another      SENT
 *             looks are under way    look ends
 *   SENT      OP, TURN: no call      the answers               TELL
 *             may share the look
 *             any more
 *   TELL      any: has the result    the calls to be told, a   the end
 *                                    few in a turn of the
 *                                    event loop
 *
 * The handler goes on after the event, and zkl_call_connected() is called with
 * each connection, and once a second while ZooKeeper answers.  The timeout
 * tells the client in any step.  The call ends when the client was told or has
 * left and no operation is under way, unless the step is DELETE, BUMP or TELL,
 * or a release waits in SIBLING or CLAIM.
 */

typedef enum {
    ZKL_STEP_OP = 0,
    ZKL_STEP_BEGIN,
    ZKL_STEP_POLL,
    ZKL_STEP_SIBLING,
    ZKL_STEP_CLAIM,
    ZKL_STEP_DELETE,
    ZKL_STEP_BUMP,
    ZKL_STEP_LOOK,
    ZKL_STEP_TURN,
    ZKL_STEP_SENT,
    ZKL_STEP_TELL
} zkl_step_e;


/* what a claim's worker replies to a call; at most 200 */

typedef enum {
    ZKL_REPLY_NONE = 0,             /* was not asked so far */
    ZKL_REPLY_ABSENT,               /* the worker has no such claim, or cannot
                                       tell: the call asks ZooKeeper */
    ZKL_REPLY_LATER,                /* not known yet */
    ZKL_REPLY_OK,                   /* done; a release: the claim is gone */
    ZKL_REPLY_COUNTED,              /* a hold more, or less: others stay */
    ZKL_REPLY_WAITS,                /* the claim is not granted yet */
    ZKL_REPLY_OVER,                 /* the lease or the grace is over, or the
                                       claim is about to end */
    ZKL_REPLY_ANSWER                /* and above: the client is told this, more
                                       a zkl_answer_e */
} zkl_reply_e;


/* Tells the result, once, and never from inside zkl_call_start(). */
typedef void (*zkl_call_pt)(zkl_call_t *call, zkl_answer_e answer);


/* what the call knows of a claim */

typedef struct {
    zkl_call_t                        *call;
    zkl_child_t                        child;
    ngx_str_t                          name;    /* of the znode; of a list */
    ngx_str_t                          cdata;   /* the znode's data, or "" */
    int64_t                            czxid;
    time_t                             since;   /* granted, else created */
    ngx_msec_t                         ttl;     /* 0: unknown */
    ngx_msec_t                         expires; /* in how long, if timed */
    ngx_uint_t                         holds;   /* 0 and 1: a single hold */
    unsigned                           timed:1;
    unsigned                           endless:1;   /* no lease */
    unsigned                           held:1;
    unsigned                           pending:1;   /* first, but not granted by
                                                       the worker */
    unsigned                           known:1; /* the znode was read */
    unsigned                           durable:1;   /* the znode belongs to no
                                                       session */
} zkl_info_t;


struct zkl_call_s {
    ngx_queue_t                        queue;   /* worker->calls */
    zkl_worker_t                      *worker;
    zkl_call_e                         type;
    zkl_step_e                         step;
    ngx_str_t                          path;
    zkl_token_t                        token;   /* seq -1: not known yet */
    ngx_str_t                          name;    /* the znode's, instead of a
                                                   token; or "" */
    ngx_msec_t                         ttl;
    ngx_msec_t                         grace;   /* INSPECT, 0: none */

    zkl_call_pt                        handler; /* NULL: told, or abandoned */
    void                              *data;

    ngx_uint_t                         nops;    /* operations under way, and a
                                                   handler that is called */
    ngx_queue_t                        turn;    /* worker->looks, in TURN; or
                                                   look->sharers, in LOOK */
    zkl_call_t                        *look;    /* that the call shares, or
                                                   NULL */
    ngx_str_node_t                     sn;      /* a look: worker->looking, by
                                                   path, type and layout */
    ngx_queue_t                        sharers; /* a look: the calls */
    zkl_call_t                        *later;   /* a look: the next look at the
                                                   lock, or NULL */
    ngx_event_t                        timer;
    ngx_event_t                        over;    /* the call's timeout */
    ngx_uint_t                         errand;  /* to a sibling, or
                                                   ZKL_NO_ERRAND */
    zkl_served_t                       served;  /* in CLAIM; of a release, done
                                                   is COUNTED: a hold may be
                                                   taken away, though the call
                                                   is told UNREACHABLE */
    zkl_reply_e                        reply;   /* of the claim's worker */

    zkl_info_t                        *infos;
    ngx_uint_t                         ninfos;
    ngx_uint_t                         next;    /* in infos, to be read */
    ngx_uint_t                         nknown;  /* infos described; FIRST: 0 if
                                                   the first claim is gone by
                                                   now */
    ngx_uint_t                         total;   /* claims of the lock */
    ngx_uint_t                         holders; /* claims that hold the lock */
    int64_t                            last;    /* the seq of the last holder */
    uint64_t                           etag;    /* a hash of the claims */
    int64_t                            fencing; /* RELEASE: of the claim; 0: not
                                                   known */
    ngx_str_t                          owner;   /* of a claim that the call
                                                   deletes, for the journal */
    ngx_uint_t                         place;       /* claims ahead that wait;
                                                       0: next */

    int32_t                            version;     /* of the znode's data */
    uint32_t                           mended;      /* of the data with the
                                                       remote request */
    ngx_uint_t                         tries;       /* sets or lists so far; of
                                                       a release: deletes that
                                                       may have happened */
    uint32_t                           renewals;    /* in the data before the
                                                       first set */
    ngx_msec_t                         asked;       /* when the call began, or
                                                       began again */

    unsigned                           remote:1;    /* the remote request is
                                                       written */
    unsigned                           pending:1;   /* the claim is not granted
                                                       so far */
    unsigned                           due:1;       /* the same, and a list has
                                                       shown no claim ahead */
    unsigned                           shared:1;    /* is a look */
    unsigned                           looks:1;     /* the look has a turn */
    unsigned                           node:1;      /* the lock is one znode */
    unsigned                           recent:1;    /* the session has read
                                                       afresh before */
    unsigned                           forced:1;    /* by an operator */
    unsigned                           answer:4;    /* for zkl_call_post() */
};


/* what a call is about */

typedef struct {
    zkl_call_e                         type;
    ngx_str_t                         *path;    /* of the lock */
    zkl_token_t                       *token;   /* NULL for LIST and HOLDER; seq
                                                   -1: the oldest claim with
                                                   that key in the id */
    ngx_str_t                         *name;    /* BREAK, REVOKE: the znode's,
                                                   instead of a token; or
                                                   NULL */
    ngx_msec_t                         ttl;     /* RENEW, HOLD; 0: unchanged */
    ngx_msec_t                         timeout; /* for the answer */
    ngx_msec_t                         grace;   /* INSPECT: of a detached
                                                   claim */
    ngx_uint_t                         node;    /* without a token: the lock is
                                                   one znode */
    ngx_uint_t                         forced;  /* BREAK: by an operator */
    zkl_call_pt                        handler;
    void                              *data;
} zkl_question_t;


/*
 * Starts a call, and copies all that question points to.  Until handler
 * returns, the results are in the call: a call about a claim fills token and,
 * if nknown is not 0, infos[0].  Returns NULL if there is no memory.
 */
zkl_call_t *zkl_call_start(zkl_worker_t *worker, zkl_question_t *question);

/* The client has left.  An owed release is completed. */
void zkl_call_leave(zkl_call_t *call);

/*
 * Whether the data of a claim that a client knows, and that is behind another
 * claim, say that the claim was granted.
 */
ngx_uint_t zkl_call_granted(zkl_claim_data_t *cdata);


/* for serve.c */

/* The claim's worker has replied; rung() finds a sibling's reply. */
void zkl_call_replied(zkl_call_t *call, zkl_reply_e reply);
void zkl_call_rung(zkl_call_t *call);
/* What a client is told of an operation that has failed. */
zkl_answer_e zkl_call_answer(zkl_rc_e rc);


/* for the worker */

void zkl_call_connected(zkl_call_t *call);
void zkl_call_unreachable(zkl_call_t *call);
void zkl_call_discard(zkl_call_t *call);


/* for node.c */


/*
 * Notes in info what op has read, what the record tells, and of a holder whose
 * gateway is another what the claim data tell.  The record counts only if the
 * child in info has an id.  What info has of another read is not freed.
 */
ngx_int_t zkl_call_describe(zkl_info_t *info, zkl_op_t *op);
/* Allocates a copy, which zkl_call_infos() frees; nothing if from is empty. */
ngx_int_t zkl_call_copy(zkl_call_t *call, ngx_str_t *to, ngx_str_t *from);
/* Frees the claims, and makes room for n. */
ngx_int_t zkl_call_infos(zkl_call_t *call, ngx_uint_t n);


zkl_op_t *zkl_call_op(zkl_call_t *call, zkl_op_e type, ngx_str_t *name,
    ngx_str_t *value);
/* Sends op, which keeps the call; op may be NULL for want of memory. */
void zkl_call_send(zkl_call_t *call, zkl_op_t *op, zkl_op_pt handler);
/* An operation has ended; the call may be freed. */
void zkl_call_op_end(zkl_call_t *call);

/*
 * Tells the client; without a connection the call begins again later instead,
 * so the failed operation must do no harm if repeated.
 */
void zkl_call_failed(zkl_call_t *call, zkl_rc_e rc);
void zkl_call_tell(zkl_call_t *call, zkl_answer_e answer);


#endif /* _ZKL_CALL_H_INCLUDED_ */
