//! Archives built byte by byte, as no honest tool would build them.

use std::io;

use proptest::prelude::*;

use super::*;

mod build;

use build::{entry, header, link, padded, pax, record, seal, trailer};

const LIMITS: TarLimits = TarLimits { entries: 100, bytes: 10_000 };

/// The entries of an archive, one line each; or the error's text.
async fn read_with(bytes: &[u8], limits: TarLimits, below: &'static str) -> Result<Vec<String>, String> {
    read_by(TarReader::new(bytes, limits).below(below)).await
}

async fn read_by(mut reader: TarReader<&[u8]>) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let said = |error: TarError| error.to_string();
    while let Some(member) = reader.next().await.map_err(said)? {
        let name = member.path.to_text().into_owned();
        all.push(match member.kind {
            MemberKind::Dir => format!("{name}/"),
            MemberKind::Link(target) => format!("{name} -> {}", String::from_utf8_lossy(&target)),
            MemberKind::Hard(target) => format!("{name} = {}", target.to_text()),
            MemberKind::File(size) => {
                let mut content = Vec::new();
                while let Some(piece) = reader.piece().await.map_err(said)? {
                    content.extend_from_slice(&piece);
                }
                assert_eq!(content.len() as u64, size);
                format!("{name}: {}", String::from_utf8_lossy(&content))
            }
        });
    }
    if reader.skipped() > 0 {
        all.push(format!("{} skipped", reader.skipped()));
    }
    Ok(all)
}

async fn read(parts: &[Vec<u8>]) -> Result<Vec<String>, String> {
    read_with(&parts.concat(), LIMITS, "").await
}

async fn read_strictly(parts: &[Vec<u8>]) -> Result<Vec<String>, String> {
    read_by(TarReader::new(&parts.concat()[..], LIMITS).strictly()).await
}

#[track_caller]
fn refused(read: Result<Vec<String>, String>, why: &str) {
    match read {
        Err(said) => assert!(said.contains(why), "{said}"),
        Ok(entries) => panic!("not refused: {entries:?}"),
    }
}

#[tokio::test]
async fn an_honest_archive_is_read_completely() {
    let long = format!("{}/name", ["d"; 60].join("/").replace('d', "directory"));
    let archive = [
        entry(b"./", b'5', b""),
        entry(b"./a.txt", b'0', b"one"),
        entry(b"dir/", b'5', b""),
        entry(b"dir/b", b'0', &[b'x'; 513]),
        entry(b"empty", b'0', b""),
        entry(b"old/", 0, b""),
        entry(b"old/file", 0, b"v7"),
        link(b"link", b'2', b"/usr/bin/python3"),
        link(b"same", b'1', b"./a.txt"),
        pax("path", &long),
        entry(b"cut", b'0', b"long"),
        entry(b"././@LongLink", b'L', format!("{long}2\0").as_bytes()),
        entry(b"cut", b'0', b"longer"),
        pax("mtime", "1.5"),
        header(b"prefixed", b'0', 0, |block| block[345..350].copy_from_slice(b"above")),
        trailer(),
    ];
    let expected = [
        "a.txt: one".to_owned(),
        "dir/".to_owned(),
        format!("dir/b: {}", "x".repeat(513)),
        "empty: ".to_owned(),
        "old/".to_owned(),
        "old/file: v7".to_owned(),
        "link -> /usr/bin/python3".to_owned(),
        "same = a.txt".to_owned(),
        format!("{long}: long"),
        format!("{long}2: longer"),
        "above/prefixed: ".to_owned(),
    ];
    assert_eq!(read(&archive).await.unwrap(), expected);
}

