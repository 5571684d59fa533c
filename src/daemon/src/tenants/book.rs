//! The tokens that are good at one moment, and their tenants. Pure: what is read of files, and the time, are
//! arguments.
//!
//! A book never changes; the next one takes over what stays. It must never compare tokens in a time that
//! depends on them, and a book that was guarded once is never followed by an open one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use super::fair::{TenantId, TenantShare};
use super::token::{KnownToken, TenantTerms};
use crate::sign::DEFAULT_OWNER;

/// A tenant that has a token; and the owner `default`, which local callers have.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// The name of its tokens.
    pub name: Arc<str>,
    /// Its number.
    pub id: TenantId,
    /// What it may have.
    pub terms: TenantTerms,
    /// Cancelled when its last token is gone.
    pub over: CancellationToken,
}

/// A token that is good.
#[derive(Clone)]
pub struct LiveToken {
    sha256: [u8; 32],
    expires: Option<SystemTime>,
    /// Whose it is.
    pub tenant: Arc<Tenant>,
    /// Cancelled when it is not good any more.
    pub over: CancellationToken,
}

/// All tokens that are good, and their tenants.
#[derive(Clone, Default)]
pub struct TokenBook {
    is_guarded: bool,
    tokens: Vec<LiveToken>,
    tenants: BTreeMap<Arc<str>, Arc<Tenant>>,
}

