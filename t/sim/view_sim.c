
/*
 * The view against a naive model, in a simulated world.
 *
 * A run is a world that a seed makes: up to three locks, up to four workers of
 * a gateway, foreign claimers, servers that lag, and the pace of all.  A step
 * is a single event: the leader commits a write, a server moves on, a message
 * or a doorbell reaches a worker, a client comes, leaves or releases, a foreign
 * claimer acts, a parent is reaped, or a connection breaks.  Now and then all
 * arrivals stop, and the run goes on until all claims have ended.
 *
 * After every step the world is compared with the leader's tree, the truth:
 *
 *   (a) no two holders of a lock exclude each other.  A grant counts until the
 *       delete is decided or the session is lost; a foreign claim counts as
 *       soon as no claim ahead excludes the claim.  A holder's znode exists.
 *   (b) at a grant, no claim is ahead that blocks the granted claim.
 *   (c) when arrivals stop, every waiter is granted; if no claim leaves,
 *       either, every waiter that has the turn.
 *   (d) at the end the tree is empty, and all entries were given back.
 *   (e) a claim that is refused, because the lock has another use, came behind
 *       a claim of another use.  If no claim leaves for a while, a worker's
 *       first waiter is not behind claims of another use only.
 *
 * A semaphore has at most as many holders as permits; in (b) fewer claims than
 * the permits may be ahead, and no claim of another use.
 *
 * --break breaks a rule of the gateway; then a violation has to follow, else
 * the world is too tame to show that the rule is needed.  Two can be broken
 * without harm, and are not listed.  A worker has a single session here for all
 * requests; so a claim from an answer, and all claims ahead of that claim, are
 * in every list that is answered later, unless the claim is gone.  Neither the
 * mark of a list nor the caution of a list with siblings is put to the test.
 *
 * usage: view_sim [--seed N] [--steps N] [--runs N] [--trace] [--break RULE]
 *        view_sim --list-breaks
 */


#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"


#define FOREIGN         4           /* of a lock */
#define PERMITS         4
#define ZOMBIES         6
#define DEAD            16
#define CALM            40000       /* steps; a tenth is plenty */
#define FOREIGN_ID      1000000


typedef enum {
    ACT_COMMIT = 0,
    ACT_SERVE,
    ACT_DELIVER,
    ACT_ANSWER,
    ACT_CLIENT,
    ACT_FOREIGN,
    ACT_REAP,
    ACT_CONNECT,
    ACT_FAULT,
    ACTS
} act_e;


/* the use of a lock that most claims of the lock want */

typedef enum {
    USE_MUTEX = 0,
    USE_SHARED,                         /* readers and writers, and mutexes */
    USE_SEMAPHORE,
    USE_MEMBERS,
    USES
} use_e;


typedef struct {
    sim_break_e         rule;
    const char         *name;
    unsigned            harmless:1;     /* in this world */
} break_name_t;


/* the parameters of a run, from the seed */

typedef struct {
    int                 nlocks;
    int                 nworkers;
    int                 downgrades;
    int                 durables;
    size_t              nforeign;
    size_t              nclaims;        /* of a worker and lock */
    unsigned            pace;
    unsigned            patience;
    unsigned            reluctance;     /* of foreign writers, to leave */
    unsigned            faith;          /* 1 of n claims has another use;
                                           0: none */
    unsigned            fancy;          /* a free lock's use may change */
    unsigned            luck;           /* 1 of n faults happens */
    unsigned            stops;          /* workers are often stopped */
    unsigned            weights[ACTS];
    unsigned            weight;
} world_t;


typedef struct {
    uint64_t            seed;
    uint64_t            steps;
    uint64_t            runs;
    sim_break_e         rule;
    unsigned            trace:1;
} options_t;


typedef struct {
    uint64_t            seed;
    uint64_t            random;
    uint64_t            step;
    world_t             world;

    use_e               use[SIM_LOCKS];
    unsigned            permits[SIM_LOCKS];

    name_t              foreign[SIM_LOCKS][FOREIGN];
    size_t              nforeign[SIM_LOCKS];
    uint64_t            foreign_ids;

    zk_session_t       *zombies[ZOMBIES];
    int                 processes[ZOMBIES];     /* dead processes; or -1 */
    size_t              nzombies;
    int                 dead[DEAD];     /* the sessions are over */
    size_t              ndead;
    uint64_t            stalled[SIM_WORKERS];

    int64_t             granted_parent[SIM_LOCKS];
    int64_t             granted_seq[SIM_LOCKS];

    unsigned            touched;        /* a bit a lock */
    unsigned            calm:1;         /* no claim arrives */
    unsigned            failed:1;
} run_t;


static void count(void);
static int parse(int argc, char **argv);
static int parse_number(const char *text, uint64_t *number);
static int parse_break(const char *name);
static void list_breaks(void);
static int usage(void);

