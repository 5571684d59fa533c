//! Who owns which session: claims, takeovers, hand-overs.
//!
//! A claim reads the row, lets [`rules::claim`] decide, and changes the row only if it still has the node and
//! the fence that were read: any claim in between has raised the fence. It must never decide by anything but
//! that.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::nodes::seconds;
use crate::rules::{self, Claimed, Fence, Found, Grant, Owner};
use crate::{Ledger, LedgerError, Shared};

/// How often a claim begins anew because the row changed under it.
const TRIES: usize = 5;

/// A session's name in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// Hexadecimal, made of the other two.
    pub id: String,
    /// The name of the token that it belongs to.
    pub tenant: String,
    /// Its id, as callers know it.
    pub session: String,
}

impl SessionKey {
    /// The key of a tenant's session.
    #[must_use]
    pub fn new(tenant: &str, session: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update((tenant.len() as u64).to_le_bytes());
        hash.update(tenant);
        hash.update(session);
        let id = crate::manifest::hex(&hash.finalize());
        Self { id, tenant: tenant.to_owned(), session: session.to_owned() }
    }
}

/// The row of a session, as another node needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRow {
    /// Its owner and fence.
    pub owner: Owner,
    /// Where other nodes reach the owner; empty if they do not.
    pub address: String,
    /// How long ago the owner renewed its lease, by the database's clock; `None` if it has left.
    pub age: Option<Duration>,
}

/// A session that has become this node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// What every write must name.
    pub grant: Grant,
    /// Whether anything of it was ever published: otherwise nobody has had anything of it but its row.
    pub is_saved: bool,
}

/// A session of this node that has ever been saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedSession {
    /// The name of the token that it belongs to.
    pub tenant: String,
    /// Its id.
    pub session: String,
    /// How long ago it was saved last, by the database's clock.
    pub unused: Duration,
}

impl Ledger {
    /// Who owns a session; `None` if nobody does. Changes nothing.
    ///
    /// # Errors
    /// [`LedgerError::DatabaseAway`].
    pub async fn owner_of(&self, key: &SessionKey) -> Result<Option<OwnerRow>, LedgerError> {
        self.shared.owner_of(key).await
    }

    /// Makes a session this node's: one that nobody has, one that is this node's already, or one of a node
    /// that is dead or has left. An earlier grant of the same session is worthless then: the fence is
    /// another.
    ///
    /// # Errors
    /// [`LedgerError::Elsewhere`] if another node owns it and lives, as far as this node may judge;
    /// [`LedgerError::NoLease`], [`LedgerError::DatabaseAway`].
    pub async fn claim(&self, key: &SessionKey) -> Result<Claim, LedgerError> {
        self.shared.claim(key, true).await
    }

