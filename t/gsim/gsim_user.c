
/*
 * Users that acquire, wait, renew and release, at any worker.
 *
 * A user calls src/core as src/http does for a request: see http/acquire.c,
 * http/calls.c and http/watch.c.  Each call is made in a turn of a worker.
 * When the worker dies or leaves, the connection is gone: a user with a key
 * repeats the acquire, and a user that releases repeats the release.
 */


#include <stdio.h>
#include <stdlib.h>

#include "gsim_user.h"


/* how long a waiter with no claim ahead may wait while no fault is felt */
#define GSIM_PROMPT         (400 * GSIM_MS)

#define GSIM_CHECK          (50 * GSIM_MS)

/*
 * How long a claim may outlast the lease: what another gateway renews in the
 * first two seconds is read in the sweep that makes the claim durable.
 */
#define GSIM_AFTER          (4 * GSIM_S)

/* a claim that is held for that long is durable */
#define GSIM_LASTING        (6 * GSIM_S)


static gsim_user_t   gsim_users[GSIM_USERS];
static int           gsim_nusers;
static int64_t       gsim_users_until;
static zkl_mode_t  gsim_uses[GSIM_LOCKS];
ngx_uint_t           gsim_max_queue;
ngx_uint_t           gsim_max_claims;
ngx_msec_t           gsim_grace;
ngx_msec_t           gsim_timeout;
int                  gsim_mixes;


static void gsim_user_event(void *data, uint64_t tag);
static void gsim_user_enrich(gsim_user_t *u);
static zkl_call_e gsim_user_wants(gsim_user_t *u);
static zkl_mode_t gsim_user_other_use(void);
static void gsim_user_share(gsim_user_t *u);
static void gsim_user_meet(gsim_user_t *u);
static void gsim_user_meet_last(gsim_user_t *u);
static gsim_user_t *gsim_user_company(gsim_user_t *u);
static void gsim_user_crowd(gsim_user_t *u);
static void gsim_user_disperse(gsim_user_t *u);
static void gsim_user_acquire_all(void *data);
static void gsim_user_acquire(void *data);
static void gsim_user_answered(void *data, zkl_claim_t *claim,
    zkl_outcome_e outcome);
static void gsim_user_check_cancelled(gsim_user_t *u, zkl_claim_t *claim);
static void gsim_user_granted(gsim_user_t *u, zkl_claim_t *claim);
static void gsim_user_check_quota(gsim_user_t *u, uint64_t key);
static void gsim_user_by_hand(void *data, uint64_t tag);
static int gsim_user_missing(gsim_user_t *u);
static void gsim_user_fifo(gsim_user_t *u, int64_t seq);
static void gsim_user_leave(void *data);
static void gsim_user_check_event(void *data, uint64_t tag);
static void gsim_user_check_lease(gsim_user_t *u);
static void gsim_user_check_durable(gsim_user_t *u);
static void gsim_user_check_one(gsim_user_t *u);
static void gsim_user_check_wait(gsim_user_t *u);
static void gsim_user_check_key(gsim_user_t *u);
static int gsim_user_before(gsim_node_t *node, int64_t seq);
static int gsim_user_listed_before(gsim_node_t *node, int64_t seq);
static int gsim_user_clashes(gsim_node_t *own, int wait);
static int64_t gsim_user_first(gsim_user_t *u, gsim_node_t *own);
static void gsim_user_refused(gsim_user_t *u, zkl_claim_t *claim,
    zkl_outcome_e outcome);


void
gsim_user_reset(int64_t until)
{
    int      i;
    int64_t  n;

    gsim_nusers = (int) gsim_between(3, GSIM_USERS);
    gsim_grace = (ngx_msec_t) gsim_between(500, 3000);
    /* a call may need eight round trips to a server that lags by 90 ms */

    gsim_timeout = (ngx_msec_t) gsim_between(900, 8000);
    gsim_max_queue = gsim_chance(5) ? 4 : 1000;
    gsim_max_claims = gsim_chance(5) ? (ngx_uint_t) gsim_between(1, 5) : 1000;

    for (i = 0; i < GSIM_LOCKS; i++) {
        n = gsim_below(6);
        gsim_uses[i] = (n < 3) ? ZKL_MUTEX
                       : (n < 5) ? ZKL_READ
                       : zkl_semaphore(GSIM_PERMITS);
    }

    gsim_mixes = gsim_rich && gsim_chance(3);

    gsim_user_again(until);

    gsim_at(gsim_now + GSIM_CHECK, gsim_user_check_event, NULL, 0);
}


void
gsim_user_again(int64_t until)
{
    int           i;
    gsim_user_t  *u;

    memset(gsim_users, 0, sizeof(gsim_users));
    gsim_crowd_reset();

    gsim_users_until = until;

    for (i = 0; i < gsim_nusers; i++) {
        u = &gsim_users[i];
        u->index = i;
        snprintf(u->name, sizeof(u->name), "user %d", i);

        gsim_user_next(u, gsim_between(10, 4000) * GSIM_MS);
    }
}


void
gsim_user_counts(gsim_hold_t *hold)
{
    int           i;
    gsim_user_t  *u;

    for (i = 0; i < gsim_nusers; i++) {
        u = &gsim_users[i];

        if (u->hold == hold) {
            u->low = ngx_min(u->low, hold->times);
            u->high = ngx_max(u->high, hold->most);
        }
    }
}


zkl_mode_t
gsim_user_use(int lock)
{
    return gsim_uses[lock];
}


static zkl_mode_t
gsim_user_other_use(void)
{
    switch (gsim_below(6)) {

    case 0:
        return ZKL_READ;

    case 1:
        return ZKL_WRITE;

    case 2:
        return ZKL_MEMBER;

    case 3:
        return zkl_semaphore(GSIM_PERMITS);

    case 4:
        return zkl_semaphore(GSIM_PERMITS + 1);

    default:
        return ZKL_MUTEX;
    }
}


/*
 * A user that is idle comes again until gsim_users_until, and what the user
 * acquires just before all gateways stop becomes durable, and stays.
 */

int
gsim_user_busy(void)
{
    int  i;

    if (gsim_now < gsim_users_until) {
        return 1;
    }

    for (i = 0; i < gsim_nusers; i++) {
        if (gsim_users[i].state != GSIM_IDLE) {
            return 1;
        }
    }

    return gsim_crowd_busy();
}


void
gsim_user_poke(int64_t us)
{
    int           n;
    gsim_user_t  *u;

    for (n = gsim_nusers; n > 0; n--) {
        u = &gsim_users[gsim_below(gsim_nusers)];

        if (u->state == GSIM_IDLE) {
            gsim_user_next(u, us);
        }
    }
}


