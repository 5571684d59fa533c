//! The certificates of a company network (`egress.ca_bundle`): read once at the start, and trusted beside the
//! public ones by the daemon and by programs.
//!
//! ```text
//!  the operator's PEM file ─ read ─► CaBundle ─► the daemon's TLS to services
//!                                       └─ for_programs: with the roots of this host ─► /.paddock/ca.pem
//! ```
//!
//! It must never take a file that has a private key: everything in the bundle is shown to programs.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tracing::{error, warn};

/// Bytes of the file. All public authorities together have a quarter of it; programs read it at each start.
const MAX_BYTES: u64 = 1 << 20;

/// Characters in a line of PEM (RFC 7468).
const LINE: usize = 64;

/// Certificates that are trusted besides the public ones.
#[derive(Clone, PartialEq, Eq)]
pub struct CaBundle(Vec<CertificateDer<'static>>);

impl fmt::Debug for CaBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaBundle({} certificates)", self.0.len())
    }
}

/// What is wrong with a bundle. Each text goes on after the name of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CaBundleError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(io::ErrorKind),
    /// It is a folder or a device.
    #[error("is no regular file, takes a file with certificates in PEM")]
    NoFile,
    /// It has no bytes.
    #[error("is empty, takes a file with certificates in PEM")]
    Empty,
    /// It is larger than any bundle.
    #[error("is larger than {} KiB, which no bundle of certificates is", MAX_BYTES / 1024)]
    TooLarge,
    /// It has a private key.
    #[error("has a private key, which every program could read: it takes certificates only")]
    PrivateKey,
    /// It has no block of a certificate.
    #[error("has no block -----BEGIN CERTIFICATE-----: a certificate in DER becomes PEM by `openssl x509`")]
    NoCertificate,
    /// A block is not PEM.
    #[error("has a block {0} of certificates that is damaged: it must be base64 up to its -----END line")]
    Damaged(usize),
    /// A block holds something else.
    #[error("has a block {0} of certificates that is no X.509 certificate")]
    NotX509(usize),
}

impl CaBundle {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`CaBundleError`].
    pub fn read(path: &Path) -> Result<Self, CaBundleError> {
        let unreadable = |error: io::Error| CaBundleError::Unreadable(error.kind());
        // Before it is opened: to open a pipe waits for its other end.
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(CaBundleError::NoFile);
        }
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        Self::parse(&bytes)
    }

    /// Reads the content of a file. Text between the blocks is a comment.
    ///
    /// # Errors
    /// See [`CaBundleError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, CaBundleError> {
        if bytes.trim_ascii().is_empty() {
            return Err(CaBundleError::Empty);
        }
        if bytes.len() as u64 > MAX_BYTES {
            return Err(CaBundleError::TooLarge);
        }
        let is_key = |line: &[u8]| {
            line.trim_ascii().starts_with(b"-----BEGIN ")
                && memchr::memmem::find(line, b"PRIVATE KEY").is_some()
        };
        if bytes.split(|byte| *byte == b'\n').any(is_key) {
            return Err(CaBundleError::PrivateKey);
        }
        let mut certificates = Vec::new();
        for (at, block) in CertificateDer::pem_slice_iter(bytes).enumerate() {
            let certificate = block.map_err(|_| CaBundleError::Damaged(at + 1))?;
            let is_usable = RootCertStore::empty().add(certificate.clone()).is_ok();
            if !is_usable {
                return Err(CaBundleError::NotX509(at + 1));
            }
            certificates.push(certificate);
        }
        if certificates.is_empty() { Err(CaBundleError::NoCertificate) } else { Ok(Self(certificates)) }
    }

    /// The certificates.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.0
    }

    /// What programs trust, as a PEM file: these certificates and the roots of this host. It is the same for
    /// the same certificates, in whatever order they were found.
    #[must_use]
    pub fn for_programs(&self) -> Vec<u8> {
        let public = system_roots();
        if public.is_empty() {
            warn!(
                "this system has no root certificates, so programs trust nothing but egress.ca_bundle: \
                 install ca-certificates"
            );
        }
        self.file(&public)
    }

    fn file(&self, public: &[CertificateDer<'static>]) -> Vec<u8> {
        let all: BTreeSet<&[u8]> = self.0.iter().chain(public).map(AsRef::as_ref).collect();
        let mut file = Vec::new();
        for certificate in all {
            file.extend_from_slice(b"-----BEGIN CERTIFICATE-----\n");
            for line in STANDARD.encode(certificate).as_bytes().chunks(LINE) {
                file.extend_from_slice(line);
                file.push(b'\n');
            }
            file.extend_from_slice(b"-----END CERTIFICATE-----\n");
        }
        file
    }
}

