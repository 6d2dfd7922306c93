
/* The log of zk_lock_log: a line for each grant, and for each end. */


#ifndef _NGX_HTTP_ZK_LOCK_LOG_H_INCLUDED_
#define _NGX_HTTP_ZK_LOCK_LOG_H_INCLUDED_


#include "http/request.h"


/* the least buffer, which has room for the longest line */
#define NGX_HTTP_ZK_LOCK_LOG_LEAST    16384


/*
 * Begins as the buffer of an access log: with "buffer" the file has this one,
 * and an access log that is given the same file puts lines into it, too.
 */

typedef struct {
    u_char                            *start;
    u_char                            *pos;
    u_char                            *last;
    ngx_event_t                       *event;   /* NULL: no "flush" */
    ngx_msec_t                         flush;
    ngx_uint_t                         keeps;   /* lines, until full */
    time_t                             failed;  /* when an error was logged */
} ngx_http_zk_lock_log_buf_t;


struct ngx_http_zk_lock_log_s {
    ngx_open_file_t                   *file;
    ngx_http_zk_lock_log_buf_t        *buffer;
    ngx_int_t                          request; /* index of $request_id */
};


/* Has the log hear of the worker's claims; does nothing without zk_lock_log. */
void ngx_http_zk_lock_log_open(ngx_http_zk_lock_main_conf_t *zmcf);

/* The worker leaves: writes what is in the buffer. */
void ngx_http_zk_lock_log_close(ngx_http_zk_lock_main_conf_t *zmcf);

/* The same at "flush". */
void ngx_http_zk_lock_log_flush_handler(ngx_event_t *ev);

/* Makes the file, unless it exists, with the mode 0640. */
void ngx_http_zk_lock_log_create(ngx_open_file_t *file);

/* Flushes the buffer, if any, and makes the file: of the ngx_open_file_t. */
void ngx_http_zk_lock_log_reopen(ngx_open_file_t *file, ngx_log_t *log);

/* The id of the request, for a claim; empty without zk_lock_log. */
ngx_str_t ngx_http_zk_lock_log_request(ngx_http_request_t *r);

/*
 * The operator user has done event, "break" or "revoke", to a holder.  All
 * texts are UTF-8.
 */
void ngx_http_zk_lock_log_operator(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, const char *event, ngx_str_t *owner,
    int64_t fencing, ngx_str_t *user);


#endif /* _NGX_HTTP_ZK_LOCK_LOG_H_INCLUDED_ */
