//! Nodes: joining, the lease and its renewal, leaving.
//!
//! Each start of a daemon draws a number before it joins, and every later statement about the node names it:
//! one of an earlier start, which may arrive late, changes nothing. It must never note a lease from a later
//! moment than the one before it was asked for.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_postgres::types::Type;

use crate::database::{Database, Line};
use crate::{Announced, Ledger, LedgerError, Shared, Standing};

/// How often joining is tried while a node of this name seems to live.
const JOIN_AGAIN: Duration = Duration::from_millis(500);

/// A node, as the database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// Where other nodes reach it; empty if they do not.
    pub address: String,
    /// Sessions that would still fit, as it said last.
    pub free: u32,
    /// How long ago it renewed its lease, by the database's clock.
    pub age: Duration,
    /// Whether it has left: its sessions are free.
    pub has_left: bool,
}

impl Ledger {
    /// All nodes that ever joined, by name.
    ///
    /// # Errors
    /// [`LedgerError::DatabaseAway`].
    pub async fn nodes(&self) -> Result<Vec<NodeRow>, LedgerError> {
        all(&self.shared.database).await
    }

    /// Leaves: from now on this node acknowledges nothing, and its sessions are free for all others.
    ///
    /// # Errors
    /// [`LedgerError::DatabaseAway`]: others wait for the end of the lease before they take over.
    pub async fn leave(&self) -> Result<(), LedgerError> {
        self.shared.lease().give_up();
        self.shared.standing.send_replace(Standing::Ended);
        let node = &self.shared.node;
        let sql = "update paddock_nodes set has_left = true where name = $1 and id = $2 and start = $3";
        let start = self.shared.start();
        let who = [(&node.name as _, Type::TEXT), (&node.id as _, Type::TEXT), (&start as _, Type::INT8)];
        self.shared.database.rows_on(Line::Lease, sql, &who).await?;
        Ok(())
    }
}

pub(crate) async fn all(database: &Database) -> Result<Vec<NodeRow>, LedgerError> {
    let sql = "select name, address, free, extract(epoch from now() - renewed)::float8, has_left \
               from paddock_nodes order by name";
    let rows = match database.rows(sql, &[]).await {
        // The tables are not made yet.
        Err(crate::database::Failed::Refused(code, _)) if code == "42P01" => return Ok(Vec::new()),
        other => other?,
    };
    let node = |row: &tokio_postgres::Row| NodeRow {
        name: row.get(0),
        address: row.get(1),
        free: u32::try_from(row.get::<_, i32>(2)).unwrap_or(0),
        age: seconds(row.get(3)),
        has_left: row.get(4),
    };
    Ok(rows.iter().map(node).collect())
}

/// Of a difference of two times of the database; its clock can have been set back.
pub(crate) fn seconds(of_database: f64) -> Duration {
    Duration::try_from_secs_f64(of_database.max(0.0)).unwrap_or(Duration::MAX)
}

/// Renews the lease until nobody has the ledger any more, or a later start has the node's row.
pub(crate) async fn keep(shared: Weak<Shared>) {
    loop {
        let Some(held) = shared.upgrade() else { return };
        if held.lease().is_given_up() {
            return;
        }
        let every = held.terms.renew_every();
        match held.renew().await {
            Ok(()) => {}
            Err(LedgerError::NameTaken(_)) if !held.lease().is_given_up() => {
                held.lease().give_up();
                held.standing.send_replace(Standing::Replaced);
                return;
            }
            Err(error) => tracing::warn!(%error, "the lease of this node could not be renewed; retrying"),
        }
        held.tell();
        held.database.close_idle().await;
        drop(held);
        tokio::time::sleep(every).await;
    }
}

impl Shared {
    /// Joins under this node's name. Waits as long as it takes to see whether one of this name lives.
    pub(crate) async fn join(&self) -> Result<(), LedgerError> {
        let patience = self.terms.takeover_after() + 2 * JOIN_AGAIN;
        let began = self.now();
        while !self.join_once().await? {
            if self.now() - began > patience {
                return Err(LedgerError::NameTaken(self.node.name.clone()));
            }
            tokio::time::sleep(JOIN_AGAIN).await;
        }
        self.tell();
        Ok(())
    }

    /// Draws a number anew for each try: another daemon may have joined since, with a larger one.
    async fn join_once(&self) -> Result<bool, LedgerError> {
        let drawn = self.database.rows_on(Line::Lease, "select nextval('paddock_starts')", &[]).await?;
        let Some(start) = drawn.first().map(|row| row.get::<_, i64>(0)) else { return Ok(false) };
        let asked = self.now();
        let Announced { address, free } = self.announced().clone();
        // See `rules::Start::may_join`: of two joins of one node, the later start has the row.
        let sql = "insert into paddock_nodes as n (name, id, address, free, renewed, has_left, start) \
                   values ($1, $2, $3, $4, now(), false, $6) \
                   on conflict (name) do update set id = $2, address = $3, free = $4, renewed = now(), \
                   has_left = false, start = $6 \
                   where n.start <= $6 and \
                   (n.id = $2 or n.has_left or n.renewed < now() - make_interval(secs => $5)) \
                   returning name";
        let parameters = [
            (&self.node.name as _, Type::TEXT),
            (&self.node.id as _, Type::TEXT),
            (&address as _, Type::TEXT),
            (&free as _, Type::INT4),
            (&self.terms.takeover_after().as_secs_f64() as _, Type::FLOAT8),
            (&start as _, Type::INT8),
        ];
        let joined = self.database.rows_on(Line::Lease, sql, &parameters).await?;
        if joined.is_empty() {
            return Ok(false);
        }
        self.start.store(start, Ordering::Relaxed);
        let now = self.now();
        self.lease().renewed(asked, now);
        Ok(true)
    }

    async fn renew(&self) -> Result<(), LedgerError> {
        let asked = self.now();
        let Announced { address, free } = self.announced().clone();
        let sql = "update paddock_nodes set renewed = now(), address = $3, free = $4 \
                   where name = $1 and id = $2 and start = $5 and not has_left returning name";
        let parameters = [
            (&self.node.name as _, Type::TEXT),
            (&self.node.id as _, Type::TEXT),
            (&address as _, Type::TEXT),
            (&free as _, Type::INT4),
            (&self.start() as _, Type::INT8),
        ];
        if self.database.rows_on(Line::Lease, sql, &parameters).await?.is_empty() {
            return Err(LedgerError::NameTaken(self.node.name.clone()));
        }
        let now = self.now();
        let mut lease = self.lease();
        if !lease.is_given_up() && lease.renewed(asked, now) {
            tracing::warn!(
                "the lease of this node had ended, and is granted again: each session is asked for again"
            );
        }
        Ok(())
    }

    /// Tells whoever follows whether the lease holds.
    fn tell(&self) {
        let now = self.now();
        let standing = if self.lease().may_acknowledge(now) { Standing::Holds } else { Standing::Ended };
        self.standing.send_if_modified(|before| std::mem::replace(before, standing) != standing);
    }
}
