//! Signed links: each gives access to one file, and nothing else.
//!
//! The signature is hex HMAC-SHA256 over `session/path`, where `%`, newline, and the `/` of a session id are
//! percent-encoded, so that no two files have the same text. If links expire, a newline and the time follow,
//! and a link without a time is invalid. The key is the store's secret for the owner `default`, and
//! HMAC(secret, name) for any other owner: the key that verifies a link determines the owner of the session.
//! Previous keys verify but never sign.
//!
//! Hashed links have a MAC of the session in place of a signature: with one link of a session a caller can
//! ask for its other files. An index, made from the sessions in the store, maps each MAC to its session.
//!
//! It must never compare in a time that depends on a secret, nor let a link of one session give access to
//! another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use paddock_proto::RelPath;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_encode};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::id::hex;
use crate::store::StoreClock;

/// The owner of every session that was made with the environment's token, or without a token.
pub const DEFAULT_OWNER: &str = "default";

/// Every octet that a URL must escape: all but RFC 3986's unreserved.
pub(crate) const UNRESERVED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Octets that are encoded only in the signed text.
const IN_PATH: &AsciiSet = &CONTROLS.remove(0x00).add(b'%');
const IN_SESSION: &AsciiSet = &IN_PATH.add(b'/');

/// Bytes of the MAC in a cursor: it only has to distinguish the daemon's own cursors.
const CURSOR_MAC: usize = 16;

/// Makes and verifies links.
pub struct Signer {
    base: String,
    secret: Vec<u8>,
    previous: Vec<Vec<u8>>,
    keys: RwLock<Arc<Keys>>,
    ttl: Option<Duration>,
    /// Only in the hashed style.
    hashed: Option<HashedIndex>,
}

/// The settings of links.
#[derive(Debug, Clone, Default)]
pub struct LinkTerms {
    /// How long a link is valid; `None`: for ever.
    pub ttl: Option<Duration>,
    /// Whether links to files are hashed.
    pub hashed: bool,
}

/// The keys of the owners that have a token.
struct Keys {
    /// Keys that sign, one for each owner.
    present: Vec<Key>,
    /// Previous keys.
    previous: Vec<Key>,
}

impl Keys {
    fn new<'a>(secret: &[u8], previous: &[Vec<u8>], owners: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names = vec![DEFAULT_OWNER];
        names.extend(owners);
        names.sort_unstable();
        names.dedup();
        let keys = |secret: &[u8]| {
            let key = |owner: &&str| {
                let is_default = *owner == DEFAULT_OWNER;
                let key = if is_default { secret.to_vec() } else { mac(secret, owner.as_bytes()).to_vec() };
                Key { owner: Arc::from(*owner), key }
            };
            names.iter().map(key).collect::<Vec<_>>()
        };
        Self { present: keys(secret), previous: previous.iter().flat_map(|secret| keys(secret)).collect() }
    }

    fn of(&self, owner: &str) -> Option<&Key> {
        self.present.iter().find(|key| *key.owner == *owner)
    }

    fn all(&self) -> impl Iterator<Item = &Key> {
        self.present.iter().chain(&self.previous)
    }
}

struct Key {
    owner: Arc<str>,
    key: Vec<u8>,
}

/// The owner and session of each hashed link, by the digest of its MAC: the time of a look-up reveals nothing
/// about the MAC.
#[derive(Default)]
struct HashedIndex(Mutex<HashedSessions>);

type HashedSessions = HashMap<[u8; 32], (Arc<str>, Arc<str>)>;

/// What a link gives access to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedTarget<'a> {
    /// A file of `/data`.
    File(&'a RelPath),
    /// What the daemon keeps of a run or a task: the run's id, or the execution's with `.diff` or `.jsonl`.
    Log(&'a str),
}

/// The query of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof<'a> {
    /// `sig`
    pub signature: &'a str,
    /// `expires`, in seconds since 1970, as text.
    pub expires: Option<&'a str>,
}

