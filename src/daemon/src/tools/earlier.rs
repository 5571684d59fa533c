//! What became of runs that a restart of the daemon fell into: told to whoever calls next in the session, once, since
//! who had asked for them is gone.

use serde_json::{Map, Value, json};

use super::artifacts::LISTED;
use super::{Code, Tools};
use crate::session::{Recovered, RunEnd, Session};
use crate::sign::Target;

impl Tools {
    /// Puts `earlier_runs` where there is something to tell.
    pub(super) fn put_earlier_runs(&self, session: &Session, document: &mut Map<String, Value>) {
        let told: Vec<Value> = session.take_news().iter().map(|run| self.earlier(session, run)).collect();
        if !told.is_empty() {
            document.insert("earlier_runs".into(), Value::Array(told));
        }
    }

    /// `{run_id, success, exit_code, artifacts, log_url, message}`, and `error` if it is lost.
    fn earlier(&self, session: &Session, run: &Recovered) -> Value {
        let exit_code = run.end.exit_code();
        let artifacts: Vec<Value> =
            run.changed.iter().take(LISTED).map(|entry| self.artifact(session, entry)).collect();
        let message = match &run.end {
            RunEnd::Ended { .. } => {
                "The daemon was restarted in mid-run; the program went on to its end.".to_owned()
            }
            RunEnd::Lost(why) => format!(
                "The daemon was restarted in mid-run, and the program's end is unknown ({why}). It is not run again. \
                 Files saved before it are kept."
            ),
        };
        let mut told = json!({
            "run_id": run.run_id,
            "success": exit_code == 0,
            "exit_code": exit_code,
            "artifacts": artifacts,
            "message": message,
        });
        if run.logged {
            told["log_url"] =
                json!(self.signer.link(&session.owner, session.id.as_str(), Target::Log(&run.run_id)));
        }
        if matches!(run.end, RunEnd::Lost(_)) {
            told["error"] = json!(Code::Lost.as_str());
        }
        told
    }
}
