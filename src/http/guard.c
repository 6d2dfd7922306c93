
/*
 * Guards: a request is served while locks are held, or if the client shows that
 * it holds a lock.
 *
 * The handler runs in the precontent phase, so access control comes first, and
 * mirror, try_files and the content come behind.  A request goes through up to
 * three steps there, and the phases run again after each step that waited:
 *
 *   the body is read      so that a slow client delays no waiter
 *   the rules are checked zk_lock_require, by require.c
 *   the locks are held    zk_lock: a group of bound claims
 *
 * The rules are checked once more when the locks are held.
 *
 * The claims end when the request ends: a cleanup handler of the request calls
 * zkl_group_leave() for each set.  The cleanup of an upstream was added later,
 * so it runs before, and has closed the connection to the upstream by then.
 * If a claim is lost while the request is served, the request is cut off,
 * unless zk_lock_lost says otherwise.
 *
 * An internal redirect clears the module's context, but not the pool's
 * cleanups, which lead to the guard.  Then a lock of the new location that is
 * held already is not taken again.  A request that was refused takes no lock
 * for its error page.
 *
 * A step returns NGX_OK: go on with the next step; NGX_DECLINED: the request
 * passes; NGX_AGAIN: an event goes on; NGX_ABORT: guard->refusal is the answer;
 * NGX_ERROR: there is no memory; or an HTTP status.
 *
 * Everything here runs on the event loop.  A request whose location has no
 * rule, and a subrequest, has no guard.  guard->set is NULL unless the current
 * location asks for a lock that is not held; each set that was asked for stays
 * in guard->sets, and each rule in guard->requires.  guard->check is NULL when
 * all rules were checked.
 */


#include "http/guard.h"
#include "http/api.h"
#include "http/answer.h"
#include "http/log.h"
#include "http/require.h"
#include "http/result.h"
#include "core/group.h"


/* what the guard waits for */

typedef enum {
    NGX_HTTP_ZK_LOCK_GUARD_IDLE = 0,        /* nothing: a phase that comes to
                                               the handler begins */
    NGX_HTTP_ZK_LOCK_GUARD_BODY,            /* the body */
    NGX_HTTP_ZK_LOCK_GUARD_CHECK,           /* zk_lock_require */
    NGX_HTTP_ZK_LOCK_GUARD_LOCK,            /* the locks */
    NGX_HTTP_ZK_LOCK_GUARD_READY,           /* the handler, which goes on as
                                               guard->rc says */
    NGX_HTTP_ZK_LOCK_GUARD_OVER             /* nothing: the request was refused,
                                               or cut off */
} ngx_http_zk_lock_guard_state_e;


typedef struct ngx_http_zk_lock_guard_s  ngx_http_zk_lock_guard_t;
typedef struct ngx_http_zk_lock_guard_set_s  ngx_http_zk_lock_guard_set_t;


/* a lock of a location */

typedef struct {
    ngx_str_t                          name;
    ngx_str_t                          path;
    ngx_str_t                          owner;
} ngx_http_zk_lock_guard_lock_t;


/* the locks that a location asks for and that are not held already */

struct ngx_http_zk_lock_guard_set_s {
    ngx_http_zk_lock_guard_t          *guard;
    ngx_http_zk_lock_guard_set_t      *next;    /* asked for before */
    ngx_http_zk_lock_guard_lock_t     *locks;   /* in the order of the
                                                   directives */
    ngx_uint_t                         nlocks;
    zkl_group_t                        group;
    ngx_uint_t                         lost;    /* zk_lock_lost */
};


struct ngx_http_zk_lock_guard_s {
    ngx_http_zk_lock_told_t            told;
    ngx_http_request_t                *request;
    zkl_worker_t                      *worker;
    ngx_http_zk_lock_guard_state_e     state;
    ngx_int_t                          rc;      /* of the step before, with
                                                   READY */
    ngx_http_zk_lock_guard_set_t      *set;
    ngx_http_zk_lock_guard_set_t      *sets;
    ngx_http_zk_lock_require_t        *requires;    /* in their order, those of
                                                       locations before the
                                                       current too */
    ngx_http_zk_lock_require_t        *check;
    ngx_http_zk_lock_refusal_t         refusal;
    ngx_event_t                        patience;    /* with
                                                       zk_lock_unreachable
                                                       pass */
};


static ngx_http_zk_lock_guard_t *ngx_http_zk_lock_guard_find(
    ngx_http_request_t *r);
static ngx_http_zk_lock_guard_t *ngx_http_zk_lock_guard_create(
    ngx_http_request_t *r);
static void ngx_http_zk_lock_guard_mark(void *data);
static void ngx_http_zk_lock_guard_cleanup(void *data);
static void ngx_http_zk_lock_guard_stop(ngx_http_zk_lock_guard_t *guard);
static ngx_int_t ngx_http_zk_lock_guard_collect(
    ngx_http_zk_lock_guard_t *guard, ngx_http_zk_lock_loc_conf_t *zlcf);
static ngx_int_t ngx_http_zk_lock_guard_name(ngx_http_zk_lock_guard_t *guard,
    ngx_http_complex_value_t *value, ngx_http_zk_lock_guard_lock_t *lock);