static uint64_t run_one(uint64_t seed);
static void make_world(void);
static void make_deserted(world_t *w);
static void calm_down(void);
static void settle(void);
static void end_run(void);
static int all_is_done(void);
static void why_not_done(void);
static void step(void);
static int act(void);
static int client_act(worker_t *worker);
static zkl_kind_t some_kind(int lock);
static void some_use(int lock);
static int is_free(int lock);
static int foreign_act(int lock);
static void foreign_join(int lock, zkl_kind_t kind, int64_t seq);
static void foreign_downgrade(int lock, name_t *name);
static void foreign_persist(int lock, name_t *name);
static void foreign_leave(int lock, size_t i);
static int foreign_is_refused(int lock, name_t *name);
static int foreign_holds(int lock, name_t *name);
static int has_reader(int lock, int64_t seq);
static int connect_act(worker_t *worker);
static int fault_act(worker_t *worker);
static int stop_worker(worker_t *worker);
static void give_up(worker_t *worker, int process);
static void bury(void);
static void reclaim(void);

static void check(void);
static void check_lock(int lock);
static void check_held(int lock);
static void check_waiting(worker_t *worker);
static void check_uses(int lock);
static znode_t *first_node(int lock);
static int excludes(zkl_kind_t one, zkl_kind_t two);
static int mixes(zkl_kind_t one, zkl_kind_t two);
static size_t seats(zkl_kind_t kind);
static int decided(znode_t *node);
static int holds(znode_t *nodes, size_t n, znode_t *node);
static int is_next(znode_t *nodes, size_t n, znode_t *node);
static int is_stranger(znode_t *nodes, size_t n, claim_t *claim);


static const break_name_t  breaks[] = {
    { SIM_GRANT_ON_PREDECESSOR_GONE,     "grant-on-predecessor-gone", 0 },
    { SIM_TRUST_GAP,                     "trust-gap", 0 },
    { SIM_UNPINNED_PROOF,                "unpinned-proof", 0 },
    { SIM_GUARD_UNCHECKED,               "guard-unchecked", 0 },
    { SIM_PARENT_EVENT_IGNORED,          "parent-event-ignored", 0 },
    { SIM_FORGET_NOTHING,                "forget-nothing-on-disconnect", 0 },
    { SIM_DOWNGRADE_IGNORED,             "downgrade-ignored", 0 },
    { SIM_LOST_WAKEUP,                   "lost-wakeup", 0 },
    { SIM_NO_DOORBELL,                   "no-doorbell", 0 },
    { SIM_NO_RECHECK,                    "no-recheck", 0 },
    { SIM_STALE_BOARD,                   "stale-board", 0 },
    { SIM_STALE_LIVE_BOARD,              "stale-live-board", 0 },
    { SIM_NO_SYNC,                       "no-sync", 0 },
    { SIM_CREATE_BLINDLY,                "create-blindly", 0 },
    { SIM_SAME_ID_ANEW,                  "same-id-anew", 0 },
    { SIM_DELETE_ONCE,                   "delete-once", 0 },
    { SIM_FOUND_AS_HELD,                 "found-as-held", 0 },
    { SIM_ZOMBIE_GRANT,                  "zombie-grant", 0 },
    { SIM_DEAD_IS_GONE,                  "dead-is-gone", 0 },
    { SIM_DEAD_BOARD,                    "dead-board", 0 },
    { SIM_NO_LIST_MARK,                  "no-list-mark", 1 },
    { SIM_SIBLING_ABSENT_IS_GONE,        "sibling-absent-is-gone", 1 },
    { SIM_DOWNGRADE_UNLISTED,            "downgrade-unlisted", 0 },
    { SIM_DURABLE_IGNORED,               "durable-ignored", 0 },
    { SIM_MISSING_TRUSTED,               "missing-trusted", 0 },
    { SIM_ONE_WATCH,                     "one-watch", 0 },
    { SIM_SEAT_TOO_MANY,                 "seat-too-many", 0 },
    { SIM_CONFLICT_IGNORED,              "conflict-ignored", 0 },
    { SIM_CONFLICT_UNSEEN,               "conflict-unseen", 0 },
    { SIM_NO_BREAK,                      NULL, 0 }
};


static options_t  options = { 1, 4000, 4000, SIM_NO_BREAK, 0 };
static run_t      run;

sim_counters_t    counters;


int
main(int argc, char **argv)
{
    int       rc;
    uint64_t  i, steps;

    rc = parse(argc, argv);
    if (rc >= 0) {
        return rc;
    }

    steps = 0;

    for (i = 0; i < options.runs && !run.failed; i++) {
        steps += run_one(options.seed + i);
    }

    printf("%s: %llu runs, %llu steps\n", run.failed ? "failed" : "passed",
           (unsigned long long) i, (unsigned long long) steps);

    count();

    return run.failed;
}


