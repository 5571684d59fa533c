//! A daemon that is killed and restarted: its files are there, its runs continued, and leftovers are removed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use paddock::engine::{
    ContainerId, ContainerSpec, HostConfig, Mount, MountType, VolumeName, VolumeOptions, VolumeSpec,
};
use serde_json::json;
use tokio::try_join;

use crate::support::{Cleared, Daemon, PATIENCE, Store, View};

/// A started daemon has removed everything without a purpose within this time.
const TIDY: Duration = Duration::from_secs(15);

/// Time until two sweeps have come.
const SWEPT: Duration = Duration::from_secs(90);

async fn ids(d: &Daemon) -> BTreeSet<ContainerId> {
    d.view().await.containers().await.into_iter().map(|container| container.id).collect()
}

/// A program that was begun stands here until [`go_on`].
const UNTIL_GO: &str = "until [ -e /tmp/go ]; do sleep 0.05; done";

async fn go_on(view: &View, container: &ContainerId) {
    assert_eq!(view.exec(container, &["touch", "/tmp/go"]).await, "");
}

/// Kills the daemon in the middle of a call, after the program wrote its first line.
async fn crash_in_mid_run(d: Daemon, session: &str, code: &str) -> Store {
    crash_in_mid_run_of(d, "sh", session, code).await
}

async fn crash_in_mid_run_of(d: Daemon, language: &str, session: &str, code: &str) -> Store {
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "run_code", "arguments": {
            "language": language, "code": code, "conversationId": session,
        } },
    });
    let view = d.view().await;
    let container = view.the_container(language).await;
    let request = d.request("POST", "/mcp").json(&call);
    let calling = tokio::spawn(async move { request.try_send().await });
    // A file outside of /data says that the program runs.
    view.begun(&container).await;
    let store = d.crash().await;
    let answer = calling.await.expect("a call");
    assert!(answer.is_none_or(|answer| answer.status >= 500), "nobody could have answered");
    store
}

#[tokio::test]
async fn idle_containers_are_taken_over_and_a_session_continues_in_its_own_container() {
    let d = Daemon::with().set("pool.idle", 1).start().await;
    for language in ["python", "typescript", "sh"] {
        d.log.line(&format!("armed language={language} ")).await;
    }
    let mark = d.log.mark();
    d.session("s").sh("echo kept > f; ln -s f l; mkdir -p d/e; echo here > /tmp/mark").await.expect_success();
    d.session("s").python("open('g', 'w').write('py')").await.expect_success();
    d.log.mark_behind(mark, "armed language=python ").await;
    d.log.line_since(mark, "armed language=sh ").await;
    let before = ids(&d).await;
    assert_eq!(before.len(), 5);
    let store = d.crash().await;

    let d = Daemon::with().set("pool.idle", 1).store(&store).start().await;
    assert_eq!(ids(&d).await, before, "none is removed, none is started");
    // Files that only the container has are there too: it is the same one.
    d.session("s").sh("cat f l g /tmp/mark; ls -d d/e").await.expect_stdout("kept\nkept\npyhere\nd/e\n");
    d.session("s").python("print(open('f').read() + open('g').read())").await.expect_stdout("kept\npy\n");
    assert_eq!(ids(&d).await, before);
    // A container that was idle before serves a new session.
    d.session("t").sh("ls /data; [ -e /tmp/mark ] || echo fresh").await.expect_stdout("fresh\n");
    assert!(ids(&d).await.is_superset(&before));
    d.stop().await;
}

#[tokio::test]
async fn a_saved_file_that_was_not_sent_to_the_container_is_sent_after_the_crash() {
    let d = Daemon::start().await;
    let s = d.session("s");
    s.sh("echo old > f; echo gone > g; echo same > h").await.expect_success();
    s.upload("f", b"new").await.expect_success();
    s.python("import os; os.remove('g'); open('p', 'w').write('p')").await.expect_success();
    let store = d.crash().await;
    let d = Daemon::with().store(&store).start().await;
    d.session("s").sh("cat f p h; ls").await.expect_stdout("newpsame\nf\nh\np\n");
    d.stop().await;
}

