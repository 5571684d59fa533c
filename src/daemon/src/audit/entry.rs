//! One line of the audit log, from the beginning of a request until everything that it asked for is over.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use serde_json::{Map, Value, json};

use super::AuditLog;

/// Characters of a session's id: it comes from a caller.
const SESSION: usize = 256;
/// Characters of a method.
const METHOD: usize = 20;

/// The way in by which a request or a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// MCP over HTTP.
    Mcp,
    /// MCP on the socket in the store: `paddock stdio`.
    Stdio,
    /// Any other request with a token, or on the socket in the store.
    Rest,
    /// A request by a signed link.
    Link,
}

impl Surface {
    fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Stdio => "stdio",
            Self::Rest => "rest",
            Self::Link => "link",
        }
    }
}

/// The status of an answer after which both sides speak another protocol.
const SWITCHED: u16 = 101;

/// A request or a call on its way into the log. It is written when the last that holds it drops it, if it did
/// something.
pub struct AuditEntry {
    log: Arc<AuditLog>,
    begun: (SystemTime, Instant),
    tenant: String,
    peer: String,
    surface: Surface,
    route: &'static str,
    /// Bytes of the body of the request.
    pub received: Arc<AtomicU64>,
    /// Bytes of the body of the answer.
    pub sent: Arc<AtomicU64>,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    tool: Option<String>,
    session: Option<String>,
    outcome: Option<&'static str>,
    network: Option<Value>,
    method: Option<String>,
    status: Option<u16>,
}

impl AuditEntry {
    pub(super) fn new(
        log: Arc<AuditLog>,
        tenant: &str,
        peer: &str,
        (surface, route): (Surface, &'static str),
    ) -> Self {
        Self {
            log,
            begun: (SystemTime::now(), Instant::now()),
            tenant: tenant.to_owned(),
            peer: peer.to_owned(),
            surface,
            route,
            received: Arc::default(),
            sent: Arc::default(),
            noted: Mutex::default(),
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tool was called, and came out so. `network` is what its programs reached, as its answer lists it.
    pub fn note(&self, tool: &str, session: Option<&str>, outcome: &'static str, network: Option<&Value>) {
        let mut noted = self.noted();
        noted.tool = Some(tool.to_owned());
        noted.session = session.map(|id| id.chars().take(SESSION).collect());
        noted.outcome = Some(outcome);
        noted.network = network.cloned();
    }

    /// The request has this method.
    pub fn asked(&self, method: &str) {
        self.noted().method = Some(method.chars().take(METHOD).collect());
    }

    /// A route other than that of tools is used in this session.
    pub fn uses(&self, session: Option<&str>) {
        self.noted().session = session.map(|id| id.chars().take(SESSION).collect());
    }

    /// The request was answered, where that is all that it did.
    pub fn answered(&self, status: u16) {
        self.noted().status = Some(status);
    }
}

impl Drop for AuditEntry {
    fn drop(&mut self) {
        let noted = std::mem::take(&mut *self.noted());
        if noted.tool.is_none() && (self.route == "mcp" || noted.status.is_none()) {
            return; // it listed tools, or began a session
        }
        let (time, begun) = self.begun;
        let mut line = Map::new();
        line.insert("time".into(), json!(humantime::format_rfc3339_millis(time).to_string()));
        line.insert("tenant".into(), json!(self.tenant));
        line.insert("peer".into(), json!(self.peer));
        let is_websocket = noted.status == Some(SWITCHED);
        let surface = if is_websocket { "websocket" } else { self.surface.as_str() };
        line.insert("surface".into(), json!(surface));
        line.insert("route".into(), json!(self.route));
        let more = [
            ("method", noted.method.map(Value::from)),
            ("tool", noted.tool.map(Value::from)),
            ("session", noted.session.map(Value::from)),
            ("outcome", noted.outcome.map(Value::from)),
            ("status", noted.status.map(Value::from)),
            ("network", noted.network),
        ];
        line.extend(more.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        line.insert("bytes_in".into(), json!(self.received.load(Relaxed)));
        line.insert("bytes_out".into(), json!(self.sent.load(Relaxed)));
        line.insert("ms".into(), json!(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)));
        self.log.send(line);
    }
}
