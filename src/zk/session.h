
/*
 * The session: one ZooKeeper session of one worker, and all that is asked
 * through it.
 *
 * Everything here runs on the event loop.  Nothing calls back from inside the
 * function that asked: answers, refusals and events come in a later turn.
 *
 * Paths are those of this project's users: the chroot of zk_lock_servers is
 * put in front of them and taken off again inside.
 */


#ifndef _ZKL_SESSION_H_INCLUDED_
#define _ZKL_SESSION_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "base/claim_data.h"
#include "base/mailbox.h"


/* ZooKeeper is out of reach when it has not answered for so long, in ms */
#define ZKL_PATIENCE                  900

/* where the gates of all sessions are, and the digits of a gate's name */
#define ZKL_GATES                     "/zk_lock_gates"


typedef struct zkl_session_s  zkl_session_t;
typedef struct zkl_op_s       zkl_op_t;


/*
 * A session's id and password.  Who knows them has the session, and all that
 * was made through it: they are never logged.  ZooKeeper keeps the timeout that
 * the session was made with, and a new leader goes by that: so it is asked for
 * again when the session is taken over.
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
    ZKL_NO_AUTH,
    ZKL_CHANGED,                    /* its data have another version */
    ZKL_UNSUPPORTED,                /* by this server */
    ZKL_CHILDLESS,                  /* its parent is ephemeral */
    ZKL_REFUSED,                    /* for another reason; was logged */
    ZKL_UNSENT,                     /* not connected: it did not happen */
    ZKL_UNKNOWN                     /* it may have happened */
} zkl_rc_e;


typedef enum {
    ZKL_OP_CREATE = 0,              /* ephemeral and sequential */
    ZKL_OP_GATE,                    /* ephemeral: the session's own, or a
                                       lock's znode */
    ZKL_OP_CONTAINER,
    ZKL_OP_PERSISTENT,
    ZKL_OP_DELETE,                  /* of version */
    ZKL_OP_SET,                     /* the data of version */
    ZKL_OP_RENAME,                  /* another znode in a claim's place */
    ZKL_OP_BARRIER,                 /* changes nothing; the last of those that
                                       a quorum commits */
    ZKL_OP_GET,
    ZKL_OP_EXISTS,                  /* OK or NO_NODE */
    ZKL_OP_LIST
} zkl_op_e;


typedef void (*zkl_op_pt)(zkl_op_t *op);


/* what is under way in the library: an operation alone, or a batch of them */

typedef struct {
    zkl_message_t                  message;     /* must be first */
    ngx_queue_t                    queue;
    zkl_session_t                 *session;
    ngx_msec_t                     sent;
    uint64_t                       number;      /* of a write; of a fresh read:
                                                   of the last write before */
    int                            code;        /* the library's */
    unsigned                       write:1;     /* a quorum commits it */
    unsigned                       counted:1;   /* one of session->writes */
} zkl_flight_t;


/*
 * One operation.  It is allocated by zkl_op_new(), belongs to the
 * session from zkl_session_send() on, and is freed when handler
 * has returned.  To cancel is to set handler to NULL: the operation itself
 * lives until ZooKeeper answers.
 */

struct zkl_op_s {
    zkl_flight_t                   flight;      /* must be first */

    zkl_op_pt                      handler;     /* NULL: cancelled */
    void                          *data;

    zkl_op_e                       type;
    zkl_rc_e                       rc;

    ngx_str_t                      path;        /* with the chroot, NUL */
    ngx_str_t                      value;       /* what to write */
    size_t                         index_at;    /* of the label's index */

    ngx_str_t                      reply;       /* CREATE: the name; GET */
    int64_t                        czxid;       /* CREATE, GET */
    int64_t                        mzxid;       /* GET */
    int64_t                        ctime;       /* GET; ms since the epoch */
    int64_t                        owner;       /* GET: the session's id */
    int32_t                        from_version;    /* RENAME: of the claim */
    int32_t                        version;     /* GET, SET: the data's;
                                                   DELETE, SET: -1: any */
    ngx_uint_t                     index;       /* CREATE */

    ngx_str_t                     *children;    /* LIST; names */
    ngx_uint_t                     nchildren;

    ngx_str_t                      target;      /* RENAME: the new path, NUL */
    ngx_str_t                      parent;      /* RENAME: of the claim, NUL;
                                                   "": the claim has no parent
                                                   that is to be set */
    ngx_str_t                      content;     /* the parent's data */
    void                          *more;        /* what these are in; GET: a
                                                   reply that is longer */
    void                          *results;     /* RENAME, BARRIER: the
                                                   library's */

    unsigned                       persistent:1;    /* RENAME: so is the new
                                                       znode */
    unsigned                       whole:1;     /* GET: not only what may be a
                                                   label */
    unsigned                       cut:1;       /* GET: the reply is longer, or
                                                   there was no memory */
    unsigned                       gather:1;    /* sure to succeed: it may
                                                   share a transaction */
    unsigned                       patient:1;   /* of those: nobody's turn
                                                   waits for it */
    unsigned                       watch:1;     /* GET, EXISTS, LIST: set a
                                                   watch too */
    unsigned                       fresh:1;     /* GET, LIST: what is read is
                                                   no older than this call */
};


/* up-calls; data is the first argument of each */

typedef struct {
    /* fresh: the key of a new session, nothing of an older one is left; NULL:
       the session is back */
    void   (*connected)(void *data, const zkl_key_t *fresh);
    /* the connection broke; the session may come back */
    void   (*suspended)(void *data);
    /* the session is over, and with it all that was made through it */
    void   (*lost)(void *data);
    /* no answer for ZKL_PATIENCE */
    void   (*unreachable)(void *data);
    /* a watch of a GET fired; or any, if deleted */
    void   (*changed)(void *data, ngx_str_t *path, ngx_uint_t deleted);
    /* a watch of a LIST fired, or of an EXISTS that found nothing */
    void   (*listed)(void *data, ngx_str_t *path);
} zkl_session_events_t;


