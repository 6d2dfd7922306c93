
/*
 * Calls with a token, at any gateway: inspect, renew, hold, share, release,
 * break and revoke.
 *
 * The user's expectation is recorded when a call begins: a release or a share
 * counts from that moment, before the answer; a further hold counts when the
 * answer says so.  A user that releases a held claim is not told that the claim
 * was gone before; and a user that releases a claim that is gone, perhaps while
 * another user holds the lock, is not told that the release succeeded.
 */


#include "gsim_user.h"


/* what fifteen round trips to a server that lags by 90 ms need, milliseconds */
#define GSIM_OVERTAKEN      1500


static void gsim_user_counts_on(gsim_user_t *u);
static void gsim_user_cancels(gsim_user_t *u);
static void gsim_user_uncount(gsim_user_t *u);
static void gsim_user_ask_act(void *data);
static void gsim_user_name(gsim_user_t *u);
static void gsim_user_told(zkl_call_t *call, zkl_answer_e answer);
static void gsim_user_polled(gsim_user_t *u, zkl_call_t *call,
    zkl_answer_e answer);
static void gsim_user_held(gsim_user_t *u, zkl_call_t *call,
    zkl_answer_e answer);
static void gsim_user_told_held(gsim_user_t *u, zkl_call_t *call);
static void gsim_user_keeps(gsim_user_t *u);
static int gsim_user_shown(gsim_user_t *u);
static void gsim_user_told_waits(gsim_user_t *u);
static void gsim_user_fenced(gsim_user_t *u, zkl_info_t *info);
static void gsim_user_placed(gsim_user_t *u, zkl_answer_e answer);
static int gsim_user_still(gsim_user_t *u, zkl_call_t *call);
static void gsim_user_counted(gsim_user_t *u, zkl_info_t *info);
static int gsim_user_read(gsim_user_t *u);
static void gsim_user_renewed(gsim_user_t *u, zkl_info_t *info);
static void gsim_user_released(gsim_user_t *u, zkl_call_t *call,
    zkl_answer_e answer);


void
gsim_user_ask(gsim_user_t *u, zkl_call_e type)
{
    int  gateway;

    u->type = type;

    if (u->untold) {
        u->untold = 0;
        u->hold->doubt = 1;
    }

    gateway = gsim_chance(u->met && type == ZKL_RELEASE ? 1 : 3) ? !u->home
                                                                : u->home;
    u->process = gsim_gateway_pick(gateway);

    u->asked = gsim_now;
    u->must = gsim_user_must(0);

    if (u->hold != NULL) {
        u->hold->ends = 0;
        u->low = u->hold->times;
        u->high = u->hold->most;
    }

    gsim_user_counts_on(u);

    if (u->state == GSIM_POLLS && type == ZKL_RELEASE) {
        gsim_user_cancels(u);
    }

    if (gateway != u->home && u->state == GSIM_HOLDS
        && u->type != ZKL_INSPECT && gsim_chance(4)
        && u->hold->session->conn != NULL)
    {
        /* the claim's own worker loses the connection when the call comes */

        gsim_fault_answer(u->hold->session->conn->process, 20 * GSIM_MS);
    }

    if (u->process == NULL || !gsim_user_serve(u, gsim_user_ask_act)) {

        if (u->state == GSIM_HOLDS && u->hold->crowd) {
            gsim_user_uncount(u);

        } else if (type == ZKL_RELEASE && u->state == GSIM_HOLDS) {
            u->hold->times++;
        }

        gsim_user_next(u, gsim_between(5, 100) * GSIM_MS);
        return;
    }

    if (gateway != u->home && type != ZKL_INSPECT) {
        gsim_count.elsewhere++;
    }
}


/*
 * The user cancels a claim that another user of the key may wait for, at a
 * worker that may lose the connection when the claim is gone.
 */

static void
gsim_user_cancels(gsim_user_t *u)
{
    gsim_node_t     *node;
    gsim_session_t  *session;

    node = gsim_user_node(u);

    if (node == NULL) {
        return;
    }

    gsim_oracle_cancel(node);

    session = gsim_server_session(node->owner);

    if (session != NULL && session->conn != NULL && gsim_chance(2)) {
        gsim_fault_answer(session->conn->process, 5 * GSIM_MS);
    }
}


