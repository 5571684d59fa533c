// The half of the warm part that knows node's inside: a node that has started forks a child for each run, and the child goes
// on from there. What all languages share is in ../warm/warm.h; what a child's JavaScript must have anew is in warm.cjs.
//
// The parent runs no JavaScript after `serve` was called, so its heap and its event loop stand still. It has one thread
// besides, of node's platform, which waits for delayed tasks that never come; a child does not have it. That is why the
// parent's flags must keep V8 from using threads (--single-threaded, --v8-pool-size=0, --disable-sigusr1), and why a child
// ends without node's teardown, which would wait for that thread. libuv makes its pool of threads anew in a child.
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <node.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>
#include <uv.h>
#include <v8-profiler.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "warm.h"

// V8's generator of random numbers, from which Math.random() of each context gets its seed (src/base/utils of V8). node
// exports its functions, but not where the isolate's own one is.
namespace v8::base {
class RandomNumberGenerator {
  public:
    void SetSeed(int64_t seed);
    static uint64_t MurmurHash3(uint64_t);
    int64_t initial_seed;
    uint64_t state0, state1;
};
} // namespace v8::base

namespace {

using v8::base::RandomNumberGenerator;

run taken; // in a child
v8::Isolate *isolate;
RandomNumberGenerator *generator;
v8::Global<v8::Context> main_context;
v8::Global<v8::Function> exit_code; // the getter of process.exitCode
v8::Global<v8::Object> process;

struct mapping {
    uintptr_t start, end;
    bool is_memory; // private, for reading and writing, and of no file; not the stack
    bool is_excluded, is_huge; // MADV_DONTFORK, MADV_HUGEPAGE; /proc/self/smaps calls them `dc` and `hg`
};

// All mappings of this process. The list is complete before the first one is changed.
std::vector<mapping> all_mappings()
{
    std::vector<mapping> all;
    FILE *maps = fopen("/proc/self/smaps", "re");
    char line[4096], flags[5];
    mapping next = {};
    unsigned long inode;
    if (maps == nullptr)
        _exit(1);
    while (fgets(line, sizeof line, maps)) {
        uintptr_t start, end;
        if (sscanf(line, "%lx-%lx %4s %*s %*s %lu", &start, &end, flags, &inode) == 4)
            next = {start, end, inode == 0 && strcmp(flags, "rw-p") == 0 && strstr(line, "[stack]") == nullptr, false, false};
        if (strncmp(line, "VmFlags:", 8) == 0) {
            next.is_excluded = strstr(line, " dc") != nullptr;
            next.is_huge = strstr(line, " hg") != nullptr;
            all.push_back(next);
        }
    }
    fclose(maps);
    return all;
}

const uintptr_t PAGE = 4096; // V8's own pages, and these addresses, are multiples of it on all processors

bool is_empty(const char *page)
{
    return page[0] == 0 && memcmp(page, page + 1, PAGE - 1) == 0;
}

// What rehearsals have used of the stack below the functions that still run. Those that run from here get a margin.
void free_stack_below()
{
    enum { MARGIN = 65536 };
    uintptr_t here = (reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) - MARGIN) & ~(PAGE - 1);
    for (uintptr_t at = here; at > here - (8 << 20); at -= PAGE)
        if (madvise(reinterpret_cast<void *>(at), PAGE, MADV_DONTNEED) != 0)
            break; // the end of the stack's mapping
}

// Frees what has no content: pages of zeros, what malloc has back, the stack below this function. A huge page becomes the few
// small ones that have something in them. The kernel gives a page of zeros to whoever uses one of these later. No other thread
// may write meanwhile: the one that the parent has waits.
void free_empty(const std::vector<mapping> &all)
{
    std::vector<char> kept;
    malloc_trim(0);
    free_stack_below();
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (const mapping &it : all) {
        std::vector<std::pair<char *, size_t>> pages; // of a huge mapping: where each page is, and its copy in `kept`
        uint64_t entries[512];
        kept.clear();
        for (uintptr_t at = it.start; it.is_memory && at < it.end;) {
            size_t wanted = std::min<size_t>((it.end - at) / PAGE, 512);
            ssize_t got = pread(pagemap, entries, wanted * sizeof *entries, static_cast<off_t>(at / PAGE * sizeof *entries));
            if (got <= 0)
                break;
            for (ssize_t n = 0; n < got / static_cast<ssize_t>(sizeof *entries); n++, at += PAGE) {
                char *page = reinterpret_cast<char *>(at);
                if (!(entries[n] >> 63)) // not present (Documentation/admin-guide/mm/pagemap.rst)
                    continue;
                if (is_empty(page) && !it.is_huge)
                    madvise(page, PAGE, MADV_DONTNEED);
                else if (it.is_huge && !is_empty(page))
                    pages.emplace_back(page, kept.size()), kept.insert(kept.end(), page, page + PAGE);
            }
        }
        if (!it.is_memory || !it.is_huge)
            continue;
        madvise(reinterpret_cast<char *>(it.start), it.end - it.start, MADV_NOHUGEPAGE);
        madvise(reinterpret_cast<char *>(it.start), it.end - it.start, MADV_DONTNEED);
        for (const auto &[page, copy] : pages)
            memcpy(page, &kept[copy], PAGE);
    }
    close(pagemap);
}

