/* The child of the warm part becomes the program. It does what `python3 -P -s /tmp/run.<pid>/main.py` does from start-up to
 * exit code, in the same order and with the same messages as CPython (Modules/main.c, Python/pythonrun.c, pylifecycle.c).
 *
 * The program must not be able to find out that it was forked: not by its stack frames, its arguments or any name. */
#include "interpreter.h"
#include <dirent.h>
#include <errno.h>
#include <linux/prctl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3"

/* Where the packages of the run are; see sitecustomize.py. */
#define PACKAGES "SANDBOX_PACKAGES="

/* The directory of the run's packages, or NULL. */
static const char *packages_of(const struct run *run)
{
    for (char **v = run->variables; *v; v++)
        if (strncmp(*v, PACKAGES, strlen(PACKAGES)) == 0)
            return (*v)[strlen(PACKAGES)] ? *v + strlen(PACKAGES) : NULL;
    return NULL;
}

/* Whether the packages have a module of a name that the parent has imported: in this process it is the one of the image. */
static int replaces_imported(const char *packages)
{
    DIR *entries = packages ? opendir(packages) : NULL;
    PyObject *modules = PyImport_GetModuleDict();
    struct dirent *entry;
    int found = 0;
    if (entries == NULL)
        return 0;
    while (!found && (entry = readdir(entries))) {
        entry->d_name[strcspn(entry->d_name, ".")] = 0;
        found = entry->d_name[0] && PyDict_GetItemString(modules, entry->d_name) != NULL;
    }
    closedir(entries);
    return found;
}

/* Whether the run has a variable or a file that only a new interpreter would use. */
static int wants_fresh(const struct run *run)
{
    if (replaces_imported(packages_of(run)))
        return 1;
    for (char **v = run->variables; *v; v++)
        if (is_read_at_start(*v))
            return 1;
    return access("/data/matplotlibrc", F_OK) == 0 || access("/tmp/.matplotlib/matplotlibrc", F_OK) == 0;
}

static _Noreturn void become_fresh(const struct run *run)
{
    for (char **v = run->variables; *v; v++)
        putenv(*v);
    for (int n = 1; n < NSIG; n++)
        if (n == SIGPIPE || n == SIGXFSZ || n == SIGINT)
            signal(n, SIG_DFL);
    execl(PYTHON, PYTHON, "-P", "-s", run->file, (char *)NULL);
    fail(PYTHON);
}

enum { COMMAND_LINE = 160 };

/* Changes /proc/self/cmdline, which `ps` shows. If the kernel or a seccomp profile refuses, `ps` shows the warm part. The line
 * must be on the stack: the kernel shows no memory where a file is mapped. */
static void set_command_line(const struct run *run, char line[COMMAND_LINE])
{
    struct prctl_mm_map map = {.exe_fd = (unsigned)-1};
    char text[1024], *at;
    FILE *stat = fopen("/proc/self/stat", "re");
    if (stat == NULL)
        return;
    size_t got = fread(text, 1, sizeof text - 1, stat);
    fclose(stat);
    text[got] = 0;
    unsigned long long field[52] = {0};
    at = strrchr(text, ')');
    for (int n = 3; at && n < 52 && (at = strchr(at, ' ')); n++)
        field[n] = strtoull(++at, NULL, 10);
    map.start_code = field[26], map.end_code = field[27], map.start_stack = field[28], map.start_data = field[45];
    map.end_data = field[46], map.start_brk = field[47], map.brk = (unsigned long)sbrk(0), map.env_start = field[50], map.env_end = field[51];
    int length = snprintf(line, COMMAND_LINE, "%s%c-P%c-s%c%s", PYTHON, 0, 0, 0, run->file) + 1;
    map.arg_start = (unsigned long)line, map.arg_end = (unsigned long)line + (unsigned long)length;
    prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0);
}

static void set_sys(const char *name, PyObject *value)
{
    if (value == NULL || PySys_SetObject(name, value) < 0)
        broken(name);
    Py_DECREF(value);
}

/* Puts the packages behind the standard library and before the libraries of the image, as sitecustomize.py does. */
static void set_packages(const struct run *run)
{
    const char *packages = packages_of(run);
    PyObject *path = PySys_GetObject("path"), *entry = packages ? PyUnicode_DecodeFSDefault(packages) : NULL;
    if (packages == NULL)
        return;
    for (Py_ssize_t at = 0; entry && path && PyList_Check(path) && at < PyList_GET_SIZE(path); at++) {
        const char *text = PyUnicode_AsUTF8(PyList_GET_ITEM(path, at));
        size_t length = text ? strlen(text) : 0, tail = strlen("/dist-packages");
        if (text == NULL || (strcmp(text, "/data") != 0 && (length < tail || strcmp(text + length - tail, "/dist-packages") != 0)))
            continue;
        if (PyList_Insert(path, at, entry) < 0)
            break;
        Py_DECREF(entry);
        return;
    }
    broken("sys.path");
}

