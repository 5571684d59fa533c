//! The arguments of a task, checked before anything changes.

use std::sync::Arc;
use std::time::Duration;

use paddock_proto::RelPath;
use paddock_proto::limits::{DATA_ALIASES, DATA_DIR, MAX_ARGUMENT};
use schemars::JsonSchema;
use serde::Deserialize;

use super::agent::{agent, give_models, no_model};
use crate::agents::{Agent, Level, ModelService, STATE_DIR, TaskRequest, WireFormat, is_of_agents};
use crate::egress::{Dollars, NetworkGrant, NetworkRequest, Provider, TaskNetwork};
use crate::session::{Session, SessionId};
use crate::tools::code::check_free;
use crate::tools::fault::Failure;
use crate::tools::session_name::{self, SessionName};
use crate::tools::{Caller, Code, Fault, Tools, arguments, content, values};

/// Where a task works, as agents know it.
const WORKSPACE: &str = "/workspace";
/// Seconds that a call may give its task: the fewest and the most.
const TIMEOUT: (u64, u64) = (60, 1800);
/// Characters of a model's name.
const MODEL: usize = 200;
/// The most turns that a call may name.
const TURNS: u32 = 10_000;
/// The most dollars that a call may name.
const BUDGET: f64 = 10_000.0;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct TaskArguments {
    /// What to do, in words, for example: Analyze sales.csv and write a summary to report.md.
    task_description: String,
    /// Which coding agent.
    agent: Option<String>,
    /// Files to write into /workspace before the task. They replace files of the same name.
    #[serde(default)]
    files: Vec<TaskFile>,
    /// The directory in which it works, relative to /workspace.
    #[schemars(extend("default" = "."))]
    working_directory: Option<String>,
    /// End the task after so many seconds. Its files up to then are kept.
    #[schemars(range(min = 60, max = 1800))]
    timeout: Option<u64>,
    /// What it may do without asking: 1 files, 2 and the web, 3 and commands and packages, 4 everything.
    #[schemars(range(min = 1, max = 4))]
    yolo_level: Option<u64>,
    /// Names the session and its files. Without it: the session of this connection, which the answer names.
    session_id: Option<SessionName>,
    /// Another name for session_id.
    #[serde(rename = "conversationId")]
    conversation_id: Option<SessionName>,
    /// The model, by a name that the agent knows; for opencode NAME/MODEL, where NAME is one of this server's
    /// models.
    model: Option<String>,
    /// End the task after so many turns of the model.
    #[schemars(range(min = 1, max = 10000))]
    max_turns: Option<u32>,
    /// End the task when it has cost so many dollars, by the operator's prices, or its conversation by the
    /// agent's own count.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 10000))]
    max_budget_usd: Option<f64>,
    /// Go on with the agent's last conversation in this session and directory, if there is one.
    #[schemars(extend("default" = true))]
    resume: Option<bool>,
    /// false: return as soon as the task has begun. It goes on, also when the caller goes away.
    #[schemars(extend("default" = true))]
    wait_for_completion: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TaskFile {
    /// Path of the file, relative to /workspace.
    path: String,
    /// Its content, as base64 with padding.
    content: Option<String>,
    /// Instead of content: plain text.
    text: Option<String>,
}

/// A call whose every argument is right, as far as that can be said without its session.
#[derive(Debug)]
pub(super) struct CheckedTask {
    pub(super) session: SessionId,
    /// Without the conversation that it goes on with.
    pub(super) task: TaskRequest,
    pub(super) files: Vec<(RelPath, Vec<u8>)>,
    /// Below the workspace; `None` for the workspace itself.
    pub(super) directory: Option<RelPath>,
    pub(super) timeout: Duration,
    pub(super) network: NetworkGrant,
    pub(super) resumes: bool,
    /// Whether the call waits for the end.
    pub(super) waits: bool,
}

fn invalid(message: String) -> Fault {
    Fault::new(Code::InvalidArgument, message)
}

impl TaskArguments {
    /// Checks every argument of a call of `tool`.
    pub(super) fn check(
        self,
        tools: &Arc<Tools>,
        caller: &Caller,
        tool: &'static str,
    ) -> Result<CheckedTask, Failure> {
        let names = (self.conversation_id.as_ref(), self.session_id.as_ref());
        let session = session_name::named_or_own(tool, caller, names)?;
        let (files, directory, timeout) = (
            files(&self.files, tools.limits.upload)?,
            directory(self.working_directory.as_deref())?,
            timeout(self.timeout, tools.limits.task.timeout)?,
        );
        let (resumes, waits) = (self.resume.unwrap_or(true), self.wait_for_completion.unwrap_or(true));
        let agent = agent(self.agent.as_deref(), &tools.limits.task.agent, &tools.services.pool.runners())?;
        let mut task = self.task(agent, tools.limits.task.level)?;
        if let Some(directory) = &directory {
            task.directory = format!("{WORKSPACE}/{}", directory.to_text());
        }
        let models = tools.services.egress.models(&caller.owner).map(|(name, provider)| ModelService {
            name: name.to_owned(),
            format: match provider {
                Provider::Anthropic => WireFormat::Anthropic,
                Provider::OpenAi => WireFormat::OpenAi,
            },
        });
        give_models(&mut task, models.collect())?;
        let network = network(tools, caller, &task)?;
        Ok(CheckedTask { session, task, files, directory, timeout, network, resumes, waits })
    }

    /// What this agent is asked for, in the workspace itself and without a model.
    fn task(self, agent: Agent, usual_level: u32) -> Result<TaskRequest, Fault> {
        let description = self.task_description;
        if description.trim().is_empty() {
            return Err(invalid("`task_description` is empty; say what to do".to_owned()));
        }
        values::bounded("task_description", description.len(), MAX_ARGUMENT)?;
        if description.contains('\0') {
            return Err(invalid("`task_description` contains a NUL byte".to_owned()));
        }
        let number = self.yolo_level.unwrap_or(usual_level.into());
        let level = Level::of(number)
            .ok_or_else(|| invalid(format!("`yolo_level` is {number}; it must be 1 to 4")))?;
        if let Some(model) = &self.model {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "-._:/@[]".contains(c);
            if model.is_empty()
                || model.len() > MODEL
                || !model.chars().all(is_name)
                || model.starts_with('-')
            {
                let shown: String = model.chars().take(40).collect();
                let message = format!(
                    "`model` is {shown:?}; it must be the name of a model, 1 to {MODEL} of a-z A-Z 0-9 - . _ \
                     : / @ [ ], and not begin with -"
                );
                return Err(invalid(message));
            }
        }
        if let Some(turns) = self.max_turns.filter(|turns| !(1..=TURNS).contains(turns)) {
            return Err(invalid(format!("`max_turns` is {turns}; it must be 1 to {TURNS}")));
        }
        if let Some(budget) = self.max_budget_usd.filter(|budget| !(*budget > 0.0 && *budget <= BUDGET)) {
            let message =
                format!("`max_budget_usd` is {budget}; it must be over 0 and at most {BUDGET} dollars");
            return Err(invalid(message));
        }
        Ok(TaskRequest {
            agent,
            description,
            level,
            model: self.model,
            max_turns: self.max_turns,
            max_budget_usd: self.max_budget_usd,
            resume: None,
            directory: WORKSPACE.to_owned(),
            models: Vec::new(),
            nonce: uuid::Uuid::new_v4().simple().to_string(),
        })
    }
}

impl CheckedTask {
    /// Checks what depends on the session's files: that the directory is there, or comes with the call, and
    /// that no file takes the place of a directory.
    pub(super) fn check_session(&self, session: &Session) -> Result<(), Fault> {
        let manifest = session.space.manifest();
        self.files.iter().try_for_each(|(path, _)| check_free(&manifest, path))?;
        let Some(directory) = &self.directory else { return Ok(()) };
        let is_dir = manifest
            .get(directory)
            .is_some_and(|stored| matches!(stored.entry.kind, paddock_proto::message::EntryKind::Dir));
        let is_above = |path: &RelPath| {
            std::iter::successors(path.parent(), RelPath::parent).any(|above| above == *directory)
        };
        if is_dir || manifest.is_above_some(directory) || self.files.iter().any(|(path, _)| is_above(path)) {
            return Ok(());
        }
        let shown = directory.to_text();
        Err(invalid(format!("`working_directory` is {shown:?}, and /workspace has no such directory")))
    }
}

/// What the task may reach: its models, and what its level has.
fn network(tools: &Tools, caller: &Caller, task: &TaskRequest) -> Result<NetworkGrant, Fault> {
    let reach = match task.level {
        Level::Files => None,
        Level::Web | Level::Commands => Some(TaskNetwork::Web),
        Level::Everything => Some(TaskNetwork::Everything),
    };
    let services: Vec<_> = task.models.iter().map(|service| service.name.clone()).collect();
    // A service that is no model is not metered: then only the agent itself counts.
    let is_metered =
        tools.services.egress.models(&caller.owner).any(|(name, _)| services.iter().any(|own| own == name));
    let budget = task.max_budget_usd.filter(|_| is_metered).map(Dollars::of).transpose();
    let request = NetworkRequest {
        services,
        max_model_requests: task.most_requests(),
        task: reach,
        max_cost_usd: budget.map_err(|problem| invalid(format!("`max_budget_usd` {problem}")))?,
        ..NetworkRequest::default()
    };
    let refused = |_| no_model(task.agent.name(), request.services.first().map_or("", String::as_str));
    tools.services.egress.grant(&request, &caller.owner).map_err(refused)
}

/// The files that come with the call: none twice, and none in the place of a directory of another.
fn files(given: &[TaskFile], limit: usize) -> Result<Vec<(RelPath, Vec<u8>)>, Fault> {
    let (mut left, mut files) = (limit, Vec::<(RelPath, Vec<u8>)>::new());
    for (at, file) in given.iter().enumerate() {
        let path = arguments::path(&format!("files[{at}].path"), &file.path)?;
        not_of_agents(&format!("files[{at}].path"), &path)?;
        let (base64, text) = (format!("files[{at}].content"), format!("files[{at}].text"));
        let bytes = content::decode(
            (base64.as_str(), file.content.as_deref()),
            (text.as_str(), file.text.as_deref()),
            left,
        )?;
        left -= bytes.len();
        let is_above = |a: &RelPath, b: &RelPath| {
            std::iter::successors(b.parent(), RelPath::parent).any(|above| above == *a)
        };
        if let Some((other, _)) =
            files.iter().find(|(other, _)| *other == path || is_above(other, &path) || is_above(&path, other))
        {
            let (path, other) = (path.to_text(), other.to_text());
            return Err(invalid(format!(
                "`files[{at}].path` is {path:?}, and {other:?} is in the same place"
            )));
        }
        files.push((path, bytes));
    }
    Ok(files)
}

/// The directory below the workspace; `None` for the workspace itself.
fn directory(given: Option<&str>) -> Result<Option<RelPath>, Fault> {
    let Some(text) = given else { return Ok(None) };
    let text = text.strip_suffix('/').filter(|shorter| !shorter.is_empty()).unwrap_or(text);
    let is_root = text == "." || text == DATA_DIR || DATA_ALIASES.contains(&text);
    if is_root {
        return Ok(None);
    }
    let path = arguments::path("working_directory", text)?;
    not_of_agents("working_directory", &path)?;
    Ok(Some(path))
}

/// Refuses what agents keep for themselves: a repository that brings such files must not become their memory.
fn not_of_agents(argument: &str, path: &RelPath) -> Result<(), Fault> {
    match is_of_agents(path) {
        true => {
            Err(invalid(format!("`{argument}` is in {STATE_DIR}, where agents keep their conversations")))
        }
        false => Ok(()),
    }
}

/// The time of a task whose call gives it this, or nothing.
fn timeout(given: Option<u64>, usual: Duration) -> Result<Duration, Fault> {
    let (least, most) = TIMEOUT;
    let Some(seconds) = given else { return Ok(usual) };
    if !(least..=most).contains(&seconds) {
        return Err(invalid(format!("`timeout` is {seconds}; it must be {least} to {most} seconds")));
    }
    Ok(Duration::from_secs(seconds))
}

/// What the description of the tool says of the network.
pub(super) fn sentence(mode: crate::egress::NetworkMode) -> &'static str {
    use crate::egress::NetworkMode;
    match mode {
        NetworkMode::None => "No level has a network here beside its model.",
        NetworkMode::Restricted => "The web means public addresses, ports 80 and 443.",
        NetworkMode::Open => "The web means public addresses, ports 80 and 443; level 4 has every port.",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(mut value: Value) -> Result<TaskRequest, String> {
        value["task_description"] = value["task_description"].as_str().unwrap_or("do it").into();
        let arguments: TaskArguments = serde_json::from_value(value).map_err(|error| error.to_string())?;
        arguments.task(Agent::ClaudeCode, 3).map_err(|fault| fault.message)
    }

    #[test]
    fn a_task_has_its_defaults_and_what_it_was_given() {
        let task = read(json!({})).unwrap();
        assert_eq!((task.agent, task.level, task.model), (Agent::ClaudeCode, Level::Commands, None));
        let given = json!({ "agent": "claude-code", "yolo_level": 1, "model": "claude-opus-5-5[1m]",
                            "max_turns": 3, "max_budget_usd": 0.25 });
        let task = read(given).unwrap();
        assert_eq!((task.level, task.max_turns, task.max_budget_usd), (Level::Files, Some(3), Some(0.25)));
        assert_eq!(
            read(json!({ "task_description": "x".repeat(100_000) })).unwrap().description.len(),
            100_000
        );
    }

    #[test]
    fn a_wrong_value_is_refused_with_what_would_be_right() {
        for (value, said) in [
            (json!({ "task_description": " \n" }), "`task_description` is empty"),
            (json!({ "task_description": "a\0b" }), "NUL"),
            (json!({ "task_description": "x".repeat(200_000) }), "`task_description` has 200000 bytes"),
            (json!({ "yolo_level": 0 }), "`yolo_level` is 0; it must be 1 to 4"),
            (json!({ "yolo_level": 5 }), "`yolo_level` is 5"),
            (json!({ "yolo_level": -1 }), "invalid value"),
            (json!({ "model": "" }), "`model`"),
            (json!({ "model": "--help" }), "not begin with -"),
            (json!({ "model": "a b" }), "`model`"),
            (json!({ "max_turns": 0 }), "`max_turns` is 0"),
            (json!({ "max_budget_usd": 0.0 }), "`max_budget_usd` is 0"),
            (json!({ "max_budget_usd": -1 }), "`max_budget_usd` is -1"),
            (json!({ "max_budget_usd": 1e9 }), "at most 10000"),
            (json!({ "prompt": "x" }), "unknown field `prompt`"),
        ] {
            let refused = read(value.clone()).unwrap_err();
            assert!(refused.contains(said), "{value}: {refused}");
        }
    }

    #[test]
    fn a_directory_is_below_the_workspace() {
        let read = |text| directory(text).map(|path| path.map(|path| path.to_text().into_owned()));
        for root in [None, Some("."), Some("./"), Some("/workspace"), Some("/workspace/"), Some("/data")] {
            assert_eq!(read(root), Ok(None), "{root:?}");
        }
        for text in ["src", "src/", "/workspace/src", "/mnt/data/src"] {
            assert_eq!(read(Some(text)), Ok(Some("src".into())), "{text}");
        }
        for wrong in
            ["", "/", "..", "../x", "src/../..", "/etc", "/workspace/../etc", "a//b", "a\0", ".agent"]
        {
            let refused = read(Some(wrong)).unwrap_err();
            assert!(refused.message.starts_with("`working_directory` is "), "{wrong:?}: {}", refused.message);
        }
    }

    #[test]
    fn files_are_checked_before_any_is_written() {
        let file =
            |path: &str, text: &str| TaskFile { path: path.into(), content: None, text: Some(text.into()) };
        let read = |all: &[TaskFile]| files(all, 10).map(|all| all.len()).map_err(|fault| fault.message);
        assert_eq!(read(&[file("a.csv", "1"), file("src/b", "2"), file("src/c", "3")]), Ok(3));
        for (all, said) in [
            (vec![file("/etc/passwd", "")], "files[0].path"),
            (vec![file("a", ""), file("../b", "")], "files[1].path"),
            (vec![file(".agent/opencode/x.db", "")], "is in .agent"),
            (vec![file("a", ""), file("/workspace/a", "")], "in the same place"),
            (vec![file("a", ""), file("a/b", "")], "in the same place"),
            (vec![file("a/b", ""), file("a", "")], "in the same place"),
            (vec![file("a", "123456"), file("b", "12345")], "files[1].text"),
        ] {
            let refused = read(&all).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
        let both = TaskFile { path: "a".into(), content: Some("YQ==".into()), text: Some("a".into()) };
        assert!(read(&[both]).is_err());
        let base64 = TaskFile { path: "a".into(), content: Some("YQ==".into()), text: None };
        assert_eq!(files(&[base64], 10).unwrap()[0].1, b"a");
    }

    #[test]
    fn a_task_has_one_minute_to_half_an_hour() {
        let usual = Duration::from_secs(90);
        let timeout = |given| timeout(given, usual);
        assert_eq!(timeout(None), Ok(usual));
        for seconds in [60, 1800] {
            assert_eq!(timeout(Some(seconds)), Ok(Duration::from_secs(seconds)));
        }
        for seconds in [0, 59, 1801, u64::MAX] {
            assert!(timeout(Some(seconds)).unwrap_err().message.contains("60 to 1800"), "{seconds}");
        }
    }
}
