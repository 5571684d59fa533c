//! `execute_task`: a task in words, and what came of it.
//!
//! A caller that goes away, or cancels its call, ends the task that it waits for. A task that takes longer
//! than [`WAIT`] goes on by itself, unless the caller asked for progress: then the call waits for the end. A
//! caller that does not want to wait says so, and its task goes on from the beginning.

use std::sync::Arc;
use std::time::{Duration, Instant};

use paddock_proto::message::{Entry, RunLimits};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::agent::usual_agent;
use super::check::{CheckedTask, TaskArguments, sentence};
use super::{progress, report, tasks_of};
use crate::agents::{OPENCODE, Resume, TaskNote, last_conversation};
use crate::config::ToolSet;
use crate::execution::StartRequest;
use crate::session::{Program, SessionError, TurnKind};
use crate::tools::code::put_files;
use crate::tools::exec::{EndOnDrop, WAIT, check_started, permit};
use crate::tools::fault::Failure;
use crate::tools::registry::{Effect, Offer, Tool};
use crate::tools::schema::InputSchema;
use crate::tools::{Caller, Code, Outcome, Tools, drops};

/// Earlier tasks whose output is looked at for the id of a conversation: a task that failed at once has none.
const TASKS: usize = 8;

#[derive(Deserialize, JsonSchema)]
pub(in crate::tools) struct ExecuteTask(TaskArguments);

impl Tool for ExecuteTask {
    const NAME: &'static str = "execute_task";
    const SET: ToolSet = ToolSet::Task;
    const TITLE: &'static str = "Have a coding agent do a task";
    const SUMMARY: &'static str = "has a coding agent do `task_description` in `/workspace` of a session. \
                                   Optional: `agent`, `files`, `working_directory`, `timeout`, `yolo_level`, \
                                   `model`, `max_turns`, `max_budget_usd`, `resume`";
    const EFFECT: Effect = Effect::Destroys;

    fn description(offer: &Offer<'_>) -> String {
        format!(
            "Have an autonomous coding agent do a task in an isolated container: it works on the files in \
             /workspace (also /data), which stay for the session, and answers with what it did and the files \
             that it made. yolo_level says what it may do without asking: 1 reads and writes files, 2 and \
             reaches the web, 3 and runs commands and installs packages, 4 everything. {} What it is denied \
             is listed in denied. If it takes longer than 45 seconds, and the call does not ask for \
             progress, the answer has status running and the task continues: look with get_sandbox_status, \
             read it with get_execution_output, end it with cancel_execution. A further task in the same \
             session goes on in the agent's conversation, unless resume is false.{}",
            sentence(offer.network),
            offer.mounts(|runner| runner.coding_agent),
        )
    }

    fn refine(schema: &mut InputSchema, offer: &Offer<'_>) {
        if !offer.agents.is_empty() {
            schema.set("agent", "enum", json!(offer.agents));
        }
        let usual = &offer.limits.task;
        schema.set("agent", "default", usual_agent(&usual.agent, offer.agents));
        schema.set("yolo_level", "default", usual.level);
        schema.set("timeout", "default", usual.timeout.as_secs());
    }

    async fn call(
        self,
        tools: &Arc<Tools>,
        caller: &Caller,
        cancel: CancellationToken,
    ) -> Result<Outcome, Failure> {
        let Self(arguments) = self;
        let mut checked = arguments.check(tools, caller, Self::NAME)?;
        let answer_at = Instant::now() + WAIT;
        let executions = &tools.services.executions;
        let _held = tools.message_shares.enter(&caller.owner, &checked.session, caller.message.as_deref())?;
        let starting = tools.task_permits.enter(executions, &caller.owner, &checked.session)?;
        drops::take(tools, &caller.owner, &checked.session).await?;
        prepare(tools, caller, &mut checked, &cancel).await?;
        let permit = permit(executions, &caller.owner, &checked.session, &cancel).await?;
        let waits = checked.waits;
        let execution = executions.start(permit, start(checked), None).await?;
        drop(starting);
        drops::give_after(tools, &execution);
        let waiting = EndOnDrop::new(execution.clone());
        tokio::select! {
            () = std::future::ready(()), if !waits => {}
            () = progress::follow(&execution, caller.output.as_ref()) => {}
            // A client that hears of the progress does not give up: the call waits for the end.
            () = tokio::time::sleep_until(answer_at.into()), if caller.output.is_none() => {}
            () = cancel.cancelled() => {
                execution.end_within(Duration::ZERO);
                execution.over().await;
            }
        }
        waiting.disarm();
        let agent = execution.spec.task.as_ref().map_or("", |task| &task.agent);
        check_started(&execution).map_err(|failure| with_a_level(failure, agent))?;
        let document = report::document(tools, &execution).await?;
        let failed = !report::is_well(&document);
        Ok(Outcome { document, failed, ..Outcome::default() })
    }
}

