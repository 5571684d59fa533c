//! The images of the runners: which there are, which is used, which is missing.
//!
//! It must never run an image to find out.

use bytesize::ByteSize;

use super::check::{Check, Checks, Group};
use crate::config::Config;
use crate::engine::{Engine, EngineError};
use crate::pool::{DataPlace, DiskBound, PoolConfig, Runner, trial};

/// The runner images of an engine.
#[derive(Debug, Clone)]
pub(super) struct ImageFacts {
    pub(super) runners: Vec<Runner>,
    /// The pool's warnings about images that it leaves out.
    pub(super) warnings: Vec<String>,
    /// The language that shell commands run in.
    pub(super) commands: String,
    /// Whether the configuration wants warm parts.
    pub(super) warm: bool,
}

pub(super) async fn look(
    engine: &Engine,
    config: &Config,
    pool: &PoolConfig,
) -> Result<ImageFacts, EngineError> {
    let (runners, warnings) = trial::survey(engine, pool).await?;
    Ok(ImageFacts { runners, warnings, commands: config.exec.runner.clone(), warm: config.agent.warm_parts })
}

/// The check for an engine that stopped answering.
pub(super) fn unasked(error: &EngineError) -> Vec<Check> {
    let mut checks = Checks::of(Group::Images);
    checks.fail(
        "runners",
        format!("the images cannot be listed: {error}"),
        "no container can be made: look at the engine's log (`journalctl -u docker`)",
    );
    checks.done()
}

pub(super) fn judge(facts: &ImageFacts) -> Vec<Check> {
    let mut checks = Checks::of(Group::Images);
    for runner in &facts.runners {
        if let DataPlace::Disk(bound) = runner.bounds.place {
            let size = ByteSize::b(runner.bounds.data);
            let name = &runner.language;
            match bound {
                DiskBound::Hard => checks.ok(
                    "workspace",
                    format!(
                        "the workspace of {name} has {size} on the engine's disk, and its packages as much: \
                         a quota of the file system"
                    ),
                ),
                DiskBound::Watched => checks.ok(
                    "workspace",
                    format!(
                        "the workspace of {name} has {size} on the engine's disk, with its packages: \
                         watched, since the engine's volumes take no size (Docker's do on xfs with pquota)"
                    ),
                ),
            }
        }
        let part = match (facts.warm, runner.warm.is_empty()) {
            (true, false) => "with a warm part",
            (true, true) => "plain: every run starts its interpreter",
            (false, _) => "plain, as agent.warm_parts demands",
        };
        checks.ok("runner", format!("{} runs in {}, {part}", runner.language, runner.image));
    }
    for warning in &facts.warnings {
        let (found, advice) = warning
            .split_once("; ")
            .unwrap_or((warning, "runner-images/README.md explains what a runner is"));
        checks.warn("image", found, advice);
    }
    if facts.runners.is_empty() {
        checks.fail(
            "runners",
            "no image runs any language",
            "no code can run: build paddock's images (`make images`, or `deploy/images`), or give an image \
             of yours the labels sandbox.runner=true and sandbox.language=NAME (runner-images/README.md)",
        );
    } else if !facts.runners.iter().any(|runner| runner.language == facts.commands) {
        checks.warn(
            "commands",
            format!("shell commands should run in {} (exec.runner), but no image runs that", facts.commands),
            format!(
                "execute_code is refused: build that image (`make images`), or set exec.runner to one of {}",
                {
                    let languages: Vec<_> =
                        facts.runners.iter().map(|runner| runner.language.as_str()).collect();
                    languages.join(", ")
                }
            ),
        );
    }
    checks.done()
}

#[cfg(test)]
mod tests {
    use super::super::check::Status::{Fail, Warn};
    use super::super::check::tests::lacks;
    use super::*;

    fn good() -> ImageFacts {
        let runner = Runner {
            language: "python".into(),
            image: "paddock-runner-python".into(),
            image_id: format!("sha256:{}", "a".repeat(64)).parse().expect("an image"),
            argv: vec!["python3".into()],
            env: vec![],
            libraries: String::new(),
            stdin: false,
            typecheck: false,
            warm: vec!["warm".into()],
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
        };
        ImageFacts { runners: vec![runner], warnings: vec![], commands: "python".into(), warm: true }
    }

    #[test]
    fn each_defect_gives_its_check_and_no_other() {
        assert_eq!(lacks(&judge(&good())), []);
        let mut plain = good();
        plain.runners[0].warm.clear();
        assert_eq!(lacks(&judge(&plain)), []);
        assert!(judge(&plain)[0].found.contains("plain"));
        for (bound, said) in [(DiskBound::Hard, "quota"), (DiskBound::Watched, "watched")] {
            let mut agent = good();
            agent.runners[0].bounds.place = DataPlace::Disk(bound);
            assert_eq!(lacks(&judge(&agent)), []);
            assert!(judge(&agent)[0].found.contains(said), "{:?}", judge(&agent));
        }
        for (facts, name, status) in [
            (ImageFacts { runners: vec![], ..good() }, "runners", Fail),
            (ImageFacts { commands: "sh".into(), ..good() }, "commands", Warn),
            (ImageFacts { warnings: vec!["several images; set runners.x".into()], ..good() }, "image", Warn),
            (ImageFacts { warnings: vec!["left out".into()], ..good() }, "image", Warn),
        ] {
            assert_eq!(lacks(&judge(&facts)), [(name, status)], "{facts:?}");
        }
    }
}
