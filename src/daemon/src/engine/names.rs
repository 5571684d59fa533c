//! Resolves the name of an engine's host in this process, by `/etc/hosts` and the name servers of the
//! system.
//!
//! It must never ask the C library. A release is a static program: on a system whose `nsswitch.conf`
//! names further modules (`resolve`, `myhostname`), the library loads them although they belong to
//! another C library, and the process dies.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use hickory_resolver::TokioResolver;
use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;

/// The addresses of engines. Each connection asks anew, since an engine may move.
#[derive(Debug, Clone)]
pub(super) struct EngineNames;

impl Service<Name> for EngineNames {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        Box::pin(async move {
            let resolver = TokioResolver::builder_tokio().and_then(|builder| builder.build());
            let found = resolver.map_err(io::Error::other)?.lookup_ip(name.as_str()).await;
            let found = found.map_err(|error| io::Error::new(io::ErrorKind::NotFound, error))?;
            // The connector puts its port in.
            Ok(found.iter().map(|ip| SocketAddr::new(ip, 0)).collect::<Vec<_>>().into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_of_the_hosts_file_has_its_address_and_an_unknown_one_is_an_error() {
        let found = EngineNames.call("localhost".parse().expect("a name")).await.expect("an address");
        assert!(found.into_iter().all(|address| address.ip().is_loopback()));
        EngineNames.call("engine.invalid".parse().expect("a name")).await.expect_err("no such name");
    }
}
