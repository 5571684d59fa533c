//! Whether the network inside of this container works: its loopback, and the files of names.
//!
//! It must never ask anybody for a name.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use paddock_proto::message::Inside;

/// A connection over a loopback takes no time.
const WITHIN: Duration = Duration::from_secs(1);

/// Looks at all of it.
pub(super) fn look() -> Inside {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    Inside {
        loopback_errno: connect().err().map_or(0, |error| error.raw_os_error().unwrap_or(-1)),
        localhost: localhost(&read("/etc/hosts")),
        name_servers: name_servers(&read("/etc/resolv.conf")),
    }
}

fn connect() -> io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    TcpStream::connect_timeout(&listener.local_addr()?, WITHIN).map(drop)
}

/// The addresses of `localhost` in a file as hosts(5) describes it.
fn localhost(hosts: &str) -> Vec<String> {
    let lines = hosts.lines().map(|line| line.split('#').next().unwrap_or_default().split_ascii_whitespace());
    let addresses = lines.filter_map(|mut words| {
        let address = words.next()?;
        words.any(|name| name == "localhost").then(|| address.to_owned())
    });
    addresses.collect()
}

/// The name servers of a file as resolv.conf(5) describes it.
fn name_servers(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::split_ascii_whitespace);
    let servers = lines.filter_map(|mut words| {
        (words.next() == Some("nameserver")).then(|| words.next().unwrap_or_default().to_owned())
    });
    servers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_tried() {
        assert_eq!(look().loopback_errno, 0);
    }

    #[test]
    fn names_are_read_as_programs_read_them() {
        let hosts = "# 1.1.1.1 localhost\n127.0.0.1\tlocalhost\n\n::1 a localhost # yes\n10.0.0.1 other\n";
        assert_eq!(localhost(hosts), ["127.0.0.1", "::1"]);
        assert_eq!(localhost(""), Vec::<String>::new());
        let text = "# nameserver 1.1.1.1\nnameserver 127.0.0.1\nsearch lan\nnameserver\t10.0.0.2\n";
        assert_eq!(name_servers(text), ["127.0.0.1", "10.0.0.2"]);
    }
}
