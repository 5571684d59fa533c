/* The environment of a program, and of a process that was restored from a snapshot.
 *
 * A variable that is read when an interpreter or a library starts comes too late for a process that has started: a program
 * with another value of it gets a new interpreter, and a snapshot is not restored. */
#include "interpreter.h"
#include <unistd.h>

/* Variables that the interpreter or a library reads only when it starts, by their prefixes. */
static const char *const read_at_start[] = {"PYTHON", "LD_", "MALLOC_", "GLIBC_", "LANG", "LC_", "TZ", "OPENBLAS_", "OMP_", "GOMP_", "GOTO_",
    "MKL_", "NPY_", "NUMPY_", "MPL", "MATPLOTLIB", "PANDAS_", "ARROW_", "SCIPY_", "XDG_", "SEABORN_", "HOME=", NULL};

static int begins_with_one(const char *variable)
{
    for (const char *const *prefix = read_at_start; *prefix; prefix++)
        if (strncmp(variable, *prefix, strlen(*prefix)) == 0)
            return 1;
    return 0;
}

/* Whether a list has this very variable, with its value. */
static int has(char **list, const char *variable)
{
    for (; list && *list; list++)
        if (strcmp(*list, variable) == 0)
            return 1;
    return 0;
}

int is_read_at_start(const char *variable) { return begins_with_one(variable) && !has(environ, variable); }

_Noreturn void broken(const char *what)
{
    dprintf(2, "sandbox: the warm part cannot make %s\n", what);
    PyErr_Print();
    _exit(126);
}

/* Makes the run's variables those of the process, and of os.environ. Each write to memory that the parent laid out costs a page
 * of its own, so nothing is done twice: one new array of the run's own strings, and the dictionary behind os.environ. */
void set_environment(char **variables)
{
    size_t own = 0, added = 0, count = 0;
    for (char **v = environ; v && *v; v++)
        own++;
    for (char **v = variables; *v; v++)
        added++;
    if (added == 0)
        return;
    char **all = malloc((own + added + 1) * sizeof *all);
    PyObject *os = PyImport_ImportModule("os"), *shown = os ? PyObject_GetAttrString(os, "environ") : NULL;
    PyObject *data = shown ? PyObject_GetAttrString(shown, "_data") : NULL;
    if (all == NULL || data == NULL || !PyDict_Check(data))
        broken("os.environ");
    for (char **v = environ; v && *v; v++)
        all[count++] = *v;
    for (char **v = variables; *v; v++) {
        char *equals = strchr(*v, '=');
        if (equals == NULL || equals == *v)
            continue;
        size_t length = (size_t)(equals - *v) + 1, at = 0;
        while (at < count && strncmp(all[at], *v, length) != 0)
            at++;
        all[at] = *v;
        count += at == count;
        PyObject *name = PyBytes_FromStringAndSize(*v, equals - *v), *value = PyBytes_FromString(equals + 1);
        if (name == NULL || value == NULL || PyDict_SetItem(data, name, value) < 0)
            broken("os.environ");
        Py_DECREF(name);
        Py_DECREF(value);
    }
    all[count] = NULL;
    environ = all; /* putenv() and setenv() of the C library copy an array that is not their own */
    Py_DECREF(data);
    Py_DECREF(shown);
    Py_DECREF(os);
}

const char *take_environment(const char *environment)
{
    static char *none[] = {NULL};
    size_t count = 0;
    for (const char *at = environment; *at; at += strlen(at) + 1)
        count++;
    char **all = calloc(count + 1, sizeof *all);
    PyObject *os = PyImport_ImportModule("os"), *shown = os ? PyObject_GetAttrString(os, "environ") : NULL;
    PyObject *data = shown ? PyObject_GetAttrString(shown, "_data") : NULL;
    if (all == NULL || data == NULL || !PyDict_Check(data))
        broken("os.environ");
    count = 0;
    for (const char *at = environment; *at; at += strlen(at) + 1)
        all[count++] = (char *)at;
    for (char **v = all; *v; v++)
        if (is_read_at_start(*v))
            return *v;
    for (char **v = environ; v && *v; v++)
        if (begins_with_one(*v) && !has(all, *v))
            return *v;
    PyDict_Clear(data);
    environ = none;
    set_environment(all);
    Py_DECREF(data);
    Py_DECREF(shown);
    Py_DECREF(os);
    return NULL;
}
