
/*
 * Metrics: what the gateway has, and what it has done, in Prometheus' text
 * format 0.0.4.
 *
 * Runs on the event loop.  Gauges are counted by a walk over the zone, at each
 * answer, because a worker that died would leave them wrong.  Counters are in
 * the zone: a request is counted in the log phase, by the same words as
 * $zk_lock_outcome; shm and core count all else.  The log phase also logs a
 * request that zk_lock_max_claims refused, whichever file answered.
 *
 * A series of zk_lock_requests_total appears with the first such request.
 */


#include "http/api.h"
#include "http/answer.h"


/* bytes of all gauges and histograms, and of a series of requests */
#define NGX_HTTP_ZK_LOCK_METRICS_TEXT    16384
#define NGX_HTTP_ZK_LOCK_METRICS_SERIES  128


typedef struct {
    const char                        *name;    /* without the prefix */
    const char                        *help;
    const char                        *label;   /* NULL: none */
    zkl_times_e                        which;
} ngx_http_zk_lock_times_t;


static void ngx_http_zk_lock_metrics_refused(ngx_http_request_t *r);
static ngx_uint_t ngx_http_zk_lock_metrics_outcome(
    ngx_http_zk_lock_told_t *told);
static ngx_buf_t *ngx_http_zk_lock_metrics_text(ngx_http_request_t *r,
    zkl_zone_t *zone);
static void ngx_http_zk_lock_metrics_claims(ngx_buf_t *b, zkl_counts_t *n,
    zkl_layout_t *map);
static void ngx_http_zk_lock_metrics_sessions(ngx_buf_t *b, zkl_counts_t *n,
    zkl_layout_t *map);
static void ngx_http_zk_lock_metrics_zookeeper(ngx_buf_t *b,
    zkl_counters_t *counters);
static void ngx_http_zk_lock_metrics_times(ngx_buf_t *b,
    zkl_counters_t *counters);
static void ngx_http_zk_lock_metrics_histogram(ngx_buf_t *b,
    const ngx_http_zk_lock_times_t *times, zkl_histogram_t *histogram);
static size_t ngx_http_zk_lock_metrics_bound(u_char *buf, ngx_msec_t bound);
static void ngx_http_zk_lock_metrics_total(ngx_buf_t *b,
    const ngx_http_zk_lock_times_t *times, const char *what);
static void ngx_http_zk_lock_metrics_requests(ngx_buf_t *b,
    zkl_counters_t *counters);


/* by ngx_http_zk_lock_type_e */

static const char  *ngx_http_zk_lock_types[] = {
    "other", "acquire", "release", "renew", "hold", "inspect", "list", "watch",
    "break", "revoke", "guard", "require"
};

#define NGX_HTTP_ZK_LOCK_TYPES                                                 \
    (sizeof(ngx_http_zk_lock_types) / sizeof(ngx_http_zk_lock_types[0]))


/* the words of $zk_lock_outcome, and three for requests without such a word */

static ngx_str_t  ngx_http_zk_lock_words[] = {
    ngx_string("invalid"),          /* a request that is not served */
    ngx_string("passed"),           /* zk_lock_require was met */
    ngx_string("refused"),          /* also: zk_lock_require was not met */
    ngx_string("quota"),
    ngx_string("granted"),
    ngx_string("queued"),
    ngx_string("taken"),
    ngx_string("full"),
    ngx_string("conflict"),
    ngx_string("unreachable"),
    ngx_string("no_room"),
    ngx_string("drained"),
    ngx_string("cancelled"),
    ngx_string("shut"),
    ngx_string("failed"),
    ngx_string("gone"),
    ngx_string("held"),
    ngx_string("released"),
    ngx_string("lost"),
    ngx_string("free"),
    ngx_string("listed"),
    ngx_string("unchanged"),
    ngx_string("watched"),
    ngx_string("broken"),
    ngx_string("revoked"),
    ngx_string("unlocked")
};

#define NGX_HTTP_ZK_LOCK_WORDS                                                 \
    (sizeof(ngx_http_zk_lock_words) / sizeof(ngx_http_zk_lock_words[0]))

#define NGX_HTTP_ZK_LOCK_INVALID  0
#define NGX_HTTP_ZK_LOCK_PASSED   1
#define NGX_HTTP_ZK_LOCK_REFUSED  2
#define NGX_HTTP_ZK_LOCK_QUOTA    3