#[tokio::test]
async fn unread_content_is_skipped_and_modes_and_times_are_kept() {
    let archive = [
        entry(b"a", b'0', &[7; 2000]),
        pax("mtime", "-1.25"),
        header(b"b", b'0', 0, |block| block[100..108].copy_from_slice(b"0106755\0")),
        header(b"c", b'0', 0, |block| {
            block[136..148].copy_from_slice(&[0xff; 12]);
            block[100..108].copy_from_slice(b"\0\0\0\0\0\0\0\0");
        }),
    ]
    .concat();
    let mut reader = TarReader::new(&archive[..], LIMITS);
    let mut seen = Vec::new();
    while let Some(member) = reader.next().await.unwrap() {
        seen.push((member.path.to_text().into_owned(), member.mode, member.mtime_ns));
    }
    let expected = [("a", 0o644, 10_000_000_000), ("b", 0o755, -1_250_000_000), ("c", 0, -1_000_000_000)];
    assert_eq!(seen, expected.map(|(name, mode, time)| (name.to_owned(), mode, time)));
}

/// TAR-02.
#[tokio::test]
async fn a_pax_size_overrides_the_headers() {
    // A reader that uses the header does not see `smuggled`; a reader that uses PAX, as Go does, sees it.
    let inner = entry(b"smuggled", b'0', b"evil");
    let archive = [pax("size", "0"), entry(b"outer", b'0', &inner), entry(b"after", b'0', b"x"), trailer()];
    assert_eq!(read(&archive).await.unwrap(), ["outer: ", "smuggled: evil", "after: x"]);
    let archive = [pax("size", "1536"), header(b"outer", b'0', 0, |_| {}), padded(&[b'y'; 1536]), trailer()];
    assert_eq!(read(&archive).await.unwrap(), [format!("outer: {}", "y".repeat(1536))]);
    refused(read(&[pax("size", "5"), link(b"l", b'2', b"t"), padded(b"12345")]).await, "never has");
}

/// TAR-04.
#[tokio::test]
async fn a_malformed_pax_record_is_an_error() {
    for text in [
        "99 path=a.tx",
        "12 path=a.tx",
        "13 path=a.txt",
        "12 path=a.t\n\n",
        "7 path\n",
        "5 =a\n",
        "+9 path=a\n",
        "-9 path=a\n",
        "9  path=a\n",
        " 9 path=a\n",
        "9 path=a",
        "x",
        "0 ",
        "4 =\n",
        "99999999999999999999999 path=a\n",
        "10 size=-1\n",
        "11 size=0x1\n",
        "10 size= 1\n",
        "29 size=99999999999999999999\n",
        "12 mtime=1x\n",
        "11 path=a\0b\n",
    ] {
        let archive = [entry(b"P", b'x', text.as_bytes()), entry(b"b.txt", b'0', b"x"), trailer()];
        refused(read(&archive).await, "PAX records are malformed");
    }
    refused(read(&[pax("GNU.sparse.major", "1"), entry(b"s", b'0', b"")]).await, "sparse");
    refused(read(&[entry(b"P", b'g', record("path", "x").as_bytes())]).await, "global");
    let comment = entry(b"P", b'g', record("comment", "a commit").as_bytes());
    assert_eq!(read(&[comment, entry(b"a", b'0', b"1")]).await.unwrap(), ["a: 1"]);
    refused(read(&[pax("path", "x"), trailer()]).await, "does not come");
    refused(read(&[header(b"P", b'x', 1 << 30, |_| {})]).await, "more about another entry than 64 KiB");
}

/// TAR-06.
#[tokio::test]
async fn a_name_that_leads_outside_is_an_error() {
    for (name, why) in [
        ("../x", "`..`"),
        ("/x", "absolute"),
        (".//x", "absolute"),
        ("data/../../x", "`..`"),
        ("a/..", "`..`"),
        ("..", "`..`"),
        ("", "empty"),
        ("a//b", "empty or `.`"),
        ("a/./b", "empty or `.`"),
        ("././a", "empty or `.`"),
        ("a/", "empty or `.`"),
        (".", "empty"),
    ] {
        refused(read(&[entry(name.as_bytes(), b'0', b"x"), trailer()]).await, why);
        if !matches!(name, "" | "a/" | ".") {
            refused(read(&[pax("path", name), entry(b"ok", b'0', b"x"), trailer()]).await, why);
            refused(read(&[entry(b"ok", b'0', b"x"), link(b"l", b'1', name.as_bytes())]).await, why);
        }
    }
    refused(read(&[entry(b"/", b'5', b"")]).await, "absolute");
    let deep = ["d"; 65].join("/");
    refused(read(&[pax("path", &deep), entry(b"x", b'0', b"")]).await, "deep");
    refused(read(&[pax("path", &"n".repeat(256)), entry(b"x", b'0', b"")]).await, "256 bytes");
}