// Prepares the memory for forks. V8 excludes its pages from them (MADV_DONTFORK), since a fork is usually followed by exec. Here
// the child needs them.
void prepare_memory()
{
    free_empty(all_mappings());
    for (const mapping &it : all_mappings())
        if (it.is_excluded && madvise(reinterpret_cast<void *>(it.start), it.end - it.start, MADV_DOFORK) != 0)
            _exit(1);
}

// Whether this is a generator that has been used at most a few thousand times: then its seed leads to its state.
bool is_generator(RandomNumberGenerator it)
{
    uint64_t s0 = RandomNumberGenerator::MurmurHash3(static_cast<uint64_t>(it.initial_seed));
    uint64_t s1 = RandomNumberGenerator::MurmurHash3(~s0);
    for (int steps = 0; steps < 4096; steps++) {
        if (s0 == it.state0 && s1 == it.state1)
            return true;
        uint64_t a = s0, b = s1; // V8's XorShift128
        s0 = b;
        a ^= a << 23;
        a ^= a >> 17;
        a ^= b;
        a ^= b >> 26;
        s1 = a;
    }
    return false;
}

// Finds the isolate's generator: the one pointer in the isolate to a generator. No other 24 bytes fit by chance. A word that
// is no pointer is harmless: the kernel reads what it points to (/proc/self/mem), and answers with an error.
RandomNumberGenerator *find_generator()
{
    enum { WORDS = 16384 }; // an isolate has fewer
    static uintptr_t words[WORDS];
    RandomNumberGenerator it, *found = nullptr;
    int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    ssize_t got = pread(memory, words, sizeof words, reinterpret_cast<off_t>(isolate));
    for (ssize_t n = 0; found == nullptr && n < got / static_cast<ssize_t>(sizeof *words); n++)
        if (pread(memory, &it, sizeof it, static_cast<off_t>(words[n])) == sizeof it && is_generator(it))
            found = reinterpret_cast<RandomNumberGenerator *>(words[n]);
    close(memory);
    return found;
}

// What is written to process.stdout and process.stderr is out at once: node writes synchronously to pipes and files.
[[noreturn]] void end(int code)
{
    fflush(nullptr);
    if (taken.is_trial)
        report_pages();
    _exit(code);
}

// The program came to its end: all 'exit' listeners have run, and node is about to take its heap apart.
void at_end(void *)
{
    v8::HandleScope handles(isolate);
    v8::Local<v8::Context> context = main_context.Get(isolate);
    v8::Context::Scope scope(context);
    v8::Isolate::AllowJavascriptExecutionScope allowed(isolate); // node forbids it here, but this getter only reads a field
    v8::Local<v8::Value> code;
    int number = 0;
    if (exit_code.Get(isolate)->Call(context, process.Get(isolate), 0, nullptr).ToLocal(&code) && code->IsInt32())
        number = code.As<v8::Int32>()->Value();
    end(number);
}

void before_fork() {}

void after_fork(int child)
{
    sigset_t debugger; // node blocks SIGUSR1 with --disable-sigusr1, and a program may listen to it
    if (!child)
        return;
    sigemptyset(&debugger);
    sigaddset(&debugger, SIGUSR1);
    sigprocmask(SIG_UNBLOCK, &debugger, nullptr);
    if (uv_loop_fork(node::GetCurrentEventLoop(isolate)) != 0)
        _exit(1);
}

// Math.random() has a sequence of its own in each run, in each context of it.
void prepare()
{
    int64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        _exit(1);
    generator->SetSeed(seed);
}

