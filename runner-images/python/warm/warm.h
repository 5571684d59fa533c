/* The warm part of paddock-runner-python: the functions that its files share.
 *
 *   serve.c    the parent: forks the child for the next run, waits for all children, reports their ends to paddock
 *   take.c     the child: waits for a run, takes it, stores its code as `enter` does
 *   domain.c   the child's Landlock domain, which keeps other programs out of its memory
 *   hold.c     the holder: a process that keeps the child's memory after the child's end
 *   program.c  the child becomes `python3 -P -s /tmp/run.<pid>/main.py`
 *   memory.c   the layout of the libraries' memory, which makes forks and exits fast
 *   end.c      the end of the program, without finalizing the imported libraries
 *
 * The protocol is in ../../README.md, "The warm part". A program must see the same as if the entrypoint had started it. No
 * file here may run, import or read anything in /data before the user's code does.
 *
 * The module uses internals of one version of CPython, and another version refuses to load it. */
#ifndef WARM_H
#define WARM_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define LINE 3 /* the descriptor of the connection to paddock */

struct run {
    char **variables; /* "NAME=value", ended by NULL; valid until the process ends */
    char file[64];    /* the path of its code */
};

/* Writes `sandbox: WHAT: the error` to standard error and exits with 126, as `enter` does. */
_Noreturn void fail(const char *what);

/* Puts this process into a Landlock domain of its own, where the kernel has Landlock. */
void enter_domain(void);
/* Links the caches of the image into /tmp, unless their directories exist already. */
void link_caches(void);
/* Whether this process is still scheduled as at its start. */
int is_scheduled_as_at_first(void);
/* Starts the holder, which keeps the memory of this process after its end. Returns its PID, or -1. */
pid_t hold_memory(void);
/* Reports `ready`, blocks until a run arrives, and moves its streams to descriptors 0, 1 and 2. Ends the process if paddock
 * closes the connection. `taken` is an eventfd that tells the parent that this child has taken a run. */
void take(struct run *run, int taken);

/* Runs the program, from start to exit code. */
_Noreturn void become_program(struct run *run);

/* Call use_one_region before the libraries are imported, and settle_memory before the first fork. */
void use_one_region(void);
void settle_memory(void);

/* Makes every object that exists now immortal: its references are not counted, the garbage collector does not visit it, and
 * the end of a program does not finalize it. Call it once, after all imports and before the first fork. */
void keep_all(void);
/* Register this with atexit before any other function, so that it is called last. */
PyObject *before_modules_go(PyObject *self, PyObject *unused);
/* Finalizes the interpreter and ends the process; with SIGINT if `interrupted`, as after a KeyboardInterrupt. */
_Noreturn void end_program(int code, int interrupted);

#endif
