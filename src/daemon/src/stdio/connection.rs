//! The connection to one daemon, and what is known about the messages that were sent over it.
//!
//! A daemon begins a message once it has read the end of its line. So a message has certainly not begun, and
//! may be sent to another daemon, in these cases, and in no others:
//!
//! * **It was not accepted.** The daemon had already closed its end, or the write failed: then the kernel did
//!   not take the message's last byte.
//! * **It was not read.** When a process closes its end of a Unix socket, or dies, while that end holds bytes
//!   that it has not read, the other end reads a reset instead of the end of the stream. Bytes are read in
//!   order, so the last byte that was sent is one of them: the end of the last message. Of the messages
//!   before it nothing is known.
//!
//! This module must never say of a message that a daemon may have read that it has not begun.

use std::io;

use bytes::Bytes;
use rustix::net::RecvFlags;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// A connection to a daemon.
pub(super) struct DaemonConnection {
    from: BufReader<OwnedReadHalf>,
    to: OwnedWriteHalf,
    /// The part of the daemon's next message that was read.
    line: Vec<u8>,
    /// The message that the last byte sent belongs to, if it was sent whole.
    last: Option<Bytes>,
    /// The daemon's end was closed with bytes in it that the daemon had not read.
    is_reset: bool,
}

/// What a daemon says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// A message, with the end of its line.
    Message(Vec<u8>),
    /// Nothing more: it is gone.
    Gone {
        /// The last message sent, if the daemon certainly did not begin it.
        unread: Option<Bytes>,
    },
}

impl DaemonConnection {
    pub(super) fn new(socket: UnixStream) -> Self {
        let (from, to) = socket.into_split();
        Self { from: BufReader::new(from), to, line: Vec::new(), last: None, is_reset: false }
    }

    /// Sends a message, a whole line. False if the daemon is gone and has certainly not begun the message.
    pub(super) async fn send(&mut self, message: &Bytes) -> bool {
        if self.has_ended() {
            return false;
        }
        let mut rest = &message[..];
        let is_sent = self.to.write_all_buf(&mut rest).await.is_ok();
        if rest.len() < message.len() {
            self.last = is_sent.then(|| message.clone());
        }
        is_sent
    }

    /// The daemon's next message. Dropping the future loses nothing.
    pub(super) async fn hear(&mut self) -> Heard {
        match self.from.read_until(b'\n', &mut self.line).await {
            Ok(_) if self.line.ends_with(b"\n") => return Heard::Message(std::mem::take(&mut self.line)),
            Ok(_) => {}
            Err(error) => self.is_reset |= error.kind() == io::ErrorKind::ConnectionReset,
        }
        Heard::Gone { unread: self.last.take().filter(|_| self.is_reset) }
    }

    /// Forgets the last message: every request was answered, so none will be sent again.
    pub(super) fn forget_last(&mut self) {
        self.last = None;
    }

    /// Whether the daemon will say nothing more; looks once, without waiting. False if it said something that
    /// was not read yet. The kernel reports a reset once only, to whoever looks first.
    fn has_ended(&mut self) -> bool {
        let socket: &UnixStream = self.to.as_ref();
        match rustix::net::recv(socket, &mut [0; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, bytes)) => bytes == 0,
            Err(rustix::io::Errno::CONNRESET) => {
                self.is_reset = true;
                true
            }
            // Nothing to read yet, or nothing that a write would not find too.
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    fn pair() -> (DaemonConnection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (DaemonConnection::new(ours), theirs)
    }

    fn message(text: &str) -> Bytes {
        format!("{text}\n").into_bytes().into()
    }

    /// A message that no buffer of a socket takes whole.
    fn large() -> Bytes {
        message(&"x".repeat(8 << 20))
    }

    async fn read(daemon: &mut UnixStream, message: &Bytes) {
        let mut read = vec![0; message.len()];
        daemon.read_exact(&mut read).await.unwrap();
        assert_eq!(read, message[..]);
    }

    #[tokio::test]
    async fn what_the_daemon_did_not_read_of_the_last_message_proves_that_it_did_not_begin() {
        let (mut connection, daemon) = pair();
        assert!(connection.send(&message("1")).await && connection.send(&message("2")).await);
        drop(daemon);
        assert_eq!(connection.hear().await, Heard::Gone { unread: Some(message("2")) });

        // All but the end of its line.
        let (mut connection, mut daemon) = pair();
        assert!(connection.send(&message("1234")).await);
        daemon.read_exact(&mut [0; 4]).await.unwrap();
        drop(daemon);
        assert_eq!(connection.hear().await, Heard::Gone { unread: Some(message("1234")) });
    }

    #[tokio::test]
    async fn a_message_that_was_read_may_have_begun() {
        let (mut connection, mut daemon) = pair();
        assert!(connection.send(&message("1")).await);
        read(&mut daemon, &message("1")).await;
        daemon.write_all(b"first\nsecond\npart").await.unwrap();
        drop(daemon);
        for said in ["first\n", "second\n"] {
            assert_eq!(connection.hear().await, Heard::Message(said.into()));
        }
        assert_eq!(connection.hear().await, Heard::Gone { unread: None });
    }

    #[tokio::test]
    async fn a_daemon_that_is_gone_is_sent_nothing() {
        // Also if it left something to read, and if it only ceased to write.
        for (says, is_whole) in [("", true), ("last\n", true), ("", false)] {
            let (mut connection, mut daemon) = pair();
            daemon.write_all(says.as_bytes()).await.unwrap();
            daemon.shutdown().await.unwrap();
            let ceased = (!is_whole).then_some(daemon);
            assert!(!connection.send(&message("1")).await, "{says:?}");
            if !says.is_empty() {
                assert_eq!(connection.hear().await, Heard::Message(says.into()));
            }
            assert_eq!(connection.hear().await, Heard::Gone { unread: None });
            drop(ceased);
        }
    }

    #[tokio::test]
    async fn a_message_that_is_refused_leaves_the_proof_for_the_one_before_it() {
        for says in ["", "last\n"] {
            let (mut connection, mut daemon) = pair();
            assert!(connection.send(&message("1")).await);
            daemon.write_all(says.as_bytes()).await.unwrap();
            drop(daemon);
            assert!(!connection.send(&message("2")).await);
            if !says.is_empty() {
                assert_eq!(connection.hear().await, Heard::Message(says.into()));
            }
            assert_eq!(connection.hear().await, Heard::Gone { unread: Some(message("1")) });
        }
    }

    #[tokio::test]
    async fn a_message_that_was_sent_in_part_proves_nothing_of_the_one_before_it() {
        let (mut connection, mut daemon) = pair();
        assert!(connection.send(&message("1")).await);
        let large = large();
        let sending = connection.send(&large);
        let reading = async {
            read(&mut daemon, &message("1")).await;
            daemon.read_exact(&mut [0; 1000]).await.unwrap();
            drop(daemon);
        };
        let (is_sent, ()) = tokio::join!(sending, reading);
        assert!(!is_sent, "the daemon cannot have its end");
        assert_eq!(connection.hear().await, Heard::Gone { unread: None });
    }

    #[tokio::test]
    async fn an_answered_message_is_not_kept() {
        let (mut connection, daemon) = pair();
        assert!(connection.send(&message("1")).await);
        connection.forget_last();
        drop(daemon);
        assert_eq!(connection.hear().await, Heard::Gone { unread: None });
    }
}
