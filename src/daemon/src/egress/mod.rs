//! The way out: what a run may reach outside of its container, and the connections that it has there.
//!
//! ```text
//!  program ─ connect() ─► PID 1 ═ a stream of the link ═► gateway   which run asks, and what may it?
//!                                                          │ policy   by name (pure)
//!                                                          │ approval what is not allowed, put to the caller
//!                                                          │ resolve  hosts, then DNS; once
//!                                                          │ address  may this address be reached? (pure)
//!                                                          │ dial     the judged address, or a proxy
//!                                                          ▼
//!                                                        relay ═► the other side
//!                                                          └ ledger   what the run is told of it at its end
//! ```
//!
//! A container has no network: what PID 1 does not carry meets no route. Policy is per run; PID 1 says which
//! run asks, and this module decides. A name below `paddock` is one of [`service`], which answers in place of
//! resolve and dial. Nothing here trusts what comes from a container, neither names nor bytes nor the order
//! of messages.
//!
//! It must never dial an address that it has not judged, ask a name server on behalf of a name that is not
//! allowed, nor let a connection outlive its run.

pub mod address;
mod approval;
pub mod ca_bundle;
pub mod client_hello;
mod connection;
mod dial;
pub mod gateway;
mod grant;
mod hello_retry;
pub mod host_name;
pub mod ledger;
pub mod pattern;
pub mod policy;
mod reach;
mod relay;
pub mod request;
pub mod resolve;
pub mod run;
pub mod service;
pub mod settings;
#[cfg(test)]
mod test_world;
mod through_proxy;
mod token_permits;
pub mod upstream_proxy;
pub mod usage;

pub use approval::{Approved, AskBounds, Asker, Question, Questions, questions};
pub use ca_bundle::{CaBundle, CaBundleError, system_roots};
pub use gateway::{Egress, Gateway};
pub use grant::{NetworkGrant, interface_addresses};
pub use host_name::{Host, HostName, HostNameError};
pub use ledger::Destination;
pub use pattern::{Pattern, PatternError};
pub use policy::{BlockReason, EgressRules, Judged, NetworkMode, NetworkPolicy, PolicyRefusal, RefusalKind};
pub use request::{NetworkArgument, NetworkRequest, TaskNetwork};
pub use resolve::SystemDns;
pub use run::{NetworkView, RunNetwork};
pub use service::model::{Dollars, ModelSettings, ModelUsage, Price, Prices, Provider};
pub use service::{BaseUrl, HeaderSource, SecretText, ServiceHeader, ServiceSettings};
pub use settings::{EgressBounds, EgressSettings};
pub use upstream_proxy::{UpstreamProxy, UpstreamProxyError};
pub use usage::NetworkUsage;
