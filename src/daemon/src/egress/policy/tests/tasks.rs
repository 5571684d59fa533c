//! What coding agents reach, by level and mode.

use super::*;
use crate::egress::request::TaskNetwork;

#[test]
fn a_task_reaches_what_its_level_and_the_mode_give_and_only_public_addresses() {
    let ok = "ok";
    for (mode, task, web, ssh) in [
        (NetworkMode::None, TaskNetwork::Web, "egress.mode is none", "egress.mode is none"),
        (NetworkMode::None, TaskNetwork::Everything, "egress.mode is none", "egress.mode is none"),
        (NetworkMode::Restricted, TaskNetwork::Web, ok, NOT_ALLOWED),
        (NetworkMode::Restricted, TaskNetwork::Everything, ok, NOT_ALLOWED),
        (NetworkMode::Open, TaskNetwork::Web, ok, NOT_ALLOWED),
        (NetworkMode::Open, TaskNetwork::Everything, ok, ok),
    ] {
        let services = owned(&["anthropic"]);
        let request = NetworkRequest { services, task: Some(task), ..NetworkRequest::default() };
        let mut rules = rules(mode, &["pypi.org"]);
        rules.deny = patterns(&["evil.com"]);
        let policy = policy(&rules, &request);
        for (port, expected) in [(80, web), (443, web), (22, ssh)] {
            assert_eq!(outcome(&policy, "github.com", PUBLIC, port), expected, "{mode} {task:?} {port}");
        }
        for (host, address) in [("evil.com", PUBLIC), ("a.com", "10.0.0.1"), ("a.com", "127.0.0.1")] {
            assert_ne!(outcome(&policy, host, address, 443), ok, "{mode} {task:?} {host} {address}");
        }
        assert_eq!(policy.services(), request.services);
        // The next daemon makes the same policy of what is noted of a run.
        let noted = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<NetworkRequest>(&noted).unwrap(), request);
    }
}
