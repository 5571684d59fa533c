/* The half of Python's warm part that knows Python. What all languages share is in ../../warm/warm.h.
 *
 *   module.c   what warm.py calls: keep everything that is imported, and serve runs
 *   program.c  the child becomes `python3 -P -s /tmp/run.<pid>/main.py`
 *   environment.c   the variables of a program, and of a restored process
 *   memory.c   the layout of the libraries' memory, which makes forks and exits fast
 *   end.c      the end of the program, without finalizing the imported libraries
 *
 * A program must see the same as if the entrypoint had started it. No file here may run, import or read anything in /data
 * before the user's code does. The module uses internals of one version of CPython, and another version refuses to load it. */
#ifndef INTERPRETER_H
#define INTERPRETER_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "warm.h"

/* Runs the program, from start to exit code. */
_Noreturn void become_program(struct run *run);

/* Ends the process: this half cannot make something for the program. */
_Noreturn void broken(const char *what);

/* Whether an interpreter or a library reads this "NAME=value" only when it starts, and this process has started without it. */
int is_read_at_start(const char *variable);
/* Makes these variables, ended by NULL, those of the process and of os.environ too. The strings must stay. */
void set_environment(char **variables);
/* In a restored process: puts this environment in place of the one that was saved; see warm.h. */
const char *take_environment(const char *environment);

/* Call use_one_region before the libraries are imported, and the others before the first fork. */
void use_one_region(void);
void use_fresh_memory(void);
void settle_memory(void);

/* Makes every object that exists now immortal: its references are not counted, the garbage collector does not visit it, and
 * the end of a program does not finalize it. Call it once, after all imports and before the first fork. */
void keep_all(void);
/* Register this with atexit before any other function, so that it is called last. */
PyObject *before_modules_go(PyObject *self, PyObject *unused);
/* Whether this process is the trial: then the end reports the pages that it has written to. */
extern int ends_trial;
/* Finalizes the interpreter and ends the process; with SIGINT if `interrupted`, as after a KeyboardInterrupt. */
_Noreturn void end_program(int code, int interrupted);

#endif
