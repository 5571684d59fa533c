//! The path of a request below `/sessions/`: it names a session and perhaps a file. Each part is decoded
//! once, and a path that could name another file is refused.

use paddock_proto::RelPath;
use percent_encoding::percent_decode_str;

use super::{RawRefusal, invalid};
use crate::session::SessionId;
use crate::tools::Fault;

/// The session and the file that a path names.
pub(in crate::api) struct SessionPath {
    pub(in crate::api) id: SessionId,
    pub(in crate::api) path: Option<RelPath>,
}

impl SessionPath {
    /// Decodes each part once; `None` for a path that is no route.
    pub(in crate::api) fn parse(rest: &str) -> Result<Option<Self>, RawRefusal> {
        let Some((id, rest)) = rest.split_once('/') else { return Ok(None) };
        let path = match rest.strip_prefix("files") {
            Some("") => None,
            Some(path) => match path.strip_prefix('/') {
                Some(path) => Some(path),
                None => return Ok(None),
            },
            None => return Ok(None),
        };
        let id = percent_decode_str(id).decode_utf8().map_err(|_| invalid("the session's id is no UTF-8"))?;
        let id = id.parse().map_err(|error| invalid(format!("the session's id {error}")))?;
        Ok(Some(Self { id, path: path.map(parse_path).transpose()? }))
    }
}

fn parse_path(path: &str) -> Result<RelPath, Fault> {
    let shown: String = path.chars().take(80).collect();
    let parts: Vec<Vec<u8>> = path.split('/').map(|part| percent_decode_str(part).collect()).collect();
    if parts.iter().any(|part| part.contains(&b'/')) {
        return Err(invalid(format!("the path {shown:?} has an encoded `/` in a name")));
    }
    RelPath::new(parts.join(&b'/')).map_err(|error| invalid(format!("the path {shown:?}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_decoded_once() {
        let parse = |rest: &str| match SessionPath::parse(rest) {
            Ok(Some(place)) => {
                let path = place.path.map_or_else(String::new, |path| path.to_text().into_owned());
                Ok(Some(format!("{} {path}", place.id)))
            }
            Ok(None) => Ok(None),
            Err(_) => Err(()),
        };
        for (rest, want) in [
            ("s/files", "s "),
            ("s/files/a/b.csv", "s a/b.csv"),
            ("a%2Fb/files/x", "a/b x"),
            ("s/files/%61", "s a"),
            ("s/files/%2561", "s %61"),
            ("..%252f/files/x", "..%2f x"),
            ("%2e%2e/files/x", ".. x"),
            ("s/files/..%5C..%5Cx", "s ..\\..\\x"),
            ("s/files/a+b%20c", "s a+b c"),
        ] {
            assert_eq!(parse(rest), Ok(Some(want.to_owned())), "{rest}");
        }
        for rest in ["", "s", "s/", "s/file", "s/filesystem", "s/files2/x", "s/x/files"] {
            assert_eq!(parse(rest), Ok(None), "{rest}");
        }
        let long = format!("{}/files/x", "i".repeat(257));
        for rest in [
            "/files/x",
            "s/files/",
            "s/files/..",
            "s/files/%2e%2e/x",
            "s/files/a/../b",
            "s/files/a//b",
            "s/files/a/",
            "s/files/./a",
            "s/files//a",
            "s/files/a%2Fb",
            "s/files/a%00",
            "%ff/files/x",
            &long,
        ] {
            assert_eq!(parse(rest), Err(()), "{rest}");
        }
    }
}
