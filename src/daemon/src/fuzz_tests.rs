//! Fuzz targets of the daemon's parsers: archives, the engine's frames, the names and patterns of egress, and
//! what servers of programs say of cookies and addresses.
//! `api` has one for JSON-RPC envelopes, and the protocol's are in its own crate.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use paddock_fuzz::{Target, fuzz};
use tokio::io::{AsyncRead, ReadBuf};

use crate::egress::{Host, HostName, Pattern};
use crate::engine::{FrameDecoder, FrameError, MAX_FRAME, Stdio};
use crate::store::tar::{MemberKind, TarLimits, TarMember, TarReader};

#[global_allocator]
static ALLOCATOR: paddock_fuzz::memory::CountingAllocator = paddock_fuzz::memory::CountingAllocator;

fn target<'a>(name: &'a str, seeds: Vec<Vec<u8>>, words: &'a [&'a [u8]]) -> Target<'a> {
    Target {
        name,
        package: env!("CARGO_MANIFEST_DIR"),
        seeds,
        words,
        longest: 8192,
        memory: |length| 64 * length + 512 * 1024,
    }
}

/// What an engine's stream says, chunk by chunk.
type Chunks = Vec<(Stdio, Vec<u8>)>;

/// What an engine's stream says, and how it ends: read at once, frame by frame.
fn frames_of(mut bytes: &[u8]) -> (Chunks, Result<(), FrameError>) {
    let mut all: Chunks = Vec::new();
    loop {
        let Some((header, rest)) = bytes.split_first_chunk::<8>() else {
            return (all, if bytes.is_empty() { Ok(()) } else { Err(FrameError::Cut) });
        };
        let (number, length) = ([header[0], header[1], header[2], header[3]], &header[4..]);
        let stdio = match number {
            [1, 0, 0, 0] => Stdio::Stdout,
            [2, 0, 0, 0] => Stdio::Stderr,
            [3, 0, 0, 0] => Stdio::Engine,
            other => return (all, Err(FrameError::Stream(other))),
        };
        let length = length.iter().fold(0, |length: u32, byte| length << 8 | u32::from(*byte));
        if length > MAX_FRAME {
            return (all, Err(FrameError::Oversize(length)));
        }
        let whole = usize::try_from(length).expect("small");
        let there = whole.min(rest.len());
        if there > 0 {
            all.push((stdio, rest[..there].to_vec()));
        }
        if there < whole {
            return (all, Err(FrameError::Cut));
        }
        bytes = &rest[whole..];
    }
}

#[test]
fn fuzz_engine_frames() {
    let seed =
        [&[1, 0, 0, 0, 0, 0, 0, 2][..], b"hi", &[2, 0, 0, 0, 0, 0, 0, 0], &[3, 0, 0, 0, 0, 0, 0, 1, b'x']];
    let seeds = vec![[&[3][..], &seed.concat()].concat()];
    let words: [&[u8]; 5] =
        [&[1, 0, 0, 0], &[2, 0, 0, 0, 0, 0, 0, 1], &[0, 16, 0, 0], &[0, 16, 0, 1], &[0, 0, 0, 9]];
    fuzz(&target("engine_frames", seeds, &words), |input| {
        let Some((piece, bytes)) = input.split_first() else { return };
        let (expected, end) = frames_of(bytes);
        let (mut decoder, mut buffer) = (FrameDecoder::new(), BytesMut::new());
        let mut said: Chunks = Vec::new();
        let mut failed = None;
        'all: for piece in bytes.chunks(usize::from(*piece).max(1)) {
            buffer.extend_from_slice(piece);
            loop {
                match decoder.decode(&mut buffer) {
                    Ok(Some(chunk)) => {
                        assert!(!chunk.bytes.is_empty());
                        said.push((chunk.stdio, chunk.bytes.to_vec()));
                    }
                    Ok(None) => break,
                    Err(error) => {
                        failed = Some(error);
                        break 'all;
                    }
                }
            }
            assert!(buffer.is_empty(), "what it took, it has used");
        }
        assert_eq!(failed.map_or_else(|| decoder.finish(), Err), end);
        if let Some(error) = failed {
            assert_eq!(decoder.decode(&mut BytesMut::from(&b"more"[..])), Err(error), "an error stays");
        }
        // A chunk is never of two frames, so joining neighbours of one stream makes both alike.
        let joined = |chunks: Chunks| {
            let mut all: Chunks = Vec::new();
            for (stdio, bytes) in chunks {
                match all.last_mut().filter(|last| last.0 == stdio) {
                    Some(last) => last.1.extend(bytes),
                    None => all.push((stdio, bytes)),
                }
            }
            all
        };
        assert_eq!(joined(said), joined(expected));
    });
}

