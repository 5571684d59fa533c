//! Counts bytes and entries of all sessions against the store's limits, and free space of its disk.
//!
//! A background thread counts every session once after the start; from then on commits add their differences.
//! Bytes that are being written count from the first one. A claim is returned when it is dropped. Two callers
//! must never be given the same byte.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use paddock_ledger::TenantStored;

use super::{Bound, StoreError};

/// Bytes of the disk that commits leave free: for directories, for the journal, and for commits that only
/// remove.
pub(crate) const RESERVE: u64 = 8 << 20;
/// Inodes that they leave free.
const RESERVE_INODES: u64 = 64;
/// Content that may wait in memory, over all batches.
const INLINE_ALL: usize = 64 << 20;

/// Entries that every stored session counts for itself: its directory, `files/` and `session.json`.
pub(super) const SESSION_ENTRIES: u64 = 3;

/// Bytes and entries of one session or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Bytes of files, in whole pages, and of logs.
    pub bytes: u64,
    /// Files, directories and links, and three for each session.
    pub entries: u64,
}

impl Amount {
    /// Bytes alone.
    pub(super) fn bytes(bytes: u64) -> Self {
        Self { bytes, entries: 0 }
    }

    /// Entries alone.
    pub(super) fn entries(entries: u64) -> Self {
        Self { bytes: 0, entries }
    }

    pub(super) fn plus(self, more: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(more.bytes),
            entries: self.entries.saturating_add(more.entries),
        }
    }

    pub(super) fn minus(self, less: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(less.bytes),
            entries: self.entries.saturating_sub(less.entries),
        }
    }
}

/// The counts of a store.
pub(super) struct Usage {
    total: Amount,
    sums: Mutex<Sums>,
    inline: AtomicUsize,
    /// Directories whose files are not in the sums yet.
    uncounted: Mutex<HashSet<String>>,
    /// Says what an owner may have.
    pub(super) limits: OnceLock<Box<OwnerLimits>>,
}

#[derive(Default)]
struct Sums {
    /// Stored.
    used: Amount,
    /// Being written.
    claimed: Amount,
    /// Bytes and inodes of the disk that commits in progress will take.
    disk: (u64, u64),
    /// What each owner has stored, and what is being written for it.
    owners: HashMap<String, (Amount, Amount)>,
}

impl Sums {
    /// The sums of one owner.
    fn of(&mut self, owner: &str) -> &mut (Amount, Amount) {
        self.owners.entry(owner.to_owned()).or_default()
    }

    /// Forgets an owner without anything.
    fn tidy(&mut self, owner: &str) {
        if self.owners.get(owner).is_some_and(|sums| *sums == <(Amount, Amount)>::default()) {
            self.owners.remove(owner);
        }
    }
}

/// What an owner may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnerBounds {
    /// Bytes of files, in whole pages.
    pub bytes: Option<u64>,
    /// Files, directories and links.
    pub entries: Option<u64>,
    /// What of this is used at other nodes; nothing on a single machine.
    pub elsewhere: Elsewhere,
}

/// What the ledger has of an owner beyond what this disk has. Less than nothing where the disk has more:
/// logs, and files of sessions that another node took over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elsewhere {
    bytes: i64,
    entries: i64,
}

impl Elsewhere {
    /// What the ledger has, beside what this disk had when it was asked.
    #[must_use]
    pub fn beside(here: Amount, all: TenantStored) -> Self {
        let beyond = |all: u64, here: u64| all.cast_signed().saturating_sub(here.cast_signed());
        let entries = all.entries.saturating_add(all.sessions.saturating_mul(SESSION_ENTRIES));
        Self { bytes: beyond(all.bytes, here.bytes), entries: beyond(entries, here.entries) }
    }

    fn with(self, here: Amount) -> Amount {
        Amount {
            bytes: here.bytes.saturating_add_signed(self.bytes),
            entries: here.entries.saturating_add_signed(self.entries),
        }
    }
}

/// The limits of each owner.
pub(super) type OwnerLimits = dyn Fn(&str) -> OwnerBounds + Send + Sync;

