
/*
 * What a session has in ZooKeeper, as far as that is bounded: bytes of the
 * paths of ephemeral znodes, and of watched paths.
 *
 * A watch is remembered from when it was asked for to its event, or to the end
 * of the connection.  Everything here runs on the event loop.
 */


#include "ngx_http_zk_lock_flight.h"


/* bytes of ephemeral paths, and of watched paths, of one session */
#define NGX_HTTP_ZK_LOCK_PATH_BYTES   1000000


static ngx_uint_t ngx_http_zk_lock_session_watch_room(
    ngx_http_zk_lock_session_t *s, size_t len, size_t max);


ngx_int_t
ngx_http_zk_lock_session_reserve(ngx_http_zk_lock_session_t *s, size_t len)
{
    len += s->conf->chroot.len + 4;

    if (s->path_bytes + len > NGX_HTTP_ZK_LOCK_PATH_BYTES) {
        return NGX_BUSY;
    }

    s->path_bytes += len;

    return NGX_OK;
}


void
ngx_http_zk_lock_session_unreserve(ngx_http_zk_lock_session_t *s, size_t len)
{
    s->path_bytes -= len + s->conf->chroot.len + 4;
}


ngx_uint_t
ngx_http_zk_lock_session_may_watch(ngx_http_zk_lock_session_t *s, size_t len)
{
    return ngx_http_zk_lock_session_watch_room(s, len,
                                            NGX_HTTP_ZK_LOCK_PATH_BYTES / 2);
}


ngx_uint_t
ngx_http_zk_lock_session_must_watch(ngx_http_zk_lock_session_t *s, size_t len)
{
    return ngx_http_zk_lock_session_watch_room(s, len,
                                               NGX_HTTP_ZK_LOCK_PATH_BYTES);
}


/* What is under way may be set by now. */

static ngx_uint_t
ngx_http_zk_lock_session_watch_room(ngx_http_zk_lock_session_t *s, size_t len,
    size_t max)
{
    return s->watch_bytes + s->watch_asked + len + s->conf->chroot.len + 5
           <= max;
}


ngx_uint_t
ngx_http_zk_lock_session_watches(ngx_http_zk_lock_session_t *s,
    ngx_str_t *path)
{
    return ngx_str_rbtree_lookup(&s->watches, path,
                                 ngx_crc32_long(path->data, path->len))
           != NULL;
}


/*
 * The library keeps one watch a path until it fires, and sets all of them
 * again in one packet after a reconnect, which ZooKeeper refuses if it is too
 * long (ZOOKEEPER-706): so the bytes of the paths are counted, each once.
 */

void
ngx_http_zk_lock_session_watched(ngx_http_zk_lock_session_t *s,
    ngx_http_zk_lock_op_t *op)
{
    uint32_t         hash;
    ngx_str_t        path;
    ngx_str_node_t  *sn;

    path.data = op->path.data + s->conf->chroot.len;
    path.len = op->path.len - s->conf->chroot.len;

    /* those of lists are kept apart: the NUL belongs to their key */

    path.len += (op->type != NGX_HTTP_ZK_LOCK_OP_GET);

    hash = ngx_crc32_long(path.data, path.len);

    if (s->handle == NULL
        || ngx_str_rbtree_lookup(&s->watches, &path, hash) != NULL)
    {
        return;
    }

    sn = ngx_alloc(sizeof(ngx_str_node_t) + path.len, s->log);
    if (sn == NULL) {
        return;
    }

    sn->node.key = hash;
    sn->str.len = path.len;
    sn->str.data = (u_char *) sn + sizeof(ngx_str_node_t);
    ngx_memcpy(sn->str.data, path.data, path.len);

    ngx_rbtree_insert(&s->watches, &sn->node);

    s->watch_bytes += path.len + s->conf->chroot.len + 4;
}


void
ngx_http_zk_lock_session_unwatched(ngx_http_zk_lock_session_t *s,
    ngx_str_t *path, ngx_uint_t list)
{
    ngx_str_t        key;
    ngx_str_node_t  *sn;

    key.data = path->data;
    key.len = path->len + list;

    sn = ngx_str_rbtree_lookup(&s->watches, &key,
                               ngx_crc32_long(key.data, key.len));
    if (sn == NULL) {
        return;
    }

    s->watch_bytes -= key.len + s->conf->chroot.len + 4;

    ngx_rbtree_delete(&s->watches, &sn->node);
    ngx_free(sn);
}


void
ngx_http_zk_lock_session_forget_watches(ngx_http_zk_lock_session_t *s)
{
    ngx_str_node_t  *sn;

    while (s->watches.root != s->watches.sentinel) {
        sn = (ngx_str_node_t *) s->watches.root;

        ngx_rbtree_delete(&s->watches, &sn->node);
        ngx_free(sn);
    }

    s->watch_bytes = 0;
}