#[tokio::test]
async fn only_entries_below_the_wanted_directory_are_taken() {
    let below = async |parts: &[Vec<u8>]| read_with(&parts.concat(), LIMITS, "data").await;
    let archive =
        [entry(b"data/", b'5', b""), entry(b"data/a", b'0', b"1"), link(b"data/b", b'1', b"data/a")];
    assert_eq!(below(&archive).await.unwrap(), ["a: 1", "b = a"]);
    for name in ["a", "database", "dat", "other/data/a"] {
        assert!(below(&[entry(name.as_bytes(), b'0', b"1")]).await.is_err(), "{name}");
    }
}

/// TAR-08.
#[tokio::test]
async fn nothing_goes_through_a_link() {
    let to_root = || link(b"s", b'2', b"/");
    refused(read(&[to_root(), entry(b"s", b'5', b"")]).await, "was a symbolic link");
    refused(read(&[to_root(), entry(b"s/etc/x", b'0', b"1")]).await, "below a symbolic link");
    refused(read(&[link(b"a/s", b'2', b".."), link(b"a/s/b", b'2', b"x")]).await, "below a symbolic link");
    // In place of a link anything but a directory may come.
    let archive = [to_root(), entry(b"s", b'0', b"file"), link(b"t", b'2', b"s"), link(b"t", b'2', b"u")];
    assert_eq!(read(&archive).await.unwrap(), ["s -> /", "s: file", "t -> s", "t -> u"]);
    refused(read(&[link(b"l", b'2', b"")]).await, "target is empty");
    let long = "t".repeat(4096);
    refused(read(&[pax("linkpath", &long), link(b"l", b'2', b"")]).await, "too long");
}

/// TAR-10.
#[tokio::test]
async fn devices_and_unknown_types_are_counted_and_skipped() {
    let mut archive: Vec<_> = b"346".iter().map(|kind| entry(b"n", *kind, b"")).collect();
    archive.extend(b"7ZsVDMX\x01".iter().map(|kind| entry(b"n", *kind, b"content")));
    archive.push(entry(b"ok", b'0', b"x"));
    assert_eq!(read(&archive).await.unwrap(), ["ok: x", "11 skipped"]);
    refused(read(&[entry(b"n", b'3', b"content")]).await, "never has");
    refused(read(&[entry(b"n", b'5', b"content")]).await, "never has");
    refused(read(&[entry(b"n", b'S', b"content")]).await, "sparse");
}

/// TAR-12.
#[tokio::test]
async fn a_header_with_a_wrong_checksum_is_an_error() {
    for bit in 0..512 * 8 {
        let mut archive = entry(b"a", b'0', b"x");
        archive[bit / 8] ^= 1 << (bit % 8);
        // A zero behind a checksum's digits counts as a blank too.
        let harmless = (148..156).contains(&(bit / 8));
        assert!(harmless || read(&[archive]).await.is_err(), "bit {bit}");
    }
    let mut signed = header("\u{e9}".as_bytes(), b'0', 0, |_| {});
    let sum: i32 = signed.iter().map(|b| i32::from(b.cast_signed())).sum();
    let own: i32 = signed[148..156].iter().map(|b| i32::from(*b)).sum();
    signed[148..156].copy_from_slice(format!("{:06o}\0 ", sum - own + 8 * 32).as_bytes());
    assert_eq!(read(&[signed]).await.unwrap(), ["\u{e9}: "]);
}