void
gsim_user_prod(int64_t us, uint32_t record)
{
    int           i;
    gsim_user_t  *u;

    for (i = 0; i < gsim_nusers; i++) {
        u = &gsim_users[i];

        if ((u->state == GSIM_HOLDS || u->state == GSIM_POLLS)
            && u->call == NULL && !u->calls
            && (u->token.id.record == record || gsim_chance(2)))
        {
            gsim_user_next(u, gsim_below(us));
        }
    }
}


int
gsim_user_polls(uint32_t record)
{
    int  i;

    for (i = 0; i < gsim_nusers; i++) {
        if (gsim_users[i].state == GSIM_POLLS
            && gsim_users[i].token.id.record == record)
        {
            return 1;
        }
    }

    return 0;
}


void
gsim_user_report(void)
{
    int  i;

    for (i = 0; i < gsim_nusers; i++) {
        if (gsim_users[i].state != GSIM_IDLE) {
            gsim_say("%s is busy: %d, call %d", gsim_users[i].name,
                     gsim_users[i].state, gsim_users[i].call != NULL);
        }
    }
}


void
gsim_user_next(gsim_user_t *u, int64_t us)
{
    gsim_at(gsim_now + us, gsim_user_event, u, ++u->tag);
}


void
gsim_user_idle(gsim_user_t *u)
{
    if (u->bound != NULL) {
        u->state = GSIM_RELEASES;
        gsim_user_next(u, gsim_below(200 * GSIM_MS));
        return;
    }

    u->state = GSIM_IDLE;
    u->untold = 0;
    u->met = 0;
    u->meets = 0;
    u->hangs = 0;
    u->claim = NULL;
    u->hold = NULL;

    gsim_user_next(u, gsim_between(1, 3000) * GSIM_MS);
}


static void
gsim_user_event(void *data, uint64_t tag)
{
    gsim_user_t *u = data;

    if (tag != u->tag || u->call != NULL) {
        return;
    }

    if (u->works && u->process->state != GSIM_DEAD && u->process->in_turn) {
        gsim_user_next(u, 300 * GSIM_MS);
        return;
    }

    u->works = 0;
    u->leader = NULL;

    switch (u->state) {

    case GSIM_IDLE:

        if (gsim_now >= gsim_users_until) {
            return;
        }

        u->lock = (int) gsim_below(gsim_chance(2) ? 1 : GSIM_LOCKS);
        u->mode = gsim_uses[u->lock];

        if (u->mode == ZKL_READ && gsim_chance(2)) {
            u->mode = ZKL_WRITE;
        }

        if (gsim_mixes && gsim_chance(8)) {
            u->mode = gsim_user_other_use();

        } else if (gsim_mixes && zkl_mode_base(u->mode) == ZKL_SEMAPHORE
                   && gsim_chance(3))
        {
            u->mode = zkl_semaphore((unsigned)
                                    gsim_between(1, GSIM_PERMITS + 1));
        }

        u->wait = gsim_chance(6) ? 0 : gsim_between(100, 20000);
        u->ttl = gsim_chance(3) ? gsim_between(300, 2000)
                                : gsim_between(2000, 20000);
        u->least = u->ttl;
        u->keyed = gsim_chance(5);
        u->async = gsim_chance(8);
        u->forgets = gsim_chance(8);
        u->durable = gsim_chance(5);
        u->deadline = gsim_now + u->wait * GSIM_MS;
        u->tries = 0;

        (void) gsim_random();
        memset(u->key, 0, sizeof(u->key));
        *(uint64_t *) (void *) u->key = gsim_random();
        u->shares = u->keyed && gsim_chance(2);
        u->binds = 0;
        u->nparts = 0;
        u->came = 0;
        u->placed = 0;

        if (gsim_rich && !u->keyed) {
            gsim_user_enrich(u);
        }

        if (u->shares) {
            gsim_user_share(u);
        }

        /* fall through */

    case GSIM_ACQUIRES:

        if (u->nparts != 0 && u->claim != NULL) {

            if (!gsim_user_serve(u, gsim_several_leave)) {
                gsim_user_next(u, 5 * GSIM_MS);
            }

            return;
        }

        if (u->claim != NULL) {

            /* the user's patience is over */

            if (!gsim_user_serve(u, gsim_user_leave)) {
                gsim_user_next(u, 5 * GSIM_MS);
            }

            return;
        }

        u->home = (int) gsim_below(GSIM_GATEWAYS);
        u->process = gsim_gateway_pick(u->home);
        u->state = GSIM_ACQUIRES;
        u->must = gsim_user_must(u->wait);

        if (u->process == NULL) {
            gsim_user_idle(u);
            return;
        }

        if (!u->keyed && u->nparts == 0 && gsim_chance(6)) {
            gsim_user_crowd(u);
        }

        if (!gsim_user_serve(u, u->nparts ? gsim_several_acquire
                                          : gsim_user_acquire_all))
        {
            gsim_user_disperse(u);
            gsim_user_idle(u);
        }

        return;

    case GSIM_POLLS:

        if (u->shares && gsim_now > u->deadline + 2 * GSIM_S) {

            /* another user of the key may own the claim */

            gsim_user_idle(u);
            return;
        }

        gsim_user_ask(u, gsim_now > u->deadline + 2 * GSIM_S
                         || (u->shares && gsim_chance(8))
                         ? ZKL_RELEASE
                         : ZKL_INSPECT);
        return;

    case GSIM_HOLDS:

        if (u->hangs) {
            u->hangs = 0;

            if (gsim_user_unbind(u)) {
                return;
            }
        }

        if (u->bound != NULL && !gsim_oracle_valid(u->hold)) {

            /*
             * The user has not heard of the end, or wanted to hang up while the
             * process stood still, and does so now.
             */

            if (!(u->hold->released || gsim_chance(8)) || !gsim_user_unbind(u))
            {
                gsim_user_next(u, gsim_between(5, 1000) * GSIM_MS);
            }

            return;
        }

        if (u->meets) {
            u->meets = 0;
            gsim_user_ask(u, u->home != u->hold->home || gsim_chance(4)
                             ? ZKL_RENEW : ZKL_HOLD);
            return;
        }

        if (u->met) {
            gsim_user_idle(u);
            return;
        }

        if (u->hold->crowd && u->mine == 0) {
            gsim_user_idle(u);
            return;
        }

        if (!gsim_oracle_valid(u->hold)) {
            gsim_count.lapses++;

            if (u->shares || u->hold->crowd || u->hold->released
                || u->hold->doubt || u->bound != NULL || u->nparts != 0)
            {
                gsim_user_idle(u);

            } else {
                u->tries = 0;
                gsim_user_ask(u, ZKL_RELEASE);
            }

            return;
        }

        if (u->tries-- > 0) {
            gsim_user_ask(u, gsim_user_wants(u));

        } else if (u->bound != NULL && u->leased && gsim_chance(2)) {
            gsim_user_meet_last(u);

        } else if (u->bound != NULL && gsim_chance(2)) {
            (void) gsim_user_unbind(u);

        } else if (u->forgets) {
            gsim_user_next(u, u->hold->until - gsim_now
                              + gsim_between(1, 4 * GSIM_S));

        } else {
            u->tries = (u->hold->times == 1) ? 6 : 0;

            if (u->hold->times == 1 && !u->hold->crowd && gsim_chance(3)) {
                gsim_user_meet(u);
            }

            gsim_user_ask(u, ZKL_RELEASE);
        }

        return;

    case GSIM_RELEASES:

        if (u->met) {

            /* a further release would take the hold of the other user */

            gsim_user_idle(u);

        } else if (!gsim_user_unbind(u)) {
            gsim_user_ask(u, ZKL_RELEASE);
        }

        return;
    }
}


