//! TLS of the daemon's own listeners: a certificate and its key from two files, which are read again when
//! they change.
//!
//! ```text
//!  accept ─► permit ─► handshake, in the connection's own task, within its deadline ─► HTTP
//!                          └ a request without TLS is told so
//!  watch  ─► the files changed ─► both fit ─► new handshakes use them
//!                              └► else the previous pair stays, and log, metric and /health say so
//! ```
//!
//! A handshake must never hold up the acceptance of other connections, and a pair of files that cannot be
//! used must never replace one that can. No part of a key may reach a log or an error.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error as TlsError, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::stall::StallTimeout;
use crate::config::TlsFiles;
use crate::metrics::Metrics;

/// How often the two files are looked at. A program that renews certificates replaces them once in weeks.
const LOOK: Duration = Duration::from_secs(1);
/// The longest time of a handshake: it takes two or three round trips.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The first byte of TLS: a record of the handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// How much of a request without TLS is read, and for how long, so that its client gets to read the answer.
const PLAIN_BYTES: u64 = 64 * 1024;
const PLAIN_TIME: Duration = Duration::from_secs(1);
/// The code in the answer to a request without TLS.
pub(crate) const NEEDS_TLS: &str = "tls_required";

/// Why a pair of files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsFilesError {
    /// One of the files cannot be read, or has not what it must have.
    #[error("{setting} ({}): {why}", path.display())]
    File {
        /// The setting that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The certificate and the key do not fit together, or cannot be used by this daemon.
    #[error("http.tls_certificate ({}) with http.tls_key ({}): {why}", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What is wrong with them.
        why: String,
    },
}

/// What tells whether a file is still the one that was read: a link that leads to another file counts, too.
type Fingerprint = [Option<(u64, u64, i64, i64)>; 2];

/// The certificate and the key in use.
pub struct ServerTls {
    files: TlsFiles,
    metrics: Metrics,
    state: Mutex<TlsState>,
}

struct TlsState {
    acceptor: TlsAcceptor,
    /// The files that were read last, whether they could be used or not.
    seen: Fingerprint,
    /// Why the newest files are not in use.
    problem: Option<String>,
}

impl ServerTls {
    /// Reads the two files.
    ///
    /// # Errors
    /// [`TlsFilesError`].
    pub fn open(files: TlsFiles, metrics: Metrics) -> Result<Arc<Self>, TlsFilesError> {
        let seen = fingerprint(&files);
        let acceptor = acceptor(&files)?;
        metrics.tls_pair(true);
        let state = Mutex::new(TlsState { acceptor, seen, problem: None });
        Ok(Arc::new(Self { files, metrics, state }))
    }

    /// Looks at the files until `stop`, and uses them when they have changed.
    pub(crate) async fn watch(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = stop.cancelled() => return,
            }
            let tls = self.clone();
            let _ = tokio::task::spawn_blocking(move || tls.look()).await; // reading files may block
        }
    }

    /// Reads the files again if they have changed.
    fn look(&self) {
        let now = fingerprint(&self.files);
        if self.state().seen == now {
            return;
        }
        let read = acceptor(&self.files);
        let mut state = self.state();
        state.seen = now;
        match read {
            Ok(acceptor) => {
                state.acceptor = acceptor;
                state.problem = None;
                drop(state);
                info!(certificate = %self.files.certificate.display(), "the new TLS certificate is in use");
                self.metrics.tls_pair(true);
            }
            Err(error) => {
                let problem = error.to_string();
                let is_news = state.problem.as_ref() != Some(&problem);
                state.problem = Some(problem);
                drop(state);
                if is_news {
                    warn!(%error, "the new TLS certificate cannot be used: the previous one stays in use");
                }
                self.metrics.tls_pair(false);
            }
        }
    }

    /// Does the handshake of a new connection, within `header_timeout`; `None` if there is nothing to serve.
    pub(super) async fn accept(
        &self,
        mut stream: StallTimeout<TcpStream>,
        header_timeout: Duration,
    ) -> Option<TlsStream<StallTimeout<TcpStream>>> {
        let acceptor = self.state().acceptor.clone();
        let handshake = async {
            let mut first = [0];
            if stream.stream().peek(&mut first).await? == 0 {
                return Ok(Handshake::Nothing);
            }
            if first != [TLS_HANDSHAKE] {
                refuse_plain(&mut stream).await?;
                return Ok(Handshake::Plain);
            }
            acceptor.accept(stream).await.map(|stream| Handshake::Done(Box::new(stream)))
        };
        let (outcome, stream) = match tokio::time::timeout(HANDSHAKE.min(header_timeout), handshake).await {
            Ok(Ok(Handshake::Done(stream))) => ("ok", Some(*stream)),
            Ok(Ok(Handshake::Nothing)) => return None, // a probe of the port
            Ok(Ok(Handshake::Plain)) => ("plain", None),
            Ok(Err(error)) => {
                debug!(%error, "a TLS handshake failed");
                ("failed", None)
            }
            Err(_) => ("late", None),
        };
        self.metrics.tls_handshake(outcome);
        stream
    }

    fn state(&self) -> std::sync::MutexGuard<'_, TlsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Handshake {
    Done(Box<TlsStream<StallTimeout<TcpStream>>>),
    Plain,
    Nothing,
}

/// Tells a client without TLS what is wrong. What it sent was readable on the way, but is not read here.
async fn refuse_plain(stream: &mut StallTimeout<TcpStream>) -> io::Result<()> {
    let message = "this address speaks TLS: use https:// in place of http://";
    let body = serde_json::json!({ "error": { "code": NEEDS_TLS, "message": message } }).to_string();
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    stream.shutdown().await?;
    let rest = async {
        let mut rest = stream.take(PLAIN_BYTES);
        let _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
    };
    let _ = tokio::time::timeout(PLAIN_TIME, rest).await;
    Ok(())
}

/// Whether a daemon could use these files.
///
/// # Errors
/// [`TlsFilesError`].
pub(crate) fn check_files(files: &TlsFiles) -> Result<(), TlsFilesError> {
    acceptor(files).map(drop)
}

fn fingerprint(files: &TlsFiles) -> Fingerprint {
    [&files.certificate, &files.key].map(|path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec()))
    })
}

/// The two files, ready for handshakes: TLS 1.2 and 1.3, and HTTP/1.1 in it.
fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsFilesError> {
    let file = |setting, path: &Path, error: &PemError| {
        let why = if let PemError::Io(error) = error {
            error.to_string()
        } else if matches!(error, PemError::NoItemsFound) {
            "it has no certificate or key in PEM".to_owned()
        } else {
            // No other error is shown: some name a part of the file's content.
            "it is damaged: each block in PEM must be base64 up to its -----END line".to_owned()
        };
        TlsFilesError::File { setting, path: path.to_owned(), why }
    };
    let certificate = |error: PemError| file("http.tls_certificate", &files.certificate, &error);
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(&files.certificate).map_err(certificate)?.collect();
    let chain = chain.map_err(certificate)?;
    if chain.is_empty() {
        return Err(certificate(PemError::NoItemsFound));
    }
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| file("http.tls_key", &files.key, &error))?;
    let pair = |error: TlsError| {
        let is_foreign = matches!(error, TlsError::InconsistentKeys(_));
        let why =
            if is_foreign { "the key is not that of the certificate".to_owned() } else { error.to_string() };
        let (certificate, key) = (files.certificate.clone(), files.key.clone());
        TlsFilesError::Pair { certificate, key, why }
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
