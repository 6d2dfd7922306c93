
/*
 * Lists of the locks under the location's root: pages in the order of the
 * names, or a sorted list.
 *
 * A page ends when the page is full, or when names.c has looked at enough.  The
 * cursor is the last name that was looked at, so each page goes on where the
 * page before ended, even if locks have come or gone meanwhile.  A sorted list
 * has no cursor, because the order changes between two calls.
 *
 * Everything here runs on the event loop.  ctx->other is the names in flight,
 * which the request's cleanup leaves, or NULL.
 */


#include "http/list.h"
#include "http/answer.h"
#include "http/args.h"
#include "http/result.h"
#include "core/names.h"


/* locks of a page, without a "limit" */
#define NGX_HTTP_ZK_LOCK_LIST_LIMIT   100


static void ngx_http_zk_lock_list_handler(zkl_names_t *names,
    zkl_answer_e answer);
static void ngx_http_zk_lock_list_write(ngx_http_request_t *r,
    zkl_json_t *json, zkl_names_t *names, zkl_named_t *named);


ngx_int_t
ngx_http_zk_lock_list(ngx_http_request_t *r, ngx_http_zk_lock_ctx_t *ctx)
{
    size_t                n;
    u_char                name[ZKL_BASE64_BYTES(ZKL_AFTER_MAX)];
    u_char                text[3 * ZKL_NAME_MAX];
    ngx_int_t             rc;
    zkl_args_t            args;
    zkl_names_question_t  question;

    rc = ngx_http_zk_lock_args(r, &args, ZKL_ARG_PREFIX|ZKL_ARG_LIMIT
                                         |ZKL_ARG_AFTER|ZKL_ARG_HOLDERS
                                         |ZKL_ARG_OWNER|ZKL_ARG_SORT);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    if ((args.given & ZKL_ARG_SORT) && (args.given & ZKL_ARG_AFTER)) {
        return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                        "a list with \"sort\" has no pages, "
                                        "and takes a \"limit\" up to 1000 but "
                                        "no \"after\"");
    }

    ngx_memzero(&question, sizeof(zkl_names_question_t));

    question.after.data = name;

    if (args.given & ZKL_ARG_AFTER) {

        if (zkl_text_base64_read(name, &n, args.after, args.after_len) != 0
            || zkl_name_check((char *) name, n) != NULL)
        {
            return ngx_http_zk_lock_problem(r, NGX_HTTP_BAD_REQUEST,
                                            "\"after\" takes the \"next\" of "
                                            "another answer");
        }

        question.after.len = n;
    }

    rc = ngx_http_zk_lock_request_hold(r, ctx);
    if (rc != NGX_OK) {
        return rc;
    }

    /* no name begins with a slash, and slashes alone are all names' prefix */

    question.prefix.data = text;
    question.prefix.len = zkl_name_write((char *) text, args.prefix,
                                         args.prefix_len);

    if (question.prefix.len == 3 && ngx_strncmp(text, "%2F", 3) == 0) {
        question.prefix.len = 0;
    }

    question.root = ctx->path;
    question.owner.data = (u_char *) args.owner;
    question.owner.len = args.owner_len;
    question.owned = (args.given & ZKL_ARG_OWNER) != 0;
    question.limit = (args.given & ZKL_ARG_LIMIT)
                     ? args.limit : NGX_HTTP_ZK_LOCK_LIST_LIMIT;
    question.holders = (args.given & ZKL_ARG_HOLDERS)
                       ? args.holders : question.owned;
    question.timeout = ctx->conf->timeout;
    question.handler = ngx_http_zk_lock_list_handler;
    question.data = ctx;

    if (args.given & ZKL_ARG_SORT) {
        question.sort = (args.sort[0] == 's') ? ZKL_NAMES_BY_SINCE
                                              : ZKL_NAMES_BY_WAITING;
    }

    ctx->leave = zkl_names_leave;
    ctx->other = zkl_names(ctx->worker, &question);

    return (ctx->other != NULL) ? NGX_DONE : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


static void
ngx_http_zk_lock_list_handler(zkl_names_t *names, zkl_answer_e answer)
{
    char                     cursor[ZKL_BASE64_LEN(ZKL_NAME_MAX)];
    ngx_int_t                rc;
    ngx_str_t               *last;
    ngx_uint_t               i, sorted;
    zkl_json_t              *json;
    ngx_http_request_t      *r;
    ngx_http_zk_lock_ctx_t  *ctx;

    ctx = names->asked.data;
    r = ctx->request;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zk lock: \"%V\" %ui names, answer %d", &r->uri,
                   names->nlooked, answer);

    ctx->other = NULL;

    if (answer != ZKL_CALL_OK) {
        rc = ngx_http_zk_lock_result_failed(r, ctx, answer);

        ngx_http_zk_lock_request_end(r, rc);
        return;
    }

    ngx_str_set(&ctx->told.outcome, "listed");

    json = zkl_json_open();

    zkl_json_array(json, "locks");

    for (i = 0; i < names->nfound; i++) {
        ngx_http_zk_lock_list_write(r, json, names, names->found[i]);
    }

    zkl_json_end_array(json);

    sorted = (names->asked.sort != ZKL_NAMES_BY_NAME);

    if (sorted || names->asked.owned) {
        zkl_json_boolean(json, "complete",
                         !names->partial
                         && !(sorted && zkl_names_more(names)));
    }

    if (!sorted && names->nlooked != 0 && zkl_names_more(names)) {
        last = &names->named[names->nlooked - 1].name;

        zkl_json_string(json, "next", cursor,
                        zkl_text_base64_write(cursor, last->data, last->len));
    }

    rc = ngx_http_zk_lock_send(r, NGX_HTTP_OK, json);

    ngx_http_zk_lock_request_end(r, rc);
}


static void
ngx_http_zk_lock_list_write(ngx_http_request_t *r, zkl_json_t *json,
    zkl_names_t *names, zkl_named_t *named)
{
    ngx_str_t    root, full, path, *name;
    ngx_msec_t   age;
    ngx_uint_t   i;
    zkl_info_t  *info;

    ngx_str_set(&root, "");
    full = named->full;
    name = &named->name;

    /* any client of ZooKeeper can write claim data, so the hash has to fit */

    if (full.len != 0
        && ngx_http_zk_lock_request_path(r, &root, &full, &path) == NGX_OK
        && path.len == name->len + 1
        && ngx_memcmp(path.data + 1, name->data, name->len) == 0)
    {
        name = &named->full;
    }

    zkl_json_object(json, NULL);
    zkl_json_string(json, "name", (char *) name->data, name->len);
    ngx_http_zk_lock_write_mode(json, named->mode);
    zkl_json_integer(json, "held", (int64_t) named->held);
    zkl_json_integer(json, "queued", (int64_t) named->queued);

    if (names->asked.holders) {
        zkl_json_array(json, "holders");

        age = ngx_current_msec - named->looked;

        for (i = 0; i < named->ninfos; i++) {
            info = &named->infos[i];
            info->expires -= ngx_min(info->expires, age);

            ngx_http_zk_lock_write_holder(json, NULL, info);
        }

        zkl_json_end_array(json);
    }

    zkl_json_end_object(json);
}
