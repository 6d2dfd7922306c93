
/*
 * The leader's tree, now and at each former zxid.
 *
 * Each life of a path is a separate node, with the zxids of creation and
 * deletion, and with data and the zxids of the writes; so a server that lags
 * behind reads the tree at any place of the log.  No node is freed before the
 * history ends.
 *
 * A transaction is begun, and each change is put into the log; what failed in
 * the middle is undone by the log.
 */


#define THREADED

#include <zookeeper/zookeeper.h>

#include <stdio.h>
#include <stdlib.h>

#include "gsim.h"


#define GSIM_BUCKETS        256
#define GSIM_TXNS           65536


int64_t  gsim_zxid;

static gsim_node_t  *gsim_buckets[GSIM_BUCKETS];
static gsim_node_t  *gsim_root;
static gsim_txn_t    gsim_txns[GSIM_TXNS];
static size_t        gsim_ntxns;


static uint32_t gsim_hash(const char *path);
static gsim_node_t *gsim_tree_now(const char *path);
static gsim_node_t *gsim_node_new(gsim_node_t *parent, const char *path);
static void gsim_node_write(gsim_node_t *node, const char *data, size_t len,
    int32_t version);
static void gsim_node_delete(gsim_node_t *node);
static void gsim_log(gsim_change_e change, gsim_node_t *node);


void
gsim_tree_reset(void)
{
    memset(gsim_buckets, 0, sizeof(gsim_buckets));

    gsim_ntxns = 0;
    gsim_zxid = gsim_between(1, 1000);
    gsim_root = NULL;
    gsim_root = gsim_node_new(NULL, "/");
}


int64_t
gsim_tree_begin(void)
{
    return ++gsim_zxid;
}


static uint32_t
gsim_hash(const char *path)
{
    uint32_t  h;

    for (h = 5381; *path != '\0'; path++) {
        h = h * 33 + (unsigned char) *path;
    }

    return h;
}


gsim_node_t *
gsim_tree_find(const char *path, int64_t zxid)
{
    uint32_t      h;
    gsim_node_t  *node;

    h = gsim_hash(path);

    for (node = gsim_buckets[h % GSIM_BUCKETS]; node; node = node->chain) {
        if (node->hash == h && node->created <= zxid && node->deleted > zxid
            && strcmp(node->path, path) == 0)
        {
            return node;
        }
    }

    return NULL;
}


static gsim_node_t *
gsim_tree_now(const char *path)
{
    return gsim_tree_find(path, gsim_zxid);
}


int
gsim_tree_child(gsim_node_t *node, zkl_child_t *child)
{
    if (!node->is_child) {
        return -1;
    }

    *child = node->child;

    return 0;
}


gsim_data_t *
gsim_tree_data(gsim_node_t *node, int64_t zxid)
{
    gsim_data_t  *data;

    for (data = node->data; data->zxid > zxid; data = data->before) {
        /* void */
    }

    return data;
}


static gsim_node_t *
gsim_node_new(gsim_node_t *parent, const char *path)
{
    gsim_node_t  *node;

    node = gsim_alloc(sizeof(gsim_node_t));

    node->path = gsim_text(path, strlen(path));
    node->name = strrchr(node->path, '/') + 1;
    node->is_child = (zkl_name_child_read(&node->child, node->name,
                                          strlen(node->name)) == 0);
    node->hash = gsim_hash(path);
    node->created = gsim_zxid;
    node->created_at = gsim_now;
    node->deleted = GSIM_NEVER;
    node->pzxid = gsim_zxid;
    node->ctime = (gsim_now + gsim_wall) / GSIM_MS;
    node->parent = parent;

    node->chain = gsim_buckets[node->hash % GSIM_BUCKETS];
    gsim_buckets[node->hash % GSIM_BUCKETS] = node;

    if (parent != NULL) {
        node->sibling = parent->children;
        parent->children = node;
        parent->nchildren++;
        parent->counter++;
        parent->pzxid = gsim_zxid;
    }

    return node;
}


static void
gsim_node_write(gsim_node_t *node, const char *data, size_t len,
    int32_t version)
{
    gsim_data_t  *d;

    d = gsim_alloc(sizeof(gsim_data_t) + len);

    d->before = node->data;

    if (node->data != NULL) {
        node->data->written = gsim_now;
    }

    d->zxid = gsim_zxid;
    d->version = version;
    d->len = len;

    if (len) {
        memcpy(d->bytes, data, len);
    }

    node->data = d;
}


static void
gsim_node_delete(gsim_node_t *node)
{
    node->deleted = gsim_zxid;
    node->deleted_at = gsim_now;
    node->parent->nchildren--;
    node->parent->pzxid = gsim_zxid;
}


int
gsim_tree_create(const char *path, const char *data, size_t len, int flags,
    int64_t owner, gsim_node_t **node)
{
    int           n;
    char          full[GSIM_PATH], dir[GSIM_PATH];
    char         *p;
    gsim_node_t  *parent;

    n = snprintf(dir, sizeof(dir), "%s", path);
    p = strrchr(dir, '/');
    *p = '\0';

    parent = (p == dir) ? gsim_root : gsim_tree_now(dir);

    if (parent == NULL) {
        return ZNONODE;
    }

    if (parent->owner != 0) {
        return ZNOCHILDRENFOREPHEMERALS;
    }

    snprintf(full, sizeof(full), "%s", path);

    if (flags & ZOO_SEQUENCE) {
        snprintf(full + n, sizeof(full) - (size_t) n, "%010d",
                 (int) parent->counter);
    }

    if (gsim_tree_now(full) != NULL) {
        return ZNODEEXISTS;
    }

    *node = gsim_node_new(parent, full);

    (*node)->container = (flags == ZOO_CONTAINER);
    (*node)->owner = (flags == ZOO_EPHEMERAL
                      || flags == ZOO_EPHEMERAL_SEQUENTIAL)
                     ? owner : 0;

    gsim_node_write(*node, data, len, 0);
    gsim_log(GSIM_CREATED, *node);

    gsim_say("zk: %llx makes %s", (long long) gsim_zxid, full);

    return ZOK;
}


