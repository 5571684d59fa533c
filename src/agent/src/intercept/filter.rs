//! The system calls that the kernel stops for PID 1 or refuses, as a classic BPF program.
//!
//! The program looks only at numbers and at the flags of `open`, which are in a register: no filter may
//! follow a pointer. A call that is not named here runs as without a filter. If a call that changes a file by
//! its path is missing here, that is a hole; Landlock closes it for all calls that Landlock knows (see
//! [`crate::policy`]). If a call that connects is missing, it reaches only loopback (see
//! [`crate::network`]).
//!
//! `pidfd_getfd` must be refused to every program: the containers' own profile allows it, for PID 1, and with
//! it a program could take the connections of another run.

/// Calls that change something by a path, or by a descriptor without writing to it.
const STOPPED: &[libc::c_long] = &[
    libc::SYS_truncate,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
];

pub(crate) const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const FILE_SETATTR: libc::c_long = 469;

/// Calls that are answered as by a kernel without them: a C library then uses others, which are judged.
const UNKNOWN: &[libc::c_long] = &[
    libc::SYS_openat2,
    FILE_SETATTR,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

/// Calls that are answered as by a file system without extended attributes: those can be read and not
/// changed.
const UNSUPPORTED: &[libc::c_long] = &[
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
];

/// `ioctl`s that change a file through a descriptor that may only read it: its flags and its version
/// (`FS_IOC_SETFLAGS`, `FS_IOC32_SETFLAGS`, `FS_IOC_FSSETXATTR`, `FS_IOC_SETVERSION`, `FS_IOC32_SETVERSION`).
const CHANGING: [u32; 5] = [0x4008_6602, 0x4004_6602, 0x401C_5820, 0x4008_7602, 0x4004_7602];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Numbers of the calls of x32, which share the architecture's name.
const X32: u32 = 0x4000_0000;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const fn argument(index: u32) -> u32 {
    16 + 8 * index // the lower half: both architectures are little-endian
}

/// What a filter stops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stops {
    pub(crate) files: FileCalls,
    /// Every `connect`.
    pub(crate) connect: bool,
    /// Every `listen`.
    pub(crate) listen: bool,
    /// Refuses, without asking anybody, files in memory that could be executed: Landlock does not know them.
    pub(crate) memory: bool,
}

impl Stops {
    /// Whether somebody has to answer.
    pub(crate) fn asks(self) -> bool {
        self != self.silent()
    }

    /// What is left where nobody answers: what the filter refuses by itself.
    pub(crate) fn silent(self) -> Self {
        Self { memory: self.memory, ..Self::default() }
    }
}

/// Which calls on files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FileCalls {
    #[default]
    None,
    /// Calls that can change something.
    Changes,
    /// Every open too.
    ChangesAndOpens,
}

/// The program. What it refuses is the same for each that stops nothing on files.
#[expect(
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "numbers of calls are small; bits"
)]
pub(crate) fn program(stops: Stops) -> Vec<libc::sock_filter> {
    let mut code = vec![load(ARCH), jump(libc::BPF_JEQ, ARCHITECTURE, 1, 0), answer(refuse(libc::EPERM))];
    code.extend([load(NUMBER), jump(libc::BPF_JGE, X32, 0, 1), answer(refuse(libc::EPERM))]);
    let mut rows = vec![(&[libc::SYS_pidfd_getfd][..], refuse(libc::EPERM))];
    if stops.connect {
        rows.push((&[libc::SYS_connect], libc::SECCOMP_RET_USER_NOTIF));
    }
    if stops.listen {
        rows.push((&[libc::SYS_listen], libc::SECCOMP_RET_USER_NOTIF));
    }
    if stops.files != FileCalls::None {
        rows.extend([
            (STOPPED, libc::SECCOMP_RET_USER_NOTIF),
            (UNKNOWN, refuse(libc::ENOSYS)),
            (UNSUPPORTED, refuse(libc::EOPNOTSUPP)),
        ]);
    }
    for (calls, verdict) in rows {
        for call in calls {
            code.extend([jump(libc::BPF_JEQ, *call as u32, 0, 1), answer(verdict)]);
        }
    }
    let mut blocks = match stops.files {
        FileCalls::None => Vec::new(),
        FileCalls::Changes => on_files(false),
        FileCalls::ChangesAndOpens => on_files(true),
    };
    if stops.memory {
        blocks.push((libc::SYS_memfd_create, in_memory()));
    }
    for (call, block) in blocks {
        code.push(jump(libc::BPF_JEQ, call as u32, 0, block.len() as u8));
        code.extend(block);
    }
    code.push(answer(libc::SECCOMP_RET_ALLOW));
    code
}

