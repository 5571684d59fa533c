//! Whatever the rules and the request: what a policy allows is what a table of meanings says.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// Every pattern of a small world without its port, and the hosts that it means.
const MEANS: [(&str, &[&str]); 10] = [
    ("*", &["a", "x.a", "y.a", "b", "1.1.1.1", "1.1.1.2", "10.0.0.5", "10.0.0.6", "9.9.9.9"]),
    ("a", &["a"]),
    ("*.a", &["x.a", "y.a"]),
    ("x.a", &["x.a"]),
    ("b", &["b"]),
    ("1.1.1.1", &["1.1.1.1"]),
    ("1.1.1.0/24", &["1.1.1.1", "1.1.1.2"]),
    ("10.0.0.5", &["10.0.0.5"]),
    ("10.0.0.0/8", &["10.0.0.5", "10.0.0.6"]),
    ("9.9.9.9", &["9.9.9.9"]),
];
const NAMES: [&str; 4] = ["a", "x.a", "y.a", "b"];
const ADDRESSES: [&str; 5] = ["1.1.1.1", "1.1.1.2", "10.0.0.5", "10.0.0.6", "9.9.9.9"];
const PORTS: [u16; 3] = [80, 443, 5432];

/// A pattern, and its port.
type Entry = (&'static str, Option<u16>);

fn entries(most: usize) -> impl Strategy<Value = Vec<Entry>> {
    let target = select(MEANS.map(|(pattern, _)| pattern).to_vec());
    vec((target, prop_oneof![2 => Just(None), 1 => select(PORTS.to_vec()).prop_map(Some)]), 0..=most)
}

fn texts(entries: &[Entry]) -> Vec<String> {
    let text = |(target, port): &Entry| match port {
        Some(port) => format!("{target}:{port}"),
        None => (*target).to_owned(),
    };
    entries.iter().map(text).collect()
}

fn means(entry: &Entry, host: &str, port: u16) -> bool {
    let (_, hosts) = MEANS.iter().find(|(pattern, _)| *pattern == entry.0).unwrap();
    hosts.contains(&host) && entry.1.is_none_or(|own| own == port)
}

/// The rules and the request of a case, as entries.
#[derive(Debug, Clone)]
struct Case {
    mode: NetworkMode,
    allow: Vec<Entry>,
    deny: Vec<Entry>,
    private: Vec<Entry>,
    allowed: Vec<Entry>,
    denied: Vec<Entry>,
    everything: bool,
}

impl Case {
    fn rules(&self) -> EgressRules {
        let parsed = |entries: &[Entry]| texts(entries).iter().map(|text| text.parse().unwrap()).collect();
        EgressRules {
            mode: self.mode,
            allow: parsed(&self.allow),
            deny: parsed(&self.deny),
            private: parsed(&self.private),
            own_addresses: vec!["9.9.9.9".parse().unwrap()],
            ask: false,
        }
    }

    fn request(&self) -> NetworkRequest {
        NetworkRequest {
            allowed_domains: texts(&self.allowed),
            denied_domains: texts(&self.denied),
            services: Vec::new(),
            everything: self.everything,
            max_cost_usd: None,
            max_model_requests: None,
            task: None,
        }
    }

    fn is_denied(&self, host: &str, port: u16) -> bool {
        self.deny.iter().chain(&self.denied).any(|entry| means(entry, host, port))
    }

    /// The entries that make a destination one of the run's.
    fn granting(&self, host: &str, port: u16) -> Vec<Entry> {
        let lists = match (self.mode, self.everything) {
            (NetworkMode::None, _) => Vec::new(),
            (NetworkMode::Restricted, true) => self.allow.clone(),
            (NetworkMode::Open, true) => [&self.allowed[..], &[("*", None)]].concat(),
            (NetworkMode::Restricted | NetworkMode::Open, false) => self.allowed.clone(),
        };
        lists.into_iter().filter(|entry| means(entry, host, port)).collect()
    }

    fn may(&self, host: &str, port: u16) -> bool {
        !self.granting(host, port).is_empty() && !self.is_denied(host, port)
    }

    fn may_dial(&self, host: &str, address: &str, port: u16) -> bool {
        let is_public = address.starts_with("1.");
        let is_named = self.granting(host, port).iter().any(|entry| entry.0 != "*");
        let is_lifted = self.private.iter().any(|own| means(own, host, port) || means(own, address, port));
        self.may(host, port) && !self.is_denied(address, port) && (is_public || (is_named && is_lifted))
    }
}

fn case() -> impl Strategy<Value = Case> {
    let mode = prop_oneof![
        1 => Just(NetworkMode::None),
        4 => Just(NetworkMode::Restricted),
        4 => Just(NetworkMode::Open),
    ];
    (mode, entries(4), entries(2), entries(3), entries(3), entries(2), any::<bool>()).prop_map(
        |(mode, allow, deny, private, allowed, denied, everything)| Case {
            mode,
            allow,
            deny,
            private,
            allowed,
            denied,
            everything,
        },
    )
}

/// Whether one pattern means only what another one means.
fn is_within(narrow: &Entry, wide: &Entry) -> bool {
    let all = NAMES.iter().chain(&ADDRESSES).flat_map(|host| PORTS.map(|port| (*host, port)));
    // A name and an address that no entry but `*` means, and such a port.
    let others = [("*", 1), ("*", 80), ("*", 443), ("*", 5432)];
    let means = |entry: &Entry, host: &str, port| match host {
        "*" => entry.0 == "*" && entry.1.is_none_or(|own| own == port),
        host => means(entry, host, port),
    };
    let is_any_port = narrow.1.is_none() && wide.1.is_some();
    !is_any_port
        && all.chain(others).all(|(host, port)| !means(narrow, host, port) || means(wide, host, port))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_policy_allows_what_the_rules_and_the_request_mean(case in case()) {
        let policy = match case.rules().policy(&case.request()) {
            Ok(policy) => policy,
            Err(PolicyRefusal::Unavailable) => {
                prop_assert!(case.mode == NetworkMode::None && (case.everything || !case.allowed.is_empty()));
                return Ok(());
            }
            Err(PolicyRefusal::Unsupported { asked, .. }) => {
                let is_more = |entry: &&Entry| !case.allow.iter().any(|own| is_within(entry, own));
                let more: Vec<Entry> = case.allowed.iter().filter(is_more).copied().collect();
                prop_assert!(case.mode == NetworkMode::Restricted && asked == texts(&more), "{:?}", asked);
                return Ok(());
            }
            Err(refusal @ PolicyRefusal::Malformed { .. }) => panic!("{refusal}"),
        };
        for port in PORTS {
            for host in NAMES.iter().chain(&ADDRESSES) {
                let asked: Host = host.parse().unwrap();
                let judged = policy.judge(&asked, port);
                prop_assert_eq!(judged.is_ok(), case.may(host, port), "{}:{}", host, port);
                let is_name = NAMES.contains(host);
                let granting = case.granting(host, port);
                let needs_name = is_name && port == 443 && granting.iter().all(|entry| entry.0 != "*");
                if let Ok(judged) = judged {
                    prop_assert_eq!(judged.tls_name.is_some(), needs_name, "{}:{}", host, port);
                    let in_allow = case.allow.iter().any(|own| means(own, host, port));
                    prop_assert!(case.mode != NetworkMode::Restricted || in_allow, "beyond egress.allow");
                }
                for address in ADDRESSES.iter().filter(|address| is_name || *address == host) {
                    let dialled = policy.judge_address(&asked, address.parse().unwrap(), port);
                    let expected = case.may_dial(host, address, port);
                    prop_assert_eq!(dialled.is_ok(), expected, "{}:{} at {}", host, port, address);
                }
            }
        }
        for name in NAMES {
            // One port more than any entry has stands for all others.
            let expected = PORTS.iter().chain(&[1]).any(|port| case.may(name, *port));
            prop_assert_eq!(policy.may_look_up(&name.parse().unwrap()), expected, "{}", name);
        }
    }
}
