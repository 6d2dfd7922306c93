
/*
 * Which claims are held, and the rules that are checked.
 *
 * A hold begins when a user is told of the grant, and is valid until the user
 * asks for the release, the lease is over as the user was told, or the session
 * that has the znode is over in ZooKeeper.  What is checked:
 *
 *   - no two valid holds of a lock exclude each other;
 *   - a claim that is told as held is in ZooKeeper at that moment; or was,
 *     when the user asked, or when a process that stood still in a turn began
 *     the turn;
 *   - the znode of a valid hold is not deleted, and the session not closed;
 *   - a durable lease that no user has released is deleted only by the session
 *     that owns the gate in the claim's data;
 *   - an entry below a gate is not deleted before the claim;
 *   - fencing tokens grow, are derived from the creates, and never change.
 *
 * Which claim blocks which is said once more here, by the znodes' names alone.
 */


#include <stdio.h>
#include <stdlib.h>

#include "gsim.h"


char     gsim_paths[GSIM_LOCKS][GSIM_PATH];
int64_t  gsim_quiet;

static gsim_hold_t  *gsim_holds[GSIM_LOCKS];

/* the session of durable claims, which is never over */
static gsim_session_t  gsim_forever;


static int gsim_oracle_blocks(zkl_mode_t one, zkl_mode_t two);
static int gsim_oracle_counts(gsim_session_t *session, gsim_node_t *claim);
static void gsim_oracle_entry_removed(gsim_node_t *entry);
static int gsim_oracle_entry_of(gsim_node_t *entry, zkl_id_t *id);
static void gsim_oracle_owns_session(gsim_process_t *p, int64_t id);
static void gsim_oracle_counts_paths(gsim_process_t *p);
static void gsim_oracle_counts_watches(gsim_process_t *p, int64_t id);
static void gsim_oracle_alive(gsim_process_t *p);
static void gsim_oracle_hung_up(void);
static int gsim_oracle_cancelled(gsim_node_t *node);
static gsim_session_t *gsim_oracle_session(gsim_node_t *node);
static gsim_node_t *gsim_oracle_successor(gsim_node_t *node);
static int gsim_oracle_renamed(gsim_hold_t *hold);
static void gsim_oracle_goes_on(gsim_node_t *node, gsim_data_t *data,
    gsim_node_t *next, gsim_data_t *then);
static void gsim_oracle_alike(gsim_hold_t *hold, const char *who);
static void gsim_oracle_conflict(gsim_hold_t *hold, const char *who);
static void gsim_oracle_fence(gsim_hold_t *hold, const char *who);
static int64_t gsim_oracle_token(gsim_node_t *node);
static gsim_node_t *gsim_oracle_node(const char *path);
static void gsim_oracle_reap(void *data, uint64_t tag);
static int gsim_oracle_left(int claims);


void
gsim_oracle_reset(void)
{
    int     i;
    size_t  len;

    /* so that records take different numbers of cells */

    static const size_t  tails[GSIM_LOCKS] = { 80, 160, 300 };

    for (i = 0; i < GSIM_LOCKS; i++) {
        gsim_holds[i] = NULL;
        len = sprintf(gsim_paths[i], "/locks/%c", 'a' + i);

        if (gsim_long_names) {
            memset(gsim_paths[i] + len, 'x', tails[i]);
            gsim_paths[i][len + tails[i]] = '\0';
        }
    }

    gsim_quiet = gsim_now + 2 * GSIM_S;
}


int
gsim_oracle_lock(const char *path)
{
    int     i;
    size_t  len;

    for (i = 0; i < GSIM_LOCKS; i++) {
        len = strlen(gsim_paths[i]);

        if (strncmp(path, gsim_paths[i], len) == 0 && path[len] == '/') {
            return i;
        }
    }

    return -1;
}


/* Whether a claim of the first mode, ahead, excludes a claim of the second. */

static int
gsim_oracle_blocks(zkl_mode_t one, zkl_mode_t two)
{
    if (one == ZKL_READ && two == ZKL_READ) {
        return 0;
    }

    if (one == ZKL_MEMBER && two == ZKL_MEMBER) {
        return 0;
    }

    return 1;
}


