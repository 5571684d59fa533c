//! Further authorities of certificates: those of a company, which its programs and this daemon are to trust.
//!
//! What is handed on are the certificates themselves, written anew: a file of an operator may have comments
//! and, by mistake, a private key. It must never hand on anything else of the file.

use std::fmt::{self, Write};
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

/// Bytes of the largest file; all public authorities together have a quarter of that.
const MAX_FILE: u64 = 1 << 20;

/// Characters of a line (RFC 7468).
const LINE: usize = 64;

/// Certificates of authorities, at least one.
#[derive(Clone, PartialEq, Eq)]
pub struct CaBundle {
    certificates: Vec<CertificateDer<'static>>,
}

impl fmt::Debug for CaBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaBundle({} certificates)", self.certificates.len())
    }
}

/// Why a file is no bundle. The text follows the file's name in a sentence.
#[derive(Debug, thiserror::Error)]
pub enum CaBundleError {
    /// It cannot be read.
    #[error("it cannot be read: {}", .0.kind())]
    Read(#[source] io::Error),
    /// It is larger than any bundle.
    #[error("it has {0} bytes, a file of certificates has at most {MAX_FILE}")]
    TooLarge(u64),
    /// Its text is damaged.
    #[error("it is no PEM file: {0}")]
    Pem(String),
    /// There is no certificate in it.
    #[error("it has no certificate (a part that begins with -----BEGIN CERTIFICATE-----)")]
    Empty,
    /// One of its certificates is none.
    #[error("certificate {number} in it is damaged: {reason}")]
    Damaged {
        /// Counted from 1.
        number: usize,
        /// What is wrong.
        reason: String,
    },
}

impl CaBundle {
    /// Reads a file of certificates in PEM, and checks each.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn read(path: &Path) -> Result<Self, CaBundleError> {
        let size = std::fs::metadata(path).map_err(CaBundleError::Read)?.len();
        if size > MAX_FILE {
            return Err(CaBundleError::TooLarge(size));
        }
        Self::parse(&std::fs::read(path).map_err(CaBundleError::Read)?)
    }

    fn parse(text: &[u8]) -> Result<Self, CaBundleError> {
        let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let certificates = parsed.map_err(|error| CaBundleError::Pem(error.to_string()))?;
        if certificates.is_empty() {
            return Err(CaBundleError::Empty);
        }
        for (at, certificate) in certificates.iter().enumerate() {
            let added = RootCertStore::empty().add(certificate.clone());
            let damaged = |reason: String| CaBundleError::Damaged { number: at + 1, reason };
            added.map_err(|error| damaged(error.to_string()))?;
        }
        Ok(Self { certificates })
    }

    /// The certificates that the daemon itself trusts beside the usual ones, where it speaks TLS for
    /// programs.
    pub fn extra_roots(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// The certificates in PEM, and nothing else.
    pub fn to_pem(&self) -> String {
        let mut pem = String::new();
        for certificate in &self.certificates {
            pem += "-----BEGIN CERTIFICATE-----\n";
            let text = STANDARD.encode(certificate);
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let (line, after) = rest.split_at(LINE.min(rest.len()));
                let _ = writeln!(pem, "{line}"); // a String takes everything
                rest = after;
            }
            pem += "-----END CERTIFICATE-----\n";
        }
        pem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = include_str!("ca_bundle_tests.pem");

    #[test]
    fn certificates_are_handed_on_and_nothing_else() {
        let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let bundle = CaBundle::parse(format!("# ours\n{PEM}{private}\nand {PEM}").as_bytes()).unwrap();
        assert_eq!(bundle.extra_roots().len(), 2);
        assert_eq!(bundle.to_pem(), PEM.repeat(2));
        assert_eq!(CaBundle::parse(bundle.to_pem().as_bytes()).unwrap(), bundle);
        assert_eq!(format!("{bundle:?}"), "CaBundle(2 certificates)");
    }

    #[test]
    fn a_file_that_is_no_bundle_says_why() {
        let damaged = PEM.replacen("MII", "AII", 1);
        for (text, said) in [
            ("", "no certificate"),
            ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "no certificate"),
            (damaged.as_str(), "certificate 1 in it is damaged"),
            ("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n", "no PEM file"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n", "no PEM file"),
        ] {
            let error = CaBundle::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let error = CaBundle::read(Path::new("/nowhere/ca.pem")).unwrap_err().to_string();
        assert!(error.contains("cannot be read"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let large = folder.path().join("large.pem");
        std::fs::write(&large, vec![b' '; (1 << 20) + 1]).unwrap();
        assert!(matches!(CaBundle::read(&large), Err(CaBundleError::TooLarge(_))));
    }
}
