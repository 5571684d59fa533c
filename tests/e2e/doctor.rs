//! `paddock doctor` tells the truth: each defect that it reports is real, and it reports no others.
//!
//! Defects that need a modified engine are in `doctor/wrapped.rs`, with a private engine.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use tokio::io::AsyncWriteExt;

pub(crate) use self::look::Look;
use crate::support::{Daemon, Store, engine_host, program};

#[path = "doctor/look.rs"]
pub(crate) mod look;
#[path = "doctor/proxy.rs"]
mod proxy;
#[path = "doctor/way_out.rs"]
mod way_out;
#[path = "doctor/wrapped.rs"]
pub(crate) mod wrapped;

/// Changes the file system of a test, which is private to it.
fn remount(path: &Path, options: &str) {
    let done = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(path).status();
    assert!(done.is_ok_and(|status| status.success()), "these tests need root, to mount");
}

/// A folder with a copy of the program, for users who may not read the build folder.
fn for_everyone() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("a mode");
    let copy = dir.path().join("paddock");
    std::fs::copy(program(), &copy).expect("a copy");
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).expect("a mode");
    (dir, copy)
}

const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

#[test]
fn the_program_prints_its_version() {
    let said = Command::new(program()).arg("--version").output().expect("it runs");
    let said = String::from_utf8(said.stdout).expect("text");
    assert_eq!(said, format!("paddock {}\n", paddock::build::LONG));
    let about =
        said.trim().strip_prefix(concat!("paddock ", env!("CARGO_PKG_VERSION"), " (")).expect("a version");
    let about = about.strip_suffix(')').expect("a commit");
    let digits = |text: &str, n| text.len() == n && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    let known = about
        .split_once(' ')
        .is_some_and(|(hash, date)| digits(hash.trim_end_matches("-dirty"), 8) && digits(date, 10));
    assert!(known || about == "unknown commit", "{said}");
}

#[tokio::test]
async fn a_healthy_host_is_reported_in_lines_and_as_json() {
    let dir = tempfile::tempdir().expect("a folder");
    let look = Look::at(dir.path());
    let report = look.run().await;
    let known = [
        ("engine/live-restore", "warn"),
        ("engine/runc", "warn"),
        ("engine/advisories", "warn"),
        ("engine/containerd", "warn"),
        ("container/socket memory", "warn"),
        ("container/file locks", "warn"),
    ];
    for (name, status) in report.lacks() {
        assert!(known.contains(&(name.as_str(), status.as_str())), "{name}: {}", report.text);
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0, "it leaves nothing in the store");
    let report = look.print().await;
    assert_eq!((report.code, report.stderr.as_str()), (Some(0), ""), "{report:?}");
    assert!(!report.text.contains('\u{1b}'), "no colours where nobody sees them: {}", report.text);
    let last = report.text.lines().last().expect("a verdict");
    assert!(last.starts_with("paddock would serve"), "{last}");
    for line in report.text.lines().filter(|line| !line.is_empty() && !line.starts_with(' ')) {
        let word = line.split(' ').next().unwrap_or_default();
        assert!(["ok", "warn", "FAIL"].contains(&word) || line == last, "{line}");
    }
    let groups: Vec<&str> =
        report.text.lines().filter(|line| line.starts_with("ok")).map(|line| line[6..21].trim()).collect();
    let mut order = groups.clone();
    order.dedup();
    let expected = ["configuration", "store", "engine", "images", "container", "way in", "room", "way out"];
    assert_eq!(order, expected, "{}", report.text);
}

#[tokio::test]
async fn an_unusable_configuration_has_the_exit_code_of_the_daemon() {
    let dir = tempfile::tempdir().expect("a folder");
    let report = Look::at(dir.path()).set("pool.idel", "1").print().await;
    assert_eq!((report.code, report.text.as_str()), (Some(2), ""), "{report:?}");
    assert!(report.stderr.contains("pool.idel"), "{report:?}");
    let nowhere = "unix:///nowhere/docker.sock";
    let look = Look::at(dir.path()).engine(nowhere);
    let base = look.run().await;
    look.clone().without_token().run().await.expect(&base, &[("configuration/tokens", "warn")]);
    let open = look.clone().set("http.addr", "'0.0.0.0:0'").run().await;
    open.expect(&base, &[("configuration/public_url", "warn")]);
    look.env("SANDBOX_LOG_LEVEL", "info")
        .env("LOG_LEVEL", "debug")
        .run()
        .await
        .expect(&base, &[("configuration/warning", "warn")]);
}

#[tokio::test]
async fn each_reason_for_an_unusable_engine_is_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    let look = |host: &str| Look::at(dir.path()).engine(host);
    let gone = look("unix:///nowhere/docker.sock").run().await;
    gone.expect_failure("engine/reachable", "no such file", "start docker");
    let socket = dir.path().join("dead.sock");
    drop(UnixListener::bind(&socket).expect("a socket"));
    let dead = look(&format!("unix://{}", socket.display())).run().await;
    dead.expect_failure("engine/reachable", "nobody listens", "systemctl start docker");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let stranger = format!("tcp://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.write_all(b"220 mail.example.org ESMTP\r\n").await;
        }
    });
    let stranger = look(&stranger).run().await;
    stranger.expect_failure("engine/reachable", "no Docker Engine", "another program");
    // The engine's own socket, for a user who may not open it.
    let (_folder, copy) = for_everyone();
    let store = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::chown(store.path(), Some(65_534), None).expect("root");
    let host = engine_host();
    let path = host.unix_path().expect("a socket");
    let mode = std::fs::metadata(path).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o007, 0, "{} is open to everyone", path.display());
    let denied = Look::at(store.path()).program(&copy).under(&NOBODY).run().await;
    denied.expect_failure("engine/reachable", "permission denied", "usermod");
}