static gsim_node_t *
gsim_oracle_node(const char *path)
{
    int64_t       zxid;
    gsim_node_t  *node;

    node = gsim_tree_find(path, gsim_zxid);

    /* or the node before the deletion */

    for (zxid = gsim_zxid; node == NULL && zxid > 0 && gsim_zxid - zxid < 4096;
         zxid--)
    {
        node = gsim_tree_find(path, zxid);
    }

    return node;
}


static gsim_session_t *
gsim_oracle_session(gsim_node_t *node)
{
    return node->owner ? gsim_server_session(node->owner) : &gsim_forever;
}


int
gsim_oracle_valid(gsim_hold_t *hold)
{
    return !hold->released && !hold->lost && hold->until > gsim_now
           && !hold->session->over;
}


void
gsim_oracle_cancel(gsim_node_t *node)
{
    gsim_hold_t  *h;

    node->cancelled = 1;

    for (h = gsim_holds[gsim_oracle_lock(node->path)]; h; h = h->next) {
        h->released |= (h->node == node);
    }
}


static int
gsim_oracle_cancelled(gsim_node_t *node)
{
    for ( /* void */ ; node != NULL; node = node->origin) {
        if (node->cancelled) {
            return 1;
        }
    }

    return 0;
}


int64_t
gsim_oracle_taken(gsim_hold_t *hold)
{
    char              path[128];
    gsim_node_t      *gate;
    zkl_claim_data_t  cdata;

    if (hold->node->owner != 0 || hold->node->data == NULL) {
        return 0;
    }

    zkl_claim_data_read(&cdata, hold->node->data->bytes,
                        hold->node->data->len);

    (void) snprintf(path, sizeof(path), "/zk_lock_gates/%s", cdata.gate);

    gate = gsim_tree_find(path, gsim_zxid);

    return (gate != NULL && gate->created > hold->node->created)
           ? gate->created_at + cdata.ttl * GSIM_MS : 0;
}


/* A claim becomes durable together with its entry below a gate. */

static void
gsim_oracle_entered(gsim_node_t *claim)
{
    char              path[160];
    gsim_node_t      *entry;
    zkl_id_t          id;
    zkl_claim_data_t  cdata;

    zkl_claim_data_read(&cdata, claim->data->bytes, claim->data->len);

    id = claim->is_child ? claim->child.id : cdata.id;

    (void) snprintf(path, sizeof(path),
                    "/zk_lock_gates/%s.leases/%02x%02x%08x", cdata.gate,
                    id.random[ZKL_RANDOM_LEN - 2],
                    id.random[ZKL_RANDOM_LEN - 1], id.record);

    entry = gsim_tree_find(path, gsim_zxid);

    if (entry == NULL || entry->created != claim->created) {
        gsim_violation("%s is durable, and not entered at %s", claim->path,
                       path);
    }
}


gsim_hold_t *
gsim_oracle_held(int lock, zkl_mode_t mode, char *path, int64_t fence,
    int64_t until, const char *who)
{
    gsim_hold_t  *hold;
    gsim_node_t  *node;

    node = gsim_oracle_node(path);

    if (node == NULL) {
        gsim_violation("%s is told to hold %s, which never was", who,
                       path);
    }

    for (hold = gsim_holds[lock]; hold != NULL; hold = hold->next) {

        if (hold->node == node) {

            /* told again */

            gsim_oracle_same(hold, fence, who);

            if (until > hold->until) {
                hold->until = until;
            }

            return hold;
        }
    }

    hold = gsim_alloc(sizeof(gsim_hold_t));

    hold->lock = lock;
    hold->mode = mode;
    hold->path = gsim_text(path, strlen(path));
    hold->node = node;
    hold->session = gsim_oracle_session(node);
    hold->fence = fence;
    hold->told = gsim_now;
    hold->until = until;
    hold->times = 1;
    hold->most = 1;
    hold->lost = (node->deleted != GSIM_NEVER);
    hold->released = gsim_oracle_cancelled(node);

    gsim_say("%s holds %s, token %lld", who, path, (long long) fence);

    if (fence != 0 && fence != gsim_oracle_token(node)) {
        gsim_violation("%s holds %s with the token %lld, but it is %lld", who,
                       path, (long long) fence,
                       (long long) gsim_oracle_token(node));
    }

    /*
     * A user that shares the key may be told to hold what another has released,
     * until the delete is done; the fencing token shows that the hold is older.
     */

    if (!hold->lost && !hold->released) {
        gsim_oracle_conflict(hold, who);
        gsim_oracle_fence(hold, who);

        if (fence != 0) {
            gsim_oracle_alike(hold, who);
        }
    }

    hold->next = gsim_holds[lock];
    gsim_holds[lock] = hold;

    return hold;
}


