/*
 * run, lead and join, by two processes.  Each ends the command and releases the
 * lock when the other dies, also by kill -9:
 *
 *     the guard   is the process that the user has started, and stays in its
 *                 group, as a job of a shell.  The guard passes signals on,
 *                 stops and continues with the job, and exits with the status
 *                 of the keeper.  A keeper that lets a deadline pass is killed.
 *     the keeper  has the event loop: calls, times, signals, and the command
 *
 * Both share memory with the lease and the command.  The keeper writes to this
 * memory, and after the death of the keeper the guard does.
 *
 * The command gets a signal once.  A service manager sends a signal to zk-lock
 * alone (KillMode=mixed), or to all processes of a control group, and so to the
 * command, too; a terminal sends to a process group.  The keeper is the
 * witness, because the keeper is in the control group of the command, and with
 * --foreground in the same process group, under a name that no pkill(1) of
 * zk-lock finds.  The keeper passes on a signal of the guard, unless the keeper
 * got the same signal from the same sender.
 */

#include "zk-lock.h"

#define RUN_WITNESS  100        /* ms between the signals of one kill of all */
#define RUN_SEEN     1000       /* ms after which such a signal is another */
#define RUN_CHECK    5000       /* ms between two checks of "join" */
#define RUN_PAUSE    1000       /* ms between two tries of "lead" and "join" */
#define RUN_LATER    1000       /* ms that the guard is later than the keeper */
#define RUN_POLL     50         /* ms between looks at a group */

/* What a term is doing.  A check of "join" is a command.
 *
 *     RESTING   no command runs
 *         -> RUNNING   the time of the start has come
 *         -> OVER      a signal, or the command cannot be started
 *     RUNNING
 *         -> RESTING   a check has succeeded
 *         -> ENDING    a shell was killed by a signal; a signal during a check
 *         -> OVER      the command has ended
 *     ENDING    the command and its group have the time of --grace
 *         -> OVER      all processes of the group have ended
 *
 * A reason to end leads from RESTING and RUNNING to ENDING, too. */
typedef enum { RUN_RESTING = 0, RUN_RUNNING, RUN_ENDING, RUN_OVER } run_state_e;

/* Why the command is ended.  The lease is renewed unless LOST or SILENT. */
typedef enum { RUN_NO_REASON = 0, RUN_LOST, RUN_SILENT, RUN_REVOKED,
               RUN_TOO_LONG, RUN_ORPHANED } run_reason_e;

static const char *const run_reasons[] = {
    NULL, "the lock is lost, the gateway says so",
    "the lock is lost, nothing was heard from the gateway",
    "the lock is asked for", "the lock was held for the time of --max-hold",
    "zk-lock was killed"
};

static struct {
    lease_t lease;
    child_t child;
    /* when the guard kills the keeper; 0: the keeper holds no lock */
    volatile int64_t deadline;
} *shared;

static const options_t *opt;
static int peer;                /* a socket to the other process */
static int signals;             /* a signalfd */
static int stopped;             /* 128 and the signal that ends zk-lock, or 0 */
static bool orphaned;           /* the guard has died */

/* In the keeper, the last signal of each number that the guard got, and that
 * the keeper got; a time of 0 is none. */
static struct { int64_t when; unsigned sender; } from_guard[NSIG], seen[NSIG];


/* Blocks signals, and opens the descriptor that reads them.  A signal that
 * zk-lock was started to ignore stays ignored.  Sets the signals that are
 * blocked; returns 0, or -1 and errno. */
static int run_open_signals(sigset_t *set)
{
    static const int wanted[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1,
                                  SIGUSR2, SIGCONT, SIGCHLD };
    struct sigaction action;
    size_t i;

    sigemptyset(set);
    for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (sigaction(wanted[i], NULL, &action) == 0
            && action.sa_handler != SIG_IGN)
            sigaddset(set, wanted[i]);
    }
    signals = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals == -1 || prctl(PR_SET_CHILD_SUBREAPER, 1) == -1)
        return -1;
    sigaddset(set, SIGPIPE);
    return sigprocmask(SIG_BLOCK, set, NULL);
}

/* Sets stopped, by the first signal that ends zk-lock. */
static void run_note_stop(int signo)
{
    if (signo == SIGHUP && shared->deadline && opt->command == LEAD)
        return;                 /* a server reads its configuration again */
    if (!stopped && (signo == SIGHUP || signo == SIGINT || signo == SIGQUIT
                     || signo == SIGTERM))
        stopped = 128 + signo;
}

/* Takes the signals of the keeper and of the guard; sees the guard's death. */
static void run_take_signals(void)
{
    struct signalfd_siginfo info;
    ssize_t n;

    while (read(signals, &info, sizeof(info)) == sizeof(info)) {
        seen[info.ssi_signo].when = util_now();
        seen[info.ssi_signo].sender = info.ssi_pid;
    }
    if (orphaned)
        return;
    while ((n = recv(peer, &info, sizeof(info), MSG_DONTWAIT))
           == sizeof(info)) {
        run_note_stop((int) info.ssi_signo);
        from_guard[info.ssi_signo].when = util_now();
        from_guard[info.ssi_signo].sender = info.ssi_pid;
    }
    orphaned = n == 0 || (n == -1 && errno != EAGAIN);
}