/* Lets the user bind a claim or acquire several locks. */

static void
gsim_user_enrich(gsim_user_t *u)
{
    if (gsim_chance(4)) {
        u->binds = 1;
        u->leased = gsim_chance(2);
        u->async = 0;
        u->forgets = 0;

    } else if (gsim_chance(6) && gsim_several_choose(u)) {
        u->async = 0;

    } else {
        u->nparts = 0;
    }
}


/* Which call a holder makes next. */

static zkl_call_e
gsim_user_wants(gsim_user_t *u)
{
    if (gsim_rich && !u->shares && gsim_chance(3)) {

        if (gsim_chance(3) && (u->mode == ZKL_MUTEX || u->mode == ZKL_WRITE)) {
            return ZKL_DOWNGRADE;
        }

        switch (gsim_below(8)) {

        case 0:
        case 1:
            return ZKL_RELEASE;

        case 2:
            return u->hold->crowd ? ZKL_RENEW : ZKL_BREAK;

        case 3:
            return ZKL_REVOKE;

        default:
            return ZKL_HOLD;
        }
    }

    return gsim_chance(4) ? ZKL_INSPECT : ZKL_RENEW;
}


/* Lets other users send the same request, at almost the same moment. */

static void
gsim_user_share(gsim_user_t *u)
{
    int           i;
    gsim_user_t  *other;

    for (i = (int) gsim_between(1, 4); i > 0; i--) {
        other = &gsim_users[gsim_below(gsim_nusers)];

        if (other == u || other->state != GSIM_IDLE) {
            continue;
        }

        other->lock = u->lock;
        other->mode = u->mode;
        other->wait = u->wait;
        other->ttl = u->ttl;
        other->least = u->ttl;
        other->deadline = u->deadline;
        other->async = u->async;
        other->forgets = u->forgets;
        other->tries = 0;
        other->keyed = 1;
        other->binds = 0;
        other->nparts = 0;
        other->came = 0;
        other->placed = 0;
        other->shares = 1;
        memcpy(other->key, u->key, sizeof(u->key));

        other->state = GSIM_ACQUIRES;
        gsim_user_next(other, gsim_below(gsim_chance(3) ? 10 * GSIM_S
                                         : gsim_chance(2) ? 3000
                                         : 100 * GSIM_MS));
    }
}


/*
 * Lets another user hold or renew with the same token, while the release of u
 * is under way at the other gateway.  The release takes one hold: what the
 * other user was told to hold stays.
 */

static void
gsim_user_meet(gsim_user_t *u)
{
    gsim_user_t  *other;

    if (u->bound != NULL || u->nparts != 0) {
        return;
    }

    other = gsim_user_company(u);

    if (other != NULL) {
        u->met = 1;
        gsim_user_next(other, gsim_below(6 * GSIM_MS));
    }
}


/*
 * Lets another user renew at the other gateway at the end of the lease, while
 * the user's connection ends.
 */

static void
gsim_user_meet_last(gsim_user_t *u)
{
    int64_t       left;
    gsim_user_t  *other;

    left = u->hold->until - gsim_now;

    other = gsim_user_company(u);

    if (other != NULL) {
        other->home = !u->home;
        gsim_user_next(other, left - gsim_between(-1, 5) * GSIM_MS);
    }

    u->hangs = 1;
    gsim_user_next(u, left + gsim_between(0, 5) * GSIM_MS);
}


/* Another user that has u's token, and will make one call; or NULL. */

static gsim_user_t *
gsim_user_company(gsim_user_t *u)
{
    gsim_user_t  *other;

    other = gsim_user_another(u);

    if (other == NULL || u->shares) {
        return NULL;
    }

    other->lock = u->lock;
    other->home = u->home;
    other->mode = u->mode;
    other->token = u->token;
    other->ttl = u->ttl;
    other->least = u->least;
    other->hold = u->hold;
    other->keyed = u->keyed;
    other->async = u->async;
    other->forgets = 0;
    other->shares = 0;
    other->binds = 0;
    other->nparts = 0;
    other->came = 0;
    other->tries = 0;
    other->meets = 1;
    other->met = 1;
    other->state = GSIM_HOLDS;

    u->hold->doubt = 1;
    u->hold->home = u->home;

    gsim_count.met++;

    return other;
}


/*
 * Lets more requests come in the same turn: the claims are made in a single
 * transaction, and the answer may be lost.
 */

static void
gsim_user_crowd(gsim_user_t *u)
{
    int           i;
    gsim_user_t  *other;

    for (i = (int) gsim_between(1, 5); i > 0; i--) {
        other = &gsim_users[gsim_below(gsim_nusers)];

        if (other == u || other->state != GSIM_IDLE || other->works) {
            continue;
        }

        other->lock = gsim_chance(4) ? (int) gsim_below(GSIM_LOCKS) : u->lock;
        other->mode = gsim_uses[other->lock];
        other->wait = gsim_between(100, 20000);
        other->ttl = gsim_between(300, 20000);
        other->least = other->ttl;
        other->deadline = gsim_now + other->wait * GSIM_MS;
        other->keyed = 0;
        other->async = 0;
        other->forgets = 0;
        other->shares = 0;
        other->binds = 0;
        other->nparts = 0;
        other->tries = 0;
        other->home = u->home;
        other->process = u->process;
        other->state = GSIM_ACQUIRES;
        other->works = 1;
        other->leader = u;
        other->must = gsim_now + other->wait * GSIM_MS + GSIM_SLACK;

        /* in case the process dies first */

        gsim_user_next(other, 300 * GSIM_MS);
    }

    if (gsim_chance(6)) {
        gsim_fault_answer(u->process, 3000);
    }
}


