
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


static void ngx_http_zk_lock_metrics_zone(ngx_buf_t *b, zkl_zone_t *zone);
static void ngx_http_zk_lock_metrics_histogram(ngx_buf_t *b,
    const ngx_http_zk_lock_times_t *times, zkl_histogram_t *histogram);


/* by ngx_http_zk_lock_type_e */

static const char  *ngx_http_zk_lock_types[] = {
    "other", "acquire", "release", "renew", "hold", "inspect", "list", "watch",
    "break", "revoke", "guard", "require"
};

#define NGX_HTTP_ZK_LOCK_TYPES                                                 \
    (sizeof(ngx_http_zk_lock_types) / sizeof(ngx_http_zk_lock_types[0]))


/*
 * The words of $zk_lock_outcome, and two for requests that have no such word:
 * "invalid" if the request was not served, and "passed" if zk_lock_require was
 * met.  A request that did not meet zk_lock_require is "refused", too.
 */

static const char  *ngx_http_zk_lock_words[] = {
    "invalid", "passed", "refused", "quota", "granted", "queued", "taken",
    "full", "conflict", "unreachable", "no_room", "drained", "cancelled",
    "shut", "failed", "gone", "held", "released", "lost", "free", "listed",
    "unchanged", "watched", "broken", "revoked", "unlocked"
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


/*
 * An outcome that is no word is that of a request that is not served, or that
 * zk_lock_require let pass or refused.
 */

ngx_int_t
ngx_http_zk_lock_metrics_count(ngx_http_request_t *r)
{
    size_t                         len;
    u_char                         shown[ZKL_OWNER_MAX];
    ngx_str_t                     *word, key;
    ngx_uint_t                     i;
    ngx_http_zk_lock_told_t       *told;
    ngx_http_zk_lock_loc_conf_t   *zlcf;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    zmcf = ngx_http_get_module_main_conf(r, ngx_http_zk_lock_module);

    if (zmcf->worker == NULL || r != r->main) {
        return NGX_OK;
    }

    told = ngx_http_zk_lock_variable_told(r);

    if (told == NULL) {
        return NGX_OK;
    }

    word = &told->outcome;

    for (i = 0; i < NGX_HTTP_ZK_LOCK_WORDS; i++) {
        if (ngx_strlen(ngx_http_zk_lock_words[i]) == word->len
            && ngx_strncmp(ngx_http_zk_lock_words[i], word->data, word->len)
               == 0)
        {
            break;
        }
    }

    if (i == NGX_HTTP_ZK_LOCK_WORDS) {
        i = NGX_HTTP_ZK_LOCK_INVALID;

        if (told->type == NGX_HTTP_ZK_LOCK_REQUIRE) {
            i = told->refused ? NGX_HTTP_ZK_LOCK_REFUSED
                              : NGX_HTTP_ZK_LOCK_PASSED;
        }
    }

    zkl_counters_call(zmcf->worker->zone->map->counters, told->type, i);

    if (i != NGX_HTTP_ZK_LOCK_QUOTA) {
        return NGX_OK;
    }

    /* the location of the log phase need not be that of the acquire */

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

    return NGX_OK;
}


ngx_int_t
ngx_http_zk_lock_metrics_handler(ngx_http_request_t *r)
{
    ngx_int_t                        rc;
    ngx_buf_t                       *b;
    ngx_uint_t                       i, k;
    zkl_zone_t                      *zone;
    zkl_counters_t                  *counters;
    ngx_atomic_uint_t                n;
    ngx_http_zk_lock_main_conf_t    *zmcf;
    const ngx_http_zk_lock_times_t  *times;

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

    zone = zmcf->worker->zone;
    counters = zone->map->counters;

    b = ngx_create_temp_buf(r->pool, NGX_HTTP_ZK_LOCK_METRICS_TEXT
                                     + NGX_HTTP_ZK_LOCK_TYPES
                                       * NGX_HTTP_ZK_LOCK_WORDS
                                       * NGX_HTTP_ZK_LOCK_METRICS_SERIES);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_zk_lock_metrics_zone(b, zone);

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
                                   "outcome=\"%s\"} %uA\n",
                                   ngx_http_zk_lock_types[i],
                                   ngx_http_zk_lock_words[k], n);
        }
    }

    return ngx_http_zk_lock_send_buf(r, NGX_HTTP_OK, "text/plain; "
                                     "version=0.0.4; charset=utf-8", b);
}


/* The gauges, and the counters of the sessions and of ZooKeeper. */

