//! Where a request goes: the path that a program asks for, below the URL of its service. Pure.
//!
//! A path that could mean another one to somebody on the way is refused, not mended: servers decode once,
//! twice, or by rules of their own. It must never let a path leave the URL, in any reading of it.

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri, header};
use percent_encoding::percent_decode_str;

use super::settings::{BaseUrl, ZONE};

/// How often a path is decoded, at most, before it has to be plain.
const LEVELS: usize = 4;

/// Why a request is not sent. The text is for the author of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TargetError {
    #[error("a service takes a path such as /v1/items, and neither a whole URL nor *")]
    Form,
    #[error("a service does not take the methods CONNECT and TRACE")]
    Method,
    #[error("the request must have one Host header, with the name of the service that it was sent to")]
    Host,
    #[error("the path has a segment of dots, as it is or encoded: a path must stay below the service's URL")]
    Climbs,
    #[error("the path has a backslash, as it is or encoded")]
    Backslash,
    #[error("the path has two slashes together, as they are or encoded")]
    EmptySegment,
    #[error("the path has a % that two hexadecimal digits do not follow")]
    Escape,
    #[error("the path has encoded bytes that are not UTF-8, or a control character")]
    Characters,
    #[error("the path is encoded more than {LEVELS} times")]
    Depth,
}

/// The URL to which a request goes.
///
/// # Errors
/// Why it goes nowhere.
pub(super) fn target(
    base: &BaseUrl,
    service: &str,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Uri, TargetError> {
    if matches!(*method, Method::CONNECT | Method::TRACE) {
        return Err(TargetError::Method);
    }
    if uri.scheme().is_some() || uri.authority().is_some() {
        return Err(TargetError::Form);
    }
    check_host(service, headers)?;
    let path = below(base, uri.path())?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}{path}{query}", base.origin()).parse().map_err(|_| TargetError::Form)
}

/// A path of the service as a path of the other side.
///
/// # Errors
/// It could lead elsewhere.
pub(super) fn below(base: &BaseUrl, path: &str) -> Result<String, TargetError> {
    check(path)?;
    // The URL itself, as the operator wrote it: to some servers a slash at its end makes a difference.
    if path == "/" { Ok(base.url().path().to_owned()) } else { Ok(format!("{}{path}", base.folder())) }
}

/// One header, with the name of the service, and port 80 if any.
fn check_host(service: &str, headers: &HeaderMap) -> Result<(), TargetError> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(TargetError::Host) };
    let host = host.to_str().map_err(|_| TargetError::Host)?;
    let name = host.strip_suffix(":80").unwrap_or(host);
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_own = name.eq_ignore_ascii_case(&format!("{service}.{ZONE}"));
    if is_own { Ok(()) } else { Err(TargetError::Host) }
}

/// Whether each reading of a path stays where it is.
fn check(path: &str) -> Result<(), TargetError> {
    if !path.starts_with('/') || path.parse::<PathAndQuery>().is_err() {
        return Err(TargetError::Form);
    }
    let digits = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !path.split('%').skip(1).all(digits) {
        return Err(TargetError::Escape);
    }
    let mut reading = path.to_owned();
    for _ in 0..=LEVELS {
        check_reading(&reading)?;
        let decoded = percent_decode_str(&reading).decode_utf8().map_err(|_| TargetError::Characters)?;
        if decoded == reading {
            return Ok(());
        }
        reading = decoded.into_owned();
    }
    Err(TargetError::Depth)
}

