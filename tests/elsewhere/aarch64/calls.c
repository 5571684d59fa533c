/* Prints the system calls that a unit test needs and that this kernel, or what emulates one, does not have: one name a line.
 * The list `left-out` gives them as its reasons. Each call asks for nothing and changes nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static void look(const char *name, long result)
{
    if (result == -1 && errno == ENOSYS)
        puts(name);
}

int main(void)
{
    uint32_t allow = 0x7fff0000; /* SECCOMP_RET_ALLOW */
    look("landlock_create_ruleset", syscall(SYS_landlock_create_ruleset, NULL, 0, 1 /* its version */));
    look("pwritev2", syscall(SYS_pwritev2, -1, NULL, 0, 0, 0, 0));
    look("seccomp", syscall(SYS_seccomp, 2 /* SECCOMP_GET_ACTION_AVAIL */, 0, &allow));
}
