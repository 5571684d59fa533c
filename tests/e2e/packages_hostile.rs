//! Packages whose index, archive, list, caller or disk does harm, by malice or by accident: the call is
//! refused or fails with its reason, and neither a session nor a layer suffers.

use std::process::Command;

use serde_json::json;

use crate::packages::{Index, python, refused, volume};
use crate::support::{Daemon, PATIENCE, within};

#[tokio::test]
async fn what_a_hostile_index_serves_gets_no_further() {
    let index = Index::start().await;
    let d = index.daemon().set("packages.max_bytes", "1MiB").set("packages.max_files", 100).start().await;
    for (entry, code, words) in [
        ("sourced==1.0", "invalid_argument", "no wheel"),
        ("wronghash==1.0", "packages_unavailable", "does not match its hash"),
        ("climbs==1.0", "invalid_argument", "climb"),
        ("marked==1.0", "invalid_argument", ".paddock-layer"),
        ("large==1.0", "too_large", "packages.max_bytes"),
        ("many==1.0", "too_large", "packages.max_files"),
        ("nothing==1.0", "invalid_argument", "no package of this name"),
        ("good==3.0", "invalid_argument", "1.0, 2.0"),
        ("by-url==1.0", "invalid_argument", "needs evil by its URL (http://index.lan"),
        ("by-git==1.0", "invalid_argument", "needs evil by its URL (git+http://index.lan"),
        ("by-wheel==1.0", "invalid_argument", "needs good by its URL"),
    ] {
        refused(python(&d, "s", &[entry], "print(1)").await, code, words);
    }
    // What a wheel names by its URL is not even fetched, and nothing of it has told the index that it runs.
    assert_eq!(index.fetched("evil").await, 0);
    assert!(!index.get("/requests").await.contains("evil"), "something was asked for");
    refused(python(&d, "s", &["needs==1.0", "clash==1.0"], "1").await, "invalid_argument", "conflict");
    // Nothing of these ran, and nothing reached the session.
    d.session("s").python("import os; print(os.listdir('/data'))").await.expect_stdout("[]\n");
    // Links, modes and pipes of an archive are files; `.pth` files do nothing.
    let odd = "import glob, odd, os, pth, stat
root = os.environ['SANDBOX_PACKAGES']
for name in ('link', 'setuid', 'fifo'): print(name, oct(os.lstat(f'{root}/{name}').st_mode))
print(os.path.exists('/data/pth'), os.stat(root).st_uid)";
    let ran = python(&d, "s", &["odd==1.0", "pth==1.0"], odd).await.expect_success();
    assert_eq!(ran.stdout(), "link 0o100644\nsetuid 0o100755\nfifo 0o100644\nFalse 0\n");
    // A layer cannot be written, other layers cannot be seen, and their directory is no secret's leak.
    let look = "import os, errno
for what in (lambda: os.listdir('/opt/packages'), lambda: open(os.environ['SANDBOX_PACKAGES'] + '/x', 'w')):
    try: what(); print('done')
    except OSError as e: print(errno.errorcode[e.errno])
print(os.environ['SANDBOX_PACKAGES'] in open('/proc/self/mountinfo').read())";
    let ran = python(&d, "s", &["odd==1.0", "pth==1.0"], look).await.expect_success();
    assert_eq!(ran.stdout(), "EACCES\nEROFS\nFalse\n");
    d.stop().await;
}

#[tokio::test]
async fn a_bad_list_reaches_no_container_and_no_index() {
    let index = Index::start().await;
    let d = index.daemon().start().await;
    for (list, words) in [
        (json!(["good"]), "no version"),
        (json!(["good==1.0", "--index-url=http://evil/"]), "entry 1"),
        (json!(["-r/data/x"]), "option"),
        (json!(["http://evil/x.whl"]), "URL"),
        (json!(["/data/x.whl"]), "path"),
        (json!(["good[extra]==1.0"]), "extras"),
        (json!(["good==1.0; sys_platform=='linux'"]), "marker"),
        (json!(["good==1.0", "good==2.0"]), "version 1.0"),
        (json!(vec!["good==1.0"; 33]), "at most 32"),
    ] {
        let call = d.session("s").python("print(1)").with("packages", list);
        refused(call.await, "invalid_argument", words);
    }
    let sh = d.session("s").run("sh", "echo 1").with("packages", json!(["good==1.0"])).await;
    refused(sh, "packages_unavailable", "sh takes none");
    let own = d.session("s").python("print(1)").env("SANDBOX_PACKAGES", "/data").await;
    refused(own, "invalid_argument", "SANDBOX_PACKAGES");
    assert_eq!(index.get("/requests").await, "[]");
    assert_eq!(d.log.count("armed"), 0, "no container was made");
    d.stop().await;
    // Off, there is no argument to see.
    let d = index.daemon().set("packages.enabled", false).start().await;
    refused(python(&d, "s", &["good==1.0"], "1").await, "packages_unavailable", "packages.enabled");
    let tools = d.rpc("tools/list", json!({})).await;
    assert!(!tools.to_string().contains("\"packages\""));
    d.stop().await;
}

#[tokio::test]
async fn egress_decides_where_no_index_is_named() {
    let d = Daemon::with().set("egress.mode", "none").start().await;
    refused(python(&d, "s", &["good==1.0"], "1").await, "network_unavailable", "[packages]");
    d.stop().await;
    let d = Daemon::with().set("egress.allow", vec!["example.com"]).start().await;
    refused(python(&d, "s", &["good==1.0"], "1").await, "network_unavailable", "pypi.org");
    d.stop().await;
    // Named, and denied all the same.
    let index = Index::start().await;
    let d = index.daemon().set("egress.deny", vec!["index.lan"]).start().await;
    refused(python(&d, "s", &["good==1.0"], "1").await, "network_unavailable", "in egress.deny");
    assert_eq!(index.get("/requests").await, "[]");
    d.stop().await;
}

