
/*
 * Users who want several locks at once, as ngx_http_zk_lock_several.c does it:
 * one after the other, each bound until all are granted, and then all leases
 * begin at once.
 *
 * While he waits, u->claim is the one he waits for.  When he has all of them,
 * the first is his, and each other one goes to a user who does nothing else,
 * or to nobody, and then it lasts as long as its lease.
 */


#include "gsim_user.h"


static void gsim_several_next(gsim_user_t *u);
static void gsim_several_answered(void *data, ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome);
static void gsim_several_go_on(gsim_user_t *u,
    ngx_http_zk_lock_outcome_e outcome);
static void gsim_several_event(void *data, ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_event_e event, const char *reason);
static void gsim_several_abandon(gsim_user_t *u);
static void gsim_several_granted(gsim_user_t *u);
static void gsim_several_part(gsim_user_t *u, int i, int64_t fence,
    int64_t since);


/* Which locks he wants: those that are used by one at a time, or shared. */

int
gsim_several_choose(gsim_user_t *u)
{
    int  i;

    u->nparts = 0;

    for (i = 0; i < GSIM_LOCKS; i++) {
        if (zk_lock_kind_base(gsim_user_use(i)) != ZK_LOCK_SEMAPHORE) {
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

    u->kind = ZK_LOCK_MUTEX;

    return 1;
}


void
gsim_several_acquire(void *data)
{
    gsim_user_t *u = data;

    gsim_say("%s acquires %d locks, wait %d, ttl %d", u->name, u->nparts,
             (int) u->wait, (int) u->ttl);

    u->at = 0;
    u->dropped = 0;
    memset(u->parts, 0, sizeof(u->parts));

    gsim_several_next(u);
}


static void
gsim_several_next(gsim_user_t *u)
{
    zk_lock_label_t              label;
    ngx_http_zk_lock_acquire_t   acquire;
    ngx_http_zk_lock_outcome_e   outcome;

    u->lock = u->locks[u->at];
    u->first = 0;

    gsim_user_label(u, &label);
    label.async = 0;
    label.has_params = 0;

    gsim_user_fill(u, &acquire, &label);

    acquire.wait = (ngx_msec_t) (ngx_max(u->deadline - gsim_now, 0) / GSIM_MS);
    acquire.key = u->key;
    acquire.bound = 1;
    acquire.leased = 0;
    acquire.leader = u->parts[0];
    acquire.handler = gsim_several_answered;
    acquire.event = gsim_several_event;

    u->must = gsim_now + (int64_t) acquire.wait * GSIM_MS + GSIM_SLACK;

    u->claim = ngx_http_zk_lock_claim_acquire(u->process->worker, &acquire,
                                              &outcome);
    u->parts[u->at] = u->claim;

    if (u->claim == NULL) {
        gsim_say("%s is refused: %d", u->name, outcome);
        gsim_several_abandon(u);
        gsim_user_idle(u);
    }
}


static void
gsim_several_answered(void *data, ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_outcome_e outcome)
{
    gsim_user_t *u = data;

    gsim_say("%s is answered for part %d: %d", u->name, u->at, outcome);

    if (claim != u->claim) {
        gsim_violation("%s is answered for another claim", u->name);
    }

    u->claim = NULL;

    /* if the process dies of this, or stands still */

    u->works = 1;
    gsim_user_next(u, 300 * GSIM_MS);

    gsim_several_go_on(u, outcome);

    u->works = 0;
}


static void
gsim_several_go_on(gsim_user_t *u, ngx_http_zk_lock_outcome_e outcome)
{
    if (outcome != NGX_HTTP_ZK_LOCK_GRANTED) {
        u->parts[u->at] = NULL;
        gsim_several_abandon(u);
        gsim_user_idle(u);
        return;
    }

    if (u->dropped) {

        /* too late: another one is lost, and they are given up */

        u->claim = u->parts[u->at];
        gsim_user_next(u, 0);
        return;
    }

    if (++u->at < u->nparts) {
        gsim_several_next(u);
        return;
    }

    gsim_several_granted(u);
}


/* One that was granted is lost, while others are waited for. */

static void
gsim_several_event(void *data, ngx_http_zk_lock_claim_t *claim,
    ngx_http_zk_lock_event_e event, const char *reason)
{
    int          i;
    gsim_user_t *u = data;

    if (event != NGX_HTTP_ZK_LOCK_EVENT_LOST) {
        return;
    }

    for (i = 0; i < u->nparts && u->parts[i] != claim; i++) {
        /* void */
    }

    if (i == u->nparts) {
        gsim_violation("%s hears of a claim that he has not", u->name);
    }

    gsim_say("%s hears that part %d is lost: %s", u->name, i, reason);

    u->parts[i] = NULL;
    u->dropped = 1;

    gsim_user_next(u, 0);
}


/* He gives up, in a turn of its own. */

void
gsim_several_leave(void *data)
{
    gsim_user_t *u = data;

    gsim_say("%s gives up %d locks", u->name, u->nparts);
    gsim_count.left++;

    gsim_several_abandon(u);
    gsim_user_idle(u);
}


static void
gsim_several_abandon(gsim_user_t *u)
{
    int                        i;
    ngx_http_zk_lock_claim_t  *claim;

    u->claim = NULL;

    for (i = 0; i < u->nparts; i++) {
        claim = u->parts[i];

        if (claim != NULL) {
            u->parts[i] = NULL;
            ngx_http_zk_lock_claim_abandon(claim);
        }
    }
}


static void
gsim_several_granted(gsim_user_t *u)
{
    int                        i;
    int64_t                    since, fences[GSIM_LOCKS];
    ngx_http_zk_lock_claim_t  *claim, *claims[GSIM_LOCKS];

    if (gsim_chance(20)) {
        gsim_several_leave(u);
        return;
    }

    for (i = 0; i < u->nparts; i++) {
        claim = u->parts[i];
        claims[i] = claim;

        u->tokens[i].id = claim->id;
        u->tokens[i].seq = claim->entry.seq;
        u->tokens[i].kind = claim->entry.kind;

        fences[i] = ngx_http_zk_lock_fencing_token(claim->czxid, claim->index);
    }

    ngx_http_zk_lock_claim_begin(claims, (ngx_uint_t) u->nparts);

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
    char          path[128];
    int64_t       until;
    gsim_hold_t  *hold;
    gsim_user_t  *v;

    u->lock = u->locks[i];
    u->token = u->tokens[i];

    gsim_user_path(u, path);

    until = since + (u->ttl - 1) * GSIM_MS;

    hold = gsim_oracle_held(u->lock, ZK_LOCK_MUTEX, path, fence, until,
                            u->name);

    if (hold->lost && !hold->released && hold->node->deleted_at < since) {
        gsim_violation("%s is told that he holds %s, which is gone", u->name,
                       path);
    }

    v = (i == 0) ? u : gsim_user_another(u);

    if (v == NULL) {
        return;
    }

    if (v != u) {
        v->lock = u->lock;
        v->kind = u->kind;
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