impl Usage {
    pub(super) fn new(total: Amount, uncounted: HashSet<String>) -> Arc<Self> {
        Arc::new(Self {
            total,
            sums: Mutex::default(),
            inline: AtomicUsize::new(0),
            uncounted: uncounted.into(),
            limits: OnceLock::new(),
        })
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uncounted(&self) -> MutexGuard<'_, HashSet<String>> {
        self.uncounted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Some directory that is not counted.
    pub(super) fn next_uncounted(&self) -> Option<String> {
        self.uncounted().iter().next().cloned()
    }

    /// Adds what a directory of this owner holds, if it was not counted before.
    pub(super) fn count(&self, hash: &str, owner: &str, held: Amount) {
        if self.uncounted().remove(hash) {
            self.changed(owner, Amount::default(), held);
        }
    }

    /// A directory of nobody is not to be counted.
    pub(super) fn leave_out(&self, hash: &str) {
        self.uncounted().remove(hash);
    }

    /// What an owner has stored, as far as it was counted.
    pub(super) fn of_owner(&self, owner: &str) -> Amount {
        self.sums().owners.get(owner).map(|(used, _)| *used).unwrap_or_default()
    }

    /// What is stored, as far as it was counted, and what is being written.
    pub(super) fn used(&self) -> (Amount, Amount) {
        let sums = self.sums();
        (sums.used, sums.claimed)
    }

    /// Replaces what a session of this owner held by what it holds now.
    pub(super) fn changed(&self, owner: &str, before: Amount, after: Amount) {
        let mut sums = self.sums();
        sums.used = sums.used.plus(after).minus(before);
        let of_owner = sums.of(owner);
        of_owner.0 = of_owner.0.plus(after).minus(before);
        sums.tidy(owner);
    }

    /// Checks that this much more could be claimed for an owner.
    pub(super) fn admit(&self, owner: &str, more: Amount) -> Result<(), StoreError> {
        self.check(&self.sums(), owner, more)
    }

    fn check(&self, sums: &Sums, owner: &str, more: Amount) -> Result<(), StoreError> {
        let wanted = sums.used.plus(sums.claimed).plus(more);
        let OwnerBounds { bytes, entries, elsewhere } =
            self.limits.get().map(|limits| limits(owner)).unwrap_or_default();
        let (used, claimed) = sums.owners.get(owner).copied().unwrap_or_default();
        let of_owner = elsewhere.with(used.plus(claimed).plus(more));
        let all = u64::MAX;
        let bounds = [
            (Bound::Owner, more.bytes, of_owner.bytes, bytes.unwrap_or(all)),
            (Bound::OwnerEntries, more.entries, of_owner.entries, entries.unwrap_or(all)),
            (Bound::Total, more.bytes, wanted.bytes, self.total.bytes),
            (Bound::TotalEntries, more.entries, wanted.entries, self.total.entries),
        ];
        for (bound, more, wanted, allowed) in bounds {
            if more > 0 && wanted > allowed {
                return Err(StoreError::Quota { bound, wanted, allowed });
            }
        }
        Ok(())
    }

    /// Claims free space of the disk that `on` is on, for a commit that writes `bytes` and makes `inodes`. A
    /// commit that `frees` may use the reserve.
    pub(super) fn disk(
        self: &Arc<Self>,
        on: &File,
        bytes: u64,
        inodes: u64,
        frees: bool,
    ) -> Result<DiskClaim, StoreError> {
        let failed = || StoreError::io("cannot read the free space of the store's disk");
        let disk = rustix::fs::fstatvfs(on).map_err(|e| failed()(e.into()))?;
        let (reserve, spare) = if frees { (0, 0) } else { (RESERVE, RESERVE_INODES) };
        let mut sums = self.sums();
        let available = disk.f_bavail.saturating_mul(disk.f_frsize);
        let needed = bytes.saturating_add(reserve);
        if sums.disk.0.saturating_add(needed) > available {
            return Err(StoreError::Full(format!("{needed} bytes are needed, {available} are left")));
        }
        let needed = inodes + spare;
        if disk.f_files > 0 && inodes > 0 && sums.disk.1 + needed > disk.f_favail {
            return Err(StoreError::Full(format!("{needed} inodes are needed, {} are left", disk.f_favail)));
        }
        sums.disk.0 += bytes;
        sums.disk.1 += inodes;
        Ok(DiskClaim { usage: self.clone(), bytes, inodes })
    }
}

/// Free space of the disk that a commit in progress will use.
pub(super) struct DiskClaim {
    usage: Arc<Usage>,
    bytes: u64,
    inodes: u64,
}

impl Drop for DiskClaim {
    fn drop(&mut self) {
        let mut sums = self.usage.sums();
        sums.disk.0 -= self.bytes;
        sums.disk.1 -= self.inodes;
    }
}

/// What one batch takes while it is written: of the store's limits, and of the daemon's memory.
pub(super) struct QuotaClaim {
    usage: Arc<Usage>,
    owner: String,
    held: Amount,
    inline: usize,
}

impl QuotaClaim {
    pub(super) fn new(usage: Arc<Usage>, owner: &str) -> Self {
        Self { usage, owner: owner.to_owned(), held: Amount::default(), inline: 0 }
    }

