//! Tenants side by side: how much each container weighs, which processors it has, and that a flood of every
//! kind takes nothing of what another tenant may have. Facts only, no times: those are the benchmark's.

#[path = "neighbours/kernel.rs"]
mod kernel;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::kernel::{in_steps, numbers, processors, processors_of, shares};
use crate::support::{Daemon, EngineProxy, Mode, PATIENCE, Request, Setup, Store, engine_host, within};
use crate::tenants::{add, call, daemon, document, metrics, python};

const SLEEP: &str = "import time; time.sleep(300)";

/// Waits until all threads of the daemon may run on all of these processors but those to which a container is
/// confined.
async fn daemon_keeps_off(d: &Daemon, all: &str) {
    within(PATIENCE, "the threads of the daemon on the other processors", async {
        loop {
            let mut left = numbers(all);
            for (list, _) in counts(d, processors).await.iter().filter(|(list, _)| *list != all) {
                left.retain(|number| !numbers(list).contains(number));
            }
            let own: Vec<BTreeSet<usize>> = processors_of(d).iter().map(|list| numbers(list)).collect();
            if left != numbers(all) && own == [left] {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// The bounds of a container but for its weight and its processors.
fn bounds(id: &str) -> Option<String> {
    let all =
        ["Memory", "MemorySwap", "NanoCpus", "PidsLimit"].map(|name| format!("{{{{.HostConfig.{name}}}}}"));
    inspected(id, &all.join(" "))
}

/// What the engine says of a container.
fn inspected(id: &str, format: &str) -> Option<String> {
    let inspected =
        Command::new("docker").args(["inspect", "--format", format, id]).output().expect("docker");
    Some(String::from_utf8(inspected.stdout).expect("text").trim().to_owned())
}

/// For each value that `of` returns for a container: how many containers have it. A container that has not
/// started has none.
async fn counts<T: Ord>(d: &Daemon, of: fn(&str) -> Option<T>) -> BTreeMap<T, usize> {
    let mut all = BTreeMap::new();
    for container in d.view().await.containers().await {
        if let Some(same) = of(container.id.as_str()) {
            *all.entry(same).or_default() += 1;
        }
    }
    all
}

/// Waits until `has` accepts these counts.
async fn come_to<T: Ord>(
    d: &Daemon,
    of: fn(&str) -> Option<T>,
    what: &str,
    has: impl Fn(&BTreeMap<T, usize>) -> bool,
) {
    within(PATIENCE, what, async {
        while !has(&counts(d, of).await) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

/// Calls again and again for a tenant, without end. A tenant that does nothing for some seconds is not at
/// work, and others then have its part of the processors.
async fn works(d: &Daemon, token: &str) {
    loop {
        call(d, token, "get_sandbox_status", json!({ "session_id": "s" })).send().await.expect(200);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until a tenant uses so many of this kind.
async fn uses(d: &Daemon, tenant: &str, kind: &str, count: usize) {
    let line = format!(r#"paddock_tenant_in_use{{kind="{kind}",tenant="{tenant}"}} {count}"#);
    within(PATIENCE, &line, async {
        while !metrics(d).await.lines().any(|one| one == line) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// Processes of the host, those of containers too, that have this word on their command line.
fn programs_with(word: &str) -> usize {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let words = all.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    words.filter(|words| words.split(|byte| *byte == 0).any(|one| one == word.as_bytes())).count()
}

async fn close(d: &Daemon, token: &str, session: &str) {
    let arguments = json!({ "session_id": session, "delete_files": true });
    call(d, token, "close_session", arguments).send().await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_busy_containers_of_a_tenant_weigh_together_what_the_one_of_another_does() {
    weighed_together(0, |setup| setup).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_sees_no_control_groups_asks_the_engine_to_weigh() {
    weighed_together(4, without_groups).await;
}

/// A daemon that does not see the control groups of containers, as in a container of its own.
fn without_groups(setup: Setup) -> Setup {
    let hidden = "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
    setup.under(&["unshare", "--mount", "sh", "-c", hidden, "sh"])
}

/// `asked`: how many containers the engine is asked to weigh.
async fn weighed_together(asked: usize, started: fn(Setup) -> Setup) {
    let store = Store::new();
    let (many, one) = (add(&store, &["many"]), add(&store, &["one"]));
    let setup: Setup = daemon().store(&store).set("pool.idle", 0).set("sessions.max", 8);
    let d = started(setup).start().await;
    let mut running = JoinSet::new();
    running.spawn(python(&d, &one, "s", SLEEP).try_send());
    for n in 0..4 {
        running.spawn(python(&d, &many, &format!("m{n}"), SLEEP).try_send());
    }
    uses(&d, "many", "runs", 4).await;
    uses(&d, "one", "runs", 1).await;
    // A weight that differs by less than a half stays: containers that came later are not heavier by more.
    let is_light = |now: &BTreeMap<u64, usize>| {
        let changed = now.iter().filter(|(weight, _)| **weight < 1024);
        let (count, sum) =
            changed.fold((0, 0), |(count, sum), (weight, n)| (count + n, sum + weight * *n as u64));
        now.get(&1024) == Some(&1) && count == 4 && (683..=1536).contains(&sum)
    };
    come_to(&d, shares, "four light containers", is_light).await;
    let by_engine = counts(&d, |id| inspected(id, "{{.HostConfig.CpuShares}}")).await;
    assert_eq!(by_engine.get("0").copied().unwrap_or_default(), 5 - asked, "{by_engine:?}");
    // Nothing else of them has changed.
    let others = counts(&d, bounds).await;
    assert!(others.len() == 1 && others.keys().all(|other| !other.starts_with('0')), "{others:?}");
    // The last one has the whole part of its tenant again.
    for n in 1..4 {
        close(&d, &many, &format!("m{n}")).await;
    }
    come_to(&d, shares, "a container that is whole again", |now| *now == BTreeMap::from([(1024, 2)])).await;
    running.abort_all();
    d.stop().await;
}

/// Waits, while the other tenant works, until so many containers of a tenant of weight 1 weigh together a
/// quarter of what its part is beside one of weight 64.
async fn weighs_a_quarter(d: &Daemon, little: &str, containers: usize) {
    let each = in_steps(1024 / 64 / 4 / containers as u64);
    let weights = BTreeMap::from([(1024, 1), (each, containers)]);
    tokio::select! {
        () = works(d, little) => {}
        () = come_to(d, shares, "containers of a quarter", |now| *now == weights) => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_container_of_a_tenant_that_used_more_than_its_part_weighs_a_quarter() {
    let store = Store::new();
    // The part of the first one is so small that it uses more, whatever else the machine does.
    let (much, little) = (add(&store, &["much"]), add(&store, &["little", "--weight", "64"]));
    let setup: Setup = daemon().store(&store).set("pool.idle", 0);
    let d = setup.start().await;
    let mut running = JoinSet::new();
    running.spawn(python(&d, &little, "s", SLEEP).try_send());
    running.spawn(python(&d, &much, "m", "while True: pass").try_send());
    weighs_a_quarter(&d, &little, 1).await;
    running.abort_all();
    d.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_used_more_than_its_part_leaves_a_processor_to_others_as_long_as_they_work() {
    leaves_a_processor(|setup| setup).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_sees_no_control_groups_asks_the_engine_for_that_too() {
    leaves_a_processor(without_groups).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_refuses_the_processors_is_asked_for_the_weight_alone() {
    let proxy = EngineProxy::of(&engine_host().to_string());
    proxy.set(Mode::RefusingThese("CpusetCpus"));
    let store = Store::new();
    let (much, little) = (add(&store, &["much"]), add(&store, &["little", "--weight", "64"]));
    let setup: Setup = daemon().store(&store).set("pool.idle", 0).env("DOCKER_HOST", &proxy.host());
    let d = without_groups(setup).start().await;
    let mut running = JoinSet::new();
    running.spawn(python(&d, &little, "s", SLEEP).try_send());
    running.spawn(python(&d, &much, "m", "while True: pass").try_send());
    weighs_a_quarter(&d, &little, 1).await;
    // At a later look it is asked for another weight.
    running.spawn(python(&d, &much, "m2", "while True: pass").try_send());
    weighs_a_quarter(&d, &little, 2).await;
    assert_eq!(counts(&d, processors).await.len(), 1, "all have all processors");
    assert_eq!(proxy.refused(), 1, "the engine is asked for processors once");
    running.abort_all();
    d.stop().await;
}

async fn leaves_a_processor(started: fn(Setup) -> Setup) {
    let store = Store::new();
    let (much, little) = (add(&store, &["much"]), add(&store, &["little", "--weight", "64"]));
    let setup: Setup = daemon().store(&store).set("pool.idle", 0);
    let d = started(setup).start().await;
    let mut running = JoinSet::new();
    let endless = json!({ "command": "python3 -c 'while True: pass'", "session_id": "m" });
    document(&call(&d, &much, "execute_code_async", endless).send().await.expect(200));
    running.spawn(python(&d, &little, "s", SLEEP).try_send());
    uses(&d, "much", "executions", 1).await;
    uses(&d, "little", "runs", 1).await;
    let of_all = ["cpuset/cpuset.effective_cpus", "cpuset.cpus.effective"];
    let all =
        of_all.iter().find_map(|file| std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(file)).ok());
    let all = all.expect("the processors of this machine").trim().to_owned();
    // One of the two containers has only some of them.
    let some = |now: &BTreeMap<String, usize>| now.len() == 2 && now.get(&all) == Some(&1);
    let whole = BTreeMap::from([(all.clone(), 2)]);
    let is_confined = async {
        come_to(&d, processors, "a container on some processors", some).await;
        daemon_keeps_off(&d, &all).await;
    };
    tokio::select! {
        () = works(&d, &little) => {}
        () = is_confined => {}
    }
    for container in d.view().await.containers().await {
        let id = container.id.as_str();
        let (is_light, is_confined) = (shares(id) < Some(1024), processors(id).as_ref() != Some(&all));
        assert_eq!(is_confined, is_light, "it is the container of the same tenant");
    }
    // The daemon that comes after this one knows nothing of a debt.
    let store = d.crash().await;
    running.abort_all();
    let setup: Setup = daemon().store(&store).set("pool.idle", 0);
    let d = started(setup).start().await;
    come_to(&d, processors, "all processors for everybody", |now| *now == whole).await;
    // But what goes on is counted, and a container that was there before is one like any other.
    tokio::select! {
        () = works(&d, &little) => {}
        () = come_to(&d, processors, "a container on some processors again", some) => {}
    }
    come_to(&d, processors, "all processors for the one that is alone", |now| *now == whole).await;
    within(PATIENCE, "all processors for the threads of the daemon", async {
        while processors_of(&d) != BTreeSet::from([all.clone()]) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    d.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_containers_of_a_tenant_that_is_alone_are_left_as_they_are() {
    let d = Daemon::with().set("pool.idle", 0).start().await;
    let mut running = JoinSet::new();
    for n in 0..2 {
        let arguments = json!({ "language": "python", "code": SLEEP, "conversationId": format!("m{n}") });
        running.spawn(call(&d, crate::support::TOKEN, "run_code", arguments).try_send());
    }
    come_to(&d, shares, "two containers", |now| now.values().sum::<usize>() == 2).await;
    // The looks of more than a second.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(counts(&d, shares).await, BTreeMap::from([(1024, 2)]));
    running.abort_all();
    d.stop().await;
}

/// What a caller of the flood sends, again and again.
fn flood(addr: SocketAddr, token: &str, n: usize) -> Request {
    let post = |document: Value| {
        Request::new(addr, "POST", "/mcp").header("accept", "application/json").bearer(token).json(&document)
    };
    let tool = |name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments });
        post(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }))
    };
    let code = "import time; time.sleep(0.2); open('f', 'w').write('x' * 100_000)";
    let session = format!("f{}", n % 12);
    match n % 8 {
        0..3 => tool("run_code", json!({ "language": "python", "code": code, "conversationId": session })),
        3 => tool("run_code", json!({ "language": "python", "code": code })),
        4 => tool("execute_code_async", json!({ "command": "timeout 2 yes", "session_id": session })),
        5 => Request::new(addr, "PUT", &format!("/sessions/{session}/files/large"))
            .bearer(token)
            .body(vec![b'x'; 2_000_000]),
        6 => post(json!({ "jsonrpc": "2.0", "id": 1, "method": "no/such" })),
        _ => Request::new(addr, "GET", "/status").bearer("no-token"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_every_kind_takes_nothing_of_what_another_tenant_may_have() {
    let store = Store::new();
    let of_all = ["--limit", "sessions=2", "--limit", "runs=2", "--limit", "executions=2"];
    let quiet = add(&store, &[&["quiet", "--limit", "stored_bytes=1MiB"], &of_all[..]].concat());
    let other = add(&store, &["flood"]);
    let setup: Setup = daemon().store(&store).set("pool.idle", 1).set("sessions.max", 5).set("exec.max", 4);
    let d = setup.set("pool.queue", 24).set("store.max_files", 40_000).start().await;
    let (mut callers, over) = (JoinSet::new(), CancellationToken::new());
    for n in 0..48 {
        let (addr, token, over) = (d.addr, other.clone(), over.clone());
        callers.spawn(async move {
            let mut answered = 0_u32;
            while !over.is_cancelled() {
                answered += u32::from(flood(addr, &token, n).try_send().await.is_some());
                // It is made on the same processors as what is tested.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answered
        });
    }
    uses(&d, "flood", "sessions", 4).await;
    uses(&d, "flood", "executions", 3).await;

    // Both sessions, with a run in each at the same time.
    let mut running = JoinSet::new();
    let seconds = format!("300.{}", std::process::id());
    let code = format!("import os; os.execvp('sleep', ['sleep', '{seconds}'])");
    for session in ["q1", "q2"] {
        running.spawn(python(&d, &quiet, session, &code).try_send());
    }
    // Closing a session refuses a run that still waits for its container: both programs have begun.
    within(PATIENCE, "both programs", async {
        while programs_with(&seconds) < 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    uses(&d, "quiet", "runs", 2).await;
    uses(&d, "quiet", "sessions", 2).await;
    for session in ["q1", "q2"] {
        close(&d, &quiet, session).await;
    }
    running.abort_all();
    // Both executions.
    for session in ["q1", "q2"] {
        let arguments = json!({ "command": "sleep 300", "session_id": session });
        let begun = document(&call(&d, &quiet, "execute_code_async", arguments).send().await.expect(200));
        assert!(begun["execution_id"].is_string(), "{begun}");
    }
    uses(&d, "quiet", "executions", 2).await;
    for session in ["q1", "q2"] {
        close(&d, &quiet, session).await;
    }
    // All of its bytes, to the last one that fits.
    let put = |name: &str| {
        let path = format!("/sessions/kept/files/{name}");
        Request::new(d.addr, "PUT", &path).bearer(&quiet).body(vec![b'q'; 300_000])
    };
    for name in ["a", "b", "c"] {
        let answer = put(name).send().await;
        assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    }
    let full = put("d").send().await.expect(507).json();
    assert_eq!(full["limit"]["name"], "stored_bytes", "{full}");
    for name in ["a", "b", "c"] {
        let path = format!("/sessions/kept/files/{name}");
        let read = Request::new(d.addr, "GET", &path).bearer(&quiet).send().await.expect(200);
        assert_eq!(read.text().len(), 300_000);
    }
    let text = metrics(&d).await;
    over.cancel();
    let mut answered = 0;
    while let Some(ended) = within(PATIENCE, "an end of the flood", callers.join_next()).await {
        answered += ended.expect("a caller");
    }
    eprintln!("{answered} requests of the flood were answered meanwhile");
    // Nothing of the quiet tenant was refused but what its own limit refuses.
    for line in text.lines().filter(|line| line.contains(r#"tenant="quiet""#)) {
        let is_refusal = line.starts_with("paddock_tenant_limits_hit_total") || line.contains("refused");
        let expected = line.contains("stored_bytes") || line.ends_with(" 0");
        assert!(!is_refusal || expected, "{line}");
    }
    d.stop().await;
}
