use serde_json::json;

use super::*;

mod properties;
mod tasks;

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| text.parse().unwrap_or_else(|error| panic!("{error}"))).collect()
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().copied().map(str::to_owned).collect()
}

/// Rules of a host at 198.41.0.4, which is a public address.
fn rules(mode: NetworkMode, allow: &[&str]) -> EgressRules {
    let own_addresses = vec!["198.41.0.4".parse().unwrap(), "172.17.0.1".parse().unwrap()];
    EgressRules {
        mode,
        allow: patterns(allow),
        deny: Vec::new(),
        private: Vec::new(),
        own_addresses,
        ask: false,
    }
}

fn open() -> EgressRules {
    rules(NetworkMode::Open, &[])
}

fn lists(allowed: &[&str], denied: &[&str]) -> NetworkRequest {
    NetworkRequest {
        allowed_domains: owned(allowed),
        denied_domains: owned(denied),
        ..NetworkRequest::default()
    }
}

fn host_of(text: &str) -> Host {
    text.parse().unwrap()
}

fn policy(rules: &EgressRules, request: &NetworkRequest) -> NetworkPolicy {
    rules.policy(request).unwrap_or_else(|error| panic!("{error}"))
}

/// What becomes of a connection to a host that resolves to this address; or of one to an address, which
/// resolves to itself.
fn outcome(policy: &NetworkPolicy, host: &str, address: &str, port: u16) -> String {
    let host: Host = host.parse().unwrap();
    let by_name = policy.judge(&host, port);
    let by_address = policy.judge_address(&host, address.parse().unwrap(), port);
    if by_name.is_err() {
        assert_eq!(by_address.err(), by_name.clone().err(), "judging the address includes judging the name");
    }
    by_address.map_or_else(|reason| reason.to_string(), |()| "ok".to_owned())
}

const PUBLIC: &str = "140.82.121.3";
const NOT_ALLOWED: &str = "not in allowed_domains";
const RFC_1918: &str = "a private address (RFC 1918: 10.0.0.0/8)";

#[test]
fn the_mode_decides_what_a_request_gets() {
    let all = NetworkRequest::open();
    let some = lists(&["pypi.org"], &[]);
    let more = lists(&["pypi.org", "github.com"], &[]);
    let nothing = NetworkRequest { services: owned(&["model"]), ..NetworkRequest::default() };
    for (mode, request, pypi, github) in [
        (NetworkMode::None, &nothing, "egress.mode is none", "egress.mode is none"),
        (NetworkMode::Restricted, &all, "ok", "not in egress.allow"),
        (NetworkMode::Restricted, &some, "ok", NOT_ALLOWED),
        (NetworkMode::Restricted, &nothing, NOT_ALLOWED, NOT_ALLOWED),
        (NetworkMode::Open, &all, "ok", "ok"),
        (NetworkMode::Open, &some, "ok", NOT_ALLOWED),
        (NetworkMode::Open, &more, "ok", "ok"),
        (NetworkMode::Open, &nothing, NOT_ALLOWED, NOT_ALLOWED),
    ] {
        let policy = policy(&rules(mode, &["pypi.org", "*.pythonhosted.org:443"]), request);
        assert_eq!(outcome(&policy, "pypi.org", PUBLIC, 443), pypi, "{mode} {request:?}");
        assert_eq!(outcome(&policy, "github.com", PUBLIC, 443), github, "{mode} {request:?}");
        assert_eq!(policy.services(), request.services);
    }
    for request in [&all, &some] {
        let refusal = rules(NetworkMode::None, &["*"]).policy(request).unwrap_err();
        assert_eq!(
            (refusal.kind(), &refusal),
            (RefusalKind::NetworkUnavailable, &PolicyRefusal::Unavailable)
        );
        let text = refusal.to_string();
        assert!(
            ["egress.mode", "NETWORK_MODE", "`restricted`"].iter().all(|part| text.contains(part)),
            "{text}"
        );
    }
}

