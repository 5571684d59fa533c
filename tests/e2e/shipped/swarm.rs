//! deploy/swarm.yml on a real Docker Swarm: three engines, each a manager, on machines of the test's own.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{DaemonImage, repo, run, tried};
use crate::machines::{LOOK, Machine, Machines};
use crate::support::{PATIENCE, Request, TOKEN, within};

/// How many sessions there are: enough for each of three nodes to have some.
const SESSIONS: usize = 9;
/// The sessions of a node that is gone answer elsewhere within this time.
const TAKEOVER: Duration = Duration::from_secs(10);
/// A call that waits for the end of a lease takes longer.
const LEASE: Duration = Duration::from_secs(5);
/// Swarm needs so long to start, to move or to stop everything.
const SWARM: Duration = Duration::from_secs(120);

/// Docker's client for the engine of a machine.
fn docker(machine: &Machine, args: &[&str]) -> Command {
    let mut command = Command::new("docker");
    command.args(["-H", &machine.engine.host()]).args(args);
    command
}

/// The machines as one Swarm, with what the comment in swarm.yml tells an operator to make first.
fn join(machines: &[Machine], database: &str) {
    let first = &machines[0];
    let advertise = |machine: &Machine| format!("--advertise-addr={}", machine.inner);
    run(&mut docker(first, &["swarm", "init", &advertise(first)]));
    let token = run(&mut docker(first, &["swarm", "join-token", "-q", "manager"]));
    for machine in &machines[1..] {
        let there = format!("{}:2377", first.inner);
        run(&mut docker(machine, &["swarm", "join", &advertise(machine), "--token", token.trim(), &there]));
    }
    let folder = tempfile::TempDir::new().expect("a folder");
    for (name, value) in [
        ("cluster_key", "0123456789abcdef0123456789abcdef"),
        ("file_secret", "fedcba9876543210fedcba9876543210"),
        ("token", TOKEN),
        ("database", database),
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, value).expect("a file");
        let file = file.to_str().expect("text").to_owned();
        run(&mut docker(first, &["secret", "create", &format!("paddock_{name}"), &file]));
    }
}

/// Starts the stack. The machines share a file system, so that the sockets of their engines have different
/// paths: one line of the file is replaced, by a folder with a link for each machine.
fn deploy(machines: &Machines, sockets: &Path, image: &str, objects: &str) {
    for machine in &machines.all {
        let socket = machine.engine.host().trim_start_matches("unix://").to_owned();
        std::os::unix::fs::symlink(socket, sockets.join(&machine.name)).expect("a link");
    }
    let first = &machines.all[0];
    let text = std::fs::read_to_string(repo("deploy/swarm.yml")).expect("the file");
    let usual = "- /var/run/docker.sock:/var/run/docker.sock";
    assert!(text.contains(usual), "{text}");
    let folder = tempfile::TempDir::new().expect("a folder");
    std::fs::create_dir(folder.path().join("swarm")).expect("a folder");
    std::fs::copy(repo("deploy/swarm/paddock.toml"), folder.path().join("swarm/paddock.toml"))
        .expect("the configuration");
    let file = folder.path().join("swarm.yml");
    let own = format!("- \"{}/{{{{.Node.Hostname}}}}:/var/run/docker.sock\"", sockets.display());
    std::fs::write(&file, text.replace(usual, &own)).expect("a file");
    let group = std::fs::metadata(sockets.join(&first.name)).expect("a socket").gid().to_string();
    let file = file.to_str().expect("text").to_owned();
    let mut command = docker(first, &["stack", "deploy", "--compose-file", &file, "paddock"]);
    command.env("PADDOCK_IMAGE", image).env("PADDOCK_OBJECTS", objects).env("DOCKER_GID", group);
    command.env("PUBLIC_BASE_URL", format!("http://{}", first.addr)).envs(machines.servers().aws());
    run(&mut command);
}

