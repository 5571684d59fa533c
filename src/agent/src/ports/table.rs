//! Reads the kernel's table of TCP sockets (/proc/net/tcp and tcp6), and finds the listening sockets to which
//! PID 1 can connect. Only the reading of the files is not pure.
//!
//! It must never read more than [`LONGEST`] bytes of a table: sockets that listen come first in it.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of a table that are read: more than 400 sockets.
const LONGEST: u64 = 64 * 1024;

/// The state of a socket that listens (`TCP_LISTEN`).
const LISTENS: &str = "0A";

/// A socket that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListeningSocket {
    /// Its number, as in `socket:[NUMBER]`.
    pub(super) socket: u64,
    pub(super) port: u16,
}

/// Every socket that listens on an address where PID 1 connects.
pub(super) fn listening() -> Vec<ListeningSocket> {
    let read = |path| {
        let mut text = Vec::new();
        let opened = File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut text));
        opened.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&text).into_owned())
    };
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().flat_map(|path| parse(&read(path))).collect()
}

fn parse(table: &str) -> Vec<ListeningSocket> {
    table.lines().skip(1).filter_map(line).collect()
}

/// ```text
///  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
///   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 …
/// ```
fn line(line: &str) -> Option<ListeningSocket> {
    let mut fields = line.split_ascii_whitespace();
    let (local, state) = (fields.nth(1)?, fields.nth(1)?);
    let socket = fields.nth(5)?.parse().ok()?;
    let (address, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    (state == LISTENS && is_reached(address_of(address)?)).then_some(ListeningSocket { socket, port })
}

/// An address in the machine's own order of bytes, word by word.
fn address_of(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?).into())
        }
        _ => None,
    }
}

fn is_reached(address: IpAddr) -> bool {
    address.to_canonical().is_unspecified()
        || [IpAddr::V4(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()].contains(&address.to_canonical())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use proptest::prelude::*;

    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0 0 10 0
   1: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12 1 0
   2: 0200007F:0017 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 13 1 0
   3: 0100007F:0016 0100007F:C000 01 00000000:00000000 00:00000000 00000000  1000        0 14 1 0
";
    const TABLE6: &str = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue …
   0: 00000000000000000000000000000000:0BB8 00000000000000000000000000000000:0000 0A 0:0 00:0 0 1000 0 21 1
   1: 00000000000000000000000001000000:0BB9 00000000000000000000000000000000:0000 0A 0:0 00:0 0 1000 0 22 1
   2: 0000000000000000FFFF00000100007F:0BBA 00000000000000000000000000000000:0000 0A 0:0 00:0 0 1000 0 23 1
   3: 000080FE000000000000000001000000:0BBB 00000000000000000000000000000000:0000 0A 0:0 00:0 0 1000 0 24 1
";

    #[test]
    fn sockets_that_listen_where_pid_1_connects_are_found() {
        let found = |text| parse(text).iter().map(|one| (one.socket, one.port)).collect::<Vec<_>>();
        assert_eq!(found(TABLE), [(11, 8080), (12, 22)]);
        assert_eq!(found(TABLE6), [(21, 3000), (22, 3001), (23, 3002)]);
    }

    #[test]
    fn the_kernel_s_own_table_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let link = std::fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).expect("a socket");
        let found = listening().into_iter().find(|one| one.port == port).expect("it listens");
        assert_eq!(link.to_str(), Some(format!("socket:[{}]", found.socket).as_str()));
    }

    proptest! {
        #[test]
        fn a_table_of_any_form_is_read_without_a_panic(text in ".{0,200}", at in 0..TABLE6.len()) {
            let _ = parse(&format!("\n{text}"));
            let _ = parse(&TABLE6[..TABLE6.floor_char_boundary(at)]);
        }
    }
}
