//! Sessions that are not in memory, since the daemon started again or they were evicted: the first request
//! that names one has the SDK restore it, and the others wait for that.
//!
//! By itself the SDK (rmcp 3.9) lets a request into a session whose handshake it has not repeated yet, which
//! ends the session, and it answers 500 to a request that looked for a session just before another request
//! had restored it. A request of a session that is in memory must never wait longer than the restoration of
//! another session takes.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use tokio::sync::{Mutex, MutexGuard};

use super::head::SESSION;
use super::owner_services::SdkService;

/// So many sessions of one owner are restored at one time at most.
const AT_ONE_TIME: usize = 16;

/// Whose turn it is to restore a session.
pub(super) struct Restorations {
    manager: Arc<LocalSessionManager>,
    /// Sessions share them by the hashes of their ids.
    turns: [Mutex<()>; AT_ONE_TIME],
}

impl Restorations {
    pub(super) fn new(manager: Arc<LocalSessionManager>) -> Self {
        Self { manager, turns: Default::default() }
    }

    /// The service, so that it restores no session for two requests at one time. It answers with the head of
    /// a stream as soon as the session is restored.
    pub(super) fn of(self, service: SdkService) -> SdkService {
        let this = Arc::new(self);
        let service = Arc::new(service);
        Box::new(move |request: Request<Full<Bytes>>| {
            let (this, service) = (this.clone(), service.clone());
            Box::pin(async move { this.in_turn(&service, request).await })
        })
    }

    async fn in_turn(
        &self,
        service: &SdkService,
        request: Request<Full<Bytes>>,
    ) -> Response<BoxBody<Bytes, Infallible>> {
        let _turn = self.turn(request.headers()).await;
        service(request).await
    }

    /// Waits until nobody restores the session that these headers name. If it is not in memory then, it is
    /// the caller's turn to restore it, until the guard is dropped.
    async fn turn(&self, headers: &HeaderMap) -> Option<MutexGuard<'_, ()>> {
        let id = headers.get(SESSION)?.to_str().ok()?;
        let turn = self.turns[place(id)].lock().await;
        let in_memory = self.manager.has_session(&id.into()).await.unwrap_or(false);
        (!in_memory).then_some(turn)
    }
}

fn place(id: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    usize::try_from(hasher.finish() % AT_ONE_TIME as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http::HeaderValue;

    use super::*;

    fn named(id: &str) -> HeaderMap {
        HeaderMap::from_iter([(SESSION.parse().unwrap(), HeaderValue::from_str(id).unwrap())])
    }

    #[tokio::test]
    async fn one_request_restores_a_session_and_the_others_wait_for_it() {
        let manager = Arc::new(LocalSessionManager::default());
        let restorations = Restorations::new(manager.clone());
        let (of_s, bare) = (named("s"), HeaderMap::new());
        let first = restorations.turn(&of_s).await;
        assert!(first.is_some());
        let second = restorations.turn(&of_s);
        let mut second = std::pin::pin!(second);
        assert!(second.as_mut().now_or_never().is_none(), "it waits");
        let elsewhere = (0..).map(|n| n.to_string()).find(|id| place(id) != place("s")).unwrap();
        assert!(restorations.turn(&named(&elsewhere)).await.is_some(), "another session's does not wait");
        assert!(restorations.turn(&bare).await.is_none());
        let _restored = manager.restore_session("s".into()).await.unwrap();
        drop(first);
        assert!(second.await.is_none(), "it is in memory");
        assert!(restorations.turn(&of_s).await.is_none());
    }

    #[tokio::test]
    async fn if_a_restoration_fails_the_next_request_tries() {
        let restorations = Restorations::new(Arc::default());
        let of_s = named("s");
        drop(restorations.turn(&of_s).await);
        assert!(restorations.turn(&of_s).await.is_some());
    }
}
