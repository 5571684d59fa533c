//! Holds a TLS client to the name of its first hello where the server asks for a second one (RFC 8446,
//! sections 4.1.2 and 4.1.4).
//!
//! ```text
//!  client ── hello: a.example ──────────► server     judged by its name before this begins
//!         ◄───────── HelloRetryRequest ──            by its fixed random value
//!         ── hello: must be a.example again ──►      held back until it is whole, then compared
//! ```
//!
//! A server must compare both hellos, and some do not: they serve the name of the second. Of the server only
//! its first hello is looked at, of the client only what it sends until the answer to its last hello.
//!
//! Pure: bytes in, bytes or a refusal out. It must never pass on a handshake record that nobody has judged,
//! nor hold more of the client than [`MAX_HELLO`] bytes and one piece, or more of the server than the front
//! of one message.

use bytes::{Bytes, BytesMut};

use super::client_hello::{self, ClientHello, MAX_HELLO};
use super::host_name::HostName;
use super::policy::BlockReason;

/// The types of records.
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
/// The bytes of a record's header, and the most that follow it: encryption adds at most 256.
const HEADER: usize = 5;
const MAX_RECORD: usize = (1 << 14) + 256;
/// The handshake message that a server answers with. In front of its random value stand its type, its length
/// and its version.
const SERVER_HELLO: u8 = 2;
const BEFORE_RANDOM: usize = 1 + 3 + 2;
/// The random value that makes a server's hello a request for another of the client's: SHA-256 of
/// "HelloRetryRequest".
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// How far the handshake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The server has not answered the first hello.
    Unanswered,
    /// The server asks for a second hello, which the client has not sent.
    Retrying,
    /// Nothing is left to judge.
    Settled,
}

/// One connection whose first hello was judged.
#[derive(Debug)]
pub(super) struct HelloRetry {
    name: HostName,
    stage: Stage,
    /// Bytes of the client that are not passed on yet.
    held: BytesMut,
    /// Bytes of the client that belong to a record that may pass.
    passing: usize,
    server: ServerFront,
}

/// The front of what a server sends.
#[derive(Debug, Default)]
struct ServerFront {
    header: Vec<u8>,
    /// Bytes to skip: of a record that is no handshake.
    skipping: usize,
    /// Bytes that are left of a record of the handshake.
    in_record: usize,
    message: Vec<u8>,
}

impl HelloRetry {
    /// The client asked for this name.
    pub(super) fn new(name: HostName) -> Self {
        Self {
            name,
            stage: Stage::Unanswered,
            held: BytesMut::new(),
            passing: 0,
            server: ServerFront::default(),
        }
    }

    /// Whether the server has answered the first hello.
    pub(super) fn is_answered(&self) -> bool {
        self.stage != Stage::Unanswered
    }