static ngx_int_t ngx_http_zk_lock_guard_require(
    ngx_http_zk_lock_guard_t *guard, ngx_http_zk_lock_require_rule_t *rule);
static ngx_int_t ngx_http_zk_lock_guard_add(ngx_http_zk_lock_guard_t *guard,
    ngx_http_zk_lock_guard_rule_t *rule);
static zkl_group_part_t *ngx_http_zk_lock_guard_held(
    ngx_http_zk_lock_guard_set_t *set, ngx_str_t *path);
static ngx_int_t ngx_http_zk_lock_guard_body(ngx_http_zk_lock_guard_t *guard);
static void ngx_http_zk_lock_guard_body_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_zk_lock_guard_go(ngx_http_zk_lock_guard_t *guard);
static ngx_int_t ngx_http_zk_lock_guard_wait(ngx_http_zk_lock_guard_t *guard,
    ngx_http_zk_lock_guard_state_e state);
static void ngx_http_zk_lock_guard_checked(
    ngx_http_zk_lock_require_t *require, ngx_int_t rc);
static void ngx_http_zk_lock_guard_required(ngx_http_zk_lock_guard_t *guard,
    ngx_http_zk_lock_require_t *require);
static ngx_int_t ngx_http_zk_lock_guard_acquire(
    ngx_http_zk_lock_guard_t *guard);
static ngx_msec_t ngx_http_zk_lock_guard_away(ngx_http_zk_lock_guard_t *guard);
static void ngx_http_zk_lock_guard_impatient(ngx_http_zk_lock_guard_t *guard);
static const zkl_claim_data_t *ngx_http_zk_lock_guard_cdata(
    zkl_group_t *group, ngx_uint_t part, zkl_claim_data_t *buf);
static void ngx_http_zk_lock_guard_acquired(zkl_group_t *group,
    zkl_outcome_e outcome);
static void ngx_http_zk_lock_guard_patience_handler(ngx_event_t *ev);
static void ngx_http_zk_lock_guard_go_on(ngx_http_zk_lock_guard_t *guard,
    ngx_int_t rc);
static ngx_int_t ngx_http_zk_lock_guard_refused(
    ngx_http_zk_lock_guard_t *guard, zkl_outcome_e outcome);
static void ngx_http_zk_lock_guard_waited(ngx_http_zk_lock_guard_t *guard,
    const char *word);
static void ngx_http_zk_lock_guard_told(ngx_http_zk_lock_guard_t *guard,
    const char *word);
static ngx_int_t ngx_http_zk_lock_guard_end(ngx_http_zk_lock_guard_t *guard,
    ngx_int_t rc);
static ngx_int_t ngx_http_zk_lock_guard_answer(
    ngx_http_zk_lock_guard_t *guard, ngx_int_t rc);
static void ngx_http_zk_lock_guard_resume(ngx_http_zk_lock_guard_t *guard,
    ngx_int_t rc);
static void ngx_http_zk_lock_guard_lost(ngx_http_zk_lock_guard_t *guard,
    ngx_str_t *path, const char *reason, ngx_uint_t abort);
static void ngx_http_zk_lock_guard_claim_lost(zkl_group_t *group,
    const char *reason);
static void ngx_http_zk_lock_guard_require_lost(
    ngx_http_zk_lock_require_t *require);
static void ngx_http_zk_lock_guard_abort(ngx_http_zk_lock_guard_t *guard);
static ngx_uint_t ngx_http_zk_lock_guard_interrupt(
    ngx_http_zk_lock_guard_t *guard);
static void ngx_http_zk_lock_guard_reset(ngx_http_request_t *r);


ngx_int_t
ngx_http_zk_lock_guard_handler(ngx_http_request_t *r)
{
    ngx_int_t                     rc;
    ngx_http_zk_lock_guard_t     *guard;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    if ((zlcf->guards == NULL && zlcf->requires == NULL)
        || r != r->main || r->post_action)
    {
        return NGX_DECLINED;
    }

    guard = ngx_http_zk_lock_guard_find(r);

    if (guard == NULL) {
        guard = ngx_http_zk_lock_guard_create(r);
        if (guard == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock guard: state %d", guard->state);

    switch (guard->state) {

    case NGX_HTTP_ZK_LOCK_GUARD_IDLE:
        rc = ngx_http_zk_lock_guard_collect(guard, zlcf);

        if (rc != NGX_OK) {
            return ngx_http_zk_lock_guard_end(guard, rc);
        }

        return ngx_http_zk_lock_guard_body(guard);

    case NGX_HTTP_ZK_LOCK_GUARD_READY:
        return (guard->rc == NGX_OK)
               ? ngx_http_zk_lock_guard_go(guard)
               : ngx_http_zk_lock_guard_end(guard, guard->rc);

    case NGX_HTTP_ZK_LOCK_GUARD_BODY:

        /* nginx has refused the body, and this is the error page */

        guard->state = NGX_HTTP_ZK_LOCK_GUARD_OVER;

        /* fall through */

    case NGX_HTTP_ZK_LOCK_GUARD_OVER:
        return NGX_DECLINED;

    default: /* NGX_HTTP_ZK_LOCK_GUARD_CHECK, NGX_HTTP_ZK_LOCK_GUARD_LOCK */
        return NGX_AGAIN;
    }
}


ngx_http_zk_lock_told_t *
ngx_http_zk_lock_guard_notes(ngx_http_request_t *r)
{
    ngx_http_zk_lock_guard_t  *guard;

    guard = ngx_http_zk_lock_guard_find(r);

    /* the names of all rules are empty */

    if (guard == NULL || guard->told.type == NGX_HTTP_ZK_LOCK_OTHER) {
        return NULL;
    }

    guard->told.refused = (guard->refusal.status != 0);

    return &guard->told;
}


/* A subrequest has the pool of the main request. */

static ngx_http_zk_lock_guard_t *
ngx_http_zk_lock_guard_find(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t  *cln;

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_zk_lock_guard_mark) {
            return cln->data;
        }
    }

    return NULL;
}


