//! Whether anything outside of this container can be reached: some ways out, each tried.
//!
//! It must never wait for an answer, nor send a byte of content to anybody: where there is no network, the
//! kernel refuses each attempt at once, since it has no route.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use paddock_proto::message::Outside;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, connect, send, socket_with};

/// Routes that are reported.
const MAX_ROUTES: usize = 16;

/// What is tried: addresses that mean something wherever there is a route, and one of nobody (RFC 5737).
const TRIES: [(IpAddr, u16, SocketType); 6] = [
    (IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)), 443, SocketType::STREAM),
    (IpAddr::V6(Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111)), 443, SocketType::STREAM),
    // The gateway of the engine's usual bridge, and the metadata of most clouds.
    (IpAddr::V4(Ipv4Addr::new(172, 17, 0, 1)), 80, SocketType::STREAM),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), 80, SocketType::STREAM),
    (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9, SocketType::DGRAM),
    (IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9, SocketType::DGRAM),
];

/// Tries all of them, and reads the routes.
pub(super) fn look() -> Outside {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let routes =
        [ipv4_routes(&read("/proc/self/net/route")), ipv6_routes(&read("/proc/self/net/ipv6_route"))];
    Outside {
        tries: TRIES.iter().map(|(ip, port, kind)| attempt(SocketAddr::new(*ip, *port), *kind)).collect(),
        routes: routes.concat().into_iter().take(MAX_ROUTES).collect(),
    }
}

/// What was tried, and the errno that it gave at once; 0 where nothing refused it.
fn attempt(to: SocketAddr, kind: SocketType) -> (String, i32) {
    let is_stream = kind == SocketType::STREAM;
    let name = if is_stream { format!("TCP to {to}") } else { format!("UDP to {to}") };
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let tried =
        socket_with(family, kind, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None).and_then(|socket| {
            connect(&socket, &to)?;
            if is_stream { Ok(0) } else { send(&socket, &[], SendFlags::empty()) }
        });
    let errno = match tried {
        // It is on its way.
        Ok(_) | Err(Errno::INPROGRESS) => 0,
        Err(errno) => errno.raw_os_error(),
    };
    (name, errno)
}

/// The routes of /proc/net/route that lead over another interface than `lo`, as it writes them.
fn ipv4_routes(text: &str) -> Vec<String> {
    let fields = text.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let others = fields.filter(|fields| fields.first().is_some_and(|interface| *interface != "lo"));
    others.map(|fields| fields.iter().take(3).copied().collect::<Vec<_>>().join(" ")).collect()
}

/// The same of /proc/net/ipv6_route, where the interface stands last.
fn ipv6_routes(text: &str) -> Vec<String> {
    let fields = text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let others = fields.filter(|fields| fields.last().is_some_and(|interface| *interface != "lo"));
    others
        .map(|fields| {
            [fields.last(), fields.first()].into_iter().flatten().copied().collect::<Vec<_>>().join(" ")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn routes_over_other_interfaces_than_lo_are_found() {
        let text = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                    eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                    lo\t0000007F\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n";
        assert_eq!(ipv4_routes(text), ["eth0 00000000 010011AC"]);
        let (zero, mac) = ("0".repeat(32), "fe80".to_owned() + &"0".repeat(28));
        let line = |to: &str, interface: &str| {
            format!("{to} 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001     {interface}\n")
        };
        let text = line(&mac, "eth0") + &line(&zero, "lo");
        assert_eq!(ipv6_routes(&text), [format!("eth0 {mac}")]);
        assert_eq!((ipv4_routes(""), ipv6_routes("")), (vec![], vec![]));
    }

    #[test]
    fn an_attempt_says_at_once_whether_anything_refuses_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let open = listener.local_addr().expect("an address");
        assert_eq!(attempt(open, SocketType::STREAM), (format!("TCP to {open}"), 0));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let to = socket.local_addr().expect("an address");
        assert_eq!(attempt(to, SocketType::DGRAM), (format!("UDP to {to}"), 0));
        let mut byte = [0; 1];
        assert_eq!(socket.recv(&mut byte).expect("a datagram"), 0, "it has no content");
        // Broadcast needs a permission that the socket does not have.
        let to = "255.255.255.255:9".parse().expect("an address");
        assert_ne!(attempt(to, SocketType::DGRAM).1, 0);
    }
}