#[tokio::test]
async fn a_run_in_progress_is_followed_to_its_end() {
    let d = Daemon::start().await;
    d.session("s").sh("echo before > a").await.expect_success();
    let code = format!(
        "echo first line; echo part > b; touch /tmp/begun; {UNTIL_GO}; rm a; \
         echo whole > b; echo last line; exit 3"
    );
    let view = d.view().await;
    let container = view.the_container("sh").await;
    let store = crash_in_mid_run(d, "s", &code).await;
    let d = Daemon::with().store(&store).start().await;
    go_on(&view, &container).await;
    // The next call waits for its turn.
    let next = d.session("s").sh("ls; cat b").await.expect_stdout("b\nwhole\n");
    let told = &next.document["earlier_runs"][0];
    assert_eq!((&told["exit_code"], &told["success"]), (&json!(3), &json!(false)), "{told}");
    assert_eq!(told["artifacts"][0]["filename"], "b", "{told}");
    let log = d.fetch(told["log_url"].as_str().expect("a log")).await.expect(200);
    assert_eq!(log.text(), "first line\nlast line\n");
    // It is reported only once.
    let next = d.session("s").sh("true").await.expect_success();
    assert!(next.document.get("earlier_runs").is_none(), "{}", next.document);
    d.stop().await;
}

#[tokio::test]
async fn files_of_a_run_that_is_lost_while_it_is_followed_are_saved() {
    let d = Daemon::start().await;
    d.session("s").sh("echo before > a").await.expect_success();
    let store = crash_in_mid_run(d, "s", "echo made > b; touch /tmp/begun; sleep 60").await;
    let d = Daemon::with().store(&store).start().await;
    d.log.line("a session has its container again").await;
    let view = d.view().await;
    view.engine.container_pause(&view.the_container("sh").await).await.expect("paused");
    let next = d.session("s").sh("cat a b").await.expect_stdout("before\nmade\n");
    let told = &next.document["earlier_runs"][0];
    assert_eq!(told["error"], "lost", "{told}");
    assert_eq!(told["artifacts"][0]["filename"], "b", "{told}");
    assert!(told["message"].as_str().is_some_and(|text| text.contains("were saved")), "{told}");
    d.stop().await;
}

#[tokio::test]
async fn code_that_floods_the_agent_cannot_exclude_the_daemon() {
    let d = Daemon::start().await;
    d.session("s").python("open('a', 'w').write('before')").await.expect_success();
    let code = "import socket, threading, time\n\
        open('made', 'w').write('while nobody was there')\n\
        end, held = time.time() + 8, []\n\
        def flood():\n    \
            while time.time() < end:\n        \
                s = socket.socket(socket.AF_UNIX)\n        \
                try: s.connect('\\0paddock-agent')\n        \
                except OSError: time.sleep(0.001)\n        \
                held.append(s)\n        \
                del held[:-100]\n\
        all = [threading.Thread(target=flood) for _ in range(2)]\n\
        [t.start() for t in all]\n\
        open('/tmp/begun', 'w')\n\
        [t.join() for t in all]\nprint('flooded')";
    let store = crash_in_mid_run_of(d, "python", "s", code).await;
    let d = Daemon::with().store(&store).start().await;
    let next = d.session("s").python("print(open('made').read())").timeout(60.0).await;
    let told = &next.expect_stdout("while nobody was there\n").document["earlier_runs"][0];
    assert_eq!(told["success"], true, "{told}");
    d.stop().await;
}

#[tokio::test]
async fn a_run_that_lost_two_daemons_is_followed_to_its_end_as_well() {
    let d = Daemon::start().await;
    d.session("s").sh("true").await.expect_success();
    let code = format!("yes line | head -c 300000; touch /tmp/begun; {UNTIL_GO}; echo end; echo made > f");
    let view = d.view().await;
    let container = view.the_container("sh").await;
    let store = crash_in_mid_run(d, "s", &code).await;
    let d = Daemon::with().store(&store).start().await;
    let store = d.crash().await;
    let d = Daemon::with().store(&store).start().await;
    go_on(&view, &container).await;
    let next = d.session("s").sh("cat f").await.expect_stdout("made\n");
    let told = &next.document["earlier_runs"][0];
    assert_eq!(told["exit_code"], 0, "{told}");
    let log = d.fetch(told["log_url"].as_str().expect("a log")).await.expect(200).text();
    assert_eq!(log.len(), 300_000 + "end\n".len());
    assert!(log.starts_with("line\nline\n") && log.ends_with("line\nend\n"));
    d.stop().await;
}