static void set_arguments(const struct run *run, PyObject *file, char command_line[COMMAND_LINE])
{
    set_sys("argv", Py_BuildValue("[O]", file));
    set_sys("path", PySequence_List(PySys_GetObject("path"))); /* a new list: its entries are freed at the program's end */
    set_packages(run);
    set_sys("orig_argv", Py_BuildValue("[sssO]", PYTHON, "-P", "-s", file));
    PyObject *cache = PySys_GetObject("path_importer_cache"); /* CPython's start-up checks whether the file is a package */
    if (cache == NULL || PyDict_SetItem(cache, file, Py_None) < 0)
        broken("sys.path_importer_cache");
    set_command_line(run, command_line);
    /* logging measures time from its own import, which in a new interpreter happens after the start. */
    PyObject *name = PyUnicode_FromString("logging"), *logging = PyImport_GetModule(name);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    PyObject *now = PyLong_FromLongLong(t.tv_sec * 1000000000LL + t.tv_nsec);
    if (logging && now && PyObject_SetAttrString(logging, "_startTime", now) < 0)
        PyErr_Clear();
    Py_XDECREF(now);
    Py_XDECREF(logging);
    Py_DECREF(name);
}

/* Makes a stream as create_stdio() does with PYTHONUNBUFFERED=1. A stream depends on its descriptor, so each child needs its
 * own. */
static void set_stream(PyObject *io, int fd, const char *name, const char *original)
{
    PyObject *old = PySys_GetObject(original), *stream = Py_None;
    char label[16];
    snprintf(label, sizeof label, "<%s>", name);
    if (old == NULL || old == Py_None)
        broken(name);
    PyObject *encoding = PyObject_GetAttrString(old, "encoding"), *errors = PyObject_GetAttrString(old, "errors");
    PyObject *file = PyObject_CallMethod(io, "open", "isiOOOO", fd, fd ? "wb" : "rb", fd ? 0 : -1, Py_None, Py_None, Py_None, Py_False);
    PyObject *raw = file == NULL ? NULL : fd ? Py_NewRef(file) : PyObject_GetAttrString(file, "raw");
    PyObject *text = PyUnicode_FromString(label), *mode = PyUnicode_FromString(fd ? "w" : "r");
    if (raw == NULL || text == NULL || encoding == NULL || errors == NULL || PyObject_SetAttrString(raw, "name", text) < 0)
        broken(name);
    Py_DECREF(raw);
    stream = PyObject_CallMethod(io, "TextIOWrapper", "OOOsOO", file, encoding, errors, "\n", Py_False, Py_True);
    if (stream == NULL || mode == NULL || PyObject_SetAttrString(stream, "mode", mode) < 0)
        broken(name);
    Py_DECREF(file), Py_DECREF(text), Py_DECREF(mode), Py_DECREF(encoding), Py_DECREF(errors);
    if (PySys_SetObject(original, stream) < 0)
        broken(name);
    set_sys(name, stream);
}

/* Makes the module __main__ as CPython's start-up does. It replaces the one that imported the libraries. */
static PyObject *make_main(PyObject *file)
{
    PyObject *modules = PyImport_GetModuleDict();
    if (PyDict_DelItemString(modules, "__main__") < 0)
        PyErr_Clear();
    PyObject *module = PyImport_AddModuleRef("__main__"), *globals = module ? PyModule_GetDict(module) : NULL;
    PyObject *machinery = PyImport_ImportModule("_frozen_importlib_external"), *annotations = PyDict_New();
    PyObject *loader = machinery ? PyObject_CallMethod(machinery, "SourceFileLoader", "sO", "__main__", file) : NULL;
    PyObject *builtins = PyImport_ImportModule("builtins");
    if (globals == NULL || loader == NULL || annotations == NULL || builtins == NULL || PyDict_SetItemString(globals, "__annotations__", annotations) < 0 ||
        PyDict_SetItemString(globals, "__builtins__", builtins) < 0 || PyDict_SetItemString(globals, "__file__", file) < 0 ||
        PyDict_SetItemString(globals, "__cached__", Py_None) < 0 || PyDict_SetItemString(globals, "__loader__", loader) < 0)
        broken("__main__");
    Py_DECREF(annotations), Py_DECREF(loader), Py_DECREF(machinery), Py_DECREF(builtins);
    return module;
}

/* Ends the process if the current exception is SystemExit, as _Py_HandleSystemExit() does. */
static void exit_if_asked(void)
{
    if (!PyErr_ExceptionMatches(PyExc_SystemExit))
        return;
    fflush(stdout);
    PyObject *what = PyErr_GetRaisedException(), *code = PyObject_GetAttrString(what, "code");
    if (code == NULL) {
        PyErr_Clear();
    } else if (code == Py_None || PyLong_Check(code)) {
        int number = code == Py_None ? 0 : (int)PyLong_AsLongLong(code);
        PyErr_Clear(); /* a number that is too large becomes -1 */
        Py_DECREF(code);
        Py_DECREF(what);
        end_program(number, 0);
    } else {
        Py_SETREF(what, code);
    }
    PyObject *out = PySys_GetObject("stderr");
    if (out != NULL && out != Py_None) {
        if (PyFile_WriteObject(what, out, Py_PRINT_RAW) < 0)
            PyErr_Clear();
    } else {
        if (PyObject_Print(what, stderr, Py_PRINT_RAW) < 0)
            PyErr_Clear();
        fflush(stderr);
    }
    PySys_WriteStderr("\n");
    Py_DECREF(what);
    end_program(1, 0);
}

