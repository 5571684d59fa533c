//! The header of a request that a node passes on: which node it comes from, who asked, and a proof that the
//! sender has the key of the cluster.
//!
//! ```text
//!  paddock-hop: from=a; way=192.0.2.7:4711; entry=http; time=1764100000000; nonce=0f…; own=…; proof=<hex>
//!  proof = HMAC-SHA256(key for hops, "method\npath and query\nname of the receiver\n" + all before it)
//! ```
//!
//! The proof covers method, path, sender, receiver, time and nonce, so a header that was seen elsewhere opens
//! nothing: not another path, not another node, not twice, and not later than [`SKEW`].
//!
//! A node reads this header on the listener of the cluster only. Everywhere else it must never be believed:
//! it is removed from requests of clients before anything sees them.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};
use percent_encoding::{percent_decode_str, percent_encode};
use subtle::ConstantTimeEq;

use super::keys::ClusterKeys;
use crate::id::{hex, random_hex};
use crate::session::SessionId;
use crate::sign::{UNRESERVED, mac};

/// The header.
pub const HOP: HeaderName = HeaderName::from_static("paddock-hop");

/// How much the clocks of two nodes may differ, and how long a request may be on its way, together.
pub const SKEW: Duration = Duration::from_secs(30);

/// Nonces that are remembered in each half of the time: at more requests a second than this allows, later
/// ones are refused until the half is over.
const NONCES: usize = 1 << 20;

/// What keeps the proof apart from the rest.
const PROOF: &str = "; proof=";

/// Who sent a request to the first node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// A client at this address: what it may do, its token or link says, which the owner checks again.
    Client(SocketAddr),
    /// The first node's own user, who needs no token.
    LocalUser,
}

/// The listener by which a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// The daemon's own address.
    Http,
    /// That of links to ports.
    Ports,
}

/// What one node tells another about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// The name of the node that passes it on.
    pub from: String,
    /// Who sent it.
    pub sender: Sender,
    /// Where it came in.
    pub entry: Entry,
    /// The session of calls that name none.
    pub own_session: Option<SessionId>,
}

/// Why a header was refused. The words are for the log of the receiver and for its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HopError {
    /// There is none, more than one, or it is not in its form.
    #[error("the request has no valid header {HOP}: only nodes of the cluster are served here")]
    Missing,
    /// It was not made with this cluster's key, or not for this request.
    #[error("the proof in {HOP} is wrong: is cluster.key the same on both nodes?")]
    Forged,
    /// Its time is too far from the receiver's clock.
    #[error(
        "the request was passed on at another time than this node's clock shows: they differ by more than \
         30 s; set the clocks of both nodes"
    )]
    Late,
    /// It was seen before.
    #[error("the request was passed on twice")]
    Replayed,
}

impl HopError {
    /// Its name, as a label of metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Forged => "forged",
            Self::Late => "late",
            Self::Replayed => "replayed",
        }
    }
}

