//! Fuzz targets of the protocol's parsers: frames, messages, paths and patterns. The mux has its own in
//! `mux_fuzz_tests`.
//!
//! Each has an oracle that shares no code with what it checks: the same bytes in other pieces, the way back,
//! or a second reading that is written as simply as possible.

use bytes::{BufMut, Bytes, BytesMut};
use paddock_fuzz::{Target, fuzz};

use crate::execute::{ExecutePolicy, MAX_PROGRAM, MAX_PROGRAM_BYTES, MAX_PROGRAMS};
use crate::frame::HEADER;
use crate::glob::Glob;
use crate::limits::{MAX_DEPTH, MAX_NAME, MAX_PATH, MAX_PAYLOAD};
use crate::message::{self, Entry, EntryKind, Hello, HelloReply, Input, ResumePoints, RunLimits, RunSpec};
use crate::policy::{FilePolicy, MAX_PATTERNS};
use crate::{Channel, Event, Frame, Kind, LinkTarget, ProtocolError, RelPath, Request};

#[global_allocator]
static ALLOCATOR: paddock_fuzz::memory::CountingAllocator = paddock_fuzz::memory::CountingAllocator;

fn target<'a>(name: &'a str, seeds: Vec<Vec<u8>>, words: &'a [&'a [u8]]) -> Target<'a> {
    Target {
        name,
        package: env!("CARGO_MANIFEST_DIR"),
        seeds,
        words,
        longest: 2048,
        memory: |length| 64 * length + 64 * 1024,
    }
}

fn wire(frames: &[Frame]) -> Vec<u8> {
    let mut wire = BytesMut::new();
    frames.iter().for_each(|frame| frame.encode(&mut wire));
    wire.to_vec()
}

fn frame(stream: u32, kind: Kind, payload: &'static [u8]) -> Frame {
    Frame { stream, kind, payload: Bytes::from_static(payload) }
}

