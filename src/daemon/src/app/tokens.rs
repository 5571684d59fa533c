//! What a change of tokens means to the rest of the daemon: links are signed and verified for tenants that
//! have a token, and what a tenant without one still does is ended.
//!
//! Connections end by themselves: each notices when its own token is over ([`crate::api`]). It must never end
//! anything of a tenant that still has a token.

use std::sync::Arc;
use std::time::Duration;

use tracing::info;

use crate::api::Server;
use crate::services::Services;

/// After this long no call of a token that is gone is under way.
const SETTLED: Duration = Duration::from_secs(1);

/// Takes up every change, until the tenants are gone.
pub(super) async fn follow(services: Arc<Services>, server: Arc<Server>) {
    let mut pages = services.tenants.pages();
    while pages.changed().await.is_ok() {
        let book = services.tenants.book();
        let owners = || book.tenants().map(|tenant| &*tenant.name);
        services.signer.set_owners(owners());
        services.ports.links().set_owners(owners());
        for gone in services.tenants.take_gone() {
            let name = &*gone.name;
            services.audit.tenant_is_gone(name);
            server.end_tenant(name);
            // Its runs save their files meanwhile; the next change need not wait for them.
            let (services, name) = (services.clone(), name.to_owned());
            tokio::spawn(async move {
                // A call that was let in just before can begin something while its connection is cut.
                for later in [Duration::ZERO, SETTLED] {
                    tokio::time::sleep(later).await;
                    if services.tenants.book().has_token(&name) {
                        return;
                    }
                    services.executions.end_owner(&name);
                    services.sessions.close_owner(&name).await;
                }
                info!(token = name, "everything of this name has ended");
            });
        }
    }
}
