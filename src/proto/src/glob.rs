//! Patterns for file names, one path component at a time: `*`, `?`, `[a-z]`, `[!a-z]`, and `\` before a
//! character that stands for itself.
//!
//! Daemon and agent use the same parser, so the agent never understands a pattern differently than the daemon
//! that accepted it. No crate that we know would do: a malformed pattern matches nothing there, so a rule
//! that denies would silently allow. Names are bytes. Matching must never take more time than the product of
//! both lengths.

/// A pattern for one component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(Vec<Token>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// Any one byte, or one character of UTF-8.
    One,
    /// Any number of bytes.
    Many,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Glob {
    /// Parses a pattern, which has no `/`.
    ///
    /// # Errors
    /// What is wrong with it, to be read behind the pattern.
    pub fn parse(pattern: &str) -> Result<Self, &'static str> {
        let mut tokens = Vec::new();
        let mut rest = pattern.chars();
        while let Some(c) = rest.next() {
            match c {
                '*' if tokens.last() == Some(&Token::Many) => {}
                '*' => tokens.push(Token::Many),
                '?' => tokens.push(Token::One),
                '[' => tokens.push(class(&mut rest)?),
                '\\' => bytes(&mut tokens, rest.next().ok_or("ends in a `\\` that escapes nothing")?),
                c => bytes(&mut tokens, c),
            }
        }
        Ok(Self(tokens))
    }

    /// The pattern that matches only this name.
    pub fn of(name: &[u8]) -> Self {
        Self(name.iter().copied().map(Token::Byte).collect())
    }

    /// The only name that it matches, if it has no wildcard.
    pub fn literal(&self) -> Option<Vec<u8>> {
        self.0.iter().map(|token| if let Token::Byte(byte) = token { Some(*byte) } else { None }).collect()
    }

    /// Whether it matches the whole of `name`.
    pub fn matches(&self, name: &[u8]) -> bool {
        let (mut at, mut token) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        while at < name.len() || token < self.0.len() {
            let step = match self.0.get(token) {
                Some(Token::Many) => {
                    retry = Some((at, token));
                    Some(0)
                }
                Some(one) => one.takes(&name[at..]),
                None => None,
            };
            match (step, retry) {
                (Some(step), _) => (at, token) = (at + step, token + 1),
                // The last star takes one character more, or one byte that is none: it never ends inside a
                // character.
                (None, Some((from, star))) if from < name.len() => {
                    let from = from + character(&name[from..]).map_or(1, |(_, length)| length);
                    retry = Some((from, star));
                    (at, token) = (from, star + 1);
                }
                _ => return false,
            }
        }
        true
    }
}

impl Token {
    /// How many bytes at the beginning of `rest` it matches.
    fn takes(&self, rest: &[u8]) -> Option<usize> {
        let first = *rest.first()?;
        match self {
            Self::Byte(byte) => (*byte == first).then_some(1),
            Self::One => Some(character(rest).map_or(1, |(_, length)| length)),
            Self::Many => Some(0),
            Self::Class { negated, ranges } => match character(rest) {
                Some((c, length)) => {
                    let within = ranges.iter().any(|(from, to)| (*from..=*to).contains(&c));
                    (within != *negated).then_some(length)
                }
                None => negated.then_some(1),
            },
        }
    }
}

/// The first character, and its length in bytes, if these begin with one.
fn character(bytes: &[u8]) -> Option<(char, usize)> {
    let piece = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(piece) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&piece[..error.valid_up_to()]).ok()?,
    };
    valid.chars().next().map(|c| (c, c.len_utf8()))
}

fn bytes(tokens: &mut Vec<Token>, c: char) {
    tokens.extend(c.encode_utf8(&mut [0; 4]).bytes().map(Token::Byte));
}

/// Parses what follows a `[`, up to its `]`.
fn class(rest: &mut std::str::Chars<'_>) -> Result<Token, &'static str> {
    const OPEN: &str = "has a `[` without its `]`; write `\\[` for the character itself";
    let mut next = |escaped: &mut bool| -> Result<char, &'static str> {
        let c = rest.next().ok_or(OPEN)?;
        *escaped = c == '\\';
        if *escaped { rest.next().ok_or(OPEN) } else { Ok(c) }
    };
    let mut escaped = false;
    let mut c = next(&mut escaped)?;
    let negated = !escaped && (c == '!' || c == '^');
    if negated {
        c = next(&mut escaped)?;
    }
    let mut ranges: Vec<(char, char)> = Vec::new();
    loop {
        if c == ']' && !escaped {
            return if ranges.is_empty() {
                Err("has a `[]` that matches nothing")
            } else {
                Ok(Token::Class { negated, ranges })
            };
        }
        if c == '[' && !escaped {
            return Err("has a `[` inside `[…]`; write `\\[` for the character itself");
        }
        let from = c;
        c = next(&mut escaped)?;
        if c != '-' || escaped {
            ranges.push((from, from));
            continue;
        }
        c = next(&mut escaped)?;
        if c == ']' && !escaped {
            ranges.extend([(from, from), ('-', '-')]);
            continue;
        }
        if c < from {
            return Err("has a range in `[…]` that ends before it begins");
        }
        ranges.push((from, c));
        c = next(&mut escaped)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::parse(pattern).expect(pattern).matches(name.as_bytes())
    }

    #[test]
    fn names_are_matched_whole() {
        for (pattern, yes, no) in [
            (".env", &[".env"][..], &[".envx", "x.env", "", ".en"][..]),
            ("*.key", &["a.key", ".key", "a.key.key"], &["a.keys", "key", "a.key/"]),
            ("*", &["", "a", ".hidden"], &[]),
            ("a*b*c", &["abc", "axbxc", "abcbc"], &["ab", "acb", "abcd"]),
            ("?", &["a", "é", "€"], &["", "ab"]),
            ("*[!a][!b]", &["xy", "€€"], &["€", "a", "xb"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "x", "-x"]),
            ("[!a-c]x", &["dx", "éx"], &["ax", "x"]),
            ("[^a]", &["b"], &["a"]),
            ("[a-]", &["a", "-"], &["b"]),
            ("[é-ü]", &["é", "ö"], &["a", "z"]),
            ("\\*", &["*"], &["a"]),
            ("[\\]]", &["]"], &["\\"]),
            ("{a,b}!", &["{a,b}!"], &["a!", "b!"]),
        ] {
            for name in yes {
                assert!(matches(pattern, name), "{pattern} {name}");
            }
            for name in no {
                assert!(!matches(pattern, name), "{pattern} {name}");
            }
        }
        assert!(Glob::parse("a?c").expect("good").matches(b"a\xffc"), "a name need not be text");
        assert!(Glob::parse("[!a]").expect("good").matches(b"\xff"));
        assert!(!Glob::parse("[a]").expect("good").matches(b"\xff"));
    }

    #[test]
    fn what_is_broken_is_refused() {
        for pattern in ["[", "[a", "[]", "[!]", "[a-", "[z-a]", "a\\", "[\\", "[[:alpha:]]"] {
            assert!(Glob::parse(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn stars_take_no_more_than_their_time() {
        let glob = Glob::parse(&"*a".repeat(200)).expect("good");
        assert!(!glob.matches("a".repeat(255).replace("aa", "ab").as_bytes()));
        assert_eq!(Glob::parse("\\[x").expect("good").literal(), Some(b"[x".to_vec()));
        assert_eq!(Glob::parse("[x]").expect("good").literal(), None);
    }
}
