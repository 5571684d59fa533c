//! A session's files as pages, for `list_artifacts` and `GET /sessions/{id}/files` alike.
//!
//! A page is bounded in entries and in bytes. A cursor is valid for the owner and session of its page only.

use paddock_proto::RelPath;
use paddock_proto::message::Entry;
use serde_json::{Map, Value, json};

use crate::session::{Session, SessionId};
use crate::tools::fault::Failure;
use crate::tools::{Code, Fault, Tools};

/// Files of a page if the caller names no limit: as many as a model can take in.
pub(in crate::tools) const PAGE: usize = 100;
/// Files of the largest page.
pub(in crate::tools) const MAX_PAGE: usize = 1000;
/// Bytes of a page. The answer of a bare call contains the page twice, once as text within JSON, where each
/// byte can become two: under 1 MiB in all.
const PAGE_BYTES: usize = 300 * 1024;

impl Tools {
    /// One page: `{artifacts, total, truncated, next_cursor, session_id, …}`.
    pub(crate) async fn page(
        &self,
        owner: &str,
        id: &SessionId,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<Map<String, Value>, Failure> {
        let invalid = |message: String| Fault::new(Code::InvalidArgument, message);
        let limit = limit.unwrap_or(PAGE);
        if !(1..=MAX_PAGE).contains(&limit) {
            return Err(invalid(format!("`limit` is {limit}; it must be 1 to {MAX_PAGE}")).into());
        }
        let after = match cursor {
            None => None,
            Some(cursor) => {
                Some(self.services.signer.position(owner, id.as_str(), cursor).ok_or_else(|| {
                    invalid(
                        "`cursor` does not come from a listing of this session; leave it out to begin".into(),
                    )
                })?)
            }
        };
        let session = self.existing(owner, id).await?;
        let (entries, more, total) = entries(&session, after.as_ref(), limit);
        let (mut artifacts, mut bytes) = (Vec::new(), 0);
        for entry in &entries {
            let artifact = self.listed(&session, entry);
            bytes += artifact.to_string().len() + 1;
            if bytes > PAGE_BYTES && !artifacts.is_empty() {
                break;
            }
            artifacts.push(artifact);
        }
        let truncated = more || artifacts.len() < entries.len();
        let last = artifacts.len().checked_sub(1).and_then(|last| entries.get(last)).filter(|_| truncated);
        let next = last.map(|entry| self.services.signer.cursor(owner, id.as_str(), &entry.path));
        let mut document = Map::new();
        document.insert("success".into(), json!(true));
        document.insert("session_id".into(), json!(id.as_str()));
        document.insert("conversationId".into(), json!(id.as_str()));
        document.insert("total".into(), json!(total));
        document.insert("truncated".into(), json!(truncated));
        if let Some(next) = next {
            document.insert("next_cursor".into(), json!(next));
        }
        document.insert("artifacts".into(), Value::Array(artifacts));
        Ok(document)
    }

    /// An existing session, for reading.
    pub(crate) async fn existing(
        &self,
        owner: &str,
        id: &SessionId,
    ) -> Result<std::sync::Arc<Session>, Failure> {
        let found = self.services.sessions.find(owner, id).await?;
        let session = found.ok_or_else(|| no_session(id))?;
        // For the retention, reading is a use too.
        session.space.touch();
        Ok(session)
    }

    /// `{path, filename, size_bytes, mime_type, download_url, url}`
    fn listed(&self, session: &Session, entry: &Entry) -> Value {
        let mut artifact = self.artifact(session, entry);
        artifact["url"] = artifact["download_url"].clone();
        artifact
    }
}

/// Up to `limit` files after a path, whether there are more, and how many there are in all.
fn entries(session: &Session, after: Option<&RelPath>, limit: usize) -> (Vec<Entry>, bool, usize) {
    let manifest = session.space.manifest();
    let behind = |entry: &Entry| after.is_none_or(|after| entry.path > *after);
    let mut total = 0;
    let mut all = manifest.files().map(|(entry, _)| entry).inspect(|_| total += 1);
    let entries: Vec<Entry> = all.by_ref().filter(|entry| behind(entry)).take(limit).cloned().collect();
    let more = entries.len() == limit && all.next().is_some();
    all.for_each(drop);
    (entries, more, total)
}

/// The refusal of a call whose session does not exist, or is already closed.
pub(in crate::tools) fn no_session(id: &SessionId) -> Fault {
    let shown: String = id.as_str().chars().take(80).collect();
    Fault::new(Code::SessionNotFound, format!("No active session with id {shown}"))
}