#[tokio::test]
async fn without_the_right_to_trace_all_bytes_go_through_the_engine() {
    let dir = tempfile::tempdir().expect("a folder");
    let base = Look::at(dir.path()).run().await;
    let under = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"];
    let report = Look::at(dir.path()).under(&under).run().await;
    report.expect(&base, &[("way in/carrier", "warn")]);
    assert!(report.found("way in/carrier").contains("CAP_SYS_PTRACE"), "{}", report.text);
}

#[tokio::test]
async fn the_needs_of_all_containers_are_added_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let base = Look::at(dir.path()).run().await;
    let cores = std::thread::available_parallelism().expect("some").get();
    let busy = Look::at(dir.path()).set("sessions.max", &(cores + 1).to_string()).run().await;
    busy.expect(&base, &[("room/processors", "warn")]);
    let many = Look::at(dir.path()).set("sessions.max", "60").run().await;
    many.expect(&base, &[("room/processors", "warn"), ("room/memory", "warn")]);
    let few = Look::at(dir.path()).under(&["prlimit", "--nofile=600:600"]).run().await;
    few.expect(&base, &[("room/open files", "warn")]);
}

#[tokio::test]
async fn an_unsuitable_folder_for_a_store_is_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    let look = |path: &Path| Look::at(path).engine("unix:///nowhere/docker.sock");
    let base = look(dir.path()).run().await;
    look(&dir.path().join("a/b")).run().await.expect(&base, &[]);

    let memory = Store::on_disk_of(512 << 20);
    look(memory.path()).run().await.expect(&base, &[("store/file system", "warn")]);
    remount(memory.path(), "size=100m");
    let small = look(memory.path()).run().await;
    small.expect(&base, &[("store/file system", "warn"), ("store/space", "warn")]);
    assert!(small.found("store/space").contains("100.0 MiB are free"), "{}", small.text);
    remount(memory.path(), "size=6m");
    let full = look(memory.path()).run().await;
    full.expect(&base, &[("store/file system", "warn"), ("store/space", "fail")]);
    remount(memory.path(), "size=512m,nr_inodes=100");
    let names = look(memory.path()).run().await;
    names.expect(&base, &[("store/file system", "warn"), ("store/inodes", "warn")]);
    remount(memory.path(), "ro");
    let closed = look(memory.path()).run().await;
    closed.expect(&base, &[("store/writable", "fail")]);
    assert!(closed.found("store/writable").contains("Read-only"), "{}", closed.text);

    let (_folder, copy) = for_everyone();
    let foreign = look(dir.path()).program(&copy).under(&NOBODY).run().await;
    foreign.expect(&base, &[("store/writable", "fail")]);
    assert!(foreign.found("store/writable").contains("ermission denied"), "{}", foreign.text);
    std::fs::write(dir.path().join("file"), "").expect("a file");
    look(&dir.path().join("file")).run().await.expect(&base, &[("store/writable", "fail")]);
}

#[tokio::test]
async fn it_does_not_disturb_a_running_daemon_and_recognizes_its_address() {
    let d = Daemon::with().start().await;
    let s = d.session("beside");
    s.sh("echo kept > kept").await.expect_success();
    let before = d.view().await.containers().await;
    let listening = d.addr.to_string();
    let report = Look::at(d.store.path()).args(&["--addr", &listening]).run().await;
    assert!(
        report.found("store/lock").contains(&format!("pid {}", d.pid().as_raw_nonzero())),
        "{}",
        report.text
    );
    assert!(report.found("configuration/address").contains("the daemon of this store"), "{}", report.text);
    assert_eq!(report.code, Some(0), "{}", report.text);
    // A healthy daemon with another store is not a failure.
    let other = tempfile::tempdir().expect("a folder");
    let base = Look::at(other.path()).run().await;
    let neighbour = Look::at(other.path()).args(&["--addr", &listening]).run().await;
    neighbour.expect(&base, &[("configuration/address", "warn")]);
    assert!(neighbour.found("configuration/address").contains("another paddock"), "{}", neighbour.text);
    assert_eq!(neighbour.code, Some(0), "{}", neighbour.text);
    s.sh("cat kept").await.expect_stdout("kept\n");
    let ids =
        |list: &[paddock::engine::ContainerSummary]| list.iter().map(|c| c.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&d.view().await.containers().await), ids(&before), "its containers are the same");
    d.stop().await;

    let dir = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address").to_string();
    let taken = Look::at(dir.path()).args(&["--addr", &addr]).run().await;
    let scraped = Look::at(dir.path()).set("metrics.addr", &format!("'{addr}'")).run().await;
    scraped.expect_failure(
        "configuration/metrics address",
        &format!("pid {}", std::process::id()),
        "metrics.addr",
    );
    taken.expect_failure("configuration/address", &format!("pid {}", std::process::id()), "http.addr");
}
