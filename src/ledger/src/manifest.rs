//! What a session holds: its files, directories and links, and how a change of them becomes the ledger's.
//!
//! A change is one statement: it names node and fence, and either all of it is there afterwards or nothing.
//! Before it, every content that it names is in S3. It must never be sent before that.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;

use bytes::Bytes;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::database::Failed;
use crate::rules::Grant;
use crate::{Ledger, LedgerError, SessionKey};

/// How often a change is sent again after the database undid it for the sake of another.
const TRIES: usize = 4;
/// SQLSTATE of a row that is named and does not exist: a content that was swept meanwhile.
const NO_SUCH_OBJECT: &str = "23503";

/// SHA-256 of a content.
pub type Hash = [u8; 32];

/// One file, directory or link of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRow {
    /// Its path in the session.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: FileKind,
    /// Its mode.
    pub mode: u32,
    /// Nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileKind {
    /// A directory.
    Dir,
    /// A regular file.
    File {
        /// Its size.
        bytes: u64,
        /// Its content.
        hash: Hash,
    },
    /// A symbolic link and its target.
    Link(Vec<u8>),
}

/// A content that a change needs.
#[derive(Debug, Clone)]
pub struct Content {
    /// Its name.
    pub hash: Hash,
    /// Its size.
    pub bytes: u64,
    /// Where it is on this machine.
    pub source: Source,
}

/// Where a content is on this machine.
#[derive(Debug, Clone)]
pub enum Source {
    /// In memory.
    Memory(Bytes),
    /// In this file, which nobody changes meanwhile.
    File(PathBuf),
}

/// A change of one session.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Paths that are gone: exactly these, not what is below them.
    pub remove: Vec<Vec<u8>>,
    /// What is there in their place or anew. No path is in both.
    pub put: Vec<FileRow>,
    /// The contents of all files in `put`.
    pub contents: Vec<Content>,
}

impl Ledger {
    /// Makes a change of a session, durably: once it returns, both servers have all of it.
    ///
    /// It is `Ok` as soon as the row has taken the change, without another look at the lease, and that may be
    /// acknowledged: the statement that changed the row compared node and fence itself. So no takeover came
    /// before it, each that comes later finds the change, and its place in the order of writes is settled.
    /// The lease is looked at before contents are sent, so that a node that was cut off does not begin;
    /// whoever wants to read the session afterwards must ask [`Ledger::owns`].
    ///
    /// # Errors
    /// [`LedgerError::NoLease`], [`LedgerError::Fenced`], [`LedgerError::ObjectsAway`],
    /// [`LedgerError::DatabaseAway`] and others: nothing has changed. [`LedgerError::Unsettled`]: it may
    /// have.
    pub async fn publish(&self, key: &SessionKey, grant: Grant, change: &Change) -> Result<(), LedgerError> {
        let mut last = None;
        for _ in 0..TRIES {
            if !self.owns(grant) {
                return Err(LedgerError::NoLease);
            }
            self.shared.store_contents(&change.contents).await?;
            match self.record(key, grant, change).await {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(LedgerError::Fenced),
                // Two statements that waited for each other, or a content that was swept: it was undone.
                Err(Failed::Refused(code, why)) if code.starts_with("40") || code == NO_SUCH_OBJECT => {
                    last = Some(Failed::Refused("40001".to_owned(), why));
                }
                Err(failed) => return Err(of_write(failed)),
            }
        }
        Err(last.map_or(LedgerError::Fenced, of_write))
    }

