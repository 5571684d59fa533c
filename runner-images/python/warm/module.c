/* The module `_warm`, which warm.py calls when it has imported the libraries. */
#include "interpreter.h"
#include <unistd.h>

/* The libraries of the image. The time of the directory says that it has another one, or another version. */
#define LIBRARIES "/usr/local/lib/python" Py_STRINGIFY(PY_MAJOR_VERSION) "." Py_STRINGIFY(PY_MINOR_VERSION) "/dist-packages"

static PyObject *prepare_in_python; /* what each child calls before it reports that it is ready */

static void before_fork(void) { PyOS_BeforeFork(); }

static void after_fork(int child)
{
    if (child)
        PyOS_AfterFork_Child();
    else
        PyOS_AfterFork_Parent();
}

static void prepare(void)
{
    PyObject *done = PyObject_CallNoArgs(prepare_in_python);
    if (done == NULL) {
        PyErr_Print();
        _exit(1);
    }
    Py_DECREF(done);
}

/* serve(prepare, trial) returns only when it fails. Each child calls `prepare` before it reports that it is ready; the trial is the
 * path of a program (../../warm/pages.c), and `places_late` is as in ../../warm/warm.h. With a directory as the last argument it saves this process there and ends it; the restored process serves. */
static PyObject *serve_python(PyObject *self, PyObject *arguments)
{
    static const char *const files[] = {"/usr/local/share/sandbox/warm.py", "/usr/local/lib/sandbox/_warm.so", LIBRARIES, NULL};
    struct interpreter python = {"main.py", before_fork, after_fork, prepare, .files = files,
        .restored = take_environment};
    struct run run;
    char room[SNAPSHOT_ROOM]; /* a child never leaves this function, so it stays */
    python.room = room;
    if (!PyArg_ParseTuple(arguments, "Osp|s", &prepare_in_python, &python.trial, &python.places_late, &python.snapshot))
        return NULL;
    if (serve(&python, &run) != 0)
        fail("the warm part");
    if (chdir("/data") != 0)
        fail("/data");
    ends_trial = run.is_trial;
    become_program(&run);
}

/* How often the parent rehearses what each child does first. CPython adapts code while it runs, and so writes into it: after
 * this many times it has settled, and a child writes to fewer pages of the parent. */
enum { REHEARSALS = 40 };

/* keep_all(prepare) is the last step before serve(prepare). */
static PyObject *keep(PyObject *self, PyObject *prepare_each)
{
    prepare_in_python = prepare_each;
    for (int n = 0; n < REHEARSALS; n++) {
        before_fork();
        after_fork(1); /* it looks the same from inside: one thread, and locks that nobody else has */
        prepare();
    }
    if (PyGC_Collect() < 0)
        return NULL;
    use_fresh_memory();
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
    {"keep_all", keep, METH_O, NULL},
    {"serve", serve_python, METH_VARARGS, NULL},
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
