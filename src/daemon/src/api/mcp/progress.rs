//! Progress reports of a call: what its program writes, and a sign of life from time to time.
//!
//! It must never send a report to a client that gave no token, or that reads nothing but the answer.

use std::time::{Duration, Instant};

use rmcp::model::{NotificationMetaObject, ProgressNotificationParam, ProgressToken};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::session::{OutputFollower, OutputPiece};

/// Time between two signs of life; clients give up after a minute of silence.
const EVERY: Duration = Duration::from_secs(10);

/// In a notification's `_meta`: which stream its message is a piece of, `stdout` or `stderr`.
const STREAM: &str = "paddock/stream";

/// The reports of one call to its client.
pub(super) struct ProgressReports<'a> {
    context: &'a RequestContext<RoleServer>,
    /// `None` if the client wants no reports.
    wanted: Option<(ProgressToken, OutputFollower)>,
    begun: Instant,
}

impl<'a> ProgressReports<'a> {
    pub(super) fn new(
        context: &'a RequestContext<RoleServer>,
        token: Option<ProgressToken>,
        follower: Option<OutputFollower>,
    ) -> Self {
        Self { context, wanted: token.zip(follower), begun: Instant::now() }
    }

    /// Sends reports until the call is `over` and all output of its program is sent. The caller must not drop
    /// the future before: a piece on its way would be lost.
    pub(super) async fn send(mut self, over: CancellationToken) {
        let (mut open, mut ends) = (true, false);
        while open || !ends {
            let Some((_, follower)) = &mut self.wanted else { return over.cancelled().await };
            let piece = tokio::select! {
                piece = follower.next(), if open => piece,
                () = over.cancelled(), if !ends => {
                    ends = true;
                    continue;
                }
                () = tokio::time::sleep(EVERY) => {
                    let text = format!("at work for {} s", self.begun.elapsed().as_secs());
                    Some(OutputPiece { stream: None, text })
                }
            };
            match piece {
                Some(piece) => self.say(piece).await,
                None => open = false,
            }
        }
    }

    async fn say(&self, OutputPiece { stream, text }: OutputPiece) {
        let Some((token, _)) = &self.wanted else { return };
        let mut word = ProgressNotificationParam::new(token.clone(), self.begun.elapsed().as_secs_f64())
            .with_message(text);
        if let Some(stream) = stream {
            let meta = Map::from_iter([(STREAM.to_owned(), Value::from(stream.as_str()))]);
            word.meta = Some(NotificationMetaObject::from(meta));
        }
        let _ = self.context.peer.notify_progress(word).await; // a client that is gone is noticed elsewhere
    }
}