static void
count(void)
{
    size_t  i;

    const struct {
        uint64_t     n;
        const char  *what;
    } lines[] = {
        { counters.grants,      "grants" },
        { counters.handoffs,    "of them before the delete" },
        { counters.longest,     "claims in the longest queue" },
        { counters.proofs,      "creates that needed no list" },
        { counters.lists,       "lists" },
        { counters.learned,     "claims learned from the board" },
        { counters.reaped,      "parents reaped" },
        { counters.downgrades,  "downgrades" },
        { counters.exclusive,   "of them of exclusive claims" },
        { counters.durables,    "claims that became durable" },
        { counters.seats,       "grants of semaphores" },
        { counters.members,     "grants of members" },
        { counters.refused,     "claims refused for their use" },
        { counters.disconnects, "disconnects" },
        { counters.found,       "claims found after one" },
        { counters.sessions,    "sessions lost" },
        { counters.crashes,     "crashes" },
    };

    for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        printf("%10llu %s\n", (unsigned long long) lines[i].n, lines[i].what);
    }
}


static int
parse(int argc, char **argv)
{
    int          i;
    const char  *value;

    for (i = 1; i < argc; i++) {

        if (strcmp(argv[i], "--list-breaks") == 0) {
            list_breaks();
            return 0;
        }

        if (strcmp(argv[i], "--trace") == 0) {
            options.trace = 1;
            continue;
        }

        value = argv[i + 1];    /* NULL behind the last argument */

        if (value == NULL) {
            return usage();
        }

        if ((strcmp(argv[i], "--seed") == 0
             && parse_number(value, &options.seed) == 0)
            || (strcmp(argv[i], "--steps") == 0
                && parse_number(value, &options.steps) == 0)
            || (strcmp(argv[i], "--runs") == 0
                && parse_number(value, &options.runs) == 0)
            || (strcmp(argv[i], "--break") == 0
                && parse_break(value) == 0))
        {
            i++;
            continue;
        }

        return usage();
    }

    return -1;
}


static int
parse_number(const char *text, uint64_t *number)
{
    char  *end;

    *number = strtoull(text, &end, 10);

    return (*text >= '0' && *text <= '9' && *end == '\0') ? 0 : -1;
}


static int
parse_break(const char *name)
{
    size_t  i;

    for (i = 0; breaks[i].name != NULL; i++) {
        if (strcmp(breaks[i].name, name) == 0) {
            options.rule = breaks[i].rule;
            return 0;
        }
    }

    return -1;
}


static void
list_breaks(void)
{
    size_t  i;

    for (i = 0; breaks[i].name != NULL; i++) {
        if (!breaks[i].harmless) {
            puts(breaks[i].name);
        }
    }
}


static int
usage(void)
{
    fputs("usage: view_sim [--seed N] [--steps N] [--runs N] [--trace]"
          " [--break RULE]\n"
          "       view_sim --list-breaks\n", stderr);

    return 2;
}


/* for all files */

int
broken(sim_break_e rule)
{
    return options.rule == rule;
}


/* splitmix64 */

uint64_t
rnd(uint64_t n)
{
    uint64_t  z;

    run.random += 0x9e3779b97f4a7c15;

    z = run.random;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z = z ^ (z >> 31);

    return z % n;
}


int
chance(unsigned one_in)
{
    return rnd(one_in) == 0;
}


void
trace(const char *fmt, ...)
{
    va_list  args;

    if (!options.trace) {
        return;
    }

    printf("%6llu  ", (unsigned long long) run.step);

    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);

    putchar('\n');
}


void
violation(const char *fmt, ...)
{
    size_t   i;
    va_list  args;

    if (run.failed) {
        return;
    }

    run.failed = 1;

    printf("seed %llu, step %llu: ", (unsigned long long) run.seed,
           (unsigned long long) run.step);

    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);

    printf("\nreplay: view_sim --seed %llu --steps %llu --runs 1",
           (unsigned long long) run.seed, (unsigned long long) options.steps);

    for (i = 0; breaks[i].name != NULL; i++) {
        if (breaks[i].rule == options.rule) {
            printf(" --break %s", breaks[i].name);
        }
    }

    puts(" --trace");
}


void
touched(int lock)
{
    run.touched |= 1u << lock;
}


/* a run: storms, and the calm after each */

static uint64_t
run_one(uint64_t seed)
{
    uint64_t  storm;

    memset(&run, 0, sizeof(run_t));
    run.seed = seed;
    run.random = seed * 0x2545f4914f6cdd1d;

    make_world();

    while (run.step < options.steps && !run.failed) {

        storm = run.step + 30 + rnd(chance(3) ? 2000 : 300);
        run.calm = 0;

        while (run.step < storm && !run.failed) {
            step();
        }

        calm_down();
    }

    end_run();

    return run.step;
}


