/* Saves this process as a file (snapshot.h), from which restore/restore.c makes another process like it.
 *
 * The process must have one thread, and no descriptors but 0 to 3. What cannot be saved is refused with its name: a process
 * that goes on with less than it had would be worse than none. Nothing of a run may ever be in a snapshot: this is called
 * before the first run, in a container that no caller has used. */
#include "snapshot.h"
#include "warm.h"
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <asm/prctl.h>
#include <dirent.h>
#include <link.h>
#include <sys/prctl.h>

enum {
    TEXT = 8 << 20,
    CHUNK = 1 << 20,
    OBJECT_WORDS = 140, /* a `struct link_map` of glibc 2.41 has 146 */
};

/* All that saving needs. It is not saved itself. */
static struct work {
    struct snapshot head;
    struct snapshot_range ranges[SNAPSHOT_RANGES];
    char text[TEXT]; /* /proc/self/smaps */
    char chunk[CHUNK];
    int out, memory;
} * work;

static struct snapshot_registers registers;

/* Saves what a function must keep. It returns 0, and once more in the restored process: 1. */
__attribute__((naked, noinline, returns_twice)) static int save_registers(struct snapshot_registers *to)
{
    __asm__("mov %rbx, 0(%rdi)\n mov %rbp, 8(%rdi)\n mov %r12, 16(%rdi)\n mov %r13, 24(%rdi)\n mov %r14, 32(%rdi)\n"
            "mov %r15, 40(%rdi)\n lea 8(%rsp), %rax\n mov %rax, 48(%rdi)\n mov (%rsp), %rax\n mov %rax, 56(%rdi)\n"
            "stmxcsr 64(%rdi)\n fnstcw 68(%rdi)\n xor %eax, %eax\n ret");
}
_Static_assert(offsetof(struct snapshot_registers, x87) == 68, "save_registers has these offsets");

static int refuse(const char *what, const char *which)
{
    dprintf(2, "sandbox: no snapshot: %s%s%s\n", what, *which ? ": " : "", which);
    return -1;
}

static int failed(const char *what) { return refuse(what, strerror(errno)); }

/* Reads a file of /proc as a string. */
static int read_text(const char *path, char *to, size_t size)
{
    int in = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t got;
    while (in >= 0 && length + 1 < size && (got = read(in, to + length, size - 1 - length)) > 0)
        length += (size_t)got;
    to[length] = 0;
    if (in >= 0)
        close(in);
    return in >= 0 && length > 0 && length + 1 < size ? 0 : -1;
}

static int add_file(const char *path)
{
    struct snapshot *head = &work->head;
    struct stat about;
    for (unsigned n = 0; n < head->file_count; n++)
        if (strcmp(head->files[n].path, path) == 0)
            return 0;
    if (head->file_count == SNAPSHOT_FILES || strlen(path) >= sizeof head->files[0].path || stat(path, &about) != 0)
        return refuse("a file that the process depends on cannot be noted", path);
    struct snapshot_file *file = &head->files[head->file_count++];
    strcpy(file->path, path);
    file->size = about.st_size, file->seconds = about.st_mtim.tv_sec, file->nanoseconds = about.st_mtim.tv_nsec;
    return 0;
}

/* The descriptors that the restored process has are those of its container; it can have no other. */
static int check_descriptors(void)
{
    DIR *all = opendir("/proc/self/fd");
    struct dirent *entry;
    int other = 0;
    char target[300] = "";
    if (all == NULL)
        return failed("/proc/self/fd");
    while (!other && (entry = readdir(all))) {
        int number = atoi(entry->d_name);
        if (number <= LINE || number == dirfd(all))
            continue;
        other = 1;
        ssize_t length = readlinkat(dirfd(all), entry->d_name, target, sizeof target - 1);
        target[length < 0 ? 0 : length] = 0;
    }
    closedir(all);
    return other ? refuse("the process has a descriptor above 3", target) : 0;
}

