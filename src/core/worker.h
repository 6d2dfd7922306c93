
/*
 * The worker: what an nginx worker process has of the folders below core, and
 * the wiring between these: the loop's wake-up, the session's events, the
 * doorbell.
 *
 * A process has a single worker object, made when the process starts to serve
 * and freed when the process leaves; all of the code runs on the event loop.
 */


#ifndef _ZKL_WORKER_H_INCLUDED_
#define _ZKL_WORKER_H_INCLUDED_


#include "shm/errand.h"
#include "shm/record.h"
#include "zk/session.h"


/* queues of subscriptions */
#define ZKL_SUBS                       256


typedef struct zkl_worker_s        zkl_worker_t;
typedef struct zkl_claim_s         zkl_claim_t;
typedef struct zkl_call_s          zkl_call_t;
typedef struct zkl_lock_s          zkl_lock_t;
typedef struct zkl_subscription_s  zkl_subscription_t;
typedef struct zkl_replace_s       zkl_replace_t;
typedef struct zkl_followed_s      zkl_followed_t;
typedef struct zkl_gate_s          zkl_gate_t;
typedef struct zkl_adoption_s      zkl_adoption_t;
typedef struct zkl_journal_s       zkl_journal_t;


typedef void (*zkl_subscription_pt)(zkl_subscription_t *sub);
typedef void (*zkl_journal_pt)(void *data, zkl_journal_t *line);


/* a call of handler, once, when a sibling's record has changed */

struct zkl_subscription_s {
    ngx_queue_t                        queue;   /* in worker->subs; or those
                                                   that are called now */
    uint32_t                           record;
    zkl_subscription_pt                handler;
    unsigned                           set:1;
};


/*
 * Tells that a claim is gone, or that the claim data are written: OK; NO_NODE:
 * the claim was gone before; else what ZooKeeper has replied.
 */
typedef void (*zkl_heard_pt)(void *data, zkl_rc_e rc);


/* a completion listener: waits for a claim */

typedef struct {
    ngx_queue_t                        queue;
    zkl_heard_pt                       handler;
    void                              *data;
} zkl_listener_t;


/* a call of this worker, or a sibling's errand, whose reply comes later */

typedef struct {
    zkl_listener_t                     listener;
    zkl_worker_t                      *worker;
    zkl_call_t                        *call;    /* NULL: an errand, whose number
                                                   is that in worker->served, */
    ngx_atomic_uint_t                  word;    /* and the word of its place */
    ngx_uint_t                         done;    /* the replies if the listener
                                                   hears OK, */
    ngx_uint_t                         gone;    /* or NO_NODE */
} zkl_served_t;


struct zkl_worker_s {
    ngx_connection_t                   ident;   /* of all timers */

    ngx_log_t                         *log;
    zkl_session_conf_t                *conf;
    zkl_session_t                     *session;
    zkl_zone_t                        *zone;    /* the home slot */
    zkl_mailbox_t                      mailbox;
    ngx_connection_t                  *wakeup;

    zkl_claim_t                      **claims;  /* own claims, by record */
    ngx_uint_t                         nclaims; /* size of claims */
    ngx_rbtree_t                       renumbered;  /* own claims with another
                                                       record than their names
                                                       say, by random */
    ngx_rbtree_node_t                  renumbered_sentinel;

    ngx_rbtree_t                       locks;   /* by path */
    ngx_rbtree_node_t                  locks_sentinel;
    ngx_event_t                        turn;    /* posted: runs the locks in: */
    ngx_queue_t                        posted;  /* locks that have changed */
    ngx_queue_t                        ended;   /* claims to be freed then */
    ngx_queue_t                        active;  /* locks with claims */
    ngx_queue_t                        idle;    /* locks without claims; at the
                                                   end the lock used last */
    ngx_uint_t                         nidle;
    ngx_uint_t                         cache;   /* idle locks to keep */
    ngx_queue_t                        transient;   /* claims not waiting, not
                                                       held and not done */
    ngx_uint_t                         nblocking;   /* transient claims that a
                                                       worker that leaves
                                                       stays for */
    ngx_uint_t                         nuntold; /* claims whose waiter was not
                                                   told yet */
    ngx_queue_t                        calls;   /* calls under way */
    ngx_uint_t                         ncalls;  /* length of calls */
    ngx_uint_t                         nawaited;    /* calls that a client waits
                                                       for */
    zkl_call_t                        *asked[ZKL_PLACES];   /* calls that
                                                   siblings reply to, by the
                                                   errand */
    zkl_served_t                       served[ZKL_PLACES];  /* errands of
                                                   siblings */
    ngx_rbtree_t                       looking; /* looks, by lock, type and
                                                   layout */
    ngx_rbtree_node_t                  looking_sentinel;
    ngx_queue_t                        looks;   /* looks that wait for a turn */
    ngx_uint_t                         nlooks;  /* looks that have a turn */
    ngx_uint_t                         nlooking;    /* all looks */
    ngx_queue_t                        searches;    /* lists of locks that wait
                                                       for turns */
    ngx_uint_t                         nsearches;   /* length of searches */
    ngx_uint_t                         nsearching;  /* turns that lists of locks
                                                       have */

