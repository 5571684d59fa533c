//! The file of tokens as it was looked at last: what it said, and what is wrong with it now.
//!
//! It must never give up tokens because the file cannot be read: what it said before stays good.

use std::time::SystemTime;

use tracing::{info, warn};

use super::file::{self, Stamp, TokensFile};
use super::token::KnownToken;
use crate::metrics::Metrics;

/// The file as it was looked at last.
#[derive(Default)]
pub(super) struct Watched {
    stamp: Option<Stamp>,
    /// Its tokens, when it was good last.
    pub(super) tokens: Vec<KnownToken>,
    /// Whether it was there once.
    pub(super) is_known: bool,
    /// What is wrong with it.
    pub(super) fault: Option<String>,
    /// The time of the last look.
    looked: Option<SystemTime>,
}

impl Watched {
    /// Whether the clock is behind the last look: it had jumped forward, and is right again, and so are the
    /// tokens that seemed to be over.
    pub(super) fn went_back(&mut self, now: SystemTime) -> bool {
        self.looked.replace(now).is_some_and(|last| now < last)
    }

    /// Reads the file if it has changed. Whether it has, and is good. `stamp` is what was seen of it before:
    /// a file system that hangs does so there, while nobody waits for this.
    pub(super) fn look(
        &mut self,
        file: &TokensFile,
        stamp: std::io::Result<Option<Stamp>>,
        metrics: &Metrics,
    ) -> bool {
        let path = &file.path;
        let read = match stamp {
            Ok(None) if !self.is_known => return false, // there never was one
            Ok(None) => Err("it is not there any more: `paddock token add` makes a new one".to_owned()),
            Ok(Some(stamp)) if self.stamp == Some(stamp) => return false,
            Ok(Some(stamp)) => {
                self.stamp = Some(stamp);
                file::read(path)
            }
            Err(error) => Err(format!("it cannot be looked at: {error}")),
        };
        match read {
            Ok(tokens) => {
                if self.is_known {
                    info!(tokens = tokens.len(), file = %path.display(), "the file of tokens was read again");
                }
                if let Err(error) = file.set_mark() {
                    warn!("cannot note in the store that callers need a token: {error}");
                }
                (self.tokens, self.is_known, self.fault) = (tokens, true, None);
                metrics.tokens_file(true);
                true
            }
            Err(why) => {
                let why = format!("the file of tokens {}: {why}", path.display());
                if self.fault.as_ref() != Some(&why) {
                    warn!("{why}; the tokens that it had before stay good");
                    self.fault = Some(why);
                }
                if self.stamp.is_some() && !path.exists() {
                    self.stamp = None; // another file, whatever its stamp
                }
                metrics.tokens_file(false);
                false
            }
        }
    }
}
