//! How this container is confined, seen from inside. The daemon judges; this only looks.
//!
//! It must never run in a container that is to serve a session: some of what it tries would hurt where it is
//! not refused.
#![expect(unsafe_code, reason = "the system calls that must be refused have no safe wrappers")]

use paddock_proto::FilePolicy;
use paddock_proto::limits::{DATA_ALIASES, DATA_DIR};
use paddock_proto::message::{ProbeReport, Quotas};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;

use crate::{intercept, network, policy, sys};

mod cgroup;
mod charge;
mod fill;
mod inside;
mod kernel;
mod machine;
mod outside;

/// Looks at everything. With quotas they are tried out as well.
pub(crate) fn look(quotas: Option<Quotas>) -> ProbeReport {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("").trim()
    };
    let ids = |name: &str| {
        let mut ids = field(name).split_ascii_whitespace().map(|id| id.parse().unwrap_or(0));
        [ids.next().unwrap_or(0), ids.next().unwrap_or(0), ids.next().unwrap_or(0)]
    };
    let set = |name: &str| u64::from_str_radix(field(name), 16);
    let capabilities = ["CapInh", "CapPrm", "CapEff", "CapBnd"]
        .iter()
        .map(|name| set(name).unwrap_or(u64::MAX))
        .fold(set("CapAmb").unwrap_or_else(|_| kernel::ambient()), |all, set| all | set);
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let data = rustix::fs::statvfs(DATA_DIR).ok();
    let data = data.as_ref();
    let device = |path: &str| rustix::fs::stat(path).ok().map(|s| (s.st_dev, s.st_ino));
    ProbeReport {
        uids: ids("Uid"),
        gids: ids("Gid"),
        groups: field("Groups").split_ascii_whitespace().filter_map(|g| g.parse().ok()).collect(),
        capabilities,
        no_new_privs: match field("NoNewPrivs") {
            "" => rustix::thread::no_new_privs().unwrap_or(false), // gVisor's status has no such line
            value => value == "1",
        },
        seccomp: field("Seccomp").parse().unwrap_or(0),
        interfaces: interfaces(),
        outside: outside::look(),
        inside: inside::look(),
        root_write_errno: std::fs::File::create("/.paddock-probe")
            .err()
            .map_or(0, |e| e.raw_os_error().unwrap_or(-1)),
        root_read_only: rustix::fs::statvfs("/")
            .is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::RDONLY))
            || is_mounted_read_only(&mounts),
        data_bytes: data.map_or(0, |d| d.f_blocks * d.f_frsize),
        data_free: data.map_or(0, |d| d.f_bavail * d.f_frsize),
        data_inodes: data.map_or(0, |d| d.f_files),
        data_write_errno: fill::first(DATA_DIR).err().map_or(0, Errno::raw_os_error),
        // In gVisor each mount has numbers of its own.
        data_aliases: DATA_ALIASES.iter().all(|path| device(path) == device(DATA_DIR))
            || fill::is_seen_in(DATA_DIR, &DATA_ALIASES),
        tmp_bytes: rustix::fs::statvfs("/tmp").ok().map_or(0, |d| d.f_blocks * d.f_frsize),
        refused: [refused(), kernel::refused()].concat(),
        host_files: kernel::host_files(),
        core_limit: kernel::core_limit(),
        core_pattern: kernel::core_pattern(),
        segments_stay: kernel::segments_stay(),
        terminals: kernel::terminals(),
        landlock: sys::landlock_version(),
        notification: intercept::can_notify(),
        separates: intercept::separates(),
        connects_lack: network::lacks_news(),
        // Any policy that denies something; it is not put in force.
        policies_lack: policy::missing(&FilePolicy {
            deny_write: vec!["x".to_owned()],
            ..FilePolicy::default()
        }),
        memory: cgroup::memory(),
        swap: cgroup::swap(),
        pids: cgroup::pids(),
        cpu_milli: cgroup::cpu_milli(),
        outer_root: outer_root(),
        label: label(),
        machine: machine::look(),
        filled: quotas.map(|quotas| fill::try_out(&quotas)),
        charged: quotas.map(|_| charge::look()).unwrap_or_default(),
    }
}