/*
 * A child that was made by name before a gateway's claim, with the claim's
 * number, blocks the claim.  A claim that was shared or became durable has had
 * another znode before.
 */

static void
gsim_oracle_alike(gsim_hold_t *hold, const char *who)
{
    zkl_child_t   own, child;
    gsim_node_t  *node, *first;

    (void) gsim_tree_child(hold->node, &own);

    for (first = hold->node; first->origin != NULL; first = first->origin) {
        /* void */
    }

    for (node = hold->node->parent->children; node; node = node->sibling) {

        if (node->planted && node->deleted == GSIM_NEVER
            && node->created < first->created
            && gsim_tree_child(node, &child) == 0
            && child.seq == own.seq
            && gsim_oracle_blocks(child.mode, own.mode))
        {
            gsim_violation("%s holds %s beside %s", who, hold->path,
                           node->path);
        }
    }
}


static void
gsim_oracle_conflict(gsim_hold_t *hold, const char *who)
{
    unsigned      n;
    gsim_hold_t  *h;

    for (n = 0, h = gsim_holds[hold->lock]; h != NULL; h = h->next) {

        if (!gsim_oracle_valid(h) || !gsim_oracle_blocks(h->mode, hold->mode)) {
            continue;
        }

        if (h->mode == hold->mode
            && zkl_mode_base(h->mode) == ZKL_SEMAPHORE
            && ++n < zkl_mode_permits(h->mode))
        {
            continue;
        }

        gsim_violation("two holders: %s is told to hold %s, but %s is held",
                       who, hold->path, h->path);
    }
}


/* Tokens grow from grant to grant, if the claims exclude each other. */

static void
gsim_oracle_fence(gsim_hold_t *hold, const char *who)
{
    gsim_hold_t  *h;

    for (h = gsim_holds[hold->lock]; h != NULL; h = h->next) {

        if (h->fence != 0 && hold->fence != 0 && h->fence >= hold->fence
            && gsim_oracle_blocks(h->mode, hold->mode)
            && !(h->mode == hold->mode
                 && zkl_mode_base(h->mode) == ZKL_SEMAPHORE))
        {
            gsim_violation("%s holds %s with the token %lld, after a hold with "
                           "%lld", who, hold->path, (long long) hold->fence,
                           (long long) h->fence);
        }
    }
}


void
gsim_oracle_same(gsim_hold_t *hold, int64_t fence, const char *who)
{
    if (hold->fence != 0 && fence != 0 && fence != hold->fence) {
        gsim_violation("%s is told the token %lld for %s, which was %lld", who,
                       (long long) fence, hold->path, (long long) hold->fence);
    }
}


/* The zxid of the create, and the index among the transaction's creates. */

static int64_t
gsim_oracle_token(gsim_node_t *node)
{
    size_t       i;
    int64_t      index;
    gsim_txn_t  *txn;

    index = 0;

    while (node->origin != NULL) {
        node = node->origin;
    }

    for (i = gsim_tree_ntxns(); i > 0; i--) {
        txn = gsim_tree_txn(i - 1);

        if (txn->zxid < node->created) {
            break;
        }

        if (txn->node == node && txn->change == GSIM_CREATED) {
            index = 0;

        } else if (txn->zxid == node->created && txn->change == GSIM_CREATED)
        {
            index++;
        }
    }

    return node->created * 256 + index;
}


