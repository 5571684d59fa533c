/* Makes a process of a snapshot (../snapshot.h): restore DIRECTORY
 *
 * This one file is a program and a shared object. As a program it looks whether the snapshot fits, and then executes the
 * interpreter that was saved, so that the kernel has its name and its file. The loader of the interpreter calls la_version()
 * here (LD_AUDIT, see rtld-audit(7)) before it has loaded anything else. That replaces all memory by that of the snapshot,
 * and goes on where the process was saved. The code works in a place of its own meanwhile, so it has no C library, no data
 * that could be written, and no relocation. What went wrong goes to descriptor 3, as `failed REASON` or `unable REASON`. */
#if defined(__x86_64__)
#define _GNU_SOURCE
#include "../snapshot.h"
#include "calls.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/auxvec.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#define LINE 3
#define CANNOT 75 /* EX_TEMPFAIL: the warm part must import */
#define OWN "SANDBOX_SNAPSHOT="
#define AUDIT "LD_AUDIT="
#define TUNABLES "GLIBC_TUNABLES="
/* Without this the loader would register a part of its memory with the kernel, which then is no longer there. */
#define NO_RSEQ TUNABLES "glibc.pthread.rseq=0"
#define MAP_DROPPABLE_PAGES 8 /* MAP_DROPPABLE of Linux 6.11 */

enum { VARIABLES = 1024, MAPS = 1 << 17, RANGES_ROOM = sizeof(struct snapshot_range) * SNAPSHOT_RANGES };

/* All that this program writes to. It lies behind its code, in the place of its own. */
struct state {
    struct snapshot head;
    struct snapshot_range ranges[SNAPSHOT_RANGES];
    struct snapshot_world world;
    uint64_t parts[SNAPSHOT_PARTS], auxv[SNAPSHOT_AUXV], auxv_length;
    char environment[SNAPSHOT_ROOM];
    uint64_t environment_length;
    char maps[MAPS];
    const char *variables[VARIABLES];
    int file;
    uint64_t stack[2048];
};
#define CODE_SIZE 0x10000UL
_Static_assert(CODE_SIZE + sizeof(struct state) < RESTORER_SIZE / 2, "the other half is for the vDSO");
static struct state *const state = (struct state *)(RESTORER_AT + CODE_SIZE);

/* Says why there is no restored process, and ends. `why` is the errno of a call, or 0. */
__attribute__((noreturn)) static void fail_with(const char *what, const char *which, long why)
{
    /* Of too little memory or too many files is not the snapshot's fault. */
    int is_here = why == -ENOMEM || why == -EAGAIN || why == -ENFILE || why == -EMFILE;
    char line[200], number[4], *at = append(line, is_here ? "unable " : "failed ");
    at = append(at, what);
    if (length_of(which) < 100)
        at = append(append(at, *which ? ": " : ""), which);
    if (why < 0 && why > -1000) {
        why = -why;
        number[0] = (char)('0' + why / 100), number[1] = (char)('0' + why / 10 % 10), number[2] = (char)('0' + why % 10), number[3] = 0;
        at = append(append(append(at, " (errno "), number + (why < 10 ? 2 : why < 100)), ")");
    }
    *at++ = '\n';
    CALL(SYS_write, LINE, line, at - line, 0, 0, 0);
    for (;;)
        CALL(SYS_exit_group, CANNOT, 0, 0, 0, 0, 0);
}

static long check(long result, const char *what)
{
    if (result < 0 && result > -4096)
        fail_with(what, "", result);
    return result;
}

/* Reads a file of /proc to its end, and adds a zero byte. Returns the length. */
static uint64_t read_all(const char *path, char *to, uint64_t room, const char *what)
{
    long in = check(CALL(SYS_open, path, O_RDONLY | O_CLOEXEC, 0, 0, 0, 0), what), got = 1;
    uint64_t length = 0;
    while (got > 0 && length + 1 < room) {
        got = check(CALL(SYS_read, in, to + length, room - 1 - length, 0, 0, 0), what);
        length += (uint64_t)got;
    }
    if (got > 0)
        fail_with(what, "it is too long", 0);
    to[length] = 0;
    CALL(SYS_close, in, 0, 0, 0, 0, 0);
    return length;
}