    /// The same for a session that exists; `None` if nobody has it.
    ///
    /// # Errors
    /// As [`Ledger::claim`].
    pub async fn claim_existing(&self, key: &SessionKey) -> Result<Option<Claim>, LedgerError> {
        match self.shared.claim(key, false).await {
            Ok(claim) => Ok(Some(claim)),
            Err(LedgerError::Fenced) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes a session from a node that is dead or has left. It is [`Ledger::claim`] under the name that says
    /// what it is for.
    ///
    /// # Errors
    /// As [`Ledger::claim`].
    pub async fn take_over(&self, key: &SessionKey) -> Result<Claim, LedgerError> {
        self.claim(key).await
    }

    /// Gives a session of this node to another one, which has it from the moment that it claims it.
    /// Everything of it must be published before.
    ///
    /// # Errors
    /// [`LedgerError::Fenced`] if it is not this node's, or if the other node does not live;
    /// [`LedgerError::NoLease`], [`LedgerError::DatabaseAway`].
    pub async fn hand_over(&self, key: &SessionKey, grant: Grant, to: &str) -> Result<(), LedgerError> {
        if !self.owns(grant) {
            return Err(LedgerError::NoLease);
        }
        let sql = "update paddock_sessions set node = $4, fence = nextval('paddock_fences') \
                   where id = $1 and node = $2 and fence = $3 and exists (select from paddock_nodes \
                   where name = $4 and not has_left and renewed > now() - make_interval(secs => $5)) \
                   returning id";
        let lease = self.terms().lease.as_secs_f64();
        let parameters = [
            (&key.id as _, Type::TEXT),
            (&self.node().name as _, Type::TEXT),
            (&grant.fence.0 as _, Type::INT8),
            (&to as _, Type::TEXT),
            (&lease as _, Type::FLOAT8),
        ];
        let moved = self.shared.database.rows(sql, &parameters).await?;
        if moved.is_empty() { Err(LedgerError::Fenced) } else { Ok(()) }
    }

    /// Removes the row of a session that was claimed and never saved. Does nothing if it was, or is not this
    /// node's any more.
    ///
    /// # Errors
    /// [`LedgerError::DatabaseAway`].
    pub async fn release(&self, key: &SessionKey, grant: Grant) -> Result<(), LedgerError> {
        let sql =
            "delete from paddock_sessions where id = $1 and node = $2 and fence = $3 and generation = 0";
        self.shared.database.rows(sql, &self.of_write(&key.id, &grant.fence.0)).await?;
        Ok(())
    }

    /// Removes a session and the names of its files, for good; whether there was one of this node and fence.
    ///
    /// # Errors
    /// [`LedgerError::NoLease`], [`LedgerError::Unsettled`], [`LedgerError::DatabaseAway`].
    pub async fn forget(&self, key: &SessionKey, grant: Grant) -> Result<bool, LedgerError> {
        if !self.owns(grant) {
            return Err(LedgerError::NoLease);
        }
        let sql = "delete from paddock_sessions where id = $1 and node = $2 and fence = $3 returning id";
        let gone = self.shared.database.rows(sql, &self.of_write(&key.id, &grant.fence.0)).await;
        Ok(!gone.map_err(crate::manifest::of_write)?.is_empty())
    }

    /// The sessions that this node owns and that were ever saved.
    ///
    /// # Errors
    /// [`LedgerError::DatabaseAway`].
    pub async fn owned(&self) -> Result<Vec<OwnedSession>, LedgerError> {
        let sql = "select tenant, session, extract(epoch from now() - used)::float8 from paddock_sessions \
                   where node = $1 and generation > 0";
        let rows = self.shared.database.rows(sql, &[(&self.node().name as _, Type::TEXT)]).await?;
        let owned =
            |row: &Row| OwnedSession { tenant: row.get(0), session: row.get(1), unused: seconds(row.get(2)) };
        Ok(rows.iter().map(owned).collect())
    }

    /// What every write names: the session, this node, the fence.
    fn of_write<'a>(&'a self, id: &'a String, fence: &'a i64) -> [crate::database::Parameter<'a>; 3] {
        [(id as _, Type::TEXT), (&self.node().name as _, Type::TEXT), (fence as _, Type::INT8)]
    }
}

impl Shared {
    async fn owner_of(&self, key: &SessionKey) -> Result<Option<OwnerRow>, LedgerError> {
        let sql = "select s.node, s.fence, n.address, n.has_left, \
                   extract(epoch from now() - n.renewed)::float8 \
                   from paddock_sessions s join paddock_nodes n on n.name = s.node where s.id = $1";
        let rows = self.database.rows(sql, &[(&key.id as _, Type::TEXT)]).await?;
        Ok(rows.first().map(|row| OwnerRow {
            owner: Owner { node: row.get(0), fence: Fence(row.get(1)) },
            address: row.get(2),
            age: if row.get(3) { None } else { Some(seconds(row.get(4))) },
        }))
    }

    /// [`LedgerError::Fenced`] if nobody has it and it is not to be made.
    async fn claim(&self, key: &SessionKey, make: bool) -> Result<Claim, LedgerError> {
        for _ in 0..TRIES {
            let (now, node) = (self.now(), &self.node.name);
            let (epoch, may_judge) = {
                let lease = self.lease();
                if !lease.may_acknowledge(now) {
                    return Err(LedgerError::NoLease);
                }
                (lease.epoch(), lease.may_judge(now))
            };
            let row = self.owner_of(key).await?;
            let found = match &row {
                None if !make => return Err(LedgerError::Fenced),
                None => Found::Nobody,
                Some(row) => Found::Row { owner: row.owner.clone(), row_age: row.age },
            };
            if rules::claim(&found, node, may_judge, self.terms) == Claimed::Elsewhere {
                let node = row.map_or_else(String::new, |row| row.owner.node);
                return Err(LedgerError::Elsewhere { node });
            }
            let changed = match &row {
                None => {
                    let sql = "insert into paddock_sessions \
                               (id, tenant, session, node, fence, generation, used) \
                               values ($1, $2, $3, $4, nextval('paddock_fences'), 0, now()) \
                               on conflict do nothing returning fence, generation";
                    let parameters = [
                        (&key.id as _, Type::TEXT),
                        (&key.tenant as _, Type::TEXT),
                        (&key.session as _, Type::TEXT),
                        (node as _, Type::TEXT),
                    ];
                    self.database.rows(sql, &parameters).await?
                }
                Some(row) => {
                    let sql = "update paddock_sessions set node = $4, fence = nextval('paddock_fences') \
                               where id = $1 and node = $2 and fence = $3 returning fence, generation";
                    let parameters = [
                        (&key.id as _, Type::TEXT),
                        (&row.owner.node as _, Type::TEXT),
                        (&row.owner.fence.0 as _, Type::INT8),
                        (node as _, Type::TEXT),
                    ];
                    self.database.rows(sql, &parameters).await?
                }
            };
            if let Some(changed) = changed.first() {
                if let Some(row) = row.filter(|row| row.owner.node != *node) {
                    tracing::info!(session = key.session, from = row.owner.node, "took a session over");
                }
                let grant = Grant { fence: Fence(changed.get(0)), epoch };
                return Ok(Claim { grant, is_saved: changed.get::<_, i64>(1) > 0 });
            }
        }
        Err(LedgerError::DatabaseAway("many claims of one session at once".to_owned()))
    }
}
