//! The arguments of a shell command, for both tools that start one: what they are, and whether they are
//! right.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use paddock_proto::limits::{DATA_DIR, MAX_ARGUMENT};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, json};
use tokio_util::sync::CancellationToken;

use super::sandbox_config::{SandboxConfig, SandboxTerms};
use super::{WAIT, is_well, put_state};
use crate::execution::{Execution, ExecutionPermit, Executions, StartRequest};
use crate::session::{OutputBacklog, Program, SessionError, SessionId};
use crate::tools::fault::Failure;
use crate::tools::packages::WantedPackages;
use crate::tools::registry::Offer;
use crate::tools::schema::InputSchema;
use crate::tools::session_name::{self, SessionName};
use crate::tools::{Caller, Code, Fault, Outcome, Tools, language, network, packages, values};

/// Bytes of a path (`PATH_MAX`).
const MAX_DIRECTORY: usize = 4095;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShellCommand {
    /// The command, for /bin/sh.
    command: String,
    /// Stop the command after this time. Its output and files up to then are kept.
    #[serde(alias = "timeoutSeconds")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    timeout_seconds: Option<f64>,
    /// Keep its standard input open for send_stdin. Otherwise it has no input.
    #[schemars(extend("default" = false))]
    interactive: Option<bool>,
    /// The directory in which it starts: /data, /tmp, or below them. Default: /data.
    #[serde(alias = "workingDirectory")]
    working_directory: Option<String>,
    /// Packages that the command needs beyond those of its image, each in one version, such as
    /// name==version. They are installed once, and there at once the next time.
    #[serde(default)]
    packages: Vec<String>,
    /// Environment variables for this command.
    environment: Option<BTreeMap<String, String>>,
    /// Limits for this command, in addition to those of its container.
    #[serde(alias = "sandboxConfig")]
    sandbox_config: Option<SandboxConfig>,
    /// Names the session and its files. Without it: the session of this connection, which the answer names.
    session_id: Option<SessionName>,
    /// Another name for session_id.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
    /// Return each line as an event of its own.
    #[schemars(extend("default" = false))]
    pub(super) lines: Option<bool>,
    /// false: return at once, like execute_code_async.
    #[serde(alias = "waitForCompletion")]
    #[schemars(extend("default" = true))]
    pub(super) wait_for_completion: Option<bool>,
}

impl ShellCommand {
    /// Adds the bounds of the timeout to the schema.
    pub(super) fn refine(schema: &mut InputSchema, offer: &Offer<'_>) {
        schema.set("timeout_seconds", "maximum", offer.limits.longest.as_secs_f64());
        schema.set("timeout_seconds", "default", offer.limits.execute_code.as_secs_f64());
        packages::refine(schema, offer);
    }

    /// Whether the call waits for the command's end.
    pub(super) fn waits(&self) -> bool {
        self.wait_for_completion.unwrap_or(true)
    }

    /// Where the command's output goes while the call waits. A command that goes on after its call must not
    /// hold the caller's backlog open: the answer would wait for more output.
    pub(super) fn output(&self, caller: &Caller) -> Option<OutputBacklog> {
        caller.output.clone().filter(|_| self.waits())
    }

    /// Checks every argument of a call of `tool`.
    pub(super) fn check(
        self,
        tools: &Tools,
        caller: &Caller,
        tool: &'static str,
    ) -> Result<(SessionId, StartRequest, Option<WantedPackages>), Failure> {
        let names = (self.conversation_id.as_ref(), self.session_id.as_ref());
        let session = session_name::named_or_own(tool, caller, names)?;
        let invalid = |message: &str| Fault::new(Code::InvalidArgument, message);
        if self.command.trim().is_empty() {
            return Err(invalid("`command` is empty; give a shell command").into());
        }
        values::bounded("command", self.command.len(), tools.limits.code.min(MAX_ARGUMENT))?;
        if self.command.contains('\0') {
            let message = "`command` contains a NUL byte; the shell's printf '\\000' writes one";
            return Err(invalid(message).into());
        }
        let directory = directory(self.working_directory.as_deref())?;
        let environment = values::environment(self.environment.unwrap_or_default(), &tools.limits)?;
        let timeout = values::timeout(self.timeout_seconds, tools.limits.execute_code, &tools.limits)?;
        let SandboxTerms { limits, files, network } = self.sandbox_config.unwrap_or_default().check()?;
        let network = network::grant(tools, caller, "sandbox_config.network", network)?;
        let runner = language::runner(&tools.services.pool, &tools.exec_runner)?;
        let packages = packages::check(tools, &runner, &self.packages)?;
        let start = StartRequest {
            program: Program::Command {
                command: self.command,
                interactive: self.interactive.unwrap_or(false),
            },
            language: tools.exec_runner.clone(),
            directory,
            environment,
            timeout,
            limits,
            files,
            execute: None,
            network,
            packages: None,
            task: None,
        };
        Ok((session, start, packages))
    }
}

/// Waits for the permit of a command in this session, until the call is cancelled.
pub(in crate::tools) async fn permit(
    executions: &Executions,
    owner: &str,
    session: &SessionId,
    cancel: &CancellationToken,
) -> Result<ExecutionPermit, Failure> {
    tokio::select! {
        permit = executions.enter(owner, session) => Ok(permit?),
        () = cancel.cancelled() => Err(SessionError::Cancelled.into()),
    }
}

/// Where a command can start: in the session's files, by each of their names, and in `/tmp`.
const DIRECTORIES: [&str; 4] = [DATA_DIR, "/mnt/data", "/workspace", "/tmp"];

