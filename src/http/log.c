
/*
 * The log of zk_lock_log: a line for each grant, for each end, and for each act
 * of an operator.
 *
 * A line is a JSON object, and is put into the buffer whole.  Without "buffer"
 * the line is written at once.  The file is open for appending, so the lines of
 * several workers do not mix.  With "buffer" the lines are written when the
 * buffer is full, when "flush" is over, when nginx reopens the logs, and when
 * the worker leaves.
 *
 * Everything here runs on the event loop.  zmcf->log is NULL without
 * zk_lock_log.
 */


#include "http/log.h"
#include "http/answer.h"
#include "core/journal.h"


static void ngx_http_zk_lock_log_line(void *data, zkl_journal_t *line);
static u_char *ngx_http_zk_lock_log_begin(ngx_http_zk_lock_log_t *log,
    const char *event, ngx_str_t *path);
static u_char *ngx_http_zk_lock_log_text(u_char *p, const char *key,
    ngx_str_t *text);
static void ngx_http_zk_lock_log_end(ngx_http_zk_lock_log_t *log, u_char *p);
static void ngx_http_zk_lock_log_out(ngx_open_file_t *file,
    ngx_http_zk_lock_log_buf_t *buffer, ngx_log_t *log);


/* bytes of a line, at most */
#define NGX_HTTP_ZK_LOCK_LOG_LINE     4096


/* by zkl_journal_e */

static const char  *ngx_http_zk_lock_log_events[] = {
    "granted", "taken_over", "ended", "ended"
};


void
ngx_http_zk_lock_log_open(ngx_http_zk_lock_main_conf_t *zmcf)
{
    if (zmcf->log != NULL) {
        zkl_journal_open(zmcf->worker, ngx_http_zk_lock_log_line, zmcf->log);
    }
}


void
ngx_http_zk_lock_log_close(ngx_http_zk_lock_main_conf_t *zmcf)
{
    if (zmcf->log != NULL) {
        ngx_http_zk_lock_log_out(zmcf->log->file, zmcf->log->buffer,
                                 ngx_cycle->log);
    }
}


ngx_str_t
ngx_http_zk_lock_log_request(ngx_http_request_t *r)
{
    ngx_str_t                      id;
    ngx_http_variable_value_t     *value;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    ngx_str_null(&id);

    zmcf = ngx_http_get_module_main_conf(r, ngx_http_zk_lock_module);

    if (zmcf->log == NULL) {
        return id;
    }

    value = ngx_http_get_indexed_variable(r, zmcf->log->request);

    if (value != NULL && !value->not_found) {
        id.data = value->data;
        id.len = value->len;
    }

    return id;
}


static void
ngx_http_zk_lock_log_line(void *data, zkl_journal_t *line)
{
    ngx_http_zk_lock_log_t *log = data;

    u_char  *p;

    p = ngx_http_zk_lock_log_begin(log,
                                   ngx_http_zk_lock_log_events[line->event],
                                   &line->path);

    p = ngx_sprintf(p, ",\"mode\":\"%s\"",
                    ngx_http_zk_lock_mode_word(line->mode));

    if (zkl_mode_base(line->mode) == ZKL_SEMAPHORE) {
        p = ngx_sprintf(p, ",\"permits\":%uD", zkl_mode_permits(line->mode));
    }

    p = ngx_http_zk_lock_log_text(p, "owner", &line->owner);
    p = ngx_http_zk_lock_log_text(p, "from", &line->from);

    if (line->fencing != 0) {
        p = ngx_sprintf(p, ",\"fencing_token\":%L", line->fencing);
    }

    if (line->event == ZKL_JOURNAL_GRANTED) {
        p = ngx_sprintf(p, ",\"waited_ms\":%M", line->time);

    } else if (line->event == ZKL_JOURNAL_ENDED) {
        p = ngx_sprintf(p, ",\"held_ms\":%M", line->time);
    }

    if (line->reason != NULL) {
        p = ngx_sprintf(p, ",\"reason\":\"%s\"", line->reason);
    }

    p = ngx_http_zk_lock_log_text(p, "request", &line->request);

    ngx_http_zk_lock_log_end(log, p);
}


void
ngx_http_zk_lock_log_operator(ngx_http_request_t *r,
    ngx_http_zk_lock_ctx_t *ctx, const char *event, ngx_str_t *owner,
    int64_t fencing, ngx_str_t *user)
{
    u_char                        *p;
    ngx_str_t                      request;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    zmcf = ngx_http_get_module_main_conf(r, ngx_http_zk_lock_module);

    if (zmcf->log == NULL) {
        return;
    }

    request = ngx_http_zk_lock_log_request(r);

    p = ngx_http_zk_lock_log_begin(zmcf->log, event, &ctx->path);

    p = ngx_http_zk_lock_log_text(p, "owner", owner);
    p = ngx_sprintf(p, ",\"fencing_token\":%L", fencing);
    p = ngx_http_zk_lock_log_text(p, "user", user);
    p = ngx_http_zk_lock_log_text(p, "from", &r->connection->addr_text);
    p = ngx_http_zk_lock_log_text(p, "request", &request);

    ngx_http_zk_lock_log_end(zmcf->log, p);
}