// Variables that node, V8, OpenSSL, ICU or the dynamic linker read only once, when they start, and TZ, of whose changes node tells
// V8: warm.cjs sets these.
bool is_read_at_start(const char *variable)
{
    static const char *const names[] = {"NODE=", "NODE_", "UV_", "OPENSSL_", "SSL_", "ICU_", "LC_", "LD_", "MALLOC_", "GLIBC_",
        "LANG=", "LANGUAGE=", "SANDBOX_MAIN=", "TZ="};
    for (const char *name : names)
        if (strncmp(variable, name, strlen(name)) == 0)
            return true;
    return false;
}

// Sets a variable of the run, as `process.env` would. Returns whether it did.
bool set_variable(char *variable)
{
    char *value = strchr(variable, '=');
    if (value == nullptr || value == variable || is_read_at_start(variable))
        return false;
    *value = 0;
    const char *now = getenv(variable);
    bool is_set = (now != nullptr && strcmp(now, value + 1) == 0) || setenv(variable, value + 1, 1) == 0;
    *value = '=';
    return is_set;
}

// Gives a child what a new node would have of its own: its process id.
void renew(v8::Local<v8::Context> context)
{
    v8::Local<v8::String> name = v8::String::NewFromUtf8Literal(isolate, "pid", v8::NewStringType::kInternalized);
    if (process.Get(isolate)->DefineOwnProperty(context, name, v8::Integer::New(isolate, getpid()), v8::ReadOnly).IsNothing())
        _exit(126);
}

// serve(process, getter of process.exitCode) returns in a child that has taken a run, or is the trial: its code's file, then
// the variables that it has not set, as "NAME=value". It returns undefined when it fails.
void serve_runs(const v8::FunctionCallbackInfo<v8::Value> &call)
{
    static const interpreter node_js = {.code_name = "main.ts",
        .before_fork = before_fork,
        .after_fork = after_fork,
        .prepare = prepare,
        .trial = "/usr/local/share/sandbox/trial.ts",
        .places_late = 1,
        .snapshot = nullptr,
        .room = nullptr,
        .files = nullptr,
        .restored = nullptr};
    isolate = call.GetIsolate();
    v8::Local<v8::Context> context = isolate->GetCurrentContext();
    main_context.Reset(isolate, context);
    process.Reset(isolate, call[0].As<v8::Object>());
    exit_code.Reset(isolate, call[1].As<v8::Function>());
    node::Environment *environment = node::GetCurrentEnvironment(context);
    // process.exit() and errors that nobody catches end here, the natural end in `at_end`.
    node::SetProcessExitHandler(environment, [](node::Environment *, int code) { end(code); });
    node::AddEnvironmentCleanupHook(isolate, at_end, nullptr);
    generator = find_generator();
    if (generator == nullptr) {
        fputs("fork.cc: V8 does not keep its random numbers where they were\n", stderr);
        return;
    }
    prepare_memory();
    if (serve(&node_js, &taken) != 0)
        return;
    v8::Local<v8::Array> all = v8::Array::New(isolate);
    auto add = [&](const char *text) {
        v8::Local<v8::String> string;
        if (!v8::String::NewFromUtf8(isolate, text).ToLocal(&string) || all->Set(context, all->Length(), string).IsNothing())
            _exit(126);
    };
    add(taken.file);
    for (char **variable = taken.variables; *variable; variable++)
        if (!set_variable(*variable))
            add(*variable);
    renew(context);
    call.GetReturnValue().Set(all);
}

// No object: looking for one makes V8 finish its garbage collection, of which it else does a part in each allocation.
class NoObject : public v8::QueryObjectPredicate {
    bool Filter(v8::Local<v8::Object>) override { return false; }
};

// settle() collects all garbage, and does the tasks that V8 has left for later.
void settle(const v8::FunctionCallbackInfo<v8::Value> &call)
{
    v8::Isolate *current = call.GetIsolate();
    v8::Local<v8::Context> context = current->GetCurrentContext();
    NoObject none;
    std::vector<v8::Global<v8::Object>> found;
    current->LowMemoryNotification();
    node::GetMultiIsolatePlatform(node::GetCurrentEnvironment(context))->DrainTasks(current);
    current->GetHeapProfiler()->QueryObjects(context, &none, &found);
}

} // namespace

NODE_MODULE_INIT()
{
    NODE_SET_METHOD(exports, "settle", settle);
    NODE_SET_METHOD(exports, "serve", serve_runs);
}
