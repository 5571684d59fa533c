//! The port of a daemon that must not fail for want of one: `paddock stdio` or `paddock run` in a daemon's place.
//!
//! Links to files name it, and are kept in conversations. So the port that was taken instead of a configured one is
//! written into the store, and the next such daemon of that store takes it again: its links open as before while one
//! runs.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;

use tokio::net::TcpListener;
use tracing::warn;

/// Its file in the store's folder.
const FILE: &str = "port";

/// Listens at `addr`; where that is taken, or asks for a free port, at the port of the last time; else at any.
///
/// # Errors
/// It is no address of this machine, or the system has no more.
pub(crate) async fn bind(addr: SocketAddr, store: &Path) -> io::Result<TcpListener> {
    if addr.port() != 0 {
        match TcpListener::bind(addr).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                warn!(%addr, "the address (http.addr) is taken: links to files get another port");
            }
            bound => return bound,
        }
    }
    let file = store.join(FILE);
    if let Some(port) = std::fs::read_to_string(&file).ok().as_deref().and_then(kept)
        && let Ok(listener) = TcpListener::bind((addr.ip(), port)).await
    {
        return Ok(listener);
    }
    let listener = TcpListener::bind((addr.ip(), 0)).await?;
    let port = listener.local_addr()?.port();
    if let Err(error) = std::fs::write(&file, format!("{port}\n")) {
        warn!(%error, "the port cannot be kept in the store: the next daemon's links will have another");
    }
    Ok(listener)
}

/// The port that a file says. One of the privileged is not ours to take.
fn kept(text: &str) -> Option<u16> {
    text.trim().parse().ok().filter(|port| *port >= 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn port_of(addr: SocketAddr, store: &Path) -> (TcpListener, u16) {
        let listener = bind(addr, store).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        (listener, port)
    }

    #[tokio::test]
    async fn a_port_that_was_taken_instead_is_taken_again() {
        let store = tempfile::tempdir().expect("a folder");
        let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = taken.local_addr().expect("an address");
        let (first, port) = port_of(addr, store.path()).await;
        assert_ne!(port, addr.port());
        drop(first);
        let (second, again) = port_of(addr, store.path()).await;
        assert_eq!(again, port);
        // While somebody has that too there is another.
        let (_third, other) = port_of(addr, store.path()).await;
        assert!(other != port && other != addr.port());
        drop((second, taken));
        // What is configured is what is tried first.
        let (_fourth, configured) = port_of(addr, store.path()).await;
        assert_eq!(configured, addr.port());
    }

    #[test]
    fn a_file_that_says_no_port_says_nothing() {
        for text in ["", "x", "80", "70000", "-1", "8080 8081"] {
            assert_eq!(kept(text), None, "{text:?}");
        }
        assert_eq!(kept("8080\n"), Some(8080));
    }
}
