
/*
 * What the files of the simulated gateways share.
 *
 *   gsim_loop.c     virtual time, chance, the memory of a history, the trace
 *   gsim_nginx.c    the parts of nginx's core that src/ below http/ calls
 *   gsim_process.c  processes, and the system calls of src/
 *   gsim_store.c    stores into a zone, before which a process can die
 *   gsim_tree.c     ZooKeeper: the log, and the tree at any place of the log
 *   gsim_ensemble.c which server leads, is cut off, fails or stands still
 *   gsim_server.c   sessions, and servers that lag behind the leader
 *   gsim_client.c   libzookeeper, as zk/client.c calls the library
 *   gsim_library.c  zk/client.c, with access to the file's statics
 *   gsim_session.c  zk/session.c, with what the session counts, and reads
 *   gsim_follow.c   core/follow.c, with what is followed
 *   gsim_zone.c     what workers count, and what zones say of workers
 *   gsim_gateway.c  masters and workers: starts, reloads, ends, deaths
 *   gsim_user.c     users that acquire, wait and hold
 *   gsim_ask.c      calls with a token: renew, share, release, ...
 *   gsim_bound.c    users that hold by a connection
 *   gsim_several.c  users that acquire several locks at once
 *   gsim_crowd.c    clients that hold once more what a user holds
 *   gsim_look.c     clients that look at locks, or follow a lock
 *   gsim_denied.c   clients that acquire what an ACL forbids
 *   gsim_solo.c     clients of a lock of the one-node layout
 *   gsim_foreign.c  claims that belong to no gateway
 *   gsim_oracle.c   which claims are held, and the rules that are checked
 *   gsim_fault.c    which faults happen, and when
 *   gateway_sim.c   the history, and the options
 *
 * The seed decides a history: no code looks at the time, at an address or at
 * the environment.  There is a single thread.  Time is virtual, in
 * microseconds, and moves from event to event.
 */


#ifndef _GSIM_H_INCLUDED_
#define _GSIM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include <setjmp.h>
#include <stdint.h>

#include "core/call.h"
#include "core/claim.h"
#include "core/group.h"
#include "core/worker.h"


#define GSIM_MS             1000
#define GSIM_S              1000000
#define GSIM_NEVER          INT64_MAX

#define GSIM_GATEWAYS       2
#define GSIM_WORKERS        2           /* of a gateway, at a time */
#define GSIM_LOCKS          3

/* bytes of a claim's path */
#define GSIM_PATH           512
#define GSIM_USERS          24
#define GSIM_PERMITS        2
#define GSIM_QUOTAS         3

/* the key of a quota, which src/http makes by a hash */
#define gsim_quota(n)       (((uint64_t) (n) + 1) * 0x9e3779b97f4a7c15)


typedef struct gsim_process_s  gsim_process_t;
typedef struct gsim_gateway_s  gsim_gateway_t;
typedef struct gsim_session_s  gsim_session_t;
typedef struct gsim_conn_s     gsim_conn_t;
typedef struct gsim_member_s   gsim_member_t;
typedef struct gsim_user_s     gsim_user_t;
typedef struct gsim_hold_s     gsim_hold_t;


/* --- gsim_loop.c ---------------------------------------------------------- */

typedef void (*gsim_event_pt)(void *data, uint64_t tag);

extern int64_t   gsim_now;              /* microseconds */
extern int       gsim_tracing;
extern jmp_buf   gsim_over;             /* a violation jumps here */

void gsim_loop_reset(uint64_t seed);
/* Calls fn at that time, and events of the same time in the order of calls. */
void gsim_at(int64_t at, gsim_event_pt fn, void *data, uint64_t tag);
void gsim_run(int64_t until);
uint64_t gsim_events(void);

uint64_t gsim_random(void);
int64_t gsim_below(int64_t n);          /* 0 to n - 1 */
int64_t gsim_between(int64_t least, int64_t most);
int gsim_chance(unsigned one_in);

/* The memory is zeroed, and lives until the next history begins. */
void *gsim_alloc(size_t size);
char *gsim_text(const char *text, size_t len);

