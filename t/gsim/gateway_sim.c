
/*
 * Simulates gateways, with all folders of src/ below http/, on a simulated
 * ZooKeeper; many short histories, each from another seed.
 *
 * usage: gateway_sim [--seeds N] [--from N] [--seconds N] [--quiet] [TRAIT]...
 *        gateway_sim --seed N [--trace | --log] [TRAIT]...
 *
 * A failed history is reported with the seed, and the program ends with 1.
 * --seed with --trace prints all events of the history; --log adds the debug
 * log.
 *
 * A trait is forced on all histories: --rich, see gsim_rich; --sessions, see
 * gsim_about_sessions; --restored, see gsim_restores; --shortage, see
 * gsim_lacks; --late, see gsim_lates; --node, see gsim_solo.c.
 */


#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "gsim.h"


#define GSIM_DRAIN          (120 * GSIM_S)

/*
 * After this time servers that have lost data serve all gateways: two session
 * timeouts, because the close of a session of the older copy may be lost.
 */
#define GSIM_RESTORED       (20 * GSIM_S)

/* seconds of the processor after which src/ is taken for an endless loop */
#define GSIM_ENDLESS        60


gsim_counters_t  gsim_count;
int              gsim_rich;
int              gsim_about_sessions;
int              gsim_restores;
int              gsim_lacks;
int              gsim_lates;
int              gsim_all_solo;
int              gsim_long_names;
int              gsim_denies;
int              gsim_calm;
int              gsim_looked_at;
int              gsim_long_lists;

static int       gsim_all_rich;
static uint64_t  gsim_seed;


static void history(uint64_t seed);
static void history_aborted(int signo);
static void history_run(uint64_t seed);
static void history_settle(void);
static void history_restored(void);
static void history_end(void);
static void usage(void);
static uint64_t number(const char *text);
static double seconds(void);
static void report(double took);


int
main(int argc, char **argv)
{
    int       i, quiet;
    double    began;
    uint64_t  seed, from, seeds, limit;

    from = 1;
    seeds = 1000;
    limit = 0;
    quiet = 0;

    for (i = 1; i < argc; i++) {

        if (strcmp(argv[i], "--trace") == 0) {
            gsim_tracing = 1;

        } else if (strcmp(argv[i], "--log") == 0) {
            gsim_tracing = 1;
            gsim_log_level = NGX_LOG_DEBUG_ALL | NGX_LOG_DEBUG;

        } else if (strcmp(argv[i], "--quiet") == 0) {
            quiet = 1;

        } else if (strcmp(argv[i], "--late") == 0) {
            gsim_lates = 1;

        } else if (strcmp(argv[i], "--node") == 0) {
            gsim_all_solo = 1;

        } else if (strcmp(argv[i], "--shortage") == 0) {
            gsim_lacks = 1;

        } else if (strcmp(argv[i], "--rich") == 0) {
            gsim_all_rich = 1;

        } else if (strcmp(argv[i], "--sessions") == 0) {
            gsim_about_sessions = 1;

        } else if (strcmp(argv[i], "--restored") == 0) {
            gsim_restores = 1;

        } else if (i + 1 == argc) {
            usage();

        } else if (strcmp(argv[i], "--seed") == 0) {
            from = number(argv[++i]);
            seeds = 1;

        } else if (strcmp(argv[i], "--from") == 0) {
            from = number(argv[++i]);

        } else if (strcmp(argv[i], "--seeds") == 0) {
            seeds = number(argv[++i]);

        } else if (strcmp(argv[i], "--seconds") == 0) {
            limit = number(argv[++i]);

        } else {
            usage();
        }
    }

    setvbuf(stdout, NULL, _IOLBF, 0);

    if (gsim_log_level == 0) {
        gsim_log_level = gsim_tracing ? NGX_LOG_INFO : NGX_LOG_ALERT;
    }

    gsim_nginx_init();

    began = seconds();

    for (seed = from; seed - from < seeds || limit != 0; seed++) {

        history(seed);

        if (limit != 0 && seconds() - began >= (double) limit) {
            break;
        }

        if (!quiet && limit != 0 && gsim_count.histories % 20000 == 0) {
            report(seconds() - began);
        }
    }

    report(seconds() - began);

    return 0;
}


static void
history(uint64_t seed)
{
    struct itimerval  limit = { { 0, 0 }, { GSIM_ENDLESS, 0 } };

    gsim_seed = seed;

    (void) signal(SIGVTALRM, history_aborted);

#ifndef __SANITIZE_ADDRESS__
    (void) signal(SIGSEGV, history_aborted);
#endif

    (void) setitimer(ITIMER_VIRTUAL, &limit, NULL);

    gsim_loop_reset(seed);
    gsim_process_reset();

    if (setjmp(gsim_over) != 0) {
        printf("failed: seed %llu; see%s%s%s%s%s%s --seed %llu --trace\n",
               (unsigned long long) seed, gsim_all_rich ? " --rich" : "",
               gsim_about_sessions ? " --sessions" : "",
               gsim_restores ? " --restored" : "",
               gsim_lacks ? " --shortage" : "",
               gsim_lates ? " --late" : "", gsim_all_solo ? " --node" : "",
               (unsigned long long) seed);
        exit(1);
    }

    history_run(seed);

    gsim_count.histories++;
}


