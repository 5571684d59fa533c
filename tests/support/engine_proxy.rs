//! A socket in front of an engine, behind which the engine can be slow or answer nothing but errors. What is
//! open already, such as its stream of events, goes on.

use std::path::Path;
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
}

pub(crate) struct EngineProxy {
    dir: TempDir,
    mode: Arc<Mutex<Mode>>,
    _serving: AbortOnDropHandle<()>,
}

const REFUSAL: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n\
    Connection: close\r\nContent-Length: 30\r\n\r\n{\"message\":\"broken by a test\"}";

impl EngineProxy {
    /// In front of the engine at this address in the form of `DOCKER_HOST`.
    pub(crate) fn of(host: &str) -> EngineProxy {
        let dir = TempDir::new().expect("a directory");
        let listener = UnixListener::bind(dir.path().join("proxy.sock")).expect("a socket");
        let engine = host.strip_prefix("unix://").expect("a socket").to_owned();
        let mode = Arc::new(Mutex::new(Mode::Through));
        let shared = mode.clone();
        let serving = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (engine, mode) = (engine.clone(), shared.clone());
                tokio::spawn(async move { serve(client, Path::new(&engine), &mode).await });
            }
        });
        EngineProxy { dir, mode, _serving: AbortOnDropHandle::new(serving) }
    }

    pub(crate) fn host(&self) -> String {
        format!("unix://{}", self.dir.path().join("proxy.sock").display())
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock().expect("whole") = mode;
    }
}

/// Whether these bytes begin a request. Clients send heads in one piece.
fn begins(bytes: &[u8]) -> bool {
    ["GET /", "HEAD /", "POST /", "PUT /", "DELETE /"].iter().any(|verb| bytes.starts_with(verb.as_bytes()))
}

async fn serve(client: UnixStream, engine: &Path, mode: &Mutex<Mode>) {
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
                return false;
            }
            let now = *mode.lock().expect("whole");
            match now {
                Mode::Slow(time) if begins(&piece[..read]) => tokio::time::sleep(time).await,
                Mode::Refusing if begins(&piece[..read]) => return true,
                Mode::Slow(_) | Mode::Refusing | Mode::Through => {}
            }
            if to_engine.write_all(&piece[..read]).await.is_err() {
                return false;
            }
        }
    };
    let mut copying = Box::pin(tokio::io::copy(&mut from_engine, &mut to_client));
    tokio::select! {
        refused = requests => {
            if refused {
                drop(copying);
                let _ = to_client.write_all(REFUSAL.as_bytes()).await;
            } else {
                let _ = copying.await;
            }
        }
        _ = &mut copying => {}
    }
}
