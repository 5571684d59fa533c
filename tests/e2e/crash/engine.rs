//! The same load while the engine is killed and restarted, suspended for some seconds, or killed together
//! with the daemon: calls fail with a temporary reason, and nothing acknowledged is lost.
//!
//! `ENGINE_ENDS` is the number of times that this happens.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::join;

use super::{TIDY, clients, expect_clean, expect_tidy, number, setup, tell, verify};
use crate::support::{Chance, Daemon, PrivateEngine, Store, View};

/// What happens to the engine.
#[derive(Debug)]
enum End {
    /// Killed with `kill -9`, and restarted this much later.
    Killed(Duration),
    /// Suspended for this long.
    Stopped(Duration),
    /// Killed together with the daemon.
    BothKilled,
}

impl End {
    /// The `n`th event: each kind once, then at random. A run on a direct carrier does not notice a suspended
    /// engine.
    fn draw(n: u64, chance: &mut Chance) -> End {
        match if n < 3 { [0, 2, 4][usize::try_from(n).unwrap_or(0)] } else { chance.below(5) } {
            0 | 1 => End::Killed(Duration::from_millis(chance.below(1500))),
            2 | 3 => End::Stopped(Duration::from_millis(500 + chance.below(4500))),
            _ => End::BothKilled,
        }
    }

    /// Does it; afterwards the engine works again.
    async fn happen(&self, engine: &mut PrivateEngine, d: &Daemon) {
        match self {
            End::Killed(time) => {
                let mark = d.log.mark();
                engine.kill();
                d.log.line_since(mark, "the engine does not answer").await;
                tokio::time::sleep(*time).await;
                engine.start().await;
                d.log.line_since(mark, "the engine answers again").await;
            }
            End::Stopped(time) => {
                engine.suspend();
                tokio::time::sleep(*time).await;
                engine.resume();
            }
            End::BothKilled => {
                engine.kill();
                d.kill();
                engine.start().await;
            }
        }
    }
}

#[tokio::test]
async fn no_failure_of_the_engine_loses_anything_that_was_acknowledged() {
    let mut chance = Chance::from_env("CRASH_SEED");
    let ends = number("ENGINE_ENDS", 5);
    let mut engine = PrivateEngine::with_image("paddock-example-sh").await;
    let host = engine.host();
    let store = Store::new();
    let mut clients = clients(&["sh"], &mut chance);
    let start = async || {
        let d = setup(&store).set("pool.idle", 1).env("DOCKER_HOST", &host).start().await;
        let view = View::on(&host.parse().expect("a host"), &store.owner()).await;
        (d, view)
    };
    let (mut d, mut view) = start().await;
    let begun = Instant::now();
    for n in 0..ends {
        let (before, end) = (Duration::from_millis(chance.below(1500)), End::draw(n, &mut chance));
        let well = {
            let enough = Cell::new(false);
            let is_enough = || enough.get();
            let load = join_all(clients.iter_mut().map(|client| client.work(&d, &is_enough)));
            let ending = async {
                tokio::time::sleep(before).await;
                end.happen(&mut engine, &d).await;
                let well = Instant::now();
                tokio::time::sleep(Duration::from_secs(1)).await;
                enough.set(true);
                well
            };
            join!(load, ending).1
        };
        if matches!(end, End::BothKilled) {
            d.crash().await;
            (d, view) = start().await;
        }
        // Without help, and soon.
        verify(&d, &mut clients, "sh").await;
        let back = well.elapsed();
        expect_tidy(&d, &view, 1, TIDY).await;
        eprintln!("{n}: {end:?} after {before:?}; well again after {back:?}");
    }
    let log = d.stop_on(&host).await;
    assert!(!log.text().contains("panicked"), "{}", log.text());
    expect_clean(&store);
    let tally = tell(&clients, &format!("{ends} ends of an engine in {:?}", begun.elapsed()));
    assert!(u64::from(tally.acknowledged) > ends && tally.refused + tally.lost > 0, "{tally:?}");
}
