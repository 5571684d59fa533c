//! `execute_code_async`: a shell command that goes on by itself. The answer has its id.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::command::{ShellCommand, permit, started, with_packages};
use crate::config::ToolSet;
use crate::tools::fault::Failure;
use crate::tools::registry::{Effect, Offer, Tool};
use crate::tools::schema::InputSchema;
use crate::tools::{Caller, Code, Fault, Outcome, Tools, drops, packages};

#[derive(Deserialize, JsonSchema)]
pub(in crate::tools) struct ExecuteCodeAsync(ShellCommand);

impl Tool for ExecuteCodeAsync {
    const NAME: &'static str = "execute_code_async";
    const SET: ToolSet = ToolSet::Exec;
    const TITLE: &'static str = "Start a shell command";
    const SUMMARY: &'static str =
        "the same, but returns an `execution_id` as soon as the container has the command";
    const EFFECT: Effect = Effect::Destroys;

    fn description(_: &Offer<'_>) -> String {
        "Start a shell command like execute_code, but return without waiting for its end: for servers, long \
         computations and interactive programs. The event `port` has the link to a server in it. Read its \
         output with get_execution_output and end it with cancel_execution."
            .to_owned()
    }

    fn refine(schema: &mut InputSchema, offer: &Offer<'_>) {
        ShellCommand::refine(schema, offer);
        // Taken from a caller that sends the same arguments to both tools.
        schema.hide("lines");
        schema.hide("wait_for_completion");
    }

    async fn call(
        self,
        tools: &Arc<Tools>,
        caller: &Caller,
        cancel: CancellationToken,
    ) -> Result<Outcome, Failure> {
        let Self(command) = self;
        if command.wait_for_completion == Some(true) {
            let message = "`wait_for_completion` is true; execute_code waits, execute_code_async does not";
            return Err(Fault::new(Code::InvalidArgument, message).into());
        }
        let (session, mut start, packages) = command.check(tools, caller, Self::NAME)?;
        let executions = &tools.services.executions;
        let _held = tools.message_shares.enter(&caller.owner, &session, caller.message.as_deref())?;
        drops::take(tools, &caller.owner, &session).await?;
        start.packages = packages::bring(caller, packages, &cancel).await?;
        let locked = start.packages.as_ref().map(|packages| packages.locked.clone());
        let permit = permit(executions, &caller.owner, &session, &cancel).await?;
        let execution = executions.start(permit, start, None).await?;
        drops::give_after(tools, &execution);
        Ok(with_packages(started(&execution).await?, locked))
    }
}
