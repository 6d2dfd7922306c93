/* run, lead and join, by two processes, each of which ends the command and
 * releases the lock when the other dies, also by kill -9:
 *
 *     the guard   is what the user has started, and stays where it was put: in
 *                 its group, a job of a shell.  It passes signals on, stops and
 *                 continues with its job, and ends with the keeper's status.
 *                 It kills a keeper that lets a deadline pass.
 *     the keeper  has the event loop: calls, times, signals, and the command
 *
 * They share memory with the lease and the command, which the keeper writes,
 * and after the keeper's death the guard.
 *
 * The command gets a signal once.  A service manager sends it to zk-lock alone
 * (KillMode=mixed), or to all of a control group, and so to the command, too; a
 * terminal sends it to a process group.  The keeper is the witness: it is in
 * the command's control group, and with --foreground in its process group,
 * under a name that no pkill(1) of zk-lock finds.  It passes on what the guard
 * got, unless it got the same from the same sender. */

#include "zk-lock.h"

#define RUN_WITNESS  100        /* ms between the signals of one kill of all */
#define RUN_CHECK    5000       /* ms between two checks of "join" */
#define RUN_PAUSE    1000       /* ms between two tries of "lead" and "join" */
#define RUN_LATER    1000       /* ms that the guard is later than the keeper */
#define RUN_POLL     50         /* ms between looks at a group */

/* how the command ended, or why it is ended */
typedef enum { BY_ITSELF = 0, LOST, SILENCE, ASKED_FOR, TOO_LONG, KILLED }
run_end_e;

static const char *const run_reasons[] = { NULL,
    "the lock is lost, the gateway says so",
    "the lock is lost, nothing was heard from the gateway",
    "the lock is asked for", "the lock was held for the time of --max-hold",
    "zk-lock was killed" };

static struct {
    lease_t lease;
    child_t child;
    volatile int64_t deadline;  /* when the guard kills the keeper, while it
                                   holds the lock; else 0 */
} *shared;

static const options_t *opt;
static int peer;            /* a socket to the other process */
static int signals;
static int stopped;            /* 128 and a signal, or 0 */
static bool orphaned;       /* the guard has died */

/* what the guard got and the keeper passes on, and what the keeper got */
static struct { int64_t when; unsigned sender; } told[NSIG], seen[NSIG];