static ngx_http_zk_lock_guard_t *
ngx_http_zk_lock_guard_create(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t            *mark;
    ngx_http_cleanup_t            *cln;
    ngx_http_zk_lock_guard_t      *guard;
    ngx_http_zk_lock_main_conf_t  *zmcf;

    guard = ngx_pcalloc(r->pool, sizeof(ngx_http_zk_lock_guard_t));
    if (guard == NULL) {
        return NULL;
    }

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NULL;
    }

    cln->handler = ngx_http_zk_lock_guard_cleanup;
    cln->data = guard;

    mark = ngx_pool_cleanup_add(r->pool, 0);
    if (mark == NULL) {
        cln->handler = NULL;
        return NULL;
    }

    mark->handler = ngx_http_zk_lock_guard_mark;
    mark->data = guard;

    zmcf = ngx_http_get_module_main_conf(r, ngx_http_zk_lock_module);

    guard->request = r;
    guard->worker = zmcf->worker;

    return guard;
}


/* There is nothing to clean up: the cleanup leads to the guard. */

static void
ngx_http_zk_lock_guard_mark(void *data)
{
    /* void */
}


/* The request ends: releases the locks. */

static void
ngx_http_zk_lock_guard_cleanup(void *data)
{
    ngx_http_zk_lock_guard_t *guard = data;

    ngx_http_zk_lock_guard_set_t  *set;

    if (guard->state == NGX_HTTP_ZK_LOCK_GUARD_LOCK) {
        ngx_http_zk_lock_guard_waited(guard, "gone");
    }

    ngx_http_zk_lock_guard_stop(guard);

    for (set = guard->sets; set; set = set->next) {
        (void) zkl_group_leave(&set->group);
    }
}


/* The request is refused, cut off or at its end: waits for nothing any more. */

static void
ngx_http_zk_lock_guard_stop(ngx_http_zk_lock_guard_t *guard)
{
    ngx_http_zk_lock_require_t  *require;

    if (guard->state == NGX_HTTP_ZK_LOCK_GUARD_LOCK && guard->set != NULL) {
        (void) zkl_group_leave(&guard->set->group);
    }

    for (require = guard->requires; require; require = require->next) {
        ngx_http_zk_lock_require_leave(require);
    }

    ngx_http_zk_lock_guard_impatient(guard);

    guard->state = NGX_HTTP_ZK_LOCK_GUARD_OVER;
}


/* What the location asks for. */


/* Collects the rules of the location. */

static ngx_int_t
ngx_http_zk_lock_guard_collect(ngx_http_zk_lock_guard_t *guard,
    ngx_http_zk_lock_loc_conf_t *zlcf)
{
    ngx_int_t                         rc;
    ngx_uint_t                        i;
    ngx_http_zk_lock_guard_rule_t    *rule;
    ngx_http_zk_lock_require_rule_t  *require;

    guard->set = NULL;
    guard->check = NULL;

    require = zlcf->requires ? zlcf->requires->elts : NULL;

    for (i = 0; require != NULL && i < zlcf->requires->nelts; i++) {
        rc = ngx_http_zk_lock_guard_require(guard, &require[i]);

        if (rc != NGX_DECLINED && guard->told.type == NGX_HTTP_ZK_LOCK_OTHER) {
            guard->told.type = NGX_HTTP_ZK_LOCK_REQUIRE;
        }

        if (rc != NGX_OK && rc != NGX_DECLINED) {
            return rc;
        }
    }

    rule = zlcf->guards ? zlcf->guards->elts : NULL;

    for (i = 0; rule != NULL && i < zlcf->guards->nelts; i++) {
        rc = ngx_http_zk_lock_guard_add(guard, &rule[i]);

        if (rc != NGX_DECLINED) {
            guard->told.type = NGX_HTTP_ZK_LOCK_GUARD;
        }

        if (rc != NGX_OK && rc != NGX_DECLINED) {
            return rc;
        }
    }

    return (guard->set == NULL && guard->check == NULL) ? NGX_DECLINED
                                                        : NGX_OK;
}


/* Evaluates the name of a rule.  NGX_DECLINED: the name is empty. */

