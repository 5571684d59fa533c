use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn pattern(text: &str) -> Pattern {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn host(text: &str) -> Host {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_pattern_prints_as_it_is_understood_and_parses_to_the_same() {
    for (text, printed) in [
        ("example.com", "example.com"),
        ("Example.COM.", "example.com"),
        ("Example.COM.:0443", "example.com:443"),
        ("bücher.example:1", "xn--bcher-kva.example:1"),
        ("*.example.com", "*.example.com"),
        ("*.Example.com.:65535", "*.example.com:65535"),
        ("*.com", "*.com"),
        ("*", "*"),
        ("*:443", "*:443"),
        ("localhost:8080", "localhost:8080"),
        ("10.0.0.5", "10.0.0.5"),
        ("10.0.0.5/32", "10.0.0.5"),
        ("10.0.0.5:5432", "10.0.0.5:5432"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.0/8:443", "10.0.0.0/8:443"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:443", "[2001:db8::1]:443"),
        ("[2001:db8::/32]:443", "[2001:db8::/32]:443"),
        ("[2001:db8::/32]", "2001:db8::/32"),
        ("::/0", "::/0"),
        // What is dialled is IPv4.
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("[::ffff:10.0.0.1]:80", "10.0.0.1:80"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        // An IPv6 address without brackets has no port.
        ("2001:db8::1:443", "2001:db8::1:443"),
    ] {
        let parsed = pattern(text);
        assert_eq!(parsed.to_string(), printed, "{text}");
        assert_eq!(pattern(printed), parsed, "{text}");
        let json = serde_json::to_string(text).unwrap();
        assert_eq!(serde_json::from_str::<Pattern>(&json).unwrap(), parsed, "{text}");
        assert_eq!(serde_json::to_value(&parsed).unwrap(), printed, "{text}");
    }
}

#[test]
fn what_is_no_pattern_is_refused_with_its_reason() {
    for (text, part) in [
        ("", "is empty"),
        ("https://example.com", "has a scheme"),
        ("https://example.com/path:80", "has a scheme"),
        ("example.com/path", "has a path"),
        ("example.com:443/path", "has a path"),
        ("example.com/24", "has a path"),
        ("*/8", "has a path"),
        ("a.*.com", "has a *"),
        ("*.*.com", "has a *"),
        ("**", "has a *"),
        ("*example.com", "has a *"),
        ("api*.example.com", "has a *"),
        ("example.*", "has a *"),
        ("*.", "is empty"),
        ("＊.com", "UTS 46"),
        ("*.0.0.1", "ends in a number"),
        ("*.10.0.0.1", "is an IP address"),
        (".example.com", "*.example.com"),
        ("example.com:0", "port"),
        ("example.com:70000", "port"),
        ("example.com:65536", "port"),
        ("example.com:", "port"),
        ("example.com:+80", "port"),
        ("example.com:-1", "port"),
        ("example.com:https", "port"),
        ("example.com:80 ", "port"),
        ("example.com:４４３", "port"),
        ("10.0.0.1:0", "port"),
        ("[::1]:0", "port"),
        ("[::1]:", "port"),
        ("*:", "port"),
        (":443", "is empty"),
        ("a:1:2", "an IPv6 address with a port is written"),
        ("2001:db8::/32:443", "an IPv6 address with a port is written"),
        ("2001:db8::g", "an IPv6 address with a port is written"),
        ("fe80::1%eth0", "an IPv6 address with a port is written"),
        ("[::1", "an IPv6 address with a port is written"),
        ("[::1]443", "an IPv6 address with a port is written"),
        ("[10.0.0.1]:80", "an IPv6 address with a port is written"),
        ("[example.com]:80", "an IPv6 address with a port is written"),
        ("[]", "an IPv6 address with a port is written"),
        ("10.0.0.0/33", "from 0 to 32"),
        ("10.0.0.0/", "from 0 to 32"),
        ("10.0.0.0/+8", "from 0 to 32"),
        ("10.0.0.0/8/8", "from 0 to 32"),
        ("10.0.0.0/255.0.0.0", "from 0 to 32"),
        ("::/129", "from 0 to 128"),
        ("[::/129]:1", "from 0 to 128"),
        ("10.0.0.5/8", "write 10.0.0.0/8"),
        ("2001:db8::1/32", "write 2001:db8::/32"),
        ("010.0.0.1", "ends in a number"),
        ("010.0.0.0/8", "has a path"),
        ("0x7f.1", "ends in a number"),
        ("2130706433:80", "ends in a number"),
        ("a b.com", "has a space"),
        (" example.com", "has a space"),
        ("example.com ", "has a space"),
        ("allowed.com\0.evil.com", "NUL"),
        ("user@example.com", "'@'"),
    ] {
        let error = text.parse::<Pattern>().expect_err(text).to_string();
        assert!(error.starts_with("the pattern \"") && error.contains(part), "{text:?}: {error}");
    }
    for text in ["a".repeat(300), format!("*.{}com", "a.".repeat(150)), "x".repeat(1 << 20)] {
        let error = text.parse::<Pattern>().expect_err("long").to_string();
        assert!(error.contains("has more than ") && error.len() < 200, "{error}");
    }
}

#[test]
fn a_pattern_matches_the_hosts_and_ports_that_it_says() {
    for (text, destination, port, expected) in [
        ("example.com", "example.com", 443, true),
        ("example.com", "EXAMPLE.com.", 1, true),
        ("example.com", "www.example.com", 443, false),
        ("example.com:443", "example.com", 443, true),
        ("example.com:443", "example.com", 80, false),
        ("*.example.com", "www.example.com", 443, true),
        ("*.example.com", "a.b.example.com", 443, true),
        ("*.example.com", "example.com", 443, false),
        ("*.example.com", "evilexample.com", 443, false),
        ("*.example.com", "www.example.com.evil.org", 443, false),
        ("*.example.com", "10.0.0.1", 443, false),
        ("google.com", "gооgle.com", 443, false),
        ("*", "anything", 1, true),
        ("*", "::1", 1, true),
        ("*:443", "anything", 443, true),
        ("*:443", "10.0.0.1", 80, false),
        ("10.0.0.0/8", "10.255.0.1", 1, true),
        ("10.0.0.0/8", "11.0.0.1", 1, false),
        ("10.0.0.0/8", "ten.example", 1, false),
        ("10.0.0.5:5432", "10.0.0.5", 5432, true),
        ("10.0.0.5:5432", "10.0.0.5", 5433, false),
        ("10.0.0.5", "10.0.0.6", 1, false),
        ("10.0.0.0/8", "::ffff:10.0.0.1", 1, true),
        ("::ffff:10.0.0.1", "10.0.0.1", 1, true),
        ("10.0.0.0/8", "64:ff9b::a00:1", 1, true),
        ("64:ff9b::/96", "64:ff9b::a00:1", 1, true),
        ("64:ff9b::/96", "10.0.0.1", 1, false),
        ("0.0.0.0/0", "2001:db8::1", 1, false),
        ("::/0", "10.0.0.1", 1, false),
        ("2001:db8::/32", "2001:db8::1", 1, true),
        ("[2001:db8::/32]:1", "2001:db8::1", 2, false),
    ] {
        assert_eq!(pattern(text).matches(&host(destination), port), expected, "{text} {destination}:{port}");
    }
}

#[test]
fn a_pattern_covers_another_with_at_most_its_hosts_and_ports() {
    for (wide, narrow, expected) in [
        ("*", "*", true),
        ("*", "*.example.com:1", true),
        ("*", "10.0.0.0/8", true),
        ("*:443", "*", false),
        ("*", "*:443", true),
        ("*:443", "example.com:443", true),
        ("*:443", "example.com", false),
        ("example.com", "*", false),
        ("0.0.0.0/0", "*", false),
        ("example.com", "example.com:443", true),
        ("example.com:443", "example.com", false),
        ("example.com:443", "example.com:80", false),
        ("*.example.com", "example.com", false),
        ("*.example.com", "a.example.com", true),
        ("*.example.com", "*.example.com", true),
        ("*.example.com", "*.a.example.com", true),
        ("*.a.example.com", "*.example.com", false),
        ("example.com", "*.example.com", false),
        ("*.com", "*.example.com:1", true),
        ("10.0.0.0/8", "10.1.0.0/16", true),
        ("10.0.0.0/8", "10.0.0.0/7", false),
        ("10.0.0.0/8", "10.0.0.1", true),
        ("10.0.0.0/8", "::ffff:10.0.0.0/112", true),
        ("::/0", "10.0.0.1", false),
        ("*.example.com", "10.0.0.1", false),
        ("10.0.0.1", "example.com", false),
    ] {
        assert_eq!(pattern(wide).covers(&pattern(narrow)), expected, "{wide} covers {narrow}");
    }
    assert!(pattern("*").is_everything() && !pattern("*:443").is_everything());
    assert!(pattern("*:443").is_any_host() && !pattern("*.a").is_any_host());
    assert!(!pattern("0.0.0.0/0").is_everything());
}

/// Patterns of a small world, in which there are few names, addresses and ports.
fn any_pattern() -> impl Strategy<Value = String> {
    let name = "[ab](\\.[ab]){0,2}";
    let v4 = (28_u32..=32, 0_u32..16).prop_map(|(bits, low)| {
        let low = low & !((1 << (32 - bits)) - 1);
        format!("{}/{bits}", Ipv4Addr::from(0x0a00_0000 + low))
    });
    let v6 = (124_u32..=128, 0_u128..16).prop_map(|(bits, low)| {
        let low = low & !((1 << (128 - bits)) - 1);
        format!("[{}/{bits}]", Ipv6Addr::from((0x2001_0db8_u128 << 96) + low))
    });
    let target = prop_oneof![
        1 => Just("*".to_owned()),
        3 => name,
        3 => name.prop_map(|name| format!("*.{name}")),
        3 => v4,
        2 => v6,
    ];
    (target, prop_oneof![3 => Just(""), 1 => Just(":1"), 1 => Just(":2")])
        .prop_map(|(target, port)| format!("{target}{port}"))
}

/// Every destination of the small world: enough to tell any two of its patterns apart.
fn world() -> Vec<(Host, u16)> {
    let mut names = vec!["a".to_owned(), "b".to_owned()];
    for depth in 0..3 {
        let longer: Vec<_> = names.iter().filter(|name| name.split('.').count() == depth + 1).collect();
        let longer: Vec<_> =
            longer.iter().flat_map(|name| [format!("a.{name}"), format!("b.{name}")]).collect();
        names.extend(longer);
    }
    names.push("elsewhere".to_owned());
    let v4 = (0..17).map(|low| IpAddr::from(Ipv4Addr::from(0x0a00_0000 + low)));
    let v6 = (0..17).map(|low| IpAddr::from(Ipv6Addr::from((0x2001_0db8_u128 << 96) + low)));
    let mapped = (0..17).map(|low| IpAddr::from(Ipv6Addr::from(0xffff_0a00_0000 + low)));
    let nat64 = (0..17).map(|low| IpAddr::from(Ipv6Addr::from((0x0064_ff9b_u128 << 96) + 0x0a00_0000 + low)));
    let addresses = v4.chain(v6).chain(mapped).chain(nat64).map(Host::Address);
    let names = names.iter().map(|name| Host::Name(name.parse().unwrap()));
    let hosts: Vec<Host> = names.chain(addresses).collect();
    [1, 2, 3].into_iter().flat_map(|port| hosts.iter().map(move |host| (host.clone(), port))).collect()
}

/// What a pattern of the small world means, read from its text.
fn means(pattern: &str, host: &Host, port: u16) -> bool {
    let (target, own) = match pattern.rsplit_once(':') {
        Some((target, own)) if !own.contains(']') => (target, own.parse::<u16>().ok()),
        _ => (pattern, None),
    };
    let is_host = match host {
        _ if target == "*" => true,
        Host::Name(name) => match target.strip_prefix('*') {
            Some(ending) => name.as_str().ends_with(ending),
            None => name.as_str() == target,
        },
        Host::Address(ip) => {
            let target = target.trim_matches(['[', ']']);
            let bits = |ip: &str| match ip.parse::<IpAddr>() {
                Ok(IpAddr::V4(ip)) => format!("{:032b}", u32::from(ip)),
                Ok(IpAddr::V6(ip)) => format!("{:0128b}", u128::from(ip)),
                Err(_) => String::new(),
            };
            let Some((net, length)) = target.split_once('/') else { return false };
            let (net, length) = (bits(net), length.parse::<usize>().unwrap());
            let own = bits(&ip.to_string());
            // In this world each address of 128 bits outside of 2001:db8::/32 has an IPv4 address at its end.
            let is_inner = net.len() == 32 && own.len() == 128 && !own.starts_with(&bits("2001:db8::")[..32]);
            let own = if is_inner { &own[96..] } else { &own[..] };
            !net.is_empty() && own.len() == net.len() && own[..length] == net[..length]
        }
    };
    is_host && own.is_none_or(|own| own == port)
}

proptest! {
    #[test]
    fn matching_is_what_the_text_means(text in any_pattern()) {
        let parsed = pattern(&text);
        for (host, port) in world() {
            prop_assert_eq!(parsed.matches(&host, port), means(&text, &host, port), "{} {}:{}", text, host, port);
            if let Host::Name(name) = &host {
                let by_any_port = (1..=3).any(|port| parsed.matches(&host, port));
                prop_assert_eq!(parsed.matches_name(name), by_any_port, "{} {}", text, name);
            }
        }
    }

    #[test]
    fn covering_is_matching_everything_that_the_other_matches(wide in any_pattern(), narrow in any_pattern()) {
        let (a, b) = (pattern(&wide), pattern(&narrow));
        let escapes = world().into_iter().find(|(host, port)| b.matches(host, *port) && !a.matches(host, *port));
        prop_assert_eq!(a.covers(&b), escapes.is_none(), "{} covers {}: {:?}", wide, narrow, escapes);
    }

    #[test]
    fn what_is_printed_parses_to_the_same(text in "(\\*\\.|\\[)?\\PC{0,12}(\\.[a-z0-9]{1,5}){0,3}\\]?(/[0-9]{1,3})?(:[0-9]{1,6})?") {
        if let Ok(parsed) = text.parse::<Pattern>() {
            prop_assert_eq!(parsed.to_string().parse::<Pattern>(), Ok(parsed));
        }
    }
}