static void
make_world(void)
{
    int       i;
    world_t  *w;

    w = &run.world;

    w->nlocks = 1 + rnd(SIM_LOCKS);
    w->nworkers = 1 + rnd(SIM_WORKERS);

    for (i = 0; i < w->nlocks; i++) {
        some_use(i);
    }

    w->faith = chance(2) ? 0 : 2 + rnd(30);
    w->fancy = chance(2);
    w->downgrades = !chance(3);
    w->durables = chance(2);
    w->nforeign = rnd(FOREIGN + 1);
    w->nclaims = 1 + rnd(4);
    w->pace = 1 + rnd(12);
    w->patience = 1 + rnd(chance(3) ? 4 : 40);
    w->reluctance = 1 + rnd(6);
    w->luck = 1 + rnd(20);

    w->weights[ACT_COMMIT] = 10 + rnd(30);
    w->weights[ACT_SERVE] = 10 + rnd(50);
    w->weights[ACT_DELIVER] = 10 + rnd(40);
    w->weights[ACT_ANSWER] = 2 + rnd(20);
    w->weights[ACT_CLIENT] = 10 + rnd(30);
    w->weights[ACT_FOREIGN] = (w->nforeign != 0) ? 2 + rnd(40) : 0;
    w->weights[ACT_REAP] = 1 + rnd(15);
    w->weights[ACT_CONNECT] = 1 + rnd(4);
    w->weights[ACT_FAULT] = rnd(4);

    if (chance(3)) {
        make_deserted(w);
    }

    w->weight = 0;

    for (i = 0; i < ACTS; i++) {
        w->weight += w->weights[i];
    }

    zk_reset(2 + rnd(chance(2) ? 8 : 80));
    gateway_reset(w->nworkers);

    for (i = 0; i < SIM_LOCKS; i++) {
        run.granted_seq[i] = -1;
    }

    trace("%d locks, %d workers, %d foreign claimers a lock", w->nlocks,
          w->nworkers, (int) w->nforeign);
}


/*
 * A lock that is often empty, so that the parent is reaped: knowledge of the
 * lock is wrong soon, and low seqs are given again and again.
 */

static void
make_deserted(world_t *w)
{
    w->nlocks = 1;
    w->nworkers = 2 + rnd(SIM_WORKERS - 1);
    w->nforeign = 1 + rnd(2);
    w->nclaims = 1 + rnd(2);
    w->pace = 1 + rnd(4);
    w->patience = 1 + rnd(chance(2) ? 4 : 40);
    w->luck = 1;
    w->stops = 1;

    w->weights[ACT_FOREIGN] = 2 + rnd(8);
    w->weights[ACT_REAP] = 30;
    w->weights[ACT_FAULT] = 1 + rnd(3);
}


/* no claim arrives, no waiter leaves: all waiters must get the lock */

static void
calm_down(void)
{
    uint64_t  end;

    trace("calm");

    run.calm = 1;
    memset(run.stalled, 0, sizeof(run.stalled));
    bury();

    if (chance(2)) {
        settle();
    }

    end = run.step + CALM;

    while (!run.failed && !all_is_done()) {

        if (run.step == end) {
            why_not_done();
            return;
        }

        step();
    }

    reclaim();
}


/* no claim leaves, either, until all messages have arrived */

static void
settle(void)
{
    int        i, busy;
    worker_t  *worker;

    do {
        busy = 0;
        run.step++;

        for (i = 0; i < run.world.nworkers; i++) {
            worker = gateway_worker(i);

            busy |= connect_act(worker);
            busy |= zk_commit(worker->session);
            busy |= zk_serve(worker->session);
            busy |= gateway_deliver(worker);
            busy |= gateway_answer(worker);

            check();
        }

    } while (busy && !run.failed);

    for (i = 0; i < run.world.nworkers; i++) {
        check_waiting(gateway_worker(i));
    }
}


static int
all_is_done(void)
{
    int        i, lock;
    size_t     n;
    znode_t   *nodes;
    worker_t  *worker;

    for (i = 0; i < run.world.nworkers; i++) {
        worker = gateway_worker(i);

        if (worker->nclaims != 0 || !worker->connected) {
            return 0;
        }
    }

    for (lock = 0; lock < run.world.nlocks; lock++) {

        if (run.nforeign[lock] != 0) {
            return 0;
        }

        nodes = zk_nodes(lock, &n);

        while (n-- != 0) {
            if (nodes[n].deleted == SIM_ALIVE) {
                violation("lock %d: znode %d was left behind, id %d", lock,
                          (int) nodes[n].name.seq, (int) nodes[n].name.id);
            }
        }
    }

    return 1;
}


static void
why_not_done(void)
{
    int        i;
    claim_t   *claim;
    worker_t  *worker;

    for (i = 0; i < run.world.nworkers; i++) {
        worker = gateway_worker(i);

        if (worker->nclaims != 0) {
            claim = worker->claims[0];

            violation("lock %d: id %d, %d, of w%d waits for ever, state %d",
                      claim->lock, (int) claim->name.id, (int) claim->name.seq,
                      i, claim->state);
        }
    }

    violation("a foreign claimer waits for ever");
}


static void
end_run(void)
{
    gateway_done();

    if (gateway_entries() != 0) {
        violation("%d entries were not given back", (int) gateway_entries());
    }

    run.nzombies = 0;
    zk_reset(0);
}


