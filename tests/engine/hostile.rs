//! Answers that no engine should give, one row each, over both transports.

use paddock::engine::{ContainerId, Engine, EngineError, EngineLimits};

use crate::fake::{Fake, Step, TRANSPORTS, answer, bytes, json, version};

const JSON_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";

fn id() -> ContainerId {
    "a".repeat(64).parse().expect("an id")
}

/// The expected outcome of a row.
enum Want {
    Lost,
    Deadline,
    TooLarge,
    Protocol,
    /// This status, and these words in the message.
    Api(u16, &'static str),
}

impl Want {
    fn met_by(&self, error: &EngineError) -> bool {
        match self {
            Want::Lost => matches!(error, EngineError::Lost { .. }),
            Want::Deadline => matches!(error, EngineError::Deadline { .. }),
            Want::TooLarge => matches!(error, EngineError::TooLarge { cap: 100_000, .. }),
            Want::Protocol => matches!(error, EngineError::Protocol { .. }),
            Want::Api(wanted, words) => {
                matches!(error, EngineError::Api { status, message, .. }
                    if status.as_u16() == *wanted && message.contains(words) && message.len() < 4096)
            }
        }
    }
}

/// Every wrong answer to a call; `true` where the connection is clean afterwards and may be reused.
fn rows() -> Vec<(&'static str, Vec<Step>, Want, bool)> {
    let chunked = format!("{JSON_HEAD}Transfer-Encoding: chunked\r\n\r\n");
    let hundred = format!("{JSON_HEAD}Content-Length: 100\r\n\r\n{{");
    let error = "HTTP/1.1 500 Internal Server Error\r\n";
    vec![
        ("silence", vec![Step::Hang], Want::Deadline, false),
        ("slow head", vec![bytes("HTTP/1.1 200 OK\r\nConte"), Step::Hang], Want::Deadline, false),
        ("slow body", vec![bytes(&hundred), Step::Hang], Want::Deadline, false),
        ("1xx for ever", vec![Step::Flood(b"HTTP/1.1 102 P\r\n\r\n".to_vec())], Want::Deadline, false),
        ("cut before the head", vec![Step::Close], Want::Lost, false),
        ("cut in mid-head", vec![bytes("HTTP/1.1 200 OK\r\nConte"), Step::Close], Want::Lost, false),
        ("a body shorter than its length", vec![bytes(&hundred), Step::Close], Want::Lost, false),
        ("cut between chunks", vec![bytes(format!("{chunked}1\r\n{{\r\n")), Step::Close], Want::Lost, false),
        (
            "a bad chunk",
            vec![bytes(format!("{chunked}1\r\n{{\r\nxyz\r\n")), Step::Hang],
            Want::Protocol,
            false,
        ),
        ("garbage", vec![bytes(b"\x16\x03\x01\x00\xff\r\n\r\n"), Step::Hang], Want::Protocol, false),
        (
            "a head for ever",
            vec![Step::Flood(b"HTTP/1.1 200 OK\r\nX: aaaaaaaaaaaaaaaa\r\n".to_vec())],
            Want::Protocol,
            false,
        ),
        (
            "a header for ever",
            vec![bytes("HTTP/1.1 200 OK\r\nX: "), Step::Flood(vec![b'a'; 4096])],
            Want::Protocol,
            false,
        ),
        (
            "a length over the cap",
            vec![bytes(format!("{JSON_HEAD}Content-Length: 100001\r\n\r\n")), Step::Hang],
            Want::TooLarge,
            false,
        ),
        (
            "chunks for ever",
            vec![bytes(&chunked), Step::Flood([b"1000\r\n", &[b' '; 4096][..], b"\r\n"].concat())],
            Want::TooLarge,
            false,
        ),
        (
            "two lengths",
            vec![bytes(format!("{JSON_HEAD}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}")), Step::Hang],
            Want::Protocol,
            false,
        ),
        (
            "an upgrade nobody asked for",
            vec![bytes("HTTP/1.1 101 S\r\nUpgrade: tcp\r\n\r\n"), Step::Hang],
            Want::Protocol,
            false,
        ),
        ("another type", vec![answer("200 OK", "text/html", "<p>Log in</p>")], Want::Protocol, true),
        ("no content", vec![bytes("HTTP/1.1 204 No Content\r\n\r\n")], Want::Protocol, true),
        ("no JSON", vec![json("{")], Want::Protocol, true),
        ("other JSON", vec![json(r#"{"Id":7}"#)], Want::Protocol, true),
        ("a bad id", vec![json(r#"{"Id":"../../info"}"#)], Want::Protocol, true),
        ("JSON as deep as the body", vec![json(&"[".repeat(90_000))], Want::Protocol, true),
        (
            "a refusal in JSON",
            vec![answer("409 Conflict", "application/json", r#"{"message":"it is busy"}"#)],
            Want::Api(409, "it is busy"),
            true,
        ),
        (
            "a refusal in text",
            vec![answer("404 Not Found", "text/plain", "page not found\n")],
            Want::Api(404, "page not found"),
            true,
        ),
        (
            "a refusal without a word",
            vec![answer("403 Forbidden", "text/plain", "")],
            Want::Api(403, "no reason given"),
            true,
        ),
        (
            "a redirect",
            vec![bytes("HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n")],
            Want::Api(301, "no reason"),
            true,
        ),
        (
            "a refusal for ever",
            vec![bytes(format!("{error}\r\n")), Step::Flood(vec![b'x'; 4096])],
            Want::Api(500, "xxx"),
            false,
        ),
        (
            "a refusal cut",
            vec![bytes(format!("{error}Content-Length: 100\r\n\r\nsorr")), Step::Close],
            Want::Api(500, "sorr"),
            false,
        ),
        (
            "a refusal that stops",
            vec![bytes(format!("{error}Content-Length: 100\r\n\r\nsorr")), Step::Hang],
            Want::Api(500, "sorr"),
            false,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_wrong_answer_has_its_error_and_its_connection_is_not_reused() {
    for transport in TRANSPORTS {
        for (name, steps, want, clean) in rows() {
            let mut fake =
                Fake::on(
                    transport,
                    move |request, _| {
                        if request.contains("/containers/") { steps.clone() } else { vec![] }
                    },
                )
                .await;
            let engine = fake.engine().await.expect("a good start");
            let error = engine.container_inspect(&id()).await.expect_err(name);
            assert!(want.met_by(&error), "{transport}, {name}: {error:?}");
            let (used, _) = fake.request("/containers/").await;
            if !clean {
                fake.gone(used, &format!("{transport}, {name}")).await;
            }
            engine.ping().await.unwrap_or_else(|error| panic!("after {name}: {error:?}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_change_is_never_sent_twice_and_its_error_says_that_it_may_have_happened() {
    for transport in TRANSPORTS {
        let mut fake =
            Fake::on(
                transport,
                |request, _| {
                    if request.contains("/start") { vec![Step::Close] } else { vec![] }
                },
            )
            .await;
        let engine = fake.engine().await.expect("a good start");
        let error = engine.container_start(&id()).await.expect_err("cut");
        assert!(matches!(error, EngineError::Lost { .. }), "{error:?}");
        assert!(error.may_have_happened() && error.is_unreachable());
        engine.ping().await.expect("ping");
        let starts = fake.rest().iter().filter(|seen| format!("{seen:?}").contains("/start")).count();
        assert_eq!(starts, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_read_is_repeated_when_a_kept_connection_was_dead() {
    let mut fake =
        Fake::on(
            "unix",
            |request, nth| {
                if request.contains("/_ping") && nth == 1 { vec![Step::Close] } else { vec![] }
            },
        )
        .await;
    let engine = fake.engine().await.expect("a good start");
    engine.ping().await.expect("the first time");
    engine.ping().await.expect("asked again");
    let (_, _) = fake.request("/_ping").await;
    let (second, _) = fake.request("/_ping").await;
    let (third, _) = fake.request("/_ping").await;
    assert_ne!(second, third, "not on the dead connection");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_clean_connection_is_kept() {
    for transport in TRANSPORTS {
        let mut fake = Fake::on(transport, |_, _| vec![]).await;
        let engine = fake.engine().await.expect("a good start");
        let mut connections = std::collections::BTreeSet::new();
        for _ in 0..50 {
            engine.ping().await.expect("ping");
            connections.insert(fake.request("/_ping").await.0);
        }
        // A connection is returned a moment after its answer: now and then the next call is quicker.
        assert!(connections.len() < 25, "{transport}: 50 calls took {} connections", connections.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_dropped_call_closes_its_connection() {
    for transport in TRANSPORTS {
        let mut fake =
            Fake::on(
                transport,
                |request, _| {
                    if request.contains("/containers/") { vec![Step::Hang] } else { vec![] }
                },
            )
            .await;
        let limits = EngineLimits::default();
        let engine = Engine::connect(&fake.host, limits).await.expect("a good start");
        let call = tokio::spawn(async move { engine.container_inspect(&id()).await });
        let (used, _) = fake.request("/containers/").await;
        call.abort();
        fake.gone(used, "a dropped call").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_address_without_a_listener_is_unreachable() {
    let folder = tempfile::tempdir().expect("a folder");
    let vacant = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = vacant.local_addr().expect("an address");
    drop(vacant);
    for host in [format!("unix://{}/no.sock", folder.path().display()), format!("tcp://{address}")] {
        let error = Engine::connect(&host.parse().expect("a host"), EngineLimits::default()).await;
        let error = error.expect_err("nobody is there");
        assert!(matches!(error, EngineError::Unreachable { .. }), "{error:?}");
        assert!(error.is_unreachable() && !error.may_have_happened());
        assert!(error.to_string().contains(&host), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_common_api_version_is_needed() {
    for (oldest, newest, chosen) in [
        ("1.12", "1.40", None),
        ("1.48", "1.99", None),
        ("1.12", "1.41", Some("1.41")),
        ("1.24", "1.45", Some("1.45")),
        ("1.44", "1.99", Some("1.47")),
    ] {
        let mut fake = Fake::on("unix", move |request, _| {
            if request.contains("/version") { vec![json(&version(oldest, newest))] } else { vec![] }
        })
        .await;
        match (fake.engine().await, chosen) {
            (Ok(engine), Some(chosen)) => {
                engine.ping().await.expect("ping");
                fake.request(&format!("GET /v{chosen}/_ping")).await;
            }
            (Err(error @ EngineError::Version { .. }), None) => {
                let said = error.to_string();
                assert!(said.contains(newest) && said.contains("1.41"), "{said}");
            }
            (other, _) => panic!("{oldest} to {newest}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_is_not_an_engine_is_refused_at_connect() {
    for steps in [
        vec![answer("200 OK", "text/html", "hello")],
        vec![json("{}")],
        vec![json(&version("1.12", "latest"))],
        vec![bytes("SSH-2.0-OpenSSH_9.2\r\n"), Step::Hang],
    ] {
        let shown = format!("{steps:?}");
        let fake = Fake::on("tcp", move |_, _| steps.clone()).await;
        let error = fake.engine().await.expect_err("no engine");
        assert!(matches!(error, EngineError::Protocol { .. }), "{shown}: {error:?}");
    }
}