/* Makes the place where this program works. */
static void make_place(void)
{
    check(CALL(SYS_mmap, RESTORER_AT, RESTORER_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0),
        "there is no memory");
}

/* ---- does the snapshot fit? ---- */

static void read_head(const char *directory)
{
    struct snapshot *head = &state->head;
    struct stat about;
    char path[512], *at;
    if (length_of(directory) > sizeof path - 32)
        fail_with("the path of the directory is too long", "", 0);
    at = append(append(path, directory), "/" SNAPSHOT_NAME);
    *at = 0;
    state->file = (int)check(CALL(SYS_open, path, O_RDONLY | O_CLOEXEC, 0, 0, 0, 0), "the snapshot cannot be opened");
    check(CALL(SYS_fstat, state->file, &about, 0, 0, 0, 0), "the snapshot cannot be read");
    long got = check(CALL(SYS_pread64, state->file, head, sizeof *head + RANGES_ROOM, 0, 0, 0), "the snapshot cannot be read");
    if (got < (long)sizeof *head || !equal(head->magic, SNAPSHOT_MAGIC, sizeof head->magic))
        fail_with("the file is no snapshot", "", 0);
    if (head->layout != SNAPSHOT_LAYOUT)
        fail_with("the snapshot has another layout", "", 0);
    if ((uint64_t)about.st_size != head->size || head->ranges > SNAPSHOT_RANGES || got < (long)head->length ||
        head->length != sizeof *head + head->ranges * sizeof *state->ranges)
        fail_with("the snapshot is not complete", "", 0);
    uint64_t sum = head->checksum;
    head->checksum = 0;
    if (snapshot_sum(head, head->length, 0) != sum || /* the ranges follow it */
        head->file_count < 1 || head->file_count > SNAPSHOT_FILES || head->auxv_length > sizeof head->auxv)
        fail_with("the snapshot is damaged", "", 0);
    head->checksum = sum;
}

static uint64_t of_auxv(uint64_t type)
{
    for (uint64_t n = 0; n + 1 < state->auxv_length / 8 && state->auxv[n] != AT_NULL; n += 2)
        if (state->auxv[n] == type)
            return state->auxv[n + 1];
    return 0;
}

static uint64_t hexadecimal(const char **at)
{
    uint64_t value = 0;
    for (; (**at >= '0' && **at <= '9') || (**at >= 'a' && **at <= 'f'); ++*at)
        value = value * 16 + (uint64_t)(**at <= '9' ? **at - '0' : **at - 'a' + 10);
    return value;
}

/* Finds what the kernel mapped into this process: the vDSO and its data. */
static void find_parts(void)
{
    unsigned count = 0;
    read_all("/proc/self/maps", state->maps, sizeof state->maps, "/proc/self/maps cannot be read");
    for (const char *line = state->maps; *line;) {
        const char *at = line, *name;
        uint64_t from = hexadecimal(&at), to = (at++, hexadecimal(&at));
        for (name = at; *name && *name != '\n' && *name != '['; name++)
            ;
        if (begins(name, "[vvar") || begins(name, "[vdso]")) {
            if (count == SNAPSHOT_PARTS)
                fail_with("the vDSO has too many parts", "", 0);
            state->parts[count] = from;
            state->world.part_sizes[count++] = to - from;
            if (name[2] == 'd')
                state->world.vdso = snapshot_sum((const void *)from, to - from, 0);
        }
        while (*line && *line++ != '\n')
            ;
    }
}

/* Compares this world with that of the snapshot. */
static void check_world(void)
{
    const struct snapshot_world *then = &state->head.world, *now = &state->world;
    struct utsname kernel;
    check(CALL(SYS_uname, &kernel, 0, 0, 0, 0, 0), "the kernel has no name");
    memcpy(state->world.kernel[0], kernel.release, 65);
    memcpy(state->world.kernel[1], kernel.version, 65);
    memcpy(state->world.kernel[2], kernel.machine, 65);
    snapshot_processor(state->world.leaves);
    state->world.hwcap[0] = of_auxv(AT_HWCAP), state->world.hwcap[1] = of_auxv(AT_HWCAP2);
    find_parts();
    if (!equal(then->kernel, now->kernel, sizeof now->kernel))
        fail_with("the snapshot is of another kernel", "", 0);
    if (!equal(then->leaves, now->leaves, sizeof now->leaves) || !equal(then->hwcap, now->hwcap, sizeof now->hwcap))
        fail_with("the snapshot is of another processor", "", 0);
    if (then->vdso != now->vdso || !equal(then->part_sizes, now->part_sizes, sizeof now->part_sizes))
        fail_with("the snapshot is of another vDSO", "", 0);
    for (unsigned n = 0; n < state->head.file_count; n++) {
        const struct snapshot_file *file = &state->head.files[n];
        struct stat about;
        long result = CALL(SYS_stat, file->path, &about, 0, 0, 0, 0);
        if (result < 0)
            fail_with("a file of the snapshot is missing", file->path, result);
        if (about.st_size != file->size || about.st_mtim.tv_sec != file->seconds || about.st_mtim.tv_nsec != file->nanoseconds)
            fail_with("the snapshot is of another image", file->path, 0);
    }
}

