
/*
 * What is under way in a session, and what its files share.
 *
 * Only session, commit, flight, op and bounds see inside a session.
 */


#ifndef _NGX_HTTP_ZK_LOCK_FLIGHT_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_FLIGHT_H_INCLUDED_


#include "ngx_http_zk_lock_library.h"


typedef enum {
    NGX_HTTP_ZK_LOCK_CLOSED = 0,
    NGX_HTTP_ZK_LOCK_CONNECTING,
    NGX_HTTP_ZK_LOCK_CONNECTED,
    NGX_HTTP_ZK_LOCK_SUSPENDED,
    NGX_HTTP_ZK_LOCK_BACKOFF
} ngx_http_zk_lock_session_state_e;


struct ngx_http_zk_lock_session_s {
    ngx_connection_t                          ident;    /* of the timers */

    ngx_http_zk_lock_session_conf_t          *conf;
    const ngx_http_zk_lock_session_events_t  *events;
    void                                     *data;
    zk_lock_mailbox_t                        *mailbox;
    ngx_log_t                                *log;

    ngx_http_zk_lock_handle_t                *handle;
    ngx_http_zk_lock_session_state_e          state;
    ngx_uint_t                                serial;   /* of the handle */
    ngx_http_zk_lock_key_t                    key;      /* id 0: none yet */
    ngx_msec_t                                timeout;  /* negotiated */
    ngx_msec_t                                backoff;
    ngx_msec_t                                since;    /* of the state */

    ngx_queue_t                               flights;  /* by sent */
    ngx_queue_t                               pending;  /* to be gathered */
    ngx_uint_t                                npending;
    ngx_uint_t                                gathered; /* a turn ago */
    ngx_uint_t                                turns;
    ngx_queue_t                               fresh;    /* reads, to be sent
                                                           behind a write */
    ngx_queue_t                               failed;   /* to be told */
    ngx_uint_t                                writes;   /* under way */

    ngx_msec_t                                asked;    /* last request */
    ngx_msec_t                                wrote;    /* last write */
    ngx_msec_t                                replied;  /* last answer */
    ngx_msec_t                                apart;    /* a moment before a
                                                           server is asked for
                                                           the session */
    ngx_msec_t                                touched;  /* see known alive */
    ngx_msec_t                                proves;   /* a write that is sent
                                                           from then on */
    uint64_t                                  written;  /* writes so far */
    uint64_t                                  committed;    /* the last one
                                                           that was */
    ngx_msec_t                                refused;  /* the gate was, when;
                                                           0: it was not */
    ngx_uint_t                                doubts;   /* ticks in a row with
                                                           no answer at all */
    ngx_msec_t                                doubted;  /* the last of them */
    ngx_msec_t                                starving; /* if starved: since */
    ngx_msec_t                                denied;   /* last logged */
    ngx_atomic_t                             *alive;

    u_char                                    gate_name[
                                                   NGX_HTTP_ZK_LOCK_GATE_LEN];
    ngx_str_t                                 gate;     /* with the chroot */
    size_t                                    path_bytes;

    ngx_rbtree_t                              watches;  /* that are set */
    ngx_rbtree_node_t                         watches_sentinel;
    size_t                                    watch_bytes;
    size_t                                    watch_asked; /* under way */

    ngx_event_t                               flush;    /* posted */
    ngx_event_t                               gather;   /* a timer */
    ngx_event_t                               read;     /* posted */
    ngx_event_t                               over;     /* posted */
    ngx_event_t                               tick;

    unsigned                                  last:1;   /* no other follows */
    unsigned                                  gated:1;  /* gate is there */
    unsigned                                  gating:1; /* it is asked for */
    unsigned                                  nudged:1;
    unsigned                                  unreachable:1;
    unsigned                                  late:1;   /* it is connected; no
                                                           memory to say so */
    unsigned                                  kept:1;   /* not over, though its
                                                           handle is */
    unsigned                                  starved:1; /* no memory for the
                                                            last operation */
    unsigned                                  hurry:1;  /* not all that is
                                                           pending is patient */
    unsigned                                  barrier:1; /* fresh has reads
                                                           that no write was
                                                           sent behind */
};


