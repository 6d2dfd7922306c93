
/*
 * Foreign claimers, which lock directly in ZooKeeper, as Curator and kazoo do:
 * a claimer queues, holds, and leaves, or the claimer's session ends.  A writer
 * that holds the lock may become a reader, in two steps, without a word to the
 * lock's znode.
 *
 * A claimer sees the leader's tree, and looks after each change.
 *
 * A planter makes and deletes children by name, with numbers that the parent
 * has not given, or has given to other children: as a person with zkCli does,
 * or a copy of a tree.
 */


#define THREADED

#include <zookeeper/zookeeper.h>

#include <stdio.h>
#include <stdlib.h>

#include "gsim.h"


#define GSIM_FOREIGNERS     4
#define GSIM_PLANTED        6


typedef struct {
    char             name[24];
    int              lock;
    int              kazoo;
    zkl_mode_t       mode;
    int64_t          seq;
    gsim_node_t     *node;
    gsim_node_t     *reader;            /* beside the node of a writer */
    gsim_session_t  *session;
    gsim_hold_t     *hold;
} gsim_foreign_t;


static gsim_foreign_t  gsim_foreigners[GSIM_FOREIGNERS];
static int             gsim_nforeigners;
static int64_t         gsim_foreign_until;
static gsim_node_t    *gsim_planted[GSIM_PLANTED];
static int             gsim_nplanted;


static void gsim_foreign_event(void *data, uint64_t tag);
static void gsim_foreign_claim(gsim_foreign_t *f);
static void gsim_foreign_make(const char *path, int flags);
static void gsim_foreign_downgrade(gsim_foreign_t *f);
static void gsim_foreign_delete(gsim_node_t *node);
static void gsim_foreign_end(gsim_foreign_t *f);
static void gsim_foreign_look_event(void *data, uint64_t tag);
static void gsim_foreign_plant_event(void *data, uint64_t tag);
static void gsim_foreign_plant(void);
static int64_t gsim_foreign_number(gsim_node_t *parent);
static void gsim_foreign_unplant(void);


void
gsim_foreign_clear(void)
{
    gsim_nforeigners = 0;
    gsim_nplanted = 0;
}


void
gsim_foreign_reset(int64_t until)
{
    int  i;

    memset(gsim_foreigners, 0, sizeof(gsim_foreigners));

    gsim_nforeigners = (int) gsim_below(GSIM_FOREIGNERS + 1);
    gsim_foreign_until = until;

    gsim_nplanted = 0;

    if (gsim_chance(3)) {
        gsim_at(gsim_now + gsim_below(8000) * GSIM_MS,
                gsim_foreign_plant_event, NULL, 0);
    }

    if (gsim_chance(3)) {
        gsim_nforeigners = 0;
    }

    for (i = 0; i < gsim_nforeigners; i++) {
        snprintf(gsim_foreigners[i].name, sizeof(gsim_foreigners[i].name),
                 "foreigner %d", i);
        gsim_at(gsim_now + gsim_between(1, 8000) * GSIM_MS, gsim_foreign_event,
                &gsim_foreigners[i], 0);
    }
}


int
gsim_foreign_busy(void)
{
    int  i;

    for (i = 0; i < gsim_nforeigners; i++) {
        if (gsim_foreigners[i].node != NULL) {
            return 1;
        }
    }

    return gsim_nplanted != 0;
}


static void
gsim_foreign_event(void *data, uint64_t tag)
{
    gsim_foreign_t *f = data;

    (void) tag;

    if (f->node == NULL) {

        if (gsim_now < gsim_foreign_until) {
            gsim_foreign_claim(f);
        }

        return;
    }

    if (f->mode == ZKL_WRITE && f->hold != NULL
        && f->node->deleted == GSIM_NEVER && !gsim_chance(4))
    {
        gsim_foreign_downgrade(f);
        return;
    }

    /* the claimer has held, or waited, for long enough */

    gsim_foreign_end(f);

    gsim_at(gsim_now + gsim_between(100, 6000) * GSIM_MS, gsim_foreign_event,
            f, 0);
}


