//! Tokens, and what their tenants may have: the types, and the one place that checks an entry of
//! `[[auth.tokens]]` or of the file of tokens.
//!
//! It must never show a token or its hash.

use std::fmt;
use std::time::SystemTime;

use serde::Deserialize;

use super::fair::MAX_WEIGHT;
use crate::config::{Secret, Size};
use crate::egress::Dollars;
use crate::id::from_hex;

/// Tokens in all: each request is compared with every one of them.
pub const MAX_TOKENS: usize = 1024;

/// Characters of a name.
const NAME: usize = 64;

/// The largest number that a limit takes, where it counts things.
const MOST: u32 = 1_000_000;

/// A Bearer token, known only by its hash.
#[derive(Clone, PartialEq)]
pub struct KnownToken {
    /// The owner of its sessions, which is its tenant; several tokens may have the same.
    pub name: String,
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
    /// When it ends.
    pub expires: Option<SystemTime>,
    /// What its tenant may have.
    pub terms: TenantTerms,
}

impl fmt::Debug for KnownToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, expires, terms, sha256: _ } = self;
        f.debug_struct("KnownToken")
            .field("name", name)
            .field("expires", expires)
            .field("terms", terms)
            .finish_non_exhaustive()
    }
}

impl KnownToken {
    /// A token without limits.
    #[must_use]
    pub fn plain(name: impl Into<String>, sha256: [u8; 32]) -> Self {
        Self { name: name.into(), sha256, expires: None, terms: TenantTerms::default() }
    }

    /// Whether it has ended at this time.
    #[must_use]
    pub fn is_over(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// What a tenant may have, and its part of what all wait for.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantTerms {
    /// Its part, against the weights of others: 1 to [`MAX_WEIGHT`].
    pub weight: u32,
    /// Whether it is served before all others, and may use the reserved places.
    pub is_operator: bool,
    /// Its limits.
    pub limits: TenantLimits,
}

impl Default for TenantTerms {
    fn default() -> Self {
        Self { weight: 1, is_operator: false, limits: TenantLimits::default() }
    }
}

/// The limits of one tenant; `None`: only those of the daemon.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantLimits {
    /// Sessions with containers at one time.
    pub sessions: Option<u32>,
    /// Executions under way at one time.
    pub executions: Option<u32>,
    /// Runs of code at one time.
    pub runs: Option<u32>,
    /// Requests in a second, over time; as many again may come at once.
    pub requests_per_second: Option<f64>,
    /// Bytes of the stored files of its sessions.
    pub stored_bytes: Option<u64>,
    /// Stored files, directories and links.
    pub stored_files: Option<u64>,
    /// Bytes that its programs move in and out in an hour.
    pub egress_bytes_per_hour: Option<u64>,
    /// Dollars that its programs spend on all models in a day (UTC).
    pub model_usd_per_day: Option<Dollars>,
}

/// One entry, as the files have it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(crate) struct TokenTable {
    name: String,
    sha256: Secret,
    expires: Option<String>,
    weight: Option<u32>,
    operator: Option<bool>,
    #[serde(default)]
    limits: LimitsTable,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct LimitsTable {
    sessions: Option<u32>,
    executions: Option<u32>,
    runs: Option<u32>,
    requests_per_second: Option<f64>,
    stored_bytes: Option<Size>,
    stored_files: Option<u64>,
    egress_bytes_per_hour: Option<Size>,
    model_usd_per_day: Option<f64>,
}

/// What is wrong with an entry: the key, and what it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenFault {
    pub(crate) key: &'static str,
    pub(crate) problem: String,
}

fn fault(key: &'static str, problem: impl Into<String>) -> TokenFault {
    TokenFault { key, problem: problem.into() }
}

impl TokenTable {
    /// The token, if every value is right.
    pub(crate) fn check(self) -> Result<KnownToken, TokenFault> {
        let Self { name, sha256, expires, weight, operator, limits } = self;
        check_name(&name)?;
        let sha256 = from_hex(sha256.expose().trim()).ok_or_else(|| {
            fault("sha256", "takes the 64 hexadecimal digits that sha256sum prints, not the token itself")
        })?;
        let expires = expires.map(|text| check_time(&text)).transpose()?;
        let weight = weight.unwrap_or(1);
        if !(1..=MAX_WEIGHT).contains(&weight) {
            return Err(fault("weight", format!("is {weight}, must be 1 to {MAX_WEIGHT}")));
        }
        let terms = TenantTerms { weight, is_operator: operator.unwrap_or(false), limits: limits.check()? };
        Ok(KnownToken { name, sha256, expires, terms })
    }
}

