//! `run_python`: Python in, its output and its files out. It does not wait while another run of the session
//! is in progress.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::run::{self, CheckedRun};
use crate::config::ToolSet;
use crate::egress::NetworkArgument;
use crate::session::{Program, RunRequest, new_run_id};
use crate::tools::fault::Failure;
use crate::tools::registry::{AnswerForm, Effect, Offer, Tool};
use crate::tools::schema::InputSchema;
use crate::tools::session_name::{self, SessionName};
use crate::tools::{Caller, Outcome, Tools, language, network, packages};

const LANGUAGE: &str = "python";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct RunPython {
    /// Python source code.
    code: String,
    /// Names the conversation. Calls with the same id share the files in /data; no other conversation sees
    /// them. Without an id the daemon makes one and returns it in the answer: pass it again to continue with
    /// the same files.
    session_id: Option<SessionName>,
    /// Another name for session_id.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
    /// What the program may reach outside of its container: true for all that the operator allows, or lists.
    /// Left out: nothing.
    network: Option<NetworkArgument>,
    /// Packages that the program needs beyond those of its image, each in one version: name==version. They
    /// are installed once, and there at once the next time.
    #[serde(default)]
    packages: Vec<String>,
}

impl Tool for RunPython {
    const NAME: &'static str = "run_python";
    const SET: ToolSet = ToolSet::Code;
    const TITLE: &'static str = "Run Python";
    const SUMMARY: &'static str = "the same for Python only, with `session_id` and `code`. It answers \
                                   `session_busy` at once where `run_code` waits";
    const EFFECT: Effect = Effect::Destroys;
    const FORM: AnswerForm = AnswerForm::Run;

    fn description(offer: &Offer<'_>) -> String {
        format!(
            "Run Python in an isolated container. Returns its output, and download links for the files that \
             it made or changed. Each run is a new process; files in /mnt/data (also /data and /workspace) \
             stay for the session. matplotlib figures that are shown or left open are saved. {} At most {} \
             bytes of code and {} seconds. Fails with session_busy while another run of the session is in \
             progress.{}",
            network::sentence(offer.network, "network"),
            offer.limits.code,
            offer.limits.run_python.as_secs_f64(),
            offer.mounts(|runner| runner.language == LANGUAGE),
        )
    }

    fn refine(schema: &mut InputSchema, offer: &Offer<'_>) {
        packages::refine(schema, offer);
    }

    async fn call(
        self,
        tools: &Arc<Tools>,
        caller: &Caller,
        cancel: CancellationToken,
    ) -> Result<Outcome, Failure> {
        let names = (self.conversation_id.as_ref(), self.session_id.as_ref());
        let session = session_name::named_or_own(Self::NAME, caller, names)?;
        let runner = language::runner(&tools.services.pool, LANGUAGE)?;
        let program = Program::Code { code: run::code(tools, self.code)?, stdin: None };
        let network =
            network::grant(tools, caller, "network", self.network.and_then(NetworkArgument::into_request))?;
        let packages = packages::check(tools, &runner, &self.packages)?;
        let mut run = RunRequest::new(new_run_id(), LANGUAGE.to_owned(), program, tools.limits.run_python);
        run.network = network;
        let checked = CheckedRun { session, run, packages, files: Vec::new(), waits: false };
        run::perform(tools, caller, checked, cancel).await
    }
}