#[test]
fn in_restricted_nobody_gets_more_than_the_operator_allows() {
    let rules = rules(NetworkMode::Restricted, &["pypi.org:443", "*.pythonhosted.org", "8.8.8.0/24"]);
    for (allowed, asked) in [
        (&["pypi.org:443"][..], &[][..]),
        (&["PYPI.org.:443", "files.pythonhosted.org:80", "*.a.pythonhosted.org", "8.8.8.8:53"], &[]),
        (&["pypi.org"], &["pypi.org"]),
        (&["pypi.org:80"], &["pypi.org:80"]),
        (&["pythonhosted.org"], &["pythonhosted.org"]),
        (&["*"], &["*"]),
        (&["*:443"], &["*:443"]),
        (&["8.8.0.0/16"], &["8.8.0.0/16"]),
        (&["::/0"], &["::/0"]),
        (&["pypi.org:443", "Evil.org", "bücher.example:1"], &["evil.org", "xn--bcher-kva.example:1"]),
    ] {
        let refusal = rules.policy(&lists(allowed, &[])).err();
        let expected = (!asked.is_empty()).then(|| PolicyRefusal::Unsupported {
            asked: owned(asked),
            allow: owned(&["pypi.org:443", "*.pythonhosted.org", "8.8.8.0/24"]),
        });
        assert_eq!(refusal, expected, "{allowed:?}");
    }
    let refusal = rules.policy(&lists(&["evil.org"], &[])).unwrap_err();
    assert_eq!(refusal.kind(), RefusalKind::UnsupportedPolicy);
    assert_eq!(
        refusal.to_string(),
        "allowed_domains asks for evil.org; egress.mode is `restricted` (NETWORK_MODE) and egress.allow has \
         pypi.org:443, *.pythonhosted.org, 8.8.8.0/24; the server's operator can add to egress.allow, or set \
         the mode to `open`"
    );
    let many: Vec<String> = (0..30).map(|n| format!("host{n}.example")).collect();
    let request = NetworkRequest { allowed_domains: many, ..NetworkRequest::default() };
    let text = rules.policy(&request).unwrap_err().to_string();
    assert!(text.contains("host9.example and 20 more"), "{text}");
    let nothing = super::tests::rules(NetworkMode::Restricted, &[]);
    let text = nothing.policy(&lists(&["a.com"], &[])).unwrap_err().to_string();
    assert!(text.contains("egress.allow has nothing"), "{text}");
}

#[test]
fn a_malformed_entry_is_refused_with_its_list_and_reason() {
    let services = |names: &[&str]| NetworkRequest { services: owned(names), ..NetworkRequest::default() };
    for (request, list, part) in [
        (lists(&["https://a.com"], &[]), "allowed_domains: \"https://a.com\" has a scheme", ""),
        (lists(&["a.com", ""], &[]), "allowed_domains: \"\" is empty", ""),
        (lists(&["a.com"], &["a.*.com"]), "denied_domains: \"a.*.com\" has a *", "*.example.com"),
        (lists(&["2130706433"], &[]), "allowed_domains: \"2130706433\" ends in a number", "192.0.2.1"),
        (lists(&["a.com\0.b.com"], &[]), "allowed_domains: \"a.com\\0.b.com\" has a NUL", ""),
        (lists(&["10.0.0.5/8"], &[]), "allowed_domains: \"10.0.0.5/8\" has bits", "10.0.0.0/8"),
        (services(&["a.b"]), "services: \"a.b\" is not the name of a service", ""),
        (services(&["Model"]), "services: \"Model\" is not the name of a service", ""),
        (services(&["../x"]), "services: \"../x\" has the character '/'", ""),
        (services(&[""]), "services: \"\" is empty", ""),
    ] {
        let refusal = open().policy(&request).expect_err(list);
        let text = refusal.to_string();
        assert!(text.starts_with(list) && text.contains(part), "{text}");
        assert_eq!(refusal.kind(), RefusalKind::InvalidArgument);
    }
    let long = lists(&[&"x".repeat(1 << 20)], &[]);
    assert!(open().policy(&long).unwrap_err().to_string().len() < 200);
}