static int note_process(const char *const *files, const char *room)
{
    struct snapshot *head = &work->head;
    char text[1024], *at;
    struct utsname kernel;
    memcpy(head->magic, SNAPSHOT_MAGIC, sizeof head->magic);
    head->layout = SNAPSHOT_LAYOUT;
    uname(&kernel);
    memcpy(head->world.kernel[0], kernel.release, sizeof kernel.release);
    memcpy(head->world.kernel[1], kernel.version, sizeof kernel.version);
    memcpy(head->world.kernel[2], kernel.machine, sizeof kernel.machine);
    snapshot_processor(head->world.leaves);
    ssize_t length = readlink("/proc/self/exe", text, sizeof text - 1);
    text[length < 0 ? 0 : length] = 0;
    head->dynamic = getauxval(AT_BASE) != 0;
    if (add_file(text) != 0)
        return -1;
    for (; files && *files; files++)
        if (add_file(*files) != 0)
            return -1;

    /* The places of the process, as set_command_line() of Python reads them too; see proc_pid_stat(5). */
    if (read_text("/proc/self/stat", text, sizeof text) != 0 || (at = strrchr(text, ')')) == NULL)
        return failed("/proc/self/stat");
    unsigned long long field[52] = {0};
    for (int n = 3; n < 52 && (at = strchr(at, ' ')); n++)
        field[n] = strtoull(++at, NULL, 10);
    if (field[20] != 1)
        return refuse("the process has more than one thread", "");
    head->map = (struct prctl_mm_map){.start_code = field[26], .end_code = field[27], .start_stack = field[28],
        .start_data = field[45], .end_data = field[46], .start_brk = field[47], .brk = (uint64_t)sbrk(0), .arg_start = field[48],
        .arg_end = field[49], .exe_fd = (uint32_t)-1};

    int in = open("/proc/self/auxv", O_RDONLY | O_CLOEXEC);
    ssize_t got = in < 0 ? -1 : read(in, head->auxv, sizeof head->auxv);
    close(in);
    if (got <= 0 || got == sizeof head->auxv)
        return failed("/proc/self/auxv");
    head->auxv_length = (uint64_t)got;
    for (unsigned n = 0; n + 1 < head->auxv_length / 8; n += 2) /* getauxval() has what the C library makes of them */
        if (head->auxv[n] == AT_HWCAP || head->auxv[n] == AT_HWCAP2)
            head->world.hwcap[head->auxv[n] == AT_HWCAP2] = head->auxv[n + 1];
    const uint64_t *stack = (const uint64_t *)field[28]; /* the count and the list of arguments, variables, and then auxv */
    stack += *stack + 2;
    while (*stack++)
        ;
    if (memcmp(stack, head->auxv, (size_t)got) != 0)
        return refuse("the auxiliary vector is not on the stack", "");
    head->auxv_at = (uint64_t)stack;

    extern __attribute__((weak)) const ptrdiff_t __rseq_offset;
    extern __attribute__((weak)) const unsigned __rseq_size;
    uint64_t head_at, size;
    syscall(SYS_arch_prctl, ARCH_GET_FS, &head->fs);
    syscall(SYS_arch_prctl, ARCH_GET_GS, &head->gs);
    if (prctl(PR_GET_TID_ADDRESS, &head->thread_id_at) != 0)
        return failed("PR_GET_TID_ADDRESS");
    if (syscall(SYS_get_robust_list, 0, &head_at, &size) == 0)
        head->robust = head_at, head->robust_length = size;
    if (&__rseq_offset && &__rseq_size && __rseq_size > 0) { /* the C library registers 32 bytes at least */
        head->rseq = head->fs + (uint64_t)__rseq_offset;
        head->rseq_length = __rseq_size < 32 ? 32 : __rseq_size;
    }
    syscall(SYS_sigaltstack, NULL, head->alternate_stack);
    syscall(SYS_rt_sigprocmask, 0, NULL, &head->blocked, sizeof head->blocked);
    for (int n = 1; n <= SNAPSHOT_SIGNALS; n++)
        syscall(SYS_rt_sigaction, n, NULL, &head->signals[n - 1], sizeof head->signals[0].mask);
    prctl(PR_GET_NAME, head->name);
    head->room_at = (uint64_t)room;
    head->registers = registers;
    return 0;
}