/// Gives so many bytes at a time.
struct InPieces<'a> {
    bytes: &'a [u8],
    size: usize,
}

impl AsyncRead for InPieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let some = self.size.max(1).min(into.remaining()).min(self.bytes.len());
        let (piece, rest) = self.bytes.split_at(some);
        into.put_slice(piece);
        self.bytes = rest;
        Poll::Ready(Ok(()))
    }
}

const LIMITS: TarLimits = TarLimits { entries: 12, bytes: 6000 };

/// Members of an archive with their content.
type Members = Vec<(TarMember, Vec<u8>)>;

/// What an archive gives, and the error that was its end, as text.
async fn read(archive: &[u8], size: usize, strictly: bool) -> (Members, Result<(), String>) {
    let reader = TarReader::new(InPieces { bytes: archive, size }, LIMITS);
    let mut reader = if strictly { reader.strictly() } else { reader };
    let mut all = Vec::new();
    loop {
        let member = match reader.next().await {
            Ok(Some(member)) => member,
            Ok(None) => return (all, Ok(())),
            Err(error) => return (all, Err(error.to_string())),
        };
        let mut content = Vec::new();
        loop {
            match reader.piece().await {
                Ok(Some(piece)) => content.extend_from_slice(&piece),
                Ok(None) => break,
                Err(error) => return (all, Err(error.to_string())),
            }
        }
        all.push((member, content));
    }
}

/// Makes the checksums right of all headers that a plain walk comes by: what is behind them is to be reached.
fn seal(archive: &mut [u8]) {
    let mut at = 0;
    while let Some(block) = archive.get_mut(at..at + 512) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let size = block[124..136].iter().filter(|byte| (b'0'..b'8').contains(byte));
        let size = size
            .fold(0_usize, |size, digit| size.saturating_mul(8).saturating_add(usize::from(digit - b'0')));
        at = at.saturating_add(512).saturating_add(size.min(1 << 40).next_multiple_of(512));
    }
}

