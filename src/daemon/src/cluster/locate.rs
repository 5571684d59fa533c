//! Where a call is served: at this node, or at the one that has the session or made the id.
//!
//! The owner of a session is asked of the table, and believed for a few seconds if it is another node. This
//! node's own sessions are asked for each time. It must never send a call that came by hop to a third node.

use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::concern::Access;
use super::ids::NodeTag;
use super::owners::{Node, Ownership, SessionKey};
use super::placement::{self, NodeLoad};
use super::{Cluster, ClusterFault};

/// How long another node's ownership is believed without asking the table again. An owner that has changed
/// since refuses the call, and the entry goes.
const BELIEVED: Duration = Duration::from_secs(5);
/// Sessions of other nodes whose owner is remembered: some 200 bytes each.
const REMEMBERED: usize = 50_000;

/// A node to which a request is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// `host:port`.
    pub address: String,
}

/// Where a request is to be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// At this node.
    Here,
    /// At another.
    At(Target),
}

/// How a request came to this node, and what it may still do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// From a client: a new session goes where it fits best.
    Directly,
    /// From a client whose new session is best made here, such as that of an MCP session of this node.
    ToStay,
    /// From another node, which has chosen this one: it is served here or refused.
    ByHop,
}

impl Cluster {
    /// Where a call about this session is served. A session that a call may make gets an owner here.
    ///
    /// # Errors
    /// [`ClusterFault`]: it can be served nowhere now.
    pub async fn locate(
        &self,
        key: &SessionKey,
        access: Access,
        came: Came,
    ) -> Result<Location, ClusterFault> {
        if came != Came::ByHop
            && let Some(node) = self.believed(key)
        {
            return self.at(key, node, came);
        }
        let existing = match self.owners.owner_of(key).await? {
            Ownership::Of(node) => return self.at(key, node, came),
            Ownership::Unknown if access == Access::Existing => return Ok(Location::Here),
            Ownership::Nobody | Ownership::Unknown => key,
        };
        if came != Came::ByHop {
            let place = self.place(existing, came == Came::ToStay)?;
            if place != self.name {
                return self.at(key, Node { name: place, address: None }, came);
            }
        }
        let node = self.owners.claim(key).await?;
        self.at(key, node, came)
    }

    /// The name of the node that takes a session without an owner.
    fn place(&self, key: &SessionKey, to_stay: bool) -> Result<String, ClusterFault> {
        let report = self.report();
        let takes_new = report.ready && !report.draining;
        if to_stay && takes_new && report.free > 0 {
            return Ok(self.name.clone());
        }
        let own = NodeLoad { name: self.name.clone(), free: report.free, takes_new };
        let loads = self.view().loads(own, Instant::now());
        placement::place(key.number(), &loads).map(|node| node.name.clone()).ok_or(ClusterFault::NoNode)
    }

    /// The way to the node that has a session.
    fn at(&self, key: &SessionKey, node: Node, came: Came) -> Result<Location, ClusterFault> {
        if node.name == self.name {
            return Ok(Location::Here);
        }
        if came == Came::ByHop {
            return Err(ClusterFault::NotHere(node.name));
        }
        let target = self.target(&node)?;
        let mut believed = self.lock_believed();
        if believed.len() >= REMEMBERED {
            believed.clear();
        }
        believed.entry(key.clone()).or_insert_with(|| (node, Instant::now()));
        Ok(Location::At(target))
    }

    fn target(&self, node: &Node) -> Result<Target, ClusterFault> {
        let seen = self.view().address(&node.name, Instant::now()).map(|address| address.to_string());
        let address = seen.or_else(|| node.address.clone());
        let address = address.ok_or_else(|| ClusterFault::Unreachable(node.name.clone()))?;
        Ok(Target { name: node.name.clone(), address })
    }

    /// Where the node is that made an id with this tag. An id of a node that has ended is answered here,
    /// where nobody knows it: what it names is gone, and the caller learns that at once.
    ///
    /// # Errors
    /// [`ClusterFault::Silent`]: the node does not answer, and may come back.
    pub fn locate_tag(&self, tag: NodeTag) -> Result<Location, ClusterFault> {
        if tag == self.tag {
            return Ok(Location::Here);
        }
        let view = self.view();
        let Some(name) = view.name_of(tag) else { return Ok(Location::Here) };
        match view.address(name, Instant::now()) {
            Some(address) => Ok(Location::At(Target { name: name.to_owned(), address: address.to_string() })),
            None if self.ended.borrow().contains(name) => Ok(Location::Here),
            None => Err(ClusterFault::Silent(name.to_owned())),
        }
    }

    /// The node that made this execution's id, if it has ended.
    pub fn ended_maker(&self, execution: &str) -> Option<String> {
        let tag = NodeTag::of_execution(execution).filter(|tag| *tag != self.tag)?;
        let view = self.view();
        view.name_of(tag).filter(|name| self.ended.borrow().contains(*name)).map(str::to_owned)
    }

    /// The owner that is believed without asking.
    fn believed(&self, key: &SessionKey) -> Option<Node> {
        let mut believed = self.lock_believed();
        let (node, since) = believed.get(key)?;
        if since.elapsed() < BELIEVED {
            return Some(node.clone());
        }
        believed.remove(key);
        None
    }

    /// A node refused a call, or cannot be reached: what was believed of its sessions is not believed any
    /// more.
    pub fn doubt(&self, node: &str) {
        self.lock_believed().retain(|_, (owner, _)| owner.name != node);
    }

    fn lock_believed(&self) -> MutexGuard<'_, HashMap<SessionKey, (Node, Instant)>> {
        self.believed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