/* ---- the program ---- */

__attribute__((noreturn)) static void start_moved(void);

__attribute__((noreturn, used)) static void begin(uint64_t *stack)
{
    uint64_t count = *stack, used = 3;
    char **arguments = (char **)(stack + 1), **variables = arguments + count + 1, **at = variables;
    make_place();
    if (count != 2)
        fail_with("the only argument of this program is the directory of the snapshot", "", 0);
    for (; *at; at++)
        ;
    const uint64_t *auxv = (const uint64_t *)(at + 1);
    for (uint64_t n = 0; n + 1 < SNAPSHOT_AUXV && (n < 2 || auxv[n - 2] != AT_NULL); n += 2)
        state->auxv[n] = auxv[n], state->auxv[n + 1] = auxv[n + 1], state->auxv_length = (n + 2) * 8;
    read_head(arguments[1]);
    check_world();
    for (at = variables; *at; at++) {
        unsigned long length = length_of(*at) + 1;
        if (begins(*at, OWN) || begins(*at, AUDIT) || begins(*at, TUNABLES) || begins(*at, "LD_PRELOAD="))
            fail_with("the environment has a variable that the loader reads", "", 0);
        if (state->environment_length + length + 1024 > sizeof state->environment || used + 1 >= VARIABLES)
            fail_with("the environment is too large", "", 0);
        memcpy(state->environment + state->environment_length, *at, length);
        state->environment_length += length;
        state->variables[used++] = *at;
    }
    if (!state->head.dynamic)
        start_moved();
    char own[600], audit[600];
    const char *path = (const char *)of_auxv(AT_EXECFN), *next[] = {state->head.files[0].path, 0};
    if (length_of(path) > 500 || length_of(arguments[1]) > 500)
        fail_with("the path of this program is too long", "", 0);
    *append(append(own, OWN), arguments[1]) = 0;
    *append(append(audit, AUDIT), path) = 0;
    state->variables[0] = own, state->variables[1] = audit, state->variables[2] = NO_RSEQ;
    fail_with("the interpreter cannot be executed", next[0], CALL(SYS_execve, next[0], next, state->variables, 0, 0, 0));
}

