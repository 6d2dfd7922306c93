
/*
 * The session: one ZooKeeper session of one worker, and the operations that the
 * worker sends through the session.
 *
 * All functions run on the event loop.  No handler is called from inside the
 * function that sends: answers, refusals and events come in a later turn.
 *
 * Paths are the caller's paths: the session adds the chroot of zk_lock_servers
 * in front and removes the chroot again.
 */


#ifndef _ZKL_SESSION_H_INCLUDED_
#define _ZKL_SESSION_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "base/claim_data.h"
#include "base/mailbox.h"


/* ZooKeeper is out of reach after this time without an answer, in ms */
#define ZKL_PATIENCE                  900

/* the bound of ephemeral paths, and of watched paths, of a session, in bytes */
#define ZKL_PATH_BYTES                1000000

/* the parent of the gates of all sessions */
#define ZKL_GATES                     "/zk_lock_gates"


typedef struct zkl_session_s  zkl_session_t;
typedef struct zkl_op_s       zkl_op_t;


/*
 * A session's id and password.  A process that knows the key has the session
 * and all znodes of the session, so a key is never logged.  ZooKeeper keeps the
 * timeout that the session was made with, and a new leader counts by this
 * timeout: so a takeover requests the same timeout again.
 */

typedef struct {
    int64_t                        id;
    u_char                         password[16];
    uint64_t                       timeout;     /* milliseconds */
} zkl_key_t;


/* what came of an operation */

typedef enum {
    ZKL_OK = 0,
    ZKL_NO_NODE,
    ZKL_EXISTS,
    ZKL_CHANGED,                    /* the data have another version */
    ZKL_CHILDLESS,                  /* the parent is ephemeral; the last that
                                       a quorum has committed */
    ZKL_NO_AUTH,
    ZKL_UNSUPPORTED,                /* by this server */
    ZKL_OVER_QUOTA,                 /* a quota of ZooKeeper forbids more */
    ZKL_REFUSED,                    /* for another reason; was logged */
    ZKL_UNSENT,                     /* not done: not connected, or no memory */
    ZKL_UNKNOWN                     /* perhaps done */
} zkl_rc_e;


typedef enum {
    ZKL_OP_CREATE = 0,              /* ephemeral and sequential */
    ZKL_OP_GATE,                    /* ephemeral: the session's own, or a lock's
                                       znode */
    ZKL_OP_CONTAINER,
    ZKL_OP_PERSISTENT,
    ZKL_OP_DELETE,                  /* of version */
    ZKL_OP_SET,                     /* the data of version */
    ZKL_OP_RENAME,                  /* another znode in a claim's place */
    ZKL_OP_BATCH,                   /* gathered operations, in a transaction */
    ZKL_OP_BARRIER,                 /* changes no claim; the last type that a
                                       quorum commits */
    ZKL_OP_GET,
    ZKL_OP_EXISTS,                  /* OK or NO_NODE */
    ZKL_OP_LIST
} zkl_op_e;


/* whether an operation waits for a turn, because its answer may be long */

typedef enum {
    ZKL_TURN_NONE = 0,              /* sent at once */
    ZKL_TURN_CLAIM,                 /* for a claim */
    ZKL_TURN_LOOK                   /* for a client that only looks */
} zkl_turn_e;


typedef void (*zkl_op_pt)(zkl_op_t *op);


/*
 * An operation.  zkl_op_new() allocates the operation, zkl_session_send()
 * passes the operation to the session, and the session frees the operation when
 * handler has returned.  A caller cancels by a handler of NULL; the operation
 * then lives until ZooKeeper answers.
 */

struct zkl_op_s {
    zkl_message_t                  message;     /* must be first */
    ngx_queue_t                    queue;
    zkl_session_t                 *session;

    zkl_op_pt                      handler;     /* NULL: none, or cancelled */
    void                          *data;

    zkl_op_e                       type;
    zkl_rc_e                       rc;
    int                            code;        /* of libzookeeper */

    ngx_msec_t                     sent;
    uint64_t                       number;      /* of a write; of a fresh read:
                                                   of the last write before */

    ngx_str_t                      path;        /* with the chroot, NUL */
    ngx_str_t                      value;       /* what to write */
    size_t                         index_at;    /* of the claim's index */

    ngx_str_t                      reply;       /* CREATE: the name; GET */
    ngx_uint_t                     cut;         /* GET: the reply is longer, or
                                                   there was no memory; no bit,
                                                   because a thread sets it */
    int64_t                        czxid;       /* CREATE, GET, BATCH */
    int64_t                        mzxid;       /* GET */
    int64_t                        ctime;       /* GET; ms since the epoch */
    int64_t                        owner;       /* GET: the session's id */
    int32_t                        version;     /* GET, LIST, SET: the data's;
                                                   BATCH, BARRIER: of the gate;
                                                   DELETE, SET: -1: any */
    ngx_uint_t                     index;       /* CREATE; BATCH: the number of
                                                   creates */

