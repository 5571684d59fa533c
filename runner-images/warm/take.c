/* The child of the warm part waits for a run, takes it and stores its code, as `enter` does.
 *
 * Before it has taken the run, it must not write to descriptors 0, 1 and 2. An error has the same message and exit code as in
 * `enter`. */
#include "warm.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SKELETON "/usr/local/share/sandbox/tmp"

void fail(const char *what)
{
    dprintf(2, "sandbox: %s: %s\n", what, strerror(errno));
    _exit(126);
}

void link_caches(void)
{
    DIR *baked = opendir(SKELETON);
    struct dirent *dir, *file;
    if (baked == NULL)
        return;
    while ((dir = readdir(baked))) {
        char in[512], to[1024], from[1024];
        snprintf(in, sizeof in, "/tmp/%s", dir->d_name);
        if (strcmp(dir->d_name, ".") == 0 || strcmp(dir->d_name, "..") == 0 || mkdir(in, 0700) != 0)
            continue;
        snprintf(from, sizeof from, SKELETON "/%s", dir->d_name);
        DIR *files = opendir(from);
        if (files == NULL)
            continue;
        while ((file = readdir(files))) {
            snprintf(from, sizeof from, SKELETON "/%s/%s", dir->d_name, file->d_name);
            snprintf(to, sizeof to, "%s/%s", in, file->d_name);
            if (strcmp(file->d_name, ".") != 0 && strcmp(file->d_name, "..") != 0 && symlink(from, to) != 0)
                break;
        }
        closedir(files);
    }
    closedir(baked);
}

/* The directories for code. The second one is used if an earlier run has filled the first. */
static const char *const places[] = {"/tmp", "/dev/shm"};
enum { PLACES = sizeof places / sizeof *places };

/* Removes the code of earlier runs from one directory, if their process has ended. */
static void remove_earlier(const char *place, const char *code_name)
{
    DIR *entries = opendir(place);
    struct dirent *entry;
    if (entries == NULL)
        return;
    while ((entry = readdir(entries))) {
        char path[400], *end;
        if (strncmp(entry->d_name, "run.", 4) != 0 || entry->d_name[4] < '0' || entry->d_name[4] > '9')
            continue;
        long pid = strtol(entry->d_name + 4, &end, 10);
        if ((*end == '.' && end[1 + strspn(end + 1, "0123456789")] != 0) || (*end != 0 && *end != '.') || (*end == '.' && end[1] == 0))
            continue;
        if (kill((pid_t)pid, 0) == 0 || errno != ESRCH)
            continue;
        snprintf(path, sizeof path, "%s/%s/%s", place, entry->d_name, code_name);
        unlink(path);
        *strrchr(path, '/') = 0;
        rmdir(path);
    }
    closedir(entries);
}

static int write_all(int out, const char *code, size_t length)
{
    while (length > 0) {
        ssize_t put = write(out, code, length);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return -1;
        code += put;
        length -= (size_t)put;
    }
    return 0;
}

/* Stores the code in one directory. If that fails, it leaves nothing behind, sets errno and returns -1. */
static int store_in(const char *place, struct run *run, const char *code_name, const char *code, size_t length)
{
    char dir[48];
    int n = 0, out, why;
    snprintf(dir, sizeof dir, "%s/run.%d", place, (int)getpid());
    while (mkdir(dir, 0700) != 0) {
        struct stat there;
        why = errno;
        if (stat(dir, &there) != 0 || !S_ISDIR(there.st_mode)) {
            errno = why;
            return -1;
        }
        snprintf(dir, sizeof dir, "%s/run.%d.%d", place, (int)getpid(), ++n);
    }
    snprintf(run->file, sizeof run->file, "%s/%s", dir, code_name);
    out = open(run->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out >= 0) {
        int written = write_all(out, code, length);
        why = errno;
        if (close(out) == 0 && written == 0)
            return 0;
        errno = written != 0 ? why : errno;
    }
    why = errno;
    unlink(run->file);
    rmdir(dir);
    errno = why;
    return -1;
}

static void store(struct run *run, const char *code_name, const char *code, size_t length)
{
    for (int n = 0; n < PLACES; n++)
        if (store_in(places[n], run, code_name, code, length) == 0)
            return;
    fail("cannot store the code in /tmp or /dev/shm");
}

/* Reads everything from `from`, and adds a zero byte. */
static char *read_all(int from, size_t *length)
{
    size_t room = 65536;
    char *all = malloc(room + 1);
    *length = 0;
    while (all != NULL) {
        ssize_t got = read(from, all + *length, room - *length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            fail("cannot read the code");
        *length += (size_t)got;
        if (got == 0) {
            all[*length] = 0;
            return all;
        }
        if (*length == room)
            all = realloc(all, (room *= 2) + 1);
    }
    fail("cannot read the code");
}

/* Receives one byte and four descriptors. Ends the process if anything else arrives. */
static void receive(int descriptors[4])
{
    char byte;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got;
    do
        got = recvmsg(LINE, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        _exit(0); /* paddock has closed the connection */
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (byte != 'r' || header == NULL || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(4 * sizeof(int)))
        _exit(1);
    memcpy(descriptors, CMSG_DATA(header), 4 * sizeof(int));
}

/* Writes a line to paddock. `with` is the PID of a second process; 0 or -1 if there is none. */
static void say(const char *what, pid_t with)
{
    char line[48];
    int length = snprintf(line, sizeof line, with > 0 ? "%s %d %d\n" : "%s %d\n", what, (int)getpid(), (int)with);
    if (write(LINE, line, (size_t)length) != length)
        _exit(0);
}

void take(struct run *run, const char *code_name, int taken, int holds)
{
    int descriptors[4];
    uint64_t one = 1;
    say("ready", holds ? hold_memory() : 0);
    receive(descriptors);
    if (!keep_scheduling())
        _exit(1); /* code of an earlier run changed the scheduling; the run starts a new interpreter */
    say("took", 0);
    if (write(taken, &one, sizeof one) != sizeof one)
        _exit(1);
    prctl(PR_SET_PDEATHSIG, 0);
    prctl(PR_SET_DUMPABLE, 1);
    for (int i = 0; i < 3; i++) {
        if (dup2(descriptors[i + 1], i) < 0)
            fail("standard input or output");
        close(descriptors[i + 1]);
    }
    close(LINE);
    close(taken);
    size_t length, count = 0;
    char *all = read_all(descriptors[0], &length), *end = all + length, *at;
    close(descriptors[0]);
    for (at = all; at < end && *at; at += strlen(at) + 1)
        count++;
    if (at >= end) {
        errno = EPROTO;
        fail("cannot read the code");
    }
    run->is_trial = 0;
    run->variables = calloc(count + 1, sizeof *run->variables);
    if (run->variables == NULL)
        fail("cannot read the code");
    count = 0;
    for (at = all; *at; at += strlen(at) + 1)
        run->variables[count++] = at;
    at++;
    for (int n = 0; n < PLACES; n++)
        remove_earlier(places[n], code_name);
    store(run, code_name, at, (size_t)(end - at));
}