__attribute__((naked, noreturn, visibility("default"))) void _start(void)
{
    __asm__("mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
}

/* ---- in the interpreter ---- */

__attribute__((visibility("default"))) unsigned la_version(unsigned version)
{
    make_place();
    state->auxv_length = read_all("/proc/self/auxv", (char *)state->auxv, sizeof state->auxv, "/proc/self/auxv cannot be read");
    state->environment_length = read_all("/proc/self/environ", state->environment, sizeof state->environment, "/proc/self/environ cannot be read");
    /* The first three variables are those of begin(). */
    const char *directory = state->environment + length_of(OWN);
    uint64_t behind = 0;
    for (int n = 0; n < 3; n++)
        behind += length_of(state->environment + behind) + 1;
    if (!begins(state->environment, OWN) || behind > state->environment_length)
        return version; /* not from begin() */
    read_head(directory);
    find_parts(); /* begin() has compared all else */
    state->environment_length -= behind;
    memcpy(state->environment, state->environment + behind, state->environment_length);
    start_moved();
}

static const struct snapshot_range *stack_range(void)
{
    for (unsigned n = 0; n < state->head.ranges; n++)
        if (state->ranges[n].kind == STACK)
            return &state->ranges[n];
    return 0;
}

static void map_ranges(void)
{
    for (unsigned n = 0; n < state->head.ranges; n++) {
        const struct snapshot_range *it = &state->ranges[n];
        long flags = MAP_FIXED | MAP_NORESERVE, file = -1;
        switch ((enum snapshot_kind)it->kind) {
        case PAGES: flags |= MAP_PRIVATE, file = state->file; break;
        case EMPTY: flags |= MAP_PRIVATE | MAP_ANONYMOUS; break;
        case STACK: flags |= MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_STACK; break;
        case DROPPABLE: flags |= MAP_DROPPABLE_PAGES | MAP_ANONYMOUS; break;
        }
        check(CALL(SYS_mmap, it->at, it->length, it->protection, flags, file, file < 0 ? 0 : it->offset), "memory cannot be mapped");
        if (it->advice)
            check(CALL(SYS_madvise, it->at, it->length, it->advice, 0, 0, 0), "madvise()");
    }
    const struct snapshot_range *stack = stack_range();
    uint64_t used = (state->head.registers.rsp - 128) / SNAPSHOT_PAGE * SNAPSHOT_PAGE; /* 128: the red zone */
    if (!stack || used < stack->at || used >= stack->at + stack->length)
        fail_with("the snapshot has no stack", "", 0);
    uint64_t length = stack->at + stack->length - used;
    if (CALL(SYS_pread64, state->file, used, length, stack->offset + (used - stack->at), 0, 0) != (long)length)
        fail_with("the stack cannot be read", "", 0);
}

/* Tells the loader the device that the image has in this container. */
static void set_devices(void)
{
    const struct snapshot *head = &state->head;
    struct stat about;
    check(CALL(SYS_stat, head->files[0].path, &about, 0, 0, 0, 0), "the interpreter cannot be found");
    for (int n = 0; n < SNAPSHOT_OBJECTS && head->device_at[n] && about.st_dev != head->device; n++)
        *(uint64_t *)head->device_at[n] = about.st_dev;
}

static void move_parts(const uint64_t *to)
{
    for (int n = 0; n < SNAPSHOT_PARTS && state->world.part_sizes[n]; n++) {
        uint64_t size = state->world.part_sizes[n];
        check(CALL(SYS_mremap, state->parts[n], size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to[n], 0), "the vDSO cannot be moved");
        state->parts[n] = to[n];
    }
}

/* What the kernel shows of the process and its parts. */
static void set_map(void)
{
    struct snapshot *head = &state->head;
    static const uint8_t of_this_process[] = {AT_UID, AT_EUID, AT_GID, AT_EGID, AT_SECURE};
    uint64_t *shown[] = {head->auxv, (uint64_t *)head->auxv_at};
    for (unsigned n = 0; n + 1 < head->auxv_length / 8; n += 2) {
        for (unsigned i = 0; i < sizeof of_this_process; i++)
            if (head->auxv[n] == of_this_process[i])
                shown[0][n + 1] = shown[1][n + 1] = of_auxv(of_this_process[i]);
        if (head->auxv[n] == AT_RANDOM)
            CALL(SYS_getrandom, head->auxv[n + 1], 16, 0, 0, 0, 0);
    }
    memcpy((char *)head->room_at, state->environment, state->environment_length);
    head->map.env_start = head->room_at, head->map.env_end = head->room_at + state->environment_length;
    head->map.auxv = (void *)head->auxv, head->map.auxv_size = (uint32_t)head->auxv_length;
    check(CALL(SYS_prctl, PR_SET_MM, PR_SET_MM_MAP, &head->map, sizeof head->map, 0, 0), "PR_SET_MM_MAP");
    CALL(SYS_prctl, PR_SET_NAME, head->name, 0, 0, 0, 0);
}

/* What the kernel keeps of the thread. */
static void set_thread(void)
{
    const struct snapshot *head = &state->head;
    for (int n = 1; n <= SNAPSHOT_SIGNALS; n++)
        if (n != 9 && n != 19) /* SIGKILL, SIGSTOP */
            check(CALL(SYS_rt_sigaction, n, &head->signals[n - 1], 0, 8, 0, 0), "rt_sigaction()");
    check(CALL(SYS_sigaltstack, head->alternate_stack, 0, 0, 0, 0, 0), "sigaltstack()");
    check(CALL(SYS_arch_prctl, 0x1002, head->fs, 0, 0, 0, 0), "ARCH_SET_FS");
    check(CALL(SYS_arch_prctl, 0x1001, head->gs, 0, 0, 0, 0), "ARCH_SET_GS");
    /* The C library keeps the id of the thread where the kernel clears it at the thread's end. */
    if (head->thread_id_at)
        *(int *)head->thread_id_at = (int)CALL(SYS_set_tid_address, head->thread_id_at, 0, 0, 0, 0, 0);
    if (head->robust)
        check(CALL(SYS_set_robust_list, head->robust, head->robust_length, 0, 0, 0, 0), "set_robust_list()");
    if (head->rseq) {
        memset((char *)head->rseq, 0, head->rseq_length);
        *(int32_t *)(head->rseq + 4) = -1;
        check(CALL(SYS_rseq, head->rseq, head->rseq_length, 0, 0x53053053, 0, 0), "rseq()");
    }
    /* The canary of functions that begin from here on: none that was saved returns. */
    CALL(SYS_getrandom, head->fs + 0x29, 7, 0, 0, 0, 0);
    check(CALL(SYS_rt_sigprocmask, 2, &head->blocked, 0, 8, 0, 0), "rt_sigprocmask()");
}

__attribute__((noreturn, used)) static void replace_all(void)
{
    uint64_t aside[SNAPSHOT_PARTS], at = RESTORER_AT + RESTORER_SIZE / 2;
    for (int n = 0; n < SNAPSHOT_PARTS; n++)
        aside[n] = at, at += state->world.part_sizes[n];
    move_parts(aside);
    check(CALL(SYS_munmap, 0, RESTORER_AT, 0, 0, 0, 0), "munmap()");
    check(CALL(SYS_munmap, RESTORER_AT + RESTORER_SIZE, USER_END - RESTORER_AT - RESTORER_SIZE, 0, 0, 0, 0), "munmap()");
    map_ranges();
    move_parts(state->head.part_at);
    set_devices();
    set_map();
    set_thread();
    CALL(SYS_close, state->file, 0, 0, 0, 0, 0);
    __asm__ volatile("ldmxcsr 64(%0)\n fldcw 68(%0)\n mov 0(%0), %%rbx\n mov 16(%0), %%r12\n mov 24(%0), %%r13\n mov 32(%0), %%r14\n"
                     "mov 40(%0), %%r15\n mov 48(%0), %%rsp\n mov 56(%0), %%rcx\n mov 8(%0), %%rbp\n mov $1, %%eax\n jmp *%%rcx"
                     : : "r"(&state->head.registers) : "memory");
    __builtin_unreachable();
}

extern const char __ehdr_start[] __attribute__((visibility("hidden"))), _end[] __attribute__((visibility("hidden")));

/* Copies the code to the place of its own, and goes on there. */
static void start_moved(void)
{
    uint64_t size = (uint64_t)(_end - __ehdr_start);
    void (*next)(void) = (void (*)(void))(RESTORER_AT + (uint64_t)((const char *)replace_all - __ehdr_start));
    if (size > CODE_SIZE)
        fail_with("this program is too large", "", 0);
    memcpy((char *)RESTORER_AT, __ehdr_start, size);
    check(CALL(SYS_mprotect, RESTORER_AT, CODE_SIZE, PROT_READ | PROT_EXEC, 0, 0, 0), "code cannot be mapped");
    __asm__ volatile("mov %0, %%rsp\n call *%1" : : "r"(state->stack + 2048), "r"(next) : "memory");
    __builtin_unreachable();
}
#else
/* Another processor: there is no snapshot, and so the warm part imports. Linux has these numbers of calls on all newer
 * processors (asm-generic/unistd.h). */
#if defined(__aarch64__)
__attribute__((noreturn, visibility("default"))) void _start(void)
{
    static const char line[] = "unsupported there are no snapshots for this processor\n";
    register long x0 __asm__("x0") = 3, x1 __asm__("x1") = (long)line, x2 __asm__("x2") = sizeof line - 1, x8 __asm__("x8") = 64;
    __asm__ volatile("svc #0\n mov x0, #75\n mov x8, #94\n svc #0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x8) : "memory");
    __builtin_unreachable();
}
#else
#error "write the program that says that there are no snapshots for this processor"
#endif
#endif
