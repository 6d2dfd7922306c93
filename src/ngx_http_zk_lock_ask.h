
/*
 * An ask: a call about a claim or a lock that waits for no grant: release,
 * renew, inspect, list.  Any worker serves it for any claim.  No HTTP.
 */


#ifndef _NGX_HTTP_ZK_LOCK_ASK_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_ASK_H_INCLUDED_


#include "ngx_http_zk_lock_claim.h"


/* claims that a list describes; the others are only counted */
#define NGX_HTTP_ZK_LOCK_LIST_MAX     100


typedef enum {
    NGX_HTTP_ZK_LOCK_RELEASE = 0,   /* a claim; told when it is gone */
    NGX_HTTP_ZK_LOCK_RENEW,         /* a held claim, with ttl */
    NGX_HTTP_ZK_LOCK_INSPECT,       /* a claim */
    NGX_HTTP_ZK_LOCK_LIST,          /* the claims of a lock, in order */
    NGX_HTTP_ZK_LOCK_HOLDER         /* the first claim of a lock */
} ngx_http_zk_lock_ask_e;


typedef enum {
    NGX_HTTP_ZK_LOCK_ASK_OK = 0,
    NGX_HTTP_ZK_LOCK_ASK_GONE,          /* the claim is not there any more */
    NGX_HTTP_ZK_LOCK_ASK_FREE,          /* the lock has no claims */
    NGX_HTTP_ZK_LOCK_ASK_FOREIGN,       /* it is no gateway's claim */
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
    ngx_str_t                          label;   /* the znode's data, or "" */
    int64_t                            czxid;
    time_t                             since;   /* granted, else created */
    ngx_msec_t                         ttl;     /* 0: unknown */
    ngx_msec_t                         expires; /* in; if timed */
    unsigned                           timed:1;
    unsigned                           held:1;
    unsigned                           known:1; /* the znode was read */
} ngx_http_zk_lock_info_t;


struct ngx_http_zk_lock_ask_s {
    ngx_queue_t                        queue;   /* worker->asks */
    ngx_http_zk_lock_worker_t         *worker;
    ngx_http_zk_lock_ask_e             type;
    ngx_str_t                          path;
    zk_lock_token_t                    token;
    ngx_msec_t                         ttl;

    ngx_http_zk_lock_ask_pt            handler; /* NULL: told, or left */
    void                              *data;

    ngx_uint_t                         pins;    /* operations under way */
    ngx_uint_t                         reads;   /* of these, of claims */
    ngx_event_t                        timer;
    ngx_http_zk_lock_bell_t            bell;
    ngx_http_zk_lock_mourner_t         mourner;

    ngx_http_zk_lock_info_t           *infos;
    ngx_uint_t                         ninfos;
    ngx_uint_t                         total;   /* claims of the lock */
    ngx_uint_t                         position;    /* claims ahead */

    int32_t                            version;     /* of the znode's data */
    ngx_uint_t                         tries;       /* to set or delete it */
    ngx_uint_t                         touches;     /* of the lock's znode */

    unsigned                           mourning:1;
    unsigned                           later:1;     /* waits for the connection
                                                       to begin */
    unsigned                           owed:1;      /* its delete may not have
                                                       happened */
    unsigned                           lapsed:1;    /* its lease was over */
    unsigned                           answer:4;    /* of a posted one */
};


/*
 * Asks.  token is NULL for LIST and HOLDER; ttl is for RENEW, 0 to keep the
 * claim's own.  The results are in the ask until handler returns: INSPECT,
 * RENEW and HOLDER fill infos[0].
 * Returns NULL if there is no memory.
 */
ngx_http_zk_lock_ask_t *ngx_http_zk_lock_ask(
    ngx_http_zk_lock_worker_t *worker, ngx_http_zk_lock_ask_e type,
    ngx_str_t *path, zk_lock_token_t *token, ngx_msec_t ttl,
    ngx_http_zk_lock_ask_pt handler, void *data);

/* Who asked has left.  What was asked for is done all the same. */
void ngx_http_zk_lock_ask_leave(ngx_http_zk_lock_ask_t *ask);


/* for the worker */

void ngx_http_zk_lock_ask_connected(ngx_http_zk_lock_ask_t *ask);
void ngx_http_zk_lock_ask_unreachable(ngx_http_zk_lock_ask_t *ask);
void ngx_http_zk_lock_ask_discard(ngx_http_zk_lock_ask_t *ask);


#endif /* _NGX_HTTP_ZK_LOCK_ASK_H_INCLUDED_ */
