/* The layout of the memory that every child inherits. It has as few mappings and page table entries as possible, because a
 * fork copies all of them and an exit removes all of them.
 *
 * While the libraries are imported, Python's arenas come from one region. Otherwise each would be a mapping of its own
 * between the shared objects. Before the first fork, this region and malloc's heap are moved to huge pages. A child
 * allocates memory as any other Python process does. If the kernel has no free huge pages, a run takes a millisecond longer.
 */
#include "interpreter.h"
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define HUGE ((uintptr_t)2 << 20)
#define REGION ((size_t)256 << 20) /* the libraries need a quarter of it; when it is full, arenas are mappings again */

static char *region, *unused; /* the start of the region, and of its unused part */
static PyObjectArenaAllocator usual;

static void *arena_alloc(void *context, size_t size)
{
    if (unused == NULL || size > (size_t)(region + REGION - unused))
        return usual.alloc(usual.ctx, size);
    unused += size;
    return unused - size;
}

static void arena_free(void *context, void *arena, size_t size)
{
    if (region == NULL || (char *)arena < region || (char *)arena >= region + REGION)
        usual.free(usual.ctx, arena, size);
    else
        madvise(arena, size, MADV_DONTNEED);
}

void use_one_region(void)
{
    PyObjectArenaAllocator own = {NULL, arena_alloc, arena_free};
    char *room = mmap(NULL, REGION + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return;
    region = unused = (char *)(((uintptr_t)room + HUGE - 1) / HUGE * HUGE);
    PyObject_GetArenaAllocator(&usual);
    PyObject_SetArenaAllocator(&own);
}

/* Uses up the small gaps that imports have left in the heap and in Python's pools. What a program allocates would lie in them, and
 * copy a page of the parent for each; now it lies together. The gaps are lost for good, some megabytes of the parent. */
void use_fresh_memory(void)
{
    enum { SMALLEST = 24, LARGEST = 120000, OBJECTS = 512, POOL = 1 << 14, POOL_HEADER = 48, MOST = 1 << 20 };
    for (size_t size = SMALLEST; size < LARGEST; size += size < 1024 ? 16 : size / 128 * 16) {
        uintptr_t end = (uintptr_t)sbrk(0), last = 0;
        for (int n = 0; n < MOST; n++) { /* until two blocks follow each other in the part that is not used yet */
            uintptr_t block = (uintptr_t)malloc(size);
            if (block == 0 || block >= end || (block > last && last != 0 && block - last <= size + 16 && block + (1 << 20) > end))
                break;
            last = block;
        }
    }
    for (size_t size = 16; size <= OBJECTS; size += 16)
        for (int n = 0; n < MOST && (uintptr_t)PyObject_Malloc(size) % POOL != POOL_HEADER; n++)
            ; /* until it is the first block of a new pool */
}

static void collapse(uintptr_t from, uintptr_t to)
{
    for (from = (from + HUGE - 1) / HUGE * HUGE; from + HUGE <= to; from += HUGE)
        for (int tries = 0; tries < 5 && madvise((void *)from, HUGE, MADV_COLLAPSE) != 0 && errno == EAGAIN; tries++)
            ; /* another process uses one of the pages for a moment */
}

/* Merges mappings. A shared object has four or five mappings, and neighbours differ only in their permissions. Read-only and
 * executable mappings become one mapping that can be read and executed. Data that the linker sealed after relocation and
 * writable data become one writable mapping. This weakens nothing: code in this process can change permissions anyway.
 * Mappings with private pages are not merged with mappings without them, because a fork copies no page tables for the
 * latter. */
static void merge_mappings(void)
{
    FILE *maps = fopen("/proc/self/smaps", "re");
    char line[1024], rights[8], file[512], last_file[512] = "";
    uintptr_t from = 0, to = 0, start = 0, last_to = 0;
    unsigned long offset, last_end = 0, inode = 0, own;
    int kind, last_kind = -1;
    struct { uintptr_t from, to; int kind; } *found = malloc(4096 * sizeof *found);
    size_t count = 0;
    while (maps != NULL && found != NULL && fgets(line, sizeof line, maps)) {
        if (line[0] < 'A' || line[0] > 'Z') { /* the first line of a mapping; its properties follow */
            inode = 0;
            sscanf(line, "%lx-%lx %7s %lx %*s %lu %511s", &from, &to, rights, &offset, &inode, file);
            continue;
        }
        if (sscanf(line, "Anonymous: %lu", &own) != 1)
            continue;
        /* 0: only pages of the file, not writable; 1: writable, or with private pages; -1: this mapping must not be merged. */
        kind = inode == 0 || rights[3] != 'p' || rights[0] != 'r' ? -1 : rights[1] == 'w' ? (rights[2] == 'x' ? -1 : 1) : own == 0 ? 0 : rights[2] == 'x' ? -1 : 1;
        if (kind >= 0 && kind == last_kind && from == last_to && offset == last_end && strcmp(file, last_file) == 0) {
            if (count > 0 && found[count - 1].to == from)
                found[count - 1].to = to;
            else if (count < 4096)
                found[count++] = (__typeof__(*found)){start, to, kind};
        } else {
            start = from;
        }
        last_kind = kind, last_to = to, last_end = offset + (to - from);
        strcpy(last_file, file);
    }
    if (maps != NULL)
        fclose(maps);
    for (size_t i = 0; i < count; i++)
        mprotect((void *)found[i].from, found[i].to - found[i].from, PROT_READ | (found[i].kind ? PROT_WRITE : PROT_EXEC));
    free(found);
}

void settle_memory(void)
{
    merge_mappings();
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    uintptr_t from, to;
    if (region != NULL) {
        uintptr_t end = ((uintptr_t)unused + HUGE - 1) / HUGE * HUGE;
        munmap((void *)end, (uintptr_t)region + REGION - end);
        unused = NULL; /* arenas of the children are separate mappings */
        collapse((uintptr_t)region, end);
    }
    while (maps != NULL && fgets(line, sizeof line, maps))
        if (strstr(line, "[heap]") && sscanf(line, "%lx-%lx", &from, &to) == 2)
            collapse(from, to);
    if (maps != NULL)
        fclose(maps);
}
