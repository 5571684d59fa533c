//! What a call asks to reach outside, checked against what this daemon gives.

use super::answer::ProgramNetwork;
use crate::egress::{NetworkGrant, NetworkMode, NetworkRequest, PolicyRefusal, RefusalKind};
use crate::tools::{Caller, Code, Fault, Tools};

/// What a program may reach; `None` if the call asks for nothing. `argument` is the name under which the call
/// asked.
pub(super) fn grant(
    tools: &Tools,
    caller: &Caller,
    argument: &str,
    request: Option<NetworkRequest>,
) -> Result<Option<NetworkGrant>, Fault> {
    let Some(request) = request else { return Ok(None) };
    let refused = |refusal: PolicyRefusal| {
        let code = match refusal.kind() {
            RefusalKind::NetworkUnavailable => Code::NetworkUnavailable,
            RefusalKind::UnsupportedPolicy => Code::UnsupportedPolicy,
            RefusalKind::InvalidArgument => Code::InvalidArgument,
        };
        Fault::new(code, format!("`{argument}`: {refusal}"))
    };
    let granted = tools.services.egress.grant(&request, &caller.owner).map_err(refused)?;
    Ok(Some(NetworkGrant { asker: caller.asker.clone(), ..granted }))
}

impl Tools {
    /// What network a program had whose call was granted one, or not.
    pub(super) fn network_of(&self, is_granted: bool) -> ProgramNetwork {
        match (is_granted, self.services.egress.mode()) {
            (true, _) => ProgramNetwork::Granted,
            (false, NetworkMode::None) => ProgramNetwork::Never,
            (false, NetworkMode::Restricted | NetworkMode::Open) => ProgramNetwork::NotAsked,
        }
    }
}

/// What a tool's description says of the network, for a tool whose argument for it has this name.
pub(super) fn sentence(mode: NetworkMode, argument: &str) -> String {
    match mode {
        NetworkMode::None => "No network, no package installation.".to_owned(),
        NetworkMode::Restricted => format!(
            "No network unless {argument} asks for one; then only what the operator allows, such as package \
             registries: install packages into /data."
        ),
        NetworkMode::Open => format!("No network unless {argument} asks for one."),
    }
}
