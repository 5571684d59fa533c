//! Which caller may use which service.

use super::super::gateway::Egress;
use super::super::policy::{EgressRules, NetworkMode};
use super::super::request::NetworkRequest;
use super::super::settings::EgressSettings;
use super::super::test_world::{self, BOUNDS, Names};
use super::*;
use crate::metrics::Metrics;

fn service(name: &str, tenants: &[&str]) -> ServiceSettings {
    ServiceSettings {
        name: name.to_owned(),
        url: BaseUrl::parse("http://127.0.0.1:1/").expect("a URL"),
        headers: Vec::new(),
        tenants: tenants.iter().map(|tenant| (*tenant).to_owned()).collect(),
        model: None,
    }
}

#[test]
fn a_caller_gets_the_services_that_list_it_and_hears_of_no_others() {
    let rules = EgressRules {
        mode: NetworkMode::None,
        allow: Vec::new(),
        deny: vec!["*".parse().expect("a pattern")],
        private: Vec::new(),
        own_addresses: Vec::new(),
        ask: false,
    };
    let services = vec![
        service("git", &["alice"]),
        service("all", &["*"]),
        service("model", &["alice", "bob"]),
        service("nobody", &[]),
    ];
    let settings = EgressSettings { rules, services, ..test_world::settings(BOUNDS) };
    let egress = Egress::new(&settings, Names::default(), Metrics::default());
    let ask = |caller: &str, names: &[&str]| {
        let services = names.iter().map(|name| (*name).to_owned()).collect();
        let request = NetworkRequest { services, ..NetworkRequest::default() };
        egress.grant(&request, caller).map(|grant| grant.policy).map_err(|error| error.to_string())
    };
    let policy = ask("alice", &["git", "all"]).expect("a policy, although the mode is none");
    let name = |text: &str| text.parse().expect("a name");
    assert_eq!(policy.judge_service(&name("git.paddock"), 80).ok(), Some("git"));
    assert!(policy.may_look_up(&name("ALL.paddock.")));
    for (other, port) in
        [("model.paddock", 80), ("git.paddock", 443), ("git.paddock", 22), ("a.git.paddock", 80)]
    {
        assert!(policy.judge_service(&name(other), port).is_err(), "{other}:{port}");
    }
    assert!(!policy.may_look_up(&name("model.paddock")) && !policy.may_look_up(&name("paddock")));
    for (caller, asked, may) in [
        ("bob", "git", "all, model"),
        ("alice", "nobody", "all, git, model"),
        ("alice", "gti", "all, git, model"),
        ("*", "git", "all"),
    ] {
        let error = ask(caller, &["all", asked]).expect_err("refused");
        let expected =
            format!("services: {asked:?} is no service that this caller may use; it may use {may}");
        assert_eq!(error, expected);
    }
}

#[test]
fn a_list_of_names_neither_allows_a_service_nor_looks_one_up() {
    let rules = EgressRules {
        mode: NetworkMode::Open,
        allow: Vec::new(),
        deny: Vec::new(),
        private: Vec::new(),
        own_addresses: Vec::new(),
        ask: false,
    };
    let allowed_domains = vec!["*".to_owned(), "git.paddock".to_owned(), "*.paddock".to_owned()];
    let request = NetworkRequest { allowed_domains, ..NetworkRequest::open() };
    let policy = rules.policy(&request).expect("a policy");
    for text in ["git.paddock", "paddock", "x.git.paddock"] {
        let name: super::super::HostName = text.parse().expect("a name");
        assert!(!policy.may_look_up(&name), "{text}");
        let judged = policy.judge(&super::super::Host::Name(name), 80);
        assert_eq!(judged.expect_err(text).to_string(), "not in network.services of the call");
    }
}

#[test]
fn a_caller_learns_the_models_that_it_may_use() {
    let model = |name: &str, provider, tenants: &[&str]| {
        let prices = model::Prices::default();
        let (tenant_per_day, tenant_tokens_per_day) = (None, None);
        let model = model::ModelSettings { provider, prices, tenant_per_day, tenant_tokens_per_day };
        ServiceSettings { model: Some(model), ..service(name, tenants) }
    };
    let services = vec![
        service("git", &["*"]),
        model("claude", Provider::Anthropic, &["alice"]),
        model("local", Provider::OpenAi, &["*"]),
    ];
    let settings = EgressSettings { services, ..test_world::settings(BOUNDS) };
    let egress = Egress::new(&settings, Names::default(), Metrics::default());
    let all: Vec<_> = egress.models("alice").collect();
    assert_eq!(all, [("claude", Provider::Anthropic), ("local", Provider::OpenAi)]);
    assert_eq!(egress.models("bob").map(|(name, _)| name).collect::<Vec<_>>(), ["local"]);
}
