
/*
 * Clients that have the token of a claim that a user holds: each holds once
 * more and releases, several times, at any gateway and beside the others.
 *
 * How often a claim is held is known between two bounds, hold->times and
 * hold->most, because an answer may be lost.  A call changes a bound when it
 * begins and the other when it is answered.  Each number that a client is told
 * lies between the bounds that were right at some moment since the call began;
 * and while the lower bound is not 0, no release deletes the claim.
 */


#include "gsim_user.h"


#define GSIM_CROWD          4


typedef struct {
    int                          index;
    uint64_t                     tag;
    gsim_process_t              *process;
    zkl_call_t                  *call;
    zkl_call_e                   type;
    gsim_hold_t                 *hold;          /* NULL: idle */
    zkl_token_t                  token;
    int                          home;
    int                          mine;          /* holds */
    int                          calls;         /* still to make */
    int                          low;           /* bounds since the call */
    int                          high;
    int64_t                      at;
    int64_t                      must;
    unsigned                     asks:1;        /* the call's turn runs */
} gsim_one_t;


static gsim_one_t  gsim_ones[GSIM_CROWD];


static void gsim_crowd_event(void *data, uint64_t tag);
static void gsim_crowd_next(gsim_one_t *one, int64_t us);
static void gsim_crowd_act(void *data);
static void gsim_crowd_told(zkl_call_t *call, zkl_answer_e answer);
static void gsim_crowd_holds(gsim_one_t *one, zkl_info_t *info);


void
gsim_crowd_reset(void)
{
    int  i;

    memset(gsim_ones, 0, sizeof(gsim_ones));

    for (i = 0; i < GSIM_CROWD; i++) {
        gsim_ones[i].index = i;
    }
}


int
gsim_crowd_busy(void)
{
    int  i;

    for (i = 0; i < GSIM_CROWD; i++) {
        if (gsim_ones[i].hold != NULL) {
            return 1;
        }
    }

    return 0;
}


void
gsim_crowd_join(gsim_user_t *u)
{
    int          i;
    gsim_one_t  *one;

    for (i = 0; i < GSIM_CROWD; i++) {
        one = &gsim_ones[i];

        if (one->hold != NULL || gsim_chance(3)) {
            continue;
        }

        one->hold = u->hold;
        one->token = u->token;
        one->home = u->home;
        one->mine = 0;
        one->calls = (int) gsim_between(2, 12);
        one->call = NULL;
        one->asks = 0;

        u->hold->crowd = 1;
        u->hold->least = u->least;

        gsim_crowd_next(one, gsim_below(100 * GSIM_MS));
    }
}


void
gsim_crowd_counts(gsim_hold_t *hold, int times, int most)
{
    int          i;
    gsim_one_t  *one;

    hold->times += times;
    hold->most += most;

    gsim_user_counts(hold);

    for (i = 0; i < GSIM_CROWD; i++) {
        one = &gsim_ones[i];

        if (one->hold == hold) {
            one->low = ngx_min(one->low, hold->times);
            one->high = ngx_max(one->high, hold->most);
        }
    }
}


static void
gsim_crowd_next(gsim_one_t *one, int64_t us)
{
    gsim_at(gsim_now + us, gsim_crowd_event, one, ++one->tag);
}


static void
gsim_crowd_event(void *data, uint64_t tag)
{
    gsim_one_t *one = data;

    gsim_hold_t  *hold;

    if (tag != one->tag || one->hold == NULL) {
        return;
    }

    hold = one->hold;

    if (one->call != NULL) {

        if (gsim_stands(one->process) || one->process->in_turn) {
            one->must += 100 * GSIM_MS;
        }

        if (gsim_now > one->must) {
            gsim_violation("sharer %d of %s is not answered", one->index,
                           hold->path);
        }

        gsim_crowd_next(one, 100 * GSIM_MS);
        return;
    }

    if (one->asks && one->process->state != GSIM_DEAD) {
        one->must += 100 * GSIM_MS;
        gsim_crowd_next(one, 100 * GSIM_MS);
        return;
    }

    if (!gsim_oracle_valid(hold) || (one->calls <= 0 && one->mine == 0)) {
        one->hold = NULL;
        return;
    }

    one->calls--;

    one->type = (one->mine == 0
                 || (one->calls > 0 && one->mine < 3 && gsim_chance(2)))
                ? ZKL_HOLD : ZKL_RELEASE;

    one->process = gsim_gateway_pick(gsim_chance(2) ? one->home : !one->home);

    if (one->process == NULL || one->process->worker == NULL) {
        gsim_crowd_next(one, gsim_between(5, 100) * GSIM_MS);
        return;
    }

    one->at = gsim_now;
    one->must = gsim_user_must(0);
    one->low = hold->times;
    one->high = hold->most;
    one->asks = 1;

    /* in case the process dies */

    gsim_crowd_next(one, 100 * GSIM_MS);

    if (!gsim_turn(one->process, gsim_crowd_act, one)) {
        one->asks = 0;
        gsim_crowd_next(one, gsim_between(5, 100) * GSIM_MS);
        return;
    }

    if (gsim_chance(8)) {
        gsim_fault_answer(one->process, 5 * GSIM_MS);
    }
}


