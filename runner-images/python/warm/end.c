/* The end of a program: the interpreter's own finalization, with what every run finds imported left out of it.
 *
 * Taking a few hundred modules apart costs more than most programs, and nobody sees it. What must not be lost is the rest:
 * threads joined, atexit, the program's own modules and objects finalized in CPython's order, files that were left open
 * written, output flushed. So Py_FinalizeEx() does all of it itself, finds only the program's modules to take apart, and
 * is left where it would begin to free memory that the kernel frees anyway. */
#define Py_BUILD_CORE_MODULE 1
#include "warm.h"
#include "internal/pycore_gc.h"
#include "internal/pycore_hashtable.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_pystate.h"
#include "internal/pycore_runtime.h"
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what stays for good ---- */

/* Immortal, in CPython's sense: counting references would make each child copy every page that it touches. */
static int keep_object(PyObject *object, void *unused)
{
    if (_Py_IsImmortal(object))
        return 0;
    object->ob_refcnt = _Py_IMMORTAL_REFCNT;
    if (PyCode_Check(object)) { /* keeps its parts from the collector, and so do tuples of plain things */
        PyCodeObject *code = (PyCodeObject *)object;
        PyObject *parts[] = {code->co_consts, code->co_names, code->co_exceptiontable, code->co_localsplusnames, code->co_localspluskinds,
            code->co_filename, code->co_name, code->co_qualname, code->co_linetable};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (parts[i])
                keep_object(parts[i], NULL);
    } else if (Py_TYPE(object)->tp_traverse && !(PyObject_IS_GC(object) && PyObject_GC_IsTracked(object))) {
        Py_TYPE(object)->tp_traverse(object, keep_object, NULL);
    }
    return 0;
}

static PyObject *io_base; /* _io._IOBase, for close_files */

void keep_all(void)
{
    PyObject *io = PyImport_ImportModule("_io");
    io_base = io ? PyObject_GetAttrString(io, "_IOBase") : NULL;
    if (io_base == NULL)
        Py_FatalError("the warm part finds no _io._IOBase");
    PyGC_Head *kept = &PyInterpreterState_Get()->gc.permanent_generation.head;
    for (PyGC_Head *at = _PyGCHead_NEXT(kept); at != kept; at = _PyGCHead_NEXT(at)) {
        PyObject *object = _Py_FROM_GC(at);
        keep_object(object, NULL);
        Py_TYPE(object)->tp_traverse(object, keep_object, NULL);
    }
}

/* ---- the end ---- */

static int exit_code, exit_interrupted;
static PyObject *last_module; /* see close_files */

/* Which kinds of files wrap which: text, then what a library made (gzip), then buffers, then descriptors. */
static int layer_of(PyObject *file)
{
    const char *type = Py_TYPE(file)->tp_name;
    return strcmp(type, "_io.TextIOWrapper") == 0 ? 0 : strncmp(type, "_io.", 4) != 0 ? 1 : strncmp(type, "_io.Buffered", 12) == 0 ? 2 : 3;
}

/* Modules are wiped latest first, so this one's turn, it being the first in the list, comes when all of the program's own
 * are done, and just before `builtins` goes. A file that is still open now hangs on something that was imported before
 * the program, and would have been closed with it. Not where another thread is alive: it may be in the middle of writing,
 * and what it holds is lost natively too. */