static void
gsim_foreign_claim(gsim_foreign_t *f)
{
    char         prefix[GSIM_PATH];
    const char  *path;

    f->lock = (int) gsim_below(GSIM_LOCKS);
    f->mode = gsim_user_use(f->lock);
    f->kazoo = gsim_chance(3);
    f->hold = NULL;

    if (f->mode != ZKL_MUTEX && f->mode != ZKL_READ) {
        gsim_at(gsim_now + GSIM_S, gsim_foreign_event, f, 0);
        return;
    }

    if (f->mode == ZKL_READ && gsim_chance(2)) {
        f->mode = ZKL_WRITE;
    }

    path = gsim_paths[f->lock];

    gsim_foreign_make("/locks", f->kazoo ? ZOO_PERSISTENT : ZOO_CONTAINER);
    gsim_foreign_make(path, f->kazoo ? ZOO_PERSISTENT : ZOO_CONTAINER);

    if (f->kazoo && f->mode != ZKL_WRITE) {
        snprintf(prefix, sizeof(prefix), "%s/%016llx%016llx%s", path,
                 (unsigned long long) gsim_random(),
                 (unsigned long long) gsim_random(),
                 f->mode == ZKL_READ ? "__rlock__" : "__lock__");

    } else {
        snprintf(prefix, sizeof(prefix),
                 "%s/_c_%08x-0000-4000-8000-%012llx-%s", path,
                 (unsigned) gsim_random(),
                 (unsigned long long) gsim_random() >> 16,
                 f->mode == ZKL_MUTEX ? "lock-"
                 : f->mode == ZKL_READ ? "__READ__" : "__WRIT__");
    }

    if (f->session == NULL || f->session->over) {
        f->session = gsim_server_new_session(GSIM_NEVER);
    }

    (void) gsim_tree_begin();

    if (gsim_tree_create(prefix, "me", 2, ZOO_EPHEMERAL_SEQUENTIAL,
                         f->session->id, &f->node)
        != ZOK)
    {
        gsim_violation("gateway_sim: a foreign claim cannot be made");
    }

    f->seq = strtoll(f->node->path + strlen(f->node->path) - 10, NULL, 10);

    gsim_count.foreign++;
    gsim_server_spread();
    gsim_foreign_look();

    gsim_at(gsim_now + gsim_between(1, 5000) * GSIM_MS, gsim_foreign_event, f,
            0);
}


static void
gsim_foreign_make(const char *path, int flags)
{
    gsim_node_t  *node;

    if (gsim_tree_find(path, gsim_zxid) == NULL) {
        (void) gsim_tree_begin();
        (void) gsim_tree_create(path, "", 0, flags, 0, &node);
    }
}


/*
 * A writer that holds the lock becomes a reader as in Curator: the writer makes
 * a reader with the same number, perhaps one more in its place, and leaves.
 */

static void
gsim_foreign_downgrade(gsim_foreign_t *f)
{
    char          path[GSIM_PATH];
    gsim_node_t  *writer;

    if (f->reader == NULL || gsim_chance(4)) {
        snprintf(path, sizeof(path),
                 "%s/_c_%08x-0000-4000-8000-%012llx-__READ__%010d",
                 gsim_paths[f->lock], (unsigned) gsim_random(),
                 (unsigned long long) gsim_random() >> 16, (int) f->seq);

        if (f->reader != NULL) {
            gsim_foreign_delete(f->reader);
        }

        (void) gsim_tree_begin();
        (void) gsim_tree_create(path, "me", 2, ZOO_EPHEMERAL, f->session->id,
                                &f->reader);
        gsim_server_spread();

    } else {
        writer = f->node;

        f->mode = ZKL_READ;
        f->node = f->reader;
        f->reader = NULL;

        f->hold->released = 1;
        f->hold = gsim_oracle_held(f->lock, f->mode, f->node->path, 0,
                                   GSIM_NEVER, f->name);
        gsim_foreign_delete(writer);
        gsim_count.downgrades++;
    }

    gsim_at(gsim_now + gsim_between(1, 2000) * GSIM_MS, gsim_foreign_event, f,
            0);
}


static void
gsim_foreign_delete(gsim_node_t *node)
{
    (void) gsim_tree_begin();
    (void) gsim_tree_delete(node->path, -1);

    gsim_oracle_deleted(node, 0);
    gsim_server_spread();
    gsim_foreign_look();
}


