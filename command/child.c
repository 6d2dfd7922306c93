/*
 * The command: start, signals and end.  The keeper of run.c is the parent, and
 * after the death of the keeper the guard.  The state of the command is a
 * child_t in memory that both share; this file writes that state.
 *
 * The command gets what zk-lock got.  The mask of signals is restored between
 * fork() and exec(), and so is SIGCHLD, the only disposition that zk-lock
 * changes.  The descriptors that were open at the start are recorded, and all
 * later descriptors are closed, because libcurl does not mark all of its own.
 *
 * The command has a process group, but the session of zk-lock, and so the
 * terminal.  If zk-lock is in the foreground of the terminal, the group of the
 * command is put there: keys reach the command alone.  With --foreground the
 * command stays in the group of zk-lock, and gets signals alone.
 *
 * PR_SET_CHILD_SUBREAPER makes the keeper the parent of processes that the
 * command leaves behind, and the guard the parent of processes that the keeper
 * leaves behind, so that no zombie keeps a group alive.  PR_SET_PDEATHSIG helps
 * less: an exec of a set-user-ID program clears the setting, children of the
 * command do not inherit the setting, and the command would get a second TERM
 * beside the TERM of the survivor.
 */

#include "zk-lock.h"

#define CHILD_KILL  1000        /* ms that KILL may take */
#define CHILD_POLL  20          /* ms between looks at a group */

/* as found at the start */
static sigset_t old_mask;
static bool sigchld_ignored;
static fd_set old_fds;          /* those below FD_SETSIZE */
static pid_t own_group;

static bool in_foreground;      /* --foreground */
static child_t *child;
static int terminal = -1;       /* -1: none */


/* Has to run before this process opens or changes anything.  Returns 0, or -1
 * and errno. */
int child_open(bool foreground, child_t *shared)
{
    int fd;

    child = shared;
    in_foreground = foreground;
    own_group = getpgrp();
    for (fd = 0; fd < FD_SETSIZE; fd++) {
        if (fcntl(fd, F_GETFD) != -1)
            FD_SET(fd, &old_fds);
    }

    /* descriptors 0 to 2 are taken, so that no socket becomes standard error */
    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd != -1 && fd <= STDERR_FILENO);
    if (fd == -1)
        return -1;
    close(fd);

    /* a process that ignores SIGCHLD gets no status of children */
    sigchld_ignored = signal(SIGCHLD, SIG_DFL) == SIG_IGN;
    return sigprocmask(SIG_BLOCK, NULL, &old_mask);
}

/* Runs in the parent and in the new process: the first call is in time. */
static void child_set_group(pid_t pid)
{
    child->pid = pid;
    if (in_foreground)
        return;
    child->group = pid;
    setpgid(pid, pid);
    if (child->has_keys)
        tcsetpgrp(terminal, pid);
}

/* Runs in the new process: restores what zk-lock got, and runs the command. */
static void __attribute__((noreturn)) child_exec(char **argv)
{
    int fd, status;

    child_set_group(getpid());
    for (fd = 0; fd < FD_SETSIZE; fd++) {
        if (!FD_ISSET(fd, &old_fds))
            fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    if (sigchld_ignored)
        signal(SIGCHLD, SIG_IGN);
    sigprocmask(SIG_SETMASK, &old_mask, NULL);

    execvp(argv[0], argv);
    status = errno == ENOENT || errno == ENOTDIR ? 127 : 126;
    util_log("cannot run %s: %s", argv[0], strerror(errno));
    _exit(status);
}

/* Starts the command, with the fencing token in the environment unless NULL.
 * Returns 0, or -1 and errno. */
int child_start(char **argv, const char *fencing)
{
    pid_t pid;

    if (fencing && setenv("LOCK_FENCING_TOKEN", fencing, 1) == -1)
        return -1;
    if (terminal == -1)
        terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    *child = (child_t) { .pid = 0 };
    child->has_keys = terminal != -1 && tcgetpgrp(terminal) == own_group;

    pid = fork();
    if (pid == -1)
        return -1;
    if (pid == 0)
        child_exec(argv);
    child_set_group(pid);
    return 0;
}

/* Moves the terminal from a group that is in the foreground to another. */
static void child_move_terminal(pid_t from, pid_t to)
{
    if (child->group && terminal != -1 && tcgetpgrp(terminal) == from)
        tcsetpgrp(terminal, to);
}

/* Reaps the command, and all processes that this process has adopted.  If the
 * command is stopped, stops the job of zk-lock, so that the shell goes on. */
void child_reap(void)
{
    const int flags = WNOHANG | WUNTRACED | WCONTINUED;
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, flags)) > 0) {
        if (pid != child->pid)
            continue;
        child->stopped = WIFSTOPPED(status);
        if (WIFCONTINUED(status))
            continue;
        child_move_terminal(child->group, own_group);
        if (!child->stopped) {
            child->reaped = true;
            child->status = status;
        } else if (child->group && terminal != -1) {
            kill(-own_group, WSTOPSIG(status));
        }
    }
}

/* Runs after SIGCONT, which a shell sends to a job in the foreground. */
void child_continue(void)
{
    if (child->stopped) {
        child_move_terminal(own_group, child->group);
        child_signal(SIGCONT);
    }
}

/* Whether the command and all other processes of its group have ended. */
bool child_is_gone(void)
{
    if (!child->pid)
        return true;
    if (!child->reaped)
        return false;
    return !child->group || (kill(-child->group, 0) == -1 && errno == ESRCH);
}

void child_signal(int signo)
{
    if (!child_is_gone())
        kill(child->group ? -child->group : child->pid, signo);
}

/* Sends TERM; child_try_end() sends KILL when the grace, in ms, is over. */
void child_terminate(int64_t grace)
{
    child_signal(SIGTERM);
    child_signal(SIGCONT);
    child_set_end(grace);
}

/* As child_terminate(), for a command that has a signal already.  The first
 * call sets the time of KILL. */
void child_set_end(int64_t grace)
{
    if (!child->kill_at)
        child->kill_at = util_now() + grace;
}

/* Sends KILL when the grace is over.  Returns true if the command and the group
 * are gone, or if the command is and the group cannot be killed. */
bool child_try_end(void)
{
    int64_t now = util_now();

    if (now >= child->kill_at) {
        child_signal(SIGKILL);
        if (child->reaped && now >= child->kill_at + CHILD_KILL)
            return true;
    }
    return child_is_gone();
}

/* Ends the command, and waits for the end: no lease is renewed meanwhile. */
void child_finish(int64_t grace)
{
    child_terminate(grace);
    child_reap();
    while (!child_try_end() && util_now() < child->kill_at + CHILD_KILL) {
        poll(NULL, 0, CHILD_POLL);
        child_reap();
    }
    child_move_terminal(child->group, own_group);
}

/* Whether a key has ended the command: the job of zk-lock got no signal. */
bool child_was_interrupted(void)
{
    return child->reaped && child->has_keys && WIFSIGNALED(child->status)
           && WTERMSIG(child->status) == SIGINT;
}
