//! `GET /`: a page for people, to try a run by hand. Its parts are embedded; it loads nothing from elsewhere and
//! runs nothing inline.

use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY};
use http::{Response, header};

use super::body::{Answer, full};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The part of the page at `path`.
pub(super) fn part(path: &str) -> Option<Answer> {
    let (mime, text) = match path {
        "/" => ("text/html; charset=utf-8", include_str!("page/index.html")),
        "/page.js" => ("text/javascript; charset=utf-8", include_str!("page/page.js")),
        "/page.css" => ("text/css; charset=utf-8", include_str!("page/page.css")),
        _ => return None,
    };
    let mut answer = Response::new(full(text));
    for (name, value) in [
        (CONTENT_TYPE, mime),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-cache"),
        (REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Some(answer)
}