    ngx_str_t                     *children;    /* LIST; names */
    ngx_uint_t                     nchildren;
    int64_t                        given;       /* LIST: the number of children
                                                   that were ever created */

    void                          *more;        /* GET: a longer reply */
    void                          *results;     /* RENAME, BATCH, BARRIER: of
                                                   libzookeeper */
    ngx_queue_t                    ops;         /* BATCH, RENAME: the parts;
                                                   LIST: that get the same
                                                   answer */
    ngx_uint_t                     nops;        /* BATCH */

    /* of an operation with a turn, see turns.c */
    ngx_str_node_t                 listed;      /* LIST: in turns->lists */
    zkl_op_t                      *later;       /* LIST: the next list of the
                                                   path; or NULL */
    size_t                         bytes;       /* what the answer counts; 0:
                                                   not sent yet */

    unsigned                       turn:2;      /* GET, LIST: zkl_turn_e */
    unsigned                       childless:1; /* a part of RENAME: the new
                                                   znode can have no children */
    unsigned                       whole:1;     /* GET: also data that are no
                                                   claim data */
    unsigned                       gather:1;    /* sure to succeed: may share a
                                                   transaction; in flight: one
                                                   of session->writes */
    unsigned                       deferrable:1;   /* gathered, and no turn
                                                       waits for the answer */
    unsigned                       gate:1;      /* BATCH, BARRIER: sets the
                                                   session's gate */
    unsigned                       watch:1;     /* GET, EXISTS, LIST: set a
                                                   watch too */
    unsigned                       fresh:1;     /* GET, LIST: the data are no
                                                   older than this call */
};


/* events for the owner; data is the first argument of each function */

typedef struct {
    /* a new session, ahead of connected; nothing was sent yet */
    void   (*opened)(void *data, const zkl_key_t *key);
    /* fresh: a new session, and no znode of an older session is left; else the
       session is back */
    void   (*connected)(void *data, ngx_uint_t fresh);
    /* the connection broke; the session may come back */
    void   (*suspended)(void *data);
    /* the session is over, with the ephemerals of the session */
    void   (*lost)(void *data);
    /* no answer for ZKL_PATIENCE */
    void   (*unreachable)(void *data);
    /* a watch of GET fired, or of EXISTS with OK; or path is deleted */
    void   (*changed)(void *data, ngx_str_t *path, ngx_uint_t deleted);
    /* a watch of LIST fired, or of EXISTS with NO_NODE; or path is deleted */
    void   (*listed)(void *data, ngx_str_t *path);
    /* a create of the session was done in that transaction */
    void   (*made)(void *data, int64_t zxid);
    /* an answer, after that many milliseconds, to n operations at once; 0: to
       one that was sent alone */
    void   (*answered)(void *data, ngx_uint_t write, ngx_uint_t n,
                       ngx_msec_int_t time);
} zkl_session_events_t;


typedef struct {
    ngx_str_t                      servers;     /* numeric addresses, NUL; "":
                                                   none is known yet */
    ngx_uint_t                     changes;     /* of servers: a session without
                                                   a connection goes to the new
                                                   ones */
    ngx_str_t                      chroot;      /* "" or "/..." */
    ngx_str_t                      auth_scheme; /* "": none; NUL */
    ngx_str_t                      auth;
    ngx_str_t                      certificates;
                                                /* "": no TLS; paths of CA,
                                                   certificate and key; NUL */
    ngx_msec_t                     timeout;
    ngx_msec_t                     probe;       /* after how long without an
                                                   answer a session is asked, so
                                                   that an outage shows; 0: a
                                                   third of the timeout */
} zkl_session_conf_t;


/* ZKL_GATES */
extern ngx_str_t  zkl_gates;


/*
 * Opens a session; conf, events and mailbox outlive the session.  The session
 * keeps in *alive the time until when the session surely lives.  With a key the
 * worker takes over the session of a dead process: the znodes of that session
 * are still there, but the watches are not; the session makes no gate, and no
 * new session follows when ZooKeeper ends this session.  Returns NULL if there
 * is no memory; an absent ZooKeeper is no error.
 */
zkl_session_t *zkl_session_open(zkl_session_conf_t *conf,
    zkl_mailbox_t *mailbox, const zkl_session_events_t *events, void *data,
    const zkl_key_t *key, ngx_atomic_t *alive, ngx_log_t *log);

/*
 * Ends the session, and frees the operations in flight; no handler is called.
 * Blocks for the time of one round trip, 1.5 to 4.5 s if the server hangs.
 */