static void
step(void)
{
    int  tries;

    run.step++;

    for (tries = 0; tries < 8; tries++) {
        if (act()) {
            break;
        }
    }

    check();
}


static int
act(void)
{
    int            lock;
    act_e          what;
    uint64_t       n;
    worker_t      *worker;
    zk_session_t  *session;

    n = rnd(run.world.weight);

    for (what = 0; n >= run.world.weights[what]; what++) {
        n -= run.world.weights[what];
    }

    lock = rnd(run.world.nlocks);
    worker = gateway_worker(rnd(run.world.nworkers));

    session = worker->session;

    if (run.nzombies != 0 && chance(4)) {
        session = run.zombies[rnd(run.nzombies)];
    }

    switch (what) {

    case ACT_COMMIT:
        return zk_commit(session);

    case ACT_SERVE:
        return zk_serve(session);

    case ACT_FOREIGN:
        return foreign_act(lock);

    case ACT_REAP:
        return zk_reap(lock);

    case ACT_FAULT:
        return fault_act(worker);

    default:
        break;
    }

    if (run.stalled[worker->index] > run.step) {
        return 0;
    }

    switch (what) {

    case ACT_DELIVER:
        return gateway_deliver(worker);

    case ACT_ANSWER:
        return gateway_answer(worker);

    case ACT_CLIENT:
        return client_act(worker);

    default: /* ACT_CONNECT */
        return connect_act(worker);
    }
}


/* a client comes, leaves or releases */

static int
client_act(worker_t *worker)
{
    int       lock;
    size_t    i, n;
    claim_t  *claim;

    if (!run.calm && chance(3)) {
        lock = rnd(run.world.nlocks);
        n = 0;

        for (i = 0; i < worker->nclaims; i++) {
            n += (worker->claims[i]->lock == lock
                  && !worker->claims[i]->ended);
        }

        if (!chance(run.world.pace) || n >= run.world.nclaims) {
            return 0;
        }

        if (run.world.fancy && is_free(lock) && chance(2)) {
            some_use(lock);
        }

        return gateway_acquire(worker, lock, some_kind(lock)) != NULL;
    }

    if (worker->nclaims == 0) {
        return 0;
    }

    claim = worker->claims[rnd(worker->nclaims)];

    if (claim->ended
        || (!claim->held && (run.calm || !chance(run.world.patience)))
        || !chance(2))
    {
        return 0;
    }

    gateway_end(claim);

    return 1;
}


static zkl_kind_t
some_kind(int lock)
{
    use_e     use;
    unsigned  permits;

    use = run.use[lock];
    permits = run.permits[lock];

    if (run.world.faith != 0 && chance(run.world.faith)) {
        use = rnd(USES);
        permits = 1 + rnd(PERMITS);
    }

    switch (use) {

    case USE_MUTEX:
        return ZKL_MUTEX;

    case USE_SHARED:
        return chance(6) ? ZKL_MUTEX : chance(2) ? ZKL_WRITE : ZKL_READ;

    case USE_SEMAPHORE:
        return zkl_semaphore(permits);

    default: /* USE_MEMBERS */
        return ZKL_MEMBER;
    }
}


static void
some_use(int lock)
{
    /* the first two uses more often, because these have more rules */

    run.use[lock] = chance(2) ? rnd(USE_SHARED + 1) : rnd(USES);
    run.permits[lock] = 1 + rnd(PERMITS);
}


static int
is_free(int lock)
{
    return first_node(lock) == NULL;
}


/* foreign claimers act on the leader, without lag */

static int
foreign_act(int lock)
{
    size_t   i;
    name_t  *name;

    if (!run.calm && run.nforeign[lock] < run.world.nforeign && chance(3)) {
        foreign_join(lock, some_kind(lock), -1);
        return 1;
    }

    if (!run.calm && chance(30)) {
        zk_noise(lock);
        return 1;
    }

    if (run.nforeign[lock] == 0) {
        return 0;
    }

    i = rnd(run.nforeign[lock]);
    name = &run.foreign[lock][i];

    if (!foreign_holds(lock, name)) {

        if (!foreign_is_refused(lock, name)
            && (run.calm || !chance(run.world.patience)))
        {
            return 0;
        }

    } else if (!run.calm
               && run.world.downgrades
               && (name->kind == ZKL_WRITE || name->kind == ZKL_MUTEX)
               && !has_reader(lock, name->seq)
               && chance(3))
    {
        foreign_downgrade(lock, name);
        return 1;

    } else if (!run.calm && run.world.durables && chance(3)) {
        foreign_persist(lock, name);
        return 1;

    } else if (!run.calm
               && run.world.downgrades
               && name->kind == ZKL_WRITE
               && run.nforeign[lock] < FOREIGN
               && (!has_reader(lock, name->seq) || chance(4))
               && chance(2))
    {
        counters.downgrades++;
        foreign_join(lock, ZKL_READ, name->seq);
        return 1;

    } else if (!run.calm
               && name->kind == ZKL_WRITE
               && !chance(run.world.reluctance))
    {
        return 0;
    }

    foreign_leave(lock, i);

    return 1;
}