/// Whether an absolute path names one of [`DIRECTORIES`] or something below it. Links are not followed: where
/// they lead is looked at in the container, as the program's user.
fn is_allowed(path: &str) -> bool {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let path = format!("/{}/", parts.join("/"));
    DIRECTORIES.iter().any(|allowed| path.starts_with(&format!("{allowed}/")))
}

/// The directory in which a command starts: a relative one is below `/data`.
fn directory(given: Option<&str>) -> Result<String, Fault> {
    let invalid =
        |problem: String| Fault::new(Code::InvalidArgument, format!("`working_directory` {problem}"));
    match given {
        None => Ok(DATA_DIR.to_owned()),
        Some("") => Err(invalid("is empty; leave it out for /data, or name a directory".to_owned())),
        Some(path) if path.contains('\0') => Err(invalid("contains a NUL byte".to_owned())),
        Some(path) if path.len() > MAX_DIRECTORY => {
            Err(invalid(format!("has {} bytes; at most {MAX_DIRECTORY} are possible", path.len())))
        }
        Some(path) => {
            let absolute = if path.starts_with('/') { path.to_owned() } else { format!("{DATA_DIR}/{path}") };
            if !is_allowed(&absolute) {
                return Err(invalid(format!(
                    "is {path:?}; a command can start in {} and below them",
                    DIRECTORIES.join(", ")
                )));
            }
            Ok(absolute)
        }
    }
}

/// The answer of a call that does not wait for the end. It leaves once the container has the command: from
/// then on the execution survives the daemon.
pub(super) async fn started(execution: &Arc<Execution>) -> Result<Outcome, Failure> {
    let _ = tokio::time::timeout(WAIT, execution.news(0)).await;
    check_started(execution)?;
    let mut document = Map::new();
    put_state(&mut document, execution);
    let message = "Read its output with get_execution_output, end it with cancel_execution.";
    document.insert("message".into(), json!(message));
    let failed = !is_well(execution);
    Ok(Outcome { document, failed, ..Outcome::default() })
}

/// An answer that says which packages the command has.
pub(super) fn with_packages(mut outcome: Outcome, locked: Option<Vec<String>>) -> Outcome {
    if let Some(locked) = locked {
        outcome.document.insert("packages".into(), json!(locked));
    }
    outcome
}

/// Fails if the command could not be started: the answer then says why, as any refusal does.
pub(in crate::tools) fn check_started(execution: &Execution) -> Result<(), Failure> {
    let Some(error) = execution.take_refusal() else { return Ok(()) };
    Err(match Failure::from(error) {
        Failure::Fault(fault) => fault.with("execution_id", json!(execution.id)).into(),
        failure @ Failure::Call(_) => failure,
    })
}

/// Ends an execution when it is dropped: its caller went away.
pub(in crate::tools) struct EndOnDrop(Option<Arc<Execution>>);

impl EndOnDrop {
    pub(in crate::tools) fn new(execution: Arc<Execution>) -> Self {
        Self(Some(execution))
    }

    /// Lets the execution go on.
    pub(in crate::tools) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if let Some(execution) = &self.0 {
            execution.end_within(Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::ExecutionBounds;
    use crate::session::test_world::World;

    #[test]
    fn a_command_that_its_call_does_not_wait_for_holds_no_backlog_open() {
        let caller = Caller::new("owner", Some(OutputBacklog::default()));
        for (waits, has_output) in [(json!(null), true), (json!(true), true), (json!(false), false)] {
            let arguments = json!({ "command": "true", "wait_for_completion": waits });
            let command: ShellCommand = serde_json::from_value(arguments).unwrap();
            assert_eq!(command.output(&caller).is_some(), has_output, "{waits}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_cancelled_waits_for_no_permit() {
        let world = World::without_containers().await;
        let bounds = ExecutionBounds { max: 1, per_session: 1, keep: Duration::from_secs(3600), kept: 1 };
        let executions = Executions::new(
            world.sessions.clone(),
            bounds,
            Arc::default(),
            crate::ports::PortLinks::for_tests(),
        );
        let (cancel, session) = (CancellationToken::new(), &world.session);
        let _first = permit(&executions, &session.owner, &session.id, &cancel).await.unwrap();
        let cancelling = async {
            tokio::task::yield_now().await;
            cancel.cancel();
        };
        let waiting = permit(&executions, &session.owner, &session.id, &cancel);
        let (second, ()) = tokio::join!(tokio::time::timeout(WAIT, waiting), cancelling);
        assert!(second.expect("it waits on").is_err());
    }

    #[test]
    fn a_command_starts_in_the_files_of_its_session_or_in_tmp() {
        for path in ["/data", "/data/a/../b", "/mnt/data/x", "/workspace", "/tmp", "/tmp/./x", "//data"] {
            assert_eq!(directory(Some(path)).unwrap(), path);
        }
        for (path, absolute) in [(".", "/data/."), ("a/b", "/data/a/b"), ("../tmp", "/data/../tmp")] {
            assert_eq!(directory(Some(path)).unwrap(), absolute);
        }
        let outside = [
            "/",
            "/database",
            "/data/..",
            "/data/../etc",
            "..",
            "a/../../etc",
            "/proc/self/fd/8",
            "/proc/1/cwd",
            "/proc/self/cwd/../..",
            "/sys",
            "/dev/shm",
            "/mnt",
            "/tmp/../../proc",
        ];
        for path in outside {
            let refused = directory(Some(path)).unwrap_err();
            assert!(refused.message.contains("can start in /data, "), "{path}: {}", refused.message);
        }
    }
}