/* What the user cannot count on any more, even before the answer. */

static void
gsim_user_counts_on(gsim_user_t *u)
{
    u->sure = 0;
    u->late = 0;

    switch (u->type) {

    case ZKL_BREAK:
        u->hold->times = 1;
        u->hold->doubt = 1;
        u->hold->released = 1;
        u->state = GSIM_RELEASES;
        u->tries = 6;
        return;

    case ZKL_HOLD:

        if (u->hold->crowd) {
            gsim_crowd_counts(u->hold, 0, 1);
        }

        return;

    case ZKL_RELEASE:

        if (u->state == GSIM_HOLDS && u->hold->crowd) {
            u->mine--;
            gsim_crowd_counts(u->hold, -1, 0);
            u->hold->released |= (u->hold->times == 0);
            return;
        }

        if (u->state == GSIM_HOLDS && u->hold->times > 1) {
            u->hold->times--;
            return;
        }

        if (u->state == GSIM_HOLDS) {
            u->sure = gsim_oracle_valid(u->hold) && !u->shares
                      && !u->binds && !u->hold->doubt;
            u->late = !gsim_oracle_valid(u->hold) && !u->shares
                      && !u->hold->doubt;
            u->hold->released = 1;
        }

        if (u->state != GSIM_POLLS) {
            u->state = GSIM_RELEASES;
        }

        return;

    case ZKL_DOWNGRADE:
        u->mode = ZKL_READ;
        u->hold->mode = ZKL_READ;
        u->hold->shares = 1;
        return;

    default:
        return;
    }
}


/* The call was not made. */

static void
gsim_user_uncount(gsim_user_t *u)
{
    if (u->type == ZKL_HOLD) {
        gsim_crowd_counts(u->hold, 0, -1);

    } else if (u->type == ZKL_RELEASE) {
        u->mine++;
        gsim_crowd_counts(u->hold, 1, 0);
        u->hold->released = 0;
    }
}


/*
 * Chooses the time of a renewal, or none.  From now on the user counts on the
 * shortest lease that the answer may tell, because the answer may get lost.
 */

static void
gsim_user_name(gsim_user_t *u)
{
    int64_t  until;

    if (u->hold->until == GSIM_NEVER) {
        u->named = gsim_chance(4) ? 0 : u->ttl;
        return;
    }

    if (!u->shares && gsim_chance(3)) {
        u->ttl = gsim_between(300, 20000);
    }

    u->named = gsim_chance(4) ? 0 : u->ttl;

    if (u->named != 0 && u->named < u->least) {
        u->least = u->named;
    }

    u->hold->least = u->least;

    u->since = u->process->stood ? u->process->turned : gsim_now;

    until = u->since + ((u->named ? u->named : u->least) - 1) * GSIM_MS;

    if (until < u->hold->until) {
        u->hold->until = until;
        u->cuts = 1;
    }
}


static void
gsim_user_ask_act(void *data)
{
    gsim_user_t *u = data;

    int             renews;
    ngx_str_t       path, name;
    zkl_question_t  question;

    u->untold = (u->hold != NULL && (u->type == ZKL_HOLD
                                     || u->type == ZKL_RELEASE));

    renews = (u->type == ZKL_RENEW || u->type == ZKL_HOLD);

    if (renews) {
        gsim_user_name(u);
    }

    path.data = (u_char *) gsim_paths[u->lock];
    path.len = strlen(gsim_paths[u->lock]);

    ngx_memzero(&question, sizeof(zkl_question_t));

    question.type = u->type;
    question.path = &path;
    question.token = &u->token;

    if (u->type == ZKL_REVOKE) {
        question.token = NULL;
        question.name = &name;

        name.data = (u_char *) u->hold->node->name;
        name.len = strlen(u->hold->node->name);
    }

    question.ttl = renews ? (ngx_msec_t) u->named : 0;
    question.timeout = gsim_timeout;
    question.grace = gsim_grace;
    question.handler = gsim_user_told;
    question.data = u;

    gsim_say("%s calls: %d", u->name, u->type);

    u->calls = 1;
    u->call = zkl_call_start(u->process->worker, &question);
    u->calls = 0;

    u->must = gsim_user_must(0);

    if (u->call == NULL && gsim_lacks) {
        gsim_user_next(u, 300 * GSIM_MS);
        return;
    }

    if (u->call == NULL) {
        gsim_violation("a call is refused");
    }
}