/* Does what PyErr_Print() does. But if sys.excepthook raises SystemExit, PyErr_Print() calls the interpreter's own exit, and
 * this function calls end_program. */
static void print_error(void)
{
    exit_if_asked();
    PyObject *raised = PyErr_GetRaisedException(), *trace = PyException_GetTraceback(raised);
    PyObject *type = (PyObject *)Py_TYPE(raised), *hook = Py_XNewRef(PySys_GetObject("excepthook"));
    if (trace == NULL)
        trace = Py_NewRef(Py_None);
    if (PySys_SetObject("last_exc", raised) < 0 || PySys_SetObject("last_type", type) < 0 || PySys_SetObject("last_value", raised) < 0 ||
        PySys_SetObject("last_traceback", trace) < 0)
        PyErr_Clear();
    if (PySys_Audit("sys.excepthook", "OOOO", hook ? hook : Py_None, type, raised, trace) < 0) {
        int stop = PyErr_ExceptionMatches(PyExc_RuntimeError);
        if (stop)
            PyErr_Clear();
        else
            PyErr_FormatUnraisable("Exception ignored in audit hook");
        if (stop)
            goto done;
    }
    if (hook == NULL) {
        PySys_WriteStderr("sys.excepthook is missing\n");
        PyErr_DisplayException(raised);
        goto done;
    }
    PyObject *arguments[] = {type, raised, trace}, *result = PyObject_Vectorcall(hook, arguments, 3, NULL);
    if (result == NULL) {
        exit_if_asked();
        PyObject *another = PyErr_GetRaisedException();
        fflush(stdout);
        PySys_WriteStderr("Error in sys.excepthook:\n");
        PyErr_DisplayException(another);
        PySys_WriteStderr("\nOriginal exception was:\n");
        PyErr_DisplayException(raised);
        Py_DECREF(another);
    }
    Py_XDECREF(result);
done:
    Py_XDECREF(hook);
    Py_DECREF(trace);
    Py_DECREF(raised);
}

static void flush(const char *name)
{
    PyObject *file = Py_XNewRef(PySys_GetObject(name)), *done = file ? PyObject_CallMethod(file, "flush", NULL) : NULL;
    if (done == NULL)
        PyErr_Clear();
    Py_XDECREF(done);
    Py_XDECREF(file);
}

static void forget(PyObject *globals, const char *name)
{
    if (PyDict_PopString(globals, name, NULL) < 0)
        print_error();
}

_Noreturn void become_program(struct run *run)
{
    PyThreadState *thread = PyThreadState_Get();
    char command_line[COMMAND_LINE]; /* this function never returns, so it stays */
    if (wants_fresh(run))
        become_fresh(run);
    if (PyErr_CheckSignals() != 0)
        PyErr_Clear(); /* a SIGINT from before the run must not reach the program */
    thread->current_frame = NULL;
    thread->py_recursion_remaining = thread->py_recursion_limit;
    thread->c_recursion_remaining = Py_C_RECURSION_LIMIT;

    PyObject *file = PyUnicode_DecodeFSDefault(run->file), *io = PyImport_ImportModule("io");
    if (file == NULL || io == NULL)
        broken("the program's name");
    set_environment(run->variables);
    set_arguments(run, file, command_line);
    set_stream(io, 0, "stdin", "__stdin__");
    set_stream(io, 1, "stdout", "__stdout__");
    set_stream(io, 2, "stderr", "__stderr__");
    Py_DECREF(io);
    PyObject *module = make_main(file), *globals = PyModule_GetDict(module);
    PyGC_Enable();

    FILE *code = fopen(run->file, "rb");
    if (code == NULL) {
        PySys_FormatStderr("%s: can't open file %R: [Errno %d] %s\n", PYTHON, file, errno, strerror(errno));
        end_program(2, 0);
    }
    PyCompilerFlags flags = {.cf_flags = 0, .cf_feature_version = PY_MINOR_VERSION};
    PyObject *result = PyRun_FileExFlags(code, run->file, Py_file_input, globals, globals, 1, &flags);
    int interrupted = result == NULL && PyErr_Occurred() == PyExc_KeyboardInterrupt, failed = result == NULL;
    PyObject *raised = PyErr_GetRaisedException();
    flush("stderr");
    flush("stdout");
    PyErr_SetRaisedException(raised);
    Py_XDECREF(result);
    if (failed) {
        Py_CLEAR(module);
        print_error();
    }
    forget(globals, "__file__");
    forget(globals, "__cached__"); /* sys.modules keeps the module, and so `globals`, alive, as in CPython */
    Py_XDECREF(module);
    Py_DECREF(file);
    end_program(failed, interrupted);
}
