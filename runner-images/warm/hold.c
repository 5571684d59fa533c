/* The holder: a second process on a program's memory, so that the memory outlives the program.
 *
 * The kernel needs longer to free the memory of a forked child than most programs run, and reports the end of the process
 * only after that. But it frees the memory only when the last process that uses it ends, and that process is the holder. The
 * holder shares nothing else with the program, is stopped from the start, and paddock kills it some time after the program
 * has ended. A small program has none: to start and to end a second process costs as much as to free its memory. The holder must
 * never run any code outside this file, nor write to the state of a library, not even `errno`: it shares the thread-local memory
 * of the program. */
#include "warm.h"
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static char stack[8192] __attribute__((aligned(16)));

static int hold(void *unused)
{
    /* All signals except SIGKILL and SIGSTOP are blocked. With SCHED_IDLE, freeing the memory delays no process of the
     * container. */
    struct sched_param none = {0};
    if (syscall(SYS_close_range, 0, UINT_MAX, 0) != 0)
        return 0;
    syscall(SYS_sched_setscheduler, 0, SCHED_IDLE, &none);
    for (;;) /* another process may send SIGCONT at any time */
        syscall(SYS_kill, (pid_t)syscall(SYS_getpid), SIGSTOP);
}

pid_t hold_memory(void)
{
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    /* With CLONE_PARENT the holder is a child of the warm part's parent, and the program has no child. */
    pid_t pid = clone(hold, stack + sizeof stack, CLONE_VM | CLONE_PARENT | SIGCHLD, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid;
}