static void
gsim_user_told(zkl_call_t *call, zkl_answer_e answer)
{
    gsim_user_t  *u;

    u = call->data;
    u->call = NULL;

    gsim_user_next(u, 300 * GSIM_MS);

    gsim_say("%s is told: %d", u->name, answer);

    if (answer == ZKL_CALL_FAILED && gsim_lacks) {
        answer = ZKL_CALL_UNREACHABLE;
    }

    if (answer != ZKL_CALL_UNREACHABLE) {
        u->untold = 0;

    } else if ((u->type <= ZKL_DOWNGRADE && u->hold != NULL
                && u->hold->session != NULL && u->hold->session->conn == NULL)
               || (gsim_timeout < GSIM_OVERTAKEN
                   && gsim_now > u->asked + ((int64_t) gsim_timeout - 1)
                                            * GSIM_MS))
    {
        /*
         * A remote request to a gateway that is gone; or others changed the
         * claim again and again, until the whole timeout was over.
         */

        gsim_count.unreachable++;

    } else {
        gsim_user_unreachable(u);
    }

    switch (u->state) {

    case GSIM_POLLS:
        gsim_user_polled(u, call, answer);
        return;

    case GSIM_HOLDS:
        gsim_user_held(u, call, answer);

        if (u->state == GSIM_HOLDS && u->hold->crowd && u->mine == 0) {
            gsim_user_idle(u);
        }

        return;

    case GSIM_RELEASES:
        gsim_user_released(u, call, answer);
        return;

    default:
        gsim_violation("gateway_sim: %s made no call, in state %d", u->name,
                       u->state);
    }
}


static void
gsim_user_polled(gsim_user_t *u, zkl_call_t *call, zkl_answer_e answer)
{
    char              path[GSIM_PATH];
    int64_t           until;
    gsim_node_t      *node;
    zkl_claim_data_t  cdata;
    zkl_info_t       *info;

    gsim_count.polls++;

    gsim_user_placed(u, answer);

    if (answer == ZKL_CALL_OK && u->type == ZKL_RELEASE) {
        node = gsim_user_node(u);

        if (node != NULL && node->deleted != GSIM_NEVER) {
            gsim_user_cancelled(u, node);
        }
    }

    if (answer == ZKL_CALL_GONE
        || (answer == ZKL_CALL_OK
            && u->type == ZKL_RELEASE))
    {
        gsim_user_idle(u);
        return;
    }

    info = &call->infos[0];

    if (answer != ZKL_CALL_OK || !info->held) {
        gsim_user_next(u, gsim_between(20, 200) * GSIM_MS);
        return;
    }

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    u->token = call->token;
    gsim_user_path(u, path);

    until = info->timed ? u->asked + ((int64_t) info->expires - 2) * GSIM_MS
                        : gsim_now;

    u->hold = gsim_oracle_held(u->lock, u->mode, path, zkl_fencing_token(
                                   cdata.czxid ? cdata.czxid : info->czxid,
                                   (ngx_uint_t) ngx_max(cdata.index, 0)),
                               until, u->name);

    if (u->hold->lost && !u->hold->released
        && u->hold->node->deleted_at < u->asked)
    {
        gsim_violation("%s is told to hold %s, which is gone", u->name,
                       path);
    }

    gsim_count.grants++;
    gsim_user_think(u);
}