/// TAR-14.
#[tokio::test]
async fn an_archive_ends_with_zeros_or_just_ends() {
    let one = || entry(b"a", b'0', b"x");
    for end in
        [vec![], vec![0; 512], trailer(), vec![0; 10_240], [trailer(), b"GARBAGE".repeat(500)].concat()]
    {
        assert_eq!(read(&[one(), end]).await.unwrap(), ["a: x"]);
    }
    assert_eq!(read(&[]).await.unwrap(), [""; 0]);
    // Only the last padding may be missing.
    assert_eq!(read(&[one()[..513].to_vec()]).await.unwrap(), ["a: x"]);
    refused(read(&[vec![0; 512], one()]).await, "zeros stands");
    refused(read(&[one(), one()[..511].to_vec()]).await, "ends in the middle of entry 2");
    refused(read(&[one()[..512].to_vec()]).await, "ends in the middle of entry 1");
    refused(read(&[header(b"a", b'0', 600, |_| {}), vec![1; 599]]).await, "ends in the middle of entry 1");
    refused(read(&[header(b"P", b'x', 600, |_| {}), vec![1; 599]]).await, "ends in the middle of entry 1");
}

/// TAR-16.
#[tokio::test]
async fn entries_and_bytes_are_bounded() {
    let many: Vec<_> = (0..101).map(|n| entry(format!("{n}").as_bytes(), b'0', b"")).collect();
    assert_eq!(read(&many[..100]).await.unwrap().len(), 100);
    refused(read(&many).await, "more than 100 entries");
    let globals: Vec<_> = (0..101).map(|_| entry(b"P", b'g', b"")).collect();
    refused(read(&globals).await, "more than 100 entries");
    refused(read(&[header(b"a", b'0', 10_001, |_| {})]).await, "more than 10000 bytes");
    refused(read(&[entry(b"a", b'0', &[1; 5001]), entry(b"a", b'0', &[1; 5000])]).await, "more than 10000");
    for size in [
        &[0xff; 12],
        b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
        b"77777777777\0",
        b"8\0\0\0\0\0\0\0\0\0\0\0",
    ] {
        assert!(read(&[header(b"a", b'0', 0, |block| block[124..136].copy_from_slice(size))]).await.is_err());
    }
}

/// TAR-18: both are returned, in their order: the last one wins, and both count.
#[tokio::test]
async fn two_entries_of_one_name_are_both_returned() {
    let archive = [entry(b"a", b'0', b"one"), entry(b"a", b'0', b"two"), trailer()];
    assert_eq!(read(&archive).await.unwrap(), ["a: one", "a: two"]);
}

#[tokio::test]
async fn no_entry_removes_what_another_one_brought() {
    let file = |name: &str| entry(name.as_bytes(), b'0', b"1");
    let dir = |name: &str| entry(name.as_bytes(), b'5', b"");
    for (archive, why) in [
        ([file("a"), dir("a/")], "\"a/\", is a directory, and was none earlier"),
        ([file("a"), file("a/b")], "\"a/b\", lies below an entry of this archive that is no directory"),
        ([file("./a"), dir("a/b/c/")], "lies below an entry"),
        ([dir("a/"), file("a")], "\"a\", is no directory, and was one earlier"),
        ([file("a/b"), file("a")], "is no directory, and was one earlier"),
        ([dir("a/"), link(b"a", b'2', b"t")], "is no directory, and was one earlier"),
        ([file("a"), link(b"a/h", b'1', b"t")], "lies below an entry"),
    ] {
        refused(read_strictly(&archive).await, why);
        // A rescue reads on: a refusal would lose everything behind this entry.
        assert_eq!(read(&archive).await.map(|all| all.len()), Ok(2));
    }
    // A directory may be named at any time and repeatedly, and of two files with one name the last wins.
    let archive =
        [file("d/a"), dir("d/"), dir("d/"), file("d/a"), link(b"l", b'2', b"t"), file("l"), file("da")];
    assert_eq!(read_strictly(&archive).await.map(|all| all.len()), Ok(7));
    // An entry that is not unpacked removes nothing.
    let skipped = [file("a"), header(b"a/fifo", b'6', 0, |_| {})];
    assert_eq!(read_strictly(&skipped).await, Ok(vec!["a: 1".to_owned(), "1 skipped".to_owned()]));
}

