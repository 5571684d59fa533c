//! The port of a daemon that `paddock stdio` or `paddock run` starts. Such a daemon must not fail when its
//! configured port is in use.
//!
//! Links to files contain the port, and conversations keep links. So the daemon writes the port that it used
//! instead into the store, and the next such daemon of that store uses it again: while one runs, the links
//! work as before.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;

use tokio::net::TcpListener;
use tracing::warn;

use crate::listener;

/// The file in the store's folder.
const FILE: &str = "port";

/// Listens at `addr`; if that is in use, or asks for a free port, at the port used last; else at any.
///
/// # Errors
/// It is not an address of this machine, or the system has no free port.
pub(crate) async fn bind(addr: SocketAddr, store: &Path) -> io::Result<TcpListener> {
    if addr.port() != 0 {
        match listener::bind(addr).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                warn!(%addr, "the address (http.addr) is in use: this daemon listens at another port, which \
                              links to files contain");
            }
            bound => return bound,
        }
    }
    let file = store.join(FILE);
    if let Some(port) = std::fs::read_to_string(&file).ok().as_deref().and_then(kept)
        && let Ok(listener) = listener::bind((addr.ip(), port)).await
    {
        return Ok(listener);
    }
    let listener = listener::bind((addr.ip(), 0)).await?;
    let port = listener.local_addr()?.port();
    if let Err(error) = std::fs::write(&file, format!("{port}\n")) {
        warn!(%error, "cannot write the port into the store: links of the next daemon will contain another");
    }
    Ok(listener)
}

/// The port in the file; a privileged port is not used.
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
    async fn a_port_that_was_used_instead_is_used_again() {
        let store = tempfile::tempdir().expect("a folder");
        let taken = listener::bind("127.0.0.1:0").await.expect("a port");
        let addr = taken.local_addr().expect("an address");
        let (first, port) = port_of(addr, store.path()).await;
        assert_ne!(port, addr.port());
        drop(first);
        let (second, again) = port_of(addr, store.path()).await;
        assert_eq!(again, port);
        // While another program uses that port too, another one is chosen.
        let (_third, other) = port_of(addr, store.path()).await;
        assert!(other != port && other != addr.port());
        drop((second, taken));
        // The configured port is always tried first.
        let (_fourth, configured) = port_of(addr, store.path()).await;
        assert_eq!(configured, addr.port());
    }

    #[test]
    fn a_file_without_a_valid_port_is_ignored() {
        for text in ["", "x", "80", "70000", "-1", "8080 8081"] {
            assert_eq!(kept(text), None, "{text:?}");
        }
        assert_eq!(kept("8080\n"), Some(8080));
    }
}