static ngx_int_t
ngx_http_zk_lock_guard_name(ngx_http_zk_lock_guard_t *guard,
    ngx_http_complex_value_t *value, ngx_http_zk_lock_guard_lock_t *lock)
{
    ngx_int_t            rc;
    ngx_str_t            text, root;
    ngx_http_request_t  *r;

    r = guard->request;

    if (ngx_http_complex_value(r, value, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        return NGX_DECLINED;
    }

    if (ngx_http_zk_lock_request_name(r, &text, zkl_name_text_write,
                                      &lock->name)
        != NGX_OK
        || ngx_http_zk_lock_request_root(r, &root) != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_http_zk_lock_request_path(r, &root, &lock->name, &lock->path);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "zk_lock_root \"%V\" is too long for the name of a lock",
                  &root);

    return ngx_http_zk_lock_refuse(&guard->refusal, NGX_HTTP_BAD_REQUEST,
                                   "the root and the name together are too "
                                   "long");
}


static ngx_int_t
ngx_http_zk_lock_guard_require(ngx_http_zk_lock_guard_t *guard,
    ngx_http_zk_lock_require_rule_t *rule)
{
    ngx_int_t                       rc;
    ngx_http_zk_lock_require_t     *require, **last;
    ngx_http_zk_lock_loc_conf_t    *zlcf;
    ngx_http_zk_lock_guard_lock_t   lock;

    rc = ngx_http_zk_lock_guard_name(guard, rule->name, &lock);
    if (rc != NGX_OK) {
        return rc;
    }

    require = ngx_pcalloc(guard->request->pool,
                          sizeof(ngx_http_zk_lock_require_t));
    if (require == NULL) {
        return NGX_ERROR;
    }

    zlcf = ngx_http_get_module_loc_conf(guard->request,
                                        ngx_http_zk_lock_module);

    require->request = guard->request;
    require->worker = guard->worker;
    require->rule = rule;
    require->timeout = zlcf->timeout;
    require->node = (ngx_http_zk_lock_request_node(guard->request) != 0);
    require->name = lock.name;
    require->path = lock.path;
    require->handler = ngx_http_zk_lock_guard_checked;
    require->lost = ngx_http_zk_lock_guard_require_lost;
    require->data = guard;

    for (last = &guard->requires; *last; last = &(*last)->next) {
        /* void */
    }

    *last = require;

    if (guard->check == NULL) {
        guard->check = require;
    }

    return NGX_OK;
}


/*
 * Adds a lock to the location's set, in the order of the paths.  NGX_DECLINED:
 * the request holds the lock already, or asks for it already, in that mode;
 * NGX_ABORT: in another mode.
 */

static ngx_int_t
ngx_http_zk_lock_guard_add(ngx_http_zk_lock_guard_t *guard,
    ngx_http_zk_lock_guard_rule_t *rule)
{
    ngx_int_t                      rc;
    ngx_str_t                     *prior;
    ngx_uint_t                     n;
    zkl_mode_t                     mode;
    zkl_group_part_t              *part;
    ngx_http_request_t            *r;
    ngx_http_complex_value_t      *owner;
    ngx_http_zk_lock_loc_conf_t   *zlcf;
    ngx_http_zk_lock_guard_set_t  *set;
    ngx_http_zk_lock_guard_lock_t  lock;

    r = guard->request;
    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    rc = ngx_http_zk_lock_guard_name(guard, rule->name, &lock);
    if (rc != NGX_OK) {
        return rc;
    }

    mode = ngx_http_zk_lock_request_node(r) ? ZKL_NODE : rule->mode;

    for (set = guard->sets; set; set = set->next) {
        part = ngx_http_zk_lock_guard_held(set, &lock.path);

        if (part == NULL) {
            continue;
        }

        if (part->mode == mode
            || (part->mode == ZKL_WRITE && mode == ZKL_READ))
        {
            return NGX_DECLINED;
        }

        return ngx_http_zk_lock_refuse(&guard->refusal, NGX_HTTP_BAD_REQUEST,
                                       "this request asks for one lock in "
                                       "two modes");
    }

    set = guard->set;

    if (set == NULL) {
        n = zlcf->guards->nelts;

        set = ngx_pcalloc(r->pool, sizeof(ngx_http_zk_lock_guard_set_t));
        if (set == NULL) {
            return NGX_ERROR;
        }

        set->locks = ngx_palloc(r->pool,
                                n * sizeof(ngx_http_zk_lock_guard_lock_t));
        set->group.parts = ngx_palloc(r->pool, n * sizeof(zkl_group_part_t));

        if (set->locks == NULL || set->group.parts == NULL) {
            return NGX_ERROR;
        }

        set->guard = guard;
        set->lost = zlcf->lost;
        set->next = guard->sets;

        guard->sets = set;
        guard->set = set;
    }

    owner = rule->owner ? rule->owner : zlcf->owner;

    ngx_str_null(&lock.owner);

    if (owner != NULL
        && ngx_http_complex_value(r, owner, &lock.owner) != NGX_OK)
    {
        return NGX_ERROR;
    }

    set->locks[set->nlocks++] = lock;

    part = &set->group.parts[set->group.nparts++];

    for ( /* void */ ; part > set->group.parts; part--) {
        prior = &part[-1].path;

        if (ngx_memn2cmp(prior->data, lock.path.data, prior->len, lock.path.len)
            < 0)
        {
            break;
        }

        *part = part[-1];
    }

    ngx_memzero(part, sizeof(zkl_group_part_t));

    part->path = lock.path;
    part->mode = mode;
    part->wait = ngx_min(rule->wait == NGX_CONF_UNSET_MSEC ? zlcf->wait
                                                           : rule->wait,
                         zlcf->max_wait);
    part->once = (part->wait == 0);

    return NGX_OK;
}


/* The part of set that has the lock at path, or asks for the lock; or NULL. */

static zkl_group_part_t *
ngx_http_zk_lock_guard_held(ngx_http_zk_lock_guard_set_t *set, ngx_str_t *path)
{
    ngx_uint_t         i;
    zkl_group_part_t  *part;

    for (i = 0; i < set->group.nparts; i++) {
        part = &set->group.parts[i];

        if ((part->claim != NULL || set == set->guard->set)
            && part->path.len == path->len
            && ngx_memcmp(part->path.data, path->data, path->len) == 0)
        {
            return part;
        }
    }

    return NULL;
}


/* The body. */


static ngx_int_t
ngx_http_zk_lock_guard_body(ngx_http_zk_lock_guard_t *guard)
{
    ngx_int_t                     rc;
    ngx_http_request_t           *r;
    ngx_http_core_loc_conf_t     *clcf;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    r = guard->request;
    zlcf = ngx_http_get_module_loc_conf(r, ngx_http_zk_lock_module);

    if (!zlcf->body || r->request_body != NULL || r->discard_body
        || (r->headers_in.content_length_n <= 0 && !r->headers_in.chunked))
    {
        return ngx_http_zk_lock_guard_go(guard);
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (r->method == NGX_HTTP_PUT && clcf->handler == NULL) {

        /* ngx_http_dav_handler() takes no body that is not in such a file */

        r->request_body_in_file_only = 1;
        r->request_body_in_persistent_file = 1;
        r->request_body_in_clean_file = 1;
        r->request_body_file_group_access = 1;
        r->request_body_file_log_level = 0;
    }

    guard->state = NGX_HTTP_ZK_LOCK_GUARD_BODY;

    rc = ngx_http_read_client_request_body(r,
                                          ngx_http_zk_lock_guard_body_handler);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        guard->state = NGX_HTTP_ZK_LOCK_GUARD_OVER;
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


static void
ngx_http_zk_lock_guard_body_handler(ngx_http_request_t *r)
{
    ngx_http_zk_lock_guard_t  *guard;

    guard = ngx_http_zk_lock_guard_find(r);

    guard->state = NGX_HTTP_ZK_LOCK_GUARD_READY;
    guard->rc = NGX_OK;

    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}


/* The rules, and the locks. */


/*
 * Goes on with what the location asks for.  Returns what the handler of a phase
 * returns.
 */

static ngx_int_t
ngx_http_zk_lock_guard_go(ngx_http_zk_lock_guard_t *guard)
{
    ngx_int_t                    rc;
    ngx_http_zk_lock_require_t  *require;

    while (guard->check != NULL) {
        require = guard->check;

        rc = ngx_http_zk_lock_require(require);

        if (rc == NGX_OK) {
            guard->check = require->next;
            continue;
        }

        if (rc == NGX_AGAIN) {
            return ngx_http_zk_lock_guard_wait(guard,
                                               NGX_HTTP_ZK_LOCK_GUARD_CHECK);
        }

        ngx_http_zk_lock_guard_required(guard, require);

        return ngx_http_zk_lock_guard_end(guard, rc);
    }

    if (guard->set == NULL) {
        return ngx_http_zk_lock_guard_end(guard, NGX_DECLINED);
    }

    rc = ngx_http_zk_lock_guard_acquire(guard);

    if (rc == NGX_AGAIN) {
        return ngx_http_zk_lock_guard_wait(guard, NGX_HTTP_ZK_LOCK_GUARD_LOCK);
    }

    return ngx_http_zk_lock_guard_end(guard, rc);
}


static ngx_int_t
ngx_http_zk_lock_guard_wait(ngx_http_zk_lock_guard_t *guard,
    ngx_http_zk_lock_guard_state_e state)
{
    ngx_int_t  rc;

    guard->state = state;

    rc = ngx_http_zk_lock_request_listen(guard->request);

    return (rc == NGX_OK) ? NGX_AGAIN
                          : ngx_http_zk_lock_guard_end(guard, rc);
}


static void
ngx_http_zk_lock_guard_checked(ngx_http_zk_lock_require_t *require,
    ngx_int_t rc)
{
    ngx_http_zk_lock_guard_t *guard = require->data;

    if (rc == NGX_OK) {
        guard->check = require->next;

    } else {
        ngx_http_zk_lock_guard_required(guard, require);
    }

    ngx_http_zk_lock_guard_resume(guard, rc);
}


/* A rule has refused the request. */

static void
ngx_http_zk_lock_guard_required(ngx_http_zk_lock_guard_t *guard,
    ngx_http_zk_lock_require_t *require)
{
    guard->told.name = require->name;
    guard->refusal = require->refusal;

    ngx_http_zk_lock_guard_told(guard, require->word);
}


static ngx_int_t
ngx_http_zk_lock_guard_acquire(ngx_http_zk_lock_guard_t *guard)
{
    ngx_msec_t                    away;
    zkl_group_t                  *group;
    ngx_http_zk_lock_told_t      *told;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    zlcf = ngx_http_get_module_loc_conf(guard->request,
                                        ngx_http_zk_lock_module);
    told = &guard->told;
    group = &guard->set->group;

    told->waits = 1;

    if (told->name.len == 0) {
        told->name = guard->set->locks[0].name;
    }

    group->started = ngx_current_msec;

    if (guard->worker == NULL) {
        return ngx_http_zk_lock_guard_refused(guard, ZKL_NO_ROOM);
    }

    group->worker = guard->worker;
    group->timeout = zlcf->timeout;
    group->ttl = zlcf->max_ttl;
    group->cdata = ngx_http_zk_lock_guard_cdata;
    group->request = ngx_http_zk_lock_log_request(guard->request);
    group->handler = ngx_http_zk_lock_guard_acquired;
    group->lost = ngx_http_zk_lock_guard_claim_lost;
    group->data = guard->set;

    if (ngx_http_zk_lock_request_terms(guard->request, guard->worker,
                                       &group->terms)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (zlcf->unreachable == NGX_HTTP_ZK_LOCK_UNREACHABLE_PASS) {
        away = ngx_http_zk_lock_guard_away(guard);

        if (away >= zlcf->timeout) {
            return ngx_http_zk_lock_guard_refused(guard, ZKL_UNREACHABLE);
        }

        zkl_worker_timer(guard->worker, &guard->patience,
                         ngx_http_zk_lock_guard_patience_handler);

        ngx_add_timer(&guard->patience, zlcf->timeout - away);
    }

    return (zkl_group_acquire(group) == NGX_OK)
           ? NGX_AGAIN
           : ngx_http_zk_lock_guard_refused(guard, group->outcome);
}


/* For how long ZooKeeper has been out of reach. */

static ngx_msec_t
ngx_http_zk_lock_guard_away(ngx_http_zk_lock_guard_t *guard)
{
    zkl_worker_t  *worker;

    worker = guard->worker;

    return worker->away ? ngx_current_msec - worker->missed : 0;
}


static void
ngx_http_zk_lock_guard_impatient(ngx_http_zk_lock_guard_t *guard)
{
    if (guard->patience.timer_set) {
        ngx_del_timer(&guard->patience);
    }
}


static const zkl_claim_data_t *
ngx_http_zk_lock_guard_cdata(zkl_group_t *group, ngx_uint_t part,
    zkl_claim_data_t *buf)
{
    ngx_str_t                     *path;
    ngx_uint_t                     i;
    ngx_http_zk_lock_guard_set_t  *set;

    set = group->data;
    path = &group->parts[part].path;

    for (i = 0; set->locks[i].path.data != path->data; i++) {
        /* void */
    }

    buf->has_id = (group->parts[part].mode == ZKL_NODE);
    buf->owner_len = zkl_text_show(buf->owner, ZKL_OWNER_MAX,
                                   (char *) set->locks[i].owner.data,
                                   set->locks[i].owner.len);

    ngx_http_zk_lock_request_cdata(set->guard->request, buf,
                                   &set->locks[i].name, &set->locks[i].path);

    return buf;
}


static void
ngx_http_zk_lock_guard_acquired(zkl_group_t *group, zkl_outcome_e outcome)
{
    u_char                        *p;
    int64_t                        fencing;
    ngx_int_t                      rc;
    ngx_str_t                     *list;
    ngx_uint_t                     i;
    zkl_group_part_t              *part;
    ngx_http_request_t            *r;
    ngx_http_zk_lock_told_t       *told;
    ngx_http_zk_lock_guard_t      *guard;
    ngx_http_zk_lock_guard_set_t  *set;

    set = group->data;
    guard = set->guard;
    told = &guard->told;
    r = guard->request;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock guard: \"%V\" outcome %d", &told->name, outcome);

    if (outcome != ZKL_GRANTED) {
        rc = ngx_http_zk_lock_guard_refused(guard, outcome);

        ngx_http_zk_lock_guard_go_on(guard, rc);
        return;
    }

    if (ngx_http_zk_lock_request_gone(r)) {
        ngx_http_zk_lock_guard_waited(guard, "gone");
        ngx_http_zk_lock_guard_go_on(guard, NGX_HTTP_CLIENT_CLOSED_REQUEST);
        return;
    }

    ngx_http_zk_lock_guard_waited(guard, "granted");

    list = &told->fencings;

    p = ngx_pnalloc(r->pool, list->len + set->nlocks * (NGX_INT64_LEN + 1));
    if (p == NULL) {
        ngx_http_zk_lock_guard_go_on(guard, NGX_ERROR);
        return;
    }

    if (list->len != 0) {
        ngx_memcpy(p, list->data, list->len);
    }

    list->data = p;
    p += list->len;

    for (i = 0; i < set->nlocks; i++) {
        part = ngx_http_zk_lock_guard_held(set, &set->locks[i].path);

        fencing = zkl_fencing_token(part->claim->czxid, part->claim->index);

        if (told->fencing == 0) {
            told->fencing = fencing;
        }

        if (p != list->data) {
            *p++ = ',';
        }

        p = ngx_sprintf(p, "%L", fencing);
    }

    list->len = p - list->data;

    ngx_http_zk_lock_guard_go_on(guard, NGX_DECLINED);
}


/* ZooKeeper is out of reach: the request is served without the locks. */

static void
ngx_http_zk_lock_guard_patience_handler(ngx_event_t *ev)
{
    ngx_msec_t                    away;
    ngx_http_zk_lock_guard_t     *guard;
    ngx_http_zk_lock_loc_conf_t  *zlcf;

    guard = ngx_queue_data(ev, ngx_http_zk_lock_guard_t, patience);
    zlcf = ngx_http_get_module_loc_conf(guard->request,
                                        ngx_http_zk_lock_module);

    away = ngx_http_zk_lock_guard_away(guard);

    if (away < zlcf->timeout) {
        ngx_add_timer(ev, zlcf->timeout - away);
        return;
    }

    ngx_http_set_log_request(guard->request->connection->log, guard->request);

    (void) zkl_group_leave(&guard->set->group);

    ngx_http_zk_lock_guard_go_on(guard,
                                 ngx_http_zk_lock_guard_refused(guard,
                                                           ZKL_UNREACHABLE));
}


/* The wait for the locks is over. */

static void
ngx_http_zk_lock_guard_go_on(ngx_http_zk_lock_guard_t *guard, ngx_int_t rc)
{
    if (rc == NGX_DECLINED && guard->requires != NULL) {

        /* what was shown before the wait may not hold any more */

        guard->set = NULL;
        guard->check = guard->requires;
        rc = NGX_OK;
    }

    ngx_http_zk_lock_guard_resume(guard, rc);
}


/* No lock of the set is held. */

static ngx_int_t
ngx_http_zk_lock_guard_refused(ngx_http_zk_lock_guard_t *guard,
    zkl_outcome_e outcome)
{
    ngx_http_zk_lock_loc_conf_t      *zlcf;
    const ngx_http_zk_lock_result_t  *row;

    zlcf = ngx_http_get_module_loc_conf(guard->request,
                                        ngx_http_zk_lock_module);

    if ((outcome == ZKL_UNREACHABLE || outcome == ZKL_NO_ROOM)
        && zlcf->unreachable == NGX_HTTP_ZK_LOCK_UNREACHABLE_PASS)
    {
        ngx_http_zk_lock_guard_waited(guard, "unlocked");

        ngx_log_error(NGX_LOG_WARN, guard->request->connection->log, 0,
                      "a request is served without the lock \"%V\": ZooKeeper "
                      "is out of reach, or there is no room for a claim",
                      &guard->set->locks[0].path);

        return NGX_DECLINED;
    }

    if (outcome == ZKL_TIMED_OUT) {
        ngx_http_zk_lock_guard_waited(guard, "taken");

        (void) ngx_http_zk_lock_refuse(&guard->refusal,
                                       NGX_HTTP_ZK_LOCK_STATUS_LOCKED,
                                       "the lock of this request is held, and "
                                       "the wait is over");

        guard->refusal.status = zlcf->status;

        return NGX_ABORT;
    }

    row = ngx_http_zk_lock_result(outcome);

    ngx_http_zk_lock_guard_waited(guard, (char *) row->word.data);

    ngx_log_error(NGX_LOG_INFO, guard->request->connection->log, 0,
                  "a request does not get the lock \"%V\": %V",
                  &guard->set->locks[0].path, &row->word);

    return ngx_http_zk_lock_refuse(&guard->refusal, row->kind, row->detail);
}


/* Notes the end of a wait, for logs. */

static void
ngx_http_zk_lock_guard_waited(ngx_http_zk_lock_guard_t *guard,
    const char *word)
{
    guard->told.waited += ngx_current_msec - guard->set->group.started;

    ngx_http_zk_lock_guard_told(guard, word);
}


/* Notes an outcome, for logs; a grant does not hide a loss before. */

static void
ngx_http_zk_lock_guard_told(ngx_http_zk_lock_guard_t *guard, const char *word)
{
    ngx_str_t  *outcome;

    outcome = &guard->told.outcome;

    if (ngx_strcmp(word, "granted") == 0 && outcome->len != 0) {
        return;
    }

    outcome->data = (u_char *) word;
    outcome->len = ngx_strlen(word);
}


/* The end of the steps: lets the request pass, or answers. */

static ngx_int_t
ngx_http_zk_lock_guard_end(ngx_http_zk_lock_guard_t *guard, ngx_int_t rc)
{
    if (rc == NGX_DECLINED) {
        ngx_http_zk_lock_guard_impatient(guard);

        guard->state = NGX_HTTP_ZK_LOCK_GUARD_IDLE;
        return NGX_DECLINED;
    }

    rc = ngx_http_zk_lock_guard_answer(guard, rc);

    ngx_http_finalize_request(guard->request, rc);

    return NGX_DONE;
}


/* Returns the rc for ngx_http_finalize_request(). */

static ngx_int_t
ngx_http_zk_lock_guard_answer(ngx_http_zk_lock_guard_t *guard, ngx_int_t rc)
{
    ngx_http_zk_lock_guard_stop(guard);

    switch (rc) {

    case NGX_ABORT:
        rc = ngx_http_zk_lock_answer_refusal(guard->request, &guard->refusal);

        guard->refusal.holder = NULL;

        return rc;

    case NGX_ERROR:
        return NGX_HTTP_INTERNAL_SERVER_ERROR;

    default:
        return rc;
    }
}


/* A step has ended in an event: runs the phases again, from the handler on. */

static void
ngx_http_zk_lock_guard_resume(ngx_http_zk_lock_guard_t *guard, ngx_int_t rc)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = guard->request;
    c = r->connection;

    ngx_http_zk_lock_guard_impatient(guard);

    if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        rc = NGX_ERROR;
    }

    /* locks that were granted to a client that is gone are free at once */

    if (rc != NGX_OK && rc != NGX_DECLINED) {
        ngx_http_zk_lock_guard_stop(guard);
    }

    guard->state = NGX_HTTP_ZK_LOCK_GUARD_READY;
    guard->rc = rc;

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);

    ngx_http_run_posted_requests(c);
}


