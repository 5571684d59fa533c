// The half of the warm part that knows node's inside: a node that has started forks a child for each run, and the child goes
// on from there. What all languages share is in ../warm/warm.h; what a child's JavaScript must have anew is in warm.cjs.
//
// The parent runs no JavaScript after `serve` was called, so its heap and its event loop stand still. It has one thread
// besides, of node's platform, which waits for delayed tasks that never come; a child does not have it. That is why the
// parent's flags must keep V8 from using threads (--single-threaded, --v8-pool-size=0, --disable-sigusr1), and why a child
// ends without node's teardown, which would wait for that thread. libuv makes its pool of threads anew in a child.
#include <errno.h>
#include <fcntl.h>
#include <node.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>
#include <uv.h>

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

// Makes a fork copy the page tables of a mapping of a file. The kernel does that only for mappings of which one page has been
// written to; in all others a child faults in each page anew, which is a third of what its program costs. One page becomes
// private, with what was in it.
void copy_tables(uintptr_t start, uintptr_t end, int protection)
{
    void *from = reinterpret_cast<void *>(start);
    if (mprotect(from, end - start, protection | PROT_WRITE) != 0)
        return; /* a rule of the host against code that can be written: programs are slower, and as right */
    volatile char *first = static_cast<char *>(from);
    *first = *first;
    mprotect(from, end - start, protection);
}

// Prepares all mappings for forks. V8 excludes its pages from them (MADV_DONTFORK; /proc/self/smaps calls it `dc`), since a
// fork is usually followed by exec. Here the child needs them.
void prepare_mappings()
{
    struct mapping {
        uintptr_t start, end;
        char flags[5];
        unsigned long inode;
        unsigned long resident;
        bool excluded;
    };
    std::vector<mapping> all; // the list is complete before the first mapping is changed
    FILE *maps = fopen("/proc/self/smaps", "re");
    char line[4096];
    mapping next = {}, header = {};
    if (maps == nullptr)
        _exit(1);
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %4s %*x %*s %lu", &header.start, &header.end, header.flags, &header.inode) == 4)
            next = header;
        sscanf(line, "Rss: %lu kB", &next.resident);
        if (strncmp(line, "VmFlags:", 8) == 0) {
            next.excluded = strstr(line, " dc") != nullptr;
            all.push_back(next);
        }
    }
    fclose(maps);
    for (const mapping &it : all) {
        if (it.excluded && madvise(reinterpret_cast<void *>(it.start), it.end - it.start, MADV_DOFORK) != 0)
            _exit(1);
        if (it.inode != 0 && it.flags[0] == 'r' && it.flags[1] == '-' && it.flags[3] == 'p' && it.resident >= 128)
            copy_tables(it.start, it.end, PROT_READ | (it.flags[2] == 'x' ? PROT_EXEC : 0));
    }
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

// serve(process, getter of process.exitCode) returns in a child that has taken a run, or is the trial: its code's file, then
// its variables as "NAME=value". It returns undefined when it fails.
void serve_runs(const v8::FunctionCallbackInfo<v8::Value> &call)
{
    static const interpreter node_js = {"main.ts", before_fork, after_fork, prepare, "/usr/local/share/sandbox/trial.ts"};
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
    prepare_mappings();
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
        add(*variable);
    call.GetReturnValue().Set(all);
}

// settle() collects all garbage, and does the tasks that V8 has left for later.
void settle(const v8::FunctionCallbackInfo<v8::Value> &call)
{
    v8::Isolate *current = call.GetIsolate();
    current->LowMemoryNotification();
    node::GetMultiIsolatePlatform(node::GetCurrentEnvironment(current->GetCurrentContext()))->DrainTasks(current);
}

} // namespace

NODE_MODULE_INIT()
{
    NODE_SET_METHOD(exports, "settle", settle);
    NODE_SET_METHOD(exports, "serve", serve_runs);
}
