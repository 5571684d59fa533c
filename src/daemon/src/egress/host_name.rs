//! The name of a host, as everything behind the parser sees it.
//!
//! A [`HostName`] must never be an IP address in any spelling: resolvers read `2130706433`, `0x7f.1` and
//! `017700000001` as 127.0.0.1, so a text of that kind would pass rules about names and then be dialled as an
//! address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use serde::{Serialize, Serializer};

/// Bytes of the longest name (RFC 1035, without the length of its root label).
pub const MAX_NAME: usize = 253;

/// Bytes of the longest label (RFC 1035).
pub const MAX_LABEL: usize = 63;

/// Bytes of the longest text that is normalised at all. A normalised name spends at least one byte on each
/// character of the text, and UTF-8 spends at most four.
const MAX_TEXT: usize = 4 * MAX_NAME;

/// Characters of a refused value that its error repeats.
const SHOWN: usize = 80;

/// ASCII that no name has: everything but letters, digits, the hyphen, the dot, and the underscore, which
/// real hosts do have.
const NOT_IN_NAMES: AsciiDenyList = AsciiDenyList::new(true, "!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~");

/// The name of a host, normalised: lower case, without a dot at its end, labels in other scripts as A-labels
/// (`xn--…`, UTS 46). 1 to 253 bytes, each label 1 to 63 bytes of letters, digits, `-` and `_`. A single
/// label such as `localhost` is a name.
///
/// Two names are equal if and only if they mean the same host. Names that only look alike
/// (`gооgle.com` with Cyrillic `о`) are different names, and show their A-labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// The normalised name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name that a program asks for. It has only ASCII, as in DNS and in a request of HTTP: labels in
    /// other scripts come as A-labels. So a program and the daemon cannot read one text as two names. People
    /// who write a list of destinations may use every script ([`FromStr`]).
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn of_program(text: &str) -> Result<HostName, HostNameError> {
        match text.chars().find(|c| !c.is_ascii()) {
            Some(c) => Err(HostNameError { value: beginning(text), problem: HostNameProblem::Script(c) }),
            None => text.parse(),
        }
    }

    /// Whether this name lies below another, at any depth. No name lies below itself.
    pub fn is_below(&self, other: &HostName) -> bool {
        self.0.strip_suffix(&other.0).is_some_and(|rest| rest.ends_with('.'))
    }
}

/// Why a text is not the name of a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the host name {value:?} {problem}")]
pub struct HostNameError {
    /// The beginning of the text.
    pub value: String,
    /// What is wrong with it.
    pub problem: HostNameProblem,
}

/// What is wrong with the name of a host. The text follows the name in a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostNameProblem {
    /// There is nothing, or only a dot.
    #[error("is empty; expected a name such as example.com")]
    Empty,
    /// It is longer than any name.
    #[error("has more than {MAX_NAME} bytes")]
    Long,
    /// There is a NUL.
    #[error("has a NUL")]
    Nul,
    /// There is white space.
    #[error("has a space")]
    Space,
    /// There is a character that no name has.
    #[error("has the character {0:?}; a name has letters, digits, hyphens, underscores and dots")]
    Character(char),
    /// A program asks for a name that is not ASCII.
    #[error("has the character {0:?}; a program asks for a name in other scripts by its A-labels (xn--...)")]
    Script(char),
    /// Two dots stand together, or a dot stands at the beginning.
    #[error("has nothing between two dots or before the first; hosts below a name are written *.example.com")]
    EmptyLabel,
    /// A label is too long.
    #[error("has more than {MAX_LABEL} bytes between two dots")]
    LongLabel,
    /// A label begins or ends with a hyphen.
    #[error("has a hyphen at the beginning or end of a label")]
    Hyphen,
    /// UTS 46 does not allow it.
    #[error("is not a valid internationalised name (UTS 46)")]
    International,
    /// It is an IP address.
    #[error("is an IP address, not a name")]
    Address,
    /// Its last label is a number.
    #[error(
        "ends in a number, which some programs read as an IPv4 address; write an address as four decimal \
         numbers without leading zeros, for example 192.0.2.1"
    )]
    Number,
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<HostName, HostNameError> {
        normalise(text).map(HostName).map_err(|problem| HostNameError { value: beginning(text), problem })
    }
}

/// As much of a text as an error message has room for.
pub(super) fn beginning(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

fn normalise(text: &str) -> Result<String, HostNameProblem> {
    if text.len() > MAX_TEXT {
        return Err(HostNameProblem::Long);
    }
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if inner.parse::<IpAddr>().is_ok() {
        return Err(HostNameProblem::Address);
    }
    if let Some(problem) = text.chars().find_map(refused) {
        return Err(problem);
    }
    let ascii = Uts46::new()
        .to_ascii(text.as_bytes(), NOT_IN_NAMES, Hyphens::Allow, DnsLength::Ignore)
        .map_err(|_| HostNameProblem::International)?;
    // Only now: other scripts have dots of their own, which are dots from here on.
    let name = ascii.strip_suffix('.').unwrap_or(&ascii);
    if name.is_empty() {
        return Err(HostNameProblem::Empty);
    }
    if name.len() > MAX_NAME {
        return Err(HostNameProblem::Long);
    }
    name.split('.').try_for_each(check_label)?;
    if name.rsplit('.').next().is_some_and(is_number) {
        // Digits of other scripts are ASCII's by now.
        let is_address = name.parse::<IpAddr>().is_ok();
        return Err(if is_address { HostNameProblem::Address } else { HostNameProblem::Number });
    }
    Ok(name.to_owned())
}

/// What is wrong with a character before it is normalised. The deny list of UTS 46 would refuse these too,
/// but without saying which.
fn refused(c: char) -> Option<HostNameProblem> {
    match c {
        '\0' => Some(HostNameProblem::Nul),
        c if c.is_whitespace() => Some(HostNameProblem::Space),
        '.' | '-' | '_' => None,
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(HostNameProblem::Character(c)),
        _ => None,
    }
}

/// Checks a label after normalising.
fn check_label(label: &str) -> Result<(), HostNameProblem> {
    if label.is_empty() {
        return Err(HostNameProblem::EmptyLabel);
    }
    if label.len() > MAX_LABEL {
        return Err(HostNameProblem::LongLabel);
    }
    let is_plain = |c: &char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_');
    if let Some(c) = label.chars().find(|c| !is_plain(c)) {
        return Err(HostNameProblem::Character(c));
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err(HostNameProblem::Hyphen);
    }
    Ok(())
}

/// Whether `inet_aton` would read a label as a number: decimal, octal or hexadecimal. A text whose last label
/// is one is an IPv4 address or nothing (as in the URL standard); no top-level domain is a number.
fn is_number(label: &str) -> bool {
    let is_decimal = label.bytes().all(|b| b.is_ascii_digit());
    let is_hex = label.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    is_decimal || is_hex
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for HostName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// What a program asks to be connected to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A name, to be resolved.
    Name(HostName),
    /// An address.
    Address(IpAddr),
}

impl FromStr for Host {
    type Err = HostNameError;

    /// An IPv4 or IPv6 address in its usual spelling, or a name.
    fn from_str(text: &str) -> Result<Host, HostNameError> {
        match text.parse() {
            Ok(address) => Ok(Host::Address(address)),
            Err(_) => text.parse().map(Host::Name),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => name.fmt(f),
            Host::Address(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
