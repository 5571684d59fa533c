/* The parent of the warm part: one child stands ready, forked ahead of the run that it will take.
 *
 * It is the only one who waits for children, so every one that it forked is told to paddock exactly once. It reads nothing from the line,
 * has one thread, and whatever happens to a child (killed, stopped, refused by a limit) it neither ends nor spins. */
#include "warm.h"
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The next child is forked this long after a run was taken, or after its end if that comes first. Sooner, it would take the
 * processor from a program about to print; later, a long run would keep the next waiting. At the end too it first goes to
 * sleep: the one who hears of it would wait for this processor, whatever else is free. */
#define AFTER_TAKE_MS 5
#define AFTER_END_MS 1
/* Where there is no room for a process, or a child died waiting: not at once again. */
#define AFTER_FAILURE_MS 100

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
        _exit(0); /* paddock has gone */
}

/* How the kernel schedules this process: any other of its user may change that, and none can change it back. */
struct scheduling {
    int nice, policy;
    cpu_set_t processors;
};
static struct scheduling at_first;

static void read_scheduling(struct scheduling *now)
{
    memset(now, 0, sizeof *now);
    now->nice = getpriority(PRIO_PROCESS, 0);
    now->policy = sched_getscheduler(0);
    sched_getaffinity(0, sizeof now->processors, &now->processors);
}

int is_scheduled_as_at_first(void)
{
    struct scheduling now;
    read_scheduling(&now);
    return memcmp(&now, &at_first, sizeof now) == 0;
}

/* Forks the child that stands ready. -1: there was no room. */
static pid_t fork_child(PyObject *prepare, int taken, int children, const sigset_t *mask)
{
    pid_t parent = getpid(), pid;
    PyOS_BeforeFork();
    pid = fork();
    if (pid != 0) {
        PyOS_AfterFork_Parent();
        return pid;
    }
    PyOS_AfterFork_Child();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    close(children);
    setsid();
    sigprocmask(SIG_SETMASK, mask, NULL);
    PyObject *done = PyObject_CallNoArgs(prepare);
    if (done == NULL) {
        PyErr_Print();
        _exit(1);
    }
    Py_DECREF(done);
    link_caches();
    struct run run;
    take(&run, taken);
    become_program(&run);
}

/* serve(prepare): never returns. `prepare` is called in each child before it says that it is ready. */
static PyObject *serve(PyObject *self, PyObject *prepare)
{
    sigset_t set, mask;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, &mask);
    int children = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), taken = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (children < 0 || taken < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    read_scheduling(&at_first);
    prctl(PR_SET_DUMPABLE, 0); /* of no concern to a program: not to be read or changed by one */

    pid_t standing = 0, running = 0;
    int64_t fork_at = 0; /* means something while nobody stands ready */
    for (;;) {
        int64_t wait = -1;
        if (standing == 0 && (wait = fork_at - now_ms()) <= 0) {
            if (!is_scheduled_as_at_first())
                _exit(0); /* a fresh one takes its place */
            standing = fork_child(prepare, taken, children, &mask);
            wait = -1;
            if (standing < 0) {
                standing = 0;
                fork_at = now_ms() + (wait = AFTER_FAILURE_MS);
            }
        }
        struct pollfd what[] = {{LINE, POLLRDHUP, 0}, {children, POLLIN, 0}, {taken, POLLIN, 0}};
        if (poll(what, 3, (int)wait) < 0 && errno != EINTR)
            return PyErr_SetFromErrno(PyExc_OSError);
        if (what[0].revents)
            _exit(0); /* paddock has gone */

        /* Reaped before it is asked who has taken a run: whoever ended after taking one has said so by then. */
        struct signalfd_siginfo drained;
        while (read(children, &drained, sizeof drained) > 0)
            ;
        int status;
        struct rusage used;
        for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &used)) > 0;) {
            uint64_t count;
            if (pid == standing) {
                standing = 0;
                fork_at = now_ms() + (read(taken, &count, sizeof count) > 0 ? AFTER_END_MS : AFTER_FAILURE_MS);
            } else if (pid == running) {
                running = 0;
                if (standing == 0)
                    fork_at = now_ms() + AFTER_END_MS;
            } else {
                continue; /* had a program's memory (hold.c), or is a program's child that it made ours */
            }
            say_ended(pid, status, &used);
        }
        uint64_t count;
        if (standing != 0 && read(taken, &count, sizeof count) > 0)
            running = standing, standing = 0, fork_at = now_ms() + AFTER_TAKE_MS;
    }
}

static PyObject *keep(PyObject *self, PyObject *unused)
{
    keep_all();
    settle_memory();
    Py_RETURN_NONE;
}

static PyObject *links(PyObject *self, PyObject *unused)
{
    link_caches();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"link_caches", links, METH_NOARGS, NULL},
    {"before_modules_go", before_modules_go, METH_NOARGS, NULL},
    {"keep_all", keep, METH_NOARGS, NULL},
    {"serve", serve, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_warm", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__warm(void)
{
    if (Py_Version != PY_VERSION_HEX)
        return PyErr_Format(PyExc_ImportError, "_warm is built for Python %s, this is %s", PY_VERSION, Py_GetVersion());
    use_one_region();
    return PyModule_Create(&definition);
}
