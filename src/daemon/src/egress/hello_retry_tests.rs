//! Second hellos: of a real client, for another name, before their time, and in every kind of piece.

use std::sync::Arc;

use paddock_fuzz::{Target, fuzz};
use sha2::{Digest, Sha256};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::super::client_hello::tests::{hello_for, with_extension};
use super::*;

/// A request for another hello, with a group that rustls' clients know and offer no key of.
pub(in crate::egress) fn retry_request() -> Vec<u8> {
    retry_of_session(&[])
}

/// The same for a client whose hello has this session id, which the server must repeat.
fn retry_of_session(id: &[u8]) -> Vec<u8> {
    // Supported versions: TLS 1.3; key share: secp384r1.
    let extensions = [0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0, 24];
    let body =
        [&[3, 3][..], &RETRY, &[u8::try_from(id.len()).unwrap()], id, &[0x13, 0x01, 0, 0, 12], &extensions]
            .concat();
    server_message(&body)
}

/// Any other answer of a server.
fn server_hello() -> Vec<u8> {
    server_message(&[&[3, 3][..], &[9; 32], &[0, 0x13, 0x01, 0, 0, 0]].concat())
}

fn server_message(body: &[u8]) -> Vec<u8> {
    let length = |more: usize| u16::try_from(body.len() + more).unwrap().to_be_bytes();
    [&[22, 3, 3], &length(4)[..], &[2, 0], &length(0)[..], body].concat()
}

/// Both hellos of a real client, whose server asks for the second; it sends a record in between.
fn both_hellos(name: &str) -> (Vec<u8>, Vec<u8>) {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    client.write_tls(&mut first).unwrap();
    // The session id stands behind the headers, the version and the random value.
    let id = &first[44..][..usize::from(first[43])];
    client.read_tls(&mut &retry_of_session(id)[..]).unwrap();
    client.process_new_packets().expect("the client hears that it is to try again");
    while client.wants_write() {
        client.write_tls(&mut second).unwrap();
    }
    (first, second)
}

fn begun(name: &str) -> HelloRetry {
    HelloRetry::new(name.parse().unwrap())
}

fn retrying(name: &str) -> HelloRetry {
    let mut retry = begun(name);
    retry.server_sent(&retry_request());
    assert_eq!(retry.stage, Stage::Retrying);
    retry
}

fn sent(retry: &mut HelloRetry, bytes: &[u8]) -> Result<Vec<u8>, BlockReason> {
    retry.client_sent(Bytes::copy_from_slice(bytes)).map(|passed| passed.to_vec())
}

#[test]
fn the_random_value_of_a_retry_is_what_the_rfc_says() {
    assert_eq!(RETRY[..], Sha256::digest("HelloRetryRequest")[..]);
}

#[test]
fn a_second_hello_of_a_real_client_passes_with_all_that_follows() {
    let (first, second) = both_hellos("a.example");
    assert!(second.len() > first.len() / 2, "it is a hello");
    for piece in [1, 7, second.len()] {
        let mut retry = retrying("a.example");
        let mut passed = Vec::new();
        for piece in second.chunks(piece) {
            passed.extend(sent(&mut retry, piece).unwrap());
        }
        assert_eq!(passed, second);
        assert!(retry.is_over());
        assert_eq!(sent(&mut retry, b"anything").unwrap(), b"anything");
    }
}

#[test]
fn a_second_hello_that_differs_is_refused_and_no_byte_of_it_passes() {
    for (hello, reason) in [
        (both_hellos("b.example").1, BlockReason::TlsName),
        (hello_for("b.example"), BlockReason::TlsName),
        (hello_for("a.example.evil.example"), BlockReason::TlsName),
        (hello_for(""), BlockReason::NoTlsName),
        (with_extension(&hello_for("a.example"), 0xfe0d, &[0; 60]), BlockReason::EncryptedHello),
        (vec![22, 3, 3, 0, 1, 2], BlockReason::NotTls),
        (b"GET / HTTP/1.1\r\n".to_vec(), BlockReason::NotTls),
        ([&b"\x16\x03\x01\x40\x00\x01\x00\x3f\xff"[..], &[0; 20_000]].concat(), BlockReason::NotTls),
    ] {
        for piece in [3, hello.len()] {
            let mut retry = retrying("a.example");
            let (mut passed, mut refused) = (Vec::new(), None);
            for piece in hello.chunks(piece) {
                match sent(&mut retry, piece) {
                    Ok(more) => passed.extend(more),
                    Err(reason) => {
                        refused = Some(reason);
                        break;
                    }
                }
            }
            assert_eq!(refused, Some(reason));
            // What real clients send in between may pass.
            assert!(passed.is_empty() || passed == [20, 3, 3, 0, 1, 1], "{passed:?}");
        }
    }
}

#[test]
fn a_second_hello_does_not_pass_before_the_server_asks_for_it() {
    for name in ["a.example", "b.example"] {
        let mut retry = begun("a.example");
        assert_eq!(sent(&mut retry, &hello_for(name)), Err(BlockReason::NotTls), "{name}");
    }
    // Nor behind early data.
    let mut retry = begun("a.example");
    let early = [&[23, 3, 3, 0, 4][..], b"earl"].concat();
    assert_eq!(sent(&mut retry, &early).unwrap(), early);
    assert_eq!(sent(&mut retry, &[20, 3, 3, 0, 1, 1]).unwrap(), [20, 3, 3, 0, 1, 1]);
    assert_eq!(sent(&mut retry, &[&early, &hello_for("b.example")[..]].concat()), Err(BlockReason::NotTls));
}

