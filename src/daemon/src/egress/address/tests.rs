use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Each range of the registries: the address before it, its first and last one, the address after it. `+` is
/// public, `-` is not.
const RANGES: &str = r"
0.0.0.0/8         -0.0.0.0 -0.255.255.255 +1.0.0.0
10.0.0.0/8        +9.255.255.255 -10.0.0.0 -10.255.255.255 +11.0.0.0
100.64.0.0/10     +100.63.255.255 -100.64.0.0 -100.127.255.255 +100.128.0.0
127.0.0.0/8       +126.255.255.255 -127.0.0.0 -127.255.255.255 +128.0.0.0
168.63.129.16/32  +168.63.129.15 -168.63.129.16 -168.63.129.16 +168.63.129.17
169.254.0.0/16    +169.253.255.255 -169.254.0.0 -169.254.255.255 +169.255.0.0
172.16.0.0/12     +172.15.255.255 -172.16.0.0 -172.31.255.255 +172.32.0.0
192.0.0.0/24      +191.255.255.255 -192.0.0.0 -192.0.0.255 +192.0.1.0
192.0.0.0/29      +191.255.255.255 -192.0.0.0 -192.0.0.7 -192.0.0.8
192.0.0.9-10      -192.0.0.8 +192.0.0.9 +192.0.0.10 -192.0.0.11
192.0.0.170/31    -192.0.0.169 -192.0.0.170 -192.0.0.171 -192.0.0.172
192.0.2.0/24      +192.0.1.255 -192.0.2.0 -192.0.2.255 +192.0.3.0
192.31.196.0/24   +192.31.195.255 +192.31.196.0 +192.31.196.255 +192.31.197.0
192.52.193.0/24   +192.52.192.255 +192.52.193.0 +192.52.193.255 +192.52.194.0
192.88.99.0/24    +192.88.98.255 -192.88.99.0 -192.88.99.255 +192.88.100.0
192.88.99.2/32    -192.88.99.1 -192.88.99.2 -192.88.99.2 -192.88.99.3
192.168.0.0/16    +192.167.255.255 -192.168.0.0 -192.168.255.255 +192.169.0.0
192.175.48.0/24   +192.175.47.255 +192.175.48.0 +192.175.48.255 +192.175.49.0
198.18.0.0/15     +198.17.255.255 -198.18.0.0 -198.19.255.255 +198.20.0.0
198.51.100.0/24   +198.51.99.255 -198.51.100.0 -198.51.100.255 +198.51.101.0
203.0.113.0/24    +203.0.112.255 -203.0.113.0 -203.0.113.255 +203.0.114.0
224.0.0.0/4       +223.255.255.255 -224.0.0.0 -239.255.255.255 -240.0.0.0
240.0.0.0/4       -239.255.255.255 -240.0.0.0 -255.255.255.255
::/128            -:: -:: -::1
::1/128           -:: -::1 -::1 -::2
::/96             -:: -::ffff:ffff -::1:0:0
64:ff9b:1::/48    -64:ff9b:0:ffff:ffff:ffff:ffff:ffff -64:ff9b:1:: -64:ff9b:1:ffff:ffff:ffff:ffff:ffff -64:ff9b:2::
100::/64          -ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff -100:: -100::ffff:ffff:ffff:ffff -100:0:0:1::
100:0:0:1::/64    -100::ffff:ffff:ffff:ffff -100:0:0:1:: -100:0:0:1:ffff:ffff:ffff:ffff -100:0:0:2::
2000::/3          -1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff +2000:: +3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff -4000::
2001::/23         +2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff -2001:: -2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff +2001:200::
2001::/32         +2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff -2001:: -2001::ffff:ffff:ffff:ffff:ffff:ffff -2001:1::
2001:1::1-3       -2001:1:: +2001:1::1 +2001:1::3 -2001:1::4
2001:1::2/128     +2001:1::1 +2001:1::2 +2001:1::2 +2001:1::3
2001:2::/48       -2001:1:ffff:ffff:ffff:ffff:ffff:ffff -2001:2:: -2001:2::ffff:ffff:ffff:ffff:ffff -2001:2:1::
2001:3::/32       -2001:2:ffff:ffff:ffff:ffff:ffff:ffff +2001:3:: +2001:3:ffff:ffff:ffff:ffff:ffff:ffff -2001:4::
2001:4:112::/48   -2001:4:111:ffff:ffff:ffff:ffff:ffff +2001:4:112:: +2001:4:112:ffff:ffff:ffff:ffff:ffff -2001:4:113::
2001:10::/28      -2001:f:ffff:ffff:ffff:ffff:ffff:ffff -2001:10:: -2001:1f:ffff:ffff:ffff:ffff:ffff:ffff +2001:20::
2001:20::/28      -2001:1f:ffff:ffff:ffff:ffff:ffff:ffff +2001:20:: +2001:2f:ffff:ffff:ffff:ffff:ffff:ffff +2001:30::
2001:30::/28      +2001:2f:ffff:ffff:ffff:ffff:ffff:ffff +2001:30:: +2001:3f:ffff:ffff:ffff:ffff:ffff:ffff -2001:40::
2001:db8::/32     +2001:db7:ffff:ffff:ffff:ffff:ffff:ffff -2001:db8:: -2001:db8:ffff:ffff:ffff:ffff:ffff:ffff +2001:db9::
2002::/16         +2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff -2002:: -2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff +2003::
2620:4f:8000::/48 +2620:4f:7fff:ffff:ffff:ffff:ffff:ffff +2620:4f:8000:: +2620:4f:8000:ffff:ffff:ffff:ffff:ffff +2620:4f:8001::
3fff::/20         +3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff -3fff:: -3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff +3fff:1000::
5f00::/16         -5eff:ffff:ffff:ffff:ffff:ffff:ffff:ffff -5f00:: -5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff -5f01::
fc00::/7          -fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff -fc00:: -fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff -fe00::
fe80::/10         -fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff -fe80:: -febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff -fec0::
fec0::/10         -febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff -fec0:: -feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff -ff00::
ff00::/8          -feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff -ff00:: -ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
";