/* The turn did not take place. */

static void
gsim_user_disperse(gsim_user_t *u)
{
    int           i;
    gsim_user_t  *other;

    for (i = 0; i < gsim_nusers; i++) {
        other = &gsim_users[i];

        if (other->works && other->leader == u) {
            other->works = 0;
            other->leader = NULL;
            gsim_user_idle(other);
        }
    }
}


static void
gsim_user_acquire_all(void *data)
{
    gsim_user_t *u = data;

    int           i;
    uint64_t      tag;
    gsim_user_t  *other;

    gsim_user_acquire(u);

    for (i = 0; i < gsim_nusers; i++) {
        other = &gsim_users[i];

        if (!other->works || other->leader != u
            || other->process != u->process)
        {
            continue;
        }

        tag = other->tag;
        other->leader = NULL;

        gsim_user_acquire(other);

        other->works = 0;
        other->tag += (other->tag == tag);
    }
}


int
gsim_user_serve(gsim_user_t *u, void (*act)(void *data))
{
    if (u->process->worker == NULL) {
        return 0;
    }

    /* cancel the next event, as the process may stand still in the turn */

    u->tag++;

    if (!gsim_turn(u->process, act, u)) {
        return 0;
    }

    if (u->process != NULL && u->process->state == GSIM_DEAD
        && u->claim == NULL && u->call == NULL)
    {
        /* the process died of act(), or in the same turn */

        gsim_user_next(u, gsim_between(1, 300) * GSIM_MS);
    }

    return 1;
}


int64_t
gsim_user_must(int64_t wait)
{
    return gsim_now + (wait + (int64_t) gsim_timeout) * GSIM_MS + GSIM_SLACK;
}


/* This may only be answered while a fault is felt, or a moment later. */

void
gsim_user_unreachable(gsim_user_t *u)
{
    gsim_count.unreachable++;

    if (gsim_now > gsim_quiet + 2 * GSIM_S) {
        gsim_violation("%s is told that ZooKeeper is out of reach", u->name);
    }
}


void
gsim_user_cdata(gsim_user_t *u, zkl_claim_data_t *cdata)
{
    memset(cdata, 0, offsetof(zkl_claim_data_t, want));
    cdata->want[0] = cdata->from[0] = cdata->owner[0] = cdata->data[0] = '\0';

    cdata->ttl = u->ttl;
    cdata->owner_len = strlen(u->name);
    memcpy(cdata->owner, u->name, cdata->owner_len);
    cdata->has_params = u->keyed;
    cdata->params = 42;
    cdata->async = u->async || u->keyed;
}


void
gsim_user_fill(gsim_user_t *u, zkl_acquire_t *acquire,
    const zkl_claim_data_t *cdata)
{
    ngx_memzero(acquire, sizeof(zkl_acquire_t));

    acquire->path.data = (u_char *) gsim_paths[u->lock];
    acquire->path.len = strlen(gsim_paths[u->lock]);
    acquire->mode = u->mode;
    acquire->wait = (ngx_msec_t) u->wait;
    acquire->terms.once = (u->wait == 0);
    acquire->timeout = gsim_timeout;
    acquire->ttl = (ngx_msec_t) u->ttl;
    acquire->terms.max_queue = gsim_max_queue;
    acquire->terms.max_claims = gsim_max_claims;
    acquire->terms.quota = gsim_quota(u->index % GSIM_QUOTAS);
    acquire->cdata = cdata;
    acquire->terms.leased = 1;
    acquire->handler = gsim_user_answered;
    acquire->data = u;
}


gsim_user_t *
gsim_user_another(gsim_user_t *u)
{
    int  i;

    for (i = 0; i < gsim_nusers; i++) {
        if (&gsim_users[i] != u && gsim_users[i].state == GSIM_IDLE) {
            return &gsim_users[i];
        }
    }

    return NULL;
}


static void
gsim_user_acquire(void *data)
{
    gsim_user_t *u = data;

    zkl_claim_data_t  cdata;
    zkl_acquire_t     acquire;
    zkl_outcome_e     outcome;
    zkl_claim_t      *claim;

    gsim_user_cdata(u, &cdata);

    gsim_user_fill(u, &acquire, &cdata);

    if (u->keyed) {
        acquire.key = u->key;
        acquire.terms.grace = gsim_grace;
    }

    if (u->async) {
        acquire.terms.async = 1;
        acquire.terms.grace = gsim_grace;
        acquire.terms.forever = gsim_chance(2);
    }

    if (u->binds) {
        gsim_user_bind(u, &acquire, &cdata);
    }

    u->durable = u->durable && !u->async && !u->binds;
    acquire.terms.durable = u->durable;

    gsim_say("%s acquires %s, wait %d, ttl %d%s%s%s%s", u->name,
             gsim_paths[u->lock], (int) u->wait, (int) u->ttl,
             u->durable ? ", durable" : "", u->keyed ? ", with a key" : "",
             u->async ? ", async" : "",
             !u->binds ? "" : u->leased ? ", bound and leased" : ", bound");

    gsim_count.acquires++;
    u->first = 0;

    /* a worker that stood still in this turn counts from the turn's begin */

    u->acquired = (int64_t) ngx_current_msec * GSIM_MS;

    claim = zkl_claim_acquire(u->process->worker, &acquire, &outcome);

    if (claim == NULL) {
        gsim_say("%s is refused: %d", u->name, outcome);
        gsim_count.quotas += (outcome == ZKL_QUOTA);
        gsim_user_idle(u);
        return;
    }

    gsim_user_check_quota(u, acquire.terms.quota);

    u->claim = claim;
    u->by_hand = NULL;
    u->ended = NULL;
    u->must = gsim_user_must(acquire.terms.forever ? 0 : u->wait);

    if (gsim_chance(u->keyed && !u->shares ? 3 : 8)) {
        gsim_user_next(u, gsim_between(0, u->wait + 1) * GSIM_MS
                          + gsim_below(2000));
    }

    if (gsim_rich && !u->keyed && !u->async && gsim_chance(3)) {
        gsim_at(gsim_now + gsim_below(200 * GSIM_MS), gsim_user_by_hand, u,
                (uint64_t) u->acquired);
    }
}


