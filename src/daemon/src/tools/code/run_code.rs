//! `run_code`: source code in, its output and its files out.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
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
use crate::tools::{
    Caller, Code, Fault, Outcome, Tools, arguments, content, language, network, packages, values,
};

/// The variable by which a runner's image learns that it is to check types.
const TYPECHECK: &str = "SANDBOX_TYPECHECK";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct RunCode {
    language: String,
    /// The source code. Files that it writes to /data are saved and returned as links.
    code: String,
    /// Names the conversation. Calls with the same id share the files in /data; no other conversation sees
    /// them. Without an id the daemon makes one and returns it in the answer: pass it again to continue with
    /// the same files.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
    /// Another name for conversationId.
    session_id: Option<SessionName>,
    /// What the program may reach outside of its container: true for all that the operator allows, or lists.
    /// Left out: nothing.
    network: Option<NetworkArgument>,
    /// Packages that the program needs beyond those of its image, each in one version: name==version for
    /// Python, name@version for TypeScript. They are installed once, and there at once the next time.
    #[serde(default)]
    packages: Vec<String>,
    /// Environment variables for this run.
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// Stop the program after this time. Its output and files up to then are kept.
    #[schemars(extend("exclusiveMinimum" = 0))]
    timeout_seconds: Option<f64>,
    /// Standard input of the program.
    stdin: Option<String>,
    /// Check the types before the program runs, if its language has types. With errors it does not run:
    /// stderr has them, and the exit code is 2.
    #[schemars(extend("default" = false))]
    typecheck: Option<bool>,
    /// Files to write into /data before the run. They replace files of the same name.
    #[serde(default)]
    files: Vec<InputFile>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InputFile {
    /// Path of the file, relative to /data.
    path: String,
    /// Content of a text file, as plain text.
    text: Option<String>,
    /// Instead of text: content of any file, as base64 with padding.
    content: Option<String>,
}

impl Tool for RunCode {
    const NAME: &'static str = "run_code";
    const SET: ToolSet = ToolSet::Code;
    const TITLE: &'static str = "Run code";
    const SUMMARY: &'static str = "runs `code` in `language`: `python`, `typescript`, or the language of any \
                                   other runner image (`ts`, `js`, `bash` and similar names work too). \
                                   Optional: `conversationId`, `packages`, `environment`, `stdin`, `files`, \
                                   `timeout_seconds`, `typecheck`";
    const EFFECT: Effect = Effect::Destroys;
    const FORM: AnswerForm = AnswerForm::Run;

    fn description(offer: &Offer<'_>) -> String {
        let limits = offer.limits;
        let mut text = format!(
            "Run a program in an isolated container and return its output and files. Languages: {}. Each run \
             is a new process: variables are lost when it ends, but files in /data (also /mnt/data and \
             /workspace) stay for the conversation and are returned as download links. matplotlib figures \
             that are shown (plt.show) or left open are saved as /data/figure_1.png and so on; small images \
             are included in the answer. A long output is shortened to its beginning and end, {} in all \
             (also in `output`; `stdout` and `stderr` have up to {} each); log_url has the whole output. {} \
             At most {} bytes of code, and {} seconds unless timeout_seconds is given.{}",
            offer.languages(),
            values::size(limits.shown as u64),
            values::size(limits.output as u64),
            network::sentence(offer.network, "network"),
            limits.code,
            limits.run_code.as_secs_f64(),
            offer.mounts(|runner| !runner.coding_agent),
        );
        let with_libraries = offer.runners.values().filter(|(_, runner)| !runner.libraries.is_empty());
        let lines: Vec<String> = with_libraries
            .map(|(_, runner)| format!("- {}: {}", runner.language, runner.libraries))
            .collect();
        if !lines.is_empty() {
            text.push_str("\n\nLibraries:\n");
            text.push_str(&lines.join("\n"));
        }
        text
    }

    fn refine(schema: &mut InputSchema, offer: &Offer<'_>) {
        schema.set(
            "language",
            "description",
            format!("Programming language. Available: {}", offer.languages()),
        );
        if !offer.runners.is_empty() {
            schema.set("language", "enum", offer.runners.keys().map(String::as_str).collect::<Vec<_>>());
        }
        schema.set("timeout_seconds", "maximum", offer.limits.longest.as_secs_f64());
        schema.set("timeout_seconds", "default", offer.limits.run_code.as_secs_f64());
        packages::refine(schema, offer);
    }

    async fn call(
        self,
        tools: &Arc<Tools>,
        caller: &Caller,
        cancel: CancellationToken,
    ) -> Result<Outcome, Failure> {
        let run = self.check(tools, caller)?;
        run::perform(tools, caller, run, cancel).await
    }
}

impl RunCode {
    fn check(self, tools: &Tools, caller: &Caller) -> Result<CheckedRun, Failure> {
        let limits = &tools.limits;
        let names = (self.conversation_id.as_ref(), self.session_id.as_ref());
        let session = session_name::named_or_own(Self::NAME, caller, names)?;
        let runner = language::runner(&tools.services.pool, &self.language)?;
        let code = run::code(tools, self.code)?;
        let network =
            network::grant(tools, caller, "network", self.network.and_then(NetworkArgument::into_request))?;
        let packages = packages::check(tools, &runner, &self.packages)?;
        let mut environment = values::environment(self.environment, limits)?;
        if self.typecheck == Some(true) {
            if !runner.typecheck {
                let message =
                    format!("`typecheck` is true, but the runner for {} checks no types", runner.language);
                return Err(Fault::new(Code::InvalidArgument, message).into());
            }
            environment.push((TYPECHECK.to_owned(), "1".to_owned()));
        }
        let timeout = values::timeout(self.timeout_seconds, limits.run_code, limits)?;
        if self.stdin.is_some() && !runner.stdin {
            let message =
                format!("the runner for {} takes no `stdin`; put the input into a file", runner.language);
            return Err(Fault::new(Code::InvalidArgument, message).into());
        }
        values::bounded("stdin", self.stdin.as_ref().map_or(0, String::len), limits.stdin)?;
        let mut left = limits.upload;
        let mut files = Vec::new();
        for (at, file) in self.files.iter().enumerate() {
            let path = arguments::path(&format!("files[{at}].path"), &file.path)?;
            let (base64, text) = (format!("files[{at}].content"), format!("files[{at}].text"));
            let (base64, text) =
                ((base64.as_str(), file.content.as_deref()), (text.as_str(), file.text.as_deref()));
            let content = content::decode(base64, text, left)?;
            left -= content.len();
            files.push((path, content));
        }
        let program = Program::Code { code, stdin: self.stdin.map(Bytes::from) };
        let mut run = RunRequest::new(new_run_id(), runner.language.clone(), program, timeout);
        run.environment = environment;
        run.network = network;
        Ok(CheckedRun { session, run, packages, files, waits: true })
    }
}
