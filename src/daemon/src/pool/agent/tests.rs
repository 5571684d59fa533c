//! The agent's volumes on an engine that the test plays; tests of other modules of the pool play it too.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio_tar::{Builder, EntryType, Header};

use super::*;
use crate::engine::EngineLimits;
use crate::pool::bounds::Bounds;
use crate::pool::container;
use crate::pool::core::Uid;
use crate::pool::loopback::Loopback;
use crate::pool::runner::Runner;
use crate::pool::secret::AgentTerms;
use crate::pool::spec::Blueprint;

const OWN: &str = "0123456789abcdef0123456789abcdef";
const VOLUME: &str = r#"{"Name":"paddock-any","Driver":"local"}"#;

/// An engine that answers by a script, and notes what it is asked.
pub(in crate::pool) struct Fake {
    pub(in crate::pool) engine: Engine,
    asked: Arc<Mutex<Vec<String>>>,
    _folder: TempDir,
}

impl Fake {
    /// `script` is given the method and the path of a request without the version, and how often it came
    /// before.
    pub(in crate::pool) async fn new(
        script: impl Fn(&str, usize) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (asked, script) = (Arc::new(Mutex::new(Vec::new())), Arc::new(script));
        let noted = asked.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (noted, script) = (noted.clone(), script.clone());
                let serve = service_fn(move |request: Request<Incoming>| {
                    let answer = answer(&request, &noted, &*script);
                    async move { Ok::<_, Infallible>(answer) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), serve));
            }
        });
        let host = format!("unix://{}", path.display()).parse().unwrap();
        let engine = Engine::connect(&host, EngineLimits::default()).await.unwrap();
        Self { engine, asked, _folder: folder }
    }

    pub(in crate::pool) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn count(&self, what: &str) -> usize {
        self.asked().iter().filter(|asked| *asked == what).count()
    }
}

fn answer(
    request: &Request<Incoming>,
    noted: &Mutex<Vec<String>>,
    script: &dyn Fn(&str, usize) -> Response<Full<Bytes>>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if path.ends_with("/version") {
        let version = r#"{"Version":"x","ApiVersion":"1.41","MinAPIVersion":"1.12","Os":"linux","Arch":"x"}"#;
        return json(StatusCode::OK, version);
    }
    let what = format!("{} {}", request.method(), path.strip_prefix("/v1.41").unwrap());
    let mut noted = noted.lock().unwrap();
    let before = noted.iter().filter(|asked| **asked == what).count();
    noted.push(what.clone());
    script(&what, before)
}

pub(in crate::pool) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let answer = Response::builder().status(status).header("content-type", "application/json");
    answer.body(Full::new(body.into())).unwrap()
}

