//! Which links are valid and which are not, bit by bit.

use std::collections::HashSet;

use super::*;

fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

fn signer(secret: &str, previous: &[&str], terms: LinkTerms) -> Signer {
    let previous: Vec<_> = previous.iter().map(|secret| secret.as_bytes().to_vec()).collect();
    Signer::new("http://h", secret.as_bytes(), &previous, ["alice", "bob"], terms)
}

fn plain() -> Signer {
    signer("k", &[], LinkTerms::default())
}

/// The parts of a link's query.
fn proof(link: &str) -> Proof<'_> {
    let query = link.split_once('?').unwrap().1;
    let part = |name| query.split('&').find_map(|pair| pair.strip_prefix(name));
    Proof { signature: part("sig=").unwrap(), expires: part("expires=") }
}

#[test]
fn the_formula_is_the_documented_one() {
    // printf '%s' abc123/result.csv | openssl dgst -sha256 -hmac topsecret
    let signer = Signer::new("https://x.example/", b"topsecret", &[], [], LinkTerms::default());
    let path = path("result.csv");
    let link = signer.link(DEFAULT_OWNER, "abc123", SignedTarget::File(&path));
    assert_eq!(
        link,
        "https://x.example/files/abc123/result.csv?sig=929cf9ef5cc40365d2d584e00e2fbab8773310d7738e2a50d1ccdfd6d39cffe0"
    );
}

#[test]
fn only_the_right_key_and_exactly_the_signed_text_are_valid() {
    let signer = plain();
    let path = path("a/b.csv");
    let target = SignedTarget::File(&path);
    for owner in [DEFAULT_OWNER, "alice", "bob"] {
        let link = signer.link(owner, "s", target);
        assert_eq!(signer.owner("s", target, proof(&link)).as_deref(), Some(owner));
    }
    let link = signer.link("alice", "s", target);
    let good = proof(&link).signature;
    let opens = |session: &str, signature: &str| {
        signer.owner(session, target, Proof { signature, expires: None }).is_some()
    };
    assert!(!opens("t", good));
    for bad in ["", &good[..1], &good[..63], &good.to_uppercase(), &format!("{good}0")] {
        assert!(!opens("s", bad), "{bad:?}");
    }
    for at in 0..good.len() * 8 {
        let mut bytes = good.as_bytes().to_vec();
        bytes[at / 8] ^= 1 << (at % 8);
        if let Ok(flipped) = std::str::from_utf8(&bytes) {
            assert!(!opens("s", flipped), "bit {at}");
        }
    }
    let stranger = signer.link("gone", "s", target);
    assert_eq!(signer.owner("s", target, proof(&stranger)), None);
}