/* seq: of the writer that makes a reader, or -1 */

static void
foreign_join(int lock, zkl_kind_t kind, int64_t seq)
{
    name_t  *name;

    name = &run.foreign[lock][run.nforeign[lock]++];

    name->seq = seq;
    name->id = FOREIGN_ID + run.foreign_ids++;
    name->kind = kind;
    name->record = SIM_FOREIGN;

    trace("foreign: lock %d joins, id %d, kind %d%s", lock, (int) name->id,
          kind, (seq != -1) ? ", downgrade" : "");

    zk_claim(lock, name, seq != -1);
}


/* another gateway's claim is a reader from now on */

static void
foreign_downgrade(int lock, name_t *name)
{
    name_t  old;

    counters.downgrades++;
    counters.exclusive += (name->kind == ZKL_MUTEX);

    old = *name;

    name->id = FOREIGN_ID + run.foreign_ids++;
    name->kind = ZKL_READ;

    trace("foreign: lock %d shares, id %d is %d, %d", lock, (int) old.id,
          (int) name->id, (int) name->seq);

    zk_replace(lock, &old, name);
}


/* another gateway's claim becomes durable (again), under the same name */

static void
foreign_persist(int lock, name_t *name)
{
    counters.durables++;

    trace("foreign: lock %d becomes durable, id %d, %d", lock, (int) name->id,
          (int) name->seq);

    zk_replace(lock, name, name);
}


static void
foreign_leave(int lock, size_t i)
{
    name_t  name;

    name = run.foreign[lock][i];
    run.foreign[lock][i] = run.foreign[lock][--run.nforeign[lock]];

    trace("foreign: lock %d leaves, id %d, %d", lock, (int) name.id,
          (int) name.seq);

    zk_unclaim(lock, &name);
}


static int
foreign_holds(int lock, name_t *name)
{
    size_t    n;
    znode_t  *nodes;

    nodes = zk_nodes(lock, &n);

    return holds(nodes, n, zk_find(lock, name));
}


/* a mutex or writer may wait, because the client knows no other uses */

static int
foreign_is_refused(int lock, name_t *name)
{
    return !mixes(first_node(lock)->name.kind, name->kind)
           && (name->kind > ZKL_WRITE || chance(4));
}


static int
has_reader(int lock, int64_t seq)
{
    size_t  i;

    for (i = 0; i < run.nforeign[lock]; i++) {
        if (run.foreign[lock][i].seq == seq
            && run.foreign[lock][i].kind == ZKL_READ)
        {
            return 1;
        }
    }

    return 0;
}


/* connections and sessions */

static int
connect_act(worker_t *worker)
{
    if (worker->connected) {
        return 0;
    }

    if (zk_is_expired(worker->session)) {
        zk_session_done(worker->session);
        gateway_lost(worker, zk_session_new());

    } else if (!run.calm && run.nzombies < ZOMBIES && chance(8)) {
        give_up(worker, -1);
        gateway_lost(worker, zk_session_new());

    } else {
        zk_reconnect(worker->session);
    }

    gateway_reconnect(worker);

    return 1;
}


static int
fault_act(worker_t *worker)
{
    if (run.calm) {
        return 0;
    }

    if (run.nzombies != 0 && chance(8)) {
        bury();
        return 1;
    }

    if (chance(30)) {
        reclaim();
        return 1;
    }

    if (!chance(run.world.luck)) {
        return 0;
    }

    switch (rnd(run.world.stops ? 4 : 8)) {

    case 0:
        if (run.world.stops) {
            return stop_worker(worker);
        }

        run.stalled[worker->index] = run.step + rnd(300);
        return 1;

    case 1:
        if (!zk_is_cut(worker->session) || zk_is_expired(worker->session)) {
            return 0;
        }

        trace("zk: session of w%d expires", worker->index);
        zk_expire(worker->session);
        return 1;

    case 2:
        if (run.nzombies == ZOMBIES) {
            return 0;
        }

        give_up(worker, worker->process);
        gateway_crash(worker, zk_session_new());
        return 1;

    case 3:
        return stop_worker(worker);

    default:
        if (zk_is_cut(worker->session)) {
            return 0;
        }

        trace("zk: connection of w%d is cut", worker->index);
        zk_cut(worker->session, chance(2) ? 0 : rnd(6));
        return 1;
    }
}


/* stops the process of a worker for longer than the session lives */

static int
stop_worker(worker_t *worker)
{
    if (zk_is_cut(worker->session)) {
        return 0;
    }

    trace("zk: w%d is stopped, its session expires", worker->index);

    run.stalled[worker->index] = run.step + 20 + rnd(200);
    zk_cut(worker->session, rnd(6));
    zk_expire(worker->session);

    return 1;
}


/* the session has no process any more, and will expire */

