//! The headers of a head that the proxy passes on, of a request and of an answer. Pure.
//!
//! It must never pass on a header that is meant for one connection only, nor drop a header that says where
//! the body ends.

/// Headers that say where the body ends. They stay, whatever `Connection` names.
const FRAMING: [&str; 3] = ["content-length", "transfer-encoding", "trailer"];

/// Writes the headers behind a first line, without the `dropped` ones and those that `Connection` names. The
/// last one is `Connection: close`, since the proxy serves one request on each connection.
pub(super) fn finish(mut head: Vec<u8>, headers: &[httparse::Header<'_>], dropped: &[&str]) -> Vec<u8> {
    let is_one_of = |names: &[&str], name: &str| names.iter().any(|one| one.eq_ignore_ascii_case(name));
    let is_named = |name: &str| {
        let mut connection = headers.iter().filter(|header| is_one_of(&["connection"], header.name));
        connection.any(|header| {
            let value = String::from_utf8_lossy(header.value);
            value.split(',').any(|word| word.trim().eq_ignore_ascii_case(name))
        })
    };
    let is_dropped = |name: &str| is_one_of(dropped, name) || (is_named(name) && !is_one_of(&FRAMING, name));
    for header in headers.iter().filter(|header| !is_dropped(header.name)) {
        head.extend_from_slice(header.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(header.value);
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"Connection: close\r\n\r\n");
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_connection_names_goes_but_the_end_of_the_body_stays() {
        let header = |name, value: &'static str| httparse::Header { name, value: value.as_bytes() };
        let headers = [
            header("CONNECTION", "x-mine, Content-Length"),
            header("Connection", "x-other"),
            header("X-Mine", "1"),
            header("x-other", "2"),
            header("Te", "trailers"),
            header("content-length", "5"),
            header("Accept", "*/*"),
        ];
        let head = finish(b"GET / HTTP/1.1\r\n".to_vec(), &headers, &["connection", "te"]);
        let expected = "GET / HTTP/1.1\r\ncontent-length: 5\r\nAccept: */*\r\nConnection: close\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&head), expected);
    }
}
