/*
 * Calls to the gateway, and the event loop.
 *
 * All calls of a process go through one curl_multi, and all waiting is in
 * http_wait(): for sockets of calls, for descriptors of run.c, and for a time.
 * The clock of libcurl stands still while the machine is suspended.  So a
 * timerfd of CLOCK_BOOTTIME, which expires when the machine resumes, ends a
 * wait.
 *
 * A call is HTTP/1.1, so no two calls share a connection at a time.  An acquire
 * has its own connection, and the renewals and the release keep another.  A
 * redirect is an answer like any other, because no other server may get the
 * token.
 *
 * All bytes from the gateway are bounded: the body, or the line of a stream, by
 * the limit of the call, and the head by libcurl.
 *
 * http_open() has to succeed before calls are started; http_close() follows in
 * both cases.
 */

#include "zk-lock.h"

#define HTTP_CONNECT  5000L     /* ms for a connection to be made */
#define HTTP_SILENCE  40L       /* s; a stream has a sign of life each 15 */
#define HTTP_PAUSE    60        /* s; a longer Retry-After is ignored */
#define HTTP_LIMIT    65536     /* bytes; an answer about a claim has 4 KiB */
#define HTTP_LINE     8192      /* bytes of a part of a request */
#define HTTP_POLL     60000     /* ms; curl_multi_poll() has no infinite wait */
#define HTTP_FDS      2         /* descriptors that run.c waits for */

static CURLM *multi;
static int timer = -1;
static const char *config;      /* NULL: no --config */


/* Returns 0, or an exit status after a message. */
int http_open(const options_t *options)
{
    struct curl_slist *head = NULL;
    CURL *easy;
    bool ok;

    config = options->config;
    timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (timer == -1 || curl_global_init(CURL_GLOBAL_DEFAULT)
        || !(multi = curl_multi_init()) || !(easy = curl_easy_init())) {
        util_log("cannot start: %s", strerror(errno));
        return EXIT_SYSTEM;
    }
    ok = config_apply(easy, config, &head);     /* a trial */
    curl_easy_cleanup(easy);
    curl_slist_free_all(head);
    return ok ? 0 : EXIT_USAGE;
}

void http_close(void)
{
    curl_multi_cleanup(multi);
    curl_global_cleanup();
    close(timer);
    multi = NULL;
}

/* Returns a call for http_start() or http_call(), and in the end http_end().
 * The timeout is in ms. */
http_call_t http_new(const char *method, const char *url, int64_t timeout)
{
    http_call_t call = { .method = method, .url = curl_url(),
                         .timeout = timeout, .limit = HTTP_LIMIT };

    if (curl_url_set(call.url, CURLUPART_URL, url, CURLU_PATH_AS_IS))
        call.method = NULL;
    return call;
}

/* Adds a line to the head, or NAME=VALUE to the query; libcurl encodes the
 * value. */
void http_add(http_call_t *call, http_part_e part, const char *format, ...)
{
    struct curl_slist *head;
    char text[HTTP_LINE];
    va_list args;
    bool ok;

    va_start(args, format);
    ok = vsnprintf(text, sizeof(text), format, args) < HTTP_LINE;
    va_end(args);
    if (ok && part == HTTP_HEAD) {
        head = curl_slist_append(call->head, text);
        ok = head != NULL;
        if (ok)
            call->head = head;
    } else if (ok) {
        ok = !curl_url_set(call->url, CURLUPART_QUERY, text,
                           CURLU_APPENDQUERY | CURLU_URLENCODE);
    }
    if (!ok)
        call->method = NULL;
}

/* Returns the value of a header of the answer, or NULL; valid until
 * http_end(). */
const char *http_header(const http_call_t *call, const char *name)
{
    struct curl_header *header;

    if (!call->easy || curl_easy_header(call->easy, name, 0, CURLH_HEADER, -1,
                                        &header))
        return NULL;
    return header->value;
}

/* A callback of libcurl; a return of 0 ends the call.  Lines of a stream leave
 * the body as soon as they are whole. */
static size_t http_on_body(char *bytes, size_t size, size_t n, void *data)
{
    http_call_t *call = data;
    size_t len = size * n;
    long status = 0;
    char *body, *end;

    if (len > call->limit - call->len)
        return 0;
    body = realloc(call->body, call->len + len + 1);
    if (!body)
        return 0;
    memcpy(body + call->len, bytes, len);
    call->body = body;
    call->len += len;
    body[call->len] = '\0';

    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    while (call->line && status == 200
           && (end = memchr(body, '\n', call->len))) {
        *end = '\0';
        if (!call->line(call, body, (size_t) (end - body)))
            return 0;
        call->len -= (size_t) (end + 1 - body);
        memmove(body, end + 1, call->len + 1);
    }
    return len;
}

/* Starts a call, for http_wait() to make progress.  Without memory, or without
 * a valid file of --config, the call is done at once. */
