//! The page as people use it: Debian's Chromium with a daemon, driven by `tests/clients/page.mjs`, one
//! scenario for each test. A scenario also fails if it sees a request to another server, a violation of the
//! page's policy, or an error on its console.
//!
//! The editor's bundle is built again from its sources, and must be the same.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::process::Command;

use crate::clients::{End, NEWEST, Script};
use crate::support::{Daemon, PATIENCE, Request, Setup, within};
use crate::upstream_proxy::{behind, proxy};

/// Bytes of an image in the repository.
const PICTURE: u64 = 150_000;

async fn plays(scenario: &str, setup: Setup) {
    plays_on(setup.start().await, scenario, "", &[]).await;
}

pub(crate) async fn plays_on(d: Daemon, scenario: &str, folder: &str, ends: &[End]) {
    // Not the public URL, which may be on another host.
    let url = format!("http://{}", d.addr);
    let mut script = Script::start(NEWEST, &["page.mjs", scenario, &url, folder], &d, ends.len());
    let d = within(PATIENCE * 3, scenario, script.follow(d, ends)).await;
    d.stop().await;
}

#[tokio::test]
async fn shows_a_newcomer_a_program_that_runs() {
    plays("first", Daemon::with().without_token()).await;
}

#[tokio::test]
async fn has_the_output_beside_the_code_and_the_picture_first() {
    plays("layout", Daemon::with()).await;
}

#[tokio::test]
async fn gives_a_run_its_time_and_input_and_shows_what_ended_it() {
    plays("given", Daemon::with()).await;
}

#[tokio::test]
async fn runs_code_and_shows_the_result() {
    plays("runs", Daemon::with()).await;
}

#[tokio::test]
async fn gives_a_run_the_network_that_its_user_chooses() {
    let (proxy, _) = proxy("200 Connection established").await;
    plays("network", behind(&proxy)).await;
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn shows_output_while_it_is_written() {
    plays("live", Daemon::with()).await;
}

#[tokio::test]
async fn shows_images_wherever_it_is_served_from() {
    plays("plot", Daemon::with().env("PUBLIC_BASE_URL", "https://sandbox.example/p")).await;
}

#[tokio::test]
async fn accepts_files_that_are_dropped_or_chosen() {
    plays("upload", Daemon::with().set("limits.file_size", "4MiB")).await;
}

#[tokio::test]
async fn cancels_a_run_and_keeps_its_files() {
    plays("cancel", Daemon::with()).await;
}

#[tokio::test]
async fn draws_every_container_that_it_counts() {
    plays("pool", Daemon::with()).await;
}

#[tokio::test]
async fn reports_a_run_only_in_its_conversation() {
    plays("elsewhere", Daemon::with().set("limits.code", 10_000)).await;
}

#[tokio::test]
async fn continues_after_a_restart_of_the_daemon() {
    plays_on(Daemon::start().await, "gone", "", &[End::Killed]).await;
}

#[tokio::test]
async fn asks_for_a_token_and_keeps_it_only_on_request() {
    plays("access", Daemon::with()).await;
}

#[tokio::test]
async fn shows_every_name_as_text_only() {
    plays("names", Daemon::with()).await;
}

#[tokio::test]
async fn shows_all_output_as_text_only() {
    // More than the page shows at a time.
    plays("output", Daemon::with().set("limits.output", "1MB")).await;
}

#[tokio::test]
async fn is_accessible_in_every_state() {
    plays("desk", Daemon::with()).await;
}

#[tokio::test]
async fn is_accessible_on_a_phone_and_fits_it() {
    plays("phone", Daemon::with()).await;
}

#[tokio::test]
async fn works_by_keyboard_alone() {
    plays("keyboard", Daemon::with()).await;
}

/// `make pictures` sets the folder for them.
#[tokio::test]
async fn pictures() {
    let temporary = TempDir::new().expect("a directory");
    let wanted = std::env::var_os("PADDOCK_PICTURES").map(PathBuf::from);
    let folder = wanted.as_deref().unwrap_or(temporary.path());
    // One idle container for each language: the pictures show what people see.
    let d = Daemon::with().with_tasks().set("pool.idle", 3).start().await;
    let mut at = 0;
    for _ in 0..3 {
        at = d.log.mark_behind(at, " warm language=python").await;
    }
    plays_on(d, "pictures", folder.to_str().expect("a path in UTF-8"), &[]).await;
    for name in ["light", "dark", "phone"] {
        let picture = folder.join(format!("page-{name}.png"));
        let size = std::fs::metadata(&picture).expect("a picture").len();
        assert!((10_000..PICTURE).contains(&size), "{}: {size} bytes", picture.display());
    }
}

#[tokio::test]
async fn is_served_with_its_policy_and_only_once() {
    let d = Daemon::start().await;
    let get = |path: &str| Request::new(d.addr, "GET", path);
    let html = get("/").send().await.expect(200).text();
    let parts = html.split('"').filter(|part| part.starts_with("page/")).map(|part| format!("/{part}"));
    let mut paths: Vec<String> = parts.chain(["/".to_owned(), "/page/editor.js".to_owned()]).collect();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), 7, "{paths:?}");
    for path in paths {
        let first = get(&path).send().await.expect(200);
        let policy = first.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(
            (first.header("x-content-type-options"), first.header("referrer-policy")),
            ("nosniff".to_owned(), "no-referrer".to_owned())
        );
        let again = get(&path).header("if-none-match", &first.header("etag")).send().await.expect(304);
        assert!(again.body.is_empty(), "{path}");
    }
    d.stop().await;
}

#[tokio::test]
async fn the_editor_is_built_from_its_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (page, clients) = (root.join("src/api/page"), root.join("../../tests/clients"));
    let folder = TempDir::new().expect("a directory");
    for name in ["build.mjs", "entry.mjs", "package.json", "package-lock.json"] {
        std::fs::copy(page.join("editor").join(name), folder.path().join(name)).expect("a source");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let node = clients.join(NEWEST).join("bin").canonicalize().expect("tests/clients/install installs Node");
    let path =
        std::env::join_paths(std::iter::once(node).chain(std::env::split_paths(&path))).expect("a PATH");
    for words in
        [&["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"][..], &["node", "build.mjs", "made.js"]]
    {
        let (program, args) = words.split_first().expect("a program");
        let mut command = Command::new(program);
        command.args(args).current_dir(folder.path()).env("PATH", &path).kill_on_drop(true);
        let done = within(PATIENCE * 2, program, command.output()).await.expect("it starts");
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let made = std::fs::read(folder.path().join("made.js")).expect("the bundle");
    let vendored = std::fs::read(page.join("editor.js")).expect("the vendored bundle");
    assert!(made == vendored, "editor.js is not what editor/build.mjs makes: see editor/README.md");
}