/*
 * A quota that is full refuses.  Workers that are in a turn at the same time
 * may all get the last place, and a death may have the claims counted while one
 * of these is between the two steps.
 */

static void
gsim_user_check_quota(gsim_user_t *u, uint64_t key)
{
    zkl_layout_t  *map;

    map = u->process->gateway->shm_zone.data;

    if (!u->process->stood && map->deaths == 0
        && gsim_gateway_counts(u->process->gateway, key) > gsim_max_claims)
    {
        gsim_violation("%s acquires beyond the quota of %d", u->name,
                       (int) gsim_max_claims);
    }
}


/*
 * Deletes the znode of a waiting claim whose token no client was told: the
 * claim queues again.
 */

static void
gsim_user_by_hand(void *data, uint64_t tag)
{
    gsim_user_t *u = data;

    if (u->nparts != 0 || u->claim == NULL || (uint64_t) u->acquired != tag
        || u->process->state != GSIM_RUNS || u->process->ending)
    {
        return;
    }

    if (u->process->in_turn
        || !gsim_oracle_ahead(gsim_paths[u->lock], u->mode,
                              u->claim->entry.seq)
        || !gsim_several_by_hand_now(u))
    {
        gsim_at(gsim_now + gsim_below(200 * GSIM_MS), gsim_user_by_hand, u,
                tag);
    }
}


/*
 * Whether a waiting claim was deleted by hand, and its worker may not have
 * noticed that: the claim still blocks the claims behind at u's gateway.  No
 * watch tells a worker of the end of an own claim that waits, so only a list
 * does: that of a sweep, or when the claims ahead are gone.  Another gateway
 * watches the claim, and so has no excuse.
 *
 * A part of a group blocks, too, because u may have come since the delete.  The
 * czxid is that of the deleted znode until the claim queues again, or the group
 * waits for another part.
 */

static int
gsim_user_missing(gsim_user_t *u)
{
    int           i;
    gsim_user_t  *other;

    for (i = 0; i < gsim_nusers; i++) {
        other = &gsim_users[i];

        gsim_several_sync(other);

        if (other->by_hand != NULL && other->claim != NULL
            && other->lock == u->lock
            && other->process->gateway == u->process->gateway
            && other->claim->czxid == other->by_hand->created)
        {
            return 1;
        }
    }

    return 0;
}


static void
gsim_user_answered(void *data, zkl_claim_t *claim, zkl_outcome_e outcome)
{
    gsim_user_t *u = data;

    gsim_say("%s is answered: %d", u->name, outcome);

    if (u->state != GSIM_ACQUIRES) {
        gsim_violation("%s is answered %d, but waits for nothing", u->name,
                       outcome);
    }

    u->claim = NULL;

    /* in case the process dies of this */

    gsim_user_next(u, 300 * GSIM_MS);

    switch (outcome) {

    case ZKL_GRANTED:
        gsim_user_check_cancelled(u, claim);

        /* a durable claim outlives a gateway that ends */

        if (!u->durable) {
            gsim_gateway_grants(u->process);
        }

        gsim_user_granted(u, claim);
        return;

    case ZKL_DUPLICATE:
        gsim_count.twins++;
        u->token.id = claim->duplicate.id;
        u->token.seq = claim->duplicate.seq;
        u->token.mode = claim->duplicate.mode;
        break;

    case ZKL_QUEUED:
        u->token.id = claim->id;
        u->token.seq = claim->entry.seq;
        u->token.mode = claim->entry.mode;
        break;

    case ZKL_TIMED_OUT:
        gsim_count.taken++;
        gsim_user_refused(u, claim, outcome);
        gsim_user_idle(u);
        return;

    case ZKL_UNREACHABLE:
        gsim_user_unreachable(u);
        gsim_user_idle(u);
        return;

    case ZKL_CONFLICT:

        if (!gsim_mixes) {
            gsim_violation("%s is told that %s is used in another way",
                           u->name, gsim_paths[u->lock]);
        }

        gsim_count.conflicts++;
        gsim_user_refused(u, claim, outcome);
        gsim_user_idle(u);
        return;

    case ZKL_FULL:
        gsim_user_refused(u, claim, outcome);
        gsim_user_idle(u);
        return;

    case ZKL_SHUTTING_DOWN:
    case ZKL_NO_ROOM:
        gsim_user_idle(u);
        return;

    case ZKL_CANCELLED:

        /* no other user has the token of a claim without a key */

        if (!u->keyed && !u->async) {
            gsim_violation("%s is told that its claim was cancelled", u->name);
        }

        gsim_user_idle(u);
        return;

    case ZKL_DENIED:
    case ZKL_FAILED:

        if (gsim_lacks) {
            gsim_user_idle(u);
            return;
        }

        /* fall through */

    default:
        gsim_violation("%s is answered %d", u->name, outcome);
    }

    u->state = GSIM_POLLS;
    gsim_user_next(u, gsim_between(1, 300) * GSIM_MS);
}


/*
 * Who waits with a claim that was cancelled is told so, and the claim does not
 * queue again; unless the worker cannot know, because the session is over, or
 * the lock's znode is gone as well.
 */

void
gsim_user_cancelled(gsim_user_t *u, gsim_node_t *node)
{
    int           i;
    gsim_user_t  *other;

    for (i = 0; i < gsim_nusers; i++) {
        other = &gsim_users[i];

        if (other->claim != NULL && other->nparts == 0
            && memcmp(&other->claim->id, &u->token.id, sizeof(zkl_id_t)) == 0)
        {
            gsim_count.cancelled++;

            other->ended = node;
        }
    }
}


static void
gsim_user_check_cancelled(gsim_user_t *u, zkl_claim_t *claim)
{
    zkl_child_t      child;
    gsim_session_t  *session;

    /* for want of memory a claim may be deleted without a word to the lock */

    if (u->ended == NULL || u->ended->parent->deleted != GSIM_NEVER
        || gsim_lacks)
    {
        return;
    }

    session = gsim_server_session(u->ended->owner);

    if (session != NULL && !session->over
        && gsim_tree_child(u->ended, &child) == 0
        && memcmp(child.id.random, claim->id.random, ZKL_RANDOM_LEN) != 0)
    {
        gsim_violation("%s is granted a claim in the place of one that was "
                       "cancelled", u->name);
    }
}