/* A lock is lost while the request is served. */


/*
 * A lock is lost: unless the request was refused, cut off or answered, logs
 * this, and with abort cuts the request off.
 */

static void
ngx_http_zk_lock_guard_lost(ngx_http_zk_lock_guard_t *guard, ngx_str_t *path,
    const char *reason, ngx_uint_t abort)
{
    ngx_http_request_t  *r;

    r = guard->request;

    if (guard->state == NGX_HTTP_ZK_LOCK_GUARD_OVER || r->request_complete) {
        return;
    }

    ngx_http_set_log_request(r->connection->log, r);

    if (reason != NULL) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "the lock \"%V\" was lost while its request was "
                      "served: %s", path, reason);

    } else {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "the client lost the lock \"%V\" while its request was "
                      "served", path);
    }

    ngx_http_zk_lock_guard_told(guard, "lost");

    if (abort) {
        ngx_http_zk_lock_guard_abort(guard);
    }
}


static void
ngx_http_zk_lock_guard_claim_lost(zkl_group_t *group, const char *reason)
{
    ngx_http_zk_lock_guard_set_t *set = group->data;

    ngx_http_zk_lock_guard_lost(set->guard, &group->parts[group->part].path,
                                reason,
                                set->lost == NGX_HTTP_ZK_LOCK_LOST_ABORT);
}


