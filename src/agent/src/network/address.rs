//! The address in a `connect`, from the caller's bytes. Pure.
//!
//! It must never take an address for one that leads out of the container unless the kernel would, too: only
//! then does PID 1 answer in its place.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::names::is_reserved;

/// Bytes of the longest address that is read (`struct sockaddr_storage`).
pub(super) const LONGEST: usize = 128;

/// Bytes that the kernel wants at least (`struct sockaddr_in`, and of `sockaddr_in6` the part without the
/// scope).
const LEAST: [usize; 2] = [16, 24];

/// The address of a `connect`, if it is an internet address and leads out of the container; a mapped one is
/// given as it was written. Loopback leads out where an address can stand for a name.
pub(super) fn leading_out(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    let address: IpAddr = match i32::from(family) {
        libc::AF_INET if bytes.len() >= LEAST[0] => {
            Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?).into()
        }
        libc::AF_INET6 if bytes.len() >= LEAST[1] => {
            Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?).into()
        }
        _ => return None,
    };
    let is_outside = match address.to_canonical() {
        IpAddr::V4(v4) => is_reserved(v4) || !(v4.is_loopback() || v4.is_unspecified()),
        IpAddr::V6(v6) => !(v6.is_loopback() || v6.is_unspecified()),
    };
    (is_outside && port != 0).then_some(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn v4(address: [u8; 4], port: u16) -> Vec<u8> {
        let family = u16::try_from(libc::AF_INET).expect("small").to_ne_bytes();
        [&family[..], &port.to_be_bytes(), &address, &[0; 8]].concat()
    }

    fn v6(address: &str, port: u16) -> Vec<u8> {
        let family = u16::try_from(libc::AF_INET6).expect("small").to_ne_bytes();
        let address: Ipv6Addr = address.parse().expect("an address");
        [&family[..], &port.to_be_bytes(), &[0; 4], &address.octets(), &[0; 4]].concat()
    }

    #[test]
    fn what_leads_out_is_read() {
        for (bytes, text) in [
            (v4([93, 184, 216, 34], 443), "93.184.216.34:443"),
            (v4([127, 64, 0, 1], 80), "127.64.0.1:80"),
            (v4([127, 127, 255, 255], 80), "127.127.255.255:80"),
            (v4([10, 0, 0, 5], 5432), "10.0.0.5:5432"),
            (v4([169, 254, 169, 254], 80), "169.254.169.254:80"),
            (v4([255, 255, 255, 255], 1), "255.255.255.255:1"),
            (v6("2001:db8::1", 22), "[2001:db8::1]:22"),
            (v6("::ffff:10.0.0.5", 22), "[::ffff:10.0.0.5]:22"),
            (v6("::ffff:127.64.0.1", 22), "[::ffff:127.64.0.1]:22"),
            (v6("64:ff9b::7f00:1", 22), "[64:ff9b::7f00:1]:22"),
            (v6("fe80::1", 22), "[fe80::1]:22"),
            (v6("2001:db8::1", 22)[..24].to_vec(), "[2001:db8::1]:22"),
        ] {
            assert_eq!(leading_out(&bytes), Some(text.parse().expect("an address")), "{text}");
        }
    }

    #[test]
    fn what_stays_inside_is_the_kernels() {
        for bytes in [
            v4([127, 0, 0, 1], 80),
            v4([127, 63, 255, 255], 80),
            v4([127, 128, 0, 1], 80),
            v4([0, 0, 0, 0], 80),
            v4([8, 8, 8, 8], 0),
            v6("::1", 80),
            v6("::", 80),
            v6("::ffff:127.0.0.1", 80),
            v6("::ffff:0.0.0.0", 80),
            v4([8, 8, 8, 8], 53)[..15].to_vec(),
            v6("2001:db8::1", 80)[..23].to_vec(),
            vec![0, 0, 0, 80, 8, 8, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0], // AF_UNSPEC
            [&[1, 0][..], b"/run/postgresql/.s.PGSQL.5432\0"].concat(), // AF_UNIX
            vec![16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],             // AF_NETLINK
            vec![2],
            vec![],
        ] {
            assert_eq!(leading_out(&bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..LONGEST)) {
            let _ = leading_out(&bytes);
        }
    }
}