void zkl_session_close(zkl_session_t *s);

/*
 * As zkl_session_close(), but the session lives on until its timeout, and a
 * process that has the key can take over the session.
 */
void zkl_session_leave(zkl_session_t *s);

/*
 * The name of the session's gate, 16 hexadecimal digits: an ephemeral znode of
 * the session below /zk_lock_gates.  NGX_AGAIN: not there yet, and a create is
 * sent.  NGX_DECLINED: ZooKeeper refused; a create is sent again later.
 */
ngx_int_t zkl_session_gated(zkl_session_t *s, ngx_str_t *name);

/* The session's gate is gone: closes the session. */
void zkl_session_ungated(zkl_session_t *s);

/*
 * A new operation on dir, or on dir/name if name is not NULL or empty; value
 * may be NULL.  All three are copied.  Returns NULL if there is no memory.
 */
zkl_op_t *zkl_op_new(zkl_session_t *s, zkl_op_e type, ngx_str_t *dir,
    ngx_str_t *name, ngx_str_t *value);

/*
 * A new operation that replaces the claim dir/name, whose data have that
 * version, by a znode with value in one transaction.  get is a GET of dir, and
 * the transaction sets dir to the data that get has read.  If name is "", the
 * claim is dir, get is NULL, and the new znode can have no children.
 *
 * The new znode is an ephemeral of this session if type is ZKL_OP_GATE, and
 * persistent if type is ZKL_OP_PERSISTENT.  The parent is set first: a client
 * that watches the parent then knows, when the event of the deleted znode
 * comes, that a new znode comes.
 *
 * The versions of the new znode's data begin with 0 again.  If the new znode
 * has the name of the claim, its data are set once more often than the claim's,
 * so that a write that was meant for the claim is refused; only the last set
 * has the data.  A transaction has no room for more than ZKL_VERSIONS sets:
 * then a late write takes effect if the new znode has come to its version.
 *
 * The transaction makes the znode of `entry` as well, if entry is not NULL; the
 * operation owns entry.
 *
 * CHANGED: the version of dir or of the claim is another.  Returns NULL if
 * there is no memory; then entry is freed.
 */
zkl_op_t *zkl_op_rename(zkl_session_t *s, ngx_str_t *dir, ngx_str_t *name,
    ngx_str_t *to, ngx_str_t *value, int32_t version, zkl_op_e type,
    zkl_op_t *get, zkl_op_t *entry);

/*
 * Sends op, or gathers op for the next transaction; never fails at once.  The
 * handler, NULL if there is none, finds data in op->data.
 */
void zkl_session_send(zkl_op_t *op, zkl_op_pt handler, void *data);

/* Whether ZooKeeper is not known to be out of reach. */
ngx_uint_t zkl_session_reachable(zkl_session_t *s);

/* Whether the session is also connected, so that an answer may come soon. */
ngx_uint_t zkl_session_ready(zkl_session_t *s);

/*
 * Whether ZooKeeper has answered lately, so that the session can be closed
 * without a wait.  If not, a barrier is sent: try again in a second.
 */
ngx_uint_t zkl_session_prompt(zkl_session_t *s);

/* Whether the session is connected. */
ngx_uint_t zkl_session_connected(zkl_session_t *s);

/* Whether the session surely lives at this very moment. */
ngx_uint_t zkl_session_alive(zkl_session_t *s);

/*
 * Takes room for an ephemeral's path of len bytes.  ZooKeeper does not survive
 * the end of a session with about 2 MB of ephemeral paths (ZOOKEEPER-4306).
 * Returns NGX_OK, or NGX_BUSY if there is no room.
 */
ngx_int_t zkl_session_reserve(zkl_session_t *s, size_t len);
void zkl_session_unreserve(zkl_session_t *s, size_t len);

/*
 * Whether a further watch, on a path of len bytes, is within the bounds:
 * may_watch for a watch that only spares reads, must_watch for a watch that a
 * waiter needs, which has twice the room.
 */
ngx_uint_t zkl_session_may_watch(zkl_session_t *s, size_t len);
ngx_uint_t zkl_session_must_watch(zkl_session_t *s, size_t len);

/* Whether the data of path are watched, as far as is known. */
ngx_uint_t zkl_session_watches(zkl_session_t *s, ngx_str_t *path);

/*
 * Milliseconds of the monotonic clock: as ngx_current_msec, but not cached,
 * because a process can be stopped for long in the middle of a turn.
 */
ngx_msec_t zkl_now(void);

/* Whether a moment is still to come. */
#define zkl_ahead(moment)                                                      \
    ((ngx_msec_int_t) ((moment) - zkl_now()) > 0)


#endif /* _ZKL_SESSION_H_INCLUDED_ */
