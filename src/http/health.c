
/*
 * Health: whether the worker that gets the request takes new locks; and the
 * operators' switch that drains the gateway.
 *
 * Runs on the event loop, and asks ZooKeeper nothing: what the worker knows is
 * the answer.  zmcf->worker is NULL while the process serves no locks.  While
 * the gateway is drained the answer also says how many claims still wait at all
 * workers, so that an operator sees when nginx may end.
 */


#include "http/api.h"
#include "http/answer.h"
#include "http/origin.h"


static ngx_int_t ngx_http_zk_lock_health_tell(ngx_http_request_t *r,
    ngx_http_zk_lock_main_conf_t *zmcf);
static const char *ngx_http_zk_lock_health_reason(zkl_worker_t *worker,
    const char **detail);


ngx_int_t
ngx_http_zk_lock_health_handler(ngx_http_request_t *r)
{
    ngx_int_t                      rc;
    ngx_str_t                      value;
    ngx_uint_t                     on;
    zkl_layout_t                  *map;
    ngx_http_zk_lock_loc_conf_t   *zlcf;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);
    zmcf = ngx_http_get_module_main_conf(r, ngx_http_zk_lock_module);

    if (ngx_http_zk_lock_add_no_store(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    r->disable_not_modified = 1;

    if (r->method & NGX_HTTP_ZK_LOCK_READS) {
        return ngx_http_zk_lock_health_tell(r, zmcf);
    }

    if (!zlcf->admin) {
        return ngx_http_zk_lock_answer_method(r, "GET, HEAD");
    }

    if (r->method != NGX_HTTP_PUT) {
        return ngx_http_zk_lock_answer_method(r, "GET, HEAD, PUT");
    }

    rc = ngx_http_zk_lock_origin_check(r);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (zmcf->worker == NULL) {
        return ngx_http_zk_lock_health_tell(r, zmcf);
    }

    /* "?drain=on" and "?drain=off": for all workers, and over reloads */

    if (ngx_http_arg(r, (u_char *) "drain", 5, &value) != NGX_OK) {
        value.len = 0;
    }

    on = (value.len == 2 && ngx_strncmp(value.data, "on", 2) == 0);

    if (!on && (value.len != 3 || ngx_strncmp(value.data, "off", 3) != 0)) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "\"drain\" takes \"on\" or \"off\"");
    }

    map = zmcf->worker->zone->map;

    if (on != (map->drained != 0)) {
        map->drained = on ? (ngx_atomic_uint_t) ngx_time() : 0;

        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      on ? "this gateway is drained: new locks are refused"
                         : "this gateway takes new locks again");
    }

    return ngx_http_zk_lock_health_tell(r, zmcf);
}


static ngx_int_t
ngx_http_zk_lock_health_tell(ngx_http_request_t *r,
    ngx_http_zk_lock_main_conf_t *zmcf)
{
    ngx_uint_t       status;
    const char      *reason, *detail;
    zkl_json_t      *json;
    zkl_counts_t     counts;
    zkl_worker_t    *worker;
    ngx_msec_int_t   alive;

    worker = zmcf->worker;
    reason = ngx_http_zk_lock_health_reason(worker, &detail);
    alive = 0;

    /* a PUT has done what it was asked for, unless there is no zone to tell */

    status = (reason == NULL || (r->method == NGX_HTTP_PUT && worker != NULL))
             ? NGX_HTTP_OK : NGX_HTTP_SERVICE_UNAVAILABLE;

    json = zkl_json_open();

    ngx_http_zk_lock_write_text(json, "status", reason ? "unavailable" : "ok");

    if (reason != NULL) {
        ngx_http_zk_lock_write_text(json, "reason", reason);
        ngx_http_zk_lock_write_text(json, "detail", detail);
    }

    if (worker != NULL) {
        zkl_json_boolean(json, "drained", worker->zone->map->drained != 0);

        alive = (ngx_msec_int_t) (worker->zone->own->alive - zkl_now());
    }

    zkl_json_integer(json, "session_alive_ms", (alive > 0) ? alive : 0);

    /* counted by a walk over the zone, so only while drained */

    if (worker != NULL && worker->zone->map->drained != 0) {
        zkl_zone_count(worker->zone, &counts);
        zkl_json_integer(json, "waiting", counts.states[ZKL_RECORD_NEW]
                                          + counts.states[ZKL_RECORD_WAITING]);
    }

    return ngx_http_zk_lock_send(r, status, json);
}


/* Why new locks are not taken, in the order of what an operator mends first. */

static const char *
ngx_http_zk_lock_health_reason(zkl_worker_t *worker, const char **detail)
{
    if (worker == NULL) {
        *detail = "this worker has no place in zk_lock_zone";
        return "no_room";
    }

    if (worker->leaving || ngx_exiting) {
        *detail = "this worker process leaves";
        return "leaving";
    }

    if (worker->zone->map->drained != 0) {
        *detail = "an operator has drained this gateway";
        return "drained";
    }

    if (!zkl_session_connected(worker->session)) {
        *detail = "this worker has no connection to ZooKeeper";
        return "disconnected";
    }

    if (!zkl_session_reachable(worker->session)) {
        *detail = "ZooKeeper does not answer";
        return "silent";
    }

    if (!zkl_session_alive(worker->session)) {
        *detail = "ZooKeeper answers, and the session is not known to live yet";
        return "recovering";
    }

    if (!zkl_zone_room(worker->zone)) {
        *detail = "zk_lock_zone has no room for one more claim";
        return "full";
    }

    return NULL;
}