static void
history_aborted(int signo)
{
    printf("VIOLATION: %s\nfailed: seed %llu\n",
           signo == SIGSEGV ? "the program crashes" : "a turn does not end",
           (unsigned long long) gsim_seed);
    fflush(stdout);

    _exit(1);
}


static void
history_run(uint64_t seed)
{
    int      i;
    int64_t  until;

    gsim_say("history %llu", (unsigned long long) seed);

    gsim_rich = gsim_all_rich || seed % 2;
    gsim_long_names = (seed % 5 == 3);
    gsim_calm = (seed % 16 == 4 && !gsim_lacks && !gsim_about_sessions);
    gsim_denies = (seed / 4 % 4 == 2);
    gsim_looked_at = (seed / 2 % 4 == 1);
    gsim_long_lists = gsim_looked_at && (seed / 8 % 2);

    gsim_fault_clear();
    gsim_foreign_clear();
    gsim_tree_reset();
    gsim_ensemble_reset();
    gsim_server_reset();
    gsim_client_reset();
    gsim_session_reset();
    gsim_oracle_reset();
    gsim_gateway_reset();

    until = gsim_now + gsim_between(4, 24) * GSIM_S;

    for (i = 0; i < GSIM_GATEWAYS; i++) {
        gsim_gateway_start(&gsim_gateways[i]);

        if (gsim_calm) {

            /* the first gateway's first look at ZooKeeper finds nothing */

            gsim_run(gsim_now + gsim_below(2 * GSIM_S));
        }
    }

    gsim_user_reset(until);
    gsim_foreign_reset(until);
    gsim_fault_reset(until);
    gsim_oracle_owns(NULL, 0);

    if (gsim_denies) {
        gsim_denied_reset(until + gsim_below(20 * GSIM_S));
    }

    if (gsim_looked_at) {
        gsim_look_reset(until);
    }

    if (gsim_all_solo) {
        gsim_solo_reset(until);
    }

    gsim_run(until);

    gsim_fault_heal();

    history_settle();

    if (gsim_restores || (seed % 8 == 6 && !gsim_lacks)) {
        history_restored();
    }

    history_end();
}


/* Waits until no user is busy, and no claim is left. */

static void
history_settle(void)
{
    int64_t  until;

    for (until = gsim_now + GSIM_DRAIN;
         gsim_user_busy() || gsim_foreign_busy() || gsim_look_busy()
         || gsim_solo_busy();)
    {
        if (gsim_now > until) {
            gsim_user_report();
            gsim_violation("a user is busy for ever");
        }

        gsim_run(gsim_now + GSIM_S);
    }

    /* a gateway that is dead starts anew */

    gsim_run(gsim_now + 5 * GSIM_S);

    for (until = gsim_now + GSIM_DRAIN;
         !gsim_oracle_settled() || !gsim_gateway_settled();)
    {

        if (gsim_now > until
            && (!gsim_oracle_settled() || gsim_now > until + 2 * GSIM_DRAIN))
        {
            gsim_violation("claims are left that no user wants");
        }

        gsim_run(gsim_now + GSIM_S);
    }
}


/*
 * The servers have lost what a quorum had committed, so no promise of before
 * holds, and the oracle forgets all holds.  Users come at once, and the
 * gateways have to serve them again some seconds after the servers are there.
 */

static void
history_restored(void)
{
    int64_t  down, until, zxid;

    down = gsim_chance(2) ? gsim_between(20, 1000) * GSIM_MS
                          : gsim_between(1, 15) * GSIM_S;

    gsim_server_restore();
    gsim_ensemble_restart(down);

    gsim_oracle_reset();
    gsim_solo_lost();

    zxid = gsim_zxid;
    until = gsim_now + down + GSIM_RESTORED;
    gsim_quiet = until;

    gsim_user_again(until + gsim_between(5, 15) * GSIM_S);

    while (gsim_now < until) {
        gsim_run(gsim_now + GSIM_S);

        /* a lease of the copy is held at gateways that do not know its end */

        if (gsim_oracle_before(zxid)) {
            gsim_quiet = gsim_now + GSIM_RESTORED;
        }
    }

    history_settle();
}


/* Stops all gateways, and checks that no claim and no record is left. */