#[test]
fn the_lists_together_have_a_bounded_number_of_entries() {
    let most = NetworkRequest {
        allowed_domains: vec!["a.com".to_owned(); MAX_ENTRIES - 2],
        denied_domains: owned(&["b.com"]),
        services: owned(&["model"]),
        ..NetworkRequest::default()
    };
    assert!(open().policy(&most).is_ok());
    let mut more = most.clone();
    more.denied_domains.push("c.com".to_owned());
    let text = open().policy(&more).unwrap_err().to_string();
    assert_eq!(text, "services: \"model\" is one more than the 256 that all lists together may have");
    let refusal = open().policy(&lists(&["x"; 100_000], &[])).unwrap_err();
    assert!(refusal.to_string().starts_with("allowed_domains: \"x\" is one more"), "{refusal}");
}

#[test]
fn denied_wins_by_name_and_by_the_address_behind_it() {
    let mut rules = open();
    rules.deny = patterns(&["*.evil.org", "evil.org:80", "140.82.0.0/16", "[2606:4700::/32]:443"]);
    for (request, host, address, port, expected) in [
        (NetworkRequest::open(), "a.evil.org", "1.1.1.1", 443, "in egress.deny"),
        (NetworkRequest::open(), "A.EVIL.org.", "1.1.1.1", 443, "in egress.deny"),
        (NetworkRequest::open(), "evil.org", "1.1.1.1", 80, "in egress.deny"),
        (NetworkRequest::open(), "evil.org", "1.1.1.1", 443, "ok"),
        (lists(&["a.evil.org"], &[]), "a.evil.org", "1.1.1.1", 443, "in egress.deny"),
        (NetworkRequest::open(), "github.com", "140.82.121.3", 443, "in egress.deny"),
        (NetworkRequest::open(), "140.82.121.3", "140.82.121.3", 443, "in egress.deny"),
        (NetworkRequest::open(), "::ffff:140.82.121.3", "::ffff:140.82.121.3", 443, "in egress.deny"),
        (NetworkRequest::open(), "github.com", "64:ff9b::140.82.121.3", 443, "in egress.deny"),
        (NetworkRequest::open(), "cdn.com", "2606:4700::1", 443, "in egress.deny"),
        (NetworkRequest::open(), "cdn.com", "2606:4700::1", 80, "ok"),
        (lists(&["*"], &["b.com"]), "b.com", "1.1.1.1", 443, "in denied_domains"),
        (lists(&["b.com"], &["b.com"]), "b.com", "1.1.1.1", 443, "in denied_domains"),
        (lists(&["b.com"], &["b.com:80"]), "b.com", "1.1.1.1", 443, "ok"),
        (lists(&["b.com"], &["1.1.1.0/24"]), "b.com", "1.1.1.1", 443, "in denied_domains"),
        (lists(&["b.com"], &["*"]), "b.com", "1.1.1.1", 443, "in denied_domains"),
        (lists(&["1.1.1.1"], &["*:443"]), "1.1.1.1", "1.1.1.1", 443, "in denied_domains"),
        // A name is not known by its address.
        (lists(&["*"], &["b.com"]), "1.1.1.1", "1.1.1.1", 443, "ok"),
    ] {
        let policy = policy(&rules, &request);
        assert_eq!(outcome(&policy, host, address, port), expected, "{request:?} {host} {address}:{port}");
    }
}

