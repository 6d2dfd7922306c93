
/*
 * Clients that look: at the claims of a lock, at the names of the locks, and
 * that follow a lock.
 *
 * What a look tells was so at some moment since the client asked.  A follower
 * is told of each change soon, while no fault is felt.
 */


#include <stdio.h>
#include <stdlib.h>

#include "core/follow.h"
#include "core/names.h"

#include "gsim_user.h"


#define GSIM_LOOKERS        6
#define GSIM_CLAIMS         128         /* of a lock */

/* how soon a change is told to followers */
#define GSIM_NEWS           (600 * GSIM_MS)


typedef struct {
    int                          index;
    uint64_t                     tag;
    gsim_process_t              *process;       /* NULL: the client is idle */
    zkl_call_t                  *call;
    zkl_names_t                 *names;
    zkl_follow_t                 follow;
    zkl_call_e                   type;
    int                          lock;
    int64_t                      since;         /* zxid */
    unsigned                     serial;        /* of the connection */
    int64_t                      at;
    int64_t                      must;
    int64_t                      until;         /* follows; or 0 */
    int64_t                      told;          /* of a change */
} gsim_looker_t;


static gsim_looker_t  gsim_lookers[GSIM_LOOKERS];
static int64_t        gsim_lookers_until;
static int64_t        gsim_lookers_every;


static void gsim_look_next(gsim_looker_t *l, int64_t us);
static void gsim_look_event(void *data, uint64_t tag);
static void gsim_look_act(void *data);
static void gsim_look_ask(gsim_looker_t *l);
static void gsim_look_names(gsim_looker_t *l);
static void gsim_look_ended(gsim_looker_t *l);
static void gsim_look_told(zkl_call_t *call, zkl_answer_e answer);
static void gsim_look_named(zkl_names_t *names, zkl_answer_e answer);
static void gsim_look_news(zkl_follow_t *follow);
static int gsim_look_failed(gsim_looker_t *l, zkl_answer_e answer);
static void gsim_look_compare(gsim_looker_t *l, zkl_call_t *call,
    zkl_answer_e answer);
static int gsim_look_true(gsim_looker_t *l, zkl_call_t *call, int64_t zxid);
static int gsim_look_counts(int lock, int64_t zxid, ngx_uint_t *held);
static int gsim_look_by_seq(const void *one, const void *two);
static unsigned gsim_look_serial(gsim_looker_t *l);
static void gsim_look_unfollow(void *data);
static void gsim_look_check(void *data, uint64_t tag);
static void gsim_look_check_news(gsim_looker_t *l);


void
gsim_look_reset(int64_t until)
{
    int  i;

    memset(gsim_lookers, 0, sizeof(gsim_lookers));

    gsim_lookers_until = until;
    gsim_lookers_every = gsim_between(5, gsim_chance(2) ? 100 : 1500)
                         * GSIM_MS;

    for (i = 0; i < GSIM_LOOKERS; i++) {
        gsim_lookers[i].index = i;
        gsim_look_next(&gsim_lookers[i], gsim_between(10, 4000) * GSIM_MS);
    }

    gsim_at(gsim_now + 50 * GSIM_MS, gsim_look_check, NULL, 0);
}


int
gsim_look_busy(void)
{
    int  i;

    for (i = 0; i < GSIM_LOOKERS; i++) {
        if (gsim_lookers[i].process != NULL) {
            return 1;
        }
    }

    return 0;
}


static void
gsim_look_next(gsim_looker_t *l, int64_t us)
{
    gsim_at(gsim_now + us, gsim_look_event, l, ++l->tag);
}


static void
gsim_look_event(void *data, uint64_t tag)
{
    gsim_looker_t *l = data;

    if (tag != l->tag || l->call != NULL || l->names != NULL) {
        return;
    }

    if (l->process != NULL && (gsim_now > l->until
                               || l->process->state != GSIM_RUNS))
    {
        /* has followed for long enough */

        if (!gsim_turn(l->process, gsim_look_unfollow, l)) {
            gsim_look_next(l, 5 * GSIM_MS);
        }

        return;
    }

    if (l->process == NULL) {

        if (gsim_now >= gsim_lookers_until) {
            return;
        }

        l->process = gsim_gateway_pick((int) gsim_below(GSIM_GATEWAYS));
        l->lock = (int) gsim_below(gsim_chance(2) ? 1 : GSIM_LOCKS);
        l->type = (zkl_call_e) gsim_between(ZKL_LIST, ZKL_HOLDERS);
        l->until = 0;
    }

    if (l->process == NULL || !gsim_turn(l->process, gsim_look_act, l)) {

        if (l->until == 0) {
            l->process = NULL;
        }

        gsim_look_next(l, gsim_between(5, 100) * GSIM_MS);
    }
}