/// The root certificates of this host, or of the file that `SSL_CERT_FILE` names to the daemon.
pub fn system_roots() -> Vec<CertificateDer<'static>> {
    let found = rustls_native_certs::load_native_certs();
    for problem in &found.errors {
        warn!(%problem, "some root certificates of this system cannot be read");
    }
    found.certs
}

/// All that the daemon trusts when it speaks TLS to a service.
pub(super) fn trusted(bundle: Option<&CaBundle>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(system_roots());
    roots.add_parsable_certificates(bundle.into_iter().flat_map(|bundle| bundle.0.iter().cloned()));
    if roots.is_empty() {
        error!(
            "this system has no root certificates, so no service is reached over TLS: install ca-certificates"
        );
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("ca_bundle/test.pem");

    fn problem(text: &str) -> CaBundleError {
        CaBundle::parse(text.as_bytes()).expect_err(text)
    }

    #[test]
    fn what_is_no_bundle_is_refused_by_what_is_wrong_with_it() {
        let key = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n";
        let encrypted = key.replace("EC PRIVATE", "ENCRYPTED PRIVATE").replace('\n', "\r\n");
        assert_eq!(problem(""), CaBundleError::Empty);
        assert_eq!(problem(" \n"), CaBundleError::Empty);
        assert_eq!(problem(&format!("{GOOD}{key}")), CaBundleError::PrivateKey);
        assert_eq!(problem(&format!("{GOOD}{encrypted}")), CaBundleError::PrivateKey);
        assert_eq!(problem("words"), CaBundleError::NoCertificate);
        assert_eq!(
            problem(&GOOD.replace("CERTIFICATE", "TRUSTED CERTIFICATE")),
            CaBundleError::NoCertificate
        );
        let other = GOOD.replace("MII", "AII");
        assert_eq!(problem(&format!("{GOOD}{other}")), CaBundleError::NotX509(2));
        let half = GOOD.split_once("-----END").expect("an end").0;
        assert_eq!(problem(&format!("{GOOD}{half}")), CaBundleError::Damaged(2));
        let long = "x".repeat(usize::try_from(MAX_BYTES).expect("a size") + 1);
        assert_eq!(problem(&long), CaBundleError::TooLarge);
    }

    #[test]
    fn a_file_that_is_none_is_refused_and_nothing_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = CaBundle::read(&folder.path().join("none.pem")).expect_err("it is missing");
        assert_eq!(missing, CaBundleError::Unreadable(io::ErrorKind::NotFound));
        assert_eq!(CaBundle::read(folder.path()).expect_err("a folder"), CaBundleError::NoFile);
        assert_eq!(CaBundle::read(Path::new("/dev/zero")).expect_err("a device"), CaBundleError::NoFile);
    }

    #[test]
    fn the_file_of_programs_has_every_certificate_once_and_in_one_order() {
        let commented = format!("# of the company\n{GOOD}and again:\n{GOOD}");
        let bundle = CaBundle::parse(commented.as_bytes()).expect("certificates");
        assert_eq!(bundle.certificates().len(), 2);
        let own = bundle.certificates()[0].clone();
        let other = CertificateDer::from(vec![7; 100]);
        let one = bundle.file(&[other.clone(), own.clone()]);
        assert_eq!(one, bundle.file(&[own.clone(), other.clone(), other.clone()]));
        let read: Vec<_> = CertificateDer::pem_slice_iter(&one).map(|block| block.expect("PEM")).collect();
        assert_eq!(read, [other, own]);
        assert!(String::from_utf8_lossy(&one).lines().all(|line| line.len() <= LINE));
        assert!(one.ends_with(b"-----END CERTIFICATE-----\n"));
    }

    #[test]
    fn the_daemon_trusts_the_bundle_beside_the_roots_of_its_host() {
        let bundle = CaBundle::parse(GOOD.as_bytes()).expect("a certificate");
        assert_eq!(trusted(Some(&bundle)).len(), trusted(None).len() + 1);
    }
}
