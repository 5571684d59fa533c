//! Which headers pass between a program and the other side. Pure.
//!
//! It must never let a program choose a header that the operator has set, nor say who it is to the other side
//! (`Host`, `Forwarded`), nor pass on what is between two neighbours only.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::mask::Patterns;
use super::settings::{BaseUrl, ZONE};

/// Between two neighbours only (RFC 9110, 7.6.1), and the obsolete ones beside them.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// What a proxy says of its client, or a client of itself. Names that begin with [`X_FORWARDED`] too.
const WHO: [&str; 6] = ["host", "forwarded", "via", "x-real-ip", "x-original-url", "x-rewrite-url"];
const X_FORWARDED: &str = "x-forwarded-";
const PROXY: &str = "proxy-";

/// What the daemon decides itself: lengths, and that answers are whole and not compressed, so that values are
/// found in them. It has sent `100 Continue` before.
const OWN: [&str; 5] = ["content-length", "expect", "accept-encoding", "range", "if-range"];

/// The headers of a request as the other side receives them: those of the program that may pass, and the
/// configured ones. Its length is not among them.
pub(super) fn request(from: &HeaderMap, configured: &[(HeaderName, HeaderValue)]) -> HeaderMap {
    let named = named_by_connection(from);
    let passes = |name: &HeaderName| {
        let text = name.as_str();
        !is_between_neighbours(text, &named)
            && !WHO.contains(&text)
            && !text.starts_with(X_FORWARDED)
            && !OWN.contains(&text)
            // Some servers take `x_api_key` for `x-api-key`.
            && !configured.iter().any(|(own, _)| is_alike(own.as_str(), text))
    };
    let mut to: HeaderMap = from
        .iter()
        .filter(|(name, _)| passes(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    to.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for (name, value) in configured {
        to.append(name.clone(), value.clone());
    }
    to
}

/// Whether the daemon may be told by its operator to add this header.
pub(super) fn is_configurable(name: &str) -> bool {
    !is_between_neighbours(name, &[]) && name != "host" && !OWN.contains(&name)
}

fn is_alike(own: &str, other: &str) -> bool {
    own == other || own.replace('_', "-") == other.replace('_', "-")
}

fn is_between_neighbours(name: &str, named: &[String]) -> bool {
    HOP_BY_HOP.contains(&name) || name.starts_with(PROXY) || named.iter().any(|other| other == name)
}

/// The names that `Connection` lists, in lower case.
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::CONNECTION).iter();
    let words = values.flat_map(|value| {
        String::from_utf8_lossy(value.as_bytes())
            .split(',')
            .map(|word| word.trim().to_ascii_lowercase())
            .collect::<Vec<_>>()
    });
    words.collect()
}

/// Whether an answer is as it was asked for: not compressed. In another form its values would not be found.
pub(super) fn is_plain(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut words = codings.flat_map(|value| value.as_bytes().split(|b| *b == b','));
    words.all(|word| {
        let word = word.trim_ascii();
        word.is_empty() || word.eq_ignore_ascii_case(b"identity")
    })
}

/// The headers of an answer as the program receives them, masked. A place that is the service's own is
/// written as the program knows it. `asked` is the URL that was asked.
pub(super) fn answer(
    from: &HeaderMap,
    (base, service): (&BaseUrl, &str),
    asked: &str,
    patterns: &Patterns,
) -> HeaderMap {
    let named = named_by_connection(from);
    let mut to = HeaderMap::with_capacity(from.len());
    for (name, value) in from {
        let text = name.as_str();
        // Another way to the same server would go round the service.
        if is_between_neighbours(text, &named) || text == "alt-svc" || patterns.are_in_name(text) {
            continue;
        }
        let is_place = matches!(*name, header::LOCATION | header::CONTENT_LOCATION);
        let place = is_place.then(|| place(value, (base, service), asked)).flatten();
        let value = place.as_ref().unwrap_or(value);
        let mut bytes = value.as_bytes().to_vec();
        patterns.mask(&mut bytes);
        if let Ok(value) = HeaderValue::from_bytes(&bytes) {
            to.append(name.clone(), value);
        }
    }
    to
}

