
/*
 * Clients of a lock of the one-node layout, with --node: the gateways' clients,
 * and a client of the old recipe, which makes the ephemeral and deletes it.
 *
 * Two clients are never told to hold the lock at the same time, no client waits
 * for a lock that is free, and each acquire is answered in time.
 */


#define THREADED

#include <zookeeper/zookeeper.h>

#include "gsim_user.h"


#define GSIM_SOLO           "/locks/solo"
#define GSIM_SOLOS          6

#define GSIM_SOLO_STEP      (50 * GSIM_MS)

/* a free lock is taken, and a call is answered late, within that time */
#define GSIM_SOLO_SOON      (2 * GSIM_S)

/* clocks do not run evenly */
#define GSIM_SOLO_SLACK     (300 * GSIM_MS)


typedef enum {
    GSIM_SOLO_IDLE = 0,
    GSIM_SOLO_WAITS,                    /* for an answer to the acquire */
    GSIM_SOLO_HOLDS,
    GSIM_SOLO_RELEASES                  /* a call is under way */
} gsim_solo_e;


typedef struct {
    gsim_solo_e                  state;
    gsim_process_t              *process;       /* that serves the client */
    zkl_claim_t                 *claim;         /* WAITS */
    zkl_call_t                  *call;          /* RELEASES */
    zkl_token_t                  token;
    ngx_msec_t                   ttl;
    int                          once;
    int                          durable;       /* the znode was seen to be */
    int64_t                      asked;
    int64_t                      must;          /* when an answer is due */
    int64_t                      release;       /* HOLDS: when */
    int64_t                      until;         /* the lease, as told; 0: the
                                                   client does not hold */
    gsim_session_t              *session;       /* that made the znode */
} gsim_solo_t;


static gsim_solo_t      gsim_solos[GSIM_SOLOS];
static int64_t          gsim_solo_until;
static int64_t          gsim_solo_free;         /* since when; 0: it is not */
static gsim_session_t  *gsim_plain;
static gsim_node_t     *gsim_plain_node;        /* NULL: does not hold */
static int64_t          gsim_plain_release;


static void gsim_solo_watch(void *data, uint64_t tag);
static void gsim_solo_plain(void);
static void gsim_solo_event(void *data, uint64_t tag);
static void gsim_solo_check(gsim_solo_t *s);
static void gsim_solo_acquire(void *data);
static void gsim_solo_answered(void *data, zkl_claim_t *claim,
    zkl_outcome_e outcome);
static void gsim_solo_alone(void);
static void gsim_solo_release(void *data);
static void gsim_solo_told(zkl_call_t *call, zkl_answer_e answer);
static gsim_node_t *gsim_solo_node(void);


void
gsim_solo_reset(int64_t until)
{
    int  i;

    memset(gsim_solos, 0, sizeof(gsim_solos));

    gsim_solo_until = until;
    gsim_solo_free = 0;
    gsim_plain = NULL;
    gsim_plain_node = NULL;

    for (i = 0; i < GSIM_SOLOS; i++) {
        gsim_at(gsim_now + gsim_below(4 * GSIM_S), gsim_solo_event,
                &gsim_solos[i], 0);
    }

    gsim_at(gsim_now, gsim_solo_watch, NULL, 0);
}


void
gsim_solo_lost(void)
{
    int  i;

    for (i = 0; i < GSIM_SOLOS; i++) {
        gsim_solos[i].until = 0;
    }

    gsim_plain = NULL;
    gsim_plain_node = NULL;
}


int
gsim_solo_busy(void)
{
    int  i;

    for (i = 0; i < GSIM_SOLOS; i++) {
        if (gsim_solos[i].state != GSIM_SOLO_IDLE) {
            return 1;
        }
    }

    return gsim_plain_node != NULL;
}


static void
gsim_solo_watch(void *data, uint64_t tag)
{
    int               i;
    gsim_node_t      *node;
    gsim_solo_t      *s;
    zkl_claim_data_t  cdata;

    (void) data;
    (void) tag;

    gsim_solo_plain();

    node = gsim_solo_node();

    if (node != NULL) {
        gsim_solo_free = 0;

        zkl_claim_data_read(&cdata, node->data->bytes, node->data->len);

        for (i = 0; i < GSIM_SOLOS; i++) {
            s = &gsim_solos[i];

            s->durable |= (node->owner == 0 && cdata.has_id
                           && memcmp(cdata.id.random, s->token.id.random,
                                     ZKL_RANDOM_LEN) == 0);
        }

    } else if (gsim_solo_free == 0) {
        gsim_solo_free = gsim_now;
    }

    if (gsim_now < gsim_solo_until || gsim_solo_busy()) {
        gsim_at(gsim_now + GSIM_SOLO_STEP, gsim_solo_watch, NULL, 0);
    }
}