impl Signer {
    /// `base` is the public URL; `owners` are the names of tokens.
    pub fn new<'a>(
        base: &str,
        secret: &[u8],
        previous: &[Vec<u8>],
        owners: impl IntoIterator<Item = &'a str>,
        terms: LinkTerms,
    ) -> Self {
        Self {
            base: base.trim_end_matches('/').to_owned(),
            keys: RwLock::new(Arc::new(Keys::new(secret, previous, owners))),
            secret: secret.to_vec(),
            previous: previous.to_vec(),
            ttl: terms.ttl,
            hashed: terms.hashed.then(HashedIndex::default),
        }
    }

    /// From now on these owners have links, beside the default one, and no others.
    pub fn set_owners<'a>(&self, owners: impl IntoIterator<Item = &'a str>) {
        let keys = Arc::new(Keys::new(&self.secret, &self.previous, owners));
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    fn keys(&self) -> Arc<Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The link for a file or log of a session. For an owner without a token the link is invalid.
    pub fn link(&self, owner: &str, session: &str, target: SignedTarget<'_>) -> String {
        let base = &self.base;
        let keys = self.keys();
        let key = keys.of(owner);
        if let (SignedTarget::File(path), Some(index)) = (target, &self.hashed) {
            let name = key.map_or_else(String::new, |key| index.note(key, session));
            return format!("{base}/files/{name}/{}", encoded(path));
        }
        let proof = self.proof(key, session, target);
        let session = percent_encode(session.as_bytes(), UNRESERVED);
        match target {
            SignedTarget::File(path) => format!("{base}/files/{session}/{}?{proof}", encoded(path)),
            SignedTarget::Log(run) => format!("{base}/logs/{session}/{run}?{proof}"),
        }
    }

    /// `sig=…`, with `expires=…` before it if links expire.
    fn proof(&self, key: Option<&Key>, session: &str, target: SignedTarget<'_>) -> String {
        let signed = |text: &[u8]| key.map_or_else(String::new, |key| hex(&mac(&key.key, text)));
        match self.ttl {
            None => format!("sig={}", signed(&text(session, target, None))),
            Some(ttl) => {
                let expires = now().saturating_add(ttl.as_secs()).to_string();
                format!("expires={expires}&sig={}", signed(&text(session, target, Some(&expires))))
            }
        }
    }

    /// The owner whose key made this signature, which must be 64 lower-case hex digits. `None` also if the
    /// link has expired, or has no time although links expire: it was made before they did.
    pub fn owner(&self, session: &str, target: SignedTarget<'_>, proof: Proof<'_>) -> Option<Arc<str>> {
        let text = text(session, target, proof.expires);
        let keys = self.keys();
        let mut owner = None;
        for Key { owner: name, key } in keys.all() {
            let fits: Choice = hex(&mac(key, &text)).as_bytes().ct_eq(proof.signature.as_bytes());
            if bool::from(fits) {
                owner = Some(name.clone());
            }
        }
        // The signature covers the text of the time, so the daemon wrote what is parsed here.
        let over = proof.expires.is_some_and(|at| at.parse::<u64>().is_ok_and(|at| now() > at));
        let is_endless = proof.expires.is_none() && self.ttl.is_some();
        owner.filter(|_| !over && !is_endless)
    }

    /// Whether links are hashed.
    pub fn is_hashed(&self) -> bool {
        self.hashed.is_some()
    }

    /// Adds the hashed links of a session to the index, also those under previous keys: at the start, for all
    /// stored sessions.
    pub fn learn(&self, owner: &str, session: &str) {
        let Some(index) = &self.hashed else { return };
        for key in self.keys().all().filter(|key| *key.owner == *owner) {
            index.note(key, session);
        }
    }

    /// The owner and session of a hashed link.
    pub fn hashed(&self, name: &str) -> Option<(Arc<str>, Arc<str>)> {
        let found = self.hashed.as_ref()?.entries().get(&digest(name)).cloned()?;
        self.keys().of(&found.0).is_some().then_some(found)
    }

    /// A cursor for the end of a page of a session's listing; valid only for this owner and session.
    pub fn cursor(&self, owner: &str, session: &str, at: &RelPath) -> String {
        let keys = self.keys();
        let key = keys.of(owner).map_or(&[][..], |key| &key.key);
        let mut bytes = mac(key, &cursor_text(session, at))[..CURSOR_MAC].to_vec();
        bytes.extend_from_slice(at.as_bytes());
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The path in a cursor; `None` if the cursor was not made for this owner and session.
    pub fn position(&self, owner: &str, session: &str, cursor: &str) -> Option<RelPath> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (given, at) = bytes.split_at_checked(CURSOR_MAC)?;
        let at = RelPath::new(at).ok()?;
        let keys = self.keys();
        let key = keys.of(owner)?;
        let fits: Choice = mac(&key.key, &cursor_text(session, &at))[..CURSOR_MAC].ct_eq(given);
        bool::from(fits).then_some(at)
    }
}

impl HashedIndex {
    fn entries(&self) -> MutexGuard<'_, HashedSessions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of a session in links under this key, added to the index.
    fn note(&self, key: &Key, session: &str) -> String {
        // No signed text of a file or a log ends like this.
        let name = hex(&mac(&key.key, &[escaped(session).as_bytes(), b"\nfiles"].concat()));
        let mut entries = self.entries();
        entries.entry(digest(&name)).or_insert_with(|| (key.owner.clone(), Arc::from(session)));
        name
    }
}

fn digest(name: &str) -> [u8; 32] {
    Sha256::digest(name.as_bytes()).into()
}

/// A path as a link contains it.
fn encoded(path: &RelPath) -> String {
    let names: Vec<String> =
        path.components().map(|name| percent_encode(name, UNRESERVED).to_string()).collect();
    names.join("/")
}

fn escaped(session: &str) -> String {
    percent_encode(session.as_bytes(), IN_SESSION).to_string()
}

fn now() -> u64 {
    StoreClock::new().for_expiry().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn text(session: &str, target: SignedTarget<'_>, expires: Option<&str>) -> Vec<u8> {
    let mut text = escaped(session).into_bytes();
    match target {
        SignedTarget::File(path) => {
            text.push(b'/');
            for byte in path.as_bytes() {
                match byte {
                    b'%' => text.extend_from_slice(b"%25"),
                    b'\n' => text.extend_from_slice(b"%0A"),
                    other => text.push(*other),
                }
            }
        }
        // The signed text of a file has no newline before its `/`, so it never equals that of a log.
        SignedTarget::Log(run) => text.extend_from_slice(format!("\nlog/{run}").as_bytes()),
    }
    if let Some(expires) = expires {
        text.push(b'\n');
        text.extend_from_slice(expires.as_bytes());
    }
    text
}

fn cursor_text(session: &str, at: &RelPath) -> Vec<u8> {
    [escaped(session).as_bytes(), b"\ncursor/", at.as_bytes()].concat()
}

/// HMAC-SHA-256.
pub(crate) fn mac(key: &[u8], text: &[u8]) -> [u8; 32] {
    // HMAC takes a key of any length, so the other arm is never reached.
    Hmac::<Sha256>::new_from_slice(key)
        .map(|mut mac| {
            mac.update(text);
            mac.finalize().into_bytes().into()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
