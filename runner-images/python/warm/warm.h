/* The warm part of paddock-runner-python: what its files know of each other.
 *
 *   serve.c    the parent: forks the child that will take the next run, waits for all, tells paddock
 *   take.c     the child: waits for a run, takes it, stores its code as `enter` does
 *   hold.c     a process beside the child, which has its memory after its end
 *   program.c  the child becomes `python3 -P -s /tmp/run.<pid>/main.py`
 *   memory.c   where the libraries' memory lies, so that forks and exits are short
 *   end.c      and ends as that would, without taking apart what every run finds imported
 *
 * The protocol is in ../../README.md, "The warm part". Whatever a program can see has to be what it would see under the
 * plain entrypoint. Nothing here may run, import or read anything in /data before the code does.
 *
 * It is built for one version of CPython, whose internals it knows, and refuses to be loaded into another. */
#ifndef WARM_H
#define WARM_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define LINE 3 /* the descriptor that is the line to paddock */

struct run {
    char **variables; /* "NAME=value", the last one NULL; they live as long as the process */
    char file[64];    /* where its code is stored */
};

/* Writes `sandbox: WHAT: the error` to standard error and exits with 126, as `enter` does. */
_Noreturn void fail(const char *what);

/* Links what the image has ready for /tmp into it, where it is not there. */
void link_caches(void);
/* Whether nobody has changed how this process is scheduled. */
int is_scheduled_as_at_first(void);
/* Starts the process that waits for the end of this one and has its memory until then; its PID, or -1. */
pid_t hold_memory(void);
/* Says `ready`, blocks until there is a run, and has it on descriptors 0, 1 and 2. Exits when paddock has gone.
 * `taken` is an eventfd, by which the parent learns that it is. */
void take(struct run *run, int taken);

/* Runs what was taken, from start to exit code. */
_Noreturn void become_program(struct run *run);

/* To be called before the libraries are imported, and before the first fork. */
void use_one_region(void);
void settle_memory(void);

/* Everything that is alive now stays for good: no reference is counted on it, no collection looks at it, and the end of
 * a program passes it by. To be called once, when all is imported and before the first fork. */
void keep_all(void);
/* What has to be the first that is registered with atexit, so that it is the last that is called. */
PyObject *before_modules_go(PyObject *self, PyObject *unused);
/* Finalizes the interpreter and exits; `interrupted`: by SIGINT, as a program does that KeyboardInterrupt ended. */
_Noreturn void end_program(int code, int interrupted);

#endif
