//! Hellos of a real client, whole, in pieces, and changed.

use std::sync::Arc;

use paddock_fuzz::{Target, fuzz};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;

/// The first bytes of a client that asks for this name; of one that names no server, if it is empty.
pub(in crate::egress) fn hello_for(name: &str) -> Vec<u8> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.enable_sni = !name.is_empty();
    let name = if name.is_empty() { "nobody.example" } else { name };
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// The same hello with one more extension.
pub(in crate::egress) fn with_extension(hello: &[u8], kind: u16, content: &[u8]) -> Vec<u8> {
    let mut bytes = hello.to_vec();
    let mut rest = Reader(&hello[9..]);
    rest.take(34).unwrap();
    rest.list(1).unwrap();
    rest.list(2).unwrap();
    rest.list(1).unwrap();
    let extensions = hello.len() - rest.0.len();
    bytes.extend(kind.to_be_bytes());
    bytes.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
    bytes.extend(content);
    let more = content.len() + 4;
    // The lengths of the record, of the message, and of all extensions.
    for (at, width) in [(3, 2), (6, 3), (extensions, 2)] {
        let length = Reader(&bytes[at..]).number(width).unwrap() + more;
        bytes[at..at + width].copy_from_slice(&length.to_be_bytes()[8 - width..]);
    }
    bytes
}

/// The same message in records of so many bytes.
fn in_records(hello: &[u8], of: usize) -> Vec<u8> {
    let record = |piece: &[u8]| {
        let length = u16::try_from(piece.len()).unwrap().to_be_bytes();
        [&[22, 3, 1][..], &length, piece].concat()
    };
    hello[5..].chunks(of).flat_map(record).collect()
}

fn named(name: &str) -> ClientHello {
    ClientHello::Name(name.to_owned())
}

#[test]
fn the_name_that_a_client_asks_for_is_read() {
    assert_eq!(read(&hello_for("api.example.com")), named("api.example.com"));
    assert_eq!(read(&hello_for("")), ClientHello::NoName);
    // An address is no name, and clients send none.
    assert_eq!(read(&hello_for("10.0.0.1")), ClientHello::NoName);
    let padded = with_extension(&hello_for("a.example"), 21, &[0; 9000]);
    assert_eq!(read(&padded), named("a.example"));
}

#[test]
fn a_hello_in_pieces_is_read_when_it_is_whole() {
    for hello in [hello_for("a.example"), in_records(&hello_for("a.example"), 1)] {
        for end in 0..hello.len() {
            assert_eq!(read(&hello[..end]), ClientHello::Incomplete, "{end} of {} bytes", hello.len());
        }
        assert_eq!(read(&hello), named("a.example"));
        // Early data follows in records of its own.
        assert_eq!(read(&[&hello[..], &[23, 3, 3, 0, 1, 7]].concat()), named("a.example"));
    }
}

#[test]
fn an_encrypted_name_is_seen_whatever_else_the_hello_says() {
    for kind in ENCRYPTED {
        for hello in [hello_for("a.example"), hello_for("")] {
            assert_eq!(read(&with_extension(&hello, kind, &[0; 40])), ClientHello::Encrypted);
        }
    }
}

#[test]
fn what_is_not_plainly_one_hello_is_none() {
    let hello = hello_for("a.example");
    let second_name = |content: &[u8]| with_extension(&hello, SERVER_NAME, content);
    let one_more_byte = {
        let mut bytes = [&hello[..], &[1]].concat();
        let length = u16::try_from(bytes.len() - 5).unwrap().to_be_bytes();
        bytes[3..5].copy_from_slice(&length);
        bytes
    };
    let other_kind = {
        let mut bytes = hello.clone();
        bytes[5] = 2;
        bytes
    };
    for (what, bytes) in [
        ("HTTP", b"GET / HTTP/1.1\r\n".to_vec()),
        ("SSH", b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()),
        ("an alert", vec![21, 3, 1, 0, 2, 1, 0]),
        ("an empty record", vec![22, 3, 1, 0, 0]),
        ("a record that is too long", vec![22, 3, 1, 0x40, 1]),
        ("SSL 2", vec![0x80, 0x2e, 1, 3, 1]),
        ("a server's hello", other_kind),
        ("something behind the hello", one_more_byte),
        ("a second name", second_name(b"\0\x0c\0\0\x09b.example")),
        ("a hello that is too long", with_extension(&hello, 21, &[0; 16_370])),
        ("a hello cut short in itself", {
            let mut bytes = hello[..60].to_vec();
            bytes[3..5].copy_from_slice(&55_u16.to_be_bytes());
            bytes[6..9].copy_from_slice(&[0, 0, 51]);
            bytes
        }),
    ] {
        assert_eq!(read(&bytes), ClientHello::NotTls, "{what}");
    }
    for (what, content) in [
        ("no list", &b""[..]),
        ("no name in it", b"\0\0"),
        ("an empty name", b"\0\x03\0\0\0"),
        ("a name with NUL", b"\0\x0a\0\0\x07a.b\0c.d"),
        ("a name with a space", b"\0\x06\0\0\x03a b"),
        ("another kind of name", b"\0\x06\x01\0\x03a.b"),
        ("two names", b"\0\x0c\0\0\x03a.b\0\0\x03c.d"),
        ("something behind it", b"\0\x06\0\0\x03a.b!"),
    ] {
        let bytes = with_extension(&hello_for(""), SERVER_NAME, content);
        assert_eq!(read(&bytes), ClientHello::NotTls, "{what}");
    }
}

#[test]
fn a_client_that_never_ends_its_hello_is_not_waited_for() {
    // The message says that it has 16,000 bytes, in records of one byte each: six times as many on the wire.
    let start = in_records(&[&[0; 5][..], &[1, 0, 0x3e, 0x80]].concat(), 1);
    let endless: Vec<u8> = start.into_iter().chain([22, 3, 1, 0, 1, 0].repeat(4000)).collect();
    assert_eq!(read(&endless[..MAX_HELLO - 1]), ClientHello::Incomplete);
    assert_eq!(read(&endless[..MAX_HELLO]), ClientHello::NotTls);
    assert_eq!(read(&endless), ClientHello::NotTls);
}

/// However the bytes come, the answer is the same, and it never changes when more come.
#[test]
fn fuzz_client_hello() {
    let plain = hello_for("a.example");
    let seeds = vec![
        in_records(&plain, 40),
        with_extension(&plain, ENCRYPTED[0], &[0; 20]),
        with_extension(&hello_for(""), SERVER_NAME, b"\0\x06\0\0\x03a.b"),
        plain,
    ];
    let words: [&[u8]; 4] =
        [&[22, 3, 1, 0, 1], &[1, 0, 0, 40], &[0, 0, 0, 6, 0, 4, 0, 0, 1], &[0xfe, 0x0d, 0, 0]];
    let target = Target {
        name: "client_hello",
        package: env!("CARGO_MANIFEST_DIR"),
        seeds,
        words: &words,
        longest: 1024,
        memory: |length| 64 * length + 64 * 1024,
    };
    fuzz(&target, |bytes| {
        let at_once = read(bytes);
        let first = (0..bytes.len())
            .step_by(7)
            .map(|end| read(&bytes[..end]))
            .find(|it| *it != ClientHello::Incomplete);
        assert_eq!(first.unwrap_or_else(|| at_once.clone()), at_once);
        if let ClientHello::Name(name) = at_once {
            assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name:?}");
        }
    });
}