impl LimitsTable {
    fn check(self) -> Result<TenantLimits, TokenFault> {
        let count = |key, value: Option<u32>| match value {
            Some(n) if !(1..=MOST).contains(&n) => {
                Err(fault(key, format!("is {n}, must be 1 to {MOST}; leave it out for no limit")))
            }
            fine => Ok(fine),
        };
        let rate = self.requests_per_second;
        if let Some(rate) = rate.filter(|rate| !(0.01..=1e6).contains(rate)) {
            let problem = format!("is {rate}, must be 0.01 to 1000000; leave it out for no limit");
            return Err(fault("limits.requests_per_second", problem));
        }
        let dollars = |amount| Dollars::of(amount).map_err(|why| fault("limits.model_usd_per_day", why));
        Ok(TenantLimits {
            sessions: count("limits.sessions", self.sessions)?,
            executions: count("limits.executions", self.executions)?,
            runs: count("limits.runs", self.runs)?,
            requests_per_second: rate,
            stored_bytes: self.stored_bytes.map(|Size(bytes)| bytes),
            stored_files: self.stored_files,
            egress_bytes_per_hour: self.egress_bytes_per_hour.map(|Size(bytes)| bytes),
            model_usd_per_day: self.model_usd_per_day.map(dollars).transpose()?,
        })
    }
}

/// Whether it can be the name of a token.
pub(crate) fn check_name(name: &str) -> Result<(), TokenFault> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    if name.is_empty() || name.len() > NAME || !name.bytes().all(fits) {
        return Err(fault("name", format!("is {name:?}, takes up to {NAME} of A-Z, a-z, 0-9, _, - and .")));
    }
    Ok(())
}

fn check_time(text: &str) -> Result<SystemTime, TokenFault> {
    humantime::parse_rfc3339_weak(text.trim()).map_err(|_| {
        fault("expires", format!("is {text:?}, takes a time in UTC such as \"2027-01-31T12:00:00Z\""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn check(text: &str) -> Result<KnownToken, TokenFault> {
        toml::from_str::<TokenTable>(&format!("sha256 = \"{HASH}\"\n{text}")).unwrap().check()
    }

    #[test]
    fn every_key_is_taken() {
        let all = check(
            "name = \"n8n\"\nexpires = \"2027-01-31T12:00:00Z\"\nweight = 3\noperator = true\nlimits = { \
             sessions = 1, executions = 2, runs = 3, requests_per_second = 4.5, stored_bytes = \"1KiB\", \
             stored_files = 6, egress_bytes_per_hour = 7, model_usd_per_day = 0.5 }",
        );
        let all = all.unwrap();
        let at = all.expires.unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!((at, all.terms.weight, all.terms.is_operator), (1_801_396_800, 3, true));
        let limits = all.terms.limits.clone();
        assert_eq!((limits.sessions, limits.executions, limits.runs), (Some(1), Some(2), Some(3)));
        assert_eq!((limits.stored_bytes, limits.stored_files), (Some(1024), Some(6)));
        assert_eq!((limits.requests_per_second, limits.egress_bytes_per_hour), (Some(4.5), Some(7)));
        assert_eq!(limits.model_usd_per_day, Some(Dollars::of(0.5).unwrap()));
        assert!(!format!("{all:?}").contains(&HASH[..8]), "a hash is shown");
        assert!(all.is_over(all.expires.unwrap()) && !all.is_over(SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_key() {
        for (text, key) in [
            ("name = \"\"", "name"),
            ("name = \"a b\"", "name"),
            ("name = \"a\"\nexpires = \"tomorrow\"", "expires"),
            ("name = \"a\"\nweight = 0", "weight"),
            ("name = \"a\"\nweight = 1001", "weight"),
            ("name = \"a\"\nlimits.sessions = 0", "limits.sessions"),
            ("name = \"a\"\nlimits.requests_per_second = 0.0", "limits.requests_per_second"),
            ("name = \"a\"\nlimits.model_usd_per_day = -1.0", "limits.model_usd_per_day"),
        ] {
            assert_eq!(check(text).unwrap_err().key, key, "{text}");
        }
        let short = "name = \"a\"\nsha256 = \"secret-token\"";
        let said = toml::from_str::<TokenTable>(short).unwrap().check().unwrap_err();
        assert!(said.key == "sha256" && !said.problem.contains("secret-token"), "{said:?}");
        assert!(toml::from_str::<TokenTable>("name = \"a\"\nsha256 = \"\"\nlimit = 1").is_err());
    }
}
