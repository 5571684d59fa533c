/* A second process on a program's memory, so that the program's end is not the memory's.
 *
 * What a child was forked with takes the kernel longer to take down than most programs run, and it does that before it
 * tells anyone that the process has ended. It does so for the last one that uses the memory, and that is this one: it
 * shares nothing else with the program, stands stopped from its first moment, and is killed by paddock some time after the
 * program has ended. It must never run anything but what is here, nor touch what a library keeps (the program's thread has
 * the same), not even `errno`. */
#include "warm.h"
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static char stack[8192] __attribute__((aligned(16)));

static int hold(void *unused)
{
    /* No signal but SIGKILL and SIGSTOP comes here. At its end it takes the processor from nobody in its container. */
    struct sched_param none = {0};
    if (syscall(SYS_close_range, 0, UINT_MAX, 0) != 0)
        return 0;
    syscall(SYS_sched_setscheduler, 0, SCHED_IDLE, &none);
    for (;;) /* everyone may be told to go on at some time */
        syscall(SYS_kill, (pid_t)syscall(SYS_getpid), SIGSTOP);
}

pid_t hold_memory(void)
{
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    /* A child of the same parent, so that the program has none. */
    pid_t pid = clone(hold, stack + sizeof stack, CLONE_VM | CLONE_PARENT | SIGCHLD, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid;
}