gsim_node_t *
gsim_user_node(gsim_user_t *u)
{
    char          path[GSIM_PATH];
    gsim_node_t  *node, *parent;

    gsim_user_path(u, path);

    parent = gsim_tree_find(gsim_paths[u->lock], gsim_zxid);

    if (parent == NULL) {
        return NULL;
    }

    for (node = parent->children; node != NULL; node = node->sibling) {
        if (strcmp(node->path, path) == 0) {
            return node;
        }
    }

    return NULL;
}


/*
 * No claim comes in ahead of another claim.  So a claim that is refused as FULL
 * had more claims ahead than the limit when the znode was made, a claim that is
 * refused as TIMED_OUT had a claim ahead, while no fault is felt or if the user
 * did not wait, and a claim that is refused as a CONFLICT had a claim of
 * another use ahead; if only the permits differ, the claim waits to the end.  A
 * claim that was first for long is not refused.
 */

static void
gsim_user_refused(gsim_user_t *u, zkl_claim_t *claim, zkl_outcome_e outcome)
{
    unsigned      ahead, early;
    gsim_node_t  *own;

    early = (gsim_now < u->acquired + (u->wait - 2) * GSIM_MS);

    if (outcome == ZKL_TIMED_OUT && early) {
        gsim_violation("%s is told that it is taken after %d ms of %d",
                       u->name, (int) ((gsim_now - u->acquired) / GSIM_MS),
                       (int) u->wait);
    }

    u->token.id = claim->id;
    u->token.seq = claim->entry.seq;
    u->token.mode = claim->entry.mode;

    own = gsim_user_node(u);

    if (own == NULL || (claim->told & ZKL_TOLD_REQUEUED)) {
        return;
    }

    ahead = gsim_user_ahead(u, own);

    if (gsim_lacks && gsim_now < gsim_quiet + 4 * GSIM_S) {

        /* the queue could not be listed */

        return;
    }

    if (outcome == ZKL_FULL && ahead <= gsim_max_queue) {
        gsim_violation("%s is told that the queue is full, with %u ahead of %s",
                       u->name, ahead, own->path);
    }

    if (outcome == ZKL_TIMED_OUT && ahead == 0
        && (u->wait == 0 || gsim_now > gsim_quiet + 4 * GSIM_S))
    {
        gsim_violation("%s is told that it is taken, but none was ahead of "
                       "%s", u->name, own->path);
    }

    if (outcome == ZKL_CONFLICT && !gsim_user_clashes(own, early)) {
        gsim_violation("%s is told of another use, but none was ahead of %s",
                       u->name, own->path);
    }

    if (gsim_user_first(u, own) < gsim_now - 4 * GSIM_S
        && gsim_now > gsim_quiet + 8 * GSIM_S && !gsim_user_missing(u))
    {
        gsim_violation("%s is refused by %d, but %s was first for long",
                       u->name, outcome, own->path);
    }
}


/*
 * Whether a claim of another use was ahead when own was made; the transaction
 * that made own may have deleted that claim.  A child that was made by name
 * comes before own, also if made later.  wait: other permits do not count.
 */

static int
gsim_user_clashes(gsim_node_t *own, int wait)
{
    gsim_node_t  *node;
    zkl_child_t   child, is;

    (void) gsim_tree_child(own, &is);

    for (node = own->parent->children; node; node = node->sibling) {
        if ((node->created <= own->created || node->planted)
            && node->deleted >= own->created
            && gsim_tree_child(node, &child) == 0
            && (child.seq < is.seq || node->planted) && child.mode != is.mode
            && (child.mode > ZKL_WRITE || is.mode > ZKL_WRITE)
            && !(wait && zkl_mode_base(child.mode) == ZKL_SEMAPHORE
                 && zkl_mode_base(is.mode) == ZKL_SEMAPHORE))
        {
            return 1;
        }
    }

    return 0;
}


/* Since when no claim is ahead of own; GSIM_NEVER: a claim is. */

static int64_t
gsim_user_first(gsim_user_t *u, gsim_node_t *own)
{
    int64_t       since;
    gsim_node_t  *node;

    since = own->created_at;

    for (node = own->parent->children; node; node = node->sibling) {

        if (!gsim_user_before(node, u->token.seq)) {
            continue;
        }

        if (node->deleted == GSIM_NEVER) {
            return GSIM_NEVER;
        }

        since = ngx_max(since, node->deleted_at);
    }

    return since;
}


unsigned
gsim_user_ahead(gsim_user_t *u, gsim_node_t *own)
{
    unsigned      ahead;
    gsim_node_t  *node;

    /* a foreign writer may have made a reader ahead of own since then */

    for (ahead = 0, node = own->parent->children; node; node = node->sibling) {
        if ((node->created <= own->created || node->origin == NULL)
            && node->deleted > own->created
            && gsim_user_before(node, u->token.seq))
        {
            ahead++;
        }
    }

    return ahead;
}


static int
gsim_user_before(gsim_node_t *node, int64_t seq)
{
    zkl_child_t  child;

    return gsim_tree_child(node, &child) == 0
           && (child.seq < seq || node->planted);
}


/*
 * Whether a worker that lists the lock at any time until now finds the node
 * before seq.  A list does not tell who gave a number: once the parent has
 * given that number, too, a child that was made by name has the number's place.
 */

static int
gsim_user_listed_before(gsim_node_t *node, int64_t seq)
{
    zkl_child_t  child;

    return gsim_tree_child(node, &child) == 0
           && (child.seq < seq
               || (node->planted
                   && (child.seq == seq
                       || child.seq >= node->parent->counter)));
}


static void
gsim_user_granted(gsim_user_t *u, zkl_claim_t *claim)
{
    int64_t       since;
    char          path[GSIM_PATH];
    gsim_node_t  *node;

    u->token.id = claim->id;
    u->token.seq = claim->entry.seq;
    u->token.mode = claim->entry.mode;

    gsim_user_fifo(u, claim->entry.seq);

    if (gsim_chance(20)) {

        /* the socket says that the user has left */

        gsim_say("%s has left", u->name);
        gsim_count.left++;

        gsim_user_idle(u);
        zkl_claim_abandon(claim);
        return;
    }

    if (!u->binds && gsim_chance(20)) {

        /* the answer could not be written */

        gsim_say("%s was not told", u->name);
        gsim_count.unseen++;

        gsim_user_idle(u);
        zkl_claim_undelivered(claim);
        return;
    }

    gsim_user_path(u, path);

    node = gsim_user_node(u);

    if (u->durable && node != NULL && node->owner != 0) {
        gsim_violation("%s is granted what is not durable", u->name);
    }

    since = u->process->stood ? u->process->turned : gsim_now;

    u->hold = gsim_oracle_held(u->lock, u->mode, path,
                               zkl_fencing_token(claim->czxid, claim->index),
                               (claim->told & ZKL_TOLD_SURE) ? gsim_now
                               : u->binds && !u->leased ? GSIM_NEVER
                               : since + (u->ttl - 1) * GSIM_MS, u->name);

    /* another user of the key may have released the claim before the answer */

    if (u->hold->lost && !u->hold->released
        && u->hold->node->deleted_at < since)
    {
        gsim_violation("%s is told to hold %s, which is gone", u->name,
                       path);
    }

    gsim_count.grants++;

    if (u->binds) {
        gsim_count.bound++;
        gsim_user_bound(u, claim);
    }

    if (gsim_oracle_ahead(gsim_paths[u->lock], u->mode, u->token.seq)) {
        gsim_count.handoffs++;
    }

    gsim_user_think(u);
}


