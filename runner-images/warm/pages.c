/* The pages that a program uses, put in place before the run arrives.
 *
 * After a fork, the first write to a page of the parent stops the program until the kernel has copied the page, and the first
 * use of a page of a file until it has found it. Most programs use the same few hundred pages: the heap's newest part,
 * counters, the stacks, the code of the interpreter. A trial shows which: a child that runs a small program of the image before
 * the first real one, and reports the pages that it has in the end. Each later child then copies or finds them while it waits,
 * many in one call, which also costs less. Nothing but addresses is kept of the trial. A page that is not in the lists is put
 * in place when it is used, as ever. The lists of a restored parent are in a file beside its snapshot: all that are restored of
 * it have the same memory, so one trial is enough.
 *
 * A fork copies the entries of a mapping of a file if a page of the mapping is private. That is a loss: the first use of a copied
 * entry costs three times as much, on virtual machines, as what the kernel needs for one of the sixteen pages that it finds at
 * once. So a restored parent, whose memory is that of a file, has the entries of its private pages alone. */
#include "snapshot.h"
#include "warm.h"
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; an older kernel refuses both, and puts pages in place as they are used */
#endif

struct range {
    uintptr_t start, end;
};
enum { MAPPINGS = 4096, RANGES = 4096, ENTRIES = 512 };
#define AROUND ((uintptr_t)64 << 10) /* where a page of a file is used, the kernel finds its neighbours in such a part too */
static struct mapping {
    struct range at;
    int can_write, reads; /* reads: its pages are those of a file, which a child has only when it has used them */
} mappings[MAPPINGS]; /* what the parent has, before the trial */
static size_t mapped;
/* The file of what was learnt, beside a snapshot, in this order: this, the ranges, the mappings. */
#define PAGES_NAME "pages"
struct learnt_head {
    size_t copied, found, mapped;
    int is_small;
};
static struct learnt {
    size_t copied, found; /* how many of each; the trial puts the second ones behind RANGES, keep_pages() behind the first ones */
    struct range ranges[2 * RANGES];
} * learnt; /* shared with the trial until that is over, and with no other child */

int pages_to_learn(int is_restored)
{
    char line[4096], flags[5];
    unsigned long inode;
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL)
        return -1;
    mapped = 0;
    while (mapped < MAPPINGS && fgets(line, sizeof line, maps)) {
        struct mapping *it = &mappings[mapped];
        if (sscanf(line, "%lx-%lx %4s %*s %*s %lu", &it->at.start, &it->at.end, flags, &inode) != 4 || flags[0] != 'r' || flags[3] != 'p')
            continue;
        it->can_write = flags[1] == 'w';
        /* A fork copies the entries of pages in a mapping that has pages of its own, and of no other. In a restored parent hardly
         * one has. */
        it->reads = inode != 0 && (is_restored || !it->can_write);
        mapped += it->can_write || it->reads;
    }
    fclose(maps);
    learnt = mmap(NULL, sizeof *learnt, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (learnt == MAP_FAILED)
        learnt = NULL;
    return learnt != NULL ? 0 : -1;
}

/* Documentation/admin-guide/mm/pagemap.rst: bit 63, the page is present; bit 61, it is a page of a file; bit 56, no other process
 * has it. */
static int is_present(uint64_t entry) { return (int)(entry >> 63); }
static int is_private(uint64_t entry) { return is_present(entry) && !(entry >> 61 & 1); }
static int is_own(uint64_t entry) { return is_private(entry) && (entry >> 56 & 1); }

/* Adds a page to a list, or makes its last range longer. */
static void add(struct range *list, size_t *count, uintptr_t at, uintptr_t page)
{
    if (*count > 0 && list[*count - 1].end == at)
        list[*count - 1].end += page;
    else if (*count < RANGES)
        list[(*count)++] = (struct range){at, at + page};
}

void report_pages(void)
{
    uint64_t entries[ENTRIES];
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (size_t n = 0; n < mapped; n++) {
        for (uintptr_t at = mappings[n].at.start; at < mappings[n].at.end;) {
            size_t wanted = (mappings[n].at.end - at) / page;
            ssize_t got = pread(pagemap, entries, (wanted < ENTRIES ? wanted : ENTRIES) * sizeof *entries,
                (off_t)(at / page * sizeof *entries));
            if (got <= 0)
                break;
            for (size_t i = 0; i < (size_t)got / sizeof *entries; i++, at += page) {
                if (mappings[n].can_write && is_own(entries[i]))
                    add(learnt->ranges, &learnt->copied, at, page);
                else if (mappings[n].reads && is_present(entries[i]))
                    add(learnt->ranges + RANGES, &learnt->found, at, page);
            }
        }
    }
    close(pagemap);
}

void keep_pages(void)
{
    if (learnt == NULL)
        return;
    size_t count = learnt->copied + learnt->found, size = sizeof *learnt - (2 * RANGES - count) * sizeof *learnt->ranges;
    struct learnt *own = malloc(size);
    if (own != NULL) {
        own->copied = learnt->copied, own->found = learnt->found;
        memcpy(own->ranges, learnt->ranges, learnt->copied * sizeof *own->ranges);
        memcpy(own->ranges + own->copied, learnt->ranges + RANGES, learnt->found * sizeof *own->ranges);
    }
    munmap(learnt, sizeof *learnt);
    learnt = own;
}

