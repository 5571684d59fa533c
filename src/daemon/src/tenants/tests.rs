//! The file of tokens comes, changes, breaks and goes, and a daemon takes up what is good.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use sha2::{Digest, Sha256};

use super::measured::{NAMED, OTHER};
use super::*;

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn write(path: &Path, text: &str) {
    let staged = path.with_extension("new");
    fs::write(&staged, text).unwrap();
    fs::set_permissions(&staged, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(staged, path).unwrap();
}

fn entry(name: &str, token: &str, more: &str) -> String {
    format!("[[tokens]]\nname = \"{name}\"\nsha256 = \"{}\"\n{more}\n", crate::id::hex(&hash(token)))
}

fn owner(tenants: &Tenants, token: &str) -> Option<String> {
    let book = tenants.book();
    book.find(&hash(token), SystemTime::now).map(|token| token.tenant.name.to_string())
}

/// The file of tokens of a store.
fn beside(path: &Path) -> TokensFile {
    TokensFile { path: path.to_owned(), mark: Some(path.with_file_name("guarded")) }
}

#[test]
fn a_file_that_is_named_guards_before_it_comes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.toml");
    let file = TokensFile { path: path.clone(), mark: None };
    let tenants = Tenants::open(Vec::new(), Some(file), Metrics::default()).unwrap();
    assert!(tenants.book().is_guarded() && tenants.book().is_empty());
    write(&path, &entry("ann", "t1", ""));
    tenants.look(SystemTime::now());
    assert_eq!(owner(&tenants, "t1").as_deref(), Some("ann"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no mark is made beside it");
}

#[test]
fn a_file_that_comes_later_is_taken_up_and_closes_an_open_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.toml");
    let tenants = Tenants::open(Vec::new(), Some(beside(&path)), Metrics::default()).unwrap();
    assert!(!tenants.book().is_guarded() && !beside(&path).was_there());
    write(&path, &entry("ann", "t1", "limits.runs = 2"));
    tenants.look(SystemTime::now());
    assert!(tenants.book().is_guarded());
    assert_eq!(owner(&tenants, "t1").as_deref(), Some("ann"));
    assert_eq!((tenants.limits("ann").runs, tenants.limits("bob").runs), (Some(2), None));

    let over = tenants.book().find(&hash("t1"), SystemTime::now).unwrap().over.clone();
    write(&path, &entry("bob", "t2", ""));
    tenants.look(SystemTime::now());
    assert!(over.is_cancelled());
    assert_eq!((owner(&tenants, "t1"), owner(&tenants, "t2").as_deref()), (None, Some("bob")));
    let gone = tenants.take_gone();
    assert_eq!((gone.len(), &*gone[0].name, tenants.take_gone().len()), (1, "ann", 0));

    for broken in ["tokens = [", "[[tokens]]\nname = \"\""] {
        write(&path, broken);
        tenants.look(SystemTime::now());
        assert_eq!(owner(&tenants, "t2").as_deref(), Some("bob"), "{broken}");
        assert!(tenants.fault().is_some(), "{broken}");
    }
    fs::remove_file(&path).unwrap();
    assert!(beside(&path).was_there() && !beside(&path).guards(), "the store remembers it");
    tenants.look(SystemTime::now());
    assert_eq!(owner(&tenants, "t2").as_deref(), Some("bob"), "a file that is gone takes nobody's token");
    assert!(tenants.fault().unwrap().contains("not there any more"));
    write(&path, "");
    tenants.look(SystemTime::now());
    assert_eq!((owner(&tenants, "t2"), tenants.fault()), (None, None));
    assert!(tenants.book().is_guarded(), "and nobody comes in without one");
}

#[test]
fn a_file_that_is_no_good_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.toml");
    write(&path, "tokens = 1");
    assert!(Tenants::open(Vec::new(), Some(beside(&path)), Metrics::default()).is_err());
}

#[test]
fn a_token_ends_at_its_time_without_any_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.toml");
    write(&path, &entry("ann", "t1", "expires = \"2101-01-01T00:00:00Z\""));
    let tenants = Tenants::open(Vec::new(), Some(beside(&path)), Metrics::default()).unwrap();
    let over = tenants.book().find(&hash("t1"), SystemTime::now).unwrap().over.clone();
    let end = humantime::parse_rfc3339("2101-01-01T00:00:00Z").unwrap();
    tenants.look(end - Duration::from_secs(1));
    assert!(!over.is_cancelled());
    tenants.look(end);
    assert!(over.is_cancelled() && tenants.book().is_empty());
}

#[test]
fn metrics_name_a_bounded_number_of_tenants() {
    let tokens = (0..80).map(|n| KnownToken::plain(format!("t{n}"), hash(&n.to_string()))).collect();
    let tenants = Tenants::new(tokens, None, Metrics::default());
    let labels: std::collections::BTreeSet<_> = tenants.in_use().into_iter().map(|one| one.label).collect();
    assert_eq!(labels.len(), NAMED + 1);
    assert_eq!((&*tenants.label("default"), &*tenants.label("nobody")), ("default", OTHER));
}

#[tokio::test]
async fn a_rate_and_a_number_of_runs_are_refused_with_a_hint() {
    let mut token = KnownToken::plain("ann", hash("t1"));
    token.terms.limits.requests_per_second = Some(2.0);
    token.terms.limits.runs = Some(1);
    let tenants = Tenants::new(vec![token], None, Metrics::default());
    let ann = tenants.book().tenant("ann").unwrap().clone();
    let begun: Vec<_> = (0..3).map(|_| tenants.begin_request(&ann, 10, false)).collect();
    let limited = begun[2].as_ref().map(drop).unwrap_err();
    assert_eq!((limited.limit, limited.retry_seconds()), ("requests_per_second", Some(1)));
    assert_eq!(tenants.in_use().iter().find(|one| &*one.name == "ann").unwrap().requests, 2);
    let run = tenants.begin_run("ann", Duration::ZERO).await.unwrap();
    assert_eq!(tenants.begin_run("ann", Duration::ZERO).await.map(drop).unwrap_err().limit, "runs");
    drop((run, begun));
    drop(tenants.begin_run("ann", Duration::ZERO).await.unwrap());
    assert!(tenants.in_use().iter().all(|one| (one.runs, one.requests) == (0, 0)));
}

#[test]
fn a_tenant_owes_once_it_has_spent_its_credits() {
    let tokens = ["ann", "bob"].map(|name| KnownToken::plain(name, hash(name)));
    let owing = |tenants: &Tenants| ["ann", "bob"].map(|name| tenants.owes(tenants.share(name).id));
    let tenants = Tenants::new(tokens.to_vec(), None, Metrics::default());
    assert_eq!(owing(&tenants), [false, false]);
    tenants.begin_work(tenants.share("bob")).used(Duration::from_secs(99));
    assert_eq!(owing(&tenants), [false, false], "nobody else is at work");
    let bob = BTreeSet::from([tenants.share("bob").id]);
    assert_eq!(tenants.parts(&bob), None);
    let _works = tenants.begin_work(tenants.share("ann"));
    assert_eq!(owing(&tenants), [false, true]);
    assert_eq!(tenants.parts(&bob), Some(0.5));
    tenants.begin_work(tenants.share("ann")).used(Duration::from_secs(99));
    assert_eq!((owing(&tenants), tenants.parts(&bob)), ([true, true], None), "both owe");
}
