use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> HostName {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn problem(text: &str) -> HostNameProblem {
    text.parse::<HostName>().expect_err(text).problem
}

#[test]
fn every_spelling_of_a_name_becomes_the_same_name() {
    for (text, name) in [
        ("example.com", "example.com"),
        ("EXAMPLE.Com", "example.com"),
        ("example.com.", "example.com"),
        ("localhost", "localhost"),
        ("a_b._tcp.example.com", "a_b._tcp.example.com"),
        ("r3---sn-4g5e.googlevideo.com", "r3---sn-4g5e.googlevideo.com"),
        ("1password.com", "1password.com"),
        ("127.0.0.1.nip.io", "127.0.0.1.nip.io"),
        ("0xcafe.example", "0xcafe.example"),
        ("example.0xyz", "example.0xyz"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        // In two code points.
        ("bu\u{308}cher.example", "xn--bcher-kva.example"),
        ("faß.example", "xn--fa-hia.example"),
        // Full-width letters, and the full stop of ideographic scripts.
        ("ｅｘａｍｐｌｅ。com。", "example.com"),
        // An invisible hyphen, which UTS 46 drops.
        ("exam\u{ad}ple.com", "example.com"),
        ("☃.example", "xn--n3h.example"),
    ] {
        assert_eq!(parsed(text).as_str(), name, "{text}");
    }
}

#[test]
fn a_program_asks_in_ascii() {
    for (text, name) in [
        ("EXAMPLE.com", "example.com"),
        ("example.com.", "example.com"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("a_b.example.com", "a_b.example.com"),
    ] {
        assert_eq!(HostName::of_program(text).map(|name| name.0), Ok(name.to_owned()), "{text}");
    }
    for (text, c) in [
        ("ｅxample.com", 'ｅ'),
        ("example。com", '。'),
        ("example.com。", '。'),
        ("exam\u{ad}ple.com", '\u{ad}'),
        ("exam\u{200b}ple.com", '\u{200b}'),
        ("ex\u{430}mple.com", '\u{430}'),
        ("\u{212a}.example.com", '\u{212a}'),
        ("bücher.example", 'ü'),
    ] {
        let problem = HostName::of_program(text).expect_err(text).problem;
        assert_eq!(problem, HostNameProblem::Script(c), "{text}");
    }
    for text in ["example.com..", "..", ".", "", "a b", "2130706433", "127.0.0.1"] {
        assert!(HostName::of_program(text).is_err(), "{text}");
    }
}

#[test]
fn names_that_only_look_alike_stay_different_and_show_it() {
    for (text, name) in [
        // Cyrillic о, р and а; a Latin letter with a dot below.
        ("g\u{43e}\u{43e}gle.com", "xn--ggle-55da.com"),
        ("\u{440}\u{430}ypal.com", "xn--ypal-43d9g.com"),
        ("g\u{1ecd}ogle.com", "xn--gogle-281b.com"),
    ] {
        assert_eq!(parsed(text).as_str(), name, "{text}");
    }
}

#[test]
fn what_is_no_name_is_refused_with_its_reason() {
    use HostNameProblem as P;
    let label = "a".repeat(MAX_LABEL + 1);
    let long = format!("{}abc", "a.".repeat(126));
    let unicode_label = "ü".repeat(MAX_LABEL);
    for (text, expected) in [
        ("", P::Empty),
        (".", P::Empty),
        ("\u{ad}", P::Empty),
        ("..", P::EmptyLabel),
        ("example.com..", P::EmptyLabel),
        (".example.com", P::EmptyLabel),
        ("a..b", P::EmptyLabel),
        ("a.\u{ad}.b", P::EmptyLabel),
        ("allowed.com\0.evil.com", P::Nul),
        ("a b.com", P::Space),
        (" a.com", P::Space),
        ("a.com\n", P::Space),
        ("a\u{3000}b.com", P::Space),
        ("a\u{a0}b.com", P::Space),
        ("a\u{1b}.com", P::Character('\u{1b}')),
        ("https://a.com", P::Character(':')),
        ("a.com/path", P::Character('/')),
        ("a.com:443", P::Character(':')),
        ("user@a.com", P::Character('@')),
        ("*.a.com", P::Character('*')),
        ("a%2ecom", P::Character('%')),
        ("a\\b", P::Character('\\')),
        // These become a/c, an asterisk and a space while they are normalised.
        ("℀.com", P::International),
        ("＊.com", P::International),
        ("a\u{2003}.com", P::Space),
        ("xn--.com", P::International),
        ("xn--a.com", P::International),
        ("xn--999999999.com", P::International),
        ("a\u{202e}b.com", P::International),
        ("\u{fffd}.com", P::International),
        ("-a.com", P::Hyphen),
        ("a-.com", P::Hyphen),
        (&label, P::LongLabel),
        (&unicode_label, P::LongLabel),
        (&long, P::Long),
        (&"a".repeat(MAX_TEXT + 1), P::Long),
        (&"a.".repeat(150), P::Long),
        ("127.0.0.1", P::Address),
        ("::1", P::Address),
        ("[::1]", P::Address),
        ("::ffff:10.0.0.1", P::Address),
        ("64:ff9b::a00:1", P::Address),
    ] {
        assert_eq!(problem(text), expected, "{text:?}");
    }
    let longest = format!("{}a", "a.".repeat(126));
    assert_eq!((longest.len(), parsed(&longest).as_str()), (MAX_NAME, longest.as_str()));
    assert_eq!(parsed(&format!("{longest}.")).as_str(), longest);
    assert_eq!(parsed(&"a".repeat(MAX_LABEL)).as_str().len(), MAX_LABEL);
}

#[test]
fn no_spelling_of_an_ipv4_address_is_a_name() {
    for text in [
        "2130706433",
        "0x7f000001",
        "0X7F000001",
        "0x7f.1",
        "0x7f.0x0.0x0.0x1",
        "017700000001",
        "0177.0.0.1",
        "0177.0.0.01",
        "127.1",
        "127.0.1",
        "127.0.0.1.",
        "127.0.0.01",
        "127.0.0.08",
        "127.0.0.0x1",
        "127.0.0.0x",
        "0",
        "0x",
        "00000000000000000000000000000177.1",
        "256.256.256.256",
        "4294967296",
        "1.2.3.4.5",
        "foo.1",
        "_.0x1",
        "１２７.０.０.１",
        "127。0。0。1",
        "①②⑦.1",
        "12\u{ad}7.0.0.1",
        "0ｘ7f.1",
    ] {
        let problem = problem(text);
        let is_address = matches!(problem, HostNameProblem::Address | HostNameProblem::Number);
        assert!(is_address, "{text}: {problem}");
    }
}

#[test]
fn an_error_shows_the_value_what_is_wrong_and_what_would_be_right() {
    let error = "2130706433".parse::<HostName>().unwrap_err().to_string();
    assert!(error.starts_with("the host name \"2130706433\" ends in a number"), "{error}");
    assert!(error.ends_with("for example 192.0.2.1"), "{error}");
    let error = "a\0b".parse::<HostName>().unwrap_err().to_string();
    assert_eq!(error, r#"the host name "a\0b" has a NUL"#);
    let error = "é ".repeat(100_000).parse::<HostName>().unwrap_err().to_string();
    assert!(error.len() < 300, "{}", error.len());
}

#[test]
fn a_name_lies_below_another_only_at_a_dot() {
    for (name, other, below) in [
        ("a.example.com", "example.com", true),
        ("a.b.example.com", "example.com", true),
        ("example.com", "example.com", false),
        ("badexample.com", "example.com", false),
        ("example.com", "a.example.com", false),
        ("example.com.evil.org", "example.com", false),
    ] {
        assert_eq!(parsed(name).is_below(&parsed(other)), below, "{name} below {other}");
    }
}

#[test]
fn a_host_is_an_address_or_a_name() {
    let address = |text: &str| Host::Address(text.parse().unwrap());
    assert_eq!("10.0.0.1".parse(), Ok(address("10.0.0.1")));
    assert_eq!("::1".parse(), Ok(address("::1")));
    assert_eq!("Example.com.".parse(), Ok(Host::Name(parsed("example.com"))));
    for text in ["010.0.0.1", "0x7f.1", "fe80::1%eth0", "[::1]", "1.2.3.4:80", ""] {
        assert!(text.parse::<Host>().is_err(), "{text}");
    }
    for text in ["10.0.0.1", "::1", "example.com"] {
        assert_eq!(text.parse::<Host>().unwrap().to_string(), text);
    }
    assert_eq!(serde_json::to_string(&parsed("A.b.")).unwrap(), r#""a.b""#);
}

/// Whether a text is a normalised name, without any code of the parser.
fn looks_normal(name: &str) -> bool {
    let (mut label, mut last, mut is_right) = (0, b'.', !name.is_empty() && name.len() <= 253);
    for byte in name.bytes().chain([b'.']) {
        if byte == b'.' {
            is_right &= label > 0 && label <= 63 && last != b'-';
            label = 0;
        } else {
            let edge = label == 0 && byte == b'-';
            is_right &= b"abcdefghijklmnopqrstuvwxyz0123456789-_".contains(&byte) && !edge;
            label += 1;
        }
        last = byte;
    }
    is_right
}

/// What `inet_aton` makes of a text, by its own rules: one to four numbers, each in C's notation, of which
/// the last one fills what is left of the 32 bits.
fn inet_aton(text: &str) -> Option<u32> {
    let parts = text.split('.').map(|part| {
        let (digits, radix) = match part.as_bytes() {
            [b'0', b'x', ..] => (&part[2..], 16),
            [b'0', _, ..] => (&part[1..], 8),
            _ => (part, 10),
        };
        u64::from_str_radix(if digits.is_empty() { "0" } else { digits }, radix).ok()
    });
    let parts = parts.collect::<Option<Vec<u64>>>()?;
    let (last, first) = parts.split_last()?;
    let room = 8 * (4_usize.checked_sub(first.len())?);
    let is_fitting = room > 0 && *last < 1 << room && first.iter().all(|part| *part < 256);
    let high = first.iter().fold(0, |all, part| all << 8 | part);
    is_fitting.then(|| u32::try_from(high << room | last).unwrap())
}

proptest! {
    #[test]
    fn normalising_twice_is_normalising_once(text in "\\PC{0,12}(\\.[a-z0-9üßо０。]{1,5}){0,3}\\.?") {
        if let Ok(name) = text.parse::<HostName>() {
            prop_assert!(looks_normal(name.as_str()), "{name}");
            prop_assert_eq!(name.as_str().parse::<HostName>(), Ok(name.clone()));
            prop_assert_eq!(format!("{}.", name.as_str().to_uppercase()).parse::<HostName>(), Ok(name));
        }
    }

    #[test]
    fn a_plain_name_is_taken_as_it_is(
        name in "[a-z0-9_]([a-z0-9_-]{0,20}[a-z0-9_])?(\\.[a-z_]([a-z0-9_]{0,5}))?\\.[a-z]{1,8}",
    ) {
        prop_assume!(!name.starts_with("xn--"));
        let parsed = name.parse::<HostName>();
        prop_assert_eq!(parsed.map(|parsed| parsed.to_string()), Ok(name));
    }

    #[test]
    fn what_inet_aton_reads_is_no_name(text in "(0?x?[0-9a-f]{0,12}\\.){0,4}0?x?[0-9a-f]{0,12}") {
        let is_address = inet_aton(&text).is_some() || text.parse::<std::net::Ipv4Addr>().is_ok();
        prop_assert!(!is_address || text.parse::<HostName>().is_err(), "{text}");
    }
}