/// All frames of bytes that come in pieces of this size, what is left, and the error that was the end.
fn decoded(bytes: &[u8], piece: usize) -> (Vec<Frame>, Result<Vec<u8>, ProtocolError>) {
    let (mut input, mut frames) = (BytesMut::new(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        input.put_slice(piece);
        loop {
            match Frame::decode(&mut input) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, Ok(input.to_vec()))
}

#[test]
fn fuzz_frames() {
    let seed = wire(&[
        frame(1, Kind::Message, b"hello"),
        frame(3, Kind::Data(Channel::Stdout), b"output"),
        frame(3, Kind::Eof(Channel::Stdin), b""),
        frame(1, Kind::Credit, &[1, 0, 0, 0, 0, 0, 0, 0]),
        frame(1, Kind::Close, b""),
        frame(2, Kind::Reset, b""),
    ]);
    let seeds = vec![[&[5], &seed[..]].concat(), vec![1, 0, 0, 5, 0, 1, 0, 0, 0, 1]];
    fuzz(&target("frames", seeds, &[&[0, 0, 0, 0], &[0, 0, 5, 0], &[16], &[47]]), |input| {
        let Some((piece, bytes)) = input.split_first() else { return };
        let (frames, end) = decoded(bytes, usize::MAX);
        assert_eq!(
            decoded(bytes, usize::from(*piece)),
            (frames.clone(), end.clone()),
            "in pieces of {piece}"
        );
        let back = wire(&frames);
        assert!(bytes.starts_with(&back), "what was decoded is encoded to the same bytes");
        let rest = &bytes[back.len()..];
        let announced = rest.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
        match end {
            Ok(left) => {
                assert_eq!(left, rest, "nothing is dropped");
                let is_whole = |length| rest.len() >= HEADER && rest.len() >= HEADER + length;
                assert!(!announced.is_some_and(is_whole), "a whole frame was left");
            }
            Err(error) => {
                let oversize = announced.filter(|length| *length > MAX_PAYLOAD).map(ProtocolError::Oversize);
                let expected = oversize.or_else(|| rest.get(8).copied().map(ProtocolError::UnknownKind));
                assert_eq!(Some(error), expected);
            }
        }
    });
}

/// Decodes a message, and again what that is encoded to.
fn round_trip<T>(bytes: &[u8])
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    if let Ok(read) = message::decode::<T>(bytes) {
        let again = message::encode(&read);
        assert!(again.len() <= bytes.len(), "the shortest form is the encoder's");
        let Ok(read) = message::decode::<T>(&again) else { panic!("the way back is refused: {again:?}") };
        assert_eq!(message::encode(&read), again);
    }
}

#[test]
fn fuzz_messages() {
    let path = || RelPath::new("a/b.txt").unwrap();
    let link = EntryKind::Link(LinkTarget::new("../x").unwrap());
    let spec = RunSpec {
        id: "run".to_owned(),
        argv: vec!["sh".to_owned(), "-c".to_owned()],
        env: vec!["HOME=/data".to_owned()],
        cwd: "/data".to_owned(),
        wall_ms: 30_000,
        output_cap: 1 << 20,
        input: Input::Code { stdin: true },
        limits: RunLimits { cpu_seconds: Some(1), ..RunLimits::default() },
        warm: true,
        files: Some(FilePolicy { deny_write: vec!["*.key".to_owned()], ..FilePolicy::default() }),
        execute: Some(ExecutePolicy::Except(vec!["ssh".to_owned()])),
        network: true,
    };
    let resume = ResumePoints { highest: 3, streams: vec![(1, 100), (3, 7)] };
    let hello = Hello {
        version: 7,
        secret: [1; 32],
        link: 9,
        orphan_after_ms: 1,
        listen_ports: vec![443],
        resume: resume.clone(),
        direct: true,
    };
    let reply =
        HelloReply { version: 7, ran: true, claim: None, runs: vec!["run".to_owned()], resume, direct: None };
    let seeds = [
        message::encode(&Request::Run(spec)),
        message::encode(&Request::Put(Entry { path: path(), kind: link, mode: 0o644, mtime_ns: -1 })),
        message::encode(&Request::Remove(path())),
        message::encode(&Request::Agreed(Entry {
            path: path(),
            kind: EntryKind::File(1),
            mode: 0o600,
            mtime_ns: i64::MIN,
        })),
        message::encode(&Event::Attached { heard: u64::MAX }),
        message::encode(&Event::Failed { what: "why".to_owned() }),
        message::encode(&Event::Probed(Box::default())),
        message::encode(&hello),
        message::encode(&reply),
    ];
    let seeds = seeds.iter().map(|seed| seed.to_vec()).collect();
    let words: [&[u8]; 3] = [&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10], b"../", &[0]];
    // For a list of announced length serde reserves up to 1 MiB before its first element; a message has a few
    // lists.
    let target = Target { memory: |length| 64 * length + (6 << 20), ..target("messages", seeds, &words) };
    fuzz(&target, |input| {
        round_trip::<Request>(input);
        round_trip::<Event>(input);
        round_trip::<Hello>(input);
        round_trip::<HelloReply>(input);
    });
}

/// What a path below `/data` is, said otherwise than in [`RelPath::new`].
fn is_path(bytes: &[u8]) -> bool {
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Component, Path};
    let path = Path::new(std::ffi::OsStr::from_bytes(bytes));
    let names: Vec<_> = path
        .components()
        .map(|part| if let Component::Normal(name) = part { Some(name.as_bytes()) } else { None })
        .collect();
    let Some(names) = names.into_iter().collect::<Option<Vec<_>>>() else { return false };
    let is_normal = names.join(&b'/') == bytes && !bytes.is_empty() && !bytes.contains(&0);
    is_normal
        && bytes.len() <= MAX_PATH
        && names.len() <= MAX_DEPTH
        && names.iter().all(|name| name.len() <= MAX_NAME)
}

#[test]
fn fuzz_paths() {
    let deep = "a/".repeat(MAX_DEPTH) + "b";
    let seeds = ["a/b.txt", "/data/x", "/workspace/a b/c", "../x", "a//b", "./a", &deep];
    let mut seeds: Vec<_> = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    seeds.push(vec![b'x'; MAX_NAME + 1]);
    let words: [&[u8]; 8] = [b"/", b"..", b".", b"\0", b"/data/", b"/mnt/data/", b"/workspace", b"a/"];
    let target = Target { longest: 2 * MAX_PATH, ..target("paths", seeds, &words) };
    fuzz(&target, |input| {
        let path = RelPath::new(input);
        assert_eq!(path.is_ok(), is_path(input), "{path:?}");
        if let Ok(path) = path {
            assert_eq!(path.as_bytes(), input);
            let back = path
                .parent()
                .map_or_else(|| RelPath::new(path.file_name()), |dir| dir.join(path.file_name()));
            assert_eq!(back.as_ref(), Ok(&path), "above and name are the whole");
            assert!(path.parent().is_none_or(|dir| path.is_below(&dir) && !dir.is_below(&path)));
        }
        let Ok(text) = std::str::from_utf8(input) else { return };
        let mounts = ["/data/", "/mnt/data/", "/workspace/"];
        let below = mounts.iter().find_map(|mount| text.strip_prefix(mount)).unwrap_or(text);
        let read = RelPath::from_user(text);
        assert_eq!(read.ok().map(Vec::from), is_path(below.as_bytes()).then(|| below.into()));
    });
}

