//! What tenants have stored, over all nodes. It must never be asked for a call: it reads a row for each file.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::types::Type;

use crate::{Ledger, LedgerError};

/// What a tenant has stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantStored {
    /// Sessions that have anything stored.
    pub sessions: u64,
    /// Files, directories and links.
    pub entries: u64,
    /// Bytes of files, in whole pages of 4 KiB: disks give files whole ones, and limits count them so.
    pub bytes: u64,
}

impl Ledger {
    /// What each of these tenants has stored at all nodes together. A tenant that has nothing is left out.
    ///
    /// # Errors
    /// [`LedgerError::DatabaseAway`] and others.
    pub async fn stored_by(
        &self,
        tenants: &[Arc<str>],
    ) -> Result<HashMap<String, TenantStored>, LedgerError> {
        let sql = "select s.tenant, count(distinct s.id), count(*), \
                   coalesce(sum((e.bytes + 4095) / 4096 * 4096), 0)::int8 \
                   from paddock_sessions s join paddock_entries e on e.session = s.id \
                   where s.tenant = any($1) group by s.tenant";
        let names: Vec<&str> = tenants.iter().map(|name| &**name).collect();
        let rows = self.shared.database.rows(sql, &[(&names as _, Type::TEXT_ARRAY)]).await?;
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        let stored = rows.into_iter().map(|row| {
            let [sessions, entries, bytes] = [1, 2, 3].map(|at| number(row.get(at)));
            (row.get(0), TenantStored { sessions, entries, bytes })
        });
        Ok(stored.collect())
    }
}