void
gsim_user_think(gsim_user_t *u)
{
    u->state = GSIM_HOLDS;
    u->tries = (int) gsim_below(3);

    u->cuts = 0;
    u->mine = 1;

    if (gsim_rich && !u->shares && !u->keyed && !u->async && !u->binds
        && u->nparts == 0 && !u->met && !u->forgets && !u->hold->doubt
        && !u->hold->crowd && u->ttl >= 4000 && gsim_chance(4))
    {
        gsim_crowd_join(u);
    }

    gsim_user_next_held(u, gsim_between(0, gsim_chance(2) ? 50 : 2000)
                           * GSIM_MS + gsim_below(1000));
}


void
gsim_user_next_held(gsim_user_t *u, int64_t us)
{
    int64_t  left;

    left = u->hold->until - gsim_now;

    /* some renewals come at the last moment */

    if (gsim_chance(4) && left > 0 && left < 20 * GSIM_S) {
        us = ngx_max(left - gsim_between(200, 20 * GSIM_MS), 0);
    }

    gsim_user_next(u, us);
}


/* No claim passes a waiter that is ahead in the queue. */

static void
gsim_user_fifo(gsim_user_t *u, int64_t seq)
{
    int           i;
    char          path[GSIM_PATH];
    gsim_node_t  *node, *own;
    gsim_user_t  *other;

    gsim_user_path(u, path);
    own = gsim_tree_find(path, gsim_zxid);

    for (i = 0; i < gsim_nusers && own != NULL; i++) {
        other = &gsim_users[i];

        gsim_several_sync(other);

        if (other == u || other->claim == NULL || other->lock != u->lock
            || other->process->in_turn
            || other->claim->handler == NULL
            || zkl_claim_expired(other->claim)
            || other->claim->state != ZKL_WAIT
            || other->claim->entry.seq >= seq
            || !gsim_oracle_ahead(gsim_paths[u->lock], u->mode,
                                  other->claim->entry.seq + 1)
            || (u->mode == ZKL_READ && other->mode == ZKL_READ)
            || (u->mode == ZKL_MEMBER && other->mode == ZKL_MEMBER))
        {
            continue;
        }

        other->token.id = other->claim->id;
        other->token.seq = other->claim->entry.seq;
        other->token.mode = other->mode;

        gsim_user_path(other, path);
        node = gsim_tree_find(path, gsim_zxid);

        if (node != NULL && node->parent == own->parent) {

            if (zkl_mode_base(u->mode) == ZKL_SEMAPHORE
                && u->mode == other->mode)
            {
                continue;
            }

            gsim_violation("%s passes %s, which waits with %s", u->name,
                           other->name, path);
        }
    }
}


static void
gsim_user_leave(void *data)
{
    gsim_user_t *u = data;

    zkl_claim_t  *claim;

    if (u->claim == NULL) {
        return;
    }

    gsim_say("%s leaves", u->name);
    gsim_count.left++;

    claim = u->claim;
    u->claim = NULL;

    if (u->keyed && gsim_chance(2)) {

        /* the user repeats, at any gateway */

        u->came = 1;
        gsim_user_next(u, gsim_between(1, 500) * GSIM_MS);

    } else {
        gsim_user_idle(u);
    }

    zkl_claim_abandon(claim);
}


void
gsim_user_path(gsim_user_t *u, char *path)
{
    size_t  len;

    len = (size_t) sprintf(path, "%s/", gsim_paths[u->lock]);
    len += zkl_name_claim_write(path + len, &u->token.id, u->token.mode,
                                u->token.seq);
    path[len] = '\0';
}


/* A worker that stops without a TERM signal has answered all requests. */

void
gsim_user_process_left(gsim_process_t *p)
{
    int           i;
    gsim_user_t  *u;

    for (i = 0; i < gsim_nusers; i++) {
        u = &gsim_users[i];

        if ((u->process == p && (u->claim != NULL || u->call != NULL))
            || (u->bound != NULL && u->binder == p))
        {
            gsim_violation("%s waits at a worker that stops", u->name);
        }
    }

    if (gsim_crowd_waits(p)) {
        gsim_violation("a sharer waits at a worker that stops");
    }
}


int
gsim_user_streams(gsim_process_t *p)
{
    int  i;

    for (i = 0; i < gsim_nusers; i++) {
        if (gsim_users[i].bound != NULL && gsim_users[i].binder == p) {
            return 1;
        }
    }

    return 0;
}


/* The process is dead: cuts the users' connections. */

void
gsim_user_process_gone(gsim_process_t *p)
{
    int           i;
    gsim_user_t  *u;

    gsim_crowd_gone(p);

    for (i = 0; i < gsim_nusers; i++) {
        u = &gsim_users[i];

        if (u->bound != NULL && u->binder == p) {
            gsim_user_cut_off(u);
        }

        if (u->process != p || (u->claim == NULL && u->call == NULL)) {
            continue;
        }

        gsim_say("%s has lost the connection", u->name);

        if (u->claim != NULL && !u->keyed) {
            u->claim = NULL;
            gsim_user_idle(u);
            continue;
        }

        u->claim = NULL;
        u->call = NULL;

        gsim_user_next(u, gsim_between(1, 300) * GSIM_MS);
    }
}


/* Checks that each waiting user is answered in time. */

static void
gsim_user_check_event(void *data, uint64_t tag)
{
    int  i;

    (void) data;
    (void) tag;

    for (i = 0; i < gsim_nusers; i++) {
        gsim_several_sync(&gsim_users[i]);

        if (gsim_users[i].claim != NULL || gsim_users[i].call != NULL) {
            gsim_user_check_one(&gsim_users[i]);
        }

        if (gsim_users[i].bound != NULL) {
            gsim_user_check_bound(&gsim_users[i]);
        }

        if (gsim_users[i].state == GSIM_HOLDS) {
            gsim_user_check_lease(&gsim_users[i]);
            gsim_user_check_durable(&gsim_users[i]);
        }
    }

    gsim_at(gsim_now + GSIM_CHECK, gsim_user_check_event, NULL, 0);
}


