//! What a row measures: one sample of it, with its own preparation and cleaning outside of its time.
//!
//! It must never count a sample whose output was not checked, and leaves the machine at rest.

use std::time::Duration;

use serde_json::json;

use crate::data::{FileSet, Payload};
use crate::peers::PeerKind;
use crate::programs::{PYTHON, Program, SH};
use crate::setup::{Need, Setup};
use crate::{Result, commands, data, docker};

pub(crate) enum Workload {
    /// `run_code` in the same session.
    Warm(Program),
    /// `run_code` in a new session, with a container ready.
    NewSession(Program),
    /// The same with none ready, so that one is started for it.
    EmptyPool(Program),
    /// A fork of a warm interpreter behind an open exec stream.
    Floor(Program),
    /// The same of an interpreter that has imported nothing.
    Bare(Program),
    /// By a peer, used in this way.
    Peer(PeerKind, &'static str, Program),
    /// `execute_code` with the command of the block's title.
    Wait,
    /// `execute_code_async`, and its end.
    Begin,
    /// A line of one, by a long poll.
    Poll,
    /// A line of one, by the event stream.
    Watch,
    /// The line of an engine exec.
    ExecLine,
    /// Much output, page by page.
    Pages,
    /// Much output of an engine exec.
    ExecOutput,
    /// A shell command as an engine exec.
    ExecCommand(Program),
    /// The engine's exec of the entrypoint.
    Exec(Program),
    /// `docker run`.
    DockerRun(Program),
    /// A run over the agent's link, without the daemon.
    Link(Program),
    /// The entrypoint alone; its command is made at the first sample.
    Entrypoint(Program, Option<String>),
    /// Another program alone.
    Alone(&'static str, &'static str),
    /// A program that does nothing, over the agent's link.
    Nothing,
    Health,
    ListRunners,
    /// Put, run, get; and the session's files are saved.
    Files(Payload),
    /// put_archive, exec, get_archive; unpacked and synced.
    Archives(Payload),
}

impl Workload {
    /// What it takes beside the daemon, the reference containers and the floor.
    pub(crate) fn need(&self) -> Option<Need> {
        if let Self::Peer(kind, ..) = self {
            Some(Need::Peer(*kind))
        } else {
            matches!(self, Self::EmptyPool(_)).then_some(Need::EmptyPool)
        }
    }

    /// One sample.
    pub(crate) async fn sample(&mut self, setup: &mut Setup) -> Result<Duration> {
        match self {
            Self::Warm(p) => {
                let session = format!("bench-warm-{}", p.name);
                Ok(setup.client()?.run(p.language, &session, p.code, p.prints).await?.1)
            }
            Self::NewSession(p) => {
                let session = setup.new_session();
                let (daemon, client) = setup.ours()?;
                let before = daemon.armed(p.language);
                let (_, taken) = client.run(p.language, &session, p.code, p.prints).await?;
                daemon.wait_for_armed(p.language, before + 1).await?;
                Ok(taken)
            }
            Self::EmptyPool(p) => {
                let session = setup.new_session();
                Ok(setup.empty()?.run(p.language, &session, p.code, p.prints).await?.1)
            }
            Self::Floor(p) => setup.floors[0].run(p.code, p.prints).await,
            Self::Bare(p) => setup.bare()?.run(p.code, p.prints).await,
            Self::Peer(kind, way, p) => setup.peer(*kind)?.run(way, *p).await,
            Self::Wait => commands::wait(setup.client()?).await,
            Self::Begin => commands::begin_and_wait(setup.client()?).await,
            Self::Poll => commands::poll(setup.client()?).await,
            Self::Watch => commands::watch(setup.client()?).await,
            Self::ExecLine => setup.reference(PYTHON.language)?.line().await,
            Self::Pages => commands::pages(setup.client()?).await,
            Self::ExecOutput => {
                let (output, taken) = setup.reference(PYTHON.language)?.command(commands::OUTPUT).await?;
                commands::expect_output(&output)?;
                Ok(taken)
            }
            Self::ExecCommand(p) => {
                let (output, taken) = setup.reference(PYTHON.language)?.command(p.code).await?;
                if output == p.prints.as_bytes() {
                    Ok(taken)
                } else {
                    Err("it printed something else".into())
                }
            }
            Self::Exec(p) => setup.reference(p.language)?.exec(p.code, p.prints).await,
            Self::DockerRun(p) => {
                let (engine, dir) = (setup.engine.clone(), setup.dir.path().to_owned());
                docker::run(&engine, &setup.reference(p.language)?.specimen, &dir, p.code, p.prints).await
            }
            Self::Link(p) => setup.reference(p.language)?.link(None, p.code, p.prints).await,
            Self::Entrypoint(p, command) => {
                let reference = setup.reference(p.language)?;
                let command = match command {
                    Some(command) => command,
                    None => command.insert(reference.entrypoint(p.name, p.code).await?),
                };
                reference.shell(command, p.prints).await
            }
            Self::Alone(language, command) => setup.reference(language)?.shell(command, "hi\n").await,
            Self::Nothing => setup.reference(SH.language)?.link(Some(&["/bin/true"]), "", "").await,
            Self::Health => Ok(setup.client()?.get("/health").await?.1),
            Self::ListRunners => Ok(setup.client()?.call("list_runners", json!({})).await?.1),
            Self::Files(shape) => files(setup, *shape).await,
            Self::Archives(shape) => {
                let dir = setup.dir.path().to_owned();
                setup.reference(PYTHON.language)?.files(*shape, &dir).await
            }
        }
    }
}

async fn files(setup: &mut Setup, shape: Payload) -> Result<Duration> {
    let session = match shape {
        Payload::One(size) => format!("bench-{size}"),
        Payload::Many => "bench-many".to_owned(),
    };
    let client = setup.client()?;
    let files = shape.content();
    let expected = shape.made_of(&files);
    let (name, body) = match shape {
        Payload::One(_) => (Some("in.bin"), files.into_values().next().unwrap_or_default().into()),
        Payload::Many => (None, data::tar(&files, 0).await?),
    };
    let putting = client.put(&session, name, body).await?;
    let (_, running) = client.run(PYTHON.language, &session, shape.code(), "").await?;
    let (got, getting) = match shape {
        Payload::One(_) => {
            let (got, getting) = client.get(&format!("/sessions/{session}/files/{}", shape.out())).await?;
            (FileSet::from([(shape.out().to_owned(), got.to_vec())]), getting)
        }
        Payload::Many => {
            let (tar, getting) = client.all(&session).await?;
            (data::unpacked(&tar).await?, getting)
        }
    };
    data::compare(&got, &expected)?;
    Ok(putting + running + getting)
}
