//! TLS to an engine, with a folder of certificates like that of Docker's own client.
//!
//! ```text
//!  ca.pem              the authority that signs engines' certificates; no other is trusted
//!  cert.pem, key.pem   this client's certificate and key; optional if the engine asks for none
//! ```
//!
//! The files are read once, when the client is made. It must never talk to an engine whose certificate is not
//! signed for the host's name: otherwise an attacker on the network path would get root on the engine's
//! machine.

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, Error as TlsError, RootCertStore, crypto::ring};

/// Why a folder of certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    /// A file is missing or unusable.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The host's name cannot be in a certificate.
    #[error("no certificate can be made for the host `{0}`; expected a DNS name or an IP address")]
    Name(String),
}

/// Makes TLS connections to one engine.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tls {
    /// A client for the engine of this name or address, with the certificates of a folder.
    ///
    /// # Errors
    /// A file is missing or unusable, or the name cannot be in a certificate.
    pub(super) fn new(folder: &Path, host: &str) -> Result<Tls, CertificateError> {
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| CertificateError::Name(host.to_owned()))?;
        let (ca, cert, key) = (folder.join("ca.pem"), folder.join("cert.pem"), folder.join("key.pem"));
        let mut roots = RootCertStore::empty();
        for signer in certificates(&ca)? {
            roots.add(signer).map_err(|error| wrong(&ca, &error))?;
        }
        let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&ca, &error))?;
        let verified = versions.with_root_certificates(roots);
        let config = if cert.exists() || key.exists() {
            let private = PrivateKeyDer::from_pem_file(&key).map_err(|error| unread(&key, &error))?;
            verified
                .with_client_auth_cert(certificates(&cert)?, private)
                .map_err(|error| wrong(&cert, &error))?
        } else {
            verified.with_no_client_auth()
        };
        Ok(Tls { connector: TlsConnector::from(Arc::new(config)), name })
    }

    /// Starts TLS on an open connection.
    ///
    /// # Errors
    /// The connection broke, or the other end could not prove to be the configured engine.
    pub(super) async fn over(&self, plain: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), plain).await
    }
}

/// The certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let all: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| unread(path, &error))?.collect();
    let all = all.map_err(|error| unread(path, &error))?;
    if all.is_empty() {
        return Err(wrong(path, &"it holds no certificate in PEM"));
    }
    Ok(all)
}

fn unread(path: &Path, error: &PemError) -> CertificateError {
    if let PemError::Io(error) = error {
        return wrong(path, error);
    }
    if matches!(error, PemError::NoItemsFound) {
        return wrong(path, &"it holds no certificate or key in PEM");
    }
    wrong(path, error)
}

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> CertificateError {
    CertificateError::File { path: path.to_owned(), why: why.to_string() }
}

/// The error of TLS inside an error of a connection, if there is one.
pub(super) fn inside(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref()
}

/// The cause of an error in TLS or in our certificate files, if there is one.
pub(super) fn blamed(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(ours) = cause.downcast_ref::<CertificateError>() {
            return Some(ours.to_string());
        }
        if let Some(tls) = cause.downcast_ref().and_then(inside) {
            return Some(tls.to_string());
        }
        next = cause.source();
    }
    None
}
