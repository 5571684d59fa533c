//! The simulation of many daemons: `make simulate` runs 10,000 seeds, `cargo test` a few hundred.
//! `PADDOCK_SEED=17` runs one and prints what happens in it, `PADDOCK_SEEDS=100000` runs so many.

#![expect(clippy::expect_used, clippy::print_stderr, reason = "a test fails by panicking, and says why")]

mod simulation;

use std::sync::atomic::{AtomicU64, Ordering};

use simulation::{Chance, Mutation, Plan, SECOND, Summary, World};

/// Seeds that `cargo test` runs.
const SEEDS: u64 = 500;
/// Seeds in which each mutation must be found; most are found in the first hundred.
const FOR_MUTATIONS: u64 = 40_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// Runs seeds on all cores until one breaks; the lowest broken seed that was seen, with what broke.
fn run(seeds: std::ops::Range<u64>, mutation: Option<Mutation>) -> Result<Summary, (u64, String)> {
    let (next, broken) = (AtomicU64::new(seeds.start), AtomicU64::new(u64::MAX));
    let worker = || {
        let (mut sum, mut failure) = (Summary::default(), None);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || seed > broken.load(Ordering::Relaxed) {
                return (sum, failure);
            }
            match World::new(seed, mutation).run() {
                Ok(summary) => sum.add(&summary),
                Err(what) => {
                    broken.fetch_min(seed, Ordering::Relaxed);
                    failure = Some((seed, what));
                }
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let results: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker")).collect()
    });
    let mut sum = Summary::default();
    results.iter().for_each(|(one, _)| sum.add(one));
    match results.into_iter().filter_map(|(_, failure)| failure).min() {
        None => Ok(sum),
        Some(failure) => Err(failure),
    }
}

#[test]
fn no_seed_breaks_an_invariant() {
    let seeds = match (number("PADDOCK_SEED"), number("PADDOCK_SEEDS")) {
        (Some(seed), _) => {
            let result = World::new(seed, None).traced().run();
            return assert!(result.is_ok(), "PADDOCK_SEED={seed}: {result:?}");
        }
        (None, count) => 0..count.unwrap_or(SEEDS),
    };
    let (count, started) = (seeds.end - seeds.start, std::time::Instant::now());
    match run(seeds, None) {
        Err((seed, what)) => panic!("PADDOCK_SEED={seed}: {what}"),
        Ok(sum) => {
            eprintln!("{count} seeds in {:.1} s: {sum:#?}", started.elapsed().as_secs_f64());
            if count >= SEEDS {
                assert!(
                    sum.takeovers > count / 2 && sum.passed > count && sum.deleted > count,
                    "it does too little"
                );
                assert!(sum.left > count / 10 && sum.unknown > count / 10, "it does too little");
            }
        }
    }
}

#[test]
fn a_seed_is_the_same_every_time() {
    for seed in 0..20 {
        assert_eq!(World::new(seed, None).run(), World::new(seed, None).run(), "seed {seed}");
    }
}

/// The dead node refuses connections; its sessions answer elsewhere as soon as its lease may be taken over.
#[test]
fn the_sessions_of_a_killed_node_answer_within_ten_seconds() {
    let mut longest = 0;
    for seed in 0..200 {
        let plan = Plan::calm(5, 20, SECOND).with_death(15 * SECOND);
        let summary =
            World::of(plan, Chance::new(seed), None).run().unwrap_or_else(|what| panic!("{seed}: {what}"));
        assert!(summary.takeovers > 0, "seed {seed}: the dead node had no session");
        longest = longest.max(summary.longest_wait);
    }
    eprintln!(
        "the longest of 200 takeovers: {:.2} s",
        std::time::Duration::from_micros(longest).as_secs_f64()
    );
    assert!(longest < 10 * SECOND, "{longest} us");
}

/// The figures of `docs/scale.md`.
#[test]
#[ignore = "prints figures; make simulate runs it"]
fn figures_of_many_nodes() {
    eprintln!("nodes  calls/s  statements/s  rows changed/s  S3 requests/s  passed on/s  takes");
    for nodes in [10, 100, 1000] {
        let started = std::time::Instant::now();
        // Two sessions a node, each of which calls as soon as it has an answer, after a second on average.
        let plan = Plan::calm(nodes, 2 * nodes, 2 * SECOND);
        let sum = World::of(plan, Chance::new(1), None).run().unwrap_or_else(|what| panic!("{what}"));
        let a_second = |count: u64| format!("{:.2}", count as f64 / 31.0 / nodes as f64);
        let figures = [sum.done, sum.statements, sum.rows_changed, sum.requests, sum.passed].map(a_second);
        eprintln!(
            "{nodes:>5}  of each node: {}  {:.1} s",
            figures.join("  "),
            started.elapsed().as_secs_f64()
        );
    }
}

/// A simulation that finds nothing proves nothing.
#[test]
fn every_mutation_is_found() {
    let mut missed = Vec::new();
    for mutation in Mutation::ALL {
        match run(0..FOR_MUTATIONS, Some(mutation)) {
            Err((seed, what)) => {
                assert!(
                    World::new(seed, None).run().is_ok(),
                    "seed {seed} breaks without {mutation:?} as well"
                );
                eprintln!("{mutation:?}: seed {seed}: {what}");
            }
            Ok(_) => missed.push(mutation),
        }
    }
    assert!(missed.is_empty(), "no seed finds {missed:?}");
}