static void
give_up(worker_t *worker, int process)
{
    if (!zk_is_cut(worker->session)) {
        zk_cut(worker->session, 0);
    }

    run.zombies[run.nzombies] = worker->session;
    run.processes[run.nzombies++] = process;
}


static void
bury(void)
{
    zk_session_t  *session;

    while (run.nzombies != 0) {
        session = run.zombies[--run.nzombies];

        if (run.processes[run.nzombies] != -1) {

            if (run.ndead == DEAD) {
                reclaim();
            }

            run.dead[run.ndead++] = run.processes[run.nzombies];
        }

        trace("zk: an old session expires");

        if (!zk_is_expired(session)) {
            zk_expire(session);
        }

        zk_session_done(session);

        if (!run.calm) {
            break;
        }
    }
}


/* takes the records of dead processes */

static void
reclaim(void)
{
    while (run.ndead != 0) {
        gateway_reclaim(run.dead[--run.ndead]);
    }
}


/* the naive model */

static void
check(void)
{
    int  lock;

    for (lock = 0; lock < run.world.nlocks; lock++) {
        if (run.touched & (1u << lock)) {
            check_lock(lock);
            check_uses(lock);
            check_held(lock);
        }
    }

    run.touched = 0;
}


/* (a) */

static void
check_lock(int lock)
{
    size_t    i, j, n, nalive, nholders, nseats;
    znode_t  *nodes;
    znode_t  *holders[SIM_CHILDREN];

    nodes = zk_nodes(lock, &n);
    nalive = 0;
    nholders = 0;

    for (i = 0; i < n; i++) {

        if (nodes[i].deleted != SIM_ALIVE) {
            continue;
        }

        if (++nalive > counters.longest) {
            counters.longest = nalive;
        }

        if (!holds(nodes, n, &nodes[i])) {
            continue;
        }

        nseats = 1;

        for (j = 0; j < nholders; j++) {
            nseats += (holders[j]->name.kind == nodes[i].name.kind);

            if (excludes(holders[j]->name.kind, nodes[i].name.kind)
                && holders[j]->name.seq != nodes[i].name.seq)
            {
                violation("lock %d: both %d and %d hold", lock,
                          (int) holders[j]->name.seq, (int) nodes[i].name.seq);
            }
        }

        if (nseats > seats(nodes[i].name.kind)) {
            violation("lock %d: %d hold, up to %d", lock, (int) nseats,
                      (int) nodes[i].name.seq);
        }

        holders[nholders++] = &nodes[i];
    }
}


/*
 * A claim behind a claim of another use may be refused.  That claim need not
 * have been first: the worker may know that the claims ahead have ended, and
 * not yet that the claim of another use is gone.
 */

static void
check_uses(int lock)
{
    size_t    i, j, n;
    znode_t  *nodes;

    nodes = zk_nodes(lock, &n);

    for (i = 0; i < n; i++) {

        if (nodes[i].deleted != SIM_ALIVE || nodes[i].clashed) {
            continue;
        }

        for (j = 0; j < n; j++) {
            if (nodes[j].deleted == SIM_ALIVE
                && nodes[j].name.seq < nodes[i].name.seq
                && !mixes(nodes[j].name.kind, nodes[i].name.kind))
            {
                nodes[i].clashed = 1;
            }
        }
    }
}


/* the first live claim, or NULL; any of duplicates, which have the same use */

static znode_t *
first_node(int lock)
{
    size_t    i, n;
    znode_t  *nodes, *first;

    nodes = zk_nodes(lock, &n);
    first = NULL;

    for (i = 0; i < n; i++) {
        if (nodes[i].deleted == SIM_ALIVE
            && (first == NULL || nodes[i].name.seq < first->name.seq))
        {
            first = &nodes[i];
        }
    }

    return first;
}


/* a holder has a znode, unless the session expired: that the worker knows */

static void
check_held(int lock)
{
    int        i;
    size_t     j;
    claim_t   *claim;
    worker_t  *worker;

    for (i = 0; i < run.world.nworkers; i++) {
        worker = gateway_worker(i);

        if (zk_is_expired(worker->session)) {
            continue;
        }

        for (j = 0; j < worker->nclaims; j++) {
            claim = worker->claims[j];

            if (claim->lock == lock && claim->held
                && zk_find(lock, &claim->name) == NULL)
            {
                violation("lock %d: %d holds, but does not exist", lock,
                          (int) claim->name.seq);
            }
        }
    }
}


/* the claims that still wait when all has arrived; the converse of (c), (e) */

