//! A program that is ready to be started: its executable, arguments, environment and descriptors.
//!
//! It must never start anything, see [`crate::job`].

use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use paddock_proto::message::RunLimits;
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::intercept::Confinement;

/// Where a program without a `/` in its name is looked up when its environment has no `PATH`.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Everything that a program is started with. All of its descriptors are close-on-exec.
pub(crate) struct Program {
    /// Candidates for the executable, in the order of `PATH`.
    pub(crate) paths: Vec<CString>,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: CString,
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// Becomes descriptor [`EXTRA_FD`](crate::sys::EXTRA_FD).
    pub(crate) extra: Option<OwnedFd>,
    /// The kernel enforces two of them for each process: CPU time and file size.
    pub(crate) limits: RunLimits,
    /// Its filter and its domain.
    pub(crate) confinement: Confinement,
}

/// What a run gives to the program that takes it, besides the environment.
pub(crate) struct CodeInput {
    pub(crate) code: Vec<u8>,
    /// A file in memory, positioned at its beginning.
    pub(crate) stdin: Option<OwnedFd>,
}

/// A file in memory with these contents, positioned at its beginning.
pub(crate) fn in_memory(name: &str, parts: &[&[u8]]) -> io::Result<OwnedFd> {
    let mut file = std::fs::File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    for part in parts {
        file.write_all(part)?;
    }
    seek(&file, SeekFrom::Start(0))?;
    Ok(file.into())
}

/// Prepares a program without limits, whose calls nobody answers; with it come the reading ends of its
/// standard output and error.
///
/// # Errors
/// `EINVAL` for text with a NUL; the system's own where there is no pipe left.
pub(crate) fn prepare(
    argv: &[String],
    env: &[String],
    cwd: &str,
    stdin: OwnedFd,
    extra: Option<OwnedFd>,
) -> io::Result<(Program, [OwnedFd; 2])> {
    let all = |texts: &[String]| texts.iter().map(|text| c_string(text)).collect::<io::Result<Vec<_>>>();
    let (out, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (err, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let program = Program {
        paths: c_paths(argv.first().map_or("", String::as_str), env)?,
        argv: all(argv)?,
        env: all(env)?,
        cwd: c_string(cwd)?,
        stdin,
        stdout,
        stderr,
        extra,
        limits: RunLimits::default(),
        confinement: Confinement::silent(),
    };
    Ok((program, [out, err]))
}

/// Where programs without a `/` in their names are looked up with this environment.
pub(crate) fn search_path(env: &[String]) -> &str {
    env.iter().find_map(|variable| variable.strip_prefix("PATH=")).unwrap_or(DEFAULT_PATH)
}

/// Where an executable may be, in the order in which it is tried.
pub(crate) fn candidates(name: &str, path: &str) -> Vec<PathBuf> {
    match name.contains('/') {
        true => vec![name.into()],
        false => path.split(':').map(|dir| PathBuf::from(format!("{dir}/{name}"))).collect(),
    }
}

fn c_paths(name: &str, env: &[String]) -> io::Result<Vec<CString>> {
    let paths = candidates(name, search_path(env)).into_iter();
    paths.map(|path| CString::new(path.into_os_string().into_vec()).map_err(|_| invalid())).collect()
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(found: io::Result<Vec<CString>>) -> Vec<String> {
        found.expect("good").into_iter().map(|path| path.into_string().expect("text")).collect()
    }

    #[test]
    fn a_name_is_looked_up_in_the_path_of_the_run_and_a_path_is_taken_as_it_is() {
        let env = ["X=1".to_owned(), "PATH=/a:/b".to_owned()];
        assert_eq!(texts(c_paths("sh", &env)), ["/a/sh", "/b/sh"]);
        assert_eq!(texts(c_paths("./sh", &env)), ["./sh"]);
        assert_eq!(texts(c_paths("sh", &[])).last().map(String::as_str), Some("/bin/sh"));
        let error = c_paths("s\0h", &env).expect_err("a NUL");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_file_in_memory_is_read_from_its_beginning() {
        let mut text = String::new();
        let file = in_memory("test", &[b"one ", b"two"]).expect("memory");
        std::io::Read::read_to_string(&mut std::fs::File::from(file), &mut text).expect("it can be read");
        assert_eq!(text, "one two");
    }
}