#[test]
fn every_range_of_the_registries_begins_and_ends_where_it_should() {
    let rows = RANGES.lines().filter(|line| !line.is_empty());
    let mut count = 0;
    for row in rows {
        for word in row.split_whitespace().skip(1) {
            let (sign, address) = word.split_at(1);
            assert_eq!(is_global(ip(address)), sign == "+", "{address} in {row}");
            count += 1;
        }
    }
    assert!(count > 180, "{count}");
}

#[test]
fn the_reason_names_the_narrowest_entry() {
    for (address, text) in [
        ("10.1.2.3", "a private address (RFC 1918: 10.0.0.0/8)"),
        ("172.17.0.1", "a private address (RFC 1918: 172.16.0.0/12)"),
        ("169.254.169.254", "a link-local address (RFC 3927: 169.254.0.0/16)"),
        ("168.63.129.16", "Azure's platform service (Microsoft: 168.63.129.16/32)"),
        ("100.100.100.200", "a shared address of a provider (RFC 6598: 100.64.0.0/10)"),
        ("0.0.0.0", "the unspecified address (RFC 1122: 0.0.0.0/32)"),
        ("0.0.0.1", "an address of \"this network\" (RFC 791: 0.0.0.0/8)"),
        ("192.0.0.8", "the IPv4 dummy address (RFC 7600: 192.0.0.8/32)"),
        ("192.88.99.2", "the anycast address of 6a44 (RFC 6751: 192.88.99.2/32)"),
        ("239.1.1.1", "a multicast address (RFC 5771: 224.0.0.0/4)"),
        ("255.255.255.255", "the broadcast address (RFC 8190: 255.255.255.255/32)"),
        ("255.255.255.254", "a reserved address (RFC 1112: 240.0.0.0/4)"),
        ("::1", "the loopback address (RFC 4291: ::1/128)"),
        ("2001:db8::1", "a documentation address (RFC 3849: 2001:db8::/32)"),
        ("2001:5::", "an address of the IETF's protocols (RFC 2928: 2001::/23)"),
        ("fd00:ec2::254", "a private address (RFC 4193: fc00::/7)"),
        ("4000::1", "an address that is not allocated (RFC 4291: outside of 2000::/3)"),
    ] {
        assert_eq!(special_range(ip(address)), Some(text), "{address}");
    }
    for address in ["8.8.8.8", "1.1.1.1", "140.82.121.3", "2606:4700::1111", "2a00:1450:4001::1"] {
        assert_eq!(special_range(ip(address)), None, "{address}");
    }
}

