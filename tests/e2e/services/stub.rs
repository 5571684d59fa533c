//! A service on this host's loopback: it notes what it receives, and answers by path.

use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

/// A request as the service received it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: usize,
}

impl Seen {
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }
}

#[derive(Default)]
struct State {
    seen: Mutex<Vec<Seen>>,
    next: Notify,
}

/// The service, which ends when it is dropped.
pub(crate) struct Stub {
    pub(crate) port: u16,
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl Stub {
    /// Plain HTTP/1.1.
    pub(crate) async fn plain() -> Stub {
        Stub::start(None).await
    }

    /// TLS with the certificate in this folder; HTTP/2 if the client takes it.
    pub(crate) async fn encrypted(folder: &Path) -> Stub {
        let chain = CertificateDer::pem_file_iter(folder.join("cert.pem")).expect("a file");
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth();
        let mut config = config.with_single_cert(chain, key).expect("a certificate");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Stub::start(Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn start(tls: Option<TlsAcceptor>) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::<State>::default();
        let shared = state.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, tls) = (shared.clone(), tls.clone());
                tokio::spawn(async move {
                    let Some(tls) = tls else { return serve(stream, false, state).await };
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    serve(stream, is_h2, state).await;
                });
            }
        });
        Stub { port, state, task }
    }

    /// What it received so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().expect("no panic").clone()
    }

    #[track_caller]
    pub(crate) fn last(&self) -> Seen {
        self.seen().last().expect("a request").clone()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, is_h2: bool, state: Arc<State>) {
    let answer = service_fn(move |request| {
        let state = state.clone();
        async move { Ok::<_, Infallible>(answer(request, &state).await) }
    });
    let io = TokioIo::new(stream);
    if is_h2 {
        let _ =
            hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, answer).await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, answer).await;
    }
}

type Body = BoxBody<Bytes, Infallible>;

async fn answer(request: Request<Incoming>, state: &Arc<State>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let seen = Seen {
        line: format!("{} {}", parts.method, parts.uri.path_and_query().map_or("", |path| path.as_str())),
        version: parts.version,
        headers: parts.headers.clone(),
        body: body.len(),
    };
    state.seen.lock().expect("no panic").push(seen);
    let credential = parts.headers.get("authorization").cloned();
    let text = credential.as_ref().and_then(|value| value.to_str().ok()).unwrap_or("none").to_owned();
    let key = text.rsplit(' ').next().unwrap_or_default().to_owned();
    let full = |text: String| Full::new(Bytes::from(text)).boxed();
    let mut response = match parts.uri.path() {
        // The credential in a header and in the body, cut after each byte.
        "/v1/echo" => {
            let pieces: Vec<_> = format!("<{text}> and {{\"key\":\"{key}\"}}")
                .into_bytes()
                .into_iter()
                .map(|byte| Ok(Frame::data(Bytes::from(vec![byte]))))
                .collect();
            let body = StreamBody::new(futures_util::stream::iter(pieces));
            let mut response = Response::new(BodyExt::boxed(body));
            response.headers_mut().insert("x-echo", text.parse().expect("a value"));
            response
        }
        "/v1/whole" => Response::new(full(format!("{text}."))),
        // The second event waits for another request.
        "/v1/events" => {
            let (sender, mut receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
            let state = state.clone();
            tokio::spawn(async move {
                let _ = sender.send(Bytes::from_static(b"data: first\n\n")).await;
                state.next.notified().await;
                let _ = sender.send(Bytes::from_static(b"data: second\n\n")).await;
            });
            let events = futures_util::stream::poll_fn(move |context| {
                receiver.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
            });
            let mut response = Response::new(BodyExt::boxed(StreamBody::new(events)));
            response.headers_mut().insert("content-type", "text/event-stream".parse().expect("a value"));
            response
        }
        "/v1/next" => {
            state.next.notify_one();
            Response::new(full("next".to_owned()))
        }
        "/v1/redirect" => {
            let mut response = Response::new(full(String::new()));
            *response.status_mut() = http::StatusCode::FOUND;
            response.headers_mut().insert("location", "/v1/whole?again=1".parse().expect("a value"));
            response
        }
        "/v1/gzip" => {
            let mut response = Response::new(full("packed".to_owned()));
            response.headers_mut().insert("content-encoding", "gzip".parse().expect("a value"));
            response
        }
        path => Response::new(full(format!("{} {path} {}", parts.method, body.len()))),
    };
    response.headers_mut().insert("x-stub", "1".parse().expect("a value"));
    response
}
