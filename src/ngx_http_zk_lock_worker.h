
/*
 * The worker: what one nginx worker process has of all floors below, and the
 * wiring between them: the loop's wake-up, the session's events, the doorbell.
 *
 * One object a process, made when the process starts to serve and freed when
 * it leaves; everything runs on the event loop.
 */


#ifndef _NGX_HTTP_ZK_LOCK_WORKER_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_WORKER_H_INCLUDED_


#include "ngx_http_zk_lock_record.h"
#include "ngx_http_zk_lock_session.h"


typedef struct ngx_http_zk_lock_worker_s  ngx_http_zk_lock_worker_t;
typedef struct ngx_http_zk_lock_claim_s   ngx_http_zk_lock_claim_t;
typedef struct ngx_http_zk_lock_lock_s    ngx_http_zk_lock_lock_t;
typedef struct ngx_http_zk_lock_bell_s    ngx_http_zk_lock_bell_t;
typedef struct ngx_http_zk_lock_estate_s  ngx_http_zk_lock_estate_t;
typedef struct ngx_http_zk_lock_share_s   ngx_http_zk_lock_share_t;
typedef struct ngx_http_zk_lock_scene_s   ngx_http_zk_lock_scene_t;
typedef struct ngx_http_zk_lock_mark_s    ngx_http_zk_lock_mark_t;
typedef struct ngx_http_zk_lock_scan_s    ngx_http_zk_lock_scan_t;


typedef void (*ngx_http_zk_lock_bell_pt)(ngx_http_zk_lock_bell_t *bell);


/* who wants to know when a sibling's record changes; it rings once */

struct ngx_http_zk_lock_bell_s {
    ngx_rbtree_node_t                  node;    /* key: the record */
    ngx_queue_t                        queue;   /* those that ring now */
    ngx_http_zk_lock_bell_pt           handler;
    unsigned                           set:1;
    unsigned                           ringing:1;   /* in queue, not node */
};


struct ngx_http_zk_lock_worker_s {
    ngx_connection_t                   ident;   /* of all timers */

    ngx_log_t                         *log;
    ngx_http_zk_lock_session_conf_t   *conf;
    ngx_http_zk_lock_session_t        *session;
    ngx_http_zk_lock_zone_t           *zone;    /* its home */
    zk_lock_mailbox_t                  mailbox;
    ngx_connection_t                  *wakeup;

    ngx_http_zk_lock_claim_t         **claims;  /* by record; own ones */
    ngx_uint_t                         nclaims; /* size of it */

    ngx_rbtree_t                       locks;   /* by path */
    ngx_rbtree_node_t                  locks_sentinel;
    ngx_queue_t                        active;  /* locks with claims */
    ngx_queue_t                        idle;    /* locks without, the one
                                                   used last at the end */
    ngx_uint_t                         nidle;
    ngx_uint_t                         cache;   /* how many of them are kept */
    ngx_queue_t                        unsettled;   /* claims in between */
    ngx_uint_t                         npressing;   /* those of them that keep
                                                       a worker that leaves */
    ngx_uint_t                         nowed;   /* claims of which somebody
                                                   has to be told */
    ngx_queue_t                        asks;    /* calls under way */
    ngx_uint_t                         nasks;   /* of them */
    ngx_uint_t                         nawaited;    /* of these, with somebody
                                                   who waits for the answer */
    ngx_queue_t                        looks;   /* asks whose turn to list a
                                                   lock is to come */
    ngx_uint_t                         nlooks;  /* of those that have it */

    ngx_queue_t                        estates; /* of workers that are gone */
    ngx_rbtree_t                       wards;   /* of all, by record */
    ngx_rbtree_node_t                  wards_sentinel;

    ngx_queue_t                        marks;   /* roots of durable claims */
    ngx_http_zk_lock_scan_t           *scan;    /* of those of gateways that
                                                   are gone */
    ngx_uint_t                         nfleeting;   /* leases whose znode is
                                                   ephemeral */
    ngx_msec_t                         left;    /* when it began to leave, or
                                                   adopted something since */

