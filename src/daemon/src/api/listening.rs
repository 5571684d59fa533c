//! Permits for streams that only listen, so many for each token and for all together, so that connections for
//! calls are left. It must never count a call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use http::header::{HeaderValue, RETRY_AFTER};

use super::body::{Answer, error};
use crate::metrics::Metrics;

/// The most streams of one token: a quarter of all connections.
const OF_A_TOKEN: usize = 256;

/// The most streams of all tokens: three quarters of all connections.
const OF_ALL: usize = 768;

/// When a refused client may try again, in seconds.
const RETRY: HeaderValue = HeaderValue::from_static("5");

/// The number of streams of each token.
#[derive(Debug, Default)]
pub(super) struct ListenPermits(Mutex<HashMap<String, usize>>);

/// The permit of one stream. Dropping it returns it.
#[derive(Debug)]
pub(super) struct ListenPermit {
    all: Arc<ListenPermits>,
    owner: String,
}

/// Why a stream got no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooManyListeners {
    #[error("this token has {OF_A_TOKEN} event streams open, which is the limit: close one of them first")]
    Token,
    #[error("{OF_ALL} event streams are open, which is the limit: try again later")]
    All,
}

impl TooManyListeners {
    pub(super) fn answer(self, metrics: &Metrics) -> Answer {
        metrics.request_refused("streams");
        let mut answer = error(StatusCode::TOO_MANY_REQUESTS, "rate_limited", &self.to_string());
        answer.headers_mut().insert(RETRY_AFTER, RETRY);
        answer
    }
}

impl ListenPermits {
    /// Takes a permit for one more stream of this token.
    pub(super) fn take(self: &Arc<Self>, owner: &str) -> Result<ListenPermit, TooManyListeners> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.get(owner).is_some_and(|count| *count >= OF_A_TOKEN) {
            return Err(TooManyListeners::Token);
        }
        if counts.values().sum::<usize>() >= OF_ALL {
            return Err(TooManyListeners::All);
        }
        *counts.entry(owner.to_owned()).or_default() += 1;
        Ok(ListenPermit { all: self.clone(), owner: owner.to_owned() })
    }
}

impl Drop for ListenPermit {
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
    fn one_token_leaves_permits_to_others_and_all_of_them_leave_connections_to_calls() {
        let permits = Arc::new(ListenPermits::default());
        let take = |owner: &str| permits.take(owner);
        let mut held: Vec<_> = (0..OF_A_TOKEN).map(|_| take("a").unwrap()).collect();
        assert_eq!(take("a").unwrap_err(), TooManyListeners::Token);
        held.extend((0..OF_A_TOKEN).map(|_| take("b").unwrap()));
        held.extend((0..OF_ALL - 2 * OF_A_TOKEN).map(|_| take("c").unwrap()));
        assert_eq!(take("d").unwrap_err(), TooManyListeners::All);
        // The first stream that ends leaves its permit to another.
        held.remove(0);
        take("a").unwrap();
        held.clear();
        assert!(permits.0.lock().unwrap().is_empty(), "tokens without streams are forgotten");
    }
}
