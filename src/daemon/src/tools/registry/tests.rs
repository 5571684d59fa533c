//! What clients see of the tools is pinned: `listed.json` has it, for two runners and for none, with the
//! limits below.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Offer, TOOLS, ToolInfo};
use crate::config::TaskSettings;
use crate::egress::NetworkMode;
use crate::pool::core::RunnerId;
use crate::pool::{Runner, Runners};
use crate::tools::ToolLimits;

const LISTED: &str = include_str!("listed.json");

fn runner(language: &str, libraries: &str) -> Runner {
    Runner {
        language: language.to_owned(),
        image: format!("runner-{language}"),
        image_id: "sha256:0".parse().unwrap(),
        argv: Vec::new(),
        env: Vec::new(),
        libraries: libraries.to_owned(),
        stdin: true,
        typecheck: false,
        warm: Vec::new(),
        snapshot_labels: None,
        snapshot: crate::pool::SnapshotMount::None,
        volumes: Vec::new(),
        packages: None,
        fetches: false,
        coding_agent: false,
        agent_labels: crate::pool::AgentLabels::default(),
        mounts: Vec::new(),
        bounds: crate::pool::Bounds::example(),
        idle: 2,
    }
}

fn by_name(all: impl IntoIterator<Item = Runner>) -> Runners {
    all.into_iter().zip(0..).map(|(one, id)| (one.language.clone(), (RunnerId(id), Arc::new(one)))).collect()
}

fn runners() -> Runners {
    by_name([runner("python", "numpy,pandas"), runner("sh", "")])
}

/// Python, and these coding agents.
pub(in crate::tools) fn runners_with_agents(agents: &[&str]) -> Runners {
    let agents = agents.iter().map(|name| Runner { coding_agent: true, ..runner(name, "") });
    by_name(agents.chain([runner("python", "")]))
}

fn limits() -> ToolLimits {
    ToolLimits {
        code: 100_000,
        upload: 50_000_000,
        artifact_read: 10_000_000,
        output: 100_000,
        shown: 20_000,
        environment: 64 << 10,
        stdin: 1 << 20,
        run_code: Duration::from_secs(30),
        run_python: Duration::from_secs(60),
        execute_code: Duration::from_secs(300),
        task: TaskSettings {
            agent: "claude-code".to_owned(),
            level: 3,
            timeout: Duration::from_secs(600),
            kept: None,
        },
        longest: Duration::from_secs(1800),
        memory: 512 << 20,
        file_size: 256 << 20,
    }
}

fn listed(runners: &Runners) -> Value {
    let limits = limits();
    let network = NetworkMode::Restricted;
    let agents: &[&str] = if runners.is_empty() { &[] } else { &["claude-code", "example"] };
    let offer = Offer {
        runners,
        all: runners,
        agents,
        exec_runner: "python",
        limits: &limits,
        network,
        packages: true,
    };
    let shown = TOOLS.iter().map(|tool| {
        let ToolInfo { name, title, description, input, read_only, destructive } = tool.info(&offer);
        json!({
            "name": name, "title": title, "description": description, "inputSchema": input,
            "readOnly": read_only, "destructive": destructive, "set": format!("{:?}", tool.set),
        })
    });
    shown.collect()
}

#[test]
fn what_clients_see_of_the_tools_is_pinned() {
    let now = json!({ "with_runners": listed(&runners()), "without": listed(&BTreeMap::new()) });
    let pinned: Value = serde_json::from_str(LISTED).unwrap();
    assert_eq!(now, pinned, "{now:#}");
}

#[test]
fn every_name_is_one_that_clients_take_and_stands_once() {
    for tool in &TOOLS {
        assert!(tool.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", tool.name);
        assert!(!tool.summary.is_empty() && !tool.summary.contains(['|', '\n']), "{} has no row", tool.name);
        assert_eq!(TOOLS.iter().filter(|other| other.name == tool.name).count(), 1, "{}", tool.name);
    }
}
