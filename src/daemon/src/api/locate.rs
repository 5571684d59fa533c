//! Which node a request is for, as far as HTTP and JSON-RPC tell: by its path, its link, the id of its MCP
//! session, or the call in its body.
//!
//! Only what names the node is read of a body; arguments are checked where the call is served. It must never
//! refuse what the route itself would refuse in its own words.

use http::header::{HeaderMap, HeaderValue};
use http::{Method, request};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::answer::RequestAccess;
use super::cluster::{FreshSession, PassedOn, came};
use super::mcp::may_take_long;
use super::raw::SessionPath;
use super::route::Route;
use super::server::Server;
use crate::cluster::concern::{Access, Concern};
use crate::cluster::ids::NodeTag;
use crate::cluster::owners::SessionKey;
use crate::cluster::{Came, Cluster, ClusterFault, Location};
use crate::ports::{PortPath, PortTarget};
use crate::session::SessionId;

/// The header that names an MCP session.
const MCP_SESSION: &str = "mcp-session-id";
impl Server {
    /// Where an admitted request is served, by its path and its headers. The body of a call of MCP says more:
    /// see [`Self::locate_call`].
    pub(super) async fn locate(
        &self,
        cluster: &Cluster,
        route: Route<'_>,
        admitted: &RequestAccess,
        parts: &request::Parts,
    ) -> Result<Location, ClusterFault> {
        let came = came(parts);
        let key = match (route, admitted) {
            (Route::Sessions(rest), RequestAccess::Owner(owner)) => match SessionPath::parse(rest) {
                Ok(Some(path)) => SessionKey::new(&owner.tenant.name, path.id),
                Ok(None) | Err(_) => return Ok(Location::Here),
            },
            (Route::Ports(rest), RequestAccess::Owner(owner)) => match PortPath::parse(rest) {
                Some(path) => SessionKey::new(&owner.tenant.name, path.session),
                None => return Ok(Location::Here),
            },
            (_, RequestAccess::Link(link, _)) => match link.session().parse() {
                Ok(session) => SessionKey::new(&link.owner, session),
                Err(_) => return Ok(Location::Here),
            },
            (Route::Mcp, _) => return mcp_session_at(cluster, &parts.headers, came),
            (_, RequestAccess::Owner(_) | RequestAccess::All) => return Ok(Location::Here),
        };
        let makes = matches!(route, Route::Sessions(_)) && parts.method == Method::PUT;
        cluster.locate(&key, if makes { Access::Make } else { Access::Existing }, came).await
    }

    /// Where a bare call of MCP is served, by its message. A call that names no session gets one here.
    pub(super) async fn locate_call(
        &self,
        cluster: &Cluster,
        owner: &str,
        parts: &mut request::Parts,
        body: &[u8],
    ) -> Result<Location, ClusterFault> {
        let read = may_take_long(body.len(), || {
            let Called { tool, arguments, state } = called(body)?;
            let concern = Concern::of_json(&tool, arguments.map_or(&[][..], |raw| raw.get().as_bytes()));
            Some((concern, state))
        });
        let (concern, state) = read.unwrap_or((Concern::Nothing, None));
        let came = came(parts);
        // A call that goes on: it waits at the node that asked its client something.
        if let Some((tag, _)) = state.as_deref().and_then(NodeTag::of_marked) {
            return if came == Came::ByHop { Ok(Location::Here) } else { cluster.locate_tag(tag) };
        }
        match concern {
            Concern::Nothing => Ok(Location::Here),
            Concern::Session(session, access) => {
                cluster.locate(&SessionKey::new(owner, session), access, came).await
            }
            Concern::Execution(tag, id) => self.locate_execution(cluster, owner, (tag, &id), came),
            // A bare call has no session of its own: the tool refuses it.
            Concern::Unnamed(Access::Existing) => Ok(Location::Here),
            Concern::Unnamed(Access::Make) => {
                let chosen =
                    parts.extensions.get::<PassedOn>().and_then(|PassedOn(hop)| hop.own_session.clone());
                let session = chosen.unwrap_or_else(SessionId::generate);
                let at = cluster.locate(&SessionKey::new(owner, session.clone()), Access::Make, came).await?;
                parts.extensions.insert(FreshSession(session));
                Ok(at)
            }
        }
    }

    /// Where an execution is: here, if it is known here, else at the node that made its id.
    fn locate_execution(
        &self,
        cluster: &Cluster,
        owner: &str,
        (tag, id): (NodeTag, &str),
        came: Came,
    ) -> Result<Location, ClusterFault> {
        if came == Came::ByHop || self.tools.services.executions.get(owner, id).is_some() {
            return Ok(Location::Here);
        }
        cluster.locate_tag(tag)
    }
}

/// Where the port of a link is.
pub(super) async fn link_at(
    cluster: &Cluster,
    target: &PortTarget,
    brought: &http::Extensions,
) -> Result<Location, ClusterFault> {
    let came = if brought.get::<PassedOn>().is_some() { Came::ByHop } else { Came::Directly };
    let key = SessionKey::new(&target.owner, target.session.clone());
    cluster.locate(&key, Access::Existing, came).await
}

/// Where an MCP session is that a request names.
fn mcp_session_at(cluster: &Cluster, headers: &HeaderMap, came: Came) -> Result<Location, ClusterFault> {
    let named = headers.get(MCP_SESSION).and_then(|id| id.to_str().ok()).and_then(NodeTag::of_marked);
    let Some((tag, _)) = named else { return Ok(Location::Here) };
    match cluster.locate_tag(tag)? {
        Location::At(node) if came == Came::ByHop => Err(ClusterFault::NotHere(node.name)),
        at @ (Location::Here | Location::At(_)) => Ok(at),
    }
}

/// Takes this node's tag off the MCP session that a request names.
pub(super) fn without_tag(cluster: &Cluster, headers: &mut HeaderMap) {
    let named = headers.get(MCP_SESSION).and_then(|id| id.to_str().ok()).and_then(NodeTag::of_marked);
    let own = named.filter(|(tag, _)| *tag == cluster.tag()).map(|(_, id)| HeaderValue::try_from(id));
    if let Some(Ok(own)) = own {
        headers.insert(MCP_SESSION, own);
    }
}

/// Puts this node's tag on the MCP session that an answer names.
pub(super) fn with_tag(cluster: &Cluster, headers: &mut HeaderMap) {
    let id = headers.get(MCP_SESSION).and_then(|id| id.to_str().ok());
    let id = id.and_then(|id| HeaderValue::try_from(cluster.tag().mark(id)).ok());
    if let Some(id) = id {
        headers.insert(MCP_SESSION, id);
    }
}

/// What a message calls.
struct Called<'a> {
    /// The name of the tool.
    tool: String,
    /// Its arguments, not read.
    arguments: Option<&'a RawValue>,
    /// The `requestState` of a call that goes on.
    state: Option<String>,
}

/// Reads what a message calls; `None` if it calls no tool, or if it is not a message.
fn called(message: &[u8]) -> Option<Called<'_>> {
    #[derive(Deserialize)]
    struct Message<'a> {
        method: Option<String>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Params<'a> {
        name: String,
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
        #[serde(rename = "requestState", default)]
        state: Option<String>,
    }
    let message: Message<'_> = serde_json::from_slice(message).ok()?;
    message.method.filter(|method| method == "tools/call")?;
    let Params { name, arguments, state } = serde_json::from_str(message.params?.get()).ok()?;
    Some(Called { tool: name, arguments, state })
}
