//! Hijacked connections, archives and event streams that go wrong.

use bytes::Bytes;
use futures_util::stream;
use paddock::engine::{
    ContainerId, CreatedExec, EngineError, EventFilter, EventStream, EventStreamItem, ExecSpec, Framing,
    Occurrence, Stdio,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fake::{Fake, Step, TRANSPORTS, answer, bytes, json, version};

const RAW: &str = "application/vnd.docker.raw-stream";
const MULTIPLEXED: &str = "application/vnd.docker.multiplexed-stream";

/// A name, the steps of the fake, and whether the error is the right one.
type Case = (&'static str, Vec<Step>, fn(&EngineError) -> bool);

/// A fake that performs these steps for every archive call, and nothing special for any other.
async fn archives(transport: &str, steps: Vec<Step>) -> Fake {
    Fake::on(transport, move |request, _| if request.contains("/archive") { steps.clone() } else { vec![] })
        .await
}

/// Bytes behind a good frame, and whether the stream ends in the right way.
type FrameCase = (&'static [u8], fn(&Result<(), EngineError>) -> bool);

fn id() -> ContainerId {
    "a".repeat(64).parse().expect("an id")
}

fn upgraded(content_type: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 101 UPGRADED\r\nContent-Type: {content_type}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    )
    .into_bytes()
}

/// A fake of API `newest` that answers an exec's start with `steps`, and an exec on it.
async fn exec(
    transport: &str,
    newest: &'static str,
    steps: Vec<Step>,
) -> (Fake, paddock::engine::Engine, CreatedExec) {
    let fake = Fake::on(transport, move |request, _| {
        if request.contains("/version") {
            vec![json(&version("1.12", newest))]
        } else if request.ends_with("/exec") {
            vec![answer("201 Created", "application/json", &format!(r#"{{"Id":"{}"}}"#, "b".repeat(64)))]
        } else if request.ends_with("/start") {
            steps.clone()
        } else {
            vec![]
        }
    })
    .await;
    let engine = fake.engine().await.expect("a good start");
    let exec = engine.exec_create(&id(), &ExecSpec::default()).await.expect("create");
    (fake, engine, exec)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_connection_that_is_not_upgraded_is_an_error() {
    let cases: [Case; 7] = [
        ("200", vec![answer("200 OK", RAW, "")], |e| matches!(e, EngineError::Protocol { .. })),
        ("no type", vec![bytes("HTTP/1.1 101 S\r\nUpgrade: tcp\r\n\r\n")], |e| {
            matches!(e, EngineError::Protocol { .. })
        }),
        ("another type", vec![Step::Send(upgraded("text/html"))], |e| {
            matches!(e, EngineError::Protocol { .. })
        }),
        (
            "refused",
            vec![answer("409 Conflict", "application/json", r#"{"message":"paused"}"#)],
            EngineError::is_conflict,
        ),
        ("silence", vec![Step::Hang], |e| matches!(e, EngineError::Deadline { .. })),
        ("cut", vec![bytes("HTTP/1.1 101 S\r\nUpgr"), Step::Close], |e| {
            matches!(e, EngineError::Lost { .. })
        }),
        ("garbage", vec![bytes("\0\0\0\0\r\n\r\n"), Step::Hang], |e| {
            matches!(e, EngineError::Protocol { .. })
        }),
    ];
    for transport in TRANSPORTS {
        for (name, steps, expected) in cases.clone() {
            let (mut fake, engine, exec) = exec(transport, "1.41", steps).await;
            let error = engine.exec_start(&exec).await.expect_err(name);
            assert!(expected(&error), "{transport}, {name}: {error:?}");
            let (used, _) = fake.request("/start").await;
            fake.gone(used, name).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn bytes_that_come_with_the_head_are_not_lost() {
    for transport in TRANSPORTS {
        let together = [upgraded(RAW), b"\x01\0\0\0\0\0\0\x05hello\x02\0\0\0\0\0\0\x02er".to_vec()].concat();
        let (_fake, engine, exec) = exec(transport, "1.41", vec![Step::Send(together), Step::Close]).await;
        let mut stream = engine.exec_start(&exec).await.expect("start");
        let mut out = String::new();
        stream.read_to_string(&mut out).await.expect("read");
        assert_eq!((out.as_str(), stream.stderr_tail().as_str()), ("hello", "er"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn since_1_42_the_content_type_determines_the_framing() {
    for (content_type, framing, first) in
        [(RAW, Framing::Raw, &b"\x01\0\0\0\0\0\0\x02ok"[..]), (MULTIPLEXED, Framing::Multiplexed, b"ok")]
    {
        let together = [upgraded(content_type), b"\x01\0\0\0\0\0\0\x02ok".to_vec()].concat();
        let (_fake, engine, exec) = exec("unix", "1.42", vec![Step::Send(together), Step::Close]).await;
        let mut stream = engine.exec_start(&exec).await.expect("start");
        assert_eq!(stream.framing(), framing);
        let mut out = vec![];
        stream.read_to_end(&mut out).await.expect("read");
        assert_eq!(out, first);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn wrong_frames_are_told_apart_from_a_good_end() {
    let cases: [FrameCase; 5] = [
        (b"", |end| end.is_ok()),
        (b"\x01\0\0\0\0\0", |end| matches!(end, Err(EngineError::Lost { .. }))),
        (b"\x01\0\0\0\0\0\0\x05hel", |end| matches!(end, Err(EngineError::Lost { .. }))),
        (b"\x07\0\0\0\0\0\0\x01x", |end| matches!(end, Err(EngineError::Protocol { .. }))),
        (b"\x01\0\0\0\xff\xff\xff\xff", |end| matches!(end, Err(EngineError::Protocol { .. }))),
    ];
    for (tail, expected) in cases {
        let good = b"\x01\0\0\0\0\0\0\x02ok";
        let steps = vec![Step::Send(upgraded(RAW)), Step::Send([good, tail].concat()), Step::Close];
        let (_fake, engine, exec) = exec("unix", "1.41", steps).await;
        let mut stream = engine.exec_start(&exec).await.expect("start");
        let mut seen = vec![];
        let end = loop {
            match stream.chunk().await {
                Ok(Some(chunk)) => {
                    assert_eq!(chunk.stdio, Stdio::Stdout);
                    seen.extend(chunk.bytes);
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        assert!(seen.starts_with(b"ok") && expected(&end), "{tail:?}: {seen:?}, {end:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn closing_stdin_keeps_the_output_open_and_dropping_closes_everything() {
    for transport in TRANSPORTS {
        let (mut fake, engine, exec) =
            exec(transport, "1.42", vec![Step::Send(upgraded(RAW)), Step::Echo]).await;
        let mut stream = engine.exec_start(&exec).await.expect("start");
        stream.write_all(b"to and fro").await.expect("write");
        stream.shutdown().await.expect("close stdin");
        let mut back = String::new();
        stream.read_to_string(&mut back).await.expect("read");
        assert_eq!(back, "to and fro");

        let (used, _) = fake.request("/start").await;
        fake.gone(used, "the end").await;
        let dropped = engine.exec_start(&exec).await.expect("start");
        let (used, _) = fake.request("/start").await;
        drop(dropped);
        fake.gone(used, "the end").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_failure_of_an_archive_has_its_error() {
    let stat =
        "X-Docker-Container-Path-Stat: eyJuYW1lIjoieCIsInNpemUiOjEsIm1vZGUiOjQyMCwibXRpbWUiOiIifQ==\r\n";
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-tar\r\n{stat}Transfer-Encoding: chunked\r\n\r\n"
    );
    let piece = "5\r\nabcde\r\n";
    let cases: [Case; 6] = [
        ("no stat", vec![answer("200 OK", "application/x-tar", "")], |e| {
            matches!(e, EngineError::Protocol { .. })
        }),
        ("another type", vec![json("{}")], |e| matches!(e, EngineError::Protocol { .. })),
        ("cut", vec![bytes(format!("{head}{piece}")), Step::Close], |e| {
            matches!(e, EngineError::Lost { .. })
        }),
        ("a bad chunk", vec![bytes(format!("{head}{piece}zz\r\n")), Step::Hang], |e| {
            matches!(e, EngineError::Protocol { .. })
        }),
        ("a stop", vec![bytes(format!("{head}{piece}")), Step::Hang], |e| {
            matches!(e, EngineError::Deadline { .. })
        }),
        (
            "for ever",
            vec![bytes(&head), Step::Flood([b"1000\r\n", &[b'x'; 4096][..], b"\r\n"].concat())],
            |e| matches!(e, EngineError::TooLarge { cap: 50_000, .. }),
        ),
    ];
    for transport in TRANSPORTS {
        for (name, steps, expected) in cases.clone() {
            let mut fake = archives(transport, steps).await;
            let engine = fake.engine().await.expect("a good start");
            let read = async {
                let mut archive = engine.archive_get(&id(), "/x", 50_000).await?;
                while archive.chunk().await?.is_some() {}
                Ok(())
            };
            let read: Result<(), EngineError> = read.await;
            let error = read.expect_err(name);
            assert!(expected(&error), "{transport}, {name}: {error:?}");
            let (used, request) = fake.request("/archive").await;
            assert!(request.ends_with("?path=%2Fx"), "{request}");
            // For these the whole answer had arrived; such a connection is clean.
            if !matches!(name, "no stat" | "another type") {
                fake.gone(used, name).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_upload_that_nobody_reads_or_wants_ends_with_an_error() {
    let endless = || stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[0; 65_536])));
    let cases: [Case; 3] = [
        ("never answered", vec![Step::Hang], |e| matches!(e, EngineError::Deadline { .. })),
        (
            "refused early",
            vec![answer("404 Not Found", "text/plain", "no such path"), Step::Hang],
            EngineError::is_not_found,
        ),
        ("cut", vec![Step::Close], |e| matches!(e, EngineError::Lost { .. })),
    ];
    for transport in TRANSPORTS {
        for (name, steps, expected) in cases.clone() {
            let mut fake = archives(transport, steps).await;
            let engine = fake.engine().await.expect("a good start");
            let error = engine.archive_put_stream(&id(), "/x", endless()).await.expect_err(name);
            assert!(expected(&error), "{transport}, {name}: {error:?}");
            let (used, _) = fake.request("/archive").await;
            fake.gone(used, name).await;
        }
    }
}

/// An event line: container `a…a` started, at `nanos`.
fn event(nanos: u64, action: &str) -> String {
    let id = "a".repeat(64);
    format!(
        r#"{{"Type":"container","Action":"{action}","Actor":{{"ID":"{id}","Attributes":{{}}}},"timeNano":{nanos}}}"#
    ) + "\n"
}

fn event_stream(lines: &[String]) -> Step {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n".to_owned();
    bytes(head + &lines.concat())
}

async fn told(events: &mut EventStream) -> String {
    match tokio::time::timeout(std::time::Duration::from_secs(10), events.next()).await.expect("nothing came")
    {
        EventStreamItem::Connected => "connected".to_owned(),
        EventStreamItem::Reconnected => "reconnected".to_owned(),
        EventStreamItem::Disconnected(error) => {
            format!("{error:?}").split(' ').next().unwrap_or_default().to_owned()
        }
        EventStreamItem::Event(event) => {
            let Occurrence::Container { action, .. } = event.what else { panic!("{event:?}") };
            format!("{action:?} {}", event.time)
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_cut_event_stream_continues_where_it_ended() {
    for transport in TRANSPORTS {
        let mut fake = Fake::on(transport, |request, nth| match nth {
            _ if !request.contains("/events") => vec![],
            0 => vec![event_stream(&[event(7, "start"), event(9, "start")]), Step::Close],
            1 => vec![Step::Close],
            2 => vec![answer("503 Service Unavailable", "text/plain", "starting")],
            // The engine repeats the events of the time asked for: one is known, one of the same moment is
            // not.
            3 => vec![event_stream(&[event(9, "start"), event(9, "oom"), event(12, "start")]), Step::Hang],
            _ => vec![Step::Hang],
        })
        .await;
        let engine = fake.engine().await.expect("a good start");
        let mut events = engine.events(EventFilter::default());
        for expected in [
            "connected",
            "Start 0.000000007",
            "Start 0.000000009",
            "Lost",
            "reconnected",
            "Oom 0.000000009",
            "Start 0.000000012",
        ] {
            assert_eq!(told(&mut events).await, expected, "{transport}");
        }
        let (_, first) = fake.request("/events").await;
        assert!(first.contains("since=1767225600%2E000000005"), "it begins at the engine's clock: {first}");
        for _ in 0..3 {
            let (_, again) = fake.request("/events").await;
            assert!(again.contains("since=0%2E000000009"), "{again}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_event_that_cannot_be_parsed_is_not_requested_again() {
    for poison in ["no json\n".to_owned(), "{}\n".to_owned(), "x".repeat(2_001)] {
        let shown: String = poison.chars().take(10).collect();
        let mut fake = Fake::on("unix", move |request, nth| match nth {
            _ if !request.contains("/events") => vec![],
            0 => vec![event_stream(&[event(7, "start"), poison.clone()]), Step::Hang],
            _ => vec![event_stream(&[event(8, "start")]), Step::Hang],
        })
        .await;
        let engine = fake.engine().await.expect("a good start");
        let mut events = engine.events(EventFilter::default());
        assert_eq!(told(&mut events).await, "connected");
        assert_eq!(told(&mut events).await, "Start 0.000000007");
        assert!(matches!(told(&mut events).await.as_str(), "Protocol" | "TooLarge"), "{shown}");
        assert_eq!(told(&mut events).await, "reconnected");
        assert_eq!(told(&mut events).await, "Start 0.000000008");
        let (used, _) = fake.request("/events").await;
        fake.gone(used, "the end").await;
        let (used, again) = fake.request("/events").await;
        assert!(again.contains("since=1767225600"), "it begins at the engine's clock again: {again}");
        drop(events);
        fake.gone(used, "the end").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lost_engine_is_reported_once_and_retried_until_it_is_back() {
    let fake = Fake::on("unix", |request, nth| {
        if !request.contains("/events") {
            vec![]
        } else if nth < 6 {
            vec![answer("500 Internal Server Error", "text/plain", "no")]
        } else {
            vec![event_stream(&[]), Step::Hang]
        }
    })
    .await;
    let engine = fake.engine().await.expect("a good start");
    let mut events = engine.events(EventFilter::default());
    assert_eq!(told(&mut events).await, "Api");
    assert_eq!(told(&mut events).await, "connected");
}
