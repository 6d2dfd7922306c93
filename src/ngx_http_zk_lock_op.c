
/*
 * Operations: how an operation is made, and how an operation ends.
 *
 * An operation is one block of memory with path, value and reply; only a list's
 * children, which the library gave, and a rename's further paths and results
 * are separate blocks.  Everything here runs on the event loop.
 */


#include "ngx_http_zk_lock_flight.h"


static ngx_uint_t ngx_http_zk_lock_op_same(ngx_str_t *one, ngx_str_t *two);


ngx_http_zk_lock_op_t *
ngx_http_zk_lock_op_new(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_e type, ngx_str_t *dir, ngx_str_t *name,
    ngx_str_t *value)
{
    u_char                 *p;
    size_t                  path, reply, len;
    ngx_http_zk_lock_op_t  *op;

    if (name != NULL && name->len == 0) {
        name = NULL;
    }

    path = s->conf->chroot.len + dir->len + (name ? 1 + name->len : 0);
    len = value ? value->len : 0;

    switch (type) {

    case NGX_HTTP_ZK_LOCK_OP_CREATE:
        reply = path + 10 + 1;
        break;

    case NGX_HTTP_ZK_LOCK_OP_GET:
        reply = ZK_LOCK_LABEL_MAX;
        break;

    default:
        reply = 0;
        break;
    }

    op = ngx_alloc(sizeof(ngx_http_zk_lock_op_t) + path + 1 + len + 1 + reply,
                   s->log);
    if (op == NULL) {

        if (!s->starved) {
            s->starved = 1;
            s->starving = ngx_current_msec;
        }

        return NULL;
    }

    s->starved = 0;

    ngx_memzero(op, sizeof(ngx_http_zk_lock_op_t));

    op->type = type;
    op->version = -1;
    op->flight.session = s;

    p = (u_char *) op + sizeof(ngx_http_zk_lock_op_t);

    op->path.data = p;

    p = ngx_cpymem(p, s->conf->chroot.data, s->conf->chroot.len);

    /* the path "/" below a chroot is the chroot itself */

    if (dir->len > 1 || s->conf->chroot.len == 0) {
        p = ngx_cpymem(p, dir->data, dir->len);
    }

    if (name) {

        if (p == op->path.data || p[-1] != '/') {
            *p++ = '/';
        }

        p = ngx_cpymem(p, name->data, name->len);
    }

    op->path.len = p - op->path.data;
    *p++ = '\0';

    op->value.data = p;
    op->value.len = len;

    if (len) {
        p = ngx_cpymem(p, value->data, len);
    }

    *p++ = '\0';

    op->reply.data = p;

    return op;
}


static ngx_uint_t
ngx_http_zk_lock_op_same(ngx_str_t *one, ngx_str_t *two)
{
    return one->len == two->len
           && ngx_memcmp(one->data, two->data, one->len) == 0;
}


ngx_http_zk_lock_op_t *
ngx_http_zk_lock_op_rename(ngx_http_zk_lock_session_t *s, ngx_str_t *dir,
    ngx_str_t *name, ngx_str_t *to, ngx_str_t *value, int32_t version,
    ngx_http_zk_lock_op_t *get)
{
    u_char                 *p;
    ngx_http_zk_lock_op_t  *op;

    op = ngx_http_zk_lock_op_new(s, NGX_HTTP_ZK_LOCK_OP_RENAME, dir, name,
                                 value);
    if (op == NULL) {
        return NULL;
    }

    op->from_version = version;
    op->target = op->path;

    if (get == NULL) {
        return op;
    }

    p = ngx_alloc(2 * (get->path.len + 1) + to->len + 1 + get->reply.len,
                  s->log);
    if (p == NULL) {
        ngx_free(op);
        return NULL;
    }

    op->more = p;
    op->version = get->version;

    op->parent.data = p;
    op->parent.len = get->path.len;
    p = ngx_cpymem(p, get->path.data, get->path.len);
    *p++ = '\0';

    op->content.data = p;
    op->content.len = get->reply.len;
    p = ngx_cpymem(p, get->reply.data, get->reply.len);

    if (ngx_http_zk_lock_op_same(name, to)) {
        return op;
    }

    op->target.data = p;
    op->target.len = get->path.len + 1 + to->len;
    p = ngx_cpymem(p, get->path.data, get->path.len);
    *p++ = '/';
    p = ngx_cpymem(p, to->data, to->len);
    *p = '\0';

    return op;
}


void
ngx_http_zk_lock_session_finish(ngx_http_zk_lock_op_t *op)
{
    size_t                       i;
    ngx_http_zk_lock_session_t  *s;

    s = op->flight.session;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, s->log, 0,
                   "zk lock session: op %d \"%*s\" rc:%d", op->type,
                   ngx_http_zk_lock_session_shown(&op->path), op->path.data,
                   op->rc);

    if (op->type == NGX_HTTP_ZK_LOCK_OP_CREATE
        && op->rc == NGX_HTTP_ZK_LOCK_OK)
    {
        /* the handler gets the new znode's name without the parent's path */

        for (i = op->reply.len; i > 0 && op->reply.data[i - 1] != '/'; i--) {
            /* void */
        }

        op->reply.data += i;
        op->reply.len -= i;
    }

    if (op->handler != NULL && s->events != NULL) {
        op->handler(op);
    }

    ngx_http_zk_lock_session_free_op(op);
}


void
ngx_http_zk_lock_session_free_op(ngx_http_zk_lock_op_t *op)
{
    if (op->children != NULL) {
        free(op->children);
    }

    if (op->more != NULL) {
        ngx_free(op->more);
    }

    if (op->results != NULL) {
        ngx_free(op->results);
    }

    ngx_free(op);
}
