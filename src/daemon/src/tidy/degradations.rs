//! What can fail while the daemon goes on is told everywhere in the same way: by `/health`, the metric, an
//! alert and the handbook; and a test shows it.

use super::lists::{OPERATION, rows, section};
use super::read;
use crate::degradation::Degradation;

#[test]
fn every_degradation_has_an_alert_and_a_row_in_the_handbook() {
    let rules = read("deploy/prometheus/rules.yml");
    for what in Degradation::ALL {
        let line = format!("- alert: {}\n", what.alert());
        assert!(rules.contains(&line), "{what:?}: rules.yml has no {}", what.alert());
    }
    let cells = |row: Vec<String>| row.iter().map(|cell| cell.replace('`', "")).collect();
    let listed: Vec<Vec<String>> =
        rows(&section(OPERATION, "What does not work")).into_iter().map(cells).collect();
    let row =
        |what: Degradation| vec![what.name().to_owned(), what.sentence().to_owned(), what.alert().to_owned()];
    let expected: Vec<_> = Degradation::ALL.into_iter().map(row).collect();
    assert_eq!(listed, expected);
}

/// The test must name what it sees: by the sentence, by the label of the metric, or as a value.
#[test]
fn every_degradation_is_shown_by_a_test_that_sees_it_told() {
    for what in Degradation::ALL {
        let (file, test) = what.shown_by();
        let text = read(file);
        let (_, body) = text.split_once(&format!("fn {test}(")).unwrap_or_else(|| panic!("{file}: {test}"));
        let body = body.split("\n#[").next().unwrap_or_default();
        let body = body.split("\n    #[").next().unwrap_or_default();
        let names = [what.sentence().to_owned(), what.name().to_owned(), format!("Degradation::{what:?}")];
        assert!(names.iter().any(|name| body.contains(name)), "{file}: {test} does not see {what:?}");
    }
}
