
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


#ifndef _NGX_HTTP_ZK_LOCK_SESSION_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_SESSION_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "zk_lock_label.h"
#include "zk_lock_mailbox.h"


/* ZooKeeper is out of reach when it has not answered for so long, in ms */
#define NGX_HTTP_ZK_LOCK_PATIENCE     900

/* where the gates of all sessions are, and the digits of a gate's name */
#define NGX_HTTP_ZK_LOCK_GATES        "/zk_lock_gates"
#define NGX_HTTP_ZK_LOCK_GATE_LEN     16


typedef struct ngx_http_zk_lock_session_s  ngx_http_zk_lock_session_t;
typedef struct ngx_http_zk_lock_op_s       ngx_http_zk_lock_op_t;


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
} ngx_http_zk_lock_key_t;


/* what came of an operation */

typedef enum {
    NGX_HTTP_ZK_LOCK_OK = 0,
    NGX_HTTP_ZK_LOCK_NO_NODE,
    NGX_HTTP_ZK_LOCK_EXISTS,
    NGX_HTTP_ZK_LOCK_NO_AUTH,
    NGX_HTTP_ZK_LOCK_CHANGED,       /* its data have another version */
    NGX_HTTP_ZK_LOCK_UNSUPPORTED,   /* by this server */
    NGX_HTTP_ZK_LOCK_CHILDLESS,     /* its parent is ephemeral */
    NGX_HTTP_ZK_LOCK_REFUSED,       /* for another reason; was logged */
    NGX_HTTP_ZK_LOCK_UNSENT,        /* not connected: it did not happen */
    NGX_HTTP_ZK_LOCK_UNKNOWN        /* it may have happened */
} ngx_http_zk_lock_rc_e;


typedef enum {
    NGX_HTTP_ZK_LOCK_OP_CREATE = 0, /* ephemeral and sequential */
    NGX_HTTP_ZK_LOCK_OP_GATE,       /* ephemeral: the session's own, or a
                                       lock's znode */
    NGX_HTTP_ZK_LOCK_OP_CONTAINER,
    NGX_HTTP_ZK_LOCK_OP_PERSISTENT,
    NGX_HTTP_ZK_LOCK_OP_DELETE,     /* of version */
    NGX_HTTP_ZK_LOCK_OP_SET,        /* the data of version */
    NGX_HTTP_ZK_LOCK_OP_RENAME,     /* another znode in a claim's place */
    NGX_HTTP_ZK_LOCK_OP_BARRIER,    /* changes nothing; the last of those that
                                       a quorum commits */
    NGX_HTTP_ZK_LOCK_OP_GET,
    NGX_HTTP_ZK_LOCK_OP_EXISTS,     /* OK or NO_NODE */
    NGX_HTTP_ZK_LOCK_OP_LIST
} ngx_http_zk_lock_op_e;


typedef void (*ngx_http_zk_lock_op_pt)(ngx_http_zk_lock_op_t *op);


/* what is under way in the library: an operation alone, or a batch of them */

typedef struct {
    zk_lock_message_t              message;     /* must be first */
    ngx_queue_t                    queue;
    ngx_http_zk_lock_session_t    *session;
    ngx_msec_t                     sent;
    uint64_t                       number;      /* of a write; of a fresh read:
                                                   of the last write before */
    int                            code;        /* the library's */
    unsigned                       write:1;     /* a quorum commits it */
    unsigned                       counted:1;   /* one of session->writes */
} ngx_http_zk_lock_flight_t;


/*
 * One operation.  It is allocated by ngx_http_zk_lock_op_new(), belongs to the
 * session from ngx_http_zk_lock_session_send() on, and is freed when handler
 * has returned.  To cancel is to set handler to NULL: the operation itself
 * lives until ZooKeeper answers.
 */

struct ngx_http_zk_lock_op_s {
    ngx_http_zk_lock_flight_t      flight;      /* must be first */

    ngx_http_zk_lock_op_pt         handler;     /* NULL: cancelled */
    void                          *data;

    ngx_http_zk_lock_op_e          type;
    ngx_http_zk_lock_rc_e          rc;

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
    void   (*connected)(void *data, const ngx_http_zk_lock_key_t *fresh);
    /* the connection broke; the session may come back */
    void   (*suspended)(void *data);
    /* the session is over, and with it all that was made through it */
    void   (*lost)(void *data);
    /* no answer for NGX_HTTP_ZK_LOCK_PATIENCE */
    void   (*unreachable)(void *data);
    /* a watch of a GET fired; or any, if deleted */
    void   (*changed)(void *data, ngx_str_t *path, ngx_uint_t deleted);
    /* a watch of a LIST fired, or of an EXISTS that found nothing */
    void   (*listed)(void *data, ngx_str_t *path);
} ngx_http_zk_lock_session_events_t;


typedef struct {
    ngx_str_t                      servers;     /* numeric addresses, NUL */
    ngx_str_t                      chroot;      /* "" or "/..." */
    ngx_str_t                      auth_scheme; /* "": none; NUL */
    ngx_str_t                      auth;
    ngx_str_t                      certificates;
                                                /* "": no TLS; paths of the
                                                   CA's, ours, its key; NUL */
    ngx_msec_t                     timeout;
} ngx_http_zk_lock_session_conf_t;


/* NGX_HTTP_ZK_LOCK_GATES */
extern ngx_str_t  ngx_http_zk_lock_gates;