/// A place of the other side as the program knows it; `None` if it stays as it is.
fn place(value: &HeaderValue, (base, service): (&BaseUrl, &str), asked: &str) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    let found = Url::parse(asked).ok()?.join(text).ok()?;
    let folder = base.folder();
    let is_own = found[..url::Position::BeforePath] == *base.origin();
    let below = found.path().strip_prefix(folder).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    match below {
        Some(rest) if is_own => {
            let slash = if rest.is_empty() { "/" } else { "" };
            let rest = format!("{slash}{rest}{}", &found[url::Position::AfterPath..]);
            HeaderValue::try_from(format!("http://{service}.{ZONE}{rest}")).ok()
        }
        // A path alone would mean one of the service.
        _ if Url::parse(text).is_err() => HeaderValue::try_from(found.as_str()).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let parse = |(name, value): &(&str, &str)| {
            (HeaderName::try_from(*name).expect("a name"), HeaderValue::try_from(*value).expect("a value"))
        };
        lines.iter().map(parse).collect()
    }

    fn lines(headers: &HeaderMap) -> Vec<(&str, &str)> {
        headers.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("text"))).collect()
    }

    #[test]
    fn a_program_cannot_set_a_configured_header_nor_speak_for_somebody_else() {
        let own = (header::AUTHORIZATION, HeaderValue::from_static("Bearer real-credential"));
        let key = (HeaderName::from_static("x-api-key"), HeaderValue::from_static("real-key-1"));
        let sent = request(
            &headers(&[
                ("Authorization", "Bearer mine"),
                ("authorization", "Basic mine"),
                ("X-Api-Key", "mine"),
                ("X_Api_Key", "mine"),
                ("Accept", "text/plain"),
                ("Cookie", "a=1"),
                ("Cookie", "b=2"),
                ("Connection", "keep-alive, X-Secret-Hop"),
                ("Connection", "close,ACCEPT-LANGUAGE"),
                ("X-Secret-Hop", "1"),
                ("Accept-Language", "de"),
                ("Keep-Alive", "1"),
                ("Proxy-Authorization", "Basic cnVuOng="),
                ("Proxy-Connection", "close"),
                ("TE", "trailers"),
                ("Trailer", "x"),
                ("Transfer-Encoding", "chunked"),
                ("Upgrade", "h2c"),
                ("HTTP2-Settings", "x"),
                ("Range", "bytes=0-3"),
                ("If-Range", "\"a\""),
                ("Host", "api.paddock"),
                ("Forwarded", "for=1.2.3.4"),
                ("X-Forwarded-For", "1.2.3.4"),
                ("X-Forwarded-Host", "a"),
                ("X-Real-IP", "1.2.3.4"),
                ("Content-Length", "3"),
                ("Expect", "100-continue"),
                ("Accept-Encoding", "gzip"),
            ]),
            &[own, key],
        );
        let mut sent = lines(&sent);
        sent.sort_unstable();
        let expected = [
            ("accept", "text/plain"),
            ("accept-encoding", "identity"),
            ("authorization", "Bearer real-credential"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("x-api-key", "real-key-1"),
        ];
        assert_eq!(sent, expected);
    }

    #[test]
    fn an_answer_has_no_value_and_leads_back_to_the_service() {
        let patterns = Patterns::of(["real-credential"]);
        let base = BaseUrl::parse("https://api.example/v1").expect("a URL");
        let got = answer(
            &headers(&[
                ("X-Echo", "Bearer real-credential, real-credential"),
                ("X-Real-Credential", "1"),
                ("Connection", "x-hop"),
                ("X-Hop", "1"),
                ("Alt-Svc", "h3=\":443\""),
                ("Content-Length", "5"),
                ("Set-Cookie", "a=1"),
            ]),
            (&base, "api"),
            "https://api.example/v1/a",
            &patterns,
        );
        let stars = "*".repeat(15);
        let echo = format!("Bearer {stars}, {stars}");
        assert_eq!(lines(&got), [("x-echo", &*echo), ("content-length", "5"), ("set-cookie", "a=1")]);
        for (told, expected) in [
            ("https://api.example/v1/b?x=1#y", "http://api.paddock/b?x=1#y"),
            ("https://API.example:443/v1/b", "http://api.paddock/b"),
            ("https://api.example/v1", "http://api.paddock/"),
            ("/v1/b", "http://api.paddock/b"),
            ("b/c", "http://api.paddock/a/b/c"),
            ("//api.example/v1/b", "http://api.paddock/b"),
            ("/login", "https://api.example/login"),
            ("../../login", "https://api.example/login"),
            ("https://api.example/v10/b", "https://api.example/v10/b"),
            ("http://api.example/v1/b", "http://api.example/v1/b"),
            (
                "https://other.example/v1/b?k=real-credential",
                &format!("https://other.example/v1/b?k={stars}"),
            ),
        ] {
            let from = headers(&[("Location", told)]);
            let got = answer(&from, (&base, "api"), "https://api.example/v1/a/x", &patterns);
            assert_eq!(got[header::LOCATION], expected, "{told}");
        }
    }

    #[test]
    fn only_a_plain_answer_can_be_searched() {
        for (value, expected) in
            [("identity", true), ("", true), ("gzip", false), ("identity, br", false), ("GZIP", false)]
        {
            assert_eq!(is_plain(&headers(&[("Content-Encoding", value)])), expected, "{value}");
        }
        assert!(is_plain(&HeaderMap::new()));
    }
}
