
/*
 * The module: the directives, and the hooks of nginx's processes.
 *
 * conf.c reads the directives, in the master.  Here the worker object begins
 * and ends: a session is opened when a worker process starts to serve.  The
 * cache manager and the cache loader run the same hook and open no session.  A
 * ZooKeeper that does not answer is no error then.
 *
 * Everything runs on the main thread of a process.  The worker object hangs off
 * the main configuration of the process's cycle: zmcf->worker is NULL in any
 * other process, and as long as the worker has no slot in the zone.
 */


#include "conf.h"


/* milliseconds until a worker that could not start tries again */
#define NGX_HTTP_ZK_LOCK_START_AGAIN  500


static ngx_int_t ngx_http_zk_lock_init_module(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_zk_lock_init_process(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_zk_lock_start(ngx_http_zk_lock_main_conf_t *zmcf,
    ngx_log_t *log);
static void ngx_http_zk_lock_start_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_exit_process(ngx_cycle_t *cycle);


static ngx_conf_enum_t  ngx_http_zk_lock_layouts[] = {
    { ngx_string("queue"), NGX_HTTP_ZK_LOCK_LAYOUT_QUEUE },
    { ngx_string("node"), NGX_HTTP_ZK_LOCK_LAYOUT_NODE },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_zk_lock_unreachables[] = {
    { ngx_string("refuse"), NGX_HTTP_ZK_LOCK_UNREACHABLE_REFUSE },
    { ngx_string("pass"), NGX_HTTP_ZK_LOCK_UNREACHABLE_PASS },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_zk_lock_losts[] = {
    { ngx_string("abort"), NGX_HTTP_ZK_LOCK_LOST_ABORT },
    { ngx_string("continue"), NGX_HTTP_ZK_LOCK_LOST_CONTINUE },
    { ngx_null_string, 0 }
};

static ngx_conf_post_t  ngx_http_zk_lock_statuses =
    { ngx_http_zk_lock_check_status };

static ngx_http_zk_lock_least_t  ngx_http_zk_lock_least_timeout =
    { ngx_http_zk_lock_check_least, 1000, "takes at least 1s" };

static ngx_http_zk_lock_least_t  ngx_http_zk_lock_least_zone =
    { ngx_http_zk_lock_check_least, 256 * 1024, "takes at least 256k" };

static ngx_http_zk_lock_least_t  ngx_http_zk_lock_above_zero =
    { ngx_http_zk_lock_check_least, 1, "takes a time above zero" };

static ngx_command_t  ngx_http_zk_lock_commands[] = {

    { ngx_string("zk_lock_servers"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_zk_lock_servers,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zk_lock_session_timeout"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_main_conf_t, session.timeout),
      &ngx_http_zk_lock_least_timeout },

    { ngx_string("zk_lock_auth"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE2,
      ngx_http_zk_lock_auth,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zk_lock_ssl_trusted_certificate"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_zk_lock_ssl,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_main_conf_t, ssl_trusted_certificate),
      NULL },

    { ngx_string("zk_lock_ssl_certificate"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_zk_lock_ssl,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_main_conf_t, ssl_certificate),
      NULL },

    { ngx_string("zk_lock_ssl_certificate_key"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_zk_lock_ssl,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_main_conf_t, ssl_certificate_key),
      NULL },

    { ngx_string("zk_lock_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_size_slot,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_main_conf_t, zone_size),
      &ngx_http_zk_lock_least_zone },

    { ngx_string("zk_lock_cache"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_num_slot,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_main_conf_t, cache),
      NULL },

    { ngx_string("zk_lock_metrics"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_zk_lock_metrics,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zk_lock_health"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_zk_lock_health,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zk_lock_log"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE123,
      ngx_http_zk_lock_conf_log,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zk_lock_page"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE123,
      ngx_http_zk_lock_page,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zk_lock_api"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_zk_lock_api,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zk_lock_root"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_zk_lock_root,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, root),
      NULL },

    { ngx_string("zk_lock_wait"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, wait),
      NULL },

    { ngx_string("zk_lock_max_wait"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, max_wait),
      NULL },

    { ngx_string("zk_lock_timeout"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, timeout),
      &ngx_http_zk_lock_above_zero },

    { ngx_string("zk_lock_ttl"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, ttl),
      &ngx_http_zk_lock_above_zero },

    { ngx_string("zk_lock_max_ttl"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, max_ttl),
      &ngx_http_zk_lock_above_zero },

    { ngx_string("zk_lock_max_queue"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_num_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, max_queue),
      NULL },

    { ngx_string("zk_lock_max_claims"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE12,
      ngx_http_zk_lock_conf_max_claims,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zk_lock_owner"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_zk_lock_conf_text,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, owner),
      NULL },

    { ngx_string("zk_lock_allow_origin"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_zk_lock_conf_origin,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, origin),
      NULL },

    { ngx_string("zk_lock_grace"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, grace),
      &ngx_http_zk_lock_above_zero },

    { ngx_string("zk_lock_durable"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, durable),
      NULL },

    { ngx_string("zk_lock_admin"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, admin),
      NULL },

    { ngx_string("zk_lock_layout"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_enum_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, layout),
      &ngx_http_zk_lock_layouts },

    { ngx_string("zk_lock"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_zk_lock_rule,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("zk_lock_status"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_num_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, status),
      &ngx_http_zk_lock_statuses },

    { ngx_string("zk_lock_unreachable"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_enum_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, unreachable),
      &ngx_http_zk_lock_unreachables },

    { ngx_string("zk_lock_lost"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_enum_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, lost),
      &ngx_http_zk_lock_losts },

    { ngx_string("zk_lock_request_body"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_zk_lock_loc_conf_t, body),
      NULL },

    { ngx_string("zk_lock_require"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_zk_lock_require_rule,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};

static ngx_http_module_t  ngx_http_zk_lock_module_ctx = {
    ngx_http_zk_lock_add_variables,        /* preconfiguration */
    ngx_http_zk_lock_init,                 /* postconfiguration */

    ngx_http_zk_lock_create_main_conf,     /* create main configuration */
    ngx_http_zk_lock_init_main_conf,       /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_zk_lock_create_loc_conf,      /* create location configuration */
    ngx_http_zk_lock_merge_loc_conf        /* merge location configuration */
};

ngx_module_t  ngx_http_zk_lock_module = {
    NGX_MODULE_V1,
    &ngx_http_zk_lock_module_ctx,          /* module context */
    ngx_http_zk_lock_commands,             /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_zk_lock_init_module,          /* init module */
    ngx_http_zk_lock_init_process,         /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_zk_lock_exit_process,         /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


/*
 * Runs in the master when nothing can fail any more and before workers are
 * started, so that the workers of before learn of the reload in time.
 */

static ngx_int_t
ngx_http_zk_lock_init_module(ngx_cycle_t *cycle)
{
    ngx_http_zk_lock_main_conf_t  *zmcf, *old;

    if (ngx_test_config) {
        return NGX_OK;
    }

    zmcf = ngx_http_zk_lock_cycle_conf(cycle);
    old = ngx_http_zk_lock_cycle_conf(cycle->old_cycle);

    zkl_zone_reloaded(zmcf ? zmcf->shm_zone : NULL,
                      old ? old->shm_zone : NULL);

    return NGX_OK;
}


static ngx_int_t
ngx_http_zk_lock_init_process(ngx_cycle_t *cycle)
{
    ngx_http_zk_lock_main_conf_t  *zmcf;

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return NGX_OK;
    }

    zmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_zk_lock_module);

    if (zmcf == NULL || zmcf->shm_zone == NULL) {
        return NGX_OK;
    }

    ngx_http_zk_lock_resolve_start(zmcf, cycle->log);

    /*
     * After an error here nginx would never start this worker again.  So the
     * worker serves all else, and answers 503 for locks until a retry succeeds.
     */

    if (ngx_http_zk_lock_start(zmcf, cycle->log) != NGX_OK) {
        ngx_log_error(NGX_LOG_ERR, cycle->log, 0,
                      "this worker serves no locks yet: no place in "
                      "zk_lock_zone, or no memory");

        zmcf->ident.fd = (ngx_socket_t) -1;

        zmcf->start.handler = ngx_http_zk_lock_start_handler;
        zmcf->start.data = &zmcf->ident;
        zmcf->start.log = cycle->log;
        zmcf->start.cancelable = 1;

        ngx_add_timer(&zmcf->start, NGX_HTTP_ZK_LOCK_START_AGAIN);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_zk_lock_start(ngx_http_zk_lock_main_conf_t *zmcf, ngx_log_t *log)
{
    zmcf->worker = zkl_worker_start(&zmcf->session, zmcf->cache,
                                    zmcf->shm_zone, log);

    if (zmcf->worker == NULL) {
        return NGX_ERROR;
    }

    ngx_http_zk_lock_log_open(zmcf);

    return NGX_OK;
}


static void
ngx_http_zk_lock_start_handler(ngx_event_t *ev)
{
    ngx_http_zk_lock_main_conf_t  *zmcf;

    zmcf = ngx_queue_data(ev, ngx_http_zk_lock_main_conf_t, start);

    if (ngx_exiting) {
        return;
    }

    if (ngx_http_zk_lock_start(zmcf, ev->log) != NGX_OK) {
        ngx_add_timer(&zmcf->start, NGX_HTTP_ZK_LOCK_START_AGAIN);
        return;
    }

    ngx_log_error(NGX_LOG_NOTICE, ev->log, 0, "this worker serves locks now");
}


static void
ngx_http_zk_lock_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_zk_lock_main_conf_t  *zmcf;

    zmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_zk_lock_module);

    if (zmcf == NULL) {
        return;
    }

    if (zmcf->worker != NULL) {
        zkl_worker_stop(zmcf->worker);
        zmcf->worker = NULL;

        ngx_http_zk_lock_log_close(zmcf);
    }

    ngx_http_zk_lock_resolve_stop(zmcf);
}
