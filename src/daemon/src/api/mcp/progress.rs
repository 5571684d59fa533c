//! What is told of a call while it goes on: what its program writes, and now and then that it does.
//!
//! It must never say anything to a client that gave no token, or that reads nothing but the answer.

use std::time::{Duration, Instant};

use paddock_proto::Channel;
use rmcp::model::{NotificationMetaObject, ProgressNotificationParam, ProgressToken};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::session::Piece;

/// Between two words of a call that goes on; clients give up after a minute of silence.
const EVERY: Duration = Duration::from_secs(10);

/// In a notification's `_meta`: which stream its message is a piece of, `stdout` or `stderr`.
const STREAM: &str = "paddock/stream";

/// One call's words to its client.
pub(super) struct Progress<'a> {
    context: &'a RequestContext<RoleServer>,
    /// `None`: nobody wants to hear.
    wanted: Option<(ProgressToken, mpsc::Receiver<Piece>)>,
    begun: Instant,
}

impl<'a> Progress<'a> {
    pub(super) fn new(
        context: &'a RequestContext<RoleServer>,
        token: Option<ProgressToken>,
        pieces: Option<mpsc::Receiver<Piece>>,
    ) -> Self {
        Self { context, wanted: token.zip(pieces), begun: Instant::now() }
    }

    /// Tells until the call is `over` and all that its program wrote is told. Not to be dropped in between: a piece on its
    /// way would be lost.
    pub(super) async fn tell(mut self, over: CancellationToken) {
        let (mut open, mut ends) = (true, false);
        while open || !ends {
            let Some((_, pieces)) = &mut self.wanted else { return over.cancelled().await };
            let piece = tokio::select! {
                piece = pieces.recv(), if open => piece,
                () = over.cancelled(), if !ends => {
                    ends = true;
                    continue;
                }
                () = tokio::time::sleep(EVERY) => {
                    let text = format!("at work for {} s", self.begun.elapsed().as_secs());
                    Some(Piece { channel: None, text })
                }
            };
            match piece {
                Some(piece) => self.say(piece).await,
                None => open = false,
            }
        }
    }

    async fn say(&self, Piece { channel, text }: Piece) {
        let Some((token, _)) = &self.wanted else { return };
        let mut word = ProgressNotificationParam::new(token.clone(), self.begun.elapsed().as_secs_f64())
            .with_message(text);
        if let Some(channel) = channel {
            let stream = if channel == Channel::Stderr { "stderr" } else { "stdout" };
            let meta = Map::from_iter([(STREAM.to_owned(), Value::from(stream))]);
            word.meta = Some(NotificationMetaObject::from(meta));
        }
        let _ = self.context.peer.notify_progress(word).await; // a client that is gone is noticed elsewhere
    }
}