#[tokio::test]
async fn a_run_that_ended_without_a_daemon_is_reported_as_well() {
    let d = Daemon::start().await;
    d.session("s").sh("echo before > a").await.expect_success();
    let view = d.view().await;
    let container = view.the_container("sh").await;
    let code = format!(
        "echo first line; touch /tmp/begun; {UNTIL_GO}; echo after > b; rm a; \
         echo last line; touch /tmp/ended"
    );
    let store = crash_in_mid_run(d, "s", &code).await;
    go_on(&view, &container).await;
    // Nothing reports when PID 1 has cleaned up after it; this is most likely long enough.
    let ended = "until [ -e /tmp/ended ]; do sleep 0.02; done; sleep 0.5; echo seen";
    assert_eq!(view.exec(&container, &["sh", "-c", ended]).await, "seen\n");
    let d = Daemon::with().store(&store).start().await;
    let next = d.session("s").sh("ls; cat b").await.expect_stdout("b\nafter\n");
    let told = &next.document["earlier_runs"][0];
    assert_eq!(told["exit_code"], 0, "{told}");
    let log = d.fetch(told["log_url"].as_str().expect("a log")).await.expect(200);
    assert_eq!(log.text(), "first line\nlast line\n");
    d.stop().await;
}

#[tokio::test]
async fn a_file_deleted_after_a_crash_during_collection_stays_deleted() {
    let d = Daemon::start().await;
    d.session("s").sh("echo 1 > old; echo 2 > kept").await.expect_success();
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "run_code", "arguments": {
            "language": "sh", "code": "head -c 200000000 /dev/zero > aaa", "conversationId": "s" } },
    });
    let request = d.request("POST", "/mcp").json(&call);
    let calling = tokio::spawn(async move { request.try_send().await });
    // Nothing else shows that files are being collected.
    let tmp = d.store.path().join("tmp");
    let staged = || {
        let files = std::fs::read_dir(&tmp).expect("tmp").flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum::<u64>()
    };
    while staged() < 8 << 20 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let store = d.crash().await;
    drop(calling.await);
    let d = Daemon::with().store(&store).start().await;
    let told = d.session("s").sh("ls").await.expect_stdout("aaa\nkept\nold\n");
    assert_eq!(told.document["earlier_runs"][0]["exit_code"], 0, "{}", told.document);
    d.request("DELETE", "/sessions/s/files/old").send().await.expect(204);
    let after = d.session("s").sh("ls; echo more >> kept").await.expect_stdout("aaa\nkept\n");
    assert_eq!(after.artifacts(), ["/mnt/data/kept"]);
    d.stop().await;
}

#[tokio::test]
async fn a_run_in_progress_delays_neither_the_start_nor_the_stop() {
    let d = Daemon::start().await;
    d.session("s").python("open('p', 'w').write('py')").await.expect_success();
    d.session("s").sh("true").await.expect_success();
    let store = crash_in_mid_run(d, "s", "echo part > f; touch /tmp/begun; sleep 25").await;
    let begun = Instant::now();
    let d = Daemon::with().store(&store).start().await;
    assert_eq!(d.view().await.containers().await.len(), 2, "both were given back");
    assert!(begun.elapsed() < TIDY, "{:?}", begun.elapsed());
    // Other sessions are served meanwhile; the stop ends the run and saves its files.
    d.session("t").sh("echo other").await.expect_stdout("other\n");
    let begun = Instant::now();
    d.stop().await;
    assert!(begun.elapsed() < TIDY, "{:?}", begun.elapsed());
    let d = Daemon::with().store(&store).start().await;
    d.session("s").sh("cat f p").await.expect_stdout("part\npy");
    d.stop().await;
}