/* Further clients ask in the same turn. */

static void
gsim_look_act(void *data)
{
    gsim_looker_t *l = data;

    int              i;
    gsim_looker_t   *other;

    gsim_look_ask(l);

    for (i = (int) gsim_below(3); i > 0 && l->process != NULL; i--) {
        other = &gsim_lookers[gsim_below(GSIM_LOOKERS)];

        if (other->process != NULL || gsim_now >= gsim_lookers_until) {
            continue;
        }

        other->process = l->process;
        other->lock = gsim_chance(4) ? (int) gsim_below(GSIM_LOCKS) : l->lock;
        other->type = gsim_chance(2) ? l->type
                      : (zkl_call_e) gsim_between(ZKL_LIST, ZKL_HOLDERS);
        other->until = 0;

        gsim_look_ask(other);
    }
}


static void
gsim_look_ask(gsim_looker_t *l)
{
    zkl_slot_t     *slot;
    ngx_str_t       path;
    zkl_question_t  question;

    gsim_look_next(l, 300 * GSIM_MS);   /* in case the process dies */

    l->at = gsim_now;
    l->since = gsim_zxid;
    l->must = gsim_user_must(0);
    l->serial = gsim_look_serial(l);

    path.data = (u_char *) gsim_paths[l->lock];
    path.len = strlen(gsim_paths[l->lock]);

    if (l->until == 0 && gsim_chance(4)) {
        l->follow.handler = gsim_look_news;
        l->follow.followed = NULL;

        if (zkl_follow(l->process->worker, &path, &l->follow) == NGX_OK) {
            l->until = gsim_now + gsim_between(100, 8000) * GSIM_MS;
            l->told = gsim_now;
        }
    }

    if (l->until == 0 && gsim_chance(6)) {
        gsim_look_names(l);
        return;
    }

    if (l->type >= ZKL_COUNT) {

        /* need not be fresh */

        slot = l->process->worker->zone->own;
        l->since = slot->keyed ? gsim_client_seen(l->process, slot->key.id) : 1;
    }

    ngx_memzero(&question, sizeof(zkl_question_t));

    question.type = l->type;
    question.path = &path;
    question.timeout = gsim_timeout;
    question.handler = gsim_look_told;
    question.data = l;

    gsim_say("looker %d asks %d of %s at %llx", l->index, l->type,
             gsim_paths[l->lock], (long long) l->since);

    gsim_count.looks++;

    l->call = zkl_call_start(l->process->worker, &question);

    if (l->call == NULL) {

        if (!gsim_lacks) {
            gsim_violation("a look is refused");
        }

        gsim_look_ended(l);
    }
}


static void
gsim_look_names(gsim_looker_t *l)
{
    zkl_names_question_t  question;

    ngx_memzero(&question, sizeof(zkl_names_question_t));

    ngx_str_set(&question.root, "/locks");
    question.limit = 100;
    question.holders = gsim_chance(2);
    question.sort = (zkl_names_sort_e) gsim_below(3);
    question.timeout = gsim_timeout;
    question.handler = gsim_look_named;
    question.data = l;

    gsim_count.looks++;

    l->names = zkl_names(l->process->worker, &question);

    if (l->names == NULL) {
        gsim_look_ended(l);
    }
}


/* After an answer: idle, or a follower that asks again with the next news. */

static void
gsim_look_ended(gsim_looker_t *l)
{
    if (l->until != 0 && gsim_now <= l->until) {
        gsim_look_next(l, l->until - gsim_now + 1);
        return;
    }

    if (l->until == 0) {
        l->process = NULL;
        gsim_look_next(l, gsim_below(gsim_lookers_every));

    } else {
        gsim_look_next(l, 0);
    }
}


static void
gsim_look_told(zkl_call_t *call, zkl_answer_e answer)
{
    gsim_looker_t  *l;

    l = call->data;
    l->call = NULL;

    gsim_say("looker %d is told: %d, %d claims", l->index, answer,
             (int) call->total);

    if (!gsim_look_failed(l, answer)) {
        gsim_look_compare(l, call, answer);
    }

    gsim_look_ended(l);
}


