//! What passes from a container into a snapshot's volume, and what does not.

use std::sync::{Arc, Mutex};

use super::*;

/// An archive with these entries: kind, path, mode, content.
async fn archive(entries: &[(EntryType, &str, u32, &[u8])]) -> Vec<u8> {
    let mut out = Builder::new(Vec::new());
    for (kind, path, mode, content) in entries {
        let mut header = entry_of_root(*kind, *mode, content.len() as u64);
        header.set_uid(20_000);
        out.append_data(&mut header, path, *content).await.unwrap();
    }
    out.into_inner().await.unwrap()
}

/// A writer that keeps everything.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl AsyncWrite for Kept {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

async fn digest(entries: &[(EntryType, &str, u32, &[u8])]) -> Result<Contents, VolumeError> {
    take(&*archive(entries).await, tokio::io::sink()).await
}

const DIR: (EntryType, &str, u32, &[u8]) = (EntryType::Directory, "warm", 0o700, b"");

#[tokio::test]
async fn files_belong_to_root_and_nobody_may_write_them() {
    let given = archive(&[
        DIR,
        (EntryType::Regular, "warm/pages", 0o600, b"abc"),
        (EntryType::Directory, "warm/d", 0o777, b""),
        (EntryType::Regular, "warm/d/run", 0o4750, b"x"),
    ]);
    let kept = Kept::default();
    let contents = take(&*given.await, kept.clone()).await.unwrap();
    assert_eq!(contents.bytes, 4);
    let written = kept.0.lock().unwrap().clone();
    let mut archive = Archive::new(&*written);
    let (mut entries, mut seen) = (archive.entries().unwrap(), Vec::new());
    while let Some(entry) = entries.next().await {
        let entry = entry.unwrap();
        assert_eq!((entry.header().uid().unwrap(), entry.header().gid().unwrap()), (0, 0));
        seen.push(format!("{} {:o}", entry.path().unwrap().display(), entry.header().mode().unwrap()));
    }
    assert_eq!(
        seen,
        ["./ 755", "warm/ 555", "warm/pages 444", "warm/d/ 555", "warm/d/run 555"]
            .map(|line| line.to_owned())
            .map(|line| if seen.iter().any(|s| s.contains("./")) { line } else { line.replace("/ ", " ") })
    );
    // Read back out of the volume, it is the same.
    assert_eq!(take(&written[512..], tokio::io::sink()).await.unwrap(), contents);
}

#[tokio::test]
async fn every_byte_path_and_mode_counts() {
    let one = |path: &'static str, mode: u32, content: &'static [u8]| async move {
        digest(&[DIR, (EntryType::Regular, path, mode, content)]).await.unwrap().digest
    };
    let usual = one("warm/a", 0o644, b"abc").await;
    assert_eq!(usual, one("warm/a", 0o600, b"abc").await, "only what a snapshot has of a mode");
    for other in [
        one("warm/b", 0o644, b"abc").await,
        one("warm/a", 0o755, b"abc").await,
        one("warm/a", 0o644, b"abd").await,
    ] {
        assert_ne!(usual, other);
    }
}

#[tokio::test]
async fn nothing_but_whole_files_and_directories_passes() {
    let file = |path: &'static str| (EntryType::Regular, path, 0o644, &b"abc"[..]);
    for (entries, said) in [
        (vec![DIR, (EntryType::Symlink, "warm/l", 0o777, &b""[..])], "neither a file nor a directory"),
        (vec![DIR, (EntryType::Fifo, "warm/p", 0o600, b"")], "neither a file nor a directory"),
        (vec![DIR, (EntryType::Char, "warm/c", 0o600, b"")], "neither a file nor a directory"),
        (vec![DIR, file("etc/passwd")], "the path \"etc/passwd\""),
        (vec![DIR, file("warm/a\u{1b}[2J")], "the path"),
        (vec![DIR, file("warm/a"), file("warm/a")], "\"/a\" twice"),
        (vec![DIR], "no content"),
        (vec![], "no content"),
    ] {
        let error = digest(&entries).await.unwrap_err();
        assert!(matches!(error, VolumeError::Unfit(_)) && error.to_string().contains(said), "{error}");
    }
    // An archive that breaks off.
    let whole = archive(&[DIR, file("warm/a")]).await;
    assert!(take(&whole[..512 + 512 + 1], tokio::io::sink()).await.is_err());
    for path in ["warm/../etc", "/warm/a", "..", "warm/./../a"] {
        assert!(path_of(Path::new(path)).is_err(), "{path}");
    }
    assert_eq!(path_of(Path::new("warm/a/b")).unwrap(), "/a/b");
}

#[tokio::test]
async fn the_number_of_files_is_bounded() {
    let names: Vec<String> = (0..=SNAPSHOT_FILES).map(|n| format!("warm/{n}")).collect();
    let entries: Vec<_> =
        names.iter().map(|name| (EntryType::Regular, name.as_str(), 0o644, &b"x"[..])).collect();
    assert!(matches!(digest(&entries).await, Err(VolumeError::TooLarge)));
    // A size that is only claimed is refused before anything is read.
    let mut header = entry_of_root(EntryType::Regular, 0o644, SNAPSHOT_BYTES + 1);
    header.set_path("warm/a").unwrap();
    header.set_cksum();
    let claimed = take(&header.as_bytes()[..], tokio::io::sink()).await;
    assert!(matches!(claimed, Err(VolumeError::TooLarge)), "{claimed:?}");
}