/* Finds where the loader keeps the devices of the shared objects that programs load by more than one name: those of the system.
 * The layout of `struct link_map` is the loader's own, so this looks for the device and the inode, one behind the other. */
static void note_objects(void)
{
    struct snapshot *head = &work->head;
    struct stat about;
    unsigned count = 0;
    if (stat(head->files[0].path, &about) != 0)
        return;
    head->device = about.st_dev;
    for (const struct link_map *map = _r_debug.r_map; map && count < SNAPSHOT_OBJECTS; map = map->l_next) {
        if (strncmp(map->l_name, "/lib", 4) != 0 || stat(map->l_name, &about) != 0 || about.st_dev != head->device)
            continue;
        for (const uint64_t *at = (const uint64_t *)map; at < (const uint64_t *)map + OBJECT_WORDS; at++)
            if (at[0] == about.st_dev && at[1] == about.st_ino) {
                head->device_at[count++] = (uint64_t)at;
                break;
            }
    }
}

/* What one line of /proc/self/smaps and the lines below it say. */
struct mapping {
    uint64_t from, to;
    unsigned long inode;
    char rights[5];
    const char *name, *flags;
};

static char *end_line(char *at)
{
    char *end = strchr(at, '\n');
    if (end == NULL)
        return NULL;
    *end = 0;
    return end + 1;
}

/* Reads the next mapping, and moves `at` behind it. Returns 0 at the end. */
static int next_mapping(char **at, struct mapping *found)
{
    int behind = 0;
    char *line = *at, *next = line ? end_line(line) : NULL;
    if (next == NULL || sscanf(line, "%lx-%lx %4s %*s %*s %lu %n", &found->from, &found->to, found->rights, &found->inode, &behind) < 4)
        return 0;
    found->name = line + behind;
    found->flags = "";
    while (next && *next >= 'A' && *next <= 'Z') {
        line = next;
        next = end_line(line);
        if (strncmp(line, "VmFlags:", 8) == 0)
            found->flags = line + 8;
    }
    *at = next;
    return 1;
}

static int has_flag(const struct mapping *it, const char *flag)
{
    char word[5] = {' ', flag[0], flag[1], ' ', 0};
    return strstr(it->flags, word) != NULL;
}

/* Adds a range, or makes the last one longer. */
static int add_range(const struct snapshot_range *it)
{
    struct snapshot *head = &work->head;
    struct snapshot_range *last = head->ranges ? &work->ranges[head->ranges - 1] : NULL;
    if (last && last->at + last->length == it->at && last->kind == it->kind && it->kind <= EMPTY &&
        last->protection == it->protection && last->advice == it->advice) {
        last->length += it->length;
        return 0;
    }
    if (head->ranges == SNAPSHOT_RANGES)
        return refuse("the process has too many mappings", "");
    work->ranges[head->ranges++] = *it;
    return 0;
}

