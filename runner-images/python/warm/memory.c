/* Where the memory lies that every child is forked with: as few mappings and page table entries as can be, since a fork
 * copies them all and an exit takes them all down.
 *
 * While the libraries are imported, Python's arenas come from one region instead of a mapping each between those of the
 * shared objects; before the first fork that region and malloc's heap are made of huge pages. A child allocates as any
 * other Python does. Where the kernel has no huge pages to give, everything works, a millisecond slower. */
#include "warm.h"
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define HUGE ((uintptr_t)2 << 20)
#define REGION ((size_t)256 << 20) /* what the libraries take is a quarter of it; beyond it there are mappings again */

static char *region, *unused; /* what has been given out, and what has not */
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

static void collapse(uintptr_t from, uintptr_t to)
{
    for (from = (from + HUGE - 1) / HUGE * HUGE; from + HUGE <= to; from += HUGE)
        for (int tries = 0; tries < 5 && madvise((void *)from, HUGE, MADV_COLLAPSE) != 0 && errno == EAGAIN; tries++)
            ; /* somebody else holds one of the pages for a moment */
}

/* A shared object is four or five mappings, of which neighbours differ in what is allowed only. What is read and what is
 * executed becomes one that may be both, and so do the data that were sealed after relocation and those that never were:
 * whoever runs code in this process may do all that anyway. Mappings with pages of their own are left apart from those
 * without, whose page tables a fork does not copy. */
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
        if (line[0] < 'A' || line[0] > 'Z') { /* a mapping; what is known of it follows */
            inode = 0;
            sscanf(line, "%lx-%lx %7s %lx %*s %lu %511s", &from, &to, rights, &offset, &inode, file);
            continue;
        }
        if (sscanf(line, "Anonymous: %lu", &own) != 1)
            continue;
        /* 0: shared by all and only read; 1: this process's own; nothing that is neither is merged. */
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
        unused = NULL; /* the children's arenas are mappings of their own */
        collapse((uintptr_t)region, end);
    }
    while (maps != NULL && fgets(line, sizeof line, maps))
        if (strstr(line, "[heap]") && sscanf(line, "%lx-%lx", &from, &to) == 2)
            collapse(from, to);
    if (maps != NULL)
        fclose(maps);
}