static void
gsim_crowd_act(void *data)
{
    gsim_one_t *one = data;

    int64_t          until;
    ngx_str_t        path;
    gsim_hold_t     *hold;
    zkl_question_t   question;

    hold = one->hold;

    path.data = (u_char *) gsim_paths[hold->lock];
    path.len = strlen(gsim_paths[hold->lock]);

    ngx_memzero(&question, sizeof(zkl_question_t));

    question.type = one->type;
    question.path = &path;
    question.token = &one->token;
    question.timeout = gsim_timeout;
    question.grace = gsim_grace;
    question.handler = gsim_crowd_told;
    question.data = one;

    if (one->type == ZKL_HOLD) {
        gsim_crowd_counts(hold, 0, 1);

        /* the lease counts anew, with a ttl that was named before */

        until = gsim_now + (hold->least - 1) * GSIM_MS;
        hold->until = ngx_min(hold->until, until);

    } else {
        one->mine--;
        gsim_crowd_counts(hold, -1, 0);
        hold->released |= (hold->times == 0);
    }

    gsim_say("sharer %d calls: %d, %s is held %d to %d times", one->index,
             one->type, hold->path, hold->times, hold->most);

    gsim_count.crowded++;

    one->call = zkl_call_start(one->process->worker, &question);
    one->asks = 0;

    if (one->call == NULL && !gsim_lacks) {
        gsim_violation("a call is refused");
    }
}


static void
gsim_crowd_told(zkl_call_t *call, zkl_answer_e answer)
{
    gsim_one_t   *one;
    gsim_hold_t  *hold;

    one = call->data;
    hold = one->hold;
    one->call = NULL;

    gsim_say("sharer %d is told: %d", one->index, answer);

    gsim_crowd_next(one, gsim_below(gsim_chance(2) ? 5 * GSIM_MS
                                                   : 500 * GSIM_MS));

    switch (answer) {

    case ZKL_CALL_OK:
        break;

    case ZKL_CALL_GONE:

        if (gsim_oracle_valid(hold) && one->low > 0) {
            gsim_violation("sharer %d is told that %s is gone, but it is held",
                           one->index, hold->path);
        }

        return;

    case ZKL_CALL_UNREACHABLE:
    case ZKL_CALL_WAITS:
        return;

    default:

        if (answer == ZKL_CALL_FAILED && gsim_lacks) {
            return;
        }

        gsim_violation("sharer %d holds %s, and is told %d", one->index,
                       hold->path, answer);
    }

    if (one->type == ZKL_RELEASE) {
        gsim_crowd_counts(hold, 0, -1);

        if (call->nknown != 0 && call->infos[0].held) {
            gsim_crowd_holds(one, &call->infos[0]);
        }

        return;
    }

    if (!call->infos[0].held) {
        return;
    }

    if (hold->node->deleted != GSIM_NEVER && hold->node->deleted_at < one->at) {
        gsim_violation("sharer %d is told to hold %s, which is gone",
                       one->index, hold->path);
    }

    one->mine++;
    gsim_crowd_counts(hold, 1, 0);

    if (!hold->lost) {
        hold->released = 0;
    }

    gsim_crowd_holds(one, &call->infos[0]);
}


static void
gsim_crowd_holds(gsim_one_t *one, zkl_info_t *info)
{
    int  times;

    times = info->holds ? (int) info->holds : 1;

    if (gsim_oracle_valid(one->hold)
        && (times < one->low || times > one->high))
    {
        gsim_violation("%s is held %d to %d times, but sharer %d is told %d",
                       one->hold->path, one->low, one->high, one->index,
                       times);
    }
}


void
gsim_crowd_gone(gsim_process_t *p)
{
    int  i;

    for (i = 0; i < GSIM_CROWD; i++) {
        if (gsim_ones[i].process == p) {
            gsim_ones[i].call = NULL;
            gsim_ones[i].asks = 0;
        }
    }
}


int
gsim_crowd_waits(gsim_process_t *p)
{
    int  i;

    for (i = 0; i < GSIM_CROWD; i++) {
        if (gsim_ones[i].process == p && gsim_ones[i].call != NULL) {
            return 1;
        }
    }

    return 0;
}