/* finds the znode, if the data have that version; -1: any version */

static int
gsim_tree_at(const char *path, int32_t version, gsim_node_t **node)
{
    *node = gsim_tree_now(path);

    if (*node == NULL) {
        return ZNONODE;
    }

    if (version != -1 && version != (*node)->data->version) {
        return ZBADVERSION;
    }

    return ZOK;
}


int
gsim_tree_check(const char *path, int32_t version)
{
    gsim_node_t  *node;

    return gsim_tree_at(path, version, &node);
}


int
gsim_tree_delete(const char *path, int32_t version)
{
    int           rc;
    gsim_node_t  *node;

    rc = gsim_tree_at(path, version, &node);

    if (rc != ZOK) {
        return rc;
    }

    if (node->nchildren != 0) {
        return ZNOTEMPTY;
    }

    gsim_node_delete(node);
    gsim_log(GSIM_DELETED, node);

    gsim_say("zk: %llx deletes %s", (long long) gsim_zxid, path);

    return ZOK;
}


int
gsim_tree_set(const char *path, const char *data, size_t len, int32_t version)
{
    int           rc;
    gsim_node_t  *node;

    rc = gsim_tree_at(path, version, &node);

    if (rc != ZOK) {
        return rc;
    }

    gsim_node_write(node, data, len, node->data->version + 1);
    gsim_log(GSIM_CHANGED, node);

    gsim_say("zk: %llx sets %s", (long long) gsim_zxid, path);

    return ZOK;
}


void
gsim_tree_undo(size_t ntxns)
{
    gsim_node_t  *node;

    while (gsim_ntxns > ntxns) {
        node = gsim_txns[--gsim_ntxns].node;

        switch (gsim_txns[gsim_ntxns].change) {

        case GSIM_CREATED:
            gsim_buckets[node->hash % GSIM_BUCKETS] = node->chain;
            node->parent->children = node->sibling;
            node->parent->nchildren--;
            node->parent->counter--;
            break;

        case GSIM_CHANGED:
            node->data = node->data->before;
            break;

        case GSIM_DELETED:
            node->deleted = GSIM_NEVER;
            node->deleted_at = 0;
            node->parent->nchildren++;
            break;
        }
    }
}


void
gsim_tree_restore(size_t ntxns)
{
    /* not in the middle of a transaction */

    while (ntxns > 0 && ntxns < gsim_ntxns
           && gsim_txns[ntxns - 1].zxid == gsim_txns[ntxns].zxid)
    {
        ntxns--;
    }

    gsim_tree_undo(ntxns);

    gsim_zxid = ntxns ? gsim_txns[ntxns - 1].zxid : gsim_root->created;
}


int
gsim_tree_owns(int64_t session)
{
    size_t        i;
    gsim_node_t  *node;

    for (i = 0; i < gsim_ntxns; i++) {
        node = gsim_txns[i].node;

        if (node->owner == session && node->deleted == GSIM_NEVER) {
            return 1;
        }
    }

    return 0;
}


static void
gsim_log(gsim_change_e change, gsim_node_t *node)
{
    if (gsim_ntxns == GSIM_TXNS) {
        fprintf(stderr, "gateway_sim: the log is too long\n");
        exit(2);
    }

    gsim_txns[gsim_ntxns].zxid = gsim_zxid;
    gsim_txns[gsim_ntxns].change = change;
    gsim_txns[gsim_ntxns].node = node;

    gsim_ntxns++;
}


size_t
gsim_tree_ntxns(void)
{
    return gsim_ntxns;
}


gsim_txn_t *
gsim_tree_txn(size_t i)
{
    return &gsim_txns[i];
}


void
gsim_tree_end_session(int64_t session)
{
    size_t        i, n;
    gsim_node_t  *node;

    (void) gsim_tree_begin();

    /* the log has each node that was ever made */

    for (i = 0, n = gsim_ntxns; i < n; i++) {
        node = gsim_txns[i].node;

        if (gsim_txns[i].change == GSIM_CREATED && node->owner == session
            && node->deleted == GSIM_NEVER)
        {
            gsim_node_delete(node);
            gsim_log(GSIM_DELETED, node);

            gsim_say("zk: %llx deletes %s", (long long) gsim_zxid, node->path);
        }
    }
}


int
gsim_tree_reap(void)
{
    int           reaped;
    size_t        i, n;
    gsim_node_t  *node;

    reaped = 0;

    for (i = gsim_ntxns, n = 0; i > 0; i--) {
        node = gsim_txns[i - 1].node;

        if (gsim_txns[i - 1].change != GSIM_CREATED || !node->container
            || node->deleted != GSIM_NEVER || node->nchildren != 0
            || node->counter == 0)
        {
            continue;
        }

        (void) gsim_tree_begin();
        gsim_node_delete(node);
        gsim_log(GSIM_DELETED, node);
        reaped++;

        gsim_say("zk: %llx reaps %s", (long long) gsim_zxid, node->path);

        if (++n == 8) {
            break;
        }
    }

    return reaped;
}