static void
ngx_http_zk_lock_metrics_zone(ngx_buf_t *b, zkl_zone_t *zone)
{
    zkl_counts_t   n;
    zkl_layout_t  *map;
    ngx_atomic_t  *counts;

    map = zone->map;
    counts = map->counters->counts;

    zkl_zone_count(zone, &n);

    b->last = ngx_slprintf(b->last, b->end,
        "# HELP zk_lock_claims Claims of this gateway.\n"
        "# TYPE zk_lock_claims gauge\n"
        "zk_lock_claims{state=\"new\"} %ui\n"
        "zk_lock_claims{state=\"waiting\"} %ui\n"
        "zk_lock_claims{state=\"held\"} %ui\n"
        "zk_lock_claims{state=\"ended\"} %ui\n"
        "# HELP zk_lock_claims_used Places for claims in zk_lock_zone that "
        "are in use.\n"
        "# TYPE zk_lock_claims_used gauge\n"
        "zk_lock_claims_used %ui\n"
        "# HELP zk_lock_claims_limit Places for claims in zk_lock_zone.\n"
        "# TYPE zk_lock_claims_limit gauge\n"
        "zk_lock_claims_limit %ui\n"
        "# HELP zk_lock_drained Whether new locks are refused.\n"
        "# TYPE zk_lock_drained gauge\n"
        "zk_lock_drained %d\n"
        "# HELP zk_lock_sessions ZooKeeper sessions of this gateway.\n"
        "# TYPE zk_lock_sessions gauge\n"
        "zk_lock_sessions{state=\"own\"} %ui\n"
        "zk_lock_sessions{state=\"adopted\"} %ui\n"
        "zk_lock_sessions{state=\"orphaned\"} %ui\n"
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
        "zk_lock_session_alive_seconds %M.%03M\n",
        n.states[ZKL_RECORD_NEW], n.states[ZKL_RECORD_WAITING],
        n.states[ZKL_RECORD_HELD], n.states[ZKL_RECORD_ENDED], n.cells,
        map->ncells, map->drained != 0, n.own, n.adopted, n.orphans, n.slots,
        map->nslots, n.alive / 1000, n.alive % 1000);

    b->last = ngx_slprintf(b->last, b->end,
        "# HELP zk_lock_zookeeper_behind Whether fencing tokens are smaller "
        "than before, because ZooKeeper lost data.\n"
        "# TYPE zk_lock_zookeeper_behind gauge\n"
        "zk_lock_zookeeper_behind %d\n"
        "# HELP zk_lock_zookeeper_rollbacks_total How often ZooKeeper lost "
        "data.\n"
        "# TYPE zk_lock_zookeeper_rollbacks_total counter\n"
        "zk_lock_zookeeper_rollbacks_total %uA\n"
        "# HELP zk_lock_session_events_total What happened to the sessions.\n"
        "# TYPE zk_lock_session_events_total counter\n"
        "zk_lock_session_events_total{event=\"connected\"} %uA\n"
        "zk_lock_session_events_total{event=\"suspended\"} %uA\n"
        "zk_lock_session_events_total{event=\"expired\"} %uA\n"
        "zk_lock_session_events_total{event=\"adopted\"} %uA\n"
        "# HELP zk_lock_zookeeper_operations_total Operations that ZooKeeper "
        "has answered.\n"
        "# TYPE zk_lock_zookeeper_operations_total counter\n"
        "zk_lock_zookeeper_operations_total{operation=\"read\"} %uA\n"
        "zk_lock_zookeeper_operations_total{operation=\"write\"} %uA\n"
        "# HELP zk_lock_zookeeper_transactions_total Transactions, each of "
        "several write operations.\n"
        "# TYPE zk_lock_zookeeper_transactions_total counter\n"
        "zk_lock_zookeeper_transactions_total %uA\n",
        map->present < map->zxid, counts[ZKL_COUNT_ROLLBACKS],
        counts[ZKL_COUNT_CONNECTED], counts[ZKL_COUNT_SUSPENDED],
        counts[ZKL_COUNT_EXPIRED], counts[ZKL_COUNT_ADOPTED],
        counts[ZKL_COUNT_READS], counts[ZKL_COUNT_WRITES],
        counts[ZKL_COUNT_TRANSACTIONS]);
}


/* A bound is in seconds, as libraries write them: "0.25", "1" or "+Inf". */

static void
ngx_http_zk_lock_metrics_histogram(ngx_buf_t *b,
    const ngx_http_zk_lock_times_t *times, zkl_histogram_t *histogram)
{
    u_char              bound[NGX_INT64_LEN + sizeof(".000")];
    u_char             *p;
    ngx_uint_t          i;
    const char         *label, *comma;
    const ngx_msec_t   *bounds;
    ngx_atomic_uint_t   n, sum;

    n = 0;
    sum = histogram->sum;
    bounds = zkl_counters_bounds[times->which];

    label = times->label ? times->label : "";
    comma = times->label ? "," : "";

    i = 0;

    do {
        n += histogram->counts[i];

        if (bounds[i] == 0) {
            p = ngx_sprintf(bound, "+Inf");

        } else {
            p = ngx_sprintf(bound, "%M.%03M", bounds[i] / 1000,
                            bounds[i] % 1000);

            while (p[-1] == '0') {
                p--;
            }

            p -= (p[-1] == '.');
        }

        b->last = ngx_slprintf(b->last, b->end,
                               "zk_lock_%s_seconds_bucket{%s%sle=\"%*s\"} "
                               "%uA\n", times->name, label, comma,
                               (size_t) (p - bound), bound, n);

    } while (bounds[i++] != 0);

    b->last = ngx_slprintf(b->last, b->end,
                           times->label
                           ? "zk_lock_%s_seconds_sum{%s} %uA.%03uA\n"
                             "zk_lock_%s_seconds_count{%s} %uA\n"
                           : "zk_lock_%s_seconds_sum%s %uA.%03uA\n"
                             "zk_lock_%s_seconds_count%s %uA\n",
                           times->name, label, sum / 1000, sum % 1000,
                           times->name, label, n);
}