/// A character of a name, or a byte that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Char(char),
    Byte(u8),
}

fn units(name: &[u8]) -> Vec<Unit> {
    let text = |chunk: &std::str::Utf8Chunk<'_>| chunk.valid().chars().map(Unit::Char).collect::<Vec<_>>();
    let all = name.utf8_chunks().map(|chunk| {
        let bad = chunk.invalid().iter().copied().map(Unit::Byte);
        text(&chunk).into_iter().chain(bad).collect::<Vec<_>>()
    });
    all.collect::<Vec<_>>().concat()
}

/// A pattern's piece: what it takes of a name is at most one unit, unless it is a star.
enum Piece {
    Star,
    Any,
    Literal(char),
    Class(bool, Vec<(char, char)>),
}

/// A pattern, by its grammar: each character with whether it was escaped first, then what stands in brackets.
fn pieces(pattern: &str) -> Option<Vec<Piece>> {
    let (mut chars, mut rest) = (Vec::new(), pattern.chars());
    while let Some(c) = rest.next() {
        chars.push(if c == '\\' { (rest.next()?, true) } else { (c, false) });
    }
    let (mut pieces, mut at) = (Vec::new(), 0);
    while let Some((c, escaped)) = chars.get(at).copied() {
        at += 1;
        pieces.push(match c {
            _ if escaped => Piece::Literal(c),
            '*' => Piece::Star,
            '?' => Piece::Any,
            '[' => {
                let negated = matches!(chars.get(at), Some(('!' | '^', false)));
                at += usize::from(negated);
                let mut ranges = Vec::new();
                loop {
                    match chars[at..] {
                        [(']', false), ..] if ranges.is_empty() => return None,
                        [(']', false), ..] => break,
                        [('[', false), ..] | [] => return None,
                        [(from, _), ('-', false), (']', false), ..] => {
                            ranges.extend([(from, from), ('-', '-')]);
                            at += 2;
                        }
                        [(from, _), ('-', false), (to, _), ..] if to < from => return None,
                        [(from, _), ('-', false), (to, _), ..] => {
                            ranges.push((from, to));
                            at += 3;
                        }
                        [(one, _), ..] => {
                            ranges.push((one, one));
                            at += 1;
                        }
                    }
                }
                at += 1;
                Piece::Class(negated, ranges)
            }
            c => Piece::Literal(c),
        });
    }
    Some(pieces)
}

/// Whether pieces match all of a name: for each piece, at which places it can begin.
fn matches(pieces: &[Piece], name: &[Unit]) -> bool {
    let mut places = vec![false; name.len() + 1];
    places[0] = true;
    for piece in pieces {
        let mut next = vec![false; name.len() + 1];
        for at in (0..=name.len()).filter(|at| places[*at]) {
            if matches!(piece, Piece::Star) {
                next[at..].fill(true);
                continue;
            }
            let Some(unit) = name.get(at) else { continue };
            next[at + 1] |= match (piece, unit) {
                (Piece::Star | Piece::Any, _) => true,
                (Piece::Literal(c), Unit::Char(other)) => c == other,
                (Piece::Literal(_), Unit::Byte(_)) => false,
                (Piece::Class(negated, ranges), Unit::Char(c)) => {
                    *negated != ranges.iter().any(|(from, to)| from <= c && c <= to)
                }
                (Piece::Class(negated, _), Unit::Byte(_)) => *negated,
            };
        }
        places = next;
    }
    places[name.len()]
}