#[test]
fn early_data_is_not_held_back_longer_than_its_header() {
    let mut retry = begun("a.example");
    assert_eq!(sent(&mut retry, &[23, 3, 3, 1]).unwrap(), b"");
    assert_eq!(sent(&mut retry, &[0, 7, 7]).unwrap(), [23, 3, 3, 1, 0, 7, 7]);
    // The server refuses the data and asks for another hello; the rest of the record is still on its way.
    retry.server_sent(&retry_request());
    assert_eq!(sent(&mut retry, &[7; 254]).unwrap(), [7; 254]);
    assert_eq!(sent(&mut retry, &hello_for("b.example")), Err(BlockReason::TlsName));
}

#[test]
fn any_other_answer_of_the_server_ends_the_judging() {
    let alert = [21, 3, 3, 0, 2, 1, 112];
    for (answer, is_settled) in [
        (server_hello(), true),
        ([&alert[..], &server_hello()].concat(), true),
        (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), true),
        (vec![22, 3, 3, 0, 4, 14, 0, 0, 0], true),
        (server_hello()[..20].to_vec(), false),
        (alert.to_vec(), false),
    ] {
        for piece in [1, 5, answer.len()] {
            let mut retry = begun("a.example");
            assert_eq!(sent(&mut retry, &[23, 3, 3]).unwrap(), b"", "half a header");
            answer.chunks(piece).for_each(|piece| retry.server_sent(piece));
            assert_eq!(retry.is_answered(), is_settled, "{answer:?}");
            assert!(!retry.is_over(), "it holds bytes");
            if is_settled {
                assert_eq!(sent(&mut retry, b"x").unwrap(), [23, 3, 3, b'x']);
                assert!(retry.is_over());
            }
        }
    }
    // A warning, and the request in records of one byte each.
    let request = retry_request();
    let small = request[5..].iter().flat_map(|byte| [22, 3, 3, 0, 1, *byte]);
    let mut retry = begun("a.example");
    retry.server_sent(&alert.into_iter().chain(small).collect::<Vec<_>>());
    assert_eq!(retry.stage, Stage::Retrying);
}

#[test]
fn a_client_that_ends_with_half_a_record_is_cut_unless_nothing_was_left_to_judge() {
    let mut retry = retrying("a.example");
    assert_eq!(retry.client_ended(), Ok(Bytes::new()));
    sent(&mut retry, &hello_for("a.example")[..50]).unwrap();
    assert_eq!(retry.client_ended(), Err(BlockReason::NotTls));
    let mut retry = begun("a.example");
    sent(&mut retry, &[23, 3]).unwrap();
    retry.server_sent(&server_hello());
    assert_eq!(retry.client_ended(), Ok(Bytes::from_static(&[23, 3])));
}

/// However the bytes come, the same of them pass, in their order, and no hello for another name is among
/// them.
#[test]
fn fuzz_hello_retry() {
    let (_, second) = both_hellos("a.example");
    let (_, other) = both_hellos("b.example");
    let early = [&[23, 3, 3, 0, 4][..], b"earl"].concat();
    let seeds = vec![[&early, &second[..]].concat(), [&early, &other[..]].concat(), second, other];
    let words: [&[u8]; 4] =
        [&[20, 3, 3, 0, 1, 1], &[22, 3, 1, 0, 1], &[1, 0, 0, 40], &[23, 3, 3, 0, 2, 0, 0]];
    let target = Target {
        name: "hello_retry",
        package: env!("CARGO_MANIFEST_DIR"),
        seeds,
        words: &words,
        longest: 1024,
        memory: |length| 256 * length + 256 * 1024,
    };
    fuzz(&target, |bytes| {
        let in_pieces = |size: usize| {
            let mut retry = retrying("a.example");
            let mut passed = Vec::new();
            for piece in bytes.chunks(size) {
                match sent(&mut retry, piece) {
                    Ok(more) => passed.extend(more),
                    Err(reason) => return (passed, Some(reason)),
                }
            }
            assert!(bytes.starts_with(&passed));
            (passed, None)
        };
        let (at_once, in_small) = (in_pieces(bytes.len().max(1)), in_pieces(3));
        // A piece that is refused takes with it what came before in the same piece.
        assert_eq!(at_once.1, in_small.1);
        if at_once.1.is_none() {
            assert_eq!(at_once.0, in_small.0);
        }
        // The first handshake record that passes begins a hello for the right name.
        let mut rest = &in_small.0[..];
        while let Some(header) = rest.first_chunk::<HEADER>() {
            if header[0] == HANDSHAKE {
                let (found, _) = client_hello::read_front(rest);
                assert!(
                    matches!(&found, ClientHello::Name(name) if name.eq_ignore_ascii_case("a.example")),
                    "{found:?}"
                );
                break;
            }
            let length = HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]));
            rest = rest.get(length..).unwrap_or_default();
        }
    });
}
