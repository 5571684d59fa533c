//! What people download: the image of the daemon, `deploy/up` with its compose files, and the release
//! with its `install.sh`. Each is used as its documents say, with the static program of `deploy/build`.
//!
//! Images that cannot be pulled have local stand-ins under the same names. No test may replace an image
//! that is there, and none leaves a container, a volume or an image.

#[path = "shipped/compose.rs"]
mod compose;
#[path = "shipped/dist.rs"]
mod dist;
#[path = "shipped/image.rs"]
mod image;
#[path = "shipped/swarm.rs"]
mod swarm;
#[path = "shipped/updates.rs"]
mod updates;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Answer, PATIENCE, Request};

/// Time between two looks at a container, which sends no notifications.
const LOOK: Duration = Duration::from_millis(200);

/// A file or folder of this repository.
fn repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository").join(path)
}

/// Runs a command, which must succeed, and returns what it wrote to standard output.
#[track_caller]
fn run(command: &mut Command) -> String {
    let (code, said) = tried(command);
    assert_eq!(code, Some(0), "{command:?}:\n{said}");
    said
}

/// The exit code of a command and what it wrote; after a failure, its errors too.
fn tried(command: &mut Command) -> (Option<i32>, String) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut said = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        said += &String::from_utf8_lossy(&done.stderr);
    }
    (done.status.code(), said)
}

fn docker(args: &[&str]) -> String {
    run(Command::new("docker").args(args))
}

/// The static program, built if it is not there or old: a matter of minutes, once. `PADDOCK_PROGRAM`
/// names one that was built before.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(built) = std::env::var_os("PADDOCK_PROGRAM") {
            return built.into();
        }
        let said = run(Command::new(repo("deploy/build")).env_remove("RUSTFLAGS").env_remove("CARGO"));
        repo(said.trim())
    })
}

/// An image of the daemon with a name of its own, removed when this is dropped.
struct DaemonImage(String);

/// Held while such an image is made or removed. The same content is the same image, so one test would take
/// steps from the cache of the engine while the end of another test removes them.
static DAEMON_IMAGES: Mutex<()> = Mutex::new(());

impl DaemonImage {
    fn build() -> DaemonImage {
        let _alone = DAEMON_IMAGES.lock();
        let name = format!("paddock-test-daemon-{}", paddock::id::random_hex::<6>());
        run(Command::new(repo("deploy/image")).arg(&name).env("PADDOCK_PROGRAM", program()));
        DaemonImage(name)
    }
}

impl Drop for DaemonImage {
    fn drop(&mut self) {
        let _alone = DAEMON_IMAGES.lock();
        let _ = Command::new("docker").args(["rmi", "-f", &self.0]).output();
    }
}

/// The path of the engine's socket, and the group that may use it.
fn socket() -> (String, String) {
    let host = crate::support::engine_host().to_string();
    let path = host.strip_prefix("unix://").expect("these tests need an engine at a socket").to_owned();
    let meta = std::fs::metadata(&path).expect("a socket");
    (path, std::os::unix::fs::MetadataExt::gid(&meta).to_string())
}

/// An address that is free at this moment.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

/// Waits until `ready` says so.
async fn until(what: &str, mut ready: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !ready().await {
        assert!(begun.elapsed() < PATIENCE, "{what} does not happen");
        tokio::time::sleep(LOOK).await;
    }
}

/// Runs Python by a bare call, and returns the tool's document.
async fn run_python(addr: SocketAddr, token: &str, code: &str) -> Value {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "run_code", "arguments": { "language": "python", "code": code } } });
    let answer = Request::new(addr, "POST", "/mcp").bearer(token).json(&call).send().await.expect(200).json();
    let document = answer["result"]["structuredContent"].clone();
    assert_eq!(document["success"], true, "{answer}");
    document
}

/// Downloads a link, which must begin with this address.
async fn download(addr: SocketAddr, link: &Value) -> Answer {
    let link = link.as_str().expect("a link");
    let path =
        link.strip_prefix(&format!("http://{addr}")).unwrap_or_else(|| panic!("{link} leads elsewhere"));
    Request::new(addr, "GET", path).send().await.expect(200)
}