/* Sends the signals of the guard to the command, except those that the command
 * has already, when the witness has had the time to see so. */
static void run_pass_signals(void)
{
    int64_t now = util_now();
    int i;

    for (i = 0; i < NSIG; i++) {
        if (!from_guard[i].when)
            continue;
        if (seen[i].when && seen[i].sender == from_guard[i].sender
            && now - seen[i].when < RUN_SEEN)
            seen[i].when = 0;
        else if (now - from_guard[i].when < RUN_WITNESS)
            continue;
        else if (i == SIGCONT)
            child_continue();
        else
            child_signal(i);
        from_guard[i].when = 0;
    }
}

/* The wait of the keeper, until then or for an event.  Takes all events except
 * the answers to calls.  Returns true if zk-lock has to end. */
static bool run_wait(int64_t until)
{
    struct curl_waitfd fds[] = { { signals, CURL_WAIT_POLLIN, 0 },
                                 { peer, CURL_WAIT_POLLIN, 0 } };
    int i;

    for (i = 0; i < NSIG; i++) {
        if (from_guard[i].when)
            until = MIN(until, from_guard[i].when + RUN_WITNESS);
    }
    http_wait(fds, orphaned ? 1 : 2, until);
    run_take_signals();
    child_reap();
    run_pass_signals();
    return stopped || orphaned;
}

static bool run_start(char **argv, const char *fencing)
{
    if (child_start(argv, fencing) == -1) {
        util_log("cannot start a process: %s", strerror(errno));
        return false;
    }
    return true;
}