static void
gsim_user_held(gsim_user_t *u, zkl_call_t *call, zkl_answer_e answer)
{
    /* a caller of REVOKE has listed the claims before, at the same worker */

    if (u->type == ZKL_REVOKE
        && (answer == ZKL_CALL_OK
            || answer == ZKL_CALL_GONE))
    {
        gsim_count.revoked++;
        gsim_user_next(u, gsim_between(1, 1500) * GSIM_MS);
        return;
    }

    switch (answer) {

    case ZKL_CALL_OK:

        if (u->type == ZKL_RELEASE && !gsim_user_still(u, call)) {
            gsim_user_idle(u);
            return;
        }

        gsim_user_told_held(u, call);
        break;

    case ZKL_CALL_WAITS:
        gsim_user_told_waits(u);
        break;

    case ZKL_CALL_GONE:

        /* another user of the key may have renewed the claim, just now */

        if (gsim_oracle_valid(u->hold) && !u->shares) {
            gsim_violation("%s is told that %s is gone, but holds it",
                           u->name, u->hold->path);
        }

        gsim_user_idle(u);
        return;

    case ZKL_CALL_UNREACHABLE:
        break;

    default:
        gsim_violation("%s holds %s, and is told %d", u->name, u->hold->path,
                       answer);
    }

    if (u->hold->ends > gsim_now && gsim_chance(4)) {

        /* waits for the end that was told, and a little longer */

        gsim_user_next(u, u->hold->ends - gsim_now + 3 * GSIM_S);
        return;
    }

    gsim_user_next_held(u, gsim_between(1, 1500) * GSIM_MS);
}


static void
gsim_user_told_held(gsim_user_t *u, zkl_call_t *call)
{
    int64_t      until;
    zkl_child_t  child;
    zkl_info_t  *info;

    info = &call->infos[0];

    if (u->hold->node->deleted_at != 0 && u->hold->node->deleted_at < u->asked)
    {
        gsim_violation("%s is told to hold %s, which is gone", u->name,
                       u->hold->path);
    }

    if (!info->held) {
        if (info->pending && gsim_user_shown(u)) {
            gsim_violation("%s is told that %s waits for its worker, but was "
                           "told to hold it", u->name,
                           u->hold->path);
        }

        gsim_user_told_waits(u);
        return;
    }

    switch (u->type) {

    case ZKL_HOLD:
        gsim_count.again++;

        if (u->met) {
            gsim_user_keeps(u);

        } else {
            u->mine++;
            gsim_crowd_counts(u->hold, 1, 0);
        }

        break;

    case ZKL_RELEASE:
        gsim_count.once_less++;

        if (u->hold->crowd) {
            gsim_crowd_counts(u->hold, 0, -1);
        }

        break;

    case ZKL_RENEW:
        gsim_count.renewals++;
        break;

    case ZKL_DOWNGRADE:
        gsim_count.shared++;

        if (gsim_tree_child(u->hold->node, &child)
            != 0
            || child.mode != ZKL_READ)
        {
            gsim_violation("%s is told that %s is shared", u->name,
                           u->hold->path);
        }

        if (gsim_chance(2)) {
            u->token = call->token;
        }

        break;

    default:
        break;
    }

    gsim_user_counted(u, info);
    gsim_user_fenced(u, info);

    /* a renewal that came too late may be told when the lease is over */

    if (u->hold->until > gsim_now && u->hold->until != GSIM_NEVER
        && (u->type == ZKL_RENEW
            || u->type == ZKL_HOLD))
    {
        gsim_user_renewed(u, info);
        return;
    }

    /* the time that a gateway tells lasts, unless the user cuts the lease */

    until = u->asked + ((int64_t) info->expires - 2) * GSIM_MS;

    if (info->timed && !u->shares && !u->cuts && !u->hold->crowd
        && gsim_oracle_valid(u->hold)
        && until > u->hold->until)
    {
        u->hold->until = until;
    }
}


/*
 * The other user of the token has released once, and does no more: what this
 * user was told to hold is not released.
 */

static void
gsim_user_keeps(gsim_user_t *u)
{
    gsim_hold_t  *hold;

    hold = u->hold;
    u->met = 0;

    if (hold->node->deleted != GSIM_NEVER && hold->until > gsim_now
        && !hold->session->over)
    {
        gsim_violation("%s is told to hold %s once more, but a release of one "
                       "hold has deleted it", u->name, hold->path);
    }

    if (!hold->lost) {
        hold->released = 0;
        hold->times = 1;
    }
}


