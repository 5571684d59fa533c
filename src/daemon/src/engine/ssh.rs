//! An engine on another machine, reached by the `ssh` program as Docker's own client does it: each connection
//! is a process of its own, and its standard input and output are the connection.
//!
//! ```text
//!  daemon ══ ssh -T -- HOST docker system dial-stdio ══ sshd ══ docker ══ /var/run/docker.sock
//! ```
//!
//! Keys, known hosts, jump hosts and shared connections are ssh's own matter, in the configuration of the
//! user who runs the daemon. Nobody can be asked anything: a key with a passphrase needs an ssh-agent.
//!
//! A new connection first asks the engine for a sign of life. So whatever stands in the way (ssh, the shell,
//! `docker` over there) fails the connection, with what ssh said, and no request has been sent.
//!
//! No text of an address may ever become an option of ssh, nor anything but a plain word of the command that
//! the shell of the other machine reads.

use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::printable;
use super::host::SshTarget;

/// Time to make one connection: several round trips, and the start of two programs over there. It is less
/// than what the shortest call has, so that a failure is known to have come before the call was sent.
pub(super) const CONNECT: Duration = Duration::from_secs(9);

/// Connections that are made at one time. By its default (`MaxStartups 10:30:100`), sshd drops some of those
/// beyond ten.
const OPENING: usize = 4;

/// An idle connection is kept for longer than by other ways: a new one costs a process on both machines.
pub(super) const IDLE: Duration = Duration::from_secs(5 * 60);

/// How much of ssh's messages is kept: the end, where the reason is.
const SAID: usize = 4096;

/// How long the reason is waited for after the connection ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The longest head of the engine's sign of life.
const HEAD: usize = 8192;

const PING: &[u8] = b"HEAD /_ping HTTP/1.1\r\nHost: api.moby.localhost\r\n\r\n";

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
pub(super) enum SshError {
    #[error("the program ssh cannot be started: {0}")]
    NotStarted(io::Error),
    #[error("ssh: {0}")]
    Failed(String),
    #[error(
        "what answers by ssh is no engine: {0:?}; its user's shell must print nothing, and `docker system \
         dial-stdio` must work there"
    )]
    Stranger(String),
    #[error("ssh made no connection within {CONNECT:?}{}", said(.0))]
    Late(String),
}

fn said(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!("; it said: {words}") }
}

/// The error of ssh inside another error, if there is one.
pub(super) fn blamed(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(cause) = next {
        let carried = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let ours = cause.downcast_ref::<SshError>();
        if let Some(ours) = ours.or_else(|| carried.and_then(|error| error.downcast_ref())) {
            return Some(ours.to_string());
        }
        next = cause.source();
    }
    None
}

/// Makes connections to one engine.
#[derive(Debug, Clone)]
pub(super) struct Ssh {
    arguments: Vec<String>,
    opening: Arc<Semaphore>,
}

impl Ssh {
    pub(super) fn new(target: &SshTarget) -> Ssh {
        Ssh { arguments: arguments(target), opening: Arc::new(Semaphore::new(OPENING)) }
    }

    /// Opens one connection.
    pub(super) async fn open(&self) -> Result<SshStream, SshError> {
        let _turn = self.opening.acquire().await;
        let mut command = Command::new("ssh");
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A signal from a terminal is for the daemon, which still needs its connections to end well.
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(SshError::NotStarted)?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(SshError::NotStarted(io::Error::other("it has no pipes")));
        };
        let words = Words::collect(stderr);
        let mut stream = SshStream { stdin: Some(stdin), stdout, words, end: None, _child: child };
        match timeout(CONNECT, stream.ping()).await {
            Ok(Ok(head)) if head.starts_with(b"HTTP/1.1 200") => Ok(stream),
            Ok(Ok(head)) => Err(SshError::Stranger(printable(&String::from_utf8_lossy(&head)))),
            Ok(Err(error)) => Err(SshError::Failed(match stream.words.last().await {
                words if words.is_empty() => error.to_string(),
                words => words,
            })),
            Err(_) => Err(SshError::Late(stream.words.now())),
        }
    }
}

fn arguments(target: &SshTarget) -> Vec<String> {
    let SshTarget { user, host, port, path } = target;
    let mut arguments: Vec<String> = vec!["-T".into()];
    for option in [
        "BatchMode=yes",
        "ConnectTimeout=8",
        "ClearAllForwardings=yes",
        // As long as the probes of TCP: a machine that vanished is noticed.
        "ServerAliveInterval=15",
        "ServerAliveCountMax=2",
    ] {
        arguments.extend(["-o".into(), option.into()]);
    }
    if let Some(user) = user {
        arguments.extend(["-l".into(), user.clone()]);
    }
    if let Some(port) = port {
        arguments.extend(["-p".into(), port.to_string()]);
    }
    arguments.extend(["--".into(), host.clone(), "docker".into()]);
    if let Some(path) = path {
        arguments.extend(["--host".into(), format!("unix://{path}")]);
    }
    arguments.extend(["system".into(), "dial-stdio".into()]);
    arguments
}