/*
 * Opens a session; conf, events and mailbox outlive it.  *alive is kept at the
 * time until when the session surely lives.  With a key the session of a
 * process that is dead is taken over: all that was made through it is still
 * there, but its watches are not; nothing is created through it, and when it is
 * over no new one is opened.  Returns NULL if there is no memory; that
 * ZooKeeper is not there is no error.
 */
ngx_http_zk_lock_session_t *ngx_http_zk_lock_session_open(
    ngx_http_zk_lock_session_conf_t *conf, zk_lock_mailbox_t *mailbox,
    const ngx_http_zk_lock_session_events_t *events, void *data,
    const ngx_http_zk_lock_key_t *key, ngx_atomic_t *alive, ngx_log_t *log);

/*
 * Ends the session, and frees all that is under way; no handler is called.
 * Blocks for the time of one round trip, 1.5 to 4.5 s if the server hangs.
 */
void ngx_http_zk_lock_session_close(ngx_http_zk_lock_session_t *s);

/*
 * The same, but leaves the session as it is: it lives on until its timeout,
 * and who has its key can take it over.
 */
void ngx_http_zk_lock_session_leave(ngx_http_zk_lock_session_t *s);

/*
 * The name of the session's gate, 16 hexadecimal digits: an ephemeral znode of
 * the session below /zk_lock_gates.  NGX_AGAIN: it is not there yet, and is
 * asked for.  NGX_DECLINED: ZooKeeper refused; it is asked for again later.
 */
ngx_int_t ngx_http_zk_lock_session_gated(ngx_http_zk_lock_session_t *s,
    ngx_str_t *name);

/* The gate is not there any more: it is made again, under the same name. */
void ngx_http_zk_lock_session_ungated(ngx_http_zk_lock_session_t *s);

/*
 * A new operation on dir, or on dir/name if name is not NULL or empty; value
 * may be NULL.  All three are copied.  Returns NULL if there is no memory.
 */
ngx_http_zk_lock_op_t *ngx_http_zk_lock_op_new(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_e type, ngx_str_t *dir, ngx_str_t *name,
    ngx_str_t *value);

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
ngx_http_zk_lock_op_t *ngx_http_zk_lock_op_rename(
    ngx_http_zk_lock_session_t *s, ngx_str_t *dir, ngx_str_t *name,
    ngx_str_t *to, ngx_str_t *value, int32_t version,
    ngx_http_zk_lock_op_t *get);

/* Sends op, or gathers it for the next transaction; never fails at once. */
void ngx_http_zk_lock_session_send(ngx_http_zk_lock_op_t *op);

/* Whether ZooKeeper is not known to be out of reach. */
ngx_uint_t ngx_http_zk_lock_session_reachable(ngx_http_zk_lock_session_t *s);

/* The same, and it is connected: what is sent now may be answered soon. */
ngx_uint_t ngx_http_zk_lock_session_ready(ngx_http_zk_lock_session_t *s);

/*
 * Whether there has been no memory for any operation for a while: nothing can
 * be asked, and nobody would be told that by the silence.
 */
ngx_uint_t ngx_http_zk_lock_session_starved(ngx_http_zk_lock_session_t *s);

/*
 * Whether ZooKeeper has answered lately, so that the session can be closed
 * without a wait.  If not, it is asked for something: try again in a second.
 */
ngx_uint_t ngx_http_zk_lock_session_prompt(ngx_http_zk_lock_session_t *s);

/* Whether the session is connected. */
ngx_uint_t ngx_http_zk_lock_session_connected(ngx_http_zk_lock_session_t *s);

/* Whether the session surely lives at this very moment. */
ngx_uint_t ngx_http_zk_lock_session_alive(ngx_http_zk_lock_session_t *s);

/*
 * Takes room for an ephemeral node's path of len bytes.  ZooKeeper does not
 * survive the end of a session that owns about 2 MB of them (ZOOKEEPER-4306).
 * Returns NGX_OK, or NGX_BUSY if there is no room.
 */
ngx_int_t ngx_http_zk_lock_session_reserve(ngx_http_zk_lock_session_t *s,
    size_t len);
void ngx_http_zk_lock_session_unreserve(ngx_http_zk_lock_session_t *s,
    size_t len);

/*
 * Whether one more watch, on a path of len bytes, is within the bounds: one
 * that spares reads, or one that somebody waits for, who has as much room left
 * as all of the others.
 */
ngx_uint_t ngx_http_zk_lock_session_may_watch(ngx_http_zk_lock_session_t *s,
    size_t len);
ngx_uint_t ngx_http_zk_lock_session_must_watch(ngx_http_zk_lock_session_t *s,
    size_t len);

/* Whether the data of path are watched, as far as is known. */
ngx_uint_t ngx_http_zk_lock_session_watches(ngx_http_zk_lock_session_t *s,
    ngx_str_t *path);

/*
 * Milliseconds of the monotonic clock: what ngx_current_msec is, but not
 * cached, since a process can be stopped for long in the middle of a turn.
 */
ngx_msec_t ngx_http_zk_lock_now(void);

/* Whether a moment is still to come. */
#define ngx_http_zk_lock_ahead(moment)                                        \
    ((ngx_msec_int_t) ((moment) - ngx_http_zk_lock_now()) > 0)


#endif /* _NGX_HTTP_ZK_LOCK_SESSION_H_INCLUDED_ */
