//! The images that run a language: which there are, which is taken, which is missing.
//!
//! It must never run one to find out.

use super::check::{Check, Checks, Group};
use crate::config::Config;
use crate::engine::{Engine, EngineError};
use crate::pool::{PoolConfig, Runner, trial};

/// What was found.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) runners: Vec<Runner>,
    /// What the pool would say of those left out.
    pub(super) warnings: Vec<String>,
    /// The language that shell commands run in.
    pub(super) commands: String,
    /// Whether warm parts are wanted.
    pub(super) warm: bool,
}

pub(super) async fn look(engine: &Engine, config: &Config, pool: &PoolConfig) -> Result<Facts, EngineError> {
    let (runners, warnings) = trial::survey(engine, pool).await?;
    Ok(Facts { runners, warnings, commands: config.exec.runner.clone(), warm: config.agent.warm_parts })
}

/// The engine stopped answering.
pub(super) fn unasked(error: &EngineError) -> Vec<Check> {
    let mut checks = Checks::of(Group::Images);
    checks.fail(
        "runners",
        format!("the images cannot be listed: {error}"),
        "no container can be made: look at the engine's log (`journalctl -u docker`)",
    );
    checks.done()
}

pub(super) fn judge(facts: &Facts) -> Vec<Check> {
    let mut checks = Checks::of(Group::Images);
    for runner in &facts.runners {
        let part = match (facts.warm, runner.warm.is_empty()) {
            (true, false) => "with a warm part",
            (true, true) => "plain: every run starts its interpreter",
            (false, _) => "plain, as agent.warm_parts wants it",
        };
        checks.ok("runner", format!("{} runs in {}, {part}", runner.language, runner.image));
    }
    for warning in &facts.warnings {
        let (found, advice) =
            warning.split_once("; ").unwrap_or((warning, "see runner-images/README.md for what a runner is"));
        checks.warn("image", found, advice);
    }
    if facts.runners.is_empty() {
        checks.fail(
            "runners",
            "no image runs any language",
            "nothing can be run: build ours (`make images`, or `deploy/images`), or give one of yours the labels \
             sandbox.runner=true and sandbox.language=NAME (runner-images/README.md)",
        );
    } else if !facts.runners.iter().any(|runner| runner.language == facts.commands) {
        checks.warn(
            "commands",
            format!("shell commands are to run in {} (exec.runner), and no image runs that", facts.commands),
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

    fn good() -> Facts {
        let runner = Runner {
            language: "python".into(),
            image: "paddock-runner-python".into(),
            image_id: format!("sha256:{}", "a".repeat(64)).parse().expect("an image"),
            argv: vec!["python3".into()],
            env: vec![],
            libraries: String::new(),
            stdin: false,
            warm: vec!["warm".into()],
            volumes: vec![],
        };
        Facts { runners: vec![runner], warnings: vec![], commands: "python".into(), warm: true }
    }

    #[test]
    fn each_lack_gives_its_line_and_no_other() {
        assert_eq!(lacks(&judge(&good())), []);
        let mut plain = good();
        plain.runners[0].warm.clear();
        assert_eq!(lacks(&judge(&plain)), []);
        assert!(judge(&plain)[0].found.contains("plain"));
        for (facts, name, status) in [
            (Facts { runners: vec![], ..good() }, "runners", Fail),
            (Facts { commands: "sh".into(), ..good() }, "commands", Warn),
            (Facts { warnings: vec!["several images; set runners.x".into()], ..good() }, "image", Warn),
            (Facts { warnings: vec!["left out".into()], ..good() }, "image", Warn),
        ] {
            assert_eq!(lacks(&judge(&facts)), [(name, status)], "{facts:?}");
        }
    }
}