/*
 * While no fault is felt, a claim is gone soon after the end of the lease that
 * a renewal has told, also a shorter lease; or, if the gateway died, when that
 * time has passed anew after another gateway took the claim over.
 */

static void
gsim_user_check_lease(gsim_user_t *u)
{
    gsim_hold_t  *hold;

    hold = u->hold;

    if (hold->ends == 0 || gsim_now < hold->ends + GSIM_AFTER
        || gsim_now < gsim_oracle_taken(hold) + GSIM_AFTER
        || gsim_now < gsim_quiet + 4 * GSIM_S || hold->session->over)
    {
        return;
    }

    if (hold->node->deleted == GSIM_NEVER) {
        gsim_violation("%s is there, but its lease has been over for %d ms",
                       hold->path, (int) ((gsim_now - hold->ends) / GSIM_MS));
    }
}


/*
 * While no fault is felt, a claim that is held for long is durable.  An async
 * or keyed claim may be told as held by a gateway for which a child that was
 * made by name is behind the claim, while the child blocks the claim at its
 * worker, which grants the claim when the child is gone.
 */

static void
gsim_user_check_durable(gsim_user_t *u)
{
    gsim_hold_t  *hold;

    hold = u->hold;

    if (u->bound == NULL && !u->met && u->nparts == 0 && gsim_oracle_valid(hold)
        && hold->node->deleted == GSIM_NEVER && hold->node->owner != 0
        && hold->session->last == hold->session->first
        && hold->session->last->state == GSIM_RUNS
        && gsim_now > hold->told + GSIM_LASTING
        && gsim_now > gsim_quiet + GSIM_LASTING
        && !((u->async || u->keyed)
             && gsim_user_planted(hold->node, gsim_now - GSIM_LASTING)))
    {
        gsim_violation("%s holds %s, which is not durable", u->name,
                       hold->path);
    }
}


int
gsim_user_planted(gsim_node_t *node, int64_t since)
{
    gsim_node_t  *child;

    for (child = node->parent->children; child; child = child->sibling) {

        if (child->planted
            && (child->deleted == GSIM_NEVER || child->deleted_at > since))
        {
            return 1;
        }
    }

    return 0;
}


static void
gsim_user_check_one(gsim_user_t *u)
{
    gsim_process_t  *p;

    p = u->process;

    if (p->ending) {
        /* the worker is freeing the claims */
        return;
    }

    if (gsim_stands(p) || p->in_turn) {
        u->must += GSIM_CHECK;
    }

    if (gsim_now > u->must) {
        gsim_violation("%s is not answered, in state %d", u->name,
                       u->claim ? (int) u->claim->state : -1);
    }

    if (u->claim != NULL && !gsim_stands(p) && !p->in_turn) {
        gsim_user_check_wait(u);
        gsim_user_check_key(u);
    }

    if (u->claim == NULL || u->claim->state != ZKL_WAIT
        || gsim_stands(p) || p->in_turn
        || gsim_now < gsim_quiet + 4 * GSIM_S
        || gsim_oracle_ahead(gsim_paths[u->lock], u->mode,
                             u->claim->entry.seq)
        || gsim_user_missing(u))
    {
        u->first = 0;
        return;
    }

    if (u->first == 0) {
        u->first = gsim_now;
    }

    if (gsim_now - u->first > GSIM_PROMPT) {
        gsim_violation("%s is first in the queue of %s, and waits for %d ms",
                       u->name, gsim_paths[u->lock],
                       (int) ((gsim_now - u->first) / GSIM_MS));
    }
}


/*
 * While no fault is felt, a waiter is answered at the end of the wait, and has
 * no more claims ahead than the queue may have.
 */

static void
gsim_user_check_wait(gsim_user_t *u)
{
    unsigned      ahead;
    gsim_node_t  *own, *node;

    if (gsim_now < gsim_quiet + 4 * GSIM_S || u->nparts != 0
        || gsim_now < u->acquired + 2 * GSIM_S
        || u->claim->handler == NULL)
    {
        return;
    }

    if (u->claim->time != ZKL_TIME_ENDLESS
        && gsim_now > u->acquired + u->wait * GSIM_MS + 2 * GSIM_S)
    {
        gsim_violation("%s waits for longer than %d ms", u->name,
                       (int) u->wait);
    }

    /* a claim that another gateway may have told is not refused any more */

    if (u->claim->state != ZKL_WAIT || u->keyed || u->async) {
        return;
    }

    u->token.id = u->claim->id;
    u->token.seq = u->claim->entry.seq;
    u->token.mode = u->claim->entry.mode;

    own = gsim_user_node(u);

    if (own == NULL || gsim_now < own->created_at + 2 * GSIM_S) {

        /* or the claim has just queued again */
        return;
    }

    /* a foreign writer may make a reader ahead of the claim, later */

    for (ahead = 0, node = own->parent->children; node; node = node->sibling) {
        ahead += (node->deleted == GSIM_NEVER
                  && (node->created <= own->created || node->origin != NULL)
                  && gsim_user_listed_before(node, u->token.seq));
    }

    if (ahead > gsim_max_queue) {
        gsim_violation("%s waits with %s, behind %u", u->name, own->path,
                       ahead);
    }
}


/* Of the claims of a key only the first goes on to wait. */

static void
gsim_user_check_key(gsim_user_t *u)
{
    gsim_node_t  *own, *node;
    zkl_child_t   child;

    if (!u->keyed || !u->claim->single || u->claim->state != ZKL_WAIT) {
        return;
    }

    u->token.id = u->claim->id;
    u->token.seq = u->claim->entry.seq;
    u->token.mode = u->claim->entry.mode;

    own = gsim_user_node(u);

    if (own == NULL || own->deleted != GSIM_NEVER) {
        return;
    }

    for (node = own->parent->children; node != NULL; node = node->sibling) {

        if (node->deleted == GSIM_NEVER
            && gsim_user_before(node, u->token.seq)
            && gsim_tree_child(node, &child) == 0
            && child.has_id
            && memcmp(child.id.random, u->token.id.random, ZKL_KEY) == 0)
        {
            gsim_violation("%s waits with %s, but %s has the same key",
                           u->name, own->path, node->path);
        }
    }
}
