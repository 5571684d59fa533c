/* The descriptors that a child inherits and its program must not share with the parent.
 *
 * A pipe or an event counter that the parent reads is a way into the parent: libuv sends itself pointers through such a pipe,
 * and every later run is a copy of the parent. An interpreter renews some of them after a fork, but not those of threads
 * that the child does not have. So a child gets an object of its own of the same kind in place of each. A program sees as
 * many descriptors, and of the same kinds, as a new interpreter has. */
#include "warm.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind { PIPE, EVENTS, POLL, OTHER };
enum { MOST = 256 };
static struct noted {
    int descriptor, writes;
    enum kind kind;
    ino_t inode;
} noted[MOST];
static int count;

/* What to replace a descriptor with, or -1 for a file or a device, which the child may share. */
static int kind_of(const char *target)
{
    if (strncmp(target, "pipe:", 5) == 0)
        return PIPE;
    if (strcmp(target, "anon_inode:[eventfd]") == 0)
        return EVENTS;
    if (strcmp(target, "anon_inode:[eventpoll]") == 0)
        return POLL;
    return strncmp(target, "anon_inode:", 11) == 0 || strncmp(target, "socket:", 7) == 0 ? OTHER : -1;
}

int note_descriptors(void)
{
    DIR *all = opendir("/proc/self/fd");
    struct dirent *entry;
    if (all == NULL)
        return -1;
    while ((entry = readdir(all))) {
        struct noted it = {.descriptor = atoi(entry->d_name)};
        char target[64];
        struct stat about;
        ssize_t length = readlinkat(dirfd(all), entry->d_name, target, sizeof target - 1);
        if (it.descriptor <= LINE || length < 0 || fstat(it.descriptor, &about) != 0)
            continue;
        target[length] = 0;
        int kind = kind_of(target);
        if (kind < 0)
            continue;
        if (count == MOST) {
            closedir(all);
            return -1;
        }
        it.kind = (enum kind)kind;
        it.inode = about.st_ino;
        it.writes = (fcntl(it.descriptor, F_GETFL) & O_ACCMODE) == O_WRONLY;
        noted[count++] = it;
    }
    closedir(all);
    return 0;
}

static void put(int fresh, int at)
{
    if (fresh < 0 || dup3(fresh, at, O_CLOEXEC) != at)
        _exit(1); /* the parent forks another child */
}

void replace_descriptors(void)
{
    for (int n = 0; n < count; n++) {
        struct stat now;
        int at = noted[n].descriptor, fresh = -1, ends[2];
        /* A pipe with another inode is the child's own already: libuv renews its global one in every fork. */
        if (fstat(at, &now) != 0 || now.st_ino != noted[n].inode)
            continue;
        if (noted[n].kind == PIPE) {
            if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
                _exit(1);
            for (int other = n; other < count; other++)
                if (noted[other].kind == PIPE && noted[other].inode == now.st_ino)
                    put(ends[noted[other].writes], noted[other].descriptor);
            close(ends[0]);
            close(ends[1]);
            continue;
        }
        if (noted[n].kind == EVENTS)
            fresh = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        else if (noted[n].kind == POLL)
            fresh = epoll_create1(EPOLL_CLOEXEC);
        else
            fresh = open("/dev/null", O_RDWR | O_CLOEXEC);
        put(fresh, at);
        close(fresh);
    }
}