/* The old recipe: the znode is the lock. */

static void
gsim_solo_plain(void)
{
    gsim_node_t  *node;

    if (gsim_plain_node != NULL) {

        if (gsim_now < gsim_plain_release) {
            return;
        }

        node = gsim_plain_node;
        gsim_plain_node = NULL;

        if (node->deleted != GSIM_NEVER) {
            gsim_violation("the lock of a plain client was deleted");
        }

        if (gsim_chance(4)) {
            gsim_server_expire(gsim_plain, "a plain client's");
            gsim_plain = NULL;
            return;
        }

        (void) gsim_tree_begin();
        (void) gsim_tree_delete(GSIM_SOLO, -1);
        gsim_server_spread();
        return;
    }

    if (gsim_now >= gsim_solo_until || gsim_solo_node() != NULL
        || !gsim_chance(8) || gsim_tree_find("/locks", gsim_zxid) == NULL)
    {
        return;
    }

    if (gsim_plain == NULL) {
        gsim_plain = gsim_server_new_session(GSIM_NEVER);
    }

    (void) gsim_tree_begin();

    if (gsim_tree_create(GSIM_SOLO, "plain", 5, ZOO_EPHEMERAL, gsim_plain->id,
                         &gsim_plain_node)
        != ZOK)
    {
        gsim_plain_node = NULL;
        return;
    }

    gsim_server_spread();
    gsim_solo_alone();

    gsim_say("a plain client holds the solo");
    gsim_plain_release = gsim_now + gsim_between(1, 3000) * GSIM_MS;
}


static void
gsim_solo_event(void *data, uint64_t tag)
{
    gsim_solo_t *s = data;

    (void) tag;

    gsim_at(gsim_now + GSIM_SOLO_STEP, gsim_solo_event, s, 0);

    if (s->process != NULL && s->process->in_turn) {
        /* time goes on within the turn in which the client acts */
        return;
    }

    if (s->state != GSIM_SOLO_IDLE
        && (s->process->state == GSIM_DEAD || s->process->ending))
    {
        /* the lease that was told goes on, and no answer is read any more */

        s->call = NULL;

        if (s->state == GSIM_SOLO_WAITS) {
            s->claim = NULL;
            s->state = GSIM_SOLO_IDLE;
            return;
        }

        s->state = GSIM_SOLO_HOLDS;
        s->process = gsim_gateway_pick((int) gsim_below(GSIM_GATEWAYS));

        if (s->process == NULL) {
            s->state = GSIM_SOLO_IDLE;
            return;
        }
    }

    switch (s->state) {

    case GSIM_SOLO_IDLE:

        if (gsim_now >= gsim_solo_until || !gsim_chance(10)) {
            return;
        }

        s->process = gsim_gateway_pick((int) gsim_below(GSIM_GATEWAYS));

        if (s->process != NULL) {
            (void) gsim_turn(s->process, gsim_solo_acquire, s);
        }

        return;

    case GSIM_SOLO_HOLDS:

        if (gsim_now >= s->release) {
            (void) gsim_turn(s->process, gsim_solo_release, s);
        }

        return;

    default:
        gsim_solo_check(s);
    }
}


static void
gsim_solo_check(gsim_solo_t *s)
{
    if (gsim_stands(s->process) || s->process->in_turn) {
        s->must += GSIM_SOLO_STEP;

    } else if (gsim_now > s->must) {
        gsim_violation("a client of the solo is not answered");

    } else if (s->state == GSIM_SOLO_WAITS && !s->once && !gsim_lacks
               && gsim_solo_free != 0
               && gsim_now > gsim_solo_free + GSIM_SOLO_SOON
               && gsim_now > s->asked + GSIM_SOLO_SOON
               && gsim_now > gsim_quiet + 3 * GSIM_S)
    {
        gsim_violation("a client waits for the solo, which is free");
    }
}