static int
gsim_look_failed(gsim_looker_t *l, zkl_answer_e answer)
{
    if (answer == ZKL_CALL_OK || answer == ZKL_CALL_FREE) {
        return 0;
    }

    if ((answer == ZKL_CALL_FAILED && gsim_lacks)
        || (answer == ZKL_CALL_UNREACHABLE
            && (gsim_now < gsim_quiet + 2 * GSIM_S || l->type == ZKL_HOLDER)))
    {
        return 1;
    }

    gsim_violation("looker %d asked for %d, and is told %d", l->index, l->type,
                   answer);
}


/* The claims were so at a moment since the client asked. */

static void
gsim_look_compare(gsim_looker_t *l, zkl_call_t *call, zkl_answer_e answer)
{
    size_t   i;
    int64_t  zxid;

    if (l->type == ZKL_HOLDER || gsim_look_serial(l) != l->serial) {
        return;
    }

    if (answer == ZKL_CALL_FREE) {
        call->total = 0;
        call->holders = 0;
        call->nknown = 0;
        call->ninfos = 0;
    }

    if (gsim_look_true(l, call, l->since)) {
        return;
    }

    for (i = gsim_tree_ntxns(); i > 0; i--) {
        zxid = gsim_tree_txn(i - 1)->zxid;

        if (zxid <= l->since) {
            break;
        }

        if (gsim_look_true(l, call, zxid)) {
            return;
        }
    }

    gsim_violation("looker %d, who asked for %d %d us ago, is told of %d "
                   "claims of %s, %d held, which was never so", l->index,
                   l->type, (int) (gsim_now - l->at), (int) call->total,
                   gsim_paths[l->lock], (int) call->holders);
}


static int
gsim_look_true(gsim_looker_t *l, zkl_call_t *call, int64_t zxid)
{
    int         n, gone;
    char        path[GSIM_PATH];
    ngx_uint_t  i, held;

    n = gsim_look_counts(l->lock, zxid, &held);

    /* claims that were gone when they were to be read do not count */

    gone = (l->type == ZKL_COUNT) ? 0 : (int) (call->ninfos - call->nknown);

    if ((int) call->total != n - gone
        || (gone == 0 && held != 0 && call->holders != held))
    {
        return 0;
    }

    for (i = 0; i < call->nknown; i++) {
        snprintf(path, GSIM_PATH, "%s/%.*s", gsim_paths[l->lock],
                 (int) call->infos[i].name.len,
                 (char *) call->infos[i].name.data);

        if (gsim_tree_find(path, zxid) == NULL) {
            return 0;
        }
    }

    return 1;
}


/*
 * How many claims the lock has at zxid, and how many of these hold it; 0: two
 * claims have the same number, so that the order is not known.
 */

static int
gsim_look_counts(int lock, int64_t zxid, ngx_uint_t *held)
{
    int            i, n;
    gsim_node_t   *parent, *node;
    zkl_child_t    children[GSIM_CLAIMS];
    zkl_holders_t  holders;

    *held = 0;
    parent = gsim_tree_find(gsim_paths[lock], zxid);
    n = 0;

    for (node = parent ? parent->children : NULL; node; node = node->sibling) {
        n += (node->created <= zxid && node->deleted > zxid && n < GSIM_CLAIMS
              && gsim_tree_child(node, &children[n])
                 == 0);
    }

    qsort(children, (size_t) n, sizeof(zkl_child_t), gsim_look_by_seq);

    memset(&holders, 0, sizeof(zkl_holders_t));

    for (i = 0; i < n; i++) {

        if (i > 0 && children[i].seq == children[i - 1].seq) {
            *held = 0;
            return n;
        }

        *held += (ngx_uint_t) zkl_view_count(&holders, children[i].mode);
    }

    return n;
}


static int
gsim_look_by_seq(const void *one, const void *two)
{
    const zkl_child_t  *a = one, *b = two;

    return (a->seq > b->seq) - (a->seq < b->seq);
}


static void
gsim_look_named(zkl_names_t *names, zkl_answer_e answer)
{
    gsim_looker_t  *l;

    l = names->asked.data;
    l->names = NULL;

    if (!gsim_look_failed(l, answer) && !names->partial
        && (names->nfound > GSIM_LOCKS || names->more))
    {
        gsim_violation("looker %d is told of %d locks", l->index,
                       (int) names->nfound);
    }

    gsim_look_ended(l);
}


