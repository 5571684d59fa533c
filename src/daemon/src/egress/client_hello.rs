//! Reads which server a TLS client asks for, from the first bytes that it sends (RFC 8446, sections 4.1.2 and
//! 5.1; RFC 6066, section 3).
//!
//! Pure: bytes in, an answer out. It must never hold or read more than [`MAX_HELLO`] bytes, nor take for a
//! name what the server could read otherwise: everything that is not plainly one hello is
//! [`ClientHello::NotTls`].

/// Bytes in which the whole hello must be. The largest that clients send have some 2 KiB.
pub const MAX_HELLO: usize = 16 * 1024;

/// The record type of the handshake.
const HANDSHAKE: u8 = 22;
/// The most bytes of one record.
const MAX_RECORD: usize = 1 << 14;
/// The handshake message that a client begins with.
const CLIENT_HELLO: u8 = 1;
/// The extension with the name of the server, and the kind of name in it that is a host.
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// Extensions that encrypt the real name: ECH, and the draft before it.
const ENCRYPTED: [u16; 2] = [0xfe0d, 0xffce];

/// What the first bytes of a connection say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientHello {
    /// Nothing yet: more bytes are needed.
    Incomplete,
    /// The client asks for this server.
    Name(String),
    /// The client names no server.
    NoName,
    /// The client encrypts the name.
    Encrypted,
    /// This is no client hello, or one of more than [`MAX_HELLO`] bytes.
    NotTls,
}

/// Reads the hello in all bytes that a client has sent so far.
#[must_use]
pub fn read(bytes: &[u8]) -> ClientHello {
    read_front(bytes).0
}

/// The same, and how many bytes the hello has if it is whole: what follows may be early data.
pub(super) fn read_front(bytes: &[u8]) -> (ClientHello, usize) {
    let mut message = Vec::new();
    let looked_at = &bytes[..bytes.len().min(MAX_HELLO)];
    let mut rest = Reader(looked_at);
    let found = loop {
        match next_record(&mut rest, &mut message) {
            Record::Whole | Record::Cut if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) => {
                break ClientHello::NotTls;
            }
            // What follows the hello in its own record is nothing that a client may send.
            Record::Whole | Record::Cut if excess(&message) => break ClientHello::NotTls,
            Record::Whole => {
                if let Some(body) = whole(&message) {
                    break hello(body).unwrap_or(ClientHello::NotTls);
                }
            }
            Record::Cut if bytes.len() < MAX_HELLO => break ClientHello::Incomplete,
            Record::Cut | Record::Other => break ClientHello::NotTls,
        }
    };
    (found, looked_at.len() - rest.0.len())
}

/// What is at the front of the bytes.
enum Record {
    /// A whole record of the handshake.
    Whole,
    /// The beginning of one.
    Cut,
    /// Something else.
    Other,
}

/// Takes the next record, or what there is of it, to the message.
fn next_record(rest: &mut Reader<'_>, message: &mut Vec<u8>) -> Record {
    // What is there of the header must fit already: other protocols are told at their first byte.
    let header = rest.0;
    if header.first().is_some_and(|kind| *kind != HANDSHAKE) || header.get(1).is_some_and(|major| *major != 3)
    {
        return Record::Other;
    }
    let (Some(_), Some(length)) = (rest.take(3), rest.number(2)) else { return Record::Cut };
    if length == 0 || length > MAX_RECORD {
        return Record::Other;
    }
    match rest.take(length) {
        Some(piece) => {
            message.extend_from_slice(piece);
            Record::Whole
        }
        None => {
            message.extend_from_slice(rest.0);
            rest.0 = &[];
            Record::Cut
        }
    }
}

/// The length of the message behind its header of four bytes, if that is there.
fn length(message: &[u8]) -> Option<usize> {
    Reader(message.get(1..)?).number(3)
}

/// Whether there is more than one message, or more of one than may be held.
fn excess(message: &[u8]) -> bool {
    length(message).is_some_and(|length| length + 4 > MAX_HELLO || message.len() > length + 4)
}

/// The body of the message, if it is all there.
fn whole(message: &[u8]) -> Option<&[u8]> {
    message.get(4..).filter(|body| length(message) == Some(body.len()))
}

/// Reads the body of a client hello; `None` if it is none.
fn hello(body: &[u8]) -> Option<ClientHello> {
    let mut rest = Reader(body);
    rest.take(2 + 32)?; // version, random
    rest.list(1)?; // the session's id
    rest.list(2)?; // cipher suites
    rest.list(1)?; // compression
    if rest.0.is_empty() {
        return Some(ClientHello::NoName);
    }
    let mut extensions = Reader(rest.list(2)?);
    if !rest.0.is_empty() {
        return None;
    }
    let (mut name, mut is_encrypted) = (None, false);
    while !extensions.0.is_empty() {
        let kind = u16::try_from(extensions.number(2)?).ok()?;
        let content = extensions.list(2)?;
        if ENCRYPTED.contains(&kind) {
            is_encrypted = true;
        } else if kind == SERVER_NAME && name.replace(server_name(content)?).is_some() {
            return None; // two of them: which would the server take?
        }
    }
    Some(match name {
        _ if is_encrypted => ClientHello::Encrypted,
        Some(name) => ClientHello::Name(name),
        None => ClientHello::NoName,
    })
}

/// The one name of the extension.
fn server_name(content: &[u8]) -> Option<String> {
    let mut rest = Reader(content);
    let mut names = Reader(rest.list(2)?);
    let kind = names.take(1)?;
    let name = names.list(2)?;
    let is_one = rest.0.is_empty() && names.0.is_empty() && kind == [HOST_NAME];
    let is_text = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    if !is_one || !is_text {
        return None;
    }
    String::from_utf8(name.to_vec()).ok()
}

/// Reads from the front of bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of so many bytes, most significant first.
    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |number, byte| (number << 8) | usize::from(*byte)))
    }

    /// Bytes behind their own number, which has so many bytes.
    fn list(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let length = self.number(bytes)?;
        self.take(length)
    }
}

#[cfg(test)]
#[path = "client_hello_tests.rs"]
pub(super) mod tests;
