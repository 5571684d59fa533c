//! The runtimes that containers ask for: whether the engine has each, and what programs lack under it.
//!
//! It must never judge a runtime by its name: what is missing is what a process in one of its containers saw.

use super::check::{Check, Checks, Group};
use crate::config::Config;
use crate::engine::EngineInfo;
use crate::pool::runtimes::is_known;
use crate::pool::trial::TrialReport;

/// The keys that name a runtime, and what they name; the first is that of all containers without their own.
pub(super) fn asked(config: &Config) -> Vec<(String, String)> {
    let own =
        config.runners.iter().map(|(name, runner)| (format!("runners.{name}.runtime"), &runner.runtime));
    let agents = ("coding_agents.runtime".to_owned(), &config.coding_agents.runtime);
    let usual = ("engine.runtime".to_owned(), &config.engine.runtime);
    let all = [usual, agents].into_iter().chain(own);
    all.filter_map(|(key, name)| Some((key, name.clone()?))).collect()
}

/// Whether the engine has all of them.
pub(super) fn judge_names(info: &EngineInfo, asked: &[(String, String)], checks: &mut Checks) -> bool {
    let known = || info.runtimes.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let missing: Vec<_> = asked.iter().filter(|(_, name)| !is_known(info, name)).collect();
    for (key, name) in &missing {
        checks.fail(
            "runtime",
            format!("it has no runtime {name} ({key}), it has {}", known()),
            format!(
                "install {name} and name it in /etc/docker/daemon.json ({{\"runtimes\": {{\"{name}\": \
                 {{\"path\": \"/usr/bin/{name}\"}}}}}}), then `systemctl reload docker`; or leave {key} empty"
            ),
        );
    }
    if !missing.is_empty() {
        return false;
    }
    let usual = asked.iter().find(|(key, _)| key == "engine.runtime").map(|(_, name)| name.as_str());
    let usual = usual.unwrap_or(&info.default_runtime);
    let others: Vec<String> = asked
        .iter()
        .filter(|(key, name)| key != "engine.runtime" && name != usual)
        .map(|(key, name)| format!(", {name} for {}", key.strip_suffix(".runtime").unwrap_or(key)))
        .collect();
    checks.ok("runtime", format!("containers run by {usual}{}; there are {}", others.concat(), known()));
    true
}

/// What a container of a runtime was found to lack, beside what every container must have.
pub(super) fn judge(tried: &TrialReport) -> Vec<Check> {
    let mut checks = Checks::of(Group::Container);
    lacking(tried, &mut checks);
    checks.done()
}

fn lacking(tried: &TrialReport, checks: &mut Checks) {
    let TrialReport { runtime, lacks, .. } = tried;
    if lacks.is_empty() {
        checks.ok("runtime", format!("{runtime}: the kernel of its containers is the engine's"));
    } else {
        checks.ok("runtime", format!("{runtime}: {}", lacks.join("; ")));
    }
}

/// A container of another runtime than the one that was examined before: whether it is confined as it must
/// be, and what it lacks.
pub(super) fn judge_other(runtime: &str, tried: &Result<TrialReport, String>) -> Vec<Check> {
    let mut checks = Checks::of(Group::Container);
    match tried {
        Err(error) => checks.fail(
            "other runtime",
            format!("no container of the runtime {runtime} could be tried: {error}"),
            "a daemon that is configured to use it does not start; the engine's log says more (`journalctl \
             -u docker`)",
        ),
        Ok(tried) if !tried.violations.is_empty() => {
            let wrong: Vec<&str> = tried.violations.iter().map(|fault| fault.text.as_str()).collect();
            checks.fail(
                "other runtime",
                format!("containers of {runtime} are not confined as they must be: {}", wrong.join(", ")),
                "a daemon that is configured to use it does not start: make it the examined one \
                 (engine.runtime) to see what to do about each",
            );
        }
        Ok(tried) => {
            let armed = tried.armed.as_millis();
            checks.ok(
                "other runtime",
                format!("containers of {runtime} are confined as they must be, and armed in {armed} ms"),
            );
            lacking(tried, &mut checks);
        }
    }
    checks.done()
}

#[cfg(test)]
mod tests {
    use super::super::check::Status::{Fail, Ok as Fine};
    use super::super::check::tests::lacks;
    use super::super::container::tests::report;
    use super::*;
    use crate::pool::{Aspect, Violation};

    #[test]
    fn each_runtime_that_the_configuration_names_is_looked_for_under_its_key() {
        let config = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            let env = std::collections::BTreeMap::from([("HOME".to_owned(), "/home/ann".to_owned())]);
            Config::load(Some(file.path()), &env, &crate::config::Overrides::default()).unwrap().config
        };
        assert!(asked(&config("")).is_empty());
        let text =
            "engine.runtime = 'runsc'\ncoding_agents.runtime = 'kata'\nrunners.python.runtime = 'runc'";
        let keys: Vec<_> =
            asked(&config(text)).into_iter().map(|(key, name)| format!("{key}={name}")).collect();
        assert_eq!(
            keys,
            ["engine.runtime=runsc", "coding_agents.runtime=kata", "runners.python.runtime=runc"]
        );
    }

    #[test]
    fn another_runtime_is_reported_by_what_its_container_showed() {
        let mut tried = report();
        tried.runtime = "runsc".into();
        let text =
            |checks: Vec<Check>| checks.into_iter().map(|check| check.found).collect::<Vec<_>>().join("\n");
        assert_eq!(lacks(&judge_other("runsc", &Ok(tried.clone()))), []);
        tried.lacks = vec!["its kernel is its own".into()];
        assert!(text(judge(&tried)).contains("runsc: its kernel is its own"));
        assert!(text(judge_other("runsc", &Ok(tried.clone()))).contains("its kernel is its own"));
        tried.violations.push(Violation { aspect: Aspect::Seccomp, text: "seccomp is in mode 0".into() });
        let checks = judge_other("runsc", &Ok(tried));
        assert_eq!(lacks(&checks), [("other runtime", Fail)]);
        assert!(checks[0].found.contains("containers of runsc") && checks[0].found.contains("mode 0"));
        let failed = judge_other("kata", &Err("no /dev/kvm".into()));
        assert!(failed[0].status != Fine && failed[0].found.contains("kata could be tried: no /dev/kvm"));
    }
}
