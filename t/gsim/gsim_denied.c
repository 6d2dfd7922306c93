
/*
 * Clients that acquire a lock that an ACL of ZooKeeper forbids.
 *
 * Each is told so, in time.  A write that is refused may have been refused by a
 * server alone, and takes the other writes of its transaction along: all other
 * rules hold beside such clients.
 */


#define THREADED

#include <zookeeper/zookeeper.h>

#include "gsim_user.h"


#define GSIM_DENIED         "/locks/denied"
#define GSIM_STRANGERS      5

/* how soon a new worker has a session, if no fault is felt */
#define GSIM_BEGINS         (1 * GSIM_S)


typedef struct {
    gsim_process_t              *process;       /* NULL: the client is idle */
    zkl_claim_t                 *claim;
    int64_t                      must;
} gsim_denied_t;


static gsim_denied_t  gsim_strangers[GSIM_STRANGERS];
static int64_t        gsim_denied_until;
static int64_t        gsim_denied_every;


static void gsim_denied_event(void *data, uint64_t tag);
static void gsim_denied_acquire(void *data);
static void gsim_denied_answered(void *data, zkl_claim_t *claim,
    zkl_outcome_e outcome);
static int gsim_denied_begins(gsim_process_t *p);
static void gsim_denied_check(gsim_denied_t *s);


void
gsim_denied_reset(int64_t until)
{
    int  i;

    memset(gsim_strangers, 0, sizeof(gsim_strangers));

    gsim_denied_until = until;
    gsim_denied_every = gsim_between(1, gsim_chance(3) ? 20 : 1500) * GSIM_MS;

    for (i = 0; i < GSIM_STRANGERS; i++) {
        gsim_at(gsim_now + gsim_below(4 * GSIM_S), gsim_denied_event,
                &gsim_strangers[i], 0);
    }
}


int
gsim_denied_code(const char *path)
{
    return strncmp(path, GSIM_DENIED, sizeof(GSIM_DENIED) - 1) == 0 ? ZNOAUTH
                                                                    : ZOK;
}


static void
gsim_denied_event(void *data, uint64_t tag)
{
    gsim_denied_t *s = data;

    (void) tag;

    if (s->process != NULL
        && (s->process->state == GSIM_DEAD || s->process->ending))
    {
        s->process = NULL;
    }

    if (s->process != NULL) {
        gsim_denied_check(s);
        gsim_at(gsim_now + 50 * GSIM_MS, gsim_denied_event, s, 0);
        return;
    }

    if (gsim_now >= gsim_denied_until) {
        return;
    }

    s->process = gsim_gateway_pick((int) gsim_below(GSIM_GATEWAYS));

    if (s->process != NULL
        && !gsim_turn(s->process, gsim_denied_acquire, s))
    {
        s->process = NULL;
    }

    gsim_at(gsim_now + gsim_below(2 * gsim_denied_every), gsim_denied_event, s,
            0);
}


static void
gsim_denied_acquire(void *data)
{
    gsim_denied_t *s = data;

    zkl_outcome_e     outcome;
    zkl_acquire_t     acquire;
    zkl_claim_data_t  cdata;

    memset(&cdata, 0, offsetof(zkl_claim_data_t, want));
    cdata.want[0] = cdata.from[0] = cdata.owner[0] = cdata.data[0] = '\0';
    cdata.ttl = 5000;

    ngx_memzero(&acquire, sizeof(zkl_acquire_t));
    ngx_str_set(&acquire.path, GSIM_DENIED);

    acquire.mode = ZKL_MUTEX;
    acquire.wait = gsim_chance(2) ? 0 : (ngx_msec_t) gsim_between(100, 4000);
    acquire.terms.once = (acquire.wait == 0);
    acquire.terms.max_queue = 1000;
    acquire.terms.leased = 1;
    acquire.timeout = gsim_timeout;
    acquire.ttl = 5000;
    acquire.cdata = &cdata;
    acquire.handler = gsim_denied_answered;
    acquire.data = s;

    s->must = gsim_user_must((int64_t) acquire.wait);
    s->claim = zkl_claim_acquire(s->process->worker, &acquire, &outcome);

    if (s->claim == NULL) {
        s->process = NULL;
    }
}


static void
gsim_denied_answered(void *data, zkl_claim_t *claim, zkl_outcome_e outcome)
{
    gsim_denied_t *s = data;

    gsim_process_t  *p;

    (void) claim;

    gsim_say("a stranger is answered: %d", outcome);

    p = s->process;
    s->process = NULL;

    switch (outcome) {

    case ZKL_DENIED:
        gsim_count.denied++;
        return;

    case ZKL_SHUTTING_DOWN:
    case ZKL_NO_ROOM:
        return;

    case ZKL_UNREACHABLE:

        if (gsim_now < gsim_quiet + 2 * GSIM_S || gsim_denied_begins(p)) {
            return;
        }

        break;

    case ZKL_FAILED:

        if (gsim_lacks) {
            return;
        }

        break;

    default:
        break;
    }

    gsim_violation("a stranger asks for a lock that an ACL forbids, and is "
                   "told %d", outcome);
}


/*
 * A new worker takes requests at once, but has a session only when a server has
 * answered, which may take 300 ms in the model.  An acquire whose wait is over
 * before that is told that ZooKeeper is out of reach, as failures.md says of a
 * reload and of a worker that dies.  gsim_quiet does not tell of such a worker:
 * strangers still come when history_end() kills a worker, and the other workers
 * must not feel that death.
 */

static int
gsim_denied_begins(gsim_process_t *p)
{
    return !p->worker->zone->own->keyed
           && gsim_now < (int64_t) p->start * 10 * GSIM_MS + GSIM_BEGINS;
}


static void
gsim_denied_check(gsim_denied_t *s)
{
    if (gsim_stands(s->process) || s->process->in_turn) {
        s->must += 50 * GSIM_MS;

    } else if (gsim_now > s->must) {
        gsim_violation("a stranger is not answered, in state %d",
                       (int) s->claim->state);
    }
}