/* The bytes of a path that logs may have: the rest would make a token. */
size_t ngx_http_zk_lock_session_shown(ngx_str_t *path);

/*
 * The tick is short while something is under way or out of reach, else it is
 * the heartbeat.  An operation under way keeps a worker that wants to leave.
 */
void ngx_http_zk_lock_session_arm(ngx_http_zk_lock_session_t *s);

/* Known alive.  The session is connected; its leader may be deposed. */
void ngx_http_zk_lock_session_touched(ngx_http_zk_lock_session_t *s);

/* The same: a quorum has committed a write that was sent then. */
void ngx_http_zk_lock_session_committed(ngx_http_zk_lock_session_t *s,
    ngx_msec_t sent);

/* The session lives no longer than what it has from `since` on. */
void ngx_http_zk_lock_session_bound(ngx_http_zk_lock_session_t *s,
    ngx_msec_t since);

/*
 * A write that changes nothing: to be heard, and in front of reads.  Without
 * memory none is sent.
 */
void ngx_http_zk_lock_session_barrier(ngx_http_zk_lock_session_t *s);

/* At a tick of a session that is connected; now: of the monotonic clock. */
void ngx_http_zk_lock_session_watchdog(ngx_http_zk_lock_session_t *s,
    ngx_msec_t now);

/* ZooKeeper is out of reach: that is logged, and streams are told. */
void ngx_http_zk_lock_session_out_of_reach(ngx_http_zk_lock_session_t *s);

/* The connection is lost: what is pending fails. */
void ngx_http_zk_lock_session_suspended_handler(
    ngx_http_zk_lock_session_t *s);

/*
 * Makes the gate.  Its parent is made when it turns out to be missing, and
 * stays.  Without a gate all goes on, but slower.
 */
void ngx_http_zk_lock_session_gate(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_e type);

/* What is not sent yet fails: there is no connection to send it to. */
void ngx_http_zk_lock_session_unpend(ngx_http_zk_lock_session_t *s);

/* What is pending goes as soon as the event loop brings no more of it. */
void ngx_http_zk_lock_session_hurry(ngx_http_zk_lock_session_t *s);

/* Of a session's events: what was gathered is sent, the patient no longer. */
void ngx_http_zk_lock_session_flush_handler(ngx_event_t *ev);
void ngx_http_zk_lock_session_gather_handler(ngx_event_t *ev);

/* Of the session's event read: sends the fresh reads behind a write. */
void ngx_http_zk_lock_session_read_handler(ngx_event_t *ev);

/* Send, now, to a handle that is there; one that is refused has failed. */
void ngx_http_zk_lock_session_submit(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op);
void ngx_http_zk_lock_session_submit_batch(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_batch_t *batch);

/* An operation has come to nothing; its handler is told in the next turn. */
void ngx_http_zk_lock_session_fail(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op, ngx_http_zk_lock_rc_e rc);

/* Tells of those that failed; those that fail meanwhile wait for a turn. */
void ngx_http_zk_lock_session_flush_failed(ngx_http_zk_lock_session_t *s);

/*
 * The library keeps one watch a path until it fires, and sets all of them
 * again in one packet after a reconnect, which ZooKeeper refuses if it is too
 * long (ZOOKEEPER-706): so the bytes of the paths are counted, each once.
 */
void ngx_http_zk_lock_session_watched(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op);

/* A watch is gone: its event has come.  list: that of the children. */
void ngx_http_zk_lock_session_unwatched(ngx_http_zk_lock_session_t *s,
    ngx_str_t *path, ngx_uint_t list);

/* The connection broke: none is set any more. */
void ngx_http_zk_lock_session_forget_watches(ngx_http_zk_lock_session_t *s);

/* Tells what came of an operation, and frees it. */
void ngx_http_zk_lock_session_finish(ngx_http_zk_lock_op_t *op);

/* Frees an operation, and what the library gave with it; tells nobody. */
void ngx_http_zk_lock_session_free_op(ngx_http_zk_lock_op_t *op);


#endif /* _NGX_HTTP_ZK_LOCK_FLIGHT_H_INCLUDED_ */
