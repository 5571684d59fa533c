//! Why a connection is blocked, for callers and for metrics.

/// Why a connection is blocked. The text is a short reason, as in "api.github.com:443 was blocked: not in
/// allowed_domains".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BlockReason {
    /// The caller's list does not have it.
    #[error("not in allowed_domains")]
    NotAllowed,
    /// The caller gets `egress.allow`, which does not have it.
    #[error("not in egress.allow")]
    Restricted,
    /// The caller's list does not have it, and the caller was asked.
    #[error("not in allowed_domains, and the caller did not approve it")]
    NotApproved,
    /// The same, of a run that may not ask its caller again.
    #[error("not in allowed_domains, and this run has asked its caller as often as it may")]
    AskedEnough,
    /// The mode is `none`: only services are there.
    #[error("egress.mode is none")]
    Mode,
    /// The configuration denies it.
    #[error("in egress.deny")]
    Denied,
    /// The caller denies it.
    #[error("in denied_domains")]
    DeniedByCaller,
    /// The address is not public: see [`super::super::address::special_range`].
    #[error("{0}")]
    NotGlobal(&'static str),
    /// The address is one of the host's.
    #[error("an address of this server itself")]
    OwnAddress,
    /// The address is that of `egress.upstream_proxy`.
    #[error("the upstream proxy of this server")]
    UpstreamProxy,
    /// The TLS hello has another name than the one that was asked for.
    #[error("its TLS hello names another host")]
    TlsName,
    /// The TLS hello hides its name.
    #[error("its TLS hello is encrypted, so that its host cannot be checked")]
    EncryptedHello,
    /// The TLS hello has no name.
    #[error("its TLS hello names no host")]
    NoTlsName,
    /// The connection to port 443 does not begin with a TLS hello.
    #[error("not TLS, on port 443")]
    NotTls,
    /// The name is one of services, and the run has not asked for it.
    #[error("not in network.services of the call")]
    NoService,
    /// A service is there on one port only.
    #[error("a service is reached on port 80: use http://NAME.paddock/")]
    ServicePort,
    /// A program speaks TLS to a service.
    #[error("a service is reached by http://, and the server adds TLS outside: use http://NAME.paddock/")]
    ServiceTls,
    /// A limit is reached, which the text names.
    #[error("{0}")]
    Limit(&'static str),
}

impl BlockReason {
    /// The label of metrics: one of a closed set.
    pub fn label(self) -> &'static str {
        match self {
            BlockReason::NotAllowed | BlockReason::Restricted => "not_allowed",
            BlockReason::NotApproved | BlockReason::AskedEnough => "not_approved",
            BlockReason::Mode => "mode",
            BlockReason::Denied | BlockReason::DeniedByCaller => "denied",
            BlockReason::NotGlobal(_) => "not_global",
            BlockReason::OwnAddress | BlockReason::UpstreamProxy => "own_address",
            BlockReason::TlsName => "tls_name",
            BlockReason::EncryptedHello => "encrypted_hello",
            BlockReason::NoTlsName => "no_tls_name",
            BlockReason::NotTls => "not_tls",
            BlockReason::NoService | BlockReason::ServicePort | BlockReason::ServiceTls => "service",
            BlockReason::Limit(_) => "limit",
        }
    }
}
