//! Signed links: who has one may fetch one file, and nothing else.
//!
//! The signature is hex HMAC-SHA256 over `session/path`, where `%`, newline, and the `/` of a session id are
//! percent-encoded, so that no two files sign alike. The key is the store's secret for the owner `default`, and
//! HMAC(secret, name) for any other: the key that fits says whose session it is. It must never compare in a
//! time that depends on the signature.

use hmac::{Hmac, KeyInit, Mac};
use paddock_proto::RelPath;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_encode};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};

use crate::id::hex;

/// The owner of everything that came with the environment's token, or with none.
pub const DEFAULT_OWNER: &str = "default";

/// Octets that stand for themselves in a link: RFC 3986's unreserved.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Octets that are encoded in the signed text only.
const IN_PATH: &AsciiSet = &CONTROLS.remove(0x00).add(b'%');
const IN_SESSION: &AsciiSet = &IN_PATH.add(b'/');

/// Makes and checks links.
pub struct Signer {
    base: String,
    keys: Vec<(String, Vec<u8>)>,
}

/// What a link opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// A file of `/data`.
    File(&'a RelPath),
    /// The whole output of a run.
    Log(&'a str),
}

impl Signer {
    /// `base` is the public URL; `owners` are the names that tokens have.
    pub fn new<'a>(base: &str, secret: &[u8], owners: impl IntoIterator<Item = &'a str>) -> Self {
        let mut keys = vec![(DEFAULT_OWNER.to_owned(), secret.to_vec())];
        for owner in owners.into_iter().filter(|owner| *owner != DEFAULT_OWNER) {
            keys.push((owner.to_owned(), mac(secret, owner.as_bytes())));
        }
        Self { base: base.trim_end_matches('/').to_owned(), keys }
    }

    /// The link for something of a session. An owner that has no token any more gets links that open nothing.
    pub fn link(&self, owner: &str, session: &str, target: Target<'_>) -> String {
        let key = self.keys.iter().find(|(name, _)| name == owner).map_or(&[][..], |(_, key)| key);
        let signature = if key.is_empty() { String::new() } else { hex(&mac(key, &text(session, target))) };
        let session = percent_encode(session.as_bytes(), UNRESERVED);
        let base = &self.base;
        match target {
            Target::File(path) => {
                let path: Vec<String> =
                    path.components().map(|name| percent_encode(name, UNRESERVED).to_string()).collect();
                format!("{base}/files/{session}/{}?sig={signature}", path.join("/"))
            }
            Target::Log(run) => format!("{base}/logs/{session}/{run}?sig={signature}"),
        }
    }

    /// The owner whose key made this signature: 64 lower-case hex digits, nothing else counts.
    pub fn owner(&self, session: &str, target: Target<'_>, signature: &str) -> Option<&str> {
        let text = text(session, target);
        let mut owner = None;
        for (name, key) in &self.keys {
            let fits: Choice = hex(&mac(key, &text)).as_bytes().ct_eq(signature.as_bytes());
            if bool::from(fits) {
                owner = Some(name.as_str());
            }
        }
        owner
    }
}

fn text(session: &str, target: Target<'_>) -> Vec<u8> {
    let session = percent_encode(session.as_bytes(), IN_SESSION);
    let mut text = session.to_string().into_bytes();
    match target {
        Target::File(path) => {
            text.push(b'/');
            for byte in path.as_bytes() {
                match byte {
                    b'%' => text.extend_from_slice(b"%25"),
                    b'\n' => text.extend_from_slice(b"%0A"),
                    other => text.push(*other),
                }
            }
        }
        // A newline is in no signed text of a file: a log can never be taken for one.
        Target::Log(run) => text.extend_from_slice(format!("\nlog/{run}").as_bytes()),
    }
    text
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    // HMAC takes a key of any length; the other arm is never taken.
    Hmac::<Sha256>::new_from_slice(key)
        .map(|mut mac| {
            mac.update(text);
            mac.finalize().into_bytes().to_vec()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    fn signature(link: &str) -> &str {
        link.split_once("?sig=").unwrap().1
    }

    #[test]
    fn the_formula_is_the_documented_one() {
        // printf '%s' abc123/result.csv | openssl dgst -sha256 -hmac topsecret
        let signer = Signer::new("https://x.example/", b"topsecret", []);
        let path = path("result.csv");
        let link = signer.link(DEFAULT_OWNER, "abc123", Target::File(&path));
        assert_eq!(
            link,
            "https://x.example/files/abc123/result.csv?sig=929cf9ef5cc40365d2d584e00e2fbab8773310d7738e2a50d1ccdfd6d39cffe0"
        );
    }

    #[test]
    fn only_the_right_key_and_the_very_text_open() {
        let signer = Signer::new("http://h", b"k", ["alice", "bob"]);
        let path = path("a/b.csv");
        let target = Target::File(&path);
        for owner in [DEFAULT_OWNER, "alice", "bob"] {
            let link = signer.link(owner, "s", target);
            assert_eq!(signer.owner("s", target, signature(&link)), Some(owner));
        }
        let link = signer.link("alice", "s", target);
        let good = signature(&link);
        assert_eq!(signer.owner("t", target, good), None);
        for bad in ["", &good[..1], &good[..63], &good.to_uppercase(), &format!("{good}0")] {
            assert_eq!(signer.owner("s", target, bad), None, "{bad:?}");
        }
        for at in 0..good.len() * 8 {
            let mut bytes = good.as_bytes().to_vec();
            bytes[at / 8] ^= 1 << (at % 8);
            if let Ok(flipped) = std::str::from_utf8(&bytes) {
                assert_eq!(signer.owner("s", target, flipped), None, "bit {at}");
            }
        }
        let stranger = signer.link("gone", "s", target);
        assert_eq!(signer.owner("s", target, signature(&stranger)), None);
    }

    #[test]
    fn no_two_things_sign_alike() {
        let cases = [
            ("a", "b/c"),
            ("a/b", "c"),
            ("a%2Fb", "c"),
            ("a", "b%2Fc"),
            ("a", "b\nc"),
            ("a\nb", "c"),
            ("a", "b%0Ac"),
            ("a%", "b"),
            ("a%25", "b"),
            ("a\nlog", "x"),
        ];
        let mut seen = HashSet::new();
        for (session, file) in cases {
            assert!(seen.insert(text(session, Target::File(&path(file)))), "{session:?} {file:?}");
        }
        assert!(seen.insert(text("a", Target::Log("x"))));
    }

    #[test]
    fn a_link_is_a_link_whatever_the_name() {
        let signer = Signer::new("http://h", b"k", []);
        let path = path("d r/ü\n?#%.csv");
        let link = signer.link(DEFAULT_OWNER, "a/b c", Target::File(&path));
        assert!(link.starts_with("http://h/files/a%2Fb%20c/d%20r/%C3%BC%0A%3F%23%25.csv?sig="), "{link}");
    }
}
