// A coding agent that cares for no level: it tries to run programs in every way and prints what became of
// each: 0 if it ran, or the errno. A task that begins with "slow" is read two seconds after the agent began.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8
#endif

extern char **environ;

// Runs a program; the exit code of a program that began, or 1000 and the errno of exec.
static int result(int fd, char *const argv[]) {
    int report[2], failed = 0, status;
    if (pipe2(report, O_CLOEXEC)) return 999;
    pid_t child = fork();
    if (child == 0) {
        if (fd >= 0) fexecve(fd, argv, environ); else execve(argv[0], argv, environ);
        failed = errno;
        if (write(report[1], &failed, sizeof failed) < 0) _exit(98);
        _exit(99);
    }
    close(report[1]);
    if (read(report[0], &failed, sizeof failed) < 0) failed = 998;
    close(report[0]);
    waitpid(child, &status, 0);
    return failed ? 1000 + failed : WIFEXITED(status) ? WEXITSTATUS(status) : 997;
}

static void show(const char *what, int result) {
    printf("%s: %d\n", what, result >= 1000 ? result - 1000 : result);
    fflush(stdout);
}

static void run(const char *what, char *const argv[]) { show(what, result(-1, argv)); }

static void copy(const char *from, int to) {
    int source = open(from, O_RDONLY);
    while (sendfile(to, source, NULL, 1 << 20) > 0) {}
    close(source);
}

static void in_memory(const char *what, unsigned flags) {
    int fd = syscall(SYS_memfd_create, "program", flags);
    if (fd < 0) { show(what, 1000 + errno); return; }
    copy("/usr/bin/git", fd);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    char *argv[] = {path, NULL};
    show(what, result(-1, argv));
    close(fd);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "itself")) return 0;
    puts("begun");
    fflush(stdout);
    char beginning[8] = {0};
    long count = 0;
    if (getenv("SLOW")) sleep(2);
    static char buffer[65536];
    for (ssize_t got; (got = read(0, buffer, sizeof buffer)) > 0; count += got)
        if (!count) memcpy(beginning, buffer, got < 4 ? got : 4);
    printf("task: %ld bytes, %s\n", count, beginning);

    run("itself", (char *[]){"/proc/self/exe", "itself", NULL});
    run("shell", (char *[]){"/bin/sh", "-c", "exit 0", NULL});
    run("python", (char *[]){"/usr/bin/python3", "-c", "pass", NULL});
    run("loader", (char *[]){LOADER, "/bin/sh", "-c", "exit 0", NULL});
    run("git", (char *[]){"/usr/bin/git", NULL});
    run("npm", (char *[]){"/usr/bin/npm", NULL});

    int file = open("/workspace/copied", O_WRONLY | O_CREAT | O_TRUNC, 0755);
    copy("/usr/bin/git", file);
    close(file);
    run("copied", (char *[]){"/workspace/copied", NULL});
    in_memory("memory", 0);
    in_memory("sealed memory", MFD_NOEXEC_SEAL);
    file = open("/usr/bin/git", O_RDONLY | O_CLOEXEC);
    show("descriptor", result(file, (char *[]){"git", NULL}));
    close(file);

    const char *blocked[] = {"docker", "kubectl", "ssh", "nc", "netcat", "sudo", "su",
                             "chroot", "iptables", "systemctl", "service"};
    for (unsigned i = 0; i < sizeof blocked / sizeof *blocked; i++) {
        char path[64];
        snprintf(path, sizeof path, strcmp(blocked[i], "chroot") && strcmp(blocked[i], "service")
                     ? "/usr/bin/%s" : "/usr/sbin/%s", blocked[i]);
        run(blocked[i], (char *[]){path, "--version", NULL});
    }
    unlink("/workspace/link");
    if (symlink("/usr/bin/ssh", "/workspace/link")) return 1;
    run("link", (char *[]){"/workspace/link", NULL});
    file = open("/workspace/script", O_WRONLY | O_CREAT | O_TRUNC, 0755);
    dprintf(file, "#!/bin/sh\nnc\n");
    close(file);
    run("script", (char *[]){"/workspace/script", NULL});
    run("subprocess", (char *[]){"/usr/bin/python3", "-c",
        "import subprocess, sys\n"
        "try: subprocess.run(['docker'], check=True)\n"
        "except OSError as error: sys.exit(error.errno)", NULL});
    // A task that comes later must not take this for the agent.
    mkdir("/tmp/.local", 0755);
    mkdir("/tmp/.local/bin", 0755);
    file = open("/tmp/.local/bin/claude", O_WRONLY | O_CREAT | O_TRUNC, 0755);
    dprintf(file, "#!/bin/sh\necho planted\n");
    close(file);
    run("copy of ssh", (char *[]){"/bin/sh", "-c", "cp /usr/bin/ssh /tmp/x && /tmp/x", NULL});
    return 0;
}