    ngx_queue_t                        adoptions;   /* of dead workers' slots */

    ngx_queue_t                        gates;   /* of custody.c */
    ngx_uint_t                         nfleeting;   /* leases whose znode is
                                                   ephemeral */
    ngx_msec_t                         left;    /* when this worker began to
                                                   leave, or last adopted a
                                                   slot */

    ngx_rbtree_t                       followed; /* locks, by path */
    ngx_rbtree_node_t                  followed_sentinel;

    ngx_queue_t                        subs[ZKL_SUBS]; /* by the record, modulo
                                                   ZKL_SUBS */

    ngx_event_t                        sweep;

    ngx_msec_t                         missed;  /* since when, if away */
    int64_t                            floor;   /* the session's creates have a
                                                   larger zxid */

    zkl_journal_pt                     journal; /* hears of grants and ends;
                                                   NULL: no journal is kept */
    void                              *data;    /* of journal */

    unsigned                           away:1;  /* ZooKeeper was out of reach,
                                                   and not heard again since */
    unsigned                           leaving:1;
    unsigned                           unlisted:1;  /* a list of all gates is
                                                       due */
    unsigned                           listing:1;   /* such a list is under
                                                       way */
    unsigned                           persistent:1;    /* the server has no
                                                           containers */
};


/*
 * Takes a slot, opens a session.  conf outlives the worker; cache is how many
 * unused locks the worker remembers.  Returns NULL, after logging why, if there
 * is no memory, connection or slot.
 */
zkl_worker_t *zkl_worker_start(zkl_session_conf_t *conf, ngx_uint_t cache,
    ngx_shm_zone_t *shm_zone, ngx_log_t *log);

/*
 * Leaves the worker's slots, with the held claims, to another worker.  A
 * session stays open if that worker needs the session; else, and when nginx is
 * stopped, the session is closed.  A slot that no worker needs is given back.
 * A session that is not connected cannot be closed, and lives until its
 * timeout.  No caller is answered any more.
 */
void zkl_worker_stop(zkl_worker_t *worker);

/*
 * The same for a slot and the slot's session.  successor: another worker stays,
 * and gets the slot; needed: that worker needs the session.
 */
void zkl_worker_part(zkl_session_t *session, zkl_zone_t *zone,
    ngx_uint_t successor, ngx_uint_t needed);

/*
 * Sets up a timer whose data is the worker's fake connection, because the event
 * core's debug code expects a connection there.  The handler finds the timer's
 * owner by ngx_queue_data().
 */
void zkl_worker_timer(zkl_worker_t *worker, ngx_event_t *ev,
    ngx_event_handler_pt handler);

/*
 * Whether the worker leaves for good: no other worker stays, and the session is
 * about to be closed.  So no claim is granted any more.
 */
ngx_uint_t zkl_worker_over(zkl_worker_t *worker);


/* Counts, in the gateway's counters. */
void zkl_worker_count(zkl_worker_t *worker, zkl_count_e which, ngx_uint_t n);
/* An answer of ZooKeeper: the session's event; data is the worker. */
void zkl_worker_answered(void *data, ngx_uint_t write, ngx_uint_t n,
    ngx_msec_int_t time);

/* Calls tell for each claim; tell may end that claim. */
void zkl_worker_tell_claims(zkl_worker_t *worker,
    void (*tell)(zkl_claim_t *claim));

/* Notes that claims or calls may have begun, or ceased, to keep the worker. */
void zkl_worker_busy(zkl_worker_t *worker);

/*
 * Calls sub->handler once, when this worker is rung for record; the handler
 * may subscribe again.
 */
void zkl_worker_subscribe(zkl_worker_t *worker, zkl_subscription_t *sub,
    uint32_t record);
void zkl_worker_unsubscribe(zkl_subscription_t *sub);


#endif /* _ZKL_WORKER_H_INCLUDED_ */
