//! Packages beyond the images: whether calls can have them, and from where.
//!
//! It must never fetch anything, nor ask a registry: what it says follows from the configuration and the
//! labels of images.

use bytesize::ByteSize;

use super::check::{Check, Checks, Group};
use crate::config::Config;
use crate::egress::NetworkMode;
use crate::pool::Runner;

const NAME: &str = "packages";

pub(super) fn judge(config: &Config, runners: &[Runner]) -> Vec<Check> {
    let mut checks = Checks::of(Group::Images);
    if !config.packages.enabled {
        checks.ok(NAME, "calls cannot list packages: packages.enabled is false");
        return checks.done();
    }
    let size = ByteSize::b(config.packages.layer_bytes);
    let with_some = runners.iter().filter_map(|runner| Some((runner, runner.packages.as_ref()?)));
    for (runner, labels) in with_some {
        let (hosts, is_named) = config.packages.index.destinations(labels.registry);
        let (language, from) = (&runner.language, hosts.join(", "));
        match config.egress.rules.for_registry(&hosts, is_named) {
            Ok(_) => checks.ok(
                NAME,
                format!("programs of {language} can have packages, up to {size} for a list, from {from}"),
            ),
            // The operator has decided that: nothing is wrong.
            Err(_) if config.egress.rules.mode == NetworkMode::None => checks.ok(
                NAME,
                format!(
                    "calls cannot list packages for {language}: egress.mode is none, and no index is named"
                ),
            ),
            Err(refusal) => checks.warn(
                NAME,
                format!("packages for {language} cannot be fetched: {refusal}"),
                "calls that list packages are refused: allow the registry in egress.allow, name an index of \
                 yours in [packages], or set packages.enabled to false, so that no tool offers it",
            ),
        }
    }
    if !runners.iter().any(|runner| runner.packages.is_some()) {
        checks.ok(NAME, "no runner image takes packages: none has the label sandbox.packages");
    }
    checks.done()
}

#[cfg(test)]
mod tests {
    use super::super::check::Status::{Ok, Warn};
    use super::*;
    use crate::pool::{PackageLabels, Registry};

    #[test]
    fn it_says_from_where_packages_come_and_what_refuses_them() {
        let env = std::collections::BTreeMap::from([("HOME".to_owned(), "/home/ann".to_owned())]);
        let loaded = Config::load(None, &env, &crate::config::Overrides::default());
        let mut config = loaded.unwrap().config;
        let python = Runner {
            packages: Some(PackageLabels { registry: Registry::PyPi, fetch: vec!["/fetch".into()] }),
            ..Runner::example("python")
        };
        let judged = |config: &Config, runners: &[Runner]| {
            let check = judge(config, runners).pop().unwrap();
            (check.status, check.found)
        };
        let (status, found) = judged(&config, std::slice::from_ref(&python));
        assert!(status == Ok && found.contains("pypi.org:443"), "{found}");
        let allowed = std::mem::take(&mut config.egress.rules.allow);
        assert_eq!(judged(&config, std::slice::from_ref(&python)).0, Warn);
        config.egress.rules.allow = allowed;
        config.egress.rules.mode = NetworkMode::None;
        let (status, found) = judged(&config, std::slice::from_ref(&python));
        assert!(status == Ok && found.contains("egress.mode is none"), "{found}");
        // An index of the operator's is reached in every mode.
        config.packages.index.python = Some("http://pypi.lan/simple/".parse().unwrap());
        let (status, found) = judged(&config, std::slice::from_ref(&python));
        assert!(status == Ok && found.contains("pypi.lan:80"), "{found}");
        assert_eq!(judged(&config, &[]).0, Ok);
        config.packages.enabled = false;
        assert!(judged(&config, &[python]).1.contains("packages.enabled"));
    }
}
