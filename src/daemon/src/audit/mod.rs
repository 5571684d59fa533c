//! The audit log: one JSON line for each call that did something. Who, from where, which tool or route, which
//! session, how it came out, how many bytes, and what its programs reached.
//!
//! ```text
//!  request ─► AuditEntry (shared by the request, its call and the body of its answer)
//!                │ tool, session, outcome, network: noted as they become known
//!                ▼ dropped when the last of them is over
//!             bounded queue ─► a thread ─► chain (pure) ─► file, synced once a second
//! ```
//!
//! The log also tells of the daemon itself: that it began (and whether the one before it was killed), that it
//! ended, how many lines are missing, and which token is gone.
//!
//! It is off by default: it says who did what, and grows with every call, so an operator must choose it, and
//! for how long it is kept. A log that cannot be written is told in `/ready` and the metrics; with
//! `audit.required` calls are refused meanwhile.
//!
//! It must never contain code, contents, names of files, environments, tokens or signatures, and never make a
//! call wait.

mod chain;
pub mod command;
mod entry;
mod file;
mod writer;

use std::path::Path;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::SystemTime;

use serde_json::{Map, Value, json};

pub use self::entry::{AuditEntry, Surface};
use self::file::{AuditFile, EVENT, Left, STOPPED};
use self::writer::AuditState;
use crate::config::AuditSettings;
use crate::metrics::Metrics;

/// Lines that may wait to be written: a second of calls at the daemon's fastest. More are counted and lost.
const QUEUE: usize = 8192;

/// The audit log of one daemon.
#[derive(Default)]
pub struct AuditLog {
    lines: Mutex<Option<SyncSender<Map<String, Value>>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    state: Arc<AuditState>,
    is_on: bool,
    is_required: bool,
}

impl AuditLog {
    /// A log as configured; without a file it is off.
    ///
    /// # Errors
    /// The file cannot be opened, read or written.
    pub fn open(settings: &AuditSettings, metrics: Metrics) -> std::io::Result<Arc<Self>> {
        let Some(path) = &settings.file else { return Ok(Arc::default()) };
        let (mut file, left) = AuditFile::open(path, settings.rotate)?;
        file.append(started(left))?;
        file.sync()?;
        let (sender, lines) = sync_channel(QUEUE);
        let state = Arc::new(AuditState::new(metrics));
        let (of_writer, shown) = (state.clone(), path.display().to_string());
        let writer = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer::write(file, &lines, &of_writer, &shown))?;
        Ok(Arc::new(Self {
            lines: Mutex::new(Some(sender)),
            writer: Mutex::new(Some(writer)),
            state,
            is_on: true,
            is_required: settings.required,
        }))
    }

    /// The entry of a request or a call; `None` if the log is off.
    pub fn begin(
        self: &Arc<Self>,
        tenant: &str,
        peer: &str,
        (surface, route): (Surface, &'static str),
    ) -> Option<Arc<AuditEntry>> {
        self.is_on.then(|| Arc::new(AuditEntry::new(self.clone(), tenant, peer, (surface, route))))
    }

    /// Every token of a tenant is revoked or over.
    pub fn tenant_is_gone(&self, tenant: &str) {
        let mut line = event("tenant_gone");
        line.insert("tenant".into(), json!(tenant));
        self.send(line);
    }

    /// Whether the last attempt to write a line failed.
    pub fn is_failing(&self) -> bool {
        self.state.is_failing()
    }

    /// Whether calls are refused because they could not be noted.
    pub fn refuses(&self) -> bool {
        self.is_required && self.is_failing()
    }

    /// Hands a line to the writer, and never waits.
    fn send(&self, fields: Map<String, Value>) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = &*lines else { return };
        match sender.try_send(fields) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.state.lose(),
        }
    }

    /// Writes what waits, and ends. Blocks for as long as that takes.
    pub fn close(&self) {
        self.send(event(STOPPED));
        drop(self.lines.lock().unwrap_or_else(PoisonError::into_inner).take());
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }
}

/// A line that tells of the daemon itself.
fn event(name: &str) -> Map<String, Value> {
    let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    Map::from_iter([("time".to_owned(), json!(time)), (EVENT.to_owned(), json!(name))])
}