static const ngx_http_zk_lock_times_t  ngx_http_zk_lock_times[] = {

    { "wait", "How long requests waited for a lock.", "outcome=\"granted\"",
      ZKL_TIMES_GRANTED },

    { "wait", NULL, "outcome=\"taken\"", ZKL_TIMES_TAKEN },

    { "hold", "How long locks were held.", NULL, ZKL_TIMES_HELD },

    { "zookeeper", "How long ZooKeeper took to answer.", "operation=\"read\"",
      ZKL_TIMES_READ },

    { "zookeeper", NULL, "operation=\"write\"", ZKL_TIMES_WRITE },

    { NULL, NULL, NULL, 0 }
};


ngx_int_t
ngx_http_zk_lock_metrics_count(ngx_http_request_t *r)
{
    ngx_uint_t                     outcome;
    ngx_http_zk_lock_told_t       *told, buf;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    zmcf = ngx_http_get_module_main_conf(r, ngx_http_zk_lock_module);

    if (zmcf->worker == NULL || r != r->main) {
        return NGX_OK;
    }

    told = ngx_http_zk_lock_variable_told(r, &buf);

    if (told == NULL) {
        return NGX_OK;
    }

    outcome = ngx_http_zk_lock_metrics_outcome(told);

    zkl_counters_call(zmcf->worker->zone->map->counters, told->type, outcome);

    if (outcome == NGX_HTTP_ZK_LOCK_QUOTA) {
        ngx_http_zk_lock_metrics_refused(r);
    }

    return NGX_OK;
}


/* The location of the log phase need not be that of the acquire. */

static void
ngx_http_zk_lock_metrics_refused(ngx_http_request_t *r)
{
    size_t                        len;
    u_char                        shown[ZKL_OWNER_MAX];
    ngx_str_t                     key;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    if (zlcf->quota == NULL
        || ngx_http_complex_value(r, zlcf->quota, &key) != NGX_OK)
    {
        ngx_str_null(&key);
    }

    len = zkl_text_show((char *) shown, sizeof(shown), (char *) key.data,
                        key.len);

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "a claim of \"%*s\" is refused by \"zk_lock_max_claims\"",
                  len, shown);
}


static ngx_uint_t
ngx_http_zk_lock_metrics_outcome(ngx_http_zk_lock_told_t *told)
{
    ngx_uint_t  i;
    ngx_str_t  *word;

    for (i = 0; i < NGX_HTTP_ZK_LOCK_WORDS; i++) {
        word = &ngx_http_zk_lock_words[i];

        if (word->len == told->outcome.len
            && ngx_strncmp(word->data, told->outcome.data, word->len) == 0)
        {
            return i;
        }
    }

    if (told->type != NGX_HTTP_ZK_LOCK_REQUIRE) {
        return NGX_HTTP_ZK_LOCK_INVALID;
    }

    return told->refused ? NGX_HTTP_ZK_LOCK_REFUSED : NGX_HTTP_ZK_LOCK_PASSED;
}


