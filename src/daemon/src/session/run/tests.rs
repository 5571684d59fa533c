//! Whole runs against fake containers, by paused time.

mod finish;
mod follow;
mod start;
mod uses;
mod writes;

use std::time::Duration;

use bytes::Bytes;
use paddock_proto::message::{Limit, Outcome};
use paddock_proto::{Channel, Event, Request};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::session::port::fake::{FakeContainer, Script, Step, collect_file, end_of_run, ended, file};
use crate::session::run::report::RunEnd as ReportedEnd;
use crate::session::test_world::{Ignore, TIMEOUT, World, code, command};

/// One way in which an agent fails.
type Failure = (&'static str, fn(&mut Script));

fn exited(code: i32) -> ReportedEnd {
    ReportedEnd::Ended { outcome: Outcome::Exited(code), limit: None }
}

fn is_lost(end: &ReportedEnd) -> bool {
    matches!(end, ReportedEnd::Lost(_))
}

fn end_only() -> Control {
    Control::end_only(&CancellationToken::new())
}

fn is_end(request: &Request) -> bool {
    matches!(request, Request::End { .. })
}
