/* A snapshot: a process of one thread as a file, which restore/restore.c maps into memory again.
 *
 * save.c writes it. The file is a `struct snapshot`, then `ranges` times a `struct snapshot_range`, then the pages. All memory
 * is in it, that of shared objects too: a restore opens no other file. Pages lie in the order of their addresses, so
 * neighbours in memory are neighbours in the file, and the kernel makes one mapping of them.
 *
 * A snapshot fits one image, one kernel and one kind of processor. What this file says about them must be cheap to compare
 * (microseconds), and must notice every other world in which the process could not go on. */
#ifndef SNAPSHOT_H
#define SNAPSHOT_H
#include "warm.h"
#include <linux/prctl.h>
#include <stdint.h>

#define SNAPSHOT_NAME "snapshot"
#define SNAPSHOT_MAGIC "sandbox-snapshot" /* 16 bytes */
#define SNAPSHOT_LAYOUT 1                 /* another layout has another number */
#define SNAPSHOT_PAGE 4096UL

/* Where restore.c works, far from everything that the kernel places by itself. */
#define RESTORER_AT 0x200000000000UL
#define RESTORER_SIZE 0x200000UL
#define USER_END 0x7ffffffff000UL /* x86-64: the first address that a process cannot map */

enum {
    SNAPSHOT_RANGES = 4096, /* ours has 480; a process may have 65,530 mappings at most */
    SNAPSHOT_FILES = 16,
    SNAPSHOT_PARTS = 4, /* [vvar], [vvar_vclock], [vdso] */
    SNAPSHOT_SIGNALS = 64,
    SNAPSHOT_AUXV = 64,
    SNAPSHOT_OBJECTS = 64,
};

/* The world that the process was saved in. All bytes must be equal where it is restored. */
struct snapshot_world {
    char kernel[3][65];  /* uname: release, version, machine */
    char reserved[1];
    uint32_t leaves[20]; /* cpuid: libraries have chosen their functions by it */
    uint64_t hwcap[2];
    uint64_t vdso; /* a checksum: the process has the addresses of its functions */
    uint64_t part_sizes[SNAPSHOT_PARTS];
};

/* A file that must be the same as when the process was saved. */
struct snapshot_file {
    char path[232];
    int64_t size, seconds, nanoseconds;
};

enum snapshot_kind {
    PAGES,     /* mapped from the file, privately */
    EMPTY,     /* anonymous, without pages: guards and reserves */
    STACK,     /* anonymous, and grows; its pages are read from the file */
    DROPPABLE, /* the state of getrandom() in the C library: always empty, so that its keys are new */
};

struct snapshot_range {
    uint64_t at, length, offset;
    uint32_t protection; /* as for mmap() */
    uint16_t kind, advice; /* advice: what madvise() must be told; 0 for nothing */
};

struct snapshot_signal { /* as rt_sigaction() has it */
    uint64_t handler, flags, restorer, mask;
};

struct snapshot {
    char magic[16];
    uint32_t layout, ranges;
    uint64_t size;     /* of the whole file */
    uint64_t checksum; /* of the head and the ranges, with 0 in this place */
    uint64_t length;   /* of the head and the ranges */
    struct snapshot_world world;
    struct snapshot_file files[SNAPSHOT_FILES]; /* the first one is the executable file of the process */
    uint32_t file_count;
    uint32_t dynamic;  /* the executable file has a loader, which restore.c starts from */

    struct snapshot_registers {
        uint64_t rbx, rbp, r12, r13, r14, r15, rsp, rip;
        uint32_t mxcsr, x87;
    } registers;
    uint64_t fs, gs, thread_id_at, robust, robust_length, rseq, rseq_length;
    uint64_t alternate_stack[3]; /* as sigaltstack() has it */
    uint64_t blocked;
    struct snapshot_signal signals[SNAPSHOT_SIGNALS];
    struct prctl_mm_map map;
    uint64_t auxv[SNAPSHOT_AUXV], auxv_length, auxv_at; /* auxv_length: in bytes; auxv_at: its copy on the stack */
    uint64_t part_at[SNAPSHOT_PARTS];
    /* Where the loader keeps the device of shared objects of the system: each container has another one, and by it and the inode
     * the loader knows that another name is of an object that is loaded. */
    uint64_t device, device_at[SNAPSHOT_OBJECTS];
    uint64_t room_at; /* where the restored process finds its environment */
    char name[16];    /* of the process */
};

static inline uint64_t snapshot_sum(const void *data, uint64_t length, uint64_t sum)
{
    const uint64_t *words = (const uint64_t *)data;
    for (uint64_t n = 0; n < length / sizeof *words; n++)
        sum = (sum ^ words[n]) * 0x100000001b3UL, sum ^= sum >> 29;
    return sum;
}

#if defined(__x86_64__)
static inline void snapshot_processor(uint32_t leaves[20])
{
    static const uint32_t which[5][2] = {{0, 0}, {1, 0}, {7, 0}, {7, 1}, {0x80000001, 0}};
    for (int n = 0; n < 5; n++) {
        uint32_t *to = leaves + n * 4;
        __asm__ volatile("cpuid" : "=a"(to[0]), "=b"(to[1]), "=c"(to[2]), "=d"(to[3]) : "a"(which[n][0]), "c"(which[n][1]));
    }
    leaves[5] = 0; /* it says which of the processors this is */
}
#endif
#endif
