//! Cookies of servers in containers: each is confined to the path of its link, and comes back only to the
//! server that set it. Pure.
//!
//! ```text
//!  Set-Cookie: a=b; Path=/x; Domain=…  ─► Set-Cookie: a=b; Path=PREFIX/x
//!                                         Set-Cookie: paddock-a=MAC; Path=PREFIX/x; HttpOnly     the mark
//!  Cookie: a=b; paddock-a=MAC; c=d     ─► Cookie: a=b
//! ```
//!
//! Browsers keep cookies by host name, not by port: they also send those of the daemon's host, of a proxy in
//! front of it, say. A name or a path does not tell whose a cookie is, since a hostile server could set one
//! of the same name. So each cookie has a mark beside it, a MAC over the port's own key, its name and its
//! value, and without its mark no cookie goes in. A cookie that the script of a page makes up has none.
//!
//! It must never let a cookie in that this port's server did not set, nor out with a path that leads above
//! the prefix.

use subtle::ConstantTimeEq;

use crate::id::hex;
use crate::sign::mac;

/// What the name of a mark begins with. No server can set a cookie of such a name.
const MARK: &str = "paddock-";

/// Bytes of a mark's MAC.
const MARK_BYTES: usize = 16;

/// Names that a browser takes only with `Path=/` or over TLS, which a link cannot promise.
const REFUSED: [&str; 4] = ["__host-", "__secure-", "__http-", MARK];

/// Marks the cookies of one port.
pub(super) struct CookieKey([u8; 32]);

impl CookieKey {
    pub(super) fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    fn mark(&self, name: &str, value: &str) -> String {
        hex(&mac(&self.0, format!("{name}={value}").as_bytes())[..MARK_BYTES])
    }

    /// What a browser is to be told in place of this `Set-Cookie`: the cookie and its mark. `None` if the
    /// cookie is dropped: it has no name, or one that is refused. `is_tls`: browsers come by https.
    pub(super) fn confined(&self, set: &str, prefix: &str, is_tls: bool) -> Option<[String; 2]> {
        let mut parts = set.split(';');
        let (name, value) = parts.next()?.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let lower = name.to_ascii_lowercase();
        if !is_token(name) || !is_value(value) || REFUSED.iter().any(|refused| lower.starts_with(refused)) {
            return None;
        }
        let (mut path, mut kept, mut is_hidden) = (String::new(), String::new(), false);
        for part in parts {
            let (key, text) = part.split_once('=').map_or((part, ""), |(key, text)| (key, text.trim()));
            match key.trim().to_ascii_lowercase().as_str() {
                "path" => path = below(text, prefix),
                "max-age" if is_number(text) => kept += &format!("; Max-Age={text}"),
                "expires" if text.bytes().all(|b| b.is_ascii_alphanumeric() || b" ,:-+".contains(&b)) => {
                    kept += &format!("; Expires={text}");
                }
                "samesite" if is_same_site(text) => kept += &format!("; SameSite={text}"),
                // Browsers refuse what is not sent over TLS with one of these.
                "samesite" if is_tls && text.eq_ignore_ascii_case("none") => kept += "; SameSite=None",
                "secure" if is_tls => kept += "; Secure",
                "partitioned" if is_tls => kept += "; Partitioned",
                "httponly" => is_hidden = true,
                // The domain above all: without one a cookie is for its host alone.
                _ => {}
            }
        }
        let path = if path.is_empty() { format!("{prefix}/") } else { path };
        let hidden = if is_hidden { "; HttpOnly" } else { "" };
        let mark = self.mark(name, value);
        Some([
            format!("{name}={value}; Path={path}{kept}{hidden}"),
            format!("{MARK}{name}={mark}; Path={path}{kept}; HttpOnly"),
        ])
    }

    /// What the server is sent of these `Cookie` headers; `None` if nothing is left.
    pub(super) fn admitted<'a>(&self, given: impl Iterator<Item = &'a str>) -> Option<String> {
        let all: Vec<(&str, &str)> = given
            .flat_map(|header| header.split(';'))
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim()))
            .collect();
        let is_ours = |(name, value): &&(&str, &str)| {
            let mark = self.mark(name, value);
            let marks = all.iter().filter(|(other, _)| other.strip_prefix(MARK) == Some(*name));
            !name.starts_with(MARK)
                && marks.fold(false, |found, (_, given)| {
                    found | bool::from(given.as_bytes().ct_eq(mark.as_bytes()))
                })
        };
        let kept: Vec<String> =
            all.iter().filter(is_ours).map(|(name, value)| format!("{name}={value}")).collect();
        (!kept.is_empty()).then(|| kept.join("; "))
    }
}

/// The path of a cookie, below the prefix.
fn below(path: &str, prefix: &str) -> String {
    // What is no path means the default; a browser would stop reading at other bytes, or normalise dots.
    let is_plain = path.starts_with('/')
        && path.bytes().all(|b| b.is_ascii_graphic())
        && !path.split('/').any(|part| matches!(part, "." | ".."));
    match path {
        // The server knows the prefix by `X-Forwarded-Prefix`.
        _ if is_plain && is_below(path, prefix) => path.to_owned(),
        _ if is_plain => format!("{prefix}{path}"),
        _ => String::new(),
    }
}

/// Whether a path is the prefix or below it.
pub(super) fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
}

