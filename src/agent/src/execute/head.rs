//! What the kernel needs besides a file in order to execute it: by the beginning of the file.
//!
//! It must never trust a length or an offset that a file has.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// What the kernel reads of a file at first (`BINPRM_BUF_SIZE`): a script's first line ends there at the
/// latest.
const HEAD: usize = 256;

/// Program headers that the kernel takes: all of them fit into 64 KiB.
const MAX_HEADERS: usize = 65_536 / HEADER;
/// Bytes of one program header of a 64-bit file.
const HEADER: usize = 56;
/// Bytes of an interpreter's path (`PATH_MAX`).
const MAX_PATH: u64 = 4096;
/// The type of the program header that names the interpreter.
const PT_INTERP: u32 = 3;

/// The interpreter of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Interpreter {
    /// None is named, or the kernel would not take the file.
    None,
    /// The loader of a program that uses shared libraries.
    Elf(PathBuf),
    /// That of a script, and the rest of its first line.
    Script(PathBuf, Vec<u8>),
}

/// The interpreter that a file names. `read_at` reads at most so many bytes at an offset.
///
/// # Errors
/// Those of `read_at`.
pub(super) fn interpreter(
    read_at: &mut dyn FnMut(u64, usize) -> io::Result<Vec<u8>>,
) -> io::Result<Interpreter> {
    let head = read_at(0, HEAD)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        return Ok(script(line));
    }
    // 64 bits, little-endian: programs of other kinds do not run in a container.
    if !head.starts_with(b"\x7fELF\x02\x01") || head.len() < 64 {
        return Ok(Interpreter::None);
    }
    let (at, size, count) = (number(&head, 32, 8), number(&head, 54, 2), number(&head, 56, 2));
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if size != HEADER as u64 || count > MAX_HEADERS {
        return Ok(Interpreter::None);
    }
    let headers = read_at(at, count * HEADER)?;
    for header in headers.chunks_exact(HEADER) {
        if number(header, 0, 4) != u64::from(PT_INTERP) {
            continue;
        }
        let (at, length) = (number(header, 8, 8), number(header, 32, 8));
        let path = if length <= MAX_PATH {
            read_at(at, usize::try_from(length).unwrap_or_default())?
        } else {
            Vec::new()
        };
        let path: Vec<u8> = path.into_iter().take_while(|byte| *byte != 0).collect();
        return Ok(if path.is_empty() { Interpreter::None } else { Interpreter::Elf(path_of(path)) });
    }
    Ok(Interpreter::None)
}

/// By the first line behind its `#!`.
fn script(line: &[u8]) -> Interpreter {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line: Vec<u8> = line.iter().copied().take_while(|byte| !matches!(byte, b'\n' | 0)).collect();
    let line = line.trim_ascii();
    let end = line.iter().position(is_blank).unwrap_or(line.len());
    let (path, rest) = line.split_at(end);
    match path {
        [] => Interpreter::None,
        path => Interpreter::Script(path_of(path.to_vec()), rest.trim_ascii().to_vec()),
    }
}

/// The program that `env` starts for a script whose first line goes on like this.
pub(super) fn started_by_env(rest: &[u8]) -> Option<String> {
    let words = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    let mut words = words.skip_while(|word| word.starts_with('-') || word.contains('='));
    words.next().map(str::to_owned)
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

/// A little-endian number of `size` bytes; 0 where there are fewer.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut number = [0; 8];
    if let (Some(from), Some(to)) = (bytes.get(at..at + size), number.get_mut(..size)) {
        to.copy_from_slice(from);
    }
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(bytes: &[u8]) -> Interpreter {
        let mut read_at = |at: u64, length: usize| {
            let at = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            Ok(bytes[at..bytes.len().min(at.saturating_add(length))].to_vec())
        };
        interpreter(&mut read_at).expect("memory can be read")
    }

    /// A file with one program header of this type, whose content is `path`.
    fn elf(kind: u32, path: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64 + HEADER];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        (file[54], file[56]) = (56, 1);
        file[64..68].copy_from_slice(&kind.to_le_bytes());
        file[72] = 120;
        file[96..104].copy_from_slice(&(path.len() as u64).to_le_bytes());
        file.extend_from_slice(path);
        file
    }

    #[test]
    fn a_program_names_its_loader_and_a_script_its_interpreter() {
        let script = |path: &str, rest: &str| Interpreter::Script(path.into(), rest.as_bytes().to_vec());
        assert_eq!(of(&elf(PT_INTERP, b"/lib/ld.so\0")), Interpreter::Elf("/lib/ld.so".into()));
        for (bytes, named) in [
            (&b"#!/bin/sh\necho"[..], script("/bin/sh", "")),
            (b"#! /usr/bin/env  -S node --x \n", script("/usr/bin/env", "-S node --x")),
            (b"#!\t/bin/awk -f", script("/bin/awk", "-f")),
            (b"#!\n/bin/sh", Interpreter::None),
            (b"echo", Interpreter::None),
            (b"", Interpreter::None),
        ] {
            assert_eq!(of(bytes), named, "{bytes:?}");
        }
        for (rest, named) in
            [("node", Some("node")), ("-S -i A=b python3 -u", Some("python3")), ("", None), ("-i", None)]
        {
            assert_eq!(started_by_env(rest.as_bytes()).as_deref(), named, "{rest}");
        }
    }

    #[test]
    fn the_loader_of_a_real_program_is_found() {
        let program = std::fs::read("/bin/sh").expect("a program");
        let Interpreter::Elf(loader) = of(&program) else { panic!("it has no loader") };
        assert!(loader.is_absolute() && loader.exists(), "{loader:?}");
    }

    #[test]
    fn a_header_that_lies_names_nothing() {
        let good = elf(PT_INTERP, b"/lib/ld.so\0");
        for at in 0..good.len() {
            let _ = of(&good[..at]);
            for byte in [0, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                let _ = of(&bad);
            }
        }
        assert_eq!(of(&elf(1, b"/lib/ld.so\0")), Interpreter::None);
        assert_eq!(of(&elf(PT_INTERP, &[b'x'; 5000])), Interpreter::None);
        assert_eq!(of(&elf(PT_INTERP, b"\0")), Interpreter::None);
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            begins in proptest::sample::select(vec![&b"#!"[..], b"\x7fELF\x02\x01", b""]),
        ) {
            let file = [begins, &bytes].concat();
            if let Interpreter::Elf(path) | Interpreter::Script(path, _) = of(&file) {
                prop_assert!(!path.as_os_str().is_empty());
            }
        }

        #[test]
        fn the_loader_is_read_wherever_it_is(path in "/[a-z/.]{1,60}", more in 0_usize..3) {
            let mut file = elf(PT_INTERP, format!("{path}\0").as_bytes());
            // Other headers before it.
            file[56] = u8::try_from(more + 1).expect("few");
            file.splice(64..64, vec![0; more * HEADER]);
            let at = 64 + more * HEADER;
            file[at + 9] = u8::try_from((at + HEADER) >> 8).expect("small");
            file[at + 8] = u8::try_from((at + HEADER) & 0xff).expect("a byte");
            prop_assert_eq!(of(&file), Interpreter::Elf(path.into()));
        }
    }
}