void
gsim_oracle_deleted(gsim_node_t *node, int closed)
{
    int              lock;
    gsim_hold_t     *h;
    gsim_node_t     *next;
    gsim_process_t  *p;

    if (node->parent->nchildren == 0 && node->parent->container
        && !gsim_chance(8))
    {
        gsim_at(gsim_now + gsim_below(gsim_chance(2) ? 300 : 4 * GSIM_MS),
                gsim_oracle_reap, NULL, 0);
    }

    lock = gsim_oracle_lock(node->path);

    if (lock < 0) {
        return;
    }

    next = gsim_oracle_successor(node);

    if (next != NULL) {
        next->origin = node;

        if (node->data != NULL && next->data != NULL) {
            gsim_oracle_goes_on(node, node->data, next, next->data);
        }

        if (node->owner != 0 && next->owner == 0) {
            gsim_oracle_entered(next);
        }
    }

    for (h = gsim_holds[lock]; h != NULL; h = h->next) {

        if (h->node != node || gsim_oracle_renamed(h)) {
            continue;
        }

        if (!h->released && !h->lost && h->until > gsim_now) {

            if (!h->session->over) {
                gsim_violation("%s is deleted, but held for another %d ms",
                               node->path, (int) ((h->until - gsim_now)
                                                  / GSIM_MS));
            }

            /* the next worker may be connected when the close arrives */

            p = h->session->closer;

            if (closed && p != NULL && !p->quits && !p->terminates) {
                gsim_violation("the session of %s is closed, but it is held "
                               "for another %d ms", node->path,
                               (int) ((h->until - gsim_now) / GSIM_MS));
            }
        }

        h->lost = 1;
    }
}


/*
 * A gateway has deleted the node through that session.  Only the session that
 * counts a durable lease ends it, if no user has asked for the release; and an
 * entry is not removed before the claim.
 */

void
gsim_oracle_removed(gsim_session_t *session, gsim_node_t *node)
{
    int           lock;
    gsim_hold_t  *h;

    if (strstr(node->path, ".leases/") != NULL) {
        gsim_oracle_entry_removed(node);
        return;
    }

    lock = gsim_oracle_lock(node->path);

    if (lock < 0 || node->owner != 0 || gsim_oracle_cancelled(node)
        || gsim_oracle_successor(node) != NULL)
    {
        return;
    }

    for (h = gsim_holds[lock]; h != NULL; h = h->next) {

        if (h->node == node && !h->released && h->ends != 0
            && !gsim_oracle_counts(session, node))
        {
            gsim_violation("%s is deleted by the session %llx, which does not "
                           "count the lease", node->path,
                           (long long) session->id);
        }
    }
}


/* Whether the session owns the gate that the claim's data name. */

static int
gsim_oracle_counts(gsim_session_t *session, gsim_node_t *claim)
{
    char              path[128];
    gsim_node_t      *gate;
    zkl_claim_data_t  cdata;

    zkl_claim_data_read(&cdata, claim->data->bytes, claim->data->len);

    if (cdata.gate_len == 0) {

        /* a stranger's child, or a mark over the claim data */

        return 1;
    }

    (void) snprintf(path, sizeof(path), "/zk_lock_gates/%s", cdata.gate);

    gate = gsim_tree_find(path, gsim_zxid);

    return gate != NULL && gate->owner == session->id;
}


