//! Other runtimes and other engines: gVisor (Debian's `runsc`) for one runner or for all, an engine that maps
//! users, and a rootless one. The engines are private to the tests.

use serde_json::Value;

use crate::doctor::look::Look;
use crate::doctor::wrapped::runtimes;
use crate::support::{Daemon, Image, PATIENCE, PrivateEngine, Session, Setup, View};

const IMAGE: &str = "paddock-example-sh";
/// What gVisor needs to be confined as it must be.
const CONFINED: (&str, &[&str]) = ("runsc", &["--oci-seccomp"]);
/// gVisor as most people configure it: it leaves the seccomp profile out.
const BARE: (&str, &[&str]) = ("runsc-bare", &[]);
/// What every kernel of gVisor calls itself.
const GVISOR: &str = "4.4.0\n";

fn own_kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release")
}

async fn gvisor() -> PrivateEngine {
    let engine = PrivateEngine::with_gvisor(&[CONFINED, BARE], &[]).await;
    engine.load(IMAGE);
    engine
}

fn on(engine: &PrivateEngine) -> Setup {
    Daemon::with().env("DOCKER_HOST", &engine.host()).set("exec.runner", "sh")
}

async fn view(engine: &PrivateEngine, d: &Daemon) -> View {
    View::on(&engine.host().parse().expect("a host"), &d.store.owner()).await
}

/// The runtime of the only container of this language.
async fn runtime_of(view: &View, language: &str) -> String {
    let container = view.the_container(language).await;
    let answer = view.inspect(&container).await;
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let said: Value = serde_json::from_str(body).expect("JSON");
    said["HostConfig"]["Runtime"].as_str().expect("a runtime").to_owned()
}

/// What holds of every session, whatever runs it.
async fn works(s: &Session<'_>) {
    s.sh("echo hello; echo kept > f").await.expect_stdout("hello\n");
    s.upload("dir/g", b"uploaded").await.expect_success();
    s.sh("cat f dir/g; echo made > h").await.expect_stdout("kept\nuploaded");
    s.sh("exit 7").await.expect_exit(7);
    let commanded = s.tool("execute_code").with("command", "echo commanded; cat h").await;
    assert_eq!(commanded.command_stdout(), "commanded\nmade\n", "{}", commanded.document);
    s.sh("sleep 60").timeout(1.0).await.expect_limit(Some("wall_time"));
    // Whatever a run leaves behind dies with it, even what detaches itself.
    let left = "for n in 1 2 3; do (setsid sh -c 'trap \"\" TERM HUP; sleep 77' & ) ; done; echo begun";
    s.sh(left).await.expect_stdout("begun\n");
    let count =
        "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done | grep -c 'sleep 7[7]' || true";
    s.sh(count).await.expect_stdout("0\n");
}

/// PID 1 shows a program nothing, and what a program does to it harms only its own session's container.
async fn protected(seen: &View, s: &Session<'_>, in_gvisor: bool) {
    // gVisor shows the environment and the map of memory of any process of the same user; PID 1 has no secret
    // in them.
    let files = if in_gvisor { "mem" } else { "mem environ maps" };
    let looks = format!(
        "for f in {files}; do head -c 1 /proc/1/$f > /dev/null 2>&1 && echo $f is open; done\n\
         ls /proc/1/fd > /dev/null 2>&1 && echo fd is open\n\
         (echo > /probe) 2> /dev/null && echo the root is open\n\
         head -c 9 /proc/kallsyms 2> /dev/null; echo done"
    );
    s.sh(&looks).await.expect_stdout("done\n");
    // gVisor lets a program kill PID 1, and with it the container.
    let before = seen.the_container("sh").await;
    let mut happenings = seen.follow().await;
    let killed = s.sh("kill -9 1; kill -STOP 1; kill -9 -1; sleep 1").await;
    assert_eq!(killed.exit_code(), if in_gvisor { -1 } else { 137 }, "{}", killed.document);
    if in_gvisor {
        happenings.removal_of(&before, PATIENCE).await;
    }
    s.sh("echo still here; cat f").await.expect_stdout("still here\nkept\n");
}