static void
gsim_foreign_end(gsim_foreign_t *f)
{
    gsim_node_t  *node, *reader;

    node = f->node;
    reader = f->reader;

    f->node = NULL;
    f->reader = NULL;

    if (f->hold != NULL) {
        f->hold->released = 1;
        f->hold = NULL;
    }

    if (node->deleted != GSIM_NEVER) {
        return;
    }

    if (gsim_chance(6)) {
        gsim_server_expire(f->session, "a foreigner's");
        return;
    }

    if (reader != NULL) {
        gsim_foreign_delete(reader);
    }

    gsim_foreign_delete(node);
}


void
gsim_foreign_look(void)
{
    if (gsim_nforeigners != 0) {
        gsim_at(gsim_now + gsim_below(2000), gsim_foreign_look_event, NULL, 0);
    }
}


static void
gsim_foreign_look_event(void *data, uint64_t tag)
{
    int              i;
    gsim_foreign_t  *f;

    (void) data;
    (void) tag;

    for (i = 0; i < gsim_nforeigners; i++) {
        f = &gsim_foreigners[i];

        if (f->node != NULL && f->node->deleted == GSIM_NEVER
            && f->hold == NULL
            && !gsim_oracle_ahead(gsim_paths[f->lock], f->mode, f->seq))
        {
            f->hold = gsim_oracle_held(f->lock, f->mode, f->node->path, 0,
                                       GSIM_NEVER, f->name);
        }
    }
}


static void
gsim_foreign_plant_event(void *data, uint64_t tag)
{
    (void) data;
    (void) tag;

    if (gsim_now < gsim_foreign_until
        && gsim_nplanted < GSIM_PLANTED
        && (gsim_nplanted == 0 || gsim_chance(2)))
    {
        gsim_foreign_plant();

    } else if (gsim_nplanted != 0) {
        gsim_foreign_unplant();
    }

    if (gsim_now < gsim_foreign_until || gsim_nplanted != 0) {
        gsim_at(gsim_now + gsim_between(1, gsim_chance(2) ? 50 : 1500)
                           * GSIM_MS,
                gsim_foreign_plant_event, NULL, 0);
    }
}


static void
gsim_foreign_plant(void)
{
    int           lock;
    char          path[GSIM_PATH];
    zkl_mode_t    mode;
    gsim_node_t  *parent, *node;

    lock = (int) gsim_below(GSIM_LOCKS);
    mode = gsim_user_use(lock);

    if (mode != ZKL_MUTEX && mode != ZKL_READ) {
        return;
    }

    gsim_foreign_make("/locks", ZOO_CONTAINER);
    gsim_foreign_make(gsim_paths[lock], ZOO_CONTAINER);

    parent = gsim_tree_find(gsim_paths[lock], gsim_zxid);

    if (parent == NULL || parent->owner != 0) {
        return;
    }

    snprintf(path, sizeof(path), "%s/_c_%08x-0000-4000-8000-%012llx-%s%010lld",
             gsim_paths[lock], (unsigned) gsim_random(),
             (unsigned long long) gsim_random() >> 16,
             mode == ZKL_MUTEX ? "lock-" : gsim_chance(2) ? "__WRIT__"
                                                          : "__READ__",
             (long long) gsim_foreign_number(parent));

    (void) gsim_tree_begin();

    if (gsim_tree_create(path, "me", 2, 0, 0, &node) != ZOK) {
        return;
    }

    node->planted = 1;
    gsim_planted[gsim_nplanted++] = node;

    gsim_count.planted++;
    gsim_server_spread();
    gsim_foreign_look();
}


static int64_t
gsim_foreign_number(gsim_node_t *parent)
{
    switch (gsim_below(4)) {

    case 0:
        return gsim_below(ZKL_SEQ_MAX);

    case 1:
        return gsim_below(parent->counter + 1);

    case 2:
        return parent->counter + gsim_below(200);

    default:
        return parent->counter + gsim_below(4);
    }
}


static void
gsim_foreign_unplant(void)
{
    int           i;
    gsim_node_t  *node;

    i = (int) gsim_below(gsim_nplanted);
    node = gsim_planted[i];
    gsim_planted[i] = gsim_planted[--gsim_nplanted];

    if (node->deleted == GSIM_NEVER) {
        gsim_foreign_delete(node);
    }
}