/// One connection. Dropping it ends its process.
#[derive(Debug)]
pub(super) struct SshStream {
    /// `None` once this direction is shut down.
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    words: Words,
    /// After the end of what comes: whether ssh says why.
    end: Option<End>,
    _child: Child,
}

struct End(Pin<Box<dyn Future<Output = String> + Send>>);

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("End")
    }
}

impl SshStream {
    /// The head of the engine's answer to a sign of life.
    async fn ping(&mut self) -> io::Result<Vec<u8>> {
        let Some(stdin) = &mut self.stdin else { return Err(io::ErrorKind::BrokenPipe.into()) };
        // If ssh has ended already, its end is what says why.
        let _ = stdin.write_all(PING).await;
        let mut head = Vec::new();
        while head.len() < HEAD && !head.ends_with(b"\r\n\r\n") {
            if self.stdout.read_buf(&mut head).await? == 0 {
                if head.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended without an answer"));
                }
                break;
            }
        }
        Ok(head)
    }
}

impl AsyncRead for SshStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.end.is_none() {
            let before = into.filled().len();
            ready!(Pin::new(&mut this.stdout).poll_read(context, into))?;
            if into.filled().len() > before || into.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let words = this.words.clone();
            this.end = Some(End(Box::pin(async move { words.last().await })));
        }
        let Some(End(end)) = &mut this.end else { return Poll::Ready(Ok(())) };
        let said = ready!(end.as_mut().poll(context));
        this.end = Some(End(Box::pin(std::future::ready(said.clone()))));
        if said.is_empty() {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, SshError::Failed(said))))
    }
}

impl AsyncWrite for SshStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stdin {
            Some(stdin) => Pin::new(stdin).poll_write(context, bytes),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stdin {
            Some(stdin) => Pin::new(stdin).poll_flush(context),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Ends this direction only: `dial-stdio` passes that on to the engine.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(context))?;
        self.stdin = None;
        Poll::Ready(Ok(()))
    }
}

/// What ssh, or the command over there, writes to its standard error.
#[derive(Debug, Clone)]
struct Words {
    text: Arc<Mutex<Vec<u8>>>,
    reading: Arc<tokio::sync::Mutex<JoinHandle<()>>>,
}

impl Words {
    fn collect(mut from: ChildStderr) -> Words {
        let text = Arc::new(Mutex::new(Vec::new()));
        let into = text.clone();
        let reading = tokio::spawn(async move {
            let mut piece = [0; 1024];
            while let Ok(count) = from.read(&mut piece).await {
                if count == 0 {
                    break;
                }
                let mut into = into.lock().unwrap_or_else(PoisonError::into_inner);
                into.extend_from_slice(piece.get(..count).unwrap_or_default());
                let beyond = into.len().saturating_sub(SAID);
                into.drain(..beyond);
            }
        });
        Words { text, reading: Arc::new(tokio::sync::Mutex::new(reading)) }
    }

    /// What it has said so far, as one line.
    fn now(&self) -> String {
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        printable(&String::from_utf8_lossy(&text))
    }

    /// The same once it has ended. A shared connection of ssh can keep the pipe open.
    async fn last(&self) -> String {
        let mut reading = self.reading.lock().await;
        if !reading.is_finished() {
            let _ = timeout(LAST_WORDS, &mut *reading).await;
        }
        drop(reading);
        self.now()
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // The last one: a shared connection of ssh could keep the pipe open for hours.
        if Arc::strong_count(&self.reading) == 1
            && let Ok(reading) = self.reading.try_lock()
        {
            reading.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_address_is_one_word_behind_the_options() {
        let target = |text: &str| {
            let host = text.parse::<super::super::EngineHost>().unwrap();
            let super::super::host::Address::Ssh(target) = host.address() else { panic!("{host}") };
            arguments(target).join(" ")
        };
        let plain = target("ssh://engine.lan");
        assert!(plain.starts_with("-T -o BatchMode=yes "), "{plain}");
        assert!(plain.ends_with(" -- engine.lan docker system dial-stdio"), "{plain}");
        let full = target("ssh://me@engine.lan:2222/run/podman/podman.sock");
        let end =
            " -l me -p 2222 -- engine.lan docker --host unix:///run/podman/podman.sock system dial-stdio";
        assert!(full.ends_with(end), "{full}");
    }
}