#[tokio::test]
async fn a_run_whose_container_is_gone_is_reported_lost_and_not_repeated() {
    let d = Daemon::start().await;
    d.session("s").sh("echo kept > a").await.expect_success();
    let view = d.view().await;
    let container = view.the_container("sh").await;
    let store = crash_in_mid_run(d, "s", "echo x >> a; touch /tmp/begun; sleep 60").await;
    view.kill(&container).await;
    let d = Daemon::with().store(&store).start().await;
    let next = d.session("s").sh("cat a").await.expect_stdout("kept\n");
    let told = &next.document["earlier_runs"][0];
    assert_eq!((&told["error"], &told["exit_code"]), (&json!("lost"), &json!(-1)), "{told}");
    assert!(told.get("log_url").is_none(), "{told}");
    d.stop().await;
}

#[tokio::test]
async fn unknown_leftovers_are_removed_while_the_daemon_runs() {
    let d = Daemon::start().await;
    d.session("s").sh("true").await.expect_success();
    let view = d.view().await;
    let mine = ids(&d).await;
    let labels = [("app", "paddock".to_owned()), ("paddock.owner", d.store.owner())];
    let labels: std::collections::BTreeMap<_, _> = labels.map(|(k, v)| (k.to_owned(), v)).into();
    let spec = ContainerSpec {
        image: "paddock-example-sh".into(),
        labels: labels.clone(),
        ..ContainerSpec::default()
    };
    let mut events = view.follow().await;
    let stray = view.engine.container_create(None, &spec).await.expect("a stray").id;
    let name = format!("paddock-stray-{}", std::process::id()).parse().expect("a name");
    view.engine.volume_create(&VolumeSpec { labels, ..VolumeSpec::local(name) }).await.expect("a stray");
    // The first sweep comes some seconds after the start, perhaps before this; the next a minute later.
    events.removal_of(&stray, SWEPT).await;
    let begun = Instant::now();
    while view.volumes().await.len() > 1 {
        assert!(begun.elapsed() < SWEPT, "the volume is left");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(ids(&d).await, mine);
    // What comes after the last sweep is removed at the end.
    view.engine.container_create(None, &spec).await.expect("a stray");
    d.stop().await;
}

#[tokio::test]
async fn a_container_that_ends_between_two_calls_is_removed_at_once() {
    let d = Daemon::start().await;
    d.session("s").sh("echo kept > f").await.expect_success();
    let view = d.view().await;
    let mut events = view.follow().await;
    let container = view.the_container("sh").await;
    view.kill(&container).await;
    events.removal_of(&container, PATIENCE).await;
    assert_eq!(std::fs::read_dir(d.store.path().join("leases")).expect("leases").count(), 0);
    d.session("s").sh("cat f").await.expect_stdout("kept\n");
    d.stop().await;
}

#[tokio::test]
async fn an_outdated_container_is_removed_and_that_of_another_owner_is_not() {
    let d = Daemon::with().set("pool.idle", 1).start().await;
    d.log.line("armed language=sh ").await;
    d.session("s").sh("echo acknowledged > f").await.expect_success();
    let view = d.view().await;
    let store = d.crash().await;
    let left: Vec<_> = view.containers().await.into_iter().map(|container| container.id).collect();
    assert!(left.len() >= 2, "{left:?}");

    // Paddock's by every sign but the owner.
    let prefix = format!("paddock-{}", &store.owner()[..8]);
    let another = format!("not-{}", store.owner());
    let _cleared = Cleared::of(&another);
    let labels = [("app", "paddock"), ("paddock.owner", another.as_str()), ("paddock.runner", "sh")];
    let labels: std::collections::BTreeMap<_, _> = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let spec = ContainerSpec {
        image: "paddock-example-sh".into(),
        labels: labels.clone(),
        ..ContainerSpec::default()
    };
    let decoy = view
        .engine
        .container_create(Some(&format!("{prefix}-20000-decoy")), &spec)
        .await
        .expect("a decoy")
        .id;
    let volume =
        VolumeSpec { labels, ..VolumeSpec::local(format!("{prefix}-20001-decoy").parse().expect("a name")) };
    view.engine.volume_create(&volume).await.expect("a decoy");

    let mut events = view.follow().await;
    let d = Daemon::with().set("limits.pids", 99).store(&store).start().await;
    events.removal_of_all(&left, PATIENCE).await;
    assert!(!d.log.text().contains("has its container again"), "{}", d.log.text());
    let now = view.containers().await;
    assert!(now.iter().all(|container| !left.contains(&container.id)), "{now:?}");
    d.session("s").sh("cat f").await.expect_stdout("acknowledged\n");
    d.stop().await;
    let decoys = try_join!(view.engine.container_inspect(&decoy), view.engine.volume_inspect(&volume.name));
    decoys.expect("the decoys were left alone");
}

#[tokio::test]
async fn the_agents_volumes_of_earlier_builds_are_removed_unless_they_are_used_or_another_owners() {
    let d = Daemon::start().await;
    let (store, view) = (d.store.clone(), d.view().await);
    d.stop().await;
    let owner = store.owner();
    let another = format!("not-{owner}");
    let _cleared = Cleared::of(&another);

    let volume = async |first: char, made_by: &str| {
        let name: VolumeName = format!("paddock-agent-{first}{}", &owner[..15]).parse().expect("a name");
        let labels = [("app", "paddock-agent"), ("paddock.made-by", made_by)];
        let labels = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let spec = VolumeSpec { labels, ..VolumeSpec::local(name.clone()) };
        view.engine.volume_create(&spec).await.expect("a volume");
        name
    };
    let [unused, used, foreign] =
        [volume('0', &owner).await, volume('1', &owner).await, volume('2', &another).await];
    // A container of another daemon uses one of them.
    let labels = [("app", "paddock"), ("paddock.owner", another.as_str())];
    let mount = Mount {
        kind: MountType::Volume,
        source: used.to_string(),
        target: "/used".to_owned(),
        read_only: true,
        volume_options: Some(VolumeOptions { no_copy: true, ..VolumeOptions::default() }),
        bind_options: None,
    };
    let spec = ContainerSpec {
        image: "paddock-example-sh".into(),
        labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        host_config: HostConfig { mounts: vec![mount], ..HostConfig::default() },
        ..ContainerSpec::default()
    };
    let user = view.engine.container_create(None, &spec).await.expect("a container").id;
    let left = async || {
        let mut left = Vec::new();
        for name in [&unused, &used, &foreign] {
            if view.engine.volume_inspect(name).await.is_ok() {
                left.push(name.clone());
            }
        }
        left
    };

    let d = Daemon::with().store(&store).start().await;
    let (first, log) = (left().await, d.log.text());
    d.session("s").sh("echo served").await.expect_stdout("served\n");
    d.stop().await;
    view.engine.container_remove(&user).await.expect("removed");
    let d = Daemon::with().store(&store).start().await;
    let second = left().await;
    d.stop().await;
    for name in &second {
        view.engine.volume_remove(name).await.expect("removed");
    }
    assert_eq!(first, [used, foreign.clone()]);
    assert!(log.contains("removed the agent's volumes of earlier builds volumes=1"), "{log}");
    assert_eq!(second, [foreign]);
}

/// A daemon that may trace takes the standing pair of a container, and so does the daemon after it. One
/// that may not needs an exec each time.
#[tokio::test]
async fn no_container_costs_an_exec_where_the_daemon_may_trace() {
    for may_trace in [true, false] {
        let setup = || {
            let setup = Daemon::with().set("pool.idle", 0);
            if may_trace { setup } else { setup.without_tracing() }
        };
        let d = setup().start().await;
        let mut happenings = d.view().await.follow().await;
        d.session("s").sh("echo kept > /tmp/f").await.expect_success();
        let id = d.view().await.the_container("sh").await;
        let store = d.crash().await;
        let d = setup().store(&store).start().await;
        let s = d.session("s");
        s.sh("cat /tmp/f").await.expect_stdout("kept\n");
        s.tool("close_session").await.expect_success();
        let execs = happenings.execs_until_removal_of(&id).await;
        assert!(if may_trace { execs == 0 } else { execs >= 2 }, "{execs}, may trace: {may_trace}");
        d.stop().await;
    }
}