fn entry(name: &str, kind: u8, target: &str, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    block[136..148].copy_from_slice(b"00000000012\0");
    block[156] = kind;
    block[157..157 + target.len()].copy_from_slice(target.as_bytes());
    block[257..265].copy_from_slice(b"ustar\x0000");
    block.extend_from_slice(content);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

#[test]
fn fuzz_tar() {
    let plain = [
        entry("./", b'5', "", b""),
        entry("a/b.txt", b'0', "", b"content"),
        entry("l", b'2', "../x", b""),
        entry("h", b'1', "a/b.txt", b""),
        vec![0; 1024],
    ];
    let described = [
        entry("x", b'x', "", b"18 path=long/name\n12 size=00003\n20 mtime=1.500000000\n"),
        entry("short", b'0', "", b"abc"),
        entry("././@LongLink", b'L', "", b"another/long/name\0"),
        entry("short", b'0', "", b"abc"),
        entry("g", b'g', "", b"13 comment=x\n"),
    ];
    let seeds = vec![[vec![1], plain.concat()].concat(), [vec![3], described.concat()].concat()];
    let words: [&[u8]; 12] = [
        b"ustar\x0000",
        b"ustar  \0",
        b"0000000000",
        b"17777777777",
        b"\x80\0\0\0",
        b"../",
        b"./",
        b"path=",
        b"linkpath=",
        b"size=",
        b"GNU.sparse",
        &[0; 512],
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    fuzz(&target("tar", seeds, &words), |input| {
        let Some((how, bytes)) = input.split_first() else { return };
        let mut archive = bytes.to_vec();
        if !how.is_multiple_of(4) {
            seal(&mut archive);
        }
        let (members, end) = runtime.block_on(read(&archive, usize::MAX, false));
        let pieces = runtime.block_on(read(&archive, usize::from(how / 4), false));
        assert_eq!(pieces, (members.clone(), end.clone()), "in pieces");

        let (strict, strict_end) = runtime.block_on(read(&archive, usize::MAX, true));
        assert!(members.starts_with(&strict), "strictly fewer, but no others");
        assert!(strict_end.is_err() || (strict.len() == members.len() && end.is_ok()));
        let mut named = BTreeMap::new();
        for (member, _) in &strict {
            let is_dir = member.kind == MemberKind::Dir;
            let first = *named.entry(member.path.clone()).or_insert(is_dir);
            assert_eq!(first, is_dir, "strictly, {:?} is a directory or it is not", member.path);
        }

        let mut links = BTreeSet::new();
        assert!(
            members.len() <= 12 && members.iter().map(|(_, content)| content.len()).sum::<usize>() <= 6000
        );
        for (member, content) in &members {
            assert!(member.mode <= 0o777);
            let above = std::iter::successors(member.path.parent(), paddock_proto::RelPath::parent);
            assert!(!above.into_iter().any(|dir| links.contains(&dir)), "{:?} is below a link", member.path);
            links.remove(&member.path);
            match &member.kind {
                MemberKind::File(size) => assert_eq!(content.len() as u64, *size),
                MemberKind::Link(target) => {
                    assert!(!target.is_empty() && !target.contains(&0));
                    links.insert(member.path.clone());
                }
                MemberKind::Dir | MemberKind::Hard(_) => assert!(content.is_empty()),
            }
        }
    });
}

/// Pieces of host names and patterns, those that were a way round somebody's rules among them.
const HOSTS: [&[u8]; 22] = [
    b"example.com",
    b"*.",
    b"xn--",
    b"-kva",
    b"0x7f",
    b"0177",
    b"2130706433",
    b"127.0.0.1",
    b"10.0.0.0/8",
    b"[2001:db8::1]:443",
    b"::ffff:",
    b"64:ff9b::",
    b":443",
    b"\0",
    b"://",
    b"%2e",
    "ü".as_bytes(),
    "о".as_bytes(),
    "。".as_bytes(),
    "１".as_bytes(),
    "\u{ad}".as_bytes(),
    "\u{200d}".as_bytes(),
];

fn host_seeds(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn fuzz_host_name() {
    let seeds = host_seeds(&["Example.com.", "bücher.example", "a_b.c-d.xn--bcher-kva", "127.1"]);
    fuzz(&target("host_name", seeds, &HOSTS), |input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let name = match text.parse::<HostName>() {
            Ok(name) => name.to_string(),
            Err(error) => return assert!(error.to_string().len() < 2000, "{error}"),
        };
        assert_eq!(name.parse::<HostName>().map(|name| name.to_string()), Ok(name.clone()), "twice");
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
        assert!(name.len() <= 253 && name.bytes().all(is_plain), "{name}");
        assert!(name.split('.').all(|label| (1..=63).contains(&label.len())), "{name}");
        let last = name.rsplit('.').next().unwrap_or_default();
        assert!(!last.bytes().all(|b| b.is_ascii_digit()), "{name} ends in a number");
        assert!(
            last.strip_prefix("0x").is_none_or(|hex| hex.bytes().any(|b| !b.is_ascii_hexdigit())),
            "{name}"
        );
    });
}

#[test]
fn fuzz_pattern() {
    let seeds =
        host_seeds(&["*.Example.com:443", "10.0.0.0/8:80", "[2001:db8::/32]:443", "*:1", "::ffff:0:0/96"]);
    fuzz(&target("pattern", seeds, &HOSTS), |input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let pattern = match text.parse::<Pattern>() {
            Ok(pattern) => pattern,
            Err(error) => return assert!(error.to_string().len() < 2000, "{error}"),
        };
        let printed = pattern.to_string();
        assert_eq!(printed.parse::<Pattern>().as_ref(), Ok(&pattern), "{printed} is another one");
        assert!(pattern.covers(&pattern) && Pattern::EVERYTHING.covers(&pattern), "{printed}");
        assert_eq!(pattern.covers(&Pattern::EVERYTHING), pattern.is_everything(), "{printed}");
        // What it says without its port is a host of its own, unless it has a wildcard or a prefix.
        if let (None, Ok(host)) = (pattern.port(), printed.parse::<Host>()) {
            assert!(pattern.matches(&host, 1), "{printed}");
        }
    });
}

#[test]
fn fuzz_ports() {
    let seeds = [
        "a=b; Path=/x; HttpOnly",
        "http://localhost:8000/x",
        "/login",
        "s/8000/x",
        "//x/..",
        "paddock-a=0; a=b",
    ]
    .map(|text| text.as_bytes().to_vec());
    let words: [&[u8]; 8] =
        [b"; Path=/", b"; Domain=", b"paddock-", b"__Host-", b"http://localhost:8000", b"/..", b"%2F", b"\\"];
    fuzz(&target("ports", seeds.to_vec(), &words), |input| {
        if let Ok(text) = std::str::from_utf8(input) {
            crate::ports::expect_confined(text);
        }
    });
}