ngx_int_t
ngx_http_zk_lock_metrics_handler(ngx_http_request_t *r)
{
    ngx_int_t                      rc;
    ngx_buf_t                     *b;
    ngx_chain_t                    out;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    if (ngx_http_zk_lock_add_no_store(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    r->disable_not_modified = 1;

    if (!(r->method & NGX_HTTP_ZK_LOCK_READS)) {
        return ngx_http_zk_lock_answer_method(r, "GET, HEAD");
    }

    zmcf = ngx_http_get_module_main_conf(r, ngx_http_zk_lock_module);

    if (zmcf->worker == NULL) {
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }

    b = ngx_http_zk_lock_metrics_text(r, zmcf->worker->zone);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_str_set(&r->headers_out.content_type,
                "text/plain; version=0.0.4; charset=utf-8");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = b->last - b->pos;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


static ngx_buf_t *
ngx_http_zk_lock_metrics_text(ngx_http_request_t *r, zkl_zone_t *zone)
{
    ngx_buf_t     *b;
    zkl_counts_t   n;
    zkl_layout_t  *map;

    b = ngx_create_temp_buf(r->pool, NGX_HTTP_ZK_LOCK_METRICS_TEXT
                                     + NGX_HTTP_ZK_LOCK_TYPES
                                       * NGX_HTTP_ZK_LOCK_WORDS
                                       * NGX_HTTP_ZK_LOCK_METRICS_SERIES);
    if (b == NULL) {
        return NULL;
    }

    map = zone->map;

    zkl_zone_count(zone, &n);

    ngx_http_zk_lock_metrics_claims(b, &n, map);
    ngx_http_zk_lock_metrics_sessions(b, &n, map);
    ngx_http_zk_lock_metrics_zookeeper(b, map->counters);
    ngx_http_zk_lock_metrics_times(b, map->counters);
    ngx_http_zk_lock_metrics_requests(b, map->counters);

    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    return b;
}


static void
ngx_http_zk_lock_metrics_claims(ngx_buf_t *b, zkl_counts_t *n,
    zkl_layout_t *map)
{
    b->last = ngx_slprintf(b->last, b->end,
        "# HELP zk_lock_claims Claims of this gateway.\n"
        "# TYPE zk_lock_claims gauge\n"
        "zk_lock_claims{state=\"new\"} %ui\n"
        "zk_lock_claims{state=\"waiting\"} %ui\n"
        "zk_lock_claims{state=\"held\"} %ui\n"
        "zk_lock_claims{state=\"ended\"} %ui\n", n->states[ZKL_RECORD_NEW],
        n->states[ZKL_RECORD_WAITING], n->states[ZKL_RECORD_HELD],
        n->states[ZKL_RECORD_ENDED]);

    b->last = ngx_slprintf(b->last, b->end,
        "# HELP zk_lock_claims_used Places for claims in zk_lock_zone that "
        "are in use.\n"
        "# TYPE zk_lock_claims_used gauge\n"
        "zk_lock_claims_used %ui\n"
        "# HELP zk_lock_claims_limit Places for claims in zk_lock_zone.\n"
        "# TYPE zk_lock_claims_limit gauge\n"
        "zk_lock_claims_limit %ui\n"
        "# HELP zk_lock_drained Whether new locks are refused.\n"
        "# TYPE zk_lock_drained gauge\n"
        "zk_lock_drained %d\n", n->cells, map->ncells, map->drained != 0);
}


static void
ngx_http_zk_lock_metrics_sessions(ngx_buf_t *b, zkl_counts_t *n,
    zkl_layout_t *map)
{
    b->last = ngx_slprintf(b->last, b->end,
        "# HELP zk_lock_sessions ZooKeeper sessions of this gateway.\n"
        "# TYPE zk_lock_sessions gauge\n"
        "zk_lock_sessions{state=\"own\"} %ui\n"
        "zk_lock_sessions{state=\"adopted\"} %ui\n"
        "zk_lock_sessions{state=\"orphaned\"} %ui\n", n->own, n->adopted,
        n->orphans);

    b->last = ngx_slprintf(b->last, b->end,
        "# HELP zk_lock_sessions_used Places for sessions in zk_lock_zone "
        "that are in use.\n"
        "# TYPE zk_lock_sessions_used gauge\n"
        "zk_lock_sessions_used %ui\n"
        "# HELP zk_lock_sessions_limit Places for sessions in "
        "zk_lock_zone.\n"
        "# TYPE zk_lock_sessions_limit gauge\n"
        "zk_lock_sessions_limit %ui\n"
        "# HELP zk_lock_session_alive_seconds For how long the sessions of "
        "all workers surely live.\n"
        "# TYPE zk_lock_session_alive_seconds gauge\n"
        "zk_lock_session_alive_seconds %M.%03M\n", n->slots, map->nslots,
        n->alive / 1000, n->alive % 1000);

    b->last = ngx_slprintf(b->last, b->end,
        "# HELP zk_lock_zookeeper_behind Whether fencing tokens are smaller "
        "than before, because ZooKeeper lost data.\n"
        "# TYPE zk_lock_zookeeper_behind gauge\n"
        "zk_lock_zookeeper_behind %d\n"
        "# HELP zk_lock_zookeeper_rollbacks_total How often ZooKeeper lost "
        "data.\n"
        "# TYPE zk_lock_zookeeper_rollbacks_total counter\n"
        "zk_lock_zookeeper_rollbacks_total %uA\n", map->present < map->zxid,
        map->counters->counts[ZKL_COUNT_ROLLBACKS]);
}


static void
ngx_http_zk_lock_metrics_zookeeper(ngx_buf_t *b, zkl_counters_t *counters)
{
    ngx_atomic_t  *n;

    n = counters->counts;

    b->last = ngx_slprintf(b->last, b->end,
        "# HELP zk_lock_session_events_total What happened to the sessions.\n"
        "# TYPE zk_lock_session_events_total counter\n"
        "zk_lock_session_events_total{event=\"connected\"} %uA\n"
        "zk_lock_session_events_total{event=\"suspended\"} %uA\n"
        "zk_lock_session_events_total{event=\"expired\"} %uA\n"
        "zk_lock_session_events_total{event=\"adopted\"} %uA\n",
        n[ZKL_COUNT_CONNECTED], n[ZKL_COUNT_SUSPENDED], n[ZKL_COUNT_EXPIRED],
        n[ZKL_COUNT_ADOPTED]);

    b->last = ngx_slprintf(b->last, b->end,
        "# HELP zk_lock_zookeeper_operations_total Operations that ZooKeeper "
        "has answered.\n"
        "# TYPE zk_lock_zookeeper_operations_total counter\n"
        "zk_lock_zookeeper_operations_total{operation=\"read\"} %uA\n"
        "zk_lock_zookeeper_operations_total{operation=\"write\"} %uA\n"
        "# HELP zk_lock_zookeeper_transactions_total Transactions, each of "
        "several write operations.\n"
        "# TYPE zk_lock_zookeeper_transactions_total counter\n"
        "zk_lock_zookeeper_transactions_total %uA\n",
        n[ZKL_COUNT_READS], n[ZKL_COUNT_WRITES], n[ZKL_COUNT_TRANSACTIONS]);
}


static void
ngx_http_zk_lock_metrics_times(ngx_buf_t *b, zkl_counters_t *counters)
{
    const ngx_http_zk_lock_times_t  *times;

    for (times = ngx_http_zk_lock_times; times->name != NULL; times++) {

        if (times->help != NULL) {
            b->last = ngx_slprintf(b->last, b->end,
                                   "# HELP zk_lock_%s_seconds %s\n"
                                   "# TYPE zk_lock_%s_seconds histogram\n",
                                   times->name, times->help, times->name);
        }

        ngx_http_zk_lock_metrics_histogram(b, times,
                                           &counters->times[times->which]);
    }
}


static void
ngx_http_zk_lock_metrics_histogram(ngx_buf_t *b,
    const ngx_http_zk_lock_times_t *times, zkl_histogram_t *histogram)
{
    u_char              bound[NGX_INT64_LEN + sizeof(".000")];
    ngx_uint_t          i;
    const ngx_msec_t   *bounds;
    ngx_atomic_uint_t   n, sum;

    n = 0;
    sum = histogram->sum;
    bounds = zkl_counters_bounds(times->which);

    i = 0;

    do {
        n += histogram->counts[i];

        b->last = ngx_slprintf(b->last, b->end,
                               "zk_lock_%s_seconds_bucket{%s%sle=\"%*s\"} "
                               "%uA\n", times->name,
                               times->label ? times->label : "",
                               times->label ? "," : "",
                               ngx_http_zk_lock_metrics_bound(bound,
                                                              bounds[i]),
                               bound, n);

    } while (bounds[i++] != 0);

    ngx_http_zk_lock_metrics_total(b, times, "sum");
    b->last = ngx_slprintf(b->last, b->end, "%uA.%03uA\n", sum / 1000,
                           sum % 1000);

    ngx_http_zk_lock_metrics_total(b, times, "count");
    b->last = ngx_slprintf(b->last, b->end, "%uA\n", n);
}


/*
 * Writes a bound in seconds as libraries do, "0.25" or "1"; 0 is the bound
 * above all others.  Returns the length.
 */

static size_t
ngx_http_zk_lock_metrics_bound(u_char *buf, ngx_msec_t bound)
{
    u_char  *p;

    if (bound == 0) {
        return ngx_sprintf(buf, "+Inf") - buf;
    }

    p = ngx_sprintf(buf, "%M.%03M", bound / 1000, bound % 1000);

    while (p[-1] == '0') {
        p--;
    }

    p -= (p[-1] == '.');

    return p - buf;
}


/* The name and the labels of a histogram's series without bounds. */

static void
ngx_http_zk_lock_metrics_total(ngx_buf_t *b,
    const ngx_http_zk_lock_times_t *times, const char *what)
{
    b->last = ngx_slprintf(b->last, b->end, "zk_lock_%s_seconds_%s",
                           times->name, what);

    b->last = times->label
              ? ngx_slprintf(b->last, b->end, "{%s} ", times->label)
              : ngx_slprintf(b->last, b->end, " ");
}


static void
ngx_http_zk_lock_metrics_requests(ngx_buf_t *b, zkl_counters_t *counters)
{
    ngx_uint_t         i, k;
    ngx_atomic_uint_t  n;

    b->last = ngx_slprintf(b->last, b->end,
        "# HELP zk_lock_requests_total Requests that have ended.\n"
        "# TYPE zk_lock_requests_total counter\n");

    for (i = 0; i < NGX_HTTP_ZK_LOCK_TYPES; i++) {
        for (k = 0; k < NGX_HTTP_ZK_LOCK_WORDS; k++) {

            n = counters->calls[i][k];

            if (n == 0) {
                continue;
            }

            b->last = ngx_slprintf(b->last, b->end,
                                   "zk_lock_requests_total{call=\"%s\","
                                   "outcome=\"%V\"} %uA\n",
                                   ngx_http_zk_lock_types[i],
                                   &ngx_http_zk_lock_words[k], n);
        }
    }
}
