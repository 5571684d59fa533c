//! Links to ports: `/{signature}/{session}/{port}/…` on the listener of ports, and
//! `/ports/{session}/{port}/…` at the daemon's own address. Pure.
//!
//! The signature is hex HMAC-SHA256 over `session/port`, where the session id is percent-encoded. It is a
//! part of the path so that relative addresses in a page keep it. Its keys are derived from a secret of the
//! store that signs nothing else, one for each owner: the key that verifies a link determines the owner of
//! the session.
//!
//! It must never compare in a time that depends on a secret, nor let two paths of different ports have the
//! same signed text.

use std::fmt::Display;
use std::sync::{Arc, PoisonError, RwLock};

use http::Uri;
use percent_encoding::{percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use super::cookies::CookieKey;
use crate::id::hex;
use crate::session::SessionId;
use crate::sign::{DEFAULT_OWNER, UNRESERVED, mac};

/// Where links lead.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LinkBase {
    /// To the listener of ports, whose URL this is.
    Listener(String),
    /// To the daemon's own address, where a token is needed.
    Token(String),
}

/// Makes and verifies links to ports.
pub struct PortLinks {
    base: LinkBase,
    secret: [u8; 32],
    keys: RwLock<Arc<OwnerKeys>>,
    cookies: [u8; 32],
}

/// Owner and key.
type OwnerKeys = Vec<(String, [u8; 32])>;

fn owner_keys<'a>(secret: &[u8; 32], owners: impl IntoIterator<Item = &'a str>) -> Arc<OwnerKeys> {
    let mut names: Vec<_> = owners.into_iter().chain([DEFAULT_OWNER]).collect();
    names.sort_unstable();
    names.dedup();
    Arc::new(names.into_iter().map(|name| (name.to_owned(), derived(secret, "link", name))).collect())
}

fn derived(secret: &[u8; 32], kind: &str, name: &str) -> [u8; 32] {
    mac(secret, format!("{kind}\n{name}").as_bytes())
}

/// A port of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortTarget {
    /// Whose the session is: the name of a token.
    pub owner: String,
    /// The session.
    pub session: SessionId,
    /// The TCP port, which is not 0.
    pub port: u16,
}

/// A port on which a program began to listen, as callers are told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenPort {
    /// The TCP port.
    pub port: u16,
    /// The link to it.
    pub url: String,
}

/// The path of a request to a port, in parts.
#[derive(Debug, PartialEq, Eq)]
pub struct PortPath<'a> {
    /// The session.
    pub session: SessionId,
    /// The TCP port, which is not 0.
    pub port: u16,
    /// What the server in the container is asked for: empty, or it begins with a slash.
    pub rest: &'a str,
}

impl<'a> PortPath<'a> {
    /// Reads `{session}/{port}` and what follows; `None` if it has another form.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let (session, behind) = text.split_once('/')?;
        let at = behind.find('/').unwrap_or(behind.len());
        let (port, rest) = behind.split_at(at);
        let session = percent_decode_str(session).decode_utf8().ok()?.parse().ok()?;
        // One text for each port: no sign, no zero in front.
        let is_plain = port.bytes().all(|b| b.is_ascii_digit()) && !port.starts_with('0');
        let port = port.parse().ok().filter(|_| is_plain)?;
        Some(Self { session, port, rest })
    }
}

impl PortLinks {
    /// Links below `listener`, the URL of the listener of ports; or, where there is none, below `/ports` of
    /// `daemon`, the daemon's own URL. `owners` are the names of tokens.
    pub fn new<'a>(
        listener: Option<&str>,
        daemon: &str,
        secret: &[u8; 32],
        owners: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let trimmed = |url: &str| url.trim_end_matches('/').to_owned();
        let base = match listener {
            Some(url) => LinkBase::Listener(trimmed(url)),
            None => LinkBase::Token(trimmed(daemon)),
        };
        let (keys, cookies) = (owner_keys(secret, owners), derived(secret, "cookies", ""));
        Self { base, secret: *secret, keys: RwLock::new(keys), cookies }
    }

    /// From now on these owners have links, beside the default one, and no others.
    pub fn set_owners<'a>(&self, owners: impl IntoIterator<Item = &'a str>) {
        let keys = owner_keys(&self.secret, owners);
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    fn keys(&self) -> Arc<OwnerKeys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Links of no owner but the default one.
    #[cfg(test)]
    pub(crate) fn for_tests() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self::new(Some("http://ports.test"), "", &[0; 32], []))
    }

    /// The link to a port. For an owner without a token the link is invalid.
    #[must_use]
    pub fn link(&self, owner: &str, session: &SessionId, port: u16) -> OpenPort {
        let place = place(session, port);
        let url = match &self.base {
            LinkBase::Listener(base) => {
                let keys = self.keys();
                let key = keys.iter().find(|(name, _)| name == owner);
                let signature = key.map(|(_, key)| signature(key, &place)).unwrap_or_default();
                format!("{base}/{signature}/{place}/")
            }
            LinkBase::Token(base) => format!("{base}/ports/{place}/"),
        };
        OpenPort { port, url }
    }

    /// The owner whose key made this signature of a session's port.
    #[must_use]
    pub fn owner(&self, given: &str, session: &SessionId, port: u16) -> Option<String> {
        let (place, mut owner) = (place(session, port), None);
        for (name, key) in self.keys().iter() {
            if bool::from(signature(key, &place).as_bytes().ct_eq(given.as_bytes())) {
                owner = Some(name.clone());
            }
        }
        owner
    }

    /// The path in front of everything that a server is asked for by its link on the listener of ports, as a
    /// browser has it: with that of the listener's public URL, and without a slash at the end.
    #[must_use]
    pub fn prefix(&self, signature: &str, session: &SessionId, port: u16) -> String {
        let base = match &self.base {
            LinkBase::Listener(base) => path_of(base),
            LinkBase::Token(_) => String::new(),
        };
        format!("{base}/{signature}/{}", place(session, port))
    }

    /// The scheme by which browsers reach the listener of ports.
    #[must_use]
    pub fn scheme(&self) -> &str {
        match &self.base {
            LinkBase::Listener(base) => scheme_of(base),
            LinkBase::Token(_) => "http",
        }
    }

    /// What marks the cookies that this port's server sets, wherever it is reached.
    pub(super) fn cookie_key(&self, target: &PortTarget) -> CookieKey {
        let text = format!("{}\n{}", target.owner, place(&target.session, target.port));
        CookieKey::new(mac(&self.cookies, text.as_bytes()))
    }
}

