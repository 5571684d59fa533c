/* A Landlock domain for each child, so that no program of the session can read another one's memory or environment.
 *
 * A process outside of a domain may trace and read one inside of it, so every child enters a domain of its own; what the
 * program starts is in it too. The domain denies nothing else: it must never keep a program from anything in the file
 * system. */
#include "warm.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

void enter_domain(void)
{
    /* A domain denies moving a file to another directory unless a rule allows it, so this one allows it everywhere. */
    struct landlock_ruleset_attr handled = {.handled_access_fs = LANDLOCK_ACCESS_FS_REFER};
    struct landlock_path_beneath_attr everywhere = {.allowed_access = LANDLOCK_ACCESS_FS_REFER};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    /* A kernel without Landlock, or older than 5.19, or a filter of system calls that knows no Landlock (gVisor's, EPERM):
     * paddock runs a program with a network alone there. */
    if (rules < 0 && (errno == ENOSYS || errno == EOPNOTSUPP || errno == EINVAL || errno == EPERM))
        return;
    everywhere.parent_fd = open("/", O_PATH | O_CLOEXEC);
    if (rules < 0 || syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &everywhere, 0) != 0 ||
        syscall(SYS_landlock_restrict_self, rules, 0) != 0)
        _exit(1); /* the parent forks another child */
    close(everywhere.parent_fd);
    close(rules);
}
