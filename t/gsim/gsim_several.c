
/*
 * Users that acquire several locks at once, as http/several.c does: by a group
 * of bound claims, whose leases begin at once when all are granted.
 *
 * While the user waits, u->claim is the claim that the group waits for, as of
 * the last gsim_several_sync().  When all are granted, the user keeps the first
 * claim, and each other claim goes to an idle user, or to no user, and then
 * lasts as long as the lease.
 *
 * The process may die while the leases begin: then the leases that have begun
 * end by themselves.  A waiting claim may be deleted by hand, so that the claim
 * queues again, if no other claim of the lock can belong to the same gateway.
 */


#include "gsim_user.h"


static const zkl_claim_data_t *gsim_several_cdata(zkl_group_t *group,
    ngx_uint_t part, zkl_claim_data_t *buf);
static void gsim_several_by_hand(void *data, uint64_t tag);
static int gsim_several_near(gsim_user_t *u, gsim_node_t *node);
static void gsim_several_answered(zkl_group_t *group, zkl_outcome_e outcome);
static void gsim_several_granted(gsim_user_t *u);
static void gsim_several_part(gsim_user_t *u, int i, int64_t fence,
    int64_t since);


/* Chooses locks that are used as a mutex or shared, not as a semaphore. */

int
gsim_several_choose(gsim_user_t *u)
{
    int  i;

    u->nparts = 0;

    for (i = 0; i < GSIM_LOCKS; i++) {
        if (zkl_mode_base(gsim_user_use(i)) != ZKL_SEMAPHORE) {
            u->locks[u->nparts++] = i;
        }
    }

    if (u->nparts > 2 && gsim_chance(2)) {
        u->locks[1] = u->locks[2];
        u->nparts--;
    }

    if (u->nparts < 2) {
        return 0;
    }

    u->mode = ZKL_MUTEX;

    return 1;
}


void
gsim_several_acquire(void *data)
{
    gsim_user_t *u = data;

    int                i;
    zkl_group_t       *group;
    zkl_acquire_t      acquire;
    zkl_group_part_t  *part;

    gsim_say("%s acquires %d locks, wait %d, ttl %d", u->name, u->nparts,
             (int) u->wait, (int) u->ttl);

    u->by_hand = NULL;
    u->first = 0;

    memset(u->parts, 0, sizeof(u->parts));

    for (i = 0; i < u->nparts; i++) {
        part = &u->parts[i];

        part->path.data = (u_char *) gsim_paths[u->locks[i]];
        part->path.len = strlen(gsim_paths[u->locks[i]]);
        part->mode = u->mode;
        part->wait = (ngx_msec_t) u->wait;
        part->once = (u->wait == 0);
    }

    group = &u->group;

    memset(group, 0, sizeof(zkl_group_t));

    u->lock = u->locks[0];
    gsim_user_fill(u, &acquire, NULL);

    group->worker = u->process->worker;
    group->parts = u->parts;
    group->nparts = (ngx_uint_t) u->nparts;
    group->timeout = acquire.timeout;
    group->ttl = acquire.ttl;
    group->terms = acquire.terms;
    group->cdata = gsim_several_cdata;
    group->handler = gsim_several_answered;
    group->data = u;
    group->keyed = 1;

    if (zkl_group_acquire(group) != NGX_OK) {
        gsim_say("%s is refused: %d", u->name, group->outcome);
        gsim_user_idle(u);
        return;
    }

    u->claim = u->parts[0].claim;
    u->must = gsim_user_must(u->wait + u->nparts * ZKL_PATIENCE);
    u->acquired = gsim_now;

    gsim_at(gsim_now + gsim_below(200 * GSIM_MS), gsim_several_by_hand, u,
            (uint64_t) u->acquired);
}


static const zkl_claim_data_t *
gsim_several_cdata(zkl_group_t *group, ngx_uint_t part, zkl_claim_data_t *buf)
{
    gsim_user_cdata(group->data, buf);

    buf->async = 0;
    buf->has_params = 0;

    return buf;
}


/* The group goes from claim to claim without telling. */

void
gsim_several_sync(gsim_user_t *u)
{
    if (u->nparts == 0 || u->claim == NULL
        || u->group.at == (ngx_uint_t) u->nparts
        || u->parts[u->group.at].claim == NULL)
    {
        return;
    }

    if (u->lock != u->locks[u->group.at]) {
        u->lock = u->locks[u->group.at];
        u->first = 0;
    }

    u->claim = u->parts[u->group.at].claim;
}


/* Deletes the znode of a waiting claim, as soon as possible. */

static void
gsim_several_by_hand(void *data, uint64_t tag)
{
    gsim_user_t *u = data;

    if (u->nparts == 0 || u->claim == NULL || (uint64_t) u->acquired != tag
        || u->process->state != GSIM_RUNS || u->process->ending)
    {
        return;
    }

    if (u->process->in_turn || u->group.at == 0
        || !gsim_several_by_hand_now(u))
    {
        gsim_at(gsim_now + gsim_below(200 * GSIM_MS), gsim_several_by_hand, u,
                tag);
    }
}