/// The path of a port below a prefix; also the text that is signed.
pub(super) fn place(session: &SessionId, port: impl Display) -> String {
    format!("{}/{port}", utf8_percent_encode(session.as_str(), UNRESERVED))
}

/// The path of a URL, without a slash at its end.
pub(super) fn path_of(url: &str) -> String {
    let path = url.parse::<Uri>().map(|uri| uri.path().to_owned()).unwrap_or_default();
    path.trim_end_matches('/').to_owned()
}

/// `https` if the URL begins so, or `http`.
pub(super) fn scheme_of(url: &str) -> &'static str {
    if url.starts_with("https://") { "https" } else { "http" }
}

fn signature(key: &[u8; 32], place: &str) -> String {
    hex(&mac(key, place.as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn links(listener: Option<&str>) -> PortLinks {
        PortLinks::new(listener, "http://127.0.0.1:8080", &[7; 32], ["alice"])
    }

    fn id(text: &str) -> SessionId {
        text.parse().expect("a session id")
    }

    #[test]
    fn a_link_opens_its_own_port_and_names_its_owner() {
        let links = links(Some("https://ports.example/p/"));
        let url = links.link("alice", &id("a b"), 8000).url;
        let rest = url.strip_prefix("https://ports.example/p/").expect("the base");
        let (signature, place) = rest.split_once('/').expect("a signature");
        assert_eq!((signature.len(), place), (64, "a%20b/8000/"));
        assert_eq!(links.owner(signature, &id("a b"), 8000).as_deref(), Some("alice"));
        assert_eq!(links.prefix(signature, &id("a b"), 8000), format!("/p/{signature}/a%20b/8000"));
        links.set_owners(["bob"]);
        assert_eq!(links.owner(signature, &id("a b"), 8000), None, "an owner without a token has no links");
        links.set_owners(["alice"]);
        assert_eq!(links.scheme(), "https");
        for (session, port) in [("a b", 8001), ("a", 8000), ("a%20b", 8000), ("a b/8000", 1)] {
            let Ok(session) = session.parse::<SessionId>() else { continue };
            assert_eq!(links.owner(signature, &session, port), None, "{session} {port}");
        }
        let other = PortLinks::new(Some("https://ports.example"), "", &[8; 32], ["alice"]);
        assert_eq!(other.owner(signature, &id("a b"), 8000), None, "of another secret");
        for wrong in ["", "0", &signature[1..], &signature.to_uppercase(), &format!("{signature}0")] {
            assert_eq!(links.owner(wrong, &id("a b"), 8000), None, "{wrong}");
        }
        let of_default = links.link(DEFAULT_OWNER, &id("a b"), 8000).url;
        assert_ne!(of_default, url);
        let of_nobody = links.link("nobody", &id("a b"), 8000).url;
        assert!(of_nobody.contains("/p//a%20b/"), "{of_nobody}");
    }

    #[test]
    fn without_a_listener_a_link_needs_a_token() {
        let url = links(None).link(DEFAULT_OWNER, &id("s"), 3000).url;
        assert_eq!(url, "http://127.0.0.1:8080/ports/s/3000/");
    }

    #[test]
    fn paths_are_read_in_one_way_only() {
        let read = |text| PortPath::parse(text).map(|path| (path.session.to_string(), path.port, path.rest));
        let some = |session: &str, port, rest| Some((session.to_owned(), port, rest));
        assert_eq!(read("s/80"), some("s", 80, ""));
        assert_eq!(read("s/65535/"), some("s", 65535, "/"));
        assert_eq!(read("a%20b/1//../x%2Fy"), some("a b", 1, "//../x%2Fy"));
        for wrong in [
            "", "s", "s/", "s//", "/80/", "s/0/", "s/00/", "s/080/", "s/+80/", "s/-1/", "s/65536/", "s/abc/",
            "s/8 0/", "s/80x", "s/ 80/", "s/٣/", "%ff/80/", "s/80?",
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn what_a_link_says_is_what_is_read(
            session in "[a-zA-Z0-9 ._%:/-]{1,40}",
            port in 1..=u16::MAX,
            rest in "(/[ -~]{0,20})?",
        ) {
            let Ok(session) = session.parse::<SessionId>() else { return Ok(()) };
            let text = format!("{}{rest}", place(&session, port));
            prop_assert_eq!(PortPath::parse(&text), Some(PortPath { session, port, rest: &rest }));
        }

        #[test]
        fn a_path_of_any_form_is_read_without_a_panic(text in ".{0,60}") {
            let _ = PortPath::parse(&text);
        }
    }
}