/// What a run answers at this address, or why there was none; `None` if nobody is there.
async fn call(at: SocketAddr, session: usize, code: &str) -> Option<serde_json::Value> {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "run_code",
        "arguments": { "language": "sh", "code": code, "conversationId": format!("s{session}") } } });
    let answer = Request::new(at, "POST", "/mcp").bearer(TOKEN).json(&call).try_send().await?;
    let answer = answer.json();
    let document = &answer["result"]["structuredContent"];
    Some(if document.is_null() { answer } else { document.clone() })
}

/// Every session has its file, by way of this address, before `by`.
async fn all_answer(at: SocketAddr, by: Duration) {
    let since = Instant::now();
    for session in 0..SESSIONS {
        loop {
            let answer = call(at, session, "cat f").await;
            if let Some(ran) = answer.as_ref().filter(|ran| ran["success"] == true) {
                assert_eq!(ran["stdout"], format!("file {session}\n"));
                break;
            }
            assert!(since.elapsed() < by, "session {session} after {:?}: {answer:?}", since.elapsed());
            tokio::time::sleep(LOOK).await; // as a caller that calls again
        }
    }
}

/// The state that the node on a machine says it has: 200 if load balancers may send it calls.
async fn ready(machine: &Machine) -> bool {
    let answer = Request::new(machine.addr, "GET", "/ready").bearer(TOKEN).try_send().await;
    answer.is_some_and(|answer| answer.status == 200)
}

async fn all_ready(machines: &[Machine], swarm: &Machine) {
    let begun = Instant::now();
    for machine in machines {
        while !ready(machine).await {
            if begun.elapsed() > SWARM {
                let tasks = tried(&mut docker(swarm, &["service", "ps", "--no-trunc", "paddock_paddock"])).1;
                let logs =
                    tried(&mut docker(swarm, &["service", "logs", "--tail", "30", "paddock_paddock"])).1;
                panic!("{} is not ready:\n{tasks}\n{logs}", machine.name);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[tokio::test]
async fn a_swarm_of_three_serves_every_session_at_every_node_through_a_drain_and_a_loss() {
    let image = DaemonImage::build();
    let machines = Machines::start(3).await;
    for machine in &machines.all {
        machine.engine.load(&image.0);
    }
    let (database, objects) = machines.servers().fresh();
    join(&machines.all, &database);
    let sockets = tempfile::TempDir::new().expect("a folder");
    deploy(&machines, sockets.path(), &image.0, &objects);
    let [a, b, c] = &machines.all[..] else { unreachable!("three machines") };
    let begun = Instant::now();
    all_ready(&machines.all, a).await;
    eprintln!("three nodes were ready {:.1?} after the deployment", begun.elapsed());

    // Every session at every node, whichever has it.
    for session in 0..SESSIONS {
        let at = machines.all[session % 3].addr;
        let ran = within(PATIENCE, "a run", call(at, session, &format!("echo file {session} > f"))).await;
        assert!(ran.as_ref().is_some_and(|ran| ran["success"] == true), "{ran:?}");
    }
    for machine in &machines.all {
        all_answer(machine.addr, PATIENCE).await;
    }
    // An operator drains a node: its paddock hands its sessions over before it ends, and nobody waits.
    let node = |machine: &Machine| {
        let nodes = run(&mut docker(a, &["node", "ls", "--format", "{{.Hostname}} {{.ID}}"]));
        let line = nodes.lines().find_map(|line| line.strip_prefix(&format!("{} ", machine.name)));
        line.expect("a node of this name").to_owned()
    };
    run(&mut docker(a, &["node", "update", "--availability", "drain", &node(b)]));
    within(SWARM, "the end of the drained node", async {
        while Request::new(b.addr, "GET", "/health").try_send().await.is_some() {
            tokio::time::sleep(LOOK).await;
        }
    })
    .await;
    all_answer(c.addr, LEASE).await;
    run(&mut docker(a, &["node", "update", "--availability", "active", &node(b)]));
    all_ready(&machines.all, a).await;
    for session in 0..SESSIONS {
        call(b.addr, session, "cat f").await;
    }

    // A machine is lost.
    c.cut();
    let lost = Instant::now();
    all_answer(a.addr, TAKEOVER).await;
    eprintln!("all sessions answered {:.1?} after the loss of a machine", lost.elapsed());
    drop(image);
}
