
/*
 * An ask: a call about a claim or a lock that waits for no grant: release,
 * renew, inspect, list, and what else is wanted of a claim.  Any worker serves
 * it for any claim.  No HTTP.
 */


#ifndef _NGX_HTTP_ZK_LOCK_ASK_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_ASK_H_INCLUDED_


#include "ngx_http_zk_lock_claim.h"


/* claims that a list describes; the others are only counted */
#define NGX_HTTP_ZK_LOCK_LIST_MAX     100
#define NGX_HTTP_ZK_LOCK_MEMBERS_MAX  1000


typedef enum {
    NGX_HTTP_ZK_LOCK_RELEASE = 0,   /* a claim; told when it is gone, or, of
                                       one that is held more than once, when it
                                       is held once less: then held is set */
    NGX_HTTP_ZK_LOCK_BREAK,         /* a claim, however often it is held, or
                                       the one with that name */
    NGX_HTTP_ZK_LOCK_RENEW,         /* a held claim, with ttl */
    NGX_HTTP_ZK_LOCK_HOLD,          /* a held claim: once more, with ttl */
    NGX_HTTP_ZK_LOCK_SHARE,         /* a held claim: as a reader */
    NGX_HTTP_ZK_LOCK_REVOKE,        /* the claim with that name: its holder is
                                       asked to let go */
    NGX_HTTP_ZK_LOCK_INSPECT,       /* a claim; who asks has seen it, and it
                                       stays for another grace */

    /* from here on of a lock, not of a claim */
    NGX_HTTP_ZK_LOCK_LIST,          /* the claims of a lock, in order */
    NGX_HTTP_ZK_LOCK_FIRST,         /* of these only the first is described */
    NGX_HTTP_ZK_LOCK_HOLDER         /* that one, as this worker may know it */
} ngx_http_zk_lock_ask_e;


typedef enum {
    NGX_HTTP_ZK_LOCK_ASK_OK = 0,
    NGX_HTTP_ZK_LOCK_ASK_GONE,          /* the claim is not there any more */
    NGX_HTTP_ZK_LOCK_ASK_FREE,          /* the lock has no claims */
    NGX_HTTP_ZK_LOCK_ASK_FOREIGN,       /* it is no gateway's claim */
    NGX_HTTP_ZK_LOCK_ASK_WAITS,         /* it is not held yet */
    NGX_HTTP_ZK_LOCK_ASK_CONFLICT,      /* it cannot be shared */
    NGX_HTTP_ZK_LOCK_ASK_LAYOUT,        /* the znode is of the other layout */
    NGX_HTTP_ZK_LOCK_ASK_UNREACHABLE,   /* ZooKeeper does not answer */
    NGX_HTTP_ZK_LOCK_ASK_DENIED,        /* by ZooKeeper's ACL */
    NGX_HTTP_ZK_LOCK_ASK_FAILED         /* no memory; was logged */
} ngx_http_zk_lock_answer_e;


typedef struct ngx_http_zk_lock_ask_s  ngx_http_zk_lock_ask_t;

/* Tells the result, once, and never from inside the function that asked. */
typedef void (*ngx_http_zk_lock_ask_pt)(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer);


/* what is known of a claim */

typedef struct {
    ngx_http_zk_lock_ask_t            *ask;
    zk_lock_child_t                    child;
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
} ngx_http_zk_lock_info_t;


struct ngx_http_zk_lock_ask_s {
    ngx_queue_t                        queue;   /* worker->asks */
    ngx_http_zk_lock_worker_t         *worker;
    ngx_http_zk_lock_ask_e             type;
    ngx_str_t                          path;
    zk_lock_token_t                    token;
    ngx_str_t                          name;    /* instead of it, or "" */
    ngx_msec_t                         ttl;
    ngx_msec_t                         grace;   /* INSPECT, 0: none */
    zk_lock_kind_t                     kind;    /* the token's own */

    ngx_http_zk_lock_ask_pt            handler; /* NULL: told, or left */
    void                              *data;