static void
gsim_oracle_entry_removed(gsim_node_t *entry)
{
    int               i;
    size_t            len;
    const char       *gate;
    gsim_node_t      *lock, *node;
    zkl_child_t       child;
    zkl_claim_data_t  cdata;

    gate = strrchr(entry->parent->path, '/') + 1;

    for (i = 0; i < GSIM_LOCKS; i++) {
        len = strlen(gsim_paths[i]);

        if (entry->data->len <= len
            || strncmp(entry->data->bytes, gsim_paths[i], len) != 0
            || entry->data->bytes[len] != '\n')
        {
            continue;
        }

        lock = gsim_tree_find(gsim_paths[i], gsim_zxid);

        for (node = lock ? lock->children : NULL; node; node = node->sibling) {

            if (node->deleted != GSIM_NEVER || node->owner != 0
                || gsim_tree_child(node, &child) != 0 || !child.has_id)
            {
                continue;
            }

            zkl_claim_data_read(&cdata, node->data->bytes, node->data->len);

            if (cdata.gate_len == ZKL_GATE_LEN
                && strncmp(cdata.gate, gate, ZKL_GATE_LEN) == 0
                && gsim_oracle_entry_of(entry, &child.id))
            {
                gsim_violation("%s is removed, but %s is there", entry->path,
                               node->path);
            }
        }
    }
}


static int
gsim_oracle_entry_of(gsim_node_t *entry, zkl_id_t *id)
{
    char  name[32];

    (void) snprintf(name, sizeof(name), "%02x%02x%08x",
                    id->random[ZKL_RANDOM_LEN - 2],
                    id->random[ZKL_RANDOM_LEN - 1], id->record);

    return strcmp(entry->name, name) == 0;
}


/* The node that took a claim's place in the deleting transaction, or NULL. */

static gsim_node_t *
gsim_oracle_successor(gsim_node_t *node)
{
    gsim_node_t  *next;
    zkl_child_t   child, was;

    if (gsim_tree_child(node, &was) != 0) {
        return NULL;
    }

    for (next = node->parent->children; next; next = next->sibling) {

        if (next != node && next->deleted == GSIM_NEVER
            && next->created == node->deleted
            && gsim_tree_child(next, &child) == 0
            && child.seq == was.seq
            && (child.mode == was.mode || child.mode == ZKL_READ))
        {
            return next;
        }
    }

    return NULL;
}


/* Whether the claim was made durable, or shared, and so got another node. */

static int
gsim_oracle_renamed(gsim_hold_t *hold)
{
    gsim_node_t  *node;

    node = gsim_oracle_successor(hold->node);

    if (node == NULL
        || (strcmp(node->name, hold->node->name) != 0 && !hold->shares))
    {
        return 0;
    }

    hold->node = node;
    hold->path = node->path;
    hold->session = gsim_oracle_session(node);

    return 1;
}


static void
gsim_oracle_reap(void *data, uint64_t tag)
{
    (void) data;
    (void) tag;

    gsim_count.reaped += (uint64_t) gsim_tree_reap();
    gsim_server_spread();
}


/*
 * A version counts within a life of a claim's znode: the gateway has read data
 * of that version in that life, and what the gateway writes instead belongs to
 * the same claim, and forgets no renewal.
 */

void
gsim_oracle_wrote(gsim_process_t *p, gsim_node_t *node, gsim_data_t *data)
{
    /* or the transaction itself has made the znode */

    if (gsim_oracle_lock(node->path) < 0 || node->created == gsim_zxid) {
        return;
    }

    if (!(data->known & (1U << p->gateway->index))) {
        gsim_violation("process %d writes %s by the version %d, which the "
                       "gateway has not read", (int) p->pid, node->path,
                       (int) data->version);
    }

    if (node->data != data) {
        gsim_oracle_goes_on(node, data, node, node->data);
    }
}


static void
gsim_oracle_goes_on(gsim_node_t *node, gsim_data_t *data, gsim_node_t *next,
    gsim_data_t *then)
{
    zkl_claim_data_t  was, is;

    zkl_claim_data_read(&was, data->bytes, data->len);
    zkl_claim_data_read(&is, then->bytes, then->len);

    if (was.index < 0) {
        return;
    }

    if (is.index != was.index
        || (is.czxid ? is.czxid : next->created)
           != (was.czxid ? was.czxid : node->created))
    {
        gsim_violation("the data of %s become those of another claim",
                       node->path);
    }

    if (is.renewals < was.renewals) {
        gsim_violation("the data of %s had %lld renewals, and have %lld",
                       node->path, (long long) was.renewals,
                       (long long) is.renewals);
    }
}