impl Hop {
    /// The header for a request to the node `to`; `now` is in milliseconds since 1970.
    #[must_use]
    pub fn header(
        &self,
        keys: &ClusterKeys,
        to: &str,
        (method, uri): (&Method, &Uri),
        now: u64,
    ) -> HeaderValue {
        let from = percent_encode(self.from.as_bytes(), UNRESERVED);
        let way = match self.sender {
            Sender::Client(address) => address.to_string(),
            Sender::LocalUser => "local".to_owned(),
        };
        let entry = match self.entry {
            Entry::Http => "http",
            Entry::Ports => "ports",
        };
        let own = self.own_session.as_ref().map(|own| percent_encode(own.as_str().as_bytes(), UNRESERVED));
        let own = own.map(|own| format!("; own={own}")).unwrap_or_default();
        let nonce = random_hex::<12>();
        let text = format!("from={from}; way={way}; entry={entry}; time={now}; nonce={nonce}{own}");
        let proof = hex(&mac(&keys.hop, &signed(&text, to, method, uri)));
        // Every character of it is visible ASCII.
        HeaderValue::try_from(format!("{text}{PROOF}{proof}"))
            .unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

fn signed(text: &str, to: &str, method: &Method, uri: &Uri) -> Vec<u8> {
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    format!("{method}\n{path}\n{to}\n{text}").into_bytes()
}

/// Checks headers of requests to this node.
pub struct HopCheck {
    /// The name of this node.
    name: String,
    seen: Mutex<SeenNonces>,
}

/// The nonces of the last times: each is kept for [`SKEW`] at least twice over.
#[derive(Default)]
struct SeenNonces {
    /// Which span of 2 × [`SKEW`] `new` is of.
    span: u64,
    new: HashSet<String>,
    old: HashSet<String>,
}

impl HopCheck {
    /// A check for the node of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), seen: Mutex::default() }
    }

    /// Takes the header from a request and checks it; `now` is in milliseconds since 1970.
    ///
    /// # Errors
    /// [`HopError`]; the request is not to be served.
    pub fn take(
        &self,
        keys: &ClusterKeys,
        (method, uri): (&Method, &Uri),
        headers: &mut HeaderMap,
        now: u64,
    ) -> Result<Hop, HopError> {
        let is_one = headers.get_all(HOP).iter().count() == 1;
        let given = headers.remove(HOP).filter(|_| is_one).ok_or(HopError::Missing)?;
        let given = given.to_str().map_err(|_| HopError::Missing)?;
        let (text, proof) = given.split_once(PROOF).ok_or(HopError::Missing)?;
        let want = hex(&mac(&keys.hop, &signed(text, &self.name, method, uri)));
        if !bool::from(want.as_bytes().ct_eq(proof.as_bytes())) {
            return Err(HopError::Forged);
        }
        let member =
            |name: &str| text.split("; ").find_map(|member| member.strip_prefix(name)?.strip_prefix('='));
        let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(std::borrow::Cow::into_owned);
        let time: u64 = member("time").and_then(|time| time.parse().ok()).ok_or(HopError::Missing)?;
        let nonce = member("nonce").ok_or(HopError::Missing)?;
        if u128::from(now.abs_diff(time)) > SKEW.as_millis() {
            return Err(HopError::Late);
        }
        let hop = Self::read(member, decoded).ok_or(HopError::Missing)?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_new(nonce, now) { Ok(hop) } else { Err(HopError::Replayed) }
    }

    fn read<'a, E>(
        member: impl Fn(&str) -> Option<&'a str>,
        decoded: impl Fn(&str) -> Result<String, E>,
    ) -> Option<Hop> {
        let sender = match member("way")? {
            "local" => Sender::LocalUser,
            address => Sender::Client(address.parse().ok()?),
        };
        let entry = match member("entry")? {
            "http" => Entry::Http,
            "ports" => Entry::Ports,
            _ => return None,
        };
        let own_session = match member("own") {
            Some(own) => Some(decoded(own).ok()?.parse().ok()?),
            None => None,
        };
        Some(Hop { from: decoded(member("from")?).ok()?, sender, entry, own_session })
    }
}

