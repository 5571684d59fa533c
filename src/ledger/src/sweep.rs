//! Deletes contents that no file has named for a day, without ever racing one that is about to.
//!
//! ```text
//!  turn    the time of the last sweep is in one row: the node that changes it after an hour sweeps, for all
//!  mark    a content that no file names gets the time of today; whoever claims it takes the mark away
//!  bury    one statement: contents that were marked a grace ago, and that nobody claimed since or names,
//!          lose their rows, and their names go into paddock_graves
//!  delete  what is in paddock_graves from S3; then the graves
//! ```
//!
//! A content that comes back after it was buried gets another name, so the deletion of the old one cannot hit
//! it. A file that is recorded while its content is buried makes one of the two statements fail, by the
//! database's own rule that an entry's content exists. It must never delete a name from S3 that is not in a
//! grave.

use std::sync::Weak;
use std::time::Duration;

use tokio_postgres::types::Type;

use crate::{Ledger, LedgerError, Shared};

/// How often contents are swept, and how often a node looks whether that is due.
const EVERY: Duration = Duration::from_secs(3600);
/// Contents of one statement, and of one round.
const AT_ONCE: i64 = 1000;

/// Sweeps now and then, until nobody has the ledger any more.
pub(crate) async fn keep(shared: Weak<Shared>) {
    // Not all nodes at once: they were started together.
    let mut wait = EVERY / 4 + EVERY.mul_f64(f64::from(std::process::id() % 100) / 100.0);
    loop {
        tokio::time::sleep(wait).await;
        let Some(held) = shared.upgrade() else { return };
        if let Err(error) = held.sweep_if_due().await {
            tracing::warn!(%error, "contents that nothing names stay; the next sweep tries again");
        }
        wait = EVERY;
    }
}

impl Ledger {
    /// Sweeps now; how many contents were deleted from S3.
    ///
    /// # Errors
    /// [`LedgerError::DatabaseAway`], [`LedgerError::ObjectsAway`].
    pub async fn sweep(&self) -> Result<usize, LedgerError> {
        self.shared.sweep().await
    }

    /// Sweeps, unless any node has begun to within the last hour; how many contents were deleted from S3, or
    /// `None` if it is not due.
    ///
    /// # Errors
    /// As [`Ledger::sweep`].
    pub async fn sweep_if_due(&self) -> Result<Option<usize>, LedgerError> {
        self.shared.sweep_if_due().await
    }
}

impl Shared {
    async fn sweep_if_due(&self) -> Result<Option<usize>, LedgerError> {
        // A sweep in the future means that the clock was set back. `now()` is the time at which the
        // transaction began: a node that waits here for another one would find its sweep in the future.
        let sql = "update paddock_ledger set swept = clock_timestamp() \
                   where swept is null or swept > clock_timestamp() \
                   or swept < clock_timestamp() - make_interval(secs => $1) returning version";
        let every = EVERY.as_secs_f64();
        let is_due = !self.database.rows(sql, &[(&every as _, Type::FLOAT8)]).await?.is_empty();
        if is_due { self.sweep().await.map(Some) } else { Ok(None) }
    }

    async fn sweep(&self) -> Result<usize, LedgerError> {
        let unnamed = "not exists (select from paddock_entries e where e.hash = o.hash)";
        let mark = format!(
            "update paddock_objects o set marked = now() where marked is null and touched < now() - \
             make_interval(secs => $1) and {unnamed}"
        );
        let grace = self.grace.as_secs_f64();
        self.database.rows(&mark, &[(&grace as _, Type::FLOAT8)]).await?;
        let bury = format!(
            "with dead as (delete from paddock_objects o where o.hash in (\
               select o.hash from paddock_objects o where o.marked < now() - make_interval(secs => $1) \
               and {unnamed} \
               limit $2 for update skip locked) \
             and o.marked < now() - make_interval(secs => $1) returning o.name) \
             insert into paddock_graves select name from dead returning name"
        );
        let mut deleted = 0;
        loop {
            let bound = [(&grace as _, Type::FLOAT8), (&AT_ONCE as _, Type::INT8)];
            self.database.rows(&bury, &bound).await?;
            let graves = self
                .database
                .rows("select name from paddock_graves limit $1", &[(&AT_ONCE as _, Type::INT8)])
                .await?;
            let names: Vec<String> = graves.iter().map(|row| row.get(0)).collect();
            if names.is_empty() {
                return Ok(deleted);
            }
            self.objects.delete(&names).await?;
            let sql = "delete from paddock_graves where name = any($1)";
            self.database.rows(sql, &[(&names as _, Type::TEXT_ARRAY)]).await?;
            deleted += names.len();
        }
    }
}