#[test]
fn an_address_that_is_not_public_is_refused_however_it_is_reached() {
    for (host, address, expected) in [
        ("github.com", PUBLIC, "ok"),
        ("localhost", "127.0.0.1", "a loopback address (RFC 1122: 127.0.0.0/8)"),
        ("a.localhost", "::1", "the loopback address (RFC 4291: ::1/128)"),
        ("printer.local", "169.254.1.1", "a link-local address (RFC 3927: 169.254.0.0/16)"),
        ("metadata.google.internal", "169.254.169.254", "a link-local address (RFC 3927: 169.254.0.0/16)"),
        ("x.onion", "10.0.0.1", RFC_1918),
        ("rebound.evil.org", "10.0.0.1", RFC_1918),
        ("rebound.evil.org", "::ffff:10.0.0.1", RFC_1918),
        ("rebound.evil.org", "64:ff9b::10.0.0.1", RFC_1918),
        ("azure.evil.org", "168.63.129.16", "Azure's platform service (Microsoft: 168.63.129.16/32)"),
        ("me.evil.org", "198.41.0.4", "an address of this server itself"),
        ("me.evil.org", "::ffff:198.41.0.4", "an address of this server itself"),
        ("me.evil.org", "64:ff9b::198.41.0.4", "an address of this server itself"),
        ("198.41.0.4", "198.41.0.4", "an address of this server itself"),
        ("bridge.evil.org", "172.17.0.1", "a private address (RFC 1918: 172.16.0.0/12)"),
        ("10.0.0.1", "10.0.0.1", RFC_1918),
    ] {
        for request in [NetworkRequest::open(), lists(&["*"], &[]), lists(&[host], &[])] {
            let policy = policy(&open(), &request);
            assert_eq!(outcome(&policy, host, address, 443), expected, "{request:?} {host} {address}");
        }
    }
    let policy = policy(&open(), &lists(&["1.1.1.1"], &[]));
    assert_eq!(
        outcome(&policy, "1.1.1.1", "1.0.0.1", 443),
        NOT_ALLOWED,
        "not the address that was asked for"
    );
    assert_eq!(outcome(&policy, "1.1.1.1", "::ffff:1.1.1.1", 443), "ok");
}

#[test]
fn of_two_addresses_of_a_name_each_is_judged_alone() {
    let policy = policy(&open(), &lists(&["two.example.com"], &[]));
    assert_eq!(outcome(&policy, "two.example.com", PUBLIC, 443), "ok");
    assert_eq!(outcome(&policy, "two.example.com", "10.0.0.1", 443), RFC_1918);
}