static int add_mapping(const struct mapping *it)
{
    struct snapshot *head = &work->head;
    struct snapshot_range range = {.at = it->from, .length = it->to - it->from};
    if (it->from >= USER_END || (it->from <= (uint64_t)work && (uint64_t)work < it->to))
        return 0;
    if (strncmp(it->name, "[vvar", 5) == 0 || strcmp(it->name, "[vdso]") == 0) {
        unsigned n = 0;
        while (n < SNAPSHOT_PARTS && head->world.part_sizes[n])
            n++;
        if (n == SNAPSHOT_PARTS)
            return refuse("the kernel gave the process too many parts of a vDSO", "");
        head->part_at[n] = it->from, head->world.part_sizes[n] = range.length;
        if (it->name[2] == 'd')
            head->world.vdso = snapshot_sum((const void *)it->from, range.length, 0);
        return 0;
    }
    if (it->from < RESTORER_AT + RESTORER_SIZE && it->to > RESTORER_AT)
        return refuse("a mapping is where the restoring program works", it->name);
    if (it->rights[3] != 'p' && !has_flag(it, "dp") && (it->inode == 0 || has_flag(it, "mw"))) /* mw: it can become writable */
        return refuse("the process has shared memory", it->name);
    if (has_flag(it, "lo") || has_flag(it, "ht") || has_flag(it, "io") || has_flag(it, "sl") || has_flag(it, "ss"))
        return refuse("the process has memory that is locked, sealed, of huge pages or of a device", it->name);
    range.protection = (it->rights[0] == 'r' ? PROT_READ : 0) | (it->rights[1] == 'w' ? PROT_WRITE : 0) | (it->rights[2] == 'x' ? PROT_EXEC : 0);
    range.kind = has_flag(it, "dp") ? DROPPABLE : has_flag(it, "gd") ? STACK : range.protection == 0 ? EMPTY : PAGES;
    range.advice = range.kind == DROPPABLE ? 0 : has_flag(it, "dc") ? MADV_DONTFORK : has_flag(it, "wf") ? MADV_WIPEONFORK : 0;
    if (range.advice == MADV_WIPEONFORK)
        range.kind = EMPTY; /* it asks for no less than a copy of it to be empty */
    return add_range(&range);
}

static int note_memory(void)
{
    struct mapping it, last = {0};
    char *at = work->text;
    if (read_text("/proc/self/smaps", work->text, sizeof work->text) != 0)
        return failed("/proc/self/smaps");
    while (next_mapping(&at, &it)) {
        if (add_mapping(&it) != 0)
            return -1;
        last = it;
    }
    if (last.to == 0 || work->head.world.vdso == 0)
        return refuse("/proc/self/smaps cannot be understood", "");
    /* Read-only data beside code becomes a part of it, which makes one mapping of two. */
    unsigned kept = 0;
    for (unsigned n = 0; n < work->head.ranges; n++) {
        struct snapshot_range *range = &work->ranges[n];
        const struct snapshot_range *next = n + 1 < work->head.ranges ? range + 1 : NULL, *before = kept ? &work->ranges[kept - 1] : NULL;
        if (range->kind == PAGES && range->protection == PROT_READ && !range->advice &&
            ((next && next->kind == PAGES && next->protection == (PROT_READ | PROT_EXEC) && next->at == range->at + range->length) ||
                (before && before->kind == PAGES && before->protection == (PROT_READ | PROT_EXEC) && before->at + before->length == range->at)))
            range->protection |= PROT_EXEC;
        struct snapshot_range copy = *range;
        if (before && before->at + before->length == copy.at && before->kind == copy.kind && copy.kind <= EMPTY &&
            before->protection == copy.protection && before->advice == copy.advice)
            work->ranges[kept - 1].length += copy.length;
        else
            work->ranges[kept++] = copy;
    }
    work->head.ranges = kept;
    return 0;
}

static int is_zero(const char *page)
{
    const uint64_t *words = (const uint64_t *)page;
    for (unsigned n = 0; n < SNAPSHOT_PAGE / sizeof *words; n++)
        if (words[n])
            return 0;
    return 1;
}

/* Reads memory by its file: a page of a file that has become shorter is an error there, and no signal. */
static void read_memory(uint64_t at, size_t length)
{
    if (pread(work->memory, work->chunk, length, (off_t)at) == (ssize_t)length)
        return;
    for (size_t n = 0; n < length; n += SNAPSHOT_PAGE)
        if (pread(work->memory, work->chunk + n, SNAPSHOT_PAGE, (off_t)(at + n)) != (ssize_t)SNAPSHOT_PAGE)
            memset(work->chunk + n, 0, SNAPSHOT_PAGE);
}