static void
gsim_look_news(zkl_follow_t *follow)
{
    gsim_looker_t  *l;

    l = ngx_queue_data(follow, gsim_looker_t, follow);
    l->told = gsim_now;

    gsim_count.news++;

    if (l->call == NULL && l->names == NULL && l->process->worker != NULL) {
        gsim_look_ask(l);
    }
}


static void
gsim_look_unfollow(void *data)
{
    gsim_looker_t *l = data;

    if (l->process != NULL) {
        zkl_unfollow(&l->follow);
    }

    l->until = 0;
    l->process = NULL;
    gsim_look_next(l, gsim_below(gsim_lookers_every));
}


static unsigned
gsim_look_serial(gsim_looker_t *l)
{
    zkl_slot_t      *slot;
    gsim_session_t  *session;

    if (l->process->worker == NULL) {
        return 0;
    }

    slot = l->process->worker->zone->own;
    session = slot->keyed ? gsim_server_session(slot->key.id) : NULL;

    return session ? session->serial : 0;
}


int
gsim_look_holds(gsim_process_t *p)
{
    int  i;

    for (i = 0; i < GSIM_LOOKERS; i++) {
        if (gsim_lookers[i].process == p) {
            return 1;
        }
    }

    return 0;
}


/* The process is terminated: the clients' requests end. */

void
gsim_look_leave(gsim_process_t *p)
{
    int             i;
    gsim_looker_t  *l;

    for (i = 0; i < GSIM_LOOKERS; i++) {
        l = &gsim_lookers[i];

        if (l->process != p) {
            continue;
        }

        if (l->call != NULL) {
            zkl_call_leave(l->call);
            l->call = NULL;
        }

        if (l->names != NULL) {
            zkl_names_leave(l->names);
            l->names = NULL;
        }

        if (l->until != 0) {
            zkl_unfollow(&l->follow);
        }

        l->until = 0;
        l->process = NULL;
        gsim_look_next(l, gsim_below(gsim_lookers_every));
    }
}


void
gsim_look_gone(gsim_process_t *p)
{
    int             i;
    gsim_looker_t  *l;

    for (i = 0; i < GSIM_LOOKERS; i++) {
        l = &gsim_lookers[i];

        if (l->process == p) {
            l->call = NULL;
            l->names = NULL;
            l->until = 0;
            l->process = NULL;
            gsim_look_next(l, gsim_below(gsim_lookers_every));
        }
    }
}


/* Each client is answered in time, and told of changes. */

static void
gsim_look_check(void *data, uint64_t tag)
{
    int              i;
    gsim_looker_t   *l;

    (void) data;
    (void) tag;

    for (i = 0; i < GSIM_LOOKERS; i++) {
        l = &gsim_lookers[i];

        if (l->process == NULL || l->process->ending) {
            continue;
        }

        if (gsim_stands(l->process) || l->process->in_turn) {
            l->must += 50 * GSIM_MS;
            l->told = gsim_now;
            continue;
        }

        if ((l->call != NULL || l->names != NULL) && gsim_now > l->must) {
            gsim_violation("looker %d is not answered", l->index);
        }

        if (l->until != 0) {
            gsim_look_check_news(l);
        }
    }

    gsim_at(gsim_now + 50 * GSIM_MS, gsim_look_check, NULL, 0);
}


static void
gsim_look_check_news(gsim_looker_t *l)
{
    int64_t       at;
    gsim_node_t  *parent, *node;

    parent = gsim_tree_find(gsim_paths[l->lock], gsim_zxid);

    if (gsim_now < gsim_quiet + 4 * GSIM_S || parent == NULL) {
        return;
    }

    at = 0;

    for (node = parent->children; node != NULL; node = node->sibling) {
        at = ngx_max(at, node->created_at);

        if (node->deleted != GSIM_NEVER) {
            at = ngx_max(at, node->deleted_at);
        }
    }

    if (l->told < at && gsim_now > at + GSIM_NEWS) {
        gsim_violation("looker %d is not told that the claims of %s have "
                       "changed %d ms ago", l->index, gsim_paths[l->lock],
                       (int) ((gsim_now - at) / GSIM_MS));
    }
}