static void
gsim_solo_acquire(void *data)
{
    gsim_solo_t *s = data;

    zkl_outcome_e     outcome;
    zkl_acquire_t     acquire;
    zkl_claim_data_t  cdata;

    s->ttl = (ngx_msec_t) gsim_between(700, gsim_chance(2) ? 3000 : 9000);

    memset(&cdata, 0, offsetof(zkl_claim_data_t, want));
    cdata.want[0] = cdata.from[0] = cdata.owner[0] = cdata.data[0] = '\0';
    cdata.ttl = (int64_t) s->ttl;
    cdata.has_id = 1;

    ngx_memzero(&acquire, sizeof(zkl_acquire_t));
    ngx_str_set(&acquire.path, GSIM_SOLO);

    acquire.mode = ZKL_NODE;
    acquire.wait = gsim_chance(4) ? 0 : (ngx_msec_t) gsim_between(2000, 30000);
    acquire.terms.once = (acquire.wait == 0);
    acquire.terms.max_queue = 1000;
    acquire.terms.leased = 1;
    acquire.terms.durable = gsim_chance(4);
    acquire.timeout = gsim_timeout;
    acquire.ttl = s->ttl;
    acquire.cdata = &cdata;
    acquire.handler = gsim_solo_answered;
    acquire.data = s;

    s->once = acquire.terms.once;
    s->asked = gsim_now;
    s->must = gsim_user_must((int64_t) acquire.wait) + GSIM_SOLO_SOON;
    s->durable = 0;
    s->claim = zkl_claim_acquire(s->process->worker, &acquire, &outcome);

    if (s->claim != NULL) {
        s->state = GSIM_SOLO_WAITS;
    }
}


static void
gsim_solo_answered(void *data, zkl_claim_t *claim, zkl_outcome_e outcome)
{
    gsim_solo_t *s = data;

    gsim_node_t  *node;

    if (s->claim != claim) {
        return;
    }

    gsim_say("a client of the solo is answered: %d", outcome);

    s->claim = NULL;
    s->state = GSIM_SOLO_IDLE;

    if (outcome == ZKL_GRANTED) {
        gsim_solo_alone();

        node = gsim_solo_node();

        s->token.id = claim->id;
        s->token.seq = claim->entry.seq;
        s->token.mode = claim->entry.mode;
        s->session = node ? gsim_server_session(node->owner) : NULL;
        s->until = (s->process->stood ? s->process->turned : gsim_now)
                   + (int64_t) s->ttl * GSIM_MS;
        s->release = gsim_now + gsim_between(1, gsim_chance(2) ? 100 : 9000)
                                * GSIM_MS;
        s->state = GSIM_SOLO_HOLDS;
        gsim_count.solos++;
        return;
    }

    if (outcome == ZKL_UNREACHABLE && !gsim_lacks
        && gsim_now > gsim_quiet + 3 * GSIM_S
        && gsim_now > s->asked + GSIM_SOLO_SOON)
    {
        gsim_violation("a client of the solo is told that ZooKeeper does not "
                       "answer");
    }
}


/* A client gets the lock: no other client may hold the lock. */

static void
gsim_solo_alone(void)
{
    int           i;
    gsim_solo_t  *s;

    if (gsim_plain_node != NULL && gsim_plain_node != gsim_solo_node()) {
        gsim_violation("a plain client holds the solo, and so does another");
    }

    for (i = 0; i < GSIM_SOLOS; i++) {
        s = &gsim_solos[i];

        if (s->until > gsim_now + GSIM_SOLO_SLACK
            && (s->durable || (s->session != NULL && !s->session->over)))
        {
            gsim_violation("two clients hold the solo");
        }

        s->until = 0;
    }
}


/* The lease may be over, or the answer to an earlier release was lost. */

static void
gsim_solo_release(void *data)
{
    gsim_solo_t *s = data;

    ngx_str_t       path = ngx_string(GSIM_SOLO);
    zkl_question_t  question;

    ngx_memzero(&question, sizeof(zkl_question_t));

    question.type = ZKL_RELEASE;
    question.path = &path;
    question.token = &s->token;
    question.timeout = gsim_timeout;
    question.handler = gsim_solo_told;
    question.data = s;

    s->until = 0;
    s->must = gsim_user_must(0) + GSIM_SOLO_SOON;
    s->state = GSIM_SOLO_RELEASES;

    s->call = zkl_call_start(s->process->worker, &question);

    if (s->call == NULL) {
        s->state = GSIM_SOLO_HOLDS;
    }
}


static void
gsim_solo_told(zkl_call_t *call, zkl_answer_e answer)
{
    gsim_solo_t *s = call->data;

    if (s->call != call) {
        return;
    }

    gsim_say("a client of the solo is told: %d", answer);

    s->call = NULL;
    s->state = (answer == ZKL_CALL_OK || answer == ZKL_CALL_GONE)
               ? GSIM_SOLO_IDLE : GSIM_SOLO_HOLDS;
}


/* The lock's znode, or NULL. */

static gsim_node_t *
gsim_solo_node(void)
{
    return gsim_tree_find(GSIM_SOLO, gsim_zxid);
}