#[test]
fn fuzz_globs() {
    let seeds = [
        "*.key\na.key",
        "[!a-c]x\ndx",
        "a*b*c\naxbxc",
        "?[^b]\\*\n\u{e9}x*",
        "*[!a][!b]\n\u{20ac}",
        "[a-]]\n-",
    ];
    let mut seeds: Vec<_> = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    seeds.push(b"[a-c]x\n\xffx".to_vec());
    let words: [&[u8]; 10] =
        [b"*", b"?", b"[", b"]", b"[!", b"-", b"\\", b"\n", "\u{e9}".as_bytes(), b"\xe2\x82"];
    let target = Target { longest: 128, ..target("globs", seeds, &words) };
    fuzz(&target, |input| {
        let (pattern, name) = match input.iter().position(|byte| *byte == b'\n') {
            Some(end) => (&input[..end], &input[end + 1..]),
            None => (input, &b""[..]),
        };
        let Ok(pattern) = std::str::from_utf8(pattern) else { return };
        let (glob, pieces) = (Glob::parse(pattern), pieces(pattern));
        assert_eq!(glob.is_ok(), pieces.is_some(), "{pattern:?}: {glob:?}");
        let (Ok(glob), Some(pieces)) = (glob, pieces) else { return };
        let expected = matches(&pieces, &units(name));
        assert_eq!(glob.matches(name), expected, "{pattern:?} {:?}", name.escape_ascii().to_string());
        if let Some(literal) = glob.literal() {
            assert_eq!(expected, literal == name, "it has no wildcard: {pattern:?}");
        }
        assert!(Glob::of(name).matches(name));
    });
}

/// Whether a pattern is one, by the documentation of [`FilePolicy`].
fn is_pattern(pattern: &str) -> bool {
    let mut after_wildcard = false;
    let are_good = pattern.split('/').all(|component| {
        let is_up = component == "..";
        let stars_alone = component == "**" || !component.contains("**");
        let Some(pieces) = pieces(component) else { return false };
        let is_good = stars_alone && !(is_up && after_wildcard);
        after_wildcard |= pieces.iter().any(|piece| !matches!(piece, Piece::Literal(_)));
        is_good
    });
    let home = pattern.strip_prefix('~').is_none_or(|rest| rest.is_empty() || rest.starts_with('/'));
    are_good && home && !pattern.is_empty() && !pattern.contains('\0')
}

#[test]
fn fuzz_policies() {
    let seeds = ["*.key", "~/.ssh", "src/**/*.[ch]", "/tmp\u{1}.env", "a/*/../b", "\\", "a\\*/../b"];
    let seeds = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    let target = target("policies", seeds, &[b"**", b"..", b"/", b"~", b"\0", b"[", b"]", b"\\", b"\x01"]);
    fuzz(&target, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let patterns: Vec<String> = text.split('\u{1}').map(str::to_owned).collect();
        let is_good = patterns.len() <= MAX_PATTERNS && patterns.iter().all(|pattern| is_pattern(pattern));
        let policy = FilePolicy { deny_read: patterns, ..FilePolicy::default() };
        assert_eq!(policy.check().is_ok(), is_good, "{:?}", policy.check());
    });
}

#[test]
fn fuzz_programs() {
    let seeds = ["claude", "/usr/bin/claude\u{1}ssh", "..", "a/b", "nc.openbsd"];
    let seeds = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    let target = target("programs", seeds, &[b"/", b"..", b".", b"\0", b"\x01"]);
    fuzz(&target, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let programs: Vec<String> = text.split('\u{1}').map(str::to_owned).collect();
        let is_name = |text: &String| {
            !matches!(text.as_str(), "" | "." | "..") && text.len() <= MAX_NAME && !text.contains(['/', '\0'])
        };
        let is_path =
            |text: &String| text.starts_with('/') && text.len() <= MAX_PROGRAM && !text.contains('\0');
        let is_bounded = programs.len() <= MAX_PROGRAMS
            && programs.iter().map(String::len).sum::<usize>() <= MAX_PROGRAM_BYTES;
        let is_only = is_bounded && programs.iter().all(|text| is_name(text) || is_path(text));
        let is_except = is_bounded && programs.iter().all(is_name);
        assert_eq!(ExecutePolicy::Only(programs.clone()).check().is_ok(), is_only, "{programs:?}");
        assert_eq!(ExecutePolicy::Except(programs.clone()).check().is_ok(), is_except, "{programs:?}");
    });
}