#[test]
fn private_lifts_the_rule_about_addresses_for_what_the_policy_names() {
    let mut open = open();
    open.private = patterns(&["10.0.0.5:5432", "10.1.0.0/16", "db.corp", "198.41.0.4:22"]);
    let mut restricted = rules(NetworkMode::Restricted, &["10.0.0.5:5432", "*.corp", "github.com", "*:80"]);
    restricted.private.clone_from(&open.private);
    for (rules, request, host, address, port, expected) in [
        (&open, lists(&["10.0.0.5"], &[]), "10.0.0.5", "10.0.0.5", 5432, "ok"),
        (&open, lists(&["10.0.0.5"], &[]), "10.0.0.5", "10.0.0.5", 22, RFC_1918),
        (&open, lists(&["10.0.0.0/8"], &[]), "10.1.2.3", "10.1.2.3", 1, "ok"),
        (&open, lists(&["10.0.0.0/8"], &[]), "10.2.2.3", "10.2.2.3", 1, RFC_1918),
        (&open, lists(&["pg.example"], &[]), "pg.example", "10.0.0.5", 5432, "ok"),
        (&open, lists(&["pg.example"], &[]), "pg.example", "10.0.0.6", 5432, RFC_1918),
        (&open, lists(&["*.example"], &[]), "pg.example", "::ffff:10.0.0.5", 5432, "ok"),
        // A name in `private` counts whatever it resolves to.
        (&open, lists(&["db.corp"], &[]), "db.corp", "10.9.9.9", 1, "ok"),
        (&open, lists(&["10.9.9.9"], &[]), "10.9.9.9", "10.9.9.9", 1, RFC_1918),
        (&open, lists(&["198.41.0.4"], &[]), "198.41.0.4", "198.41.0.4", 22, "ok"),
        (
            &open,
            lists(&["198.41.0.4"], &[]),
            "198.41.0.4",
            "198.41.0.4",
            80,
            "an address of this server itself",
        ),
        // It allows nothing by itself.
        (&open, lists(&["github.com"], &[]), "10.0.0.5", "10.0.0.5", 5432, NOT_ALLOWED),
        (&open, lists(&["10.0.0.5"], &["10.0.0.0/8"]), "10.0.0.5", "10.0.0.5", 5432, "in denied_domains"),
        // Neither `network: true` nor `*` names it.
        (&open, NetworkRequest::open(), "10.0.0.5", "10.0.0.5", 5432, RFC_1918),
        (&open, NetworkRequest::open(), "db.corp", "10.0.0.5", 5432, RFC_1918),
        (&open, lists(&["*"], &[]), "10.0.0.5", "10.0.0.5", 5432, RFC_1918),
        (&open, lists(&["*:5432"], &[]), "10.0.0.5", "10.0.0.5", 5432, RFC_1918),
        (&open, lists(&["*", "10.0.0.5"], &[]), "10.0.0.5", "10.0.0.5", 5432, "ok"),
        // `allow` of `restricted` does.
        (&restricted, NetworkRequest::open(), "10.0.0.5", "10.0.0.5", 5432, "ok"),
        (&restricted, NetworkRequest::open(), "db.corp", "10.9.9.9", 1, "ok"),
        (&restricted, NetworkRequest::open(), "web.corp", "10.1.0.1", 443, "ok"),
        (&restricted, NetworkRequest::open(), "web.corp", "10.2.0.1", 443, RFC_1918),
        (&restricted, NetworkRequest::open(), "10.1.0.1", "10.1.0.1", 80, RFC_1918),
        (&restricted, lists(&["db.corp"], &[]), "db.corp", "10.0.0.5", 5432, "ok"),
    ] {
        let policy = policy(rules, &request);
        assert_eq!(outcome(&policy, host, address, port), expected, "{request:?} {host} {address}:{port}");
    }
}

#[test]
fn on_443_tls_must_name_the_host_unless_it_is_allowed_as_an_address_or_by_a_star() {
    for (allowed, host, port, tls_name) in [
        (&["example.com"][..], "Example.com", 443, Some("example.com")),
        (&["example.com:443"], "example.com", 443, Some("example.com")),
        (&["*.example.com"], "www.example.com", 443, Some("www.example.com")),
        (&["example.com"], "example.com", 80, None),
        (&["example.com"], "example.com", 8443, None),
        (&["*"], "example.com", 443, None),
        (&["*:443"], "example.com", 443, None),
        (&["example.com", "*"], "example.com", 443, None),
        (&["example.com", "*:80"], "example.com", 443, Some("example.com")),
        (&["example.com", "1.1.1.1"], "1.1.1.1", 443, None),
    ] {
        let policy = policy(&open(), &lists(allowed, &[]));
        let judged = policy.judge(&host.parse().unwrap(), port).unwrap();
        let expected = Judged { tls_name: tls_name.map(|name| name.parse().unwrap()) };
        assert_eq!(judged, expected, "{allowed:?} {host}:{port}");
    }
    let all = policy(&open(), &NetworkRequest::open());
    let host: Host = "example.com".parse().unwrap();
    assert_eq!(all.judge(&host, 443), Ok(Judged { tls_name: None }));
    assert_eq!(all.judge(&host, 0), Err(BlockReason::NotAllowed), "port 0");
    let some = policy(&rules(NetworkMode::Restricted, &["example.com"]), &NetworkRequest::open());
    assert!(some.judge(&host, 443).is_ok_and(|judged| judged.tls_name.is_some()));
}

