//! A process that commits is killed at any moment, again and again: every change that it acknowledged is
//! there, complete.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::model::{Numbers, Tree, change, commit, tree};
use super::shared::World;
use super::*;

/// The store that the child is to use, and the change at which each worker is to continue.
const STORE: &str = "PADDOCK_TEST_STORE";
/// The ledger that it is to use, if any.
const LEDGER: &str = "PADDOCK_TEST_LEDGER";
/// The number of kills, if it is set.
const KILLS: &str = "PADDOCK_KILLS";
const WORKERS: usize = 3;

/// The child: workers that commit side by side and say so, while checkpoints come as fast as they can.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[ignore = "it is run by the test below"]
async fn child() {
    let Ok(given) = std::env::var(STORE) else { return };
    let (root, begin) = given.split_once('|').unwrap();
    let world = std::env::var(LEDGER).ok().map(|words| World::of_words(&words));
    let store = open(Path::new(root), world.as_ref()).await;
    for (worker, begin) in begin.split(',').enumerate() {
        let (store, begin) = (store.clone(), begin.parse::<u64>().unwrap());
        tokio::spawn(async move {
            let (worker, session) = (worker as u64, format!("w{worker}"));
            let mut world = tree(&store, &session).await;
            for n in begin.. {
                let one = Numbers::change(worker, n);
                commit(&store, &session, &world, &one).await.unwrap();
                change(&mut world, &one);
                // One write, so a line is there completely or not at all.
                std::io::stdout().write_all(format!("\nACK {worker} {n}\n").as_bytes()).unwrap();
            }
        });
    }
    loop {
        let shared = store.shared.clone();
        tokio::task::spawn_blocking(move || shared.checkpoint()).await.unwrap();
        tokio::task::yield_now().await;
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The store on disk, or that of a ledger.
async fn open(root: &Path, world: Option<&World>) -> Arc<Store> {
    match world {
        Some(world) => world.store(root, "a").await,
        None => Arc::new(once_free(root, OPTIONS)),
    }
}

#[tokio::test]
async fn every_change_that_a_killed_process_acknowledged_is_there() {
    kill_again_and_again(30, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_that_a_killed_process_acknowledged_is_in_the_ledger() {
    kill_again_and_again(10, Some(World::new())).await;
}

async fn kill_again_and_again(usually: u64, ledger: Option<World>) {
    let kills: u64 = std::env::var(KILLS).map_or(usually, |kills| kills.parse().expect("a number"));
    let root = TempDir::new_in(MEMORY).unwrap();
    let mut next = [0u64; WORKERS];
    let mut worlds = [(); WORKERS].map(|()| Tree::new());
    let mut numbers = Numbers(0x6b69_6c6c);
    let (mut acknowledged, mut unanswered) = (0, 0);
    for kill in 0..kills {
        let begin = next.map(|n| n.to_string()).join(",");
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["store::tests::kill::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(STORE, format!("{}|{begin}", root.path().display()))
            .envs(ledger.as_ref().map(|ledger| (LEDGER, ledger.in_words())))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = Killed(child.unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let mut acks: HashMap<u64, u64> = HashMap::new();
        let mut take = |line: String| {
            let mut words = line.split(' ');
            if words.next() == Some("ACK") {
                let mut number = || words.next().unwrap().parse::<u64>().unwrap();
                acks.insert(number(), number());
                return true;
            }
            false
        };
        // The kill comes after the first acknowledgement, or even before: the recovery must survive a kill
        // too.
        if kill % 5 != 0 {
            while !take(lines.next().expect("the child speaks before it ends").unwrap()) {}
        }
        let longest = if ledger.is_some() { 400_000 } else { 40_000 };
        std::thread::sleep(Duration::from_micros(numbers.below(longest)));
        child.0.kill().unwrap();
        for line in lines.map_while(Result::ok) {
            take(line);
        }
        child.0.wait().unwrap();

        let store = open(root.path(), ledger.as_ref()).await;
        for worker in 0..WORKERS {
            let said = acks.get(&(worker as u64));
            while said.is_some_and(|said| next[worker] <= *said) {
                change(&mut worlds[worker], &Numbers::change(worker as u64, next[worker]));
                next[worker] += 1;
                acknowledged += 1;
            }
            let found = tree(&store, &format!("w{worker}")).await;
            if found != worlds[worker] {
                // One more change may have been durable and not acknowledged.
                change(&mut worlds[worker], &Numbers::change(worker as u64, next[worker]));
                assert_eq!(found, worlds[worker], "worker {worker} at {} after kill {kill}", next[worker]);
                next[worker] += 1;
                unanswered += 1;
            }
        }
        assert_eq!(fs::read_dir(root.path().join("tmp")).unwrap().count(), 0, "kill {kill}");
    }
    eprintln!("{kills} kills, {acknowledged} changes acknowledged, {unanswered} durable and not said");
    assert!(acknowledged > kills, "the child was killed before it did anything");
}
