//! When an object in S3 may be deleted. A key is written once and named by one session only: an object that a
//! manifest has ceased to name is never named again. One that was never named may still be on its way.

use std::time::Duration;

use crate::terms::Terms;

/// Whether an upload that began this long ago, by the uploader's clock, may still be named by a manifest.
#[must_use]
pub fn may_name(since_upload: Duration, terms: &Terms) -> bool {
    since_upload < terms.grace / 2
}

/// Whether an object of this age, which no manifest names, may be deleted.
#[must_use]
pub fn may_delete(named: bool, age: Duration, terms: &Terms) -> bool {
    !named && age > terms.grace
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_deleted_that_can_still_be_named() {
        let terms = Terms::new(Duration::from_secs(5), Duration::from_secs(1));
        assert!(!may_delete(true, Duration::MAX, &terms));
        let moments = (0..8).map(|eighth| terms.grace * eighth / 4);
        for age in moments {
            assert!(!(may_name(age, &terms) && may_delete(false, age, &terms)), "{age:?}");
        }
        assert!(may_delete(false, terms.grace * 2, &terms));
    }
}