/// Calls on files whose verdict depends on their arguments. With `reads` every open is stopped, without it
/// only opens that can change something.
fn on_files(reads: bool) -> Vec<(libc::c_long, Vec<libc::sock_filter>)> {
    let mut blocks = vec![(libc::SYS_openat, opening(2, reads))];
    #[cfg(target_arch = "x86_64")]
    blocks.push((libc::SYS_open, opening(1, reads)));
    if reads {
        // It would tell the names in a directory that the caller may not list.
        blocks.push((libc::SYS_inotify_add_watch, vec![answer(refuse(libc::EACCES))]));
    }
    let mut ioctl = vec![load(argument(1))];
    for request in CHANGING {
        ioctl.extend([jump(libc::BPF_JEQ, request, 0, 1), answer(refuse(libc::EPERM))]);
    }
    ioctl.push(answer(libc::SECCOMP_RET_ALLOW));
    blocks.push((libc::SYS_ioctl, ioctl));
    blocks
}

/// A file in memory may be made where it can never be executed (`MFD_NOEXEC_SEAL`). Others are refused as by
/// `vm.memfd_noexec=2`.
fn in_memory() -> Vec<libc::sock_filter> {
    vec![
        load(argument(1)),
        jump(libc::BPF_JSET, libc::MFD_NOEXEC_SEAL, 0, 1),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(refuse(libc::EACCES)),
    ]
}

fn refuse(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()
}

/// `O_PATH` opens nothing but a name. Other opens are stopped if they write, create or truncate, or if
/// `reads` is set.
fn opening(flags: u32, reads: bool) -> Vec<libc::sock_filter> {
    let changing =
        (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;
    let mut code = vec![
        load(argument(flags)),
        jump(libc::BPF_JSET, libc::O_PATH as u32, 0, 1),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    if !reads {
        code.extend([jump(libc::BPF_JSET, changing, 1, 0), answer(libc::SECCOMP_RET_ALLOW)]);
    }
    code.push(answer(libc::SECCOMP_RET_USER_NOTIF));
    code
}

fn load(at: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0)
}

fn jump(how: u32, value: u32, yes: u8, no: u8) -> libc::sock_filter {
    statement(libc::BPF_JMP | how | libc::BPF_K, value, yes, no)
}

fn answer(verdict: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, verdict, 0, 0)
}

