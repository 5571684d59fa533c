//! Faults of the host, made one at a time: what the caller sees, what is lost, and how soon service is back.
//! Nothing that was acknowledged may be lost by any of them.
//!
//! | fault | what the caller sees | what is lost | service is back | test |
//! |---|---|---|---|---|
//! | the engine is killed, restarted | runs through the engine end as `lost`, runs on a direct carrier go on; a new session gets `engine_unavailable` | those runs, and what they had not saved | 5 s after the engine is back | `engine_gone` |
//! | the engine is suspended | sessions with a container go on; after 13 s at most a new one gets `engine_unavailable` at once, and `/ready` is 503 | nothing | 5 s after it goes on | `engine_gone` |
//! | the engine answers 500 | sessions with a container go on, a new one gets `engine_unavailable` | nothing | 5 s | `engine` |
//! | the engine is slow | new sessions wait longer; others notice nothing | nothing | at once | `engine` |
//! | containerd is killed | sessions with a container go on | nothing | 5 s after the engine has restarted it | `engine` |
//! | the store's disk is full, or read-only | runs keep their output, files are refused as `quota_exceeded`, `/ready` is 503 if it is read-only | nothing | with the next call, or in 2 s | `full` |
//! | a sync takes 500 ms | what saves a file waits for it; other calls do not | nothing | at once | `disk` |
//! | a sector fails at a write | that file is refused as `quota_exceeded` | nothing that was acknowledged, by this daemon and the next | with the next call, once the disk has replaced the sector; `/ready` asks for a restart | `disk` |
//! | a sector fails at a read | that file cannot be read, and never reads wrong; others can; a run that needs it is refused | that file, while the sector fails | not tested | `disk` |
//! | no descriptor is left | new connections wait, open ones go on | nothing | at once | `room` |
//! | no process or thread can be made | calls go on with the threads that there are | nothing | at once | `room` |
//! | memory ends | the kernel ends the daemon in the middle of calls, or calls are refused | calls under way | with the restart | `room` |
//! | more than 2,000 connections | silent ones are cut, others served | nothing | there is no pause | `flood` |
//! | a burst with SIGTERM in the middle | answers, refusals, or the end of the connection | calls without an answer, whole | with the restart | `burst` |

#[path = "faults/burst.rs"]
mod burst;
#[path = "faults/disk.rs"]
mod disk;
#[path = "faults/engine.rs"]
mod engine;
#[path = "faults/room.rs"]
mod room;

use std::time::{Duration, Instant};

use crate::support::{Daemon, Ran, within};

/// Service is back this soon after the fault is gone.
const BACK: Duration = Duration::from_secs(5);

/// Repeats a run in a new session until it succeeds, and says how long that took. Every refusal meanwhile
/// must be one that tells the caller to come again.
async fn served_again(d: &Daemon, refusals: &[&str]) -> Duration {
    let begun = Instant::now();
    let trying = async {
        for n in 0.. {
            let ran: Ran = d.session(&format!("again-{n}")).sh("echo again").await;
            if !ran.is_error {
                assert_eq!(ran.stdout(), "again\n");
                return;
            }
            let code = ran.document["error"].as_str().unwrap_or_default();
            assert!(refusals.contains(&code), "{}", ran.document);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(BACK, "service", trying).await;
    begun.elapsed()
}
