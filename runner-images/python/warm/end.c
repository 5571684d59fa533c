/* The end of a program: CPython's own finalization, but without the modules that the warm part has imported.
 *
 * To finalize a few hundred modules takes longer than most programs run, and has no visible effect. Everything else must
 * happen: threads are joined, atexit functions are called, the program's own modules and objects are finalized in CPython's
 * order, open files are written, output is flushed. Py_FinalizeEx() does all of this, but finds only the program's own
 * modules. The process exits before Py_FinalizeEx() frees memory, because the kernel frees it anyway. */
#define Py_BUILD_CORE_MODULE 1
#include "interpreter.h"
#include "internal/pycore_gc.h"
#include "internal/pycore_hashtable.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_pystate.h"
#include "internal/pycore_runtime.h"
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- objects that are kept for ever ---- */

/* Makes an object immortal, in CPython's sense. Otherwise each change of a reference count would copy a page in the child. */
static int keep_object(PyObject *object, void *unused)
{
    if (_Py_IsImmortal(object))
        return 0;
    object->ob_refcnt = _Py_IMMORTAL_REFCNT;
    if (PyCode_Check(object)) { /* the collector does not see the parts of a code object, nor tuples of plain objects */
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

static PyObject *io_base; /* _io._IOBase; close_files needs it */

void keep_all(void)
{
    PyObject *io = PyImport_ImportModule("_io");
    io_base = io ? PyObject_GetAttrString(io, "_IOBase") : NULL;
    if (io_base == NULL)
        Py_FatalError("the warm part finds no _io._IOBase");
    PyObject *gc = PyImport_ImportModule("gc"), *frozen = gc ? PyObject_CallMethod(gc, "freeze", NULL) : NULL;
    if (frozen == NULL)
        Py_FatalError("the warm part cannot freeze what it has imported");
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

/* The layer of a file object, which wraps a file of a higher layer: text, a library's own type (gzip), buffer, descriptor. */
static int layer_of(PyObject *file)
{
    const char *type = Py_TYPE(file)->tp_name;
    return strcmp(type, "_io.TextIOWrapper") == 0 ? 0 : strncmp(type, "_io.", 4) != 0 ? 1 : strncmp(type, "_io.Buffered", 12) == 0 ? 2 : 3;
}

/* Closes the files that are still open. Finalization clears the newest module first. last_module is the oldest one in the
 * list, so its capsule calls this function after all modules of the program are cleared, just before `builtins`. An object
 * of a library still refers to a file that is open now; in a new interpreter, the end of the library would close that file.
 * This closes no file while another thread is alive: that thread may be writing, and CPython would lose its data too. */
static void close_files(PyObject *capsule)
{
    struct stat tasks;
    PyObject *files = PyList_New(0);
    /* Finalization would free these tables next, entry by entry. That is useless here, and each entry would copy a page. */
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
            PyErr_Clear(); /* the file is closed already, or has no descriptor */
            PyObject *done = PyObject_CallMethod(file, standard ? "flush" : "close", NULL);
            PyErr_Clear();
            Py_XDECREF(number);
            Py_XDECREF(done);
        }
    }
    Py_DECREF(files);
}

/* The last function that atexit calls. Finalizers of collected objects still find all modules in sys.modules. After the
 * collection, only the program's own modules are left there. */
PyObject *before_modules_go(PyObject *self, PyObject *unused)
{
    PyThreadState *thread = PyThreadState_Get();
    PyInterpreterState *interp = thread->interp;
    PyObject *all = interp->imports.modules, *own, *key, *module, *capsule;
    Py_ssize_t at = 0;
    if (!interp->finalizing)
        Py_RETURN_NONE; /* the program itself called the atexit functions */
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
    interp->imports.modules = own; /* `all` is never freed */
    if (PyDict_SetItemString(interp->sysdict, "modules", own) < 0)
        return NULL;
    Py_RETURN_NONE;
}

int ends_trial;

/* An audit hook that observes finalization. If standard output could not be flushed, the exit code is 120, as in CPython.
 * When finalization has nothing left to do except to free memory, the hook ends the process. */
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
    if (ends_trial)
        report_pages();
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
    *end = &entry; /* PySys_AddAuditHook() would call the program's own hooks */
    Py_FinalizeEx();
    _exit(exit_code & 0xff); /* not reached */
}
