/* The parent of the warm part. It forks each child before the run that the child will take, so that one child is waiting.
 *
 * Only this process waits for the children (wait4), so it reports the end of each child to paddock exactly once. It reads
 * nothing from the connection to paddock and has one thread. Whatever happens to a child (it is killed or stopped, or a limit
 * prevents the fork), the parent must neither end nor loop without a pause. */
#include "warm.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The pause before the next fork: AFTER_TAKE_MS after a child took a run, or AFTER_END_MS after the run's end if that comes
 * first. An earlier fork would take the processor from a program that is about to print. A later one would let the next run
 * wait while a long run continues. The parent pauses after the end too: otherwise the reader of the end would wait for this
 * processor, even if another one is idle. */
#define AFTER_TAKE_MS 5
#define AFTER_END_MS 1
/* The pause after a failed fork, or after a waiting child died. */
#define AFTER_FAILURE_MS 100

/* After this long without a word a restored parent makes later forks cheaper: no run is waiting for it then. */
#define QUIET_MS 10

/* The exit code of a restored process that cannot go on (EX_TEMPFAIL), as in restore/restore.c. */
#define CANNOT_RESTORE 75
/* The exit code of a save command where no snapshot can be restored (EX_UNAVAILABLE). */
#define NO_SNAPSHOTS_HERE 69

/* The trial is killed after this many seconds. */
#define TRIAL_S 5
#define TRIAL_FOR_ALL_S 60

/* KiB that a process has, up to which the kernel frees them about as fast as it starts a holder (hold.c). */
#define SMALL_KIB (12 << 10)

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void say_ended(pid_t pid, int status, const struct rusage *used)
{
    char line[96];
    long long cpu = (used->ru_utime.tv_sec + used->ru_stime.tv_sec) * 1000000LL + used->ru_utime.tv_usec + used->ru_stime.tv_usec;
    int code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    int length = snprintf(line, sizeof line, "ended %d %d %lld %ld\n", (int)pid, code, cpu, used->ru_maxrss);
    if (write(LINE, line, (size_t)length) != length)
        _exit(0); /* paddock has closed the connection */
}

/* How the kernel schedules this process. Any process of the same user can change that, and no process can undo it. */
struct scheduling {
    int nice, policy;
};
static struct scheduling at_first;

static struct scheduling read_scheduling(void)
{
    return (struct scheduling){getpriority(PRIO_PROCESS, 0), sched_getscheduler(0)};
}

/* The processors are not compared: paddock can give a container other ones at any time. Instead this process asks for all that there
 * are, and the kernel gives it those of the container. That also undoes what another process of the same user has set. */
int keep_scheduling(void)
{
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    sched_setaffinity(0, sizeof all, &all);
    struct scheduling now = read_scheduling();
    return now.nice == at_first.nice && now.policy == at_first.policy;
}

/* A handler, and not a signalfd: an interpreter may have a second thread, and a signal that this thread blocks is lost in the
 * other one. The handler works in both. */
static int children; /* an eventfd: one of the children may have ended */

static void on_child(int signal)
{
    uint64_t one = 1;
    int before = errno;
    if (write(children, &one, sizeof one) < 0)
        errno = before;
}

static int is_small; /* whether a program that does next to nothing has no more than SMALL_KIB */

/* Forks the child that waits for the next run. Returns 0 in the child when it has taken the run, and -1 if fork() failed. */
static pid_t fork_child(const struct interpreter *interpreter, struct run *run, int taken, int has_served)
{
    pid_t parent = getpid(), pid;
    interpreter->before_fork();
    pid = fork();
    if (pid == 0) {
        if (has_served || !interpreter->places_late)
            place_pages(); /* before this process is the first to use one of them */
        replace_descriptors();
    }
    interpreter->after_fork(pid == 0);
    if (pid != 0)
        return pid;
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    close(children);
    setsid();
    enter_domain();
    interpreter->prepare();
    link_caches();
    take(run, interpreter->code_name, taken, !is_small);
    return 0;
}

/* Runs the image's trial (pages.c). Returns 1 in its process, which then becomes the program, and 0 in the parent when it is
 * over. It may take some seconds on a busy machine, and fail: then nothing is learnt. `is_for_all`: what it learns is for all
 * that are restored of the snapshot, and each page is read from the disk. */
