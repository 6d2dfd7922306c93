/*
 * Prints what a program is started with: the environment, the descriptors 0 to
 * 20, the signals that are blocked or ignored, limits, umask, directory and
 * terminal.  Two runs are compared.
 */


#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>


extern char  **environ;


int
main(void)
{
    int               i, tty;
    char              cwd[4096], **variable;
    sigset_t          blocked;
    struct stat       st;
    struct rlimit     limit;
    struct sigaction  action;

    for (i = 0; i <= 20; i++) {
        if (i != STDOUT_FILENO && fstat(i, &st) == 0) {
            printf("descriptor %d: %lx %lx, flags %x %x\n", i,
                   (long) st.st_dev, (long) st.st_ino, fcntl(i, F_GETFL),
                   fcntl(i, F_GETFD));
        }
    }

    tty = open("/dev/tty", O_RDWR);
    printf("terminal: %d, in front: %d, session: %d\n", tty != -1,
           tty != -1 && tcgetpgrp(tty) == getpgrp(), getsid(0));

    sigprocmask(SIG_BLOCK, NULL, &blocked);

    for (i = 1; i < NSIG; i++) {
        if (sigaction(i, NULL, &action) == 0) {
            printf("signal %d: %d %d\n", i, sigismember(&blocked, i),
                   action.sa_handler == SIG_IGN);
        }
    }

    for (i = 0; i < (int) RLIM_NLIMITS; i++) {
        if (getrlimit(i, &limit) == 0) {
            printf("limit %d: %lx %lx\n", i, (long) limit.rlim_cur,
                   (long) limit.rlim_max);
        }
    }

    printf("umask: %o, priority: %d, directory: %s\n", umask(0),
           getpriority(PRIO_PROCESS, 0), getcwd(cwd, sizeof(cwd)));

    for (variable = environ; *variable; variable++) {
        printf("variable: %s\n", *variable);
    }

    printf("done\n");

    return 0;
}