/// Saves the files of the call in its session, and finds the conversation that the task goes on with.
async fn prepare(
    tools: &Tools,
    caller: &Caller,
    checked: &mut CheckedTask,
    cancel: &CancellationToken,
) -> Result<(), Failure> {
    let turn = tokio::select! {
        turn = tools.services.sessions.enter(&caller.owner, &checked.session, TurnKind::Whole) => turn?,
        () = cancel.cancelled() => return Err(SessionError::Cancelled.into()),
    };
    let session = turn.session();
    checked.check_session(session)?;
    put_files(session, std::mem::take(&mut checked.files)).await?;
    if checked.resumes {
        let stored = {
            let manifest = session.space.manifest();
            let files = manifest.files().map(|(entry, _): (&Entry, u64)| entry);
            last_conversation(checked.task.agent.name(), files, &checked.task.directory)
        };
        checked.task.resume = match stored {
            Some(Resume::Newest) => match told_conversation(tools, caller, checked).await {
                Some(id) => Some(Resume::Conversation(id)),
                None => Some(Resume::Newest),
            },
            stored => stored,
        };
    }
    Ok(())
}

/// Adds which level needs nothing of the host, where a level cannot be enforced on it. Tasks of opencode are
/// under a policy at every level.
fn with_a_level(failure: Failure, agent: &str) -> Failure {
    match failure {
        Failure::Fault(mut fault) if fault.code == Code::UnsupportedPolicy && agent != OPENCODE => {
            fault
                .message
                .push_str("; only yolo_level 4, at which a task may run every program, is possible here");
            fault.into()
        }
        failure @ (Failure::Fault(_) | Failure::Call(_)) => failure,
    }
}

/// The id of the conversation that the agent's last task in this directory had, where only its output says
/// it: files say no more than that there is one.
async fn told_conversation(tools: &Tools, caller: &Caller, checked: &CheckedTask) -> Option<String> {
    let tasks = tasks_of(&tools.services.executions, &caller.owner, &checked.session);
    let task = &checked.task;
    let is_same = |note: &TaskNote| note.agent == task.agent.name() && note.directory == task.directory;
    let same = tasks.iter().rev().filter(|one| one.spec.task.as_ref().is_some_and(is_same));
    for execution in same.take(TASKS) {
        let mut log = progress::TaskLog::of(execution);
        // A log that cannot be read, or has no id, leaves it to the agent which conversation is the newest.
        if log.read_page(execution).await.is_ok()
            && let Some(id) = log.transcript.conversation()
        {
            return Some(id.to_owned());
        }
    }
    None
}

/// The execution of a task.
fn start(checked: CheckedTask) -> StartRequest {
    let directory = checked.task.directory.clone();
    let started = checked.task.command();
    let note = TaskNote {
        agent: checked.task.agent.name().to_owned(),
        level: checked.task.level.number(),
        directory: directory.clone(),
    };
    StartRequest {
        program: Program::Direct { argv: started.argv, input: Some(started.input.into()) },
        language: note.agent.clone(),
        directory,
        environment: started.environment,
        timeout: checked.timeout,
        limits: RunLimits::default(),
        files: started.files,
        execute: started.execute,
        network: Some(checked.network),
        packages: None,
        task: Some((checked.task.description, note)),
    }
}