/*
 * Whether the claim data told every gateway of the grant when the user asked: a
 * worker tells its own client of the grant before that write is done.  If the
 * claim became durable or shared since, another znode had the claim then.  The
 * data of a durable znode always tell of the grant, but the data of the znode
 * before may not: a worker that dies loses the write, and the successor makes
 * the claim durable.
 */

static int
gsim_user_shown(gsim_user_t *u)
{
    gsim_data_t       *data;
    gsim_node_t       *node;
    zkl_claim_data_t   cdata;

    node = u->hold->node;

    while (node->origin != NULL && node->created_at > u->asked) {
        node = node->origin;
    }

    data = node->data;

    while (data->before != NULL && data->before->written > u->asked) {
        data = data->before;
    }

    zkl_claim_data_read(&cdata, data->bytes, data->len);

    return zkl_call_granted(&cdata);
}


/*
 * A held claim may be told as waiting while the znode of the holder before
 * still exists, or the claim's worker has not granted the claim, or not written
 * so, so far.
 */

static void
gsim_user_told_waits(gsim_user_t *u)
{
    if (gsim_now > gsim_quiet && u->hold->told < u->asked - GSIM_S
        && !gsim_oracle_ahead(gsim_paths[u->lock], u->mode, u->token.seq)
        && !((u->async || u->keyed) && !gsim_user_shown(u)
             && gsim_user_planted(u->hold->node, u->asked)))
    {
        gsim_violation("%s is told to wait, but holds %s", u->name,
                       u->hold->path);
    }
}


/* Every gateway tells the fencing token that was told first. */

static void
gsim_user_fenced(gsim_user_t *u, zkl_info_t *info)
{
    zkl_claim_data_t  cdata;

    zkl_claim_data_read(&cdata, (char *) info->cdata.data, info->cdata.len);

    gsim_oracle_same(u->hold, zkl_fencing_token(
                         cdata.czxid ? cdata.czxid : info->czxid,
                         (ngx_uint_t) ngx_max(cdata.index, 0)),
                     u->name);
}


/*
 * A user that has left, and has come back with the key, keeps the place in the
 * queue as long as the user polls more often than the grace; unless a fault is
 * felt, the queue was too long, or the lock was used in another way.  The wait
 * of an async acquire runs out, however often the user polls.
 */

static void
gsim_user_placed(gsim_user_t *u, zkl_answer_e answer)
{
    gsim_node_t  *node;

    if (!u->came || u->shares || u->type != ZKL_INSPECT) {
        return;
    }

    if (answer != ZKL_CALL_GONE) {
        u->placed |= (answer == ZKL_CALL_WAITS || answer == ZKL_CALL_OK);
        return;
    }

    node = gsim_user_node(u);

    if (u->async && gsim_now >= u->acquired + u->wait * GSIM_MS) {
        return;
    }

    if (u->placed && !gsim_mixes
        && gsim_now > gsim_quiet + 4 * GSIM_S && node != NULL
        && gsim_user_ahead(u, node) <= gsim_max_queue
        && gsim_server_session(node->owner)->last->state == GSIM_RUNS)
    {
        gsim_violation("%s polled %s all the time, and has lost the place",
                       u->name, node->path);
    }
}


/* Whether the user still holds after a release, because of several holds. */

static int
gsim_user_still(gsim_user_t *u, zkl_call_t *call)
{
    if (call->nknown != 0 && call->infos[0].held) {
        return 1;
    }

    if (u->hold->node->deleted == GSIM_NEVER) {
        gsim_violation("%s is told that %s is released, but it is there",
                       u->name, u->hold->path);
    }

    return 0;
}


/* Checks how often the user holds the lock, according to the answer. */

static void
gsim_user_counted(gsim_user_t *u, zkl_info_t *info)
{
    int  times;

    if (u->shares || !gsim_oracle_valid(u->hold)) {
        return;
    }

    times = info->holds ? (int) info->holds : 1;

    if (u->hold->crowd) {

        if (times < u->low || times > u->high) {
            gsim_violation("%s holds %s, held %d to %d times, but is told %d",
                           u->name, u->hold->path, u->low, u->high, times);
        }

        return;
    }

    if (times < u->hold->times || (times > u->hold->times && !u->hold->doubt))
    {
        gsim_violation("%s holds %s %d times, but is told %d", u->name,
                       u->hold->path, u->hold->times, times);
    }
}