/* The status of the command as a shell has it. */
static int run_status(void)
{
    int status = shared->child.status;

    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static bool run_is_lost(run_reason_e reason)
{
    return reason == RUN_LOST || reason == RUN_SILENT;
}

/* Renews the lease, and returns why the command has to be ended now. */
static run_reason_e run_find_reason(int64_t too_long)
{
    lease_state_e lease = lease_step();
    int64_t now = util_now();

    if (lease == LEASE_LOST)
        return RUN_LOST;
    if (now >= lease_deadline())
        return RUN_SILENT;
    if (lease == LEASE_REVOKED && opt->command == LEAD)
        return RUN_REVOKED;
    if (now >= too_long)
        return RUN_TOO_LONG;
    return orphaned ? RUN_ORPHANED : RUN_NO_REASON;
}

/* A command of another user, as under sudo(8), cannot be killed.  So the guard
 * does not kill the keeper for a command that outlives KILL. */
static void run_set_deadline(run_state_e state)
{
    if (state != RUN_ENDING)
        shared->deadline = lease_deadline() + RUN_LATER;
    else if (util_now() < shared->child.kill_at)
        shared->deadline = shared->child.kill_at + RUN_LATER;
    else
        shared->deadline = 0;
}

/* Runs the command while the lock is held; of "join" the check each five
 * seconds, or none.  Returns why the command was ended, and sets the status of
 * the command. */
static run_reason_e run_hold(char **argv, int *status)
{
    const bool join = opt->command == JOIN;
    child_t *child = &shared->child;
    run_reason_e found, reason = RUN_NO_REASON;
    run_state_e before, state = RUN_RESTING;
    int64_t until, start_at = 0, too_long = NEVER;

    if (join)
        start_at = *argv ? util_now() + RUN_CHECK : NEVER;
    if (opt->max_hold)
        too_long = shared->lease.sent + opt->max_hold;
    *status = EXIT_SYSTEM;
    *child = (child_t) { .pid = 0 };
    run_set_deadline(state);
    send(peer, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);     /* wakes the guard */

    while (state != RUN_OVER) {
        before = state;
        if (!run_is_lost(reason)) {
            found = run_find_reason(too_long);
            if (found && !reason) {
                util_log("%s%s", run_reasons[found], state == RUN_RESTING
                         ? "" : ": ending the command");
                child_terminate(opt->grace);
                reason = found;
                too_long = NEVER;
                state = RUN_ENDING;
            } else if (run_is_lost(found)) {
                reason = found;
            }
        }

        switch (state) {
        case RUN_RESTING:
            if (stopped)
                state = RUN_OVER;
            else if (util_now() >= start_at)
                state = run_start(argv, shared->lease.fencing) ? RUN_RUNNING
                                                               : RUN_OVER;
            break;

        case RUN_RUNNING:
            if (child->reaped) {
                *status = run_status();
                if (join && *status == 0) {
                    start_at = util_now() + RUN_CHECK;
                    state = RUN_RESTING;
                } else if (*status > 128 && *status < 160) {
                    /* a shell that a signal has ended leaves children behind */
                    child_set_end(opt->grace);
                    state = RUN_ENDING;
                } else {
                    state = RUN_OVER;
                }
            } else if (join && stopped) {
                child_set_end(opt->grace);
                state = RUN_ENDING;
            }
            break;

        case RUN_ENDING:
            if (child_try_end())
                state = RUN_OVER;
            break;

        case RUN_OVER:
            break;
        }

        if (state != before)
            continue;           /* the next transition may be due, too */
        until = NEVER;
        if (state == RUN_RESTING)
            until = start_at;
        else if (state == RUN_ENDING)
            until = util_now() + RUN_POLL;  /* a group ends without a signal */
        if (!run_is_lost(reason))
            until = MIN(until, MIN(lease_next(), lease_deadline()));
        run_set_deadline(state);
        run_wait(MIN(until, too_long));
    }

    shared->deadline = 0;
    if (child->reaped)
        *status = run_status();
    return reason;
}

/* Whether a check of "join" succeeds, without a lease. */
static bool run_check(char **argv)
{
    if (!*argv)
        return true;
    if (!run_start(argv, NULL))
        return false;
    while (!shared->child.reaped) {
        if (run_wait(NEVER))
            child_finish(opt->grace);
    }
    return run_status() == 0;
}

/* Acquires the lock, holds the lock, and releases the lock.  Returns why the
 * command was ended; without a grant RUN_LOST.  Sets the exit status, or -1 if
 * the wait was interrupted. */
static run_reason_e run_term(char **argv, int *status)
{
    int64_t keep_until = 0;
    run_reason_e reason;

    *status = lease_acquire();
    if (*status || stopped || orphaned) {
        lease_take_back();
        if (*status == EXIT_TAKEN)
            *status = (int) opt->taken_status;
        return RUN_LOST;
    }
    if (opt->min_hold)
        keep_until = shared->lease.sent + opt->min_hold + RUN_PAUSE;
    reason = run_hold(argv, status);
    if (run_is_lost(reason)) {
        lease_forget();
        *status = EXIT_LOST;
    } else if (!lease_release(reason ? 0 : keep_until)) {
        util_log("the lock was lost before the command ended");
        *status = EXIT_LOST;
    } else if (reason == RUN_TOO_LONG) {
        *status = EXIT_TOO_LONG;
    }
    return reason;
}

/* A "run" ends after a term, a "lead" with its command, and a "join" with a
 * signal.  Returns the exit status. */
static int run_terms(char **argv)
{
    for (;;) {
        run_reason_e reason = RUN_LOST;
        int64_t until;
        int status = 0;

        if ((opt->command != JOIN || run_check(argv)) && !stopped)
            reason = run_term(argv, &status);
        if (opt->command == RUN
            || (opt->command == LEAD && reason == RUN_NO_REASON))
            return status == -1 ? stopped : status;
        until = util_now() + RUN_PAUSE;
        while (util_now() < until && !stopped && !orphaned)
            run_wait(until);
        if (stopped || orphaned)
            return stopped;
    }
}

/* The keeper.  The title is where ps(1) reads the arguments.  Returns the exit
 * status. */
static int run_keeper(const char *lock, char **argv, char *title, size_t size)
{
    sigset_t set;
    int status;

    prctl(PR_SET_NAME, "lock-keeper");
    memset(title, 0, size);
    snprintf(title, size, "lock-keeper");
    if (!opt->foreground)
        setpgid(0, 0);
    status = run_open_signals(&set);
    sigfillset(&set);
    if (status == -1 || sigprocmask(SIG_SETMASK, &set, NULL) == -1) {
        util_log("cannot start: %s", strerror(errno));
        return EXIT_SYSTEM;
    }
    lease_open(opt, lock, &shared->lease, run_wait);
    status = http_open(opt);
    if (status == 0)
        status = run_terms(argv);
    http_close();
    return status;
}

/* The guard, while there is a keeper.  Returns the exit status of the keeper,
 * or -1 if the keeper was killed. */
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

        if (deadline && util_now() >= deadline)
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

/* The guard, after the death of the keeper: what the keeper does in the end.
 * After lease_deadline() the guard has killed the keeper itself: a suspension
 * of the machine wakes both at once, and the guard may be first. */
static void run_clean_up(const char *lock)
{
    const char *reason = "the process that renews was killed";

    lease_open(opt, lock, &shared->lease, NULL);
    if (shared->deadline && util_now() >= lease_deadline())
        reason = run_reasons[RUN_SILENT];
    util_log("%s%s", reason, child_is_gone() ? "" : ": ending the command");
    child_finish(opt->grace);
    if (http_open(opt) == 0)
        lease_take_back();
    http_close();
    shared->deadline = 0;
    shared->child = (child_t) { .pid = 0 };
}

/* Returns the exit status, in the guard and in the keeper.  The title is where
 * ps(1) reads the arguments. */
int run_command(const options_t *options, const char *lock, char **argv,
                char *title, size_t title_size)
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
        || run_open_signals(&set) == -1)
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
        run_clean_up(lock);
        if (stopped)
            return stopped;
        if (opt->command == RUN)
            return EXIT_LOST;
        poll(NULL, 0, RUN_PAUSE);
    }

    if (child_was_interrupted()) {
        /* a terminal has sent INT to the group of the command alone */
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        kill(options->foreground ? getpid() : 0, SIGINT);
    }
    return status;

failed:
    util_log("cannot start: %s", strerror(errno));
    return EXIT_SYSTEM;
}
