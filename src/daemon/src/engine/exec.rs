//! Execs: one more program in a running container.
//!
//! The caller must never put code, data or a secret into argv or the environment, since both appear in the
//! engine's event stream and in every inspect. They travel over stdin.

use serde::{Deserialize, Serialize};

use super::Engine;
use super::call::EngineCall;
use super::error::EngineError;
use super::hijack::{Framing, Hijacked};
use super::ids::{ContainerId, ExecId};
use super::op::EngineOp;

/// A program to run: the body of `POST /containers/{id}/exec`. Stdout and stderr are always attached, and it
/// is never privileged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecSpec {
    /// The program and its arguments; the kernel takes no argument over 128 KiB.
    pub cmd: Vec<String>,
    /// Variables, `NAME=value`, which override the container's.
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

/// An exec that was created, to be started once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedExec {
    /// Its id.
    pub id: ExecId,
    tty: bool,
}

/// The status of an exec. Source: `GET /exec/{id}/json`.
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
    /// The exit code of its program: 128 + n after signal n; 126 or 127 if it could not be run, with the
    /// runtime's message on its stdout. `None` before its end.
    #[serde(rename = "ExitCode")]
    pub exit_code: Option<i64>,
    /// Its process id on the engine's host; 0 before its start.
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
    /// Creates an exec in a running container: `POST /containers/{id}/exec`. Errors: `is_conflict` when the
    /// container does not run or is paused.
    pub async fn exec_create(
        &self,
        container: &ContainerId,
        spec: &ExecSpec,
    ) -> Result<CreatedExec, EngineError> {
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
            EngineCall::new(EngineOp::ExecCreate, path, limits.change, limits.answer_bytes).json(&body)?;
        let created: Created = self.transport.ask(call).await?.json().await?;
        Ok(CreatedExec { id: created.id, tty: spec.tty })
    }

    /// Starts an exec and takes its connection over: `POST /exec/{id}/start`, answered with 101.
    ///
    /// Returns the connection before the program runs: a program that cannot be run shows only as 126 or 127
    /// in [`ExecStatus::exit_code`], with the runtime's message on stdout. Closing the connection does not
    /// end the program. Start an exec only once: on some engines a second start is `is_conflict`, but 20.10
    /// hands over a connection and writes the error to its stdout. Other errors: `is_not_found` when the
    /// engine does not know the exec (any more), `is_conflict` when its container does not run or is paused.
    pub async fn exec_start(&self, exec: &CreatedExec) -> Result<Hijacked, EngineError> {
        let limits = self.limits();
        let path = format!("/exec/{}/start", exec.id);
        let call = EngineCall::new(EngineOp::ExecStart, path, limits.stream_head, limits.answer_bytes)
            .json(&StartBody { detach: false, tty: exec.tty })?;
        let (content_type, stream, head) = self.transport.hijack(call).await?;
        let framing = Framing::of(self.api_version, content_type.as_deref(), exec.tty)?;
        Ok(Hijacked::new(stream, head, framing))
    }

    /// The status of an exec: `GET /exec/{id}/json`. Errors: `is_not_found` once its container is gone or the
    /// engine was restarted.
    pub async fn exec_inspect(&self, exec: &ExecId) -> Result<ExecStatus, EngineError> {
        let limits = self.limits();
        let path = format!("/exec/{exec}/json");
        let call = EngineCall::new(EngineOp::ExecInspect, path, limits.read, limits.answer_bytes);
        self.transport.ask(call).await?.json().await
    }
}
