
/*
 * The library: libzookeeper_mt, and nothing of it above this line.
 *
 * ngx_http_zk_lock_library.c is the only file that includes zookeeper.h.  It
 * opens and closes handles, submits operations and batches, and turns what
 * the library's threads say into messages.  It is stateless but for the
 * handle; what is under way is the session's to remember.
 */


#ifndef _ZKL_CLIENT_H_INCLUDED_
#define _ZKL_CLIENT_H_INCLUDED_


#include "zk/session.h"


/* operations in one transaction, without the gate */
#define ZKL_BATCH_MAX                 128

/* the longest data that are read as a whole, to be written once more */
#define ZKL_WHOLE_MAX                 (512 * 1024)


typedef struct zkl_handle_s  zkl_handle_t;


/* what a handle has to say, unasked */

typedef enum {
    ZKL_NEWS_CONNECTED = 0,
    ZKL_NEWS_SUSPENDED,
    ZKL_NEWS_EXPIRED,
    ZKL_NEWS_AUTH_FAILED,
    ZKL_NEWS_DELETED,                   /* path */
    ZKL_NEWS_CHANGED,                   /* path */
    ZKL_NEWS_LISTED,                    /* path */
    ZKL_NEWS_MISSED                     /* no memory for one of the others */
} zkl_news_e;


/* freed by the receiver */

typedef struct {
    zkl_message_t                    message;   /* must be first */
    zkl_session_t                   *session;
    ngx_uint_t                       serial;    /* of the handle */
    zkl_news_e                       news;
    ngx_str_t                        path;
} zkl_news_t;


typedef struct {
    zkl_flight_t                     flight;    /* must be first */
    ngx_queue_t                      ops;       /* by flight.queue */
    ngx_uint_t                       nops;
    ngx_uint_t                       ncreates;
    ngx_str_t                       *gate;
    void                            *results;   /* the library's */
} zkl_batch_t;


/*
 * Opens a handle, for a new session or, with a key, for that one.  deliver
 * gets its news.  Returns NULL if the library refused; that was logged.
 */
zkl_handle_t *zkl_client_open(zkl_session_conf_t *conf, const zkl_key_t *key,
    ngx_msec_t timeout, zkl_session_t *session, ngx_uint_t serial,
    zkl_message_pt deliver, zkl_mailbox_t *mailbox, ngx_log_t *log);

/*
 * Closes a handle and, if it is connected, its session.  Joins the library's
 * threads.  Operations may be left without an answer; those that were
 * answered are in the mailbox.
 */
void zkl_client_close(zkl_handle_t *h);

/*
 * Cuts the connection, so that closing the handle does not end the session.
 */
void zkl_client_cut(zkl_handle_t *h);

/* The negotiated timeout, milliseconds. */
ngx_msec_t zkl_client_timeout(zkl_handle_t *h);

/*
 * Whether a server may have been asked for the session: if not, what comes of
 * that is later than now.
 */
ngx_uint_t zkl_client_asked(zkl_handle_t *h);

/* The id and password of the handle's session. */
void zkl_client_key(zkl_handle_t *h, zkl_key_t *key);

/*
 * Submits op, whose flight.message.deliver is set.  Returns a code of the
 * library; if it is not 0 the operation did not happen, and no message comes.
 */
int zkl_client_submit(zkl_handle_t *h, zkl_op_t *op);

/* The same for a batch. */
int zkl_client_submit_batch(zkl_handle_t *h, zkl_batch_t *batch);

/* Gives each operation of an answered batch its code and results. */
void zkl_client_read_batch(zkl_batch_t *batch);

/* Frees a batch, not its operations. */
void zkl_client_free_batch(zkl_batch_t *batch);

/* What a code means for the operation that got it. */
zkl_rc_e zkl_client_rc(int code);

/* Whether a code in a batch only says that another operation failed. */
ngx_uint_t zkl_client_innocent(int code);

/* A code as text, for logs. */
const char *zkl_client_text(int code);


#endif /* _ZKL_CLIENT_H_INCLUDED_ */
