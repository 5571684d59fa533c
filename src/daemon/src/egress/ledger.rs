//! What one run reached, and what it was refused: told in its result, in events, and to the log.
//!
//! It must never grow with what a program does: it lists the first [`MAX_LISTED`] destinations and counts the
//! others.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::printable::printable;

/// Destinations that are listed.
pub const MAX_LISTED: usize = 50;

/// Destinations beyond those that are told apart when they are counted.
const MAX_COUNTED: usize = 10_000;

/// The longest host that is shown, in characters: a name has at most 253.
const MAX_HOST: usize = 256;

/// One destination of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// The name or address that the program asked for.
    pub host: String,
    /// The TCP port; 0 if the name was looked up and refused, so that nothing is known of a port.
    pub port: u16,
    /// False once anything was blocked there.
    pub allowed: bool,
    /// Why it was blocked, or why no connection was made although it was allowed.
    pub reason: Option<String>,
    /// Bytes that came in to the program.
    pub bytes_in: u64,
    /// Bytes that went out of it.
    pub bytes_out: u64,
}

/// Bytes of connections.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) bytes_in: AtomicU64,
    pub(super) bytes_out: AtomicU64,
}

/// The destinations of a run, in the order of their first use.
#[derive(Default)]
pub(super) struct Ledger {
    listed: Mutex<Listed>,
}

#[derive(Default)]
struct Listed {
    entries: Vec<Entry>,
    places: HashMap<(String, u16), usize>,
    /// Hashes of the destinations that are not listed.
    others: HashSet<u64>,
    /// How many of them an earlier daemon counted.
    earlier_others: usize,
    hasher: RandomState,
    /// Receives each destination when it is blocked for the first time.
    listener: Option<mpsc::UnboundedSender<Destination>>,
}

struct Entry {
    host: String,
    port: u16,
    allowed: bool,
    reason: Option<String>,
    traffic: Arc<Traffic>,
    /// Whether an earlier daemon listed it: what was blocked then was told then.
    is_earlier: bool,
}

impl Entry {
    fn shown(&self) -> Destination {
        Destination {
            host: self.host.clone(),
            port: self.port,
            allowed: self.allowed,
            reason: self.reason.clone(),
            bytes_in: self.traffic.bytes_in.load(Relaxed),
            bytes_out: self.traffic.bytes_out.load(Relaxed),
        }
    }
}

impl Listed {
    /// The entry of a destination, made if it is new; `None` if the list is full.
    fn entry(&mut self, host: &str, port: u16) -> Option<&mut Entry> {
        let key = (host.to_owned(), port);
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None if self.entries.len() < MAX_LISTED => {
                let entry = Entry {
                    host: host.to_owned(),
                    port,
                    allowed: true,
                    reason: None,
                    traffic: Arc::default(),
                    is_earlier: false,
                };
                self.entries.push(entry);
                self.places.insert(key, self.entries.len() - 1);
                self.entries.len() - 1
            }
            None => {
                if self.others.len() < MAX_COUNTED {
                    let hash = self.hasher.hash_one(&key);
                    self.others.insert(hash);
                }
                return None;
            }
        };
        self.entries.get_mut(place)
    }
}

impl Ledger {
    /// Goes on with what an earlier daemon listed.
    pub(super) fn earlier(destinations: Vec<Destination>, unlisted: usize) -> Self {
        let mut listed = Listed { earlier_others: unlisted.min(MAX_COUNTED), ..Listed::default() };
        for destination in destinations {
            if let Some(entry) = listed.entry(&destination.host, destination.port) {
                (entry.allowed, entry.reason) = (destination.allowed, destination.reason);
                entry.traffic.bytes_in.store(destination.bytes_in, Relaxed);
                entry.traffic.bytes_out.store(destination.bytes_out, Relaxed);
                entry.is_earlier = true;
            }
        }
        Self { listed: Mutex::new(listed) }
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection there is made: where to count its bytes.
    pub(super) fn connected(&self, host: &str, port: u16) -> Arc<Traffic> {
        let mut listed = self.lock();
        let Some(entry) = listed.entry(host, port) else { return Arc::default() };
        if entry.allowed {
            entry.reason = None; // of an attempt that failed before
        }
        entry.traffic.clone()
    }

    /// A connection there was allowed and could not be made.
    pub(super) fn failed(&self, host: &str, port: u16, reason: &str) {
        if let Some(entry) = self.lock().entry(host, port)
            && entry.reason.is_none()
        {
            entry.reason = Some(reason.to_owned());
        }
    }

    /// Something there was blocked. True if it is listed and was not blocked before.
    pub(super) fn blocked(&self, host: &str, port: u16, reason: &str) -> bool {
        let mut listed = self.lock();
        let Some(entry) = listed.entry(host, port) else { return false };
        if !entry.allowed {
            return false;
        }
        entry.allowed = false;
        entry.reason = Some(reason.to_owned());
        let shown = entry.shown();
        if let Some(listener) = &listed.listener
            && listener.send(shown).is_err()
        {
            listed.listener = None;
        }
        true
    }

    /// All listed destinations.
    pub(super) fn destinations(&self) -> Vec<Destination> {
        self.lock().entries.iter().map(Entry::shown).collect()
    }

    /// How many destinations are not listed; it counts up to 10,000.
    pub(super) fn unlisted(&self) -> usize {
        let listed = self.lock();
        listed.others.len().saturating_add(listed.earlier_others).min(MAX_COUNTED)
    }

    /// Each destination when it is blocked for the first time, those so far included but for those of an
    /// earlier daemon. There are at most [`MAX_LISTED`]. A second listener takes the place of the first.
    pub(super) fn listen(&self) -> mpsc::UnboundedReceiver<Destination> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut listed = self.lock();
        for entry in listed.entries.iter().filter(|entry| !entry.allowed && !entry.is_earlier) {
            let _ = sender.send(entry.shown()); // the receiver is here
        }
        listed.listener = Some(sender);
        receiver
    }
}

