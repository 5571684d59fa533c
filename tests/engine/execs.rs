//! Execs and their hijacked connections, on the real engine.

use paddock::engine::{ExecSpec, Framing, Hijacked, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::scene::{Scene, eventually};

/// All remaining output, stdout and stderr separately.
async fn output(stream: &mut Hijacked) -> (String, String) {
    let (mut out, mut err) = (vec![], vec![]);
    while let Some(chunk) = stream.chunk().await.expect("a whole stream") {
        match chunk.stdio {
            Stdio::Stdout => out.extend(chunk.bytes),
            Stdio::Stderr => err.extend(chunk.bytes),
            Stdio::Engine => panic!("the engine failed: {chunk:?}"),
        }
    }
    (String::from_utf8_lossy(&out).into_owned(), String::from_utf8_lossy(&err).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn stdout_and_stderr_are_separate_and_the_status_is_reported() {
    let scene = Scene::set().await;
    let id = scene.idle().await;
    let exec = scene.exec(&id, "echo out; echo err >&2; exit 7").await;
    let mut stream = scene.engine.exec_start(&exec).await.expect("start");
    assert_eq!(stream.framing(), Framing::Multiplexed);
    assert_eq!(output(&mut stream).await, ("out\n".to_owned(), "err\n".to_owned()));
    let status = eventually("the exec's end", async || {
        let found = scene.engine.exec_inspect(&exec.id).await.expect("inspect");
        (!found.running).then_some(found)
    });
    let status = status.await;
    assert_eq!((status.exit_code, status.container), (Some(7), id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn input_is_echoed_and_closing_stdin_ends_it() {
    let scene = Scene::set().await;
    let id = scene.idle().await;
    let exec = scene.exec(&id, "cat; echo done >&2").await;
    let (mut reader, mut writer) = scene.engine.exec_start(&exec).await.expect("start").into_split();
    writer.write_all(b"first\n").await.expect("write");
    let mut first = [0; 6];
    reader.read_exact(&mut first).await.expect("an echo before stdin is closed");
    assert_eq!(&first, b"first\n");

    let sent: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 251) as u8).collect();
    let expected = sent.clone();
    let sending = tokio::spawn(async move {
        writer.write_all(&sent).await.expect("write");
        writer.shutdown().await.expect("close stdin");
        writer
    });
    let mut echoed = vec![];
    reader.read_to_end(&mut echoed).await.expect("read");
    assert!(echoed == expected, "{} bytes came back of {}", echoed.len(), expected.len());
    assert_eq!(reader.stderr_tail(), "done\n");
    drop(sending.await.expect("no panic"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_flood_on_stderr_loses_only_its_tail() {
    let scene = Scene::set().await;
    let id = scene.idle().await;
    let exec = scene.exec(&id, "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo end >&2; echo out").await;
    let mut stream = scene.engine.exec_start(&exec).await.expect("start");
    let mut out = String::new();
    stream.read_to_string(&mut out).await.expect("read");
    assert_eq!(out, "out\n");
    let tail = stream.stderr_tail();
    assert_eq!((tail.len(), tail.ends_with("xxend\n")), (paddock::engine::STDERR_TAIL, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_terminal_is_raw() {
    let scene = Scene::set().await;
    let id = scene.idle().await;
    let cmd = ["/bin/sh", "-c", "echo out; echo err >&2"].map(str::to_owned).to_vec();
    let spec = ExecSpec { cmd, tty: true, ..ExecSpec::default() };
    let exec = scene.engine.exec_create(&id, &spec).await.expect("create");
    let mut stream = scene.engine.exec_start(&exec).await.expect("start");
    assert_eq!(stream.framing(), Framing::Raw);
    assert_eq!(output(&mut stream).await, ("out\r\nerr\r\n".to_owned(), String::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_exec_has_its_own_user_environment_and_directory() {
    let scene = Scene::set().await;
    let id = scene.idle().await;
    let spec = ExecSpec {
        cmd: ["/bin/sh", "-c", "echo $(id -u):$(id -g) $WORD $PWD"].map(str::to_owned).to_vec(),
        env: vec!["WORD=a b".to_owned()],
        user: Some("4321:8765".to_owned()),
        working_dir: Some("/tmp".to_owned()),
        ..ExecSpec::default()
    };
    let exec = scene.engine.exec_create(&id, &spec).await.expect("create");
    let mut stream = scene.engine.exec_start(&exec).await.expect("start");
    assert_eq!(output(&mut stream).await.0, "4321:8765 a b /tmp\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_impossible_exec_is_refused() {
    let scene = Scene::set().await;
    let engine = &scene.engine;
    let created = scene.create(&scene.idle_spec()).await;
    let spec = ExecSpec { cmd: vec!["/bin/sh".to_owned()], ..ExecSpec::default() };
    assert!(engine.exec_create(&created, &spec).await.expect_err("not running").is_conflict());

    engine.container_start(&created).await.expect("start");
    let exec = scene.exec(&created, "exit 0").await;
    let mut stream = engine.exec_start(&exec).await.expect("start");
    output(&mut stream).await;
    // Engine 20.10 first hands over the connection and then reports on stdout that the exec has already run.
    match engine.exec_start(&exec).await {
        Ok(mut twice) => assert!(output(&mut twice).await.0.contains("has already run")),
        Err(error) => assert!(error.is_conflict(), "{error}"),
    }

    let exec = scene.exec(&created, "exit 0").await;
    engine.container_remove(&created).await.expect("remove");
    assert!(engine.exec_start(&exec).await.expect_err("its container is gone").is_not_found());
    assert!(engine.exec_inspect(&exec.id).await.expect_err("its container is gone").is_not_found());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_missing_program_is_reported_in_the_status() {
    let scene = Scene::set().await;
    let id = scene.idle().await;
    let spec = ExecSpec { cmd: vec!["/no/such/program".to_owned()], ..ExecSpec::default() };
    let exec = scene.engine.exec_create(&id, &spec).await.expect("create");
    let mut stream = scene.engine.exec_start(&exec).await.expect("start");
    let (out, _) = output(&mut stream).await;
    assert!(out.contains("no such file"), "{out}");
    let status = scene.engine.exec_inspect(&exec.id).await.expect("inspect");
    assert!(matches!(status.exit_code, Some(126 | 127)), "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_killed_container_ends_the_stream() {
    let scene = Scene::set().await;
    let id = scene.idle().await;
    let exec = scene.exec(&id, "echo up; cat").await;
    let mut stream = scene.engine.exec_start(&exec).await.expect("start");
    let mut up = [0; 3];
    stream.read_exact(&mut up).await.expect("it is up");
    scene.engine.container_kill(&id, paddock::engine::Signal::Kill).await.expect("kill");
    assert_eq!(output(&mut stream).await, (String::new(), String::new()));
}
