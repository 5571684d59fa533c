//! What each tenant has spent on each model today (UTC), for the budgets of tenants. It outlives the daemon.
//!
//! ```text
//!  models/spending.json   {"day": 20500, "spent": {"anthropic": {"alice": {"usd": 1.25, "tokens": 90210}}}}
//! ```
//!
//! The file is written beside and renamed, when a request that cost something is over. It is not synced: a
//! machine that goes down can lose the last requests. It must never grow: it has the configured names of
//! models and tenants, of one day.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::dollars::Dollars;
use crate::cluster::amounts::{AmountsElsewhere, ToldSpending};
use crate::store::utc_day;

/// What one tenant has spent on one model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spent {
    pub(super) usd: Dollars,
    /// Tokens of every kind.
    pub(super) tokens: u64,
}

/// What was spent on one day.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Day {
    /// Days since the epoch.
    day: u64,
    /// By the name of the model, then of the tenant.
    spent: BTreeMap<String, BTreeMap<String, Spent>>,
}

impl Day {
    /// Forgets another day.
    fn turn(&mut self, today: u64) {
        if self.day != today {
            *self = Self { day: today, spent: BTreeMap::new() };
        }
    }

    fn spent(&self, model: &str, tenant: &str) -> Spent {
        self.spent.get(model).and_then(|tenants| tenants.get(tenant)).copied().unwrap_or_default()
    }

    fn on_all_models(&self, tenant: &str) -> Dollars {
        let spent = self.spent.values().filter_map(|tenants| tenants.get(tenant));
        spent.fold(Dollars::ZERO, |sum, spent| sum.plus(spent.usd))
    }

    /// Puts a part of it in the place of another. What was charged yesterday counts for today in whole: of a
    /// request at midnight too much is counted rather than too little.
    fn replace(&mut self, model: &str, tenant: &str, old: Spent, new: Spent) {
        let spent = self.spent.entry(model.to_owned()).or_default().entry(tenant.to_owned()).or_default();
        *spent = Spent {
            usd: spent.usd.minus(old.usd).plus(new.usd),
            tokens: spent.tokens.saturating_sub(old.tokens).saturating_add(new.tokens),
        };
    }
}

/// What tenants have spent today.
#[derive(Debug, Default)]
pub(super) struct Spending {
    today: Mutex<Day>,
    /// Where it is kept, once that is known.
    file: Mutex<Option<PathBuf>>,
    /// What tenants have spent at other nodes; not set on a single machine.
    elsewhere: OnceLock<Arc<AmountsElsewhere>>,
}

impl Spending {
    /// Keeps it in this file from now on, and goes on with what the file says.
    pub(super) fn keep_in(&self, file: PathBuf) {
        let text = fs::read(&file).unwrap_or_default();
        if let Ok(day) = serde_json::from_slice(&text) {
            *self.lock() = day;
        }
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    }

    fn lock(&self) -> MutexGuard<'_, Day> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        self.today.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a tenant has spent on a model today.
    pub(super) fn spent(&self, model: &str, tenant: &str) -> Spent {
        let mut day = self.lock();
        day.turn(utc_day());
        day.spent(model, tenant)
    }

    /// From now on what tenants have spent at other nodes counts against their budgets for all models.
    pub(super) fn add_elsewhere(&self, elsewhere: Arc<AmountsElsewhere>) {
        let _ = self.elsewhere.set(elsewhere);
    }

    /// What a tenant has spent on all models today, at all nodes.
    pub(super) fn on_all_models(&self, tenant: &str) -> Dollars {
        let today = utc_day();
        let here = {
            let mut day = self.lock();
            day.turn(today);
            day.on_all_models(tenant)
        };
        let elsewhere = self.elsewhere.get().map_or(0, |elsewhere| elsewhere.spent(tenant, today));
        here.plus(Dollars::of_nanodollars(elsewhere))
    }

    /// What each tenant has spent on all models today, at this node.
    pub(super) fn told(&self) -> BTreeMap<String, ToldSpending> {
        let mut day = self.lock();
        day.turn(utc_day());
        let tenants = day.spent.values().flat_map(|tenants| tenants.keys());
        let told = |tenant: &String| {
            let nanodollars = day.on_all_models(tenant).nanodollars();
            (tenant.clone(), ToldSpending { day: day.day, nanodollars })
        };
        tenants.map(told).collect()
    }

