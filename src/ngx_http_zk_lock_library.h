
/*
 * The library: libzookeeper_mt, and nothing of it above this line.
 *
 * ngx_http_zk_lock_library.c is the only file that includes zookeeper.h.  It
 * opens and closes handles, submits operations and batches, and turns what
 * the library's threads say into messages.  It is stateless but for the
 * handle; what is under way is the session's to remember.
 */


#ifndef _NGX_HTTP_ZK_LOCK_LIBRARY_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_LIBRARY_H_INCLUDED_


#include "ngx_http_zk_lock_session.h"


/* operations in one transaction, without the gate */
#define NGX_HTTP_ZK_LOCK_BATCH_MAX    128

/* the longest data that are read as a whole, to be written once more */
#define NGX_HTTP_ZK_LOCK_WHOLE_MAX    (512 * 1024)


typedef struct ngx_http_zk_lock_handle_s  ngx_http_zk_lock_handle_t;


/* what a handle has to say, unasked */

typedef enum {
    NGX_HTTP_ZK_LOCK_NEWS_CONNECTED = 0,
    NGX_HTTP_ZK_LOCK_NEWS_SUSPENDED,
    NGX_HTTP_ZK_LOCK_NEWS_EXPIRED,
    NGX_HTTP_ZK_LOCK_NEWS_AUTH_FAILED,
    NGX_HTTP_ZK_LOCK_NEWS_DELETED,      /* path */
    NGX_HTTP_ZK_LOCK_NEWS_CHANGED,      /* path */
    NGX_HTTP_ZK_LOCK_NEWS_LISTED,       /* path */
    NGX_HTTP_ZK_LOCK_NEWS_MISSED        /* no memory for one of the others */
} ngx_http_zk_lock_news_e;


/* freed by the receiver */

typedef struct {
    zk_lock_message_t                message;   /* must be first */
    ngx_http_zk_lock_session_t      *session;
    ngx_uint_t                       serial;    /* of the handle */
    ngx_http_zk_lock_news_e          news;
    ngx_str_t                        path;
} ngx_http_zk_lock_news_t;


typedef struct {
    ngx_http_zk_lock_flight_t        flight;    /* must be first */
    ngx_queue_t                      ops;       /* by flight.queue */
    ngx_uint_t                       nops;
    ngx_uint_t                       ncreates;
    ngx_str_t                       *gate;
    void                            *results;   /* the library's */
} ngx_http_zk_lock_batch_t;


/*
 * Opens a handle, for a new session or, with a key, for that one.  deliver
 * gets its news.  Returns NULL if the library refused; that was logged.
 */
ngx_http_zk_lock_handle_t *ngx_http_zk_lock_library_open(
    ngx_http_zk_lock_session_conf_t *conf, const ngx_http_zk_lock_key_t *key,
    ngx_msec_t timeout, ngx_http_zk_lock_session_t *session, ngx_uint_t serial,
    zk_lock_message_pt deliver, zk_lock_mailbox_t *mailbox, ngx_log_t *log);

/*
 * Closes a handle and, if it is connected, its session.  Joins the library's
 * threads.  Operations may be left without an answer; those that were
 * answered are in the mailbox.
 */
void ngx_http_zk_lock_library_close(ngx_http_zk_lock_handle_t *h);

/*
 * Cuts the connection, so that closing the handle does not end the session.
 */
void ngx_http_zk_lock_library_cut(ngx_http_zk_lock_handle_t *h);

/* The negotiated timeout, milliseconds. */
ngx_msec_t ngx_http_zk_lock_library_timeout(ngx_http_zk_lock_handle_t *h);

/*
 * Whether a server may have been asked for the session: if not, what comes of
 * that is later than now.
 */
ngx_uint_t ngx_http_zk_lock_library_asked(ngx_http_zk_lock_handle_t *h);

/* The id and password of the handle's session. */
void ngx_http_zk_lock_library_key(ngx_http_zk_lock_handle_t *h,
    ngx_http_zk_lock_key_t *key);

/*
 * Submits op, whose flight.message.deliver is set.  Returns a code of the
 * library; if it is not 0 the operation did not happen, and no message comes.
 */
int ngx_http_zk_lock_library_submit(ngx_http_zk_lock_handle_t *h,
    ngx_http_zk_lock_op_t *op);

/* The same for a batch. */
int ngx_http_zk_lock_library_submit_batch(ngx_http_zk_lock_handle_t *h,
    ngx_http_zk_lock_batch_t *batch);

/* Gives each operation of an answered batch its code and results. */
void ngx_http_zk_lock_library_read_batch(ngx_http_zk_lock_batch_t *batch);

/* Frees a batch, not its operations. */
void ngx_http_zk_lock_library_free_batch(ngx_http_zk_lock_batch_t *batch);

/* What a code means for the operation that got it. */
ngx_http_zk_lock_rc_e ngx_http_zk_lock_library_rc(int code);

/* Whether a code in a batch only says that another operation failed. */
ngx_uint_t ngx_http_zk_lock_library_innocent(int code);

/* A code as text, for logs. */
const char *ngx_http_zk_lock_library_text(int code);


#endif /* _NGX_HTTP_ZK_LOCK_LIBRARY_H_INCLUDED_ */