static void close_files(PyObject *capsule)
{
    struct stat tasks;
    PyObject *files = PyList_New(0);
    /* What finalization would free next, entry by entry: of no use to anyone, and a page to be copied for each. */
    PyInterpreterState *interp = PyInterpreterState_Get();
    _Py_hashtable_t *none = _Py_hashtable_new(_Py_hashtable_hash_ptr, _Py_hashtable_compare_direct);
    if (none != NULL)
        interp->runtime->imports.extensions.hashtable = none;
    interp->imports.modules_by_index = NULL;
    if (files == NULL || stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink != 3)
        return;
    for (int g = 0; g < NUM_GENERATIONS; g++) {
        PyGC_Head *head = &interp->gc.generations[g].head;
        for (PyGC_Head *at = _PyGCHead_NEXT(head); at != head; at = _PyGCHead_NEXT(at))
            if (PyObject_TypeCheck(_Py_FROM_GC(at), (PyTypeObject *)io_base))
                PyList_Append(files, _Py_FROM_GC(at));
    }
    for (int layer = 0; layer < 4; layer++) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(files); i++) {
            PyObject *file = PyList_GET_ITEM(files, i);
            if (layer_of(file) != layer)
                continue;
            PyObject *number = PyObject_CallMethod(file, "fileno", NULL);
            int standard = number && PyLong_AsLong(number) >= 0 && PyLong_AsLong(number) <= 2;
            PyErr_Clear(); /* closed already, or not a file of the system */
            PyObject *done = PyObject_CallMethod(file, standard ? "flush" : "close", NULL);
            PyErr_Clear();
            Py_XDECREF(number);
            Py_XDECREF(done);
        }
    }
    Py_DECREF(files);
}

/* The last that atexit calls. What is collected must still find all modules; then only the program's own are left. */
PyObject *before_modules_go(PyObject *self, PyObject *unused)
{
    PyThreadState *thread = PyThreadState_Get();
    PyInterpreterState *interp = thread->interp;
    PyObject *all = interp->imports.modules, *own, *key, *module, *capsule;
    Py_ssize_t at = 0;
    if (!interp->finalizing)
        Py_RETURN_NONE; /* the program runs atexit's list by itself */
    _PyInterpreterState_SetFinalizing(interp, thread);
    _PyRuntimeState_SetFinalizing(interp->runtime, thread);
    if (interp->gc.callbacks == NULL || PyList_GET_SIZE(interp->gc.callbacks) == 0)
        PyGC_Collect();
    own = PyDict_New();
    last_module = PyModule_New("_warm_end");
    capsule = PyCapsule_New(&exit_code, NULL, close_files);
    if (own == NULL || last_module == NULL || capsule == NULL || PyModule_Add(last_module, "files", capsule) < 0 ||
        PyDict_SetItemString(own, "_warm_end", last_module) < 0)
        return NULL;
    while (PyDict_Next(all, &at, &key, &module)) {
        if (_Py_IsImmortal(module))
            continue;
        if (PyDict_SetItem(own, key, module) < 0 || PyDict_SetItem(all, key, Py_None) < 0)
            return NULL;
    }
    interp->imports.modules = own; /* `all` stays, for nobody */
    if (PyDict_SetItemString(interp->sysdict, "modules", own) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Sees finalization pass: whether it could flush standard output, and that only memory is left to be freed. */
static int watch(const char *event, PyObject *arguments, void *unused)
{
    if (strcmp(event, "sys.unraisablehook") == 0 && PyTuple_Size(arguments) == 2) {
        PyObject *message = PyObject_GetAttrString(PyTuple_GET_ITEM(arguments, 1), "err_msg");
        if (message && PyUnicode_Check(message) && PyUnicode_EqualToUTF8(message, "Exception ignored on flushing sys.stdout"))
            exit_code = 120;
        Py_XDECREF(message);
        PyErr_Clear();
    }
    if (strcmp(event, "cpython.PyInterpreterState_Clear") != 0)
        return 0;
    fflush(NULL);
    if (exit_interrupted) {
        PyOS_setsig(SIGINT, SIG_DFL);
        kill(getpid(), SIGINT);
        exit_code = 128 + SIGINT;
    }
    _exit(exit_code & 0xff);
}

_Noreturn void end_program(int code, int interrupted)
{
    static _Py_AuditHookEntry entry = {NULL, watch, NULL};
    PyInterpreterState *interp = PyInterpreterState_Get();
    _Py_AuditHookEntry **end = &interp->runtime->audit_hooks.head;
    exit_code = code;
    exit_interrupted = interrupted;
    _PyInterpreterState_SetNotRunningMain(interp);
    while (*end)
        end = &(*end)->next;
    *end = &entry; /* not by PySys_AddAuditHook(), which tells the program's own hooks */
    Py_FinalizeEx();
    _exit(exit_code & 0xff); /* not reached */
}