/// By the text of /proc/PID/mounts: gVisor says it there, and nothing in statvfs(2).
fn is_mounted_read_only(mounts: &str) -> bool {
    let root = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some("/"));
    let options = root.and_then(|line| line.split(' ').nth(3)).unwrap_or_default();
    options.split(',').any(|option| option == "ro")
}

/// The user outside that is UID 0 in here: the second number of the map of users.
fn outer_root() -> u32 {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().nth(1).and_then(|outer| outer.parse().ok()).unwrap_or(0)
}

/// What a security module calls this process.
fn label() -> String {
    let read = |path| std::fs::read_to_string(path).ok();
    let label = read("/proc/self/attr/apparmor/current").or_else(|| read("/proc/self/attr/current"));
    label.unwrap_or_default().trim_matches(['\0', '\n', ' ']).chars().take(128).collect()
}

/// Network interfaces without `lo`.
fn interfaces() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_owned());
    names.filter(|name| name != "lo").collect()
}

/// Calls that must be refused, and the errno that each gave; 0 where it went through.
fn refused() -> Vec<(String, i32)> {
    let mut seen = Vec::new();
    let mut attempt = |name: &str, number: libc::c_long, args: [libc::c_long; 5]| {
        // SAFETY: the arguments are numbers or null; what the kernel does with them is the question.
        let result = unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4]) };
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(-1);
        seen.push((name.to_owned(), if result < 0 { errno } else { 0 }));
    };
    let (vsock, alg, packet, xdp) = (40, 38, 17, 44);
    attempt("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0, 0]);
    attempt("memfd_secret", libc::SYS_memfd_secret, [0; 5]);
    attempt("socket(AF_VSOCK)", libc::SYS_socket, [vsock, 1, 0, 0, 0]);
    attempt("socket(AF_ALG)", libc::SYS_socket, [alg, 5, 0, 0, 0]);
    attempt("socket(AF_PACKET)", libc::SYS_socket, [packet, 3, 0, 0, 0]);
    attempt("socket(AF_XDP)", libc::SYS_socket, [xdp, 3, 0, 0, 0]);
    attempt("process_vm_readv", libc::SYS_process_vm_readv, [1, 0, 0, 0, 0]);
    attempt("kcmp", libc::SYS_kcmp, [1, 1, 0, 0, 0]);
    attempt("ptrace", libc::SYS_ptrace, [libc::c_long::from(libc::PTRACE_SEIZE), 1, 0, 0, 0]);
    attempt("bpf", libc::SYS_bpf, [0; 5]);
    attempt("keyctl", libc::SYS_keyctl, [0, -1, 0, 0, 0]);
    attempt("userfaultfd", libc::SYS_userfaultfd, [0; 5]);
    attempt("perf_event_open", libc::SYS_perf_event_open, [0; 5]);
    attempt("unshare(CLONE_NEWUSER)", libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), 0, 0, 0, 0]);
    attempt("mount", libc::SYS_mount, [0; 5]);
    seen.push(("pidfd_getfd of a program".to_owned(), intercept::refuses_descriptors()));
    #[cfg(target_arch = "x86_64")]
    {
        let through = sys::in_a_child(|| {
            let answer: i64;
            // SAFETY: getpid of the 32-bit table; either it is answered or this child is killed.
            unsafe {
                std::arch::asm!("push rbx", "int 0x80", "pop rbx", inlateout("rax") 20i64 => answer);
            }
            answer > 0
        });
        seen.push(("32-bit calls".to_owned(), if through { 0 } else { libc::EPERM }));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_of_the_root_says_whether_it_is_read_only() {
        let over = "none / 9p ro,trans=fd 0 0\nproc /proc proc rw 0 0\n";
        assert!(is_mounted_read_only(over));
        assert!(!is_mounted_read_only(&format!("{over}none / 9p rw,errors=remount-ro 0 0\n")));
        assert!(!is_mounted_read_only("none /a 9p ro 0 0\n"));
    }
}