#[tokio::test]
async fn a_download_that_breaks_off_leaves_nothing_and_the_next_call_tries_again() {
    let index = Index::start().await;
    let d = index.daemon().start().await;
    let code = "import breaks, os; print(breaks.OK, os.path.getsize(breaks.__file__[:-2] + 'bin'))";
    let broken = python(&d, "s", &["breaks==1.0"], code).await;
    broken.expect_error("packages_unavailable");
    index.get("/heal").await;
    python(&d, "s", &["breaks==1.0"], code).await.expect_stdout("True 1048576\n");
    d.stop().await;
}

#[tokio::test]
async fn a_full_disk_costs_the_call_and_no_layer() {
    let index = Index::start().await;
    let d = index.daemon().start().await;
    let (store, name) = (d.store.clone(), volume(&d.store.owner()));
    d.stop().await;
    // The volume has a disk of its own, of which a container that runs keeps the content.
    let labels = ["app=paddock-packages".to_owned(), format!("paddock.made-by={}", store.owner())];
    let mut create = Command::new("docker");
    create.args(["volume", "create", "--opt=type=tmpfs", "--opt=device=tmpfs", "--opt=o=size=300k"]);
    for label in &labels {
        create.args(["--label", label]);
    }
    assert!(create.arg(&name).status().expect("docker").success());
    let d = index.daemon().store(&store).start().await;
    d.session("s").python("print(1)").await.expect_success();
    let code = "import good; print(good.VERSION)";
    python(&d, "s", &["good==1.0"], code).await.expect_stdout("1.0\n");
    refused(python(&d, "s", &["middle==1.0"], "1").await, "quota_exceeded", "full");
    python(&d, "s", &["good==1.0"], code).await.expect_stdout("1.0\n");
    python(&d, "s", &["good-tool==1.0"], "import good_tool").await.expect_success();
    assert_eq!(index.fetched("good-1.0").await, 1);
    d.stop().await;
}

#[tokio::test]
async fn npm_runs_nothing_of_a_package_and_checks_what_it_gets() {
    let index = Index::start().await;
    let d = index.daemon().start().await;
    let typescript =
        |packages: &[&str], code: &str| d.session("s").typescript(code).with("packages", json!(packages));
    typescript(&["scripted@1.0.0"], "console.log(require('scripted'))").await.expect_stdout("false\n");
    // A package in the archive of another has no hash of its own, and is there.
    let ran = typescript(&["holds@1.0.0"], "console.log(require('holds'))").await;
    assert_eq!(ran.stdout(), "holds inner\n", "{}", ran.document);
    assert_eq!(ran.document["packages"], json!(["holds@1.0.0", "inner@3.0.0"]));
    // What npm leaves out, since it is for another system, is not reported.
    let ran = typescript(&["platforms@1.0.0"], "console.log(require('platforms'))").await;
    assert_eq!(ran.document["packages"], json!(["for-linux@1.0.0", "platforms@1.0.0"]));
    for (entry, code, words) in [
        ("wrongsum@1.0.0", "packages_unavailable", "does not match its hash"),
        ("nothing@1.0.0", "invalid_argument", "no package of this name"),
        ("left@9.9.9", "invalid_argument", "no such version"),
        ("left@latest", "invalid_argument", "not exact"),
        ("left@file:../x", "invalid_argument", "not exact"),
    ] {
        refused(typescript(&[entry], "1").await, code, words);
    }
    let odd = "const fs = require('fs'), path = require('path').dirname(require.resolve('oddities'))
console.log(require('oddities'), fs.readdirSync(path).sort().join(), fs.existsSync('/data/climbed'))";
    typescript(&["oddities@1.0.0"], odd).await.expect_stdout("odd index.js,package.json false\n");
    d.stop().await;
}

#[tokio::test]
async fn one_tenant_leaves_places_for_others_and_what_nobody_waits_for_is_not_fetched() {
    let index = Index::start().await;
    let d =
        index.daemon().set("packages.fetches", 1).set("mcp.resume_window", "0s").set("log.level", "debug");
    let d = d.start().await;
    let call = |packages: String| d.session("s").python("print(1)").with("packages", json!([packages]));
    let slow = call("slow==1.0".to_owned());
    let (slow, asked) = (Box::pin(slow.try_answer()), Box::pin(index.asked_for("slow")));
    let futures_util::future::Either::Right(((), slow)) = futures_util::future::select(slow, asked).await
    else {
        panic!("the fetch ended")
    };
    // With the one that is under way they are seventeen.
    let waiting: Vec<_> =
        (1..=16).map(|n| Box::pin(call(format!("unwanted-{n}==1.0")).try_answer())).collect();
    let (first, _, waiting) = futures_util::future::select_all(waiting).await;
    let first = first.expect("an answer").to_string();
    assert!(first.contains("queue_full") && first.contains("in one list"), "{first}");
    // All others have places. They go away.
    drop(waiting);
    let gone = async {
        while d.log.count("nobody waits for these packages any more") < 15 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within(PATIENCE, "fifteen fetches given up", gone).await;
    index.get("/let/go").await;
    slow.await.expect("an answer");
    python(&d, "s", &["good==1.0"], "import good; print(good.VERSION)").await.expect_stdout("1.0\n");
    assert!(!index.get("/requests").await.contains("unwanted"), "one was fetched");
    d.stop().await;
}