#[tokio::test]
async fn a_runner_runs_under_gvisor_beside_others_under_runc() {
    let engine = gvisor().await;
    let perl = Image::example("perl");
    engine.load(perl.name());
    let setup = on(&engine).set("runners.perl", perl.name());
    let d = setup.clone().set("runners.sh.runtime", "runsc").start().await;
    assert!(d.log.text().contains("its kernel is its own (4.4.0"), "{}", d.log.text());
    let s = d.session("s");
    works(&s).await;
    s.sh("uname -r").await.expect_stdout(GVISOR);
    protected(&view(&engine, &d).await, &s, true).await;
    // Files follow the session into the container of another runner, under runc.
    s.run("perl", "print `uname -r`; print `cat f`").await.expect_stdout(&format!("{}kept\n", own_kernel()));
    let seen = view(&engine, &d).await;
    assert_eq!([runtime_of(&seen, "sh").await, runtime_of(&seen, "perl").await], ["runsc", "runc"]);

    // Another daemon without that runtime replaces the container, and the files are there. No call waits for
    // the removal of the old one.
    let old = seen.the_container("sh").await;
    let mut happenings = seen.follow().await;
    let store = d.crash().await;
    let d = setup.clone().store(&store).start().await;
    let s = d.session("s");
    s.sh("uname -r; cat f h").await.expect_stdout(&format!("{}kept\nmade\n", own_kernel()));
    happenings.removal_of(&old, PATIENCE).await;
    assert_eq!(runtime_of(&view(&engine, &d).await, "sh").await, "runc");
    // A container that is as it was before lives on.
    let before = view(&engine, &d).await.the_container("sh").await;
    let store = d.crash().await;
    let d = setup.store(&store).start().await;
    d.session("s").sh("cat f").await.expect_stdout("kept\n");
    assert_eq!(view(&engine, &d).await.the_container("sh").await, before);
    d.stop_on(&engine.host()).await;
}

#[tokio::test]
async fn all_runners_run_under_gvisor_with_its_warm_parts_and_bounds() {
    let engine = gvisor().await;
    let perl = Image::example("perl");
    engine.load(perl.name());
    engine.load("paddock-runner-typescript");
    let d = on(&engine).set("engine.runtime", "runsc").set("runners.perl", perl.name());
    let d = d.set("limits.memory", "128MiB").set("pool.idle", 1).start().await;
    let s = d.session("s");
    works(&s).await;
    // A program of Node has threads from its beginning.
    s.run("typescript", "console.log(6 * 7)").await.expect_stdout("42\n");
    s.run("perl", "print 'cold'").await.expect_stdout("cold");
    d.log.line("INFO warm language=perl").await;
    s.run("perl", "print $main::WARM").await.expect_stdout("1");
    // Its control group bounds the whole container: the session goes on in another one, with its files.
    s.run("perl", "my $all = 'x' x 600_000_000; print length $all").await.expect_exit(-1);
    s.run("perl", "print `cat f`").await.expect_stdout("kept\n");
    d.stop_on(&engine.host()).await;
}

#[tokio::test]
async fn a_runtime_that_is_missing_or_confines_too_little_is_refused_by_name() {
    let engine = gvisor().await;
    for (key, what) in
        [("engine.runtime", "engine.runtime"), ("runners.python.runtime", "runners.python.runtime")]
    {
        let refused = on(&engine).set(key, "nosuch").refusal().await;
        let said = format!("{what} is \"nosuch\", and the engine has no runtime of that name: it has ");
        assert!(
            refused.said.contains(&said) && refused.said.contains("runc, runsc, runsc-bare"),
            "{refused:?}"
        );
    }
    // A runtime that is asked for is proved, even if no image uses it yet.
    let refused = on(&engine).set("runners.python.runtime", "runsc-bare").refusal().await;
    let said = "under the runtime runsc-bare are not confined as they must be: seccomp is in mode 0";
    assert!(refused.said.contains(said), "{refused:?}");

    let store = tempfile::tempdir().expect("a folder");
    let look = Look::at(store.path()).engine(&engine.host()).set("exec.runner", "'sh'");
    let plain = look.run().await;
    plain.expect_nothing_failed();
    assert!(plain.found("container/runtime").contains("the kernel of its containers is the engine's"));
    let missing = look.clone().set("runners.sh.runtime", "'nosuch'").run().await;
    missing.expect_failure("engine/runtime", "no runtime nosuch (runners.sh.runtime)", "daemon.json");
    let bare = look.clone().set("engine.runtime", "'runsc-bare'").run().await;
    bare.expect_failure("container/seccomp", "mode 0", "--oci-seccomp");
    let other = look.clone().set("runners.python.runtime", "'runsc-bare'").run().await;
    other.expect_failure(
        "container/other runtime",
        "containers of runsc-bare are not confined",
        "engine.runtime",
    );
    let other = look.clone().set("runners.python.runtime", "'runsc'").run().await;
    other.expect(&plain, &[]);
    assert!(
        other.found("container/other runtime").contains("containers of runsc are confined"),
        "{}",
        other.text
    );
    let whole = look.set("engine.runtime", "'runsc'").run().await;
    whole.expect_nothing_failed();
    for word in ["its kernel is its own (4.4.0", "no snapshot", "alone in its session", "unsupported_policy"]
    {
        assert!(whole.found("container/runtime").contains(word), "{word}: {}", whole.text);
    }
}