int
gsim_several_by_hand_now(gsim_user_t *u)
{
    int           n;
    char          path[GSIM_PATH];
    gsim_node_t  *node, *other;

    gsim_several_sync(u);

    if (u->claim->state != ZKL_WAIT) {
        return 0;
    }

    u->token.id = u->claim->id;
    u->token.seq = u->claim->entry.seq;
    u->token.mode = u->claim->entry.mode;

    gsim_user_path(u, path);

    node = gsim_tree_find(path, gsim_zxid);

    if (node == NULL) {
        return 0;
    }

    for (n = 0, other = node->parent->children; other; other = other->sibling) {

        if (other == node || other->deleted != GSIM_NEVER) {
            continue;
        }

        /* of a claim of an older copy, a gateway may know the end */

        if (gsim_several_near(u, other) || gsim_server_copied(other->owner)) {
            return 0;
        }

        n += (other->created < node->created);
    }

    if (n == 0) {
        return 0;
    }

    gsim_say("%s is deleted by hand", path);
    gsim_count.by_hand++;

    (void) gsim_tree_begin();
    (void) gsim_tree_delete(path, -1);

    gsim_oracle_deleted(node, 0);
    gsim_server_spread();

    u->by_hand = node;

    return 1;
}


/* Whether the claim may belong to the gateway that serves the user. */

static int
gsim_several_near(gsim_user_t *u, gsim_node_t *node)
{
    gsim_session_t  *session;

    if (node->owner == 0) {

        /* a durable claim may belong to any gateway */

        return 1;
    }

    session = gsim_server_session(node->owner);

    return session != NULL && session->last != NULL
           && session->last->gateway == u->process->gateway;
}


static void
gsim_several_answered(zkl_group_t *group, zkl_outcome_e outcome)
{
    gsim_user_t *u = group->data;

    gsim_say("%s is answered for %d locks: %d", u->name, u->nparts, outcome);

    u->claim = NULL;

    if (outcome != ZKL_GRANTED) {
        gsim_user_idle(u);
        return;
    }

    /* in case the process dies of this, or stands still */

    u->works = 1;
    gsim_user_next(u, 300 * GSIM_MS);

    gsim_gateway_grants(u->process);
    gsim_several_granted(u);

    u->works = 0;
}


/* The user gives up all locks. */

void
gsim_several_leave(void *data)
{
    gsim_user_t *u = data;

    gsim_say("%s gives up %d locks", u->name, u->nparts);
    gsim_count.left++;

    u->claim = NULL;

    (void) zkl_group_leave(&u->group);

    gsim_user_idle(u);
}


static void
gsim_several_granted(gsim_user_t *u)
{
    int           i;
    int64_t       since, fences[GSIM_LOCKS];
    zkl_claim_t  *claim, *claims[GSIM_LOCKS];

    if (gsim_chance(20)) {
        gsim_several_leave(u);
        return;
    }

    for (i = 0; i < u->nparts; i++) {
        claim = u->parts[i].claim;
        claims[i] = claim;

        u->tokens[i].id = claim->id;
        u->tokens[i].seq = claim->entry.seq;
        u->tokens[i].mode = claim->entry.mode;

        fences[i] = zkl_fencing_token(claim->czxid, claim->index);
    }

    if (gsim_chance(4)) {
        gsim_fault_store(u->process, 5 * (unsigned) u->nparts);
    }

    zkl_claim_begin(claims, (ngx_uint_t) u->nparts);

    memset(u->parts, 0, sizeof(u->parts));

    gsim_count.several++;

    since = u->process->stood ? u->process->turned : gsim_now;

    for (i = u->nparts - 1; i >= 0; i--) {
        gsim_several_part(u, i, fences[i], since);
    }
}


static void
gsim_several_part(gsim_user_t *u, int i, int64_t fence, int64_t since)
{
    char          path[GSIM_PATH];
    int64_t       until;
    gsim_hold_t  *hold;
    gsim_user_t  *v;

    u->lock = u->locks[i];
    u->token = u->tokens[i];

    gsim_user_path(u, path);

    until = since + (u->ttl - 1) * GSIM_MS;

    hold = gsim_oracle_held(u->lock, ZKL_MUTEX, path, fence, until, u->name);

    if (hold->lost && !hold->released && hold->node->deleted_at < since) {
        gsim_violation("%s is told to hold %s, which is gone", u->name,
                       path);
    }

    v = (i == 0) ? u : gsim_user_another(u);

    if (v == NULL) {
        return;
    }

    if (v != u) {
        v->lock = u->lock;
        v->mode = u->mode;
        v->token = u->token;
        v->home = u->home;
        v->ttl = u->ttl;
        v->least = u->ttl;
        v->forgets = gsim_chance(8);
        v->keyed = v->async = v->shares = v->binds = v->nparts = 0;
    }

    v->nparts = 0;
    v->hold = hold;
    gsim_user_think(v);
}
