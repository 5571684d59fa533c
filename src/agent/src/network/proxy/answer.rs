//! The head of a server's answer to a request that the proxy forwarded. Pure.
//!
//! The proxy asks the server to close the connection after its answer, and serves one request of a
//! connection. Many servers close without saying so in the head. A program that is not told would send its
//! next request into a connection that is about to end. So this adds `Connection: close` to the first final
//! head.
//!
//! It must never change the body of an answer, nor hold back bytes that belong to no head.

use bytes::{Bytes, BytesMut};

use super::headers::finish;

/// The longest head that is rewritten, in bytes. A longer one passes as it is.
const LONGEST: usize = 32 * 1024;

/// Headers of one head that is rewritten.
const MAX_HEADERS: usize = 100;

/// Headers between the server and the proxy, which are dropped.
const HOP_BY_HOP: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "proxy-authenticate", "upgrade"];

/// Status of an answer that changes the protocol. No other head follows it.
const SWITCHING_PROTOCOLS: u16 = 101;

/// The bytes of one answer, until its final head has passed.
#[derive(Debug, Default)]
pub(in crate::network) struct AnswerHead {
    /// The beginning of a head.
    held: BytesMut,
    is_over: bool,
}

impl AnswerHead {
    /// Takes bytes from the server, and returns the bytes that the program receives now.
    pub(in crate::network) fn pass(&mut self, bytes: Bytes) -> Bytes {
        if self.is_over {
            return bytes;
        }
        self.held.extend_from_slice(&bytes);
        let mut passed = BytesMut::new();
        while !self.is_over {
            match read(&self.held) {
                Head::Incomplete => return passed.freeze(),
                Head::Informational(length) => passed.extend_from_slice(&self.held.split_to(length)),
                Head::Final { head, length } => {
                    passed.extend_from_slice(&head);
                    let _ = self.held.split_to(length);
                    self.is_over = true;
                }
                Head::Other => self.is_over = true,
            }
        }
        passed.extend_from_slice(&self.end());
        passed.freeze()
    }

    /// The server sends no more: returns what is still held.
    pub(in crate::network) fn end(&mut self) -> Bytes {
        self.is_over = true;
        std::mem::take(&mut self.held).freeze()
    }
}

/// What the bytes of an answer begin with.
enum Head {
    /// More must come.
    Incomplete,
    /// A head of this many bytes that another head follows.
    Informational(usize),
    /// The rewritten head, and the length of the original.
    Final { head: Vec<u8>, length: usize },
    /// Nothing to rewrite.
    Other,
}

fn read(bytes: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut answer = httparse::Response::new(&mut headers);
    let length = match answer.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < LONGEST => return Head::Incomplete,
        Ok(httparse::Status::Partial) | Err(_) => return Head::Other,
    };
    match (answer.version, answer.code) {
        (Some(_), Some(SWITCHING_PROTOCOLS)) => Head::Other,
        (Some(_), Some(100..=199)) => Head::Informational(length),
        (Some(version), Some(code)) => {
            let status = format!("HTTP/1.{version} {code:03} {}\r\n", answer.reason.unwrap_or_default());
            Head::Final { head: finish(status.into_bytes(), answer.headers, &HOP_BY_HOP), length }
        }
        _ => Head::Other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a program receives of an answer that arrives in pieces of this size.
    fn passed(answer: &[u8], size: usize) -> Vec<u8> {
        let mut head = AnswerHead::default();
        let mut all = Vec::new();
        for piece in answer.chunks(size) {
            all.extend_from_slice(&head.pass(Bytes::copy_from_slice(piece)));
        }
        all.extend_from_slice(&head.end());
        all
    }

    #[track_caller]
    fn expect_in_all_pieces(answer: &str, expected: &str) {
        for size in 1..=answer.len() {
            let received = passed(answer.as_bytes(), size);
            assert_eq!(String::from_utf8_lossy(&received), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_final_head_says_that_the_connection_closes() {
        expect_in_all_pieces(
            "HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 3\r\n\r\nabc",
            "HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
        );
        expect_in_all_pieces("HTTP/1.0 204 \r\n\r\n", "HTTP/1.0 204 \r\nConnection: close\r\n\r\n");
    }

    #[test]
    fn headers_of_the_connection_are_dropped_and_framing_stays() {
        expect_in_all_pieces(
            "HTTP/1.1 200 OK\r\nConnection: keep-alive,X-Mine,Transfer-Encoding\r\nkeep-alive: timeout=5\r\n\
             X-Mine: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nUpgrade: h2c\r\n\
             Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        );
    }

    #[test]
    fn informational_heads_pass_as_they_are() {
        expect_in_all_pieces(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x\r\n\r\n\
             HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x\r\n\r\n\
             HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
    }

    #[test]
    fn what_looks_like_a_head_in_a_body_is_left_alone() {
        let body = "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n";
        expect_in_all_pieces(
            &format!("HTTP/1.1 200 OK\r\n\r\n{body}"),
            &format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}"),
        );
    }

    #[test]
    fn what_is_no_head_passes_untouched() {
        for answer in [
            "",
            "SSH-2.0-OpenSSH_9.2\r\n",
            "hello",
            "HTTP/1.1 200",
            "HTTP/1.1 200 OK\r\nX: 1\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x01\x02",
            "HTTP/1.1 200 OK\r\nA header with spaces\r\n\r\n",
            "HTTP/2 200\r\n\r\n",
        ] {
            expect_in_all_pieces(answer, answer);
        }
        let many: String = (0..=MAX_HEADERS).map(|n| format!("X-{n}: 1\r\n")).collect();
        let many = format!("HTTP/1.1 200 OK\r\n{many}\r\n");
        for size in [1, 7, many.len()] {
            assert_eq!(passed(many.as_bytes(), size), many.as_bytes(), "in pieces of {size}");
        }
    }

    #[test]
    fn a_head_over_the_bound_passes_before_it_is_complete() {
        let mut head = AnswerHead::default();
        let begun = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(LONGEST));
        let (most, rest) = begun.as_bytes().split_at(LONGEST - 1);
        assert_eq!(head.pass(Bytes::copy_from_slice(most)).len(), 0);
        assert_eq!(head.pass(Bytes::copy_from_slice(rest)), begun.as_bytes());
        assert_eq!(head.pass(Bytes::from_static(b"\r\n\r\n")), &b"\r\n\r\n"[..]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_the_pieces_make_no_difference(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            size in 1..50_usize,
            is_head in any::<bool>(),
        ) {
            let mut answer = if is_head { b"HTTP/1.1 200 OK\r\nX: ".to_vec() } else { Vec::new() };
            answer.extend(&bytes);
            prop_assert_eq!(passed(&answer, size), passed(&answer, answer.len().max(1)));
        }
    }
}