/// The name says that it has the kernel of the host, so it may make the network; but it mounts none of the
/// files that the agent's volume has for that.
#[tokio::test]
async fn under_a_runtime_that_leaves_out_the_files_of_names_the_engine_makes_the_network() {
    let (_scripts, flags) = runtimes(["crun"]);
    let engine = PrivateEngine::with_flags(&flags, &[]).await;
    engine.load(IMAGE);
    let d = on(&engine).set("engine.runtime", "crun").start().await;
    let line = d.log.line("now the engine makes it").await;
    assert!(line.contains("runtime=crun") && line.contains("/etc/hosts"), "{line}");
    let s = d.session("s");
    s.sh("head -n 1 /etc/resolv.conf").await.expect_stdout("nameserver 127.0.0.1\n");
    works(&s).await;
    let seen = view(&engine, &d).await;
    assert_eq!(runtime_of(&seen, "sh").await, "crun");
    d.stop_on(&engine.host()).await;

    let store = tempfile::tempdir().expect("a folder");
    let look = Look::at(store.path()).engine(&engine.host()).set("exec.runner", "'sh'");
    let plain = look.run().await;
    assert!(plain.found("container/network").contains("which the runtime makes"), "{}", plain.text);
    let report = look.set("engine.runtime", "'crun'").run().await;
    report.expect_nothing_failed();
    assert!(report.found("container/network").contains("The engine makes it"), "{}", report.text);
}

#[tokio::test]
async fn an_engine_that_maps_users_serves_and_root_in_it_is_nobody() {
    let engine = PrivateEngine::that_maps_users().await;
    engine.load(IMAGE);
    let store = tempfile::tempdir().expect("a folder");
    let report = Look::at(store.path()).engine(&engine.host()).set("exec.runner", "'sh'").run().await;
    report.expect_nothing_failed();
    assert!(report.found("engine/users").contains("maps users"), "{}", report.text);
    let d = on(&engine).start().await;
    let s = d.session("s");
    works(&s).await;
    protected(&view(&engine, &d).await, &s, false).await;
    s.sh("cat /proc/self/uid_map | tr -s ' '").await.expect_stdout(" 0 500000 65536\n");
    let seen = view(&engine, &d).await;
    let container = seen.the_container("sh").await;
    let pid = seen.engine.container_inspect(&container).await.expect("a container").state.pid;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:\t")).expect("a user");
    let uid: u32 = uid.split('\t').next().and_then(|uid| uid.parse().ok()).expect("a number");
    assert!((520_000..=520_999).contains(&uid), "{status}");
    let full = s.sh("head -c 300000000 /dev/zero > big; ls -s big | cut -d' ' -f1").await;
    assert_ne!(full.exit_code(), -1, "its quota refuses it: {}", full.document);
    d.stop_on(&engine.host()).await;
}

/// Here it has no control groups, since the kernel has those of version 1: doctor says that nothing is
/// bounded. What does not depend on them works.
#[tokio::test]
async fn a_rootless_engine_serves_and_doctor_says_what_it_does_not_bound() {
    let engine = PrivateEngine::rootless().await;
    engine.load(IMAGE);
    let store = tempfile::tempdir().expect("a folder");
    let report = Look::at(store.path()).engine(&engine.host()).set("exec.runner", "'sh'").run().await;
    assert!(report.found("engine/users").contains("rootless"), "{}", report.text);
    let failed = |name: &str| report.lacks().contains(&(name.to_owned(), "fail".to_owned()));
    let bounded = !report.found("engine/cgroup").contains("no control groups");
    assert_eq!(failed("container/memory"), !bounded, "{}", report.text);
    assert_eq!(failed("container/processors"), !bounded, "{}", report.text);
    assert!(!failed("container/data") && !failed("container/seccomp"), "{}", report.text);
    let d = on(&engine).start().await;
    let s = d.session("s");
    works(&s).await;
    protected(&view(&engine, &d).await, &s, false).await;
    d.stop_on(&engine.host()).await;
}