static void
history_end(void)
{
    int              i;
    int64_t          until;
    gsim_process_t  *p;

    /* another worker adopts the slot, and ends while the claims end */

    if (gsim_chance(4)) {
        p = gsim_gateway_pick((int) gsim_below(GSIM_GATEWAYS));

        if (p != NULL && !p->in_turn) {
            gsim_process_kill(p);
            gsim_run(gsim_now + gsim_below(gsim_chance(2) ? 20 * GSIM_MS
                                                          : GSIM_S));
        }
    }

    for (i = 0; i < GSIM_GATEWAYS; i++) {
        gsim_gateway_stop(&gsim_gateways[i]);
    }

    until = gsim_now + GSIM_DRAIN;

    for (i = 0; i < GSIM_GATEWAYS; ) {

        if (gsim_gateway_stopped(&gsim_gateways[i])) {
            i++;
            continue;
        }

        if (gsim_now > until) {
            gsim_violation("gateway %d does not stop", i);
        }

        gsim_run(gsim_now + 100 * GSIM_MS);
    }

    for (i = 0; i < GSIM_GATEWAYS; i++) {
        gsim_gateway_check(&gsim_gateways[i]);
    }

    gsim_run(gsim_now + 8 * GSIM_S);

    if (!gsim_oracle_empty()) {
        gsim_violation("something is left in ZooKeeper");
    }
}


static void
usage(void)
{
    fprintf(stderr, "usage: gateway_sim [--seeds N] [--from N] [--seconds N] "
            "[--quiet] [TRAIT]...\n       gateway_sim --seed N "
            "[--trace | --log] [TRAIT]...\n"
            "traits: --rich --sessions --restored --shortage --late --node\n");
    exit(2);
}


static uint64_t
number(const char *text)
{
    char      *end;
    uint64_t   n;

    n = strtoull(text, &end, 10);

    if (*text == '\0' || *end != '\0') {
        usage();
    }

    return n;
}


/* The only look at the real time: how long the run took. */

static double
seconds(void)
{
    struct timeval  tv;

    gettimeofday(&tv, NULL);

    return (double) tv.tv_sec + (double) tv.tv_usec / 1e6;
}


static void
report(double took)
{
    gsim_counters_t  *c;

    c = &gsim_count;

#define N(name)  (unsigned long long) c->name

    printf("  acquires %llu, grants %llu, handoffs %llu, taken %llu, twins "
           "%llu, left %llu, unseen %llu, foreign %llu\n", N(acquires),
           N(grants), N(handoffs), N(taken), N(twins), N(left), N(unseen),
           N(foreign));
    printf("  polls %llu, renewals %llu, releases %llu, elsewhere %llu, "
           "lapses %llu, unreachable %llu\n", N(polls), N(renewals),
           N(releases), N(elsewhere), N(lapses), N(unreachable));
    printf("  held again %llu, beside releases %llu, once less %llu, shared "
           "%llu, other uses refused %llu, revoked %llu, bound %llu (lost "
           "%llu, hung up %llu), several %llu\n", N(again), N(met),
           N(once_less), N(shared), N(conflicts), N(revoked), N(bound), N(lost),
           N(hung_up), N(several));
    printf("  deleted by hand %llu, cancelled beside who waits %llu, foreign "
           "writers that became readers %llu\n", N(by_hand), N(cancelled),
           N(downgrades));
    printf("  made by name %llu, znodes compared with claims %llu, counts of "
           "watches %llu, of sessions %llu, reads compared %llu, refused by "
           "quotas %llu, by an ACL %llu, one-node grants %llu\n", N(planted),
           N(compared), N(watched), N(counts), N(reads), N(quotas), N(denied),
           N(solos));
    printf("  looks %llu, news of a lock %llu, followed locks compared %llu, "
           "calls of sharers %llu\n", N(looks), N(news), N(followed),
           N(crowded));
    printf("  cuts %llu, partitions %llu, slow %llu, sessions expired %llu, "
           "crashes %llu (in a turn %llu, before a store %llu), stops %llu, "
           "naps %llu\n", N(cuts), N(partitions), N(slow), N(expired),
           N(crashes), N(midway), N(stores), N(stops), N(naps));
    printf("  writes between a read and a write %llu\n", N(lurks));
    printf("  servers that stood still %llu, elections %llu, cut off %llu, "
           "uneven links %llu, lost data %llu\n", N(pauses), N(elections),
           N(minorities), N(uneven), N(restored));
    printf("  reloads %llu, gateways lost %llu, quits %llu, "
           "terminations %llu, clock jumps %llu, "
           "containers reaped %llu, pids taken %llu\n", N(reloads), N(gateways),
           N(quits), N(terms), N(jumps), N(reaped), N(strangers));
    printf("passed: %llu histories in %.1f s, %.0f a second, %llu events\n",
           N(histories), took, (double) c->histories / (took + 1e-9),
           N(events));

#undef N
}