void http_start(http_call_t *call)
{
    CURL *easy = curl_easy_init();
    bool ok = easy && call->method;

#define HTTP_SET(option, value)                                               \
    ok = ok && curl_easy_setopt(easy, CURLOPT_##option, value) == CURLE_OK

    HTTP_SET(ERRORBUFFER, call->why);
    HTTP_SET(PRIVATE, call);
    HTTP_SET(CURLU, call->url);
    HTTP_SET(CUSTOMREQUEST, call->method);
    HTTP_SET(HTTP_VERSION, (long) CURL_HTTP_VERSION_1_1);
    HTTP_SET(USERAGENT, "zk-lock");
    HTTP_SET(NOSIGNAL, 1L);
    HTTP_SET(TCP_KEEPALIVE, 1L);
    HTTP_SET(TCP_KEEPIDLE, 5L);
    HTTP_SET(TCP_KEEPINTVL, 5L);
    HTTP_SET(CONNECTTIMEOUT_MS, HTTP_CONNECT);
    HTTP_SET(FORBID_REUSE, (long) call->last);
    HTTP_SET(FRESH_CONNECT, (long) call->last);
    HTTP_SET(WRITEFUNCTION, http_on_body);
    HTTP_SET(WRITEDATA, call);
    HTTP_SET(QUICK_EXIT, 1L);           /* an exit waits for no resolver */
    if (call->timeout != NEVER) {
        HTTP_SET(TIMEOUT_MS, (long) MAX(call->timeout, 1));
    } else {
        HTTP_SET(LOW_SPEED_LIMIT, 1L);
        HTTP_SET(LOW_SPEED_TIME, HTTP_SILENCE);
    }
    ok = ok && config_apply(easy, config, &call->head);
    HTTP_SET(HTTPHEADER, call->head);

    call->easy = easy;
    call->pause = 1000;
    if (!ok || curl_multi_add_handle(multi, easy) != CURLM_OK) {
        snprintf(call->why, sizeof(call->why), "it cannot be called");
        call->done = true;
    }
}

/* Makes progress with all calls; returns whether a call is done.  Half of an
 * answer counts as no answer. */
static bool http_perform(void)
{
    bool done = false;
    CURLMsg *message;
    int n;

    curl_multi_perform(multi, &n);
    while ((message = curl_multi_info_read(multi, &n))) {
        CURLcode rc = message->data.result;
        http_call_t *call = NULL;
        const char *pause;

        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
        call->done = true;
        done = true;
        pause = http_header(call, "Retry-After");
        if (pause && atoi(pause) > 0 && atoi(pause) <= HTTP_PAUSE)
            call->pause = atoi(pause) * 1000;
        if (rc == CURLE_OK)
            curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE,
                              &call->status);
        else if (!call->why[0])
            snprintf(call->why, sizeof(call->why), "%s",
                     curl_easy_strerror(rc));
    }
    return done;
}

/* Waits until a call is done, a descriptor is ready, of HTTP_FDS at most, or
 * the time has come.  May return sooner. */
void http_wait(struct curl_waitfd *fds, unsigned n, int64_t until)
{
    struct itimerspec when = { { 0, 0 }, { 0, 0 } };
    struct curl_waitfd all[1 + HTTP_FDS] = { { timer, CURL_WAIT_POLLIN, 0 } };

    if (until != NEVER) {
        when.it_value.tv_sec = until / 1000;
        when.it_value.tv_nsec = until % 1000 * 1000000 + 1;
    }
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
    if (n)
        memcpy(&all[1], fds, n * sizeof(*fds));
    if (!http_perform()) {
        curl_multi_poll(multi, all, n + 1, HTTP_POLL, NULL);
        http_perform();
    }
}

/* Starts a call, and waits for the answer.  The wait, if not NULL, may give up
 * the call, which then is not done. */
void http_call(http_call_t *call, http_wait_pt wait)
{
    bool given_up = false;
    long size = 0;

    http_start(call);
    while (!call->done && !given_up) {
        if (wait)
            given_up = wait(NEVER);
        else
            http_wait(NULL, 0, NEVER);
    }
    if (call->easy)
        curl_easy_getinfo(call->easy, CURLINFO_REQUEST_SIZE, &size);
    call->sent = size > 0;
}

/* Ends a call, done or not, and frees its parts. */
void http_end(http_call_t *call)
{
    if (call->easy) {
        curl_multi_remove_handle(multi, call->easy);
        curl_easy_cleanup(call->easy);
    }
    curl_url_cleanup(call->url);
    curl_slist_free_all(call->head);
    free(call->body);
    memset(call, 0, sizeof(*call));
}

/* The exit status for an answer that is an error, or for no answer. */
int http_exit_status(long status)
{
    if (status == 423)
        return EXIT_TAKEN;
    return status >= 300 && status < 500 && status != 429 ? EXIT_USAGE
                                                          : EXIT_UNREACHED;
}

/* Returns text for a message, valid until the next call: the status and the
 * detail, or why there is no answer. */
const char *http_describe(http_call_t *call)
{
    static char text[512];
    yajl_val tree = json_parse(call->body, call->len);
    const char *detail = json_string(tree, "detail");

    if (!detail)
        detail = call->body ? call->body : "";
    if (call->status == 0)
        snprintf(text, sizeof(text), "no answer: %s", call->why);
    else
        snprintf(text, sizeof(text), "%ld %s", call->status, detail);
    yajl_tree_free(tree);
    return text;
}
