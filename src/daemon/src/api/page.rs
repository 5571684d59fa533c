//! `GET /`: a page on which people run code and see its output. Its files are embedded in the daemon; each
//! has a tag made of its content.
//!
//! The page must never load anything from elsewhere, run anything inline, or be shown in another page's
//! frame: the policy below makes the browser enforce that. Its only frames are PDFs of a conversation, which
//! the daemon sends with the policy `sandbox`, as all files.

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use sha2::{Digest, Sha256};

use super::body::{Answer, full};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// The browser's features that the page never uses.
const PERMISSIONS: &str = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the page: its path, its type, and its text.
type PageAsset = (&'static str, &'static str, &'static str);

/// The scripts in `page/`, each served under its own name.
macro_rules! scripts {
    ($($name:literal)+) => {
        [$((concat!("/page/", $name), SCRIPT, include_str!(concat!("page/", $name)))),+]
    };
}

const SHELL: [PageAsset; 4] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/page/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page/task.css", "text/css; charset=utf-8", include_str!("page/task.css")),
    ("/page/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

const SCRIPTS: [PageAsset; 26] = scripts! {
    "access.js" "connect.js" "conversation.js" "diff.js" "dom.js" "editor.js" "examples.js" "exception.js"
    "files.js" "history.js" "http.js" "made.js" "main.js" "mcp.js" "output.js" "pool.js" "preview.js"
    "runs.js" "status.js" "tabs.js" "task-view.js" "task.js" "text.js" "theme.js" "timing.js" "upload.js"
};

/// The entity tag of each file, by its path. Computed only once, since anybody may request these files as
/// often as they like.
static ETAGS: LazyLock<HashMap<&'static str, String>> = LazyLock::new(|| {
    let etag = |text: &str| format!("\"{}\"", &crate::id::hex(&Sha256::digest(text))[..32]);
    SHELL.iter().chain(&SCRIPTS).map(|(at, _, text)| (*at, etag(text))).collect()
});

/// The file of the page at `path`, or 304 if the client has it already. `None` if there is no such file.
pub(super) fn part(path: &str, headers: &HeaderMap) -> Option<Answer> {
    let (_, mime, text) = SHELL.iter().chain(&SCRIPTS).find(|(at, ..)| *at == path)?;
    let etag = ETAGS.get(path)?;
    let mut tags = headers.get_all(IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    let known = |tag: &str| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag.as_str();
    let is_known = tags.any(|tags| tags.split(',').any(|tag| known(tag.trim())));
    let mut answer =
        Response::new(full(if is_known { Bytes::new() } else { Bytes::from_static(text.as_bytes()) }));
    if is_known {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let fixed = [
        (CONTENT_TYPE, *mime),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-cache"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), PERMISSIONS),
    ];
    for (name, value) in fixed {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer.headers_mut().insert(ETAG, HeaderValue::try_from(etag).ok()?);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str, known: Option<&str>) -> Answer {
        let known = known.map(|tag| (IF_NONE_MATCH, HeaderValue::from_str(tag).unwrap()));
        part(path, &known.into_iter().collect()).unwrap()
    }

    #[test]
    fn all_scripts_are_served_and_nothing_else() {
        let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api/page");
        let mut there: Vec<String> = std::fs::read_dir(here)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_type().unwrap().is_file())
            .map(|entry| {
                format!("/page/{}", entry.file_name().to_str().unwrap()).replace("/page/index.html", "/")
            })
            .collect();
        let mut served: Vec<String> = SHELL.iter().chain(&SCRIPTS).map(|(at, ..)| (*at).to_owned()).collect();
        there.sort();
        served.sort();
        assert_eq!(served, there);
        for path in ["/page", "/page/", "/page/none.js", "/page/../page.rs", "/index.html", "/main.js"] {
            assert!(part(path, &HeaderMap::new()).is_none(), "{path}");
        }
    }

    #[test]
    fn a_file_that_a_client_has_is_not_sent_again() {
        let first = get("/page/main.js", None);
        let etag = first.headers()[ETAG].to_str().unwrap().to_owned();
        for known in [etag.clone(), format!("\"x\", W/{etag}"), "*".to_owned()] {
            let again = get("/page/main.js", Some(&known));
            assert_eq!(
                (again.status(), &again.headers()[ETAG]),
                (StatusCode::NOT_MODIFIED, &first.headers()[ETAG])
            );
        }
        assert_eq!(get("/page/http.js", Some(&etag)).status(), StatusCode::OK);
    }

    #[test]
    fn nothing_is_inline() {
        let (_, _, html) = SHELL[0];
        assert_eq!(html.matches("<script").count(), html.matches("<script src=\"page/").count());
        for inline in ["<style", " style=", " onclick", "javascript:", "http://", "https://", "=\"/"] {
            assert!(!html.contains(inline), "{inline}");
        }
    }
}