#[test]
fn an_address_inside_another_one_is_no_way_round() {
    for (address, text) in [
        ("::ffff:10.0.0.1", Some("RFC 1918: 10.0.0.0/8")),
        ("::ffff:7f00:1", Some("127.0.0.0/8")),
        ("::ffff:169.254.169.254", Some("169.254.0.0/16")),
        ("::ffff:168.63.129.16", Some("168.63.129.16/32")),
        ("::ffff:8.8.8.8", None),
        ("64:ff9b::10.0.0.1", Some("RFC 1918: 10.0.0.0/8")),
        ("64:ff9b::a9fe:a9fe", Some("169.254.0.0/16")),
        ("64:ff9b::8.8.8.8", None),
        ("64:ff9b::1:808:808", Some("outside of 2000::/3")),
        ("64:ff9b:1::8.8.8.8", Some("64:ff9b:1::/48")),
        ("64:ff9b:1:a00:0:100::", Some("64:ff9b:1::/48")),
        ("::10.0.0.1", Some("::/96")),
        ("::8.8.8.8", Some("::/96")),
        ("::ffff:0:10.0.0.1", Some("outside of 2000::/3")),
        ("2002:a00:1::", Some("2002::/16")),
        ("2002:808:808::1", Some("2002::/16")),
        // Teredo: server 10.0.0.1; and server and client 8.8.8.8.
        ("2001:0:a00:1::f7f7:f7f7", Some("2001::/32")),
        ("2001:0:808:808::f7f7:f7f7", Some("2001::/32")),
    ] {
        let found = special_range(ip(address));
        assert_eq!(found.is_some(), text.is_some(), "{address}: {found:?}");
        assert!(
            found.is_none_or(|found| text.is_some_and(|text| found.contains(text))),
            "{address}: {found:?}"
        );
    }
}

#[test]
fn the_tables_say_what_they_contain_and_hide_no_entry() {
    fn check<N: std::fmt::Display>(table: &[Range<N>], contains: impl Fn(&N, &N) -> bool) {
        for (at, entry) in table.iter().enumerate() {
            let ending = format!(": {})", entry.range);
            assert!(entry.text.ends_with(&ending), "{} of {}", entry.text, entry.range);
            let hides = table[..at].iter().find(|earlier| contains(&earlier.range, &entry.range));
            assert!(hides.is_none(), "{} is hidden", entry.text);
        }
    }
    check(IPV4, |a, b| a.contains(b));
    check(IPV6, |a, b| a.contains(b));
}

#[test]
fn spellings_of_one_destination_are_the_same() {
    for (a, b, same) in [
        ("8.8.8.8", "::ffff:8.8.8.8", true),
        ("64:ff9b::8.8.8.8", "::ffff:8.8.8.8", true),
        ("8.8.8.8", "8.8.4.4", false),
        ("::8.8.8.8", "8.8.8.8", false),
        ("2001:4860::1", "2001:4860::1", true),
    ] {
        assert_eq!(is_same(ip(a), ip(b)), same, "{a} {b}");
    }
}