int
gsim_oracle_ahead(const char *path, zkl_mode_t mode, int64_t seq)
{
    unsigned      n;
    gsim_node_t  *parent, *node;
    zkl_child_t   child;

    parent = gsim_tree_find(path, gsim_zxid);

    if (parent == NULL) {
        return 0;
    }

    for (n = 0, node = parent->children; node != NULL; node = node->sibling) {

        if (node->deleted == GSIM_NEVER
            && gsim_tree_child(node, &child) == 0
            && (child.seq < seq || node->planted)
            && gsim_oracle_blocks(child.mode, mode))
        {
            if (child.mode != mode || node->planted) {
                return 1;
            }

            n++;
        }
    }

    if (zkl_mode_base(mode) == ZKL_SEMAPHORE) {
        return n >= zkl_mode_permits(mode);
    }

    return n != 0;
}


void
gsim_oracle_owns(void *data, uint64_t tag)
{
    int              i;
    zkl_slot_t      *slot;
    gsim_process_t  *p, *before;

    for (p = gsim_processes; p != NULL; p = p->next) {

        if ((p->state != GSIM_RUNS && p->state != GSIM_LEAVES)
            || p->worker == NULL || p->doomed || p->ending || p->in_turn)
        {
            continue;
        }

        before = gsim_enter(p);

        gsim_session_check(p);
        gsim_follow_check(p);
        gsim_oracle_alive(p);

        if (tag % 4 == 2) {
            gsim_oracle_counts_paths(p);
        }

        slot = p->worker->zone->own;

        if (slot->keyed) {
            gsim_oracle_counts_watches(p, slot->key.id);

            if (!gsim_server_copied(slot->key.id)) {
                gsim_oracle_owns_session(p, slot->key.id);
            }
        }

        gsim_leave(before);
    }

    gsim_oracle_hung_up();

    for (i = 0; i < GSIM_GATEWAYS; i++) {
        if (tag % 4 == 0 && gsim_gateways[i].up) {
            gsim_zone_check(&gsim_gateways[i]);
        }
    }

    gsim_at(gsim_now + 250 * GSIM_MS, gsim_oracle_owns, data, tag + 1);
}


/* While no fault is felt, no lock outlives the connection that held it. */

static void
gsim_oracle_hung_up(void)
{
    int           i;
    gsim_hold_t  *h;

    if (gsim_now < gsim_quiet + 4 * GSIM_S) {
        return;
    }

    for (i = 0; i < GSIM_LOCKS; i++) {
        for (h = gsim_holds[i]; h != NULL; h = h->next) {

            if (h->hung != 0 && gsim_now > h->hung + 4 * GSIM_S
                && h->node->deleted == GSIM_NEVER && !h->session->over)
            {
                gsim_violation("%s is there, but its connection ended %d ms "
                               "ago", h->path,
                               (int) ((gsim_now - h->hung) / GSIM_MS));
            }
        }
    }
}


/*
 * Each ephemeral child of a lock is a claim's.  The claim's number need not be
 * known, because the answer to the create may be on its way, or lost.
 */

static void
gsim_oracle_owns_session(gsim_process_t *p, int64_t id)
{
    int           i;
    ngx_str_t     path;
    gsim_node_t  *parent, *node;
    zkl_child_t   child;
    zkl_claim_t  *claim;

    for (i = 0; i < GSIM_LOCKS; i++) {
        parent = gsim_tree_find(gsim_paths[i], gsim_zxid);

        if (parent == NULL) {
            continue;
        }

        path.data = (u_char *) gsim_paths[i];
        path.len = strlen(gsim_paths[i]);

        for (node = parent->children; node != NULL; node = node->sibling) {

            if (node->deleted != GSIM_NEVER || node->owner != id
                || gsim_tree_child(node, &child)
                   != 0)
            {
                continue;
            }

            gsim_count.compared++;

            claim = zkl_claim_find(p->worker, &child.id, &path);

            if (claim == NULL
                || claim->state == ZKL_START
                || (claim->entry.seq != child.seq && claim->entry.seq != -1))
            {
                gsim_violation("%s belongs to the session of a worker that "
                               "has no such claim", node->path);
            }
        }
    }
}


