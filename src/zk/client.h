
/*
 * The client: the interface to libzookeeper_mt.
 *
 * zk/client.c alone includes zookeeper.h.  The client opens and closes handles,
 * submits operations and batches, and turns what the threads of libzookeeper
 * report into messages.  The client keeps no state but the handle, because the
 * session remembers what is in flight.
 */


#ifndef _ZKL_CLIENT_H_INCLUDED_
#define _ZKL_CLIENT_H_INCLUDED_


#include "zk/session.h"


/* operations in one transaction, without the write to the gate */
#define ZKL_BATCH_MAX                 128

/* the longest data that are read whole, because they are written once more */
#define ZKL_WHOLE_MAX                 (512 * 1024)


typedef struct zkl_handle_s  zkl_handle_t;


/* what a handle reports without a request */

typedef enum {
    ZKL_NEWS_CONNECTED = 0,
    ZKL_NEWS_SUSPENDED,
    ZKL_NEWS_EXPIRED,
    ZKL_NEWS_AUTH_FAILED,
    ZKL_NEWS_DELETED,                   /* path */
    ZKL_NEWS_CHANGED,                   /* path */
    ZKL_NEWS_LISTED,                    /* path */
    ZKL_NEWS_MISSED                     /* no memory for a message */
} zkl_news_e;


/* freed by the receiver */

typedef struct {
    zkl_message_t                    message;   /* must be first */
    zkl_session_t                   *session;
    zkl_news_e                       news;
    ngx_str_t                        path;
} zkl_news_t;


/*
 * Opens a handle for the key's session, or, if the id is 0, for a new session;
 * deliver gets the news.  Returns NULL if libzookeeper refused, or if there is
 * no memory.
 */
zkl_handle_t *zkl_client_open(zkl_session_conf_t *conf, const zkl_key_t *key,
    ngx_msec_t timeout, zkl_session_t *session, zkl_message_pt deliver,
    zkl_mailbox_t *mailbox, ngx_log_t *log);

/*
 * Closes a handle and, if the handle is connected, the session.  Joins the
 * threads of libzookeeper.  Operations may stay without an answer; the answered
 * operations are in the mailbox.
 */
void zkl_client_close(zkl_handle_t *h);

/* Cuts the connection, so that closing the handle does not end the session. */
void zkl_client_cut(zkl_handle_t *h);

/*
 * Gives a handle without a connection the list of servers of its conf.
 * Returns 0 if nothing was done, because the handle may have a connection by
 * now or, with TLS, may be in a handshake: try again later.
 */
ngx_uint_t zkl_client_servers(zkl_handle_t *h);

/*
 * Whether a handle can be closed at once, and without ending the session,
 * because there is no connection and no TLS handshake.
 */
ngx_uint_t zkl_client_idle(zkl_handle_t *h);

/*
 * Whether a server may have been asked for the session.  If not, a server
 * counts the session from a moment that is still to come.
 */
ngx_uint_t zkl_client_asked(zkl_handle_t *h);

/* The id, the password and the negotiated timeout of the handle's session. */
void zkl_client_key(zkl_handle_t *h, zkl_key_t *key);

/*
 * Submits op, whose message.deliver is set.  Returns libzookeeper's code; if
 * not 0, the operation did not happen and no message comes.
 */
int zkl_client_submit(zkl_handle_t *h, zkl_op_t *op);

/*
 * Gives an answered BATCH or BARRIER that has set the gate the data's version
 * and the zxid, and each operation of a BATCH its results.  gather then tells
 * whether the operation is still sure to succeed: it did, or failed only
 * because another operation of the BATCH did.
 */
void zkl_client_read_batch(zkl_op_t *batch);

/* Logs how many lines of libzookeeper were left out; the next is logged. */
void zkl_client_listen(void);

/* What a code means for the operation that got the code. */
zkl_rc_e zkl_client_rc(int code);

/* Whether the operation was refused because the session is over. */
ngx_uint_t zkl_client_expired(int code);

/* A code as text, for logs. */
const char *zkl_client_text(int code);


#endif /* _ZKL_CLIENT_H_INCLUDED_ */
