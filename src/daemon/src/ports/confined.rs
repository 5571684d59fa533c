//! What must hold for whatever a server says: for the fuzz target of the way in.

use super::PortPath;
use super::cookies::{CookieKey, is_below};
use super::location::Addresses;

const PREFIX: &str = "/sig/s/8000";

/// Reads a text as a cookie, an address and a path: nothing of it leads out of the prefix, nor goes in
/// without its mark.
pub(crate) fn expect_confined(text: &str) {
    let key = CookieKey::new([3; 32]);
    for cookie in key.confined(text, PREFIX, true).into_iter().flatten() {
        let lower = cookie.to_ascii_lowercase();
        let mut attributes = lower.split("; ").skip(1);
        let path = attributes.find_map(|part| part.strip_prefix("path=")).expect("a path");
        assert!(is_below(path, PREFIX) && !path.split('/').any(|part| part == ".."), "{cookie}");
        assert!(!attributes.any(|part| part.starts_with("path=") || part.starts_with("domain=")), "{cookie}");
        assert!(!cookie.contains(['\r', '\n', '\0']), "{cookie:?}");
    }
    assert_eq!(key.admitted([text].into_iter()), None, "nobody can make a mark");
    let outside = "http://box.example:9090".to_owned();
    let addresses = Addresses { outside, prefix: PREFIX.to_owned(), port: 8000 };
    let is_path = text.starts_with('/') && !text.starts_with("//") && !text.starts_with("/\\");
    let sent = addresses.outward(text);
    assert!(!is_path || is_below(&sent, PREFIX), "{text:?} became {sent:?}");
    let _ = (addresses.origin(text), addresses.referer(text));
    if let Some(path) = PortPath::parse(text) {
        assert!(path.port > 0 && (path.rest.is_empty() || path.rest.starts_with('/')), "{path:?}");
    }
}