static void
ngx_http_zk_lock_guard_require_lost(ngx_http_zk_lock_require_t *require)
{
    ngx_http_zk_lock_guard_lost(require->data, &require->path, NULL, 1);
}


/* Cuts the request off: by 503 if the header was not sent and that is safe. */

static void
ngx_http_zk_lock_guard_abort(ngx_http_zk_lock_guard_t *guard)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    if (ngx_http_zk_lock_guard_interrupt(guard)) {
        rc = ngx_http_zk_lock_refuse(&guard->refusal,
                                     NGX_HTTP_SERVICE_UNAVAILABLE,
                                     "the lock of this request was lost: the "
                                     "request was cut off, and may have been "
                                     "carried out in part");

        rc = ngx_http_zk_lock_guard_answer(guard, rc);

        ngx_http_zk_lock_request_end(guard->request, rc);
        return;
    }

    r = guard->request;

    ngx_http_zk_lock_guard_stop(guard);
    ngx_http_zk_lock_guard_reset(r);

    /* as if the action of post_action had run, which would go on with r */

    r->post_action = 1;
    r->uri_changes = 0;

    /*
     * The cleanup of an upstream finalizes the request with NGX_DONE, which
     * must not end the request there; as in ngx_http_upstream_create().
     */

    r->main->count++;

    ngx_http_zk_lock_request_end(r, NGX_ERROR);
}


