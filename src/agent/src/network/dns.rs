//! Messages of the domain name system (RFC 1035), as far as a resolver needs them that answers one question
//! at a time. Pure: bytes in, bytes out.
//!
//! Programs write the questions. It must never read outside of a message, follow a compression pointer, or
//! pass on a name with any byte but those that names of hosts have; what comes behind the question (EDNS) is
//! not read.

use std::net::Ipv4Addr;

/// Bytes of the longest message that is read; a question has at most 12 + 255 + 4, and EDNS adds little.
pub(super) const LONGEST: usize = 4096;

const HEADER: usize = 12;
/// Bytes of the longest name in a message, and of one label.
const MAX_NAME: usize = 255;
const MAX_LABEL: usize = 63;

/// How long a program may keep an answer, in seconds: the next run may have other rules.
const TTL: u32 = 5;

/// Bits of the second word: an answer; the kind of query; cut off; wants recursion; recursion is offered.
const ANSWER: u16 = 0x8000;
const OPCODE: u16 = 0x7800;
const TRUNCATED: u16 = 0x0200;
const DESIRED: u16 = 0x0100;
const AVAILABLE: u16 = 0x0080;

/// Codes of an answer.
const FORMAT_ERROR: u16 = 1;
const SERVER_FAILURE: u16 = 2;
const NO_NAME: u16 = 3;
const NOT_IMPLEMENTED: u16 = 4;

const INTERNET: u16 = 1;
const ANY: u16 = 255;
const A: u16 = 1;
const PTR: u16 = 12;

/// What a question asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordType {
    /// An address, or anything: an address is what there is.
    Address,
    Pointer,
    /// Records that no name here has (AAAA, HTTPS, SRV, MX, …).
    Other,
}

/// A question, as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Query<'a> {
    id: u16,
    desired: u16,
    /// The question as it was written: the answer repeats it.
    question: &'a [u8],
    /// In lower case, without the dot at its end; `None` if it cannot be the name of a host.
    pub(super) name: Option<String>,
    pub(super) wants: RecordType,
}

/// What is said to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    Address(Ipv4Addr),
    Pointer(&'a str),
    /// The name is there, but has no such record.
    Nothing,
    /// There is no such name, or the run may not know of it.
    NoName,
    /// It cannot be answered now.
    Failure,
}

/// What a message is that is no question that can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoQuery {
    /// It is not answered at all.
    Ignored,
    /// It is answered with this.
    Refused(Vec<u8>),
}

impl<'a> Query<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// What to do with a message that asks nothing that can be answered.
    pub(super) fn read(message: &'a [u8]) -> Result<Self, NoQuery> {
        let word = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
        let (Some(id), Some(flags)) = (word(0), word(2)) else { return Err(NoQuery::Ignored) };
        if flags & ANSWER != 0 {
            return Err(NoQuery::Ignored);
        }
        let desired = flags & DESIRED;
        let refused = |code: u16| Err(NoQuery::Refused(header(id, flags & (DESIRED | OPCODE) | code, 0, 0)));
        if flags & OPCODE != 0 {
            return refused(NOT_IMPLEMENTED);
        }
        if flags & TRUNCATED != 0 || [word(4), word(6), word(8)] != [Some(1), Some(0), Some(0)] {
            return refused(FORMAT_ERROR);
        }
        let body = message.get(HEADER..).unwrap_or_default();
        let Some((name, length)) = read_name(body) else { return refused(FORMAT_ERROR) };
        let (Some(wants), Some(class)) = (word(HEADER + length), word(HEADER + length + 2)) else {
            return refused(FORMAT_ERROR);
        };
        if class != INTERNET && class != ANY {
            return refused(NOT_IMPLEMENTED);
        }
        let wants = match wants {
            A | ANY => RecordType::Address,
            PTR => RecordType::Pointer,
            _ => RecordType::Other,
        };
        Ok(Self { id, desired, question: &body[..length + 4], name, wants })
    }

    /// The message that answers it.
    pub(super) fn answer(&self, answer: Answer<'_>) -> Vec<u8> {
        let (code, record) = match answer {
            Answer::Address(address) => (0, Some((A, address.octets().to_vec()))),
            Answer::Pointer(name) => (0, write_name(name).map(|name| (PTR, name))),
            Answer::Nothing => (0, None),
            Answer::NoName => (NO_NAME, None),
            Answer::Failure => (SERVER_FAILURE, None),
        };
        let mut message = header(self.id, self.desired | code, 1, u16::from(record.is_some()));
        message.extend_from_slice(self.question);
        if let Some((kind, data)) = record {
            message.extend([0xC0, 12]); // the name of the question
            message.extend(kind.to_be_bytes());
            message.extend(INTERNET.to_be_bytes());
            message.extend(TTL.to_be_bytes());
            message.extend(u16::try_from(data.len()).unwrap_or(0).to_be_bytes());
            message.extend(data);
        }
        message
    }
}

fn header(id: u16, flags: u16, questions: u16, answers: u16) -> Vec<u8> {
    [id, ANSWER | AVAILABLE | flags, questions, answers, 0, 0].iter().flat_map(|w| w.to_be_bytes()).collect()
}

/// The name at the beginning of `body`, and how many bytes it takes; the text is `None` where it is no name
/// of a host.
fn read_name(body: &[u8]) -> Option<(Option<String>, usize)> {
    let (mut text, mut is_host, mut at) = (String::new(), true, 0);
    loop {
        let length = usize::from(*body.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        // Above that it is a compression pointer, which no question needs.
        if length > MAX_LABEL || at + length >= MAX_NAME {
            return None;
        }
        let label = body.get(at..at + length)?;
        at += length;
        if !text.is_empty() {
            text.push('.');
        }
        for byte in label {
            is_host &= byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            text.push(char::from(byte.to_ascii_lowercase()));
        }
    }
    Some((Some(text).filter(|text| is_host && !text.is_empty()), at))
}

fn write_name(name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|n| (1..=MAX_LABEL).contains(&usize::from(*n)))?;
        bytes.push(length);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    (bytes.len() <= MAX_NAME).then_some(bytes)
}

/// The address that a name below `in-addr.arpa` stands for.
pub(super) fn reversed(name: &str) -> Option<Ipv4Addr> {
    let mut octets = name.strip_suffix(".in-addr.arpa")?.split('.').map(|text| {
        let octet: u8 = text.parse().ok()?;
        (octet.to_string() == text).then_some(octet)
    });
    let mut next = || octets.next().flatten();
    let (d, c, b, a) = (next()?, next()?, next()?, next()?);
    octets.next().is_none().then(|| Ipv4Addr::new(a, b, c, d))
}

/// Whether a name always stands for this machine (RFC 6761).
pub(super) fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests;
