
/*
 * Declarations that the files of the simulation share.
 *
 *   sim_zk.c        ZooKeeper: a global log, and servers behind the log
 *   sim_gateway.c   workers that drive views as src/core/ does
 *   view_sim.c      clients, foreign claimers, faults, and the naive model
 *
 * The seed decides every step: no code reads the time, an address or the
 * environment.
 */


#ifndef _SIM_H_INCLUDED_
#define _SIM_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "base/view.h"


#define SIM_LOCKS       3
#define SIM_WORKERS     4
#define SIM_RECORDS     256
#define SIM_CHILDREN    96      /* of a lock, at the same time */
#define SIM_CLAIMS      48      /* of a worker */
#define SIM_FOREIGN     (-1)    /* the record of a foreign claim */
#define SIM_ALIVE       INT64_MAX


/* --- view_sim.c ----------------------------------------------------------- */

/* rules that --break can break; the names are in view_sim.c */

typedef enum {
    SIM_NO_BREAK = 0,
    SIM_GRANT_ON_PREDECESSOR_GONE,
    SIM_TRUST_GAP,
    SIM_UNPINNED_PROOF,
    SIM_GUARD_UNCHECKED,
    SIM_PARENT_EVENT_IGNORED,
    SIM_FORGET_NOTHING,
    SIM_DOWNGRADE_IGNORED,
    SIM_LOST_WAKEUP,
    SIM_NO_DOORBELL,
    SIM_NO_RECHECK,
    SIM_STALE_BOARD,
    SIM_STALE_LIVE_BOARD,
    SIM_NO_SYNC,
    SIM_CREATE_BLINDLY,
    SIM_SAME_ID_ANEW,
    SIM_DELETE_ONCE,
    SIM_FOUND_AS_HELD,
    SIM_ZOMBIE_GRANT,
    SIM_DEAD_IS_GONE,
    SIM_DEAD_BOARD,
    SIM_NO_LIST_MARK,
    SIM_SIBLING_ABSENT_IS_GONE,
    SIM_DOWNGRADE_UNLISTED,
    SIM_DURABLE_IGNORED,
    SIM_MISSING_TRUSTED,
    SIM_ONE_WATCH,
    SIM_SEAT_TOO_MANY,
    SIM_CONFLICT_IGNORED,
    SIM_CONFLICT_UNSEEN,
    SIM_BREAKS
} sim_break_e;

int broken(sim_break_e rule);

uint64_t rnd(uint64_t n);                       /* 0 to n - 1 */
int chance(unsigned one_in);

