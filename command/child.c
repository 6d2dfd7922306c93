/* The command: what the keeper starts, signals and ends.  After the keeper's
 * death the guard does so, to which the command then belongs.
 *
 * The command gets what zk-lock got.  The mask of signals is restored between
 * fork() and exec(), and so is SIGCHLD, the one disposition that is changed.
 * The descriptors that were open at the start are noted, and all others are
 * closed: libcurl does not mark all of its own.
 *
 * The command has a process group, but zk-lock's session, and so its terminal.
 * If zk-lock is in the foreground of the terminal the command's group is put
 * there: keys reach the command and nothing else.  With --foreground the
 * command stays in the group of zk-lock, and is signalled alone.
 *
 * PR_SET_CHILD_SUBREAPER makes the keeper the parent of what the command leaves
 * behind, and the guard of what the keeper does, so that no zombie of theirs
 * keeps a group alive.  PR_SET_PDEATHSIG helps less: an exec of a set-user-ID
 * program clears it, a process that the command starts has none, and the
 * command would get TERM once more beside the TERM of the survivor. */

#include "zk-lock.h"

#define CHILD_KILL  1000        /* ms that KILL may take */

/* what was found at the start */
static sigset_t old_mask;
static bool sigchld_ignored;
static fd_set old_fds;          /* those below FD_SETSIZE */
static pid_t own_group;

static bool foreground;         /* --foreground */
static child_t *child;
static int terminal = -1;       /* -1: there is none */

/* Before this process opens or changes anything; returns 0, or -1 and errno. */
int child_open(bool stays, child_t *shared)
{
    int fd;
    child = shared;
    foreground = stays;
    own_group = getpgrp();
    for (fd = 0; fd < FD_SETSIZE; fd++)
        if (fcntl(fd, F_GETFD) != -1)
            FD_SET(fd, &old_fds);

    /* what zk-lock opens is not to be its standard error */
    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd != -1 && fd <= STDERR_FILENO);
    if (fd == -1)
        return -1;
    close(fd);

    /* where SIGCHLD is ignored a command has no status */
    sigchld_ignored = signal(SIGCHLD, SIG_DFL) == SIG_IGN;
    return sigprocmask(SIG_BLOCK, NULL, &old_mask);
}

/* Both the parent and the child do so: the first is in time. */
static void child_found_group(pid_t pid)
{
    child->pid = pid;
    if (foreground)
        return;
    child->group = pid;
    setpgid(pid, pid);
    if (child->has_keys)
        tcsetpgrp(terminal, pid);
}

/* In the new process, which gets back what zk-lock got. */
static void __attribute__((noreturn)) child_exec(char **argv)
{
    int fd, status;
    child_found_group(getpid());
    for (fd = 0; fd < FD_SETSIZE; fd++)
        if (!FD_ISSET(fd, &old_fds))
            fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (sigchld_ignored)
        signal(SIGCHLD, SIG_IGN);
    sigprocmask(SIG_SETMASK, &old_mask, NULL);

    execvp(argv[0], argv);
    status = errno == ENOENT || errno == ENOTDIR ? 127 : 126;
    say("cannot run %s: %s", argv[0], strerror(errno));
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
    *child = (child_t) { .has_keys = terminal != -1
                                     && tcgetpgrp(terminal) == own_group };
    pid = fork();
    if (pid == 0)
        child_exec(argv);
    if (pid > 0)
        child_found_group(pid);
    return pid > 0 ? 0 : -1;
}

/* Puts a group into the foreground, if that of the other is there. */
static void child_give_terminal(pid_t group, pid_t other)
{
    if (child->group && terminal != -1 && tcgetpgrp(terminal) == other)
        tcsetpgrp(terminal, group);
}

/* Takes the end of the command, and of all that was left to this process.  What
 * stops the command stops the job of zk-lock, as it does without zk-lock: the
 * shell goes on. */
void child_reap(void)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        if (pid != child->pid)
            continue;
        child->stopped = WIFSTOPPED(status);
        if (WIFCONTINUED(status))
            continue;
        child_give_terminal(own_group, child->group);
        if (!child->stopped) {
            child->reaped = true;
            child->status = status;
        } else if (child->group && terminal != -1) {
            kill(-own_group, WSTOPSIG(status));
        }
    }
}

/* After SIGCONT, which a shell sends when the job is in the foreground. */
void child_continue(void)
{
    if (child->stopped) {
        child_give_terminal(child->group, own_group);
        child_signal(SIGCONT);
    }
}

/* Whether the command and all other processes of its group have ended. */
bool child_gone(void)
{
    return !child->pid || (child->reaped && (!child->group
           || (kill(-child->group, 0) == -1 && errno == ESRCH)));
}

void child_signal(int signo)
{
    if (!child_gone())
        kill(child->group ? -child->group : child->pid, signo);
}

/* The command, told by TERM if so, and its group end within the grace. */
void child_end(bool told, int64_t grace)
{
    if (told) {
        child_signal(SIGTERM);
        child_signal(SIGCONT);
    }
    if (!child->kill_at)
        child->kill_at = now() + grace;
}

/* After child_end(): kills what has not ended in time.  Returns whether all is
 * gone, or the command is and its group cannot be killed. */
bool child_ended(void)
{
    bool late = now() >= child->kill_at;
    if (late)
        child_signal(SIGKILL);
    return child_gone()
           || (late && child->reaped && now() >= child->kill_at + CHILD_KILL);
}

/* Ends the command, for a process without a lease to renew meanwhile. */
void child_finish(int64_t grace)
{
    child_end(true, grace);
    while (child_reap(), !child_ended() && now() < child->kill_at + CHILD_KILL)
        poll(NULL, 0, 20);
    child_give_terminal(own_group, child->group);
}

/* Whether a key has ended the command, which has not reached zk-lock's job. */
bool child_was_interrupted(void)
{
    return child->reaped && child->has_keys && WIFSIGNALED(child->status)
           && WTERMSIG(child->status) == SIGINT;
}