/// A host as a program wrote it, made safe to show.
pub(super) fn shown(host: &str) -> String {
    let cut = host.char_indices().nth(MAX_HOST).map_or(host, |(end, _)| &host[..end]);
    printable(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_has_one_entry_and_its_bytes_add_up() {
        let ledger = Ledger::default();
        for _ in 0..2 {
            let traffic = ledger.connected("a.example", 443);
            traffic.bytes_in.fetch_add(10, Relaxed);
            traffic.bytes_out.fetch_add(1, Relaxed);
        }
        ledger.failed("b.example", 80, "it refused the connection");
        let entries = ledger.destinations();
        let json = serde_json::json!([
            {"host": "a.example", "port": 443, "allowed": true, "reason": null,
             "bytes_in": 20, "bytes_out": 2},
            {"host": "b.example", "port": 80, "allowed": true, "reason": "it refused the connection",
             "bytes_in": 0, "bytes_out": 0},
        ]);
        assert_eq!(serde_json::to_value(&entries).unwrap(), json);
        ledger.connected("b.example", 80);
        assert_eq!(ledger.destinations()[1].reason, None, "it was reached in the end");
    }

    #[tokio::test]
    async fn what_is_blocked_is_told_once_also_to_a_listener_that_comes_late() {
        let ledger = Ledger::default();
        assert!(ledger.blocked("a.example", 443, "not allowed"));
        let mut listener = ledger.listen();
        assert!(!ledger.blocked("a.example", 443, "not allowed"));
        ledger.connected("b.example", 443);
        assert!(ledger.blocked("b.example", 443, "another TLS name"));
        drop(ledger);
        let mut told = Vec::new();
        while let Some(destination) = listener.recv().await {
            assert!(!destination.allowed);
            told.push((destination.host, destination.reason.unwrap()));
        }
        let expected = [("a.example", "not allowed"), ("b.example", "another TLS name")];
        assert_eq!(told, expected.map(|(host, reason)| (host.to_owned(), reason.to_owned())));
    }

    #[test]
    fn a_program_that_tries_everything_fills_one_page() {
        let ledger = Ledger::default();
        let mut listener = ledger.listen();
        for n in 0..20_000 {
            ledger.blocked(&format!("{n}.example"), 80, "not allowed");
            ledger.blocked(&format!("{}.example", n / 2), 80, "not allowed");
        }
        assert_eq!(ledger.destinations().len(), MAX_LISTED);
        assert_eq!(ledger.unlisted(), MAX_COUNTED);
        assert_eq!(std::iter::from_fn(|| listener.try_recv().ok()).count(), MAX_LISTED);
    }

    #[test]
    fn what_an_earlier_daemon_listed_goes_on_and_is_not_told_again() {
        let before = Ledger::default();
        before.connected("a.example", 443).bytes_in.fetch_add(10, Relaxed);
        before.blocked("b.example", 443, "not allowed");
        let ledger = Ledger::earlier(before.destinations(), 3);
        assert_eq!((ledger.destinations(), ledger.unlisted()), (before.destinations(), 3));
        let mut listener = ledger.listen();
        assert!(!ledger.blocked("b.example", 443, "not allowed"));
        assert!(ledger.blocked("a.example", 443, "not allowed"));
        ledger.connected("a.example", 443).bytes_in.fetch_add(1, Relaxed);
        assert_eq!(ledger.destinations()[0].bytes_in, 11);
        assert_eq!(
            std::iter::from_fn(|| listener.try_recv().ok()).map(|d| d.host).collect::<Vec<_>>(),
            ["a.example"]
        );
    }

    #[test]
    fn a_host_cannot_write_lines_of_a_log() {
        assert_eq!(shown("a\nb\u{202e}"), "a\\nb\\u{202e}");
        assert_eq!(shown(&"\u{e9}".repeat(5000)), "\u{e9}".repeat(MAX_HOST));
    }
}