void trace(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void violation(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* a lock changed: check the lock after this step */
void touched(int lock);

/* the counts of events, for the last line */

typedef struct {
    uint64_t            grants;
    uint64_t            handoffs;       /* grants before the delete */
    uint64_t            proofs;         /* creates that needed no list */
    uint64_t            lists;
    uint64_t            learned;        /* from the sequence index */
    uint64_t            reaped;
    uint64_t            downgrades;
    uint64_t            exclusive;      /* downgrades of a mutex */
    uint64_t            durables;       /* claims that became durable */
    uint64_t            seats;          /* grants of semaphores */
    uint64_t            members;        /* grants of members */
    uint64_t            refused;
    uint64_t            disconnects;
    uint64_t            found;          /* creates whose reply was lost */
    uint64_t            sessions;       /* lost sessions */
    uint64_t            crashes;
    uint64_t            longest;        /* queue */
} sim_counters_t;

extern sim_counters_t  counters;


/* --- sim_zk.c ------------------------------------------------------------- */

/* the name of a claim's znode */

typedef struct {
    int64_t             seq;
    uint64_t            id;
    zkl_kind_t          kind;
    int                 record;         /* or SIM_FOREIGN */
} name_t;


typedef struct {
    name_t              name;
    int64_t             session;
    int64_t             parent;         /* czxid of the incarnation */
    int64_t             created;
    int64_t             deleted;        /* or SIM_ALIVE */
    unsigned            clashed:1;      /* the model's: may be refused */
} znode_t;


typedef enum {
    ZK_CREATE = 0,
    ZK_DELETE,
    ZK_SYNC,
    ZK_LIST,
    ZK_GET,                             /* of a claim, with a watch */
    ZK_EXISTS                           /* of the parent, with a watch */
} zk_type_e;


typedef struct {
    zk_type_e           type;
    int                 lock;
    name_t              name;
    int64_t             cause;          /* the caller's */

    int64_t             zxid;           /* of the commit; 0: not yet */
    int                 missing;        /* the answer is "no node" */
} zk_request_t;


typedef enum {
    ZK_REPLY = 0,
    ZK_NODE_DELETED,
    ZK_PARENT_CHANGED,
    ZK_DISCONNECTED
} zk_message_e;


typedef struct {
    zk_message_e        type;
    zk_request_t        request;        /* of an event: lock and name */
    int64_t             zxid;           /* the server's position */
    int64_t             czxid;          /* of ZK_CREATE and ZK_EXISTS */
    size_t              n;
    znode_t             list[SIM_CHILDREN];
} zk_message_t;


typedef struct zk_session_s  zk_session_t;

void zk_reset(int64_t lag);
int64_t zk_last(void);

zk_session_t *zk_session_new(void);
void zk_session_done(zk_session_t *session);
void zk_send(zk_session_t *session, zk_request_t *request);
zk_message_t *zk_receive(zk_session_t *session);        /* or NULL */

/* faults; an expired session has lost all znodes of the session */
void zk_cut(zk_session_t *session, size_t received);
void zk_reconnect(zk_session_t *session);
void zk_expire(zk_session_t *session);
int zk_is_cut(zk_session_t *session);
int zk_is_expired(zk_session_t *session);

/* a step of the ensemble; 0: no step was left */
int zk_commit(zk_session_t *session);
int zk_serve(zk_session_t *session);
int zk_reap(int lock);

/* the leader's tree: for foreign claimers, and for the naive model */
void zk_claim(int lock, name_t *name, int plain);
void zk_unclaim(int lock, name_t *name);
void zk_replace(int lock, const name_t *name, name_t *by);
void zk_noise(int lock);
znode_t *zk_nodes(int lock, size_t *n);
znode_t *zk_find(int lock, const name_t *name);


/* --- sim_gateway.c -------------------------------------------------------- */

typedef enum {
    RECORD_FREE = 0,
    RECORD_NEW,
    RECORD_WAITING,
    RECORD_HELD,
    RECORD_ENDED
} record_e;


typedef struct {
    record_e            state;
    uint64_t            id;
    zkl_kind_t          kind;
    int                 worker;
    int                 process;        /* of the worker */
    int                 lock;
    int64_t             seq;            /* -1: not published */
    int64_t             czxid;          /* 0: unknown */
    unsigned            watchers;       /* a bit a worker */
    unsigned            owned:1;        /* not to be taken */
} record_t;


typedef enum {
    CLAIM_START = 0,                    /* no znode; not connected */
    CLAIM_CREATE,                       /* maybe; the create is under way */
    CLAIM_RECOVER,                      /* maybe; the reply was lost */
    CLAIM_LIVE,                         /* yes */
    CLAIM_DELETE,                       /* maybe; the delete is under way */
    CLAIM_OWED                          /* maybe; a delete is owed */
} claim_e;


typedef struct {
    zkl_entry_t         entry;          /* must be first */
    claim_e             state;
    int                 worker;
    int                 lock;
    name_t              name;
    int64_t             czxid;          /* 0: unknown */
    unsigned            held:1;
    unsigned            ended:1;        /* the delete is decided */
} claim_t;


/* a lock, as a worker knows the lock */

typedef struct {
    zkl_view_t          view;
    uint64_t            mark;
    int64_t             born;           /* a zxid when the parent was there */
    unsigned            listing:1;
    unsigned            recovering:1;   /* the list is the first */
    unsigned            guarding:1;
} lock_t;


typedef struct {
    int                 index;
    int                 process;
    zk_session_t       *session;
    lock_t              locks[SIM_LOCKS];
    claim_t            *claims[SIM_CLAIMS];
    size_t              nclaims;
    unsigned            subs;          /* a bit a lock */
    unsigned            connected:1;
} worker_t;


void gateway_reset(int nworkers);
void gateway_done(void);
worker_t *gateway_worker(int index);
record_t *gateway_record(int index);
size_t gateway_entries(void);           /* not given back */

/* NULL if there is no room */
claim_t *gateway_acquire(worker_t *worker, int lock, zkl_kind_t kind);
void gateway_end(claim_t *claim);

/* a step of a worker; 0: no step was left */
int gateway_deliver(worker_t *worker);
int gateway_answer(worker_t *worker);
void gateway_reconnect(worker_t *worker);
void gateway_lost(worker_t *worker, zk_session_t *session);

/* replaces the process of the worker by a process without knowledge */
void gateway_crash(worker_t *worker, zk_session_t *session);

/* takes the records of a dead process, when the session is over */
void gateway_reclaim(int process);

/* the naive model's checks; in view_sim.c */
void granted(claim_t *claim);
void refused(claim_t *claim);


#endif /* _SIM_H_INCLUDED_ */
