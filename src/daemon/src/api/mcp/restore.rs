//! Sessions that are not in memory, because the daemon started again or nobody used them for long: each is
//! restored before a request enters it.
//!
//! The SDK (rmcp 3.9) restores a session by itself, for the first request that names it. But it lets another
//! request into the session before the handshake is repeated, and that ends the session. It also answers 500
//! to a request that looked for the session just before another request had restored it. So a message of
//! ours, which nothing comes of, has the SDK restore the session, and all requests wait for that. No client
//! can break a restoration off by going away, and a session that is in memory must never wait for another
//! one.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{SessionManager, SessionStore};
use tokio_util::sync::CancellationToken;

use super::head::SESSION;
use super::owner_services::SdkService;

/// A notification of a client that the handler does nothing about.
const NOTHING: &str = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;

/// The sessions of one owner, and which of them are restored at this moment.
pub(super) struct Restorations {
    manager: Arc<LocalSessionManager>,
    on_disk: Arc<dyn SessionStore>,
    service: SdkService,
    /// By the session's id; each token is cancelled at the end of its restoration.
    under_way: Mutex<HashMap<String, CancellationToken>>,
}

/// A restoration. It is over when this is dropped.
struct Restoration {
    of: Arc<Restorations>,
    id: String,
}

impl Restorations {
    /// The sessions in `manager` and on disk, to which `service` takes requests.
    pub(super) fn new(
        manager: Arc<LocalSessionManager>,
        on_disk: Arc<dyn SessionStore>,
        service: SdkService,
    ) -> Arc<Self> {
        Arc::new(Self { manager, on_disk, service, under_way: Mutex::default() })
    }

    /// The service, to which a request goes when its session is restored, or cannot be: the SDK's answer says
    /// so then.
    pub(super) fn service(self: Arc<Self>) -> SdkService {
        Box::new(move |request| {
            let this = self.clone();
            Box::pin(async move { this.answer(request).await })
        })
    }

    async fn answer(self: &Arc<Self>, request: Request<Full<Bytes>>) -> Response<BoxBody<Bytes, Infallible>> {
        if let Some(id) = named(request.headers())
            && let Some(over) = self.restoration(id).await
        {
            over.cancelled().await;
        }
        (self.service)(request).await
    }

    /// The end of this session's restoration, which begins here if the session is not in memory. `None` if
    /// there is nothing to wait for.
    async fn restoration(self: &Arc<Self>, id: &str) -> Option<CancellationToken> {
        // Before the other: a session gets into memory while its restoration is under way.
        let in_memory = self.manager.has_session(&id.into()).await.unwrap_or(false);
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(over) = under_way.get(id) {
            return Some(over.clone());
        }
        if in_memory {
            return None;
        }
        let over = CancellationToken::new();
        under_way.insert(id.to_owned(), over.clone());
        let restoration = Restoration { of: self.clone(), id: id.to_owned() };
        tokio::spawn(restoration.run());
        Some(over)
    }
}

impl Restoration {
    async fn run(self) {
        let known = self.of.on_disk.load(&self.id).await;
        if known.is_ok_and(|state| state.is_some())
            && let Some(message) = message(&self.id)
        {
            (self.of.service)(message).await;
        }
    }
}

impl Drop for Restoration {
    fn drop(&mut self) {
        let mut under_way = self.of.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(over) = under_way.remove(&self.id) {
            over.cancel();
        }
    }
}

fn named(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION)?.to_str().ok()
}

