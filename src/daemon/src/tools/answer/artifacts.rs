//! Files as answers show them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use serde_json::{Map, Value, json};

use crate::session::Session;
use crate::sign::SignedTarget;
use crate::store::blocking;
use crate::tools::{Image, Tools};

/// Files that one answer lists; of more it says that there are more.
pub(super) const LISTED: usize = 100;
/// Types of images that models can look at.
pub(in crate::tools) const SHOWN_IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Images that one answer contains.
const IMAGES: usize = 4;
/// The largest image that an answer contains, in bytes: a model reads it as tokens.
const IMAGE_BYTES: u64 = 1 << 20;

/// `/mnt/data/…`, as callers know a file.
pub(in crate::tools) fn public_path(path: &RelPath) -> String {
    format!("/mnt/data/{}", path.to_text())
}

impl Tools {
    /// The download link of a file.
    pub(in crate::tools) fn link(&self, session: &Session, path: &RelPath) -> String {
        self.services.signer.link(&session.owner, session.id.as_str(), SignedTarget::File(path))
    }

    /// The document about a file that was put into a session.
    pub(crate) fn uploaded(&self, session: &Session, path: &RelPath, size: u64) -> Map<String, Value> {
        let id = session.id.as_str();
        let mut document = Map::new();
        document.insert("success".into(), json!(true));
        let message = format!("File '{}' uploaded successfully ({size} bytes)", path.to_text());
        document.insert("message".into(), json!(message));
        document.insert("file".into(), self.file(session, path));
        document.insert("session_id".into(), json!(id));
        document.insert("conversationId".into(), json!(id));
        document.insert("path".into(), json!(public_path(path)));
        document.insert("size_bytes".into(), json!(size));
        document
    }

    /// `{name, url}`
    pub(in crate::tools) fn file(&self, session: &Session, path: &RelPath) -> Value {
        let mut file = json!({ "name": path.to_text(), "url": self.link(session, path) });
        exact_name(&mut file, path);
        file
    }

    /// The first [`LISTED`] regular files, and whether there are more.
    pub(super) fn files(&self, session: &Session) -> (Vec<Value>, bool) {
        let paths: Vec<RelPath> =
            session.space.manifest().files().take(LISTED + 1).map(|(entry, _)| entry.path.clone()).collect();
        let files = paths.iter().take(LISTED).map(|path| self.file(session, path)).collect();
        (files, paths.len() > LISTED)
    }

    /// `{path, filename, size_bytes, mime_type, download_url}`
    pub(in crate::tools) fn artifact(&self, session: &Session, entry: &Entry) -> Value {
        let size = if let EntryKind::File(size) = entry.kind { size } else { 0 };
        let mut artifact = json!({
            "path": public_path(&entry.path),
            "filename": String::from_utf8_lossy(entry.path.file_name()),
            "size_bytes": size,
            "mime_type": mime_type(&entry.path),
            "download_url": self.link(session, &entry.path),
        });
        exact_name(&mut artifact, &entry.path);
        artifact
    }
}

/// The first small images among the files that a run changed, and how many more there are.
pub(in crate::tools) async fn images(session: &Session, changed: &[Entry]) -> (Vec<Image>, usize) {
    let (mut images, mut more) = (Vec::new(), 0);
    for entry in changed {
        let EntryKind::File(size) = entry.kind else { continue };
        let mime_type = mime_type(&entry.path);
        if !SHOWN_IMAGES.contains(&mime_type.as_str()) || size == 0 || size > IMAGE_BYTES {
            continue;
        }
        let (space, path) = (session.space.clone(), entry.path.clone());
        let read = blocking(move || {
            use std::io::Read;
            let mut bytes = Vec::new();
            let read = space.open(&path).and_then(|file| file.take(IMAGE_BYTES).read_to_end(&mut bytes));
            Ok(read.map(|_| bytes))
        });
        if let Ok(Ok(bytes)) = read.await
            && is_whole(&mime_type, &bytes)
        {
            if images.len() < IMAGES {
                images.push(Image { mime_type, data: BASE64_STANDARD.encode(bytes) });
            } else {
                more += 1;
            }
        }
    }
    (images, more)
}

/// Whether the bytes begin and end as an image of this type does: a model's API refuses a whole turn for a
/// broken image.
fn is_whole(mime_type: &str, bytes: &[u8]) -> bool {
    let between = |head: &[u8], tail: &[u8]| {
        bytes.len() > head.len() + tail.len() && bytes.starts_with(head) && bytes.ends_with(tail)
    };
    match mime_type {
        "image/png" => between(b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"),
        "image/jpeg" => between(b"\xff\xd8\xff", b"\xff\xd9"),
        "image/gif" => between(b"GIF87a", b";") || between(b"GIF89a", b";"),
        "image/webp" => {
            let length = bytes.get(4..8).and_then(|length| Some(u32::from_le_bytes(length.try_into().ok()?)));
            bytes.get(8..12) == Some(b"WEBP") && length.is_some_and(|n| n as usize + 8 == bytes.len())
        }
        _ => false,
    }
}

/// The type of a file, by the ending of its name.
pub(crate) fn mime_type(path: &RelPath) -> String {
    let name = String::from_utf8_lossy(path.file_name()).into_owned();
    mime_guess::from_path(name).first_or_octet_stream().essence_str().to_owned()
}

/// Adds the exact bytes of a name that is not UTF-8, which is shown with U+FFFD in place of what is not.
fn exact_name(shown: &mut Value, path: &RelPath) {
    if std::str::from_utf8(path.as_bytes()).is_err()
        && let Some(shown) = shown.as_object_mut()
    {
        shown.insert("name_base64".into(), json!(BASE64_STANDARD.encode(path.as_bytes())));
    }
}

/// Sets `key` to true if the condition holds; otherwise leaves it out.
pub(super) fn put_if(document: &mut Map<String, Value>, key: &str, holds: bool) {
    if holds {
        document.insert(key.to_owned(), Value::Bool(true));
    }
}