static int try_once(const struct interpreter *interpreter, struct run *run, int is_restored, int is_for_all)
{
    static char *no_variables[] = {NULL};
    int status, nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    int output[2]; /* a pipe, as programs have; what the trial prints fits into it */
    if (nowhere < 0 || pipe2(output, O_CLOEXEC) != 0 || pages_to_learn(is_restored) != 0)
        return 0;
    if (is_for_all)
        forget_file(interpreter->snapshot);
    interpreter->before_fork();
    pid_t pid = fork();
    if (pid == 0)
        replace_descriptors();
    interpreter->after_fork(pid == 0);
    if (pid == 0) {
        alarm(is_for_all ? TRIAL_FOR_ALL_S : TRIAL_S);
        dup2(nowhere, 0);
        dup2(output[1], 1);
        dup2(output[1], 2);
        close(LINE);
        close(nowhere);
        close(output[0]);
        close(output[1]);
        interpreter->prepare();
        *run = (struct run){.variables = no_variables, .is_trial = 1};
        snprintf(run->file, sizeof run->file, "%s", interpreter->trial);
        return 1;
    }
    close(nowhere);
    close(output[1]);
    struct rusage used = {0};
    if (pid > 0)
        wait4(pid, &status, 0, &used);
    is_small = used.ru_maxrss > 0 && used.ru_maxrss <= SMALL_KIB;
    close(output[0]);
    return 0;
}

/* Saves the parent for other containers. It returns in a restored process alone. */
static void save_once(const struct interpreter *interpreter)
{
    const char *wrong;
    int restored = save_snapshot(interpreter->snapshot, interpreter->files, interpreter->room);
    if (restored <= 0)
        _exit(restored == SNAPSHOT_UNSUPPORTED ? NO_SNAPSHOTS_HERE : restored < 0);
    if ((wrong = interpreter->restored(interpreter->room)) == NULL)
        return;
    dprintf(LINE, "failed the snapshot is of another environment: %.100s\n", wrong);
    _exit(CANNOT_RESTORE);
}

int serve(const struct interpreter *interpreter, struct run *run)
{
    if (note_descriptors() != 0)
        return -1;
    if (interpreter->snapshot != NULL)
        save_once(interpreter);
    if (interpreter->snapshot == NULL || load_pages(interpreter->snapshot, &is_small) != 0) {
        /* Who saves a snapshot restores it once where the file can be made, for nothing else. */
        int list = interpreter->snapshot != NULL ? new_pages(interpreter->snapshot) : -1;
        if (try_once(interpreter, run, interpreter->snapshot != NULL, list >= 0))
            return 0;
        keep_pages();
        if (list >= 0) {
            save_pages(list, interpreter->snapshot, is_small);
            _exit(0);
        }
    }
    int taken = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
    children = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (children < 0 || taken < 0 || sigaction(SIGCHLD, &action, NULL) != 0)
        return -1;
    at_first = read_scheduling();
    prctl(PR_SET_DUMPABLE, 0); /* no program may read or change the memory of this process */

    pid_t standing = 0, running = 0;
    int has_served = 0, has_forgotten = interpreter->snapshot == NULL;
    int64_t fork_at = 0; /* has a meaning only while no child is waiting */
    for (;;) {
        int64_t wait = -1;
        if (standing == 0 && (wait = fork_at - now_ms()) <= 0) {
            int keeps = keep_scheduling();
            if (!keeps && running == 0)
                _exit(0); /* paddock starts a new warm part; with a run, it would end that run */
            standing = keeps ? fork_child(interpreter, run, taken, has_served) : -1;
            if (standing == 0)
                return 0;
            wait = -1;
            if (standing < 0) {
                standing = 0;
                fork_at = now_ms() + (wait = AFTER_FAILURE_MS);
            }
        }
        struct pollfd what[] = {{LINE, POLLRDHUP, 0}, {children, POLLIN, 0}, {taken, POLLIN, 0}};
        int forgets = standing != 0 && !has_forgotten;
        int heard = poll(what, 3, forgets ? QUIET_MS : (int)wait);
        if (heard < 0 && errno != EINTR)
            return -1;
        if (heard == 0 && forgets) {
            forget_found();
            has_forgotten = 1;
        }
        if (what[0].revents)
            _exit(0); /* paddock has closed the connection */

        /* The parent reaps before it reads `taken`: a child that took a run and ended has written to `taken` by then. */
        uint64_t ignored;
        while (read(children, &ignored, sizeof ignored) > 0)
            ;
        int status;
        struct rusage used;
        for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &used)) > 0;) {
            uint64_t count;
            if (pid == standing) {
                int ran = read(taken, &count, sizeof count) > 0;
                standing = 0, has_served |= ran;
                fork_at = now_ms() + (ran ? AFTER_END_MS : AFTER_FAILURE_MS);
            } else if (pid == running) {
                running = 0;
                if (standing == 0)
                    fork_at = now_ms() + AFTER_END_MS;
            } else {
                continue; /* a holder (hold.c), or a process that a program made with CLONE_PARENT */
            }
            say_ended(pid, status, &used);
        }
        uint64_t count;
        if (standing != 0 && read(taken, &count, sizeof count) > 0)
            running = standing, standing = 0, has_served = 1, fork_at = now_ms() + AFTER_TAKE_MS;
    }
}