/*
 * Begins a line in the buffer, which has room for any line then: the texts have
 * 463 (a path), 255, 512, 64 and 32 bytes at most, and an escape has two bytes.
 */

static u_char *
ngx_http_zk_lock_log_begin(ngx_http_zk_lock_log_t *log, const char *event,
    ngx_str_t *path)
{
    u_char                      *p, *zone;
    size_t                       len;
    ngx_time_t                  *tp;
    ngx_http_zk_lock_log_buf_t  *buffer;

    buffer = log->buffer;

    if (buffer->last - buffer->pos < NGX_HTTP_ZK_LOCK_LOG_LINE) {
        ngx_http_zk_lock_log_out(log->file, buffer, ngx_cycle->log);
    }

    /* the time as in nginx's $time_iso8601, with milliseconds */

    tp = ngx_timeofday();
    len = sizeof("2026-11-26T08:00:00") - 1;
    zone = ngx_cached_http_log_iso8601.data + len;

    p = ngx_sprintf(buffer->pos, "{\"time\":\"%*s.%03M%*s\",\"event\":\"%s\"",
                    len, ngx_cached_http_log_iso8601.data, tp->msec,
                    sizeof("+00:00") - 1, zone, event);

    return ngx_http_zk_lock_log_text(p, "path", path);
}


/* A member, unless text is empty. */

static u_char *
ngx_http_zk_lock_log_text(u_char *p, const char *key, ngx_str_t *text)
{
    size_t  n, at;

    if (text->len == 0) {
        return p;
    }

    p = ngx_sprintf(p, ",\"%s\":\"", key);
    at = 0;

    for ( ;; ) {
        n = zkl_text_shown_len((char *) text->data + at, text->len - at);
        p = (u_char *) ngx_escape_json(p, text->data + at, n);
        at += n;

        if (at == text->len) {
            break;
        }

        /* a byte that is no text; an owner and a path have none */

        *p++ = '?';
        at++;
    }

    *p++ = '"';

    return p;
}


/* p is the end of the line. */

static void
ngx_http_zk_lock_log_end(ngx_http_zk_lock_log_t *log, u_char *p)
{
    ngx_http_zk_lock_log_buf_t  *buffer;

    buffer = log->buffer;

    *p++ = '}';
    *p++ = LF;

    buffer->pos = p;

    if (!buffer->keeps) {
        ngx_http_zk_lock_log_out(log->file, buffer, ngx_cycle->log);

    } else if (buffer->event != NULL && !buffer->event->timer_set) {
        ngx_add_timer(buffer->event, buffer->flush);
    }
}


/* nginx calls this function before it opens the file again. */

void
ngx_http_zk_lock_log_reopen(ngx_open_file_t *file, ngx_log_t *log)
{
    if (file->data != NULL) {
        ngx_http_zk_lock_log_out(file, file->data, log);
    }

    ngx_http_zk_lock_log_create(file);
}


/*
 * nginx would make the file readable for all users.  If the file cannot be
 * made, nginx fails to open it, and says so.
 */

void
ngx_http_zk_lock_log_create(ngx_open_file_t *file)
{
    ngx_fd_t  fd;

    fd = ngx_open_file(file->name.data, NGX_FILE_APPEND,
                       NGX_FILE_CREATE_OR_OPEN, 0640);

    if (fd != NGX_INVALID_FILE) {
        (void) ngx_close_file(fd);
    }
}


/* Errors are logged once a minute, as those of an access log. */

static void
ngx_http_zk_lock_log_out(ngx_open_file_t *file,
    ngx_http_zk_lock_log_buf_t *buffer, ngx_log_t *log)
{
    size_t     len;
    ssize_t    n;
    ngx_err_t  err;

    len = buffer->pos - buffer->start;
    buffer->pos = buffer->start;

    if (buffer->event != NULL && buffer->event->timer_set) {
        ngx_del_timer(buffer->event);
    }

    if (len == 0) {
        return;
    }

    n = ngx_write_fd(file->fd, buffer->start, len);

    if (n == (ssize_t) len) {
        return;
    }

    err = (n == -1) ? ngx_errno : 0;

    if (ngx_time() - buffer->failed > 59) {
        buffer->failed = ngx_time();

        ngx_log_error(NGX_LOG_ALERT, log, err,
                      ngx_write_fd_n " to \"%V\" failed, or was incomplete",
                      &file->name);
    }
}


void
ngx_http_zk_lock_log_flush_handler(ngx_event_t *ev)
{
    ngx_open_file_t *file = ev->data;

    ngx_http_zk_lock_log_out(file, file->data, ev->log);
}