    /// Bytes claimed.
    pub(super) fn bytes(&self) -> u64 {
        self.held.bytes
    }

    /// Claims more of the store's limits.
    pub(super) fn grow(&mut self, more: Amount) -> Result<(), StoreError> {
        let mut sums = self.usage.sums();
        self.usage.check(&sums, &self.owner, more)?;
        sums.claimed = sums.claimed.plus(more);
        let of_owner = sums.of(&self.owner);
        of_owner.1 = of_owner.1.plus(more);
        self.held = self.held.plus(more);
        Ok(())
    }

    /// Returns some bytes.
    pub(super) fn shrink(&mut self, less: u64) {
        self.give_back(Amount::bytes(less.min(self.held.bytes)));
    }

    fn give_back(&mut self, less: Amount) {
        self.held = self.held.minus(less);
        if less == Amount::default() {
            return;
        }
        let mut sums = self.usage.sums();
        sums.claimed = sums.claimed.minus(less);
        let of_owner = sums.of(&self.owner);
        of_owner.1 = of_owner.1.minus(less);
        sums.tidy(&self.owner);
    }

    /// Takes memory for content, if that much is available.
    pub(super) fn take_inline(&mut self, bytes: usize) -> bool {
        let taken = self.usage.inline.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| {
            all.checked_add(bytes).filter(|all| *all <= INLINE_ALL)
        });
        self.inline += if taken.is_ok() { bytes } else { 0 };
        taken.is_ok()
    }

    /// Returns some of it.
    pub(super) fn give_inline(&mut self, bytes: usize) {
        let bytes = bytes.min(self.inline);
        self.inline -= bytes;
        self.usage.inline.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Memory that this batch has taken.
    pub(super) fn inline(&self) -> usize {
        self.inline
    }
}

impl Drop for QuotaClaim {
    fn drop(&mut self) {
        self.give_back(self.held);
        self.give_inline(self.inline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_nodes_have_counts_and_files_that_only_this_disk_still_has_do_not() {
        let usage = Usage::new(Amount { bytes: u64::MAX, entries: u64::MAX }, HashSet::new());
        let here = Amount { bytes: 8192, entries: 5 };
        usage.changed("ann", Amount::default(), here);
        let stored = |bytes, entries| TenantStored { sessions: 2, entries, bytes };
        let beyond = Elsewhere::beside(here, stored(12_288, 1));
        let limits = move |_: &str| OwnerBounds { bytes: Some(16_384), entries: Some(8), elsewhere: beyond };
        let _ = usage.limits.set(Box::new(limits));
        let admit = |bytes, entries| usage.admit("ann", Amount { bytes, entries });
        assert!(admit(4096, 1).is_ok());
        let over = admit(4097, 0).unwrap_err();
        assert!(matches!(over, StoreError::Quota { bound: Bound::Owner, wanted: 16_385, allowed: 16_384 }));
        assert!(matches!(
            admit(0, 2),
            Err(StoreError::Quota { bound: Bound::OwnerEntries, wanted: 9, allowed: 8 })
        ));
        // Another node took both sessions and deleted the files of one: they are still on this disk.
        assert_eq!(Elsewhere::beside(here, stored(4096, 0)).with(here), Amount { bytes: 4096, entries: 6 });
    }
}