    ngx_uint_t                         pins;    /* operations under way */
    ngx_uint_t                         reads;   /* of these, of claims */
    ngx_queue_t                        turn;    /* worker->looks, if waits */
    ngx_event_t                        timer;
    ngx_event_t                        over;    /* its time is */
    ngx_http_zk_lock_bell_t            bell;
    ngx_http_zk_lock_mourner_t         mourner;

    ngx_http_zk_lock_info_t           *infos;
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
    ngx_http_zk_lock_ask_e             type;
    ngx_str_t                         *path;    /* of the lock */
    zk_lock_token_t                   *token;   /* NULL for LIST and HOLDER; a
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
    ngx_http_zk_lock_ask_pt            handler;
    void                              *data;
} ngx_http_zk_lock_question_t;


/*
 * Asks; all that question leads to is copied.  The results are in the ask
 * until handler returns: all that ask for a claim fill infos[0], if it is
 * there, and token.  Returns NULL if there is no memory.
 */
ngx_http_zk_lock_ask_t *ngx_http_zk_lock_ask(
    ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_question_t *question);

/* Who asked has left.  What was asked for is done all the same. */
void ngx_http_zk_lock_ask_leave(ngx_http_zk_lock_ask_t *ask);


/* for the worker */

void ngx_http_zk_lock_ask_connected(ngx_http_zk_lock_ask_t *ask);
void ngx_http_zk_lock_ask_unreachable(ngx_http_zk_lock_ask_t *ask);
void ngx_http_zk_lock_ask_discard(ngx_http_zk_lock_ask_t *ask);


/*
 * Between the parts: ngx_http_zk_lock_ask.c has an ask's life,
 * ngx_http_zk_lock_inspect.c what is read and written of one claim,
 * ngx_http_zk_lock_look.c what a list tells,
 * ngx_http_zk_lock_drop.c releases, ngx_http_zk_lock_wish.c what only the
 * claim's own gateway can do.
 */

/* What it asks for is begun: by what type it is of. */
void ngx_http_zk_lock_ask_start(ngx_http_zk_lock_ask_t *ask);
/* A token without a seq: the oldest claim with that key. */
void ngx_http_zk_lock_ask_find(ngx_http_zk_lock_ask_t *ask);
/* The claim is read again in a moment, until the ask's time is over. */
void ngx_http_zk_lock_ask_poll(ngx_http_zk_lock_ask_t *ask);
void ngx_http_zk_lock_ask_renew(ngx_http_zk_lock_ask_t *ask);
/*
 * The lease in the record of a claim of this gateway counts from now on.
 * Returns NGX_OK, also if it is none or not held, or NGX_DONE: it has ended.
 */
ngx_int_t ngx_http_zk_lock_ask_prolong(ngx_http_zk_lock_ask_t *ask);
void ngx_http_zk_lock_ask_gone(ngx_http_zk_lock_ask_t *ask);
void ngx_http_zk_lock_ask_list(ngx_http_zk_lock_ask_t *ask);
/*
 * Only so many asks list a lock at a time: NGX_OK, it is this one's turn, which
 * it has to end, or to be freed; NGX_AGAIN, ask_list() is called when it is.
 */
ngx_int_t ngx_http_zk_lock_ask_turn(ngx_http_zk_lock_ask_t *ask);
void ngx_http_zk_lock_ask_turn_over(ngx_http_zk_lock_ask_t *ask);
void ngx_http_zk_lock_ask_holder(ngx_http_zk_lock_ask_t *ask);
void ngx_http_zk_lock_ask_inspect(ngx_http_zk_lock_ask_t *ask);
/* The claim was read, and its place in the line is known. */
void ngx_http_zk_lock_ask_placed(ngx_http_zk_lock_ask_t *ask);
/* Writes the claim's label, as infos[0] has it, with what is asked for. */
void ngx_http_zk_lock_ask_set(ngx_http_zk_lock_ask_t *ask);

void ngx_http_zk_lock_ask_release(ngx_http_zk_lock_ask_t *ask);
/* A release that is owed, or that ZooKeeper has to do. */
void ngx_http_zk_lock_ask_delete(ngx_http_zk_lock_ask_t *ask);
void ngx_http_zk_lock_ask_rung(ngx_http_zk_lock_ask_t *ask);
/* There is no znode of what was to be released: tells, or looks again. */
void ngx_http_zk_lock_ask_missing(ngx_http_zk_lock_ask_t *ask);
/* The sibling that was asked does not answer. */
void ngx_http_zk_lock_ask_forsaken(ngx_http_zk_lock_ask_t *ask);
/* Sets the lock's znode to what it is, so that all look who take part. */
void ngx_http_zk_lock_ask_touch(ngx_http_zk_lock_ask_t *ask);

void ngx_http_zk_lock_ask_wish(ngx_http_zk_lock_ask_t *ask,
    const char *want);
/*
 * What has become of the wish by what was read of the claim: NGX_OK, it was
 * fulfilled; NGX_AGAIN, not so far; NGX_DECLINED, that cannot be known.
 */
ngx_int_t ngx_http_zk_lock_ask_wished(ngx_http_zk_lock_ask_t *ask);
void ngx_http_zk_lock_ask_share(ngx_http_zk_lock_ask_t *ask);
void ngx_http_zk_lock_ask_revoke(ngx_http_zk_lock_ask_t *ask);

/* Whether it is a claim of this gateway; its record, if so. */
ngx_int_t ngx_http_zk_lock_ask_own(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record);
/* It is, and its znode was read just now. */
void ngx_http_zk_lock_ask_known(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_record_t *record);

/* Notes what was read of a claim, or is known of it here. */
ngx_int_t ngx_http_zk_lock_ask_note(ngx_http_zk_lock_info_t *info,
    ngx_http_zk_lock_op_t *op);
/* The same of infos[0] and what was read of it; or tells why not. */
ngx_int_t ngx_http_zk_lock_ask_noted(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op);
void ngx_http_zk_lock_ask_note_ttl(ngx_http_zk_lock_info_t *info);
void ngx_http_zk_lock_ask_note_record(ngx_http_zk_lock_info_t *info,
    ngx_http_zk_lock_record_t *record);
ngx_int_t ngx_http_zk_lock_ask_infos(ngx_http_zk_lock_ask_t *ask,
    ngx_uint_t n);

/* The name of the claim's znode; buf has room for ZK_LOCK_CLAIM_MAX. */
void ngx_http_zk_lock_ask_name(ngx_http_zk_lock_ask_t *ask, ngx_str_t *name,
    u_char *buf);
/*
 * Who holds a lock alone may share it by now, under another name: NGX_OK if
 * that is to be tried, else NGX_DECLINED.
 */
ngx_int_t ngx_http_zk_lock_ask_rename(ngx_http_zk_lock_ask_t *ask);

ngx_http_zk_lock_op_t *ngx_http_zk_lock_ask_op(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_e type, ngx_str_t *name,
    ngx_http_zk_lock_op_pt handler, void *data);
/* Sends it, pinned; op may be NULL for want of memory. */
void ngx_http_zk_lock_ask_send(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op);
/* The same for a GET or a LIST; what it reads is no older than this call. */
void ngx_http_zk_lock_ask_send_fresh(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_op_t *op);
void ngx_http_zk_lock_ask_unpin(ngx_http_zk_lock_ask_t *ask);

/*
 * Tells, or, if there was no connection, begins again when there is one: what
 * leads here does no harm if it is done twice.
 */
void ngx_http_zk_lock_ask_failed(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_rc_e rc);
/* Tells; post in the next turn. */
void ngx_http_zk_lock_ask_post(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer);
void ngx_http_zk_lock_ask_tell(ngx_http_zk_lock_ask_t *ask,
    ngx_http_zk_lock_answer_e answer);
/* Frees it if it was told, or left, and nothing is under way. */
void ngx_http_zk_lock_ask_free(ngx_http_zk_lock_ask_t *ask);


#endif /* _NGX_HTTP_ZK_LOCK_ASK_H_INCLUDED_ */