/*
 * Makes way for another answer, and returns 1, if the request waits for an
 * upstream, whose connection is closed, or for the guard.
 */

static ngx_uint_t
ngx_http_zk_lock_guard_interrupt(ngx_http_zk_lock_guard_t *guard)
{
    ngx_http_request_t   *r;
    ngx_http_upstream_t  *u;

    r = guard->request;
    u = r->upstream;

    if (guard->state == NGX_HTTP_ZK_LOCK_GUARD_CHECK
        || guard->state == NGX_HTTP_ZK_LOCK_GUARD_LOCK)
    {
        return 1;
    }

    if (r->header_sent || r->headers_out.status != 0 || r->blocked
        || r != r->connection->data || r->postponed != NULL
        || u == NULL || u->cleanup == NULL)
    {
        return 0;
    }

    /* see ngx_http_zk_lock_guard_abort() */

    r->main->count++;

    (*u->cleanup)(r);

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    return 1;
}


/*
 * Makes the end of the connection an error for the client, because otherwise an
 * answer without a length would look whole.  Of HTTP/2 and HTTP/3 the stream is
 * reset anyway.
 */

static void
ngx_http_zk_lock_guard_reset(ngx_http_request_t *r)
{
    struct linger      linger;
    ngx_connection_t  *c;

    c = r->connection;

#if (NGX_HTTP_V2)

    if (r->stream) {
        return;
    }

#endif

#if (NGX_HTTP_V3)

    if (c->quic) {
        return;
    }

#endif

#if (NGX_HTTP_SSL)

    if (c->ssl) {
        c->ssl->no_send_shutdown = 1;
    }

#endif

    linger.l_onoff = 1;
    linger.l_linger = 0;

    if (setsockopt(c->fd, SOL_SOCKET, SO_LINGER, (const void *) &linger,
                   sizeof(struct linger))
        == -1)
    {
        ngx_log_error(NGX_LOG_INFO, c->log, ngx_socket_errno,
                      "setsockopt(SO_LINGER) failed");
    }
}
