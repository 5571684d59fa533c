//! Keeping a part against code that interferes with it, with real processes in a child of the test.

use paddock_proto::message::WarmSpec;
use rustix::process::Signal;
use tokio::task::LocalSet;

use super::*;
use crate::link::Link;
use crate::network::Network;
use crate::reap::Reaper;
use crate::runs::Runs;
use crate::sys;

/// Far longer than the part takes, and far shorter than [`READY_WITHIN`].
const SOON: Duration = Duration::from_secs(8);

/// A shell that stands after a moment and then waits for its run.
fn shell() -> WarmSpec {
    let argv = ["/bin/sh", "-c", "sleep 0.2; echo ready >&3; read line <&3"].map(str::to_owned).to_vec();
    WarmSpec { argv, env: vec!["PATH=/usr/bin:/bin".to_owned()], restore: Vec::new(), levels: Vec::new() }
}

/// Keeps a shell as the warm part, has `interfere` done to its processes while it loads, and tells whether it
/// stood soon.
fn stands_soon(interfere: fn(&[i32])) -> bool {
    // A child has one thread, as PID 1 has, and only children of its own.
    sys::in_a_child(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let warm = kept(shell());
            let job = loop {
                tokio::task::yield_now().await;
                if let Some(job) = warm.loading() {
                    break job;
                }
            };
            let part = loop {
                tokio::task::yield_now().await;
                match tree::descendants(job) {
                    part if part.is_empty() => {}
                    part => break part,
                }
            };
            interfere(&part);
            let stands = comes_to_stand(&warm).await;
            tree::kill(&tree::descendants(job));
            stands
        })
    })
}

/// Has this part kept.
fn kept(spec: WarmSpec) -> Rc<Warm> {
    let reaper = Rc::<Reaper>::default();
    let warm = Warm::new(reaper.clone(), Rc::<Runs>::default(), Network::new(Link::new()));
    spawn_local(async move {
        loop {
            reaper.reap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let spec = warm.set_spec(spec).expect("it is the first");
    spawn_local(keep(warm.clone(), spec));
    warm
}

async fn comes_to_stand(warm: &Warm) -> bool {
    let stands = tokio::time::timeout(SOON, async {
        while warm.stands().is_none() {
            warm.news().await;
        }
    });
    stands.await.is_ok()
}

/// Whether a part whose restoring command is this has no process until the daemon asks for an import, and
/// stands then.
fn not_restored(restore: &str) -> bool {
    let restore = ["/bin/sh", "-c", restore].map(str::to_owned).to_vec();
    sys::in_a_child(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let warm = kept(WarmSpec { restore, ..shell() });
            let said = tokio::time::timeout(SOON, async {
                while warm.not_restored().is_none() {
                    warm.news().await;
                }
            });
            if said.await.is_err() {
                return false;
            }
            // Longer than every pause before the next part.
            tokio::time::sleep(2 * PAUSE).await;
            let waits = warm.stands().is_none() && warm.loading().is_none();
            assert!(warm.set_spec(shell()).is_none(), "a part is kept already");
            let stands = comes_to_stand(&warm).await && warm.stands() == Some(false);
            tree::kill(&tree::descendants(std::process::id().cast_signed()));
            waits && stands
        })
    })
}

#[test]
fn a_part_that_is_not_restored_imports_when_the_daemon_asks_for_it_and_not_before() {
    assert!(not_restored("echo failed it is damaged >&3"), "it said so");
    assert!(not_restored("echo unsupported here >&3"), "it said so of all snapshots");
    assert!(not_restored("exit 1"), "it died");
}

#[test]
fn a_part_stands_that_code_has_stopped_while_it_loads() {
    assert!(stands_soon(|_| {}), "without interference");
    assert!(stands_soon(|part| tree::signal(part, Signal::STOP)), "it was left stopped");
    assert!(stands_soon(|part| tree::signal(part, Signal::KILL)), "the next one was not started");
}

#[test]
fn a_part_that_never_stands_is_started_less_and_less_often() {
    let mut pauses = Vec::new();
    let mut pause = Duration::ZERO;
    for _ in 0..12 {
        pause = next_pause(pause, false, false);
        pauses.push(pause.as_millis());
    }
    assert_eq!(pauses[..4], [100, 200, 400, 800]);
    assert_eq!(pauses[11], LONGEST_PAUSE.as_millis());
    assert_eq!(next_pause(pause, false, true), PAUSE, "after a part that died while it was ready");
    assert_eq!(next_pause(pause, true, true), Duration::ZERO, "after a part that had its run");
}
