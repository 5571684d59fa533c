//! `execute_code`: a shell command, and its output.
//!
//! A caller that goes away, or cancels its call, ends the command that it waits for. A command that takes
//! longer than [`WAIT`] goes on by itself, unless the caller asked for progress: then the call waits for the
//! end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::command::{EndOnDrop, ShellCommand, check_started, permit, started, with_packages};
use super::get_execution_output::put_page;
use super::{WAIT, is_well, put_state};
use crate::config::ToolSet;
use crate::tools::fault::Failure;
use crate::tools::registry::{Effect, Offer, Tool};
use crate::tools::schema::InputSchema;
use crate::tools::{Caller, Outcome, Tools, drops, network, packages, values};

#[derive(Deserialize, JsonSchema)]
pub(in crate::tools) struct ExecuteCode(ShellCommand);

impl Tool for ExecuteCode {
    const NAME: &'static str = "execute_code";
    const SET: ToolSet = ToolSet::Exec;
    const TITLE: &'static str = "Run a shell command";
    const SUMMARY: &'static str = "runs `command` with `/bin/sh -c` and waits for its end. Optional: \
                                   `timeout_seconds`, `working_directory` (`/data`), `environment`, \
                                   `interactive`, `sandbox_config`, `wait_for_completion`";
    const EFFECT: Effect = Effect::Destroys;

    fn description(offer: &Offer<'_>) -> String {
        format!(
            "Run a shell command (/bin/sh -c) in an isolated container with the programs of the {} image, \
             and return its output. Each command is a new process that starts in /data (also /mnt/data and \
             /workspace); files there stay for the session. {} The command is stopped after {} seconds \
             unless timeout_seconds is given. If it takes longer than 45 seconds, and the call does not ask \
             for progress, the answer has status running and the command continues: read the rest with \
             get_execution_output. A long output is shortened to its beginning and end, {} in all; \
             get_execution_output returns the whole. `output` in the document is a list of events; lines \
             that were written within half a second are one event, unless lines is true.{}",
            offer.exec_runner,
            network::sentence(offer.network, "sandbox_config.network"),
            offer.limits.execute_code.as_secs_f64(),
            values::size(offer.limits.shown as u64),
            offer.mounts(|runner| runner.language == offer.exec_runner),
        )
    }

    fn refine(schema: &mut InputSchema, offer: &Offer<'_>) {
        ShellCommand::refine(schema, offer);
    }

    async fn call(
        self,
        tools: &Arc<Tools>,
        caller: &Caller,
        cancel: CancellationToken,
    ) -> Result<Outcome, Failure> {
        let Self(command) = self;
        let (waits, output) = (command.waits(), command.output(caller));
        let apart = command.lines == Some(true);
        let (session, mut start, packages) = command.check(tools, caller, Self::NAME)?;
        let executions = &tools.services.executions;
        let answer_at = Instant::now() + WAIT;
        let _held = tools.message_shares.enter(&caller.owner, &session, caller.message.as_deref())?;
        drops::take(tools, &caller.owner, &session).await?;
        start.packages = packages::bring(caller, packages, &cancel).await?;
        let locked = start.packages.as_ref().map(|packages| packages.locked.clone());
        let permit = permit(executions, &caller.owner, &session, &cancel).await?;
        let execution = executions.start(permit, start, output).await?;
        drops::give_after(tools, &execution);
        if !waits {
            return Ok(with_packages(started(&execution).await?, locked));
        }
        let waiting = EndOnDrop::new(execution.clone());
        tokio::select! {
            () = execution.over() => {}
            // A client that hears of the progress does not give up: the call waits for the end.
            () = tokio::time::sleep_until(answer_at.into()), if caller.output.is_none() => {}
            () = cancel.cancelled() => {
                execution.end_within(Duration::ZERO);
                execution.over().await;
            }
        }
        waiting.disarm();
        check_started(&execution)?;
        let mut outcome = Outcome::default();
        put_state(&mut outcome.document, &execution);
        put_page(tools, &mut outcome, &execution, 0, apart).await?;
        if execution.end().is_none() {
            let message = format!(
                "The command is still running after {} seconds and goes on. Read it with \
                 get_execution_output (wait: true, since: next_since), end it with cancel_execution.",
                WAIT.as_secs()
            );
            outcome.document.insert("message".into(), json!(message));
        }
        outcome.failed = !is_well(&execution);
        Ok(with_packages(outcome, locked))
    }
}
