//! Packages beyond a runner's image, from an index of the test's own: fetched once, shared by name, and kept
//! whatever becomes of the daemon.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use crate::support::{Daemon, PATIENCE, Ran, Request, Setup, Store, field, within};
use crate::tenants::add;

/// Servers of `packages/index.py`, ended when this is dropped.
pub(crate) struct Index {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Index {
    pub(crate) async fn start() -> Index {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("index.py");
        std::fs::write(&path, include_str!("packages/index.py")).expect("a file");
        let mut child = Command::new("python3")
            .arg("-B")
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
        let reading = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            said.read_line(&mut line).map(|_| line)
        });
        let line = within(PATIENCE, "the index", reading).await.expect("no panic").expect("a line");
        Index { child, port: line.trim().parse().expect("a port"), _folder: folder }
    }

    /// A daemon whose operator named this index; nothing else is in reach of anybody.
    pub(crate) fn daemon(&self) -> Setup {
        let hosts = toml::Table::from_iter([("index.lan".to_owned(), "127.0.0.1".into())]);
        let url = |path: &str| format!("http://index.lan:{}/{path}/", self.port);
        Daemon::with()
            .set("egress.mode", "none")
            .set("egress.hosts", hosts)
            .set("packages.python_index", url("simple"))
            .set("packages.npm_registry", url("npm"))
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], self.port));
        Request::new(address, "GET", path).send().await.text()
    }

    /// How often a file of this beginning was asked for.
    pub(crate) async fn fetched(&self, file: &str) -> usize {
        let all: Vec<String> = serde_json::from_str(&self.get("/requests").await).expect("a list");
        all.iter().filter(|path| path.starts_with(&format!("/files/{file}"))).count()
    }

    /// Waits until a file of this beginning was asked for.
    pub(crate) async fn asked_for(&self, file: &str) {
        let asking = async {
            while self.fetched(file).await == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        within(PATIENCE, "the fetch", asking).await;
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

pub(crate) async fn python(d: &Daemon, session: &str, packages: &[&str], code: &str) -> Ran {
    d.session(session).python(code).with("packages", json!(packages)).await
}

/// Refused with this code; the message has these words.
#[track_caller]
pub(crate) fn refused(ran: Ran, code: &str, words: &str) {
    let ran = ran.expect_error(code);
    assert!(ran.text("message").contains(words), "{}", ran.text("message"));
}

#[tokio::test]
async fn a_list_is_fetched_once_and_shared_by_all_sessions() {
    let index = Index::start().await;
    let d = index.daemon().start().await;
    let code = "import good, needs; print(good.VERSION, needs.VERSION, good.__file__)";
    // Two at once, in other sessions: one fetch, and both have it.
    let (one, two) =
        tokio::join!(python(&d, "a", &["needs==1.0"], code), python(&d, "b", &["Needs == 1.0"], code),);
    for ran in [&one, &two] {
        assert!(ran.stdout().starts_with("1.0 1.0 /opt/packages/"), "{}", ran.document);
        assert_eq!(ran.document["packages"], json!(["good==1.0", "needs==1.0"]));
    }
    assert_eq!(one.stdout(), two.stdout(), "one layer");
    assert_eq!(index.fetched("needs-1.0").await, 1);
    // Later, in either: nothing is fetched.
    python(&d, "c", &["needs==1.0"], code).await.expect_stdout(one.stdout());
    assert_eq!((index.fetched("needs-1.0").await, d.log.count("packages fetched")), (1, 1));
    // Another list is another layer, and a run without a list has none.
    let ran = python(&d, "a", &["good==2.0"], "import good; print(good.VERSION)").await;
    assert_eq!(ran.stdout(), "2.0\n");
    let bare = "import os, sys; print('SANDBOX_PACKAGES' in os.environ, any('/opt' in p for p in sys.path))
try: import good
except ModuleNotFoundError as e: print(e)";
    d.session("a").python(bare).await.expect_stdout("False False\nNo module named 'good'\n");
    let metrics = d.request("GET", "/metrics").send().await.expect(200).text();
    for line in [
        "paddock_package_fetches_total{outcome=\"ok\"} 2",
        "paddock_package_uses_total{result=\"hit\"} 1",
        "paddock_package_uses_total{result=\"fetched\"} 3",
        "paddock_package_layers 2",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    d.stop().await;
}

#[tokio::test]
async fn where_there_are_several_tenants_a_fetch_is_charged_to_the_one_that_asked() {
    let (index, store) = (Index::start().await, Store::new());
    let other = add(&store, &["other"]);
    let d = index.daemon().store(&store).set("log.level", "debug").start().await;
    let asked = d.session("a").python("import good; print(good.VERSION)").bearer(&other);
    asked.with("packages", json!(["good==1.0"])).await.expect_stdout("1.0\n");
    let line = d.log.line("a fetch was charged to its tenant").await;
    let charged_us: u64 = field(&line, "charged_us").and_then(|us| us.parse().ok()).expect("a number");
    assert!(charged_us > 250_000 + 50_000, "the container, and pip takes more than that: {line}");
    d.stop().await;
}

#[tokio::test]
async fn a_shell_and_its_children_have_the_packages_too() {
    let index = Index::start().await;
    let d = index.daemon().start().await;
    let arguments = json!({
        "session_id": "s", "packages": ["good-tool==1.0"],
        "command": "good-tool && python3 -c 'import good_tool; good_tool.main()' && command -v python3",
    });
    let ran = d.tool("execute_code", arguments).await;
    assert_eq!(ran.command_stdout(), "tool 1.0\ntool 1.0\n/usr/bin/python3\n");
    assert_eq!(ran.document["packages"], json!(["good-tool==1.0"]));
    let child = "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'import good_tool; \
                 print(1)'], capture_output=True, text=True))";
    let ran = python(&d, "s", &["good-tool==1.0"], child).await.expect_success();
    assert!(ran.stdout().contains("returncode=0"), "{}", ran.stdout());
    let arguments = json!({ "session_id": "s", "packages": ["good-tool==2.0"], "command": "good-tool" });
    let ran = d.tool("execute_code_async", arguments).await;
    let id = ran.text("execution_id").to_owned();
    let ran = d.tool("get_execution_output", json!({ "execution_id": id, "wait": true })).await;
    assert_eq!(ran.command_stdout(), "tool 2.0\n");
    d.stop().await;
}

#[tokio::test]
async fn a_layer_replaces_libraries_of_the_image_and_never_the_standard_library() {
    let index = Index::start().await;
    let d = index.daemon().start().await;
    let other = "import tabulate; print(getattr(tabulate, 'VERSION', 'the image'))";
    let s = d.session("s");
    // The warm part has imported its own.
    s.python(other).await.expect_stdout("the image\n");
    d.log.line("INFO warm language=python").await;
    python(&d, "s", &["tabulate==99.0"], other).await.expect_stdout("99.0\n");
    s.python(other).await.expect_stdout("the image\n");
    let library = "import json, library, sitecustomize, sys
print(hasattr(json, 'WRONG'), hasattr(sitecustomize, 'WRONG'), library.OK)
print([p.split('/')[1] for p in sys.path if 'python3' not in p])";
    let ran = python(&d, "s", &["library==1.0"], library).await.expect_success();
    assert_eq!(ran.stdout(), "False False True\n['opt', 'data']\n");
    // A file of the user's comes last, as without packages.
    let ran = s
        .python("import library; print(library.OK)")
        .file("library.py", b"OK = 'mine'")
        .with("packages", json!(["library==1.0"]));
    ran.await.expect_stdout("True\n");
    d.stop().await;
}

#[tokio::test]
async fn a_fetch_outlives_its_caller_and_the_next_call_finds_it() {
    let index = Index::start().await;
    let d = index.daemon().start().await;
    let call = d.session("s").python("print(1)").with("packages", json!(["slow==1.0"]));
    tokio::select! {
        ran = call.try_answer() => panic!("{ran:?}"),
        () = index.asked_for("slow") => {} // and the caller goes away
    }
    index.get("/let/go").await;
    d.log.line("packages fetched").await;
    python(&d, "s", &["slow==1.0"], "import slow; print(slow.OK)").await.expect_stdout("True\n");
    assert_eq!(index.fetched("slow").await, 1);
    d.stop().await;
}

#[tokio::test]
async fn layers_survive_the_daemon_and_half_of_one_does_not() {
    let index = Index::start().await;
    let d = index.daemon().start().await;
    let code = "import good, os; print(good.VERSION, os.environ['SANDBOX_PACKAGES'])";
    let first = python(&d, "s", &["good==1.0"], code).await.expect_success();
    // Killed in the middle of another fetch.
    let call = d.session("t").python("print(1)").with("packages", json!(["slow==1.0"]));
    tokio::select! {
        ran = call.try_answer() => panic!("{ran:?}"),
        () = index.asked_for("slow") => {}
    }
    let store = d.crash().await;
    index.get("/let/go").await;
    let d = index.daemon().store(&store).start().await;
    python(&d, "s", &["good==1.0"], code).await.expect_stdout(first.stdout());
    python(&d, "t", &["slow==1.0"], "import slow; print(slow.OK)").await.expect_stdout("True\n");
    assert_eq!((index.fetched("good-1.0").await, index.fetched("slow").await), (1, 2));
    // A clean end keeps them too.
    d.stop().await;
    let d = index.daemon().store(&store).start().await;
    python(&d, "s", &["good==1.0"], code).await.expect_stdout(first.stdout());
    assert_eq!(index.fetched("good-1.0").await, 1);
    // A volume that was removed meanwhile, or lost the layer, is noticed.
    d.stop().await;
    Command::new("docker").args(["volume", "rm", &volume(&store.owner())]).output().expect("docker");
    let d = index.daemon().store(&store).start().await;
    let again = python(&d, "s", &["good==1.0"], code).await.expect_success();
    assert_ne!(again.stdout(), first.stdout());
    assert_eq!(index.fetched("good-1.0").await, 2);
    d.stop().await;
}

pub(crate) fn volume(owner: &str) -> String {
    format!("paddock-packages-{}", &owner[..16])
}

/// The names of the layers in the volume.
fn on_disk(owner: &str) -> Vec<String> {
    let mount = format!("{}:/l", volume(owner));
    let script = "ls -A /l";
    let listed = Command::new("docker")
        .args(["run", "--rm", "--network=none", "-v", &mount, "--entrypoint=/bin/sh", "paddock-base:trixie"])
        .args(["-c", script])
        .output()
        .expect("docker");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn layers_that_nobody_uses_make_room_and_failures_leave_none() {
    let index = Index::start().await;
    let sizes = |d: Setup| d.set("packages.max_bytes", "1MiB").set("packages.total_bytes", "1MiB");
    let d = sizes(index.daemon()).set("timeouts.max", "10s").set("timeouts.run_python", "10s");
    let d = d.set("timeouts.run_code", "10s").set("timeouts.execute_code", "10s").start().await;
    let owner = d.store.owner();
    python(&d, "s", &["middle==1.0"], "import middle").await.expect_success();
    assert_eq!(on_disk(&owner).len(), 1);
    python(&d, "s", &["middle2==1.0"], "import middle2").await.expect_success();
    d.log.line("a layer of packages is removed").await;
    python(&d, "s", &["wronghash==1.0"], "1").await.expect_error("packages_unavailable");
    // What the fetches left is removed behind their answers.
    let one = async {
        while on_disk(&owner).len() != 1 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(PATIENCE, "one layer", one).await;
    python(&d, "s", &["middle==1.0"], "import middle").await.expect_success();
    assert_eq!(index.fetched("middle-1.0").await, 2);
    d.stop().await;
}

#[tokio::test]
async fn a_daemon_without_layers_leaves_no_volume() {
    let d = Daemon::with().start().await;
    let owner = d.store.owner();
    d.session("s").python("print(1)").await.expect_success();
    d.stop().await;
    let found = Command::new("docker").args(["volume", "inspect", &volume(&owner)]).output().expect("docker");
    assert!(!found.status.success(), "{}", String::from_utf8_lossy(&found.stdout));
}

#[tokio::test]
async fn typescript_has_packages_of_npm_in_both_kinds_of_module() {
    let index = Index::start().await;
    let d = index.daemon().start().await;
    let typescript =
        |packages: &[&str], code: &str| d.session("s").typescript(code).with("packages", json!(packages));
    let esm = "import esm from '@scope/esm'; import left from 'left'; console.log(esm, left)";
    let ran = typescript(&["@scope/esm@2.0.0"], esm).await.expect_success();
    assert_eq!(ran.stdout(), "esm left 1.2.3 left 1.2.3\n");
    assert_eq!(ran.document["packages"], json!(["@scope/esm@2.0.0", "left@1.2.3"]));
    // Warm, and as CommonJS; `==` is taken as for Python.
    d.log.line("INFO warm language=typescript").await;
    let common = "const left = require('left'); console.log(left, require.resolve('left').split('/')[1])";
    typescript(&["left==1.2.3"], common).await.expect_stdout("left 1.2.3 opt\n");
    // It comes before the libraries of the image, and behind the user's own.
    let paper = "console.log(typeof require('papaparse') === 'string', typeof require('pg').Client)";
    typescript(&["papaparse@99.0.0"], paper).await.expect_stdout("true function\n");
    let own = typescript(&["left@1.2.3"], "console.log(require('left'))");
    own.file("node_modules/left/index.js", b"module.exports = 'mine'").await.expect_stdout("mine\n");
    let none = "try { require('papaparse99') } catch (e) { console.log(e.code) }
import('nothing-such').catch((e) => console.log(e.code))";
    let ran = typescript(&["left@1.2.3"], none).await;
    ran.expect_stdout("MODULE_NOT_FOUND\nERR_MODULE_NOT_FOUND\n");
    // A worker and a child have them too.
    let worker = "import { Worker, isMainThread } from 'node:worker_threads'
if (isMainThread) new Worker(new URL(import.meta.url))
import('left').then((m) => console.log(isMainThread, m.default))";
    let ran = typescript(&["@scope/esm@2.0.0"], worker).await.expect_success();
    let mut lines: Vec<_> = ran.stdout().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["false mine", "true mine"]);
    d.stop().await;
}