#[test]
fn a_name_may_be_looked_up_if_some_port_of_it_may_be_reached() {
    for (allowed, denied, name, expected) in [
        (&["example.com:8080"][..], &[][..], "example.com", true),
        (&["example.com"], &[], "www.example.com", false),
        (&["*.example.com"], &[], "secret-data.www.example.com", true),
        (&["*"], &[], "anything", true),
        (&["1.1.1.1", "0.0.0.0/0"], &[], "example.com", false),
        (&["example.com"], &["example.com"], "example.com", false),
        (&["example.com"], &["example.com:80"], "example.com", true),
        (&["example.com:80"], &["example.com:80"], "example.com", false),
        (&["example.com:80"], &["example.com:443"], "example.com", true),
        (&["example.com:80", "*:81"], &["*:80"], "example.com", true),
        (&["example.com"], &["*"], "example.com", false),
        (&["example.com"], &["*:443", "10.0.0.0/8"], "example.com", true),
    ] {
        let name: HostName = name.parse().unwrap();
        let mut rules = open();
        let by_caller = policy(&rules, &lists(allowed, denied)).may_look_up(&name);
        rules.deny = patterns(denied);
        let by_operator = policy(&rules, &lists(allowed, &[])).may_look_up(&name);
        assert_eq!((by_caller, by_operator), (expected, expected), "{allowed:?} {denied:?} {name}");
    }
}

#[test]
fn a_mode_is_one_of_three_words() {
    for (text, mode) in
        [("none", NetworkMode::None), ("restricted", NetworkMode::Restricted), ("open", NetworkMode::Open)]
    {
        assert_eq!(text.parse(), Ok(mode));
        assert_eq!((mode.to_string(), serde_json::to_value(mode).unwrap()), (text.to_owned(), json!(text)));
        assert_eq!(serde_json::from_value::<NetworkMode>(json!(text)).unwrap(), mode);
    }
    let error = "Open".parse::<NetworkMode>().unwrap_err().to_string();
    assert_eq!(error, "\"Open\" is no network mode; expected none, restricted or open");
}

#[test]
fn only_what_a_yes_may_allow_is_put_to_the_caller() {
    let asking = |mode, allow: &[&str], listed: &[&str]| {
        let deny = vec!["*.evil.example".parse().unwrap(), "192.175.48.9".parse().unwrap()];
        let private = vec!["db.lan".parse().unwrap(), "10.0.0.5".parse().unwrap()];
        let rules = EgressRules { ask: true, deny, private, ..rules(mode, allow) };
        rules.policy(&lists(listed, &["denied.example"])).unwrap()
    };
    let open = asking(NetworkMode::Open, &[], &["a.example"]);
    let restricted = asking(NetworkMode::Restricted, &["*.example.com", "a.example"], &["a.example"]);
    let may = |policy: &NetworkPolicy, host: &str| policy.may_ask(&host_of(host), 443);
    for (host, in_open, in_restricted) in [
        ("b.example", true, false),
        ("b.example.com", true, true),
        ("x.evil.example", false, false),
        ("denied.example", false, false),
        ("openai.paddock", false, false),
        ("192.175.48.1", true, false),
        ("192.175.48.9", false, false),
        ("10.0.0.5", false, false),
        ("198.41.0.4", false, false), // the host's own
    ] {
        assert_eq!((may(&open, host), may(&restricted, host)), (in_open, in_restricted), "{host}");
    }
    assert!(!open.may_ask(&host_of("b.example"), 0));
    let silent = rules(NetworkMode::Open, &[]).policy(&lists(&["a.example"], &[])).unwrap();
    assert!(!may(&silent, "b.example"), "egress.ask is off");
}

