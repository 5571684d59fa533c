//! Listeners of the daemon, with a queue in the kernel that a burst of connections fits into.
//!
//! Where the queue is full the kernel drops what comes, and a client tries again after a second. It must
//! never accept anything: how many connections there may be is decided elsewhere.

use std::io;

use tokio::net::{TcpListener, ToSocketAddrs};

/// Connections that wait to be accepted. The kernel takes at most `net.core.somaxconn`, which is 4096 since
/// Linux 5.4; the standard library asks for 128.
const BACKLOG: i32 = 4096;

/// Listens at this address.
///
/// # Errors
/// As of [`TcpListener::bind`].
pub(crate) async fn bind(addr: impl ToSocketAddrs) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(addr).await?;
    // Of a socket that listens already, this changes the length of its queue.
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_burst_of_connections_waits_in_the_queue_of_the_kernel() {
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let many = allowed.trim().parse::<usize>().unwrap().min(1000);
        let listener = bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connect = |_| async move {
            let connecting = tokio::net::TcpStream::connect(address);
            tokio::time::timeout(std::time::Duration::from_millis(900), connecting).await.unwrap().unwrap()
        };
        // Nobody accepts them.
        let all = futures_util::future::join_all((0..many).map(connect)).await;
        assert_eq!(all.len(), many);
    }
}