#[tokio::test]
async fn an_entry_has_one_name() {
    let gnu = |kind, name: &[u8]| entry(b"././@LongLink", kind, name);
    for (pax, gnu, kind) in
        [(pax("path", "p"), gnu(b'L', b"g\0"), b'0'), (pax("linkpath", "p"), gnu(b'K', b"g\0"), b'2')]
    {
        let named = || link(b"header", kind, b"t");
        for archive in [[pax.clone(), gnu.clone(), named()], [gnu.clone(), pax.clone(), named()]] {
            refused(
                read_strictly(&archive).await,
                "\"g\", has a PAX header and a GNU header that both name it",
            );
            assert_eq!(read(&archive).await.map(|all| all.len()), Ok(1));
        }
    }
    // One header may name the entry and the other its target, or its time.
    let archive = [
        pax("mtime", "1"),
        gnu(b'L', b"g\0"),
        entry(b"h", b'0', b"1"),
        gnu(b'K', b"t\0"),
        pax("path", "p"),
        link(b"h", b'2', b""),
    ];
    assert_eq!(read_strictly(&archive).await.unwrap(), ["g: 1", "p -> t"]);
}

/// TAR-20.
#[tokio::test]
async fn a_name_ends_at_its_first_nul_and_is_checked_as_a_whole() {
    assert_eq!(read(&[entry(b"ok\0../../evil", b'0', b"x")]).await.unwrap(), ["ok: x"]);
    assert_eq!(read(&[entry(&[b'n'; 100], b'0', b"x")]).await.unwrap(), [format!("{}: x", "n".repeat(100))]);
    let above = header(b"x", b'0', 0, |block| block[345..350].copy_from_slice(b"../.."));
    refused(read(&[above]).await, "`..`");
}

/// TAR-22.
#[tokio::test]
async fn a_source_that_breaks_is_an_error() {
    let archive = [entry(b"a", b'0', b"x"), trailer()].concat();
    for cut in [10, 512 + 10, 1024 + 10] {
        let broken = tokio_util::io::StreamReader::new(futures_util::stream::iter([
            Ok(Bytes::copy_from_slice(&archive[..cut])),
            Err(io::Error::from(io::ErrorKind::ConnectionReset)),
        ]));
        let mut reader = TarReader::new(broken, LIMITS);
        let mut last = Ok(());
        while last.is_ok() {
            last = match reader.next().await {
                Ok(None) => panic!("it ended well at {cut}"),
                Ok(Some(_)) => reader.piece().await.map(drop),
                Err(error) => Err(error),
            };
        }
        assert!(matches!(last, Err(TarError::Read(_))), "{last:?}");
    }
}

proptest! {
    /// Whatever the bytes are: no panic, nothing beyond the limits, and only valid names.
    #[test]
    fn damage_is_never_worse_than_an_error(
        damage in proptest::collection::vec((0..6 * 512usize, any::<u8>()), 0..12),
        cut in 0..6 * 512usize,
        sealed in any::<bool>(),
    ) {
        let mut archive = [
            pax("path", "a/b"),
            entry(b"x", b'0', &[1; 600]),
            link(b"l", b'2', b"a"),
        ].concat();
        for (at, byte) in damage {
            let at = at % archive.len();
            archive[at] = byte;
        }
        if sealed {
            for at in [0, 1024, 2560] {
                seal(&mut archive[at..at + 512]);
            }
        }
        archive.truncate(archive.len().min(cut.max(512)));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _ = runtime.block_on(read(&[archive]));
    }
}
