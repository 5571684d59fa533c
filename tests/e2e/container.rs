//! A container as the pool makes them, with the agent in it but without a daemon, for tests of the agent.

use std::collections::BTreeMap;

use paddock::app;
use paddock::config::{Config, Overrides};
use paddock::engine::{Engine, EngineLimits};
use paddock::link::{Incoming, Link, Stream};
use paddock::pool::Specimen;
use paddock_proto::limits::DATA_DIR;
use paddock_proto::message::{Input, RunEnd, RunLimits, RunSpec, WarmSpec};
use paddock_proto::{Event, Request};

use crate::support::{Cleared, engine_host};

/// An armed container and its link; everything with its owner's label is removed with it, even if a test
/// fails.
pub(crate) struct Container(Specimen, #[expect(dead_code, reason = "it clears when it is dropped")] Cleared);

impl Container {
    /// A container of the plain example image.
    pub(crate) async fn start() -> Self {
        Self::of("sh").await
    }

    /// A container for this language, without a warm part.
    pub(crate) async fn of(language: &str) -> Self {
        let config =
            Config::load(None, &BTreeMap::new(), &Overrides::default()).expect("the defaults").config;
        let engine = Engine::connect(&engine_host(), EngineLimits::default()).await.expect("an engine");
        let mut pool = app::pool(&config, paddock::id::random_hex::<16>(), paddock::id::random_bytes());
        let cleared = Cleared::of(&pool.owner);
        pool.warm_parts = false;
        let uid = 40_000 + u32::from(u16::from_le_bytes(paddock::id::random_bytes())) % 10_000;
        Self(Specimen::start(&engine, &pool, language, uid).await.expect("a container"), cleared)
    }

    pub(crate) fn link(&self) -> &Link {
        &self.0.armed.link
    }

    pub(crate) fn run(&self, spec: &RunSpec) -> Stream {
        self.link().request(&Request::Run(spec.clone())).expect("a stream")
    }

    /// Tells a run to end, on a stream of its own.
    pub(crate) async fn end(&self, id: &str, grace_ms: u64) -> Event {
        let stream = self.link().request(&Request::End { id: id.to_owned(), grace_ms }).expect("a stream");
        match stream.next().await.expect("an answer") {
            Incoming::Event(event) => event,
            other @ (Incoming::Data(..) | Incoming::End) => panic!("{other:?}"),
        }
    }

    /// Starts the warm part of paddock's Python image and waits until it is ready; returns its command.
    pub(crate) async fn stand(&self) -> Vec<String> {
        let argv =
            ["/usr/bin/python3", "-P", "-s", "/usr/local/share/sandbox/warm.py"].map(str::to_owned).to_vec();
        let spec = WarmSpec {
            argv: argv.clone(),
            env: self.0.armed.runner.environment(&[]),
            restore: Vec::new(),
            levels: Vec::new(),
        };
        let stream = self.link().request(&Request::Warm(spec)).expect("a stream");
        assert_eq!(stream.next().await.expect("an answer"), Incoming::Event(Event::Warm { restored: false }));
        argv
    }

    pub(crate) async fn stop(self) {
        self.0.remove().await.expect("its removal");
    }
}

pub(crate) fn spec(command: &str) -> RunSpec {
    RunSpec {
        id: paddock::id::random_hex::<8>(),
        argv: ["/bin/sh", "-c", command].map(str::to_owned).to_vec(),
        env: vec!["PATH=/usr/local/bin:/usr/bin:/bin".to_owned()],
        cwd: DATA_DIR.to_owned(),
        wall_ms: 30_000,
        output_cap: 1 << 20,
        input: Input::Nothing,
        limits: RunLimits::default(),
        warm: false,
        files: None,
        execute: None,
        network: false,
    }
}

/// The rest of a run's output, and its end.
pub(crate) async fn ended(stream: &Stream) -> (String, RunEnd) {
    let mut output = String::new();
    loop {
        match stream.next().await.expect("an end") {
            Incoming::Data(_, bytes) => output.push_str(&String::from_utf8_lossy(&bytes)),
            Incoming::Event(Event::Begun | Event::Used { .. }) => {}
            Incoming::Event(Event::Ended(end)) => {
                stream.say(&Request::Commit).await.expect("an agent that hears that it was heard");
                assert_eq!(stream.next().await.expect("its last word"), Incoming::End);
                return (output, end);
            }
            other @ (Incoming::Event(_) | Incoming::End) => panic!("{other:?} after {output:?}"),
        }
    }
}
