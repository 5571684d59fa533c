//! What nodes tell of amounts: sums, silence, restarts, windows that pass, and nodes of earlier versions.

use super::super::view::NodeReport;
use super::*;

const DAY: u64 = 20_500;
const MINUTE: Duration = Duration::from_secs(60);

fn bytes(bytes: u64, frees_s: u64, ends_s: u64) -> ToldAmounts {
    let moved = Some(ToldBytes { bytes, frees_s, ends_s });
    [("ann".to_owned(), ToldAmount { moved, spent: None })].into()
}

fn dollars(day: u64, nanodollars: u64) -> ToldAmounts {
    let spent = Some(ToldSpending { day, nanodollars });
    [("ann".to_owned(), ToldAmount { moved: None, spent })].into()
}

fn elsewhere(bytes: u64, frees_in: Duration) -> BytesElsewhere {
    BytesElsewhere { bytes, frees_in: Some(frees_in) }
}

const NOTHING: BytesElsewhere = BytesElsewhere { bytes: 0, frees_in: None };

#[test]
fn what_the_others_have_told_last_is_added_up_for_each_tenant() {
    let (all, now) = (AmountsElsewhere::default(), Instant::now());
    let hear = |node, told: &ToldAmounts| all.hear((node, "1"), told, DAY, now);
    assert_eq!((all.moved("ann", now), all.spent("ann", DAY)), (NOTHING, 0));
    hear("b", &bytes(10, 120, 3600));
    hear("c", &bytes(5, 60, 1800));
    assert_eq!(all.moved("ann", now), elsewhere(15, MINUTE));
    hear("b", &bytes(12, 180, 3600));
    hear("b", &bytes(12, 180, 3600));
    assert_eq!(all.moved("ann", now), elsewhere(17, MINUTE), "the last figure, not the sum of all");
    hear("c", &ToldAmounts::new());
    assert_eq!(all.moved("ann", now), elsewhere(12, 3 * MINUTE), "it has none any more");
    hear("b", &dollars(DAY, 7));
    hear("c", &dollars(DAY, 2));
    assert_eq!((all.spent("ann", DAY), all.moved("ann", now)), (9, NOTHING));
    assert_eq!((all.spent("bob", DAY), all.moved("bob", now)), (0, NOTHING));
    hear("c", &dollars(DAY, 1));
    assert_eq!(all.spent("ann", DAY), 8, "a charge that was too high");
}

#[test]
fn a_silent_node_counts_until_its_window_is_over() {
    let (all, now) = (AmountsElsewhere::default(), Instant::now());
    all.hear(("b", "1"), &bytes(10, 60, 600), DAY, now);
    all.hear(("d", "1"), &dollars(DAY, 3), DAY, now);
    let later = |minutes| all.moved("ann", now + MINUTE * minutes);
    assert_eq!(later(0), elsewhere(10, MINUTE));
    assert_eq!(later(2), elsewhere(10, 8 * MINUTE), "nobody knows what of it is forgotten before");
    // What others tell meanwhile changes nothing of it.
    all.hear(("c", "1"), &ToldAmounts::new(), DAY, now + 9 * MINUTE);
    assert_eq!((later(9).bytes, later(10), all.spent("ann", DAY)), (10, NOTHING, 3));
    assert_eq!(all.spent("ann", DAY + 1), 0, "the next day");
    all.hear(("c", "1"), &ToldAmounts::new(), DAY + 1, now + 11 * MINUTE);
    assert!(all.lock().is_empty(), "and nothing is kept of what is over");
}

#[test]
fn a_node_that_was_started_again_gives_nothing_back() {
    let (all, now) = (AmountsElsewhere::default(), Instant::now());
    all.hear(("b", "1"), &bytes(10, 60, 600), DAY, now);
    all.hear(("b", "2"), &bytes(4, 3600, 3600), DAY, now);
    assert_eq!(all.moved("ann", now).bytes, 14);
    all.hear(("b", "3"), &ToldAmounts::new(), DAY, now);
    assert_eq!(all.moved("ann", now).bytes, 14);
    assert_eq!(all.moved("ann", now + 11 * MINUTE), elsewhere(4, 50 * MINUTE));
    assert_eq!(all.moved("ann", now + 61 * MINUTE), NOTHING);
    // Dollars are kept in the store: they are not counted twice, and not lost with the store.
    let told = [("1", 5, 5), ("2", 5, 5), ("2", 6, 6), ("3", 0, 6), ("3", 2, 6), ("4", 9, 9)];
    for (instance, nanodollars, expected) in told {
        all.hear(("b", instance), &dollars(DAY, nanodollars), DAY, now);
        assert_eq!(all.spent("ann", DAY), expected, "{instance} tells {nanodollars}");
    }
    all.hear(("b", "5"), &ToldAmounts::new(), DAY, now);
    assert_eq!(all.spent("ann", DAY), 9);
}

