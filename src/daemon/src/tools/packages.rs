//! The argument `packages`: checked with all others, and brought before the program gets its turn.
//!
//! It must never hold a session up while packages are fetched, nor end a fetch that has begun because its
//! caller has gone.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::fault::Failure;
use super::registry::Offer;
use super::schema::InputSchema;
use super::{Caller, Code, Fault, Tools};
use crate::packages::{FetchError, FetchFault, PackageList, Packages};
use crate::pool::Runner;
use crate::session::{RunPackages, SessionError};
use crate::tenants::Tenants;

/// How long a call waits for a fetch, unless it asked for progress: most clients give up after a minute.
const PATIENCE: Duration = Duration::from_secs(45);

/// Packages that a call asks for.
pub(super) struct WantedPackages {
    packages: Arc<Packages>,
    tenants: Arc<Tenants>,
    runner: Arc<Runner>,
    list: PackageList,
}

/// Checks the argument `packages` of a call that runs something in this runner.
pub(super) fn check(
    tools: &Tools,
    runner: &Arc<Runner>,
    list: &[String],
) -> Result<Option<WantedPackages>, Fault> {
    if list.is_empty() {
        return Ok(None);
    }
    let unavailable = |message: String| Fault::new(Code::PackagesUnavailable, message);
    let Some(packages) = tools.services.packages.clone() else {
        let message = "`packages`: this daemon fetches none (packages.enabled is false)";
        return Err(unavailable(message.to_owned()));
    };
    let Some(labels) = &runner.packages else {
        let message = format!("`packages`: the image of the runner {} takes none", runner.language);
        return Err(unavailable(message));
    };
    let wrong = |error| Fault::new(Code::InvalidArgument, format!("`packages`: {error}"));
    let list = PackageList::parse(labels.registry, list).map_err(wrong)?;
    let tenants = tools.services.tenants.clone();
    Ok(list.map(|list| WantedPackages { packages, tenants, runner: runner.clone(), list }))
}

/// Brings what a call asks for.
pub(super) async fn bring(
    caller: &Caller,
    wanted: Option<WantedPackages>,
    cancel: &CancellationToken,
) -> Result<Option<RunPackages>, Failure> {
    let Some(WantedPackages { packages, tenants, runner, list }) = wanted else { return Ok(None) };
    let tenant = (caller.owner.as_str(), tenants.share(&caller.owner));
    let layer = tokio::select! {
        layer = packages.layer(tenant, &runner, &list) => layer.map_err(fault)?,
        () = tokio::time::sleep(PATIENCE), if caller.output.is_none() => {
            let message = format!(
                "the packages are still being fetched after {} seconds, and that goes on; call again and \
                 they will be there, or ask for progress notifications to wait for them",
                PATIENCE.as_secs()
            );
            return Err(Fault::new(Code::PackagesUnavailable, message).into());
        }
        () = cancel.cancelled() => return Err(SessionError::Cancelled.into()),
    };
    let (path, locked) = (layer.path(), layer.locked().to_vec());
    Ok(Some(RunPackages { path, locked, held: Arc::new(layer) }))
}

fn fault(error: FetchError) -> Fault {
    let code = match error.fault {
        FetchFault::List => Code::InvalidArgument,
        FetchFault::TooLarge => Code::TooLarge,
        FetchFault::NoRoom => Code::QuotaExceeded,
        FetchFault::NoNetwork => Code::NetworkUnavailable,
        FetchFault::NoContainer => Code::QueueFull,
        FetchFault::NoEngine => Code::EngineUnavailable,
        FetchFault::Failed => Code::PackagesUnavailable,
    };
    Fault::new(code, format!("`packages`: {}", error.message))
}

/// Leaves the argument out of a schema where no packages are fetched.
pub(super) fn refine(schema: &mut InputSchema, offer: &Offer<'_>) {
    if !offer.packages {
        schema.hide("packages");
    }
}

impl Tools {
    /// Whether programs of this runner can have packages.
    pub(super) fn takes_packages(&self, language: &str) -> bool {
        let has_some = |(_, runner): &(_, Arc<Runner>)| runner.packages.is_some();
        self.services.packages.is_some() && self.services.pool.runners().get(language).is_some_and(has_some)
    }

    /// Whether calls can ask for packages.
    pub(super) fn has_packages(&self) -> bool {
        let languages = self.services.pool.languages();
        self.services.packages.is_some() && languages.values().any(|(_, runner)| runner.packages.is_some())
    }
}
