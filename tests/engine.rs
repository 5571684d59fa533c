//! The Engine API client against a real engine, and against a fake engine that gives wrong answers.
//!
//! Needs a Docker engine at `DOCKER_HOST` (default `unix:///var/run/docker.sock`) with an image that contains
//! `/bin/sh`, named by `PADDOCK_TEST_IMAGE` (default `paddock-example-sh`). Without them the tests fail; none
//! is skipped. Everything that they make has a label of its own and is removed afterwards.
//! skipped. Whatever they make carries a label of its own and is gone afterwards.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "engine/containers.rs"]
mod containers;
#[path = "engine/events.rs"]
mod events;
#[path = "engine/execs.rs"]
mod execs;
#[path = "engine/fake.rs"]
mod fake;
#[path = "engine/files.rs"]
mod files;
#[path = "engine/hostile.rs"]
mod hostile;
#[path = "engine/scene.rs"]
mod scene;
#[path = "engine/streams.rs"]
mod streams;
