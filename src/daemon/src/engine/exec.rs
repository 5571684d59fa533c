//! Execs: a further program in a running container.
//!
//! It must never put code, data or a secret into argv or the environment: both stand in the engine's event stream
//! and in every inspect. They go by stdin.

use http::Method;
use serde::{Deserialize, Serialize};

use super::Engine;
use super::call::Call;
use super::error::EngineError;
use super::hijack::{Framing, Hijacked};
use super::ids::{ContainerId, ExecId};
use super::op::Op;

/// A program to run: the body of `POST /containers/{id}/exec`. Stdout and stderr are always attached, and it is
/// never privileged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecSpec {
    /// The program and its arguments; the kernel takes no argument over 128 KiB.
    pub cmd: Vec<String>,
    /// `NAME=value` of each, over the container's.
    pub env: Vec<String>,
    /// `uid:gid`; `None` for the container's.
    pub user: Option<String>,
    /// Working directory; `None` for the container's.
    pub working_dir: Option<String>,
    /// Whether it has a stdin.
    pub stdin: bool,
    /// Whether it has a terminal; then stdout and stderr are one.
    pub tty: bool,
}

/// A made exec, to be started once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// Its id.
    pub id: ExecId,
    tty: bool,
}

/// How an exec is. Source: `GET /exec/{id}/json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ExecStatus {
    /// Its id.
    #[serde(rename = "ID")]
    pub id: ExecId,
    /// Its container.
    #[serde(rename = "ContainerID")]
    pub container: ContainerId,
    /// Whether its program runs.
    #[serde(rename = "Running")]
    pub running: bool,
    /// How its program ended: 128 + n after signal n, 126 or 127 when it could not be run (then its stdout has
    /// the runtime's words). `None` before its end.
    #[serde(rename = "ExitCode")]
    pub exit_code: Option<i64>,
    /// Its process as the engine's host sees it; 0 before its start.
    #[serde(rename = "Pid")]
    pub pid: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct CreateBody<'a> {
    attach_stdin: bool,
    attach_stdout: bool,
    attach_stderr: bool,
    tty: bool,
    cmd: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    env: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    working_dir: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct StartBody {
    detach: bool,
    tty: bool,
}

impl Engine {
    /// Makes an exec in a running container: `POST /containers/{id}/exec`. `is_conflict` when it does not run or
    /// is paused.
    pub async fn exec_create(&self, container: &ContainerId, spec: &ExecSpec) -> Result<Exec, EngineError> {
        #[derive(Deserialize)]
        struct Created {
            #[serde(rename = "Id")]
            id: ExecId,
        }
        let limits = self.limits();
        let path = format!("/containers/{container}/exec");
        let body = CreateBody {
            attach_stdin: spec.stdin,
            attach_stdout: true,
            attach_stderr: true,
            tty: spec.tty,
            cmd: &spec.cmd,
            env: &spec.env,
            user: spec.user.as_deref(),
            working_dir: spec.working_dir.as_deref(),
        };
        let call =
            Call::new(Op::ExecCreate, Method::POST, path, limits.change, limits.answer_bytes).json(&body)?;
        let created: Created = self.transport.ask(call).await?.json().await?;
        Ok(Exec { id: created.id, tty: spec.tty })
    }

    /// Starts an exec and takes its connection over: `POST /exec/{id}/start`, answered with 101.
    ///
    /// Gives the connection before the program runs: one that cannot be run shows only as 126 or 127 in
    /// [`ExecStatus::exit_code`], with the runtime's words on stdout. Closing the connection does not end it.
    /// Start an exec once: a second start is `is_conflict` on some engines, while 20.10 hands over a connection that
    /// only says so on stdout. Other errors: `is_not_found` when the engine knows no such exec (any more),
    /// `is_conflict` when its container does not run or is paused.
    pub async fn exec_start(&self, exec: &Exec) -> Result<Hijacked, EngineError> {
        let limits = self.limits();
        let path = format!("/exec/{}/start", exec.id);
        let call = Call::new(Op::ExecStart, Method::POST, path, limits.stream_head, limits.answer_bytes)
            .json(&StartBody { detach: false, tty: exec.tty })?;
        let (content_type, stream, head) = self.transport.hijack(call).await?;
        let framing = Framing::of(self.api_version, content_type.as_deref(), exec.tty)?;
        Ok(Hijacked::new(stream, head, framing))
    }

    /// How an exec is: `GET /exec/{id}/json`. `is_not_found` once its container is gone or the engine restarted.
    pub async fn exec_inspect(&self, exec: &ExecId) -> Result<ExecStatus, EngineError> {
        let limits = self.limits();
        let path = format!("/exec/{exec}/json");
        let call = Call::new(Op::ExecInspect, Method::GET, path, limits.read, limits.answer_bytes);
        self.transport.ask(call).await?.json().await
    }
}