#[test]
fn a_yes_allows_one_destination_and_lifts_no_other_rule() {
    let private = vec!["db.lan".parse().unwrap(), "10.0.0.5".parse().unwrap()];
    let rules = EgressRules { ask: true, private, ..rules(NetworkMode::Open, &[]) };
    let policy = rules.policy(&lists(&["a.example"], &[])).unwrap();
    let (host, public) = (host_of("b.example"), "192.175.48.1".parse().unwrap());
    let approved = policy.with_approved(&host, 443);
    let judged = approved.judge(&host, 443).unwrap();
    assert_eq!(judged.tls_name, Some("b.example".parse().unwrap()), "as for a name that is listed");
    assert!(approved.judge_address(&host, public, 443).is_ok());
    assert!(policy.judge(&host, 443).is_err() && approved.judge(&host, 80).is_err());
    assert!(approved.judge(&host_of("c.b.example"), 443).is_err());
    assert!(approved.judge_address(&host, "10.0.0.5".parse().unwrap(), 443).is_err());
    // What `private` has is for runs that name it.
    let lan = policy.with_approved(&host_of("db.lan"), 5432);
    assert!(lan.judge_address(&host_of("db.lan"), "10.0.0.9".parse().unwrap(), 5432).is_err());
}

#[test]
fn every_reason_is_a_short_sentence_and_has_a_label() {
    for (reason, text, label) in [
        (BlockReason::NotAllowed, NOT_ALLOWED, "not_allowed"),
        (BlockReason::Restricted, "not in egress.allow", "not_allowed"),
        (
            BlockReason::NotApproved,
            "not in allowed_domains, and the caller did not approve it",
            "not_approved",
        ),
        (BlockReason::Mode, "egress.mode is none", "mode"),
        (BlockReason::Denied, "in egress.deny", "denied"),
        (BlockReason::DeniedByCaller, "in denied_domains", "denied"),
        (BlockReason::NotGlobal(RFC_1918), RFC_1918, "not_global"),
        (BlockReason::OwnAddress, "an address of this server itself", "own_address"),
        (BlockReason::TlsName, "its TLS hello names another host", "tls_name"),
        (BlockReason::NoTlsName, "its TLS hello names no host", "no_tls_name"),
        (BlockReason::NotTls, "not TLS, on port 443", "not_tls"),
        (BlockReason::Limit("too many connections"), "too many connections", "limit"),
    ] {
        assert_eq!((reason.to_string().as_str(), reason.label()), (text, label));
    }
    assert_eq!(BlockReason::EncryptedHello.label(), "encrypted_hello");
}

#[test]
fn an_address_that_turns_out_to_be_this_hosts_own_needs_an_entry_in_private() {
    let address: IpAddr = "45.33.32.156".parse().unwrap();
    let host = Host::Name("api.example".parse().unwrap());
    let judged = |private: &[&str], allowed: &[&str]| {
        let private = private.iter().map(|text| text.parse().unwrap()).collect();
        let rules = EgressRules {
            mode: NetworkMode::Open,
            allow: Vec::new(),
            deny: Vec::new(),
            private,
            own_addresses: Vec::new(),
            ask: false,
        };
        let request = NetworkRequest { allowed_domains: owned(allowed), ..NetworkRequest::default() };
        let policy = rules.policy(&request).unwrap();
        assert_eq!(policy.judge_address(&host, address, 80), Ok(()), "nobody knew that it is its own");
        policy.judge_own_address(&host, address, 80)
    };
    assert_eq!(judged(&[], &["api.example"]), Err(BlockReason::OwnAddress));
    assert_eq!(judged(&["45.33.32.156:80"], &["api.example"]), Ok(()));
    assert_eq!(judged(&["45.33.32.156:81"], &["api.example"]), Err(BlockReason::OwnAddress));
    assert_eq!(judged(&["api.example"], &["api.example"]), Ok(()));
    assert_eq!(judged(&["45.33.32.156:80"], &["*"]), Err(BlockReason::OwnAddress), "`*` names nothing");
}
