//! Which addresses are public.
//!
//! The tables follow IANA's special-purpose address registries for IPv4 and IPv6, as of 2025-10, and what no
//! registry of theirs has: multicast, IPv6 that was never allocated, and an address inside Azure. This file
//! must never call an address public because it is unknown: of IPv6, only what is allocated is.
//!
//! A network's own NAT64 prefix (RFC 6052) cannot be told from other addresses. Where there is one, it belongs
//! into `egress.deny`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// The well-known prefix of NAT64 (RFC 6052), which carries an IPv4 address in its last 32 bits.
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);

/// What is allocated as global unicast addresses (RFC 4291): all other IPv6 addresses are special or unused.
const GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// The description of IPv6 addresses outside of [`GLOBAL_UNICAST`] that have no entry of their own.
const UNALLOCATED: &str = "an address that is not allocated (RFC 4291: outside of 2000::/3)";

/// A range of addresses with one purpose.
struct Range<N> {
    range: N,
    /// What the column "Globally Reachable" says; "N/A" counts as no.
    is_global: bool,
    /// A noun with its source, to stand in a sentence.
    text: &'static str,
}

const fn v4(octets: [u8; 4], bits: u8) -> Ipv4Net {
    let [a, b, c, d] = octets;
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

const fn v6(segments: [u16; 8], bits: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), bits)
}

const fn global<N>(range: N, text: &'static str) -> Range<N> {
    Range { range, is_global: true, text }
}

const fn special<N>(range: N, text: &'static str) -> Range<N> {
    Range { range, is_global: false, text }
}

/// Of two entries that overlap, the narrower one stands first.
const IPV4: &[Range<Ipv4Net>] = &[
    special(v4([0, 0, 0, 0], 32), "the unspecified address (RFC 1122: 0.0.0.0/32)"),
    special(v4([0, 0, 0, 0], 8), "an address of \"this network\" (RFC 791: 0.0.0.0/8)"),
    special(v4([10, 0, 0, 0], 8), "a private address (RFC 1918: 10.0.0.0/8)"),
    special(v4([100, 64, 0, 0], 10), "a shared address of a provider (RFC 6598: 100.64.0.0/10)"),
    special(v4([127, 0, 0, 0], 8), "a loopback address (RFC 1122: 127.0.0.0/8)"),
    special(v4([168, 63, 129, 16], 32), "Azure's platform service (Microsoft: 168.63.129.16/32)"),
    special(v4([169, 254, 0, 0], 16), "a link-local address (RFC 3927: 169.254.0.0/16)"),
    special(v4([172, 16, 0, 0], 12), "a private address (RFC 1918: 172.16.0.0/12)"),
    global(v4([192, 0, 0, 9], 32), "the anycast address of port control (RFC 7723: 192.0.0.9/32)"),
    global(v4([192, 0, 0, 10], 32), "the anycast address of TURN (RFC 8155: 192.0.0.10/32)"),
    special(v4([192, 0, 0, 0], 29), "an address of IPv4 service continuity (RFC 7335: 192.0.0.0/29)"),
    special(v4([192, 0, 0, 8], 32), "the IPv4 dummy address (RFC 7600: 192.0.0.8/32)"),
    special(v4([192, 0, 0, 170], 31), "an address of NAT64 discovery (RFC 7050: 192.0.0.170/31)"),
    special(v4([192, 0, 0, 0], 24), "an address of the IETF's protocols (RFC 6890: 192.0.0.0/24)"),
    special(v4([192, 0, 2, 0], 24), "a documentation address (RFC 5737: 192.0.2.0/24)"),
    global(v4([192, 31, 196, 0], 24), "an address of AS112 (RFC 7535: 192.31.196.0/24)"),
    global(v4([192, 52, 193, 0], 24), "an address of AMT (RFC 7450: 192.52.193.0/24)"),
    special(v4([192, 88, 99, 2], 32), "the anycast address of 6a44 (RFC 6751: 192.88.99.2/32)"),
    special(v4([192, 88, 99, 0], 24), "an anycast address of 6to4 (RFC 7526: 192.88.99.0/24)"),
    special(v4([192, 168, 0, 0], 16), "a private address (RFC 1918: 192.168.0.0/16)"),
    global(v4([192, 175, 48, 0], 24), "an address of AS112 (RFC 7534: 192.175.48.0/24)"),
    special(v4([198, 18, 0, 0], 15), "a benchmarking address (RFC 2544: 198.18.0.0/15)"),
    special(v4([198, 51, 100, 0], 24), "a documentation address (RFC 5737: 198.51.100.0/24)"),
    special(v4([203, 0, 113, 0], 24), "a documentation address (RFC 5737: 203.0.113.0/24)"),
    special(v4([224, 0, 0, 0], 4), "a multicast address (RFC 5771: 224.0.0.0/4)"),
    special(v4([255, 255, 255, 255], 32), "the broadcast address (RFC 8190: 255.255.255.255/32)"),
    special(v4([240, 0, 0, 0], 4), "a reserved address (RFC 1112: 240.0.0.0/4)"),
];