void gsim_trace(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void gsim_violation(const char *fmt, ...)
    __attribute__((format(printf, 1, 2), noreturn));

#define gsim_say(...)                                                          \
    do { if (gsim_tracing) { gsim_trace(__VA_ARGS__); } } while (0)


/* --- gsim_process.c ------------------------------------------------------- */

typedef enum {
    GSIM_MASTER = 0,
    GSIM_RUNS,
    GSIM_LEAVES,                        /* ends with grace */
    GSIM_DEAD
} gsim_process_e;


/* a block of a process's memory; the bytes follow */

typedef struct gsim_block_s  gsim_block_t;

struct gsim_block_s {
    gsim_block_t                *next;
    gsim_block_t               **back;
    gsim_process_t              *owner;
    size_t                       size;
};


/* the globals of nginx and of zk/client.c while the process is not current */

typedef struct {
    ngx_rbtree_t                 timers;
    ngx_queue_t                  posted;
    ngx_queue_t                  posted_next;
    ngx_msec_t                   msec;
    void                        *mailbox;
    ngx_atomic_t                 lines;
    ngx_atomic_t                 dropped;
    ngx_log_t                   *log;
} gsim_globals_t;


struct gsim_process_s {
    gsim_process_t              *next;  /* in gsim_processes */
    gsim_process_e               state;
    ngx_pid_t                    pid;
    uint64_t                     start;
    gsim_gateway_t              *gateway;
    zkl_worker_t                *worker;

    gsim_globals_t               globals;
    ngx_rbtree_node_t            sentinel;
    gsim_block_t                *blocks;
    size_t                       nblocks;

    ngx_connection_t             wakeup;
    ngx_event_t                  read;
    ngx_event_t                  write;

    jmp_buf                      die;
    gsim_process_t              *outer;
    int64_t                      turn_at;       /* GSIM_NEVER: none is due */
    uint64_t                     turn_tag;
    int64_t                      turned;        /* when the turn began */
    int64_t                      stopped;       /* stands still until then */
    int64_t                      still;         /* the event loop, but not the
                                                   library's threads */
    int64_t                      dozes;         /* for how long the same, from
                                                   the next request on */
    int64_t                      apart;         /* had no connection then; or
                                                   0: never looked */
    int64_t                      down[2];       /* no packets until then: to
                                                   ZooKeeper, and back */
    unsigned                     fate_in;       /* calls or stores until fate */
    int64_t                      fate;          /* 0: the process dies; else
                                                   us to stand still */
    unsigned                     lurks;         /* writes of words that were
                                                   read, until the process
                                                   stands still before one */
    unsigned                     stores:2;      /* fate_in counts stores into
                                                   a zone; 2: what is promised
                                                   of a claim */
    unsigned                     begun:1;       /* process init has run */
    unsigned                     listens:1;
    unsigned                     in_turn:1;
    unsigned                     told:1;        /* told to leave */
    unsigned                     quits:1;       /* the gateway quits */
    unsigned                     terminates:1;  /* the gateway is terminated */
    unsigned                     stood:1;       /* stood still in this turn */
    unsigned                     doomed:1;
    unsigned                     stranger:1;    /* a stranger has the pid */
    unsigned                     ending:1;      /* in zkl_worker_stop() */
    unsigned                     outlived:1;    /* the workers that stayed when
                                                   zkl_worker_stop() began; or
                                                   there was no connection */
    unsigned                     hunted:1;      /* the session is, by the next
                                                   server */
};


extern gsim_process_t   *gsim_current;
extern gsim_process_t   *gsim_processes;
extern int64_t           gsim_wall;     /* offset of the wall time */

void gsim_process_reset(void);
gsim_process_t *gsim_process_new(gsim_gateway_t *gateway, gsim_process_e state);
/* Drops the process's memory, and breaks the process's connections. */
void gsim_process_kill(gsim_process_t *p);
void gsim_process_free_memory(gsim_process_t *p);

gsim_process_t *gsim_enter(gsim_process_t *p);
void gsim_leave(gsim_process_t *before);
/* The same for a thread of libzookeeper, in which the process cannot die. */
gsim_process_t *gsim_enter_thread(gsim_process_t *p);
void gsim_leave_thread(gsim_process_t *before);

/* Runs a turn of p's event loop with act() in the turn; 0: not possible now. */
int gsim_turn(gsim_process_t *p, void (*act)(void *data), void *data);
void gsim_wake(gsim_process_t *p, int64_t at);
/* Whether p, or only p's event loop, stands still. */
int gsim_stands(gsim_process_t *p);
void gsim_process_stop(gsim_process_t *p, int64_t us);
/* Whether p's wake-up descriptor is readable. */
int gsim_wake_ready(gsim_process_t *p);
/* A process can die or stand still here; gsim_store(): before a store to p. */
void gsim_point(void);
void gsim_load(void *p);
void gsim_store(void *p);
/* The process sleeps while the other processes go on. */
void gsim_sleep(int64_t us);


/* --- gsim_nginx.c --------------------------------------------------------- */

void gsim_nginx_init(void);
void gsim_nginx_turn(void);             /* of the current process */


/* --- gsim_tree.c ---------------------------------------------------------- */

typedef struct gsim_node_s  gsim_node_t;
typedef struct gsim_data_s  gsim_data_t;

struct gsim_data_s {
    gsim_data_t                 *before;
    int64_t                      zxid;
    int64_t                      written;       /* when overwritten */
    int32_t                      version;
    unsigned                     known; /* to gateways, a bit each */
    size_t                       len;
    char                         bytes[1];
};


/* a life of a path */

struct gsim_node_s {
    gsim_node_t                 *chain; /* the bucket's next node */
    gsim_node_t                 *parent;
    gsim_node_t                 *children;      /* all that were ever made */
    gsim_node_t                 *sibling;
    char                        *path;
    char                        *name;  /* the path's last segment */
    uint32_t                     hash;
    int64_t                      created;
    int64_t                      created_at;    /* microseconds */
    int64_t                      deleted;       /* GSIM_NEVER: not deleted */
    int64_t                      deleted_at;    /* microseconds */
    int64_t                      pzxid;
    int64_t                      ctime;
    int64_t                      owner; /* a session; 0: not ephemeral */
    gsim_node_t                 *origin;        /* the claim that this node
                                                   replaced, or NULL */
    int64_t                      counter;
    int                          nchildren;
    gsim_data_t                 *data;
    zkl_child_t                  child; /* what the name says */
    unsigned                     container:1;
    unsigned                     planted:1;     /* made by name */
    unsigned                     is_child:1;    /* of a lock: child is set */
    unsigned                     cancelled:1;   /* a user asked for the end */
};


typedef enum {
    GSIM_CREATED = 0,
    GSIM_CHANGED,
    GSIM_DELETED
} gsim_change_e;


typedef struct {
    int64_t                      zxid;
    gsim_change_e                change;
    gsim_node_t                 *node;
} gsim_txn_t;


extern int64_t  gsim_zxid;              /* the last transaction's */

void gsim_tree_reset(void);
/* Begins a transaction, and returns the zxid. */
int64_t gsim_tree_begin(void);
gsim_node_t *gsim_tree_find(const char *path, int64_t zxid);
/* What the name of a claim says; not 0: the node is no claim. */
int gsim_tree_child(gsim_node_t *node, zkl_child_t *child);
gsim_data_t *gsim_tree_data(gsim_node_t *node, int64_t zxid);
/* These return a code of libzookeeper; *node is the new node. */
int gsim_tree_create(const char *path, const char *data, size_t len, int flags,
    int64_t owner, gsim_node_t **node);
int gsim_tree_check(const char *path, int32_t version);
int gsim_tree_delete(const char *path, int32_t version);
int gsim_tree_set(const char *path, const char *data, size_t len,
    int32_t version);
/* Undoes all changes after the first ntxns of the log. */
void gsim_tree_undo(size_t ntxns);
/* ZooKeeper has the tree after the first ntxns changes, and that zxid. */
void gsim_tree_restore(size_t ntxns);
int gsim_tree_owns(int64_t session);
size_t gsim_tree_ntxns(void);
gsim_txn_t *gsim_tree_txn(size_t i);
/* Deletes the session's ephemeral nodes. */
void gsim_tree_end_session(int64_t session);
/* Deletes empty containers; returns how many. */
int gsim_tree_reap(void);


/* --- gsim_server.c -------------------------------------------------------- */

typedef enum {
    GSIM_CREATE = 0,
    GSIM_DELETE,
    GSIM_SET,
    GSIM_CHECK,
    GSIM_MULTI,
    GSIM_SYNC,
    GSIM_CLOSE,
    GSIM_GET,                           /* requests from here on do not write */
    GSIM_EXISTS,
    GSIM_LIST,
    GSIM_PING
} gsim_request_e;


typedef struct gsim_request_s  gsim_request_t;

struct gsim_request_s {
    gsim_request_t              *next;
    gsim_request_e               type;
    char                        *path;
    char                        *data;
    size_t                       len;
    int32_t                      version;
    int                          flags;
    unsigned                     watch:1;
    unsigned                     committed:1;
    unsigned                     orphan:1;      /* of a former connection */
    gsim_request_t              *parts; /* of a multi */

    int64_t                      zxid;
    int64_t                      at;    /* when the request arrives */
    int                          code;
    gsim_node_t                 *node;  /* of a create, a set, or a read */
    gsim_data_t                 *value;
    int64_t                      seen;  /* zxid at which a read was made */
    uint64_t                     xid;   /* libzookeeper's */
};


/* a server's answer or event */

typedef struct gsim_message_s  gsim_message_t;

struct gsim_message_s {
    gsim_message_t              *next;
    int64_t                      at;
    int64_t                      zxid;
    gsim_request_t              *reply; /* NULL: an event */
    int                          event;
    char                        *path;
    unsigned                     closed:1;      /* the connection is closed */
};


struct gsim_session_s {
    gsim_session_t              *next;
    int64_t                      id;
    char                         password[16];
    int64_t                      timeout;       /* us */
    int64_t                      deadline;
    int64_t                      made;
    int64_t                      ended;
    int64_t                      away;          /* since when the client has no
                                                   connection to work with */
    gsim_conn_t                 *conn;
    gsim_conn_t                 *before;        /* the last connection that
                                                   the quorum took */
    gsim_process_t              *first;         /* that made the session */
    gsim_process_t              *last;          /* that connected last */
    gsim_process_t              *closer;        /* that sent the last close */
    unsigned                     serial;        /* counts connections */
    unsigned                     over:1;
};


typedef struct gsim_watch_s  gsim_watch_t;

struct gsim_watch_s {
    gsim_watch_t                *next;
    int                          type;  /* GSIM_GET, GSIM_EXISTS, GSIM_LIST */
    char                        *path;
    int64_t                      at;    /* when it fired */
};


/* a connection, with the state that the server keeps */

struct gsim_conn_s {
    gsim_conn_t                 *next;
    void                        *handle;        /* libzookeeper's */
    gsim_process_t              *process;
    gsim_session_t              *session;
    gsim_member_t               *member;        /* the server */

    gsim_request_t              *up, **up_end;  /* on the way */
    gsim_request_t              *queue, **queue_end;
    gsim_message_t              *downs, **down_end;
    int64_t                      up_at;
    int64_t                      down_at;
    int64_t                      commit_at;
    int64_t                      applied;
    size_t                       log_at;        /* the next txn to look at */
    int64_t                      lag;           /* us */
    int64_t                      latency;       /* us */
    gsim_watch_t                *watches;
    gsim_request_t              *late;          /* held up in a thread */
    unsigned                     serial;
    unsigned                     up_pumped:1;
    unsigned                     down_pumped:1;
    unsigned                     applying:1;
    unsigned                     cut:1;         /* broken at the client's end */
    unsigned                     moved:1;       /* the session is elsewhere */
    unsigned                     gone:1;        /* closed by the server */
};


void gsim_server_reset(void);
gsim_session_t *gsim_server_session(int64_t id);
gsim_session_t *gsim_server_new_session(int64_t deadline);
/* A connect that reached m; NULL: the session is over, or another client's. */
gsim_conn_t *gsim_server_connect(gsim_member_t *m, void *handle,
    gsim_process_t *p, int64_t id, const char *password, int64_t timeout,
    int64_t seen);
void gsim_server_send(gsim_conn_t *conn, gsim_request_t *request);
/* The client sets the watches anew after a connect. */
void gsim_server_rewatch(gsim_conn_t *conn, gsim_watch_t *watches,
    int64_t seen);
/* lost: the requests on the way to the server are lost, too. */
void gsim_server_cut(gsim_conn_t *conn, int lost);
/* Called before gsim_server_cut(): the last request may be done later. */
void gsim_server_linger(gsim_conn_t *conn);
/* The leader has heard of the session. */
void gsim_server_touch(gsim_session_t *session);
/* After an election each session has a whole timeout left. */
void gsim_server_elected(void);
/* The server m closes all connections. */
void gsim_server_down(gsim_member_t *m);
void gsim_server_expire(gsim_session_t *session, const char *why);
gsim_conn_t *gsim_server_conns(void);
/* The servers lose what came after a moment of the past, or all. */
void gsim_server_restore(void);
/* Whether the session is that of an older copy. */
int gsim_server_copied(int64_t id);
/* Called after each change at the leader: the servers follow. */
void gsim_server_spread(void);


/* --- gsim_ensemble.c ------------------------------------------------------ */

#define GSIM_MEMBERS        3

typedef enum {
    GSIM_QUORUM = 0,
    GSIM_ALONE,
    GSIM_DOWN
} gsim_member_e;

/* what a server does with a connect */

typedef enum {
    GSIM_TAKES = 0,
    GSIM_REFUSES,
    GSIM_HANGS
} gsim_takes_e;

void gsim_ensemble_reset(void);
void gsim_ensemble_start(int64_t least);
int64_t gsim_ensemble_deadline(int64_t timeout);
int64_t gsim_ensemble_paused(void);     /* the leader stands still until then */
gsim_member_t *gsim_ensemble_leader(void);
gsim_member_t *gsim_ensemble_pick(void);
gsim_takes_e gsim_member_takes(gsim_member_t *m, int64_t id, int64_t seen);
gsim_member_e gsim_member_is(gsim_member_t *m);
int64_t gsim_member_since(gsim_member_t *m);
int64_t gsim_member_frozen(gsim_member_t *m);   /* zxid at the cut-off */
int64_t gsim_member_paused(gsim_member_t *m);
int64_t gsim_member_send(gsim_member_t *m);
int64_t gsim_member_ahead(gsim_member_t *m);    /* the last zxid that m may
                                                   have heard of by now */
int64_t gsim_member_pinged(gsim_member_t *m);   /* and until when */
/* The server m has heard of the session. */
void gsim_member_heard(gsim_member_t *m, gsim_session_t *session);
/* Whether m, alone, answers a sync without the quorum: until a write comes. */
int gsim_member_syncs(gsim_member_t *m);
void gsim_member_propose(gsim_member_t *m);
int gsim_ensemble_well(void);           /* all servers are in the quorum */
void gsim_member_fail(gsim_member_t *m);
void gsim_member_pause(gsim_member_t *m, int64_t us);
/* Cuts m off; returns for how long, 0: not possible now. */
int64_t gsim_member_cut_off(gsim_member_t *m);
/* Has m cut off before the leader hears of the session; 0: m is no follower. */
int gsim_member_hunt(gsim_member_t *m, gsim_session_t *session);
/* Ends what cuts servers off; a server that stands still goes on by itself. */
void gsim_ensemble_heal(void);
void gsim_ensemble_restart(int64_t us);


/* --- gsim_client.c -------------------------------------------------------- */

void gsim_client_reset(void);
void gsim_client_receive(gsim_conn_t *conn, gsim_message_t *message);
/* The process is dead: breaks and closes the process's handles. */
void gsim_client_dead(gsim_process_t *p);
/* The server that the process is connected to fails. */
void gsim_client_fail_server(gsim_process_t *p);
void gsim_client_break_process(gsim_process_t *p);
/*
 * How many bytes the watches of a session of p take in the packet that sets
 * all watches again; -1: p has not read all that the library has,
 * or has no connection.
 */
int64_t gsim_client_watched(gsim_process_t *p, int64_t id);
/* How many operations the library has of a session of p; -1: as above. */
int gsim_client_flights(gsim_process_t *p, int64_t id);
/* Up to which zxid p has heard by a session. */
int64_t gsim_client_seen(gsim_process_t *p, int64_t id);
/* Whether the library has the watch, or has had one that fired since then. */
int gsim_client_watches(gsim_process_t *p, int64_t id, const char *path,
    int list, int64_t since);
/* Whether the library has a watch of that type, GSIM_GET and so on, now. */
int gsim_client_has(gsim_process_t *p, int64_t id, const char *path,
    gsim_request_e type);
/* The connection of a handle breaks. */
void gsim_client_break(gsim_conn_t *conn, int code);


/* --- gsim_library.c ------------------------------------------------------- */

void gsim_library_save(gsim_globals_t *globals);
void gsim_library_load(gsim_globals_t *globals);


/* --- gsim_session.c ------------------------------------------------------- */

void gsim_session_reset(void);
/* What the sessions of p count is what there is. */
void gsim_session_check(gsim_process_t *p);


/* --- gsim_follow.c -------------------------------------------------------- */

/* Each lock that p follows will tell of the next change. */
void gsim_follow_check(gsim_process_t *p);


/* --- gsim_gateway.c ------------------------------------------------------- */

struct gsim_gateway_s {
    int                               index;
    gsim_process_t                   *master;
    gsim_process_t                   *workers[GSIM_WORKERS];
    zkl_session_conf_t                conf;
    ngx_cycle_t                       cycle;
    ngx_pool_t                        pool;
    ngx_pool_cleanup_t                cleanup;
    ngx_shm_zone_t                    shm_zone;
    ngx_slab_pool_t                  *slab;
    ngx_log_t                         log;
    uint64_t                          life;     /* counts the masters */
    unsigned                          up:1;
    unsigned                          stops:1;
    unsigned                          heard:1;  /* one of workers knows that
                                                   the gateway stops */
};

extern gsim_gateway_t  gsim_gateways[GSIM_GATEWAYS];

void gsim_gateway_reset(void);
void gsim_gateway_start(gsim_gateway_t *g);
void gsim_gateway_reload(gsim_gateway_t *g);
void gsim_gateway_kill(gsim_gateway_t *g);      /* and starts anew */
void gsim_gateway_vanish(gsim_gateway_t *g);    /* for minutes */
void gsim_gateway_stop(gsim_gateway_t *g);      /* with grace */
void gsim_gateway_terminate(gsim_gateway_t *g);
void gsim_gateway_quit(gsim_gateway_t *g);      /* and starts anew */
void gsim_gateway_grants(gsim_process_t *p);    /* checks that p may grant */
int gsim_gateway_stopped(gsim_gateway_t *g);
int gsim_gateway_settled(void);
/* Whether p points into the zone of g. */
int gsim_gateway_shares(gsim_gateway_t *g, void *p);
/* Whether p points to a record's state, lease, holds, delivery, and so on. */
int gsim_gateway_promise(gsim_gateway_t *g, void *p);
/* The record that p points into. */
uint32_t gsim_gateway_record(gsim_gateway_t *g, void *p);
void gsim_gateway_check(gsim_gateway_t *g);     /* the zone must be empty */
/* How many records of g count under the key of a quota. */
ngx_uint_t gsim_gateway_counts(gsim_gateway_t *g, uint64_t key);
/* No worker may count on a session that the leader ends now. */
void gsim_gateway_check_over(gsim_session_t *session);
/* Replaces a worker that died. */
void gsim_gateway_died(gsim_process_t *p);
void gsim_worker_turned(gsim_process_t *p);
/* A worker that takes requests, or NULL. */
gsim_process_t *gsim_gateway_pick(int gateway);


/* --- gsim_zone.c ---------------------------------------------------------- */

void gsim_zone_check(gsim_gateway_t *g);


/* --- gsim_user.c ---------------------------------------------------------- */

void gsim_user_reset(int64_t until);
/* The same users come until then, and remember nothing. */
void gsim_user_again(int64_t until);
int gsim_user_busy(void);
/* A user that is idle acquires in us microseconds. */
void gsim_user_poke(int64_t us);
/* Makes users that hold or poll a claim call within us microseconds: some of
   them, and each user whose claim has the record. */
void gsim_user_prod(int64_t us, uint32_t record);
/* Whether a user polls a claim whose record has that number. */
int gsim_user_polls(uint32_t record);
void gsim_user_report(void);            /* traces the users that are busy */
void gsim_user_process_gone(gsim_process_t *p);
void gsim_user_process_left(gsim_process_t *p);
/* Whether a user holds a lock by a connection to p. */
int gsim_user_streams(gsim_process_t *p);
/* The mode that a lock is used with; ZKL_READ: for readers and writers. */
zkl_mode_t gsim_user_use(int lock);


/* --- gsim_look.c ---------------------------------------------------------- */

void gsim_look_reset(int64_t until);
int gsim_look_busy(void);
/* Whether a client waits for an answer of p, or follows a lock there. */
int gsim_look_holds(gsim_process_t *p);
/* All clients of p leave; or p is gone. */
void gsim_look_leave(gsim_process_t *p);
void gsim_look_gone(gsim_process_t *p);


/* --- gsim_denied.c -------------------------------------------------------- */

void gsim_denied_reset(int64_t until);
/* What the servers say of a write to that path, by the ACL. */
int gsim_denied_code(const char *path);


/* --- gsim_solo.c ---------------------------------------------------------- */

void gsim_solo_reset(int64_t until);
/* ZooKeeper has lost data: no hold is valid any more. */
void gsim_solo_lost(void);
int gsim_solo_busy(void);


/* --- gsim_foreign.c ------------------------------------------------------- */

/* Forgets the claimers of the history before. */
void gsim_foreign_clear(void);
void gsim_foreign_reset(int64_t until);
int gsim_foreign_busy(void);
void gsim_foreign_look(void);           /* after a change at the leader */


/* --- gsim_oracle.c -------------------------------------------------------- */

struct gsim_hold_s {
    gsim_hold_t                 *next;
    int                          lock;
    zkl_mode_t                   mode;
    char                        *path;  /* of the znode */
    gsim_node_t                 *node;
    gsim_session_t              *session;
    int64_t                      fence; /* 0: a foreign claim */
    int64_t                      told;
    int64_t                      until; /* end of the lease */
    int64_t                      ends;  /* end that a renewal told, or 0 */
    int64_t                      hung;  /* when the connection that held the
                                           lock ended, or 0 */
    int                          home;  /* gateway of the acquire, if met */
    int                          times; /* that users surely hold */
    int                          most;  /* that users may hold, with crowd */
    int64_t                      least; /* the least ttl, with crowd; ms */
    unsigned                     crowd:1;       /* several hold it */
    unsigned                     doubt:1;       /* maybe held more often */
    unsigned                     shares:1;      /* readers may come in */
    unsigned                     released:1;
    unsigned                     lost:1;
};


extern char    gsim_paths[GSIM_LOCKS][GSIM_PATH];
extern int64_t gsim_quiet;              /* no fault is felt after that time */

void gsim_oracle_reset(void);
/* The claimer is told to hold the lock; until: the end of the lease. */
gsim_hold_t *gsim_oracle_held(int lock, zkl_mode_t mode, char *path,
    int64_t fence, int64_t until, const char *who);
/* Until when a durable lease may last that another gateway took over, or 0. */
int64_t gsim_oracle_taken(gsim_hold_t *hold);
int gsim_oracle_valid(gsim_hold_t *hold);
/* A user that shares the claim's key asks for the claim's end. */
void gsim_oracle_cancel(gsim_node_t *node);
/* The fencing token of a hold is told once more. */
void gsim_oracle_same(gsim_hold_t *hold, int64_t fence, const char *who);
void gsim_oracle_deleted(gsim_node_t *node, int closed);
void gsim_oracle_removed(gsim_session_t *session, gsim_node_t *node);
/* A process's write by a version was done to data, of a znode. */
void gsim_oracle_wrote(gsim_process_t *p, gsim_node_t *node,
    gsim_data_t *data);
/* Whether claims before seq, in the leader's tree, block a claim of mode. */
int gsim_oracle_ahead(const char *path, zkl_mode_t mode, int64_t seq);
int gsim_oracle_lock(const char *path);         /* -1: none */
/* Whether a claim is left that was made at zxid or before. */
int gsim_oracle_before(int64_t zxid);
/* settled: no claim is left in ZooKeeper; empty: and no ephemeral znode. */
int gsim_oracle_settled(void);
/*
 * The ephemerals of a worker's session below a lock are the claims of the
 * worker's records, one to one, and the session has counted these paths and
 * the library's watches: checked now, and again from time to time.
 */
void gsim_oracle_owns(void *data, uint64_t tag);
int gsim_oracle_empty(void);


/* --- gsim_fault.c --------------------------------------------------------- */

/* Forgets the faults of the history before. */
void gsim_fault_clear(void);
void gsim_fault_reset(int64_t until);
void gsim_fault_heal(void);
/* Within the next us microseconds p's connection breaks, and loses answers. */
void gsim_fault_answer(gsim_process_t *p, int64_t us);
/* p dies before a store into the zone, within the next so many stores. */
void gsim_fault_store(gsim_process_t *p, unsigned stores);
void gsim_fault_cut_off(gsim_member_t *m);
/* p has sent a request, and may stand still while the answer comes. */
void gsim_fault_doze(gsim_process_t *p);
/* How far a server lags that a client has not used before. */
int64_t gsim_fault_lag(void);
/* For how long a message between two hosts is slow. */
int64_t gsim_fault_slow_one(void);
/* p may stand still between a read and a write in the next turn. */
void gsim_fault_lurk(gsim_process_t *p);
/* Whether an allocation of the current process fails. */
int gsim_fault_lacks(void);


/* --- gateway_sim.c -------------------------------------------------------- */

typedef struct {
    uint64_t    histories;
    uint64_t    acquires;
    uint64_t    grants;
    uint64_t    handoffs;               /* grants beside the znode of the
                                           holder before */
    uint64_t    polls;
    uint64_t    taken;
    uint64_t    twins;
    uint64_t    left;
    uint64_t    unseen;
    uint64_t    renewals;
    uint64_t    again;                  /* held once more */
    uint64_t    once_less;
    uint64_t    met;                    /* calls beside a release */
    uint64_t    shared;
    uint64_t    conflicts;
    uint64_t    cancelled;              /* claims that another user waits for */
    uint64_t    revoked;
    uint64_t    several;
    uint64_t    bound;
    uint64_t    lost;                   /* bound claims told as lost */
    uint64_t    hung_up;
    uint64_t    releases;
    uint64_t    elsewhere;              /* calls at another gateway */
    uint64_t    lapses;
    uint64_t    unreachable;
    uint64_t    foreign;
    uint64_t    planted;                /* children that were made by name */
    uint64_t    compared;               /* znodes with claims of a worker */
    uint64_t    watched;                /* looks at the bytes of watches */
    uint64_t    counts;                 /* looks at what sessions count */
    uint64_t    crowded;                /* calls of others that hold */
    uint64_t    looks;
    uint64_t    news;                   /* told to followers */
    uint64_t    followed;               /* looks at what is followed */
    uint64_t    reads;                  /* compared with the tree */
    uint64_t    denied;                 /* acquires of what an ACL forbids */
    uint64_t    solos;                  /* grants of a lock of one znode */
    uint64_t    quotas;                 /* acquires refused by a quota */
    uint64_t    downgrades;             /* of foreign writers */
    uint64_t    cuts;
    uint64_t    partitions;
    uint64_t    slow;
    uint64_t    uneven;                 /* times of single slow messages */
    uint64_t    expired;
    uint64_t    crashes;
    uint64_t    midway;                 /* crashes in the middle of a turn */
    uint64_t    stores;                 /* of these before a store */
    uint64_t    lurks;                  /* writes nearby between a read and the
                                           write of a word */
    uint64_t    by_hand;                /* claims that were deleted */
    uint64_t    adopted;
    uint64_t    stops;
    uint64_t    naps;
    uint64_t    pauses;                 /* of servers */
    uint64_t    elections;
    uint64_t    minorities;
    uint64_t    restored;
    uint64_t    reloads;
    uint64_t    gateways;
    uint64_t    quits;
    uint64_t    terms;
    uint64_t    jumps;
    uint64_t    reaped;
    uint64_t    strangers;
    uint64_t    events;
} gsim_counters_t;

extern gsim_counters_t  gsim_count;
/*
 * In every second history users hold repeatedly, share, bind, acquire several
 * locks at once and use a lock in several ways.
 */
extern int              gsim_rich;
/* In every 16th history nothing happens but that a gateway goes for minutes. */
extern int              gsim_calm;
/* In every fourth history clients look at locks; in half of these all lists
   count as long, and wait for turns. */
extern int              gsim_looked_at;
extern int              gsim_long_lists;
/* In every fifth history names are long, and records take several cells. */
extern int              gsim_long_names;
/* In every fourth history clients acquire a lock that an ACL forbids. */
extern int              gsim_denies;
/* All histories, not a fifth, have only faults about how long sessions live. */
extern int              gsim_about_sessions;
/* At times allocations of workers fail. */
extern int              gsim_lacks;
/* All histories, not an eighth, end with servers that have lost data. */
extern int              gsim_restores;
/* Requests of a living worker may be read late; src/ does not tolerate that. */
extern int              gsim_lates;
/* In all histories clients use a lock of the one-node layout. */
extern int              gsim_all_solo;
extern ngx_uint_t       gsim_log_level;


#endif /* _GSIM_H_INCLUDED_ */