static void
check_waiting(worker_t *worker)
{
    int       lock;
    size_t    i, n;
    claim_t  *claim, *first;
    znode_t  *nodes, *node;

    for (lock = 0; lock < run.world.nlocks; lock++) {
        first = NULL;
        nodes = zk_nodes(lock, &n);

        for (i = 0; i < worker->nclaims; i++) {
            claim = worker->claims[i];

            if (claim->lock != lock || claim->held || claim->ended) {
                continue;
            }

            node = zk_find(lock, &claim->name);

            if (node == NULL) {
                violation("lock %d: id %d has no znode", lock,
                          (int) claim->name.id);
                return;
            }

            if (is_next(nodes, n, node)) {
                violation("lock %d: %d waits for nobody", lock,
                          (int) claim->name.seq);
            }

            if (first == NULL || claim->name.seq < first->name.seq) {
                first = claim;
            }
        }

        if (first != NULL && is_stranger(nodes, n, first)) {
            violation("lock %d: %d waits for another use", lock,
                      (int) first->name.seq);
        }
    }
}


/*
 * Whether claims are ahead, all of another use.  Behind a claim of the same use
 * a claim can wait, and need not know what that claim waits for.
 */

static int
is_stranger(znode_t *nodes, size_t n, claim_t *claim)
{
    size_t  i, ahead;

    ahead = 0;

    for (i = 0; i < n; i++) {

        if (nodes[i].deleted != SIM_ALIVE
            || nodes[i].name.seq >= claim->name.seq)
        {
            continue;
        }

        if (mixes(nodes[i].name.kind, claim->name.kind)) {
            return 0;
        }

        ahead++;
    }

    return ahead != 0;
}


static int
holds(znode_t *nodes, size_t n, znode_t *node)
{
    record_t  *r;

    if (node->name.record != SIM_FOREIGN) {
        r = gateway_record(node->name.record);

        return r->state == RECORD_HELD
               && r->id == node->name.id
               && r->seq == node->name.seq;
    }

    return is_next(nodes, n, node);
}


static int
is_next(znode_t *nodes, size_t n, znode_t *node)
{
    size_t  i, ahead;

    ahead = 0;

    for (i = 0; i < n; i++) {

        if (nodes[i].deleted != SIM_ALIVE
            || nodes[i].name.seq >= node->name.seq)
        {
            continue;
        }

        if (excludes(nodes[i].name.kind, node->name.kind)) {
            return 0;
        }

        ahead++;
    }

    return ahead < seats(node->name.kind);
}


static int
excludes(zkl_kind_t one, zkl_kind_t two)
{
    if (one != two) {
        return 1;
    }

    return one == ZKL_MUTEX || one == ZKL_WRITE;
}


static int
mixes(zkl_kind_t one, zkl_kind_t two)
{
    return one == two || (one < ZKL_MEMBER && two < ZKL_MEMBER);
}


/* the most holders of a kind whose claims do not exclude each other */

static size_t
seats(zkl_kind_t kind)
{
    return (kind < ZKL_SEMAPHORE) ? SIM_CHILDREN : zkl_kind_permits(kind);
}


/* a claim of the gateway whose delete is decided, or whose session is over */

static int
decided(znode_t *node)
{
    record_t  *r;

    if (node->name.record == SIM_FOREIGN) {
        return 0;
    }

    r = gateway_record(node->name.record);

    return r->id != node->name.id || r->state == RECORD_ENDED;
}


/* (b) */

void
granted(claim_t *claim)
{
    int       lock, early;
    size_t    i, n, ahead;
    znode_t  *nodes, *node;

    lock = claim->lock;
    early = 0;
    ahead = 0;
    touched(lock);

    node = zk_find(lock, &claim->name);

    if (node == NULL) {
        violation("lock %d: %d is granted, but does not exist", lock,
                  (int) claim->name.seq);
        return;
    }

    nodes = zk_nodes(lock, &n);

    for (i = 0; i < n; i++) {

        if (nodes[i].deleted != SIM_ALIVE
            || nodes[i].name.seq >= node->name.seq)
        {
            continue;
        }

        ahead += !decided(&nodes[i]);

        if (excludes(nodes[i].name.kind, node->name.kind)) {
            early = 1;

            if (!decided(&nodes[i])) {
                violation("lock %d: %d is granted, but %d is ahead", lock,
                          (int) node->name.seq, (int) nodes[i].name.seq);
            }
        }
    }

    counters.handoffs += early;

    if (ahead >= seats(node->name.kind)) {
        violation("lock %d: %d is granted, but %d are ahead", lock,
                  (int) node->name.seq, (int) ahead);
    }

    /* claims of the other kinds may be granted in any order */

    if (node->name.kind != ZKL_MUTEX && node->name.kind != ZKL_WRITE) {
        return;
    }

    if (run.granted_parent[lock] == node->parent
        && run.granted_seq[lock] >= node->name.seq)
    {
        violation("lock %d: %d is granted after %d", lock,
                  (int) node->name.seq, (int) run.granted_seq[lock]);
    }

    run.granted_parent[lock] = node->parent;
    run.granted_seq[lock] = node->name.seq;
}


/* (e) */

void
refused(claim_t *claim)
{
    znode_t  *node;

    check_uses(claim->lock);

    node = zk_find(claim->lock, &claim->name);

    if (node != NULL && !node->clashed) {
        violation("lock %d: %d is refused, but was behind no other use",
                  claim->lock, (int) claim->name.seq);
    }
}