typedef struct {
    ngx_str_t                      servers;     /* numeric addresses, NUL */
    ngx_str_t                      chroot;      /* "" or "/..." */
    ngx_str_t                      auth_scheme; /* "": none; NUL */
    ngx_str_t                      auth;
    ngx_str_t                      certificates;
                                                /* "": no TLS; paths of the
                                                   CA's, ours, its key; NUL */
    ngx_msec_t                     timeout;
} zkl_session_conf_t;


/* ZKL_GATES */
extern ngx_str_t  zkl_gates;


/*
 * Opens a session; conf, events and mailbox outlive it.  *alive is kept at the
 * time until when the session surely lives.  With a key the session of a
 * process that is dead is taken over: all that was made through it is still
 * there, but its watches are not; nothing is created through it, and when it is
 * over no new one is opened.  Returns NULL if there is no memory; that
 * ZooKeeper is not there is no error.
 */
zkl_session_t *zkl_session_open(zkl_session_conf_t *conf,
    zkl_mailbox_t *mailbox, const zkl_session_events_t *events, void *data,
    const zkl_key_t *key, ngx_atomic_t *alive, ngx_log_t *log);

/*
 * Ends the session, and frees all that is under way; no handler is called.
 * Blocks for the time of one round trip, 1.5 to 4.5 s if the server hangs.
 */
void zkl_session_close(zkl_session_t *s);

/*
 * The same, but leaves the session as it is: it lives on until its timeout,
 * and who has its key can take it over.
 */
void zkl_session_leave(zkl_session_t *s);

/*
 * The name of the session's gate, 16 hexadecimal digits: an ephemeral znode of
 * the session below /zk_lock_gates.  NGX_AGAIN: it is not there yet, and is
 * asked for.  NGX_DECLINED: ZooKeeper refused; it is asked for again later.
 */
ngx_int_t zkl_session_gated(zkl_session_t *s, ngx_str_t *name);

/* The gate is not there any more: it is made again, under the same name. */
void zkl_session_ungated(zkl_session_t *s);

/*
 * A new operation on dir, or on dir/name if name is not NULL or empty; value
 * may be NULL.  All three are copied.  Returns NULL if there is no memory.
 */
zkl_op_t *zkl_op_new(zkl_session_t *s, zkl_op_e type, ngx_str_t *dir,
    ngx_str_t *name, ngx_str_t *value);

/*
 * A new operation that puts a znode with value into the place of the claim
 * dir/name, whose data have that version, in one transaction.  get is a GET of
 * dir: dir is set to what it has read.  If name is "", the claim is dir itself,
 * and get is NULL: then the new znode can have no children, as before.
 *
 * The new znode is an ephemeral of this session unless op->persistent is set.
 * If it has the name of the claim, its data are set as often as is necessary
 * for a version that the claim never had, so that a write by such a version is
 * refused.
 *
 * CHANGED: dir or the claim are not as they were read.  Returns NULL if there
 * is no memory.
 */
zkl_op_t *zkl_op_rename(zkl_session_t *s, ngx_str_t *dir, ngx_str_t *name,
    ngx_str_t *to, ngx_str_t *value, int32_t version, zkl_op_t *get);

/* Sends op, or gathers it for the next transaction; never fails at once. */
void zkl_session_send(zkl_op_t *op);

/* Whether ZooKeeper is not known to be out of reach. */
ngx_uint_t zkl_session_reachable(zkl_session_t *s);

/* The same, and it is connected: what is sent now may be answered soon. */
ngx_uint_t zkl_session_ready(zkl_session_t *s);

/*
 * Whether there has been no memory for any operation for a while: nothing can
 * be asked, and nobody would be told that by the silence.
 */
ngx_uint_t zkl_session_starved(zkl_session_t *s);

/*
 * Whether ZooKeeper has answered lately, so that the session can be closed
 * without a wait.  If not, it is asked for something: try again in a second.
 */
ngx_uint_t zkl_session_prompt(zkl_session_t *s);

/* Whether the session is connected. */
ngx_uint_t zkl_session_connected(zkl_session_t *s);

/* Whether the session surely lives at this very moment. */
ngx_uint_t zkl_session_alive(zkl_session_t *s);

/*
 * Takes room for an ephemeral node's path of len bytes.  ZooKeeper does not
 * survive the end of a session that owns about 2 MB of them (ZOOKEEPER-4306).
 * Returns NGX_OK, or NGX_BUSY if there is no room.
 */
ngx_int_t zkl_session_reserve(zkl_session_t *s, size_t len);
void zkl_session_unreserve(zkl_session_t *s, size_t len);

/*
 * Whether one more watch, on a path of len bytes, is within the bounds: one
 * that spares reads, or one that somebody waits for, who has as much room left
 * as all of the others.
 */
ngx_uint_t zkl_session_may_watch(zkl_session_t *s, size_t len);
ngx_uint_t zkl_session_must_watch(zkl_session_t *s, size_t len);

/* Whether the data of path are watched, as far as is known. */
ngx_uint_t zkl_session_watches(zkl_session_t *s, ngx_str_t *path);

/*
 * Milliseconds of the monotonic clock: what ngx_current_msec is, but not
 * cached, since a process can be stopped for long in the middle of a turn.
 */
ngx_msec_t zkl_now(void);

/* Whether a moment is still to come. */
#define zkl_ahead(moment)                                                      \
    ((ngx_msec_int_t) ((moment) - zkl_now()) > 0)


#endif /* _ZKL_SESSION_H_INCLUDED_ */
