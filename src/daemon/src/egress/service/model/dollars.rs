//! Amounts of money, and what tokens cost. Pure.
//!
//! An amount is a whole number of billionths of a dollar, so that sums are exact and can be compared.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest amount that anybody may write, in dollars.
const LARGEST: f64 = 1_000_000.0;

/// Tokens to which a price applies.
const TOKENS_OF_A_PRICE: u128 = 1_000_000;

/// An amount of money, in billionths of a dollar. Outside of the daemon it is a number of dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dollars(u64);

impl Dollars {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// An amount as people write it: from 0 to a million dollars.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn of(dollars: f64) -> Result<Self, String> {
        let takes = format!("is {dollars}, takes a number of dollars from 0 to {LARGEST}");
        if !(0.0..=LARGEST).contains(&dollars) {
            return Err(takes);
        }
        // A duration is a checked number of billionths too.
        let billionths = Duration::try_from_secs_f64(dollars).ok().map(|parts| parts.as_nanos());
        billionths.and_then(|parts| u64::try_from(parts).ok()).map(Self).ok_or(takes)
    }

    /// The same as a number of dollars.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        Duration::from_nanos(self.0).as_secs_f64()
    }

    /// An amount of so many billionths of a dollar.
    pub(crate) fn of_nanodollars(nanodollars: u64) -> Self {
        Self(nanodollars)
    }

    /// The same as a number of billionths of a dollar.
    pub(crate) fn nanodollars(self) -> u64 {
        self.0
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left of it without the other.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Dollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dollars", self.as_f64())
    }
}

impl Serialize for Dollars {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).and_then(|dollars| Self::of(dollars).map_err(serde::de::Error::custom))
    }
}

/// Tokens of one request, each counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    /// Read by the model, and neither read from nor written to its cache.
    pub(super) input: u64,
    /// Written by the model.
    pub(super) output: u64,
    /// Read from the cache.
    pub(super) cache_read: u64,
    /// Written to the cache.
    pub(super) cache_write: u64,
}

/// What a million tokens cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Of input that no cache has to do with.
    pub input: Dollars,
    /// Of output.
    pub output: Dollars,
    /// Of input that is read from the cache.
    pub cache_read: Dollars,
    /// Of input that is written to the cache.
    pub cache_write: Dollars,
}

impl Price {
    /// What these cost, rounded up.
    pub(super) fn cost(&self, tokens: &Tokens) -> Dollars {
        let each = [
            (tokens.input, self.input),
            (tokens.output, self.output),
            (tokens.cache_read, self.cache_read),
            (tokens.cache_write, self.cache_write),
        ];
        let parts = each.map(|(count, price)| u128::from(count) * u128::from(price.0));
        let sum = parts.into_iter().fold(0, u128::saturating_add);
        Dollars(u64::try_from(sum.div_ceil(TOKENS_OF_A_PRICE)).unwrap_or(u64::MAX))
    }
}

/// The prices of the models of one configured model, by the name that a request asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices(Vec<(String, Price)>);

impl Prices {
    /// Takes the names of models, or beginnings of names that end in `*`.
    ///
    /// # Errors
    /// The first name that is neither.
    pub fn new(prices: impl IntoIterator<Item = (String, Price)>) -> Result<Self, String> {
        let prices: Vec<_> = prices.into_iter().collect();
        let is_name = |name: &str| !name.is_empty() && !name.trim_end_matches('*').contains('*');
        match prices.iter().find(|(name, _)| !is_name(name) || name.ends_with("**")) {
            Some((name, _)) => Err(name.clone()),
            None => Ok(Self(prices)),
        }
    }

    /// The price of a model: that of its name, or of the longest beginning of it.
    pub(super) fn find(&self, model: &str) -> Option<Price> {
        let matches = |(name, _): &&(String, Price)| match name.strip_suffix('*') {
            Some(beginning) => model.starts_with(beginning),
            None => name == model,
        };
        // A whole name is longer than any of its beginnings, also where both have its length.
        let rank = |(name, _): &&(String, Price)| (name.trim_end_matches('*').len(), !name.ends_with('*'));
        self.0.iter().filter(matches).max_by_key(rank).map(|(_, price)| *price)
    }

    /// The names that have a price, for an error.
    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(input: f64) -> Price {
        let of = |dollars| Dollars::of(dollars).unwrap();
        Price {
            input: of(input),
            output: of(input * 5.0),
            cache_read: of(input / 10.0),
            cache_write: of(input * 2.0),
        }
    }

    #[test]
    fn each_kind_of_token_has_its_price_and_a_part_of_a_billionth_counts_as_one() {
        let tokens =
            Tokens { input: 1_000_000, output: 100_000, cache_read: 1_000_000, cache_write: 500_000 };
        assert!((price(3.0).cost(&tokens).as_f64() - (3.0 + 1.5 + 0.3 + 3.0)).abs() < 1e-9);
        assert_eq!(price(0.0001).cost(&Tokens { input: 1, ..Tokens::default() }), Dollars(1));
        assert_eq!(price(3.0).cost(&Tokens::default()), Dollars::ZERO);
        let all = Tokens { input: u64::MAX, output: u64::MAX, cache_read: u64::MAX, cache_write: u64::MAX };
        assert_eq!(price(100_000.0).cost(&all), Dollars(u64::MAX));
    }

    #[test]
    fn an_amount_is_a_number_of_dollars_outside() {
        let amount: Dollars = serde_json::from_str("0.25").unwrap();
        assert_eq!((amount, serde_json::to_string(&amount).unwrap()), (Dollars(250_000_000), "0.25".into()));
        assert_eq!(amount.to_string(), "0.25 dollars");
        for wrong in ["-1", "1e300", "\"1\"", "1000001"] {
            assert!(serde_json::from_str::<Dollars>(wrong).is_err(), "{wrong}");
        }
        assert!(Dollars::of(f64::NAN).is_err());
    }

    #[test]
    fn the_closest_name_has_the_price() {
        let names =
            [("claude-*", 3.0), ("claude-opus-*", 15.0), ("claude-opus-4", 14.0), ("claude-opus-4*", 13.0)];
        let prices = Prices::new(names.map(|(name, dollars)| (name.to_owned(), price(dollars)))).unwrap();
        for (model, expected) in [
            ("claude-sonnet-4", Some(3.0)),
            ("claude-opus-5", Some(15.0)),
            ("claude-opus-4", Some(14.0)),
            ("claude-opus-4-1", Some(13.0)),
            ("gpt-5", None),
            ("claude", None),
        ] {
            assert_eq!(prices.find(model), expected.map(price), "{model}");
        }
        for wrong in ["", "a*b", "**", "a**"] {
            let refused = Prices::new([(wrong.to_owned(), price(1.0))]);
            assert_eq!(refused, Err(wrong.to_owned()));
        }
        assert_eq!(Prices::new([("*".to_owned(), price(1.0))]).unwrap().find("x"), Some(price(1.0)));
    }
}
