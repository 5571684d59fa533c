//! A daemon that gets no more descriptors, no more threads, or no more memory.

use futures_util::future::join_all;
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use super::served_again;
use crate::support::{Daemon, Fence, Kind, Store};

/// Connections that nobody may have after the bound.
const CONNECTIONS: usize = 300;

fn descriptors(d: &Daemon) -> u64 {
    let open = std::fs::read_dir(format!("/proc/{}/fd", d.pid().as_raw_nonzero())).expect("descriptors");
    open.count() as u64
}

#[tokio::test]
async fn without_descriptors_what_is_open_goes_on_and_the_rest_waits() {
    let d = Daemon::start().await;
    let s = d.session("s");
    s.sh("echo kept > f").await.expect_success();
    let before = getrlimit(Resource::Nofile);
    let most = descriptors(&d) + 40;
    let bound = Rlimit { current: Some(most), maximum: before.maximum };
    prlimit(Some(d.pid()), Resource::Nofile, bound).expect("a bound");
    // More connections than that: the kernel keeps those that the daemon cannot take yet.
    let connecting = || AbortOnDropHandle::new(tokio::spawn(TcpStream::connect(d.addr)));
    let silent: Vec<_> = (0..CONNECTIONS).map(|_| connecting()).collect();
    d.log.line("Too many open files").await;
    drop(silent);
    let back = served_again(&d, &["engine_unavailable", "internal"]).await;
    eprintln!("back after {back:?}");
    s.sh("cat f").await.expect_stdout("kept\n");
    let restored = Rlimit { current: before.current, maximum: before.maximum };
    prlimit(Some(d.pid()), Resource::Nofile, restored).expect("no bound");
    d.stop().await;
}

#[tokio::test]
async fn without_another_thread_calls_go_on() {
    let d = Daemon::start().await;
    let s = d.session("s");
    s.sh("echo kept > f").await.expect_success();
    let fence = Fence::around(d.pid(), Kind::Pids);
    // All of its threads moved with it.
    fence.bound(fence.used());
    let sessions: Vec<_> = (0..16).map(|n| d.session(&format!("t{n}"))).collect();
    let uploads = sessions.iter().enumerate().map(|(n, session)| async move {
        session.upload("f", format!("{n}").as_bytes()).await.expect_success();
    });
    join_all(uploads).await;
    s.sh("cat f; echo more > g").await.expect_stdout("kept\n");
    d.request("GET", "/ready").send().await.expect(200);
    d.session("new").sh("echo new").await.expect_stdout("new\n");
    fence.lift();
    for (n, session) in sessions.iter().enumerate() {
        let listed = session.tool("list_artifacts").await.expect_success();
        assert_eq!(
            listed.document["artifacts"][0]["size_bytes"],
            format!("{n}").len(),
            "{}",
            listed.document
        );
    }
    let log = d.stop().await;
    assert!(!log.text().contains("panicked"), "{}", log.text());
}

/// The kernel ends it, as it ends everything that has too much; the next daemon has what was acknowledged.
#[tokio::test]
async fn a_daemon_that_the_kernel_ends_for_its_memory_loses_nothing() {
    let store = Store::new();
    let d = Daemon::with().store(&store).start().await;
    d.session("s").sh("echo kept > f").await.expect_success();
    let fence = Fence::around(d.pid(), Kind::Memory);
    // Its memory of before is not charged to this group, only what comes.
    fence.bound(24 << 20);
    let large = vec![b'x'; 12 << 20];
    let uploads = (0..24).map(|n| {
        let (d, large) = (&d, &large);
        async move {
            let path = format!("/sessions/m{n}/files/f");
            let answer = d.request("PUT", &path).body(large.clone()).try_send().await;
            answer.is_some_and(|answer| answer.status < 300).then_some(n)
        }
    });
    let acknowledged: Vec<i32> = join_all(uploads).await.into_iter().flatten().collect();
    let is_alive = d.request("GET", "/health").try_send().await.is_some();
    eprintln!("{} of 24 acknowledged; the daemon lives: {is_alive}", acknowledged.len());
    fence.lift();
    let store = d.crash().await;
    drop(fence);
    let d = Daemon::with().store(&store).start().await;
    d.session("s").sh("cat f").await.expect_stdout("kept\n");
    for n in acknowledged {
        let path = format!("/sessions/m{n}/files/f");
        assert!(d.request("GET", &path).send().await.expect(200).body == large, "{path}");
    }
    d.stop().await;
}