    async fn record(&self, key: &SessionKey, grant: Grant, change: &Change) -> Result<bool, Failed> {
        let sql = "with mine as (\
                     update paddock_sessions set generation = generation + 1, used = now() \
                     where id = $1 and node = $2 and fence = $3 returning id), \
                   gone as (\
                     delete from paddock_entries e using mine \
                     where e.session = mine.id and e.path = any($4)), \
                   put as (\
                     insert into paddock_entries (session, path, kind, mode, mtime_ns, bytes, hash, target) \
                     select mine.id, u.* from mine, \
                     unnest($5::bytea[], $6::int2[], $7::int4[], $8::int8[], $9::int8[], $10::bytea[], \
                     $11::bytea[]) u \
                     on conflict (session, path) do update set kind = excluded.kind, mode = excluded.mode, \
                     mtime_ns = excluded.mtime_ns, bytes = excluded.bytes, hash = excluded.hash, \
                     target = excluded.target) \
                   select id from mine";
        let paths: Vec<&[u8]> = change.put.iter().map(|row| row.path.as_slice()).collect();
        let kinds: Vec<i16> = change.put.iter().map(|row| kind_number(&row.kind)).collect();
        let modes: Vec<i32> = change.put.iter().map(|row| i32::try_from(row.mode).unwrap_or(0)).collect();
        let times: Vec<i64> = change.put.iter().map(|row| row.mtime_ns).collect();
        let sizes: Vec<i64> = change.put.iter().map(|row| size(&row.kind)).collect();
        let hashes: Vec<Option<&[u8]>> = change
            .put
            .iter()
            .map(|row| match &row.kind {
                FileKind::File { hash, .. } => Some(hash.as_slice()),
                FileKind::Dir | FileKind::Link(_) => None,
            })
            .collect();
        let targets: Vec<Option<&[u8]>> = change
            .put
            .iter()
            .map(|row| match &row.kind {
                FileKind::Link(target) => Some(target.as_slice()),
                FileKind::Dir | FileKind::File { .. } => None,
            })
            .collect();
        let node = &self.node().name;
        let parameters = [
            (&key.id as _, Type::TEXT),
            (node as _, Type::TEXT),
            (&grant.fence.0 as _, Type::INT8),
            (&change.remove as _, Type::BYTEA_ARRAY),
            (&paths as _, Type::BYTEA_ARRAY),
            (&kinds as _, Type::INT2_ARRAY),
            (&modes as _, Type::INT4_ARRAY),
            (&times as _, Type::INT8_ARRAY),
            (&sizes as _, Type::INT8_ARRAY),
            (&hashes as _, Type::BYTEA_ARRAY),
            (&targets as _, Type::BYTEA_ARRAY),
        ];
        Ok(!self.shared.database.rows(sql, &parameters).await?.is_empty())
    }

    /// Everything that a session holds, in no order. It is what the last publish left only as long as the
    /// caller owns the session.
    ///
    /// # Errors
    /// [`LedgerError::DatabaseAway`], [`LedgerError::Damaged`].
    pub async fn read(&self, key: &SessionKey) -> Result<Vec<FileRow>, LedgerError> {
        let sql =
            "select path, kind, mode, mtime_ns, bytes, hash, target from paddock_entries where session = $1";
        let rows = self.shared.database.rows(sql, &[(&key.id as _, Type::TEXT)]).await?;
        rows.iter().map(row).collect()
    }

    /// The name in S3 and the size of each of these contents.
    pub(crate) async fn names(&self, hashes: &[Hash]) -> Result<HashMap<Hash, (String, u64)>, LedgerError> {
        let sql = "select hash, name, bytes from paddock_objects where hash = any($1) and is_stored";
        let hashes: Vec<&[u8]> = hashes.iter().map(<[u8; 32]>::as_slice).collect();
        let rows = self.shared.database.rows(sql, &[(&hashes as _, Type::BYTEA_ARRAY)]).await?;
        let named = |row: &Row| {
            let hash = row.get::<_, &[u8]>(0).try_into().ok()?;
            Some((hash, (row.get(1), u64::try_from(row.get::<_, i64>(2)).ok()?)))
        };
        Ok(rows.iter().filter_map(named).collect())
    }
}

fn kind_number(kind: &FileKind) -> i16 {
    match kind {
        FileKind::Dir => 0,
        FileKind::File { .. } => 1,
        FileKind::Link(_) => 2,
    }
}

fn size(kind: &FileKind) -> i64 {
    match kind {
        FileKind::File { bytes, .. } => i64::try_from(*bytes).unwrap_or(i64::MAX),
        FileKind::Dir | FileKind::Link(_) => 0,
    }
}

fn row(row: &Row) -> Result<FileRow, LedgerError> {
    let damaged =
        || LedgerError::Damaged("a row of paddock_entries is none that a paddock writes".to_owned());
    let (hash, target): (Option<&[u8]>, Option<&[u8]>) = (row.get(5), row.get(6));
    let kind = match (row.get::<_, i16>(1), hash, target) {
        (0, None, None) => FileKind::Dir,
        (1, Some(hash), None) => FileKind::File {
            bytes: u64::try_from(row.get::<_, i64>(4)).map_err(|_| damaged())?,
            hash: hash.try_into().map_err(|_| damaged())?,
        },
        (2, None, Some(target)) => FileKind::Link(target.to_vec()),
        _ => return Err(damaged()),
    };
    let mode = u32::try_from(row.get::<_, i32>(2)).map_err(|_| damaged())?;
    Ok(FileRow { path: row.get(0), kind, mode, mtime_ns: row.get(3) })
}

/// The error of a statement that changes something.
pub(crate) fn of_write(failed: Failed) -> LedgerError {
    match failed {
        Failed::Unknown(why) => LedgerError::Unsettled(why),
        // The server ended the connection, perhaps after the statement and before its answer.
        Failed::Refused(code, why) if ["57P", "08", "58", "XX"].iter().any(|kind| code.starts_with(kind)) => {
            LedgerError::Unsettled(why)
        }
        other @ (Failed::NotSent(_) | Failed::Refused(..)) => other.into(),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