/*
 * While no fault is felt, a session that is connected for long is known to
 * live: else streams are told that their locks are lost, and none is granted.
 */

static void
gsim_oracle_alive(gsim_process_t *p)
{
    if (!zkl_session_connected(p->worker->session) || p->apart == 0
        || gsim_now < gsim_quiet || gsim_stands(p))
    {
        p->apart = gsim_now;
        return;
    }

    if (gsim_now > p->apart + 4 * GSIM_S
        && !zkl_session_alive(p->worker->session))
    {
        gsim_violation("the session of process %d is not known to live",
                       (int) p->pid);
    }
}


/* The session has room for no path more, and no path less, than the claims. */

static void
gsim_oracle_counts_paths(gsim_process_t *p)
{
    size_t          len, chroot, room;
    ngx_uint_t      i, less, more;
    zkl_claim_t    *claim;
    zkl_session_t  *session;

    session = p->worker->session;
    chroot = p->gateway->conf.chroot.len + 4;
    len = 0;

    for (i = 0; i < p->worker->nclaims; i++) {
        claim = p->worker->claims[i];

        if (claim != NULL && claim->lasting != ZKL_DURABLE) {
            len += claim->lock->sn.str.len + 1 + ZKL_CLAIM_MAX + chroot;
        }
    }

    room = ZKL_PATH_BYTES - len - chroot;

    less = (zkl_session_reserve(session, room) != NGX_OK);

    if (!less) {
        zkl_session_unreserve(session, room);
    }

    more = (zkl_session_reserve(session, room + 1) == NGX_OK);

    if (less || more) {
        gsim_violation("the session of process %d counts %s than the %d bytes "
                       "of paths that its claims take", (int) p->pid,
                       more ? "less" : "more", (int) len);
    }
}


/* The same for the watches; one for which memory was lacking is not counted. */

static void
gsim_oracle_counts_watches(gsim_process_t *p, int64_t id)
{
    int64_t         bytes;
    size_t          room;
    zkl_session_t  *session;

    bytes = gsim_client_watched(p, id);

    session = p->worker->session;

    if (bytes < 0 || !zkl_session_connected(session)) {
        return;
    }

    gsim_count.watched++;

    room = ZKL_PATH_BYTES - (size_t) bytes - p->gateway->conf.chroot.len - 5;

    if (!zkl_session_must_watch(session, room)
        || (zkl_session_must_watch(session, room + 1) && !gsim_lacks))
    {
        gsim_violation("the session of process %d does not count the %d bytes "
                       "of watches that the library has", (int) p->pid,
                       (int) bytes);
    }
}


int
gsim_oracle_before(int64_t zxid)
{
    size_t        i;
    gsim_node_t  *node;

    for (i = gsim_tree_ntxns(); i > 0; i--) {
        node = gsim_tree_txn(i - 1)->node;

        while (node->origin != NULL) {
            node = node->origin;
        }

        if (node->created <= zxid
            && gsim_tree_txn(i - 1)->node->deleted == GSIM_NEVER
            && gsim_oracle_lock(node->path) >= 0)
        {
            return 1;
        }
    }

    return 0;
}


static int
gsim_oracle_left(int claims)
{
    size_t        i;
    gsim_node_t  *node;

    for (i = gsim_tree_ntxns(); i > 0; i--) {
        node = gsim_tree_txn(i - 1)->node;

        if (node->deleted == GSIM_NEVER
            && ((node->owner != 0 && !claims)
                || strstr(node->path, ".leases/") != NULL
                || gsim_oracle_lock(node->path) >= 0))
        {
            gsim_say("%s is left", node->path);
            return 1;
        }
    }

    return 0;
}


int
gsim_oracle_settled(void)
{
    return !gsim_oracle_left(1);
}


int
gsim_oracle_empty(void)
{
    return !gsim_oracle_left(0);
}