#[test]
fn a_node_that_is_started_again_and_again_takes_a_bounded_room() {
    let (all, start) = (AmountsElsewhere::default(), Instant::now());
    for second in 0..20_000_u64 {
        let now = start + Duration::from_secs(second);
        all.hear(("b", &second.to_string()), &bytes(1, 3600, 3600), DAY, now);
    }
    let now = start + Duration::from_secs(19_999);
    assert!(all.lock()["ann"].ended.len() <= 62, "{}", all.lock()["ann"].ended.len());
    let counted = all.moved("ann", now).bytes;
    assert!((3600..=3600 + 61).contains(&counted), "{counted} of one each second");
}

#[test]
fn days_are_told_apart_where_clocks_differ() {
    let (all, now) = (AmountsElsewhere::default(), Instant::now());
    all.hear(("b", "1"), &dollars(DAY, 5), DAY, now);
    // The clock of b is ahead: what it spent today still counts here.
    all.hear(("b", "1"), &ToldAmounts::new(), DAY, now);
    assert_eq!(all.spent("ann", DAY), 5);
    all.hear(("b", "1"), &dollars(DAY + 1, 2), DAY, now);
    assert_eq!((all.spent("ann", DAY), all.spent("ann", DAY + 1)), (5, 2));
    all.hear(("b", "1"), &dollars(DAY + 1, 3), DAY + 1, now);
    assert_eq!((all.spent("ann", DAY), all.spent("ann", DAY + 1)), (0, 3));
    // The clock of c is behind: what it spent yesterday does not.
    all.hear(("c", "1"), &dollars(DAY, 9), DAY + 1, now);
    assert_eq!(all.spent("ann", DAY + 1), 3);
    // A clock that is quite wrong fills nothing.
    (0..99).for_each(|day| all.hear(("c", "1"), &dollars(day * 3, 9), DAY + 1, now));
    assert_eq!(all.lock()["ann"].nodes.len(), 1);
}

#[test]
fn no_figure_is_too_large() {
    let (all, now) = (AmountsElsewhere::default(), Instant::now());
    for node in ["b", "c"] {
        all.hear((node, "1"), &bytes(u64::MAX, u64::MAX, u64::MAX), DAY, now);
        all.hear((node, "2"), &bytes(u64::MAX, u64::MAX, u64::MAX), u64::MAX, now);
    }
    assert_eq!(all.moved("ann", now), elsewhere(u64::MAX, HOUR));
    for node in ["b", "c"] {
        all.hear((node, "2"), &dollars(u64::MAX, u64::MAX), u64::MAX, now);
    }
    assert_eq!(all.spent("ann", u64::MAX), u64::MAX);
}

#[test]
fn a_report_is_the_same_on_both_sides_and_one_of_an_earlier_version_tells_nothing() {
    let mut told = bytes(u64::MAX, 60, 3600);
    told.insert("bob".to_owned(), dollars(DAY, u64::MAX)["ann"]);
    let text = serde_json::to_string(&told).unwrap();
    let expected = concat!(
        r#"{"ann":{"moved":{"bytes":18446744073709551615,"frees_s":60,"ends_s":3600}},"#,
        r#""bob":{"spent":{"day":20500,"nanodollars":18446744073709551615}}}"#
    );
    assert_eq!(text, expected);
    assert_eq!(serde_json::from_str::<ToldAmounts>(&text).unwrap(), told);
    let earlier = r#"{"name": "b", "instance": "1", "version": "0", "sessions": 1, "free": 1, "owned": 1,
        "draining": false, "ready": true, "limits": {}}"#;
    let earlier: NodeReport = serde_json::from_str(earlier).unwrap();
    assert!(earlier.amounts.is_empty());
    // What it told before it was replaced by that version still counts.
    let (all, now) = (AmountsElsewhere::default(), Instant::now());
    all.hear(("b", "0"), &bytes(10, 60, 600), DAY, now);
    all.hear((&earlier.name, &earlier.instance), &earlier.amounts, DAY, now);
    assert_eq!(all.moved("ann", now).bytes, 10);
}
