//! Streams that only listen, counted: those of one token, and all of them, so that calls find a place beside them.
//!
//! It must never count a call that is at work.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use http::header::{HeaderValue, RETRY_AFTER};

use super::body::{Answer, error};
use crate::metrics::Metrics;

/// Streams of one token: a quarter of all connections.
const OF_A_TOKEN: usize = 256;

/// Streams of all tokens: three quarters of all connections.
const OF_ALL: usize = 768;

/// When to ask again, in seconds.
const RETRY: HeaderValue = HeaderValue::from_static("5");

/// How many there are of each token.
#[derive(Debug, Default)]
pub(super) struct Listeners(Mutex<HashMap<String, usize>>);

/// One stream's place, until it is dropped.
#[derive(Debug)]
pub(super) struct Listening {
    all: Arc<Listeners>,
    owner: String,
}

/// Why there is none: as many streams as there may be, and whose they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Full {
    #[error("this token has {OF_A_TOKEN} streams that listen, which is the limit: close one of them first")]
    Token,
    #[error("there are {OF_ALL} streams that listen, which is the limit: try again later")]
    All,
}

impl Full {
    pub(super) fn answer(self, metrics: &Metrics) -> Answer {
        metrics.request_refused("streams");
        let mut answer = error(StatusCode::TOO_MANY_REQUESTS, "rate_limited", &self.to_string());
        answer.headers_mut().insert(RETRY_AFTER, RETRY);
        answer
    }
}

impl Listeners {
    /// A place for one more stream of this token.
    pub(super) fn take(self: &Arc<Self>, owner: &str) -> Result<Listening, Full> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.get(owner).is_some_and(|count| *count >= OF_A_TOKEN) {
            return Err(Full::Token);
        }
        if counts.values().sum::<usize>() >= OF_ALL {
            return Err(Full::All);
        }
        *counts.entry(owner.to_owned()).or_default() += 1;
        Ok(Listening { all: self.clone(), owner: owner.to_owned() })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut counts = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_leaves_places_for_others_and_all_of_them_for_calls() {
        let listeners = Arc::new(Listeners::default());
        let take = |owner: &str| listeners.take(owner);
        let mut held: Vec<_> = (0..OF_A_TOKEN).map(|_| take("a").unwrap()).collect();
        assert_eq!(take("a").unwrap_err(), Full::Token);
        held.extend((0..OF_A_TOKEN).map(|_| take("b").unwrap()));
        held.extend((0..OF_ALL - 2 * OF_A_TOKEN).map(|_| take("c").unwrap()));
        assert_eq!(take("d").unwrap_err(), Full::All);
        // The first that ends makes room for another.
        held.remove(0);
        take("a").unwrap();
        held.clear();
        assert!(listeners.0.lock().unwrap().is_empty(), "nothing is kept of tokens without streams");
    }
}