    /// Whether nothing is left to judge or to pass on.
    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Settled && self.held.is_empty()
    }

    /// The server sent this. It must be called before the client receives it.
    pub(super) fn server_sent(&mut self, bytes: &[u8]) {
        if self.stage == Stage::Unanswered
            && let Some(asks_again) = self.server.read(bytes)
        {
            self.stage = if asks_again { Stage::Retrying } else { Stage::Settled };
        }
    }

    /// The client sent this behind its first hello. What may be passed on now, in the order in which it came.
    ///
    /// # Errors
    /// The connection must be cut: it sent a hello for another name, or something that no client sends here.
    pub(super) fn client_sent(&mut self, bytes: Bytes) -> Result<Bytes, BlockReason> {
        if self.is_over() {
            return Ok(bytes);
        }
        self.held.extend_from_slice(&bytes);
        let mut passed = BytesMut::new();
        loop {
            let now = if self.stage == Stage::Settled { self.held.len() } else { self.passing };
            let now = now.min(self.held.len());
            passed.unsplit(self.held.split_to(now));
            self.passing = self.passing.saturating_sub(now);
            if self.held.is_empty() || !self.next_record()? {
                return Ok(passed.freeze());
            }
        }
    }

    /// The client has ended its half. What was held back and may be passed on.
    ///
    /// # Errors
    /// A record is incomplete that had to be judged.
    pub(super) fn client_ended(&mut self) -> Result<Bytes, BlockReason> {
        match self.stage {
            Stage::Settled => Ok(self.held.split().freeze()),
            Stage::Unanswered | Stage::Retrying if self.held.is_empty() => Ok(Bytes::new()),
            Stage::Unanswered | Stage::Retrying => Err(BlockReason::NotTls),
        }
    }

    /// Judges the record at the front of what is held; whether it may pass, or the part of it that is there.
    fn next_record(&mut self) -> Result<bool, BlockReason> {
        match (self.held[0], self.stage) {
            // Early data, and what older servers want to see in between (RFC 8446, appendix D.4).
            (CHANGE_CIPHER_SPEC | ALERT | APPLICATION_DATA, _) => {
                let Some(header) = self.held.first_chunk::<HEADER>() else { return Ok(false) };
                let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
                if length > MAX_RECORD {
                    return Err(BlockReason::NotTls);
                }
                self.passing = HEADER + length;
                Ok(true)
            }
            (HANDSHAKE, Stage::Retrying) => match client_hello::read_front(&self.held) {
                (ClientHello::Name(name), length) if name.parse().as_ref() == Ok(&self.name) => {
                    self.passing = length;
                    self.stage = Stage::Settled;
                    Ok(true)
                }
                (ClientHello::Name(_), _) => Err(BlockReason::TlsName),
                (ClientHello::NoName, _) => Err(BlockReason::NoTlsName),
                (ClientHello::Encrypted, _) => Err(BlockReason::EncryptedHello),
                (ClientHello::Incomplete, _) if self.held.len() < MAX_HELLO => Ok(false),
                (ClientHello::Incomplete | ClientHello::NotTls, _) => Err(BlockReason::NotTls),
            },
            // A client waits for the answer to its hello: this is a second one before the server asks for it.
            _ => Err(BlockReason::NotTls),
        }
    }
}

impl ServerFront {
    /// Whether the server asks for another hello; `None` as long as that cannot be said.
    fn read(&mut self, bytes: &[u8]) -> Option<bool> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.skipping > 0 {
                let skipped = self.skipping.min(rest.len());
                self.skipping -= skipped;
                rest = &rest[skipped..];
            } else if self.in_record > 0 {
                let wanted = BEFORE_RANDOM + RETRY.len() - self.message.len();
                let (piece, after) = rest.split_at(wanted.min(self.in_record).min(rest.len()));
                self.message.extend_from_slice(piece);
                self.in_record -= piece.len();
                rest = after;
                if self.message.first().is_some_and(|kind| *kind != SERVER_HELLO) {
                    return Some(false);
                }
                if let Some(random) = self.message.get(BEFORE_RANDOM..BEFORE_RANDOM + RETRY.len()) {
                    return Some(random == RETRY);
                }
            } else {
                let (piece, after) = rest.split_at((HEADER - self.header.len()).min(rest.len()));
                self.header.extend_from_slice(piece);
                rest = after;
                let kind = self.header.first().copied();
                if !matches!(kind, Some(CHANGE_CIPHER_SPEC | ALERT | HANDSHAKE)) {
                    return Some(false);
                }
                if let Some([_, _, _, high, low]) = self.header.first_chunk::<HEADER>() {
                    let length = usize::from(u16::from_be_bytes([*high, *low]));
                    self.header.clear();
                    let part = if kind == Some(HANDSHAKE) { &mut self.in_record } else { &mut self.skipping };
                    *part = length;
                }
            }
        }
        None
    }
}

#[cfg(test)]
#[path = "hello_retry_tests.rs"]
pub(super) mod tests;