#[test]
fn a_link_is_valid_until_its_signed_time() {
    let ttl = |seconds| LinkTerms { ttl: Some(Duration::from_secs(seconds)), hashed: false };
    let file = path("a");
    let target = SignedTarget::File(&file);
    let signer = signer("k", &[], ttl(3600));
    let link = signer.link("alice", "s", target);
    let good = proof(&link);
    let expires = good.expires.unwrap();
    assert!((now() + 3590..=now() + 3600).contains(&expires.parse().unwrap()), "{link}");
    assert_eq!(signer.owner("s", target, good).as_deref(), Some("alice"));
    // Every bit of the time, and the time removed or added.
    for at in 0..expires.len() * 8 {
        let mut bytes = expires.as_bytes().to_vec();
        bytes[at / 8] ^= 1 << (at % 8);
        if let Ok(flipped) = std::str::from_utf8(&bytes) {
            assert_eq!(signer.owner("s", target, Proof { expires: Some(flipped), ..good }), None, "bit {at}");
        }
    }
    for wrong in ["", "0", &format!("0{expires}"), &format!("+{expires}"), &format!("{expires}0")] {
        assert_eq!(signer.owner("s", target, Proof { expires: Some(wrong), ..good }), None, "{wrong:?}");
    }
    assert_eq!(signer.owner("s", target, Proof { expires: None, ..good }), None);
    // A link from before links expired would be valid for ever.
    let forever = plain().link("alice", "s", target);
    assert_eq!(signer.owner("s", target, proof(&forever)), None);
    assert_eq!(plain().owner("s", target, proof(&forever)).as_deref(), Some("alice"));
    let log = SignedTarget::Log("run_1");
    let forever_log = plain().link("alice", "s", log);
    assert_eq!(signer.owner("s", log, proof(&forever_log)), None);
    // A link with a time keeps it even if links no longer expire.
    assert_eq!(plain().owner("s", target, good).as_deref(), Some("alice"));
    let late = Proof { expires: Some(expires), ..proof(&forever) };
    assert_eq!(signer.owner("s", target, late), None);
    // An expired link is invalid for every signer; a time that is not a number never comes.
    for (time, opens) in [(now() + 60, true), (now() - 1, false), (0, false), (u64::MAX, true)] {
        let time = time.to_string();
        let signature = hex(&mac(&signer.keys().of("alice").unwrap().key, &text("s", target, Some(&time))));
        let given = Proof { signature: &signature, expires: Some(&time) };
        assert_eq!(signer.owner("s", target, given).is_some(), opens, "{time}");
    }
}

#[test]
fn an_owner_has_links_while_it_has_a_token() {
    for hashed in [false, true] {
        let file = path("a");
        let (target, signer) =
            (SignedTarget::File(&file), signer("k", &["old"], LinkTerms { ttl: None, hashed }));
        let link = signer.link("alice", "s", target);
        let name = link.split('/').nth(4).unwrap();
        let opens = || match hashed {
            true => signer.hashed(name).is_some(),
            false => signer.owner("s", target, proof(&link)).is_some(),
        };
        assert!(opens());
        signer.set_owners(["bob"]);
        assert!(!opens());
        signer.set_owners(["alice"]);
        assert!(opens() && signer.link("alice", "s", target) == link);
    }
}

#[test]
fn previous_keys_verify_but_never_sign() {
    let file = path("a");
    let target = SignedTarget::File(&file);
    let old = signer("old", &[], LinkTerms::default()).link("bob", "s", target);
    let new = signer("new", &["older", "old"], LinkTerms::default());
    assert_eq!(new.owner("s", target, proof(&old)).as_deref(), Some("bob"));
    let fresh = new.link("bob", "s", target);
    assert_ne!(fresh, old);
    let after_grace = signer("new", &[], LinkTerms::default());
    assert_eq!(after_grace.owner("s", target, proof(&old)), None);
    assert_eq!(after_grace.owner("s", target, proof(&fresh)).as_deref(), Some("bob"));
}