/* Writes the pages of a range, but not those of zeros: they stay holes in the file. */
static int write_range(const struct snapshot_range *it)
{
    for (uint64_t at = it->at, end = at + it->length; at < end;) {
        size_t length = end - at < CHUNK ? end - at : CHUNK;
        read_memory(at, length);
        for (size_t from = 0, to; from < length; from = to) {
            to = from + SNAPSHOT_PAGE;
            if (is_zero(work->chunk + from))
                continue;
            while (to < length && !is_zero(work->chunk + to))
                to += SNAPSHOT_PAGE;
            if (pwrite(work->out, work->chunk + from, to - from, (off_t)(it->offset + (at - it->at) + from)) != (ssize_t)(to - from))
                return failed("the file cannot be written");
        }
        at += length;
    }
    return 0;
}

static int write_file(void)
{
    struct snapshot *head = &work->head;
    uint64_t at = head->length = sizeof *head + head->ranges * sizeof *work->ranges;
    at = (at + SNAPSHOT_PAGE - 1) / SNAPSHOT_PAGE * SNAPSHOT_PAGE;
    for (unsigned n = 0; n < head->ranges; n++) {
        struct snapshot_range *range = &work->ranges[n];
        if (range->kind == PAGES || range->kind == STACK)
            range->offset = at, at += range->length;
    }
    head->size = at;
    head->checksum = 0;
    head->checksum = snapshot_sum(head, head->length, 0); /* the ranges follow it */
    work->memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (work->memory < 0)
        return failed("/proc/self/mem");
    if (ftruncate(work->out, (off_t)at) != 0 || pwrite(work->out, head, head->length, 0) != (ssize_t)head->length)
        return failed("the file cannot be written");
    for (unsigned n = 0; n < head->ranges; n++)
        if ((work->ranges[n].kind == PAGES || work->ranges[n].kind == STACK) && write_range(&work->ranges[n]) != 0)
            return -1;
    return fsync(work->out) == 0 ? 0 : failed("the file cannot be written");
}

static int save_in(const char *directory, const char *const *files, const char *room)
{
    char fresh[512], path[512];
    if (snprintf(fresh, sizeof fresh, "%s/.%s", directory, SNAPSHOT_NAME) >= (int)sizeof fresh)
        return refuse("the path of the directory is too long", directory);
    snprintf(path, sizeof path, "%s/%s", directory, SNAPSHOT_NAME);
    if (check_descriptors() != 0 || note_process(files, room) != 0 || note_memory() != 0)
        return -1;
    note_objects();
    work->out = open(fresh, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (work->out < 0 || write_file() != 0) {
        int written = work->out >= 0;
        if (written)
            unlink(fresh);
        return written ? -1 : failed(fresh);
    }
    int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (rename(fresh, path) != 0 || folder < 0 || fsync(folder) != 0)
        return failed(path);
    return 0;
}

int save_snapshot(const char *directory, const char *const *files, char room[SNAPSHOT_ROOM])
{
    unsigned size;
    if (prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0) != 0) {
        failed("the kernel lacks PR_SET_MM_MAP (CONFIG_CHECKPOINT_RESTORE)");
        return SNAPSHOT_UNSUPPORTED;
    }
    memset(room, 0, SNAPSHOT_ROOM);
    if (save_registers(&registers) != 0) {
        munmap((void *)RESTORER_AT, RESTORER_SIZE);
        return 1;
    }
    /* It has an address of its own: beside another mapping the kernel would make one of both. */
    work = mmap((void *)(RESTORER_AT + RESTORER_SIZE), sizeof *work, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (work == MAP_FAILED)
        return failed("memory");
    int saved = save_in(directory, files, room);
    munmap(work, sizeof *work);
    return saved;
}
#else
int save_snapshot(const char *directory, const char *const *files, char room[SNAPSHOT_ROOM])
{
    (void)directory, (void)files, (void)room;
    dprintf(2, "sandbox: no snapshot: there is none for this processor\n");
    return SNAPSHOT_UNSUPPORTED;
}
#endif