/* Whether the record of the hold has all renewals that the data tell. */

static int
gsim_user_read(gsim_user_t *u)
{
    ngx_str_t         path;
    zkl_record_t      record;
    zkl_claim_data_t  cdata;

    path.data = (u_char *) gsim_paths[u->hold->lock];
    path.len = strlen(gsim_paths[u->hold->lock]);

    if (u->hold->node->data == NULL
        || zkl_record_read(u->process->worker->zone, &u->token.id, &path,
                           &record)
           != ZKL_FOUND)
    {
        return 1;
    }

    zkl_claim_data_read(&cdata, u->hold->node->data->bytes,
                        u->hold->node->data->len);

    return record.renewals >= cdata.renewals;
}


static void
gsim_user_renewed(gsim_user_t *u, zkl_info_t *info)
{
    int      home;
    int64_t  ttl;

    ttl = info->timed ? (int64_t) info->expires : 0;

    if (u->type == ZKL_HOLD && !info->timed) {
        ttl = u->named ? u->named : u->least;
    }

    if (gsim_now + (ttl + 2) * GSIM_MS < u->since + u->named * GSIM_MS
        && !u->hold->crowd)
    {
        gsim_violation("%s renewed %s for %d ms, and is told %d", u->name,
                       u->hold->path, (int) u->named, (int) ttl);
    }

    /*
     * Another gateway may learn of a shorter lease only when the first lease is
     * over; a grant that another gateway has told first counts anew from there.
     * A user that was met may have a home other than the claim's gateway.  A
     * sibling that does not answer counts the lease anew when it has the data.
     */

    home = u->met ? u->hold->home : u->home;

    u->hold->ends = (!u->shares && !u->async && !u->keyed && info->timed
                     && !u->hold->crowd
                     && u->process->gateway->index == home
                     && gsim_user_read(u))
                    ? gsim_now + ttl * GSIM_MS : 0;

    ttl = u->named ? u->named : ttl;

    if (u->hold->crowd) {

        /* others may hold once more, for the time that their gateway knows */

        ttl = ngx_min(ttl, u->hold->least);
    }

    u->hold->until = u->since + (ttl - 1) * GSIM_MS;
}


static void
gsim_user_released(gsim_user_t *u, zkl_call_t *call, zkl_answer_e answer)
{
    switch (answer) {

    case ZKL_CALL_OK:
        gsim_count.releases++;

        if (u->late && u->hold->node->deleted != GSIM_NEVER
            && u->hold->node->deleted_at < u->asked - GSIM_LATE)
        {
            gsim_violation("%s is told OK for the release of %s, gone for "
                           "%d ms", u->name, u->hold->path,
                           (int) ((u->asked - u->hold->node->deleted_at)
                                  / GSIM_MS));
        }

        if (u->hold == NULL || !gsim_user_still(u, call)) {
            break;
        }

        /* a hold that the user was not told of counts, too */

        if (!u->hold->doubt && !u->shares) {
            gsim_violation("%s has released %s, but holds it still", u->name,
                           u->hold->path);
        }

        gsim_user_next(u, gsim_between(1, 500) * GSIM_MS);
        return;

    case ZKL_CALL_GONE:

        if (u->sure && u->hold->until > gsim_now && !u->hold->session->over) {
            gsim_violation("%s released %s once, and is told that it was gone",
                           u->name, u->hold->path);
        }

        break;

    case ZKL_CALL_WAITS:

        if (u->hold != NULL) {
            gsim_user_told_waits(u);
        }

        /* fall through */

    case ZKL_CALL_UNREACHABLE:

        if (u->tries-- > 0) {
            gsim_user_next(u, gsim_between(1, 500) * GSIM_MS);
            return;
        }

        break;

    default:
        gsim_violation("%s releases %s, and is told %d", u->name,
                       u->hold->path, answer);
    }

    gsim_user_idle(u);
}