/* Forgets the entries that this process has of the pages of a mapping's file. */
static void drop_found(const struct mapping *it)
{
    uint64_t entries[ENTRIES];
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = it->at.start; /* up to `at` all can go */
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (uintptr_t at = it->at.start; at < it->at.end;) {
        size_t wanted = (it->at.end - at) / page;
        ssize_t got = pread(pagemap, entries, (wanted < ENTRIES ? wanted : ENTRIES) * sizeof *entries,
            (off_t)(at / page * sizeof *entries));
        if (got <= 0)
            break;
        for (size_t i = 0; i < (size_t)got / sizeof *entries; i++, at += page) {
            if (is_present(entries[i]) && !is_private(entries[i]))
                continue;
            if (from < at)
                madvise((void *)from, at - from, MADV_DONTNEED);
            from = at + page; /* a private page, or none: what is swapped out must stay */
        }
        if (from < at)
            madvise((void *)from, at - from, MADV_DONTNEED);
        from = at;
    }
    close(pagemap);
}

void forget_found(void)
{
    for (size_t n = 0; learnt != NULL && n < mapped; n++)
        if (mappings[n].reads)
            drop_found(&mappings[n]);
}

/* The path of the file, or an empty one if it is too long. */
static const char *path_of(const char *directory, char path[512])
{
    if (snprintf(path, 512, "%s/%s", directory, PAGES_NAME) >= 512)
        *path = 0;
    return path;
}

/* Reads or writes all of it. */
static int move_all(ssize_t (*move)(int, void *, size_t), int file, void *all, size_t length)
{
    for (char *at = all; length > 0;) {
        ssize_t moved = move(file, at, length);
        if (moved <= 0)
            return -1;
        at += moved, length -= (size_t)moved;
    }
    return 0;
}

static ssize_t put(int file, void *from, size_t length) { return write(file, from, length); }

int new_pages(const char *directory)
{
    char path[512];
    return open(path_of(directory, path), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}

/* What the kernel has read of a file beside a page that was used, it gives to each process that uses one of its neighbours. So it
 * must have nothing of the file, and read no page but those that are used. */
void forget_file(const char *directory)
{
    char path[512];
    for (size_t n = 0; n < mapped; n++) {
        if (!mappings[n].reads)
            continue;
        madvise((void *)mappings[n].at.start, mappings[n].at.end - mappings[n].at.start, MADV_RANDOM);
        drop_found(&mappings[n]);
    }
    int file = snprintf(path, sizeof path, "%s/" SNAPSHOT_NAME, directory) < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        close(file);
    }
}

void save_pages(int out, const char *directory, int is_small)
{
    char path[512];
    struct learnt_head head = {0};
    if (learnt != NULL)
        head = (struct learnt_head){learnt->copied, learnt->found, mapped, is_small};
    /* Of a trial that failed there is nothing to keep: each restored parent tries again. */
    if (head.copied == 0 || move_all(put, out, &head, sizeof head) != 0 ||
        move_all(put, out, learnt->ranges, (head.copied + head.found) * sizeof *learnt->ranges) != 0 ||
        move_all(put, out, mappings, mapped * sizeof *mappings) != 0 || fsync(out) != 0)
        unlink(path_of(directory, path));
}

int load_pages(const char *directory, int *is_small)
{
    char path[512];
    struct learnt_head head;
    int in = open(path_of(directory, path), O_RDONLY | O_CLOEXEC), is_read = 0;
    if (in < 0)
        return -1;
    if (move_all(read, in, &head, sizeof head) == 0 && head.copied <= RANGES && head.found <= RANGES && head.mapped <= MAPPINGS) {
        size_t count = head.copied + head.found;
        learnt = malloc(sizeof *learnt - (2 * RANGES - count) * sizeof *learnt->ranges);
        is_read = learnt != NULL && move_all(read, in, learnt->ranges, count * sizeof *learnt->ranges) == 0 &&
            move_all(read, in, mappings, head.mapped * sizeof *mappings) == 0;
        if (is_read)
            learnt->copied = head.copied, learnt->found = head.found, mapped = head.mapped, *is_small = head.is_small;
    }
    if (!is_read) {
        free(learnt);
        learnt = NULL;
    }
    close(in);
    return is_read ? 0 : -1;
}

void place_pages(void)
{
    if (learnt == NULL)
        return;
    const struct range *at = learnt->ranges, *found = at + learnt->copied, *end = found + learnt->found;
    for (; at < found; at++)
        madvise((void *)at->start, at->end - at->start, MADV_POPULATE_WRITE);
    /* The kernel finds all of a part with one page of it, also for the next range. */
    for (uintptr_t done = 0; at < end; at++) {
        uintptr_t from = at->start > done ? at->start : done;
        if (from >= at->end)
            continue;
        madvise((void *)from, at->end - from, MADV_POPULATE_READ);
        done = ((at->end - 1) | (AROUND - 1)) + 1;
    }
}