    ngx_rbtree_t                       scenes;  /* followed locks, by path */
    ngx_rbtree_node_t                  scenes_sentinel;

    ngx_rbtree_t                       bells;
    ngx_rbtree_node_t                  bells_sentinel;

    ngx_event_t                        sweep;

    unsigned                           away:1;  /* ZooKeeper was not heard
                                                   again since */
    unsigned                           leaving:1;
    unsigned                           persistent:1;    /* the server has no
                                                           containers */
};


/*
 * Takes a slot, opens a session.  conf outlives the worker; cache is how many
 * locks that nobody uses it remembers.  Returns NULL if there is no memory,
 * connection or slot; that was logged.
 */
ngx_http_zk_lock_worker_t *ngx_http_zk_lock_worker_start(
    ngx_http_zk_lock_session_conf_t *conf, ngx_uint_t cache,
    ngx_shm_zone_t *shm_zone, ngx_log_t *log);

/*
 * Leaves its slots to another worker, with what is held.  A session is left
 * open for that worker if something needs it; else, and when nginx is stopped,
 * it is closed.  A slot that no worker needs is given back.  A session that is
 * not connected cannot be closed, and lives until its timeout.  No caller is
 * answered any more.
 */
void ngx_http_zk_lock_worker_stop(ngx_http_zk_lock_worker_t *worker);

/*
 * The same for one slot and its session.  heir: another worker stays, to which
 * the slot is left; needed: that worker needs the session.
 */
void ngx_http_zk_lock_worker_part(ngx_http_zk_lock_session_t *session,
    ngx_http_zk_lock_zone_t *zone, ngx_uint_t heir, ngx_uint_t needed);

/*
 * A timer whose data is the worker's fake connection, as the event core's
 * debug code wants it; its owner is found by ngx_queue_data().
 */
void ngx_http_zk_lock_worker_timer(ngx_http_zk_lock_worker_t *worker,
    ngx_event_t *ev, ngx_event_handler_pt handler);

/*
 * Whether the worker leaves for good: no other worker stays, and its session is
 * about to be closed.  So nothing is granted any more.
 */
ngx_uint_t ngx_http_zk_lock_worker_over(ngx_http_zk_lock_worker_t *worker);

/* Calls tell for each claim; it may free that claim. */
void ngx_http_zk_lock_worker_tell_claims(ngx_http_zk_lock_worker_t *worker,
    void (*tell)(ngx_http_zk_lock_claim_t *claim));

/* What is unsettled, or asked, has changed. */
void ngx_http_zk_lock_worker_busy(ngx_http_zk_lock_worker_t *worker);

/*
 * Calls bell->handler when this worker is rung for record; then the bell is
 * down, and may be hung again.
 */
void ngx_http_zk_lock_bell_hang(ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_bell_t *bell, uint32_t record);
void ngx_http_zk_lock_bell_take_down(ngx_http_zk_lock_worker_t *worker,
    ngx_http_zk_lock_bell_t *bell);


/*
 * Between the files of the worker: worker has its life, wiring what it hears
 * and whom it tells.
 */

/* Of its session; data is the worker. */
extern const ngx_http_zk_lock_session_events_t  ngx_http_zk_lock_worker_events;

/*
 * Puts the slot's descriptor into the event loop.  NGX_ERROR: no connection.
 */
ngx_int_t ngx_http_zk_lock_worker_listen(ngx_http_zk_lock_worker_t *worker);

/*
 * Adopts the slots of workers that are dead or have left, unless the worker
 * leaves and another worker stays.
 */
void ngx_http_zk_lock_worker_adopt(ngx_http_zk_lock_worker_t *worker);

/* worker->sweep: what no doorbell and no event has told. */
void ngx_http_zk_lock_worker_sweep_handler(ngx_event_t *ev);

/* The worker begins to leave; it may be told so more than once. */
void ngx_http_zk_lock_worker_drain(ngx_http_zk_lock_worker_t *worker);


#endif /* _NGX_HTTP_ZK_LOCK_WORKER_H_INCLUDED_ */
