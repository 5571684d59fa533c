//! Archives into and out of a container, on the real engine.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use paddock::engine::{ContainerId, EngineError, PathKind};
use tokio::io::AsyncReadExt;

use crate::scene::Scene;

/// An archive of `.` and these files.
async fn tar(files: &[(&str, &[u8])]) -> Bytes {
    let mut builder = tokio_tar::Builder::new(Vec::new());
    let mut header = tokio_tar::Header::new_ustar();
    header.set_entry_type(tokio_tar::EntryType::Directory);
    header.set_mode(0o755);
    header.set_size(0);
    builder.append_data(&mut header, ".", &b""[..]).await.expect("an entry");
    for (name, content) in files {
        let mut header = tokio_tar::Header::new_ustar();
        header.set_mode(0o640);
        header.set_uid(1234);
        header.set_gid(1234);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, *content).await.expect("an entry");
    }
    builder.into_inner().await.expect("an archive").into()
}

async fn unpack(reader: impl tokio::io::AsyncRead + Unpin + Send) -> Vec<(String, Vec<u8>)> {
    let mut archive = tokio_tar::Archive::new(reader);
    let mut entries = archive.entries().expect("entries");
    let mut files = vec![];
    while let Some(entry) = entries.next().await {
        let mut entry = entry.expect("an entry");
        if entry.header().entry_type().is_file() {
            let name = entry.path().expect("a path").display().to_string();
            let mut content = vec![];
            entry.read_to_end(&mut content).await.expect("content");
            files.push((name, content));
        }
    }
    files.sort();
    files
}

async fn target(scene: &Scene) -> ContainerId {
    let id = scene.create(&scene.idle_spec()).await;
    scene.engine.archive_put(&id, "/", tar(&[]).await).await.expect("put nothing");
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_archive_that_is_put_can_be_got() {
    let scene = Scene::set().await;
    let id = target(&scene).await;
    let big: Vec<u8> = (0..700_000_u32).map(|i| (i % 253) as u8).collect();
    let files = tar(&[("a b", b"hello"), ("big", &big), ("empty", b"")]).await;
    scene.engine.archive_put(&id, "/tmp", files).await.expect("put");
    let got = scene.engine.archive_get(&id, "/tmp/.", 1 << 20).await.expect("get");
    assert_eq!(got.stat().kind(), PathKind::Directory);
    let files = unpack(got.into_async_read()).await;
    let names: Vec<&str> = files.iter().map(|(name, _)| name.trim_start_matches("./")).collect();
    assert_eq!(names, ["a b", "big", "empty"]);
    assert!(files[1].1 == big && files[0].1 == b"hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stream_is_uploaded_as_it_comes() {
    let scene = Scene::set().await;
    let id = target(&scene).await;
    let whole = tar(&[("streamed", &[9; 100_000])]).await;
    let pieces: Vec<Result<Bytes, std::io::Error>> =
        whole.chunks(1000).map(|p| Ok(Bytes::copy_from_slice(p))).collect();
    scene.engine.archive_put_stream(&id, "/tmp", stream::iter(pieces)).await.expect("put");
    let stat = scene.engine.archive_stat(&id, "/tmp/streamed").await.expect("stat");
    assert_eq!((stat.name.as_str(), stat.size, stat.kind()), ("streamed", 100_000, PathKind::File));
    assert_eq!(stat.permissions(), 0o640);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_failing_stream_is_reported_as_the_callers_error() {
    let scene = Scene::set().await;
    let id = target(&scene).await;
    let pieces = [Ok(Bytes::from_static(&[0; 512])), Err(std::io::Error::other("the disk is gone"))];
    let error = scene.engine.archive_put_stream(&id, "/tmp", stream::iter(pieces)).await.expect_err("cut");
    assert!(matches!(error, EngineError::Upload { .. }), "{error:?}");
    scene.engine.archive_stat(&id, "/tmp").await.expect("the client goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_download_is_capped() {
    let scene = Scene::set().await;
    let id = target(&scene).await;
    scene.engine.archive_put(&id, "/tmp", tar(&[("big", &[1; 500_000])]).await).await.expect("put");
    let mut got = scene.engine.archive_get(&id, "/tmp/big", 100_000).await.expect("get");
    let mut seen = 0;
    let error = loop {
        match got.chunk().await {
            Ok(Some(bytes)) => seen += bytes.len(),
            Ok(None) => panic!("it ended after {seen}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, EngineError::TooLarge { cap: 100_000, .. }) && seen <= 100_000, "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_missing_path_is_not_found() {
    let scene = Scene::set().await;
    let id = target(&scene).await;
    let engine = &scene.engine;
    for error in [
        engine.archive_put(&id, "/no/such", tar(&[]).await).await.expect_err("no directory"),
        engine.archive_get(&id, "/no/such", 1).await.map(drop).expect_err("no file"),
        engine.archive_stat(&id, "/no/such").await.map(drop).expect_err("no file"),
    ] {
        assert!(error.is_not_found(), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_path_cannot_leave_its_parameter() {
    let scene = Scene::set().await;
    let id = target(&scene).await;
    scene.engine.archive_put(&id, "/tmp", tar(&[("a&path=%2f b?#é", b"x")]).await).await.expect("put");
    let stat = scene.engine.archive_stat(&id, "/tmp/a&path=%2f b?#é").await.expect("stat");
    assert_eq!((stat.name.as_str(), stat.size), ("a&path=%2f b?#é", 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_stat_of_a_link_contains_its_target() {
    let scene = Scene::set().await;
    let id = scene.idle().await;
    let exec = scene.exec(&id, "ln -s /etc/passwd /tmp/link").await;
    let mut stream = scene.engine.exec_start(&exec).await.expect("start");
    assert_eq!(stream.chunk().await.expect("its end"), None);
    let stat = scene.engine.archive_stat(&id, "/tmp/link").await.expect("stat");
    assert_eq!((stat.kind(), stat.link_target.as_str()), (PathKind::Symlink, "/etc/passwd"));
}
