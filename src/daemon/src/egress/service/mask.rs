//! Finds the configured values in what goes to a program, and puts stars over them. Pure.
//!
//! ```text
//!  a piece ─► what was held back + the piece ─► find each value ─► stars ─► the next piece
//!                      ▲                                                   │
//!                      └───── the end that could begin a value ◄───────────┘
//! ```
//!
//! Lengths stay as they are. It must never hold back anything but the beginning of a value, so that an event
//! of a stream does not wait for the next one, nor pass on a byte of a value that is complete.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::settings::SHORTEST;

/// What stands over a value.
const STAR: u8 = b'*';

/// Words in front of a credential that are no part of it.
const SCHEMES: [&str; 3] = ["bearer", "basic", "token"];

/// What is masked.
pub(super) struct Patterns(Vec<Finder<'static>>);

impl Patterns {
    /// Each value: as it is, or without its scheme (`Bearer X`); for `Basic` also what its base64 says, and
    /// the password in it; and each of these as JSON, HTML, URLs and base64 write it.
    pub(super) fn of<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all: Vec<String> = Vec::new();
        for value in values {
            let (scheme, rest) = value.split_once(' ').unwrap_or_default();
            let is_scheme = SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known));
            if is_scheme && rest.trim().len() >= SHORTEST {
                all.push(rest.trim().to_owned());
            } else {
                all.push(value.to_owned());
            }
            if scheme.eq_ignore_ascii_case("basic") {
                all.extend(basic(rest.trim()));
            }
        }
        let written: Vec<String> = all.iter().flat_map(|value| spellings(value)).collect();
        all.extend(written);
        all.retain(|value| value.len() >= SHORTEST);
        all.sort_unstable();
        all.dedup();
        Self(all.iter().map(|value| Finder::new(value.as_bytes()).into_owned()).collect())
    }

    /// Puts stars over each value in a text that is complete.
    pub(super) fn mask(&self, text: &mut [u8]) {
        let found = self.find(text);
        found.into_iter().for_each(|range| cover(text, range));
    }

    /// Whether the name of a header, which is in lower case, has a value in it.
    pub(super) fn are_in_name(&self, name: &str) -> bool {
        self.0.iter().any(|finder| {
            let value = finder.needle().to_ascii_lowercase();
            memchr::memmem::find(name.as_bytes(), &value).is_some()
        })
    }

    /// Where the values are. They may overlap.
    fn find(&self, text: &[u8]) -> Vec<std::ops::Range<usize>> {
        let mut found = Vec::new();
        for finder in &self.0 {
            let mut from = 0;
            while let Some(at) = text.get(from..).and_then(|rest| finder.find(rest)) {
                found.push(from + at..from + at + finder.needle().len());
                from += at + 1;
            }
        }
        found
    }

    /// Bytes at the end of a text that could begin a value.
    fn unfinished(&self, text: &[u8]) -> usize {
        let of = |finder: &Finder<'_>| {
            let value = finder.needle();
            let longest = text.len().min(value.len() - 1);
            (1..=longest).rev().find(|length| text.ends_with(&value[..*length])).unwrap_or(0)
        };
        self.0.iter().map(of).max().unwrap_or(0)
    }
}

/// What the base64 of `user:password` says, and the password.
fn basic(encoded: &str) -> Vec<String> {
    let Some(pair) = BASE64_STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    else {
        return Vec::new();
    };
    let password = pair.split_once(':').map(|(_, password)| password.to_owned());
    [pair].into_iter().chain(password).collect()
}

/// A value as others write it in a text.
fn spellings(value: &str) -> Vec<String> {
    let json = serde_json::Value::from(value).to_string();
    let json = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default().to_owned();
    let html = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    let url = utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
    let form: String = value
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-._~".contains(c) {
                c.to_string()
            } else {
                utf8_percent_encode(c.encode_utf8(&mut [0; 4]), NON_ALPHANUMERIC).to_string()
            }
        })
        .collect();
    let slashes = json.replace('/', "\\/");
    vec![slashes, json, html.replace('\'', "&#39;"), html, url, form, BASE64_STANDARD.encode(value)]
}

fn cover(text: &mut [u8], range: std::ops::Range<usize>) {
    if let Some(part) = text.get_mut(range) {
        part.fill(STAR);
    }
}

/// Masks a text that comes in pieces.
pub(super) struct Masker {
    patterns: std::sync::Arc<Patterns>,
    /// The end of what came that could begin a value, as it came.
    held: BytesMut,
    /// The same, with stars over what is already known to be of another value.
    shown: BytesMut,
}

impl Masker {
    pub(super) fn new(patterns: std::sync::Arc<Patterns>) -> Self {
        Self { patterns, held: BytesMut::new(), shown: BytesMut::new() }
    }

