//! Starts the program of a run: in the warm part that stands, or else in a job of its own.
//!
//! ```text
//!  spec ─► warm part standing? ─► it has the code on its line      (see warm)
//!                └─ no ─────────► job ─► the image's entrypoint, code on standard input
//! ```
//!
//! It must never give the code to both.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use paddock_proto::ExecutePolicy;
use paddock_proto::message::{Input, RunSpec};

use crate::container::Container;
use crate::intercept::{Answerers, Confinement, ListenerSocket, Stops};
use crate::network::{Owner, RunNetwork};
use crate::ports::RunPorts;
use crate::process::Process;
use crate::program::{CodeInput, Program, in_memory, prepare};
use crate::report::Reports;
use crate::sys::EXTRA_FD;
use crate::{disk, execute, files, job, policy};

/// What a program reads.
pub(crate) enum ProgramInput {
    /// Its code, and its own standard input if it has one.
    Code(CodeInput),
    /// Nothing.
    Nothing,
    /// What comes through this pipe.
    Pipe(OwnedFd),
}

/// Starts the program of `spec`.
///
/// # Errors
/// The system's, before anything of it has run.
pub(crate) async fn start(
    container: &Container,
    spec: &RunSpec,
    (run, ports): (&Rc<RunNetwork>, &Rc<RunPorts>),
    input: ProgramInput,
) -> io::Result<Process> {
    container.warm.make_way().await;
    if let Some(limit) = spec.limits.disk {
        disk::look_before(limit).await;
    }
    files::unlock_root();
    let mut env = spec.env.clone();
    let (stdin, extra) = match input {
        ProgramInput::Code(input) => {
            let input = if spec.warm && spec.files.is_none() && spec.execute.is_none() {
                match container.warm.run(spec, run, input).await {
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
        ProgramInput::Nothing => (OwnedFd::from(std::fs::File::open("/dev/null")?), None),
        ProgramInput::Pipe(pipe) => (pipe, None),
    };
    let (mut program, outputs) = prepare(&spec.argv, &env, &spec.cwd, stdin, extra)?;
    program.limits = spec.limits;
    execute::keep_programs_of_image(spec, &mut program.paths);
    let listener = confine(container, &mut program, spec, (run, ports))?;
    let (job, reports) = start_job(&program).await?;
    if let Some((socket, answerers)) = listener {
        socket.serve(answerers);
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

/// Starts the job, and waits a moment for room if the container has as many processes as it may.
async fn start_job(program: &Program) -> io::Result<(i32, OwnedFd)> {
    let first_tried = Instant::now();
    loop {
        match job::start(program) {
            Err(error) if job::lacks_room(&error, first_tried) => tokio::time::sleep(job::TRY_EVERY).await,
            started => return started,
        }
    }
}

/// Puts the program under what its run needs; who answers its calls, where they are stopped.
fn confine(
    container: &Container,
    program: &mut Program,
    spec: &RunSpec,
    (run, ports): (&Rc<RunNetwork>, &Rc<RunPorts>),
) -> io::Result<Option<(ListenerSocket, Answerers)>> {
    let policy = policy::prepare(spec)?;
    let mut answerers = Answerers::default();
    let mut stops = Stops::default();
    let mut ruleset = None;
    if let Some(policy) = policy {
        (stops.files, ruleset) = (policy.calls, Some(policy.ruleset));
        answerers.files = Some(policy.answers);
    }
    if spec.network && container.network.is_told() {
        stops.connect = true;
        answerers.connect = Some(container.network.answers(Owner::Run(run.clone())));
    }
    let must_stop = stops != Stops::default();
    if !matches!(spec.input, Input::Code { .. }) {
        stops.listen = true;
        answerers.listen = Some(ports.answers());
    }
    let execute = execute::prepare(spec)?;
    stops.memory = matches!(spec.execute, Some(ExecutePolicy::Only(_)));
    if stops == Stops::default() && execute.is_none() {
        return Ok(None);
    }
    let (mut confinement, listener) = if stops.asks() {
        let (confinement, socket) = Confinement::stopped(stops)?;
        // Without news of its ports a program starts all the same.
        let confinement = if must_stop { confinement } else { confinement.or_silent() };
        (confinement, Some((socket, answerers)))
    } else {
        (Confinement::refusing(stops), None)
    };
    if let Some(ruleset) = ruleset {
        confinement = confinement.within(ruleset);
    }
    if let Some(ruleset) = execute {
        confinement = confinement.executing(ruleset);
    }
    program.confinement = confinement;
    Ok(listener)
}