/* Blocks and reads the signals that zk-lock was not started to ignore. */
static int run_take_signals(sigset_t *set)
{
    static const int taken[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1,
                                 SIGUSR2, SIGCONT, SIGCHLD };
    struct sigaction action;
    size_t i;
    sigemptyset(set);
    for (i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        if (!sigaction(taken[i], NULL, &action) && action.sa_handler != SIG_IGN)
            sigaddset(set, taken[i]);
    signals = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
    sigaddset(set, SIGPIPE);
    return signals == -1 || prctl(PR_SET_CHILD_SUBREAPER, 1) == -1
           ? -1 : sigprocmask(SIG_BLOCK, set, NULL);
}

static void run_note_stop(int signo)
{
    if (signo == SIGHUP && shared->deadline && opt->command == LEAD)
        return;                 /* a server reads its configuration again */
    if (!stopped && (signo == SIGHUP || signo == SIGINT || signo == SIGQUIT
                      || signo == SIGTERM))
        stopped = 128 + signo;
}

/* Of the keeper: waits until then, or for an event, and takes all events but
 * answers.  Returns true if zk-lock is to end. */
static bool run_wait(int64_t until)
{
    struct curl_waitfd fds[] = { { signals, CURL_WAIT_POLLIN, 0 },
                                 { peer, CURL_WAIT_POLLIN, 0 } };
    struct signalfd_siginfo info;
    ssize_t n = -1;
    unsigned i;
    for (i = 0; i < NSIG; i++)
        if (told[i].when)
            until = MIN(until, told[i].when + RUN_WITNESS);
    http_wait(fds, orphaned ? 1 : 2, until);

    while (read(signals, &info, sizeof(info)) == sizeof(info)) {
        seen[info.ssi_signo].when = now();
        seen[info.ssi_signo].sender = info.ssi_pid;
    }
    child_reap();
    errno = EAGAIN;
    while (!orphaned && (n = recv(peer, &info, sizeof(info), MSG_DONTWAIT))
                        == sizeof(info)) {
        run_note_stop((int) info.ssi_signo);
        told[info.ssi_signo].when = now();
        told[info.ssi_signo].sender = info.ssi_pid;
    }
    orphaned = orphaned || n == 0 || errno != EAGAIN;
    for (i = 0; i < NSIG; i++) {
        if (!told[i].when)
            continue;
        if (seen[i].when && seen[i].sender == told[i].sender
            && now() - seen[i].when < 10 * RUN_WITNESS)
            seen[i].when = 0;       /* the command has it */
        else if (now() - told[i].when < RUN_WITNESS)
            continue;
        else if (i == SIGCONT)
            child_continue();
        else
            child_signal((int) i);
        told[i].when = 0;
    }
    return stopped || orphaned;
}

static bool run_start(char **argv, const char *fencing)
{
    if (child_start(argv, fencing) == 0)
        return true;
    say("cannot start a process: %s", strerror(errno));
    return false;
}

static int run_status(void)
{
    int status = shared->child.status;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Whether the command has to be ended now, and why. */
static run_end_e run_reason(int64_t too_long)
{
    lease_state_e lease = lease_step();
    return lease == LEASE_LOST ? LOST : now() >= lease_deadline() ? SILENCE
           : lease == LEASE_ASKED_FOR && opt->command == LEAD ? ASKED_FOR
           : now() >= too_long ? TOO_LONG : orphaned ? KILLED : BY_ITSELF;
}

/* Runs the command while the lock is held, or the check of "join" each five
 * seconds, or nothing.  Returns how it ended, and the status of the command. */
static run_end_e run_hold(char **argv, int *status)
{
    enum { RESTING, RUNNING, ENDING } state = RESTING;
    child_t *child = &shared->child;
    const bool join = opt->command == JOIN;
    int64_t start_at = !join ? 0 : *argv ? now() + RUN_CHECK : NEVER;
    int64_t too_long = !opt->max_hold ? NEVER
                       : shared->lease.sent + opt->max_hold;
    run_end_e end = BY_ITSELF;
    *status = EXIT_SYSTEM;
    *child = (child_t) { .pid = 0 };
    shared->deadline = lease_deadline() + RUN_LATER;
    send(peer, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);     /* look at it */

    for (;;) {
        /* the end of a group comes without a signal */
        int64_t until = state == ENDING ? now() + RUN_POLL
                        : state == RESTING ? start_at : NEVER;
        if (state == RESTING && now() >= start_at) {
            if (!run_start(argv, shared->lease.fencing))
                break;
            state = RUNNING;
            until = NEVER;
        }
        if (end != LOST && end != SILENCE)
            until = MIN(until, MIN(lease_next(), lease_deadline()));
        run_wait(MIN(until, end ? NEVER : too_long));

        if (end != LOST && end != SILENCE) {
            run_end_e why = run_reason(end ? NEVER : too_long);
            if (why && !end) {
                say("%s%s", run_reasons[why],
                    state == RESTING ? "" : ": ending the command");
                child_end(true, opt->grace);
                state = ENDING;
            }
            end = why && (!end || why <= SILENCE) ? why : end;
        }
        if (state == RUNNING && child->reaped) {
            *status = run_status();
            if (join && *status == 0) {
                start_at = now() + RUN_CHECK;
                state = RESTING;
            } else if (*status >= 129 && *status < 160) {
                /* a shell that a signal has ended leaves behind what it ran */
                child_end(false, opt->grace);
                state = ENDING;
            } else {
                break;
            }
        }
        if (join && state == RUNNING && stopped) {
            child_end(false, opt->grace);
            state = ENDING;
        }
        if (state == ENDING ? child_ended() : state == RESTING && stopped)
            break;
        /* a command of another user, as under sudo(8), cannot be killed */
        shared->deadline = state != ENDING ? lease_deadline() + RUN_LATER
            : now() < child->kill_at ? child->kill_at + RUN_LATER : 0;
    }

    shared->deadline = 0;
    if (child->reaped)
        *status = run_status();
    return end;
}

/* Whether a check without a lease succeeds, of "join". */
static bool run_check(char **argv)
{
    if (!*argv)
        return true;
    if (!run_start(argv, NULL))
        return false;
    while (!shared->child.reaped) {
        run_wait(NEVER);
        if (stopped || orphaned)
            child_finish(opt->grace);
    }
    return run_status() == 0;
}

/* A term: acquires the lock, holds it, and releases it.  Sets the status. */
static run_end_e run_term(char **argv, int *status)
{
    int64_t keep_until;
    run_end_e end;
    *status = lease_acquire();
    if (*status || stopped || orphaned) {
        lease_take_back();
        if (*status == EXIT_TAKEN)
            *status = (int) opt->taken_status;
        return LOST;
    }
    keep_until = shared->lease.sent + opt->min_hold + RUN_PAUSE;
    end = run_hold(argv, status);
    if (end == LOST || end == SILENCE) {
        lease_forget();
        *status = EXIT_LOST;
    } else if (!lease_release(end || !opt->min_hold ? 0 : keep_until)) {
        say("the lock was lost before the command ended");
        *status = EXIT_LOST;
    } else if (end == TOO_LONG) {
        *status = EXIT_TOO_LONG;
    }
    return end;
}

/* The keeper.  A "run" ends after a term, a "lead" with its command, and a
 * "join" with a signal.  Returns the exit status. */
static int run_keeper(const char *lock, char **argv, char *title, size_t size)
{
    int64_t until;
    int status;
    bool over;
    sigset_t set;
    prctl(PR_SET_NAME, "lock-keeper");
    memset(title, 0, size);
    snprintf(title, size, "lock-keeper");
    if (!opt->foreground)
        setpgid(0, 0);
    if (run_take_signals(&set) == -1
        || (sigfillset(&set), sigprocmask(SIG_SETMASK, &set, NULL)) == -1) {
        say("cannot start: %s", strerror(errno));
        return EXIT_SYSTEM;
    }
    status = http_open(opt);
    lease_open(opt, lock, &shared->lease, run_wait);

    over = status != 0;

    while (!over) {
        run_end_e end = LOST;
        if ((opt->command != JOIN || run_check(argv)) && !stopped)
            end = run_term(argv, &status);
        over = opt->command == RUN
               || (opt->command == LEAD && end == BY_ITSELF);
        if (over && status != -1)
            break;
        until = now() + RUN_PAUSE;
        while (now() < until && !stopped && !orphaned)
            run_wait(until);
        if (stopped || orphaned)
            over = true;
        status = stopped;
    }
    http_close();
    return status;
}

/* Of the guard: returns the keeper's exit status, or -1 if it was killed. */
static int run_guard(pid_t keeper, int timer)
{
    struct pollfd fds[] = { { signals, POLLIN, 0 }, { timer, POLLIN, 0 },
                            { peer, POLLIN, 0 } };
    struct signalfd_siginfo info;
    char byte;
    int status;
    for (;;) {
        int64_t deadline = shared->deadline;
        struct itimerspec when = {
            .it_value = { .tv_sec = deadline / 1000,
                          .tv_nsec = deadline % 1000 * 1000000 } };

        if (deadline && now() >= deadline)
            kill(keeper, SIGKILL);
        timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
        poll(fds, 3, -1);
        if (recv(peer, &byte, 1, MSG_DONTWAIT) < 1 && errno != EAGAIN)
            fds[2].fd = -1;             /* SIGCHLD is next */

        while (read(signals, &info, sizeof(info)) == sizeof(info)) {
            if (info.ssi_signo != SIGCHLD) {
                send(peer, &info, sizeof(info), MSG_NOSIGNAL | MSG_DONTWAIT);
                run_note_stop((int) info.ssi_signo);
            } else if (waitpid(keeper, &status, WNOHANG) == keeper) {
                return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
            }
        }
    }
}

/* Returns the exit status.  The title is where ps(1) reads the arguments. */
int run(const options_t *options, const char *lock, char **argv, char *title,
        size_t title_size)
{
    int pair[2], timer, status;
    pid_t keeper;
    sigset_t set;
    opt = options;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED
        || child_open(options->foreground, &shared->child) == -1
        || (timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC)) == -1
        || run_take_signals(&set) == -1)
        goto failed;

    for (;;) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == -1
            || (keeper = fork()) == -1)
            goto failed;
        if (keeper == 0) {
            close(pair[0]);
            close(signals);
            peer = pair[1];
            return run_keeper(lock, argv, title, title_size);
        }
        close(pair[1]);
        peer = pair[0];
        status = run_guard(keeper, timer);
        close(peer);
        if (status != -1)
            break;

        /* what the keeper would have done in the end */
        say("the process that renews was killed%s",
            child_gone() ? "" : ": ending the command");
        child_finish(opt->grace);
        lease_open(opt, lock, &shared->lease, NULL);
        if (http_open(opt) == 0)
            lease_take_back();
        http_close();
        shared->deadline = 0;
        shared->child = (child_t) { .pid = 0 };
        if (stopped || opt->command == RUN)
            return stopped ? stopped : EXIT_LOST;
        poll(NULL, 0, RUN_PAUSE);
    }

    if (child_was_interrupted()) {
        /* the terminal has sent it to the command's group alone */
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        kill(options->foreground ? getpid() : 0, SIGINT);
    }
    return status;

failed:
    say("cannot start: %s", strerror(errno));
    return EXIT_SYSTEM;
}