impl TokenBook {
    /// The book that follows this one. Of the tokens of one name, the last has the terms of their tenant.
    /// What is gone is not told of it before [`TokenBook::end_what_is_not_in`].
    pub(super) fn next<'a>(
        &self,
        tokens: impl IntoIterator<Item = &'a KnownToken>,
        is_guarded: bool,
        now: SystemTime,
        mut id_of: impl FnMut(&str) -> TenantId,
    ) -> Self {
        let good: Vec<&KnownToken> = tokens.into_iter().filter(|token| !token.is_over(now)).collect();
        let none = TenantTerms::default();
        let mut terms: BTreeMap<&str, &TenantTerms> = BTreeMap::from([(DEFAULT_OWNER, &none)]);
        terms.extend(good.iter().map(|token| (token.name.as_str(), &token.terms)));
        let has_token: BTreeSet<&str> = good.iter().map(|token| token.name.as_str()).collect();
        let mut tenants = BTreeMap::new();
        for (name, terms) in terms {
            let before = self.tenants.get(name).filter(|_| !self.has_token(name) || has_token.contains(name));
            let tenant = Tenant {
                name: before.map_or_else(|| Arc::from(name), |tenant| tenant.name.clone()),
                id: id_of(name),
                terms: terms.clone(),
                over: before.map_or_else(CancellationToken::new, |tenant| tenant.over.clone()),
            };
            tenants.insert(tenant.name.clone(), Arc::new(tenant));
        }
        let live = |token: &&KnownToken| {
            let tenant = tenants.get(token.name.as_str())?.clone();
            let same = |old: &&LiveToken| old.sha256 == token.sha256 && *old.tenant.name == *token.name;
            let over =
                self.tokens.iter().find(same).map_or_else(CancellationToken::new, |old| old.over.clone());
            Some(LiveToken { sha256: token.sha256, expires: token.expires, tenant, over })
        };
        let tokens = good.iter().filter_map(live).collect();
        Self { is_guarded: self.is_guarded || is_guarded, tokens, tenants }
    }

    /// Ends the tokens and tenants of an earlier book that are not in this one; returns the tenants.
    pub(super) fn end_what_is_not_in(&self, earlier: &Self) -> Vec<Arc<Tenant>> {
        let is_here = |old: &LiveToken| {
            self.tokens.iter().any(|new| new.sha256 == old.sha256 && new.tenant.name == old.tenant.name)
        };
        earlier.tokens.iter().filter(|old| !is_here(old)).for_each(|old| old.over.cancel());
        let names =
            |book: &Self| book.tokens.iter().map(|token| token.tenant.name.clone()).collect::<BTreeSet<_>>();
        let (before, now) = (names(earlier), names(self));
        let gone = before.difference(&now).filter_map(|name| earlier.tenants.get(name).cloned());
        gone.inspect(|tenant| tenant.over.cancel()).collect()
    }

    /// Whether callers need a token.
    pub fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// The token with this hash, if it is good at this time. It takes as long for any hash.
    pub fn find(&self, sha256: &[u8; 32], now: impl FnOnce() -> SystemTime) -> Option<&LiveToken> {
        let mut found = None;
        for token in &self.tokens {
            if bool::from(token.sha256[..].ct_eq(&sha256[..])) {
                found = Some(token);
            }
        }
        let found = found?;
        let is_over = found.expires.is_some_and(|expires| expires <= now());
        (!is_over && !found.over.is_cancelled()).then_some(found)
    }

    /// A tenant by its name.
    pub fn tenant(&self, name: &str) -> Option<&Arc<Tenant>> {
        self.tenants.get(name)
    }

    /// All tenants, in the order of their names.
    pub fn tenants(&self) -> impl Iterator<Item = &Arc<Tenant>> {
        self.tenants.values()
    }

    /// Whether a token of this name is good.
    pub fn has_token(&self, name: &str) -> bool {
        self.tokens.iter().any(|token| *token.tenant.name == *name)
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Whether tokens of more than one tenant are good.
    pub fn has_neighbours(&self) -> bool {
        let mut tenants = self.tokens.iter().map(|token| token.tenant.id);
        let first = tenants.next();
        tenants.any(|other| Some(other) != first)
    }

    /// The names that have a token.
    fn names(&self) -> BTreeSet<TenantId> {
        self.tokens.iter().map(|token| token.tenant.id).collect()
    }

    /// What queues must know of a tenant, but for what it owes.
    pub fn share(&self, name: &str) -> TenantShare {
        let Some(tenant) = self.tenants.get(name) else { return TenantShare::default() };
        let places = |most: Option<u32>| most.map(|most| most as usize);
        TenantShare {
            id: tenant.id,
            weight: tenant.terms.weight,
            is_operator: tenant.terms.is_operator,
            tenants: self.names().len().max(1),
            sessions: places(tenant.terms.limits.sessions),
            executions: places(tenant.terms.limits.executions),
            owes: false,
        }
    }

    /// When the next token ends.
    pub(super) fn next_end(&self) -> Option<SystemTime> {
        self.tokens.iter().filter_map(|token| token.expires).min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn token(name: &str, byte: u8, expires: Option<u64>) -> KnownToken {
        let expires = expires.map(at);
        KnownToken { expires, ..KnownToken::plain(name, [byte; 32]) }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn next(book: &TokenBook, tokens: &[KnownToken], now: u64) -> TokenBook {
        book.next(tokens, !tokens.is_empty(), at(now), |name| TenantId(u32::from(name.as_bytes()[0])))
    }

    fn owner(book: &TokenBook, byte: u8, now: u64) -> Option<String> {
        book.find(&[byte; 32], || at(now)).map(|token| token.tenant.name.to_string())
    }

    #[test]
    fn tokens_come_and_go_and_end_at_their_time() {
        let open = next(&TokenBook::default(), &[], 0);
        assert!(!open.is_guarded() && open.tenant(DEFAULT_OWNER).is_some());
        let two = next(&open, &[token("ann", 1, Some(100)), token("bob", 2, None)], 0);
        assert!(two.is_guarded() && two.has_neighbours());
        assert_eq!((owner(&two, 1, 99), owner(&two, 1, 100)), (Some("ann".into()), None));
        assert_eq!((owner(&two, 2, 100), owner(&two, 3, 0)), (Some("bob".into()), None));
        assert_eq!(two.next_end(), Some(at(100)));
        let later = next(&two, &[token("ann", 1, Some(100)), token("bob", 2, None)], 100);
        assert_eq!((later.len(), later.has_neighbours()), (1, false));
        let gone = later.end_what_is_not_in(&two);
        assert_eq!(gone.iter().map(|tenant| &*tenant.name).collect::<Vec<_>>(), ["ann"]);
        assert_eq!(owner(&two, 1, 0), None, "who still has the earlier book is told");
        assert!(gone[0].over.is_cancelled() && !later.tenant("bob").unwrap().over.is_cancelled());
        let none = next(&later, &[], 200);
        assert!(none.is_guarded() && none.is_empty(), "a daemon that needed tokens never opens");
    }

    #[test]
    fn a_token_that_is_replaced_leaves_its_tenant_alone() {
        let first = next(&TokenBook::default(), &[token("ann", 1, None)], 0);
        let both = next(&first, &[token("ann", 1, None), token("ann", 2, None)], 0);
        assert!(both.end_what_is_not_in(&first).is_empty());
        let second = next(&both, &[token("ann", 2, None)], 0);
        assert!(second.end_what_is_not_in(&both).is_empty());
        assert_eq!((owner(&second, 1, 0), owner(&second, 2, 0)), (None, Some("ann".into())));
        assert!(!second.tenant("ann").unwrap().over.is_cancelled());
        assert_eq!(owner(&both, 1, 0), None);
        // The name of a token is part of it: under another name it is another's.
        let renamed = next(&second, &[token("eve", 2, None)], 0);
        assert_eq!(renamed.end_what_is_not_in(&second).len(), 1);
        assert_eq!((owner(&second, 2, 0), owner(&renamed, 2, 0)), (None, Some("eve".into())));
    }

    #[test]
    fn a_name_that_comes_back_is_a_new_tenant_with_the_same_number() {
        let first = next(&TokenBook::default(), &[token("ann", 1, None)], 0);
        let none = next(&first, &[], 0);
        none.end_what_is_not_in(&first);
        let again = next(&none, &[token("ann", 1, None)], 0);
        let (old, new) = (first.tenant("ann").unwrap(), again.tenant("ann").unwrap());
        assert!(old.over.is_cancelled() && !new.over.is_cancelled() && old.id == new.id);
        assert_eq!(owner(&again, 1, 0), Some("ann".into()));
        let default = next(&none, &[token(DEFAULT_OWNER, 3, None)], 0);
        let without = next(&default, &[], 0);
        assert_eq!(without.end_what_is_not_in(&default).len(), 1);
        assert!(!without.tenant(DEFAULT_OWNER).unwrap().over.is_cancelled(), "local callers stay");
    }

    #[test]
    fn the_last_token_of_a_name_has_its_terms() {
        let mut tokens = [token("ann", 1, None), token("ann", 2, None)];
        (tokens[0].terms.weight, tokens[1].terms.weight) = (5, 7);
        tokens[1].terms.limits.sessions = Some(3);
        let share = next(&TokenBook::default(), &tokens, 0).share("ann");
        assert_eq!((share.weight, share.sessions, share.tenants), (7, Some(3), 1));
        assert_eq!(next(&TokenBook::default(), &tokens, 0).share("nobody"), TenantShare::default());
    }
}
