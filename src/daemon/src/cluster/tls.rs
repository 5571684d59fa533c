//! TLS between nodes, without certificates: `cluster.key` is all that they share.
//!
//! Every node derives the same Ed25519 key pair from the key of the cluster, shows its public half as a raw
//! public key (RFC 7250) and demands to see the same one: a peer that can prove it has the private half has
//! the cluster's key. So both ends are authenticated, everything between them is encrypted with keys that
//! TLS 1.3 makes for each connection, and nothing expires.
//!
//! A connection must never be served that has not shown this key.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use tokio_rustls::rustls::crypto::verify_tls13_signature_with_raw_key;
use tokio_rustls::rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use tokio_rustls::rustls::server::AlwaysResolvesServerRawPublicKeys;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error as TlsError,
    ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::keys::ClusterKeys;

/// What stands before the 32 bytes of an Ed25519 key in PKCS #8. Source: RFC 8410, section 7.
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The name that a client has to give to TLS; it is not sent.
const NAME: &str = "node.paddock.invalid";

/// Both ends of TLS between nodes.
#[derive(Clone)]
pub struct ClusterTls {
    /// The end that accepts.
    pub acceptor: TlsAcceptor,
    connector: TlsConnector,
}

impl ClusterTls {
    /// TLS with these keys.
    ///
    /// # Errors
    /// Never with keys of 32 bytes; the library's words otherwise.
    pub fn new(keys: &ClusterKeys) -> Result<Self, TlsError> {
        let pkcs8 = [&PKCS8[..], &keys.tls[..]].concat();
        let pair = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8))?;
        let public = pair.public_key().ok_or_else(|| TlsError::General("no public key".to_owned()))?;
        let public = public.as_ref().to_vec();
        let shown = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.clone())], pair));
        let provider = Arc::new(ring::default_provider());
        let same = Arc::new(SameKey { public, algorithms: provider.signature_verification_algorithms });
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(same.clone())
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(shown.clone())));
        server.send_tls13_tickets = 0;
        let client = client(provider, same, shown)?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
        })
    }

    /// Does the handshake of a connection to a peer.
    ///
    /// # Errors
    /// The other end is no node of this cluster, or the connection broke.
    pub async fn connect<S>(&self, stream: S) -> std::io::Result<tokio_rustls::client::TlsStream<S>>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(NAME).map_err(std::io::Error::other)?;
        self.connector.connect(name, stream).await
    }
}

fn client(
    provider: Arc<CryptoProvider>,
    same: Arc<SameKey>,
    shown: Arc<CertifiedKey>,
) -> Result<ClientConfig, TlsError> {
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(same)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(shown)));
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    Ok(client)
}

/// Accepts exactly one public key, whichever end shows it.
#[derive(Debug)]
struct SameKey {
    /// A `SubjectPublicKeyInfo`.
    public: Vec<u8>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl SameKey {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), TlsError> {
        if shown.as_ref() == self.public {
            return Ok(());
        }
        Err(TlsError::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn proven(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let public = SubjectPublicKeyInfoDer::from(shown.as_ref());
        verify_tls13_signature_with_raw_key(message, &public, signature, &self.algorithms)
    }
}

fn no_tls12() -> TlsError {
    TlsError::General("nodes speak TLS 1.3".to_owned())
}

impl ServerCertVerifier for SameKey {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.proven(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for SameKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.proven(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::rustls::RootCertStore;

    use super::*;

    fn tls(secret: &str) -> ClusterTls {
        ClusterTls::new(&ClusterKeys::derive(secret.as_bytes())).unwrap()
    }

    /// Whether a byte arrives at the accepting end.
    async fn speaks(
        server: &ClusterTls,
        client: impl AsyncFnOnce(tokio::io::DuplexStream) -> std::io::Result<()>,
    ) -> bool {
        let (here, there) = tokio::io::duplex(64 * 1024);
        let serving = async {
            let mut accepted = server.acceptor.accept(there).await?;
            accepted.read_u8().await
        };
        let (served, _) = tokio::join!(serving, client(here));
        served.is_ok()
    }

    async fn with(client: ClusterTls, stream: tokio::io::DuplexStream) -> std::io::Result<()> {
        let mut connected = client.connect(stream).await?;
        connected.write_u8(1).await?;
        connected.flush().await
    }

    #[tokio::test]
    async fn nodes_of_one_key_speak_and_no_others() {
        let server = tls("k");
        assert!(speaks(&server, async |stream| with(tls("k"), stream).await).await);
        assert!(!speaks(&server, async |stream| with(tls("l"), stream).await).await);
    }

    #[tokio::test]
    async fn a_client_without_a_key_is_not_served_even_if_it_trusts_the_node() {
        let server = tls("k");
        let provider = Arc::new(ring::default_provider());
        let mut anonymous = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let algorithms = ring::default_provider().signature_verification_algorithms;
        let pkcs8 = [&PKCS8[..], &ClusterKeys::derive(b"k").tls[..]].concat();
        let pair = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8)).unwrap();
        let public = pair.public_key().unwrap().as_ref().to_vec();
        anonymous.dangerous().set_certificate_verifier(Arc::new(SameKey { public, algorithms }));
        let connector = TlsConnector::from(Arc::new(anonymous));
        let client = async |stream: tokio::io::DuplexStream| {
            let mut connected = connector.connect(ServerName::try_from(NAME).unwrap(), stream).await?;
            connected.write_u8(1).await?;
            connected.flush().await
        };
        assert!(!speaks(&server, client).await);
    }
}