fn is_same_site(text: &str) -> bool {
    ["lax", "strict"].iter().any(|known| text.eq_ignore_ascii_case(known))
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

fn is_token(name: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&b);
    !name.is_empty() && name.bytes().all(is_letter)
}

fn is_value(value: &str) -> bool {
    value.bytes().all(|b| (b' '..=b'~').contains(&b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PREFIX: &str = "/sig/s/80";

    fn key() -> CookieKey {
        CookieKey::new([1; 32])
    }

    fn confined(set: &str) -> Option<String> {
        key().confined(set, PREFIX, false).map(|[cookie, _]| cookie)
    }

    #[test]
    fn a_cookie_is_confined_to_its_path() {
        for (set, is) in [
            ("a=b", "a=b; Path=/sig/s/80/"),
            ("a=", "a=; Path=/sig/s/80/"),
            ("a=b=c; Path=/", "a=b=c; Path=/sig/s/80/"),
            ("a=b; path=/app; HttpOnly", "a=b; Path=/sig/s/80/app; HttpOnly"),
            ("a=b; Path=/sig/s/80/app", "a=b; Path=/sig/s/80/app"),
            ("a=b; Path=/sig/s/800", "a=b; Path=/sig/s/80/sig/s/800"),
            ("a=b; Path=/..", "a=b; Path=/sig/s/80/"),
            ("a=b; Path=/x/../../..", "a=b; Path=/sig/s/80/"),
            ("a=b; Path=x", "a=b; Path=/sig/s/80/"),
            ("a=b; Path=", "a=b; Path=/sig/s/80/"),
            ("a=b; Domain=example.com; Secure; Partitioned; SameSite=None", "a=b; Path=/sig/s/80/"),
            ("a=b; Max-Age=10; SameSite=Lax", "a=b; Path=/sig/s/80/; Max-Age=10; SameSite=Lax"),
            ("a=b; Max-Age=1,2; Odd=1; Priority", "a=b; Path=/sig/s/80/"),
            (
                "a=b; Expires=Wed, 21 Oct 2026 07:28:00 GMT",
                "a=b; Path=/sig/s/80/; Expires=Wed, 21 Oct 2026 07:28:00 GMT",
            ),
        ] {
            assert_eq!(confined(set).as_deref(), Some(is), "{set}");
        }
        let tls = key().confined("a=b; SameSite=None; Secure; Partitioned", PREFIX, true).expect("kept");
        assert_eq!(tls[0], "a=b; Path=/sig/s/80/; SameSite=None; Secure; Partitioned");
        for dropped in [
            "",
            "a",
            "=b",
            " =b",
            "__Host-a=b; Path=/; Secure",
            "__SECURE-a=b; Secure",
            "paddock-a=b",
            "Paddock-a=b",
            "a b=c",
            "a\"=c",
            "é=c",
            "a=\u{7f}",
        ] {
            assert_eq!(confined(dropped), None, "{dropped}");
        }
    }

    #[test]
    fn only_cookies_that_this_server_set_come_back() {
        let pair = |cookie: &str| cookie.split(';').next().expect("a pair").to_owned();
        let [cookie, mark] = key().confined("a=b; Path=/x; Expires=0", PREFIX, false).expect("kept");
        assert!(mark.ends_with("; Path=/sig/s/80/x; Expires=0; HttpOnly"), "{mark}");
        let (cookie, mark) = (pair(&cookie), pair(&mark));
        let admitted = |key: &CookieKey, given: &[&str]| key.admitted(given.iter().copied());
        let both = format!("daemon=secret; {cookie}; {mark}; c=d");
        assert_eq!(admitted(&key(), &[&both]).as_deref(), Some("a=b"));
        assert_eq!(admitted(&key(), &[&cookie, &mark]).as_deref(), Some("a=b"), "in two headers");
        assert_eq!(admitted(&CookieKey::new([2; 32]), &[&both]), None, "of another port");
        for without in ["a=b", "", ";;=;", "daemon=secret", "paddock-a=0; a=b", mark.as_str()] {
            assert_eq!(admitted(&key(), &[without]), None, "{without}");
        }
        // Another cookie of the same name, of the host as a whole.
        let same = format!("{cookie}; a=other; {mark}");
        assert_eq!(admitted(&key(), &[&same]).as_deref(), Some("a=b"));
    }

    proptest! {
        #[test]
        fn no_cookie_leaves_the_prefix(set in "[ -~]{0,60}", path in "[ -~]{0,30}", is_tls: bool) {
            for set in [set.clone(), format!("{set}; Path={path}"), format!("a=b; path={path}; domain=x")] {
                for cookie in key().confined(&set, PREFIX, is_tls).into_iter().flatten() {
                    let lower = cookie.to_ascii_lowercase();
                    let at = lower.match_indices("; path=");
                    let paths: Vec<_> = at.map(|(at, found)| &lower[at + found.len()..]).collect();
                    prop_assert_eq!(paths.len(), 1, "{}", cookie);
                    let path = paths[0].split(';').next().unwrap_or("");
                    let climbs = path.split('/').any(|part| part == "..");
                    prop_assert!(is_below(path, PREFIX) && !climbs, "{}", cookie);
                    prop_assert!(!lower.contains("; domain="), "{}", cookie);
                }
            }
        }

        #[test]
        fn nothing_goes_in_without_its_mark(given in "[ -~]{0,80}") {
            prop_assert_eq!(key().admitted([given.as_str()].into_iter()), None);
        }
    }
}
