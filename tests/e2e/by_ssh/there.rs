//! What is on the machine of an engine that is reached by ssh, and not on this one: folders that programs may
//! read, `/data` of containers, the agent's volume, and snapshots of warm parts.
//!
//! The engine has a mount namespace of its own, in which a folder has another content than on this machine.

use std::path::Path;
use std::process::Command;

use paddock::engine::ContainerId;

use super::{Sshd, daemon};
use crate::snapshots;
use crate::support::{Daemon, PrivateEngine, Setup, View};

/// An engine in whose mount namespace this folder has `handbook/a.txt`.
async fn engine_with_a_folder(folder: &Path) -> PrivateEngine {
    let makes = "mount -t tmpfs none \"$1\"; chmod 755 \"$1\"; mkdir \"$1\"/handbook; \
                 echo 'from there' > \"$1\"/handbook/a.txt; shift; exec \"$@\"";
    let folder = folder.to_str().expect("text");
    let under = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", makes, "engine", folder];
    PrivateEngine::with_flags(&[], &under.map(str::to_owned)).await
}

fn with_mount(setup: Setup, path: &Path) -> Setup {
    let mut mount = toml::Table::new();
    mount.insert("name".into(), "handbook".into());
    mount.insert("path".into(), path.display().to_string().into());
    mount.insert("about".into(), "what the company knows".into());
    setup.set("mounts", toml::Value::Array(vec![mount.into()]))
}

/// The volumes of the agent on an engine.
fn agents(host: &str) -> Vec<String> {
    let list = ["-H", host, "volume", "ls", "-q", "--filter", "label=app=paddock-agent"];
    let done = Command::new("docker").args(list).output().expect("docker");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).lines().map(str::to_owned).collect()
}

async fn view_on(engine: &PrivateEngine, d: &Daemon) -> View {
    View::on(&engine.host().parse().expect("a host"), &d.store.owner()).await
}

#[tokio::test]
async fn folders_data_and_the_agent_are_on_the_engine_s_machine() {
    let (sshd, parent) = (Sshd::start().await, tempfile::tempdir().expect("a folder"));
    let engine = engine_with_a_folder(parent.path()).await;
    engine.load("paddock-example-sh");
    let there = parent.path().join("handbook");
    assert!(!there.exists(), "only the engine has it");
    let over_ssh = || daemon(&sshd.host(&engine), &sshd.path("good")).set("exec.runner", "sh");

    let d = with_mount(over_ssh(), &there).start().await;
    let s = d.session("s");
    let looks = "cat /mnt/handbook/a.txt; echo x 2>&- > /mnt/handbook/b || echo refused";
    s.sh(looks).await.expect_stdout("from there\nrefused\n");

    // The agent has a volume there, which the container mounts.
    let view = view_on(&engine, &d).await;
    let volumes = agents(&engine.host());
    assert_eq!(volumes.len(), 1, "{volumes:?}");
    let first: ContainerId = view.the_container("sh").await;
    let inspected = view.inspect(&first).await;
    assert!(
        inspected.contains(&volumes[0]) && inspected.contains(there.to_str().expect("text")),
        "{inspected}"
    );

    // Files go there and come back, and into another container: as a stream, and as an archive if they are
    // large.
    s.upload("up", b"uploaded").await.expect_success();
    s.sh("mkdir d; for n in $(seq 300); do echo $n > d/$n; done; ln -s up link").await.expect_success();
    for (large, says) in
        [("", "uploaded\nuploaded\n300\n0\n"), ("large", "uploaded\nuploaded\n300\n12000000\n")]
    {
        if !large.is_empty() {
            s.sh("head -c 12000000 /dev/urandom > large").await.expect_success();
        }
        let before = view.running("sh").await;
        view.kill(&before).await;
        let counts = "cat up; echo; cat link; echo; ls d | wc -l; cat large 2>&- | wc -c";
        s.sh(counts).await.expect_stdout(says);
        assert_ne!(view.running("sh").await, before);
        s.sh("sha256sum large > sum 2>&-; cat /mnt/handbook/a.txt").await.expect_stdout("from there\n");
    }
    // What came back is what went in: the sum was made in the container, of what it had been given.
    let large = d.request("GET", "/sessions/s/files/large").send().await.expect(200).body;
    let sum = d.request("GET", "/sessions/s/files/sum").send().await.expect(200).text();
    assert_eq!(sum.split(' ').next(), Some(sha256(&large).as_str()));
    d.stop_on(&engine.host()).await;

    // A folder that the engine's machine does not have: the daemon cannot look, but the engine says it.
    let gone = parent.path().join("gone");
    let refusal = with_mount(over_ssh(), &gone).refusal().await;
    assert_eq!(refusal.code, Some(1), "{}", refusal.said);
    assert!(refusal.said.contains(gone.to_str().expect("text")), "{}", refusal.said);
    assert!(refusal.said.contains("does not exist"), "{}", refusal.said);
}

/// In hexadecimal, by a program that does not share code with the daemon.
fn sha256(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("written");
    let said = Command::new("sha256sum").arg(file.path()).output().expect("sha256sum").stdout;
    String::from_utf8_lossy(&said).split(' ').next().expect("a sum").to_owned()
}

#[tokio::test]
async fn a_snapshot_is_taken_and_restored_on_the_engine_s_machine() {
    let sshd = Sshd::start().await;
    let image = snapshots::image("", snapshots::ALIKE);
    let engine = PrivateEngine::with_image(image.name()).await;
    let over_ssh = || {
        let setup = daemon(&sshd.host(&engine), &sshd.path("good"));
        setup.set("runners.python", image.name()).set("agent.snapshots", true)
    };
    let d = over_ssh().start().await;
    let view = view_on(&engine, &d).await;
    d.log.line("new containers have another snapshot").await;
    assert_eq!(view.snapshots().await.len(), 1);
    d.session("first").python(snapshots::HOW).await.expect_stdout("restored\n");
    let store = d.store.clone();
    d.stop_on(&engine.host()).await;

    // The next daemon finds it there.
    let d = over_ssh().store(&store).start().await;
    d.session("next").python(snapshots::HOW).await.expect_stdout("restored\n");
    assert!(!d.log.text().contains("a snapshot of the warm part is taken"), "{}", d.log.text());
    d.stop_on(&engine.host()).await;
    assert_eq!(view.snapshots().await.len(), 1);
}