pub(in crate::pool) fn refused(status: StatusCode) -> Response<Full<Bytes>> {
    json(status, r#"{"message":"it is refused"}"#)
}

pub(in crate::pool) fn done() -> Response<Full<Bytes>> {
    Response::builder().status(StatusCode::NO_CONTENT).body(Full::default()).unwrap()
}

/// The files of the volume as they should be, each as the engine packs it.
async fn packed() -> VecDeque<Response<Full<Bytes>>> {
    let (files, mut packed) = (AgentFiles::default(), VecDeque::new());
    for file in files.all() {
        packed.push_back(pack(&file).await);
    }
    packed
}

async fn pack(file: &AgentFile<'_>) -> Response<Full<Bytes>> {
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(file.mode);
    header.set_size(file.content.len() as u64);
    builder.append_data(&mut header, file.name, file.content).await.unwrap();
    archived("agent", 0o111, builder.into_inner().await.unwrap())
}

/// What the engine says of the volume's folder.
fn folder() -> Response<Full<Bytes>> {
    archived(".paddock", 1 << 31 | FOLDER_MODE, Vec::new())
}

fn archived(name: &str, mode: u32, body: Vec<u8>) -> Response<Full<Bytes>> {
    let stat = serde_json::json!({ "name": name, "size": 1, "mode": mode, "mtime": "2026-01-01T00:00:00Z" });
    Response::builder()
        .header("content-type", "application/x-tar")
        .header("x-docker-container-path-stat", BASE64_STANDARD.encode(stat.to_string()))
        .body(Full::new(body.into()))
        .unwrap()
}

fn volume(name: &str, labels: BTreeMap<String, String>) -> Volume {
    let labels = serde_json::json!(labels);
    serde_json::from_value(serde_json::json!({ "Name": name, "Driver": "local", "Labels": labels })).unwrap()
}

fn named(first: char) -> String {
    format!("{PREFIX}{first}{}", "0".repeat(DIGITS - 1))
}

#[test]
fn only_other_builds_volumes_of_this_owner_are_outdated() {
    let current: VolumeName = named('c').parse().unwrap();
    let ours = || labels(Some(OWN));
    let app_only = labels(None);
    let found = vec![
        volume(&named('a'), ours()),
        volume(current.as_str(), ours()),
        volume(&named('1'), labels(Some("another"))),
        volume(&named('2'), app_only),
        volume(&named('3'), BTreeMap::from([(MADE_BY.to_owned(), OWN.to_owned())])),
        // A trial's, another program's, and a name of the operator's choice.
        volume("paddock-agent-doctor-6789-0123456789ab", ours()),
        volume("another-0000000000000000", ours()),
        volume("paddock-agent-000000000000000A", ours()),
        volume(&named('b'), ours()),
    ];
    let outdated: Vec<_> = outdated(found, OWN, &[current]).iter().map(ToString::to_string).collect();
    assert_eq!(outdated, [named('a'), named('b')]);
    assert!(
        AgentFiles::default().volume_name().is_ok_and(|name| name.as_str().len() == PREFIX.len() + DIGITS)
    );
}

#[tokio::test]
async fn a_volume_in_use_stays_and_keeps_no_other_from_being_removed() {
    let fake = Fake::new(|what, _| {
        if what == "GET /volumes" {
            let found = ['a', 'b', 'd'].map(|first| {
                serde_json::json!({ "Name": named(first), "Driver": "local", "Labels": labels(Some(OWN)) })
            });
            return json(StatusCode::OK, serde_json::json!({ "Volumes": found }).to_string());
        }
        match what == format!("DELETE /volumes/{}", named('a')) {
            true => refused(StatusCode::CONFLICT),
            false => done(),
        }
    })
    .await;
    remove_outdated(&fake.engine, OWN, &[]).await;
    let removals = ['a', 'b', 'd'].map(|first| format!("DELETE /volumes/{}", named(first)));
    assert_eq!(fake.asked()[1..], removals);
}

/// Makes a container on an engine that refuses the first attempt of one step, until this step is refused for
/// good or was asked for `times` times.
async fn start(fake: &Fake, (step, times): (&str, usize)) {
    let runner = Runner {
        language: "sh".into(),
        image: "x".into(),
        image_id: format!("sha256:{}", "a".repeat(64)).parse().unwrap(),
        argv: vec![],
        env: vec![],
        libraries: String::new(),
        stdin: false,
        typecheck: false,
        warm: vec![],
        snapshot_labels: None,
        snapshot: crate::pool::SnapshotMount::None,
        volumes: vec![],
        packages: None,
        fetches: false,
        coding_agent: false,
        agent_labels: crate::pool::AgentLabels::default(),
        mounts: Vec::new(),
        bounds: Bounds::example(),
        idle: 2,
    };
    let files = AgentFiles::default();
    let (owner, agent) = (OWN.to_owned(), files.volume_name().unwrap());
    let blueprint = Blueprint { owner, agent, files, ..Blueprint::example() };
    blueprint.runtimes.has_loopback("", Loopback::Runtime { folder: "/volumes/a/_data".into() });
    let plan = blueprint.plan(&runner, Uid(20_000)).unwrap();
    let terms = AgentTerms { key: [1; 32], orphan_after: Duration::from_secs(1), listen_ports: vec![] };
    let starting = container::start(&fake.engine, plan, Uid(20_000), Arc::new(runner), &terms);
    let started = async {
        while fake.count(step) < times {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        ended = starting => assert!(ended.is_err()),
        () = started => {}
    }
}

fn id() -> String {
    "b".repeat(64)
}

fn of(method: &str, rest: &str) -> String {
    format!("{method} /containers/{}{rest}", id())
}

async fn engine(has_program: bool) -> Fake {
    let packed = Mutex::new(packed().await);
    let container = |rest: &str| format!("/containers/{}{rest}", id());
    let (start, archive) = (format!("POST {}", container("/start")), container("/archive"));
    let (stat, get) = (format!("HEAD {archive}"), format!("GET {archive}"));
    Fake::new(move |what, before| match what {
        "POST /volumes/create" => json(StatusCode::CREATED, VOLUME),
        "POST /containers/create" => {
            json(StatusCode::CREATED, serde_json::json!({ "Id": id(), "Warnings": [] }).to_string())
        }
        _ if what == start && before == 0 => refused(StatusCode::BAD_REQUEST),
        _ if what == stat && !has_program && before == 0 => refused(StatusCode::NOT_FOUND),
        _ if what == stat => folder(),
        _ if what == get => packed.lock().unwrap().pop_front().unwrap(),
        _ => done(),
    })
    .await
}

/// An engine that refuses to make the first container, as if a file to mount were missing. The files of the
/// volume are there or not, until it is filled.
async fn refusing(has_files: bool) -> Fake {
    let packed = Mutex::new(packed().await);
    let [head, get, put] = ["HEAD", "GET", "PUT"].map(|method| of(method, "/archive"));
    let is_filled = AtomicBool::new(has_files);
    Fake::new(move |what, before| match what {
        "POST /volumes/create" => json(StatusCode::CREATED, VOLUME),
        "POST /containers/create" if before == 0 => refused(StatusCode::BAD_REQUEST),
        "POST /containers/create" => {
            json(StatusCode::CREATED, serde_json::json!({ "Id": id(), "Warnings": [] }).to_string())
        }
        _ if what == put => {
            is_filled.store(true, Ordering::SeqCst);
            json(StatusCode::OK, "")
        }
        _ if what == head => folder(),
        _ if what == get && !is_filled.load(Ordering::SeqCst) => refused(StatusCode::NOT_FOUND),
        _ if what == get => packed.lock().unwrap().pop_front().unwrap(),
        _ => done(),
    })
    .await
}

#[tokio::test]
async fn a_container_is_made_after_all_if_a_file_to_mount_was_missing_and_only_then() {
    let fake = refusing(false).await;
    start(&fake, (&of("POST", "/start"), 1)).await;
    let create = "POST /containers/create";
    assert_eq!(fake.count(&of("PUT", "/archive")), 1, "it is filled: {:?}", fake.asked());
    assert_eq!(fake.count(create), 4, "refused, two that are never started, and the one that was asked for");
    let fake = refusing(true).await;
    start(&fake, (create, 3)).await;
    assert_eq!((fake.count(&of("PUT", "/archive")), fake.count(create)), (0, 2), "{:?}", fake.asked());
}

#[tokio::test]
async fn a_container_starts_after_all_if_the_agents_volume_was_removed() {
    let fake = engine(false).await;
    start(&fake, (&of("POST", "/start"), 2)).await;
    let made = ["POST /volumes/create", "POST /containers/create"].map(str::to_owned);
    let [first, again] = [of("POST", "/start"), of("POST", "/start")];
    // The volume is made, and read in a container that is never started.
    let read = vec![of("GET", "/archive"); AgentFiles::default().all().len()];
    let filled = [made.to_vec(), vec![of("HEAD", "/archive")], read, vec![of("DELETE", "")]].concat();
    let all = [made.to_vec(), vec![first, of("HEAD", "/archive")], filled, vec![again]].concat();
    assert_eq!(fake.asked()[..all.len()], all);
}

#[tokio::test]
async fn a_container_that_does_not_start_for_another_reason_is_not_started_again() {
    let fake = engine(true).await;
    start(&fake, (&of("POST", "/start"), 2)).await;
    assert_eq!(fake.asked()[2..], [of("POST", "/start"), of("HEAD", "/archive")]);
}

#[tokio::test]
async fn a_folder_that_programs_could_list_is_filled_again_with_its_mode() {
    let packed = Mutex::new(packed().await);
    let [head, get, put] = ["HEAD", "GET", "PUT"].map(|method| of(method, "/archive"));
    let is_filled = AtomicBool::new(false);
    let fake = Fake::new(move |what, _| match what {
        "POST /containers/create" => {
            json(StatusCode::CREATED, serde_json::json!({ "Id": id(), "Warnings": [] }).to_string())
        }
        "POST /volumes/create" => json(StatusCode::CREATED, VOLUME),
        _ if what == put => {
            is_filled.store(true, Ordering::SeqCst);
            json(StatusCode::OK, "")
        }
        _ if what == head && !is_filled.load(Ordering::SeqCst) => {
            archived(".paddock", 1 << 31 | 0o755, Vec::new())
        }
        _ if what == head => folder(),
        _ if what == get => packed.lock().unwrap().pop_front().unwrap(),
        _ => done(),
    })
    .await;
    let (files, name) = (AgentFiles::default(), named('a').parse().unwrap());
    let owned = [APP.to_owned(), format!("{OWNER}={OWN}")];
    let image = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
    let was_lacking =
        super::put(&fake.engine, &image, &owned, (name, &files), BTreeMap::new()).await.unwrap();
    assert!(was_lacking);
    assert_eq!(fake.count(&of("PUT", "/archive")), 1, "{:?}", fake.asked());
}