    /// A part of what a tenant has spent has changed.
    pub(super) fn replace(&self, model: &str, tenant: &str, old: Spent, new: Spent) {
        let mut day = self.lock();
        day.turn(utc_day());
        day.replace(model, tenant, old, new);
    }

    /// Writes the file.
    pub(super) fn note(&self) {
        // Held while it is written, so that no older state is written last.
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = &*file else { return };
        let text = serde_json::to_vec(&*self.lock());
        let staged = path.with_extension("new");
        let written = text.map_err(io::Error::from).and_then(|text| fs::write(&staged, text));
        if let Err(error) = written.and_then(|()| fs::rename(&staged, path)) {
            warn!(%error, path = %path.display(), "it could not be noted what tenants spend on models");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::cluster::amounts::ToldAmount;

    const NOTHING: Spent = Spent { usd: Dollars::ZERO, tokens: 0 };

    fn spent(usd: f64, tokens: u64) -> Spent {
        Spent { usd: Dollars::of(usd).unwrap(), tokens }
    }

    #[test]
    fn tenants_and_models_are_told_apart_and_a_day_ends() {
        let mut day = Day::default();
        day.turn(7);
        day.replace("a", "ann", NOTHING, spent(1.0, 10));
        day.replace("a", "ann", spent(0.5, 5), spent(2.0, 20));
        day.replace("b", "ann", NOTHING, spent(3.0, 30));
        assert_eq!(
            [day.spent("a", "ann"), day.spent("b", "ann"), day.spent("a", "bob")],
            [spent(2.5, 25), spent(3.0, 30), NOTHING]
        );
        assert_eq!(day.on_all_models("ann"), Dollars::of(5.5).unwrap());
        day.turn(7);
        assert_eq!(day.spent("a", "ann"), spent(2.5, 25));
        day.turn(8);
        assert_eq!((day.spent("a", "ann"), day.spent.len()), (NOTHING, 0));
        day.replace("a", "ann", spent(2.0, 20), spent(2.25, 25));
        assert_eq!(day.spent("a", "ann"), spent(2.25, 25), "a request that was under way at midnight");
    }

    #[test]
    fn a_tenant_has_spent_what_all_nodes_have_and_is_told_of_by_each_for_itself() {
        let (spending, elsewhere) = (Spending::default(), Arc::<AmountsElsewhere>::default());
        spending.replace("a", "ann", NOTHING, spent(1.0, 10));
        spending.replace("b", "ann", NOTHING, spent(0.5, 5));
        assert_eq!(spending.on_all_models("ann"), Dollars::of(1.5).unwrap());
        spending.add_elsewhere(elsewhere.clone());
        let told = ToldSpending { day: utc_day(), nanodollars: 250_000_000 };
        let amount = ToldAmount { spent: Some(told), moved: None };
        let of_b = ["ann", "bob"].map(|tenant| (tenant.to_owned(), amount)).into();
        elsewhere.hear(("b", "1"), &of_b, told.day, Instant::now());
        let all = [("ann", 1.75), ("bob", 0.25), ("eve", 0.0)];
        for (tenant, dollars) in all {
            assert_eq!(spending.on_all_models(tenant), Dollars::of(dollars).unwrap(), "{tenant}");
        }
        assert_eq!(spending.spent("a", "ann"), spent(1.0, 10), "one model is counted by each node");
        let own = ToldSpending { nanodollars: 1_500_000_000, ..told };
        assert_eq!(spending.told(), [("ann".to_owned(), own)].into());
    }

    #[test]
    fn the_next_daemon_goes_on_with_it_and_a_broken_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("spending.json");
        let spending = Spending::default();
        spending.keep_in(file.clone());
        spending.replace("a", "ann", NOTHING, spent(1.5, 15));
        spending.note();
        let next = Spending::default();
        next.keep_in(file.clone());
        assert_eq!(next.spent("a", "ann"), spent(1.5, 15));
        fs::write(&file, "{\"day\":").unwrap();
        let broken = Spending::default();
        broken.keep_in(file);
        assert_eq!(broken.spent("a", "ann"), NOTHING);
    }
}
