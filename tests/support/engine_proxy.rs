//! A socket in front of an engine, behind which the engine can be slow or answer nothing but errors. What is
//! open already, such as its stream of events, goes on.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::task::AbortOnDropHandle;

/// What happens to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Through,
    /// Each waits this long before the engine sees it.
    Slow(Duration),
    /// Each is answered with status 500.
    Refusing,
    /// Those that have these words in them are answered with status 400.
    RefusingThese(&'static str),
}

pub(crate) struct EngineProxy {
    dir: TempDir,
    mode: Arc<Mutex<Mode>>,
    refused: Arc<AtomicUsize>,
    _serving: AbortOnDropHandle<()>,
}

/// What follows the status of a refusal.
const REFUSAL: &str = "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 30\r\n\r\n\
    {\"message\":\"broken by a test\"}";

impl EngineProxy {
    /// In front of the engine at this address in the form of `DOCKER_HOST`.
    pub(crate) fn of(host: &str) -> EngineProxy {
        let dir = TempDir::new().expect("a directory");
        let listener = UnixListener::bind(dir.path().join("proxy.sock")).expect("a socket");
        let engine = host.strip_prefix("unix://").expect("a socket").to_owned();
        let mode = Arc::new(Mutex::new(Mode::Through));
        let (shared, refused) = (mode.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = refused.clone();
        let serving = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (engine, mode, refused) = (engine.clone(), shared.clone(), counted.clone());
                tokio::spawn(async move { serve(client, Path::new(&engine), &mode, &refused).await });
            }
        });
        EngineProxy { dir, mode, refused, _serving: AbortOnDropHandle::new(serving) }
    }

    pub(crate) fn host(&self) -> String {
        format!("unix://{}", self.dir.path().join("proxy.sock").display())
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock().expect("whole") = mode;
    }

    /// How many requests were refused.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }
}

/// Whether these bytes begin a request. Clients send heads in one piece.
fn begins(bytes: &[u8]) -> bool {
    ["GET /", "HEAD /", "POST /", "PUT /", "DELETE /"].iter().any(|verb| bytes.starts_with(verb.as_bytes()))
}

/// Whether these bytes have these words in them. Clients send a request with a small body in one piece.
fn has(bytes: &[u8], words: &str) -> bool {
    bytes.windows(words.len()).any(|part| part == words.as_bytes())
}

async fn serve(client: UnixStream, engine: &Path, mode: &Mutex<Mode>, refused: &AtomicUsize) {
    // An engine that is gone looks as it does without the proxy: the connection ends.
    let Ok(engine) = UnixStream::connect(engine).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_engine, mut to_engine) = engine.into_split();
    let requests = async {
        let mut piece = vec![0; 64 * 1024];
        loop {
            let read = from_client.read(&mut piece).await.unwrap_or(0);
            if read == 0 {
                let _ = to_engine.shutdown().await;
                return None;
            }
            let now = *mode.lock().expect("whole");
            match now {
                Mode::Slow(time) if begins(&piece[..read]) => tokio::time::sleep(time).await,
                Mode::Refusing if begins(&piece[..read]) => return Some("500 Internal Server Error"),
                Mode::RefusingThese(words) if has(&piece[..read], words) => return Some("400 Bad Request"),
                Mode::Slow(_) | Mode::Refusing | Mode::RefusingThese(_) | Mode::Through => {}
            }
            if to_engine.write_all(&piece[..read]).await.is_err() {
                return None;
            }
        }
    };
    let mut copying = Box::pin(tokio::io::copy(&mut from_engine, &mut to_client));
    tokio::select! {
        status = requests => {
            if let Some(status) = status {
                drop(copying);
                refused.fetch_add(1, Ordering::SeqCst);
                let _ = to_client.write_all(format!("HTTP/1.1 {status}{REFUSAL}").as_bytes()).await;
            } else {
                let _ = copying.await;
            }
        }
        _ = &mut copying => {}
    }
}