/// The first line of a daemon: how an earlier one left the log.
fn started(left: Option<Left>) -> Map<String, Value> {
    let mut line = event("started");
    if let Some(left) = left.filter(|left| !left.is_closed) {
        line.insert("after_kill".into(), json!(true));
        if left.is_cut {
            line.insert(chain::CUT.into(), json!(true));
        }
    }
    line
}

/// Why a log in this file could not be opened; `None` if it could. Writes nothing.
pub(crate) fn unusable(path: &Path) -> Option<String> {
    file::unusable(path)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::{Duration, Instant};

    use super::*;

    fn settings(path: &Path) -> AuditSettings {
        AuditSettings { file: Some(path.to_owned()), required: true, rotate: None }
    }

    #[test]
    fn a_log_has_a_line_for_each_entry_that_did_something() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let log = AuditLog::open(&settings(&path), Metrics::default()).unwrap();
        let entry = log.begin("ann", "10.0.0.7:5", (Surface::Mcp, "mcp")).unwrap();
        entry.note("run_code", Some("s1"), "ok", Some(&json!([{ "host": "a.example", "port": 443 }])));
        entry.received.fetch_add(7, Relaxed);
        drop((entry.clone(), entry));
        drop(log.begin("ann", "10.0.0.7:5", (Surface::Mcp, "mcp"))); // it called nothing
        log.begin("bob", "socket", (Surface::Link, "files")).unwrap().answered(200);
        log.close();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!((&lines[0][EVENT], &lines[3][EVENT]), (&json!("started"), &json!(STOPPED)));
        lines.remove(0);
        let first = &lines[0];
        let who = [&first["tenant"], &first["tool"], &first["session"]];
        assert_eq!(who, [&json!("ann"), &json!("run_code"), &json!("s1")]);
        assert_eq!((&first["bytes_in"], &first["network"][0]["host"]), (&json!(7), &json!("a.example")));
        assert_eq!((&lines[1]["route"], &lines[1]["status"]), (&json!("files"), &json!(200)));
        assert_eq!((&first["surface"], &lines[1]["surface"]), (&json!("mcp"), &json!("link")));
        assert!(!log.refuses());
    }

    #[test]
    fn a_log_that_cannot_be_written_is_told_and_goes_on_when_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("a/audit.log"), folder.path().join("b"));
        std::fs::create_dir(folder.path().join("a")).unwrap();
        let log = AuditLog::open(&settings(&path), Metrics::default()).unwrap();
        std::fs::rename(folder.path().join("a"), &away).unwrap(); // neither the file nor its folder
        log.begin("ann", "p", (Surface::Link, "files")).unwrap().answered(200);
        let wait = |is: bool| {
            let end = Instant::now() + Duration::from_secs(20);
            while log.is_failing() != is {
                assert!(Instant::now() < end, "{is}");
                std::thread::yield_now();
            }
        };
        wait(true);
        assert!(log.refuses());
        std::fs::rename(&away, folder.path().join("a")).unwrap();
        wait(false);
        log.close();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"lost\":1"), "{text}");
    }

    #[test]
    fn a_daemon_tells_that_the_one_before_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let firsts = || {
            let text = std::fs::read_to_string(&path).unwrap();
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let told = lines.filter(|line| line[EVENT] == "started");
            told.map(|line| (line["after_kill"] == true, line["cut"] == true)).collect::<Vec<_>>()
        };
        AuditLog::open(&settings(&path), Metrics::default()).unwrap().close();
        AuditLog::open(&settings(&path), Metrics::default()).unwrap().close();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        AuditLog::open(&settings(&path), Metrics::default()).unwrap().close();
        let text = std::fs::read_to_string(&path).unwrap();
        let without_end = text.trim_end().rfind('\n').unwrap() + 1;
        std::fs::write(&path, &text[..without_end]).unwrap();
        AuditLog::open(&settings(&path), Metrics::default()).unwrap().close();
        assert_eq!(firsts(), [(false, false), (false, false), (true, true), (true, false)]);
    }
}
