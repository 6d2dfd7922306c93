/* Calls to the gateway, and the event loop.
 *
 * All calls of a process go through one curl_multi, and all waiting is in
 * http_wait(): for the sockets of calls, for descriptors of run.c, and for a
 * moment.  curl's clock stands still while the machine is suspended, so a
 * moment is a timerfd of CLOCK_BOOTTIME, which is due when the machine resumes.
 *
 * A call is HTTP/1.1, so no two calls share a connection at a time.  An acquire
 * has a connection of its own, and the renewals and the release keep another.
 * A redirect is an answer like any other, because no other server may get the
 * token.
 *
 * All that the gateway sends is bounded: the body, or the line of a stream, by
 * the call's limit, and the head by libcurl. */

#include "zk-lock.h"

#define HTTP_CONNECT  5000L     /* ms for a connection to be made */
#define HTTP_SILENCE  40L       /* s; a stream has a sign of life each 15 */
#define HTTP_PAUSE    60        /* s; a longer Retry-After is no advice */
#define HTTP_LIMIT    65536     /* bytes; an answer about a claim has 4 KiB */
#define HTTP_LINE     8192      /* bytes of a line of a request's head */

static CURLM *multi;
static int timer = -1;
static const char *config;

/* Returns 0 or an exit status; http_close() comes after both. */
int http_open(const options_t *options)
{
    struct curl_slist *head = NULL;
    CURL *easy = NULL;
    bool ok;
    config = options->config;
    timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (timer == -1 || curl_global_init(CURL_GLOBAL_DEFAULT)
        || !(multi = curl_multi_init()) || !(easy = curl_easy_init())) {
        say("cannot start: %s", strerror(errno));
        return EXIT_SYSTEM;
    }
    ok = config_apply(easy, config, &head);
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

/* A call that has not begun, to be ended by http_end(). */
http_call_t http_new(const char *method, const char *url, int64_t timeout)
{
    http_call_t call = { .method = method, .url = curl_url(),
                         .timeout = timeout, .limit = HTTP_LIMIT };
    if (curl_url_set(call.url, CURLUPART_URL, url, CURLU_PATH_AS_IS))
        call.method = NULL;
    return call;
}

/* Adds a line to the head, or an argument to the query, which is encoded. */
void http_add(http_call_t *call, bool head, const char *format, ...)
{
    struct curl_slist *longer = NULL;
    char line[HTTP_LINE];
    va_list args;
    bool ok;
    va_start(args, format);
    ok = vsnprintf(line, sizeof(line), format, args) < HTTP_LINE;
    va_end(args);
    if (head && (longer = curl_slist_append(call->head, line)))
        call->head = longer;
    if (!ok || (head ? !longer : curl_url_set(call->url, CURLUPART_QUERY, line,
                               CURLU_APPENDQUERY | CURLU_URLENCODE) != 0))
        call->method = NULL;
}

/* The value of a line of the answer's head, or NULL; until http_end(). */
const char *http_header(const http_call_t *call, const char *name)
{
    struct curl_header *header;
    return call->easy && !curl_easy_header(call->easy, name, 0, CURLH_HEADER,
                                           -1, &header) ? header->value : NULL;
}

static size_t http_on_body(char *bytes, size_t size, size_t n, void *data)
{
    http_call_t *call = data;
    size_t len = size * n;
    long status = 0;
    char *body = NULL, *end;
    if (len <= call->limit - call->len)
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

/* Begins a call, the answer to which comes in http_wait().  Without memory, or
 * a file of --config that can be used, the call is done. */
void http_start(http_call_t *call)
{
    CURL *easy = call->easy = curl_easy_init();
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
    HTTP_SET(QUICK_EXIT, 1L);           /* an end waits for no resolver */
    if (call->timeout != NEVER) {
        HTTP_SET(TIMEOUT_MS, (long) (call->timeout > 0 ? call->timeout : 1));
    } else {
        HTTP_SET(LOW_SPEED_LIMIT, 1L);
        HTTP_SET(LOW_SPEED_TIME, HTTP_SILENCE);
    }
    ok = ok && config_apply(easy, config, &call->head);
    HTTP_SET(HTTPHEADER, call->head);

    call->pause = 1000;
    if (!ok || curl_multi_add_handle(multi, easy) != CURLM_OK) {
        snprintf(call->why, sizeof(call->why), "it cannot be called");
        call->done = true;
    }
}

/* Moves all calls on; returns whether one of them is done. */
static bool http_perform(void)
{
    bool done = false;
    CURLMsg *message;
    int n;
    curl_multi_perform(multi, &n);
    while ((message = curl_multi_info_read(multi, &n))) {
        http_call_t *call = NULL;
        const char *pause;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
        call->done = done = true;
        pause = http_header(call, "Retry-After");
        if (pause && atoi(pause) > 0 && atoi(pause) <= HTTP_PAUSE)
            call->pause = atoi(pause) * 1000;
        if (message->data.result == CURLE_OK)   /* half an answer is none */
            curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE,
                              &call->status);
        else if (!call->why[0])
            snprintf(call->why, sizeof(call->why), "%s",
                     curl_easy_strerror(message->data.result));
    }
    return done;
}

/* Waits until a call is done, one of at most two descriptors is ready, or the
 * moment has come.  May return sooner. */
void http_wait(struct curl_waitfd *fds, unsigned n, int64_t until)
{
    struct itimerspec when = { { 0, 0 }, { 0, 0 } };
    struct curl_waitfd all[3] = { { 0 } };
    if (until != NEVER) {
        when.it_value.tv_sec = until / 1000;
        when.it_value.tv_nsec = until % 1000 * 1000000 + 1;
    }
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);

    all[0].fd = timer;
    all[0].events = CURL_WAIT_POLLIN;
    if (n)
        memcpy(&all[1], fds, n * sizeof(*fds));
    if (!http_perform()) {
        curl_multi_poll(multi, all, n + 1, 60000, NULL);
        http_perform();
    }
}

/* A call and its answer; the wait, if not NULL, may give up the call. */
void http_call(http_call_t *call, wait_pt wait)
{
    long size = 0;
    http_start(call);
    while (!call->done && !(wait && wait(NEVER)))
        if (!wait)
            http_wait(NULL, 0, NEVER);
    if (call->easy)
        curl_easy_getinfo(call->easy, CURLINFO_REQUEST_SIZE, &size);
    call->sent = size > 0;
}

/* Ends a call, done or not, and frees what it has. */
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

int http_exit_status(long status)
{
    if (status == 423)
        return EXIT_TAKEN;
    return status >= 300 && status < 500 && status != 429 ? EXIT_USAGE
                                                          : EXIT_UNREACHED;
}

/* For a message: the status and the detail, or why there is no answer. */
const char *http_told(http_call_t *call)
{
    static char told[512];
    yajl_val tree = json_parse(call->body, call->len);
    const char *detail = json_string(tree, "detail");
    if (call->status == 0)
        snprintf(told, sizeof(told), "no answer: %s", call->why);
    else
        snprintf(told, sizeof(told), "%ld %s", call->status,
                 detail ? detail : call->body ? call->body : "");
    yajl_tree_free(tree);
    return told;
}
