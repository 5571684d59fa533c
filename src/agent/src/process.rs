//! A program under way, however it was started: what tells of it, what it writes, and what belongs to it.
//!
//! ```text
//!  spec ─► warm part standing? ─► it has the code on its line      (see warm)
//!                └─ no ─────────► job ─► the image's entrypoint, code on standard input
//! ```
//!
//! It must never give the code to both.

use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use paddock_proto::message::{RunLimits, RunSpec};
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::container::Container;
use crate::policy;
use crate::pump::Reports;
use crate::reap::Death;
use crate::spawn::{self, EXTRA_FD, Program};
use crate::tree::{self, Tree};
use crate::warm::Forker;

/// A program under way.
pub(crate) struct Process {
    /// What its processes descend from; it is killed when they are not to be had otherwise.
    pub(crate) job: i32,
    pub(crate) reports: Reports,
    /// The job's end, where it ends with the program.
    pub(crate) dead: Option<Rc<Death>>,
    /// Whether it stood before there was a run.
    pub(crate) warm: bool,
    /// The warm part that forked it, which goes on.
    pub(crate) forker: Option<Rc<Forker>>,
    /// The reading ends of its standard output and standard error.
    pub(crate) outputs: Option<[OwnedFd; 2]>,
}

impl Process {
    /// Its processes.
    pub(crate) fn living(&self) -> Vec<i32> {
        match &self.forker {
            None => tree::descendants(self.job),
            Some(forker) => forker.living(&Tree::look(), None),
        }
    }
}

/// What a program reads.
pub(crate) enum Reads {
    /// Its code, and what it is given besides.
    Code(Input),
    /// Nothing.
    Nothing,
    /// What comes through this pipe.
    Pipe(OwnedFd),
}

/// What a program is given besides its environment.
pub(crate) struct Input {
    pub(crate) code: Vec<u8>,
    /// A file in memory, at its beginning.
    pub(crate) stdin: Option<OwnedFd>,
}

/// Starts what `spec` says.
///
/// # Errors
/// The system's, before anything of it has run.
pub(crate) async fn begin(container: &Container, spec: &RunSpec, reads: Reads) -> io::Result<Process> {
    container.warm.make_way().await;
    let mut env = spec.env.clone();
    let (stdin, extra) = match reads {
        Reads::Code(input) => {
            let input = if spec.warm && spec.files.is_none() {
                match container.warm.run(spec, input).await {
                    Ok(process) => return Ok(process),
                    Err(input) => input,
                }
            } else {
                input
            };
            if input.stdin.is_some() {
                env.push(format!("SANDBOX_STDIN_FD={EXTRA_FD}"));
            }
            (in_memory("code", &[&input.code])?, input.stdin)
        }
        Reads::Nothing => (OwnedFd::from(std::fs::File::open("/dev/null")?), None),
        Reads::Pipe(pipe) => (pipe, None),
    };
    let (mut program, outputs) = prepare(&spec.argv, &env, &spec.cwd, stdin, extra)?;
    program.limits = spec.limits;
    let (confinement, policy) = policy::prepare(spec)?.unzip();
    program.confinement = confinement;
    let (job, reports) = spawn::start(&program)?;
    if let Some(policy) = policy {
        policy.serve();
    }
    Ok(Process {
        job,
        reports: Reports::of_job(reports),
        dead: Some(container.reaper.watch(job)),
        warm: false,
        forker: None,
        outputs: Some(outputs),
    })
}

/// A file in memory that holds these, at its beginning.
pub(crate) fn in_memory(name: &str, parts: &[&[u8]]) -> io::Result<OwnedFd> {
    let mut file = std::fs::File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    for part in parts {
        file.write_all(part)?;
    }
    seek(&file, SeekFrom::Start(0))?;
    Ok(file.into())
}

/// A program that can be started, and the reading ends of its outputs.
pub(crate) fn prepare(
    argv: &[String],
    env: &[String],
    cwd: &str,
    stdin: OwnedFd,
    extra: Option<OwnedFd>,
) -> io::Result<(Program, [OwnedFd; 2])> {
    let c = |text: &str| CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let all = |texts: &[String]| texts.iter().map(|text| c(text)).collect::<io::Result<Vec<_>>>();
    let name = argv.first().map_or("", String::as_str);
    let paths = if name.contains('/') {
        vec![c(name)?]
    } else {
        let path = env.iter().find_map(|v| v.strip_prefix("PATH="));
        let path = path.unwrap_or("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        path.split(':').map(|dir| c(&format!("{dir}/{name}"))).collect::<io::Result<_>>()?
    };
    let (out, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (err, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let program = Program {
        paths,
        argv: all(argv)?,
        env: all(env)?,
        cwd: c(cwd)?,
        stdin,
        stdout,
        stderr,
        extra,
        limits: RunLimits::default(),
        confinement: None,
    };
    Ok((program, [out, err]))
}
