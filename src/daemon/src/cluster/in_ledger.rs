//! The table of owners of a store of many machines: the rows of its ledger.
//!
//! A session that this node holds is answered without asking the database: the lease says so. Whether a node
//! is dead, the ledger's rules decide, by the database's clock. This must never claim a session by itself:
//! the store claims, and brings what is saved of it to this disk in the same step.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use paddock_cluster::ownership;
use paddock_ledger::{Ledger, LedgerError};

use super::owners::{Node, Owners, OwnersError, Ownership, SessionKey};
use crate::store::{Store, StoreError};

/// How often the number of this node's sessions is counted anew.
const COUNT: Duration = Duration::from_secs(10);

/// The table, as the node sees it whose store this is.
pub struct OwnersInLedger {
    store: Arc<Store>,
    ledger: Ledger,
    owned: AtomicUsize,
}

impl OwnersInLedger {
    /// The table of a store that has this ledger. It counts the node's sessions until it is dropped.
    #[must_use]
    pub fn new(store: Arc<Store>, ledger: Ledger) -> Arc<Self> {
        let owners = Arc::new(Self { store, ledger, owned: AtomicUsize::new(0) });
        tokio::spawn(Self::keep_count(Arc::downgrade(&owners)));
        owners
    }

    async fn keep_count(owners: Weak<Self>) {
        while let Some(owners) = owners.upgrade() {
            if let Err(error) = owners.all_owned().await {
                tracing::debug!(%error, "the sessions of this node are not counted");
            }
            drop(owners);
            tokio::time::sleep(COUNT).await;
        }
    }

    fn of_ledger(key: &SessionKey) -> paddock_ledger::SessionKey {
        paddock_ledger::SessionKey::new(&key.tenant, key.session.as_str())
    }

    fn this_node(&self) -> Node {
        Node { name: self.ledger.node().name.clone(), address: None }
    }
}

impl From<LedgerError> for OwnersError {
    fn from(error: LedgerError) -> Self {
        Self(error.to_string())
    }
}

#[async_trait]
impl Owners for OwnersInLedger {
    async fn owner_of(&self, key: &SessionKey) -> Result<Ownership, OwnersError> {
        if self.store.holds(&key.tenant, key.session.as_str()) {
            return Ok(Ownership::Of(self.this_node()));
        }
        let Some(row) = self.ledger.owner_of(&Self::of_ledger(key)).await? else {
            return Ok(Ownership::Unknown);
        };
        let is_free = row.age.is_none_or(|age| ownership::may_take(age, self.ledger.terms()));
        if is_free && row.owner.node != self.ledger.node().name {
            return Ok(Ownership::Nobody);
        }
        let address = Some(row.address).filter(|address| !address.is_empty());
        Ok(Ownership::Of(Node { name: row.owner.node, address }))
    }

    async fn claim(&self, key: &SessionKey) -> Result<Node, OwnersError> {
        match self.store.space(&key.tenant, key.session.as_str()).await {
            Ok(_) => Ok(self.this_node()),
            Err(StoreError::Ledger(LedgerError::Elsewhere { node })) => {
                Ok(Node { name: node, address: None })
            }
            Err(error) => Err(OwnersError(error.to_string())),
        }
    }

    async fn all_owned(&self) -> Result<Vec<SessionKey>, OwnersError> {
        let rows = self.ledger.owned().await?;
        self.owned.store(rows.len(), Ordering::Relaxed);
        let key = |row: paddock_ledger::OwnedSession| {
            row.session.parse().ok().map(|session| SessionKey::new(&row.tenant, session))
        };
        Ok(rows.into_iter().filter_map(key).collect())
    }

    async fn give(&self, key: &SessionKey, to: &str) -> Result<(), OwnersError> {
        let given = self.store.hand_over(&key.tenant, key.session.as_str(), to).await;
        given.map_err(|error| OwnersError(error.to_string()))
    }

    async fn has_ended(&self, node: &str) -> Result<bool, OwnersError> {
        let rows = self.ledger.nodes().await?;
        let row = rows.into_iter().find(|row| row.name == node);
        Ok(row.is_some_and(|row| row.has_left || ownership::may_take(row.age, self.ledger.terms())))
    }

    fn owned(&self) -> usize {
        self.owned.load(Ordering::Relaxed)
    }
}
