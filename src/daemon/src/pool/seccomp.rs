//! The seccomp profile of every container, in the JSON that the Engine takes in `SecurityOpt`.
//!
//! An allow list, the shape of Docker's own default for a container without capabilities, minus what programs
//! do not need and kernels have been broken through: io_uring, AF_VSOCK, AF_ALG and every other socket family
//! but four, memfd_secret, ptrace, process_vm_*, kcmp, namespaces, mounts, keys, bpf, perf, 32-bit calls.
//! Names that an older libseccomp does not know are skipped by runc.
//!
//! It must never depend on configuration: it is the same for every container, or the proof proves nothing.

use serde_json::{Value, json};

/// Files, directories, descriptors.
const FILES: &str = "access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat \
    faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr \
    flistxattr flock fremovexattr fsetxattr fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 \
    getxattr getxattrat inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioctl lchown lgetxattr link \
    linkat listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat mkdir mkdirat mknod mknodat \
    newfstatat open openat openat2 pipe pipe2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead \
    readlink readlinkat readv removexattr removexattrat rename renameat renameat2 rmdir sendfile setxattr \
    setxattrat splice stat statfs statx symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink \
    unlinkat utime utimensat utimes vmsplice write writev cachestat";

/// Memory.
const MEMORY: &str = "brk madvise mincore mlock mlock2 mlockall mmap mprotect mremap mseal msync munlock \
    munlockall munmap pkey_alloc pkey_free pkey_mprotect remap_file_pages memfd_create membarrier \
    map_shadow_stack";

/// Processes, threads, signals, limits. `clone`, `clone3`, `prlimit64` and `personality` have rules of their own.
const PROCESSES: &str = "arch_prctl capget capset execve execveat exit exit_group fork futex futex_requeue \
    futex_wait futex_waitv futex_wake get_robust_list get_thread_area getcpu getegid geteuid getgid getgroups \
    getpgid getpgrp getpid getppid getpriority getresgid getresuid getrlimit getrusage getsid gettid getuid \
    ioprio_get ioprio_set kill pause pidfd_open pidfd_send_signal prctl process_mrelease restart_syscall rseq \
    rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait \
    rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr \
    sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam \
    sched_setscheduler sched_yield seccomp set_robust_list set_thread_area set_tid_address setfsgid setfsuid \
    setgid setgroups setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setuid \
    sigaltstack tgkill tkill vfork wait4 waitid landlock_add_rule landlock_create_ruleset \
    landlock_restrict_self";

/// Time, events, System V and POSIX IPC, and what the system says of itself.
const REST: &str = "adjtimex alarm clock_adjtime clock_getres clock_gettime clock_nanosleep epoll_create \
    epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 \
    getitimer getrandom gettimeofday io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit \
    mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd nanosleep \
    poll ppoll pselect6 select semctl semget semop semtimedop setitimer shmat shmctl shmdt shmget signalfd \
    signalfd4 sysinfo time timer_create timer_delete timer_getoverrun timer_gettime timer_settime \
    timerfd_create timerfd_gettime timerfd_settime times uname";

/// Sockets; which families can be made is a rule of its own.
const SOCKETS: &str = "accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg \
    recvmsg sendmmsg sendmsg sendto setsockopt shutdown socketpair";

/// Address families that a program may open: Unix, IPv4, IPv6. Netlink is allowed for route queries only.
const FAMILIES: [u64; 3] = [1, 2, 10];
const AF_NETLINK: u64 = 16;
const NETLINK_ROUTE: u64 = 0;

/// The flags of `clone` that make namespaces.
const CLONE_NEW: u64 = 0x7E02_0000;

/// System call arguments of type `int`: the upper half is not looked at by the kernel, so not here either.
const INT: u64 = 0xFFFF_FFFF;

const ENOSYS: u32 = 38;

/// The profile as the Engine wants it.
pub(super) fn profile() -> String {
    let plain: Vec<&str> =
        [FILES, MEMORY, PROCESSES, REST, SOCKETS].iter().flat_map(|group| group.split_whitespace()).collect();
    let mut rules = vec![json!({ "names": plain, "action": "SCMP_ACT_ALLOW" })];
    for family in FAMILIES {
        rules.push(allow("socket", &[masked(0, INT, family)]));
    }
    rules.push(allow("socket", &[masked(0, INT, AF_NETLINK), masked(2, INT, NETLINK_ROUTE)]));
    rules.push(allow("clone", &[masked(0, CLONE_NEW, 0)]));
    // Its flags lie in memory, where no filter can look: a C library then falls back to clone.
    rules.push(json!({ "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS }));
    // Only its own limits: a program of the same user could otherwise set PID 1's.
    rules.push(allow("prlimit64", &[masked(0, INT, 0)]));
    for persona in [0x0, 0x8, 0x20000, 0x20008, 0xFFFF_FFFF_u64] {
        let equal = json!({ "index": 0, "value": persona, "op": "SCMP_CMP_EQ" });
        rules.push(allow("personality", &[equal]));
    }
    let architecture = if cfg!(target_arch = "aarch64") { "SCMP_ARCH_AARCH64" } else { "SCMP_ARCH_X86_64" };
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "archMap": [{ "architecture": architecture, "subArchitectures": [] }],
        "syscalls": rules,
    })
    .to_string()
}

fn allow(name: &str, args: &[Value]) -> Value {
    json!({ "names": [name], "action": "SCMP_ACT_ALLOW", "args": args })
}

/// True when `argument & mask == value`.
fn masked(index: u32, mask: u64, value: u64) -> Value {
    json!({ "index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ" })
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_must_not_be_reachable_is_not_named() {
        let profile = super::profile();
        for name in [
            "io_uring_setup",
            "memfd_secret",
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "kcmp",
            "bpf",
            "keyctl",
            "userfaultfd",
            "perf_event_open",
            "unshare",
            "setns",
            "mount",
            "pidfd_getfd",
            "modify_ldt",
            "open_by_handle_at",
            "process_madvise",
            "syslog",
            "fsopen",
            "add_key",
            "request_key",
            "chroot",
        ] {
            assert!(!profile.contains(&format!("\"{name}\"")), "{name}");
        }
        assert!(profile.contains("\"openat2\""));
    }
}
