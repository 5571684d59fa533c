//! Names as git writes them in a diff.
//!
//! It must never let a byte through that ends a line, or that a terminal obeys.

/// A name with its prefix `a/` or `b/`: between quotes, with C escapes, if it has a byte that git escapes.
pub(super) fn quoted(prefix: &str, name: &[u8]) -> Vec<u8> {
    let mut text = prefix.as_bytes().to_vec();
    text.extend_from_slice(name);
    if !text.iter().any(|byte| is_escaped(*byte)) {
        return text;
    }
    let mut shown = vec![b'"'];
    for byte in text {
        match short(byte) {
            Some(letter) => shown.extend([b'\\', letter]),
            None if is_escaped(byte) => shown.extend(format!("\\{byte:03o}").into_bytes()),
            None => shown.push(byte),
        }
    }
    shown.push(b'"');
    shown
}

fn is_escaped(byte: u8) -> bool {
    !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\')
}

/// The letter of an escape that has one.
fn short(byte: u8) -> Option<u8> {
    Some(match byte {
        0x07 => b'a',
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0b => b'v',
        0x0c => b'f',
        b'\r' => b'r',
        b'"' | b'\\' => byte,
        _ => return None,
    })
}

/// The name between quotes at the beginning of a text, and what follows it.
pub(super) fn unquoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut name = Vec::new();
    loop {
        let (first, behind) = rest.split_first()?;
        rest = behind;
        match first {
            b'"' => return Some((name, rest)),
            b'\\' => {
                let (letter, behind) = rest.split_first()?;
                if letter.is_ascii_digit() {
                    let (digits, behind) = rest.split_at_checked(3)?;
                    name.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?);
                    rest = behind;
                } else {
                    name.push((0..=u8::MAX).find(|byte| short(*byte) == Some(*letter))?);
                    rest = behind;
                }
            }
            plain => name.push(*plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_quoted_as_git_quotes_them() {
        for (name, shown) in [
            (&b"src/a b.py"[..], "a/src/a b.py"),
            (b"a\tb\nc", r#""a/a\tb\nc""#),
            (b"\x1b[31m\"\\", r#""a/\033[31m\"\\""#),
            ("é".as_bytes(), r#""a/\303\251""#),
            (b"\x7f\x07\x08\x0b\x0c\r", r#""a/\177\a\b\v\f\r""#),
        ] {
            assert_eq!(String::from_utf8(quoted("a/", name)).unwrap(), shown);
        }
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_again(name in proptest::collection::vec(1u8.., 1..20)) {
            let text = quoted("a/", &[&name[..], b"\n"].concat());
            let text = [&text[..], b" rest"].concat();
            let (read, rest) = unquoted(&text).unwrap();
            prop_assert_eq!(read, [b"a/", &name[..], b"\n"].concat());
            prop_assert_eq!(rest, b" rest");
        }
    }
}