fn check_reading(path: &str) -> Result<(), TargetError> {
    if path.chars().any(char::is_control) {
        return Err(TargetError::Characters);
    }
    if path.contains('\\') {
        return Err(TargetError::Backslash);
    }
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && segments.peek().is_some() {
            return Err(TargetError::EmptySegment);
        }
        // Some servers drop what follows a semicolon, and some a space at the end.
        let name = segment.split(';').next().unwrap_or_default().trim();
        if !name.is_empty() && name.bytes().all(|b| b == b'.') {
            return Err(TargetError::Climbs);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use url::Url;

    use super::*;

    fn base() -> BaseUrl {
        BaseUrl::parse("https://api.example/base/v1").expect("a URL")
    }

    fn get(uri: &str, host: &str) -> Result<String, TargetError> {
        let headers = HeaderMap::from_iter([(header::HOST, host.parse().expect("a value"))]);
        target(&base(), "api", &Method::GET, &uri.parse().expect("a target"), &headers)
            .map(|uri| uri.to_string())
    }

    #[test]
    fn a_path_goes_below_the_url_and_a_query_stays_as_it_is() {
        for (asked, sent) in [
            ("/items", "/items"),
            ("/", ""),
            ("/?a=../..&b=%2e%2e/%2F", "?a=../..&b=%2e%2e/%2F"),
            ("/a/b/", "/a/b/"),
            ("/projects/group%2Fproject/x", "/projects/group%2Fproject/x"),
            ("/100%25/.well-known/a..b/...c", "/100%25/.well-known/a..b/...c"),
            ("/a;v=1/b:c@d", "/a;v=1/b:c@d"),
            ("/caf%C3%A9", "/caf%C3%A9"),
        ] {
            assert_eq!(
                get(asked, "api.paddock"),
                Ok(format!("https://api.example/base/v1{sent}")),
                "{asked}"
            );
        }
    }

    #[test]
    fn a_path_that_climbs_in_any_reading_goes_nowhere() {
        use TargetError::*;
        for (asked, expected) in [
            ("/../admin", Climbs),
            ("/a/../../admin", Climbs),
            ("/./a", Climbs),
            ("/a/..", Climbs),
            ("/%2e%2e/admin", Climbs),
            ("/.%2E/admin", Climbs),
            ("/%2F../admin", EmptySegment),
            ("/a%2F..%2Fadmin", Climbs),
            ("/%252e%252e/admin", Climbs),
            ("/%25252e%25252e/admin", Climbs),
            ("/a%252F..%252F..%252Fadmin", Climbs),
            ("/..;/admin", Climbs),
            ("/..;a=b/admin", Climbs),
            ("/..%20/admin", Climbs),
            ("/.../admin", Climbs),
            ("/..\\admin", Backslash),
            ("/a%5c..%5cadmin", Backslash),
            ("/a%255cb", Backslash),
            ("//other.example/", EmptySegment),
            ("/a//b", EmptySegment),
            ("/%2Fother.example/", EmptySegment),
            ("/a%00b", Characters),
            ("/a%0d%0aHost:%20b", Characters),
            ("/%c0%ae%c0%ae/admin", Characters),
            ("/%u002e%u002e/admin", Escape),
            ("/a%", Escape),
            ("/a%2", Escape),
            ("/%2525252525252541", Depth),
            ("http://api.paddock/items", Form),
            ("http://other.example/items", Form),
            ("*", Form),
            ("other.example:80", Form),
        ] {
            assert_eq!(get(asked, "api.paddock"), Err(expected), "{asked}");
        }
    }

    #[test]
    fn only_the_host_of_the_service_itself_is_taken() {
        for host in ["api.paddock", "API.Paddock:80", "api.paddock."] {
            assert!(get("/", host).is_ok(), "{host}");
        }
        for host in ["other.paddock", "api.paddock:8080", "api.example", "", "api.paddock.example", "paddock"]
        {
            assert_eq!(get("/", host), Err(TargetError::Host), "{host}");
        }
        let uri = Uri::from_static("/");
        let mut headers = HeaderMap::new();
        assert_eq!(target(&base(), "api", &Method::GET, &uri, &headers), Err(TargetError::Host), "none");
        headers.append(header::HOST, "api.paddock".parse().expect("a value"));
        headers.append(header::HOST, "api.paddock".parse().expect("a value"));
        assert_eq!(target(&base(), "api", &Method::GET, &uri, &headers), Err(TargetError::Host), "two");
        for method in [Method::CONNECT, Method::TRACE] {
            assert_eq!(target(&base(), "api", &method, &uri, &headers), Err(TargetError::Method));
        }
    }

    /// Reads a path as a browser does, decoded so many times before.
    fn read_as_a_browser(path: &str, times: usize) -> String {
        let mut path = path.to_owned();
        for _ in 0..times {
            path = percent_decode_str(&path).decode_utf8_lossy().into_owned();
        }
        let path = path.replace(['?', '#'], "_");
        Url::parse(&format!("https://api.example{path}")).map_or_else(|_| path, |url| url.path().to_owned())
    }

    proptest! {
        #[test]
        fn what_is_sent_is_below_the_url_in_every_reading(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "/", "\\", ".", "..", "%2e", "%2E", "%2f", "%5c", "%25", "2e", "2f", "a", ";", "%", "%00",
                "é",
                "%c0%ae", " ", "?", "#", "@", ":",
            ]), 0..12),
        ) {
            let path = format!("/{}", pieces.concat());
            if let Ok(sent) = below(&base(), &path) {
                let whole = format!("/base/v1{path}");
                prop_assert!(sent == "/base/v1" || sent == whole);
                for times in 0..6 {
                    let read = read_as_a_browser(&sent, times);
                    let is_below = read == "/base/v1" || read.starts_with("/base/v1/");
                    prop_assert!(is_below, "{} is read as {}", path, read);
                }
            }
        }
    }
}