/// As [`IPV4`]. IPv4-mapped addresses and those of NAT64 have no entry: the address inside is judged.
const IPV6: &[Range<Ipv6Net>] = &[
    special(v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "the unspecified address (RFC 4291: ::/128)"),
    special(v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "the loopback address (RFC 4291: ::1/128)"),
    special(v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "an IPv4-compatible address (RFC 4291: ::/96)"),
    special(v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "an address of local NAT64 (RFC 8215: 64:ff9b:1::/48)"),
    special(v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "a discard-only address (RFC 6666: 100::/64)"),
    special(v6([0x100, 0, 0, 1, 0, 0, 0, 0], 64), "an IPv6 dummy address (RFC 9780: 100:0:0:1::/64)"),
    special(v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "an address of Teredo (RFC 4380: 2001::/32)"),
    global(
        v6([0x2001, 1, 0, 0, 0, 0, 0, 1], 128),
        "the anycast address of port control (RFC 7723: 2001:1::1/128)",
    ),
    global(v6([0x2001, 1, 0, 0, 0, 0, 0, 2], 128), "the anycast address of TURN (RFC 8155: 2001:1::2/128)"),
    global(v6([0x2001, 1, 0, 0, 0, 0, 0, 3], 128), "the anycast address of DNS-SD (RFC 9665: 2001:1::3/128)"),
    special(v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), "a benchmarking address (RFC 5180: 2001:2::/48)"),
    global(v6([0x2001, 3, 0, 0, 0, 0, 0, 0], 32), "an address of AMT (RFC 7450: 2001:3::/32)"),
    global(v6([0x2001, 4, 0x112, 0, 0, 0, 0, 0], 48), "an address of AS112 (RFC 7535: 2001:4:112::/48)"),
    special(v6([0x2001, 0x10, 0, 0, 0, 0, 0, 0], 28), "an address of ORCHID (RFC 4843: 2001:10::/28)"),
    global(v6([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28), "an address of ORCHIDv2 (RFC 7343: 2001:20::/28)"),
    global(v6([0x2001, 0x30, 0, 0, 0, 0, 0, 0], 28), "an address of drone identity (RFC 9374: 2001:30::/28)"),
    special(
        v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
        "an address of the IETF's protocols (RFC 2928: 2001::/23)",
    ),
    special(v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "a documentation address (RFC 3849: 2001:db8::/32)"),
    special(v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "an address of 6to4 (RFC 3056: 2002::/16)"),
    global(
        v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48),
        "an address of AS112 (RFC 7534: 2620:4f:8000::/48)",
    ),
    special(v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "a documentation address (RFC 9637: 3fff::/20)"),
    special(v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), "an address of segment routing (RFC 9602: 5f00::/16)"),
    special(v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "a private address (RFC 4193: fc00::/7)"),
    special(v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "a link-local address (RFC 4291: fe80::/10)"),
    special(v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "a site-local address (RFC 3879: fec0::/10)"),
    special(v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "a multicast address (RFC 4291: ff00::/8)"),
];

/// Whether an address is public: reachable from everywhere, and not special in any way that
/// [`special_range`] names.
///
/// An IPv4-mapped address and one of NAT64's well-known prefix are what the address inside is. The other forms
/// with an address inside are never public, whatever it is: NAT64 with a local prefix and IPv4-compatible
/// addresses mean nothing outside of one network, and 6to4 and Teredo, which no registry calls globally
/// reachable, would hand packets to a tunnel.
pub fn is_global(ip: IpAddr) -> bool {
    special_range(ip).is_none()
}

/// Why an address is not public: a noun with the range and its source, such as "a private address (RFC 1918:
/// 10.0.0.0/8)". `None` if it is public.
pub fn special_range(ip: IpAddr) -> Option<&'static str> {
    let ip = match (embedded(ip), ip) {
        (Some(inner), _) => return special_v4(inner),
        (None, IpAddr::V4(ip)) => return special_v4(ip),
        (None, IpAddr::V6(ip)) => ip,
    };
    match IPV6.iter().find(|entry| entry.range.contains(&ip)) {
        Some(entry) => (!entry.is_global).then_some(entry.text),
        None => (!GLOBAL_UNICAST.contains(&ip)).then_some(UNALLOCATED),
    }
}

fn special_v4(ip: Ipv4Addr) -> Option<&'static str> {
    let entry = IPV4.iter().find(|entry| entry.range.contains(&ip));
    entry.filter(|entry| !entry.is_global).map(|entry| entry.text)
}

/// The IPv4 address that an IPv6 address means wherever it is dialled: IPv4-mapped, or of NAT64's well-known
/// prefix.
pub(super) fn embedded(ip: IpAddr) -> Option<Ipv4Addr> {
    let ip = match ip {
        IpAddr::V4(_) => return None,
        IpAddr::V6(ip) => ip,
    };
    let [.., a, b, c, d] = ip.octets();
    ip.to_ipv4_mapped().or_else(|| NAT64.contains(&ip).then(|| Ipv4Addr::new(a, b, c, d)))
}

/// Whether two addresses mean the same destination.
pub(super) fn is_same(a: IpAddr, b: IpAddr) -> bool {
    let meant = |ip| embedded(ip).map_or(ip, IpAddr::V4);
    meant(a) == meant(b)
}

#[cfg(test)]
mod tests;
