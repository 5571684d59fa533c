//! The tables, and their version.
//!
//! ```text
//!  paddock_nodes     one row for each node that ever joined: who lives is seen by `renewed`
//!  paddock_sessions  one for each session: its node and fence, which every write must name
//!  paddock_entries   one for each file, directory and link of a session
//!  paddock_objects   one for each content in S3
//!  paddock_graves    names of contents that are to be deleted from S3, and that no row of the others has
//! ```
//!
//! Tables of version 1 lack the last two columns and a sequence, and get them; daemons that know only version
//! 1 go on as long as they run.
//!
//! A node's row is never deleted: a row that is missing would look like a node that left. Fences and the
//! names of contents come from sequences, so neither is ever used twice, not even after a session or content
//! was deleted.

use crate::LedgerError;
use crate::database::Database;

/// The version that this code makes and reads.
const VERSION: i32 = 2;

/// Sent as one message, which is one transaction.
const TABLES: &str = "
select pg_advisory_xact_lock(7301985213);
create table if not exists paddock_ledger (version integer primary key);
insert into paddock_ledger select 1 where not exists (select from paddock_ledger);
create sequence if not exists paddock_fences;
create sequence if not exists paddock_names;
create table if not exists paddock_nodes (
    name text primary key,
    id text not null,
    address text not null,
    free integer not null,
    renewed timestamptz not null,
    has_left boolean not null
);
create table if not exists paddock_sessions (
    id text primary key,
    tenant text not null,
    session text not null,
    node text not null references paddock_nodes (name),
    fence bigint not null,
    generation bigint not null,
    used timestamptz not null
);
create index if not exists paddock_sessions_node on paddock_sessions (node);
create index if not exists paddock_sessions_tenant on paddock_sessions (tenant);
create table if not exists paddock_objects (
    hash bytea primary key,
    name text not null,
    bytes bigint not null,
    is_stored boolean not null,
    touched timestamptz not null,
    marked timestamptz
);
create table if not exists paddock_graves (name text primary key);
create table if not exists paddock_entries (
    session text not null references paddock_sessions (id) on delete cascade,
    path bytea not null,
    kind smallint not null,
    mode integer not null,
    mtime_ns bigint not null,
    bytes bigint not null,
    hash bytea references paddock_objects (hash),
    target bytea,
    primary key (session, path)
);
create index if not exists paddock_entries_hash on paddock_entries (hash);
create sequence if not exists paddock_starts;
alter table paddock_nodes add column if not exists start bigint not null default 0;
alter table paddock_ledger add column if not exists swept timestamptz;
update paddock_ledger set version = 2 where version = 1;
";

/// Makes what is missing, once for all nodes.
pub(crate) async fn make(database: &Database) -> Result<(), LedgerError> {
    if look(database).await.is_ok_and(|is_there| is_there) {
        return Ok(());
    }
    database.batch(TABLES).await?;
    look(database).await.map(drop)
}

/// Whether the tables are there, in the version of this code. Those of an earlier version count as missing.
pub(crate) async fn look(database: &Database) -> Result<bool, LedgerError> {
    let there = database.rows("select to_regclass('paddock_entries') is not null", &[]).await?;
    if !there.first().is_some_and(|row| row.get(0)) {
        return Ok(false);
    }
    let rows = database.rows("select version from paddock_ledger", &[]).await?;
    match rows.first().map(|row| row.get::<_, i32>(0)) {
        Some(VERSION) => Ok(true),
        Some(earlier) if (1..VERSION).contains(&earlier) => Ok(false),
        found => Err(LedgerError::Setting {
            setting: "store.url",
            problem: format!(
                "the tables of this database have version {}, and this paddock knows version {VERSION}",
                found.unwrap_or(0)
            ),
        }),
    }
}
