//! The seccomp profile of every container, in the JSON that the Engine takes in `SecurityOpt`.
//!
//! It is a list of allowed calls: Docker's own default for a container without capabilities, minus what
//! programs do not need and what attackers have broken kernels through: io_uring, AF_VSOCK, AF_ALG and every
//! other socket family but four, memfd_secret, ptrace, process_vm_*, kcmp, namespaces, mounts, keys, bpf,
//! perf, vmsplice, 32-bit calls. runc skips names that an older libseccomp does not know.
//!
//! `pidfd_getfd` is allowed for PID 1 alone, which connects the sockets of programs with it: the agent
//! refuses it to every program by a filter of its own, since a program could take another run's connections.
//! The probe tries it under that filter.
//!
//! Three groups of calls are refused because they would harm other programs, not because of holes:
//!
//! * Asynchronous I/O of the kernel (`io_setup` and related calls). The host has one number of contexts for
//!   everybody (`fs.aio-max-nr`), and one program could take them all. The answer is `ENOSYS`, as from a
//!   kernel built without it: databases then read and write in the usual way.
//! * Scheduling of other processes. PID 1 and all programs have the same user, so a program could slow down
//!   PID 1 or the warm part (`SCHED_IDLE`, nice 19), and every later run would inherit that. A program may
//!   change its own scheduling (PID 0).
//! * The limit of core dumps. It is 1, at which the kernel hands no dump to a program of the host; at 0 it
//!   would.
//!
//! Two of these calls are often only a hint, and a refusal would break the program for nothing. They answer
//! success and do nothing: the processor affinity of another thread (OpenMP pins its threads by their ids,
//! and no filter can tell those from other processes), and the limit of core dumps (gpg lowers it, and ends
//! if it cannot).
//!
//! Two rules for one call must never both match with different actions: libseccomp does not say which one
//! wins. The profile must never depend on configuration: if containers differed, the proof in one would say
//! nothing of others. Only what that proof saw decides about one call, [`Clone3`].

use serde_json::{Value, json};

/// Files, directories, descriptors.
const FILES: &str = "access chdir chmod chown close close_range copy_file_range creat dup dup2 \
    dup3 faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown \
    fchownat fcntl fdatasync fgetxattr flistxattr flock fremovexattr fsetxattr fstat fstatfs \
    fsync ftruncate futimesat getcwd getdents getdents64 getxattr getxattrat inotify_add_watch \
    inotify_init inotify_init1 inotify_rm_watch ioctl lchown lgetxattr link linkat listxattr \
    listxattrat llistxattr lremovexattr lseek lsetxattr lstat mkdir mkdirat mknod mknodat \
    newfstatat open openat openat2 pipe pipe2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 \
    read readahead readlink readlinkat readv removexattr removexattrat rename renameat renameat2 \
    rmdir sendfile setxattr setxattrat splice stat statfs statx symlink symlinkat sync \
    sync_file_range syncfs tee truncate umask unlink unlinkat utime utimensat utimes write \
    writev cachestat";

/// Memory.
const MEMORY: &str = "brk madvise mincore mlock mlock2 mlockall mmap mprotect mremap mseal msync \
    munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect remap_file_pages memfd_create \
    membarrier map_shadow_stack";

/// Processes, threads, signals, limits. `clone`, `clone3`, `personality`, and the calls that set limits or
/// scheduling have rules of their own.
const PROCESSES: &str = "arch_prctl capget capset execve execveat exit exit_group fork futex \
    futex_requeue futex_wait futex_waitv futex_wake get_robust_list get_thread_area getcpu \
    getegid geteuid getgid getgroups getpgid getpgrp getpid getppid getpriority getresgid \
    getresuid getrlimit getrusage getsid gettid getuid ioprio_get kill pause pidfd_getfd pidfd_open \
    pidfd_send_signal prctl process_mrelease restart_syscall rseq rt_sigaction rt_sigpending \
    rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo \
    sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam \
    sched_getscheduler sched_rr_get_interval sched_yield seccomp set_robust_list set_thread_area \
    set_tid_address setfsgid setfsuid setgid setgroups setpgid setregid setresgid setresuid \
    setreuid setsid setuid sigaltstack tgkill tkill vfork wait4 waitid landlock_add_rule \
    landlock_create_ruleset landlock_restrict_self";

/// Time, events, System V and POSIX IPC, and information about the system.
const REST: &str = "adjtimex alarm clock_adjtime clock_getres clock_gettime clock_nanosleep \
    epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait \
    epoll_wait_old eventfd eventfd2 getitimer getrandom gettimeofday mq_getsetattr mq_notify \
    mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd nanosleep poll \
    ppoll pselect6 select semctl semget semop semtimedop setitimer shmat shmctl shmdt shmget \
    signalfd signalfd4 sysinfo time timer_create timer_delete timer_getoverrun timer_gettime \
    timer_settime timerfd_create timerfd_gettime timerfd_settime times uname";

/// Sockets; `socket` has rules of its own, one for each allowed family.
const SOCKETS: &str = "accept accept4 bind connect getpeername getsockname getsockopt listen \
    recvfrom recvmmsg recvmsg sendmmsg sendmsg sendto setsockopt shutdown socketpair";

/// Asynchronous I/O of the kernel.
const AIO: [&str; 6] = ["io_setup", "io_submit", "io_destroy", "io_getevents", "io_pgetevents", "io_cancel"];

