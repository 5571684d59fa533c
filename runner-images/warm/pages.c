/* The pages that a program writes to, copied before the run arrives.
 *
 * After a fork, the first write to a page of the parent stops the program until the kernel has copied the page. Most programs
 * write to the same few hundred pages: the heap's newest part, counters, the stacks. A trial shows which: a child that runs a
 * small program of the image before the first real one, and reports the pages that it has to itself in the end. Each later
 * child then copies them while it waits, many in one call, which also costs less. Nothing but addresses is kept of the trial.
 * A page that is not in the list is copied when it is written to, as ever. */
#include "warm.h"
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; an older kernel refuses it, and copies pages as they are written to */
#endif

struct range {
    uintptr_t start, end;
};
enum { MAPPINGS = 4096, RANGES = 4096, ENTRIES = 512 };
static struct range mappings[MAPPINGS]; /* what the parent can write to, before the trial */
static size_t mapped;
static struct learnt {
    size_t count;
    struct range ranges[RANGES];
} * learnt; /* shared with the trial until that is over, and with no other child */

int pages_to_learn(void)
{
    char line[4096], flags[5];
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL)
        return -1;
    while (mapped < MAPPINGS && fgets(line, sizeof line, maps)) {
        struct range *it = &mappings[mapped];
        if (sscanf(line, "%lx-%lx %4s", &it->start, &it->end, flags) == 3 && strcmp(flags, "rw-p") == 0)
            mapped++;
    }
    fclose(maps);
    learnt = mmap(NULL, sizeof *learnt, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (learnt == MAP_FAILED)
        learnt = NULL;
    return learnt != NULL ? 0 : -1;
}

/* Documentation/admin-guide/mm/pagemap.rst: bit 63, the page is present; bit 56, no other process has it. */
static int is_own(uint64_t entry) { return entry >> 63 && (entry >> 56 & 1); }

void report_pages(void)
{
    uint64_t entries[ENTRIES];
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    struct range *last = NULL;
    for (size_t n = 0; n < mapped; n++) {
        for (uintptr_t at = mappings[n].start; at < mappings[n].end;) {
            size_t wanted = (mappings[n].end - at) / page;
            ssize_t got = pread(pagemap, entries, (wanted < ENTRIES ? wanted : ENTRIES) * sizeof *entries,
                (off_t)(at / page * sizeof *entries));
            if (got <= 0)
                break;
            for (size_t i = 0; i < (size_t)got / sizeof *entries; i++, at += page) {
                if (!is_own(entries[i]))
                    continue;
                if (last != NULL && last->end == at)
                    last->end += page;
                else if (learnt->count < RANGES)
                    last = &learnt->ranges[learnt->count++], last->start = at, last->end = at + page;
            }
        }
    }
    close(pagemap);
}

void keep_pages(void)
{
    if (learnt == NULL)
        return;
    size_t size = sizeof learnt->count + learnt->count * sizeof *learnt->ranges;
    struct learnt *own = malloc(size);
    if (own != NULL)
        memcpy(own, learnt, size);
    munmap(learnt, sizeof *learnt);
    learnt = own;
}

void copy_pages(void)
{
    for (size_t n = 0; learnt != NULL && n < learnt->count; n++)
        madvise((void *)learnt->ranges[n].start, learnt->ranges[n].end - learnt->ranges[n].start, MADV_POPULATE_WRITE);
}
