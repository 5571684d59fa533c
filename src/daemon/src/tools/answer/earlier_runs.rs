//! Runs that a restart of the daemon interrupted. Their callers are gone, so the next answer of the session
//! reports how they ended, once.

use paddock_proto::message::Limit;
use serde_json::{Map, Value, json};

use super::artifacts::LISTED;
use super::run_document::not_saved;
use crate::session::{Recovered, RunEnd, Session, limit_name};
use crate::sign::SignedTarget;
use crate::tools::{Code, Tools};

impl Tools {
    /// Adds `earlier_runs` if there are any to report.
    pub(in crate::tools) fn put_earlier_runs(&self, session: &Session, document: &mut Map<String, Value>) {
        let earlier: Vec<Value> = session.take_news().iter().map(|run| self.earlier(session, run)).collect();
        if !earlier.is_empty() {
            document.insert("earlier_runs".into(), Value::Array(earlier));
        }
    }

    /// `{run_id, success, exit_code, artifacts, message}`, and as in the answer of a run, where they apply,
    /// `limit`, `timed_out`, `not_saved`, `log_url`, `error`.
    fn earlier(&self, session: &Session, earlier: &Recovered) -> Value {
        let exit_code = earlier.end.exit_code();
        let artifacts: Vec<Value> =
            earlier.changed.iter().take(LISTED).map(|entry| self.artifact(session, entry)).collect();
        let message = match &earlier.end {
            RunEnd::Ended { limit: None, .. } => {
                "The daemon was restarted in mid-run; the program went on to its end.".to_owned()
            }
            RunEnd::Ended { limit: Some(_), .. } => {
                "The daemon was restarted in mid-run; the program went on until it was ended.".to_owned()
            }
            RunEnd::Lost(why) => format!(
                "The daemon was restarted in mid-run, and the program's end is unknown ({why}). It is not \
                 run again. Files saved before it are kept."
            ),
        };
        let mut entry = json!({
            "run_id": earlier.run_id,
            "success": exit_code == 0,
            "exit_code": exit_code,
            "artifacts": artifacts,
            "message": message,
        });
        if earlier.logged {
            entry["log_url"] = json!(self.services.signer.link(
                &session.owner,
                session.id.as_str(),
                SignedTarget::Log(&earlier.run_id)
            ));
        }
        if !earlier.not_saved.is_empty() {
            entry["not_saved"] = not_saved(&earlier.not_saved);
        }
        if let Some(limit) = earlier.end.limit() {
            entry["timed_out"] = json!(limit == Limit::Wall);
            if let Some(name) = limit_name(limit) {
                entry["limit"] = json!(name);
            }
        }
        if let Some(unsaved) = &earlier.unsaved {
            entry["success"] = json!(false);
            entry["error"] = json!(Code::QuotaExceeded.as_str());
            entry["message"] = json!(format!("{message} Its files are not saved: {unsaved}."));
        }
        if matches!(earlier.end, RunEnd::Lost(_)) {
            entry["error"] = json!(Code::Lost.as_str());
        }
        entry
    }
}