/// The message of ours in this session; `None` if the id can be in no header.
fn message(id: &str) -> Option<Request<Full<Bytes>>> {
    Request::post("/mcp")
        .header(HOST, "localhost")
        .header(SESSION, id)
        .header(ACCEPT, "application/json, text/event-stream")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from_static(NOTHING.as_bytes())))
        .ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use http_body_util::BodyExt;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::api::mcp::in_memory::SessionsInMemory;
    use crate::api::mcp::on_disk::SessionsOnDisk;
    use crate::api::mcp::on_disk::tests::state;

    /// A stand-in for the SDK, which restores a session when it is let.
    struct Sdk {
        manager: Arc<LocalSessionManager>,
        /// One permit for each restoration; a closed one makes them fail.
        lets: Semaphore,
        restorations: AtomicUsize,
        requests: AtomicUsize,
    }

    impl Sdk {
        async fn answer(&self, request: Request<Full<Bytes>>) -> Response<BoxBody<Bytes, Infallible>> {
            let id = named(request.headers()).unwrap_or_default().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            if body == NOTHING {
                self.restorations.fetch_add(1, Ordering::Relaxed);
                if let Ok(permit) = self.lets.acquire().await {
                    permit.forget();
                    std::mem::forget(self.manager.restore_session(id.into()).await.unwrap());
                }
            } else {
                self.requests.fetch_add(1, Ordering::Relaxed);
            }
            Response::new(BoxBody::new(Full::default()))
        }

        fn seen(&self) -> (usize, usize) {
            (self.restorations.load(Ordering::Relaxed), self.requests.load(Ordering::Relaxed))
        }
    }

    /// The sessions `s` and `t` are on disk; none is in memory.
    async fn restorations(folder: &std::path::Path) -> (Arc<Sdk>, Arc<Restorations>) {
        let manager = Arc::<LocalSessionManager>::default();
        let lets = Semaphore::new(0);
        let (restorations, requests) = (AtomicUsize::default(), AtomicUsize::default());
        let sdk = Arc::new(Sdk { manager: manager.clone(), lets, restorations, requests });
        let on_disk = Arc::new(SessionsOnDisk::new(folder, "a", Arc::<SessionsInMemory>::default()));
        on_disk.sweep().unwrap();
        for id in ["s", "t"] {
            on_disk.store(id, &state()).await.unwrap();
        }
        let stand_in = sdk.clone();
        let service: SdkService = Box::new(move |request| {
            let sdk = stand_in.clone();
            Box::pin(async move { sdk.answer(request).await })
        });
        (sdk, Restorations::new(manager, on_disk, service))
    }

    fn request(id: &str) -> Request<Full<Bytes>> {
        Request::post("/mcp").header(SESSION, id).body(Full::default()).unwrap()
    }

    async fn until_it_restores(sdk: &Sdk, times: usize) {
        while sdk.seen().0 < times {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_session_is_restored_once_and_every_request_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (sdk, all) = restorations(dir.path()).await;
        let service = all.clone().service();
        let (mut first, others) = (service(request("s")), [service(request("s")), service(request("s"))]);
        assert!(first.as_mut().now_or_never().is_none());
        until_it_restores(&sdk, 1).await;
        // The first client goes away.
        drop(first);
        let mut others = futures_util::future::join_all(others);
        assert!((&mut others).now_or_never().is_none(), "they wait");
        assert_eq!(sdk.seen(), (1, 0));
        sdk.lets.add_permits(1);
        others.await;
        assert_eq!(sdk.seen(), (1, 2));
        // It is in memory: nothing is restored any more.
        service(request("s")).await;
        assert_eq!(sdk.seen(), (1, 3));
        assert!(all.under_way.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_session_in_memory_one_of_nobody_and_a_call_without_one_wait_for_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (sdk, all) = restorations(dir.path()).await;
        let service = all.service();
        let mut waits = service(request("s"));
        assert!(waits.as_mut().now_or_never().is_none());
        until_it_restores(&sdk, 1).await;
        std::mem::forget(sdk.manager.restore_session("t".into()).await.unwrap());
        service(request("t")).await;
        service(request("nobody's")).await;
        service(Request::new(Full::default())).await;
        assert_eq!(sdk.seen(), (1, 3));
        assert!(waits.now_or_never().is_none());
    }

    /// The SDK has a session in its memory before it has repeated the handshake.
    #[tokio::test]
    async fn a_session_that_is_half_restored_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (sdk, all) = restorations(dir.path()).await;
        let service = all.service();
        let mut first = service(request("s"));
        assert!(first.as_mut().now_or_never().is_none());
        until_it_restores(&sdk, 1).await;
        std::mem::forget(sdk.manager.restore_session("s".into()).await.unwrap());
        let mut second = service(request("s"));
        assert!(second.as_mut().now_or_never().is_none());
        sdk.lets.close();
        first.await;
        second.await;
        assert_eq!(sdk.seen(), (1, 2));
    }

    #[tokio::test]
    async fn after_a_restoration_that_failed_the_next_request_tries() {
        let dir = tempfile::tempdir().unwrap();
        let (sdk, all) = restorations(dir.path()).await;
        let service = all.service();
        sdk.lets.close();
        service(request("s")).await;
        service(request("s")).await;
        assert_eq!(sdk.seen(), (2, 2));
    }
}