#[test]
fn a_hashed_link_names_exactly_one_session() {
    let hashed = || signer("k", &["old"], LinkTerms { ttl: None, hashed: true });
    let name = |link: &str| link.split('/').nth(4).unwrap().to_owned();
    let file = path("d r/a");
    let first = hashed();
    let link = first.link("alice", "s", SignedTarget::File(&file));
    assert!(
        link.starts_with("http://h/files/") && link.ends_with("/d%20r/a") && !link.contains('?'),
        "{link}"
    );
    let found = |signer: &Signer, name: &str| signer.hashed(name).map(|(o, s)| format!("{o} {s}"));
    assert_eq!(found(&first, &name(&link)).as_deref(), Some("alice s"));
    // Another owner, session or key gives another name.
    let names: HashSet<_> =
        [("alice", "s"), ("bob", "s"), ("alice", "t"), ("default", "s"), ("alice", "s\nfiles")]
            .map(|(owner, session)| name(&first.link(owner, session, SignedTarget::File(&file))))
            .into();
    assert_eq!(names.len(), 5);
    // A new signer knows the sessions that it learned, also under previous keys.
    let second = hashed();
    assert_eq!(found(&second, &name(&link)), None);
    second.learn("alice", "s");
    assert_eq!(found(&second, &name(&link)).as_deref(), Some("alice s"));
    let before = signer("old", &[], LinkTerms { ttl: None, hashed: true });
    let older = name(&before.link("alice", "s", SignedTarget::File(&file)));
    assert_eq!(found(&second, &older).as_deref(), Some("alice s"));
    let good = name(&link);
    for at in 0..good.len() * 8 {
        let mut bytes = good.as_bytes().to_vec();
        bytes[at / 8] ^= 1 << (at % 8);
        if let Ok(flipped) = std::str::from_utf8(&bytes) {
            assert_eq!(found(&second, flipped), None, "bit {at}");
        }
    }
    // Logs still have signed links, and signed links to files are still valid.
    assert!(first.link("alice", "s", SignedTarget::Log("run_1")).contains("/logs/s/run_1?sig="));
    let signed = plain().link("alice", "s", SignedTarget::File(&file));
    assert_eq!(first.owner("s", SignedTarget::File(&file), proof(&signed)).as_deref(), Some("alice"));
    // The name is not a signature, and a signer of the other style knows no names.
    for target in [SignedTarget::File(&file), SignedTarget::Log("files")] {
        assert_eq!(plain().owner("s", target, Proof { signature: &good, expires: None }), None);
    }
    assert_eq!(found(&plain(), &good), None);
    // The link of an owner without a key is invalid.
    assert!(first.link("gone", "s", SignedTarget::File(&file)).starts_with("http://h/files//"));
}

#[test]
fn a_cursor_is_valid_only_for_its_listing() {
    let signer = plain();
    let at = RelPath::new(b"d/\xff\xfe".to_vec()).unwrap();
    let cursor = signer.cursor("alice", "s", &at);
    assert_eq!(signer.position("alice", "s", &cursor), Some(at));
    assert_eq!(signer.position("bob", "s", &cursor), None);
    assert_eq!(signer.position("alice", "t", &cursor), None);
    for at in 0..cursor.len() * 8 {
        let mut bytes = cursor.as_bytes().to_vec();
        bytes[at / 8] ^= 1 << (at % 8);
        if let Ok(flipped) = std::str::from_utf8(&bytes) {
            assert_eq!(signer.position("alice", "s", flipped), None, "bit {at}");
        }
    }
    for wrong in ["", "AAAA", "%", &"A".repeat(100_000)] {
        assert_eq!(signer.position("alice", "s", wrong), None);
    }
}

#[test]
fn no_two_targets_have_the_same_signed_text() {
    let cases = [
        ("a", "b/c"),
        ("a/b", "c"),
        ("a%2Fb", "c"),
        ("a", "b%2Fc"),
        ("a", "b\nc"),
        ("a", "b\n1"),
        ("a\nb", "c"),
        ("a", "b%0Ac"),
        ("a%", "b"),
        ("a%25", "b"),
        ("a\nlog", "x"),
        ("a", "b"),
    ];
    let mut seen = HashSet::new();
    for (session, file) in cases {
        for expires in [None, Some("1"), Some("11")] {
            let text = text(session, SignedTarget::File(&path(file)), expires);
            assert!(seen.insert(text), "{session:?} {file:?} {expires:?}");
        }
    }
    for expires in [None, Some("1")] {
        assert!(seen.insert(text("a", SignedTarget::Log("x"), expires)));
    }
    assert!(seen.insert(cursor_text("a", &path("x"))));
}

#[test]
fn every_name_gives_a_valid_link() {
    let signer = plain();
    let path = path("d r/ü\n?#%.csv");
    let link = signer.link(DEFAULT_OWNER, "a/b c", SignedTarget::File(&path));
    assert!(link.starts_with("http://h/files/a%2Fb%20c/d%20r/%C3%BC%0A%3F%23%25.csv?sig="), "{link}");
}
