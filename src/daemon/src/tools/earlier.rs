//! What became of runs that a restart of the daemon fell into: told to whoever calls next in the session, once, since
//! who had asked for them is gone.

use paddock_proto::message::Limit;
use serde_json::{Map, Value, json};

use super::artifacts::LISTED;
use super::{Code, Tools, run};
use crate::session::{Recovered, RunEnd, Session, limit_name};
use crate::sign::Target;

impl Tools {
    /// Puts `earlier_runs` where there is something to tell.
    pub(super) fn put_earlier_runs(&self, session: &Session, document: &mut Map<String, Value>) {
        let told: Vec<Value> = session.take_news().iter().map(|run| self.earlier(session, run)).collect();
        if !told.is_empty() {
            document.insert("earlier_runs".into(), Value::Array(told));
        }
    }

    /// `{run_id, success, exit_code, artifacts, message}`, and as in the answer of a run, where they apply, `limit`,
    /// `timed_out`, `not_saved`, `log_url`, `error`.
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
                "The daemon was restarted in mid-run, and the program's end is unknown ({why}). It is not run again. \
                 Files saved before it are kept."
            ),
        };
        let mut told = json!({
            "run_id": earlier.run_id,
            "success": exit_code == 0,
            "exit_code": exit_code,
            "artifacts": artifacts,
            "message": message,
        });
        if earlier.logged {
            told["log_url"] =
                json!(self.signer.link(&session.owner, session.id.as_str(), Target::Log(&earlier.run_id)));
        }
        if !earlier.not_saved.is_empty() {
            told["not_saved"] = run::not_saved(&earlier.not_saved);
        }
        if let Some(limit) = earlier.end.limit() {
            told["timed_out"] = json!(limit == Limit::Wall);
            if let Some(name) = limit_name(limit) {
                told["limit"] = json!(name);
            }
        }
        if let Some(unsaved) = &earlier.unsaved {
            told["success"] = json!(false);
            told["error"] = json!(Code::QuotaExceeded.as_str());
            told["message"] = json!(format!(
                "{message} Its files are not saved: {unsaved}. The next call saves them if it can."
            ));
        }
        if matches!(earlier.end, RunEnd::Lost(_)) {
            told["error"] = json!(Code::Lost.as_str());
        }
        told
    }
}