#[expect(clippy::cast_possible_truncation, reason = "the constants are of 16 bits")]
fn statement(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would.
    fn verdict(code: &[libc::sock_filter], call: libc::c_long, args: [u64; 3]) -> u32 {
        let word = |at: u32| match at {
            NUMBER => u32::try_from(call).expect("small"),
            ARCH => ARCHITECTURE,
            at => u32::try_from(args[(at as usize - 16) / 8] & 0xFFFF_FFFF).expect("half"),
        };
        let (mut at, mut a) = (0, 0);
        loop {
            let step = code[at];
            at += 1;
            let code = u32::from(step.code);
            let holds = match code & 0xF0 {
                _ if code & 7 == libc::BPF_LD => {
                    a = word(step.k);
                    continue;
                }
                _ if code & 7 == libc::BPF_RET => return step.k,
                libc::BPF_JEQ => a == step.k,
                libc::BPF_JGE => a >= step.k,
                libc::BPF_JSET => a & step.k != 0,
                other => panic!("{other}"),
            };
            at += usize::from(if holds { step.jt } else { step.jf });
        }
    }

    #[test]
    fn what_changes_a_file_is_stopped_and_reading_is_only_where_it_is_denied() {
        let on = |files| program(Stops { files, ..Stops::default() });
        let (plain, reads) = (on(FileCalls::Changes), on(FileCalls::ChangesAndOpens));
        assert!(reads.len() < 4096, "what the kernel takes");
        let open = |code: &[libc::sock_filter], flags: i32| {
            let flags = u64::from(flags.cast_unsigned()) | 7 << 32;
            verdict(code, libc::SYS_openat, [0, 0, flags])
        };
        for flags in [
            libc::O_WRONLY,
            libc::O_RDWR,
            libc::O_CREAT,
            libc::O_TRUNC,
            libc::O_ACCMODE,
            libc::O_TMPFILE | libc::O_RDWR,
            libc::O_WRONLY | libc::O_CLOEXEC,
        ] {
            assert_eq!(open(&plain, flags), libc::SECCOMP_RET_USER_NOTIF, "{flags:o}");
            assert_eq!(open(&reads, flags), libc::SECCOMP_RET_USER_NOTIF, "{flags:o}");
            assert_eq!(open(&plain, flags | libc::O_PATH), libc::SECCOMP_RET_ALLOW);
        }
        for flags in [libc::O_RDONLY, libc::O_DIRECTORY | libc::O_CLOEXEC, libc::O_NOFOLLOW] {
            assert_eq!(open(&plain, flags), libc::SECCOMP_RET_ALLOW);
            assert_eq!(open(&reads, flags), libc::SECCOMP_RET_USER_NOTIF);
        }
        for call in STOPPED {
            assert_eq!(verdict(&plain, *call, [0; 3]), libc::SECCOMP_RET_USER_NOTIF, "{call}");
        }
        let errno = |code: u32| code & 0xFFFF;
        assert_eq!(errno(verdict(&plain, libc::SYS_openat2, [0; 3])), libc::ENOSYS.cast_unsigned());
        assert_eq!(errno(verdict(&plain, libc::SYS_fsetxattr, [0; 3])), libc::EOPNOTSUPP.cast_unsigned());
        assert_eq!(verdict(&plain, libc::SYS_ioctl, [0, 0x5401, 0]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(errno(verdict(&plain, libc::SYS_ioctl, [0, 0x4008_6602, 0])), libc::EPERM.cast_unsigned());
        let watch = libc::SYS_inotify_add_watch;
        assert_eq!(verdict(&plain, watch, [0; 3]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(errno(verdict(&reads, watch, [0; 3])), libc::EACCES.cast_unsigned());
        for call in
            [libc::SYS_read, libc::SYS_write, libc::SYS_execve, libc::SYS_newfstatat, libc::SYS_ftruncate]
        {
            assert_eq!(verdict(&reads, call, [0; 3]), libc::SECCOMP_RET_ALLOW);
        }
        assert_ne!(verdict(&plain, libc::SYS_read + 0x4000_0000, [0; 3]), libc::SECCOMP_RET_ALLOW);
    }

    #[test]
    fn connecting_and_listening_are_stopped_where_that_is_asked_for_and_nobody_takes_descriptors() {
        let refused = refuse(libc::EPERM);
        for files in [FileCalls::None, FileCalls::Changes, FileCalls::ChangesAndOpens] {
            for connect in [false, true] {
                let code = program(Stops { files, connect, listen: !connect, memory: connect });
                assert!(code.len() < 4096, "what the kernel takes");
                assert_eq!(verdict(&code, libc::SYS_pidfd_getfd, [0; 3]), refused);
                let wanted = if connect { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
                assert_eq!(verdict(&code, libc::SYS_connect, [0; 3]), wanted);
                let other = if connect { libc::SECCOMP_RET_ALLOW } else { libc::SECCOMP_RET_USER_NOTIF };
                assert_eq!(verdict(&code, libc::SYS_listen, [0; 3]), other);
                assert_eq!(verdict(&code, libc::SYS_connect + 0x4000_0000, [0; 3]), refused, "x32");
                for call in [libc::SYS_socket, libc::SYS_bind, libc::SYS_sendto, libc::SYS_accept4] {
                    assert_eq!(verdict(&code, call, [0; 3]), libc::SECCOMP_RET_ALLOW);
                }
            }
        }
    }

    #[test]
    fn files_in_memory_are_refused_where_they_could_be_executed() {
        let made = |memory, flags: u32| {
            let code = program(Stops { memory, ..Stops::default() });
            verdict(&code, libc::SYS_memfd_create, [0, flags.into(), 0])
        };
        for flags in [0, libc::MFD_CLOEXEC, libc::MFD_EXEC, libc::MFD_ALLOW_SEALING] {
            assert_eq!(made(true, flags), refuse(libc::EACCES), "{flags:x}");
            assert_eq!(made(false, flags), libc::SECCOMP_RET_ALLOW, "{flags:x}");
        }
        assert_eq!(made(true, libc::MFD_NOEXEC_SEAL | libc::MFD_CLOEXEC), libc::SECCOMP_RET_ALLOW);
        let stops = Stops { memory: true, ..Stops::default() };
        assert!(!stops.asks() && Stops { listen: true, ..stops }.asks());
        assert_eq!(Stops { listen: true, ..stops }.silent(), stops);
    }

    #[test]
    fn without_a_policy_no_call_on_files_is_touched() {
        let code = program(Stops { connect: true, listen: true, ..Stops::default() });
        for call in STOPPED.iter().chain(UNKNOWN).chain(UNSUPPORTED) {
            assert_eq!(verdict(&code, *call, [0; 3]), libc::SECCOMP_RET_ALLOW, "{call}");
        }
        let writing = [0, 0, libc::O_WRONLY.cast_unsigned().into()];
        assert_eq!(verdict(&code, libc::SYS_openat, writing), libc::SECCOMP_RET_ALLOW);
        assert_eq!(verdict(&code, libc::SYS_ioctl, [0, 0x4008_6602, 0]), libc::SECCOMP_RET_ALLOW);
    }
}