/// Address families that a program may open: Unix, IPv4, IPv6. Netlink is allowed for route queries only.
const FAMILIES: [u64; 3] = [1, 2, 10];
const AF_NETLINK: u64 = 16;
const NETLINK_ROUTE: u64 = 0;

/// The flags of `clone` that make namespaces.
const CLONE_NEW: u64 = 0x7E02_0000;

/// The mask for arguments of type `int`: the kernel ignores the upper half, so the rules must ignore it too.
const INT: u64 = 0xFFFF_FFFF;

/// `RLIMIT_CORE`, and the number of limits (`RLIM_NLIMITS`).
const CORE: u64 = 4;
const LIMITS: u64 = 16;

/// `PRIO_PROCESS` and `IOPRIO_WHO_PROCESS`: the call names one process, not a group or a user.
const PRIO_PROCESS: u64 = 0;
const IOPRIO_PROCESS: u64 = 1;

/// The default scheduling policy: setting it helps or harms no process.
const SCHED_OTHER: u64 = 0;

const ENOSYS: u32 = 38;
/// As an errno: the call is not made, and the program sees success.
const DONE: u32 = 0;

/// How `clone3` is answered, whose flags lie in memory, where no filter can look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clone3 {
    /// With `ENOSYS`, at which a C library falls back to `clone`.
    Absent,
    /// The kernel of the container answers it itself. This is only for a runtime that has a kernel of its own
    /// and answers each refused call with `EPERM`: a C library that gets `EPERM` makes no thread at all.
    Allowed,
}

/// The profile as the Engine wants it.
pub(super) fn profile(clone3: Clone3) -> String {
    let plain: Vec<&str> =
        [FILES, MEMORY, PROCESSES, REST, SOCKETS].iter().flat_map(|group| group.split_whitespace()).collect();
    let mut rules = vec![json!({ "names": plain, "action": "SCMP_ACT_ALLOW" })];
    for family in FAMILIES {
        rules.push(allow("socket", &[masked(0, INT, family)]));
    }
    rules.push(allow("socket", &[masked(0, INT, AF_NETLINK), masked(2, INT, NETLINK_ROUTE)]));
    rules.push(allow("clone", &[masked(0, CLONE_NEW, 0)]));
    rules.push(match clone3 {
        Clone3::Absent => answer(&["clone3"], ENOSYS, &[]),
        Clone3::Allowed => allow("clone3", &[]),
    });
    rules.push(answer(&AIO, ENOSYS, &[]));
    rules.extend(limits());
    rules.extend(scheduling());
    for persona in [0x0, 0x8, 0x20000, 0x20008, 0xFFFF_FFFF_u64] {
        rules.push(allow("personality", &[compared(0, "EQ", persona)]));
    }
    let architecture = if cfg!(target_arch = "aarch64") { "SCMP_ARCH_AARCH64" } else { "SCMP_ARCH_X86_64" };
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "archMap": [{ "architecture": architecture, "subArchitectures": [] }],
        "syscalls": rules,
    })
    .to_string()
}

/// A program may set its own limits only, since it could otherwise set those of PID 1, which has the same
/// user; and it may not set the limit of core dumps.
fn limits() -> Vec<Value> {
    let (own, core) = (masked(0, INT, 0), masked(1, INT, CORE));
    let mut rules = Vec::new();
    for limit in (0..LIMITS).filter(|limit| *limit != CORE) {
        rules.push(allow("prlimit64", &[own.clone(), masked(1, INT, limit)]));
        rules.push(allow("setrlimit", &[masked(0, INT, limit)]));
    }
    // Without a new value the call only reads.
    rules.push(allow("prlimit64", &[own.clone(), core.clone(), compared(2, "EQ", 0)]));
    rules.push(answer(&["prlimit64"], DONE, &[own, core, compared(2, "NE", 0)]));
    rules.push(answer(&["setrlimit"], DONE, &[masked(0, INT, CORE)]));
    rules
}

/// A program may change its own scheduling only.
fn scheduling() -> Vec<Value> {
    vec![
        allow("sched_setaffinity", &[compared(0, "EQ", 0)]),
        answer(&["sched_setaffinity"], DONE, &[compared(0, "NE", 0)]),
        allow("sched_setattr", &[masked(0, INT, 0)]),
        allow("sched_setparam", &[masked(0, INT, 0)]),
        allow("sched_setscheduler", &[masked(0, INT, 0)]),
        // C libraries set this policy for a thread that they have just made.
        allow("sched_setscheduler", &[masked(1, INT, SCHED_OTHER)]),
        allow("setpriority", &[masked(0, INT, PRIO_PROCESS), masked(1, INT, 0)]),
        allow("ioprio_set", &[masked(0, INT, IOPRIO_PROCESS), masked(1, INT, 0)]),
    ]
}

fn allow(name: &str, args: &[Value]) -> Value {
    json!({ "names": [name], "action": "SCMP_ACT_ALLOW", "args": args })
}

/// The call is not made; the program sees this errno, or success where it is [`DONE`].
fn answer(names: &[&str], errno: u32, args: &[Value]) -> Value {
    json!({ "names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": errno, "args": args })
}

/// True when the whole argument equals `value` (`EQ`), or does not (`NE`).
fn compared(index: u32, how: &str, value: u64) -> Value {
    json!({ "index": index, "value": value, "op": format!("SCMP_CMP_{how}") })
}

/// True when `argument & mask == value`.
fn masked(index: u32, mask: u64, value: u64) -> Value {
    json!({ "index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ" })
}

#[cfg(test)]
#[path = "seccomp_tests.rs"]
mod tests;