impl SeenNonces {
    /// Whether a nonce was not seen before; from now on it was.
    fn is_new(&mut self, nonce: &str, now: u64) -> bool {
        let length = u64::try_from(SKEW.as_millis()).unwrap_or(u64::MAX) * 2;
        let span = now / length;
        if span != self.span {
            let before = std::mem::take(&mut self.new);
            self.old = if span == self.span + 1 { before } else { HashSet::new() };
            self.span = span;
        }
        !self.old.contains(nonce) && self.new.len() < NONCES && self.new.insert(nonce.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_764_100_000_000;

    fn hop() -> Hop {
        Hop {
            from: "a; proof=x".to_owned(),
            sender: Sender::Client("[2001:db8::1]:4711".parse().unwrap()),
            entry: Entry::Http,
            own_session: Some("é; time=0".parse().unwrap()),
        }
    }

    fn keys(secret: &str) -> ClusterKeys {
        ClusterKeys::derive(secret.as_bytes())
    }

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    fn take(
        check: &HopCheck,
        value: HeaderValue,
        method: Method,
        path: &str,
        now: u64,
    ) -> Result<Hop, HopError> {
        let mut headers = HeaderMap::from_iter([(HOP, value)]);
        let taken = check.take(&keys("k"), (&method, &uri(path)), &mut headers, now);
        assert!(!headers.contains_key(HOP), "it is gone whatever it was");
        taken
    }

    #[test]
    fn what_was_told_arrives() {
        let check = HopCheck::new("b");
        for given in
            [hop(), Hop { sender: Sender::LocalUser, entry: Entry::Ports, own_session: None, ..hop() }]
        {
            let header = given.header(&keys("k"), "b", (&Method::PUT, &uri("http://b/x?y")), NOW);
            assert_eq!(take(&check, header, Method::PUT, "/x?y", NOW + 29_000), Ok(given));
        }
    }

    #[test]
    fn a_header_opens_one_request_at_one_node_once() {
        let check = HopCheck::new("b");
        let header = |keys: &ClusterKeys, to: &str| hop().header(keys, to, (&Method::PUT, &uri("/x?y")), NOW);
        let good = header(&keys("k"), "b");
        for (method, path) in [(Method::POST, "/x?y"), (Method::PUT, "/x?z"), (Method::PUT, "/x")] {
            assert_eq!(take(&check, good.clone(), method, path, NOW), Err(HopError::Forged), "{path}");
        }
        let wrong = |header| take(&check, header, Method::PUT, "/x?y", NOW);
        assert_eq!(wrong(header(&keys("another"), "b")), Err(HopError::Forged));
        assert_eq!(wrong(header(&keys("k"), "c")), Err(HopError::Forged));
        let text = good.to_str().unwrap().replace("entry=http", "entry=ports");
        assert_eq!(wrong(text.parse().unwrap()), Err(HopError::Forged));
        for missing in ["", "from=a", "proof=x", "from=a; proof="] {
            assert!(wrong(missing.parse().unwrap()).is_err(), "{missing}");
        }
        assert_eq!(wrong(good.clone()), Ok(hop()));
        assert_eq!(wrong(good), Err(HopError::Replayed));
    }

    #[test]
    fn an_old_header_is_refused_and_a_nonce_is_remembered_for_as_long_as_it_could_be_used() {
        let check = HopCheck::new("b");
        let at = |time| hop().header(&keys("k"), "b", (&Method::GET, &uri("/")), time);
        let take = |header, now| take(&check, header, Method::GET, "/", now);
        assert_eq!(take(at(NOW), NOW + 30_001), Err(HopError::Late));
        assert_eq!(take(at(NOW), NOW - 30_001), Err(HopError::Late));
        for early in (0..60_000).step_by(7_000) {
            let time = NOW + early;
            let header = at(time + 30_000);
            assert_eq!(take(header.clone(), time), Ok(hop()));
            assert_eq!(take(header.clone(), time + 1), Err(HopError::Replayed));
            assert_eq!(take(header, time + 60_000), Err(HopError::Replayed), "{early}");
        }
    }

    #[test]
    fn two_headers_are_none() {
        let header = hop().header(&keys("k"), "b", (&Method::GET, &uri("/")), NOW);
        let mut headers = HeaderMap::new();
        headers.append(HOP, header.clone());
        headers.append(HOP, header);
        let taken = HopCheck::new("b").take(&keys("k"), (&Method::GET, &uri("/")), &mut headers, NOW);
        assert_eq!(taken, Err(HopError::Missing));
        assert!(!headers.contains_key(HOP));
    }
}