    /// What can go on after this piece; it may be nothing.
    pub(super) fn push(&mut self, piece: Bytes) -> Bytes {
        if self.held.is_empty() {
            let found = self.patterns.find(&piece);
            let passes = piece.len() - self.patterns.unfinished(&piece);
            if found.is_empty() && passes == piece.len() {
                return piece;
            }
            self.held.extend_from_slice(&piece);
            self.shown.extend_from_slice(&piece);
            return self.pass(found, passes);
        }
        self.held.extend_from_slice(&piece);
        self.shown.extend_from_slice(&piece);
        let found = self.patterns.find(&self.held);
        let passes = self.held.len() - self.patterns.unfinished(&self.held);
        self.pass(found, passes)
    }

    fn pass(&mut self, found: Vec<std::ops::Range<usize>>, passes: usize) -> Bytes {
        found.into_iter().for_each(|range| cover(&mut self.shown, range));
        let _ = self.held.split_to(passes);
        self.shown.split_to(passes).freeze()
    }

    /// What is left at the end.
    pub(super) fn finish(&mut self) -> Bytes {
        self.held.clear();
        self.shown.split().freeze()
    }

    /// Whether nothing is held back.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Bytes that are held back.
    pub(super) fn held(&self) -> u64 {
        self.held.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    /// The same without any of its means: each byte of each occurrence is a star.
    fn expected(text: &[u8], values: &[&str]) -> Vec<u8> {
        let mut all = text.to_vec();
        for value in values.iter().map(|value| value.as_bytes()) {
            for at in 0..text.len() {
                if text[at..].starts_with(value) {
                    all[at..at + value.len()].fill(b'*');
                }
            }
        }
        all
    }

    fn raw(values: &[&str]) -> Arc<Patterns> {
        Arc::new(Patterns(values.iter().map(|value| Finder::new(value.as_bytes()).into_owned()).collect()))
    }

    #[test]
    fn a_value_is_covered_wherever_it_is_cut() {
        let text = b"data: {\"echo\":\"Bearer sk-abc-123456\"}\n\n";
        let patterns = Arc::new(Patterns::of(["sk-abc-123456"]));
        for at in 0..text.len() {
            let mut masker = Masker::new(patterns.clone());
            let mut got = masker.push(Bytes::copy_from_slice(&text[..at])).to_vec();
            got.extend_from_slice(&masker.push(Bytes::copy_from_slice(&text[at..])));
            assert!(masker.is_empty(), "nothing waits after the end of an event");
            assert_eq!(got, b"data: {\"echo\":\"Bearer *************\"}\n\n", "cut at {at}");
        }
    }

    #[test]
    fn usual_spellings_of_a_value_are_covered_too() {
        let secret = "pa/ss+w\"o&rd=";
        let pair = BASE64_STANDARD.encode(format!("user:{secret}"));
        let value = format!("Basic {pair}");
        let patterns = Patterns::of([value.as_str()]);
        for told in [
            pair.clone(),
            format!("user:{secret}"),
            secret.to_owned(),
            "pa/ss+w\\\"o&rd=".to_owned(),
            "pa\\/ss+w\\\"o&rd=".to_owned(),
            "pa/ss+w&quot;o&amp;rd=".to_owned(),
            "pa%2Fss%2Bw%22o%26rd%3D".to_owned(),
            BASE64_STANDARD.encode(secret),
        ] {
            let mut text = format!("<{told}>").into_bytes();
            patterns.mask(&mut text);
            assert_eq!(text, format!("<{}>", "*".repeat(told.len())).into_bytes(), "{told}");
        }
        let mut text = value.clone().into_bytes();
        patterns.mask(&mut text);
        assert_eq!(text, format!("Basic {}", "*".repeat(pair.len())).into_bytes());
        let mut text = b"Basic user".to_vec();
        patterns.mask(&mut text);
        assert_eq!(text, b"Basic user");
    }

    proptest! {
        #[test]
        fn pieces_give_what_the_whole_gives_and_only_beginnings_wait(
            text in prop::collection::vec(prop::sample::select(b"abAB-".to_vec()), 0..200),
            cuts in prop::collection::vec(1_usize..9, 0..80),
        ) {
            let values = ["abab", "bAb", "ababA-B", "aa", "B-a"];
            let mut masker = Masker::new(raw(&values));
            let (mut got, mut rest) = (Vec::new(), &text[..]);
            let mut cuts = cuts.into_iter();
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(cuts.next().unwrap_or(50).min(rest.len()));
                got.extend_from_slice(&masker.push(Bytes::copy_from_slice(piece)));
                rest = after;
                let held = &text[got.len()..text.len() - rest.len()];
                let begins = values.iter().any(|value| value.len() > held.len()
                    && value.as_bytes().starts_with(held));
                prop_assert!(begins, "{held:?} is held back");
            }
            got.extend_from_slice(&masker.finish());
            prop_assert_eq!(got, expected(&text, &values));
        }
    }
}
